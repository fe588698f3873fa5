//! Programs: their memory, where it is, and which of them is resident.

use crate::make::{Build, Linkage, Vintage};
use crate::{ALL, Program};
use serde_json::Value;
use std::fmt::Write;
use ttmem_core::snapshot::ProgramUsage;

/// Address of a program's first circular buffer.
pub(crate) const BASE: u64 = 105_824;

/// An allocation of a program as a line: space, program, address, bytes on each core, cores and chips, whether it is a view,
/// and the class of a kernel.
fn describe(allocation: &Value) -> String {
    let id = allocation["id"].as_str().unwrap().trim_start_matches("0x");
    let address = u64::from_str_radix(id, 16).unwrap();
    let space = allocation["space"].as_str().unwrap();
    let at =
        if space == "kernel" { String::new() } else { format!("@{} ", address.wrapping_sub(BASE) as i64) };
    let view = if allocation["layout"] == "view" { " view" } else { "" };
    let class = allocation["kernel"].as_str().map(|it| format!(" {it}")).unwrap_or_default();
    format!(
        "{space} {} {at}{} on {} of {}{view}{class}",
        allocation["program"], allocation["bytes_per_bank"], allocation["cores"], allocation["indexes"]
    )
}

impl Program {
    /// All allocations of programs, as sorted lines.
    pub(crate) fn program_memory(&self) -> Vec<String> {
        let of_programs =
            |it: &&Value| ["cb", "dfb", "scratch", "kernel"].iter().any(|space| it["space"] == *space);
        let mut lines: Vec<String> = self.allocations().iter().filter(of_programs).map(describe).collect();
        lines.sort_unstable();
        lines
    }

    /// Registered and resident bytes on a chip: circular buffers, dataflow buffers, scratchpads, kernels.
    pub(crate) fn program_usage(&self, chip: u64) -> [(u64, u64); 4] {
        let process = self.process();
        let id = format!("0x{:016x}", 0x5717_d100 + chip);
        let Some(device) = process.usage.iter().find(|it| it.device == id) else { return [(0, 0); 4] };
        let usage = &device.usage;
        let figures = |of: &Option<ProgramUsage>| {
            of.as_ref().map_or((0, 0), |it| (it.registered_bytes, it.resident_bytes.unwrap_or(0)))
        };
        [&usage.cb, &usage.dfb, &usage.scratch, &usage.kernel].map(figures)
    }

    /// Resident bytes of each kind on a chip.
    pub(crate) fn resident(&self, chip: u64) -> [u64; 4] {
        self.program_usage(chip).map(|it| it.1)
    }

    /// Creates a program and a workload of it alone, on some chips; returns both numbers.
    pub(crate) fn workload(&mut self, chips: (u32, u32), plan: &str) -> (u64, u64) {
        let program = self.number(&format!("program {plan}"));
        (program, self.number(&format!("workload {} {} {program}", chips.0, chips.1)))
    }

    pub(crate) fn enqueue(&mut self, mesh: u64, workload: u64) {
        assert_eq!(self.run(&format!("enqueue {mesh} {workload}")), "fine");
    }

    /// The programs: number, name and class.
    fn list_programs(&self) -> Vec<(u64, String, String)> {
        let output = self.ttmem(&["dump", "--programs", "--json"]);
        let dump: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let of = |it: &Value| (it["id"].as_u64().unwrap(), text(&it["name"]), text(&it["class"]));
        dump["programs"].as_array().unwrap().iter().map(of).collect()
    }

    /// Checks that there are no findings and no missed events.
    pub(crate) fn expect_no_findings(&self) {
        assert!(self.process().complete, "{:#?}", self.snapshot().findings);
        assert!(self.snapshot().findings.is_empty(), "{:#?}", self.snapshot().findings);
    }
}

