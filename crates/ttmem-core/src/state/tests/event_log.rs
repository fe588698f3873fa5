//! Recent events.

use super::*;
use crate::input::FaultReport;
use crate::snapshot::{self, EventKind as Kind, Severity};
use crate::words::Fault;
use ttmem_types::FailureKind;

const SECOND: u64 = Mono::SECOND;

fn list(state: &State) -> Vec<snapshot::Event> {
    let detail = Detail { events: true, ..Detail::NONE };
    state.snapshot(Timestamp::UNIX_EPOCH, &detail).events.unwrap()
}

fn of(state: &State, kind: Kind) -> Vec<String> {
    list(state).into_iter().filter(|it| it.kind == kind).map(|it| it.text).collect()
}

fn named(name: &str) -> Input {
    Input::Registered(Box::new(Process { name: Some(name.to_owned()), ..Process::default() }))
}

fn mesh(number: u32, chips: &[u32]) -> Input {
    let banks = Banks { space: Space::Dram, banks: 12, base: 0, bytes_per_bank: 1 << 30 };
    let chips = chips.iter().map(|&index| chip(index)).collect();
    Input::Allocator(Allocator { id: number, chips, spaces: vec![banks] })
}

#[test]
fn reclaimed_bytes_are_of_all_devices_and_cores() {
    let mut state = machine();
    register(&mut state, events(1));
    let define = Allocator { id: 1, chips: vec![chip(0), chip(1), chip(2)], spaces: Vec::new() };
    state.apply(Mono(1), events(1), Input::Allocator(define));
    state.apply(Mono(1), events(1), Input::Cores(1, CoreSet::rectangle((0, 0), (7, 7))));
    let scope = Scope::Allocator(1);
    let extent = |bytes_per_bank, banks| Some(Extent { occupied: 0, bytes_per_bank, banks });
    let buffer = Alloc { extent: extent(4096, 12), ..alloc(scope, Space::Dram, 0x1000, 2048) };
    let cb = |at| Alloc { extent: extent(1024, 64), cores: 1, ..alloc(scope, Space::Cb, at, 1024) };
    // The second half of the first circular buffer is the first half of the second.
    for held in [buffer, cb(0x2_0000), cb(0x2_0200)] {
        state.apply(Mono(2), events(1), Input::Alloc(held));
    }
    let Outcome::Reclaimed(gone) = state.apply(Mono(3), events(1), Input::Exited) else { panic!() };
    assert_eq!((gone.buffers.0, gone.cbs.0), (1, 2));
    let finding = found(&state, FindingKind::Reclaimed).unwrap();
    assert_eq!((finding.bytes, finding.count), (Some(3 * (12 * 4096 + 64 * 1536)), 3));
}

#[test]
fn events_are_listed_on_request_only() {
    let state = machine();
    assert!(state.snapshot(Timestamp::UNIX_EPOCH, &Detail::NONE).events.is_none());
    assert_eq!(of(&state, Kind::DeviceAdded), ["devices 0-2 added"], "all at once");
}

#[test]
fn process_start_and_exit_are_events() {
    let mut state = machine();
    state.apply(Mono(1), events(7), named("py\nthon"));
    state.apply(Mono(2), events(7), named("python"));
    assert_eq!(of(&state, Kind::ProcessStarted), ["pid 7 (py?thon) started"], "once, and in one line");
    state.apply(Mono(3), legacy(8), Input::Registered(Box::default()));
    state.apply(Mono(4), legacy(8), Input::Alloc(alloc(on(0), Space::Dram, 1, 3 << 20)));
    state.apply(Mono(5), legacy(8), Input::Alloc(alloc(on(0), Space::Dram, 2, 1 << 20)));
    state.apply(Mono(6), legacy(8), Input::Exited);
    state.apply(Mono(7), events(7), Input::Exited);
    let ended: Vec<_> = list(&state).into_iter().filter(|event| event.kind == Kind::ProcessExited).collect();
    assert_eq!(ended[0].text, "pid 8 exited with 4.0 MiB in 2 allocations still allocated");
    assert_eq!((ended[0].pid, ended[0].bytes), (Some(8), Some(4 << 20)));
    assert_eq!(ended[1].text, "pid 7 (python) exited");
    assert!(of(&state, Kind::Finding).is_empty(), "the exit has what it held");
    let unseen = Origin::Process(ProcessId { pid: 0, start: 1 }, Basis::Reported);
    state.apply(Mono(8), unseen, Input::Registered(Box::default()));
    assert_eq!(list(&state).last().unwrap().text, "a process outside this PID namespace started");
}

