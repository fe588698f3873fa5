//! Programs and their memory in L1, compared with what stock ttnn itself says of them.

use super::compare::{expect_no_differences, sorted};
use super::intervals::{Interval, classes, cores, merged, subtract};
use super::stage::{OLDER, Stage};
use super::*;
use serde::Deserialize;
use std::collections::BTreeSet;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Core, CoreClass};
use ttmem_core::words::Space;
use ttmem_testkit::memory_folder;

/// Runs every op, each with nothing else cached, and compares its programs.
fn compare_every_op(board: &str, version: &str) {
    let mut stage = Stage::new(board, version, "1, 1");
    let ops: Vec<String> = stage.query("list(ops.OPS)");
    assert!(ops.len() >= 70);
    stage.expect_equal_programs(&ops);
}

#[test]
fn programs_of_every_op_match_on_wormhole() {
    compare_every_op("n150", TTNN);
}

#[test]
fn programs_of_every_op_match_on_blackhole() {
    compare_every_op("p150", TTNN);
}

#[test]
fn programs_of_every_op_match_in_the_older_runtime() {
    compare_every_op("n150", OLDER);
}

#[test]
fn programs_of_ops_across_chips_match() {
    let mut stage = Stage::new("p150x8", TTNN, "1, 8, fabric=True");
    let mut ops: Vec<String> = stage.query("list(ops.MESH_OPS)");
    // Some ops with one program for all chips, one of each kind; `rand` has a program for each chip.
    let kinds =
        "add add_block_sharded matmul sum_w softmax layer_norm_sharded conv2d_3x3 reshape scatter rand";
    ops.extend(kinds.split(' ').map(str::to_owned));
    stage.expect_equal_programs(&ops);
    // A collective has a separate program for each chip.
    let report = stage.run_op("all_gather");
    let seen = stage.snapshot();
    let mut chips: Vec<Vec<u32>> = stage.programs(&seen).values().map(|it| sorted(&it.indexes)).collect();
    chips.sort();
    assert_eq!(chips, (0..8).map(|n| vec![n]).collect::<Vec<_>>(), "{:#?}", report.programs);
}

/// Some ops of every kind: with and without compute kernels, with several programs, with several groups of cores.
const SOME: &str = "add relu matmul matmul_mcast_2d matmul_sharded_1d sum_w softmax conv2d_3x3 max_pool2d concat argmax rand";

/// The bytes of each program's kernels and arguments, and on how many processors it has kernels.
fn kernel_bytes(nops: &str) -> Vec<(String, u64, u64)> {
    // The lab has separate caches for short and long kernels, unless the variable is set.
    let kernels = lab().join(TTNN).join("kernels").join(nops);
    let environment = [("TTMEM_LAB_KERNEL_NOPS", nops), ("TT_METAL_CACHE", kernels.to_str().unwrap())];
    let mut stage = Stage::start_with("n150", TTNN, "1, 1", &environment);
    let mut all = Vec::new();
    for op in SOME.split(' ') {
        let report = stage.run_op(op);
        let seen = stage.snapshot();
        let found = stage.programs(&seen);
        for known in &report.programs {
            let program = found.get(&known.id).unwrap_or_else(|| panic!("{op}: {}", known.id));
            assert_eq!(program.kernel_bytes, known.config_bytes, "{op}, program {}", program.id);
            all.push((format!("{op} {}", program.id), program.kernel_bytes, known.processors));
        }
    }
    all
}

#[test]
fn longer_kernels_occupy_exactly_their_extra_length() {
    let (short, long) = (kernel_bytes("0"), kernel_bytes("64"));
    assert_eq!(short.len(), long.len());
    assert!(short.len() >= 15);
    for ((name, before, processors), (_, after, _)) in short.iter().zip(&long) {
        // An instruction has four bytes, and each processor's kernel has 64 more of them.
        assert_eq!(after - before, 4 * 64 * processors, "{name}: from {before} to {after}");
    }
}

