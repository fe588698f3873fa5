//! Programs, and what they keep in L1, against what stock ttnn itself says of them.

use super::stage::{OLDER, Stage, Stretch, classes, cores, merged, none_of, sorted, without};
use super::*;
use serde::Deserialize;
use std::collections::BTreeSet;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Core, CoreClass};
use ttmem_core::words::Space;
use ttmem_testkit::memory_folder;

/// Every op of every kind, each with nothing else cached.
fn every_op(board: &str, version: &str) {
    let mut stage = Stage::new(board, version, "1, 1");
    let ops: Vec<String> = stage.asks("list(ops.OPS)");
    assert!(ops.len() >= 70);
    none_of(&stage.runs_and_compares(&ops));
}

#[test]
fn every_op_lies_where_the_runtime_says_on_wormhole() {
    every_op("n150", TTNN);
}

#[test]
fn every_op_lies_where_the_runtime_says_on_blackhole() {
    every_op("p150", TTNN);
}

#[test]
fn every_op_lies_where_the_older_runtime_says() {
    every_op("n150", OLDER);
}

#[test]
fn ops_across_chips_lie_where_the_runtime_says() {
    let mut stage = Stage::new("p150x8", TTNN, "1, 8, fabric=True");
    let mut ops: Vec<String> = stage.asks("list(ops.MESH_OPS)");
    // Some of those that every chip has a program of, one of each kind; `rand` has one program for each chip.
    let kinds =
        "add add_block_sharded matmul sum_w softmax layer_norm_sharded conv2d_3x3 reshape scatter rand";
    ops.extend(kinds.split(' ').map(str::to_owned));
    none_of(&stage.runs_and_compares(&ops));
    // A collective has a program of its own on each chip.
    let told = stage.runs("all_gather");
    let seen = stage.look();
    let mut chips: Vec<Vec<u32>> = stage.programs(&seen).values().map(|it| sorted(&it.indexes)).collect();
    chips.sort();
    assert_eq!(chips, (0..8).map(|n| vec![n]).collect::<Vec<_>>(), "{:#?}", told.programs);
}

/// A few of every kind: with and without compute kernels, several programs, several groups of cores.
const SOME: &str = "add relu matmul matmul_mcast_2d matmul_sharded_1d sum_w softmax conv2d_3x3 max_pool2d concat argmax rand";

/// The bytes of each program's kernels and arguments, and on how many processors it has kernels.
fn kernel_bytes(nops: &str) -> Vec<(String, u64, u64)> {
    // Short ones and long ones are kept apart by the lab, unless somebody says where.
    let kernels = lab().join(TTNN).join("kernels").join(nops);
    let environment = [("TTMEM_LAB_KERNEL_NOPS", nops), ("TT_METAL_CACHE", kernels.to_str().unwrap())];
    let mut stage = Stage::with("n150", TTNN, "1, 1", &environment);
    let mut all = Vec::new();
    for op in SOME.split(' ') {
        let told = stage.runs(op);
        let seen = stage.look();
        let found = stage.programs(&seen);
        for known in &told.programs {
            let it = found.get(&known.id).unwrap_or_else(|| panic!("{op}: {}", known.id));
            assert_eq!(it.kernel_bytes, known.config_bytes, "{op}, program {}", it.id);
            all.push((format!("{op} {}", it.id), it.kernel_bytes, known.processors));
        }
    }
    all
}

#[test]
fn longer_kernels_take_as_much_more_as_they_are_longer() {
    let (short, long) = (kernel_bytes("0"), kernel_bytes("64"));
    assert_eq!(short.len(), long.len());
    assert!(short.len() >= 15);
    for ((name, before, processors), (_, after, _)) in short.iter().zip(&long) {
        // Instructions have four bytes, and each processor's kernel is 64 of them longer.
        assert_eq!(after - before, 4 * 64 * processors, "{name}: from {before} to {after}");
    }
}

