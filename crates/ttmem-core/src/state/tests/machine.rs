//! Chips under several names, sensors, openers, and what tt-metal's own counters say.

use super::*;
use crate::input::SensorReading;
use crate::machine::{CounterReport, Ghost, Sensors};
use crate::snapshot::Severity;
use crate::words::PciAddress;

fn place(bus: u8) -> PciAddress {
    PciAddress { domain: 0, bus, slot: 0 }
}

fn emit(state: &mut State, event: Input) -> Outcome {
    state.apply(Mono(1), Origin::Machine, event)
}

fn shot(state: &State) -> Snapshot {
    state.snapshot(Timestamp::UNIX_EPOCH, &Detail::NONE)
}

/// A machine with two chips on its bus.
fn two() -> State {
    let mut state = State::new(Limits::default(), 7);
    for n in 0..2u8 {
        let chip = Chip {
            pci: Some(place(n + 1)),
            node: Some(u32::from(n)),
            guesses: vec![0x100 + u64::from(n)],
            ..Chip::new(ChipId::Unique(0xa0 + u64::from(n)), n.into())
        };
        emit(&mut state, Input::Chip(Box::new(chip)));
    }
    state
}

fn opener(n: u32) -> Origin {
    Origin::Process(id(n), Basis::Unknown)
}

fn counters(n: u32) -> Origin {
    Origin::Process(id(n), Basis::Counters)
}

#[test]
fn all_ids_of_a_chip_mean_one_chip() {
    let mut state = two();
    register(&mut state, events(1));
    // By its place; by a name that was expected; by its number alone.
    let by_place = Chip { pci: Some(place(1)), ..Chip::new(ChipId::Unique(0x77), 5) };
    for (chip, key) in [
        (by_place, 0xa0),
        (Chip::new(ChipId::Unique(0x101), 9), 0xa1),
        (Chip::unknown(1), 0xa1),
        (Chip { names: vec![0x100], ..Chip::new(ChipId::Unique(0x78), 4) }, 0xa0),
    ] {
        let name = chip.id;
        state.apply(Mono(1), events(1), Input::Chip(Box::new(chip)));
        assert_eq!(state.resolve(name), ChipId::Unique(key));
    }
    let shot = shot(&state);
    assert_eq!(shot.devices.len(), 2);
    let names = ["0x0000000000000077", "0x0000000000000078", "0x0000000000000100"];
    assert_eq!(shot.devices[0].names, names, "what it was called, and not what it might be");
    // Input for any of the ids is for the chip.
    let mesh = Input::Allocator(Allocator { id: 1, chips: vec![ChipId::Unique(0x77)], spaces: Vec::new() });
    assert_eq!(state.apply(Mono(2), events(1), mesh), Outcome::Noted);
    register(&mut state, counters(2));
    state.apply(Mono(2), counters(2), Input::Levels(ChipId::Unique(0x101), vec![(Space::Dram, 5)]));
    assert_eq!(state.usage_of(ChipId::Unique(0xa1)).dram.unwrap().requested_bytes, 5);
}

#[test]
fn no_two_chips_have_one_number() {
    let mut state = two();
    register(&mut state, events(1));
    // A process that sees only the second board calls its chips 0 and 1.
    state.apply(
        Mono(1),
        events(1),
        Input::Chip(Box::new(Chip { remote: true, ..Chip::new(ChipId::Unique(0xb1), 1) })),
    );
    let indexes: Vec<u32> = shot(&state).devices.iter().map(|it| it.index).collect();
    assert_eq!(indexes, [0, 1, 2]);
}

#[test]
fn best_origin_of_capacity_counts() {
    let mut state = two();
    register(&mut state, events(1));
    let with = |origin| Chip {
        capacity: Some(Capacity { origin, ..capacity() }),
        ..Chip::new(ChipId::Unique(0xa0), 0)
    };
    let origin = |state: &State| shot(state).devices[0].capacity.map(|it| it.origin);
    assert_eq!(origin(&state), None);
    emit(&mut state, Input::Chip(Box::new(with(CapacityOrigin::Board))));
    assert_eq!(origin(&state), Some(CapacityOrigin::Board));
    state.apply(Mono(1), events(1), Input::Chip(Box::new(with(CapacityOrigin::Runtime))));
    assert_eq!(origin(&state), Some(CapacityOrigin::Board), "it does not have the chip open");
    state.apply(Mono(1), events(1), Input::Opened(vec![ChipId::Unique(0xa0)]));
    assert_eq!(origin(&state), Some(CapacityOrigin::Runtime));
    emit(&mut state, Input::Chip(Box::new(with(CapacityOrigin::Descriptor))));
    assert_eq!(origin(&state), Some(CapacityOrigin::Descriptor));
    // A process may say what it likes of places; the machine's word stays.
    let elsewhere =
        Chip { pci: Some(place(9)), board: Some("x".into()), ..Chip::new(ChipId::Unique(0xa0), 0) };
    state.apply(Mono(1), events(1), Input::Chip(Box::new(elsewhere)));
    assert_eq!(shot(&state).devices[0].pci.as_deref(), Some("0000:01:00.0"));
}

