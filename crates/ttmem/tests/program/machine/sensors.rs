//! Sensor values that are impossible, missing, late or stale.

use super::*;

#[test]
fn impossible_values_are_not_shown() {
    let mut machine = Machine::new("2.10.0");
    let failing = Card::new("p150a", 0)
        .with("temp1_input", "65535999")
        .with("power1_input", "4294967295000000")
        .with("curr1_input", "-1")
        .with("in0_input", "65535")
        .with("tt_aiclk", "4294967295")
        .with("tt_heartbeat", "4294967295");
    machine.add_card(failing).add_card(Card::new("p150a", 1).with("temp1_input", "32768000"));
    let snapshot = read_snapshot(&machine);
    let sensors = snapshot.devices[0].sensors.as_ref().unwrap();
    let values = [sensors.asic_celsius, sensors.power_watts, sensors.current_amperes, sensors.vcore_volts];
    assert_eq!(values, [None; 4]);
    assert_eq!(sensors.aiclk_mhz, None);
    assert_eq!(sensors.absent["asic_celsius"], "65535999 is not possible");
    assert_eq!(sensors.axiclk_mhz, Some(900.0), "other values are shown");
    let other = snapshot.devices[1].sensors.as_ref().unwrap();
    assert_eq!((other.asic_celsius, other.power_watts), (None, Some(39.0)));
    // All values of a device that hangs are all ones: it has no serial number, but it is listed.
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card { serial: u64::MAX, asic_id: u64::MAX, ..Card::new("n150", 0) });
    let device = read_snapshot(&machine).devices.remove(0);
    assert_eq!((device.id.as_str(), device.serial), ("pci-0000:01:00.0", None));
    let page = ttmem(&machine, &[]);
    assert!(page.status.success());
    // Negative temperatures are possible.
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("n150", 0).with("temp1_input", "-12500"));
    assert_eq!(read_snapshot(&machine).devices[0].sensors.as_ref().unwrap().asic_celsius, Some(-12.5));
}

#[test]
fn unreadable_file_is_one_missing_value() {
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
    let snapshot = read_snapshot(&machine);
    assert_eq!(snapshot.devices.len(), 8);
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
    assert_eq!(snapshot.devices[0].board.as_deref(), Some("n300"), "the board is in its serial number, too");
    assert!(snapshot.devices[1].id.starts_with("pci-"));
    let third = snapshot.devices[2].sensors.as_ref().unwrap();
    assert_eq!((third.asic_celsius, third.aiclk_mhz), (None, Some(1000.0)));
    assert_eq!(snapshot.devices[3].sensors.as_ref().unwrap().asic_celsius, Some(45.406));
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(!page.contains('\x1b'), "{page}");
}

#[test]
fn hanging_file_does_not_block_readers() {
    let machine = machine::t3k("2.10.0");
    let pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    // One file of the first device, and all files of the second, as during a reset.
    pipe(&machine.hwmon(0, "temp1_input"));
    for name in ["temp1_input", "power1_input", "curr1_input", "in0_input"] {
        pipe(&machine.hwmon(1, name));
    }
    for name in ["tt_aiclk", "tt_axiclk", "tt_arcclk", "tt_heartbeat"] {
        pipe(&machine.attribute(1, name));
    }
    let snapshot = read_snapshot(&machine);
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
    // A daemon answers in the meantime, and has the value later.
    let server = start_daemon(&machine);
    let celsius = |server: &Server| server.device(0).sensors.and_then(|it| it.asic_celsius);
    assert_eq!(celsius(&server), None);
    eventually("the others are read", || server.device(3).sensors.and_then(|it| it.asic_celsius));
    // The waiting thread is released, and the next read finds a file.
    let path = machine.hwmon(0, "temp1_input");
    let pipe = fs::OpenOptions::new().write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    machine.set(&path, "51000\n");
    drop(pipe);
    eventually("the value is read", || celsius(&server).filter(|it| (51.0..51.1).contains(it)));
}

#[test]
fn last_values_of_a_hanging_device_are_shown_as_stale() {
    let machine = machine::t3k("2.10.0");
    let server = start_daemon(&machine);
    let sensors = |n: u32| server.device(n).sensors;
    eventually("all are read", || (0..4).all(|n| sensors(n).is_some_and(|it| !it.stale)).then_some(()));
    // From now on every read of one device takes a minute.
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
    let stale = eventually("its values are stale", || sensors(1).filter(|it| it.stale));
    assert_eq!(stale.asic_celsius, Some(45.406), "the last value stays");
    assert!(server.device(1).sensors_absent.is_some());
    machine.set(machine.hwmon(2, "temp1_input"), "50000\n");
    eventually("the others are still read", || sensors(2).filter(|it| it.asic_celsius == Some(50.0)));
    let page = Command::new(exe()).arg("--query-socket").arg(&server.query).output().unwrap().stdout;
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("45°C*") && page.contains("* sensors of device 1"), "{page}");
    strace.kill().unwrap();
    strace.wait().unwrap();
    eventually("it answers again", || sensors(1).filter(|it| !it.stale));
}

#[test]
fn device_without_an_id_is_known_by_its_pci_address() {
    let machine = machine::t3k("2.10.0");
    let path = machine.attribute(1, "tt_asic_id").canonicalize().unwrap();
    let id = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let snapshot = read_snapshot(&machine);
    let has_id: Vec<bool> = snapshot.devices[..4].iter().map(|device| device.id.starts_with("0x")).collect();
    assert_eq!(has_id, [true, false, true, true]);
    assert_eq!(snapshot.devices[1].id, "pci-0000:02:00.0");
    let server = start_daemon(&machine);
    assert_eq!(server.device(1).id, "pci-0000:02:00.0");
    // The waiting thread is released, and the file is read again.
    let pipe = fs::OpenOptions::new().write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    machine.set(&path, &id);
    drop(pipe);
    let wanted = format!("0x{}", id.trim().to_lowercase());
    eventually("its id is read", || {
        let devices = server.snapshot().devices;
        (devices.len() == 8 && devices[1].id == wanted).then_some(())
    });
}

#[test]
fn removed_device_does_not_affect_sensors_of_others() {
    let mut machine = machine::cards("2.10.0", "p150a", 3);
    let server = start_daemon(&machine);
    let celsius = |snapshot: &Snapshot| -> Vec<Option<f64>> {
        snapshot.devices.iter().map(|it| it.sensors.as_ref().and_then(|it| it.asic_celsius)).collect()
    };
    eventually("sensors", || (celsius(&server.snapshot()) == [Some(45.406); 3]).then_some(()));
    machine.unplug(1);
    let left = eventually("it is gone", || Some(server.snapshot()).filter(|it| it.devices.len() == 2));
    assert_eq!(celsius(&left), [Some(45.406); 2], "in the first answer without the device");
}
