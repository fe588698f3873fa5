//! One user's processes and files do not change the figures of others.

use crate::counters::{busy, entry, expected, held, one, put, region};
use crate::machine::{read_snapshot, ttmem};
use crate::segments::{dram, local, process};
use crate::*;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use ttmem_core::Limits;
use ttmem_core::words::{Basis, Fault};
use ttmem_testkit::producer::Producer;
use ttmem_testkit::terminal::Terminal;
use ttmem_testkit::{Client, eventually, memory_folder, message};
use ttmem_wire::legacy::{MAX_SIZE, Type, Vintage};
use ttmem_wire::region::Layout;

const OTHER_USER: u32 = 65534;

#[test]
fn message_of_two_senders_is_refused() {
    let server = server();
    let mut buffer = [0; MAX_SIZE];
    let wrong = message(Type::Alloc, 0, DRAM, 7, 90 << 30).encode(Vintage::V112, &mut buffer).to_vec();
    // Half of a message, or a whole one and half of the next.
    for before in [0, 112] {
        let mut stream = UnixStream::connect(&server.legacy).unwrap();
        let first = message(Type::Alloc, 0, DRAM, 8, 64).encode(Vintage::V112, &mut buffer).to_vec();
        stream.write_all(&first[..before]).unwrap();
        stream.write_all(&wrong[..40]).unwrap();
        let output = Stdio::from(OwnedFd::from(stream.try_clone().unwrap()));
        let mut command = Command::new(AS_OTHER_USER[0]);
        command.args(&AS_OTHER_USER[1..]).arg("cat").stdin(Stdio::piped()).stdout(output);
        let mut victim = command.spawn().unwrap();
        victim.stdin.as_mut().unwrap().write_all(&wrong[40..]).unwrap();
        // The limit only ends a test that would never end.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let end = stream.read(&mut [0; 1]);
        assert!(end.is_ok_and(|len| len == 0), "the connection is closed");
        let snapshot = server.snapshot();
        assert!(snapshot.processes.iter().all(|it| it.pid != Some(victim.id())), "{:#?}", snapshot.processes);
        assert!(snapshot.processes.iter().all(|it| it.usage.iter().all(|_| dram(it) <= 64)));
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    let finding = finding(&server, FindingKind::Refused).unwrap();
    assert!(finding.text.contains(Fault::MixedSenders.text()), "{}", finding.text);
    assert_eq!((finding.pid, finding.count), (Some(std::process::id()), 2));
}

#[test]
fn forked_senders_of_whole_messages_share_a_connection() {
    let server = server();
    let mut buffer = [0; MAX_SIZE];
    let mut stream = UnixStream::connect(&server.legacy).unwrap();
    for id in 1..=3 {
        let bytes = message(Type::Alloc, 0, DRAM, id, 64).encode(Vintage::V112, &mut buffer).to_vec();
        stream.write_all(&bytes).unwrap();
        let output = Stdio::from(OwnedFd::from(stream.try_clone().unwrap()));
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(output).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        child.wait().unwrap();
    }
    let own = || server.process(std::process::id()).map(|it| dram(&it));
    eventually("all of them", || (own() == Some(3 * 64)).then_some(()));
    assert!(finding(&server, FindingKind::Refused).is_none());
}

#[test]
fn counters_count_only_for_processes_of_their_owner() {
    let layout = Layout::V3;
    let (machine, id) = busy(700);
    let path = put(&machine, id, &region(layout, id, 0, vec![entry(layout, 0, 700, "python", 2, 100)]));
    let user = one(&read_snapshot(&machine), 700).user.clone().unwrap();
    assert_eq!(held(one(&read_snapshot(&machine), 700)), expected(2), "the file belongs to root");
    chown(&path, Some(OTHER_USER), None).unwrap();
    let snapshot = read_snapshot(&machine);
    assert_eq!(one(&snapshot, 700).basis, Basis::Unknown);
    let wrong = snapshot.findings.iter().find(|it| it.kind == FindingKind::Counters).unwrap();
    assert!(wrong.text.contains("who may not report for pid 700 of another user"), "{}", wrong.text);
    assert_eq!(snapshot.devices.len(), 1, "the file adds no device either");
    chown(&path, Some(ttmem_testkit::machine::USERS[1].1), None).unwrap();
    let snapshot = read_snapshot(&machine);
    assert_eq!(held(one(&snapshot, 700)), expected(2), "the file belongs to {user}");
    assert_eq!(ttmem(&machine, &["--json"]).status.code(), Some(0));
}

#[test]
fn files_of_others_do_not_hide_own_segments() {
    let folder = memory_folder();
    let created = Command::new(AS_OTHER_USER[0])
        .args(&AS_OTHER_USER[1..])
        .args(["sh", "-c", "cd \"$0\" && seq -f ttmem.1.%016.0f 70000 | xargs touch"])
        .arg(folder.path())
        .status();
    assert!(created.unwrap().success());
    // Names come in any order, so any single one might be seen by chance.
    let mut producers: Vec<Producer> = (0..4).map(|_| Producer::new(folder.path())).collect();
    for producer in &mut producers {
        producer.alloc(4096, 64);
    }
    let snapshot = local(folder.path());
    for producer in &producers {
        assert_eq!(process(&snapshot, producer.pid).map(dram), Some(64));
    }
    let too_many = snapshot.health.skipped.iter().find(|it| it.reason.contains("more files than are read"));
    assert!(too_many.is_some_and(|it| it.reason.starts_with("has 68976 ")), "{too_many:?}");
}

#[test]
fn devices_that_a_user_names_leave_room_for_others() {
    let server = Server::start(exe(), &["--quiet"]);
    let most = Limits::default().chips_per_user;
    let exe = copy_program(&std::env::current_exe().unwrap(), &server);
    let mut flood = ttmem_testkit::puppet::Puppet::start_through(&AS_OTHER_USER, &exe, &server.legacy);
    for device in 0..1024 {
        flood.send(Type::Alloc, device, DRAM, 1, 64);
    }
    eventually("all that it may add", || (server.snapshot().devices.len() == most).then_some(()));
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(1000, DRAM, 1, 64);
    client.sync();
    let devices: Vec<u32> = server.snapshot().devices.iter().map(|it| it.index).collect();
    assert_eq!((devices.len(), devices.contains(&1000)), (most + 1, true));
    flood.kill();
    eventually("what it named is forgotten", || (server.snapshot().devices.len() == 1).then_some(()));
    assert_eq!(client.query(1000).levels.dram, 64);
}

#[test]
fn ages_are_right_across_time_namespaces() {
    let folder = memory_folder();
    let env = [("TTMEM_SHM_DIR", folder.path().to_str().unwrap())];
    for (days, offset) in [("ahead", "8640000"), ("behind", "-1000")] {
        let through = ["unshare", "--time", "--fork", "--monotonic", offset];
        let mut producer = Producer::start_through(&through, &env);
        producer.define(1);
        producer.alloc(4096, 64);
        let mut command = Command::new(exe());
        let output = command.args(["dump", "--local", "--json", "--shm-dir"]).arg(folder.path()).output();
        let dump: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let ages: Vec<f64> = dump["allocations"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["age_seconds"].as_f64())
            .collect();
        assert!(ages.len() == 1 && ages[0] > 0.0 && ages[0] < 100.0, "{days}: {ages:?}");
        producer.quit();
    }
}

#[test]
fn dashboard_survives_the_largest_terminal() {
    let server = server();
    let mut command = Command::new("sh");
    command.args(["-c", "stty rows 65535 cols 65535 && exec \"$0\" top"]).arg(exe());
    command.env("TTMEM_QUERY_SOCKET", &server.query);
    let mut terminal = Terminal::start(&command, (120, 40));
    terminal.wait_for_frames(2);
    terminal.send("q");
    terminal.expect_clean_exit();
}
