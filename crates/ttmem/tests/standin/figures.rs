//! Everything an allocator can do, beside what the allocator says of itself.

use crate::{ALL, Build, Program, Way};
use ttmem_core::words::{Arch, Basis};

#[test]
fn every_space_is_right_and_every_chip_is_known() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 4 3 8192");
        program.does("device 40");
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
        program.is_right();
        let snapshot = program.snapshot();
        let chips: Vec<_> = snapshot.devices.iter().map(|it| (it.index, it.id.as_str(), it.remote)).collect();
        let [(4, a, false), (5, b, true), (6, c, false), (40, d, _)] = chips[..] else { panic!("{chips:?}") };
        assert_eq!([a, b, c], [4, 5, 6].map(|n| format!("0x{:016x}", 0x5717_d100_u64 + n)));
        assert_eq!(d, "ordinal-40", "nobody knows its id");
        assert!(snapshot.devices.iter().all(|it| it.arch == Some(Arch::WormholeB0)));
        assert_eq!(snapshot.devices[0].board.as_deref(), Some("n300"));
        let process = program.process();
        assert!(process.complete && process.basis == Basis::Exact, "{process:?}");
        let tracker = process.tracker.unwrap();
        assert!(tracker.missing_hooks.is_empty() && tracker.hooks == 26, "{tracker:?}");
        program.quits();
    }
}

#[test]
fn bulk_frees_empty_an_allocator_that_goes_on() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 4096");
        for verb in ["bulk", "clear"] {
            let stale = program.number("alloc 1 dram 2048 24");
            program.number("alloc 1 l1_small 64 1");
            program.does(&format!("{verb} 1"));
            program.is_right();
            assert_eq!(program.listed().len(), 0, "{verb}");
            // It is told nothing of that, and frees by address what another has now.
            let other = program.number("alloc 1 dram 4096 12");
            program.is_right();
            assert_eq!(program.does(&format!("free {stale}")), "fine");
            program.is_right();
            assert_eq!(program.does(&format!("free {other}")), "fine");
            program.is_right();
        }
        program.does("close 1");
        let process = program.process();
        assert!(process.allocators.is_empty(), "{process:?}");
        program.quits();
    }
}

#[test]
fn an_allocator_shrinks_and_grows() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 4096");
        program.number("alloc 1 l1 2048 64");
        assert_eq!(program.does("shrink 1 l1 65536"), "fine");
        program.number("alloc 1 l1 64 64");
        program.is_right();
        assert_eq!(program.does("shrink 1 l1 33554432"), "fatal 5 cannot shrink");
        program.is_right();
        // All the smaller space can be taken.
        let bytes = program.process().allocators[0].spaces.iter().find(|it| it.space.name() == "l1").cloned();
        let left = bytes.unwrap().usage.largest_free_bytes_per_bank.unwrap();
        program.number(&format!("alloc 1 l1 {left} 64"));
        program.is_right();
        program.does("bulk 1");
        program.number("alloc 1 l1 64 64");
        program.is_right();
        assert_eq!(program.does("shrink 1 l1 0"), "fine");
        program.is_right();
        program.does("shrink 1 l1 4096");
        program.does("clear 1");
        program.is_right();
        // Another one of the kind begins as this one did.
        program.does("shrink 1 l1 4096");
        program.does("close 1");
        let again = program.number("mesh 0 1 4096");
        program.number(&format!("alloc {again} l1 64 64"));
        program.is_right();
        program.quits();
    }
}

#[test]
fn an_overridden_allocator_is_read_anew() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 4096");
        let stale = program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 2048 64");
        program.does("override 1 dram 0 64 dram 128 4096 l1 1000000 2048 l1_small 32 32");
        program.is_right();
        program.does(&format!("free {stale}"));
        program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 64 64");
        program.is_right();
        program.does("override 1");
        program.is_right();
        program.does("shrink 1 l1 65536");
        program.does("override 1 l1 65536 2048 l1 1000000 4096");
        program.is_right();
        program.does("override 1");
        assert_eq!(program.listed().len(), 0);
        program.quits();
    }
}

#[test]
fn other_allocators_buffers_take_space_but_are_nobodys_use() {
    for (build, way) in ALL {
        let mut program = Program::hybrid(build, way);
        program.does("mesh 0 1 0");
        program.does("device 0");
        let answer = program.does("alloc 1 l1 48 64");
        let (buffer, address) = answer.split_once(' ').unwrap();
        for _ in 0..2 {
            // One mark, however many want it.
            program.does(&format!("mirror 2 {address} 48"));
        }
        program.is_right();
        let l1 = program.process().usage[0].usage.l1.clone().unwrap();
        assert_eq!((l1.count, l1.allocated_bytes, l1.requested_bytes), (Some(1), Some(64 * 64), 48 * 64));
        program.does(&format!("mirror 2 {address} 0"));
        program.does(&format!("mirror 2 {address} 0"));
        program.does(&format!("free {buffer}"));
        program.is_right();
        program.is_exact();
        program.quits();
    }
}

#[test]
fn a_buffer_may_have_another_address_on_each_core() {
    for (build, way) in ALL {
        let mut program = Program::hybrid(build, way);
        program.does("device 0");
        program.does("mesh 0 1 0");
        let first = program.number("alloc 1 l1 64 8 percore on 0 0 3 1 8 0");
        let second = program.number("alloc 1 l1 2048 3 percore on 5 5 5 7 3 0");
        program.is_right();
        let listed = program.listed();
        let mut parts: Vec<_> =
            listed.iter().map(|it| (it["space"].as_str().unwrap(), &it["allocated_bytes"])).collect();
        parts.sort_unstable_by_key(|it| it.1.as_u64());
        // Eight cores at two addresses, 64 bytes on each; three cores in one column at one.
        assert_eq!(parts, [("l1_core", &256.into()), ("l1_core", &256.into()), ("l1_core", &6144.into())]);
        let usage = program.process().usage[0].usage.l1_core.clone().unwrap();
        assert_eq!((usage.allocated_bytes, usage.count), (Some(6144 + 512), Some(3)));
        program.does(&format!("free {first}"));
        assert_eq!(program.listed().len(), 1);
        // What has no address any more is still what it was.
        program.does("throwing get_per_core_addresses");
        program.does(&format!("free {second}"));
        program.does("throwing nothing");
        program.is_right();
        program.quits();
    }
}

/// The last word after the last event is an audit that counts, though others were busy when it was first tried.
#[test]
fn an_allocator_is_audited_once_the_others_are_at_rest() {
    let mut program = Program::start(Build::Plain, Way::Linked);
    program.does("mesh 0 1 0");
    program.does("mesh 1 1 0");
    program.is_right();
    // A thread is inside the second allocator, until the first was asked for everything it has.
    assert_eq!(program.does("park 2 3"), "parked");
    program.number("alloc 1 dram 2048 12");
    assert_eq!(program.hear("park"), "fatal 5 was parked");
    ttmem_testkit::eventually("an audit that counts", || {
        let process = program.process();
        let counts = |it: &&ttmem_core::snapshot::AuditResult| it.compared && it.allocated_bytes == 12 * 2048;
        process.audit.iter().find(counts).map(|it| assert_eq!(it.drift_bytes, 0))
    });
    program.quits();
}
