use super::walk::number;
use super::*;
use proptest::prelude::*;
use std::path::Path;

/// The oldest layout: flow style, a single pair in a list, a comma too many, no masks but the cores'.
const OLDEST: &str = "\
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

/// An n300 without addresses or ids.
const N300_BARE: &str = "\
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

/// An n300 with everything that newer files have.
const N300_FULL: &str = "\
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

const N150: &str = "\
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

/// Four n300: four chips on PCIe, each with one behind it.
const EIGHT: &str = "\
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

const P100: &str = "\
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

/// Two p150, one with older firmware.
const P150: &str = "\
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

/// As little as there can be.
const LEAST: &str = "arch: {0: wormhole}\nchips_with_mmio:\nharvesting: {0: {harvest_mask: 0}}\n";

/// A p300: `mmio` says which of its chips are on PCIe.
fn p300(mmio: &str) -> String {
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

/// So many pieces of text.
fn pieces(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect()
}

/// 32 chips, the driver's numbers from the other end.
fn galaxy(arch: &str, board: &str, mask: u32) -> String {
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

fn chips(text: &str) -> Vec<TopologyChip> {
    parse(text).unwrap_or_else(|error| panic!("{error} in\n{text}")).chips
}

fn error(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

/// A valid text with a piece of it replaced.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not in the text");
    text.replacen(from, to, 1)
}

#[test]
fn the_oldest_layout_is_read() {
    let chips = chips(OLDEST);
    let first = TopologyChip {
        logical: 0,
        arch: Arch::WormholeB0,
        board: Some("n300".to_owned()),
        board_id: Some(72_058_994_491_000_001),
        unique_id: None,
        node: Some(0),
        pci: None,
        location: None,
        remote: false,
        cores: 64,
        dram_channels: 6,
    };
    let second = TopologyChip { logical: 1, node: None, remote: true, ..first.clone() };
    assert_eq!(chips, [first, second]);
}

#[test]
fn an_n300_is_read_with_and_without_addresses_and_ids() {
    let bare = chips(N300_BARE);
    let full = chips(N300_FULL);
    for chips in [&bare, &full] {
        assert_eq!(
            chips.iter().map(|c| (c.logical, c.remote, c.cores)).collect::<Vec<_>>(),
            [(0, false, 64), (1, true, 64)]
        );
        assert!(chips.iter().all(|c| c.arch == Arch::WormholeB0 && c.dram_channels == 6));
        assert!(chips.iter().all(|c| c.board.as_deref() == Some("n300")));
    }
    let told = |chips: &[TopologyChip]| -> Vec<_> {
        chips.iter().map(|c| (c.node, c.pci.clone(), c.unique_id, c.location)).collect()
    };
    assert_eq!(told(&bare), [(Some(3), None, None, None), (None, None, None, None)]);
    let pci = Some("0000:41:00.0".to_owned());
    assert_eq!(
        told(&full),
        [(Some(1), pci, Some(9_956_000_003), Some(0)), (None, None, Some(14_251_000_003), Some(1))]
    );
}

#[test]
fn an_n150_has_72_cores() {
    let chips = chips(N150);
    assert_eq!(chips.len(), 1);
    assert_eq!((chips[0].cores, chips[0].dram_channels, chips[0].remote), (72, 6, false));
    assert_eq!((chips[0].node, chips[0].board.as_deref()), (Some(0), Some("n150")));
    assert_eq!(chips[0].unique_id, chips[0].board_id);
}

#[test]
fn of_eight_chips_four_are_remote() {
    let chips = chips(EIGHT);
    let nodes: Vec<_> = chips.iter().map(|c| c.node).collect();
    assert_eq!(nodes, [Some(0), Some(1), Some(3), Some(2), None, None, None, None]);
    let boards: Vec<_> = chips.iter().filter_map(|c| c.board_id).collect();
    assert_eq!(boards, [100, 101, 102, 103, 100, 101, 102, 103]);
    assert!(chips.iter().all(|c| c.remote == c.node.is_none() && c.cores == 64 && c.dram_channels == 6));
}

#[test]
fn a_p100_has_lost_a_channel_and_its_id_needs_64_bits() {
    let chips = chips(P100);
    assert_eq!((chips[0].arch, chips[0].cores, chips[0].dram_channels), (Arch::Blackhole, 120, 7));
    assert_eq!(chips[0].unique_id, Some(17_716_556_166_399_396_846));
    assert_eq!(chips[0].pci.as_deref(), Some("0000:61:00.0"));
}

#[test]
fn a_p150_has_as_many_cores_as_its_firmware_left() {
    let chips = chips(P150);
    assert_eq!(chips.iter().map(|c| c.cores).collect::<Vec<_>>(), [120, 130]);
    assert_eq!(chips.iter().filter_map(|c| c.node).collect::<Vec<_>>(), [1, 0]);
    let addresses: Vec<_> = chips.iter().filter_map(|c| c.pci.as_deref()).collect();
    assert_eq!(addresses, ["0000:01:00.0", "0000:c1:00.0"], "in lower case");
    assert_eq!(chips[1].unique_id, Some(u64::MAX));
    assert!(chips.iter().all(|c| c.dram_channels == 8));
}

#[test]
fn a_p300_has_one_or_both_chips_on_pcie() {
    let both = chips(&p300("  - 0: 1\n  - 1: 0\n"));
    assert_eq!(
        both.iter().map(|c| (c.node, c.remote)).collect::<Vec<_>>(),
        [(Some(1), false), (Some(0), false)]
    );
    let first = chips(&p300("  - 0: 0\n"));
    assert_eq!(
        first.iter().map(|c| (c.node, c.remote)).collect::<Vec<_>>(),
        [(Some(0), false), (None, true)]
    );
    for chip in both.iter().chain(&first) {
        assert_eq!((chip.cores, chip.dram_channels, chip.board.as_deref()), (120, 8, Some("p300")));
    }
    assert_eq!(first.iter().map(|c| c.location).collect::<Vec<_>>(), [Some(1), Some(0)]);
}

#[test]
fn a_galaxy_has_32_chips_on_four_boards() {
    let wormhole = chips(&galaxy("wormhole_b0", "ubb", 0));
    let blackhole = chips(&galaxy("blackhole", "ubb_blackhole", 32));
    for (chips, cores, channels, board) in [(wormhole, 80, 6, "ubb"), (blackhole, 130, 8, "ubb_blackhole")] {
        assert_eq!(chips.len(), 32);
        for (n, chip) in (0..).zip(&chips) {
            assert_eq!((chip.logical, chip.node, chip.remote), (n, Some(31 - n), false));
            assert_eq!((chip.cores, chip.dram_channels), (cores, channels));
            assert_eq!(chip.board.as_deref(), Some(board));
            assert_eq!(chip.board_id, Some(u64::from(900 + n / 8)));
            assert_eq!(chip.pci, Some(format!("0000:{:02x}:00.0", n + 1)));
        }
    }
}

/// All of a chip that can be left out.
#[test]
fn what_is_not_said_is_not_known() {
    let chips = chips("{arch: {5: BLACKHOLE}, chips_with_mmio: [], harvesting: {5: {harvest_mask: 0}}}");
    let chip = TopologyChip {
        logical: 5,
        arch: Arch::Blackhole,
        board: None,
        board_id: None,
        unique_id: None,
        node: None,
        pci: None,
        location: None,
        remote: true,
        cores: 140,
        dram_channels: 8,
    };
    assert_eq!(chips, [chip]);
    let empty = "boards:\nchip_unique_ids: ~\nasic_locations: null\nchip_pci_bdfs: {}\nchips:\n";
    assert_eq!(parse(&format!("{LEAST}{empty}")), parse(LEAST));
}

#[test]
fn numbers_of_probes_are_not_the_drivers() {
    let chips = chips(&with(N300_FULL, "PCIe", "JTAG").replace("chip_pci_bdfs", "other"));
    assert_eq!(chips.iter().map(|c| (c.node, c.remote)).collect::<Vec<_>>(), [(None, false), (None, true)]);
}

#[test]
fn a_plain_list_of_chips_with_mmio_means_the_same_numbers() {
    let chips = chips(&p300("  - 1\n"));
    assert_eq!(chips.iter().map(|c| c.node).collect::<Vec<_>>(), [None, Some(1)]);
}

#[test]
fn numbers_may_be_hexadecimal_but_not_octal() {
    assert_eq!(chips(&with(P100, "mask: 4098", "mask: 0x1002"))[0].cores, 120);
    assert_eq!(
        error(&with(P100, "mask: 4098", "mask: 010")),
        "line 12: harvesting: chip 0: harvest_mask: \"010\" instead of a mask of 32 bits"
    );
    for text in ["", "0x", "-1", "+1", "1_000", "1.0", "1e3", "0b1", " 1", "18446744073709551616", "\u{661}"]
    {
        assert_eq!(number(text), None, "{text:?}");
    }
    assert_eq!(number("0"), Some(0));
    assert_eq!(number("0xffffffffffffffff"), Some(u64::MAX));
}

#[test]
fn addresses_are_text_whatever_they_look_like() {
    // To YAML 1.1 the first two are numbers to base 60, and the third a power.
    for (written, address) in [
        ("0000:01:00.0", Some("0000:01:00.0")),
        ("0000:41:00.0", Some("0000:41:00.0")),
        ("0000:1e:05.3", Some("0000:1e:05.3")),
        ("'0000:41:00.0'", Some("0000:41:00.0")),
        ("\"0001:AF:1F.7\"", Some("0001:af:1f.7")),
        ("10000:e1:00.0", Some("10000:e1:00.0")),
        ("41:00.0", Some("0000:41:00.0")),
        ("~", None),
        ("", None),
        // What tools that fell for it write.
        ("60.0", None),
        ("2460.0", None),
        ("2460", None),
        ("2.46e+03", None),
    ] {
        let text = with(P100, "0000:61:00.0", written);
        assert_eq!(chips(&text)[0].pci.as_deref(), address, "{written}");
    }
    for wrong in ["0000:41:20.0", "0000:41:00.8", "0000:141:00.0", "0000:41:00", "0:0:0:0.0", "-60.0", "x"] {
        let found = error(&with(P100, "0000:61:00.0", wrong));
        assert_eq!(found, format!("line 24: chip_pci_bdfs: chip 0: {wrong:?} instead of a PCI address"));
    }
}

#[test]
fn required_keys_are_required() {
    for key in ["arch", "chips_with_mmio", "harvesting"] {
        assert_eq!(error(&with(P100, &format!("{key}:"), "other:")), format!("no key {key}"));
    }
    assert_eq!(error(""), "no key arch");
    assert_eq!(error("# nothing\n"), "no key arch");
    assert_eq!(error("---\n"), "no key arch");
    assert_eq!(error("arch: {}\nchips_with_mmio: []\nharvesting: {}\n"), "no chips in arch");
    chips(&with(P100, "boards:", "other:"));
    chips(&with(P100, "chips:\n", "other:\n"));
}

#[test]
fn an_error_names_what_is_wrong_and_where() {
    let broken: [(&str, &str, &str, &str); 28] = [
        (
            P100,
            "0: blackhole",
            "0: grayskull",
            "line 2: arch: chip 0: \"grayskull\" instead of wormhole_b0 or blackhole",
        ),
        (P100, "0: blackhole", "0:", "line 2: arch: chip 0: nothing instead of wormhole_b0 or blackhole"),
        (P100, "0: blackhole", "-1: blackhole", "line 2: arch: \"-1\" instead of a chip's number"),
        (
            P100,
            "0: blackhole",
            "4294967296: blackhole",
            "line 2: arch: \"4294967296\" instead of a chip's number",
        ),
        (P100, "0: blackhole", "0: blackhole\n  0: blackhole", "line 3: arch: chip 0 for the second time"),
        (P100, "0: blackhole", "0: blackhole\n  1: blackhole", "line 3: arch: chip 1: no harvesting"),
        (P100, "\n  0: blackhole", " [blackhole]", "line 1: arch: a list instead of a map"),
        (P100, "  0: blackhole", "  ? [0]\n  : blackhole", "line 2: arch: a list instead of a key"),
        (
            P100,
            "17716556166399396846",
            "-5",
            "line 6: chip_unique_ids: chip 0: \"-5\" instead of a number of 64 bits",
        ),
        (
            P100,
            "  - 0: 0",
            "  - 0: -1",
            "line 8: chips_with_mmio: chip 0: \"-1\" instead of a number of 32 bits",
        ),
        (P100, "  - 0: 0", "  - 0: 0\n  - 0: 1", "line 9: chips_with_mmio: chip 0 for the second time"),
        (P100, "  - 0: 0", "  - 1: 0", "line 8: chips_with_mmio: chip 1 is not in arch"),
        (P100, "  - 0: 0", "  - [0]", "line 8: chips_with_mmio: a list instead of a map of chip and node"),
        (P100, "  - 0: 0", "  []", "line 24: chip_pci_bdfs: chip 0 is not in chips_with_mmio"),
        (
            P100,
            "mask: 4098",
            "mask: 4294967296",
            "line 12: harvesting: chip 0: harvest_mask: \"4294967296\" instead of a mask of 32 bits",
        ),
        (
            P100,
            "mask: 4098",
            "mask: [1]",
            "line 12: harvesting: chip 0: harvest_mask: a list instead of a mask of 32 bits",
        ),
        (P100, "harvest_mask: 4098", "mask: 4098", "line 10: harvesting: chip 0: no harvest_mask"),
        (
            P100,
            "harvest_mask: 4098",
            "harvest_mask: 1\n    harvest_mask: 1",
            "line 13: harvesting: chip 0: harvest_mask for the second time",
        ),
        (
            P100,
            "mask: 16\n",
            "mask: 256\n",
            "line 13: harvesting: chip 0: dram_harvesting_mask: 256 instead of a mask of 8 channels",
        ),
        (
            N150,
            "mask: 16",
            "mask: 1024",
            "line 8: harvesting: chip 0: harvest_mask: 1024 instead of a mask of 10 rows",
        ),
        (
            N150,
            "harvesting:\n",
            "harvesting:\n  1: {harvest_mask: 0}\n",
            "line 8: harvesting: chip 1 is not in arch",
        ),
        (N150, "chips: [0]", "chips: [0, 1]", "line 10: boards: chip 1 is not in arch"),
        (N150, "chips: [0]", "chips: [0, 0]", "line 10: boards: chips: chip 0 for the second time"),
        (EIGHT, "chips: [5, 1]", "chips: [5, 0]", "line 20: boards: chip 0 for the second time"),
        (
            N150,
            "board_type: n150",
            "board_type: \"\\e[2J\"",
            "line 10: boards: board_type: \"\\u{1b}[2J\" instead of a kind of board",
        ),
        (EIGHT, "  - 2: 3", "  - 2: 1", "line 7: chips_with_mmio: chip 2 has 1, as chip 1"),
        (P150, "C1", "01", "line 12: chip_pci_bdfs: chip 1 has 0000:01:00.0, as chip 0"),
        (
            P150,
            "18446744073709551615",
            "143238000000006",
            "line 3: chip_unique_ids: chip 1 has 143238000000006, as chip 0",
        ),
    ];
    for (text, from, to, expected) in broken {
        assert_eq!(error(&with(text, from, to)), expected);
    }
    assert_eq!(error(&format!("{N150}arch: {{}}\n")), "line 11: arch for the second time");
    assert_eq!(error("wormhole"), "line 1: descriptor: \"wormhole\" instead of a map");
    assert_eq!(error("- arch"), "line 1: descriptor: a list instead of a map");
    assert_eq!(error(&format!("{N150}---\na: b\n")), "line 11: a second document");
    let long = "x".repeat(1000);
    assert_eq!(
        error(&format!("arch: {{0: {long}}}")),
        format!("line 1: arch: chip 0: \"{}\"... instead of wormhole_b0 or blackhole", "x".repeat(40))
    );
}

#[test]
fn what_is_not_yaml_is_refused_with_its_line() {
    for text in
        ["arch: {0: wormhole", "arch:\n\t0: wormhole", "a: b: c", "\"", "[", "{", "%", "other: [}\n", "@"]
    {
        assert!(
            matches!(parse(text), Err(TopologyError::Yaml { line: 1..=2, .. })),
            "{text:?}: {:?}",
            parse(text)
        );
    }
}

#[test]
fn every_bit_of_the_grid_may_be_lost_but_none_beyond_it() {
    let wormhole = |mask: u32| parse(&with(N150, "mask: 16", &format!("mask: {mask}")));
    assert_eq!(wormhole(0x3ff).unwrap().chips[0].cores, 0);
    assert!(wormhole(0x400).is_err());
    assert!(wormhole(u32::MAX).is_err());
    let blackhole = |mask: u32| chips(&with(P100, "mask: 4098", &format!("mask: {mask}")))[0].cores;
    assert_eq!(blackhole(0x3fff), 0);
    assert_eq!(blackhole(0x1_c000), 140, "there are no Tensix cores in these columns");
    assert_eq!(blackhole(u32::MAX), 0);
    let channels = |mask: u32| parse(&with(P100, "mask: 16\n", &format!("mask: {mask}\n")));
    assert_eq!(channels(0xff).unwrap().chips[0].dram_channels, 0);
    assert!(channels(0x100).is_err());
}

#[test]
fn anchors_and_aliases_are_refused() {
    let bomb: String = ('b'..='i').zip('a'..).fold("a: &a [lol, lol]\n".to_owned(), |text, (name, last)| {
        let nine = vec![format!("*{last}"); 9].join(", ");
        text + &format!("{name}: &{name} [{nine}]\n")
    });
    let expected = "line 1: anchors and aliases are not read";
    assert_eq!(error(&bomb), expected);
    for text in ["&a arch: {}", "arch: &a {}", "other: &a [1]", "other: [&a 1]", "&a {}", "? &a b\n: c"] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert!(matches!(parse("arch: *a"), Err(TopologyError::Yaml { line: 1, .. })), "of nothing");
}

/// In all of these a reader that keeps, copies or recurses would grow with the text, or faster.
#[test]
fn huge_and_deep_texts_are_refused() {
    assert_eq!(error(&"#".repeat(MAX_TEXT + 1)), "descriptor of 4194305 bytes, more than 4194304");
    assert_eq!(error(&"#".repeat(MAX_TEXT)), "no key arch");
    for piece in ["[", "{", "- ", "? ", "[a: ", "{a: ", "a: [", "- [", "{? [", "!t ", "&a ", "*a, ", "--- "] {
        for text in [piece.repeat(100_000), format!("arch: [{}", piece.repeat(100_000))] {
            assert!(parse(&text).is_err(), "{piece}");
        }
    }
    let stairs = pieces(1000, |n| format!("{}a:\n", " ".repeat(n)));
    assert!(error(&stairs).starts_with("line "));
    assert!(error(&format!("{P100}deep: {}{}\n", "[".repeat(33), "]".repeat(33))).starts_with("line 25: "));
    chips(&format!("{P100}deep: {}{}\n", "[".repeat(31), "]".repeat(31)));
}

#[test]
fn the_number_of_chips_is_bounded() {
    let many = |count: usize| {
        let arch = pieces(count, |n| format!("  {n}: blackhole\n"));
        let masks = pieces(count, |n| format!("  {n}: {{harvest_mask: 0}}\n"));
        format!("arch:\n{arch}chips_with_mmio:\nharvesting:\n{masks}")
    };
    assert_eq!(chips(&many(MAX_CHIPS)).len(), MAX_CHIPS);
    assert_eq!(error(&many(MAX_CHIPS + 1)), "line 1026: arch: more than 1024 chips");
    let boards = pieces(MAX_CHIPS + 1, |n| format!("\n  - [chips: [{n}]]"));
    assert_eq!(error(&format!("boards:{boards}\n")), "line 1026: boards: more than 1024 chips");
    let listed = pieces(MAX_CHIPS + 1, |n| format!("{n},"));
    assert_eq!(
        error(&format!("boards: [[chips: [{listed}]]]")),
        "line 1: boards: chips: more than 1024 chips"
    );
}

/// Chips, cores and DRAM channels of each, and how many are remote, in files that tt-umd keeps as examples.
const EXAMPLES: [(&str, usize, u32, u32, usize); 14] = [
    ("2x2_n300_cluster_desc.yaml", 4, 64, 6, 2),
    ("6u_cluster_desc.yaml", 32, 80, 6, 0),
    ("blackhole_4xP150.yaml", 4, 120, 8, 0),
    ("blackhole_8xP150.yaml", 8, 130, 8, 0),
    ("blackhole_P100.yaml", 1, 120, 7, 0),
    ("blackhole_P150.yaml", 1, 120, 8, 0),
    ("blackhole_P300_both_mmio.yaml", 2, 120, 8, 0),
    ("blackhole_P300_first_mmio.yaml", 2, 120, 8, 1),
    ("blackhole_galaxy.yaml", 32, 130, 8, 0),
    ("t3k_cluster_desc.yaml", 8, 64, 6, 4),
    ("wormhole_N150_unique_ids.yaml", 1, 72, 6, 0),
    ("wormhole_N300.yaml", 2, 64, 6, 1),
    ("wormhole_N300_pci_bdf.yaml", 2, 64, 6, 1),
    ("wormhole_N300_with_remote_connections.yaml", 2, 64, 6, 1),
];

#[test]
fn real_descriptors_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/cluster_desc");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("no real descriptors to compare with");
        return;
    };
    for entry in entries {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        let chips = chips(&text);
        println!("{name}: {} chips", chips.len());
        let known = EXAMPLES.iter().find(|example| example.0 == name);
        let Some(&(_, count, cores, channels, remote)) = known else { continue };
        assert_eq!(chips.len(), count, "{name}");
        assert!(chips.iter().all(|c| c.cores == cores && c.dram_channels == channels), "{name}");
        assert_eq!(chips.iter().filter(|c| c.remote).count(), remote, "{name}");
        assert!(chips.iter().all(|c| c.node.is_none() == c.remote && c.board.is_some()), "{name}");
        let addresses = chips.iter().filter(|c| c.pci.is_some()).count();
        let expected = if text.contains("chip_pci_bdfs") { count - remote } else { 0 };
        assert_eq!(addresses, expected, "{name}");
    }
}

