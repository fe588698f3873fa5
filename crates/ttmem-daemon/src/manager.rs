//! Notifies the service manager that started the daemon: systemd, through the socket in `NOTIFY_SOCKET`.
//!
//! Crates for this wait while the manager does not read, which the daemon must not: here, a message that the socket does not
//! take is sent again at the next tick. The manager may also pass sockets that it listens on.
#![allow(unsafe_code)]

use rustix::fs::FileType;
use rustix::io::FdFlags;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use ttmem_core::words::Mono;

/// The first descriptor that a service manager passes, and the most of them that are taken.
const FIRST_PASSED: u32 = 3;
const MAX_PASSED: u32 = 16;

/// The service manager, and what was sent to it.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Whether it was notified that the daemon is ready.
    ready: bool,
    status: String,
    /// Time between two signs of life.
    watchdog_ns: Option<u64>,
    /// When the last sign of life was sent.
    alive_at: Option<Mono>,
}

impl ServiceManager {
    /// The service manager that the environment names, if there is one.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name).ok());
        let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        // A watchdog of the parent is inherited, but not meant for this process.
        let is_own = variable("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = variable("WATCHDOG_USEC").filter(|&us| is_own && us > 0);
        // Twice as often as required.
        let watchdog_ns = watchdog.map(|us| us.saturating_mul(1000) / 2);
        Self { socket, watchdog_ns, ..Self::default() }
    }

    /// Whether there is a service manager, so that a status is needed.
    pub(crate) fn is_present(&self) -> bool {
        self.socket.is_some()
    }

    /// Notifies the manager that the daemon is ready and alive, and of its status, as far as that is new or due.
    pub(crate) fn notify(&mut self, now: Mono, status: &str) {
        let is_due = |interval| self.alive_at.is_none_or(|at| now.since(at) >= interval);
        let watchdog_due = self.watchdog_ns.is_some_and(is_due);
        let mut message = String::new();
        if !self.ready {
            message.push_str("READY=1\n");
        }
        if self.status != status {
            message.push_str("STATUS=");
            message.push_str(status);
            message.push('\n');
        }
        if watchdog_due {
            message.push_str("WATCHDOG=1\n");
        }
        if self.send(&message) {
            self.ready = true;
            status.clone_into(&mut self.status);
            if watchdog_due {
                self.alive_at = Some(now);
            }
        }
    }

    /// Notifies the manager that the daemon is about to exit.
    pub(crate) fn notify_stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Ending\n");
    }

    /// Sends a message. Returns whether the socket took it.
    fn send(&self, message: &str) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| !message.is_empty()) else { return false };
        socket.send(message.as_bytes()).is_ok()
    }
}

/// The listening sockets that the service manager has passed to this process.
pub(crate) fn take_sockets() -> Vec<UnixListener> {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    // The variables may be inherited from a process that they were meant for.
    let is_own = variable("LISTEN_PID") == Some(std::process::id());
    let count = variable("LISTEN_FDS").filter(|_| is_own).unwrap_or(0).min(MAX_PASSED);
    let is_listening = |fd: &OwnedFd| {
        let is_socket =
            rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        is_socket && rustix::net::sockopt::socket_acceptconn(fd) == Ok(true)
    };
    (FIRST_PASSED..FIRST_PASSED + count)
        .filter_map(|number| {
            // Another part of the process may have closed the number; then it is no descriptor, or not a socket that listens.
            // SAFETY: these descriptors were passed to this process, and it takes them only here.
            let fd = unsafe { OwnedFd::from_raw_fd(number as i32) };
            if rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).is_err() {
                // It does not exist, so it must not be closed.
                std::mem::forget(fd);
                return None;
            }
            is_listening(&fd).then(|| UnixListener::from(fd))
        })
        .collect()
}

/// Connects to a path, or to an abstract name, which begins with `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}
