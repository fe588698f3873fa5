//! Events that a reader misses are counted exactly.

use super::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use ttmem_testkit::producer::Request as ProducerRequest;

/// Checks that every number after `from` up to `to` is delivered once or missed once, and returns the gaps.
fn check_all(events: &[Value], from: u64, to: u64) -> Vec<(u64, u64)> {
    let (mut next, mut gaps) = (from + 1, Vec::new());
    for event in events {
        let number = |key: &str| event["missed"][key].as_u64().unwrap();
        if event["kind"] == "gap" {
            let (first, last) = (number("first"), number("last"));
            assert_eq!((first, number("count")), (next, last - first + 1), "{event}");
            gaps.push((first, last));
            next = last + 1;
        } else {
            assert_eq!(event["sequence"], next, "{event}");
            next += 1;
        }
    }
    assert_eq!(next, to + 1, "all of them");
    gaps
}

#[test]
fn stopped_reader_reports_exactly_what_it_missed() {
    const RING: u64 = 1024;
    let folder = memory_folder();
    let shm = folder.path().to_str().unwrap();
    let env = [("TTMEM_SHM_DIR", shm), ("TTMEM_RING", "1024")];
    let mut producer = Producer::start_through(&[], &env);
    producer.define(1);
    let (follower, from) = Follower::start_on(&["--json", "--local", "--shm-dir", shm], &mut producer);
    follower.signal(rustix::process::Signal::STOP);
    let stat = format!("/proc/{}/stat", follower.child.id());
    eventually("it is stopped", || fs::read_to_string(&stat).unwrap().contains(") T ").then_some(()));
    producer.churn(2000);
    let last = from + 4000;
    let kept = ring(folder.path());
    follower.signal(rustix::process::Signal::CONT);
    let events = follower.until(last);
    assert_eq!(check_all(&events, from, last), [(from + 1, last - RING)]);
    for (event, record) in events[events.len() - kept.len()..].iter().zip(&kept) {
        check(event, record, producer.pid);
    }
    let after = producer.alloc(64, 64);
    assert!(check_all(&follower.until(after), last, after).is_empty(), "it goes on");
}

#[test]
fn small_ring_is_covered_by_events_and_gaps() {
    let server = Server::start(exe(), &["--quiet"]);
    let shm = server.segments.path().to_str().unwrap().to_owned();
    let query = server.query.to_str().unwrap();
    let env = [("TTMEM_SHM_DIR", shm.as_str()), ("TTMEM_RING", "1024")];
    let mut producer = Producer::start_through(&[], &env);
    producer.define(1);
    let (daemon, _) = Follower::start_on(&["--json", "--query-socket", query], &mut producer);
    let (local, from) = Follower::start_on(&["--json", "--local", "--shm-dir", &shm], &mut producer);
    daemon.until(from);
    // As fast as possible: whether anything is missed depends on the machine, what is missed is exact anyway.
    producer.churn(5000);
    for follower in [local, daemon] {
        check_all(&follower.until(from + 10_000), from, from + 10_000);
    }
}

#[test]
fn slow_subscriber_loses_a_known_number_of_events() {
    const EVENTS: u64 = 100_000;
    let server = Server::start(exe(), &["--quiet"]);
    let shm = server.segments.path().to_str().unwrap().to_owned();
    // The daemon itself misses nothing.
    let env = [("TTMEM_SHM_DIR", shm.as_str()), ("TTMEM_RING", "131072")];
    let mut producer = Producer::start_through(&[], &env);
    producer.define(1);
    let from = producer.alloc(64, 64);
    let sequence = || server.process(producer.pid).and_then(|it| it.sequence);
    eventually("the process is followed", || (sequence() == Some(from)).then_some(()));
    let mut stream = UnixStream::connect(&server.query).unwrap();
    stream.write_all(b"{\"get\":\"events\",\"follow\":true,\"since\":\"2020-01-01T00:00:00Z\"}\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    // The events so far show that it is subscribed; from here on it reads nothing.
    for sequence in 1..=from {
        let event: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!(event["sequence"], sequence);
    }
    producer.churn(EVENTS / 2);
    let last = from + EVENTS;
    let sequence = || server.process(producer.pid).and_then(|it| it.sequence);
    eventually("the daemon has read everything", || (sequence() == Some(last)).then_some(()));
    let mut events: Vec<Value> = Vec::new();
    let covered = |event: &Value| event["missed"]["last"].as_u64().or(event["sequence"].as_u64());
    while events.last().and_then(covered) != Some(last) {
        events.push(serde_json::from_str(&lines.next().unwrap()).unwrap());
    }
    let gaps = check_all(&events, from, last);
    // How many gaps there are depends on how the daemon's polls divide the events.
    let first_lost = gaps.first().expect("events are lost").0;
    assert!(first_lost > from + 10_000, "the queue holds many: {gaps:?}");
    // Afterwards nothing is missed.
    let next = producer.free(64);
    let event: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(event["sequence"], next);
}

#[test]
fn new_segment_that_lost_events_has_a_gap() {
    let folder = memory_folder();
    let shm = folder.path().to_str().unwrap();
    let other = memory_folder();
    let env = [("TTMEM_SHM_DIR", shm), ("TTMEM_RING", "1024")];
    let mut first = Producer::start_through(&[], &env);
    first.define(1);
    let (follower, _) = Follower::start_on(&["--json", "--local", "--shm-dir", shm], &mut first);
    // A segment that appears with a full ring, as that of a process in a container that is found late.
    let mut second = Producer::start_through(
        &[],
        &[("TTMEM_SHM_DIR", other.path().to_str().unwrap()), ("TTMEM_RING", "1024")],
    );
    second.define(1);
    second.churn(1000);
    let name = second.status().segment;
    fs::rename(other.path().join(&name), folder.path().join(&name)).unwrap();
    let gap: Value = serde_json::from_str(&follower.next()).unwrap();
    assert_eq!((&gap["kind"], &gap["pid"]), (&"gap".into(), &second.pid.into()), "{gap}");
    assert_eq!(
        (&gap["missed"]["first"], &gap["missed"]["last"]),
        (&1.into(), &(2001 - 1024).into()),
        "{gap}"
    );
    let events = follower.until(2001);
    assert_eq!(events.len(), 1024);
    assert_eq!(second.refusal(&ProducerRequest::Free { address: 7 }), "UnknownFree");
    assert_eq!(follower.until(2002).len(), 1);
}
