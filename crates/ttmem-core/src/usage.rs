//! How pools combine into figures. What several hold together follows from skylines of their records, which take in only what
//! changed since they were last looked at.

use crate::event::Banks;
use crate::ledger::{Followed, Pool, PoolId};
use crate::plan::{Cell, Kind};
use crate::programs::{DERIVED_ROOM, Resident};
use crate::ranges::Range;
use crate::skyline::{Covered, Edge, FreeSpace, Skyline};
use crate::snapshot::{BufferUsage, Holder, ProgramUsage, Total, Usage};
use crate::state::State;
use crate::words::{Basis, ChipId, Layout, Space};
use std::sync::{Arc, OnceLock};

/// What lies on the chips of one kind.
#[derive(Debug)]
pub(crate) struct KindUsage {
    /// Without sums, which depend on what a chip has.
    usage: Usage,
    /// By space, as the kind's cells.
    pub(crate) spaces: Vec<SpaceUsage>,
}

#[derive(Debug)]
pub(crate) struct SpaceUsage {
    pub(crate) space: Space,
    pub(crate) used: u64,
    /// The pool of buffers that was ever the largest.
    pub(crate) highest: Option<PoolId>,
    /// Bytes that several allocators handed out; `None` where not all pools know where theirs are.
    pub(crate) aliased: Option<u64>,
    /// Who holds it, found when somebody asks.
    pub(crate) holders: OnceLock<Arc<[Holder]>>,
}

/// What several pools hold in each bank.
#[derive(Clone, Copy, Debug)]
struct Together {
    free: FreeSpace,
    /// Held by more than one, as often as it is too much.
    aliased: u64,
}

/// Skylines of several pools together, of all their records and of their own, and what was last found.
#[derive(Debug, Default)]
pub(crate) struct Joint {
    skylines: [Option<(Skyline, Vec<u64>)>; 2],
    known: Option<(u64, Banks, Together)>,
}

impl State {
    /// What one chip's spaces hold, as a snapshot would say, without making one.
    pub fn usage_of(&self, chip: ChipId) -> Usage {
        let plan = self.plan();
        match plan.kind_of(chip) {
            Some(kind) => self.usage_on(chip, &self.usage_of_kind(kind, &plan.kinds[kind])),
            None => Usage::default(),
        }
    }

    /// What lies on the chips of a kind.
    pub(crate) fn usage_of_kind(&self, number: usize, kind: &Kind) -> Arc<KindUsage> {
        let version = self.version_of_all(kind);
        if let Some((_, known)) =
            self.derived.borrow().kind(number).usage.as_ref().filter(|it| it.0 == version)
        {
            return Arc::clone(known);
        }
        let residents = self.residents_of_kind(number, kind);
        let usage = self.usage_in(&kind.cells, &residents);
        let spaces = kind.cells.iter().map(|Cell { space, pools }| SpaceUsage {
            space: *space,
            used: usage.used(*space).map_or(0, |it| it.0),
            highest: self.highest(*space, pools),
            aliased: pools
                .iter()
                .all(|&pool| self.ledger.pool(pool).key.basis == Basis::Exact)
                .then(|| self.aliased_bytes(self.layout(*space, pools), pools)),
            holders: OnceLock::new(),
        });
        let found = Arc::new(KindUsage { spaces: spaces.collect(), usage });
        self.derived.borrow_mut().kind_mut(number).usage = Some((version, Arc::clone(&found)));
        found
    }

    /// Of programs' pools only a sum is known, and they lie over each other.
    fn highest(&self, space: Space, pools: &[PoolId]) -> Option<PoolId> {
        let single = pools.iter().copied().filter(|_| !space.is_program());
        single.max_by_key(|&pool| self.ledger.pool(pool).peak)
    }

    /// The same of one chip, with its sums.
    pub(crate) fn usage_on(&self, chip: ChipId, kind: &KindUsage) -> Usage {
        self.with_totals(chip, kind.usage.clone())
    }

    /// Adds the sums over spaces that share a chip's memory.
    pub(crate) fn with_totals(&self, chip: ChipId, mut usage: Usage) -> Usage {
        let capacity = self.chips.get(&chip).and_then(|state| state.chip.capacity);
        usage.dram_total = usage.total(&DRAM, capacity.map(|c| c.dram_bytes));
        usage.l1_total = usage.total(&crate::plan::IN_L1, capacity.map(|c| c.l1_bytes));
        usage
    }

    /// The sums alone: DRAM and L1.
    pub(crate) fn totals_of(kind: &KindUsage) -> [u64; 2] {
        let total = |spaces: &[Space]| kind.usage.total(spaces, None).map_or(0, |it| it.used_bytes);
        [total(&DRAM), total(&crate::plan::IN_L1)]
    }

