//! The owners of memory: namespaces, users, reused pids and processes that are not visible.

use crate::*;
use std::io::Write;
use std::process::Command;
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::{Client, eventually};
use ttmem_wire::legacy::{Levels, Type, Vintage};

/// Allocates a buffer, a circular buffer and a kernel.
fn allocate_some(puppet: &mut Puppet) {
    puppet.send(Type::Alloc, 0, DRAM, 0x1000, 4096);
    puppet.send(Type::CbAlloc, 0, 0, 0x19d60, 2048);
    puppet.send(Type::KernelLoad, 0, 0, 7, 1024);
}

fn test_binary() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

#[test]
fn client_in_another_pid_namespace_is_reclaimed() {
    let server = server();
    let mut other = Puppet::new(&server.legacy);
    other.send(Type::Alloc, 1, DRAM, 1, 11);
    let through = ["unshare", "-pf", "--kill-child"];
    let mut inside = Puppet::start_through(&through, &test_binary(), &server.legacy);
    allocate_some(&mut inside);
    let snapshot = server.snapshot();
    let process = snapshot.processes.iter().find(|p| p.pid != Some(other.pid)).unwrap();
    assert_eq!(process.reported_pid, Some(1), "its pid in the namespace");
    let pid = process.pid.expect("a child namespace is visible from here");
    assert_ne!(pid, inside.pid, "unshare is not the client");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid as i32).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    eventually("it is reaped", || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
    let snapshot = server.snapshot();
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!(snapshot.devices[0].usage, ttmem_core::snapshot::Usage::default());
    assert_eq!(server.usage(1).dram.unwrap().requested_bytes, 11);
}

#[test]
fn client_of_another_user_is_tracked_and_reclaimed() {
    let server = server();
    let mut other = Puppet::new(&server.legacy);
    other.send(Type::Alloc, 1, DRAM, 1, 11);
    let binary = copy_program(&test_binary(), &server);
    let mut theirs = Puppet::start_through(&AS_OTHER_USER, &binary, &server.legacy);
    allocate_some(&mut theirs);
    let process = server.process(theirs.pid).unwrap();
    assert_eq!(process.user.as_deref(), Some("nobody"));
    theirs.kill();
    let snapshot = server.snapshot();
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!(snapshot.devices[0].usage, ttmem_core::snapshot::Usage::default());
    assert_eq!(server.usage(1).dram.unwrap().requested_bytes, 11);
}

#[test]
fn hidden_peer_is_known_as_long_as_its_connection() {
    // The server is in a PID namespace; this process is outside and not visible to it.
    let mut command = Command::new("unshare");
    command.args(["-pf", "--kill-child", "--mount-proc"]).arg(exe());
    let server = Server::start_by(command, &["--sim", "n150"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 4096);
    client.cb_alloc(0, 0x19d60, 2048);
    client.sync();
    let snapshot = server.snapshot();
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!(snapshot.processes[0].pid, None);
    assert_eq!(snapshot.processes[0].reported_pid, Some(i64::from(std::process::id())));
    // A second connection without a pid is another process.
    let mut second = Client::connect(&server, Vintage::V144);
    second.alloc(0, DRAM, 1, 100);
    second.sync();
    assert_eq!(server.snapshot().processes.len(), 2);
    drop(client);
    eventually("it is gone with its connection", || (server.snapshot().processes.len() == 1).then_some(()));
    assert_eq!(second.query(0).levels, Levels { dram: 100, ..Levels::default() });
}

#[test]
fn memory_outlives_the_connection_of_its_process() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    allocate_some(&mut puppet);
    puppet.reconnect();
    assert_eq!(
        server.process(puppet.pid).unwrap().usage[0].usage.dram.as_ref().unwrap().requested_bytes,
        4096
    );
    puppet.send(Type::Free, 0, 0, 0x1000, 0);
    assert!(server.snapshot().findings.is_empty(), "it is still the same process");
}

