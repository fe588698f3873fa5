//! Devices: chips, the banks of their allocators, and their cores.

use ttmem_types::{Arch, Space};
use ttmem_wire::segment::definition::{Banks as WireBanks, Chip as WireChip};
use ttmem_wire::segment::set_text;

/// A chip, which `ttmem` shows as a device; 0 and empty mean unknown.
///
/// ```
/// use ttmem_client::{Arch, Chip, Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let chip = Chip::default().unique_id(0x1234).arch(Arch::WormholeB0).board("n150").cores(72);
/// let number = tracker.define_chip(&chip)?;
/// assert_eq!(tracker.define_chip(&chip)?, number);
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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

impl<'a> Chip<'a> {
    /// Sets the architecture.
    ///
    /// ```
    /// # use ttmem_client::{Arch, Chip};
    /// assert_eq!(Chip::default().arch(Arch::Blackhole).arch, Some(Arch::Blackhole));
    /// ```
    #[inline]
    #[must_use]
    pub const fn arch(mut self, arch: Arch) -> Self {
        self.arch = Some(arch);
        self
    }

    setters! {
        "Chip::default()";
        /// Sets the 64-bit unique id.
        unique_id: u64 = "0x1234";
        /// Sets the device number in this process.
        index: u32 = "1";
        /// Sets whether the chip is reached through another chip.
        remote: bool = "true";
        /// Sets the board name.
        board: &'a str = "\"n300\"";
        /// Sets the PCI address.
        pci: &'a str = "\"0000:01:00.0\"";
        /// Sets the bytes of DRAM.
        dram_bytes: u64 = "12 << 30";
        /// Sets the number of DRAM channels.
        dram_channels: u32 = "6";
        /// Sets the bytes of a DRAM channel that the runtime uses.
        dram_bytes_per_channel: u64 = "2 << 30";
        /// Sets the number of Tensix cores, without harvested ones.
        cores: u32 = "64";
        /// Sets the bytes of L1 of one core.
        l1_bytes_per_core: u64 = "1_499_136";
        /// Sets the bytes of DRAM that the runtime can allocate.
        dram_allocatable: u64 = "11 << 30";
        /// Sets the bytes of L1 that the runtime can allocate.
        l1_allocatable: u64 = "78_034_432";
        /// Sets the start address of the kernel config buffer in a core's L1.
        kernel_config: u32 = "0x8000";
        /// Sets the end of the kernel config buffer, where memory of programs and buffers begins.
        unreserved: u32 = "0x1_8000";
        /// Sets the columns and rows of cores that programs can use.
        grid: (u8, u8) = "(8, 8)";
    }

    /// Returns the definition of the chip as a segment stores it.
    pub(crate) fn to_wire(self) -> WireChip {
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

/// Layout of one memory space of an allocator. Its banks allocate in lock-step.
///
/// ```
/// use ttmem_client::{Banks, Space};
///
/// let dram = Banks::new(Space::Dram, 12, 1 << 20, 1 << 30);
/// assert_eq!(u64::from(dram.banks) * dram.bytes_per_bank, 12 << 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Banks {
    /// Memory space.
    pub space: Space,
    /// Number of banks.
    pub banks: u16,
    /// First allocatable address in a bank.
    pub base: u64,
    /// Allocatable bytes in a bank.
    pub bytes_per_bank: u64,
}

impl Banks {
    /// Returns the layout of a space with so many banks, each with `bytes_per_bank` from the address `base` on.
    ///
    /// ```
    /// # use ttmem_client::{Banks, Space};
    /// assert_eq!(Banks::new(Space::L1, 64, 105_824, 1_393_312).base, 105_824);
    /// ```
    #[inline]
    pub const fn new(space: Space, banks: u16, base: u64, bytes_per_bank: u64) -> Self {
        Self { space, banks, base, bytes_per_bank }
    }

    /// Returns the layout as a segment stores it.
    pub(crate) fn to_wire(self) -> WireBanks {
        WireBanks::new(self.space, self.banks, self.base, self.bytes_per_bank)
    }
}

/// A rectangle of cores, both corners included; columns and rows up to 15.
///
/// ```
/// use ttmem_client::{CoreRange, Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 3)), CoreRange::single(0, 7)])?;
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoreRange {
    /// Lowest column and row.
    pub from: (u8, u8),
    /// Highest column and row.
    pub to: (u8, u8),
}

impl CoreRange {
    /// Returns the cores from one column and row to another.
    ///
    /// ```
    /// # use ttmem_client::CoreRange;
    /// assert_eq!(CoreRange::new((0, 0), (7, 7)).to, (7, 7));
    /// ```
    #[inline]
    pub const fn new(from: (u8, u8), to: (u8, u8)) -> Self {
        Self { from, to }
    }

    /// Returns one core, by its column and row.
    ///
    /// ```
    /// # use ttmem_client::CoreRange;
    /// assert_eq!(CoreRange::single(2, 3), CoreRange::new((2, 3), (2, 3)));
    /// ```
    #[inline]
    pub const fn single(column: u8, row: u8) -> Self {
        Self { from: (column, row), to: (column, row) }
    }
}
