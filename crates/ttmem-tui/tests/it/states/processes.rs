//! Processes and their programs.

use super::devices::{buffer_usage, usage};
use super::{KIB, MIB, ago, text};
use ttmem_core::snapshot::{
    AllocatorSpace, AllocatorUsage, AuditResult, Device, HostUsage, Mark, Placement, Process, ProcessUsage,
    Program, Summary, Trace, Tracker, Tracking,
};
use ttmem_core::words::{Basis, KernelClass, Space};

/// An untracked process that has these devices open.
pub(crate) fn process(pid: u32, name: &str, devices: &[&Device]) -> Process {
    Process {
        uid: None,
        pid: Some(pid),
        reported_pid: None,
        start: Some(ago(i64::from(pid % 5000))),
        name: text(name),
        command: Some(format!("{name} -u serve.py --port 8000 --mesh {}", devices.len())),
        user: text("mia"),
        container: None,
        pod: None,
        hidden: false,
        open_devices: devices.iter().map(|it| it.id.clone()).collect(),
        tracking: Tracking::Untracked,
        basis: Basis::Unknown,
        complete: false,
        sequence: None,
        tracker: None,
        summary: Summary { indexes: devices.iter().map(|it| it.index).collect(), ..Summary::default() },
        usage: Vec::new(),
        allocators: Vec::new(),
        audit: Vec::new(),
        traces: Vec::new(),
        last_mark: None,
        programs: None,
        host: None,
    }
}

/// A process with the agent, which holds a share of the memory in use on its devices, in percent.
pub(super) fn tracked_process(pid: u32, name: &str, devices: &[&Device], share: u64) -> Process {
    let mut process = process(pid, name, devices);
    (process.basis, process.complete, process.sequence) = (Basis::Exact, true, Some(48_211));
    process.last_mark = Some(Mark { name: text("step"), number: Some(12), at: ago(3), compared: 12 });
    process.tracker = Some(Tracker {
        writer: "ttmem-agent 0.1.0".to_owned(),
        runtime: text("ttnn 0.65.1"),
        hooks: 31,
        missing_hooks: Vec::new(),
        cost_seconds: Some(0.0473),
        left_out: 0,
    });
    let part = |device: &Device| {
        let used = |space| device.usage.used(space).map_or(0, |it| it.0);
        usage(used(Space::Dram) / 100 * share, used(Space::L1) / 100 * share, device.capacity)
    };
    process.usage = devices
        .iter()
        .map(|device| ProcessUsage { device: device.id.clone(), usage: part(device) })
        .collect();
    let space = |space, banks: u16, base, bytes_per_bank| {
        let used = process.usage.first().and_then(|it| it.usage.used(space)).map_or(0, |it| it.0);
        let allocatable = u64::from(banks) * bytes_per_bank;
        AllocatorSpace {
            space,
            banks,
            base,
            largest_free_block_addrs: Vec::new(),
            bytes_per_bank,
            usage: buffer_usage(used, 41, Some(allocatable)),
        }
    };
    let spaces = vec![space(Space::Dram, 12, 0x20, 992 * MIB), space(Space::L1, 64, 0x1_9900, 1362 * KIB)];
    process.audit = spaces
        .iter()
        .map(|AllocatorSpace { space, usage, .. }| AuditResult {
            allocator: 1,
            devices: Vec::new(),
            space: *space,
            drift_bytes: 0,
            free_drift_bytes: Some(0),
            largest_free_drift_bytes: Some(0),
            compared: true,
            allocated_bytes: usage.used_bytes,
            free_bytes: usage.free_bytes.unwrap_or(0),
            largest_free_bytes_per_bank: usage.largest_free_bytes_per_bank.unwrap_or(0),
            sequence: 48_000,
        })
        .collect();
    let ids: Vec<String> = process.open_devices.clone();
    process.allocators = vec![AllocatorUsage { id: 1, devices: ids.clone(), spaces }];
    process.traces = vec![Trace {
        id: 0,
        allocator: 1,
        devices: ids,
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
    process.host = Some(HostUsage {
        cpu_percent: Some(f64::from(pid % 7) * 37.5),
        rss_bytes: u64::from(pid % 90) * 100 * MIB,
        parent_pid: Some(1200),
        ancestor_pid: None,
    });
    process.programs = Some((0..12).map(|n| program(n, names[n as usize % names.len()], &process)).collect());
    process.summarise_on(devices);
    process
}

pub(super) trait SummariseOn {
    /// Recomputes the summary of a process on these devices.
    fn summarise_on(&mut self, devices: &[&Device]);
}

impl SummariseOn for Process {
    fn summarise_on(&mut self, devices: &[&Device]) {
        self.summarise(|id| devices.iter().find(|it| it.id == id).map(|it| it.index));
    }
}

pub(super) fn program(id: u32, name: &str, process: &Process) -> Program {
    let n = u64::from(id);
    let cores = if id.is_multiple_of(3) { vec![[0, 0, 7, 7]] } else { vec![[0, 0, 7, 3], [0, 4, 2, 4]] };
    let core_count = if id.is_multiple_of(3) { 64 } else { 35 };
    let devices = process.summary.indexes.len() as u32;
    let cb = (24 + n * 16) * KIB;
    let placement = |space, address, bytes, view| {
        let address = Some(address);
        Placement { space, address, bytes, cores: cores.clone(), view, count: 1 }
    };
    Program {
        id: id + 11,
        allocator: Some(1),
        devices: process.open_devices.clone(),
        indexes: process.summary.indexes.clone(),
        name: (id != 9).then(|| name.to_owned()),
        kernels: (id != 9).then(|| "reader_bmm+bmm_large+writer_bmm".to_owned()),
        site_name: (id % 5 != 4).then(|| format!("model.py:{} (Attention.forward)", 40 + id)),
        class: if id == 9 { KernelClass::Dispatch } else { KernelClass::Application },
        cores: cores.clone(),
        core_count,
        resident_cores: match id {
            0 => core_count * devices,
            1..=3 => 7 * id * devices,
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
        would_clash: false,
        placements: vec![
            placement(Space::Kernel, 0x8240, (6 + n) * 1000, false),
            placement(Space::Cb, 0x1_9900, cb / 2, false),
            placement(Space::Cb, 0x1_9900 + cb / 2, cb / 2, false),
            placement(Space::Cb, 0x15_0000, 16 * KIB, true),
        ],
    }
}
