//! The client library with an old server: the defects of the old client by number, each with a test.

use crate::exe;
use crate::segments::dram;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use ttmem_client::{Buffer, CoreRange, Kernel, Options, Placement, Space, Tracker, Transport};
use ttmem_core::words::Basis;
use ttmem_testkit::producer::{FLOOD, Held, Producer};
use ttmem_testkit::{Server, eventually};

fn server() -> Server {
    Server::start(exe(), &["--sim", "n300", "--quiet"])
}

fn producer(server: &Server) -> Producer {
    let socket = server.legacy.to_str().unwrap();
    let mut producer =
        Producer::start_through(&[], &[("TTMEM_TRANSPORT", "legacy"), ("TTMEM_LEGACY_SOCKET", socket)]);
    producer.define(2);
    producer
}

fn held(server: &Server, pid: u32) -> u64 {
    server.process(pid).as_ref().map_or(0, dram)
}

#[test]
fn old_server_gets_every_event() {
    let server = server();
    let mut producer = producer(&server);
    producer.alloc(4096, 100);
    producer.alloc(8192, 50);
    producer.free(8192);
    producer.place(3, 105_824, 64);
    eventually("all of it", || (held(&server, producer.pid) == 100).then_some(()));
    let it = server.process(producer.pid).unwrap();
    assert_eq!((it.usage.len(), it.basis), (2, Basis::Reported), "for each device of the mesh");
    assert_eq!(it.usage[1].usage.cb.as_ref().unwrap().registered_bytes, 4 * 64, "on four cores");
    producer.load_kernel(3, 77, 1000, [(0, 0), (3, 1)]);
    eventually("the kernel, on all of its cores together", || {
        let it = server.process(producer.pid)?;
        let kernel = it.usage[1].usage.kernel.as_ref()?;
        (kernel.registered_bytes == 8 * 1000).then_some(())
    });
    producer.end_program(3);
    eventually("the end of the program", || {
        let process = server.process(producer.pid)?;
        let gone = |usage: &Option<ttmem_core::snapshot::ProgramUsage>| {
            usage.as_ref().is_none_or(|usage| usage.count == Some(0))
        };
        (gone(&process.usage[0].usage.cb) && gone(&process.usage[0].usage.kernel)).then_some(())
    });
    assert_eq!(std::fs::read_dir(server.segments.path()).unwrap().count(), 0, "no segment is created");
}

/// Reports what wrappers of old code report: circular buffers of two programs that overlap, and a kernel that is never unloaded.
fn report_by_hand(tracker: &Tracker) {
    let device = tracker.define_devices(&[0]).unwrap();
    let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 7))]).unwrap();
    tracker.alloc(&Buffer::new(device, Space::L1, 0x8_0000, 65_536)).unwrap();
    for (program, address) in [(1, 105_824), (2, 107_872)] {
        let cb = Placement::new(device, program, Space::Cb, address, 4096).cores(cores);
        tracker.place(&cb.unfollowed(true)).unwrap();
    }
    tracker.load_kernel(&Kernel::new(device, 1, 77, 51_200).cores(cores).unfollowed(true)).unwrap();
}

#[test]
fn both_transports_have_the_same_l1_total() {
    let server = server();
    let socket = server.legacy.to_str().unwrap().to_owned();
    let segment = Options::default().folder(server.segments.path().to_str().unwrap());
    let totals = [segment, Options::default().transport(Transport::Legacy(socket))].map(|options| {
        let tracker = Tracker::new(&options);
        report_by_hand(&tracker);
        let total = eventually("all of it", || {
            tracker.refresh();
            let usage = server.device(0).usage;
            let is_complete = usage.kernel.as_ref()?.registered_bytes == 64 * 51_200;
            is_complete.then(|| usage.l1_total.unwrap().used_bytes)
        });
        tracker.close();
        eventually("nothing is left", || {
            let usage = server.device(0).usage;
            usage.kernel.is_none_or(|kernel| kernel.registered_bytes == 0).then_some(())
        });
        total
    });
    assert_eq!(totals, [65_536 + 64 * 6144; 2]);
}