#[test]
fn only_the_last_of_many_cached_programs_is_resident() {
    // A private `/dev/shm`, so that tt-metal's own counters are this process's; the folder of segments stays visible.
    let folder = memory_folder();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /mnt && mount -t tmpfs none /dev/shm && exec \"$@\"").arg(folder.path());
    command
        .arg(exe())
        .args(["run", "--exec", "--shm-dir", "/mnt", "--"])
        .arg(python(TTNN))
        .arg(here().join("puppet.py"));
    let (name, value) = board_variable("n150");
    command.env(name, value).env("TT_METAL_LOGGER_LEVEL", "FATAL");
    let mut stage = Stage::start(command, folder, "1, 1");
    stage.puppet.run("p.run_many(d, 200)");
    assert!(stage.puppet.number("d.num_program_cache_entries()") >= 200);
    stage.record_dispatches();
    assert!(stage.live.len() >= 200);
    let seen = stage.snapshot();
    let mut differences = Vec::new();
    stage.compare(&seen, "200 programs", &mut differences);
    expect_no_differences(&differences);
    let resident = |seen: &Snapshot| {
        let usage = &seen.devices[0].usage;
        [&usage.cb, &usage.dfb].map(|it| it.as_ref().unwrap().resident_bytes.unwrap())
    };
    let [cb, dfb] = resident(&seen);
    let region = stage.puppet.number("region('cb')");
    println!("CBs: tt-metal's own counters have {region}, ttmem {cb} and {dfb} of DFBs");
    // A program that is used again is resident again, and nothing else changes.
    stage.puppet.run("p.run_many(d, 1)");
    stage.record_dispatches();
    let again = stage.snapshot();
    stage.compare(&again, "the first again", &mut differences);
    expect_no_differences(&differences);
    assert!(stage.live.len() >= 200 && resident(&again) != [cb, dfb]);
    // The counters do not include what is resident, nor dataflow buffers, nor the end of programs: they keep the peak of
    // circular buffers.
    let [now, _] = resident(&again);
    println!("then: tt-metal's own counters have {region}, ttmem {now}");
    assert!(region > cb && region != now, "tt-metal's own counters would be right");
    stage.puppet.run("d.clear_program_cache()");
    expect_no_program_memory(&stage, "cleared");
    assert_eq!(stage.puppet.number("region('cb')"), region, "tt-metal's own counters would notice");
}

/// Checks that no program memory is shown, while the process lives.
fn expect_no_program_memory(stage: &Stage, what: &str) {
    let seen = stage.snapshot();
    assert!(stage.programs(&seen).is_empty(), "{what}: {:#?}", stage.process(&seen).programs);
    for device in &seen.devices {
        let usage = &device.usage;
        for (name, usage) in
            [("cb", &usage.cb), ("dfb", &usage.dfb), ("scratch", &usage.scratch), ("kernel", &usage.kernel)]
        {
            let left = usage.as_ref().map_or((0, 0), |it| (it.registered_bytes, it.used_bytes()));
            assert_eq!(left, (0, 0), "{what}: {name} on chip {}", device.index);
        }
        for core in device.cores.iter().flatten() {
            let kept = classes(core, &[CoreClass::Cb, CoreClass::Dfb, CoreClass::Scratch]);
            assert_eq!(kept, [], "{what}: core {}, {}", core.room.x, core.room.y);
        }
    }
}

/// Programs with all kinds of memory: circular and dataflow buffers, scratchpads, views.
const MIX: &str =
    "[ops.OPS[name](d) for name in ('add', 'matmul', 'sum_w', 'conv2d_3x3', 'add_block_sharded')]";

