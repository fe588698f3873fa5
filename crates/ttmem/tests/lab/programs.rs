//! Programs, and what they keep in L1, against what stock ttnn itself says of them; see programs.py.

use super::{Puppet, TTNN, exe, held, here, lab, on, process, python, tracked, ttmem};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Core, CoreClass, Device, FindingKind, Placement, Process, Program, Trace};
use ttmem_core::words::{KernelClass, Space};
use ttmem_testkit::memory_folder;

const OLDER: &str = "0.76.0";

/// Column and row.
type At = (u64, u64);
/// First address and the one after the last.
type Stretch = (u64, u64);
type ByCore = BTreeMap<At, Vec<Stretch>>;

/// What the runtime knows of a program that was dispatched, captured or replayed.
#[derive(Clone, Debug, Deserialize)]
struct Known {
    kind: String,
    trace: u32,
    /// The runtime's own number, which begins at 0.
    #[serde(default)]
    id: u32,
    #[serde(default)]
    chips: Vec<u32>,
    #[serde(default)]
    config_bytes: u64,
    /// On how many processors of a core it has kernels.
    #[serde(default)]
    processors: u64,
    #[serde(default)]
    cores: Vec<[u64; 4]>,
    /// Regions that circular buffers have: a rectangle of cores, first address, end.
    #[serde(default)]
    cb: Vec<[u64; 6]>,
    /// Those that dataflow buffers and scratchpads have.
    #[serde(default)]
    dataflow: Vec<[u64; 6]>,
}

impl Known {
    /// As we number it.
    fn number(&self) -> u32 {
        self.id + 1
    }
}

/// One line of a report of the runtime's graph capture.
#[derive(Debug, Deserialize)]
struct Reported {
    space: Space,
    chip: u32,
    address: u64,
    bytes: u64,
    view: bool,
    cores: Vec<[u64; 4]>,
}

/// What the runtime says of an op.
#[derive(Debug, Deserialize)]
struct Told {
    op: String,
    programs: Vec<Known>,
    /// With addresses, of circular buffers only; none for what is compiled on several threads.
    report: Option<Vec<Reported>>,
    /// Without addresses.
    sizes: Option<Vec<Reported>>,
}

fn cores(rectangles: &[[u64; 4]]) -> impl Iterator<Item = At> + '_ {
    rectangles
        .iter()
        .flat_map(|&[x0, y0, x1, y1]| (x0..=x1).flat_map(move |x| (y0..=y1).map(move |y| (x, y))))
}

fn wide(rectangles: &[[u8; 4]]) -> Vec<[u64; 4]> {
    rectangles.iter().map(|it| it.map(u64::from)).collect()
}

/// Each stretch once.
fn merged(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.sort_unstable();
    let mut all: Vec<Stretch> = Vec::new();
    for (begin, end) in stretches {
        match all.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => all.push((begin, end)),
        }
    }
    all
}

/// What is left of some stretches without others.
fn without(stretches: &[Stretch], others: &[Stretch]) -> Vec<Stretch> {
    let mut left = stretches.to_vec();
    for &(begin, end) in others {
        let cut = |&(from, to): &Stretch| [(from, to.min(begin)), (from.max(end), to)];
        left = left.iter().flat_map(cut).filter(|(from, to)| from < to).collect();
    }
    merged(left)
}

fn union(ranges: impl IntoIterator<Item = (Vec<[u64; 4]>, u64, u64)>) -> ByCore {
    let mut all = ByCore::new();
    for (rectangles, begin, end) in ranges {
        for core in cores(&rectangles) {
            all.entry(core).or_default().push((begin, end));
        }
    }
    all.into_iter().map(|(core, stretches)| (core, merged(stretches))).collect()
}

fn regions<'a>(regions: impl IntoIterator<Item = &'a [u64; 6]>) -> ByCore {
    union(regions.into_iter().map(|&[x0, y0, x1, y1, begin, end]| (vec![[x0, y0, x1, y1]], begin, end)))
}

fn placed<'a>(placements: impl IntoIterator<Item = &'a Placement>) -> ByCore {
    union(placements.into_iter().map(|it| (wide(&it.cores), it.address, it.address + it.bytes)))
}

fn total(by_core: &ByCore) -> u64 {
    by_core.values().flatten().map(|(begin, end)| end - begin).sum()
}

