//! The checks of `ttmem doctor`.

mod environment;

use crate::*;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use ttmem_testkit::machine::{BOOT, Card, FakeProcess, Machine, cards, n150, p150a, t3k};
use ttmem_testkit::memory_folder;
use ttmem_testkit::producer::Producer;
use ttmem_wire::region::{self, Layout, Levels, ProcessSlot, Region};

/// The verdict, text and remedy of a check.
type Check = (String, String, String);

/// The output of `ttmem doctor`.
struct Report {
    exit: i32,
    page: String,
    checks: Vec<(String, Check)>,
}

impl Report {
    /// All checks of a name.
    fn named(&self, name: &str) -> Vec<&Check> {
        self.checks.iter().filter(|(other, _)| other == name).map(|(_, check)| check).collect()
    }

    /// The only check of a name with this verdict.
    fn one(&self, name: &str, verdict: &str) -> &Check {
        let all: Vec<&Check> = self.named(name).into_iter().filter(|it| it.0 == verdict).collect();
        assert_eq!(all.len(), 1, "{name} {verdict}: {}", self.page);
        all[0]
    }

    /// The names of checks with a warning or worse.
    fn problems(&self) -> Vec<&str> {
        let bad = self.checks.iter().filter(|(_, (verdict, ..))| verdict == "warning" || verdict == "broken");
        bad.map(|(name, _)| name.as_str()).collect()
    }
}

/// `ttmem doctor` without variables of the environment, started by the command in `through`.
fn command(through: &[&str], program: &Path, args: &[&str]) -> Command {
    let words: Vec<&str> = through.iter().copied().chain([program.to_str().unwrap(), "doctor"]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(args);
    for name in ["TTMEM_SHM_DIR", "TTMEM_QUERY_SOCKET", "TTMEM_LEGACY_SOCKET", "TTMEM_TOPOLOGY"] {
        command.env_remove(name);
    }
    // Any ELF file passes the check of the agent.
    command.env("TTMEM_AGENT", program).env_remove("TT_METAL_SHM_TRACKING_DISABLED");
    command
}

/// Runs a command for text and for JSON, which must agree with each other and with the exit code.
fn run(mut command: impl FnMut(&[&str]) -> Command) -> Report {
    let (text, json) = (command(&["--ascii"]).output().unwrap(), command(&["--json"]).output().unwrap());
    let page = String::from_utf8(text.stdout).unwrap();
    assert_eq!(String::from_utf8_lossy(&text.stderr), "");
    assert!(page.is_ascii() && !page.contains('\x1b'), "{page}");
    let exit = text.status.code().unwrap();
    assert_eq!(json.status.code(), Some(exit), "{page}");
    let json = String::from_utf8(json.stdout).unwrap();
    assert_eq!(json.lines().count(), 1);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["schema"], 1);
    let mut worst = 0;
    let mut checks = Vec::new();
    for check in report["checks"].as_array().unwrap() {
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let verdict = text("verdict");
        worst = worst.max(match verdict.as_str() {
            "ok" | "note" => 0,
            "warning" => 1,
            "broken" => 2,
            _ => panic!("{check}"),
        });
        assert!(check["remedy"].is_null() || check["remedy"].is_string(), "{check}");
        assert!(verdict == "note" || (verdict == "ok") == check["remedy"].is_null(), "no remedy: {check}");
        let line = format!("{verdict:<8} {:<14} ", text("name"));
        assert!(page.lines().any(|it| it.starts_with(&line)), "{line:?} is not in\n{page}");
        checks.push((text("name"), (verdict, text("found"), text("remedy"))));
    }
    assert_eq!(report["verdict"], ["ok", "warnings", "broken"][worst]);
    assert_eq!(exit, (worst as i32).min(1), "{page}");
    Report { exit, page, checks }
}

fn check_root(root: &Path) -> Report {
    run(|args| command(&[], exe(), &[&["--root", root.to_str().unwrap()], args].concat()))
}

fn check_machine(machine: &Machine) -> Report {
    check_root(machine.root())
}

