//! `ttmem dump --report` against the files of the runtime's own call.

use super::stage::OLDER;
use super::{Puppet, TTNN, expect_no_drift, here, python, tracked_command, ttmem};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tempfile::TempDir;
use ttmem_testkit::memory_folder;

const FILES: [&str; 3] = ["l1_usage_summary.csv", "memory_usage_summary.csv", "detailed_memory_usage.csv"];

/// Allocates in every space, and frees so that there are holes.
const WORKLOAD: &str = "\
import random
INTERLEAVED = ttnn.TensorMemoryLayout.INTERLEAVED

def small(cores, device):
    config = across(cores)
    config = ttnn.MemoryConfig(config.memory_layout, ttnn.BufferType.L1_SMALL, config.shard_spec)
    shape = (32, 32 * cores)
    return ttnn.empty(shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device, memory_config=config)

def trace(count, device):
    return tiles(device, count, ttnn.MemoryConfig(INTERLEAVED, ttnn.BufferType.TRACE))

def mixture(device, rng, count):
    kinds = [
        lambda: tiles(device, rng.randint(1, 200)),
        lambda: tiles(device, rng.randint(1, 2000)),
        lambda: tiles(device, rng.randint(1, 200), ttnn.L1_MEMORY_CONFIG),
        lambda: tiles(device, rng.randint(1, 5), ttnn.L1_MEMORY_CONFIG),
    ]
    return [rng.choice(kinds)() for _ in range(count)]

def fill(device, count, seed=7):
    held = mixture(device, random.Random(seed), count)
    held += [small(cores, device) for cores in (1, 2, 4)] + [trace(count, device) for count in (2, 30)]
    return held

def table(device, space):
    blocks = ttnn.get_memory_view(device, getattr(ttnn.BufferType, space)).block_table
    return sorted([int(it['address']), int(it['size']), it['allocated'] == 'yes'] for it in blocks)

