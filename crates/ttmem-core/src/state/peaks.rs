//! Peaks: the highest use of each space of a chip, and of each of its cores.
//!
//! A chip's use is measured with every tick. In between, the peak of each pool of buffers is known exactly; where several
//! pools share a space, they are measured together when one of them frees something after it had grown by more than a few
//! percent. Memory of programs is measured with ticks only.
//!
//! On a core, what counts is what is there at the same time: the memory of a program, as its records were at the next tick or
//! at its end, with all buffers that were there at the moment of its dispatch.

use super::{ChipState, ProcessState, State, chips_in, visible};
use crate::analysis::{Analysis, Clock, Part, Tenant};
use crate::core_set::CoreSet;
use crate::ledger::PoolId;
use crate::snapshot::{CorePeak, Holder, Peak};
use crate::viewer::Viewer;
use crate::words::{ChipId, Mono, Scope, Space};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use ttmem_types::program_number;

/// Between two ticks, pools that share a space are measured when one of them grew by this share of itself.
const GROWTH_SHARE: u64 = 32;

/// The highest use of one space of a chip.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SpacePeak {
    pub(crate) bytes: u64,
    pub(crate) at: Mono,
    pub(crate) holders: Arc<[Holder]>,
}

impl SpacePeak {
    pub(crate) fn describe(&self, space: Space, clock: Clock) -> Peak {
        Peak { space, bytes: self.bytes, at: clock.wall(self.at), holders: self.holders.to_vec() }
    }
}

/// What was on a core at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CoreUse {
    pub(crate) bytes: u64,
    /// The part of `bytes` that buffers take.
    pub(crate) buffers: u64,
    pub(crate) at: Mono,
    pub(crate) program: Option<UsedBy>,
}

/// The program on a core, and its process, which may have exited since.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UsedBy {
    pub(crate) pid: Option<u32>,
    /// Number of the user of the process.
    pub(crate) owner: Option<u32>,
    /// Key of the program.
    pub(crate) key: u32,
    pub(crate) name: Option<Arc<str>>,
}

/// The highest use of a chip's cores. Cores with the same peak are one entry.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CorePeaks(Vec<(CoreSet, CoreUse)>);

impl CorePeaks {
    /// The peak of one core.
    pub(crate) fn of(&self, core: usize, clock: Clock, viewer: Viewer) -> Option<CorePeak> {
        let (_, peak) = self.0.iter().find(|(cores, _)| cores.has(core))?;
        let program = peak.program.as_ref();
        let row = CorePeak {
            bytes: peak.bytes,
            buffer_bytes: peak.buffers,
            at: clock.wall(peak.at),
            pid: program.and_then(|it| it.pid),
            hidden: false,
            program: program.map(|it| program_number(it.key)),
            program_name: program.and_then(|it| it.name.as_deref().map(str::to_owned)),
        };
        Some(match program {
            Some(program) => viewer.show(program.owner, row),
            None => row,
        })
    }

    /// The highest peak of all cores.
    pub(crate) fn highest(&self) -> Option<&CoreUse> {
        self.0.iter().map(|(_, peak)| peak).max_by_key(|peak| peak.bytes)
    }

    fn raise(&mut self, cores: CoreSet, new: &CoreUse) {
        let higher = self.0.iter().filter(|(_, peak)| peak.bytes >= new.bytes);
        let cores = higher.fold(cores, |left, (known, _)| left.without(*known));
        if cores.is_empty() || new.bytes == 0 {
            return;
        }
        for (known, _) in &mut self.0 {
            *known = known.without(cores);
        }
        self.0.retain(|(known, _)| !known.is_empty());
        self.0.push((cores, new.clone()));
    }
}

/// Whether a pool that is about to shrink may be part of a new peak.
pub(super) fn has_grown(used: u64, measured: u64) -> bool {
    used > measured + measured / GROWTH_SHARE
}

impl State {
    /// Records peaks as of now, as every tick does.
    pub fn record_peaks(&mut self, analysis: &mut Analysis) {
        self.record_space_peaks(analysis);
        self.record_core_peaks(analysis);
    }

    fn record_space_peaks(&mut self, analysis: &mut Analysis) {
        let found = analysis.of(self).new_peaks();
        for (chip, space, peak) in found {
            if let Some(state) = self.chips.get_mut(&chip).filter(|it| it.has_room(space, peak.bytes)) {
                state.peaks.insert(space, peak);
            }
        }
    }

