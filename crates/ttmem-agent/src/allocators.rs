//! The runtime's allocators, by address: found in a few instructions, and described to the tracker when they are met.
#![allow(unsafe_code)]

use crate::agent::tracker;
use crate::audit;
use crate::flight::{self, Lock};
use crate::shim::{
    BankFacts, ChipFacts, DRAM, Facts, KNOWS_ARCH, KNOWS_BOARD, KNOWS_HARVESTING, KNOWS_REMOTE, L1, L1_SMALL,
    MEMORY_DRAM, MEMORY_L1, RuntimeStatistics, TRACE, ttmem_alignment, ttmem_bank, ttmem_base, ttmem_chip,
    ttmem_chips, ttmem_cores, ttmem_statistics, ttmem_worker_l1,
};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ttmem_client::{AllocatorNumber, Arch, Banks, Chip, ChipNumber, Space, Statistics};
use ttmem_types::Board;

/// The runtime's numbers of spaces, and ours. It has one more, of which it has no allocator.
pub(crate) const SPACES: [(u32, Space); 4] =
    [(DRAM, Space::Dram), (L1, Space::L1), (L1_SMALL, Space::L1Small), (TRACE, Space::Trace)];
/// Chips of the largest mesh we can describe.
const MOST_CHIPS: usize = 256;
/// No bank is larger: what is, is a difference that went below zero.
const MOST_BANK_BYTES: u64 = 1 << 44;

/// An allocator of the runtime's. What every event needs is one cache line.
#[repr(align(64))]
pub(crate) struct Known {
    /// Where it is; 0: nobody's place, 1: somebody's who is gone.
    at: AtomicUsize,
    /// Its device or mesh.
    device: AtomicUsize,
    /// Our number of it; 0: nothing was heard of it yet but that it exists, or nobody is here. It changes back to 0 only in a
    /// turn to ask, so whoever has that turn and finds a number finds one that is open.
    number: AtomicU32,
    /// What sizes are rounded up to, in every space.
    unit: AtomicU32,
    /// What pages of L1 are rounded up to.
    l1_alignment: AtomicU32,
    /// Banks, by the runtime's numbers of spaces.
    banks: [AtomicU16; 5],
    /// Spaces it has, a bit for each of the runtime's numbers.
    spaces: AtomicU32,
    /// 1: it came with a fork, so its figures are the parent's.
    inherited: AtomicU32,
    /// How often it changed.
    changes: AtomicU64,
    /// `changes` when it was last audited.
    audited: AtomicU64,
}

const GONE: usize = 1;
const ROOM: usize = 4096;
static ALLOCATORS: [Known; ROOM] = [const {
    Known {
        at: AtomicUsize::new(0),
        device: AtomicUsize::new(0),
        number: AtomicU32::new(0),
        unit: AtomicU32::new(1),
        l1_alignment: AtomicU32::new(1),
        banks: [const { AtomicU16::new(0) }; 5],
        spaces: AtomicU32::new(0),
        inherited: AtomicU32::new(0),
        changes: AtomicU64::new(0),
        audited: AtomicU64::new(0),
    }
}; ROOM];
impl Known {
    pub(crate) fn number(&self) -> Option<AllocatorNumber> {
        let number = self.number.load(Ordering::Acquire) as u16;
        (number != 0).then(|| AllocatorNumber::new(number))
    }

    pub(crate) fn belongs_to(&self, device: usize) {
        self.device.store(device, Ordering::Relaxed);
    }

    /// It will be defined anew.
    pub(crate) fn forget_number(&self) {
        self.number.store(0, Ordering::Release);
    }

    /// Its place is free for another. Returns the number it had, which leaves first: whoever comes next may be here at once,
    /// and neither may an audit take the old number for its own, nor whoever closes this one take its number.
    pub(crate) fn give_up_place(&self) -> Option<AllocatorNumber> {
        let number = self.number();
        self.forget_number();
        self.at.store(GONE, Ordering::Release);
        number
    }

