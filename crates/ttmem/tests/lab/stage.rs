//! A ttnn process with the agent, whose queues are recorded, and what it says of its own programs (see programs.py). The
//! comparison with what ttmem shows is in `compare`.

use super::compare::expect_no_differences;
use super::intervals::{CoreXy, cores};
use super::{Puppet, TTNN, here, process, python, tracked_command, ttmem};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Process, Program, Trace};
use ttmem_core::words::{KernelClass, Space};
use ttmem_testkit::memory_folder;

pub(crate) const OLDER: &str = "0.76.0";

/// The runtime's own description of a program that was dispatched, captured or replayed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ProgramInfo {
    pub(crate) kind: String,
    pub(crate) trace: u32,
    /// The runtime's own number, which begins at 0.
    #[serde(default)]
    pub(crate) id: u32,
    #[serde(default)]
    pub(crate) chips: Vec<u32>,
    #[serde(default)]
    pub(crate) config_bytes: u64,
    /// Processors of a core that have kernels.
    #[serde(default)]
    pub(crate) processors: u64,
    #[serde(default)]
    pub(crate) cores: Vec<[u64; 4]>,
    /// Circular buffers: a rectangle of cores, first address, end.
    #[serde(default)]
    pub(crate) cb: Vec<[u64; 6]>,
    /// Globally allocated circular buffers.
    #[serde(default)]
    pub(crate) cb_views: Vec<[u64; 6]>,
    /// The runtime's list of regions of circular buffers: those that are on any core of a range.
    #[serde(default)]
    pub(crate) cb_regions: Vec<[u64; 6]>,
    /// Dataflow buffers and scratchpads.
    #[serde(default)]
    pub(crate) dataflow: Vec<[u64; 6]>,
    /// Dataflow buffers that borrow a buffer.
    #[serde(default)]
    pub(crate) dfb_views: Vec<[u64; 6]>,
    /// The runtime's list of regions of dataflow buffers and scratchpads.
    #[serde(default)]
    pub(crate) dataflow_regions: Vec<[u64; 6]>,
}

/// One line of a report of the runtime's graph capture.
#[derive(Debug, Deserialize)]
pub(crate) struct ReportedPart {
    pub(crate) space: Space,
    pub(crate) chip: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) view: bool,
    pub(crate) cores: Vec<[u64; 4]>,
}

/// The runtime's own reports of an op.
#[derive(Debug, Deserialize)]
pub(crate) struct OpReport {
    pub(crate) op: String,
    /// The runtime's reason, if it refused the op.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) programs: Vec<ProgramInfo>,
    /// Circular buffers with addresses; none for programs that are compiled in several threads.
    pub(crate) report: Option<Vec<ReportedPart>>,
    /// All parts, without addresses.
    pub(crate) sizes: Option<Vec<ReportedPart>>,
}

/// What was compared, and what differs.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) ops: usize,
    pub(crate) programs: usize,
    pub(crate) parts: usize,
    pub(crate) views: u64,
    /// Ops that the runtime refused, with its reasons.
    pub(crate) refused: Vec<(String, String)>,
    pub(crate) differences: Vec<String>,
}

/// The library that records what reaches the queues and makes replays of traces possible; see queue.cpp.
pub(crate) fn queue() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let fresh = folder.join(format!("lab-queue-{}.so", std::process::id()));
        let built = Command::new("g++")
            .args(["-std=c++20", "-O1", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti"])
            .args(["-fno-threadsafe-statics", "-nodefaultlibs", "-o"])
            .arg(&fresh)
            .arg(here().join("queue.cpp"))
            .arg("-lc")
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        // Other tests may be using it.
        let library = folder.join("lab-queue.so");
        std::fs::rename(fresh, &library).unwrap();
        library
    })
}

/// A ttnn process with the agent, whose queues are recorded, and with a device open as `d`.
pub(crate) struct Stage {
    pub(crate) puppet: Puppet,
    pub(crate) folder: Arc<TempDir>,
    /// Programs that should be loaded, by number.
    pub(crate) live: BTreeMap<u32, ProgramInfo>,
    /// The program that was dispatched last, by chip and core.
    pub(crate) resident: BTreeMap<(u32, CoreXy), u32>,
    /// Number of dispatches by program; those that are missing are not compared.
    pub(crate) dispatches: BTreeMap<u32, u64>,
}

impl Stage {
    pub(crate) fn new(board: &str, version: &str, open: &str) -> Self {
        Self::start_with(board, version, open, &[])
    }

    pub(crate) fn start_with(board: &str, version: &str, open: &str, environment: &[(&str, &str)]) -> Self {
        let folder = memory_folder();
        let script = here().join("puppet.py");
        let program = [python(version), script];
        let mut command =
            tracked_command(board, folder.path(), &program.each_ref().map(|it| it.to_str().unwrap()));
        command.envs(environment.iter().copied());
        Self::start(command, folder, open)
    }

