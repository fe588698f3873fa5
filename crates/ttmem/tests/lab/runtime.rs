//! Chips, allocators and buffers of the current wheel, and what is tracked of older ones.

use super::{Puppet, TTNN, expect_no_drift, here, process, python, snapshot, tracked_command, ttmem};
use ttmem_core::snapshot::FindingKind;
use ttmem_core::words::Space;
use ttmem_testkit::memory_folder;

#[test]
fn chips_are_described_as_the_runtime_knows_them() {
    // Of n300 boards the runtime dispatches from ethernet cores.
    for (board, shape, chips, cores, l1, dram, name, dispatch, ethernet) in [
        ("t3k", "2, 4", 8, 64, 1_499_136, 12 << 30, "n300", (0, None, None), 16),
        ("p150", "1, 1", 1, 120, 1_572_864, 32 << 30, "p150", (10, None, Some([11, 11])), 12),
        ("galaxy", "8, 4", 32, 80, 1_499_136, 12 << 30, "galaxy-wormhole", (8, Some([9, 9]), None), 16),
    ] {
        let folder = memory_folder();
        let mut puppet = Puppet::start_with_device(board, folder.path(), shape);
        let seen = snapshot(folder.path());
        assert_eq!(seen.devices.len(), chips, "{board}, with nothing allocated yet");
        for device in &seen.devices {
            let capacity = device.capacity.unwrap();
            assert_eq!((capacity.cores, capacity.l1_bytes_per_core), (cores, l1));
            assert_eq!(capacity.dram_bytes, dram);
            let found = device.other_cores.dispatch.unwrap();
            assert_eq!((found.cores, found.rows, found.columns), dispatch, "{board}");
            assert_eq!(found.program_cores, cores - found.cores);
            assert_eq!(device.other_cores.ethernet.map(|it| it.cores), Some(ethernet), "{board}");
            assert!(device.board.as_deref().unwrap().starts_with(name), "{:?}", device.board);
            assert!(device.id.starts_with("0x") && device.id != "0x0000000000000000");
        }
        let remote = seen.devices.iter().filter(|it| it.remote).count();
        assert_eq!(remote, if board == "t3k" { 4 } else { 0 });
        let process = process(&seen, puppet.pid());
        let tracker = process.tracker.as_ref().unwrap();
        assert_eq!(tracker.runtime.as_deref(), Some("ttnn 0.81.1"));
        assert_eq!(tracker.missing_hooks, [""; 0]);
        // The allocatable bytes are those of the runtime's own call.
        let l1 = process.allocators[0].spaces.iter().find(|it| it.space == Space::L1).unwrap();
        let banks = puppet.number("ttnn.get_memory_view(d, ttnn.BufferType.L1).num_banks");
        let bytes = puppet.number("ttnn.get_memory_view(d, ttnn.BufferType.L1).total_bytes_per_bank");
        assert_eq!((u64::from(l1.banks), l1.bytes_per_bank), (banks, bytes));
    }
}

#[test]
fn buffers_have_address_size_and_devices() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("t3k", folder.path(), "2, 4");
    puppet.run("a = ttnn.empty((32, 128), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d, memory_config=across(4))");
    puppet.run("b = tiles(d, 13)");
    let address = puppet.number("b.buffer_address()");
    let output = ttmem(folder.path(), &["dump", "--json"]);
    let dump: serde_json::Value = ttmem_testkit::schema::dump(&output.stdout);
    let listed = dump["allocations"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "one record for eight chips: {dump:#}");
    let of = |space: &str| listed.iter().find(|it| it["space"] == space).unwrap();
    let (l1, dram) = (of("l1"), of("dram"));
    assert_eq!(l1["requested_bytes"], 8192);
    assert_eq!((&l1["occupied_bytes"], &l1["allocated_bytes"]), (&8192.into(), &131_072.into()));
    assert_eq!(dram["id"], format!("0x{address:x}"));
    assert_eq!(dram["devices"].as_array().unwrap().len(), 8);
    assert_eq!((&dram["requested_bytes"], &dram["allocated_bytes"]), (&26_624.into(), &49_152.into()));
    expect_no_drift(folder.path());
}

