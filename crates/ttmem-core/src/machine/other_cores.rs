//! Cores that programs cannot use: those that the runtime keeps for dispatch, and ethernet cores. How many there are
//! follows from the board, a cluster descriptor or the runtime; what they hold is reported by no source.

use super::{Capacity, CapacityOrigin, Chip};
use serde::{Deserialize, Serialize};
use ttmem_types::{Arch, Board};

/// Cores of a device that programs cannot use. What they hold is in no figure of the usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherCores {
    /// Tensix cores that the runtime keeps for itself; `null` if unknown.
    pub dispatch: Option<DispatchCores>,
    /// Ethernet cores; `null` if unknown.
    pub ethernet: Option<EthernetCores>,
}

/// Tensix cores that the runtime keeps for itself: for dispatch and fabric. Their L1 is part of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DispatchCores {
    /// Tensix cores that programs can use.
    pub program_cores: u32,
    /// Tensix cores that programs cannot use; 0 if dispatch runs on ethernet cores.
    pub cores: u32,
    /// First and last row of these cores; `null` if they are not rows, or if unknown.
    pub rows: Option<[u8; 2]>,
    /// First and last column of these cores; `null` if they are not columns, or if unknown.
    pub columns: Option<[u8; 2]>,
    /// L1 of these cores.
    pub l1_bytes: u64,
    /// Where the figures come from; `board` means tt-metal's default settings.
    pub origin: CapacityOrigin,
}

/// Ethernet cores of a device, after harvesting. Their L1 is not part of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EthernetCores {
    /// Ethernet cores.
    pub cores: u32,
    /// L1 of one core.
    pub l1_bytes_per_core: u64,
    /// L1 of all of them.
    pub l1_bytes: u64,
    /// Where the number of cores comes from.
    pub origin: CapacityOrigin,
}

impl OtherCores {
    /// Whether nothing is known about them.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

impl Chip {
    /// The cores that programs cannot use.
    pub(crate) fn other_cores(&self) -> OtherCores {
        OtherCores {
            dispatch: self.capacity.and_then(|capacity| self.dispatch_cores(&capacity)),
            ethernet: self.ethernet(),
        }
    }

    /// The Tensix cores outside the grid that the runtime gives to programs. Without a runtime, its defaults are assumed.
    fn dispatch_cores(&self, capacity: &Capacity) -> Option<DispatchCores> {
        let Capacity { cores: all, l1_bytes_per_core, .. } = *capacity;
        let (program_cores, origin) = match &self.core_layout {
            Some(layout) => (u32::from(layout.columns) * u32::from(layout.rows), capacity.origin),
            None => (all.checked_sub(self.arch?.memory().dispatch_cores)?, self.assumed()),
        };
        // A grid of more cores than there are contradicts the capacity.
        let cores = all.checked_sub(program_cores)?;
        let [rows, columns] = self.lines_outside_grid(all).unwrap_or_default();
        let l1_bytes = u64::from(cores).saturating_mul(l1_bytes_per_core);
        Some(DispatchCores { program_cores, cores, rows, columns, l1_bytes, origin })
    }

    /// The first and last of the rows, and of the columns, that the runtime's grid leaves out.
    fn lines_outside_grid(&self, all: u32) -> Option<[Option<[u8; 2]>; 2]> {
        let layout = self.core_layout.as_ref()?;
        let (row, column) = self.arch?.memory().grid;
        // Rows of Wormhole are harvested, and columns of Blackhole.
        let (columns, rows) = match self.arch? {
            Arch::WormholeB0 => (row, all / row),
            Arch::Blackhole => (all / column, column),
        };
        let left_out = |used: u8, all: u32| {
            let last = u8::try_from(all.checked_sub(1)?).ok()?;
            (used <= last).then_some([used, last])
        };
        match (u32::from(layout.columns) == columns, u32::from(layout.rows) == rows) {
            (true, false) => Some([left_out(layout.rows, rows), None]),
            (false, true) => Some([None, left_out(layout.columns, columns)]),
            _ => None,
        }
    }

    fn ethernet(&self) -> Option<EthernetCores> {
        let board = || Board::by_name(self.board.as_deref()?)?.chip;
        let (cores, arch, origin) = match self.ethernet_cores {
            Some(cores) => (cores, self.arch?, CapacityOrigin::Descriptor),
            None => board().map(|chip| (chip.ethernet_cores, chip.arch, self.assumed()))?,
        };
        let l1_bytes_per_core = arch.memory().ethernet_l1_bytes_per_core;
        let l1_bytes = u64::from(cores).saturating_mul(l1_bytes_per_core);
        Some(EthernetCores { cores, l1_bytes_per_core, l1_bytes, origin })
    }

