//! Turns signals into bytes on a stream, which the loop can wait for.
#![allow(unsafe_code)]

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;

/// The byte of a signal that requests statistics.
pub(crate) const SUMMARY: u8 = b's';
/// The byte of a signal that ends the daemon.
const END: u8 = b'e';

/// Opens a stream on which a byte arrives for each signal: [`END`] or [`SUMMARY`].
pub(crate) fn signal_stream() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    writer.set_nonblocking(true)?;
    // SAFETY: this only sets the default, without which children could not be reaped; a parent may have changed it.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    for (signal, byte) in [(SIGINT, END), (SIGTERM, END), (SIGHUP, END), (SIGUSR1, SUMMARY)] {
        // `nohup` ignores SIGHUP, so that the daemon outlives its terminal.
        if signal != SIGHUP || !is_ignored(SIGHUP) {
            send_on(signal, writer.try_clone()?, byte)?;
        }
    }
    Ok(reader)
}

/// Whether a signal is ignored, as `nohup` arranges before it starts a program.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid sigaction, and this call only reads.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes `signal` send `byte` on `stream`.
fn send_on(signal: libc::c_int, stream: UnixStream, byte: u8) -> io::Result<()> {
    let fd = stream.as_raw_fd();
    let send = move || {
        // SAFETY: `send` may be called in a signal handler, and the descriptor is never closed.
        unsafe { libc::send(fd, (&raw const byte).cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    };
    // SAFETY: the action is one call that is safe in a signal handler.
    unsafe { signal_hook::low_level::register(signal, send)? };
    // The handler stays as long as the process, so the descriptor is never closed.
    let _ = stream.into_raw_fd();
    Ok(())
}
