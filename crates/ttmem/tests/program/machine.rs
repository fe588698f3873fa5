//! Machines with cards, as their drivers show them: chips, sensors, openers, and what is missing.

use crate::{DRAM, NOBODY, exe};
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

/// What `ttmem --json` says of a machine.
pub(crate) fn seen(machine: &Machine) -> Snapshot {
    parsed(&ttmem(machine, &["--json"]))
}

pub(crate) fn parsed(output: &Output) -> Snapshot {
    assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    schema::snapshot(&output.stdout)
}

/// A daemon that follows a machine.
pub(crate) fn follow(machine: &Machine) -> Server {
    let (root, shm) = (machine.root(), machine.root().join("dev/shm"));
    let args = ["--root", root.to_str().unwrap(), "--shm-dir", shm.to_str().unwrap()];
    Server::start(exe(), &args)
}

/// What must be known of a chip, by the version of the driver.
struct Shown {
    driver: &'static str,
    asic_id: bool,
    heartbeat: bool,
    limits: bool,
    attributes: bool,
    sensors: bool,
}

fn check(device: &Device, shown: &Shown, board: &str) {
    let at = format!("{board} with {}", shown.driver);
    let absent = |name: &str| {
        let sensors = device.sensors.as_ref().unwrap();
        sensors.absent.get(name).unwrap_or_else(|| panic!("{at}: no reason for {name}")).clone()
    };
    assert_eq!(device.id.starts_with("0x"), shown.asic_id, "{at}: {}", device.id);
    assert_eq!(device.board.is_some(), shown.attributes, "{at}");
    assert_eq!(device.serial.is_some(), shown.attributes, "{at}");
    assert!(device.pci.is_some() && device.node.is_some() && device.arch.is_some(), "{at}");
    let Some(sensors) = &device.sensors else {
        assert!(!shown.sensors, "{at}");
        assert!(device.sensors_absent.is_some(), "{at}");
        return;
    };
    let wormhole = device.arch == Some(Arch::WormholeB0);
    assert_eq!(sensors.asic_celsius, Some(45.406), "{at}");
    assert_eq!((sensors.power_watts, sensors.current_amperes), (Some(39.0), Some(53.0)), "{at}");
    assert_eq!(sensors.vcore_volts, Some(0.738), "{at}");
    assert_eq!(sensors.aiclk_mhz.is_some(), shown.attributes, "{at}");
    assert_eq!(sensors.heartbeat.is_some(), shown.heartbeat, "{at}");
    if !shown.heartbeat {
        assert_eq!(absent("heartbeat"), "the driver does not show it", "{at}");
    }
    let limits = [sensors.limits.asic_celsius, sensors.limits.power_watts, sensors.limits.vcore_volts];
    if shown.limits || wormhole {
        assert_eq!(limits, [Some(90.0), Some(130.0), Some(0.9)], "{at}");
        assert_eq!(sensors.limits.current_amperes, Some(500.0), "{at}");
    } else {
        assert_eq!(limits, [None; 3], "{at}");
        absent("limits.asic_celsius");
    }
    assert_eq!(sensors.thermal_trips.is_some(), shown.heartbeat && !wormhole, "{at}");
    if wormhole {
        assert_eq!(sensors.fan_rpm, None, "{at}");
        absent("fan_rpm");
    }
}

