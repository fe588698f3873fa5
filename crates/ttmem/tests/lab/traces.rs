//! Traces and sub-device managers, which work on mock chips with the help of queue.cpp.

use super::compare::expect_no_differences;
use super::stage::{OLDER, ProgramInfo, Stage};
use super::*;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::FindingKind;

fn trace_from_capture_to_release(version: &str, board: &str, open: &str, chips: u32) {
    let tracking = [("TT_METAL_TRACE_ALLOC_TRACKING", "1")];
    let mut stage =
        Stage::start_with(board, version, &format!("{open}, trace_region_size=1 << 20"), &tracking);
    let what = format!("{board}, {version}");
    let mut differences = Vec::new();
    // Captured ops must be cached, so they run once; then another op, which is resident.
    stage.puppet.run("a = ops.z(d, 64, 64); keep = [ttnn.add(a, a), ttnn.softmax(a, dim=-1), ttnn.typecast(a, ttnn.float32)]");
    stage.record_dispatches();
    stage.puppet.run("t = ttnn.begin_trace_capture(d, cq_id=0)");
    stage.puppet.run("keep += [ttnn.softmax(a, dim=-1), ttnn.add(a, a), ttnn.softmax(a, dim=-1)]");
    stage.puppet.run("ttnn.end_trace_capture(d, t, cq_id=0)");
    let captured: Vec<ProgramInfo> = stage.query("p.dispatched_programs()");
    assert_eq!(captured.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), ["captured"; 3]);
    // No captured program has run: the resident ones are unchanged.
    let seen = stage.snapshot();
    stage.compare(&seen, &format!("{what}: captured"), &mut differences);
    expect_no_differences(&differences);
    let trace = stage.only_trace();
    assert_eq!(trace.id, captured[0].trace, "{what}");
    assert_eq!(
        (trace.dispatches, trace.replays, trace.devices.len() as u32),
        (3, 0, chips),
        "{what}: {trace:?}"
    );
    assert_eq!((trace.endangered_count, trace.endangered_bytes), (0, 0), "{what}: {trace:?}");
    assert!(overwrite_findings(&seen).is_empty(), "{what}: {:#?}", seen.findings);
    // After the replay its programs are resident.
    stage.puppet.run("ttnn.execute_trace(d, t, cq_id=0, blocking=False)");
    let replayed: Vec<ProgramInfo> = stage.query("p.dispatched_programs()");
    assert_eq!(
        replayed.iter().map(|it| (it.kind.as_str(), it.trace)).collect::<Vec<_>>(),
        [("replayed", trace.id)]
    );
    stage.apply_dispatches(&captured);
    // How often a replay dispatches a program that it has several times is not specified.
    stage.dispatches.clear();
    let seen = stage.snapshot();
    stage.compare(&seen, &format!("{what}: replayed"), &mut differences);
    expect_no_differences(&differences);
    assert_eq!(stage.process(&seen).traces[0].replays, 1, "{what}");
    // Buffers that are allocated now may be overwritten by the next replay.
    stage.puppet.run("x = tiles(d, 5); y = tiles(d, 7, ttnn.L1_MEMORY_CONFIG)");
    let seen = stage.snapshot();
    let trace = stage.only_trace();
    assert_eq!((trace.endangered_count, trace.endangered_bytes), (2, 12 * 2048), "{what}: {trace:?}");
    let texts = overwrite_findings(&seen);
    assert!(!texts.is_empty() && texts.iter().all(|it| it.contains("trace")), "{what}: {:#?}", seen.findings);
    stage.expect_endangered(version, &["t"], &[2]);
    stage.puppet.run("ttnn.deallocate(x)");
    stage.expect_endangered(version, &["t"], &[1]);
    assert_eq!(stage.only_trace().endangered_bytes, 7 * 2048, "{what}");
    stage.puppet.run("ttnn.release_trace(d, t)");
    let seen = stage.snapshot();
    assert!(stage.process(&seen).traces.is_empty(), "{what}: released");
    assert!(overwrite_findings(&seen).is_empty(), "{what}: {:#?}", seen.findings);
    // Each of two traces has its own count. Buffers that a capture allocates are endangered by the other trace, except the
    // trace itself, which is in a space of its own.
    stage.puppet.run("t = ttnn.begin_trace_capture(d, cq_id=0); keep.append(ttnn.add(a, a)); ttnn.end_trace_capture(d, t, cq_id=0)");
    stage.puppet.run("z = tiles(d, 3)");
    stage.puppet.run("u = ttnn.begin_trace_capture(d, cq_id=0); keep.append(ttnn.add(a, a)); ttnn.end_trace_capture(d, u, cq_id=0)");
    stage.expect_endangered(version, &["t", "u"], &[2, 0]);
    stage.puppet.run("w = tiles(d, 2)");
    stage.expect_endangered(version, &["t", "u"], &[3, 1]);
    stage.puppet.run("ttnn.release_trace(d, t)");
    stage.expect_endangered(version, &["u"], &[1]);
    // A closed device has no traces.
    stage.puppet.run("ttnn.close_mesh_device(d)");
    let seen = stage.snapshot();
    assert!(stage.process(&seen).traces.is_empty(), "{what}: closed");
    assert!(overwrite_findings(&seen).is_empty(), "{what}: {:#?}", seen.findings);
}

