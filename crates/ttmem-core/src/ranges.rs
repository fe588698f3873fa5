//! Address ranges: what several of them cover together, and what they leave free.

/// `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Range {
    pub(crate) fn new(start: u64, len: u64) -> Self {
        Self { start, end: start.saturating_add(len) }
    }

    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }
}

/// Sorts ranges and merges those that touch or overlap.
pub(crate) fn union(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.retain(|r| r.start < r.end);
    // Ranges are often the concatenation of sorted lists, which this sort makes use of.
    ranges.sort();
    let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Bytes that a union covers.
pub(crate) fn covered(union: &[Range]) -> u64 {
    union.iter().map(|r| r.len()).sum()
}

/// What a union leaves of `within`, for tests of the skyline.
#[cfg(test)]
pub(crate) fn gaps(union: &[Range], within: Range) -> Vec<Range> {
    let mut gaps = Vec::new();
    let mut from = within.start;
    for used in union {
        if used.start >= within.end {
            break;
        }
        if used.start > from {
            gaps.push(Range { start: from, end: used.start });
        }
        from = from.max(used.end);
    }
    if from < within.end {
        gaps.push(Range { start: from, end: within.end });
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn union_and_gaps_agree_with_a_bitmap(
            parts in prop::collection::vec((0u64..200, 0u64..40), 0..30),
            within in (0u64..100, 1u64..150),
        ) {
            let mut used = [false; 256];
            for &(start, len) in &parts {
                used[start as usize..(start + len) as usize].fill(true);
            }
            let merged = union(parts.iter().map(|&(s, l)| Range::new(s, l)).collect());
            prop_assert_eq!(covered(&merged), used.iter().filter(|&&u| u).count() as u64);
            let within = Range::new(within.0, within.1);
            let mut free = [false; 256];
            for gap in gaps(&merged, within) {
                prop_assert!(gap.start < gap.end);
                free[gap.start as usize..gap.end as usize].fill(true);
            }
            for (at, &used) in used.iter().enumerate() {
                let inside = (within.start..within.end).contains(&(at as u64));
                prop_assert_eq!(free[at], inside && !used, "address {}", at);
            }
        }
    }
}
