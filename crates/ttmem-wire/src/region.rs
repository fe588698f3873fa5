//! The region: the shared-memory file in which tt-metal itself counts what is allocated on one chip.
//!
//! ```text
//! header | totals | 16 chip slots | 64 process slots | tail
//! ```
//!
//! Its writers add and subtract in place, and before version 4 nobody takes back what a killed process had, so this is
//! what a region *says*, not what is true. All layouts there ever were can be read, told apart by size and version
//! together: two of them call themselves version 1.
//!
//! The file belongs to others, and any of them may have written anything into it. Nothing in it makes [`parse`] panic.

use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Files are called `tt_device_<id>_memory`; [`id_of`] reads the id.
pub const FILE_PREFIX: &str = "tt_device_";
/// See [`FILE_PREFIX`].
pub const FILE_SUFFIX: &str = "_memory";

/// Largest file worth reading: a longer one is no region.
pub const MOST_BYTES: usize = size_of::<PocBytes>();

/// Chip slots a region has.
pub const CHIP_SLOTS: usize = 16;
/// Process slots a region has.
pub const PROCESS_SLOTS: usize = 64;
/// Room for a process's name.
pub const NAME_BYTES: usize = 64;

/// Of version 4: the region may be read.
const READY: u32 = 0x5245_4459;
/// Of version 4: nobody has begun to fill the region in.
const UNTOUCHED: u32 = 0;
/// Of version 4: somebody is filling it in.
const IN_PROGRESS: u32 = 1;

/// The chip id of a free slot, since version 2.
const NO_CHIP: u32 = u32::MAX;
/// The pid of a free slot.
const NO_PID: i32 = 0;
/// Of version 4: the pid of a slot whose bytes are just being taken out of the totals.
const RELEASING: i32 = -1;
/// A pid that means nothing in any version, for [`build`].
const BROKEN: i32 = i32::MIN;

/// The id in a region's name: a chip's unique id, or a device number where that is not known.
pub fn id_of(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_prefix(FILE_PREFIX)?.strip_suffix(FILE_SUFFIX)?;
    // No sign, and no leading zeros: two names must not mean one id.
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| plain)
}

/// Which of the layouts a region has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// December 2025, a fork: with kernels. It calls itself version 1.
    Poc,
    /// March 2026, a branch: without kernels. It calls itself version 1, too.
    V1,
    /// April 2026: unique ids, and a mark of its own for free chip slots.
    V2,
    /// April 2026: what the published wheels write.
    V3,
    /// August 2026, a branch: says when it is ready, and reaps the dead.
    V4,
}

impl Layout {
    /// All layouts, oldest first.
    pub const ALL: [Self; 5] = [Self::Poc, Self::V1, Self::V2, Self::V3, Self::V4];

    /// The layout with files of so many bytes and this version word.
    pub fn of(bytes: usize, version: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| (layout.bytes(), layout.version()) == (bytes, version))
    }

    /// Bytes of the file.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Poc => size_of::<PocBytes>(),
            Self::V1 | Self::V2 | Self::V3 | Self::V4 => size_of::<PlainBytes>(),
        }
    }

    /// What the version word says.
    pub const fn version(self) -> u32 {
        match self {
            Self::Poc | Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
            Self::V4 => 4,
        }
    }

    /// What to call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poc => "poc",
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
        }
    }

    /// Whether kernels are counted.
    pub const fn has_kernels(self) -> bool {
        matches!(self, Self::Poc)
    }

    /// The clock of its times.
    pub const fn clock(self) -> Clock {
        match self {
            Self::Poc | Self::V1 => Clock::Monotonic,
            Self::V2 | Self::V3 | Self::V4 => Clock::Wall,
        }
    }

    /// Whether a chip slot may be free that has nothing but zeros. Version 2 began like that on its branch, before it
    /// got its mark.
    const fn zero_is_free(self) -> bool {
        matches!(self, Self::Poc | Self::V1 | Self::V2)
    }

    /// Whether a chip slot may be free that is marked with [`NO_CHIP`].
    const fn has_mark(self) -> bool {
        !matches!(self, Self::Poc | Self::V1)
    }
}

/// Which clock a region's times are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clock {
    /// Nanoseconds of `CLOCK_MONOTONIC`: of this boot, if the file is.
    Monotonic,
    /// Nanoseconds since 1970.
    Wall,
}

/// Bytes by kind of memory, as the writers counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// DRAM.
    pub dram: u64,
    /// L1 buffers.
    pub l1: u64,
    /// `L1_SMALL`.
    pub l1_small: u64,
    /// TRACE, in DRAM.
    pub trace: u64,
    /// Circular buffers.
    pub cb: u64,
    /// Kernels; 0 where [`Layout::has_kernels`] is false.
    pub kernel: u64,
}

