//! Post-mortems: what held the memory when an allocation failed, and what makes room for it.

use super::room::{self, Placed};
use super::view::Clock;
use super::{Figures, describe_failure};
use crate::core_set::CoreSet;
use crate::input::{Banks, Failure};
use crate::label::Label;
use crate::ledger::Entry;
use crate::ranges::Range;
use crate::sites::Sites;
use crate::snapshot::{
    FailedBank, FailureGap, FailureHolder, FailureKind, InTheWay, MakeRoom, OpenWith, Origin, PostMortem,
    SCHEMA, Shortage,
};
use crate::state::{ProcessState, chips_in, visible};
use crate::words::{Basis, ChipId, Layout, ProcessId, Scope, Space};
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Buffers that are listed one by one.
const MAX_BUFFERS: usize = 64;
/// Call sites that are listed as making room.
const MAX_SITES: usize = 8;
/// Call sites for which that is tried.
const MAX_TRIED: usize = 256;

/// A space of an allocator with its buffers.
struct Bank<'a> {
    scope: Scope,
    layout: Banks,
    entries: Vec<&'a Entry>,
    /// Sorted, and without what others cover.
    placed: Vec<Placed>,
    /// Sites with the same line, operation and tensor, by the number of one of them.
    groups: BTreeMap<u32, Group>,
}

/// Buffers of one line, operation and tensor.
#[derive(Clone, Copy, Default)]
struct Group {
    count: u64,
    bytes_per_bank: u64,
}

impl Bank<'_> {
    fn range(&self) -> Range {
        Range::new(self.layout.base, self.layout.bytes_per_bank)
    }

    fn entry(&self, placed: &Placed) -> &Entry {
        self.entries[placed.index as usize]
    }
}

