//! What one user's connections and requests do to others.

use crate::{DRAM, exe};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::Usage;
use ttmem_testkit::producer::Producer;
use ttmem_testkit::{Client, Server, eventually, schema};
use ttmem_wire::legacy::Vintage;

/// A user other than root.
const OTHER: u32 = 65534;

/// A server whose users see each other's buffers, so that their lists are long.
fn open_server() -> Server {
    Server::start(exe(), &["--sim", "t3k", "--share-all"])
}

/// Connects as another user: the kernel notes the credentials of the thread that connects.
fn connect_as(uid: u32, path: &Path) -> UnixStream {
    let path = path.to_owned();
    let connect = move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
        UnixStream::connect(path).unwrap()
    };
    std::thread::spawn(connect).join().unwrap()
}

fn request(stream: &mut UnixStream, line: &str) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // On a closed connection, reading the answer fails.
    let _ = stream.write_all(format!("{line}\n").as_bytes());
}

/// Sends a request and reads its answer, which is empty if the server hung up.
fn ask(stream: &mut UnixStream, line: &str) -> String {
    request(stream, line);
    let mut answer = String::new();
    let _ = BufReader::new(stream).read_line(&mut answer);
    answer
}

const SNAPSHOT: &str = r#"{"get":"snapshot"}"#;

#[test]
fn flood_of_query_connections_closes_only_its_users() {
    let server = open_server();
    let mut ours = UnixStream::connect(&server.query).unwrap();
    assert!(ask(&mut ours, SNAPSHOT).starts_with("{\"schema\""));
    let mut flood: Vec<UnixStream> = (0..100).map(|_| connect_as(OTHER, &server.query)).collect();
    let last = flood.last_mut().unwrap();
    assert!(ask(last, SNAPSHOT).starts_with("{\"schema\""), "every connection is accepted");
    assert!(ask(&mut ours, SNAPSHOT).starts_with("{\"schema\""), "and closes one of the same user");
    assert_eq!(ask(&mut flood[0], SNAPSHOT), "");
}

#[test]
fn followers_of_one_user_leave_room_for_others() {
    const FOLLOW: &str = r#"{"get":"events","follow":true,"since":"2020-01-01T00:00:00Z"}"#;
    let server = open_server();
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 64);
    client.sync();
    let mut followers: Vec<UnixStream> = (0..16).map(|_| connect_as(OTHER, &server.query)).collect();
    for follower in &mut followers {
        assert!(ask(follower, FOLLOW).contains("\"allocated\""));
    }
    let mut another = connect_as(OTHER, &server.query);
    assert!(ask(&mut another, FOLLOW).contains("16 connections follow events already"));
    let mut ours = UnixStream::connect(&server.query).unwrap();
    assert!(ask(&mut ours, FOLLOW).contains("\"allocated\""));
}

#[test]
fn unread_answers_are_limited_per_user() {
    const BLOCKS: &str = r#"{"get":"snapshot","blocks":{"limit":100000}}"#;
    let server = Server::start(exe(), &["--quiet", "--share-all"]);
    let mut producer = Producer::new(server.segments.path());
    producer.flood(100_000, 4096);
    eventually("the buffers are read", || (server.snapshot().health.live_records == 100_000).then_some(()));
    let mut unread = Vec::new();
    let refusal = eventually("an answer is refused", || {
        let mut stream = connect_as(OTHER, &server.query);
        request(&mut stream, BLOCKS);
        let mut begin = [0; 9];
        // Only the begin is read: a space as a sign of life, then the answer.
        stream.read_exact(&mut begin).unwrap();
        unread.push(stream);
        let mut refused = connect_as(OTHER, &server.query);
        let answer = ask(&mut refused, SNAPSHOT);
        answer.contains("error").then_some(answer)
    });
    assert!(refusal.contains("MiB of answers to user 65534 are unread, of at most 64 MiB"), "{refusal}");
    assert!(refusal.contains("read them or close their connections"), "{refusal}");
    assert!((2..=4).contains(&unread.len()), "{} answers of about 30 MB", unread.len());
    assert!(server.resident_bytes() < 200 << 20, "{}", server.resident_bytes());
    assert!(ask(&mut UnixStream::connect(&server.query).unwrap(), SNAPSHOT).contains("\"schema\""));
    drop(unread);
    eventually("there is room again", || {
        ask(&mut connect_as(OTHER, &server.query), SNAPSHOT).contains("\"schema\"").then_some(())
    });
}

