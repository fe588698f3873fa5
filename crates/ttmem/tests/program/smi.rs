//! `ttmem -s` compared with the output of tt-smi on real machines, and with what its readers expect.

use crate::*;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};
use ttmem_testkit::machine::{
    FakeProcess, Machine, cards, galaxy, galaxy_blackhole, n150, p150a, p300b, t3k,
};

/// Versions of the driver, each with more values than the one before.
const DRIVERS: [&str; 6] = ["1.27.0", "1.34.0", "2.0.0", "2.3.0", "2.7.0", "2.10.0"];
const NEWEST: &str = "2.10.0";

/// Folder with output of tt-smi; not part of this repository.
const CAPTURES: &str = "../../../shared/data/tt_smi";

/// Keys in one capture that no tt-smi prints; they were added before it was published.
const ADDED_KEYS: [&str; 5] = ["temperature", "power_consumption", "version", "max_temp", "max_power"];

/// Values that the kernel's files do not have, and what is printed instead.
const UNKNOWN_VALUES: [(&str, &str, &str); 7] = [
    ("board_info", "dram_status", "null"),
    ("board_info", "pcie_speed", "\"N/A\""),
    ("limits", "vdd_min", "null"),
    ("limits", "asic_fmax", "null"),
    ("limits", "therm_trip_l1_limit", "null"),
    ("limits", "thm_limit", "null"),
    ("limits", "bus_peak_limit", "null"),
];

fn smi(machine: &Machine, args: &[&str]) -> Value {
    let root = machine.root().to_str().unwrap();
    let output = Command::new(exe())
        .args(["-s", "--root", root])
        .args(args)
        .stdin(Stdio::null())
        .env_remove("TTMEM_TOPOLOGY")
        .env_remove("TTMEM_SHM_DIR")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn devices(page: &Value) -> &Vec<Value> {
    page["device_info"].as_array().unwrap()
}

fn board(device: &Value) -> &str {
    device["board_info"]["board_type"].as_str().unwrap()
}

fn is_wormhole(device: &Value) -> bool {
    let board = board(device);
    board.starts_with('n') || board.starts_with("tt-galaxy-wh")
}

/// Checks that every key is present, with a value of the same type or the one for unknown values.
fn assert_same_shape(ours: &Value, real: &Value, path: &[&str]) {
    let kind = std::mem::discriminant::<Value>;
    match real {
        Value::Object(entries) => {
            for (key, real) in entries.iter().filter(|(key, _)| !ADDED_KEYS.contains(&key.as_str())) {
                let ours = ours.get(key).unwrap_or_else(|| panic!("there is no {key} in {path:?}"));
                assert_same_shape(ours, real, &[path, &[key]].concat());
            }
        }
        _ if kind(ours) == kind(real) => {}
        _ => {
            let replacement = UNKNOWN_VALUES.iter().find(|it| path.ends_with(&[it.0, it.1])).map(|it| it.2);
            assert_eq!(replacement, Some(&*ours.to_string()), "{path:?} is not {real}");
        }
    }
}

#[test]
fn output_has_the_shape_of_tt_smi() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURES);
    let Ok(files) = fs::read_dir(&folder) else {
        println!("nothing to compare with: there is no {}", folder.display());
        return;
    };
    let machines = [n150, t3k, galaxy, p150a, p300b, galaxy_blackhole];
    let pages: Vec<Value> = machines.iter().map(|make| smi(&make(NEWEST), &[])).collect();
    let mut compared = 0;
    for file in files.map(|file| file.unwrap().path()) {
        let real: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let mut head = real.clone();
        head.as_object_mut().unwrap().remove("device_info");
        for page in &pages {
            assert_same_shape(page, &head, &[]);
        }
        for real in devices(&real) {
            let mut real = real.clone();
            // The words of the firmware are covered by the test of readers.
            real.as_object_mut().unwrap().remove("smbus_telem");
            let ours = pages.iter().flat_map(devices).filter(|it| board(it) != "n300 R");
            let alike = ours.filter(|it| is_wormhole(it) == is_wormhole(&real));
            compared += alike.map(|ours| assert_same_shape(ours, &real, &[])).count();
        }
    }
    assert!(compared > 0, "{} is empty", folder.display());
}

