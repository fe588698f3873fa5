use super::*;
use std::collections::{BTreeSet, HashMap, HashSet};

fn all() -> impl Iterator<Item = Descriptor> {
    Board::ALL.into_iter().map(Descriptor::of)
}

#[test]
fn boards_have_their_known_cores_and_banks() {
    let known = [
        ("n150", 1, 72, 64, 12),
        ("n300", 2, 64, 64, 12),
        ("t3k", 8, 64, 64, 12),
        ("galaxy", 32, 80, 72, 12),
        ("p100", 1, 120, 110, 7),
        ("p150", 1, 120, 110, 8),
        ("p300", 2, 120, 110, 8),
        ("p150x8", 8, 120, 110, 8),
        ("bh-galaxy", 32, 130, 120, 8),
    ];
    for (board, facts) in Board::ALL.into_iter().zip(known) {
        let found = (board.name(), board.chips(), board.workers(), board.l1_banks(), board.dram_banks());
        assert_eq!(found, facts);
        assert_eq!(board.name().parse::<Board>().unwrap(), board);
        assert_eq!(Descriptor::of(board).chips.len(), board.chips());
    }
    assert!("n151".parse::<Board>().is_err());
}

#[test]
fn masks_switch_off_exactly_what_the_board_lacks() {
    for machine in all() {
        let (card, name) = (machine.board.card(), machine.board.name());
        for chip in &machine.chips {
            assert_eq!(chip.tensix_mask.count_ones(), card.harvested_lines, "{name}");
            assert_eq!(chip.tensix_mask >> lines(card.arch).0, 0, "{name}");
            assert_eq!(chip.dram_mask.count_ones(), card.harvested_dram, "{name}");
            assert_eq!(chip.ethernet_mask.count_ones(), card.harvested_ethernet, "{name}");
            assert_eq!(chip.ethernet_mask >> channels(card.arch), 0, "{name}");
            assert_eq!(chip.pcie_mask.count_ones(), u32::from(card.arch == Arch::Blackhole), "{name}");
        }
    }
}

#[test]
fn ids_of_chips_and_cards_are_unique() {
    let chips: Vec<u64> =
        all().flat_map(|machine| machine.chips.into_iter().map(|chip| chip.unique_id)).collect();
    let cards: Vec<u64> = all().flat_map(|machine| machine.card_ids()).collect();
    for ids in [chips, cards] {
        assert!(!ids.contains(&0));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
    for machine in all() {
        for id in machine.card_ids() {
            assert_eq!(id >> 36 & 0xf_ffff, machine.board.card().code);
        }
    }
}

#[test]
fn links_join_different_chips_on_separate_channels() {
    for machine in all() {
        let name = machine.board.name();
        let channels = channels(machine.board.arch()) - machine.board.card().harvested_ethernet;
        let mut used = HashSet::new();
        for link in &machine.topology.links {
            assert_ne!(link[0].chip, link[1].chip, "{name}");
            for end in link {
                assert!(end.chip < machine.chips.len(), "{name}: chip {}", end.chip);
                assert!(end.channel < channels, "{name}: channel {}", end.channel);
                assert!(used.insert((end.chip, end.channel)), "{name}: {end:?} twice");
            }
        }
    }
}

/// Linked chips of each chip, with the number of links.
fn neighbours(machine: &Descriptor) -> Vec<HashMap<usize, u32>> {
    let mut found = vec![HashMap::new(); machine.chips.len()];
    for [a, b] in &machine.topology.links {
        *found[a.chip].entry(b.chip).or_default() += 1;
        *found[b.chip].entry(a.chip).or_default() += 1;
    }
    found
}

#[test]
fn links_form_the_mesh() {
    for machine in all() {
        let name = machine.board.name();
        let found = neighbours(&machine);
        // Every chip is reached from the first.
        let mut reached = BTreeSet::from([0]);
        let mut todo = vec![0];
        while let Some(chip) = todo.pop() {
            todo.extend(found[chip].keys().filter(|&&next| reached.insert(next)));
        }
        assert_eq!(reached.len(), machine.chips.len(), "{name}");
        // A mesh of R x C has R (C - 1) + C (R - 1) pairs of neighbours; a torus also has those at opposite edges.
        let (rows, columns) = machine.board.mesh();
        let pairs = found.iter().map(HashMap::len).sum::<usize>() / 2;
        let around = match machine.board {
            Board::BhGalaxy => rows + columns,
            Board::P150x8 => rows,
            _ => 0,
        };
        assert_eq!(pairs, rows * (columns - 1) + columns * (rows - 1) + around, "{name}");
        let side_by_side = if machine.board == Board::Galaxy { 4 } else { 2 };
        assert!(found.iter().flat_map(HashMap::values).all(|&links| links == side_by_side), "{name}");
    }
}

#[test]
fn cards_have_all_chips_and_a_local_one() {
    for machine in all() {
        for card in 0..machine.card_ids().len() {
            let on_it: Vec<_> = machine.chips.iter().filter(|chip| chip.place.card == card).collect();
            assert_eq!(on_it.len(), machine.board.card().chips);
            assert!(on_it.iter().any(|chip| chip.place.local));
            let locations: HashSet<_> = on_it.iter().map(|chip| chip.place.location).collect();
            assert_eq!(locations.len(), on_it.len());
        }
        let local = machine.chips.iter().filter(|chip| chip.place.local);
        let buses: Vec<_> = local.map(|chip| chip.place.bus).collect();
        assert!(
            buses.is_sorted_by(|a, b| a < b),
            "{}: the driver numbers chips by bus",
            machine.board.name()
        );
    }
}

#[test]
fn file_of_a_small_machine() {
    let text = Descriptor::of(Board::N300).yaml();
    let expected = "\
# n300: a 1x2 mesh of chips that do not exist.
arch:
  0: wormhole_b0
  1: wormhole_b0
chips:
  0: [0, 0, 0, 0]
  1: [0, 1, 0, 0]
chip_unique_ids:
";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("\n  - [{chip: 0, chan: 8}, {chip: 1, chan: 0}]\n"), "{text}");
    assert!(text.contains("\nchips_with_mmio:\n  - 0: 0\nio_device_type: PCIe\n"), "{text}");
    assert!(text.contains("\n    - board_type: n300\n    - chips: [0, 1]\n"), "{text}");
}
