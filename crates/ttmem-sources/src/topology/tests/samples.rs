//! Cluster descriptors in the layouts that tt-umd has written over time.

/// The oldest layout: flow style, a single pair in a list, trailing commas, and only the mask of cores.
pub(super) const OLDEST: &str = "\
arch: { 0: Wormhole, 1: Wormhole, }
chips: { 0: [0,0,0,0], 1: [1,0,0,0], }
ethernet_connections: [
  [{chip: 0, chan: 8}, {chip: 1, chan: 0}],
]
chips_with_mmio: [
  0: 0,
]
# bit 0 is the first row
harvesting: {
  0: {noc_translation: true, harvest_mask: 129},
  1: {noc_translation: true, harvest_mask: 6},
}
boards: [[{board_id: 72058994491000001}, {board_type: n300}, {chips: [0,1]}]]";

/// An n300 without PCI addresses or unique ids.
pub(super) const N300_BARE: &str = "\
arch:
  0: wormhole_b0
  1: wormhole_b0
chips:
  0:
    - 0
    - 0
    - 0
    - 0
  1:
    - 1
    - 0
    - 0
    - 0
ethernet_connections:
  -
    - chip: 0
      chan: 8
    - chip: 1
      chan: 0
ethernet_connections_to_remote_devices:
  -
    - chip: 1
      chan: 7
    - remote_chip_id: 14251000000
      chan: 7
chips_with_mmio:
  - 0: 3
harvesting:
  0:
    noc_translation: true
    harvest_mask: 33
    dram_harvesting_mask: 0
    eth_harvesting_mask: 0
  1:
    noc_translation: true
    harvest_mask: 768
    dram_harvesting_mask: 0
    eth_harvesting_mask: 0
boards:
  -
    - board_id: 72058990194000002
    - board_type: n300
    - chips:
        - 1
        - 0
";

/// An n300 with all sections of newer files.
pub(super) const N300_FULL: &str = "\
arch:
  0: wormhole_b0
  1: wormhole_b0
chips:
  0: [0, 0, 0, 0]
  1: [1, 0, 0, 0]
chip_unique_ids:
  1: 14251000003
  0: 9956000003
ethernet_connections:
  []
ethernet_connections_to_remote_devices:
  []
chips_with_mmio:
  - 0: 1
io_device_type: PCIe
harvesting:
  0:
    noc_translation: true
    harvest_mask: 10
    dram_harvesting_mask: 0
    l2cpu_harvesting_mask: 0
  1:
    noc_translation: true
    harvest_mask: 520
    dram_harvesting_mask: 0
    l2cpu_harvesting_mask: 0
chip_to_bus_id:
  0: \"0x0041\"
  1: \"0x0041\"
boards:
  -
    - board_id: 72058990194000003
    - board_type: n300
    - chips:
        - 1
        - 0
asic_locations:
  0: 0
  1: 1
chip_pci_bdfs:
  0: 0000:41:00.0";

pub(super) const N150: &str = "\
arch: {0: wormhole_b0}
chips: {0: [0, 0, 0, 0]}
chip_unique_ids: {0: 72059269368000004}
ethernet_connections: []
chips_with_mmio:
  - 0: 0
harvesting:
  0: {noc_translation: true, harvest_mask: 16, dram_harvesting_mask: 0}
boards:
  - [{board_id: 72059269368000004}, {board_type: n150}, {chips: [0]}]
";

/// Four n300: four chips on PCIe, each with a remote one.
pub(super) const EIGHT: &str = "\
arch: {0: wormhole_b0, 1: wormhole_b0, 2: wormhole_b0, 3: wormhole_b0,
       4: wormhole_b0, 5: wormhole_b0, 6: wormhole_b0, 7: wormhole_b0}
chips: {}
chips_with_mmio:
  - 0: 0
  - 1: 1
  - 2: 3
  - 3: 2
