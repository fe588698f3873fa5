//! The slots of live allocations: a private map from an allocation's identity to the number of its slot.
//!
//! Linear probing over 8-byte entries, of which at least half are free: a lookup reads one cache line, however many there are.
//! An entry is the upper half of the hash, which also gives its home position, and the slot. The caller compares the slot's
//! own words.

use crate::memory::Array;
use core::sync::atomic::{Ordering, compiler_fence};

pub(crate) struct SlotIndex {
    /// Upper half: tag. Lower half: slot + 1, or 0 for a free entry.
    entries: Array<u64>,
    bits: u32,
    len: usize,
    /// Most entries before it grows.
    most: usize,
    /// Whether the entries are being replaced.
    is_growing: bool,
}

const FIRST_BITS: u32 = 12;
const MAX_BITS: u32 = 24;
/// Up to this size (128 KiB) free entries cost little.
const SPARSE_BITS: u32 = 14;
/// From this size on (2 MiB) large pages are worth requesting.
const HUGE_BITS: u32 = 18;

impl SlotIndex {
    pub(crate) fn new() -> Option<Self> {
        let most = most_entries(FIRST_BITS);
        Some(Self {
            entries: Array::new(1 << FIRST_BITS)?,
            bits: FIRST_BITS,
            len: 0,
            most,
            is_growing: false,
        })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn home(entry: u64, bits: u32) -> usize {
        (entry >> (64 - bits)) as usize
    }

    /// Prefetches the entry of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.entries.prefetch(Self::home(hash, self.bits));
    }

    /// Returns the slot with this hash that `matches`, and the position of its entry.
    #[inline]
    pub(crate) fn find(&self, hash: u64, matches: impl Fn(u32) -> bool) -> Option<(u32, usize)> {
        let mask = self.entries.len() - 1;
        let mut at = Self::home(hash, self.bits);
        // At most half of the entries are used, so this ends.
        loop {
            let entry = self.entries[at & mask];
            if entry == 0 {
                return None;
            }
            if entry >> 32 == hash >> 32 {
                let slot = (entry as u32) - 1;
                if matches(slot) {
                    return Some((slot, at & mask));
                }
            }
            at += 1;
        }
    }

    /// Returns the position at which a hash can be added; `None` if there is none without growing, or an entry may be of the same
    /// key.
    #[inline]
    pub(crate) fn vacant(&self, hash: u64) -> Option<usize> {
        if self.len >= self.most {
            return None;
        }
        let mask = self.entries.len() - 1;
        let mut at = Self::home(hash, self.bits);
        loop {
            let entry = self.entries[at & mask];
            if entry == 0 {
                return Some(at & mask);
            }
            if entry >> 32 == hash >> 32 {
                return None;
            }
            at += 1;
        }
    }

    /// Adds a slot at the position that [`SlotIndex::vacant`] returned.
    #[inline]
    pub(crate) fn fill(&mut self, at: usize, hash: u64, slot: u32) {
        self.entries[at] = (hash >> 32) << 32 | u64::from(slot + 1);
        self.len += 1;
    }

