//! What the runtime does, as events: its allocators become ours, its buffers records.
#![allow(unsafe_code)]

use crate::audit;
use crate::flight::{self, Lock};
use crate::runtime;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ttmem_client::{
    AllocatorNumber, Arch, Banks, Buffer, Chip, ChipNumber, CoresNumber, Layout, Mark, Options, Space,
    Statistics, Tracker,
};

/// The runtime's numbers of spaces, and ours. It has one more, of which it has no allocator.
pub(crate) const SPACES: [(u32, Space); 4] =
    [(DRAM, Space::Dram), (L1, Space::L1), (L1_SMALL, Space::L1Small), (TRACE, Space::Trace)];
const DRAM: u32 = 0;
const L1: u32 = 1;
const L1_SMALL: u32 = 3;
const TRACE: u32 = 4;
/// The runtime's numbers of memories.
const MEMORY_L1: u64 = 0;
const MEMORY_DRAM: u64 = 1;
/// Chips of the largest mesh we can describe.
const MOST_CHIPS: usize = 256;
/// No bank is larger: what is, is a difference that went below zero.
const MOST_BANK_BYTES: u64 = 1 << 44;

/// As in shim.cpp.
#[repr(C)]
pub(crate) struct Facts {
    address: u64,
    requested: u64,
    page_size: u64,
    kind: u32,
    known: u32,
    // Not filled in if it is interleaved.
    aligned_page_size: u64,
    aligned_size_per_bank: u64,
    occupied: u64,
    cores: [u64; 4],
}

impl Facts {
    fn is_interleaved(&self) -> bool {
        self.known & 1 != 0
    }

    fn has_cores(&self) -> bool {
        self.known & 2 != 0
    }

    fn is_per_core(&self) -> bool {
        self.known & 4 != 0
    }

    fn layout(&self) -> Layout {
        // The runtime's number, and 1; it has one of its own that is not used any more.
        match self.known >> 8 {
            1 => Layout::Interleaved,
            3 => Layout::HeightSharded,
            4 => Layout::WidthSharded,
            5 => Layout::BlockSharded,
            6 => Layout::NdSharded,
            _ => Layout::Unknown,
        }
    }
}

#[derive(Default)]
#[repr(C)]
struct ChipFacts {
    unique_id: u64,
    board_id: u64,
    index: u32,
    arch: u32,
    harvested_cores: u32,
    harvested_dram: u32,
    known: u32,
    remote: u32,
    pci: [u8; 16],
}

#[derive(Default)]
#[repr(C)]
struct BankFacts {
    banks: u64,
    bytes: u64,
}

#[derive(Default)]
#[repr(C)]
struct RuntimeStatistics {
    allocatable: u64,
    allocated: u64,
    free: u64,
    largest_free: u64,
}

unsafe extern "C" {
    fn ttmem_statistics(allocator: usize, kind: u64, out: *mut RuntimeStatistics) -> bool;
    fn ttmem_bank(allocator: usize, kind: u64, out: *mut BankFacts) -> bool;
    fn ttmem_base(allocator: usize, memory: u64, out: *mut u64) -> bool;
    fn ttmem_alignment(allocator: usize, kind: u32, out: *mut u32) -> bool;
    fn ttmem_worker_l1(allocator: usize) -> u64;
    fn ttmem_chips(device: usize, out: *mut u32, room: usize) -> usize;
    fn ttmem_chip(index: u32, out: *mut ChipFacts);
    fn ttmem_device_of(buffer: *mut c_void) -> usize;
    fn ttmem_core_addresses(buffer: *mut c_void, out: *mut [u64; 2], room: usize) -> usize;
    fn ttmem_blocks(
        allocator: usize,
        kind: u64,
        tell: extern "C" fn(*mut c_void, u64, u64),
        to: *mut c_void,
    ) -> bool;
}

const AT_WORK: u32 = 1;
const CALLS_THROUGH: u32 = 2;

/// An allocator of the runtime's. What every event needs is one cache line.
#[repr(align(64))]
pub(crate) struct Known {
    /// Where it is; 0: nobody's place, 1: somebody's who is gone.
    at: AtomicUsize,
    /// Its device or mesh.
    device: AtomicUsize,
    /// Our number of it; 0: nothing was heard of it yet but that it exists.
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
/// Nanoseconds that hooks and audits took.
pub(crate) static SPENT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn tracker() -> &'static Tracker {
    Tracker::global()
}

