//! The keys of tt-smi for a device's figures, with their formats.

use crate::text::UNKNOWN;
use ttmem_core::machine::{SensorLimits, Sensors};
use ttmem_core::snapshot::Device;
use ttmem_core::words::Arch;

/// A key, and its value as text.
pub(super) type Row = (&'static str, fn(&Device) -> Option<String>);

/// Sensors, in the widths of tt-smi.
pub(super) const TELEMETRY: [Row; 8] = [
    ("voltage", |it| Some(format!("{:4.2}", sensors(it)?.vcore_volts?))),
    ("current", |it| Some(format!("{:5.1}", sensors(it)?.current_amperes?))),
    ("power", |it| Some(format!("{:5.1}", sensors(it)?.power_watts?))),
    // tt-smi prints this as unknown, too.
    ("board_power", |_| Some(UNKNOWN.to_owned())),
    ("aiclk", |it| Some(format!("{:4.0}", sensors(it)?.aiclk_mhz?))),
    ("asic_temperature", |it| Some(format!("{:4.1}", sensors(it)?.asic_celsius?))),
    ("fan_speed", |it| Some(format!("{:3.0}", sensors(it)?.fan_rpm?))),
    ("heartbeat", |it| Some(heartbeat(it)?.to_string())),
];

pub(super) const LIMITS: [Row; 10] = [
    ("vdd_min", |_| None),
    ("vdd_max", |it| Some(format!("{:4.2}", limits(it)?.vcore_volts?))),
    ("tdp_limit", |it| Some(format!("{:3.0}", limits(it)?.power_watts?))),
    ("tdc_limit", |it| Some(format!("{:3.0}", limits(it)?.current_amperes?))),
    ("asic_fmax", |_| None),
    // The temperature for throttling has another key on each architecture; that for shutdown is unknown.
    ("therm_trip_l1_limit", |it| throttle_limit(it).filter(|_| !is_wormhole(it))),
    ("thm_limit", |it| throttle_limit(it).filter(|_| is_wormhole(it))),
    ("bus_peak_limit", |_| None),
    ("fan_rpm_limit", |_| None),
    ("board_power_limit", |_| None),
];

/// Firmware versions. The board manager was `bm` before it was `dm`.
pub(super) const FIRMWARES: [Row; 10] = [
    ("fw_bundle_version", |it| it.firmware.bundle.clone()),
    ("tt_flash_version", |it| it.firmware.flasher.clone()),
    ("cm_fw", |it| it.firmware.arc.clone()),
    ("cm_fw_date", |_| None),
    ("eth_fw", |it| it.firmware.ethernet.clone()),
    ("bm_bl_fw", |it| it.firmware.manager_boot.clone()),
    ("bm_app_fw", |it| it.firmware.manager.clone()),
    ("dm_bl_fw", |it| it.firmware.manager_boot.clone()),
    ("dm_app_fw", |it| it.firmware.manager.clone()),
    ("gddr_fw", |_| None),
];

/// Names of boards in the driver and descriptors, and in tt-smi, if they differ.
const BOARDS: [(&str, &str); 6] = [
    ("galaxy-wormhole", "tt-galaxy-wh"),
    ("galaxy", "tt-galaxy-wh"),
    ("ubb", "tt-galaxy-wh"),
    ("galaxy-blackhole", "tt-galaxy-bh"),
    ("ubb_blackhole", "tt-galaxy-bh"),
    ("p100", "bh-scrappy"),
];

/// The board; of a Wormhole also whether the device is local (L) or remote (R).
pub(super) fn board_type(device: &Device) -> String {
    let board = device.board.as_deref().unwrap_or(UNKNOWN);
    let name = BOARDS.iter().find(|(from, _)| *from == board).map_or(board, |(_, to)| to);
    match (is_wormhole(device), device.remote) {
        (false, _) => name.to_owned(),
        (true, false) => format!("{name} L"),
        (true, true) => format!("{name} R"),
    }
}

pub(super) fn board_id(device: &Device) -> Option<u64> {
    u64::from_str_radix(device.serial.as_ref()?, 16).ok()
}

pub(super) fn is_wormhole(device: &Device) -> bool {
    device.arch == Some(Arch::WormholeB0)
}

pub(super) fn sensors(device: &Device) -> Option<&Sensors> {
    device.sensors.as_ref()
}

pub(super) fn limits(device: &Device) -> Option<&SensorLimits> {
    Some(&sensors(device)?.limits)
}

fn throttle_limit(device: &Device) -> Option<String> {
    Some(format!("{:2.0}", limits(device)?.asic_celsius?))
}

/// The heartbeat, about two counts per second. On Wormhole, tt-smi shows another counter, which the driver does not have;
/// readers only check whether the value changes.
fn heartbeat(device: &Device) -> Option<u64> {
    let count = sensors(device)?.heartbeat?;
    Some(if is_wormhole(device) { count } else { count / 6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique() {
        for table in [&TELEMETRY[..], &LIMITS, &FIRMWARES] {
            let keys: std::collections::BTreeSet<_> = table.iter().map(|row| row.0).collect();
            assert_eq!(keys.len(), table.len());
        }
    }
}
