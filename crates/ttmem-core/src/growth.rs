//! Buffers of call sites that only grow between marks of equal phase, such as the ends of steps: leaks.
//!
//! At each mark, the number of buffers of every site is compared with that at the mark before. What fell starts over, so caches that
//! are emptied from time to time are no leaks; a tensor that grows is none either, since its number stays. A site that grew in many of
//! the intervals, and still does, is one. Of marks that happen at different rates (tokens and requests), the rarer ones decide: what does
//! not grow from request to request is no leak, however it grows from token to token.

use crate::input::Mark;
use crate::ledger::Held;
use crate::pairs;
use crate::words::{ChipId, Mono, Space};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The buffers of one line and operation in one space of the same chips.
pub(crate) type SiteInSpace = (Vec<ChipId>, Space, u32);

/// First marks of a series, after which growth is counted: the first steps fill caches and make weights.
const WARM: u32 = 2;
/// Intervals after which a site is judged.
const LEAST_INTERVALS: u32 = 8;
/// Intervals in which a leak grew, at least; and one in so many of all.
const LEAST_GROWN: u32 = 3;
const GROWN_SHARE: u32 = 5;
/// Intervals of a rarer series that can clear a site.
const LEAST_CLEARING: u32 = 3;
/// Names of marks that are followed, and sites of each.
const MAX_SERIES: usize = 4;
const MAX_SITES: usize = 1024;
/// So many marks are all judged; later ones only at this distance, so that frequent marks cost little.
const FREQUENT: u32 = 256;
const DISTANCE: u64 = 50 * (Mono::SECOND / 1000);

/// The growth of a process's call sites.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// By the number of the mark's name.
    series: BTreeMap<u32, Series>,
}

/// Marks of one name.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Series {
    marks: u32,
    last: Mono,
    #[serde(with = "pairs")]
    sites: BTreeMap<SiteInSpace, SiteGrowth>,
}

/// What a site had at the marks of a series.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SiteGrowth {
    /// The mark since which it never fell, and what it had then.
    since: u32,
    since_at: Mono,
    base: Held,
    /// What it had at the last mark.
    last: Held,
    /// Intervals since then in which it grew, and the mark after the last of them.
    grown: u32,
    last_grown: u32,
    /// Most intervals in which it grew before it fell.
    longest: u32,
}

/// A call site that leaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Leak<'a> {
    pub(crate) site: &'a SiteInSpace,
    /// The number of the name of the marks.
    pub(crate) mark: u32,
    /// Intervals since the site last fell, and those in which it grew.
    pub(crate) intervals: u32,
    pub(crate) grown: u32,
    /// What it has more than then, and what it had at the last mark.
    pub(crate) more: Held,
    pub(crate) held: Held,
    pub(crate) since: Mono,
}

impl Growth {
    /// Whether what the sites have at this mark is wanted. Marks may be read again.
    pub(crate) fn wants(&self, mark: &Mark) -> bool {
        match self.series.get(&mark.name) {
            None => self.series.len() < MAX_SERIES,
            Some(series) if series.marks < FREQUENT => mark.at > series.last,
            Some(series) => mark.at.0 >= series.last.0 + DISTANCE,
        }
    }

    /// Compares what the sites have at a mark with what they had at the one before.
    pub(crate) fn add(&mut self, mark: &Mark, held: &BTreeMap<SiteInSpace, Held>) {
        let series = self.series.entry(mark.name).or_default();
        series.marks = series.marks.saturating_add(1);
        let previous = std::mem::replace(&mut series.last, mark.at);
        let number = series.marks;
        for (site, growth) in &mut series.sites {
            growth.step(number, mark.at, held.get(site).copied().unwrap_or_default());
        }
        for (site, &held) in held {
            if series.sites.len() < MAX_SITES && !series.sites.contains_key(site) {
                let mut growth = SiteGrowth::new(number.saturating_sub(1), previous);
                growth.step(number, mark.at, held);
                series.sites.insert(site.clone(), growth);
            }
        }
        if series.sites.len() >= MAX_SITES {
            series.sites.retain(|_, growth| growth.last.count > 0);
        }
    }

    /// Whether there were enough marks to find leaks.
    pub(crate) fn is_followed(&self) -> bool {
        self.series.values().any(|series| series.marks >= WARM + LEAST_INTERVALS)
    }

    /// The most marks of one name.
    pub(crate) fn marks(&self) -> u32 {
        self.series.values().map(|series| series.marks).max().unwrap_or(0)
    }

    /// The sites that leak, each by the rarest marks for which it does.
    pub(crate) fn leaks(&self) -> Vec<Leak<'_>> {
        let mut rarest_first: Vec<(u32, &Series)> =
            self.series.iter().map(|(&name, series)| (name, series)).collect();
        rarest_first.sort_by_key(|(name, series)| (series.marks, *name));
        let mut found: BTreeMap<&SiteInSpace, Leak<'_>> = BTreeMap::new();
        for (n, &(mark, series)) in rarest_first.iter().enumerate() {
            for (site, growth) in series.sites.iter().filter(|(_, growth)| growth.is_leak(series.marks)) {
                let is_cleared = |(_, rarer): &(u32, &Series)| {
                    rarer.sites.get(site).is_none_or(|it| it.clears(rarer.marks))
                };
                let rarer = rarest_first[..n].iter().filter(|(_, it)| it.marks >= WARM + LEAST_CLEARING);
                if !found.contains_key(site) && !rarer.clone().any(is_cleared) {
                    found.insert(site, growth.describe(site, mark, series.marks));
                }
            }
        }
        let mut all: Vec<Leak<'_>> = found.into_values().collect();
        all.sort_by_key(|leak| std::cmp::Reverse((leak.more.allocated, leak.more.requested)));
        all
    }
}

impl SiteGrowth {
    /// A site without buffers at a mark.
    fn new(mark: u32, at: Mono) -> Self {
        let none = Held::default();
        Self { since: mark, since_at: at, base: none, last: none, grown: 0, last_grown: mark, longest: 0 }
    }

    fn step(&mut self, mark: u32, at: Mono, held: Held) {
        if mark <= WARM || held.count < self.last.count {
            self.longest = self.longest.max(self.grown);
            (self.since, self.since_at, self.base) = (mark, at, held);
            (self.grown, self.last_grown) = (0, mark);
        } else if held.count > self.last.count {
            (self.grown, self.last_grown) = (self.grown + 1, mark);
        }
        self.last = held;
    }

    fn intervals(&self, marks: u32) -> u32 {
        marks - self.since
    }

    /// Whether it grew often enough, and lately.
    fn is_leak(&self, marks: u32) -> bool {
        let intervals = self.intervals(marks);
        intervals >= LEAST_INTERVALS
            && self.grown >= LEAST_GROWN
            && self.grown * GROWN_SHARE >= intervals
            // What was emptied once is so again, unless it grows for much longer.
            && self.grown > self.longest * 2
            // It grows every so many intervals; twice as long without growth is an end.
            && marks - self.last_grown <= 2 * intervals.div_ceil(self.grown)
    }

    /// Whether it does not grow between rare marks.
    fn clears(&self, marks: u32) -> bool {
        let intervals = self.intervals(marks);
        intervals == 0 || self.grown * 2 < intervals
    }

    fn describe<'a>(&self, site: &'a SiteInSpace, mark: u32, marks: u32) -> Leak<'a> {
        Leak {
            site,
            mark,
            intervals: self.intervals(marks),
            grown: self.grown,
            more: self.last.less(self.base),
            held: self.last,
            since: self.since_at,
        }
    }
}

#[cfg(test)]
mod tests;
