//! A page of the list of live allocations: filtered, sorted or grouped. All records are visited once; only those of the page
//! are described.

mod groups;
mod text;

use super::Figures;
use crate::detail::{BufferQuery, BufferSort};
use crate::ledger::{Entry, PoolId};
use crate::snapshot::Buffers;
use crate::state::{ProcessState, chips_in};
use crate::words::{Basis, ChipId, Layout, ProcessId, Scope};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use text::Words;
use ttmem_types::program_number;

/// The key of what has no key: it comes last in any order.
const NOTHING: u64 = u64::MAX;

/// What all allocations of a pool have in common.
struct PoolView<'a> {
    id: PoolId,
    process_id: ProcessId,
    process: &'a ProcessState,
    /// Rank of its process.
    number: u32,
    scope: Scope,
    basis: Basis,
    /// Rank of its space.
    space: u8,
    /// Index of its first device, if the query needs it.
    device: u64,
    /// Whether the viewer may see only its sums.
    is_hidden: bool,
    /// Ranks of the names of call sites by number, if the query needs them.
    sites: Option<&'a ByNumber<u64>>,
    words: text::OfPool,
}

/// A place in the list.
#[derive(Clone, Copy)]
struct Place {
    key: u64,
    process: u32,
    space: u8,
    address: u64,
    slot: u32,
}

/// The first so many places of a list, without keeping all of it.
struct First<F> {
    room: usize,
    found: Vec<Place>,
    /// The last one at the last cut: what is beyond is dropped.
    last: Option<Place>,
    compare: F,
}

impl<F: Fn(&Place, &Place) -> Ordering> First<F> {
    fn add(&mut self, place: Place) {
        if let Some(last) = &self.last
            && (place.key > last.key || (self.compare)(&place, last) == Ordering::Greater)
        {
            return;
        }
        self.found.push(place);
        // As many are added as are kept before each cut, so that each costs little.
        if self.found.len() >= self.room.saturating_mul(2).max(1024) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.room == 0 {
            self.found.clear();
        } else if self.found.len() > self.room {
            self.found.select_nth_unstable_by(self.room - 1, &self.compare);
            self.found.truncate(self.room);
            self.last = self.found.last().copied();
        }
    }

    /// Those from `offset` on, in order.
    fn into_page(mut self, offset: usize) -> Vec<Place> {
        self.cut();
        if offset >= self.found.len() {
            return Vec::new();
        }
        self.found.select_nth_unstable_by(offset, &self.compare);
        let mut page = self.found.split_off(offset);
        page.sort_unstable_by(&self.compare);
        page
    }
}

