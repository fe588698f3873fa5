//! Runtimes of other versions, and runtimes that lack functions.

use crate::make::{self, Build, Linkage, Vintage};
use crate::{ALLOCATE, BEFORE_FREE, FATAL, INT, Program, segments};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The agent's table of the runtime's functions: the kind of each entry, and its symbol.
fn table() -> Vec<(&'static str, &'static str)> {
    let lines = include_str!("../../../ttmem-agent/src/runtime.def").lines();
    let mut kind = "";
    let symbol = |line: &'static str| {
        if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            kind = line.split('(').next()?;
        }
        Some((kind, line.split('"').nth(1)?))
    };
    lines.filter(|line| !line.starts_with(['/', '#'])).filter_map(symbol).collect()
}

/// The symbols that a library exports.
fn exports(library: &Path) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    let output = nm.args(["-D", "--defined-only", "--format=just-symbols"]).arg(library).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn stand_in_has_every_symbol_of_the_agents_table() {
    let exported = exports(make::library(Build::Plain, Vintage::New));
    let is_of_the_language = |&(kind, symbol): &(&str, &str)| {
        kind == "CXX"
            || symbol == "_ZdlPv"
            || symbol.starts_with("_ZSt")
            || symbol.starts_with("_ZNSt")
            || symbol.starts_with("__cxa")
    };
    let known: Vec<_> = table().into_iter().filter(|it| !is_of_the_language(it)).collect();
    assert!(known.len() > 80, "{known:?}");
    let missing: Vec<_> = known.iter().filter(|(_, symbol)| !exported.contains(*symbol)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Every exported symbol would replace another library's of the same name.
#[test]
fn agent_exports_its_hooks_and_little_else() {
    let hooks = table().into_iter().filter(|(kind, _)| ["HOOK", "ALIAS"].contains(kind));
    let mut expected: BTreeSet<String> = hooks.map(|(_, symbol)| symbol.to_owned()).collect();
    assert!(expected.len() > 20, "{expected:?}");
    // For `ttmem-client` in the same process.
    let for_clients = ["yield", "reset_peaks", "set_track", "mark"];
    expected.extend(for_clients.map(|name| format!("ttmem_agent_{name}")));
    // For these tests and benchmarks. `agent.rs` of xtask checks that a release build lacks them.
    let probes =
        ["cost", "events", "figures", "hold_texts", "keep_native_frames", "keep_sites", "site", "switch"];
    expected.extend(probes.map(|probe| format!("ttmem_agent_{probe}")));
    assert_eq!(exports(&ttmem_testkit::agent()), expected);
}

#[test]
fn old_runtime_is_tracked() {
    for build in [Build::Plain, Build::Address] {
        let mut program = Program::start_with(build, Linkage::Loaded, Vintage::Old, &[]);
        program.run("mesh 0 2 4096");
        for command in [
            "alloc 1 dram 30 100",
            "alloc 1 l1 48 200",
            "alloc 1 l1 2048 7 on 0 0 6 0 7 0",
            "alloc 1 l1_small 16 1",
            "alloc 1 trace 4096 2",
        ] {
            program.number(command);
        }
        program.check_figures();
        let requested: u64 =
            program.allocations().iter().map(|it| it["requested_bytes"].as_u64().unwrap()).sum();
        assert_eq!(requested, 30 * 100 + 48 * 200 + 2048 * 7 + 16 + 2 * 4096);
        program.fail_next(INT, ALLOCATE, 3);
        assert_eq!(program.run("alloc 1 dram 64 1"), "int 3");
        assert_eq!(program.run("shrink 1 l1 4096"), "fine");
        program.check_figures();
        program.run("clear 1");
        program.check_figures();
        program.run("close 1");
        let process = program.process();
        let tracker = process.tracker.unwrap();
        assert!(tracker.missing_hooks.is_empty(), "hooks of newer runtimes are not missing: {tracker:?}");
        program.quit();
    }
}

#[test]
fn runtime_without_required_functions_is_not_tracked() {
    for (build, linkage, vintage) in [
        (Build::Plain, Linkage::Loaded, Vintage::Broken),
        // Without a C++ library to catch exceptions with.
        (Build::Plain, Linkage::Sealed, Vintage::Sealed),
    ] {
        let mut program = Program::start_with(build, linkage, vintage, &[]);
        program.run("mesh 0 2 4096");
        program.run("device 3");
        let buffer = program.number("alloc 1 dram 2048 24");
        for when in [ALLOCATE, BEFORE_FREE] {
            program.fail_next(FATAL, when, 3);
            let command =
                if when == ALLOCATE { "alloc 1 dram 64 1".to_owned() } else { format!("free {buffer}") };
            assert_eq!(program.run(&command), "fatal 3 injected", "{vintage:?}");
        }
        for command in ["mirror 2 1000000 64", "mirror 2 1000000 0", "shrink 1 l1 4096", "shrink 1 l1 0"] {
            program.run(command);
        }
        for command in ["override 1 dram 0 64", "bulk 1", "clear 1", "threads 1 2 100", "close 2"] {
            program.run(command);
        }
        exercise_programs(&mut program);
        let (_, workload) = program.workload((0, 0), "dfb 64 0 0 0 0");
        for (function, command) in [
            ("finalize_program_offsets", format!("enqueue 1 {workload}")),
            ("allocate_dataflow_buffers", format!("compile 1 {workload}")),
            ("EnqueueMeshWorkload", format!("enqueue 1 {workload}")),
            ("begin_mesh_trace", "begin 1 0 0".to_owned()),
            ("end_mesh_trace", "end 1 0 0".to_owned()),
            ("replay_mesh_trace", "replay 1 0 0".to_owned()),
            ("release_mesh_trace", "release 1 0".to_owned()),
            ("fabric", "fabric 1".to_owned()),
            ("fabric", "fabric_before 1".to_owned()),
        ] {
            program.run(&format!("throwing {function}"));
            // Dataflow buffers that are placed already are not placed again, so that one does not throw.
            let expected = format!("fatal -1 {function}");
            let answer = program.run(&command);
            assert!(answer == expected || function.starts_with("alloc"), "{vintage:?}: {answer}");
        }
        program.run("throwing nothing");
        program.run("dispatch 1");
        assert!(segments(program.folder()).is_empty(), "{vintage:?}");
        let tasks = format!("/proc/{}/task", program.pid());
        assert_eq!(std::fs::read_dir(tasks).unwrap().count(), 1, "no thread");
        program.quit();
    }
}

#[test]
fn unknown_buffer_layout_is_not_misread() {
    let mut program = Program::start_with(Build::Plain, Linkage::Loaded, Vintage::Moved, &[]);
    program.run("mesh 0 1 0");
    let buffer = program.number("alloc 1 dram 2048 24");
    program.number("alloc 1 l1 128 1");
    assert!(program.allocations().is_empty());
    let (code, report) = program.run_check();
    assert_eq!((code, &report["drifting"]), (1, &2.into()), "{report}");
    assert_eq!(program.run(&format!("free {buffer}")), "fine");
    assert_eq!(program.run_check().1["drifting"], 1);
    program.quit();
}

/// Builds, dispatches, changes, captures and replays a program. Returns the mesh and the workload.
fn exercise_programs(program: &mut Program) -> (u64, u64) {
    let mesh = program.number("mesh 0 2 0");
    let (made, workload) = program.workload(
        (1, 1),
        "config 64 data k 0 0 0 0 cb 32 0 0 0 0 view 500000 64 0 0 0 0 dfb 64 0 0 0 0 pad 16",
    );
    program.run(&format!("resize dfb {made}"));
    assert_eq!(program.run(&format!("compile {mesh} {workload}")), "fine");
    program.enqueue(mesh, workload);
    program.run(&format!("move {made} 600000"));
    program.enqueue(mesh, workload);
    program.run(&format!("resize cb {made} 48"));
    program.enqueue(mesh, workload);
    for step in ["begin", "end", "replay", "release"] {
        assert_eq!(program.run(&format!("{step} {mesh} 0 0")), "fine");
    }
    (mesh, workload)
}

#[test]
fn runtime_without_one_function_is_tracked() {
    const PROGRAM: &str = "_ZN2tt8tt_metal6detail11ProgramImpl";
    const CONST_PROGRAM: &str = "_ZNK2tt8tt_metal6detail11ProgramImpl";
    const MESH: &str = "_ZN2tt8tt_metal11distributed14MeshDeviceImpl";
    const TRACE: &str = "hRKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE";
    // The missing function and its symbol, the missing hooks, and the memory still seen as resident on the second chip.
    let (all, nothing) = ([48, 64, 16, 64], [0; 4]);
    let lacking: [(&str, String, &[&str], [u64; 4]); 18] = [
        ("get_id", format!("{CONST_PROGRAM}6get_idEv"), &["programs"], nothing),
        (
            "circular_buffers",
            format!("{CONST_PROGRAM}16circular_buffersEv"),
            &["circular_buffers"],
            [0, 64, 16, 64],
        ),
        (
            "cb_address",
            "_ZNK2tt8tt_metal18CircularBufferImpl7addressEv".into(),
            &["circular_buffers"],
            [0, 64, 16, 64],
        ),
        ("get_kernels", format!("{PROGRAM}11get_kernelsEj"), &["kernels"], [48, 64, 0, 64]),
        ("get_kernel_groups", format!("{PROGRAM}17get_kernel_groupsEj"), &["kernels"], [48, 64, 16, 0]),
        ("config_size", format!("{PROGRAM}23get_program_config_sizeEj"), &["kernels"], [48, 64, 16, 0]),
        ("name", "_ZNK2tt8tt_metal6Kernel4nameB5cxx11Ev".into(), &["kernels"], all),
        ("overrides", format!("{PROGRAM}24apply_dfb_size_overrides*"), &[], all),
        ("scratchpads", format!("{PROGRAM}20allocate_scratchpads*"), &[], [48, 64, 0, 64]),
        (
            "mark_address",
            format!("{PROGRAM}23CircularBufferAllocator12mark_addressEmmm"),
            &["dataflow_buffers"],
            [48, 0, 16, 64],
        ),
        (
            "place_dfbs",
            format!("{PROGRAM}25allocate_dataflow_buffers*"),
            &["dataflow_buffers"],
            [48, 0, 16, 64],
        ),
        ("finalize", format!("{PROGRAM}24finalize_program_offsets*"), &["programs"], nothing),
        (
            "workload",
            "_ZN2tt8tt_metal11distributed16MeshWorkloadImpl16finalize_offsets*".into(),
            &["programs"],
            all,
        ),
        (
            "get_programs",
            "_ZN2tt8tt_metal11distributed12MeshWorkload12get_programsEv".into(),
            &["dispatch"],
            nothing,
        ),
        ("get_view", "_ZNK2tt8tt_metal11distributed10MeshDevice8get_viewEv".into(), &["programs"], all),
        ("impl_id", "_ZNK2tt8tt_metal11distributed14MeshDeviceImpl2idEv".into(), &["traces"], all),
        ("begin_trace", format!("{MESH}16begin_mesh_traceE{TRACE}"), &["traces"], all),
        (
            "grid",
            "_ZNK2tt8tt_metal11distributed10MeshDevice30compute_with_storage_grid_sizeEv".into(),
            &["cores"],
            all,
        ),
    ];
    for (what, name, missing, resident) in lacking {
        let library = make::library_without(Build::Plain, what, &[&name]);
        let mut program = Program::start_library(Build::Plain, Linkage::Loaded, &library, &[]);
        let (mesh, workload) = exercise_programs(&mut program);
        assert_eq!(program.resident(1), resident, "{what}: {:?}", program.program_memory());
        assert_eq!(program.process().tracker.unwrap().missing_hooks, missing, "{what}");
        program.expect_no_findings();
        program.run(&format!("close {mesh}"));
        assert!(program.program_memory().is_empty(), "{what}");
        program.run(&format!("drop {workload}"));
        program.quit();
    }
}

#[test]
fn fields_at_unknown_offsets_are_not_read() {
    for build in [Build::Plain, Build::Address] {
        let mut program = Program::start_with(build, Linkage::Loaded, Vintage::Unknown, &[]);
        exercise_programs(&mut program);
        assert_eq!(program.resident(1), [48, 64, 0, 64]);
        // Dataflow buffers are then on all ranges that share a core with them, and those that borrow a buffer are not seen.
        let plan = "dfb 64 0 0 7 7 dfb 32 0 0 3 3 borrow 800000 96 2 2 4 4";
        let (_, workload) = program.workload((0, 0), plan);
        program.enqueue(1, workload);
        let memory = program.program_memory();
        let on_chip: Vec<&str> = memory.iter().map(String::as_str).filter(|it| it.ends_with("[0]")).collect();
        assert_eq!(on_chip, ["dfb 1 @0 64 on [[0,0,7,7]] of [0]", "dfb 1 @64 32 on [[0,0,7,7]] of [0]"]);
        assert_eq!(program.process().tracker.unwrap().missing_hooks, ["dataflow_buffers", "scratchpads"]);
        program.expect_no_findings();
        program.quit();
        let mut program = Program::start_with(build, Linkage::Loaded, Vintage::Old, &[]);
        exercise_programs(&mut program);
        assert_eq!(program.resident(1), [48, 64, 16, 64]);
        assert!(program.process().tracker.unwrap().missing_hooks.is_empty());
        program.expect_no_findings();
        program.quit();
        // Something else is at the offset of a workload's programs.
        let mut program = Program::start_with(build, Linkage::Loaded, Vintage::Moved, &[]);
        exercise_programs(&mut program);
        assert_eq!(program.resident(1), [0; 4]);
        program.expect_no_findings();
        program.quit();
    }
}