def punch(held, seed=7):
    for tensor in random.Random(seed).sample(held, len(held) // 2):
        ttnn.deallocate(tensor)
";

/// A ttnn process with a device open as `d`, and the folder of the runtime's own reports.
struct Reporter {
    puppet: Puppet,
    segments: Arc<TempDir>,
    logs: TempDir,
}

impl Reporter {
    fn start(board: &str, version: &str, shape: &str, hybrid: bool) -> Self {
        let (segments, logs) = (memory_folder(), tempfile::tempdir().unwrap());
        let program = [python(version), here().join("puppet.py")];
        let program = program.each_ref().map(|it| it.to_str().unwrap());
        let mut command = tracked_command(board, segments.path(), &program);
        command.env("TT_METAL_LOGS_PATH", logs.path());
        if hybrid {
            command.env("TT_METAL_ALLOCATOR_MODE_HYBRID", "1");
        }
        let mut puppet = Puppet::start(command);
        puppet.run("import ttnn");
        puppet.run(&format!(
            "d = ttnn.open_mesh_device(ttnn.MeshShape({shape}), l1_small_size=16384, trace_region_size=1 << 21)"
        ));
        puppet.run(WORKLOAD);
        Self { puppet, segments, logs }
    }

    /// The files of the runtime's own call, and those of `ttmem dump --report`.
    fn reports(&mut self, device: &str, args: &[&str]) -> [Vec<String>; 2] {
        self.puppet.run(&format!("ttnn.dump_device_memory_state({device}, 'own_')"));
        let own = self.logs.path().join("generated/reports");
        let folder = self.logs.path().join("ttmem");
        let pid = self.puppet.pid().to_string();
        let report = ["dump", "--report", folder.to_str().unwrap(), "--pid", &pid];
        let output = ttmem(self.segments.path(), &[&report[..], args].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read = |path: std::path::PathBuf| {
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let own = FILES.map(|name| read(own.join(format!("own_{name}"))));
        let found = FILES.map(|name| read(folder.join(name)));
        let entries = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(entries, FILES.len(), "no other files are left");
        [own.to_vec(), found.to_vec()]
    }

    /// Checks that both reports have the same cells; only the numbers of blocks may be others. Returns the number of blocks.
    fn compare(&mut self, device: &str, args: &[&str], what: &str) -> usize {
        let [own, found] = self.reports(device, args);
        assert_eq!(own[..2], found[..2], "{what}");
        let [(own, count), (found, _)] = [&own[2], &found[2]].map(|it| renumber(it));
        assert_eq!(own, found, "{what}");
        self.compare_maps(device, args, what);
        count
    }

    /// Checks that `ttmem dump --blocks` has the blocks of the runtime's own tables, also of traces.
    fn compare_maps(&mut self, device: &str, args: &[&str], what: &str) {
        let pid = self.puppet.pid().to_string();
        let args = [&["dump", "--blocks", "--json", "--pid", &pid], args].concat();
        let output = ttmem(self.segments.path(), &args);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        for space in ["dram", "l1", "l1_small", "trace"] {
            let own = self.puppet.run(&format!("table({device}, '{}')", space.to_uppercase()));
            let maps = found["block_maps"].as_array().unwrap();
            let map = maps.iter().find(|it| it["space"] == *space).unwrap();
            let base = map["base"].as_u64().unwrap();
            let block = |it: &Value| {
                json!([it["address"].as_u64().unwrap() - base, it["bytes"], it["state"] != "free"])
            };
            let blocks: Vec<Value> = map["blocks"].as_array().unwrap().iter().map(block).collect();
            assert_eq!(own, Value::from(blocks), "{what}: {space}");
        }
    }
}

/// Numbers the blocks of each table by address, and removes unused numbers, which say nothing about memory. Also returns the
/// number of blocks.
fn renumber(details: &str) -> (String, usize) {
    let titles = details.lines().filter(|line| line.starts_with(',') && !line.contains(':'));
    let mut text = titles.collect::<Vec<_>>().join("\n") + "\n";
    let mut count = 0;
    for space in details.split_inclusive("NextID    Allocated \n").collect::<Vec<_>>().windows(2) {
        let (head, rest) = (space[0], space[1]);
        let head = &head[head.rfind(",Total allocatable").unwrap()..];
        let rows = rest.lines().take_while(|line| !line.starts_with(','));
        let mut rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
        rows.sort_by_key(|row| row[1].parse::<u64>().unwrap());
        count += rows.len();
        let ranks: BTreeMap<&str, usize> = rows.iter().enumerate().map(|(at, row)| (row[0], at)).collect();
        assert_eq!(ranks.len(), rows.len(), "no number twice: {details}");
        let rank = |number: &str| ranks.get(number).map_or(number.to_owned(), ToString::to_string);
        for line in head.lines() {
            if let Some((class, numbers)) = line.split_once(" blocks: ") {
                let numbers: Vec<String> = numbers.split_whitespace().map(rank).collect();
                let _ = writeln!(text, "{class} blocks: {numbers:?}");
            } else if let Some((_, numbers)) = line.split_once("Free slots in block table: ") {
                assert!(numbers.split_whitespace().all(|it| !ranks.contains_key(it)), "{details}");
            } else {
                let _ = writeln!(text, "{line}");
            }
        }
        for row in &rows {
            let [number, previous, next] = [0, 3, 4].map(|at| rank(row[at]));
            let _ = writeln!(text, "{number} {} {} {previous} {next} {}", row[1], row[2], row[5]);
        }
    }
    (text, count)
}

fn report_equals_the_runtimes(board: &str, version: &str, shape: &str) {
    let mut reporter = Reporter::start(board, version, shape, false);
    let [own, found] = reporter.reports("d", &[]);
    assert_eq!(own, found, "{version}: nothing is allocated");
    reporter.puppet.run("held = fill(d, 60)");
    let [own, found] = reporter.reports("d", &[]);
    assert_eq!(own, found, "{version}: nothing was freed, so numbers of blocks are equal, too");
    reporter.puppet.run("punch(held)");
    let blocks = reporter.compare("d", &[], &format!("{version}: half of it was freed"));
    assert!(blocks > 40, "{blocks} blocks");
    reporter.puppet.run("more = mixture(d, random.Random(8), 80)");
    reporter.puppet.run("punch(more, 9)");
    let blocks = reporter.compare("d", &[], &format!("{version}: holes were used again"));
    expect_no_drift(reporter.segments.path());
    println!("{version} on {board}: {blocks} blocks equal");
}

#[test]
fn report_of_one_device_equals_the_runtimes() {
    report_equals_the_runtimes("n150", TTNN, "1, 1");
}

#[test]
fn report_of_a_mesh_of_8_equals_the_runtimes() {
    report_equals_the_runtimes("t3k", TTNN, "2, 4");
}

#[test]
fn report_of_older_wheel_equals_the_runtimes() {
    report_equals_the_runtimes("n150", OLDER, "1, 1");
}

#[test]
fn report_of_submesh_equals_the_runtimes() {
    let mut reporter = Reporter::start("t3k", TTNN, "2, 4", false);
    reporter.puppet.run("subs = d.create_submeshes(ttnn.MeshShape(1, 4))");
    reporter.puppet.run("held = [fill(device, 20, n) for n, device in enumerate((d, subs[0], subs[1]))]");
    reporter.puppet.run("[punch(it) for it in held]");
    for (device, allocator) in [("d", "1"), ("subs[0]", "2"), ("subs[1]", "3")] {
        reporter.compare(device, &["--allocator", allocator], device);
    }
    let pid = reporter.puppet.pid().to_string();
    let output = ttmem(reporter.segments.path(), &["dump", "--report", "/nowhere", "--pid", &pid]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("--report is for one allocator, and there are 3: "), "{message}");
    assert!(message.contains(", allocator 1, devices 0-7; "), "{message}");
}

/// In HYBRID mode an allocator of a device reserves the buffers of its mesh.
#[test]
fn report_in_hybrid_mode_equals_the_runtimes() {
    let mut reporter = Reporter::start("n300", TTNN, "1, 2", true);
    reporter.puppet.run("held = mixture(d, random.Random(1), 40)");
    reporter.puppet.run("config = across(4)");
    reporter.puppet.run("config.experimental_set_per_core_allocation(True)");
    reporter.puppet.run(
        "own = ttnn.empty((32, 128), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d, memory_config=config)",
    );
    reporter.puppet.run("punch(held)");
    reporter.compare("d", &["--allocator", "1"], "mesh");
    let pid = reporter.puppet.pid().to_string();
    let args = ["dump", "--blocks", "--space", "l1", "--allocator", "2", "--pid", &pid];
    let output = ttmem(reporter.segments.path(), &args);
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains(" reserved ") && page.contains(" allocator 1"), "{page}");
    assert!(page.contains("of buffers on single cores (l1_core)"), "{page}");
}
