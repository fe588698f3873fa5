//! `ttmem dump --blocks`, `--report`, and CSV of all lists.

use crate::exe;
use crate::segments::daemon;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use ttmem_core::snapshot::BlockMap;
use ttmem_testkit::producer::{BANKS, L1_END, L1_SMALL, Producer, UNRESERVED};
use ttmem_testkit::terminal::Terminal;
use ttmem_testkit::{Client, Server, memory_folder, schema};
use ttmem_wire::legacy::Vintage;

/// A process with holes in DRAM and L1.
fn fragmented(folder: &Path) -> Producer {
    let mut producer = Producer::start_through(&[], &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
    producer.define_grid(1, 4, 2);
    for at in [0, 0x1000, 0x3000] {
        producer.alloc(at, BANKS * 0x1000);
    }
    producer.alloc_l1(L1_SMALL - 8192, 8192, Some([(0, 0), (3, 0)]));
    producer
}

fn local_command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(exe());
    command.arg("dump").args(args).args(["--local", "--shm-dir"]).arg(folder).env_remove("COLUMNS");
    command
}

fn dump_local(folder: &Path, args: &[&str]) -> Output {
    local_command(folder, args).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn maps(output: &Output) -> Vec<BlockMap> {
    let json: Value = serde_json::from_str(&text(output)).unwrap();
    serde_json::from_value(json["block_maps"].clone()).unwrap()
}

/// Block maps without ages, which change.
fn without_ages(mut maps: Vec<BlockMap>) -> Vec<BlockMap> {
    for block in maps.iter_mut().flat_map(|map| &mut map.blocks) {
        block.allocation.iter_mut().for_each(|it| it.age_seconds = 0.0);
    }
    maps
}

#[test]
fn blocks_and_holes_are_listed_by_address() {
    let server = daemon();
    let folder = server.segments.path();
    let producer = fragmented(folder);
    let page = text(&dump_local(folder, &["--blocks", "--space", "dram"]));
    let lines: Vec<String> =
        page.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(lines[0].starts_with(&format!("pid {} (", producer.pid)), "{page}");
    assert!(lines[0].ends_with(", allocator 1, device 0, dram: 12 banks, each:"), "{page}");
    assert_eq!(lines[1], "ADDRESS SIZE STATE REQUESTED LAYOUT AGE OWNER");
    assert!(lines[2].starts_with("0x0 4.0 KiB used 48.0 KiB"), "{page}");
    assert_eq!(lines[4], "0x2000 4.0 KiB free");
    assert_eq!(lines[6], "0x4000 1.0 TiB free largest free block");
    assert_eq!(lines[7], "per bank of 1.0 TiB: 12.0 KiB used in 3 blocks, 1.0 TiB free in 2 blocks");
    assert_eq!(lines[8], "largest free block: 1.0 TiB at 0x4000");
    let all = maps(&dump_local(folder, &["--blocks", "--format", "json"]));
    let spaces: Vec<&str> = all.iter().map(|it| it.space.name()).collect();
    assert_eq!(spaces, ["dram", "l1", "l1_small"]);
    let mut command = Command::new(exe());
    let of_daemon = command.args(["dump", "--blocks", "--json", "--query-socket"]).arg(&server.query);
    assert_eq!(without_ages(maps(&of_daemon.output().unwrap())), without_ages(all.clone()));
    // The figures of a snapshot agree.
    let snapshot: Value = schema::snapshot(&run_json(folder));
    for (map, space) in
        all.iter().zip(snapshot["processes"][0]["allocators"][0]["spaces"].as_array().unwrap())
    {
        let banks = u64::from(map.banks.unwrap());
        assert_eq!(map.free_bytes_per_bank.unwrap() * banks, space["free_bytes"]);
        assert_eq!(map.largest_free_bytes_per_bank.unwrap(), space["largest_free_bytes_per_bank"]);
        assert_eq!(serde_json::json!(map.largest_free_block_addrs), space["largest_free_block_addrs"]);
    }
    assert_eq!(dump_local(folder, &["--blocks", "--allocator", "9"]).status.code(), Some(3));
    for bad in [&["--blocks", "--space", "cb"][..], &["--space", "l1"], &["--blocks", "--programs"]] {
        assert_eq!(dump_local(folder, bad).status.code(), Some(2), "{bad:?}");
    }
}

fn run_json(folder: &Path) -> Vec<u8> {
    Command::new(exe()).args(["--json", "--local", "--shm-dir"]).arg(folder).output().unwrap().stdout
}

#[test]
fn blocks_fit_a_terminal() {
    let folder = memory_folder();
    let _producer = fragmented(folder.path());
    let mut terminal = Terminal::start(&local_command(folder.path(), &["--blocks"]), (80, 40));
    assert!(terminal.wait().success());
    let screen = terminal.text();
    assert!(screen.contains("largest free block") && screen.contains("l1_small: 8 banks"), "{screen}");
    let printed = String::from_utf8(terminal.bytes()).unwrap();
    let widest = printed.lines().map(|line| strip_colours(line.trim_end()).chars().count()).max();
    assert!(widest <= Some(80), "{widest:?}: {printed}");
}

fn strip_colours(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |it| it.1);
    }
    plain + rest
}