harvesting:
  0: {harvest_mask: 3}
  1: {harvest_mask: 5}
  2: {harvest_mask: 9}
  3: {harvest_mask: 17}
  4: {harvest_mask: 33}
  5: {harvest_mask: 65}
  6: {harvest_mask: 129}
  7: {harvest_mask: 257}
boards:
  - [board_id: 100, board_type: n300, chips: [4, 0]]
  - [board_id: 101, board_type: n300, chips: [5, 1]]
  - [board_id: 102, board_type: n300, chips: [6, 2]]
  - [board_id: 103, board_type: n300, chips: [7, 3]]
";

pub(super) const P100: &str = "\
arch:
  0: blackhole
chips:
  {}
chip_unique_ids:
  0: 17716556166399396846
chips_with_mmio:
  - 0: 0
harvesting:
  0:
    noc_translation: true
    harvest_mask: 4098
    dram_harvesting_mask: 16
    eth_harvesting_mask: 16383
boards:
  -
    - board_id: 4613626000005
    - board_type: p100
    - chips:
        - 0
asic_locations:
  0: 0
chip_pci_bdfs:
  0: 0000:61:00.0
";

/// Two p150, one of them with older firmware.
pub(super) const P150: &str = "\
arch: {0: blackhole, 1: Blackhole}
chips: {}
chip_unique_ids: {0: 143238000000006, 1: 18446744073709551615}
chips_with_mmio: [0: 1, 1: 0]
harvesting:
  0: {harvest_mask: 96, dram_harvesting_mask: 0, pcie_harvesting_mask: 2}
  1: {harvest_mask: 64, dram_harvesting_mask: 0, pcie_harvesting_mask: 2}
boards:
  - [{board_id: 4476187000006}, {board_type: p150}, {chips: [0]}]
  - [{board_id: 4476187000007}, {board_type: p150}, {chips: [1]}]
asic_locations: {0: 0, 1: 0}
chip_pci_bdfs: {0: 0000:01:00.0, 1: 0000:C1:00.0}
";

/// The smallest valid descriptor.
pub(super) const LEAST: &str = "arch: {0: wormhole}\nchips_with_mmio:\nharvesting: {0: {harvest_mask: 0}}\n";

/// A p300 with `mmio` as the list of its chips on PCIe.
pub(super) fn p300(mmio: &str) -> String {
    format!(
        "\
arch:
  0: blackhole
  1: blackhole
chips:
  {{}}
chips_with_mmio:
{mmio}harvesting:
  0: {{harvest_mask: 8208, dram_harvesting_mask: 0}}
  1: {{harvest_mask: 12, dram_harvesting_mask: 0}}
boards:
  - [{{board_id: 4746770000008}}, {{board_type: p300}}, {{chips: [1, 0]}}]
asic_locations:
  0: 1
  1: 0
"
    )
}

/// Joins `count` pieces of text.
pub(super) fn pieces(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect()
}

/// 32 chips, with node numbers in reverse order.
pub(super) fn galaxy(arch: &str, board: &str, mask: u32) -> String {
    [
        "arch:\n".to_owned(),
        pieces(32, |n| format!("  {n}: {arch}\n")),
        "chips:\n  {}\nchips_with_mmio:\n".to_owned(),
        pieces(32, |n| format!("  - {n}: {}\n", 31 - n)),
        "harvesting:\n".to_owned(),
        pieces(32, |n| format!("  {n}:\n    harvest_mask: {mask}\n")),
        "boards:\n".to_owned(),
        pieces(4, |tray| {
            let chips = pieces(8, |n| format!("        - {}\n", tray * 8 + n));
            let id = 900 + tray;
            format!("  -\n    - board_id: {id}\n    - board_type: {board}\n    - chips:\n{chips}")
        }),
        "chip_pci_bdfs:\n".to_owned(),
        pieces(32, |n| format!("  {n}: 0000:{:02x}:00.0\n", n + 1)),
    ]
    .concat()
}
