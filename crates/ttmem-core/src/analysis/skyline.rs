//! A skyline: how often each address is allocated, as edges where that changes. Edges are kept in blocks with their own sums, so
//! that a change costs one block, and covered and free bytes follow from the sums.

use crate::ranges::Range;

/// An address, and by how much the depth changes there.
pub(crate) type Edge = (u64, i32);

/// A block that grows beyond this many edges becomes two.
const BLOCK: usize = 256;

/// Fewer changes of a block than this are applied one by one.
const FEW: usize = 6;

/// Free bytes of each bank, and the largest block of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeSpace {
    pub(crate) bytes_per_bank: u64,
    pub(crate) largest: u64,
}

/// Covered and free bytes of a skyline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    /// Bytes allocated at least once.
    pub(crate) bytes: u64,
    /// Free space within the bounds.
    pub(crate) free: FreeSpace,
}

/// Overlapping ranges within bounds.
#[derive(Debug)]
pub(crate) struct Skyline {
    within: Range,
    /// By address; none is empty.
    blocks: Vec<Block>,
    /// First address of each block, in one place for searching.
    begins: Vec<u64>,
    edges: usize,
}

#[derive(Debug)]
struct Block {
    /// By address, each address once, no edge of 0.
    edges: Vec<Edge>,
    /// Sum of the edges.
    change: i32,
    /// The depth before the block when its sums were last derived, and those sums. Free addresses within a block lie
    /// between two edges, because at depth 0 the next edge can only be the start of a range.
    known: Option<(i32, Sums)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    covered: u64,
    free: u64,
    largest: u64,
}

impl Sums {
    /// Adds the addresses between two edges.
    fn add(&mut self, from: u64, to: u64, depth: i32, within: Range) {
        if depth > 0 {
            self.covered += to - from;
        } else {
            let (from, to) = (from.max(within.start), to.min(within.end));
            let gap = to.saturating_sub(from);
            self.free += gap;
            self.largest = self.largest.max(gap);
        }
    }

    fn join(&mut self, other: Self) {
        self.covered += other.covered;
        self.free += other.free;
        self.largest = self.largest.max(other.largest);
    }
}

impl Block {
    fn new(edges: Vec<Edge>) -> Self {
        let change = edges.iter().map(|edge| edge.1).sum();
        Self { edges, change, known: None }
    }

    fn first(&self) -> u64 {
        self.edges.first().map_or(0, |edge| edge.0)
    }

    fn last(&self) -> u64 {
        self.edges.last().map_or(0, |edge| edge.0)
    }

    fn sums(&mut self, depth: i32, within: Range) -> Sums {
        if let Some((_, sums)) = self.known.filter(|&(of, _)| of == depth) {
            return sums;
        }
        let mut sums = Sums::default();
        let mut here = depth;
        for pair in self.edges.windows(2) {
            here += pair[0].1;
            sums.add(pair[0].0, pair[1].0, here, within);
        }
        self.known = Some((depth, sums));
        sums
    }
}

/// Edges by address, each address once, no edge of 0.
fn in_order(mut edges: Vec<Edge>) -> Vec<Edge> {
    // Edges are often the concatenation of sorted lists, which this sort makes use of.
    edges.sort_by_key(|edge| edge.0);
    edges.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    edges.retain(|edge| edge.1 != 0);
    edges
}

impl Skyline {
    /// A skyline of edges in any order.
    pub(crate) fn new(within: Range, edges: Vec<Edge>) -> Self {
        let edges = in_order(edges);
        let blocks: Vec<Block> = edges.chunks(BLOCK / 2).map(|edges| Block::new(edges.to_vec())).collect();
        let begins = blocks.iter().map(Block::first).collect();
        Self { within, blocks, begins, edges: edges.len() }
    }

    pub(crate) fn within(&self) -> Range {
        self.within
    }

    /// Number of edges.
    pub(crate) fn len(&self) -> usize {
        self.edges
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = Edge> {
        self.blocks.iter().flat_map(|block| &block.edges).copied()
    }

    /// Start of the first range.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.blocks.first().map(Block::first)
    }

    /// Applies many changes, block by block.
    pub(crate) fn change_all(&mut self, edges: impl Iterator<Item = Edge>) {
        let mut edges = in_order(edges.collect());
        // From the last block on, so that the numbers of those before stay the same.
        while let Some(&(last, _)) = edges.last() {
            let number = self.begins.partition_point(|&begin| begin <= last).saturating_sub(1);
            let begin = self.begins.get(number).map_or(0, |&begin| if number == 0 { 0 } else { begin });
            let from = edges.partition_point(|edge| edge.0 < begin);
            if edges.len() - from < FEW || self.blocks.is_empty() {
                edges.drain(from..).for_each(|edge| self.change(edge));
                continue;
            }
            let mut all = std::mem::take(&mut self.blocks[number].edges);
            let before = all.len();
            all.extend(edges.drain(from..));
            let all = in_order(all);
            self.edges = self.edges - before + all.len();
            let parts = if all.len() > BLOCK { BLOCK / 2 } else { BLOCK };
            let blocks: Vec<Block> = all.chunks(parts).map(|edges| Block::new(edges.to_vec())).collect();
            self.begins.splice(number..=number, blocks.iter().map(Block::first));
            self.blocks.splice(number..=number, blocks);
        }
    }

