//! Notices when a process exits.

use crate::process::{is_alive, start_ticks};
use crate::root::Root;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How the exit of a process is noticed.
#[derive(Debug)]
pub enum ExitWatch {
    /// By a pidfd, as soon as it happens.
    Pidfd(OwnedFd),
    /// By reading `/proc`: kernels before 5.3 have no pidfd, and the processes of another machine are only files. The start
    /// time distinguishes a later process with the same pid.
    Procfs {
        /// The machine of the process.
        root: Root,
        /// Its pid.
        pid: u32,
        /// When it started, in clock ticks since boot.
        start: Option<u64>,
    },
    /// By the end of its connection: the process itself is not visible.
    Connection,
    /// It had exited before it could be watched. What it sent is read first.
    Exited,
}

impl ExitWatch {
    /// Watches a process by its pid. `None`: it has exited already.
    pub fn by_pid(pid: u32) -> Option<Self> {
        let Some(raw) = Pid::from_raw(pid as i32) else { return Some(Self::Connection) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Some(Self::Pidfd(fd)),
            Err(rustix::io::Errno::SRCH) => None,
            Err(_) => {
                let root = Root::default();
                let start = start_ticks(&root, pid);
                is_alive(&root, pid, start).then_some(Self::Procfs { root, pid, start })
            }
        }
    }

    /// Whether the process has exited.
    pub fn has_exited(&self) -> bool {
        match self {
            Self::Pidfd(fd) => {
                let mut fds = [PollFd::new(fd, PollFlags::IN)];
                poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
            }
            Self::Procfs { root, pid, start } => !is_alive(root, *pid, *start),
            Self::Connection => false,
            Self::Exited => true,
        }
    }

    /// The descriptor that becomes readable at the exit, if there is one.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Pidfd(fd) => Some(fd.as_fd()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn procfs_watch_notices_exit_and_pid_reuse() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let root = Root::default();
        let start = start_ticks(&root, pid);
        assert!(start.is_some());
        let procfs = ExitWatch::Procfs { root: root.clone(), pid, start };
        let reused = ExitWatch::Procfs { root: root.clone(), pid, start: start.map(|s| s + 1) };
        assert!(!procfs.has_exited());
        assert!(reused.has_exited(), "same pid, other start time: another process");
        let watch = ExitWatch::by_pid(pid).unwrap();
        assert!(!watch.has_exited());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(procfs.has_exited());
        assert!(watch.has_exited());
        assert!(ExitWatch::by_pid(pid).is_none());
        // Only root may signal it, yet it is alive.
        assert!(!ExitWatch::Procfs { pid: 1, start: start_ticks(&root, 1), root }.has_exited());
    }
}
