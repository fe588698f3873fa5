//! All operations of an allocator, compared with the allocator's own statistics.

use crate::{ALL, Build, Linkage, Program};
use ttmem_core::words::{Arch, Basis};

#[test]
fn every_space_and_chip_is_right() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 4 3 8192");
        program.run("device 40");
        for command in [
            "alloc 1 dram 2048 100",
            "alloc 1 dram 30 1",
            "alloc 1 l1 16 1",
            "alloc 1 l1 48 200",
            "alloc 1 l1 2048 7 on 0 0 6 0 7 0",
            "alloc 1 l1_small 16 1",
            "alloc 1 trace 4096 2",
            "alloc 2 dram 64 1",
        ] {
            program.number(command);
        }
        program.check_figures();
        let snapshot = program.snapshot();
        let chips: Vec<_> = snapshot.devices.iter().map(|it| (it.index, it.id.as_str(), it.remote)).collect();
        let [(4, a, false), (5, b, true), (6, c, false), (40, d, _)] = chips[..] else { panic!("{chips:?}") };
        assert_eq!([a, b, c], [4, 5, 6].map(|n| format!("0x{:016x}", 0x5717_d100_u64 + n)));
        assert_eq!(d, "ordinal-40", "its id is unknown");
        assert!(snapshot.devices.iter().all(|it| it.arch == Some(Arch::WormholeB0)));
        assert_eq!(snapshot.devices[0].board.as_deref(), Some("n300"));
        let process = program.process();
        assert!(process.complete && process.basis == Basis::Exact, "{process:?}");
        let tracker = process.tracker.unwrap();
        assert!(tracker.missing_hooks.is_empty() && tracker.hooks == 27, "{tracker:?}");
        program.quit();
    }
}

#[test]
fn bulk_free_empties_an_allocator_that_stays_open() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 4096");
        for verb in ["bulk", "clear"] {
            let stale = program.number("alloc 1 dram 2048 24");
            program.number("alloc 1 l1_small 64 1");
            program.run(&format!("{verb} 1"));
            program.check_figures();
            assert_eq!(program.allocations().len(), 0, "{verb}");
            // The stale buffer frees its address later, which another buffer has now.
            let other = program.number("alloc 1 dram 4096 12");
            program.check_figures();
            assert_eq!(program.run(&format!("free {stale}")), "fine");
            program.check_figures();
            assert_eq!(program.run(&format!("free {other}")), "fine");
            program.check_figures();
        }
        program.run("close 1");
        let process = program.process();
        assert!(process.allocators.is_empty(), "{process:?}");
        program.quit();
    }
}

#[test]
fn allocator_shrinks_and_grows() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 4096");
        program.number("alloc 1 l1 2048 64");
        assert_eq!(program.run("shrink 1 l1 65536"), "fine");
        program.number("alloc 1 l1 64 64");
        program.check_figures();
        assert_eq!(program.run("shrink 1 l1 33554432"), "fatal 5 cannot shrink");
        program.check_figures();
        // All of the smaller space can be allocated.
        let bytes = program.process().allocators[0].spaces.iter().find(|it| it.space.name() == "l1").cloned();
        let left = bytes.unwrap().usage.largest_free_bytes_per_bank.unwrap();
        program.number(&format!("alloc 1 l1 {left} 64"));
        program.check_figures();
        program.run("bulk 1");
        program.number("alloc 1 l1 64 64");
        program.check_figures();
        assert_eq!(program.run("shrink 1 l1 0"), "fine");
        program.check_figures();
        program.run("shrink 1 l1 4096");
        program.run("clear 1");
        program.check_figures();
        // A new allocator has its full size again.
        program.run("shrink 1 l1 4096");
        program.run("close 1");
        let again = program.number("mesh 0 1 4096");
        program.number(&format!("alloc {again} l1 64 64"));
        program.check_figures();
        program.quit();
    }
}

