//! Buffers of a pool by call site: now, when the pool was largest, and how long they lived.

use super::Entry;
use super::lives::Lives;
use crate::words::Mono;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

/// Number and bytes of the buffers of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) count: u64,
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
}

impl Held {
    pub(crate) fn add(&mut self, entry: &Entry) {
        self.count += 1;
        self.requested += entry.requested;
        self.allocated += entry.charged();
    }

    /// Adds what another sum has.
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.requested += other.requested;
        self.allocated += other.allocated;
    }

    /// What this sum has more than another one.
    pub(crate) fn less(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_sub(other.count),
            requested: self.requested.saturating_sub(other.requested),
            allocated: self.allocated.saturating_sub(other.allocated),
        }
    }

    fn subtract(&mut self, entry: &Entry) {
        self.count -= 1;
        self.requested -= entry.requested;
        self.allocated -= entry.charged();
    }
}

/// One site of a pool.
#[derive(Clone, Copy, Debug)]
struct SiteSum {
    site: u32,
    lives: Lives,
    now: Held,
    /// What it was at the peak with number `peak`; if there was a later one, `now` is what it was then.
    then: Held,
    peak: u64,
}

const _: () = assert!(size_of::<SiteSum>() == 64, "every event changes one: a cache line");

impl SiteSum {
    fn at_peak(&self, peak: u64) -> Held {
        if self.peak == peak { self.then } else { self.now }
    }
}

/// The sums of all sites of a pool.
///
/// A new peak changes only a number: the sum that a site had then is kept when the site next changes. So every event costs the same,
/// however many sites there are.
#[derive(Debug)]
pub(super) struct SiteSums {
    sums: HashTable<SiteSum>,
    /// Number of peaks so far. No site has it before its first change.
    peak: u64,
    /// Whether the last peak was followed; else only its size is known.
    is_followed: bool,
    /// Sites at which those without buffers are removed.
    room: usize,
}

/// Least number of sites at which those without buffers are removed.
const ROOM: usize = 256;

fn hash(site: u32) -> u64 {
    // Sites are numbered by the process itself, so equal hashes would slow down only its own figures, and their number is limited.
    u64::from(site).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Default for SiteSums {
    fn default() -> Self {
        Self { sums: HashTable::new(), peak: 1, is_followed: true, room: ROOM }
    }
}

impl SiteSums {
    /// The sum of a site, which keeps what it was at the peak if it has changed since.
    #[inline]
    fn changing(&mut self, site: u32) -> &mut SiteSum {
        let (hash, peak) = (hash(site), self.peak);
        if self.sums.find(hash, |it| it.site == site).is_none() {
            let none = Held::default();
            self.insert(SiteSum { site, lives: Lives::default(), now: none, then: none, peak: 0 });
        }
        let sum = self.sums.find_mut(hash, |it| it.site == site).expect("inserted above");
        if sum.peak != peak {
            (sum.then, sum.peak) = (sum.now, peak);
        }
        sum
    }

    #[cold]
    fn insert(&mut self, sum: SiteSum) {
        if self.sums.len() >= self.room {
            let peak = self.peak;
            self.sums.retain(|it| it.now.count > 0 || it.at_peak(peak).count > 0);
            self.room = ROOM.max(self.sums.len() * 2);
        }
        self.sums.insert_unique(hash(sum.site), sum, |it| hash(it.site));
    }

    #[inline]
    pub(super) fn add(&mut self, entry: &Entry) {
        self.changing(entry.site).now.add(entry);
    }

    #[inline]
    pub(super) fn subtract(&mut self, entry: &Entry, now: Mono) {
        let sum = self.changing(entry.site);
        sum.now.subtract(entry);
        sum.lives.add(now.since(Mono(entry.allocated_at)));
    }

    /// Removes all buffers at once.
    pub(super) fn clear(&mut self) {
        let peak = self.peak;
        for sum in &mut self.sums {
            (sum.then, sum.peak) = (sum.at_peak(peak), peak);
            sum.now = Held::default();
        }
    }

    /// The pool is larger than ever before.
    #[inline]
    pub(super) fn note_peak(&mut self) {
        self.peak += 1;
        self.is_followed = true;
    }

    /// The pool was larger at a time when it was not followed.
    pub(super) fn forget_peak(&mut self) {
        self.is_followed = false;
    }

    /// Every site with what it has now, and what it had at the peak if that is known.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, Held, Option<Held>)> {
        self.sums.iter().map(|sum| (sum.site, sum.now, self.is_followed.then(|| sum.at_peak(self.peak))))
    }

    /// Sites of which some buffers may be late survivors, with the age beyond which they are.
    pub(super) fn late(&self) -> impl Iterator<Item = (u32, u64)> {
        let held = self.sums.iter().filter(|sum| sum.now.count > 0);
        held.filter_map(|sum| Some((sum.site, sum.lives.late(sum.now.count)?)))
    }

    /// What does not follow from the records.
    pub(super) fn frame(&self) -> SitesFrame {
        let sorted = |mut of_sites: Vec<(u32, Held)>| {
            of_sites.sort_unstable_by_key(|&(site, _)| site);
            of_sites
        };
        let at_peak = self.sums.iter().map(|it| (it.site, it.now, it.at_peak(self.peak)));
        let differing = at_peak.filter(|(_, now, then)| now != then).map(|(site, _, then)| (site, then));
        let at_peak = self.is_followed.then(|| sorted(differing.collect()));
        let freed = self.sums.iter().filter(|it| !it.lives.is_empty());
        let mut lives: Vec<(u32, Lives)> = freed.map(|it| (it.site, it.lives)).collect();
        lives.sort_unstable_by_key(|&(site, _)| site);
        SitesFrame { at_peak, lives, room: self.room }
    }

    /// Restores what does not follow from the records, after all of them were added.
    pub(super) fn restore(&mut self, frame: &SitesFrame) {
        self.room = usize::MAX;
        self.note_peak();
        self.is_followed = frame.at_peak.is_some();
        for &(site, then) in frame.at_peak.iter().flatten() {
            self.changing(site).then = then;
        }
        for &(site, lives) in &frame.lives {
            self.changing(site).lives = lives;
        }
        self.room = frame.room.clamp(ROOM, ROOM.max(self.sums.len() * 2));
    }
}

/// What a keyframe has of the sites of a pool.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SitesFrame {
    /// What sites had at the peak, where that differs from now; `None`: unknown.
    at_peak: Option<Vec<(u32, Held)>>,
    /// How long the buffers of sites lived.
    lives: Vec<(u32, Lives)>,
    room: usize,
}