    /// The origin of what follows from the board alone.
    fn assumed(&self) -> CapacityOrigin {
        let is_simulated = self.capacity.is_some_and(|it| it.origin == CapacityOrigin::Simulated);
        if is_simulated { CapacityOrigin::Simulated } else { CapacityOrigin::Board }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::CoreLayout;

    fn chip(arch: Arch, board: &str, cores: u32, grid: Option<(u8, u8)>) -> Chip {
        let l1_bytes_per_core = arch.memory().l1_bytes_per_core;
        Chip {
            arch: Some(arch),
            board: Some(board.to_owned()),
            capacity: Some(Capacity {
                dram_bytes: 1 << 30,
                dram_channels: 1,
                dram_bytes_per_channel: 1 << 30,
                l1_bytes: u64::from(cores) * l1_bytes_per_core,
                cores,
                l1_bytes_per_core,
                dram_allocatable_bytes: None,
                l1_allocatable_bytes: None,
                origin: if grid.is_some() { CapacityOrigin::Runtime } else { CapacityOrigin::Board },
            }),
            core_layout: grid.map(|(columns, rows)| CoreLayout {
                columns,
                rows,
                kernel_config: 0,
                unreserved: 0,
                end: l1_bytes_per_core,
            }),
            ..Chip::unknown(0)
        }
    }

    #[test]
    fn dispatch_cores_are_those_outside_the_grid() {
        let (wormhole, blackhole) = (Arch::WormholeB0, Arch::Blackhole);
        for (arch, board, cores, grid, left, rows, columns) in [
            (wormhole, "n300", 64, (8, 7), 8, Some([7, 7]), None),
            (wormhole, "n150", 72, (8, 8), 8, Some([8, 8]), None),
            (wormhole, "galaxy-wormhole", 80, (8, 7), 24, Some([7, 9]), None),
            (wormhole, "n300", 64, (6, 8), 16, None, Some([6, 7])),
            (wormhole, "n300", 64, (6, 7), 22, None, None),
            (blackhole, "p150a", 120, (11, 10), 10, None, Some([11, 11])),
            (blackhole, "p150a", 120, (12, 9), 12, Some([9, 9]), None),
        ] {
            let found = chip(arch, board, cores, Some(grid)).other_cores().dispatch.unwrap();
            assert_eq!((found.cores, found.rows, found.columns), (left, rows, columns), "{board} {grid:?}");
            assert_eq!((found.cores + found.program_cores, found.origin), (cores, CapacityOrigin::Runtime));
            assert_eq!(found.l1_bytes, u64::from(left) * arch.memory().l1_bytes_per_core);
        }
    }

    #[test]
    fn dispatch_on_ethernet_leaves_all_tensix_cores() {
        let found = chip(Arch::WormholeB0, "n300", 64, Some((8, 8))).other_cores().dispatch.unwrap();
        assert_eq!((found.cores, found.program_cores, found.rows, found.columns), (0, 64, None, None));
    }

    #[test]
    fn dispatch_cores_are_assumed_without_a_runtime() {
        let found = chip(Arch::Blackhole, "p150a", 120, None).other_cores().dispatch.unwrap();
        assert_eq!((found.cores, found.origin), (10, CapacityOrigin::Board));
        assert_eq!((found.rows, found.columns), (None, None), "the default may be a row or a column");
        let contradiction = chip(Arch::WormholeB0, "n300", 64, Some((16, 16)));
        assert_eq!(contradiction.other_cores().dispatch, None);
        assert!(Chip::unknown(0).other_cores().is_unknown());
    }

    #[test]
    fn ethernet_cores_follow_from_descriptor_or_board() {
        for (arch, board, cores, bytes) in [
            (Arch::WormholeB0, "n300", 16, 4 << 20),
            (Arch::Blackhole, "p150b", 12, 6 << 20),
            (Arch::Blackhole, "p100a", 0, 0),
        ] {
            let mut chip = chip(arch, board, 120, None);
            let found = chip.other_cores().ethernet.unwrap();
            assert_eq!((found.cores, found.l1_bytes), (cores, bytes), "{board}");
            assert_eq!(found.origin, CapacityOrigin::Board);
            chip.ethernet_cores = Some(3);
            let found = chip.other_cores().ethernet.unwrap();
            assert_eq!((found.cores, found.origin), (3, CapacityOrigin::Descriptor));
        }
        assert_eq!(chip(Arch::Blackhole, "p999", 120, None).other_cores().ethernet, None, "unknown board");
    }
}
