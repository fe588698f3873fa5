//! `cargo xtask bench`: one table of figures against their budgets.
//!
//! Wall-clock time on shared cores is unreliable, so every figure is processor time, memory, or a ratio of two runs that
//! alternate. A budget of processor time is a multiple of simple work measured in the same run: see `calibration`.

mod agent;
mod c;
mod calibration;
pub(crate) mod dashboard;
mod frames;
pub(crate) mod load;
mod machine;
mod model;
mod pure;
mod python;
pub(crate) mod run;
pub(crate) mod segment;
mod threads;
mod workload;

use crate::{build_release, cargo, succeed, target};
use anyhow::Context;
use calibration::Calibration;
use load::{Holder, Sent, cpu_of_children, send_from};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use ttmem_testkit::{Client, Server};
use ttmem_wire::legacy::Vintage;

/// Groups of figures that can be measured alone.
pub(crate) const GROUPS: [&str; 12] = [
    "agent", "model", "c", "segment", "threads", "run", "ingest", "core", "machine", "daemon", "frame",
    "python",
];

/// A line of the table.
pub(crate) struct Figure {
    what: String,
    anchor: String,
    budget: String,
    measured: f64,
    unit: &'static str,
    ok: Option<bool>,
}

impl Figure {
    /// A figure whose budget is an upper limit.
    fn at_most(what: &str, anchor: &str, budget: f64, measured: f64, unit: &'static str) -> Self {
        let ok = Some(measured <= budget);
        Self {
            what: what.to_owned(),
            anchor: anchor.to_owned(),
            budget: format!("<= {budget} {unit}"),
            measured,
            unit,
            ok,
        }
    }

    /// A figure whose budget is a lower limit.
    fn at_least(what: &str, anchor: &str, budget: f64, measured: f64, unit: &'static str) -> Self {
        let ok = Some(measured >= budget);
        Self {
            what: what.to_owned(),
            anchor: anchor.to_owned(),
            budget: format!(">= {budget} {unit}"),
            measured,
            unit,
            ok,
        }
    }

    /// A figure without a budget.
    fn plain(what: &str, anchor: &str, measured: f64, unit: &'static str) -> Self {
        Self {
            what: what.to_owned(),
            anchor: anchor.to_owned(),
            budget: "-".to_owned(),
            measured,
            unit,
            ok: None,
        }
    }
}

pub(crate) fn run(json: bool, only: Option<&str>) -> anyhow::Result<()> {
    build_release()?;
    // This program measures, too, so it must not be a debug build itself.
    if cfg!(debug_assertions) {
        let mut again =
            cargo(&["run", "--release", "--locked", "--quiet", "--package", "xtask", "--", "bench"]);
        return succeed(again.args(only).args(json.then_some("--json")));
    }
    let exe = target().join("release/ttmem");
    let wanted = |group: &str| only.is_none_or(|only| only == group);
    let mut figures = Vec::new();
    if wanted("segment") {
        figures.extend(segment::figures()?);
    }
    if wanted("threads") {
        figures.extend(threads::figures()?);
    }
    if wanted("run") {
        figures.extend(run::figures(&exe)?);
    }
    if wanted("ingest") {
        figures.push(segment::ingest()?);
    }
    if wanted("c") {
        figures.extend(c::figures()?);
    }
    if wanted("agent") {
        figures.extend(agent::figures()?);
    }
    if wanted("model") {
        figures.extend(workload::figures()?);
    }
    if wanted("core") {
        figures.extend(pure::figures());
        figures.extend(frames::figures());
    }
    if wanted("machine") {
        figures.extend(machine::figures(&exe)?);
    }
    if wanted("daemon") {
        figures.extend(ingest(&exe)?);
        figures.extend(memory(&exe)?);
        figures.extend(snapshot(&exe)?);
        figures.extend(idle(&exe)?);
    }
    if wanted("python") {
        figures.extend(python::figures()?);
    }
    if wanted("frame") {
        figures.extend(dashboard::figures(&exe)?);
    }
    if json {
        let rows: Vec<_> = figures
            .iter()
            .map(|f| {
                serde_json::json!({
                    "what": f.what, "anchor": f.anchor, "budget": f.budget,
                    "measured": f.measured, "unit": f.unit, "ok": f.ok,
                })
            })
            .collect();
        println!("{}", serde_json::Value::Array(rows));
    } else {
        print(&figures);
    }
    let missed = figures.iter().filter(|figure| figure.ok == Some(false)).count();
    anyhow::ensure!(missed == 0, "{missed} figures miss their budget");
    Ok(())
}

fn print(figures: &[Figure]) {
    let row = |what: &str, anchor: &str, budget: &str, measured: &str, verdict: &str| {
        println!("{what:<52} {anchor:<34} {budget:<14} {measured:>14}  {verdict}");
    };
    row("what", "anchor", "budget", "measured", "verdict");
    for f in figures {
        let verdict = match f.ok {
            Some(true) => "ok",
            Some(false) => "MISSED",
            None => "",
        };
        let digits = if f.measured.abs() < 10.0 { 2 } else { 0 };
        row(&f.what, &f.anchor, &f.budget, &format!("{:.digits$} {}", f.measured, f.unit), verdict);
    }
}

fn start(exe: &Path, args: &[&str]) -> Server {
    Server::start(exe, args)
}

