//! Snapshots of machines in various states, always the same.

mod buffers;
mod devices;
mod findings;
mod flames;
mod maps;
mod processes;

use buffers::{allocation, page};
use devices::{
    buffer_usage, busy_device, idle_device, owners, program_usage, remove_sensor_history, usage, wave,
    wormhole,
};
use findings::{events, finding};
use jiff::{SignedDuration, Timestamp};
pub(crate) use processes::process;
use processes::{SummariseOn, program, tracked_process};
use std::sync::Arc;
use ttmem_core::Snapshot;
use ttmem_core::machine::{CapacityOrigin, Firmware, Host, OtherCores, Sensors};
use ttmem_core::snapshot::{
    BufferGroup, BufferUsage, Buffers, Core, CoreRoom, Cores, Device, Finding, FindingKind, Health, History,
    Process, Program, ProgramList, ProgramRow, ProgramUsage, SCHEMA, Severity, Skipped, Total, Trace,
    Tracking, Usage,
};
use ttmem_core::words::{Arch, Basis, KernelClass, Space};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Name and snapshot of a state.
pub(crate) type State = (&'static str, fn() -> Snapshot);

/// All states.
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

/// The time of all snapshots.
pub(crate) fn now() -> Timestamp {
    "2026-03-14T14:02:11.4Z".parse().unwrap()
}

/// A number of seconds before [`now`].
pub(crate) fn ago(seconds: i64) -> Timestamp {
    now().checked_sub(SignedDuration::from_secs(seconds)).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "the fields are optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

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
        hidden_processes: 0,
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
        block_maps: Some(maps::maps(&processes)),
        sites: None,
        leaks: None,
        flame: Some(flames::flame(&processes)),
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
    let devices = vec![busy_device(0, "n150", (8, 9), 41, 22)];
    let first = tracked_process(48_213, "python3", &all(&devices), 80);
    let mut second = tracked_process(48_977, "llama-serve", &all(&devices), 20);
    second.user = text("jon");
    second.container = text("vllm-0");
    let mut snapshot = snapshot(devices, vec![first, second]);
    snapshot.buffers = Some(page(87, 48_213, &[0]));
    snapshot.events = Some(events());
    snapshot
}

/// An n300: the right device is reached through the left one, and has no sensors.
pub(crate) fn two() -> Snapshot {
    let mut left = busy_device(0, "n300", (8, 8), 78, 30);
    let mut right = busy_device(1, "n300", (8, 8), 12, 61);
    left.board = text("n300 L");
    (right.remote, right.pci, right.node) = (true, None, None);
    right.sensors = None;
    remove_sensor_history(&mut right);
    right.sensors_absent = text("remote device: sensors are read through the device that it is connected to");
    right.firmware = Firmware::default();
    let devices = vec![left, right];
    let both = tracked_process(48_213, "python3", &all(&devices), 90);
    let mut snapshot = snapshot(devices, vec![both]);
    snapshot.buffers = Some(page(5120, 48_213, &[0, 1]));
    snapshot.events = Some(events());
    snapshot
}

/// A T3000, with containers.
pub(crate) fn eight() -> Snapshot {
    let mut devices: Vec<Device> =
        (0..8).map(|n| busy_device(n, "n300", (8, 8), 9 + 12 * u64::from(n), 6 + u64::from(n) * 9)).collect();
    for right in devices.iter_mut().skip(4) {
        (right.remote, right.pci, right.node, right.sensors) = (true, None, None, None);
        remove_sensor_history(right);
        right.sensors_absent =
            text("remote device: sensors are read through the device that it is connected to");
    }
    let mesh = tracked_process(48_213, "python3", &all(&devices), 70);
    let mut half = tracked_process(48_977, "llama-serve", &all(&devices)[..4], 25);
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
    half.summarise_on(&all(&devices));
    let mut counters = process(51_002, "train.py", &all(&devices)[4..]);
    counters.basis = Basis::Counters;
    counters.tracking = Tracking::Counters;
    counters.summary.dram_bytes = Some(512 * MIB);
    counters.summary.l1_bytes = Some(0);
    let untracked = process(51_440, "tt-smi", &[&devices[0]]);
    let mut snapshot = snapshot(devices, vec![mesh, half, counters, untracked]);
    snapshot.buffers = Some(page(1913, 48_213, &[0, 1, 2, 3, 4, 5, 6, 7]));
    snapshot.events = Some(events());
    snapshot.findings = vec![finding(
        FindingKind::TraceOverwrite,
        Severity::Warning,
        "pid 48977 (llama-serve): 3 buffers (18.0 MiB) were allocated after trace 1 was captured; a replay may overwrite them",
    )];
    snapshot
}

/// A simulated galaxy: 32 devices.
pub(crate) fn galaxy() -> Snapshot {
    let mut devices: Vec<Device> = (0..32)
        .map(|n| busy_device(n, "tt-galaxy-wh", (8, 9), u64::from(n) * 37 % 96, u64::from(n) * 23 % 70))
        .collect();
    for device in &mut devices {
        device.capacity = Some(wormhole(72, CapacityOrigin::Simulated));
    }
    let mut processes = vec![tracked_process(48_213, "python3", &all(&devices), 60)];
    for n in 0..8u32 {
        let rank = format!("worker-{n}");
        let mut worker = tracked_process(50_000 + n, &rank, &all(&devices)[n as usize * 4..][..4], 5);
        worker.host.as_mut().unwrap().ancestor_pid = Some(if n % 4 == 3 { 50_000 } else { 48_213 });
        processes.push(worker);
    }
    let mut snapshot = snapshot(devices, processes);
    snapshot.simulated = true;
    let indexes: Vec<u32> = (0..32).collect();
    snapshot.buffers = Some(page(48_231, 48_213, &indexes));
    snapshot.events = Some(events());
    snapshot
}

/// Neither a device nor a process.
pub(crate) fn empty() -> Snapshot {
    let mut snapshot = snapshot(Vec::new(), Vec::new());
    snapshot.host.driver = None;
    snapshot
}

/// Devices that untracked processes have open.
pub(crate) fn untracked() -> Snapshot {
    let devices: Vec<Device> = (0..2)
        .map(|n| {
            let mut device = idle_device(n, "p150", 140);
            device.arch = Some(Arch::Blackhole);
            device.capacity.as_mut().unwrap().origin = CapacityOrigin::Board;
            device
        })
        .collect();
    let first = process(48_213, "python3", &all(&devices));
    let mut second = process(48_977, "python3", &all(&devices)[..1]);
    second.user = text("jon");
    let mut unseen = process(1, "vllm", &all(&devices)[1..]);
    (unseen.pid, unseen.reported_pid, unseen.start) = (None, Some(17), None);
    let mut snapshot = snapshot(devices, vec![first, second, unseen]);
    snapshot.findings = vec![finding(
        FindingKind::Untracked,
        Severity::Info,
        "pid 48213 (python3) has devices 0-1 open and publishes nothing; start it with `ttmem run`",
    )];
    snapshot
}

/// Devices, a process and a buffer of which almost nothing is known.
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
        other_cores: OtherCores::default(),
        ..idle_device(index, "", 0)
    };
    let mut held = bare(1);
    held.sensors = Some(Sensors::default());
    let total = |used_bytes| Total { used_bytes, capacity_bytes: None, basis: Basis::Reported };
    held.usage = Usage {
        dram: Some(BufferUsage {
            occupied_bytes: None,
            allocated_bytes: None,
            count: None,
            basis: Basis::Reported,
            ..buffer_usage(700 * MIB, 0, None)
        }),
        cb: Some(ProgramUsage {
            registered_bytes: 3 * MIB,
            resident_bytes: None,
            residency_unknown_bytes: 0,
            estimated_bytes: 0,
            per_core_bytes: 0,
            by_class: Vec::new(),
            count: None,
            basis: Basis::Reported,
        }),
        // A part is known to be resident; of the rest it is unknown.
        dfb: program_usage(5 * MIB, 256 * KIB, 9).map(|usage| ProgramUsage {
            residency_unknown_bytes: 4 * MIB,
            estimated_bytes: MIB,
            per_core_bytes: 0,
            ..usage
        }),
        dram_total: Some(total(700 * MIB)),
        l1_total: Some(total(7 * MIB + 256 * KIB)),
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
    // As reported by number, without cores and dispatches.
    let nameless = Program {
        id: 0x8000_0000 + 41,
        residency_unknown: true,
        estimated: true,
        dispatches: 0,
        name: None,
        kernels: None,
        site_name: None,
        class: KernelClass::Unknown,
        cores: Vec::new(),
        core_count: 0,
        resident_cores: 0,
        dispatched: None,
        end: None,
        would_clash: false,
        placements: Vec::new(),
        indexes: Vec::new(),
        ..program(0, "", &someone)
    };
    someone.programs = Some(vec![nameless]);
    let mut snapshot = snapshot(devices, vec![someone]);
    snapshot.host = Host::default();
    let mut lone = allocation(1, 0, &[]);
    (lone.pid, lone.occupied_bytes, lone.allocated_bytes, lone.bytes_per_bank) = (None, None, None, None);
    (lone.layout, lone.allocator, lone.banks, lone.basis) = (None, None, None, Basis::Reported);
    (lone.space, lone.unplaced, lone.estimated, lone.program) =
        (Space::Cb, true, true, Some(0x8000_0000 + 41));
    let group = BufferGroup {
        hidden: false,
        pid: None,
        process_name: None,
        space: None,
        program: None,
        program_name: None,
        site: None,
        site_name: None,
        label: None,
        count: 1,
        requested_bytes: lone.requested_bytes,
        used_bytes: lone.requested_bytes,
    };
    snapshot.buffers = Some(Buffers {
        hidden_count: 0,
        hidden_bytes: 0,
        count: 1,
        requested_bytes: lone.requested_bytes,
        used_bytes: lone.requested_bytes,
        offset: 0,
        list: vec![lone],
        group_count: 1,
        groups: vec![group],
    });
    snapshot
}

