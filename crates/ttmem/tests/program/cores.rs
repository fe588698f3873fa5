//! Programs, cores and traces that processes publish.

use crate::exe;
use crate::segments::{daemon, local, process};
use std::path::Path;
use std::process::{Command, Output};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{CoreClass, FindingKind};
use ttmem_core::words::Basis;
use ttmem_testkit::producer::{Held, L1_END, L1_SMALL, Producer, UNRESERVED};
use ttmem_testkit::schema;

fn run_local(folder: &Path, args: &[&str]) -> Output {
    Command::new(exe()).args(args).args(["--local", "--shm-dir"]).arg(folder).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(folder: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(&run_local(folder, args))).unwrap()
}

/// A device of 4 x 2 cores, a buffer on half of them, and two programs.
fn busy(folder: &Path) -> Producer {
    let mut producer = Producer::start_through(&[], &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
    producer.define_grid(1, 4, 2);
    producer.alloc_l1(L1_SMALL - 8192, 8192, Some([(0, 0), (3, 0)]));
    producer.alloc_l1_small(L1_SMALL, 1024);
    producer.program(7, [(0, 0), (3, 1)]);
    producer.begin_program(7, "matmul".to_owned());
    producer.hold(7, Held::Cb, UNRESERVED, 4096, [(0, 0), (3, 1)]);
    producer.hold(7, Held::View, L1_SMALL - 8192, 8192, [(0, 0), (3, 0)]);
    producer.load_kernel(7, 1, 6144, [(0, 0), (3, 1)]);
    producer.program(8, [(0, 0), (1, 0)]);
    producer.begin_program(8, "reduce".to_owned());
    producer.hold(8, Held::Scratch, UNRESERVED + 4096, 2048, [(0, 0), (1, 0)]);
    producer
}

#[test]
fn last_dispatched_program_is_active() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    let usage = |shot: &Snapshot| shot.devices[0].usage.clone();
    let shot = server.snapshot();
    let cb = usage(&shot).cb.unwrap();
    assert_eq!(
        (cb.registered_bytes, cb.resident_bytes, cb.count),
        (8 * 4096, Some(0), Some(1)),
        "without the view"
    );
    producer.dispatch(7);
    for shot in [server.snapshot(), local(folder)] {
        let kernels = usage(&shot).kernel.unwrap();
        assert_eq!((kernels.registered_bytes, kernels.resident_bytes), (8 * 6144, Some(8 * 6144)));
        assert_eq!(usage(&shot).cb.unwrap().resident_bytes, Some(8 * 4096));
        let room = shot.devices[0].tightest_core.unwrap();
        assert_eq!((room.x, room.y, room.basis), (0, 0, Basis::Exact));
        assert_eq!((room.program_end, room.registered_end), (UNRESERVED + 4096, UNRESERVED + 6144));
        assert_eq!(room.free_gap_bytes, L1_SMALL - 8192 - UNRESERVED - 4096);
    }
    producer.dispatch(8);
    for shot in [server.snapshot(), local(folder)] {
        assert_eq!(usage(&shot).cb.unwrap().resident_bytes, Some(6 * 4096), "replaced on two cores");
        assert_eq!(usage(&shot).scratch.unwrap().resident_bytes, Some(2 * 2048));
        assert_eq!(usage(&shot).kernel.unwrap().resident_bytes, Some(6 * 6144));
    }
    producer.end_program(8);
    assert_eq!(usage(&server.snapshot()).cb.unwrap().resident_bytes, Some(8 * 4096));
}