#[test]
fn every_generation_of_the_driver_shows_what_it_has_and_a_reason_for_the_rest() {
    let generations = [
        Shown {
            driver: "2.10.0",
            asic_id: true,
            heartbeat: true,
            limits: true,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "2.9.0",
            asic_id: true,
            heartbeat: true,
            limits: true,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "2.8.0",
            asic_id: true,
            heartbeat: true,
            limits: false,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "2.7.0",
            asic_id: true,
            heartbeat: true,
            limits: false,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "2.6.0",
            asic_id: true,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "2.5.0",
            asic_id: true,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "2.3.0",
            asic_id: true,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "2.0.0",
            asic_id: false,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "1.34",
            asic_id: false,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
        Shown {
            driver: "1.32",
            asic_id: false,
            heartbeat: false,
            limits: false,
            attributes: true,
            sensors: true,
        },
    ];
    for shown in &generations {
        for kind in ["p150a", "n150"] {
            let snapshot = seen(&machine::cards(shown.driver, kind, 1));
            assert_eq!(snapshot.host.driver.as_deref(), Some(shown.driver));
            assert_eq!(snapshot.devices.len(), 1, "{kind} with {}", shown.driver);
            check(&snapshot.devices[0], shown, kind);
            assert_eq!(snapshot.findings, []);
        }
    }
    // Wormhole only; then sensors only; then nothing but that there is a card.
    for (driver, attributes, sensors) in [("1.28", true, true), ("1.27", false, true), ("1.26", false, false)]
    {
        let shown = Shown { driver, asic_id: false, heartbeat: false, limits: true, attributes, sensors };
        let snapshot = seen(&machine::n150(driver));
        check(&snapshot.devices[0], &shown, "n150");
        assert_eq!(snapshot.devices[0].capacity.is_some(), attributes, "unknown is not assumed");
    }
    // A Blackhole under a driver that does not know its sensors yet.
    let snapshot = seen(&machine::p150a("1.30"));
    assert_eq!(snapshot.devices[0].arch, Some(Arch::Blackhole));
    assert!(snapshot.devices[0].sensors.is_none());
}

#[test]
fn chips_are_numbered_by_their_places_and_known_by_their_boards() {
    let of = |snapshot: &Snapshot| {
        let it = snapshot.devices.iter();
        it.map(|it| (it.index, it.node.unwrap(), it.pci.clone().unwrap())).collect::<Vec<_>>()
    };
    let t3k = seen(&machine::t3k("2.10.0"));
    assert_eq!(of(&t3k).iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    for device in &t3k.devices {
        let capacity = device.capacity.unwrap();
        assert_eq!((capacity.cores, capacity.l1_bytes), (64, 95_944_704), "91.5 MiB, and not 171.6");
        assert_eq!(capacity.origin, CapacityOrigin::Board);
        assert_eq!((capacity.l1_allocatable_bytes, capacity.dram_bytes), (Some(78_034_432), 12 << 30));
    }
    // Two chips, one serial number, two ids.
    let p300 = seen(&machine::p300b("2.10.0"));
    assert_eq!(p300.devices.len(), 2);
    assert_eq!(p300.devices[0].serial, p300.devices[1].serial);
    assert_ne!(p300.devices[0].id, p300.devices[1].id);
    // The nodes of a Galaxy go by trays, its numbers by places.
    let galaxy = seen(&machine::galaxy("2.10.0"));
    let numbered = of(&galaxy);
    assert_eq!(numbered.len(), 32);
    assert!(numbered.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 && pair[0].2 < pair[1].2));
    assert!(numbered.iter().any(|(index, node, _)| index != node), "they differ there");
    assert_eq!(galaxy.devices[0].capacity.unwrap().cores, 80);
    assert_eq!(seen(&machine::galaxy_blackhole("2.10.0")).devices[31].capacity.unwrap().cores, 130);
    // Without a name and a serial number, a Galaxy is known by how its vendor numbers it on the bus.
    for (kind, cores) in [("galaxy-wormhole", 80), ("galaxy-blackhole", 130)] {
        let mut machine = Machine::new("2.10.0");
        machine.add_card(Card { serial: u64::MAX, ..Card::new(kind, 0) }.without("tt_card_type"));
        let device = seen(&machine).devices.remove(0);
        assert_eq!((device.board.as_deref(), device.capacity.unwrap().cores), (Some(kind), cores));
    }
    // The firmware decides how many cores a p150 has left.
    for (firmware, cores) in [("18.5.0.0", 140), ("19.4.2.0", 140), ("19.5.0.0", 120), ("20.1.0.0", 120)] {
        let mut machine = Machine::new("2.10.0");
        machine.add_card(Card { firmware: firmware.to_owned(), ..Card::new("p150a", 0) });
        assert_eq!(seen(&machine).devices[0].capacity.unwrap().cores, cores, "{firmware}");
    }
}

#[test]
fn what_cannot_be_is_not_shown() {
    let mut machine = Machine::new("2.10.0");
    let sick = Card::new("p150a", 0)
        .with("temp1_input", "65535999")
        .with("power1_input", "4294967295000000")
        .with("curr1_input", "-1")
        .with("in0_input", "65535")
        .with("tt_aiclk", "4294967295")
        .with("tt_heartbeat", "4294967295");
    machine.add_card(sick).add_card(Card::new("p150a", 1).with("temp1_input", "32768000"));
    let snapshot = seen(&machine);
    let sensors = snapshot.devices[0].sensors.as_ref().unwrap();
    let values = [sensors.asic_celsius, sensors.power_watts, sensors.current_amperes, sensors.vcore_volts];
    assert_eq!(values, [None; 4]);
    assert_eq!(sensors.aiclk_mhz, None);
    assert_eq!(sensors.absent["asic_celsius"], "65535999 is not possible");
    assert_eq!(sensors.axiclk_mhz, Some(900.0), "the rest stays");
    let other = snapshot.devices[1].sensors.as_ref().unwrap();
    assert_eq!((other.asic_celsius, other.power_watts), (None, Some(39.0)));
    // A chip that hangs reads as all ones everywhere: it has no number, but it is there.
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card { serial: u64::MAX, asic_id: u64::MAX, ..Card::new("n150", 0) });
    let device = seen(&machine).devices.remove(0);
    assert_eq!((device.id.as_str(), device.serial), ("pci-0000:01:00.0", None));
    let page = ttmem(&machine, &[]);
    assert!(page.status.success());
    // Below zero is cold, not impossible.
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("n150", 0).with("temp1_input", "-12500"));
    assert_eq!(seen(&machine).devices[0].sensors.as_ref().unwrap().asic_celsius, Some(-12.5));
}

