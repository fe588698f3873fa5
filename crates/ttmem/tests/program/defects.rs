//! The old system's defects, by their number in its list, each shown to be none here.
//!
//! `cargo xtask mutants` puts the old behaviour back, one defect at a time, and expects the test of that number to fail.

use crate::*;
use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use ttmem_core::snapshot::Severity;
use ttmem_core::words::Basis;
use ttmem_reader::protocol::{Request, ask};
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::{Client, eventually, message};
use ttmem_wire::legacy::{Levels, MAX_SIZE, Type, Vintage};

fn client(server: &Server) -> Client {
    Client::connect(server, Vintage::V144)
}

// Protocol

#[test]
fn defect_01_our_own_protocol_says_its_version() {
    let server = server();
    for request in [Request::SNAPSHOT, Request::Allocations] {
        let answer: serde_json::Value =
            serde_json::from_slice(&ask(&server.query, &request).unwrap()).unwrap();
        assert_eq!(answer["schema"], 1);
    }
}

#[test]
fn defect_02_each_connection_is_read_in_its_own_size() {
    let server = server();
    let mut clients: Vec<Client> = Vintage::ALL.map(|vintage| Client::connect(&server, vintage)).into();
    for n in 0..50 {
        for (which, client) in clients.iter_mut().enumerate() {
            client.alloc(which as i32, DRAM, n, 10);
        }
    }
    for (which, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.query(which as i32).levels.dram, 500);
    }
    assert!(server.snapshot().findings.is_empty());
}

#[test]
fn defect_03_half_a_message_is_no_message() {
    let server = server();
    let mut buffer = [0; MAX_SIZE];
    let whole = message(Type::Alloc, 0, DRAM, 1, 777).encode(Vintage::V144, &mut buffer).to_vec();
    let mut client = client(&server);
    client.alloc(0, DRAM, 9, 1);
    client.sync();
    client.stream.write_all(&whole[..60]).unwrap();
    // Another connection's answer shows that the server had its turn.
    let mut other = Client::connect(&server, Vintage::V144);
    other.sync();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(other.query(0).levels.dram, 1);
    client.stream.write_all(&whole[60..]).unwrap();
    assert_eq!(client.query(0).levels.dram, 778);
}

#[test]
fn defect_04_the_server_never_peeks_and_reads_many_messages_at_a_time() {
    let server = Server::start(exe(), &["--sim", "n150", "--quiet"]);
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace")
        .args(["-e", "trace=recvmsg,recvfrom,recvmmsg", "-p", &server.pid().to_string(), "-o"])
        .arg(trace.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut attached = String::new();
    std::io::BufReader::new(strace.stderr.as_mut().unwrap()).read_line(&mut attached).unwrap();
    assert!(attached.contains("attached"), "{attached}");
    let mut client = client(&server);
    client.sync();
    let lines = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        (text.lines().count(), text.contains("MSG_PEEK"))
    };
    let (before, _) = lines(trace.path());
    let mut buffer = [0; MAX_SIZE];
    let mut many = Vec::new();
    for n in 0..1000 {
        many.extend_from_slice(message(Type::Alloc, 0, DRAM, n, 1).encode(Vintage::V144, &mut buffer));
    }
    client.stream.write_all(&many).unwrap();
    assert_eq!(client.query(0).levels.dram, 1000);
    let (after, peeked) = lines(trace.path());
    let _ = strace.kill();
    let _ = strace.wait();
    assert!(before > 0, "the trace shows how the server reads");
    assert!(!peeked);
    assert!(after - before < 200, "{} reads for 1000 messages", after - before);
}

#[test]
fn defect_05_a_newline_is_no_kernel_load() {
    let server = Server::start(exe(), &[]);
    let mut person = UnixStream::connect(&server.legacy).unwrap();
    person.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    person.write_all(b"\n").unwrap();
    let mut text = String::new();
    person.read_to_string(&mut text).unwrap();
    assert!(text.contains("No allocations remain."), "{text}");
    let snapshot = server.snapshot();
    assert!(snapshot.devices.is_empty() && snapshot.processes.is_empty() && snapshot.findings.is_empty());
}

