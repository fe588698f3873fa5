//! The lifetime of segments: exit, fork, exec, and removed files.

use super::*;

#[test]
fn killed_process_leaves_a_crash_segment() {
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
    let reclaimed = finding(&server, FindingKind::Reclaimed).expect("its memory is reclaimed");
    // In 12 banks, and on four cores.
    let bytes = 12 * 84 + 4 * 64;
    assert_eq!((reclaimed.pid, reclaimed.bytes, reclaimed.count), (Some(victim.pid), Some(bytes), 2));
    for snapshot in [server.snapshot(), local(folder)] {
        assert!(process(&snapshot, victim.pid).is_none());
        assert_eq!(dram(process(&snapshot, other.pid).unwrap()), 77);
        assert_eq!((snapshot.health.segments, snapshot.health.crash_segments), (1, 1));
    }
    let dump = Command::new(exe()).args(["dump", "--segment"]).arg(folder.join(&segment)).output().unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(dump.contains("\n2 allocations, ") && dump.contains("program 3 softmax"), "{dump}");
    // A copy can be read as well, for example from a bug report.
    let copy = server.folder.path().join("copy");
    fs::copy(folder.join(&segment), &copy).unwrap();
    let again = Command::new(exe()).args(["dump", "--json", "--segment"]).arg(&copy).output().unwrap();
    let again: serde_json::Value = schema::dump(&again.stdout);
    assert_eq!(again["allocations"].as_array().unwrap().len(), 2);
}

/// Number of files in a folder.
fn count_files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
}

/// The text of the event that a process exited.
fn exit_event(server: &Server, pid: u32) -> (Option<u64>, String) {
    let exited =
        server.events().into_iter().find(|it| it.kind == EventKind::ProcessExited && it.pid == Some(pid));
    let exited = exited.expect("its exit is an event");
    (exited.bytes, exited.text)
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
        assert_eq!(count_files(folder), 0, "with {threads} threads");
        assert!(server.process(producer.pid).is_none());
        assert_eq!(server.snapshot().health.crash_segments, 0);
        if threads == 0 {
            assert!(finding(&server, FindingKind::Reclaimed).is_none(), "it had no memory");
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
    // The daemon has not read this yet when the file is removed.
    producer.alloc(8192, 24);
    producer.exit_cleanly(0);
    assert_eq!(count_files(server.segments.path()), 0);
    let reclaimed = eventually("its exit is noticed", || finding(&server, FindingKind::Reclaimed));
    assert_eq!((reclaimed.pid, reclaimed.bytes, reclaimed.count), (Some(producer.pid), Some(12 * 86), 2));
    let (bytes, text) = exit_event(&server, producer.pid);
    assert!(bytes == Some(12 * 86) && text.contains("2 allocations"), "{text}");
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
        // With the copy of that moment.
        assert_eq!((count_files(folder.path()), local(folder.path()).health.crash_segments), (2, 1));
    }
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.alloc(4096, 64);
    producer.close_tracker();
    assert_eq!(count_files(folder.path()), 0, "without one, closing removes it");
}

#[test]
fn forked_child_does_not_remove_its_parents_segment() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.alloc(4096, 64);
    for allocates in [false, true] {
        producer.exit_in_child(allocates);
        assert_eq!(count_files(folder.path()), 1);
        assert_eq!(local(folder.path()).processes.iter().map(dram).collect::<Vec<_>>(), [64]);
    }
    producer.exit_cleanly(0);
    assert_eq!(count_files(folder.path()), 0);
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
    // A new segment removes the oldest ones.
    let mut producer = Producer::new(folder.path());
    let left: Vec<bool> = names.iter().map(|name| folder.path().join(name).exists()).collect();
    assert_eq!(left, [[false; 3].as_slice(), &[true; 8]].concat());
    assert_eq!(producer.peak(), 0, "the new segment works");
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
        assert_eq!(dram(process(&snapshot, producer.pid).unwrap()), 64, "{how:?}: memory of the parent");
        for (n, &pid) in children.iter().enumerate() {
            let child = process(&snapshot, pid).unwrap_or_else(|| panic!("{how:?}: child {n} is not listed"));
            assert_eq!(dram(child), 100 + n as u64, "{how:?}");
        }
        let inherited = finding(&server, FindingKind::InheritedFree).expect("frees of the parent's buffers");
        assert!(children.contains(&inherited.pid.unwrap()));
        assert!(finding(&server, FindingKind::UnknownFree).is_none());
        producer.reap(pids);
        let snapshot = server.snapshot();
        assert_eq!(snapshot.processes.len(), 1, "{how:?}");
        // The parent is not affected.
        producer.alloc(8192, 6);
        assert_eq!(dram(&server.process(producer.pid).unwrap()), 70);
    }
}

#[test]
fn process_that_spawns_others_is_not_affected() {
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
fn process_that_execs_holds_nothing() {
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
    assert!(Path::new(&format!("/proc/{}", producer.pid)).exists(), "it still runs");
}

#[test]
fn process_that_closes_all_descriptors_is_tracked() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 64);
    producer.close_descriptors();
    producer.alloc(8192, 6);
    for snapshot in [server.snapshot(), local(server.segments.path())] {
        assert_eq!(process(&snapshot, producer.pid).map(dram), Some(70));
    }
    // Its table cannot grow any more; further allocations are counted but not listed.
    producer.flood(10000, 10);
    let it = server.process(producer.pid).unwrap();
    assert_eq!(dram(&it), 100_070);
    assert!(producer.status().unlisted > 0 && finding(&server, FindingKind::Unlisted).is_some());
    assert_eq!(local(server.segments.path()).processes.iter().map(dram).collect::<Vec<_>>(), [100_070]);
    producer.kill();
    assert!(server.process(producer.pid).is_none());
}

#[test]
fn removed_segment_is_created_again() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.flood(9000, 100);
    producer.place(3, 105_824, 64);
    let first = producer.status().segment;
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 900_000);
    fs::remove_file(server.segments.path().join(&first)).unwrap();
    // The daemon still has it open.
    producer.alloc(4096, 1);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 900_001);
    assert!(local(server.segments.path()).processes.is_empty());
    producer.refresh();
    assert_ne!(producer.status().segment, first);
    for snapshot in [local(server.segments.path()), server.snapshot()] {
        let found = process(&snapshot, producer.pid).unwrap();
        assert_eq!((dram(found), found.usage[0].usage.cb.as_ref().unwrap().count), (900_001, Some(1)));
    }
    producer.free(4096);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 900_000);
}

#[test]
fn failed_refresh_keeps_the_figures() {
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
fn crash_segments_are_limited() {
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