/// What a region says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its layout.
    pub layout: Layout,
    /// How many processes the writers believe to have slots. Slots are sparse and the killed stay, so this is no bound
    /// of [`Region::processes`].
    pub active_processes: u32,
    /// When anything was last counted, by [`Layout::clock`].
    pub updated_ns: u64,
    /// Processes attached, and those that were killed while they were.
    pub reference_count: u32,
    /// The board; 0 since version 2.
    pub board_serial: u64,
    /// The chip's unique id since version 2; before, its place on the board.
    pub asic_id: u64,
    /// The number that the last process to attach calls the device by.
    pub device_id: u32,
    /// All chips and processes together.
    pub totals: Levels,
    /// Chips reached through the device, and itself, in the order of their slots.
    pub chips: Vec<ChipSlot>,
    /// Processes, in the order of their slots.
    pub processes: Vec<ProcessSlot>,
    /// Slots whose process is just leaving; version 4 only.
    pub releasing_slots: u32,
    /// Slots with a pid that cannot be one.
    pub broken_slots: u32,
}

impl Region {
    /// A region of this layout in which nothing is counted.
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            active_processes: 0,
            updated_ns: 0,
            reference_count: 0,
            board_serial: 0,
            asic_id: 0,
            device_id: 0,
            totals: Levels::default(),
            chips: Vec::new(),
            processes: Vec::new(),
            releasing_slots: 0,
            broken_slots: 0,
        }
    }

    /// Whether every process slot is taken, so that further processes are missing from the list.
    pub fn full(&self) -> bool {
        let odd = u64::from(self.releasing_slots) + u64::from(self.broken_slots);
        self.processes.len() as u64 + odd >= PROCESS_SLOTS as u64
    }
}

/// What is counted for one chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipSlot {
    /// The number its process calls it by.
    pub chip_id: u32,
    /// Reached through another chip.
    pub remote: bool,
    /// What all processes hold on it.
    pub held: Levels,
}

/// What is counted for one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSlot {
    /// Which slot it is.
    pub slot: usize,
    /// The pid, as the process itself knows it.
    pub pid: u32,
    /// What it holds on all chips of the region.
    pub held: Levels,
    /// When anything was last counted for it, by [`Layout::clock`].
    pub updated_ns: u64,
    /// Its name, without control characters, of at most [`NAME_BYTES`].
    pub name: String,
}

/// Why bytes cannot be read as a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// Somebody is making it just now, or died at that.
    BeingMade,
    /// No layout has this size and this version together.
    UnknownLayout {
        /// Bytes of the file.
        bytes: usize,
        /// The version word; 0 if the file is too short for one.
        version: u32,
    },
    /// Version 4, with this where it should say whether it is ready.
    Readiness(u32),
}

impl core::fmt::Display for RegionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::BeingMade => f.write_str("is still being made"),
            Self::UnknownLayout { bytes, version } => {
                write!(f, "has {bytes} bytes and version {version}, a layout this ttmem does not know")
            }
            Self::Readiness(word) => write!(f, "has an invalid ready word {word:#010x}"),
        }
    }
}

impl core::error::Error for RegionError {}

/// The part all layouts share.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    version: U32,
    active_processes: U32,
    updated_ns: U64,
    reference_count: U32,
    pad1: U32,
    board_serial: U64,
    asic_id: U64,
    device_id: U32,
    pad2: U32,
}

/// Counters without kernels.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Plain {
    dram: U64,
    l1: U64,
    l1_small: U64,
    trace: U64,
    cb: U64,
}

/// Counters with kernels.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WithKernels {
    plain: Plain,
    kernel: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Chip<C> {
    chip_id: U32,
    is_remote: U32,
    held: C,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Process<C> {
    pid: I32,
    pad: U32,
    held: C,
    updated_ns: U64,
    name: [u8; NAME_BYTES],
}

/// A whole region, with counters `C` and tail `T`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Bytes<C, T> {
    head: Head,
    totals: C,
    chips: [Chip<C>; CHIP_SLOTS],
    processes: [Process<C>; PROCESS_SLOTS],
    tail: T,
}

/// What is behind the process slots but in [`Layout::Poc`].
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Tail {
    /// Version 4: [`READY`] and others. Before, it is padding and always zero, so only the version tells whether this
    /// word means anything: a reader that looks here first takes a region in use for one being made.
    readiness: U32,
    pad: [u8; 36],
}