#[test]
fn all_memory_of_a_program_is_listed() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 2 0");
        let plan = "config 4096 compute add 0 0 3 1 and 5 5 5 5 data reader 7 7 7 7 cb 2048 0 0 3 1 and 5 5 5 5 cb 100 0 0 0 0 \
                    view 900000 8192 0 0 3 1 dfb 512 0 0 1 0 and 0 1 1 1 dfb 48 7 7 7 7 pad 160 borrow 800000 64 0 0 0 0";
        let (made, workload) = program.workload((0, 1), plan);
        assert!(program.program_memory().is_empty(), "it is not built");
        program.run(&format!("compile 1 {workload}"));
        let kept = program.program_memory();
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
        let [cb, dfb, scratch, kernel] = program.program_usage(1);
        let figures = [9 * 2048 + 100, 4 * 512 + 48, 10 * 160, 10 * 4096];
        assert_eq!([cb, dfb, scratch, kernel], figures.map(|it| (it, 0)), "a view counts nothing");
        program.enqueue(1, workload);
        assert_eq!(program.program_usage(0), figures.map(|it| (it, it)));
        // The address of the borrowed buffer is known after the dispatch.
        expected[3] = "dfb 0 @694176 64 on [[0,0,0,0]] of [0,1] view";
        expected.sort_unstable();
        assert_eq!(program.program_memory(), expected);
        program.expect_no_findings();
        program.run(&format!("drop {made} {workload}"));
        assert!(program.program_memory().is_empty());
        assert_eq!(program.program_usage(0), [(0, 0); 4]);
        program.expect_no_findings();
        program.quit();
    }
}

/// Eight programs are compiled at once, each for its own chip.
#[test]
fn programs_compiled_in_parallel_are_separate() {
    for (build, linkage) in
        [(Build::Plain, Linkage::Loaded), (Build::Address, Linkage::Linked), (Build::Thread, Linkage::Linked)]
    {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 8 0");
        for round in 0..20 {
            let mut command = "workload".to_owned();
            let mut expected = Vec::new();
            let mut made = Vec::new();
            for chip in 0..8 {
                let bytes = 64 * (chip + 1);
                let number = program.number(&format!(
                    "program config 32 data k 0 0 7 7 dfb {bytes} 0 {chip} 7 {chip} dfb 16 0 0 7 7"
                ));
                let _ = write!(command, " {chip} {chip} {number}");
                let id = round * 8 + chip;
                expected.push(format!("dfb {id} @0 {bytes} on [[0,{chip},7,{chip}]] of [{chip}]"));
                expected.push(format!("dfb {id} @{bytes} 16 on [[0,0,7,7]] of [{chip}]"));
                expected.push(format!("kernel {id} 32 on [[0,0,7,7]] of [{chip}] application"));
                made.push(number.to_string());
            }
            let workload = program.number(&command);
            program.enqueue(1, workload);
            expected.sort_unstable();
            assert_eq!(program.program_memory(), expected);
            assert_eq!(program.resident(7), [0, 8 * 512 + 64 * 16, 0, 64 * 32]);
            program.run(&format!("drop {workload} {}", made.join(" ")));
        }
        program.expect_no_findings();
        assert!(program.program_memory().is_empty());
        program.quit();
    }
}