#[test]
fn a_bad_file_is_one_missing_value_and_nothing_else() {
    let machine = machine::t3k("2.10.0");
    let replaced = |path: &Path| fs::remove_file(path).map(|()| path.to_owned()).unwrap();
    fs::create_dir(replaced(&machine.attribute(0, "tt_aiclk"))).unwrap();
    machine.set(machine.attribute(0, "tt_axiclk"), "");
    fs::write(machine.attribute(0, "tt_arcclk"), [0xff, 0xfe, 0x00, 0x80]).unwrap();
    fs::write(machine.hwmon(0, "temp1_input"), vec![b'4'; 1 << 20]).unwrap();
    symlink("nowhere", replaced(&machine.hwmon(0, "power1_input"))).unwrap();
    machine.set(machine.hwmon(0, "in0_input"), "warm\n");
    fs::write(machine.attribute(0, "tt_card_type"), "n3\x1b[2J00\n").unwrap();
    machine.set(machine.attribute(1, "tt_asic_id"), "not a number\n");
    fs::remove_dir_all(machine.pci(2).join("hwmon")).unwrap();
    let snapshot = seen(&machine);
    assert_eq!(snapshot.devices.len(), 4);
    let sensors = snapshot.devices[0].sensors.as_ref().unwrap();
    for (name, reason) in [
        ("aiclk_mhz", "it is a folder, not a file"),
        ("axiclk_mhz", "it is empty"),
        ("arcclk_mhz", "it is no text"),
        ("asic_celsius", "it is longer than any value"),
        ("power_watts", "the driver does not show it"),
        ("vcore_volts", "\"warm\" is no number"),
    ] {
        assert_eq!(sensors.absent[name], reason);
    }
    assert_eq!(sensors.current_amperes, Some(53.0));
    assert_eq!(snapshot.devices[0].board.as_deref(), Some("n300"), "its serial number tells, too");
    assert!(snapshot.devices[1].id.starts_with("pci-"));
    let third = snapshot.devices[2].sensors.as_ref().unwrap();
    assert_eq!((third.asic_celsius, third.aiclk_mhz), (None, Some(1000.0)));
    assert_eq!(snapshot.devices[3].sensors.as_ref().unwrap().asic_celsius, Some(45.406));
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(!page.contains('\x1b'), "{page}");
}

