//! Free space of pools, and what several pools hold together.
//!
//! Both follow from skylines of the pools' records. A skyline is kept, and takes in only what changed since it was last used.

use super::skyline::{Covered, Edge, FreeSpace, Skyline};
use super::{CACHED_SETS, Figures};
use crate::input::Banks;
use crate::ledger::{Change, Pool, PoolId};
use crate::ranges::Range;
use crate::words::{Layout, Space};

/// The skyline of a pool's records.
#[derive(Debug)]
pub(super) struct CachedSkyline {
    skyline: Skyline,
    /// [`Pool::opened`]: the number of a pool may be used again.
    opened: u64,
    /// [`Pool::change_count`] when it was last brought up to date.
    seen: u64,
}

/// What several pools hold in each bank.
#[derive(Clone, Copy, Debug)]
struct Together {
    free: FreeSpace,
    /// Bytes allocated more than once, as often as that is too much.
    aliased: u64,
}

/// Skylines of several pools together, of all their records and of their own, each with what was seen of every pool; and
/// the last result.
#[derive(Debug, Default)]
pub(super) struct Joint {
    skylines: [Option<(Skyline, Vec<u64>)>; 2],
    found: Option<(u64, Banks, Together)>,
}

/// What a change does to a skyline, of the pool's own records or of all.
fn edges(change: &Change, own: bool) -> impl Iterator<Item = Edge> {
    let range = change.range();
    let by = if change.is_added() { 1 } else { -1 };
    let counts = range.start < range.end && (change.is_own() || !own);
    [(range.start, by), (range.end, -by)].into_iter().filter(move |_| counts)
}

fn bounds(layout: Banks) -> Range {
    Range::new(layout.base, layout.bytes_per_bank)
}

