//! The agent in a stand-in for the runtime, which does what the real one cannot be made to do, under sanitizers.
#![allow(clippy::unwrap_used, missing_docs)]

mod by_hand;
mod bystanders;
mod ends;
mod exceptions;
mod figures;
mod forks;
mod make;
mod programs;
mod traces;
mod versions;

use make::{Build, Vintage, Way};
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

/// So long nothing takes: who does not answer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every way to have the library, plain and with sanitizers.
const ALL: [(Build, Way); 3] =
    [(Build::Plain, Way::Linked), (Build::Plain, Way::Loading), (Build::Address, Way::Loading)];
/// What the next call does instead, and when; as in runtime.hpp.
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

/// `ttmem run -- …` in a folder of its own.
fn tracked(build: Build, folder: &Path, program: &Path) -> Command {
    let agent = ttmem_testkit::agent();
    let mut command = match build.sanitizer() {
        // It must come first, and its memory must lie where it expects it.
        Some(sanitizer) => {
            let preload = format!("LD_PRELOAD={}:{}", sanitizer.display(), agent.display());
            let mut command = Command::new("setarch");
            command.args(["-R", "env", &preload]).arg(exe());
            command
        }
        None => Command::new(exe()),
    };
    command.args(["run", "--shm-dir"]).arg(folder).arg("--").arg(program);
    // The agent is not compiled for it, so how its threads agree cannot be seen: what it calls is not its affair.
    fs::write(folder.join("suppressions"), "called_from_lib:libttmem_agent.so\n").unwrap();
    let suppressions = format!("exitcode=66:suppressions={}", folder.join("suppressions").display());
    command.env_remove("LD_PRELOAD").env("TTMEM_AGENT", agent);
    command.env("ASAN_OPTIONS", "detect_leaks=1:exitcode=86").env("TSAN_OPTIONS", &suppressions);
    command
}

/// The program, which does what it is told; see program.cpp.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
    folder: Arc<TempDir>,
}

impl Program {
    fn start(build: Build, way: Way) -> Self {
        Self::with(build, way, Vintage::New, &[])
    }

    /// One whose buffers may have an address on each core.
    fn hybrid(build: Build, way: Way) -> Self {
        Self::with(build, way, Vintage::New, &[("TT_METAL_ALLOCATOR_MODE_HYBRID", "1")])
    }

    /// One that has a runtime of some vintage, and more environment.
    fn with(build: Build, way: Way, vintage: Vintage, env: &[(&str, &str)]) -> Self {
        match way {
            Way::Linked => Self::of(build, way, Path::new("linked"), env),
            Way::Loading | Way::Sealed => Self::of(build, way, make::library(build, vintage), env),
        }
    }

    fn of(build: Build, way: Way, library: &Path, env: &[(&str, &str)]) -> Self {
        let folder = memory_folder();
        let mut command = tracked(build, folder.path(), make::program(build, way));
        command.arg(library);
        let errors = File::create(folder.path().join("errors")).unwrap();
        command.envs(env.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (tell, answers) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
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

    fn tell(&mut self, command: &str) {
        self.input.as_mut().unwrap().write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self, of: &str) -> String {
        let answer = self.answers.recv_timeout(PATIENCE);
        let answer = answer.unwrap_or_else(|e| panic!("no answer to {of}: {e}\n{}", self.errors()));
        answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{of}: {answer}")).to_owned()
    }

    /// What it answers.
    fn does(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear(command)
    }

    /// The first number of it.
    fn number(&mut self, command: &str) -> u64 {
        let answer = self.does(command);
        answer.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{command}: {answer}"))
    }

    /// Has the next call do something else.
    fn next(&mut self, kind: u32, when: u32, value: u32) {
        self.does(&format!("next {kind} {when} {value}"));
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

    /// Nothing was missed, nothing refused.
    fn is_exact(&self) {
        assert!(self.process().complete, "{:#?}", self.snapshot().findings);
    }

    fn finding(&self, kind: FindingKind) -> Option<Finding> {
        self.snapshot().findings.into_iter().find(|it| it.kind == kind)
    }

    /// Live buffers: space, address, cores and bytes.
    fn listed(&self) -> Vec<Value> {
        let output = self.ttmem(&["dump", "--json"]);
        let mut dump: Value = ttmem_testkit::schema::dump(&output.stdout);
        serde_json::from_value(dump["allocations"].take()).unwrap()
    }

    /// What `ttmem check --fresh` says, and its exit code.
    fn checked(&self) -> (i32, Value) {
        let output = self.ttmem(&["check", "--fresh", "--json", "--wait", "60"]);
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {output:?} {}", self.errors()));
        (output.status.code().unwrap(), report)
    }

    /// The allocators, the agent, readers and `ttmem check` are of one mind.
    fn is_right(&mut self) {
        let truth = self.does("truth");
        let mut truth: Vec<&str> = truth.split(';').filter(|it| !it.is_empty()).collect();
        truth.sort_unstable();
        assert_eq!(self.does("compare"), "equal");
        let process = self.process();
        let mut shown: Vec<String> = Vec::new();
        for it in process.allocators.iter().flat_map(|it| &it.spaces) {
            let free = (it.usage.free_bytes.unwrap(), it.usage.largest_free_bytes_per_bank.unwrap());
            let allocated = it.bytes_per_bank * u64::from(it.banks) - free.0;
            shown.push(format!("{} {} {allocated} {} {}", it.space.name(), it.banks, free.0, free.1));
        }
        shown.sort_unstable();
        assert_eq!(shown, truth);
        let (code, report) = self.checked();
        assert_eq!(
            (code, &report["drifting"], &report["not_compared"]),
            (0, &0.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["compared"], truth.len(), "{report}");
    }

    /// Processor time it has used.
    fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    }

    /// It goes on to its end.
    fn ends(&mut self) -> ExitStatus {
        self.input = None;
        eventually("it ends", || self.child.try_wait().unwrap())
    }

    /// Ends in peace, and nobody has said anything.
    fn quits(mut self) {
        let status = self.ends();
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