/// Checks this machine.
fn check_host(more: &[&str]) -> Report {
    run(|args| command(&[], exe(), &[more, args].concat()))
}

/// A copy of the program that every user can run.
fn copy_for_all() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    (folder, program)
}

/// Checks a machine as a user who is not root.
fn check_as_other_user(machine: &Machine) -> Report {
    let (_keep, program) = copy_for_all();
    run(|args| {
        command(&AS_OTHER_USER, &program, &[&["--root", machine.root().to_str().unwrap()], args].concat())
    })
}

#[test]
fn healthy_machine_has_no_problems() {
    let mut machine = t3k("2.10.0");
    let report = check_machine(&machine);
    assert_eq!((report.exit, report.problems()), (0, vec![]), "{}", report.page);
    assert_eq!(report.one("driver", "ok").1, "tenstorrent 2.10.0");
    assert_eq!(report.one("cards", "ok").1, "4 devices on the bus: 4 n300");
    assert!(report.one("device 6", "ok").1.contains("; inferred from its board, not used yet; remote,"));
    let device = &report.one("device 2", "ok").1;
    let expected = "n300 (Wormhole) at 0000:03:00.0, node 2, firmware 18.5.0.0, id 0x89e991bdb13e0230: 45 °C, 39 W, 1000 MHz";
    assert_eq!(device, expected);
    assert_eq!(report.one("nodes", "ok").1, "/dev/tenstorrent/0-3: every user has access (0666)");
    assert!(report.one("daemon", "ok").1.starts_with("not used"));
    assert!(report.page.ends_with("No problems found.\n"), "{}", report.page);

    // An untracked program with control characters in its name.
    machine.add_process(FakeProcess::new(77, "bad\x1b[2J", &[0, 3]));
    let report = check_machine(&machine);
    let (_, found, remedy) = report.one("tracking", "warning");
    assert!(
        found.starts_with("1 process with a device open, untracked") && found.contains("pid 77 ("),
        "{found}"
    );
    assert!(remedy.contains("ttmem run -- "));
    assert!(report.page.contains("pid 77 (bad?[2J, ada)"), "{}", report.page);
}

#[test]
fn machine_without_cards_gets_a_hint() {
    let nothing = tempfile::tempdir().unwrap();
    let mut machine = Machine::new("2.10.0");
    let loaded = check_machine(&machine);
    assert_eq!(loaded.one("driver", "ok").1, "tenstorrent 2.10.0");
    machine.unload();
    for report in [check_root(nothing.path()), check_machine(&machine), loaded] {
        assert_eq!((report.exit, report.problems()), (1, vec!["cards"]), "{}", report.page);
        assert!(report.one("cards", "warning").2.contains("`ttmem demo`"));
    }
}

#[test]
fn old_driver_is_reported_with_missing_features() {
    let missing = |machine: &Machine| {
        let report = check_machine(machine);
        let (verdict, found, remedy) = report.named("driver")[0].clone();
        assert_eq!(
            (verdict == "warning", report.exit),
            (!remedy.is_empty(), i32::from(verdict == "warning"))
        );
        (verdict, found.split_once(" does not show ").map(|(_, it)| it.to_owned()).unwrap_or_default())
    };
    let (verdict, found) = missing(&p150a("1.34"));
    assert_eq!(verdict, "warning");
    for part in
        ["limits of sensors", "heartbeat", "processes that have a device open", "unique ids", "PCIe traffic"]
    {
        assert!(found.contains(part), "{part}: {found}");
    }
    assert!(!found.contains("clocks"), "{found}");
    let (_, found) = missing(&n150("1.34"));
    assert!(
        found.contains("unique ids") && !found.contains("limits"),
        "every driver shows the limits of a Wormhole: {found}"
    );
    let (_, found) = missing(&n150("1.26"));
    assert!(found.contains("temperature and power") && found.contains("boards and clocks"), "{found}");
    assert_eq!(missing(&p150a("2.8.0")), ("note".to_owned(), "the limits of sensors".to_owned()));
    assert_eq!(missing(&n150("2.8.0")), ("ok".to_owned(), String::new()));
    assert_eq!(missing(&p150a("2.10.1-pre")).0, "ok");
    // A figure that the driver does not show is no problem of the device.
    assert_eq!(check_machine(&n150("1.26")).problems(), ["driver"]);
    // Other users than root see fewer processes.
    let machine = n150("2.4.0");
    assert_eq!(check_machine(&machine).problems(), ["driver"]);
    let report = check_as_other_user(&machine);
    assert!(report.one("permissions", "warning").1.contains("only processes of nobody are known"));
}

