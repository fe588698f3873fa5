//! tt-metal's own counters, in files made by hand: every layout, the dead, containers, and numbers that cannot be.

use crate::machine::{follow, parsed, seen, ttmem};
use crate::{NOBODY, copied, exe};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Device, Finding, FindingKind, Process};
use ttmem_core::words::{Basis, Space};
use ttmem_testkit::machine::{self, BOOT, Card, FakeProcess, Machine};
use ttmem_testkit::{Server, eventually, memory_folder};
use ttmem_wire::region::{ChipSlot, Layout, Levels, PROCESS_SLOTS, ProcessSlot, Region, build};

/// Clock ticks in a second.
pub(crate) const TICKS: u64 = 100;

pub(crate) fn levels(n: u64) -> Levels {
    Levels { dram: n << 20, l1: n << 10, l1_small: n << 4, trace: n << 8, cb: n << 6, kernel: 0 }
}

fn sum(all: &[ProcessSlot]) -> Levels {
    let of = |of: fn(&Levels) -> u64| all.iter().map(|it| of(&it.held)).sum();
    Levels {
        dram: of(|it| it.dram),
        l1: of(|it| it.l1),
        l1_small: of(|it| it.l1_small),
        trace: of(|it| it.trace),
        cb: of(|it| it.cb),
        kernel: of(|it| it.kernel),
    }
}

/// An entry that was last changed so many seconds after boot.
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

/// An n150 whose first runtime gave it its serial number as its name, and a process that uses it.
pub(crate) fn busy(pid: u32) -> (Machine, u64) {
    let mut machine = machine::n150("2.10.0");
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(pid, "python", &[0]) });
    let serial = seen(&machine).devices[0].serial.clone().unwrap();
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
    let it = levels(n);
    vec![
        (Space::Dram, it.dram),
        (Space::L1, it.l1),
        (Space::L1Small, it.l1_small),
        (Space::Trace, it.trace),
        (Space::Cb, it.cb),
    ]
}

pub(crate) fn found(snapshot: &Snapshot, kind: FindingKind) -> Vec<&Finding> {
    snapshot.findings.iter().filter(|it| it.kind == kind).collect()
}

