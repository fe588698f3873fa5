//! What an event does: to the private books, and through them to the segment.
//!
//! The books (map, links, rows) are private and in the process's own memory. What is in the segment is written from
//! them and never believed, except a slot's own words, which are only ever compared and subtracted.

mod allocators;
mod definitions;
mod key;
mod programs;
mod slots;
mod upkeep;

use crate::clock::Clock;
use crate::legacy::Legacy;
use crate::live::{Live, hash};
use crate::memory::{Array, expect_write};
use crate::publish::{self, Ordering};
use crate::segment::{Line, Problem, Segment};
use crate::text::Text;
use crate::types::Result;
use key::Key;
use slots::{Link, Overflow, Slots};
use ttmem_types::limits::{MAX_ALLOCATION_BYTES, REMEMBERED_FREES};
use ttmem_types::{Fault, charged_banks};
use ttmem_wire::record::{self, Head, Kind, NO_SLOT, Record, Space, flags};
use ttmem_wire::segment::{MAX_ROWS, MAX_SLOTS, word};
use zerocopy::{FromZeros, Immutable};

/// Slots from here on are private: there is no room for them in the table.
const OVERFLOW: u32 = 1 << 30;
const MAX_OVERFLOW: u32 = 1 << 20;
/// Definitions that are found again rather than made again, a power of two.
const REMEMBERED_DEFINITIONS: usize = 1 << 14;

#[derive(Clone, Copy, FromZeros, Immutable)]
#[repr(C, align(64))]
pub(crate) struct AllocatorState {
    open: u8,
    reserved: u8,
    chips: u16,
    first_chip: u32,
    /// Fingerprint of its definition as it is now.
    print: u64,
    banks: [u16; Space::NUMBERS],
    /// Row + 1, by space.
    rows: [u16; Space::NUMBERS],
}

#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Row {
    allocator: u16,
    space: u8,
    /// The copy to write next.
    copy: u8,
    closed: u32,
    next_vacant: u32,
    reserved: u32,
    requested: u64,
    allocated: u64,
    count: u64,
    peak: u64,
    unlisted: u64,
}

/// How the writer was set up.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) folder: Text<200>,
    pub(crate) group: Option<u32>,
    pub(crate) writer: Text<32>,
    pub(crate) runtime: Text<40>,
    /// Hooks that took, and those that were wanted.
    pub(crate) hooks: [u64; 2],
    /// An old server's socket: events go there instead of into a file.
    pub(crate) legacy: Option<Text<108>>,
}