#[test]
fn cards_without_a_driver_are_found() {
    let mut machine = t3k("2.10.0");
    machine.unload();
    let report = check_machine(&machine);
    assert_eq!(report.exit, 1);
    let (_, found, remedy) = report.one("driver", "broken");
    assert!(found.starts_with("cards found but the driver is not loaded: 0000:01:00.0, "), "{found}");
    assert!(remedy.contains("modprobe tenstorrent"));
    assert!(!report.page.contains("ttmem demo"));

    // The driver is loaded but does not list this card.
    for (device, driver, verdict, part) in [
        ("0xb140", None, "broken", "the driver does not list it"),
        ("0xb140", Some("vfio-pci"), "note", "is bound to vfio-pci"),
        ("0xfaca", None, "warning", "is a Grayskull"),
    ] {
        let machine = n150("2.10.0");
        let card = machine.root().join("sys/bus/pci/devices/0000:81:00.0");
        fs::create_dir(&card).unwrap();
        fs::write(card.join("vendor"), "0x1e52\n").unwrap();
        fs::write(card.join("device"), format!("{device}\n")).unwrap();
        if let Some(driver) = driver {
            symlink(format!("../../drivers/{driver}"), card.join("driver")).unwrap();
        }
        let report = check_machine(&machine);
        let (_, found, _) = report.one("cards", verdict);
        assert!(found.starts_with("0000:81:00.0 ") && found.contains(part), "{found}");
    }
}

/// The sensors of a working device.
const ESSENTIAL: [&str; 7] =
    ["temp1_input", "power1_input", "curr1_input", "in0_input", "tt_aiclk", "tt_axiclk", "tt_arcclk"];

#[test]
fn device_that_does_not_answer_is_broken() {
    let ones = |card: Card| ESSENTIAL.iter().fold(card, |card, file| card.with(file, "4294967295"));
    let gone = |card: Card| ESSENTIAL.iter().fold(card, |card, file| card.without(file));
    let empty = |card: Card| ESSENTIAL.iter().fold(card, |card, file| card.with(file, ""));
    let failures: [(&dyn Fn(Card) -> Card, &str); 3] =
        [(&ones, "is not possible"), (&gone, "does not show it"), (&empty, "it is empty")];
    for (change, reason) in failures {
        let mut machine = cards("2.10.0", "n150", 3);
        machine.unplug(1);
        machine.add_card(change(Card::new("n150", 1)).with("tt_asic_id", "FFFFFFFFFFFFFFFF"));
        let report = check_machine(&machine);
        assert_eq!((report.exit, report.problems()), (1, vec!["device 1"; 2]), "{}", report.page);
        let (_, found, remedy) = report.one("device 1", "broken");
        assert!(found.contains("at 0000:02:00.0, node 1") && found.contains(reason), "{found}");
        assert!(remedy.contains("tt-smi -r"));
        assert!(report.one("device 1", "warning").1.contains("has no unique id"));
    }
}