#[test]
fn programs_and_cores_are_included_on_request() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    producer.dispatch(7);
    producer.dispatch(7);
    producer.dispatch(8);
    let plain: serde_json::Value = schema::snapshot(&run_local(folder, &["--json"]).stdout);
    assert!(plain["devices"][0].get("cores").is_none() && plain["processes"][0].get("programs").is_none());
    let full: Snapshot = schema::snapshot(&run_local(folder, &["--json", "--cores", "--programs"]).stdout);
    let output = Command::new(exe())
        .args(["--json", "--cores", "--programs", "--query-socket"])
        .arg(&server.query)
        .output()
        .unwrap();
    let from_daemon: Snapshot = schema::snapshot(&output.stdout);
    assert_eq!(full.devices[0].cores.as_ref().unwrap().len(), 8);
    for shot in [full, from_daemon] {
        let cores = shot.devices[0].cores.as_ref().unwrap();
        for core in cores {
            assert_eq!(core.intervals.iter().map(|it| it.bytes).sum::<u64>(), L1_END);
            let held =
                |class| core.intervals.iter().filter(|it| it.class == class).map(|it| it.bytes).sum::<u64>();
            let first_row = core.room.y == 0;
            assert_eq!(held(CoreClass::Buffer), if first_row { 8192 } else { 0 });
            assert_eq!(held(CoreClass::Lockstep), if first_row { 0 } else { 8192 });
            assert_eq!(held(CoreClass::L1Small), 1024);
            let reduces = first_row && core.room.x < 2;
            assert_eq!(held(CoreClass::Scratch), if reduces { 2048 } else { 0 });
            assert_eq!(held(CoreClass::Cb), if reduces { 0 } else { 4096 });
            let program = core.program.as_ref().unwrap();
            assert_eq!((program.id, program.pid), (if reduces { 8 } else { 7 }, Some(producer.pid)));
            let peak = core.peak.as_ref().expect("a peak");
            assert_eq!(peak.buffer_bytes, 8192 + 1024);
            assert!(peak.bytes >= 8192 + 1024 + 2048, "{peak:?}");
        }
        let programs = process(&shot, producer.pid).unwrap().programs.as_ref().unwrap();
        let [matmul, reduce] = &programs[..] else { panic!("{programs:?}") };
        assert_eq!((matmul.id, matmul.name.as_deref(), matmul.dispatches), (7, Some("matmul"), 2));
        assert_eq!((matmul.core_count, matmul.resident_cores, matmul.kernel_bytes), (8, 6, 6144));
        assert_eq!((matmul.cb_bytes, matmul.view_count), (8 * 4096, 1));
        assert_eq!((reduce.scratch_bytes, reduce.resident_cores), (2 * 2048, 2));
        assert_eq!(reduce.end, Some(UNRESERVED + 6144));
    }
}

#[test]
fn dump_lists_programs() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    producer.dispatch(7);
    let page = text(&run_local(folder, &["dump", "--programs"]));
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines[0].starts_with("DEVICE ") && lines[0].ends_with("STATE              NAME"), "{page}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let matmul = words(lines[1]);
    assert_eq!(matmul[..5], ["0", &producer.pid.to_string(), "7", "8", "6.0"], "{page}");
    assert!(lines[1].contains("0x19000") && lines[1].contains("active 8/8") && lines[1].ends_with("matmul"));
    assert!(lines[2].contains("cached") && lines[2].ends_with("reduce"), "{page}");
    assert!(lines[3].starts_with("2 programs, 1 active, dispatched 1 time"), "{page}");
    let data = json(folder, &["dump", "--programs", "--json"]);
    assert_eq!(data["schema"], 1);
    assert_eq!(data["programs"][0]["id"], 7);
    assert_eq!(data["programs"][0]["pid"], producer.pid);
    assert_eq!(data["programs"][0]["placements"].as_array().unwrap().len(), 2);
    let segment = folder.join(producer.status().segment);
    producer.kill();
    let crashed = Command::new(exe())
        // Not used: the file is read without a daemon.
        .env("TTMEM_QUERY_SOCKET", "/nowhere")
        .args(["dump", "--programs", "--segment"])
        .arg(&segment)
        .output()
        .unwrap();
    assert!(text(&crashed).contains("active 8/8"), "{crashed:?}");
}

