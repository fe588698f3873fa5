//! The memory that a board's chips are assumed to have until a process or a cluster descriptor reports it.

use ttmem_core::machine::{Capacity, CapacityOrigin};
use ttmem_types::{Arch, Board};

/// The memory of a chip with this many cores and DRAM channels left after harvesting.
pub fn capacity(arch: Arch, cores: u32, dram_channels: u32, origin: CapacityOrigin) -> Capacity {
    let memory = arch.memory();
    let channels = u64::from(dram_channels);
    let compute = u64::from(cores.saturating_sub(memory.dispatch_cores));
    let visible = memory.dram_visible_bytes_per_channel;
    let reserved = memory.dram_banks_per_channel * memory.dram_reserved_bytes_per_bank;
    Capacity {
        dram_bytes: channels * memory.dram_bytes_per_channel,
        dram_channels,
        dram_bytes_per_channel: visible,
        l1_bytes: u64::from(cores) * memory.l1_bytes_per_core,
        cores,
        l1_bytes_per_core: memory.l1_bytes_per_core,
        dram_allocatable_bytes: Some(channels * (visible - reserved)),
        l1_allocatable_bytes: Some(compute * (memory.l1_bytes_per_core - memory.l1_reserved_bytes)),
        origin,
    }
}

/// Parses major and minor of a driver or firmware version such as `19.5.0.0`.
pub fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The memory that each chip of a board is assumed to have; `None` for an unknown board.
pub fn assumed_capacity(board: &str, firmware: Option<&str>) -> Option<Capacity> {
    let chip = Board::by_name(board)?.chip?;
    let cores = chip.cores_with(firmware.and_then(parse_version));
    Some(capacity(chip.arch, cores, chip.dram_channels, CapacityOrigin::Board))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_have_the_memory_of_harvested_chips() {
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
            let found = assumed_capacity(board, firmware).unwrap();
            let sizes = (found.cores, found.l1_bytes, found.dram_bytes);
            assert_eq!(sizes, (cores, l1, dram), "{board} {firmware:?}");
            assert_eq!(found.l1_allocatable_bytes, Some(l1_usable), "{board}");
            assert_eq!(found.dram_allocatable_bytes, Some(dram_usable), "{board}");
            assert_eq!(found.origin, CapacityOrigin::Board);
        }
        assert_eq!(assumed_capacity("e75", None), None, "nothing is assumed of unknown boards");
        // Harvested cores are not counted: 91.5 MiB, not 171.6.
        assert_eq!(ttmem_core::words::size(assumed_capacity("n300", None).unwrap().l1_bytes), "91.5 MiB");
    }
}
