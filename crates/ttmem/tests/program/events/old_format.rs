//! The old server's lines: in the daemon's log, and from `ttmem events --format old`.

use super::*;
use ttmem_testkit::puppet::Puppet;

/// Waits until a file contains a text, and returns its lines that are events.
fn log_until(server: &Server, part: &str) -> Vec<String> {
    server.wait_for_log(part);
    let is_event = |line: &&str| line.starts_with(['✓', '✗', '⚠']) || line.starts_with("   Removed");
    server.log().lines().filter(is_event).map(ToOwned::to_owned).collect()
}

/// Reads the lines of a follower up to one that contains a text.
fn lines_until(follower: &Follower, part: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains(part)) {
        lines.push(follower.next());
    }
    lines
}

#[test]
fn segments_are_logged_as_old_clients_are() {
    let server = Server::start(exe(), &["--log-segments"]);
    let shm = server.segments.path().to_str().unwrap().to_owned();
    let query = server.query.to_str().unwrap();
    let mut producer = Producer::start_through(&[], &[("TTMEM_SHM_DIR", &shm)]);
    producer.define_grid(4, 4, 4);
    let local = Follower::start(&["--format", "old", "--local", "--shm-dir", &shm]);
    let daemon = Follower::start(&["--format", "old", "--query-socket", query]);
    eventually("both follow", || {
        producer.alloc(0x77000, 64);
        producer.free(0x77000);
        let is_first = |it: &Follower| it.lines.recv_timeout(Duration::from_millis(50)).is_ok();
        (is_first(&local) && is_first(&daemon)).then_some(())
    });
    producer.alloc(0x1000, 4096);
    producer.begin_program(7, "matmul".to_owned());
    producer.hold(7, Held::Cb, 0x2_0000, 262_144, [(0, 0), (3, 0)]);
    producer.load_kernel(7, 9, 1 << 20, [(0, 0), (1, 0)]);
    producer.dispatch(7);
    producer.end_program(7);
    producer.out_of_memory(1 << 40, None);
    assert_eq!(producer.refusal(&Request::Free { address: 0xdead }), "UnknownFree");
    producer.free(0x1000);
    producer.alloc(0x2000, 1 << 20);
    let pid = producer.pid;
    producer.kill();
    let each = |line: &str| (0..4).map(|device| line.replace("{d}", &device.to_string())).collect::<Vec<_>>();
    let expected: Vec<String> = [
        "✓ [PID {p}] Allocated 4096 bytes of DRAM on device {d} (buffer_id=0x1000)",
        "✓ [CB_ALLOC] Device {d}: +0.25 MB (Total: 0.25 MB)",
        "✓ [KERNEL_LOAD] Application kernel on Device {d}: +2 MB (Total: 2 MB)",
        "✗ [CB_FREE] Device {d}: -0.25 MB (Total: 0 MB)\n\
         ✗ [KERNEL_UNLOAD] Application kernel on Device {d}: -2 MB (Total: 0 MB)",
        "⚠ [PID {p}] Out of memory: 1099511627776 bytes of DRAM on device {d}",
        "⚠ [PID {p}] Deallocation for unknown buffer 0xdead on device {d} (allocated before tracking started)",
        "✗ [PID {p}] Freed buffer 0x1000 on device {d} (4096 bytes, FINAL)",
        "✓ [PID {p}] Allocated 1048576 bytes of DRAM on device {d} (buffer_id=0x2000)",
    ]
    .iter()
    .flat_map(|line| each(&line.replace("{p}", &pid.to_string())))
    .flat_map(|lines| lines.lines().map(ToOwned::to_owned).collect::<Vec<_>>())
    .chain([
        format!("⚠ Process {pid} ended; taking back what it held:"),
        format!("   Removed 1 buffers (1 MB) from PID {pid}"),
    ])
    .collect();
    let is_probe = |line: &String| line.contains("0x77000");
    for mut lines in [
        log_until(&server, "Removed 1 buffers"),
        lines_until(&local, "Removed 1 buffers"),
        lines_until(&daemon, "Removed 1 buffers"),
    ] {
        lines.retain(|line| !is_probe(line));
        assert_eq!(lines, expected);
    }
    // The greps of the old documents.
    let script = format!(
        "grep -E 'CB_ALLOC.*Device [0-3]' {log} | cut -d' ' -f3 | sort | uniq -c && grep KERNEL_LOAD {log} | head -10",
        log = server.folder.path().join("out").display()
    );
    let found = Command::new("sh").args(["-c", &script]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.lines().next().unwrap().trim(), "4 Device");
    assert_eq!(found.matches("+2 MB (Total: 2 MB)").count(), 4, "{found}");
}

#[test]
fn old_clients_have_the_same_lines_in_log_and_events() {
    let server = crate::server();
    let query = server.query.to_str().unwrap();
    let follower = Follower::start(&["--format", "old", "--query-socket", query]);
    let mut client = Puppet::new(&server.legacy);
    let mut id = 0x00ab_c000;
    eventually("it follows", || {
        id += 1;
        client.send(Type::Free, 0, crate::DRAM, id, 0);
        follower.lines.recv_timeout(Duration::from_millis(50)).ok()
    });
    for (kind, device, buffer_type, id, size) in [
        (Type::Alloc, 0, crate::DRAM, 0x1000, 4096),
        (Type::Alloc, 0, crate::DRAM, 0x1000, 4096),
        (Type::Alloc, 0, crate::L1, 0x2000, 100),
        (Type::Alloc, 0, crate::L1, 0x2000, 200),
        (Type::Free, 0, crate::DRAM, 0x1000, 0),
        (Type::Free, 0, crate::DRAM, 0x1000, 0),
        (Type::Free, 0, crate::DRAM, 0x1000, 0),
        (Type::CbAlloc, 1, 0, 0x3000, 65_536),
        (Type::CbAlloc, 1, 0, 0x3000, 65_536),
        (Type::CbFree, 1, 0, 0x3000, 65_536),
        (Type::CbFree, 1, 0, 0x9000, 65_536),
        (Type::KernelLoad, 2, 1, 9, 57_344),
        (Type::KernelLoad, 2, 0, 10, 57_344),
        (Type::KernelUnload, 2, 0, 9, 57_344),
        (Type::Free, 7, crate::DRAM, 0x7777, 0),
    ] {
        client.send(kind, device, buffer_type, id, size);
    }
    let mut followed = lines_until(&follower, "0x7777");
    let mut logged = log_until(&server, "0x7777");
    for lines in [&mut followed, &mut logged] {
        lines.retain(|line| !line.contains("0xabc"));
    }
    assert!(followed.len() >= 14, "{followed:#?}");
    assert_eq!(followed, logged);
}
