//! The core's cost of a dashboard frame: a large machine in two shapes, and a load that changes with every frame.

use super::model::Model;
use std::hint::black_box;
use ttmem_core::detail::{BlockMapKey, BlockQuery, BufferGrouping, BufferQuery, BufferSort};
use ttmem_core::input::{
    Alloc, Allocator, Banks, Extent, Free, Input, Process, Program, Site, SiteDefinition,
};
use ttmem_core::machine::{Capacity, CapacityOrigin, Chip, CoreLayout};
use ttmem_core::snapshot::FlameMoment;
use ttmem_core::words::{Basis, ChipId, KernelClass, Layout, Mono, Origin, ProcessId, Scope, Space};
use ttmem_core::{CoreSet, Detail};

const CHIPS: u32 = 32;
const PROCESSES: u32 = 64;
const BUFFERS: u32 = 100_000;
const PROGRAMS: u32 = 16;
const FRAMES: usize = 41;
/// Every process has one allocator.
const SCOPE: Scope = Scope::Allocator(1);

/// A machine with its load, one frame after the other.
struct Load {
    state: Model,
    now: u64,
    /// Buffers that were allocated in the last frame, and are freed in the next.
    last: Vec<(u32, Space, u64)>,
}

fn origin(pid: u32) -> Origin {
    Origin::Process(ProcessId { pid, start: 1 }, Basis::Exact)
}

fn chip(index: u32) -> Chip {
    let capacity = Capacity {
        dram_bytes: 12 << 30,
        dram_channels: 12,
        dram_bytes_per_channel: 1 << 30,
        l1_bytes: 64 * 1_499_136,
        cores: 64,
        l1_bytes_per_core: 1_499_136,
        dram_allocatable_bytes: None,
        l1_allocatable_bytes: None,
        origin: CapacityOrigin::Runtime,
    };
    let layout =
        CoreLayout { columns: 8, rows: 8, kernel_config: 0x1000, unreserved: 0x20000, end: 1_499_136 };
    Chip { capacity: Some(capacity), core_layout: Some(layout), ..Chip::unknown(index) }
}

fn alloc(space: Space, id: u64, bytes: u64, program: u32) -> Input {
    let banks = if space == Space::Dram || space == Space::Trace { 12 } else { 64 };
    Input::Alloc(Alloc {
        scope: SCOPE,
        space,
        id,
        requested: bytes * u64::from(banks),
        at: None,
        extent: Some(Extent { occupied: bytes * u64::from(banks), bytes_per_bank: bytes, banks }),
        cores: u32::from(program != 0),
        program,
        site: id as u32 % 50 + 1,
        layout: Layout::Interleaved,
        class: KernelClass::Application,
        uncertainty: ttmem_core::words::Uncertainty::default(),
    })
}

impl Load {
    fn new(chips_each: u32) -> Self {
        let mut state = Model::new(0x1234_5678_9abc_def0);
        for index in 0..CHIPS {
            state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(chip(index))));
        }
        for pid in 1..=PROCESSES {
            let first = pid * chips_each % CHIPS;
            let info = Process {
                name: Some(format!("workload-{pid}")),
                command: Some("python -m some.model --with options".to_owned()),
                user: Some("somebody".to_owned()),
                ..Process::default()
            };
            state.apply(Mono(0), origin(pid), Input::Registered(Box::new(info)));
            let bank = |space, banks, base, bytes_per_bank| Banks { space, banks, base, bytes_per_bank };
            let allocator = Allocator {
                id: 1,
                chips: (0..chips_each).map(|n| ChipId::Ordinal((first + n) % CHIPS)).collect(),
                spaces: vec![
                    bank(Space::Dram, 12, 0, 1 << 30),
                    bank(Space::L1, 64, 0x20000, 1_300_000),
                    bank(Space::L1Small, 64, 1_431_072, 65_536),
                    bank(Space::Trace, 12, 1 << 30, 1 << 24),
                ],
            };
            state.apply(Mono(0), origin(pid), Input::Allocator(allocator));
            let cores = CoreSet::rectangle((0, 0), (7, 7));
            state.apply(Mono(0), origin(pid), Input::Cores(1, cores));
            for site in 1..=50 {
                let name = format!("models/layer{}.py:{site}", site * 7 % 50);
                state.apply(
                    Mono(0),
                    origin(pid),
                    Input::Site(Box::new(SiteDefinition::Site(site, Site { text: name, ..Site::default() }))),
                );
            }
            for program in 1..=PROGRAMS {
                Self::dispatch(&mut state, pid, program, 1);
            }
        }
        for n in 0..BUFFERS {
            let (pid, n) = (n % PROCESSES + 1, n / PROCESSES);
            // Each process has other addresses, with free space in between.
            let at = u64::from(n) * 512 * 1024 + u64::from(pid) * 4096;
            let event = match n % 20 {
                0..12 => alloc(Space::Dram, at, 2048 * (1 + u64::from(n % 3)), 0),
                12..16 => alloc(Space::L1, 0x40000 + at / 1024, 128, 0),
                16 => alloc(Space::L1Small, 1_431_072 + at / 32_768, 16, 0),
                17 => alloc(Space::Trace, (1 << 30) + at / 64, 64, 0),
                18 => alloc(Space::Cb, 0x20000 + u64::from(n) * 8, 4096, n / 20 % PROGRAMS + 1),
                _ => alloc(Space::Kernel, u64::from(n), 2048, n / 20 % PROGRAMS + 1),
            };
            state.apply(Mono(1), origin(pid), event);
        }
        let mut load = Self { state, now: Mono::SECOND, last: Vec::new() };
        load.frame(PROCESSES);
        load.state.tick(Mono(load.now));
        black_box(load.state.snapshot(&Detail::NONE));
        load
    }

    fn dispatch(state: &mut Model, pid: u32, id: u32, now: u64) {
        let program = Program {
            scope: SCOPE,
            id,
            cores: 1,
            site: id,
            class: KernelClass::Application,
            dispatches: now,
            dispatched: Some(Mono(now)),
        };
        state.apply(Mono(now), origin(pid), Input::Program(program));
    }

    /// A frame in which `processes` processes free and allocate buffers, and dispatch a program.
    fn frame(&mut self, processes: u32) {
        self.now += 100_000_000;
        let now = Mono(self.now);
        for (pid, space, id) in std::mem::take(&mut self.last) {
            let free = Free { scope: SCOPE, space: Some(space), id, program: 0, size: None, cores: 0 };
            black_box(self.state.apply(now, origin(pid), Input::Free(free)));
        }
        for pid in 1..=processes {
            for n in 0..20u64 {
                let n = n + self.now / 100_000_000 % 5 * 100;
                let at = n * (1 << 20) + u64::from(pid) * 4096 + 0x60000;
                for (space, id) in [(Space::Dram, at), (Space::L1, 0x40000 + at / 1024)] {
                    self.state.apply(now, origin(pid), alloc(space, id, 64, 0));
                    self.last.push((pid, space, id));
                }
            }
            Self::dispatch(&mut self.state, pid, self.now as u32 / 7 % PROGRAMS + 1, self.now);
        }
    }

    /// Milliseconds that `work` takes per frame, with `changing` processes changing before each.
    fn cost(&mut self, changing: u32, mut work: impl FnMut(&mut Model, Mono)) -> f64 {
        let mut costs: Vec<f64> = (0..FRAMES)
            .map(|_| {
                self.frame(changing);
                let now = Mono(self.now);
                super::pure::cpu(|| work(&mut self.state, now)).as_secs_f64() * 1e3
            })
            .collect();
        super::median(std::mem::take(&mut costs))
    }
}

