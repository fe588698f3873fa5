//! The old system's defects in reading machines and shared memory, by their number in its list; see `defects.rs`.
//!
//! Other tests cover some of them: 40 is `machine::no_device_is_opened_and_nothing_is_written`, 41
//! `counters::owners::second_device_of_an_n300_is_known_by_its_board`, 50
//! `counters::owners::unreadable_counters_are_listed_with_a_remedy` and `counters::impossible_numbers_are_findings`. Only
//! writers can have 47, 48, 52, 54 and 55; their effects on the files are reported.

use crate::counters::{TICKS, busy, entry, expected, file, found, held, levels, one, put, region};
use crate::machine::{read_snapshot, start_daemon};
use std::fs;
use std::path::Path;
use std::process::Command;
use ttmem_core::snapshot::FindingKind;
use ttmem_core::words::Basis;
use ttmem_testkit::eventually;
use ttmem_testkit::machine::{self, FakeProcess};
use ttmem_wire::region::{ChipSlot, Layout, Levels, Region, build};

#[test]
fn defect_42_hanging_reads_are_remembered() {
    let machine = machine::t3k("2.10.0");
    let pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    for name in ["temp1_input", "power1_input", "curr1_input", "in0_input"] {
        pipe(&machine.hwmon(1, name));
    }
    for name in ["tt_aiclk", "tt_axiclk", "tt_arcclk", "tt_heartbeat"] {
        pipe(&machine.attribute(1, name));
    }
    let server = start_daemon(&machine);
    for celsius in 30..36 {
        machine.set(machine.hwmon(3, "temp1_input"), &format!("{celsius}000\n"));
        eventually("the new value is read", || {
            server.device(3).sensors.filter(|it| it.asic_celsius == Some(f64::from(celsius)))
        });
    }
    // The loop, a reader, and two threads that wait for the device: more would mean that hanging reads are repeated.
    let threads = || fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count();
    eventually("other threads end", || (threads() <= 4).then_some(()));
}

#[test]
fn defect_43_each_file_is_read_by_its_own_name() {
    let layout = Layout::V3;
    let mut machine = machine::cards("2.10.0", "n150", 3);
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[0, 1, 2]) });
    let devices = read_snapshot(&machine).devices;
    for (device, n) in devices.iter().zip(1..) {
        let id = u64::from_str_radix(device.serial.as_ref().unwrap(), 16).unwrap();
        let held = vec![entry(layout, 0, 700, "python", n, 100)];
        put(&machine, id, &region(layout, id, device.index, held));
    }
    let snapshot = read_snapshot(&machine);
    let used = snapshot.devices.iter().map(|it| it.usage.dram.as_ref().map(|it| it.requested_bytes));
    assert_eq!(used.collect::<Vec<_>>(), [Some(1 << 20), Some(2 << 20), Some(3 << 20)]);
    assert_eq!((snapshot.health.counter_files, snapshot.findings.len()), (3, 0));
}

#[test]
fn defect_44_processes_are_found_in_any_slot() {
    for layout in Layout::ALL {
        for active_processes in [0, 1, 3] {
            let (mut machine, id) = busy(700);
            for pid in [701, 702] {
                machine
                    .add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(pid, "python", &[0]) });
            }
            let all = [(7, 700), (41, 701), (63, 702)];
            let all = all.iter().zip(1..).map(|(&(at, pid), n)| entry(layout, at, pid, "python", n, 100));
            put(&machine, id, &Region { active_processes, ..region(layout, id, 0, all.collect()) });
            let snapshot = read_snapshot(&machine);
            for (pid, n) in [(700, 1), (701, 2), (702, 3)] {
                assert_eq!(held(one(&snapshot, pid))[..5], expected(n), "{layout:?}: {active_processes}");
            }
            assert_eq!(snapshot.devices[0].usage.dram.as_ref().unwrap().requested_bytes, 6 << 20);
        }
    }
}

#[test]
fn defect_46_device_0_is_a_device() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        let mut region = region(layout, id, 0, vec![entry(layout, 0, 700, "python", 3, 100)]);
        region.chips = [(0, 1), (1, 2)]
            .map(|(chip_id, n)| ChipSlot { chip_id, remote: chip_id == 1, held: levels(n) })
            .to_vec();
        put(&machine, id, &region);
        let snapshot = read_snapshot(&machine);
        let findings = found(&snapshot, FindingKind::Counters);
        assert!(
            findings.len() == 1 && findings[0].text.contains("cover several devices"),
            "{layout:?}: {findings:?}"
        );
        assert_eq!(held(one(&snapshot, 700))[..5], expected(3), "{layout:?}");
    }
}

#[test]
fn defect_49_reference_counts_do_not_decide_who_runs() {
    for layout in Layout::ALL {
        // Killed processes leave the count too high; a reset while processes run makes it too low.
        for reference_count in [0, 1, 9, u32::MAX] {
            let (machine, id) = busy(700);
            let all = vec![entry(layout, 0, 700, "python", 1, 100), entry(layout, 1, 701, "python", 2, 100)];
            let active_processes = reference_count;
            let region = Region { reference_count, active_processes, ..region(layout, id, 0, all) };
            put(&machine, id, &region);
            let snapshot = read_snapshot(&machine);
            assert_eq!(snapshot.processes.len(), 1, "{layout:?}: {reference_count}");
            assert_eq!(held(one(&snapshot, 700))[..5], expected(1));
            let ghosts = found(&snapshot, FindingKind::GhostBytes);
            assert_eq!(ghosts.iter().map(|it| it.pid).collect::<Vec<_>>(), [Some(701)]);
        }
    }
}

#[test]
fn defect_51_older_region_is_not_incomplete() {
    for layout in [Layout::V1, Layout::V2, Layout::V3] {
        let (machine, id) = busy(700);
        let old = region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]);
        let path = put(&machine, id, &old);
        assert_eq!(fs::read(&path).unwrap()[8536..8540], [0; 4], "as in an incomplete file of version 4");
        // Beside it, an incomplete file of version 4.
        let mut made = build(Layout::V4, &region(Layout::V4, 77, 1, Vec::new()));
        made[8536..8540].fill(0);
        fs::write(file(&machine, 77), &made).unwrap();
        let before = fs::read(&path).unwrap();
        let snapshot = read_snapshot(&machine);
        let process = one(&snapshot, 700);
        assert_eq!((held(process), process.basis), (expected(1), Basis::Counters), "{layout:?}");
        let [skipped] = &snapshot.health.skipped[..] else { panic!("{:?}", snapshot.health.skipped) };
        assert!(skipped.path.contains("_77_") && skipped.reason.contains("being made"), "{skipped:?}");
        assert_eq!(snapshot.findings, [], "an incomplete file is no finding");
        assert!(fs::read(&path).unwrap() == before, "the file is unchanged");
    }
}

#[test]
fn defect_53_totals_of_devices_are_not_attributed() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        let mut region = region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]);
        // Exited processes are removed from the list and the totals, but not from the figures of devices.
        region.chips[0].held = Levels { kernel: 0, ..levels(5000) };
        put(&machine, id, &region);
        let snapshot = read_snapshot(&machine);
        assert_eq!(held(one(&snapshot, 700))[..5], expected(1), "{layout:?}");
        let usage = &snapshot.devices[0].usage;
        assert_eq!(usage.dram.as_ref().unwrap().requested_bytes, 1 << 20, "{layout:?}");
        assert_eq!(usage.l1.as_ref().unwrap().requested_bytes, 1 << 10, "{layout:?}");
    }
}
