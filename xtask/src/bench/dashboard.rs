//! The cost of a frame of the dashboard: 32 chips, 64 processes that allocate and free, a large terminal.

use super::calibration::Calibration;
use super::{Figure, start};
use crate::bench::this_program;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ttmem_client::{Arch, Banks, Buffer, Chip, CoreRange, Options, Placement, Space, Tracker};
use ttmem_testkit::memory_folder;
use ttmem_testkit::terminal::{Terminal, cpu_time_of};

const CHIPS: u32 = 32;
const PROCESSES: u32 = 64;
const BUFFERS: u64 = 100_000;
const PROGRAMS: u32 = 24;
/// One of so many processes allocates and frees all the time.
const BUSY: u32 = 8;
const SIZE: (u16, u16) = (200, 60);
const WARM_UP_FRAMES: usize = 15;
const FRAMES: usize = 60;
/// Processor time of a frame, in reads of a small file.
const BUDGET: f64 = 1100.0;
const VIEWS: [&str; 9] =
    ["Main", "Charts", "Telemetry", "L1 map", "Buffers", "Programs", "Events", "Flame", "Addresses"];

/// A process that is killed at the end of the benchmark.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts all processes, each on `chips_each` chips, and waits until they have published their memory.
fn load(folder: &Path, chips_each: u32) -> anyhow::Result<Vec<Owned>> {
    let program = this_program()?;
    let mut all = Vec::new();
    for n in 0..PROCESSES {
        let child = Command::new(&program)
            .args(["bench-client", "publish"])
            .arg(folder)
            .args([n.to_string(), chips_each.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        all.push(Owned(child.context("cannot start a process")?));
    }
    for process in &mut all {
        let mut line = String::new();
        BufReader::new(process.0.stdout.as_mut().context("no output")?).read_line(&mut line)?;
        ensure!(line.contains("ready"), "a process did not start");
    }
    Ok(all)
}

/// The code of such a process.
pub(crate) fn publish(folder: &str, n: u32, chips_each: u32) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let failed = |e| anyhow::anyhow!("cannot publish: {e:?}");
    let tracker = Tracker::new(&Options::default().folder(folder).runtime("simulated"));
    let chip = |k: u32| {
        let index = (n * chips_each + k) % CHIPS;
        let chip = Chip::default()
            .unique_id(0x51_0000_0000 + u64::from(index))
            .index(index)
            .arch(Arch::WormholeB0)
            .board("galaxy-wormhole")
            .dram_bytes(12 << 30)
            .dram_channels(6)
            .dram_bytes_per_channel(2 << 30)
            .cores(80)
            .l1_bytes_per_core(1_499_136)
            .kernel_config(35_008)
            .unreserved(105_664)
            .grid((8, 9));
        tracker.define_chip(&chip)
    };
    let chips = (0..chips_each).map(chip).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let banks = [
        Banks::new(Space::Dram, 12, 1_048_640, (1 << 30) - 1_048_640),
        Banks::new(Space::L1, 72, 105_664, 1_466_368 - 105_664),
        Banks::new(Space::L1Small, 72, 1_466_368, 32_768),
    ];
    let allocator = tracker.define_allocator(&chips, &banks).map_err(failed)?;
    let site = tracker.define_site("model.py:123 forward").map_err(failed)?;
    let buffers = BUFFERS / u64::from(PROCESSES);
    let buffer = |i: u64| {
        // Some buffers of some processes are in L1; more would not fit.
        let (space, address, bytes) = if i.is_multiple_of(50) && n < 8 {
            (Space::L1, 0xa_0000 + i / 50 * 0x1000 + u64::from(n) * 0x100, 2048)
        } else {
            (Space::Dram, (2 << 20) + (i + u64::from(n) * buffers) * 8192, 8192)
        };
        let buffer = Buffer::new(allocator, space, address, bytes * 12);
        buffer.bytes_per_bank(bytes).occupied(bytes * 12).site(site)
    };
    for i in 0..buffers {
        tracker.alloc(&buffer(i)).map_err(failed)?;
    }
    let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 6))]).map_err(failed)?;
    for program in 1..=PROGRAMS {
        tracker.begin_program(allocator, program, "matmul").map_err(failed)?;
        let mut address = 0x1_9d60;
        for bytes in [32_768, 16_384, 65_536] {
            let placed = Placement::new(allocator, program, Space::Cb, address, bytes);
            tracker.place(&placed.cores(cores)).map_err(failed)?;
            address += bytes;
        }
    }
    tracker.dispatch(allocator, 1 + n % PROGRAMS).map_err(failed)?;
    println!("ready");
    let mut round = 0;
    loop {
        let busy = n.is_multiple_of(BUSY);
        std::thread::sleep(Duration::from_millis(if busy { 10 } else { 500 }));
        if busy {
            for k in 0..4 {
                let mut buffer = buffer((round * 4 + k) % buffers);
                tracker.free(allocator, buffer.space, buffer.address).map_err(failed)?;
                // The new buffer's size differs a little.
                buffer.requested -= (round % 7) * 64;
                tracker.alloc(&buffer).map_err(failed)?;
            }
            if round % 10 == 0 {
                let program = 1 + (n + (round / 10) as u32) % PROGRAMS;
                tracker.dispatch(allocator, program).map_err(failed)?;
            }
            round += 1;
        }
        tracker.refresh();
    }
}

