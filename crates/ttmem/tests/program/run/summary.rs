//! The summary at the end of a run, and the report in a file.

use super::run;
use crate::exe;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use ttmem_core::snapshot::{HeldBySite, RunReport, SpaceReport};
use ttmem_core::words::Space;
use ttmem_testkit::memory_folder;
use ttmem_testkit::producer::Producer;
use ttmem_testkit::schema;

/// A producer that is started with `ttmem run --report FILE`.
fn producer(folder: &Path, report: &Path) -> Producer {
    let agent = ttmem_testkit::agent();
    let through = [exe().to_str().unwrap(), "run", "--report", report.to_str().unwrap(), "--"];
    let env = [("TTMEM_SHM_DIR", folder.to_str().unwrap()), ("TTMEM_AGENT", agent.to_str().unwrap())];
    let mut producer = Producer::start_through(&through, &env);
    producer.define(1);
    producer
}

fn read(report: &Path) -> RunReport {
    schema::run_report(&fs::read(report).unwrap())
}

fn space(report: &RunReport, process: usize, space: Space) -> &SpaceReport {
    report.processes[process].spaces.iter().find(|it| it.space == space).unwrap()
}

fn sum(held: &[HeldBySite]) -> (u64, u64) {
    (held.iter().map(|it| it.count).sum(), held.iter().map(|it| it.used_bytes).sum())
}

#[test]
fn peak_and_rest_are_exact() {
    let (folder, files) = (memory_folder(), tempfile::tempdir().unwrap());
    let report = files.path().join("run.json");
    let mut producer = producer(folder.path(), &report);
    for n in 0..100u64 {
        producer.alloc(0x1000 * (n + 1), 4096);
    }
    for n in 0..90u64 {
        producer.free(0x1000 * (n + 1));
    }
    let (status, errors) = producer.quit();
    assert_eq!(status.code(), Some(0));
    let found = read(&report);
    assert_eq!(found.end.as_ref().unwrap().code, Some(0));
    assert_eq!(
        found.processes.len(),
        1,
        "{errors} {:?}",
        fs::read_dir(folder.path()).unwrap().collect::<Vec<_>>()
    );
    let dram = space(&found, 0, Space::Dram);
    assert_eq!(sum(dram.at_peak.as_ref().unwrap()), (100, dram.peak_bytes));
    assert_eq!(sum(&dram.left).0, 10);
    assert!(found.processes[0].exited && found.processes[0].exact);
    assert!(
        errors.contains("Peak of DRAM on device 0: ") && errors.contains("Still allocated in DRAM"),
        "{errors}"
    );
}

#[test]
fn discarded_summary_is_not_made() {
    let folder = memory_folder();
    for args in [&["--quiet", "--", "true"][..], &["--exec", "--", "true"]] {
        let output = run(folder.path(), args).output().unwrap();
        assert!(output.stderr.is_empty() && output.stdout.is_empty(), "{output:?}");
    }
    let output = run(folder.path(), &["--", "true"]).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.starts_with("ttmem: true: exit code 0 after 0.") && printed.lines().count() == 1,
        "{printed}"
    );
    // A discarded summary needs no mark of a run.
    let mut command = run(folder.path(), &["--", "sh", "-c", "echo $TTMEM_RUN"]);
    assert_eq!(command.stderr(Stdio::null()).output().unwrap().stdout, b"\n");
}

#[test]
fn report_that_cannot_be_written_is_an_error_before_the_start() {
    let folder = memory_folder();
    let started = folder.path().join("started");
    let args = ["--report", "/nonexistent/run.json", "--", "touch", started.to_str().unwrap()];
    let output = run(folder.path(), &args).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(printed.starts_with("ttmem: cannot write the report /nonexistent/run.json: "), "{printed}");
    assert!(!started.exists());
}

#[test]
fn folder_that_cannot_be_written_ends_the_summary_only() {
    let args = ["run", "--shm-dir", "/nonexistent", "--", "sh", "-c", "echo works"];
    let mut command = Command::new(exe());
    command.args(args).env("TTMEM_AGENT", ttmem_testkit::agent()).env_remove("LD_PRELOAD");
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"works\n".to_vec()));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.starts_with("ttmem: no summary: cannot create /nonexistent/ttmem-run."), "{printed}");
}

#[test]
fn signal_is_named_and_the_text_report_is_plain() {
    let (folder, files) = (memory_folder(), tempfile::tempdir().unwrap());
    let report = files.path().join("run.txt");
    let args = ["--report", report.to_str().unwrap(), "--", "sh", "-c", "kill -TERM $$"];
    let output = run(folder.path(), &args).output().unwrap();
    let expected = "ttmem: sh -c kill -TERM $$: ended by signal 15 (SIGTERM) after ";
    assert!(fs::read_to_string(&report).unwrap().starts_with(expected));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with(expected));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(Signal::TERM.as_raw()));
}