impl Figures<'_> {
    /// The allocations that a query wants.
    pub(crate) fn buffers(&self, query: &BufferQuery, full: bool) -> Buffers {
        let words = Words::new(&query.text);
        let sites = self.site_ranks(query);
        let pools = self.matching_pools(query, &words, &sites);
        if let Some(grouping) = query.group {
            return self.buffer_groups(query, grouping, &pools, &words);
        }
        let limit = query.limit.min(BufferQuery::MOST) as usize;
        let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
        let room = offset.saturating_add(limit);
        let mut first = First {
            room,
            found: Vec::with_capacity(room.saturating_mul(2).min(self.state.ledger.live())),
            last: None,
            compare: |a: &Place, b: &Place| self.compare(a, b),
        };
        let mut all = Buffers::default();
        self.visit(&pools, &words, |slot, entry, pool| {
            let used = used(entry, pool);
            if pool.is_hidden {
                all.hidden_count += 1;
                all.hidden_bytes += used;
                return;
            }
            all.count += 1;
            all.requested_bytes += entry.requested;
            all.used_bytes += used;
            let key = match query.sort {
                BufferSort::Size => most_first(used),
                BufferSort::Requested => most_first(entry.requested),
                BufferSort::Age => entry.allocated_at.min(NOTHING - 1),
                BufferSort::Address => entry.id.min(NOTHING - 1),
                BufferSort::Process => pool.number.into(),
                BufferSort::Device => pool.device,
                BufferSort::Space => pool.space.into(),
                BufferSort::Program if entry.program == 0 => NOTHING,
                BufferSort::Program => program_number(entry.program).into(),
                BufferSort::Site => pool.sites.and_then(|it| it.get(entry.site)).unwrap_or(NOTHING),
            };
            let key = directed(key, query.reversed);
            first.add(Place { key, process: pool.number, space: pool.space, address: entry.id, slot });
        });
        let page = first.into_page(offset).into_iter();
        all.offset = query.offset.min(all.count);
        all.list = page
            .filter_map(|place| {
                self.state.describe_entry(self.state.ledger.at(place.slot), self.state.now, full)
            })
            .collect();
        all
    }

    /// Compares by key, then by process, space and address, then so that no two are equal.
    fn compare(&self, a: &Place, b: &Place) -> Ordering {
        let rank = |it: &Place| (it.key, it.process, it.space, it.address);
        rank(a).cmp(&rank(b)).then_with(|| {
            let more = |place: &Place| {
                let entry = self.state.ledger.at(place.slot);
                let key = self.state.ledger.pool(entry.pool()).key;
                let &Entry { program, requested, cores, allocated_at, .. } = entry;
                (key.scope, key.basis, program, requested, cores, allocated_at, place.slot)
            };
            more(a).cmp(&more(b))
        })
    }

    /// Calls `visit` with every allocation that matches, in no order, with its slot and its pool.
    fn visit<'p>(
        &self,
        pools: &'p [PoolView<'p>],
        words: &Words,
        mut visit: impl FnMut(u32, &Entry, &'p PoolView<'p>),
    ) {
        let fits = |entry: &Entry, pool: &PoolView| {
            entry.layout != Layout::Mirror
                && (words.is_empty() || pool.is_hidden || words.fit(entry, &pool.words))
        };
        let count: u64 = pools.iter().map(|pool| self.state.ledger.pool(pool.id).totals.count).sum();
        if count < self.state.ledger.live() as u64 / 4 {
            // Few of them are found faster by their lists.
            for pool in pools {
                let entries = self.state.ledger.entries(pool.id).filter(|(_, entry)| fits(entry, pool));
                entries.for_each(|(slot, entry)| visit(slot.number(), entry, pool));
            }
            return;
        }
        let mut by_id: Vec<Option<&'p PoolView<'p>>> = vec![None; self.state.ledger.pool_room()];
        for pool in pools {
            by_id[pool.id.number()] = Some(pool);
        }
        for (slot, entry) in self.state.ledger.all() {
            if let Some(pool) = by_id[entry.pool().number()].filter(|pool| fits(entry, pool)) {
                visit(slot, entry, pool);
            }
        }
    }

    /// The pools in which anything may match.
    fn matching_pools<'a>(
        &'a self,
        query: &BufferQuery,
        words: &Words,
        sites: &'a BTreeMap<ProcessId, ByNumber<u64>>,
    ) -> Vec<PoolView<'a>> {
        let mut found = Vec::new();
        let by_device = query.sort == BufferSort::Device || !query.devices.is_empty();
        for (number, (&id, process)) in self.state.processes.iter().enumerate() {
            let pid = self.shown_pid(id, &process.info);
            if !query.pids.is_empty() && pid.is_none_or(|pid| !query.pids.contains(&pid)) {
                continue;
            }
            let is_hidden = process.info.is_hidden_from(&self.viewer);
            let mut names = text::OfProcess::new(words, id, process);
            // The number of matches must not depend on names that are withheld.
            if is_hidden && !words.is_empty() && (pid.is_none() || !names.has_all(words)) {
                continue;
            }
            let mut last: Option<(Scope, Option<u64>)> = None;
            for (&(scope, space, basis), &pool) in &process.pools {
                if query.space.is_some_and(|it| it != space) {
                    continue;
                }
                // Pools of one scope are neighbours here, and on the same chips.
                if last.is_none_or(|(of, _)| of != scope) {
                    let device = if by_device {
                        self.first_device(chips_in(&process.allocators, &scope), &query.devices)
                    } else {
                        Some(0)
                    };
                    last = Some((scope, device));
                }
                let Some((_, Some(device))) = last else { continue };
                found.push(PoolView {
                    id: pool,
                    process_id: id,
                    process,
                    number: number as u32,
                    scope,
                    basis,
                    space: space as u8,
                    device,
                    is_hidden,
                    sites: sites.get(&id),
                    words: names.of_pool(words, scope, space),
                });
            }
        }
        found
    }

    /// The index of the first of these chips; `None`: none of them is wanted.
    fn first_device(&self, chips: &[ChipId], wanted: &[u32]) -> Option<u64> {
        let indexes = || chips.iter().filter_map(|chip| self.state.chips.get(chip)).map(|it| it.chip.index);
        if !wanted.is_empty() && !indexes().any(|index| wanted.contains(&index)) {
            return None;
        }
        Some(indexes().min().map_or(NOTHING, u64::from))
    }

    /// For each process the ranks of the names of its call sites, by number, if the query needs them.
    fn site_ranks(&self, query: &BufferQuery) -> BTreeMap<ProcessId, ByNumber<u64>> {
        if query.sort != BufferSort::Site {
            return BTreeMap::new();
        }
        let names =
            || self.state.processes.iter().flat_map(|(&id, it)| it.sites.names().map(move |site| (id, site)));
        let mut all: Vec<&str> = names().map(|(_, (_, name))| name).collect();
        all.sort_unstable();
        all.dedup();
        let mut ranks: BTreeMap<ProcessId, ByNumber<u64>> = BTreeMap::new();
        for (id, (number, name)) in names() {
            let rank = all.partition_point(|&it| it < name) as u64;
            ranks.entry(id).or_insert_with(ByNumber::new).insert(number, rank);
        }
        ranks
    }
}

