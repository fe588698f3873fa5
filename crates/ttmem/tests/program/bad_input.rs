//! Wrong input of one client does not affect the figures of others.

mod logs;

use crate::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;
use ttmem_core::words::Fault;
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::{Client, eventually, message};
use ttmem_wire::legacy::{MAX_SIZE, Message, Type, Vintage};

/// A correct client whose figures must not change.
struct Witness {
    client: Client,
}

impl Witness {
    fn new(server: &Server) -> Self {
        let mut client = Client::connect(server, Vintage::V144);
        client.alloc(0, DRAM, 0xaaaa, 4096);
        client.cb_alloc(0, 0x19d60, 2048);
        client.sync();
        Self { client }
    }

    fn check(&mut self) {
        let levels = self.client.query(0).levels;
        assert_eq!((levels.dram, levels.cb, levels.l1, levels.kernel), (4096, 2048, 0, 0));
    }
}

/// Number of refused messages with a fault.
fn refused(server: &Server, fault: Fault) -> u64 {
    let wanted = fault.text();
    let findings = server.snapshot().findings;
    findings
        .iter()
        .filter(|f| f.kind == FindingKind::Refused && f.text.contains(wanted))
        .map(|f| f.count)
        .sum()
}

#[test]
fn invalid_messages_are_refused() {
    let server = server();
    let mut witness = Witness::new(&server);
    let mut client = Client::connect(&server, Vintage::V144);
    let pid = std::process::id();
    for (bad, warning, why) in [
        (message(Type::Alloc, 0, DRAM, 1, 0), "Invalid size 0", Fault::ZeroSize),
        (message(Type::CbAlloc, 0, 0, 1, 0), "Invalid size 0", Fault::ZeroSize),
        (message(Type::Alloc, 0, DRAM, 1, (100 << 30) + 1), "Invalid size 107374182401", Fault::TooLarge),
        (message(Type::KernelLoad, 0, 0, 1, u64::MAX), "Invalid size 18446744073709551615", Fault::TooLarge),
        (message(Type::CbAlloc, 0, 0, u64::MAX - 9, 64), "exceeds 64 bits", Fault::BeyondAddresses),
        (message(Type::Alloc, -1, DRAM, 1, 64), "Invalid device_id -1", Fault::UnknownChip),
        (message(Type::Alloc, 8, DRAM, 1, 64), "Invalid device_id 8", Fault::UnknownChip),
        (message(Type::Alloc, 2_657_333, DRAM, 1, 64), "Invalid device_id 2657333", Fault::UnknownChip),
        (message(Type::Free, -5, 0, 1, 0), "Invalid device_id -5", Fault::UnknownChip),
        (message(Type::Alloc, 0, 5, 1, 64), "Invalid buffer_type 5", Fault::WrongSpace),
        (message(Type::Alloc, 0, 255, 1, 64), "Invalid buffer_type 255", Fault::WrongSpace),
        (message(Type::Response, 0, 0, 1, 64), "only a server sends", Fault::WrongDirection),
        (message(Type::DeviceInfoResponse, 0, 0, 1, 64), "only a server sends", Fault::WrongDirection),
    ] {
        let before = refused(&server, why);
        client.send(bad);
        client.sync();
        assert_eq!(refused(&server, why), before + 1, "{warning}");
        server.wait_for_warning(warning);
        witness.check();
    }
    assert!(
        server
            .warnings()
            .lines()
            .all(|line| line.contains("connection ") && line.contains(&format!("pid {pid}")))
    );
    client.alloc(1, DRAM, 1, 100 << 30);
    assert_eq!(client.query(1).levels.dram, 100 << 30, "the connection stays open, and 100 GiB are allowed");
}

