//! Segments of processes, read by the daemon and without one.

mod accidents;
mod lifetime;
mod limits;

use crate::{AS_OTHER_USER, MIB, exe, finding};
use jiff::Timestamp;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use ttmem_core::Detail;
use ttmem_core::Snapshot;
use ttmem_core::detail::BufferQuery;
use ttmem_core::snapshot::{EventKind, Finding, FindingKind, Process};
use ttmem_core::words::{Basis, Space};
use ttmem_reader::Session;
use ttmem_sources::SourceConfig;
use ttmem_testkit::producer::{BANKS, FLOOD, Fork, Interrupted, Producer, Request};
use ttmem_testkit::{Server, eventually, memory_folder, schema};

pub(crate) fn daemon() -> Server {
    Server::start(exe(), &["--quiet"])
}

/// The output of `ttmem --local`.
pub(crate) fn local(folder: &Path) -> Snapshot {
    let output = Command::new(exe()).args(["--local", "--json", "--shm-dir"]).arg(folder).output().unwrap();
    assert!(!output.stdout.is_empty(), "{output:?}");
    schema::snapshot(&output.stdout)
}

pub(crate) fn process(snapshot: &Snapshot, pid: u32) -> Option<&Process> {
    snapshot.processes.iter().find(|process| process.pid == Some(pid))
}

/// Requested bytes of DRAM of a process on its first device.
pub(crate) fn dram(process: &Process) -> u64 {
    process.usage.first().and_then(|usage| usage.usage.dram.as_ref()).map_or(0, |dram| dram.requested_bytes)
}

#[test]
fn process_is_listed_at_once_with_and_without_a_daemon() {
    let server = daemon();
    let mut producer =
        Producer::start_through(&[], &[("TTMEM_SHM_DIR", server.segments.path().to_str().unwrap())]);
    producer.define(2);
    producer.alloc(4096, 24000);
    producer.begin_program(7, "matmul".to_owned());
    producer.place(7, 105_824, 4096);
    producer.place(7, 109_920, 2048);
    for snapshot in [server.snapshot(), local(server.segments.path())] {
        let found = process(&snapshot, producer.pid).expect("the process is listed");
        assert!(found.complete && found.basis == Basis::Exact && found.sequence == Some(5), "{found:?}");
        assert_eq!(found.usage.len(), 2, "both devices of the mesh");
        for usage in &found.usage {
            let dram = usage.usage.dram.as_ref().unwrap();
            assert_eq!((dram.requested_bytes, dram.occupied_bytes), (24_000, Some(24_000)));
            assert_eq!((dram.allocated_bytes, dram.count), (Some(24_000), Some(1)));
            let cb = usage.usage.cb.as_ref().unwrap();
            assert_eq!((cb.registered_bytes, cb.resident_bytes), (4 * 6144, Some(0)), "on four cores");
        }
        assert_eq!(snapshot.devices.iter().map(|d| d.index).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(snapshot.health.segments, 1);
    }
    producer.dispatch(7);
    let cb = server.process(producer.pid).unwrap().usage[0].usage.cb.clone().unwrap();
    assert_eq!(cb.resident_bytes, Some(4 * 6144));
    producer.end_program(7);
    producer.free(4096);
    let snapshot = server.snapshot();
    let usage = &process(&snapshot, producer.pid).unwrap().usage[0].usage;
    assert_eq!(usage.dram.as_ref().unwrap().count, Some(0));
    assert_eq!(usage.dram.as_ref().unwrap().peak_bytes, 24_000);
    assert_eq!(usage.cb.as_ref().unwrap().registered_bytes, 0);

    let listed = Command::new(exe())
        .args(["dump", "--local", "--shm-dir"])
        .arg(server.segments.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("\n0 allocations, "));
}

#[test]
fn segment_older_than_the_daemon_is_read() {
    let segments = memory_folder();
    let mut producer = Producer::new(segments.path());
    // More records than the ring has, so that the table must be read.
    producer.flood(30000, 100);
    producer.alloc(4096, 5);
    let server = Server::start_reading(
        tempfile::tempdir().unwrap(),
        Arc::clone(&segments),
        Command::new(exe()),
        &["--quiet"],
        None,
    );
    let first = process(&server.first, producer.pid).expect("it is in the first answer");
    assert_eq!(dram(first), 3_000_005);
    assert!(first.complete);
    // Later changes are read from the ring or, if they are too many, from the table again.
    producer.free(4096);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 3_000_000);
    for _ in 0..3 {
        producer.close_allocator();
        producer.define(1);
        producer.flood(20000, 50);
    }
    let it = server.process(producer.pid).unwrap();
    assert_eq!(dram(&it), 1_000_000);
    assert!(it.complete);
}