/// What the allocator charges for an allocation, else what was requested.
fn used(entry: &Entry, pool: &PoolView) -> u64 {
    if pool.basis == Basis::Exact { entry.charged() } else { entry.requested }
}

/// The key of a number, largest first.
fn most_first(number: u64) -> u64 {
    (NOTHING - 1).saturating_sub(number)
}

/// A key, reversed if so; what has none comes last either way.
fn directed(key: u64, reversed: bool) -> u64 {
    if reversed && key != NOTHING { NOTHING - 1 - key } else { key }
}

/// A map of numbers, most of which are small and index a list.
struct ByNumber<T> {
    small: Vec<Option<T>>,
    large: BTreeMap<u32, T>,
}

impl<T: Copy> ByNumber<T> {
    /// Numbers from here on are large.
    const SMALL: u32 = 1 << 12;

    fn new() -> Self {
        Self { small: Vec::new(), large: BTreeMap::new() }
    }

    fn get(&self, number: u32) -> Option<T> {
        match self.small.get(number as usize) {
            Some(it) => *it,
            None if number >= Self::SMALL => self.large.get(&number).copied(),
            None => None,
        }
    }

    fn insert(&mut self, number: u32, value: T) {
        if number >= Self::SMALL {
            self.large.insert(number, value);
            return;
        }
        let place = number as usize;
        if self.small.len() <= place {
            self.small.resize(place + 1, None);
        }
        self.small[place] = Some(value);
    }
}

impl<T: Copy> FromIterator<(u32, T)> for ByNumber<T> {
    fn from_iter<I: IntoIterator<Item = (u32, T)>>(list: I) -> Self {
        let mut all = Self::new();
        list.into_iter().for_each(|(number, it)| all.insert(number, it));
        all
    }
}

#[cfg(test)]
mod tests;
