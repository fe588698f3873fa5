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
use crate::segment::{Segment, Trouble};
use crate::text::Text;
use crate::types::{Error, Result};
use key::{Key, is_anothers, is_on_cores, is_stacked, own_bytes};
use slots::{Link, Overflow, Slots};
use ttmem_wire::record::{Kind, NO_SLOT, Space, WORDS, flags};
use ttmem_wire::segment::{MAX_ROWS, MAX_SLOTS, Oddity, word};
use zerocopy::{FromZeros, Immutable};

pub(crate) use key::is_program;

/// No allocation is larger.
const MAX_BYTES: u64 = 1 << 40;
/// Slots from here on are private: there is no room for them in the table.
const OVERFLOW: u32 = 1 << 30;
const MAX_OVERFLOW: u32 = 1 << 20;
/// Frees that double frees are told from unknown ones by.
const REMEMBERED: usize = 256;
const SPACES: usize = 11;
/// Definitions that are found again rather than made again, a power of two.
const REMEMBERED_DEFINITIONS: usize = 1 << 14;

type Words = [u64; WORDS];

/// Something to hold.
pub(crate) struct Thing {
    pub(crate) allocator: u16,
    pub(crate) space: Space,
    pub(crate) flags: u16,
    pub(crate) cores: u16,
    pub(crate) id: u64,
    pub(crate) requested: u64,
    pub(crate) bytes_per_bank: u64,
    pub(crate) padding: u32,
    pub(crate) program: u32,
    pub(crate) site: u32,
}