#[test]
fn problems_of_a_device_are_reported() {
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("p150a", 0).with("temp1_input", "91000").with("temp1_max", "90000"));
    machine.add_card(Card::new("p150a", 1).with("tt_therm_trip_count", "3"));
    machine.add_card(Card::new("p150a", 2).with("power1_input", "4294967295000000"));
    machine.add_card(Card::new("p150a", 3).without("tt_asic_id"));
    // A missing fan is no problem.
    machine.add_card(Card::new("p150a", 4).with("fan1_input", "4294967295").without("tt_arcclk"));
    let report = check_machine(&machine);
    assert_eq!(report.problems(), ["device 0", "device 1", "device 2", "device 3"], "{}", report.page);
    for (device, part) in [
        ("device 0", "91 °C: it throttles at 90 °C"),
        ("device 1", "3 thermal shutdowns since power-on"),
        ("device 2", "power_watts: 4294967295000000 is not possible"),
        ("device 3", "has no unique id"),
    ] {
        let found = &report.one(device, "warning").1;
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn nodes_must_be_accessible_to_all_users() {
    let machine = cards("2.10.0", "n150", 4);
    machine.set_mode("dev/tenstorrent/1", 0o600);
    machine.set_mode("dev/tenstorrent/2", 0o660);
    chown(machine.root().join("dev/tenstorrent/2"), None, Some(1000)).unwrap();
    fs::remove_file(machine.root().join("dev/tenstorrent/3")).unwrap();
    let report = check_machine(&machine);
    assert_eq!((report.exit, report.named("nodes").len()), (1, 4), "{}", report.page);
    assert!(report.one("nodes", "ok").1.starts_with("/dev/tenstorrent/0: every user has access"));
    assert!(report.one("nodes", "note").1.contains("2: only root and group 1000 have access (0660)"));
    let bad: Vec<_> = report.named("nodes").into_iter().filter(|it| it.0 == "warning").collect();
    assert!(bad[0].1.starts_with("/dev/tenstorrent/3 missing"), "{bad:?}");
    assert!(bad[1].1.starts_with("/dev/tenstorrent/1: only root has access (0600)"), "{bad:?}");
    assert!(bad[1].2.contains("udev"));
}

/// Writes a file of tt-metal counters with one process.
fn counters(machine: &Machine, chip: u64, pid: u32, name: &str, bytes: u64) -> PathBuf {
    let held = Levels { dram: bytes, ..Levels::default() };
    // Long after the start of the process.
    let updated_ns = (BOOT + 1_000_000) * 1_000_000_000;
    let slot = ProcessSlot { slot: 0, pid, held, updated_ns, name: name.to_owned() };
    let region = Region { totals: held, processes: vec![slot], asic_id: chip, ..Region::new(Layout::V3) };
    let path = machine.root().join(format!("dev/shm/tt_device_{chip}_memory"));
    fs::write(&path, region::build(Layout::V3, &region)).unwrap();
    path
}

const CHIP: u64 = 0x89e9_91bd_b13e_022e;

#[test]
fn counters_of_exited_processes_are_reported() {
    let mut machine = n150("2.10.0");
    machine.add_process(FakeProcess::new(77, "python", &[0]));
    counters(&machine, CHIP, 77, "python", 4096);
    let report = check_machine(&machine);
    assert_eq!(report.exit, 0, "{}", report.page);
    assert_eq!(report.one("counters", "ok").1, "1 file of tt-metal counters (v3), 1 in use");
    assert!(report.one("tracking", "note").1.contains("by tt-metal counters only"), "{}", report.page);

    machine.end_process(77);
    let report = check_machine(&machine);
    assert_eq!((report.exit, report.problems()), (1, vec!["counters"]), "{}", report.page);
    let (_, found, remedy) = report.one("counters", "warning");
    assert!(found.contains("pid 77 (python) exited") && found.contains("4.0 KiB"), "{found}");
    assert!(remedy.contains("remove the file"));
    let (_, found, remedy) = report.one("stale counters", "note");
    assert!(found.starts_with("1 file of unused tt-metal counters"), "{found}");
    assert!(remedy.contains(&format!("tt_device_{CHIP}_memory")));

    // Many files, and files of devices that are not present, are summarised.
    fs::remove_file(counters(&machine, CHIP, 77, "python", 4096)).unwrap();
    for n in 1..=50 {
        counters(&machine, (1 << 60) + u64::from(n), 1000 + n, "python", 1 << 20);
    }
    let report = check_machine(&machine);
    assert_eq!((report.exit, report.named("counters").len()), (0, 2), "{}", report.page);
    assert!(
        report
            .one("counters", "note")
            .1
            .starts_with("tt-metal counters still list 50 exited processes with 50.0 MiB")
    );
    assert!(report.one("stale counters", "note").2.ends_with("dev/shm/tt_device_*_memory"));

    // An exited process without memory is no problem.
    let machine = n150("2.10.0");
    counters(&machine, CHIP, 77, "python", 0);
    let report = check_machine(&machine);
    assert_eq!(
        (report.exit, report.one("counters", "ok").1.as_str()),
        (0, "1 file of tt-metal counters (v3), 0 in use")
    );
    // A layout of a later version.
    fs::write(machine.root().join("dev/shm/tt_device_5_memory"), [9; 8576]).unwrap();
    let report = check_machine(&machine);
    let found = &report.one("counters", "warning").1;
    assert!(found.contains("a layout this ttmem does not know"), "{found}");
}

#[test]
fn unreadable_files_are_reported_with_a_remedy() {
    let mut machine = n150("2.10.0");
    machine.add_process(FakeProcess { uid: 0, ..FakeProcess::new(77, "python", &[0]) });
    let path = counters(&machine, CHIP, 77, "python", 4096);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(check_machine(&machine).exit, 0, "root reads it");
    let report = check_as_other_user(&machine);
    assert_eq!((report.exit, report.problems()), (1, vec!["permissions", "tracking"]), "{}", report.page);
    assert!(report.one("permissions", "note").1.starts_with("running as nobody"));
    let (_, found, remedy) = report.one("permissions", "warning");
    assert_eq!(*found, format!("1 file not readable: {} of root", path.display()));
    assert!(remedy.contains("as root") && remedy.contains("`ttmem serve`"));
    assert!(report.one("counters", "ok").1.ends_with("and 1 file of other users, not readable"));
    // A process with a segment may be tracked.
    let segment = machine.root().join("dev/shm/ttmem.77.0000000000000001");
    fs::write(&segment, "").unwrap();
    fs::set_permissions(&segment, fs::Permissions::from_mode(0o600)).unwrap();
    let report = check_as_other_user(&machine);
    assert_eq!(report.problems(), ["permissions"], "{}", report.page);
    assert!(report.one("permissions", "warning").1.starts_with("2 files not readable: "));
}

#[test]
fn no_device_is_opened_and_nothing_is_written() {
    let mut machine = t3k("2.10.0");
    machine.add_processes(4);
    counters(&machine, CHIP, 77, "python", 4096);
    let trace = tempfile::NamedTempFile::new().unwrap();
    let calls = "open,openat,openat2,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,\
                 symlinkat,utimensat,truncate,ftruncate,chmod,fchmod,fchmodat,mknod,mknodat";
    let through =
        ["strace", "-f", "-y", "-e", &format!("trace={calls}"), "-o", trace.path().to_str().unwrap()];
    let root = machine.root().to_str().unwrap();
    let output = command(&through, exe(), &["--root", root]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let calls = fs::read_to_string(trace.path()).unwrap();
    let below = |part: &str| calls.lines().filter(|call| call.contains(&format!("{root}{part}"))).count();
    assert!(below("/sys/") > 100 && below("/dev/shm") > 0, "the trace contains opened files");
    // Ends of calls that begin in other lines, and threads that ended with the program.
    let is_noise = |call: &&str| !call.contains('(') || call.contains(" resumed>") || call.contains("???(");
    for call in calls.lines().filter(|call| !is_noise(call)) {
        assert!(!call.contains("dev/tenstorrent"), "{call}");
        let (_, name) = call.split_once(' ').unwrap();
        let name = name.trim_start().split('(').next().unwrap();
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag));
        assert!(["open", "openat", "openat2"].contains(&name) && !writes, "{call}");
    }
}
