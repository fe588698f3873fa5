//! `ttmem fit`: whether a buffer fits, where, and what to free. `ttmem map`: memory by address.

use crate::exe;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use ttmem_client::{
    AllocatorNumber, Arch, Banks, Buffer, CallSite, Chip, CoreRange, Layout, Options, Space, Tracker,
};
use ttmem_testkit::producer::{BANKS, Producer};
use ttmem_testkit::terminal::Terminal;
use ttmem_testkit::{Client, Server, memory_folder};
use ttmem_wire::legacy::Vintage;

/// A process with a Wormhole: 4 KiB of DRAM at the beginning, 8 KiB from 0x3000 on; L1 of 64 KiB on eight cores, of which 16 KiB
/// in the middle are used.
struct Model {
    tracker: Tracker,
    allocator: AllocatorNumber,
}

const L1: u64 = 0x1_0000;

impl Model {
    fn start(folder: &Path) -> Self {
        let tracker = Tracker::new(&Options::default().folder(folder.to_str().unwrap()));
        let chip = Chip::default().unique_id(0x100).arch(Arch::WormholeB0).dram_bytes(12 << 30);
        let chip = tracker.define_chip(&chip).unwrap();
        let banks = [Banks::new(Space::Dram, 12, 0, 1 << 20), Banks::new(Space::L1, 8, L1, 64 << 10)];
        let allocator = tracker.define_allocator(&[chip], &banks).unwrap();
        let model = Self { tracker, allocator };
        model.alloc(Space::Dram, 0, 0x1000, 11);
        model.alloc(Space::Dram, 0x3000, 0x2000, 12);
        model.alloc(Space::L1, L1 + 0x6000, 0x4000, 13);
        model
    }

    fn alloc(&self, space: Space, address: u64, bytes_per_bank: u64, line: u32) {
        let site = CallSite::new("/home/me/model.py", line).function("load").op("ttnn.empty");
        let site = self.tracker.define_call_site(&site).unwrap();
        let buffer = Buffer::new(self.allocator, space, address, bytes_per_bank);
        self.tracker.alloc(&buffer.bytes_per_bank(bytes_per_bank).site(site)).unwrap();
    }
}

fn fit(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(exe());
    command.arg("fit").args(args).args(["--local", "--shm-dir"]).arg(folder).env_remove("COLUMNS");
    command.output().unwrap()
}

