//! Processes that produce load, and a server that discards it.
#![allow(unsafe_code, clippy::unwrap_used)]

use super::this_program;
use anyhow::{Context, ensure};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ttmem_testkit::message;
use ttmem_wire::legacy::{MAX_SIZE, Type, Vintage};

/// Buffers that a sending client holds before it begins to free.
const WINDOW: u64 = 1000;

/// The time that sending took.
pub(crate) struct Sent {
    pub(crate) time: Duration,
}

/// Starts `clients` processes that send `messages` each, one a send, and waits until the server has read them all. Each has its
/// own chip, as processes do.
pub(crate) fn send_from(path: &Path, clients: usize, messages: usize) -> anyhow::Result<Sent> {
    let program = this_program()?;
    let mut children: Vec<Child> = (0..clients)
        .map(|n| {
            Command::new(&program)
                .args(["bench-client", "send"])
                .arg(path)
                .args([messages.to_string(), n.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot start a client")
        })
        .collect::<anyhow::Result<_>>()?;
    // All are connected before the first begins.
    for child in &mut children {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line)?;
    }
    let begin = Instant::now();
    for child in &mut children {
        drop(child.stdin.take());
    }
    for child in &mut children {
        ensure!(child.wait()?.success(), "a client failed");
    }
    Ok(Sent { time: begin.elapsed() })
}

/// The client's side of all kinds of load.
pub(crate) fn client(args: &[&str]) -> anyhow::Result<()> {
    match *args {
        ["send", path, messages, device] => send(Path::new(path), messages.parse()?, device.parse()?),
        ["hold", path, chips, buffers] => hold(Path::new(path), chips.parse()?, buffers.parse()?),
        ["publish", folder, n, chips] => super::dashboard::publish(folder, n.parse()?, chips.parse()?),
        _ => anyhow::bail!("bench-client: {args:?}"),
    }
}

fn send(path: &Path, messages: u64, device: i32) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let mut buffer = [0; MAX_SIZE];
    let (mut next, mut oldest) = (0, 0);
    for n in 0..messages {
        let message = if next - oldest >= WINDOW && n % 2 == 0 {
            oldest += 1;
            message(Type::Free, device, 0, oldest - 1, 0)
        } else {
            next += 1;
            message(Type::Alloc, device, 0, next - 1, 4096)
        };
        stream.write_all(message.encode(Vintage::V144, &mut buffer))?;
    }
    // The server closes the connection once it has read everything.
    stream.shutdown(std::net::Shutdown::Write)?;
    let _ = stream.read(&mut [0]);
    Ok(())
}

/// Messages for `count` live buffers, at addresses as allocators return them.
pub(crate) fn many_buffers(count: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count as usize * 144);
    let mut buffer = [0; MAX_SIZE];
    for n in 0..count {
        let message = message(Type::Alloc, 0, (n % 2) as u8, 0x10_0000 + n * 2048, 2048);
        bytes.extend_from_slice(message.encode(Vintage::V144, &mut buffer));
    }
    bytes
}

/// A process that holds buffers until it is dropped.
pub(crate) struct Holder(Child);

impl Holder {
    pub(crate) fn start(path: &Path, chips: i32, buffers: u64) -> anyhow::Result<Self> {
        let mut child = Command::new(this_program()?)
            .args(["bench-client", "hold"])
            .arg(path)
            .args([chips.to_string(), buffers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a client")?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line)?;
        Ok(Self(child))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hold(path: &Path, chips: i32, buffers: u64) -> anyhow::Result<()> {
    let mut client = ttmem_testkit::Client::connect_to(path, Vintage::V144);
    // No two processes share an address.
    let base = u64::from(std::process::id()) << 32;
    for n in 0..buffers {
        let device = (n % chips as u64) as i32;
        match n / chips as u64 % 8 {
            0 => client.cb_alloc(device, 0x19d60 + n % 7 * 4096, 8192),
            1 => client.kernel_load(device, 0, n, 16_384),
            kind => client.alloc(device, [0, 0, 1, 1, 3, 4][kind as usize - 2], base + n * 4096, 4096),
        }
    }
    client.sync();
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The server that reads and discards, in a process of its own.
pub(crate) struct Discard {
    child: Child,
    pub(crate) path: PathBuf,
    _folder: TempDir,
}

impl Discard {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("discard.sock");
        let mut child = Command::new(this_program()?)
            .arg("bench-discard")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the discarding server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line)?;
        Ok(Self { child, path, _folder: folder })
    }

    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        let nanos = stat.split_ascii_whitespace().next().context("no schedstat")?.parse()?;
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Discard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The discarding server: one thread, epoll and large reads, as in the daemon, without processing.
pub(crate) fn discard(path: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    println!("ready");
    let mut streams: BTreeMap<u64, UnixStream> = BTreeMap::new();
    let (mut events, mut buffer, mut next) = (Vec::with_capacity(64), vec![0; 256 << 10], 1);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let number = event.data.u64();
            if number == 0 {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    epoll::add(&epoll, &stream, epoll::EventData::new_u64(next), epoll::EventFlags::IN)?;
                    streams.insert(next, stream);
                    next += 1;
                }
            } else if let Some(stream) = streams.get_mut(&number)
                && matches!(stream.read(&mut buffer), Ok(0))
            {
                streams.remove(&number);
            }
        }
    }
}

/// Processor time of all children that have ended.
pub(crate) fn cpu_of_children() -> Duration {
    // SAFETY: all-zero is a valid rusage, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
