//! Traces: nothing runs while one is captured, and all of it when it is replayed.

use crate::{ALL, Program};

/// Starts with three dispatched programs: on two cores, on the first of them, and on another chip.
fn start_with_three(how: (crate::Build, crate::Linkage)) -> (Program, [u64; 3]) {
    let mut program = Program::start(how.0, how.1);
    program.run("mesh 0 2 0");
    let plans = [
        ((0, 1), "config 16 data a 0 0 1 0 cb 64 0 0 1 0"),
        ((0, 1), "config 32 data b 0 0 0 0 cb 128 0 0 0 0"),
        ((1, 1), "config 48 data c 0 0 0 0 dfb 256 0 0 0 0"),
    ];
    let workloads = plans.map(|(chips, plan)| program.workload(chips, plan).1);
    for workload in workloads {
        program.enqueue(1, workload);
    }
    (program, workloads)
}

const AFTER_ALL: [[u64; 4]; 2] = [[64 + 128, 0, 0, 16 + 32], [64, 256, 0, 16 + 48]];
const AFTER_FIRST: [[u64; 4]; 2] = [[128, 0, 0, 32]; 2];

impl Program {
    fn resident_on_both(&self) -> [[u64; 4]; 2] {
        [self.resident(0), self.resident(1)]
    }

    fn trace(&mut self, step: &str, id: u32) {
        assert_eq!(self.run(&format!("{step} 1 {id} 0")), "fine");
    }

    /// Live traces: number, dispatches and replays.
    fn traces(&self) -> Vec<(u32, u64, u64)> {
        self.process().traces.iter().map(|it| (it.id, it.dispatches, it.replays)).collect()
    }
}

