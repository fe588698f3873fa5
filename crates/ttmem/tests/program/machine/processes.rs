//! Processes with an open device, and the selection of devices and processes.

use super::*;

#[test]
fn processes_with_an_open_device_are_described() {
    let mut machine = machine::t3k("2.10.0");
    let words = ["python", "-m", "model", "--name", "a b"].map(str::to_owned);
    machine.add_process(FakeProcess {
        command: words.to_vec(),
        uid: 1001,
        start: 12_345,
        ..FakeProcess::new(4242, "py (one) name", &[0, 0, 2])
    });
    machine.add_process(FakeProcess { container: Some((7, 1)), ..FakeProcess::new(5000, "serve", &[1]) });
    let snapshot = read_snapshot(&machine);
    let [first, second] = &snapshot.processes[..] else { panic!("{:?}", snapshot.processes) };
    assert_eq!((first.pid, first.name.as_deref()), (Some(4242), Some("py (one) name")));
    assert_eq!(first.command.as_deref(), Some("python -m model --name a b"));
    assert_eq!((first.user.as_deref(), first.basis), (Some("grace"), Basis::Unknown));
    let start = jiff::Timestamp::from_millisecond((machine::BOOT * 1000 + 123_450) as i64).unwrap();
    assert_eq!(first.start, Some(start));
    let id = |n: usize| snapshot.devices[n].id.clone();
    assert_eq!(first.open_devices, [id(0), id(2)], "once each, with any number of descriptors");
    assert_eq!((second.container.as_deref(), second.reported_pid), (Some(&*format!("{:064x}", 7)), Some(1)));
    assert_eq!(second.open_devices, [id(1)]);
    assert!(snapshot.devices[0].usage.dram_total.is_none(), "its memory is unknown, not 0");
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(page.contains("N/A / 12.0 GiB") && page.contains("4242 grace"), "{page}");
    // The process exits, and another one with its pid opens a device.
    let server = start_daemon(&machine);
    assert!(server.process(4242).is_some());
    machine.end_process(4242);
    machine.set(machine.pids(0), "");
    machine.set(machine.pids(2), "");
    eventually("it ended", || server.process(4242).is_none().then_some(()));
    machine.add_process(FakeProcess { start: 99_999, ..FakeProcess::new(4242, "another", &[3]) });
    eventually("the next one", || server.process(4242).filter(|it| it.name.as_deref() == Some("another")));
    machine.set(machine.pids(3), "");
    eventually("it closed the device", || server.process(4242).is_none().then_some(()));
}

#[test]
fn open_devices_are_found_in_proc_with_old_drivers() {
    let mut machine = machine::p150a("2.3.0");
    machine.add_process(FakeProcess::new(77, "python", &[0]));
    machine.add_process(FakeProcess::new(78, "bystander", &[]));
    let snapshot = read_snapshot(&machine);
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!((snapshot.processes[0].pid, snapshot.processes[0].open_devices.len()), (Some(77), 1));
    // With a new driver, this finds a child that inherited the descriptor of an exited process.
    let mut machine = machine::p150a("2.10.0");
    machine.add_process(FakeProcess::new(80, "child", &[0]));
    machine.set(machine.pids(0), "79\n79\n");
    let snapshot = read_snapshot(&machine);
    let pids: Vec<Option<u32>> = snapshot.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [Some(80)]);
    // A process in a namespace that is not visible has pid 0.
    machine.set(machine.pids(0), "0\n80\n0\n");
    let snapshot = read_snapshot(&machine);
    let hidden = snapshot.findings.iter().find(|finding| finding.kind == FindingKind::Untracked).unwrap();
    assert!(hidden.text.contains("opened 2 times by processes not visible"), "{}", hidden.text);
    let server = start_daemon(&machine);
    machine.set(machine.pids(0), "80\n");
    eventually("they closed it", || server.snapshot().findings.is_empty().then_some(()));
    // Other lines are ignored.
    machine.set(machine.pids(0), "80\nx\n-5\n99999999999999\n\n");
    assert_eq!(read_snapshot(&machine).processes.len(), 1);
}

#[test]
fn devices_and_processes_can_be_selected() {
    let mut machine = machine::t3k("2.10.0");
    machine.add_process(FakeProcess::new(10, "one", &[0]));
    machine.add_process(FakeProcess { uid: 1001, ..FakeProcess::new(11, "two", &[1, 2]) });
    let all = read_snapshot(&machine);
    let device = &all.devices[2];
    let pci = device.pci.clone().unwrap();
    for name in
        ["2", &device.id, &device.id.to_uppercase().replace('X', "x"), &pci, &pci[5..], "/dev/tenstorrent/2"]
    {
        let selected = parse_snapshot(&ttmem(&machine, &["--json", "-d", name]));
        assert_eq!(selected.devices.iter().map(|it| it.index).collect::<Vec<_>>(), [2], "{name}");
        assert_eq!(selected.processes.iter().map(|it| it.pid).collect::<Vec<_>>(), [Some(11)], "{name}");
    }
    assert_eq!(parse_snapshot(&ttmem(&machine, &["--json", "-d", "0,3"])).devices.len(), 2);
    let pids = |args: &[&str]| {
        let snapshot = parse_snapshot(&ttmem(&machine, args));
        snapshot.processes.into_iter().filter_map(|it| it.pid).collect::<Vec<_>>()
    };
    assert_eq!(pids(&["--json", "--user", "grace"]), [11]);
    assert_eq!(pids(&["--json", "--pid", "10"]), [10]);
    assert_eq!(pids(&["--json", "--user", "nobody"]), [0u32; 0]);
    let missing = ttmem(&machine, &["-d", "9"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("--device 9: no such device; devices are 0-7"));
}

#[test]
fn csv_has_the_requested_columns() {
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
    assert_eq!(lines[5], "4,n300,N/A,N/A,95944704 B", "behind the first one");
    assert_eq!(lines.len(), 9);
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
    assert_eq!(csv(&["--format", "csv"]).lines().count(), 9, "default columns without --query");
    let unknown = ttmem(&machine, &["--format", "csv", "--query", "colour"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("'colour'"));
    assert!(csv(&["--query", "help"]).contains("dram_used_bytes            B     "));
}
