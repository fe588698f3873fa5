//! Buffers by the stacks that allocated them: now, at the peak, or since the last mark.
//!
//! Every buffer is in it. What is in no record is a stack that is unknown, so that the stacks of a pool always add up to its figure.

use super::Figures;
use super::usage::{is_charged, used_bytes};
use super::view::Clock;
use crate::ledger::{Held, Pool, PoolId};
use crate::sites::{Sites, UNKNOWN};
use crate::snapshot::{Flame, FlameGap, FlameMoment, FlamePool, FlameStack, Frame, FrameKind};
use crate::state::{PastPool, ProcessState, visible};
use crate::words::{ChipId, Mono, ProcessId, Space};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Number and bytes of buffers; the number may be unknown.
#[derive(Clone, Copy)]
struct Sum {
    count: Option<u64>,
    bytes: u64,
}

impl Sum {
    const NONE: Self = Self { count: Some(0), bytes: 0 };

    fn is_empty(self) -> bool {
        self.count == Some(0) && self.bytes == 0
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.zip(other.count).map(|(a, b)| a.saturating_add(b));
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Buffers of a process on the same chips in one space.
struct Part {
    /// By the number of the site.
    by_site: BTreeMap<u32, Sum>,
    /// Those without a record.
    unlisted: Sum,
    bytes: Option<u64>,
    at: Option<Mono>,
    gap: Option<FlameGap>,
}

impl Part {
    fn new(by_site: BTreeMap<u32, Sum>) -> Self {
        Self { by_site, unlisted: Sum::NONE, bytes: None, at: None, gap: None }
    }

    fn listed_bytes(&self) -> u64 {
        self.by_site.values().fold(0, |sum, of| sum.saturating_add(of.bytes))
    }

    fn is_empty(&self) -> bool {
        self.by_site.is_empty() && self.unlisted.is_empty() && self.gap.is_none()
    }

    /// Makes one sum of all stacks.
    fn withhold(&mut self) {
        for sum in std::mem::take(&mut self.by_site).into_values() {
            self.unlisted.add(sum);
        }
        self.at = None;
    }

    /// Adds what another allocator over the same chips has. Peaks at different times are no sum: the larger one counts.
    fn merge(&mut self, other: Self, moment: FlameMoment) {
        if moment == FlameMoment::Peak {
            if other.bytes > self.bytes {
                *self = other;
            }
            return;
        }
        for (site, sum) in other.by_site {
            self.by_site.entry(site).or_insert(Sum::NONE).add(sum);
        }
        self.unlisted.add(other.unlisted);
        self.bytes = self.bytes.zip(other.bytes).map(|(a, b)| a.saturating_add(b));
        self.gap = self.gap.or(other.gap);
    }
}

/// Frames with their numbers.
#[derive(Default)]
struct Frames {
    numbers: BTreeMap<Frame, u32>,
}

impl Frames {
    fn number(&mut self, frame: Frame) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(frame).or_insert(next)
    }

    fn stack(&mut self, sites: &Sites, site: u32) -> Vec<u32> {
        sites.frames(site).into_iter().map(|frame| self.number(frame)).collect()
    }

    /// The frames by their numbers.
    fn into_list(self) -> Vec<Frame> {
        let mut list: Vec<(u32, Frame)> = self.numbers.into_iter().map(|(frame, n)| (n, frame)).collect();
        list.sort_unstable_by_key(|(number, _)| *number);
        list.into_iter().map(|(_, frame)| frame).collect()
    }
}

impl Figures<'_> {
    /// The buffers of all processes by stack.
    pub(super) fn flame(&mut self, moment: FlameMoment, clock: Clock) -> Flame {
        let plan = self.plan();
        let mut frames = Frames::default();
        let mut pools = Vec::new();
        for (&id, process) in self.state.processes.iter().filter(|(_, process)| process.is_shown()) {
            let mut shown: BTreeMap<PoolId, Vec<ChipId>> = BTreeMap::new();
            for share in plan.shares_of(id) {
                for &pool in share.spaces.iter().flat_map(|of| &of.pools) {
                    shown.entry(pool).or_default().extend(&plan.groups[share.group].chips);
                }
            }
            let is_hidden = process.info.is_hidden_from(&self.viewer);
            for ((indexes, space), mut part) in self.flame_parts(process, shown, moment) {
                if is_hidden {
                    part.withhold();
                }
                let pool = describe(id, process, indexes, space, &part, &mut frames, clock);
                pools.push(self.viewer.show(process.info.uid, pool));
            }
        }
        Flame { moment, frames: frames.into_list(), pools }
    }

