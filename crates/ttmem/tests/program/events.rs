//! `ttmem events`: every record of a segment and every message of an old client, once and as they happen.

mod gaps;
mod old_format;

use crate::exe;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use ttmem_testkit::producer::{Held, Producer, Request};
use ttmem_testkit::{Server, eventually, memory_folder};
use ttmem_wire::legacy::Type;
use ttmem_wire::record::{Record, SIZE};
use ttmem_wire::segment::parse_name;

/// The records in the ring of a process's only segment, as the bytes of the file have them.
fn ring(folder: &Path) -> Vec<Record> {
    let found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| parse_name(path.file_name().unwrap().as_encoded_bytes()).is_some();
    let found: Vec<_> = found.filter(is_segment).collect();
    let [path] = &found[..] else { panic!("one segment: {found:?}") };
    let bytes = fs::read(path).unwrap();
    // The offsets of docs/protocol/segment.md.
    let word = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
    let (begin, records, applied) = (word(88), u64::from(ring_records(&bytes)), word(520));
    let first = (applied + 1).saturating_sub(records).max(1);
    let record = |sequence: u64| {
        let offset = (begin + sequence % records * SIZE as u64) as usize;
        Record::parse(&bytes[offset..offset + SIZE]).unwrap().0
    };
    (first..=applied).map(record).collect()
}

/// The number of records in the ring of a segment.
fn ring_records(segment: &[u8]) -> u32 {
    u32::from_le_bytes(segment[112..116].try_into().unwrap())
}

/// The name of a record's event, by the numbers that docs/protocol/records.md has.
fn name(record: &Record) -> &'static str {
    let is_program = (5..=7).contains(&record.space);
    match (record.kind, record.space) {
        (1, 8) => "kernel_loaded",
        (2, 8) => "kernel_unloaded",
        (1, _) if is_program => "placed",
        (2, _) if is_program => "displaced",
        (1, _) => "allocated",
        (2, _) => "freed",
        (3, _) => "program_built",
        (4, _) => "program_dispatched",
        (5, _) => "program_ended",
        (6, _) if record.flags.get() & 256 != 0 => "allocator_cleared",
        (6, _) => "allocator_closed",
        (7, _) => "out_of_memory",
        (8, _) => "refused",
        (9, _) => "audited",
        (10, _) => "peak_reset",
        (11, _) => "allocator_opened",
        (12, _) if record.padding.get() > 0 => "trace_replayed",
        (12, _) => "trace_captured",
        (13, _) => "trace_released",
        (15, _) => "marked",
        _ => "other",
    }
}

/// Checks an event against its record.
fn check(event: &Value, record: &Record, pid: u32) {
    let name = name(record);
    assert_eq!(event["sequence"], record.sequence.get(), "{event}");
    assert_eq!((&event["kind"], &event["pid"]), (&name.into(), &pid.into()), "{event}");
    assert_eq!(event["basis"], "exact");
    let hex = Value::from(format!("0x{:x}", record.id.get()));
    let has_size = ["allocated", "freed", "placed", "displaced", "kernel_loaded", "kernel_unloaded"];
    if has_size.contains(&name) {
        assert_eq!(
            (&event["id"], &event["requested_bytes"]),
            (&hex, &record.requested.get().into()),
            "{event}"
        );
        assert!(event["allocated_bytes"].as_u64().unwrap() >= record.requested.get(), "{event}");
    }
    if name.starts_with("trace_") {
        assert_eq!(event["id"], hex, "{event}");
    }
    let spaces = ["dram", "l1", "l1_small", "trace", "cb", "dfb", "scratch", "kernel", "host", "l1_core"];
    let space = usize::from(record.space).checked_sub(1).map_or(Value::Null, |at| spaces[at].into());
    assert_eq!(event["space"], space, "{event}");
    if (3..=5).contains(&record.kind) || (5..=8).contains(&record.space) {
        assert_eq!(event["program"], record.program.get(), "{event}");
    }
}

