//! A process in a line: what it holds in all, and how well that is known.

use super::{Process, Quality, Summary, Tracker, Usage};
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
    /// Works the summary out anew from all else, as after some of that was left out. `index_of` is the index of a device by
    /// its id.
    pub fn summarise(&mut self, index_of: impl Fn(&str) -> Option<u32>) {
        let mut summary = Summary { quality: self.quality(), ..Summary::default() };
        for usage in self.usage.iter().map(|it| &it.usage) {
            for &space in SUMS.into_iter().flatten() {
                if let Some((bytes, _)) = usage.used(space) {
                    summary.add(space, bytes, 1);
                }
            }
        }
        let used = self.usage.iter().filter(|it| it.usage != Usage::default()).map(|it| &it.device);
        summary.indexes = used.chain(&self.opened).filter_map(|id| index_of(id)).collect();
        summary.indexes.sort_unstable();
        summary.indexes.dedup();
        self.summary = summary;
    }

    fn quality(&self) -> Quality {
        let judged = self.audit.iter().filter(|audit| audit.judged).map(|audit| !audit.is_zero());
        Quality::of(self.tracking, self.exact, self.tracker.as_ref(), judged)
    }
}

impl Quality {
    /// `judged`: of each audit that means something, whether it differs.
    pub(crate) fn of(
        tracking: Basis,
        exact: bool,
        tracker: Option<&Tracker>,
        judged: impl Iterator<Item = bool>,
    ) -> Self {
        let Some(tracker) = tracker.filter(|it| it.hooks > 0) else {
            return match tracking {
                Basis::Events => Self::Events,
                Basis::Counters => Self::Counters,
                Basis::Legacy => Self::Legacy,
                Basis::Unknown => Self::Untracked,
            };
        };
        let differs = judged.reduce(|any, differs| any || differs);
        if differs == Some(true) {
            Self::Drift
        } else if !exact || !tracker.missing_hooks.is_empty() {
            Self::Partial
        } else if differs.is_some() {
            Self::Audited
        } else {
            Self::Agent
        }
    }
}
