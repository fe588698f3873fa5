//! Sets of a chip's cores.

use serde::{Deserialize, Serialize};

/// A set of a chip's cores, by `y * 16 + x` of their logical coordinates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CoreSet([u64; 4]);

impl CoreSet {
    /// Columns of a row.
    pub const WIDTH: u8 = 16;
    /// Bound of the numbers of cores.
    pub const ROOM: usize = 256;

    /// One core that stands for each core, if a source does not report the cores.
    pub const UNKNOWN: Self = Self([1, 0, 0, 0]);

    /// The cores with the lowest numbers.
    pub fn first(count: u16) -> Self {
        let word = |n: u16| match count.saturating_sub(64 * n) {
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        };
        Self([word(0), word(1), word(2), word(3)])
    }

    /// The rectangle from `(x0, y0)` to `(x1, y1)`, both included. Coordinates beyond 16 x 16 are left out.
    pub fn rectangle((x0, y0): (u8, u8), (x1, y1): (u8, u8)) -> Self {
        let mut set = Self::default();
        for y in y0..=y1.min(15) {
            for x in x0..=x1.min(15) {
                set.insert(y * Self::WIDTH + x);
            }
        }
        set
    }

    /// The set with these bits: core `n` is bit `n mod 64` of word `n / 64`.
    pub fn from_words(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// Adds one core by its number.
    pub fn insert(&mut self, core: u8) {
        self.0[usize::from(core >> 6)] |= 1 << (core & 63);
    }

    /// All cores of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let mut all = self;
        for (mine, theirs) in all.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
        all
    }

    /// The cores that are in both sets.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        let mut both = self;
        for (mine, theirs) in both.0.iter_mut().zip(other.0) {
            *mine &= theirs;
        }
        both
    }

    /// The cores of this set that are not in the other one.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.within(Self(other.0.map(|word| !word)))
    }

    /// Whether it has no core.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// Whether it has the core with this number.
    pub fn has(self, core: usize) -> bool {
        self.0.get(core >> 6).is_some_and(|word| word >> (core & 63) & 1 != 0)
    }

    /// The set as few rectangles, `[x0, y0, x1, y1]` each, none of which overlap.
    pub fn rectangles(self) -> Vec<[u8; 4]> {
        let mut left = self;
        let mut found = Vec::new();
        while let Some(first) = left.iter().next() {
            let has = |x: usize, y: usize| left.has(y * 16 + x);
            let (x0, y0) = (first % 16, first / 16);
            let x1 = (x0..16).take_while(|&x| has(x, y0)).last().unwrap_or(x0);
            let y1 = (y0..16).take_while(|&y| (x0..=x1).all(|x| has(x, y))).last().unwrap_or(y0);
            let corners = [x0, y0, x1, y1].map(|n| n as u8);
            let taken = Self::rectangle((corners[0], corners[1]), (corners[2], corners[3]));
            left = left.without(taken);
            found.push(corners);
        }
        found
    }

    /// The cores, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut words = self.0;
        let mut word = 0;
        std::iter::from_fn(move || {
            while word < words.len() {
                let left = words[word];
                if left != 0 {
                    words[word] &= left - 1;
                    return Some(word << 6 | left.trailing_zeros() as usize);
                }
                word += 1;
            }
            None
        })
    }

    /// Number of cores.
    pub fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rectangles_are_the_same_cores(words in prop::array::uniform4(any::<u64>())) {
            let set = CoreSet::from_words(words);
            let mut all = CoreSet::default();
            let mut cores = 0;
            for [x0, y0, x1, y1] in set.rectangles() {
                let one = CoreSet::rectangle((x0, y0), (x1, y1));
                cores += one.count();
                all = all.with(one);
            }
            prop_assert_eq!((all, cores), (set, set.count()));
        }
    }

    #[test]
    fn rectangles_count_their_cores() {
        assert_eq!(CoreSet::rectangle((0, 0), (7, 7)).count(), 64);
        assert_eq!(CoreSet::rectangle((3, 2), (3, 2)).iter().collect::<Vec<_>>(), [35]);
        assert_eq!(CoreSet::rectangle((0, 0), (255, 255)).count(), 256);
        assert_eq!(CoreSet::rectangle((0, 0), (1, 1)).with(CoreSet::rectangle((1, 1), (2, 2))).count(), 7);
    }
}