#[test]
fn no_memory_is_left_of_destroyed_programs() {
    for (board, version, open) in
        [("n150", TTNN, "1, 1"), ("n150", OLDER, "1, 1"), ("p150x8", TTNN, "1, 8, fabric=True")]
    {
        let mut stage = Stage::new(board, version, open);
        for action in [
            "d.clear_program_cache()",
            "d.disable_and_clear_program_cache()",
            // The Python object and the programs still exist, but are of no use.
            "ttnn.close_mesh_device(d)",
        ] {
            stage.puppet.run("d.enable_program_cache()");
            // The results are destroyed at once, so that the device can be closed.
            stage.puppet.run(&format!("len({MIX})"));
            stage.clear();
            stage.record_dispatches();
            let what = format!("{board}, {version}: {action}");
            let mut differences = Vec::new();
            stage.compare(&stage.snapshot(), &what, &mut differences);
            expect_no_differences(&differences);
            assert!(stage.live.len() >= 5, "{what}: {:?}", stage.live.keys());
            stage.puppet.run(action);
            expect_no_program_memory(&stage, &what);
            if action.contains("disable") {
                // Without a cache programs do not outlive their op.
                stage.puppet.run(&format!("len({MIX}), len(p.take_dispatched())"));
                expect_no_program_memory(&stage, &format!("{what}, then ops"));
            }
        }
    }
}