type PocBytes = Bytes<WithKernels, [u8; 96]>;
type PlainBytes = Bytes<Plain, Tail>;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Head>() == 48 && size_of::<Plain>() == 40 && size_of::<WithKernels>() == 48);
    assert!(offset_of!(Head, version) == 0 && offset_of!(Head, active_processes) == 4);
    assert!(offset_of!(Head, updated_ns) == 8 && offset_of!(Head, reference_count) == 16);
    assert!(offset_of!(Head, board_serial) == 24 && offset_of!(Head, asic_id) == 32);
    assert!(offset_of!(Head, device_id) == 40);
    assert!(offset_of!(Plain, dram) == 0 && offset_of!(Plain, l1) == 8 && offset_of!(Plain, l1_small) == 16);
    assert!(offset_of!(Plain, trace) == 24 && offset_of!(Plain, cb) == 32);
    assert!(offset_of!(WithKernels, kernel) == 40);

    assert!(size_of::<Chip<Plain>>() == 48 && size_of::<Process<Plain>>() == 120);
    assert!(offset_of!(Chip<Plain>, is_remote) == 4 && offset_of!(Chip<Plain>, held) == 8);
    assert!(offset_of!(Process<Plain>, held) == 8 && offset_of!(Process<Plain>, updated_ns) == 48);
    assert!(offset_of!(Process<Plain>, name) == 56);
    assert!(size_of::<PlainBytes>() == 8576 && offset_of!(PlainBytes, totals) == 48);
    assert!(offset_of!(PlainBytes, chips) == 88 && offset_of!(PlainBytes, processes) == 856);
    assert!(offset_of!(PlainBytes, tail) == 8536);

    assert!(size_of::<Chip<WithKernels>>() == 56 && size_of::<Process<WithKernels>>() == 128);
    assert!(offset_of!(Chip<WithKernels>, held) == 8 && offset_of!(Process<WithKernels>, held) == 8);
    assert!(
        offset_of!(Process<WithKernels>, updated_ns) == 56 && offset_of!(Process<WithKernels>, name) == 64
    );
    assert!(size_of::<PocBytes>() == 9280 && offset_of!(PocBytes, totals) == 48);
    assert!(offset_of!(PocBytes, chips) == 96 && offset_of!(PocBytes, processes) == 992);
    assert!(offset_of!(PocBytes, tail) == 9184);
    assert!(MOST_BYTES >= size_of::<PlainBytes>());
};

/// Counters as they lie in memory.
trait Counters: FromZeros + Copy {
    fn levels(&self) -> Levels;
    fn of(levels: &Levels) -> Self;
}

impl Counters for Plain {
    fn levels(&self) -> Levels {
        Levels {
            dram: self.dram.get(),
            l1: self.l1.get(),
            l1_small: self.l1_small.get(),
            trace: self.trace.get(),
            cb: self.cb.get(),
            kernel: 0,
        }
    }

    fn of(levels: &Levels) -> Self {
        Self {
            dram: levels.dram.into(),
            l1: levels.l1.into(),
            l1_small: levels.l1_small.into(),
            trace: levels.trace.into(),
            cb: levels.cb.into(),
        }
    }
}

impl Counters for WithKernels {
    fn levels(&self) -> Levels {
        Levels { kernel: self.kernel.get(), ..self.plain.levels() }
    }

    fn of(levels: &Levels) -> Self {
        Self { plain: Plain::of(levels), kernel: levels.kernel.into() }
    }
}

/// Reads a region from the whole of its file.
pub fn parse(bytes: &[u8]) -> Result<Region, RegionError> {
    if bytes.is_empty() {
        return Err(RegionError::BeingMade);
    }
    let version = U32::read_from_prefix(bytes).map_or(0, |(version, _)| version.get());
    let unknown = RegionError::UnknownLayout { bytes: bytes.len(), version };
    // A new file gets its size first and its version later.
    if version == 0 && Layout::ALL.iter().any(|layout| layout.bytes() == bytes.len()) {
        return Err(RegionError::BeingMade);
    }
    let layout = Layout::of(bytes.len(), version).ok_or(unknown)?;
    if layout == Layout::Poc {
        return PocBytes::ref_from_bytes(bytes).map(|it| it.region(layout)).map_err(|_| unknown);
    }
    let plain = PlainBytes::ref_from_bytes(bytes).map_err(|_| unknown)?;
    if layout == Layout::V4 {
        match plain.tail.readiness.get() {
            READY => {}
            UNTOUCHED | IN_PROGRESS => return Err(RegionError::BeingMade),
            word => return Err(RegionError::Readiness(word)),
        }
    }
    Ok(plain.region(layout))
}

