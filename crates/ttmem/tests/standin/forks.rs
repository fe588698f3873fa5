//! Children have segments of their own, and what they do to what they inherited is not what their parent does.

use crate::{ALL, Build, Program, Way, process, segments};
use ttmem_core::snapshot::FindingKind;

#[test]
fn a_child_has_its_own_segment_and_the_parents_stays_as_it_is() {
    for (verb, (build, way)) in ["fork", "clone", "fork"].into_iter().zip(ALL) {
        let mut program = Program::start(build, way);
        let parent = program.pid();
        program.does("mesh 0 1 4096");
        let kept = program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 2048 64");
        program.is_right();
        let before = program.process();
        let child = u32::try_from(program.number(verb)).unwrap();
        assert_ne!(child, parent);
        // From here on the child obeys.
        assert_eq!(program.does(&format!("free {kept}")), "fine");
        program.number("alloc 1 dram 4096 12");
        program.does("mesh 2 1 0");
        program.number("alloc 5 dram 64 12");
        let snapshot = program.snapshot();
        let own = process(&snapshot, child).expect("the child is tracked");
        let mut held: Vec<_> =
            own.usage.iter().map(|it| it.usage.dram.as_ref().unwrap().requested_bytes).collect();
        held.sort_unstable();
        assert_eq!(held, [64 * 12, 4096 * 12], "what it inherited is its parent's");
        let finding = program.finding(FindingKind::InheritedFree).expect("it freed what its parent holds");
        assert_eq!((finding.pid, finding.count), (Some(child), 1));
        let after = process(&snapshot, parent).unwrap();
        assert_eq!((after.usage, after.sequence >= before.sequence), (before.usage, true));
        assert!(after.complete);
        // Of the child, only the allocator that is its own can be judged.
        let output =
            program.ttmem(&["check", "--fresh", "--json", "--pid", &child.to_string(), "--wait", "2"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success() && report["compared"] == 3, "{report}");
        assert_eq!(segments(program.folder()).len(), 2);
        program.tell("exit 17 _exit");
        assert_eq!(program.hear("the parent"), "17");
        program.is_right();
        assert_eq!(program.does(&format!("free {kept}")), "fine");
        program.is_right();
        program.quits();
    }
}

#[test]
fn a_child_that_becomes_another_program_leaves_nothing() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 0");
        program.number("alloc 1 dram 2048 24");
        assert_eq!(program.does("exec true"), "0");
        assert_eq!(program.does("exec false"), "1");
        assert_eq!(segments(program.folder()).len(), 1);
        program.is_right();
        program.quits();
    }
}

#[test]
fn a_child_of_a_child_is_its_own() {
    let mut program = Program::start(Build::Plain, Way::Loading);
    program.does("mesh 0 1 0");
    let first = program.number("alloc 1 dram 2048 24");
    program.does("fork");
    program.number("alloc 1 dram 2048 12");
    let grandchild = u32::try_from(program.number("fork")).unwrap();
    program.does(&format!("free {first}"));
    program.number("alloc 1 dram 64 12");
    let snapshot = program.snapshot();
    assert_eq!(snapshot.processes.len(), 3);
    let usage = process(&snapshot, grandchild).unwrap().usage;
    assert_eq!(usage[0].usage.dram.as_ref().unwrap().count, Some(1));
    program.tell("exit 0");
    assert_eq!(program.hear("the child"), "0");
    program.tell("exit 0 closed");
    assert_eq!(program.hear("the parent"), "0");
    program.is_right();
    program.quits();
}

/// Whatever another thread was in the middle of, the child is in the middle of nothing.
#[test]
fn a_child_made_while_others_open_devices_can_open_its_own() {
    // Not with a sanitizer: its own locks are what they are in such a child.
    for (build, way) in [ALL[0], ALL[1]] {
        let mut program = Program::start(build, way);
        assert_eq!(program.does("forks 150 0"), "0");
        assert_eq!(program.does("forks 100 1"), "0");
        program.does("mesh 0 1 0");
        program.number("alloc 1 dram 2048 24");
        program.is_right();
        program.quits();
    }
}
