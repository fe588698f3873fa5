//! Traces and sub-device managers, which run on chips that do not exist with the help of queue.cpp.

use super::stage::{Known, OLDER, Stage, none_of};
use super::*;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::FindingKind;

fn traced(version: &str, board: &str, open: &str, chips: u32) {
    let tracking = [("TT_METAL_TRACE_ALLOC_TRACKING", "1")];
    let mut stage = Stage::with(board, version, &format!("{open}, trace_region_size=1 << 20"), &tracking);
    let what = format!("{board}, {version}");
    let mut faults = Vec::new();
    // Captured ops must be cached, so they run once; then something else does, to be resident.
    stage.puppet.does("a = ops.z(d, 64, 64); keep = [ttnn.add(a, a), ttnn.softmax(a, dim=-1), ttnn.typecast(a, ttnn.float32)]");
    stage.watches();
    stage.puppet.does("t = ttnn.begin_trace_capture(d, cq_id=0)");
    stage.puppet.does("keep += [ttnn.softmax(a, dim=-1), ttnn.add(a, a), ttnn.softmax(a, dim=-1)]");
    stage.puppet.does("ttnn.end_trace_capture(d, t, cq_id=0)");
    let captured: Vec<Known> = stage.asks("p.listed()");
    assert_eq!(captured.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), ["captured"; 3]);
    // Nothing of it has run: what was there is there.
    let seen = stage.look();
    stage.compare(&seen, &format!("{what}: captured"), &mut faults);
    none_of(&faults);
    let it = stage.trace();
    assert_eq!(it.id, captured[0].trace, "{what}");
    assert_eq!((it.dispatches, it.replays, it.devices.len() as u32), (3, 0, chips), "{what}: {it:?}");
    assert_eq!((it.endangered_count, it.endangered_bytes), (0, 0), "{what}: {it:?}");
    assert!(dangers(&seen).is_empty(), "{what}: {:#?}", seen.findings);
    // Replayed, its programs are what is resident, the last one last.
    stage.puppet.does("ttnn.execute_trace(d, t, cq_id=0, blocking=False)");
    let replayed: Vec<Known> = stage.asks("p.listed()");
    assert_eq!(
        replayed.iter().map(|it| (it.kind.as_str(), it.trace)).collect::<Vec<_>>(),
        [("replayed", it.id)]
    );
    stage.dispatched(&captured);
    // How often a replay dispatches a program that it holds several times is nobody's business.
    stage.dispatches.clear();
    let seen = stage.look();
    stage.compare(&seen, &format!("{what}: replayed"), &mut faults);
    none_of(&faults);
    assert_eq!(stage.process(&seen).traces[0].replays, 1, "{what}");
    // What is allocated now may be written over by the next replay.
    stage.puppet.does("x = tiles(d, 5); y = tiles(d, 7, ttnn.L1_MEMORY_CONFIG)");
    let seen = stage.look();
    let it = stage.trace();
    assert_eq!((it.endangered_count, it.endangered_bytes), (2, 12 * 2048), "{what}: {it:?}");
    let told = dangers(&seen);
    assert!(!told.is_empty() && told.iter().all(|it| it.contains("trace")), "{what}: {:#?}", seen.findings);
    stage.endangered(version, &["t"], &[2]);
    stage.puppet.does("ttnn.deallocate(x)");
    stage.endangered(version, &["t"], &[1]);
    assert_eq!(stage.trace().endangered_bytes, 7 * 2048, "{what}");
    stage.puppet.does("ttnn.release_trace(d, t)");
    let seen = stage.look();
    assert!(stage.process(&seen).traces.is_empty(), "{what}: released");
    assert!(dangers(&seen).is_empty(), "{what}: {:#?}", seen.findings);
    // Of two, each has its own. What a capture allocates endangers the other, but for the trace itself, which is where no
    // tensor is.
    stage.puppet.does("t = ttnn.begin_trace_capture(d, cq_id=0); keep.append(ttnn.add(a, a)); ttnn.end_trace_capture(d, t, cq_id=0)");
    stage.puppet.does("z = tiles(d, 3)");
    stage.puppet.does("u = ttnn.begin_trace_capture(d, cq_id=0); keep.append(ttnn.add(a, a)); ttnn.end_trace_capture(d, u, cq_id=0)");
    stage.endangered(version, &["t", "u"], &[2, 0]);
    stage.puppet.does("w = tiles(d, 2)");
    stage.endangered(version, &["t", "u"], &[3, 1]);
    stage.puppet.does("ttnn.release_trace(d, t)");
    stage.endangered(version, &["u"], &[1]);
    // Closed, the device has none.
    stage.puppet.does("ttnn.close_mesh_device(d)");
    let seen = stage.look();
    assert!(stage.process(&seen).traces.is_empty(), "{what}: closed");
    assert!(dangers(&seen).is_empty(), "{what}: {:#?}", seen.findings);
}