    /// What cells of one chip hold, without sums.
    pub(crate) fn usage_in(&self, cells: &[Cell], residents: &[Resident]) -> Usage {
        let mut usage = Usage::default();
        for Cell { space, pools } in cells {
            if space.is_program() {
                *usage.program_mut(*space) = Some(self.program_usage(*space, residents, pools));
            } else {
                *usage.buffers_mut(*space) = Some(self.buffer_usage(*space, pools));
            }
        }
        usage
    }

    /// What one cell holds, in a number.
    pub(crate) fn used_in(&self, Cell { space, pools }: &Cell, residents: &[Resident]) -> u64 {
        if space.is_program() {
            return self.program_usage(*space, residents, pools).used_bytes();
        }
        match pools[..] {
            // There is nothing that it could overlap with.
            [pool] => used_by_one(self.ledger.pool(pool)),
            _ => self.buffer_usage(*space, pools).used_bytes,
        }
    }

    pub(crate) fn buffer_usage(&self, space: Space, pools: &[PoolId]) -> BufferUsage {
        let mut sum = BufferUsage {
            used_bytes: 0,
            requested_bytes: 0,
            occupied_bytes: None,
            allocated_bytes: None,
            allocatable_bytes: None,
            free_bytes: None,
            largest_free_bytes_per_bank: None,
            peak_bytes: 0,
            count: None,
            basis: Basis::Exact,
        };
        let mut count = 0;
        let (mut occupied, mut allocated, mut largest) = (0, 0, 0);
        let (mut uncharged, mut vague, mut unlisted) = (0, 0, 0);
        for pool in pools.iter().map(|&pool| self.ledger.pool(pool)) {
            // What is listed cannot leave 64 bits; what is only said to be held could, if many say so.
            sum.requested_bytes = sum.requested_bytes.saturating_add(requested(pool));
            sum.used_bytes = sum.used_bytes.saturating_add(used_by_one(pool));
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
            let layout = self.layout(space, pools);
            sum.occupied_bytes = (vague == 0).then_some(occupied);
            // However much they overlap, together they are no less than the largest of them.
            sum.allocated_bytes = (uncharged == 0)
                .then(|| allocated.saturating_sub(self.aliased_bytes(layout, pools)).max(largest));
            // What is not listed lies somewhere, too.
            if let Some(layout) = layout.filter(|_| uncharged + unlisted == 0) {
                let free = self.free_space(layout, pools);
                sum.allocatable_bytes = Some(layout.bytes_per_bank.saturating_mul(u64::from(layout.banks)));
                sum.free_bytes = Some(free.bytes_per_bank.saturating_mul(u64::from(layout.banks)));
                sum.largest_free_bytes_per_bank = Some(free.largest);
            }
        }
        sum.used_bytes = sum.allocated_bytes.unwrap_or(sum.used_bytes);
        sum.count = self.are_listed(pools).then_some(count);
        sum.peak_bytes = sum.peak_bytes.max(sum.used_bytes);
        sum
    }

    /// Whether there is a record of everything in them, rather than a mere sum.
    pub(crate) fn are_listed(&self, pools: &[PoolId]) -> bool {
        pools.iter().all(|&pool| self.ledger.pool(pool).level.is_none())
    }

    pub(crate) fn free_space(&self, layout: Banks, pools: &[PoolId]) -> FreeSpace {
        match *pools {
            [] => FreeSpace { bytes_per_bank: layout.bytes_per_bank, largest: layout.bytes_per_bank },
            [pool] => self.skyline(pool, false, bounds(layout), Skyline::covered).free,
            [..] => self.together(layout, pools).free,
        }
    }

    /// Bytes that several allocators hold at once, counted as often as they are held too much.
    pub(crate) fn aliased_bytes(&self, layout: Option<Banks>, pools: &[PoolId]) -> u64 {
        let (Some(layout), [_, _, ..]) = (layout, pools) else { return 0 };
        self.together(layout, pools).aliased.saturating_mul(u64::from(layout.banks))
    }

    /// The lowest address in a pool.
    pub(crate) fn lowest(&self, space: Space, id: PoolId) -> Option<u64> {
        let pool = self.ledger.pool(id);
        match self.layout(space, &[id]).filter(|_| pool.empty == 0) {
            Some(layout) => self.skyline(id, false, bounds(layout), |it| it.lowest()),
            None => self.ledger.entries(id).map(|(_, entry)| entry.id).min(),
        }
    }

    /// The skyline of a pool's records, of its own or of all, up to date.
    fn skyline<T>(&self, id: PoolId, own: bool, within: Range, look: impl FnOnce(&mut Skyline) -> T) -> T {
        let pool = self.ledger.pool(id);
        // Where there are no others, these are the same.
        let own = own && pool.totals.mirrors > 0;
        let mut slot = pool.skylines[usize::from(own)].borrow_mut();
        let known = slot.take().filter(|it| it.skyline.within() == within);
        let changes = known.and_then(|it| Some((pool.changes_since(it.seen)?, it.skyline)));
        let skyline = match changes {
            // Records that lie side by side have no edges in between, but making it anew looks at all of them.
            Some((changes, mut skyline)) if changes.len() as u64 <= 16 + pool.totals.count / 4 => {
                skyline.change_all(changes.iter().flat_map(|it| it.edges(own)));
                skyline
            }
            _ => {
                let entries = self.ledger.entries(id).map(|(_, entry)| entry);
                let counted = entries.filter(|it| it.bytes_per_bank > 0);
                let counted = counted.filter(|it| !own || it.layout != Layout::Mirror);
                let ranges = counted.map(|it| Range::new(it.id, it.bytes_per_bank));
                Skyline::new(within, ranges.flat_map(|it| [(it.start, 1), (it.end, -1)]).collect())
            }
        };
        let known = slot.insert(Followed { skyline, seen: pool.follow() });
        look(&mut known.skyline)
    }