#[test]
fn sensors_have_an_age_and_what_is_missing_a_reason() {
    let mut state = two();
    let warm = Sensors { asic_celsius: Some(45.4), ..Sensors::default() };
    let reading = SensorReading { at: Some(Mono(1_000_000_000)), sensors: warm, why: None };
    emit(&mut state, Input::Sensors(ChipId::Unique(0xa0), Box::new(reading.clone())));
    state.tick(Mono(2_500_000_000));
    let device = shot(&state).devices.remove(0);
    let sensors = device.sensors.unwrap();
    assert_eq!((sensors.asic_celsius, sensors.age_ms, sensors.stale), (Some(45.4), 1500, false));
    assert_eq!(device.sensors_absent, None);
    // Nothing new for long: the value stays, marked.
    state.tick(Mono(60_000_000_000));
    let device = shot(&state).devices.remove(0);
    assert!(device.sensors.unwrap().stale);
    let late = SensorReading { why: Some("it does not answer".into()), ..reading };
    emit(&mut state, Input::Sensors(ChipId::Unique(0xa0), Box::new(late)));
    let device = shot(&state).devices.remove(0);
    assert_eq!(device.sensors_absent.as_deref(), Some("it does not answer"));
    assert!(device.sensors.unwrap().stale);
    // One that was never read has nothing, and says why.
    let device = shot(&state).devices.remove(1);
    assert!(device.sensors.is_none() && device.sensors_absent.is_some());
    // A process cannot speak for a sensor.
    register(&mut state, events(1));
    let lie = Input::Sensors(
        ChipId::Unique(0xa1),
        Box::new(SensorReading { at: Some(Mono(1)), ..Default::default() }),
    );
    state.apply(Mono(1), events(1), lie);
    assert!(shot(&state).devices[1].sensors.is_none());
}

#[test]
fn removed_chip_is_forgotten_when_unused() {
    let mut state = two();
    register(&mut state, counters(1));
    state.apply(Mono(1), counters(1), Input::Levels(ChipId::Unique(0xa0), vec![(Space::Dram, 7)]));
    emit(&mut state, Input::ChipRemoved(ChipId::Unique(0xa0)));
    emit(&mut state, Input::ChipRemoved(ChipId::Unique(0xa1)));
    let devices = shot(&state).devices;
    assert_eq!(devices.len(), 1, "nobody used the second");
    assert_eq!(
        (devices[0].pci.as_deref(), devices[0].sensors_absent.as_deref()),
        (None, Some("the device was removed"))
    );
    state.apply(Mono(2), counters(1), Input::Exited);
    state.tick(Mono(3));
    assert!(shot(&state).devices.is_empty());
    assert!(state.names.is_empty(), "names go with their chip");
    // Plugged in again, it is there again.
    emit(
        &mut state,
        Input::Chip(Box::new(Chip { pci: Some(place(1)), ..Chip::new(ChipId::Unique(0xa0), 0) })),
    );
    assert_eq!(shot(&state).devices.len(), 1);
}

