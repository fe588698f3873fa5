//! Threads of different priorities that report on one processor.
#![allow(unsafe_code, clippy::unwrap_used, missing_docs)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ttmem_client::{AllocatorNumber, Buffer, Options, Space, Tracker};

/// Keeps this thread on the first processor.
fn pin() {
    // SAFETY: a set of zeros is an empty one, and the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

/// Gives this thread a real-time priority, which needs root.
fn raise_priority() {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: the call reads the parameter.
    let error =
        unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &raw const priority) };
    assert_eq!(error, 0, "this test needs the right to set priorities");
}

fn report_pair(tracker: &Tracker, allocator: AllocatorNumber, address: u64) {
    tracker.alloc(&Buffer::new(allocator, Space::Dram, address, 64)).unwrap();
    tracker.free(allocator, Space::Dram, address).unwrap();
}

/// A thread of high priority that interrupts the owner of the lock waits for it without keeping it from running.
#[test]
fn owner_of_low_priority_is_not_starved() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let tracker = Tracker::new(&Options::default().folder(folder.path().to_str().unwrap()));
    let allocator = tracker.define_devices(&[0]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            while !done.load(Ordering::Relaxed) {
                report_pair(&tracker, allocator, 4096);
            }
        });
        scope.spawn(|| {
            pin();
            raise_priority();
            // It often wakes up while the other one has the lock.
            for _ in 0..3000 {
                report_pair(&tracker, allocator, 8192);
                std::thread::sleep(Duration::from_micros(20));
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(tracker.status().lost, 0, "a thread that waits too long gives up");
}
