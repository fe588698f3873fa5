//! How long the buffers of a site lived.

use serde::{Deserialize, Serialize};

/// A buffer is a late survivor if it is older than so many median lives of the freed buffers of its site.
const LATE: u64 = 10;
/// Buffers of a site that were freed, at least, before others are late; and their share, one in so many, of those that are live.
const LEAST_FREED: u16 = 8;
const FREED_SHARE: u64 = 2;
/// By how much one life moves the estimate, in 1024ths of a power of two, and after how many lives by less.
const FIRST_STEP: u16 = 256;
const STEP: u16 = 32;
const FIRST_LIVES: u16 = 32;

/// An estimate of the median life of a site's freed buffers, in 4 bytes: each life moves it by a step towards itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lives {
    /// Buffers that were freed, up to the largest number.
    freed: u16,
    /// The logarithm of the life in nanoseconds, in 1024ths.
    median: u16,
}

impl Lives {
    /// A buffer was freed.
    #[inline]
    pub(super) fn add(&mut self, life: u64) {
        let life = logarithm(life);
        let step = if self.freed < FIRST_LIVES { FIRST_STEP } else { STEP };
        self.median = match self.freed {
            0 => life,
            _ if life > self.median => self.median.saturating_add(step).min(life),
            _ => self.median.saturating_sub(step).max(life),
        };
        self.freed = self.freed.saturating_add(1);
    }

    /// The median life in nanoseconds.
    fn median(self) -> u64 {
        let (power, rest) = (self.median >> 10, u64::from(self.median & 1023));
        if power > 50 { u64::MAX } else { (1024 + rest) << power >> 10 }
    }

    /// The age beyond which one of `live` buffers is a late survivor; `None`: too few were freed to say.
    pub(super) fn late(self, live: u64) -> Option<u64> {
        let is_share = self.freed == u16::MAX || u64::from(self.freed) * FREED_SHARE >= live;
        (self.freed >= LEAST_FREED && is_share).then(|| self.median().saturating_mul(LATE))
    }

    pub(super) fn is_empty(self) -> bool {
        self.freed == 0
    }
}

/// The logarithm of a duration to the base of 2, in 1024ths; linear between powers of two.
#[inline]
fn logarithm(nanoseconds: u64) -> u16 {
    let long = nanoseconds.max(1);
    let power = long.ilog2();
    let rest = (long << (63 - power)) >> 53 & 1023;
    (power << 10) as u16 | rest as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_freed_buffers_say_nothing() {
        let mut lives = Lives::default();
        for freed in 0..20 {
            assert_eq!(
                (lives.late(0).is_some(), lives.late(24).is_some()),
                (freed >= 8, freed >= 12),
                "{freed}"
            );
            assert_eq!(lives.is_empty(), freed == 0);
            lives.add(1024);
        }
        assert_eq!(lives.late(0), Some(1024 * LATE));
    }

    #[test]
    fn impossible_lives_are_no_error() {
        let mut lives = Lives::default();
        for life in [0, u64::MAX, 0, 1, u64::MAX] {
            lives.add(life);
        }
        assert_eq!((logarithm(0), logarithm(1), logarithm(u64::MAX)), (0, 0, u16::MAX));
        assert_eq!(Lives { freed: 9, median: u16::MAX }.late(0), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn single_life_is_the_median(life in 1u64..1 << 50) {
            let mut lives = Lives::default();
            lives.add(life);
            prop_assert!(lives.median() <= life && lives.median() >= life - life / 1000, "{}", lives.median());
        }

        /// The estimate is close to the median, whether buffers are freed one by one or many together, oldest first.
        #[test]
        fn estimate_is_close_to_the_median(seed in any::<u32>(), shift in 0u32..30, together in 1usize..60) {
            let mut random = u64::from(seed) | 1;
            let mut next = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random >> 20
            };
            let mut all: Vec<u64> = (0..1200).map(|_| (1000 + next() % 3000) << shift).collect();
            let mut lives = Lives::default();
            for batch in all.chunks_mut(together) {
                batch.sort_unstable_by_key(|&life| std::cmp::Reverse(life));
                for &life in batch.iter() {
                    lives.add(life);
                }
            }
            all.sort_unstable();
            let share = lives.median() as f64 / all[all.len() / 2] as f64;
            prop_assert!((0.4..2.0).contains(&share), "{share}");
        }
    }
}
