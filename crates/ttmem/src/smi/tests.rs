//! Tests against the output of tt-smi.

use super::*;
use serde_json::json;

/// A Wormhole as tt-smi 3.0.15 showed one, as a device of a snapshot.
fn wormhole() -> Value {
    json!({
        "id": "0x89e991bdb13e022e", "index": 0, "arch": "wormhole_b0", "board": "n300", "remote": false,
        "pci": "0000:c1:00.0", "node": 3, "serial": "010001451172208F",
        "firmware": { "bundle": "80.17.0.0", "arc": "2.32.0.0", "ethernet": "6.14.0", "manager": "5.12.0.0",
                      "manager_boot": "129.2.0.0", "flasher": "0.3.2.0" },
        "capacity": null, "usage": {},
        "sensors": {
            "asic_celsius": 54.312, "power_watts": 12.0, "current_amperes": 16.0, "vcore_volts": 0.795,
            "aiclk_mhz": 500.0, "axiclk_mhz": 900.0, "arcclk_mhz": 540.0, "fan_rpm": null,
            "heartbeat": 687_038, "heartbeat_beats": null, "thermal_trips": null, "pcie": null,
            "limits": { "asic_celsius": 75.0, "power_watts": 100.0, "current_amperes": 240.0, "vcore_volts": 1.0 },
        },
    })
}

/// A Blackhole of a Galaxy as tt-smi 5.2.0 showed one.
fn blackhole() -> Value {
    json!({
        "id": "0x30da68d3319cdf5f", "index": 1, "arch": "blackhole", "board": "galaxy-blackhole", "remote": false,
        "pci": "0000:01:00.0", "node": 0, "serial": "0000047131831011",
        "firmware": { "bundle": "19.5.0.0", "manager": "0.0.0.0" },
        "capacity": null, "usage": {},
        "sensors": {
            "asic_celsius": 45.406, "power_watts": 39.0, "current_amperes": 53.0, "vcore_volts": 0.738,
            "aiclk_mhz": 800.0, "axiclk_mhz": 960.0, "arcclk_mhz": 800.0, "fan_rpm": 0.0,
            "heartbeat": 0x6_2df9, "heartbeat_beats": null, "thermal_trips": 0, "pcie": null,
            "limits": { "asic_celsius": 90.0, "power_watts": 130.0, "current_amperes": 500.0, "vcore_volts": 0.9 },
        },
    })
}

fn snapshot(devices: &[Value]) -> Snapshot {
    let devices = devices.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect();
    Snapshot { devices, ..Snapshot::default() }
}

fn with(mut device: Value, changes: &Value) -> Value {
    device.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    device
}

/// Checks the expected keys of a section.
fn expect(section: &Value, expected: &Value) {
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(section.get(key), Some(value), "{key} in {section}");
    }
}

#[test]
fn wormhole_matches_tt_smi() {
    let page = render(&snapshot(&[wormhole()]));
    let device = &page["device_info"][0];
    expect(
        &device["board_info"],
        &json!({
            "bus_id": "0000:c1:00.0", "board_type": "n300 L", "board_id": "010001451172208f", "coords": "N/A",
            "dram_status": null, "dram_speed": "N/A", "pcie_speed": "N/A", "pcie_width": "N/A",
        }),
    );
    expect(
        &device["telemetry"],
        &json!({
            "voltage": "0.80", "current": " 16.0", "power": " 12.0", "aiclk": " 500", "asic_temperature": "54.3",
            "board_power": "N/A", "fan_speed": null, "heartbeat": "687038",
        }),
    );
    expect(
        &device["firmwares"],
        &json!({
            "fw_bundle_version": "80.17.0.0", "tt_flash_version": "0.3.2.0", "cm_fw": "2.32.0.0",
            "cm_fw_date": "N/A", "eth_fw": "6.14.0", "bm_bl_fw": "129.2.0.0", "bm_app_fw": "5.12.0.0",
            "dm_bl_fw": "129.2.0.0", "dm_app_fw": "5.12.0.0", "gddr_fw": "N/A",
        }),
    );
    expect(
        &device["limits"],
        &json!({
            "vdd_min": null, "vdd_max": "1.00", "tdp_limit": "100", "tdc_limit": "240", "asic_fmax": null,
            "therm_trip_l1_limit": null, "thm_limit": "75", "bus_peak_limit": null,
        }),
    );
    expect(
        &device["smbus_telem"],
        &json!({
            "BOARD_ID": "0x10001451172208f", "BOARD_ID_HIGH": "0x1000145", "BOARD_ID_LOW": "0x1172208f",
            "ASIC_ID_HIGH": "0x89e991bd", "ASIC_ID_LOW": "0xb13e022e", "VCORE": "0x31b", "TDP": "0x64000c",
            "TDC": "0xf00010", "ASIC_TEMPERATURE": "0x365", "AICLK": "0x1f4", "AXICLK": "0x384",
            "ARCCLK": "0x21c", "ETH_FW_VERSION": "0x6e000", "M3_BL_FW_VERSION": "0x81020000",
            "M3_APP_FW_VERSION": "0x50c0000", "ARC0_FW_VERSION": "0x2200000", "TT_FLASH_VERSION": "0x30200",
            "FW_BUNDLE_VERSION": "0x50110000", "DDR_STATUS": null, "THM_LIMITS": null, "VDD_LIMITS": null,
        }),
    );
}

