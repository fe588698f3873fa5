//! The machines that the lab simulates.

use std::str::FromStr;
use ttmem_types::Arch;

/// Lines of worker cores on the die, and cores in each. A line is the unit of harvesting: a row of a Wormhole, a column of a
/// Blackhole.
pub(crate) fn lines(arch: Arch) -> (u32, u32) {
    match arch {
        Arch::WormholeB0 => (10, 8),
        Arch::Blackhole => (14, 10),
    }
}

/// Ethernet channels on the die.
pub(crate) fn channels(arch: Arch) -> u32 {
    match arch {
        Arch::WormholeB0 => 16,
        Arch::Blackhole => 14,
    }
}

/// A kind of card, with the properties that a descriptor contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) name: &'static str,
    /// The kind's code in the card's number.
    pub(crate) code: u64,
    pub(crate) arch: Arch,
    /// Chips on the card.
    pub(crate) chips: usize,
    /// Lines of worker cores switched off in each of its chips.
    pub(crate) harvested_lines: u32,
    /// Memory channels switched off in each of its chips.
    pub(crate) harvested_dram: u32,
    /// Ethernet channels switched off in each of its chips. Software renumbers the others.
    pub(crate) harvested_ethernet: u32,
}

const N150: Card = Card {
    name: "n150",
    code: 0x18,
    arch: Arch::WormholeB0,
    chips: 1,
    harvested_lines: 1,
    harvested_dram: 0,
    harvested_ethernet: 0,
};
const N300: Card = Card { name: "n300", code: 0x14, chips: 2, harvested_lines: 2, ..N150 };
const UBB: Card = Card { name: "ubb", code: 0x35, chips: 8, harvested_lines: 0, ..N150 };
const P150: Card = Card {
    name: "p150",
    code: 0x40,
    arch: Arch::Blackhole,
    chips: 1,
    harvested_lines: 2,
    harvested_dram: 0,
    harvested_ethernet: 2,
};
const P100: Card = Card { name: "p100", code: 0x43, harvested_dram: 1, harvested_ethernet: 14, ..P150 };
const P300: Card = Card { name: "p300", code: 0x45, chips: 2, ..P150 };
const UBB_BLACKHOLE: Card = Card { name: "ubb_blackhole", code: 0x47, chips: 8, harvested_lines: 1, ..P150 };

/// A machine with one card, or several of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Board {
    N150,
    N300,
    T3k,
    Galaxy,
    P100,
    P150,
    P300,
    P150x8,
    BhGalaxy,
}

impl Board {
    pub(crate) const ALL: [Self; 9] = [
        Self::N150,
        Self::N300,
        Self::T3k,
        Self::Galaxy,
        Self::P100,
        Self::P150,
        Self::P300,
        Self::P150x8,
        Self::BhGalaxy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::N150 => "n150",
            Self::N300 => "n300",
            Self::T3k => "t3k",
            Self::Galaxy => "galaxy",
            Self::P100 => "p100",
            Self::P150 => "p150",
            Self::P300 => "p300",
            Self::P150x8 => "p150x8",
            Self::BhGalaxy => "bh-galaxy",
        }
    }

    pub(crate) fn card(self) -> Card {
        match self {
            Self::N150 => N150,
            Self::N300 | Self::T3k => N300,
            Self::Galaxy => UBB,
            Self::P100 => P100,
            Self::P150 | Self::P150x8 => P150,
            Self::P300 => P300,
            Self::BhGalaxy => UBB_BLACKHOLE,
        }
    }

    pub(crate) fn arch(self) -> Arch {
        self.card().arch
    }

    pub(crate) fn chips(self) -> usize {
        let (rows, columns) = self.mesh();
        rows * columns
    }

    /// Rows and columns of the mesh of all chips.
    pub(crate) fn mesh(self) -> (usize, usize) {
        match self {
            Self::N150 | Self::P100 | Self::P150 => (1, 1),
            Self::N300 | Self::P300 => (1, 2),
            Self::T3k | Self::P150x8 => (2, 4),
            Self::Galaxy | Self::BhGalaxy => (8, 4),
        }
    }

    /// Worker cores that a chip has after harvesting.
    pub(crate) fn workers(self) -> u32 {
        let (lines, cores) = lines(self.arch());
        (lines - self.card().harvested_lines) * cores
    }

    /// Banks of L1 that an allocator has on each chip. By default ttnn uses one line of worker cores for dispatch; on cards
    /// whose second chip is remote, it uses ethernet cores instead.
    pub(crate) fn l1_banks(self) -> u32 {
        let dispatch = if self.card() == N300 { 0 } else { lines(self.arch()).1 };
        self.workers() - dispatch
    }

    /// Banks of DRAM that an allocator has on each chip.
    pub(crate) fn dram_banks(self) -> u32 {
        match self.arch() {
            Arch::WormholeB0 => 12,
            Arch::Blackhole => 8 - self.card().harvested_dram,
        }
    }
}

impl FromStr for Board {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|board| board.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            anyhow::anyhow!("no board is called {name}; there are {}", known.join(", "))
        })
    }
}
