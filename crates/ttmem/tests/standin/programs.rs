//! Programs: what they keep, where, and which of them is there.

use crate::make::{Build, Way};
use crate::{ALL, Program, process, segments};
use serde_json::Value;
use std::fmt::Write;
use ttmem_core::snapshot::{FindingKind, ProgramUsage};

/// Where the first thing of a program lies.
pub(crate) const BASE: u64 = 105_824;

/// What a program keeps, as a line: space, program, address, bytes on each core, cores and chips, and whether it is a view.
fn line(it: &Value) -> String {
    let address = u64::from_str_radix(it["id"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let space = it["space"].as_str().unwrap();
    let place =
        if space == "kernel" { String::new() } else { format!("@{} ", address.wrapping_sub(BASE) as i64) };
    let view = if it["layout"] == "view" { " view" } else { "" };
    let kind = it["kernel"].as_str().map(|it| format!(" {it}")).unwrap_or_default();
    format!(
        "{space} {} {place}{} on {} of {}{view}{kind}",
        it["program"], it["bytes_per_bank"], it["cores"], it["indexes"]
    )
}

impl Program {
    /// What programs keep, sorted.
    pub(crate) fn kept(&self) -> Vec<String> {
        let of_programs =
            |it: &&Value| ["cb", "dfb", "scratch", "kernel"].iter().any(|space| it["space"] == *space);
        let mut lines: Vec<String> = self.listed().iter().filter(of_programs).map(line).collect();
        lines.sort_unstable();
        lines
    }

    /// Registered and resident on a chip: circular buffers, dataflow buffers, scratchpads, kernels.
    pub(crate) fn held(&self, chip: u64) -> [(u64, u64); 4] {
        let process = self.process();
        let id = format!("0x{:016x}", 0x5717_d100 + chip);
        let Some(it) = process.usage.iter().find(|it| it.device == id) else { return [(0, 0); 4] };
        let of = |it: &Option<ProgramUsage>| {
            it.as_ref().map_or((0, 0), |it| (it.registered_bytes, it.resident_bytes.unwrap_or(0)))
        };
        [&it.usage.cb, &it.usage.dfb, &it.usage.scratch, &it.usage.kernel].map(of)
    }

    /// What is resident on a chip of each kind.
    pub(crate) fn resident(&self, chip: u64) -> [u64; 4] {
        self.held(chip).map(|it| it.1)
    }

    /// A program by itself in a workload, on some chips; both numbers.
    pub(crate) fn workload(&mut self, chips: (u32, u32), plan: &str) -> (u64, u64) {
        let program = self.number(&format!("program {plan}"));
        (program, self.number(&format!("workload {} {} {program}", chips.0, chips.1)))
    }

    pub(crate) fn enqueue(&mut self, mesh: u64, workload: u64) {
        assert_eq!(self.does(&format!("enqueue {mesh} {workload}")), "fine");
    }

    /// The programs: number, name and class.
    fn programs(&self) -> Vec<(u64, String, String)> {
        let output = self.ttmem(&["dump", "--programs", "--json"]);
        let dump: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let of = |it: &Value| (it["id"].as_u64().unwrap(), text(&it["name"]), text(&it["class"]));
        dump["programs"].as_array().unwrap().iter().map(of).collect()
    }

    /// It has nothing to say against how it was told things.
    pub(crate) fn is_faultless(&self) {
        assert!(self.process().complete, "{:#?}", self.snapshot().findings);
        assert!(self.snapshot().findings.is_empty(), "{:#?}", self.snapshot().findings);
    }
}

#[test]
fn everything_a_program_keeps_is_listed() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 2 0");
        let plan = "config 4096 compute add 0 0 3 1 and 5 5 5 5 data reader 7 7 7 7 cb 2048 0 0 3 1 and 5 5 5 5 cb 100 0 0 0 0 \
                    view 900000 8192 0 0 3 1 dfb 512 0 0 1 0 and 0 1 1 1 dfb 48 7 7 7 7 pad 160 borrow 800000 64 0 0 0 0";
        let (made, workload) = program.workload((0, 1), plan);
        assert!(program.kept().is_empty(), "it is not built");
        program.does(&format!("compile 1 {workload}"));
        let kept = program.kept();
        let mut expected = [
            "cb 0 @0 2048 on [[0,0,3,1],[5,5,5,5]] of [0,1]",
            "cb 0 @2048 100 on [[0,0,0,0]] of [0,1]",
            "cb 0 @794176 8192 on [[0,0,3,1]] of [0,1] view",
            "dfb 0 @-105824 64 on [[0,0,0,0]] of [0,1] view",
            "dfb 0 @2160 512 on [[0,0,1,1]] of [0,1]",
            "dfb 0 @2672 48 on [[7,7,7,7]] of [0,1]",
            "kernel 0 4096 on [[0,0,3,1],[5,5,5,5],[7,7,7,7]] of [0,1] application",
            "scratch 0 @2720 160 on [[0,0,3,1],[5,5,5,5],[7,7,7,7]] of [0,1]",
        ];
        assert_eq!(kept, expected);
        let [cb, dfb, scratch, kernel] = program.held(1);
        let figures = [9 * 2048 + 100, 4 * 512 + 48, 10 * 160, 10 * 4096];
        assert_eq!([cb, dfb, scratch, kernel], figures.map(|it| (it, 0)), "a view counts nothing");
        program.enqueue(1, workload);
        assert_eq!(program.held(0), figures.map(|it| (it, it)));
        // Whom it borrows from is known then.
        expected[3] = "dfb 0 @694176 64 on [[0,0,0,0]] of [0,1] view";
        expected.sort_unstable();
        assert_eq!(program.kept(), expected);
        program.is_faultless();
        program.does(&format!("drop {made} {workload}"));
        assert!(program.kept().is_empty());
        assert_eq!(program.held(0), [(0, 0); 4]);
        program.is_faultless();
        program.quits();
    }
}

