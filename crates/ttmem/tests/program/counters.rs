//! tt-metal counters in files made by hand: all layouts, exited processes, containers and impossible numbers.

mod owners;

use crate::machine::{parse_snapshot, read_snapshot, start_daemon, ttmem};
use crate::{AS_OTHER_USER, copy_program, exe};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Device, Finding, FindingKind, Process};
use ttmem_core::words::{Basis, Space};
use ttmem_testkit::machine::{self, BOOT, Card, FakeProcess, Machine};
use ttmem_testkit::{Server, eventually};
use ttmem_wire::region::{ChipSlot, Layout, Levels, PROCESS_SLOTS, ProcessSlot, Region, build};

/// Clock ticks in a second.
pub(crate) const TICKS: u64 = 100;

pub(crate) fn levels(n: u64) -> Levels {
    Levels { dram: n << 20, l1: n << 10, l1_small: n << 4, trace: n << 8, cb: n << 6, kernel: 0 }
}

fn sum(slots: &[ProcessSlot]) -> Levels {
    let total = |level: fn(&Levels) -> u64| slots.iter().map(|slot| level(&slot.held)).sum();
    Levels {
        dram: total(|it| it.dram),
        l1: total(|it| it.l1),
        l1_small: total(|it| it.l1_small),
        trace: total(|it| it.trace),
        cb: total(|it| it.cb),
        kernel: total(|it| it.kernel),
    }
}

/// An entry that was last changed this many seconds after boot.
pub(crate) fn entry(layout: Layout, slot: usize, pid: u32, name: &str, n: u64, seconds: u64) -> ProcessSlot {
    let wall = layout >= Layout::V2;
    let updated_ns = (if wall { BOOT } else { 0 } + seconds) * 1_000_000_000;
    ProcessSlot { slot, pid, held: levels(n), updated_ns, name: name.to_owned() }
}

pub(crate) fn region(layout: Layout, id: u64, device: u32, processes: Vec<ProcessSlot>) -> Region {
    let totals = sum(&processes);
    let chips = vec![ChipSlot { chip_id: device, remote: false, held: totals }];
    Region { asic_id: id, device_id: device, totals, chips, processes, ..Region::new(layout) }
}

pub(crate) fn file(machine: &Machine, id: u64) -> PathBuf {
    machine.root().join(format!("dev/shm/tt_device_{id}_memory"))
}

pub(crate) fn put(machine: &Machine, id: u64, region: &Region) -> PathBuf {
    let path = file(machine, id);
    fs::write(&path, build(region.layout, region)).unwrap();
    path
}

/// An n150 and a process that uses it. The id is the one of the first runtimes: the serial number.
pub(crate) fn busy(pid: u32) -> (Machine, u64) {
    let mut machine = machine::n150("2.10.0");
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(pid, "python", &[0]) });
    let serial = read_snapshot(&machine).devices[0].serial.clone().unwrap();
    (machine, u64::from_str_radix(&serial, 16).unwrap())
}

pub(crate) fn one(snapshot: &Snapshot, pid: u32) -> &Process {
    let mut found = snapshot.processes.iter().filter(|it| it.pid == Some(pid));
    found.next().unwrap_or_else(|| panic!("pid {pid} is not among {:#?}", snapshot.processes))
}

pub(crate) fn held(process: &Process) -> Vec<(Space, u64)> {
    let usage = &process.usage[0].usage;
    let spaces = [Space::Dram, Space::L1, Space::L1Small, Space::Trace, Space::Cb, Space::Kernel];
    spaces.into_iter().filter_map(|space| Some((space, usage.used(space)?.0))).collect()
}

pub(crate) fn expected(n: u64) -> Vec<(Space, u64)> {
    let levels = levels(n);
    vec![
        (Space::Dram, levels.dram),
        (Space::L1, levels.l1),
        (Space::L1Small, levels.l1_small),
        (Space::Trace, levels.trace),
        (Space::Cb, levels.cb),
    ]
}

pub(crate) fn found(snapshot: &Snapshot, kind: FindingKind) -> Vec<&Finding> {
    snapshot.findings.iter().filter(|it| it.kind == kind).collect()
}

#[test]
fn every_layout_is_read() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        let mut region = region(layout, id, 0, vec![entry(layout, 41, 700, "python", 3, 100)]);
        let mut wanted = expected(3);
        if layout.has_kernels() {
            region.processes[0].held.kernel = 77;
            region.totals.kernel = 77;
            wanted.push((Space::Kernel, 77));
        }
        put(&machine, id, &region);
        let snapshot = read_snapshot(&machine);
        let process = one(&snapshot, 700);
        assert_eq!(held(process), wanted, "{layout:?}");
        assert_eq!((process.basis, process.complete), (Basis::Counters, false), "{layout:?}");
        assert_eq!(snapshot.devices.len(), 1, "the same device by another id: {layout:?}");
        assert_eq!(snapshot.devices[0].names, [format!("0x{id:016x}")]);
        assert_eq!(snapshot.devices[0].usage.dram.as_ref().unwrap().requested_bytes, 3 << 20);
        assert_eq!(
            (snapshot.findings.len(), snapshot.health.counter_files),
            (0, 1),
            "{:?}",
            snapshot.findings
        );
    }
}

