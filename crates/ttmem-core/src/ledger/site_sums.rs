//! Buffers of a pool by call site: now, and when the pool was largest.

use super::Entry;
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
    fn add(&mut self, entry: &Entry) {
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
    now: Held,
    /// What it was at the peak with number `peak`; if there was a later one, `now` is what it was then.
    then: Held,
    peak: u64,
}

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
            self.insert(SiteSum { site, now: Held::default(), then: Held::default(), peak: 0 });
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
    pub(super) fn subtract(&mut self, entry: &Entry) {
        self.changing(entry.site).now.subtract(entry);
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

    /// What sites had at the peak, by site, as far as it differs from now; `None`: unknown.
    pub(super) fn frame(&self) -> Option<Vec<(u32, Held)>> {
        let mut frame: Vec<(u32, Held)> = self
            .is_followed
            .then(|| self.sums.iter().map(|it| (it.site, it.now, it.at_peak(self.peak))))?
            .filter(|(_, now, then)| now != then)
            .map(|(site, _, then)| (site, then))
            .collect();
        frame.sort_unstable_by_key(|&(site, _)| site);
        Some(frame)
    }

    /// Restores the sums at the peak, after all buffers were added.
    pub(super) fn restore(&mut self, frame: Option<&[(u32, Held)]>) {
        self.note_peak();
        self.is_followed = frame.is_some();
        for &(site, then) in frame.into_iter().flatten() {
            self.changing(site).then = then;
        }
    }
}