#[test]
fn defect_06_answers_come_in_the_size_asked_in() {
    let server = server();
    for vintage in Vintage::ALL {
        let mut client = Client::connect(&server, vintage);
        for device in [0, 3, -1, 5] {
            assert_eq!(client.device_info(device).device_id, device, "{vintage:?}");
            assert_eq!(client.query(device).device_id, device, "{vintage:?}");
        }
        client.stream.set_nonblocking(true).unwrap();
        assert!(client.stream.read(&mut [0]).is_err(), "{vintage:?}: bytes are left over");
    }
}

#[test]
fn defect_07_dumps_are_data_with_everything_in_them() {
    let server = server();
    let mut client = client(&server);
    client.alloc(1, DRAM, 0x10, 100);
    client.cb_alloc(1, 0x20, 200);
    client.kernel_load(1, 2, 0x30, 300);
    client.sync();
    let mut rows: Vec<_> = server
        .allocations()
        .iter()
        .map(|row| {
            assert_eq!(row["pid"], std::process::id());
            assert_eq!(row["indexes"][0], 1);
            (row["space"].as_str().unwrap().to_owned(), row["requested_bytes"].as_u64().unwrap())
        })
        .collect();
    rows.sort();
    assert_eq!(rows, [("cb".into(), 200), ("dram".into(), 100), ("kernel".into(), 300)]);
}

#[test]
fn defect_08_four_gib_channels_do_not_wrap() {
    let server = Server::start(exe(), &["--sim", "p150a"]);
    assert_eq!(server.device(0).capacity.unwrap().dram_bytes, 32 << 30);
    let info = client(&server).device_info(0).capacity;
    assert_eq!(
        u64::from(info.num_dram_channels) * u64::from(info.dram_size_per_channel),
        info.total_dram_size
    );
    assert_eq!(info.total_dram_size, 34_225_520_640);
}

// Accounting

#[test]
fn defect_09_the_same_cb_again_adds_nothing_and_leaves_nothing() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    for _ in 0..5 {
        puppet.send(Type::CbAlloc, 0, 0, 0x19d60, 4096);
        puppet.send(Type::KernelLoad, 0, 0, 9, 512);
    }
    let mut client = client(&server);
    assert_eq!((client.query(0).levels.cb, client.query(0).levels.kernel), (4096, 512));
    puppet.kill();
    assert_eq!(client.query(0).levels, Levels::default());
}

#[test]
fn defect_10_freeing_an_unknown_cb_does_not_wrap() {
    let server = server();
    let mut client = client(&server);
    client.cb_free(0, 0x19d60, 4096);
    client.kernel_unload(0, 5, 4096);
    client.free(0, 5);
    assert_eq!(client.query(0).levels, Levels::default());
    assert_eq!(finding(&server, FindingKind::UnknownFree).unwrap().severity, Severity::Info);
    client.cb_alloc(0, 0x19d60, 100);
    client.cb_free(0, 0x19d60, 100);
    client.cb_free(0, 0x19d60, 100);
    assert_eq!(client.query(0).levels.cb, 0);
    assert!(finding(&server, FindingKind::DoubleFree).is_some());
}

#[test]
fn defect_11_the_recorded_size_counts_not_the_messages() {
    let server = server();
    let mut client = client(&server);
    client.kernel_load(0, 0, 1, 1000);
    client.kernel_load(0, 0, 2, 50);
    client.cb_alloc(0, 0x100, 1000);
    client.kernel_unload(0, 1, 10);
    client.cb_free(0, 0x100, 999_999);
    let levels = client.query(0).levels;
    assert_eq!((levels.kernel, levels.cb), (50, 0));
    let findings = server.snapshot().findings;
    let mismatches: u64 =
        findings.iter().filter(|f| f.kind == FindingKind::SizeMismatch).map(|f| f.count).sum();
    assert_eq!(mismatches, 2);
}

#[test]
fn defect_12_another_size_type_or_process_at_the_same_address_is_not_ignored() {
    let server = server();
    let mut mine = client(&server);
    mine.alloc(0, DRAM, 0x1000, 100);
    mine.alloc(0, DRAM, 0x1000, 100);
    mine.alloc(0, DRAM, 0x1000, 300);
    assert_eq!(mine.query(0).levels.dram, 300);
    assert!(finding(&server, FindingKind::Replaced).is_some());
    mine.alloc(0, L1, 0x1000, 7);
    assert_eq!((mine.query(0).levels.dram, mine.query(0).levels.l1), (300, 7));
    let mut puppet = Puppet::new(&server.legacy);
    puppet.send(Type::Alloc, 0, DRAM, 0x1000, 5);
    assert_eq!(mine.query(0).levels.dram, 305);
    assert!(finding(&server, FindingKind::Aliased).is_some());
}

