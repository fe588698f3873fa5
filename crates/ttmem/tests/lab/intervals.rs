//! Intervals of addresses, core by core: unions, differences and sums.

use std::collections::BTreeMap;
use ttmem_core::snapshot::{Core, CoreClass, Placement};

/// Column and row of a core.
pub(crate) type CoreXy = (u64, u64);
/// First address, and the one after the last.
pub(crate) type Interval = (u64, u64);
pub(crate) type ByCore = BTreeMap<CoreXy, Vec<Interval>>;

pub(crate) fn cores(rectangles: &[[u64; 4]]) -> impl Iterator<Item = CoreXy> + '_ {
    rectangles
        .iter()
        .flat_map(|&[x0, y0, x1, y1]| (x0..=x1).flat_map(move |x| (y0..=y1).map(move |y| (x, y))))
}

pub(crate) fn wide(rectangles: &[[u8; 4]]) -> Vec<[u64; 4]> {
    rectangles.iter().map(|it| it.map(u64::from)).collect()
}

/// Sorts intervals, and merges those that touch or overlap.
pub(crate) fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut all: Vec<Interval> = Vec::new();
    for (begin, end) in intervals {
        match all.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => all.push((begin, end)),
        }
    }
    all
}

/// Removes some intervals from others.
pub(crate) fn subtract(intervals: &[Interval], others: &[Interval]) -> Vec<Interval> {
    let mut left = intervals.to_vec();
    for &(begin, end) in others {
        let cut = |&(from, to): &Interval| [(from, to.min(begin)), (from.max(end), to)];
        left = left.iter().flat_map(cut).filter(|(from, to)| from < to).collect();
    }
    merged(left)
}

pub(crate) fn union(ranges: impl IntoIterator<Item = (Vec<[u64; 4]>, u64, u64)>) -> ByCore {
    let mut all = ByCore::new();
    for (rectangles, begin, end) in ranges {
        for core in cores(&rectangles) {
            all.entry(core).or_default().push((begin, end));
        }
    }
    all.into_iter().map(|(core, intervals)| (core, merged(intervals))).collect()
}

pub(crate) fn regions<'a>(regions: impl IntoIterator<Item = &'a [u64; 6]>) -> ByCore {
    union(regions.into_iter().map(|&[x0, y0, x1, y1, begin, end]| (vec![[x0, y0, x1, y1]], begin, end)))
}

pub(crate) fn placed<'a>(placements: impl IntoIterator<Item = &'a Placement>) -> ByCore {
    let placed = placements.into_iter().map(|it| (wide(&it.cores), it.address.unwrap(), it.bytes));
    union(placed.map(|(cores, begin, bytes)| (cores, begin, begin + bytes)))
}

pub(crate) fn total(by_core: &ByCore) -> u64 {
    by_core.values().flatten().map(|(begin, end)| end - begin).sum()
}

pub(crate) fn classes(core: &Core, classes: &[CoreClass]) -> Vec<Interval> {
    let of = core.intervals.iter().filter(|it| classes.contains(&it.class));
    merged(of.map(|it| (it.start, it.start + it.bytes)).collect())
}
