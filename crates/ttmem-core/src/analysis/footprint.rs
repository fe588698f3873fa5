//! How much L1 programs cover: on each core the union of address ranges.
//!
//! Circular buffers of cached programs share addresses, so that their sum counts the same bytes many times.

use crate::core_set::CoreSet;
use crate::ranges::{self, Range};
use std::collections::BTreeMap;

/// Divides cores into groups, such that each set has all cores of a group or none.
pub(crate) fn split_by_sets(all: CoreSet, sets: impl Iterator<Item = CoreSet>) -> Vec<CoreSet> {
    let mut groups = vec![all];
    for cores in sets {
        let split = |group: CoreSet| [group.within(cores), group.without(cores)];
        groups = groups.into_iter().flat_map(split).filter(|group| !group.is_empty()).collect();
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Bytes covered, summed over all cores, by ranges that each lie on a set of cores.
pub(crate) fn covered(parts: &[(Range, CoreSet)]) -> u64 {
    // Cached programs use the same cores and addresses, so the union of each set is small.
    let mut by_cores: BTreeMap<CoreSet, Vec<Range>> = BTreeMap::new();
    for &(range, cores) in parts.iter().filter(|(range, _)| range.start < range.end) {
        by_cores.entry(cores).or_default().push(range);
    }
    // One sweep over all ends. `depth` is the number of ranges that cover each core, `busy` the number of covered cores.
    let mut ends: Vec<(u64, bool, CoreSet)> = Vec::new();
    for (cores, ranges) in by_cores {
        for range in ranges::union(ranges) {
            ends.push((range.start, true, cores));
            ends.push((range.end, false, cores));
        }
    }
    ends.sort_unstable_by_key(|&(at, opens, _)| (at, opens));
    let mut depth = [0u32; CoreSet::ROOM];
    let (mut busy, mut from, mut total) = (0u64, 0u64, 0u64);
    for (at, opens, cores) in ends {
        total = total.saturating_add(busy.saturating_mul(at - from));
        from = at;
        for core in cores.iter() {
            if opens {
                depth[core] += 1;
                busy += u64::from(depth[core] == 1);
            } else {
                depth[core] -= 1;
                busy -= u64::from(depth[core] == 0);
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn covered_agrees_with_a_bitmap_per_core(
            parts in prop::collection::vec(((0u64..60, 0u64..30), (0u8..4, 0u8..3), (0u8..4, 0u8..3)), 0..20)
        ) {
            let parts: Vec<(Range, CoreSet)> = parts
                .into_iter()
                .map(|((start, len), from, to)| (Range::new(start, len), CoreSet::rectangle(from, to)))
                .collect();
            let mut bytes = vec![[false; 100]; CoreSet::ROOM];
            for &(range, cores) in &parts {
                for core in cores.iter() {
                    bytes[core][range.start as usize..range.end as usize].fill(true);
                }
            }
            let naive = bytes.iter().flatten().filter(|&&b| b).count() as u64;
            prop_assert_eq!(covered(&parts), naive);
        }
    }
}