#[test]
fn defect_13_a_death_leaves_the_other_owner_of_an_address_alone() {
    let server = server();
    let mut first = Puppet::new(&server.legacy);
    let mut second = Puppet::new(&server.legacy);
    first.send(Type::Alloc, 0, DRAM, 0x1000, 4096);
    second.send(Type::Alloc, 0, DRAM, 0x1000, 4096);
    first.kill();
    let mut client = client(&server);
    assert_eq!(client.query(0).levels.dram, 4096);
    second.send(Type::Free, 0, 0, 0x1000, 0);
    assert_eq!(client.query(0).levels.dram, 0);
    assert!(finding(&server, FindingKind::UnknownFree).is_none());
}

#[test]
fn defect_14_using_an_address_again_is_no_double_free() {
    let server = server();
    let mut client = client(&server);
    for size in 1..=200 {
        client.alloc(0, L1, 0x1000, size);
        client.free(0, 0x1000);
    }
    assert_eq!(client.query(0).levels.l1, 0);
    assert!(server.snapshot().findings.is_empty());
    client.free(0, 0x1000);
    client.sync();
    assert_eq!(finding(&server, FindingKind::DoubleFree).unwrap().count, 1);
}

#[test]
fn defect_15_reported_twice_is_held_twice_but_counted_once() {
    let server = server();
    let mut client = client(&server);
    client.alloc(0, DRAM, 0x1000, 4096);
    client.alloc(0, DRAM, 0x1000, 4096);
    assert_eq!(client.query(0).levels.dram, 4096);
    assert_eq!(server.allocations()[0]["references"], 2);
    client.free(0, 0x1000);
    assert_eq!(client.query(0).levels.dram, 4096);
    client.free(0, 0x1000);
    assert_eq!(client.query(0).levels.dram, 0);
    server.wait_for_log("ref_count=1 remaining");
}

#[test]
fn defect_16_a_free_hits_its_own_device() {
    let server = server();
    let mut client = client(&server);
    for device in 0..8 {
        client.alloc(device, DRAM, 0x1000, 100 + device as u64);
    }
    client.free(5, 0x1000);
    for device in 0..8 {
        let expected = if device == 5 { 0 } else { 100 + device as u64 };
        assert_eq!(client.query(device).levels.dram, expected);
    }
}

#[test]
fn defect_17_what_was_never_freed_goes_with_its_process() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    for kind in [DRAM, L1, HOST, L1_SMALL, TRACE] {
        puppet.send(Type::Alloc, 0, kind, 0x1000, 64);
    }
    assert_eq!(server.allocations().len(), 5);
    puppet.kill();
    assert!(server.allocations().is_empty());
    assert_eq!(server.snapshot().health.live_records, 0);
    assert_eq!(finding(&server, FindingKind::Reclaimed).unwrap().bytes, Some(5 * 64));
}

#[test]
fn defect_18_cached_programs_are_registered_not_resident() {
    let server = server();
    let mut client = client(&server);
    // Ten cached programs that lay their circular buffers over the same addresses.
    for program in 0..10 {
        client.cb_alloc(0, 0x19d60, 65_536 + program);
        client.kernel_load(0, 0, program, 1000);
    }
    client.sync();
    let usage = server.usage(0);
    let cb = usage.cb.unwrap();
    assert_eq!((cb.registered_bytes, cb.resident_bytes, cb.count), (65_545, None, Some(10)));
    let kernel = usage.kernel.unwrap();
    assert_eq!((kernel.registered_bytes, kernel.resident_bytes), (10_000, None));
}

