//! Exceptions meant for the workload reach it; exceptions of the agent's own queries end in the agent.

use crate::make::{Build, Linkage};
use crate::{AFTER_FREE, ALL, ALLOCATE, BAD_ALLOC, BEFORE_FREE, FATAL, INT, Program};
use ttmem_core::snapshot::FindingKind;
use ttmem_core::words::Space;

/// Starts a program whose first device is a mesh of two chips.
fn start_with_mesh((build, linkage): (Build, Linkage)) -> Program {
    let mut program = Program::start(build, linkage);
    assert_eq!(program.run("mesh 0 2 4096"), "1");
    program
}

#[test]
fn exceptions_of_any_type_pass_through_unchanged() {
    for how in ALL {
        let mut program = start_with_mesh(how);
        let kinds = [(FATAL, "fatal 71 injected"), (BAD_ALLOC, "bad_alloc"), (INT, "int 71")];
        for (kind, expected) in kinds {
            program.fail_next(kind, ALLOCATE, 71);
            assert_eq!(program.run("alloc 1 dram 2048 24"), expected);
            let buffer = program.number("alloc 1 l1 2048 24");
            program.fail_next(kind, BEFORE_FREE, 71);
            assert_eq!(program.run(&format!("free {buffer}")), expected);
            program.check_figures();
            assert_eq!(program.run(&format!("free {buffer}")), "fine");
        }
        assert!(program.finding(FindingKind::OutOfMemory).is_none(), "the buffer would have fit");
        assert_eq!(program.run("alloc 1 l1 1048576 192"), "fatal 1 out of memory");
        let finding = program.finding(FindingKind::OutOfMemory).expect("the buffer did not fit");
        assert_eq!((finding.count, finding.space), (1, Some(Space::L1)));
        assert_eq!((finding.bytes, finding.device), (Some(192 << 20), None));
        let text = " requested 192.0 MiB of L1 on each of devices 0-1; largest free block 1.3 MiB per bank";
        assert!(
            finding.text.starts_with(&format!("out of memory: pid {} (", program.pid())),
            "{}",
            finding.text
        );
        assert!(finding.text.ends_with(text), "{}", finding.text);
        program.check_figures();
        program.expect_exact();
        program.quit();
    }
}

#[test]
fn free_that_throws_after_freeing_shows_as_drift() {
    let mut program = start_with_mesh(ALL[0]);
    let buffer = program.number("alloc 1 dram 2048 24");
    program.fail_next(INT, AFTER_FREE, 7);
    assert_eq!(program.run(&format!("free {buffer}")), "int 7");
    let (code, report) = program.run_check();
    assert_eq!((code, &report["drifting"]), (1, &1.into()), "{report}");
    assert_eq!(program.run(&format!("free {buffer}")), "fine");
    program.check_figures();
    program.quit();
}

#[test]
fn throwing_getter_only_leaves_the_buffer_unlisted() {
    const SHARDED: &str = "alloc 1 l1 64 8 on 0 0 3 1 8 0";
    for how in [ALL[1], ALL[2]] {
        let mut program = start_with_mesh(how);
        for getter in [
            "buffer_type",
            "buffer_layout",
            "size",
            "aligned_page_size",
            "aligned_size_per_bank",
            "num_cores",
            "shard_spec",
        ] {
            program.check_figures();
            program.run(&format!("throwing {getter}"));
            let buffer = program.number(SHARDED);
            assert!(program.allocations().is_empty(), "{getter}");
            let (code, report) = program.run_check();
            assert_eq!((code, &report["drifting"]), (1, &1.into()), "{getter}: {report}");
            program.fail_next(FATAL, ALLOCATE, 5);
            assert_eq!(program.run(SHARDED), "fatal 5 injected", "{getter}");
            program.run("throwing nothing");
            assert_eq!(program.run(&format!("free {buffer}")), "fine");
        }
        // The free is missed; the next allocation at that address corrects the record.
        let buffer = program.number(SHARDED);
        program.run("throwing address");
        assert_eq!(program.run(&format!("free {buffer}")), "fine");
        assert_eq!(program.allocations().len(), 1);
        assert_eq!(program.run_check().0, 1);
        program.run("throwing nothing");
        program.number(SHARDED);
        program.check_figures();
        program.quit();
    }
}

#[test]
fn allocator_whose_queries_throw_is_tracked() {
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
        let mut program = Program::start(Build::Plain, Linkage::Loaded);
        program.run(&format!("throwing {getter}"));
        program.run("mesh 0 2 4096");
        program.run("device 3");
        for command in ["alloc 1 dram 2048 24", "alloc 2 l1 2048 24", "shrink 1 l1 4096", "bulk 1"] {
            program.run(command);
        }
        program.run("override 1 dram 0 64");
        let buffer = program.number("alloc 1 l1 64 64");
        assert_eq!(program.run(&format!("free {buffer}")), "fine");
        assert_eq!(program.process().allocators.len(), 2, "{getter}");
        assert!(!program.process().usage.is_empty() || getter == "get_device_ids", "{getter}");
        program.quit();
    }
}