#[test]
fn stream_without_messages_is_closed_with_a_warning() {
    let server = server();
    let mut witness = Witness::new(&server);
    let bad: [&[u8]; 6] = [
        &[0; 10],
        &[0xff; 10],
        b"QUERY_ALL\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x0d\0\0\0 unknown type 13",
        b"\x01\x01\x01\x01",
    ];
    for (n, junk) in bad.into_iter().enumerate() {
        let mut stream = UnixStream::connect(&server.legacy).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(junk).unwrap();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "junk {n} was not cut off");
        eventually("a warning each", || {
            (server.warnings().matches("; connection closed").count() == n + 1).then_some(())
        });
        witness.check();
    }
    // In the middle of a valid stream: messages before the error count, later ones do not.
    let mut client = Client::connect(&server, Vintage::V128);
    client.alloc(1, DRAM, 1, 11);
    client.alloc(1, DRAM, 2, 22);
    client.sync();
    client.stream.write_all(&[0xee; 200]).unwrap();
    assert!(client.is_closed());
    assert_eq!(server.usage(1).dram.unwrap().requested_bytes, 33);
    assert_eq!(refused(&server, Fault::BrokenStream), 1);
    witness.check();
}

#[test]
fn incomplete_last_message_is_reported_and_dropped() {
    let server = server();
    let mut witness = Witness::new(&server);
    let mut buffer = [0; MAX_SIZE];
    let bytes = message(Type::Alloc, 0, DRAM, 1, 777).encode(Vintage::V144, &mut buffer).to_vec();
    for len in [1, 3, 71] {
        let mut stream = UnixStream::connect(&server.legacy).unwrap();
        stream.write_all(&bytes[..len]).unwrap();
        drop(stream);
        server.wait_for_warning(&format!("stream ended inside a message ({len} bytes"));
    }
    witness.check();
}

#[test]
fn client_that_never_reads_answers_is_tracked() {
    let server = server();
    let mut witness = Witness::new(&server);
    let mut puppet = Puppet::new(&server.legacy);
    puppet.send(Type::Alloc, 1, DRAM, 1, 1);
    let mut silent = Client::connect(&server, Vintage::V144);
    // Far more answers than the socket and the daemon buffer; all requests must be read.
    for n in 0..20_000u64 {
        silent.send(message(Type::Query, 0, 0, 0, 0));
        if n % 10 == 0 {
            silent.alloc(2, DRAM, n, 10);
        }
    }
    silent.alloc(2, DRAM, 1 << 40, 5);
    eventually("all its events count", || {
        let held = server.usage(2).dram.map_or(0, |dram| dram.requested_bytes);
        (held == 2000 * 10 + 5).then_some(())
    });
    server.wait_for_warning("answers were not read");
    assert_eq!(refused(&server, Fault::UnreadAnswers), 1);
    witness.check();
    // The socket still holds complete answers.
    silent.stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let _ = silent.stream.read_to_end(&mut bytes);
    let first = Message::decode(Vintage::V144, &bytes).unwrap();
    assert_eq!((first.kind, first.levels.dram), (Type::Response as u8, 4096));
}

#[test]
fn thousand_connections_leave_no_descriptors() {
    let server = server();
    let mut witness = Witness::new(&server);
    let before = server.descriptors();
    for n in 0..1000 {
        let mut stream = UnixStream::connect(&server.legacy).unwrap();
        match n % 4 {
            0 => {}
            1 => stream.write_all(b"\n").unwrap(),
            2 => stream.write_all(&[8, 0, 0, 0, 1]).unwrap(),
            _ => stream.write_all(&[0xff; 100]).unwrap(),
        }
    }
    witness.check();
    eventually("no descriptor is left open", || {
        (server.descriptors() == before && server.snapshot().health.connections == 1).then_some(())
    });
    // A thousand at the same time.
    let mut clients: Vec<Client> = (0..1000).map(|_| Client::connect(&server, Vintage::V72)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.alloc(3, DRAM, n as u64, 1);
    }
    for client in &mut clients {
        client.sync();
    }
    assert_eq!(server.usage(3).dram.unwrap().requested_bytes, 1000);
    witness.check();
}