/// Eight programs compiled at once, each on a chip of its own.
#[test]
fn programs_compiled_on_many_threads_keep_what_is_theirs() {
    for (build, way) in
        [(Build::Plain, Way::Loading), (Build::Address, Way::Linked), (Build::Thread, Way::Linked)]
    {
        let mut program = Program::start(build, way);
        program.does("mesh 0 8 0");
        for round in 0..20 {
            let mut command = "workload".to_owned();
            let mut expected = Vec::new();
            let mut made = Vec::new();
            for chip in 0..8 {
                let bytes = 64 * (chip + 1);
                let it = program.number(&format!(
                    "program config 32 data k 0 0 7 7 dfb {bytes} 0 {chip} 7 {chip} dfb 16 0 0 7 7"
                ));
                let _ = write!(command, " {chip} {chip} {it}");
                let id = round * 8 + chip;
                expected.push(format!("dfb {id} @0 {bytes} on [[0,{chip},7,{chip}]] of [{chip}]"));
                expected.push(format!("dfb {id} @{bytes} 16 on [[0,0,7,7]] of [{chip}]"));
                expected.push(format!("kernel {id} 32 on [[0,0,7,7]] of [{chip}] application"));
                made.push(it.to_string());
            }
            let workload = program.number(&command);
            program.enqueue(1, workload);
            expected.sort_unstable();
            assert_eq!(program.kept(), expected);
            assert_eq!(program.resident(7), [0, 8 * 512 + 64 * 16, 0, 64 * 32]);
            program.does(&format!("drop {workload} {}", made.join(" ")));
        }
        program.is_faultless();
        assert!(program.kept().is_empty());
        program.quits();
    }
}

