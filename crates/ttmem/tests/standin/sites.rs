//! What buffers are for, in a runtime that misbehaves and without an interpreter.

use crate::make::{Build, Linkage, Vintage};
use crate::{ALLOCATE, FATAL, Program};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The only allocation.
fn only(program: &Program) -> Value {
    let mut all = program.allocations();
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// Allocates a buffer, and returns its description.
fn allocate(program: &mut Program, command: &str) -> Value {
    let buffer = program.number(&format!("alloc 1 dram 2048 24 {command}"));
    let found = only(program);
    program.run(&format!("free {buffer}"));
    found
}

#[test]
fn buffers_say_what_they_are_for() {
    for build in [Build::Plain, Build::Address, Build::Thread] {
        let mut program = Program::start_with(build, Linkage::Loaded, Vintage::New, &[]);
        program.run("mesh 0 2 4096");
        for (command, purpose, tensor) in [
            ("tensor 32 512", "tensor", Value::from("bfloat16 [32, 512] tile")),
            ("tensor 7", "tensor", Value::from("bfloat16 [7] tile")),
            ("tensor 1 2 3 4 5 6 7 8 9 10", "tensor", Value::from("bfloat16 [3, 4, 5, 6, 7, 8, 9, 10] tile")),
            ("semaphore", "semaphore", Value::Null),
            ("raw", "raw", Value::Null),
        ] {
            let found = allocate(&mut program, command);
            assert_eq!((&found["purpose"], &found["tensor"]), (&Value::from(purpose), &tensor), "{found:#}");
        }
        program.check_figures();
        program.quit();
    }
}

#[test]
fn implausible_tensors_are_left_out() {
    for what in ["rank", "data_type"] {
        let mut program = Program::start_with(Build::Address, Linkage::Loaded, Vintage::New, &[]);
        program.run("mesh 0 2 4096");
        program.run(&format!("garbage {what}"));
        let found = allocate(&mut program, "tensor 32 512");
        assert_eq!(
            (&found["purpose"], &found["tensor"]),
            (&Value::from("tensor"), &Value::Null),
            "{found:#}"
        );
        // Nothing is missing in the figures.
        let tracker = program.process().tracker.unwrap();
        assert!(tracker.missing_hooks.is_empty(), "{what}: {tracker:?}");
        program.check_figures();
        program.quit();
    }
}

#[test]
fn exceptions_of_queries_stay_inside() {
    let mut program = Program::start_with(Build::Address, Linkage::Loaded, Vintage::New, &[]);
    program.run("mesh 0 2 4096");
    for function in ["rank", "get_data_type"] {
        program.run(&format!("throwing {function}"));
        assert_eq!(allocate(&mut program, "tensor 32 512")["tensor"], Value::Null);
        program.run("throwing nothing");
        assert_eq!(allocate(&mut program, "tensor 32 512")["tensor"], "bfloat16 [32, 512] tile");
    }
    // A failure inside leaves nothing behind for the next allocation of the thread.
    program.fail_next(FATAL, ALLOCATE, 3);
    assert_eq!(program.run("alloc 1 dram 2048 24 tensor 32 512"), "fatal 3 injected");
    assert_eq!(allocate(&mut program, "raw")["purpose"], "raw");
    program.fail_next(FATAL, ALLOCATE, 3);
    assert_eq!(program.run("alloc 1 dram 2048 24 semaphore"), "fatal 3 injected");
    assert_eq!(allocate(&mut program, "raw")["purpose"], "raw");
    program.check_figures();
    program.quit();
}

#[test]
fn tracks_name_allocations() {
    for build in [Build::Plain, Build::Thread] {
        let mut program = Program::start_with(build, Linkage::Loaded, Vintage::New, &[]);
        assert_eq!(program.run("track early"), "1", "a track may begin before the runtime's first call");
        program.run("mesh 0 2 4096");
        assert_eq!(allocate(&mut program, "raw")["track"], "early");
        let long = "a".repeat(4096);
        for (name, track) in [
            ("decode/attention", Value::from("decode/attention")),
            ("\u{e9}t\u{e9}", "\u{e9}t\u{e9}".into()),
            (&long, long[..256].into()),
            ("", Value::Null),
            ("decode/attention", "decode/attention".into()),
        ] {
            assert_eq!(program.run(&format!("track {name}")), "1");
            let found = allocate(&mut program, "tensor 32 512");
            assert_eq!((&found["track"], &found["purpose"]), (&track, &"tensor".into()), "{found:#}");
        }
        program.check_figures();
        program.quit();
    }
}

#[test]
fn child_defines_its_track_again() {
    let mut program = Program::start_with(Build::Plain, Linkage::Loaded, Vintage::New, &[]);
    program.run("mesh 0 2 4096");
    program.run("track decode");
    assert_eq!(allocate(&mut program, "raw")["track"], "decode");
    let child = program.number("fork");
    let mesh = program.number("mesh 2 1 0");
    program.number(&format!("alloc {mesh} dram 64 12 raw"));
    let all = program.allocations();
    let own = all.iter().filter(|it| it["pid"] == child).map(|it| &it["track"]);
    assert_eq!(own.collect::<Vec<_>>(), ["decode"], "{all:#?}");
    program.send("exit 0 _exit");
    assert_eq!(program.receive("the parent"), "0");
    program.check_figures();
    program.quit();
}

#[test]
fn marks_are_records_of_an_active_agent() {
    let mut program = Program::start_with(Build::Plain, Linkage::Loaded, Vintage::New, &[]);
    assert_eq!(program.run("mark step 1"), "0", "the agent is inactive");
    program.run("mesh 0 1 0");
    assert_eq!(program.run("mark step 2"), "1");
    let mark = program.process().last_mark.unwrap();
    assert_eq!((mark.name.as_deref(), mark.number), (Some("step"), Some(2)));
    assert_eq!(program.run("mark step 3"), "1");
    assert_eq!(program.process().last_mark.unwrap().number, Some(3));
    program.quit();
}

#[test]
fn native_callers_are_named_later() {
    let mut program = Program::start_with(Build::Plain, Linkage::Loaded, Vintage::New, &[]);
    program.run("mesh 0 2 4096");
    program.number("alloc 1 dram 2048 24 raw");
    let begin = Instant::now();
    let name = loop {
        let found = only(&program);
        match found["site_name"].as_str() {
            Some(name) => break name.to_owned(),
            None => assert!(begin.elapsed() < Duration::from_secs(60), "{found:#}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(name, "libtt_metal.so (tt::tt_metal::allocate_for)");
    program.quit();
}