#[test]
fn implausible_statistics_end_audits_only() {
    for how in [ALL[0], ALL[2]] {
        let mut program = start_with_mesh(how);
        program.check_figures();
        program.run("nonsense 1");
        let first = program.number("alloc 1 dram 2048 24");
        let queries = program.number("queries");
        // One implausible answer is enough; failed allocations query the statistics, too.
        program.run("alloc 1 l1 1048576 192");
        program.run("alloc 1 l1 1048576 192");
        assert!(program.number("queries") <= queries + 2);
        program.number("alloc 1 l1 2048 64");
        assert_eq!(program.allocations().len(), 2);
        program.run(&format!("free {first}"));
        let process = program.process();
        assert!(process.complete);
        let l1 = process.usage[0].usage.l1.as_ref().unwrap();
        assert_eq!((l1.allocated_bytes, l1.count), (Some(2048 * 64), Some(1)));
        assert!(program.finding(FindingKind::Drift).is_none());
        program.quit();
    }
}

#[test]
fn implausible_shard_grids_are_harmless() {
    const MAX: u32 = u32::MAX;
    for how in [ALL[1], ALL[2]] {
        let mut program = start_with_mesh(how);
        let range = |from: (u64, u64), to: (u64, u64), cores: u32, order: u32| {
            format!(" on {} {} {} {} {cores} {order}", from.0, from.1, to.0, to.1)
        };
        let huge = u64::MAX;
        let grids = [
            range((0, 0), (7, 7), 0, 0),
            range((0, 0), (7, 7), 65, 0),
            range((0, 0), (255, 255), MAX, 1),
            range((0, 0), (huge, huge), MAX, 0),
            // The end is before the beginning: as unsigned numbers, a very wide range.
            range((9, 9), (3, 3), MAX, 0),
            range((9, 0), (3, 0), MAX, 1),
            range((9, 0), (3, 0), MAX, 0),
            range((9, 1), (2, 1), MAX, 0),
            range((9, 2), (1, 2), MAX, 0),
            range((huge, 0), (0, 0), MAX, 0),
            range((4, 4), (3, 3), MAX, 1),
            range((0, 0), (1, 1), MAX, 0).repeat(200),
        ];
        for grid in &grids {
            program.number(&format!("alloc 1 l1 64 8{grid}"));
        }
        program.check_figures();
        assert!(program.cpu_time().as_secs() < 3, "four billion cores are not counted");
        // After this the agent queries no more grids.
        program.run("torn 1");
        for grid in [range((0, 0), (3, 3), 16, 0), range((0, 0), (1, 1), 4, 0).repeat(300)] {
            program.number(&format!("alloc 1 l1 64 8{grid}"));
        }
        program.run("torn 0");
        assert_eq!(program.allocations().len(), grids.len() + 2);
        program.check_figures();
        // The agent leaks the one result whose layout it did not recognise.
        let status = program.wait_for_exit();
        let leaks = program.errors().contains("leaked in 1 allocation(s)");
        assert_eq!(
            (status.success(), leaks),
            if how.0 == Build::Address { (false, true) } else { (true, false) }
        );
    }
}

#[test]
fn impossible_sizes_only_are_refused() {
    for how in [ALL[1], ALL[2]] {
        let mut program = Program::start_hybrid(how.0, how.1);
        program.run("mesh 0 2 4096");
        program.run("huge 1");
        let buffer = program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 64 8 percore on 0 0 3 1 8 0");
        assert_eq!(program.run("alloc 1 l1 1048576 192"), "fatal 1 out of memory");
        assert!(program.allocations().is_empty());
        assert_eq!(program.run(&format!("free {buffer}")), "fine");
        program.run("huge 0");
        program.number("alloc 1 dram 2048 24");
        program.check_figures();
        program.quit();
    }
}

#[test]
fn thread_can_exit_inside_an_allocation() {
    for how in ALL {
        let mut program = start_with_mesh(how);
        assert_eq!(program.run("thread_exit 1"), "joined");
        program.number("alloc 1 dram 2048 24");
        program.check_figures();
        program.quit();
    }
}

#[test]
fn failures_of_every_kind_reach_their_threads() {
    for how in
        [(Build::Plain, Linkage::Loaded), (Build::Address, Linkage::Linked), (Build::Thread, Linkage::Linked)]
    {
        let mut program = start_with_mesh(how);
        let failures: i64 = program.run("threads 1 8 400").parse().unwrap();
        assert!(failures > 100, "{failures}: -1 means that one arrived changed");
        program.check_figures();
        program.expect_exact();
        program.quit();
    }
}

/// The agent has a counter for each of 1,000 threads; the others share one.
#[test]
fn more_threads_than_counters_are_tracked() {
    let mut program = start_with_mesh(ALL[0]);
    assert!(program.run("threads 1 1100 8").parse::<i64>().unwrap() > 100);
    program.check_figures();
    program.run("threads 1 8 100");
    program.check_figures();
    program.expect_exact();
    program.quit();
}
