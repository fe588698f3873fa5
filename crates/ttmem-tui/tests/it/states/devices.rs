//! Devices: their sensors, memory, history and cores.

use super::{GIB, KIB, MIB, ago, now, text};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::Arc;
use ttmem_core::machine::{
    Capacity, CapacityOrigin, CoreLayout, DispatchCores, EthernetCores, Firmware, OtherCores, PcieRates,
    SensorLimits, Sensors,
};
use ttmem_core::snapshot::{
    BufferUsage, Core, CoreAllocation, CoreAllocations, CoreClass, CorePeak, CoreProgram, CoreRoom, Cores,
    Device, History, Holder, Interval, KernelClassUsage, Peak, ProgramUsage, Sample, SensorSample, Total,
    Usage,
};
use ttmem_core::words::{Arch, Basis, KernelClass, Space};

pub(super) fn wormhole(cores: u32, origin: CapacityOrigin) -> Capacity {
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

/// An idle device of which everything is known.
pub(super) fn idle_device(index: u32, board: &str, cores: u32) -> Device {
    Device {
        id: format!("0x{:016x}", 0x0100_0144_1181_1000 + u64::from(index)),
        index,
        arch: Some(Arch::WormholeB0),
        board: text(board),
        remote: false,
        inferred: false,
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
        other_cores: OtherCores {
            dispatch: cores.checked_sub(8).map(|program_cores| DispatchCores {
                program_cores,
                cores: 8,
                rows: Some([program_cores as u8 / 8; 2]),
                columns: None,
                l1_bytes: 8 * (1464 << 10),
                origin: CapacityOrigin::Runtime,
            }),
            ethernet: Some(EthernetCores {
                cores: 16,
                l1_bytes_per_core: 256 << 10,
                l1_bytes: 4 << 20,
                origin: CapacityOrigin::Board,
            }),
        },
        cores: None,
        history: None,
    }
}

pub(super) fn sensors(index: u32) -> Sensors {
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

pub(super) fn buffer_usage(used_bytes: u64, count: u64, allocatable: Option<u64>) -> BufferUsage {
    let free = allocatable.map(|bytes| bytes.saturating_sub(used_bytes));
    BufferUsage {
        used_bytes,
        requested_bytes: used_bytes - used_bytes / 50,
        occupied_bytes: Some(used_bytes - used_bytes / 100),
        allocated_bytes: Some(used_bytes),
        allocatable_bytes: allocatable,
        free_bytes: free,
        largest_free_bytes_per_bank: free.map(|free| free / 20),
        fragmentation_percent: None,
        peak_bytes: used_bytes + used_bytes / 8,
        count: Some(count),
        basis: Basis::Exact,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the fields are optional")]
pub(super) fn program_usage(registered_bytes: u64, resident_bytes: u64, count: u64) -> Option<ProgramUsage> {
    Some(ProgramUsage {
        registered_bytes,
        resident_bytes: Some(resident_bytes),
        residency_unknown_bytes: 0,
        estimated_bytes: 0,
        per_core_bytes: 0,
        by_class: Vec::new(),
        count: Some(count),
        basis: Basis::Exact,
    })
}

fn kernels(class: KernelClass, registered_bytes: u64, resident_bytes: u64) -> KernelClassUsage {
    KernelClassUsage { class, registered_bytes, resident_bytes: Some(resident_bytes) }
}

/// Usage with memory in every space.
pub(super) fn usage(dram: u64, l1: u64, capacity: Option<Capacity>) -> Usage {
    let trace = dram / 16;
    let (l1_small, single) = (96 * KIB, 640 * KIB);
    let (cb, dfb, scratch, kernel) = (l1 / 3, 512 * KIB, 128 * KIB, 900 * KIB);
    let l1_total = l1 + l1_small + single + cb + dfb + scratch;
    Usage {
        dram: Some(buffer_usage(dram, 214, capacity.and_then(|it| it.dram_allocatable_bytes))),
        l1: Some(buffer_usage(l1, 37, capacity.and_then(|it| it.l1_allocatable_bytes))),
        l1_small: Some(buffer_usage(l1_small, 3, None)),
        l1_core: Some(buffer_usage(single, 1, None)),
        trace: Some(buffer_usage(trace, 1, None)),
        host: Some(buffer_usage(64 * MIB, 2, None)),
        cb: program_usage(cb * 3, cb, 91),
        dfb: program_usage(dfb * 2, dfb, 4),
        scratch: program_usage(scratch, scratch, 2),
        kernel: program_usage(kernel * 6, kernel, 48).map(|usage| ProgramUsage {
            by_class: vec![
                kernels(KernelClass::Application, kernel * 5, kernel - 64 * KIB),
                kernels(KernelClass::Dispatch, kernel, 64 * KIB),
            ],
            ..usage
        }),
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

/// A device in use; `dram` and `l1` are the shares that buffers hold, in percent.
pub(super) fn busy_device(index: u32, board: &str, (columns, rows): (u8, u8), dram: u64, l1: u64) -> Device {
    let cores = u32::from(columns) * u32::from(rows);
    let mut device = idle_device(index, board, cores);
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

pub(super) fn remove_sensor_history(device: &mut Device) {
    let history = device.history.take().unwrap();
    device.history =
        Some(History { asic_celsius: Vec::new(), power_watts: Vec::new(), aiclk_mhz: Vec::new(), ..history });
}

/// Readings of a sensor once a second; the newest has this value, in thousandths of its unit.
pub(super) fn readings(thousandths: u64, phase: u32) -> Vec<SensorSample> {
    let value = |parts: u64| parts as f64 / 1000.0;
    let sample = |Sample { at, min_bytes, mean_bytes, max_bytes }| SensorSample {
        at,
        min: value(min_bytes),
        mean: value(mean_bytes),
        max: value(max_bytes),
    };
    wave(thousandths, phase, false).into_iter().step_by(2).map(sample).collect()
}

/// Samples of a wave, the newest at `bytes`; with or without a gap.
pub(super) fn wave(bytes: u64, phase: u32, gap: bool) -> Vec<Sample> {
    const STEPS: i64 = 240;
    (0..STEPS)
        .filter(|n| !gap || !(110..170).contains(n))
        .map(|n| {
            let phase = (i64::from(phase) * 7 + n).rem_euclid(48);
            let height = 70 + if phase < 24 { phase } else { 48 - phase } as u64;
            let mean_bytes = if n + 1 == STEPS { bytes } else { bytes / 100 * height };
            let swing = bytes / 64;
            let at = now().checked_sub(SignedDuration::from_millis((STEPS - 1 - n) * 500)).unwrap();
            Sample { at, min_bytes: mean_bytes.saturating_sub(swing), mean_bytes, max_bytes: mean_bytes }
        })
        .collect()
}

/// Cores from empty to almost full; some have address ranges of all classes.
pub(super) fn core_maps(device: u32, layout: &CoreLayout) -> Cores {
    let mut cores = Vec::new();
    for y in 0..layout.rows {
        for x in 0..layout.columns {
            let n = u64::from(x) * 7 + u64::from(y) * 13 + u64::from(device) * 5;
            let cb = (n % 5 > 0).then_some(n % 5 * 48 * KIB);
            let buffers = n % 20 * 55 * KIB;
            cores.push(core(x, y, layout, cb, buffers));
        }
    }
    Cores(cores)
}

pub(super) fn core(x: u8, y: u8, layout: &CoreLayout, cb: Option<u64>, buffers: u64) -> Core {
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
    let lowest_buffer = (small - buffers).max(program_end);
    put(CoreClass::Free, lowest_buffer);
    let lockstep = if x % 2 == 1 { (small - lowest_buffer) / 3 } else { 0 };
    put(CoreClass::Lockstep, lowest_buffer + lockstep);
    put(CoreClass::Buffer, small);
    put(CoreClass::L1SmallFree, small + 20 * KIB);
    put(CoreClass::L1Small, layout.end);
    let program = |_| CoreProgram {
        hidden: false,
        pid: Some(48_213),
        allocator: Some(1),
        id: 17,
        name: text("ttnn.matmul"),
    };
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
            hidden: false,
            bytes: small - lowest_buffer + 96 * KIB,
            buffer_bytes: small - lowest_buffer,
            at: ago(61),
            pid: Some(48_213),
            program: Some(17),
            program_name: text("ttnn.matmul"),
        }),
    }
}

/// The allocations on the core with the smallest free gap.
pub(super) fn owners(device: &Device) -> Option<CoreAllocations> {
    let CoreRoom { x, y, .. } = device.tightest_core?;
    let core = device.cores.as_ref()?.iter().find(|it| (it.room.x, it.room.y) == (x, y))?;
    let allocation = |class: CoreClass, start: u64, bytes: u64, site: Option<&str>| CoreAllocation {
        class,
        start,
        bytes,
        pid: Some(48_213),
        process_name: text("python3"),
        program: site.is_none().then_some(17),
        program_name: site.is_none().then(|| "ttnn.matmul".to_owned()),
        site_name: site.map(str::to_owned),
        op: site.map(|_| "ttnn.linear".to_owned()),
    };
    let mut list = Vec::new();
    for &Interval { class, start, bytes } in core.intervals.iter() {
        match class {
            CoreClass::Cb | CoreClass::Dfb | CoreClass::Scratch => {
                list.push(allocation(class, start, bytes, None));
            }
            CoreClass::Buffer => {
                let half = bytes / 2;
                let sites = ["attention.py:118 (forward)", "mlp.py:64 (forward)"];
                list.push(allocation(class, start, half, Some(sites[0])));
                list.push(allocation(class, start + half, bytes - half, Some(sites[1])));
            }
            CoreClass::Lockstep => {
                list.push(allocation(class, start, bytes, Some("mlp.py:71")));
            }
            _ => {}
        }
    }
    Some(CoreAllocations { hidden_count: 0, device: device.index, x, y, count: list.len() as u64, list })
}
