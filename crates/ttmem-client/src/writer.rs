//! What an event does: to the private books, and through them to the segment.
//!
//! The books (map, links, rows) are private and in the process's own memory. What is in the segment is written from
//! them and never believed, except a slot's own words, which are only ever compared and subtracted.

use crate::clock::Clock;
use crate::identity;
use crate::legacy::Legacy;
use crate::live::{Live, hash};
use crate::memory::Array;
use crate::publish::{self, Ordering};
use crate::segment::{Line, Segment, Trouble};
use crate::text::Text;
use crate::types::{Error, Result, Statistics, Status};
use rustix::time::ClockId;
use ttmem_wire::record::{Kind, NO_SLOT, PADDING_UNKNOWN, Space, WORDS, flags};
use ttmem_wire::segment::definition::{Banks, Chip, Definition, MAX_BANKS, MAX_CHIPS, ROOM};
use ttmem_wire::segment::{MAX_ROWS, MAX_SLOTS, Oddity, state, word};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, Immutable};

/// No allocation is larger.
const MAX_BYTES: u64 = 1 << 40;
/// Slots from here on are private: there is no room for them in the table.
const OVERFLOW: u32 = 1 << 30;
const MAX_OVERFLOW: u32 = 1 << 20;
/// Frees that double frees are told from unknown ones by.
const REMEMBERED: usize = 256;
const SPACES: usize = 10;
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
#[repr(C)]
pub(crate) struct AllocatorState {
    open: u8,
    reserved: u8,
    chips: u16,
    first_chip: u32,
    banks: [u16; SPACES],
    /// Row + 1, by space.
    rows: [u16; SPACES],
}

#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
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

#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
struct Link {
    next: u32,
    previous: u32,
}

/// Slots of one kind. Links are one more than the slot they mean; 0 ends a list.
struct Slots {
    links: Array<Link>,
    /// Those free again, the last one on top: it is still near.
    free: Array<u32>,
    free_len: usize,
    /// From here on none was ever used.
    fresh: u32,
}

impl Slots {
    fn new(most: u32) -> Option<Self> {
        let most = most as usize;
        Some(Self { links: Array::new(most)?, free: Array::new(most)?, free_len: 0, fresh: 0 })
    }

    #[inline]
    fn take(&mut self, most: u32) -> Option<u32> {
        if self.free_len > 0 {
            self.free_len -= 1;
            return self.free.get(self.free_len).copied();
        }
        (self.fresh < most).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    #[inline]
    fn give_back(&mut self, slot: u32) {
        if let Some(place) = self.free.get_mut(self.free_len) {
            *place = slot;
            self.free_len += 1;
        }
    }
}

/// Live allocations that the table has no room for.
struct Overflow {
    slots: Slots,
    words: Array<Words>,
}

/// Which slot is meant: the words that tell, and what they must be.
struct Key {
    hash: u64,
    mask: [u64; 4],
    want: [u64; 4],
}

impl Key {
    const HEAD: u64 = 0xffff_ffff;

    fn head(kind: Kind, space: u8, allocator: u16) -> u64 {
        kind as u64 | u64::from(space) << 8 | u64::from(allocator) << 16
    }

    fn memory(space: Space, allocator: u16, id: u64, program: u32, requested: u64, cores: u16) -> Self {
        let head = Self::head(Kind::Alloc, space as u8, allocator);
        if is_stacked(space) {
            // Programs lay several of these over one address.
            let cores = u64::from(cores) << 48;
            let program = u64::from(program) << 32;
            return Self {
                hash: hash(id, head | program, requested | cores),
                mask: [Self::HEAD | 0xffff << 48, u64::MAX, u64::MAX, Self::HEAD << 32],
                want: [head | cores, id, requested, program],
            };
        }
        Self { hash: hash(id, head, 0), mask: [Self::HEAD, u64::MAX, 0, 0], want: [head, id, 0, 0] }
    }

    /// A program's slot holds what happened to it last, so its kind does not count; nothing else has no space.
    fn program(allocator: u16, program: u32) -> Self {
        let head = Self::head(Kind::ProgramBegin, 0, allocator);
        let program = u64::from(program) << 32;
        Self {
            hash: hash(program, head, 1),
            mask: [Self::HEAD & !0xff, 0, 0, Self::HEAD << 32],
            want: [head & !0xff, 0, 0, program],
        }
    }

