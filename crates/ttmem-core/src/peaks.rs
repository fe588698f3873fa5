//! The most that was in use: of each space of a chip, and on each of its cores.
//!
//! A chip's use is looked at with every tick. In between, the highest use of each single pool of buffers is known exactly; and
//! where several hold the same space, all are looked at together when one of them gives something back after it had grown by
//! more than a few percent. What programs keep is looked at with ticks only.
//!
//! On a core, what counts is what lies there together: what a program keeps, as its records were at the next tick or at its
//! end, with all buffers that were there at the moment of its dispatch.

use crate::footprint::{self, CoreSet};
use crate::ledger::PoolId;
use crate::programs::{Part, Resident, Tenant};
use crate::ranges::{self, Range};
use crate::snapshot::{CorePeak, Holder, Peak, Usage};
use crate::state::{State, chips_in};
use crate::view::{Cells, Clock, visible};
use crate::words::{Basis, ChipId, Mono, ProcessId, Space};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Holders told of one by one.
const MOST_HOLDERS: usize = 16;
/// Between two ticks, what several hold together is looked at when one of them grew by this share of it...
const STEP: u64 = 32;
/// ...unless what they hold may overlap, and there is too much of it to find out.
const MOST_COMPARED: u64 = 4096;
/// Buffers on single cores that are added up core by core.
const MOST_ON_CORES: u64 = 4096;

/// The highest use of one space of a chip.
#[derive(Clone, Debug, Default)]
pub(crate) struct High {
    pub(crate) bytes: u64,
    at: Mono,
    holders: Vec<Holder>,
}

impl High {
    pub(crate) fn describe(&self, space: Space, clock: Clock) -> Peak {
        Peak { space, bytes: self.bytes, at: clock.wall(self.at), holders: self.holders.clone() }
    }
}

/// The most on a chip's cores; cores of which the same is to be said are together.
#[derive(Debug, Default)]
pub(crate) struct CorePeaks(Vec<(CoreSet, Most)>);

#[derive(Clone, Debug)]
struct Most {
    bytes: u64,
    buffers: u64,
    at: Mono,
    program: Option<(Option<u32>, u32, Option<Arc<str>>)>,
}

impl CorePeaks {
    /// What is known of one core.
    pub(crate) fn of(&self, core: usize, clock: Clock) -> Option<CorePeak> {
        let (_, most) = self.0.iter().find(|(cores, _)| cores.has(core))?;
        let program = most.program.as_ref();
        Some(CorePeak {
            bytes: most.bytes,
            buffer_bytes: most.buffers,
            at: clock.wall(most.at),
            pid: program.and_then(|it| it.0),
            program: program.map(|it| it.1),
            program_name: program.and_then(|it| it.2.as_deref().map(str::to_owned)),
        })
    }

    fn raise(&mut self, cores: CoreSet, most: &Most) {
        let higher = self.0.iter().filter(|(_, known)| known.bytes >= most.bytes);
        let cores = higher.fold(cores, |left, (known, _)| left.without(*known));
        if cores.is_empty() || most.bytes == 0 {
            return;
        }
        for (known, _) in &mut self.0 {
            *known = known.without(cores);
        }
        self.0.retain(|(known, _)| !known.is_empty());
        self.0.push((cores, most.clone()));
    }
}

/// What a program keeps on its cores: on each of the first cores so much, and so on.
fn profile(cores: CoreSet, parts: &[Part]) -> Vec<(CoreSet, u64)> {
    let placed = || parts.iter().filter(|part| part.space != Space::Kernel && !part.view);
    let all = placed().fold(cores, |all, part| all.with(part.cores));
    let groups = footprint::alike(all, placed().map(|part| part.cores));
    let kept = |cores: CoreSet| {
        let here = placed().filter(|part| !part.cores.within(cores).is_empty());
        ranges::covered(&ranges::union(here.map(|part| part.range).collect::<Vec<Range>>()))
    };
    groups.into_iter().map(|cores| (cores, kept(cores))).collect()
}

