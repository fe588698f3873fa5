//! What is released when a tracker, an allocator or a program is dropped.
#![allow(clippy::unwrap_used, missing_docs, unsafe_code)]

use std::path::Path;
use tempfile::TempDir;
use ttmem_client::{AllocatorNumber, Buffer, Chip, Fault, Options, Placement, Program, Space, Tracker};

fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn tracker(folder: &TempDir) -> Tracker {
    Tracker::new(&Options::default().folder(folder.path().to_str().unwrap()))
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
}

fn alloc(tracker: &Tracker, allocator: AllocatorNumber) {
    tracker.alloc(&Buffer::new(allocator, Space::Dram, 4096, 64)).unwrap();
}

#[test]
fn dropped_tracker_removes_its_segment() {
    let folder = folder();
    let tracker = tracker(&folder);
    alloc(&tracker, tracker.define_devices(&[0]).unwrap());
    assert_eq!(files(folder.path()), 1);
    drop(tracker);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn dropped_tracker_keeps_a_failed_allocation() {
    let folder = folder();
    let tracker = tracker(&folder);
    let device = tracker.define_devices(&[0]).unwrap();
    tracker.report_out_of_memory(&Buffer::new(device, Space::Dram, 0, 64), None).unwrap();
    drop(tracker);
    assert_eq!(files(folder.path()), 2, "the segment, and its copy of that moment");
}

#[test]
fn dropped_trackers_leave_no_mapping() {
    let folder = folder();
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    for _ in 0..20 {
        let tracker = tracker(&folder);
        alloc(&tracker, tracker.define_devices(&[0]).unwrap());
        tracker.close();
        tracker.enable(&Options::default().folder(folder.path().to_str().unwrap()));
        alloc(&tracker, tracker.define_devices(&[0]).unwrap());
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(name), "{maps}");
}

#[test]
fn dropped_guards_close_and_end() {
    let folder = folder();
    let tracker = tracker(&folder);
    let chip = tracker.define_chip(&Chip::default().unique_id(1)).unwrap();
    let device = tracker.open_allocator(&[chip], &[]).unwrap();
    let number = device.number();
    alloc(&tracker, number);
    let program = tracker.start_program(&Program::new(number, 7)).unwrap();
    tracker.place(&Placement::new(number, program.number(), Space::Cb, 64, 64)).unwrap();
    assert_eq!(tracker.status().live, 2);
    drop(program);
    assert_eq!(tracker.dispatch(number, 7), Err(Fault::UnknownProgram));
    assert_eq!(tracker.status().live, 1);
    drop(device);
    assert_eq!(tracker.close_allocator(number), Err(Fault::UnknownAllocator));
    assert_eq!(tracker.status().live, 0);
}

#[test]
fn released_guard_is_not_released_again() {
    let folder = folder();
    let tracker = tracker(&folder);
    let chip = tracker.define_chip(&Chip::default().unique_id(1)).unwrap();
    let device = tracker.open_allocator(&[chip], &[]).unwrap();
    let number = device.number();
    device.close().unwrap();
    // The same chips get the same number again.
    assert_eq!(tracker.define_allocator(&[chip], &[]).unwrap(), number);
    alloc(&tracker, number);
    assert_eq!(tracker.status().live, 1);
}

#[test]
fn guard_of_a_closed_tracker_does_nothing() {
    let folder = folder();
    let tracker = tracker(&folder);
    let chip = tracker.define_chip(&Chip::default().unique_id(1)).unwrap();
    let device = tracker.open_allocator(&[chip], &[]).unwrap();
    tracker.close();
    tracker.enable(&Options::default().folder(folder.path().to_str().unwrap()));
    let other = tracker.define_devices(&[5]).unwrap();
    assert_eq!(other, device.number(), "numbers begin again");
    alloc(&tracker, other);
    drop(device);
    assert_eq!(tracker.status().live, 1);
}

#[test]
fn guard_made_while_off_does_nothing() {
    let folder = folder();
    let tracker = Tracker::disabled();
    let device = tracker.open_allocator(&[], &[]).unwrap();
    let program = tracker.start_program(&Program::new(device.number(), 7)).unwrap();
    tracker.enable(&Options::default().folder(folder.path().to_str().unwrap()));
    alloc(&tracker, tracker.define_devices(&[0]).unwrap());
    program.end().unwrap();
    device.close().unwrap();
    assert_eq!(tracker.status().live, 1);
}

#[test]
fn forked_child_releases_nothing_of_its_parent() {
    let folder = folder();
    let tracker = tracker(&folder);
    let chip = tracker.define_chip(&Chip::default().unique_id(1)).unwrap();
    let device = tracker.open_allocator(&[chip], &[]).unwrap();
    alloc(&tracker, device.number());
    for reports in [false, true] {
        // SAFETY: the child uses the tracker and calls that are safe after a fork, and exits.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                if reports {
                    let _ = tracker.alloc(&Buffer::new(device.number(), Space::Dram, 64, 64));
                }
                let device = std::ptr::read(&raw const device);
                drop(device);
                let own = u64::from(reports);
                let live = if reports { tracker.status().live } else { 0 };
                let tracker = std::ptr::read(&raw const tracker);
                drop(tracker);
                libc::_exit(i32::from(live != own));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
        assert_eq!(files(folder.path()), 1, "the parent's segment");
        assert_eq!(tracker.status().live, 1);
    }
    device.close().unwrap();
}