    /// What several pools of one layout hold together. All chips of a mesh ask for the same, and more than once.
    fn together(&self, layout: Banks, pools: &[PoolId]) -> Together {
        let version = self.version_of(pools);
        let known = self.derived.borrow_mut().together.remove(pools).unwrap_or_default();
        let Joint { mut skylines, known } = known;
        let found = match known {
            Some((of, within, found)) if of == version && within == layout => found,
            _ => {
                let within = bounds(layout);
                let each = pools.iter().map(|&pool| self.skyline(pool, true, within, Skyline::covered).bytes);
                let each: u64 = each.sum();
                let all = self.join(&mut skylines[0], false, within, pools);
                let mirrors = pools.iter().any(|&pool| self.ledger.pool(pool).totals.mirrors > 0);
                let own = if mirrors { self.join(&mut skylines[1], true, within, pools) } else { all };
                Together { free: all.free, aliased: each - own.bytes }
            }
        };
        let room = &mut self.derived.borrow_mut().together;
        if room.len() >= DERIVED_ROOM {
            room.clear();
        }
        room.insert(pools.to_vec(), Joint { skylines, known: Some((version, layout, found)) });
        found
    }

    /// Brings a skyline of several pools up to date.
    fn join(
        &self,
        known: &mut Option<(Skyline, Vec<u64>)>,
        own: bool,
        within: Range,
        pools: &[PoolId],
    ) -> Covered {
        let all = || pools.iter().map(|&pool| self.ledger.pool(pool));
        let skyline = known.take().filter(|(it, _)| it.within() == within).and_then(|(mut skyline, seen)| {
            let changes = || all().zip(&seen).map(|(pool, &seen)| pool.changes_since(seen));
            let count = changes().try_fold(0, |sum, it| Some(sum + it?.len()))?;
            if !is_worth_it(count, &skyline) {
                return None;
            }
            skyline.change_all(changes().flatten().flatten().flat_map(|it| it.edges(own)));
            Some(skyline)
        });
        let mut skyline = skyline.unwrap_or_else(|| {
            let mut edges: Vec<Edge> = Vec::new();
            for &pool in pools {
                self.skyline(pool, own, within, |it| edges.extend(it.edges()));
            }
            Skyline::new(within, edges)
        });
        let covered = skyline.covered();
        *known = Some((skyline, all().map(Pool::follow).collect()));
        covered
    }
}

/// What shares a chip's DRAM.
const DRAM: [Space; 2] = [Space::Dram, Space::Trace];

/// Whether changing a skyline is less work than making it anew.
fn is_worth_it(changes: usize, skyline: &Skyline) -> bool {
    changes <= 16 + skyline.len() / 8
}

fn bounds(layout: Banks) -> Range {
    Range::new(layout.base, layout.bytes_per_bank)
}

fn requested(pool: &Pool) -> u64 {
    pool.level.unwrap_or(pool.totals.requested)
}

/// What a pool is charged with, else what it asked for.
fn used_by_one(pool: &Pool) -> u64 {
    let charged = pool.key.basis == Basis::Exact && pool.totals.uncharged == 0;
    if charged { pool.totals.allocated } else { requested(pool) }
}

impl Usage {
    pub(crate) fn buffers_mut(&mut self, space: Space) -> &mut Option<BufferUsage> {
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

    /// What one space holds, and the basis of that; `None` where nothing is known of it.
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

    fn total(&self, spaces: &[Space], capacity_bytes: Option<u64>) -> Option<Total> {
        // Kernels that are only registered are not in L1: adding up what was loaded says nothing of what is there.
        let registered_only = |space: Space| {
            let kernels = self.kernel.as_ref().filter(|_| space == Space::Kernel);
            kernels.is_some_and(|it| it.basis == Basis::Exact && it.resident_bytes.is_none())
        };
        let parts = spaces.iter().filter(|&&space| !registered_only(space));
        let mut parts = parts.filter_map(|&space| self.used(space));
        let first = parts.next()?;
        let add = |(sum, worst): (u64, Basis), (bytes, basis)| (sum.saturating_add(bytes), worst.max(basis));
        let (used_bytes, basis) = parts.fold(first, add);
        Some(Total { used_bytes, capacity_bytes, basis })
    }
}