#[test]
fn repeated_programs_are_reported_once() {
    let server = server();
    let mut producer = producer(&server);
    for round in 0..20 {
        producer.begin_program(1, "matmul".to_owned());
        producer.place(1, 105_824, 64);
        for _ in 0..4 {
            producer.dispatch(1);
        }
        producer.alloc(4096, 100);
        producer.dispatch(1);
        assert_eq!(producer.status().live, 2, "round {round}");
        producer.free(4096);
        producer.end_program(1);
        assert_eq!(producer.status().live, 0, "round {round}");
    }
    eventually("nothing is held", || {
        producer.refresh();
        let it = server.process(producer.pid)?;
        let empty = it.usage.iter().all(|usage| usage.usage.cb.as_ref().is_none_or(|cb| cb.count == Some(0)));
        (empty && dram(&it) == 0).then_some(())
    });
    assert!(server.snapshot().findings.is_empty());
}

#[test]
fn reused_descriptors_are_not_touched() {
    let server = server();
    for env in [
        vec![("TTMEM_TRANSPORT", "legacy"), ("TTMEM_LEGACY_SOCKET", server.legacy.to_str().unwrap())],
        vec![("TTMEM_SHM_DIR", server.segments.path().to_str().unwrap())],
    ] {
        let mut producer = Producer::start_through(&[], &env);
        producer.define(2);
        producer.alloc(4096, 100);
        producer.close_descriptors();
        producer.open_files();
        producer.alloc(8192, 100);
        producer.flood(9000, 10);
        producer.refresh();
        assert!(producer.files_are_intact());
    }
}

/// Stops a server while `work` runs.
fn while_stopped(server: &Server, work: impl FnOnce()) {
    server.signal(rustix::process::Signal::STOP);
    work();
    server.signal(rustix::process::Signal::CONT);
}

#[test]
fn defect_31_slow_server_does_not_block_the_workload() {
    let server = server();
    let mut producer = producer(&server);
    while_stopped(&server, || {
        let begin = Instant::now();
        producer.flood(20000, 10);
        // An old client would wait here for ever.
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert!(producer.status().queued > 10_000, "events wait in the queue");
    });
    eventually("all of it, once the server reads again", || {
        producer.refresh();
        (held(&server, producer.pid) == 200_000).then_some(())
    });
    assert_eq!(producer.status().queued, 0);
}

#[test]
fn defect_32_queue_loses_nothing_and_skips_freed_memory() {
    let server = server();
    let mut producer = producer(&server);
    producer.alloc(4096, 100);
    eventually("the first", || (held(&server, producer.pid) == 100).then_some(()));
    while_stopped(&server, || {
        producer.flood(20000, 10);
        producer.close_allocator();
        producer.define(2);
        producer.alloc(4096, 7);
        assert_eq!(producer.status().live, 1);
    });
    eventually("the server has the current state", || {
        producer.refresh();
        (producer.status().queued == 0 && held(&server, producer.pid) == 7).then_some(())
    });
    let findings = server.snapshot().findings;
    assert!(findings.is_empty(), "each free is sent before the next allocation of its address: {findings:?}");
}

#[test]
fn defect_33_workload_survives_the_server() {
    let server = server();
    let mut producer = producer(&server);
    producer.alloc(4096, 100);
    drop(server);
    for n in 0..100 {
        producer.alloc(8192 + n * 10, 10);
    }
    let (status, errors) = producer.quit();
    assert!(status.success(), "no SIGPIPE: {status}");
    assert_eq!(errors, "");
}

