//! The telemetry words of the firmware, as far as they can be computed from the driver's figures.

use super::keys::{board_id, is_wormhole, limits, sensors};
use ttmem_core::snapshot::Device;

/// A key, and its value.
type Word = (&'static str, fn(&Device) -> Option<u64>);

/// Known words, under the names of both architectures, since readers know one or the other. Words of which only a half is
/// known, such as `VDD_LIMITS`, are left out: the other half would be 0.
pub(super) const WORDS: [Word; 28] = [
    ("BOARD_ID", board_id),
    ("BOARD_ID_HIGH", |it| Some(board_id(it)? >> 32)),
    ("BOARD_ID_LOW", |it| Some(board_id(it)? & LOW)),
    ("ASIC_ID_HIGH", |it| Some(asic_id(it)? >> 32)),
    ("ASIC_ID_LOW", |it| Some(asic_id(it)? & LOW)),
    ("VCORE", |it| whole(sensors(it)?.vcore_volts? * 1e3)),
    ("TDP", |it| with_limit(it, sensors(it)?.power_watts?, limits(it)?.power_watts)),
    ("TDC", |it| with_limit(it, sensors(it)?.current_amperes?, limits(it)?.current_amperes)),
    ("TDP_LIMIT_MAX", |it| whole(limits(it)?.power_watts?)),
    ("TDC_LIMIT_MAX", |it| whole(limits(it)?.current_amperes?)),
    ("THM_LIMIT_THROTTLE", |it| whole(limits(it)?.asic_celsius?)),
    ("ASIC_TEMPERATURE", temperature),
    ("AICLK", |it| whole(sensors(it)?.aiclk_mhz?)),
    ("AXICLK", |it| whole(sensors(it)?.axiclk_mhz?)),
    ("ARCCLK", |it| whole(sensors(it)?.arcclk_mhz?)),
    ("FAN_RPM", |it| whole(sensors(it)?.fan_rpm?)),
    ("TIMER_HEARTBEAT", |it| sensors(it)?.heartbeat),
    ("THERM_TRIP_COUNT", |it| sensors(it)?.thermal_trips),
    ("FW_BUNDLE_VERSION", |it| pack_version(it.firmware.bundle.as_ref()?, &BYTES)),
    ("FLASH_BUNDLE_VERSION", |it| pack_version(it.firmware.bundle.as_ref()?, &BYTES)),
    ("TT_FLASH_VERSION", |it| pack_version(it.firmware.flasher.as_ref()?, &BYTES)),
    ("ARC0_FW_VERSION", |it| pack_version(it.firmware.arc.as_ref()?, &BYTES)),
    ("CM_FW_VERSION", |it| pack_version(it.firmware.arc.as_ref()?, &BYTES)),
    // Blackhole has another layout, and the driver does not show the version there.
    ("ETH_FW_VERSION", |it| {
        pack_version(it.firmware.ethernet.as_ref().filter(|_| is_wormhole(it))?, &ETHERNET)
    }),
    ("M3_APP_FW_VERSION", |it| pack_version(it.firmware.manager.as_ref()?, &BYTES)),
    ("DM_APP_FW_VERSION", |it| pack_version(it.firmware.manager.as_ref()?, &BYTES)),
    ("M3_BL_FW_VERSION", |it| pack_version(it.firmware.manager_boot.as_ref()?, &BYTES)),
    ("DM_BL_FW_VERSION", |it| pack_version(it.firmware.manager_boot.as_ref()?, &BYTES)),
];

/// Words that readers may expect and that the driver does not show.
pub(super) fn unknown(device: &Device) -> &'static [&'static str] {
    if is_wormhole(device) { &WORMHOLE_UNKNOWN } else { &BLACKHOLE_UNKNOWN }
}

const WORMHOLE_UNKNOWN: [&str; 40] = [
    "ENUM_VERSION",
    "DEVICE_ID",
    "ASIC_RO",
    "ASIC_IDD",
    "ARC1_FW_VERSION",
    "ARC2_FW_VERSION",
    "ARC3_FW_VERSION",
    "SPIBOOTROM_FW_VERSION",
    "DDR_SPEED",
    "DDR_STATUS",
    "ETH_STATUS0",
    "ETH_STATUS1",
    "ETH_DEBUG_STATUS0",
    "ETH_DEBUG_STATUS1",
    "ETH_LOOPBACK_STATUS",
    "ETH_LIVE_STATUS",
    "PCIE_STATUS",
    "AUX_STATUS",
    "FAULTS",
    "THROTTLER",
    "ARC0_HEALTH",
    "ARC1_HEALTH",
    "ARC2_HEALTH",
    "ARC3_HEALTH",
    "FAN_SPEED",
    "VREG_TEMPERATURE",
    "BOARD_TEMPERATURE",
    "ASIC_TMON0",
    "ASIC_TMON1",
    "GDDR_TRAIN_TEMP0",
    "GDDR_TRAIN_TEMP1",
    "MVDDQ_POWER",
    "INPUT_POWER",
    "BOARD_POWER_LIMIT",
    "VDD_LIMITS",
    "THM_LIMITS",
    "WH_FW_DATE",
    "BOOT_DATE",
    "RT_SECONDS",
    "NUMBER_OF_TAGS",
];

