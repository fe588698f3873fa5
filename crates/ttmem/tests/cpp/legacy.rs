//! The old transport: what arrives at an old server's socket is what the old client would have sent, byte for byte.

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

/// What the old client sent, but for the sender and the time.
fn sent(kind: Type, device: i32, size: u64, buffer_type: u8, id: u64) -> [u8; MAX_SIZE] {
    // As that struct was declared, packed: type, device, size, buffer type, pid, id, time; all that an answer carries is zero.
    let mut bytes = [0; MAX_SIZE];
    bytes[0] = kind as u8;
    bytes[4..8].copy_from_slice(&device.to_le_bytes());
    bytes[8..16].copy_from_slice(&size.to_le_bytes());
    bytes[16] = buffer_type;
    bytes[24..32].copy_from_slice(&id.to_le_bytes());
    bytes
}

/// The next messages, without sender and time, which are looked at here: frees carry no time.
fn received(stream: &mut UnixStream, pid: u32, count: usize) -> Vec<[u8; MAX_SIZE]> {
    let one = |_| {
        let mut bytes = [0; MAX_SIZE];
        stream.read_exact(&mut bytes).unwrap();
        let message = Message::decode(Vintage::V144, &bytes).unwrap();
        assert_eq!(message.process_id, pid as i32);
        let comes = [Type::Alloc, Type::CbAlloc, Type::KernelLoad].map(|it| it as u8).contains(&message.kind);
        // By the wall clock: it is some time after 2020.
        assert_eq!(message.timestamp > 1_577_836_800_000_000_000, comes, "{message:?}");
        assert!(comes || message.timestamp == 0, "{message:?}");
        bytes[20..24].fill(0);
        bytes[32..40].fill(0);
        bytes
    };
    (0..count).map(one).collect()
}

#[test]
fn an_old_server_hears_the_old_clients_messages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut program = start(path.to_str().unwrap());
    listener.set_nonblocking(true).unwrap();
    let (mut stream, _) = eventually("the client connects", || listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    // Short of never.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let comes = [
        sent(Type::Alloc, 1, 4096, 0, 0x1000),
        sent(Type::Alloc, 2, 8192, 4, 0x1234_5678_9abc),
        sent(Type::CbAlloc, 3, 2048, 0, 0x1a000),
        sent(Type::KernelLoad, 4, 57344, 2, 77),
    ];
    assert_eq!(received(&mut stream, program.pid(), 4), comes);
    program.at("all held");
    program.go();
    let goes = [
        sent(Type::Free, 1, 0, 0, 0x1000),
        sent(Type::Free, 2, 0, 0, 0x1234_5678_9abc),
        sent(Type::CbFree, 3, 2048, 0, 0x1a000),
        sent(Type::KernelUnload, 4, 57344, 0, 77),
    ];
    assert_eq!(received(&mut stream, program.pid(), 4), goes);
    program.at("all free");
    assert_eq!(program.look(), [], "and no segment is made");
    program.go();
    program.ends();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "nothing else was sent");
}

#[test]
fn our_own_server_hears_them_too() {
    let server = Server::start(Path::new(env!("CARGO_BIN_EXE_ttmem")), &["--sim", "t3k"]);
    let mut program = start(server.legacy.to_str().unwrap());
    program.at("all held");
    let held = eventually("all of it", || {
        let held = server.allocations();
        (held.len() == 4).then_some(held)
    });
    let seen = |it: &serde_json::Value| {
        let text = |name: &str| it[name].as_str().unwrap().to_owned();
        (
            text("space"),
            it["indexes"][0].as_u64().unwrap(),
            text("id"),
            it["requested_bytes"].as_u64().unwrap(),
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
    program.go();
    program.at("all free");
    eventually("all free", || server.allocations().is_empty().then_some(()));
    assert!(server.snapshot().findings.is_empty(), "{:?}", server.snapshot().findings);
    program.go();
    program.ends();
}