#[test]
fn a_file_that_never_answers_keeps_nobody_waiting() {
    let machine = machine::t3k("2.10.0");
    let pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    // One file of the first chip, and every one of the second, as during a reset.
    pipe(&machine.hwmon(0, "temp1_input"));
    for name in ["temp1_input", "power1_input", "curr1_input", "in0_input"] {
        pipe(&machine.hwmon(1, name));
    }
    for name in ["tt_aiclk", "tt_axiclk", "tt_arcclk", "tt_heartbeat"] {
        pipe(&machine.attribute(1, name));
    }
    let snapshot = seen(&machine);
    let sensors = |n: usize| snapshot.devices[n].sensors.as_ref();
    let first = sensors(0).unwrap();
    assert_eq!((first.asic_celsius, first.power_watts), (None, Some(39.0)), "one value is missing");
    assert_eq!(first.absent["asic_celsius"], "it does not answer");
    assert!(first.stale && snapshot.devices[0].sensors_absent.is_some());
    assert!(sensors(1).is_none(), "the second does not answer at all");
    assert!(snapshot.devices[1].sensors_absent.as_ref().unwrap().contains("answer"));
    for n in [2, 3] {
        assert_eq!(sensors(n).unwrap().asic_celsius, Some(45.406), "the others do");
        assert!(!sensors(n).unwrap().stale);
    }
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(page.contains("39W*") && page.contains("* sensors of device 0"), "{page}");
    // A daemon answers meanwhile, and has the value when it comes.
    let server = follow(&machine);
    let celsius = |server: &Server| server.device(0).sensors.and_then(|it| it.asic_celsius);
    assert_eq!(celsius(&server), None);
    eventually("the others are read", || server.device(3).sensors.and_then(|it| it.asic_celsius));
    // Whoever waits for the pipe is let go, and finds a file there the next time.
    let path = machine.hwmon(0, "temp1_input");
    let pipe = fs::OpenOptions::new().write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    machine.set(&path, "51000\n");
    drop(pipe);
    eventually("it answers at last", || celsius(&server).filter(|it| (51.0..51.1).contains(it)));
}

#[test]
fn what_a_chip_last_said_is_shown_as_old_while_it_does_not_answer() {
    let machine = machine::t3k("2.10.0");
    let server = follow(&machine);
    let sensors = |n: u32| server.device(n).sensors;
    eventually("all are read", || (0..4).all(|n| sensors(n).is_some_and(|it| !it.stale)).then_some(()));
    // From now on every read of one chip takes a minute.
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-q",
        "-o",
        "/dev/null",
        "-e",
        "trace=pread64",
        "-e",
        "inject=pread64:delay_enter=60s",
    ]);
    let files =
        ["temp1_input", "power1_input", "curr1_input", "in0_input"].map(|name| machine.hwmon(1, name));
    let more = ["tt_aiclk", "tt_axiclk", "tt_arcclk", "tt_heartbeat"].map(|name| machine.attribute(1, name));
    for path in files.iter().chain(&more) {
        strace.arg("-P").arg(path.canonicalize().unwrap());
    }
    let mut strace = strace.args(["-p", &server.pid().to_string()]).spawn().unwrap();
    let stale = eventually("it is known to hang", || sensors(1).filter(|it| it.stale));
    assert_eq!(stale.asic_celsius, Some(45.406), "the last word stays");
    assert!(server.device(1).sensors_absent.is_some());
    machine.set(machine.hwmon(2, "temp1_input"), "50000\n");
    eventually("the others are read on", || sensors(2).filter(|it| it.asic_celsius == Some(50.0)));
    let page = Command::new(exe()).arg("--query-socket").arg(&server.query).output().unwrap().stdout;
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("45°C*") && page.contains("* sensors of device 1"), "{page}");
    strace.kill().unwrap();
    strace.wait().unwrap();
    eventually("it answers again", || sensors(1).filter(|it| !it.stale));
}

#[test]
fn a_chip_that_does_not_say_who_it_is_is_known_by_its_place_until_it_does() {
    let machine = machine::t3k("2.10.0");
    let path = machine.attribute(1, "tt_asic_id").canonicalize().unwrap();
    let id = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let snapshot = seen(&machine);
    let ids: Vec<bool> = snapshot.devices.iter().map(|it| it.id.starts_with("0x")).collect();
    assert_eq!(ids, [true, false, true, true]);
    assert_eq!(snapshot.devices[1].id, "pci-0000:02:00.0");
    let server = follow(&machine);
    assert_eq!(server.device(1).id, "pci-0000:02:00.0");
    // Whoever waits is let go, and asks again.
    let pipe = fs::OpenOptions::new().write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    machine.set(&path, &id);
    drop(pipe);
    let wanted = format!("0x{}", id.trim().to_lowercase());
    eventually("it says who it is", || {
        let devices = server.snapshot().devices;
        (devices.len() == 4 && devices[1].id == wanted).then_some(())
    });
}

