//! What is higher now than any peak recorded so far.

use super::plan::{ChipGroup, Plan};
use super::program_usage::Resident;
use super::usage::SpaceUsage;
use super::{Figures, Part, Tenant, split_by_sets};
use crate::core_set::CoreSet;
use crate::ledger::PoolId;
use crate::ranges::{self, Range};
use crate::snapshot::Holder;
use crate::state::{CoreUse, SpacePeak, UsedBy, visible};
use crate::words::{ChipId, Mono, ProcessId, Space};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Holders listed one by one.
const MAX_HOLDERS: usize = 16;
/// Records of pools that are measured together between two ticks; they may overlap, and more take too long.
const MAX_COMPARED: u64 = 4096;
/// Buffers on single cores that are added up core by core.
const MAX_ON_CORES: u64 = 4096;

/// Bytes of a program on its cores: on each core of the first set so much, and so on.
fn bytes_by_cores(cores: CoreSet, parts: &[Part]) -> Vec<(CoreSet, u64)> {
    let placed = || parts.iter().filter(|part| part.is_placed());
    let all = placed().fold(cores, |all, part| all.with(part.cores));
    let groups = split_by_sets(all, placed().map(|part| part.cores));
    let bytes = |cores: CoreSet| {
        let here = placed().filter(|part| !part.cores.within(cores).is_empty());
        ranges::covered(&ranges::union(here.map(|part| part.range).collect::<Vec<Range>>()))
    };
    groups.into_iter().map(|cores| (cores, bytes(cores))).collect()
}

