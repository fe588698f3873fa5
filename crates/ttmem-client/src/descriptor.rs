//! A descriptor in another program's process, which may close it and open a file of its own under the same number.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Lowest number for our descriptors, if possible: above those that programs close or duplicate over by habit.
const LOWEST: i32 = 500;

/// A descriptor whose file is verified before each use.
pub(crate) struct Descriptor {
    /// `Some` until it is dropped.
    fd: Option<OwnedFd>,
    id: (u64, u64),
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> rustix::io::Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&fd, LOWEST).unwrap_or(fd);
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self { fd: Some(fd), id: (stat.st_dev, stat.st_ino) })
    }

    /// Returns the device and inode of its file.
    pub(crate) fn file_id(&self) -> (u64, u64) {
        self.id
    }

    /// Returns the descriptor, if it still refers to its file.
    pub(crate) fn verified(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        let stat = rustix::fs::fstat(fd).ok()?;
        ((stat.st_dev, stat.st_ino) == self.id).then_some(fd)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // A number that the program uses for another file must not be closed.
        if self.verified().is_none() {
            core::mem::forget(self.fd.take());
        }
    }
}
