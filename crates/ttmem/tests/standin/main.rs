//! The agent with a stand-in for the runtime, which fails in ways that the real one cannot be made to, also with sanitizers.
#![allow(clippy::unwrap_used, missing_docs)]

mod exceptions;
mod failures;
mod figures;
mod forks;
mod lifetimes;
mod make;
mod manual_reports;
mod native;
mod program_errors;
mod program_lifetimes;
mod programs;
mod sites;
mod traces;
mod versions;
mod without_runtime;

use make::{Build, Linkage, Vintage};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tempfile::TempDir;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Finding, FindingKind, Process};
use ttmem_testkit::{eventually, memory_folder};

/// A program that does not answer for so long hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The builds and linkages that most tests run with.
const ALL: [(Build, Linkage); 3] =
    [(Build::Plain, Linkage::Linked), (Build::Plain, Linkage::Loaded), (Build::Address, Linkage::Loaded)];
/// Failures of the next call, and when they happen; as in runtime.hpp.
const FATAL: u32 = 1;
const BAD_ALLOC: u32 = 2;
const INT: u32 = 3;
const PROCESS_EXIT: u32 = 5;
const ALLOCATE: u32 = 0;
const BEFORE_FREE: u32 = 1;
const AFTER_FREE: u32 = 2;

fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ttmem"))
}

/// The command `ttmem run -- PROGRAM`, with a folder for segments.
fn tracked_command(build: Build, folder: &Path, program: &Path) -> Command {
    let agent = ttmem_testkit::agent();
    let mut command = match build.sanitizer() {
        // A sanitizer must be preloaded first, and needs memory at fixed addresses.
        Some(sanitizer) => {
            let preload = format!("LD_PRELOAD={}:{}", sanitizer.display(), agent.display());
            let mut command = Command::new("setarch");
            command.args(["-R", "env", &preload]).arg(exe());
            command
        }
        None => Command::new(exe()),
    };
    command.args(["run", "--exec", "--shm-dir"]).arg(folder).arg("--").arg(program);
    // The agent is compiled without the thread sanitizer, which therefore cannot see the agent's synchronisation.
    fs::write(folder.join("suppressions"), "called_from_lib:libttmem_agent.so\n").unwrap();
    let suppressions = format!("exitcode=66:suppressions={}", folder.join("suppressions").display());
    command.env_remove("LD_PRELOAD").env("TTMEM_AGENT", agent);
    command.env("ASAN_OPTIONS", "detect_leaks=1:exitcode=86").env("TSAN_OPTIONS", &suppressions);
    command
}

/// The test program, which runs commands; see program.cpp.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
    folder: Arc<TempDir>,
}

impl Program {
    fn start(build: Build, linkage: Linkage) -> Self {
        Self::start_with(build, linkage, Vintage::New, &[])
    }

    /// Starts a program whose buffers may have per-core addresses.
    fn start_hybrid(build: Build, linkage: Linkage) -> Self {
        Self::start_with(build, linkage, Vintage::New, &[("TT_METAL_ALLOCATOR_MODE_HYBRID", "1")])
    }

    /// Starts a program with a runtime of a vintage, and more environment.
    fn start_with(build: Build, linkage: Linkage, vintage: Vintage, env: &[(&str, &str)]) -> Self {
        match linkage {
            Linkage::Linked => Self::start_library(build, linkage, Path::new("linked"), env),
            Linkage::Loaded | Linkage::Sealed => {
                Self::start_library(build, linkage, make::library(build, vintage), env)
            }
        }
    }

