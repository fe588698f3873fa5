//! Processes as procfs shows them: whether they are alive, their names, start times, users, and use of the host.

use crate::container;
use crate::exit_watch::ExitWatch;
use crate::files::FileId;
use crate::root::Root;
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Pid, test_kill_process};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ttmem_core::input::Process;

/// Whether a process is alive, and is the one with this start time. Only the kernel's "no such process" counts as an exit:
/// being refused permission to signal another user's process does not.
pub(crate) fn is_alive(root: &Root, pid: u32, start: Option<u64>) -> bool {
    match read_stat(root, pid) {
        Some(now) => !now.exited && start.is_none_or(|then| then == now.start),
        None => root.is_this_machine() && exists(pid),
    }
}

/// Whether this machine has a process with this pid, whether procfs shows it or not.
fn exists(pid: u32) -> bool {
    let raw = Pid::from_raw(pid as i32);
    raw.is_some_and(|raw| test_kill_process(raw) != Err(rustix::io::Errno::SRCH))
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    name: String,
    /// When it started, in clock ticks since boot.
    start: u64,
    /// Whether it has exited, and only its parent has not waited for it yet.
    exited: bool,
    host: HostReading,
}

/// A process's use of the host, as the kernel counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReading {
    /// When the process started, in clock ticks since boot.
    pub start: u64,
    /// Pid of its parent; 0 if it has none.
    pub parent: u32,
    /// CPU time of all its threads.
    pub cpu_ns: u64,
    /// Resident host memory.
    pub rss_bytes: u64,
}

fn read_stat(root: &Root, pid: u32) -> Option<Stat> {
    let stat = read_file(&root.process_file(pid, "stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, in parentheses, may itself hold spaces and parentheses.
    let (before, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(22).collect();
    let ended = matches!(fields.first(), Some(&("Z" | "X" | "x")));
    // The first thread may exit before the others; the process exits with the last.
    let threads: u64 = fields.get(17)?.parse().unwrap_or(0);
    let start = fields.get(19)?.parse().ok()?;
    let number = |at: usize| fields.get(at).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    let host = HostReading {
        start,
        parent: number(1) as u32,
        cpu_ns: Processes::ticks_to_ns(number(11).saturating_add(number(12))),
        rss_bytes: number(21).saturating_mul(rustix::param::page_size() as u64),
    };
    Some(Stat { name: before.split_once('(')?.1.to_owned(), start, exited: ended && threads <= 1, host })
}

/// When a process started, in clock ticks since boot.
pub(crate) fn start_ticks(root: &Root, pid: u32) -> Option<u64> {
    read_stat(root, pid).map(|it| it.start)
}

/// Longest command line that is kept.
const MAX_COMMAND: usize = 256;
/// Longest part of a file of `/proc/PID` that is read.
const MAX_BYTES: usize = 64 << 10;

/// Reads the beginning of a file of `/proc/PID`. Most need one call, since the kernel returns as much as it has.
fn read_file(path: &Path) -> Option<Vec<u8>> {
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
        if len < bytes.len() || len >= MAX_BYTES {
            break;
        }
        bytes.resize(2 * len, 0);
    }
    bytes.truncate(len);
    Some(bytes)
}

/// Fields of `/proc/PID/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) uid: u32,
    /// The pid in its own namespace: the last of `NSpid`.
    pub(crate) namespace_pid: u32,
}

/// What a source knows of a process that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Its pid in the reader's namespace; 0 if it is not visible from there.
    pub pid: u32,
    /// Its pid in its own namespace.
    pub namespace_pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its name.
    pub name: String,
    /// When it started, in clock ticks since boot, if that is known already.
    pub start: Option<u64>,
}

/// The processes of a machine, read from procfs.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    root: Root,
    users: BTreeMap<u32, String>,
    /// When the machine was booted, and when that was read.
    boot: Option<(Instant, Timestamp)>,
    all_visible: OnceCell<bool>,
}

/// How long the boot time is cached. It changes when the clock is set, as on most machines soon after boot.
const BOOT_TIME_CACHED: Duration = Duration::from_secs(1);

/// Inode of the initial PID namespace, from which all processes are visible.
const INITIAL_NAMESPACE: u64 = 0xefff_fffc;

