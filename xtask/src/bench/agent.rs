//! The agent's cost in stock ttnn, in the lab, compared with runs without it and with tt-metal's own counters.

use super::{Figure, median};
use crate::lab::board::Board;
use crate::lab::{self, Lab, tracked};
use crate::{root, target};
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use ttmem_testkit::memory_folder;

/// Times that all processes are started anew: the placement of code in memory changes figures by a hundred nanoseconds.
const STARTS: usize = 6;
/// Blocks of each kind after each start, in turns.
const BLOCKS: usize = 10;
/// Pairs of a block.
const PAIRS: usize = 2000;
/// Pairs of short blocks after each start, with and without, in one process.
const SHORT_BLOCKS: u64 = 60;
/// Programs of the run that hooks are measured on.
const PROGRAMS: u64 = 200;

/// A process that measures on request.
struct Model {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Model {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start ttnn")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output })
    }

    fn measure(&mut self, what: &str, count: u64) -> anyhow::Result<Vec<f64>> {
        writeln!(self.input, "{what} {count}").context("ttnn ended")?;
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.output.read_line(&mut line)? > 0, "ttnn ended while it measured {what}");
            if let Some(numbers) = line.strip_prefix("cost: ") {
                return numbers.split_whitespace().map(|it| it.parse().context("a number")).collect();
            }
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The script on a machine, with or without tt-metal's own counters.
fn script(lab: &Lab, board: Board, region: bool) -> anyhow::Result<Command> {
    let (rows, columns) = board.mesh();
    let mut command = lab.on(board)?;
    command.arg(root().join("xtask/lab/cost.py")).arg(format!("{rows}x{columns}"));
    command.env("TT_METAL_LOGGER_LEVEL", "FATAL").env_remove("LD_PRELOAD").env_remove("TTMEM");
    if !region {
        command.env("TT_METAL_SHM_TRACKING_DISABLED", "1");
    }
    Ok(command)
}

pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let lab = lab::prepare(lab::TTNN)?;
    let agent = &lab::build_probe_agent()?;
    let mut figures = Vec::new();
    for board in [Board::N150, Board::T3k, Board::Galaxy] {
        figures.extend(pairs(&lab, agent, board)?);
    }
    for board in [Board::N150, Board::Galaxy] {
        figures.extend(dispatches(&lab, agent, board)?);
    }
    for board in [Board::N150, Board::T3k, Board::Galaxy] {
        figures.extend(sites(&lab, agent, board)?);
    }
    figures.push(programs(&lab, agent)?);
    Ok(figures)
}

fn pairs(lab: &Lab, agent: &Path, board: Board) -> anyhow::Result<[Figure; 4]> {
    let mut costs = [const { Vec::new() }; 3];
    let mut added = Vec::new();
    for _ in 0..STARTS {
        let folder = memory_folder();
        let mut models = [
            Model::start(script(lab, board, false)?)?,
            Model::start(script(lab, board, true)?)?,
            Model::start(tracked(agent, folder.path(), &script(lab, board, false)?))?,
        ];
        for model in &mut models {
            model.measure("pairs", PAIRS as u64)?;
        }
        for block in 0..BLOCKS {
            // Each is first as often as the others.
            for n in 0..models.len() {
                let which = (n + block) % models.len();
                costs[which].extend(models[which].measure("pairs", PAIRS as u64)?);
            }
        }
        added.extend(models[2].measure("added", SHORT_BLOCKS)?);
    }
    let [plain, region, agent] = &costs;
    let more = |of: &[f64]| of.iter().zip(plain).map(|(with, without)| with - without).collect::<Vec<_>>();
    let spread = |of: &[f64]| {
        let mut sorted = of.to_vec();
        sorted.sort_by(f64::total_cmp);
        (sorted[sorted.len() / 4], sorted[sorted.len() * 3 / 4])
    };
    let chips = board.chips();
    let (low, high) = spread(&added);
    let (wide_low, wide_high) = spread(&more(agent));
    println!(
        "{chips} chips, {STARTS} x {BLOCKS} blocks of {PAIRS} pairs in turns: untracked {:.0} ns, region {:.0} ns, agent {:.0} ns a pair, \
         {:.0} more than untracked (middle half of the blocks: {wide_low:.0} to {wide_high:.0})\n  \
         {STARTS} x {SHORT_BLOCKS} short blocks in one process: the agent at work takes {:.0} ns more than calling through \
         (middle half: {low:.0} to {high:.0})",
        median(plain.clone()),
        median(region.clone()),
        median(agent.clone()),
        median(more(agent)),
        median(added.clone()),
    );
    let what = |it: &str| format!("ttnn.empty + deallocate on {chips} chips: {it}");
    Ok([
        Figure::plain(&what("untracked"), "same run", median(plain.clone()), "ns"),
        Figure::plain(&what("tt-metal's region adds"), "+1.3 us (1), +4 us (8)", median(more(region)), "ns"),
        Figure::at_most(&what("the agent adds"), "same process", 300.0, median(added), "ns"),
        Figure::plain(&what("between processes"), "same run", median(more(agent)), "ns"),
    ])
}

