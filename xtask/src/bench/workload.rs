//! What the agent costs a model: the decode loop of a small transformer and single operations in stock ttnn, with tracking at
//! work and paused, in turns in one process (`xtask/lab/model.py`).

use super::{Figure, median};
use crate::lab::board::Board;
use crate::lab::{self, Lab, tracked};
use crate::root;
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::path::Path;
use ttmem_testkit::memory_folder;

/// Times that each process is started anew: the placement of code in memory changes figures by tens of nanoseconds.
const STARTS: usize = 3;
/// Pairs of blocks of each case after each start.
const ROUNDS: usize = 200;

/// Cases that only dispatch: their budget is absolute.
const DISPATCHES: [&str; 4] = ["add_in_place", "sharded_add", "moving_add", "many_addresses"];

/// What one process measured of one case, in nanoseconds per step.
#[derive(Deserialize)]
struct Measured {
    case: String,
    plain: Vec<f64>,
    added: Vec<f64>,
    added_wall: Vec<f64>,
    counted: f64,
    events: f64,
}

/// All starts of one case together.
struct Case {
    name: String,
    plain: f64,
    added: f64,
    /// The quartiles of what tracking adds.
    quartiles: (f64, f64),
    added_wall: f64,
    counted: f64,
    events: f64,
}

impl Case {
    fn new(starts: &[Measured]) -> Self {
        let all = |of: fn(&Measured) -> &Vec<f64>| -> Vec<f64> {
            let mut values: Vec<f64> = starts.iter().flat_map(|it| of(it).iter().copied()).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let added = all(|it| &it.added);
        Self {
            name: starts[0].case.clone(),
            plain: median(all(|it| &it.plain)),
            quartiles: (added[added.len() / 4], added[added.len() * 3 / 4]),
            added: median(added),
            added_wall: median(all(|it| &it.added_wall)),
            counted: median(starts.iter().map(|it| it.counted).collect()),
            events: starts[0].events,
        }
    }

    fn share(&self) -> f64 {
        self.added / self.plain * 100.0
    }

    fn print(&self) {
        let Self { name, plain, added, quartiles: (low, high), added_wall, counted, events } = self;
        println!(
            "  {name:<15} {:>8.2} us, tracking adds {added:>6.0} ns ({low:.0} to {high:.0}), {:>5.2} %; wall {added_wall:>6.0} ns; \
             own count {counted:>6.0} ns; {events:.0} events",
            plain / 1e3,
            self.share(),
        );
    }

    /// Whether the agent's own count is near the difference, where that is clear.
    fn own_count(&self) -> Option<f64> {
        let (low, high) = self.quartiles;
        (self.added > 3.0 * (high - low)).then(|| (self.counted / self.added - 1.0).abs() * 100.0)
    }
}

pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let lab = lab::prepare(lab::TTNN)?;
    let agent = &lab::build_probe_agent()?;
    let mut figures = Vec::new();
    for (board, cases) in [(Board::N150, &[][..]), (Board::P150x8, &[]), (Board::Galaxy, &["pair"])] {
        let chips = board.chips();
        println!("{chips} chips, {STARTS} starts x {ROUNDS} rounds:");
        for case in measure(&lab, agent, board, cases)? {
            case.print();
            let what = |it: &str| format!("{} on {chips} chips: {it}", case.name);
            let anchor = "same process";
            if case.name == "pair" || DISPATCHES.contains(&&*case.name) {
                figures.push(Figure::at_most(&what("tracking adds"), anchor, 300.0, case.added, "ns"));
            }
            let budget = if case.name == "decode" { 1.0 } else { 2.0 };
            if case.name != "pair" {
                figures.push(Figure::at_most(&what("of its CPU time"), anchor, budget, case.share(), "%"));
            }
            if let Some(off) = case.own_count() {
                figures.push(Figure::at_most(&what("own count is off by"), anchor, 25.0, off, "%"));
            }
        }
    }
    Ok(figures)
}

fn measure(lab: &Lab, agent: &Path, board: Board, wanted: &[&str]) -> anyhow::Result<Vec<Case>> {
    // In one row: then collectives need no axis.
    let mesh = format!("1x{}", board.chips());
    let mut starts: Vec<Vec<Measured>> = Vec::new();
    for _ in 0..STARTS {
        let folder = memory_folder();
        let mut script = lab.on(board)?;
        script.arg(root().join("xtask/lab/model.py")).arg(&mesh).arg(ROUNDS.to_string());
        script.args(wanted).env("TT_METAL_LOGGER_LEVEL", "FATAL").env("TT_METAL_SHM_TRACKING_DISABLED", "1");
        let output = tracked(agent, folder.path(), &script).output().context("cannot start ttnn")?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "model.py ended with {}: {text}", output.status);
        let lines = output.stdout.split(|&b| b == b'\n').filter(|line| line.starts_with(b"{"));
        let cases = lines.map(|line| serde_json::from_slice(line).context("a line of model.py"));
        for (n, case) in cases.collect::<anyhow::Result<Vec<Measured>>>()?.into_iter().enumerate() {
            if starts.len() == n {
                starts.push(Vec::new());
            }
            starts[n].push(case);
        }
    }
    Ok(starts.iter().map(|it| Case::new(it)).collect())
}