#[test]
fn peak_outlives_its_buffers() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("n150", folder.path(), "1, 1");
    puppet.run("a = [tiles(d, 12) for _ in range(7)]; del a");
    let seen = snapshot(folder.path());
    let dram = seen.devices[0].usage.dram.as_ref().unwrap();
    assert_eq!((dram.allocated_bytes, dram.peak_bytes), (Some(0), 7 * 12 * 2048));
    puppet.run("ttnn.close_mesh_device(d)");
    assert!(snapshot(folder.path()).processes[0].allocators.is_empty(), "the device is closed");
}

#[test]
fn out_of_memory_is_reported_and_reaches_the_workload() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("n150", folder.path(), "1, 1");
    let answer = puppet.run(
        "def greedy():\n    \
             held = []\n    \
             try:\n        \
                 while True: held.append(tiles(d, 4096, ttnn.L1_MEMORY_CONFIG))\n    \
             except RuntimeError as why: return str(why)\n",
    );
    assert!(answer.is_null());
    let error = puppet.run("greedy()");
    assert!(error.as_str().unwrap().contains("Out of Memory: Not enough space to allocate"), "{error}");
    let seen = snapshot(folder.path());
    let failure = seen.findings.iter().find(|it| it.kind == FindingKind::OutOfMemory).expect("a finding");
    assert!(
        failure.text.contains(" requested 8.0 MiB of L1 on device 0; largest free block "),
        "{}",
        failure.text
    );
    assert_eq!((failure.space, failure.bytes), (Some(Space::L1), Some(8 << 20)));
    assert_eq!(failure.device.as_ref(), Some(&seen.devices[0].id));
    expect_no_drift(folder.path());
}

/// The runtime always refuses such a request.
#[test]
fn interleaved_l1_small_is_not_out_of_memory() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("n150", folder.path(), "1, 1");
    puppet.run(
        "def small():\n    \
             config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, ttnn.BufferType.L1_SMALL)\n    \
             try: return tiles(d, 1, config)\n    \
             except RuntimeError as why: return str(why)\n",
    );
    let error = puppet.run("small()");
    assert!(error.as_str().unwrap().contains("L1_SMALL only supports sharded allocations"), "{error}");
    let seen = snapshot(folder.path());
    assert!(seen.findings.iter().all(|it| it.kind != FindingKind::OutOfMemory), "{:?}", seen.findings);
}

#[test]
fn bulk_free_frees_everything_once() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("n150", folder.path(), "1, 1");
    puppet.run("a = [tiles(d, 12) for _ in range(7)]");
    puppet.run("ttnn._ttnn.device.deallocate_buffers(d)");
    let seen = snapshot(folder.path());
    assert_eq!(super::held(process(&seen, puppet.pid())), (0, 0));
    puppet.run("b = tiles(d, 12)");
    expect_no_drift(folder.path());
    // A stale tensor frees the buffer that is at its address now: the runtime does so, and the record follows.
    puppet.run("ttnn.deallocate(a[0])");
    expect_no_drift(folder.path());
}

/// Tracks a wheel with slow dispatch, in which older ones work without hardware.
fn track_slow_dispatch(version: &str, missing: &[&str]) {
    let folder = memory_folder();
    let python = python(version);
    let script = here().join("puppet.py");
    let mut command =
        tracked_command("n150", folder.path(), &[python.to_str().unwrap(), script.to_str().unwrap()]);
    command.env("TT_METAL_SLOW_DISPATCH_MODE", "1");
    let mut puppet = Puppet::start(command);
    puppet.run("import ttnn");
    puppet.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1), l1_small_size=8192)");
    puppet.run("a = [tiles(d, n, m) for n in (1, 2, 13, 50) for m in (ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG)]");
    puppet.run("a.append(ttnn.empty((32, 128), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d, memory_config=across(4)))");
    let seen = snapshot(folder.path());
    let tracker = process(&seen, puppet.pid()).tracker.as_ref().unwrap();
    assert_eq!(tracker.runtime.as_deref(), Some(format!("ttnn {version}").as_str()));
    assert_eq!(tracker.missing_hooks, missing, "of {}", tracker.hooks);
    println!("{}", expect_no_drift(folder.path()));
    puppet.run("[ttnn.deallocate(it) for it in a[::2]]");
    expect_no_drift(folder.path());
    puppet.run("ttnn.close_mesh_device(d)");
}

#[test]
fn oldest_wheel_that_opens_a_device_is_tracked() {
    track_slow_dispatch("0.67.4", &[]);
}

#[test]
fn newest_wheel_is_tracked_in_slow_dispatch() {
    track_slow_dispatch(TTNN, &[]);
}
