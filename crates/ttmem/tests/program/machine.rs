//! Machines with cards, as drivers show them: devices, sensors, open devices, and missing values.

mod processes;
mod remote;
mod sensors;

use crate::{AS_OTHER_USER, DRAM, exe};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use ttmem_core::Snapshot;
use ttmem_core::machine::CapacityOrigin;
use ttmem_core::snapshot::{Device, FindingKind};
use ttmem_core::words::{Arch, Basis};
use ttmem_testkit::machine::{self, Card, FakeProcess, Machine};
use ttmem_testkit::{Client, Server, eventually, schema};
use ttmem_wire::legacy::Vintage;

pub(crate) fn ttmem(machine: &Machine, args: &[&str]) -> Output {
    Command::new(exe()).arg("--root").arg(machine.root()).args(args).output().unwrap()
}

/// The output of `ttmem --json` for a machine.
pub(crate) fn read_snapshot(machine: &Machine) -> Snapshot {
    parse_snapshot(&ttmem(machine, &["--json"]))
}

pub(crate) fn parse_snapshot(output: &Output) -> Snapshot {
    assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    schema::snapshot(&output.stdout)
}

/// A daemon that reads a machine.
pub(crate) fn start_daemon(machine: &Machine) -> Server {
    let (root, shm) = (machine.root(), machine.root().join("dev/shm"));
    let args = ["--root", root.to_str().unwrap(), "--shm-dir", shm.to_str().unwrap()];
    Server::start(exe(), &args)
}

/// The values that a version of the driver shows of a device.
struct DriverFeatures {
    driver: &'static str,
    asic_id: bool,
    heartbeat: bool,
    limits: bool,
    attributes: bool,
    sensors: bool,
}

fn check(device: &Device, features: &DriverFeatures, board: &str) {
    let at = format!("{board} with {}", features.driver);
    let absent = |name: &str| {
        let sensors = device.sensors.as_ref().unwrap();
        sensors.absent.get(name).unwrap_or_else(|| panic!("{at}: no reason for {name}")).clone()
    };
    assert_eq!(device.id.starts_with("0x"), features.asic_id, "{at}: {}", device.id);
    assert_eq!(device.board.is_some(), features.attributes, "{at}");
    assert_eq!(device.serial.is_some(), features.attributes, "{at}");
    assert!(device.pci.is_some() && device.node.is_some() && device.arch.is_some(), "{at}");
    let Some(sensors) = &device.sensors else {
        assert!(!features.sensors, "{at}");
        assert!(device.sensors_absent.is_some(), "{at}");
        return;
    };
    let wormhole = device.arch == Some(Arch::WormholeB0);
    assert_eq!(sensors.asic_celsius, Some(45.406), "{at}");
    assert_eq!((sensors.power_watts, sensors.current_amperes), (Some(39.0), Some(53.0)), "{at}");
    assert_eq!(sensors.vcore_volts, Some(0.738), "{at}");
    assert_eq!(sensors.aiclk_mhz.is_some(), features.attributes, "{at}");
    assert_eq!(sensors.heartbeat.is_some(), features.heartbeat, "{at}");
    if !features.heartbeat {
        assert_eq!(absent("heartbeat"), "the driver does not show it", "{at}");
    }
    let limits = [sensors.limits.asic_celsius, sensors.limits.power_watts, sensors.limits.vcore_volts];
    if features.limits || wormhole {
        assert_eq!(limits, [Some(90.0), Some(130.0), Some(0.9)], "{at}");
        assert_eq!(sensors.limits.current_amperes, Some(500.0), "{at}");
    } else {
        assert_eq!(limits, [None; 3], "{at}");
        absent("limits.asic_celsius");
    }
    assert_eq!(sensors.thermal_trips.is_some(), features.heartbeat && !wormhole, "{at}");
    if wormhole {
        assert_eq!(sensors.fan_rpm, None, "{at}");
        absent("fan_rpm");
    }
}

