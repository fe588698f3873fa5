//! The old transport: an old server's socket receives the bytes that the old client would have sent.

use crate::make::builds;
use crate::program::Program;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use ttmem_core::words::Basis;
use ttmem_testkit::{Server, eventually};
use ttmem_wire::legacy::{MAX_SIZE, Message, Type, Vintage};

fn start(socket: &str) -> Program {
    let env =
        [("TT_ALLOC_TRACKING_ENABLED", "1"), ("TTMEM_TRANSPORT", "legacy"), ("TTMEM_LEGACY_SOCKET", socket)];
    let build = &builds()[0];
    Program::start_with(build, &build.program("legacy.cpp", &[]), &env)
}

/// A message of the old client, without sender and time.
fn sent(kind: Type, device: i32, size: u64, buffer_type: u8, id: u64) -> [u8; MAX_SIZE] {
    // The packed struct has type, device, size, buffer type, pid, id and time; the fields of answers are zero.
    let mut bytes = [0; MAX_SIZE];
    bytes[0] = kind as u8;
    bytes[4..8].copy_from_slice(&device.to_le_bytes());
    bytes[8..16].copy_from_slice(&size.to_le_bytes());
    bytes[16] = buffer_type;
    bytes[24..32].copy_from_slice(&id.to_le_bytes());
    bytes
}

/// Reads messages, and clears sender and time after checking them: frees have no time.
fn receive(stream: &mut UnixStream, pid: u32, count: usize) -> Vec<[u8; MAX_SIZE]> {
    let one = |_| {
        let mut bytes = [0; MAX_SIZE];
        stream.read_exact(&mut bytes).unwrap();
        let message = Message::decode(Vintage::V144, &bytes).unwrap();
        assert_eq!(message.process_id, pid as i32);
        let allocates =
            [Type::Alloc, Type::CbAlloc, Type::KernelLoad].map(|it| it as u8).contains(&message.kind);
        // Wall clock time, after 2020.
        assert_eq!(message.timestamp > 1_577_836_800_000_000_000, allocates, "{message:?}");
        assert!(allocates || message.timestamp == 0, "{message:?}");
        bytes[20..24].fill(0);
        bytes[32..40].fill(0);
        bytes
    };
    (0..count).map(one).collect()
}

#[test]
fn old_server_receives_the_old_clients_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut program = start(path.to_str().unwrap());
    listener.set_nonblocking(true).unwrap();
    let (mut stream, _) = eventually("the client connects", || listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    // Fails instead of waiting for ever.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let allocations = [
        sent(Type::Alloc, 1, 4096, 0, 0x1000),
        sent(Type::Alloc, 2, 8192, 4, 0x1234_5678_9abc),
        sent(Type::CbAlloc, 3, 2048, 0, 0x1a000),
        sent(Type::KernelLoad, 4, 57344, 2, 77),
    ];
    assert_eq!(receive(&mut stream, program.pid(), 4), allocations);
    program.wait_at("all held");
    program.resume();
    let frees = [
        sent(Type::Free, 1, 0, 0, 0x1000),
        sent(Type::Free, 2, 0, 0, 0x1234_5678_9abc),
        sent(Type::CbFree, 3, 2048, 0, 0x1a000),
        sent(Type::KernelUnload, 4, 57344, 0, 77),
    ];
    assert_eq!(receive(&mut stream, program.pid(), 4), frees);
    program.wait_at("all free");
    assert_eq!(program.allocations(), [], "no segment is created");
    program.resume();
    program.expect_exit();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "nothing else was sent");
}

#[test]
fn own_server_accepts_the_same_messages() {
    let server = Server::start(Path::new(env!("CARGO_BIN_EXE_ttmem")), &["--sim", "t3k"]);
    let mut program = start(server.legacy.to_str().unwrap());
    program.wait_at("all held");
    let held = eventually("all of it", || {
        let held = server.allocations();
        (held.len() == 4).then_some(held)
    });
    let seen = |allocation: &serde_json::Value| {
        let text = |name: &str| allocation[name].as_str().unwrap().to_owned();
        (
            text("space"),
            allocation["indexes"][0].as_u64().unwrap(),
            text("id"),
            allocation["requested_bytes"].as_u64().unwrap(),
        )
    };
    let mut held: Vec<_> = held.iter().map(seen).collect();
    held.sort();
    let expected = [
        ("cb", 3, "0x1a000", 2048),
        ("dram", 1, "0x1000", 4096),
        ("kernel", 4, "0x4d", 57344),
        ("trace", 2, "0x123456789abc", 8192),
    ];
    assert_eq!(held, expected.map(|it| (it.0.to_owned(), it.1, it.2.to_owned(), it.3)));
    assert_eq!(server.process(program.pid()).unwrap().basis, Basis::Reported);
    for line in
        ["Allocated 4096 bytes of DRAM on device 1", "[CB_ALLOC] Device 3", "Dispatch kernel on Device 4"]
    {
        server.wait_for_log(line);
    }
    program.resume();
    program.wait_at("all free");
    eventually("all free", || server.allocations().is_empty().then_some(()));
    assert!(server.snapshot().findings.is_empty(), "{:?}", server.snapshot().findings);
    program.resume();
    program.expect_exit();
}