#[test]
fn devices_are_open_while_any_allocator_of_theirs_is() {
    let mut state = machine();
    state.apply(Mono(1), events(7), named("python"));
    let nothing = Outcome::Reclaimed(Reclaimed::default());
    for (event, outcome) in [
        (mesh(1, &[0, 1]), Outcome::Noted),
        (mesh(2, &[1, 0]), Outcome::Noted),
        (Input::AllocatorCleared(1), nothing),
        (mesh(3, &[0]), Outcome::Noted),
    ] {
        assert_eq!(state.apply(Mono(2), events(7), event), outcome);
    }
    let opened = ["pid 7 (python) opened a mesh of 2 devices", "pid 7 (python) opened device 0"];
    assert_eq!(of(&state, Kind::AllocatorOpened), opened);
    state.apply(Mono(3), events(7), Input::AllocatorClosed(1));
    assert!(of(&state, Kind::AllocatorClosed).is_empty(), "another one has them open");
    state.apply(Mono(4), events(7), Input::AllocatorClosed(2));
    assert_eq!(of(&state, Kind::AllocatorClosed), ["pid 7 (python) closed a mesh of 2 devices"]);
}

#[test]
fn cleared_allocator_holds_nothing_and_keeps_its_peak() {
    let mut state = machine();
    state.apply(Mono(1), events(7), named("python"));
    state.apply(Mono(1), events(7), mesh(1, &[0]));
    state.apply(Mono(2), events(7), Input::Alloc(alloc(Scope::Allocator(1), Space::Dram, 64, 1 << 20)));
    state.apply(Mono(3), events(7), Input::AllocatorCleared(1));
    let snapshot = state.snapshot(Timestamp::UNIX_EPOCH, &Detail::NONE);
    let dram = snapshot.processes[0].usage[0].usage.dram.as_ref().unwrap();
    assert_eq!((dram.count, dram.requested_bytes, dram.peak_bytes), (Some(0), 0, 1 << 20));
    assert_eq!(snapshot.processes[0].allocators.len(), 1);
    let unknown = state.apply(Mono(4), events(7), Input::AllocatorCleared(9));
    assert_eq!(unknown, Outcome::Refused(Fault::UnknownAllocator));
}

#[test]
fn allocators_open_and_close() {
    let mut state = machine();
    state.apply(Mono(1), events(7), named("python"));
    state.apply(Mono(1), events(7), mesh(1, &[0, 1, 2]));
    state.apply(Mono(1), events(7), mesh(2, &[1]));
    // Another definition, another listing and a set of chips are no events.
    state.apply(Mono(2), events(7), mesh(2, &[1]));
    state.apply(Mono(2), events(7), Input::ListingBegun(2));
    let set = Allocator { id: 3, chips: vec![chip(0)], spaces: Vec::new() };
    state.apply(Mono(2), events(7), Input::Allocator(set));
    assert_eq!(
        of(&state, Kind::AllocatorOpened),
        ["pid 7 (python) opened a mesh of 3 devices", "pid 7 (python) opened device 1"]
    );
    let held = alloc(Scope::Allocator(2), Space::Dram, 1, 1 << 20);
    state.apply(Mono(3), events(7), Input::Alloc(held));
    for number in [1, 2, 3] {
        state.apply(Mono(4), events(7), Input::AllocatorClosed(number));
    }
    let closed: Vec<_> = list(&state).into_iter().filter(|it| it.kind == Kind::AllocatorClosed).collect();
    assert_eq!(closed.len(), 2);
    assert_eq!((&*closed[0].text, &closed[0].device), ("pid 7 (python) closed a mesh of 3 devices", &None));
    assert_eq!(closed[1].text, "pid 7 (python) closed device 1 with 1.0 MiB still allocated");
    assert_eq!((closed[1].device.as_deref(), closed[1].bytes), (Some("ordinal-1"), Some(1 << 20)));
}