#[test]
fn every_layout_is_read_and_says_what_its_processes_hold() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        let mut it = region(layout, id, 0, vec![entry(layout, 41, 700, "python", 3, 100)]);
        let mut wanted = expected(3);
        if layout.has_kernels() {
            it.processes[0].held.kernel = 77;
            it.totals.kernel = 77;
            wanted.push((Space::Kernel, 77));
        }
        put(&machine, id, &it);
        let snapshot = seen(&machine);
        let process = one(&snapshot, 700);
        assert_eq!(held(process), wanted, "{layout:?}");
        assert_eq!((process.basis, process.complete), (Basis::Counters, false), "{layout:?}");
        assert_eq!(snapshot.devices.len(), 1, "the same chip, by another name: {layout:?}");
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
fn dump_says_whose_buffers_only_counters_know() {
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
fn the_dead_are_ghosts_whoever_has_their_pid_now() {
    for layout in Layout::ALL {
        let (mut machine, id) = busy(700);
        // One is gone; one's pid is another's by now, who started after the entry was last changed.
        machine.add_process(FakeProcess { start: 200 * TICKS, ..FakeProcess::new(702, "python", &[]) });
        let all = vec![
            entry(layout, 0, 700, "python", 1, 100),
            entry(layout, 1, 701, "python", 2, 100),
            entry(layout, 2, 702, "python", 4, 150),
        ];
        put(&machine, id, &region(layout, id, 0, all));
        let snapshot = seen(&machine);
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
fn the_dead_are_told_apart_after_somebody_set_the_clock() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    let server = follow(&machine);
    assert_eq!(held(one(&server.snapshot(), 700)), expected(5));
    // By an hour. Then it writes again, ends, and another one of that name gets its pid.
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
fn one_that_ended_is_dead_even_if_nobody_asked_for_its_fate() {
    let (machine, id) = busy(800);
    put(&machine, id, &region(Layout::V3, id, 0, vec![entry(Layout::V3, 0, 800, "python", 5, 2000)]));
    let stat = fs::read_to_string(machine.proc(800, "stat")).unwrap();
    let ended = stat.replace(") S ", ") Z ");
    // Its first thread ended, and two others go on.
    let fields: Vec<&str> = ended.split(' ').collect();
    let (before, behind) = (fields[..19].join(" "), fields[20..].join(" "));
    machine.set(machine.proc(800, "stat"), &format!("{before} 3 {behind}"));
    assert_eq!(held(one(&seen(&machine), 800)), expected(5));
    machine.set(machine.proc(800, "stat"), &ended);
    let snapshot = seen(&machine);
    assert_eq!(snapshot.processes, []);
    assert_eq!(found(&snapshot, FindingKind::GhostBytes).len(), 1);
}

#[test]
fn a_process_that_ends_or_detaches_is_gone_at_once() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    let shm = machine.root().join("dev/shm");
    let args = ["--root", machine.root().to_str().unwrap(), "--shm-dir", shm.to_str().unwrap()];
    let server = Server::start(exe(), &args);
    let dram = |server: &Server| server.usage(0).dram.map(|it| it.requested_bytes);
    assert_eq!(dram(&server), Some(5 << 20));
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 6, 110)]));
    assert_eq!(dram(&server), Some(6 << 20), "an answer is as of now");
    put(&machine, id, &region(layout, id, 0, Vec::new()));
    assert_eq!(dram(&server), None, "detached: nothing is known of it");
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 7, 120)]));
    assert_eq!(dram(&server), Some(7 << 20));
    // Killed: the entry stays, and is a ghost's.
    machine.end_process(700);
    machine.set(machine.pids(0), "");
    assert_eq!(dram(&server), None);
    assert_eq!(found(&server.snapshot(), FindingKind::GhostBytes).len(), 1);
    // Another has its pid, and takes its place; then that one is killed, too.
    machine.add_process(FakeProcess { start: 130 * TICKS, ..FakeProcess::new(700, "python", &[0]) });
    assert_eq!(dram(&server), None, "what was there before it is not its own");
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 8, 140)]));
    assert_eq!(dram(&server), Some(8 << 20));
    machine.end_process(700);
    assert_eq!(found(&server.snapshot(), FindingKind::GhostBytes).len(), 1);
    fs::remove_file(file(&machine, id)).unwrap();
    eventually("the finding goes with the file", || server.snapshot().findings.is_empty().then_some(()));
}

#[test]
fn a_process_that_goes_on_as_another_program_holds_nothing() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    let server = follow(&machine);
    assert_eq!(server.usage(0).dram.map(|it| it.requested_bytes), Some(5 << 20));
    let stat = fs::read_to_string(machine.proc(700, "stat")).unwrap();
    machine.set(machine.proc(700, "maps"), "7f00-7f01 r--p 00000000 fe:01 4711 /bin/sleep\n");
    machine.set(machine.proc(700, "stat"), &stat.replace("(python)", "(sleep)"));
    eventually("it is no more", || server.usage(0).dram.is_none().then_some(()));
    assert_eq!(found(&server.snapshot(), FindingKind::GhostBytes).len(), 1);
}

#[test]
fn bytes_that_nobody_accounts_for_are_told_of_and_not_given_to_anybody() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    let mut it = region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]);
    it.totals.l1 += 4096;
    put(&machine, id, &it);
    let snapshot = seen(&machine);
    assert_eq!(held(one(&snapshot, 700)), expected(1));
    let lost = found(&snapshot, FindingKind::Unattributed);
    assert_eq!((lost.len(), lost[0].bytes, lost[0].space), (1, Some(4096), Some(Space::L1)));
    assert_eq!(snapshot.devices[0].usage.l1.as_ref().unwrap().requested_bytes, 1024);
    // Less than the sum of its parts is odd in another way.
    it.totals.l1 = 0;
    put(&machine, id, &it);
    let snapshot = seen(&machine);
    assert!(
        found(&snapshot, FindingKind::Counters)[0].text.contains("have a total of 0 B of l1, but 1.0 KiB")
    );
}

