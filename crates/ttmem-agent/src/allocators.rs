//! A table of the runtime's allocators, by address: a lookup takes a few instructions. An allocator and its chips are defined
//! for the tracker when a mesh receives it, or at its first event.
#![allow(unsafe_code)]

use crate::agent::tracker;
use crate::audit;
use crate::flight::{self, Lock};
use crate::shim::{
    BankFacts, BufferFacts, ChipFacts, DRAM, KNOWS_ARCH, KNOWS_BOARD, KNOWS_HARVESTING, KNOWS_REMOTE, L1,
    L1_SMALL, MEMORY_DRAM, MEMORY_L1, RuntimeStatistics, TRACE, ttmem_alignment, ttmem_bank, ttmem_base,
    ttmem_chip, ttmem_chips, ttmem_cores, ttmem_statistics, ttmem_worker_l1,
};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ttmem_client::{AllocatorNumber, Arch, Banks, Chip, ChipNumber, Space, Statistics};
use ttmem_types::Board;

/// The runtime's numbers of spaces, and ours. The runtime has one more number, for which it has no allocator.
pub(crate) const SPACES: [(u32, Space); 4] =
    [(DRAM, Space::Dram), (L1, Space::L1), (L1_SMALL, Space::L1Small), (TRACE, Space::Trace)];
/// Chips of the largest mesh that can be described.
const MAX_CHIPS: usize = 256;
/// No bank is larger: a larger value is a difference that went below zero.
const MAX_BANK_BYTES: u64 = 1 << 44;

/// An allocator of the runtime. Everything that an event needs is in one cache line.
#[repr(align(64))]
pub(crate) struct AllocatorInfo {
    /// The allocator's address. 0: the slot was never used; `VACATED`: its allocator was destroyed.
    at: AtomicUsize,
    /// The allocator's device or mesh.
    device: AtomicUsize,
    /// The tracker's number; 0: the allocator is not defined yet, or the slot is free. Set back to 0 only with the query lock
    /// held, so a number that is read under that lock belongs to an open allocator.
    number: AtomicU32,
    /// Unit that sizes are rounded up to, in every space.
    unit: AtomicU32,
    /// Unit that pages of L1 are rounded up to.
    l1_alignment: AtomicU32,
    /// Number of banks, by the runtime's numbers of spaces.
    banks: [AtomicU16; 5],
    /// Spaces of the allocator, a bit for each of the runtime's numbers.
    spaces: AtomicU32,
    /// 1: inherited by a fork, so the figures are the parent's.
    inherited: AtomicU32,
    /// Number of changes.
    changes: AtomicU64,
    /// `changes` at the last audit.
    audited: AtomicU64,
}

const VACATED: usize = 1;
const CAPACITY: usize = 4096;
static ALLOCATORS: [AllocatorInfo; CAPACITY] = [const {
    AllocatorInfo {
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
}; CAPACITY];

impl AllocatorInfo {
    pub(crate) fn number(&self) -> Option<AllocatorNumber> {
        let number = self.number.load(Ordering::Acquire) as u16;
        (number != 0).then(|| AllocatorNumber::new(number))
    }

    pub(crate) fn set_device(&self, device: usize) {
        self.device.store(device, Ordering::Relaxed);
    }

    /// Clears the number: the next event defines the allocator anew.
    pub(crate) fn clear_number(&self) {
        self.number.store(0, Ordering::Release);
    }

    /// Frees the slot for another allocator, and returns this one's number. The number is cleared before the address, since
    /// the next allocator may use the slot at once: an audit must not take the old number for the new allocator's, nor may
    /// the caller close the new allocator.
    pub(crate) fn vacate(&self) -> Option<AllocatorNumber> {
        let number = self.number();
        self.clear_number();
        self.at.store(VACATED, Ordering::Release);
        number
    }

    pub(crate) fn mark_changed(&self) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.inherited.load(Ordering::Relaxed) != 0
    }

    /// Whether the allocator changed since the last audit. Resets that.
    pub(crate) fn take_changed(&self) -> bool {
        let changes = self.changes.load(Ordering::Relaxed);
        self.audited.swap(changes, Ordering::Relaxed) != changes
    }

    /// A buffer's bytes in each bank or on each core, and in all of them. A buffer occupies whole pages, each aligned as its
    /// memory requires, and in a bank at least the allocator's unit.
    #[inline]
    pub(crate) fn sizes(&self, facts: &BufferFacts) -> (u64, u64) {
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
        // In this mode a page of L1 begins at a multiple of the unit, too.
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
        let mut banks = BankFacts::default();
        // SAFETY: as in `statistics`.
        unsafe { ttmem_bank(self.at.load(Ordering::Acquire), u64::from(kind), &raw mut banks) };
        banks.bytes
    }

    /// The allocator's own statistics of a space, over all its banks.
    pub(crate) fn statistics(&self, kind: u32) -> Option<Statistics> {
        let mut per_bank = RuntimeStatistics::default();
        let mut banks = BankFacts::default();
        let at = self.at.load(Ordering::Acquire);
        if at <= VACATED || self.spaces.load(Ordering::Relaxed) & 1 << kind == 0 {
            return None;
        }
        // SAFETY: the caller holds the query lock, so the allocator is not destroyed meanwhile, or the allocator calls us.
        let answered = unsafe {
            ttmem_statistics(at, u64::from(kind), &raw mut per_bank)
                && ttmem_bank(at, u64::from(kind), &raw mut banks)
        };
        answered.then(|| {
            Statistics::default()
                .allocated(per_bank.allocated.saturating_mul(banks.banks))
                .free(per_bank.free.saturating_mul(banks.banks))
                .largest_free_per_bank(per_bank.largest_free)
        })
    }
}

