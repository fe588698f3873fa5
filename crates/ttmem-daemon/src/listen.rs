//! A listening socket at a path. It is not taken from a server that runs, and replaces that of one that has exited.
//!
//! A service manager may pass sockets that it has bound itself. These stay open, and their files in place, while the daemon is not
//! running, so no user can put another file there.

use crate::Error;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A place to listen at.
#[derive(Debug)]
pub(crate) struct Listener {
    path: PathBuf,
    mode: u32,
    /// `None`: another file or server is there.
    bound: Option<Bound>,
}

/// A listening socket.
#[derive(Debug)]
struct Bound {
    socket: UnixListener,
    /// Its file, unless the service manager bound it.
    file: Option<SocketFile>,
}

/// The file of a socket, removed on drop.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
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
    /// Uses a socket that the service manager has bound, creates one, or replaces a stale one.
    pub(crate) fn bind(path: &Path, mode: u32, passed: &mut Vec<UnixListener>) -> Result<Self, Error> {
        let is_here = |socket: &UnixListener| {
            socket.local_addr().is_ok_and(|address| address.as_pathname() == Some(path))
        };
        let bound = match passed.iter().position(is_here) {
            Some(at) => {
                let socket = passed.swap_remove(at);
                prepare(&socket).map_err(|source| Error::Listen { path: path.to_owned(), source })?;
                Bound { socket, file: None }
            }
            None => bind_file(path, mode)?,
        };
        Ok(Self { path: path.to_owned(), mode, bound: Some(bound) })
    }

    /// A place at which no socket can be created now.
    pub(crate) fn closed(path: &Path, mode: u32) -> Self {
        Self { path: path.to_owned(), mode, bound: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket, if there is one.
    pub(crate) fn socket(&self) -> Option<&UnixListener> {
        self.bound.as_ref().map(|it| &it.socket)
    }

    /// Creates the socket if that was not possible before, or if its file was removed. Returns whether it did. Another file in its
    /// place is an error.
    pub(crate) fn restore(&mut self) -> Result<bool, Error> {
        let Some(bound) = &mut self.bound else {
            self.bound = Some(bind_file(&self.path, self.mode)?);
            return Ok(true);
        };
        let Some(file) = &mut bound.file else { return Ok(false) };
        let listen = |source| Error::Listen { path: self.path.clone(), source };
        match fs::symlink_metadata(&file.path) {
            Ok(found) if found.ino() == file.inode => Ok(false),
            Ok(_) => Err(listen(io::ErrorKind::AlreadyExists.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                (bound.socket, file.inode) = create(&file.path, self.mode).map_err(listen)?;
                Ok(true)
            }
            Err(e) => Err(listen(e)),
        }
    }
}

/// Creates a socket, or replaces a stale one.
fn bind_file(path: &Path, mode: u32) -> Result<Bound, Error> {
    let listen = |source| Error::Listen { path: path.to_owned(), source };
    // The last folder of a path is created; if more are missing, the path is probably mistyped.
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
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
    Ok(Bound { socket, file: Some(SocketFile { path: path.to_owned(), inode, _lock: lock }) })
}

/// An error with its causes.
pub(crate) fn describe_error(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn create(path: &Path, mode: u32) -> io::Result<(UnixListener, u64)> {
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    prepare(&socket)?;
    let inode = fs::symlink_metadata(path)?.ino();
    Ok((socket, inode))
}

fn prepare(socket: &UnixListener) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit this, also for bytes sent before they are accepted.
    Ok(rustix::net::sockopt::set_socket_passcred(socket, true)?)
}

impl Drop for SocketFile {
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
        let mut listener = Listener::bind(&path, 0o600, &mut Vec::new()).unwrap();
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
        let first = Listener::bind(&path, 0o666, &mut Vec::new()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(matches!(Listener::bind(&path, 0o666, &mut Vec::new()), Err(Error::AlreadyServed { .. })));
        let typo = folder.path().join("no/where/s.sock");
        assert!(matches!(Listener::bind(&typo, 0o666, &mut Vec::new()), Err(Error::Listen { .. })));
        drop(first);
        assert!(!path.exists() && !lock_path(&path).exists());
        // A killed server leaves its socket and its lock file.
        drop(UnixListener::bind(&path).unwrap());
        fs::write(lock_path(&path), "").unwrap();
        assert!(path.exists());
        let second = Listener::bind(&path, 0o600, &mut Vec::new()).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        // An old server has no lock, but it answers.
        let old = UnixListener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path, 0o666, &mut Vec::new()), Err(Error::AlreadyServed { .. })));
        drop(old);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::bind(&path, 0o666, &mut Vec::new()), Err(Error::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert!(!lock_path(&path).exists(), "a failed bind leaves no lock file");
    }
}