#[test]
fn defect_19_capacity_is_of_harvested_cores_and_more_than_that_is_flagged() {
    let server = server();
    assert_eq!(server.device(0).capacity.unwrap().l1_bytes, 95_944_704);
    let mut client = client(&server);
    client.alloc(0, L1, 0, 95_944_704);
    client.sync();
    assert!(finding(&server, FindingKind::OverCapacity).is_none());
    client.kernel_load(0, 0, 1, 4096);
    client.sync();
    let over = finding(&server, FindingKind::OverCapacity).unwrap();
    assert_eq!((over.severity, over.bytes), (Severity::Error, Some(4096)));
    assert_eq!(server.usage(0).l1_total.unwrap().used_bytes, 95_944_704 + 4096, "shown, not clamped");
}

#[test]
fn defect_20_freeing_one_cb_leaves_the_others() {
    let server = server();
    let mut client = client(&server);
    client.cb_alloc(0, 0x1000, 100);
    client.cb_alloc(0, 0x2000, 200);
    client.cb_alloc(0, 0x1000, 300);
    client.cb_free(0, 0x1000, 300);
    assert_eq!(client.query(0).levels.cb, 300);
    assert_eq!(server.usage(0).cb.unwrap().count, Some(2));
}

#[test]
fn defect_21_trace_is_dram_and_l1_small_is_l1() {
    let server = server();
    let mut client = client(&server);
    client.alloc(0, TRACE, 0, 1 << 20);
    client.alloc(0, L1_SMALL, 0, 1 << 10);
    client.alloc(0, HOST, 0, 1 << 30);
    client.sync();
    let usage = server.usage(0);
    let (dram, l1) = (usage.dram_total.unwrap(), usage.l1_total.unwrap());
    assert_eq!((dram.used_bytes, dram.capacity_bytes), (1 << 20, Some(12 << 30)));
    assert_eq!((l1.used_bytes, l1.capacity_bytes), (1 << 10, Some(95_944_704)));
    assert_eq!(usage.host.unwrap().requested_bytes, 1 << 30, "known, and nowhere counted");
    assert_eq!(client.query(0).levels.l1_small, 1 << 10);
}

#[test]
fn defect_22_fields_nobody_fills_are_not_published() {
    let server = server();
    let mut client = client(&server);
    client.kernel_load(0, 0, 1, 4096);
    client.sync();
    let mut buffer = [0; MAX_SIZE];
    let question = message(Type::Query, 0, 0, 0, 0).encode(Vintage::V144, &mut buffer).to_vec();
    client.stream.write_all(&question).unwrap();
    let mut answer = [0xff; 144];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[128..], [0; 16]);
    let text = String::from_utf8(ask(&server.query, &Request::SNAPSHOT).unwrap()).unwrap();
    assert!(!text.contains("ring"), "{text}");
    assert_eq!(answer[80..88], 4096u64.to_le_bytes());
    assert_eq!(server.usage(0).kernel.unwrap().registered_bytes, 4096);
}

#[test]
fn defect_23_an_unknown_free_is_information() {
    let server = server();
    let mut client = client(&server);
    client.free(2, 0xabcd);
    client.sync();
    let unknown = finding(&server, FindingKind::UnknownFree).unwrap();
    assert_eq!((unknown.severity, unknown.count), (Severity::Info, 1));
    server.wait_for_log("unknown buffer 0xabcd on device 2 (allocated before tracking started)");
    assert_eq!(server.warnings(), "");
}

// Processes

