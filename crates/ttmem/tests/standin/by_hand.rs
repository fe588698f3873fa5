//! A library that is told of memory by hand, in a process in which the agent is, too: nothing counts twice.

use crate::make::{self, Build, Way};
use crate::{Program, segments};

/// Bytes of DRAM that readers see the process hold, on all chips, and by how many allocations.
fn held(program: &Program) -> (u64, usize) {
    let listed = program.listed();
    (listed.iter().map(|it| it["requested_bytes"].as_u64().unwrap()).sum(), listed.len())
}

fn with_library(build: Build, way: Way) -> Program {
    let mut program = Program::start(build, way);
    assert_eq!(program.does(&format!("hand {}", make::by_hand(1).display())), "loaded");
    program
}

#[test]
fn without_the_runtime_the_library_is_heard() {
    let mut program = with_library(Build::Plain, Way::Loading);
    assert_eq!(program.does("is_enabled"), "1", "the agent is loaded, but has nothing to do");
    assert_eq!(program.does("hold 0 65536"), "0");
    assert_eq!(held(&program), (4096, 1));
    program.quits();
}

#[test]
fn when_the_agent_begins_the_library_withdraws() {
    for (build, way) in crate::ALL {
        let mut program = with_library(build, way);
        program.does("hold 0 65536");
        assert_eq!(held(&program), (4096, 1));
        let mesh = program.number("mesh 0 1 0");
        program.does(&format!("alloc {mesh} dram 2048 1024"));
        assert_eq!(program.does("is_enabled"), "0");
        let truth = held(&program);
        assert_eq!(truth.1, 1, "only what the runtime handed out");
        assert_eq!(segments(program.folder()).len(), 1, "what was told by hand is gone");
        // What is told from now on changes nothing, and is no error.
        assert_eq!(program.does("hold 0 131072"), "0");
        assert_eq!(program.does("unhold 0 65536"), "0");
        assert_eq!(held(&program), truth);
        program.is_right();
        program.does(&format!("close {mesh}"));
        program.quits();
    }
}

#[test]
fn beside_an_agent_at_work_the_library_never_begins() {
    let mut program = Program::start(Build::Plain, Way::Loading);
    let mesh = program.number("mesh 0 1 0");
    program.does(&format!("alloc {mesh} dram 2048 1024"));
    let truth = held(&program);
    // Several copies: of one that is linked into each of two extensions, say.
    for copy in 1..=3 {
        assert_eq!(program.does(&format!("hand {}", make::by_hand(copy).display())), "loaded");
        assert_eq!(program.does("hold 0 65536"), "0");
        assert_eq!(program.does("is_enabled"), "0");
        assert_eq!(held(&program), truth);
    }
    assert_eq!(segments(program.folder()).len(), 1);
    // A child of it has the agent, too.
    program.does("fork");
    assert_eq!(program.does("hold 0 65536"), "0");
    assert_eq!(program.does("is_enabled"), "0");
    program.does("exit 0 _exit");
}