/// What call sites add to an allocation and its free: the line, and stacks of 32 frames, also native ones; and what the first sight costs.
fn sites(lab: &Lab, agent: &Path, board: Board) -> anyhow::Result<Vec<Figure>> {
    const FIRST: u64 = 400;
    let (mut lines, mut stacks, mut first) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
    let mut native = [const { Vec::new() }; 4];
    for _ in 0..STARTS {
        let folder = memory_folder();
        let mut model = Model::start(tracked(agent, folder.path(), &script(lab, board, false)?))?;
        model.measure("pairs", PAIRS as u64)?;
        lines.extend(model.measure("sites", 4)?.first());
        stacks.extend(model.measure("sites", 40)?.get(1));
        for (all, calls) in native.chunks_mut(2).zip([4, 40]) {
            for (all, one) in all.iter_mut().zip(model.measure("native", calls)?) {
                all.push(one);
            }
        }
        for (all, one) in first.iter_mut().zip(model.measure("first", FIRST)?) {
            all.push(one);
        }
    }
    let chips = board.chips();
    let figure = |what: &str, budget: f64, values: &[f64]| {
        let what = format!("call site of an allocation on {chips} chips: {what}");
        Figure::at_most(&what, "same process", budget, median(values.to_vec()), "ns")
    };
    Ok(vec![
        figure("the line adds", 250.0, &lines),
        figure("32 frames add", 500.0, &stacks),
        figure("a native stack adds to the line", 1000.0, &native[0]),
        figure("a native stack adds, at several places in turns", 1000.0, &native[1]),
        figure("a native stack under 40 calls adds", 1000.0, &native[2]),
        figure("a native stack under 40 calls adds, at several places in turns", 1500.0, &native[3]),
        figure("a new line adds", 10_000.0, &first[0]),
        figure("a new stack adds", 10_000.0, &first[1]),
        figure("a new native stack adds", 40_000.0, &first[2]),
    ])
}

/// The agent's cost of a dispatch: of one program that is cached alone or among many, and of many in turn, which also cost more
/// without the agent since they no longer fit the processor's caches.
fn dispatches(lab: &Lab, agent: &Path, board: Board) -> anyhow::Result<[Figure; 4]> {
    let mut added = [const { Vec::new() }; 3];
    let mut plain = [const { Vec::new() }; 3];
    for _ in 0..STARTS {
        let folder = memory_folder();
        let mut model = Model::start(tracked(agent, folder.path(), &script(lab, board, false)?))?;
        for (n, (what, count)) in
            [("dispatches", 1), ("dispatches", PROGRAMS), ("turns", PROGRAMS)].into_iter().enumerate()
        {
            let numbers = model.measure(what, count)?;
            let [entries, without, more @ ..] = &numbers[..] else { anyhow::bail!("too few numbers") };
            ensure!(*entries >= count as f64, "only {entries} programs are cached");
            plain[n].push(*without);
            // Other load makes single blocks several times as slow, on either side.
            added[n].push(median(more.to_vec()));
        }
    }
    let chips = board.chips();
    // The placement in memory differs between starts only, so the mean of all starts counts.
    let [alone, among, turns] = added.map(|of| of.iter().sum::<f64>() / of.len() as f64);
    let [plain, _, plain_turns] = plain.map(median);
    println!(
        "{chips} chips, {STARTS} starts: a dispatch takes {plain:.0} ns untracked; the agent adds {alone:.0} ns with 1 program cached, \
         {among:.0} with {PROGRAMS}; with all of these in turn {turns:.0} to {plain_turns:.0}"
    );
    let what = |it: &str| format!("dispatch on {chips} chips: {it}");
    Ok([
        Figure::plain(&what("untracked"), "same run", plain, "ns"),
        Figure::at_most(&what("the agent adds"), "same process", 300.0, alone, "ns"),
        Figure::at_most(
            &what(&format!("with {PROGRAMS} programs cached to 1")),
            "same process",
            1.1,
            among / alone,
            "x",
        ),
        Figure::plain(&what(&format!("with {PROGRAMS} in turn")), "same process", turns, "ns"),
    ])
}

/// The agent's share of the processor time of a run with many programs, by its own count.
fn programs(lab: &Lab, agent: &Path) -> anyhow::Result<Figure> {
    let folder = memory_folder();
    let mut model = Model::start(tracked(agent, folder.path(), &script(lab, Board::N150, false)?))?;
    let numbers = model.measure("programs", PROGRAMS)?;
    let [entries, used_ns] = numbers[..] else { anyhow::bail!("two numbers, not {numbers:?}") };
    ensure!(entries >= PROGRAMS as f64, "only {entries} programs were created");
    let spent = spent_ns(folder.path())?;
    println!(
        "{entries} cached programs, run three times: {:.2} s of processor time, {:.2} ms of it the agent's",
        used_ns / 1e9,
        spent / 1e6
    );
    let what = format!("agent in a run of {PROGRAMS} programs: of its processor time");
    Ok(Figure::at_most(&what, "same run", 2.0, spent / used_ns * 100.0, "%"))
}

/// The agent's own count of its processor time, after its last update.
fn spent_ns(folder: &Path) -> anyhow::Result<f64> {
    std::thread::sleep(std::time::Duration::from_secs(1));
    let mut ttmem = Command::new(target().join("release/ttmem"));
    let output = ttmem.args(["--json", "--local", "--shm-dir"]).arg(folder).output()?;
    let snapshot: ttmem_core::Snapshot = serde_json::from_slice(&output.stdout)?;
    let tracker = snapshot.processes.first().and_then(|it| it.tracker.clone()).context("it is tracked")?;
    Ok(tracker.cost_seconds.context("the agent reports its cost")? * 1e9)
}
