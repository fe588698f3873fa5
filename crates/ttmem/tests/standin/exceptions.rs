//! What the runtime throws at the workload reaches the workload; what it throws at the agent ends there.

use crate::make::{Build, Way};
use crate::{AFTER_FREE, ALL, ALLOCATE, BAD_ALLOC, BEFORE_FREE, FATAL, INT, Program};
use ttmem_core::snapshot::FindingKind;

/// A program with a mesh of two chips as its first thing.
fn with_mesh((build, way): (Build, Way)) -> Program {
    let mut program = Program::start(build, way);
    assert_eq!(program.does("mesh 0 2 4096"), "1");
    program
}

#[test]
fn exceptions_of_any_type_pass_through_unchanged() {
    for how in ALL {
        let mut program = with_mesh(how);
        let kinds = [(FATAL, "fatal 71 told to"), (BAD_ALLOC, "bad_alloc"), (INT, "int 71")];
        for (kind, expected) in kinds {
            program.next(kind, ALLOCATE, 71);
            assert_eq!(program.does("alloc 1 dram 2048 24"), expected);
            let buffer = program.number("alloc 1 l1 2048 24");
            program.next(kind, BEFORE_FREE, 71);
            assert_eq!(program.does(&format!("free {buffer}")), expected);
            program.is_right();
            assert_eq!(program.does(&format!("free {buffer}")), "fine");
        }
        assert!(program.finding(FindingKind::OutOfMemory).is_none(), "there was room");
        assert_eq!(program.does("alloc 1 l1 1048576 192"), "fatal 1 out of memory");
        let finding = program.finding(FindingKind::OutOfMemory).expect("there was none");
        assert_eq!(finding.count, 1);
        program.is_right();
        program.is_exact();
        program.quits();
    }
}

#[test]
fn a_free_that_fails_after_it_freed_shows_as_drift_until_it_is_freed_again() {
    let mut program = with_mesh(ALL[0]);
    let buffer = program.number("alloc 1 dram 2048 24");
    program.next(INT, AFTER_FREE, 7);
    assert_eq!(program.does(&format!("free {buffer}")), "int 7");
    let (code, report) = program.checked();
    assert_eq!((code, &report["drifting"]), (1, &1.into()), "{report}");
    assert_eq!(program.does(&format!("free {buffer}")), "fine");
    program.is_right();
    program.quits();
}

#[test]
fn a_getter_that_throws_leaves_a_buffer_unlisted_and_the_workload_alone() {
    const SHARDED: &str = "alloc 1 l1 64 8 on 0 0 3 1 8 0";
    for how in [ALL[1], ALL[2]] {
        let mut program = with_mesh(how);
        for getter in [
            "buffer_type",
            "buffer_layout",
            "size",
            "aligned_page_size",
            "aligned_size_per_bank",
            "num_cores",
            "shard_spec",
        ] {
            program.is_right();
            program.does(&format!("throwing {getter}"));
            let buffer = program.number(SHARDED);
            assert!(program.listed().is_empty(), "{getter}");
            let (code, report) = program.checked();
            assert_eq!((code, &report["drifting"]), (1, &1.into()), "{getter}: {report}");
            program.next(FATAL, ALLOCATE, 5);
            assert_eq!(program.does(SHARDED), "fatal 5 told to", "{getter}");
            program.does("throwing nothing");
            assert_eq!(program.does(&format!("free {buffer}")), "fine");
        }
        // The free is not known, then; whoever gets the address next makes that good.
        let buffer = program.number(SHARDED);
        program.does("throwing address");
        assert_eq!(program.does(&format!("free {buffer}")), "fine");
        assert_eq!(program.listed().len(), 1);
        assert_eq!(program.checked().0, 1);
        program.does("throwing nothing");
        program.number(SHARDED);
        program.is_right();
        program.quits();
    }
}

#[test]
fn an_allocator_that_throws_when_it_is_asked_is_used_all_the_same() {
    for getter in [
        "get_statistics",
        "get_num_banks",
        "get_bank_size",
        "get_base_allocator_addr",
        "get_alignment",
        "get_worker_l1_size",
        "get_device_ids",
        "get_arch",
        "device",
        "get_memory_block_table",
    ] {
        let mut program = Program::start(Build::Plain, Way::Loading);
        program.does(&format!("throwing {getter}"));
        program.does("mesh 0 2 4096");
        program.does("device 3");
        for command in ["alloc 1 dram 2048 24", "alloc 2 l1 2048 24", "shrink 1 l1 4096", "bulk 1"] {
            program.does(command);
        }
        program.does("override 1 dram 0 64");
        let buffer = program.number("alloc 1 l1 64 64");
        assert_eq!(program.does(&format!("free {buffer}")), "fine");
        assert_eq!(program.process().allocators.len(), 2, "{getter}");
        assert!(!program.process().usage.is_empty() || getter == "get_device_ids", "{getter}");
        program.quits();
    }
}

