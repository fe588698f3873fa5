//! How to make room in a bank: which buffers to free, and where buffers go that are allocated again.
//!
//! The runtime's allocators place a buffer into the first free block by address that is large enough: from below in DRAM, from above
//! in L1.

use crate::ranges::Range;
use ttmem_types::Window;

/// A buffer in a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) range: Range,
    /// The group it belongs to.
    pub(super) group: u32,
    /// Its place in the caller's list.
    pub(super) index: u32,
}

/// Sorts buffers by address, cuts them at the end of the bank and leaves out what others cover.
pub(super) fn sort(bank: Range, buffers: &mut Vec<Placed>) {
    buffers.retain(|it| it.range.start < bank.end && it.range.end > bank.start && it.range.len() > 0);
    buffers.sort_unstable_by_key(|it| (it.range.start, it.range.end, it.group));
    let mut covered = bank.start;
    buffers.retain_mut(|it| {
        it.range = Range { start: it.range.start.max(covered), end: it.range.end.min(bank.end) };
        let is_own = it.range.start < it.range.end;
        covered = covered.max(it.range.end);
        is_own
    });
}

/// Free blocks between sorted buffers.
pub(super) fn holes(bank: Range, buffers: &[Placed]) -> Vec<Range> {
    let starts = std::iter::once(bank.start).chain(buffers.iter().map(|it| it.range.end));
    let ends = buffers.iter().map(|it| it.range.start).chain([bank.end]);
    starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| Range { start, end }).collect()
}

/// The neighbouring buffers with the fewest bytes whose freeing leaves a free block of `needed` bytes; `None` if the bank is smaller.
pub(super) fn cheapest_window(bank: Range, buffers: &[Placed], needed: u64) -> Option<Window> {
    let range = |n: usize| buffers[n].range.start..buffers[n].range.end;
    ttmem_types::cheapest_window(bank.start..bank.end, buffers.len(), range, needed)
}

/// The largest free block if all buffers of a group are freed.
pub(super) fn largest_without(bank: Range, buffers: &[Placed], group: u32) -> u64 {
    let (mut start, mut largest) = (bank.start, 0);
    for buffer in buffers.iter().filter(|it| it.group != group) {
        largest = largest.max(buffer.range.start - start);
        start = buffer.range.end;
    }
    largest.max(bank.end - start)
}

/// Where buffers of these sizes go that are allocated one after the other from above: each address, or `None` for one that fits
/// nowhere above `lowest`.
pub(super) fn place_from_above(mut holes: Vec<Range>, sizes: &[u64], lowest: u64) -> Vec<Option<u64>> {
    let mut places = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let hole = holes.iter_mut().rev().find(|hole| hole.len() >= size);
        places.push(hole.and_then(|hole| {
            hole.end -= size;
            (hole.end >= lowest).then_some(hole.end)
        }));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BANK: Range = Range { start: 64, end: 1064 };

    fn buffers() -> impl Strategy<Value = Vec<Placed>> {
        let one = (0u64..1100, 1u64..80, 0u32..5);
        let placed = |(start, len, group)| Placed { range: Range::new(start, len), group, index: 0 };
        prop::collection::vec(one.prop_map(placed), 0..12).prop_map(|mut all| {
            sort(BANK, &mut all);
            all
        })
    }

    /// The largest free block of a map of bytes.
    fn largest(all: &[Placed], is_freed: impl Fn(usize) -> bool) -> u64 {
        let used = |at: u64| {
            let mut live = all.iter().enumerate().filter(|&(n, _)| !is_freed(n));
            live.any(|(_, it)| (it.range.start..it.range.end).contains(&at))
        };
        let (mut run, mut most) = (0, 0);
        for at in BANK.start..BANK.end {
            run = if used(at) { 0 } else { run + 1 };
            most = most.max(run);
        }
        most
    }

    proptest! {
        #[test]
        fn window_is_the_cheapest_of_all_sets(all in buffers(), needed in 1u64..1200) {
            let sets = 0u32..1 << all.len();
            let freed = |set: u32| (0..all.len()).filter(|&n| set >> n & 1 == 1).map(|n| all[n].range.len()).sum::<u64>();
            let fits = |set: &u32| largest(&all, |n| set >> n & 1 == 1) >= needed;
            let cheapest = if all.len() > 7 { None } else { sets.filter(fits).map(freed).min() };
            let found = cheapest_window(BANK, &all, needed);
            if all.len() <= 7 {
                prop_assert_eq!(found.as_ref().map(|it| it.freed), cheapest);
            }
            if let Some(Window { buffers, block, freed }) = found {
                let len = block.end - block.start;
                prop_assert!(len >= needed && largest(&all, |n| buffers.contains(&n)) >= len);
                prop_assert_eq!(freed, all[buffers].iter().map(|it| it.range.len()).sum::<u64>());
            }
        }

        #[test]
        fn groups_leave_the_block_of_a_map_of_bytes(all in buffers(), group in 0u32..5) {
            prop_assert_eq!(largest_without(BANK, &all, group), largest(&all, |n| all[n].group == group));
            let holes = holes(BANK, &all);
            prop_assert_eq!(holes.iter().map(|hole| hole.len()).max().unwrap_or(0), largest(&all, |_| false));
        }

        #[test]
        fn places_do_not_overlap(all in buffers(), sizes in prop::collection::vec(1u64..200, 0..6), lowest in 0u64..1100) {
            let places = place_from_above(holes(BANK, &all), &sizes, lowest);
            let mut taken = all.clone();
            for (place, &size) in places.iter().zip(&sizes) {
                let Some(start) = *place else { continue };
                let range = Range::new(start, size);
                prop_assert!(range.start >= lowest.max(BANK.start) && range.end <= BANK.end);
                prop_assert!(taken.iter().all(|it| it.range.end <= range.start || it.range.start >= range.end));
                taken.push(Placed { range, group: 9, index: 0 });
            }
        }
    }

    #[test]
    fn two_small_neighbours_are_cheaper_than_a_large_buffer() {
        let at = |start, len| Placed { range: Range::new(start, len), group: 0, index: 0 };
        let mut all = vec![at(64, 400), at(500, 10), at(520, 10), at(600, 464)];
        sort(BANK, &mut all);
        let window = cheapest_window(BANK, &all, 136).unwrap();
        assert_eq!((window.buffers, window.block, window.freed), (1..3, 464..600, 20));
        assert_eq!(cheapest_window(BANK, &all, 1001), None, "larger than the bank");
    }
}
