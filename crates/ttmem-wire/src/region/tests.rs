use super::*;

mod arbitrary;

fn levels(from: u64) -> Levels {
    Levels { dram: from, l1: from + 1, l1_small: from + 2, trace: from + 3, cb: from + 4, kernel: from + 5 }
}

/// Returns the levels that a layout has fields for.
fn kept(layout: Layout, levels: Levels) -> Levels {
    Levels { kernel: if layout.has_kernels() { levels.kernel } else { 0 }, ..levels }
}

/// Returns a region of a board with two chips and three processes in sparse slots, one of them the last.
fn sample(layout: Layout) -> Region {
    let process = |slot, pid, from, name: &str| ProcessSlot {
        slot,
        pid,
        held: kept(layout, levels(from)),
        updated_ns: from + 9,
        name: name.to_owned(),
    };
    Region {
        active_processes: 2,
        updated_ns: 1_777_000_000_123_456_789,
        reference_count: 5,
        board_serial: 0x0100_0143_1160_5012,
        asic_id: 7_083_537_624_395_052_613,
        device_id: 3,
        totals: kept(layout, levels(1_000)),
        chips: vec![
            ChipSlot { chip_id: 3, remote: false, held: kept(layout, levels(2_000)) },
            ChipSlot { chip_id: 7, remote: true, held: kept(layout, levels(3_000)) },
        ],
        processes: vec![
            process(0, 4242, 4_000, "python"),
            process(9, 1, 5_000, ""),
            process(63, i32::MAX as u32, 6_000, "größe"),
        ],
        releasing_slots: u32::from(layout == Layout::V4),
        broken_slots: 2,
        ..Region::new(layout)
    }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, value.to_le_bytes());
}

fn put_u64s(bytes: &mut [u8], at: usize, values: &[u64]) {
    for (n, value) in values.iter().enumerate() {
        put(bytes, at + n * 8, value.to_le_bytes());
    }
}

/// Returns a region with only its version and, in version 4, its ready word.
fn empty(layout: Layout) -> Vec<u8> {
    let mut bytes = vec![0; if layout == Layout::Poc { 9280 } else { 8576 }];
    put_u32(&mut bytes, 0, layout.version());
    if layout >= Layout::V2 {
        for slot in 0..16 {
            put_u32(&mut bytes, 88 + slot * 48, 0xffff_ffff);
        }
    }
    if layout == Layout::V4 {
        put_u32(&mut bytes, 8536, 0x5245_4459);
    }
    // In a region of device 0, chip 0 would be listed.
    put_u32(&mut bytes, 40, 1);
    bytes
}

/// Checks what holds for every region that can be parsed.
fn check(region: &Region) {
    assert!(region.chips.len() <= CHIP_SLOTS && region.processes.len() <= PROCESS_SLOTS);
    let taken = region.processes.len() as u32 + region.releasing_slots + region.broken_slots;
    assert!(taken <= 64);
    assert_eq!(region.is_full(), taken == 64);
    assert!(region.processes.windows(2).all(|pair| pair[0].slot < pair[1].slot));
    for process in &region.processes {
        assert!(process.slot < 64 && (1..=i32::MAX as u32).contains(&process.pid));
        assert!(process.name.len() <= NAME_BYTES && !process.name.contains(char::is_control));
    }
    assert_eq!(parse(&build(region.layout, region)).as_ref(), Ok(region), "built and parsed again");
}

#[test]
fn every_layout_is_parsed_as_built() {
    for layout in Layout::ALL {
        let region = sample(layout);
        let bytes = build(layout, &region);
        assert_eq!(bytes.len(), layout.bytes());
        assert_eq!(parse(&bytes), Ok(region), "{layout:?}");
        let empty = Region { device_id: 1, ..Region::new(layout) };
        assert_eq!(parse(&build(layout, &empty)), Ok(empty), "{layout:?}");
    }
}

