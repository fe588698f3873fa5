//! The cost of an event in the workload, compared with the old socket and with tt-metal's own counters; and the throughput of
//! a reader.

use super::calibration::Calibration;
use super::model::Model;
use super::{Figure, load, median};
use crate::lab::{self, TTNN};
use crate::{root, succeed};
use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ttmem_client::{AllocatorNumber, Banks, Buffer, Chip, Options, Space, Tracker};
use ttmem_core::input::Input;
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_sources::{EventSink, ProcessIdentity, SourceConfig, Sources};
use ttmem_wire::legacy::{MAX_SIZE, Message, Type, Vintage};

const EVENTS: usize = 10_000_000;

pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let region = region_costs()?;
    let mut figures = client(region[0])?;
    figures.extend(old_client()?);
    for (chips, cost) in ["1 chip", "32 chips"].into_iter().zip(region) {
        figures.push(Figure::plain(&format!("tt-metal's region: an event, {chips}"), "same run", cost, "ns"));
    }
    Ok(figures)
}

/// Processor time of this thread, in nanoseconds.
fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// A new tracker, and an allocator over `chips` chips.
pub(super) fn tracker(chips: u64) -> anyhow::Result<(tempfile::TempDir, Tracker, AllocatorNumber)> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let path = folder.path().to_str().context("a strange folder")?.to_owned();
    let tracker = Tracker::new(&Options::default().folder(path));
    let chip = |n| Chip::default().unique_id(n + 1).index(n as u32);
    let chips: Vec<_> = (0..chips).map(|n| tracker.define_chip(&chip(n))).collect::<Result<_, _>>()?;
    let allocator = tracker.define_allocator(&chips, &[Banks::new(Space::Dram, 12, 0, 1 << 40)])?;
    Ok((folder, tracker, allocator))
}

/// Pseudo-random numbers below `end`.
fn shuffled(end: usize, count: usize) -> Vec<u32> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % end as u64) as u32
    };
    (0..count).map(|_| next()).collect()
}

/// Median over rounds of the cost of one event with `live` buffers, in an order that caches cannot predict. Every freed buffer
/// is replaced by one at an address that was never used.
pub(super) fn event_cost(live: usize, chips: u64, events: usize) -> anyhow::Result<f64> {
    const ROUNDS: usize = 20;
    let (_folder, tracker, allocator) = tracker(chips)?;
    let buffer =
        |n: u64| Buffer::new(allocator, Space::Dram, n * 2048, 2048).bytes_per_bank(2048).occupied(2048);
    let mut held: Vec<u64> = (0..live as u64).collect();
    for &n in &held {
        tracker.alloc(&buffer(n))?;
    }
    let order = shuffled(live, events / ROUNDS / 2);
    let mut next = live as u64;
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let begin = cpu();
        for &index in &order {
            let slot = &mut held[index as usize];
            tracker.free(allocator, Space::Dram, *slot * 2048)?;
            *slot = next;
            next += 1;
            tracker.alloc(&buffer(*slot))?;
        }
        costs.push((cpu() - begin) / (order.len() * 2) as f64);
    }
    let status = tracker.status();
    ensure!(status.live == live as u64 && status.unlisted == 0 && status.segment.is_some(), "{status:?}");
    tracker.close();
    Ok(median(costs))
}

/// Median cost of a write to a random cache line of 64 MiB, each of which must end before the next one begins, as an event's lock
/// waits for the stores of the event before.
fn random_line_cost() -> f64 {
    const LINES: usize = (64 << 20) / 64;
    let mut lines = vec![[0u64; 8]; LINES];
    // One cycle through all lines, so that each one says which is next.
    let mut order: Vec<u32> = (0..LINES as u32).collect();
    for (n, other) in shuffled(LINES, LINES).into_iter().enumerate() {
        order.swap(n, other as usize);
    }
    for (n, &line) in order.iter().enumerate() {
        lines[line as usize][0] = u64::from(order[(n + 1) % LINES]);
    }
    let (mut costs, mut line) = (Vec::new(), 0);
    for _ in 0..11 {
        let begin = cpu();
        for _ in 0..LINES / 8 {
            let [next, written, ..] = &mut lines[line];
            line = *next as usize;
            *written += 1;
        }
        costs.push((cpu() - begin) / (LINES / 8) as f64);
    }
    std::hint::black_box(&lines);
    median(costs)
}