impl State {
    /// Notes what is higher than ever, of every space of every chip.
    pub(crate) fn note_highs(&mut self, cells: &Cells, usage: &BTreeMap<ChipId, Usage>) {
        let mut found = Vec::new();
        for (&(chip, space), pools) in cells {
            let used = usage.get(&chip).and_then(|usage| usage.used(space)).map_or(0, |it| it.0);
            found.extend(self.high_now(chip, space, pools, used).map(|high| (chip, space, high)));
        }
        for (chip, space, high) in found {
            if let Some(state) = self.chips.get_mut(&chip) {
                state.peaks.insert(space, high);
            }
        }
    }

    /// What the highest use is, if it is higher than was noted.
    pub(crate) fn high_now(&self, chip: ChipId, space: Space, pools: &[PoolId], used: u64) -> Option<High> {
        let known = self.chips.get(&chip)?.peaks.get(&space).map_or(0, |high| high.bytes);
        // Of programs' pools only a sum is known, and they lie over each other.
        let single = pools.iter().filter(|_| !space.is_program()).map(|&pool| self.ledger.pool(pool));
        let highest = single.max_by_key(|pool| pool.peak);
        let most = highest.map_or(0, |pool| pool.peak);
        if used.max(most) <= known {
            return None;
        }
        // If it is as high just now, all who hold it are known.
        if used >= most {
            let holders = self.holders(chip, space, pools);
            // So high it has been since something last changed.
            let changed = pools.iter().map(|&pool| self.ledger.pool(pool).changed_at).max();
            return Some(High { bytes: used, at: changed.unwrap_or(self.now), holders });
        }
        let pool = highest?;
        let holders = vec![self.holder(pool.key.process, pool.peak)];
        Some(High { bytes: pool.peak, at: pool.peak_at, holders })
    }

    fn holders(&self, chip: ChipId, space: Space, pools: &[PoolId]) -> Vec<Holder> {
        let mut by_process: BTreeMap<ProcessId, Vec<PoolId>> = BTreeMap::new();
        for &pool in pools {
            by_process.entry(self.ledger.pool(pool).key.process).or_default().push(pool);
        }
        let residents = if space.is_program() { self.residents(chip) } else { Arc::default() };
        let held = |pools: &[PoolId]| {
            if space.is_program() {
                self.program_usage(space, &residents, pools).used_bytes()
            } else {
                self.used_by(pools)
            }
        };
        let held = by_process.iter().map(|(&id, pools)| (Reverse(held(pools)), id));
        let mut held: Vec<(Reverse<u64>, ProcessId)> = held.filter(|(bytes, _)| bytes.0 > 0).collect();
        held.sort_unstable();
        held.into_iter().take(MOST_HOLDERS).map(|(bytes, id)| self.holder(id, bytes.0)).collect()
    }

    fn used_by(&self, pools: &[PoolId]) -> u64 {
        pools.iter().map(|&pool| self.ledger.pool(pool).used()).fold(0, u64::saturating_add)
    }

    fn holder(&self, id: ProcessId, bytes: u64) -> Holder {
        let name = self.processes.get(&id).and_then(|process| process.info.name.clone());
        Holder { pid: visible(id), name, bytes }
    }