#[test]
fn region_can_be_built_in_each_layout() {
    for from in Layout::ALL {
        for to in Layout::ALL {
            let mut expected = Region { layout: to, ..sample(from) };
            if !to.has_kernels() {
                let chips = expected.chips.iter_mut().map(|chip| &mut chip.held);
                let held = expected.processes.iter_mut().map(|process| &mut process.held).chain(chips);
                held.chain([&mut expected.totals]).for_each(|levels| levels.kernel = 0);
            }
            if to != Layout::V4 {
                expected.releasing_slots = 0;
            }
            assert_eq!(parse(&build(to, &sample(from))), Ok(expected), "{from:?} as {to:?}");
        }
    }
}

#[test]
fn what_has_no_field_is_left_out() {
    let mut region = sample(Layout::V3);
    region.chips = (1..=20).map(|chip_id| ChipSlot { chip_id, ..region.chips[0] }).collect();
    region.processes[0].slot = 64;
    region.processes[1].name = "ä".repeat(40);
    region.broken_slots = u32::MAX;
    let read = parse(&build(Layout::V3, &region)).unwrap();
    assert_eq!(read.chips, region.chips[..16]);
    assert_eq!(read.processes.len(), 2);
    assert_eq!(read.processes[0].name, "ä".repeat(32));
    assert_eq!(read.broken_slots, 62);
    check(&read);
}

/// Literal offsets of tt-metal's structs, independent of the structs here.
#[test]
fn fields_have_the_offsets_of_tt_metal() {
    for layout in Layout::ALL {
        let poc = layout == Layout::Poc;
        let (chips, chip_bytes, processes, process_bytes) =
            if poc { (96, 56, 992, 128) } else { (88, 48, 856, 120) };
        let (updated, name) = if poc { (56, 64) } else { (48, 56) };
        let mut bytes = empty(layout);
        put_u32(&mut bytes, 4, 11);
        put_u64s(&mut bytes, 8, &[12]);
        put_u32(&mut bytes, 16, 13);
        put_u32(&mut bytes, 20, 0xdead_beef);
        put_u64s(&mut bytes, 24, &[14, 15]);
        put_u32(&mut bytes, 40, 16);
        put_u32(&mut bytes, 44, 0xdead_beef);
        put_u64s(&mut bytes, 48, &[21, 22, 23, 24, 25]);
        let slots = [(0, 31, 0, 100), (15, 32, 1, 200)];
        for (slot, chip_id, remote, from) in slots {
            let at = chips + slot * chip_bytes;
            put_u32(&mut bytes, at, chip_id);
            put_u32(&mut bytes, at + 4, remote);
            put_u64s(&mut bytes, at + 8, &[from, from + 1, from + 2, from + 3, from + 4]);
            if poc {
                put_u64s(&mut bytes, at + 48, &[from + 5]);
            }
        }
        let owners = [(0, 41, 300, "first"), (63, 42, 400, "last")];
        for (slot, pid, from, text) in owners {
            let at = processes + slot * process_bytes;
            put_u32(&mut bytes, at, pid);
            put_u32(&mut bytes, at + 4, 0xdead_beef);
            put_u64s(&mut bytes, at + 8, &[from, from + 1, from + 2, from + 3, from + 4]);
            put_u64s(&mut bytes, at + updated, &[from + 9]);
            bytes[at + name..at + name + text.len()].copy_from_slice(text.as_bytes());
        }
        if poc {
            put_u64s(&mut bytes, 88, &[26]);
            put_u64s(&mut bytes, 992 + 48, &[305]);
            put_u64s(&mut bytes, 992 + 63 * 128 + 48, &[405]);
            bytes[9184..].fill(0xff);
        }
        let expected = Region {
            active_processes: 11,
            updated_ns: 12,
            reference_count: 13,
            board_serial: 14,
            asic_id: 15,
            device_id: 16,
            totals: kept(layout, levels(21)),
            chips: slots
                .map(|(_, chip_id, remote, from)| ChipSlot {
                    chip_id,
                    remote: remote == 1,
                    held: kept(layout, levels(from)),
                })
                .to_vec(),
            processes: owners
                .map(|(slot, pid, from, text)| ProcessSlot {
                    slot,
                    pid,
                    held: kept(layout, levels(from)),
                    updated_ns: from + 9,
                    name: text.to_owned(),
                })
                .to_vec(),
            ..Region::new(layout)
        };
        assert_eq!(parse(&bytes), Ok(expected), "{layout:?}");
    }
}

