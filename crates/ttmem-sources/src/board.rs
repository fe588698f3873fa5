//! Boards, and the memory their chips have: what is known before anybody said anything.

use ttmem_core::machine::{Capacity, CapacityOrigin};
use ttmem_core::words::Arch;

/// The memory of one architecture, as tt-metal uses it with default settings (no Tracy, no trace region, `l1_small` 0,
/// one row or column of cores for dispatch).
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// L1 of a core.
    pub l1: u64,
    /// What firmware and the kernel-config ring take of it.
    pub l1_base: u64,
    /// What a DRAM channel has.
    pub channel: u64,
    /// What the runtime sees of it.
    pub seen: u64,
    /// The runtime's banks in a channel.
    pub banks: u64,
    /// What it reserves in each.
    pub dram_base: u64,
    /// Cores that dispatch takes.
    pub dispatch_cores: u32,
}

/// What chips of an architecture are like.
pub fn facts(arch: Arch) -> Facts {
    match arch {
        Arch::WormholeB0 => Facts {
            l1: 1_499_136,
            l1_base: 105_664,
            channel: 2 << 30,
            seen: 2 << 30,
            banks: 2,
            dram_base: 1_048_640,
            dispatch_cores: 8,
        },
        Arch::Blackhole => Facts {
            l1: 1_572_864,
            l1_base: 111_616,
            channel: 4 << 30,
            seen: 4_278_190_080,
            banks: 1,
            dram_base: 1_048_704,
            dispatch_cores: 10,
        },
    }
}

/// The memory of a chip with so many cores and channels left after harvesting.
pub fn capacity(arch: Arch, cores: u32, dram_channels: u32, origin: CapacityOrigin) -> Capacity {
    let facts = facts(arch);
    let channels = u64::from(dram_channels);
    let compute = u64::from(cores.saturating_sub(facts.dispatch_cores));
    Capacity {
        dram_bytes: channels * facts.channel,
        dram_channels,
        dram_bytes_per_channel: facts.seen,
        l1_bytes: u64::from(cores) * facts.l1,
        cores,
        l1_bytes_per_core: facts.l1,
        dram_allocatable_bytes: Some(channels * (facts.seen - facts.banks * facts.dram_base)),
        l1_allocatable_bytes: Some(compute * (facts.l1 - facts.l1_base)),
        origin,
    }
}

/// A version such as `19.5.0.0`, as far as it matters.
pub fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The firmware from which on p150 cards have 120 cores, whatever they had before.
const FEWER_CORES: (u32, u32) = (19, 5);

/// Architecture, cores and DRAM channels of each chip of a board, as the driver or a descriptor calls it.
fn chip_of(board: &str, firmware: Option<(u32, u32)>) -> Option<(Arch, u32, u32)> {
    let p150 = if firmware.is_some_and(|it| it < FEWER_CORES) { 140 } else { 120 };
    Some(match board {
        "n150" => (Arch::WormholeB0, 72, 6),
        "n300" => (Arch::WormholeB0, 64, 6),
        "galaxy-wormhole" | "ubb" | "galaxy" => (Arch::WormholeB0, 80, 6),
        "p100" | "p100a" => (Arch::Blackhole, 120, 7),
        "p150" | "p150a" | "p150b" | "p150c" => (Arch::Blackhole, p150, 8),
        "p300" | "p300a" | "p300b" | "p300c" => (Arch::Blackhole, 120, 8),
        "galaxy-blackhole" | "ubb_blackhole" => (Arch::Blackhole, 130, 8),
        _ => return None,
    })
}

/// What each chip of a board is assumed to have.
pub fn assumed(board: &str, firmware: Option<&str>) -> Option<Capacity> {
    let (arch, cores, channels) = chip_of(board, firmware.and_then(version))?;
    Some(capacity(arch, cores, channels, CapacityOrigin::Board))
}

/// The board that a serial number is of.
pub(crate) fn by_serial(serial: u64) -> Option<&'static str> {
    Some(match serial >> 36 & 0xf_ffff {
        0x03 => "e150",
        0x07 => "e75",
        0x0a => "e300",
        0x0b | 0x35 => "galaxy-wormhole",
        0x14 => "n300",
        0x18 => "n150",
        0x36 => "p100",
        0x40 => "p150a",
        0x41 => "p150b",
        0x42 => "p150c",
        0x43 => "p100a",
        0x44 => "p300b",
        0x45 => "p300a",
        0x46 => "p300c",
        0x47 => "galaxy-blackhole",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_has_what_its_harvested_chips_have() {
        let (n, g) = (None, 1u64 << 30);
        for (board, firmware, cores, l1, dram, l1_usable, dram_usable) in [
            ("n150", n, 72, 107_937_792, 12 * g, 89_182_208, 12_872_318_208),
            ("n300", n, 64, 95_944_704, 12 * g, 78_034_432, 12_872_318_208),
            ("galaxy-wormhole", n, 80, 119_930_880, 12 * g, 100_329_984, 12_872_318_208),
            ("p100", n, 120, 188_743_680, 28 * g, 160_737_280, 29_939_989_632),
            ("p100a", n, 120, 188_743_680, 28 * g, 160_737_280, 29_939_989_632),
            ("p150a", Some("19.5.0.0"), 120, 188_743_680, 32 * g, 160_737_280, 34_217_131_008),
            ("p150b", Some("19.10.1.0"), 120, 188_743_680, 32 * g, 160_737_280, 34_217_131_008),
            ("p150c", Some("20.0.0.0"), 120, 188_743_680, 32 * g, 160_737_280, 34_217_131_008),
            ("p150a", Some("19.4.2.0"), 140, 220_200_960, 32 * g, 189_962_240, 34_217_131_008),
            ("p150a", Some("18.5.0.0"), 140, 220_200_960, 32 * g, 189_962_240, 34_217_131_008),
            ("p150a", n, 120, 188_743_680, 32 * g, 160_737_280, 34_217_131_008),
            ("p300a", n, 120, 188_743_680, 32 * g, 160_737_280, 34_217_131_008),
            ("p300b", n, 120, 188_743_680, 32 * g, 160_737_280, 34_217_131_008),
            ("p300c", n, 120, 188_743_680, 32 * g, 160_737_280, 34_217_131_008),
            ("galaxy-blackhole", n, 130, 204_472_320, 32 * g, 175_349_760, 34_217_131_008),
        ] {
            let it = assumed(board, firmware).unwrap();
            assert_eq!((it.cores, it.l1_bytes, it.dram_bytes), (cores, l1, dram), "{board} {firmware:?}");
            assert_eq!(it.l1_allocatable_bytes, Some(l1_usable), "{board}");
            assert_eq!(it.dram_allocatable_bytes, Some(dram_usable), "{board}");
            assert_eq!(it.origin, CapacityOrigin::Board);
        }
        assert_eq!(assumed("e75", None), None, "what is not known is not assumed");
        // As it was asked for: 91.5 MiB, not 171.6.
        assert_eq!(ttmem_core::words::size(assumed("n300", None).unwrap().l1_bytes), "91.5 MiB");
    }

    #[test]
    fn serial_numbers_tell_boards() {
        for (serial, board) in [
            (0x0100_0146_1183_20ae, "n300"),
            (0x0100_0186_1180_b479, "n150"),
            (0x0000_0400_0000_0001, "p150a"),
            (0x0000_0471_3183_1011, "galaxy-blackhole"),
        ] {
            assert_eq!(by_serial(serial), Some(board));
        }
        assert_eq!(by_serial(u64::MAX), None);
    }
}
