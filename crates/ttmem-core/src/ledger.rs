//! Every live allocation, and the totals that always equal their sum.
//!
//! Records lie in chunks that never move, found through an index of 4-byte slots, so that a million live buffers
//! cost about 80 bytes each at any number (a map of whole records would double at the wrong moment). Records of
//! one pool form a list: when a process dies, only its own records are visited. The index goes by place and id, not
//! by owner, so records of several processes at one address of one chip lie side by side and are noticed at once.

use crate::event::Holding;
use crate::ranges::Range;
use crate::skyline::{Edge, Skyline};
use crate::words::{Basis, KernelClass, Layout, Mono, ProcessId, Scope, Space, Uncertainty};
use hashbrown::HashTable;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_types::charge;

/// One process's memory of one space in one scope, by one basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(crate) process: ProcessId,
    pub(crate) scope: Scope,
    pub(crate) space: Space,
    pub(crate) basis: Basis,
}

/// Number of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolId(u32);

impl PoolId {
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// Number of a record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// End of a list, or no pool.
const NONE: u32 = u32::MAX;

/// One live allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) requested: u64,
    /// 0 where the pool's basis does not know it, as `bytes_per_bank` and `banks`.
    pub(crate) occupied: u64,
    pub(crate) bytes_per_bank: u64,
    /// When it came, made unique: later allocations have larger values.
    pub(crate) born: u64,
    pool: u32,
    previous: u32,
    next: u32,
    pub(crate) refs: u32,
    pub(crate) cores: u32,
    pub(crate) program: u32,
    pub(crate) site: u32,
    pub(crate) banks: u16,
    pub(crate) nature: Nature,
    pub(crate) layout: Layout,
}

/// The class of a kernel, and what is not known of it, in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nature(u8);

impl Nature {
    const UNPLACED: u8 = 4;
    const ESTIMATED: u8 = 8;
    const UNFOLLOWED: u8 = 16;

    pub(crate) fn new(class: KernelClass, uncertainty: Uncertainty) -> Self {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Self(
            class as u8
                | flag(uncertainty.unplaced, Self::UNPLACED)
                | flag(uncertainty.estimated, Self::ESTIMATED)
                | flag(uncertainty.unfollowed, Self::UNFOLLOWED),
        )
    }

    pub(crate) fn class(self) -> KernelClass {
        KernelClass::from_number(self.0 & 3).unwrap_or_default()
    }

    pub(crate) fn uncertainty(self) -> Uncertainty {
        Uncertainty {
            unplaced: self.0 & Self::UNPLACED != 0,
            estimated: self.0 & Self::ESTIMATED != 0,
            unfollowed: self.0 & Self::UNFOLLOWED != 0,
        }
    }
}

const _: () = assert!(size_of::<Entry>() == 72, "the budget is 96 bytes a buffer with the index");

impl Entry {
    /// What it is charged with: where that is not known, what was asked for.
    pub(crate) fn charged(&self) -> u64 {
        self.allocated().unwrap_or(self.requested)
    }

    /// What the allocator charges, where that is known.
    pub(crate) fn allocated(&self) -> Option<u64> {
        charge(self.bytes_per_bank, self.banks)
    }

    pub(crate) fn pool(&self) -> PoolId {
        PoolId(self.pool)
    }
}

/// Sums over a pool's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) requested: u64,
    pub(crate) occupied: u64,
    /// What is charged; of records that do not say, what was asked for.
    pub(crate) allocated: u64,
    pub(crate) count: u64,
    /// Records that do not say what they are charged with.
    pub(crate) uncharged: u64,
    /// Records that do not say what they occupy.
    pub(crate) vague: u64,
    /// Records of other allocators' buffers and of views of buffers, and what they take here. They are nobody's use:
    /// `count` has them, nothing else does.
    pub(crate) mirrors: u64,
    pub(crate) mirrored: u64,
    /// Records of which nobody knows whether they are resident. None of them is in `uncharged`.
    pub(crate) unfollowed: u64,
    /// What is charged by estimates.
    pub(crate) estimated: u64,
}