/// What edits put in.
const EDITS: &str = "· ·\n·  ·- ·: ·? ·[·]·{·}·,·#·&a ·*a·!!int ·|\n·>·'·\"·\t·---\n·...\n·%·~·-1·0·18446744073709551616·\
0x·é·\u{feff}·\u{0}·<<: ·arch:\n·boards:\n·chips_with_mmio:\n·harvest_mask: 99\n";

/// A valid text, and edits of it.
fn mutated() -> impl Strategy<Value = String> {
    let texts = [OLDEST, N300_BARE, N300_FULL, N150, EIGHT, P100, P150].map(str::to_owned).to_vec();
    let known: Vec<_> = EDITS.split('·').map(str::to_owned).collect();
    let piece = prop_oneof![proptest::sample::select(known), any::<String>()];
    let edits = proptest::collection::vec((any::<proptest::sample::Index>(), 0_usize..8, piece), 1..6);
    (proptest::sample::select(texts), edits).prop_map(|(text, edits)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, gone, piece) in edits {
            let from = at.index(text.len() + 1);
            let to = text.len().min(from + gone);
            text.splice(from..to, piece.chars());
        }
        text.into_iter().collect()
    })
}

/// Whatever was accepted makes sense.
fn check(text: &str) {
    match parse(text) {
        Ok(topology) => {
            assert!(!topology.chips.is_empty());
            assert!(topology.chips.is_sorted_by_key(|chip| chip.logical));
            assert!(topology.chips.iter().all(|chip| chip.cores <= 140 && chip.dram_channels <= 8));
            assert!(
                topology.chips.iter().all(|chip| !chip.remote || chip.node.is_none() && chip.pci.is_none())
            );
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.is_empty() && !shown.contains(char::is_control), "{shown:?}");
        }
    }
}

proptest! {
    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_yaml_never_panics(text in "[-a0:,? \n\\[\\]{}&*!|>'\"#%~]{0,64}") {
        check(&text);
    }

    #[test]
    fn mutations_of_descriptors_never_panic(text in mutated()) {
        check(&text);
    }
}
