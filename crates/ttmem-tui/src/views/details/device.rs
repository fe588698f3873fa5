//! The details of a device.

use super::{Fact, fact, heading, space_facts, text_or_dash};
use crate::views::Scene;
use ttmem_core::machine::Sensors;
use ttmem_core::snapshot::{Device, Peak, Total};
use ttmem_core::words::Arch;
use ttmem_render::format::{DASH, age, percent, rate, share, size};
use ttmem_render::usage::is_gap_certain;
use ttmem_render::{Reading, Value, device, label, other_cores};

impl Scene<'_> {
    pub(super) fn device_facts(&self, device: &Device) -> Vec<Fact> {
        let mut facts = vec![heading("Memory")];
        facts.extend(total_fact("DRAM", device.usage.dram_total.as_ref()));
        facts.extend(total_fact("L1", device.usage.l1_total.as_ref()));
        if device.usage.dram_total.is_none() && device.usage.l1_total.is_none() {
            facts.push(fact("In use", format!("{DASH} no process reports memory of this device")));
        }
        facts.extend(space_facts(&device.usage));
        if let Some(room) = device.tightest_core {
            let text = format!(
                "{}{} at core {},{}: {:#x} to {:#x} ({})",
                size(room.free_gap_bytes),
                if is_gap_certain(&room, &device.usage) { "" } else { " or less" },
                room.x,
                room.y,
                room.program_end,
                room.lowest_buffer,
                room.basis.name()
            );
            facts.push(fact("Smallest free gap", text));
        }
        facts.push(match device.capacity {
            None => fact("Capacity", format!("{DASH} unknown board, and no runtime reported it")),
            Some(capacity) => {
                let origin = label::capacity_origin(capacity.origin);
                let text = format!(
                    "{} DRAM in {} channels, {} cores of {} L1; {origin}",
                    size(capacity.dram_bytes),
                    capacity.dram_channels,
                    capacity.cores,
                    size(capacity.l1_bytes_per_core)
                );
                fact("Capacity", text)
            }
        });
        let cores = &device.other_cores;
        facts.extend(other_cores::dispatch(cores).map(|text| fact("Dispatch cores", text)));
        facts.extend(other_cores::ethernet(cores).map(|text| fact("Ethernet cores", text)));
        if !cores.is_unknown() {
            facts.push(fact("", other_cores::UNTRACKED_NOTE));
        }
        if !device.peaks.is_empty() {
            facts.push(heading("Peaks"));
        }
        facts.extend(device.peaks.iter().map(|peak| self.peak_fact(peak)));
        facts.push(heading("Sensors"));
        facts.extend(sensor_facts(device::Row { snapshot: &self.data.snapshot, device }));
        facts
    }

    fn peak_fact(&self, peak: &Peak) -> Fact {
        let holders: Vec<String> = peak
            .holders
            .iter()
            .map(|holder| {
                let pid = holder.pid.map_or_else(|| DASH.to_owned(), |pid| pid.to_string());
                format!("{} ({pid}) {}", text_or_dash(holder.name.as_ref()), size(holder.bytes))
            })
            .collect();
        let at = self.data.time_of_day(peak.at);
        fact(peak.space.name(), format!("{} at {at}: {}", size(peak.bytes), holders.join(", ")))
    }
}

fn total_fact(label: &str, total: Option<&Total>) -> Option<Fact> {
    let Total { used_bytes, capacity_bytes, basis } = total?;
    let capacity = capacity_bytes.map_or_else(|| DASH.to_owned(), size);
    let share = percent(share(*used_bytes, *capacity_bytes));
    Some(fact(label, format!("{} of {capacity}, {share} ({})", size(*used_bytes), basis.name())))
}

/// Sensors, firmware and identity of a device, with the reason for each missing figure.
pub(in crate::views) fn sensor_facts(row: device::Row<'_>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let device = row.device;
    let sensors = device.sensors.as_ref();
    if let Some(reason) = &device.sensors_absent {
        facts.push(fact("Sensors", format!("{DASH} {reason}")));
    } else if sensors.is_none() {
        facts.push(fact("Sensors", format!("{DASH} not read")));
    }
    if let Some(sensors) = sensors {
        facts.extend(reading_facts(row, sensors));
    }
    facts.extend(identity_facts(device));
    facts
}

