//! Leaks that are planted in stock ttnn, among growth that is none.

use super::*;
use std::collections::BTreeSet;
use ttmem_core::snapshot::{LeakBasis, RunReport};
use ttmem_testkit::memory_folder;

fn check_seed(seed: u64, by: &str) {
    println!("seed {seed}, by {by}");
    let folder = memory_folder();
    let report = folder.path().join("report.json");
    let mut run = Command::new(exe());
    run.args(["run", "--report"]).arg(&report).arg("--shm-dir").arg(folder.path()).arg("--");
    run.arg(python(TTNN)).arg(here().join("leaks.py")).args(["40", &seed.to_string(), by]);
    run.env("TTMEM_AGENT", agent()).env_remove("LD_PRELOAD").env("TT_METAL_LOGGER_LEVEL", "FATAL");
    if by == "replays" {
        // Without it, a mock chip cannot replay traces.
        run.env("LD_PRELOAD", super::stage::queue());
    }
    let (basis, mark) =
        if by == "marks" { (LeakBasis::Marks, Some("step")) } else { (LeakBasis::Replays, None) };
    let (name, value) = board_variable("n150");
    let output = run.env(name, value).output().unwrap();
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
    let planted = printed.lines().find_map(|line| line.strip_prefix("leaks ")).unwrap();
    let planted: BTreeSet<&str> = planted.split(' ').collect();
    let report: RunReport = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let leaks = &report.processes[0].leaks;
    for leak in leaks {
        assert_eq!((leak.basis, leak.mark.as_deref()), (basis, mark), "{leak:?}");
        assert!(leak.count >= leak.grown_count, "{leak:?}");
    }
    // A comprehension is a function of its own, on a line of the function that it is in.
    let lines = std::fs::read_to_string(here().join("leaks.py")).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    let owner = |line: usize| {
        let definitions = lines[..line].iter().rev();
        let mut names = definitions.filter_map(|it| it.strip_prefix("def ")?.split('(').next());
        names.next().unwrap()
    };
    let owners: BTreeSet<&str> = leaks.iter().map(|leak| owner(leak.origin.line.unwrap() as usize)).collect();
    assert_eq!(owners, planted, "seed {seed}, by {by}: {leaks:#?}");
    assert!(errors.contains("Leak in "), "{errors}");
}

fn check_seeds(by: &str) {
    let seeds = if std::env::var_os("TTMEM_LONG").is_some() { 10 } else { 1 };
    (1..=seeds).for_each(|seed| check_seed(seed, by));
}

#[test]
fn planted_leaks_are_found_and_no_others() {
    check_seeds("marks");
}

#[test]
fn replays_of_a_trace_find_planted_leaks_without_marks() {
    check_seeds("replays");
}