/// Where two differ: the first cores of each kind of difference, since all of them are too many to read.
fn differences(what: &str, expected: &ByCore, found: &ByCore, faults: &mut Vec<String>) {
    let all: BTreeSet<At> = expected.keys().chain(found.keys()).copied().collect();
    let mut kinds: BTreeMap<(&[Stretch], &[Stretch]), Vec<At>> = BTreeMap::new();
    for core in all {
        let expected = expected.get(&core).map(Vec::as_slice).unwrap_or_default();
        let found = found.get(&core).map(Vec::as_slice).unwrap_or_default();
        if expected != found {
            kinds.entry((expected, found)).or_default().push(core);
        }
    }
    for ((expected, found), cores) in kinds {
        let first = cores[0];
        faults.push(format!(
            "{what}: {} cores as {first:?}: expected {expected:?}, found {found:?}",
            cores.len()
        ));
    }
}

fn differs<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T, faults: &mut Vec<String>) {
    if expected != found {
        faults.push(format!("{what}: expected {expected:?}, found {found:?}"));
    }
}

fn sorted(indexes: &[u32]) -> Vec<u32> {
    let mut all = indexes.to_vec();
    all.sort_unstable();
    all
}

fn none_of(faults: &[String]) {
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
}

/// The library that notes what reaches the queues and lets traces be replayed; see queue.cpp.
fn queue() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let fresh = folder.join(format!("lab-queue-{}.so", std::process::id()));
        let built = Command::new("g++")
            .args(["-std=c++20", "-O1", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti"])
            .args(["-fno-threadsafe-statics", "-nodefaultlibs", "-o"])
            .arg(&fresh)
            .arg(here().join("queue.cpp"))
            .arg("-lc")
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        // Somebody else's tests may be using it.
        let library = folder.join("lab-queue.so");
        std::fs::rename(fresh, &library).unwrap();
        library
    })
}

/// A ttnn with the agent in it, whose queues are watched, and a device open as `d`.
struct Stage {
    puppet: Puppet,
    folder: Arc<TempDir>,
    /// What should be loaded, by our number.
    live: BTreeMap<u32, Known>,
    /// What was dispatched last, by chip and core.
    resident: BTreeMap<(u32, At), u32>,
    /// How often each was dispatched; none of those of which that is not asked.
    dispatches: BTreeMap<u32, u64>,
}

impl Stage {
    fn new(board: &str, version: &str, open: &str) -> Self {
        Self::with(board, version, open, &[])
    }

    fn with(board: &str, version: &str, open: &str, environment: &[(&str, &str)]) -> Self {
        let folder = memory_folder();
        let script = here().join("puppet.py");
        let program = [python(version), script];
        let mut command = tracked(board, folder.path(), &program.each_ref().map(|it| it.to_str().unwrap()));
        command.envs(environment.iter().copied());
        Self::start(command, folder, open)
    }

    fn start(mut command: Command, folder: Arc<TempDir>, open: &str) -> Self {
        // `ttmem run` puts the agent before it. Neither stands in for what the other does.
        command.env("LD_PRELOAD", queue()).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut puppet = Puppet::start(command);
        puppet.does("import ttnn, ops, programs as p");
        puppet.does(&format!("d = p.opened({open})"));
        Self { puppet, folder, live: BTreeMap::new(), resident: BTreeMap::new(), dispatches: BTreeMap::new() }
    }

    fn asks<T: DeserializeOwned>(&mut self, code: &str) -> T {
        let answer = self.puppet.does(code);
        serde_json::from_value(answer).unwrap_or_else(|e| panic!("{code}: {e}"))
    }

    fn look(&self) -> Snapshot {
        let output = ttmem(self.folder.path(), &["--json", "--programs", "--cores"]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn process<'a>(&self, seen: &'a Snapshot) -> &'a Process {
        process(seen, self.puppet.pid())
    }

    /// The only one there is.
    fn trace(&self) -> Trace {
        let seen = self.look();
        let [it] = &self.process(&seen).traces[..] else { panic!("{:#?}", self.process(&seen).traces) };
        it.clone()
    }

