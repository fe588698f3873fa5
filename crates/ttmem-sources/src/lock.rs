//! Who holds a lock. rustix reads the holder into a type that cannot be negative, and the kernel does say -1.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd};

/// Who holds a write lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody, or this process itself.
    Nobody,
    /// A process that cannot be seen from here.
    Unseen,
    /// A process.
    Process(u32),
    /// A lock that belongs to no process: no writer of ours holds such.
    Other,
}

pub(crate) fn holder(file: BorrowedFd<'_>) -> Holder {
    // SAFETY: zeros are a `flock`: a read lock on nothing in particular.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel writes one `flock`.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    if asked != 0 || lock.l_type == libc::F_UNLCK as libc::c_short {
        return Holder::Nobody;
    }
    match lock.l_pid {
        0 => Holder::Unseen,
        pid => u32::try_from(pid).map_or(Holder::Other, Holder::Process),
    }
}
