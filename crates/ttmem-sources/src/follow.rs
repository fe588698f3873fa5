//! From a segment's bytes to events. Normally the new records of the ring are enough; at the first look, and whenever
//! more happened than the ring holds, everything is listed anew from the table.

use crate::segment::{Contents, SegmentFile, Skip};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::CoreSet;
use ttmem_core::event::{
    Alloc, Allocator, Audit, Banks, Event, Extent, FaultReport, Free, Holding, Name, OutOfMemory, Program,
    Trace, Tracked,
};
use ttmem_core::machine::{Capacity, CapacityOrigin, Chip, CoreLayout};
use ttmem_core::words::{Arch, ChipId, KernelClass, Mono, Scope, Space, Uncertainty};
use ttmem_types::{Fault, charged_banks};
use ttmem_wire::hooks;
use ttmem_wire::record::{Kind, NO_SLOT, PADDING_UNKNOWN, Record, flags};
use ttmem_wire::segment::definition::{Definition, parse};
use ttmem_wire::segment::{self, text};

/// An allocator that was defined.
struct Known {
    /// Banks, by the number of the space.
    banks: [u16; Space::NUMBERS],
    /// Told again when it is opened again.
    definition: Allocator,
}

/// How far one segment has been followed, and what its numbers mean.
#[derive(Default)]
pub(crate) struct Follower {
    /// Tells the numbers of several segments of one process apart.
    index: u32,
    begun: bool,
    sequence: u64,
    blocks: u32,
    faults: [u64; Fault::COUNTED],
    chips: BTreeMap<u16, ChipId>,
    allocators: Vec<Option<Known>>,
    open: BTreeSet<u16>,
    core_counts: Vec<u16>,
    unlisted: BTreeMap<(u16, u8), Holding>,
    /// Hooks and cost, as last told.
    tracker: Option<[u64; 3]>,
    /// Sequence of the last failed allocation that was told.
    failed: u64,
    /// Something went that was never listed: only the table tells what is left.
    must_relist: bool,
}

/// What hears events.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(Event);

impl Follower {
    pub(crate) fn new(index: u32) -> Self {
        Self { index, ..Self::default() }
    }

    /// Numbers of definitions, made unique among the segments of one process.
    fn number(&self, number: u16) -> u32 {
        self.index << 16 | u32::from(number)
    }

    fn scope(&self, allocator: u16) -> Scope {
        Scope::Allocator(self.number(allocator))
    }

