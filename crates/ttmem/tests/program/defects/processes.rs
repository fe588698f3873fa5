//! Defects of the handling of processes.

use super::*;

#[test]
fn defect_24_process_of_another_user_is_alive() {
    // The server runs as another user and may not signal this process, which is root's.
    let keep = server();
    let program = copy_program(exe(), &keep);
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    let mut command = Command::new(AS_OTHER_USER[0]);
    command.args(&AS_OTHER_USER[1..]).arg(&program);
    let socket = folder.path().join("theirs.sock");
    let mut server = command
        .args(["serve", "--sim", "n150", "--legacy-socket"])
        .arg(&socket)
        .arg("--query-socket")
        .arg(folder.path().join("query.sock"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("the server listens", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let mut mine = Client::connect_to(&socket, Vintage::V144);
    mine.alloc(0, DRAM, 1, 4096);
    mine.sync();
    // Longer than several of its polls.
    std::thread::sleep(Duration::from_millis(1300));
    let levels = mine.query(0).levels;
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(levels.dram, 4096);
}

#[test]
fn defect_25_kernel_credentials_override_the_sent_pid() {
    let server = server();
    let mut client = client(&server);
    // A pid that does not exist: the old server would treat the process as exited.
    client.send(ttmem_wire::legacy::Message {
        process_id: 0x7fff_fff0,
        ..message(Type::Alloc, 0, DRAM, 1, 64)
    });
    client.sync();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(client.query(0).levels.dram, 64);
    let process = server.process(std::process::id()).unwrap();
    assert_eq!(process.reported_pid, Some(0x7fff_fff0));
    assert!(process.start.is_some());
}

#[test]
fn defect_26_exit_is_noticed_at_once() {
    let server = server();
    for _ in 0..20 {
        let mut puppet = Puppet::new(&server.legacy);
        puppet.send(Type::Alloc, 0, DRAM, 1, 64);
        assert!(server.process(puppet.pid).is_some());
        puppet.kill();
        // Without waiting: the first snapshot after the exit is correct.
        let snapshot = server.snapshot();
        assert!(snapshot.processes.is_empty() && snapshot.devices[0].usage.dram.is_none());
    }
}

#[test]
fn defect_27_cbs_and_kernels_are_reclaimed_at_exit() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    puppet.send(Type::CbAlloc, 0, 0, 1, 64);
    puppet.send(Type::KernelLoad, 0, 0, 1, 64);
    puppet.kill();
    assert_eq!(client(&server).query(0).levels, Levels::default());
    assert!(server.allocations().is_empty());
    assert_eq!(server.snapshot().health.live_records, 0);
}

#[test]
fn defect_28_exit_without_a_message_is_noticed() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    puppet.send(Type::KernelLoad, 0, 0, 1, 64);
    puppet.quit();
    eventually("its kernels are gone", || server.allocations().is_empty().then_some(()));
}

#[test]
fn defect_29_forked_child_is_a_process_of_its_own() {
    let server = server();
    let mut parent = Puppet::new(&server.legacy);
    parent.send(Type::Alloc, 0, DRAM, 0x1000, 100);
    let child = parent.fork(8192, 50) as u32;
    let snapshot = server.snapshot();
    let held = |pid| {
        let process = snapshot.processes.iter().find(|p| p.pid == Some(pid)).unwrap();
        process.usage[0].usage.dram.as_ref().unwrap().requested_bytes
    };
    assert_eq!((held(parent.pid), held(child)), (100, 50));
    let pid = rustix::process::Pid::from_raw(child as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("only the child's memory is reclaimed", || {
        let processes = server.snapshot().processes;
        (processes.len() == 1 && processes[0].pid == Some(parent.pid)).then_some(())
    });
    assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 100);
}

#[test]
fn defect_30_processes_have_devices_and_tracking() {
    let server = server();
    let mut client = client(&server);
    client.alloc(3, DRAM, 1, 64);
    client.alloc(6, L1, 1, 64);
    client.sync();
    let process = server.process(std::process::id()).unwrap();
    let devices: Vec<_> = process.usage.iter().map(|usage| usage.device.clone()).collect();
    let mut expected = [server.device(3).id, server.device(6).id];
    expected.sort();
    assert_eq!(devices, expected);
    assert_eq!((process.basis, process.complete), (Basis::Reported, false));
    assert_eq!(process.user.as_deref(), Some("root"));
    let program = std::env::current_exe().unwrap();
    assert!(process.command.unwrap().contains(program.file_name().unwrap().to_str().unwrap()));
}
