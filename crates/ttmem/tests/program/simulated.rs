//! Simulated devices have all values of real ones, and are marked as simulated.

use crate::*;
use serde_json::Value;
use std::process::Command;
use ttmem_testkit::producer::Producer;
use ttmem_testkit::{Client, eventually};
use ttmem_wire::legacy::Vintage;

fn json(server: &Server, args: &[&str]) -> Value {
    let mut command = Command::new(exe());
    command.arg("--json").args(args).env("TTMEM_QUERY_SOCKET", &server.query);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ttmem_testkit::schema::snapshot(&output.stdout)
}

const SENSORS: [&str; 9] = [
    "asic_celsius",
    "power_watts",
    "current_amperes",
    "vcore_volts",
    "aiclk_mhz",
    "axiclk_mhz",
    "arcclk_mhz",
    "heartbeat",
    "thermal_trips",
];

#[test]
fn only_local_devices_have_sensors() {
    let server = server();
    let page = json(&server, &[]);
    assert_eq!(page["simulated"], true);
    let devices = page["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 8);
    for device in devices {
        assert_eq!(device["capacity"]["origin"], "simulated");
        if device["remote"] == true {
            assert!(device["sensors"].is_null() && device["pci"].is_null() && device["node"].is_null());
            let reason = device["sensors_absent"].as_str().unwrap();
            assert!(reason.starts_with("remote device: "), "{reason}");
            continue;
        }
        let sensors = &device["sensors"];
        for name in SENSORS {
            assert!(sensors[name].is_number(), "{name}: {device}");
        }
        for (name, limit) in sensors["limits"].as_object().unwrap() {
            let (value, limit) = (sensors[name].as_f64().unwrap(), limit.as_f64().unwrap());
            assert!((0.0..limit).contains(&value), "{name} is {value} of {limit}");
        }
        assert_eq!(sensors["limits"].as_object().unwrap().len(), 4);
        for (name, rate) in sensors["pcie"].as_object().unwrap() {
            assert!(rate.as_f64().unwrap() >= 0.0, "{name}");
        }
        assert_eq!((&sensors["heartbeat_beats"], &sensors["stale"]), (&true.into(), &false.into()));
        assert_eq!(sensors["thermal_trips"], 0);
        assert!(sensors["absent"]["fan_rpm"].is_string(), "an n300 has no fan");
        assert!(device["pci"].is_string() && device["node"].is_number() && device["serial"].is_string());
        assert!(device["firmware"]["bundle"].is_string());
    }
    assert_eq!(devices.iter().filter(|it| it["remote"] == true).count(), 4);
    assert!(page["findings"].as_array().unwrap().is_empty(), "{page}");
}

#[test]
fn sensors_follow_the_load() {
    let server = Server::start(exe(), &["--sim", "p150a"]);
    let sensors = || json(&server, &[])["devices"][0]["sensors"].clone();
    let idle = sensors();
    assert!(idle["fan_rpm"].is_number());
    let later = eventually("the heartbeat changes", || {
        let now = sensors();
        (now["heartbeat"].as_u64() > idle["heartbeat"].as_u64()).then_some(now)
    });
    assert_eq!(later["aiclk_mhz"], 800.0);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 0x10_0000, 24 << 30);
    client.alloc(0, L1, 0x15_0000, 100 * MIB);
    client.sync();
    eventually("sensors show the load", || {
        let now = sensors();
        let more = |name: &str| now[name].as_f64().unwrap() > later[name].as_f64().unwrap() * 1.1;
        (more("asic_celsius") && more("power_watts") && now["aiclk_mhz"] == 1350.0).then_some(())
    });
}

fn texts(page: &Value) -> Vec<String> {
    page["events"].as_array().unwrap().iter().map(|it| it["text"].as_str().unwrap().to_owned()).collect()
}

/// With simulated devices, since the server is at hand; real devices have the same events.
#[test]
fn events_are_listed_on_request() {
    let server = Server::start(exe(), &["--sim", "n300"]);
    assert!(json(&server, &[]).get("events").is_none());
    assert_eq!(texts(&json(&server, &["--events"])), ["devices 0-1 added"]);
    let mut producer =
        Producer::start_through(&[], &[("TTMEM_SHM_DIR", server.segments.path().to_str().unwrap())]);
    producer.define(2);
    producer.alloc(4096, 24000);
    producer.out_of_memory(1_048_576, Some(4096));
    let pid = producer.pid;
    let failure = "requested 1.0 MiB of DRAM on each of devices 2-3; largest free block 4.0 KiB per bank";
    eventually("its events are listed", || {
        let all = texts(&json(&server, &["--events"]));
        let has = |text: &str| all.iter().any(|it| it.contains(&format!("pid {pid}")) && it.ends_with(text));
        (has("started") && has("opened a mesh of 2 devices") && has(failure)).then_some(())
    });
    producer.kill();
    let page = eventually("its exit is listed", || {
        let page = json(&server, &["--events"]);
        let is_exit = |it: &&Value| it["kind"] == "process_exited" && it["pid"] == pid;
        let exited = page["events"].as_array().unwrap().iter().find(is_exit).cloned()?;
        assert!(
            exited["text"].as_str().unwrap().ends_with("with 46.9 KiB in 1 allocation still allocated"),
            "{exited}"
        );
        assert_eq!((&exited["bytes"], &exited["severity"]), (&48_000.into(), &"info".into()));
        Some(page)
    });
    // Oldest first, and with a filter only those of one device or process.
    let numbers: Vec<u64> =
        page["events"].as_array().unwrap().iter().map(|it| it["sequence"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 0x10_0000, 11 << 30);
    client.sync();
    let page = eventually("its DRAM is full", || {
        let page = json(&server, &["--events", "-d", "0"]);
        texts(&page).contains(&"device 0: DRAM rose above 90 %".to_owned()).then_some(page)
    });
    assert_eq!(page["events"].as_array().unwrap().last().unwrap()["kind"], "usage_threshold");
    let other = texts(&json(&server, &["--events", "-d", "1"]));
    assert!(!other.iter().any(|text| text.starts_with("device 0:")), "{other:?}");
    let snapshot: ttmem_core::Snapshot = serde_json::from_value(page).unwrap();
    assert!(snapshot.events.is_some());
}
