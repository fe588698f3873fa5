//! Arguments and results of the tracker.

use ttmem_wire::record::{Kind, PADDING_UNKNOWN, Record, flags};
use ttmem_wire::segment::definition::Chip as WireChip;
use ttmem_wire::segment::set_text;

pub use ttmem_types::{Arch, BufferType, Fault, KernelClass, Layout, Space, Uncertainty};
pub use ttmem_wire::segment::definition::Banks;

/// A chip; 0 and empty mean unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chip<'a> {
    /// 64-bit unique id.
    pub unique_id: u64,
    /// Device number in this process.
    pub index: u32,
    /// Architecture.
    pub arch: Option<Arch>,
    /// Whether it is reached through another chip.
    pub remote: bool,
    /// Board name, such as `n300`.
    pub board: &'a str,
    /// PCI address.
    pub pci: &'a str,
    /// DRAM in bytes.
    pub dram_bytes: u64,
    /// DRAM channels.
    pub dram_channels: u32,
    /// Bytes of a DRAM channel that the runtime uses.
    pub dram_bytes_per_channel: u64,
    /// Tensix cores, without harvested ones.
    pub cores: u32,
    /// L1 of one core in bytes.
    pub l1_bytes_per_core: u64,
    /// DRAM that the runtime can allocate, in bytes.
    pub dram_allocatable: u64,
    /// L1 that the runtime can allocate, in bytes.
    pub l1_allocatable: u64,
    /// Start address of the kernel config buffer in a core's L1.
    pub kernel_config: u32,
    /// End of the kernel config buffer, where memory of programs and buffers begins.
    pub unreserved: u32,
    /// Columns and rows of cores that programs can use.
    pub grid: (u8, u8),
}

impl Chip<'_> {
    pub(crate) fn wire(&self) -> WireChip {
        let mut chip = WireChip {
            unique_id: self.unique_id.into(),
            index: self.index.into(),
            arch: self.arch.map_or(0, |arch| arch as u8),
            remote: u8::from(self.remote),
            dram_bytes: self.dram_bytes.into(),
            dram_bytes_per_channel: self.dram_bytes_per_channel.into(),
            l1_bytes_per_core: self.l1_bytes_per_core.into(),
            dram_allocatable: self.dram_allocatable.into(),
            l1_allocatable: self.l1_allocatable.into(),
            dram_channels: self.dram_channels.into(),
            cores: self.cores.into(),
            kernel_config: self.kernel_config.into(),
            unreserved: self.unreserved.into(),
            columns: self.grid.0,
            rows: self.grid.1,
            ..WireChip::default()
        };
        set_text(&mut chip.board, self.board);
        set_text(&mut chip.pci, self.pci);
        chip
    }
}

/// Number of a defined chip; the default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChipNumber(pub(crate) u16);

impl ChipNumber {
    /// Returns its number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the chip with a number that the tracker returned before.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }
}

/// Number of a defined allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocatorNumber(pub(crate) u16);

impl AllocatorNumber {
    /// Returns its number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the allocator with a number that the tracker returned before.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }
}

/// Number of a defined core set; the default is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoresNumber(pub(crate) u16);

impl CoresNumber {
    /// Unknown cores.
    pub const NONE: Self = Self(0);

    /// Returns its number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the core set with a number that the tracker returned before.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }
}

/// Number of a defined call site; the default is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SiteNumber(pub(crate) u32);

impl SiteNumber {
    /// Returns its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the call site with a number that the tracker returned before.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
}

/// A rectangle of cores, both corners included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreRange {
    /// Lowest column and row.
    pub from: (u8, u8),
    /// Highest column and row.
    pub to: (u8, u8),
}

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its allocator. The buffer is on all chips of the allocator.
    pub allocator: AllocatorNumber,
    /// [`Space::Dram`], [`Space::L1`], [`Space::L1Small`], [`Space::Trace`], [`Space::Host`], or [`Space::L1Core`] if only its
    /// cores are charged.
    pub space: Space,
    /// Address in each bank.
    pub address: u64,
    /// Requested bytes on each chip.
    pub requested: u64,
    /// Bytes in each bank; 0: unknown, and so are the allocated bytes.
    pub bytes_per_bank: u64,
    /// Occupied bytes, in the banks that hold it, if known.
    pub occupied: Option<u64>,
    /// Core set, if the buffer is on some cores only.
    pub cores: CoresNumber,
    /// Memory layout. [`Layout::Mirror`]: a buffer of another allocator, which only reduces the free space of this one.
    pub layout: Layout,
    /// Call site of the allocation.
    pub site: SiteNumber,
}

impl Buffer {
    /// Returns a buffer whose other properties are unknown.
    pub fn new(allocator: AllocatorNumber, space: Space, address: u64, requested: u64) -> Self {
        Self {
            allocator,
            space,
            address,
            requested,
            bytes_per_bank: 0,
            occupied: None,
            cores: CoresNumber(0),
            layout: Layout::Unknown,
            site: SiteNumber(0),
        }
    }
}

impl Buffer {
    /// Returns the record of its allocation, without sequence, time and slot.
    #[inline]
    pub(crate) fn record(&self) -> Record {
        let padding = self.occupied.and_then(|occupied| occupied.checked_sub(self.requested));
        Record {
            flags: flags::of_layout(self.layout).into(),
            cores: self.cores.0.into(),
            requested: self.requested.into(),
            bytes_per_bank: self.bytes_per_bank.into(),
            padding: padding.and_then(|it| u32::try_from(it).ok()).unwrap_or(PADDING_UNKNOWN).into(),
            site: self.site.0.into(),
            ..named(self.allocator, self.space, self.address)
        }
    }
}

