//! The C interface from C: readers see what is reported, and every mistake returns an error.

mod build;

use build::{Compiler, run};
use std::path::Path;
use ttmem_sources::SegmentFile;
use ttmem_testkit::memory_folder;

const TRIALS: [&str; 9] =
    ["nulls", "askew", "texts", "numbers", "twice", "closed", "forked", "threads", "anything"];

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
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), left, "{env:?}, {how:?}");
        }
    }
}

#[test]
fn readers_see_what_threads_reported() {
    let program = Compiler::all("c11")[0].build(&source("misuse.c"), &["-pthread"]);
    let folder = memory_folder();
    let (status, _, errors) = run(&program, &["threads", "_exit"], &[("TTMEM", "1")], folder.path());
    assert!(status.success(), "{errors}");
    let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let contents = SegmentFile::open_path(&path).unwrap().contents().unwrap();
    let held = |space: u8| -> (u64, u64) {
        let rows = contents.rows.iter().filter(|row| row.space == space);
        rows.fold((0, 0), |sum, row| (sum.0 + row.count.get(), sum.1 + row.requested.get()))
    };
    assert!(contents.exact);
    assert_eq!(held(1), (20_000, 20_000 * 64), "DRAM of the mesh: half of what eight threads allocated");
    assert_eq!(held(2), (20_000, 20_000 * 64), "L1 of eight devices");
}
