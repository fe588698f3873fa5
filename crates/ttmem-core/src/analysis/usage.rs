//! How pools combine into figures.

use super::Figures;
use super::plan::{ChipGroup, IN_L1, SpacePools};
use super::program_usage::Resident;
use crate::ledger::{Pool, PoolId};
use crate::snapshot::{BufferUsage, Holder, ProgramUsage, Total, Usage};
use crate::state::State;
use crate::words::{Basis, ChipId, Space};
use std::sync::{Arc, OnceLock};

/// What the chips of one group hold.
#[derive(Debug)]
pub(crate) struct GroupUsage {
    /// Without totals, which depend on a chip's capacity.
    usage: Usage,
    /// By space, as the group's pools.
    pub(crate) spaces: Vec<SpaceUsage>,
}

#[derive(Debug)]
pub(crate) struct SpaceUsage {
    pub(crate) space: Space,
    pub(crate) used: u64,
    /// The pool of buffers with the highest peak.
    pub(super) highest: Option<PoolId>,
    /// Bytes that several allocators handed out; `None` if not all pools have addresses.
    pub(super) aliased: Option<u64>,
    /// Derived when first asked for.
    pub(super) holders: OnceLock<Arc<[Holder]>>,
}

/// Spaces that share a chip's DRAM.
const DRAM: [Space; 2] = [Space::Dram, Space::Trace];

impl GroupUsage {
    /// The totals of one chip: DRAM and L1.
    pub(crate) fn totals(&self) -> [u64; 2] {
        let total = |spaces: &[Space]| self.usage.total(spaces, None).map_or(0, |it| it.used_bytes);
        [total(&DRAM), total(&IN_L1)]
    }

    /// The usage of one chip of the group.
    pub(super) fn on(&self, state: &State, chip: ChipId) -> Usage {
        with_totals(state, chip, self.usage.clone())
    }
}

/// Adds the totals of spaces that share a chip's memory.
pub(super) fn with_totals(state: &State, chip: ChipId, mut usage: Usage) -> Usage {
    let capacity = state.chips.get(&chip).and_then(|state| state.chip.capacity);
    usage.dram_total = usage.total(&DRAM, capacity.map(|it| it.dram_bytes));
    usage.l1_total = usage.total(&IN_L1, capacity.map(|it| it.l1_bytes));
    usage
}

impl Figures<'_> {
    /// What one chip's spaces hold.
    pub(super) fn usage_of(&mut self, chip: ChipId) -> Usage {
        let plan = self.plan();
        match plan.group_of(chip) {
            Some(number) => self.usage_of_group(number, &plan.groups[number]).on(self.state, chip),
            None => Usage::default(),
        }
    }

    /// What the chips of a group hold.
    pub(crate) fn usage_of_group(&mut self, number: usize, group: &ChipGroup) -> Arc<GroupUsage> {
        let version = self.version_of_group(group);
        if let Some((_, known)) = self.cache.groups[number].usage.as_ref().filter(|(of, _)| *of == version) {
            return Arc::clone(known);
        }
        let residents = self.residents_of(number, group);
        let usage = self.usage_in(&group.spaces, &residents);
        let mut spaces = Vec::with_capacity(group.spaces.len());
        for SpacePools { space, pools } in &group.spaces {
            let exact = pools.iter().all(|&pool| self.state.ledger.pool(pool).key.basis == Basis::Exact);
            spaces.push(SpaceUsage {
                space: *space,
                used: usage.used(*space).map_or(0, |it| it.0),
                highest: self.highest_pool(*space, pools),
                aliased: exact.then(|| self.aliased_bytes(self.state.layout(*space, pools), pools)),
                holders: OnceLock::new(),
            });
        }
        let found = Arc::new(GroupUsage { spaces, usage });
        self.cache.groups[number].usage = Some((version, Arc::clone(&found)));
        found
    }

    /// The pool with the highest peak. Pools of programs have none of their own: they overlap.
    fn highest_pool(&self, space: Space, pools: &[PoolId]) -> Option<PoolId> {
        let single = pools.iter().copied().filter(|_| !space.is_program());
        single.max_by_key(|&pool| self.state.ledger.pool(pool).peak)
    }

    /// What spaces of one chip hold, without totals.
    pub(super) fn usage_in(&mut self, spaces: &[SpacePools], residents: &[Resident]) -> Usage {
        let mut usage = Usage::default();
        for SpacePools { space, pools } in spaces {
            if space.is_program() {
                *usage.program_mut(*space) = Some(self.program_usage(*space, residents, pools));
            } else {
                *usage.buffers_mut(*space) = Some(self.buffer_usage(*space, pools));
            }
        }
        usage
    }

    /// Bytes that one space of a chip holds.
    pub(super) fn used_in(
        &mut self,
        SpacePools { space, pools }: &SpacePools,
        residents: &[Resident],
    ) -> u64 {
        if space.is_program() {
            return self.program_usage(*space, residents, pools).used_bytes();
        }
        match pools[..] {
            // A single pool overlaps with nothing.
            [pool] => used_bytes(self.state.ledger.pool(pool)),
            _ => self.buffer_usage(*space, pools).used_bytes,
        }
    }

    /// Bytes that one pool holds on each of its chips, whether they are in use or only registered.
    pub(crate) fn bytes_in_pool(&mut self, id: PoolId) -> u64 {
        let pool = self.state.ledger.pool(id);
        match pool.key.space {
            space if space.is_program() => self.registered_bytes(space, &[id]).all,
            _ => used_bytes(pool),
        }
    }

    pub(super) fn buffer_usage(&mut self, space: Space, pools: &[PoolId]) -> BufferUsage {
        let state = self.state;
        let mut sum = BufferUsage {
            used_bytes: 0,
            requested_bytes: 0,
            occupied_bytes: None,
            allocated_bytes: None,
            allocatable_bytes: None,
            free_bytes: None,
            largest_free_bytes_per_bank: None,
            fragmentation_percent: None,
            peak_bytes: 0,
            count: None,
            basis: Basis::Exact,
        };
        let mut count = 0;
        let (mut occupied, mut allocated, mut largest) = (0, 0, 0);
        let (mut uncharged, mut vague, mut unlisted) = (0, 0, 0);
        for pool in pools.iter().map(|&pool| state.ledger.pool(pool)) {
            // Records cannot exceed 64 bits together; reported levels could.
            sum.requested_bytes = sum.requested_bytes.saturating_add(requested_bytes(pool));
            sum.used_bytes = sum.used_bytes.saturating_add(used_bytes(pool));
            occupied += pool.totals.occupied;
            allocated = pool.totals.allocated.saturating_add(allocated);
            largest = pool.totals.allocated.max(largest);
            uncharged += pool.totals.uncharged;
            vague += pool.totals.vague;
            unlisted += pool.unlisted.count;
            count += pool.totals.own_count();
            sum.peak_bytes = sum.peak_bytes.max(pool.peak);
            sum.basis = sum.basis.max(pool.key.basis);
        }
        if sum.basis == Basis::Exact {
            let layout = state.layout(space, pools);
            sum.occupied_bytes = (vague == 0).then_some(occupied);
            // Together they hold at least as much as the largest of them.
            if uncharged == 0 {
                let aliased = self.aliased_bytes(layout, pools);
                sum.allocated_bytes = Some(allocated.saturating_sub(aliased).max(largest));
            }
            // Allocations that are not listed have addresses, too.
            if let Some(layout) = layout.filter(|_| uncharged + unlisted == 0) {
                let free = self.free_space(layout, pools);
                sum.allocatable_bytes = Some(layout.bytes_per_bank.saturating_mul(u64::from(layout.banks)));
                sum.free_bytes = Some(free.bytes_per_bank.saturating_mul(u64::from(layout.banks)));
                sum.largest_free_bytes_per_bank = Some(free.largest);
                let apart = free.bytes_per_bank.saturating_sub(free.largest);
                let share = apart as f64 / free.bytes_per_bank.max(1) as f64;
                sum.fragmentation_percent = Some((share * 1000.0).round() / 10.0);
            }
        }
        sum.used_bytes = sum.allocated_bytes.unwrap_or(sum.used_bytes);
        sum.count = state.are_listed(pools).then_some(count);
        sum.peak_bytes = sum.peak_bytes.max(sum.used_bytes);
        sum
    }
}