/// Budgets are ratios to what was measured in the same run: machines of one kind differ by a factor of two.
fn client(region: f64) -> anyhow::Result<Vec<Figure>> {
    let (anchor, line) = ("same run", random_line_cost());
    let few = event_cost(1000, 1, EVENTS)?;
    let few_mesh = event_cost(1000, 32, EVENTS)?;
    let many = event_cost(100_000, 1, EVENTS)?;
    let many_mesh = event_cost(100_000, 32, EVENTS)?;
    let off = Tracker::disabled();
    let begin = cpu();
    for n in 0..EVENTS as u64 {
        off.free(AllocatorNumber::new(1), Space::Dram, std::hint::black_box(n))?;
    }
    let off = (cpu() - begin) / EVENTS as f64;
    Ok(vec![
        Figure::plain("client: an event, 1,000 live, 1 chip", anchor, few, "ns"),
        Figure::plain("client: an event, 1,000 live, 32 chips", anchor, few_mesh, "ns"),
        Figure::plain("client: an event, 100,000 live, 1 chip", anchor, many, "ns"),
        Figure::plain("client: an event, 100,000 live, 32 chips", anchor, many_mesh, "ns"),
        Figure::plain("write to a random line of 64 MiB", anchor, line, "ns"),
        Figure::at_most("client: 1,000 live over tt-metal's region", anchor, 0.6, few / region, "x"),
        Figure::at_most("client: 32 chips over 1, 1,000 live", anchor, 1.1, few_mesh / few, "x"),
        Figure::at_most("client: 100,000 live over a random line", anchor, 1.5, many / line, "x"),
        Figure::at_most("client: 32 chips over 1, 100,000 live", anchor, 1.1, many_mesh / many, "x"),
        Figure::plain("client: an event while tracking is off", "-", off, "ns"),
    ])
}

/// The cost of an event with the old client.
fn old_client() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for chips in [1, 32] {
        let discard = load::Discard::start()?;
        let mut stream = UnixStream::connect(&discard.path)?;
        let events = 400_000 / chips;
        let mut message = Message { size: 2048, ..Message::new(Type::Alloc) };
        let mut buffer = [0; MAX_SIZE];
        let begin = cpu();
        for n in 0..events {
            for chip in 0..chips {
                (message.buffer_id, message.device_id) = (n as u64 * 2048, chip);
                stream.write_all(message.encode(Vintage::V144, &mut buffer))?;
            }
        }
        let cost = (cpu() - begin) / f64::from(events);
        let what = format!("old client: an event, {}", if chips == 1 { "1 chip" } else { "32 chips" });
        figures.push(Figure::plain(&what, "same run", cost, "ns"));
    }
    Ok(figures)
}

/// The cost of an event with tt-metal's own counters, on 1 and on 32 chips.
fn region_costs() -> anyhow::Result<[f64; 2]> {
    let library = region_library()?;
    let program = root().join("target/lab/region_bench");
    let source = root().join("xtask/src/bench/region_bench.cpp");
    succeed(
        Command::new("g++")
            .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-o"])
            .arg(&program)
            .arg(source)
            .arg("-ldl"),
    )?;
    let mut medians = [0.0; 2];
    for (median_cost, (chips, events)) in medians.iter_mut().zip([("1", "5000000"), ("32", "200000")]) {
        let mut costs = Vec::new();
        for _ in 0..3 {
            let output = Command::new(&program).arg(&library).args([chips, events]).output()?;
            ensure!(output.status.success(), "region_bench: {}", String::from_utf8_lossy(&output.stderr));
            let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            costs.push(answer["ns_per_event"].as_f64().context("no figure")?);
        }
        *median_cost = median(costs);
    }
    Ok(medians)
}