#[test]
fn of_many_cached_programs_only_the_last_is_resident() {
    // A `/dev/shm` of its own, so that tt-metal's own counters are this process's; what we read is kept in view.
    let folder = memory_folder();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /mnt && mount -t tmpfs none /dev/shm && exec \"$@\"").arg(folder.path());
    command
        .arg(exe())
        .args(["run", "--shm-dir", "/mnt", "--"])
        .arg(python(TTNN))
        .arg(here().join("puppet.py"));
    let (name, value) = on("n150");
    command.env(name, value).env("TT_METAL_LOGGER_LEVEL", "FATAL");
    let mut stage = Stage::start(command, folder, "1, 1");
    stage.puppet.does("p.many(d, 200)");
    assert!(stage.puppet.number("d.num_program_cache_entries()") >= 200);
    stage.watches();
    assert!(stage.live.len() >= 200);
    let seen = stage.look();
    let mut faults = Vec::new();
    stage.compare(&seen, "200 programs", &mut faults);
    none_of(&faults);
    let resident = |seen: &Snapshot| {
        let usage = &seen.devices[0].usage;
        [&usage.cb, &usage.dfb].map(|it| it.as_ref().unwrap().resident_bytes.unwrap())
    };
    let [cb, dfb] = resident(&seen);
    let region = stage.puppet.number("region('cb')");
    println!("CBs: tt-metal's own counters say {region}, we {cb} and {dfb} of DFBs");
    // One that is used again is resident again, and nothing else changes.
    stage.puppet.does("p.many(d, 1)");
    stage.watches();
    let again = stage.look();
    stage.compare(&again, "the first again", &mut faults);
    none_of(&faults);
    assert!(stage.live.len() >= 200 && resident(&again) != [cb, dfb]);
    // The counters know neither what is resident, nor dataflow buffers, nor that a program is gone: they keep the most that
    // circular buffers ever had.
    let [now, _] = resident(&again);
    println!("then: tt-metal's own counters say {region}, we {now}");
    assert!(region > cb && region != now, "tt-metal's own counters would be right");
    stage.puppet.does("d.clear_program_cache()");
    nothing_left(&stage, "cleared");
    assert_eq!(stage.puppet.number("region('cb')"), region, "tt-metal's own counters would notice");
}

