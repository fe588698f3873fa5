//! Totals of a process over its devices, and how well its memory is known.

use super::{Process, Summary, Tracker, Tracking, Usage};
use crate::words::{Basis, Space};

/// The sums of a summary, and what is in each.
const SUMS: [&[Space]; 4] = [
    &[Space::Dram, Space::Trace],
    &[Space::L1, Space::L1Small, Space::L1Core],
    &[Space::Cb, Space::Dfb, Space::Scratch],
    &[Space::Kernel],
];

impl Summary {
    /// Adds what is held in a space on so many devices.
    pub(crate) fn add(&mut self, space: Space, bytes: u64, devices: u64) {
        let sums =
            [&mut self.dram_bytes, &mut self.l1_bytes, &mut self.program_bytes, &mut self.kernel_bytes];
        for (sum, _) in sums.into_iter().zip(SUMS).filter(|(_, spaces)| spaces.contains(&space)) {
            *sum = Some(sum.unwrap_or(0).saturating_add(bytes.saturating_mul(devices)));
        }
    }
}

impl Process {
    /// Recomputes summary and tracking from the other fields, after some of those were filtered out. `index_of` is the index
    /// of a device by its id.
    pub fn summarise(&mut self, index_of: impl Fn(&str) -> Option<u32>) {
        let mut summary = Summary::default();
        for usage in self.usage.iter().map(|it| &it.usage) {
            for &space in SUMS.into_iter().flatten() {
                if let Some((bytes, _)) = usage.used(space) {
                    summary.add(space, bytes, 1);
                }
            }
        }
        let used = self.usage.iter().filter(|it| it.usage != Usage::default()).map(|it| &it.device);
        summary.indexes = used.chain(&self.open_devices).filter_map(|id| index_of(id)).collect();
        summary.indexes.sort_unstable();
        summary.indexes.dedup();
        self.summary = summary;
        let audits = self.audit.iter().filter(|audit| audit.compared).map(|audit| !audit.is_zero());
        self.tracking = Tracking::of(self.basis, self.complete, self.tracker.as_ref(), audits);
    }
}

impl Tracking {
    /// `audits`: whether each valid audit found a drift.
    pub(crate) fn of(
        basis: Basis,
        complete: bool,
        tracker: Option<&Tracker>,
        audits: impl Iterator<Item = bool>,
    ) -> Self {
        let Some(tracker) = tracker.filter(|it| it.hooks > 0) else {
            return match basis {
                Basis::Exact => Self::Library,
                Basis::Counters => Self::Counters,
                Basis::Reported => Self::Reported,
                Basis::Unknown => Self::Untracked,
            };
        };
        let differs = audits.reduce(|any, differs| any || differs);
        if differs == Some(true) {
            Self::Drift
        } else if !complete || !tracker.missing_hooks.is_empty() {
            Self::Partial
        } else if differs.is_some() {
            Self::Audited
        } else {
            Self::Agent
        }
    }
}