#[test]
fn refused_calls_are_errors_and_findings() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 64);
    let alloc = |address, bytes| Request::Alloc { address, bytes };
    for (request, error) in [
        (alloc(8192, 0), "ZeroSize"),
        (alloc(8192, 2_000_000_000_000), "TooLarge"),
        (alloc(u64::MAX, 64), "BeyondAddresses"),
        (alloc(4096, 64), "StillHeld"),
        (alloc(4096, 128), "Replaced"),
        (Request::Free { address: 12288 }, "UnknownFree"),
        (Request::Dispatch { program: 9 }, "UnknownProgram"),
        (Request::EndProgram { program: 9 }, "UnknownProgram"),
    ] {
        assert_eq!(producer.refusal(&request), error, "{request:?}");
    }
    producer.free(4096);
    assert_eq!(producer.refusal(&Request::Free { address: 4096 }), "DoubleFree");
    producer.out_of_memory(2_097_152, None);
    let it = server.process(producer.pid).unwrap();
    assert_eq!(dram(&it), 0, "refused calls change nothing");
    assert!(!it.complete, "the process is incomplete");
    for (kind, count) in [
        (FindingKind::DoubleFree, 1),
        (FindingKind::UnknownFree, 1),
        (FindingKind::Replaced, 2),
        (FindingKind::OutOfMemory, 1),
    ] {
        let found = finding(&server, kind).unwrap_or_else(|| panic!("no finding of {kind:?}"));
        assert_eq!((found.pid, found.count), (Some(producer.pid), count), "{found:?}");
    }
    let refused = server.snapshot().findings.into_iter().filter(|it| it.kind == FindingKind::Refused);
    assert_eq!(refused.map(|it| it.count).sum::<u64>(), 5);
    producer.close_allocator();
    assert_eq!(producer.refusal(&alloc(1, 64)), "UnknownAllocator");
    assert_eq!(producer.refusal(&Request::CloseAllocator {}), "UnknownAllocator");
}

/// The failed allocations that a new reader finds.
fn failures(folder: &Path) -> Vec<Finding> {
    let findings = local(folder).findings.into_iter();
    findings.filter(|it| it.kind == FindingKind::OutOfMemory).collect()
}

#[test]
fn late_reader_finds_when_and_where_memory_ran_out() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.alloc(4096, 64);
    producer.out_of_memory(512 * MIB, Some(38 * MIB));
    producer.alloc(8192, 64);
    // The record leaves the ring.
    producer.churn(20_000);
    let mut session = Session::local(SourceConfig::segments(folder.path()));
    session.refresh();
    let buffers = Some(BufferQuery { limit: 10, ..BufferQuery::default() });
    let snapshot = session.snapshot(&Detail { events: true, buffers, ..Detail::NONE });
    let finding = snapshot.findings.iter().find(|it| it.kind == FindingKind::OutOfMemory).unwrap();
    let event = snapshot.events.iter().flatten().find(|it| it.kind == EventKind::OutOfMemory).unwrap();
    let device = Some(snapshot.devices[0].id.clone());
    assert_eq!(
        (finding.space, finding.bytes, &finding.device),
        (Some(Space::Dram), Some(512 * MIB), &device)
    );
    assert_eq!((event.bytes, &event.device, &event.text), (finding.bytes, &device, &finding.text));
    assert!(finding.text.starts_with(&format!("out of memory: pid {} (", producer.pid)), "{}", finding.text);
    let text = " requested 512.0 MiB of DRAM on device 0; largest free block 38.0 MiB per bank";
    assert!(finding.text.ends_with(text), "{}", finding.text);
    // Between two allocations of the same snapshot, whose ages are whole milliseconds.
    let seconds = |at: Timestamp| snapshot.at.duration_since(at).as_secs_f64();
    let mut ages: Vec<f64> = snapshot.buffers.unwrap().list.iter().map(|it| it.age_seconds).collect();
    ages.sort_by(f64::total_cmp);
    let [after, before] = ages[..] else { panic!("{ages:?}") };
    for at in [finding.first.unwrap(), finding.last.unwrap(), event.at] {
        let age = seconds(at);
        assert!((after - 0.001..=before + 0.001).contains(&age), "{after} <= {age} <= {before}");
    }
}

#[test]
fn failure_outlives_its_allocator_and_counts_once() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    for n in 1..=20 {
        producer.out_of_memory(n * MIB, None);
    }
    producer.close_allocator();
    let [failure] = &failures(folder.path())[..] else { panic!() };
    assert_eq!((failure.count, failure.bytes, failure.space), (20, Some(20 * MIB), Some(Space::Dram)));
    let text = format!("out of memory x20: pid {} (", producer.pid);
    assert!(failure.text.starts_with(&text), "{}", failure.text);
    assert!(failure.text.ends_with(" last requested 20.0 MiB of DRAM on device 0"), "{}", failure.text);
    // A reader that polls counts each failure.
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    for n in 1..=20 {
        producer.out_of_memory(n * MIB, None);
        let failure = finding(&server, FindingKind::OutOfMemory).unwrap();
        assert_eq!((failure.count, failure.bytes), (n, Some(n * MIB)));
    }
}

#[test]
fn peaks_come_from_the_writer() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, 1200);
    producer.alloc(8192, 2400);
    producer.free(8192);
    assert_eq!(producer.peak(), 3600);
    let peak = |server: &Server| {
        let it = server.process(producer.pid).unwrap();
        it.usage[0].usage.dram.as_ref().unwrap().peak_bytes
    };
    assert_eq!(peak(&server), 3600, "although no reader polled at the peak");
    assert_eq!(
        local(server.segments.path()).processes[0].usage[0].usage.dram.as_ref().unwrap().peak_bytes,
        3600
    );
    producer.reset_peak();
    assert_eq!(producer.peak(), 1200);
    let it = server.process(producer.pid).unwrap();
    assert_eq!(it.usage[0].usage.dram.as_ref().unwrap().peak_bytes, 1200);
}

#[test]
fn signal_handler_that_tracks_does_not_deadlock() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    let Interrupted { calls, live, lost } = producer.interrupt(200_000);
    assert!(calls > 0);
    assert_eq!(live + lost, calls, "each call of the handler was recorded or counted as lost");
    let snapshot = local(folder.path());
    assert_eq!(snapshot.processes[0].complete, lost == 0);
    assert_eq!(snapshot.health.lost_records, lost);
}