impl Figures<'_> {
    pub(crate) fn free_space(&mut self, layout: Banks, pools: &[PoolId]) -> FreeSpace {
        match *pools {
            [] => FreeSpace { bytes_per_bank: layout.bytes_per_bank, largest: layout.bytes_per_bank },
            [pool] => self.skyline(pool, false, bounds(layout)).covered().free,
            [..] => self.together(layout, pools).free,
        }
    }

    /// Bytes that several allocators hold at once, counted as often as they are held too much.
    pub(super) fn aliased_bytes(&mut self, layout: Option<Banks>, pools: &[PoolId]) -> u64 {
        let (Some(layout), [_, _, ..]) = (layout, pools) else { return 0 };
        self.together(layout, pools).aliased.saturating_mul(u64::from(layout.banks))
    }

    /// Addresses of the largest free blocks in each bank of one pool, or of none, lowest first, at most `most`.
    pub(super) fn largest_free_addrs(
        &mut self,
        layout: Banks,
        pool: Option<PoolId>,
        most: usize,
    ) -> Vec<u64> {
        match pool {
            None if layout.bytes_per_bank > 0 => vec![layout.base],
            None => Vec::new(),
            Some(pool) => self.skyline(pool, false, bounds(layout)).largest_gaps(most),
        }
    }

    /// The lowest address in a pool.
    pub(super) fn lowest_address(&mut self, space: Space, id: PoolId) -> Option<u64> {
        let pool = self.state.ledger.pool(id);
        match self.state.layout(space, &[id]).filter(|_| pool.empty == 0) {
            Some(layout) => self.skyline(id, false, bounds(layout)).lowest(),
            None => self.state.ledger.entries(id).map(|(_, entry)| entry.id).min(),
        }
    }

    /// The skyline of a pool's records, of its own or of all, up to date.
    fn skyline(&mut self, id: PoolId, own: bool, within: Range) -> &mut Skyline {
        let ledger = &self.state.ledger;
        let pool = ledger.pool(id);
        // Without aliases, all records are the pool's own.
        let own = own && pool.totals.mirrors > 0;
        if self.cache.skylines.len() <= id.number() {
            self.cache.skylines.resize_with(id.number() + 1, Default::default);
        }
        let slot = &mut self.cache.skylines[id.number()][usize::from(own)];
        let cached = slot.take().filter(|it| it.opened == pool.opened && it.skyline.within() == within);
        let changes = cached.and_then(|it| Some((pool.changes_since(it.seen)?, it.skyline)));
        let skyline = match changes {
            // Adjacent records share their edges, so that a rebuild visits more than the skyline has.
            Some((changes, mut skyline)) if changes.len() as u64 <= 16 + pool.totals.count / 4 => {
                skyline.change_all(changes.iter().flat_map(|it| edges(it, own)));
                skyline
            }
            _ => {
                let entries = ledger.entries(id).map(|(_, entry)| entry);
                let counted = entries.filter(|entry| entry.bytes_per_bank > 0);
                let counted = counted.filter(|entry| !own || entry.layout != Layout::Mirror);
                let ranges = counted.map(|entry| Range::new(entry.id, entry.bytes_per_bank));
                Skyline::new(within, ranges.flat_map(|it| [(it.start, 1), (it.end, -1)]).collect())
            }
        };
        let (opened, seen) = (pool.opened, pool.change_count());
        &mut slot.insert(CachedSkyline { skyline, opened, seen }).skyline
    }

    /// What several pools of one layout hold together. All chips of a mesh need the same, and more than once.
    fn together(&mut self, layout: Banks, pools: &[PoolId]) -> Together {
        let version = self.state.version_of(pools);
        let Joint { mut skylines, found } = self.cache.joint.remove(pools).unwrap_or_default();
        let found = match found {
            Some((of, within, found)) if of == version && within == layout => found,
            _ => {
                let within = bounds(layout);
                let each: u64 =
                    pools.iter().map(|&pool| self.skyline(pool, true, within).covered().bytes).sum();
                let all = self.join(&mut skylines[0], false, within, pools);
                let mirrors = pools.iter().any(|&pool| self.state.ledger.pool(pool).totals.mirrors > 0);
                let own = if mirrors { self.join(&mut skylines[1], true, within, pools) } else { all };
                Together { free: all.free, aliased: each - own.bytes }
            }
        };
        let cached = &mut self.cache.joint;
        if cached.len() >= CACHED_SETS {
            cached.clear();
        }
        cached.insert(pools.to_vec(), Joint { skylines, found: Some((version, layout, found)) });
        found
    }

    /// Brings a skyline of several pools up to date.
    fn join(
        &mut self,
        cached: &mut Option<(Skyline, Vec<u64>)>,
        own: bool,
        within: Range,
        pools: &[PoolId],
    ) -> Covered {
        let ledger = &self.state.ledger;
        let all = || pools.iter().map(|&pool| ledger.pool(pool));
        let skyline =
            cached.take().filter(|(it, _)| it.within() == within).and_then(|(mut skyline, seen)| {
                let changes = || all().zip(&seen).map(|(pool, &seen)| pool.changes_since(seen));
                let count = changes().try_fold(0, |sum, it| Some(sum + it?.len()))?;
                if !is_worth_changing(count, &skyline) {
                    return None;
                }
                skyline.change_all(changes().flatten().flatten().flat_map(|it| edges(it, own)));
                Some(skyline)
            });
        let mut skyline = match skyline {
            Some(skyline) => skyline,
            None => {
                let mut edges: Vec<Edge> = Vec::new();
                for &pool in pools {
                    edges.extend(self.skyline(pool, own, within).edges());
                }
                Skyline::new(within, edges)
            }
        };
        let covered = skyline.covered();
        *cached = Some((skyline, all().map(Pool::change_count).collect()));
        covered
    }
}

/// Whether changing a skyline is less work than building it again.
fn is_worth_changing(changes: usize, skyline: &Skyline) -> bool {
    changes <= 16 + skyline.len() / 8
}