#[test]
fn defect_34_reconnects_are_rare_and_leak_no_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("server");
    let listener = UnixListener::bind(&socket).unwrap();
    let path = socket.to_str().unwrap();
    let mut producer =
        Producer::start_through(&[], &[("TTMEM_TRANSPORT", "legacy"), ("TTMEM_LEGACY_SOCKET", path)]);
    producer.define(1);
    let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = descriptors(producer.pid);
    listener.set_nonblocking(true).unwrap();
    let mut accepted = 0;
    let begin = Instant::now();
    for n in 0..2000 {
        producer.alloc(8192 + n * 10, 10);
        while let Ok((stream, _)) = listener.accept() {
            accepted += 1;
            drop(stream);
        }
    }
    let seconds = begin.elapsed().as_secs() + 1;
    assert!(accepted >= 1 && accepted <= seconds + 1, "{accepted} connections in {seconds} s");
    assert!(descriptors(producer.pid) <= before + 1);
}

/// A restarted server that is killed at the end of its test.
struct Restarted(std::process::Child);

impl Drop for Restarted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn defect_35_restarted_server_gets_everything_again() {
    let server = server();
    let mut producer = producer(&server);
    producer.flood(3000, 10);
    producer.place(3, 105_824, 64);
    eventually("all of it", || {
        producer.refresh();
        (held(&server, producer.pid) == 30_000).then_some(())
    });
    let socket = server.legacy.clone();
    let folder = tempfile::tempdir().unwrap();
    drop(server);
    producer.free(FLOOD);
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    // Not with `Server`, whose folder would be removed with it.
    let restarted = Restarted(
        Command::new(exe())
            .args(["serve", "--sim", "n300", "--quiet", "--legacy-socket"])
            .arg(&socket)
            .arg("--query-socket")
            .arg(folder.path().join("query"))
            .env("TTMEM_SHM_DIR", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let ask = || {
        let request = ttmem_reader::protocol::Request::SNAPSHOT;
        let answer = ttmem_reader::protocol::ask(&folder.path().join("query"), &request).ok()?;
        Some(ttmem_testkit::schema::snapshot::<ttmem_core::Snapshot>(&answer))
    };
    let snapshot = eventually("everything is sent again", || {
        producer.refresh();
        ask().filter(|it| it.processes.first().is_some_and(|it| dram(it) == 29_990))
    });
    assert_eq!(snapshot.processes[0].usage[0].usage.cb.as_ref().unwrap().count, Some(1));
    assert!(snapshot.findings.is_empty(), "{:?}", snapshot.findings);
    drop(restarted);
    std::fs::remove_dir_all(socket.parent().unwrap()).unwrap();
}

#[test]
fn defect_36_reports_of_many_threads_keep_their_order() {
    let server = server();
    let mut producer = producer(&server);
    for n in 0..100 {
        producer.alloc(n * 4096, 64);
    }
    eventually("the first hundred", || {
        producer.refresh();
        (held(&server, producer.pid) == 6400).then_some(())
    });
    while_stopped(&server, || {
        // Enough to fill the socket, so that the rest is queued.
        producer.flood(5000, 10);
        producer.storm(8, 5000);
        for n in 0..100 {
            producer.free(n * 4096);
            producer.alloc(n * 4096, 128);
        }
        producer.storm(8, 100);
    });
    eventually("all of it", || {
        producer.refresh();
        (producer.status().queued == 0 && held(&server, producer.pid) == 62_800).then_some(())
    });
    let findings = server.snapshot().findings;
    assert!(findings.is_empty(), "no allocation is sent before the free of its address: {findings:?}");
}

#[test]
fn closing_frees_everything_on_an_old_server() {
    let server = server();
    let mut producer = producer(&server);
    producer.alloc(4096, 100);
    producer.place(3, 105_824, 64);
    // A view is reported as its buffer.
    producer.hold(3, Held::View, 4096, 64, [(0, 0), (1, 1)]);
    eventually("both", || {
        let it = server.process(producer.pid)?;
        let cb = it.usage[0].usage.cb.as_ref()?;
        (dram(&it) == 100 && cb.registered_bytes == 4 * 64 && cb.count == Some(1)).then_some(())
    });
    producer.close_tracker();
    eventually("nothing is left", || {
        let it = server.process(producer.pid)?;
        (dram(&it) == 0 && it.usage[0].usage.cb.as_ref().is_none_or(|cb| cb.count == Some(0))).then_some(())
    });
}