    fn start_library(build: Build, linkage: Linkage, library: &Path, env: &[(&str, &str)]) -> Self {
        let folder = memory_folder();
        let mut command = tracked_command(build, folder.path(), make::program(build, linkage));
        command.arg(library);
        let errors = File::create(folder.path().join("errors")).unwrap();
        command.envs(env.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, input, answers, folder }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.folder().join("errors")).unwrap()
    }

    fn send(&mut self, command: &str) {
        self.input.as_mut().unwrap().write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    fn receive(&mut self, what: &str) -> String {
        let answer = self.answers.recv_timeout(ANSWER_TIMEOUT);
        let answer = answer.unwrap_or_else(|e| panic!("no answer to {what}: {e}\n{}", self.errors()));
        answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{what}: {answer}")).to_owned()
    }

    /// Runs a command, and returns the answer.
    fn run(&mut self, command: &str) -> String {
        self.send(command);
        self.receive(command)
    }

    /// Runs a command, and returns the first number of the answer.
    fn number(&mut self, command: &str) -> u64 {
        let answer = self.run(command);
        answer.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{command}: {answer}"))
    }

    /// Makes the next call fail.
    fn fail_next(&mut self, kind: u32, when: u32, value: u32) {
        self.run(&format!("next {kind} {when} {value}"));
    }

    fn ttmem(&self, args: &[&str]) -> Output {
        let mut command = Command::new(exe());
        command.args(args).args(["--local", "--shm-dir"]).arg(self.folder()).env_remove("LD_PRELOAD");
        command.output().unwrap()
    }

    fn snapshot(&self) -> Snapshot {
        let output = self.ttmem(&["--json"]);
        assert!(!output.stdout.is_empty(), "{output:?}");
        ttmem_testkit::schema::snapshot(&output.stdout)
    }

    fn process(&self) -> Process {
        process(&self.snapshot(), self.pid()).expect("it is tracked")
    }

    /// Checks that no event was missed or refused.
    fn expect_exact(&self) {
        assert!(self.process().complete, "{:#?}", self.snapshot().findings);
    }

    fn finding(&self, kind: FindingKind) -> Option<Finding> {
        self.snapshot().findings.into_iter().find(|it| it.kind == kind)
    }

    /// Live buffers: space, address, cores and bytes.
    fn allocations(&self) -> Vec<Value> {
        let output = self.ttmem(&["dump", "--json"]);
        let mut dump: Value = ttmem_testkit::schema::dump(&output.stdout);
        serde_json::from_value(dump["allocations"].take()).unwrap()
    }

    /// Runs `ttmem check --fresh`; returns its exit code and report.
    fn run_check(&self) -> (i32, Value) {
        let output = self.ttmem(&["check", "--fresh", "--json", "--wait", "60"]);
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {output:?} {}", self.errors()));
        (output.status.code().unwrap(), report)
    }

    /// Checks that the allocators, the agent, readers and `ttmem check` have the same figures.
    fn check_figures(&mut self) {
        let truth = self.run("truth");
        let mut truth: Vec<&str> = truth.split(';').filter(|it| !it.is_empty()).collect();
        truth.sort_unstable();
        assert_eq!(self.run("compare"), "equal");
        let process = self.process();
        let mut shown: Vec<String> = Vec::new();
        for space in process.allocators.iter().flat_map(|it| &it.spaces) {
            let free = (space.usage.free_bytes.unwrap(), space.usage.largest_free_bytes_per_bank.unwrap());
            let allocated = space.bytes_per_bank * u64::from(space.banks) - free.0;
            shown.push(format!("{} {} {allocated} {} {}", space.space.name(), space.banks, free.0, free.1));
        }
        shown.sort_unstable();
        assert_eq!(shown, truth);
        let (code, report) = self.run_check();
        assert_eq!(
            (code, &report["drifting"], &report["not_compared"]),
            (0, &0.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["compared"], truth.len(), "{report}");
    }

    /// Processor time of the program.
    fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    }

    /// Closes the program's input, and waits until it exits.
    fn wait_for_exit(&mut self) -> ExitStatus {
        self.input = None;
        eventually("it ends", || self.child.try_wait().unwrap())
    }

    /// Makes the program exit, which must be with success and without error output.
    fn quit(mut self) {
        let status = self.wait_for_exit();
        assert!(status.success() && self.errors().is_empty(), "{status}: {}", self.errors());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn process(snapshot: &Snapshot, pid: u32) -> Option<Process> {
    snapshot.processes.iter().find(|it| it.pid == Some(pid)).cloned()
}

/// Segments in a folder.
fn segments(folder: &Path) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ttmem.")).collect()
}
