//! The region: the shared-memory file in which tt-metal itself counts the memory allocated on one chip.
//!
//! ```text
//! header | totals | 16 chip slots | 64 process slots | tail
//! ```
//!
//! Its writers add and subtract in place, and before version 4 the bytes of a killed process are never subtracted, so the counters
//! may be wrong. All layouts that ever existed can be read. They are distinguished by size and version together: two of them
//! have version 1.
//!
//! Other processes own the file and may have written anything into it. No contents make [`parse`] panic.

mod bytes;

use bytes::{PlainBytes, PocBytes, READINESS_INCOMPLETE, READY};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Prefix of file names, which are `tt_device_<id>_memory`; [`parse_name`] returns the id.
pub const FILE_PREFIX: &str = "tt_device_";
/// Suffix of file names; see [`FILE_PREFIX`].
pub const FILE_SUFFIX: &str = "_memory";

/// Bytes of the largest layout: a longer file is no region.
pub const MAX_BYTES: usize = size_of::<PocBytes>();

/// Chip slots of a region.
pub const CHIP_SLOTS: usize = 16;
/// Process slots of a region.
pub const PROCESS_SLOTS: usize = 64;
/// Bytes of a process's name.
pub const NAME_BYTES: usize = 64;

/// Returns the id in a region's file name: a chip's unique id, or a device number if that is unknown.
pub fn parse_name(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_prefix(FILE_PREFIX)?.strip_suffix(FILE_SUFFIX)?;
    // No sign and no leading zeros: two names must not have the same id.
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| plain)
}

/// Layout of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// December 2025, a fork: with kernels. Its version word is 1.
    Poc,
    /// March 2026, a branch: without kernels. Its version word is 1, too.
    V1,
    /// April 2026: unique ids, and a mark for free chip slots.
    V2,
    /// April 2026: the layout of published wheels.
    V3,
    /// August 2026, a branch: with a ready word, and without the bytes of killed processes.
    V4,
}

impl Layout {
    /// All layouts, oldest first.
    pub const ALL: [Self; 5] = [Self::Poc, Self::V1, Self::V2, Self::V3, Self::V4];

    /// Returns the layout with files of so many bytes and this version word.
    pub fn of(bytes: usize, version: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| (layout.bytes(), layout.version()) == (bytes, version))
    }

    /// Returns the bytes of the file.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Poc => size_of::<PocBytes>(),
            Self::V1 | Self::V2 | Self::V3 | Self::V4 => size_of::<PlainBytes>(),
        }
    }

    /// Returns the version word.
    pub const fn version(self) -> u32 {
        match self {
            Self::Poc | Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
            Self::V4 => 4,
        }
    }

    /// Returns the name of the layout.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poc => "poc",
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
        }
    }

    /// Returns whether kernels are counted.
    pub const fn has_kernels(self) -> bool {
        matches!(self, Self::Poc)
    }

    /// Returns the clock of its times.
    pub const fn clock(self) -> Clock {
        match self {
            Self::Poc | Self::V1 => Clock::Monotonic,
            Self::V2 | Self::V3 | Self::V4 => Clock::Wall,
        }
    }

    /// Returns whether a chip slot of zeros is free. Early files of version 2 have no mark for free slots.
    const fn zero_is_free(self) -> bool {
        matches!(self, Self::Poc | Self::V1 | Self::V2)
    }

    /// Returns whether a chip slot with the mark for free slots is free.
    const fn has_mark(self) -> bool {
        !matches!(self, Self::Poc | Self::V1)
    }
}

/// Clock of a region's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clock {
    /// Nanoseconds of `CLOCK_MONOTONIC`, of the boot in which the file was written.
    Monotonic,
    /// Nanoseconds since 1970.
    Wall,
}

/// Bytes by kind of memory, as counted by the writers.
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