#[test]
fn layout_is_a_size_and_a_version() {
    for bytes in [0, 1, 3, 4, 8575, 8576, 8577, 9279, 9280, 9281, 12_288] {
        for version in [0, 1, 2, 3, 4, 5, 99, u32::MAX] {
            let mut file = vec![0; bytes];
            if bytes > 0 {
                let word = version.to_le_bytes();
                let some = bytes.min(4);
                file[..some].copy_from_slice(&word[..some]);
            }
            let layout = match (bytes, version) {
                (9280, 1) => Ok(Layout::Poc),
                (8576, 1) => Ok(Layout::V1),
                (8576, 2) => Ok(Layout::V2),
                (8576, 3) => Ok(Layout::V3),
                // A version 4 that is not initialised.
                (0, _) | (8576 | 9280, 0) | (8576, 4) => Err(RegionError::BeingMade),
                // Too short for a version word.
                (1 | 3, _) => Err(RegionError::UnknownLayout { bytes, version: 0 }),
                _ => Err(RegionError::UnknownLayout { bytes, version }),
            };
            assert_eq!(parse(&file).map(|region| region.layout), layout, "{bytes} bytes, version {version}");
        }
    }
    for layout in Layout::ALL {
        assert_eq!(Layout::of(layout.bytes(), layout.version()), Some(layout));
        assert!(layout.bytes() <= MAX_BYTES);
    }
}

#[test]
fn version_4_is_read_when_ready() {
    let bytes = build(Layout::V4, &sample(Layout::V4));
    for (word, result) in [
        (0, Err(RegionError::BeingMade)),
        (1, Err(RegionError::BeingMade)),
        (0x5245_4459, Ok(sample(Layout::V4))),
        (2, Err(RegionError::Readiness(2))),
        (0x5944_4552, Err(RegionError::Readiness(0x5944_4552))),
    ] {
        let mut bytes = bytes.clone();
        put_u32(&mut bytes, 8536, word);
        assert_eq!(parse(&bytes), result, "{word:#x}");
    }
}

/// Defect 51: version 3 has zero where version 4 has its ready word.
#[test]
fn version_is_checked_before_the_ready_word() {
    for layout in [Layout::V1, Layout::V2, Layout::V3] {
        let mut bytes = build(layout, &sample(layout));
        assert_eq!(bytes[8536..8540], [0; 4]);
        for word in [0, 1, 0x5245_4459, 77] {
            put_u32(&mut bytes, 8536, word);
            assert_eq!(parse(&bytes), Ok(sample(layout)), "{layout:?} with {word:#x}");
        }
    }
}

/// Defect 44: slots are sparse, so the number of processes is no bound.
#[test]
fn all_slots_are_read_for_any_count() {
    for layout in Layout::ALL {
        for active_processes in [0, 1, 64, u32::MAX] {
            let region = Region { active_processes, ..sample(layout) };
            assert_eq!(parse(&build(layout, &region)), Ok(region), "{layout:?}");
        }
    }
}

#[test]
fn full_region_is_recognised() {
    for layout in Layout::ALL {
        let mut region = Region { broken_slots: 0, releasing_slots: 0, ..sample(layout) };
        let process = region.processes[0].clone();
        region.processes =
            (0..64).map(|slot| ProcessSlot { slot, pid: 100 + slot as u32, ..process.clone() }).collect();
        region.chips = (1..=16).map(|chip_id| ChipSlot { chip_id, ..region.chips[0] }).collect();
        let read = parse(&build(layout, &region)).unwrap();
        assert_eq!(read, region, "{layout:?}");
        assert!(read.is_full());
        region.processes.remove(17);
        assert!(!parse(&build(layout, &region)).unwrap().is_full());
        // An invalid slot cannot be used either.
        region.broken_slots = 1;
        assert!(parse(&build(layout, &region)).unwrap().is_full());
    }
}