fn reading_facts(row: device::Row<'_>, sensors: &Sensors) -> Vec<Fact> {
    let absent = |name: &str| {
        let reason = sensors.absent.get(name).cloned();
        reason.unwrap_or_else(|| "not reported by the driver".to_owned())
    };
    let single = |(label, field): (&str, &ttmem_render::Field<device::Devices>)| {
        let Value::Reading(Reading { value, limit, .. }) = (field.value)(&row) else {
            return fact(label, format!("{DASH} {}", absent(field.name)));
        };
        let (unit, decimals) = (field.unit.sign(), field.unit.decimals());
        let of = limit.map_or_else(String::new, |limit| format!(", limit {limit:.decimals$} {unit}"));
        let is_over = limit.is_some_and(|limit| value >= limit);
        fact(label, format!("{value:.decimals$} {unit}{of}")).bad_if(is_over)
    };
    let heartbeat = match (sensors.heartbeat, sensors.heartbeat_beats) {
        (None, _) => format!("{DASH} {}", absent("heartbeat")),
        (Some(n), Some(true)) => format!("{n}, changing"),
        (Some(n), Some(false)) => format!("{n}, not changing: the firmware may have stopped"),
        (Some(n), None) => format!("{n}, read once so far"),
    };
    let trips = sensors.thermal_trips;
    let trips_text = trips.map_or_else(|| format!("{DASH} {}", absent("thermal_trips")), |n| n.to_string());
    let mut facts: Vec<Fact> = device::SENSORS.into_iter().map(single).collect();
    facts.push(fact("Heartbeat", heartbeat).bad_if(sensors.heartbeat_beats == Some(false)));
    facts.push(fact("Thermal trips", trips_text).bad_if(trips.is_some_and(|n| n > 0)));
    match &sensors.pcie {
        None => facts.push(fact("PCIe", format!("{DASH} {}", absent("pcie")))),
        Some(pcie) => facts.extend([
            fact("Host reads device", rate(pcie.host_reads_bytes_per_second)),
            fact("Host writes device", rate(pcie.host_writes_bytes_per_second)),
            fact("Device reads host", rate(pcie.device_reads_bytes_per_second)),
            fact("Device writes host", rate(pcie.device_writes_bytes_per_second)),
        ]),
    }
    let ago = age(sensors.age_ms as f64 / 1e3);
    facts.push(fact("Read", format!("{ago} ago{}", if sensors.stale { ", out of date" } else { "" })));
    facts
}

fn identity_facts(device: &Device) -> Vec<Fact> {
    let firmware = &device.firmware;
    let versions: [(&str, &Option<String>); 6] = [
        ("Firmware bundle", &firmware.bundle),
        ("ARC firmware", &firmware.arc),
        ("Ethernet firmware", &firmware.ethernet),
        ("Manager firmware", &firmware.manager),
        ("Manager bootloader", &firmware.manager_boot),
        ("Flasher", &firmware.flasher),
    ];
    let mut facts: Vec<Fact> =
        versions.into_iter().filter_map(|(label, version)| Some(fact(label, version.as_deref()?))).collect();
    facts.push(fact("Unique id", device.id.as_str()));
    if !device.names.is_empty() {
        facts.push(fact("Other ids", device.names.join(", ")));
    }
    facts.push(fact("PCI", text_or_dash(device.pci.as_ref())));
    facts.extend(device.node.map(|n| fact("Node", format!("/dev/tenstorrent/{n}"))));
    facts.extend(device.serial.as_ref().map(|serial| fact("Serial", serial.as_str())));
    let arch = device.arch.map_or(DASH, Arch::title);
    let remote = match (device.remote, device.inferred) {
        (true, true) => ", reached through another device, inferred from its board",
        (true, false) => ", reached through another device",
        _ => "",
    };
    facts.push(fact("Architecture", format!("{arch}{remote}")));
    facts
}
