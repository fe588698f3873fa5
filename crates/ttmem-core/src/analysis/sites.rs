//! Usage of buffers by call site and operation.

use super::Figures;
use crate::ledger::Held;
use crate::sites::SiteKey;
use crate::snapshot::{Origin, SiteUsage};
use crate::state::{ProcessState, chips_in, visible};
use crate::words::{Basis, ProcessId, Space};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number and bytes of the buffers of a site.
#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    requested: u64,
    used: u64,
    /// Number and bytes at the peak; `None`: unknown.
    at_peak: Option<(u64, u64)>,
}

impl Sum {
    fn new(basis: Basis, now: Held, then: Option<Held>) -> Self {
        let used = |held: Held| if basis == Basis::Exact { held.allocated } else { held.requested };
        let at_peak = then.map(|then| (then.count, used(then)));
        Self { count: now.count, requested: now.requested, used: used(now), at_peak }
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.requested = self.requested.saturating_add(other.requested);
        self.used = self.used.saturating_add(other.used);
        let both = self.at_peak.zip(other.at_peak);
        self.at_peak = both.map(|(a, b)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)));
    }

    fn is_empty(&self) -> bool {
        self.count == 0 && self.at_peak.is_none_or(|(count, _)| count == 0)
    }
}

impl Figures<'_> {
    /// Buffers of all processes by devices, space, line and operation, largest first. Their bytes add up to those of the devices.
    pub(super) fn site_usages(&self) -> Vec<SiteUsage> {
        let processes = self.state.processes.iter().filter(|(_, process)| process.is_shown());
        let mut all: Vec<SiteUsage> =
            processes.flat_map(|(&id, process)| self.site_usages_of(id, process)).collect();
        all.sort_by_key(|usage| Reverse((usage.used_bytes, usage.peak_bytes)));
        all
    }

    fn site_usages_of(&self, id: ProcessId, process: &ProcessState) -> Vec<SiteUsage> {
        // Without groups, everything is one.
        let is_hidden = process.info.is_hidden_from(&self.viewer);
        let groups = if is_hidden { Vec::new() } else { process.sites.groups(SiteKey::LineAndOp) };
        let groups: BTreeMap<u32, u32> = groups.into_iter().collect();
        let mut sums: BTreeMap<(Vec<u32>, Space, u32), Sum> = BTreeMap::new();
        let pools = process.pools.iter().filter(|((_, space, _), _)| !space.is_program());
        for (&(scope, space, basis), &pool) in pools {
            let indexes = self.state.indexes_of(chips_in(&process.allocators, &scope));
            for (site, now, then) in self.state.ledger.pool(pool).sites() {
                let sum = Sum::new(basis, now, then);
                if sum.is_empty() {
                    continue;
                }
                let group = groups.get(&site).copied().unwrap_or(0);
                let key = (indexes.clone(), space, group);
                sums.entry(key).and_modify(|known| known.add(sum)).or_insert(sum);
            }
        }
        let usage = |((indexes, space, site), sum): ((Vec<u32>, Space, u32), Sum)| SiteUsage {
            pid: visible(id),
            reported_pid: process.info.reported_pid,
            hidden: false,
            indexes,
            space,
            site_name: process.sites.name(site).cloned(),
            origin: Origin { stack: Vec::new(), ..process.sites.origin(site) },
            count: sum.count,
            requested_bytes: sum.requested,
            used_bytes: sum.used,
            peak_count: sum.at_peak.map(|(count, _)| count),
            peak_bytes: sum.at_peak.map(|(_, bytes)| bytes),
        };
        sums.into_iter().map(usage).map(|it| self.viewer.show(process.info.uid, it)).collect()
    }
}