#[test]
fn reused_pid_is_another_process() {
    let server = server();
    let mut first = Puppet::new(&server.legacy);
    allocate_some(&mut first);
    let (pid, started) = (first.pid, server.process(first.pid).unwrap().start);
    first.kill();
    // Another process may get the pid first, so this is tried several times.
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut second = Puppet::new(&server.legacy);
        if second.pid != pid {
            continue;
        }
        second.send(Type::Alloc, 0, DRAM, 0x2000, 64);
        let process = server.process(pid).unwrap();
        assert_ne!((process.start, process.usage.len()), (started, 0));
        let usage = server.usage(0);
        assert_eq!(usage.dram.unwrap().requested_bytes, 64);
        assert!(usage.cb.is_none() && usage.kernel.is_none(), "the memory of the first process is reclaimed");
        return;
    }
    panic!("pid {pid} could not be reused");
}

#[test]
fn process_that_exits_before_it_is_read_leaves_nothing() {
    use rustix::process::Signal;
    let server = server();
    for _ in 0..10 {
        // The server is stopped while a client connects, sends and exits.
        server.signal(Signal::STOP);
        let output = Command::new("python3")
            .args(["-c", "import socket,sys,struct,os\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.send(struct.pack('<BxxxiQBxxxiQ',1,0,4096,0,os.getpid(),77).ljust(144,b'\\0'))\nos._exit(0)"])
            .arg(&server.legacy)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        server.signal(Signal::CONT);
        server.wait_for_log("Allocated 4096 bytes of DRAM on device 0 (buffer_id=0x4d)");
        eventually("nothing is left of it", || {
            let snapshot = server.snapshot();
            (snapshot.processes.is_empty() && snapshot.devices[0].usage.dram.is_none()).then_some(())
        });
        assert!(server.allocations().is_empty());
    }
}

#[test]
fn stale_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (legacy, query) = (folder.path().join("l.sock"), folder.path().join("q.sock"));
    let start = || {
        let mut command = Command::new(exe());
        command.args(["serve", "--quiet", "--legacy-socket"]).arg(&legacy).arg("--query-socket").arg(&query);
        command.spawn().unwrap()
    };
    for _ in 0..3 {
        let mut server = start();
        eventually("it answers", || {
            let request = ttmem_reader::protocol::Request::SNAPSHOT;
            ttmem_reader::protocol::ask(&query, &request).ok()
        });
        Client::connect_to(&legacy, Vintage::V144).sync();
        // Killed: its socket is left.
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(legacy.exists());
    }
}

#[test]
fn reused_pid_on_the_same_socket_is_another_process() {
    use rustix::process::Signal;
    let server = server();
    let mut parent = Puppet::new(&server.legacy);
    parent.send(Type::Alloc, 0, DRAM, 1, 1);
    for _ in 0..200 {
        let first = parent.fork(4096, 1000);
        assert!(server.process(first as u32).is_some());
        // Before the server notices the exit, another child has the pid and sends on the same socket.
        server.signal(Signal::STOP);
        parent.reap(first);
        std::fs::write("/proc/sys/kernel/ns_last_pid", (first - 1).to_string()).unwrap();
        let second = parent.fork_unanswered(8192, 5000);
        server.signal(Signal::CONT);
        if second != first {
            parent.reap(second);
            continue;
        }
        eventually("the second child is known by its memory", || {
            let held = server.process(second as u32)?.usage.first()?.usage.dram.as_ref()?.requested_bytes;
            (held == 5000).then_some(())
        });
        assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 5001);
        return;
    }
    panic!("the pid could not be reused");
}

