//! Processes as the kernel shows them: are they alive, when did they start, what are they called.

use crate::container;
use crate::root::Root;
use crate::segment::FileId;
use jiff::{SignedDuration, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ttmem_core::event::Process;

/// How a process's end is noticed.
#[derive(Debug)]
pub enum Watch {
    /// The kernel tells, at the instant of death.
    Pidfd(OwnedFd),
    /// By looking: kernels before 5.3 have no pidfd, and another machine's processes are only files. The start time tells
    /// a later process with the same pid.
    Look {
        /// Whose processes they are.
        root: Root,
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
                let root = Root::default();
                let start = start_ticks(&root, pid);
                alive(&root, pid, start).then_some(Self::Look { root, pid, start })
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
            Self::Look { root, pid, start } => !alive(root, *pid, *start),
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
fn alive(root: &Root, pid: u32, start: Option<u64>) -> bool {
    match stat(root, pid) {
        Some(now) => !now.over && start.is_none_or(|then| then == now.start),
        None => root.is_own() && exists(pid),
    }
}

/// Whether this machine has a process with this pid, be it one that we may see or not.
fn exists(pid: u32) -> bool {
    let raw = Pid::from_raw(pid as i32);
    raw.is_some_and(|raw| test_kill_process(raw) != Err(rustix::io::Errno::SRCH))
}

/// What the kernel says of a process in a line.
struct Stat {
    name: String,
    /// When it started, in clock ticks since boot.
    start: u64,
    /// It ended and holds nothing any more; its parent just has not asked for its fate yet.
    over: bool,
    host: HostReading,
}

/// What the kernel counts of a process's use of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReading {
    /// When the process started, in clock ticks since boot.
    pub start: u64,
    /// Pid of its parent; 0: it has none.
    pub parent: u32,
    /// CPU time of all its threads so far.
    pub cpu_ns: u64,
    /// Host memory that is resident.
    pub rss_bytes: u64,
}

fn stat(root: &Root, pid: u32) -> Option<Stat> {
    let stat = read(&root.of_process(pid, "stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, in parentheses, may itself hold spaces and parentheses.
    let (before, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(22).collect();
    let ended = matches!(fields.first(), Some(&("Z" | "X" | "x")));
    // The first thread may end before the others: that is not yet the end of them.
    let threads: u64 = fields.get(17)?.parse().unwrap_or(0);
    let start = fields.get(19)?.parse().ok()?;
    let number = |at: usize| fields.get(at).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    let host = HostReading {
        start,
        parent: number(1) as u32,
        cpu_ns: Processes::nanoseconds(number(11).saturating_add(number(12))),
        rss_bytes: number(21).saturating_mul(rustix::param::page_size() as u64),
    };
    Some(Stat { name: before.split_once('(')?.1.to_owned(), start, over: ended && threads <= 1, host })
}

fn start_ticks(root: &Root, pid: u32) -> Option<u64> {
    stat(root, pid).map(|it| it.start)
}

/// Longest command line that is kept.
const COMMAND_LEN: usize = 256;
/// As much of a file of a process as is read.
const MOST_BYTES: usize = 64 << 10;

/// The beginning of a file of a process. The kernel gives what there is at once: most need one call.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut file = fs::File::open(path).ok()?;
    let mut bytes = vec![0; 4096];
    let mut len = 0;
    loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        }
        if len < bytes.len() || len >= MOST_BYTES {
            break;
        }
        bytes.resize(2 * len, 0);
    }
    bytes.truncate(len);
    Some(bytes)
}

/// What the kernel says of a process's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) uid: u32,
    /// The pid that it knows itself by: the last in its list of them.
    pub(crate) own_pid: u32,
}

/// Who a process is, to whoever asks about its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// As the reader sees it; 0: it lives where the reader cannot see it.
    pub pid: u32,
    /// As it knows itself.
    pub own_pid: u32,
    /// Its user.
    pub uid: u32,
    /// What it is called.
    pub name: String,
    /// When it started, in clock ticks since boot, where that is known already.
    pub start: Option<u64>,
}

