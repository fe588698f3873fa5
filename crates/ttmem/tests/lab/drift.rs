//! ttmem's figures equal those of the runtime's own allocators, to the byte. Stock ttnn, started with `ttmem run`, takes
//! random steps on simulated devices; after every step, a reader's figures are compared with the allocators' statistics, for
//! every allocator and space.
//!
//! `cargo xtask drift` runs it with the release program. `TTMEM_DRIFT_STEPS` is the number of steps over all cases
//! (default 5000), `TTMEM_DRIFT_SEED` the seed of the first (default 1).

use super::stage::OLDER;
use super::{TTNN, agent, board_variable, here, program, python};
use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::FindingKind;
use ttmem_core::words::Space;
use ttmem_testkit::{Reader, memory_folder};
use ttmem_types::Fault;

/// A machine and a workload.
struct Case {
    version: &'static str,
    board: &'static str,
    mesh: &'static str,
    /// Share of all steps, in percent.
    share: u64,
    submeshes: bool,
    hybrid: bool,
}

/// Defines a test for each case: its name, version of ttnn, board, mesh, share, and options.
macro_rules! cases {
    ($($number:literal $name:ident: $version:expr, $board:literal $mesh:literal, $share:literal $(, $option:ident)*;)*) => {
        $(
            #[test]
            fn $name() -> anyhow::Result<()> {
                #[allow(unused_mut, reason = "most cases have no options")]
                let mut case = Case {
                    version: $version,
                    board: $board,
                    mesh: $mesh,
                    share: $share,
                    submeshes: false,
                    hybrid: false,
                };
                $(case.$option = true;)*
                case.check(stringify!($name), $number)
            }
        )*
    };
}

cases! {
    0 n150: TTNN, "n150" "1x1", 15;
    1 t3k: TTNN, "t3k" "2x4", 12;
    2 t3k_submeshes: TTNN, "t3k" "2x4", 10, submeshes;
    3 galaxy: TTNN, "galaxy" "8x4", 8;
    4 p150: TTNN, "p150" "1x1", 12;
    5 p150x8: TTNN, "p150x8" "2x4", 6;
    6 bh_galaxy: TTNN, "bh-galaxy" "8x4", 5;
    7 n300_hybrid: TTNN, "n300" "1x2", 6, hybrid;
    8 p300_hybrid: TTNN, "p300" "1x2", 5, hybrid;
    9 t3k_submeshes_hybrid: TTNN, "t3k" "2x4", 4, submeshes, hybrid;
    10 older_n150: OLDER, "n150" "1x1", 6;
    11 older_t3k: OLDER, "t3k" "2x4", 4;
    12 older_p150: OLDER, "p150" "1x1", 4;
    13 older_n300_hybrid: OLDER, "n300" "1x2", 3, hybrid;
}

/// A number from the environment.
pub(super) fn number(variable: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable} is not a number: {text}")),
        Err(_) => Ok(default),
    }
}

/// Counts of one case.
#[derive(Default)]
struct Counts {
    compared: u64,
    allocators: usize,
    allocated: u64,
    freed: u64,
    oom: u64,
}