#[test]
fn a_process_in_two_slots_is_one_and_what_is_in_broken_ones_is_nobodys() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        // Two threads can take a slot each, at the same time.
        let all = vec![entry(layout, 3, 700, "python", 1, 100), entry(layout, 9, 700, "python", 2, 100)];
        put(&machine, id, &Region { broken_slots: 2, ..region(layout, id, 0, all) });
        let snapshot = seen(&machine);
        assert_eq!((held(one(&snapshot, 700)).first(), snapshot.processes.len()), (expected(3).first(), 1));
        let [odd] = found(&snapshot, FindingKind::Counters)[..] else { panic!("{:?}", snapshot.findings) };
        assert!(odd.text.contains("have 2 entries with impossible pids"), "{layout:?}: {}", odd.text);
    }
}

#[test]
fn numbers_that_cannot_be_are_findings_and_never_a_share_above_all() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    // More than the chip has; more than anything has; a name of garbage; every place taken.
    let mut all: Vec<ProcessSlot> =
        (1..PROCESS_SLOTS).map(|n| entry(layout, n, 100_000 + n as u32, "\u{1b}[2J\u{7}", 1, 100)).collect();
    all.insert(0, entry(layout, 0, 700, "python", 1, 100));
    all[0].held.dram = 20 << 30;
    all[0].held.l1 = u64::MAX - 5;
    let mut it = region(layout, id, 0, Vec::new());
    it.totals.dram = u64::MAX;
    it.processes = all;
    put(&machine, id, &it);
    let snapshot = seen(&machine);
    let usage = &snapshot.devices[0].usage;
    assert_eq!(usage.dram.as_ref().unwrap().requested_bytes, 20 << 30, "what is said is shown");
    assert!(usage.l1.is_none(), "what no chip has is not");
    assert_eq!(found(&snapshot, FindingKind::OverCapacity).len(), 1);
    let odd: Vec<&str> = found(&snapshot, FindingKind::Counters).iter().map(|it| it.text.as_str()).collect();
    assert!(
        odd.iter().any(|it| it.contains("16.0 EiB of l1 for pid 700, more than any device has")),
        "{odd:?}"
    );
    assert!(odd.iter().any(|it| it.contains("all 64 entries are in use")), "{odd:?}");
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
fn what_cannot_be_read_is_said_and_hides_nothing_else() {
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
    let snapshot = seen(&machine);
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
    // A file that is made while it is looked at is read when it is whole.
    fs::write(file(&machine, 3), build(layout, &region(layout, 3, 0, Vec::new()))).unwrap();
    assert!(seen(&machine).health.skipped.iter().all(|it| !it.path.ends_with("tt_device_3_memory")));
}

#[test]
fn junk_hides_nothing() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]));
    for n in 0..1100 {
        fs::write(machine.root().join(format!("dev/shm/tt_device_00{n}_memory")), "").unwrap();
    }
    assert_eq!(held(one(&seen(&machine), 700)), expected(1));
}

#[test]
fn whoever_leaves_many_files_about_hides_nobody_elses() {
    let (machine, id) = busy(700);
    let layout = Layout::V3;
    let empty = build(layout, &Region::new(layout));
    // Their names come before that of the one who matters.
    for n in 0..1100 {
        let path = file(&machine, 1_000_000 + n);
        fs::write(&path, &empty).unwrap();
        chown(&path, Some(65534), None).unwrap();
    }
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 5, 100)]));
    // As many descriptors as a process has by default.
    let root = machine.root().to_str().unwrap();
    let mut once = Command::new("prlimit");
    let once = once.arg("--nofile=1024:4096").arg(exe()).args(["--root", root, "--json"]).output();
    let once = parsed(&once.unwrap());
    assert_eq!(held(one(&once, 700)), expected(5));
    let shm = machine.root().join("dev/shm");
    let server = Server::start(exe(), &["--root", root, "--shm-dir", shm.to_str().unwrap()]);
    for _ in 0..3 {
        let snapshot = server.snapshot();
        assert_eq!(held(one(&snapshot, 700)), expected(5));
        assert_eq!(snapshot.health.counter_files, 1025, "no more of them are open, however often one looks");
    }
}