#[test]
fn dump_groups_cores_and_shows_one_by_address() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    producer.dispatch(7);
    producer.dispatch(8);
    let page = text(&run_local(folder, &["dump", "--cores"]));
    assert!(
        page.contains("4 x 2 cores; L1 of each: 32.0 KiB reserved, 64.0 KiB kernel config buffer"),
        "{page}"
    );
    for group in ["\n0,0-1,0 ", "\n2,0-3,0 ", "\n0,1-3,1 "] {
        assert!(page.contains(group), "{group:?}: {page}");
    }
    assert_eq!(page.lines().count(), 2 + 3, "{page}");
    let one = text(&run_local(folder, &["dump", "--cores", "3,0"]));
    for line in [
        "core 3,0: free gap 1.2 MiB, 0x19000 to 0x14e000",
        &format!("Last program: pid {} program 7 matmul", producer.pid),
        "0x000000-0x008000    32.0 KiB  reserved",
        "0x018000-0x019000     4.0 KiB  circular buffers",
        &format!("0x18000 4.0 KiB, cb, pid {}, program 7 matmul", producer.pid),
        "0x14e000-0x150000     8.0 KiB  buffers",
        "0x150400-0x160000    63.0 KiB  free in L1_SMALL",
    ] {
        assert!(one.contains(line), "{line:?}: {one}");
    }
    let data = json(folder, &["dump", "--cores", "3,0", "--json"]);
    assert_eq!(data["devices"][0]["allocations"].as_array().unwrap().len(), 3, "without the view: {data}");
    let below = text(&run_local(folder, &["dump", "--cores", "3,1"]));
    let mut lines = below.lines().skip_while(|line| !line.contains("reserved by lock-step"));
    assert!(lines.nth(1).is_some_and(|line| line.trim().starts_with("0x14e000 8.0 KiB, l1")), "{below}");
    let data = json(folder, &["dump", "--cores", "0,1", "--json", "-d", "0"]);
    assert_eq!(data["devices"][0]["cores"]["list"].as_array().unwrap().len(), 1);
    assert_eq!(data["devices"][0]["cores"]["list"][0]["y"], 1);
    assert_eq!(data["devices"][0]["cores"]["maps"].as_array().unwrap().len(), 1);
    assert_eq!(data["devices"][0]["core_layout"]["columns"], 4);
    assert_eq!(data["devices"][0]["allocations"].as_array().unwrap().len(), 3, "buffer, L1_SMALL, CB");
    let segment = folder.join(producer.status().segment);
    let again = Command::new(exe()).args(["dump", "--cores", "--segment"]).arg(&segment).output().unwrap();
    assert!(text(&again).contains("0,0-1,0 "), "{again:?}");

    let nowhere = run_local(folder, &["dump", "--cores", "4,0"]);
    assert_eq!(nowhere.status.code(), Some(1));
    let error = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(error.contains("--cores 4,0: no such core; device 0 has 4 x 2 cores, 0,0 to 3,1"), "{error}");
    for wrong in [&["dump", "--cores", "x"][..], &["dump", "--cores", "--programs"], &["--cores"]] {
        assert_eq!(run_local(folder, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Cores with equal content, but other programs or another peak.
#[test]
fn cores_with_other_programs_have_rows_of_their_own() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    let core_rows = || {
        let output =
            Command::new(exe()).args(["dump", "--cores", "--query-socket"]).arg(&server.query).output();
        let page = text(&output.unwrap());
        page.lines().skip(2).map(|it| it.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    producer.dispatch(8);
    producer.dispatch(7);
    producer.end_program(8);
    assert_eq!(core_rows(), ["0,0-3,0", "0,1-3,1"], "the other program had less memory");
    producer.program(8, [(0, 0), (1, 0)]);
    producer.hold(8, Held::Scratch, UNRESERVED, 8192, [(0, 0), (1, 0)]);
    producer.dispatch(8);
    producer.dispatch(7);
    producer.end_program(8);
    assert_eq!(core_rows(), ["0,0-1,0", "2,0-3,0", "0,1-3,1"]);
    producer.program(9, [(2, 1), (3, 1)]);
    producer.hold(9, Held::Cb, UNRESERVED, 4096, [(2, 1), (3, 1)]);
    producer.dispatch(9);
    assert_eq!(core_rows(), ["0,0-1,0", "2,0-3,0", "0,1-1,1", "2,1-3,1"]);
}

/// Two processes whose programs have the same id; one of them uses a second device.
#[test]
fn cores_show_their_own_process_and_devices_their_programs() {
    let server = daemon();
    let folder = server.segments.path();
    let env = [("TTMEM_SHM_DIR", folder.to_str().unwrap())];
    let (mut wide, mut narrow) = (Producer::start_through(&[], &env), Producer::start_through(&[], &env));
    wide.define_grid(2, 4, 2);
    narrow.define_grid(1, 4, 2);
    for (producer, bytes) in [(&mut wide, 4096), (&mut narrow, 2048)] {
        producer.program(7, [(0, 0), (3, 1)]);
        producer.hold(7, Held::Cb, UNRESERVED, bytes, [(0, 0), (3, 1)]);
        producer.alloc_l1(L1_SMALL - bytes * 2, 1024, None);
        producer.dispatch(7);
    }
    let page = text(&run_local(folder, &["dump", "--programs"]));
    let lines: Vec<&str> = page.lines().skip(1).collect();
    // Sorted by device first, not by the order of starting.
    assert!(lines[0].contains(&narrow.pid.to_string()) && lines[0].contains("active 8/8"), "{page}");
    assert!(lines[1].contains(&wide.pid.to_string()) && lines[1].contains("active 8/16"), "{page}");
    for (device, cb, buffers) in [("0", &narrow, 2), ("1", &wide, 1)] {
        let data = json(folder, &["dump", "--cores", "1,1", "--json", "-d", device]);
        let listed = data["devices"][0]["allocations"].as_array().unwrap();
        let of = |space: &str| listed.iter().filter(|it| it["space"] == space).collect::<Vec<_>>();
        assert_eq!(of("l1").len(), buffers, "{listed:#?}");
        assert!(of("cb").len() == 1 && of("cb")[0]["pid"] == cb.pid, "{listed:#?}");
    }
    let page = text(&run_local(folder, &["dump", "--cores", "1,1", "-d", "0"]));
    for address in ["0x14e000", "0x14f000"] {
        assert_eq!(page.matches(&format!(" {address} 1.0 KiB, l1")).count(), 1, "{page}");
    }
}

#[test]
fn unknown_core_layout_is_reported() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = Producer::new(folder);
    producer.alloc(4096, 100);
    let output = run_local(folder, &["dump", "--cores"]);
    assert_eq!(output.status.code(), Some(3));
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.contains("Device 0") && page.contains("start it with `ttmem run`"), "{page}");
}

#[test]
fn cores_with_equal_rows_share_one() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    producer.dispatch(7);
    // On two of the cores the cached program ends higher, but no column shows that.
    let page = text(&run_local(folder, &["dump", "--cores"]));
    assert!(page.contains("\n0,0-3,0 ") && page.contains("\n0,1-3,1 "), "{page}");
    assert_eq!(page.lines().count(), 2 + 2, "{page}");
}

#[test]
fn table_shows_the_smallest_free_gap() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    producer.dispatch(7);
    for args in [&["-v"][..], &["-v", "--ascii"]] {
        let page = text(&run_local(folder, args));
        assert!(
            page.contains(
                "    Free gap       1.2 MiB                         at least, core 0,0: 0x19000 to 0x14e000\n"
            ),
            "{page}"
        );
        assert!(page.contains("  active; 32.0 KiB with cached programs"), "{page}");
    }
}