#[test]
fn server_recovers_from_running_out_of_descriptors() {
    let mut command = Command::new("prlimit");
    command.args(["--nofile=40:40"]).arg(exe());
    let server = Server::start_by(command, &["--sim", "n150"]);
    let mut first = Client::connect(&server, Vintage::V144);
    first.alloc(0, DRAM, 1, 4096);
    first.sync();
    let crowd: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&server.legacy).unwrap()).collect();
    server.wait_for_warning("closed: every descriptor is in use");
    assert_eq!(first.query(0).levels.dram, 4096, "open connections are served");
    let busy = server.cpu_time();
    std::thread::sleep(Duration::from_millis(300));
    let spent = server.cpu_time().saturating_sub(busy);
    assert!(spent < Duration::from_millis(150), "waiting must not use the CPU: {spent:?} of 300 ms");
    drop(crowd);
    eventually("new connections are accepted again", || {
        let mut client = Client::connect(&server, Vintage::V144);
        client.alloc(0, DRAM, 2, 1);
        (client.query(0).levels.dram == 4097).then_some(())
    });
}

#[test]
fn invalid_input_does_not_grow_memory() {
    let server = Server::start(exe(), &["--sim", "n150", "--process-limit", "1000"]);
    let mut client = Client::connect(&server, Vintage::V144);
    for n in 0..50_000 {
        client.alloc(0, DRAM, n, 64);
    }
    client.sync();
    assert_eq!(server.usage(0).dram.unwrap().count, Some(1000));
    assert_eq!(refused(&server, Fault::ProcessLimit), 49_000);
    let before = server.resident_bytes();
    for n in 0..300_000u64 {
        // Unknown frees, refused allocations and refused devices must not be stored one by one.
        client.free(0, (n + 1) << 32);
        client.alloc((n % 1000) as i32 + 10, DRAM, n, 64);
        client.cb_free(0, n, 1);
    }
    client.sync();
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes more for 900,000 invalid messages");
    let snapshot = server.snapshot();
    assert!(snapshot.findings.len() < 20, "{} findings", snapshot.findings.len());
    assert!(server.warnings().lines().count() < 2000, "warnings are limited");
    // The process can still free, and then allocate again.
    client.free(0, 5);
    client.alloc(0, DRAM, 1 << 50, 1);
    assert_eq!(client.query(0).levels.dram, 999 * 64 + 1);
}

#[test]
fn invalid_request_gets_an_error_and_the_next_works() {
    let server = server();
    let ask = |line: &str| {
        let mut stream = UnixStream::connect(&server.query).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for bad in
        ["\n", "{}\n", "hello\n", r#"{"get":"everything"}"#, "{\"get\":\"snapshot\",\"x\":1}\n", "\0\n"]
    {
        let answer: serde_json::Value = serde_json::from_str(&ask(bad)).unwrap();
        assert!(answer["error"].as_str().unwrap().contains("cannot read the request"), "{bad:?}: {answer}");
    }
    assert!(ask(&"x".repeat(10_000)).contains("request is too long"));
    let answers = ask("nonsense\n{\"get\":\"snapshot\"}\n{\"get\":\"allocations\"}");
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].contains("error")
            && lines[1].contains("\"devices\"")
            && lines[2].contains("\"allocations\"")
    );
}

#[test]
fn idle_query_connections_do_not_block_others() {
    let server = server();
    let _idle: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&server.query).unwrap()).collect();
    assert_eq!(server.snapshot().devices.len(), 8);
    assert!(server.descriptors() < 100);
}

#[test]
fn many_requests_of_an_exited_process_do_not_recurse() {
    use rustix::process::Signal;
    let mut server = Server::start(exe(), &["--sim", "n150", "--quiet"]);
    let mut puppet = Puppet::new(&server.legacy);
    puppet.crowd(4000);
    server.signal(Signal::STOP);
    puppet.crowd_queries();
    puppet.kill();
    server.signal(Signal::CONT);
    eventually("all connections are gone", || {
        let snapshot = server.snapshot();
        (snapshot.processes.is_empty() && snapshot.health.connections == 0).then_some(())
    });
    assert!(server.is_running() && server.snapshot().devices[0].usage.dram.is_none());
}