#[test]
fn another_users_counters_are_listed_with_what_to_do() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    let path = put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    let shm = machine.root().join("dev/shm");
    let args = ["--root", machine.root().to_str().unwrap(), "--shm-dir", shm.to_str().unwrap()];
    let server = Server::start(exe(), &args);
    let program = copied(exe(), &server);
    let nobody = |more: &[&str]| {
        let mut command = Command::new(NOBODY[0]);
        command
            .args(&NOBODY[1..])
            .arg(&program)
            .args(["--root", machine.root().to_str().unwrap()])
            .args(more);
        command.output().unwrap()
    };
    let snapshot = parsed(&nobody(&["--json"]));
    let [skipped] = &snapshot.health.skipped[..] else { panic!("{:?}", snapshot.health.skipped) };
    assert!(
        skipped.reason.contains("belongs to ada") && skipped.reason.contains("ttmem serve"),
        "{skipped:?}"
    );
    assert_eq!(one(&snapshot, 700).basis, Basis::Unknown, "that it has the chip open, everybody may know");
    let page = String::from_utf8(nobody(&[]).stdout).unwrap();
    assert!(page.contains("Not read:") && page.contains("belongs to ada"), "{page}");
    // Root sees it, and so does whoever asks root's daemon.
    assert_eq!(held(one(&seen(&machine), 700)), expected(1));
    let mut command = Command::new(NOBODY[0]);
    command.args(&NOBODY[1..]).arg(&program).arg("--query-socket").arg(&server.query).arg("--json");
    assert_eq!(held(one(&parsed(&command.output().unwrap()), 700)), expected(1));
    let mut command = Command::new(&program);
    let page = command.arg("--query-socket").arg(&server.query).output().unwrap().stdout;
    assert!(String::from_utf8(page).unwrap().contains(", via daemon"));
}

#[test]
fn one_that_took_another_name_is_not_dead_to_those_who_may_not_look_closer() {
    let layout = Layout::V3;
    let machine = machine::n150("2.10.0");
    let mut living = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = living.id();
    let now = jiff::Timestamp::now().as_second() as u64 - BOOT;
    let path = put(&machine, 7, &region(layout, 7, 0, vec![entry(layout, 0, pid, "python", 1, now + 1)]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let program = machine.root().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    let look = || {
        let mut command = Command::new(NOBODY[0]);
        command.args(&NOBODY[1..]).arg(&program).args(["--local", "--json", "--shm-dir"]);
        parsed(&command.arg(path.parent().unwrap()).output().unwrap())
    };
    let fate = || {
        let snapshot = look();
        let [ghost] = &found(&snapshot, FindingKind::GhostBytes)[..] else {
            panic!("{:?}", snapshot.findings)
        };
        ghost.text.clone()
    };
    assert!(fate().contains("exited or is not visible"), "{}", fate());
    living.kill().unwrap();
    living.wait().unwrap();
    assert!(fate().contains("exited, but"), "{}", fate());
}

#[test]
fn a_process_that_is_hidden_is_neither_dead_nor_absent() {
    let layout = Layout::V3;
    let machine = machine::n150("2.10.0");
    let id = u64::from_str_radix(&seen(&machine).devices[0].id[2..], 16).unwrap();
    let mut living = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = living.id();
    machine.set(machine.pids(0), &format!("{pid}\n"));
    let seconds = jiff::Timestamp::now().as_second() as u64 - BOOT;
    let path = put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, pid, "sleep", 1, seconds)]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    // Such a machine, as a user to whom the processes of others are not shown.
    let program = machine.root().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    let root = machine.root().display();
    let hide = format!(
        "mount -t proc -o hidepid=2 proc /proc && mount --rbind {root}/proc/driver /proc/driver && \
         mount --rbind {root}/sys /sys && exec \"$@\""
    );
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &hide, "sh"]).args(NOBODY).arg(&program).args(args);
        command.arg("--shm-dir").arg(path.parent().unwrap()).output().unwrap()
    };
    let snapshot = parsed(&run(&["--local", "--json"]));
    let [ghost] = &found(&snapshot, FindingKind::GhostBytes)[..] else { panic!("{:?}", snapshot.findings) };
    assert!(ghost.text.contains("exited or is not visible"), "{}", ghost.text);
    assert_eq!(found(&snapshot, FindingKind::Untracked).len(), 1, "{:?}", snapshot.findings);
    let report = String::from_utf8(run(&["doctor"]).stdout).unwrap();
    assert!(report.contains("hidepid") && !report.contains("can be removed"), "{report}");
    assert!(!report.contains("first pid namespace") && !report.contains("exited, but"), "{report}");
    living.kill().unwrap();
    living.wait().unwrap();
}

