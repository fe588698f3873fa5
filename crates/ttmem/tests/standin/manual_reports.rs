//! A library that reports by hand, in a process that has the agent, too: nothing counts twice.

use crate::make::{self, Build, Linkage};
use crate::{Program, segments};

/// Requested bytes and number of the process's allocations, as readers see them.
fn held(program: &Program) -> (u64, usize) {
    let allocations = program.allocations();
    (allocations.iter().map(|it| it["requested_bytes"].as_u64().unwrap()).sum(), allocations.len())
}

fn with_library(build: Build, linkage: Linkage) -> Program {
    let mut program = Program::start(build, linkage);
    assert_eq!(program.run(&format!("hand {}", make::client_library(1).display())), "loaded");
    program
}

#[test]
fn library_reports_while_the_agent_is_inactive() {
    let mut program = with_library(Build::Plain, Linkage::Loaded);
    assert_eq!(program.run("is_enabled"), "1", "the agent is loaded, but inactive");
    assert_eq!(program.run("hold 0 65536"), "0");
    assert_eq!(held(&program), (4096, 1));
    program.quit();
}

#[test]
fn library_withdraws_when_the_agent_starts() {
    for (build, linkage) in crate::ALL {
        let mut program = with_library(build, linkage);
        program.run("hold 0 65536");
        assert_eq!(held(&program), (4096, 1));
        let mesh = program.number("mesh 0 1 0");
        program.run(&format!("alloc {mesh} dram 2048 1024"));
        assert_eq!(program.run("is_enabled"), "0");
        let truth = held(&program);
        assert_eq!(truth.1, 1, "only what the runtime allocated");
        assert_eq!(segments(program.folder()).len(), 1, "the library's segment is gone");
        // Further reports change nothing, and are no error.
        assert_eq!(program.run("hold 0 131072"), "0");
        assert_eq!(program.run("unhold 0 65536"), "0");
        assert_eq!(held(&program), truth);
        program.check_figures();
        program.run(&format!("close {mesh}"));
        program.quit();
    }
}

#[test]
fn library_that_was_unloaded_withdraws() {
    let mut program = with_library(Build::Plain, Linkage::Loaded);
    program.run("hold 0 65536");
    assert_eq!(program.run("unload"), "0");
    let mesh = program.number("mesh 0 1 0");
    program.run(&format!("alloc {mesh} dram 2048 1024"));
    assert_eq!(held(&program).1, 1, "only what the runtime allocated");
    assert_eq!(segments(program.folder()).len(), 1, "the library's segment is gone");
    program.check_figures();
    program.run(&format!("close {mesh}"));
    program.quit();
}

#[test]
fn library_never_starts_beside_an_active_agent() {
    let mut program = Program::start(Build::Plain, Linkage::Loaded);
    let mesh = program.number("mesh 0 1 0");
    program.run(&format!("alloc {mesh} dram 2048 1024"));
    let truth = held(&program);
    // Several copies, as when each of two extensions has the library linked in.
    for copy in 1..=3 {
        assert_eq!(program.run(&format!("hand {}", make::client_library(copy).display())), "loaded");
        assert_eq!(program.run("hold 0 65536"), "0");
        assert_eq!(program.run("is_enabled"), "0");
        assert_eq!(held(&program), truth);
    }
    assert_eq!(segments(program.folder()).len(), 1);
    // A child process has the agent, too.
    program.run("fork");
    assert_eq!(program.run("hold 0 65536"), "0");
    assert_eq!(program.run("is_enabled"), "0");
    program.run("exit 0 _exit");
}