    /// How many buffers each trace may write over, as we say and as the newer wheel says itself.
    fn endangered(&mut self, version: &str, traces: &[&str], expected: &[u64]) {
        let seen = self.look();
        let found: Vec<u64> = self.process(&seen).traces.iter().map(|it| it.endangered_count).collect();
        assert_eq!(found, expected, "{version}, {traces:?}: {:#?}", self.process(&seen).traces);
        if version == TTNN {
            let ids =
                |name: &&str| format!("len(ttnn._ttnn.operations.trace.get_unsafe_tracked_ids(d, {name}))");
            let own: Vec<u64> = traces.iter().map(ids).map(|code| self.puppet.number(&code)).collect();
            assert_eq!(own, expected, "{traces:?}");
        }
    }

    /// Programs of ops, as opposed to the fabric's, by number.
    fn programs<'a>(&self, seen: &'a Snapshot) -> BTreeMap<u32, &'a Program> {
        let all = self.process(seen).programs.as_deref().unwrap_or_default();
        all.iter().filter(|it| it.class == KernelClass::Application).map(|it| (it.id, it)).collect()
    }

    /// Programs that were dispatched, in that order.
    fn dispatched(&mut self, programs: &[Known]) {
        for it in programs {
            let number = it.number();
            for &chip in &it.chips {
                for core in cores(&it.cores) {
                    self.resident.insert((chip, core), number);
                }
            }
            *self.dispatches.entry(number).or_default() += 1;
            self.live.insert(number, it.clone());
        }
    }

    /// What was dispatched since the queues were last asked.
    fn watches(&mut self) {
        let programs: Vec<Known> = self.asks("p.listed()");
        assert!(programs.iter().all(|it| it.kind == "dispatched"));
        self.dispatched(&programs);
    }

    fn forgets(&mut self) {
        self.live.clear();
        self.resident.clear();
        self.dispatches.clear();
    }

    /// An op with nothing cached but its programs.
    fn runs(&mut self, op: &str) -> Told {
        let told: Told = self.asks(&format!("p.run('{op}', d)"));
        self.forgets();
        self.dispatched(&told.programs);
        told
    }

    /// Compares everything that is loaded with what the runtime says.
    fn compare(&self, seen: &Snapshot, what: &str, faults: &mut Vec<String>) {
        let found = self.programs(seen);
        let numbers = |keys: Vec<&u32>| keys.into_iter().copied().collect::<Vec<u32>>();
        differs(
            &format!("{what}: programs"),
            &numbers(self.live.keys().collect()),
            &numbers(found.keys().collect()),
            faults,
        );
        for (number, known) in &self.live {
            if let Some(program) = found.get(number) {
                self.compare_program(known, program, &format!("{what}, program {number}"), faults);
            }
        }
        for device in &seen.devices {
            self.compare_chip(device, &format!("{what}, chip {}", device.index), faults);
        }
    }

    fn compare_program(&self, known: &Known, program: &Program, what: &str, faults: &mut Vec<String>) {
        // They are told in the order of the mesh.
        differs(&format!("{what}: chips"), &known.chips, &sorted(&program.indexes), faults);
        differs(&format!("{what}: kernel bytes"), &known.config_bytes, &program.kernel_bytes, faults);
        let [expected, found]: [BTreeSet<At>; 2] =
            [cores(&known.cores).collect(), cores(&wide(&program.cores)).collect()];
        if expected != found {
            faults.push(format!("{what}: cores: expected {:?}, found {:?}", known.cores, program.cores));
        }
        differs(&format!("{what}: number of cores"), &(expected.len() as u32), &program.core_count, faults);
        let resident = self.resident.values().filter(|it| **it == known.number()).count() as u32;
        differs(&format!("{what}: resident cores"), &resident, &program.resident_cores, faults);
        if let Some(dispatches) = self.dispatches.get(&known.number()) {
            differs(&format!("{what}: dispatches"), dispatches, &program.dispatches, faults);
        }
        let own = |space: &'static [Space]| {
            placed(program.placements.iter().filter(move |it| !it.view && space.contains(&it.space)))
        };
        let (cb, dataflow) = (regions(&known.cb), regions(&known.dataflow));
        differences(&format!("{what}: CBs"), &cb, &own(&[Space::Cb]), faults);
        differences(&format!("{what}: DFBs"), &dataflow, &own(&[Space::Dfb, Space::Scratch]), faults);
        differs(&format!("{what}: bytes of CBs"), &total(&cb), &program.cb_bytes, faults);
        let bytes = program.dfb_bytes + program.scratch_bytes;
        differs(&format!("{what}: bytes of DFBs"), &total(&dataflow), &bytes, faults);
        let end = cb.values().chain(dataflow.values()).flatten().map(|it| it.1).max();
        differs(&format!("{what}: end"), &end, &program.end, faults);
        let views = program.placements.iter().filter(|it| it.view).count() as u64;
        differs(&format!("{what}: number of views"), &views, &program.view_count, faults);
    }

    /// What programs keep of a chip: each core, and the sums.
    fn compare_chip(&self, device: &Device, what: &str, faults: &mut Vec<String>) {
        let Some(found) = &device.cores else {
            faults.push(format!("{what}: it is not known how its cores are laid out"));
            return;
        };
        let chip = device.index;
        let here: Vec<&Known> = self.live.values().filter(|it| it.chips.contains(&chip)).collect();
        let by_program: BTreeMap<u32, [ByCore; 2]> =
            here.iter().map(|it| (it.number(), [&it.cb, &it.dataflow].map(regions))).collect();
        let at = |number: u32, core: At| {
            by_program[&number].each_ref().map(|it| it.get(&core).cloned().unwrap_or_default())
        };
        let [mut cb, mut dataflow, mut expected_cb, mut expected_dataflow] = [const { ByCore::new() }; 4];
        let (mut resident, mut registered) = ([0; 2], [0; 2]);
        let bytes = |it: &[Stretch]| it.iter().map(|(begin, end)| end - begin).sum::<u64>();
        let mut ends = Vec::new();
        for core in found {
            let place = (u64::from(core.room.x), u64::from(core.room.y));
            // What a buffer was given since is the buffer's: the program is done with it.
            let buffers = classes(core, &[CoreClass::Buffer, CoreClass::L1Small]);
            cb.insert(place, classes(core, &[CoreClass::Cb]));
            dataflow.insert(place, classes(core, &[CoreClass::Dfb, CoreClass::Scratch]));
            let last = self.resident.get(&(chip, place)).filter(|it| by_program.contains_key(it));
            let kept = last.map(|it| at(*it, place)).unwrap_or_default();
            for (sum, it) in resident.iter_mut().zip(&kept) {
                *sum += bytes(it);
            }
            let loaded = here.iter().map(|it| at(it.number(), place));
            let all = loaded.fold(<[Vec<Stretch>; 2]>::default(), |[mut a, mut b], [c, d]| {
                a.extend(c);
                b.extend(d);
                [a, b]
            });
            let all = all.map(merged);
            for (sum, it) in registered.iter_mut().zip(&all) {
                *sum += bytes(it);
            }
            let end = |of: &[Vec<Stretch>; 2]| of.iter().flatten().map(|it| it.1).max();
            for (name, expected, found) in [
                ("program_end", end(&kept), core.room.program_end),
                ("registered_end", end(&all), core.room.registered_end),
            ] {
                if expected.is_some_and(|it| it != found) {
                    ends.push(format!(
                        "{what}, core {place:?}: {name}: expected {expected:?}, found {found}"
                    ));
                }
            }
            let [kept_cb, kept_dataflow] = kept.map(|it| without(&it, &buffers));
            expected_cb.insert(place, kept_cb);
            expected_dataflow.insert(place, kept_dataflow);
        }
        ends.truncate(3);
        faults.extend(ends);
        differences(&format!("{what}: resident CBs"), &expected_cb, &cb, faults);
        differences(&format!("{what}: resident DFBs"), &expected_dataflow, &dataflow, faults);
        let usage = |all: &[Option<&ttmem_core::snapshot::ProgramUsage>]| {
            let known = all.iter().flatten();
            let sum = known.clone().map(|it| it.registered_bytes).sum::<u64>();
            (sum, known.map(|it| it.resident_bytes.unwrap_or(u64::MAX)).sum::<u64>())
        };
        let it = &device.usage;
        differs(
            &format!("{what}: usage of CBs"),
            &(registered[0], resident[0]),
            &usage(&[it.cb.as_ref()]),
            faults,
        );
        // A dataflow buffer of one program may lie where another has a scratchpad, so that only one kind has a known sum.
        let (sum, now) = usage(&[it.dfb.as_ref(), it.scratch.as_ref()]);
        differs(&format!("{what}: resident bytes of DFBs"), &resident[1], &now, faults);
        if it.scratch.as_ref().is_none_or(|it| it.registered_bytes == 0) {
            differs(&format!("{what}: registered bytes of DFBs"), &registered[1], &sum, faults);
        }
    }

    /// Compares an op's placements with the reports of the runtime's graph capture.
    fn compare_reports(&self, seen: &Snapshot, told: &Told, faults: &mut Vec<String>) {
        let op = &told.op;
        let found = self.programs(seen);
        let placements: Vec<&Placement> = found.values().flat_map(|it| &it.placements).collect();
        if let Some(report) = &told.report {
            let chip = report.iter().map(|it| it.chip).min();
            let local = report.iter().filter(|it| Some(it.chip) == chip && !it.view);
            let expected = union(local.map(|it| (it.cores.clone(), it.address, it.address + it.bytes)));
            let own = placed(placements.iter().copied().filter(|it| !it.view && it.space == Space::Cb));
            differences(&format!("{op}: CBs of the report"), &expected, &own, faults);
        }
        let Some(sizes) = &told.sizes else { return };
        // How many of which kind and size lie on each core: whether a set of cores is told at once or in parts does not matter.
        let mut balance: BTreeMap<(Space, u64, bool), BTreeMap<At, i64>> = BTreeMap::new();
        let mut count = |space, bytes, view, rectangles: &[[u64; 4]], by: i64| {
            for core in cores(rectangles) {
                *balance.entry((space, bytes, view)).or_default().entry(core).or_default() += by;
            }
        };
        // Every program is reported for every chip of its mesh, also one that is for a single chip: one of them has all.
        let chip = sizes.iter().map(|it| it.chip).min();
        for it in sizes.iter().filter(|it| Some(it.chip) == chip) {
            count(it.space, it.bytes, it.view, &it.cores, 1);
        }
        let whole = sizes.iter().any(|it| it.space == Space::Dfb);
        for it in &placements {
            // The older wheel reports no dataflow buffers.
            if it.space == Space::Cb || whole {
                count(it.space, it.bytes, it.view, &wide(&it.cores), -1);
            }
        }
        for ((space, bytes, view), cores) in balance {
            let wrong: Vec<_> = cores.iter().filter(|(_, by)| **by != 0).collect();
            if let Some((core, by)) = wrong.first() {
                let (what, n) = (if view { "views" } else { "places" }, wrong.len());
                faults.push(format!(
                    "{op}: {space:?} {what} of {bytes} bytes: {n} cores as {core:?} lack {by}"
                ));
            }
        }
    }

    fn runs_and_compares(&mut self, ops: &[String]) -> Vec<String> {
        let mut faults = Vec::new();
        let (mut programs, mut places, mut views) = (0, 0, 0);
        for op in ops {
            let told = self.runs(op);
            let seen = self.look();
            self.compare(&seen, op, &mut faults);
            self.compare_reports(&seen, &told, &mut faults);
            for it in self.programs(&seen).values() {
                programs += 1;
                places += it.placements.iter().filter(|it| !it.view).count();
                views += it.view_count;
            }
        }
        println!("{} ops, {programs} programs, {places} places, {views} views", ops.len());
        faults
    }
}

fn classes(core: &Core, classes: &[CoreClass]) -> Vec<Stretch> {
    let of = core.intervals.iter().filter(|it| classes.contains(&it.class));
    merged(of.map(|it| (it.start, it.start + it.bytes)).collect())
}

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
            let it = found.get(&known.number()).unwrap_or_else(|| panic!("{op}: {}", known.number()));
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
                for it in &core.intervals {
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
                assert_eq!(core.room.gap_bytes, gap, "{what}");
            }
        }
        let (_, charged) = held(stage.process(&seen));
        assert_eq!(charged, l1.allocated * l1.banks, "{board}");
    }
}

fn taken_lowest(core: &Core) -> Option<u64> {
    classes(core, &[CoreClass::Buffer, CoreClass::Lockstep]).first().map(|it| it.0)
}

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
            let mut found: Vec<(Space, u64)> = views.map(|it| (it.space, it.address)).collect();
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