/// Whether buffers may have per-core addresses.
#[inline]
pub(crate) fn is_hybrid() -> bool {
    flight::state().hybrid.load(Ordering::Relaxed) != 0
}

/// Rounds up to a multiple of a power of two. A value that cannot be rounded up is no size, and is returned unchanged.
#[inline]
pub(crate) fn round_up(bytes: u64, to: u64) -> u64 {
    bytes.checked_add(to - 1).map_or(bytes, |it| it & !(to - 1))
}

/// All allocators in the table.
pub(crate) fn allocators() -> impl Iterator<Item = &'static AllocatorInfo> {
    ALLOCATORS.iter().filter(|it| it.at.load(Ordering::Acquire) > VACATED)
}

fn first_slot(at: usize) -> usize {
    (at >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

pub(crate) fn find(at: usize) -> Option<&'static AllocatorInfo> {
    let mut slot = first_slot(at);
    loop {
        let allocator = &ALLOCATORS[slot % CAPACITY];
        match allocator.at.load(Ordering::Acquire) {
            0 => return None,
            address if address == at => return Some(allocator),
            _ => slot += 1,
        }
        if slot > CAPACITY * 2 {
            return None;
        }
    }
}

pub(crate) fn add(at: usize, device: usize) -> Option<&'static AllocatorInfo> {
    let _lock = Lock::acquire_add()?;
    if let Some(allocator) = find(at) {
        return Some(allocator);
    }
    let first = first_slot(at);
    let is_free = |it: &&AllocatorInfo| it.at.load(Ordering::Relaxed) <= VACATED;
    let free = (first..first + CAPACITY).map(|slot| &ALLOCATORS[slot % CAPACITY]).find(is_free)?;
    free.device.store(device, Ordering::Relaxed);
    free.number.store(0, Ordering::Relaxed);
    free.inherited.store(0, Ordering::Relaxed);
    free.spaces.store(0, Ordering::Relaxed);
    free.at.store(at, Ordering::Release);
    Some(free)
}

/// Marks all allocators as inherited, once in a forked child.
pub(crate) fn mark_inherited() {
    if flight::page().is_some_and(flight::Page::initialize) {
        for it in allocators() {
            it.inherited.store(1, Ordering::Relaxed);
        }
    }
}

/// Finds an allocator, and adds and defines it if that was not done yet.
pub(crate) fn find_or_define(
    at: usize,
    device: impl FnOnce() -> usize,
) -> Option<(&'static AllocatorInfo, AllocatorNumber)> {
    mark_inherited();
    let allocator = match find(at) {
        Some(allocator) => allocator,
        None => add(at, device())?,
    };
    match allocator.number() {
        Some(number) => Some((allocator, number)),
        None => Some((allocator, define(allocator)?)),
    }
}

