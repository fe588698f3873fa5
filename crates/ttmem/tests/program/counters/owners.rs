//! The owners of counters: users, containers, namespaces, and the devices that files belong to.

use super::*;
use ttmem_testkit::memory_folder;

#[test]
fn unreadable_counters_are_listed_with_a_remedy() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    let path = put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 1, 100)]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    let shm = machine.root().join("dev/shm");
    let args = ["--root", machine.root().to_str().unwrap(), "--shm-dir", shm.to_str().unwrap()];
    let server = Server::start(exe(), &args);
    let program = copy_program(exe(), &server);
    let as_other_user = |more: &[&str]| {
        let mut command = Command::new(AS_OTHER_USER[0]);
        command
            .args(&AS_OTHER_USER[1..])
            .arg(&program)
            .args(["--root", machine.root().to_str().unwrap()])
            .args(more);
        command.output().unwrap()
    };
    let snapshot = parse_snapshot(&as_other_user(&["--json"]));
    let [skipped] = &snapshot.health.skipped[..] else { panic!("{:?}", snapshot.health.skipped) };
    assert!(
        skipped.reason.contains("belongs to ada") && skipped.reason.contains("ttmem serve"),
        "{skipped:?}"
    );
    assert_eq!(one(&snapshot, 700).basis, Basis::Unknown, "every user can read that it has the device open");
    let page = String::from_utf8(as_other_user(&[]).stdout).unwrap();
    assert!(page.contains("Not read:") && page.contains("belongs to ada"), "{page}");
    // Root can read the file, and so can users of root's daemon.
    assert_eq!(held(one(&read_snapshot(&machine), 700)), expected(1));
    let mut command = Command::new(AS_OTHER_USER[0]);
    command.args(&AS_OTHER_USER[1..]).arg(&program).arg("--query-socket").arg(&server.query).arg("--json");
    assert_eq!(held(one(&parse_snapshot(&command.output().unwrap()), 700)), expected(1));
    let mut command = Command::new(&program);
    let page = command.arg("--query-socket").arg(&server.query).output().unwrap().stdout;
    assert!(String::from_utf8(page).unwrap().contains(", via daemon"));
}

#[test]
fn renamed_process_of_another_user_may_be_alive() {
    let layout = Layout::V3;
    let machine = machine::n150("2.10.0");
    let mut running = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = running.id();
    let now = jiff::Timestamp::now().as_second() as u64 - BOOT;
    let path = put(&machine, 7, &region(layout, 7, 0, vec![entry(layout, 0, pid, "python", 1, now + 1)]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let program = machine.root().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    let read = || {
        let mut command = Command::new(AS_OTHER_USER[0]);
        command.args(&AS_OTHER_USER[1..]).arg(&program).args(["--local", "--json", "--shm-dir"]);
        parse_snapshot(&command.arg(path.parent().unwrap()).output().unwrap())
    };
    let ghost_text = || {
        let snapshot = read();
        let [ghost] = &found(&snapshot, FindingKind::GhostBytes)[..] else {
            panic!("{:?}", snapshot.findings)
        };
        ghost.text.clone()
    };
    assert!(ghost_text().contains("exited or is not visible"), "{}", ghost_text());
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(ghost_text().contains("exited, but"), "{}", ghost_text());
}

#[test]
fn hidden_process_is_neither_exited_nor_absent() {
    let layout = Layout::V3;
    let machine = machine::n150("2.10.0");
    let id = u64::from_str_radix(&read_snapshot(&machine).devices[0].id[2..], 16).unwrap();
    let mut running = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = running.id();
    machine.set(machine.pids(0), &format!("{pid}\n"));
    let seconds = jiff::Timestamp::now().as_second() as u64 - BOOT;
    let path = put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, pid, "sleep", 1, seconds)]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    // This machine as a user who cannot see the processes of others.
    let program = machine.root().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    let root = machine.root().display();
    let hide = format!(
        "mount -t proc -o hidepid=2 proc /proc && mount --rbind {root}/proc/driver /proc/driver && \
         mount --rbind {root}/sys /sys && exec \"$@\""
    );
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &hide, "sh"]).args(AS_OTHER_USER).arg(&program).args(args);
        command.arg("--shm-dir").arg(path.parent().unwrap()).output().unwrap()
    };
    let snapshot = parse_snapshot(&run(&["--local", "--json"]));
    let [ghost] = &found(&snapshot, FindingKind::GhostBytes)[..] else { panic!("{:?}", snapshot.findings) };
    assert!(ghost.text.contains("exited or is not visible"), "{}", ghost.text);
    assert_eq!(found(&snapshot, FindingKind::Untracked).len(), 1, "{:?}", snapshot.findings);
    let report = String::from_utf8(run(&["doctor"]).stdout).unwrap();
    assert!(report.contains("hidepid") && !report.contains("can be removed"), "{report}");
    assert!(!report.contains("first pid namespace") && !report.contains("exited, but"), "{report}");
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn container_pid_is_not_a_host_pid() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    // Inside the container it is pid 1; on the host, pid 1 is another program.
    machine.add_process(FakeProcess { start: 0, ..FakeProcess::new(1, "systemd", &[]) });
    machine.add_process(FakeProcess {
        container: Some((3, 1)),
        start: 60 * TICKS,
        ..FakeProcess::new(900, "python", &[0])
    });
    symlink("../..", machine.proc(900, "root")).unwrap();
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 1, "python", 2, 100)]));
    let snapshot = read_snapshot(&machine);
    let process = one(&snapshot, 900);
    assert_eq!((held(process), process.reported_pid), (expected(2), Some(1)));
    assert!(process.container.is_some());
    assert!(snapshot.processes.iter().all(|it| it.pid != Some(1)));
    assert_eq!(snapshot.findings, []);
}