/// Contents of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Layout.
    pub layout: Layout,
    /// Number of processes that the writers count. Slots are sparse and killed processes keep theirs, so this is no bound of
    /// [`Region::processes`].
    pub active_processes: u32,
    /// Time of the last change, by [`Layout::clock`].
    pub updated_ns: u64,
    /// Number of attached processes, including those that were killed while attached.
    pub reference_count: u32,
    /// Serial number of the board; 0 since version 2.
    pub board_serial: u64,
    /// Unique id of the chip since version 2; before, its position on the board.
    pub asic_id: u64,
    /// Device number in the process that attached last.
    pub device_id: u32,
    /// Totals of all chips and processes.
    pub totals: Levels,
    /// The device's chip and the chips reached through it, in the order of their slots.
    pub chips: Vec<ChipSlot>,
    /// Processes, in the order of their slots.
    pub processes: Vec<ProcessSlot>,
    /// Number of slots whose process is detaching; version 4 only.
    pub releasing_slots: u32,
    /// Number of slots with an invalid pid.
    pub broken_slots: u32,
}

impl Region {
    /// Returns a region of this layout without any counts.
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

    /// Returns whether every process slot is used, so that further processes are missing.
    pub fn is_full(&self) -> bool {
        let unlisted = u64::from(self.releasing_slots) + u64::from(self.broken_slots);
        self.processes.len() as u64 + unlisted >= PROCESS_SLOTS as u64
    }
}

/// Counts of one chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipSlot {
    /// Device number in its process.
    pub chip_id: u32,
    /// Whether it is reached through another chip.
    pub remote: bool,
    /// Bytes of all processes on the chip.
    pub held: Levels,
}

/// Counts of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSlot {
    /// Number of the slot.
    pub slot: usize,
    /// Pid, in the process's own namespace.
    pub pid: u32,
    /// Bytes of the process on all chips of the region.
    pub held: Levels,
    /// Time of the last change, by [`Layout::clock`].
    pub updated_ns: u64,
    /// Name, without control characters, of at most [`NAME_BYTES`].
    pub name: String,
}

/// Why bytes are not a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The file is being created, or its creator was killed.
    BeingMade,
    /// No layout has this size and this version together.
    UnknownLayout {
        /// Bytes of the file.
        bytes: usize,
        /// The version word; 0 if the file is too short for it.
        version: u32,
    },
    /// The ready word of version 4, which is invalid.
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

/// Parses a region from the bytes of its file.
pub fn parse(bytes: &[u8]) -> Result<Region, RegionError> {
    if bytes.is_empty() {
        return Err(RegionError::BeingMade);
    }
    let version = U32::read_from_prefix(bytes).map_or(0, |(version, _)| version.get());
    let unknown = RegionError::UnknownLayout { bytes: bytes.len(), version };
    // A new file gets its size before its version.
    if version == 0 && Layout::ALL.iter().any(|layout| layout.bytes() == bytes.len()) {
        return Err(RegionError::BeingMade);
    }
    let layout = Layout::of(bytes.len(), version).ok_or(unknown)?;
    if layout == Layout::Poc {
        return PocBytes::ref_from_bytes(bytes).map(|poc| poc.region(layout)).map_err(|_| unknown);
    }
    let plain = PlainBytes::ref_from_bytes(bytes).map_err(|_| unknown)?;
    if layout == Layout::V4 {
        match plain.tail.readiness.get() {
            READY => {}
            word if READINESS_INCOMPLETE.contains(&word) => return Err(RegionError::BeingMade),
            word => return Err(RegionError::Readiness(word)),
        }
    }
    Ok(plain.region(layout))
}

/// Returns the bytes of a region in this layout, for tests and simulated machines: ttmem does not write to tt-metal's regions.
///
/// The region's own layout is ignored, so that a region can be built in any layout. What the layout has no field for is left
/// out. A region that was parsed is the same after it is built in its own layout and parsed again.
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

#[cfg(test)]
mod tests;
