//! Buffers of call sites that only grow between moments of equal phase, such as the ends of steps: leaks.
//!
//! At each mark, and at each replay of a trace, the number of buffers of every site is compared with that at the one before. What fell
//! starts over, so caches that are emptied from time to time are no leaks; a tensor that grows is none either, since its number stays. A
//! site that grew in many of the intervals, and still does, is one. Of marks that happen at different rates (tokens and requests), the
//! rarer ones decide: what does not grow from request to request is no leak, however it grows from token to token.
//!
//! A process without marks and replays is compared every few seconds. Since its phase is unknown then, only *late survivors* count:
//! buffers that are much older than the others of their site were when they were freed.

use crate::ledger::Held;
use crate::pairs;
use crate::words::{ChipId, Mono, Scope, Space};
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
/// A rarer series counts unless it has paused for so many times as long as usual.
const LONGEST_PAUSE: u64 = 10;
/// Names of marks that are followed, traces, and sites of each.
const MAX_SERIES: usize = 4;
const MAX_SITES: usize = 1024;
/// So many marks are all judged; later ones only at this distance, so that frequent marks cost little.
const FREQUENT: u32 = 256;
const DISTANCE: u64 = 50 * (Mono::SECOND / 1000);

/// What moments that are compared with each other have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// They are marks of the name with this number.
    Mark(u32),
    /// They are replays of a trace.
    Replay(Scope, u32),
    /// Nothing, so that only late survivors are compared.
    Round,
}

/// The growth of a process's call sites.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Growth {
    #[serde(with = "pairs")]
    series: BTreeMap<Phase, Series>,
}

/// Moments of one phase, here called marks.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Series {
    marks: u32,
    first: Mono,
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
    pub(crate) phase: Phase,
    /// Intervals since the site last fell, and those in which it grew.
    pub(crate) intervals: u32,
    pub(crate) grown: u32,
    /// What it has more than then, and what it had at the last mark.
    pub(crate) more: Held,
    pub(crate) held: Held,
    pub(crate) since: Mono,
}

impl Growth {
    /// Whether what the sites have at a moment is wanted.
    pub(crate) fn wants(&self, phase: Phase, at: Mono) -> bool {
        let is_same_kind = |it: &&Phase| std::mem::discriminant(*it) == std::mem::discriminant(&phase);
        match self.series.get(&phase) {
            None => self.series.keys().filter(is_same_kind).count() < MAX_SERIES,
            // Marks may be read again, and replays may be read at the same time.
            Some(series) if series.marks < FREQUENT => at > series.last || !matches!(phase, Phase::Mark(_)),
            Some(series) => at.0 >= series.last.0 + DISTANCE,
        }
    }

    /// Compares what the sites have at a moment with what they had at the one before.
    pub(crate) fn add(&mut self, phase: Phase, at: Mono, held: &BTreeMap<SiteInSpace, Held>) {
        let series = self.series.entry(phase).or_insert(Series { first: at, ..Series::default() });
        series.marks = series.marks.saturating_add(1);
        let previous = std::mem::replace(&mut series.last, at);
        let number = series.marks;
        for (site, growth) in &mut series.sites {
            growth.step(number, at, held.get(site).copied().unwrap_or_default());
        }
        for (site, &held) in held {
            if series.sites.len() < MAX_SITES && !series.sites.contains_key(site) {
                let mut growth = SiteGrowth::new(number.saturating_sub(1), previous);
                growth.step(number, at, held);
                series.sites.insert(site.clone(), growth);
            }
        }
        if series.sites.len() >= MAX_SITES {
            series.sites.retain(|_, growth| growth.last.count > 0);
        }
    }

    /// Forgets the replays of a trace that was released.
    pub(crate) fn forget_trace(&mut self, scope: Scope, trace: u32) {
        self.series.remove(&Phase::Replay(scope, trace));
    }

    /// Whether there were enough marks or replays to find leaks.
    pub(crate) fn is_followed(&self) -> bool {
        let mut marked = self.series.iter().filter(|(phase, _)| **phase != Phase::Round);
        marked.any(|(_, series)| series.marks >= WARM + LEAST_INTERVALS)
    }

    /// The most marks of one name.
    pub(crate) fn marks(&self) -> u32 {
        let marked = self.series.iter().filter(|(phase, _)| matches!(phase, Phase::Mark(_)));
        marked.map(|(_, series)| series.marks).max().unwrap_or(0)
    }

    /// The sites that leak, each by the rarest marks for which it does. Rounds count only without marks and replays.
    pub(crate) fn leaks(&self) -> Vec<Leak<'_>> {
        let is_followed = self.is_followed();
        let mut rarest_first: Vec<(Phase, &Series)> = self
            .series
            .iter()
            .map(|(&phase, series)| (phase, series))
            .filter(|(phase, _)| (*phase == Phase::Round) != is_followed)
            .collect();
        rarest_first.sort_by_key(|(phase, series)| (series.marks, *phase));
        let now = self.series.values().map(|series| series.last).max().unwrap_or_default();
        let mut found: BTreeMap<&SiteInSpace, Leak<'_>> = BTreeMap::new();
        for (n, &(phase, series)) in rarest_first.iter().enumerate() {
            for (site, growth) in series.sites.iter().filter(|(_, growth)| growth.is_leak(series.marks)) {
                let is_cleared = |(_, rarer): &(Phase, &Series)| {
                    rarer.sites.get(site).is_none_or(|it| it.clears(rarer.marks))
                };
                let mut rarer = rarest_first[..n].iter().filter(|(_, it)| it.can_clear(now));
                if !found.contains_key(site) && !rarer.any(is_cleared) {
                    found.insert(site, growth.describe(site, phase, series.marks));
                }
            }
        }
        let mut all: Vec<Leak<'_>> = found.into_values().collect();
        all.sort_by_key(|leak| std::cmp::Reverse((leak.more.allocated, leak.more.requested)));
        all
    }
}

impl Series {
    /// Whether what does not grow from mark to mark is no leak. Marks that have ended, such as those of a warm-up, say nothing.
    fn can_clear(&self, now: Mono) -> bool {
        let usual = self.last.since(self.first) / u64::from(self.marks.max(2) - 1);
        self.marks >= WARM + LEAST_CLEARING && now.since(self.last) <= usual.saturating_mul(LONGEST_PAUSE)
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

    fn describe<'a>(&self, site: &'a SiteInSpace, phase: Phase, marks: u32) -> Leak<'a> {
        Leak {
            site,
            phase,
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
