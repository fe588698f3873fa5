//! A ledger as part of a keyframe.
//!
//! Sums are not stored but counted again, so that a ledger that was restored keeps its promise: totals equal the sum of the
//! records. A keyframe that contradicts itself is an error.

use super::pool::Growth;
use super::site_sums::SitesFrame;
use super::{CHUNK, Entry, Ledger, NONE, Nature, Pool, PoolId, PoolKey};
use crate::input::Holding;
use crate::words::{Layout, Mono, Scope, Space};
use hashbrown::HashTable;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_types::limits::MAX_ALLOCATION_BYTES;

/// No state has counted as far.
pub(crate) const COUNTER_LIMIT: u64 = 1 << 62;

/// `P` is a pool, borrowed to be written or owned when it is read.
#[derive(Serialize, Deserialize)]
struct LedgerFrame<P> {
    seed: u64,
    clock: u64,
    version: u64,
    now: Mono,
    /// Vacant slots, the one that is used next first.
    vacant: Vec<u32>,
    pools: Vec<Option<P>>,
    vacant_pools: Vec<u32>,
    places: Vec<((Scope, Space), u32)>,
    place_count: u32,
    vacant_places: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct PoolFrame<R> {
    key: PoolKey,
    opened: u64,
    place: u32,
    peak: u64,
    peak_at: Mono,
    changed_at: Mono,
    measured: u64,
    low: u64,
    growth: Growth,
    level: Option<u64>,
    unlisted: Holding,
    version: u64,
    sites: SitesFrame,
    /// Newest first.
    records: R,
}

#[derive(Serialize, Deserialize)]
struct Record {
    slot: u32,
    id: u64,
    requested: u64,
    occupied: u64,
    bytes_per_bank: u64,
    allocated_at: u64,
    refs: u32,
    cores: u32,
    program: u32,
    site: u32,
    banks: u16,
    nature: Nature,
    layout: Layout,
}

impl Record {
    fn new(slot: u32, entry: &Entry) -> Self {
        let &Entry { id, requested, occupied, bytes_per_bank, allocated_at, .. } = entry;
        let &Entry { refs, cores, program, site, banks, nature, layout, .. } = entry;
        Self {
            slot,
            id,
            requested,
            occupied,
            bytes_per_bank,
            allocated_at,
            refs,
            cores,
            program,
            site,
            banks,
            nature,
            layout,
        }
    }

    /// The entry, in no list yet; `None` if input could not have made it.
    fn entry(&self, pool: PoolId, space: Space) -> Option<Entry> {
        let entry = Entry {
            occupied: self.occupied,
            bytes_per_bank: self.bytes_per_bank,
            refs: self.refs,
            cores: self.cores,
            program: self.program,
            site: self.site,
            banks: self.banks,
            nature: self.nature,
            layout: self.layout,
            pool: pool.0,
            ..Entry::new(self.id, self.requested, self.allocated_at)
        };
        let bytes = self.requested.max(self.occupied).max(self.bytes_per_bank).max(entry.charged());
        let fits = space == Space::Kernel || self.id.checked_add(self.requested).is_some();
        (self.requested > 0 && self.refs > 0 && bytes <= MAX_ALLOCATION_BYTES && fits).then_some(entry)
    }
}

/// The records of a pool, written one by one.
struct Records<'a>(&'a Ledger, PoolId);

impl Serialize for Records<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ledger, pool) = *self;
        let records = ledger.entries(pool).map(|(slot, entry)| Record::new(slot.0, entry));
        serializer.collect_seq(records)
    }
}

impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frame = |number: usize, pool: &Pool| PoolFrame {
            key: pool.key,
            opened: pool.opened,
            place: pool.place,
            peak: pool.peak,
            peak_at: pool.peak_at,
            changed_at: pool.changed_at,
            measured: pool.measured,
            low: pool.low,
            growth: pool.growth,
            level: pool.level,
            unlisted: pool.unlisted,
            version: pool.version,
            sites: pool.sites_frame(),
            records: Records(self, PoolId(number as u32)),
        };
        let pools = self.pools.iter().enumerate();
        let mut vacant = Vec::new();
        let mut slot = self.vacant;
        while slot != NONE {
            vacant.push(slot);
            slot = self.entry(slot).next;
        }
        LedgerFrame {
            seed: self.seed,
            clock: self.clock,
            version: self.version,
            now: self.now,
            vacant,
            pools: pools.map(|(number, pool)| pool.as_ref().map(|it| frame(number, it))).collect(),
            vacant_pools: self.vacant_pools.clone(),
            places: self.places.iter().map(|(&key, &place)| (key, place)).collect(),
            place_count: self.pools_of_place.len() as u32,
            vacant_places: self.vacant_places.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ledger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let frame = LedgerFrame::<PoolFrame<Vec<Record>>>::deserialize(deserializer)?;
        Self::restore(frame).map_err(D::Error::custom)
    }
}

/// Whether numbers are below a bound, and each once.
fn are_distinct(numbers: &[u32], bound: usize) -> bool {
    let distinct: BTreeSet<&u32> = numbers.iter().collect();
    distinct.len() == numbers.len() && numbers.iter().all(|&number| (number as usize) < bound)
}

