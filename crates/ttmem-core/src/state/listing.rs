//! Lists of allocations as the ledger has them, for answers and reports.

use super::{State, chips_in, visible};
use crate::ledger::{Entry, PoolId, Totals};
use crate::snapshot::{Allocation, Group, HiddenMemory};
use crate::viewer::Viewer;
use crate::words::{Basis, ChipId, Layout, Mono, Scope, Space};
use std::collections::BTreeMap;
use ttmem_types::program_number;

/// Allocations listed one by one in a report, however many groups it has.
pub const REPORT_ROOM: usize = 10_000;

impl State {
    /// The indexes of chips, lowest first.
    pub(crate) fn indexes_of(&self, chips: &[ChipId]) -> Vec<u32> {
        let known = chips.iter().filter_map(|id| self.chips.get(id));
        let mut indexes: Vec<u32> = known.map(|it| it.chip.index).collect();
        indexes.sort_unstable();
        indexes
    }

    /// Live allocations in the next `places` slots from `cursor` on, and the next cursor. Together the pages hold every
    /// allocation that lives through all of them, in no order. Ages are those at `now`.
    pub fn allocations(&self, cursor: usize, places: usize, now: Mono) -> (Vec<Allocation>, Option<usize>) {
        self.allocations_for(cursor, places, now, Viewer::ALL)
    }

    /// Those of [`State::allocations`] that a viewer may see. [`State::hidden_memory`] has the others as sums.
    pub fn allocations_for(
        &self,
        cursor: usize,
        places: usize,
        now: Mono,
        viewer: Viewer,
    ) -> (Vec<Allocation>, Option<usize>) {
        let (entries, next) = self.ledger.page(cursor, places);
        let shown = entries.filter(|entry| !self.hides(viewer, entry.pool()));
        (shown.filter_map(|entry| self.describe_entry(entry, now, true)).collect(), next)
    }

    /// Whether a viewer may see only the sum of a pool.
    fn hides(&self, viewer: Viewer, pool: PoolId) -> bool {
        let process = || self.processes.get(&self.ledger.pool(pool).key.process);
        viewer != Viewer::ALL && viewer.hides(process().and_then(|it| it.info.uid))
    }

    /// Sums of the processes whose allocations a viewer may not see, by process, space and devices.
    pub fn hidden_memory(&self, viewer: Viewer) -> Vec<HiddenMemory> {
        let hidden = self.processes.iter().filter(|(_, it)| it.info.is_hidden_from(&viewer));
        let pools = hidden
            .flat_map(|(_, process)| process.pools.iter().map(move |(key, &pool)| (process, key, pool)));
        let sums = pools.map(|(process, &(scope, ..), pool)| {
            let indexes = self.indexes_of(chips_in(&process.allocators, &scope));
            self.hidden_sum(viewer, indexes, pool)
        });
        sums.flatten().collect()
    }

    /// What a viewer may see of a pool of another user; `None` if nothing is in the pool.
    fn hidden_sum(&self, viewer: Viewer, indexes: Vec<u32>, pool: PoolId) -> Option<HiddenMemory> {
        let pool = self.ledger.pool(pool);
        let info = &self.processes.get(&pool.key.process)?.info;
        let count = pool.totals.own_count();
        let sum = HiddenMemory {
            pid: visible(pool.key.process),
            reported_pid: info.reported_pid,
            process_name: info.name.clone(),
            user: info.user.clone(),
            indexes,
            space: pool.key.space,
            count,
            requested_bytes: pool.totals.requested,
            used_bytes: if pool.key.basis == Basis::Exact {
                pool.totals.allocated
            } else {
                pool.totals.requested
            },
        };
        (count > 0).then(|| viewer.show(info.uid, sum))
    }

    /// Bytes recorded on a chip in a space, by all processes. For circular buffers this is the sum of their sizes,
    /// not what they cover: see [`crate::Analysis::usage_of`].
    pub fn recorded(&self, chip: ChipId, space: Space) -> u64 {
        let pools = self.processes.values().flat_map(|process| {
            let on_chip = move |scope: &Scope| chips_in(&process.allocators, scope).contains(&chip);
            process.pools.iter().filter(move |((scope, of, _), _)| *of == space && on_chip(scope))
        });
        let pools = pools.map(|(_, &pool)| pool);
        let listed = pools.map(|pool| self.ledger.pool(pool));
        listed.map(|pool| pool.totals.requested - pool.unlisted.requested).fold(0, u64::saturating_add)
    }

