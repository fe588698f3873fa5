//! Which programs are resident, and how much memory programs use.
//!
//! On each core of a chip the resident program is the one that was dispatched last, of all programs of all processes that
//! run on that core. So it follows from what is live and when it was dispatched, and a reader that missed dispatches comes to
//! the same result. A program without memory replaces others all the same.

use super::plan::ChipGroup;
use super::programs::{Part, covered_bytes, part};
use super::{CACHED_SETS, Figures, Tenant};
use crate::core_set::CoreSet;
use crate::ledger::PoolId;
use crate::snapshot::ProgramUsage;
use crate::words::{Basis, Space};
use std::sync::Arc;

/// A program that is resident somewhere on a chip, and on which cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) tenant: Tenant,
    pub(crate) program: u32,
    pub(crate) cores: CoreSet,
}

fn borrowed(parts: &[(u32, Part)]) -> impl Iterator<Item = (u32, &Part)> {
    parts.iter().map(|(owner, part)| (*owner, part))
}

impl Figures<'_> {
    /// The programs that are resident on the chips of a group; no two of them on one core.
    pub(crate) fn residents_of(&mut self, number: usize, group: &ChipGroup) -> Arc<[Resident]> {
        let version = self.version_of_programs(group);
        if let Some((_, known)) =
            self.cache.groups[number].residents.as_ref().filter(|(of, _)| *of == version)
        {
            return Arc::clone(known);
        }
        let found = self.find_residents(&group.tenants);
        self.cache.groups[number].residents = Some((version, Arc::clone(&found)));
        found
    }

    fn find_residents(&mut self, tenants: &[Tenant]) -> Arc<[Resident]> {
        let mut dispatched = Vec::new();
        for &tenant in tenants {
            let Some(process) = self.state.processes.get(&tenant.process) else { continue };
            let memory = self.program_memory(tenant);
            for (&(_, program), state) in process.programs_in(tenant.scope) {
                let Some(last) = state.last else { continue };
                let cores = process.core_set(state.cores).unwrap_or_else(|| memory.cores_of(program));
                dispatched.push((last, Resident { tenant, program, cores }));
            }
        }
        dispatched.sort_unstable_by_key(|&(last, _)| std::cmp::Reverse(last));
        let mut used = CoreSet::default();
        let mut found = Vec::new();
        for (_, program) in dispatched {
            let cores = program.cores.without(used);
            if !cores.is_empty() {
                found.push(Resident { cores, ..program });
                used = used.with(cores);
            }
        }
        found.into()
    }

    pub(super) fn program_usage(
        &mut self,
        space: Space,
        residents: &[Resident],
        pools: &[PoolId],
    ) -> ProgramUsage {
        let state = self.state;
        let all = || pools.iter().map(|&pool| state.ledger.pool(pool));
        let basis = all().map(|pool| pool.key.basis).max().unwrap_or(Basis::Reported);
        // Old clients do not report how large a kernel is on each core.
        let sized = space != Space::Kernel || all().all(|pool| pool.totals.uncharged == 0);
        let unfollowed = all().map(|pool| pool.totals.unfollowed).sum::<u64>();
        // Without a single program whose dispatches are reported, nothing is known to be resident.
        let followed = unfollowed == 0 || all().any(|pool| pool.totals.own_count() > pool.totals.unfollowed);
        let known = basis == Basis::Exact && sized && followed;
        let resident = if known { self.resident_parts(space, residents, pools) } else { Vec::new() };
        let resident_bytes = covered_bytes(borrowed(&resident));
        // Kernels that were loaded may have been overwritten since.
        let may_be_resident = known && unfollowed > 0 && space != Space::Kernel;
        ProgramUsage {
            registered_bytes: self.registered_bytes(space, pools),
            resident_bytes: known.then_some(resident_bytes),
            residency_unknown_bytes: if may_be_resident {
                let all = self.parts_in(space, pools);
                let others =
                    all.iter().filter(|(_, part)| part.unfollowed).map(|(owner, part)| (*owner, part));
                covered_bytes(borrowed(&resident).chain(others)).saturating_sub(resident_bytes)
            } else {
                0
            },
            estimated_bytes: all().map(|pool| pool.totals.estimated).fold(0, u64::saturating_add),
            count: state.are_listed(pools).then(|| all().map(|pool| pool.totals.own_count()).sum()),
            basis,
        }
    }

    fn resident_parts(&mut self, space: Space, residents: &[Resident], pools: &[PoolId]) -> Vec<(u32, Part)> {
        let state = self.state;
        let mut parts = Vec::new();
        for &Resident { tenant, program, cores } in residents {
            let has = |&pool: &PoolId| {
                let key = state.ledger.pool(pool).key;
                (key.process, key.scope) == (tenant.process, tenant.scope)
            };
            if pools.iter().any(has) {
                let memory = self.program_memory(tenant);
                let own = memory.of(program).iter().filter(|part| part.space == space && !part.view);
                let own = own.filter(|part| !part.unfollowed);
                parts.extend(own.map(|part| (0, Part { cores: part.cores.within(cores), ..*part })));
            }
        }
        parts
    }

    fn registered_bytes(&mut self, space: Space, pools: &[PoolId]) -> u64 {
        let state = self.state;
        if space == Space::Kernel {
            let bytes = |&pool: &PoolId| {
                let pool = state.ledger.pool(pool);
                pool.level.unwrap_or(pool.totals.allocated)
            };
            return pools.iter().map(bytes).fold(0, u64::saturating_add);
        }
        let version = state.version_of(pools);
        if let Some(&(_, bytes)) = self.cache.registered.get(pools).filter(|(of, _)| *of == version) {
            return bytes;
        }
        // Where only a sum is known, it counts in addition to all parts.
        let levels = pools.iter().map(|&pool| state.ledger.pool(pool).level.unwrap_or(0));
        let levels = levels.fold(0, u64::saturating_add);
        let bytes = covered_bytes(borrowed(&self.parts_in(space, pools))).saturating_add(levels);
        let cached = &mut self.cache.registered;
        if cached.len() >= CACHED_SETS {
            cached.clear();
        }
        cached.insert(pools.to_vec(), (version, bytes));
        bytes
    }

    /// The parts in pools of one space, without views, each with the number of its pool.
    fn parts_in(&self, space: Space, pools: &[PoolId]) -> Vec<(u32, Part)> {
        let mut parts = Vec::new();
        for &pool in pools {
            let Some(process) = self.state.processes.get(&self.state.owner(pool)) else { continue };
            let all = self.state.ledger.entries(pool).map(|(_, entry)| part(process, space, entry));
            parts.extend(all.filter(|part| !part.view).map(|part| (pool.number() as u32, part)));
        }
        parts
    }
}
