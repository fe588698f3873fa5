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
use crate::plan::{Kind, Plan};
use crate::programs::{Part, Resident, Tenant};
use crate::ranges::{self, Range};
use crate::snapshot::{CorePeak, Holder, Peak};
use crate::state::{State, chips_in};
use crate::usage::SpaceUsage;
use crate::view::{Clock, visible};
use crate::words::{ChipId, Mono, ProcessId, Space};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use ttmem_types::program_number;

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
    holders: Arc<[Holder]>,
}

impl High {
    pub(crate) fn describe(&self, space: Space, clock: Clock) -> Peak {
        Peak { space, bytes: self.bytes, at: clock.wall(self.at), holders: self.holders.to_vec() }
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
            program: program.map(|it| program_number(it.1)),
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
    let placed = || parts.iter().filter(|part| part.is_placed());
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
    pub(crate) fn note_highs(&mut self) {
        let plan = self.plan();
        for (number, kind) in plan.kinds.iter().enumerate() {
            let usage = self.usage_of_kind(number, kind);
            for (at, space) in usage.spaces.iter().enumerate() {
                for &chip in &kind.chips {
                    if let Some(high) = self.high_now(chip, number, kind, at, space)
                        && let Some(state) = self.chips.get_mut(&chip)
                    {
                        state.peaks.insert(space.space, high);
                    }
                }
            }
        }
    }

    /// What the highest use of a space is, if it is higher than was noted. `at` is the space's place among the kind's cells.
    pub(crate) fn high_now(
        &self,
        chip: ChipId,
        number: usize,
        kind: &Kind,
        at: usize,
        now: &SpaceUsage,
    ) -> Option<High> {
        let known = self.chips.get(&chip)?.peaks.get(&now.space).map_or(0, |high| high.bytes);
        let highest = now.highest.map(|pool| self.ledger.pool(pool));
        let most = highest.map_or(0, |pool| pool.peak);
        if now.used.max(most) <= known {
            return None;
        }
        // If it is as high just now, all who hold it are known.
        if now.used >= most {
            let pools = &kind.cells.get(at)?.pools;
            let holders = now.holders.get_or_init(|| self.holders(number, kind, now.space, pools));
            // So high it has been since something last changed.
            let changed = pools.iter().map(|&pool| self.ledger.pool(pool).changed_at).max();
            let at = changed.unwrap_or(self.now);
            return Some(High { bytes: now.used, at, holders: Arc::clone(holders) });
        }
        let pool = highest?;
        let holders = Arc::new([self.holder(pool.key.process, pool.peak)]);
        Some(High { bytes: pool.peak, at: pool.peak_at, holders })
    }

    fn holders(&self, number: usize, kind: &Kind, space: Space, pools: &[PoolId]) -> Arc<[Holder]> {
        let mut by_process: BTreeMap<ProcessId, Vec<PoolId>> = BTreeMap::new();
        for &pool in pools {
            by_process.entry(self.owner(pool)).or_default().push(pool);
        }
        let residents =
            if space.is_program() { self.residents_of_kind(number, kind) } else { Arc::default() };
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
        let plan = self.plan();
        let kinds: BTreeSet<usize> = chips.iter().filter_map(|&chip| plan.kind_of(chip)).collect();
        for number in kinds {
            let kind = &plan.kinds[number];
            let pools = kind.pools(key.space);
            let count: u64 = pools.iter().map(|&pool| self.ledger.pool(pool).totals.count).sum();
            // Of a single pool the highest use is known anyway.
            if pools.len() < 2 || count > MOST_COMPARED {
                continue;
            }
            let sum = self.used_by(pools);
            let mut found: Option<High> = None;
            for &chip in kind.chips.iter().filter(|chip| chips.contains(chip)) {
                let Some(state) = self.chips.get(&chip) else { continue };
                let known = state.peaks.get(&key.space).map_or(0, |it| it.bytes);
                if sum <= known {
                    continue;
                }
                let high = found.get_or_insert_with(|| High {
                    bytes: self.buffer_usage(key.space, pools).used_bytes,
                    at: self.now,
                    holders: self.holders(number, kind, key.space, pools),
                });
                if high.bytes > known {
                    let high = high.clone();
                    if let Some(state) = self.chips.get_mut(&chip) {
                        state.peaks.insert(key.space, high);
                    }
                }
            }
        }
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
                let holders = Arc::new([Holder { bytes: pool.peak, ..holder.clone() }]);
                *known = High { bytes: pool.peak, at: pool.peak_at, holders };
            }
        }
    }

    /// The kind of chips where a tenant is: that of the first of its chips, as of all of them. A program's own scope may hand
    /// out nothing, and its buffers are its mesh's.
    fn beside(&self, plan: &Plan, tenant: Tenant) -> Option<usize> {
        let process = self.processes.get(&tenant.process)?;
        plan.kind_of(*chips_in(&process.allocators, &tenant.scope).first()?)
    }

    /// What buffers take on every core where a tenant is, wherever they lie.
    pub(crate) fn bytes_beside(&self, tenant: Tenant) -> u64 {
        let plan = self.plan();
        self.beside(&plan, tenant).map_or(0, |number| self.lockstep_bytes(&plan.kinds[number]))
    }

    /// What buffers take on every core of a kind of chips, wherever they lie.
    fn lockstep_bytes(&self, kind: &Kind) -> u64 {
        let on_each = |&(pool, cores): &(PoolId, u64)| {
            self.ledger.pool(pool).totals.allocated.checked_div(cores).unwrap_or(0)
        };
        kind.lockstep.iter().map(on_each).fold(0, u64::saturating_add)
    }

    /// What buffers that lie on single cores take on each.
    fn on_cores(&self, kind: &Kind) -> Vec<(Range, CoreSet)> {
        let few = |pool: &&PoolId| self.ledger.pool(**pool).totals.count <= MOST_ON_CORES;
        let mut found = Vec::new();
        for &pool in kind.on_cores.iter().filter(few) {
            let Some(process) = self.processes.get(&self.owner(pool)) else { continue };
            let entries = self.ledger.entries(pool).map(|(_, entry)| entry);
            found.extend(entries.filter(|entry| !entry.layout.is_alias()).filter_map(|entry| {
                let cores = process.cores.get(&entry.cores)?;
                Some((Range::new(entry.id, entry.bytes_per_bank), *cores))
            }));
        }
        found
    }

    /// Notes what lay on the cores of chips when these programs were dispatched with so many bytes of buffers there.
    fn note_core_highs(&mut self, chips: &[ChipId], tenant: Tenant, found: &[(CoreSet, Most)]) {
        let plan = self.plan();
        let beside = self.beside(&plan, tenant).map(|number| &plan.kinds[number]);
        let found = self.with_on_cores(beside, found);
        self.raise(chips, &found);
    }

    /// Adds to what lies on cores the buffers that lie there only.
    fn with_on_cores(&self, kind: Option<&Kind>, found: &[(CoreSet, Most)]) -> Vec<(CoreSet, Most)> {
        let on_cores = kind.map(|kind| self.on_cores(kind)).unwrap_or_default();
        let mut all = Vec::new();
        for (cores, most) in found {
            for cores in footprint::alike(*cores, on_cores.iter().map(|(_, cores)| *cores)) {
                let here = on_cores.iter().filter(|(_, on)| !on.within(cores).is_empty());
                let more = here.map(|(range, _)| range.len()).fold(0, u64::saturating_add);
                let (bytes, buffers) = (most.bytes.saturating_add(more), most.buffers.saturating_add(more));
                all.push((cores, Most { bytes, buffers, ..most.clone() }));
            }
        }
        all
    }

    fn raise(&mut self, chips: &[ChipId], found: &[(CoreSet, Most)]) {
        for chip in chips {
            let Some(state) = self.chips.get_mut(chip).filter(|it| it.chip.core_layout.is_some()) else {
                continue;
            };
            for (cores, most) in found {
                state.core_peaks.raise(*cores, most);
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
            self.note_core_highs(&chips, tenant, &found);
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
        self.note_core_highs(&chips, tenant, &found);
    }

    /// Notes what lies on every core now.
    pub(crate) fn note_cores(&mut self) {
        let plan = self.plan();
        let mut settled: Vec<Tenant> = plan.kinds.iter().flat_map(|kind| &kind.tenants).copied().collect();
        settled.sort_unstable();
        settled.dedup();
        for tenant in settled {
            self.settle_programs(tenant);
        }
        for (number, kind) in plan.kinds.iter().enumerate() {
            let Some(layout) = kind.core_layout.filter(|_| !kind.tenants.is_empty()) else { continue };
            let buffers = self.lockstep_bytes(kind);
            let residents = self.residents_of_kind(number, kind);
            let mut all = Vec::new();
            for it in residents.iter() {
                let &Resident { tenant, program, cores } = it;
                let kept = self.kept(tenant);
                let mut found = self.most_of(tenant, program, kept.of(program), buffers, self.now);
                for (on, _) in &mut found {
                    *on = on.within(cores);
                }
                let beside = self.beside(&plan, tenant).map(|number| &plan.kinds[number]);
                all.extend(self.with_on_cores(beside, &found));
            }
            let idle = residents.iter().fold(layout.grid(), |left, it| left.without(it.cores));
            let most = Most { bytes: buffers, buffers, at: self.now, program: None };
            let first = kind.tenants.first().and_then(|&tenant| self.beside(&plan, tenant));
            all.extend(self.with_on_cores(first.map(|number| &plan.kinds[number]), &[(idle, most)]));
            self.raise(&kind.chips, &all);
        }
    }
}

/// Whether a pool that is about to shrink may have been part of a new highest use.
pub(crate) fn has_grown(used: u64, looked_at: u64) -> bool {
    used > looked_at + looked_at / STEP
}