/// The exit code, and the first line of output or errors.
fn answer(output: &Output) -> (i32, String) {
    let text = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    let text = String::from_utf8_lossy(text);
    (output.status.code().unwrap(), text.lines().next().unwrap_or_default().to_owned())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn address_is_that_of_the_first_free_block() {
    let folder = memory_folder();
    let model = Model::start(folder.path());
    let ask = |args: &[&str]| answer(&fit(folder.path(), args));
    let expect = |args: &[&str], end: &str| {
        let (code, line) = ask(args);
        assert!(code == 0 && line.starts_with("yes: pid ") && line.ends_with(end), "{args:?}: {code} {line}");
    };
    // DRAM from the bottom: a hole of 8 KiB at 0x1000, then all from 0x5000 on.
    expect(&["--dram", "96KiB"], ", allocator 1, device 0, 12 banks of DRAM: 8.0 KiB per bank at 0x1000");
    expect(&["--dram", "98KiB"], "10.0 KiB per bank at 0x5000");
    expect(&["--dram", "8KiB/bank", "--count", "2"], "2 buffers of 8.0 KiB per bank at 0x1000, 0x5000");
    expect(&["--dram", "8KiB/bank", "--from", "top"], "8.0 KiB per bank at 0xfe000");
    expect(&["--dram", "24kB", "--page", "500B"], "2.0 KiB per bank at 0x1000");
    expect(&["--tensor", "32x512:bfloat16:tile"], "4.0 KiB per bank at 0x1000");
    // L1 from the top.
    expect(&["--l1", "20KiB/core"], "20.0 KiB per bank at 0x1b000");
    expect(&["--l1", "32KiB", "--sharded", "4x2"], "4.0 KiB per bank at 0x1f000");
    expect(&["--tensor", "64x256:bfloat16:tile", "--memory", "l1", "--sharded", "8x1"], "at 0x1f000");
    expect(
        &["--l1", "6KiB/core", "--count", "5"],
        "5 buffers of 6.0 KiB per bank at 0x1e800, 0x1d000, 0x1b800 and 2 more",
    );
    let report = json(&fit(folder.path(), &["--l1", "20KiB/core", "--json"]));
    assert_eq!(report["answer"], "fits");
    assert_eq!(
        (&report["addresses"][0], &report["needed_bytes_per_bank"]),
        (&0x1_b000.into(), &20480.into())
    );
    assert_eq!(
        (&report["space"], &report["allocator"], &report["banks"]),
        (&"l1".into(), &1.into(), &8.into())
    );
    drop(model);
}

#[test]
fn what_to_free_is_named() {
    let folder = memory_folder();
    let model = Model::start(folder.path());
    let output = fit(folder.path(), &["--l1", "40KiB/core"]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{page}");
    for text in [
        "8 banks of L1: 40.0 KiB per bank do not fit",
        "Fragmented: 40.0 KiB per bank are needed and 48.0 KiB are free, but in 2 blocks; the largest has 24.0 KiB.",
        "free 1 buffer with 16.0 KiB per bank, which leaves a free block of 64.0 KiB at 0x10000.",
        "0x16000  16.0 KiB  ttnn.empty, model.py:13 (load)",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let report = json(&fit(folder.path(), &["--l1", "20KiB/core", "--count", "3", "--json"]));
    assert_eq!((&report["answer"], &report["fitting_count"]), (&"does_not_fit".into(), &2.into()));
    assert_eq!(report["make_room"]["buffers"][0]["id"], "0x16000");
    let (code, line) = answer(&fit(folder.path(), &["--dram", "2MiB/bank"]));
    assert!(code == 1 && line.starts_with("no: "), "{line}");
    drop(model);
}

#[test]
fn segment_and_daemon_give_the_same_answer() {
    let server = Server::start(exe(), &["--quiet"]);
    let folder = server.segments.path();
    let model = Model::start(folder);
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let segment = files.find(|path| path.is_file()).unwrap();
    let question = ["--dram", "98KiB", "--json"];
    let local = json(&fit(folder, &question));
    let of_segment = Command::new(exe()).args(["fit", "--segment"]).arg(&segment).args(question).output();
    assert_eq!(json(&of_segment.unwrap())["addresses"], local["addresses"]);
    let mut command = Command::new(exe());
    let of_daemon = command.arg("fit").args(question).arg("--query-socket").arg(&server.query).output();
    assert_eq!(json(&of_daemon.unwrap()), local);
    drop(model);
}

#[test]
fn boards_are_empty() {
    let folder = memory_folder();
    let ask = |args: &[&str]| answer(&fit(folder.path(), args));
    for (args, code, text) in [
        (
            &["--dram", "12KiB", "--board", "n150"][..],
            0,
            "yes: empty n150 with default settings, 12 banks of DRAM: 2.0 KiB per bank at 0x100040",
        ),
        (&["--dram", "12GiB", "--board", "n150"], 1, "no: "),
        (&["--l1", "64KiB/core", "--board", "p150a"], 0, "110 banks of L1: 64.0 KiB per bank at 0x170000"),
        (&["--l1", "64KiB", "--board", "n300"], 0, "64 banks of L1: 2.0 KiB per bank"),
        (
            &["--l1", "1MiB/core", "--sharded", "8x4", "--board", "n150"],
            2,
            "--sharded needs the size over all cores",
        ),
        (&["--l1", "1MiB", "--sharded", "8x8", "--board", "n150"], 0, "16.0 KiB per bank at 0x16a000"),
        (
            &["--l1", "1MiB", "--sharded", "8x9", "--board", "n150"],
            2,
            "72 cores, and the allocator has 64 banks",
        ),
        // Releases differ in the first address of L1.
        (&["--l1", "1393000B/core", "--board", "n150"], 3, "cannot say: "),
        (&["--l1", "1400000B/core", "--board", "n150"], 1, "no: "),
    ] {
        let (found, line) = ask(args);
        assert!(found == code && line.contains(text), "{args:?}: {found} {line}");
    }
    let output = fit(folder.path(), &["--l1-small", "8KiB/core", "--board", "p150a"]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.contains("Open the device with l1_small_size=8192 (8.0 KiB) or more."), "{page}");
}

#[test]
fn unknown_state_is_not_guessed() {
    let server = Server::start(exe(), &["--sim", "n300"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, crate::DRAM, 0x1000, 4 << 20);
    client.sync();
    let mut command = Command::new(exe());
    let old = command.args(["fit", "--dram", "1MiB", "--query-socket"]).arg(&server.query).output().unwrap();
    let (code, line) = answer(&old);
    assert!(code == 3 && line.starts_with("cannot say: pid "), "{line}");
    assert!(line.ends_with("the old protocol reports no bank layout and no bytes per bank"), "{line}");
    let folder = memory_folder();
    let ask = |args: &[&str]| answer(&fit(folder.path(), args));
    let nothing = (3, "ttmem: no allocator of DRAM is known; start programs with `ttmem run -- CMD`, or name an empty board with --board".to_owned());
    assert_eq!(ask(&["--dram", "1MiB"]), nothing);
    let mut producer = Producer::new(folder.path());
    producer.alloc(0, BANKS * 0x1000);
    let (code, line) = ask(&["--dram", "1MiB"]);
    assert!(code == 3 && line.contains("the architecture of the device is unknown"), "{line}");
    let _other = Producer::new(folder.path());
    let (code, line) = ask(&["--dram", "1MiB"]);
    assert!(code == 2 && line.contains("fit is for one allocator, and there are 2: pid "), "{line}");
    assert_eq!(ask(&["--dram", "1MiB", "--pid", &producer.pid.to_string()]).0, 3);
}

#[test]
fn hybrid_mode_is_recognized_by_its_buffers() {
    let folder = memory_folder();
    let model = Model::start(folder.path());
    let on_cores = Buffer::new(model.allocator, Space::L1Core, L1 + 0xf000, 4096).bytes_per_bank(4096);
    model
        .tracker
        .alloc(&on_cores.cores(model.tracker.define_cores(&[CoreRange::new((0, 0), (1, 0))]).unwrap()))
        .unwrap();
    let ask = |args: &[&str]| answer(&fit(folder.path(), args));
    let (code, line) = ask(&["--l1", "4KiB/core"]);
    assert!(
        code == 0 && line.ends_with("4.0 KiB per bank at 0x1e000"),
        "below the buffer on two cores: {line}"
    );
    assert_eq!(ask(&["--tensor", "8x8:uint32:row_major", "--memory", "l1"]).0, 0);
    let mirror = Buffer::new(model.allocator, Space::L1, L1 + 0x1000, 4096);
    model.tracker.alloc(&mirror.bytes_per_bank(4096).layout(Layout::Mirror)).unwrap();
    assert_eq!(ask(&["--l1", "4KiB/core"]).0, 3, "no mesh is left");
    let (code, line) = ask(&["--l1", "4KiB/core", "--allocator", "1"]);
    assert!(code == 3 && line.contains("choose that of the mesh"), "{line}");
}

#[test]
fn l1_of_sub_devices_is_not_promised() {
    let folder = memory_folder();
    let model = Model::start(folder.path());
    let chip = model.tracker.define_chip(&Chip::default().unique_id(0x100).arch(Arch::WormholeB0)).unwrap();
    model.tracker.define_allocator(&[chip], &[Banks::new(Space::L1, 4, L1, 8 << 10)]).unwrap();
    let ask = |args: &[&str]| answer(&fit(folder.path(), &[args, &["--allocator", "1"]].concat()));
    assert_eq!(ask(&["--l1", "24KiB/core"]).0, 0, "above it");
    let (code, line) = ask(&["--l1", "8KiB/core", "--from", "bottom"]);
    let reason = "below 0x12000, where a buffer would go, sub-devices may have L1 of their own";
    assert!(code == 3 && line.ends_with(reason), "{line}");
}

#[test]
fn bad_requests_name_what_is_wrong() {
    let folder = memory_folder();
    for (args, text) in [
        (&[][..], "--dram"),
        (
            &["--dram", "2 gigs"],
            "unknown size \"2 gigs\"; expected a number with B, kB, MB, GB, KiB, MiB, GiB, TiB",
        ),
        (&["--dram", "lots"], "unknown size \"lots\""),
        (&["--dram", "0B"], "a size of 0 bytes"),
        (&["--dram", "1KiB/chip"], "unknown part \"chip\"; expected /bank or /core"),
        (&["--dram", "1KiB", "--l1", "1KiB"], "cannot be used with"),
        (&["--tensor", "32x32"], "expected SHAPE:TYPE:LAYOUT"),
        (&["--tensor", "32x32:half:tile"], "unknown data type \"half\"; expected bfloat16, float32"),
        (&["--tensor", "32x32:bfloat8_b:row_major"], "bfloat8_b has no rows"),
        (&["--dram", "1KiB", "--memory", "l1"], "--memory"),
        (&["--l1", "1KiB", "--sharded", "8"], "unknown sharding \"8\"; expected 8x4"),
        (&["--dram", "1KiB", "--count", "0"], "0 is not in 1..=100000"),
        (&["--dram", "1KiB", "--board", "n151"], "unknown board \"n151\"; known boards are n150"),
        (&["--l1-small", "8KiB", "--board", "n150"], "--l1-small needs --sharded"),
    ] {
        let (code, line) = answer(&fit(folder.path(), args));
        assert!(code == 2 && line.contains(text), "{args:?}: {code} {line}");
    }
}

#[test]
fn map_draws_blocks_and_holes() {
    let folder = memory_folder();
    let model = Model::start(folder.path());
    let mut command = Command::new(exe());
    command.args(["map", "--ascii", "--local", "--shm-dir"]).arg(folder.path()).env("COLUMNS", "64");
    let output = command.output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.contains("allocator 1, device 0, dram: 12\nbanks, each 1.0 MiB:\n"), "{page}");
    // L1: 64 cells of 1 KiB, of which 16 are used.
    let bar = format!("{}{}{}", ".".repeat(24), "#".repeat(16), ".".repeat(24));
    assert!(page.contains(&bar), "{page}");
    let axis = format!("0x10000{:>57}", "0x20000");
    assert!(page.contains(&axis), "{page}");
    assert!(page.contains("largest free block: 24.0 KiB at 0x10000, 0x1a000"), "{page}");
    assert!(page.contains("# used, : used in part, . free"), "{page}");
    let mut command = Command::new(exe());
    let of_map = command.args(["map", "--json", "--space", "l1", "--local", "--shm-dir"]).arg(folder.path());
    assert_eq!(json(&of_map.output().unwrap())["block_maps"][0]["free_count"], 2);
    let mut command = Command::new(exe());
    let mut terminal =
        Terminal::start(command.args(["map", "--local", "--shm-dir"]).arg(folder.path()), (80, 40));
    assert!(terminal.wait().success());
    let screen = terminal.text();
    assert!(screen.contains("█ used, ▒ used in part, ░ free"), "{screen}");
    drop(model);
}