#[test]
fn meshes_and_submeshes_have_their_own() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        for mesh in ["mesh 0 4 0", "mesh 1 2 0", "mesh 4 2 0"] {
            program.does(mesh);
        }
        let (_, whole) = program.workload((0, 3), "cb 64 0 0 0 0");
        let (_, part) = program.workload((2, 3), "cb 128 0 0 0 0");
        let (_, sub) = program.workload((0, 0), "cb 256 0 0 0 0");
        let (_, other) = program.workload((0, 1), "cb 512 0 0 0 0");
        program.enqueue(1, whole);
        program.enqueue(1, part);
        program.enqueue(2, sub);
        program.enqueue(3, other);
        assert_eq!(
            program.kept(),
            [
                "cb 0 @0 64 on [[0,0,0,0]] of [0,1,2,3]",
                "cb 1 @0 128 on [[0,0,0,0]] of [2,3]",
                "cb 2 @0 256 on [[0,0,0,0]] of [1]",
                "cb 3 @0 512 on [[0,0,0,0]] of [4,5]"
            ]
        );
        // What was dispatched last on a chip's core is there, whoever did.
        assert_eq!([0, 1, 2, 3, 4, 5].map(|chip| program.resident(chip)[0]), [64, 256, 128, 128, 512, 512]);
        program.does("close 2");
        assert_eq!(program.kept().len(), 3);
        program.does("close 1");
        assert_eq!(program.kept(), ["cb 3 @0 512 on [[0,0,0,0]] of [4,5]"]);
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn the_last_program_dispatched_is_there() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 0");
        let (_, first) = program.workload((0, 0), "config 16 data a 0 0 3 0 cb 64 0 0 3 0");
        let (second, over) = program.workload((0, 0), "config 32 data b 2 0 5 0 dfb 128 2 0 5 0");
        program.enqueue(1, first);
        assert_eq!(program.resident(0), [4 * 64, 0, 0, 4 * 16]);
        program.does(&format!("compile 1 {over}"));
        assert_eq!(program.resident(0), [4 * 64, 0, 0, 4 * 16], "built is not dispatched");
        program.enqueue(1, over);
        assert_eq!(program.resident(0), [2 * 64, 4 * 128, 0, 2 * 16 + 4 * 32]);
        program.enqueue(1, first);
        assert_eq!(program.resident(0), [4 * 64, 2 * 128, 0, 4 * 16 + 2 * 32]);
        program.does(&format!("drop {over} {second}"));
        assert_eq!(program.held(0)[1], (0, 0));
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn a_program_where_another_was_is_another() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 0");
        program.does("reuse 1");
        for n in 1..=20u64 {
            let plan = match n % 4 {
                0 => format!("dfb {} 0 0 0 0", n * 16),
                1 => format!("cb {} 0 0 0 0", n * 16),
                // Neither is the dataflow buffer of the one before it its own.
                2 => format!("config {} data k 0 0 0 0", n * 16),
                _ => format!("view 500000 {} 0 0 0 0", n * 16),
            };
            let (made, workload) = program.workload((0, 0), &plan);
            if n % 3 != 0 {
                program.enqueue(1, workload);
            } else {
                program.does(&format!("compile 1 {workload}"));
            }
            let kept = program.kept();
            assert_eq!(kept.len(), 1, "{kept:?}");
            assert!(
                kept[0].contains(&format!(" {} ", n - 1)) && kept[0].contains(&format!(" {} on", n * 16)),
                "{kept:?}"
            );
            program.does(&format!("drop {made} {workload}"));
        }
        // One that is never built leaves nothing to the next one.
        let (made, workload) = program.workload((0, 0), "dfb 64 0 0 0 0");
        program.does("throwing finalize_program_offsets");
        assert_eq!(program.does(&format!("enqueue 1 {workload}")), "fatal -1 finalize_program_offsets");
        program.does("throwing nothing");
        program.does(&format!("drop {made} {workload}"));
        let (_, workload) = program.workload((0, 0), "config 16 data k 0 0 0 0");
        program.enqueue(1, workload);
        assert_eq!(program.kept(), ["kernel 21 16 on [[0,0,0,0]] of [0] application"]);
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn what_changes_between_dispatches_is_followed() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 0");
        let (made, workload) =
            program.workload((0, 0), "cb 64 0 0 1 0 view 500000 4096 0 0 1 0 dfb 32 0 0 1 0 dfb 64 2 0 2 0");
        program.enqueue(1, workload);
        for address in [500_000_u64, 600_000, 600_000, 700_000] {
            program.does(&format!("move {made} {address}"));
            program.enqueue(1, workload);
            let view = format!("cb 0 @{} 4096 on [[0,0,1,0]] of [0] view", address - BASE);
            assert!(program.kept().contains(&view), "{:?}", program.kept());
            assert_eq!(program.kept().len(), 4);
            assert_eq!(program.resident(0), [2 * 64, 2 * 32 + 64, 0, 0]);
        }
        program.does(&format!("resize cb {made} 256"));
        assert_eq!(program.held(0)[0], (128, 128), "until it is dispatched");
        program.enqueue(1, workload);
        assert_eq!(program.held(0)[0], (512, 512));
        assert_eq!(program.does("unplaced"), "0");
        program.does(&format!("resize dfb {made}"));
        program.does(&format!("resize dfb {made} 128"));
        program.enqueue(1, workload);
        assert_eq!(program.held(0)[1], (3 * 128, 3 * 128));
        program.does(&format!("drop {made} {workload}"));
        // One that has nothing else.
        let (made, workload) = program.workload((0, 0), "cb 64 0 0 1 0");
        program.enqueue(1, workload);
        program.does(&format!("resize cb {made} 256"));
        program.enqueue(1, workload);
        assert_eq!(program.held(0)[0], (512, 512));
        program.is_faultless();
        program.quits();
    }
}

