//! Failures of every kind in stock ttnn: the post-mortem agrees with the runtime's own figures, and what it proposes works.

use super::stage::{OLDER, Stage};
use super::*;
use std::os::unix::process::ExitStatusExt;
use ttmem_core::snapshot::{FailureKind, FindingKind, PostMortem, Shortage};
use ttmem_testkit::{memory_folder, schema};

/// Makes kernels so long that each still fits its processor, but all of a program do not fit the kernel config buffer.
const LONG_KERNELS: &str = "3090";

fn command(version: &str, board: &str, folder: &Path, arguments: &[&str]) -> Command {
    let (python, script) = (python(version), here().join("failures.py"));
    let program = [python.to_str().unwrap(), script.to_str().unwrap(), exe().to_str().unwrap()];
    let mut command = tracked_command(board, folder, &program);
    command.arg(folder).args(arguments);
    command
}

/// Runs cases of failures.py; without names, all of them.
fn run_cases(version: &str, board: &str, shape: &str, cases: &[&str], environment: &[(&str, &str)]) {
    let folder = memory_folder();
    let arguments: Vec<&str> = [shape].into_iter().chain(cases.iter().copied()).collect();
    let mut command = command(version, board, folder.path(), &arguments);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let count = printed.lines().filter(|line| line.starts_with("case ")).count();
    assert!(
        output.status.success(),
        "{version} on {board}: {printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(count >= cases.len().max(if cases.is_empty() { 12 } else { 1 }), "{printed}");
}

#[test]
fn post_mortems_agree_with_the_runtime() {
    run_cases(TTNN, "n150", "1x1", &[], &[]);
}

#[test]
fn post_mortems_agree_with_the_older_runtime() {
    run_cases(OLDER, "n150", "1x1", &[], &[]);
}

#[test]
fn post_mortems_of_eight_chips_agree_with_the_runtime() {
    let cases = ["fragmented_l1", "full_l1_small", "clash", "clash_with_other_cores", "beyond_l1"];
    run_cases(TTNN, "p150x8", "1x8", &cases, &[]);
}

#[test]
fn kernels_that_exceed_their_buffer_are_reported() {
    // The older runtime does not compare the sizes on mock devices.
    let kernels = lab().join(TTNN).join("kernels").join(LONG_KERNELS);
    let environment =
        [("TTMEM_LAB_KERNEL_NOPS", LONG_KERNELS), ("TT_METAL_CACHE", kernels.to_str().unwrap())];
    run_cases(TTNN, "n150", "1x1", &["kernel_config"], &environment);
}

fn post_mortem(folder: &Path) -> PostMortem {
    let output = ttmem(folder, &["postmortem", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    schema::post_mortem(&output.stdout)
}

#[test]
fn trace_that_exceeds_its_region_is_reported() {
    for version in [TTNN, OLDER] {
        let mut stage = Stage::new("n150", version, "1, 1, trace_region_size=4096");
        // Mock devices have short traces, of which several share the region.
        stage.puppet.run("a = ops.z(d, 64, 64); keep = [ttnn.softmax(a, dim=-1)]");
        stage.puppet.run(
            "def capture():\n    t = ttnn.begin_trace_capture(d, cq_id=0)\n    keep.append(ttnn.softmax(a, dim=-1))\n    \
             ttnn.end_trace_capture(d, t, cq_id=0)",
        );
        stage
            .puppet
            .run("try:\n    while True: capture()\nexcept RuntimeError as error:\n    text = str(error)");
        let text = stage.puppet.run("text").as_str().unwrap().to_owned();
        let number = |before: &str| -> u64 {
            let rest = text.split_once(before).unwrap_or_else(|| panic!("{text}")).1;
            rest[..rest.find('B').unwrap()].trim().parse().unwrap()
        };
        let found = post_mortem(stage.folder.path());
        assert_eq!(found.failure.kind, FailureKind::TraceRegion, "{text}");
        let (needed, region) = (number("trace buffers of size "), number("but only "));
        assert_eq!((found.failure.requested_bytes, found.failure.limit_bytes), (Some(needed), Some(region)));
        let open_with = found.open_with.unwrap();
        assert_eq!((open_with.parameter.as_str(), open_with.bytes), ("trace_region_size", needed));
        let finding = snapshot(stage.folder.path())
            .findings
            .into_iter()
            .find(|it| it.kind == FindingKind::TraceTooLarge);
        assert!(finding.unwrap().text.starts_with("trace exceeds the trace region: pid "));
    }
}

#[test]
fn post_mortem_of_a_process_that_died_of_it() {
    for version in [TTNN, OLDER] {
        let folder = memory_folder();
        let output =
            command(version, "n150", folder.path(), &["1x1", "too_large", "uncaught"]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.status.signal()), (Some(1), None), "{printed}");
        let found = post_mortem(folder.path());
        assert!(found.exact, "{:?}", found.inexact_reason);
        let allocated = printed.rsplit_once("(allocated: ").unwrap().1.split_once(" B").unwrap().0;
        let held: u64 = found.holders.iter().map(|it| it.bytes_per_bank).sum();
        assert_eq!(held.to_string(), allocated, "{printed}");
        assert_eq!(found.bank.unwrap().shortage, Some(Shortage::Full));
        // The first failure of the process was another one.
        let output = ttmem(folder.path(), &["postmortem", "--json", "--first"]);
        let first: PostMortem = schema::post_mortem(&output.stdout);
        assert_eq!((first.bank.unwrap().shortage, first.pid), (Some(Shortage::TooLarge), found.pid));
        // The page says so in words.
        let page = String::from_utf8(ttmem(folder.path(), &["postmortem"]).stdout).unwrap();
        for part in [
            "out of memory: pid ",
            "exactly as when it failed",
            "Full: 32.0 KiB per bank are needed",
            "Allocated in L1",
        ] {
            assert!(page.contains(part), "{page}");
        }
    }
}

#[test]
fn exception_is_extended_on_request() {
    let folder = memory_folder();
    let mut command = command(TTNN, "n150", folder.path(), &["1x1", "full_l1", "uncaught"]);
    let output = command.env("TTMEM_EXPLAIN", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    for part in [
        "RuntimeError: TT_FATAL",
        "\nttmem:\n  requested by ttnn.empty, failures.py:",
        "to make room, free 1 buffer (32.0 KiB per bank):",
        "full report: ttmem postmortem ",
    ] {
        assert!(printed.contains(part), "{printed}");
    }
}
