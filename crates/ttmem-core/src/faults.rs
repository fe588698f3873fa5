//! Faults that occurred, counted by kind and process. Findings that hold at the time of a snapshot (over capacity, aliased,
//! drift, growth) are derived by the analysis.

use crate::input::Process;
use crate::label::Label;
use crate::pairs;
use crate::snapshot::{Failure, FailureKind};
use crate::words::{ChipId, Fault, Mono, ProcessId, Space};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) fault: Fault,
    /// Of failed allocations: why they failed.
    pub(crate) failure: Option<FailureKind>,
    pub(crate) process: Option<ProcessId>,
    pub(crate) chip: Option<ChipId>,
    pub(crate) space: Option<Space>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) last_id: u64,
    pub(crate) first: Mono,
    pub(crate) last: Mono,
    /// When it was last counted, which may be long after it occurred.
    pub(crate) noted: Mono,
    /// Of failed allocations, the last one, as it was described then.
    pub(crate) failure: Option<Box<Failure>>,
}

impl Tally {
    pub(crate) fn new(at: Mono) -> Self {
        Self { count: 0, bytes: 0, last_id: 0, first: at, last: at, noted: at, failure: None }
    }
}

/// How long after it last occurred a fault is still shown.
const KEPT_NS: u64 = 600 * Mono::SECOND;
const ROOM: usize = 1024;

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Faults {
    #[serde(with = "pairs")]
    tallies: BTreeMap<Subject, Tally>,
    /// Processes of the faults, which may have exited since.
    #[serde(with = "pairs")]
    labels: BTreeMap<ProcessId, Label>,
    pub(crate) dropped: u64,
}

impl Faults {
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
        let tally = self.tallies.entry(subject).or_insert(Tally::new(now));
        let first = tally.count == 0;
        tally.count = tally.count.saturating_add(count);
        tally.bytes = tally.bytes.saturating_add(bytes);
        tally.last_id = id;
        (tally.last, tally.noted) = (now, now);
        first
    }

    /// Counts failed allocations, the last of which is this one of some time ago.
    pub(crate) fn add_failure(
        &mut self,
        now: Mono,
        subject: Subject,
        at: Mono,
        count: u64,
        failure: Box<Failure>,
    ) {
        let bytes = failure.requested_bytes.unwrap_or(0);
        let first = self.add(now, subject, 0, count, bytes);
        let Some(tally) = self.tallies.get_mut(&subject) else { return };
        if first {
            tally.first = at;
        }
        (tally.last, tally.bytes, tally.failure) = (at, bytes, Some(failure));
    }

    pub(crate) fn expire(&mut self, now: Mono) {
        let count = self.tallies.len();
        self.tallies.retain(|_, tally| now.since(tally.noted) < KEPT_NS);
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
