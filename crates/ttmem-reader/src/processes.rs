//! The process table: every process that any source found, with the watch for its exit.

use std::collections::BTreeMap;
use ttmem_core::input::Process;
use ttmem_core::snapshot::HostUsage;
use ttmem_core::words::{Mono, ProcessId};
use ttmem_sources::process::{HostReading, Processes};
use ttmem_sources::{ExitWatch, ProcessIdentity, Root};

/// Identifies an entry of the process table. Unlike a pid it is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey(pub u64);

/// A process in the table.
#[derive(Debug)]
pub struct TrackedProcess {
    /// Its id in the state.
    pub id: ProcessId,
    /// How its exit is noticed.
    pub watch: ExitWatch,
    /// Its last reading from procfs, when that was taken, and the usage computed from it.
    host: Option<(Mono, HostReading, HostUsage)>,
}

/// Shortest time between two readings of a process: the kernel counts CPU time in hundredths of a second, and adds it up over
/// all threads at each reading.
const HOST_INTERVAL_NS: u64 = Mono::SECOND;
/// Deepest process tree that is followed.
const MAX_DEPTH: usize = 64;

/// All tracked processes.
#[derive(Debug)]
pub struct ProcessTable {
    procfs: Processes,
    entries: BTreeMap<ProcessKey, TrackedProcess>,
    by_pid: BTreeMap<u32, ProcessKey>,
    last_key: u64,
}

impl ProcessTable {
    pub(crate) fn new(root: &Root) -> Self {
        let (entries, by_pid) = Default::default();
        Self { procfs: Processes::new(root), entries, by_pid, last_key: 0 }
    }

    /// An entry; `None` if it was removed.
    #[inline]
    pub fn get(&self, process: ProcessKey) -> Option<&TrackedProcess> {
        self.entries.get(&process)
    }

    /// Whether a process is still in the table.
    #[inline]
    pub fn contains(&self, process: ProcessKey) -> bool {
        self.entries.contains_key(&process)
    }

    /// The process that has this pid, or had it last. Processes that are not visible have the pid 0 and are not found.
    pub fn find_pid(&self, pid: u32) -> Option<ProcessKey> {
        self.by_pid.get(&pid).copied()
    }

    /// The process with this id.
    pub(crate) fn find_id(&self, id: ProcessId) -> Option<ProcessKey> {
        self.iter().find(|(_, it)| it.id == id).map(|(process, _)| process)
    }

    /// Whether a process in the table has exited.
    pub fn has_exited(&self, process: ProcessKey) -> bool {
        self.get(process).is_some_and(|it| it.watch.has_exited())
    }

    /// Whether another process has the pid of a process in the table: the latter has exited, and a process with its pid is
    /// alive. Start times would not show that, since they count hundredths of a second. While no process has the pid, bytes
    /// from it were sent before the exit.
    pub fn is_pid_reused(&self, process: ProcessKey) -> bool {
        let Some(it) = self.get(process).filter(|it| it.watch.has_exited()) else { return false };
        ExitWatch::by_pid(it.id.pid).is_some_and(|holder| !holder.has_exited())
    }

