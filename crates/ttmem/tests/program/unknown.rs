//! Unknown and uncertain values are shown as such: unknown addresses, unreported dispatches, estimates and unsafe names.

use crate::exe;
use std::path::Path;
use std::process::Command;
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, CallSite, Chip, CoreRange, Kernel, Options, Placement, Space, Tracker,
};
use ttmem_core::is_unprintable;
use ttmem_reader::protocol::{Request, ask};
use ttmem_testkit::producer::{KERNEL_CONFIG, L1_END, L1_SMALL, UNRESERVED};
use ttmem_testkit::{Server, memory_folder};

/// The first of the program ids that readers make up for reports without one.
const MADE_UP_ID: u32 = 0x8000_0000;

fn tracker(folder: &Path) -> Tracker {
    Tracker::new(&Options::default().folder(folder.to_str().unwrap()))
}

/// Defines a device of 8 cores with this grid.
fn define(tracker: &Tracker, grid: (u8, u8), l1_bytes_per_core: u64) -> AllocatorNumber {
    let chip = Chip::default()
        .unique_id(0x100)
        .dram_bytes(12 << 30)
        .cores(8)
        .l1_bytes_per_core(l1_bytes_per_core)
        .kernel_config(KERNEL_CONFIG as u32)
        .unreserved(UNRESERVED as u32)
        .grid(grid);
    let chip = tracker.define_chip(&chip).unwrap();
    let banks = Banks::new(Space::L1, 8, UNRESERVED, L1_SMALL - UNRESERVED);
    tracker.define_allocator(&[chip], &[banks]).unwrap()
}

