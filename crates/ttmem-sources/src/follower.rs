//! Turns the content of a segment into events. Normally the new records of the ring are enough; the first time, and after
//! more events than the ring holds, everything is listed again from the table.
//!
//! `records` translates records, `views` keeps the addresses of views that move, `events` delivers them one by one to sinks that want them, `definitions` the definitions of
//! chips, allocators, cores and names, `native` the names of native frames, `faults` the counters of the header.

mod definitions;
mod events;
mod faults;
mod native;
mod records;
mod views;

pub(crate) use events::find_gap;

use crate::event_sink::SegmentEvent;
use crate::files::SkipReason;
use crate::segment::{Contents, Rewound, SegmentFile, shifted};
use crate::symbols::Library;
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::input::{Allocator, Holding, Input};
use ttmem_core::words::{ChipId, Mono, Scope, Space};
use ttmem_types::Fault;
use ttmem_wire::record::{Kind, Record};
use views::ProgramViews;

/// A defined allocator.
struct AllocatorInfo {
    /// Banks, by the number of the space.
    banks: [u16; Space::NUMBERS],
    /// Emitted again when the allocator is opened again.
    definition: Allocator,
}

/// The numbers of an allocator and a space.
type AllocatorSpace = (u16, u8);

/// The position in one segment, and the definitions that were read from it.
#[derive(Default)]
pub(crate) struct Follower {
    /// The segment's number among those of its process.
    index: u32,
    /// Whether the events before the first poll are read, too, if the ring still has all of them.
    from_start: bool,
    /// Whether anything was read yet.
    started: bool,
    /// Sequence number of the last event that was read.
    sequence: u64,
    /// Blocks of definitions that were read.
    blocks_read: u32,
    fault_counts: [u64; Fault::COUNTED],
    chips: BTreeMap<u16, ChipId>,
    /// By number: a process chooses its numbers, so they may be far apart.
    allocators: BTreeMap<u16, AllocatorInfo>,
    open_allocators: BTreeSet<u16>,
    /// An allocator that is open: that of the last record, and most likely of the next one.
    recent_allocator: Option<u16>,
    /// Cores of each set, by number.
    core_counts: BTreeMap<u16, u16>,
    /// Libraries by number, for the names of frames in them.
    libraries: BTreeMap<u32, Library>,
    /// Numbers of source files that libraries were built from.
    source_files: BTreeMap<String, u32>,
    /// Whether the file of a library hung: no more of them are opened.
    hangs: bool,
    /// What is held without being listed.
    unlisted: BTreeMap<AllocatorSpace, Holding>,
    /// Views that may move with each dispatch of their program, by allocator and program.
    views: BTreeMap<(u16, u32), ProgramViews>,
    /// Hooks and cost of the tracker, as last emitted.
    tracker_words: Option<[u64; 3]>,
    /// Failures that were emitted.
    failed: u64,
    /// Sequence number of the last one.
    last_failure: u64,
    /// Our monotonic clock minus that of the writer, in nanoseconds.
    clock_shift: i128,
    /// Whether unlisted allocations were freed with a program, so that only the table has what is left.
    must_relist: bool,
}

/// Receives input.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(Input);

/// Receives what follows from the records of one process.
pub(crate) trait ProcessSink {
    /// As [`crate::EventSink::emit`].
    fn emit(&mut self, input: Input);
    /// As [`crate::EventSink::wants_records`].
    fn wants_records(&self) -> bool;
    /// As [`crate::EventSink::emit_record`].
    fn emit_record(&mut self, event: &SegmentEvent<'_>);
}

impl Follower {
    pub(crate) fn new(index: u32) -> Self {
        Self { index, ..Self::default() }
    }

    /// A follower that reads the events before its first poll, too, if the ring still has all of them: what the peak consisted of is
    /// then known.
    pub(crate) fn from_start(index: u32) -> Self {
        Self { from_start: true, ..Self::new(index) }
    }

    /// Makes the number of a definition unique among the segments of one process.
    fn definition_id(&self, number: u16) -> u32 {
        self.index << 16 | u32::from(number)
    }

    /// Makes the number of a call site unique among the segments of one process. 0 is no site.
    fn site_id(&self, number: u32) -> u32 {
        if number == 0 { 0 } else { number ^ self.index << 24 }
    }