/// `ttmem events` with these arguments, read line by line.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(exe())
            .args(["events", "--follow"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Starts to follow, and lets a process report until the first event is printed. Returns the last event's number.
    fn start_on(args: &[&str], producer: &mut Producer) -> (Self, u64) {
        let follower = Self::start(args);
        let mut last = 0;
        let first = eventually("the first event", || {
            producer.alloc(64, 64);
            last = producer.free(64);
            let line = follower.lines.recv_timeout(Duration::from_millis(50)).ok()?;
            Some(line)
        });
        // The first event that is printed may be the last one.
        let first: Value = serde_json::from_str(&first).unwrap();
        if first["sequence"] != last {
            follower.until(last);
        }
        (follower, last)
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("a line")
    }

    /// Reads JSON up to the event with a number.
    fn until(&self, sequence: u64) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event: Value = serde_json::from_str(&self.next()).unwrap();
            let is_last = event["sequence"] == sequence;
            events.push(event);
            if is_last {
                return events;
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Events that `ttmem events` lists, as JSON.
fn listed(args: &[&str]) -> Vec<Value> {
    let output = Command::new(exe()).args(["events", "--json"]).args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A process that did one of everything.
fn busy_process(folder: &Path) -> Producer {
    let mut producer = Producer::start_through(&[], &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
    producer.define_grid(2, 4, 4);
    producer.alloc(4096, 24_000);
    producer.alloc_l1(0x10_0000, 2048, None);
    producer.begin_program(7, "matmul".to_owned());
    producer.hold(7, Held::Cb, 0x2_0000, 4096, [(0, 0), (3, 0)]);
    producer.hold(7, Held::Dfb, 0x3_0000, 4096, [(0, 0), (3, 0)]);
    producer.load_kernel(7, 9, 1024, [(0, 0), (1, 0)]);
    producer.dispatch(7);
    producer.dispatch(7);
    producer.trace(3, 2);
    producer.replay_trace(3);
    producer.out_of_memory(1 << 40, Some(4096));
    assert_eq!(producer.refusal(&Request::Free { address: 0xdead }), "UnknownFree");
    producer.mark("step".to_owned(), Some(12));
    producer.mark("warm".to_owned(), None);
    producer.end_trace(3);
    producer.end_program(7);
    producer.reset_peak();
    producer.free(4096);
    producer
}

#[test]
fn events_equal_the_records_of_the_segment() {
    let server = Server::start(exe(), &["--quiet"]);
    let folder = server.segments.path();
    let producer = busy_process(folder);
    let records = ring(folder);
    assert!(records.len() > 16 && records[0].sequence.get() == 1, "{}", records.len());
    let (shm, query) = (folder.to_str().unwrap(), server.query.to_str().unwrap());
    let local = listed(&["--local", "--shm-dir", shm]);
    assert_eq!(local.len(), records.len());
    for (event, record) in local.iter().zip(&records) {
        check(event, record, producer.pid);
    }
    assert_eq!(listed(&["--query-socket", query]), local, "the daemon lists the same");
    let find = |kind: &str| local.iter().find(|event| event["kind"] == kind).unwrap();
    let built = find("program_built");
    assert_eq!((&built["program"], &built["program_name"]), (&7.into(), &"matmul".into()));
    let failed = find("out_of_memory");
    assert_eq!(failed["requested_bytes"], 1u64 << 40);
    assert_eq!(failed["largest_free_bytes_per_bank"], 4096);
    assert_eq!(find("refused")["fault"], "unknown_free");
    let marks: Vec<_> = local.iter().filter(|event| event["kind"] == "marked").collect();
    assert_eq!((&marks[0]["site_name"], &marks[0]["number"]), (&"step".into(), &12.into()));
    assert_eq!((&marks[1]["site_name"], &marks[1]["number"]), (&"warm".into(), &Value::Null));
    assert_eq!(find("program_dispatched")["dispatches"], 1);
    assert_eq!(
        (&find("trace_captured")["replays"], &find("trace_replayed")["replays"]),
        (&0.into(), &1.into())
    );
    assert_eq!(find("allocated")["indexes"], serde_json::json!([0, 1]), "both devices of the mesh");
}

#[test]
fn followed_events_equal_the_records() {
    let server = Server::start(exe(), &["--quiet"]);
    let shm = server.segments.path().to_str().unwrap().to_owned();
    let query = server.query.to_str().unwrap();
    // The ring holds everything, so that no event can be missed, however slow the readers are.
    let env = [("TTMEM_SHM_DIR", shm.as_str()), ("TTMEM_RING", "65536")];
    let mut producer = Producer::start_through(&[], &env);
    producer.define(1);
    let (local, _) = Follower::start_on(&["--json", "--local", "--shm-dir", &shm], &mut producer);
    let (daemon, from) = Follower::start_on(&["--json", "--query-socket", query], &mut producer);
    local.until(from);
    producer.pace(20_000, 100_000);
    producer.begin_program(7, "matmul".to_owned());
    producer.place(7, 105_824, 4096);
    let last = producer.end_program(7);
    let records = ring(server.segments.path());
    let records = &records[usize::try_from(from).unwrap()..];
    let events = local.until(last);
    assert_eq!(events.len(), records.len(), "nothing is missing or twice");
    for (event, record) in events.iter().zip(records) {
        check(event, record, producer.pid);
    }
    assert_eq!(events.last().unwrap()["released"]["cbs"], 1, "what the program held");
    assert_eq!(daemon.until(last), events, "the daemon sends the same");
    // The exit is an event, too.
    let pid = producer.pid;
    producer.kill();
    for follower in [&local, &daemon] {
        let exit: Value = serde_json::from_str(&follower.next()).unwrap();
        assert_eq!((&exit["kind"], &exit["pid"]), (&"process_exited".into(), &pid.into()), "{exit}");
    }
    for mut follower in [local, daemon] {
        follower.signal(rustix::process::Signal::INT);
        assert!(follower.child.wait().unwrap().success(), "an interrupt ends it");
    }
}

#[test]
fn events_of_old_clients_are_listed_and_followed() {
    let server = crate::server();
    let query = server.query.to_str().unwrap();
    let mut client = ttmem_testkit::puppet::Puppet::new(&server.legacy);
    client.send(Type::Alloc, 0, crate::DRAM, 0x1000, 4096);
    client.send(Type::Alloc, 0, crate::DRAM, 0x1000, 4096);
    client.send(Type::Free, 0, crate::DRAM, 0x1000, 0);
    client.send(Type::Free, 0, crate::DRAM, 0x5000, 0);
    client.send(Type::Alloc, 0, crate::DRAM, 0x6000, 0);
    client.send(Type::KernelLoad, 1, 1, 9, 8192);
    let events = listed(&["--query-socket", query]);
    let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["allocated", "allocated", "freed", "refused", "refused", "kernel_loaded"]);
    assert!(events.iter().all(|event| event["basis"] == "reported" && event["pid"] == client.pid));
    assert_eq!(events[1]["references"], 2);
    assert_eq!((&events[2]["references"], &events[2]["requested_bytes"]), (&1.into(), &4096.into()));
    assert_eq!((&events[3]["fault"], &events[4]["fault"]), (&"unknown_free".into(), &"zero_size".into()));
    assert_eq!((&events[5]["kernel"], &events[5]["indexes"]), (&"fabric".into(), &serde_json::json!([1])));
    assert_eq!(listed(&["--query-socket", query, "-d", "1"]), events[5..]);
    assert_eq!(listed(&["--query-socket", query, "--kind", "refused,freed"]), events[2..5]);
    assert!(listed(&["--query-socket", query, "--pid", "1"]).is_empty());
    assert!(listed(&["--query-socket", query, "--since", "2100-01-01T00:00:00Z"]).is_empty());
    // With a time, what happened before is printed first.
    let follower = Follower::start(&["--json", "--query-socket", query, "--since", "1h"]);
    let followed: Vec<Value> =
        events.iter().map(|_| serde_json::from_str(&follower.next()).unwrap()).collect();
    assert_eq!(followed, events);
    client.send(Type::Free, 0, crate::DRAM, 0x1000, 0);
    let freed: Value = serde_json::from_str(&follower.next()).unwrap();
    assert_eq!((&freed["kind"], &freed["references"]), (&"freed".into(), &0.into()));
}

#[test]
fn text_is_aligned_and_ends_with_its_reader() {
    let folder = memory_folder();
    let shm = folder.path().to_str().unwrap();
    let mut producer = busy_process(folder.path());
    let output = Command::new(exe()).args(["events", "--local", "--shm-dir", shm]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    assert!(!text.contains('\x1b'), "no colours in a pipe");
    let column = |name: &str| header.find(name).unwrap();
    for line in lines.lines() {
        let at = |name: &str| line.chars().skip(column(name)).take_while(|&c| c != ' ').collect::<String>();
        assert!(at("Event").starts_with(|c: char| c.is_ascii_lowercase()), "{line}");
        assert_eq!(at("Time").split(':').count(), 3, "{line}");
    }
    let find = |word: &str| lines.lines().find(|line| line.contains(word)).unwrap();
    assert!(find("program_built").ends_with("program 7 matmul"), "{lines}");
    assert!(find("out_of_memory").contains("1.0 TiB  largest free block 4.0 KiB per bank"), "{lines}");
    assert!(find("refused").ends_with("unknown free"), "{lines}");
    assert!(find("marked").ends_with("step 12"), "{lines}");
    assert!(find(" allocated ").contains("0-1    dram     0x1000"), "{lines}");
    // A reader that goes away ends it, even if nothing happens.
    let mut follower = Follower::start(&["--json", "--local", "--shm-dir", shm, "--since", "1h"]);
    let first = follower.next();
    assert!(first.contains("allocator_opened"), "{first}");
    let (_, closed) = channel();
    drop(std::mem::replace(&mut follower.lines, closed));
    producer.alloc(1 << 20, 64);
    let status = eventually("it ends", || {
        producer.alloc(1 << 21, 64);
        producer.free(1 << 21);
        follower.child.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
}

#[test]
fn wrong_arguments_are_explained() {
    let folder = memory_folder();
    let shm = folder.path().to_str().unwrap();
    for (args, why) in [
        (&["--kind", "teleported"][..], "expected one of allocated, freed"),
        (&["--since", "yesterday"], "such as 10s, 5m or 2h"),
        (&["--format", "xml"], "[possible values: text, json, old]"),
        (&["--json", "--format", "old"], "cannot be used with"),
        (&["--device", "nowhere"], "--device nowhere: no such device"),
    ] {
        let output = Command::new(exe())
            .args(["events", "--local", "--root", shm, "--shm-dir", shm])
            .args(args)
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(why) && output.stdout.is_empty(), "{args:?}: {errors}");
    }
    let output = Command::new(exe()).args(["events", "--query-socket", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let run = Command::new(exe()).args(["run", "--ring", "5", "true"]).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8(run.stderr).unwrap().contains("1024..=1048576"));
    let server = Server::start(exe(), &["--quiet"]);
    for (request, why) in [
        (r#"{"get":"events","kinds":["teleported"]}"#, "unknown kind of event, expected one of allocated"),
        (r#"{"get":"events","colour":1}"#, "unknown field `colour`"),
        (r#"{"get":"events","since":"soon"}"#, "cannot read the request"),
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(&server.query).unwrap();
        std::io::Write::write_all(&mut stream, format!("{request}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\":") && answer.contains(why), "{request}: {answer}");
    }
}

#[test]
fn ring_has_the_chosen_length() {
    for (value, records, message) in [
        ("1024", 1024, None),
        ("65536", 65_536, None),
        ("5000", 8192, Some("a ring of 5000 records is not possible")),
        ("1", 1024, Some("a ring of 1 records is not possible")),
        ("99999999999", 1 << 20, Some("is not possible")),
        ("many", 16_384, Some("TTMEM_RING=many is not a number of records")),
        ("-1", 16_384, Some("TTMEM_RING=-1 is not a number of records")),
        ("", 16_384, None),
    ] {
        let folder = memory_folder();
        let shm = folder.path().to_str().unwrap();
        let env = [("TTMEM_SHM_DIR", shm), ("TTMEM_RING", value), ("TTMEM_LOG", "stderr")];
        let mut producer = Producer::start_through(&[], &env);
        producer.define(1);
        producer.alloc(4096, 64);
        let name = producer.status().segment;
        let bytes = fs::read(folder.path().join(name)).unwrap();
        assert_eq!(ring_records(&bytes), records, "TTMEM_RING={value}");
        let (status, errors) = producer.quit();
        assert!(status.success(), "{errors}");
        match message {
            Some(message) => assert!(errors.contains(message), "TTMEM_RING={value}: {errors}"),
            None => assert_eq!(errors, "", "TTMEM_RING={value}"),
        }
    }
}

#[test]
fn ring_is_smaller_on_a_small_filesystem() {
    let mount = "mount -t tmpfs -o size=24M none /dev/shm && exec \"$0\" \"$@\"";
    let through = ["unshare", "--mount", "sh", "-c", mount];
    let mut producer = Producer::start_through(&through, &[("TTMEM", "1"), ("TTMEM_RING", "131072")]);
    producer.define(1);
    producer.alloc(4096, 64);
    let status = producer.status();
    assert!(status.reason.contains("ttmem may use 1/8 of it"), "{status:?}");
    let segment = format!("/proc/{}/root/dev/shm/{}", producer.pid, status.segment);
    assert_eq!(ring_records(&fs::read(segment).unwrap()), 16_384, "the default still fits");
    producer.flood(100, 64);
    assert_eq!(producer.status().live, 101);
}
