//! What processes publish, seen through the daemon and without one.

use crate::{MIB, NOBODY, exe, finding};
use jiff::Timestamp;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use ttmem_core::Detail;
use ttmem_core::Snapshot;
use ttmem_core::detail::BufferQuery;
use ttmem_core::snapshot::{EventKind, Finding, FindingKind, Process};
use ttmem_core::words::{Basis, Space};
use ttmem_reader::Session;
use ttmem_sources::SourceConfig;
use ttmem_testkit::producer::{BANKS, FLOOD, Fork, Interrupted, Producer, Request};
use ttmem_testkit::{Server, eventually, memory_folder, schema};

pub(crate) fn daemon() -> Server {
    Server::start(exe(), &["--quiet"])
}

/// What `ttmem --local` says.
pub(crate) fn local(folder: &Path) -> Snapshot {
    let output = Command::new(exe()).args(["--local", "--json", "--shm-dir"]).arg(folder).output().unwrap();
    assert!(!output.stdout.is_empty(), "{output:?}");
    schema::snapshot(&output.stdout)
}

pub(crate) fn process(snapshot: &Snapshot, pid: u32) -> Option<&Process> {
    snapshot.processes.iter().find(|process| process.pid == Some(pid))
}

/// Bytes asked for in DRAM, by one process, on its first chip.
pub(crate) fn dram(process: &Process) -> u64 {
    process.usage.first().and_then(|usage| usage.usage.dram.as_ref()).map_or(0, |dram| dram.requested_bytes)
}

#[test]
fn a_process_is_seen_at_once_with_and_without_a_daemon() {
    let server = daemon();
    let mut producer =
        Producer::start_through(&[], &[("TTMEM_SHM_DIR", server.segments.path().to_str().unwrap())]);
    producer.define(2);
    producer.alloc(4096, 24000);
    producer.begin_program(7, "matmul".to_owned());
    producer.place(7, 105_824, 4096);
    producer.place(7, 109_920, 2048);
    for snapshot in [server.snapshot(), local(server.segments.path())] {
        let it = process(&snapshot, producer.pid).expect("the process is listed");
        assert!(it.complete && it.basis == Basis::Exact && it.sequence == Some(5), "{it:?}");
        assert_eq!(it.usage.len(), 2, "both chips of the mesh hold it");
        for usage in &it.usage {
            let dram = usage.usage.dram.as_ref().unwrap();
            assert_eq!((dram.requested_bytes, dram.occupied_bytes), (24_000, Some(24_000)));
            assert_eq!((dram.allocated_bytes, dram.count), (Some(24_000), Some(1)));
            let cb = usage.usage.cb.as_ref().unwrap();
            assert_eq!((cb.registered_bytes, cb.resident_bytes), (4 * 6144, Some(0)), "on four cores");
        }
        assert_eq!(snapshot.devices.iter().map(|d| d.index).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(snapshot.health.segments, 1);
    }
    producer.dispatch(7);
    let cb = server.process(producer.pid).unwrap().usage[0].usage.cb.clone().unwrap();
    assert_eq!(cb.resident_bytes, Some(4 * 6144));
    producer.end_program(7);
    producer.free(4096);
    let snapshot = server.snapshot();
    let it = process(&snapshot, producer.pid).unwrap();
    assert_eq!(it.usage[0].usage.dram.as_ref().unwrap().count, Some(0));
    assert_eq!(it.usage[0].usage.dram.as_ref().unwrap().peak_bytes, 24_000);
    assert_eq!(it.usage[0].usage.cb.as_ref().unwrap().registered_bytes, 0);

    let listed = Command::new(exe())
        .args(["dump", "--local", "--shm-dir"])
        .arg(server.segments.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("\n0 allocations, "));
}

#[test]
fn a_killed_process_is_gone_at_once_and_leaves_a_black_box() {
    let server = daemon();
    let folder = server.segments.path();
    let mut victim = Producer::new(folder);
    let mut other = Producer::new(folder);
    victim.alloc(4096, 1000);
    victim.begin_program(3, "softmax".to_owned());
    victim.place(3, 105_824, 64);
    other.alloc(4096, 77);
    assert_eq!(dram(&server.process(victim.pid).unwrap()), 1000);
    let segment = victim.status().segment;
    victim.kill();
    let taken_back = finding(&server, FindingKind::Reclaimed).expect("what it held is taken back");
    assert_eq!((taken_back.pid, taken_back.bytes, taken_back.count), (Some(victim.pid), Some(1064), 2));
    for snapshot in [server.snapshot(), local(folder)] {
        assert!(process(&snapshot, victim.pid).is_none());
        assert_eq!(dram(process(&snapshot, other.pid).unwrap()), 77);
        assert_eq!((snapshot.health.segments, snapshot.health.crash_segments), (1, 1));
    }
    let dump = Command::new(exe()).args(["dump", "--segment"]).arg(folder.join(&segment)).output().unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(dump.contains("\n2 allocations, ") && dump.contains("program 3 softmax"), "{dump}");
    // A copy that somebody sent along with a bug report is as good.
    let copy = server.folder.path().join("box");
    fs::copy(folder.join(&segment), &copy).unwrap();
    let again = Command::new(exe()).args(["dump", "--json", "--segment"]).arg(&copy).output().unwrap();
    let again: serde_json::Value = schema::dump(&again.stdout);
    assert_eq!(again["allocations"].as_array().unwrap().len(), 2);
}

/// Files in a folder.
fn files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// The text of the event that a process exited.
fn exit_event(server: &Server, pid: u32) -> (Option<u64>, String) {
    let ended =
        server.events().into_iter().find(|it| it.kind == EventKind::ProcessExited && it.pid == Some(pid));
    let ended = ended.expect("its exit is an event");
    (ended.bytes, ended.text)
}

#[test]
fn clean_exit_removes_the_segment() {
    let server = daemon();
    let folder = server.segments.path();
    for threads in [0, 4] {
        let mut producer = Producer::new(folder);
        producer.alloc(4096, 1000);
        producer.free(4096);
        assert!(server.process(producer.pid).is_some());
        producer.exit_cleanly(threads);
        assert_eq!(files(folder), 0, "with {threads} threads");
        assert!(server.process(producer.pid).is_none());
        assert_eq!(server.snapshot().health.crash_segments, 0);
        if threads == 0 {
            assert!(finding(&server, FindingKind::Reclaimed).is_none(), "it held nothing");
            assert_eq!(exit_event(&server, producer.pid).0, Some(0));
        }
    }
}

#[test]
fn clean_exit_reports_what_was_held() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 1000);
    assert!(server.process(producer.pid).is_some());
    // It was not read yet when the file is removed.
    producer.alloc(8192, 24);
    producer.exit_cleanly(0);
    assert_eq!(files(server.segments.path()), 0);
    let reclaimed = eventually("its exit is noticed", || finding(&server, FindingKind::Reclaimed));
    assert_eq!((reclaimed.pid, reclaimed.bytes, reclaimed.count), (Some(producer.pid), Some(1024), 2));
    let (bytes, text) = exit_event(&server, producer.pid);
    assert!(bytes == Some(1024) && text.contains("2 allocations"), "{text}");
}