    pub(crate) fn changed(&self) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.inherited.load(Ordering::Relaxed) != 0
    }

    /// Whether it changed since it was audited; from now on it has not.
    pub(crate) fn take_changed(&self) -> bool {
        let changes = self.changes.load(Ordering::Relaxed);
        self.audited.swap(changes, Ordering::Relaxed) != changes
    }

    /// What a buffer takes in each bank, or on each core, and in all of them: whole pages, each at a multiple of what its
    /// memory can be read at, and in a bank no less than the allocator's unit.
    #[inline]
    pub(crate) fn sizes(&self, facts: &Facts) -> (u64, u64) {
        let unit = self.unit();
        let (mut page, mut per_bank, mut occupied) =
            (facts.aligned_page_size, facts.aligned_size_per_bank, facts.occupied);
        if facts.is_interleaved() {
            let is_l1 = matches!(facts.kind, L1 | L1_SMALL);
            let alignment = if is_l1 { u64::from(self.l1_alignment.load(Ordering::Relaxed)) } else { unit };
            let banks = self.banks.get(facts.kind as usize).map_or(1, |it| it.load(Ordering::Relaxed));
            let pages = facts.requested / facts.page_size.max(1);
            page = round_up(facts.page_size, alignment);
            per_bank = pages.div_ceil(u64::from(banks.max(1))).saturating_mul(page);
            occupied = pages.saturating_mul(page);
        }
        // There a page begins at a multiple of the unit, too.
        if facts.kind == L1 && is_hybrid() && page > 0 {
            per_bank = (per_bank / page).saturating_mul(round_up(page, unit));
        }
        (round_up(per_bank.max(1), unit), occupied)
    }

    pub(crate) fn unit(&self) -> u64 {
        u64::from(self.unit.load(Ordering::Relaxed))
    }

    #[cfg(any(feature = "probe", debug_assertions))]
    pub(crate) fn bank_bytes(&self, kind: u32) -> u64 {
        let mut it = BankFacts::default();
        // SAFETY: as in `statistics`.
        unsafe { ttmem_bank(self.at.load(Ordering::Acquire), u64::from(kind), &raw mut it) };
        it.bytes
    }

    /// The allocator's own figures of a space, over all its banks.
    pub(crate) fn statistics(&self, kind: u32) -> Option<Statistics> {
        let mut it = RuntimeStatistics::default();
        let mut banks = BankFacts::default();
        let at = self.at.load(Ordering::Acquire);
        if at <= GONE || self.spaces.load(Ordering::Relaxed) & 1 << kind == 0 {
            return None;
        }
        // SAFETY: whoever asks holds the turn, so the allocator is not ended meanwhile; or is called by it.
        let asked = unsafe {
            ttmem_statistics(at, u64::from(kind), &raw mut it)
                && ttmem_bank(at, u64::from(kind), &raw mut banks)
        };
        asked.then(|| {
            Statistics::default()
                .allocated(it.allocated.saturating_mul(banks.banks))
                .free(it.free.saturating_mul(banks.banks))
                .largest_free_per_bank(it.largest_free)
        })
    }
}

/// Whether buffers may have an address on each core.
#[inline]
pub(crate) fn is_hybrid() -> bool {
    flight::state().hybrid.load(Ordering::Relaxed) != 0
}

/// To a multiple of a power of two. What cannot be rounded up cannot be a size, and stays as it is.
#[inline]
pub(crate) fn round_up(bytes: u64, to: u64) -> u64 {
    bytes.checked_add(to - 1).map_or(bytes, |it| it & !(to - 1))
}

/// All allocators that something is known of.
pub(crate) fn allocators() -> impl Iterator<Item = &'static Known> {
    ALLOCATORS.iter().filter(|it| it.at.load(Ordering::Acquire) > GONE)
}

fn first_place(at: usize) -> usize {
    (at >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

pub(crate) fn find(at: usize) -> Option<&'static Known> {
    let mut place = first_place(at);
    loop {
        let it = &ALLOCATORS[place % ROOM];
        match it.at.load(Ordering::Acquire) {
            0 => return None,
            known if known == at => return Some(it),
            _ => place += 1,
        }
        if place > ROOM * 2 {
            return None;
        }
    }
}

pub(crate) fn add(at: usize, device: usize) -> Option<&'static Known> {
    let _adding = Lock::to_add()?;
    if let Some(known) = find(at) {
        return Some(known);
    }
    let first = first_place(at);
    let free = |it: &&Known| it.at.load(Ordering::Relaxed) <= GONE;
    let it = (first..first + ROOM).map(|place| &ALLOCATORS[place % ROOM]).find(free)?;
    it.device.store(device, Ordering::Relaxed);
    it.number.store(0, Ordering::Relaxed);
    it.inherited.store(0, Ordering::Relaxed);
    it.spaces.store(0, Ordering::Relaxed);
    it.at.store(at, Ordering::Release);
    Some(it)
}

