//! What an event changes: first the private state, and through it the segment.
//!
//! The private state (index, links, rows) is in the process's own memory. The segment is written from it and not read back, except
//! for a slot's own words, which are only compared and subtracted.
//!
//! This module begins and finishes events; `usual` has the events that are frequent, `events` allocates and frees in general, `slots` and `rows` change the table and the totals,
//! `definitions`, `allocators`, `programs` and `failures` have their calls, `faults` counts, `lifecycle` creates and removes the segment, `repair`
//! follows an event that never ended.

mod allocators;
mod definitions;
mod events;
mod failures;
mod faults;
mod key;
mod lifecycle;
mod programs;
mod repair;
mod rows;
mod slots;
mod usual;

use crate::clock::Clock;
use crate::identity;
use crate::legacy::Legacy;
use crate::memory::{Array, prefetch_write};
use crate::publish;
use crate::segment::{Problem, Segment};
use crate::slot_index::SlotIndex;
use crate::text::Text;
use key::Key;
use rows::Row;
use slots::{Overflow, Slots};
use ttmem_types::limits::REMEMBERED_FREES;
use ttmem_types::{Fault, charged_banks};
use ttmem_wire::record::{Record, Space};
use ttmem_wire::segment::{Header, MAX_ROWS, MAX_SLOTS, word};
use zerocopy::{FromZeros, Immutable};

/// Definitions that are found again rather than made again, a power of two.
const REMEMBERED_DEFINITIONS: usize = 1 << 16;

#[derive(Clone, Copy, FromZeros, Immutable)]
#[repr(C, align(64))]
pub(crate) struct AllocatorState {
    open: u8,
    reserved: u8,
    chips: u16,
    first_chip: u32,
    /// Fingerprint of its current definition.
    fingerprint: u64,
    banks: [u16; Space::NUMBERS],
    /// Row + 1, by space.
    rows: [u16; Space::NUMBERS],
}

/// Settings of a writer.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) folder: Text<200>,
    pub(crate) group: Option<u32>,
    pub(crate) writer: Text<32>,
    pub(crate) runtime: Text<40>,
    /// Hooks that are installed, and those that were wanted.
    pub(crate) hooks: [u64; 2],
    /// Socket of an old server, to which events are sent instead of written to a file.
    pub(crate) legacy: Option<Text<108>>,
    /// Records of the ring, a power of two.
    pub(crate) ring: u32,
    /// The run that this process belongs to; 0: none.
    pub(crate) run: u64,
}

impl Settings {
    /// Creates a segment in a file; see [`Segment::create`].
    fn create_segment(&self, header: &Header) -> (Option<Segment>, Option<Problem>) {
        Segment::create(self.folder.as_str(), self.group, self.ring, header)
    }

    fn make_header(&self) -> Header {
        Header { run: self.run.into(), ..identity::make_header(self.writer.as_str(), self.runtime.as_str()) }
    }
}

/// Private state of a tracker. Fields are in the order of how often they are used: what every event uses is together, and not
/// spread over a dozen cache lines that the workload has evicted.
#[repr(C, align(64))]
pub(crate) struct Writer {
    sequence: u64,
    /// Number of events that changed what is allocated.
    changes: u64,
    clock: Clock,
    index: SlotIndex,
    slots: Slots,
    allocators: Array<AllocatorState>,
    rows: Array<Row>,
    /// Whether there is a legacy transport.
    has_legacy: bool,
    forked: bool,
    may_grow: bool,
    segment: Option<Segment>,
    /// Time of the current event, if the clock was read early; else 0.
    event_ns: u64,
    /// Number of frees, of which `recent_frees` has the last ones.
    frees: usize,
    /// Hashes of the last frees.
    recent_frees: [u64; REMEMBERED_FREES],
    core_counts: Array<u16>,
    /// The parent's segment, in a forked child: its definitions are valid in the child, too.
    inherited: Option<Segment>,
    overflow: Option<Overflow>,
    allocators_used: u16,
    /// Device numbers of chips in this process.
    chip_index: Array<u32>,
    chips_used: u16,
    /// Chips of all allocators, one list after the other.
    allocator_chips: Array<u16>,
    allocator_chips_used: u32,
    cores_used: u16,
    /// Numbers of definitions in use, by what they are of.
    numbers_used: [u32; definitions::NUMBERS],
    /// Fingerprints and numbers of definitions, by fingerprint.
    definitions: Array<[u64; 2]>,
    rows_used: u32,
    /// First row of a closed allocator, plus 1; each has the next one.
    vacant_rows: u32,
    blocks_used: u32,
    /// Blocks in use by each [`definitions::Part`].
    blocks_of_parts: [u32; definitions::PARTS],
    /// Faults counted in this segment.
    faults: [u64; Fault::COUNTED],
    /// Events lost before this segment was created.
    lost_before: u64,
    /// Failures, and the copies that were made of the segment.
    saved: failures::Saved,
    problem: Option<Problem>,
    legacy: Option<Legacy>,
    /// Whether another program truncated or erased the segment's file.
    is_damaged: bool,
    /// The segment's time of modification when it was last read.
    last_modified: i128,
    settings: Settings,
}