/// The output of `ttmem`, with any exit code.
fn page(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(exe()).args(args).args(["--local", "--shm-dir"]).arg(folder).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Reports a program with dispatches, with a circular buffer at a known address and one at an unknown address, and two
/// programs without dispatches.
fn report_partly(tracker: &Tracker) {
    let allocator = define(tracker, (4, 2), L1_END);
    let cores = tracker.define_cores(&[CoreRange::new((0, 0), (3, 1))]).unwrap();
    let placed = |address, bytes| Placement::new(allocator, 7, Space::Cb, address, bytes).cores(cores);
    tracker.begin_program(allocator, 7, "matmul").unwrap();
    tracker.place(&placed(UNRESERVED, 4096)).unwrap();
    // As an address, its number would be inside the first buffer.
    tracker.place(&placed(UNRESERVED + 64, 2048).unplaced(true).unfollowed(true)).unwrap();
    tracker.dispatch(allocator, 7).unwrap();
    for n in 0..2 {
        let cb = Placement::new(allocator, MADE_UP_ID + n, Space::Cb, u64::from(n), 1 << 20);
        tracker.place(&cb.unplaced(true).unfollowed(true)).unwrap();
        let kernel = Kernel::new(allocator, MADE_UP_ID + n, u64::from(n) + 1, 3 << 10);
        let mut kernel = kernel.estimated(true).unfollowed(true);
        if n == 0 {
            kernel.cores = cores;
        }
        tracker.load_kernel(&kernel).unwrap();
    }
}

#[test]
fn table_distinguishes_active_from_possibly_active() {
    let folder = memory_folder();
    let tracker = tracker(folder.path());
    report_partly(&tracker);
    let page = page(folder.path(), &["-v"]);
    for line in [
        "    CBs            1.0 MiB ",
        "  32.0 KiB active,\n",
        "  1.0 MiB active or cached; 1.0 MiB in all,\n",
        "    Free gap       1.2 MiB ",
        "  at most, core 0,0: 0x19000 to 0x150000\n",
    ] {
        assert!(page.contains(line), "{line:?}: {page}");
    }
}

#[test]
fn programs_without_dispatches_have_an_unknown_state() {
    let folder = memory_folder();
    let tracker = tracker(folder.path());
    report_partly(&tracker);
    let page = page(folder.path(), &["dump", "--programs"]);
    let words: Vec<Vec<&str>> = page.lines().map(|line| line.split_whitespace().skip(2).collect()).collect();
    let sizes = ["1.0", "MiB", "-", "-", "0", "-", "-", "-", "unknown", "-"];
    assert_eq!(words[2], [&["2147483648", "8", "~3.0", "KiB"][..], &sizes].concat(), "{page}");
    assert_eq!(
        words[3],
        [&["2147483649", "?", "?"][..], &sizes].concat(),
        "the size per core is unknown without cores: {page}"
    );
    assert!(page.contains("3 programs, 1 active, 2 active or cached, dispatched 1 time"), "{page}");
    let position = |line: &str| line.find(" 2147483648 ").or_else(|| line.find(" 2147483649 "));
    let columns: Vec<usize> = page.lines().filter_map(position).collect();
    assert!(columns.len() == 2 && columns[0] == columns[1], "{page}");
    assert_eq!(page.lines().next().and_then(|line| line.find("PROGRAM")), Some(columns[0] + 4), "{page}");
}

#[test]
fn memory_at_unknown_addresses_is_in_no_address_range() {
    let folder = memory_folder();
    let tracker = tracker(folder.path());
    report_partly(&tracker);
    let less = "Not all L1 memory has a known address and time: the free gap may be smaller.\n";
    let besides = "1.0 MiB of circular buffers on the device may be active or only cached\n";
    let all = page(folder.path(), &["dump", "--cores"]);
    assert!(all.ends_with(&format!("{besides}{less}")), "{all}");
    let one = page(folder.path(), &["dump", "--cores", "1,1"]);
    assert!(one.contains(" 0x18000 4.0 KiB, cb, ") && !one.contains("0x18040"), "{one}");
    let unplaced = "2.0 KiB of circular buffers at unknown addresses\n";
    assert!(one.ends_with(&format!("{unplaced}{besides}{less}")), "{one}");
}

#[test]
fn missing_core_layout_is_explained() {
    for (grid, l1, expected) in [
        ((0, 0), L1_END, "does not publish the core grid (columns and rows)\n"),
        ((4, 2), 0, "does not publish the core grid (columns and rows) or l1_bytes_per_core\n"),
    ] {
        let folder = memory_folder();
        let tracker = tracker(folder.path());
        let allocator = define(&tracker, grid, l1);
        tracker.begin_program(allocator, 7, "matmul").unwrap();
        tracker.place(&Placement::new(allocator, 7, Space::Cb, UNRESERVED, 4096)).unwrap();
        let page = page(folder.path(), &["dump", "--cores"]);
        assert!(page.contains(expected), "{page}");
        assert!(!page.contains("no process there publishes programs"), "{page}");
    }
}

#[test]
fn untrusted_names_are_sanitized() {
    let folder = memory_folder();
    let tracker = tracker(folder.path());
    let allocator = define(&tracker, (4, 2), L1_END);
    // Controls of both sets, marks of direction with and without a width, and other invisible characters.
    let evil = "a\x1b]0;owned\x07b\u{9b}2Jc\nd\u{202e}e\u{2066}\u{ad}\u{600}\u{2028}\u{e0041}\u{7f}f";
    let site = CallSite::new(evil, 1).function(evil).op(evil).track(evil);
    let site = tracker.define_call_site(&site).unwrap();
    tracker.alloc(&Buffer::new(allocator, Space::L1, UNRESERVED + 8192, 4096).site(site)).unwrap();
    let site = tracker.define_site(evil).unwrap();
    tracker.alloc(&Buffer::new(allocator, Space::L1, UNRESERVED + 65536, 4096).site(site)).unwrap();
    tracker.begin_program(allocator, 7, evil).unwrap();
    let cores = tracker.define_cores(&[CoreRange::new((0, 0), (3, 1))]).unwrap();
    let placement = Placement::new(allocator, 7, Space::Cb, UNRESERVED, 4096);
    tracker.place(&placement.cores(cores)).unwrap();
    tracker.dispatch(allocator, 7).unwrap();
    tracker.mark(evil, None).unwrap();
    tracker.report_out_of_memory(&Buffer::new(allocator, Space::L1, 0, 1 << 30).site(site), None).unwrap();
    let is_unsafe = |c: char| is_unprintable(c) && c != '\n';
    for args in [
        &["dump"][..],
        &["dump", "--programs"],
        &["dump", "--cores"],
        &["dump", "--cores", "0,0"],
        &["dump", "--format", "csv"],
        &["dump", "--group-by", "function"],
        &["--sites"],
        &["--sites", "--format", "csv"],
        &["events"],
        &["events", "--format", "old"],
        &["peak"],
        &["flame"],
        &["postmortem"],
        &["check", "--wait", "0"],
        &[],
    ] {
        let page = page(folder.path(), args);
        assert!(!page.contains(is_unsafe), "{args:?}: {page:?}");
        assert!(page.lines().all(|line| !line.starts_with("d?")), "{args:?}: {page}");
    }
    // JSON has the same names, as escapes.
    let answer = {
        let server = daemon_in(&folder);
        String::from_utf8(ask(&server.query, &Request::Allocations).unwrap()).unwrap()
    };
    for (args, has_name) in [
        (&["--json", "--cores", "--programs", "--events"][..], true),
        (&["dump", "--json"], true),
        (&["events", "--json"], true),
        (&["peak", "--json"], true),
        (&["postmortem", "--json"], true),
        (&["flame", "--format", "speedscope"], false),
        (&["doctor", "--json"], false),
        (&["-s"], false),
    ] {
        let text = page(folder.path(), args);
        assert!(!text.contains(is_unsafe), "{args:?}: {text:?}");
        let names =
            text.lines().filter(|_| has_name).flat_map(|line| strings(&serde_json::from_str(line).unwrap()));
        assert_eq!(names.into_iter().any(|name| name == evil), has_name, "{args:?}: {text}");
    }
    assert!(
        !answer.contains(is_unsafe)
            && strings(&serde_json::from_str(&answer).unwrap()).contains(&evil.to_owned())
    );
    let page = page(folder.path(), &["dump"]);
    assert_eq!(page.matches("a?]0;owned?b?2Jc?d?e??????f").count(), 5, "{page}");
}

/// All strings of a value.
fn strings(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::String(text) => vec![text.clone()],
        serde_json::Value::Array(all) => all.iter().flat_map(strings).collect(),
        serde_json::Value::Object(all) => all.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// A daemon that reads an existing folder of segments.
fn daemon_in(folder: &std::sync::Arc<tempfile::TempDir>) -> Server {
    let own = tempfile::tempdir().unwrap();
    Server::start_reading(own, std::sync::Arc::clone(folder), Command::new(exe()), &["--quiet"], None)
}

#[test]
fn spaces_without_statistics_are_not_audited() {
    let folder = memory_folder();
    let tracker = tracker(folder.path());
    define(&tracker, (4, 2), L1_END);
    let page = page(folder.path(), &["check", "--wait", "0"]);
    assert!(page.contains("not audited: allocator busy, or no statistics\n"), "{page}");
    assert!(page.ends_with(" not audited\n") && !page.contains("drift 0"), "{page}");
}