impl Known {
    pub(crate) fn number(&self) -> Option<AllocatorNumber> {
        let number = self.number.load(Ordering::Acquire) as u16;
        (number != 0).then(|| AllocatorNumber::new(number))
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
    fn sizes(&self, facts: &Facts) -> (u64, u64) {
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

    fn unit(&self) -> u64 {
        u64::from(self.unit.load(Ordering::Relaxed))
    }

    fn bank_bytes(&self, kind: u32) -> u64 {
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
        asked.then(|| Statistics {
            allocated: it.allocated.saturating_mul(banks.banks),
            free: it.free.saturating_mul(banks.banks),
            largest_free_per_bank: it.largest_free,
        })
    }
}

/// Whether buffers may have an address on each core.
#[inline]
fn is_hybrid() -> bool {
    flight::state().hybrid.load(Ordering::Relaxed) != 0
}

/// To a multiple of a power of two. What cannot be rounded up cannot be a size, and stays as it is.
#[inline]
fn round_up(bytes: u64, to: u64) -> u64 {
    bytes.checked_add(to - 1).map_or(bytes, |it| it & !(to - 1))
}

/// All allocators that something is known of.
pub(crate) fn allocators() -> impl Iterator<Item = &'static Known> {
    ALLOCATORS.iter().filter(|it| it.at.load(Ordering::Acquire) > GONE)
}

fn first_place(at: usize) -> usize {
    (at >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

fn find(at: usize) -> Option<&'static Known> {
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

fn add(at: usize, device: usize) -> Option<&'static Known> {
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
fn settle() {
    if flight::page().is_some_and(flight::Page::is_new) {
        for it in allocators() {
            it.inherited.store(1, Ordering::Relaxed);
        }
    }
}

/// The allocator, defined if it was not.
fn known(at: usize, device: impl FnOnce() -> usize) -> Option<(&'static Known, AllocatorNumber)> {
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
fn define(it: &'static Known) -> Option<AllocatorNumber> {
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
        let of = banks.iter().find(|it| it.space == space as u8);
        spaces |= u32::from(of.is_some()) << kind;
        it.banks[kind as usize].store(of.map_or(0, |it| it.banks.get()), Ordering::Relaxed);
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
        if let Ok(number) = define_chip(index, at, banks) {
            chips[defined] = number;
            defined += 1;
        }
    }
    let number = tracker().allocator(&chips[..defined], banks).ok()?;
    it.unit.store(unit, Ordering::Relaxed);
    it.l1_alignment.store(l1_alignment, Ordering::Relaxed);
    it.spaces.store(spaces, Ordering::Relaxed);
    it.number.store(u32::from(number.get()), Ordering::Release);
    it.changed();
    audit::begin();
    Some(number)
}

/// The banks of an allocator's spaces, and where they begin.
fn banks_of(at: usize) -> ([Banks; SPACES.len()], usize) {
    let mut bases = [0; 2];
    for memory in [MEMORY_L1, MEMORY_DRAM] {
        // SAFETY: as in `define`.
        unsafe { ttmem_base(at, memory, &raw mut bases[memory as usize]) };
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
    for bank in all[..len].iter_mut().filter(|it| [Space::L1 as u8, Space::L1Small as u8].contains(&it.space))
    {
        bank.base = bank.base.get().saturating_add(missing).into();
    }
    (all, len)
}

fn define_chip(index: u32, allocator: usize, banks: &[Banks]) -> ttmem_client::Result<ChipNumber> {
    let mut facts = ChipFacts::default();
    // SAFETY: asks the runtime for what it knows of a chip that it has just named.
    unsafe { ttmem_chip(index, &raw mut facts) };
    let knows = |bit: u32| facts.known >> bit & 1 != 0;
    let arch = match facts.arch {
        2 if knows(1) => Some(Arch::WormholeB0),
        3 if knows(1) => Some(Arch::Blackhole),
        _ => None,
    };
    let of = |space: Space| banks.iter().find(|it| it.space == space as u8);
    let bytes = |space: Space| of(space).map_or(0, |it| u64::from(it.banks.get()) * it.bytes_per_bank.get());
    let channels = of(Space::Dram).map_or(0, |it| u32::from(it.banks.get()));
    let mut chip = Chip {
        unique_id: facts.unique_id,
        index,
        arch,
        remote: knows(4) && facts.remote != 0,
        board: if knows(2) { board(facts.board_id) } else { "" },
        pci: core::str::from_utf8(&facts.pci).unwrap_or_default().trim_end_matches('\0'),
        // SAFETY: as above.
        l1_bytes_per_core: unsafe { ttmem_worker_l1(allocator) },
        dram_channels: channels,
        dram_allocatable: bytes(Space::Dram) + bytes(Space::Trace),
        l1_allocatable: bytes(Space::L1) + bytes(Space::L1Small),
        ..Chip::default()
    };
    // Raw sizes are the chip's, not the runtime's.
    let (cores, channel) = match arch {
        Some(Arch::WormholeB0) => (80 - 8 * facts.harvested_cores.min(10), 1 << 30),
        Some(Arch::Blackhole) => (140 - 10 * facts.harvested_cores.min(14), 4 << 30),
        None => (0, 0),
    };
    if knows(3) {
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
    tracker().chip(&chip)
}

/// The board, from the code in its 64-bit id.
fn board(id: u64) -> &'static str {
    match id >> 36 & 0xf_ffff {
        0x14 => "n300",
        0x18 => "n150",
        0x0b | 0x35 => "galaxy-wormhole",
        0x36 => "p100",
        0x40 => "p150a",
        0x41 => "p150b",
        0x42 => "p150c",
        0x43 => "p100a",
        0x44 => "p300b",
        0x45 => "p300a",
        0x46 => "p300c",
        0x47 => "galaxy-blackhole",
        _ => "",
    }
}

#[inline]
fn space_of(kind: u32) -> Option<Space> {
    // Not looked up in the table: that would be one more line to fetch.
    Some(match kind {
        DRAM => Space::Dram,
        L1 => Space::L1,
        L1_SMALL => Space::L1Small,
        TRACE => Space::Trace,
        _ => return None,
    })
}

/// The number of a set of cores. The last few are remembered: models use the same grids again and again.
fn cores_of(cores: [u64; 4]) -> CoresNumber {
    const REMEMBERED: usize = 8;
    std::thread_local! {
        static RECENT: core::cell::Cell<[([u64; 4], CoresNumber); REMEMBERED]> =
            const { core::cell::Cell::new([([0; 4], CoresNumber::NONE); REMEMBERED]) };
    }
    let place =
        (cores[0] ^ cores[1] >> 7 ^ cores[2] >> 13 ^ cores[3] >> 19).count_ones() as usize % REMEMBERED;
    let mut recent = RECENT.get();
    if recent[place].0 == cores {
        return recent[place].1;
    }
    let Ok(number) = tracker().core_set(cores) else { return CoresNumber::NONE };
    recent[place] = (cores, number);
    RECENT.set(recent);
    number
}

/// Tells of each part of a buffer that has an address of its own on each core: the cores with the same one are a part.
fn each_part(known: &Known, number: AllocatorNumber, buffer: *mut c_void, facts: &Facts, tell: fn(&Buffer)) {
    let mut places = [[0; 2]; 256];
    // SAFETY: the buffer that the runtime is in the middle of allocating or freeing.
    let count = unsafe { ttmem_core_addresses(buffer, places.as_mut_ptr(), places.len()) };
    let places = &mut places[..count];
    places.sort_unstable_by_key(|it| (it[1], it[0]));
    let share = facts.requested / count.max(1) as u64;
    for part in places.chunk_by(|a, b| a[1] == b[1]) {
        let mut cores = [0; 4];
        for [core, _] in part {
            cores[(core >> 6) as usize & 3] |= 1 << (core & 63);
        }
        let requested = share.max(1).saturating_mul(part.len() as u64);
        let bytes = known.sizes(facts).0.saturating_mul(part.len() as u64);
        let cores = cores_of(cores);
        tell(&Buffer {
            // Without the cores it counts as much as on all of them.
            bytes_per_bank: if cores == CoresNumber::NONE { bytes } else { bytes / part.len() as u64 },
            occupied: Some(bytes),
            cores,
            layout: facts.layout(),
            ..Buffer::new(number, Space::L1Core, part[0][1], requested)
        });
    }
}

/// Finds the runtime, or decides to do nothing. The first hook calls this.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_start() {
    let starting = Lock::to_start();
    let mode = &flight::state().mode;
    if mode.load(Ordering::Acquire) != 0 {
        return;
    }
    let found = runtime::find();
    let off = std::env::var("TTMEM").is_ok_and(|it| it == "0");
    if off || !found.usable || starting.is_none() {
        mode.store(CALLS_THROUGH, Ordering::Release);
        return;
    }
    let hybrid = std::env::var("TT_METAL_ALLOCATOR_MODE_HYBRID").is_ok_and(|it| it == "1");
    flight::state().hybrid.store(u32::from(hybrid), Ordering::Relaxed);
    let options = Options {
        writer: concat!("ttmem-agent ", env!("CARGO_PKG_VERSION")).to_owned(),
        runtime: found.runtime,
        ..Options::as_env_says()
    };
    tracker().enable(&options);
    tracker().hooks(found.taken, found.wanted);
    settle();
    mode.store(AT_WORK, Ordering::Release);
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_met(allocator: usize, device: usize, mesh: bool) {
    settle();
    let Some(it) = add(allocator, device) else { return };
    it.device.store(device, Ordering::Relaxed);
    // Each chip of a mesh has an allocator, too, which is hardly ever used.
    if mesh && it.number().is_none() {
        define(it);
    }
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_allocated(allocator: usize, buffer: *mut c_void, facts: &Facts) {
    // SAFETY: the runtime has just allocated this buffer.
    let Some((it, number)) = known(allocator, || unsafe { ttmem_device_of(buffer) }) else { return };
    if facts.is_per_core() {
        each_part(it, number, buffer, facts, |part| {
            let _ = tracker().alloc(part);
        });
    } else if let Some(space) = space_of(facts.kind) {
        let cores = if facts.has_cores() { cores_of(facts.cores) } else { CoresNumber::NONE };
        let (bytes_per_bank, occupied) = it.sizes(facts);
        let _ = tracker().alloc(&Buffer {
            bytes_per_bank,
            occupied: Some(occupied),
            cores,
            layout: facts.layout(),
            ..Buffer::new(number, space, facts.address, facts.requested)
        });
    }
    it.changed();
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_freeing(allocator: usize, buffer: *mut c_void, facts: &Facts) {
    // SAFETY: the runtime is about to free this buffer.
    let Some((it, number)) = known(allocator, || unsafe { ttmem_device_of(buffer) }) else { return };
    if facts.is_per_core() {
        each_part(it, number, buffer, facts, |part| {
            let _ = tracker().free_on_cores(part);
        });
    } else if let Some(space) = space_of(facts.kind) {
        let _ = tracker().free(number, space, facts.address);
    }
    it.changed();
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_failed(allocator: usize, buffer: *mut c_void, facts: &Facts) {
    // SAFETY: the runtime has just failed to allocate this buffer.
    let Some((it, number)) = known(allocator, || unsafe { ttmem_device_of(buffer) }) else { return };
    let Some(space) = space_of(facts.kind) else { return };
    let _turn = Lock::to_ask();
    // Other hooks under way are besides this one.
    let before = audit::mark(1);
    let statistics = it.statistics(facts.kind);
    let (block, _) = it.sizes(facts);
    if let Some(statistics) = statistics.filter(|_| !it.is_inherited()) {
        let _ = tracker().audit(before.filter(|_| audit::is_calm(1)), number, space, statistics);
    }
    // It may have failed for another reason.
    let no_room = statistics.is_none_or(|it| block > it.largest_free_per_bank);
    if no_room || facts.is_per_core() || is_hybrid() {
        let failed = Buffer::new(number, space, 0, facts.requested);
        let _ = tracker().out_of_memory(&Buffer { bytes_per_bank: block, ..failed });
    }
}

/// The runtime would not say what it allocated or freed.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_unknown(allocator: usize) {
    if let Some(it) = find(allocator) {
        it.changed();
    }
}

/// Everything was freed at once, but the allocator goes on.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_cleared(allocator: usize) {
    settle();
    let Some(it) = find(allocator) else { return };
    let Some(number) = it.number() else { return };
    // An audit must not be of what is closed meanwhile.
    let _turn = Lock::to_ask();
    let _ = tracker().close_allocator(number);
    it.number.store(0, Ordering::Release);
    define(it);
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_gone(allocator: usize) {
    settle();
    let Some(it) = find(allocator) else { return };
    let _turn = Lock::to_ask();
    it.at.store(GONE, Ordering::Release);
    if let Some(number) = it.number() {
        let _ = tracker().close_allocator(number);
    }
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_mirrored(allocator: usize, address: u64, bytes: u64) {
    let Some((it, number)) = known(allocator, || 0) else { return };
    // One mark stands for all who want it.
    if !tracker().is_held(number, Space::L1, address) {
        let bytes_per_bank = round_up(bytes.max(1), it.unit());
        let buffer = Buffer::new(number, Space::L1, address, bytes.max(1));
        let _ = tracker().alloc(&Buffer { bytes_per_bank, mirror: true, ..buffer });
    }
    it.changed();
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_unmirroring(allocator: usize, address: u64) {
    let Some((it, number)) = known(allocator, || 0) else { return };
    if tracker().is_held(number, Space::L1, address) {
        let _ = tracker().free(number, Space::L1, address);
    }
    it.changed();
}

/// The allocator was set to a state: what it has now are other allocators' buffers, which it keeps clear of.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_overridden(allocator: usize) {
    struct To {
        number: AllocatorNumber,
        space: Space,
        base: u64,
    }
    extern "C" fn tell(to: *mut c_void, address: u64, bytes: u64) {
        // SAFETY: what was given to `ttmem_blocks` below.
        let to = unsafe { &*to.cast::<To>() };
        let buffer = Buffer::new(to.number, to.space, to.base.wrapping_add(address), bytes);
        let _ = tracker().alloc(&Buffer { bytes_per_bank: bytes, mirror: true, ..buffer });
    }
    ttmem_agent_cleared(allocator);
    let Some((it, number)) = known(allocator, || 0) else { return };
    let (banks, len) = banks_of(allocator);
    for (kind, space) in SPACES {
        let Some(bank) = banks[..len].iter().find(|it| it.space == space as u8) else { continue };
        let mut to = To { number, space, base: bank.base.get() };
        // SAFETY: the runtime has just changed this allocator, and `to` outlives the calls.
        unsafe {
            if kind == L1 {
                // They are counted from where it began before it shrank.
                ttmem_base(allocator, MEMORY_L1, &raw mut to.base);
            }
            ttmem_blocks(allocator, u64::from(kind), tell, (&raw mut to).cast());
        }
    }
    it.changed();
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_resized(allocator: usize) {
    let Some((it, number)) = known(allocator, || 0) else { return };
    let (banks, len) = banks_of(allocator);
    let _ = tracker().resize(number, &banks[..len]);
    it.changed();
}

#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_spent(ns: u64) {
    SPENT.fetch_add(ns, Ordering::Relaxed);
}

/// For those who would measure: has hooks only call through, or work again. What happens meanwhile is not seen, so all of it
/// must be undone meanwhile. Returns whether they worked before.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_switch(on: bool) -> bool {
    let mode = &flight::state().mode;
    let (from, to) = if on { (CALLS_THROUGH, AT_WORK) } else { (AT_WORK, CALLS_THROUGH) };
    // Without a page it never worked, and must not begin to.
    if flight::page().is_some() {
        let _ = mode.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
    !on
}

/// One allocator's own figures of one space.
#[repr(C)]
struct Figure {
    allocator: u64,
    space: u64,
    banks: u64,
    allocated: u64,
    free: u64,
    largest_free_per_bank: u64,
}

/// For those who would compare: what every allocator of this process says of itself now, as many as there is room for.
/// Returns how many.
///
/// # Safety
///
/// `out` must have room for `room` figures.
#[unsafe(no_mangle)]
unsafe extern "C" fn ttmem_agent_figures(out: *mut Figure, room: usize) -> usize {
    let mut told = 0;
    for it in allocators().filter(|it| !it.is_inherited()) {
        let Some(_turn) = Lock::to_ask() else { break };
        let Some(number) = it.number() else { continue };
        for (kind, space) in SPACES {
            let Some(statistics) = it.statistics(kind).filter(|_| told < room) else { continue };
            let whole = statistics.allocated.saturating_add(statistics.free);
            let figure = Figure {
                allocator: u64::from(number.get()),
                space: space as u64,
                banks: whole / it.bank_bytes(kind).max(1),
                allocated: statistics.allocated,
                free: statistics.free,
                largest_free_per_bank: statistics.largest_free_per_bank,
            };
            // SAFETY: the caller's word.
            unsafe { out.add(told).write(figure) };
            told += 1;
        }
    }
    told
}

/// A mark for an audit, unless something else than the caller's own `flights` is on its way.
pub(crate) fn mark(flights: u64) -> Option<Mark> {
    audit::is_calm(flights).then(|| tracker().before_audit().ok()).flatten()
}
