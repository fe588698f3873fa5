//! Segments under limits: full tables, many trackers, no segment at all.

use super::*;

#[test]
fn device_opened_many_times_stays_tracked() {
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
    // Unlisted allocations are counted, with any number of earlier devices.
    producer.close_descriptors();
    producer.flood(6000, 10);
    assert!(producer.status().unlisted > 0);
    for snapshot in [server.snapshot(), local(server.segments.path())] {
        assert_eq!(process(&snapshot, producer.pid).map(dram), Some(60_000));
    }
}

#[test]
fn unlisted_program_memory_is_freed_with_its_program() {
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
    assert_eq!(cb(), Some((2, false)), "it is counted, but its address is unknown");
    producer.end_program(7);
    assert_eq!(cb(), Some((0, true)));
}

#[test]
fn many_trackers_are_one_process() {
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
    assert_eq!(snapshot.processes.iter().map(dram).collect::<Vec<_>>(), [1280], "128 trackers are read");
    assert_eq!(snapshot.health.skipped.len(), 2);
    assert!(snapshot.health.skipped[0].reason.contains("one segment too many of its process"));
    // Enabling it many times takes no more memory.
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
fn workload_runs_without_a_segment() {
    let home = tempfile::tempdir().unwrap();
    let denied = memory_folder();
    fs::set_permissions(denied.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let missing = home.path().join("missing");
    for (folder, through, reason) in [
        (missing.as_path(), &[][..], "No such file"),
        (Path::new("/proc"), &[], "segment folder is not on a tmpfs"),
        (
            home.path(),
            &[],
            "segment folder is not on a tmpfs: use /dev/shm, or a folder in it (TTMEM_SHM_DIR)",
        ),
        (denied.path(), &AS_OTHER_USER[..], "ermission denied"),
    ] {
        let mut producer = Producer::start_through(through, &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
        producer.define(1);
        producer.alloc(4096, 1200);
        producer.flood(5000, 12);
        assert_eq!(producer.status().segment, "");
        let found = producer.status().reason;
        assert!(found.contains(reason), "{found}");
        assert_eq!(producer.status().live, 5001, "figures are kept");
        assert_eq!(producer.peak(), 1200 + 5000 * BANKS);
        if folder == missing {
            // The folder is created later.
            let _later = std::os::unix::fs::symlink(denied.path(), &missing);
            producer.refresh();
            assert_ne!(producer.status().segment, "");
            assert_eq!(local(denied.path()).processes.iter().map(dram).collect::<Vec<_>>(), [61_200]);
        }
        let (status, errors) = producer.quit();
        assert!(status.success());
        assert_eq!(errors, "", "nothing is printed");
    }
}

#[test]
fn file_size_limit_does_not_kill_the_workload() {
    let folder = memory_folder();
    let env = [("TTMEM_SHM_DIR", folder.path().to_str().unwrap())];
    // Too small for any segment, and large enough for one that cannot grow.
    for (limit, published) in [("10000", false), ("2000000", true)] {
        let mut producer = Producer::start_through(&["prlimit", &format!("--fsize={limit}")], &env);
        producer.define(1);
        producer.flood(10000, 12);
        assert_eq!(producer.status().live, 10_000);
        assert_eq!(!producer.status().segment.is_empty(), published);
        assert_eq!(producer.status().reason, "file size limit (ulimit -f) is too small for a segment");
        let (status, errors) = producer.quit();
        assert!(status.success() && errors.is_empty(), "{status} {errors}");
    }
}

#[test]
fn errors_are_printed_only_on_request() {
    let mut producer =
        Producer::start_through(&[], &[("TTMEM_SHM_DIR", "/nowhere"), ("TTMEM_LOG", "stderr")]);
    producer.define(1);
    let (_, errors) = producer.quit();
    assert!(errors.contains("cannot open segment folder (TTMEM_SHM_DIR): No such file"), "{errors}");
    // Tracking can be disabled.
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
    assert_ne!(old.status().segment, "");
}

#[test]
fn events_make_no_system_calls() {
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
fn equal_program_names_are_stored_once() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.define(1);
    for program in 1..=10_000 {
        producer.begin_program(program, "matmul".to_owned());
        if program < 9_990 {
            producer.end_program(program);
        }
    }
    // A program that gets its name later.
    producer.place(20000, 105_824, 64);
    producer.begin_program(20000, "softmax".to_owned());
    // A program that was dispatched before it got its name.
    producer.place(20001, 105_824, 64);
    producer.dispatch(20001);
    producer.begin_program(20001, "reshape".to_owned());
    let mut ttmem = Command::new(exe());
    let output = ttmem.args(["--local", "--json", "--programs", "--shm-dir"]).arg(folder.path());
    let snapshot: Snapshot = schema::snapshot(&output.output().unwrap().stdout);
    assert_eq!(snapshot.findings, [], "all names were stored");
    let programs = snapshot.processes[0].programs.clone().unwrap();
    let named = |name: &str| programs.iter().filter(|it| it.name.as_deref() == Some(name)).count();
    assert_eq!((programs.len(), named("matmul"), named("softmax"), named("reshape")), (13, 11, 1, 1));
    let reshape = programs.iter().find(|it| it.id == 20_001).unwrap();
    assert_eq!((reshape.dispatches, reshape.resident_cores > 0), (1, true), "its dispatch is still known");
}

#[test]
fn device_sets_are_found_with_many_definitions() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.define(1);
    for n in 0..4000 {
        // In the end, definitions are full.
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
fn device_number_is_that_of_the_process() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.define(2);
    producer.alloc(4096, 24000);
    producer.report(1, 65536, 1000);
    let snapshot = local(folder.path());
    assert_eq!(snapshot.devices.len(), 2, "no third device");
    let second = snapshot.processes[0].usage.iter().find(|it| it.device == snapshot.devices[1].id).unwrap();
    assert_eq!(second.usage.dram.as_ref().unwrap().requested_bytes, 25_000);
}