#[test]
fn a_copy_of_a_machine_does_not_lead_into_this_one() {
    let mut machine = machine::n150("2.10.0");
    machine.add_process(FakeProcess { container: Some((1, 1)), ..FakeProcess::new(42, "python", &[0]) });
    symlink("/", machine.proc(42, "root")).unwrap();
    fs::copy("/proc/self/mountinfo", machine.proc(42, "mountinfo")).unwrap();
    // Something of ours, where that link would lead.
    let id = 4_000_000_000_000_000_000 + u64::from(std::process::id());
    let ours = format!("/dev/shm/tt_device_{id}_memory");
    fs::write(&ours, "not for them").unwrap();
    let snapshot = seen(&machine);
    fs::remove_file(&ours).unwrap();
    assert_eq!((snapshot.health.counter_files, snapshot.health.skipped), (0, Vec::new()));
}

/// What a real driver showed, as files below a folder.
fn unpacked(capture: &Path) -> (tempfile::TempDir, serde_json::Value) {
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
fn what_real_drivers_showed_is_read_as_it_is() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/sysfs");
    let Ok(captures) = fs::read_dir(&captures) else {
        println!("no captures of real drivers at hand: nothing to compare with");
        return;
    };
    let mut compared = 0;
    for path in captures.map(|entry| entry.unwrap().path()) {
        let (folder, capture) = unpacked(&path);
        let output = Command::new(exe()).args(["--json", "--root"]).arg(folder.path()).output().unwrap();
        let snapshot = parsed(&output);
        let driver = capture["kmd"].as_str().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(snapshot.host.driver.as_deref(), Some(driver), "{name}");
        let chips = if name.contains("t3k") { 4 } else { 1 + usize::from(name.contains("p300")) };
        assert_eq!(snapshot.devices.len(), chips, "{name}");
        let (major, minor) = driver.split_once('.').unwrap();
        let minor = minor.split('.').next().unwrap();
        let version: (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
        let wormhole = capture["arch"] == "wormhole";
        for device in &snapshot.devices {
            let shown = Shown {
                driver: "as captured",
                asic_id: version >= if wormhole { (2, 3) } else { (2, 1) },
                heartbeat: version >= (2, 7),
                limits: version >= (2, 9),
                attributes: true,
                sensors: true,
            };
            check(device, &shown, name);
            let board = if name.contains("t3k") { "n300" } else { name.split('_').nth(1).unwrap() };
            assert_eq!(device.board.as_deref(), Some(board), "{name}");
        }
        compared += 1;
    }
    println!("{compared} captures compared");
}

#[test]
fn chips_come_and_go_and_their_values_change() {
    let mut machine = machine::t3k("2.10.0");
    let server = follow(&machine);
    assert_eq!(server.snapshot().devices.len(), 4);
    eventually("sensors are read", || server.device(2).sensors.filter(|it| it.asic_celsius == Some(45.406)));
    machine.set(machine.hwmon(2, "temp1_input"), "60500\n");
    eventually("the new value", || server.device(2).sensors.filter(|it| it.asic_celsius == Some(60.5)));
    let ids = |server: &Server| server.snapshot().devices.into_iter().map(|it| it.id).collect::<Vec<_>>();
    let before = ids(&server);
    machine.unplug(2);
    eventually("it is gone", || (ids(&server).len() == 3).then_some(()));
    // Back in the same place, it is the same chip under the same number.
    let card = Card { asic_id: u64::from_str_radix(&before[2][2..], 16).unwrap(), ..Card::new("n300", 2) };
    machine.add_card(card.with("temp1_input", "30000"));
    eventually("it is back", || (ids(&server) == before).then_some(()));
    eventually("and is read", || server.device(2).sensors.filter(|it| it.asic_celsius == Some(30.0)));
    // The last one goes, and the driver with it.
    for node in 0..4 {
        machine.unplug(node);
    }
    fs::remove_dir_all(machine.root().join("sys/class/tenstorrent")).unwrap();
    eventually("all are gone", || ids(&server).is_empty().then_some(()));
}

#[test]
fn who_has_a_chip_open_is_known_with_all_that_people_ask() {
    let mut machine = machine::t3k("2.10.0");
    let words = ["python", "-m", "model", "--name", "a b"].map(str::to_owned);
    machine.add_process(FakeProcess {
        command: words.to_vec(),
        uid: 1001,
        start: 12_345,
        ..FakeProcess::new(4242, "py (odd) name", &[0, 0, 2])
    });
    machine.add_process(FakeProcess { container: Some((7, 1)), ..FakeProcess::new(5000, "serve", &[1]) });
    let snapshot = seen(&machine);
    let [first, second] = &snapshot.processes[..] else { panic!("{:?}", snapshot.processes) };
    assert_eq!((first.pid, first.name.as_deref()), (Some(4242), Some("py (odd) name")));
    assert_eq!(first.command.as_deref(), Some("python -m model --name a b"));
    assert_eq!((first.user.as_deref(), first.basis), (Some("grace"), Basis::Unknown));
    let start = jiff::Timestamp::from_millisecond((machine::BOOT * 1000 + 123_450) as i64).unwrap();
    assert_eq!(first.start, Some(start));
    let id = |n: usize| snapshot.devices[n].id.clone();
    assert_eq!(first.open_devices, [id(0), id(2)], "once each, however many descriptors");
    assert_eq!((second.container.as_deref(), second.reported_pid), (Some(&*format!("{:064x}", 7)), Some(1)));
    assert_eq!(second.open_devices, [id(1)]);
    assert!(snapshot.devices[0].usage.dram_total.is_none(), "what it holds is not known, and not 0");
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(page.contains("N/A / 12.0 GiB") && page.contains("4242 grace"), "{page}");
    // Gone, and opened anew by another with the same pid.
    let server = follow(&machine);
    assert!(server.process(4242).is_some());
    machine.end_process(4242);
    machine.set(machine.pids(0), "");
    machine.set(machine.pids(2), "");
    eventually("it ended", || server.process(4242).is_none().then_some(()));
    machine.add_process(FakeProcess { start: 99_999, ..FakeProcess::new(4242, "another", &[3]) });
    eventually("the next one", || server.process(4242).filter(|it| it.name.as_deref() == Some("another")));
    machine.set(machine.pids(3), "");
    eventually("it closed the chip", || server.process(4242).is_none().then_some(()));
}

#[test]
fn old_drivers_do_not_say_who_has_a_chip_open_but_processes_do() {
    let mut machine = machine::p150a("2.3.0");
    machine.add_process(FakeProcess::new(77, "python", &[0]));
    machine.add_process(FakeProcess::new(78, "bystander", &[]));
    let snapshot = seen(&machine);
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!((snapshot.processes[0].pid, snapshot.processes[0].open_devices.len()), (Some(77), 1));
    // With a new driver, a child that inherited the descriptor of a dead opener is found in the same way.
    let mut machine = machine::p150a("2.10.0");
    machine.add_process(FakeProcess::new(80, "child", &[0]));
    machine.set(machine.pids(0), "79\n79\n");
    let snapshot = seen(&machine);
    assert_eq!(snapshot.processes.iter().map(|it| it.pid).collect::<Vec<_>>(), [Some(80)]);
    // What lies in a namespace we cannot see into has the pid 0.
    machine.set(machine.pids(0), "0\n80\n0\n");
    let snapshot = seen(&machine);
    let unseen = snapshot.findings.iter().find(|it| it.kind == FindingKind::Untracked).unwrap();
    assert!(unseen.text.contains("opened 2 times by processes not visible"), "{}", unseen.text);
    let server = follow(&machine);
    machine.set(machine.pids(0), "80\n");
    eventually("they closed it", || server.snapshot().findings.is_empty().then_some(()));
    // Whatever else is in the list is nobody.
    machine.set(machine.pids(0), "80\nx\n-5\n99999999999999\n\n");
    assert_eq!(seen(&machine).processes.len(), 1);
}

#[test]
fn nothing_of_a_chip_is_opened_and_nothing_is_written() {
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
    // What was opened for anything but reading, made, removed or changed.
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
    let opens_no_chip = |calls: &str| {
        assert!(calls.contains("tenstorrent!0"), "it was looked at all right");
        let opened = |line: &&str| line.contains("open") && line.contains("dev/tenstorrent");
        assert_eq!(calls.lines().find(opened), None);
    };
    let output = traced().args(["--root", root]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    opens_no_chip(&calls());
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
    opens_no_chip(&calls());
    assert_eq!(written(&calls(), &[]), [""; 0]);

    let shm = machine.root().join("dev/shm");
    // Its tracer must not be the one that is killed: it would be left alone.
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
    opens_no_chip(&calls());
    assert_eq!(written(&calls(), &[&own]), [""; 0]);
}

#[test]
fn devices_and_processes_can_be_chosen() {
    let mut machine = machine::t3k("2.10.0");
    machine.add_process(FakeProcess::new(10, "one", &[0]));
    machine.add_process(FakeProcess { uid: 1001, ..FakeProcess::new(11, "two", &[1, 2]) });
    let all = seen(&machine);
    let device = &all.devices[2];
    let pci = device.pci.clone().unwrap();
    for name in
        ["2", &device.id, &device.id.to_uppercase().replace('X', "x"), &pci, &pci[5..], "/dev/tenstorrent/2"]
    {
        let chosen = parsed(&ttmem(&machine, &["--json", "-d", name]));
        assert_eq!(chosen.devices.iter().map(|it| it.index).collect::<Vec<_>>(), [2], "{name}");
        assert_eq!(chosen.processes.iter().map(|it| it.pid).collect::<Vec<_>>(), [Some(11)], "{name}");
    }
    assert_eq!(parsed(&ttmem(&machine, &["--json", "-d", "0,3"])).devices.len(), 2);
    let pids = |args: &[&str]| {
        let snapshot = parsed(&ttmem(&machine, args));
        snapshot.processes.into_iter().filter_map(|it| it.pid).collect::<Vec<_>>()
    };
    assert_eq!(pids(&["--json", "--user", "grace"]), [11]);
    assert_eq!(pids(&["--json", "--pid", "10"]), [10]);
    assert_eq!(pids(&["--json", "--user", "nobody"]), [0u32; 0]);
    let missing = ttmem(&machine, &["-d", "7"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("--device 7: no such device; devices are 0-3"));
}

#[test]
fn scripts_get_the_columns_they_ask_for() {
    let mut machine = machine::t3k("2.10.0");
    machine.add_process(FakeProcess {
        command: vec!["a,b".into(), "\"c\"".into()],
        ..FakeProcess::new(10, "one", &[1])
    });
    let csv = |args: &[&str]| {
        let output = ttmem(&machine, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let page =
        csv(&["--format", "csv", "--query", "index,board,asic_celsius,dram_used_bytes,l1_total_bytes"]);
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines[0], "index,board,asic_celsius [C],dram_used_bytes [B],l1_total_bytes [B]");
    assert_eq!(lines[1], "0,n300,45.406 C,N/A,95944704 B");
    assert_eq!(lines.len(), 5);
    let page = csv(&["--format=csv,noheader,nounits", "--query=index,power_watts", "-d", "3"]);
    assert_eq!(page, "3,39\n");
    let page = csv(&[
        "--format=csv,nounits",
        "--query=index,process.pid,process.command,process.tracking,process.basis",
    ]);
    assert_eq!(
        page,
        "index,process.pid,process.command,process.tracking,process.basis\n1,10,\"a,b \"\"c\"\"\",untracked,N/A\n"
    );
    assert_eq!(csv(&["--format", "csv"]).lines().count(), 5, "without a choice there are the usual columns");
    let unknown = ttmem(&machine, &["--format", "csv", "--query", "colour"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("'colour'"));
    assert!(csv(&["--query", "help"]).contains("dram_used_bytes            B     "));
}

#[test]
fn a_machine_without_cards_is_told_in_one_line() {
    let machine = tempfile::tempdir().unwrap();
    let output = Command::new(exe()).arg("--root").arg(machine.path()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("ttmem demo") && said.contains("ttmem doctor"), "{said}");
    let output = Command::new(exe()).arg("--json").arg("--root").arg(machine.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(parsed(&output).devices, []);
    // What may not be read is not the same as nothing being there, and is no crash.
    let other = machine::t3k("2.10.0");
    let output = Command::new(NOBODY[0]).args(&NOBODY[1..]).arg(exe()).arg("--version").output().unwrap();
    if output.status.success() {
        let mut command = Command::new(NOBODY[0]);
        command.args(&NOBODY[1..]).arg(exe()).arg("--json").arg("--root").arg(other.root());
        assert_eq!(
            parsed(&command.output().unwrap()).devices.len(),
            4,
            "anybody may read what the driver shows"
        );
    }
}

#[test]
fn a_daemon_numbers_chips_as_runtimes_do_in_whatever_order_they_come() {
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("p150a", 2));
    let server = follow(&machine);
    let numbers = |snapshot: &Snapshot| -> Vec<_> {
        snapshot.devices.iter().map(|it| (it.index, it.pci.clone(), it.node)).collect()
    };
    let as_seen = |machine: &Machine| {
        let wanted = numbers(&seen(machine));
        eventually("the same numbers", || (numbers(&server.snapshot()) == wanted).then_some(()));
        wanted
    };
    as_seen(&machine);
    // As at boot, when the driver takes them one by one.
    machine.add_card(Card::new("p150a", 0)).add_card(Card::new("p150a", 1)).add_card(Card::new("p150a", 3));
    let all = as_seen(&machine);
    assert_eq!(
        all.iter().map(|(index, _, node)| (*index, node.unwrap())).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (2, 2), (3, 3)]
    );
    machine.unplug(0);
    let left = as_seen(&machine);
    assert_eq!(left.iter().map(|(index, ..)| *index).collect::<Vec<_>>(), [0, 1, 2]);
    // An old client's number is that of the chip that its runtime calls so.
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 0x1000, 4096);
    eventually("what it holds", || {
        let device = server.snapshot().devices.remove(0);
        let held = device.usage.dram.map(|it| it.requested_bytes)?;
        assert_eq!((device.node, held), (Some(1), 4096));
        Some(())
    });
}

#[test]
fn what_may_not_be_read_is_not_said_to_be_empty() {
    let machine = machine::n150("2.10.0");
    let program = machine.root().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    machine.set_mode("sys/class/tenstorrent", 0o700);
    machine.set_mode("dev/shm", 0o700);
    let mut command = Command::new(NOBODY[0]);
    let output = command.args(&NOBODY[1..]).arg(&program).arg("--root").arg(machine.root()).output().unwrap();
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
fn a_chip_that_leaves_takes_nobody_elses_sensors_along() {
    let mut machine = machine::cards("2.10.0", "p150a", 3);
    let server = follow(&machine);
    let celsius = |snapshot: &Snapshot| -> Vec<Option<f64>> {
        snapshot.devices.iter().map(|it| it.sensors.as_ref().and_then(|it| it.asic_celsius)).collect()
    };
    eventually("sensors", || (celsius(&server.snapshot()) == [Some(45.406); 3]).then_some(()));
    machine.unplug(1);
    let left = eventually("it is gone", || Some(server.snapshot()).filter(|it| it.devices.len() == 2));
    assert_eq!(celsius(&left), [Some(45.406); 2], "in the very first answer without it");
}

#[test]
fn who_may_not_open_enough_files_is_told_so() {
    let machine = machine::galaxy("2.10.0");
    let mut command = Command::new("prlimit");
    command.arg("--nofile=48:48").arg(exe()).args(["--json", "--root"]).arg(machine.root());
    let snapshot = parsed(&command.output().unwrap());
    let told = |it: &ttmem_core::snapshot::Skipped| it.reason.contains("ulimit -n");
    assert!(snapshot.health.skipped.iter().any(told), "{:?}", snapshot.health.skipped);
    assert!(seen(&machine).health.skipped.is_empty());
}