#[test]
fn equal_pids_in_two_containers_are_distinguished() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    // The process with pid 900 in its container has another pid here, and pid 900 here has another pid in its container.
    for (pid, number, inside) in [(900, 5, 1), (901, 4, 900)] {
        let container = Some((number, inside));
        let start = 60 * TICKS;
        machine.add_process(FakeProcess { container, start, ..FakeProcess::new(pid, "python", &[0]) });
        symlink("../..", machine.proc(pid, "root")).unwrap();
    }
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 900, "python", 2, 100)]));
    let snapshot = read_snapshot(&machine);
    assert_eq!(held(one(&snapshot, 901)), expected(2));
    assert_eq!(one(&snapshot, 900).basis, Basis::Unknown);
    assert_eq!(snapshot.findings, []);
}

#[test]
fn container_with_its_own_folder_is_in_no_other_file() {
    let layout = Layout::V3;
    let (mut machine, id) = busy(700);
    machine.add_process(FakeProcess {
        container: Some((4, 1)),
        start: 60 * TICKS,
        ..FakeProcess::new(901, "python", &[0])
    });
    fs::create_dir_all(machine.root().join("container/dev/shm")).unwrap();
    symlink("../../container", machine.proc(901, "root")).unwrap();
    put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 1, "python", 2, 100)]));
    let snapshot = read_snapshot(&machine);
    assert_eq!(one(&snapshot, 901).basis, Basis::Unknown);
    assert_eq!(found(&snapshot, FindingKind::GhostBytes)[0].pid, Some(1));
}

#[test]
fn entry_slightly_before_the_start_is_attributed() {
    for layout in Layout::ALL {
        let (machine, id) = busy(700);
        let mut slot = entry(layout, 0, 700, "python", 2, 50);
        // Without a time, or shortly before the start of its process, since clocks differ a little.
        for updated_ns in [0, slot.updated_ns - 40_000_000] {
            slot.updated_ns = updated_ns;
            put(&machine, id, &region(layout, id, 0, vec![slot.clone()]));
            assert_eq!(
                held(one(&read_snapshot(&machine), 700))[..5],
                expected(2),
                "{layout:?}: {updated_ns}"
            );
        }
    }
}