/// `libtt_metal.so` of the stock wheel: the lab's if there is one, else downloaded once without its dependencies.
fn region_library() -> anyhow::Result<PathBuf> {
    if let Some(lab) = lab::ready(TTNN) {
        return Ok(lab.library);
    }
    let folder = root().join("target/lab");
    let unpacked = folder.join(format!("ttnn-{TTNN}"));
    let library = unpacked.join("ttnn/build/lib/libtt_metal.so");
    if library.exists() {
        return Ok(library);
    }
    eprintln!("getting the wheel of ttnn {TTNN} (100 MB) into target/lab");
    std::fs::create_dir_all(&folder)?;
    succeed(
        Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
            .args(["--python-version", "3.10", "--platform", "manylinux_2_34_x86_64", "--dest"])
            .arg(&folder)
            .arg(format!("ttnn=={TTNN}")),
    )?;
    let wheel = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let wheel = wheel.filter(|path| path.extension().is_some_and(|it| it == "whl")).last();
    unpack(&wheel.context("pip left no wheel")?, &unpacked)?;
    ensure!(library.exists(), "the wheel has no libtt_metal.so");
    Ok(library)
}

/// Unpacks only the libraries of a wheel, which is a zip file that Python can read.
fn unpack(wheel: &Path, to: &Path) -> anyhow::Result<()> {
    const SCRIPT: &str = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1]) as z:\n\
        \x20   z.extractall(sys.argv[2], [n for n in z.namelist() if n.startswith(('ttnn/build/lib/lib', 'ttnn.libs/'))])";
    succeed(Command::new("python3").args(["-c", SCRIPT]).arg(wheel).arg(to))
}

struct Reader {
    model: Model,
    records: u64,
}

impl EventSink for Reader {
    fn register(&mut self, owner: &ProcessIdentity, _: Basis) -> ProcessId {
        let id = ProcessId { pid: owner.pid, start: 1 };
        self.model.apply(Mono(1), Origin::Process(id, Basis::Exact), Input::Registered(Box::default()));
        id
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, input: Input) {
        self.records += u64::from(matches!(input, Input::Alloc(_) | Input::Free(_)));
        self.model.apply(Mono(1), Origin::Process(process, basis), input);
    }

    fn emit_machine(&mut self, input: Input) {
        self.model.apply(Mono(1), Origin::Machine, input);
    }
}

/// Live buffers while records are read.
const LIVE: u64 = 1000;
/// Records per poll.
const BATCH: u64 = 12_000;

/// A process that writes a batch for each line it reads.
pub(crate) fn write(folder: &str) -> anyhow::Result<()> {
    let tracker = Tracker::new(&Options::default().folder(folder));
    let chip = tracker.define_chip(&Chip::default().unique_id(1))?;
    let allocator = tracker.define_allocator(&[chip], &[Banks::new(Space::Dram, 12, 0, 1 << 40)])?;
    let buffer = |n: u64| Buffer::new(allocator, Space::Dram, n * 2048, 2048).bytes_per_bank(2048);
    for n in 0..LIVE {
        tracker.alloc(&buffer(n))?;
    }
    let mut next = 0;
    println!();
    for _ in std::io::stdin().lines() {
        for _ in 0..BATCH / 2 {
            tracker.free(allocator, Space::Dram, next * 2048)?;
            tracker.alloc(&buffer(next + LIVE))?;
            next += 1;
        }
        println!();
    }
    Ok(())
}

/// The cost of a record from the segment into the ledger.
pub(super) fn ingest() -> anyhow::Result<Figure> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let mut writer = Command::new(super::this_program()?)
        .arg("bench-writer")
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut requests = writer.stdin.take().context("no input")?;
    let mut answers = BufReader::new(writer.stdout.take().context("no output")?);
    let mut line = String::new();
    answers.read_line(&mut line)?;
    let mut reader = Reader { model: Model::new(7), records: 0 };
    let mut sources = Sources::new(SourceConfig::segments(folder.path()));
    sources.rescan(&mut reader);
    sources.poll(Mono(1), &mut reader);
    let mut costs = Vec::new();
    for _ in 0..200 {
        writeln!(requests)?;
        answers.read_line(&mut line)?;
        reader.records = 0;
        let begin = cpu();
        sources.poll(Mono(1), &mut reader);
        let cost = cpu() - begin;
        ensure!(reader.records == BATCH, "{} records were taken in", reader.records);
        costs.push(cost / BATCH as f64);
    }
    ensure!(
        reader.model.state.live_records() as u64 == LIVE,
        "the ledger has {}",
        reader.model.state.live_records()
    );
    drop(requests);
    writer.wait()?;
    Ok(Calibration::record_read()?.allows(
        8.0,
        "segment ingest, file to ledger, a record",
        median(costs),
        "ns",
    ))
}
