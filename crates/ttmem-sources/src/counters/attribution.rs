//! Finds the process of an entry in a file of counters.
//!
//! An entry has the pid that its process has in its own namespace. The process is one with that pid, in any namespace, that
//! uses the file's folder, had started when the entry last changed, and has the entry's name or the file mapped.

use super::Poll;
use super::file::OpenFile;
use crate::event_sink::EventSink;
use crate::exit_watch::ExitWatch;
use crate::files::file_id;
use crate::process::Processes;
use crate::shm::ShmFolder;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use ttmem_wire::region::{Clock, ProcessSlot, Region};

/// Tolerance when start times are compared with the times of entries: clocks are read a moment later, and start times count
/// hundredths of a second.
const TOLERANCE_NS: u64 = 50_000_000;

/// The user who may report for every process.
const ROOT: u32 = 0;

/// By pid, the processes that are in any file: when they started, and how their exit is noticed.
pub(super) type Watches = BTreeMap<u32, (u64, ExitWatch)>;

/// The process of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryProcess {
    Alive {
        /// Its pid in the reader's namespace.
        pid: u32,
        /// When it started, in clock ticks since boot.
        start: u64,
    },
    Exited,
    /// It is alive, and the file's owner may not report for it.
    Foreign {
        /// Its pid in the reader's namespace.
        pid: u32,
    },
    /// It may be alive and not visible from here, or visible without proof that it is the one.
    Unknown,
}

/// The process that was found for an entry.
#[derive(Clone, Copy)]
pub(super) struct Attribution {
    pub(super) process: EntryProcess,
    /// When the entry had last changed.
    updated_ns: u64,
}

impl OpenFile {
    /// Finds the process of an entry, or returns the one found before if that still holds.
    pub(super) fn find_process<S: EventSink>(
        &mut self,
        slot: &ProcessSlot,
        region: &Region,
        folder: &ShmFolder,
        poll: &mut Poll<'_, '_, S>,
    ) -> EntryProcess {
        if let Some(known) = self.entries.get(&slot.pid) {
            let holds = match known.process {
                EntryProcess::Alive { pid, start } => poll.is_watched(pid, start),
                EntryProcess::Foreign { .. } | EntryProcess::Exited | EntryProcess::Unknown => {
                    known.updated_ns == slot.updated_ns
                }
            };
            if holds {
                return known.process;
            }
        }
        let direct = Some(slot.pid).filter(|_| folder.of_machine);
        let mut uncertain = !poll.context.processes.are_all_visible();
        let mut check = |pid, poll: &mut Poll<'_, '_, S>| {
            let found = self.check_candidate(pid, slot, region, folder, poll);
            uncertain |= found == Some(EntryProcess::Unknown);
            found.filter(|process| *process != EntryProcess::Unknown)
        };
        let found = direct.and_then(|pid| check(pid, poll)).or_else(|| {
            // Last, since the index reads every process.
            let others = poll.context.pid_index.find(slot.pid, poll.context.processes);
            let mut others = others.into_iter().filter(|&pid| Some(pid) != direct);
            others.find_map(|pid| check(pid, poll))
        });
        let process = found.unwrap_or(if uncertain { EntryProcess::Unknown } else { EntryProcess::Exited });
        self.entries.insert(slot.pid, Attribution { process, updated_ns: slot.updated_ns });
        process
    }

    /// Whether the process with this pid is the entry's. `None`: it is not.
    fn check_candidate<S: EventSink>(
        &self,
        pid: u32,
        slot: &ProcessSlot,
        region: &Region,
        folder: &ShmFolder,
        poll: &mut Poll<'_, '_, S>,
    ) -> Option<EntryProcess> {
        let identity = poll.identify(pid).filter(|identity| identity.namespace_pid == slot.pid)?;
        let (start, has_name, uid) = (identity.start?, identity.name == slot.name, identity.uid);
        let processes = &mut *poll.context.processes;
        // One that started after the entry's last change is a later process with the same pid, unless the clock was set
        // meanwhile.
        let started_ns = match region.layout.clock() {
            Clock::Monotonic => Some(Processes::ticks_to_ns(start)),
            Clock::Wall => processes.wall_time(start).map(|it| it.as_nanosecond().max(0) as u64),
        };
        let is_later = started_ns.is_some_and(|at| at > slot.updated_ns.saturating_add(TOLERANCE_NS));
        let is_later = is_later && slot.updated_ns != 0;
        if (!folder.of_machine || pid != slot.pid) && !folder.is_used_by(pid, processes) {
            return None;
        }
        if is_later || !has_name || !processes.are_all_visible() {
            let id = file_id(&rustix::fs::fstat(&self.fd).ok()?);
            let mapped = processes.has_mapped(pid, id);
            // Its mappings may not be read. A process that had the pid when the entry last changed still has it, perhaps
            // under another name; but in another namespace that pid is another process.
            if mapped.is_none() && !has_name && !is_later && slot.updated_ns != 0 {
                return Some(EntryProcess::Unknown);
            }
            if !mapped.unwrap_or(has_name && !is_later) {
                return None;
            }
        }
        // Who owns the file can write anything into it.
        if self.uid != uid && self.uid != ROOT {
            return Some(EntryProcess::Foreign { pid });
        }
        if let Entry::Vacant(entry) = poll.watches.entry(pid) {
            entry.insert((start, processes.watch(pid, Some(start))?));
        }
        Some(EntryProcess::Alive { pid, start })
    }
}
