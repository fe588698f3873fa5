//! `ttmem leaks`: lines whose buffers only grow from mark to mark. `ttmem peak`: what the peaks consisted of.

use crate::exe;
use std::path::Path;
use std::process::{Command, Output};
use ttmem_client::{AllocatorNumber, Banks, Buffer, CallSite, Chip, Options, Purpose, Space, Tracker};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{FindingKind, RunReport, Severity};
use ttmem_testkit::{Server, eventually, memory_folder, schema};

/// This process, tracked: it leaks one buffer in each step, beside weights and a buffer that is freed.
struct Model {
    tracker: Tracker,
    allocator: AllocatorNumber,
    steps: u64,
}

impl Model {
    fn start(folder: &Path) -> Self {
        let tracker = Tracker::new(&Options::default().folder(folder.to_str().unwrap()));
        let chip = tracker.define_chip(&Chip::default().unique_id(0x100).dram_bytes(12 << 30)).unwrap();
        let allocator = tracker.define_allocator(&[chip], &[Banks::new(Space::Dram, 1, 0, 1 << 30)]).unwrap();
        let model = Self { tracker, allocator, steps: 0 };
        for n in 0..24 {
            model.alloc(0x10_0000 + n * 4096, 3);
        }
        model
    }

    fn alloc(&self, address: u64, line: u32) {
        let site = CallSite::new("/home/me/model.py", line).function("step").op("ttnn.add");
        let site = self.tracker.define_call_site(&site.purpose(Purpose::Tensor)).unwrap();
        let buffer = Buffer::new(self.allocator, Space::Dram, address, 4096).bytes_per_bank(4096);
        self.tracker.alloc(&buffer.site(site)).unwrap();
    }

    fn step(&mut self) {
        self.steps += 1;
        self.alloc(0x1000, 7);
        self.alloc(0x100_0000 + self.steps * 4096, 9);
        self.tracker.free(self.allocator, Space::Dram, 0x1000).unwrap();
        self.tracker.mark("step", Some(self.steps)).unwrap();
    }
}

fn leaks(args: &[&str], query: Option<&Path>, folder: &Path) -> Output {
    let mut command = Command::new(exe());
    command.arg("leaks").args(args).arg("--shm-dir").arg(folder).env_remove("COLUMNS");
    match query {
        Some(query) => command.env("TTMEM_QUERY_SOCKET", query),
        None => command.arg("--local"),
    };
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn line_that_leaks_is_named() {
    let server = Server::start(exe(), &["--quiet"]);
    let folder = server.segments.path();
    let mut model = Model::start(folder);
    let pid = std::process::id();
    eventually("the daemon follows it", || server.process(pid));
    for _ in 0..14 {
        model.step();
    }
    let compared = || {
        let output = leaks(&["--json"], Some(&server.query), folder);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (report["processes"][0]["last_mark"]["compared"] == 14).then_some(report)
    };
    let report = eventually("all marks are read", compared);
    assert_eq!((&report["schema"], report["leaks"].as_array().unwrap().len()), (&1.into(), 1), "{report:#}");
    let leak = &report["leaks"][0];
    for (key, value) in [("line", 9), ("grown_count", 12), ("grown_bytes", 12 * 4096), ("intervals", 12)] {
        assert_eq!(leak[key], value, "{key}: {leak:#}");
    }
    assert_eq!((&leak["mark"], &leak["count"]), (&"step".into(), &14.into()));
    let page = leaks(&[&pid.to_string()], Some(&server.query), folder);
    let page = text(&page.stdout);
    assert!(page.contains(": 1 call site leaks, by 14 marks\n"), "{page}");
    let row = page.lines().find(|line| line.contains("model.py:9")).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row[..9].join(" "), format!("48.0 KiB 12 12 of 12 steps 0 dram"), "{page}");
    assert!(page.ends_with("ttnn.add, model.py:9 (step)\n"), "{page}");
    // It is a finding, too.
    let mut command = Command::new(exe());
    let json = command.arg("--json").env("TTMEM_QUERY_SOCKET", &server.query).output().unwrap();
    let snapshot: Snapshot = schema::snapshot(&json.stdout);
    let findings: Vec<_> = snapshot.findings.iter().filter(|it| it.kind == FindingKind::Leak).collect();
    assert_eq!((findings.len(), findings[0].severity), (1, Severity::Warning), "{findings:?}");
    let expected = "leak of DRAM on device 0: ttnn.add, model.py:9 (step) kept 12 more buffers, 48.0 KiB, since 12 marks \"step\" ago";
    assert!(findings[0].text.ends_with(expected), "{}", findings[0].text);
    assert!(snapshot.leaks.is_none(), "they are there on request only");
}

#[test]
fn processes_without_enough_marks_are_named() {
    let folder = memory_folder();
    let none = leaks(&[], None, folder.path());
    assert_eq!((none.status.code(), text(&none.stdout)), (Some(3), String::new()));
    assert_eq!(text(&none.stderr), "ttmem: no process is tracked; start programs with `ttmem run -- CMD`\n");
    let mut model = Model::start(folder.path());
    let unmarked = leaks(&["--for", "0"], None, folder.path());
    assert!(unmarked.status.success());
    let expected = "no marks; call ttmem.mark(\"step\", n) at the end of each step\n";
    assert!(text(&unmarked.stdout).ends_with(expected), "{unmarked:?}");
    model.step();
    // The last mark is known also to a reader that did not see it.
    let few = leaks(&["--for", "0"], None, folder.path());
    assert!(text(&few.stdout).ends_with(": 1 mark so far; leaks are found from 10 on\n"), "{few:?}");
    let other = leaks(&["--for", "0", "1"], None, folder.path());
    assert_eq!(other.status.code(), Some(3));
    assert!(text(&other.stderr).starts_with("ttmem: pid 1 is not tracked;"), "{other:?}");
}

