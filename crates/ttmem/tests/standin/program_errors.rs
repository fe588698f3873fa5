//! Programs whose functions throw, or return garbage.

use crate::{ALL, Program};
use ttmem_core::snapshot::FindingKind;

#[test]
fn exceptions_reach_the_caller_and_leave_nothing() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 2 0");
        let plan = "config 64 data k 0 0 1 0 and 3 3 3 3 cb 32 0 0 0 0 dfb 64 0 0 1 0 and 3 3 3 3";
        for function in ["finalize_program_offsets", "allocate_dataflow_buffers"] {
            let (made, workload) = program.workload((0, 0), plan);
            program.run(&format!("throwing {function}"));
            for command in ["enqueue", "compile"] {
                assert_eq!(program.run(&format!("{command} 1 {workload}")), format!("fatal -1 {function}"));
                assert!(program.program_memory().is_empty(), "{function}");
            }
            program.run("throwing nothing");
            program.enqueue(1, workload);
            assert_eq!(program.program_memory().len(), 3, "{function}");
            assert_eq!(program.program_usage(0), [(32, 32), (192, 192), (0, 0), (192, 192)]);
            program.run(&format!("drop {made} {workload}"));
        }
        let (_, workload) = program.workload((0, 0), plan);
        program.run("throwing EnqueueMeshWorkload");
        assert_eq!(program.run(&format!("enqueue 1 {workload}")), "fatal -1 EnqueueMeshWorkload");
        assert_eq!(program.program_usage(0)[0], (32, 0), "built, but not dispatched");
        program.run("throwing fabric");
        assert_eq!(program.run("fabric 1 config 16"), "fatal -1 fabric");
        program.run("throwing nothing");
        program.enqueue(1, workload);
        assert_eq!(program.program_usage(0)[0], (32, 32));
        program.expect_no_findings();
        program.quit();
    }
}

#[test]
fn throwing_getters_do_not_affect_the_workload() {
    for how in [ALL[1], ALL[2]] {
        let mut program = Program::start(how.0, how.1);
        program.run("mesh 0 2 0");
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
            program.run(&format!("throwing {getter}"));
            let (made, workload) = program.workload((0, 1), plan);
            for command in ["compile", "enqueue", "enqueue"] {
                assert_eq!(program.run(&format!("{command} 1 {workload}")), "fine", "{getter}");
            }
            for command in ["begin 1 7 0", "end 1 7 0", "replay 1 7 0", "release 1 7"] {
                assert_eq!(program.run(command), "fine", "{getter}");
            }
            program.run("throwing nothing");
            program.run(&format!("drop {made} {workload}"));
            assert_eq!(program.program_memory(), [""; 0], "{getter}");
        }
        let (_, workload) = program.workload((0, 1), plan);
        program.enqueue(1, workload);
        assert_eq!(program.resident(1), [32, 128, 32, 128]);
        // The program whose number could not be read was lost, which is a finding.
        let findings = program.snapshot().findings;
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!((findings[0].kind, findings[0].count), (FindingKind::LostRecords, 1));
        program.quit();
    }
}

#[test]
fn garbage_is_not_taken_for_program_data() {
    // What is garbage; the circular buffers, dataflow buffers, scratchpads and kernels that are still read; the hooks that are
    // missing from then on.
    let cases: [(&str, [u64; 4], &[&str]); 10] = [
        ("programs", [0, 0, 0, 0], &["dispatch"]),
        ("kernels", [32, 128, 0, 128], &[]),
        // The program's cores are then those of its parts.
        ("groups", [32, 128, 32, 0], &["kernels"]),
        ("ranges", [0, 128, 32, 128], &["circular_buffers"]),
        ("vast", [0, 128, 32, 0], &["circular_buffers", "dataflow_buffers", "kernels"]),
        ("pads", [32, 128, 0, 128], &["scratchpads"]),
        ("cbs", [0, 128, 32, 128], &["circular_buffers"]),
        ("dfbs", [32, 128, 32, 128], &["dataflow_buffers"]),
        ("addresses", [32, 128, 32, 128], &["dataflow_buffers"]),
        ("null", [32, 128, 32, 128], &[]),
    ];
    for how in [ALL[1], ALL[2]] {
        for (garbage, expected, missing) in cases {
            let mut program = Program::start(how.0, how.1);
            program.run("mesh 0 2 0");
            program.run(&format!("garbage {garbage}"));
            let (_, workload) =
                program.workload((0, 0), "config 64 data k 0 0 1 0 cb 32 0 0 0 0 dfb 64 0 0 1 0 pad 16");
            assert_eq!(program.run(&format!("enqueue 1 {workload}")), "fine");
            assert_eq!(program.resident(0), expected, "{garbage}");
            assert_eq!(program.process().tracker.unwrap().missing_hooks, missing, "{garbage}");
            program.run("garbage nothing");
            let (_, workload) = program.workload((1, 1), "config 64 data k 0 0 0 0");
            assert_eq!(program.run(&format!("enqueue 1 {workload}")), "fine");
            program.expect_exact();
            program.quit();
        }
    }
}

#[test]
fn empty_programs_are_ignored() {
    for (build, linkage) in ALL {
        let mut program = Program::start(build, linkage);
        program.run("mesh 0 2 0");
        let own = program.number("program cb 64 0 0 0 0");
        let workload = program.number(&format!("workload 0 0 0 1 1 {own}"));
        program.enqueue(1, workload);
        assert_eq!(program.run("finalize 1 0"), "fine");
        assert_eq!(program.program_memory(), ["cb 0 @0 64 on [[0,0,0,0]] of [1]"]);
        // Parts without bytes or without cores.
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
            assert_eq!(program.program_usage(0), [(0, 0); 4], "{plan}: {:?}", program.program_memory());
            program.expect_no_findings();
            program.run(&format!("drop {made} {workload}"));
        }
        program.quit();
    }
}