pub(super) fn figures(exe: &Path) -> anyhow::Result<Vec<Figure>> {
    let read = Calibration::file_read()?;
    let mut figures = Vec::new();
    for chips_each in [2, CHIPS] {
        let folder = memory_folder();
        let segments = folder.path().display().to_string();
        let _load = load(folder.path(), chips_each)?;
        let server = start(exe, &["--sim", "galaxy-wh", "--quiet", "--shm-dir", &segments]);
        let begin = Instant::now();
        while server.snapshot().processes.len() < PROCESSES as usize {
            ensure!(begin.elapsed() < Duration::from_secs(60), "not all processes are seen");
            std::thread::sleep(Duration::from_millis(100));
        }
        for local in [false, true] {
            let mut command = Command::new(exe);
            command.args(["top", "-r", "100"]).env("TTMEM_QUERY_SOCKET", &server.query);
            if local {
                command.args(["--local", "--shm-dir", &segments]);
            }
            let terminal = Terminal::start(&command, SIZE);
            terminal.wait_for_text("Processes");
            let how = if local { "--local" } else { "asking a daemon" };
            let mut most = (0.0, "");
            for (n, view) in VIEWS.into_iter().enumerate() {
                terminal.send(&(n + 1).to_string());
                terminal.wait_for_frames(WARM_UP_FRAMES);
                let (frames, bytes) = terminal.drawn();
                let (cpu, served) = (terminal.cpu_time(), cpu_time_of(server.pid()));
                terminal.wait_for_frames(FRAMES);
                let cpu = terminal.cpu_time().saturating_sub(cpu);
                let served = cpu_time_of(server.pid()).saturating_sub(served);
                let (more_frames, more_bytes) = terminal.drawn();
                let per_frame = |total: f64| total / (more_frames - frames) as f64;
                let what = format!("frame of {view}, {chips_each} chips each, {how}");
                let spent = per_frame(cpu.as_secs_f64() * 1e3);
                figures.push(read.allows(BUDGET, &what, spent, "ms CPU"));
                if !local {
                    let served = per_frame(served.as_secs_f64() * 1e3);
                    figures.push(Figure::plain("    the daemon's share of it", "same run", served, "ms CPU"));
                }
                let bytes = per_frame((more_bytes - bytes) as f64) / 1024.0;
                if bytes > most.0 {
                    most = (bytes, view);
                }
            }
            let what = format!("most written a frame ({}), {how}", most.1);
            figures.push(Figure::plain(&what, "same run", most.0, "KiB"));
        }
    }
    Ok(figures)
}