#[test]
fn removed_chip_in_use_can_be_added_again() {
    let mut state = two();
    let (first, second) = (ChipId::Unique(0xa0), ChipId::Unique(0xa1));
    register(&mut state, counters(1));
    state.apply(Mono(1), counters(1), Input::Levels(first, vec![(Space::Dram, 7)]));
    register(&mut state, events(2));
    let mesh = Input::Allocator(Allocator { id: 1, chips: vec![second], spaces: Vec::new() });
    state.apply(Mono(1), events(2), mesh);
    for (bus, chip) in [(1, first), (2, second)] {
        state.apply(Mono(1), opener(1), Input::Opened(vec![first, second]));
        emit(&mut state, Input::ChipRemoved(chip));
        let devices = shot(&state).devices;
        assert_eq!(devices.len(), 2, "an allocator is use, too");
        let opened = shot(&state).processes.iter().map(|it| it.open_devices.len()).sum::<usize>();
        assert_eq!(opened, 1, "what is gone is not open");
        emit(&mut state, Input::Chip(Box::new(Chip { pci: Some(place(bus)), ..Chip::new(chip, 0) })));
    }
    // No process uses them, but they are on the bus.
    for process in [counters(1), events(2)] {
        state.apply(Mono(2), process, Input::Exited);
    }
    state.tick(Mono(3));
    assert_eq!(shot(&state).devices.len(), 2);
}

#[test]
fn process_with_open_chip_is_untracked_until_it_closes() {
    let mut state = two();
    register(&mut state, opener(1));
    state.apply(Mono(1), opener(1), Input::Opened(vec![ChipId::Unique(0x100), ChipId::Unique(0x999)]));
    let seen = shot(&state);
    assert_eq!(
        seen.processes[0].open_devices,
        ["0x00000000000000a0"],
        "by any name, and only chips there are"
    );
    assert_eq!((seen.processes[0].basis, seen.processes[0].complete), (Basis::Unknown, false));
    assert!(seen.devices[0].usage.dram_total.is_none(), "nothing is not 0");
    state.apply(Mono(2), opener(1), Input::Opened(Vec::new()));
    assert!(shot(&state).processes.is_empty());
    // It comes back with a segment: now it is tracked, open or not.
    state.apply(Mono(3), events(1), Input::Progress { sequence: 1, exact: true });
    assert_eq!(shot(&state).processes[0].basis, Basis::Exact);
}

#[test]
fn levels_replace_and_yield_to_exact_basis() {
    let mut state = two();
    let chip = ChipId::Unique(0xa0);
    register(&mut state, counters(1));
    let all = vec![(Space::Dram, 10), (Space::L1, 20), (Space::Cb, 30)];
    state.apply(Mono(1), counters(1), Input::Levels(chip, all));
    let usage = state.usage_of(chip);
    assert_eq!(
        (usage.dram.as_ref().unwrap().requested_bytes, usage.dram.as_ref().unwrap().count),
        (10, None)
    );
    assert_eq!(usage.cb.as_ref().unwrap().registered_bytes, 30);
    assert_eq!(usage.l1_total.as_ref().map(|it| (it.used_bytes, it.basis)), Some((50, Basis::Counters)));
    // The next word replaces the first, in every space.
    state.apply(Mono(2), counters(1), Input::Levels(chip, vec![(Space::Dram, 4)]));
    let usage = state.usage_of(chip);
    assert_eq!(usage.dram.as_ref().unwrap().peak_bytes, 10);
    assert!(usage.l1.is_none() && usage.cb.is_none());
    // The same process by its segment: one basis a space, and never the sum.
    state.apply(
        Mono(3),
        events(1),
        Input::Allocator(Allocator {
            id: 1,
            chips: vec![chip],
            spaces: vec![Banks { space: Space::Dram, banks: 12, base: 0, bytes_per_bank: 1 << 20 }],
        }),
    );
    let extent = Some(Extent { occupied: 2048, bytes_per_bank: 2048, banks: 12 });
    let alloc = Alloc { extent, ..alloc(Scope::Allocator(1), Space::Dram, 0, 2048) };
    state.apply(Mono(3), events(1), Input::Alloc(alloc));
    let dram = state.usage_of(chip).dram.unwrap();
    assert_eq!((dram.basis, dram.used_bytes), (Basis::Exact, 24_576));
    // And another process, by counters alone, beside it.
    register(&mut state, counters(2));
    state.apply(Mono(4), counters(2), Input::Levels(chip, vec![(Space::Dram, 1000)]));
    let dram = state.usage_of(chip).dram.unwrap();
    assert_eq!((dram.requested_bytes, dram.used_bytes), (2048 + 1000, 24_576 + 1000));
    state.apply(Mono(5), counters(2), Input::Levels(chip, Vec::new()));
    assert_eq!(shot(&state).processes.len(), 1, "who is in no counter any more is not shown");
}