impl Case {
    fn check(&self, name: &str, number_of_case: u64) -> anyhow::Result<()> {
        let steps = (number("TTMEM_DRIFT_STEPS", 5000)? * self.share / 100).max(1);
        let seed = number("TTMEM_DRIFT_SEED", 1)? + number_of_case;
        let begun = Instant::now();
        let done =
            self.run(seed, steps).with_context(|| format!("{name}, ttnn {}, seed {seed}", self.version))?;
        ensure!(done.compared > 0, "nothing was compared");
        println!(
            "{name:<22} {steps:>6} steps, {} allocations, {} frees, {} out of memory, {} allocators at most: {} figures \
             compared, drift 0 ({:.0} s)",
            done.allocated,
            done.freed,
            done.oom,
            done.allocators,
            done.compared,
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn run(&self, seed: u64, steps: u64) -> anyhow::Result<Counts> {
        let folder = memory_folder();
        let mut command = Command::new(program());
        command.env("TTMEM_AGENT", agent());
        command.args(["run", "--exec", "--shm-dir"]).arg(folder.path()).arg("--").arg(python(self.version));
        command.arg(here().join("drift.py")).args([seed.to_string(), steps.to_string()]).arg(self.mesh);
        command.args(self.submeshes.then_some("submeshes")).args(self.hybrid.then_some("hybrid"));
        if self.hybrid {
            command.env("TT_METAL_ALLOCATOR_MODE_HYBRID", "1");
        }
        let (name, value) = board_variable(self.board);
        command.env(name, value).env("TT_METAL_LOGGER_LEVEL", "FATAL");
        // The caller's settings must not interfere.
        command.env_remove("LD_PRELOAD").env_remove("TTMEM_LOG");
        let mut workload = Workload::start(&mut command)?;
        let mut reader = Reader::new(folder.path());
        let mut done = Counts::default();
        for step in 0.. {
            let line = workload.next()?.with_context(|| format!("the workload ended at step {step}"))?;
            let snapshot = reader.poll();
            let skipped = &snapshot.health.skipped;
            ensure!(skipped.is_empty(), "not read: {skipped:?}");
            compare(&line, &snapshot, &mut done)
                .with_context(|| format!("step {step}, {}: {line}", line["what"]))?;
            if line["what"] == "closed" {
                let count = |name: &str| line["counts"][name].as_u64().unwrap_or(0);
                (done.allocated, done.freed, done.oom) = (count("allocated"), count("freed"), count("oom"));
                let listed = reader.state.live_records();
                ensure!(listed == 0, "{listed} records are left after everything was closed");
                let refused = line["refused"].as_array().map_or(0, Vec::len) as u64;
                // In HYBRID mode the runtime refuses parallel allocations, and submeshes that overlap.
                let most = done.allocated / if self.hybrid { 1 } else { 20 };
                ensure!(refused <= most, "{refused} were refused for other reasons: {}", line["refused"]);
                break;
            }
            workload.resume()?;
        }
        workload.finish()?;
        Ok(done)
    }
}

/// Compares all figures of all allocators.
fn compare(line: &Value, snapshot: &Snapshot, done: &mut Counts) -> anyhow::Result<()> {
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
        ensure!(process.complete, "the reader is not exact");
        for allocator in &process.allocators {
            for space in &allocator.spaces {
                let free = space.usage.free_bytes.context("free is known")?;
                let largest =
                    space.usage.largest_free_bytes_per_bank.context("the largest free block is known")?;
                // In HYBRID mode a device's allocator also counts mirrored buffers: all that is not free.
                let whole = space.bytes_per_bank * u64::from(space.banks);
                let figures = [u64::from(space.banks), whole - free, free, largest];
                ours.insert((u64::from(allocator.id), wire_number(space.space)), figures);
            }
        }
    }
    if ours != theirs {
        let differs = |key: &&(u64, u64)| ours.get(key) != theirs.get(key);
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let lines = keys.into_iter().filter(differs).map(|key| {
            format!(
                "allocator {} space {}: ttmem has {:?}, the runtime {:?}",
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
    // The figures of the runtime's Python call for the whole mesh are among them.
    for row in line["view"].as_array().into_iter().flatten() {
        let row: Vec<u64> = row.as_array().context("a row")?.iter().map(number).collect::<Result<_, _>>()?;
        let space = [1, 2, 0, 3, 4][row[0] as usize];
        let figures = [row[1], row[2], row[3], row[4]];
        let known = ours.iter().any(|(key, it)| key.1 == space && *it == figures);
        ensure!(
            known || figures[2] == 0,
            "get_memory_view reports {figures:?} of space {space}; no allocator does"
        );
    }
    let unexpected = snapshot.findings.iter().find(|finding| {
        use FindingKind::{DoubleFree, Drift, LostRecords, Refused, Replaced, UnknownFree};
        // No model has as many different grids as this workload, so the definitions may be full at some point.
        let full = finding.text.contains(Fault::DefinitionsFull.text());
        matches!(finding.kind, DoubleFree | UnknownFree | Replaced | LostRecords | Refused | Drift) && !full
    });
    if let Some(finding) = unexpected {
        bail!("finding: {}", finding.text);
    }
    done.compared += 3 * theirs.len() as u64;
    let allocators = snapshot.processes.iter().map(|it| it.allocators.len()).sum();
    done.allocators = done.allocators.max(allocators);
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

/// The Python process and its output.
pub(super) struct Workload {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    errors: tempfile::NamedTempFile,
}

impl Workload {
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let errors = tempfile::NamedTempFile::new()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.reopen()?);
        let mut child = command.spawn().context("cannot start ttmem run")?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { child, lines, errors })
    }

    /// The workload's next line; the runtime's lines are skipped.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Value>> {
        for line in &mut self.lines {
            let line = line?;
            if line.starts_with("{\"what\"") {
                return Ok(Some(serde_json::from_str(&line)?));
            }
        }
        let status = self.child.wait()?;
        let errors = std::fs::read_to_string(self.errors.path()).unwrap_or_default();
        let end: Vec<&str> = errors.lines().rev().take(25).collect();
        Err(anyhow!("{status}: {}", end.into_iter().rev().collect::<Vec<_>>().join("\n")))
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.reply("")
    }

    /// Answers the workload with a line.
    pub(super) fn reply(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().context("its input")?;
        writeln!(input, "{line}").context("the workload does not read its input")
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.resume()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the workload ended with {status}");
        Ok(())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