const BLACKHOLE_UNKNOWN: [&str; 44] = [
    "ASIC_ID",
    "ASIC_LOCATION",
    "HARVESTING_STATE",
    "UPDATE_TELEM_SPEED",
    "VDD_LIMITS",
    "THM_LIMITS",
    "THM_LIMIT_SHUTDOWN",
    "VREG_TEMPERATURE",
    "BOARD_TEMPERATURE",
    "L2CPUCLK0",
    "L2CPUCLK1",
    "L2CPUCLK2",
    "L2CPUCLK3",
    "ETH_LIVE_STATUS",
    "DDR_STATUS",
    "DDR_SPEED",
    "GDDR_FW_VERSION",
    "L2CPU_FW_VERSION",
    "FAN_SPEED",
    "TELEMETRY_ENUM_COUNT",
    "ENABLED_TENSIX_COL",
    "ENABLED_ETH",
    "ENABLED_GDDR",
    "ENABLED_L2CPU",
    "PCIE_USAGE",
    "NOC_TRANSLATION",
    "GDDR_0_1_TEMP",
    "GDDR_2_3_TEMP",
    "GDDR_4_5_TEMP",
    "GDDR_6_7_TEMP",
    "GDDR_0_1_CORR_ERRS",
    "GDDR_2_3_CORR_ERRS",
    "GDDR_4_5_CORR_ERRS",
    "GDDR_6_7_CORR_ERRS",
    "GDDR_UNCORR_ERRS",
    "MAX_GDDR_TEMP",
    "INPUT_POWER",
    "BOARD_POWER_LIMIT",
    "AICLK_LIMIT_MAX",
    "AICLK_ARB_MIN",
    "AICLK_ARB_MAX",
    "ENABLED_MIN_ARB",
    "ENABLED_MAX_ARB",
    "NUMBER_OF_TAGS",
];

/// The id of the ASIC, from the driver. The ids of remote devices are made up by runtimes.
fn asic_id(device: &Device) -> Option<u64> {
    device.node?;
    u64::from_str_radix(device.id.strip_prefix("0x")?, 16).ok()
}

const LOW: u64 = 0xffff_ffff;

fn whole(value: f64) -> Option<u64> {
    (value >= 0.0).then(|| value.round() as u64)
}

/// A value with its limit in the upper half, as on Wormhole; 0 means no limit to tt-smi.
fn with_limit(device: &Device, now: f64, limit: Option<f64>) -> Option<u64> {
    let limit = limit.filter(|_| is_wormhole(device)).and_then(whole).unwrap_or(0);
    Some(limit << 16 | whole(now)? & 0xffff)
}

/// The temperature, signed, in units of 2^-16 degrees; on Wormhole 2^-4, in the lower half.
fn temperature(device: &Device) -> Option<u64> {
    let celsius = sensors(device)?.asic_celsius?;
    Some(if is_wormhole(device) {
        (celsius * 16.0).round() as i64 as u64 & 0xffff
    } else {
        (celsius * 65536.0).round() as i64 as u64 & LOW
    })
}

/// The lowest bit and the number of bits of each part of a version.
type Layout = [(u32, u32)];
const BYTES: [(u32, u32); 4] = [(24, 8), (16, 8), (8, 8), (0, 8)];
const ETHERNET: [(u32, u32); 3] = [(16, 8), (12, 4), (0, 12)];

/// Packs a version into one word, if it has the expected parts.
fn pack_version(version: &str, layout: &Layout) -> Option<u64> {
    let mut parts = version.split('.');
    let mut word = 0;
    for (shift, bits) in layout {
        let part: u64 = parts.next()?.parse().ok()?;
        if part >> bits != 0 {
            return None;
        }
        word |= part << shift;
    }
    parts.next().is_none().then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_packed_like_the_firmware() {
        for (text, word) in [
            ("80.17.0.0", Some(0x5011_0000)),
            ("19.5.0.0", Some(0x1305_0000)),
            ("0.3.2.0", Some(0x3_0200)),
            ("129.2.0.0", Some(0x8102_0000)),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("256.0.0.0", None),
            ("a.b.c.d", None),
            ("", None),
        ] {
            assert_eq!(pack_version(text, &BYTES), word, "{text}");
        }
        assert_eq!(pack_version("6.14.0", &ETHERNET), Some(0x6_e000));
        assert_eq!(pack_version("7.0.0", &ETHERNET), Some(0x7_0000));
        assert_eq!(pack_version("6.16.0", &ETHERNET), None);
    }

    #[test]
    fn words_are_unique() {
        for unknown in [&WORMHOLE_UNKNOWN[..], &BLACKHOLE_UNKNOWN] {
            let keys: Vec<_> = WORDS.iter().map(|row| &row.0).chain(unknown).collect();
            let names: std::collections::BTreeSet<_> = keys.iter().collect();
            assert_eq!(names.len(), keys.len(), "{keys:?}");
        }
    }
}