#[derive(Clone, Copy, FromZeros, Immutable)]
#[repr(C, align(64))]
pub(crate) struct AllocatorState {
    open: u8,
    reserved: u8,
    chips: u16,
    first_chip: u32,
    /// Fingerprint of its definition as it is now.
    print: u64,
    banks: [u16; SPACES],
    /// Row + 1, by space.
    rows: [u16; SPACES],
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
    freed: [u64; REMEMBERED],
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
    /// Oddities told in this segment.
    oddities: [u64; Oddity::ROOM],
    /// Events lost before it.
    lost_before: u64,
    trouble: Option<Trouble>,
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
            freed: [0; REMEMBERED],
            freed_at: 0,
            oddities: [0; Oddity::ROOM],
            lost_before: 0,
            forked: false,
            may_grow: true,
            trouble: None,
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
    #[inline]
    fn begin(&mut self, words: &mut Words) -> bool {
        if self.segment().is_none() {
            return false;
        }
        self.sequence += 1;
        words[0] = self.sequence;
        words[1] = if self.at == 0 { self.clock.now() } else { self.at };
        if let Some(segment) = &self.segment {
            publish::begin(segment.word(word::BEGUN), self.sequence);
            publish::put(segment.record(self.sequence), words);
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
            |slot| segment.slot(slot).map(|line| core::array::from_fn(|n| line[n].load(Ordering::Relaxed))),
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

    /// Counts something that cannot be right, and leaves a record of it.
    #[cold]
    fn refuse(&mut self, oddity: Oddity, space: u8, allocator: u16, id: u64) -> Error {
        self.count(oddity, id);
        let mut words = [0; WORDS];
        words[2] = Key::head(Kind::Refused, space, allocator) | (oddity as u64) << 32;
        words[3] = id;
        words[7] = u64::from(NO_SLOT) << 32;
        if self.begin(&mut words) {
            self.finish();
        }
        Error::of(oddity)
    }

    fn count(&mut self, oddity: Oddity, id: u64) {
        self.count_many(oddity, 1, id);
    }

    fn count_many(&mut self, oddity: Oddity, times: u64, id: u64) {
        let n = oddity as usize;
        self.oddities[n] = self.oddities[n].saturating_add(times);
        let count = self.oddities[n];
        if let Some(segment) = self.segment() {
            segment.word(word::ODDITIES + n * 16 + 8).store(id, Ordering::Relaxed);
            segment.word(word::ODDITIES + n * 16).store(count, Ordering::Relaxed);
        }
    }

    /// Where the slots are.
    pub(crate) fn table(&self) -> *const crate::segment::Line {
        let first = self.segment.as_ref().and_then(|segment| segment.slot(0));
        first.map_or(core::ptr::null(), core::ptr::from_ref)
    }

    fn allocator(&self, number: u16) -> Option<&AllocatorState> {
        let state = self.allocators.get(usize::from(number))?;
        (state.open != 0).then_some(state)
    }

    /// What an allocation of these words is charged with.
    #[inline]
    fn charge(&self, words: &Words) -> u64 {
        let (head, requested, bytes_per_bank) = (words[2], words[4], words[5]);
        let (allocator, cores) = ((head >> 16) as u16, (head >> 48) as u16);
        if is_anothers(words) {
            return 0;
        }
        let space = (head >> 8) as u8;
        let banks = if is_on_cores(space) {
            self.core_counts[usize::from(cores)].max(1)
        } else {
            self.allocators[usize::from(allocator)].banks[usize::from(space) % SPACES]
        };
        match (bytes_per_bank, banks) {
            (0, _) | (_, 0) => requested,
            (bytes, banks) => bytes.saturating_mul(u64::from(banks)),
        }
    }

    #[inline]
    fn row_of(&mut self, allocator: u16, space: u8) -> Option<usize> {
        match self.allocators[usize::from(allocator)].rows[usize::from(space) % SPACES] {
            0 => self.make_row(allocator, space),
            row => Some(usize::from(row) - 1),
        }
    }

    #[cold]
    fn make_row(&mut self, allocator: u16, space: u8) -> Option<usize> {
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
        self.rows[row] = Row { allocator, space, copy, ..Row::new_zeroed() };
        self.allocators[usize::from(allocator)].rows[usize::from(space) % SPACES] = row as u16 + 1;
        let used = u64::from(self.rows_used);
        if let Some(segment) = self.segment() {
            segment.word(word::ROWS_USED).store(used, Ordering::Release);
        }
        Some(row)
    }

    /// The slot with this hash whose words fit.
    #[inline]
    fn find_by(&self, hash: u64, fits: impl Fn(&dyn Fn(usize) -> u64) -> bool) -> Option<(u32, usize)> {
        let segment = self.segment.as_ref()?;
        self.live.find(hash, |slot| {
            if let Some(line) = segment.slot(slot) {
                return fits(&|n| line[n].load(Ordering::Relaxed));
            }
            let words =
                self.overflow.as_ref().and_then(|it| it.words.get(slot.wrapping_sub(OVERFLOW) as usize));
            words.is_some_and(|words| fits(&|n| words[n]))
        })
    }

    fn find(&self, key: &Key) -> Option<u32> {
        self.locate(key).map(|(slot, _)| slot)
    }

    /// The slot, and where its entry in the map is.
    fn locate(&self, key: &Key) -> Option<(u32, usize)> {
        self.find_by(key.hash, |word| key.fits(word(2), word(3), word(4), word(6)))
    }

    /// The slot of a buffer: the same as by its key, without making one.
    #[inline]
    fn find_buffer(&self, hash: u64, head: u64, id: u64) -> Option<(u32, usize)> {
        self.find_by(hash, |word| word(2) & Key::HEAD == head && word(3) == id)
    }

    fn words_of(&self, slot: u32) -> Words {
        if let Some(line) = self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            return core::array::from_fn(|n| line[n].load(Ordering::Relaxed));
        }
        let words = self.overflow.as_ref().and_then(|it| it.words.get(slot.wrapping_sub(OVERFLOW) as usize));
        words.copied().unwrap_or_default()
    }

    /// The word of a slot that says what it is, and whose.
    fn head_of(&self, slot: u32) -> u64 {
        if let Some(line) = self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            return line[2].load(Ordering::Relaxed);
        }
        self.words_of(slot)[2]
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
                Err(trouble) => {
                    // Asking again at every event would cost the workload; `refresh` asks again.
                    self.may_grow = false;
                    self.trouble = Some(trouble);
                    self.note_trouble();
                }
            }
        }
        if self.overflow.is_none() {
            let (slots, words) = (Slots::new(MAX_OVERFLOW)?, Array::new(MAX_OVERFLOW as usize)?);
            self.overflow = Some(Overflow { slots, words });
        }
        self.overflow.as_mut()?.slots.take(MAX_OVERFLOW).map(|slot| slot + OVERFLOW)
    }

    fn link(&mut self, slot: u32) -> Option<&mut Link> {
        if slot >= OVERFLOW {
            return self.overflow.as_mut()?.slots.links.get_mut((slot - OVERFLOW) as usize);
        }
        self.shared.links.get_mut(slot as usize)
    }

    /// Puts words into a slot, and the slot into the books. The event has begun.
    #[inline]
    fn occupy(&mut self, slot: u32, words: &Words) {
        if let Some(line) = self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            publish::put(line, words);
            // An old server knows neither programs nor audits.
            if self.tells && words[2] as u8 == Kind::Alloc as u8 {
                if let Some(legacy) = &mut self.legacy {
                    legacy.came(slot);
                }
            }
        } else if let Some(place) =
            self.overflow.as_mut().and_then(|it| it.words.get_mut(slot.wrapping_sub(OVERFLOW) as usize))
        {
            *place = *words;
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

    /// Holds a buffer or a part of a program.
    #[inline]
    pub(crate) fn hold(&mut self, thing: &Thing) -> Result {
        if is_stacked(thing.space) || thing.program != 0 {
            return self.hold_beside_others(thing);
        }
        self.hold_as::<false>(thing)
    }

    /// What has its address not to itself, or belongs to a program.
    #[inline(never)]
    fn hold_beside_others(&mut self, thing: &Thing) -> Result {
        self.hold_as::<true>(thing)
    }

    /// Made twice, so that the way of a plain buffer, by far the most travelled, is short.
    #[inline]
    fn hold_as<const BESIDE_OTHERS: bool>(&mut self, thing: &Thing) -> Result {
        let Thing { allocator, space, id, requested, .. } = *thing;
        let refusal = if self.allocator(allocator).is_none() {
            Some(Oddity::UnknownAllocator)
        } else if requested == 0 {
            Some(Oddity::ZeroSize)
        } else if requested > MAX_BYTES {
            Some(Oddity::TooLarge)
        } else if space != Space::Kernel && id.checked_add(requested).is_none() {
            Some(Oddity::BeyondAddresses)
        } else {
            None
        };
        if let Some(oddity) = refusal {
            return Err(self.refuse(oddity, space as u8, allocator, id));
        }
        let mut words = [
            0,
            0,
            Key::head(Kind::Alloc, space as u8, allocator)
                | u64::from(thing.flags) << 32
                | u64::from(thing.cores) << 48,
            id,
            requested,
            thing.bytes_per_bank,
            u64::from(thing.padding) | u64::from(thing.program) << 32,
            u64::from(thing.site),
        ];
        let charge = self.charge(&words);
        if charge > MAX_BYTES {
            return Err(self.refuse(Oddity::TooLarge, space as u8, allocator, id));
        }
        let stacked = BESIDE_OTHERS && is_stacked(space);
        let head = words[2] & Key::HEAD;
        let hash = if stacked {
            Key::memory(space, allocator, id, thing.program, requested, thing.cores).hash
        } else {
            hash(id, head, 0)
        };
        self.live.expect(hash);
        // While the map's line is on its way.
        self.at = self.clock.now();
        let found = if stacked {
            self.locate(&Key::memory(space, allocator, id, thing.program, requested, thing.cores))
        } else {
            self.find_buffer(hash, head, id)
        };
        let mut odd = None;
        if let Some(held) = found {
            odd = Some(self.replace(held, requested, id));
        }
        let mut program = None;
        if BESIDE_OTHERS && thing.program != 0 {
            program = Some(self.program_slot(allocator, thing.program)?);
        }
        let (Some(row), Some(slot)) = (self.row_of(allocator, space as u8), self.take_slot()) else {
            return Err(self.lose(id));
        };
        if !self.live.insert(hash, slot) {
            self.untake(slot);
            return Err(self.lose(id));
        }
        let listed = slot < OVERFLOW;
        words[7] |= u64::from(if listed { slot } else { NO_SLOT }) << 32;
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.changes += 1;
        self.occupy(slot, &words);
        if let Some(program) = program {
            self.join(program, slot);
        }
        let it = &mut self.rows[row];
        it.requested += own_bytes(&words);
        it.allocated += charge;
        it.count += 1;
        it.peak = it.peak.max(it.allocated);
        it.unlisted += u64::from(!listed);
        self.write_row(row);
        if !listed {
            self.count(Oddity::Unlisted, id);
        }
        let sequence = self.finish();
        odd.map_or(Ok(sequence), Err)
    }

    /// What lay there before is freed: that was missed.
    #[cold]
    fn replace(&mut self, held: (u32, usize), requested: u64, id: u64) -> Error {
        let same = self.words_of(held.0)[4] == requested;
        let oddity = if same { Oddity::StillHeld } else { Oddity::Replaced };
        self.release(held, flags::IMPLIED);
        self.count(oddity, id);
        Error::of(oddity)
    }

    #[cold]
    fn lose(&mut self, id: u64) -> Error {
        self.count(Oddity::Lost, id);
        Error::Lost
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

    /// Gives one thing back: one event.
    #[inline]
    fn release(&mut self, (slot, entry): (u32, usize), how: u16) -> u64 {
        let held = self.words_of(slot);
        let mut words = held;
        let kept = u64::from(flags::MIRROR | flags::VIEW) << 32;
        words[2] =
            held[2] & !(0xffff << 32 | 0xff) | held[2] & kept | Kind::Free as u64 | u64::from(how) << 32;
        let listed = slot < OVERFLOW;
        words[7] = held[7] & Key::HEAD | u64::from(if listed { slot } else { NO_SLOT }) << 32;
        if !self.begin(&mut words) {
            return 0;
        }
        self.changes += 1;
        if words[6] >> 32 != 0 {
            self.leave(slot);
        }
        self.live.remove_at(entry);
        self.vacate(slot);
        if let Some(row) = self.subtract(&held, listed) {
            self.write_row(row);
        }
        self.finish()
    }

    /// Subtracts from a row what a slot held, and returns the row.
    #[inline]
    fn subtract(&mut self, held: &Words, listed: bool) -> Option<usize> {
        let row = self.row_of((held[2] >> 16) as u16, (held[2] >> 8) as u8)?;
        let charge = self.charge(held);
        let it = &mut self.rows[row];
        it.requested = it.requested.saturating_sub(own_bytes(held));
        it.allocated = it.allocated.saturating_sub(charge);
        it.count = it.count.saturating_sub(1);
        it.unlisted = it.unlisted.saturating_sub(u64::from(!listed));
        Some(row)
    }

    /// Gives back what `hold` took. `spaces` are tried in turn.
    pub(crate) fn free(&mut self, spaces: &[Space], thing: &Thing) -> Result {
        let Thing { allocator, id, program, requested, cores, .. } = *thing;
        let named = if let [space] = spaces { *space as u8 } else { 0 };
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, named, allocator, id));
        }
        for &space in spaces.iter().filter(|&&space| !is_stacked(space)) {
            let head = Key::head(Kind::Alloc, space as u8, allocator);
            let hash = hash(id, head, 0);
            self.live.expect(hash);
            self.at = self.clock.now();
            if let Some(found) = self.find_buffer(hash, head, id) {
                return Ok(self.give_back(found, hash));
            }
        }
        let key = |space: Space| Key::memory(space, allocator, id, program, requested, cores);
        for &space in spaces.iter().filter(|&&space| is_stacked(space)) {
            let key = key(space);
            if let Some(found) = self.locate(&key) {
                return Ok(self.give_back(found, key.hash));
            }
        }
        let before = spaces.iter().any(|&space| self.freed.contains(&key(space).hash));
        let oddity = match (before, self.forked) {
            (true, _) => Oddity::DoubleFree,
            (false, true) => Oddity::InheritedFree,
            (false, false) => Oddity::UnknownFree,
        };
        Err(self.refuse(oddity, named, allocator, id))
    }

    #[inline]
    fn give_back(&mut self, found: (u32, usize), hash: u64) -> u64 {
        self.freed[self.freed_at % REMEMBERED] = hash;
        self.freed_at = self.freed_at.wrapping_add(1);
        self.release(found, 0)
    }
}