#[test]
fn program_is_only_on_the_chips_of_its_mesh() {
    let meshes = "1, 4, physical_device_ids=[0, 1, 2, 3]";
    let mut stage = Stage::new("p150x8", TTNN, meshes);
    stage.puppet.run("e = p.open_mesh(1, 4, physical_device_ids=[4, 5, 6, 7])");
    stage.puppet.run("a = [ops.OPS[name](d) for name in ('add', 'softmax')]; b = ops.OPS['relu'](e)");
    stage.record_dispatches();
    let mut differences = Vec::new();
    stage.compare(&stage.snapshot(), "two meshes", &mut differences);
    expect_no_differences(&differences);
    let chips = |stage: &Stage| -> Vec<Vec<u32>> {
        stage.programs(&stage.snapshot()).values().map(|it| sorted(&it.indexes)).collect()
    };
    assert_eq!(chips(&stage), [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
    // Closing a mesh removes its programs only.
    stage.puppet.run("del a; ttnn.close_mesh_device(d)");
    assert_eq!(chips(&stage), [vec![4, 5, 6, 7]]);
}

#[test]
fn program_is_only_on_the_chips_of_its_submesh() {
    let mut stage = Stage::new("p150x8", TTNN, "1, 8");
    stage
        .puppet
        .run("left, right = [p.register_mesh(it) for it in d.create_submeshes(ttnn.MeshShape(1, 4))]");
    stage.puppet.run("one = p.register_mesh(right.create_submesh(ttnn.MeshShape(1, 1)))");
    stage.puppet.run("a = ops.OPS['add'](left), ops.OPS['softmax'](right), ops.OPS['sum_w'](one)");
    stage.record_dispatches();
    let mut differences = Vec::new();
    stage.compare(&stage.snapshot(), "submeshes", &mut differences);
    expect_no_differences(&differences);
    // Then one on all chips, which replaces the earlier ones.
    stage.puppet.run("b = ops.OPS['concat'](d)");
    stage.record_dispatches();
    stage.compare(&stage.snapshot(), "the whole mesh after its parts", &mut differences);
    expect_no_differences(&differences);
    let seen = stage.snapshot();
    let chips: Vec<usize> = stage.programs(&seen).values().map(|it| it.indexes.len()).collect();
    assert_eq!(chips, [4, 4, 1, 1, 8]);
}

/// A core's L1 by the allocator's own statistics: allocated intervals and sizes.
#[derive(Debug, Deserialize)]
struct Bank {
    taken: Vec<Interval>,
    bytes: u64,
    allocated: u64,
    banks: u64,
}

#[test]
fn map_of_every_core_is_complete_and_exact() {
    for (board, open, ops) in [
        ("n150", "1, 1", "'add', 'matmul', 'sum_w', 'conv2d_3x3'"),
        // Ops that work on this board; see ops.py.
        ("t3k", "2, 4", "'add', 'softmax', 'sum_w'"),
        ("p150", "1, 1", "'add', 'matmul', 'sum_w', 'conv2d_3x3'"),
        ("p150x8", "1, 8", "'add', 'matmul', 'sum_w', 'conv2d_3x3'"),
    ] {
        let mut stage = Stage::new(board, TTNN, open);
        stage
            .puppet
            .run(&format!("held = p.allocate_mixture(d); a = [ops.OPS[name](d) for name in ({ops})]"));
        stage.record_dispatches();
        let seen = stage.snapshot();
        let mut differences = Vec::new();
        stage.compare(&seen, board, &mut differences);
        expect_no_differences(&differences);
        let [l1, small]: [Bank; 2] =
            ["L1", "L1_SMALL"].map(|space| stage.query(&format!("p.read_bank(d, '{space}')")));
        assert!(l1.allocated > 0 && small.allocated > 0 && !l1.taken.is_empty(), "{board}: {l1:?} {small:?}");
        let sharded: Vec<(u64, u64, Vec<[u64; 4]>)> = stage.query("p.shards_of(held)");
        assert!(!sharded.is_empty());
        for device in &seen.devices {
            let size = device.capacity.unwrap().l1_bytes_per_core;
            let cores_of = device.cores.as_ref().unwrap();
            assert_eq!(cores_of.len() as u64, l1.banks, "{board}, chip {}", device.index);
            let distinct: BTreeSet<(u8, u8)> = cores_of.iter().map(|it| (it.room.x, it.room.y)).collect();
            assert_eq!(distinct.len(), cores_of.len(), "{board}, chip {}: each once", device.index);
            for core in cores_of {
                let what = format!("{board}, chip {}, core {}, {}", device.index, core.room.x, core.room.y);
                let mut end = 0;
                for interval in core.intervals.iter() {
                    assert_eq!(interval.start, end, "{what}: {:?}", core.intervals);
                    assert!(interval.bytes > 0, "{what}: {:?}", core.intervals);
                    end += interval.bytes;
                }
                assert_eq!(end, size, "{what}: {:?}", core.intervals);
                // The allocator's own list of blocks, which is the same for every core (lock-step). Addresses are relative to
                // the begin of its space, which ends where `L1_SMALL` begins.
                let top = size - small.bytes;
                let from = top - l1.bytes;
                let moved =
                    |bank: &Bank, by| merged(bank.taken.iter().map(|it| (it.0 + by, it.1 + by)).collect());
                let within = |it: &Interval, (begin, end): Interval| it.0.max(begin) < it.1.min(end);
                let taken = classes(core, &[CoreClass::Buffer, CoreClass::L1Small, CoreClass::Lockstep]);
                let free = classes(core, &[CoreClass::L1SmallFree]);
                // A range that is reserved by lock-step and used by a program is shown as the program's.
                let programs = classes(core, &[CoreClass::Cb, CoreClass::Dfb, CoreClass::Scratch]);
                let taken = merged([taken, programs.clone()].concat());
                let expected = merged([moved(&l1, from), programs, moved(&small, top)].concat());
                assert_eq!(taken, expected, "{what}: {:?}", core.intervals);
                assert_eq!(
                    free,
                    subtract(&[(top, size)], &moved(&small, top)),
                    "{what}: {:?}",
                    core.intervals
                );
                // A shard is on its own cores; on others its range is reserved by lock-step.
                let xy = (u64::from(core.room.x), u64::from(core.room.y));
                let lockstep = classes(core, &[CoreClass::Lockstep]);
                for (address, bytes, rectangles) in &sharded {
                    let shard = (*address, address + bytes);
                    let is_reserved = lockstep.iter().any(|it| within(it, shard));
                    let has_shard = cores(rectangles).any(|it| it == xy);
                    assert_eq!(is_reserved, !has_shard, "{what}: shard {shard:?}: {:?}", core.intervals);
                }
                let lowest = lowest_buffer(core);
                assert_eq!(lowest, Some(core.room.lowest_buffer), "{what}: {:?}", core.intervals);
                let gap = core.room.lowest_buffer - core.room.program_end;
                assert_eq!(core.room.free_gap_bytes, gap, "{what}");
            }
        }
        let (_, allocated) = held(stage.process(&seen));
        assert_eq!(allocated, l1.allocated * l1.banks, "{board}");
    }
}

fn lowest_buffer(core: &Core) -> Option<u64> {
    classes(core, &[CoreClass::Buffer, CoreClass::Lockstep]).first().map(|it| it.0)
}

#[test]
fn view_has_the_address_of_its_tensor() {
    for (version, op, space) in [
        (TTNN, "ttnn.add(a, b, memory_config=m)", Space::Cb),
        (OLDER, "ttnn.add(a, b, memory_config=m)", Space::Cb),
        (TTNN, "ttnn.relu(a, memory_config=m)", Space::Dfb),
    ] {
        let mut stage = Stage::new("n150", version, "1, 1");
        stage
            .puppet
            .run("m = ops.sharded((256, 64), 4, 2, ops.H); a, b = (ops.z(d, 256, 64, mem=m) for _ in 'ab')");
        stage.puppet.run("m = ops.sharded((256, 64), 4, 2, ops.H); keep = []");
        // First as a new program, then from the cache with other tensors.
        for round in ["new", "cached"] {
            let tensors = if space == Space::Cb { "a, b, c" } else { "a, c" };
            stage.puppet.run("a, b = (ops.z(d, 256, 64, mem=m) for _ in 'ab')");
            stage.puppet.run(&format!("c = {op}; keep += [a, b, c]"));
            let addresses: Vec<u64> =
                stage.query(&format!("sorted(it.buffer_address() for it in ({tensors}))"));
            let seen = stage.snapshot();
            let programs = stage.programs(&seen);
            assert_eq!(programs.len(), 1, "{version}: {op}, {round}");
            let views = programs.values().flat_map(|it| &it.placements).filter(|it| it.view);
            let mut found: Vec<(Space, u64)> = views.map(|it| (it.space, it.address.unwrap())).collect();
            found.sort_unstable();
            let expected: Vec<(Space, u64)> = addresses.iter().map(|it| (space, *it)).collect();
            assert_eq!(found, expected, "{version}: {op}, {round}");
            // The memory is counted for the tensor, not for the view.
            let usage = &seen.devices[0].usage;
            for usage in [&usage.cb, &usage.dfb].into_iter().flatten() {
                assert_eq!((usage.registered_bytes, usage.resident_bytes), (0, Some(0)), "{version}: {op}");
            }
        }
    }
}

#[test]
fn program_that_clashes_with_a_tensor_is_not_dispatched() {
    for version in [TTNN, OLDER] {
        let mut stage = Stage::new("n150", version, "1, 1");
        stage.puppet.run("a = ops.z(d, 64, 64); b = ttnn.add(a, a)");
        stage.record_dispatches();
        stage.puppet.run("big = p.fill_l1(d, 8192)");
        // A cached program, a new one, and in the newer wheel one with dataflow buffers.
        for op in ["ttnn.add(a, a)", "ttnn.where(a, a, a)", "ttnn.softmax(a, dim=-1)"] {
            let why = stage.puppet.run(&format!("p.refusal_of(lambda: {op})"));
            assert!(why.as_str().unwrap().contains("clash"), "{version}: {op}: {why}");
        }
        stage.record_dispatches();
        let mut differences = Vec::new();
        stage.compare(&stage.snapshot(), &format!("{version}: refused"), &mut differences);
        expect_no_differences(&differences);
        // When there is free memory, they are dispatched.
        stage
            .puppet
            .run("ttnn.deallocate(big); c = ttnn.where(a, a, a), ttnn.softmax(a, dim=-1), ttnn.add(a, a)");
        stage.record_dispatches();
        stage.compare(&stage.snapshot(), &format!("{version}: with free memory"), &mut differences);
        expect_no_differences(&differences);
        assert_eq!(stage.live.len(), 3, "{version}");
    }
}
