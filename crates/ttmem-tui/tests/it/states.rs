//! Machines to look at: made by hand, the same every time.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use ttmem_core::Snapshot;
use ttmem_core::machine::{
    Capacity, CapacityOrigin, CoreLayout, Firmware, Host, PcieRates, SensorLimits, Sensors,
};
use ttmem_core::snapshot::{
    Allocation, AllocatorSpace, AllocatorUsage, AuditResult, BufferGroup, BufferUsage, Buffers, Core,
    CoreAllocation, CoreAllocations, CoreClass, CorePeak, CoreProgram, CoreRoom, Cores, Device, Event,
    EventKind, Finding, FindingKind, Health, History, Holder, HostUsage, Interval, Peak, Placement, Process,
    ProcessUsage, Program, ProgramList, ProgramRow, ProgramUsage, SCHEMA, Sample, SensorSample, Severity,
    Skipped, Summary, Total, Trace, Tracker, Tracking, Usage,
};
use ttmem_core::words::{Arch, Basis, KernelClass, Layout, Space};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A name, and what makes it.
pub(crate) type State = (&'static str, fn() -> Snapshot);

/// All of them.
pub(crate) const ALL: [State; 8] = [
    ("one", one),
    ("two", two),
    ("eight", eight),
    ("galaxy", galaxy),
    ("empty", empty),
    ("untracked", untracked),
    ("unknown", unknown),
    ("findings", findings),
];

/// The moment at which all of them were taken.
pub(crate) fn now() -> Timestamp {
    "2026-03-14T14:02:11.4Z".parse().unwrap()
}

/// So many seconds before that.
pub(crate) fn ago(seconds: i64) -> Timestamp {
    now().checked_sub(SignedDuration::from_secs(seconds)).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "what it is for may be unknown")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

// ---- chips

fn wormhole(cores: u32, origin: CapacityOrigin) -> Capacity {
    let l1_bytes_per_core = 1464 * KIB;
    Capacity {
        dram_bytes: 12 * GIB,
        dram_channels: 12,
        dram_bytes_per_channel: GIB,
        l1_bytes: u64::from(cores) * l1_bytes_per_core,
        cores,
        l1_bytes_per_core,
        dram_allocatable_bytes: Some(12 * GIB - 12 * 32 * MIB),
        l1_allocatable_bytes: Some(u64::from(cores) * (l1_bytes_per_core - 102 * KIB)),
        origin,
    }
}

/// An idle chip of which everything is known.
pub(crate) fn chip(index: u32, board: &str, cores: u32) -> Device {
    Device {
        id: format!("0x{:016x}", 0x0100_0144_1181_1000 + u64::from(index)),
        index,
        arch: Some(Arch::WormholeB0),
        board: text(board),
        remote: false,
        pci: Some(format!("0000:{:02x}:00.0", index + 1)),
        node: Some(index),
        serial: Some(format!("{:016x}", 0x0100_0144_1181_1000 + u64::from(index / 2))),
        names: Vec::new(),
        firmware: Firmware {
            bundle: text("18.12.0.0"),
            arc: text("2.39.0.0"),
            ethernet: text("7.2.0.0"),
            manager: text("5.12.0.1"),
            manager_boot: text("1.2.0.0"),
            flasher: text("3.4.10.0"),
        },
        capacity: Some(wormhole(cores, CapacityOrigin::Runtime)),
        usage: Usage::default(),
        sensors: Some(sensors(index)),
        sensors_absent: None,
        peaks: Vec::new(),
        tightest_core: None,
        core_layout: None,
        cores: None,
        history: None,
    }
}

fn sensors(index: u32) -> Sensors {
    let step = f64::from(index % 8);
    Sensors {
        asic_celsius: Some(51.5 + step * 2.5),
        power_watts: Some(38.0 + step * 7.5),
        current_amperes: Some(41.0 + step * 9.0),
        vcore_volts: Some(0.725 + step / 100.0),
        aiclk_mhz: Some(1000.0),
        axiclk_mhz: Some(900.0),
        arcclk_mhz: Some(540.0),
        fan_rpm: Some(2130.0 + step * 40.0),
        heartbeat: Some(184_467 + u64::from(index)),
        heartbeat_beats: Some(true),
        thermal_trips: Some(0),
        limits: SensorLimits {
            asic_celsius: Some(75.0),
            power_watts: Some(100.0),
            current_amperes: Some(160.0),
            vcore_volts: Some(0.95),
        },
        pcie: Some(PcieRates {
            host_reads_bytes_per_second: Some(3.5e6 + 1e6 * step),
            host_writes_bytes_per_second: Some(812e6),
            device_reads_bytes_per_second: Some(64e3),
            device_writes_bytes_per_second: Some(17e6),
        }),
        age_ms: 420,
        stale: false,
        absent: BTreeMap::new(),
    }
}

fn buffers(used_bytes: u64, count: u64, room: Option<u64>) -> BufferUsage {
    let free = room.map(|room| room.saturating_sub(used_bytes));
    BufferUsage {
        used_bytes,
        requested_bytes: used_bytes - used_bytes / 50,
        occupied_bytes: Some(used_bytes - used_bytes / 100),
        allocated_bytes: Some(used_bytes),
        allocatable_bytes: room,
        free_bytes: free,
        largest_free_bytes_per_bank: free.map(|free| free / 20),
        peak_bytes: used_bytes + used_bytes / 8,
        count: Some(count),
        basis: Basis::Exact,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what it is for may be unknown")]
fn programs_hold(registered_bytes: u64, resident_bytes: u64, count: u64) -> Option<ProgramUsage> {
    Some(ProgramUsage {
        registered_bytes,
        resident_bytes: Some(resident_bytes),
        residency_unknown_bytes: 0,
        estimated_bytes: 0,
        count: Some(count),
        basis: Basis::Exact,
    })
}

/// Usage with something of everything.
fn usage(dram: u64, l1: u64, capacity: Option<Capacity>) -> Usage {
    let trace = dram / 16;
    let (l1_small, single) = (96 * KIB, 640 * KIB);
    let (cb, dfb, scratch, kernel) = (l1 / 3, 512 * KIB, 128 * KIB, 900 * KIB);
    let l1_total = l1 + l1_small + single + cb + dfb + scratch;
    Usage {
        dram: Some(buffers(dram, 214, capacity.and_then(|it| it.dram_allocatable_bytes))),
        l1: Some(buffers(l1, 37, capacity.and_then(|it| it.l1_allocatable_bytes))),
        l1_small: Some(buffers(l1_small, 3, None)),
        l1_core: Some(buffers(single, 1, None)),
        trace: Some(buffers(trace, 1, None)),
        host: Some(buffers(64 * MIB, 2, None)),
        cb: programs_hold(cb * 3, cb, 91),
        dfb: programs_hold(dfb * 2, dfb, 4),
        scratch: programs_hold(scratch, scratch, 2),
        kernel: programs_hold(kernel * 6, kernel, 48),
        dram_total: Some(Total {
            used_bytes: dram + trace,
            capacity_bytes: capacity.map(|it| it.dram_bytes),
            basis: Basis::Exact,
        }),
        l1_total: Some(Total {
            used_bytes: l1_total,
            capacity_bytes: capacity.map(|it| it.l1_bytes),
            basis: Basis::Exact,
        }),
    }
}

/// A chip in use: so much of its DRAM and of its buffers' L1, in percent.
fn busy(index: u32, board: &str, (columns, rows): (u8, u8), dram: u64, l1: u64) -> Device {
    let cores = u32::from(columns) * u32::from(rows);
    let mut device = chip(index, board, cores);
    let capacity = device.capacity.unwrap();
    device.usage = usage(capacity.dram_bytes / 100 * dram, capacity.l1_bytes / 100 * l1, device.capacity);
    let layout = CoreLayout { columns, rows, kernel_config: 0x8240, unreserved: 0x1_9900, end: 1464 * KIB };
    device.core_layout = Some(layout);
    let cores = core_maps(index, &layout);
    device.tightest_core = cores.iter().map(|it| it.room).min_by_key(|it| it.free_gap_bytes);
    device.cores = Some(cores);
    let (dram, l1) = (device.usage.dram_total.clone().unwrap(), device.usage.l1_total.clone().unwrap());
    device.history = Some(History {
        dram_total: wave(dram.used_bytes, index, false),
        l1_total: wave(l1.used_bytes, index + 3, index % 4 == 1),
        asic_celsius: readings(51_500 + 2_500 * u64::from(index % 8), index),
        power_watts: readings(38_000 + 7_500 * u64::from(index % 8), index + 5),
        aiclk_mhz: readings(1_000_000, 0),
    });
    let holder = |pid, name: &str, bytes| Holder { pid: Some(pid), name: text(name), bytes };
    device.peaks = vec![
        Peak {
            space: Space::Dram,
            bytes: dram.used_bytes + dram.used_bytes / 8,
            at: ago(95),
            holders: vec![
                holder(48_213, "python3", dram.used_bytes),
                holder(48_977, "llama-serve", dram.used_bytes / 8),
            ],
        },
        Peak {
            space: Space::L1,
            bytes: l1.used_bytes,
            at: ago(4),
            holders: vec![holder(48_213, "python3", l1.used_bytes)],
        },
        Peak {
            space: Space::Cb,
            bytes: 22 * MIB,
            at: ago(5400),
            holders: vec![holder(48_213, "python3", 22 * MIB)],
        },
    ];
    device
}

fn without_sensors(device: &mut Device) {
    let history = device.history.take().unwrap();
    device.history =
        Some(History { asic_celsius: Vec::new(), power_watts: Vec::new(), aiclk_mhz: Vec::new(), ..history });
}

/// Readings of a sensor once a second, the newest at so many thousandths of its unit.
fn readings(thousandths: u64, phase: u32) -> Vec<SensorSample> {
    let value = |parts: u64| parts as f64 / 1000.0;
    let sample = |Sample { at, min_bytes, mean_bytes, max_bytes }| SensorSample {
        at,
        min: value(min_bytes),
        mean: value(mean_bytes),
        max: value(max_bytes),
    };
    wave(thousandths, phase, false).into_iter().step_by(2).map(sample).collect()
}

/// Up and down, the newest at `bytes`; with or without a time without samples.
fn wave(bytes: u64, phase: u32, gap: bool) -> Vec<Sample> {
    const STEPS: i64 = 240;
    (0..STEPS)
        .filter(|n| !gap || !(110..170).contains(n))
        .map(|n| {
            let turn = (i64::from(phase) * 7 + n).rem_euclid(48);
            let height = 70 + if turn < 24 { turn } else { 48 - turn } as u64;
            let mean_bytes = if n + 1 == STEPS { bytes } else { bytes / 100 * height };
            let swing = bytes / 64;
            let at = now().checked_sub(SignedDuration::from_millis((STEPS - 1 - n) * 500)).unwrap();
            Sample { at, min_bytes: mean_bytes.saturating_sub(swing), mean_bytes, max_bytes: mean_bytes }
        })
        .collect()
}

/// From nothing on a core to hardly any room, and all classes on some of them.
fn core_maps(chip: u32, layout: &CoreLayout) -> Cores {
    let mut all = Vec::new();
    for y in 0..layout.rows {
        for x in 0..layout.columns {
            let turn = u64::from(x) * 7 + u64::from(y) * 13 + u64::from(chip) * 5;
            let program = (turn % 5 > 0).then_some(turn % 5 * 48 * KIB);
            let taken = turn % 20 * 55 * KIB;
            all.push(core(x, y, layout, program, taken));
        }
    }
    Cores(all)
}

fn core(x: u8, y: u8, layout: &CoreLayout, cb: Option<u64>, taken: u64) -> Core {
    let mut intervals = Vec::new();
    let mut at = 0;
    let mut put = |class, until: u64| {
        if until > at {
            intervals.push(Interval { class, start: at, bytes: until - at });
            at = until;
        }
    };
    put(CoreClass::Reserved, layout.kernel_config);
    put(CoreClass::KernelConfig, layout.unreserved);
    let mut program_end = layout.unreserved;
    if let Some(cb) = cb {
        put(CoreClass::Cb, program_end + cb);
        put(CoreClass::Dfb, program_end + cb + 32 * KIB);
        put(CoreClass::Scratch, program_end + cb + 40 * KIB);
        program_end += cb + 40 * KIB;
    }
    let small = layout.end - 32 * KIB;
    let lowest_buffer = (small - taken).max(program_end);
    put(CoreClass::Free, lowest_buffer);
    let lockstep = if x % 2 == 1 { (small - lowest_buffer) / 3 } else { 0 };
    put(CoreClass::Lockstep, lowest_buffer + lockstep);
    put(CoreClass::Buffer, small);
    put(CoreClass::L1SmallFree, small + 20 * KIB);
    put(CoreClass::L1Small, layout.end);
    let program =
        |_| CoreProgram { pid: Some(48_213), allocator: Some(1), id: 17, name: text("ttnn.matmul") };
    Core {
        room: CoreRoom {
            x,
            y,
            program_end,
            registered_end: program_end + 64 * KIB,
            lowest_buffer,
            free_gap_bytes: lowest_buffer - program_end,
            basis: Basis::Exact,
        },
        program: cb.map(program),
        intervals: Arc::from(intervals),
        peak: Some(CorePeak {
            bytes: small - lowest_buffer + 96 * KIB,
            buffer_bytes: small - lowest_buffer,
            at: ago(61),
            pid: Some(48_213),
            program: Some(17),
            program_name: text("ttnn.matmul"),
        }),
    }
}

/// Owners of what lies on the core with the smallest free gap.
fn owners(device: &Device) -> Option<CoreAllocations> {
    let CoreRoom { x, y, .. } = device.tightest_core?;
    let core = device.cores.as_ref()?.iter().find(|it| (it.room.x, it.room.y) == (x, y))?;
    let of = |it: &Interval, start: u64, bytes: u64, site: Option<&str>| CoreAllocation {
        class: it.class,
        start,
        bytes,
        pid: Some(48_213),
        process_name: text("python3"),
        program: site.is_none().then_some(17),
        program_name: site.is_none().then(|| "ttnn.matmul".to_owned()),
        site_name: site.map(str::to_owned),
    };
    let mut list = Vec::new();
    for it in core.intervals.iter() {
        match it.class {
            CoreClass::Cb | CoreClass::Dfb | CoreClass::Scratch => {
                list.push(of(it, it.start, it.bytes, None));
            }
            CoreClass::Buffer => {
                let half = it.bytes / 2;
                list.push(of(it, it.start, half, Some("models/llama/attention.py:118 (forward)")));
                list.push(of(it, it.start + half, it.bytes - half, Some("models/llama/mlp.py:64 (forward)")));
            }
            CoreClass::Lockstep => list.push(of(it, it.start, it.bytes, Some("models/llama/mlp.py:71"))),
            _ => {}
        }
    }
    Some(CoreAllocations { device: device.index, x, y, count: list.len() as u64, list })
}

// ---- processes

/// Who has a device open, and no more.
pub(crate) fn process(pid: u32, name: &str, chips: &[&Device]) -> Process {
    Process {
        pid: Some(pid),
        reported_pid: None,
        start: Some(ago(i64::from(pid % 5000))),
        name: text(name),
        command: Some(format!("{name} -u serve.py --port 8000 --mesh {}", chips.len())),
        user: text("mia"),
        container: None,
        pod: None,
        hidden: false,
        open_devices: chips.iter().map(|it| it.id.clone()).collect(),
        tracking: Tracking::Untracked,
        basis: Basis::Unknown,
        complete: false,
        sequence: None,
        tracker: None,
        summary: Summary { indexes: chips.iter().map(|it| it.index).collect(), ..Summary::default() },
        usage: Vec::new(),
        allocators: Vec::new(),
        audit: Vec::new(),
        traces: Vec::new(),
        programs: None,
        host: None,
    }
}

/// One that the agent follows: it holds a share of what is on its chips.
fn tracked(pid: u32, name: &str, chips: &[&Device], share: u64) -> Process {
    let mut it = process(pid, name, chips);
    (it.basis, it.complete, it.sequence) = (Basis::Exact, true, Some(48_211));
    it.tracker = Some(Tracker {
        writer: "ttmem-agent 0.1.0".to_owned(),
        runtime: text("ttnn 0.65.1"),
        hooks: 31,
        missing_hooks: Vec::new(),
        cost_seconds: Some(0.0473),
    });
    let part = |device: &Device| {
        let used = |space| device.usage.used(space).map_or(0, |it| it.0);
        usage(used(Space::Dram) / 100 * share, used(Space::L1) / 100 * share, device.capacity)
    };
    it.usage =
        chips.iter().map(|device| ProcessUsage { device: device.id.clone(), usage: part(device) }).collect();
    let space = |space, banks: u16, base, bytes_per_bank| {
        let used = it.usage.first().and_then(|it| it.usage.used(space)).map_or(0, |it| it.0);
        let room = u64::from(banks) * bytes_per_bank;
        AllocatorSpace { space, banks, base, bytes_per_bank, usage: buffers(used, 41, Some(room)) }
    };
    let spaces = vec![space(Space::Dram, 12, 0x20, 992 * MIB), space(Space::L1, 64, 0x1_9900, 1362 * KIB)];
    it.audit = spaces
        .iter()
        .map(|it| AuditResult {
            allocator: 1,
            devices: Vec::new(),
            space: it.space,
            drift_bytes: 0,
            free_drift_bytes: Some(0),
            largest_free_drift_bytes: Some(0),
            compared: true,
            allocated_bytes: it.usage.used_bytes,
            free_bytes: it.usage.free_bytes.unwrap_or(0),
            largest_free_bytes_per_bank: it.usage.largest_free_bytes_per_bank.unwrap_or(0),
            sequence: 48_000,
        })
        .collect();
    let devices: Vec<String> = it.open_devices.clone();
    it.allocators = vec![AllocatorUsage { id: 1, devices: devices.clone(), spaces }];
    it.traces = vec![Trace {
        id: 0,
        allocator: 1,
        devices: devices.clone(),
        dispatches: 312,
        replays: 18_442,
        captured: ago(840),
        endangered_count: 0,
        endangered_bytes: 0,
    }];
    let names = [
        "ttnn.matmul",
        "ttnn.layer_norm",
        "ttnn.transformer.scaled_dot_product_attention_decode",
        "ttnn.conv2d",
        "ttnn.add",
        "ttnn.to_layout",
    ];
    it.host = Some(HostUsage {
        cpu_percent: Some(f64::from(pid % 7) * 37.5),
        rss_bytes: u64::from(pid % 90) * 100 * MIB,
        parent_pid: Some(1200),
        ancestor_pid: None,
    });
    it.programs = Some((0..12).map(|n| program(n, names[n as usize % names.len()], &it)).collect());
    it.summarise_here(chips);
    it
}

trait Summarised {
    fn summarise_here(&mut self, chips: &[&Device]);
}

impl Summarised for Process {
    fn summarise_here(&mut self, chips: &[&Device]) {
        self.summarise(|id| chips.iter().find(|it| it.id == id).map(|it| it.index));
    }
}

fn program(id: u32, name: &str, of: &Process) -> Program {
    let n = u64::from(id);
    let cores = if id.is_multiple_of(3) { vec![[0, 0, 7, 7]] } else { vec![[0, 0, 7, 3], [0, 4, 2, 4]] };
    let core_count = if id.is_multiple_of(3) { 64 } else { 35 };
    let chips = of.summary.indexes.len() as u32;
    let cb = (24 + n * 16) * KIB;
    let place = |space, address, bytes, view| {
        let address = Some(address);
        Placement { space, address, bytes, cores: cores.clone(), view }
    };
    Program {
        id: id + 11,
        allocator: Some(1),
        devices: of.open_devices.clone(),
        indexes: of.summary.indexes.clone(),
        name: (id != 9).then(|| name.to_owned()),
        class: if id == 9 { KernelClass::Dispatch } else { KernelClass::Application },
        cores: cores.clone(),
        core_count,
        resident_cores: match id {
            0 => core_count * chips,
            1..=3 => 7 * id * chips,
            _ => 0,
        },
        dispatches: n.pow(4) * 733 + 1,
        residency_unknown: false,
        estimated: false,
        dispatched: (id != 11).then(|| ago(i64::from(id).pow(3))),
        kernel_bytes: (6 + n) * 1000,
        cb_bytes: cb * u64::from(core_count),
        dfb_bytes: if id % 4 == 1 { 32 * KIB * u64::from(core_count) } else { 0 },
        scratch_bytes: if id % 4 == 2 { 8 * KIB } else { 0 },
        view_count: u64::from(id == 0),
        end: (id != 10).then_some(0x1_9900 + cb),
        placements: vec![
            place(Space::Kernel, 0x8240, (6 + n) * 1000, false),
            place(Space::Cb, 0x1_9900, cb / 2, false),
            place(Space::Cb, 0x1_9900 + cb / 2, cb / 2, false),
            place(Space::Cb, 0x15_0000, 16 * KIB, true),
        ],
    }
}

// ---- buffers

fn allocation(n: u64, pid: u32, chips: &[u32]) -> Allocation {
    let space = [Space::Dram, Space::Dram, Space::L1, Space::Dram, Space::Cb, Space::L1Small, Space::Trace]
        [n as usize % 7];
    let bytes = (96 * MIB) / (n + 1);
    let sharded = space == Space::L1;
    Allocation {
        pid: Some(pid),
        reported_pid: None,
        devices: chips
            .iter()
            .map(|index| format!("0x{:016x}", 0x0100_0144_1181_1000 + u64::from(*index)))
            .collect(),
        indexes: chips.to_vec(),
        allocator: Some(1),
        space,
        id: format!("0x{:x}", 0x2_0000 + n * 0x4_c800),
        requested_bytes: bytes,
        occupied_bytes: Some(bytes),
        allocated_bytes: (space != Space::Cb).then(|| bytes.next_multiple_of(12 * 2 * KIB)),
        bytes_per_bank: (space != Space::Cb).then(|| bytes.div_ceil(12)),
        banks: (space != Space::Cb).then_some(12),
        layout: match space {
            Space::Dram | Space::Trace | Space::L1Small => Some(Layout::Interleaved),
            Space::L1 => Some(Layout::HeightSharded),
            _ => None,
        },
        cores: sharded.then(|| vec![[0, 0, 7, 3]]),
        estimated: false,
        unplaced: false,
        references: if n == 3 { 2 } else { 1 },
        age_seconds: (n * n) as f64 * 1.7 + 0.2,
        kernel: None,
        program: (space == Space::Cb).then_some(17),
        site: (n % 3 != 1).then_some(n as u32 % 9),
        site_name: (n % 3 != 1).then(|| format!("layers.{}.attention.wqkv", n % 9)),
        program_name: (space == Space::Cb).then(|| "ttnn.matmul".to_owned()),
        hidden: false,
        basis: Basis::Exact,
    }
}

/// The first of `count`, and what they are together.
fn page(count: u64, pid: u32, chips: &[u32]) -> Buffers {
    let list: Vec<Allocation> = (0..count.min(120)).map(|n| allocation(n, pid, chips)).collect();
    let used = |it: &Allocation| it.allocated_bytes.unwrap_or(it.requested_bytes);
    let group = |n: u64| BufferGroup {
        pid: Some(pid + n as u32 % 2 * 764),
        process_name: text(if n.is_multiple_of(2) { "python3" } else { "llama-serve" }),
        space: (n < 4).then_some(if n.is_multiple_of(3) { Space::Dram } else { Space::L1 }),
        program: (n == 4).then_some(17),
        program_name: (n == 4).then(|| "ttnn.matmul".to_owned()),
        site: (n > 4).then_some(n as u32),
        site_name: (n > 5).then(|| format!("layers.{n}.attention.wqkv")),
        count: 90 / (n + 1),
        requested_bytes: 300 * MIB / (n + 1),
        used_bytes: 301 * MIB / (n + 1),
    };
    Buffers {
        count,
        requested_bytes: list.iter().map(|it| it.requested_bytes).sum(),
        used_bytes: list.iter().map(used).sum(),
        offset: 0,
        list,
        group_count: 8,
        groups: (0..8).map(group).collect(),
    }
}

// ---- what happened, what is odd

fn event(sequence: u64, kind: EventKind, severity: Severity, text: &str) -> Event {
    Event {
        sequence,
        at: ago(600 - sequence as i64 * 13),
        kind,
        severity,
        pid: None,
        device: None,
        bytes: None,
        text: text.to_owned(),
    }
}

fn events() -> Vec<Event> {
    use EventKind::{
        AllocatorOpened, DeviceAdded, Finding as Found, Other, ProcessExited, ProcessStarted, TraceCaptured,
        UsageThreshold,
    };
    let all = [
        (DeviceAdded, Severity::Info, "device 0 added"),
        (ProcessStarted, Severity::Info, "pid 48213 (python3) started"),
        (AllocatorOpened, Severity::Info, "pid 48213 (python3) opened a mesh of 8 devices"),
        (ProcessStarted, Severity::Info, "pid 48977 (llama-serve) started"),
        (TraceCaptured, Severity::Info, "pid 48213 (python3) captured a trace of 312 dispatches"),
        (UsageThreshold, Severity::Warning, "device 0: DRAM rose above 75 %"),
        (UsageThreshold, Severity::Error, "device 0: DRAM rose above 90 %"),
        (
            Found,
            Severity::Warning,
            "pid 48213 (python3): freed unknown buffers (last 0x1f4000); they may predate tracking",
        ),
        (
            ProcessExited,
            Severity::Info,
            "pid 47001 (train.py) exited with 3.2 GiB in 612 allocations still allocated",
        ),
        (Other, Severity::Info, "an event of a later version"),
    ];
    let tell = |(n, (kind, severity, text)): (usize, (_, _, &str))| event(n as u64, kind, severity, text);
    all.into_iter().enumerate().map(tell).collect()
}

fn finding(kind: FindingKind, severity: Severity, text: &str) -> Finding {
    Finding {
        kind,
        severity,
        device: None,
        pid: None,
        process_name: None,
        command: None,
        hidden: false,
        space: None,
        bytes: None,
        count: 1,
        first: None,
        last: None,
        text: text.to_owned(),
    }
}

// ---- machines

fn snapshot(devices: Vec<Device>, mut processes: Vec<Process>) -> Snapshot {
    let mut list: Vec<ProgramRow> = Vec::new();
    for process in &mut processes {
        let rows = process.programs.take().into_iter().flatten().map(|program| ProgramRow {
            hidden: false,
            pid: process.pid,
            reported_pid: process.reported_pid,
            start: process.start,
            process_name: process.name.clone(),
            program,
        });
        list.extend(rows);
    }
    list.sort_by_key(|row| std::cmp::Reverse(row.program.dispatched));
    let programs = ProgramList {
        count: list.len() as u64,
        resident_count: list.iter().filter(|it| it.program.resident_cores > 0).count() as u64,
        has_dfbs: list.iter().any(|it| it.program.dfb_bytes > 0),
        has_scratch: list.iter().any(|it| it.program.scratch_bytes > 0),
        offset: 0,
        list,
        open: None,
    };
    let core_allocations = devices.first().and_then(owners);
    Snapshot {
        core_allocations,
        programs: Some(programs),
        schema: SCHEMA,
        at: now(),
        simulated: false,
        host: Host { name: text("lab1"), ttmem: "0.1.0".to_owned(), driver: text("2.4.1") },
        devices,
        processes,
        findings: Vec::new(),
        events: Some(Vec::new()),
        buffers: Some(Buffers::default()),
        health: Health { source: "daemon".to_owned(), segments: 2, live_records: 812, ..Health::default() },
    }
}

fn all(devices: &[Device]) -> Vec<&Device> {
    devices.iter().collect()
}

/// An n150 and two processes.
pub(crate) fn one() -> Snapshot {
    let devices = vec![busy(0, "n150", (8, 9), 41, 22)];
    let first = tracked(48_213, "python3", &all(&devices), 80);
    let mut second = tracked(48_977, "llama-serve", &all(&devices), 20);
    second.user = text("jon");
    second.container = text("vllm-0");
    let mut it = snapshot(devices, vec![first, second]);
    it.buffers = Some(page(87, 48_213, &[0]));
    it.events = Some(events());
    it
}

/// An n300: the right chip is reached through the left one, and has no sensors.
pub(crate) fn two() -> Snapshot {
    let mut left = busy(0, "n300", (8, 8), 78, 30);
    let mut right = busy(1, "n300", (8, 8), 12, 61);
    left.board = text("n300 L");
    (right.remote, right.pci, right.node) = (true, None, None);
    right.sensors = None;
    without_sensors(&mut right);
    right.sensors_absent = text("remote device: sensors are read through the device that it is connected to");
    right.firmware = Firmware::default();
    let devices = vec![left, right];
    let both = tracked(48_213, "python3", &all(&devices), 90);
    let mut it = snapshot(devices, vec![both]);
    it.buffers = Some(page(5120, 48_213, &[0, 1]));
    it.events = Some(events());
    it
}

/// A T3000, with containers.
pub(crate) fn eight() -> Snapshot {
    let mut devices: Vec<Device> =
        (0..8).map(|n| busy(n, "n300", (8, 8), 9 + 12 * u64::from(n), 6 + u64::from(n) * 9)).collect();
    for right in devices.iter_mut().skip(4) {
        (right.remote, right.pci, right.node, right.sensors) = (true, None, None, None);
        without_sensors(right);
        right.sensors_absent =
            text("remote device: sensors are read through the device that it is connected to");
    }
    let mesh = tracked(48_213, "python3", &all(&devices), 70);
    let mut half = tracked(48_977, "llama-serve", &all(&devices)[..4], 25);
    half.container = text("vllm-decode-0");
    half.pod = text("inference/vllm-decode-0");
    half.user = text("1000650000");
    half.traces.push(Trace {
        id: 1,
        endangered_count: 3,
        endangered_bytes: 18 * MIB,
        ..half.traces[0].clone()
    });
    half.audit.clear();
    half.summarise_here(&all(&devices));
    let mut counted = process(51_002, "train.py", &all(&devices)[4..]);
    counted.basis = Basis::Counters;
    counted.tracking = Tracking::Counters;
    counted.summary.dram_bytes = Some(512 * MIB);
    counted.summary.l1_bytes = Some(0);
    let bare = process(51_440, "tt-smi", &[&devices[0]]);
    let mut it = snapshot(devices, vec![mesh, half, counted, bare]);
    it.buffers = Some(page(1913, 48_213, &[0, 1, 2, 3, 4, 5, 6, 7]));
    it.events = Some(events());
    it.findings = vec![finding(
        FindingKind::TraceOverwrite,
        Severity::Warning,
        "pid 48977 (llama-serve): 3 buffers (18.0 MiB) were allocated after trace 1 was captured; a replay may overwrite them",
    )];
    it
}

/// A simulated galaxy: 32 chips.
pub(crate) fn galaxy() -> Snapshot {
    let mut devices: Vec<Device> = (0..32)
        .map(|n| busy(n, "tt-galaxy-wh", (8, 9), u64::from(n) * 37 % 96, u64::from(n) * 23 % 70))
        .collect();
    for device in &mut devices {
        device.capacity = Some(wormhole(72, CapacityOrigin::Simulated));
    }
    let mut processes = vec![tracked(48_213, "python3", &all(&devices), 60)];
    for n in 0..8u32 {
        let rank = format!("worker-{n}");
        let mut worker = tracked(50_000 + n, &rank, &all(&devices)[n as usize * 4..][..4], 5);
        worker.host.as_mut().unwrap().ancestor_pid = Some(if n % 4 == 3 { 50_000 } else { 48_213 });
        processes.push(worker);
    }
    let mut it = snapshot(devices, processes);
    it.simulated = true;
    let chips: Vec<u32> = (0..32).collect();
    it.buffers = Some(page(48_231, 48_213, &chips));
    it.events = Some(events());
    it
}

/// Neither a chip nor a process.
pub(crate) fn empty() -> Snapshot {
    let mut it = snapshot(Vec::new(), Vec::new());
    it.host.driver = None;
    it
}

/// Chips that are in use by those who publish nothing.
pub(crate) fn untracked() -> Snapshot {
    let devices: Vec<Device> = (0..2)
        .map(|n| {
            let mut it = chip(n, "p150", 140);
            it.arch = Some(Arch::Blackhole);
            it.capacity.as_mut().unwrap().origin = CapacityOrigin::Board;
            it
        })
        .collect();
    let first = process(48_213, "python3", &all(&devices));
    let mut second = process(48_977, "python3", &all(&devices)[..1]);
    second.user = text("jon");
    let mut unseen = process(1, "vllm", &all(&devices)[1..]);
    (unseen.pid, unseen.reported_pid, unseen.start) = (None, Some(17), None);
    let mut it = snapshot(devices, vec![first, second, unseen]);
    it.findings = vec![finding(
        FindingKind::Untracked,
        Severity::Info,
        "pid 48213 (python3) has devices 0-1 open and publishes nothing; start it with `ttmem run`",
    )];
    it
}

/// Nothing is known but that there is something.
pub(crate) fn unknown() -> Snapshot {
    let bare = |index: u32| Device {
        id: format!("ordinal-{index}"),
        arch: None,
        board: None,
        pci: None,
        node: None,
        serial: None,
        firmware: Firmware::default(),
        capacity: None,
        sensors: None,
        ..chip(index, "", 0)
    };
    let mut held = bare(1);
    held.sensors = Some(Sensors::default());
    let sum = |used_bytes| Total { used_bytes, capacity_bytes: None, basis: Basis::Reported };
    held.usage = Usage {
        dram: Some(BufferUsage {
            occupied_bytes: None,
            allocated_bytes: None,
            count: None,
            basis: Basis::Reported,
            ..buffers(700 * MIB, 0, None)
        }),
        cb: Some(ProgramUsage {
            registered_bytes: 3 * MIB,
            resident_bytes: None,
            residency_unknown_bytes: 0,
            estimated_bytes: 0,
            count: None,
            basis: Basis::Reported,
        }),
        // Of some it is known that it is resident, of most it is not.
        dfb: programs_hold(5 * MIB, 256 * KIB, 9).map(|it| ProgramUsage {
            residency_unknown_bytes: 4 * MIB,
            estimated_bytes: MIB,
            ..it
        }),
        dram_total: Some(sum(700 * MIB)),
        l1_total: Some(sum(7 * MIB + 256 * KIB)),
        ..Usage::default()
    };
    let room = CoreRoom {
        x: 0,
        y: 0,
        program_end: 0,
        registered_end: 0,
        lowest_buffer: 0,
        free_gap_bytes: 0,
        basis: Basis::Unknown,
    };
    held.cores = Some(Cores(vec![Core { room, program: None, intervals: Arc::default(), peak: None }]));
    held.history = Some(History { dram_total: wave(700 * MIB, 0, true), ..History::default() });
    let devices = vec![bare(0), held];
    let mut someone = process(0, "", &all(&devices));
    (someone.pid, someone.start, someone.name, someone.command, someone.user) =
        (None, None, None, None, None);
    someone.summary.indexes.clear();
    // As of those who only tell how much they hold.
    let nameless = Program {
        id: 0x8000_0000 + 41,
        residency_unknown: true,
        estimated: true,
        dispatches: 0,
        name: None,
        class: KernelClass::Unknown,
        cores: Vec::new(),
        core_count: 0,
        resident_cores: 0,
        dispatched: None,
        end: None,
        placements: Vec::new(),
        indexes: Vec::new(),
        ..program(0, "", &someone)
    };
    someone.programs = Some(vec![nameless]);
    let mut it = snapshot(devices, vec![someone]);
    it.host = Host::default();
    let mut lone = allocation(1, 0, &[]);
    (lone.pid, lone.occupied_bytes, lone.allocated_bytes, lone.bytes_per_bank) = (None, None, None, None);
    (lone.layout, lone.allocator, lone.banks, lone.basis) = (None, None, None, Basis::Reported);
    (lone.space, lone.unplaced, lone.estimated, lone.program) =
        (Space::Cb, true, true, Some(0x8000_0000 + 41));
    let group = BufferGroup {
        pid: None,
        process_name: None,
        space: None,
        program: None,
        program_name: None,
        site: None,
        site_name: None,
        count: 1,
        requested_bytes: lone.requested_bytes,
        used_bytes: lone.requested_bytes,
    };
    it.buffers = Some(Buffers {
        count: 1,
        requested_bytes: lone.requested_bytes,
        used_bytes: lone.requested_bytes,
        offset: 0,
        list: vec![lone],
        group_count: 1,
        groups: vec![group],
    });
    it
}

/// Everything that can be odd.
pub(crate) fn findings() -> Snapshot {
    use FindingKind::{
        Aliased, Counters, DoubleFree, Drift, GhostBytes, InheritedFree, Leak, LostRecords, OutOfMemory,
        OverCapacity, Reclaimed, TraceOverwrite, Truncated, UnknownFree, Untracked,
    };
    let mut devices: Vec<Device> = (0..3).map(|n| busy(n, "n150", (8, 9), 60, 20)).collect();
    // More than there is.
    devices[0].usage = usage(13 * GIB, 40 * MIB, devices[0].capacity);
    let hot = devices[0].sensors.as_mut().unwrap();
    (hot.asic_celsius, hot.power_watts, hot.thermal_trips) = (Some(91.5), Some(94.0), Some(3));
    let still = devices[1].sensors.as_mut().unwrap();
    (still.heartbeat_beats, still.stale, still.age_ms) = (Some(false), true, 73_000);
    still.fan_rpm = None;
    still.absent.insert("fan_rpm".to_owned(), "this board has no fan of its own".to_owned());
    devices[1].sensors_absent = text("the driver does not answer");
    let mut drifts = tracked(48_213, "python3", &all(&devices), 70);
    drifts.audit[0].drift_bytes = -4096;
    drifts.audit[0].free_drift_bytes = Some(4096);
    drifts.audit[1].compared = false;
    drifts.traces[0].endangered_count = 12;
    drifts.traces[0].endangered_bytes = 96 * MIB;
    let mut partial = tracked(48_977, "llama-serve", &all(&devices)[1..], 20);
    partial.complete = false;
    partial.tracker.as_mut().unwrap().missing_hooks =
        vec!["Buffer::deallocate".to_owned(), "MeshBuffer::create".to_owned()];
    let legacy = {
        let mut it = process(47_001, "old_client", &all(&devices)[2..]);
        it.basis = Basis::Reported;
        it.tracking = Tracking::Reported;
        it.summary.dram_bytes = Some(0);
        it.summary.program_bytes = Some(1000);
        it
    };
    for it in [&mut drifts, &mut partial] {
        it.summarise_here(&all(&devices));
    }
    let nobody = process(51_440, "tt-smi", &all(&devices)[..1]);
    let mut it = snapshot(devices, vec![drifts, partial, legacy, nobody]);
    let odd = |kind, severity, pid: Option<u32>, count, text: &str| Finding {
        pid,
        count,
        device: (kind == OverCapacity).then(|| "0x0100014411811000".to_owned()),
        space: (kind == OverCapacity).then_some(Space::Dram),
        bytes: (kind == OverCapacity || kind == Leak).then_some(13 * GIB),
        first: (count > 1).then(|| ago(3600)),
        last: (count > 1).then(|| ago(12)),
        ..finding(kind, severity, text)
    };
    let (error, warning, info) = (Severity::Error, Severity::Warning, Severity::Info);
    it.findings = vec![
        odd(OverCapacity, error, None, 1, "device 0: 13.8 GiB of DRAM in use, capacity 12.0 GiB"),
        odd(
            Drift,
            error,
            Some(48_213),
            1,
            "drift on allocator 1, DRAM: ttmem − runtime = −4,096 bytes; pid 48213 (python3)",
        ),
        odd(
            Aliased,
            error,
            Some(48_977),
            1,
            "devices 1-2: two allocators of pid 48977 (llama-serve) hold the same 2.1 MiB of L1",
        ),
        odd(
            LostRecords,
            error,
            Some(48_977),
            7,
            "pid 48977 (llama-serve): 7 records were overwritten before they were read",
        ),
        odd(
            TraceOverwrite,
            warning,
            Some(48_213),
            1,
            "pid 48213 (python3): 12 buffers (96.0 MiB) were allocated after trace 0 was captured; a replay may overwrite them",
        ),
        odd(DoubleFree, warning, Some(48_213), 2, "double free x2 (last 0x1f4000): pid 48213 (python3)"),
        odd(
            OutOfMemory,
            warning,
            Some(48_977),
            123_456,
            "out of memory x123456: pid 48977 (llama-serve --model /models/llama-3.1-70b --tensor-parallel 8) requested 2.0 GiB of DRAM on device 1; largest free block 38.0 MiB per bank",
        ),
        odd(
            Leak,
            warning,
            Some(47_001),
            1,
            "pid 47001 (old_client): DRAM has grown for 10 minutes without a free",
        ),
        odd(Counters, warning, None, 1, "device 2: tt-metal counters not readable: permission denied"),
        odd(
            Reclaimed,
            info,
            Some(46_000),
            1,
            "pid 46000 exited with 3.2 GiB in 612 allocations still allocated; reclaimed",
        ),
        odd(
            UnknownFree,
            info,
            Some(48_213),
            31,
            "pid 48213 (python3) freed unknown buffers x31; they may predate tracking",
        ),
        odd(InheritedFree, info, Some(48_214), 4, "pid 48214 was forked and freed buffers of its parent x4"),
        odd(GhostBytes, info, None, 1, "device 2: exited processes left 77.0 MiB in the tt-metal counters"),
        odd(Untracked, info, Some(51_440), 1, "pid 51440 (tt-smi) has device 0 open and publishes nothing"),
        odd(Truncated, info, None, 1, "too many findings: 3 were dropped"),
    ];
    it.health.lost_records = 7;
    it.health.skipped =
        vec![Skipped { path: "/dev/shm/ttmem-9".to_owned(), reason: "version 9 is too new".to_owned() }];
    it.buffers = Some(page(87, 48_213, &[0, 1, 2]));
    it.events = Some(events());
    it
}