#[test]
fn device_removal_and_return_are_events() {
    let mut state = machine();
    state.apply(Mono(SECOND), legacy(8), Input::Registered(Box::default()));
    state.apply(Mono(SECOND), legacy(8), Input::Alloc(alloc(on(1), Space::Dram, 1, 64)));
    for index in [0, 1] {
        for _ in 0..2 {
            state.apply(Mono(3 * SECOND), Origin::Machine, Input::ChipRemoved(chip(index)));
        }
    }
    let gone: Vec<_> = list(&state).into_iter().filter(|it| it.kind == Kind::DeviceRemoved).collect();
    assert_eq!(gone.len(), 1, "both at once, and each once: {gone:?}");
    assert_eq!((&*gone[0].text, gone[0].severity), ("devices 0-1 removed", Severity::Warning));
    state.apply(Mono(5 * SECOND), Origin::Machine, Input::Chip(Box::new(Chip::unknown(1))));
    state.apply(Mono(5 * SECOND), Origin::Machine, Input::Chip(Box::new(Chip::unknown(1))));
    assert_eq!(of(&state, Kind::DeviceAdded), ["devices 0-2 added", "device 1 added"]);
}

#[test]
fn traces_are_captured_and_released() {
    let mut state = machine();
    state.apply(Mono(1), events(7), named("python"));
    state.apply(Mono(1), events(7), mesh(1, &[0]));
    let scope = Scope::Allocator(1);
    let trace = |id, replays, captured| {
        Input::Trace(Trace { scope, id, dispatches: 12, replays, captured: Mono(captured) })
    };
    state.apply(Mono(2), events(7), trace(1, 0, 2));
    state.apply(Mono(3), events(7), trace(1, 1, 2));
    assert_eq!(of(&state, Kind::TraceCaptured), ["pid 7 (python) captured a trace of 12 dispatches"]);
    // Everything is listed anew.
    state.apply(Mono(4), events(7), Input::ListingBegun(1));
    state.apply(Mono(4), events(7), trace(1, 5, 2));
    assert_eq!(of(&state, Kind::TraceCaptured).len(), 1);
    state.apply(Mono(5), events(7), Input::TraceEnded(scope, 1));
    state.apply(Mono(5), events(7), Input::TraceEnded(scope, 1));
    assert_eq!(of(&state, Kind::TraceReleased), ["pid 7 (python) released a trace"]);
    for n in 6..8 {
        state.apply(Mono(n), events(7), trace(1, 0, n));
        state.apply(Mono(n), events(7), Input::TraceEnded(scope, 1));
    }
    assert_eq!(
        of(&state, Kind::TraceCaptured),
        ["pid 7 (python) captured a trace x3, last of 12 dispatches"]
    );
    assert_eq!(of(&state, Kind::TraceReleased), ["pid 7 (python) released a trace x3"]);
}

#[test]
fn thresholds_have_hysteresis() {
    let mut state = machine();
    register(&mut state, legacy(8));
    let all = capacity().dram_bytes;
    let mut now = 0;
    let mut fill = |state: &mut State, percent: u64| {
        now += 2 * SECOND;
        state.apply(Mono(now), legacy(8), Input::Levels(chip(0), vec![(Space::Dram, all / 100 * percent)]));
        let before = list(state).last().map(|it| it.sequence);
        state.tick(Mono(now));
        let last = list(state).pop().filter(|it| Some(it.sequence) != before);
        last.map(|it| (it.text, it.severity == Severity::Warning))
    };
    let says = |text: &str, bad| Some((format!("device 0: DRAM {text}"), bad));
    for (percent, said) in [
        (74, None),
        (76, says("rose above 75 %", false)),
        (74, None),
        (76, None),
        (91, says("rose above 90 %", true)),
        (86, None),
        (91, None),
        (80, says("fell below 90 %", false)),
        (71, None),
        (69, says("fell below 75 %", false)),
        (95, says("rose above 90 % x2", true)),
        (0, says("fell below 75 % x2", false)),
    ] {
        assert_eq!(fill(&mut state, percent), said, "{percent} %");
    }
    let it = list(&state).into_iter().find(|it| it.kind == Kind::UsageThreshold).unwrap();
    assert!(it.device.is_some() && it.pid.is_none() && it.bytes.is_some());
}