    fn change(&mut self, (at, by): Edge) {
        if by == 0 {
            return;
        }
        let number = self.begins.partition_point(|&begin| begin <= at).saturating_sub(1);
        let Some(block) = self.blocks.get_mut(number) else {
            self.blocks.push(Block::new(vec![(at, by)]));
            self.begins.push(at);
            self.edges = 1;
            return;
        };
        block.known = None;
        block.change += by;
        let place = block.edges.partition_point(|edge| edge.0 < at);
        if let Some(edge) = block.edges.get_mut(place).filter(|edge| edge.0 == at) {
            edge.1 += by;
            if edge.1 == 0 {
                block.edges.remove(place);
                self.edges -= 1;
            }
            if block.edges.is_empty() {
                self.blocks.remove(number);
                self.begins.remove(number);
            } else {
                self.begins[number] = block.first();
            }
            return;
        }
        block.edges.insert(place, (at, by));
        self.begins[number] = block.first();
        self.edges += 1;
        if block.edges.len() > BLOCK {
            let rest = Block::new(block.edges.split_off(BLOCK / 2));
            block.change -= rest.change;
            self.begins.insert(number + 1, rest.first());
            self.blocks.insert(number + 1, rest);
        }
    }

    /// Covered and free bytes; only sums of changed blocks are derived again.
    pub(crate) fn covered(&mut self) -> Covered {
        let within = self.within;
        let mut sums = Sums::default();
        let (mut from, mut depth) = (0, 0);
        for block in &mut self.blocks {
            sums.add(from, block.first(), depth, within);
            sums.join(block.sums(depth, within));
            depth += block.change;
            from = block.last();
        }
        sums.add(from, u64::MAX, depth, within);
        let free = FreeSpace { bytes_per_bank: sums.free, largest: sums.largest };
        Covered { bytes: sums.covered, free }
    }

    /// Starts of the largest gaps within the bounds, lowest first, at most `most`. Only blocks that contain one are visited.
    pub(crate) fn largest_gaps(&mut self, most: usize) -> Vec<u64> {
        let (within, largest) = (self.within, self.covered().free.largest);
        let mut found = Vec::new();
        let mut add = |from: u64, to: u64, depth: i32| {
            let (from, to) = (from.max(within.start), to.min(within.end));
            if depth <= 0 && largest > 0 && to.saturating_sub(from) == largest && found.len() < most {
                found.push(from);
            }
        };
        let (mut from, mut depth) = (0, 0);
        for block in &mut self.blocks {
            add(from, block.first(), depth);
            if block.sums(depth, within).largest == largest {
                let mut here = depth;
                for pair in block.edges.windows(2) {
                    here += pair[0].1;
                    add(pair[0].0, pair[1].0, here);
                }
            }
            depth += block.change;
            from = block.last();
        }
        add(from, u64::MAX, depth);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_changed_skyline_equals_a_new_one(
            steps in prop::collection::vec((0u64..900, 0u64..40, any::<bool>()), 1..1500),
            begin in 0usize..1500,
            batch in 1usize..400,
            within in (0u64..300, 1u64..800),
        ) {
            let within = Range::new(within.0, within.1);
            let edges = |range: Range, by: i32| {
                let some = range.start < range.end;
                [(range.start, by), (range.end, -by)].into_iter().filter(move |_| some)
            };
            let mut held: Vec<Range> = Vec::new();
            let mut skyline = Skyline::new(within, Vec::new());
            let mut changes: Vec<Edge> = Vec::new();
            for (n, &(start, len, asked)) in steps.iter().enumerate() {
                let range = Range::new(start, len);
                if n == begin {
                    changes.clear();
                    skyline = Skyline::new(within, held.iter().flat_map(|&it| edges(it, 1)).collect());
                }
                match held.iter().position(|it| it.start == start) {
                    Some(place) => {
                        let gone = held.swap_remove(place);
                        changes.extend(edges(gone, -1));
                    }
                    None => {
                        held.push(range);
                        changes.extend(edges(range, 1));
                    }
                }
                if asked && n % 3 == 0 || n + 1 == steps.len() || changes.len() > batch {
                    skyline.change_all(changes.drain(..));
                    let union = ranges::union(held.clone());
                    let gaps = ranges::gaps(&union, within);
                    let free = FreeSpace {
                        bytes_per_bank: ranges::covered(&gaps),
                        largest: gaps.iter().map(|it| it.len()).max().unwrap_or(0),
                    };
                    let expected = Covered { bytes: ranges::covered(&union), free };
                    prop_assert_eq!(skyline.covered(), expected);
                    let largest = gaps.iter().filter(|it| it.len() == free.largest).map(|it| it.start);
                    prop_assert_eq!(skyline.largest_gaps(7), largest.take(7).collect::<Vec<u64>>());
                    prop_assert_eq!(skyline.lowest(), union.first().map(|it| it.start));
                    prop_assert_eq!(skyline.len(), skyline.edges().count());
                }
            }
        }
    }
}