/// The bytes of a region in this layout, for tests and simulated machines: tt-metal's regions are never written to.
///
/// The region's own layout is not looked at, so that one region can be had in each. What the layout has no room for is
/// left out. A region that was read comes back the same if it is built in its own layout.
pub fn build(layout: Layout, region: &Region) -> Vec<u8> {
    if layout == Layout::Poc {
        return PocBytes::of(layout, region).as_bytes().to_vec();
    }
    let mut plain = PlainBytes::of(layout, region);
    if layout == Layout::V4 {
        plain.tail.readiness = READY.into();
    }
    plain.as_bytes().to_vec()
}

impl<C: Counters, T: FromZeros> Bytes<C, T> {
    fn region(&self, layout: Layout) -> Region {
        let head = &self.head;
        let mut region = Region {
            active_processes: head.active_processes.get(),
            updated_ns: head.updated_ns.get(),
            reference_count: head.reference_count.get(),
            board_serial: head.board_serial.get(),
            asic_id: head.asic_id.get(),
            device_id: head.device_id.get(),
            totals: self.totals.levels(),
            chips: self.chips(layout),
            ..Region::new(layout)
        };
        // All slots: they are sparse, so a count of processes says nothing about where they are.
        for (slot, process) in self.processes.iter().enumerate() {
            match process.pid.get() {
                NO_PID => {}
                RELEASING if layout == Layout::V4 => region.releasing_slots += 1,
                pid => match u32::try_from(pid) {
                    Ok(pid) => region.processes.push(ProcessSlot {
                        slot,
                        pid,
                        held: process.held.levels(),
                        updated_ns: process.updated_ns.get(),
                        name: name(&process.name),
                    }),
                    Err(_) => region.broken_slots += 1,
                },
            }
        }
        region
    }

    fn chips(&self, layout: Layout) -> Vec<ChipSlot> {
        // Where zero means free, chip 0 looks like it while it holds nothing. Its writers take the first such slot for
        // it, and in a region of device 0 that is no free one.
        let own = match self.head.device_id.get() {
            0 => self.chips.iter().position(|chip| chip.chip_id.get() == 0),
            _ => None,
        };
        let free = |slot: usize, chip: &ChipSlot| {
            let empty = *chip == ChipSlot { chip_id: 0, remote: false, held: Levels::default() };
            let marked = layout.has_mark() && chip.chip_id == NO_CHIP;
            marked || (layout.zero_is_free() && empty && own != Some(slot))
        };
        let chips = self.chips.iter().map(|chip| ChipSlot {
            chip_id: chip.chip_id.get(),
            remote: chip.is_remote.get() != 0,
            held: chip.held.levels(),
        });
        chips.enumerate().filter(|(slot, chip)| !free(*slot, chip)).map(|(_, chip)| chip).collect()
    }

    fn of(layout: Layout, region: &Region) -> Self {
        let mut bytes = Self::new_zeroed();
        bytes.head = Head {
            version: layout.version().into(),
            active_processes: region.active_processes.into(),
            updated_ns: region.updated_ns.into(),
            reference_count: region.reference_count.into(),
            board_serial: region.board_serial.into(),
            asic_id: region.asic_id.into(),
            device_id: region.device_id.into(),
            ..Head::new_zeroed()
        };
        bytes.totals = C::of(&region.totals);
        if layout.has_mark() {
            for chip in &mut bytes.chips {
                chip.chip_id = NO_CHIP.into();
            }
        }
        for (slot, chip) in bytes.chips.iter_mut().zip(&region.chips) {
            slot.chip_id = chip.chip_id.into();
            slot.is_remote = u32::from(chip.remote).into();
            slot.held = C::of(&chip.held);
        }
        for process in &region.processes {
            if let Some(slot) = bytes.processes.get_mut(process.slot) {
                slot.pid = (process.pid as i32).into();
                slot.held = C::of(&process.held);
                slot.updated_ns = process.updated_ns.into();
                crate::segment::set_text(&mut slot.name, &process.name);
            }
        }
        // Which slots these were is not kept, and does not matter.
        let releasing = if layout == Layout::V4 { region.releasing_slots as usize } else { 0 };
        let pids = core::iter::repeat_n(RELEASING, releasing)
            .chain(core::iter::repeat_n(BROKEN, region.broken_slots as usize));
        let free = bytes.processes.iter_mut().filter(|slot| slot.pid.get() == NO_PID);
        for (slot, pid) in free.zip(pids) {
            slot.pid = pid.into();
        }
        bytes
    }
}

/// A process's name, safe to show: any process that may write the region chooses it.
fn name(field: &[u8; NAME_BYTES]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    let mut name = String::new();
    for c in String::from_utf8_lossy(&field[..end]).chars() {
        let c = if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        // A replacement is longer than what it stands for.
        if name.len() + c.len_utf8() > NAME_BYTES {
            break;
        }
        name.push(c);
    }
    name
}

#[cfg(test)]
mod tests;