#[test]
fn every_driver_version_is_read() {
    let generations = [
        DriverFeatures {
            driver: "2.10.0",
            asic_id: true,
            heartbeat: true,
            limits: true,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "2.9.0",
            asic_id: true,
            heartbeat: true,
            limits: true,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "2.8.0",
            asic_id: true,
            heartbeat: true,
            limits: false,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "2.7.0",
            asic_id: true,
            heartbeat: true,
            limits: false,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "2.6.0",
            asic_id: true,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "2.5.0",
            asic_id: true,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "2.3.0",
            asic_id: true,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "2.0.0",
            asic_id: false,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "1.34",
            asic_id: false,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        DriverFeatures {
            driver: "1.32",
            asic_id: false,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
    ];
    for features in &generations {
        for kind in ["p150a", "n150"] {
            let snapshot = read_snapshot(&machine::cards(features.driver, kind, 1));
            assert_eq!(snapshot.host.driver.as_deref(), Some(features.driver));
            assert_eq!(snapshot.devices.len(), 1, "{kind} with {}", features.driver);
            check(&snapshot.devices[0], features, kind);
            assert_eq!(snapshot.findings, []);
        }
    }
    // Versions for Wormhole only: with sensors and attributes, with sensors only, and with neither.
    for (driver, attributes, sensors) in [("1.28", true, true), ("1.27", false, true), ("1.26", false, false)]
    {
        let features =
            DriverFeatures { driver, asic_id: false, heartbeat: false, limits: true, attributes, sensors };
        let snapshot = read_snapshot(&machine::n150(driver));
        check(&snapshot.devices[0], &features, "n150");
        assert_eq!(snapshot.devices[0].capacity.is_some(), attributes, "an unknown board has no capacity");
    }
    // A Blackhole with a driver that does not support its sensors yet.
    let snapshot = read_snapshot(&machine::p150a("1.30"));
    assert_eq!(snapshot.devices[0].arch, Some(Arch::Blackhole));
    assert!(snapshot.devices[0].sensors.is_none());
}

#[test]
fn devices_are_numbered_by_their_pci_addresses() {
    let numbers = |snapshot: &Snapshot| {
        let devices = snapshot.devices.iter();
        let local = devices.filter(|it| !it.remote);
        local.map(|it| (it.index, it.node.unwrap(), it.pci.clone().unwrap())).collect::<Vec<_>>()
    };
    let t3k = read_snapshot(&machine::t3k("2.10.0"));
    assert_eq!(
        numbers(&t3k).iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (2, 2), (3, 3)]
    );
    // The second device of each board is on no bus.
    assert_eq!(t3k.devices.len(), 8);
    for (n, device) in t3k.devices.iter().enumerate() {
        assert_eq!((device.index, device.remote, device.inferred), (n as u32, n > 3, n > 3));
        assert_eq!(device.serial, t3k.devices[n % 4].serial);
        let capacity = device.capacity.unwrap();
        assert_eq!(
            (capacity.cores, capacity.l1_bytes),
            (64, 95_944_704),
            "91.5 MiB, without harvested cores"
        );
        assert_eq!(capacity.origin, CapacityOrigin::Board);
        assert_eq!((capacity.l1_allocatable_bytes, capacity.dram_bytes), (Some(78_034_432), 12 << 30));
    }
    // Two devices with one serial number and two ids.
    let p300 = read_snapshot(&machine::p300b("2.10.0"));
    assert_eq!(p300.devices.len(), 2);
    assert_eq!(p300.devices[0].serial, p300.devices[1].serial);
    assert_ne!(p300.devices[0].id, p300.devices[1].id);
    // The nodes of a Galaxy are ordered by tray, its indexes by PCI address.
    let galaxy = read_snapshot(&machine::galaxy("2.10.0"));
    let numbered = numbers(&galaxy);
    assert_eq!(numbered.len(), 32);
    assert!(numbered.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 && pair[0].2 < pair[1].2));
    assert!(numbered.iter().any(|(index, node, _)| index != node), "index and node differ");
    assert_eq!(galaxy.devices[0].capacity.unwrap().cores, 80);
    assert_eq!(read_snapshot(&machine::galaxy_blackhole("2.10.0")).devices[31].capacity.unwrap().cores, 130);
    // Without a name and a serial number, a Galaxy is known by its subsystem id.
    for (kind, cores) in [("galaxy-wormhole", 80), ("galaxy-blackhole", 130)] {
        let mut machine = Machine::new("2.10.0");
        machine.add_card(Card { serial: u64::MAX, ..Card::new(kind, 0) }.without("tt_card_type"));
        let device = read_snapshot(&machine).devices.remove(0);
        assert_eq!((device.board.as_deref(), device.capacity.unwrap().cores), (Some(kind), cores));
    }
    // The number of cores of a p150 depends on the firmware.
    for (firmware, cores) in [("18.5.0.0", 140), ("19.4.2.0", 140), ("19.5.0.0", 120), ("20.1.0.0", 120)] {
        let mut machine = Machine::new("2.10.0");
        machine.add_card(Card { firmware: firmware.to_owned(), ..Card::new("p150a", 0) });
        assert_eq!(read_snapshot(&machine).devices[0].capacity.unwrap().cores, cores, "{firmware}");
    }
}

