//! Where programs are tried: a ttnn with the agent in it whose queues are watched, and the comparison of what it says of its
//! programs (see programs.py) with what ttmem says.

use super::{Puppet, TTNN, here, process, python, tracked, ttmem};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Core, CoreClass, Device, Placement, Process, Program, Trace};
use ttmem_core::words::{KernelClass, Space};
use ttmem_testkit::memory_folder;

pub(crate) const OLDER: &str = "0.76.0";

/// Column and row.
pub(crate) type At = (u64, u64);
/// First address and the one after the last.
pub(crate) type Stretch = (u64, u64);
pub(crate) type ByCore = BTreeMap<At, Vec<Stretch>>;

/// What the runtime knows of a program that was dispatched, captured or replayed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Known {
    pub(crate) kind: String,
    pub(crate) trace: u32,
    /// The runtime's own number, which begins at 0.
    #[serde(default)]
    pub(crate) id: u32,
    #[serde(default)]
    pub(crate) chips: Vec<u32>,
    #[serde(default)]
    pub(crate) config_bytes: u64,
    /// On how many processors of a core it has kernels.
    #[serde(default)]
    pub(crate) processors: u64,
    #[serde(default)]
    pub(crate) cores: Vec<[u64; 4]>,
    /// Regions that circular buffers have: a rectangle of cores, first address, end.
    #[serde(default)]
    pub(crate) cb: Vec<[u64; 6]>,
    /// Those that dataflow buffers and scratchpads have.
    #[serde(default)]
    pub(crate) dataflow: Vec<[u64; 6]>,
}

/// One line of a report of the runtime's graph capture.
#[derive(Debug, Deserialize)]
pub(crate) struct Reported {
    pub(crate) space: Space,
    pub(crate) chip: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) view: bool,
    pub(crate) cores: Vec<[u64; 4]>,
}

/// What the runtime says of an op.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    pub(crate) op: String,
    pub(crate) programs: Vec<Known>,
    /// With addresses, of circular buffers only; none for what is compiled on several threads.
    pub(crate) report: Option<Vec<Reported>>,
    /// Without addresses.
    pub(crate) sizes: Option<Vec<Reported>>,
}

pub(crate) fn cores(rectangles: &[[u64; 4]]) -> impl Iterator<Item = At> + '_ {
    rectangles
        .iter()
        .flat_map(|&[x0, y0, x1, y1]| (x0..=x1).flat_map(move |x| (y0..=y1).map(move |y| (x, y))))
}

pub(crate) fn wide(rectangles: &[[u8; 4]]) -> Vec<[u64; 4]> {
    rectangles.iter().map(|it| it.map(u64::from)).collect()
}

/// Each stretch once.
pub(crate) fn merged(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
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
pub(crate) fn without(stretches: &[Stretch], others: &[Stretch]) -> Vec<Stretch> {
    let mut left = stretches.to_vec();
    for &(begin, end) in others {
        let cut = |&(from, to): &Stretch| [(from, to.min(begin)), (from.max(end), to)];
        left = left.iter().flat_map(cut).filter(|(from, to)| from < to).collect();
    }
    merged(left)
}

pub(crate) fn union(ranges: impl IntoIterator<Item = (Vec<[u64; 4]>, u64, u64)>) -> ByCore {
    let mut all = ByCore::new();
    for (rectangles, begin, end) in ranges {
        for core in cores(&rectangles) {
            all.entry(core).or_default().push((begin, end));
        }
    }
    all.into_iter().map(|(core, stretches)| (core, merged(stretches))).collect()
}

pub(crate) fn regions<'a>(regions: impl IntoIterator<Item = &'a [u64; 6]>) -> ByCore {
    union(regions.into_iter().map(|&[x0, y0, x1, y1, begin, end]| (vec![[x0, y0, x1, y1]], begin, end)))
}

pub(crate) fn placed<'a>(placements: impl IntoIterator<Item = &'a Placement>) -> ByCore {
    let placed = placements.into_iter().map(|it| (wide(&it.cores), it.address.unwrap(), it.bytes));
    union(placed.map(|(cores, begin, bytes)| (cores, begin, begin + bytes)))
}

pub(crate) fn total(by_core: &ByCore) -> u64 {
    by_core.values().flatten().map(|(begin, end)| end - begin).sum()
}

/// Where two differ: the first cores of each kind of difference, since all of them are too many to read.
pub(crate) fn differences(what: &str, expected: &ByCore, found: &ByCore, faults: &mut Vec<String>) {
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

pub(crate) fn differs<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    found: &T,
    faults: &mut Vec<String>,
) {
    if expected != found {
        faults.push(format!("{what}: expected {expected:?}, found {found:?}"));
    }
}

pub(crate) fn sorted(indexes: &[u32]) -> Vec<u32> {
    let mut all = indexes.to_vec();
    all.sort_unstable();
    all
}

pub(crate) fn none_of(faults: &[String]) {
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
}

/// The library that notes what reaches the queues and lets traces be replayed; see queue.cpp.
pub(crate) fn queue() -> &'static Path {
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
pub(crate) struct Stage {
    pub(crate) puppet: Puppet,
    pub(crate) folder: Arc<TempDir>,
    /// What should be loaded, by our number.
    pub(crate) live: BTreeMap<u32, Known>,
    /// What was dispatched last, by chip and core.
    pub(crate) resident: BTreeMap<(u32, At), u32>,
    /// How often each was dispatched; none of those of which that is not asked.
    pub(crate) dispatches: BTreeMap<u32, u64>,
}