/// A child sees that what it has, it inherited.
pub(crate) fn settle() {
    if flight::page().is_some_and(flight::Page::is_new) {
        for it in allocators() {
            it.inherited.store(1, Ordering::Relaxed);
        }
    }
}

/// The allocator, defined if it was not.
pub(crate) fn known(at: usize, device: impl FnOnce() -> usize) -> Option<(&'static Known, AllocatorNumber)> {
    settle();
    let it = match find(at) {
        Some(it) => it,
        None => add(at, device())?,
    };
    match it.number() {
        Some(number) => Some((it, number)),
        None => Some((it, define(it)?)),
    }
}

#[cold]
pub(crate) fn define(it: &'static Known) -> Option<AllocatorNumber> {
    let _adding = Lock::to_add()?;
    if let Some(number) = it.number() {
        return Some(number);
    }
    let (at, device) = (it.at.load(Ordering::Acquire), it.device.load(Ordering::Relaxed));
    let alignment = |kind: u32| {
        let mut bytes = 0;
        // SAFETY: the runtime is in a call of this allocator, or has just made it.
        if unsafe { ttmem_alignment(at, kind, &raw mut bytes) } { bytes } else { 1 }
    };
    let (unit, l1_alignment) = (alignment(DRAM), alignment(L1));
    let (banks, len) = banks_of(at);
    let banks = &banks[..len];
    let mut spaces = 0;
    for (kind, space) in SPACES {
        let of = banks.iter().find(|it| it.space == space);
        spaces |= u32::from(of.is_some()) << kind;
        it.banks[kind as usize].store(of.map_or(0, |it| it.banks), Ordering::Relaxed);
    }
    let mut indexes = [0; MOST_CHIPS];
    let mut count = 0;
    if device != 0 {
        // SAFETY: the allocator's own device.
        count = unsafe { ttmem_chips(device, indexes.as_mut_ptr(), MOST_CHIPS) };
    }
    let mut chips = [ChipNumber::default(); MOST_CHIPS];
    let mut defined = 0;
    for &index in &indexes[..count.min(MOST_CHIPS)] {
        if let Ok(number) = define_chip(index, at, device, banks) {
            chips[defined] = number;
            defined += 1;
        }
    }
    let number = tracker().define_allocator(&chips[..defined], banks).ok()?;
    it.unit.store(unit, Ordering::Relaxed);
    it.l1_alignment.store(l1_alignment, Ordering::Relaxed);
    it.spaces.store(spaces, Ordering::Relaxed);
    it.number.store(u32::from(number.get()), Ordering::Release);
    it.changed();
    audit::begin();
    Some(number)
}

/// The banks of an allocator's spaces, and where they begin.
pub(crate) fn banks_of(at: usize) -> ([Banks; SPACES.len()], usize) {
    let mut bases = [0; 2];
    for memory in [MEMORY_L1, MEMORY_DRAM] {
        // SAFETY: as in `define`.
        unsafe { ttmem_base(at, u64::from(memory), &raw mut bases[memory as usize]) };
    }
    let mut all = [Banks::new(Space::Dram, 0, 0, 0); SPACES.len()];
    let mut len = 0;
    // Traces lie behind the rest of DRAM, and the reserved top of L1 behind L1.
    let mut ends = [bases[1], bases[0]];
    for (kind, space) in SPACES {
        let mut it = BankFacts::default();
        // SAFETY: as in `define`.
        let known = unsafe { ttmem_bank(at, u64::from(kind), &raw mut it) };
        if !known || it.banks == 0 || it.bytes == 0 || it.bytes > MOST_BANK_BYTES {
            continue;
        }
        let end = &mut ends[usize::from(matches!(space, Space::L1 | Space::L1Small))];
        all[len] = Banks::new(space, it.banks.min(u64::from(u16::MAX)) as u16, *end, it.bytes);
        *end = end.saturating_add(it.bytes);
        len += 1;
    }
    // L1 shrinks from below: what is missing at the core's end is missing at the beginning.
    // SAFETY: as in `define`.
    let missing = unsafe { ttmem_worker_l1(at) }.saturating_sub(ends[1]);
    for bank in all[..len].iter_mut().filter(|it| matches!(it.space, Space::L1 | Space::L1Small)) {
        bank.base = bank.base.saturating_add(missing);
    }
    (all, len)
}