#[test]
fn defect_24_a_process_that_may_not_be_signalled_is_not_dead() {
    // The server is nobody, and may not signal this process, which is root's.
    let keep = server();
    let program = copied(exe(), &keep);
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    let mut command = Command::new(NOBODY[0]);
    command.args(&NOBODY[1..]).arg(&program);
    let socket = folder.path().join("theirs.sock");
    let mut server = command
        .args(["serve", "--sim", "n150", "--legacy-socket"])
        .arg(&socket)
        .arg("--query-socket")
        .arg(folder.path().join("query.sock"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("the server listens", || socket.exists().then_some(()));
    let mut mine = Client::connect_to(&socket, Vintage::V144);
    mine.alloc(0, DRAM, 1, 4096);
    mine.sync();
    // Longer than several of its looks around.
    std::thread::sleep(Duration::from_millis(1300));
    let levels = mine.query(0).levels;
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(levels.dram, 4096);
}

#[test]
fn defect_25_the_kernels_word_counts_not_the_messages_pid() {
    let server = server();
    let mut client = client(&server);
    // Says it is a process that does not exist; the old server would take it for dead.
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
fn defect_26_a_death_is_noticed_at_once() {
    let server = server();
    for _ in 0..20 {
        let mut puppet = Puppet::new(&server.legacy);
        puppet.send(Type::Alloc, 0, DRAM, 1, 64);
        assert!(server.process(puppet.pid).is_some());
        puppet.kill();
        // No waiting: the first look after the death is right.
        let snapshot = server.snapshot();
        assert!(snapshot.processes.is_empty() && snapshot.devices[0].usage.dram.is_none());
    }
}

#[test]
fn defect_27_cbs_and_kernels_do_not_outlive_a_process_without_buffers() {
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
fn defect_28_a_process_need_not_say_goodbye() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    puppet.send(Type::KernelLoad, 0, 0, 1, 64);
    puppet.quit();
    eventually("its kernels are gone", || server.allocations().is_empty().then_some(()));
}

#[test]
fn defect_29_a_forked_child_is_its_own_process() {
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
    eventually("only the child's share goes", || {
        let processes = server.snapshot().processes;
        (processes.len() == 1 && processes[0].pid == Some(parent.pid)).then_some(())
    });
    assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 100);
}

#[test]
fn defect_30_processes_are_shown_with_their_devices_and_how_they_are_tracked() {
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

// Server

#[test]
fn defect_37_a_living_servers_socket_is_not_stolen() {
    let server = server();
    let second = Command::new("timeout")
        .arg("20")
        .arg(exe())
        .args(["serve", "--legacy-socket"])
        .arg(&server.legacy)
        .arg("--query-socket")
        .arg(server.folder.path().join("other.sock"))
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let why = String::from_utf8(second.stderr).unwrap();
    assert!(why.contains("another server is listening"), "{why}");
    client(&server).sync();
    let mode = std::os::unix::fs::PermissionsExt::mode(&server.legacy.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o666, "other users' programs may report, whatever the umask");
}

#[test]
fn defect_38_signals_end_it_cleanly_or_ask_for_a_summary() {
    use rustix::process::Signal;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // A child inherits that a signal is ignored, which SIGHUP is where the tests run under `nohup`.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(exe());
        let mut server = Server::start_by(command, &["--sim", "t3k"]);
        let mut client = client(&server);
        client.alloc(0, DRAM, 1, 2048);
        client.sync();
        server.signal(Signal::USR1);
        server.wait_for_log("Active allocations: 1");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(client.query(0).levels.dram, 2048, "it goes on");
        assert!(server.is_running());
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        assert!(!server.legacy.exists() && !server.query.exists());
        assert!(!server.legacy.with_extension("sock.lock").exists());
    }
}

#[test]
fn a_server_under_nohup_outlives_its_terminal() {
    let mut command = Command::new("nohup");
    command.arg(exe());
    let mut server = Server::start_by(command, &["--sim", "n150"]);
    server.signal(rustix::process::Signal::HUP);
    std::thread::sleep(Duration::from_millis(100));
    client(&server).sync();
    assert!(server.is_running());
}

#[test]
fn a_watch_under_nohup_outlives_its_terminal() {
    use rustix::process::{Pid, Signal, kill_process};
    let server = server();
    for (hang_up, survives) in [("--default-signal=HUP", false), ("--ignore-signal=HUP", true)] {
        let mut command = Command::new("env");
        command.arg(hang_up).arg(exe()).args(["--watch", "--refresh", "50", "--query-socket"]);
        let mut watch = command.arg(&server.query).stdout(Stdio::piped()).spawn().unwrap();
        let mut tables = std::io::BufReader::new(watch.stdout.take().unwrap()).lines();
        let mut wait_for_table =
            || tables.find(|line| line.as_ref().is_ok_and(|it| it.contains("n300"))).is_some();
        assert!(wait_for_table());
        kill_process(Pid::from_child(&watch), Signal::HUP).unwrap();
        if survives {
            // More than one that was on its way.
            assert!((0..30).all(|_| wait_for_table()), "it goes on");
            kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
        }
        while wait_for_table() {}
        assert!(watch.wait().unwrap().success());
    }
}

#[test]
fn defect_39_devices_are_a_map_not_an_array() {
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
fn defect_45_history_has_times_not_sample_numbers() {
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
