//! A pool: one process's memory of one space in one scope, with its running figures.

use super::site_sums::{Held, SiteSums, SitesFrame};
use super::totals::Totals;
use super::{Entry, NONE};
use crate::input::Holding;
use crate::ranges::Range;
use crate::words::{Basis, Layout, Mono, ProcessId, Scope, Space};
use serde::{Deserialize, Serialize};

/// One process's memory of one space in one scope, by one basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PoolKey {
    pub(crate) process: ProcessId,
    pub(crate) scope: Scope,
    pub(crate) space: Space,
    pub(crate) basis: Basis,
}

/// Number of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PoolId(pub(super) u32);

impl PoolId {
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// A record that was added or removed, in 16 bytes: every event writes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    start: u64,
    /// The length, with [`Change::OWN`] and [`Change::ADDED`].
    len: u64,
}

impl Change {
    const OWN: u64 = 1 << 63;
    const ADDED: u64 = 1 << 62;

    fn new(entry: &Entry, is_added: bool) -> Self {
        let own = if entry.layout == Layout::Mirror { 0 } else { Self::OWN };
        let added = if is_added { Self::ADDED } else { 0 };
        // `State::apply` accepts no size that reaches the flags.
        Self { start: entry.id, len: entry.bytes_per_bank | own | added }
    }

    pub(crate) fn range(self) -> Range {
        Range::new(self.start, self.len & (Self::ADDED - 1))
    }

    /// Whether the record is the pool's own, and no mirror of another allocator's.
    pub(crate) fn is_own(self) -> bool {
        self.len & Self::OWN != 0
    }

    pub(crate) fn is_added(self) -> bool {
        self.len & Self::ADDED != 0
    }
}

/// The last changes of a pool's records, from which skylines are brought up to date.
#[derive(Debug, Default)]
struct Log {
    /// Whether changes are kept, or only counted: a state without ticks has no use for them.
    is_kept: bool,
    last: Vec<Change>,
    /// Number of changes before those.
    before: u64,
}

impl Log {
    fn add(&mut self, change: Change, live: u64) {
        if !self.is_kept {
            self.before += 1;
            return;
        }
        let room = LOG_ROOM.max(live as usize / 4);
        if self.last.len() >= room {
            // A skyline that has not seen the older half is built again.
            let half = self.last.len() / 2;
            self.last.drain(..half);
            self.before += half as u64;
        }
        self.last.push(change);
    }

    fn count(&self) -> u64 {
        self.before + self.last.len() as u64
    }
}

/// Least number of changes that a pool keeps; a larger one keeps a quarter as many as it has records.
const LOG_ROOM: usize = 512;

/// A pool and its running figures.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) key: PoolKey,
    /// The version of the ledger when it was opened, which no other pool has.
    pub(crate) opened: u64,
    pub(super) place: u32,
    pub(crate) totals: Totals,
    /// Highest [`Pool::used`] so far.
    pub(crate) peak: u64,
    pub(crate) peak_at: Mono,
    pub(crate) changed_at: Mono,
    /// [`Pool::used`] when it was last measured together with the other pools of its space.
    pub(crate) measured: u64,
    /// Lowest [`Pool::used`] in this round of growth.
    pub(crate) low: u64,
    pub(crate) growth: Growth,
    /// A level set from outside, for a basis that has no records.
    pub(crate) level: Option<u64>,
    /// Allocations without a record, for which its source had no room; also in `totals`.
    pub(crate) unlisted: Holding,
    pub(super) head: u32,
    /// Larger after every change than any pool's before it.
    pub(crate) version: u64,
    /// Records without bytes in a bank.
    pub(crate) empty: u64,
    log: Log,
    /// Not of programs, whose memory overlaps.
    sites: SiteSums,
}

/// How long a pool has only grown.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Growth {
    pub(crate) last_low: u64,
    pub(crate) rounds: u32,
    pub(crate) bytes: u64,
}

impl Pool {
    pub(super) fn new(key: PoolKey, place: u32, version: u64) -> Self {
        Self {
            key,
            opened: version,
            place,
            totals: Totals::default(),
            peak: 0,
            peak_at: Mono(0),
            changed_at: Mono(0),
            measured: 0,
            low: 0,
            growth: Growth::default(),
            level: None,
            unlisted: Holding::default(),
            head: NONE,
            version,
            empty: 0,
            log: Log::default(),
            sites: SiteSums::default(),
        }
    }

