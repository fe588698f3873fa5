//! Libraries, allocators and processes start and end at any time.

use crate::{ALL, ALLOCATE, Build, Linkage, PROCESS_EXIT, Program, segments};
use ttmem_core::Detail;
use ttmem_core::snapshot::{EventKind, FindingKind};
use ttmem_reader::Session;
use ttmem_sources::SourceConfig;

#[test]
fn library_can_be_loaded_and_unloaded_repeatedly() {
    for build in [Build::Plain, Build::Address] {
        let mut program = Program::start(build, Linkage::Loaded);
        for _ in 0..2 {
            program.run("reload 50");
            let mesh = program.number("mesh 0 2 0");
            program.number(&format!("alloc {mesh} dram 2048 24"));
            program.check_figures();
        }
        program.quit();
    }
}

#[test]
fn allocators_are_created_and_destroyed_during_audits() {
    for (build, linkage) in
        [(Build::Plain, Linkage::Loaded), (Build::Address, Linkage::Linked), (Build::Thread, Linkage::Linked)]
    {
        let mut program = Program::start(build, linkage);
        program.run("mesh 7 1 0");
        program.number("alloc 1 l1 2048 24");
        program.run("storm 4 250");
        let process = program.process();
        assert_eq!(process.allocators.len(), 1, "{process:?}");
        program.check_figures();
        program.expect_exact();
        program.quit();
    }
}

/// The agent's table has 4,096 slots, and a segment has a limit of definitions.
#[test]
fn more_allocators_than_slots_are_harmless() {
    let mut program = Program::start(Build::Plain, Linkage::Linked);
    program.run("crowd 5000 0");
    program.run("mesh 0 1 4096");
    program.number("alloc 1 dram 2048 24");
    program.check_figures();
    program.expect_exact();
    program.run("close 1");
    program.run("crowd 5000 1");
    // An allocator like those that are defined already.
    let mesh = program.number("mesh 0 1 0");
    program.number(&format!("alloc {mesh} dram 2048 24"));
    assert_eq!(program.run("compare"), "equal");
    let (code, report) = program.run_check();
    assert_eq!((code, &report["compared"]), (0, &3.into()), "{report}");
    program.quit();
}

#[test]
fn process_exits_as_without_the_agent() {
    for (build, linkage) in ALL {
        // How it exits, its exit code, and the number of crash segments.
        for (how, expected, left) in [
            ("", 7, 0),
            ("_exit", 7, 1),
            ("quick", 7, 1),
            ("closed", 7, 0),
            ("abort", 134, 1),
            ("main", 0, 0),
        ] {
            let mut program = Program::start(build, linkage);
            program.run("mesh 0 1 0");
            program.number("alloc 1 dram 2048 24");
            program.run("close 1");
            program.run("mesh 0 1 0");
            // There is a change, so that an audit is running or about to.
            program.send(&format!("exit 7 {how}"));
            let status = program.wait_for_exit();
            let code = status
                .code()
                .unwrap_or_else(|| 128 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap());
            assert_eq!(code, expected, "{how}: {}", program.errors());
            assert!(program.errors().is_empty(), "{how}: {}", program.errors());
            assert!(program.snapshot().processes.is_empty(), "{how}");
            assert_eq!(segments(program.folder()).len(), left, "{how}");
        }
    }
}

/// The exiting thread holds the lock that an audit waits for.
#[test]
fn process_can_exit_inside_an_allocation() {
    for (build, linkage) in [ALL[0], ALL[1]] {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 0");
        program.fail_next(PROCESS_EXIT, ALLOCATE, 9);
        program.send("alloc 1 dram 2048 24");
        assert_eq!(program.wait_for_exit().code(), Some(9));
        assert_eq!(segments(program.folder()).len(), 0, "an exit is an exit");
    }
}

/// Devices are closed by destructors of C++ objects, which run with exit handlers: their frees are recorded.
#[test]
fn frees_in_exit_handlers_are_recorded() {
    for (build, linkage) in ALL {
        for (how, held) in [("", 2048 * 24), ("closed", 0), ("destructor", 0)] {
            let mut program = Program::start(build, linkage);
            let mut session = Session::local(SourceConfig::segments(program.folder()));
            program.run("mesh 0 1 0");
            program.number("alloc 1 dram 2048 24");
            session.refresh();
            program.send(&format!("exit 7 {how}"));
            assert_eq!(program.wait_for_exit().code(), Some(7));
            assert!(segments(program.folder()).is_empty(), "{how}");
            session.refresh();
            let snapshot = session.snapshot(&Detail { events: true, ..Detail::NONE });
            let events = snapshot.events.unwrap();
            let ended = events.iter().find(|it| it.kind == EventKind::ProcessExited).unwrap();
            assert_eq!(ended.bytes, Some(held), "{how}: {ended:?}");
            assert_eq!(snapshot.findings.iter().any(|it| it.kind == FindingKind::Reclaimed), held > 0);
        }
    }
}

/// When a mesh is closed, the runtime frees all its buffers and clears its allocator before it destroys it.
#[test]
fn mesh_opened_and_closed_once_is_reported_once() {
    let mut program = Program::start(Build::Plain, Linkage::Linked);
    let mut session = Session::local(SourceConfig::segments(program.folder()));
    program.run("mesh 0 1 0");
    // The mesh's device has an allocator of its own.
    program.run("device 0");
    program.number("alloc 2 dram 2048 24");
    program.number("alloc 1 dram 2048 24");
    session.refresh();
    program.run("close 2");
    program.run("close 1");
    session.refresh();
    let snapshot = session.snapshot(&Detail { events: true, ..Detail::NONE });
    let events = snapshot.events.unwrap();
    let texts = |kind| events.iter().filter(|it| it.kind == kind).map(|it| &*it.text).collect::<Vec<_>>();
    let (opened, closed) = (texts(EventKind::AllocatorOpened), texts(EventKind::AllocatorClosed));
    assert!(opened.len() == 1 && opened[0].ends_with("opened device 0"), "{opened:?}");
    assert!(closed.len() == 1 && closed[0].ends_with("closed device 0"), "{closed:?}");
    program.quit();
}
