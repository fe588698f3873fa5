//! Compares what the runtime says of its programs with what ttmem shows, program by program and core by core.

use super::intervals::{
    ByCore, CoreXy, Interval, classes, cores, merged, placed, regions, subtract, total, union, wide,
};
use super::stage::{OpReport, ProgramInfo, ReportedPart, Stage};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{CoreClass, Device, Placement, Program, ProgramUsage};
use ttmem_core::words::Space;

/// Adds the differences of two maps of cores: one line for each kind of difference, with its first core.
pub(crate) fn compare_intervals(
    what: &str,
    expected: &ByCore,
    found: &ByCore,
    differences: &mut Vec<String>,
) {
    let all: BTreeSet<CoreXy> = expected.keys().chain(found.keys()).copied().collect();
    let mut kinds: BTreeMap<(&[Interval], &[Interval]), Vec<CoreXy>> = BTreeMap::new();
    for core in all {
        let expected = expected.get(&core).map(Vec::as_slice).unwrap_or_default();
        let found = found.get(&core).map(Vec::as_slice).unwrap_or_default();
        if expected != found {
            kinds.entry((expected, found)).or_default().push(core);
        }
    }
    for ((expected, found), cores) in kinds {
        let first = cores[0];
        differences.push(format!(
            "{what}: {} cores as {first:?}: expected {expected:?}, found {found:?}",
            cores.len()
        ));
    }
}

pub(crate) fn compare_values<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    found: &T,
    differences: &mut Vec<String>,
) {
    if expected != found {
        differences.push(format!("{what}: expected {expected:?}, found {found:?}"));
    }
}

pub(crate) fn sorted(indexes: &[u32]) -> Vec<u32> {
    let mut all = indexes.to_vec();
    all.sort_unstable();
    all
}

