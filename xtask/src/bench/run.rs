//! What a failed allocation and the parent of `ttmem run` cost.

use super::pure::cpu;
use super::segment::tracker;
use super::{Figure, median, this_program};
use crate::lab;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use ttmem_client::{Banks, Buffer, Chip, Options, Space, Tracker};

/// Buffers while an allocation fails.
const LIVE: u64 = 100_000;
/// Time for which a run is followed.
const SECONDS: u64 = 10;

pub(super) fn figures(exe: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = vec![Figure::at_most(
        "a failed allocation with 100,000 live, its copy included",
        "same run",
        5.0,
        failure()?,
        "ms CPU",
    )];
    for (per_second, budget) in [(0, Some(0.5)), (1000, Some(0.5)), (10_000, Some(0.5)), (100_000, None)] {
        let what = format!("parent of ttmem run, {per_second} events a second");
        let share = parent(exe, per_second)?;
        figures.push(match budget {
            Some(budget) => Figure::at_most(&what, "of a core", budget, share, "%"),
            None => Figure::plain(&what, "of a core", share, "%"),
        });
    }
    Ok(figures)
}

/// Median processor time of a process's first failure, in milliseconds.
fn failure() -> anyhow::Result<f64> {
    let mut costs = Vec::new();
    for _ in 0..11 {
        let (folder, tracker, allocator) = tracker(1)?;
        let buffer = |n: u64| Buffer::new(allocator, Space::Dram, n * 2048, 2048).bytes_per_bank(2048);
        for n in 0..LIVE {
            tracker.alloc(&buffer(n))?;
        }
        let mut result = Ok(0);
        let cost = cpu(|| result = tracker.report_out_of_memory(&buffer(LIVE), Some(0)));
        result?;
        let copies = std::fs::read_dir(folder.path())?.count() - 1;
        ensure!(copies == 1, "{copies} copies were made");
        costs.push(cost.as_secs_f64() * 1e3);
    }
    Ok(median(costs))
}

/// Processor time of `ttmem run` itself while its program allocates and frees at a rate, in percent of a core.
fn parent(exe: &Path, per_second: u64) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let mut run = Command::new(exe)
        .args(["run", "--report"])
        .arg(folder.path().join("report.json"))
        .arg("--shm-dir")
        .arg(folder.path())
        .arg("--")
        .arg(this_program()?)
        .args(["bench-pace", &per_second.to_string()])
        .env("TTMEM_AGENT", lab::build_probe_agent()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = BufReader::new(run.stdout.take().context("no output")?).lines();
    let begin = lines.next().context("the program did not start")??;
    let before = (cpu_of(run.id())?, Instant::now());
    let end = lines.next().context("the program ended early")??;
    let after = (cpu_of(run.id())?, Instant::now());
    ensure!((begin.as_str(), end.as_str()) == ("begin", "end"), "it printed {begin} and {end}");
    writeln!(run.stdin.take().context("no input")?)?;
    ensure!(run.wait()?.success(), "the run failed");
    let (used, passed) = (after.0.saturating_sub(before.0), after.1.duration_since(before.1));
    Ok(used.as_secs_f64() / passed.as_secs_f64() * 100.0)
}

/// Processor time of a process so far.
fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split(' ').next().context("no time")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum))
}

/// A program that allocates and frees at a rate for some seconds, then waits for a line of input.
pub(crate) fn pace(per_second: &str) -> anyhow::Result<()> {
    let per_second: u64 = per_second.parse()?;
    let tracker = Tracker::new(&Options::from_env());
    let chip = tracker.define_chip(&Chip::default().unique_id(1))?;
    let allocator = tracker.define_allocator(&[chip], &[Banks::new(Space::Dram, 12, 0, 1 << 40)])?;
    ensure!(tracker.status().segment.is_some(), "{:?}", tracker.status());
    let buffer = Buffer::new(allocator, Space::Dram, 2048, 2048).bytes_per_bank(2048);
    println!("begin");
    let (begin, mut done) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(SECONDS) {
        let due = (begin.elapsed().as_secs_f64() * per_second as f64 / 2.0) as u64;
        while done < due {
            tracker.alloc(&buffer)?;
            tracker.free(allocator, Space::Dram, 2048)?;
            done += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("end");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