#[test]
fn dump_lists_processes_known_by_counters_only() {
    let (machine, id) = busy(700);
    put(&machine, id, &region(Layout::V1, id, 0, vec![entry(Layout::V1, 0, 700, "python", 1, 100)]));
    let output = ttmem(&machine, &["dump"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(!page.contains("0 allocations"), "{page}");
    let page = page.replace('\n', " ");
    assert!(
        page.contains("buffers not listed: only tt-metal counters are known of pid 700 (python)"),
        "{page}"
    );
    assert!(page.contains("`ttmem run -- CMD`"), "{page}");
    let json = ttmem(&machine, &["dump", "--json"]);
    assert!(String::from_utf8(json.stderr).unwrap().contains("pid 700 (python)"));
    assert!(String::from_utf8(json.stdout).unwrap().ends_with("\"allocations\":[]}\n"));
}

#[test]
fn exited_processes_are_ghosts_if_their_pid_is_reused() {
    for layout in Layout::ALL {
        let (mut machine, id) = busy(700);
        // One has exited; the pid of another was reused by a process that started after the entry was last changed.
        machine.add_process(FakeProcess { start: 200 * TICKS, ..FakeProcess::new(702, "python", &[]) });
        let all = vec![
            entry(layout, 0, 700, "python", 1, 100),
            entry(layout, 1, 701, "python", 2, 100),
            entry(layout, 2, 702, "python", 4, 150),
        ];
        put(&machine, id, &region(layout, id, 0, all));
        let snapshot = read_snapshot(&machine);
        assert_eq!(held(one(&snapshot, 700))[..5], expected(1));
        assert_eq!(snapshot.processes.len(), 1, "{layout:?}");
        assert_eq!(snapshot.devices[0].usage.dram.as_ref().unwrap().requested_bytes, 1 << 20);
        let ghosts = found(&snapshot, FindingKind::GhostBytes);
        assert_eq!(ghosts.iter().map(|it| it.pid).collect::<Vec<_>>(), [Some(701), Some(702)]);
        let all = levels(2);
        assert_eq!(ghosts[0].bytes, Some(all.dram + all.l1 + all.l1_small + all.trace + all.cb));
        assert_eq!(ghosts[0].device.as_ref(), Some(&snapshot.devices[0].id));
    }
}

#[test]
fn exited_processes_are_found_after_a_clock_change() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    let server = start_daemon(&machine);
    assert_eq!(held(one(&server.snapshot(), 700)), expected(5));
    // The clock is set by an hour. The process writes again and exits; another one of that name gets its pid.
    machine
        .set("proc/stat", &format!("cpu  0 0 0 0 0 0 0 0 0 0\nctxt 0\nbtime {}\nprocesses 1\n", BOOT + 3600));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    machine.end_process(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 6, 3600 + 120)]));
    machine.add_process(FakeProcess { start: 150 * TICKS, ..FakeProcess::new(700, "python", &[]) });
    let snapshot = server.snapshot();
    assert_eq!(found(&snapshot, FindingKind::GhostBytes).len(), 1, "{:?}", snapshot.processes);
    assert!(snapshot.processes.iter().all(|it| it.usage.is_empty()));
}

#[test]
fn zombie_process_has_exited() {
    let (machine, id) = busy(800);
    put(&machine, id, &region(Layout::V3, id, 0, vec![entry(Layout::V3, 0, 800, "python", 5, 2000)]));
    let stat = fs::read_to_string(machine.proc(800, "stat")).unwrap();
    let ended = stat.replace(") S ", ") Z ");
    // Its first thread has exited, two others run.
    let fields: Vec<&str> = ended.split(' ').collect();
    let (before, behind) = (fields[..19].join(" "), fields[20..].join(" "));
    machine.set(machine.proc(800, "stat"), &format!("{before} 3 {behind}"));
    assert_eq!(held(one(&read_snapshot(&machine), 800)), expected(5));
    machine.set(machine.proc(800, "stat"), &ended);
    let snapshot = read_snapshot(&machine);
    assert_eq!(snapshot.processes, []);
    assert_eq!(found(&snapshot, FindingKind::GhostBytes).len(), 1);
}

