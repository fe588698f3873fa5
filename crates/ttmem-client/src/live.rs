//! Where a live allocation's slot is: a private map from its identity to the number of its slot.
//!
//! Linear probing over 8-byte entries, half of them free: finding one costs one cache line, at any number of them. An
//! entry is the upper half of the hash, which is also where it belongs, and the slot; whether it is the right one the
//! slot itself tells.

use crate::memory::Array;

pub(crate) struct Live {
    /// Upper half: tag. Lower half: slot + 1, or 0 for nobody.
    entries: Array<u64>,
    bits: u32,
    len: usize,
}

const FIRST_BITS: u32 = 12;
const MOST_BITS: u32 = 24;
/// Up to this size (128 KiB) room costs little.
const SPACIOUS_BITS: u32 = 14;
/// From this size on (2 MiB) large pages are worth asking for.
const HUGE_BITS: u32 = 18;

impl Live {
    pub(crate) fn new() -> Option<Self> {
        Some(Self { entries: Array::new(1 << FIRST_BITS)?, bits: FIRST_BITS, len: 0 })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn home(entry: u64, bits: u32) -> usize {
        (entry >> (64 - bits)) as usize
    }

    /// Something with this hash will be looked for in a moment.
    #[inline]
    pub(crate) fn expect(&self, hash: u64) {
        self.entries.prefetch(Self::home(hash, self.bits));
    }

    /// The slot with this hash that `is_it`, and where its entry is.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<(u32, usize)> {
        let mask = self.entries.len() - 1;
        let mut at = Self::home(hash, self.bits);
        // At most half of the entries are taken, so this ends.
        loop {
            let entry = self.entries[at & mask];
            if entry == 0 {
                return None;
            }
            if entry >> 32 == hash >> 32 {
                let slot = (entry as u32) - 1;
                if is_it(slot) {
                    return Some((slot, at & mask));
                }
            }
            at += 1;
        }
    }

    /// Adds a slot. `false`: there is no memory for it.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) -> bool {
        // While it is small it is kept nearly empty: a probe that does not end where it begins is one that the processor
        // did not foresee.
        let room = if self.bits <= SPACIOUS_BITS { 8 } else { 2 };
        if (self.len + 1) * room > self.entries.len() && !self.grow() {
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
        if self.bits == MOST_BITS {
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
        (self.entries, self.bits) = (entries, bits);
        true
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        if let Some((_, at)) = self.find(hash, |it| it == slot) {
            self.remove_at(at);
        }
    }

    /// Takes an entry out. Whoever was pushed on by it moves back, so that no mark of it stays.
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
            // It may move if its home is not between the hole and itself.
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

/// Mixes a key of three words. A multiply that keeps both halves of its product needs no table.
#[inline]
pub(crate) fn hash(a: u64, b: u64, c: u64) -> u64 {
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
        fn it_finds_what_a_plain_map_finds(
            steps in prop::collection::vec((0u64..90, any::<bool>()), 0..600), clash in any::<bool>()
        ) {
            // Few tags, so that neighbours and wrapping round are common.
            let hash_of = |key: u64| if clash { (key % 7 + 250) << 56 } else { hash(key, 1, 2) };
            let mut live = Live::new().unwrap();
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (step, (key, comes)) in steps.into_iter().enumerate() {
                let key_of: BTreeMap<u32, u64> = model.iter().map(|(&k, &s)| (s, k)).collect();
                let found = live.find(hash_of(key), |slot| key_of.get(&slot) == Some(&key));
                let found = found.map(|(slot, _)| slot);
                prop_assert_eq!(found, model.get(&key).copied());
                if let (Some(slot), false) = (found, comes) {
                    live.remove(hash_of(key), slot);
                    model.remove(&key);
                } else if found.is_none() && comes {
                    prop_assert!(live.insert(hash_of(key), step as u32));
                    model.insert(key, step as u32);
                }
                prop_assert_eq!(live.len(), model.len());
            }
        }
    }

    #[test]
    fn it_grows_and_keeps_everyone() {
        let mut live = Live::new().unwrap();
        for n in 0..200_000u32 {
            assert!(live.insert(hash(u64::from(n) << 5, 0, 0), n));
        }
        for n in 0..200_000u32 {
            assert_eq!(live.find(hash(u64::from(n) << 5, 0, 0), |slot| slot == n).map(|it| it.0), Some(n));
        }
    }
}