    pub(crate) fn start(mut command: Command, folder: Arc<TempDir>, open: &str) -> Self {
        // `ttmem run` puts the agent before it. They replace different functions.
        command.env("LD_PRELOAD", queue()).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut puppet = Puppet::start(command);
        puppet.run("import ttnn, ops, programs as p");
        puppet.run(&format!("d = p.open_mesh({open})"));
        Self { puppet, folder, live: BTreeMap::new(), resident: BTreeMap::new(), dispatches: BTreeMap::new() }
    }

    pub(crate) fn query<T: DeserializeOwned>(&mut self, code: &str) -> T {
        let answer = self.puppet.run(code);
        serde_json::from_value(answer).unwrap_or_else(|e| panic!("{code}: {e}"))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let output = ttmem(self.folder.path(), &["--json", "--programs", "--cores"]);
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        ttmem_testkit::schema::snapshot(&output.stdout)
    }

    pub(crate) fn process<'a>(&self, seen: &'a Snapshot) -> &'a Process {
        process(seen, self.puppet.pid())
    }

    /// The only trace of the process.
    pub(crate) fn only_trace(&self) -> Trace {
        let seen = self.snapshot();
        let [trace] = &self.process(&seen).traces[..] else { panic!("{:#?}", self.process(&seen).traces) };
        trace.clone()
    }

    /// Checks how many buffers each trace may overwrite, as ttmem shows and as the newer wheel says itself.
    pub(crate) fn expect_endangered(&mut self, version: &str, traces: &[&str], expected: &[u64]) {
        let seen = self.snapshot();
        let found: Vec<u64> = self.process(&seen).traces.iter().map(|it| it.endangered_count).collect();
        assert_eq!(found, expected, "{version}, {traces:?}: {:#?}", self.process(&seen).traces);
        if version == TTNN {
            let ids =
                |name: &&str| format!("len(ttnn._ttnn.operations.trace.get_unsafe_tracked_ids(d, {name}))");
            let own: Vec<u64> = traces.iter().map(ids).map(|code| self.puppet.number(&code)).collect();
            assert_eq!(own, expected, "{traces:?}");
        }
    }

    /// Programs of ops, without the fabric's, by number.
    pub(crate) fn programs<'a>(&self, seen: &'a Snapshot) -> BTreeMap<u32, &'a Program> {
        let all = self.process(seen).programs.as_deref().unwrap_or_default();
        all.iter().filter(|it| it.class == KernelClass::Application).map(|it| (it.id, it)).collect()
    }

    /// Applies dispatches of programs to the expected state, in their order.
    pub(crate) fn apply_dispatches(&mut self, programs: &[ProgramInfo]) {
        for program in programs {
            let number = program.id;
            for &chip in &program.chips {
                for core in cores(&program.cores) {
                    self.resident.insert((chip, core), number);
                }
            }
            *self.dispatches.entry(number).or_default() += 1;
            self.live.insert(number, program.clone());
        }
    }

    /// Applies what was dispatched since the queues were last read.
    pub(crate) fn record_dispatches(&mut self) {
        let programs: Vec<ProgramInfo> = self.query("p.dispatched_programs()");
        assert!(programs.iter().all(|it| it.kind == "dispatched"));
        self.apply_dispatches(&programs);
    }

    pub(crate) fn clear(&mut self) {
        self.live.clear();
        self.resident.clear();
        self.dispatches.clear();
    }

    /// Runs an op, unless the runtime refuses it; afterwards only its programs are cached.
    fn try_op(&mut self, op: &str) -> OpReport {
        let report: OpReport = self.query(&format!("p.run_or_refuse('{op}', d)"));
        self.clear();
        self.apply_dispatches(&report.programs);
        report
    }

    /// Runs an op; afterwards only its programs are cached.
    pub(crate) fn run_op(&mut self, op: &str) -> OpReport {
        let report = self.try_op(op);
        assert_eq!(report.refused, None, "{op}");
        report
    }

    /// Runs ops, each with nothing else cached, and compares their programs.
    pub(crate) fn run_and_compare(&mut self, ops: &[String]) -> Comparison {
        let mut done = Comparison::default();
        for op in ops {
            let report = self.try_op(op);
            if let Some(why) = report.refused {
                done.refused.push((op.clone(), why));
                continue;
            }
            let seen = self.snapshot();
            self.compare(&seen, op, &mut done.differences);
            self.compare_reports(&seen, &report, &mut done.differences);
            done.ops += 1;
            for program in self.programs(&seen).values() {
                done.programs += 1;
                done.parts += program.placements.iter().filter(|it| !it.view).count();
                done.views += program.view_count;
            }
        }
        done
    }

    /// Runs ops, none of which is refused, and checks that nothing differs.
    pub(crate) fn expect_equal_programs(&mut self, ops: &[String]) {
        let done = self.run_and_compare(ops);
        println!("{} ops, {} programs, {} parts, {} views", done.ops, done.programs, done.parts, done.views);
        assert_eq!(done.refused, []);
        expect_no_differences(&done.differences);
    }
}