    fn audit(allocator: u16, space: Space) -> Self {
        let head = Self::head(Kind::Audit, space as u8, allocator);
        Self { hash: hash(0, head, 2), mask: [Self::HEAD, 0, 0, 0], want: [head, 0, 0, 0] }
    }

    /// The key that finds a slot with these words.
    fn of(words: &Words) -> Self {
        let (allocator, program) = ((words[2] >> 16) as u16, (words[6] >> 32) as u32);
        match (words[2] as u8, Space::from_byte((words[2] >> 8) as u8)) {
            (kind, Some(space)) if kind == Kind::Audit as u8 => Self::audit(allocator, space),
            (_, Some(space)) => {
                Self::memory(space, allocator, words[3], program, words[4], (words[2] >> 48) as u16)
            }
            (_, None) => Self::program(allocator, program),
        }
    }

    #[inline]
    fn fits(&self, head: u64, id: u64, requested: u64, program: u64) -> bool {
        let words = [head, id, requested, program];
        (0..4).all(|n| words[n] & self.mask[n] == self.want[n])
    }
}

fn is_stacked(space: Space) -> bool {
    matches!(space, Space::Cb | Space::Dfb | Space::Scratch)
}

pub(crate) fn is_program(space: Space) -> bool {
    is_stacked(space) || space == Space::Kernel
}

/// How the writer was set up.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) folder: Text<200>,
    pub(crate) group: Option<u32>,
    pub(crate) runtime: Text<40>,
    /// An old server's socket: events go there instead of into a file.
    pub(crate) legacy: Option<Text<108>>,
}

