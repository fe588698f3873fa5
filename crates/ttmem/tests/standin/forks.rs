//! Forked children have segments of their own, and do not change their parent's.

use crate::{ALL, Build, Linkage, Program, process, segments};
use ttmem_core::snapshot::FindingKind;

#[test]
fn child_has_its_own_segment() {
    for (verb, (build, linkage)) in ["fork", "clone", "fork"].into_iter().zip(ALL) {
        let mut program = Program::start(build, linkage);
        let parent = program.pid();
        program.run("mesh 0 1 4096");
        let kept = program.number("alloc 1 dram 2048 24");
        program.number("alloc 1 l1 2048 64");
        program.check_figures();
        let before = program.process();
        let child = u32::try_from(program.number(verb)).unwrap();
        assert_ne!(child, parent);
        // From here on the child runs the commands.
        assert_eq!(program.run(&format!("free {kept}")), "fine");
        program.number("alloc 1 dram 4096 12");
        program.run("mesh 2 1 0");
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
        // Only the allocator that the child created can be compared.
        let output =
            program.ttmem(&["check", "--fresh", "--json", "--pid", &child.to_string(), "--wait", "2"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success() && report["compared"] == 3, "{report}");
        assert_eq!(segments(program.folder()).len(), 2);
        program.send("exit 17 _exit");
        assert_eq!(program.receive("the parent"), "17");
        program.check_figures();
        assert_eq!(program.run(&format!("free {kept}")), "fine");
        program.check_figures();
        program.quit();
    }
}

#[test]
fn child_that_execs_leaves_no_segment() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 0");
        program.number("alloc 1 dram 2048 24");
        assert_eq!(program.run("exec true"), "0");
        assert_eq!(program.run("exec false"), "1");
        assert_eq!(segments(program.folder()).len(), 1);
        program.check_figures();
        program.quit();
    }
}

#[test]
fn grandchild_has_its_own_segment() {
    let mut program = Program::start(Build::Plain, Linkage::Loaded);
    program.run("mesh 0 1 0");
    let first = program.number("alloc 1 dram 2048 24");
    program.run("fork");
    program.number("alloc 1 dram 2048 12");
    let grandchild = u32::try_from(program.number("fork")).unwrap();
    program.run(&format!("free {first}"));
    program.number("alloc 1 dram 64 12");
    let snapshot = program.snapshot();
    assert_eq!(snapshot.processes.len(), 3);
    let usage = process(&snapshot, grandchild).unwrap().usage;
    assert_eq!(usage[0].usage.dram.as_ref().unwrap().count, Some(1));
    program.send("exit 0");
    assert_eq!(program.receive("the child"), "0");
    program.send("exit 0 closed");
    assert_eq!(program.receive("the parent"), "0");
    program.check_figures();
    program.quit();
}

/// Locks that other threads held are free in the child.
#[test]
fn child_of_a_busy_process_can_open_devices() {
    // Not with a sanitizer, whose own locks may be taken in such a child.
    for (build, linkage) in [ALL[0], ALL[1]] {
        let mut program = Program::start(build, linkage);
        assert_eq!(program.run("forks 150 0"), "0");
        assert_eq!(program.run("forks 100 1"), "0");
        program.run("mesh 0 1 0");
        program.number("alloc 1 dram 2048 24");
        program.check_figures();
        program.quit();
    }
}