#[test]
fn meshes_and_submeshes_have_their_own_programs() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        for mesh in ["mesh 0 4 0", "mesh 1 2 0", "mesh 4 2 0"] {
            program.run(mesh);
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
            program.program_memory(),
            [
                "cb 0 @0 64 on [[0,0,0,0]] of [0,1,2,3]",
                "cb 1 @0 128 on [[0,0,0,0]] of [2,3]",
                "cb 2 @0 256 on [[0,0,0,0]] of [1]",
                "cb 3 @0 512 on [[0,0,0,0]] of [4,5]"
            ]
        );
        // The program that was dispatched last on a core is resident, through whichever mesh.
        assert_eq!([0, 1, 2, 3, 4, 5].map(|chip| program.resident(chip)[0]), [64, 256, 128, 128, 512, 512]);
        program.run("close 2");
        assert_eq!(program.program_memory().len(), 3);
        program.run("close 1");
        assert_eq!(program.program_memory(), ["cb 3 @0 512 on [[0,0,0,0]] of [4,5]"]);
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn last_dispatched_program_is_resident() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 0");
        let (_, first) = program.workload((0, 0), "config 16 data a 0 0 3 0 cb 64 0 0 3 0");
        let (second, over) = program.workload((0, 0), "config 32 data b 2 0 5 0 dfb 128 2 0 5 0");
        program.enqueue(1, first);
        assert_eq!(program.resident(0), [4 * 64, 0, 0, 4 * 16]);
        program.run(&format!("compile 1 {over}"));
        assert_eq!(program.resident(0), [4 * 64, 0, 0, 4 * 16], "built is not dispatched");
        program.enqueue(1, over);
        assert_eq!(program.resident(0), [2 * 64, 4 * 128, 0, 2 * 16 + 4 * 32]);
        program.enqueue(1, first);
        assert_eq!(program.resident(0), [4 * 64, 2 * 128, 0, 4 * 16 + 2 * 32]);
        program.run(&format!("drop {over} {second}"));
        assert_eq!(program.program_usage(0)[1], (0, 0));
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn program_at_a_reused_address_is_new() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 0");
        program.run("reuse 1");
        for n in 1..=20u64 {
            let plan = match n % 4 {
                0 => format!("dfb {} 0 0 0 0", n * 16),
                1 => format!("cb {} 0 0 0 0", n * 16),
                // It does not have the dataflow buffer of the program before.
                2 => format!("config {} data k 0 0 0 0", n * 16),
                _ => format!("view 500000 {} 0 0 0 0", n * 16),
            };
            let (made, workload) = program.workload((0, 0), &plan);
            if n % 3 != 0 {
                program.enqueue(1, workload);
            } else {
                program.run(&format!("compile 1 {workload}"));
            }
            let kept = program.program_memory();
            assert_eq!(kept.len(), 1, "{kept:?}");
            assert!(
                kept[0].contains(&format!(" {} ", n - 1)) && kept[0].contains(&format!(" {} on", n * 16)),
                "{kept:?}"
            );
            program.run(&format!("drop {made} {workload}"));
        }
        // A program that is never built leaves nothing to the next one.
        let (made, workload) = program.workload((0, 0), "dfb 64 0 0 0 0");
        program.run("throwing finalize_program_offsets");
        assert_eq!(program.run(&format!("enqueue 1 {workload}")), "fatal -1 finalize_program_offsets");
        program.run("throwing nothing");
        program.run(&format!("drop {made} {workload}"));
        let (_, workload) = program.workload((0, 0), "config 16 data k 0 0 0 0");
        program.enqueue(1, workload);
        assert_eq!(program.program_memory(), ["kernel 21 16 on [[0,0,0,0]] of [0] application"]);
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn dataflow_buffers_are_on_their_own_cores_only() {
    let plan = "dfb 64 0 0 7 7 dfb 32 0 0 3 3 dfb 16 2 2 5 5 dfb 48 0 0 1 1 and 6 6 6 6 dfb 80 0 0 7 7 borrow 800000 96 2 2 4 4";
    for vintage in [Vintage::New, Vintage::Old] {
        for (build, linkage) in ALL {
            let mut program = Program::start_with(build, linkage, vintage, &[]);
            program.run("mesh 0 1 0");
            let (_, workload) = program.workload((0, 0), plan);
            program.enqueue(1, workload);
            let expected = [
                "dfb 0 @0 64 on [[0,0,7,7]] of [0]",
                "dfb 0 @112 48 on [[0,0,1,1],[6,6,6,6]] of [0]",
                "dfb 0 @160 80 on [[0,0,7,7]] of [0]",
                "dfb 0 @64 32 on [[0,0,3,3]] of [0]",
                "dfb 0 @694176 96 on [[2,2,4,4]] of [0] view",
                "dfb 0 @96 16 on [[2,2,5,5]] of [0]",
            ];
            assert_eq!(program.program_memory(), expected, "{vintage:?}");
            let bytes = 64 * (64 + 80) + 16 * (32 + 16) + 5 * 48;
            assert_eq!(program.resident(0), [0, bytes, 0, 0]);
            assert!(program.process().tracker.unwrap().missing_hooks.is_empty());
            program.expect_no_findings();
            program.quit();
        }
    }
}

#[test]
fn changes_between_dispatches_are_recorded() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 0");
        let (made, workload) =
            program.workload((0, 0), "cb 64 0 0 1 0 view 500000 4096 0 0 1 0 dfb 32 0 0 1 0 dfb 64 2 0 2 0");
        program.enqueue(1, workload);
        for address in [500_000_u64, 600_000, 600_000, 700_000] {
            program.run(&format!("move {made} {address}"));
            program.enqueue(1, workload);
            let view = format!("cb 0 @{} 4096 on [[0,0,1,0]] of [0] view", address - BASE);
            assert!(program.program_memory().contains(&view), "{:?}", program.program_memory());
            assert_eq!(program.program_memory().len(), 4);
            assert_eq!(program.resident(0), [2 * 64, 2 * 32 + 64, 0, 0]);
        }
        program.run(&format!("resize cb {made} 256"));
        assert_eq!(program.program_usage(0)[0], (128, 128), "until it is dispatched");
        program.enqueue(1, workload);
        assert_eq!(program.program_usage(0)[0], (512, 512));
        assert_eq!(program.run("unplaced"), "0");
        program.run(&format!("resize dfb {made}"));
        program.run(&format!("resize dfb {made} 128"));
        program.enqueue(1, workload);
        assert_eq!(program.program_usage(0)[1], (3 * 128, 3 * 128));
        program.run(&format!("drop {made} {workload}"));
        // A program with a circular buffer only.
        let (made, workload) = program.workload((0, 0), "cb 64 0 0 1 0");
        program.enqueue(1, workload);
        program.run(&format!("resize cb {made} 256"));
        program.enqueue(1, workload);
        assert_eq!(program.program_usage(0)[0], (512, 512));
        program.expect_no_findings();
        program.quit();
    }
}