fn requested_bytes(pool: &Pool) -> u64 {
    pool.level.unwrap_or(pool.totals.requested)
}

/// What a pool's allocator charges, else what was requested.
pub(super) fn used_bytes(pool: &Pool) -> u64 {
    if is_charged(pool) { pool.totals.allocated } else { requested_bytes(pool) }
}

/// Whether it is known what the allocator charges for every buffer of a pool.
pub(super) fn is_charged(pool: &Pool) -> bool {
    pool.key.basis == Basis::Exact && pool.totals.uncharged == 0
}

impl Usage {
    pub(super) fn buffers_mut(&mut self, space: Space) -> &mut Option<BufferUsage> {
        match space {
            Space::L1 => &mut self.l1,
            Space::L1Small => &mut self.l1_small,
            Space::Trace => &mut self.trace,
            Space::Host => &mut self.host,
            Space::L1Core => &mut self.l1_core,
            _ => &mut self.dram,
        }
    }

    fn program_mut(&mut self, space: Space) -> &mut Option<ProgramUsage> {
        match space {
            Space::Dfb => &mut self.dfb,
            Space::Scratch => &mut self.scratch,
            Space::Kernel => &mut self.kernel,
            _ => &mut self.cb,
        }
    }

    /// What one space holds, and the basis of that; `None` if nothing is known about it.
    pub fn used(&self, space: Space) -> Option<(u64, Basis)> {
        let buffers = |usage: &Option<BufferUsage>| usage.as_ref().map(|u| (u.used_bytes, u.basis));
        let program = |usage: &Option<ProgramUsage>| usage.as_ref().map(|u| (u.used_bytes(), u.basis));
        match space {
            Space::Dram => buffers(&self.dram),
            Space::L1 => buffers(&self.l1),
            Space::L1Small => buffers(&self.l1_small),
            Space::Trace => buffers(&self.trace),
            Space::Host => buffers(&self.host),
            Space::L1Core => buffers(&self.l1_core),
            Space::Cb => program(&self.cb),
            Space::Dfb => program(&self.dfb),
            Space::Scratch => program(&self.scratch),
            Space::Kernel => program(&self.kernel),
        }
    }

    /// Whether a space counts in the total of its memory. Kernels that were loaded at some time do not: each load overwrites
    /// earlier ones in the kernel config buffer, so their sum has no bound.
    pub fn is_in_total(&self, space: Space) -> bool {
        space != Space::Kernel || self.kernel.as_ref().is_some_and(|it| it.resident_bytes.is_some())
    }

    fn total(&self, spaces: &[Space], capacity_bytes: Option<u64>) -> Option<Total> {
        let counted = |space, bytes| if self.is_in_total(space) { bytes } else { 0 };
        let mut parts = spaces.iter().filter_map(|&space| {
            let (bytes, basis) = self.used(space)?;
            Some((counted(space, bytes), basis))
        });
        let first = parts.next()?;
        let add = |(sum, worst): (u64, Basis), (bytes, basis)| (sum.saturating_add(bytes), worst.max(basis));
        let (used_bytes, basis) = parts.fold(first, add);
        Some(Total { used_bytes, capacity_bytes, basis })
    }
}