#[test]
fn clean_exit_after_a_failure_leaves_a_crash_segment() {
    for closes in [false, true] {
        let folder = memory_folder();
        let mut producer = Producer::new(folder.path());
        producer.out_of_memory(2_097_152, None);
        if closes {
            producer.close_tracker();
        }
        producer.exit_cleanly(0);
        assert_eq!((files(folder.path()), local(folder.path()).health.crash_segments), (1, 1));
    }
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.alloc(4096, 64);
    producer.close_tracker();
    assert_eq!(files(folder.path()), 0, "without one, closing removes it");
}

#[test]
fn forked_child_does_not_remove_its_parents_segment() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.alloc(4096, 64);
    for allocates in [false, true] {
        producer.exit_in_child(allocates);
        assert_eq!(files(folder.path()), 1);
        assert_eq!(local(folder.path()).processes.iter().map(dram).collect::<Vec<_>>(), [64]);
    }
    producer.exit_cleanly(0);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn writers_keep_the_newest_crash_segments() {
    let folder = memory_folder();
    let mut names = Vec::new();
    for _ in 0..11 {
        let mut producer = Producer::new(folder.path());
        names.push(producer.status().segment);
        producer.kill();
    }
    // The next one makes room.
    let mut producer = Producer::new(folder.path());
    let left: Vec<bool> = names.iter().map(|name| folder.path().join(name).exists()).collect();
    assert_eq!(left, [[false; 3].as_slice(), &[true; 8]].concat());
    assert_eq!(producer.peak(), 0, "and is well");
}