/// Slow dispatch, as hardware does it.
#[test]
fn a_program_that_is_placed_after_it_was_built_is_not_asked_before() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 3 0");
        program.does("slow 1");
        let (_, workload) =
            program.workload((1, 2), "config 64 data k 0 0 1 0 cb 64 0 0 1 0 dfb 32 0 0 1 0 pad 16");
        for _ in 0..2 {
            program.enqueue(1, workload);
            assert_eq!(program.does("unplaced"), "0");
            assert_eq!(
                program.kept(),
                [
                    "cb 0 @0 64 on [[0,0,1,0]] of [1,2]",
                    "dfb 0 @64 32 on [[0,0,1,0]] of [1,2]",
                    "kernel 0 64 on [[0,0,1,0]] of [1,2] application",
                    "scratch 0 @96 16 on [[0,0,1,0]] of [1,2]"
                ]
            );
            assert_eq!(program.held(0), [(0, 0); 4]);
            assert_eq!(program.resident(2), [128, 64, 32, 128]);
        }
        // Of one that is never dispatched, only that it is loaded.
        let alone = program.number("program config 32 data alone 4 4 4 4 cb 64 4 4 4 4");
        program.does("device 9");
        assert_eq!(program.does(&format!("finalize 1 {alone}")), "fine");
        assert_eq!(program.does("unplaced"), "0");
        assert_eq!(program.held(0), [(0, 0), (0, 0), (0, 0), (32, 0)]);
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn the_runtimes_own_programs_are_known_by_who_makes_them() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 0");
        let kinds = [
            ("fabric 1", "fabric"),
            ("fabric_before 1", "fabric"),
            ("dispatch 1", "dispatch"),
            ("program", "application"),
        ];
        for (maker, kind) in kinds {
            let made = program.number(&format!("{maker} config 64 data k 0 0 0 0 cb 32 0 0 0 0"));
            assert!(program.kept().is_empty());
            assert_eq!(program.does(&format!("finalize 1 {made}")), "fine");
            let kept = program.kept();
            assert!(kept.len() == 1 && kept[0].ends_with(kind), "{kept:?}");
            let programs = program.programs();
            assert!(programs.len() == 1 && programs[0].2 == kind, "{programs:?}");
            program.does(&format!("drop {made}"));
        }
        program.is_faultless();
        program.quits();
    }
}

