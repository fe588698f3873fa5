//! Native stacks of allocations, in a runtime without an interpreter.

use crate::make::{self, Build, Linkage, Vintage};
use crate::{Program, exe, segments};
use serde_json::Value;
use std::process::Command;

const NATIVE: [(&str, &str); 1] = [("TTMEM_STACKS", "native")];

/// The stack of the only allocation.
fn stack(allocations: &[Value]) -> Vec<&str> {
    assert_eq!(allocations.len(), 1, "{allocations:#?}");
    allocations[0]["stack"].as_array().into_iter().flatten().map(|it| it.as_str().unwrap()).collect()
}

/// Checks that frames with these parts are there, in this order.
fn expect_in_order(stack: &[&str], parts: &[&str]) {
    let mut rest = stack.iter();
    for part in parts {
        assert!(rest.any(|frame| frame.contains(part)), "{part} of {parts:?} is not in {stack:#?}");
    }
}

/// What calls what, innermost first.
const FRAMES: [&str; 4] = ["allocate_for", "::create", "run_command)", "(main)"];

fn start(build: Build, linkage: Linkage) -> Program {
    let mut program = Program::start_with(build, linkage, Vintage::New, &NATIVE);
    program.run("mesh 0 2 4096");
    program
}

#[test]
fn native_frames_have_functions_and_lines() {
    for (build, linkage) in [
        (Build::Plain, Linkage::Linked),
        (Build::Plain, Linkage::Loaded),
        (Build::Address, Linkage::Loaded),
        (Build::Thread, Linkage::Loaded),
    ] {
        let mut program = start(build, linkage);
        program.number("alloc 1 dram 2048 24 raw");
        let allocations = program.allocations();
        let stack = stack(&allocations);
        expect_in_order(&stack, &FRAMES);
        expect_in_order(&stack, &["runtime.cpp:", "program.cpp:"]);
        assert!(
            !stack.iter().any(|it| it.contains("libttmem_agent") || it.contains("ttmem_hook")),
            "{stack:#?}"
        );
        // The program's innermost line is displayed, not one of the runtime.
        let name = allocations[0]["site_name"].as_str().unwrap();
        assert!(name.starts_with("program.cpp:") && name.contains("run_command"), "{name}");
        program.check_figures();
        program.quit();
    }
}

#[test]
fn number_of_native_frames_is_limited() {
    let limited = [("TTMEM_STACKS", "native,3")];
    let mut program = Program::start_with(Build::Plain, Linkage::Loaded, Vintage::New, &limited);
    program.run("mesh 0 2 4096");
    program.number("alloc 1 dram 2048 24 raw");
    assert_eq!(stack(&program.allocations()).len(), 3);
    program.quit();
}

/// Buffers in the crash segment of a program that is killed.
fn kill(program: &mut Program) -> Vec<Value> {
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let segment = segments(program.folder()).remove(0);
    let output = Command::new(exe()).args(["dump", "--json", "--segment"]).arg(segment).output().unwrap();
    let mut dump: Value = ttmem_testkit::schema::dump(&output.stdout);
    serde_json::from_value(dump["allocations"].take()).unwrap()
}

#[test]
fn crash_segment_has_native_stacks() {
    let mut program = start(Build::Plain, Linkage::Loaded);
    // Killed at once: nothing is named later.
    program.number("alloc 1 dram 2048 24 raw");
    expect_in_order(&stack(&kill(&mut program)), &FRAMES);
}

#[test]
fn frames_of_a_missing_library_have_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libtt_metal.so");
    std::fs::copy(make::library(Build::Plain, Vintage::New), &library).unwrap();
    for is_replaced in [false, true] {
        let mut program = Program::start_library(Build::Plain, Linkage::Loaded, &library, &NATIVE);
        program.run("mesh 0 2 4096");
        program.number("alloc 1 dram 2048 24 raw");
        std::fs::remove_file(&library).unwrap();
        if is_replaced {
            std::fs::copy(make::library(Build::Plain, Vintage::Old), &library).unwrap();
        } else {
            std::fs::copy(make::library(Build::Plain, Vintage::New), folder.path().join("other")).unwrap();
        }
        let allocations = kill(&mut program);
        let stack = stack(&allocations);
        expect_in_order(&stack, &["libtt_metal.so+0x", "libtt_metal.so+0x", "run_command)", "(main)"]);
        assert!(!stack.iter().any(|it| it.contains("runtime.cpp")), "{stack:#?}");
        let _ = std::fs::rename(folder.path().join("other"), &library);
    }
}

#[test]
fn stack_of_a_coroutine_is_left_out() {
    for build in [Build::Plain, Build::Thread] {
        let mut program = start(build, Linkage::Loaded);
        program.number("coroutine alloc 1 dram 2048 24 raw");
        assert_eq!(stack(&program.allocations()), [""; 0]);
        program.number("alloc 1 dram 2048 24 raw");
        let allocations = program.allocations();
        assert_eq!(allocations.iter().filter(|it| !it["stack"].is_null()).count(), 1, "{allocations:#?}");
        program.check_figures();
        program.quit();
    }
}

#[test]
fn native_stacks_survive_threads_forks_and_reloads() {
    for build in [Build::Plain, Build::Address] {
        let mut program = start(build, Linkage::Loaded);
        program.run("storm 4 300");
        program.check_figures();
        program.run("reload 20");
        program.run("mesh 0 2 4096");
        program.check_figures();
        program.quit();
    }
    let mut program = start(Build::Plain, Linkage::Loaded);
    let child = program.number("fork");
    let mesh = program.number("mesh 2 1 0");
    program.number(&format!("alloc {mesh} dram 64 12 raw"));
    let all = program.allocations();
    let own: Vec<Value> = all.into_iter().filter(|it| it["pid"] == child).collect();
    expect_in_order(&stack(&own), &FRAMES);
    program.send("exit 0 _exit");
    assert_eq!(program.receive("the parent"), "0");
    program.quit();
}