#[test]
fn a_segment_that_was_there_before_the_daemon_is_read_whole() {
    let segments = memory_folder();
    let mut producer = Producer::new(segments.path());
    // More than the ring holds, so that the table must be read.
    producer.flood(30000, 100);
    producer.alloc(4096, 5);
    let server = Server::start_reading(
        tempfile::tempdir().unwrap(),
        Arc::clone(&segments),
        Command::new(exe()),
        &["--quiet"],
        None,
    );
    let it = process(&server.first, producer.pid).expect("the first answer knows it");
    assert_eq!(dram(it), 3_000_005);
    assert!(it.complete);
    // And goes on from there, by records and, when those are too many, by the table again.
    producer.free(4096);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 3_000_000);
    for _ in 0..3 {
        producer.close_allocator();
        producer.define(1);
        producer.flood(20000, 50);
    }
    let it = server.process(producer.pid).unwrap();
    assert_eq!(dram(&it), 1_000_000);
    assert!(it.complete);
}

#[test]
fn what_the_library_refuses_is_an_error_and_a_finding() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 64);
    let alloc = |address, bytes| Request::Alloc { address, bytes };
    for (request, error) in [
        (alloc(8192, 0), "ZeroSize"),
        (alloc(8192, 2_000_000_000_000), "TooLarge"),
        (alloc(u64::MAX, 64), "BeyondAddresses"),
        (alloc(4096, 64), "StillHeld"),
        (alloc(4096, 128), "Replaced"),
        (Request::Free { address: 12288 }, "UnknownFree"),
        (Request::Dispatch { program: 9 }, "UnknownProgram"),
        (Request::EndProgram { program: 9 }, "UnknownProgram"),
    ] {
        assert_eq!(producer.refusal(&request), error, "{request:?}");
    }
    producer.free(4096);
    assert_eq!(producer.refusal(&Request::Free { address: 4096 }), "DoubleFree");
    producer.out_of_memory(2_097_152, None);
    let it = server.process(producer.pid).unwrap();
    assert_eq!(dram(&it), 0, "what is refused changes nothing");
    assert!(!it.complete, "and the process is not said to be exact");
    for (kind, count) in [
        (FindingKind::DoubleFree, 1),
        (FindingKind::UnknownFree, 1),
        (FindingKind::Replaced, 2),
        (FindingKind::OutOfMemory, 1),
    ] {
        let found = finding(&server, kind).unwrap_or_else(|| panic!("no finding of {kind:?}"));
        assert_eq!((found.pid, found.count), (Some(producer.pid), count), "{found:?}");
    }
    let refused = server.snapshot().findings.into_iter().filter(|it| it.kind == FindingKind::Refused);
    assert_eq!(refused.map(|it| it.count).sum::<u64>(), 5);
    producer.close_allocator();
    assert_eq!(producer.refusal(&alloc(1, 64)), "UnknownAllocator");
    assert_eq!(producer.refusal(&Request::CloseAllocator {}), "UnknownAllocator");
}

/// The failed allocations that a reader finds which looks for the first time.
fn failures(folder: &Path) -> Vec<Finding> {
    let findings = local(folder).findings.into_iter();
    findings.filter(|it| it.kind == FindingKind::OutOfMemory).collect()
}

#[test]
fn late_reader_finds_when_and_where_memory_ran_out() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.alloc(4096, 64);
    producer.out_of_memory(512 * MIB, Some(38 * MIB));
    producer.alloc(8192, 64);
    // The ring moves on.
    producer.churn(20_000);
    let mut session = Session::local(SourceConfig::segments(folder.path()));
    session.refresh();
    let buffers = Some(BufferQuery { limit: 10, ..BufferQuery::default() });
    let snapshot = session.snapshot(&Detail { events: true, buffers, ..Detail::NONE });
    let finding = snapshot.findings.iter().find(|it| it.kind == FindingKind::OutOfMemory).unwrap();
    let event = snapshot.events.iter().flatten().find(|it| it.kind == EventKind::OutOfMemory).unwrap();
    let device = Some(snapshot.devices[0].id.clone());
    assert_eq!(
        (finding.space, finding.bytes, &finding.device),
        (Some(Space::Dram), Some(512 * MIB), &device)
    );
    assert_eq!((event.bytes, &event.device, &event.text), (finding.bytes, &device, &finding.text));
    assert!(finding.text.starts_with(&format!("out of memory: pid {} (", producer.pid)), "{}", finding.text);
    let text = " requested 512.0 MiB of DRAM on device 0; largest free block 38.0 MiB per bank";
    assert!(finding.text.ends_with(text), "{}", finding.text);
    // Between two allocations, by the clock of the same snapshot, whose ages are whole milliseconds.
    let seconds = |at: Timestamp| snapshot.at.duration_since(at).as_secs_f64();
    let mut ages: Vec<f64> = snapshot.buffers.unwrap().list.iter().map(|it| it.age_seconds).collect();
    ages.sort_by(f64::total_cmp);
    let [after, before] = ages[..] else { panic!("{ages:?}") };
    for at in [finding.first.unwrap(), finding.last.unwrap(), event.at] {
        let age = seconds(at);
        assert!((after - 0.001..=before + 0.001).contains(&age), "{after} <= {age} <= {before}");
    }
}