impl Totals {
    /// What the allocator itself counts: what it handed out, and what it keeps clear of.
    pub(crate) fn held(self) -> u64 {
        self.allocated.saturating_add(self.mirrored)
    }

    /// Records that are somebody's use.
    pub(crate) fn own_count(self) -> u64 {
        self.count - self.mirrors
    }

    pub(crate) fn add(&mut self, entry: &Entry) {
        if entry.layout.is_alias() {
            self.count += 1;
            self.mirrors += 1;
            self.mirrored += entry.charged();
            return;
        }
        self.requested += entry.requested;
        self.occupied += entry.occupied;
        self.allocated += entry.charged();
        self.count += 1;
        let uncertainty = entry.nature.uncertainty();
        self.unfollowed += u64::from(uncertainty.unfollowed);
        self.estimated += if uncertainty.estimated { entry.charged() } else { 0 };
        self.uncharged += u64::from(entry.banks == 0 && !uncertainty.unfollowed);
        self.vague += u64::from(entry.occupied == 0);
    }

    fn subtract(&mut self, entry: &Entry) {
        if entry.layout.is_alias() {
            self.count -= 1;
            self.mirrors -= 1;
            self.mirrored -= entry.charged();
            return;
        }
        self.requested -= entry.requested;
        self.occupied -= entry.occupied;
        self.allocated -= entry.charged();
        self.count -= 1;
        let uncertainty = entry.nature.uncertainty();
        self.unfollowed -= u64::from(uncertainty.unfollowed);
        self.estimated -= if uncertainty.estimated { entry.charged() } else { 0 };
        self.uncharged -= u64::from(entry.banks == 0 && !uncertainty.unfollowed);
        self.vague -= u64::from(entry.occupied == 0);
    }
}

/// A record that came or went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    range: Range,
    /// Whether it is the pool's own, and not only kept clear of.
    own: bool,
    came: bool,
}

impl Change {
    /// What it does to a skyline, of the pool's own records or of all.
    pub(crate) fn edges(self, own: bool) -> impl Iterator<Item = Edge> {
        let by = if self.came { 1 } else { -1 };
        let counts = self.range.start < self.range.end && (self.own || !own);
        [(self.range.start, by), (self.range.end, -by)].into_iter().filter(move |_| counts)
    }
}

/// Changes of a pool's records, for views that follow them. Nobody does until the first look, and then the last ones are kept.
#[derive(Debug, Default)]
struct Log {
    followed: Cell<bool>,
    last: Vec<Change>,
    /// How many there were before those.
    before: u64,
}

impl Log {
    fn add(&mut self, change: Change, live: u64) {
        if !self.followed.get() {
            return;
        }
        let room = LOG_ROOM.max(live as usize / 4);
        if self.last.len() >= room {
            // Who has not seen the older half by now must begin anew.
            let half = self.last.len() / 2;
            self.last.drain(..half);
            self.before += half as u64;
        }
        self.last.push(change);
    }
}

/// Changes of a pool that there is room for at least; and for a quarter as many as it has records.
const LOG_ROOM: usize = 512;

/// A skyline of a pool's records, and how many changes it has taken in.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) skyline: Skyline,
    pub(crate) seen: u64,
}

/// A pool and its running figures.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) key: PoolKey,
    place: u32,
    pub(crate) totals: Totals,
    /// Highest [`Pool::used`] so far.
    pub(crate) peak: u64,
    pub(crate) peak_at: Mono,
    pub(crate) changed_at: Mono,
    /// [`Pool::used`] when what all hold was last looked at together with it.
    pub(crate) looked_at: u64,
    /// Lowest [`Pool::used`] since growth was last judged.
    pub(crate) low: u64,
    pub(crate) growth: Growth,
    /// A level set from outside, for a basis that has no records.
    pub(crate) level: Option<u64>,
    /// Held besides the records, which there was no room for; in `totals`, too.
    pub(crate) unlisted: Holding,
    head: u32,
    /// Larger after every change than any pool's before it, so that views know what they derived from.
    pub(crate) version: u64,
    /// Records that take nothing anywhere.
    pub(crate) empty: u64,
    log: Log,
    /// What the views derived from the records: of all, and of the pool's own.
    pub(crate) skylines: [RefCell<Option<Followed>>; 2],
}

