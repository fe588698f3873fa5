//! Every live allocation, and totals that always equal the sum of the records.
//!
//! Records are in chunks that never move, found through an index of 4-byte slots, so that a million live buffers cost about
//! 80 bytes each at any number (a map of whole records would double at the wrong moment). Records of one pool form a list:
//! when a process exits, only its own records are visited. The key of the index is place and id, not owner, so that records of
//! several processes at one address of one chip are found together.

mod entry;
mod keyframe;
mod lives;
mod pool;
mod site_sums;
mod totals;

pub(crate) use entry::{Entry, Nature};
pub(crate) use keyframe::COUNTER_LIMIT;
pub(crate) use pool::{Change, Pool, PoolId, PoolKey};
pub(crate) use site_sums::Held;
pub(crate) use totals::Totals;

use crate::input::Holding;
use crate::words::{Mono, Scope, Space};
use hashbrown::HashTable;
use std::collections::{BTreeMap, BTreeSet};

/// Number of a record's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// End of a list, or no pool.
const NONE: u32 = u32::MAX;

const CHUNK: usize = 4096;

/// All live allocations.
pub(crate) struct Ledger {
    chunks: Vec<Vec<Entry>>,
    vacant: u32,
    live: usize,
    index: HashTable<u32>,
    /// Records of programs, by pool and program: the end of a program visits its own records only.
    of_programs: BTreeSet<(u32, u32, u32)>,
    /// Makes the order of the index unpredictable to clients, which choose ids. No output depends on it.
    seed: u64,
    pools: Vec<Option<Pool>>,
    vacant_pools: Vec<u32>,
    /// Numbers of address spaces that several pools share: the spaces of buffers of a chip. Elsewhere each pool has a place
    /// of its own: an allocator's addresses are its own, and programs overlap by design.
    places: BTreeMap<(Scope, Space), u32>,
    /// By place: bytes of records whose address another process holds as well.
    shared: BTreeMap<u32, u64>,
    /// Number of pools by place. A single pool shares nothing.
    pools_of_place: Vec<u32>,
    vacant_places: Vec<u32>,
    clock: u64,
    version: u64,
    /// The time of changes from here on.
    pub(crate) now: Mono,
}

