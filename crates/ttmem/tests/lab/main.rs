//! The agent in stock ttnn, on simulated devices. It needs `cargo xtask lab`, so `cargo test` leaves it out
//! (`test = false`) unless it is named: `cargo test --test lab`. No test is skipped: without the lab they fail.
#![allow(clippy::unwrap_used, missing_docs)]

mod call_sites;
mod compare;
mod counters;
mod dashboard;
mod drift;
mod failures;
mod fit;
mod intervals;
mod leaks;
mod limits;
mod more_ops;
mod native;
mod own;
mod processes;
mod programs;
mod python;
mod region;
mod report;
mod runtime;
mod stage;
mod traces;

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::Process;

/// The wheel that all tests use.
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

/// The environment variable that makes the runtime take its chips from a cluster descriptor.
fn board_variable(board: &str) -> (&'static str, PathBuf) {
    ("TT_METAL_MOCK_CLUSTER_DESC_PATH", lab().join(format!("clusters/{board}.yaml")))
}

/// The command `ttmem run -- PROGRAM` on a simulated machine, with a folder for segments.
fn tracked_command(board: &str, folder: &Path, program: &[&str]) -> Command {
    let mut command = Command::new(exe());
    command.args(["run", "--exec", "--shm-dir"]).arg(folder).arg("--").args(program);
    command.env("TTMEM_AGENT", agent()).env_remove("LD_PRELOAD").env("TT_METAL_LOGGER_LEVEL", "FATAL");
    let (name, value) = board_variable(board);
    command.env(name, value);
    command
}

/// The command `ttmem run -- PROGRAM` for a C++ program of this folder, which is linked with the runtime of the wheel.
fn linked_command(folder: &Path, source: &str, flags: &[&str]) -> Command {
    let versions = std::fs::read_dir(lab().join(TTNN).join("lib")).unwrap();
    let site = versions.flatten().map(|it| it.path().join("site-packages")).find(|it| it.is_dir()).unwrap();
    let libraries = site.join("ttnn/build/lib");
    let program = folder.join("program");
    let built = Command::new("g++")
        .args(["-std=c++20", "-o"])
        .arg(&program)
        .args(flags)
        .arg(here().join(source))
        .arg(libraries.join("libtt_metal.so"))
        .arg(format!("-Wl,-rpath,{0}:{1}", libraries.display(), site.join("ttnn.libs").display()))
        .arg(format!("-Wl,-rpath-link,{0}:{1}", libraries.display(), site.join("ttnn.libs").display()))
        .arg("-Wl,--allow-shlib-undefined")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = tracked_command("n150", folder, &[program.to_str().unwrap()]);
    command.env("TT_METAL_RUNTIME_ROOT", site.join("ttnn")).env("TT_METAL_HOME", site.join("ttnn"));
    command.env("TT_METAL_CACHE", lab().join(TTNN).join("kernels/0"));
    // The runtime writes files to the current folder.
    command.current_dir(folder);
    command
}

/// A Python process that runs code on request; see puppet.py.
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

    /// Starts a Python with the agent, on a simulated machine.
    fn start_tracked(board: &str, folder: &Path) -> Self {
        let script = here().join("puppet.py");
        let program = [python(TTNN).to_str().unwrap().to_owned(), script.to_str().unwrap().to_owned()];
        Self::start(tracked_command(board, folder, &program.each_ref().map(String::as_str)))
    }

    /// Starts a Python with the agent, with a device open as `d`.
    fn start_with_device(board: &str, folder: &Path, shape: &str) -> Self {
        let mut puppet = Self::start_tracked(board, folder);
        puppet.run("import ttnn");
        puppet.run(&format!("d = ttnn.open_mesh_device(ttnn.MeshShape({shape}))"));
        puppet
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs code. Returns the value if it is an expression.
    fn run(&mut self, code: &str) -> Value {
        let line = serde_json::to_string(code).unwrap() + "\n";
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended in: {code}");
            // The runtime prints lines, too.
            if let Some(answer) = line.strip_prefix("puppet: ") {
                let answer: Value = serde_json::from_str(answer).unwrap();
                assert!(answer.get("failed").is_none(), "{code}: {}", answer["failed"].as_str().unwrap());
                return answer["ok"].clone();
            }
        }
    }

    fn number(&mut self, code: &str) -> u64 {
        self.run(code).as_u64().unwrap_or_else(|| panic!("{code} is no number"))
    }

    /// Makes the process exit.
    fn quit(mut self) -> std::process::ExitStatus {
        drop(self.input.take());
        self.child.wait().unwrap()
    }

    fn kill(mut self) {
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

/// Allocated bytes of a process in DRAM and L1.
fn held(process: &Process) -> (u64, u64) {
    let of = |name: &str| {
        let spaces = process.allocators.iter().flat_map(|it| &it.spaces).filter(|it| it.space.name() == name);
        spaces.map(|it| it.usage.allocated_bytes.unwrap()).sum()
    };
    (of("dram"), of("l1"))
}

/// Checks that `ttmem check --fresh` finds no drift; returns its output.
fn expect_no_drift(folder: &Path) -> String {
    let output = ttmem(folder, &["check", "--fresh", "--wait", "30"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("drift 0\n"), "{printed}");
    printed
}