#[test]
fn failure_outlives_its_allocator_and_counts_once() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    for n in 1..=20 {
        producer.out_of_memory(n * MIB, None);
    }
    producer.close_allocator();
    let [failure] = &failures(folder.path())[..] else { panic!() };
    assert_eq!((failure.count, failure.bytes, failure.space), (20, Some(20 * MIB), Some(Space::Dram)));
    let text = format!("out of memory x20: pid {} (", producer.pid);
    assert!(failure.text.starts_with(&text), "{}", failure.text);
    assert!(failure.text.ends_with(" last requested 20.0 MiB of DRAM on device 0"), "{}", failure.text);
    // One that is followed counts each as it comes.
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    for n in 1..=20 {
        producer.out_of_memory(n * MIB, None);
        let failure = finding(&server, FindingKind::OutOfMemory).unwrap();
        assert_eq!((failure.count, failure.bytes), (n, Some(n * MIB)));
    }
}

#[test]
fn peaks_are_the_writers_own() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 1200);
    producer.alloc(8192, 2400);
    producer.free(8192);
    assert_eq!(producer.peak(), 3600);
    let peak = |server: &Server| {
        let it = server.process(producer.pid).unwrap();
        it.usage[0].usage.dram.as_ref().unwrap().peak_bytes
    };
    assert_eq!(peak(&server), 3600, "though nobody looked while it was so high");
    assert_eq!(
        local(server.segments.path()).processes[0].usage[0].usage.dram.as_ref().unwrap().peak_bytes,
        3600
    );
    producer.reset_peak();
    assert_eq!(producer.peak(), 1200);
    let it = server.process(producer.pid).unwrap();
    assert_eq!(it.usage[0].usage.dram.as_ref().unwrap().peak_bytes, 1200);
}

#[test]
fn forked_children_are_processes_of_their_own() {
    for how in [Fork::WithHandlers, Fork::WithoutHandlers] {
        let server = daemon();
        let mut producer = Producer::new(server.segments.path());
        producer.alloc(4096, 64);
        let pids = producer.children(how, 100, 4096);
        let children: Vec<u32> = pids.iter().map(|&pid| pid as u32).collect();
        assert_eq!(children.len(), 100);
        let snapshot = server.snapshot();
        assert_eq!(snapshot.health.segments, 101);
        assert_eq!(dram(process(&snapshot, producer.pid).unwrap()), 64, "{how:?}: the parent's is its own");
        for (n, &pid) in children.iter().enumerate() {
            let child = process(&snapshot, pid).unwrap_or_else(|| panic!("{how:?}: child {n} is not listed"));
            assert_eq!(dram(child), 100 + n as u64, "{how:?}");
        }
        let inherited = finding(&server, FindingKind::InheritedFree).expect("frees of what the parent holds");
        assert!(children.contains(&inherited.pid.unwrap()));
        assert!(finding(&server, FindingKind::UnknownFree).is_none());
        producer.reap(pids);
        let snapshot = server.snapshot();
        assert_eq!(snapshot.processes.len(), 1, "{how:?}");
        // The parent goes on as if nothing had been.
        producer.alloc(8192, 6);
        assert_eq!(dram(&server.process(producer.pid).unwrap()), 70);
    }
}

#[test]
fn a_process_that_starts_others_stays_what_it_is() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 64);
    for _ in 0..10 {
        producer.spawn();
    }
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 64);
    assert_eq!(server.snapshot().health.segments, 1);
}

