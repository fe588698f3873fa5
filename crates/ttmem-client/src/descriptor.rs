//! A descriptor in somebody else's process: the workload may close it, and open something of its own in its place.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where our descriptors go if they can: away from the numbers that programs close or duplicate over by habit.
const FROM: i32 = 500;

/// A descriptor that knows what it should be.
pub(crate) struct Descriptor {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    id: (u64, u64),
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> rustix::io::Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&fd, FROM).unwrap_or(fd);
        let found = rustix::fs::fstat(&fd)?;
        Ok(Self { fd: Some(fd), id: (found.st_dev, found.st_ino) })
    }

    /// What it should be: device and inode.
    pub(crate) fn id(&self) -> (u64, u64) {
        self.id
    }

    /// The descriptor, if it still is what it was.
    pub(crate) fn ours(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        let found = rustix::fs::fstat(fd).ok()?;
        ((found.st_dev, found.st_ino) == self.id).then_some(fd)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // What is not ours any more is not ours to close.
        if self.ours().is_none() {
            core::mem::forget(self.fd.take());
        }
    }
}
