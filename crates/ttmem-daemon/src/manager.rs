//! The service manager that started us, if one did: systemd, through the socket named in `NOTIFY_SOCKET`.
//!
//! Written here and not taken from a crate because those wait when the manager does not read, and the daemon waits for
//! nobody: what finds no room is told at the next tick.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use ttmem_core::words::Mono;

/// What the manager was told so far.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    ready: bool,
    status: String,
    /// How often it wants to hear that we live, and when it heard it last.
    watchdog_ns: Option<u64>,
    alive: Option<Mono>,
}

impl Manager {
    /// The one that the environment names. Nobody may be there: that is no reason not to serve.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name).ok());
        let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        // Inherited from a parent that is watched itself, it is not meant for us.
        let ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = variable("WATCHDOG_USEC").filter(|&us| ours && us > 0);
        // Twice as often as it must be.
        let watchdog_ns = watchdog.map(|us| us.saturating_mul(1000) / 2);
        Self { socket, watchdog_ns, ..Self::default() }
    }

    /// Whether anybody listens: ask before making a status.
    pub(crate) fn listens(&self) -> bool {
        self.socket.is_some()
    }

    /// We are listening, and this is how it stands. Says only what is new.
    pub(crate) fn tell(&mut self, now: Mono, status: &str) {
        let watched =
            self.watchdog_ns.is_some_and(|every| self.alive.is_none_or(|at| now.since(at) >= every));
        let mut message = String::new();
        if !self.ready {
            message.push_str("READY=1\n");
        }
        if self.status != status {
            message.push_str("STATUS=");
            message.push_str(status);
            message.push('\n');
        }
        if watched {
            message.push_str("WATCHDOG=1\n");
        }
        if self.send(&message) {
            self.ready = true;
            status.clone_into(&mut self.status);
            if watched {
                self.alive = Some(now);
            }
        }
    }

    /// We are about to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Ending\n");
    }

    /// Whether the manager has it.
    fn send(&self, message: &str) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| !message.is_empty()) else { return false };
        socket.send(message.as_bytes()).is_ok()
    }
}

/// A path, or behind an `@` a name without a file.
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