impl Ledger {
    fn restore(frame: LedgerFrame<PoolFrame<Vec<Record>>>) -> Result<Self, &'static str> {
        let records: usize = frame.pools.iter().flatten().map(|pool| pool.records.len()).sum();
        let slots = records + frame.vacant.len();
        let count = frame.pools.len();
        let free_pools = frame.pools.iter().filter(|pool| pool.is_none()).count();
        if frame.clock.max(frame.version) > COUNTER_LIMIT {
            return Err("a counter of the keyframe is about to overflow");
        }
        if slots >= NONE as usize || !are_distinct(&frame.vacant, slots) {
            return Err("a vacant slot of the keyframe is not one");
        }
        let is_free = |&number: &u32| frame.pools.get(number as usize).is_some_and(Option::is_none);
        if !are_distinct(&frame.vacant_pools, count)
            || frame.vacant_pools.len() != free_pools
            || !frame.vacant_pools.iter().all(is_free)
        {
            return Err("a free number of a pool is not one");
        }
        let mut ledger = Self {
            clock: frame.clock,
            version: frame.version,
            now: frame.now,
            vacant_pools: frame.vacant_pools,
            places: frame.places.into_iter().collect(),
            index: HashTable::with_capacity(records),
            ..Self::new(frame.seed)
        };
        ledger.restore_places(frame.place_count, &frame.pools, frame.vacant_places)?;
        for from in (0..slots).step_by(CHUNK) {
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.resize(CHUNK.min(slots - from), Entry::new(0, 0, 0));
            ledger.chunks.push(chunk);
        }
        let mut is_used = vec![false; slots];
        for &slot in frame.vacant.iter().rev() {
            is_used[slot as usize] = true;
            ledger.entry_mut(slot).next = ledger.vacant;
            ledger.vacant = slot;
        }
        for pool in &frame.pools {
            ledger.pools.push(pool.as_ref().map(|pool| restore_pool(pool, frame.version)).transpose()?);
        }
        for (number, pool) in frame.pools.iter().enumerate() {
            let Some(pool) = pool else { continue };
            for record in pool.records.iter().rev() {
                let id = PoolId(number as u32);
                let entry =
                    record.entry(id, pool.key.space).ok_or("a record of the keyframe is impossible")?;
                let used = is_used.get_mut(record.slot as usize).ok_or("a record has no slot")?;
                if std::mem::replace(used, true) {
                    return Err("two records have the same slot");
                }
                ledger.restore_record(id, record.slot, entry);
            }
            ledger.pool_mut(PoolId(number as u32)).restore_sites(&pool.sites);
        }
        Ok(ledger)
    }

    /// Counts the pools of each place, and checks that those which share one are meant to.
    fn restore_places<R>(
        &mut self,
        count: u32,
        pools: &[Option<PoolFrame<R>>],
        vacant: Vec<u32>,
    ) -> Result<(), &'static str> {
        // Every place was made for a pool, is vacant, or has a name.
        let most = pools.len() + vacant.len() + self.places.len();
        if count as usize > most || !are_distinct(&vacant, count as usize) {
            return Err("a vacant place of the keyframe is not one");
        }
        self.pools_of_place = vec![0; count as usize];
        let named: BTreeMap<u32, (Scope, Space)> =
            self.places.iter().map(|(&key, &place)| (place, key)).collect();
        if named.len() != self.places.len() || named.keys().any(|&place| place >= count) {
            return Err("two names of places mean the same");
        }
        for PoolFrame { key, place, .. } in pools.iter().flatten() {
            let is_shared = matches!(key.scope, Scope::Chip(_)) && !key.space.is_program();
            let expected = is_shared.then_some((key.scope, key.space));
            if named.get(place).copied() != expected {
                return Err("a pool of the keyframe is in a wrong place");
            }
            let pools = self.pools_of_place.get_mut(*place as usize).ok_or("a pool has no place")?;
            *pools += 1;
            if !is_shared && *pools > 1 {
                return Err("two pools of the keyframe have the same place");
            }
        }
        let is_empty = |place: &u32| self.pools_of_place[*place as usize] == 0 && !named.contains_key(place);
        if !vacant.iter().all(is_empty) {
            return Err("a vacant place of the keyframe is in use");
        }
        self.vacant_places = vacant;
        Ok(())
    }

    fn restore_record(&mut self, id: PoolId, slot: u32, mut entry: Entry) {
        let head = self.pool(id).head;
        entry.next = head;
        *self.entry_mut(slot) = entry;
        let pool = self.pool_mut(id);
        pool.add(&entry);
        pool.head = slot;
        if head != NONE {
            self.entry_mut(head).previous = slot;
        }
        self.add_to_index(id, slot, &entry);
    }
}

fn restore_pool<R>(frame: &PoolFrame<R>, version: u64) -> Result<Pool, &'static str> {
    let Holding { requested, allocated, count } = frame.unlisted;
    if frame.version > version || frame.opened > version {
        return Err("a pool of the keyframe is newer than its ledger");
    }
    if requested.max(allocated).max(frame.level.unwrap_or(0)) > MAX_ALLOCATION_BYTES
        || count >= u64::from(NONE)
    {
        return Err("a pool of the keyframe has an impossible size");
    }
    let mut pool = Pool::new(frame.key, frame.place, frame.opened);
    pool.set_unlisted(frame.unlisted);
    pool.level = frame.level;
    (pool.peak, pool.peak_at, pool.changed_at) = (frame.peak, frame.peak_at, frame.changed_at);
    (pool.measured, pool.low, pool.growth) = (frame.measured, frame.low, frame.growth);
    pool.version = frame.version;
    Ok(pool)
}