impl Ledger {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            chunks: Vec::new(),
            vacant: NONE,
            live: 0,
            index: HashTable::new(),
            of_programs: BTreeSet::new(),
            seed,
            pools: Vec::new(),
            vacant_pools: Vec::new(),
            places: BTreeMap::new(),
            shared: BTreeMap::new(),
            pools_of_place: Vec::new(),
            vacant_places: Vec::new(),
            clock: 0,
            version: 0,
            now: Mono(0),
        }
    }

    /// Live records in all pools.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn open(&mut self, key: PoolKey) -> PoolId {
        let mut place = self.pools_of_place.len() as u32;
        if matches!(key.scope, Scope::Chip(_)) && !key.space.is_program() {
            place = *self.places.entry((key.scope, key.space)).or_insert(place);
        } else if let Some(vacant) = self.vacant_places.pop() {
            place = vacant;
        }
        if place as usize == self.pools_of_place.len() {
            self.pools_of_place.push(0);
        }
        self.pools_of_place[place as usize] += 1;
        self.version += 1;
        let pool = Some(Pool::new(key, place, self.version));
        if let Some(number) = self.vacant_pools.pop() {
            self.pools[number as usize] = pool;
            return PoolId(number);
        }
        self.pools.push(pool);
        PoolId(self.pools.len() as u32 - 1)
    }

    pub(crate) fn pool(&self, id: PoolId) -> &Pool {
        self.pools[id.0 as usize].as_ref().expect("only `close` frees the number of a pool")
    }

    /// A pool, if there is one with this number.
    pub(crate) fn find_pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn pool_count(&self) -> usize {
        self.pools.iter().flatten().count()
    }

    /// Keeps the changes of all pools from now on, so that figures can be brought up to date.
    pub(crate) fn keep_changes(&mut self) {
        self.pools.iter_mut().flatten().for_each(Pool::keep_changes);
    }

    /// Changes a pool, with its version and peak.
    fn change(&mut self, id: PoolId, change: impl FnOnce(&mut Pool)) {
        self.version += 1;
        let (version, now) = (self.version, self.now);
        let pool = self.pool_mut(id);
        change(pool);
        pool.changed(version, now);
    }

    /// Invalidates figures of a pool whose layout has changed.
    pub(crate) fn touch(&mut self, id: PoolId) {
        self.change(id, |_| ());
    }

    /// Sets a level, for a basis that has no records.
    pub(crate) fn set_level(&mut self, id: PoolId, bytes: u64) {
        self.change(id, |pool| pool.level = Some(bytes));
    }

    /// Sets the allocations without a record.
    pub(crate) fn set_unlisted(&mut self, id: PoolId, holding: Holding) {
        self.change(id, |pool| pool.set_unlisted(holding));
    }

    /// Sets the peak, if the source knows it better: never less than what is in use.
    pub(crate) fn set_peak(&mut self, id: PoolId, bytes: Option<u64>) {
        self.version += 1;
        let (version, now) = (self.version, self.now);
        let pool = self.pool_mut(id);
        pool.set_peak(bytes, now);
        pool.version = version;
    }

    pub(crate) fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        self.pools[id.0 as usize].as_mut().expect("only `close` frees the number of a pool")
    }

    /// Drops a pool with all records, and returns their totals.
    pub(crate) fn close(&mut self, id: PoolId) -> Totals {
        let totals = self.clear(id);
        let Pool { key, place, .. } = *self.pool(id);
        self.pools_of_place[place as usize] -= 1;
        if !matches!(key.scope, Scope::Chip(_)) || key.space.is_program() {
            self.vacant_places.push(place);
        }
        self.pools[id.0 as usize] = None;
        self.vacant_pools.push(id.0);
        totals
    }

    /// Drops all records of a pool, and returns their totals.
    pub(crate) fn clear(&mut self, id: PoolId) -> Totals {
        let totals = self.pool(id).totals;
        let mut slot = self.pool(id).head;
        while slot != NONE {
            let next = self.entry(slot).next;
            self.vacate(slot);
            slot = next;
        }
        self.change(id, Pool::clear);
        self.shrink();
        totals
    }

    /// Adds a record. If `unique`, `allocated_at` is raised above that of every record before.
    pub(crate) fn insert(&mut self, id: PoolId, mut entry: Entry, unique: bool) -> Slot {
        if unique {
            self.clock = entry.allocated_at.max(self.clock + 1);
            entry.allocated_at = self.clock;
        }
        let head = self.pool(id).head;
        (entry.pool, entry.previous, entry.next) = (id.0, NONE, head);
        let slot = self.occupy(entry);
        self.change(id, |pool| {
            pool.add(&entry);
            pool.head = slot;
        });
        if head != NONE {
            self.entry_mut(head).previous = slot;
        }
        self.add_to_index(id, slot, &entry);
        Slot(slot)
    }

    /// Makes a record of a pool's list findable.
    #[inline]
    fn add_to_index(&mut self, id: PoolId, slot: u32, entry: &Entry) {
        self.count_shared(entry, NONE, true);
        if self.pool(id).key.space.is_program() {
            self.of_programs.insert((id.0, entry.program, slot));
        }
        let hash = self.hash(id, entry.id, entry.program);
        let (chunks, pools, seed) = (&self.chunks, &self.pools, self.seed);
        self.index.insert_unique(hash, slot, |&slot| {
            let entry = &chunks[slot as usize / CHUNK][slot as usize % CHUNK];
            let (place, tag) = pools[entry.pool as usize]
                .as_ref()
                .map_or((0, 0), |pool| (pool.place, pool.tag(entry.program)));
            mix(seed, place, tag, entry.id)
        });
        self.live += 1;
    }

    fn hash(&self, pool: PoolId, id: u64, program: u32) -> u64 {
        let pool = self.pool(pool);
        mix(self.seed, pool.place, pool.tag(program), id)
    }

    /// Counts a record's share in what several processes hold at one address: of each address, all but the largest record.
    /// `slot` is that of the record, if it is in the index.
    fn count_shared(&mut self, entry: &Entry, slot: u32, is_added: bool) {
        let Pool { place, key, .. } = *self.pool(entry.pool());
        if key.space.is_program() || self.pools_of_place[place as usize] < 2 {
            return;
        }
        let (mut sum, mut largest, mut first, mut mixed) = (0, 0, None, false);
        for &other in self.index.iter_hash(self.hash(entry.pool(), entry.id, entry.program)) {
            let held = self.entry(other);
            let pool = self.pool(held.pool());
            if other != slot && held.id == entry.id && pool.place == place {
                mixed |= *first.get_or_insert(pool.key.process) != pool.key.process;
                sum += held.requested;
                largest = held.requested.max(largest);
            }
        }
        let Some(first) = first else { return };
        let without = if mixed { sum - largest } else { 0 };
        let mixed = mixed || first != key.process;
        let with = if mixed { sum + entry.requested - largest.max(entry.requested) } else { 0 };
        let shared = self.shared.entry(place).or_default();
        *shared = if is_added { *shared + with - without } else { *shared + without - with };
    }

    /// Bytes of a chip's space at addresses that several processes hold.
    pub(crate) fn shared(&self, scope: Scope, space: Space) -> u64 {
        let place = self.places.get(&(scope, space));
        place.and_then(|place| self.shared.get(place)).copied().unwrap_or(0)
    }

    /// The pool's records with this id (and program, in stacked spaces), in no order.
    pub(crate) fn find(&self, pool: PoolId, id: u64, program: u32) -> impl Iterator<Item = (Slot, &Entry)> {
        let tag = self.pool(pool).tag(program);
        self.index.iter_hash(self.hash(pool, id, program)).map(|&slot| (Slot(slot), self.entry(slot))).filter(
            move |(_, entry)| entry.pool == pool.0 && entry.id == id && (tag == 0 || entry.program == tag),
        )
    }

    /// The pool's record with this id, in spaces that are not stacked: an id has only one there.
    pub(crate) fn find_one(&self, pool: PoolId, id: u64) -> Option<Slot> {
        let hash = self.hash(pool, id, 0);
        let found = self.index.find(hash, |&slot| {
            let entry = self.entry(slot);
            entry.id == id && entry.pool == pool.0
        });
        found.map(|&slot| Slot(slot))
    }

    pub(crate) fn get(&self, slot: Slot) -> &Entry {
        self.entry(slot.0)
    }

    /// Adds a reference to a record.
    pub(crate) fn retain(&mut self, slot: Slot) -> u32 {
        let refs = &mut self.entry_mut(slot.0).refs;
        *refs = refs.saturating_add(1);
        let refs = *refs;
        self.note_references(slot);
        refs
    }

    /// Notes that the references of a record changed: those of program memory are counted.
    fn note_references(&mut self, slot: Slot) {
        let pool = self.entry(slot.0).pool();
        if self.pool(pool).key.space.is_program() {
            self.version += 1;
            self.pool_mut(pool).version = self.version;
        }
    }

    /// Removes a reference to a record, and the record with the last one. Returns how many are left.
    pub(crate) fn release(&mut self, slot: Slot) -> u32 {
        let entry = self.entry_mut(slot.0);
        entry.refs -= 1;
        let left = entry.refs;
        if left == 0 {
            self.remove(slot);
        } else {
            self.note_references(slot);
        }
        left
    }

    pub(crate) fn remove(&mut self, Slot(slot): Slot) {
        let entry = *self.entry(slot);
        match entry.previous {
            NONE => self.pool_mut(entry.pool()).head = entry.next,
            previous => self.entry_mut(previous).next = entry.next,
        }
        if entry.next != NONE {
            self.entry_mut(entry.next).previous = entry.previous;
        }
        let now = self.now;
        self.change(entry.pool(), |pool| pool.subtract(&entry, now));
        self.vacate(slot);
        self.shrink();
    }

    /// A pool's records, newest first.
    pub(crate) fn entries(&self, id: PoolId) -> impl Iterator<Item = (Slot, &Entry)> {
        let mut slot = self.pool(id).head;
        std::iter::from_fn(move || {
            let entry = (slot != NONE).then(|| self.entry(slot))?;
            let this = Slot(slot);
            slot = entry.next;
            Some((this, entry))
        })
    }

    /// A program's records in a pool of a program space.
    pub(crate) fn records_of_program(
        &self,
        id: PoolId,
        program: u32,
    ) -> impl Iterator<Item = (Slot, &Entry)> {
        let own = self.of_programs.range((id.0, program, 0)..=(id.0, program, u32::MAX));
        own.map(|&(.., slot)| (Slot(slot), self.entry(slot)))
    }

    /// Live records in the slots from `cursor` on, and the next cursor.
    pub(crate) fn page(&self, cursor: usize, places: usize) -> (impl Iterator<Item = &Entry>, Option<usize>) {
        let total = self.chunks.len().saturating_sub(1) * CHUNK + self.chunks.last().map_or(0, Vec::len);
        let end = cursor.saturating_add(places).min(total);
        let entries = (cursor..end).map(|slot| self.entry(slot as u32)).filter(|entry| entry.pool != NONE);
        (entries, (end < total).then_some(end))
    }

    /// Live records with their slots, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let places = (0..).zip(self.chunks.iter().flatten());
        places.filter(|(_, entry)| entry.pool != NONE)
    }

    /// The record in a slot.
    pub(crate) fn at(&self, slot: u32) -> &Entry {
        self.entry(slot)
    }

    /// Bound of the numbers of pools.
    pub(crate) fn pool_room(&self) -> usize {
        self.pools.len()
    }

    fn entry(&self, slot: u32) -> &Entry {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    fn occupy(&mut self, entry: Entry) -> u32 {
        if self.vacant != NONE {
            let slot = self.vacant;
            self.vacant = self.entry(slot).next;
            *self.entry_mut(slot) = entry;
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        chunk.push(entry);
        (number * CHUNK + chunk.len() - 1) as u32
    }

    /// Removes a record from the index and frees its slot; the list is up to the caller.
    fn vacate(&mut self, slot: u32) {
        let entry = *self.entry(slot);
        self.count_shared(&entry, slot, false);
        if self.pool(entry.pool()).key.space.is_program() {
            self.of_programs.remove(&(entry.pool, entry.program, slot));
        }
        let hash = self.hash(entry.pool(), entry.id, entry.program);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        let vacant = self.vacant;
        let entry = self.entry_mut(slot);
        (entry.pool, entry.next) = (NONE, vacant);
        self.vacant = slot;
        self.live -= 1;
    }

    /// Frees memory when the last record is gone, so that one large process does not leave its mark for good.
    fn shrink(&mut self) {
        if self.live == 0 && self.chunks.len() > 1 {
            self.chunks = Vec::new();
            self.vacant = NONE;
            self.index = HashTable::new();
        }
    }
}

/// A multiply that keeps both halves of its product mixes well and needs no table.
fn mix(seed: u64, place: u32, tag: u32, id: u64) -> u64 {
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        (product >> 64) as u64 ^ product as u64
    }
    let place = u64::from(tag) << 32 | u64::from(place);
    fold(fold(id ^ seed, 0x9e37_79b9_7f4a_7c15) ^ place, seed | 0xd6e8_feb8_6659_fd93)
}