/// Findings of most kinds.
pub(crate) fn findings() -> Snapshot {
    use FindingKind::{
        Aliased, Counters, DoubleFree, Drift, GhostBytes, InheritedFree, Leak, LostRecords, OutOfMemory,
        OverCapacity, Reclaimed, TraceOverwrite, Truncated, UnknownFree, Untracked,
    };
    let mut devices: Vec<Device> = (0..3).map(|n| busy_device(n, "n150", (8, 9), 60, 20)).collect();
    // More than the capacity.
    devices[0].usage = usage(13 * GIB, 40 * MIB, devices[0].capacity);
    let hot = devices[0].sensors.as_mut().unwrap();
    (hot.asic_celsius, hot.power_watts, hot.thermal_trips) = (Some(91.5), Some(94.0), Some(3));
    let stale = devices[1].sensors.as_mut().unwrap();
    (stale.heartbeat_beats, stale.stale, stale.age_ms) = (Some(false), true, 73_000);
    stale.fan_rpm = None;
    stale.absent.insert("fan_rpm".to_owned(), "this board has no fan of its own".to_owned());
    devices[1].sensors_absent = text("the driver does not answer");
    let mut drifts = tracked_process(48_213, "python3", &all(&devices), 70);
    drifts.audit[0].drift_bytes = -4096;
    drifts.audit[0].free_drift_bytes = Some(4096);
    drifts.audit[1].compared = false;
    drifts.traces[0].endangered_count = 12;
    drifts.traces[0].endangered_bytes = 96 * MIB;
    let mut partial = tracked_process(48_977, "llama-serve", &all(&devices)[1..], 20);
    partial.complete = false;
    partial.tracker.as_mut().unwrap().missing_hooks =
        vec!["Buffer::deallocate".to_owned(), "MeshBuffer::create".to_owned()];
    let mut legacy = process(47_001, "old_client", &all(&devices)[2..]);
    legacy.basis = Basis::Reported;
    legacy.tracking = Tracking::Reported;
    legacy.summary.dram_bytes = Some(0);
    legacy.summary.program_bytes = Some(1000);
    for process in [&mut drifts, &mut partial] {
        process.summarise_on(&all(&devices));
    }
    let untracked = process(51_440, "tt-smi", &all(&devices)[..1]);
    let mut snapshot = snapshot(devices, vec![drifts, partial, legacy, untracked]);
    let finding = |kind, severity, pid: Option<u32>, count, text: &str| Finding {
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
    snapshot.findings = vec![
        finding(OverCapacity, error, None, 1, "device 0: 13.8 GiB of DRAM in use, capacity 12.0 GiB"),
        finding(
            Drift,
            error,
            Some(48_213),
            1,
            "drift on allocator 1, DRAM: ttmem − runtime = −4,096 bytes; pid 48213 (python3)",
        ),
        finding(
            Aliased,
            error,
            Some(48_977),
            1,
            "devices 1-2: two allocators of pid 48977 (llama-serve) hold the same 2.1 MiB of L1",
        ),
        finding(
            LostRecords,
            error,
            Some(48_977),
            7,
            "pid 48977 (llama-serve): 7 records were overwritten before they were read",
        ),
        finding(
            TraceOverwrite,
            warning,
            Some(48_213),
            1,
            "pid 48213 (python3): 12 buffers (96.0 MiB) were allocated after trace 0 was captured; a replay may overwrite them",
        ),
        finding(DoubleFree, warning, Some(48_213), 2, "double free x2 (last 0x1f4000): pid 48213 (python3)"),
        finding(
            OutOfMemory,
            warning,
            Some(48_977),
            123_456,
            "out of memory x123456: pid 48977 (llama-serve --model /models/llama-3.1-70b --tensor-parallel 8) requested 2.0 GiB of DRAM on device 1; largest free block 38.0 MiB per bank",
        ),
        finding(
            Leak,
            warning,
            Some(47_001),
            1,
            "pid 47001 (old_client): DRAM has grown for 10 minutes without a free",
        ),
        finding(Counters, warning, None, 1, "device 2: tt-metal counters not readable: permission denied"),
        finding(
            Reclaimed,
            info,
            Some(46_000),
            1,
            "pid 46000 exited with 3.2 GiB in 612 allocations still allocated; reclaimed",
        ),
        finding(
            UnknownFree,
            info,
            Some(48_213),
            31,
            "pid 48213 (python3) freed unknown buffers x31; they may predate tracking",
        ),
        finding(
            InheritedFree,
            info,
            Some(48_214),
            4,
            "pid 48214 was forked and freed buffers of its parent x4",
        ),
        finding(
            GhostBytes,
            info,
            None,
            1,
            "device 2: exited processes left 77.0 MiB in the tt-metal counters",
        ),
        finding(
            Untracked,
            info,
            Some(51_440),
            1,
            "pid 51440 (tt-smi) has device 0 open and publishes nothing",
        ),
        finding(Truncated, info, None, 1, "too many findings: 3 were dropped"),
    ];
    snapshot.health.lost_records = 7;
    snapshot.health.skipped =
        vec![Skipped { path: "/dev/shm/ttmem-9".to_owned(), reason: "version 9 is too new".to_owned() }];
    snapshot.buffers = Some(page(87, 48_213, &[0, 1, 2]));
    snapshot.events = Some(events());
    snapshot
}
