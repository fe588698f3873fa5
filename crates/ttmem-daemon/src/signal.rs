//! Signals as bytes on a stream.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;

/// Whether a signal is ignored, as `nohup` arranges before it starts a program.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid sigaction, and asking changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// From now on `signal` sends `byte` on `stream`.
pub(crate) fn send_on(signal: libc::c_int, stream: UnixStream, byte: u8) -> io::Result<()> {
    let fd = stream.as_raw_fd();
    let send = move || {
        // SAFETY: `send` may be called in a signal handler, and the descriptor is never closed.
        unsafe { libc::send(fd, (&raw const byte).cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    };
    // SAFETY: the action does nothing but one call that is safe in a signal handler.
    unsafe { signal_hook::low_level::register(signal, send)? };
    // The handler lives as long as the process, so the descriptor must, too.
    let _ = stream.into_raw_fd();
    Ok(())
}