#[test]
fn copy_of_a_machine_does_not_refer_to_this_one() {
    let mut machine = machine::n150("2.10.0");
    machine.add_process(FakeProcess { container: Some((1, 1)), ..FakeProcess::new(42, "python", &[0]) });
    symlink("/", machine.proc(42, "root")).unwrap();
    fs::copy("/proc/self/mountinfo", machine.proc(42, "mountinfo")).unwrap();
    // A file of this machine, which that link refers to.
    let id = 4_000_000_000_000_000_000 + u64::from(std::process::id());
    let ours = format!("/dev/shm/tt_device_{id}_memory");
    fs::write(&ours, "not for them").unwrap();
    let snapshot = read_snapshot(&machine);
    fs::remove_file(&ours).unwrap();
    assert_eq!((snapshot.health.counter_files, snapshot.health.skipped), (0, Vec::new()));
}

/// Writes a capture of a real driver as files below a folder.
fn unpack(capture: &Path) -> (tempfile::TempDir, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let capture: serde_json::Value = serde_json::from_slice(&fs::read(capture).unwrap()).unwrap();
    for entry in capture["entries"].as_array().unwrap() {
        let path = folder.path().join(entry["path"].as_str().unwrap().trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match entry["target"].as_str() {
            Some(target) => symlink(target, path).unwrap(),
            None => fs::write(path, entry["content"].as_str().unwrap_or_default()).unwrap(),
        }
    }
    (folder, capture)
}

#[test]
fn captures_of_real_drivers_are_read() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/sysfs");
    let Ok(captures) = fs::read_dir(&captures) else {
        println!("no captures of real drivers at hand: nothing to compare with");
        return;
    };
    let mut compared = 0;
    for path in captures.map(|entry| entry.unwrap().path()) {
        let (folder, capture) = unpack(&path);
        let output = Command::new(exe()).args(["--json", "--root"]).arg(folder.path()).output().unwrap();
        let snapshot = parse_snapshot(&output);
        let driver = capture["kmd"].as_str().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(snapshot.host.driver.as_deref(), Some(driver), "{name}");
        let devices = if name.contains("t3k") { 8 } else { 1 + usize::from(name.contains("p300")) };
        assert_eq!(snapshot.devices.len(), devices, "{name}");
        let (major, minor) = driver.split_once('.').unwrap();
        let minor = minor.split('.').next().unwrap();
        let version: (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
        let wormhole = capture["arch"] == "wormhole";
        for device in snapshot.devices.iter().filter(|it| !it.remote) {
            let features = DriverFeatures {
                driver: "as captured",
                asic_id: version >= if wormhole { (2, 3) } else { (2, 1) },
                heartbeat: version >= (2, 7),
                limits: version >= (2, 9),
                attributes: true,
                sensors: true,
            };
            check(device, &features, name);
            let board = if name.contains("t3k") { "n300" } else { name.split('_').nth(1).unwrap() };
            assert_eq!(device.board.as_deref(), Some(board), "{name}");
        }
        compared += 1;
    }
    println!("{compared} captures compared");
}

#[test]
fn devices_are_added_and_removed() {
    let mut machine = machine::t3k("2.10.0");
    let server = start_daemon(&machine);
    assert_eq!(server.snapshot().devices.len(), 8);
    eventually("sensors are read", || server.device(2).sensors.filter(|it| it.asic_celsius == Some(45.406)));
    machine.set(machine.hwmon(2, "temp1_input"), "60500\n");
    eventually("the new value", || server.device(2).sensors.filter(|it| it.asic_celsius == Some(60.5)));
    let ids = |server: &Server| -> Vec<String> {
        server.snapshot().devices.into_iter().map(|device| device.id).collect()
    };
    let before = ids(&server);
    let serial = u64::from_str_radix(server.device(2).serial.as_ref().unwrap(), 16).unwrap();
    machine.unplug(2);
    eventually("it is gone, and the one behind it", || (ids(&server).len() == 6).then_some(()));
    // Back at the same address, it is the same device with the same index.
    let asic_id = u64::from_str_radix(&before[2][2..], 16).unwrap();
    let card = Card { asic_id, serial, ..Card::new("n300", 2) };
    machine.add_card(card.with("temp1_input", "30000"));
    eventually("it is back", || (ids(&server) == before).then_some(()));
    eventually("and is read", || server.device(2).sensors.filter(|it| it.asic_celsius == Some(30.0)));
    // All devices are removed, and the driver is unloaded.
    for node in 0..4 {
        machine.unplug(node);
    }
    fs::remove_dir_all(machine.root().join("sys/class/tenstorrent")).unwrap();
    eventually("all are gone", || ids(&server).is_empty().then_some(()));
}

#[test]
fn no_device_is_opened_and_nothing_is_written() {
    let mut machine = machine::t3k("2.10.0");
    machine.add_processes(4);
    let trace = tempfile::NamedTempFile::new().unwrap();
    let traced = || {
        let mut command = Command::new("strace");
        command.args(["-f", "-q", "-y", "-e", "trace=%file,%desc,bind,connect,sendto", "-o"]);
        command.arg(trace.path()).arg(exe());
        command
    };
    let root = machine.root().to_str().unwrap();
    let calls = || fs::read_to_string(trace.path()).unwrap();
    // Calls that open for writing, create, remove or change a file.
    let written = |calls: &str, own: &[&str]| {
        let changes =
            ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "unlink", "rename", "mkdir", "rmdir", "utimens"];
        let more = ["chmod", "chown", "ftruncate", "fallocate", "symlink", "mknod", "pwrite"];
        let is_change = |line: &&str| changes.iter().chain(&more).any(|it| line.contains(it));
        let is_own = |line: &&str| own.iter().any(|it| line.contains(it)) || line.contains("/dev/null");
        let lines: Vec<String> =
            calls.lines().filter(is_change).filter(|line| !is_own(line)).map(str::to_owned).collect();
        lines
    };
    let assert_no_device_opened = |calls: &str| {
        assert!(calls.contains("tenstorrent!0"), "the devices were read");
        let opened = |line: &&str| line.contains("open") && line.contains("dev/tenstorrent");
        assert_eq!(calls.lines().find(opened), None);
    };
    let output = traced().args(["--root", root]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_no_device_opened(&calls());
    assert_eq!(written(&calls(), &[]), [""; 0]);

    let mut watch = traced()
        .args(["--root", root, "-w", "-r", "50"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let mut tables = 0;
    while tables < 5 {
        tables += u32::from(lines.next().unwrap().unwrap().starts_with("ttmem "));
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_no_device_opened(&calls());
    assert_eq!(written(&calls(), &[]), [""; 0]);

    let shm = machine.root().join("dev/shm");
    // With -D, strace is the child: killing the daemon ends both.
    let mut command = Command::new("strace");
    command.arg("-D").args(traced().get_args());
    let server = Server::start_by(command, &["--root", root, "--shm-dir", shm.to_str().unwrap()]);
    eventually("sensors are read", || server.device(3).sensors);
    for _ in 0..3 {
        server.snapshot();
    }
    let own = server.folder.path().to_str().unwrap().to_owned();
    drop(server);
    eventually("the trace ends", || calls().contains("+++ killed by").then_some(()));
    assert_no_device_opened(&calls());
    assert_eq!(written(&calls(), &[&own]), [""; 0]);
}

#[test]
fn machine_without_cards_is_reported_in_one_line() {
    let machine = tempfile::tempdir().unwrap();
    let output = Command::new(exe()).arg("--root").arg(machine.path()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("ttmem demo") && error.contains("ttmem doctor"), "{error}");
    let output = Command::new(exe()).arg("--json").arg("--root").arg(machine.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(parse_snapshot(&output).devices, []);
    // As another user.
    let other = machine::t3k("2.10.0");
    let output = Command::new(AS_OTHER_USER[0])
        .args(&AS_OTHER_USER[1..])
        .arg(exe())
        .arg("--version")
        .output()
        .unwrap();
    if output.status.success() {
        let mut command = Command::new(AS_OTHER_USER[0]);
        command.args(&AS_OTHER_USER[1..]).arg(exe()).arg("--json").arg("--root").arg(other.root());
        assert_eq!(
            parse_snapshot(&command.output().unwrap()).devices.len(),
            8,
            "every user can read the driver's files"
        );
    }
}

#[test]
fn daemon_numbers_devices_like_runtimes() {
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("p150a", 2));
    let server = start_daemon(&machine);
    let numbers = |snapshot: &Snapshot| -> Vec<_> {
        snapshot.devices.iter().map(|it| (it.index, it.pci.clone(), it.node)).collect()
    };
    let wait_for_equal_numbers = |machine: &Machine| {
        let wanted = numbers(&read_snapshot(machine));
        eventually("the same numbers", || (numbers(&server.snapshot()) == wanted).then_some(()));
        wanted
    };
    wait_for_equal_numbers(&machine);
    // As at boot, when the driver adds them one by one.
    machine.add_card(Card::new("p150a", 0)).add_card(Card::new("p150a", 1)).add_card(Card::new("p150a", 3));
    let all = wait_for_equal_numbers(&machine);
    assert_eq!(
        all.iter().map(|(index, _, node)| (*index, node.unwrap())).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (2, 2), (3, 3)]
    );
    machine.unplug(0);
    let left = wait_for_equal_numbers(&machine);
    assert_eq!(left.iter().map(|(index, ..)| *index).collect::<Vec<_>>(), [0, 1, 2]);
    // The device number of an old client is that of its runtime.
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 0x1000, 4096);
    eventually("its memory", || {
        let device = server.snapshot().devices.remove(0);
        let held = device.usage.dram.map(|it| it.requested_bytes)?;
        assert_eq!((device.node, held), (Some(1), 4096));
        Some(())
    });
}

#[test]
fn unreadable_folders_are_reported() {
    let machine = machine::n150("2.10.0");
    let program = machine.root().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    machine.set_mode("sys/class/tenstorrent", 0o700);
    machine.set_mode("dev/shm", 0o700);
    let mut command = Command::new(AS_OTHER_USER[0]);
    let output =
        command.args(&AS_OTHER_USER[1..]).arg(&program).arg("--root").arg(machine.root()).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    for path in ["sys/class/tenstorrent", "dev/shm"] {
        assert!(page.contains(&format!("{path} cannot be read")), "{page}");
    }
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(3));
    let output = Command::new(exe()).args(["--local", "--shm-dir", "/nowhere"]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("/nowhere cannot be read"));
}

#[test]
fn limit_of_open_files_is_reported() {
    let machine = machine::galaxy("2.10.0");
    let mut command = Command::new("prlimit");
    command.arg("--nofile=48:48").arg(exe()).args(["--json", "--root"]).arg(machine.root());
    let snapshot = parse_snapshot(&command.output().unwrap());
    let skipped = &snapshot.health.skipped;
    assert!(skipped.iter().any(|it| it.reason.contains("ulimit -n")), "{skipped:?}");
    assert!(read_snapshot(&machine).health.skipped.is_empty());
}