#[test]
fn large_lists_are_computed_beside_the_loop() {
    const COUNT: u64 = 20_000;
    let server = open_server();
    let mut client = Client::connect(&server, Vintage::V144);
    for n in 0..COUNT {
        client.alloc(0, DRAM, n, 64 + n);
    }
    client.sync();
    let pages = r#"{"get":"snapshot","buffers":{"limit":3,"offset":4}}"#;
    let mut ours = connect_as(OTHER, &server.query);
    let answer = ask(&mut ours, pages);
    assert!(answer.starts_with(" {\"schema\""), "a copy of the daemon answers: {answer:.40}");
    let snapshot: Snapshot = schema::snapshot(answer.trim().as_bytes());
    let buffers = snapshot.buffers.unwrap();
    assert_eq!((buffers.count, buffers.offset), (COUNT, 4));
    let sizes: Vec<u64> = buffers.list.iter().map(|it| it.requested_bytes).collect();
    assert_eq!(sizes, [COUNT + 59, COUNT + 58, COUNT + 57]);
    assert_eq!(snapshot.health.source, "daemon");
    assert!(ask(&mut ours, SNAPSHOT).starts_with("{\"schema\""), "the connection goes on");
    // Requests on several connections wait for each other; one that hangs up leaves nothing behind.
    let mut several: Vec<UnixStream> = (0..8).map(|_| connect_as(OTHER, &server.query)).collect();
    for stream in &mut several {
        request(stream, pages);
    }
    drop(several.split_off(4));
    for stream in several {
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("\"buffers\""), "{answer:.80}");
    }
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    eventually("no child is left", || fs::read_to_string(&children).unwrap().is_empty().then_some(()));
    assert_eq!(client.query(0).levels.dram, snapshot_dram(&server.usage(0)));
}

fn snapshot_dram(usage: &Usage) -> u64 {
    usage.used(ttmem_core::words::Space::Dram).unwrap().0
}

#[test]
fn machine_is_read_here_if_the_daemon_is_silent() {
    let server = crate::segments::daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(0, 12 << 20);
    // The user's usual socket.
    let runtime = tempfile::tempdir().unwrap();
    fs::create_dir(runtime.path().join("ttmem")).unwrap();
    let socket = runtime.path().join("ttmem/query.sock");
    symlink(&server.query, &socket).unwrap();
    let ttmem = |args: &[&str]| {
        let mut command = Command::new(exe());
        command.args(args).env("XDG_RUNTIME_DIR", runtime.path()).env_remove("TTMEM_QUERY_SOCKET");
        command.env("TTMEM_SHM_DIR", server.segments.path()).output().unwrap()
    };
    let answered = ttmem(&["--json"]);
    let snapshot: Snapshot = schema::snapshot(&answered.stdout);
    assert_eq!((snapshot.health.source.as_str(), &answered.stderr[..]), ("daemon", &b""[..]));
    server.signal(Signal::STOP);
    let read = ttmem(&["--json"]);
    let page = ttmem(&[]);
    server.signal(Signal::CONT);
    let socket = socket.display().to_string();
    let errors = String::from_utf8(read.stderr).unwrap();
    let expected =
        format!("ttmem: the daemon at {socket} does not answer; reading this machine without it\n");
    assert_eq!(errors, expected);
    let snapshot: Snapshot = schema::snapshot(&read.stdout);
    assert_eq!(snapshot.health.source, "local");
    assert!(snapshot.health.skipped.iter().any(|it| it.path == socket), "{:?}", snapshot.health);
    assert!(snapshot.processes.iter().any(|it| it.pid == Some(producer.pid)));
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains(", local") && page.contains("did not begin to answer within 1 s"), "{page}");
}

#[test]
fn idle_old_clients_leave_room_for_other_users() {
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=400:400").arg(exe());
    let server = Server::start_by(limited, &["--sim", "t3k"]);
    let mut first = Client::connect(&server, Vintage::V144);
    first.alloc(0, DRAM, 1, 4096);
    first.sync();
    let flood: Vec<UnixStream> = (0..300).map(|_| connect_as(OTHER, &server.legacy)).collect();
    let mut second = Client::connect(&server, Vintage::V144);
    second.alloc(0, DRAM, 2, 4096);
    assert_eq!(second.query(0).levels.dram, 8192, "a new client is read");
    first.alloc(0, DRAM, 3, 4096);
    assert_eq!(first.query(0).levels.dram, 12288, "and an older one is not closed");
    server.wait_for_warning("every descriptor is in use, and user 65534 has the most connections");
    drop(flood);
}