    /// A time of the writer by our clock.
    #[inline]
    fn time(&self, at_ns: u64) -> Mono {
        if self.clock_shift == 0 { Mono(at_ns) } else { shifted(at_ns, self.clock_shift) }
    }

    fn scope(&self, allocator: u16) -> Scope {
        Scope::Allocator(self.definition_id(allocator))
    }

    #[inline]
    fn allocator(&self, number: u16) -> Option<&AllocatorInfo> {
        self.allocators.get(&number)
    }

    /// Emits what happened since the last call. Returns how many records the writer was ahead.
    pub(crate) fn follow(
        &mut self,
        segment: &SegmentFile,
        sink: &mut dyn ProcessSink,
    ) -> Result<u64, SkipReason> {
        self.clock_shift = segment.clock_shift();
        let applied = segment.applied()?;
        let ahead = applied.saturating_sub(self.sequence);
        if self.started && ahead == 0 && applied == self.sequence {
            self.emit_definitions(segment, &mut |input| sink.emit(input))?;
            return Ok(0);
        }
        let before = self.started.then_some(self.sequence);
        let continues = self.started || self.from_start;
        let records = if continues { segment.records(self.sequence, applied)? } else { None };
        match records {
            Some(records) => {
                self.started = true;
                self.emit_definitions(segment, &mut |input| sink.emit(input))?;
                let unlisted = self.unlisted.clone();
                let wants_records = sink.wants_records();
                for record in &records {
                    self.emit_record(record, &mut |input| sink.emit(input));
                    if wants_records {
                        sink.emit_record(&self.segment_event(segment, record, (true, true)));
                    }
                }
                self.emit_unlisted(&unlisted, &mut |input| sink.emit(input));
                self.sequence = applied;
                if std::mem::take(&mut self.must_relist) {
                    self.relist(segment, &mut |input| sink.emit(input))?;
                    self.emit_kept(segment, Some(applied), sink)?;
                } else {
                    self.emit_progress(true, &mut |input| sink.emit(input));
                }
            }
            None => {
                self.relist(segment, &mut |input| sink.emit(input))?;
                self.emit_kept(segment, before, sink)?;
            }
        }
        self.emit_faults(segment, &mut |input| sink.emit(input))?;
        Ok(ahead)
    }

    /// Emits up to which event the segment was read, and whether everything emitted is exact.
    pub(crate) fn emit_progress(&self, exact: bool, emit: Emit<'_>) {
        // Program memory has an address only if it is listed.
        let is_buffers =
            |&(_, space): &AllocatorSpace| !Space::from_number(space).is_some_and(Space::is_program);
        let exact = exact && self.unlisted.iter().all(|(key, holding)| is_buffers(key) || holding.count == 0);
        emit(Input::Progress { sequence: self.sequence, exact });
    }

