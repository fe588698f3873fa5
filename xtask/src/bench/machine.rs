//! Reading a machine without a daemon: a Galaxy of 32 chips, 64 processes, and tt-metal's counters of all.

use super::calibration::Calibration;
use super::load::cpu_of_children;
use super::{Figure, median};
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use ttmem_testkit::Server;
use ttmem_testkit::machine::{BOOT, Machine, galaxy};
use ttmem_wire::region::{self, Levels, ProcessSlot, Region};

const PROCESSES: u32 = 64;

/// A simulated machine with counters in which every process is on its chips.
fn machine() -> anyhow::Result<Machine> {
    let mut machine = galaxy("2.10.0");
    machine.add_processes(PROCESSES);
    for node in machine.nodes() {
        let id = std::fs::read_to_string(machine.attribute(node, "tt_asic_id"))?;
        let id = u64::from_str_radix(id.trim(), 16)?;
        let users = std::fs::read_to_string(machine.pids(node))?;
        let mut pids: Vec<u32> = users.lines().filter_map(|line| line.parse().ok()).collect();
        pids.dedup();
        let held = Levels { dram: 1 << 20, l1: 4096, ..Levels::default() };
        let name =
            |pid: u32| Some(std::fs::read_to_string(machine.proc(pid, "comm")).ok()?.trim().to_owned());
        let slots = pids.iter().enumerate().map(|(slot, &pid)| ProcessSlot {
            slot,
            pid,
            held,
            updated_ns: (BOOT + 1_000_000) * 1_000_000_000,
            name: name(pid).unwrap_or_default(),
        });
        let n = pids.len() as u64;
        let region = Region {
            asic_id: id,
            device_id: node,
            totals: Levels { dram: n << 20, l1: 4096 * n, ..Levels::default() },
            processes: slots.collect(),
            ..Region::new(region::Layout::V3)
        };
        let path = machine.root().join(format!("dev/shm/tt_device_{id}_memory"));
        std::fs::write(path, region::build(region.layout, &region))?;
    }
    Ok(machine)
}

pub(super) fn figures(exe: &Path) -> anyhow::Result<Vec<Figure>> {
    let machine = machine()?;
    let run = |args: &[&str]| {
        let mut command = Command::new(exe);
        command.arg("--root").arg(machine.root()).args(args);
        command
    };
    let once = |args: &[&str]| -> anyhow::Result<f64> {
        let mut costs = Vec::new();
        for _ in 0..41 {
            let before = cpu_of_children();
            let output = run(args).output().context("cannot run ttmem")?;
            costs.push(cpu_of_children().saturating_sub(before).as_secs_f64() * 1e3);
            let page = String::from_utf8_lossy(&output.stdout);
            ensure!(page.matches("counters").count() >= PROCESSES as usize, "not all were shown: {page}");
        }
        Ok(median(costs))
    };
    let (table, json) = (once(&[])?, once(&["--json"])?);
    // The first refreshes open files; the cost of every further one counts.
    let watched = |frames: usize| -> anyhow::Result<f64> {
        let before = cpu_of_children();
        let mut child = run(&["-w", "-r", "50"]).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let titles =
            lines.map_while(Result::ok).filter(|line| line.starts_with("ttmem ")).take(frames).count();
        child.kill()?;
        child.wait()?;
        ensure!(titles == frames, "it stopped after {titles} tables");
        Ok(cpu_of_children().saturating_sub(before).as_secs_f64() * 1e3)
    };
    let (short, long) = (20, 120);
    let mut costs = Vec::new();
    for _ in 0..7 {
        costs.push((watched(long)? - watched(short)?) / (long - short) as f64);
    }
    let again = median(costs);
    let shm = machine.root().join("dev/shm");
    let path = |path: &Path| path.display().to_string();
    let server = Server::start(exe, &["--quiet", "--root", &path(machine.root()), "--shm-dir", &path(&shm)]);
    std::thread::sleep(std::time::Duration::from_secs(12));
    let before = server.cpu_time();
    let begin = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_secs(10));
    let idle = server.cpu_time().saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
    let read = Calibration::file_read()?;
    Ok(vec![
        read.allows(3500.0, "ttmem, start to exit, 32 chips, 64 processes", table, "ms CPU"),
        read.allows(4500.0, "the same, --json with all sensors", json, "ms CPU"),
        read.allows(1000.0, "ttmem -w, a refresh, 32 chips, 64 processes", again, "ms CPU"),
        read.allows(400.0, "daemon without requests, 32 chips, 64 processes", idle, "%"),
    ])
}