#[test]
fn statistics_that_cannot_be_end_audits_and_nothing_else() {
    for how in [ALL[0], ALL[2]] {
        let mut program = with_mesh(how);
        program.is_right();
        program.does("nonsense 1");
        let first = program.number("alloc 1 dram 2048 24");
        let asked = program.number("asked");
        // Once is enough, and a failed allocation asks, too.
        program.does("alloc 1 l1 1048576 192");
        program.does("alloc 1 l1 1048576 192");
        assert!(program.number("asked") <= asked + 2);
        program.number("alloc 1 l1 2048 64");
        assert_eq!(program.listed().len(), 2);
        program.does(&format!("free {first}"));
        let process = program.process();
        assert!(process.complete);
        let l1 = process.usage[0].usage.l1.as_ref().unwrap();
        assert_eq!((l1.allocated_bytes, l1.count), (Some(2048 * 64), Some(1)));
        assert!(program.finding(FindingKind::Drift).is_none());
        program.quits();
    }
}

#[test]
fn shard_grids_that_make_no_sense_are_harmless() {
    const MOST: u32 = u32::MAX;
    for how in [ALL[1], ALL[2]] {
        let mut program = with_mesh(how);
        let range = |from: (u64, u64), to: (u64, u64), cores: u32, order: u32| {
            format!(" on {} {} {} {} {cores} {order}", from.0, from.1, to.0, to.1)
        };
        let huge = u64::MAX;
        let grids = [
            range((0, 0), (7, 7), 0, 0),
            range((0, 0), (7, 7), 65, 0),
            range((0, 0), (255, 255), MOST, 1),
            range((0, 0), (huge, huge), MOST, 0),
            // Ends before it begins: as unsigned numbers, that is very wide.
            range((9, 9), (3, 3), MOST, 0),
            range((9, 0), (3, 0), MOST, 1),
            range((9, 0), (3, 0), MOST, 0),
            range((9, 1), (2, 1), MOST, 0),
            range((9, 2), (1, 2), MOST, 0),
            range((huge, 0), (0, 0), MOST, 0),
            range((4, 4), (3, 3), MOST, 1),
            range((0, 0), (1, 1), MOST, 0).repeat(200),
        ];
        for grid in &grids {
            program.number(&format!("alloc 1 l1 64 8{grid}"));
        }
        program.is_right();
        assert!(program.cpu_time().as_secs() < 3, "nobody counts four billion cores");
        // This one is the last that is asked for.
        program.does("torn 1");
        for grid in [range((0, 0), (3, 3), 16, 0), range((0, 0), (1, 1), 4, 0).repeat(300)] {
            program.number(&format!("alloc 1 l1 64 8{grid}"));
        }
        program.does("torn 0");
        assert_eq!(program.listed().len(), grids.len() + 2);
        program.is_right();
        // What the agent gave up on it leaves alone, as it must: the one leak there is.
        let status = program.ends();
        let leaks = program.errors().contains("leaked in 1 allocation(s)");
        assert_eq!(
            (status.success(), leaks),
            if how.0 == Build::Address { (false, true) } else { (true, false) }
        );
    }
}

#[test]
fn sizes_that_no_device_has_are_refused_and_nothing_else() {
    for how in [ALL[1], ALL[2]] {
        let mut program = Program::hybrid(how.0, how.1);
        program.does("mesh 0 2 4096");
        program.does("huge 1");
        let buffer = program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 64 8 percore on 0 0 3 1 8 0");
        assert_eq!(program.does("alloc 1 l1 1048576 192"), "fatal 1 out of memory");
        assert!(program.listed().is_empty());
        assert_eq!(program.does(&format!("free {buffer}")), "fine");
        program.does("huge 0");
        program.number("alloc 1 dram 2048 24");
        program.is_right();
        program.quits();
    }
}

#[test]
fn a_thread_may_end_inside_an_allocation() {
    for how in ALL {
        let mut program = with_mesh(how);
        assert_eq!(program.does("thread_exit 1"), "joined");
        program.number("alloc 1 dram 2048 24");
        program.is_right();
        program.quits();
    }
}

#[test]
fn threads_with_failures_of_every_kind() {
    for how in [(Build::Plain, Way::Loading), (Build::Address, Way::Linked), (Build::Thread, Way::Linked)] {
        let mut program = with_mesh(how);
        let failures: i64 = program.does("threads 1 8 400").parse().unwrap();
        assert!(failures > 100, "{failures}: -1 is one that arrived as another");
        program.is_right();
        program.is_exact();
        program.quits();
    }
}

/// The agent has a place for each of so many; the rest share one.
#[test]
fn more_threads_than_there_are_places_for() {
    let mut program = with_mesh(ALL[0]);
    assert!(program.does("threads 1 1100 8").parse::<i64>().unwrap() > 100);
    program.is_right();
    program.does("threads 1 8 100");
    program.is_right();
    program.is_exact();
    program.quits();
}