    /// Adds a slot; `false` if there is no memory for it.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) -> bool {
        if self.len >= self.most && !self.grow() {
            return false;
        }
        Self::place(&mut self.entries, self.bits, (hash >> 32) << 32 | u64::from(slot + 1));
        self.len += 1;
        true
    }

    fn place(entries: &mut [u64], bits: u32, entry: u64) {
        let mask = entries.len() - 1;
        let mut at = Self::home(entry, bits);
        while entries[at & mask] != 0 {
            at += 1;
        }
        entries[at & mask] = entry;
    }

    fn grow(&mut self) -> bool {
        if self.bits == MAX_BITS {
            return false;
        }
        let bits = self.bits + 1;
        let Some(mut entries) = Array::new(1 << bits) else { return false };
        if bits >= HUGE_BITS {
            entries.advise_huge();
        }
        for &entry in self.entries.iter().filter(|&&entry| entry != 0) {
            Self::place(&mut entries, bits, entry);
        }
        self.is_growing = true;
        compiler_fence(Ordering::SeqCst);
        (self.entries, self.bits, self.most) = (entries, bits, most_entries(bits));
        compiler_fence(Ordering::SeqCst);
        self.is_growing = false;
        true
    }

    /// Removes all slots, even if an earlier call never ended; `false` if there is no memory for that.
    #[cold]
    pub(crate) fn clear(&mut self) -> bool {
        if self.is_growing {
            // The entries may be unmapped already, so they are not released.
            let Some(new) = Self::new() else { return false };
            core::mem::forget(core::mem::replace(self, new));
        }
        self.entries.fill(0);
        self.len = 0;
        true
    }

    /// Removes a slot.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        if let Some((_, at)) = self.find(hash, |found| found == slot) {
            self.remove_at(at);
        }
    }

    /// Removes an entry. Entries that it had displaced move back, so no tombstone is needed.
    #[inline]
    pub(crate) fn remove_at(&mut self, mut hole: usize) {
        let mask = self.entries.len() - 1;
        let mut at = hole;
        loop {
            at += 1;
            let entry = self.entries[at & mask];
            if entry == 0 {
                break;
            }
            // An entry may move if its home is not between the hole and itself.
            let home = Self::home(entry, self.bits);
            if at.wrapping_sub(home) & mask >= at - hole {
                self.entries[hole & mask] = entry;
                hole = at;
            }
        }
        self.entries[hole & mask] = 0;
        self.len -= 1;
    }
}

/// Most entries of a map of this size. A small map is kept nearly empty: a probe that does not end at its home position is a branch
/// misprediction.
fn most_entries(bits: u32) -> usize {
    if bits <= SPARSE_BITS { 1 << (bits - 3) } else { 1 << (bits - 1) }
}

/// Hashes a key of three words. A multiplication that keeps both halves of its product needs no table.
#[inline]
pub fn hash(a: u64, b: u64, c: u64) -> u64 {
    const fn fold(a: u64, b: u64) -> u64 {
        let product = a as u128 * b as u128;
        (product >> 64) as u64 ^ product as u64
    }
    fold(fold(a ^ 0x2d35_8dcc_aa6c_78a5, b ^ 0x9e37_79b9_7f4a_7c15) ^ c, 0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn index_matches_a_plain_map(
            steps in prop::collection::vec((0u64..90, any::<bool>()), 0..600), clash in any::<bool>()
        ) {
            // Few tags, so that neighbours and wrapping round are common.
            let hash_of = |key: u64| if clash { (key % 7 + 250) << 56 } else { hash(key, 1, 2) };
            let mut index = SlotIndex::new().unwrap();
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (step, (key, inserts)) in steps.into_iter().enumerate() {
                let key_of: BTreeMap<u32, u64> = model.iter().map(|(&k, &s)| (s, k)).collect();
                let found = index.find(hash_of(key), |slot| key_of.get(&slot) == Some(&key));
                let found = found.map(|(slot, _)| slot);
                prop_assert_eq!(found, model.get(&key).copied());
                if let (Some(slot), false) = (found, inserts) {
                    index.remove(hash_of(key), slot);
                    model.remove(&key);
                } else if found.is_none() && inserts {
                    prop_assert!(index.insert(hash_of(key), step as u32));
                    model.insert(key, step as u32);
                }
                prop_assert_eq!(index.len(), model.len());
            }
        }
    }

    #[test]
    fn growing_keeps_every_entry() {
        let mut index = SlotIndex::new().unwrap();
        for n in 0..200_000u32 {
            assert!(index.insert(hash(u64::from(n) << 5, 0, 0), n));
        }
        for n in 0..200_000u32 {
            let found = index.find(hash(u64::from(n) << 5, 0, 0), |slot| slot == n);
            assert_eq!(found.map(|(slot, _)| slot), Some(n));
        }
    }
}
