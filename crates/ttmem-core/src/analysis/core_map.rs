//! What is at every address of a core.
//!
//! What is on a core follows from which sets of cores it is in, and there are few of those: cores with the same content are
//! mapped once.

use super::footprint::split_by_sets;
use crate::core_set::CoreSet;
use crate::ranges::{self, Range};
use crate::snapshot::{CoreClass, Interval};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Intervals of one chip, beyond its first map. No runtime makes as many: it takes ten thousands of buffers on different
/// cores each.
const MAX_INTERVALS: usize = 1 << 18;

/// Cores with the same content at the same addresses.
#[derive(Debug)]
pub(super) struct CoreMap {
    pub(super) cores: CoreSet,
    pub(super) intervals: Arc<[Interval]>,
}

/// Ranges of one class on some cores.
type Layer = (CoreClass, CoreSet, Vec<Range>);
pub(super) type Layers = Arc<[Layer]>;

/// Ranges by class and cores, on a grid of cores.
pub(super) struct LayerStack {
    pub(super) grid: CoreSet,
    all: Vec<Layer>,
    index: BTreeMap<(CoreClass, CoreSet), usize>,
    /// The last layer of each class: the next range is most often for the same cores.
    last: [Option<usize>; CLASSES.len()],
}

impl LayerStack {
    pub(super) fn new(grid: CoreSet) -> Self {
        Self { grid, all: Vec::new(), index: BTreeMap::new(), last: [None; CLASSES.len()] }
    }

    pub(super) fn add(&mut self, class: CoreClass, cores: CoreSet, range: Range) {
        let cores = cores.within(self.grid);
        if !cores.is_empty() && range.start < range.end {
            self.layer(class, cores).push(range);
        }
    }

    pub(super) fn add_all(&mut self, class: CoreClass, cores: CoreSet, ranges: &[Range]) {
        self.layer(class, cores).extend_from_slice(ranges);
    }

    fn layer(&mut self, class: CoreClass, cores: CoreSet) -> &mut Vec<Range> {
        let last = self.last.get_mut(class as usize);
        let known = last.as_ref().and_then(|it| **it).filter(|&number| self.all[number].1 == cores);
        let number = known.unwrap_or_else(|| {
            let new = self.all.len();
            let number = *self.index.entry((class, cores)).or_insert(new);
            if number == new {
                self.all.push((class, cores, Vec::new()));
            }
            if let Some(last) = last {
                *last = Some(number);
            }
            number
        });
        &mut self.all[number].2
    }

    /// The layers in order, each as few ranges as it takes.
    pub(super) fn into_unions(self) -> Vec<Layer> {
        let mut layers = self.all;
        layers.sort_unstable_by_key(|&(class, cores, _)| (class, cores));
        for (_, _, ranges) in &mut layers {
            *ranges = ranges::union(std::mem::take(ranges));
        }
        layers
    }

    /// The map of every core up to `end`.
    pub(super) fn maps(self, end: u64) -> Vec<CoreMap> {
        let grid = self.grid;
        let layers = self.into_unions();
        let groups = split_by_sets(grid, layers.iter().map(|&(_, cores, _)| cores));
        let mut room = MAX_INTERVALS;
        let map = |cores: CoreSet| {
            let here = || layers.iter().filter(|(_, on, _)| !on.within(cores).is_empty());
            // There are at most two for each range, and one more.
            let most = here().fold(1, |sum: usize, (_, _, ranges)| sum.saturating_add(2 * ranges.len()));
            let found = if most > room && room < MAX_INTERVALS {
                Vec::new()
            } else {
                intervals(end, here().map(|(class, _, ranges)| (*class, &ranges[..])))
            };
            room = room.saturating_sub(found.len());
            CoreMap { cores, intervals: found.into() }
        };
        groups.into_iter().map(map).collect()
    }
}

/// The class of each address from 0 to `end`: of several the first of [`CLASSES`].
fn intervals<'a>(end: u64, layers: impl Iterator<Item = (CoreClass, &'a [Range])>) -> Vec<Interval> {
    let mut ends: Vec<(u64, CoreClass, bool)> = Vec::new();
    for (class, ranges) in layers {
        for range in ranges.iter().filter(|range| range.start < end) {
            ends.push((range.start, class, true));
            ends.push((range.end.min(end), class, false));
        }
    }
    ends.push((end, CoreClass::Other, true));
    // Each layer is in order, which this sort makes use of.
    ends.sort_by_key(|&(at, ..)| at);
    let mut depth = [0u32; CoreClass::Other as usize + 1];
    let mut found: Vec<Interval> = Vec::new();
    let mut from = 0;
    for (at, class, opens) in ends {
        if at > from {
            let here = CLASSES.into_iter().find(|&it| depth[it as usize] > 0).unwrap_or(CoreClass::Free);
            match found.last_mut().filter(|last| last.class == here) {
                Some(last) => last.bytes += at - from,
                None => found.push(Interval { class: here, start: from, bytes: at - from }),
            }
            from = at;
        }
        let depth = &mut depth[class as usize];
        *depth = if opens { *depth + 1 } else { *depth - 1 };
    }
    found
}

/// Classes by precedence.
const CLASSES: [CoreClass; 9] = [
    CoreClass::Reserved,
    CoreClass::KernelConfig,
    CoreClass::Buffer,
    CoreClass::L1Small,
    CoreClass::Cb,
    CoreClass::Dfb,
    CoreClass::Scratch,
    CoreClass::Lockstep,
    CoreClass::L1SmallFree,
];