#[test]
fn invalid_pids_are_counted_but_not_listed() {
    for layout in Layout::ALL {
        let at = if layout == Layout::Poc { 992 } else { 856 };
        for (pid, listed, releasing, broken) in [
            (0, 0, 0, 0),
            (1, 1, 0, 0),
            (i32::MAX, 1, 0, 0),
            (-1, 0, u32::from(layout == Layout::V4), u32::from(layout != Layout::V4)),
            (-2, 0, 0, 1),
            (i32::MIN, 0, 0, 1),
        ] {
            let mut bytes = empty(layout);
            put(&mut bytes, at, pid.to_le_bytes());
            let region = parse(&bytes).unwrap();
            let found = (region.processes.len(), region.releasing_slots, region.broken_slots);
            assert_eq!(found, (listed, releasing, broken), "{layout:?}, pid {pid}");
            check(&region);
        }
    }
}

/// Defect 46: before there was a mark for free slots, a slot of chip 0 could not be distinguished from one.
#[test]
fn chip_0_is_found_where_zero_means_free() {
    let ids = |bytes: &[u8]| -> Vec<u32> {
        let region = parse(bytes).unwrap();
        check(&region);
        region.chips.iter().map(|chip| chip.chip_id).collect()
    };
    for layout in [Layout::Poc, Layout::V1] {
        let (chips, step) = if layout == Layout::Poc { (96, 56) } else { (88, 48) };
        let mut bytes = empty(layout);
        assert_eq!(ids(&bytes), [], "another device, and no counts");
        put_u32(&mut bytes, 40, 0);
        assert_eq!(ids(&bytes), [0], "its own chip, without counts");
        put_u32(&mut bytes, chips, 5);
        assert_eq!(ids(&bytes), [5, 0], "a second chip has its slot, so it has the next one");
        put_u32(&mut bytes, 40, 5);
        assert_eq!(ids(&bytes), [5], "now it is device 5");
        for field in (4..step).step_by(4) {
            let mut bytes = bytes.clone();
            put_u32(&mut bytes, chips + 3 * step + field, 1);
            assert_eq!(ids(&bytes), [5, 0], "a count at {field}");
        }
        put_u32(&mut bytes, chips + step, u32::MAX);
        assert_eq!(ids(&bytes), [5, u32::MAX], "no mark yet");
    }
    for layout in [Layout::V3, Layout::V4] {
        let mut bytes = empty(layout);
        assert_eq!(ids(&bytes), []);
        put_u64s(&mut bytes, 88 + 8, &[1, 2, 3]);
        assert_eq!(ids(&bytes), [], "counts of a free slot are ignored");
        put_u32(&mut bytes, 88 + 48, 0);
        assert_eq!(ids(&bytes), [0], "chip 0, with any counts and in any region");
        put_u32(&mut bytes, 40, 0);
        assert_eq!(ids(&bytes), [0]);
    }
    // Early files of version 2 have no mark.
    let mut bytes = empty(Layout::V2);
    assert_eq!(ids(&bytes), []);
    put_u32(&mut bytes, 40, 0);
    assert_eq!(ids(&bytes), []);
    put_u32(&mut bytes, 88, 0);
    assert_eq!(ids(&bytes), [0]);
    bytes[88..856].fill(0);
    assert_eq!(ids(&bytes), [0]);
    put_u32(&mut bytes, 40, 2);
    put_u32(&mut bytes, 88, 2);
    assert_eq!(ids(&bytes), [2]);
}

#[test]
fn largest_levels_are_kept() {
    for layout in Layout::ALL {
        let most = kept(
            layout,
            Levels {
                dram: u64::MAX,
                l1: u64::MAX,
                l1_small: u64::MAX,
                trace: u64::MAX,
                cb: u64::MAX,
                kernel: u64::MAX,
            },
        );
        let mut region = Region { totals: most, updated_ns: u64::MAX, ..sample(layout) };
        region.chips.iter_mut().for_each(|chip| chip.held = most);
        region.processes.iter_mut().for_each(|process| process.held = most);
        assert_eq!(parse(&build(layout, &region)), Ok(region));
    }
}