pub(crate) struct Writer {
    settings: Settings,
    segment: Option<Segment>,
    /// The parent's segment, in a forked child: its definitions hold here, too.
    inherited: Option<Segment>,
    live: Live,
    shared: Slots,
    overflow: Option<Overflow>,
    allocators: Array<AllocatorState>,
    allocators_used: u16,
    /// The numbers that programs call their chips by.
    chip_index: Array<u32>,
    chips_used: u16,
    /// Chips of all allocators, one list behind the other.
    covered: Array<u16>,
    covered_used: u32,
    core_counts: Array<u16>,
    cores_used: u16,
    sites_used: u32,
    /// Hash and number of core sets and sites, by hash.
    known: Array<[u64; 2]>,
    rows: Array<Row>,
    rows_used: u32,
    /// The first row of a closed allocator, plus 1; each leads to the next.
    vacant_rows: u32,
    blocks_used: u32,
    clock: Clock,
    /// The time of the event in hand, if it was asked for early.
    at: u64,
    sequence: u64,
    /// Events that change what is held.
    changes: u64,
    freed: [u64; REMEMBERED],
    freed_at: usize,
    /// Oddities told in this segment.
    oddities: [u64; Oddity::ROOM],
    /// Events lost before it.
    lost_before: u64,
    forked: bool,
    may_grow: bool,
    trouble: Option<Trouble>,
    legacy: Option<Legacy>,
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
            legacy,
        })
    }

    /// This is a forked child: it holds nothing yet, but what was defined is defined here, too.
    pub(crate) fn start_over(&mut self) {
        // The parent's segment is mapped here, too, and must not be written.
        self.inherited = self.segment.take().or_else(|| self.inherited.take());
        self.forked = true;
        self.sequence = 0;
        self.changes = 0;
        self.freed = [0; REMEMBERED];
        self.oddities = [0; Oddity::ROOM];
        self.lost_before = 0;
        self.may_grow = true;
        self.trouble = None;
        // Another thread may have been in the middle of replacing these when the fork came: what they point to may be
        // anybody's by now. Nothing is given back that is not known to be ours.
        core::mem::forget(self.overflow.take());
        self.rows_used = 0;
        self.vacant_rows = 0;
        for allocator in self.allocators.iter_mut().take(usize::from(self.allocators_used) + 1) {
            allocator.rows = [0; SPACES];
        }
        // If there is no memory for new books, the old ones must do: empty they are not, so nothing is found in them.
        if let (Some(live), Some(shared)) = (Live::new(), Slots::new(MAX_SLOTS)) {
            core::mem::forget(core::mem::replace(&mut self.live, live));
            core::mem::forget(core::mem::replace(&mut self.shared, shared));
        }
        if let Some(path) = &self.settings.legacy {
            self.legacy = Legacy::new(*path);
        }
    }

    /// The segment, made at the first need.
    #[inline]
    fn segment(&mut self) -> Option<&Segment> {
        if self.segment.is_none() {
            self.make_segment();
        }
        self.segment.as_ref()
    }

    #[cold]
    fn make_segment(&mut self) {
        let header = identity::header(self.settings.runtime.as_str());
        let (mut made, mut trouble) = (None, None);
        if self.legacy.is_none() {
            (made, trouble) = Segment::publish(self.settings.folder.as_str(), self.settings.group, &header);
        }
        self.trouble = trouble;
        self.segment = made.or_else(|| Segment::private(&header));
        if let (Some(segment), Some(from)) = (&self.segment, self.inherited.take()) {
            self.blocks_used = copy_blocks(&from, segment, self.blocks_used);
            core::mem::forget(from);
        }
        self.note_trouble();
        if let Some(segment) = &self.segment {
            segment.reveal();
        }
    }

    /// Makes a new segment that readers can see, with everything in it that is known.
    fn publish_again(&mut self) {
        let header = identity::header(self.settings.runtime.as_str());
        let (made, trouble) = Segment::publish(self.settings.folder.as_str(), self.settings.group, &header);
        self.trouble = trouble.or(self.trouble.filter(|_| made.is_none()));
        let Some(mut new) = made else { return };
        let Some(old) = self.segment.take() else { return };
        while new.slots() < self.shared.fresh {
            if let Err(trouble) = new.grow(self.settings.folder.as_str()) {
                self.trouble = Some(trouble);
                new.unlink(self.settings.folder.as_str());
                self.segment = Some(old);
                return;
            }
        }
        self.blocks_used = copy_blocks(&old, &new, self.blocks_used);
        let copy = |from: Option<&Line>, to: Option<&Line>| {
            if let (Some(from), Some(to)) = (from, to) {
                let words: Words = core::array::from_fn(|n| from[n].load(Ordering::Relaxed));
                publish::put(to, &words);
            }
        };
        for slot in 0..self.shared.fresh {
            copy(old.slot(slot), new.slot(slot));
        }
        for row in 0..self.rows_used.min(new.plan().rows) {
            copy(old.row(row, 0), new.row(row, 0));
            copy(old.row(row, 1), new.row(row, 1));
        }
        new.word(word::ROWS_USED).store(u64::from(self.rows_used), Ordering::Relaxed);
        // Those were told of already.
        self.lost_before += self.oddities[Oddity::Lost as usize];
        self.oddities = [0; Oddity::ROOM];
        // The records themselves stay behind.
        new.word(word::BEGUN).store(self.sequence, Ordering::Relaxed);
        new.word(word::APPLIED).store(self.sequence, Ordering::Relaxed);
        new.reveal();
        self.segment = Some(new);
        self.note_trouble();
    }

    fn note_trouble(&self) {
        let (Some(segment), Some(trouble)) = (&self.segment, &self.trouble) else { return };
        let reason = describe(trouble);
        let mut words = [0u64; 16];
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut words[..]);
        ttmem_wire::segment::set_text(bytes, reason.as_str());
        for (n, &value) in words.iter().enumerate() {
            segment.word(word::REASON + n * 8).store(value, Ordering::Relaxed);
        }
        crate::log::say(reason.as_str());
    }

    // Events.

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
        }
        self.at = 0;
        if self.legacy.is_some() {
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
        let shared = &mut self.shared;
        legacy.pump(
            |slot| segment.slot(slot).map(|line| core::array::from_fn(|n| line[n].load(Ordering::Relaxed))),
            chips,
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

    fn allocator(&self, number: u16) -> Option<&AllocatorState> {
        let state = self.allocators.get(usize::from(number))?;
        (state.open != 0).then_some(state)
    }

    /// What an allocation of these words is charged with.
    #[inline]
    fn charge(&self, words: &Words) -> u64 {
        let (head, requested, bytes_per_bank) = (words[2], words[4], words[5]);
        let (allocator, cores) = ((head >> 16) as u16, (head >> 48) as u16);
        let per_core = (head >> 32) as u16 & flags::PER_CORE != 0;
        let space = (head >> 8) as u8;
        let program = (Space::Cb as u8..=Space::Kernel as u8).contains(&space);
        let banks = if per_core || program {
            self.core_counts[usize::from(cores)].max(u16::from(program))
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
            if let Some(legacy) = self.legacy.as_mut().filter(|_| words[2] as u8 == Kind::Alloc as u8) {
                legacy.came(slot);
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
        if let Some(legacy) = &mut self.legacy {
            // Its words are needed until the old server was told.
            if !legacy.went(slot) {
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
        let stacked = is_stacked(space);
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
            let oddity =
                if self.words_of(held.0)[4] == requested { Oddity::StillHeld } else { Oddity::Replaced };
            odd = Some(Error::of(oddity));
            self.release(held, flags::IMPLIED);
            self.count(oddity, id);
        }
        let program =
            if thing.program != 0 { Some(self.program_slot(allocator, thing.program)?) } else { None };
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
        it.requested += requested;
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
        words[2] = held[2] & !(0xffff << 32 | 0xff) | Kind::Free as u64 | u64::from(how) << 32;
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
        it.requested = it.requested.saturating_sub(held[4]);
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

    // Programs.

    /// A record that stands for a whole program.
    fn program_words(kind: Kind, allocator: u16, program: u32, slot: u32) -> Words {
        let head = Key::head(kind, 0, allocator);
        [0, 0, head, 0, 0, 0, u64::from(PADDING_UNKNOWN) | u64::from(program) << 32, u64::from(slot) << 32]
    }

    /// The slot of a program, which begins here if it has not yet.
    fn program_slot(&mut self, allocator: u16, program: u32) -> Result<u32> {
        let key = Key::program(allocator, program);
        if let Some(slot) = self.find(&key) {
            return Ok(slot);
        }
        let Some(slot) = self.take_slot() else { return Err(self.lose(u64::from(program))) };
        if !self.live.insert(key.hash, slot) {
            self.untake(slot);
            return Err(self.lose(u64::from(program)));
        }
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = Self::program_words(Kind::ProgramBegin, allocator, program, listed);
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.occupy(slot, &words);
        if let Some(link) = self.link(slot) {
            link.next = 0;
        }
        self.finish();
        Ok(slot)
    }

    /// Hangs a slot into its program's list.
    fn join(&mut self, program: u32, slot: u32) {
        let Some(head) = self.link(program) else { return };
        let first = core::mem::replace(&mut head.next, slot + 1);
        if let Some(link) = self.link(slot) {
            (link.next, link.previous) = (first, program + 1);
        }
        if let Some(link) = first.checked_sub(1).and_then(|first| self.link(first)) {
            link.previous = slot + 1;
        }
    }

    fn leave(&mut self, slot: u32) {
        let Some(&mut Link { next, previous }) = self.link(slot) else { return };
        if let Some(link) = previous.checked_sub(1).and_then(|previous| self.link(previous)) {
            link.next = next;
        }
        if let Some(link) = next.checked_sub(1).and_then(|next| self.link(next)) {
            link.previous = previous;
        }
    }

    pub(crate) fn begin_program(&mut self, allocator: u16, program: u32, name: &str) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, 0, allocator, u64::from(program)));
        }
        if program == 0 {
            return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, 0));
        }
        self.program_slot(allocator, program)?;
        if !name.is_empty() && self.remember(&Definition::Program(program, name), u64::from(program)) {
            self.define(&Definition::Program(program, name))?;
        }
        Ok(self.sequence)
    }

    pub(crate) fn dispatch(&mut self, allocator: u16, program: u32) -> Result {
        let key = Key::program(allocator, program);
        let Some(slot) = self.find(&key) else {
            return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, u64::from(program)));
        };
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = Self::program_words(Kind::Dispatch, allocator, program, listed);
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.occupy(slot, &words);
        Ok(self.finish())
    }

    pub(crate) fn end_program(&mut self, allocator: u16, program: u32) -> Result {
        let key = Key::program(allocator, program);
        let Some(slot) = self.find(&key) else {
            return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, u64::from(program)));
        };
        let mut words = Self::program_words(Kind::ProgramEnd, allocator, program, NO_SLOT);
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.changes += 1;
        let mut part = self.link(slot).map_or(0, |link| link.next);
        let mut touched = [usize::MAX; 4];
        while let Some(slot) = part.checked_sub(1) {
            part = self.link(slot).map_or(0, |link| link.next);
            let held = self.words_of(slot);
            self.live.remove(Key::of(&held).hash, slot);
            self.vacate(slot);
            if let Some(row) = self.subtract(&held, slot < OVERFLOW) {
                let free = touched.iter().position(|&it| it == row || it == usize::MAX);
                if let Some(place) = free.and_then(|n| touched.get_mut(n)) {
                    *place = row;
                }
            }
        }
        self.live.remove(key.hash, slot);
        self.vacate(slot);
        for row in touched.into_iter().filter(|&row| row != usize::MAX) {
            self.write_row(row);
        }
        Ok(self.finish())
    }

    // Allocators.

    pub(crate) fn close_allocator(&mut self, allocator: u16) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, 0, allocator, 0));
        }
        let mut words = [0; WORDS];
        words[2] = Key::head(Kind::AllocatorEnd, 0, allocator);
        words[7] = u64::from(NO_SLOT) << 32;
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.changes += 1;
        // Rare enough to look at every slot.
        let overflowed = self.overflow.as_ref().map_or(0, |it| it.slots.fresh);
        for slot in (0..self.shared.fresh).chain(OVERFLOW..OVERFLOW + overflowed) {
            let held = self.words_of(slot);
            let key = Key::of(&held);
            // A free slot keeps its words, so only the map knows.
            if (held[2] >> 16) as u16 == allocator && self.live.find(key.hash, |it| it == slot).is_some() {
                self.live.remove(key.hash, slot);
                self.vacate(slot);
            }
        }
        for space in 0..SPACES {
            if let Some(row) = self.allocators[usize::from(allocator)].rows[space].checked_sub(1) {
                let row = usize::from(row);
                let it = &mut self.rows[row];
                (it.requested, it.allocated, it.count, it.unlisted) = (0, 0, 0, 0);
                it.closed = 1;
                it.next_vacant = core::mem::replace(&mut self.vacant_rows, row as u32 + 1);
                self.write_row(row);
            }
        }
        self.allocators[usize::from(allocator)].open = 0;
        self.allocators[usize::from(allocator)].rows = [0; SPACES];
        Ok(self.finish())
    }

    pub(crate) fn out_of_memory(&mut self, thing: &Thing) -> Result {
        let Thing { allocator, space, requested, .. } = *thing;
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let mut words = [0; WORDS];
        words[2] = Key::head(Kind::OutOfMemory, space as u8, allocator);
        (words[4], words[5]) = (requested, thing.bytes_per_bank);
        words[6] = u64::from(PADDING_UNKNOWN) | u64::from(thing.program) << 32;
        words[7] = u64::from(thing.site) | u64::from(NO_SLOT) << 32;
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.count(Oddity::OutOfMemory, requested);
        Ok(self.finish())
    }

    /// Events that changed what is held, so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn audit(&mut self, before: u64, allocator: u16, space: Space, it: Statistics) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let key = Key::audit(allocator, space);
        let slot = match self.find(&key) {
            Some(slot) => slot,
            None => match self.take_slot() {
                Some(slot) if self.live.insert(key.hash, slot) => slot,
                Some(slot) => {
                    self.untake(slot);
                    return Err(self.lose(0));
                }
                None => return Err(self.lose(0)),
            },
        };
        let quiet = if before == self.changes { flags::QUIET } else { 0 };
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = [
            0,
            0,
            Key::head(Kind::Audit, space as u8, allocator) | u64::from(quiet) << 32,
            it.allocated,
            it.free,
            it.largest_free_per_bank,
            u64::from(PADDING_UNKNOWN),
            u64::from(listed) << 32,
        ];
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.occupy(slot, &words);
        Ok(self.finish())
    }

    pub(crate) fn peak(&mut self, allocator: u16, space: Space) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let row = self.allocators[usize::from(allocator)].rows[space as usize % SPACES].checked_sub(1);
        Ok(row.map_or(0, |row| self.rows[usize::from(row)].peak))
    }

    pub(crate) fn reset_peak(&mut self, allocator: u16, space: Space) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let mut words = [0; WORDS];
        words[2] = Key::head(Kind::PeakReset, space as u8, allocator);
        words[7] = u64::from(NO_SLOT) << 32;
        let Some(row) = self.row_of(allocator, space as u8) else { return Err(self.lose(0)) };
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.rows[row].peak = self.rows[row].allocated;
        self.write_row(row);
        Ok(self.finish())
    }

    // Definitions.

    /// Appends a definition.
    fn define(&mut self, definition: &Definition<'_>) -> Result<()> {
        let mut room = [0; ROOM];
        let encoded = definition.encode(&mut room);
        let used = self.blocks_used;
        let Some(segment) = self.segment() else { return Err(Error::Lost) };
        // Names may not take the room of what nothing can be tracked without.
        let named = matches!(definition, Definition::Program(..) | Definition::Site(..));
        let room_left = segment.plan().definition_blocks as usize / if named { 2 } else { 1 };
        let blocks = encoded.filter(|&blocks| used as usize + blocks <= room_left);
        let Some(blocks) = blocks else {
            return Err(self.refuse(Oddity::DefinitionsFull, 0, 0, 0));
        };
        for (n, bytes) in room.chunks_exact(ttmem_wire::segment::BLOCK).take(blocks).enumerate() {
            let Some(line) = segment.block(used as usize + n) else { return Err(Error::Lost) };
            for (word, bytes) in line.iter().zip(bytes.chunks_exact(8)) {
                let bytes = <[u8; 8]>::try_from(bytes).unwrap_or_default();
                word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        }
        let used = used + blocks as u32;
        segment.word(word::BLOCKS_USED).store(u64::from(used), Ordering::Release);
        self.blocks_used = used;
        Ok(())
    }

    /// A hash of a definition's contents, never 0.
    fn fingerprint(definition: &Definition<'_>) -> u64 {
        let mut room = [0; ROOM];
        let blocks = definition.encode(&mut room).unwrap_or(0);
        let words = room[..blocks * ttmem_wire::segment::BLOCK].chunks_exact(8);
        let words = words.map(|bytes| u64::from_le_bytes(<[u8; 8]>::try_from(bytes).unwrap_or_default()));
        words.fold(1, |sum, word| hash(word, sum, 3)) | 1
    }

    /// Whether a definition is new; from now on it is not.
    fn remember(&mut self, definition: &Definition<'_>, number: u64) -> bool {
        let print = Self::fingerprint(definition);
        match self.recall(print) {
            Some(_) => false,
            None => {
                self.keep(print, number);
                true
            }
        }
    }

    fn recall(&self, print: u64) -> Option<u64> {
        let mut at = print as usize;
        for _ in 0..8 {
            at = (at + 1) % REMEMBERED_DEFINITIONS;
            match self.known[at] {
                [0, _] => return None,
                [known, number] if known == print => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// Keeps a number, if there is room: a definition that is not found is only made again.
    fn keep(&mut self, print: u64, number: u64) {
        let mut at = print as usize;
        for _ in 0..8 {
            at = (at + 1) % REMEMBERED_DEFINITIONS;
            if self.known[at][0] == 0 || self.known[at][0] == print {
                self.known[at] = [print, number];
                return;
            }
        }
    }

    pub(crate) fn define_chip(&mut self, chip: &Chip) -> Result<u16> {
        let print = Self::fingerprint(&Definition::Chip(0, chip));
        if let Some(number) = self.recall(print) {
            return Ok(number as u16);
        }
        if self.chips_used == u16::MAX {
            return Err(self.refuse(Oddity::DefinitionsFull, 0, 0, 0));
        }
        let number = self.chips_used + 1;
        self.define(&Definition::Chip(number, chip))?;
        self.chip_index[usize::from(number)] = chip.index.get();
        self.chips_used = number;
        self.keep(print, u64::from(number));
        Ok(number)
    }

    pub(crate) fn define_allocator(
        &mut self,
        banks: &[Banks],
        chips: impl ExactSizeIterator<Item = u16> + Clone,
    ) -> Result<u16> {
        let mut numbers = [U16::new(0); MAX_CHIPS];
        let count = chips.len();
        let unknown = |chip: u16| chip == 0 || chip > self.chips_used;
        if let Some(chip) = chips.clone().find(|&chip| unknown(chip)) {
            return Err(self.refuse(Oddity::UnknownChip, 0, 0, u64::from(chip)));
        }
        let room = self.covered.len() - self.covered_used as usize;
        let fits = count <= MAX_CHIPS.min(room) && banks.len() <= MAX_BANKS;
        if !fits || self.allocators_used >= u16::MAX - 1 {
            return Err(self.refuse(Oddity::DefinitionsFull, 0, 0, 0));
        }
        let number = self.allocators_used + 1;
        for ((place, covered), chip) in
            numbers.iter_mut().zip(&mut self.covered[self.covered_used as usize..]).zip(chips)
        {
            (*place, *covered) = (chip.into(), chip);
        }
        // A device that is opened again is the same allocator again.
        let print = Self::fingerprint(&Definition::Allocator(0, banks, &numbers[..count]));
        if let Some(known) = self.recall(print) {
            let state = &mut self.allocators[known as usize % (1 << 16)];
            if state.open == 0 {
                state.open = 1;
                return Ok(known as u16);
            }
        }
        self.define(&Definition::Allocator(number, banks, &numbers[..count]))?;
        self.keep(print, u64::from(number));
        let mut state = AllocatorState {
            open: 1,
            chips: count as u16,
            first_chip: self.covered_used,
            ..AllocatorState::new_zeroed()
        };
        for it in banks.iter().filter(|it| usize::from(it.space) < SPACES) {
            state.banks[usize::from(it.space)] = it.banks.get();
        }
        self.allocators[usize::from(number)] = state;
        self.covered_used += count as u32;
        self.allocators_used = number;
        Ok(number)
    }

    pub(crate) fn define_cores(&mut self, cores: [u64; 4]) -> Result<u16> {
        let words = cores.map(U64::new);
        let print = Self::fingerprint(&Definition::Cores(0, &words));
        if let Some(number) = self.recall(print) {
            return Ok(number as u16);
        }
        if self.cores_used == u16::MAX {
            return Err(self.refuse(Oddity::DefinitionsFull, 0, 0, 0));
        }
        let number = self.cores_used + 1;
        self.define(&Definition::Cores(number, &words))?;
        self.core_counts[usize::from(number)] = cores.iter().map(|word| word.count_ones() as u16).sum();
        self.cores_used = number;
        self.keep(print, u64::from(number));
        Ok(number)
    }

    pub(crate) fn define_site(&mut self, site: &str) -> Result<u32> {
        let print = Self::fingerprint(&Definition::Site(0, site));
        if let Some(number) = self.recall(print) {
            return Ok(number as u32);
        }
        let number = self.sites_used + 1;
        self.define(&Definition::Site(number, site))?;
        self.sites_used = number;
        self.keep(print, u64::from(number));
        Ok(number)
    }

    // Upkeep.

    /// Makes good what could not be done before.
    pub(crate) fn refresh(&mut self) {
        self.may_grow = true;
        let gone = self.segment.as_ref().is_some_and(|it| !it.is_linked(self.settings.folder.as_str()));
        if gone && self.legacy.is_none() {
            self.publish_again();
        }
        if let Some(segment) = self.segment() {
            segment.word(word::HEARTBEAT_NS).store(identity::now(ClockId::Monotonic), Ordering::Relaxed);
        }
        if self.legacy.is_some() {
            self.pump();
        }
    }

    /// Says that nothing more will come, and takes the segment away.
    pub(crate) fn close(&mut self) {
        if let Some(segment) = &self.segment {
            segment.word(word::STATE).store(state::CLOSED, Ordering::Release);
            segment.unlink(self.settings.folder.as_str());
        }
        self.segment = None;
    }

    pub(crate) fn status(&self) -> Status {
        let unlisted = self.rows.iter().take(self.rows_used as usize).map(|row| row.unlisted).sum();
        Status {
            on: true,
            segment: self.segment.as_ref().and_then(|it| it.name()).map(str::to_owned),
            reason: self.trouble.as_ref().map(|it| describe(it).as_str().to_owned()),
            live: self.rows.iter().take(self.rows_used as usize).map(|row| row.count).sum(),
            unlisted,
            lost: self.lost_before + self.oddities[Oddity::Lost as usize],
            queued: self.legacy.as_ref().map_or(0, Legacy::queued),
        }
    }

    /// Counts events that never got here.
    pub(crate) fn count_lost(&mut self, events: u64) {
        self.count_many(Oddity::Lost, events, 0);
    }
}

fn copy_blocks(from: &Segment, to: &Segment, used: u32) -> u32 {
    let used = used.min(to.plan().definition_blocks);
    for block in 0..used as usize {
        if let (Some(from), Some(to)) = (from.block(block), to.block(block)) {
            for (from, to) in from.iter().zip(to) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
    to.word(word::BLOCKS_USED).store(u64::from(used), Ordering::Release);
    used
}

fn describe(trouble: &Trouble) -> Text<128> {
    let mut text = Text::new();
    match trouble.errno {
        Some(errno) => text.push(format_args!("{}: {errno}", trouble.what)),
        None => text.push(format_args!("{}", trouble.what)),
    }
    text
}
