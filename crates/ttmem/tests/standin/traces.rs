//! Traces: nothing happens while one is captured, and all of it when it is replayed.

use crate::{ALL, Program};

/// Three programs, each of which has been dispatched: on two cores, on the first of them, and on another chip.
fn with_three(how: (crate::Build, crate::Way)) -> (Program, [u64; 3]) {
    let mut program = Program::start(how.0, how.1);
    program.does("mesh 0 2 0");
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
    fn both(&self) -> [[u64; 4]; 2] {
        [self.resident(0), self.resident(1)]
    }

    fn trace(&mut self, step: &str, id: u32) {
        assert_eq!(self.does(&format!("{step} 1 {id} 0")), "fine");
    }

    /// Live traces: number, dispatches and replays.
    fn traces(&self) -> Vec<(u32, u64, u64)> {
        self.process().traces.iter().map(|it| (it.id, it.dispatches, it.replays)).collect()
    }
}

#[test]
fn nothing_runs_while_a_trace_is_captured_and_all_of_it_when_it_is_replayed() {
    for how in ALL {
        let (mut program, [a, b, c]) = with_three(how);
        assert_eq!(program.both(), AFTER_ALL);
        program.enqueue(1, a);
        assert_eq!(program.both(), AFTER_FIRST);
        program.trace("begin", 0);
        for workload in [a, b, a, b, c] {
            program.enqueue(1, workload);
            assert_eq!(program.both(), AFTER_FIRST);
        }
        program.trace("end", 0);
        assert_eq!(program.both(), AFTER_FIRST);
        program.trace("begin", 1);
        program.enqueue(1, b);
        program.enqueue(1, a);
        program.trace("end", 1);
        for _ in 0..2 {
            program.trace("replay", 0);
            assert_eq!(program.both(), AFTER_ALL);
            program.trace("replay", 1);
            assert_eq!(program.both(), AFTER_FIRST);
        }
        assert_eq!(program.traces(), [(0, 5, 2), (1, 2, 2)]);
        program.trace("release", 0);
        program.trace("replay", 1);
        assert_eq!(program.traces(), [(1, 2, 3)]);
        // One that is gone, and one that never was.
        program.trace("replay", 0);
        program.trace("release", 0);
        program.trace("end", 77);
        assert_eq!(program.both(), AFTER_FIRST);
        program.enqueue(1, c);
        assert_eq!(program.both(), [AFTER_FIRST[0], AFTER_ALL[1]]);
        program.is_faultless();
        // One is still live.
        program.does("close 1");
        assert!(program.kept().is_empty());
        program.is_faultless();
        let mesh = program.number("mesh 0 2 0");
        assert_eq!(program.does(&format!("replay {mesh} 1 0")), "fine");
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn a_trace_may_outlive_its_programs() {
    for how in ALL {
        let mut program = Program::start(how.0, how.1);
        program.does("mesh 0 1 0");
        program.does("reuse 1");
        let (first, a) = program.workload((0, 0), "cb 64 0 0 0 0");
        let (_, b) = program.workload((0, 0), "cb 128 1 0 1 0");
        program.enqueue(1, a);
        program.enqueue(1, b);
        program.trace("begin", 0);
        program.enqueue(1, a);
        program.enqueue(1, b);
        program.trace("end", 0);
        program.does(&format!("drop {first} {a}"));
        // Where the first was.
        let (_, other) = program.workload((0, 0), "cb 256 0 0 0 0");
        program.does(&format!("compile 1 {other}"));
        program.trace("replay", 0);
        assert_eq!(program.held(0)[0], (128 + 256, 128));
        program.is_faultless();
        program.trace("release", 0);
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn only_the_queue_of_a_capture_is_captured() {
    for how in ALL {
        let (mut program, [a, b, _]) = with_three(how);
        program.enqueue(1, a);
        assert_eq!(program.does("begin 1 0 1"), "fine");
        assert_eq!(program.does(&format!("enqueue 1 {b} 1")), "fine");
        assert_eq!(program.both(), AFTER_FIRST);
        program.enqueue(1, b);
        assert_eq!(program.both(), [AFTER_ALL[0]; 2]);
        assert_eq!(program.does("end 1 0 1"), "fine");
        program.enqueue(1, a);
        assert_eq!(program.does("replay 1 0 1"), "fine");
        assert_eq!(program.both(), [AFTER_ALL[0]; 2]);
        program.is_faultless();
        program.quits();
    }
}

/// A capture on one mesh is not one on another that has the same chips.
#[test]
fn only_the_mesh_of_a_capture_is_captured() {
    let (mut program, [a, ..]) = with_three(ALL[1]);
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
    program.does(&format!("close {sub}"));
    program.trace("replay", 0);
    assert_eq!(program.resident(1)[0], 128);
    program.is_faultless();
    program.quits();
}

#[test]
fn what_throws_is_no_step_of_a_trace() {
    for how in ALL {
        let (mut program, [a, b, _]) = with_three(how);
        program.enqueue(1, a);
        program.does("throwing begin_mesh_trace");
        assert_eq!(program.does("begin 1 0 0"), "fatal -1 begin_mesh_trace");
        program.does("throwing nothing");
        program.enqueue(1, b);
        assert_eq!(program.both(), [AFTER_ALL[0]; 2], "nothing is captured");
        // The queue is itself again when there is no room for what it captured.
        program.trace("begin", 1);
        program.enqueue(1, a);
        program.does("throwing end_mesh_trace");
        assert_eq!(program.does("end 1 1 0"), "fatal -1 end_mesh_trace");
        program.does("throwing nothing");
        assert_eq!(program.both(), [AFTER_ALL[0]; 2]);
        program.enqueue(1, a);
        assert_eq!(program.both(), AFTER_FIRST, "nothing is captured any more");
        program.trace("begin", 2);
        program.enqueue(1, b);
        program.trace("end", 2);
        program.does("throwing replay_mesh_trace");
        assert_eq!(program.does("replay 1 2 0"), "fatal -1 replay_mesh_trace");
        assert_eq!(program.both(), AFTER_FIRST);
        program.does("throwing release_mesh_trace");
        assert_eq!(program.does("release 1 2"), "fatal -1 release_mesh_trace");
        program.does("throwing nothing");
        program.trace("replay", 2);
        assert_eq!(program.both(), [AFTER_ALL[0]; 2]);
        program.is_faultless();
        program.quits();
    }
}

/// A dispatch that throws inside a capture is no part of it.
#[test]
fn what_throws_is_not_captured() {
    let (mut program, [a, b, _]) = with_three(ALL[1]);
    program.trace("begin", 0);
    program.enqueue(1, a);
    program.does("throwing EnqueueMeshWorkload");
    assert_eq!(program.does(&format!("enqueue 1 {b}")), "fatal -1 EnqueueMeshWorkload");
    program.does("throwing nothing");
    program.trace("end", 0);
    program.trace("replay", 0);
    assert_eq!(program.both(), AFTER_FIRST);
    program.is_faultless();
    program.quits();
}

/// Other tensors, or another size, are not on the device before the replay.
#[test]
fn what_changes_in_a_capture_stays_there() {
    for how in ALL {
        let mut program = Program::start(how.0, how.1);
        program.does("mesh 0 1 0");
        let (made, a) =
            program.workload((0, 0), "config 16 data a 0 0 0 0 cb 64 0 0 0 0 view 500000 64 0 0 0 0");
        program.enqueue(1, a);
        assert_eq!(program.resident(0), [64, 0, 0, 16]);
        program.trace("begin", 0);
        program.does(&format!("move {made} 600000"));
        program.enqueue(1, a);
        assert_eq!(program.resident(0), [64, 0, 0, 16], "it is still there");
        program.trace("end", 0);
        assert_eq!(program.resident(0), [64, 0, 0, 16]);
        program.trace("replay", 0);
        assert_eq!(program.resident(0), [64, 0, 0, 16]);
        program.does(&format!("move {made} 700000"));
        program.enqueue(1, a);
        assert!(
            program.kept().iter().any(|it| it.contains(&format!("@{} ", 700_000 - crate::programs::BASE)))
        );
        program.is_faultless();
        program.quits();
    }
}

/// As many programs as are kept apart, and more traces.
#[test]
fn a_trace_may_hold_very_much() {
    let mut program = Program::start(ALL[1].0, ALL[1].1);
    program.does("mesh 0 1 0");
    let mut all = Vec::new();
    for n in 0..128 {
        let (x, y) = (n % 16, n / 16);
        let plan = format!("config 16 data a {x} {y} {x} {y} cb 64 {x} {y} {x} {y}");
        all.push(program.workload((0, 0), &plan).1);
    }
    let (_, over) = program.workload((0, 0), "config 16 data all 0 0 15 15 dfb 32 0 0 15 15");
    program.enqueue(1, over);
    for &workload in &all {
        program.does(&format!("compile 1 {workload}"));
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
    program.is_faultless();
    program.enqueue(1, over);
    assert_eq!(program.resident(0)[1], 256 * 32);
    program.quits();
}

#[test]
fn managers_of_sub_devices_come_and_go() {
    for how in ALL {
        let (mut program, [a, b, _]) = with_three(how);
        program.does("manage 1 1");
        assert_eq!(program.process().allocators.iter().filter(|it| !it.spaces.is_empty()).count(), 2);
        let (_, own) = program.workload((0, 1), "config 64 data own 4 4 5 5 cb 32 4 4 5 5");
        program.trace("begin", 0);
        program.enqueue(1, b);
        program.trace("end", 0);
        program.enqueue(1, own);
        assert_eq!(program.resident(0), [64 + 128 + 4 * 32, 0, 0, 16 + 32 + 4 * 64]);
        program.does("manage 1 0");
        assert_eq!(program.resident(0), [64 + 128 + 4 * 32, 0, 0, 16 + 32 + 4 * 64]);
        program.enqueue(1, a);
        assert_eq!(program.resident(0), [128 + 4 * 32, 0, 0, 32 + 4 * 64]);
        program.is_faultless();
        program.does("close 1");
        program.is_faultless();
        program.quits();
    }
}

/// A queue captures one thing at a time, whatever became of the last.
#[test]
fn a_capture_that_begins_ends_the_one_before() {
    let (mut program, [a, b, _]) = with_three(ALL[1]);
    program.trace("begin", 4);
    program.trace("begin", 4);
    program.trace("begin", 5);
    program.enqueue(1, a);
    // There is nothing to replay yet.
    program.trace("replay", 5);
    assert_eq!(program.both(), AFTER_ALL);
    program.trace("end", 5);
    program.enqueue(1, b);
    assert_eq!(program.both(), [AFTER_ALL[0]; 2]);
    program.trace("replay", 5);
    assert_eq!(program.both(), AFTER_FIRST);
    // One whose mesh goes in the middle of it.
    program.trace("begin", 6);
    program.does("close 1");
    let mesh = program.number("mesh 0 2 0");
    let (_, other) = program.workload((0, 0), "cb 64 0 0 0 0");
    program.enqueue(mesh, other);
    assert_eq!(program.resident(0)[0], 64);
    program.is_faultless();
    program.quits();
}
