//! `cargo xtask drift`: does ttmem say what the runtime's own allocators say, to the byte? Stock ttnn, started with
//! `ttmem run`, does random things on chips that do not exist; after every step, what a reader of its segment knows is
//! compared with the allocators' statistics, for every allocator and space.

use crate::lab::board::Board;
use crate::lab::{self, Lab};
use crate::{cargo, root, succeed};
use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::FindingKind;
use ttmem_core::words::Space;
use ttmem_testkit::{Reader, memory_folder};
use ttmem_types::Fault;

/// One machine and what is done on it.
struct Case {
    version: &'static str,
    board: Board,
    /// Of all steps, in hundredths.
    share: u64,
    submeshes: bool,
    hybrid: bool,
}

const fn case(version: &'static str, board: Board, share: u64) -> Case {
    Case { version, board, share, submeshes: false, hybrid: false }
}

/// The oldest wheel that opens a device on chips that do not exist.
pub(crate) const OLDEST: &str = "0.67.4";
/// The older wheel that is followed in full.
pub(crate) const OLDER: &str = "0.76.0";

const CASES: [Case; 14] = [
    case(lab::TTNN, Board::N150, 15),
    case(lab::TTNN, Board::T3k, 12),
    Case { submeshes: true, ..case(lab::TTNN, Board::T3k, 10) },
    case(lab::TTNN, Board::Galaxy, 8),
    case(lab::TTNN, Board::P150, 12),
    case(lab::TTNN, Board::P150x8, 6),
    case(lab::TTNN, Board::BhGalaxy, 5),
    Case { hybrid: true, ..case(lab::TTNN, Board::N300, 6) },
    Case { hybrid: true, ..case(lab::TTNN, Board::P300, 5) },
    Case { hybrid: true, submeshes: true, ..case(lab::TTNN, Board::T3k, 4) },
    case(OLDER, Board::N150, 6),
    case(OLDER, Board::T3k, 4),
    case(OLDER, Board::P150, 4),
    Case { hybrid: true, ..case(OLDER, Board::N300, 3) },
];

/// `cargo xtask drift [STEPS] [--seed N] [CASE…]`
pub(crate) fn command(args: &[&str]) -> anyhow::Result<()> {
    let (mut steps, mut seed, mut cases) = (5000, 1, Vec::new());
    let mut args = args.iter().peekable();
    if let Some(number) = args.peek().and_then(|first| first.parse().ok()) {
        steps = number;
        args.next();
    }
    while let Some(arg) = args.next() {
        match *arg {
            "--seed" => seed = args.next().and_then(|it| it.parse().ok()).context("--seed needs a number")?,
            case => cases.push(case),
        }
    }
    run(steps, seed, &cases)
}

/// So many steps in all, over all cases or those that are named.
pub(crate) fn run(steps: u64, seed: u64, which: &[&str]) -> anyhow::Result<()> {
    build()?;
    let mut compared = 0;
    for (n, case) in CASES.iter().enumerate() {
        let name = case.name();
        if !which.is_empty() && !which.iter().any(|it| name.contains(it)) {
            continue;
        }
        let lab = lab::prepare(case.version)?;
        let steps = (steps * case.share / 100).max(1);
        let begun = Instant::now();
        let told = case
            .run(&lab, seed + n as u64, steps)
            .with_context(|| format!("{name}, seed {}", seed + n as u64))?;
        compared += told.compared;
        println!(
            "{name:<34} {steps:>6} steps, {} allocations, {} frees, {} out of memory, {} allocators at most: {} figures \
             compared, drift 0 ({:.0} s)",
            told.allocated,
            told.freed,
            told.oom,
            told.allocators,
            told.compared,
            begun.elapsed().as_secs_f64()
        );
    }
    ensure!(compared > 0, "no case is called {}", which.join(" "));
    println!("{compared} figures compared: drift 0");
    Ok(())
}

