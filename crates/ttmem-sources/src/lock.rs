//! Queries the holder of a file lock.
//!
//! The call goes to libc directly: rustix reads the holder into a type that cannot be negative, and the kernel reports -1
//! for a lock that no process owns.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd};

/// The holder of a write lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockHolder {
    /// No process but perhaps this one.
    None,
    /// A process that is not visible from this PID namespace.
    Hidden,
    /// A process, by its pid.
    Process(u32),
    /// No process: the lock belongs to an open file description. No writer of segments uses such locks.
    Description,
}

/// Queries the holder of a write lock on `file`.
pub(crate) fn lock_holder(file: BorrowedFd<'_>) -> LockHolder {
    // SAFETY: all-zero is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel writes one `flock`.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    if result != 0 || lock.l_type == libc::F_UNLCK as libc::c_short {
        return LockHolder::None;
    }
    match lock.l_pid {
        0 => LockHolder::Hidden,
        pid => u32::try_from(pid).map_or(LockHolder::Description, LockHolder::Process),
    }
}
