//! Defects of the server.

use super::*;

#[test]
fn defect_37_socket_of_a_running_server_is_kept() {
    let server = server();
    let serve = |query: &Path| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(exe()).args(["serve", "--quiet", "--sim", "n150", "--legacy-socket"]);
        command.arg(&server.legacy).arg("--query-socket").arg(query);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let error = |output: Output| String::from_utf8(output.stderr).unwrap();
    let second = serve(&server.query).wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(error(second).contains("another server is listening"));
    // With a query socket of its own, it does without old clients.
    let own = server.folder.path().join("other.sock");
    let third = serve(&own);
    eventually("its own socket", || own.exists().then_some(()));
    let pid = rustix::process::Pid::from_child(&third);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let third = third.wait_with_output().unwrap();
    assert!(third.status.success());
    let error = error(third);
    assert!(error.contains("old clients are not tracked: another server is listening"), "{error}");
    client(&server).sync();
    let mode = std::os::unix::fs::PermissionsExt::mode(&server.legacy.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o666, "programs of other users can report, independent of the umask");
}

#[test]
fn defect_38_signals_end_the_server_or_print_a_summary() {
    use rustix::process::Signal;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // A child inherits ignored signals, and the tests may run under `nohup`, which ignores SIGHUP.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(exe());
        let mut server = Server::start_by(command, &["--sim", "t3k"]);
        let mut client = client(&server);
        client.alloc(0, DRAM, 1, 2048);
        client.sync();
        server.signal(Signal::USR1);
        server.wait_for_log("Active allocations: 1");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(client.query(0).levels.dram, 2048, "it still runs");
        assert!(server.is_running());
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        assert!(!server.legacy.exists() && !server.query.exists());
        assert!(!server.legacy.with_extension("sock.lock").exists());
    }
}

#[test]
fn server_under_nohup_ignores_hangup() {
    let mut command = Command::new("nohup");
    command.arg(exe());
    let mut server = Server::start_by(command, &["--sim", "n150"]);
    server.signal(rustix::process::Signal::HUP);
    std::thread::sleep(Duration::from_millis(100));
    client(&server).sync();
    assert!(server.is_running());
}

#[test]
fn watch_under_nohup_ignores_hangup() {
    use rustix::process::{Pid, Signal, kill_process};
    let server = server();
    for (hang_up, survives) in [("--default-signal=HUP", false), ("--ignore-signal=HUP", true)] {
        let mut command = Command::new("env");
        command.arg(hang_up).arg(exe()).args(["--watch", "--refresh", "50", "--query-socket"]);
        let mut watch = command.arg(&server.query).stdout(Stdio::piped()).spawn().unwrap();
        let mut tables = std::io::BufReader::new(watch.stdout.take().unwrap()).lines();
        let mut wait_for_table =
            || tables.find(|line| line.as_ref().is_ok_and(|line| line.contains("n300"))).is_some();
        assert!(wait_for_table());
        kill_process(Pid::from_child(&watch), Signal::HUP).unwrap();
        if survives {
            // More tables than the pipe held before the signal.
            assert!((0..30).all(|_| wait_for_table()), "it continues");
            kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
        }
        while wait_for_table() {}
        assert!(watch.wait().unwrap().success());
    }
}

#[test]
fn defect_39_device_numbers_are_not_array_indexes() {
    let server = Server::start(exe(), &[]);
    let mut client = client(&server);
    for device in [0, 255, 256, 1000] {
        client.alloc(device, DRAM, 1, 100);
        assert_eq!(client.query(device).levels.dram, 100);
    }
    for device in [-1, 1024, 2_657_333, i32::MAX, i32::MIN] {
        client.alloc(device, DRAM, 1, 100);
        let answer = client.query(device);
        assert_eq!((answer.device_id, answer.levels), (device, Levels::default()));
    }
    let indexes: Vec<u32> = server.snapshot().devices.iter().map(|device| device.index).collect();
    assert_eq!(indexes, [0, 255, 256, 1000]);
}

#[test]
fn defect_45_history_has_times() {
    let server = server();
    let mut client = client(&server);
    let history = || {
        let answer = ask(
            &server.query,
            &Request::Snapshot(ttmem_core::Detail { history: true, ..Default::default() }),
        )
        .unwrap();
        let snapshot: ttmem_core::Snapshot = ttmem_testkit::schema::snapshot(&answer);
        let samples = snapshot.devices[0].history.clone().unwrap().dram_total;
        (snapshot.at, samples)
    };
    client.alloc(0, DRAM, 1, 4096);
    client.sync();
    let (at, samples) = eventually("history grows", || {
        let (at, samples) = history();
        (samples.iter().filter(|s| s.max_bytes == 4096).count() >= 3).then_some((at, samples))
    });
    assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at));
    let age = at.duration_since(samples.last().unwrap().at);
    assert!(age.as_secs_f64() < 5.0, "the newest sample is {age:?} old");
}
