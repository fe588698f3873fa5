//! Processes as the kernel shows them: are they alive, when did they start, what are they called.

use jiff::{SignedDuration, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use ttmem_core::event::Process;

/// How a process's end is noticed.
#[derive(Debug)]
pub enum Watch {
    /// The kernel tells, at the instant of death.
    Pidfd(OwnedFd),
    /// By looking: kernels before 5.3 have no pidfd. The start time tells a later process with the same pid.
    Look {
        /// Which.
        pid: u32,
        /// When it started, in clock ticks since boot.
        start: Option<u64>,
    },
    /// It cannot be seen: it lives as long as its connection.
    Connection,
    /// It was gone before it could be watched. What it sent is read, then it ends.
    Gone,
}

impl Watch {
    /// Watches a process by its pid. `None`: it is gone already.
    pub fn by_pid(pid: u32) -> Option<Self> {
        let Some(raw) = Pid::from_raw(pid as i32) else { return Some(Self::Connection) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Some(Self::Pidfd(fd)),
            Err(rustix::io::Errno::SRCH) => None,
            Err(_) => {
                let start = start_ticks(pid);
                alive(pid, start).then_some(Self::Look { pid, start })
            }
        }
    }

    /// Whether the process has ended.
    pub fn ended(&self) -> bool {
        match self {
            Self::Pidfd(fd) => {
                let mut fds = [PollFd::new(fd, PollFlags::IN)];
                poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
            }
            Self::Look { pid, start } => !alive(*pid, *start),
            Self::Connection => false,
            Self::Gone => true,
        }
    }

    /// What to wait on for its end, if the kernel tells.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Pidfd(fd) => Some(fd.as_fd()),
            _ => None,
        }
    }
}

/// Whether a process lives, and is the one that started then. Only the kernel's "no such process" is death: that we
/// may not signal another user's process says nothing.
fn alive(pid: u32, start: Option<u64>) -> bool {
    let Some(raw) = Pid::from_raw(pid as i32) else { return false };
    if test_kill_process(raw) == Err(rustix::io::Errno::SRCH) {
        return false;
    }
    match (start, start_ticks(pid)) {
        (Some(then), Some(now)) => then == now,
        _ => true,
    }
}

/// When a process started, in clock ticks since boot.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself hold spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Longest command line that is kept.
const COMMAND_LEN: usize = 256;

/// Looks processes up, and keeps what does not change.
#[derive(Debug, Default)]
pub struct Names {
    users: BTreeMap<u32, String>,
    boot: Option<Timestamp>,
}

impl Names {
    /// What can be said of a process to people.
    pub fn describe(&mut self, pid: u32, uid: u32, start: Option<u64>) -> Process {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
        let name = read("comm").map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned());
        let command = read("cmdline").filter(|bytes| !bytes.is_empty()).map(|bytes| {
            let words: Vec<_> = bytes
                .split(|&b| b == 0)
                .filter(|word| !word.is_empty())
                .map(String::from_utf8_lossy)
                .collect();
            words.join(" ").chars().take(COMMAND_LEN).collect()
        });
        let start = start.and_then(|ticks| {
            let ms = ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1);
            self.boot()?.checked_add(SignedDuration::from_millis(ms as i64)).ok()
        });
        Process { name, command, user: Some(self.user(uid)), start, reported_pid: None }
    }

    fn user(&mut self, uid: u32) -> String {
        let lookup = || {
            let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
            passwd.lines().find_map(|line| {
                let mut fields = line.split(':');
                let (name, _, of) = (fields.next()?, fields.next()?, fields.next()?);
                (of.parse() == Ok(uid)).then(|| name.to_owned())
            })
        };
        self.users.entry(uid).or_insert_with(|| lookup().unwrap_or_else(|| uid.to_string())).clone()
    }

    fn boot(&mut self) -> Option<Timestamp> {
        if self.boot.is_none() {
            let stat = fs::read_to_string("/proc/stat").ok()?;
            let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
            self.boot = Timestamp::from_second(seconds).ok();
        }
        self.boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn looking_tells_the_living_from_the_dead_and_from_another_with_the_same_pid() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let start = start_ticks(pid);
        assert!(start.is_some());
        let look = Watch::Look { pid, start };
        let reused = Watch::Look { pid, start: start.map(|s| s + 1) };
        assert!(!look.ended());
        assert!(reused.ended(), "same pid, other start time: another process");
        let watch = Watch::by_pid(pid).unwrap();
        assert!(!watch.ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(look.ended());
        assert!(watch.ended());
        assert!(Watch::by_pid(pid).is_none());
        // Not ours to signal for anybody but root, yet alive.
        assert!(!Watch::Look { pid: 1, start: start_ticks(1) }.ended());
    }

    #[test]
    fn a_process_has_a_name_an_owner_and_a_start() {
        let me = std::process::id();
        let info = Names::default().describe(me, 0, start_ticks(me));
        assert!(info.name.is_some_and(|name| !name.is_empty()));
        assert!(info.command.is_some_and(|command| !command.is_empty()));
        assert_eq!(info.user.as_deref(), Some("root"));
        assert!(info.start.is_some_and(|start| start <= Timestamp::now()));
        assert_eq!(Names::default().describe(me, 4_000_000, None).user.as_deref(), Some("4000000"));
    }
}