pub(crate) fn expect_no_differences(differences: &[String]) {
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Whether a core is in two ranges of a list of regions.
fn have_overlap(list: &[[u64; 6]]) -> bool {
    let ranges: BTreeSet<[u64; 4]> = list.iter().map(|&[x0, y0, x1, y1, ..]| [x0, y0, x1, y1]).collect();
    let ranges: Vec<[u64; 4]> = ranges.into_iter().collect();
    let all = cores(&ranges).count();
    cores(&ranges).collect::<BTreeSet<CoreXy>>().len() < all
}

impl Stage {
    /// Compares all loaded programs and all chips.
    pub(crate) fn compare(&self, seen: &Snapshot, what: &str, differences: &mut Vec<String>) {
        let found = self.programs(seen);
        let numbers = |keys: Vec<&u32>| keys.into_iter().copied().collect::<Vec<u32>>();
        compare_values(
            &format!("{what}: programs"),
            &numbers(self.live.keys().collect()),
            &numbers(found.keys().collect()),
            differences,
        );
        for (number, known) in &self.live {
            if let Some(program) = found.get(number) {
                self.compare_program(known, program, &format!("{what}, program {number}"), differences);
            }
        }
        for device in &seen.devices {
            self.compare_chip(device, &format!("{what}, chip {}", device.index), differences);
        }
    }

    pub(crate) fn compare_program(
        &self,
        known: &ProgramInfo,
        program: &Program,
        what: &str,
        differences: &mut Vec<String>,
    ) {
        // ttmem lists chips in the order of the mesh.
        compare_values(&format!("{what}: chips"), &known.chips, &sorted(&program.indexes), differences);
        compare_values(
            &format!("{what}: kernel bytes"),
            &known.config_bytes,
            &program.kernel_bytes,
            differences,
        );
        let [expected, found]: [BTreeSet<CoreXy>; 2] =
            [cores(&known.cores).collect(), cores(&wide(&program.cores)).collect()];
        if expected != found {
            differences.push(format!("{what}: cores: expected {:?}, found {:?}", known.cores, program.cores));
        }
        compare_values(
            &format!("{what}: number of cores"),
            &(expected.len() as u32),
            &program.core_count,
            differences,
        );
        let resident = self.resident.values().filter(|it| **it == known.id).count() as u32;
        compare_values(&format!("{what}: resident cores"), &resident, &program.resident_cores, differences);
        if let Some(dispatches) = self.dispatches.get(&known.id) {
            compare_values(&format!("{what}: dispatches"), dispatches, &program.dispatches, differences);
        }
        let own = |space: &'static [Space]| {
            placed(program.placements.iter().filter(move |it| !it.view && space.contains(&it.space)))
        };
        let (cb, dataflow) = (regions(&known.cb), regions(&known.dataflow));
        compare_intervals(&format!("{what}: CBs"), &cb, &own(&[Space::Cb]), differences);
        compare_intervals(
            &format!("{what}: DFBs"),
            &dataflow,
            &own(&[Space::Dfb, Space::Scratch]),
            differences,
        );
        // The runtime's lists have what is on any core of a range, so they are equal only if no ranges overlap.
        for (name, list, space) in [
            ("CBs", &known.cb_regions, &[Space::Cb] as &'static [Space]),
            ("DFBs", &known.dataflow_regions, &[Space::Dfb, Space::Scratch]),
        ] {
            if !have_overlap(list) {
                let what = format!("{what}: regions of {name}");
                compare_intervals(&what, &regions(list), &own(space), differences);
            }
        }
        compare_values(&format!("{what}: bytes of CBs"), &total(&cb), &program.cb_bytes, differences);
        let bytes = program.dfb_bytes + program.scratch_bytes;
        compare_values(&format!("{what}: bytes of DFBs"), &total(&dataflow), &bytes, differences);
        let end = cb.values().chain(dataflow.values()).flatten().map(|it| it.1).max();
        compare_values(&format!("{what}: end"), &end, &program.end, differences);
        let views = program.placements.iter().filter(|it| it.view).map(|it| u64::from(it.count)).sum::<u64>();
        compare_values(&format!("{what}: number of views"), &views, &program.view_count, differences);
    }

    /// Compares program memory on a chip: on each core, and in sum.
    pub(crate) fn compare_chip(&self, device: &Device, what: &str, differences: &mut Vec<String>) {
        let Some(found) = &device.cores else {
            differences.push(format!("{what}: it is not known how its cores are laid out"));
            return;
        };
        let chip = device.index;
        let here: Vec<&ProgramInfo> = self.live.values().filter(|it| it.chips.contains(&chip)).collect();
        let by_program: BTreeMap<u32, [ByCore; 2]> =
            here.iter().map(|it| (it.id, [&it.cb, &it.dataflow].map(regions))).collect();
        let at = |number: u32, core: CoreXy| {
            by_program[&number].each_ref().map(|it| it.get(&core).cloned().unwrap_or_default())
        };
        let [mut cb, mut dataflow, mut expected_cb, mut expected_dataflow] = [const { ByCore::new() }; 4];
        let (mut resident, mut registered) = ([0; 2], [0; 2]);
        let bytes = |it: &[Interval]| it.iter().map(|(begin, end)| end - begin).sum::<u64>();
        let mut ends = Vec::new();
        for core in found {
            let xy = (u64::from(core.room.x), u64::from(core.room.y));
            // Memory that a buffer received since belongs to the buffer: the program has ended.
            let buffers = classes(core, &[CoreClass::Buffer, CoreClass::L1Small]);
            cb.insert(xy, classes(core, &[CoreClass::Cb]));
            dataflow.insert(xy, classes(core, &[CoreClass::Dfb, CoreClass::Scratch]));
            let last = self.resident.get(&(chip, xy)).filter(|it| by_program.contains_key(it));
            let kept = last.map(|it| at(*it, xy)).unwrap_or_default();
            for (sum, it) in resident.iter_mut().zip(&kept) {
                *sum += bytes(it);
            }
            let loaded = here.iter().map(|it| at(it.id, xy));
            let all = loaded.fold(<[Vec<Interval>; 2]>::default(), |[mut a, mut b], [c, d]| {
                a.extend(c);
                b.extend(d);
                [a, b]
            });
            let all = all.map(merged);
            for (sum, it) in registered.iter_mut().zip(&all) {
                *sum += bytes(it);
            }
            let end = |of: &[Vec<Interval>; 2]| of.iter().flatten().map(|it| it.1).max();
            for (name, expected, found) in [
                ("program_end", end(&kept), core.room.program_end),
                ("registered_end", end(&all), core.room.registered_end),
            ] {
                if expected.is_some_and(|it| it != found) {
                    ends.push(format!("{what}, core {xy:?}: {name}: expected {expected:?}, found {found}"));
                }
            }
            let [kept_cb, kept_dataflow] = kept.map(|it| subtract(&it, &buffers));
            expected_cb.insert(xy, kept_cb);
            expected_dataflow.insert(xy, kept_dataflow);
        }
        ends.truncate(3);
        differences.extend(ends);
        compare_intervals(&format!("{what}: resident CBs"), &expected_cb, &cb, differences);
        compare_intervals(&format!("{what}: resident DFBs"), &expected_dataflow, &dataflow, differences);
        let sums = |all: &[Option<&ProgramUsage>]| {
            let known = all.iter().flatten();
            let sum = known.clone().map(|it| it.registered_bytes).sum::<u64>();
            (sum, known.map(|it| it.resident_bytes.unwrap_or(u64::MAX)).sum::<u64>())
        };
        let usage = &device.usage;
        compare_values(
            &format!("{what}: usage of CBs"),
            &(registered[0], resident[0]),
            &sums(&[usage.cb.as_ref()]),
            differences,
        );
        // A dataflow buffer of one program may overlap a scratchpad of another, so only the sum of one kind is comparable.
        let (sum, now) = sums(&[usage.dfb.as_ref(), usage.scratch.as_ref()]);
        compare_values(&format!("{what}: resident bytes of DFBs"), &resident[1], &now, differences);
        if usage.scratch.as_ref().is_none_or(|it| it.registered_bytes == 0) {
            compare_values(&format!("{what}: registered bytes of DFBs"), &registered[1], &sum, differences);
        }
    }

    /// Compares an op's placements with the reports of the runtime's graph capture.
    pub(crate) fn compare_reports(
        &self,
        seen: &Snapshot,
        op_report: &OpReport,
        differences: &mut Vec<String>,
    ) {
        let op = &op_report.op;
        let found = self.programs(seen);
        let placements: Vec<&Placement> = found.values().flat_map(|it| &it.placements).collect();
        if let Some(report) = &op_report.report {
            let chip = report.iter().map(|it| it.chip).min();
            for (what, view) in [("CBs", false), ("CB views", true)] {
                let is_cb = |it: &&ReportedPart| it.space == Space::Cb && it.view == view;
                let local = report.iter().filter(|it| Some(it.chip) == chip).filter(is_cb);
                let expected = union(local.map(|it| (it.cores.clone(), it.address, it.address + it.bytes)));
                let own = placements.iter().copied().filter(|it| it.view == view && it.space == Space::Cb);
                // A program with nothing but views is not reported.
                if !view || !expected.is_empty() {
                    let what = format!("{op}: {what} of the report");
                    compare_intervals(&what, &expected, &placed(own), differences);
                }
            }
        }
        for (known, program) in op_report.programs.iter().filter_map(|it| Some((it, found.get(&it.id)?))) {
            for (space, views) in [(Space::Cb, &known.cb_views), (Space::Dfb, &known.dfb_views)] {
                let own = placed(program.placements.iter().filter(|it| it.view && it.space == space));
                let what = format!("{op}, program {}: {space:?} views", known.id);
                compare_intervals(&what, &regions(views), &own, differences);
                // Each view, also those that are equal to another.
                let mut number: BTreeMap<(CoreXy, u64, u64), i64> = BTreeMap::new();
                for &[x0, y0, x1, y1, begin, end] in views {
                    for core in cores(&[[x0, y0, x1, y1]]) {
                        *number.entry((core, begin, end)).or_default() += 1;
                    }
                }
                for it in program.placements.iter().filter(|it| it.view && it.space == space) {
                    let begin = it.address.unwrap_or(0);
                    for core in cores(&wide(&it.cores)) {
                        *number.entry((core, begin, begin + it.bytes)).or_default() -= i64::from(it.count);
                    }
                }
                let wrong = number.iter().find(|(_, by)| **by != 0);
                differences.extend(wrong.map(|(at, by)| format!("{what}: {by} are missing at {at:?}")));
            }
        }
        let Some(sizes) = &op_report.sizes else { return };
        // The number of parts of each kind and size on each core; how cores are grouped does not matter.
        let mut balance: BTreeMap<(Space, u64, bool), BTreeMap<CoreXy, i64>> = BTreeMap::new();
        let mut count = |space, bytes, view, rectangles: &[[u64; 4]], by: i64| {
            for core in cores(rectangles) {
                *balance.entry((space, bytes, view)).or_default().entry(core).or_default() += by;
            }
        };
        // A program is reported for every chip of its mesh, even if it runs on one only, so one chip has all of them.
        let chip = sizes.iter().map(|it| it.chip).min();
        for it in sizes.iter().filter(|it| Some(it.chip) == chip) {
            count(it.space, it.bytes, it.view, &it.cores, 1);
        }
        let whole = sizes.iter().any(|it| it.space != Space::Cb);
        for placement in &placements {
            // The older wheel reports circular buffers only.
            if placement.space == Space::Cb || whole {
                // Dataflow buffers that share their memory are reported once.
                let by = if placement.space == Space::Dfb { -1 } else { -i64::from(placement.count) };
                count(placement.space, placement.bytes, placement.view, &wide(&placement.cores), by);
            }
        }
        for ((space, bytes, view), cores) in balance {
            let wrong: Vec<_> = cores.iter().filter(|(_, by)| **by != 0).collect();
            if let Some((core, by)) = wrong.first() {
                let (what, n) = (if view { "views" } else { "parts" }, wrong.len());
                differences.push(format!(
                    "{op}: {space:?} {what} of {bytes} bytes: {n} cores as {core:?} lack {by}"
                ));
            }
        }
    }
}