#[test]
fn a_container_on_the_hosts_memory_is_itself_and_not_whoever_has_its_pid_here() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    // Inside it is pid 1; outside, pid 1 is another program.
    machine.add_process(FakeProcess { start: 0, ..FakeProcess::new(1, "systemd", &[]) });
    machine.add_process(FakeProcess {
        container: Some((3, 1)),
        start: 60 * TICKS,
        ..FakeProcess::new(900, "python", &[0])
    });
    symlink("../..", machine.proc(900, "root")).unwrap();
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 1, "python", 2, 100)]));
    let snapshot = seen(&machine);
    let process = one(&snapshot, 900);
    assert_eq!((held(process), process.reported_pid), (expected(2), Some(1)));
    assert!(process.container.is_some());
    assert!(snapshot.processes.iter().all(|it| it.pid != Some(1)));
    assert_eq!(snapshot.findings, []);
}

#[test]
fn a_pid_within_a_container_is_not_that_pid_outside() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    // The one that is 900 inside has another pid here, and the one that is 900 here is another's inside.
    for (pid, number, inside) in [(900, 5, 1), (901, 4, 900)] {
        let container = Some((number, inside));
        let start = 60 * TICKS;
        machine.add_process(FakeProcess { container, start, ..FakeProcess::new(pid, "python", &[0]) });
        symlink("../..", machine.proc(pid, "root")).unwrap();
    }
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 900, "python", 2, 100)]));
    let snapshot = seen(&machine);
    assert_eq!(held(one(&snapshot, 901)), expected(2));
    assert_eq!(one(&snapshot, 900).basis, Basis::Unknown);
    assert_eq!(snapshot.findings, []);
}

#[test]
fn a_container_with_memory_of_its_own_is_in_no_other_file() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    machine.add_process(FakeProcess {
        container: Some((4, 1)),
        start: 60 * TICKS,
        ..FakeProcess::new(901, "python", &[0])
    });
    fs::create_dir_all(machine.root().join("container/dev/shm")).unwrap();
    symlink("../../container", machine.proc(901, "root")).unwrap();
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 1, "python", 2, 100)]));
    let snapshot = seen(&machine);
    assert_eq!(one(&snapshot, 901).basis, Basis::Unknown);
    assert_eq!(found(&snapshot, FindingKind::GhostBytes)[0].pid, Some(1));
}

#[test]
fn an_entry_without_a_time_or_hardly_too_early_is_of_whoever_has_its_pid_and_name() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        let mut it = entry(layout, 0, 700, "python", 2, 50);
        // Clocks differ a little: it may seem to have been made just before its process started.
        for updated_ns in [0, it.updated_ns - 40_000_000] {
            it.updated_ns = updated_ns;
            put(&machine, id, &region(layout, id, 0, vec![it.clone()]));
            assert_eq!(held(one(&seen(&machine), 700))[..5], expected(2), "{layout:?}: {updated_ns}");
        }
    }
}