/// What computes says most of what a program is; and what it has twice says no more.
#[test]
fn a_program_is_called_what_its_kernels_are_called() {
    let mut program = Program::start(Build::Plain, Way::Linked);
    program.does("mesh 0 1 0");
    let plan =
        "data reader 0 0 0 0 data writer 0 0 0 0 compute add 0 0 0 0 data reader 1 0 1 0 cb 32 0 0 0 0";
    let (_, workload) = program.workload((0, 0), plan);
    for step in ["compile", "enqueue", "enqueue"] {
        program.does(&format!("{step} 1 {workload}"));
        let programs = program.programs();
        let [(0, name, _)] = &programs[..] else { panic!("{programs:?}") };
        let mut parts: Vec<&str> = name.split('+').collect();
        assert_eq!(parts[0], "add", "{step}: {name}");
        parts.sort_unstable();
        assert_eq!(parts, ["add", "reader", "writer"], "{step}: {name}");
    }
    program.is_faultless();
    program.quits();
}

/// Whatever of the runtime is called first.
#[test]
fn programs_may_be_made_before_there_is_a_device() {
    for command in ["fabric 0", "fabric_before 0", "program"] {
        for (build, way) in ALL {
            let mut program = Program::start(build, way);
            let made = program.number(&format!("{command} config 64 data k 0 0 0 0 dfb 32 0 0 0 0"));
            program.does(&format!("resize dfb {made}"));
            let mesh = program.number("mesh 0 1 0");
            let workload = program.number(&format!("workload 0 0 {made}"));
            program.enqueue(mesh, workload);
            assert_eq!(program.kept().len(), 2);
            program.is_faultless();
            program.quits();
        }
    }
}

#[test]
fn what_throws_leaves_nothing_and_reaches_the_caller() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 2 0");
        let plan = "config 64 data k 0 0 1 0 and 3 3 3 3 cb 32 0 0 0 0 dfb 64 0 0 1 0 and 3 3 3 3";
        for function in ["finalize_program_offsets", "allocate_dataflow_buffers"] {
            let (made, workload) = program.workload((0, 0), plan);
            program.does(&format!("throwing {function}"));
            for command in ["enqueue", "compile"] {
                assert_eq!(program.does(&format!("{command} 1 {workload}")), format!("fatal -1 {function}"));
                assert!(program.kept().is_empty(), "{function}");
            }
            program.does("throwing nothing");
            program.enqueue(1, workload);
            assert_eq!(program.kept().len(), 3, "{function}");
            assert_eq!(program.held(0), [(32, 32), (192, 192), (0, 0), (192, 192)]);
            program.does(&format!("drop {made} {workload}"));
        }
        let (_, workload) = program.workload((0, 0), plan);
        program.does("throwing EnqueueMeshWorkload");
        assert_eq!(program.does(&format!("enqueue 1 {workload}")), "fatal -1 EnqueueMeshWorkload");
        assert_eq!(program.held(0)[0], (32, 0), "built, but not dispatched");
        program.does("throwing fabric");
        assert_eq!(program.does("fabric 1 config 16"), "fatal -1 fabric");
        program.does("throwing nothing");
        program.enqueue(1, workload);
        assert_eq!(program.held(0)[0], (32, 32));
        program.is_faultless();
        program.quits();
    }
}