/// Returns a record that only identifies an allocation.
#[inline]
pub(crate) fn named(allocator: AllocatorNumber, space: Space, id: u64) -> Record {
    Record {
        id: id.into(),
        padding: PADDING_UNKNOWN.into(),
        ..Record::new(Kind::Alloc, Some(space), allocator.0)
    }
}

/// Returns the flags of program memory. Without an address or program, its residency is unknown.
fn program_flags(uncertainty: Uncertainty, program: u32) -> u16 {
    let unfollowed = uncertainty.unfollowed || uncertainty.unplaced || program == 0;
    flags::of_uncertainty(Uncertainty { unfollowed, ..uncertainty })
}

/// A program that runs on some cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Allocator of its device or mesh.
    pub allocator: AllocatorNumber,
    /// Number chosen by the caller, not 0.
    pub program: u32,
    /// Core set it runs on; unknown: the cores of what it registers.
    pub cores: CoresNumber,
    /// Class.
    pub class: KernelClass,
    /// Short description, as a call site.
    pub site: SiteNumber,
}

impl Program {
    /// Returns an application program whose other properties are unknown.
    pub fn new(allocator: AllocatorNumber, program: u32) -> Self {
        let class = KernelClass::Application;
        Self { allocator, program, cores: CoresNumber::NONE, class, site: SiteNumber(0) }
    }
}

/// Memory of a program on each core of a set: a circular buffer, a dataflow buffer or a scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Allocator of the program's device or mesh.
    pub allocator: AllocatorNumber,
    /// Program number chosen by the caller; 0: none, and then residency is unknown.
    pub program: u32,
    /// [`Space::Cb`], [`Space::Dfb`] or [`Space::Scratch`].
    pub space: Space,
    /// Address on each core; if it is unplaced, a number that distinguishes it from others.
    pub address: u64,
    /// Bytes on each core.
    pub bytes: u64,
    /// Core set.
    pub cores: CoresNumber,
    /// Whether it is a view of a buffer; the buffer is counted.
    pub view: bool,
    /// Unknown properties.
    pub uncertainty: Uncertainty,
}

impl Placement {
    /// Returns memory of a program whose other properties are unknown.
    pub fn new(allocator: AllocatorNumber, program: u32, space: Space, address: u64, bytes: u64) -> Self {
        let (cores, uncertainty) = (CoresNumber::NONE, Uncertainty::default());
        Self { allocator, program, space, address, bytes, cores, view: false, uncertainty }
    }
}

impl Placement {
    /// Returns the record of its registration; `None` if its space is not one of programs.
    pub(crate) fn record(&self) -> Option<Record> {
        let fits = matches!(self.space, Space::Cb | Space::Dfb | Space::Scratch);
        fits.then(|| Record {
            flags: (if self.view { flags::VIEW } else { 0 } | program_flags(self.uncertainty, self.program))
                .into(),
            cores: self.cores.0.into(),
            requested: self.bytes.into(),
            bytes_per_bank: self.bytes.into(),
            program: self.program.into(),
            ..named(self.allocator, self.space, self.address)
        })
    }
}

/// A kernel of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Allocator of the program's device or mesh.
    pub allocator: AllocatorNumber,
    /// Program number chosen by the caller; 0: none, and then residency is unknown.
    pub program: u32,
    /// Id of the kernel, unique in its allocator.
    pub id: u64,
    /// Bytes on each of its cores; if the cores are unknown, in total.
    pub bytes: u64,
    /// Core set it runs on.
    pub cores: CoresNumber,
    /// Class.
    pub class: KernelClass,
    /// Unknown properties.
    pub uncertainty: Uncertainty,
}

impl Kernel {
    /// Returns a kernel of an application program whose other properties are unknown.
    pub fn new(allocator: AllocatorNumber, program: u32, id: u64, bytes: u64) -> Self {
        let (cores, class) = (CoresNumber::NONE, KernelClass::Application);
        Self { allocator, program, id, bytes, cores, class, uncertainty: Uncertainty::default() }
    }
}

impl Kernel {
    /// Returns the record of its registration.
    pub(crate) fn record(&self) -> Record {
        // Without cores, its size is that on all of them together.
        let bytes_per_bank = if self.cores == CoresNumber::NONE { 0 } else { self.bytes };
        Record {
            flags: (flags::of_class(self.class) | program_flags(self.uncertainty, self.program)).into(),
            cores: self.cores.0.into(),
            requested: self.bytes.into(),
            bytes_per_bank: bytes_per_bank.into(),
            program: self.program.into(),
            ..named(self.allocator, Space::Kernel, self.id)
        }
    }
}

/// An allocator's own statistics of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Allocated bytes, over all banks.
    pub allocated: u64,
    /// Free bytes, over all banks.
    pub free: u64,
    /// Largest free block in a bank, in bytes.
    pub largest_free_per_bank: u64,
}

/// A moment before statistics are read; see [`crate::Tracker::before_audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) u64);

impl Mark {
    /// Returns its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the moment with a number that the tracker returned before.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Result of a report: its sequence number, 0 while tracking is off.
pub type Result<T = u64> = core::result::Result<T, Fault>;

/// Status of tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether reports are recorded.
    pub on: bool,
    /// File name of the segment, if there is one.
    pub segment: Option<String>,
    /// Why there is no segment or a smaller one, or why tracking is off.
    pub reason: Option<String>,
    /// Live allocations.
    pub live: u64,
    /// Live allocations that do not fit the segment's table: counted, but not listed.
    pub unlisted: u64,
    /// Reports that were not recorded.
    pub lost: u64,
    /// Messages queued for an old server, with the legacy transport.
    pub queued: u64,
}
