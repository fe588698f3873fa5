//! Opens files that any user may have put into a shared folder, without following links, blocking or waking a device.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use std::fmt;
use std::io;
use std::path::Path;
use ttmem_wire::segment::SegmentError;

/// Why a file is not read.
#[derive(Debug)]
pub enum SkipReason {
    /// It is not a regular file, but this.
    NotAFile(&'static str),
    /// It is not in memory: reading it could hang.
    NotInMemory,
    /// It has holes, which no writer makes.
    Sparse,
    /// Its content is not that of a segment.
    Malformed(SegmentError),
    /// Its name and its header disagree.
    Misnamed,
    /// It does not belong to the process that it claims to belong to, or exceeds a limit of its user.
    Foreign(String),
    /// It cannot be opened or read.
    Io(io::Error),
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFile(what) => write!(f, "is {what}, not a file"),
            Self::NotInMemory => f.write_str("is not in shared memory"),
            Self::Sparse => f.write_str("has holes"),
            Self::Malformed(e) => e.fmt(f),
            Self::Misnamed => f.write_str("is named for another segment"),
            Self::Foreign(why) => f.write_str(why),
            Self::Io(e) => write!(f, "cannot be read: {e}"),
        }
    }
}

impl From<io::Error> for SkipReason {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<rustix::io::Errno> for SkipReason {
    fn from(e: rustix::io::Errno) -> Self {
        Self::Io(e.into())
    }
}

impl From<SegmentError> for SkipReason {
    fn from(e: SegmentError) -> Self {
        Self::Malformed(e)
    }
}

/// Device and inode, which identify a file.
pub(crate) type FileId = (u64, u64);

/// The id of a file from its metadata.
pub(crate) fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// `f_type` of filesystems in memory.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Whether the filesystem of a descriptor is in memory.
pub(crate) fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|it| [TMPFS, RAMFS].contains(&{ it.f_type }))
}

/// Refuses anything but a regular file.
pub(crate) fn require_regular_file(stat: &Stat) -> Result<(), SkipReason> {
    Err(SkipReason::NotAFile(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }))
}

/// Finds a file of a folder without opening it, since opening a device or a pipe may have effects, and without leaving the
/// folder's filesystem: another one may be mounted on the file, served by a program that never answers.
pub(crate) fn find_file(folder: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, Stat), SkipReason> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let handle = match rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve) {
        Err(rustix::io::Errno::XDEV) => return Err(SkipReason::NotInMemory),
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            rustix::fs::openat(folder, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    let stat = rustix::fs::fstat(&handle)?;
    Ok((handle, stat))
}

/// Flags for reading a file that may turn out to be anything.
pub(crate) const READ_ONLY: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a file that [`find_file`] found for reading.
pub(crate) fn open_found(handle: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    // `thread-self`, since a thread may have a descriptor table of its own.
    let path = format!("/proc/thread-self/fd/{}", handle.as_raw_fd());
    rustix::fs::open(path, READ_ONLY, Mode::empty())
}

/// Opens a path below a folder, through no link of any kind.
pub(crate) fn open_beneath(folder: BorrowedFd<'_>, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, and sandboxes that do not know the call: a single name cannot lead elsewhere.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) if !path.contains('/') => {
            rustix::fs::openat(folder, path, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        opened => opened,
    }
}

/// Reads until the buffer is full or the file ends, and returns the number of bytes read.
pub(crate) fn read_at(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// The filesystem of a folder for shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// Whether it is in memory; files on others are not read.
    pub in_memory: bool,
    /// Its size.
    pub bytes: u64,
    /// Free space for unprivileged users.
    pub free_bytes: u64,
}

/// Reads size and kind of a folder's filesystem.
pub fn filesystem_of(folder: &Path) -> io::Result<Filesystem> {
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstatfs(&folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_bsize as u64);
    Ok(Filesystem {
        in_memory: is_in_memory(folder.as_fd()),
        bytes: bytes(stat.f_blocks),
        free_bytes: bytes(stat.f_bavail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_filesystem_is_recognised() {
        let found = |path: &str| filesystem_of(Path::new(path)).unwrap();
        assert!(found("/dev/shm").in_memory && found("/dev/shm").bytes > 0);
        assert!(!found("/proc").in_memory);
        assert!(filesystem_of(Path::new("/dev/null")).is_err(), "no folder");
    }
}
