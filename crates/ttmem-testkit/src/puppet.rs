//! Another process with a client in it.
//!
//! A test binary runs itself again with [`ENV`] set; there one test, [`run_if_asked`], takes commands from standard
//! input and says `ok` on standard error for each, once the server has taken it in. So a test can have clients with
//! pids of their own, in other namespaces or of other users, that fork, die and hold still exactly when it wants.
#![allow(unsafe_code)]

use crate::client::{Client, message};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use ttmem_wire::legacy::{MAX_SIZE, Type, Vintage};

/// Names the socket a puppet connects to.
pub const ENV: &str = "TTMEM_PUPPET";

/// The name of the test that calls [`run_if_asked`].
const TEST: &str = "puppet";

/// The puppet's strings.
pub struct Puppet {
    child: Child,
    strings: ChildStdin,
    answers: BufReader<std::process::ChildStderr>,
    /// The process with the client in it, as seen from here.
    pub pid: u32,
}

impl Puppet {
    /// A puppet in a process of its own.
    pub fn new(socket: &Path) -> Self {
        Self::by(&[], &std::env::current_exe().unwrap(), socket)
    }

    /// A puppet started through another program, as `["setpriv", "--reuid", "65534"]`.
    pub fn by(through: &[&str], exe: &Path, socket: &Path) -> Self {
        let mut command = match through {
            [] => Command::new(exe),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(exe);
                command
            }
        };
        let mut child = command
            .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
            .env(ENV, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let strings = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stderr.take().unwrap());
        let pid = child.id();
        let mut puppet = Self { child, strings, answers, pid };
        puppet.pull("hello");
        puppet
    }

    /// Gives a command and waits for what it says.
    pub fn pull(&mut self, command: &str) -> String {
        writeln!(self.strings, "{command}").unwrap();
        let mut line = String::new();
        while !line.starts_with("ok") {
            line.clear();
            let len = self.answers.read_line(&mut line).unwrap();
            assert!(len > 0, "the puppet died of {command:?}");
        }
        line.trim_start_matches("ok").trim().to_owned()
    }

    /// One message, taken in when this returns.
    pub fn tell(&mut self, kind: Type, device: i32, buffer_type: u8, id: u64, size: u64) {
        self.pull(&format!("tell {} {device} {buffer_type} {id} {size}", kind as u8));
    }

    /// Waits for its end.
    pub fn wait(&mut self) {
        let _ = self.child.wait();
    }

    /// kill -9, and wait until the kernel has taken it away.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it in peace.
    pub fn quit(mut self) {
        self.pull("quit");
        let _ = self.child.wait();
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The puppet itself. Does nothing in a process that is none.
pub fn run_if_asked() {
    let Some(socket) = std::env::var_os(ENV) else { return };
    let socket = PathBuf::from(socket);
    let mut client = Client::connect_to(&socket, Vintage::V144);
    let mut crowd = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let mut said = String::new();
        match words[..] {
            ["hello"] => {}
            ["tell", kind, device, buffer_type, id, size] => {
                let kind = Type::from_byte(kind.parse().unwrap()).unwrap();
                let (id, size) = (id.parse().unwrap(), size.parse().unwrap());
                client.send(message(kind, device.parse().unwrap(), buffer_type.parse().unwrap(), id, size));
                client.sync();
            }
            // Many without waiting in between.
            ["flood", count, size] => {
                let (count, size): (u64, u64) = (count.parse().unwrap(), size.parse().unwrap());
                for n in 0..count {
                    client.alloc(0, 0, 0x1000 + n * size, size);
                }
                client.sync();
            }
            // Many connections, each heard once.
            ["crowd", count] => {
                let count: u64 = count.parse().unwrap();
                let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
                let most = rustix::process::Rlimit { current: limit.maximum, ..limit };
                rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
                for n in 0..count {
                    let mut one = Client::connect_to(&socket, Vintage::V144);
                    one.alloc(0, 0, n, 1);
                    one.sync();
                    crowd.push(one);
                }
            }
            // All of them ask, and nobody waits for an answer.
            ["crowd-asks"] => {
                for one in &mut crowd {
                    one.send(message(Type::Query, 0, 0, 0, 0));
                }
            }
            ["reconnect"] => {
                client = Client::connect_to(&socket, Vintage::V144);
                client.sync();
            }
            ["fork", id, size] => {
                said = fork(&client, id.parse().unwrap(), size.parse().unwrap()).to_string();
                client.sync();
            }
            // The same, without asking the server whether it has heard.
            ["fork-unheard", id, size] => {
                said = fork(&client, id.parse().unwrap(), size.parse().unwrap()).to_string();
            }
            ["reap", pid] => {
                let pid = pid.parse().unwrap();
                // SAFETY: the child is ours, and nobody else waits for it.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, std::ptr::null_mut(), 0);
                }
            }
            // A question now, its answer later.
            ["ask"] => client.send(message(Type::Query, 0, 0, 0, 0)),
            ["answer"] => said = client.answer().levels.dram.to_string(),
            // Gone before the server can have read it.
            ["free-and-quit", id] => {
                eprintln!("ok");
                client.free(0, id.parse().unwrap());
                std::process::exit(0);
            }
            ["quit"] => {
                eprintln!("ok");
                std::process::exit(0);
            }
            _ => panic!("the puppet does not know {line:?}"),
        }
        eprintln!("ok {said}");
    }
}

/// Forks a child that uses the parent's socket for one ALLOC on device 0 and then holds still. Returns its pid once it
/// has spoken.
fn fork(client: &Client, id: u64, size: u64) -> i32 {
    let mut buffer = [0; MAX_SIZE];
    let bytes = message(Type::Alloc, 0, 0, id, size).encode(Vintage::V144, &mut buffer).to_vec();
    let fd = client.stream.as_raw_fd();
    let (spoken, speaks) = rustix::pipe::pipe().unwrap();
    // SAFETY: the child calls nothing but send, write, prctl and pause, which are safe after a fork of threads.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL);
                libc::write(speaks.as_raw_fd(), [0u8].as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
            pid => pid,
        }
    };
    rustix::io::read(spoken, &mut [0u8]).unwrap();
    pid
}