    /// Tells what happened since the last time. Returns by how many records the writer had moved on.
    pub(crate) fn follow(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<u64, Skip> {
        let applied = segment.applied()?;
        let ahead = applied.saturating_sub(self.sequence);
        if self.begun && ahead == 0 && applied == self.sequence {
            self.define(segment, emit)?;
            return Ok(0);
        }
        let records = if self.begun { segment.records(self.sequence, applied)? } else { None };
        match records {
            Some(records) => {
                self.define(segment, emit)?;
                let lumps = self.unlisted.clone();
                for record in &records {
                    self.tell(record, emit);
                }
                self.tell_unlisted(&lumps, emit);
                self.sequence = applied;
                if std::mem::take(&mut self.must_relist) {
                    self.relist(segment, emit)?;
                } else {
                    self.see(true, emit);
                }
            }
            None => self.relist(segment, emit)?,
        }
        self.tell_faults(segment, emit)?;
        Ok(ahead)
    }

    pub(crate) fn see(&self, exactly: bool, emit: Emit<'_>) {
        // Where programs' memory lies is not known unless it is listed.
        let placed = |&(_, space): &(u16, u8)| !Space::from_number(space).is_some_and(Space::is_program);
        let exactly = exactly && self.unlisted.iter().all(|(key, holding)| placed(key) || holding.count == 0);
        emit(Event::Seen { sequence: self.sequence, exactly });
    }

    fn relist(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<(), Skip> {
        self.define(segment, emit)?;
        let contents = segment.contents()?;
        // An open allocator has a row for each of its spaces; those of a closed one may be another's by now.
        let living = contents.rows.iter().filter(|row| row.closed.get() != 1);
        let mut living: BTreeSet<u16> = living.map(|row| row.allocator.get()).collect();
        // One that hands out nothing, but is what programs and traces refer to, has no rows before they keep something.
        let held = contents.slots.iter().filter(|slot| slot.sequence.get() != 0);
        living.extend(held.map(|slot| slot.allocator.get()));
        for &allocator in self.open.difference(&living) {
            emit(Event::AllocatorClosed(self.number(allocator)));
        }
        self.open.retain(|allocator| living.contains(allocator));
        // Only what this segment said is forgotten.
        for &allocator in &self.open {
            emit(Event::Relisted(self.number(allocator)));
        }
        self.define(segment, emit)?;
        self.begun = true;
        self.sequence = contents.sequence;
        self.tell_contents(&contents, emit);
        self.see(contents.exact, emit);
        Ok(())
    }

    fn tell_contents(&mut self, contents: &Contents, emit: Emit<'_>) {
        let live = || contents.slots.iter().filter(|slot| slot.sequence.get() != 0);
        let mut listed: BTreeMap<(u16, u8), Holding> = BTreeMap::new();
        for record in live().filter(|slot| slot.kind == Kind::Alloc as u8) {
            self.tell(record, emit);
            let sum = listed.entry((record.allocator.get(), record.space)).or_default();
            sum.requested = sum.requested.saturating_add(record.own_requested());
            sum.allocated = sum.allocated.saturating_add(self.charge(record));
            sum.count += 1;
        }
        // What was dispatched last on a core is what is there.
        let of_programs = [Kind::ProgramBegin, Kind::Dispatch, Kind::Trace].map(|kind| kind as u8);
        let mut dispatched: Vec<&Record> = live().filter(|slot| of_programs.contains(&slot.kind)).collect();
        dispatched.sort_by_key(|record| record.sequence.get());
        for record in dispatched {
            self.tell(record, emit);
        }
        self.unlisted.clear();
        for row in contents.rows.iter().filter(|row| row.closed.get() != 1) {
            let key = (row.allocator.get(), row.space);
            let Some(space) = Space::from_number(row.space) else { continue };
            self.reopen(key.0, emit);
            let scope = self.scope(key.0);
            let listed = listed.get(&key).copied().unwrap_or_default();
            if row.unlisted.get() > 0 {
                let rest = Holding {
                    requested: row.requested.get().saturating_sub(listed.requested),
                    allocated: row.allocated.get().saturating_sub(listed.allocated),
                    count: row.count.get().saturating_sub(listed.count),
                };
                self.unlisted.insert(key, rest);
            }
            if self.open.contains(&key.0) {
                emit(Event::Peak { scope, space, bytes: Some(row.peak.get()) });
            }
        }
        // An audit can be judged only if nothing happened in its space since.
        let mut changed: BTreeMap<(u16, u8), u64> = BTreeMap::new();
        for row in &contents.rows {
            let last = changed.entry((row.allocator.get(), row.space)).or_default();
            *last = row.sequence.get().max(*last);
        }
        for record in live().filter(|slot| slot.kind == Kind::Audit as u8) {
            let key = (record.allocator.get(), record.space);
            if changed.get(&key).is_none_or(|&changed| changed < record.sequence.get()) {
                self.tell(record, emit);
            }
        }
        self.tell_unlisted(&BTreeMap::new(), emit);
    }

    fn tell_unlisted(&self, old: &BTreeMap<(u16, u8), Holding>, emit: Emit<'_>) {
        let keys: BTreeSet<_> = old.keys().chain(self.unlisted.keys()).copied().collect();
        for key in keys {
            let holding = self.unlisted.get(&key).copied().unwrap_or_default();
            let known = old.get(&key).copied().unwrap_or_default();
            if let Some(space) = Space::from_number(key.1).filter(|_| holding != known) {
                emit(Event::Unlisted { scope: self.scope(key.0), space, holding });
            }
        }
    }

    fn tell_faults(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<(), Skip> {
        let vitals = segment.vitals()?;
        self.tell_tracker(segment, &vitals, emit);
        for (counter, fault) in vitals.faults.iter().zip(Fault::ALL) {
            let [count, id] = counter.map(zerocopy::little_endian::U64::get);
            let new = count.saturating_sub(self.faults[fault.index()]);
            if new == 0 {
                continue;
            }
            self.faults[fault.index()] = count;
            match fault {
                Fault::Lost => emit(Event::Lost(new)),
                Fault::OutOfMemory => self.tell_failures(segment, new, id, emit)?,
                fault => emit(Event::Fault(FaultReport { fault, count: new, id })),
            }
        }
        Ok(())
    }

    /// Emits `count` failed allocations. Those that the segment no longer keeps are counted with the oldest that it keeps.
    fn tell_failures(
        &mut self,
        segment: &SegmentFile,
        count: u64,
        id: u64,
        emit: Emit<'_>,
    ) -> Result<(), Skip> {
        let mut failures = segment.failures()?;
        failures.retain(|failure| failure.sequence.get() > self.failed);
        failures.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        let mut unkept = count - failures.len() as u64;
        if failures.is_empty() {
            emit(Event::Fault(FaultReport { fault: Fault::OutOfMemory, count, id }));
        }
        for failure in &failures {
            self.failed = failure.sequence.get();
            let known = self.allocators.get(usize::from(failure.allocator.get())).and_then(Option::as_ref);
            emit(Event::OutOfMemory(OutOfMemory {
                chips: known.map_or_else(Vec::new, |known| known.definition.chips.clone()),
                space: failure.space(),
                requested: failure.requested.get(),
                largest_free_bytes_per_bank: (failure.flags.get() & flags::MEASURED != 0)
                    .then(|| failure.id.get()),
                at: Mono(failure.at_ns.get()),
                count: 1 + std::mem::take(&mut unkept),
            }));
        }
        Ok(())
    }

    /// Tells who tracks the process, and how well, when that has changed.
    fn tell_tracker(&mut self, segment: &SegmentFile, vitals: &segment::Vitals, emit: Emit<'_>) {
        let now =
            [vitals.hooks_taken, vitals.hooks_wanted, vitals.cost_ns].map(zerocopy::little_endian::U64::get);
        if self.tracker == Some(now) {
            return;
        }
        self.tracker = Some(now);
        let [taken, wanted, cost_ns] = now;
        let header = segment.header();
        emit(Event::Tracked(Tracked {
            writer: text(&header.writer).to_owned(),
            runtime: Some(text(&header.runtime).to_owned()).filter(|runtime| !runtime.is_empty()),
            hooks: wanted.count_ones(),
            missing: hooks::names(wanted & !taken).map(ToOwned::to_owned).collect(),
            cost_ns: Some(cost_ns).filter(|&ns| ns > 0),
        }));
    }

    /// Tells what was defined since the last time.
    fn define(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<(), Skip> {
        let (bytes, used) = segment.definitions(self.blocks)?;
        self.blocks = used;
        for definition in parse(&bytes).flatten() {
            match definition {
                Definition::Chip(number, it) => {
                    let id = match it.unique_id.get() {
                        0 => ChipId::Ordinal(it.index.get()),
                        id => ChipId::Unique(id),
                    };
                    self.chips.insert(number, id);
                    emit(Event::Chip(chip(id, it)));
                }
                Definition::Allocator(number, banks, chips) => {
                    let chips: Vec<ChipId> =
                        chips.iter().filter_map(|chip| self.chips.get(&chip.get()).copied()).collect();
                    let mut counts = [0; Space::NUMBERS];
                    let mut spaces = Vec::new();
                    for it in banks {
                        let Some(space) = Space::from_number(it.space) else { continue };
                        counts[space as usize] = it.banks.get();
                        let (banks, base) = (it.banks.get(), it.base.get());
                        spaces.push(Banks { space, banks, base, bytes_per_bank: it.bytes_per_bank.get() });
                    }
                    let place = usize::from(number);
                    if self.allocators.len() <= place {
                        self.allocators.resize_with(place + 1, || None);
                    }
                    let definition = Allocator { id: self.number(number), chips, spaces };
                    self.allocators[place] = Some(Known { banks: counts, definition: definition.clone() });
                    self.open.insert(number);
                    emit(Event::Allocator(definition));
                }
                Definition::Cores(number, words) => {
                    let cores = CoreSet::from_words(words.map(zerocopy::little_endian::U64::get));
                    let place = usize::from(number);
                    if self.core_counts.len() <= place {
                        self.core_counts.resize(place + 1, 0);
                    }
                    self.core_counts[place] = cores.count() as u16;
                    emit(Event::Cores(self.number(number), cores));
                }
                Definition::Program(number, name) => {
                    emit(Event::Named(Name::Program(number), name.to_owned()));
                }
                Definition::Site(number, site) => {
                    emit(Event::Named(Name::Site(self.site(number)), site.to_owned()));
                }
            }
        }
        Ok(())
    }

    fn site(&self, number: u32) -> u32 {
        if number == 0 { 0 } else { number ^ self.index << 24 }
    }

    /// Banks or cores that an allocation is charged on.
    #[inline]
    fn banks(&self, record: &Record) -> u16 {
        let Some(space) = record.space() else { return 0 };
        let cores = || self.core_counts.get(usize::from(record.cores.get())).copied().unwrap_or(0);
        let allocator = usize::from(record.allocator.get());
        let banks = || {
            let known = self.allocators.get(allocator).and_then(Option::as_ref);
            known.map_or(0, |known| known.banks[space as usize])
        };
        charged_banks(space, cores, banks)
    }

    fn charge(&self, record: &Record) -> u64 {
        record.charge(self.banks(record))
    }

    #[inline]
    fn tell(&mut self, record: &Record, emit: Emit<'_>) {
        // A kind or a space of a later version says something we have no words for.
        let Some(kind) = Kind::from_byte(record.kind) else { return };
        let allocator = record.allocator.get();
        let scope = self.scope(allocator);
        let space = Space::from_number(record.space);
        let program = record.program.get();
        if !matches!(kind, Kind::AllocatorEnd | Kind::Refused) {
            self.reopen(allocator, emit);
        }
        match (kind, space) {
            (Kind::Alloc | Kind::Free, Some(_)) if record.slot.get() == NO_SLOT => self.lump(record, kind),
            (Kind::Alloc, Some(space)) => emit(Event::Alloc(self.alloc(record, scope, space))),
            (Kind::Free, Some(space)) => emit(Event::Free(Free {
                scope,
                space: Some(space),
                id: record.id.get(),
                program: if space.is_program() { program } else { 0 },
                size: Some(record.requested.get()),
                cores: match record.cores.get() {
                    0 => 0,
                    cores => self.number(cores),
                },
            })),
            (Kind::ProgramBegin | Kind::Dispatch, _) => emit(Event::Program(Program {
                scope,
                id: program,
                cores: match record.cores.get() {
                    0 => 0,
                    cores => self.number(cores),
                },
                site: self.site(record.site.get()),
                class: record.class(),
                dispatches: record.requested.get().max(u64::from(kind == Kind::Dispatch)),
                dispatched: (kind == Kind::Dispatch).then(|| Mono(record.at_ns.get())),
            })),
            (Kind::Trace, _) => emit(Event::Trace(Trace {
                scope,
                id: record.id.get() as u32,
                dispatches: record.requested.get(),
                replays: u64::from(record.padding.get()),
                captured: Mono(record.bytes_per_bank.get()),
            })),
            (Kind::TraceEnd, _) => emit(Event::TraceEnded(scope, record.id.get() as u32)),
            (Kind::ProgramEnd, _) => {
                let program_space = |space: u8| Space::from_number(space).is_some_and(Space::is_program);
                let lumped = self.unlisted.iter().any(|(&(of, space), holding)| {
                    of == allocator && holding.count > 0 && program_space(space)
                });
                self.must_relist |= lumped;
                emit(Event::ProgramEnded(scope, program));
            }
            (Kind::AllocatorBegin, _) => {
                let known = self.allocators.get(usize::from(allocator)).and_then(Option::as_ref);
                for banks in known.iter().flat_map(|known| &known.definition.spaces) {
                    emit(Event::Peak { scope, space: banks.space, bytes: Some(0) });
                }
            }
            (Kind::AllocatorEnd, _) if record.flags.get() & flags::CLEARED != 0 => {
                self.unlisted.retain(|&(of, _), _| of != allocator);
                emit(Event::AllocatorCleared(self.number(allocator)));
            }
            (Kind::AllocatorEnd, _) => {
                self.open.remove(&allocator);
                self.unlisted.retain(|&(of, _), _| of != allocator);
                emit(Event::AllocatorClosed(self.number(allocator)));
            }
            (Kind::Audit, Some(space)) => emit(Event::Audit(Audit {
                allocator: self.number(allocator),
                space,
                allocated_bytes: record.id.get(),
                free_bytes: record.requested.get(),
                largest_free_bytes_per_bank: record.bytes_per_bank.get(),
                quiet: record.flags.get() & flags::QUIET != 0,
                sequence: record.sequence.get(),
            })),
            (Kind::PeakReset, Some(space)) => emit(Event::Peak { scope, space, bytes: None }),
            // Refusals and failures are counted in the header, so that none is missed; the others lack a space.
            (
                Kind::Refused | Kind::OutOfMemory | Kind::Alloc | Kind::Free | Kind::Audit | Kind::PeakReset,
                _,
            ) => {}
        }
    }

    /// A closed allocator of which something is heard is open again.
    #[inline]
    fn reopen(&mut self, allocator: u16, emit: Emit<'_>) {
        if self.open.contains(&allocator) {
            return;
        }
        if let Some(Some(known)) = self.allocators.get(usize::from(allocator)) {
            emit(Event::Allocator(known.definition.clone()));
            self.open.insert(allocator);
        }
    }

    /// Counts what is held without being listed.
    fn lump(&mut self, record: &Record, kind: Kind) {
        let charge = self.charge(record);
        let sum = self.unlisted.entry((record.allocator.get(), record.space)).or_default();
        let change = |of: &mut u64, by: u64| {
            *of = if kind == Kind::Alloc { of.saturating_add(by) } else { of.saturating_sub(by) };
        };
        change(&mut sum.requested, record.own_requested());
        change(&mut sum.allocated, charge);
        change(&mut sum.count, 1);
    }

    #[inline]
    fn alloc(&self, record: &Record, scope: Scope, space: Space) -> Alloc {
        let (requested, bytes_per_bank) = (record.requested.get(), record.bytes_per_bank.get());
        let banks = self.banks(record);
        let occupied = match record.padding.get() {
            _ if space.is_program() => bytes_per_bank.saturating_mul(u64::from(banks)),
            PADDING_UNKNOWN => 0,
            padding => requested.saturating_add(u64::from(padding)),
        };
        let extent = (bytes_per_bank > 0 && banks > 0).then_some(Extent { occupied, bytes_per_bank, banks });
        Alloc {
            scope,
            space,
            id: record.id.get(),
            requested,
            at: Some(Mono(record.at_ns.get())),
            extent,
            cores: match record.cores.get() {
                0 => 0,
                cores => self.number(cores),
            },
            program: if space.is_program() { record.program.get() } else { 0 },
            site: self.site(record.site.get()),
            layout: record.layout(),
            class: if space == Space::Kernel { record.class() } else { KernelClass::Unknown },
            uncertainty: if space.is_program() { uncertainty(record, space) } else { Uncertainty::default() },
        }
    }

    /// Everything this segment's process holds through it is gone, though the process may live on.
    pub(crate) fn retire(&mut self, emit: Emit<'_>) {
        for allocator in std::mem::take(&mut self.open) {
            emit(Event::AllocatorClosed(self.number(allocator)));
        }
    }
}

/// What is not known of program memory.
fn uncertainty(record: &Record, space: Space) -> Uncertainty {
    let uncertainty = record.uncertainty();
    Uncertainty {
        // A kernel has no address.
        unplaced: uncertainty.unplaced && space != Space::Kernel,
        // Without its cores, a program cannot be followed.
        unfollowed: uncertainty.unfollowed || record.cores.get() == 0,
        ..uncertainty
    }
}

fn chip(id: ChipId, it: &segment::definition::Chip) -> Chip {
    let known = |n: u64| (n > 0).then_some(n);
    let (cores, l1) = (it.cores.get(), it.l1_bytes_per_core.get());
    let capacity = (it.dram_bytes.get() > 0 && cores > 0 && l1 > 0).then(|| Capacity {
        dram_bytes: it.dram_bytes.get(),
        dram_channels: it.dram_channels.get(),
        dram_bytes_per_channel: it.dram_bytes_per_channel.get(),
        l1_bytes: l1.saturating_mul(u64::from(cores)),
        cores,
        l1_bytes_per_core: l1,
        dram_allocatable_bytes: known(it.dram_allocatable.get()),
        l1_allocatable_bytes: known(it.l1_allocatable.get()),
        origin: CapacityOrigin::Runtime,
    });
    Chip {
        pci: text(&it.pci).parse().ok(),
        arch: Arch::from_number(it.arch),
        board: Some(text(&it.board).to_owned()).filter(|board| !board.is_empty()),
        remote: it.remote == 1,
        capacity,
        core_layout: core_layout(it),
        ..Chip::new(id, it.index.get())
    }
}

/// How a core's L1 is divided, if that was said and can be.
fn core_layout(it: &segment::definition::Chip) -> Option<CoreLayout> {
    let layout = CoreLayout {
        columns: it.columns,
        rows: it.rows,
        kernel_config: u64::from(it.kernel_config.get()),
        unreserved: u64::from(it.unreserved.get()),
        end: it.l1_bytes_per_core.get(),
    };
    let fits = (1..=16).contains(&layout.columns) && (1..=16).contains(&layout.rows);
    let ordered = layout.kernel_config <= layout.unreserved && layout.unreserved <= layout.end;
    (fits && ordered && layout.end > 0).then_some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_laid_out_only_as_it_can_be() {
        let told = |columns, rows, ring: u32, unreserved: u32, end: u64| {
            core_layout(&segment::definition::Chip {
                columns,
                rows,
                kernel_config: ring.into(),
                unreserved: unreserved.into(),
                l1_bytes_per_core: end.into(),
                ..Default::default()
            })
        };
        assert!(told(8, 8, 35_168, 105_824, 1_499_136).is_some());
        assert!(told(16, 16, 0, 0, 1).is_some(), "as large as it can be, with nothing kept back");
        for (columns, rows) in [(0, 8), (8, 0), (17, 8), (8, 17), (255, 255)] {
            assert!(told(columns, rows, 1, 2, 3).is_none(), "{columns} x {rows}");
        }
        assert!(told(8, 8, 3, 2, 4).is_none(), "a ring that ends before it begins");
        assert!(told(8, 8, 1, 5, 4).is_none(), "no room behind it");
        assert!(told(8, 8, 0, 0, 0).is_none(), "nothing was said");
    }
}
