//! `ttmem -s`: a snapshot with the keys that readers of `tt-smi -s` expect.
//!
//! Names and formats are those of tt-smi 3 to 6; a key that was renamed is present under each name. An unknown value is
//! `N/A` where tt-smi prints that. Where tt-smi would print a placeholder number (0 degrees, 10000 volts), the value is
//! `null`, which its readers accept. Additions to tt-smi are in objects of their own: `ttmem`, and `memory` of each device.

mod host;
mod keys;
mod words;

use crate::text::UNKNOWN;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Device, Process, Total};
use ttmem_render::process::uses_device;

pub(crate) fn render(snapshot: &Snapshot) -> Value {
    // The format of Python: local time without a zone.
    let time = snapshot.at.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%.6f").to_string();
    let devices = snapshot.devices.iter().map(|it| device(snapshot, it));
    json!({
        "time": time,
        "host_info": host::host_info(&snapshot.host),
        // None of these tools was used.
        "host_sw_vers": { "tt_smi": UNKNOWN, "pyluwen": UNKNOWN, "tt_umd": UNKNOWN },
        "device_info": devices.collect::<Vec<_>>(),
        "processes": processes(snapshot),
        "ttmem": { "version": snapshot.host.ttmem, "simulated": snapshot.simulated },
    })
}

fn device(snapshot: &Snapshot, device: &Device) -> Value {
    let hex = |word: u64| format!("{word:#x}").into();
    let known = words::WORDS.iter().map(|(key, value)| (*key, value(device).map_or(Value::Null, hex)));
    let unknown = words::unknown(device).iter().map(|key| (*key, Value::Null));
    let words: Map<String, Value> =
        known.chain(unknown).map(|(key, value)| (key.to_owned(), value)).collect();
    json!({
        "smbus_telem": words,
        "board_info": {
            "bus_id": or_unknown(device.pci.clone().filter(|_| !device.remote)),
            "board_type": keys::board_type(device),
            "board_id": or_unknown(keys::board_id(device).map(|id| format!("{id:016x}"))),
            // The kernel shows none of these. `dram_status` must not be false: that means memory that failed to train.
            "coords": UNKNOWN,
            "dram_status": null,
            "dram_speed": UNKNOWN,
            "pcie_speed": UNKNOWN,
            "pcie_width": UNKNOWN,
        },
        "telemetry": section(&keys::TELEMETRY, device, &Value::Null),
        "gddr_telemetry": { "speed": UNKNOWN, "max_temp": UNKNOWN, "enabled_mask": UNKNOWN, "channels": [] },
        "firmwares": section(&keys::FIRMWARES, device, &UNKNOWN.into()),
        "limits": section(&keys::LIMITS, device, &Value::Null),
        "memory": memory(snapshot, device),
    })
}

fn or_unknown(text: Option<String>) -> String {
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}

fn section(rows: &[keys::Row], device: &Device, unknown: &Value) -> Value {
    let value = |row: &keys::Row| row.1(device).map_or_else(|| unknown.clone(), Value::from);
    rows.iter().map(|row| (row.0.to_owned(), value(row))).collect::<Map<_, _>>().into()
}

/// The memory of a device, which tt-smi does not have.
fn memory(snapshot: &Snapshot, device: &Device) -> Value {
    let used = |total: &Option<Total>| total.as_ref().map(|it| it.used_bytes);
    let basis = |total: &Option<Total>| total.as_ref().map(|it| it.basis);
    let holder = |process: &Process| {
        let usage = &process.usage.iter().find(|it| it.device == device.id)?.usage;
        Some(json!({
            "pid": process.pid,
            "name": process.name,
            "dram_used_bytes": used(&usage.dram_total),
            "l1_used_bytes": used(&usage.l1_total),
        }))
    };
    json!({
        "device_id": device.id,
        "device_index": device.index,
        "dram_used_bytes": used(&device.usage.dram_total),
        "dram_total_bytes": device.capacity.map(|it| it.dram_bytes),
        "dram_basis": basis(&device.usage.dram_total),
        "l1_used_bytes": used(&device.usage.l1_total),
        "l1_total_bytes": device.capacity.map(|it| it.l1_bytes),
        "l1_basis": basis(&device.usage.l1_total),
        "capacity_origin": device.capacity.map(|it| it.origin),
        "processes": snapshot.processes.iter().filter_map(holder).collect::<Vec<_>>(),
    })
}

/// Processes by device node. Devices without a node are left out, as in tt-smi.
fn processes(snapshot: &Snapshot) -> Vec<Value> {
    let pairs = snapshot.devices.iter().filter_map(|device| Some((device.node?, device)));
    let mut rows: Vec<(u32, u32, &Process)> = pairs
        .flat_map(|(node, device)| {
            let users = snapshot.processes.iter().filter(|process| uses_device(process, device));
            // The driver lists a process that is not visible as pid 0.
            users.map(move |process| (node, process.pid.unwrap_or(0), process))
        })
        .collect();
    rows.sort_by_key(|&(node, pid, _)| (node, pid));
    let row = |(node, pid, process): (u32, u32, &Process)| {
        let or_unknown = |text: Option<&String>| text.map_or("?", String::as_str).to_owned();
        let command = process.command.as_ref().filter(|it| !it.is_empty()).or(process.name.as_ref());
        json!({ "pid": pid, "user": or_unknown(process.user.as_ref()), "cmdline": or_unknown(command), "device": node })
    };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests;