#[test]
fn process_that_frees_everything_leaves_no_finding() {
    use rustix::process::Signal;
    let server = server();
    for round in 0..20 {
        let mut puppet = Puppet::new(&server.legacy);
        // Besides the exit, the server gets a request of another client.
        let mut other = Client::connect(&server, Vintage::V144);
        other.sync();
        puppet.send(Type::Alloc, 0, DRAM, 1, 64);
        // A waiting server reads in the order of sending: the request before the last messages of the process.
        std::thread::sleep(std::time::Duration::from_millis(20));
        server.signal(Signal::STOP);
        other.stream.write_all(&query(round)).unwrap();
        puppet.free_and_quit(1);
        puppet.wait();
        server.signal(Signal::CONT);
        assert_eq!(other.answer().device_id, round % 8);
        let pid = puppet.pid;
        eventually("it is gone", || server.process(pid).is_none().then_some(()));
    }
    assert!(server.snapshot().findings.is_empty(), "{:?}", server.snapshot().findings);
}

#[test]
fn short_process_leaves_no_finding() {
    let server = server();
    // It allocates, queries and frees in one write, and exits before that is read.
    let script = "import socket,sys,struct,os\n\
        s=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        m=lambda t,n:struct.pack('<BxxxiQBxxxiQ',t,0,n,0,os.getpid(),77).ljust(144,b'\\0')\n\
        s.send(m(1,4096)+m(3,0)+m(2,0))\nos._exit(0)";
    for _ in 0..30 {
        let status = Command::new("python3").args(["-c", script]).arg(&server.legacy).status().unwrap();
        assert!(status.success());
    }
    eventually("all were read and are gone", || {
        let freed = server.log().matches("Freed buffer 0x4d").count();
        (freed == 30 && server.snapshot().processes.is_empty()).then_some(())
    });
    assert!(server.snapshot().findings.is_empty(), "{:?}", server.snapshot().findings);
}

#[test]
fn messages_read_before_an_exit_are_applied() {
    let server = server();
    // Slow requests, so that the server's turn ends before the free after them; then the process exits.
    let script = "import socket,sys,struct,os\n\
        s=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        m=lambda t,n,i:struct.pack('<BxxxiQBxxxiQ',t,0,n,0,os.getpid(),i).ljust(144,b'\\0')\n\
        s.sendall(m(1,4096,77))\n\
        s.sendall(b''.join(m(8,64,i*128) for i in range(20000))+m(3,0,0))\ns.recv(144)\n\
        s.sendall(b''.join(m(8,64,10**9+i*128)+m(3,0,0) for i in range(60))+m(2,0,77))\nos._exit(0)";
    for _ in 0..3 {
        let status = Command::new("python3").args(["-c", script]).arg(&server.legacy).status().unwrap();
        assert!(status.success());
    }
    eventually("all are gone", || {
        let freed = server.log().matches("Freed buffer 0x4d").count();
        (freed == 3 && server.snapshot().processes.is_empty()).then_some(())
    });
    assert!(finding(&server, FindingKind::UnknownFree).is_none(), "{:?}", server.snapshot().findings);
}

#[test]
fn request_drained_at_an_exit_excludes_the_process() {
    use rustix::process::Signal;
    let server = server();
    let mut parent = Puppet::new(&server.legacy);
    parent.send(Type::Alloc, 0, DRAM, 1, 1);
    let child = parent.fork(4096, 1000);
    let mut other = Client::connect(&server, Vintage::V144);
    assert_eq!(other.query(0).levels.dram, 1001);
    std::thread::sleep(std::time::Duration::from_millis(20));
    server.signal(Signal::STOP);
    // The child exits; another client queries, then the parent, on the socket that is drained because of the exit.
    parent.reap(child);
    other.stream.write_all(&query(0)).unwrap();
    parent.query();
    server.signal(Signal::CONT);
    assert_eq!(other.answer().levels.dram, 1);
    assert_eq!(parent.answer(), 1);
}

fn query(device: i32) -> Vec<u8> {
    let mut buffer = [0; ttmem_wire::legacy::MAX_SIZE];
    ttmem_testkit::message(Type::Query, device % 8, 0, 0, 0).encode(Vintage::V144, &mut buffer).to_vec()
}
