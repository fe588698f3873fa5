//! Simulated devices: boards and their memory, for the demo and for tests without hardware.

pub(crate) mod sensors;

use std::fmt;
use std::str::FromStr;
use ttmem_core::machine::{Capacity, CapacityOrigin, Chip};
use ttmem_core::words::{Arch, ChipId, PciAddress};
use ttmem_sources::board;

/// A board, and the facts that its capacities follow from.
#[derive(Debug, PartialEq, Eq)]
struct Board {
    name: &'static str,
    /// Board name of each device, as in the driver.
    kind: &'static str,
    /// Number of the kind in serial numbers.
    number: u64,
    arch: Arch,
    boards: u32,
    chips_per_board: u32,
    /// Devices of a board that are on the bus; the others are remote.
    local_per_board: u32,
    /// Cores per device, without harvested ones.
    cores: u32,
    dram_channels: u32,
}

const fn wormhole(name: &'static str, kind: &'static str, number: u64, cores: u32) -> Board {
    Board {
        name,
        kind,
        number,
        arch: Arch::WormholeB0,
        boards: 1,
        chips_per_board: 1,
        local_per_board: 1,
        cores,
        dram_channels: 6,
    }
}

const fn blackhole(name: &'static str, kind: &'static str, number: u64, cores: u32) -> Board {
    Board { arch: Arch::Blackhole, dram_channels: 8, ..wormhole(name, kind, number, cores) }
}

const BOARDS: [Board; 8] = [
    wormhole("n150", "n150", 0x18, 72),
    Board { chips_per_board: 2, ..wormhole("n300", "n300", 0x14, 64) },
    Board { boards: 4, chips_per_board: 2, ..wormhole("t3k", "n300", 0x14, 64) },
    Board { dram_channels: 7, ..blackhole("p100a", "p100a", 0x43, 120) },
    blackhole("p150a", "p150a", 0x40, 120),
    Board { chips_per_board: 2, local_per_board: 2, ..blackhole("p300", "p300a", 0x45, 120) },
    Board { chips_per_board: 32, local_per_board: 32, ..wormhole("galaxy-wh", "galaxy-wormhole", 0x35, 80) },
    Board {
        chips_per_board: 32,
        local_per_board: 32,
        ..blackhole("galaxy-bh", "galaxy-blackhole", 0x47, 130)
    },
];

/// Size of the kernel config buffer, which is below the unreserved part of L1.
const KERNEL_CONFIG: u64 = 69 << 10;

/// Size of `L1_SMALL` on each core, in the demo.
const L1_SMALL: u64 = 32 << 10;

/// Size of the trace region in each bank, in the demo.
const TRACE_REGION: u64 = 16 << 20;

impl Board {
    fn capacity(&self) -> Capacity {
        board::capacity(self.arch, self.cores, self.dram_channels, CapacityOrigin::Simulated)
    }

    /// The serial number of the board, or of the tray of a Galaxy, that has a device.
    fn serial(&self, chip: u32) -> u64 {
        0x100_0000 << 32 | self.number << 36 | u64::from(1 + chip / self.chips_per_board.min(8))
    }

    /// Columns and rows of the cores that programs can use: a Wormhole has eight columns, a Blackhole ten rows.
    fn grid(&self) -> (u8, u8) {
        let cores = (self.cores - self.arch.memory().dispatch_cores) as u8;
        match self.arch {
            Arch::WormholeB0 => (8, cores / 8),
            Arch::Blackhole => (cores / 10, 10),
        }
    }
}

/// The PCI address of a device by its node; one domain has 255 of them.
fn pci_address(node: u32) -> PciAddress {
    PciAddress { domain: node / 255, bus: (1 + node % 255) as u8, slot: 0 }
}

/// Several boards of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    board: &'static Board,
    count: u32,
}

impl Machine {
    /// The most devices.
    const MAX_CHIPS: u32 = 1024;

    pub(crate) fn chips(&self) -> Vec<Chip> {
        let board = self.board;
        let boards = board.boards * self.count;
        // Runtimes number local devices first, then remote ones.
        let numbers = |local: bool| {
            (0..boards).flat_map(move |b| {
                let range = if local {
                    0..board.local_per_board
                } else {
                    board.local_per_board..board.chips_per_board
                };
                range.map(move |c| (b * board.chips_per_board + c, local))
            })
        };
        numbers(true)
            .chain(numbers(false))
            .enumerate()
            .map(|(index, (serial, local))| Chip {
                arch: Some(board.arch),
                board: Some(board.kind.to_owned()),
                remote: !local,
                capacity: Some(board.capacity()),
                pci: local.then(|| pci_address(index as u32)),
                node: local.then_some(index as u32),
                serial: local.then(|| board.serial(serial)),
                firmware: if local { Box::new(sensors::firmware(board.arch)) } else { Box::default() },
                ..Chip::new(ChipId::Unique(0x51_0000_0000 + u64::from(serial)), index as u32)
            })
            .collect()
    }
}

