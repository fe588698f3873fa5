//! The fields and tables of devices.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::{DASH, percent, share, size};
use crate::process::uses_device;
use crate::value::{Reading, Tone, Unit, Value};
use ttmem_core::Snapshot;
use ttmem_core::machine::{CapacityOrigin, PcieRates, SensorLimits, Sensors};
use ttmem_core::snapshot::{Device, Finding, FindingKind, Total, Tracking};
use ttmem_core::words::{Arch, Space};

/// Rows of devices.
#[derive(Debug)]
pub enum Devices {}

impl RowKind for Devices {
    type Row<'a> = Row<'a>;
}

/// A row of a list of devices.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The snapshot that has the device, for its processes and findings.
    pub snapshot: &'a Snapshot,
    /// The device.
    pub device: &'a Device,
}

type DeviceField = Field<Devices>;

const fn field(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Devices> {
    Field::<Devices>::new(name, unit, help, value)
}

const fn text(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Devices> {
    Field::<Devices>::new(name, Unit::None, help, value)
}

const fn bytes(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Devices> {
    Field::<Devices>::new(name, Unit::Bytes, help, value)
}

/// The fields of a device.
pub static FIELDS: &[DeviceField] = &[
    text("timestamp", "time of the snapshot", |r| Value::Time(r.snapshot.at)).queried(),
    text("host", "host name", |r| Value::text(r.snapshot.host.name.as_deref())).queried(),
    text("driver", "kernel driver version", |r| Value::text(r.snapshot.host.driver.as_deref())).queried(),
    text("index", "device index, as runtimes number devices", |r| Value::Count(r.device.index.into()))
        .queried(),
    text("id", "unique id", |r| Value::text(Some(&r.device.id))).queried(),
    text("arch", "architecture", |r| r.device.arch.map_or(Value::Unknown, |it| Value::Name(it.title())))
        .queried(),
    text("board", "board", |r| Value::text(r.device.board.as_deref())).queried(),
    text("remote", "true if reached through another device", |r| {
        Value::Name(if r.device.remote { "true" } else { "false" })
    })
    .queried(),
    text("pci", "PCI address", |r| Value::text(r.device.pci.as_deref())).queried(),
    text("node", "N of /dev/tenstorrent/N", |r| Value::count(r.device.node.map(u64::from))).queried(),
    text("serial", "board serial number", |r| Value::text(r.device.serial.as_deref())).queried(),
    text("firmware", "firmware bundle version", |r| Value::text(r.device.firmware.bundle.as_deref()))
        .queried(),
    field("asic_celsius", Unit::Celsius, "ASIC temperature", |r| {
        reading(r, |it| it.asic_celsius, |it| it.asic_celsius)
    })
    .queried(),
    field("power_watts", Unit::Watts, "core power", |r| reading(r, |it| it.power_watts, |it| it.power_watts))
        .queried(),
    field("current_amperes", Unit::Amperes, "core current", |r| {
        reading(r, |it| it.current_amperes, |it| it.current_amperes)
    })
    .queried(),
    field("vcore_volts", Unit::Volts, "core voltage", |r| {
        reading(r, |it| it.vcore_volts, |it| it.vcore_volts)
    })
    .queried(),
    field("aiclk_mhz", Unit::Megahertz, "Tensix core clock (AICLK)", |r| {
        reading(r, |it| it.aiclk_mhz, |_| None)
    })
    .queried(),
    field("axiclk_mhz", Unit::Megahertz, "AXI clock", |r| reading(r, |it| it.axiclk_mhz, |_| None)).queried(),
    field("arcclk_mhz", Unit::Megahertz, "ARC clock", |r| reading(r, |it| it.arcclk_mhz, |_| None)).queried(),
    field("fan_rpm", Unit::Rpm, "fan speed", |r| reading(r, |it| it.fan_rpm, |_| None)).queried(),
    text("heartbeat", "firmware heartbeat counter", |r| {
        Value::count(r.device.sensors.as_ref().and_then(|it| it.heartbeat))
    })
    .queried(),
    text("cores", "Tensix cores, without harvested ones", |r| {
        Value::count(r.device.capacity.map(|it| it.cores.into()))
    })
    .queried(),
    text("capacity_origin", "origin of the capacities: board, descriptor, runtime or simulated", |r| {
        r.device.capacity.map_or(Value::Unknown, |it| Value::Name(origin(it.origin)))
    })
    .queried(),
    bytes("dram_used_bytes", "DRAM in use", |r| used(r.device.usage.dram_total.as_ref())).queried(),
    bytes("dram_total_bytes", "DRAM capacity", |r| Value::bytes(dram_capacity(r.device))).queried(),
    bytes("dram_allocatable_bytes", "DRAM that tt-metal can allocate", |r| {
        Value::bytes(r.device.capacity.and_then(|it| it.dram_allocatable_bytes))
    })
    .queried(),
    bytes("l1_used_bytes", "L1 in use", |r| used(r.device.usage.l1_total.as_ref())).queried(),
    bytes("l1_total_bytes", "L1 capacity", |r| Value::bytes(l1_capacity(r.device))).queried(),
    bytes("l1_allocatable_bytes", "L1 that tt-metal can allocate", |r| {
        Value::bytes(r.device.capacity.and_then(|it| it.l1_allocatable_bytes))
    })
    .queried(),
    bytes("l1_small_used_bytes", "L1_SMALL in use", |r| space(r, Space::L1Small)).queried(),
    bytes("trace_used_bytes", "trace region in use", |r| space(r, Space::Trace)).queried(),
    bytes("cb_used_bytes", "circular buffers in use", |r| space(r, Space::Cb)).queried(),
    bytes("dfb_used_bytes", "dataflow buffers in use", |r| space(r, Space::Dfb)).queried(),
    bytes("scratch_used_bytes", "scratchpads in use", |r| space(r, Space::Scratch)).queried(),
    bytes(
        "l1_free_gap_bytes",
        "smallest free gap between program memory and the lowest L1 buffer of a core",
        |r| Value::bytes(r.device.tightest_core.map(|it| it.free_gap_bytes)),
    )
    .queried(),
    bytes("kernel_used_bytes", "kernels in use", |r| space(r, Space::Kernel)).queried(),
    text("dram_basis", "basis of DRAM in use: exact, counters or reported", |r| {
        basis(r.device.usage.dram_total.as_ref())
    })
    .queried(),
    text("l1_basis", "basis of L1 in use: exact, counters or reported", |r| {
        basis(r.device.usage.l1_total.as_ref())
    })
    .queried(),
    text("processes", "number of processes that use it", |r| {
        Value::Count(r.snapshot.processes.iter().filter(|it| uses_device(it, r.device)).count() as u64)
    })
    .queried(),
    text("dram_usage", "DRAM in use and capacity", |r| {
        amount(r, r.device.usage.dram_total.as_ref(), dram_capacity(r.device))
    }),
    text("l1_usage", "L1 in use and capacity", |r| {
        amount(r, r.device.usage.l1_total.as_ref(), l1_capacity(r.device))
    }),
    field("dram_share", Unit::Percent, "share of DRAM in use", |r| {
        used_share(r.device.usage.dram_total.as_ref(), dram_capacity(r.device))
    }),
    field("l1_share", Unit::Percent, "share of L1 in use", |r| {
        used_share(r.device.usage.l1_total.as_ref(), l1_capacity(r.device))
    }),
    text("tracking", "tracking of its processes, the weakest of them", |r| {
        tracking(r).map_or(Value::Nothing, Value::Tracking)
    }),
    field("asic_celsius_limit", Unit::Celsius, "temperature at which the device throttles", |r| {
        limit(r, |it| it.asic_celsius)
    }),
    field("power_watts_limit", Unit::Watts, "power limit", |r| limit(r, |it| it.power_watts)),
    field("current_amperes_limit", Unit::Amperes, "current limit", |r| limit(r, |it| it.current_amperes)),
    field("vcore_volts_limit", Unit::Volts, "voltage limit", |r| limit(r, |it| it.vcore_volts)),
    text("heartbeat_beats", "whether the firmware heartbeat changes", |r| {
        match r.device.sensors.as_ref().and_then(|it| it.heartbeat_beats) {
            Some(true) => Value::Name("ok"),
            Some(false) => Value::Name("STOPPED"),
            None => Value::Unknown,
        }
    }),
    text("thermal_trips", "thermal shutdowns since power-on", |r| {
        Value::count(r.device.sensors.as_ref().and_then(|it| it.thermal_trips))
    }),
    field("pcie_to_device", Unit::BytesPerSecond, "PCIe traffic to the device", |r| {
        traffic(r, |it| [it.host_writes_bytes_per_second, it.device_reads_bytes_per_second])
    }),
    field("pcie_to_host", Unit::BytesPerSecond, "PCIe traffic to the host", |r| {
        traffic(r, |it| [it.host_reads_bytes_per_second, it.device_writes_bytes_per_second])
    }),
    field("sensors_age", Unit::Seconds, "age of the sensor values", |r| {
        r.device.sensors.as_ref().map_or(Value::Unknown, |it| Value::Seconds(it.age_ms as f64 / 1e3))
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Devices> {
    Column::page(find_field(FIELDS, name), title, width)
}

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Devices> {
    Column::screen(find_field(FIELDS, name), title, width)
}

/// The table of `ttmem`. A column with the indexes of the devices comes before it.
pub static TABLE: &[Column<Devices>] = &[
    page("board", "Board", 16).suffix(remote_suffix).cut(),
    page("asic_celsius", "Temp", 0).right().format(Format::Whole),
    page("power_watts", "Power", 0).right().format(Format::Whole),
    page("aiclk_mhz", "MHz", 0).right().format(Format::Bare),
    page("dram_share", "DRAM", 4).grows(16).format(Format::Meter).apart(),
    page("dram_usage", "Used/Total", 0).right().unknown("N/A / ").nothing("idle / "),
    page("dram_share", "%", 0).right().format(Format::Decimals(1)).unknown(""),
    page("l1_share", "L1", 4).grows(16).format(Format::Meter).apart(),
    page("l1_usage", "Used/Total", 0).right().unknown("N/A / ").nothing("idle / "),
    page("l1_share", "%", 0).right().format(Format::Decimals(1)).unknown(""),
];

/// The devices of the dashboard's first view.
pub static SCREEN: &[Column<Devices>] = &[
    screen("index", "#", 2).right(),
    screen("board", "Board", 8).grows(7).suffix(remote_suffix).tone(|_| Tone::Plain),
    screen("arch", "Arch", 9).drop(5).faint(),
    screen("asic_celsius", "°C", 5).right(),
    screen("power_watts", "W", 5).right(),
    screen("aiclk_mhz", "MHz", 5).right(),
    screen("dram_share", "DRAM", 6).grows(30).format(Format::Meter),
    screen("dram_used_bytes", "used", 10).right(),
    screen("dram_total_bytes", "of", 9).drop(3).right().faint(),
    screen("dram_share", "%", 5).drop(2).right().format(Format::Decimals(1)),
    screen("l1_share", "L1", 5).grows(31).format(Format::Meter),
    screen("l1_used_bytes", "used", 10).right(),
    screen("l1_total_bytes", "of", 9).drop(4).right().faint(),
    screen("l1_share", "%", 5).drop(1).right().format(Format::Decimals(1)),
    screen("tracking", "Tracking", 9).grows(4).nothing("idle"),
];

/// The sensors of the dashboard's third view.
pub static TELEMETRY: &[Column<Devices>] = &[
    screen("index", "#", 2).right(),
    screen("board", "Board", 8).grows(6).suffix(remote_suffix).tone(|_| Tone::Plain),
    screen("asic_celsius", "°C", 5).right(),
    screen("asic_celsius_limit", "max", 4).drop(3).right().format(Format::Decimals(0)).faint(),
    screen("power_watts", "W", 6).right(),
    screen("power_watts_limit", "max", 4).drop(4).right().format(Format::Decimals(0)).faint(),
    screen("current_amperes", "A", 6).right(),
    screen("current_amperes_limit", "max", 4).drop(7).right().format(Format::Decimals(0)).faint(),
    screen("vcore_volts", "V", 5).right(),
    screen("vcore_volts_limit", "max", 5).drop(10).right().format(Format::Decimals(3)).faint(),
    screen("aiclk_mhz", "AI MHz", 6).right(),
    screen("axiclk_mhz", "AXI MHz", 7).drop(8).right(),
    screen("arcclk_mhz", "ARC MHz", 7).drop(9).right(),
    screen("fan_rpm", "Fan rpm", 7).drop(6).right(),
    screen("heartbeat_beats", "Heartbeat", 9).drop(2).tone(|r| {
        match r.device.sensors.as_ref().and_then(|it| it.heartbeat_beats) {
            Some(true) => Tone::Good,
            Some(false) => Tone::Bad,
            None => Tone::Faint,
        }
    }),
    screen("thermal_trips", "Trips", 5).drop(1).right().tone(|r| {
        match r.device.sensors.as_ref().and_then(|it| it.thermal_trips) {
            None => Tone::Faint,
            Some(0) => Tone::Plain,
            Some(_) => Tone::Bad,
        }
    }),
    screen("pcie_to_device", "to device", 12).drop(11).right(),
    screen("pcie_to_host", "to host", 12).drop(12).right(),
    screen("sensors_age", "Age", 5).right().format(Format::Short).tone(|r| {
        if r.device.sensors.as_ref().is_some_and(|it| it.stale) { Tone::Warn } else { Tone::Faint }
    }),
];

/// Sensors with a single reading and their names, in the order of the details.
pub static SENSORS: [(&str, &DeviceField); 8] = [
    ("Temperature", find_field(FIELDS, "asic_celsius")),
    ("Power", find_field(FIELDS, "power_watts")),
    ("Current", find_field(FIELDS, "current_amperes")),
    ("Core voltage", find_field(FIELDS, "vcore_volts")),
    ("AICLK", find_field(FIELDS, "aiclk_mhz")),
    ("AXICLK", find_field(FIELDS, "axiclk_mhz")),
    ("ARCCLK", find_field(FIELDS, "arcclk_mhz")),
    ("Fan", find_field(FIELDS, "fan_rpm")),
];

/// The architecture of a device, for headings.
pub fn arch_title(device: &Device) -> &'static str {
    device.arch.map_or("Unknown", Arch::title)
}

/// A device by its index and board, as `0 n300 R`.
pub fn index_and_board(device: &Device) -> String {
    let board = device.board.as_deref().unwrap_or("unknown board");
    format!("{} {board}{}", device.index, if device.remote { " R" } else { "" })
}

/// DRAM capacity of a device.
pub fn dram_capacity(device: &Device) -> Option<u64> {
    let total = device.usage.dram_total.as_ref().and_then(|it| it.capacity_bytes);
    total.or(device.capacity.map(|it| it.dram_bytes))
}

/// L1 capacity of a device.
pub fn l1_capacity(device: &Device) -> Option<u64> {
    let total = device.usage.l1_total.as_ref().and_then(|it| it.capacity_bytes);
    total.or(device.capacity.map(|it| it.l1_bytes))
}

fn remote_suffix(row: &Row<'_>) -> &'static str {
    if row.device.remote { " R" } else { "" }
}

fn reading(
    row: &Row<'_>,
    value: fn(&Sensors) -> Option<f64>,
    limit: fn(&SensorLimits) -> Option<f64>,
) -> Value<'static> {
    let read = |sensors: &Sensors| {
        let Sensors { limits, stale, .. } = sensors;
        Some(Value::Reading(Reading { value: value(sensors)?, limit: limit(limits), stale: *stale }))
    };
    row.device.sensors.as_ref().and_then(read).unwrap_or(Value::Unknown)
}

fn limit(row: &Row<'_>, limit: fn(&SensorLimits) -> Option<f64>) -> Value<'static> {
    Value::number(row.device.sensors.as_ref().and_then(|it| limit(&it.limits)))
}

/// The sum of two PCIe rates.
fn traffic(row: &Row<'_>, parts: fn(&PcieRates) -> [Option<f64>; 2]) -> Value<'static> {
    let pcie = row.device.sensors.as_ref().and_then(|it| it.pcie.as_ref());
    let known = pcie.into_iter().flat_map(parts).flatten();
    known.reduce(|sum, it| sum + it).map_or(Value::Unknown, Value::Number)
}

fn used(total: Option<&Total>) -> Value<'static> {
    Value::bytes(total.map(|it| it.used_bytes))
}

fn basis(total: Option<&Total>) -> Value<'static> {
    total.map_or(Value::Unknown, |it| Value::Name(it.basis.name()))
}

fn space(row: &Row<'_>, space: Space) -> Value<'static> {
    Value::bytes(row.device.usage.used(space).map(|it| it.0))
}

/// Used bytes and capacity. Unknown use is not zero use.
fn amount(row: &Row<'_>, total: Option<&Total>, capacity: Option<u64>) -> Value<'static> {
    let idle = is_idle(row);
    Value::Amount { used: total.filter(|_| !idle).map(|it| it.used_bytes), total: capacity, idle }
}

/// Whether no process has the device open, visible or not, and no memory of it is in use.
pub fn is_idle(row: &Row<'_>) -> bool {
    let totals = [&row.device.usage.dram_total, &row.device.usage.l1_total];
    let is_hidden_process = |finding: &Finding| {
        finding.kind == FindingKind::Untracked && finding.device.as_deref() == Some(row.device.id.as_str())
    };
    totals.into_iter().flatten().all(|it| it.used_bytes == 0)
        && !row.snapshot.processes.iter().any(|it| uses_device(it, row.device))
        && !row.snapshot.findings.iter().any(is_hidden_process)
}

/// The devices in the order of their indexes. Neighbours whose rows in [`TABLE`] are equal share one.
pub fn fold_equal_rows(snapshot: &Snapshot) -> Vec<(Vec<u32>, Row<'_>)> {
    let mut folded: Vec<(Vec<u32>, Row<'_>)> = Vec::new();
    for device in &snapshot.devices {
        let row = Row { snapshot, device };
        match folded.last_mut() {
            Some((indexes, last)) if TABLE.iter().all(|it| it.cell(last).0 == it.cell(&row).0) => {
                indexes.push(device.index);
            }
            _ => folded.push((vec![device.index], row)),
        }
    }
    folded
}

fn used_share(total: Option<&Total>, capacity: Option<u64>) -> Value<'static> {
    total.and_then(|it| share(it.used_bytes, capacity)).map_or(Value::Unknown, Value::Share)
}

/// The JSON name of an origin.
fn origin(origin: CapacityOrigin) -> &'static str {
    match origin {
        CapacityOrigin::Board => "board",
        CapacityOrigin::Descriptor => "descriptor",
        CapacityOrigin::Runtime => "runtime",
        CapacityOrigin::Simulated => "simulated",
    }
}

fn tracking(row: &Row<'_>) -> Option<Tracking> {
    let here = row.snapshot.processes.iter().filter(|it| it.summary.indexes.contains(&row.device.index));
    here.map(|process| process.tracking).max()
}

/// Use and capacity of a memory, as `1.2 GiB of 12.0 GiB  10.3 %`.
pub fn format_total(total: Option<&Total>, capacity: Option<u64>) -> String {
    let of = capacity.map_or_else(|| DASH.to_owned(), size);
    match total {
        None => format!("{DASH} of {of}"),
        Some(total) => {
            let share = percent(share(total.used_bytes, capacity));
            format!("{} of {of} {share:>7}", size(total.used_bytes))
        }
    }
}