    /// Buffers of a process by devices and space.
    fn flame_parts(
        &self,
        process: &ProcessState,
        shown: BTreeMap<PoolId, Vec<ChipId>>,
        moment: FlameMoment,
    ) -> BTreeMap<(Vec<u32>, Space), Part> {
        let mut parts: BTreeMap<(Vec<u32>, Space), Part> = BTreeMap::new();
        for (id, chips) in shown {
            let pool = self.state.ledger.pool(id);
            if pool.key.space.is_program() {
                continue;
            }
            let part = match moment {
                FlameMoment::Live => live(pool),
                FlameMoment::Peak => at_peak(process, pool),
                FlameMoment::Mark => self.since_mark(process, id, pool),
            };
            if part.is_empty() {
                continue;
            }
            match parts.entry((self.state.indexes_of(&chips), pool.key.space)) {
                Entry::Vacant(place) => _ = place.insert(part),
                Entry::Occupied(mut known) => {
                    known.get_mut().merge(part, moment);
                }
            }
        }
        parts
    }

    /// Live buffers of a pool that are younger than its process's last mark.
    fn since_mark(&self, process: &ProcessState, id: PoolId, pool: &Pool) -> Part {
        let Some(mark) = process.last_mark else {
            let has_any = used_bytes(pool) > 0;
            return Part { gap: has_any.then_some(FlameGap::NoMark), ..Part::new(BTreeMap::new()) };
        };
        let charged = is_charged(pool);
        let mut by_site: BTreeMap<u32, Sum> = BTreeMap::new();
        let entries = self.state.ledger.entries(id).map(|(_, entry)| entry);
        for entry in entries.filter(|it| it.allocated_at > mark.at.0 && !it.layout.is_alias()) {
            let bytes = if charged { entry.charged() } else { entry.requested };
            by_site.entry(entry.site).or_insert(Sum::NONE).add(Sum { count: Some(1), bytes });
        }
        let mut part = Part { at: Some(mark.at), ..Part::new(by_site) };
        let is_listed = pool.unlisted.count == 0 && pool.level.is_none();
        part.gap = (!is_listed).then_some(FlameGap::NotListed);
        part.bytes = is_listed.then(|| part.listed_bytes());
        part
    }
}

/// All live buffers of a pool.
fn live(pool: &Pool) -> Part {
    let charged = is_charged(pool);
    let bytes = |held: Held| if charged { held.allocated } else { held.requested };
    let sum = |held: Held| Sum { count: Some(held.count), bytes: bytes(held) };
    let held = pool.sites().filter(|(_, now, _)| now.count > 0);
    let mut part = Part::new(held.map(|(site, now, _)| (site, sum(now))).collect());
    let used = used_bytes(pool);
    // Of a level, the number of buffers is unknown.
    let is_counted = pool.level.is_none() || used == 0;
    part.unlisted = Sum {
        count: is_counted.then_some(pool.unlisted.count),
        bytes: used.saturating_sub(part.listed_bytes()),
    };
    part.bytes = Some(used);
    part
}

/// The buffers of a pool when it was largest.
fn at_peak(process: &ProcessState, pool: &Pool) -> Part {
    if pool.peak == 0 {
        return Part::new(BTreeMap::new());
    }
    let past = PastPool::new(process, pool.key.scope, pool);
    let is_followed = past.at_peak.is_some();
    let sum = |held: Held| Sum { count: Some(held.count), bytes: held.allocated };
    let by_site = past.at_peak.into_iter().flatten().map(|(site, held)| (site, sum(held))).collect();
    let unlisted = if is_followed { Sum::NONE } else { Sum { count: None, bytes: pool.peak } };
    Part {
        unlisted,
        bytes: Some(pool.peak),
        at: Some(pool.peak_at),
        gap: (!is_followed).then_some(FlameGap::NotFollowed),
        ..Part::new(by_site)
    }
}

fn describe(
    id: ProcessId,
    process: &ProcessState,
    indexes: Vec<u32>,
    space: Space,
    part: &Part,
    frames: &mut Frames,
    clock: Clock,
) -> FlamePool {
    let mut by_stack: BTreeMap<Vec<u32>, Sum> = BTreeMap::new();
    for (&site, &sum) in &part.by_site {
        by_stack.entry(frames.stack(&process.sites, site)).or_insert(Sum::NONE).add(sum);
    }
    if !part.unlisted.is_empty() {
        let unknown = Frame { kind: FrameKind::Unknown, name: UNKNOWN.to_owned(), file: None, line: None };
        by_stack.entry(vec![frames.number(unknown)]).or_insert(Sum::NONE).add(part.unlisted);
    }
    let stacks = by_stack.into_iter();
    FlamePool {
        pid: visible(id),
        reported_pid: process.info.reported_pid,
        process_name: process.info.name.clone(),
        hidden: false,
        indexes,
        space,
        bytes: part.bytes,
        at: part.at.map(|at| clock.wall(at)),
        gap: part.gap,
        stacks: stacks.map(|(frames, Sum { count, bytes })| FlameStack { frames, count, bytes }).collect(),
    }
}