#[test]
fn old_clients_have_no_block_map() {
    let server = Server::start(exe(), &["--sim", "n300"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, crate::DRAM, 0x1000, 4 << 20);
    client.sync();
    let dump = |args: &[&str]| {
        let mut command = Command::new(exe());
        command.arg("dump").args(args).arg("--query-socket").arg(&server.query).output().unwrap()
    };
    let page = text(&dump(&["--blocks"]));
    let reason = "dram: 4.0 MiB used, block map unknown: the old protocol reports no bank layout";
    assert!(page.contains(reason), "{page}");
    let [map] = &maps(&dump(&["--blocks", "--json"]))[..] else { panic!("{page}") };
    assert!(map.blocks.is_empty() && map.free_bytes_per_bank.is_none() && map.unknown.is_some());
    let report = dump(&["--report", server.folder.path().join("reports").to_str().unwrap()]);
    let message = String::from_utf8_lossy(&report.stderr);
    assert_eq!(report.status.code(), Some(3));
    assert!(message.contains("no allocator is known: the old protocol"), "{message}");
}

#[test]
fn every_list_is_available_as_csv() {
    let folder = memory_folder();
    let mut producer = fragmented(folder.path());
    producer.program(7, [(0, 0), (3, 1)]);
    producer.begin_program(7, "matmul".to_owned());
    producer.hold(7, ttmem_testkit::producer::Held::Cb, UNRESERVED, 4096, [(0, 0), (3, 1)]);
    producer.dispatch(7);
    let pid = producer.pid.to_string();
    let csv = |args: &[&str], format: &str| {
        text(&dump_local(folder.path(), &[args, &["--format", format]].concat()))
    };
    let lists: [(&[&str], &str, usize, &str); 5] = [
        (&[], "devices,space,address,", 5, "call_site"),
        (&["--group-by", "space"], "total_bytes [B],count,", 3, "process_name"),
        (&["--programs"], "devices,pid,process_name,id,", 1, "resident_cores"),
        (&["--cores"], "device,core,cb [B],", 8, "free_gap_bytes [B]"),
        (&["--blocks"], "pid,allocator,devices,space,banks,address,bytes [B],", 8, "owner"),
    ];
    for (args, first, rows, name) in lists {
        let page = csv(args, "csv");
        let header = page.lines().next().unwrap();
        assert!(header.starts_with(first) && header.contains(name), "{header}");
        assert_eq!(page.lines().count(), 1 + rows, "{args:?}: {page}");
        let cells = |line: &str| {
            let mut quoted = false;
            line.chars()
                .filter(|&c| {
                    quoted ^= c == '"';
                    c == ',' && !quoted
                })
                .count()
        };
        let count = cells(header);
        assert!(page.lines().all(|line| cells(line) == count), "{args:?}: {page}");
        let bare = csv(args, "csv,noheader,nounits");
        assert_eq!(bare.lines().count(), rows, "{bare}");
        assert!(!bare.contains(" B,") && page.contains(" B,"), "{bare}");
    }
    let blocks = csv(&["--blocks", "--space", "dram"], "csv,noheader,nounits");
    let first = blocks.lines().next().unwrap();
    assert!(first.starts_with(&format!("{pid},1,0,dram,12,0x0,4096,used,no,49152,")), "{first}");
    let last = blocks.lines().last().unwrap();
    let rest = (1u64 << 40) - 0x4000;
    assert_eq!(last, format!("{pid},1,0,dram,12,0x4000,{rest},free,yes,N/A,N/A,N/A,N/A"));
    let core = csv(&["--cores", "3,1", "-d", "0"], "csv,noheader,nounits");
    assert!(core.starts_with("0,\"3,1\",4096,"), "{core}");
    assert_eq!(csv(&["--top", "1"], "csv").lines().count(), 2);
    let json = csv(&["--group-by", "space"], "json");
    assert!(json.starts_with("{\"schema\":1,"), "{json}");
}

const REPORT: [&str; 3] = ["detailed_memory_usage.csv", "l1_usage_summary.csv", "memory_usage_summary.csv"];

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn report_replaces_all_files_or_none() {
    let (folder, place) = (memory_folder(), tempfile::tempdir().unwrap());
    let producer = fragmented(folder.path());
    let reports = place.path().join("reports");
    let report = |to: &Path| dump_local(folder.path(), &["--report", to.to_str().unwrap()]);
    let printed = text(&report(&reports));
    assert_eq!(names(&reports), REPORT);
    assert!(printed.lines().all(|line| Path::new(line).is_file()), "{printed}");
    let read = |name: &str| fs::read_to_string(reports.join(name)).unwrap();
    let used = |rest: u64| format!(",{},{},{},{}\n", 1u64 << 40, 3 * 0x1000, (1u64 << 40) - 3 * 0x1000, rest);
    let summary = read("memory_usage_summary.csv");
    assert!(summary.contains(&used((1 << 40) - 0x4000)), "{summary}");
    let details = read("detailed_memory_usage.csv");
    let row = format!("{:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n", 2, 8192, 4096, 1, 3, "no");
    assert!(details.contains(&row), "{details}");
    let l1_size = L1_SMALL - UNRESERVED;
    let row =
        format!("{:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n", 0, l1_size - 8192, 8192, 1, "none", "yes");
    assert!(details.contains(&row), "relative to the first address, from the top: {details}");
    let row =
        format!("{:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n", 0, 0, L1_END - L1_SMALL, "none", "none", "no");
    assert!(details.contains(&row), "{details}");
    // Older files are replaced, as the runtime does.
    fs::write(reports.join("memory_usage_summary.csv"), "old").unwrap();
    text(&report(&reports));
    assert_eq!(read("memory_usage_summary.csv"), summary);
    // What cannot be written leaves the others as they are.
    fs::write(reports.join("l1_usage_summary.csv"), "old").unwrap();
    fs::remove_file(reports.join("detailed_memory_usage.csv")).unwrap();
    fs::create_dir(reports.join("detailed_memory_usage.csv")).unwrap();
    let failed = report(&reports);
    let message = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1));
    assert!(message.contains("detailed_memory_usage.csv: it is a folder"), "{message}");
    assert_eq!(
        (names(&reports).as_slice(), read("l1_usage_summary.csv").as_str()),
        (&REPORT.map(String::from)[..], "old")
    );
    // Only the last part of a path is created.
    let failed = report(&place.path().join("a/b"));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("--report: cannot create "), "{failed:?}");
    assert_eq!(failed.status.code(), Some(1));
    let other = fragmented(folder.path());
    let several = report(&reports);
    let message = String::from_utf8_lossy(&several.stderr).into_owned();
    assert!(message.contains("--report is for one allocator, and there are 2: pid "), "{message}");
    assert!(
        message.contains(&producer.pid.to_string()) && message.contains(&other.pid.to_string()),
        "{message}"
    );
}