#[test]
fn thresholds_of_several_devices_are_one_event() {
    let mut state = machine();
    state.apply(Mono(1), events(7), named("python"));
    state.apply(Mono(1), events(7), mesh(1, &[0, 1, 2]));
    let half = alloc(Scope::Allocator(1), Space::Dram, 0, 10 << 30);
    state.apply(Mono(2), events(7), Input::Alloc(half));
    state.tick(Mono(SECOND));
    let filled: Vec<_> = list(&state).into_iter().filter(|it| it.kind == Kind::UsageThreshold).collect();
    assert_eq!(filled.len(), 1);
    assert_eq!((&*filled[0].text, &filled[0].device), ("devices 0-2: DRAM rose above 75 %", &None));
}

#[test]
fn findings_are_one_event_and_failures_are_always_events() {
    let mut state = machine();
    register(&mut state, legacy(8));
    let free = |id| Input::Free(Free { scope: on(0), space: None, id, program: 0, size: None, cores: 0 });
    for n in 0..5 {
        state.apply(Mono(n * SECOND), legacy(8), free(n));
    }
    assert_eq!(
        of(&state, Kind::Finding),
        ["pid 8: freed unknown buffers on device 0 (last 0x0); they may predate tracking"]
    );
    let failed = |bytes| Input::Fault(FaultReport { fault: Fault::OutOfMemory, count: 1, id: bytes });
    state.apply(Mono(5 * SECOND), legacy(8), failed(1 << 30));
    state.apply(Mono(6 * SECOND), legacy(8), failed(2 << 30));
    let who = "pid 8";
    let expected = format!("out of memory x2: {who} last requested 2.0 GiB");
    assert_eq!(of(&state, Kind::OutOfMemory), [expected]);
    // Later it is another time.
    state.apply(Mono(300 * SECOND), legacy(8), failed(3 << 30));
    let failures: Vec<_> = list(&state).into_iter().filter(|it| it.kind == Kind::OutOfMemory).collect();
    assert_eq!(failures.len(), 2);
    assert_eq!(failures[1].text, format!("out of memory: {who} requested 3.0 GiB"));
    assert_eq!((failures[1].severity, failures[1].pid), (Severity::Warning, Some(8)));
    assert_eq!((failures[1].bytes, &failures[1].device), (Some(3 << 30), &None));
    assert_eq!(failures[1].at.as_second() - failures[0].at.as_second(), 294);
    assert_eq!(of(&state, Kind::Finding).len(), 1);
}