impl Figures<'_> {
    /// The post-mortem of a process's last failure, or that with a number. `at` is the time of the state.
    pub(super) fn post_mortem(
        &self,
        id: ProcessId,
        sequence: Option<u64>,
        at: Timestamp,
    ) -> Option<PostMortem> {
        let process = self.state.processes.get(&id)?;
        let is_wanted = |failure: &&Failure| sequence.is_none_or(|sequence| failure.sequence == sequence);
        let failure = process.failures.iter().rev().find(is_wanted)?;
        let described = self.state.describe_failure(id, failure);
        let text = format!(
            "{}: {} {}",
            failure.kind.title(),
            Label::new(id, &process.info),
            describe_failure(&described)
        );
        let mut found = PostMortem {
            schema: SCHEMA,
            at: Clock { at, now: self.state.now }.wall(failure.at),
            pid: visible(id),
            process_name: process.info.name.clone(),
            runtime: process.tracked.as_ref().and_then(|it| it.runtime.clone()),
            file: None,
            exact: process.is_complete,
            inexact_reason: None,
            later_failures: 0,
            failure: described,
            text,
            bank: None,
            holders: Vec::new(),
            make_room: None,
            sites_that_make_room: Vec::new(),
            in_the_way: Vec::new(),
            gaps: Vec::new(),
            open_with: open_with(process, failure),
        };
        let space = match failure.kind {
            FailureKind::OutOfMemory => failure.space,
            FailureKind::Clash | FailureKind::BeyondL1 => Some(Space::L1),
            _ => None,
        };
        let Some(bank) = space.and_then(|space| self.bank_of(process, failure, space)) else {
            return Some(found);
        };
        found.bank = Some(describe_bank(&bank, failure));
        found.holders = holders_in(&bank, &process.sites);
        match failure.kind {
            FailureKind::OutOfMemory => self.make_room(&bank, failure, &process.sites, &mut found),
            FailureKind::Clash => self.resolve_clash(process, &bank, failure, &mut found),
            _ => {}
        }
        Some(found)
    }

    /// The banks that a failure concerns: those of its allocator, else of one over the same chips.
    fn bank_of<'a>(&'a self, process: &'a ProcessState, failure: &Failure, space: Space) -> Option<Bank<'a>> {
        let chips: BTreeSet<ChipId> = failure.chips.iter().map(|&chip| self.state.resolve(chip)).collect();
        let shares_chip =
            |scope: &Scope| chips_in(&process.allocators, scope).iter().any(|it| chips.contains(it));
        let candidates = process.allocators.keys().map(|&number| Scope::Allocator(number));
        let candidates = candidates.filter(|scope| Some(*scope) == failure.scope || shares_chip(scope));
        // Of several allocators over the chips, the one whose banks hold the most counts: the others hardly have buffers.
        let held = |scope: &Scope| {
            let pool = process.pools.get(&(*scope, space, Basis::Exact));
            pool.map_or(0, |&pool| self.state.ledger.pool(pool).totals.count)
        };
        let with_banks = candidates.filter(|scope| process.banks(*scope, space).is_some());
        let scope = with_banks.max_by_key(|scope| (Some(*scope) == failure.scope, held(scope)))?;
        let layout = process.banks(scope, space)?;
        let pool = process.pools.get(&(scope, space, Basis::Exact)).copied();
        let entries =
            pool.into_iter().flat_map(|pool| self.state.ledger.entries(pool).map(|(_, entry)| entry));
        let mut bank =
            Bank { scope, layout, entries: entries.collect(), placed: Vec::new(), groups: BTreeMap::new() };
        let origins: BTreeMap<u32, u32> = groups_of(process, &bank.entries);
        for (index, entry) in bank.entries.iter().enumerate() {
            let group = origins.get(&entry.site).copied().unwrap_or(0);
            let sum = bank.groups.entry(group).or_default();
            sum.count += 1;
            sum.bytes_per_bank = sum.bytes_per_bank.saturating_add(entry.bytes_per_bank);
            let range = Range::new(entry.id, entry.bytes_per_bank);
            bank.placed.push(Placed { range, group, index: index as u32 });
        }
        let range = bank.range();
        room::sort(range, &mut bank.placed);
        Some(bank)
    }

    /// Which buffers to free for a block.
    fn make_room(&self, bank: &Bank<'_>, failure: &Failure, sites: &Sites, found: &mut PostMortem) {
        let needed = failure.needed;
        if needed == 0 {
            return;
        }
        found.make_room = room::cheapest_window(bank.range(), &bank.placed, needed).map(|window| {
            let freed = &bank.placed[window.buffers];
            let describe = |it: &Placed| self.state.describe_entry(bank.entry(it), self.state.now, false);
            MakeRoom {
                bytes_per_bank: window.freed,
                address: window.block.start,
                block_bytes_per_bank: window.block.end - window.block.start,
                count: freed.len() as u64,
                buffers: freed.iter().filter_map(describe).take(MAX_BUFFERS).collect(),
            }
        });
        let mut groups: Vec<(u32, Group)> = bank.groups.iter().map(|(&group, &sum)| (group, sum)).collect();
        groups.sort_by_key(|&(_, sum)| sum.bytes_per_bank);
        let is_enough = |group: u32| room::largest_without(bank.range(), &bank.placed, group) >= needed;
        // A group that is smaller than what is missing cannot make room.
        let free: u64 = room::holes(bank.range(), &bank.placed).iter().map(|hole| hole.len()).sum();
        let large = groups.into_iter().filter(|(_, sum)| free.saturating_add(sum.bytes_per_bank) >= needed);
        let enough = large.take(MAX_TRIED).filter(|&(group, _)| is_enough(group));
        found.sites_that_make_room =
            enough.take(MAX_SITES).map(|(group, sum)| holder(bank, sites, group, sum)).collect();
    }

    /// Which buffers are below the end of a program's memory, and where they go if they are allocated again.
    fn resolve_clash(
        &self,
        process: &ProcessState,
        bank: &Bank<'_>,
        failure: &Failure,
        found: &mut PostMortem,
    ) {
        let (end, base) = (failure.needed, bank.layout.base);
        let cores = process.core_set(failure.cores);
        let is_here = |entry: &Entry| match (process.core_set(entry.cores), cores) {
            (Some(of), Some(cores)) => !of.within(cores).is_empty(),
            _ => true,
        };
        let (low, high): (Vec<Placed>, Vec<Placed>) = bank.placed.iter().partition(|it| it.range.start < end);
        let lowest = low.first().or(high.first()).map(|it| it.range.start);
        // Buffers on single cores are not in lock-step with the others.
        let on_cores: Vec<&Entry> =
            self.single_core_buffers(process, bank.scope).into_iter().filter(|it| is_here(it)).collect();
        let lowest_on_cores = on_cores.iter().map(|it| it.id).min();
        let lowest_here =
            bank.placed.iter().filter(|it| is_here(bank.entry(it))).map(|it| it.range.start).min();
        let reserved = [lowest, lowest_on_cores].into_iter().flatten().min();
        found.gaps = vec![FailureGap {
            cores: cores.map(CoreSet::rectangles).unwrap_or_default(),
            lowest_buffer: [lowest_here, lowest_on_cores].into_iter().flatten().min(),
            lowest_reserved: reserved,
            needed_bytes: end.saturating_sub(base),
            free_bytes: reserved.unwrap_or(base + bank.layout.bytes_per_bank).saturating_sub(base),
        }];
        // Large ones first: small ones fit into what is left.
        let mut moved: Vec<&Entry> = low.iter().map(|it| bank.entry(it)).collect();
        moved.sort_by_key(|entry| (Reverse(entry.bytes_per_bank), Reverse(entry.id)));
        let sizes: Vec<u64> = moved.iter().map(|entry| entry.bytes_per_bank).collect();
        let places = room::place_from_above(room::holes(bank.range(), &high), &sizes, end);
        let describe = |entry: &Entry| self.state.describe_entry(entry, self.state.now, false);
        let in_the_way = |(entry, new_address): (&Entry, Option<u64>)| {
            Some(InTheWay { buffer: describe(entry)?, only_by_lockstep: !is_here(entry), new_address })
        };
        found.in_the_way = moved.into_iter().zip(places).filter_map(in_the_way).take(MAX_BUFFERS).collect();
        let single = on_cores.into_iter().filter(|entry| entry.id < end).map(|entry| (entry, None));
        found.in_the_way.extend(single.filter_map(in_the_way).take(MAX_BUFFERS));
    }

    /// Buffers on single cores of an allocator's chips.
    fn single_core_buffers<'a>(&'a self, process: &'a ProcessState, scope: Scope) -> Vec<&'a Entry> {
        let chips = chips_in(&process.allocators, &scope);
        let pools = process.pools.iter().filter(|((other, space, basis), _)| {
            let shares_chip = || chips_in(&process.allocators, other).iter().any(|it| chips.contains(it));
            *space == Space::L1Core && *basis == Basis::Exact && shares_chip()
        });
        let entries = pools.flat_map(|(_, &pool)| self.state.ledger.entries(pool).map(|(_, entry)| entry));
        entries.filter(|entry| !entry.layout.is_alias()).collect()
    }
}