#[test]
fn blackhole_matches_tt_smi() {
    let page = render(&snapshot(&[blackhole()]));
    let device = &page["device_info"][0];
    expect(&device["board_info"], &json!({ "board_type": "tt-galaxy-bh", "board_id": "0000047131831011" }));
    expect(
        &device["telemetry"],
        &json!({
            "voltage": "0.74", "current": " 53.0", "power": " 39.0", "aiclk": " 800", "asic_temperature": "45.4",
            "fan_speed": "  0", "heartbeat": "67497",
        }),
    );
    expect(
        &device["limits"],
        &json!({
            "vdd_max": "0.90", "tdp_limit": "130", "tdc_limit": "500", "therm_trip_l1_limit": "90",
            "thm_limit": null,
        }),
    );
    expect(
        &device["smbus_telem"],
        &json!({
            "BOARD_ID_HIGH": "0x471", "BOARD_ID_LOW": "0x31831011", "VCORE": "0x2e2", "TDP": "0x27",
            "TDC": "0x35", "AICLK": "0x320", "FLASH_BUNDLE_VERSION": "0x13050000", "DM_APP_FW_VERSION": "0x0",
            "TIMER_HEARTBEAT": "0x62df9", "FAN_RPM": "0x0", "TDC_LIMIT_MAX": "0x1f4", "TDP_LIMIT_MAX": "0x82",
            "THM_LIMIT_THROTTLE": "0x5a", "THERM_TRIP_COUNT": "0x0", "ASIC_ID_HIGH": "0x30da68d3",
            "ASIC_ID_LOW": "0x319cdf5f", "ETH_FW_VERSION": null, "DDR_SPEED": null,
        }),
    );
    // The driver's thousandths of a degree, in the unit of the firmware.
    let word = device["smbus_telem"]["ASIC_TEMPERATURE"].as_str().unwrap();
    let raw = u32::from_str_radix(&word[2..], 16).unwrap();
    assert!((f64::from(raw) / 65536.0 - 45.406).abs() < 1e-3, "{word}");
}

#[test]
fn negative_temperatures_are_signed() {
    let mut devices = [wormhole(), blackhole()];
    for device in &mut devices {
        device["sensors"]["asic_celsius"] = json!(-10.5);
    }
    let page = render(&snapshot(&devices));
    let device = |n: usize| &page["device_info"][n];
    assert_eq!(device(0)["telemetry"]["asic_temperature"], "-10.5");
    assert_eq!(device(0)["smbus_telem"]["ASIC_TEMPERATURE"], "0xff58");
    assert_eq!(device(1)["smbus_telem"]["ASIC_TEMPERATURE"], "0xfff58000");
}

#[test]
fn boards_have_the_names_of_tt_smi() {
    for (arch, board, remote, name) in [
        ("wormhole_b0", json!("n150"), false, "n150 L"),
        ("wormhole_b0", json!("n300"), true, "n300 R"),
        ("wormhole_b0", json!("galaxy-wormhole"), false, "tt-galaxy-wh L"),
        ("wormhole_b0", json!("ubb"), false, "tt-galaxy-wh L"),
        ("wormhole_b0", json!(null), false, "N/A L"),
        ("blackhole", json!("p100"), false, "bh-scrappy"),
        ("blackhole", json!("p100a"), false, "p100a"),
        ("blackhole", json!("p150b"), false, "p150b"),
        ("blackhole", json!("p300a"), true, "p300a"),
        ("blackhole", json!("ubb_blackhole"), false, "tt-galaxy-bh"),
        ("blackhole", json!(null), false, "N/A"),
    ] {
        let device = with(wormhole(), &json!({ "arch": arch, "board": board, "remote": remote }));
        assert_eq!(render(&snapshot(&[device]))["device_info"][0]["board_info"]["board_type"], name);
    }
}

#[test]
fn remote_device_has_a_board_but_no_bus_address() {
    let remote = json!({
        "id": "0x000000035172208f", "index": 1, "remote": true, "pci": null, "node": null, "sensors": null,
        "firmware": {},
    });
    let page = render(&snapshot(&[wormhole(), with(wormhole(), &remote)]));
    let (near, far) = (&page["device_info"][0], &page["device_info"][1]);
    expect(
        &far["board_info"],
        &json!({ "bus_id": "N/A", "board_type": "n300 R", "board_id": near["board_info"]["board_id"] }),
    );
    assert!(far["smbus_telem"]["ASIC_ID_HIGH"].is_null(), "its id is made up by the runtime");
    assert_eq!(far["smbus_telem"]["BOARD_ID_HIGH"], near["smbus_telem"]["BOARD_ID_HIGH"]);
    let values = far["telemetry"].as_object().unwrap().iter().chain(far["limits"].as_object().unwrap());
    assert!(values.filter(|(key, _)| *key != "board_power").all(|(_, value)| value.is_null()), "{far}");
    let versions = far["firmwares"].as_object().unwrap();
    assert!(versions.values().all(|value| value == "N/A"), "{far}");
}