#[test]
fn ghosts_are_findings_and_never_usage() {
    let mut state = two();
    let ghost = |bytes| Ghost { pid: 41, name: "python".into(), bytes, may_be_hidden: false };
    let report = |name, ghosts, unattributed: &[(Space, u64)], problem: &str| CounterReport {
        path: format!("/dev/shm/tt_device_{name}_memory"),
        chip: ChipId::Unique(name),
        ghosts,
        unattributed: unattributed.to_vec(),
        problems: Some(problem.to_owned()).filter(|it| !it.is_empty()).into_iter().collect(),
    };
    let all = vec![
        report(0x100, vec![ghost(100)], &[(Space::L1, 9)], ""),
        report(0x101, vec![ghost(200)], &[], "have bad numbers"),
        report(0x999, vec![Ghost { pid: 42, ..ghost(1) }], &[], ""),
    ];
    emit(&mut state, Input::Counters(all));
    let seen = shot(&state);
    let of = |kind| seen.findings.iter().filter(|it| it.kind == kind).collect::<Vec<_>>();
    let ghosts = of(FindingKind::GhostBytes);
    assert_eq!(ghosts.len(), 2, "one for each of the dead");
    assert_eq!((ghosts[0].pid, ghosts[0].bytes, ghosts[0].count), (Some(41), Some(300), 2));
    assert_eq!(ghosts[1].severity, Severity::Info, "a chip that is not here");
    let lost = of(FindingKind::Unattributed);
    assert_eq!((lost[0].device.as_deref(), lost[0].bytes), (Some("0x00000000000000a0"), Some(9)));
    assert!(of(FindingKind::Counters)[0].text.contains("device 1: tt-metal counters have bad numbers"));
    assert!(seen.devices.iter().all(|it| it.usage.dram.is_none()));
    emit(&mut state, Input::Counters(Vec::new()));
    assert!(shot(&state).findings.is_empty(), "they hold only as long as they are told");
}

#[test]
fn hidden_openers_are_reported() {
    let mut state = two();
    emit(&mut state, Input::OpenedByHidden(ChipId::Unique(0xa0), 3));
    assert!(
        found(&state, FindingKind::Untracked)
            .unwrap()
            .text
            .contains("opened 3 times by processes not visible")
    );
    emit(&mut state, Input::OpenedByHidden(ChipId::Unique(0xa0), 0));
    assert!(found(&state, FindingKind::Untracked).is_none());
}

#[test]
fn two_places_on_the_bus_are_two_chips() {
    let mut state = State::new(Limits::default(), 1);
    let at = |place: &str, name: u64, index: u32| Chip {
        pci: Some(place.parse().unwrap()),
        node: Some(index),
        ..Chip::new(ChipId::Unique(name), index)
    };
    let mut report = |chip: Chip| state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(chip)));
    report(at("0000:01:00.0", 0xa, 0));
    // A client uses another chip's id for this one.
    report(Chip { names: vec![0xa], ..at("0000:01:00.0", 0xb, 0) });
    report(at("0000:02:00.0", 0xb, 1));
    let shot = state.snapshot(Timestamp::UNIX_EPOCH, &Detail::NONE);
    let shown: Vec<_> = shot.devices.iter().map(|it| (it.id.as_str(), it.pci.as_deref())).collect();
    let wanted = [("0x000000000000000a", Some("0000:01:00.0")), ("0x000000000000000b", Some("0000:02:00.0"))];
    assert_eq!(shown, wanted);
}

#[test]
fn ghosts_of_present_devices_are_reported_first() {
    let mut state = two();
    let ghost = |pid: u32| Ghost { pid, name: "python".to_owned(), bytes: 5, may_be_hidden: false };
    let report = |chip: u64, ghosts: Vec<Ghost>| CounterReport {
        path: format!("/dev/shm/tt_device_{chip}_memory"),
        chip: ChipId::Unique(chip),
        ghosts,
        unattributed: Vec::new(),
        problems: Vec::new(),
    };
    let here = report(0xa1, vec![ghost(100_000)]);
    let elsewhere = report(0xff, (1..=10_000).map(ghost).collect());
    emit(&mut state, Input::Counters(vec![elsewhere, here]));
    let findings = shot(&state).findings;
    assert_eq!(findings.len(), 257);
    assert_eq!((findings[0].severity, findings[0].pid), (Severity::Warning, Some(100_000)));
    let rest = findings.iter().find(|it| it.pid.is_none()).unwrap();
    assert_eq!((rest.count, rest.bytes), (10_001 - 256, Some((10_001 - 256) * 5)));
}