#[test]
fn where_not_everybody_can_be_seen_a_pid_and_a_name_are_nobodys() {
    let layout = Layout::V3;
    let folder = memory_folder();
    // Inside, the shell has this pid and this name, but nothing to do with the file.
    let mut it = entry(layout, 0, 1, "sh", 2, 0);
    it.updated_ns = jiff::Timestamp::now().as_nanosecond() as u64;
    let path = folder.path().join("tt_device_77_memory");
    fs::write(path, build(layout, &region(layout, 77, 0, vec![it]))).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount", "--mount-proc", "sh", "-c"]);
    command.arg("\"$0\" --json --shm-dir \"$1\"; exit 0").arg(exe()).arg(folder.path());
    let snapshot = parsed(&command.output().unwrap());
    assert!(snapshot.processes.iter().all(|it| it.pid != Some(1)), "{:#?}", snapshot.processes);
    let ghosts = found(&snapshot, FindingKind::GhostBytes);
    assert!(ghosts.len() == 1 && ghosts[0].text.contains("exited or is not visible"), "{ghosts:#?}");
}

#[test]
fn the_second_chip_of_an_n300_is_known_by_its_board() {
    let layout = Layout::V3;
    let mut machine = Machine::new("2.10.0");
    let serial = 0x0100_0146_1190_302b;
    machine.add_card(Card { serial, ..Card::new("n300", 0) });
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[0]) });
    for (id, device) in [(0x2_6190_302b, 0), (0x3_6190_302b, 1)] {
        put(&machine, id, &region(layout, id, device, vec![entry(layout, 0, 700, "python", 1, 100)]));
    }
    let snapshot = seen(&machine);
    let [first, second] = &snapshot.devices[..] else { panic!("{:#?}", snapshot.devices) };
    assert_eq!((first.remote, second.remote), (false, true));
    assert_eq!((second.index, second.id.as_str()), (1, "0x000000036190302b"));
    assert_eq!((second.board.as_deref(), second.capacity.unwrap().l1_bytes), (Some("n300"), 95_944_704));
    assert!(second.sensors.is_none());
    assert!(second.sensors_absent.as_ref().unwrap().starts_with("remote"));
    assert_eq!(second.usage.dram.as_ref().unwrap().requested_bytes, 1 << 20);
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(page.contains("\n1   n300 R "), "{page}");
}

#[test]
fn where_a_name_says_nothing_its_users_open_chips_do() {
    let layout = Layout::V3;
    let mut machine = machine::p300b("2.10.0");
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[0, 1]) });
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(701, "mock", &[]) });
    put(&machine, 0xabc, &region(layout, 0xabc, 1, vec![entry(layout, 0, 700, "python", 1, 100)]));
    put(&machine, 0xdef, &region(layout, 0xdef, 0, vec![entry(layout, 0, 701, "mock", 2, 100)]));
    let snapshot = seen(&machine);
    assert_eq!(snapshot.devices.len(), 3, "what nobody has open here is no chip of this bus");
    let used = |n: usize| snapshot.devices[n].usage.dram.as_ref().map(|it| it.requested_bytes);
    assert_eq!([used(0), used(1), used(2)], [None, Some(1 << 20), Some(2 << 20)]);
    assert_eq!(snapshot.devices[1].names, ["0x0000000000000abc"]);
    // One that was shown the second chip alone calls it its first.
    let mut machine = machine::p300b("2.10.0");
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[1]) });
    put(&machine, 0xabc, &region(layout, 0xabc, 0, vec![entry(layout, 0, 700, "python", 1, 100)]));
    let snapshot = seen(&machine);
    assert_eq!(snapshot.devices.len(), 2);
    assert_eq!(snapshot.devices[1].usage.dram.as_ref().unwrap().requested_bytes, 1 << 20);
}