/// Texts of findings about buffers that a trace may overwrite.
fn overwrite_findings(seen: &Snapshot) -> Vec<&str> {
    let of = seen.findings.iter().filter(|it| it.kind == FindingKind::TraceOverwrite);
    of.map(|it| it.text.as_str()).collect()
}

#[test]
fn trace_is_tracked_from_capture_to_release() {
    trace_from_capture_to_release(TTNN, "n150", "1, 1", 1);
    trace_from_capture_to_release(TTNN, "p150x8", "1, 8", 8);
}

#[test]
fn trace_of_the_older_runtime_is_tracked() {
    trace_from_capture_to_release(OLDER, "n150", "1, 1", 1);
}

#[test]
fn trace_of_single_chip_programs_is_tracked_per_chip() {
    let mut stage = Stage::new("p150x8", TTNN, "1, 8, fabric=True, trace_region_size=1 << 20");
    // One op on every chip, one with a program for each chip, and one on few cores of every chip.
    stage.puppet.run("a = ops.z(d, 1, 1, 32, 64); keep = []");
    let work = "keep += [ttnn.add(a, a), ttnn.all_gather(a, dim=3, num_links=1, topology=ttnn.Topology.Linear), ttnn.softmax(a, dim=-1)]";
    stage.puppet.run(work);
    stage.record_dispatches();
    stage.puppet.run("keep.append(ttnn.matmul(ops.z(d, 256, 256), ops.z(d, 256, 256)))");
    stage.record_dispatches();
    stage.puppet.run(&format!(
        "t = ttnn.begin_trace_capture(d, cq_id=0); {work}; ttnn.end_trace_capture(d, t, cq_id=0)"
    ));
    let captured: Vec<ProgramInfo> = stage.query("p.dispatched_programs()");
    assert!(captured.len() >= 10 && captured.iter().all(|it| it.kind == "captured"), "{captured:#?}");
    let mut differences = Vec::new();
    stage.compare(&stage.snapshot(), "captured", &mut differences);
    expect_no_differences(&differences);
    for replay in ["replayed", "replayed again"] {
        stage.puppet.run("ttnn.execute_trace(d, t, cq_id=0, blocking=False)");
        let replayed: Vec<ProgramInfo> = stage.query("p.dispatched_programs()");
        assert_eq!(replayed.len(), 1);
        stage.apply_dispatches(&captured);
        stage.dispatches.clear();
        stage.compare(&stage.snapshot(), replay, &mut differences);
        expect_no_differences(&differences);
        // Another op in between.
        stage.puppet.run("keep.append(ttnn.matmul(ops.z(d, 256, 256), ops.z(d, 256, 256)))");
        stage.record_dispatches();
        stage.dispatches.clear();
        stage.compare(&stage.snapshot(), "another op", &mut differences);
        expect_no_differences(&differences);
    }
}

#[test]
fn programs_of_a_sub_device_are_on_its_cores() {
    let mut stage = Stage::new("n150", TTNN, "1, 1");
    stage.puppet.run("a = ops.OPS['add'](d)");
    stage.record_dispatches();
    stage.puppet.run("m = d.create_sub_device_manager([ttnn.SubDevice([ops.grid(4, 4)])], 0)");
    stage.puppet.run("d.load_sub_device_manager(m); b = ops.OPS['add'](d)");
    stage.record_dispatches();
    let seen = stage.snapshot();
    let mut differences = Vec::new();
    stage.compare(&seen, "with a manager", &mut differences);
    expect_no_differences(&differences);
    let counts: Vec<(u32, u32)> =
        stage.programs(&seen).values().map(|it| (it.core_count, it.resident_cores)).collect();
    assert_eq!(counts, [(64, 48), (16, 16)]);
    stage.puppet.run("d.clear_loaded_sub_device_manager(); d.remove_sub_device_manager(m)");
    stage.puppet.run("c = ops.OPS['add'](d)");
    stage.record_dispatches();
    stage.compare(&stage.snapshot(), "without it", &mut differences);
    expect_no_differences(&differences);
}
