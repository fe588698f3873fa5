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
use crate::snapshot::{KernelClassUsage, ProgramUsage};
use crate::words::{Basis, KernelClass, Space};
use std::sync::Arc;

/// A program that is resident somewhere on a chip, and on which cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) tenant: Tenant,
    pub(crate) program: u32,
    pub(crate) cores: CoreSet,
}

/// Registered bytes of a space.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisteredBytes {
    pub(super) all: u64,
    /// Those whose cores are unknown, counted on one core.
    per_core: u64,
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
        let registered = self.registered_bytes(space, pools);
        let by_class = if space == Space::Kernel {
            self.kernels_by_class(pools, known.then_some(&resident[..]))
        } else {
            Vec::new()
        };
        ProgramUsage {
            registered_bytes: registered.all,
            per_core_bytes: registered.per_core,
            resident_bytes: known.then_some(resident_bytes),
            by_class,
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

    /// Kernels of each class that has any. What has no record counts as kernels of an unknown class, so that the classes
    /// sum to all kernels.
    fn kernels_by_class(&self, pools: &[PoolId], resident: Option<&[(u32, Part)]>) -> Vec<KernelClassUsage> {
        let mut registered = [0u64; KernelClass::ALL.len()];
        for &pool in pools {
            let pool = self.state.ledger.pool(pool);
            let listed: u64 = pool.totals.by_class.iter().sum();
            let (by_class, unlisted) = match pool.level {
                Some(level) => (Default::default(), level),
                None => (pool.totals.by_class, pool.totals.allocated - listed),
            };
            for (sum, bytes) in registered.iter_mut().zip(by_class) {
                *sum = sum.saturating_add(bytes);
            }
            let unknown = &mut registered[KernelClass::Unknown as usize];
            *unknown = unknown.saturating_add(unlisted);
        }
        let resident_in = |class: KernelClass| {
            let parts = resident?.iter().map(|(_, part)| part).filter(|part| part.class == class);
            let bytes = parts.map(|part| part.range.len().saturating_mul(part.cores.count().into()));
            Some(bytes.fold(0, u64::saturating_add))
        };
        let of = |class: KernelClass| KernelClassUsage {
            class,
            registered_bytes: registered[class as usize],
            resident_bytes: resident_in(class),
        };
        KernelClass::ALL.into_iter().map(of).filter(|it| it.registered_bytes > 0).collect()
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

    pub(super) fn registered_bytes(&mut self, space: Space, pools: &[PoolId]) -> RegisteredBytes {
        let state = self.state;
        if space == Space::Kernel {
            let bytes = |&pool: &PoolId| {
                let pool = state.ledger.pool(pool);
                pool.level.unwrap_or(pool.totals.allocated)
            };
            let all = pools.iter().map(bytes).fold(0, u64::saturating_add);
            return RegisteredBytes { all, per_core: 0 };
        }
        let version = state.version_of(pools);
        if let Some(&(_, bytes)) = self.cache.registered.get(pools).filter(|(of, _)| *of == version) {
            return bytes;
        }
        // Where only a sum is known, it counts in addition to all parts.
        let levels = pools.iter().map(|&pool| state.ledger.pool(pool).level.unwrap_or(0));
        let levels = levels.fold(0, u64::saturating_add);
        let parts = self.parts_in(space, pools);
        let on_one_core = borrowed(&parts).filter(|(_, part)| part.unknown_cores == 1);
        let bytes = RegisteredBytes {
            all: covered_bytes(borrowed(&parts)).saturating_add(levels),
            per_core: covered_bytes(on_one_core),
        };
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
