//! Runtimes that are not as we know them.

use crate::make::{self, Build, Vintage, Way};
use crate::{ALLOCATE, BEFORE_FREE, FATAL, INT, Program, segments};
use std::process::Command;

/// Mangled names in a source of the agent's.
fn names(source: &'static str) -> impl Iterator<Item = &'static str> {
    source.split('"').filter(|it| it.starts_with("_Z"))
}

/// The stand-in is one only if everything that the agent knows is in it.
#[test]
fn the_stand_in_has_every_name_that_the_agent_knows() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(make::library(Build::Plain, Vintage::New))
        .output()
        .unwrap();
    let exported = String::from_utf8(output.stdout).unwrap();
    let known = names(include_str!("../../../ttmem-agent/src/runtime.rs"))
        .chain(names(include_str!("../../../ttmem-agent/src/lib.rs")));
    let of_the_language = ["_ZdlPv", "_ZSt9terminatev"];
    let missing: Vec<_> = known
        .filter(|name| !of_the_language.contains(name) && !exported.lines().any(|it| it == *name))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_runtime_that_lacks_half_of_it_is_tracked() {
    for build in [Build::Plain, Build::Address] {
        let mut program = Program::with(build, Way::Loading, Vintage::Old, &[]);
        program.does("mesh 0 2 4096");
        for command in [
            "alloc 1 dram 30 100",
            "alloc 1 l1 48 200",
            "alloc 1 l1 2048 7 on 0 0 6 0 7 0",
            "alloc 1 l1_small 16 1",
            "alloc 1 trace 4096 2",
        ] {
            program.number(command);
        }
        program.is_right();
        let requested: u64 = program.listed().iter().map(|it| it["requested_bytes"].as_u64().unwrap()).sum();
        assert_eq!(requested, 30 * 100 + 48 * 200 + 2048 * 7 + 16 + 2 * 4096);
        program.next(INT, ALLOCATE, 3);
        assert_eq!(program.does("alloc 1 dram 64 1"), "int 3");
        assert_eq!(program.does("shrink 1 l1 4096"), "fine");
        program.is_right();
        program.does("clear 1");
        program.is_right();
        program.does("close 1");
        let process = program.process();
        let tracker = process.tracker.unwrap();
        assert!(tracker.missing_hooks.is_empty(), "what it never had is not missing: {tracker:?}");
        program.quits();
    }
}

#[test]
fn a_runtime_that_lacks_what_is_needed_is_left_alone() {
    for (build, way, vintage) in [
        (Build::Plain, Way::Loading, Vintage::Broken),
        // Nothing to catch exceptions with.
        (Build::Plain, Way::Sealed, Vintage::Sealed),
    ] {
        let mut program = Program::with(build, way, vintage, &[]);
        program.does("mesh 0 2 4096");
        program.does("device 3");
        let buffer = program.number("alloc 1 dram 2048 24");
        for when in [ALLOCATE, BEFORE_FREE] {
            program.next(FATAL, when, 3);
            let command =
                if when == ALLOCATE { "alloc 1 dram 64 1".to_owned() } else { format!("free {buffer}") };
            assert_eq!(program.does(&command), "fatal 3 told to", "{vintage:?}");
        }
        for command in ["mirror 2 1000000 64", "mirror 2 1000000 0", "shrink 1 l1 4096", "shrink 1 l1 0"] {
            program.does(command);
        }
        for command in ["override 1 dram 0 64", "bulk 1", "clear 1", "threads 1 2 100", "close 2"] {
            program.does(command);
        }
        assert!(segments(program.folder()).is_empty());
        let tasks = format!("/proc/{}/task", program.pid());
        assert_eq!(std::fs::read_dir(tasks).unwrap().count(), 1, "no thread");
        program.quits();
    }
}

#[test]
fn a_runtime_that_keeps_things_elsewhere_is_not_misread() {
    let mut program = Program::with(Build::Plain, Way::Loading, Vintage::Moved, &[]);
    program.does("mesh 0 1 0");
    let buffer = program.number("alloc 1 dram 2048 24");
    program.number("alloc 1 l1 128 1");
    assert!(program.listed().is_empty());
    let (code, report) = program.checked();
    assert_eq!((code, &report["drifting"]), (1, &2.into()), "{report}");
    assert_eq!(program.does(&format!("free {buffer}")), "fine");
    assert_eq!(program.checked().1["drifting"], 1);
    program.quits();
}
