//! The log of the daemon on full disks, unread pipes and stalled terminals.

use crate::*;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use ttmem_testkit::{Client, eventually, message};
use ttmem_wire::legacy::{MAX_SIZE, Type, Vintage};

#[test]
fn full_disk_does_not_stop_the_daemon() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let server = Server::start_logging(Command::new(exe()), &["--sim", "n150"], Some(Stdio::from(full)));
    let mut client = Client::connect(&server, Vintage::V144);
    for n in 0..5000 {
        client.alloc(0, DRAM, n, 10);
    }
    assert_eq!(client.query(0).levels.dram, 50_000);
    eventually("lost lines are counted", || {
        (server.snapshot().health.dropped_log_lines > 4000).then_some(())
    });
}

#[test]
fn unread_log_does_not_stop_the_daemon() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let server = Server::start_logging(Command::new(exe()), &["--sim", "n150"], Some(Stdio::from(writer)));
    let mut client = Client::connect(&server, Vintage::V144);
    for n in 0..50_000 {
        client.alloc(0, DRAM, n, 10);
    }
    assert_eq!(client.query(0).levels.dram, 500_000);
    assert!(server.snapshot().health.dropped_log_lines > 0);
    assert!(server.resident_bytes() < 64 << 20);
    // When the log is read, it continues, with the number of dropped lines.
    let mut log = std::fs::File::from(reader);
    let mut text = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    while !String::from_utf8_lossy(&text).contains("lines dropped: output blocked") {
        let len = log.read(&mut chunk).unwrap();
        assert!(len > 0);
        text.extend_from_slice(&chunk[..len]);
    }
}

/// A terminal whose output is not read.
fn stalled_terminal() -> (std::os::fd::OwnedFd, Stdio) {
    let pty = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&pty).unwrap();
    rustix::pty::unlockpt(&pty).unwrap();
    let name = rustix::pty::ptsname(&pty, Vec::new()).unwrap();
    let name = std::path::PathBuf::from(name.to_str().unwrap());
    let terminal = std::fs::OpenOptions::new().write(true).open(name).unwrap();
    (pty, Stdio::from(terminal))
}

/// Checks that a server works and exits while its terminal blocks.
fn check_with_stalled_terminal(mut server: Server) {
    let mut client = Client::connect(&server, Vintage::V144);
    for n in 0..30_000 {
        client.alloc(0, DRAM, n, 10);
    }
    assert_eq!(client.query(0).levels.dram, 300_000);
    assert!(server.snapshot().health.dropped_log_lines > 0);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn stalled_terminal_does_not_stop_the_daemon() {
    let (_pty, terminal) = stalled_terminal();
    check_with_stalled_terminal(Server::start_logging(
        Command::new(exe()),
        &["--sim", "n150"],
        Some(terminal),
    ));
}

#[test]
fn stalled_terminal_of_another_user_does_not_stop_it() {
    let (_pty, terminal) = stalled_terminal();
    let keep = server();
    let mut command = Command::new(AS_OTHER_USER[0]);
    command.args(&AS_OTHER_USER[1..]).arg(copy_program(exe(), &keep));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    check_with_stalled_terminal(Server::start_in(folder, command, &["--sim", "n150"], Some(terminal)));
}

#[test]
fn log_file_loses_no_line() {
    use rustix::process::Signal;
    let server = server();
    let mut clients: Vec<Client> = (0..16).map(|_| Client::connect(&server, Vintage::V72)).collect();
    for client in &mut clients {
        client.sync();
    }
    let buffer = &mut [0; MAX_SIZE];
    server.signal(Signal::STOP);
    for (which, client) in clients.iter_mut().enumerate() {
        let mut many = Vec::new();
        for n in 0..2000u64 {
            let id = (which as u64) << 32 | n;
            many.extend_from_slice(message(Type::Alloc, 0, DRAM, id, 1).encode(Vintage::V72, buffer));
        }
        client.stream.write_all(&many).unwrap();
    }
    server.signal(Signal::CONT);
    for client in &mut clients {
        client.sync();
    }
    eventually("every line", || (server.log().matches("Allocated 1 bytes").count() == 32_000).then_some(()));
    // A report that is longer than the queue.
    let mut client = Client::connect(&server, Vintage::V144);
    for device in 0..8 {
        for n in 0..4000 {
            client.kernel_load(device, 0, n, 64);
        }
    }
    client.send(message(Type::DumpKernels, 0, 0, 0, 0));
    client.sync();
    eventually("every kernel that is listed", || {
        (server.log().matches("- Kernel 0x").count() == 8 * 1000).then_some(())
    });
    assert_eq!(server.log().matches("… and 3000 more").count(), 8);
    assert_eq!(server.snapshot().health.dropped_log_lines, 0);
}