#[test]
fn a_process_that_goes_on_as_another_program_holds_nothing() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 64);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 64);
    producer.exec();
    eventually("the new program holds nothing", || {
        let snapshot = server.snapshot();
        let held = process(&snapshot, producer.pid).map_or(0, dram);
        (held == 0 && snapshot.health.crash_segments == 1).then_some(())
    });
    assert!(local(server.segments.path()).processes.is_empty());
    assert!(Path::new(&format!("/proc/{}", producer.pid)).exists(), "it lives");
}

#[test]
fn a_process_that_closes_all_descriptors_is_still_known() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 64);
    producer.close_descriptors();
    producer.alloc(8192, 6);
    for snapshot in [server.snapshot(), local(server.segments.path())] {
        assert_eq!(process(&snapshot, producer.pid).map(dram), Some(70));
    }
    // Its table cannot grow any more; what does not fit is counted all the same.
    producer.flood(10000, 10);
    let it = server.process(producer.pid).unwrap();
    assert_eq!(dram(&it), 100_070);
    assert!(producer.status().unlisted > 0 && finding(&server, FindingKind::Unlisted).is_some());
    assert_eq!(local(server.segments.path()).processes.iter().map(dram).collect::<Vec<_>>(), [100_070]);
    producer.kill();
    assert!(server.process(producer.pid).is_none());
}

#[test]
fn a_signal_handler_that_tracks_never_waits_for_itself() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    let Interrupted { calls, live, lost } = producer.interrupt(200_000);
    assert!(calls > 0);
    assert_eq!(live + lost, calls, "each call of the handler was recorded or counted as lost");
    let snapshot = local(folder.path());
    assert_eq!(snapshot.processes[0].complete, lost == 0);
    assert_eq!(snapshot.health.lost_records, lost);
}

#[test]
fn a_segment_that_was_removed_comes_back() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.flood(9000, 100);
    producer.place(3, 105_824, 64);
    let first = producer.status().segment;
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 900_000);
    fs::remove_file(server.segments.path().join(&first)).unwrap();
    // The daemon has it open and goes on.
    producer.alloc(4096, 1);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 900_001);
    assert!(local(server.segments.path()).processes.is_empty());
    producer.refresh();
    assert_ne!(producer.status().segment, first);
    for snapshot in [local(server.segments.path()), server.snapshot()] {
        let it = process(&snapshot, producer.pid).unwrap();
        assert_eq!((dram(it), it.usage[0].usage.cb.as_ref().unwrap().count), (900_001, Some(1)));
    }
    producer.free(4096);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 900_000);
}

#[test]
fn a_refresh_in_vain_keeps_what_there_is() {
    let server = daemon();
    let folder = server.segments.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let mut producer = Producer::new(&folder);
    producer.flood(100, 12);
    let away = server.segments.path().join("away");
    fs::rename(&folder, &away).unwrap();
    producer.refresh();
    assert_eq!(producer.status().live, 100);
    producer.free(FLOOD);
    fs::create_dir(&folder).unwrap();
    producer.refresh();
    assert_eq!(local(&folder).processes.iter().map(dram).collect::<Vec<_>>(), [99 * 12]);
}

#[test]
fn a_device_that_is_opened_again_and_again_stays_tracked() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    for round in 0..3000 {
        producer.alloc(4096, 64);
        if round % 500 == 0 {
            assert_eq!(
                server.process(producer.pid).map(|it| (dram(&it), it.complete)),
                Some((64, true)),
                "{round}"
            );
        }
        producer.close_allocator();
        assert_eq!(producer.define(1), 1, "the same allocator again");
    }
    // What is not listed is counted, however many devices there were before.
    producer.close_descriptors();
    producer.flood(6000, 10);
    assert!(producer.status().unlisted > 0);
    for snapshot in [server.snapshot(), local(server.segments.path())] {
        assert_eq!(process(&snapshot, producer.pid).map(dram), Some(60_000));
    }
}

#[test]
fn program_memory_that_is_not_listed_goes_with_its_program() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.close_descriptors();
    producer.flood(4095, 10);
    producer.place(7, 105_824, 64);
    producer.place(7, 105_888, 64);
    let pid = producer.pid;
    let cb = || {
        server
            .process(pid)
            .map(|it| (it.usage[0].usage.cb.as_ref().map_or(0, |cb| cb.count.unwrap()), it.complete))
    };
    assert_eq!(cb(), Some((2, false)), "it is counted, but where it lies is not known");
    producer.end_program(7);
    assert_eq!(cb(), Some((0, true)));
}