/// Names of measurements, with their budgets if any, in events of a standard map, and their costs, in milliseconds.
pub(crate) fn measure() -> Vec<(String, Option<f64>, f64)> {
    let brief = Detail { brief: true, ..Detail::NONE };
    let page = BufferQuery { limit: 60, ..BufferQuery::default() };
    let grouped = BufferQuery { group: Some(BufferGrouping::Site), ..page.clone() };
    let worded = BufferQuery { text: "inter 0x1f".to_owned(), ..page.clone() };
    let by_site = BufferQuery { sort: BufferSort::Site, offset: 50_000, ..page.clone() };
    let open = Some(BlockMapKey { pid: Some(3), allocator: Some(1), space: Space::Dram });
    let blocks = BlockQuery { device: Some(6), open, limit: 4000, parts: 196, ..BlockQuery::default() };
    let with = |buffers| Detail { buffers: Some(buffers), ..brief.clone() };
    let details = [
        ("default", None, Detail::NONE),
        ("brief", Some(20_000.0), brief.clone()),
        ("cores of one", None, Detail { cores_of: Some(3), ..brief.clone() }),
        ("programs", None, Detail { programs: true, ..brief.clone() }),
        ("buffers", Some(50_000.0), with(page)),
        ("far by site", None, with(by_site)),
        ("with words", None, with(worded)),
        ("in groups", None, with(grouped)),
        ("flame", None, Detail { flame: Some(FlameMoment::Live), ..brief.clone() }),
        ("addresses", None, Detail { blocks: Some(blocks), ..brief.clone() }),
    ];
    let mut figures = Vec::new();
    for chips_each in [2, CHIPS] {
        let mut load = Load::new(chips_each);
        for (changing, how) in [(1, "one changes"), (PROCESSES, "all change")] {
            // The budgets are for one changing process; all at once shows the limit.
            let budget = |times: Option<f64>| times.filter(|_| changing == 1);
            let name = |what: &str| format!("frame, {chips_each} chips each, {how}: {what}");
            let cost = load.cost(changing, Model::tick);
            figures.push((name("tick"), budget(Some(20_000.0)), cost));
            for (what, most, detail) in &details {
                let cost = load.cost(changing, |state, _| {
                    black_box(state.snapshot(detail));
                });
                figures.push((name(what), budget(*most), cost));
            }
        }
    }
    figures
}

pub(crate) fn figures() -> Vec<super::Figure> {
    let map = super::calibration::Calibration::map_event(u64::from(BUFFERS));
    let figure = |(what, budget, cost): (String, Option<f64>, f64)| match budget {
        Some(times) => map.allows(times, &what, cost, "ms"),
        None => super::Figure::plain(&what, "-", cost, "ms"),
    };
    measure().into_iter().map(figure).collect()
}