impl Processes {
    /// The processes of the machine below `root`.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone(), ..Self::default() }
    }

    /// The pids of all visible processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.root.path("/proc")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// When a process started, in clock ticks since boot. `None`: there is no such process.
    pub fn start_ticks(&self, pid: u32) -> Option<u64> {
        start_ticks(&self.root, pid)
    }

    /// A process's use of the host. `None`: there is no such process, or it is hidden from this user.
    pub fn host_reading(&self, pid: u32) -> Option<HostReading> {
        read_stat(&self.root, pid).map(|it| it.host)
    }

    /// Whether every process of the machine is visible. Inside a container, those outside are not, nor are those of other
    /// users where `/proc` hides them.
    pub(crate) fn are_all_visible(&self) -> bool {
        let initial = || fs::metadata("/proc/self/ns/pid").is_ok_and(|it| it.ino() == INITIAL_NAMESPACE);
        *self.all_visible.get_or_init(|| !self.root.is_this_machine() || (initial() && !self.is_hidden(1)))
    }

    /// Whether there is a process with this pid that procfs does not show to this user.
    pub(crate) fn is_hidden(&self, pid: u32) -> bool {
        self.root.is_this_machine() && read_stat(&self.root, pid).is_none() && exists(pid)
    }

    /// Identifies a process. `None`: it has exited, or is hidden from this user.
    pub(crate) fn identify(&self, pid: u32) -> Option<ProcessIdentity> {
        let Stat { name, start, .. } = read_stat(&self.root, pid).filter(|it| !it.exited)?;
        let Status { uid, namespace_pid } = self.status(pid)?;
        Some(ProcessIdentity { pid, namespace_pid, uid, name, start: Some(start) })
    }

    /// The short name of a process.
    pub fn name(&self, pid: u32) -> Option<String> {
        let bytes = self.read(pid, "comm")?;
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }

    /// Where a path of a process's own mount namespace is, if that is on its machine.
    pub(crate) fn path_inside(&self, pid: u32, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let path = self.root.process_file(pid, "root").join(below);
        if self.root.has_live_procfs() {
            return Some(path);
        }
        let real = path.canonicalize().ok()?;
        real.starts_with(self.root.path("").canonicalize().ok()?).then_some(real)
    }

    /// Whether a process has a file mapped; `None` if its mappings may not be read.
    pub(crate) fn has_mapped(&self, pid: u32, (device, inode): FileId) -> Option<bool> {
        let maps = fs::read_to_string(self.root.process_file(pid, "maps")).ok()?;
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
        // Real, effective, saved and filesystem uid.
        let uid = line("Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let namespace_pid =
            line("NSpid:").map_or(Some(pid), |pids| pids.split_ascii_whitespace().last()?.parse().ok())?;
        Some(Status { uid, namespace_pid })
    }

    /// Watches for the exit of the process with this pid and start time. `None`: it has exited already.
    pub fn watch(&self, pid: u32, start: Option<u64>) -> Option<ExitWatch> {
        if self.root.is_this_machine() {
            return ExitWatch::by_pid(pid);
        }
        Some(ExitWatch::Procfs { root: self.root.clone(), pid, start: Some(start?) })
    }

    fn read(&self, pid: u32, name: &str) -> Option<Vec<u8>> {
        read_file(&self.root.process_file(pid, name))
    }

    /// Describes a process: name, command, user, start, container.
    pub fn describe(&mut self, process: &ProcessIdentity, start: Option<u64>) -> Process {
        let pid = process.pid;
        let known = Some(process.name.clone()).filter(|name| !name.is_empty());
        // The kernel's name takes precedence; it was read together with the start time, if that is known.
        let comm = if process.start.is_some() { None } else { self.read(pid, "comm") };
        let name = comm.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()).or(known);
        let command = self.read(pid, "cmdline").filter(|bytes| !bytes.is_empty()).map(|bytes| {
            let words: Vec<_> = bytes
                .split(|&b| b == 0)
                .filter(|word| !word.is_empty())
                .map(String::from_utf8_lossy)
                .collect();
            words.join(" ").chars().take(MAX_COMMAND).collect()
        });
        let start = start.and_then(|ticks| self.wall_time(ticks));
        let cgroup = self.read(pid, "cgroup").unwrap_or_default();
        let (container, pod) = container::parse_cgroup(&String::from_utf8_lossy(&cgroup));
        let user = Some(self.user_name(process.uid));
        let uid = Some(process.uid).filter(|&uid| uid != u32::MAX);
        let namespace_pid = i64::from(process.namespace_pid);
        let reported_pid = Some(namespace_pid).filter(|&it| it != i64::from(pid) && it != 0);
        Process { name, command, user, uid, start, reported_pid, container, pod }
    }

    /// Converts clock ticks to nanoseconds.
    pub(crate) fn ticks_to_ns(ticks: u64) -> u64 {
        ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// The wall time of a moment given in clock ticks since boot.
    pub fn wall_time(&mut self, ticks: u64) -> Option<Timestamp> {
        let since = SignedDuration::from_nanos(i64::try_from(Self::ticks_to_ns(ticks)).ok()?);
        self.boot_time()?.checked_add(since).ok()
    }

    /// The name of a user, or the number if there is no name.
    pub fn user_name(&mut self, uid: u32) -> String {
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

    fn boot_time(&mut self) -> Option<Timestamp> {
        let fresh = |(read, _): &(Instant, Timestamp)| read.elapsed() < BOOT_TIME_CACHED;
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
    fn process_has_name_user_and_start() {
        let mut processes = Processes::default();
        let own = processes.identify(std::process::id()).unwrap();
        let info = processes.describe(&own, own.start);
        assert!(info.name.is_some_and(|name| !name.is_empty()));
        assert!(info.command.is_some_and(|command| !command.is_empty()));
        assert_eq!(info.user.as_deref(), Some("root"));
        assert!(info.start.is_some_and(|start| start <= Timestamp::now()));
        let nameless = ProcessIdentity { uid: 4_000_000, start: None, ..own };
        assert_eq!(processes.describe(&nameless, None).user.as_deref(), Some("4000000"));
    }
}
