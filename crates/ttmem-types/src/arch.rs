//! Chip architectures and the memory of their chips.

vocabulary! {
    /// A chip architecture.
    pub enum Arch: u8 {
        WormholeB0 = 1, "wormhole_b0": "Wormhole B0.",
        Blackhole = 2, "blackhole": "Blackhole.",
    }
}

/// Memory of one architecture, as tt-metal uses it with default settings: no Tracy, no trace region, `l1_small` 0, one row or
/// column of cores for dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchMemory {
    /// Bytes of L1 of a core.
    pub l1_bytes_per_core: u64,
    /// Bytes of a core's L1 that firmware and the kernel config buffer use.
    pub l1_reserved_bytes: u64,
    /// Bytes of DRAM of a channel.
    pub dram_bytes_per_channel: u64,
    /// Bytes of a channel that the runtime uses.
    pub dram_visible_bytes_per_channel: u64,
    /// Banks of the runtime in a channel.
    pub dram_banks_per_channel: u64,
    /// Bytes that the runtime reserves in each bank.
    pub dram_reserved_bytes_per_bank: u64,
    /// Bytes to which allocators round up sizes in every space, and pages of DRAM.
    pub dram_alignment: u64,
    /// Bytes to which allocators round up pages of L1.
    pub l1_alignment: u64,
    /// Tensix cores that dispatch uses.
    pub dispatch_cores: u32,
    /// Tensix cores of a row and of a column, of a chip without harvesting.
    pub grid: (u32, u32),
    /// Bytes of L1 of an ethernet core.
    pub ethernet_l1_bytes_per_core: u64,
}

impl Arch {
    /// Returns the display name.
    ///
    /// ```
    /// # use ttmem_types::Arch;
    /// assert_eq!(Arch::WormholeB0.title(), "Wormhole");
    /// ```
    pub const fn title(self) -> &'static str {
        match self {
            Self::WormholeB0 => "Wormhole",
            Self::Blackhole => "Blackhole",
        }
    }

    /// Returns the memory of chips of this architecture.
    ///
    /// ```
    /// # use ttmem_types::Arch;
    /// assert_eq!(Arch::Blackhole.memory().l1_bytes_per_core, 1536 << 10);
    /// ```
    pub const fn memory(self) -> ArchMemory {
        match self {
            Self::WormholeB0 => ArchMemory {
                l1_bytes_per_core: 1_499_136,
                l1_reserved_bytes: 105_664,
                dram_bytes_per_channel: 2 << 30,
                dram_visible_bytes_per_channel: 2 << 30,
                dram_banks_per_channel: 2,
                dram_reserved_bytes_per_bank: 1_048_640,
                dram_alignment: 32,
                l1_alignment: 16,
                dispatch_cores: 8,
                grid: (8, 10),
                ethernet_l1_bytes_per_core: 256 << 10,
            },
            Self::Blackhole => ArchMemory {
                l1_bytes_per_core: 1_572_864,
                l1_reserved_bytes: 111_616,
                dram_bytes_per_channel: 4 << 30,
                dram_visible_bytes_per_channel: 4_278_190_080,
                dram_banks_per_channel: 1,
                dram_reserved_bytes_per_bank: 1_048_704,
                dram_alignment: 64,
                l1_alignment: 16,
                dispatch_cores: 10,
                grid: (14, 10),
                ethernet_l1_bytes_per_core: 512 << 10,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_positions() {
        for (n, arch) in (1..).zip(Arch::ALL) {
            assert_eq!((arch as u8, Arch::from_number(n)), (n, Some(arch)));
        }
        assert_eq!((Arch::from_number(0), Arch::from_number(3)), (None, None));
    }
}