impl Writer {
    pub(crate) fn new(settings: &Settings) -> Option<Self> {
        let legacy = match &settings.legacy {
            Some(path) => Some(Legacy::new(*path)?),
            None => None,
        };
        Some(Self {
            settings: *settings,
            segment: None,
            inherited: None,
            index: SlotIndex::new()?,
            slots: Slots::new(MAX_SLOTS)?,
            overflow: None,
            allocators: Array::new(1 << 16)?,
            allocators_used: 0,
            chip_index: Array::new(1 << 16)?,
            chips_used: 0,
            allocator_chips: Array::new(1 << 20)?,
            allocator_chips_used: 0,
            core_counts: Array::new(1 << 16)?,
            cores_used: 0,
            numbers_used: [0; definitions::NUMBERS],
            definitions: Array::new(REMEMBERED_DEFINITIONS)?,
            rows: Array::new(MAX_ROWS as usize)?,
            rows_used: 0,
            vacant_rows: 0,
            blocks_used: 0,
            blocks_of_parts: [0; definitions::PARTS],
            clock: Clock::new(),
            event_ns: 0,
            sequence: 0,
            changes: 0,
            recent_frees: [0; REMEMBERED_FREES],
            frees: 0,
            faults: [0; Fault::COUNTED],
            lost_before: 0,
            forked: false,
            may_grow: true,
            saved: failures::Saved::default(),
            problem: None,
            has_legacy: legacy.is_some(),
            legacy,
            is_damaged: false,
            last_modified: 0,
        })
    }

    /// Returns the segment, created at the first use.
    #[inline]
    fn segment(&mut self) -> Option<&Segment> {
        if self.segment.is_none() {
            self.create_segment();
        }
        self.segment.as_ref()
    }

    /// Begins an event and writes its record. The caller then changes table and rows, and calls [`Writer::finish`].
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "through memory, a record is stored in parts and read in words: that stalls"
    )]
    fn begin(&mut self, record: &mut Record) -> bool {
        if self.segment().is_none() {
            return false;
        }
        self.sequence += 1;
        record.sequence = self.sequence.into();
        record.at_ns = if self.event_ns == 0 { self.clock.now() } else { self.event_ns }.into();
        if let Some(segment) = &self.segment {
            publish::begin(segment.word(word::BEGUN), self.sequence);
            publish::put(segment.record(self.sequence), &record.to_words());
            publish::fence_record();
        }
        true
    }

    #[inline]
    fn finish(&mut self) -> u64 {
        if let Some(segment) = &self.segment {
            publish::finish(segment.word(word::APPLIED), self.sequence);
            // No cache has the next line since the ring last wrapped, and the workload's next lock would wait for it.
            prefetch_write(segment.record(self.sequence + 1));
        }
        self.event_ns = 0;
        if self.has_legacy {
            self.send_queued();
        }
        self.sequence
    }

    #[cold]
    fn send_queued(&mut self) {
        let (Some(legacy), Some(segment)) = (&mut self.legacy, &self.segment) else { return };
        let (allocators, chips, index) = (&self.allocators, &self.allocator_chips, &self.chip_index);
        let chip = |allocator: u16, n: usize| {
            let state = allocators.get(usize::from(allocator))?;
            let chip = chips.get(state.first_chip as usize + n).filter(|_| n < usize::from(state.chips))?;
            index.get(usize::from(*chip)).copied()
        };
        let (slots, core_counts) = (&mut self.slots, &self.core_counts);
        legacy.send_queued(
            |slot| segment.slot(slot).map(slots::load),
            chip,
            |cores| core_counts[usize::from(cores)],
            |slot| slots.release(slot),
        );
    }

    /// Returns the number of the last event.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    fn open_allocator(&self, number: u16) -> Option<&AllocatorState> {
        let state = self.allocators.get(usize::from(number))?;
        (state.open != 0).then_some(state)
    }

    /// Returns the bytes that an allocation is charged.
    #[inline]
    fn charge(&self, space: Space, record: &Record) -> u64 {
        let cores = || self.core_counts[usize::from(record.cores.get())];
        let banks = || self.allocators[usize::from(record.allocator.get())].banks[space as usize];
        record.charge(charged_banks(space, cores, banks))
    }
}