/// In slow dispatch a program is placed after it is built.
#[test]
fn program_is_not_read_before_it_is_placed() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 3 0");
        program.run("slow 1");
        let (_, workload) =
            program.workload((1, 2), "config 64 data k 0 0 1 0 cb 64 0 0 1 0 dfb 32 0 0 1 0 pad 16");
        for _ in 0..2 {
            program.enqueue(1, workload);
            assert_eq!(program.run("unplaced"), "0");
            assert_eq!(
                program.program_memory(),
                [
                    "cb 0 @0 64 on [[0,0,1,0]] of [1,2]",
                    "dfb 0 @64 32 on [[0,0,1,0]] of [1,2]",
                    "kernel 0 64 on [[0,0,1,0]] of [1,2] application",
                    "scratch 0 @96 16 on [[0,0,1,0]] of [1,2]"
                ]
            );
            assert_eq!(program.program_usage(0), [(0, 0); 4]);
            assert_eq!(program.resident(2), [128, 64, 32, 128]);
        }
        // Of a program that is never dispatched, only the kernel is known.
        let alone = program.number("program config 32 data alone 4 4 4 4 cb 64 4 4 4 4");
        program.run("device 9");
        assert_eq!(program.run(&format!("finalize 1 {alone}")), "fine");
        assert_eq!(program.run("unplaced"), "0");
        assert_eq!(program.program_usage(0), [(0, 0), (0, 0), (0, 0), (32, 0)]);
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn runtimes_own_programs_have_their_class() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 1 0");
        let kinds = [
            ("fabric 1", "fabric"),
            ("fabric_before 1", "fabric"),
            ("dispatch 1", "dispatch"),
            ("program", "application"),
        ];
        for (maker, kind) in kinds {
            let made = program.number(&format!("{maker} config 64 data k 0 0 0 0 cb 32 0 0 0 0"));
            assert!(program.program_memory().is_empty());
            assert_eq!(program.run(&format!("finalize 1 {made}")), "fine");
            let kept = program.program_memory();
            assert!(kept.len() == 1 && kept[0].ends_with(kind), "{kept:?}");
            let programs = program.list_programs();
            assert!(programs.len() == 1 && programs[0].2 == kind, "{programs:?}");
            program.run(&format!("drop {made}"));
        }
        program.expect_no_findings();
        program.quit();
    }
}

/// Compute kernels come first, and each name occurs once.
#[test]
fn program_is_named_after_its_kernels() {
    let mut program = Program::start(Build::Plain, Linkage::Linked);
    program.run("mesh 0 1 0");
    let plan =
        "data reader 0 0 0 0 data writer 0 0 0 0 compute add 0 0 0 0 data reader 1 0 1 0 cb 32 0 0 0 0";
    let (_, workload) = program.workload((0, 0), plan);
    for step in ["compile", "enqueue", "enqueue"] {
        program.run(&format!("{step} 1 {workload}"));
        let programs = program.list_programs();
        let [(0, name, _)] = &programs[..] else { panic!("{programs:?}") };
        let mut parts: Vec<&str> = name.split('+').collect();
        assert_eq!(parts[0], "add", "{step}: {name}");
        parts.sort_unstable();
        assert_eq!(parts, ["add", "reader", "writer"], "{step}: {name}");
    }
    program.expect_no_findings();
    program.quit();
}

/// The first call into the runtime may be any.
#[test]
fn programs_can_be_created_before_a_device_is_open() {
    for command in ["fabric 0", "fabric_before 0", "program"] {
        for (build, linkage) in ALL {
            let mut program = Program::start(build, linkage);
            let made = program.number(&format!("{command} config 64 data k 0 0 0 0 dfb 32 0 0 0 0"));
            program.run(&format!("resize dfb {made}"));
            let mesh = program.number("mesh 0 1 0");
            let workload = program.number(&format!("workload 0 0 {made}"));
            program.enqueue(mesh, workload);
            assert_eq!(program.program_memory().len(), 2);
            program.expect_no_findings();
            program.quit();
        }
    }
}