    /// Every process that has exited and is still in the table.
    pub fn exited(&self) -> Vec<ProcessKey> {
        self.iter().filter(|(_, it)| it.watch.has_exited()).map(|(process, _)| process).collect()
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessKey, &TrackedProcess)> {
        self.entries.iter().map(|(&process, it)| (process, it))
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Watches for the exit of a process that a source found.
    pub(crate) fn watch(&self, process: &ProcessIdentity) -> ExitWatch {
        if process.pid == 0 {
            return ExitWatch::Connection;
        }
        let start = process.start.or_else(|| self.procfs.start_ticks(process.pid));
        // A segment in another machine's folder may be locked by a process of this machine, which that `/proc` lacks.
        self.procfs
            .watch(process.pid, start)
            .or_else(|| ExitWatch::by_pid(process.pid))
            .unwrap_or(ExitWatch::Exited)
    }

    /// Adds a process and describes it. `reported_pid` is the pid that it reports itself.
    pub(crate) fn add(
        &mut self,
        process: &ProcessIdentity,
        reported_pid: i64,
        watch: ExitWatch,
    ) -> (ProcessKey, ProcessId, Process) {
        self.last_key += 1;
        let key = ProcessKey(self.last_key);
        let pid = process.pid;
        // After its exit, `/proc` may have another process under its pid.
        let start = process.start.or_else(|| self.procfs.start_ticks(pid)).filter(|_| !watch.has_exited());
        let holder = self.find_pid(pid).and_then(|holder| self.get(holder)).map(|it| it.id);
        let id = start.map(|start| ProcessId { pid, start }).filter(|id| holder != Some(*id));
        // Without a start time of its own, a number that no other process has takes its place.
        let id = id.unwrap_or(ProcessId { pid, start: u64::MAX - key.0 });
        let mut info = self.procfs.describe(process, start);
        info.reported_pid =
            Some(reported_pid).filter(|&reported| reported != i64::from(pid) && reported != 0);
        if pid != 0 {
            self.by_pid.insert(pid, key);
        }
        self.entries.insert(key, TrackedProcess { id, watch, host: None });
        (key, id, info)
    }

    /// Reads the host usage of each visible process, by pid. CPU time is that since the last reading.
    pub(crate) fn read_host_usage(&mut self, now: Mono) -> BTreeMap<u32, HostUsage> {
        let mut parents = BTreeMap::new();
        for entry in self.entries.values_mut().filter(|entry| entry.id.pid != 0) {
            if entry.host.as_ref().is_some_and(|(at, ..)| now.since(*at) < HOST_INTERVAL_NS) {
                continue;
            }
            let reading = self.procfs.host_reading(entry.id.pid);
            // Where the start time could not be read, the id has another number in its place.
            let is_same =
                |reading: &HostReading| entry.id.start > u64::MAX / 2 || reading.start == entry.id.start;
            entry.host = reading.filter(is_same).map(|reading| {
                let before = entry.host.as_ref().filter(|(_, before, _)| before.start == reading.start);
                let cpu_percent = before.map(|(at, before, _)| {
                    let spent = reading.cpu_ns.saturating_sub(before.cpu_ns);
                    100.0 * spent as f64 / now.since(*at) as f64
                });
                let parent_pid = Some(reading.parent).filter(|&pid| pid != 0);
                let usage = HostUsage {
                    cpu_percent,
                    rss_bytes: reading.rss_bytes,
                    parent_pid,
                    ancestor_pid: find_ancestor(&self.procfs, &self.by_pid, reading.parent, &mut parents),
                };
                (now, reading, usage)
            });
        }
        let usages = self.entries.values().filter_map(|it| Some((it.id.pid, it.host.as_ref()?.2.clone())));
        usages.collect()
    }

    pub(crate) fn remove(&mut self, process: ProcessKey) -> Option<TrackedProcess> {
        let removed = self.entries.remove(&process)?;
        if self.by_pid.get(&removed.id.pid) == Some(&process) {
            self.by_pid.remove(&removed.id.pid);
        }
        Some(removed)
    }
}

/// Finds the nearest process in the table from `pid` up. `parents` caches the processes between.
fn find_ancestor(
    procfs: &Processes,
    by_pid: &BTreeMap<u32, ProcessKey>,
    mut pid: u32,
    parents: &mut BTreeMap<u32, u32>,
) -> Option<u32> {
    for _ in 0..MAX_DEPTH {
        if pid <= 1 {
            return None;
        }
        if by_pid.contains_key(&pid) {
            return Some(pid);
        }
        let parent = || procfs.host_reading(pid).map_or(0, |it| it.parent);
        pid = *parents.entry(pid).or_insert_with(parent);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn identity(pid: u32) -> ProcessIdentity {
        ProcessIdentity { pid, namespace_pid: pid, uid: 0, name: "test".to_owned(), start: None }
    }

    #[test]
    fn reused_pid_names_the_new_process() {
        let mut table = ProcessTable::new(&Root::default());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let found = identity(pid);
        let watch = table.watch(&found);
        let (old, old_id, _) = table.add(&found, i64::from(pid), watch);
        assert_eq!(table.find_pid(pid), Some(old));
        assert!(!table.has_exited(old) && table.exited().is_empty());
        // Another process with this pid that started in the same hundredth of a second.
        let watch = table.watch(&found);
        let (new, new_id, _) = table.add(&found, i64::from(pid), watch);
        assert_ne!(old_id, new_id);
        assert_eq!(table.find_pid(pid), Some(new));
        assert_eq!(table.find_id(old_id), Some(old));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(table.exited(), [old, new]);
        // Removing the old one does not hide the new one.
        table.remove(old).unwrap();
        assert_eq!((table.find_pid(pid), table.count()), (Some(new), 1));
        table.remove(new).unwrap();
        assert_eq!((table.find_pid(pid), table.count()), (None, 0));
    }

    #[test]
    fn host_usage_has_cpu_and_the_nearest_known_ancestor() {
        let mut table = ProcessTable::new(&Root::default());
        // The shell between is not in the table.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]).stdout(std::process::Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut line = String::new();
        let output = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut { output }, &mut line).unwrap();
        let (own, sleeper) = (std::process::id(), line.trim().parse::<u32>().unwrap());
        for pid in [own, sleeper] {
            let found = identity(pid);
            let watch = table.watch(&found);
            table.add(&found, i64::from(pid), watch);
        }
        let first = table.read_host_usage(Mono(Mono::SECOND));
        assert_eq!(first[&sleeper].ancestor_pid, Some(own));
        assert_eq!(first[&sleeper].parent_pid, Some(shell.id()));
        assert_eq!(first[&sleeper].cpu_percent, None, "CPU time needs two readings");
        assert!(first[&own].rss_bytes > 0);
        let soon = table.read_host_usage(Mono(Mono::SECOND + 1));
        assert_eq!(soon, first, "not read again so soon");
        let later = table.read_host_usage(Mono(2 * Mono::SECOND));
        assert!(later[&sleeper].cpu_percent.is_some_and(|it| it < 5.0));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(sleeper as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        shell.wait().unwrap();
        assert!(!table.read_host_usage(Mono(3 * Mono::SECOND)).contains_key(&sleeper));
    }

    #[test]
    fn invisible_processes_are_never_confused() {
        let mut table = ProcessTable::new(&Root::default());
        let unseen = identity(0);
        let watch = table.watch(&unseen);
        assert!(matches!(watch, ExitWatch::Connection));
        let (first, first_id, info) = table.add(&unseen, 7, watch);
        let (_, second_id, _) = table.add(&unseen, -7, ExitWatch::Connection);
        assert_eq!(info.reported_pid, Some(7));
        assert_ne!(first_id, second_id);
        assert_eq!(table.find_pid(0), None);
        assert!(!table.has_exited(first));
    }

    #[test]
    fn exited_process_has_no_start_time() {
        let mut table = ProcessTable::new(&Root::default());
        let mut child = Command::new("true").spawn().unwrap();
        let gone = identity(child.id());
        child.wait().unwrap();
        let watch = table.watch(&gone);
        assert!(matches!(watch, ExitWatch::Exited));
        let (process, id, info) = table.add(&ProcessIdentity { start: Some(1), ..gone }, 0, watch);
        assert!(table.has_exited(process));
        assert_ne!(id.start, 1);
        assert_eq!((info.start, info.reported_pid), (None, None));
    }
}
