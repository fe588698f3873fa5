//! What a program says, and what it hears back.

use ttmem_wire::record::{Kind, PADDING_UNKNOWN, Record, flags};
use ttmem_wire::segment::definition::Chip as WireChip;
use ttmem_wire::segment::set_text;

pub use ttmem_types::{Arch, BufferType, Fault, KernelClass, Layout, Space, Uncertainty};
pub use ttmem_wire::segment::definition::Banks;

/// A chip, as far as its process knows it: what is not known is 0 or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chip<'a> {
    /// Its 64-bit unique id.
    pub unique_id: u64,
    /// The number the process calls it by.
    pub index: u32,
    /// Architecture.
    pub arch: Option<Arch>,
    /// Reached through another chip rather than over the bus.
    pub remote: bool,
    /// Board name, as `n300`.
    pub board: &'a str,
    /// PCI address.
    pub pci: &'a str,
    /// All of DRAM.
    pub dram_bytes: u64,
    /// DRAM channels.
    pub dram_channels: u32,
    /// The part of a channel the runtime uses.
    pub dram_bytes_per_channel: u64,
    /// Tensix cores, harvested ones left out.
    pub cores: u32,
    /// L1 of one core.
    pub l1_bytes_per_core: u64,
    /// What the runtime can hand out of DRAM.
    pub dram_allocatable: u64,
    /// What the runtime can hand out of L1.
    pub l1_allocatable: u64,
    /// Where the ring of kernels begins in a core's L1.
    pub kernel_config: u32,
    /// Where it ends, and what programs and buffers share begins.
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

/// A chip that was defined; the default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChipNumber(pub(crate) u16);

impl ChipNumber {
    /// Its number, for those who must keep it as a number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The chip with this number, which the tracker once gave out.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }
}

/// An allocator that was defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocatorNumber(pub(crate) u16);

impl AllocatorNumber {
    /// Its number, for those who must keep it as a number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The allocator with this number, which the tracker once gave out.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }
}

/// A set of cores that was defined; the default is "not said".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoresNumber(pub(crate) u16);

impl CoresNumber {
    /// Not said.
    pub const NONE: Self = Self(0);

    /// Its number, for those who must keep it as a number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The set with this number, which the tracker once gave out.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }
}

/// A call site that was defined; the default is "not said".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SiteNumber(pub(crate) u32);

impl SiteNumber {
    /// Its number, for those who must keep it as a number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The site with this number, which the tracker once gave out.
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
    /// Who handed it out. All chips of the allocator hold it.
    pub allocator: AllocatorNumber,
    /// Where: [`Space::Dram`], [`Space::L1`], [`Space::L1Small`], [`Space::Trace`], [`Space::Host`], or
    /// [`Space::L1Core`] if it lies on its cores only and is charged there only.
    pub space: Space,
    /// Its address in each bank.
    pub address: u64,
    /// What the program asked for, on each chip.
    pub requested: u64,
    /// What it takes in each bank; 0: not known, and then neither is what the allocator charges.
    pub bytes_per_bank: u64,
    /// What it takes in the banks that really hold it, if that is known.
    pub occupied: Option<u64>,
    /// The cores it lies on, if it lies on some only.
    pub cores: CoresNumber,
    /// How it lies there. [`Layout::Mirror`]: it is another allocator's, which this one only keeps clear of.
    pub layout: Layout,
    /// Where in the program it was asked for.
    pub site: SiteNumber,
}

impl Buffer {
    /// A buffer of which nothing more is known.
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
    /// The record of its allocation, without sequence, time and slot.
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

/// A record that only names an allocation.
#[inline]
pub(crate) fn named(allocator: AllocatorNumber, space: Space, id: u64) -> Record {
    Record {
        id: id.into(),
        padding: PADDING_UNKNOWN.into(),
        ..Record::new(Kind::Alloc, Some(space), allocator.0)
    }
}

/// The flags of program memory. It cannot be followed if it has no address or no program.
fn program_flags(uncertainty: Uncertainty, program: u32) -> u16 {
    let unfollowed = uncertainty.unfollowed || uncertainty.unplaced || program == 0;
    flags::of_uncertainty(Uncertainty { unfollowed, ..uncertainty })
}

/// A program: what runs on some cores, with what it keeps there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The allocator of the device or mesh that it is for.
    pub allocator: AllocatorNumber,
    /// A number of the caller's, not 0.
    pub program: u32,
    /// The cores it runs on; not said: those where it keeps something.
    pub cores: CoresNumber,
    /// What kind.
    pub class: KernelClass,
    /// What it is made of, in a few words, as a call site.
    pub site: SiteNumber,
}