impl Stage {
    pub(crate) fn new(board: &str, version: &str, open: &str) -> Self {
        Self::with(board, version, open, &[])
    }

    pub(crate) fn with(board: &str, version: &str, open: &str, environment: &[(&str, &str)]) -> Self {
        let folder = memory_folder();
        let script = here().join("puppet.py");
        let program = [python(version), script];
        let mut command = tracked(board, folder.path(), &program.each_ref().map(|it| it.to_str().unwrap()));
        command.envs(environment.iter().copied());
        Self::start(command, folder, open)
    }

    pub(crate) fn start(mut command: Command, folder: Arc<TempDir>, open: &str) -> Self {
        // `ttmem run` puts the agent before it. Neither stands in for what the other does.
        command.env("LD_PRELOAD", queue()).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut puppet = Puppet::start(command);
        puppet.does("import ttnn, ops, programs as p");
        puppet.does(&format!("d = p.opened({open})"));
        Self { puppet, folder, live: BTreeMap::new(), resident: BTreeMap::new(), dispatches: BTreeMap::new() }
    }

    pub(crate) fn asks<T: DeserializeOwned>(&mut self, code: &str) -> T {
        let answer = self.puppet.does(code);
        serde_json::from_value(answer).unwrap_or_else(|e| panic!("{code}: {e}"))
    }

    pub(crate) fn look(&self) -> Snapshot {
        let output = ttmem(self.folder.path(), &["--json", "--programs", "--cores"]);
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        ttmem_testkit::schema::snapshot(&output.stdout)
    }

    pub(crate) fn process<'a>(&self, seen: &'a Snapshot) -> &'a Process {
        process(seen, self.puppet.pid())
    }

    /// The only one there is.
    pub(crate) fn trace(&self) -> Trace {
        let seen = self.look();
        let [it] = &self.process(&seen).traces[..] else { panic!("{:#?}", self.process(&seen).traces) };
        it.clone()
    }

    /// How many buffers each trace may write over, as we say and as the newer wheel says itself.
    pub(crate) fn endangered(&mut self, version: &str, traces: &[&str], expected: &[u64]) {
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
    pub(crate) fn programs<'a>(&self, seen: &'a Snapshot) -> BTreeMap<u32, &'a Program> {
        let all = self.process(seen).programs.as_deref().unwrap_or_default();
        all.iter().filter(|it| it.class == KernelClass::Application).map(|it| (it.id, it)).collect()
    }

    /// Programs that were dispatched, in that order.
    pub(crate) fn dispatched(&mut self, programs: &[Known]) {
        for it in programs {
            let number = it.id;
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
    pub(crate) fn watches(&mut self) {
        let programs: Vec<Known> = self.asks("p.listed()");
        assert!(programs.iter().all(|it| it.kind == "dispatched"));
        self.dispatched(&programs);
    }

    pub(crate) fn forgets(&mut self) {
        self.live.clear();
        self.resident.clear();
        self.dispatches.clear();
    }

    /// An op with nothing cached but its programs.
    pub(crate) fn runs(&mut self, op: &str) -> Told {
        let told: Told = self.asks(&format!("p.run('{op}', d)"));
        self.forgets();
        self.dispatched(&told.programs);
        told
    }

    /// Compares everything that is loaded with what the runtime says.
    pub(crate) fn compare(&self, seen: &Snapshot, what: &str, faults: &mut Vec<String>) {
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

    pub(crate) fn compare_program(
        &self,
        known: &Known,
        program: &Program,
        what: &str,
        faults: &mut Vec<String>,
    ) {
        // They are told in the order of the mesh.
        differs(&format!("{what}: chips"), &known.chips, &sorted(&program.indexes), faults);
        differs(&format!("{what}: kernel bytes"), &known.config_bytes, &program.kernel_bytes, faults);
        let [expected, found]: [BTreeSet<At>; 2] =
            [cores(&known.cores).collect(), cores(&wide(&program.cores)).collect()];
        if expected != found {
            faults.push(format!("{what}: cores: expected {:?}, found {:?}", known.cores, program.cores));
        }
        differs(&format!("{what}: number of cores"), &(expected.len() as u32), &program.core_count, faults);
        let resident = self.resident.values().filter(|it| **it == known.id).count() as u32;
        differs(&format!("{what}: resident cores"), &resident, &program.resident_cores, faults);
        if let Some(dispatches) = self.dispatches.get(&known.id) {
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
    pub(crate) fn compare_chip(&self, device: &Device, what: &str, faults: &mut Vec<String>) {
        let Some(found) = &device.cores else {
            faults.push(format!("{what}: it is not known how its cores are laid out"));
            return;
        };
        let chip = device.index;
        let here: Vec<&Known> = self.live.values().filter(|it| it.chips.contains(&chip)).collect();
        let by_program: BTreeMap<u32, [ByCore; 2]> =
            here.iter().map(|it| (it.id, [&it.cb, &it.dataflow].map(regions))).collect();
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
            let loaded = here.iter().map(|it| at(it.id, place));
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
    pub(crate) fn compare_reports(&self, seen: &Snapshot, told: &Told, faults: &mut Vec<String>) {
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

    pub(crate) fn runs_and_compares(&mut self, ops: &[String]) -> Vec<String> {
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

pub(crate) fn classes(core: &Core, classes: &[CoreClass]) -> Vec<Stretch> {
    let of = core.intervals.iter().filter(|it| classes.contains(&it.class));
    merged(of.map(|it| (it.start, it.start + it.bytes)).collect())
}
