//! A listening socket at a path. It is not taken from a server that runs, and replaces that of one that has exited.

use crate::Error;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A listening socket, whose file is removed on drop.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    path: PathBuf,
    mode: u32,
    inode: u64,
    /// Held while the daemon runs, so that two that start at once cannot both replace a stale socket.
    _lock: Lock,
}

/// A locked file next to a socket, removed on drop.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: OwnedFd,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A cleaner may have removed it, and another server created its own.
        let own = rustix::fs::fstat(&self.file).map(|stat| stat.st_ino);
        if fs::symlink_metadata(&self.path).is_ok_and(|found| own == Ok(found.ino())) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Creates the socket, or replaces a stale one.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self, Error> {
        let listen = |source| Error::Listen { path: path.to_owned(), source };
        // The last folder of a path is created; if more are missing, the path is probably mistyped.
        if let Some(folder) =
            path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        {
            fs::DirBuilder::new().mode(0o755).create(folder).map_err(listen)?;
        }
        let lock =
            take_lock(path).map_err(listen)?.ok_or_else(|| Error::AlreadyServed { path: path.to_owned() })?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(Error::NotASocket { path: path.to_owned() });
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(listen)?;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                // A server that answers, or may not be asked, is not replaced.
                Ok(_) => return Err(Error::AlreadyServed { path: path.to_owned() }),
                Err(source) => return Err(listen(source)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(listen(source)),
        }
        let (socket, inode) = create(path, mode).map_err(listen)?;
        Ok(Self { socket, path: path.to_owned(), mode, inode, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the socket again if its file was removed, and returns whether it was. Another file in its place is an error.
    pub(crate) fn restore(&mut self) -> io::Result<bool> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if found.ino() == self.inode => Ok(false),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                (self.socket, self.inode) = create(&self.path, self.mode)?;
                Ok(true)
            }
            Err(e) => Err(e),
        }
    }
}

fn create(path: &Path, mode: u32) -> io::Result<(UnixListener, u64)> {
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit this, also for bytes sent before they are accepted.
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    let inode = fs::symlink_metadata(path)?.ino();
    Ok((socket, inode))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another file in its place is not removed.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Takes the lock of a socket; `None` if another process holds it.
fn take_lock(path: &Path) -> io::Result<Option<Lock>> {
    let path = lock_path(path);
    for _ in 0..8 {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        // The last holder removes the file on exit; a lock on a removed file excludes no other process.
        let own = rustix::fs::fstat(&file)?;
        if fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == own.st_ino) {
            return Ok(Some(Lock { path, file }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_socket_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let mut listener = Listener::bind(&path, 0o600).unwrap();
        assert!(!listener.restore().unwrap());
        fs::remove_file(&path).unwrap();
        assert!(listener.restore().unwrap());
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        assert!(listener.restore().is_err());
        drop(listener);
        assert!(path.exists(), "another's file is not removed");
    }

    #[test]
    fn only_sockets_of_exited_servers_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own/s.sock");
        let first = Listener::bind(&path, 0o666).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(matches!(Listener::bind(&path, 0o666), Err(Error::AlreadyServed { .. })));
        let typo = folder.path().join("no/where/s.sock");
        assert!(matches!(Listener::bind(&typo, 0o666), Err(Error::Listen { .. })));
        drop(first);
        assert!(!path.exists() && !lock_path(&path).exists());
        // A killed server leaves its socket and its lock file.
        drop(UnixListener::bind(&path).unwrap());
        fs::write(lock_path(&path), "").unwrap();
        assert!(path.exists());
        let second = Listener::bind(&path, 0o600).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        // An old server has no lock, but it answers.
        let old = UnixListener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path, 0o666), Err(Error::AlreadyServed { .. })));
        drop(old);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::bind(&path, 0o666), Err(Error::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert!(!lock_path(&path).exists(), "a failed bind leaves no lock file");
    }
}
