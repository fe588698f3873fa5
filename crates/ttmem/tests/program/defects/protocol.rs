//! Defects of the protocol.

use super::*;

#[test]
fn defect_01_query_protocol_has_a_version() {
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
fn defect_03_incomplete_message_is_not_applied() {
    let server = server();
    let mut buffer = [0; MAX_SIZE];
    let whole = message(Type::Alloc, 0, DRAM, 1, 777).encode(Vintage::V144, &mut buffer).to_vec();
    let mut client = client(&server);
    client.alloc(0, DRAM, 9, 1);
    client.sync();
    client.stream.write_all(&whole[..60]).unwrap();
    // The answer on another connection shows that the server has read its input.
    let mut other = Client::connect(&server, Vintage::V144);
    other.sync();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(other.query(0).levels.dram, 1);
    client.stream.write_all(&whole[60..]).unwrap();
    assert_eq!(client.query(0).levels.dram, 778);
}

#[test]
fn defect_04_server_reads_many_messages_at_once() {
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
    assert!(before > 0, "the trace contains the server's reads");
    assert!(!peeked);
    assert!(after - before < 200, "{} reads for 1000 messages", after - before);
}

#[test]
fn defect_05_newline_is_not_a_kernel_load() {
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
fn defect_06_answers_have_the_size_of_the_request() {
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
fn defect_07_dumps_are_complete_data() {
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
