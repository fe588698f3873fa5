//! Programs that outlive their mesh or their process, and very many of them.

use crate::make::{Build, Linkage};
use crate::{ALL, Program, process, segments};
use std::fmt::Write;
use ttmem_core::snapshot::FindingKind;

#[test]
fn closed_mesh_leaves_no_program_memory() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        let mut made = Vec::new();
        for _ in 0..3 {
            let mesh = program.number("mesh 0 2 0");
            for n in 1..=5 {
                let (own, workload) =
                    program.workload((0, n % 2), "config 64 data k 0 0 1 0 cb 32 0 0 0 0 dfb 64 0 0 1 0");
                program.enqueue(mesh, workload);
                made.extend([own.to_string(), workload.to_string()]);
            }
            assert_eq!(program.program_memory().len(), 15);
            program.run(&format!("close {mesh}"));
            assert!(program.program_memory().is_empty());
            assert!(program.process().usage.is_empty() || program.program_usage(0) == [(0, 0); 4]);
            program.expect_no_findings();
        }
        program.run(&format!("drop {}", made.join(" ")));
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn child_does_not_have_its_parents_programs() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        let parent = program.pid();
        program.run("mesh 0 2 0");
        let (made, workload) =
            program.workload((0, 1), "config 64 data k 0 0 1 0 cb 32 0 0 0 0 dfb 64 0 0 1 0");
        program.enqueue(1, workload);
        program.run("begin 1 3 0");
        program.enqueue(1, workload);
        program.run("end 1 3 0");
        let before = program.program_memory();
        let child = u32::try_from(program.number("fork")).unwrap();
        program.enqueue(1, workload);
        program.run("replay 1 3 0");
        program.run("release 1 3");
        program.run(&format!("drop {made} {workload}"));
        let (_, new) = program.workload((1, 1), "cb 512 0 0 0 0");
        program.enqueue(1, new);
        let snapshot = program.snapshot();
        let own = process(&snapshot, child).expect("the child is tracked");
        assert!(own.complete, "{:#?}", snapshot.findings);
        let cbs: Vec<_> = own.usage.iter().filter_map(|it| it.usage.cb.as_ref()).collect();
        assert!(
            cbs.len() == 1 && cbs[0].registered_bytes == 512 && cbs[0].resident_bytes == Some(512),
            "{cbs:?}"
        );
        assert!(own.usage.iter().all(|it| it.usage.dfb.is_none()), "{own:?}");
        assert_eq!(
            program.program_usage(0),
            [(32, 32), (128, 128), (0, 0), (128, 128)],
            "the parent's are as they were"
        );
        program.run("close 1");
        assert!(process(&program.snapshot(), parent).unwrap().complete);
        program.send("exit 0 _exit");
        assert_eq!(program.receive("the parent"), "0");
        assert_eq!(program.program_memory(), before);
        program.run("replay 1 3 0");
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn killed_process_has_no_resident_programs() {
    let mut program = Program::start(ALL[0].0, ALL[0].1);
    program.run("mesh 0 2 0");
    let (_, workload) = program.workload((0, 1), "config 64 data k 0 0 0 0 cb 32 0 0 0 0");
    program.enqueue(1, workload);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert!(program.program_memory().is_empty());
    assert!(program.snapshot().processes.is_empty());
    assert_eq!(segments(program.folder()).len(), 1, "it leaves a crash segment");
}

#[test]
fn program_can_have_very_many_parts() {
    for (build, linkage) in [ALL[1], ALL[2]] {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 0");
        let mut plan = "config 64".to_owned();
        for n in 0..600 {
            let (space, bytes, x, y) = (["cb", "dfb"][n % 2], 16 + n / 2 % 3 * 16, n % 8, n / 8 % 8);
            let _ = write!(plan, " {space} {bytes} {x} {y} {x} {y}");
        }
        // Views that repeat in a later batch.
        for n in 0..300 {
            let _ = write!(plan, " view {} 64 0 0 0 0", 500_000 + n % 290 * 64);
        }
        let (made, workload) = program.workload((0, 0), &plan);
        program.enqueue(1, workload);
        let held = program.program_usage(0);
        assert_eq!(held[0], (300 * 32, 300 * 32));
        assert_eq!(held[1], (300 * 32, 300 * 32));
        assert_eq!(program.program_memory().iter().filter(|it| it.ends_with("view")).count(), 290);
        program.expect_no_findings();
        program.run(&format!("drop {made} {workload}"));
        assert!(program.program_memory().is_empty());
        program.quit();
    }
}