/// How long a pool has only grown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    pub(crate) last_low: u64,
    pub(crate) rounds: u32,
    pub(crate) bytes: u64,
}

impl Pool {
    fn new(key: PoolKey, place: u32, version: u64) -> Self {
        Self {
            key,
            place,
            totals: Totals::default(),
            peak: 0,
            peak_at: Mono(0),
            changed_at: Mono(0),
            looked_at: 0,
            low: 0,
            growth: Growth::default(),
            level: None,
            unlisted: Holding::default(),
            head: NONE,
            version,
            empty: 0,
            log: Log::default(),
            skylines: Default::default(),
        }
    }

    /// The figure that peaks and growth are judged by: what the allocator charges, else what was asked for.
    pub(crate) fn used(&self) -> u64 {
        match (self.level, self.key.basis) {
            (Some(level), _) => level,
            (None, Basis::Exact) => self.totals.allocated,
            (None, _) => self.totals.requested,
        }
    }

    fn changed(&mut self, version: u64, now: Mono) {
        let used = self.used();
        if used > self.peak {
            (self.peak, self.peak_at) = (used, now);
        }
        self.low = self.low.min(used);
        (self.version, self.changed_at) = (version, now);
    }

    /// A record comes or goes.
    fn count(&mut self, entry: &Entry, came: bool) {
        let empty = u64::from(entry.bytes_per_bank == 0);
        if came {
            self.totals.add(entry);
            self.empty += empty;
        } else {
            self.totals.subtract(entry);
            self.empty -= empty;
        }
        let range = Range::new(entry.id, entry.bytes_per_bank);
        self.log.add(Change { range, own: entry.layout != Layout::Mirror, came }, self.totals.count);
    }

    /// How many changes there were, for those who follow them from here on.
    pub(crate) fn follow(&self) -> u64 {
        self.log.followed.set(true);
        self.log.before + self.log.last.len() as u64
    }

    /// The changes after so many, if they are still known.
    pub(crate) fn changes_since(&self, seen: u64) -> Option<&[Change]> {
        let skipped = seen.checked_sub(self.log.before)?;
        self.log.last.get(skipped as usize..)
    }

    /// What a record of a stacked space is found by besides its address.
    fn tag(&self, program: u32) -> u32 {
        if self.key.space.is_stacked() { program } else { 0 }
    }
}

const CHUNK: usize = 4096;

/// All live allocations.
pub(crate) struct Ledger {
    chunks: Vec<Vec<Entry>>,
    vacant: u32,
    live: usize,
    index: HashTable<u32>,
    /// What programs keep, by pool and program, so that the end of one visits its own records only.
    kept: BTreeSet<(u32, u32, u32)>,
    /// Makes the index's order unknown to those who choose ids. No output depends on it.
    seed: u64,
    pools: Vec<Option<Pool>>,
    vacant_pools: Vec<u32>,
    /// Where addresses mean the same to several pools: a chip's space of buffers, by number. Elsewhere each pool has a
    /// place of its own: an allocator's addresses are its own, and programs lie over each other by design.
    places: BTreeMap<(Scope, Space), u32>,
    /// By place: bytes of records whose address another process holds, too.
    shared: BTreeMap<u32, u64>,
    /// By place: how many pools are there. Alone, nothing can be shared.
    pools_of_place: Vec<u32>,
    vacant_places: Vec<u32>,
    clock: u64,
    version: u64,
    /// When changes happen from here on.
    pub(crate) now: Mono,
}

