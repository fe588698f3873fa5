//! Boards: names, serial numbers, and chips.

use crate::Arch;

/// A kind of board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// Name that the driver uses.
    pub name: &'static str,
    /// Names that descriptors and older drivers use.
    pub aliases: &'static [&'static str],
    /// Codes in serial numbers.
    pub codes: &'static [u32],
    /// Each of its chips; `None` for boards that ttmem has no figures for.
    pub chip: Option<BoardChip>,
}

/// A chip of a board, after harvesting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardChip {
    /// Architecture.
    pub arch: Arch,
    /// Tensix cores.
    pub cores: u32,
    /// Tensix cores with firmware before 19.5.
    pub cores_before: u32,
    /// DRAM channels.
    pub dram_channels: u32,
    /// Ethernet cores.
    pub ethernet_cores: u32,
}

/// First firmware with which p150 cards have 120 cores instead of 140.
const FEWER_CORES: (u32, u32) = (19, 5);

impl BoardChip {
    /// A Wormhole chip, of which no ethernet core is harvested.
    const fn wormhole(cores: u32) -> Self {
        let arch = Arch::WormholeB0;
        Self { arch, cores, cores_before: cores, dram_channels: 6, ethernet_cores: 16 }
    }

    /// A Blackhole chip, of which two of the 14 ethernet cores are harvested.
    const fn blackhole(cores: u32) -> Self {
        let arch = Arch::Blackhole;
        Self { arch, cores, cores_before: cores, dram_channels: 8, ethernet_cores: 12 }
    }

    /// Returns the Tensix cores with this firmware; unknown firmware counts as new.
    pub fn cores_with(&self, firmware: Option<(u32, u32)>) -> u32 {
        if firmware.is_some_and(|version| version < FEWER_CORES) { self.cores_before } else { self.cores }
    }
}

/// All ethernet cores of a p100 are harvested.
const P100_CHIP: BoardChip = BoardChip { dram_channels: 7, ethernet_cores: 0, ..BoardChip::blackhole(120) };
const P150_CHIP: BoardChip = BoardChip { cores_before: 140, ..BoardChip::blackhole(120) };
const P300_CHIP: BoardChip = BoardChip::blackhole(120);

/// All boards.
pub const BOARDS: [Board; 15] = [
    Board { name: "e150", aliases: &[], codes: &[0x03], chip: None },
    Board { name: "e75", aliases: &[], codes: &[0x07], chip: None },
    Board { name: "e300", aliases: &[], codes: &[0x0a], chip: None },
    Board {
        name: "galaxy-wormhole",
        aliases: &["ubb", "galaxy"],
        codes: &[0x0b, 0x35],
        chip: Some(BoardChip::wormhole(80)),
    },
    Board { name: "n300", aliases: &[], codes: &[0x14], chip: Some(BoardChip::wormhole(64)) },
    Board { name: "n150", aliases: &[], codes: &[0x18], chip: Some(BoardChip::wormhole(72)) },
    Board { name: "p100", aliases: &[], codes: &[0x36], chip: Some(P100_CHIP) },
    Board { name: "p100a", aliases: &[], codes: &[0x43], chip: Some(P100_CHIP) },
    Board { name: "p150a", aliases: &["p150"], codes: &[0x40], chip: Some(P150_CHIP) },
    Board { name: "p150b", aliases: &[], codes: &[0x41], chip: Some(P150_CHIP) },
    Board { name: "p150c", aliases: &[], codes: &[0x42], chip: Some(P150_CHIP) },
    Board { name: "p300b", aliases: &[], codes: &[0x44], chip: Some(P300_CHIP) },
    Board { name: "p300a", aliases: &["p300"], codes: &[0x45], chip: Some(P300_CHIP) },
    Board { name: "p300c", aliases: &[], codes: &[0x46], chip: Some(P300_CHIP) },
    Board {
        name: "galaxy-blackhole",
        aliases: &["ubb_blackhole"],
        codes: &[0x47],
        chip: Some(BoardChip::blackhole(130)),
    },
];

impl Board {
    /// Returns the board with this name or alias.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        BOARDS.iter().find(|board| board.name == name || board.aliases.contains(&name))
    }

    /// Returns whether the board has two chips, of which the second may be reached through the first only.
    pub fn has_two_chips(&self) -> bool {
        matches!(self.name, "n300" | "p300a" | "p300b" | "p300c")
    }

    /// Returns the board with this 64-bit serial number.
    pub fn by_serial(serial: u64) -> Option<&'static Self> {
        let code = (serial >> 36) as u32 & 0xf_ffff;
        BOARDS.iter().find(|board| board.codes.contains(&code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_identify_boards() {
        let name = |serial| Board::by_serial(serial).map(|board| board.name);
        for (serial, board) in [
            (0x0100_0146_1183_20ae, "n300"),
            (0x0100_0186_1180_b479, "n150"),
            (0x0000_0400_0000_0001, "p150a"),
            (0x0000_0471_3183_1011, "galaxy-blackhole"),
        ] {
            assert_eq!(name(serial), Some(board));
        }
        assert_eq!(name(u64::MAX), None);
    }

    #[test]
    fn names_and_codes_are_unique() {
        for board in &BOARDS {
            for name in board.aliases.iter().chain([&board.name]) {
                assert_eq!(Board::by_name(name), Some(board));
            }
            for &code in board.codes {
                assert_eq!(Board::by_serial(u64::from(code) << 36), Some(board));
            }
        }
        assert_eq!(Board::by_name("n151"), None);
    }
}