/// The program as people use it, and the agent with what this and the benchmarks need besides.
pub(crate) fn build() -> anyhow::Result<()> {
    let release = ["build", "--release", "--locked", "--quiet", "-p"];
    succeed(cargo(&release).arg("ttmem"))?;
    // It must not take the place of the one that is installed.
    let agent = ["ttmem-agent", "--features", "probe", "--target-dir"];
    succeed(cargo(&release).args(agent).arg(root().join("target/probe")))
}

/// `ttmem run -- …` in a folder of its own.
pub(crate) fn tracked(folder: &Path, command: &Command) -> Command {
    let mut run = Command::new(root().join("target/release/ttmem"));
    run.args(["run", "--shm-dir"]).arg(folder).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => run.env(name, value),
            None => run.env_remove(name),
        };
    }
    // So that nothing else of the caller's gets in.
    run.env_remove("LD_PRELOAD").env_remove("TTMEM_LOG");
    run.env("TTMEM_AGENT", root().join("target/probe/release/libttmem_agent.so"));
    run
}

#[derive(Default)]
struct Told {
    compared: u64,
    allocators: usize,
    allocated: u64,
    freed: u64,
    oom: u64,
}

impl Case {
    fn name(&self) -> String {
        let mut name = format!("{} {}", self.version, self.board.name());
        for (on, word) in [(self.submeshes, " submeshes"), (self.hybrid, " hybrid")] {
            if on {
                name += word;
            }
        }
        name
    }

    fn run(&self, lab: &Lab, seed: u64, steps: u64) -> anyhow::Result<Told> {
        let folder = memory_folder();
        let (rows, columns) = self.board.mesh();
        let mut python = lab.on(self.board)?;
        python.arg(root().join("xtask/lab/drift.py")).args([seed.to_string(), steps.to_string()]);
        python.arg(format!("{rows}x{columns}"));
        python.args(self.submeshes.then_some("submeshes")).args(self.hybrid.then_some("hybrid"));
        if self.hybrid {
            python.env("TT_METAL_ALLOCATOR_MODE_HYBRID", "1");
        }
        python.env("TT_METAL_LOGGER_LEVEL", "FATAL");
        let mut workload = Workload::start(&mut tracked(folder.path(), &python))?;
        let mut reader = Reader::new(folder.path());
        let mut told = Told::default();
        for step in 0.. {
            let line = workload.next()?.with_context(|| format!("it ended at step {step}"))?;
            let snapshot = reader.look();
            let skipped = &snapshot.health.skipped;
            ensure!(skipped.is_empty(), "not read: {skipped:?}");
            compare(&line, &snapshot, &mut told)
                .with_context(|| format!("step {step}, {}: {line}", line["what"]))?;
            if line["what"] == "closed" {
                let count = |name: &str| line["counts"][name].as_u64().unwrap_or(0);
                (told.allocated, told.freed, told.oom) = (count("allocated"), count("freed"), count("oom"));
                let listed = reader.state.live_records();
                ensure!(listed == 0, "{listed} records are left after everything was closed");
                let refused = line["refused"].as_array().map_or(0, Vec::len) as u64;
                // In HYBRID mode the runtime refuses what runs at once, and submeshes that meet.
                let most = told.allocated / if self.hybrid { 1 } else { 20 };
                ensure!(refused <= most, "{refused} were refused for other reasons: {}", line["refused"]);
                break;
            }
            workload.go_on()?;
        }
        workload.finish()?;
        Ok(told)
    }
}