#[test]
fn many_trackers_in_one_process_are_one_process() {
    let folder = memory_folder();
    let options = ttmem_client::Options::default().folder(folder.path().to_str().unwrap());
    let trackers: Vec<_> = (0..130).map(|_| ttmem_client::Tracker::new(&options)).collect();
    for tracker in &trackers {
        let chip = tracker.define_chip(&ttmem_client::Chip::default().unique_id(0x77)).unwrap();
        let allocator = tracker.define_allocator(&[chip], &[]).unwrap();
        let buffer = ttmem_client::Buffer::new(allocator, ttmem_client::Space::Dram, 4096, 10);
        tracker.alloc(&buffer).unwrap();
    }
    let snapshot = local(folder.path());
    assert_eq!(snapshot.processes.iter().map(dram).collect::<Vec<_>>(), [1280], "of 128 of them");
    assert_eq!(snapshot.health.skipped.len(), 2);
    assert!(snapshot.health.skipped[0].reason.contains("one segment too many of its process"));
    // Switched on again and again, it takes no more room.
    let mappings = || fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let before = mappings();
    for _ in 0..200 {
        trackers[0].enable(&options);
        trackers[1].close();
        trackers[1].enable(&options);
    }
    assert!(mappings() < before + 50, "{before} mappings became {}", mappings());
}