fn define_chip(
    index: u32,
    allocator: usize,
    device: usize,
    banks: &[Banks],
) -> ttmem_client::Result<ChipNumber> {
    let mut facts = ChipFacts::default();
    // SAFETY: asks the runtime for what it knows of a chip that it has just named.
    unsafe { ttmem_chip(index, &raw mut facts) };
    let knows = |bit: u32| facts.known & bit != 0;
    let arch = match facts.arch {
        2 if knows(KNOWS_ARCH) => Some(Arch::WormholeB0),
        3 if knows(KNOWS_ARCH) => Some(Arch::Blackhole),
        _ => None,
    };
    let of = |space: Space| banks.iter().find(|it| it.space == space);
    let bytes = |space: Space| of(space).map_or(0, |it| u64::from(it.banks) * it.bytes_per_bank);
    let channels = of(Space::Dram).map_or(0, |it| u32::from(it.banks));
    let board =
        if knows(KNOWS_BOARD) { Board::by_serial(facts.board_id).map_or("", |board| board.name) } else { "" };
    let mut chip = Chip::default()
        .unique_id(facts.unique_id)
        .index(index)
        .remote(knows(KNOWS_REMOTE) && facts.remote != 0)
        .board(board)
        .pci(core::str::from_utf8(&facts.pci).unwrap_or_default().trim_end_matches('\0'))
        // SAFETY: as above.
        .l1_bytes_per_core(unsafe { ttmem_worker_l1(allocator) })
        .dram_channels(channels)
        .dram_allocatable(bytes(Space::Dram) + bytes(Space::Trace))
        .l1_allocatable(bytes(Space::L1) + bytes(Space::L1Small));
    chip.arch = arch;
    // Raw sizes are the chip's, not the runtime's.
    let (cores, channel) = match arch {
        Some(Arch::WormholeB0) => (80 - 8 * facts.harvested_cores.min(10), 1 << 30),
        Some(Arch::Blackhole) => (140 - 10 * facts.harvested_cores.min(14), 4 << 30),
        None => (0, 0),
    };
    if knows(KNOWS_HARVESTING) {
        chip.cores = cores;
    }
    chip.dram_bytes_per_channel = channel;
    chip.dram_bytes = channel * u64::from(channels);
    if chip.l1_bytes_per_core == 0 {
        chip.l1_bytes_per_core = match arch {
            Some(Arch::WormholeB0) => 1464 << 10,
            Some(Arch::Blackhole) => 1536 << 10,
            None => 0,
        };
    }
    let (mut columns, mut rows, mut most_unreserved) = (0, 0, 0);
    // SAFETY: the allocator's own device.
    unsafe { ttmem_cores(device, &raw mut columns, &raw mut rows, &raw mut most_unreserved) };
    chip.grid = (columns as u8, rows as u8);
    // The ring of kernels begins where nothing would be left but what the runtime must have.
    let ring = chip.l1_bytes_per_core.saturating_sub(most_unreserved);
    let mut unreserved = 0;
    // SAFETY: as above.
    if most_unreserved > 0 && unsafe { ttmem_base(allocator, u64::from(MEMORY_L1), &raw mut unreserved) } {
        (chip.kernel_config, chip.unreserved) = (ring as u32, unreserved as u32);
    }
    let defined = tracker().define_chip(&chip);
    if let Ok(number) = defined {
        chip_is(index, number);
    }
    defined
}

/// What the runtime calls a chip, and what we do.
static CHIP_NUMBERS: [AtomicU16; 4096] = [const { AtomicU16::new(0) }; 4096];

fn chip_is(index: u32, number: ChipNumber) {
    if let Some(place) = CHIP_NUMBERS.get(index as usize) {
        place.store(number.get(), Ordering::Release);
    }
}

/// A chip that is part of some allocator.
pub(crate) fn chip_number(index: u32) -> Option<ChipNumber> {
    let number = CHIP_NUMBERS.get(index as usize)?.load(Ordering::Acquire);
    (number != 0).then(|| ChipNumber::new(number))
}
