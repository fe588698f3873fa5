//! Whose memory it is: namespaces, users, reused pids, invisible peers.

use crate::*;
use std::io::Write;
use std::process::Command;
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::{Client, eventually};
use ttmem_wire::legacy::{Levels, Type, Vintage};

/// Fills a puppet's hands: a buffer, a circular buffer and a kernel.
fn hold(puppet: &mut Puppet) {
    puppet.send(Type::Alloc, 0, DRAM, 0x1000, 4096);
    puppet.send(Type::CbAlloc, 0, 0, 0x19d60, 2048);
    puppet.send(Type::KernelLoad, 0, 0, 7, 1024);
}

fn test_binary() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

#[test]
fn a_client_in_another_pid_namespace_is_reclaimed_when_it_dies() {
    let server = server();
    let mut other = Puppet::new(&server.legacy);
    other.send(Type::Alloc, 1, DRAM, 1, 11);
    let through = ["unshare", "-pf", "--kill-child"];
    let mut inside = Puppet::start_through(&through, &test_binary(), &server.legacy);
    hold(&mut inside);
    let snapshot = server.snapshot();
    let process = snapshot.processes.iter().find(|p| p.pid != Some(other.pid)).unwrap();
    assert_eq!(process.reported_pid, Some(1), "what it calls itself, in there");
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
fn another_users_client_is_tracked_named_and_reclaimed() {
    let server = server();
    let mut other = Puppet::new(&server.legacy);
    other.send(Type::Alloc, 1, DRAM, 1, 11);
    let binary = copied(&test_binary(), &server);
    let mut nobody = Puppet::start_through(&NOBODY, &binary, &server.legacy);
    hold(&mut nobody);
    let process = server.process(nobody.pid).unwrap();
    assert_eq!(process.user.as_deref(), Some("nobody"));
    nobody.kill();
    let snapshot = server.snapshot();
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!(snapshot.devices[0].usage, ttmem_core::snapshot::Usage::default());
    assert_eq!(server.usage(1).dram.unwrap().requested_bytes, 11);
}

#[test]
fn a_peer_that_cannot_be_seen_lives_as_long_as_its_connection() {
    // The server is inside a pid namespace; this process is outside, where the server cannot see.
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
    // A second one is another process, even with the same number missing.
    let mut second = Client::connect(&server, Vintage::V144);
    second.alloc(0, DRAM, 1, 100);
    second.sync();
    assert_eq!(server.snapshot().processes.len(), 2);
    drop(client);
    eventually("it went with its connection", || (server.snapshot().processes.len() == 1).then_some(()));
    assert_eq!(second.query(0).levels, Levels { dram: 100, ..Levels::default() });
}

#[test]
fn a_process_that_closes_its_connection_keeps_its_memory_until_it_dies() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    hold(&mut puppet);
    puppet.reconnect();
    assert_eq!(
        server.process(puppet.pid).unwrap().usage[0].usage.dram.as_ref().unwrap().requested_bytes,
        4096
    );
    puppet.send(Type::Free, 0, 0, 0x1000, 0);
    assert!(server.snapshot().findings.is_empty(), "it is still the same process");
}

#[test]
fn a_reused_pid_is_another_process() {
    let server = server();
    let mut first = Puppet::new(&server.legacy);
    hold(&mut first);
    let (pid, born) = (first.pid, server.process(first.pid).unwrap().start);
    first.kill();
    // Ask the kernel for the same number again until nobody else was faster.
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut second = Puppet::new(&server.legacy);
        if second.pid != pid {
            continue;
        }
        second.send(Type::Alloc, 0, DRAM, 0x2000, 64);
        let process = server.process(pid).unwrap();
        assert_ne!((process.start, process.usage.len()), (born, 0));
        let usage = server.usage(0);
        assert_eq!(usage.dram.unwrap().requested_bytes, 64);
        assert!(usage.cb.is_none() && usage.kernel.is_none(), "the first one's are gone for good");
        return;
    }
    panic!("pid {pid} could not be had again");
}