/// Old clients, one message a send, with the real server and with one that reads and discards, in turns.
fn ingest(exe: &Path) -> anyhow::Result<Vec<Figure>> {
    const ROUNDS: usize = 7;
    let mut figures = Vec::new();
    for (clients, messages) in [(1, 600_000), (32, 20_000)] {
        let total = (clients * messages) as f64;
        let (mut ratios, mut costs, mut logging) = (vec![], vec![], vec![]);
        let mut discard_costs = vec![];
        for _ in 0..ROUNDS {
            let discard = load::Discard::start()?;
            let thrown = send_from(&discard.path, clients, messages)?;
            discard_costs.push(discard.cpu()?.as_nanos() as f64 / total);
            drop(discard);
            let quiet = served(exe, &["--sim", "galaxy-wh", "--quiet"], clients, messages)?;
            ratios.push(thrown.time.as_secs_f64() / quiet.0.time.as_secs_f64() * 100.0);
            costs.push(quiet.1.as_nanos() as f64 / total);
            let logged = served(exe, &["--sim", "galaxy-wh"], clients, messages)?;
            logging.push(logged.1.as_nanos() as f64 / total);
        }
        let many = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        let discarding = Calibration::measured("discarding server's", median(discard_costs));
        let old = "old server 6-95 k messages/s";
        figures.extend([
            Figure::at_least(
                &format!("legacy socket, {many}: of a discarding server"),
                old,
                70.0,
                median(ratios),
                "%",
            ),
            discarding.allows(
                2.0,
                &format!("legacy socket, {many}: server CPU a message"),
                median(costs),
                "ns",
            ),
            discarding.allows(
                2.5,
                &format!("legacy socket, {many}: the same with its log"),
                median(logging),
                "ns",
            ),
        ]);
    }
    Ok(figures)
}

fn served(exe: &Path, args: &[&str], clients: usize, messages: usize) -> anyhow::Result<(Sent, Duration)> {
    let server = start(exe, args);
    let before = server.cpu_time();
    let sent = send_from(&server.legacy, clients, messages)?;
    Ok((sent, server.cpu_time().saturating_sub(before)))
}

/// The daemon's memory for a live buffer.
fn memory(exe: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut worst: f64 = 0.0;
    let mut figures = Vec::new();
    for count in [600_000, 1_000_000, 1_700_000u64] {
        let server = start(exe, &["--sim", "n300", "--quiet"]);
        let mut client = Client::connect(&server, Vintage::V144);
        client.sync();
        let before = server.resident_bytes();
        let buffers = load::many_buffers(count);
        let mut stream = &client.stream;
        for chunk in buffers.chunks(144 * 1000) {
            std::io::Write::write_all(&mut stream, chunk).context("cannot send")?;
        }
        client.sync();
        let each = (server.resident_bytes() - before) as f64 / count as f64;
        worst = worst.max(each);
        let what = format!("memory a live buffer, {:.1} M of them", count as f64 / 1e6);
        figures.push(Figure::plain(&what, "seed: about 100 B", each, "B"));
    }
    figures.push(Figure::at_most(
        "memory a live buffer, worst of these",
        "seed: about 100 B",
        96.0,
        worst,
        "B",
    ));
    Ok(figures)
}

/// Snapshots of a large machine: 32 chips, 64 processes, 100,000 buffers.
fn snapshot(exe: &Path) -> anyhow::Result<Vec<Figure>> {
    const ROUNDS: u32 = 21;
    let server = start(exe, &["--sim", "galaxy-wh", "--quiet"]);
    let holders: Vec<Holder> =
        (0..64).map(|_| Holder::start(&server.legacy, 32, 100_000 / 64)).collect::<anyhow::Result<_>>()?;
    let shown = server.snapshot();
    anyhow::ensure!(shown.processes.len() == 64 && shown.devices.len() == 32, "the machine is not set up");
    let live = shown.health.live_records;
    let (mut json, mut daemon, mut table) = (vec![], vec![], vec![]);
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        for (args, costs) in [(&["--json"][..], &mut json), (&[], &mut table)] {
            let (before, served) = (cpu_of_children(), server.cpu_time());
            let output = Command::new(exe)
                .args(args)
                .env("TTMEM_QUERY_SOCKET", &server.query)
                .stdin(Stdio::null())
                .output()
                .context("cannot run ttmem")?;
            anyhow::ensure!(output.status.success(), "ttmem failed");
            costs.push(cpu_of_children().saturating_sub(before).as_secs_f64() * 1e3);
            if args.is_empty() {
                continue;
            }
            bytes = output.stdout.len();
            daemon.push(server.cpu_time().saturating_sub(served).as_secs_f64() * 1e3);
        }
    }
    drop(holders);
    let read = Calibration::file_read()?;
    let size = format!("64 processes on all of 32 chips, {live} buffers");
    Ok(vec![
        read.allows(3500.0, &format!("ttmem --json, {size}"), median(json), "ms"),
        read.allows(8000.0, "ttmem (table), the same", median(table), "ms"),
        Figure::plain("the daemon's share of ttmem --json", "-", median(daemon), "ms"),
        Figure::plain("size of that JSON", "-", bytes as f64 / 1e6, "MB"),
    ])
}

/// A daemon without load.
fn idle(exe: &Path) -> anyhow::Result<[Figure; 2]> {
    let server = start(exe, &["--sim", "galaxy-wh", "--quiet"]);
    let client = Client::connect(&server, Vintage::V144);
    std::thread::sleep(Duration::from_secs(1));
    let before = server.cpu_time();
    std::thread::sleep(Duration::from_secs(20));
    let share = server.cpu_time().saturating_sub(before).as_secs_f64() / 20.0 * 100.0;
    drop(client);
    let anchor = "all-smi 0.07 %, 10 MB";
    Ok([
        Calibration::file_read()?.allows(300.0, "idle daemon, 32 chips: share of a core", share, "%"),
        Figure::at_most(
            "idle daemon, 32 chips: memory",
            anchor,
            16.0,
            server.resident_bytes() as f64 / 1e6,
            "MB",
        ),
    ])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program")
}
