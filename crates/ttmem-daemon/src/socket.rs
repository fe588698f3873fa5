//! Unix sockets: the peer's identity, and receiving bytes with their sender.
//!
//! Some calls go to libc directly: rustix reads a peer's pid into a type that cannot be zero, but the kernel returns zero for
//! a peer in a PID namespace that is not visible from here; and neither crate has the option for a peer's pidfd yet.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use ttmem_reader::protocol::connect;

/// Linux 6.5 and later.
const SO_PEERPIDFD: libc::c_int = 77;
/// Linux 4.13 and later.
const SO_PEERGROUPS: libc::c_int = 59;

/// A peer's identity, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its pid; 0 if it is not visible from here.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Identifies the server that listens at a path, without sending anything.
pub fn server_at(path: &Path) -> io::Result<Peer> {
    let socket = connect(path)?;
    peer(socket.as_fd())
}

/// Identifies the peer of a connection.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let cred: libc::ucred = get_option(socket, libc::SO_PEERCRED)?;
    Ok(Peer { pid: cred.pid.unsigned_abs(), uid: cred.uid })
}

/// The groups of the peer of a connection when it connected.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> Vec<u32> {
    // As many as a process can have.
    let mut groups: Vec<libc::gid_t> = vec![0; 65536];
    let mut len = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
    let (level, value) = (libc::SOL_SOCKET, groups.as_mut_ptr().cast());
    // SAFETY: `groups` has room for `len` bytes, and both outlive the call.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, SO_PEERGROUPS, value, &raw mut len) };
    // Older kernels report only the primary group.
    groups.truncate(if result < 0 { 0 } else { len as usize / size_of::<libc::gid_t>() });
    groups.extend(get_option::<libc::ucred>(socket, libc::SO_PEERCRED).map(|cred| cred.gid));
    groups
}

/// A pidfd of the peer of a connection. Unlike one opened by pid, it cannot be of another process.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let fd: libc::c_int = get_option(socket, SO_PEERPIDFD)?;
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Plain data that the kernel fills in.
trait Plain: Copy {}
impl Plain for libc::ucred {}
impl Plain for libc::c_int {}

fn get_option<T: Plain>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed before, and every bit pattern is a valid integer or struct of integers.
    Ok(unsafe { value.assume_init() })
}

/// Receives bytes and their sender. The socket must have `SO_PASSCRED` set; one call then never returns bytes of two senders,
/// such as a process and its forked child, which share a socket.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<Peer>)> {
    /// Space for one control message with credentials, aligned as the kernel requires.
    #[repr(C, align(8))]
    struct Control([u8; 64]);

    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `message` points at `buffer` and `control`, which are live and have these lengths.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut sender = None;
    // SAFETY: the kernel filled `control` up to the length in `message`, and CMSG_* stay inside it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    let cred = data.cast::<libc::ucred>().read_unaligned();
                    sender = Some(Peer { pid: cred.pid.unsigned_abs(), uid: cred.uid });
                }
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    // No descriptors are expected. They are closed, or a peer could use up this process's limit.
                    let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<libc::c_int>();
                    for i in 0..count {
                        let fd = data.add(i * size_of::<libc::c_int>()).cast::<[u8; 4]>().read();
                        drop(OwnedFd::from_raw_fd(libc::c_int::from_ne_bytes(fd)));
                    }
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((received as usize, sender))
}

/// Sends as much of `bytes` as the peer takes, and keeps the rest.
pub(crate) fn send(stream: &UnixStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(stream, &bytes[sent..], rustix::net::SendFlags::NOSIGNAL) {
            Ok(len) => sent += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(e) => return Err(e.into()),
        }
    }
    bytes.drain(..sent);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[test]
    fn bytes_are_received_with_their_sender() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_passcred(&theirs, true).unwrap();
        ours.write_all(b"hello").unwrap();
        let mut buffer = [0; 16];
        let (len, sender) = receive(theirs.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"hello");
        assert_eq!(sender.unwrap().pid, std::process::id());
        assert_eq!(peer(theirs.as_fd()).unwrap().pid, std::process::id());
        assert!(peer_groups(theirs.as_fd()).contains(&rustix::process::getegid().as_raw()));
        let nothing = receive(theirs.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert_eq!(receive(theirs.as_fd(), &mut buffer).unwrap().0, 0);
    }

    #[test]
    fn server_is_identified_without_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        assert_eq!(server_at(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(server_at(&path).unwrap().pid, std::process::id());
        // A server that does not accept is not waited for.
        let full = std::iter::repeat_with(|| server_at(&path)).take(100_000).find_map(Result::err);
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(listener);
        assert_eq!(server_at(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