/// In the order of how often a field is needed: what every event touches lies together, and is not spread over a dozen
/// cache lines that the workload has long displaced.
#[repr(C, align(64))]
pub(crate) struct Writer {
    sequence: u64,
    /// Events that change what is held.
    changes: u64,
    /// The time of the event in hand, if it was asked for early.
    at: u64,
    clock: Clock,
    live: Live,
    shared: Slots,
    allocators: Array<AllocatorState>,
    rows: Array<Row>,
    /// Whether there is an old server to tell.
    tells: bool,
    forked: bool,
    may_grow: bool,
    segment: Option<Segment>,
    freed_at: usize,
    freed: [u64; REMEMBERED_FREES],
    core_counts: Array<u16>,
    /// The parent's segment, in a forked child: its definitions hold here, too.
    inherited: Option<Segment>,
    overflow: Option<Overflow>,
    allocators_used: u16,
    /// The numbers that programs call their chips by.
    chip_index: Array<u32>,
    chips_used: u16,
    /// Chips of all allocators, one list behind the other.
    covered: Array<u16>,
    covered_used: u32,
    cores_used: u16,
    sites_used: u32,
    /// Hash and number of core sets and sites, by hash.
    known: Array<[u64; 2]>,
    rows_used: u32,
    /// The first row of a closed allocator, plus 1; each leads to the next.
    vacant_rows: u32,
    blocks_used: u32,
    /// Faults counted in this segment.
    faults: [u64; Fault::COUNTED],
    /// Events lost before it.
    lost_before: u64,
    problem: Option<Problem>,
    legacy: Option<Legacy>,
    /// The segment's time of modification when it was last looked at.
    bell: i128,
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
            live: Live::new()?,
            shared: Slots::new(MAX_SLOTS)?,
            overflow: None,
            allocators: Array::new(1 << 16)?,
            allocators_used: 0,
            chip_index: Array::new(1 << 16)?,
            chips_used: 0,
            covered: Array::new(1 << 20)?,
            covered_used: 0,
            core_counts: Array::new(1 << 16)?,
            cores_used: 0,
            sites_used: 0,
            known: Array::new(REMEMBERED_DEFINITIONS)?,
            rows: Array::new(MAX_ROWS as usize)?,
            rows_used: 0,
            vacant_rows: 0,
            blocks_used: 0,
            clock: Clock::new(),
            at: 0,
            sequence: 0,
            changes: 0,
            freed: [0; REMEMBERED_FREES],
            freed_at: 0,
            faults: [0; Fault::COUNTED],
            lost_before: 0,
            forked: false,
            may_grow: true,
            problem: None,
            tells: legacy.is_some(),
            legacy,
            bell: 0,
        })
    }

    /// The segment, made at the first need.
    #[inline]
    fn segment(&mut self) -> Option<&Segment> {
        if self.segment.is_none() {
            self.make_segment();
        }
        self.segment.as_ref()
    }

    /// Begins an event and writes its record. What follows changes table and rows; then [`Writer::finish`].
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
        record.at_ns = if self.at == 0 { self.clock.now() } else { self.at }.into();
        if let Some(segment) = &self.segment {
            publish::begin(segment.word(word::BEGUN), self.sequence);
            publish::put(segment.record(self.sequence), &record.to_words());
            publish::settle();
        }
        true
    }

    #[inline]
    fn finish(&mut self) -> u64 {
        if let Some(segment) = &self.segment {
            publish::finish(segment.word(word::APPLIED), self.sequence);
            // Nobody has touched it since the ring last came round, and the workload's next lock would wait for it.
            expect_write(segment.record(self.sequence + 1));
        }
        self.at = 0;
        if self.tells {
            self.pump();
        }
        self.sequence
    }

    #[cold]
    fn pump(&mut self) {
        let (Some(legacy), Some(segment)) = (&mut self.legacy, &self.segment) else { return };
        let (allocators, covered, index) = (&self.allocators, &self.covered, &self.chip_index);
        let chips = |allocator: u16, n: usize| {
            let state = allocators.get(usize::from(allocator))?;
            let chip = covered.get(state.first_chip as usize + n).filter(|_| n < usize::from(state.chips))?;
            index.get(usize::from(*chip)).copied()
        };
        let (shared, core_counts) = (&mut self.shared, &self.core_counts);
        legacy.pump(
            |slot| segment.slot(slot).map(load),
            chips,
            |cores| core_counts[usize::from(cores)],
            |slot| shared.give_back(slot),
        );
    }

    /// Writes a row as it is now. What seldom changes is stored only if it did: stores are what an event costs.
    #[inline]
    fn write_row(&mut self, row: usize) {
        let Some(segment) = &self.segment else { return };
        let Some(it) = self.rows.get_mut(row) else { return };
        it.copy ^= 1;
        let Some(line) = segment.row(row as u32, usize::from(it.copy)) else { return };
        let key = u64::from(it.allocator) | u64::from(it.space) << 16;
        for (word, value) in [(1, key), (5, it.peak), (6, it.unlisted), (7, u64::from(it.closed))] {
            if line[word].load(Ordering::Relaxed) != value {
                line[word].store(value, Ordering::Relaxed);
            }
        }
        line[2].store(it.requested, Ordering::Relaxed);
        line[3].store(it.allocated, Ordering::Relaxed);
        line[4].store(it.count, Ordering::Relaxed);
        line[0].store(self.sequence, Ordering::Release);
    }

    /// Counts a fault, and leaves a record of it.
    #[cold]
    fn refuse(&mut self, fault: Fault, space: Option<Space>, allocator: u16, id: u64) -> Fault {
        self.count(fault, id);
        let mut record = Record {
            flags: (fault.index() as u16).into(),
            id: id.into(),
            ..Record::new(Kind::Refused, space, allocator)
        };
        if self.begin(&mut record) {
            self.finish();
        }
        fault
    }

    fn count(&mut self, fault: Fault, id: u64) {
        self.count_many(fault, 1, id);
    }

    fn count_many(&mut self, fault: Fault, times: u64, id: u64) {
        let n = fault.index();
        let Some(count) = self.faults.get_mut(n) else { return };
        *count = count.saturating_add(times);
        let count = *count;
        if let Some(segment) = self.segment() {
            segment.word(word::FAULTS + n * 16 + 8).store(id, Ordering::Relaxed);
            // Who sees the count sees the failure that was counted.
            segment.word(word::FAULTS + n * 16).store(count, Ordering::Release);
        }
    }

    /// Where the slots are.
    pub(crate) fn table(&self) -> *const Line {
        let first = self.segment.as_ref().and_then(|segment| segment.slot(0));
        first.map_or(core::ptr::null(), core::ptr::from_ref)
    }

    fn allocator(&self, number: u16) -> Option<&AllocatorState> {
        let state = self.allocators.get(usize::from(number))?;
        (state.open != 0).then_some(state)
    }

    /// Bytes that an allocation is charged.
    #[inline]
    fn charge(&self, space: Space, record: &Record) -> u64 {
        let cores = || self.core_counts[usize::from(record.cores.get())];
        let banks = || self.allocators[usize::from(record.allocator.get())].banks[space as usize];
        record.charge(charged_banks(space, cores, banks))
    }

    #[inline]
    fn row_of(&mut self, allocator: u16, space: Space) -> Option<usize> {
        match self.allocators[usize::from(allocator)].rows[space as usize] {
            0 => self.make_row(allocator, space),
            row => Some(usize::from(row) - 1),
        }
    }

    #[cold]
    fn make_row(&mut self, allocator: u16, space: Space) -> Option<usize> {
        let row = match self.vacant_rows.checked_sub(1) {
            Some(vacant) => {
                self.vacant_rows = self.rows[vacant as usize].next_vacant;
                vacant as usize
            }
            None => {
                self.rows_used += 1;
                self.rows_used as usize - 1
            }
        };
        if row >= self.rows.len() {
            self.rows_used = self.rows.len() as u32;
            return None;
        }
        let copy = self.rows[row].copy;
        self.rows[row] = Row { allocator, space: space as u8, copy, ..Row::new_zeroed() };
        self.allocators[usize::from(allocator)].rows[space as usize] = row as u16 + 1;
        let used = u64::from(self.rows_used);
        if let Some(segment) = self.segment() {
            segment.word(word::ROWS_USED).store(used, Ordering::Release);
        }
        Some(row)
    }

    /// The slot with this hash whose words fit, and where its entry in the map is.
    #[inline]
    fn find_by(&self, hash: u64, fits: impl Fn(&dyn Fn(usize) -> u64) -> bool) -> Option<(u32, usize)> {
        let segment = self.segment.as_ref()?;
        self.live.find(hash, |slot| {
            if let Some(line) = segment.slot(slot) {
                return fits(&|n| line[n].load(Ordering::Relaxed));
            }
            self.private(slot).is_some_and(|held| {
                let words = held.to_words();
                fits(&|n| words[n])
            })
        })
    }

    fn find(&self, key: &Key) -> Option<u32> {
        self.locate(key).map(|(slot, _)| slot)
    }

    /// The slot, and where its entry in the map is.
    fn locate(&self, key: &Key) -> Option<(u32, usize)> {
        self.find_by(key.hash, |word| key.fits(word))
    }

    /// The slot of a buffer, as by its key, without making one.
    #[inline]
    fn find_buffer(&self, hash: u64, head: Head, id: u64) -> Option<(u32, usize)> {
        self.find_by(hash, |word| {
            Head::from_word(word(Head::WORD)).identity() == head.identity() && word(record::word::ID) == id
        })
    }

    /// The record in a private slot.
    fn private(&self, slot: u32) -> Option<&Record> {
        self.overflow.as_ref()?.records.get(slot.wrapping_sub(OVERFLOW) as usize)
    }

    /// The record in a slot.
    fn held(&self, slot: u32) -> Record {
        match self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            Some(line) => load(line),
            None => self.private(slot).copied().unwrap_or_else(Record::new_zeroed),
        }
    }

    /// The allocator of what is in a slot.
    fn allocator_of(&self, slot: u32) -> u16 {
        match self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            Some(line) => Head::from_word(line[Head::WORD].load(Ordering::Relaxed)).allocator(),
            None => self.private(slot).map_or(0, |held| held.allocator.get()),
        }
    }

    /// A free slot: in the table if there is room, else a private one.
    #[inline]
    fn take_slot(&mut self) -> Option<u32> {
        let slots = self.segment()?.slots();
        match self.shared.take(slots) {
            Some(slot) => Some(slot),
            None => self.take_another_slot(),
        }
    }

    #[cold]
    fn take_another_slot(&mut self) -> Option<u32> {
        let folder = self.settings.folder;
        if let Some(segment) = self.segment.as_mut().filter(|_| self.may_grow) {
            match segment.grow(folder.as_str()) {
                Ok(()) => {
                    let slots = segment.slots();
                    return self.shared.take(slots);
                }
                Err(problem) => {
                    // Asking again at every event would cost the workload; `refresh` asks again.
                    self.may_grow = false;
                    self.problem = Some(problem);
                    self.note_problem();
                }
            }
        }
        if self.overflow.is_none() {
            let (slots, records) = (Slots::new(MAX_OVERFLOW)?, Array::new(MAX_OVERFLOW as usize)?);
            self.overflow = Some(Overflow { slots, records });
        }
        self.overflow.as_mut()?.slots.take(MAX_OVERFLOW).map(|slot| slot + OVERFLOW)
    }

    fn link(&mut self, slot: u32) -> Option<&mut Link> {
        if slot >= OVERFLOW {
            return self.overflow.as_mut()?.slots.links.get_mut((slot - OVERFLOW) as usize);
        }
        self.shared.links.get_mut(slot as usize)
    }

    /// Puts a record into its slot. The event has begun.
    #[inline]
    fn occupy(&mut self, slot: u32, record: &Record) {
        if let Some(line) = self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            publish::put(line, &record.to_words());
            // An old server knows neither programs nor audits.
            if self.tells && record.kind == Kind::Alloc as u8 {
                if let Some(legacy) = &mut self.legacy {
                    legacy.came(slot);
                }
            }
        } else if let Some(place) =
            self.overflow.as_mut().and_then(|it| it.records.get_mut(slot.wrapping_sub(OVERFLOW) as usize))
        {
            *place = *record;
        }
    }

    /// Takes a slot out of the table. What it held is the caller's to subtract, and the map's entry is gone already. The
    /// event has begun.
    #[inline]
    fn vacate(&mut self, slot: u32) {
        if slot >= OVERFLOW {
            if let Some(overflow) = &mut self.overflow {
                overflow.slots.give_back(slot - OVERFLOW);
            }
            return;
        }
        if self.tells {
            // Its words are needed until the old server was told.
            if self.legacy.as_mut().is_some_and(|legacy| !legacy.went(slot)) {
                return;
            }
        }
        if let Some(line) = self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            publish::clear(line);
        }
        self.shared.give_back(slot);
    }

    /// Records an allocation: a buffer, or program memory. `record` lacks its sequence, time and slot.
    #[inline]
    pub(crate) fn allocate(&mut self, space: Space, record: &Record) -> Result {
        if space.is_stacked() || record.program.get() != 0 {
            return self.allocate_beside_others(space, record);
        }
        self.allocate_as::<false>(space, record)
    }

    /// Records an allocation that shares its address, or belongs to a program.
    #[inline(never)]
    fn allocate_beside_others(&mut self, space: Space, record: &Record) -> Result {
        self.allocate_as::<true>(space, record)
    }

    /// Compiled twice, so that the path of a plain buffer, by far the most frequent, is short.
    #[inline]
    fn allocate_as<const BESIDE_OTHERS: bool>(&mut self, space: Space, record: &Record) -> Result {
        let (allocator, id) = (record.allocator.get(), record.id.get());
        let requested = record.requested.get();
        let refusal = if self.allocator(allocator).is_none() {
            Some(Fault::UnknownAllocator)
        } else if requested == 0 {
            Some(Fault::ZeroSize)
        } else if requested > MAX_ALLOCATION_BYTES {
            Some(Fault::TooLarge)
        } else if space != Space::Kernel && id.checked_add(requested).is_none() {
            Some(Fault::BeyondAddresses)
        } else {
            None
        };
        if let Some(fault) = refusal {
            return Err(self.refuse(fault, Some(space), allocator, id));
        }
        let mut record = *record;
        let charge = self.charge(space, &record);
        if charge > MAX_ALLOCATION_BYTES {
            return Err(self.refuse(Fault::TooLarge, Some(space), allocator, id));
        }
        let program = record.program.get();
        let stacked = BESIDE_OTHERS && space.is_stacked();
        let head = Head::new(Kind::Alloc, Some(space), allocator);
        let key = || Key::memory(space, allocator, id, program, requested, record.cores.get());
        let hash = if stacked { key().hash } else { hash(id, head.identity(), 0) };
        self.live.expect(hash);
        // While the map's line is on its way.
        self.at = self.clock.now();
        let found = if stacked { self.locate(&key()) } else { self.find_buffer(hash, head, id) };
        let mut fault = None;
        if let Some(held) = found {
            fault = Some(self.replace(held, requested, id));
        }
        let mut program_slot = None;
        if BESIDE_OTHERS && program != 0 {
            program_slot = Some(self.program_slot(allocator, program)?);
        }
        let (Some(row), Some(slot)) = (self.row_of(allocator, space), self.take_slot()) else {
            return Err(self.lose(id));
        };
        if !self.live.insert(hash, slot) {
            self.untake(slot);
            return Err(self.lose(id));
        }
        record.slot = listed(slot).into();
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.changes += 1;
        self.occupy(slot, &record);
        if let Some(program_slot) = program_slot {
            self.join(program_slot, slot);
        }
        let unlisted = slot >= OVERFLOW;
        let it = &mut self.rows[row];
        it.requested += record.own_requested();
        it.allocated += charge;
        it.count += 1;
        it.peak = it.peak.max(it.allocated);
        it.unlisted += u64::from(unlisted);
        self.write_row(row);
        if unlisted {
            self.count(Fault::Unlisted, id);
        }
        let sequence = self.finish();
        fault.map_or(Ok(sequence), Err)
    }

    /// Frees what an address held before: its free was missed.
    #[cold]
    fn replace(&mut self, held: (u32, usize), requested: u64, id: u64) -> Fault {
        let same = self.held(held.0).requested.get() == requested;
        let fault = if same { Fault::StillHeld } else { Fault::Replaced };
        self.release(held, flags::IMPLIED);
        self.count(fault, id);
        fault
    }

    #[cold]
    fn lose(&mut self, id: u64) -> Fault {
        self.count(Fault::Lost, id);
        Fault::Lost
    }

    fn untake(&mut self, slot: u32) {
        if slot >= OVERFLOW {
            if let Some(overflow) = &mut self.overflow {
                overflow.slots.give_back(slot - OVERFLOW);
            }
        } else {
            self.shared.give_back(slot);
        }
    }

    /// Frees what is in a slot: one event. Its record repeats what it undoes.
    #[inline]
    fn release(&mut self, (slot, entry): (u32, usize), how: u16) -> u64 {
        let held = self.held(slot);
        let mut record = Record {
            kind: Kind::Free as u8,
            flags: (held.flags.get() & (flags::MIRROR | flags::VIEW) | how).into(),
            slot: listed(slot).into(),
            ..held
        };
        if !self.begin(&mut record) {
            return 0;
        }
        self.changes += 1;
        if held.program.get() != 0 {
            self.leave(slot);
        }
        self.live.remove_at(entry);
        self.vacate(slot);
        if let Some(row) = self.subtract(&held, slot >= OVERFLOW) {
            self.write_row(row);
        }
        self.finish()
    }

    /// Subtracts from a row what a slot held, and returns the row.
    #[inline]
    fn subtract(&mut self, held: &Record, unlisted: bool) -> Option<usize> {
        let space = held.space()?;
        let row = self.row_of(held.allocator.get(), space)?;
        let charge = self.charge(space, held);
        let it = &mut self.rows[row];
        it.requested = it.requested.saturating_sub(held.own_requested());
        it.allocated = it.allocated.saturating_sub(charge);
        it.count = it.count.saturating_sub(1);
        it.unlisted = it.unlisted.saturating_sub(u64::from(unlisted));
        Some(row)
    }

    /// Frees what `allocate` recorded. `spaces` are tried in turn.
    pub(crate) fn free(&mut self, spaces: &[Space], record: &Record) -> Result {
        let (allocator, id) = (record.allocator.get(), record.id.get());
        let named = if let [space] = spaces { Some(*space) } else { None };
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, named, allocator, id));
        }
        for &space in spaces.iter().filter(|space| !space.is_stacked()) {
            let head = Head::new(Kind::Alloc, Some(space), allocator);
            let hash = hash(id, head.identity(), 0);
            self.live.expect(hash);
            self.at = self.clock.now();
            if let Some(found) = self.find_buffer(hash, head, id) {
                return Ok(self.give_back(found, hash));
            }
        }
        let (program, requested, cores) = (record.program.get(), record.requested.get(), record.cores.get());
        let key = |space: Space| Key::memory(space, allocator, id, program, requested, cores);
        for &space in spaces.iter().filter(|space| space.is_stacked()) {
            let key = key(space);
            if let Some(found) = self.locate(&key) {
                return Ok(self.give_back(found, key.hash));
            }
        }
        let before = spaces.iter().any(|&space| self.freed.contains(&key(space).hash));
        let fault = match (before, self.forked) {
            (true, _) => Fault::DoubleFree,
            (false, true) => Fault::InheritedFree,
            (false, false) => Fault::UnknownFree,
        };
        Err(self.refuse(fault, named, allocator, id))
    }

    #[inline]
    fn give_back(&mut self, found: (u32, usize), hash: u64) -> u64 {
        self.freed[self.freed_at % REMEMBERED_FREES] = hash;
        self.freed_at = self.freed_at.wrapping_add(1);
        self.release(found, 0)
    }
}

/// A slot's number as records have it: private slots have none.
#[inline]
fn listed(slot: u32) -> u32 {
    if slot < OVERFLOW { slot } else { NO_SLOT }
}

/// The record in a slot of the table.
#[inline]
fn load(line: &Line) -> Record {
    Record::from_words(core::array::from_fn(|n| line[n].load(Ordering::Relaxed)))
}
