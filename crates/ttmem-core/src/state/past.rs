//! What was allocated through allocators that are closed, and by processes that exited.

use super::{ProcessState, State, chips_in};
use crate::ledger::{Held, Pool, PoolId};
use crate::words::{Basis, ChipId, Mono, ProcessId, Scope, Space};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Exited processes that are kept. A run may start thousands.
const MAX_EXITED: usize = 256;

/// What one process allocated in one space of the same chips, through one or several allocators one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PastPool {
    pub(crate) chips: Vec<ChipId>,
    pub(crate) space: Space,
    /// Bytes that the allocator manages on each chip.
    pub(crate) allocatable: Option<u64>,
    pub(crate) peak: u64,
    pub(crate) peak_at: Mono,
    /// Buffers by site at the peak; `None`: unknown.
    pub(crate) at_peak: Option<BTreeMap<u32, Held>>,
    /// Buffers by site when the allocator was closed or the process exited, or now.
    pub(crate) left: BTreeMap<u32, Held>,
}

impl PastPool {
    pub(crate) fn new(process: &ProcessState, scope: Scope, pool: &Pool) -> Self {
        let mut chips = chips_in(&process.allocators, &scope).to_vec();
        chips.sort_unstable();
        let (mut left, mut at_peak) = (BTreeMap::new(), BTreeMap::new());
        let mut is_known = true;
        for (site, now, then) in pool.sites() {
            is_known &= then.is_some();
            let then = then.unwrap_or_default();
            if now.count > 0 {
                left.insert(site, now);
            }
            if then.count > 0 {
                at_peak.insert(site, then);
            }
        }
        // Buffers without a record have no site, so that the sites do not add up to the peak.
        let listed: u64 = at_peak.values().map(|held| held.allocated).sum();
        let banks = process.banks(scope, pool.key.space);
        Self {
            chips,
            space: pool.key.space,
            allocatable: banks.map(|it| it.bytes_per_bank.saturating_mul(it.banks.into())),
            peak: pool.peak,
            peak_at: pool.peak_at,
            at_peak: (is_known && listed == pool.peak).then_some(at_peak),
            left,
        }
    }

    fn is_empty(&self) -> bool {
        self.peak == 0 && self.left.is_empty()
    }
}

/// Processes that exited, with what they allocated.
#[derive(Debug, Default)]
pub(crate) struct ExitedProcesses {
    pub(crate) kept: Vec<(ProcessId, ProcessState)>,
    /// Those that were too many.
    pub(crate) dropped: u64,
}

impl std::fmt::Debug for ProcessState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessState").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Whether buffers of a pool are reported. Memory of programs is not: cached programs share it.
pub(crate) fn is_reported(space: Space, basis: Basis) -> bool {
    !space.is_program() && basis == Basis::Exact
}

/// Adds what was allocated through an allocator to what was allocated through earlier ones over the same chips.
pub(crate) fn add(all: &mut Vec<PastPool>, new: PastPool) {
    if new.is_empty() {
        return;
    }
    let Some(known) = all.iter_mut().find(|it| it.space == new.space && it.chips == new.chips) else {
        return all.push(new);
    };
    for (site, held) in new.left {
        known.left.entry(site).or_default().merge(held);
    }
    if new.peak > known.peak {
        (known.peak, known.peak_at, known.at_peak) = (new.peak, new.peak_at, new.at_peak);
    }
    known.allocatable = new.allocatable.or(known.allocatable);
}

impl State {
    /// Keeps what processes allocated beyond their exit, for [`crate::Analysis::report`].
    pub fn keep_exited(&mut self) {
        self.exited.get_or_insert_default();
    }

    /// Notes what was allocated in a pool that is about to be closed.
    pub(super) fn note_past(&self, process: &mut ProcessState, scope: Scope, id: PoolId) {
        let pool = self.ledger.pool(id);
        if self.exited.is_some() && is_reported(pool.key.space, pool.key.basis) {
            let past = PastPool::new(process, scope, pool);
            add(&mut process.past, past);
        }
    }

    /// Keeps a process that has exited, if it used a device.
    pub(super) fn keep_process(&mut self, id: ProcessId, process: ProcessState) {
        let Some(exited) = &mut self.exited else { return };
        if process.past.is_empty() && process.failure_count == 0 {
            return;
        }
        if exited.kept.len() == MAX_EXITED {
            exited.dropped += 1;
            return;
        }
        exited.kept.push((id, process));
    }
}
