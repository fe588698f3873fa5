//! Helper processes with a client of the old protocol.
//!
//! With them a test has clients with their own pids, in other namespaces or of other users, that fork, exit and pause exactly
//! when requested. [`crate::helper`] starts and controls them.
#![allow(unsafe_code)]
#![allow(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "requests are dispatched to functions of one form"
)]

use crate::client::{Client, message};
use crate::helper::{self, Helper, Role};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use ttmem_wire::legacy::{MAX_SIZE, Type, Vintage};

/// A helper process with a legacy client.
pub struct Puppet {
    helper: Helper,
    /// The process's pid, in the test's namespace.
    pub pid: u32,
}

impl Puppet {
    /// Starts a process that connects to a server.
    pub fn new(socket: &Path) -> Self {
        Self::start_through(&[], &std::env::current_exe().unwrap(), socket)
    }

    /// Starts a process through another program, such as `["setpriv", "--reuid", "65534"]`; `exe` is the test binary or a copy
    /// of it.
    pub fn start_through(through: &[&str], exe: &Path, socket: &Path) -> Self {
        let helper = Helper::start(exe, through, &Role::Puppet { socket: socket.to_owned() }, &[]);
        let pid = helper.pid();
        let mut puppet = Self { helper, pid };
        puppet.ping();
        puppet
    }

    /// Sends one message and waits until the server has processed it.
    pub fn send(&mut self, kind: Type, device: i32, buffer_type: u8, id: u64, size: u64) {
        self.send_byte(kind as u8, device, buffer_type, id, size);
    }

    /// Waits until the process exits.
    pub fn wait(&mut self) {
        self.helper.wait();
    }

    /// Kills the process with SIGKILL, and waits until it is reaped.
    pub fn kill(&mut self) {
        self.helper.kill();
    }

    /// Makes the process exit.
    pub fn quit(mut self) {
        self.helper.quit();
    }
}

helper::requests!(Puppet, Process {
    /// Does nothing: a reply shows that the process is connected.
    Ping: ping() -> ();
    /// Sends one message, its type as a byte, and waits until the server has processed it.
    Send: send_byte(kind: u8, device: i32, buffer_type: u8, id: u64, size: u64) -> ();
    /// Allocates buffers of a size without waiting in between.
    Flood: flood(count: u64, size: u64) -> ();
    /// Opens more connections, each of which allocates one byte.
    Crowd: crowd(count: u64) -> ();
    /// Sends a query on each of these connections without waiting for answers.
    CrowdQueries: crowd_queries() -> ();
    /// Closes the connection and opens another one.
    Reconnect: reconnect() -> ();
    /// Forks a child that allocates on its parent's socket and then pauses; returns its pid once the server has processed
    /// that.
    Fork: fork(id: u64, size: u64) -> i32;
    /// Forks a child as `Fork` does, but returns as soon as it has sent its message.
    ForkUnanswered: fork_unanswered(id: u64, size: u64) -> i32;
    /// Kills a child and waits until it is reaped.
    Reap: reap(pid: i32) -> ();
    /// Sends a query.
    Query: query() -> ();
    /// Waits for a query's answer, and returns its bytes of DRAM.
    Answer: answer() -> u64;
    /// Replies, then frees a buffer and exits, both before the server can have read the free.
    FreeAndQuit: free_and_quit(id: u64) -> ();
});

/// The helper process's side.
pub(crate) struct Process {
    socket: PathBuf,
    client: Client,
    crowd: Vec<Client>,
}

impl Process {
    pub(crate) fn new(socket: PathBuf) -> Self {
        let client = Client::connect_to(&socket, Vintage::V144);
        Self { socket, client, crowd: Vec::new() }
    }

    fn ping(&self) -> io::Result<()> {
        Ok(())
    }

    fn send_byte(&mut self, kind: u8, device: i32, buffer_type: u8, id: u64, size: u64) -> io::Result<()> {
        self.client.send(message(Type::from_byte(kind).unwrap(), device, buffer_type, id, size));
        self.client.sync();
        Ok(())
    }

    fn flood(&mut self, count: u64, size: u64) -> io::Result<()> {
        for n in 0..count {
            self.client.alloc(0, 0, 0x1000 + n * size, size);
        }
        self.client.sync();
        Ok(())
    }

    fn crowd(&mut self, count: u64) -> io::Result<()> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let most = rustix::process::Rlimit { current: limit.maximum, ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, most)?;
        for n in 0..count {
            let mut one = Client::connect_to(&self.socket, Vintage::V144);
            one.alloc(0, 0, n, 1);
            one.sync();
            self.crowd.push(one);
        }
        Ok(())
    }

    fn crowd_queries(&mut self) -> io::Result<()> {
        for one in &mut self.crowd {
            one.send(message(Type::Query, 0, 0, 0, 0));
        }
        Ok(())
    }

    fn reconnect(&mut self) -> io::Result<()> {
        self.client = Client::connect_to(&self.socket, Vintage::V144);
        self.client.sync();
        Ok(())
    }

    fn fork(&mut self, id: u64, size: u64) -> io::Result<i32> {
        let pid = fork(&self.client, id, size)?;
        self.client.sync();
        Ok(pid)
    }

    fn fork_unanswered(&mut self, id: u64, size: u64) -> io::Result<i32> {
        fork(&self.client, id, size)
    }

    fn reap(&self, pid: i32) -> io::Result<()> {
        helper::reap(pid);
        Ok(())
    }

    fn query(&mut self) -> io::Result<()> {
        self.client.send(message(Type::Query, 0, 0, 0, 0));
        Ok(())
    }

    fn answer(&mut self) -> io::Result<u64> {
        Ok(self.client.answer().levels.dram)
    }

    fn free_and_quit(&mut self, id: u64) -> io::Result<()> {
        helper::send(&helper::reply(Ok::<_, io::Error>(())));
        self.client.free(0, id);
        std::process::exit(0);
    }
}

/// Forks a child that sends one ALLOC for device 0 on the parent's socket and then pauses. Returns its pid once that is sent.
fn fork(client: &Client, id: u64, size: u64) -> io::Result<i32> {
    let mut buffer = [0; MAX_SIZE];
    let bytes = message(Type::Alloc, 0, 0, id, size).encode(Vintage::V144, &mut buffer).to_vec();
    let fd = client.stream.as_raw_fd();
    let (sent, done) = rustix::pipe::pipe()?;
    // SAFETY: the child calls only send, write, prctl and pause, which are safe after a fork with threads.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL);
                libc::write(done.as_raw_fd(), [0u8].as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
            pid => pid,
        }
    };
    rustix::io::read(sent, &mut [0u8])?;
    Ok(pid)
}
