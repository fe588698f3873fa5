//! A listening socket at a path: never stolen from a living server, never lost to a dead one.

use crate::Error;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket that is removed again when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    path: PathBuf,
    mode: u32,
    inode: u64,
    /// Held while we serve, so that two servers that start at once cannot both replace a stale socket.
    _lock: Lock,
}

/// A locked file beside a socket, removed when it is unlocked.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: OwnedFd,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A cleaner may have taken it away, and another server made its own.
        let ours = rustix::fs::fstat(&self.file).map(|stat| stat.st_ino);
        if fs::symlink_metadata(&self.path).is_ok_and(|found| ours == Ok(found.ino())) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self, Error> {
        let listen = |source| Error::Listen { path: path.to_owned(), source };
        // A folder of our own below the system's is ours to make; a whole path is somebody's typing error.
        if let Some(folder) =
            path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        {
            fs::DirBuilder::new().mode(0o755).create(folder).map_err(listen)?;
        }
        let lock =
            lock(path).map_err(listen)?.ok_or_else(|| Error::AlreadyServed { path: path.to_owned() })?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(Error::NotASocket { path: path.to_owned() });
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(listen)?;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                // It answers, or we may not even ask: either way it is not ours to replace.
                Ok(_) => return Err(Error::AlreadyServed { path: path.to_owned() }),
                Err(source) => return Err(listen(source)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(listen(source)),
        }
        let (socket, inode) = open(path, mode).map_err(listen)?;
        Ok(Self { socket, path: path.to_owned(), mode, inode, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the socket anew if it is gone; returns whether it was. That another one is there is an error.
    pub(crate) fn restore(&mut self) -> io::Result<bool> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if found.ino() == self.inode => Ok(false),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                (self.socket, self.inode) = open(&self.path, self.mode)?;
                Ok(true)
            }
            Err(e) => Err(e),
        }
    }
}

fn open(path: &Path, mode: u32) -> io::Result<(UnixListener, u64)> {
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.set_nonblocking(true)?;
    // Inherited by every accepted socket, also for bytes sent before it is accepted.
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
        // Somebody may have put another socket there; that one is not ours to remove.
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

/// Takes the lock beside a socket; `None` if somebody holds it.
fn lock(path: &Path) -> io::Result<Option<Lock>> {
    let path = lock_path(path);
    for _ in 0..8 {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        // The last holder removes the file as it leaves; a lock on a removed file holds nobody off.
        let ours = rustix::fs::fstat(&file)?;
        if fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == ours.st_ino) {
            return Ok(Some(Lock { path, file }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_cleaned_away_comes_back() {
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
        assert!(path.exists(), "what is not ours stays");
    }

    #[test]
    fn a_living_server_keeps_its_socket_and_a_dead_one_loses_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own/s.sock");
        let first = Listener::bind(&path, 0o666).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(matches!(Listener::bind(&path, 0o666), Err(Error::AlreadyServed { .. })));
        let typo = folder.path().join("no/where/s.sock");
        assert!(matches!(Listener::bind(&typo, 0o666), Err(Error::Listen { .. })));
        drop(first);
        assert!(!path.exists() && !lock_path(&path).exists());
        // A server that was killed leaves its socket and its lock file behind.
        drop(UnixListener::bind(&path).unwrap());
        fs::write(lock_path(&path), "").unwrap();
        assert!(path.exists());
        let second = Listener::bind(&path, 0o600).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        // An old server knows no lock, but it answers.
        let old = UnixListener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path, 0o666), Err(Error::AlreadyServed { .. })));
        drop(old);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::bind(&path, 0o666), Err(Error::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert!(!lock_path(&path).exists(), "who fails leaves nothing behind");
    }
}
