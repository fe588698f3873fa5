//! Properties of arbitrary regions and arbitrary bytes.

use super::*;
use proptest::prelude::*;

fn any_levels(layout: Layout) -> impl Strategy<Value = Levels> {
    // Zero marks an empty slot, and would be rare among random values.
    let counter = || prop_oneof![Just(0), any::<u64>()];
    (counter(), counter(), counter(), counter(), counter(), counter()).prop_map(
        move |(dram, l1, l1_small, trace, cb, kernel)| {
            kept(layout, Levels { dram, l1, l1_small, trace, cb, kernel })
        },
    )
}

/// Returns a region as a reader may find it. No chip has the number that marks a free slot.
fn any_region() -> impl Strategy<Value = Region> {
    prop::sample::select(&Layout::ALL[..]).prop_flat_map(|layout| {
        let chip = (1..u32::MAX, any::<bool>(), any_levels(layout))
            .prop_map(|(chip_id, remote, held)| ChipSlot { chip_id, remote, held });
        let process = (1..=i32::MAX as u32, any_levels(layout), any::<u64>(), "[^\\pC]{0,16}");
        let processes = prop::collection::btree_map(0..PROCESS_SLOTS, process, 0..=PROCESS_SLOTS);
        let head =
            (any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>(), 1..=u32::MAX, 0..80_u32);
        (head, any_levels(layout), prop::collection::vec(chip, 0..=CHIP_SLOTS), processes).prop_map(
            move |(head, totals, chips, processes)| Region {
                active_processes: head.0,
                updated_ns: head.1,
                reference_count: head.2,
                board_serial: head.3,
                asic_id: head.4,
                device_id: head.5,
                totals,
                chips,
                broken_slots: head.6.min((PROCESS_SLOTS - processes.len()) as u32),
                processes: processes
                    .into_iter()
                    .map(|(slot, (pid, held, updated_ns, name))| ProcessSlot {
                        slot,
                        pid,
                        held,
                        updated_ns,
                        name,
                    })
                    .collect(),
                ..Region::new(layout)
            },
        )
    })
}

proptest! {
    #[test]
    fn any_region_is_parsed_as_built(region in any_region()) {
        prop_assert_eq!(parse(&build(region.layout, &region)), Ok(region));
    }

    #[test]
    fn any_words_anywhere_are_read_or_refused(
        layout in prop::sample::select(&Layout::ALL[..]),
        filled in any::<bool>(),
        device in 0..3_u32,
        words in prop::collection::vec((0..MAX_BYTES / 4, prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()]), 0..200),
    ) {
        let mut bytes = if filled { build(layout, &sample(layout)) } else { empty(layout) };
        for (at, word) in words {
            if let Some(place) = bytes.get_mut(at * 4..at * 4 + 4) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        put_u32(&mut bytes, 40, device);
        if let Ok(region) = parse(&bytes) {
            check(&region);
        }
    }

    #[test]
    fn any_bytes_of_the_right_length_are_read_or_refused(
        layout in prop::sample::select(&Layout::ALL[..]),
        piece in prop::collection::vec(any::<u8>(), 1..300),
    ) {
        let mut bytes: Vec<u8> = piece.iter().copied().cycle().take(layout.bytes()).collect();
        put_u32(&mut bytes, 0, layout.version());
        if layout == Layout::V4 {
            put_u32(&mut bytes, 8536, 0x5245_4459);
        }
        check(&parse(&bytes).unwrap());
    }

    #[test]
    fn any_file_name_is_parsed_or_refused(name in ".*", id in any::<u64>()) {
        let _ = parse_name(&name);
        let file = format!("{FILE_PREFIX}{name}{FILE_SUFFIX}");
        if let Some(read) = parse_name(&file) {
            prop_assert_eq!(file, format!("{FILE_PREFIX}{read}{FILE_SUFFIX}"));
        }
        prop_assert_eq!(parse_name(&format!("{FILE_PREFIX}{id}{FILE_SUFFIX}")), Some(id));
    }
}