#[test]
fn more_programs_than_slots_are_reported_as_lost() {
    let mut program = Program::start(Build::Plain, Linkage::Linked);
    program.run("mesh 0 1 0");
    program.run("many 1 70000 70000 1");
    let held = program.program_usage(0);
    assert_eq!(held[1].1, 64, "{held:?}");
    assert_eq!(program.program_memory().len(), 2 * 49_152);
    // Programs that did not fit are reported as lost.
    assert!(!program.process().complete);
    let lost = program.finding(FindingKind::LostRecords).unwrap();
    assert_eq!(lost.count, 70_000 - 49_152);
    program.run("many 1 10 0 1");
    assert!(program.program_memory().is_empty(), "{}", program.program_memory().len());
    let (_, workload) = program.workload((0, 0), "cb 64 5 5 5 5");
    program.enqueue(1, workload);
    assert_eq!(program.program_usage(0)[0], (64, 64));
    program.quit();
}

#[test]
fn slots_of_destroyed_programs_are_reused() {
    let mut program = Program::start(Build::Plain, Linkage::Linked);
    program.run("mesh 0 1 0");
    // Many times the number of slots for programs and for notes.
    for alive in [0, 0, 0, 0, 0, 0, 0, 0, 0, 100] {
        program.run(&format!("many 1 100000 {alive} 1"));
    }
    assert_eq!(program.program_memory().len(), 2 * 100);
    assert_eq!(program.resident(0), [0, 64, 0, 128]);
    program.expect_no_findings();
    program.quit();
}

/// Lookups take a few steps, however many programs there are.
#[test]
fn many_old_programs_do_not_slow_down_new_ones() {
    let mut times = Vec::new();
    for staying in [0, 40_000] {
        let mut program = Program::start(Build::Plain, Linkage::Linked);
        program.run("mesh 0 1 0");
        program.run(&format!("many 1 {} {staying} 0", staying.max(1)));
        program.run(&format!("many 1 {} 1 0", 66_000 - staying));
        let before = program.cpu_time();
        program.run("many 1 30000 1 0");
        times.push(program.cpu_time().saturating_sub(before));
        program.quit();
    }
    assert!(times[1] < times[0] * 3, "{times:?}");
}

#[test]
fn programs_are_created_and_destroyed_in_many_threads() {
    for (build, linkage) in
        [(Build::Plain, Linkage::Loaded), (Build::Address, Linkage::Linked), (Build::Thread, Linkage::Linked)]
    {
        let mut program = Program::start(build, linkage);
        program.run("mesh 20 1 0");
        let (_, workload) = program.workload((0, 0), "config 64 data k 0 0 0 0 cb 32 0 0 0 0");
        program.enqueue(1, workload);
        program.run("lives 8 60");
        assert_eq!(program.program_memory().len(), 2, "{:?}", program.program_memory());
        assert_eq!(program.resident(20), [32, 0, 0, 64]);
        program.expect_exact();
        program.quit();
    }
}

/// A workload can outlive its mesh.
#[test]
fn program_can_be_dispatched_on_a_reopened_mesh() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 2 0");
        let (_, workload) = program.workload((1, 1), "config 64 data k 0 0 0 0 cb 32 0 0 0 0 dfb 64 0 0 0 0");
        program.enqueue(1, workload);
        program.run("close 1");
        assert!(program.program_memory().is_empty());
        let mesh = program.number("mesh 0 2 0");
        program.enqueue(mesh, workload);
        assert_eq!(program.resident(1), [32, 64, 0, 64]);
        assert_eq!(program.resident(0), [0; 4]);
        program.expect_no_findings();
        program.quit();
    }
}