#[cold]
pub(crate) fn define(allocator: &'static AllocatorInfo) -> Option<AllocatorNumber> {
    let _lock = Lock::acquire_add()?;
    if let Some(number) = allocator.number() {
        return Some(number);
    }
    let (at, device) = (allocator.at.load(Ordering::Acquire), allocator.device.load(Ordering::Relaxed));
    let alignment = |kind: u32| {
        let mut bytes = 0;
        // SAFETY: the runtime is in a call of this allocator, or has just created it.
        if unsafe { ttmem_alignment(at, kind, &raw mut bytes) } { bytes } else { 1 }
    };
    let (unit, l1_alignment) = (alignment(DRAM), alignment(L1));
    let (banks, len) = banks_of(at);
    let banks = &banks[..len];
    let mut spaces = 0;
    for (kind, space) in SPACES {
        let of = banks.iter().find(|it| it.space == space);
        spaces |= u32::from(of.is_some()) << kind;
        allocator.banks[kind as usize].store(of.map_or(0, |it| it.banks), Ordering::Relaxed);
    }
    let mut indexes = [0; MAX_CHIPS];
    let mut count = 0;
    if device != 0 {
        // SAFETY: the allocator's own device.
        count = unsafe { ttmem_chips(device, indexes.as_mut_ptr(), MAX_CHIPS) };
    }
    let mut chips = [ChipNumber::default(); MAX_CHIPS];
    let mut defined = 0;
    for &index in &indexes[..count.min(MAX_CHIPS)] {
        if let Ok(number) = define_chip(index, at, device, banks) {
            chips[defined] = number;
            defined += 1;
        }
    }
    let number = tracker().define_allocator(&chips[..defined], banks).ok()?;
    allocator.unit.store(unit, Ordering::Relaxed);
    allocator.l1_alignment.store(l1_alignment, Ordering::Relaxed);
    allocator.spaces.store(spaces, Ordering::Relaxed);
    allocator.number.store(u32::from(number.get()), Ordering::Release);
    allocator.mark_changed();
    audit::start_thread();
    Some(number)
}

/// The banks of an allocator's spaces, with their base addresses.
pub(crate) fn banks_of(at: usize) -> ([Banks; SPACES.len()], usize) {
    let mut bases = [0; 2];
    for memory in [MEMORY_L1, MEMORY_DRAM] {
        // SAFETY: as in `define`.
        unsafe { ttmem_base(at, u64::from(memory), &raw mut bases[memory as usize]) };
    }
    let mut all = [Banks::new(Space::Dram, 0, 0, 0); SPACES.len()];
    let mut len = 0;
    // Traces come after the rest of DRAM, and L1_SMALL after L1.
    let mut ends = [bases[1], bases[0]];
    for (kind, space) in SPACES {
        let mut facts = BankFacts::default();
        // SAFETY: as in `define`.
        let known = unsafe { ttmem_bank(at, u64::from(kind), &raw mut facts) };
        if !known || facts.banks == 0 || facts.bytes == 0 || facts.bytes > MAX_BANK_BYTES {
            continue;
        }
        let end = &mut ends[usize::from(matches!(space, Space::L1 | Space::L1Small))];
        all[len] = Banks::new(space, facts.banks.min(u64::from(u16::MAX)) as u16, *end, facts.bytes);
        *end = end.saturating_add(facts.bytes);
        len += 1;
    }
    // L1 shrinks from below: bytes missing up to the core's end are missing at the beginning.
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
    // SAFETY: queries a chip that the runtime has just listed.
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
    // The kernel config buffer begins where the largest possible unreserved part would begin.
    let kernel_config = chip.l1_bytes_per_core.saturating_sub(most_unreserved);
    let mut unreserved = 0;
    // SAFETY: as above.
    if most_unreserved > 0 && unsafe { ttmem_base(allocator, u64::from(MEMORY_L1), &raw mut unreserved) } {
        (chip.kernel_config, chip.unreserved) = (kernel_config as u32, unreserved as u32);
    }
    let defined = tracker().define_chip(&chip);
    if let Ok(number) = defined {
        set_chip_number(index, number);
    }
    defined
}

/// The tracker's numbers of chips, by the runtime's.
static CHIP_NUMBERS: [AtomicU16; 4096] = [const { AtomicU16::new(0) }; 4096];

fn set_chip_number(index: u32, number: ChipNumber) {
    if let Some(slot) = CHIP_NUMBERS.get(index as usize) {
        slot.store(number.get(), Ordering::Release);
    }
}

/// The number of a chip of any allocator so far.
pub(crate) fn chip_number(index: u32) -> Option<ChipNumber> {
    let number = CHIP_NUMBERS.get(index as usize)?.load(Ordering::Acquire);
    (number != 0).then(|| ChipNumber::new(number))
}