impl Ledger {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            chunks: Vec::new(),
            vacant: NONE,
            live: 0,
            index: HashTable::new(),
            kept: BTreeSet::new(),
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
        self.pools[id.0 as usize].as_ref().expect("a pool's number is given up only by `close`")
    }

    /// Changes a pool, and everything that follows from it.
    fn change(&mut self, id: PoolId, change: impl FnOnce(&mut Pool)) {
        self.version += 1;
        let (version, now) = (self.version, self.now);
        let pool = self.pool_mut(id);
        change(pool);
        pool.changed(version, now);
    }

    /// Drops what was derived from a pool's layout, which has changed.
    pub(crate) fn forget_layout(&mut self, id: PoolId) {
        self.change(id, |_| ());
    }

    /// Sets a level, for a basis that has no records.
    pub(crate) fn set_level(&mut self, id: PoolId, bytes: u64) {
        self.change(id, |pool| pool.level = Some(bytes));
    }

    /// Says what is held besides the records.
    pub(crate) fn set_unlisted(&mut self, id: PoolId, holding: Holding) {
        self.change(id, |pool| {
            let old = std::mem::replace(&mut pool.unlisted, holding);
            let totals = &mut pool.totals;
            totals.requested = totals.requested - old.requested + holding.requested;
            totals.allocated = totals.allocated - old.allocated + holding.allocated;
            totals.count = totals.count - old.count + holding.count;
            totals.vague = totals.vague - old.count + holding.count;
        });
    }

    /// Says what the peak is, where another knows that better: never less than what is in use.
    pub(crate) fn set_peak(&mut self, id: PoolId, bytes: Option<u64>) {
        self.version += 1;
        let (version, now) = (self.version, self.now);
        let pool = self.pool_mut(id);
        (pool.peak, pool.peak_at) = (pool.used().max(bytes.unwrap_or(0)), now);
        pool.version = version;
    }

    pub(crate) fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        self.pools[id.0 as usize].as_mut().expect("a pool's number is given up only by `close`")
    }

    /// Drops a pool and all its records, and returns what they were.
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

    /// Drops all records of a pool, and returns what they were.
    pub(crate) fn clear(&mut self, id: PoolId) -> Totals {
        let totals = self.pool(id).totals;
        let mut slot = self.pool(id).head;
        while slot != NONE {
            let next = self.entry(slot).next;
            self.take_out(slot);
            slot = next;
        }
        self.change(id, |pool| {
            pool.head = NONE;
            pool.totals = Totals::default();
            pool.empty = 0;
            pool.log = Log { before: pool.log.before + pool.log.last.len() as u64 + 1, ..Log::default() };
            pool.unlisted = Holding::default();
        });
        self.shrink();
        totals
    }

    /// Adds a record. `entry.born` is when it came, or the earliest it may be said to have come if it is to be told from
    /// others by its age.
    pub(crate) fn insert(&mut self, id: PoolId, mut entry: Entry, unique: bool) -> Slot {
        if unique {
            self.clock = entry.born.max(self.clock + 1);
            entry.born = self.clock;
        }
        let head = self.pool(id).head;
        (entry.pool, entry.previous, entry.next) = (id.0, NONE, head);
        let slot = self.occupy(entry);
        self.change(id, |pool| {
            pool.count(&entry, true);
            pool.head = slot;
        });
        if head != NONE {
            self.entry_mut(head).previous = slot;
        }
        self.count_shared(&entry, NONE, true);
        if self.pool(id).key.space.is_program() {
            self.kept.insert((id.0, entry.program, slot));
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
        Slot(slot)
    }

    fn hash(&self, pool: PoolId, id: u64, program: u32) -> u64 {
        let pool = self.pool(pool);
        mix(self.seed, pool.place, pool.tag(program), id)
    }

    /// Counts a record's share in what several processes hold at one address: of each address, all but its largest
    /// record. `slot` is where the record lies in the index, if it does.
    fn count_shared(&mut self, entry: &Entry, slot: u32, comes: bool) {
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
        *shared = if comes { *shared + with - without } else { *shared + without - with };
    }

    /// Bytes of a chip's space that lie at addresses which several processes hold.
    pub(crate) fn shared(&self, scope: Scope, space: Space) -> u64 {
        let place = self.places.get(&(scope, space));
        place.and_then(|place| self.shared.get(place)).copied().unwrap_or(0)
    }

    /// The pool's records with this id (and program, where programs lay several over one address), in no order.
    pub(crate) fn find(&self, pool: PoolId, id: u64, program: u32) -> impl Iterator<Item = (Slot, &Entry)> {
        let tag = self.pool(pool).tag(program);
        self.index.iter_hash(self.hash(pool, id, program)).map(|&slot| (Slot(slot), self.entry(slot))).filter(
            move |(_, entry)| entry.pool == pool.0 && entry.id == id && (tag == 0 || entry.program == tag),
        )
    }

    /// The pool's record with this id, where an id has but one: everywhere but in stacked spaces.
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

    /// Counts one more holder of a record.
    pub(crate) fn retain(&mut self, slot: Slot) -> u32 {
        let refs = &mut self.entry_mut(slot.0).refs;
        *refs = refs.saturating_add(1);
        *refs
    }

    /// Counts one holder less; the last one takes the record away. Returns how many are left.
    pub(crate) fn release(&mut self, slot: Slot) -> u32 {
        let entry = self.entry_mut(slot.0);
        entry.refs -= 1;
        let left = entry.refs;
        if left == 0 {
            self.remove(slot);
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
        self.change(entry.pool(), |pool| pool.count(&entry, false));
        self.take_out(slot);
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

    /// What a program keeps in a pool of a programs' space.
    pub(crate) fn kept_by(&self, id: PoolId, program: u32) -> impl Iterator<Item = (Slot, &Entry)> {
        let own = self.kept.range((id.0, program, 0)..=(id.0, program, u32::MAX));
        own.map(|&(.., slot)| (Slot(slot), self.entry(slot)))
    }

    /// Live records among the places from `cursor` on, and where to go on.
    pub(crate) fn page(&self, cursor: usize, places: usize) -> (impl Iterator<Item = &Entry>, Option<usize>) {
        let total = self.chunks.len().saturating_sub(1) * CHUNK + self.chunks.last().map_or(0, Vec::len);
        let end = cursor.saturating_add(places).min(total);
        let entries = (cursor..end).map(|slot| self.entry(slot as u32)).filter(|entry| entry.pool != NONE);
        (entries, (end < total).then_some(end))
    }

    /// Live records with their places, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let places = (0..).zip(self.chunks.iter().flatten());
        places.filter(|(_, entry)| entry.pool != NONE)
    }

    /// The record at a place.
    pub(crate) fn at(&self, slot: u32) -> &Entry {
        self.entry(slot)
    }

    /// How many numbers of pools there are.
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

    /// Takes a record out of the index and gives its place up; its list is the caller's.
    fn take_out(&mut self, slot: u32) {
        let entry = *self.entry(slot);
        self.count_shared(&entry, slot, false);
        if self.pool(entry.pool()).key.space.is_program() {
            self.kept.remove(&(entry.pool, entry.program, slot));
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

    /// Gives memory back once nothing is left, so that one large process does not mark the reader for life.
    fn shrink(&mut self) {
        if self.live == 0 && self.chunks.len() > 1 {
            self.chunks = Vec::new();
            self.vacant = NONE;
            self.index = HashTable::new();
        }
    }
}

/// A record as the state describes it, before it has a place.
pub(crate) fn entry(id: u64, requested: u64, born: u64) -> Entry {
    Entry {
        id,
        requested,
        occupied: 0,
        bytes_per_bank: 0,
        born,
        pool: NONE,
        previous: NONE,
        next: NONE,
        refs: 1,
        cores: 0,
        program: 0,
        site: 0,
        banks: 0,
        nature: Nature::new(KernelClass::Unknown, Uncertainty::default()),
        layout: Layout::Unknown,
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