#[test]
fn failed_allocation_is_dated_when_it_occurred() {
    let mut state = machine();
    let by = legacy(8);
    let command = Some("python model.py".to_owned());
    state.apply(Mono(0), by, Input::Registered(Box::new(Process { command, ..Process::default() })));
    let failure = |chips: &[u32], at: u64| Failure {
        chips: chips.iter().map(|&index| ChipId::Ordinal(index)).collect(),
        space: Some(Space::Dram),
        requested: 512 << 20,
        available: Some(38 << 20),
        ..Failure::new(FailureKind::OutOfMemory, Mono(at * SECOND))
    };
    // Read an hour later.
    let now = Mono(4000 * SECOND);
    state.apply(now, by, Input::Failure(Box::new(failure(&[0], 400))));
    state.tick(now);
    let text = "out of memory: pid 8 (python model.py) requested 512.0 MiB of DRAM on device 0; \
                largest free block 38.0 MiB per bank";
    let snapshot =
        state.snapshot(Timestamp::from_second(1_000_000).unwrap(), &Detail { events: true, ..Detail::NONE });
    let [finding] = &snapshot.findings[..] else { panic!("{:?}", snapshot.findings) };
    let event = snapshot.events.unwrap().pop().unwrap();
    assert_eq!((&*finding.text, &*event.text), (text, text));
    let at = Timestamp::from_second(1_000_000 - 3600).unwrap();
    assert_eq!((finding.first, finding.last, event.at), (Some(at), Some(at), at));
    assert_eq!((finding.space, finding.bytes, finding.count), (Some(Space::Dram), Some(512 << 20), 1));
    assert_eq!(
        (finding.kind, event.kind, event.bytes),
        (FindingKind::OutOfMemory, Kind::OutOfMemory, Some(512 << 20))
    );
    assert!(finding.device.is_some() && finding.device == event.device);
    // The last one counts, with all of its devices.
    let again = Failure { requested: 1 << 20, available: None, count: 4, ..failure(&[0], 4000) };
    state.apply(now, by, Input::Failure(Box::new(again)));
    let mesh = Failure {
        chips: vec![ChipId::Ordinal(0), ChipId::Ordinal(1)],
        space: Some(Space::L1),
        ..failure(&[], 4000)
    };
    state.apply(now, by, Input::Failure(Box::new(mesh)));
    let texts: Vec<_> = of(&state, Kind::OutOfMemory);
    assert_eq!(
        texts[texts.len() - 2..],
        [
            "out of memory x4: pid 8 (python model.py) last requested 1.0 MiB of DRAM on device 0",
            "out of memory: pid 8 (python model.py) requested 512.0 MiB of L1 on each of devices 0-1; largest free block 38.0 MiB per bank",
        ]
    );
}

#[test]
fn allocations_are_no_events() {
    let mut state = machine();
    register(&mut state, legacy(8));
    let before = list(&state);
    for n in 0..1000 {
        state.apply(Mono(2), legacy(8), Input::Alloc(alloc(on(0), Space::Dram, n * 64, 64)));
    }
    for n in 0..1000 {
        let free = Free { scope: on(0), space: None, id: n * 64, program: 0, size: None, cores: 0 };
        state.apply(Mono(3), legacy(8), Input::Free(free));
    }
    let texts =
        |all: Vec<snapshot::Event>| all.into_iter().map(|it| (it.sequence, it.text)).collect::<Vec<_>>();
    assert_eq!(texts(list(&state)), texts(before));
}

#[test]
fn flood_of_one_kind_drops_no_other() {
    let mut state = machine();
    state.apply(Mono(1), events(7), named("python"));
    state.apply(Mono(1), events(7), mesh(1, &[0, 1]));
    state.apply(Mono(2), events(7), Input::Fault(FaultReport { fault: Fault::OutOfMemory, count: 1, id: 1 }));
    // One that opens and closes, and many that come and go.
    for n in 0..2000u32 {
        state.apply(Mono(3 + u64::from(n)), events(7), mesh(9, &[2]));
        state.apply(Mono(3 + u64::from(n)), events(7), Input::AllocatorClosed(9));
        register(&mut state, legacy(100 + n));
        state.apply(Mono(3 + u64::from(n)), legacy(100 + n), Input::Exited);
    }
    let all = list(&state);
    assert_eq!(all.len(), 256);
    assert!(all.windows(2).all(|it| it[0].sequence < it[1].sequence && it[0].at <= it[1].at));
    assert_eq!(all.last().unwrap().text, "pid 2099 exited");
    for text in [
        "devices 0-2 added",
        "pid 7 (python) opened a mesh of 2 devices",
        "pid 7 (python) opened device 2 x2000",
        "pid 7 (python) closed device 2 x2000",
        "out of memory: pid 7 (python) requested 1 B",
    ] {
        assert!(all.iter().any(|it| it.text == text), "{text}");
    }
    let count = |kind| all.iter().filter(|it| it.kind == kind).count();
    assert!(count(Kind::ProcessStarted).abs_diff(count(Kind::ProcessExited)) <= 1, "none before the other");
}