    /// Lists everything again from the table.
    fn relist(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<(), SkipReason> {
        self.emit_definitions(segment, emit)?;
        let contents = segment.contents()?;
        // An open allocator has a row for each of its spaces; those of a closed one may be another's by now.
        let open = contents.rows.iter().filter(|row| row.closed.get() != 1);
        let mut open: BTreeSet<u16> = open.map(|row| row.allocator.get()).collect();
        // One that allocates nothing, but is the scope of programs and traces, has no rows before they hold something.
        let used = contents.slots.iter().filter(|slot| slot.sequence.get() != 0);
        open.extend(used.map(|slot| slot.allocator.get()));
        for &allocator in self.open_allocators.difference(&open) {
            emit(Input::AllocatorClosed(self.definition_id(allocator)));
        }
        self.open_allocators.retain(|allocator| open.contains(allocator));
        self.recent_allocator = None;
        // Only the allocators of this segment are emptied.
        for &allocator in &self.open_allocators {
            emit(Input::ListingBegun(self.definition_id(allocator)));
        }
        self.emit_definitions(segment, emit)?;
        self.started = true;
        self.sequence = contents.sequence;
        self.emit_contents(&contents, emit);
        self.emit_last_mark(segment, emit)?;
        self.emit_progress(contents.exact, emit);
        Ok(())
    }

    /// Lists what was held right after event `sequence`, or as soon after it as the ring reaches back. The receiver must be empty.
    pub(crate) fn list_at(
        &mut self,
        segment: &SegmentFile,
        sequence: u64,
        emit: Emit<'_>,
    ) -> Result<Rewound, SkipReason> {
        self.clock_shift = segment.clock_shift();
        self.emit_definitions(segment, emit)?;
        let rewound = segment.contents_at(sequence)?;
        self.started = true;
        self.sequence = rewound.contents.sequence;
        self.emit_contents(&rewound.contents, emit);
        self.emit_last_mark(segment, emit)?;
        self.emit_progress(rewound.is_complete, emit);
        self.emit_faults(segment, emit)?;
        Ok(rewound)
    }

    /// Emits the last mark, whose record the ring may have lost, unless it is later than what was read.
    fn emit_last_mark(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<(), SkipReason> {
        let mark = segment.mark()?.filter(|mark| mark.sequence.get() <= self.sequence);
        if let Some(mark) = mark {
            self.emit_record(&mark, emit);
        }
        Ok(())
    }

    fn emit_contents(&mut self, contents: &Contents, emit: Emit<'_>) {
        let live = || contents.slots.iter().filter(|slot| slot.sequence.get() != 0);
        let of_programs = [Kind::ProgramBegin, Kind::Dispatch, Kind::Trace].map(|kind| kind as u8);
        let mut dispatched: Vec<&Record> = live().filter(|slot| of_programs.contains(&slot.kind)).collect();
        self.views.clear();
        for record in &dispatched {
            self.note_addresses(record);
        }
        let mut listed: BTreeMap<AllocatorSpace, Holding> = BTreeMap::new();
        for record in live().filter(|slot| slot.kind == Kind::Alloc as u8) {
            self.emit_record(record, emit);
            let sum = listed.entry((record.allocator.get(), record.space)).or_default();
            sum.requested = sum.requested.saturating_add(record.own_requested());
            sum.allocated = sum.allocated.saturating_add(self.charge_of(record));
            sum.count += 1;
        }
        // In the order of dispatch, since the last program dispatched on a core is the one that is resident.
        dispatched.sort_by_key(|record| record.sequence.get());
        for record in dispatched {
            self.emit_record(record, emit);
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
            if self.open_allocators.contains(&key.0) {
                emit(Input::Peak { scope, space, bytes: Some(row.peak.get()) });
            }
        }
        // An audit can be compared only if no event in its space followed it.
        let mut changed: BTreeMap<AllocatorSpace, u64> = BTreeMap::new();
        for row in &contents.rows {
            let last = changed.entry((row.allocator.get(), row.space)).or_default();
            *last = row.sequence.get().max(*last);
        }
        for record in live().filter(|slot| slot.kind == Kind::Audit as u8) {
            let key = (record.allocator.get(), record.space);
            if changed.get(&key).is_none_or(|&changed| changed < record.sequence.get()) {
                self.emit_record(record, emit);
            }
        }
        self.emit_unlisted(&BTreeMap::new(), emit);
    }

    /// Emits the sums of unlisted allocations that differ from `old`.
    fn emit_unlisted(&self, old: &BTreeMap<AllocatorSpace, Holding>, emit: Emit<'_>) {
        let keys: BTreeSet<_> = old.keys().chain(self.unlisted.keys()).copied().collect();
        for key in keys {
            let holding = self.unlisted.get(&key).copied().unwrap_or_default();
            let before = old.get(&key).copied().unwrap_or_default();
            if let Some(space) = Space::from_number(key.1).filter(|_| holding != before) {
                emit(Input::Unlisted { scope: self.scope(key.0), space, holding });
            }
        }
    }

    /// Opens a closed allocator again, since an event refers to it.
    #[inline]
    fn reopen(&mut self, allocator: u16, emit: Emit<'_>) {
        if self.recent_allocator == Some(allocator) {
            return;
        }
        if self.open_allocators.contains(&allocator) {
            self.recent_allocator = Some(allocator);
            return;
        }
        if let Some(info) = self.allocators.get(&allocator) {
            emit(Input::Allocator(info.definition.clone()));
            self.open_allocators.insert(allocator);
        }
    }

    /// Closes all allocators: the process is alive and holds nothing through this segment any more.
    pub(crate) fn close_allocators(&mut self, emit: Emit<'_>) {
        self.recent_allocator = None;
        for allocator in std::mem::take(&mut self.open_allocators) {
            emit(Input::AllocatorClosed(self.definition_id(allocator)));
        }
    }
}