#[test]
fn unknown_device_has_every_key() {
    let nothing = json!({
        "id": "ordinal-4", "index": 4, "arch": null, "board": null, "remote": false, "capacity": null, "usage": {},
    });
    let page = render(&snapshot(&[nothing, blackhole()]));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let (poor, rich) = (&page["device_info"][0], &page["device_info"][1]);
    assert_eq!(keys(poor), keys(rich));
    for section in keys(poor) {
        assert_eq!(keys(&poor[&section]), keys(&rich[&section]), "{section}");
    }
    assert!(poor["smbus_telem"].as_object().unwrap().values().all(Value::is_null));
    assert_eq!(poor["board_info"]["board_id"], "N/A");
}

#[test]
fn memory_matches_the_snapshot() {
    let total = |bytes: u64| json!({ "used_bytes": bytes, "capacity_bytes": null, "basis": "exact" });
    let device = with(
        wormhole(),
        &json!({
            "usage": { "dram_total": total(3 << 30) },
            "capacity": {
                "dram_bytes": 12u64 << 30, "dram_channels": 6, "dram_bytes_per_channel": 2u64 << 30,
                "l1_bytes": 95_944_704, "cores": 64, "l1_bytes_per_core": 1_499_136,
                "dram_allocatable_bytes": null, "l1_allocatable_bytes": null, "origin": "board",
            },
        }),
    );
    let mut snapshot = snapshot(&[device, blackhole()]);
    snapshot.processes = serde_json::from_value(json!([{
        "pid": 4711, "reported_pid": null, "start": null, "name": "python", "command": "python model.py",
        "user": "ada", "container": null, "basis": "exact", "complete": true, "audit": [],
        "usage": [{ "device": "0x89e991bdb13e022e", "dram_total": total(3 << 30) }],
    }]))
    .unwrap();
    let page = render(&snapshot);
    expect(
        &page["device_info"][0]["memory"],
        &json!({
            "device_id": "0x89e991bdb13e022e", "device_index": 0, "dram_used_bytes": 3u64 << 30,
            "dram_total_bytes": 12u64 << 30, "dram_basis": "exact", "l1_used_bytes": null,
            "l1_total_bytes": 95_944_704, "l1_basis": null, "capacity_origin": "board",
            "processes": [
                { "pid": 4711, "name": "python", "dram_used_bytes": 3u64 << 30, "l1_used_bytes": null },
            ],
        }),
    );
    let other = &page["device_info"][1]["memory"];
    assert!(other["dram_used_bytes"].is_null() && other["dram_total_bytes"].is_null(), "{other}");
    assert_eq!(other["processes"], json!([]));
}

#[test]
fn processes_are_listed_by_node() {
    let process = |pid: Value, name: Value, opened: &[&str]| {
        json!({
            "pid": pid, "reported_pid": null, "start": null, "name": name, "command": null, "user": null,
            "container": null, "open_devices": opened, "basis": "unknown", "complete": false, "usage": [], "audit": [],
        })
    };
    let (wh, bh) = ("0x89e991bdb13e022e", "0x30da68d3319cdf5f");
    let behind = with(wormhole(), &json!({ "id": "0x3", "node": null, "remote": true }));
    let mut snapshot = snapshot(&[wormhole(), blackhole(), behind]);
    let mut first = process(json!(20), json!("serve"), &[wh, bh, "0x3"]);
    first["command"] = json!("python serve.py");
    first["user"] = json!("ada");
    let others = [process(json!(7), json!("sh"), &[wh]), process(json!(null), json!(null), &[bh])];
    let all: Vec<Value> = [first].into_iter().chain(others).collect();
    snapshot.processes = serde_json::from_value(all.into()).unwrap();
    assert_eq!(
        render(&snapshot)["processes"],
        json!([
            { "pid": 0, "user": "?", "cmdline": "?", "device": 0 },
            { "pid": 20, "user": "ada", "cmdline": "python serve.py", "device": 0 },
            { "pid": 7, "user": "?", "cmdline": "sh", "device": 3 },
            { "pid": 20, "user": "ada", "cmdline": "python serve.py", "device": 3 },
        ])
    );
}

#[test]
fn time_is_local_without_a_zone() {
    let page = render(&Snapshot::default());
    let time = page["time"].as_str().unwrap();
    let read: jiff::civil::DateTime = time.parse().unwrap();
    assert_eq!(time.len(), "2025-06-20T12:10:28.926938".len(), "{time}");
    assert_eq!(read.to_zoned(TimeZone::system()).unwrap().timestamp(), Snapshot::default().at);
    assert_eq!(page["device_info"], json!([]));
    assert_eq!(page["processes"], json!([]));
    assert_eq!(page["ttmem"]["simulated"], false);
}
