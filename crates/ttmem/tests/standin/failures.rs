//! What the runtime refuses is recorded, with what was allocated then; the exception stays the program's own.

use crate::make::{Linkage, Vintage};
use crate::{ALL, Program};
use serde_json::Value;
use ttmem_core::snapshot::{Finding, FindingKind};

/// A function of the runtime, what it says, and the finding.
const REFUSALS: [(&str, &str, FindingKind); 6] = [
    (
        "allocate_buffer",
        "Out of Memory: Not enough space to allocate 4096 B DRAM buffer across 12 banks, where each bank needs to store 2048 B, but \
         bank size is 1073741824 B (allocated: 0 B, free: 1000 B, largest free block: 500 B).",
        FindingKind::OutOfMemory,
    ),
    ("allocate_buffer", "L1_SMALL only supports sharded allocations", FindingKind::Unsupported),
    (
        "validate_circular_buffer_region",
        "Statically allocated circular buffers in program 1 clash with L1 buffers on core range [0-0 - 3-1]. L1 buffer allocated at \
         106000 and static circular buffer region ends at 200000",
        FindingKind::Clash,
    ),
    (
        "validate_dataflow_buffer_region",
        "Statically allocated dataflow buffers on core range [0-0 - 3-1] grow to 2000000 B which is beyond max L1 size of 1499136 B",
        FindingKind::ProgramTooLarge,
    ),
    (
        "finalize_program_offsets",
        "Program size (114944) too large for kernel config buffer (70656) on TENSIX",
        FindingKind::ProgramTooLarge,
    ),
    (
        "end_mesh_trace",
        "Creating trace buffers of size 8192B on MeshDevice 1, but only 4096B is allocated for trace region.",
        FindingKind::TraceTooLarge,
    ),
];

const PLAN: &str = "config 64 compute add 0 0 3 1 cb 2048 0 0 3 1 dfb 512 0 0 3 1";

/// Makes the program call a function that refuses, and returns what the program catches.
fn provoke(program: &mut Program, function: &str, text: &str) -> String {
    let (_, workload) = program.workload((0, 1), PLAN);
    program.run(&format!("refuse {function} {text}"));
    let command = match function {
        "allocate_buffer" => "alloc 1 dram 2048 24".to_owned(),
        "end_mesh_trace" => {
            assert_eq!(program.run("begin 1 7 0"), "fine");
            "end 1 7 0".to_owned()
        }
        _ => format!("enqueue 1 {workload}"),
    };
    let caught = program.run(&command);
    program.run("refuse nothing -");
    caught
}

fn post_mortem(program: &Program) -> Value {
    let output = program.ttmem(&["postmortem", "--json", &program.pid().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn refusals_are_recorded_and_reach_the_program_unchanged() {
    for (build, linkage) in ALL {
        for (function, text, kind) in REFUSALS {
            let mut program = Program::start(build, linkage);
            assert_eq!(program.run("mesh 0 2 4096"), "1");
            program.number("alloc 1 l1 2048 24");
            assert_eq!(provoke(&mut program, function, text), format!("error {text}"));
            let finding: Finding = program.finding(kind).unwrap_or_else(|| panic!("no finding for {text}"));
            assert_eq!(finding.count, 1, "{}", finding.text);
            let found = post_mortem(&program);
            assert_eq!((&found["exact"], &found["pid"]), (&true.into(), &program.pid().into()), "{found}");
            assert_eq!(found["failure"]["sequence"], finding.failure.unwrap().sequence.unwrap(), "{found}");
            program.check_figures();
            program.quit();
        }
    }
}

#[test]
fn texts_are_extended_only_on_request() {
    for (build, linkage) in ALL.into_iter().filter(|(_, linkage)| *linkage != Linkage::Linked) {
        let env = [("TTMEM_EXPLAIN", "1")];
        let mut program = Program::start_with(build, linkage, Vintage::New, &env);
        assert_eq!(program.run("mesh 0 2 4096"), "1");
        program.number("alloc 1 l1 2048 24");
        for (function, text, _) in REFUSALS {
            let caught = provoke(&mut program, function, text);
            let rest =
                caught.strip_prefix(&format!("error {text}|ttmem:|")).unwrap_or_else(|| panic!("{caught}"));
            assert!(rest.contains(&format!("full report: ttmem postmortem {}", program.pid())), "{rest}");
        }
        // Exceptions of other types, and of other texts, are left alone.
        assert_eq!(provoke(&mut program, "allocate_buffer", "something else"), "error something else");
        program.check_figures();
        program.quit();
    }
}