/// Nothing of programs is left, though the process lives.
fn nothing_left(stage: &Stage, what: &str) {
    let seen = stage.look();
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

/// Programs with everything there is: circular and dataflow buffers, scratchpads, views.
const MIX: &str =
    "[ops.OPS[name](d) for name in ('add', 'matmul', 'sum_w', 'conv2d_3x3', 'add_block_sharded')]";

#[test]
fn nothing_is_left_of_programs_that_are_gone() {
    for (board, version, open) in
        [("n150", TTNN, "1, 1"), ("n150", OLDER, "1, 1"), ("p150x8", TTNN, "1, 8, fabric=True")]
    {
        let mut stage = Stage::new(board, version, open);
        for way in [
            "d.clear_program_cache()",
            "d.disable_and_clear_program_cache()",
            // The Python object is still there, and so are the programs, of no use to anybody.
            "ttnn.close_mesh_device(d)",
        ] {
            stage.puppet.does("d.enable_program_cache()");
            // What it returned is gone at once, so that the device can be closed.
            stage.puppet.does(&format!("len({MIX})"));
            stage.forgets();
            stage.watches();
            let what = format!("{board}, {version}: {way}");
            let mut faults = Vec::new();
            stage.compare(&stage.look(), &what, &mut faults);
            none_of(&faults);
            assert!(stage.live.len() >= 5, "{what}: {:?}", stage.live.keys());
            stage.puppet.does(way);
            nothing_left(&stage, &what);
            if way.contains("disable") {
                // Without a cache programs do not outlive their op.
                stage.puppet.does(&format!("len({MIX}), len(p.dispatched())"));
                nothing_left(&stage, &format!("{what}, then ops"));
            }
        }
    }
}

#[test]
fn a_program_is_only_on_the_chips_of_its_mesh() {
    let meshes = "1, 4, physical_device_ids=[0, 1, 2, 3]";
    let mut stage = Stage::new("p150x8", TTNN, meshes);
    stage.puppet.does("e = p.opened(1, 4, physical_device_ids=[4, 5, 6, 7])");
    stage.puppet.does("a = [ops.OPS[name](d) for name in ('add', 'softmax')]; b = ops.OPS['relu'](e)");
    stage.watches();
    let mut faults = Vec::new();
    stage.compare(&stage.look(), "two meshes", &mut faults);
    none_of(&faults);
    let chips = |stage: &Stage| -> Vec<Vec<u32>> {
        stage.programs(&stage.look()).values().map(|it| sorted(&it.indexes)).collect()
    };
    assert_eq!(chips(&stage), [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
    // What is closed takes its programs along, and nobody else's.
    stage.puppet.does("del a; ttnn.close_mesh_device(d)");
    assert_eq!(chips(&stage), [vec![4, 5, 6, 7]]);
}

#[test]
fn a_program_is_only_on_the_chips_of_its_submesh() {
    let mut stage = Stage::new("p150x8", TTNN, "1, 8");
    stage.puppet.does("left, right = [p.known(it) for it in d.create_submeshes(ttnn.MeshShape(1, 4))]");
    stage.puppet.does("one = p.known(right.create_submesh(ttnn.MeshShape(1, 1)))");
    stage.puppet.does("a = ops.OPS['add'](left), ops.OPS['softmax'](right), ops.OPS['sum_w'](one)");
    stage.watches();
    let mut faults = Vec::new();
    stage.compare(&stage.look(), "submeshes", &mut faults);
    none_of(&faults);
    // Then one on all of them, which comes after what each had.
    stage.puppet.does("b = ops.OPS['concat'](d)");
    stage.watches();
    stage.compare(&stage.look(), "the whole mesh after its parts", &mut faults);
    none_of(&faults);
    let seen = stage.look();
    let chips: Vec<usize> = stage.programs(&seen).values().map(|it| it.indexes.len()).collect();
    assert_eq!(chips, [4, 4, 1, 1, 8]);
}

/// A core's L1 as the allocator sees it: which stretches are taken, and where its space ends.
#[derive(Debug, Deserialize)]
struct Bank {
    taken: Vec<Stretch>,
    bytes: u64,
    allocated: u64,
    banks: u64,
}

#[test]
fn the_map_of_every_core_adds_up() {
    for (board, open, ops) in [
        ("n150", "1, 1", "'add', 'matmul', 'sum_w', 'conv2d_3x3'"),
        // What this board can do here; see ops.py.
        ("t3k", "2, 4", "'add', 'softmax', 'sum_w'"),
        ("p150", "1, 1", "'add', 'matmul', 'sum_w', 'conv2d_3x3'"),
        ("p150x8", "1, 8", "'add', 'matmul', 'sum_w', 'conv2d_3x3'"),
    ] {
        let mut stage = Stage::new(board, TTNN, open);
        stage.puppet.does(&format!("held = p.mixture(d); a = [ops.OPS[name](d) for name in ({ops})]"));
        stage.watches();
        let seen = stage.look();
        let mut faults = Vec::new();
        stage.compare(&seen, board, &mut faults);
        none_of(&faults);
        let [l1, small]: [Bank; 2] =
            ["L1", "L1_SMALL"].map(|space| stage.asks(&format!("p.bank(d, '{space}')")));
        assert!(l1.allocated > 0 && small.allocated > 0 && !l1.taken.is_empty(), "{board}: {l1:?} {small:?}");
        let sharded: Vec<(u64, u64, Vec<[u64; 4]>)> = stage.asks("p.shards(held)");
        assert!(!sharded.is_empty());
        for device in &seen.devices {
            let size = device.capacity.unwrap().l1_bytes_per_core;
            let cores_of = device.cores.as_ref().unwrap();
            assert_eq!(cores_of.len() as u64, l1.banks, "{board}, chip {}", device.index);
            let places: BTreeSet<(u8, u8)> = cores_of.iter().map(|it| (it.room.x, it.room.y)).collect();
            assert_eq!(places.len(), cores_of.len(), "{board}, chip {}: each once", device.index);
            for core in cores_of {
                let what = format!("{board}, chip {}, core {}, {}", device.index, core.room.x, core.room.y);
                let mut end = 0;
                for it in core.intervals.iter() {
                    assert_eq!(it.start, end, "{what}: {:?}", core.intervals);
                    assert!(it.bytes > 0, "{what}: {:?}", core.intervals);
                    end += it.bytes;
                }
                assert_eq!(end, size, "{what}: {:?}", core.intervals);
                // The allocator's own list of blocks, the same for every core since it moves them in lock-step. It
                // counts from where its space begins, which ends where the small one begins.
                let top = size - small.bytes;
                let from = top - l1.bytes;
                let moved =
                    |bank: &Bank, by| merged(bank.taken.iter().map(|it| (it.0 + by, it.1 + by)).collect());
                let within = |it: &Stretch, (begin, end): Stretch| it.0.max(begin) < it.1.min(end);
                let taken = classes(core, &[CoreClass::Buffer, CoreClass::L1Small, CoreClass::Lockstep]);
                let free = classes(core, &[CoreClass::L1SmallFree]);
                // Where nothing but a program lies over it, the program is shown.
                let programs = classes(core, &[CoreClass::Cb, CoreClass::Dfb, CoreClass::Scratch]);
                let taken = merged([taken, programs.clone()].concat());
                let expected = merged([moved(&l1, from), programs, moved(&small, top)].concat());
                assert_eq!(taken, expected, "{what}: {:?}", core.intervals);
                assert_eq!(
                    free,
                    without(&[(top, size)], &moved(&small, top)),
                    "{what}: {:?}",
                    core.intervals
                );
                // A shard lies on its own cores; on others its place is kept free.
                let place = (u64::from(core.room.x), u64::from(core.room.y));
                let lockstep = classes(core, &[CoreClass::Lockstep]);
                for (address, bytes, rectangles) in &sharded {
                    let shard = (*address, address + bytes);
                    let empty = lockstep.iter().any(|it| within(it, shard));
                    let on_it = cores(rectangles).any(|it| it == place);
                    assert_eq!(empty, !on_it, "{what}: shard {shard:?}: {:?}", core.intervals);
                }
                let lowest = taken_lowest(core);
                assert_eq!(lowest, Some(core.room.lowest_buffer), "{what}: {:?}", core.intervals);
                let gap = core.room.lowest_buffer - core.room.program_end;
                assert_eq!(core.room.free_gap_bytes, gap, "{what}");
            }
        }
        let (_, charged) = held(stage.process(&seen));
        assert_eq!(charged, l1.allocated * l1.banks, "{board}");
    }
}

fn taken_lowest(core: &Core) -> Option<u64> {
    classes(core, &[CoreClass::Buffer, CoreClass::Lockstep]).first().map(|it| it.0)
}

#[test]
fn a_view_lies_where_its_tensor_lies() {
    for (version, op, space) in [
        (TTNN, "ttnn.add(a, b, memory_config=m)", Space::Cb),
        (OLDER, "ttnn.add(a, b, memory_config=m)", Space::Cb),
        (TTNN, "ttnn.relu(a, memory_config=m)", Space::Dfb),
    ] {
        let mut stage = Stage::new("n150", version, "1, 1");
        stage
            .puppet
            .does("m = ops.sharded((256, 64), 4, 2, ops.H); a, b = (ops.z(d, 256, 64, mem=m) for _ in 'ab')");
        stage.puppet.does("m = ops.sharded((256, 64), 4, 2, ops.H); keep = []");
        // Once as it is new, then from the cache with other tensors.
        for round in ["new", "cached"] {
            let tensors = if space == Space::Cb { "a, b, c" } else { "a, c" };
            stage.puppet.does("a, b = (ops.z(d, 256, 64, mem=m) for _ in 'ab')");
            stage.puppet.does(&format!("c = {op}; keep += [a, b, c]"));
            let addresses: Vec<u64> =
                stage.asks(&format!("sorted(it.buffer_address() for it in ({tensors}))"));
            let seen = stage.look();
            let programs = stage.programs(&seen);
            assert_eq!(programs.len(), 1, "{version}: {op}, {round}");
            let views = programs.values().flat_map(|it| &it.placements).filter(|it| it.view);
            let mut found: Vec<(Space, u64)> = views.map(|it| (it.space, it.address.unwrap())).collect();
            found.sort_unstable();
            let expected: Vec<(Space, u64)> = addresses.iter().map(|it| (space, *it)).collect();
            assert_eq!(found, expected, "{version}: {op}, {round}");
            // It is counted where the tensor is, and nowhere else.
            let usage = &seen.devices[0].usage;
            for usage in [&usage.cb, &usage.dfb].into_iter().flatten() {
                assert_eq!((usage.registered_bytes, usage.resident_bytes), (0, Some(0)), "{version}: {op}");
            }
        }
    }
}

#[test]
fn a_program_that_clashes_with_a_tensor_is_not_dispatched() {
    for version in [TTNN, OLDER] {
        let mut stage = Stage::new("n150", version, "1, 1");
        stage.puppet.does("a = ops.z(d, 64, 64); b = ttnn.add(a, a)");
        stage.watches();
        stage.puppet.does("big = p.filled(d, 8192)");
        // One that is cached, one that is new, and in the newer wheel one of dataflow buffers.
        for op in ["ttnn.add(a, a)", "ttnn.where(a, a, a)", "ttnn.softmax(a, dim=-1)"] {
            let why = stage.puppet.does(&format!("p.refused(lambda: {op})"));
            assert!(why.as_str().unwrap().contains("clash"), "{version}: {op}: {why}");
        }
        stage.watches();
        let mut faults = Vec::new();
        stage.compare(&stage.look(), &format!("{version}: refused"), &mut faults);
        none_of(&faults);
        // With room for them, they are.
        stage
            .puppet
            .does("ttnn.deallocate(big); c = ttnn.where(a, a, a), ttnn.softmax(a, dim=-1), ttnn.add(a, a)");
        stage.watches();
        stage.compare(&stage.look(), &format!("{version}: room for them"), &mut faults);
        none_of(&faults);
        assert_eq!(stage.live.len(), 3, "{version}");
    }
}