#[test]
fn overridden_allocator_is_read_anew() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 4096");
        let stale = program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 2048 64");
        program.run("override 1 dram 0 64 dram 128 4096 l1 1000000 2048 l1_small 32 32");
        program.check_figures();
        program.run(&format!("free {stale}"));
        program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 64 64");
        program.check_figures();
        program.run("override 1");
        program.check_figures();
        program.run("shrink 1 l1 65536");
        program.run("override 1 l1 65536 2048 l1 1000000 4096");
        program.check_figures();
        program.run("override 1");
        assert_eq!(program.allocations().len(), 0);
        program.quit();
    }
}

#[test]
fn mirrored_buffers_occupy_space_but_are_not_usage() {
    for (build, linkage) in ALL {
        let mut program = Program::start_hybrid(build, linkage);
        program.run("mesh 0 1 0");
        program.run("device 0");
        let answer = program.run("alloc 1 l1 48 64");
        let (buffer, address) = answer.split_once(' ').unwrap();
        for _ in 0..2 {
            // Mirrored twice, but recorded once.
            program.run(&format!("mirror 2 {address} 48"));
        }
        program.check_figures();
        let l1 = program.process().usage[0].usage.l1.clone().unwrap();
        assert_eq!((l1.count, l1.allocated_bytes, l1.requested_bytes), (Some(1), Some(64 * 64), 48 * 64));
        program.run(&format!("mirror 2 {address} 0"));
        program.run(&format!("mirror 2 {address} 0"));
        program.run(&format!("free {buffer}"));
        program.check_figures();
        program.expect_exact();
        program.quit();
    }
}

#[test]
fn buffer_can_have_an_address_per_core() {
    for (build, linkage) in ALL {
        let mut program = Program::start_hybrid(build, linkage);
        program.run("device 0");
        program.run("mesh 0 1 0");
        let first = program.number("alloc 1 l1 64 8 percore on 0 0 3 1 8 0");
        let second = program.number("alloc 1 l1 2048 3 percore on 5 5 5 7 3 0");
        program.check_figures();
        let listed = program.allocations();
        let mut parts: Vec<_> =
            listed.iter().map(|it| (it["space"].as_str().unwrap(), &it["allocated_bytes"])).collect();
        parts.sort_unstable_by_key(|it| it.1.as_u64());
        // Eight cores at two addresses, 64 bytes on each; three cores in one column at one.
        assert_eq!(parts, [("l1_core", &256.into()), ("l1_core", &256.into()), ("l1_core", &6144.into())]);
        let usage = program.process().usage[0].usage.l1_core.clone().unwrap();
        assert_eq!((usage.allocated_bytes, usage.count), (Some(6144 + 512), Some(3)));
        program.run(&format!("free {first}"));
        assert_eq!(program.allocations().len(), 1);
        // If the addresses cannot be read at the free, the buffer stays listed.
        program.run("throwing get_per_core_addresses");
        program.run(&format!("free {second}"));
        program.run("throwing nothing");
        program.check_figures();
        program.quit();
    }
}

/// A valid audit follows the last event, even if another allocator was busy at the first attempt.
#[test]
fn allocator_is_audited_once_others_are_idle() {
    let mut program = Program::start(Build::Plain, Linkage::Linked);
    program.run("mesh 0 1 0");
    program.run("mesh 1 1 0");
    program.check_figures();
    // A thread is inside the second allocator until three statistics of the first were queried.
    assert_eq!(program.run("park 2 3"), "parked");
    program.number("alloc 1 dram 2048 12");
    assert_eq!(program.receive("park"), "fatal 5 was parked");
    ttmem_testkit::eventually("an audit that counts", || {
        let process = program.process();
        let counts = |it: &&ttmem_core::snapshot::AuditResult| it.compared && it.allocated_bytes == 12 * 2048;
        process.audit.iter().find(counts).map(|it| assert_eq!(it.drift_bytes, 0))
    });
    program.quit();
}