    /// A pool is about to shrink: if others hold the same space, this may have been the most of all.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_high_of(&mut self, id: PoolId) {
        let pool = self.ledger.pool_mut(id);
        pool.looked_at = pool.used();
        let key = pool.key;
        let Some(process) = self.processes.get(&key.process).filter(|_| !key.space.is_program()) else {
            return;
        };
        let chips = chips_in(&process.allocators, &key.scope).to_vec();
        let alone = process.pools.keys().filter(|(_, space, _)| *space == key.space).count() == 1;
        if alone && self.processes.len() == 1 {
            return;
        }
        for chip in chips {
            let pools = self.pools_on(chip, key.space);
            // Of a single pool the highest use is known anyway.
            if pools.len() < 2 {
                continue;
            }
            let count: u64 = pools.iter().map(|&pool| self.ledger.pool(pool).totals.count).sum();
            let mut used = self.used_by(&pools);
            let known =
                self.chips.get(&chip).and_then(|it| it.peaks.get(&key.space)).map_or(0, |it| it.bytes);
            if used <= known || count > MOST_COMPARED {
                continue;
            }
            used = self.buffer_usage(key.space, &pools).used_bytes;
            if used > known {
                let high = High { bytes: used, at: self.now, holders: self.holders(chip, key.space, &pools) };
                if let Some(state) = self.chips.get_mut(&chip) {
                    state.peaks.insert(key.space, high);
                }
            }
        }
    }

    /// Of every process the pools of a chip's space that are shown.
    fn pools_on(&self, chip: ChipId, space: Space) -> Vec<PoolId> {
        let mut all = Vec::new();
        for process in self.processes.values() {
            let here = || {
                let of = process.pools.iter().filter(move |((_, of, _), _)| *of == space);
                of.filter(move |((scope, ..), _)| chips_in(&process.allocators, scope).contains(&chip))
            };
            let best = here().map(|((.., basis), _)| *basis).min();
            all.extend(here().filter(|((.., basis), _)| Some(*basis) == best).map(|(_, &pool)| pool));
        }
        all
    }

    /// Keeps a pool's highest use for its chips when the pool goes.
    pub(crate) fn keep_high(&mut self, chips: &[ChipId], id: PoolId, holder: &Holder) {
        let pool = self.ledger.pool(id);
        if pool.key.space.is_program() {
            return;
        }
        for chip in chips {
            let Some(state) = self.chips.get_mut(chip) else { continue };
            let known = state.peaks.entry(pool.key.space).or_default();
            if pool.peak > known.bytes {
                let holders = vec![Holder { bytes: pool.peak, ..holder.clone() }];
                *known = High { bytes: pool.peak, at: pool.peak_at, holders };
            }
        }
    }

    /// Who is where a tenant is: on the first of its chips, as on all of them. A program's own scope may hand out nothing, and
    /// its buffers are its mesh's.
    fn beside<T>(&self, tenant: Tenant, all: impl FnOnce(&[Tenant]) -> T) -> T {
        let process = self.processes.get(&tenant.process);
        let chip = process.and_then(|it| chips_in(&it.allocators, &tenant.scope).first());
        let tenants = self.tenants();
        all(chip.and_then(|chip| tenants.get(chip)).map(Vec::as_slice).unwrap_or_default())
    }

    /// What buffers take on every core where a tenant is, wherever they lie.
    pub(crate) fn bytes_beside(&self, tenant: Tenant) -> u64 {
        self.beside(tenant, |all| all.iter().map(|&it| self.lockstep_bytes(it)).fold(0, u64::saturating_add))
    }

    /// What a tenant's buffers take on every core, wherever they lie.
    fn lockstep_bytes(&self, tenant: Tenant) -> u64 {
        let Some(process) = self.processes.get(&tenant.process) else { return 0 };
        let on_each = |space: Space| {
            let banks = process.banks(tenant.scope, space).map(|it| u64::from(it.banks))?;
            let pool = process.pools.get(&(tenant.scope, space, Basis::Events))?;
            self.ledger.pool(*pool).totals.allocated.checked_div(banks)
        };
        let [large, small] = [Space::L1, Space::L1Small].map(|space| on_each(space).unwrap_or(0));
        large.saturating_add(small)
    }

    /// What a tenant's buffers that lie on single cores take on each.
    fn on_cores(&self, tenant: Tenant) -> Vec<(Range, CoreSet)> {
        let Some(process) = self.processes.get(&tenant.process) else { return Vec::new() };
        let pools = self.pools_of(tenant, &[Space::L1Core]);
        let few = pools.filter(|(_, pool)| self.ledger.pool(*pool).totals.count <= MOST_ON_CORES);
        let entries = few.flat_map(|(_, pool)| self.ledger.entries(pool));
        let own = entries.map(|(_, entry)| entry).filter(|entry| !entry.layout.is_anothers());
        own.filter_map(|entry| {
            let cores = process.cores.get(&entry.cores)?;
            Some((Range::new(entry.id, entry.bytes_per_bank), *cores))
        })
        .collect()
    }

    /// Notes what lay on the cores of chips when these programs were dispatched with so many bytes of buffers there.
    fn note_core_highs(&mut self, chips: &[ChipId], tenant: Option<Tenant>, found: &[(CoreSet, Most)]) {
        let on_cores: Vec<_> = tenant
            .map(|tenant| self.beside(tenant, |all| all.iter().flat_map(|&it| self.on_cores(it)).collect()))
            .unwrap_or_default();
        for chip in chips {
            let Some(state) = self.chips.get_mut(chip) else { continue };
            if state.chip.core_layout.is_none() {
                continue;
            }
            for (cores, most) in found {
                for cores in footprint::alike(*cores, on_cores.iter().map(|(_, cores)| *cores)) {
                    let here = on_cores.iter().filter(|(_, on)| !on.within(cores).is_empty());
                    let more = here.map(|(range, _)| range.len()).fold(0, u64::saturating_add);
                    let (bytes, buffers) =
                        (most.bytes.saturating_add(more), most.buffers.saturating_add(more));
                    state.core_peaks.raise(cores, &Most { bytes, buffers, ..most.clone() });
                }
            }
        }
    }

    fn most_of(
        &self,
        tenant: Tenant,
        program: u32,
        parts: &[Part],
        buffers: u64,
        at: Mono,
    ) -> Vec<(CoreSet, Most)> {
        let Some(process) = self.processes.get(&tenant.process) else { return Vec::new() };
        let name = process.program_name(tenant.scope, program).map(|name| Arc::from(name.as_str()));
        let who = Some((visible(tenant.process), program, name));
        let all = process.cores_of_program(tenant.scope, program, parts);
        let groups = profile(all, parts).into_iter();
        groups
            .map(|(cores, kept)| {
                let bytes = kept.saturating_add(buffers);
                (cores, Most { bytes, buffers, at, program: who.clone() })
            })
            .collect()
    }

    /// Notes what lay on cores when a tenant's programs were dispatched, as far as that was not done yet.
    pub(crate) fn settle_programs(&mut self, tenant: Tenant) {
        let Some(process) = self.processes.get_mut(&tenant.process) else { return };
        let mut open = Vec::new();
        for (&(_, program), it) in process.programs_in_mut(tenant.scope) {
            if let Some((buffers, at)) = it.unsettled.take() {
                it.settled = it.settled.max(Some(buffers));
                open.push((program, buffers, at));
            }
        }
        if open.is_empty() {
            return;
        }
        let chips = chips_in(&process.allocators, &tenant.scope).to_vec();
        let kept = self.kept(tenant);
        for (program, buffers, at) in open {
            let found = self.most_of(tenant, program, kept.of(program), buffers, at);
            self.note_core_highs(&chips, Some(tenant), &found);
        }
    }

    /// The same of one program that ends, with what it kept.
    pub(crate) fn settle_ended(&mut self, tenant: Tenant, program: u32, parts: &[Part]) {
        let Some(process) = self.processes.get(&tenant.process) else { return };
        let Some((buffers, at)) = process.programs.get(&(tenant.scope, program)).and_then(|it| it.unsettled)
        else {
            return;
        };
        let chips = chips_in(&process.allocators, &tenant.scope).to_vec();
        let found = self.most_of(tenant, program, parts, buffers, at);
        self.note_core_highs(&chips, Some(tenant), &found);
    }

    /// Notes what lies on every core now.
    pub(crate) fn note_cores(&mut self) {
        let tenants = self.tenants();
        let mut settled: Vec<Tenant> = tenants.values().flatten().copied().collect();
        settled.sort_unstable();
        settled.dedup();
        for tenant in settled {
            self.settle_programs(tenant);
        }
        for (&chip, tenants) in tenants.iter() {
            let Some(layout) = self.chips.get(&chip).and_then(|state| state.chip.core_layout) else {
                continue;
            };
            let buffers =
                tenants.iter().map(|&tenant| self.lockstep_bytes(tenant)).fold(0, u64::saturating_add);
            let residents = self.residents(chip);
            for it in residents.iter() {
                let &Resident { tenant, program, cores } = it;
                let kept = self.kept(tenant);
                let mut found = self.most_of(tenant, program, kept.of(program), buffers, self.now);
                for (on, _) in &mut found {
                    *on = on.within(cores);
                }
                self.note_core_highs(&[chip], Some(tenant), &found);
            }
            let idle = residents.iter().fold(layout.grid(), |left, it| left.without(it.cores));
            let most = Most { bytes: buffers, buffers, at: self.now, program: None };
            self.note_core_highs(&[chip], tenants.first().copied(), &[(idle, most)]);
        }
    }
}

/// Whether a pool that is about to shrink may have been part of a new highest use.
pub(crate) fn has_grown(used: u64, looked_at: u64) -> bool {
    used > looked_at + looked_at / STEP
}