#[test]
fn buffers_endangered_by_a_replay_are_a_finding() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = busy(folder);
    producer.trace(3, 17);
    producer.replay_trace(3);
    let first_trace = |shot: &Snapshot| process(shot, producer.pid).unwrap().traces[0].clone();
    let trace = first_trace(&server.snapshot());
    assert_eq!((trace.id, trace.dispatches, trace.replays), (3, 17, 1));
    assert_eq!((trace.endangered_count, trace.devices.len()), (0, 1));
    producer.alloc(4096, 1200);
    producer.alloc_l1(131_072, 4096, None);
    // Buffers that were overwritten once can be again.
    producer.replay_trace(3);
    for shot in [server.snapshot(), local(folder)] {
        let trace = process(&shot, producer.pid).unwrap().traces[0].clone();
        assert_eq!((trace.endangered_count, trace.endangered_bytes), (2, 1200 + 4096));
        let found = shot.findings.iter().find(|it| it.kind == FindingKind::TraceOverwrite).unwrap();
        assert!(found.text.contains("trace 3 may overwrite 2 buffers (5.2 KiB)"), "{found:?}");
    }
    producer.end_trace(3);
    let shot = server.snapshot();
    assert!(process(&shot, producer.pid).unwrap().traces.is_empty());
    assert!(shot.findings.iter().all(|it| it.kind != FindingKind::TraceOverwrite));
}