#[test]
fn unread_answer_costs_no_cpu_time() {
    let server = Server::start(exe(), &["--sim", "n150", "--quiet"]);
    let mut client = Client::connect(&server, Vintage::V144);
    for n in 0..20_000 {
        client.alloc(0, DRAM, n, 1);
    }
    client.sync();
    let mut reader = UnixStream::connect(&server.query).unwrap();
    reader.write_all(b"{\"get\":\"allocations\"}\n").unwrap();
    reader.write_all(b"x").unwrap();
    reader.shutdown(std::net::Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let before = server.cpu_time();
    std::thread::sleep(Duration::from_millis(400));
    let spent = server.cpu_time().saturating_sub(before);
    assert!(spent < Duration::from_millis(100), "{spent:?} of 400 ms");
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().next().unwrap().matches("requested_bytes").count(), 20_000);
    assert!(text.lines().nth(1).unwrap().contains("error"), "the second request is answered, too");
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let server = server();
    let mut buffer = [0; MAX_SIZE];
    for vintage in Vintage::ALL {
        let mut client = Client::connect(&server, vintage);
        let mut many = Vec::new();
        for n in 0..1400 {
            let device = n % 8;
            many.extend_from_slice(message(Type::Query, device, 0, 0, 0).encode(vintage, &mut buffer));
        }
        let mut writer = client.stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || writer.write_all(&many).unwrap());
        for n in 0..1400 {
            assert_eq!(client.answer().device_id, n % 8, "{vintage:?} {n}");
        }
        sender.join().unwrap();
    }
    assert_eq!(server.warnings(), "");
    // Requests before invalid bytes are answered.
    let mut stream = UnixStream::connect(&server.legacy).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..3 {
        bytes.extend_from_slice(message(Type::Query, 0, 0, 0, 0).encode(Vintage::V144, &mut buffer));
    }
    bytes.extend_from_slice(&[0xff; 20]);
    stream.write_all(&bytes).unwrap();
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    assert_eq!(answers.len(), 3 * 144);
}

#[test]
fn long_report_is_complete_after_half_close() {
    const DEVICES: i32 = 128;
    let server = Server::start(exe(), &["--quiet"]);
    let mut client = Client::connect(&server, Vintage::V144);
    for device in 0..DEVICES {
        for n in 0..80 {
            client.alloc(device, DRAM, n, 1024);
            client.alloc(device, L1, n, 1024);
        }
    }
    client.sync();
    let mut person = UnixStream::connect(&server.legacy).unwrap();
    person.write_all(b"\n").unwrap();
    person.shutdown(std::net::Shutdown::Write).unwrap();
    // A slow reader, so that the report waits in the daemon.
    std::thread::sleep(Duration::from_millis(100));
    let mut text = String::new();
    person.read_to_string(&mut text).unwrap();
    assert_eq!(text.matches("- Buffer 0x").count(), ttmem_core::REPORT_ROOM);
    assert_eq!(text.matches(": 80 buffers, ").count(), 2 * DEVICES as usize, "every group is listed");
    eventually("the connection is gone", || (server.snapshot().health.connections == 1).then_some(()));
}

#[test]
fn removed_socket_is_created_again() {
    let server = server();
    std::fs::remove_file(&server.legacy).unwrap();
    eventually("the socket exists again", || server.legacy.exists().then_some(()));
    Client::connect(&server, Vintage::V144).sync();
    server.wait_for_warning("was gone and is there again");
}

#[test]
fn number_of_sizes_at_one_address_is_limited() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    for size in 1..=5000 {
        client.cb_alloc(0, 0x19d60, size);
    }
    assert_eq!(client.query(0).levels.cb, 1024);
    assert_eq!(refused(&server, Fault::VariantLimit), 5000 - 1024);
    for size in 1..=1024 {
        client.cb_free(0, 0x19d60, size);
    }
    assert_eq!(client.query(0).levels.cb, 0);
}
