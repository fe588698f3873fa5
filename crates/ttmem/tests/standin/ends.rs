//! Beginnings and ends: of libraries, allocators, threads and processes.

use crate::{ALL, ALLOCATE, Build, PROCESS_EXIT, Program, Way, segments};
use ttmem_core::Detail;
use ttmem_core::snapshot::{EventKind, FindingKind};
use ttmem_reader::Session;
use ttmem_sources::SourceConfig;

#[test]
fn a_library_may_be_loaded_and_unloaded_again_and_again() {
    for build in [Build::Plain, Build::Address] {
        let mut program = Program::start(build, Way::Loading);
        for _ in 0..2 {
            program.does("reload 50");
            let mesh = program.number("mesh 0 2 0");
            program.number(&format!("alloc {mesh} dram 2048 24"));
            program.is_right();
        }
        program.quits();
    }
}

#[test]
fn allocators_begin_and_end_while_they_are_audited() {
    for (build, way) in
        [(Build::Plain, Way::Loading), (Build::Address, Way::Linked), (Build::Thread, Way::Linked)]
    {
        let mut program = Program::start(build, way);
        program.does("mesh 7 1 0");
        program.number("alloc 1 l1 2048 24");
        program.does("storm 4 250");
        let process = program.process();
        assert_eq!(process.allocators.len(), 1, "{process:?}");
        program.is_right();
        program.is_exact();
        program.quits();
    }
}

/// The agent has places for some thousands at once, and so has a segment for their descriptions.
#[test]
fn more_allocators_than_there_are_places_for() {
    let mut program = Program::start(Build::Plain, Way::Linked);
    program.does("crowd 5000 0");
    program.does("mesh 0 1 4096");
    program.number("alloc 1 dram 2048 24");
    program.is_right();
    program.is_exact();
    program.does("close 1");
    program.does("crowd 5000 1");
    // One like those that are described already.
    let mesh = program.number("mesh 0 1 0");
    program.number(&format!("alloc {mesh} dram 2048 24"));
    assert_eq!(program.does("compare"), "equal");
    let (code, report) = program.checked();
    assert_eq!((code, &report["compared"]), (0, &3.into()), "{report}");
    program.quits();
}

#[test]
fn a_process_ends_as_it_would() {
    for (build, way) in ALL {
        // How it ends, its exit code, and segments that are left.
        for (how, expected, left) in [
            ("", 7, 0),
            ("_exit", 7, 1),
            ("quick", 7, 1),
            ("closed", 7, 0),
            ("abort", 134, 1),
            ("main", 0, 0),
        ] {
            let mut program = Program::start(build, way);
            program.does("mesh 0 1 0");
            program.number("alloc 1 dram 2048 24");
            program.does("close 1");
            program.does("mesh 0 1 0");
            // There is something new, so that an audit is under way or about to be.
            program.tell(&format!("exit 7 {how}"));
            let status = program.ends();
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

/// The lock that it holds is the one that an audit waits for.
#[test]
fn a_process_may_exit_inside_an_allocation() {
    for (build, way) in [ALL[0], ALL[1]] {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 0");
        program.next(PROCESS_EXIT, ALLOCATE, 9);
        program.tell("alloc 1 dram 2048 24");
        assert_eq!(program.ends().code(), Some(9));
        assert_eq!(segments(program.folder()).len(), 0, "an exit is an exit");
    }
}

/// Devices are closed by destructors of C++ objects, which run when exit handlers do: what those free is recorded.
#[test]
fn exit_is_read_to_its_end() {
    for (build, way) in ALL {
        for (how, held) in [("", 2048 * 24), ("closed", 0), ("destructor", 0)] {
            let mut program = Program::start(build, way);
            let mut session = Session::local(SourceConfig::segments(program.folder()));
            program.does("mesh 0 1 0");
            program.number("alloc 1 dram 2048 24");
            session.refresh();
            program.tell(&format!("exit 7 {how}"));
            assert_eq!(program.ends().code(), Some(7));
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

/// When a mesh is closed, the runtime frees all its buffers and clears its allocator before it ends it.
#[test]
fn mesh_opened_and_closed_once_is_reported_once() {
    let mut program = Program::start(Build::Plain, Way::Linked);
    let mut session = Session::local(SourceConfig::segments(program.folder()));
    program.does("mesh 0 1 0");
    // Its device has an allocator of its own.
    program.does("device 0");
    program.number("alloc 2 dram 2048 24");
    program.number("alloc 1 dram 2048 24");
    session.refresh();
    program.does("close 2");
    program.does("close 1");
    session.refresh();
    let snapshot = session.snapshot(&Detail { events: true, ..Detail::NONE });
    let events = snapshot.events.unwrap();
    let told = |kind| events.iter().filter(|it| it.kind == kind).map(|it| &*it.text).collect::<Vec<_>>();
    let (opened, closed) = (told(EventKind::AllocatorOpened), told(EventKind::AllocatorClosed));
    assert!(opened.len() == 1 && opened[0].ends_with("opened device 0"), "{opened:?}");
    assert!(closed.len() == 1 && closed[0].ends_with("closed device 0"), "{closed:?}");
    program.quits();
}