#[test]
fn a_process_that_dies_before_it_is_read_leaves_nothing() {
    use rustix::process::Signal;
    let server = server();
    for _ in 0..10 {
        // The server sleeps while a client connects, speaks and dies.
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
fn a_stale_socket_is_replaced() {
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
        // Killed: its socket stays behind.
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(legacy.exists());
    }
}

#[test]
fn a_pid_used_again_on_the_same_socket_is_another_process() {
    use rustix::process::Signal;
    let server = server();
    let mut parent = Puppet::new(&server.legacy);
    parent.send(Type::Alloc, 0, DRAM, 1, 1);
    for _ in 0..200 {
        let first = parent.fork(4096, 1000);
        assert!(server.process(first as u32).is_some());
        // Before the server can see the death, another child has the pid and speaks on the same socket.
        server.signal(Signal::STOP);
        parent.reap(first);
        std::fs::write("/proc/sys/kernel/ns_last_pid", (first - 1).to_string()).unwrap();
        let second = parent.fork_unanswered(8192, 5000);
        server.signal(Signal::CONT);
        if second != first {
            parent.reap(second);
            continue;
        }
        eventually("the second child is known by what it holds", || {
            let held = server.process(second as u32)?.usage.first()?.usage.dram.as_ref()?.requested_bytes;
            (held == 5000).then_some(())
        });
        assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 5001);
        return;
    }
    panic!("the pid could not be had again");
}

#[test]
fn a_process_that_frees_all_and_ends_leaves_no_finding() {
    use rustix::process::Signal;
    let server = server();
    for round in 0..20 {
        let mut puppet = Puppet::new(&server.legacy);
        // Its end must not be the only thing the server wakes up to.
        let mut other = Client::connect(&server, Vintage::V144);
        other.sync();
        puppet.send(Type::Alloc, 0, DRAM, 1, 64);
        // Once the server waits, it hears in the order in which we speak: the question before the last words.
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
fn a_clean_short_life_leaves_no_finding() {
    let server = server();
    // It takes, asks and frees in one breath, and is gone before it is heard.
    let script = "import socket,sys,struct,os\n\
        s=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        m=lambda t,n:struct.pack('<BxxxiQBxxxiQ',t,0,n,0,os.getpid(),77).ljust(144,b'\\0')\n\
        s.send(m(1,4096)+m(3,0)+m(2,0))\nos._exit(0)";
    for _ in 0..30 {
        let status = Command::new("python3").args(["-c", script]).arg(&server.legacy).status().unwrap();
        assert!(status.success());
    }
    eventually("all were heard and are gone", || {
        let heard = server.log().matches("Freed buffer 0x4d").count();
        (heard == 30 && server.snapshot().processes.is_empty()).then_some(())
    });
    assert!(server.snapshot().findings.is_empty(), "{:?}", server.snapshot().findings);
}

#[test]
fn last_words_that_were_read_but_not_yet_taken_in_are_heard() {
    let server = server();
    // Questions that take long, so that the turn is over before the free behind them is reached; then it ends.
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
        let heard = server.log().matches("Freed buffer 0x4d").count();
        (heard == 3 && server.snapshot().processes.is_empty()).then_some(())
    });
    assert!(finding(&server, FindingKind::UnknownFree).is_none(), "{:?}", server.snapshot().findings);
}

#[test]
fn a_question_drained_with_the_dead_is_answered_without_them() {
    use rustix::process::Signal;
    let server = server();
    let mut parent = Puppet::new(&server.legacy);
    parent.send(Type::Alloc, 0, DRAM, 1, 1);
    let child = parent.fork(4096, 1000);
    let mut other = Client::connect(&server, Vintage::V144);
    assert_eq!(other.query(0).levels.dram, 1001);
    std::thread::sleep(std::time::Duration::from_millis(20));
    server.signal(Signal::STOP);
    // The child dies; another client asks, then the parent, on the socket that is read to its end because of the death.
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