#[test]
fn exited_and_detached_processes_are_gone_at_once() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    let shm = machine.root().join("dev/shm");
    let args = ["--root", machine.root().to_str().unwrap(), "--shm-dir", shm.to_str().unwrap()];
    let server = Server::start(exe(), &args);
    let dram = |server: &Server| server.usage(0).dram.map(|it| it.requested_bytes);
    assert_eq!(dram(&server), Some(5 << 20));
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 6, 110)]));
    assert_eq!(dram(&server), Some(6 << 20), "an answer is current");
    put(&machine, id, &region(layout, id, 0, Vec::new()));
    assert_eq!(dram(&server), None, "detached: its memory is unknown");
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 7, 120)]));
    assert_eq!(dram(&server), Some(7 << 20));
    // Killed: the entry stays and becomes a ghost.
    machine.end_process(700);
    machine.set(machine.pids(0), "");
    assert_eq!(dram(&server), None);
    assert_eq!(found(&server.snapshot(), FindingKind::GhostBytes).len(), 1);
    // Another process gets its pid and its entry, then is killed, too.
    machine.add_process(FakeProcess { start: 130 * TICKS, ..FakeProcess::new(700, "python", &[0]) });
    assert_eq!(dram(&server), None, "the entry is older than the process");
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 8, 140)]));
    assert_eq!(dram(&server), Some(8 << 20));
    machine.end_process(700);
    assert_eq!(found(&server.snapshot(), FindingKind::GhostBytes).len(), 1);
    fs::remove_file(file(&machine, id)).unwrap();
    eventually("the finding is removed with the file", || {
        server.snapshot().findings.is_empty().then_some(())
    });
}

#[test]
fn process_that_execs_holds_nothing() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    let server = start_daemon(&machine);
    assert_eq!(server.usage(0).dram.map(|it| it.requested_bytes), Some(5 << 20));
    let stat = fs::read_to_string(machine.proc(700, "stat")).unwrap();
    machine.set(machine.proc(700, "maps"), "7f00-7f01 r--p 00000000 fe:01 4711 /bin/sleep\n");
    machine.set(machine.proc(700, "stat"), &stat.replace("(python)", "(sleep)"));
    eventually("its memory is gone", || server.usage(0).dram.is_none().then_some(()));
    assert_eq!(found(&server.snapshot(), FindingKind::GhostBytes).len(), 1);
}

#[test]
fn unattributed_bytes_are_reported() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    let mut region = region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]);
    region.totals.l1 += 4096;
    put(&machine, id, &region);
    let snapshot = read_snapshot(&machine);
    assert_eq!(held(one(&snapshot, 700)), expected(1));
    let lost = found(&snapshot, FindingKind::Unattributed);
    assert_eq!((lost.len(), lost[0].bytes, lost[0].space), (1, Some(4096), Some(Space::L1)));
    assert_eq!(snapshot.devices[0].usage.l1.as_ref().unwrap().requested_bytes, 1024);
    // A total below the sum of its entries is another finding.
    region.totals.l1 = 0;
    put(&machine, id, &region);
    let snapshot = read_snapshot(&machine);
    assert!(
        found(&snapshot, FindingKind::Counters)[0].text.contains("have a total of 0 B of l1, but 1.0 KiB")
    );
}

#[test]
fn two_slots_of_a_process_add_up_and_broken_ones_do_not() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        // Two threads of a process can each take a slot at the same time.
        let all = vec![entry(layout, 3, 700, "python", 1, 100), entry(layout, 9, 700, "python", 2, 100)];
        put(&machine, id, &Region { broken_slots: 2, ..region(layout, id, 0, all) });
        let snapshot = read_snapshot(&machine);
        assert_eq!((held(one(&snapshot, 700)).first(), snapshot.processes.len()), (expected(3).first(), 1));
        let [finding] = found(&snapshot, FindingKind::Counters)[..] else {
            panic!("{:?}", snapshot.findings)
        };
        assert!(finding.text.contains("have 2 entries with impossible pids"), "{layout:?}: {}", finding.text);
    }
}