/// Compares every figure of every allocator.
fn compare(line: &Value, snapshot: &Snapshot, told: &mut Told) -> anyhow::Result<()> {
    type Figures = BTreeMap<(u64, u64), [u64; 4]>;
    let number = |value: &Value| value.as_u64().context("a figure is a number");
    let rows = line["figures"].as_array().context("there are figures")?;
    let mut theirs = Figures::new();
    for row in rows {
        let row: Vec<u64> = row.as_array().context("a row")?.iter().map(number).collect::<Result<_, _>>()?;
        theirs.insert((row[0], row[1]), [row[2], row[3], row[4], row[5]]);
    }
    let mut ours = Figures::new();
    for process in &snapshot.processes {
        ensure!(process.exact, "the reader says that it does not know everything");
        for allocator in &process.allocators {
            for it in &allocator.spaces {
                let free = it.usage.free_bytes.context("free is known")?;
                let largest =
                    it.usage.largest_free_bytes_per_bank.context("the largest free block is known")?;
                // In HYBRID mode a device's allocator counts what it keeps clear of, too: all that is not free.
                let whole = it.bytes_per_bank * u64::from(it.banks);
                let figures = [u64::from(it.banks), whole - free, free, largest];
                ours.insert((u64::from(allocator.id), wire_number(it.space)), figures);
            }
        }
    }
    if ours != theirs {
        let differs = |key: &&(u64, u64)| ours.get(key) != theirs.get(key);
        let keys: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let lines = keys.into_iter().filter(differs).map(|key| {
            format!(
                "allocator {} space {}: we say {:?}, it says {:?}",
                key.0,
                key.1,
                ours.get(key),
                theirs.get(key)
            )
        });
        bail!(
            "(banks, allocated, free, largest free block of a bank)\n{}",
            lines.collect::<Vec<_>>().join("\n")
        );
    }
    // What Python's own call says of the whole mesh is among them.
    for row in line["view"].as_array().into_iter().flatten() {
        let row: Vec<u64> = row.as_array().context("a row")?.iter().map(number).collect::<Result<_, _>>()?;
        let space = [1, 2, 0, 3, 4][row[0] as usize];
        let figures = [row[1], row[2], row[3], row[4]];
        let known = ours.iter().any(|(key, it)| key.1 == space && *it == figures);
        ensure!(
            known || figures[2] == 0,
            "get_memory_view says {figures:?} of space {space}: nobody else does"
        );
    }
    let odd = snapshot.findings.iter().find(|it| {
        use FindingKind::{DoubleFree, Drift, LostRecords, Refused, Replaced, UnknownFree};
        // So many different grids as here no model has: at some point there is no room to name another.
        let full = it.text.contains(Fault::DefinitionsFull.text());
        matches!(it.kind, DoubleFree | UnknownFree | Replaced | LostRecords | Refused | Drift) && !full
    });
    if let Some(finding) = odd {
        bail!("finding: {}", finding.text);
    }
    told.compared += 3 * theirs.len() as u64;
    let allocators = snapshot.processes.iter().map(|it| it.allocators.len()).sum();
    told.allocators = told.allocators.max(allocators);
    Ok(())
}

fn wire_number(space: Space) -> u64 {
    match space {
        Space::Dram => 1,
        Space::L1 => 2,
        Space::L1Small => 3,
        Space::Trace => 4,
        _ => 0,
    }
}

/// The Python process, and its lines.
struct Workload {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    errors: tempfile::NamedTempFile,
}

impl Workload {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let errors = tempfile::NamedTempFile::new()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.reopen()?);
        let mut child = command.spawn().context("cannot start ttmem run")?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { child, lines, errors })
    }

    /// The next line of its own: the runtime prints, too.
    fn next(&mut self) -> anyhow::Result<Option<Value>> {
        for line in &mut self.lines {
            let line = line?;
            if line.starts_with("{\"what\"") {
                return Ok(Some(serde_json::from_str(&line)?));
            }
        }
        let status = self.child.wait()?;
        let said = std::fs::read_to_string(self.errors.path()).unwrap_or_default();
        let end: Vec<&str> = said.lines().rev().take(25).collect();
        Err(anyhow!("{status}: {}", end.into_iter().rev().collect::<Vec<_>>().join("\n")))
    }

    fn go_on(&mut self) -> anyhow::Result<()> {
        self.child.stdin.as_mut().context("its input")?.write_all(b"\n").context("it does not listen")
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.go_on()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
