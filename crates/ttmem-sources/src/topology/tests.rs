//! Descriptors that are read; `errors` has those that are refused, `samples` the texts.

mod errors;
mod samples;

use self::samples::{EIGHT, LEAST, N150, N300_BARE, N300_FULL, OLDEST, P100, P150, galaxy, p300};
use super::yaml::parse_number;
use super::*;
use proptest::prelude::*;
use std::path::Path;

fn chips(text: &str) -> Vec<TopologyChip> {
    parse(text).unwrap_or_else(|error| panic!("{error} in\n{text}")).chips
}

fn error(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

/// A text with a piece of it replaced.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not in the text");
    text.replacen(from, to, 1)
}

#[test]
fn oldest_layout_is_read() {
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
        ethernet_cores: None,
    };
    let second = TopologyChip { logical: 1, node: None, remote: true, ..first.clone() };
    assert_eq!(chips, [first, second]);
}

#[test]
fn n300_is_read_with_and_without_addresses_and_ids() {
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
    let identity = |chips: &[TopologyChip]| -> Vec<_> {
        chips.iter().map(|c| (c.node, c.pci.clone(), c.unique_id, c.location)).collect()
    };
    assert_eq!(identity(&bare), [(Some(3), None, None, None), (None, None, None, None)]);
    let pci = Some("0000:41:00.0".to_owned());
    assert_eq!(
        identity(&full),
        [(Some(1), pci, Some(9_956_000_003), Some(0)), (None, None, Some(14_251_000_003), Some(1))]
    );
}

#[test]
fn n150_has_72_cores() {
    let chips = chips(N150);
    assert_eq!(chips.len(), 1);
    assert_eq!((chips[0].cores, chips[0].dram_channels, chips[0].remote), (72, 6, false));
    assert_eq!((chips[0].node, chips[0].board.as_deref()), (Some(0), Some("n150")));
    assert_eq!(chips[0].unique_id, chips[0].board_id);
}

#[test]
fn four_of_eight_chips_are_remote() {
    let chips = chips(EIGHT);
    let nodes: Vec<_> = chips.iter().map(|c| c.node).collect();
    assert_eq!(nodes, [Some(0), Some(1), Some(3), Some(2), None, None, None, None]);
    let boards: Vec<_> = chips.iter().filter_map(|c| c.board_id).collect();
    assert_eq!(boards, [100, 101, 102, 103, 100, 101, 102, 103]);
    assert!(chips.iter().all(|c| c.remote == c.node.is_none() && c.cores == 64 && c.dram_channels == 6));
}

#[test]
fn p100_has_seven_channels_and_an_id_of_64_bits() {
    let chips = chips(P100);
    assert_eq!((chips[0].arch, chips[0].cores, chips[0].dram_channels), (Arch::Blackhole, 120, 7));
    assert_eq!(chips[0].unique_id, Some(17_716_556_166_399_396_846));
    assert_eq!(chips[0].pci.as_deref(), Some("0000:61:00.0"));
}

#[test]
fn p150_has_the_cores_that_its_mask_leaves() {
    let chips = chips(P150);
    assert_eq!(chips.iter().map(|c| c.cores).collect::<Vec<_>>(), [120, 130]);
    assert_eq!(chips.iter().filter_map(|c| c.node).collect::<Vec<_>>(), [1, 0]);
    let addresses: Vec<_> = chips.iter().filter_map(|c| c.pci.as_deref()).collect();
    assert_eq!(addresses, ["0000:01:00.0", "0000:c1:00.0"], "in lower case");
    assert_eq!(chips[1].unique_id, Some(u64::MAX));
    assert!(chips.iter().all(|c| c.dram_channels == 8));
}

#[test]
fn p300_has_one_or_both_chips_on_pcie() {
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
fn galaxy_has_32_chips_on_four_boards() {
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

#[test]
fn optional_sections_may_be_absent_or_empty() {
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
        ethernet_cores: None,
    };
    assert_eq!(chips, [chip]);
    let empty = "boards:\nchip_unique_ids: ~\nasic_locations: null\nchip_pci_bdfs: {}\nchips:\n";
    assert_eq!(parse(&format!("{LEAST}{empty}")), parse(LEAST));
}

#[test]
fn jtag_numbers_are_not_nodes() {
    let chips = chips(&with(N300_FULL, "PCIe", "JTAG").replace("chip_pci_bdfs", "other"));
    assert_eq!(chips.iter().map(|c| (c.node, c.remote)).collect::<Vec<_>>(), [(None, false), (None, true)]);
}

#[test]
fn plain_list_of_chips_with_mmio_has_node_numbers() {
    let chips = chips(&p300("  - 1\n"));
    assert_eq!(chips.iter().map(|c| c.node).collect::<Vec<_>>(), [None, Some(1)]);
}

#[test]
fn numbers_may_be_hexadecimal_not_octal() {
    assert_eq!(chips(&with(P100, "mask: 4098", "mask: 0x1002"))[0].cores, 120);
    assert_eq!(
        error(&with(P100, "mask: 4098", "mask: 010")),
        "line 12: harvesting: chip 0: harvest_mask: \"010\" instead of a mask of 32 bits"
    );
    for text in ["", "0x", "-1", "+1", "1_000", "1.0", "1e3", "0b1", " 1", "18446744073709551616", "\u{661}"]
    {
        assert_eq!(parse_number(text), None, "{text:?}");
    }
    assert_eq!(parse_number("0"), Some(0));
    assert_eq!(parse_number("0xffffffffffffffff"), Some(u64::MAX));
}

#[test]
fn addresses_are_text_even_if_yaml_reads_numbers() {
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
        // As tools write that took them for numbers.
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
fn all_of_the_grid_may_be_harvested_and_no_more() {
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

/// Example files of tt-umd, each with its number of chips, cores and DRAM channels per chip, and remote chips.
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
        // What is assumed of boards without a descriptor is what descriptors of such boards have.
        for chip in chips.iter().filter(|c| c.ethernet_cores.is_some()) {
            let board = ttmem_types::Board::by_name(chip.board.as_deref().unwrap()).unwrap();
            assert_eq!(chip.ethernet_cores, board.chip.map(|it| it.ethernet_cores), "{name}");
        }
    }
}

#[test]
fn ethernet_cores_are_those_that_the_mask_leaves() {
    let left = |text: &str| chips(text)[0].ethernet_cores;
    assert_eq!(left(P100), Some(0), "all are harvested");
    assert_eq!(left(&with(P100, "mask: 16383", "mask: 288")), Some(12));
    assert_eq!(left(&with(P100, "mask: 16383", "mask: 0xffffffff")), Some(0), "further bits are ignored");
    assert_eq!(left(OLDEST), None, "files without that mask");
    let wormhole = "{arch: {0: wormhole_b0}, chips_with_mmio: [0], \
                    harvesting: {0: {harvest_mask: 0, eth_harvesting_mask: 3}}}";
    assert_eq!(left(wormhole), Some(14));
}

/// Pieces that edits insert, separated by `·`.
const EDITS: &str = "· ·\n·  ·- ·: ·? ·[·]·{·}·,·#·&a ·*a·!!int ·|\n·>·'·\"·\t·---\n·...\n·%·~·-1·0·18446744073709551616·\
0x·é·\u{feff}·\u{0}·<<: ·arch:\n·boards:\n·chips_with_mmio:\n·harvest_mask: 99\n";

/// Valid texts with random edits.
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

/// Checks that an accepted text is plausible, and that an error can be printed.
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