/// Of each site the first one with the same line, operation and tensor. Mirrors have no site of their own.
fn groups_of(process: &ProcessState, entries: &[&Entry]) -> BTreeMap<u32, u32> {
    let mut first: BTreeMap<_, u32> = BTreeMap::new();
    let numbers: BTreeSet<u32> = entries.iter().map(|entry| entry.site).collect();
    let of = |number: u32| {
        let Origin { op, tensor, purpose, .. } = process.sites.origin(number);
        let name = process.sites.line(number).or_else(|| process.sites.name(number).cloned());
        (name, op, tensor, purpose.map(ttmem_types::Purpose::name))
    };
    numbers.into_iter().map(|number| (number, *first.entry(of(number)).or_insert(number))).collect()
}

/// All groups of a bank's buffers, largest first.
fn holders_in(bank: &Bank<'_>, sites: &Sites) -> Vec<FailureHolder> {
    let mut holders: Vec<FailureHolder> =
        bank.groups.iter().map(|(&group, &sum)| holder(bank, sites, group, sum)).collect();
    holders.sort_by_key(|it| Reverse(it.bytes_per_bank));
    holders
}

fn holder(bank: &Bank<'_>, sites: &Sites, group: u32, sum: Group) -> FailureHolder {
    let all: u64 = bank.groups.values().map(|it| it.bytes_per_bank).fold(0, u64::saturating_add);
    let share = sum.bytes_per_bank as f64 / all.max(1) as f64 * 100.0;
    FailureHolder {
        site_name: sites.line(group).or_else(|| sites.name(group).cloned()),
        origin: Origin { stack: Vec::new(), ..sites.origin(group) },
        count: sum.count,
        bytes_per_bank: sum.bytes_per_bank,
        share_percent: (share * 100.0).round() / 100.0,
    }
}

fn describe_bank(bank: &Bank<'_>, failure: &Failure) -> FailedBank {
    let holes = room::holes(bank.range(), &bank.placed);
    let free: u64 = holes.iter().map(|hole| hole.len()).sum();
    let shortage = match failure.kind {
        FailureKind::OutOfMemory if failure.needed > bank.layout.bytes_per_bank => Some(Shortage::TooLarge),
        FailureKind::OutOfMemory if failure.needed > free => Some(Shortage::Full),
        FailureKind::OutOfMemory if failure.needed > 0 => Some(Shortage::Fragmented),
        _ => None,
    };
    FailedBank {
        space: bank.layout.space,
        banks: bank.layout.banks,
        base: bank.layout.base,
        bytes_per_bank: bank.layout.bytes_per_bank,
        used_bytes_per_bank: bank.layout.bytes_per_bank - free,
        free_bytes_per_bank: free,
        largest_free_bytes_per_bank: holes.iter().map(|hole| hole.len()).max().unwrap_or(0),
        used_count: bank.entries.iter().filter(|entry| entry.layout != Layout::Mirror).count() as u64,
        free_count: holes.len() as u64,
        shortage,
    }
}

/// The parameter of `ttnn.open_device` with which the request fits.
fn open_with(process: &ProcessState, failure: &Failure) -> Option<OpenWith> {
    let named = |parameter: &str, bytes: u64| Some(OpenWith { parameter: parameter.to_owned(), bytes });
    let banks = || failure.scope.and_then(|scope| process.banks(scope, failure.space?));
    match (failure.kind, failure.space) {
        (FailureKind::TraceRegion, _) => named("trace_region_size", failure.requested),
        (FailureKind::OutOfMemory, Some(Space::L1Small)) => {
            let region = banks().map_or(0, |banks| banks.bytes_per_bank);
            named("l1_small_size", region.saturating_add(failure.needed))
        }
        (FailureKind::OutOfMemory, Some(Space::Trace)) => {
            let region = banks().map_or(0, |banks| banks.bytes_per_bank.saturating_mul(banks.banks.into()));
            named("trace_region_size", region.saturating_add(failure.requested))
        }
        _ => None,
    }
}