fn peak(args: &[&str], query: Option<&Path>, folder: &Path) -> Output {
    let mut command = Command::new(exe());
    command.arg("peak").args(args).arg("--shm-dir").arg(folder).env_remove("COLUMNS");
    match query {
        Some(query) => command.env("TTMEM_QUERY_SOCKET", query),
        None => command.arg("--local"),
    };
    command.output().unwrap()
}

#[test]
fn peak_names_its_lines_and_its_time() {
    let server = Server::start(exe(), &["--quiet"]);
    let folder = server.segments.path();
    let mut model = Model::start(folder);
    let pid = std::process::id();
    eventually("the daemon follows it", || server.process(pid));
    for _ in 0..3 {
        model.step();
    }
    for step in 1..=3 {
        model.tracker.free(model.allocator, Space::Dram, 0x100_0000 + step * 4096).unwrap();
    }
    let read = || {
        let output = peak(&["--json"], Some(&server.query), folder);
        let report: RunReport = serde_json::from_slice(&output.stdout).ok()?;
        let space = report.processes.into_iter().next()?.spaces.into_iter().next()?;
        (space.peak_bytes == 28 * 4096).then_some(space)
    };
    let space = eventually("all of it is read", read);
    let sites: Vec<(u32, u64)> =
        space.at_peak.unwrap().iter().map(|it| (it.origin.line.unwrap(), it.count)).collect();
    assert_eq!(sites, [(3, 24), (9, 3), (7, 1)]);
    let page = text(&peak(&[&pid.to_string()], Some(&server.query), folder).stdout);
    assert!(page.contains("Peak of DRAM on device 0: 112.0 KiB of 1.0 GiB (0.0 %), 20"), "{page}");
    assert!(page.contains("96.0 KiB  85.7 %     24  ttnn.add, model.py:3 (step)\n"), "{page}");
    // A reader that comes later knows the size only.
    let late = peak(&[], None, folder);
    assert!(
        text(&late.stdout).contains("Peak of DRAM on device 0: 112.0 KiB of 1.0 GiB (0.0 %)\n"),
        "{late:?}"
    );
    assert!(text(&late.stdout).contains("Its buffers are unknown, since ttmem did not follow"), "{late:?}");
    let other = peak(&["1"], None, folder);
    assert_eq!(other.status.code(), Some(3));
    assert!(text(&other.stderr).starts_with("ttmem: pid 1 has not reported any buffer;"), "{other:?}");
}

#[test]
fn wrong_arguments_of_leaks_are_named() {
    let folder = memory_folder();
    for (args, part) in [(&["--for", "ever"][..], "--for"), (&["--for", "3601"], "--for"), (&["me"], "[PID]")]
    {
        let output = leaks(args, None, folder.path());
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(part), "{errors}");
    }
}

fn check(limits: &[&str], more: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(exe());
    command.arg("check").args(limits.iter().flat_map(|limit| ["--limit", limit])).args(more);
    command.args(["--local", "--shm-dir"]).arg(folder).output().unwrap()
}

#[test]
fn limits_decide_the_exit_code() {
    let folder = memory_folder();
    let none = check(&["dram<1GiB"], &["--root", "/nowhere"], folder.path());
    assert_eq!(none.status.code(), Some(3), "{none:?}");
    let model = Model::start(folder.path());
    // 24 buffers of 4 KiB of 1 GiB.
    for (limit, code, line) in [
        ("dram<1GiB", 0, "dram<1GiB on device 0: 96.0 KiB of 1.0 GiB: ok\n"),
        ("dram<96KiB", 1, "dram<96KiB on device 0: 96.0 KiB of 96.0 KiB: above the limit\n"),
        ("dram <= 96 KiB", 0, "dram <= 96 KiB on device 0: 96.0 KiB of 96.0 KiB: ok\n"),
        ("dram<0.5%", 0, "of 5.1 MiB: ok\n"),
        ("dram_peak<100kB", 0, "96.0 KiB of 97.7 KiB: ok\n"),
        ("l1_peak<90%", 1, "unknown of unknown: unknown: no process reports memory of this space\n"),
    ] {
        let output = check(&[limit], &[], folder.path());
        let page = text(&output.stdout);
        assert!(output.status.code() == Some(code) && page.ends_with(line), "{limit}: {page}");
    }
    model.alloc(0x5000_0000, 3);
    model.tracker.free(model.allocator, Space::Dram, 0x5000_0000).unwrap();
    // The peak counts, also that of one process; one unmet limit is enough.
    let pid = std::process::id().to_string();
    let output = check(&["dram<97KiB", "dram_peak<97KiB"], &["--json", "--pid", &pid], folder.path());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let within: Vec<_> =
        report["limits"].as_array().unwrap().iter().map(|it| it["within"].as_bool()).collect();
    assert_eq!((output.status.code(), within), (Some(1), vec![Some(true), Some(false)]));
    assert_eq!(check(&["dram<1GiB"], &["--pid", "1"], folder.path()).status.code(), Some(3));
    for (limit, part) in [
        ("dram", "expected a limit such as dram<10GiB"),
        ("sram<1GiB", "unknown space \"sram\""),
        ("dram<much", "unknown size \"much\""),
        ("dram<1 gallon", "unknown size \"1 gallon\""),
    ] {
        let output = check(&[limit], &[], folder.path());
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(part), "{output:?}");
    }
}