#[test]
fn names_are_safe_to_display() {
    let read = |field: &[u8]| {
        let mut bytes = empty(Layout::V3);
        put_u32(&mut bytes, 856, 1);
        bytes[856 + 56..856 + 120].fill(0);
        bytes[856 + 56..856 + 56 + field.len()].copy_from_slice(field);
        let region = parse(&bytes).unwrap();
        check(&region);
        region.processes[0].name.clone()
    };
    assert_eq!(read(b""), "");
    assert_eq!(read(b"python3.12"), "python3.12");
    assert_eq!(read(b"py\0thon"), "py");
    assert_eq!(read(&[b'x'; 64]), "x".repeat(64));
    assert_eq!(read(b"a\x1b[2Jb\nc\x7f"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    assert_eq!(read("\u{9b}2J".as_bytes()), "\u{fffd}2J", "a terminal may interpret this as an escape");
    assert_eq!(read(&[0xff; 64]), "\u{fffd}".repeat(21), "as many as fit");
    assert_eq!(read("größe\u{e4}".as_bytes()), "größeä");
    assert_eq!(read(&"größe".as_bytes()[..3]), "gr\u{fffd}", "cut within a character");
}

#[test]
fn other_file_names_are_refused() {
    for (name, id) in [
        ("tt_device_0_memory", Some(0)),
        ("tt_device_7083537624395052613_memory", Some(7_083_537_624_395_052_613)),
        ("tt_device_18446744073709551615_memory", Some(u64::MAX)),
        ("tt_device_18446744073709551616_memory", None),
        ("tt_device_99999999999999999999999_memory", None),
        ("tt_device__memory", None),
        ("tt_device_memory", None),
        ("tt_device_+1_memory", None),
        ("tt_device_-1_memory", None),
        ("tt_device_ 1_memory", None),
        ("tt_device_1 _memory", None),
        ("tt_device_01_memory", None),
        ("tt_device_00_memory", None),
        ("tt_device_0x1_memory", None),
        ("tt_device_1_memory ", None),
        ("tt_device_1_memory.old", None),
        ("tt_device_1_util", None),
        ("tt_device_1", None),
        ("tt_device_٣_memory", None),
        (" tt_device_1_memory", None),
        ("/tt_device_1_memory", None),
        ("sem.tt_device_1_memory", None),
        ("", None),
    ] {
        assert_eq!(parse_name(name), id, "{name:?}");
    }
}

#[test]
fn only_the_first_layouts_use_the_monotonic_clock() {
    let clocks = Layout::ALL.map(Layout::clock);
    assert_eq!(clocks, [Clock::Monotonic, Clock::Monotonic, Clock::Wall, Clock::Wall, Clock::Wall]);
    assert_eq!(Layout::ALL.map(Layout::name), ["poc", "v1", "v2", "v3", "v4"]);
}

#[test]
fn errors_name_what_was_found() {
    assert_eq!(RegionError::BeingMade.to_string(), "is still being made");
    assert_eq!(
        parse(&[7; 100]).unwrap_err().to_string(),
        "has 100 bytes and version 117901063, a layout this ttmem does not know"
    );
    assert_eq!(RegionError::Readiness(0xab).to_string(), "has an invalid ready word 0x000000ab");
}

#[test]
fn region_of_another_length_is_refused() {
    for layout in Layout::ALL {
        let mut bytes = build(layout, &sample(layout));
        bytes.resize(2 * MAX_BYTES, 0xa5);
        for len in 0..bytes.len() {
            let read = parse(&bytes[..len]).map(|region| region.layout);
            match Layout::of(len, layout.version()) {
                // Only the size distinguishes the first layout from the second.
                Some(of) => assert_eq!(read, Ok(of)),
                None if len == 0 => assert_eq!(read, Err(RegionError::BeingMade)),
                None => assert!(
                    matches!(read, Err(RegionError::UnknownLayout { bytes, .. }) if bytes == len),
                    "{layout:?} cut at {len}: {read:?}"
                ),
            }
        }
    }
}

#[test]
fn any_changed_byte_is_read_or_refused() {
    for layout in Layout::ALL {
        let bytes = build(layout, &sample(layout));
        let mut broken = bytes.clone();
        for at in 0..bytes.len() {
            for change in [0xff, 0x01, 0x80] {
                broken[at] = bytes[at] ^ change;
                match parse(&broken) {
                    Ok(region) => check(&region),
                    Err(_) => assert!(at < 4 || layout == Layout::V4 && (8536..8540).contains(&at)),
                }
            }
            broken[at] = bytes[at];
        }
    }
}