#[test]
fn captured_dispatches_run_at_replay() {
    for how in ALL {
        let (mut program, [a, b, c]) = start_with_three(how);
        assert_eq!(program.resident_on_both(), AFTER_ALL);
        program.enqueue(1, a);
        assert_eq!(program.resident_on_both(), AFTER_FIRST);
        program.trace("begin", 0);
        for workload in [a, b, a, b, c] {
            program.enqueue(1, workload);
            assert_eq!(program.resident_on_both(), AFTER_FIRST);
        }
        program.trace("end", 0);
        assert_eq!(program.resident_on_both(), AFTER_FIRST);
        program.trace("begin", 1);
        program.enqueue(1, b);
        program.enqueue(1, a);
        program.trace("end", 1);
        for _ in 0..2 {
            program.trace("replay", 0);
            assert_eq!(program.resident_on_both(), AFTER_ALL);
            program.trace("replay", 1);
            assert_eq!(program.resident_on_both(), AFTER_FIRST);
        }
        assert_eq!(program.traces(), [(0, 5, 2), (1, 2, 2)]);
        program.trace("release", 0);
        program.trace("replay", 1);
        assert_eq!(program.traces(), [(1, 2, 3)]);
        // A trace that was released, and one that never existed.
        program.trace("replay", 0);
        program.trace("release", 0);
        program.trace("end", 77);
        assert_eq!(program.resident_on_both(), AFTER_FIRST);
        program.enqueue(1, c);
        assert_eq!(program.resident_on_both(), [AFTER_FIRST[0], AFTER_ALL[1]]);
        program.expect_no_findings();
        // The mesh is closed with a live trace.
        program.run("close 1");
        assert!(program.program_memory().is_empty());
        program.expect_no_findings();
        let mesh = program.number("mesh 0 2 0");
        assert_eq!(program.run(&format!("replay {mesh} 1 0")), "fine");
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn trace_can_outlive_its_programs() {
    for how in ALL {
        let mut program = Program::start(how.0, how.1);
        program.run("mesh 0 1 0");
        program.run("reuse 1");
        let (first, a) = program.workload((0, 0), "cb 64 0 0 0 0");
        let (_, b) = program.workload((0, 0), "cb 128 1 0 1 0");
        program.enqueue(1, a);
        program.enqueue(1, b);
        program.trace("begin", 0);
        program.enqueue(1, a);
        program.enqueue(1, b);
        program.trace("end", 0);
        program.run(&format!("drop {first} {a}"));
        // At the address of the first.
        let (_, other) = program.workload((0, 0), "cb 256 0 0 0 0");
        program.run(&format!("compile 1 {other}"));
        program.trace("replay", 0);
        assert_eq!(program.program_usage(0)[0], (128 + 256, 128));
        program.expect_no_findings();
        program.trace("release", 0);
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn only_the_queue_of_a_capture_is_captured() {
    for how in ALL {
        let (mut program, [a, b, _]) = start_with_three(how);
        program.enqueue(1, a);
        assert_eq!(program.run("begin 1 0 1"), "fine");
        assert_eq!(program.run(&format!("enqueue 1 {b} 1")), "fine");
        assert_eq!(program.resident_on_both(), AFTER_FIRST);
        program.enqueue(1, b);
        assert_eq!(program.resident_on_both(), [AFTER_ALL[0]; 2]);
        assert_eq!(program.run("end 1 0 1"), "fine");
        program.enqueue(1, a);
        assert_eq!(program.run("replay 1 0 1"), "fine");
        assert_eq!(program.resident_on_both(), [AFTER_ALL[0]; 2]);
        program.expect_no_findings();
        program.quit();
    }
}

/// A capture on one mesh does not affect another with the same chips.
#[test]
fn only_the_mesh_of_a_capture_is_captured() {
    let (mut program, [a, ..]) = start_with_three(ALL[1]);
    let sub = program.number("mesh 1 1 0");
    let (_, own) = program.workload((0, 0), "cb 512 0 0 1 0");
    program.trace("begin", 0);
    program.enqueue(sub, own);
    assert_eq!(program.resident(1)[0], 1024);
    program.enqueue(1, a);
    assert_eq!(program.resident(1)[0], 1024);
    program.trace("end", 0);
    program.trace("replay", 0);
    assert_eq!(program.resident(1)[0], 128);
    program.run(&format!("close {sub}"));
    program.trace("replay", 0);
    assert_eq!(program.resident(1)[0], 128);
    program.expect_no_findings();
    program.quit();
}

#[test]
fn throwing_trace_functions_have_no_effect() {
    for how in ALL {
        let (mut program, [a, b, _]) = start_with_three(how);
        program.enqueue(1, a);
        program.run("throwing begin_mesh_trace");
        assert_eq!(program.run("begin 1 0 0"), "fatal -1 begin_mesh_trace");
        program.run("throwing nothing");
        program.enqueue(1, b);
        assert_eq!(program.resident_on_both(), [AFTER_ALL[0]; 2], "nothing is captured");
        // A capture that does not fit ends, and the queue runs again.
        program.trace("begin", 1);
        program.enqueue(1, a);
        program.run("throwing end_mesh_trace");
        assert_eq!(program.run("end 1 1 0"), "fatal -1 end_mesh_trace");
        program.run("throwing nothing");
        assert_eq!(program.resident_on_both(), [AFTER_ALL[0]; 2]);
        program.enqueue(1, a);
        assert_eq!(program.resident_on_both(), AFTER_FIRST, "nothing is captured any more");
        program.trace("begin", 2);
        program.enqueue(1, b);
        program.trace("end", 2);
        program.run("throwing replay_mesh_trace");
        assert_eq!(program.run("replay 1 2 0"), "fatal -1 replay_mesh_trace");
        assert_eq!(program.resident_on_both(), AFTER_FIRST);
        program.run("throwing release_mesh_trace");
        assert_eq!(program.run("release 1 2"), "fatal -1 release_mesh_trace");
        program.run("throwing nothing");
        program.trace("replay", 2);
        assert_eq!(program.resident_on_both(), [AFTER_ALL[0]; 2]);
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn throwing_dispatch_is_not_captured() {
    let (mut program, [a, b, _]) = start_with_three(ALL[1]);
    program.trace("begin", 0);
    program.enqueue(1, a);
    program.run("throwing EnqueueMeshWorkload");
    assert_eq!(program.run(&format!("enqueue 1 {b}")), "fatal -1 EnqueueMeshWorkload");
    program.run("throwing nothing");
    program.trace("end", 0);
    program.trace("replay", 0);
    assert_eq!(program.resident_on_both(), AFTER_FIRST);
    program.expect_no_findings();
    program.quit();
}

/// Tensors and sizes that change in a capture are not on the device before the replay.
#[test]
fn changes_in_a_capture_take_effect_at_replay() {
    for how in ALL {
        let mut program = Program::start(how.0, how.1);
        program.run("mesh 0 1 0");
        let (made, a) =
            program.workload((0, 0), "config 16 data a 0 0 0 0 cb 64 0 0 0 0 view 500000 64 0 0 0 0");
        program.enqueue(1, a);
        assert_eq!(program.resident(0), [64, 0, 0, 16]);
        program.trace("begin", 0);
        program.run(&format!("move {made} 600000"));
        program.enqueue(1, a);
        assert_eq!(program.resident(0), [64, 0, 0, 16], "it is still resident");
        program.trace("end", 0);
        assert_eq!(program.resident(0), [64, 0, 0, 16]);
        program.trace("replay", 0);
        assert_eq!(program.resident(0), [64, 0, 0, 16]);
        program.run(&format!("move {made} 700000"));
        program.enqueue(1, a);
        assert!(
            program
                .program_memory()
                .iter()
                .any(|it| it.contains(&format!("@{} ", 700_000 - crate::programs::BASE)))
        );
        program.expect_no_findings();
        program.quit();
    }
}

/// 128 programs in one trace, and 400 traces.
#[test]
fn many_programs_and_traces_are_tracked() {
    let mut program = Program::start(ALL[1].0, ALL[1].1);
    program.run("mesh 0 1 0");
    let mut all = Vec::new();
    for n in 0..128 {
        let (x, y) = (n % 16, n / 16);
        let plan = format!("config 16 data a {x} {y} {x} {y} cb 64 {x} {y} {x} {y}");
        all.push(program.workload((0, 0), &plan).1);
    }
    let (_, over) = program.workload((0, 0), "config 16 data all 0 0 15 15 dfb 32 0 0 15 15");
    program.enqueue(1, over);
    for &workload in &all {
        program.run(&format!("compile 1 {workload}"));
    }
    program.trace("begin", 0);
    for &workload in &all {
        program.enqueue(1, workload);
    }
    program.trace("end", 0);
    assert_eq!(program.resident(0), [0, 256 * 32, 0, 256 * 16]);
    program.trace("replay", 0);
    assert_eq!(program.resident(0), [128 * 64, 128 * 32, 0, 256 * 16]);
    for trace in 1..400 {
        program.trace("begin", trace);
        program.enqueue(1, all[0]);
        program.trace("end", trace);
    }
    for trace in 0..400 {
        program.trace("release", trace);
    }
    program.expect_no_findings();
    program.enqueue(1, over);
    assert_eq!(program.resident(0)[1], 256 * 32);
    program.quit();
}

#[test]
fn sub_device_managers_are_created_and_destroyed() {
    for how in ALL {
        let (mut program, [a, b, _]) = start_with_three(how);
        program.run("manage 1 1");
        assert_eq!(program.process().allocators.iter().filter(|it| !it.spaces.is_empty()).count(), 2);
        let (_, own) = program.workload((0, 1), "config 64 data own 4 4 5 5 cb 32 4 4 5 5");
        program.trace("begin", 0);
        program.enqueue(1, b);
        program.trace("end", 0);
        program.enqueue(1, own);
        assert_eq!(program.resident(0), [64 + 128 + 4 * 32, 0, 0, 16 + 32 + 4 * 64]);
        program.run("manage 1 0");
        assert_eq!(program.resident(0), [64 + 128 + 4 * 32, 0, 0, 16 + 32 + 4 * 64]);
        program.enqueue(1, a);
        assert_eq!(program.resident(0), [128 + 4 * 32, 0, 0, 32 + 4 * 64]);
        program.expect_no_findings();
        program.run("close 1");
        program.expect_no_findings();
        program.quit();
    }
}

/// A queue captures one trace at a time.
#[test]
fn new_capture_ends_the_previous_one() {
    let (mut program, [a, b, _]) = start_with_three(ALL[1]);
    program.trace("begin", 4);
    program.trace("begin", 4);
    program.trace("begin", 5);
    program.enqueue(1, a);
    // There is nothing to replay yet.
    program.trace("replay", 5);
    assert_eq!(program.resident_on_both(), AFTER_ALL);
    program.trace("end", 5);
    program.enqueue(1, b);
    assert_eq!(program.resident_on_both(), [AFTER_ALL[0]; 2]);
    program.trace("replay", 5);
    assert_eq!(program.resident_on_both(), AFTER_FIRST);
    // The mesh is closed during a capture.
    program.trace("begin", 6);
    program.run("close 1");
    let mesh = program.number("mesh 0 2 0");
    let (_, other) = program.workload((0, 0), "cb 64 0 0 0 0");
    program.enqueue(mesh, other);
    assert_eq!(program.resident(0)[0], 64);
    program.expect_no_findings();
    program.quit();
}
