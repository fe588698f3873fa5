//! Devices that are reset while they are read.

use crate::exe;
use crate::machine::parse_snapshot;
use std::process::Command;
use ttmem_testkit::machine::{self, FakeProcess};
use ttmem_testkit::{Server, eventually};

#[test]
fn values_of_a_device_in_reset_are_absent_with_a_reason() {
    let machine = machine::t3k("2.10.0");
    let real_path = |path: std::path::PathBuf| path.canonicalize().unwrap().display().to_string();
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-q",
        "-o",
        "/dev/null",
        "-e",
        "trace=pread64",
        "-e",
        "inject=pread64:error=ENODATA",
    ]);
    for name in ["temp1_input", "power1_input", "curr1_input", "in0_input"] {
        command.args(["-P", &real_path(machine.hwmon(1, name))]);
    }
    for name in ["tt_aiclk", "tt_axiclk", "tt_arcclk", "tt_asic_id", "tt_serial", "tt_heartbeat"] {
        command.args(["-P", &real_path(machine.attribute(1, name))]);
    }
    let output = command.arg(exe()).arg("--root").arg(machine.root()).arg("--json").output().unwrap();
    let snapshot = parse_snapshot(&output);
    assert_eq!(snapshot.devices.len(), 7, "its board is not readable now, either");
    let device = &snapshot.devices[1];
    assert_eq!(device.sensors_absent.as_deref(), Some("the device is being reset"));
    assert!(device.sensors.is_none());
    assert_eq!(device.id, "pci-0000:02:00.0", "its id is not readable now");
    assert_eq!(snapshot.devices[2].sensors.as_ref().unwrap().asic_celsius, Some(45.406));
}

#[test]
fn device_without_an_id_is_read_again() {
    let mut machine = machine::t3k("2.10.0");
    machine.add_process(FakeProcess::new(4242, "python", &[1]));
    let asic_id = machine.attribute(1, "tt_asic_id").canonicalize().unwrap();
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-q", "-o", "/dev/null", "-e", "trace=pread64"]);
    command.args(["-e", "inject=pread64:error=ENODATA:when=1..2", "-P"]).arg(asic_id).arg(exe());
    let (root, shm) = (machine.root(), machine.root().join("dev/shm"));
    let args = ["--root", root.to_str().unwrap(), "--shm-dir", shm.to_str().unwrap()];
    let server = Server::start_by(command, &args);
    let first = &server.first.devices;
    assert_eq!((first.len(), first[1].id.as_str()), (8, "pci-0000:02:00.0"));
    assert_eq!(server.first.processes[0].open_devices, ["pci-0000:02:00.0"]);
    eventually("its id is read", || server.device(1).id.starts_with("0x").then_some(()));
    let after = server.snapshot().devices;
    let indexes: Vec<u32> = after.iter().map(|device| device.index).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4, 5, 6, 7], "{after:#?}");
    assert!(after.iter().all(|device| device.id.starts_with("0x")));
    assert_eq!(
        server.process(4242).unwrap().open_devices,
        [after[1].id.clone()],
        "the process still has it open"
    );
    eventually("its sensors are read", || server.device(1).sensors.filter(|it| it.asic_celsius.is_some()));
}
