//! Descriptors that are refused, with their messages.

use super::samples::{EIGHT, N150, P100, P150, pieces};
use super::*;

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
fn error_has_line_path_and_reason() {
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
fn invalid_yaml_is_refused_with_its_line() {
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

/// Texts on which a reader that keeps, copies or recurses would use memory without bound.
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
fn number_of_chips_is_bounded() {
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