/// What the runtime throws at the agent ends there.
#[test]
fn getters_that_throw_are_the_agents_affair() {
    for how in [ALL[1], ALL[2]] {
        let mut program = Program::start(how.0, how.1);
        program.does("mesh 0 2 0");
        let plan = "config 64 data k 0 0 1 0 cb 32 0 0 0 0 view 500000 64 0 0 0 0 dfb 64 0 0 1 0 pad 16";
        for getter in [
            "get_id",
            "circular_buffers",
            "core_ranges",
            "cb_size",
            "cb_address",
            "globally_allocated",
            "get_program_config_size",
            "get_kernel_groups",
            "get_kernels",
            "name",
            "logical_coreranges",
            "get_programs",
            "get_view",
            "get_devices",
            "id",
        ] {
            program.does(&format!("throwing {getter}"));
            let (made, workload) = program.workload((0, 1), plan);
            for command in ["compile", "enqueue", "enqueue"] {
                assert_eq!(program.does(&format!("{command} 1 {workload}")), "fine", "{getter}");
            }
            for command in ["begin 1 7 0", "end 1 7 0", "replay 1 7 0", "release 1 7"] {
                assert_eq!(program.does(command), "fine", "{getter}");
            }
            program.does("throwing nothing");
            program.does(&format!("drop {made} {workload}"));
            assert_eq!(program.kept(), [""; 0], "{getter}");
        }
        let (_, workload) = program.workload((0, 1), plan);
        program.enqueue(1, workload);
        assert_eq!(program.resident(1), [32, 128, 32, 128]);
        // One that would not say who it is could not be followed, and that is said.
        let findings = program.snapshot().findings;
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!((findings[0].kind, findings[0].count), (FindingKind::LostRecords, 1));
        program.quits();
    }
}

#[test]
fn a_closed_mesh_leaves_nothing_of_programs_that_live_on() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        let mut made = Vec::new();
        for _ in 0..3 {
            let mesh = program.number("mesh 0 2 0");
            for n in 1..=5 {
                let (own, workload) =
                    program.workload((0, n % 2), "config 64 data k 0 0 1 0 cb 32 0 0 0 0 dfb 64 0 0 1 0");
                program.enqueue(mesh, workload);
                made.extend([own.to_string(), workload.to_string()]);
            }
            assert_eq!(program.kept().len(), 15);
            program.does(&format!("close {mesh}"));
            assert!(program.kept().is_empty());
            assert!(program.process().usage.is_empty() || program.held(0) == [(0, 0); 4]);
            program.is_faultless();
        }
        program.does(&format!("drop {}", made.join(" ")));
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn a_childs_programs_are_not_its_parents() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        let parent = program.pid();
        program.does("mesh 0 2 0");
        let (made, workload) =
            program.workload((0, 1), "config 64 data k 0 0 1 0 cb 32 0 0 0 0 dfb 64 0 0 1 0");
        program.enqueue(1, workload);
        program.does("begin 1 3 0");
        program.enqueue(1, workload);
        program.does("end 1 3 0");
        let before = program.kept();
        let child = u32::try_from(program.number("fork")).unwrap();
        program.enqueue(1, workload);
        program.does("replay 1 3 0");
        program.does("release 1 3");
        program.does(&format!("drop {made} {workload}"));
        let (_, own) = program.workload((1, 1), "cb 512 0 0 0 0");
        program.enqueue(1, own);
        let snapshot = program.snapshot();
        let its = process(&snapshot, child).expect("it has something of its own");
        assert!(its.complete, "{:#?}", snapshot.findings);
        let cbs: Vec<_> = its.usage.iter().filter_map(|it| it.usage.cb.as_ref()).collect();
        assert!(
            cbs.len() == 1 && cbs[0].registered_bytes == 512 && cbs[0].resident_bytes == Some(512),
            "{cbs:?}"
        );
        assert!(its.usage.iter().all(|it| it.usage.dfb.is_none()), "{its:?}");
        assert_eq!(
            program.held(0),
            [(32, 32), (128, 128), (0, 0), (128, 128)],
            "the parent's are as they were"
        );
        program.does("close 1");
        assert!(process(&program.snapshot(), parent).unwrap().complete);
        program.tell("exit 0 _exit");
        assert_eq!(program.hear("the parent"), "0");
        assert_eq!(program.kept(), before);
        program.does("replay 1 3 0");
        program.is_faultless();
        program.quits();
    }
}

