//! Reports of runs: what processes allocated, also those that have exited.

use super::Figures;
use super::view::Clock;
use crate::ledger::Held;
use crate::sites::SiteKey;
use crate::snapshot::{
    FullestCore, HeldBySite, Origin, ProcessReport, RunReport, SCHEMA, SpaceReport, Tracker,
};
use crate::state::{PastPool, ProcessState, add_past, is_reported, visible};
use crate::words::{ChipId, ProcessId, Space};
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl Figures<'_> {
    /// What all processes allocated. `at` is the time of the state.
    pub(super) fn report(&self, at: Timestamp) -> RunReport {
        let clock = Clock { at, now: self.state.now };
        let exited = self.state.exited.as_ref();
        let mut all: Vec<(ProcessId, &ProcessState, bool)> =
            exited.iter().flat_map(|it| &it.kept).map(|(id, process)| (*id, process, true)).collect();
        all.extend(self.state.processes.iter().map(|(&id, process)| (id, process, false)));
        all.sort_by_key(|(id, ..)| (id.start, id.pid));
        let processes =
            all.into_iter().map(|(id, process, exited)| self.process_report(id, process, exited, clock));
        RunReport {
            schema: SCHEMA,
            at,
            command: Vec::new(),
            end: None,
            processes: processes.filter(|it| !it.spaces.is_empty() || it.failures > 0).collect(),
            unlisted_processes: exited.map_or(0, |it| it.dropped),
            fullest_core: self.fullest_core(clock),
            post_mortems: Vec::new(),
        }
    }

    fn process_report(
        &self,
        id: ProcessId,
        process: &ProcessState,
        exited: bool,
        clock: Clock,
    ) -> ProcessReport {
        let mut pools = process.past.clone();
        for (&(scope, space, basis), &pool) in &process.pools {
            if is_reported(space, basis) {
                add_past(&mut pools, PastPool::new(process, scope, self.state.ledger.pool(pool)));
            }
        }
        pools.sort_by_key(|pool| (self.state.indexes_of(&pool.chips), pool.space));
        // Without groups, everything is one.
        let is_hidden = process.info.is_hidden_from(&self.viewer);
        let groups = if is_hidden { Vec::new() } else { process.sites.groups(SiteKey::LineAndOp) };
        let groups: BTreeMap<u32, u32> = groups.into_iter().collect();
        let held = |by_site: &BTreeMap<u32, Held>| held_by_site(process, &groups, by_site);
        let space = |pool: &PastPool| SpaceReport {
            indexes: self.state.indexes_of(&pool.chips),
            space: pool.space,
            allocatable_bytes: pool.allocatable,
            peak_bytes: pool.peak,
            peak_at: clock.wall(pool.peak_at),
            at_peak: pool.at_peak.as_ref().map(held),
            left: held(&pool.left),
        };
        let row = ProcessReport {
            pid: visible(id),
            name: process.info.name.clone(),
            hidden: false,
            exited,
            spaces: pools.iter().map(space).collect(),
            leaks: self.leaks_of(id, process, clock),
            failures: process.failure_count,
            audits: process.compared.iter().sum(),
            audits_with_drift: process.compared[1],
            exact: process.lost == 0 && process.refused == 0 && process.is_complete,
            tracker: process.tracked.as_ref().map(Tracker::from),
            crash_segment: None,
        };
        self.viewer.show(process.info.uid, row)
    }

    fn fullest_core(&self, clock: Clock) -> Option<FullestCore> {
        let peaks = self.state.chips.values().filter_map(|chip| Some((chip, chip.core_peaks.highest()?)));
        let (chip, peak) = peaks.max_by_key(|(chip, peak)| (peak.bytes, Reverse(chip.chip.index)))?;
        let mut all = self
            .state
            .processes
            .values()
            .chain(self.state.exited.iter().flat_map(|it| &it.kept).map(|(_, process)| process));
        let is_here = |id: &ChipId| self.state.resolve(*id) == chip.chip.id;
        let bank = all.find_map(|process| {
            let mut of_chip = process.allocators.values().filter(|it| it.chips.iter().any(is_here));
            of_chip.find_map(|it| it.spaces.iter().find(|banks| banks.space == Space::L1).copied())
        });
        let program = peak.program.as_ref();
        let row = FullestCore {
            index: chip.chip.index,
            bytes: peak.bytes,
            allocatable_bytes: bank.map(|bank| bank.bytes_per_bank),
            buffer_bytes: peak.buffers,
            at: clock.wall(peak.at),
            pid: program.and_then(|it| it.pid),
            hidden: false,
            program_name: program.and_then(|it| it.name.as_deref().map(str::to_owned)),
        };
        Some(match program {
            Some(program) => self.viewer.show(program.owner, row),
            None => row,
        })
    }
}

/// Buffers of each line and operation, largest first.
fn held_by_site(
    process: &ProcessState,
    groups: &BTreeMap<u32, u32>,
    by_site: &BTreeMap<u32, Held>,
) -> Vec<HeldBySite> {
    let mut sums: BTreeMap<u32, Held> = BTreeMap::new();
    for (site, &held) in by_site {
        sums.entry(groups.get(site).copied().unwrap_or(0)).or_default().merge(held);
    }
    let describe = |(&site, held): (&u32, &Held)| HeldBySite {
        site_name: process.sites.name(site).cloned(),
        origin: Origin { stack: Vec::new(), ..process.sites.origin(site) },
        count: held.count,
        requested_bytes: held.requested,
        used_bytes: held.allocated,
    };
    let mut all: Vec<HeldBySite> = sums.iter().map(describe).collect();
    all.sort_by_key(|held| Reverse(held.used_bytes));
    all
}