#[test]
fn words_have_the_names_of_tt_smi() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURES);
    for (name, machine) in [("single_n150_gpu", n150(NEWEST)), ("blackhole_galaxy", p150a(NEWEST))] {
        let Ok(real) = fs::read(folder.join(name).with_extension("json")) else {
            println!("nothing to compare with: there is no {name} in {}", folder.display());
            continue;
        };
        let real: Value = serde_json::from_slice(&real).unwrap();
        let ours = smi(&machine, &[]);
        let words = |page: &Value| devices(page)[0]["smbus_telem"].as_object().unwrap().clone();
        for key in words(&real).keys() {
            assert!(words(&ours).contains_key(key), "{name}: {key}");
        }
    }
}

#[test]
fn boards_have_the_names_of_tt_smi() {
    for (machine, name, count) in [
        (n150(NEWEST), "n150 L", 1),
        (t3k(NEWEST), "n300 L", 4),
        (galaxy(NEWEST), "tt-galaxy-wh L", 32),
        (cards(NEWEST, "p100a", 1), "p100a", 1),
        (p150a(NEWEST), "p150a", 1),
        (p300b(NEWEST), "p300b", 2),
        (galaxy_blackhole(NEWEST), "tt-galaxy-bh", 32),
    ] {
        let page = smi(&machine, &[]);
        let is_local = |it: &&Value| board(it) != "n300 R";
        assert_eq!(devices(&page).iter().filter(is_local).count(), count);
        assert!(devices(&page).iter().filter(is_local).all(|it| board(it) == name), "{page}");
        assert_eq!(page["host_info"]["Driver"], format!("TT-KMD {NEWEST}"));
    }
}

/// The values that readers use, in the types that they expect: strings to trim and parse, or null.
#[derive(Deserialize)]
struct Page {
    device_info: Vec<DeviceInfo>,
    processes: Vec<User>,
}

#[derive(Deserialize)]
struct DeviceInfo {
    board_info: Board,
    telemetry: BTreeMap<String, Option<String>>,
    limits: BTreeMap<String, Option<String>>,
    firmwares: BTreeMap<String, String>,
    smbus_telem: BTreeMap<String, Option<String>>,
}

#[derive(Deserialize)]
struct Board {
    bus_id: String,
    board_type: String,
    board_id: String,
    coords: String,
}

#[derive(Deserialize)]
struct User {
    pid: u32,
    user: String,
    cmdline: String,
    device: u32,
}

#[test]
fn readers_of_tt_smi_can_parse_it() {
    let machines = [n150, t3k, galaxy, p150a, p300b, galaxy_blackhole];
    for (driver, make) in DRIVERS.into_iter().flat_map(|driver| machines.map(|make| (driver, make))) {
        let page: Page = serde_json::from_value(smi(&make(driver), &[])).unwrap();
        for device in &page.device_info {
            // Lists of accelerators use these three.
            let Board { bus_id, board_type, board_id, coords } = &device.board_info;
            let is_remote = board_type == "n300 R";
            assert!(
                bus_id.starts_with("0000:") != is_remote && !board_type.is_empty(),
                "{driver}: {bus_id} {board_type}"
            );
            assert!(board_id == "N/A" || u64::from_str_radix(board_id, 16).is_ok(), "{driver}: {board_id}");
            assert_eq!(coords, "N/A");
            // Dashboards and exporters expect a number, or null.
            for (key, text) in
                device.telemetry.iter().chain(&device.limits).filter(|it| it.0 != "board_power")
            {
                let number = text.as_ref().map(|text| text.trim().parse::<f64>());
                assert!(number.is_none_or(|it| it.is_ok()), "{driver}: {key} is {text:?}");
            }
            for key in ["aiclk", "heartbeat"] {
                let number = device.telemetry[key].as_ref().map(|text| text.trim().parse::<u32>());
                assert!(number.is_none_or(|it| it.is_ok()), "{driver}: {key}");
            }
            assert!(device.firmwares.values().all(|version| !version.is_empty()));
            // Monitors expect a hexadecimal number, or null.
            for (key, text) in &device.smbus_telem {
                let Some(text) = text else { continue };
                let word = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
                assert!(matches!(word, Some(Ok(_))), "{driver}: {key} is {text}");
            }
        }
        assert!(page.processes.is_empty());
    }
}