#[test]
fn a_process_that_is_killed_leaves_none_resident() {
    let mut program = Program::start(ALL[0].0, ALL[0].1);
    program.does("mesh 0 2 0");
    let (_, workload) = program.workload((0, 1), "config 64 data k 0 0 0 0 cb 32 0 0 0 0");
    program.enqueue(1, workload);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert!(program.kept().is_empty());
    assert!(program.snapshot().processes.is_empty());
    assert_eq!(segments(program.folder()).len(), 1, "it leaves a crash segment");
}

#[test]
fn what_is_none_is_not_taken_for_one() {
    // Which of circular buffers, dataflow buffers, scratchpads and kernels are still right.
    let rights = [
        ("programs", [0, 0, 0, 0]),
        ("kernels", [32, 128, 0, 128]),
        // Then its cores are those where it has something.
        ("groups", [32, 128, 32, 0]),
        ("ranges", [0, 128, 32, 128]),
        ("vast", [0, 128, 32, 0]),
        ("pads", [32, 128, 0, 128]),
        ("cbs", [0, 128, 32, 128]),
        ("dfbs", [32, 128, 32, 128]),
        ("null", [32, 128, 32, 128]),
    ];
    for how in [ALL[1], ALL[2]] {
        for (garbage, right) in rights {
            let mut program = Program::start(how.0, how.1);
            program.does("mesh 0 2 0");
            program.does(&format!("garbage {garbage}"));
            let (_, workload) =
                program.workload((0, 0), "config 64 data k 0 0 1 0 cb 32 0 0 0 0 dfb 64 0 0 1 0 pad 16");
            assert_eq!(program.does(&format!("enqueue 1 {workload}")), "fine");
            assert_eq!(program.resident(0), right, "{garbage}");
            program.does("garbage nothing");
            let (_, workload) = program.workload((1, 1), "config 64 data k 0 0 0 0");
            assert_eq!(program.does(&format!("enqueue 1 {workload}")), "fine");
            program.is_exact();
            program.quits();
        }
    }
}

#[test]
fn programs_that_are_none_are_passed_over() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 2 0");
        let own = program.number("program cb 64 0 0 0 0");
        let workload = program.number(&format!("workload 0 0 0 1 1 {own}"));
        program.enqueue(1, workload);
        assert_eq!(program.does("finalize 1 0"), "fine");
        assert_eq!(program.kept(), ["cb 0 @0 64 on [[0,0,0,0]] of [1]"]);
        // Nothing to keep, nowhere to keep it.
        for plan in [
            "cb 0 0 0 0 0",
            "dfb 0 0 0 0 0",
            "cb 64 3 3 2 2",
            "dfb 64 20 20 30 30",
            "cb 64 4 0 3 9",
            "config 64 data k 9 9 8 8",
        ] {
            let (made, workload) = program.workload((0, 0), plan);
            program.enqueue(1, workload);
            assert_eq!(program.held(0), [(0, 0); 4], "{plan}: {:?}", program.kept());
            program.is_faultless();
            program.does(&format!("drop {made} {workload}"));
        }
        program.quits();
    }
}

#[test]
fn a_program_may_keep_very_much() {
    for (build, way) in [ALL[1], ALL[2]] {
        let mut program = Program::start(build, way);
        program.does("mesh 0 1 0");
        let mut plan = "config 64".to_owned();
        for n in 0..600 {
            let (space, bytes, x, y) = (["cb", "dfb"][n % 2], 16 + n / 2 % 3 * 16, n % 8, n / 8 % 8);
            let _ = write!(plan, " {space} {bytes} {x} {y} {x} {y}");
        }
        // The same view again and again, from one batch to the next.
        for n in 0..300 {
            let _ = write!(plan, " view {} 64 0 0 0 0", 500_000 + n % 290 * 64);
        }
        let (made, workload) = program.workload((0, 0), &plan);
        program.enqueue(1, workload);
        let held = program.held(0);
        assert_eq!(held[0], (300 * 32, 300 * 32));
        assert_eq!(held[1], (300 * 32, 300 * 32));
        assert_eq!(program.kept().iter().filter(|it| it.ends_with("view")).count(), 290);
        program.is_faultless();
        program.does(&format!("drop {made} {workload}"));
        assert!(program.kept().is_empty());
        program.quits();
    }
}