    /// The figure of peaks and growth: what the allocator charges, else what was requested.
    pub(crate) fn used(&self) -> u64 {
        match (self.level, self.key.basis) {
            (Some(level), _) => level,
            (None, Basis::Exact) => self.totals.allocated,
            (None, _) => self.totals.requested,
        }
    }

    pub(super) fn changed(&mut self, version: u64, now: Mono) {
        let used = self.used();
        if used > self.peak {
            (self.peak, self.peak_at) = (used, now);
            self.sites.note_peak();
        }
        self.low = self.low.min(used);
        (self.version, self.changed_at) = (version, now);
    }

    /// Counts a record that is added.
    pub(super) fn add(&mut self, entry: &Entry) {
        self.totals.add(entry);
        self.empty += u64::from(entry.bytes_per_bank == 0);
        self.log_change(entry, true);
        if self.has_sites(entry) {
            self.sites.add(entry);
        }
    }

    /// Counts a record that is removed.
    pub(super) fn subtract(&mut self, entry: &Entry, now: Mono) {
        self.totals.subtract(entry);
        self.empty -= u64::from(entry.bytes_per_bank == 0);
        self.log_change(entry, false);
        if self.has_sites(entry) {
            self.sites.subtract(entry, now);
        }
    }

    /// Whether a record counts for its call site.
    pub(crate) fn has_sites(&self, entry: &Entry) -> bool {
        !entry.layout.is_alias() && !self.key.space.is_program()
    }

    /// Sets the peak, if the source knows it better: never less than what is in use.
    pub(super) fn set_peak(&mut self, bytes: Option<u64>, now: Mono) {
        let used = self.used();
        (self.peak, self.peak_at) = (used.max(bytes.unwrap_or(0)), now);
        if self.peak > used { self.sites.forget_peak() } else { self.sites.note_peak() }
    }

    /// Buffers by call site, now and at the peak; `None`: what the peak consisted of is unknown.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (u32, Held, Option<Held>)> {
        self.sites.all()
    }

    /// Sites of which some buffers may be late survivors, with the age in nanoseconds beyond which they are.
    pub(crate) fn late_sites(&self) -> impl Iterator<Item = (u32, u64)> {
        self.sites.late()
    }

    /// What a keyframe keeps of the sites.
    pub(super) fn sites_frame(&self) -> SitesFrame {
        self.sites.frame()
    }

    /// Restores what a keyframe kept of the sites, after all records were added.
    pub(super) fn restore_sites(&mut self, frame: &SitesFrame) {
        self.sites.restore(frame);
    }

    fn log_change(&mut self, entry: &Entry, is_added: bool) {
        self.log.add(Change::new(entry, is_added), self.totals.count);
    }

    /// Sets the allocations without a record.
    pub(super) fn set_unlisted(&mut self, holding: Holding) {
        let old = std::mem::replace(&mut self.unlisted, holding);
        let totals = &mut self.totals;
        totals.requested = totals.requested - old.requested + holding.requested;
        totals.allocated = totals.allocated - old.allocated + holding.allocated;
        totals.count = totals.count - old.count + holding.count;
        totals.vague = totals.vague - old.count + holding.count;
    }

    /// Drops all records at once.
    pub(super) fn clear(&mut self) {
        self.head = NONE;
        self.totals = Totals::default();
        self.empty = 0;
        self.sites.clear();
        // One change more, so that every skyline is built again.
        self.log = Log { before: self.log.count() + 1, last: Vec::new(), ..self.log };
        self.unlisted = Holding::default();
    }

    /// Keeps changes from now on.
    pub(super) fn keep_changes(&mut self) {
        self.log.is_kept = true;
    }

    /// Changes of records so far.
    pub(crate) fn change_count(&self) -> u64 {
        self.log.count()
    }

    /// The changes after the first `seen`, if they are still kept.
    pub(crate) fn changes_since(&self, seen: u64) -> Option<&[Change]> {
        let skipped = seen.checked_sub(self.log.before)?;
        self.log.last.get(skipped as usize..)
    }

    /// The key of a record of a stacked space besides its address.
    pub(super) fn tag(&self, program: u32) -> u32 {
        if self.key.space.is_stacked() { program } else { 0 }
    }
}