    /// Measures all pools of a space together, since one of them is about to shrink.
    #[cold]
    #[inline(never)]
    pub(super) fn record_peak_before_free(&mut self, analysis: &mut Analysis, id: PoolId) {
        let pool = self.ledger.pool_mut(id);
        pool.measured = pool.used();
        let key = pool.key;
        let Some(process) = self.processes.get(&key.process).filter(|_| !key.space.is_program()) else {
            return;
        };
        let alone = process.pools.keys().filter(|(_, space, _)| *space == key.space).count() == 1;
        if alone && self.processes.len() == 1 {
            return;
        }
        let chips = chips_in(&process.allocators, &key.scope);
        let found = analysis.of(self).shared_peaks(key.space, chips);
        for (chip, peak) in found {
            if let Some(state) = self.chips.get_mut(&chip).filter(|it| it.has_room(key.space, peak.bytes)) {
                state.peaks.insert(key.space, peak);
            }
        }
    }

    /// Keeps a pool's peak for its chips when the pool is closed.
    pub(super) fn keep_peak(&mut self, process: &ProcessState, scope: Scope, id: PoolId) {
        let pool = self.ledger.pool(id);
        if pool.key.space.is_program() {
            return;
        }
        for chip in chips_in(&process.allocators, &scope) {
            let has_room = |it: &&mut ChipState| it.has_room(pool.key.space, pool.peak);
            let Some(state) = self.chips.get_mut(chip).filter(has_room) else { continue };
            let known = state.peaks.entry(pool.key.space).or_default();
            if pool.peak > known.bytes {
                let name = process.info.name.clone();
                let holder = Holder { pid: visible(pool.key.process), name, bytes: pool.peak };
                *known = SpacePeak { bytes: pool.peak, at: pool.peak_at, holders: Arc::new([holder]) };
            }
        }
    }

    fn raise_core_peaks(&mut self, chips: &[ChipId], found: &[(CoreSet, CoreUse)]) {
        for chip in chips {
            let Some(state) = self.chips.get_mut(chip).filter(|it| it.chip.core_layout.is_some()) else {
                continue;
            };
            for (cores, new) in found {
                state.core_peaks.raise(*cores, new);
            }
        }
    }

    /// Records what was on cores when a tenant's programs were dispatched, for dispatches of which that is pending.
    pub(super) fn record_dispatches(&mut self, analysis: &mut Analysis, tenant: Tenant) {
        let Some(process) = self.processes.get_mut(&tenant.process) else { return };
        let mut pending = Vec::new();
        for (&(_, program), state) in process.programs_in_mut(tenant.scope) {
            if let Some((buffers, at)) = state.pending_peak.take() {
                state.recorded_peak = state.recorded_peak.max(Some(buffers));
                pending.push((program, buffers, at));
            }
        }
        if pending.is_empty() {
            return;
        }
        let chips = chips_in(&process.allocators, &tenant.scope).to_vec();
        for (program, buffers, at) in pending {
            let mut figures = analysis.of(self);
            let memory = figures.program_memory(tenant);
            let found = figures.core_uses(tenant, program, memory.of(program), buffers, at);
            self.raise_core_peaks(&chips, &found);
        }
    }

    /// Records what was on cores when a program was dispatched that ends now, with the memory it had.
    pub(super) fn record_last_dispatch(
        &mut self,
        analysis: &mut Analysis,
        tenant: Tenant,
        program: u32,
        parts: &[Part],
    ) {
        let Some(process) = self.processes.get(&tenant.process) else { return };
        let state = process.programs.get(&(tenant.scope, program));
        let Some((buffers, at)) = state.and_then(|it| it.pending_peak) else { return };
        let chips = chips_in(&process.allocators, &tenant.scope).to_vec();
        let found = analysis.of(self).core_uses(tenant, program, parts, buffers, at);
        self.raise_core_peaks(&chips, &found);
    }

    /// Records what is on every core now.
    fn record_core_peaks(&mut self, analysis: &mut Analysis) {
        let plan = analysis.of(self).plan();
        let mut tenants: Vec<Tenant> = plan.groups.iter().flat_map(|group| &group.tenants).copied().collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            self.record_dispatches(analysis, tenant);
        }
        for (number, group) in plan.groups.iter().enumerate() {
            let found = analysis.of(self).current_core_uses(number, group);
            self.raise_core_peaks(&group.chips, &found);
        }
    }
}