#[test]
fn values_missing_in_old_drivers_are_null() {
    let page: Page = serde_json::from_value(smi(&p150a("2.0.0"), &[])).unwrap();
    let device = &page.device_info[0];
    assert_eq!(device.telemetry["power"].as_deref(), Some(" 39.0"));
    assert_eq!(device.telemetry["fan_speed"].as_deref(), Some("1882"));
    assert_eq!(device.telemetry["heartbeat"], None);
    assert!(device.limits.values().all(Option::is_none));
    assert_eq!(device.smbus_telem["ASIC_ID_HIGH"], None);
    assert_eq!(device.firmwares["dm_app_fw"], "5.9.0.2");
    let page: Page = serde_json::from_value(smi(&n150("1.27.0"), &[])).unwrap();
    let device = &page.device_info[0];
    assert_eq!(device.telemetry["asic_temperature"].as_deref(), Some("45.4"));
    assert_eq!((device.telemetry["aiclk"].as_ref(), device.firmwares["cm_fw"].as_str()), (None, "N/A"));
}

#[test]
fn processes_with_an_open_node_are_listed() {
    let mut machine = galaxy(NEWEST);
    let command = ["python3", "-m", "serve"].map(str::to_owned).to_vec();
    machine.add_process(FakeProcess { command, ..FakeProcess::new(4711, "python3", &[31, 2, 2]) });
    machine.add_process(FakeProcess::new(815, "sh", &[2]));
    let page: Page = serde_json::from_value(smi(&machine, &[])).unwrap();
    let rows: Vec<_> = page.processes.iter().map(|it| (it.device, it.pid, &*it.user, &*it.cmdline)).collect();
    let serve = "python3 -m serve";
    assert_eq!(rows, [(2, 815, "ada", "sh"), (2, 4711, "ada", serve), (31, 4711, "ada", serve)]);
}

/// The cluster descriptor of a T3000: four local devices, each with a remote one.
fn descriptor() -> String {
    let mut text = "ethernet_connections: []\nchips: {}\n".to_owned();
    let mut section = |name: &str, row: &dyn Fn(u32) -> String, chips: u32| {
        let rows: String = (0..chips).map(row).collect();
        let _ = write!(text, "{name}:\n{rows}");
    };
    section("arch", &|n| format!("  {n}: wormhole_b0\n"), 8);
    section("chip_unique_ids", &|n| format!("  {n}: {}\n", 9_956_278_468u64 + u64::from(n)), 8);
    section("chips_with_mmio", &|n| format!("  - {n}: {n}\n"), 4);
    let masks = "noc_translation: true, harvest_mask: 33, dram_harvesting_mask: 0, eth_harvesting_mask: 0";
    section("harvesting", &|n| format!("  {n}: {{{masks}}}\n"), 8);
    let number = |n: u32| 0x14u64 << 36 | u64::from(n + 1);
    let row =
        |n| format!("  - [{{board_id: {}}}, {{board_type: n300}}, {{chips: [{n}, {}]}}]\n", number(n), n + 4);
    section("boards", &row, 4);
    section("chip_pci_bdfs", &|n| format!("  {n}: 0000:{:02x}:00.0\n", n + 1), 4);
    text
}

#[test]
fn remote_devices_have_their_boards() {
    let machine = t3k(NEWEST);
    let topology = machine.root().join("cluster.yaml");
    fs::write(&topology, descriptor()).unwrap();
    let page = smi(&machine, &["--topology", topology.to_str().unwrap()]);
    let page: Page = serde_json::from_value(page).unwrap();
    let found = |suffix: &str| -> BTreeMap<String, String> {
        let boards = page.device_info.iter().map(|it| &it.board_info);
        let those = boards.filter(|it| it.board_type == format!("n300 {suffix}"));
        those.map(|it| (it.board_id.clone(), it.bus_id.clone())).collect()
    };
    let (near, far) = (found("L"), found("R"));
    assert_eq!((near.len(), far.len()), (4, 4));
    assert!(near.keys().eq(far.keys()), "each R has the board id of its L");
    assert!(far.values().all(|bus| bus == "N/A") && near.values().all(|bus| bus != "N/A"));
}

#[test]
fn simulated_devices_are_marked() {
    let server = server();
    let output = Command::new(exe()).arg("-s").env("TTMEM_QUERY_SOCKET", &server.query).output().unwrap();
    assert!(output.status.success());
    let page: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(page["ttmem"]["simulated"], true);
    let names: Vec<&str> = devices(&page).iter().map(board).collect();
    assert_eq!(names.iter().filter(|name| **name == "n300 R").count(), 4, "{names:?}");
    let memory = &devices(&page)[0]["memory"];
    assert_eq!(memory["dram_total_bytes"], 12u64 << 30);
    assert!(memory["dram_used_bytes"].is_null(), "no process reports memory");
}