/// What is said of buffers that a trace may write over.
fn dangers(seen: &Snapshot) -> Vec<&str> {
    let of = seen.findings.iter().filter(|it| it.kind == FindingKind::TraceOverwrite);
    of.map(|it| it.text.as_str()).collect()
}

#[test]
fn a_trace_is_followed_from_capture_to_release() {
    traced(TTNN, "n150", "1, 1", 1);
    traced(TTNN, "p150x8", "1, 8", 8);
}

#[test]
fn a_trace_of_the_older_runtime_is_followed_from_capture_to_release() {
    traced(OLDER, "n150", "1, 1", 1);
}

#[test]
fn a_trace_of_programs_for_single_chips_leaves_each_on_its_chip() {
    let mut stage = Stage::new("p150x8", TTNN, "1, 8, fabric=True, trace_region_size=1 << 20");
    // Of one op on every chip, one that has a program for each, and one on few cores of every chip.
    stage.puppet.does("a = ops.z(d, 1, 1, 32, 64); keep = []");
    let work = "keep += [ttnn.add(a, a), ttnn.all_gather(a, dim=3, num_links=1, topology=ttnn.Topology.Linear), ttnn.softmax(a, dim=-1)]";
    stage.puppet.does(work);
    stage.watches();
    stage.puppet.does("keep.append(ttnn.matmul(ops.z(d, 256, 256), ops.z(d, 256, 256)))");
    stage.watches();
    stage.puppet.does(&format!(
        "t = ttnn.begin_trace_capture(d, cq_id=0); {work}; ttnn.end_trace_capture(d, t, cq_id=0)"
    ));
    let captured: Vec<Known> = stage.asks("p.listed()");
    assert!(captured.len() >= 10 && captured.iter().all(|it| it.kind == "captured"), "{captured:#?}");
    let mut faults = Vec::new();
    stage.compare(&stage.look(), "captured", &mut faults);
    none_of(&faults);
    for replay in ["replayed", "replayed again"] {
        stage.puppet.does("ttnn.execute_trace(d, t, cq_id=0, blocking=False)");
        let replayed: Vec<Known> = stage.asks("p.listed()");
        assert_eq!(replayed.len(), 1);
        stage.dispatched(&captured);
        stage.dispatches.clear();
        stage.compare(&stage.look(), replay, &mut faults);
        none_of(&faults);
        // Something else in between.
        stage.puppet.does("keep.append(ttnn.matmul(ops.z(d, 256, 256), ops.z(d, 256, 256)))");
        stage.watches();
        stage.dispatches.clear();
        stage.compare(&stage.look(), "something else", &mut faults);
        none_of(&faults);
    }
}

#[test]
fn programs_of_a_sub_device_are_on_its_cores() {
    let mut stage = Stage::new("n150", TTNN, "1, 1");
    stage.puppet.does("a = ops.OPS['add'](d)");
    stage.watches();
    stage.puppet.does("m = d.create_sub_device_manager([ttnn.SubDevice([ops.grid(4, 4)])], 0)");
    stage.puppet.does("d.load_sub_device_manager(m); b = ops.OPS['add'](d)");
    stage.watches();
    let seen = stage.look();
    let mut faults = Vec::new();
    stage.compare(&seen, "with a manager", &mut faults);
    none_of(&faults);
    let counts: Vec<(u32, u32)> =
        stage.programs(&seen).values().map(|it| (it.core_count, it.resident_cores)).collect();
    assert_eq!(counts, [(64, 48), (16, 16)]);
    stage.puppet.does("d.clear_loaded_sub_device_manager(); d.remove_sub_device_manager(m)");
    stage.puppet.does("c = ops.OPS['add'](d)");
    stage.watches();
    stage.compare(&stage.look(), "without it", &mut faults);
    none_of(&faults);
}