impl Machine {
    /// The devices as a process reports them.
    pub(crate) fn client_chips(&self) -> Vec<ttmem_client::Chip<'static>> {
        let capacity = self.board.capacity();
        let memory = self.board.arch.memory();
        let chips = self.chips().into_iter();
        chips
            .map(|chip| {
                let unique_id = match chip.id {
                    ChipId::Unique(id) => id,
                    ChipId::Pci(_) | ChipId::Ordinal(_) => 0,
                };
                ttmem_client::Chip::default()
                    .unique_id(unique_id)
                    .index(chip.index)
                    .arch(self.board.arch)
                    .remote(chip.remote)
                    .board(self.board.kind)
                    .dram_bytes(capacity.dram_bytes)
                    .dram_channels(capacity.dram_channels)
                    .dram_bytes_per_channel(capacity.dram_bytes_per_channel)
                    .cores(capacity.cores)
                    .l1_bytes_per_core(capacity.l1_bytes_per_core)
                    .dram_allocatable(capacity.dram_allocatable_bytes.unwrap_or(0))
                    .l1_allocatable(capacity.l1_allocatable_bytes.unwrap_or(0))
                    .kernel_config((memory.l1_reserved_bytes - KERNEL_CONFIG) as u32)
                    .unreserved(memory.l1_reserved_bytes as u32)
                    .grid(self.board.grid())
            })
            .collect()
    }

    /// The architecture of these devices.
    pub(crate) fn arch(&self) -> Arch {
        self.board.arch
    }

    /// The banks of an allocator over these devices, in the demo.
    pub(crate) fn banks(&self) -> Vec<ttmem_client::Banks> {
        let dispatch = self.board.arch.memory().dispatch_cores;
        self.banks_with(self.board.cores - dispatch, TRACE_REGION, L1_SMALL)
    }

    /// The banks of an allocator over these devices that `ttnn.open_device` opens without parameters. Where a device is reached through
    /// another one, ethernet cores dispatch.
    pub(crate) fn default_banks(&self) -> Vec<ttmem_client::Banks> {
        let has_remote = self.board.local_per_board < self.board.chips_per_board;
        let dispatch = if has_remote { 0 } else { self.board.arch.memory().dispatch_cores };
        self.banks_with(self.board.cores - dispatch, 0, 0)
    }

    fn banks_with(&self, l1: u32, trace: u64, l1_small: u64) -> Vec<ttmem_client::Banks> {
        use ttmem_client::{Banks, Space};
        let memory = self.board.arch.memory();
        let dram = (u64::from(self.board.dram_channels) * memory.dram_banks_per_channel) as u16;
        let bank = memory.dram_visible_bytes_per_channel / memory.dram_banks_per_channel
            - memory.dram_reserved_bytes_per_bank;
        let l1 = l1 as u16;
        let top = memory.l1_bytes_per_core - l1_small;
        vec![
            Banks::new(Space::Dram, dram, memory.dram_reserved_bytes_per_bank, bank - trace),
            // The trace region is the top of each bank.
            Banks::new(Space::Trace, dram, memory.dram_reserved_bytes_per_bank + bank - trace, trace),
            Banks::new(Space::L1, l1, memory.l1_reserved_bytes, top - memory.l1_reserved_bytes),
            Banks::new(Space::L1Small, l1, top, l1_small),
        ]
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str(self.board.name),
            n => write!(f, "{}x{n}", self.board.name),
        }
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, count) = match text.rsplit_once('x') {
            Some((name, count)) if count.bytes().all(|b| b.is_ascii_digit()) && !count.is_empty() => {
                (name, count.parse().map_err(|_| format!("{count} boards are too many"))?)
            }
            _ => (text, 1u32),
        };
        let board = BOARDS.iter().find(|board| board.name == name).ok_or_else(|| {
            let names: Vec<_> = BOARDS.iter().map(|board| board.name).collect();
            format!("unknown board {name:?}; known boards are {}", names.join(", "))
        })?;
        let chips = u64::from(board.boards) * u64::from(board.chips_per_board) * u64::from(count);
        if chips == 0 || chips > u64::from(Self::MAX_CHIPS) {
            return Err(format!(
                "{chips} devices; at most {} can be simulated, and at least 1",
                Self::MAX_CHIPS
            ));
        }
        Ok(Self { board, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_have_their_capacities() {
        let expected = [
            // chips, local, cores, L1, DRAM, allocatable L1, allocatable DRAM
            ("n150", 1, 1, 72, 107_937_792, 12 << 30, 89_182_208, 12_872_318_208),
            ("n300", 2, 1, 64, 95_944_704, 12 << 30, 78_034_432, 12_872_318_208),
            ("t3k", 8, 4, 64, 95_944_704, 12 << 30, 78_034_432, 12_872_318_208),
            ("p100a", 1, 1, 120, 188_743_680, 28 << 30, 160_737_280, 29_939_989_632),
            ("p150a", 1, 1, 120, 188_743_680, 32 << 30, 160_737_280, 34_217_131_008),
            ("p300", 2, 2, 120, 188_743_680, 32 << 30, 160_737_280, 34_217_131_008),
            ("galaxy-wh", 32, 32, 80, 119_930_880, 12 << 30, 100_329_984, 12_872_318_208),
            ("galaxy-bh", 32, 32, 130, 204_472_320, 32 << 30, 175_349_760, 34_217_131_008u64),
        ];
        for (name, chips, local, cores, l1, dram, l1_free, dram_free) in expected {
            let all = name.parse::<Machine>().unwrap().chips();
            assert_eq!(all.len(), chips, "{name}");
            assert_eq!(all.iter().filter(|chip| !chip.remote).count(), local, "{name}");
            for chip in all {
                let capacity = chip.capacity.unwrap();
                assert_eq!(
                    (capacity.cores, capacity.l1_bytes, capacity.dram_bytes),
                    (cores, l1, dram),
                    "{name}"
                );
                assert_eq!(capacity.l1_allocatable_bytes, Some(l1_free), "{name}");
                assert_eq!(capacity.dram_allocatable_bytes, Some(dram_free), "{name}");
            }
        }
    }

    #[test]
    fn grids_contain_all_cores() {
        for board in &BOARDS {
            let machine: Machine = board.name.parse().unwrap();
            let l1 = machine.banks().into_iter().find(|it| it.space == ttmem_client::Space::L1).unwrap();
            for chip in machine.client_chips() {
                let (columns, rows) = chip.grid;
                assert_eq!(u16::from(columns) * u16::from(rows), l1.banks, "{}", board.name);
                assert!(columns <= 16 && rows <= 16, "{}", board.name);
                assert!(u64::from(chip.unreserved) <= l1.base, "{}", board.name);
                assert_eq!(u64::from(chip.unreserved - chip.kernel_config), KERNEL_CONFIG, "{}", board.name);
            }
        }
    }

    #[test]
    fn local_devices_come_first_and_ids_are_unique() {
        let chips = "n300x4".parse::<Machine>().unwrap().chips();
        assert_eq!(chips.iter().map(|c| c.remote).collect::<Vec<_>>(), [[false; 4], [true; 4]].concat());
        assert_eq!(chips.iter().map(|c| c.index).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        let ids: std::collections::BTreeSet<_> = chips.iter().map(|c| c.id).collect();
        assert_eq!(ids.len(), 8);
    }

    #[test]
    fn only_local_devices_have_a_pci_address() {
        let chips = "n300x2".parse::<Machine>().unwrap().chips();
        let addresses: Vec<_> = chips.iter().map(|chip| chip.pci.map(|it| it.to_string())).collect();
        assert_eq!(addresses, [Some("0000:01:00.0".to_owned()), Some("0000:02:00.0".to_owned()), None, None]);
        assert_eq!(chips.iter().map(|it| it.node).collect::<Vec<_>>(), [Some(0), Some(1), None, None]);
        assert_eq!(chips[1].serial, Some(0x0100_0140_0000_0002));
        let most = "n150x1024".parse::<Machine>().unwrap().chips();
        let addresses: std::collections::BTreeSet<_> = most.iter().map(|it| it.pci).collect();
        assert_eq!(addresses.len(), 1024);
        let trays = "galaxy-bh".parse::<Machine>().unwrap().chips();
        let trays: std::collections::BTreeSet<_> = trays.iter().map(|it| it.serial).collect();
        assert_eq!(trays.len(), 4);
    }

    #[test]
    fn names_and_counts_are_checked() {
        assert_eq!("n150x3".parse::<Machine>().unwrap().to_string(), "n150x3");
        assert_eq!("t3kx1".parse::<Machine>().unwrap().to_string(), "t3k");
        for bad in ["", "x2", "n999", "n150x0", "n150x1025", "n150x99999999999", "galaxy-whx33", "n150x"] {
            assert!(bad.parse::<Machine>().is_err(), "{bad}");
        }
    }
}
