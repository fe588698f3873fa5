//! Compares what call sites have at marks, at replays of traces, and every few seconds.

use super::past::is_reported;
use super::{ProcessState, State, chips_in};
use crate::growth::{Phase, SiteInSpace};
use crate::input::Mark;
use crate::ledger::{Held, Ledger, Pool, PoolId};
use crate::sites::SiteKey;
use crate::words::{Mono, ProcessId, Scope};
use std::collections::BTreeMap;
use ttmem_types::Purpose;

impl State {
    /// Takes a mark.
    pub(super) fn mark(&mut self, id: ProcessId, mark: Mark) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        // The segments of one process are read one after the other.
        let is_older = process.last_mark.is_some_and(|last| last.at > mark.at);
        process.last_mark = if is_older { process.last_mark } else { Some(mark) };
        compare(process, &self.ledger, Phase::Mark(mark.name), mark.at);
    }

    /// Takes the replay of a trace for a mark.
    pub(super) fn mark_replay(&mut self, id: ProcessId, scope: Scope, trace: u32) {
        if let Some(process) = self.processes.get_mut(&id) {
            compare(process, &self.ledger, Phase::Replay(scope, trace), self.now);
        }
    }

    /// Compares the late survivors of all processes with those of the round before.
    pub(super) fn compare_late_survivors(&mut self) {
        for process in self.processes.values_mut() {
            let held = held_by_site(process, |pool| late_survivors(&self.ledger, pool));
            process.growth.add(Phase::Round, self.now, &held);
        }
    }
}

/// Compares what the sites of a process have with what they had at the moment of this phase before.
fn compare(process: &mut ProcessState, ledger: &Ledger, phase: Phase, at: Mono) {
    if process.growth.wants(phase, at) {
        let held = held_by_site(process, |pool| ledger.pool(pool).sites().map(|(site, now, _)| (site, now)));
        process.growth.add(phase, at, &held);
    }
}

/// What each line and operation of a process has in each space. Program caches and traces grow by design, and are left out.
fn held_by_site<I: IntoIterator<Item = (u32, Held)>>(
    process: &ProcessState,
    held_in: impl Fn(PoolId) -> I,
) -> BTreeMap<SiteInSpace, Held> {
    let mut groups: Option<BTreeMap<u32, u32>> = None;
    let mut sums: BTreeMap<SiteInSpace, Held> = BTreeMap::new();
    for (&(scope, space, basis), &pool) in &process.pools {
        if !is_reported(space, basis) {
            continue;
        }
        let mut chips = chips_in(&process.allocators, &scope).to_vec();
        chips.sort_unstable();
        for (site, held) in held_in(pool) {
            let purpose = process.sites.get(site).map(|site| site.purpose);
            if held.count == 0 || matches!(purpose, Some(Purpose::Kernels | Purpose::Trace)) {
                continue;
            }
            let groups =
                groups.get_or_insert_with(|| process.sites.groups(SiteKey::LineAndOp).into_iter().collect());
            let group = groups.get(&site).copied().unwrap_or(0);
            sums.entry((chips.clone(), space, group)).or_default().merge(held);
        }
    }
    sums
}

/// The late survivors of each site of a pool: buffers that are much older than the others were when they were freed.
fn late_survivors(ledger: &Ledger, id: PoolId) -> BTreeMap<u32, Held> {
    let pool: &Pool = ledger.pool(id);
    let late: BTreeMap<u32, u64> = pool.late_sites().collect();
    let mut survivors: BTreeMap<u32, Held> = BTreeMap::new();
    if late.is_empty() {
        return survivors;
    }
    for (_, entry) in ledger.entries(id).filter(|(_, entry)| pool.has_sites(entry)) {
        let age = ledger.now.since(Mono(entry.allocated_at));
        if late.get(&entry.site).is_some_and(|&late| age > late) {
            survivors.entry(entry.site).or_default().add(entry);
        }
    }
    survivors
}