#[test]
fn impossible_numbers_are_findings() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    // More than the capacity, more than any device has, a garbage name, and all slots in use.
    let mut all: Vec<ProcessSlot> =
        (1..PROCESS_SLOTS).map(|n| entry(layout, n, 100_000 + n as u32, "\u{1b}[2J\u{7}", 1, 100)).collect();
    all.insert(0, entry(layout, 0, 700, "python", 1, 100));
    all[0].held.dram = 20 << 30;
    all[0].held.l1 = u64::MAX - 5;
    let mut region = region(layout, id, 0, Vec::new());
    region.totals.dram = u64::MAX;
    region.processes = all;
    put(&machine, id, &region);
    let snapshot = read_snapshot(&machine);
    let usage = &snapshot.devices[0].usage;
    assert_eq!(usage.dram.as_ref().unwrap().requested_bytes, 20 << 30, "the reported figure is shown");
    assert!(usage.l1.is_none(), "more than any device has is not");
    assert_eq!(found(&snapshot, FindingKind::OverCapacity).len(), 1);
    let texts: Vec<&str> =
        found(&snapshot, FindingKind::Counters).iter().map(|it| it.text.as_str()).collect();
    assert!(
        texts.iter().any(|it| it.contains("16.0 EiB of l1 for pid 700, more than any device has")),
        "{texts:?}"
    );
    assert!(texts.iter().any(|it| it.contains("all 64 entries are in use")), "{texts:?}");
    assert_eq!(found(&snapshot, FindingKind::GhostBytes).len(), 63);
    let output = ttmem(&machine, &["-v"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("not possible") && page.contains(" 20.0 GiB/12.0 GiB >100 "), "{page}");
    assert!(!page.contains('\x1b'), "{page}");
    let breakdown = page.split("Memory breakdown").nth(1).unwrap();
    let shares = breakdown
        .split_whitespace()
        .zip(breakdown.split_whitespace().skip(1))
        .filter(|(_, unit)| *unit == "%");
    for (share, _) in shares {
        assert!(share.parse::<f64>().is_ok_and(|it| it <= 100.0), "{share} %");
    }
}

#[test]
fn unreadable_files_are_listed_and_hide_nothing_else() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]));
    let good = build(layout, &region(layout, 1, 0, Vec::new()));
    let mut version = good.clone();
    version[0] = 99;
    fs::write(file(&machine, 1), &version).unwrap();
    fs::write(file(&machine, 2), &good[..8575]).unwrap();
    fs::write(file(&machine, 3), "").unwrap();
    fs::write(file(&machine, 4), vec![0xff; 1 << 20]).unwrap();
    fs::create_dir(file(&machine, 5)).unwrap();
    symlink("/etc/passwd", file(&machine, 6)).unwrap();
    assert!(Command::new("mkfifo").arg(file(&machine, 7)).status().unwrap().success());
    fs::write(machine.root().join("dev/shm/tt_device_x_memory"), &good).unwrap();
    fs::write(machine.root().join("dev/shm/tt_device_08_memory"), &good).unwrap();
    let snapshot = read_snapshot(&machine);
    assert_eq!(held(one(&snapshot, 700)), expected(1));
    assert_eq!(snapshot.devices.len(), 1);
    let reason = |n: u64| {
        let name = format!("tt_device_{n}_memory");
        let found = snapshot.health.skipped.iter().find(|it| it.path.ends_with(&name));
        found.unwrap_or_else(|| panic!("{name} is not among {:?}", snapshot.health.skipped)).reason.clone()
    };
    assert!(reason(1).contains("99"), "{}", reason(1));
    assert!(reason(2).contains("8575"), "{}", reason(2));
    assert!(reason(3).contains("being made"), "{}", reason(3));
    assert_eq!(
        (reason(5), reason(6), reason(7)),
        (
            "is a folder, not a file".into(),
            "is a symbolic link, not a file".into(),
            "is a pipe, not a file".into()
        )
    );
    assert!(found(&snapshot, FindingKind::Counters).iter().any(|it| it.text.contains("99")));
    // A file that was incomplete is read once it is complete.
    fs::write(file(&machine, 3), build(layout, &region(layout, 3, 0, Vec::new()))).unwrap();
    assert!(read_snapshot(&machine).health.skipped.iter().all(|it| !it.path.ends_with("tt_device_3_memory")));
}

#[test]
fn invalid_file_names_hide_nothing() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]));
    for n in 0..1100 {
        fs::write(machine.root().join(format!("dev/shm/tt_device_00{n}_memory")), "").unwrap();
    }
    assert_eq!(held(one(&read_snapshot(&machine), 700)), expected(1));
}

#[test]
fn many_files_of_one_user_do_not_hide_those_of_others() {
    let (machine, id) = busy(700);
    let layout = Layout::V3;
    let empty = build(layout, &Region::new(layout));
    // Their names sort before that of the file that must be read.
    for n in 0..1100 {
        let path = file(&machine, 1_000_000 + n);
        fs::write(&path, &empty).unwrap();
        chown(&path, Some(65534), None).unwrap();
    }
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    // The default limit of descriptors.
    let root = machine.root().to_str().unwrap();
    let mut once = Command::new("prlimit");
    let once = once.arg("--nofile=1024:4096").arg(exe()).args(["--root", root, "--json"]).output();
    let once = parse_snapshot(&once.unwrap());
    assert_eq!(held(one(&once, 700)), expected(5));
    let shm = machine.root().join("dev/shm");
    let server = Server::start(exe(), &["--root", root, "--shm-dir", shm.to_str().unwrap()]);
    for _ in 0..3 {
        let snapshot = server.snapshot();
        assert_eq!(held(one(&snapshot, 700)), expected(5));
        assert_eq!(snapshot.health.counter_files, 128 + 1, "no more files are open after repeated queries");
    }
}
