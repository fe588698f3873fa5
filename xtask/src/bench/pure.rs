//! Benchmarks without other processes: the framer, the ledger, creating a snapshot.

use super::calibration::{Calibration, scattered};
use super::model::Model;
use super::{Figure, median};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;
use ttmem_core::input::{Alloc, Free, Input};
use ttmem_core::machine::Chip;
use ttmem_core::words::{Basis, ChipId, KernelClass, Mono, Origin, ProcessId, Scope, Space};
use ttmem_wire::framer::Framer;

/// Processor time of this thread.
pub(super) fn cpu(work: impl FnOnce()) -> Duration {
    let now = || {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    };
    let begin = now();
    work();
    now().saturating_sub(begin)
}

/// Median processor time of one of `count` steps of `work`, in nanoseconds.
pub(super) fn each(rounds: usize, count: u64, mut work: impl FnMut()) -> f64 {
    median((0..rounds).map(|_| cpu(&mut work).as_nanos() as f64 / count as f64).collect())
}

pub(crate) fn figures() -> Vec<Figure> {
    let mut figures = vec![framer()];
    for (live, times) in [(1000, 5.0), (100_000, 4.0), (1_000_000, 1.5)] {
        figures.push(ledger(live, times));
    }
    figures.push(snapshot());
    figures
}

fn framer() -> Figure {
    const COUNT: u64 = 100_000;
    let bytes = super::load::many_buffers(COUNT);
    let cost = each(9, COUNT, || {
        let mut framer = Framer::default();
        let mut sum = 0;
        for chunk in bytes.chunks(65_536) {
            framer
                .feed(chunk, |frame| {
                    sum += usize::from(matches!(frame, ttmem_wire::framer::Frame::Event(_)));
                    std::ops::ControlFlow::Continue(())
                })
                .ok();
        }
        assert_eq!(sum as u64, COUNT);
    });
    Calibration::map_event(1000).allows(1.0, "framer, a message", cost, "ns")
}

fn process(pid: u32) -> Origin {
    Origin::Process(ProcessId { pid, start: 1 }, Basis::Reported)
}

fn alloc(chip: u32, space: Space, id: u64) -> Input {
    Input::Alloc(Alloc {
        scope: Scope::Chip(ChipId::Ordinal(chip)),
        space,
        id,
        requested: 2048,
        at: None,
        extent: None,
        cores: 0,
        program: 0,
        site: 0,
        layout: ttmem_core::words::Layout::Unknown,
        class: KernelClass::Unknown,
        uncertainty: ttmem_core::words::Uncertainty::default(),
    })
}

fn state(chips: u32, processes: u32) -> Model {
    let mut state = Model::new(0x1234_5678_9abc_def0);
    for chip in 0..chips {
        state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(Chip::unknown(chip))));
    }
    for pid in 1..=processes {
        state.apply(Mono(0), process(pid), Input::Registered(Box::default()));
    }
    state
}

/// One allocation and one free among `live` buffers, compared with the standard map.
fn ledger(live: u64, times: f64) -> Figure {
    const COUNT: u64 = 200_000;
    let mut state = state(1, 1);
    for n in 0..live {
        state.apply(Mono(n), process(1), alloc(0, Space::Dram, scattered(n)));
    }
    let mut next = live;
    let ours = each(9, COUNT, || {
        for _ in 0..COUNT / 2 {
            let scope = Scope::Chip(ChipId::Ordinal(0));
            let free =
                Free { scope, space: None, id: scattered(next - live), program: 0, size: None, cores: 0 };
            black_box(state.apply(Mono(next), process(1), Input::Free(free)));
            black_box(state.apply(Mono(next), process(1), alloc(0, Space::Dram, scattered(next))));
            next += 1;
        }
    });
    Calibration::map_event(live).allows(times, &format!("ledger, an event with {live} live"), ours, "ns")
}

fn snapshot() -> Figure {
    let mut state = state(32, 64);
    for n in 0..100_000u32 {
        let space = [Space::Dram, Space::L1, Space::Cb, Space::Kernel, Space::Trace][n as usize / 2048 % 5];
        state.apply(Mono(1), process(n % 64 + 1), alloc(n / 64 % 32, space, u64::from(n) << 12));
    }
    let cost = median(
        (0..21)
            .map(|n| {
                // A change each time, so that nothing is cached.
                state.apply(Mono(2), process(1), alloc(0, Space::Cb, n << 40));
                let time = cpu(|| {
                    let snapshot = state.snapshot(&ttmem_core::Detail::NONE);
                    black_box(serde_json::to_vec(&snapshot).map(|json| json.len()).ok());
                });
                time.as_secs_f64() * 1e3
            })
            .collect(),
    );
    let what = "snapshot, 32 chips x 64 processes x 100 k buffers";
    Calibration::map_event(100_000).allows(300_000.0, what, cost, "ms")
}