#[test]
fn more_programs_than_there_are_places_for() {
    let mut program = Program::start(Build::Plain, Way::Linked);
    program.does("mesh 0 1 0");
    program.does("many 1 70000 70000 1");
    let held = program.held(0);
    assert_eq!(held[1].1, 64, "{held:?}");
    assert_eq!(program.kept().len(), 2 * 49_152);
    // What could not be followed is not kept quiet.
    assert!(!program.process().complete);
    let lost = program.finding(FindingKind::LostRecords).unwrap();
    assert_eq!(lost.count, 70_000 - 49_152);
    program.does("many 1 10 0 1");
    assert!(program.kept().is_empty(), "{}", program.kept().len());
    let (_, workload) = program.workload((0, 0), "cb 64 5 5 5 5");
    program.enqueue(1, workload);
    assert_eq!(program.held(0)[0], (64, 64));
    program.quits();
}

#[test]
fn programs_come_and_go_without_end() {
    let mut program = Program::start(Build::Plain, Way::Linked);
    program.does("mesh 0 1 0");
    // More than there are places for programs, and for notes, many times over.
    for alive in [0, 0, 0, 0, 0, 0, 0, 0, 0, 100] {
        program.does(&format!("many 1 100000 {alive} 1"));
    }
    assert_eq!(program.kept().len(), 2 * 100);
    assert_eq!(program.resident(0), [0, 64, 0, 128]);
    program.is_faultless();
    program.quits();
}

/// Old programs that stay make those that come and go no slower: they are found, and not found, in a few steps.
#[test]
fn many_that_stay_are_in_nobodys_way() {
    let mut times = Vec::new();
    for staying in [0, 40_000] {
        let mut program = Program::start(Build::Plain, Way::Linked);
        program.does("mesh 0 1 0");
        program.does(&format!("many 1 {} {staying} 0", staying.max(1)));
        program.does(&format!("many 1 {} 1 0", 66_000 - staying));
        let before = program.cpu_time();
        program.does("many 1 30000 1 0");
        times.push(program.cpu_time().saturating_sub(before));
        program.quits();
    }
    assert!(times[1] < times[0] * 3, "{times:?}");
}

#[test]
fn programs_live_and_die_in_many_threads() {
    for (build, way) in
        [(Build::Plain, Way::Loading), (Build::Address, Way::Linked), (Build::Thread, Way::Linked)]
    {
        let mut program = Program::start(build, way);
        program.does("mesh 20 1 0");
        let (_, workload) = program.workload((0, 0), "config 64 data k 0 0 0 0 cb 32 0 0 0 0");
        program.enqueue(1, workload);
        program.does("lives 8 60");
        assert_eq!(program.kept().len(), 2, "{:?}", program.kept());
        assert_eq!(program.resident(20), [32, 0, 0, 64]);
        program.is_exact();
        program.quits();
    }
}

/// A workload that somebody kept is what it was on the mesh that was opened again.
#[test]
fn a_program_may_be_dispatched_on_a_mesh_that_was_opened_again() {
    for (build, way) in ALL {
        let mut program = Program::start(build, way);
        program.does("mesh 0 2 0");
        let (_, workload) = program.workload((1, 1), "config 64 data k 0 0 0 0 cb 32 0 0 0 0 dfb 64 0 0 0 0");
        program.enqueue(1, workload);
        program.does("close 1");
        assert!(program.kept().is_empty());
        let mesh = program.number("mesh 0 2 0");
        program.enqueue(mesh, workload);
        assert_eq!(program.resident(1), [32, 64, 0, 64]);
        assert_eq!(program.resident(0), [0; 4]);
        program.is_faultless();
        program.quits();
    }
}
