//! The agent in stock ttnn, on simulated devices. Needs `cargo xtask lab`, so `cargo test` leaves it out
//! (`test = false`) unless it is named: `cargo test --test lab`. Nothing here is skipped: without the lab it fails.
#![allow(clippy::unwrap_used, missing_docs)]

mod counters;
mod dashboard;
mod drift;
mod own;
mod processes;
mod programs;
mod python;
mod region;
mod runtime;
mod stage;
mod traces;

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::Process;

/// The wheel that everything is tried with.
const TTNN: &str = "0.81.1";

fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ttmem"))
}

/// The program that `drift` runs: `TTMEM_PROGRAM`, or the one built with the tests.
fn program() -> PathBuf {
    std::env::var_os("TTMEM_PROGRAM").map_or_else(|| exe().to_owned(), PathBuf::from)
}

/// The agent: `TTMEM_AGENT`, or the one built with the tests.
fn agent() -> PathBuf {
    std::env::var_os("TTMEM_AGENT").map_or_else(ttmem_testkit::agent, PathBuf::from)
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab")
}

fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/lab")
        .canonicalize()
        .expect("run `cargo xtask lab` first")
}

fn python(version: &str) -> PathBuf {
    let python = lab().join(version).join("bin/python");
    assert!(python.exists(), "run `cargo xtask lab {version}` first");
    python
}

/// What makes the runtime take its chips from a description.
fn on(board: &str) -> (&'static str, PathBuf) {
    ("TT_METAL_MOCK_CLUSTER_DESC_PATH", lab().join(format!("clusters/{board}.yaml")))
}

/// `ttmem run -- …` on a machine, in a folder of its own.
fn tracked(board: &str, folder: &Path, program: &[&str]) -> Command {
    let mut command = Command::new(exe());
    command.args(["run", "--shm-dir"]).arg(folder).arg("--").args(program);
    command.env("TTMEM_AGENT", agent()).env_remove("LD_PRELOAD").env("TT_METAL_LOGGER_LEVEL", "FATAL");
    let (name, value) = on(board);
    command.env(name, value);
    command
}

/// A Python that does what it is told; see puppet.py.
struct Puppet {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Puppet {
    fn start(mut command: Command) -> Self {
        command
            .env("TTMEM_AGENT", agent())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// On a machine of its own, with the agent.
    fn tracked(board: &str, folder: &Path) -> Self {
        let script = here().join("puppet.py");
        let program = [python(TTNN).to_str().unwrap().to_owned(), script.to_str().unwrap().to_owned()];
        Self::start(tracked(board, folder, &program.each_ref().map(String::as_str)))
    }

    /// The same, with a device open as `d`.
    fn with_device(board: &str, folder: &Path, shape: &str) -> Self {
        let mut puppet = Self::tracked(board, folder);
        puppet.does("import ttnn");
        puppet.does(&format!("d = ttnn.open_mesh_device(ttnn.MeshShape({shape}))"));
        puppet
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What an expression is, or nothing if the code is none.
    fn does(&mut self, code: &str) -> Value {
        let line = serde_json::to_string(code).unwrap() + "\n";
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended in: {code}");
            // The runtime prints, too.
            if let Some(answer) = line.strip_prefix("puppet: ") {
                let answer: Value = serde_json::from_str(answer).unwrap();
                assert!(answer.get("failed").is_none(), "{code}: {}", answer["failed"].as_str().unwrap());
                return answer["ok"].clone();
            }
        }
    }

    fn number(&mut self, code: &str) -> u64 {
        self.does(code).as_u64().unwrap_or_else(|| panic!("{code} is no number"))
    }

    /// Ends by itself.
    fn quits(mut self) -> std::process::ExitStatus {
        drop(self.input.take());
        self.child.wait().unwrap()
    }

    fn killed(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ttmem(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(exe());
    command.args(args).args(["--local", "--shm-dir"]).arg(folder).env_remove("LD_PRELOAD");
    command.output().unwrap()
}

fn snapshot(folder: &Path) -> Snapshot {
    let output = ttmem(folder, &["--json"]);
    assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    ttmem_testkit::schema::snapshot(&output.stdout)
}

fn process(snapshot: &Snapshot, pid: u32) -> &Process {
    let mut found = snapshot.processes.iter().filter(|it| it.pid == Some(pid));
    found.next().unwrap_or_else(|| panic!("pid {pid} is not among {:#?}", snapshot.processes))
}

/// What a process's allocators charge in DRAM and L1.
fn held(process: &Process) -> (u64, u64) {
    let of = |name: &str| {
        let spaces = process.allocators.iter().flat_map(|it| &it.spaces).filter(|it| it.space.name() == name);
        spaces.map(|it| it.usage.allocated_bytes.unwrap()).sum()
    };
    (of("dram"), of("l1"))
}

/// `ttmem check --fresh` finds everything right.
fn checked(folder: &Path) -> String {
    let output = ttmem(folder, &["check", "--fresh", "--wait", "30"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("drift 0\n"), "{told}");
    told
}