#[test]
fn counters_of_a_chip_that_left_are_not_those_of_whoever_got_its_number() {
    let layout = Layout::V3;
    let mut machine = machine::cards("2.10.0", "p150a", 3);
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[0, 1, 2]) });
    let ids: Vec<u64> =
        seen(&machine).devices.iter().map(|it| u64::from_str_radix(&it.id[2..], 16).unwrap()).collect();
    for (device, (&id, n)) in ids.iter().zip([4, 1, 2]).enumerate() {
        let of = vec![entry(layout, 0, 700, "python", n, 100)];
        put(&machine, id, &region(layout, id, device as u32, of));
    }
    let server = follow(&machine);
    let used = |snapshot: &Snapshot| {
        let dram = |it: &Device| it.usage.dram.as_ref().map(|it| it.requested_bytes >> 20);
        let mut used: Vec<_> = snapshot.devices.iter().map(|it| (it.id.clone(), it.node, dram(it))).collect();
        used.sort();
        used
    };
    let wanted = |nodes: [Option<u32>; 3]| {
        let of = |n: usize| (format!("0x{:016x}", ids[n]), nodes[n], Some([4, 1, 2][n]));
        [of(0), of(1), of(2)]
    };
    assert_eq!(used(&server.snapshot()), wanted([Some(0), Some(1), Some(2)]));
    machine.unplug(0);
    eventually("the chip is gone", || {
        let snapshot = server.snapshot();
        snapshot.devices.iter().all(|it| it.node != Some(0)).then_some(())
    });
    assert_eq!(used(&server.snapshot()), wanted([None, Some(1), Some(2)]));
    assert_eq!(used(&seen(&machine)), wanted([None, Some(1), Some(2)]));
    machine.add_card(Card::new("p150a", 0));
    eventually("the chip is back", || {
        (used(&server.snapshot()) == wanted([Some(0), Some(1), Some(2)])).then_some(())
    });
}

#[test]
fn a_topology_tells_what_is_harvested_and_who_is_behind_whom() {
    let mut machine = Machine::new("2.10.0");
    for node in 0..2 {
        machine.add_card(Card::new("n300", node));
    }
    let ids: Vec<String> = seen(&machine).devices.iter().map(|it| it.id.clone()).collect();
    let first = u64::from_str_radix(&ids[0][2..], 16).unwrap();
    // The first by its unique id, the second by its place; two more behind them; one core row less than usual.
    let text = format!(
        "arch: {{0: wormhole_b0, 1: wormhole_b0, 2: Wormhole, 3: wormhole_b0}}\n\
         chips: {{}}\n\
         chip_unique_ids: {{0: {first}, 1: 51, 2: 52, 3: 53}}\n\
         ethernet_connections: []\n\
         chips_with_mmio: [0: 7, 1: 9]\n\
         harvesting:\n  \
           0: {{noc_translation: true, harvest_mask: 3}}\n  \
           1: {{noc_translation: true, harvest_mask: 7}}\n  \
           2: {{noc_translation: true, harvest_mask: 3}}\n  \
           3: {{noc_translation: true, harvest_mask: 1}}\n\
         boards: [[{{board_id: 1}}, {{board_type: n300}}, {{chips: [0, 2]}}]]\n\
         chip_pci_bdfs: {{1: 0000:02:00.0}}\n"
    );
    let path = machine.root().join("cluster.yaml");
    fs::write(&path, &text).unwrap();
    let topology = ["--topology", path.to_str().unwrap()];
    let snapshot = parsed(&ttmem(&machine, &[&["--json"], &topology[..]].concat()));
    let cores: Vec<u32> = snapshot.devices.iter().map(|it| it.capacity.unwrap().cores).collect();
    assert_eq!(cores, [64, 56, 64, 72]);
    let remote: Vec<bool> = snapshot.devices.iter().map(|it| it.remote).collect();
    assert_eq!(remote, [false, false, true, true]);
    assert_eq!(snapshot.devices[1].names, [format!("0x{:016x}", 51)]);
    assert_eq!(snapshot.devices[1].sensors.as_ref().unwrap().asic_celsius, Some(45.406));
    assert_eq!(snapshot.devices[3].id, format!("0x{:016x}", 53));
    assert_eq!(snapshot.devices[1].id, ids[1], "it keeps its key");
    // Nonsense gets an error that names the file and the thing.
    fs::write(&path, text.replace("harvest_mask: 7", "harvest_mask: many")).unwrap();
    let output = ttmem(&machine, &topology);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("cluster.yaml") && said.contains("harvest_mask"), "{said}");
    let output = ttmem(&machine, &["--topology", "/nowhere.yaml"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere.yaml"));
}