#[test]
fn pid_and_name_do_not_identify_in_a_namespace() {
    let layout = Layout::V3;
    let folder = memory_folder();
    // In the namespace, the shell has this pid and name, but does not use the file.
    let mut slot = entry(layout, 0, 1, "sh", 2, 0);
    slot.updated_ns = jiff::Timestamp::now().as_nanosecond() as u64;
    let path = folder.path().join("tt_device_77_memory");
    fs::write(path, build(layout, &region(layout, 77, 0, vec![slot]))).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount", "--mount-proc", "sh", "-c"]);
    command.arg("\"$0\" --json --shm-dir \"$1\"; exit 0").arg(exe()).arg(folder.path());
    let snapshot = parse_snapshot(&command.output().unwrap());
    assert!(snapshot.processes.iter().all(|it| it.pid != Some(1)), "{:#?}", snapshot.processes);
    let ghosts = found(&snapshot, FindingKind::GhostBytes);
    assert!(ghosts.len() == 1 && ghosts[0].text.contains("exited or is not visible"), "{ghosts:#?}");
}

#[test]
fn second_device_of_an_n300_is_known_by_its_board() {
    let layout = Layout::V3;
    let mut machine = Machine::new("2.10.0");
    let serial = 0x0100_0146_1190_302b;
    machine.add_card(Card { serial, ..Card::new("n300", 0) });
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[0]) });
    for (id, device) in [(0x2_6190_302b, 0), (0x3_6190_302b, 1)] {
        put(&machine, id, &region(layout, id, device, vec![entry(layout, 0, 700, "python", 1, 100)]));
    }
    let snapshot = read_snapshot(&machine);
    let [first, second] = &snapshot.devices[..] else { panic!("{:#?}", snapshot.devices) };
    assert_eq!((first.remote, second.remote), (false, true));
    assert_eq!((second.index, second.id.as_str()), (1, "0x000000036190302b"));
    assert_eq!((second.board.as_deref(), second.capacity.unwrap().l1_bytes), (Some("n300"), 95_944_704));
    assert!(second.sensors.is_none());
    assert!(second.sensors_absent.as_ref().unwrap().starts_with("remote"));
    assert_eq!(second.usage.dram.as_ref().unwrap().requested_bytes, 1 << 20);
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(page.contains("\n1   n300 R "), "{page}");
}

#[test]
fn counters_are_attributed_by_open_devices() {
    let layout = Layout::V3;
    let mut machine = machine::p300b("2.10.0");
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[0, 1]) });
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(701, "mock", &[]) });
    put(&machine, 0xabc, &region(layout, 0xabc, 1, vec![entry(layout, 0, 700, "python", 1, 100)]));
    put(&machine, 0xdef, &region(layout, 0xdef, 0, vec![entry(layout, 0, 701, "mock", 2, 100)]));
    let snapshot = read_snapshot(&machine);
    assert_eq!(snapshot.devices.len(), 3, "without an open device, it is not one of this bus");
    let used = |n: usize| snapshot.devices[n].usage.dram.as_ref().map(|it| it.requested_bytes);
    assert_eq!([used(0), used(1), used(2)], [None, Some(1 << 20), Some(2 << 20)]);
    assert_eq!(snapshot.devices[1].names, ["0x0000000000000abc"]);
    // A process that sees only the second device calls it device 0.
    let mut machine = machine::p300b("2.10.0");
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[1]) });
    put(&machine, 0xabc, &region(layout, 0xabc, 0, vec![entry(layout, 0, 700, "python", 1, 100)]));
    let snapshot = read_snapshot(&machine);
    assert_eq!(snapshot.devices.len(), 2);
    assert_eq!(snapshot.devices[1].usage.dram.as_ref().unwrap().requested_bytes, 1 << 20);
}