impl Figures<'_> {
    /// Every space of every chip whose use is higher than its recorded peak.
    pub(crate) fn new_peaks(&mut self) -> Vec<(ChipId, Space, SpacePeak)> {
        let plan = self.plan();
        let mut found = Vec::new();
        for (number, group) in plan.groups.iter().enumerate() {
            let usage = self.usage_of_group(number, group);
            for (at, space) in usage.spaces.iter().enumerate() {
                for &chip in &group.chips {
                    let peak = self.new_peak(chip, number, group, at, space);
                    found.extend(peak.map(|peak| (chip, space.space, peak)));
                }
            }
        }
        found
    }

    /// The peak of a space, if it is higher than the recorded one. `at` is the place of the space in the group.
    pub(super) fn new_peak(
        &mut self,
        chip: ChipId,
        number: usize,
        group: &ChipGroup,
        at: usize,
        now: &SpaceUsage,
    ) -> Option<SpacePeak> {
        let state = self.state;
        let known = state.chips.get(&chip)?.peaks.get(&now.space).map_or(0, |peak| peak.bytes);
        let highest = now.highest.map(|pool| state.ledger.pool(pool));
        let most = highest.map_or(0, |pool| pool.peak);
        if now.used.max(most) <= known {
            return None;
        }
        // If use is as high now, all holders are known.
        if now.used >= most {
            let pools = &group.spaces.get(at)?.pools;
            let holders = now.holders.get_or_init(|| self.holders(number, group, now.space, pools));
            // Use has been as high since the last change.
            let changed = pools.iter().map(|&pool| state.ledger.pool(pool).changed_at).max();
            let at = changed.unwrap_or(state.now);
            return Some(SpacePeak { bytes: now.used, at, holders: Arc::clone(holders) });
        }
        let pool = highest?;
        let holders = Arc::new([self.holder(pool.key.process, pool.peak)]);
        Some(SpacePeak { bytes: pool.peak, at: pool.peak_at, holders })
    }

    /// Of these chips those on which several pools of a space together are higher than the recorded peak.
    pub(crate) fn shared_peaks(&mut self, space: Space, chips: &[ChipId]) -> Vec<(ChipId, SpacePeak)> {
        let state = self.state;
        let plan = self.plan();
        let groups: BTreeSet<usize> = chips.iter().filter_map(|&chip| plan.group_of(chip)).collect();
        let mut found = Vec::new();
        for number in groups {
            let group = &plan.groups[number];
            let pools = group.pools(space);
            let count: u64 = pools.iter().map(|&pool| state.ledger.pool(pool).totals.count).sum();
            // The peak of a single pool is known anyway.
            if pools.len() < 2 || count > MAX_COMPARED {
                continue;
            }
            let sum = self.used_by(pools);
            let mut measured: Option<SpacePeak> = None;
            for &chip in group.chips.iter().filter(|chip| chips.contains(chip)) {
                let Some(peaks) = state.chips.get(&chip).map(|it| &it.peaks) else { continue };
                let known = peaks.get(&space).map_or(0, |peak| peak.bytes);
                if sum <= known {
                    continue;
                }
                let peak = measured.get_or_insert_with(|| SpacePeak {
                    bytes: self.buffer_usage(space, pools).used_bytes,
                    at: state.now,
                    holders: self.holders(number, group, space, pools),
                });
                if peak.bytes > known {
                    found.push((chip, peak.clone()));
                }
            }
        }
        found
    }

    fn holders(&mut self, number: usize, group: &ChipGroup, space: Space, pools: &[PoolId]) -> Arc<[Holder]> {
        let mut by_process: BTreeMap<ProcessId, Vec<PoolId>> = BTreeMap::new();
        for &pool in pools {
            by_process.entry(self.state.owner(pool)).or_default().push(pool);
        }
        let residents = if space.is_program() { self.residents_of(number, group) } else { Arc::default() };
        let mut held: Vec<(Reverse<u64>, ProcessId)> = Vec::new();
        for (id, pools) in by_process {
            let bytes = if space.is_program() {
                self.program_usage(space, &residents, &pools).used_bytes()
            } else {
                self.used_by(&pools)
            };
            held.extend((bytes > 0).then_some((Reverse(bytes), id)));
        }
        held.sort_unstable();
        held.into_iter().take(MAX_HOLDERS).map(|(bytes, id)| self.holder(id, bytes.0)).collect()
    }

    fn used_by(&self, pools: &[PoolId]) -> u64 {
        pools.iter().map(|&pool| self.state.ledger.pool(pool).used()).fold(0, u64::saturating_add)
    }

    fn holder(&self, id: ProcessId, bytes: u64) -> Holder {
        let name = self.state.processes.get(&id).and_then(|process| process.info.name.clone());
        Holder { pid: visible(id), name, bytes }
    }

    /// Bytes that buffers take on every core where a tenant is, in lock-step.
    pub(crate) fn lockstep_bytes_of(&mut self, tenant: Tenant) -> u64 {
        let plan = self.plan();
        plan.group_of_tenant(self.state, tenant).map_or(0, |group| self.lockstep_bytes(group))
    }

    /// Bytes that buffers take on every core of a group of chips, in lock-step.
    fn lockstep_bytes(&self, group: &ChipGroup) -> u64 {
        let on_each = |&(pool, cores): &(PoolId, u64)| {
            self.state.ledger.pool(pool).totals.allocated.checked_div(cores).unwrap_or(0)
        };
        group.lockstep.iter().map(on_each).fold(0, u64::saturating_add)
    }

    /// Buffers that are on single cores, and on which.
    fn buffers_on_cores(&self, group: &ChipGroup) -> Vec<(Range, CoreSet)> {
        let state = self.state;
        let few = |pool: &&PoolId| state.ledger.pool(**pool).totals.count <= MAX_ON_CORES;
        let mut found = Vec::new();
        for &pool in group.on_cores.iter().filter(few) {
            let Some(process) = state.processes.get(&state.owner(pool)) else { continue };
            let entries = state.ledger.entries(pool).map(|(_, entry)| entry);
            found.extend(entries.filter(|entry| !entry.layout.is_alias()).filter_map(|entry| {
                let cores = process.cores.get(&entry.cores)?;
                Some((Range::new(entry.id, entry.bytes_per_bank), *cores))
            }));
        }
        found
    }

    /// Adds the buffers that are on single cores.
    fn with_buffers_on_cores(
        &self,
        group: Option<&ChipGroup>,
        found: &[(CoreSet, CoreUse)],
    ) -> Vec<(CoreSet, CoreUse)> {
        let on_cores = group.map(|group| self.buffers_on_cores(group)).unwrap_or_default();
        let mut all = Vec::new();
        for (cores, of) in found {
            for cores in split_by_sets(*cores, on_cores.iter().map(|(_, cores)| *cores)) {
                let here = on_cores.iter().filter(|(_, on)| !on.within(cores).is_empty());
                let more = here.map(|(range, _)| range.len()).fold(0, u64::saturating_add);
                let (bytes, buffers) = (of.bytes.saturating_add(more), of.buffers.saturating_add(more));
                all.push((cores, CoreUse { bytes, buffers, ..of.clone() }));
            }
        }
        all
    }

    /// What is on the cores of a program together with so many bytes of buffers in lock-step.
    pub(crate) fn core_uses(
        &mut self,
        tenant: Tenant,
        program: u32,
        parts: &[Part],
        buffers: u64,
        at: Mono,
    ) -> Vec<(CoreSet, CoreUse)> {
        let plan = self.plan();
        let found = self.program_uses(tenant, program, parts, buffers, at);
        self.with_buffers_on_cores(plan.group_of_tenant(self.state, tenant), &found)
    }

    fn program_uses(
        &self,
        tenant: Tenant,
        program: u32,
        parts: &[Part],
        buffers: u64,
        at: Mono,
    ) -> Vec<(CoreSet, CoreUse)> {
        let Some(process) = self.state.processes.get(&tenant.process) else { return Vec::new() };
        let name = process.program_name(tenant.scope, program).map(|name| Arc::from(name.as_str()));
        let (pid, owner) = (visible(tenant.process), process.info.uid);
        let by = Some(UsedBy { pid, owner, key: program, name });
        let all = process.cores_of_program(tenant.scope, program, parts);
        let groups = bytes_by_cores(all, parts).into_iter();
        groups
            .map(|(cores, bytes)| {
                let bytes = bytes.saturating_add(buffers);
                (cores, CoreUse { bytes, buffers, at, program: by.clone() })
            })
            .collect()
    }

    /// What is on every core of a group of chips now.
    pub(crate) fn current_core_uses(&mut self, number: usize, group: &ChipGroup) -> Vec<(CoreSet, CoreUse)> {
        let Some(layout) = group.core_layout.filter(|_| !group.tenants.is_empty()) else {
            return Vec::new();
        };
        let (plan, now): (Arc<Plan>, Mono) = (self.plan(), self.state.now);
        let buffers = self.lockstep_bytes(group);
        let residents = self.residents_of(number, group);
        let mut all = Vec::new();
        for &Resident { tenant, program, cores } in residents.iter() {
            let memory = self.program_memory(tenant);
            let mut found = self.program_uses(tenant, program, memory.of(program), buffers, now);
            for (on, _) in &mut found {
                *on = on.within(cores);
            }
            all.extend(self.with_buffers_on_cores(plan.group_of_tenant(self.state, tenant), &found));
        }
        let idle = residents.iter().fold(layout.grid(), |left, it| left.without(it.cores));
        let of_buffers = CoreUse { bytes: buffers, buffers, at: now, program: None };
        let first = group.tenants.first().and_then(|&tenant| plan.group_of_tenant(self.state, tenant));
        all.extend(self.with_buffers_on_cores(first, &[(idle, of_buffers)]));
        all
    }
}