#[test]
fn where_no_segment_can_be_the_workload_works_all_the_same() {
    let home = tempfile::tempdir().unwrap();
    let denied = memory_folder();
    fs::set_permissions(denied.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let missing = home.path().join("missing");
    for (folder, through, reason) in [
        (missing.as_path(), &[][..], "No such file"),
        (Path::new("/proc"), &[], "cannot create segment"),
        (denied.path(), &NOBODY[..], "ermission denied"),
    ] {
        let mut producer = Producer::start_through(through, &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
        producer.define(1);
        producer.alloc(4096, 1200);
        producer.flood(5000, 12);
        assert_eq!(producer.status().segment, "");
        let why = producer.status().reason;
        assert!(why.contains(reason), "{why}");
        assert_eq!(producer.status().live, 5001, "figures are kept all the same");
        assert_eq!(producer.peak(), 1200 + 5000 * BANKS);
        if folder == missing {
            // It may be there later.
            let _later = std::os::unix::fs::symlink(denied.path(), &missing);
            producer.refresh();
            assert_ne!(producer.status().segment, "");
            assert_eq!(local(denied.path()).processes.iter().map(dram).collect::<Vec<_>>(), [61_200]);
        }
        let (status, complaints) = producer.quit();
        assert!(status.success());
        assert_eq!(complaints, "", "nothing is ever printed");
    }
}

#[test]
fn a_limit_on_file_sizes_does_not_kill_the_workload() {
    let folder = memory_folder();
    let env = [("TTMEM_SHM_DIR", folder.path().to_str().unwrap())];
    // Too little for any segment, and enough for one that cannot grow.
    for (limit, published) in [("10000", false), ("2000000", true)] {
        let mut producer = Producer::start_through(&["prlimit", &format!("--fsize={limit}")], &env);
        producer.define(1);
        producer.flood(10000, 12);
        assert_eq!(producer.status().live, 10_000);
        assert_eq!(!producer.status().segment.is_empty(), published);
        assert_eq!(producer.status().reason, "file size limit (ulimit -f) is too small for a segment");
        let (status, complaints) = producer.quit();
        assert!(status.success() && complaints.is_empty(), "{status} {complaints}");
    }
}

#[test]
fn it_says_what_goes_wrong_only_if_asked() {
    let mut producer =
        Producer::start_through(&[], &[("TTMEM_SHM_DIR", "/nowhere"), ("TTMEM_LOG", "stderr")]);
    producer.define(1);
    let (_, complaints) = producer.quit();
    assert!(complaints.contains("cannot open segment folder (TTMEM_SHM_DIR): No such file"), "{complaints}");
    // And tracks only if asked.
    let folder = memory_folder();
    let mut off =
        Producer::start_through(&[], &[("TTMEM_SHM_DIR", folder.path().to_str().unwrap()), ("TTMEM", "0")]);
    assert_eq!(off.define(1), 0);
    assert_eq!(off.alloc(4096, 64), 0);
    assert_eq!(off.status().live, 0);
    let mut old = Producer::start_through(
        &[],
        &[
            ("TTMEM_SHM_DIR", folder.path().to_str().unwrap()),
            ("TTMEM", "0"),
            ("TT_ALLOC_TRACKING_ENABLED", "1"),
        ],
    );
    assert_eq!(old.define(1), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn black_boxes_are_few() {
    let server = daemon();
    let mut names = Vec::new();
    for _ in 0..12 {
        let mut producer = Producer::new(server.segments.path());
        producer.alloc(4096, 64);
        names.push(producer.status().segment);
        producer.kill();
    }
    let left = eventually("the oldest are removed", || {
        server.snapshot();
        let left: Vec<bool> = names.iter().map(|name| server.segments.path().join(name).exists()).collect();
        (left.iter().filter(|&&it| it).count() <= 8).then_some(left)
    });
    assert_eq!(left.iter().filter(|&&it| it).count(), 8);
    assert!(left[4..].iter().all(|&it| it), "the newest stay");
    assert_eq!(server.snapshot().health.crash_segments, 8);
}

#[test]
fn an_event_makes_no_system_call() {
    let folder = memory_folder();
    let trace = tempfile::NamedTempFile::new().unwrap();
    let through = ["strace", "-f", "-o", trace.path().to_str().unwrap()];
    let mut producer =
        Producer::start_through(&through, &[("TTMEM_SHM_DIR", folder.path().to_str().unwrap())]);
    producer.define(1);
    producer.churn(100);
    producer.churn(50000);
    producer.ping();
    let calls = fs::read_to_string(trace.path()).unwrap();
    let calls: Vec<&str> = calls.lines().filter(|line| line.contains('(')).collect();
    let answers: Vec<usize> = (0..calls.len()).filter(|&n| calls[n].contains("write(1, \"{")).collect();
    // Between the answers to the first and the second churn: 100,000 events.
    let [.., first, second, _] = answers[..] else { panic!("{answers:?}") };
    let between = &calls[first + 1..second];
    assert!(between.iter().all(|call| call.contains("read(0,")), "{between:?}");
}

#[test]
fn names_of_programs_are_kept_once_however_many_have_them() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.define(1);
    for program in 1..=10_000 {
        producer.begin_program(program, "matmul".to_owned());
        if program < 9_990 {
            producer.end_program(program);
        }
    }
    // One that was there before it had a name.
    producer.place(20000, 105_824, 64);
    producer.begin_program(20000, "softmax".to_owned());
    // One that was dispatched before.
    producer.place(20001, 105_824, 64);
    producer.dispatch(20001);
    producer.begin_program(20001, "reshape".to_owned());
    let mut ttmem = Command::new(exe());
    let output = ttmem.args(["--local", "--json", "--programs", "--shm-dir"]).arg(folder.path());
    let snapshot: Snapshot = schema::snapshot(&output.output().unwrap().stdout);
    assert_eq!(snapshot.findings, [], "there was room for all of it");
    let programs = snapshot.processes[0].programs.clone().unwrap();
    let named = |name: &str| programs.iter().filter(|it| it.name.as_deref() == Some(name)).count();
    assert_eq!((programs.len(), named("matmul"), named("softmax"), named("reshape")), (13, 11, 1, 1));
    let reshape = programs.iter().find(|it| it.id == 20_001).unwrap();
    assert_eq!((reshape.dispatches, reshape.resident_cores > 0), (1, true), "its dispatch is still known");
}

#[test]
fn a_set_of_devices_is_found_again_however_much_is_defined() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.define(1);
    for n in 0..4000 {
        // In the end there is no room for more, which must not matter here.
        let _ = producer.attempt::<u64>(&Request::Site { site: format!("file.py:{n}") });
    }
    for device in 0..300 {
        assert!(producer.report(device, 4096, 100) > 0, "device {device}");
    }
    for device in 0..300 {
        assert!(producer.report_free(device, 4096) > 0, "device {device}");
    }
    assert_eq!(producer.status().live, 0);
}

#[test]
fn a_device_number_means_the_chip_that_the_process_calls_so() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.define(2);
    producer.alloc(4096, 24000);
    producer.report(1, 65536, 1000);
    let snapshot = local(folder.path());
    assert_eq!(snapshot.devices.len(), 2, "no third one of that number");
    let second = snapshot.processes[0].usage.iter().find(|it| it.device == snapshot.devices[1].id).unwrap();
    assert_eq!(second.usage.dram.as_ref().unwrap().requested_bytes, 25_000);
}