/// A machine's processes.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    root: Root,
    users: BTreeMap<u32, String>,
    /// When the machine was started, and when that was asked.
    boot: Option<(Instant, Timestamp)>,
    sees_all: OnceCell<bool>,
}

/// How long it is believed when the machine was started. That changes when somebody sets the clock, as most machines do
/// soon after.
const CLOCK_SET: Duration = Duration::from_secs(1);

/// The number of the first pid namespace, which sees all others.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

impl Processes {
    /// Those of a machine.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone(), ..Self::default() }
    }

    /// All of them, by pid.
    pub(crate) fn all(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.root.path("/proc")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// When a process started, in clock ticks since boot. `None`: there is none.
    pub fn start_ticks(&self, pid: u32) -> Option<u64> {
        start_ticks(&self.root, pid)
    }

    /// What a process uses of the host. `None`: there is no such process, or it is hidden from us.
    pub fn host_reading(&self, pid: u32) -> Option<HostReading> {
        stat(&self.root, pid).map(|it| it.host)
    }

    /// Whether every process there is can be seen here. From inside a container, others cannot, nor can those of other
    /// users where `/proc` hides them.
    pub(crate) fn sees_all(&self) -> bool {
        let first = || fs::metadata("/proc/self/ns/pid").is_ok_and(|it| it.ino() == FIRST_NAMESPACE);
        *self.sees_all.get_or_init(|| !self.root.is_own() || (first() && !self.hides(1)))
    }

    /// Whether there is a process with this pid that is not shown to us.
    pub(crate) fn hides(&self, pid: u32) -> bool {
        self.root.is_own() && stat(&self.root, pid).is_none() && exists(pid)
    }

    /// Who a process is. `None`: it ended, or it is hidden from us.
    pub(crate) fn who(&self, pid: u32) -> Option<Owner> {
        let Stat { name, start, .. } = stat(&self.root, pid).filter(|it| !it.over)?;
        let Status { uid, own_pid } = self.status(pid)?;
        Some(Owner { pid, own_pid, uid, name, start: Some(start) })
    }

    /// A process's short name.
    pub fn name(&self, pid: u32) -> Option<String> {
        let bytes = self.read(pid, "comm")?;
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }

    /// What a process sees under a name, if that is on its machine.
    pub(crate) fn inside(&self, pid: u32, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let path = self.root.of_process(pid, "root").join(below);
        if self.root.has_processes() {
            return Some(path);
        }
        let real = path.canonicalize().ok()?;
        real.starts_with(self.root.path("").canonicalize().ok()?).then_some(real)
    }

    /// Whether a process has a file mapped; `None` if we may not know.
    pub(crate) fn has_mapped(&self, pid: u32, (device, inode): FileId) -> Option<bool> {
        let maps = fs::read_to_string(self.root.of_process(pid, "maps")).ok()?;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let wanted = format!("{major:02x}:{minor:02x}");
        Some(maps.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(3);
            fields.next() == Some(&wanted) && fields.next().and_then(|it| it.parse().ok()) == Some(inode)
        }))
    }

    pub(crate) fn status(&self, pid: u32) -> Option<Status> {
        let status = self.read(pid, "status")?;
        let status = String::from_utf8_lossy(&status);
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // Real, effective, saved, of files.
        let uid = line("Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let own_pid =
            line("NSpid:").map_or(Some(pid), |pids| pids.split_ascii_whitespace().last()?.parse().ok())?;
        Some(Status { uid, own_pid })
    }

    /// Watches a process that started then. `None`: it is gone already.
    pub fn watch(&self, pid: u32, start: Option<u64>) -> Option<Watch> {
        if self.root.is_own() {
            return Watch::by_pid(pid);
        }
        Some(Watch::Look { root: self.root.clone(), pid, start: Some(start?) })
    }

    fn read(&self, pid: u32, name: &str) -> Option<Vec<u8>> {
        read(&self.root.of_process(pid, name))
    }

    /// What can be said of a process to people.
    pub fn describe(&mut self, owner: &Owner, start: Option<u64>) -> Process {
        let pid = owner.pid;
        let given = Some(owner.name.clone()).filter(|name| !name.is_empty());
        // What the kernel calls it counts, and that is known already if its start is.
        let asked = if owner.start.is_some() { None } else { self.read(pid, "comm") };
        let name = asked.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()).or(given);
        let command = self.read(pid, "cmdline").filter(|bytes| !bytes.is_empty()).map(|bytes| {
            let words: Vec<_> = bytes
                .split(|&b| b == 0)
                .filter(|word| !word.is_empty())
                .map(String::from_utf8_lossy)
                .collect();
            words.join(" ").chars().take(COMMAND_LEN).collect()
        });
        let start = start.and_then(|ticks| self.wall(ticks));
        let cgroup = self.read(pid, "cgroup").unwrap_or_default();
        let (container, pod) = container::of(&String::from_utf8_lossy(&cgroup));
        let user = Some(self.user(owner.uid));
        let other = i64::from(owner.own_pid);
        let reported_pid = Some(other).filter(|&it| it != i64::from(pid) && it != 0);
        Process { name, command, user, start, reported_pid, container, pod }
    }

    /// Clock ticks as nanoseconds.
    pub(crate) fn nanoseconds(ticks: u64) -> u64 {
        ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// When so many clock ticks since boot were.
    pub fn wall(&mut self, ticks: u64) -> Option<Timestamp> {
        let since = SignedDuration::from_nanos(i64::try_from(Self::nanoseconds(ticks)).ok()?);
        self.boot()?.checked_add(since).ok()
    }

    /// A user's name, or the number if there is none.
    pub fn user(&mut self, uid: u32) -> String {
        let lookup = || {
            let passwd = fs::read_to_string(self.root.path("/etc/passwd")).unwrap_or_default();
            passwd.lines().find_map(|line| {
                let mut fields = line.split(':');
                let (name, _, of) = (fields.next()?, fields.next()?, fields.next()?);
                (of.parse() == Ok(uid)).then(|| name.to_owned())
            })
        };
        self.users.entry(uid).or_insert_with(|| lookup().unwrap_or_else(|| uid.to_string())).clone()
    }

    fn boot(&mut self) -> Option<Timestamp> {
        let fresh = |(asked, _): &(Instant, Timestamp)| asked.elapsed() < CLOCK_SET;
        if let Some((_, boot)) = self.boot.filter(fresh) {
            return Some(boot);
        }
        let stat = fs::read_to_string(self.root.path("/proc/stat")).ok()?;
        let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        let boot = Timestamp::from_second(seconds).ok()?;
        self.boot = Some((Instant::now(), boot));
        Some(boot)
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
        let root = Root::default();
        let start = start_ticks(&root, pid);
        assert!(start.is_some());
        let look = Watch::Look { root: root.clone(), pid, start };
        let reused = Watch::Look { root: root.clone(), pid, start: start.map(|s| s + 1) };
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
        assert!(!Watch::Look { pid: 1, start: start_ticks(&root, 1), root }.ended());
    }

    #[test]
    fn host_reading_has_parent_cpu_and_memory() {
        let processes = Processes::default();
        let own = processes.host_reading(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(own.rss_bytes > 1 << 20, "{} bytes", own.rss_bytes);
        assert!(Some(own.start) == processes.start_ticks(std::process::id()));
        assert_eq!(processes.host_reading(u32::MAX), None);
    }

    #[test]
    fn a_process_has_a_name_an_owner_and_a_start() {
        let me = std::process::id();
        let mut processes = Processes::default();
        let owner = processes.who(me).unwrap();
        let info = processes.describe(&owner, owner.start);
        assert!(info.name.is_some_and(|name| !name.is_empty()));
        assert!(info.command.is_some_and(|command| !command.is_empty()));
        assert_eq!(info.user.as_deref(), Some("root"));
        assert!(info.start.is_some_and(|start| start <= Timestamp::now()));
        let stranger = Owner { uid: 4_000_000, start: None, ..owner };
        assert_eq!(processes.describe(&stranger, None).user.as_deref(), Some("4000000"));
    }
}