impl Program {
    /// A user's program of which nothing more is known.
    pub fn new(allocator: AllocatorNumber, program: u32) -> Self {
        let class = KernelClass::Application;
        Self { allocator, program, cores: CoresNumber::NONE, class, site: SiteNumber(0) }
    }
}

/// What a program keeps on each of some cores: a circular buffer, a dataflow buffer, a scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The allocator of the device or mesh that the program is for.
    pub allocator: AllocatorNumber,
    /// The program, by a number of the caller's; 0: not said, and then it is not known whether it is resident.
    pub program: u32,
    /// [`Space::Cb`], [`Space::Dfb`] or [`Space::Scratch`].
    pub space: Space,
    /// Address on each core; if it is unplaced, a number that tells it from others.
    pub address: u64,
    /// Bytes on each core.
    pub bytes: u64,
    /// Which cores.
    pub cores: CoresNumber,
    /// It is a buffer, or a part of one, that is counted as such: this is only another way to look at it.
    pub view: bool,
    /// What is not known of it.
    pub uncertainty: Uncertainty,
}

impl Placement {
    /// What a program keeps somewhere, of which nothing more is known.
    pub fn new(allocator: AllocatorNumber, program: u32, space: Space, address: u64, bytes: u64) -> Self {
        let (cores, uncertainty) = (CoresNumber::NONE, Uncertainty::default());
        Self { allocator, program, space, address, bytes, cores, view: false, uncertainty }
    }
}

impl Placement {
    /// The record of its registration; `None` if no program keeps memory of its space.
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
    /// The allocator of the device or mesh that the program is for.
    pub allocator: AllocatorNumber,
    /// The program, by a number of the caller's; 0: not said, and then it is not known whether it is resident.
    pub program: u32,
    /// A number that no other kernel of this allocator has.
    pub id: u64,
    /// Its size on each of its cores; where those are not said, on all of them together.
    pub bytes: u64,
    /// Which cores it runs on.
    pub cores: CoresNumber,
    /// What kind.
    pub class: KernelClass,
    /// What is not known of it.
    pub uncertainty: Uncertainty,
}

impl Kernel {
    /// A kernel of a user's program, of which nothing more is known.
    pub fn new(allocator: AllocatorNumber, program: u32, id: u64, bytes: u64) -> Self {
        let (cores, class) = (CoresNumber::NONE, KernelClass::Application);
        Self { allocator, program, id, bytes, cores, class, uncertainty: Uncertainty::default() }
    }
}

impl Kernel {
    /// The record of its registration.
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

/// The allocator's own statistics of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Allocated bytes, over all banks.
    pub allocated: u64,
    /// Free bytes, over all banks.
    pub free: u64,
    /// The largest free block in a bank.
    pub largest_free_per_bank: u64,
}

/// A moment before statistics are taken; see [`crate::Tracker::before_audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) u64);

impl Mark {
    /// Its number, for those who must keep it as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The moment with this number, which the tracker once gave out.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// What an event gives: its sequence number, 0 while tracking is off.
pub type Result<T = u64> = core::result::Result<T, Fault>;

/// How tracking is going.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether events are recorded.
    pub on: bool,
    /// The segment's file name, where readers can see one.
    pub segment: Option<String>,
    /// Why there is none, or a smaller one.
    pub reason: Option<String>,
    /// Live allocations.
    pub live: u64,
    /// Of these, how many did not fit the table; they are counted, but readers cannot list them.
    pub unlisted: u64,
    /// Events that could not be recorded.
    pub lost: u64,
    /// Messages that wait for an old server to take them, with the legacy transport.
    pub queued: u64,
}