#[test]
fn counters_of_a_removed_device_are_not_reassigned() {
    let layout = Layout::V3;
    let mut machine = machine::cards("2.10.0", "p150a", 3);
    machine.add_process(FakeProcess { start: 50 * TICKS, ..FakeProcess::new(700, "python", &[0, 1, 2]) });
    let ids: Vec<u64> = read_snapshot(&machine)
        .devices
        .iter()
        .map(|it| u64::from_str_radix(&it.id[2..], 16).unwrap())
        .collect();
    for (device, (&id, n)) in ids.iter().zip([4, 1, 2]).enumerate() {
        let slots = vec![entry(layout, 0, 700, "python", n, 100)];
        put(&machine, id, &region(layout, id, device as u32, slots));
    }
    let server = start_daemon(&machine);
    let used = |snapshot: &Snapshot| {
        let dram = |it: &Device| it.usage.dram.as_ref().map(|it| it.requested_bytes >> 20);
        let mut used: Vec<_> = snapshot.devices.iter().map(|it| (it.id.clone(), it.node, dram(it))).collect();
        used.sort();
        used
    };
    let wanted = |nodes: [Option<u32>; 3]| {
        let device = |n: usize| (format!("0x{:016x}", ids[n]), nodes[n], Some([4, 1, 2][n]));
        [device(0), device(1), device(2)]
    };
    assert_eq!(used(&server.snapshot()), wanted([Some(0), Some(1), Some(2)]));
    machine.unplug(0);
    eventually("the device is gone", || {
        let snapshot = server.snapshot();
        snapshot.devices.iter().all(|it| it.node != Some(0)).then_some(())
    });
    assert_eq!(used(&server.snapshot()), wanted([None, Some(1), Some(2)]));
    assert_eq!(used(&read_snapshot(&machine)), wanted([None, Some(1), Some(2)]));
    machine.add_card(Card::new("p150a", 0));
    eventually("the device is back", || {
        (used(&server.snapshot()) == wanted([Some(0), Some(1), Some(2)])).then_some(())
    });
}

#[test]
fn topology_gives_harvesting_and_remote_devices() {
    let mut machine = Machine::new("2.10.0");
    for node in 0..2 {
        machine.add_card(Card::new("n300", node));
    }
    let ids: Vec<String> = read_snapshot(&machine).devices.iter().map(|device| device.id.clone()).collect();
    let first = u64::from_str_radix(&ids[0][2..], 16).unwrap();
    // The first by its unique id, the second by its PCI address; two remote devices; one core row is harvested.
    let text = format!(
        "arch: {{0: wormhole_b0, 1: wormhole_b0, 2: Wormhole, 3: wormhole_b0}}\n\
         chips: {{}}\n\
         chip_unique_ids: {{0: {first}, 1: 51, 2: 52, 3: 53}}\n\
         ethernet_connections: []\n\
         chips_with_mmio: [0: 7, 1: 9]\n\
         harvesting:\n  \
           0: {{noc_translation: true, harvest_mask: 3}}\n  \
           1: {{noc_translation: true, harvest_mask: 7}}\n  \
           2: {{noc_translation: true, harvest_mask: 3}}\n  \
           3: {{noc_translation: true, harvest_mask: 1}}\n\
         boards: [[{{board_id: 1}}, {{board_type: n300}}, {{chips: [0, 2]}}]]\n\
         chip_pci_bdfs: {{1: 0000:02:00.0}}\n"
    );
    let path = machine.root().join("cluster.yaml");
    fs::write(&path, &text).unwrap();
    let topology = ["--topology", path.to_str().unwrap()];
    let snapshot = parse_snapshot(&ttmem(&machine, &[&["--json"], &topology[..]].concat()));
    let cores: Vec<u32> = snapshot.devices.iter().map(|device| device.capacity.unwrap().cores).collect();
    assert_eq!(cores, [64, 56, 64, 72]);
    let remote: Vec<bool> = snapshot.devices.iter().map(|device| device.remote).collect();
    assert_eq!(remote, [false, false, true, true]);
    assert_eq!(snapshot.devices[1].names, [format!("0x{:016x}", 51)]);
    assert_eq!(snapshot.devices[1].sensors.as_ref().unwrap().asic_celsius, Some(45.406));
    assert_eq!(snapshot.devices[3].id, format!("0x{:016x}", 53));
    assert_eq!(snapshot.devices[1].id, ids[1], "it keeps its id");
    // The error on a wrong file names the file and the key.
    fs::write(&path, text.replace("harvest_mask: 7", "harvest_mask: many")).unwrap();
    let output = ttmem(&machine, &topology);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("cluster.yaml") && error.contains("harvest_mask"), "{error}");
    let output = ttmem(&machine, &["--topology", "/nowhere.yaml"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere.yaml"));
}
