//! Faults that occurred, counted by kind and process. Findings that hold at the time of a snapshot (over capacity, aliased,
//! drift, growth) are not here: the view derives them.

use crate::event::Process;
use crate::label::Label;
use crate::words::{ChipId, Fault, Mono, ProcessId, Space};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) fault: Fault,
    pub(crate) process: Option<ProcessId>,
    pub(crate) chip: Option<ChipId>,
    pub(crate) space: Option<Space>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) last_id: u64,
    pub(crate) first: Mono,
    pub(crate) last: Mono,
}

/// How long after it last occurred a fault is still shown.
const KEPT_NS: u64 = 600 * Mono::SECOND;
const ROOM: usize = 1024;

#[derive(Default)]
pub(crate) struct Findings {
    tallies: BTreeMap<Subject, Tally>,
    /// Processes of the faults, which may have exited since.
    labels: BTreeMap<ProcessId, Label>,
    pub(crate) dropped: u64,
}

impl Findings {
    /// Keeps the name of a process for its findings.
    pub(crate) fn name(&mut self, id: ProcessId, info: &Process) {
        self.labels.entry(id).or_insert_with(|| Label::new(id, info));
    }

    pub(crate) fn label(&self, id: ProcessId) -> Option<&Label> {
        self.labels.get(&id)
    }

    /// Counts a fault. Returns whether it is the first of its kind.
    pub(crate) fn add(&mut self, now: Mono, subject: Subject, bytes: u64, count: u64, id: u64) -> bool {
        if self.tallies.len() >= ROOM && !self.tallies.contains_key(&subject) {
            self.dropped += 1;
            // Many short-lived processes must not hide what is worse than their ends.
            let harmless = |fault| matches!(fault, Fault::Reclaimed | Fault::UnknownFree);
            let candidates =
                self.tallies.iter().filter(|(of, _)| harmless(of.fault) || !harmless(subject.fault));
            let oldest = candidates.min_by_key(|(of, tally)| (!harmless(of.fault), tally.last));
            match oldest.map(|(of, _)| *of) {
                Some(oldest) => self.tallies.remove(&oldest),
                None => return false,
            };
            // Labels of dropped findings must not pile up before the next expiry.
            if self.labels.len() > 2 * ROOM {
                let named: BTreeSet<ProcessId> = self.tallies.keys().filter_map(|it| it.process).collect();
                self.labels.retain(|id, _| named.contains(id) || subject.process == Some(*id));
            }
        }
        let tally = self.tallies.entry(subject).or_insert(Tally {
            count: 0,
            bytes: 0,
            last_id: 0,
            first: now,
            last: now,
        });
        let first = tally.count == 0;
        tally.count = tally.count.saturating_add(count);
        tally.bytes = tally.bytes.saturating_add(bytes);
        tally.last_id = id;
        tally.last = now;
        first
    }

    pub(crate) fn expire(&mut self, now: Mono) {
        let count = self.tallies.len();
        self.tallies.retain(|_, tally| now.since(tally.last) < KEPT_NS);
        if self.tallies.len() < count {
            let named: BTreeSet<ProcessId> = self.tallies.keys().filter_map(|it| it.process).collect();
            self.labels.retain(|id, _| named.contains(id));
        }
        if self.tallies.len() < ROOM {
            self.dropped = 0;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Subject, &Tally)> {
        self.tallies.iter()
    }
}