    /// All allocations by chip and space, one group at a time. The first `listed` of each group are listed one by one, and at most
    /// [`REPORT_ROOM`] in all. Those that a viewer may not see are one sum for each process.
    pub fn report(&self, spaces: &[Space], listed: usize, viewer: Viewer) -> impl Iterator<Item = Group> {
        let mut room = REPORT_ROOM;
        let mut pools: BTreeMap<(u32, Space), Vec<PoolId>> = BTreeMap::new();
        for process in self.processes.values() {
            for ((scope, space, _), &pool) in process.pools.iter().filter(|(key, _)| spaces.contains(&key.1))
            {
                for chip in chips_in(&process.allocators, scope).iter().filter_map(|id| self.chips.get(id)) {
                    pools.entry((chip.chip.index, *space)).or_default().push(pool);
                }
            }
        }
        let groups = pools.into_iter().map(move |((index, space), pools)| {
            let totals = || pools.iter().map(|&pool| self.ledger.pool(pool).totals);
            // Mirrors and views are no memory of their own, and are not in the sum of bytes either.
            let count = totals().map(Totals::own_count).sum();
            let (hidden, shown): (Vec<PoolId>, Vec<PoolId>) =
                pools.iter().partition(|&&pool| self.hides(viewer, pool));
            let entries = shown.iter().flat_map(|&pool| self.ledger.entries(pool).map(|(_, entry)| entry));
            let entries = entries.filter(|entry| !entry.layout.is_alias());
            let listed: Vec<_> = entries
                .take(listed.min(room))
                .filter_map(|entry| self.describe_entry(entry, self.now, false))
                .collect();
            room -= listed.len();
            Group {
                index,
                space,
                count,
                bytes: totals().map(|t| t.requested).fold(0, u64::saturating_add),
                listed,
                hidden: hidden
                    .iter()
                    .filter_map(|&pool| self.hidden_sum(viewer, vec![index], pool))
                    .collect(),
            }
        });
        groups.filter(|group| group.count > 0)
    }

    /// The ids of chips, by index, and their indexes.
    pub(crate) fn names_of(&self, chips: &[ChipId]) -> (Vec<String>, Vec<u32>) {
        let mut named: Vec<(Option<u32>, ChipId)> =
            chips.iter().map(|&chip| (self.chips.get(&chip).map(|it| it.chip.index), chip)).collect();
        named.sort_unstable();
        let names = named.iter().map(|(_, chip)| chip.to_string()).collect();
        (names, named.into_iter().filter_map(|(index, _)| index).collect())
    }

    /// A record as an allocation; `None` for a mirror of another one. `full`: with the ids of its chips.
    pub(crate) fn describe_entry(&self, entry: &Entry, now: Mono, full: bool) -> Option<Allocation> {
        if entry.layout == Layout::Mirror {
            return None;
        }
        let key = self.ledger.pool(entry.pool()).key;
        let process = self.processes.get(&key.process)?;
        let chips = chips_in(&process.allocators, &key.scope);
        let (devices, indexes) =
            if full { self.names_of(chips) } else { (Vec::new(), self.indexes_of(chips)) };
        let known = (key.basis == Basis::Exact).then_some(());
        Some(Allocation {
            pid: visible(key.process),
            reported_pid: process.info.reported_pid,
            devices,
            indexes,
            allocator: match key.scope {
                Scope::Allocator(number) => Some(number),
                Scope::Chip(_) => None,
            },
            space: key.space,
            id: format!("0x{:x}", entry.id),
            requested_bytes: entry.requested,
            occupied_bytes: known.map(|()| entry.occupied).filter(|&bytes| bytes > 0),
            allocated_bytes: known.and_then(|()| entry.allocated()),
            bytes_per_bank: known.map(|()| entry.bytes_per_bank).filter(|&bytes| bytes > 0),
            banks: known.map(|()| entry.banks).filter(|&banks| banks > 0),
            layout: Some(entry.layout).filter(|&layout| layout != Layout::Unknown),
            cores: process.cores.get(&entry.cores).map(|cores| cores.rectangles()),
            estimated: entry.nature.uncertainty().estimated,
            unplaced: entry.nature.uncertainty().unplaced,
            references: entry.refs,
            age_seconds: (now.since(Mono(entry.allocated_at)) / 1_000_000) as f64 / 1000.0,
            kernel: (key.space == Space::Kernel).then_some(entry.nature.class()),
            program: (entry.program != 0).then(|| program_number(entry.program)),
            site: (entry.site != 0).then_some(entry.site),
            site_name: process.sites.name(entry.site).cloned(),
            origin: process.sites.origin(entry.site),
            program_name: (entry.program != 0)
                .then(|| process.program_name(key.scope, entry.program).cloned())
                .flatten(),
            hidden: false,
            basis: key.basis,
        })
    }
}
