//! The C interface from C: readers see what is reported, and every mistake returns an error.
#![allow(clippy::unwrap_used)]

mod build;

use build::{Compiler, run};
use std::path::Path;
use ttmem_sources::SegmentFile;
use ttmem_testkit::memory_folder;

const TRIALS: [&str; 9] =
    ["nulls", "askew", "texts", "numbers", "twice", "closed", "forked", "threads", "anything"];

/// Segments in a folder.
fn segments(folder: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).collect()
}

fn source(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

#[test]
fn misuse_returns_an_error_and_the_next_call_works() {
    for compiler in Compiler::all("c11") {
        let program = compiler.build(&source("misuse.c"), &["-pthread"]);
        for trial in TRIALS {
            let folder = memory_folder();
            let (status, out, errors) = run(&program, &[trial], &[("TTMEM", "1")], folder.path());
            assert!(status.success(), "{compiler}, {trial}: {status}\n{errors}");
            assert_eq!(out + &errors, "", "{compiler}, {trial}: nothing is printed");
        }
    }
}

#[test]
fn sanitizers_report_nothing() {
    for compiler in Compiler::all("c11") {
        let flags = ["-pthread", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        let program = compiler.build(&source("misuse.c"), &flags);
        for trial in TRIALS {
            let folder = memory_folder();
            let (status, _, errors) = run(&program, &[trial], &[("TTMEM", "1")], folder.path());
            assert!(status.success() && errors.is_empty(), "{compiler}, {trial}: {status}\n{errors}");
        }
    }
}

#[test]
fn nothing_is_tracked_unless_enabled() {
    let program = Compiler::all("c11")[0].build(&source("misuse.c"), &["-pthread"]);
    for (env, tracked) in [
        (&[][..], 0),
        (&[("TTMEM", "0")], 0),
        (&[("TT_ALLOC_TRACKING_ENABLED", "0")], 0),
        (&[("TT_ALLOC_TRACKING_ENABLED", "1")], 1),
        (&[("TTMEM", "1")], 1),
    ] {
        for (how, left) in [(&["numbers", "_exit"][..], tracked), (&["numbers"], 0)] {
            let folder = memory_folder();
            let (_, _, _) = run(&program, how, env, folder.path());
            assert_eq!(segments(folder.path()).len(), left, "{env:?}, {how:?}");
        }
    }
}

#[test]
fn readers_see_what_threads_reported() {
    let program = Compiler::all("c11")[0].build(&source("misuse.c"), &["-pthread"]);
    let folder = memory_folder();
    let (status, _, errors) = run(&program, &["threads", "_exit"], &[("TTMEM", "1")], folder.path());
    assert!(status.success(), "{errors}");
    let path = segments(folder.path()).remove(0);
    let contents = SegmentFile::open_path(&path).unwrap().contents().unwrap();
    let held = |space: u8| -> (u64, u64) {
        let rows = contents.rows.iter().filter(|row| row.space == space);
        rows.fold((0, 0), |sum, row| (sum.0 + row.count.get(), sum.1 + row.requested.get()))
    };
    assert!(contents.exact);
    assert_eq!(held(1), (20_000, 20_000 * 64), "DRAM of the mesh: half of what eight threads allocated");
    assert_eq!(held(2), (20_000, 20_000 * 64), "L1 of eight devices");
}

/// Runs a trial of harm.c.
fn run_harm(program: &Path, trial: &str) -> (std::process::ExitStatus, String) {
    let folder = memory_folder();
    let env = [("TTMEM", "1"), ("TTMEM_LOG", if trial == "blocked" { "stderr" } else { "" })];
    // Where no segment can be created, there is something to log.
    let folder = if trial == "blocked" { Path::new("/proc") } else { folder.path() };
    let (status, _, errors) = run(program, &[trial], &env, folder);
    (status, errors)
}

#[test]
fn events_that_never_end_cost_themselves_only() {
    let program = Compiler::all("c11")[0].build(&source("harm.c"), &["-pthread"]);
    for trial in ["jumped", "cancelled"] {
        let (status, errors) = run_harm(&program, trial);
        assert!(status.success(), "{trial}: {status}\n{errors}");
    }
}

#[test]
fn log_on_a_full_pipe_does_not_wait() {
    let program = Compiler::all("c11")[0].build(&source("harm.c"), &["-pthread"]);
    let (status, errors) = run_harm(&program, "blocked");
    assert!(status.success(), "{status}\n{errors}");
}

#[test]
fn truncated_segment_does_not_end_its_program() {
    let program = Compiler::all("c11")[0].build(&source("harm.c"), &["-pthread"]);
    for trial in ["truncated", "shortened"] {
        let (status, errors) = run_harm(&program, trial);
        assert!(status.success(), "{trial}: {status}\n{errors}");
    }
}

#[test]
fn other_bus_errors_are_the_programs() {
    use std::os::unix::process::ExitStatusExt as _;
    let program = Compiler::all("c11")[0].build(&source("harm.c"), &["-pthread"]);
    for trial in ["sent", "faulted"] {
        assert_eq!(run_harm(&program, trial).0.signal(), Some(libc::SIGBUS), "{trial}");
    }
    assert_eq!(run_harm(&program, "handled").0.code(), Some(42), "its own handler gets the address");
}

#[test]
fn truncated_segment_does_not_end_a_python_program() {
    let library = Compiler::all("c11")[0].build(
        &source("library.c"),
        &[
            "-shared",
            "-fPIC",
            "-Wl,-u,ttmem_define_devices,-u,ttmem_alloc,-u,ttmem_free,-u,ttmem_report_allocation",
        ],
    );
    let script = source("truncated.py");
    let (library, script) = (library.to_str().unwrap(), script.to_str().unwrap());
    for (faulthandler, damage) in
        [("no", "all"), ("before", "all"), ("before", "half"), ("before", "holes"), ("after", "all")]
    {
        let folder = memory_folder();
        let env = [("TTMEM", "1")];
        let arguments = [script, library, faulthandler, damage];
        let (status, out, errors) = run(Path::new("python3"), &arguments, &env, folder.path());
        assert!(status.success() && out == "alive\n", "{faulthandler}, {damage}: {status}\n{errors}");
        // A handler that was set later is the first to be called.
        assert_eq!(errors.contains("Bus error"), faulthandler == "after", "{errors}");
    }
    // It still reports the program's own faults.
    let folder = memory_folder();
    let arguments = [script, library, "before", "own"];
    let (status, _, errors) = run(Path::new("python3"), &arguments, &[("TTMEM", "1")], folder.path());
    assert!(!status.success() && errors.contains("Fatal Python error: Bus error"), "{status}\n{errors}");
}
