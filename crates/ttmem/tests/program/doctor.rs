//! What `ttmem doctor` makes of machines, and of what is wrong with them.

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

/// One check: how it is, what was found, what to do.
type Check = (String, String, String);

/// What the doctor says.
struct Report {
    exit: i32,
    page: String,
    checks: Vec<(String, Check)>,
}

impl Report {
    /// All checks of a name.
    fn of(&self, name: &str) -> Vec<&Check> {
        self.checks.iter().filter(|(of, _)| of == name).map(|(_, check)| check).collect()
    }

    /// The one check with such a verdict, of a name.
    fn one(&self, name: &str, verdict: &str) -> &Check {
        let all: Vec<&Check> = self.of(name).into_iter().filter(|it| it.0 == verdict).collect();
        assert_eq!(all.len(), 1, "{name} {verdict}: {}", self.page);
        all[0]
    }

    /// The worse ones.
    fn complaints(&self) -> Vec<&str> {
        let bad = self.checks.iter().filter(|(_, (verdict, ..))| verdict == "warning" || verdict == "broken");
        bad.map(|(name, _)| name.as_str()).collect()
    }
}

/// A program that nothing of the environment leads astray.
fn command(through: &[&str], program: &Path, args: &[&str]) -> Command {
    let words: Vec<&str> = through.iter().copied().chain([program.to_str().unwrap(), "doctor"]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(args);
    for name in ["TTMEM_SHM_DIR", "TTMEM_QUERY_SOCKET", "TTMEM_LEGACY_SOCKET", "TTMEM_TOPOLOGY"] {
        command.env_remove(name);
    }
    // Any library does.
    command.env("TTMEM_AGENT", program).env_remove("TT_METAL_SHM_TRACKING_DISABLED");
    command
}

/// Asks for text and for JSON, which must agree with each other and with the exit code.
fn ask(mut ask: impl FnMut(&[&str]) -> Command) -> Report {
    let (text, json) = (ask(&["--ascii"]).output().unwrap(), ask(&["--json"]).output().unwrap());
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

fn of_root(root: &Path) -> Report {
    ask(|args| command(&[], exe(), &[&["--root", root.to_str().unwrap()], args].concat()))
}

fn of(machine: &Machine) -> Report {
    of_root(machine.root())
}

/// Of this machine, whatever it has.
fn here(more: &[&str]) -> Report {
    ask(|args| command(&[], exe(), &[more, args].concat()))
}

/// The program where anybody can run it.
fn for_all() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("ttmem");
    fs::copy(exe(), &program).unwrap();
    (folder, program)
}

/// The same as a user who is not root.
fn as_nobody(machine: &Machine) -> Report {
    let (_keep, program) = for_all();
    ask(|args| command(&NOBODY, &program, &[&["--root", machine.root().to_str().unwrap()], args].concat()))
}

#[test]
fn a_healthy_machine_is_well() {
    let mut machine = t3k("2.10.0");
    let report = of(&machine);
    assert_eq!((report.exit, report.complaints()), (0, vec![]), "{}", report.page);
    assert_eq!(report.one("driver", "ok").1, "tenstorrent 2.10.0");
    assert!(report.one("cards", "ok").1.starts_with("4 devices on the bus: 4 n300; the second device"));
    let chip = &report.one("device 2", "ok").1;
    let expected = "n300 (Wormhole) at 0000:03:00.0, node 2, firmware 18.5.0.0, id 0x89e991bdb13e0230: 45 °C, 39 W, 1000 MHz";
    assert_eq!(chip, expected);
    assert_eq!(report.one("nodes", "ok").1, "/dev/tenstorrent/0-3: every user has access (0666)");
    assert!(report.one("daemon", "ok").1.starts_with("not used"));
    assert!(report.page.ends_with("No problems found.\n"), "{}", report.page);

    // A program that nobody follows; its name is its own choice.
    machine.add_process(FakeProcess::new(77, "bad\x1b[2J", &[0, 3]));
    let report = of(&machine);
    let (_, found, remedy) = report.one("tracking", "warning");
    assert!(
        found.starts_with("1 process with a device open, untracked") && found.contains("pid 77 ("),
        "{found}"
    );
    assert!(remedy.contains("ttmem run -- "));
    assert!(report.page.contains("pid 77 (bad?[2J, ada)"), "{}", report.page);
}

#[test]
fn where_there_is_nothing_there_is_a_hint() {
    let nothing = tempfile::tempdir().unwrap();
    let mut machine = Machine::new("2.10.0");
    let loaded = of(&machine);
    assert_eq!(loaded.one("driver", "ok").1, "tenstorrent 2.10.0");
    machine.unload();
    for report in [of_root(nothing.path()), of(&machine), loaded] {
        assert_eq!((report.exit, report.complaints()), (1, vec!["cards"]), "{}", report.page);
        assert!(report.one("cards", "warning").2.contains("`ttmem demo`"));
    }
}

#[test]
fn an_old_driver_is_said_to_lack_what_it_lacks() {
    let lacks = |machine: &Machine| {
        let report = of(machine);
        let (verdict, found, remedy) = report.of("driver")[0].clone();
        assert_eq!(
            (verdict == "warning", report.exit),
            (!remedy.is_empty(), i32::from(verdict == "warning"))
        );
        (verdict, found.split_once(" does not show ").map(|(_, it)| it.to_owned()).unwrap_or_default())
    };
    let (verdict, found) = lacks(&p150a("1.34"));
    assert_eq!(verdict, "warning");
    for part in
        ["limits of sensors", "heartbeat", "processes that have a device open", "unique ids", "PCIe traffic"]
    {
        assert!(found.contains(part), "{part}: {found}");
    }
    assert!(!found.contains("clocks"), "{found}");
    let (_, found) = lacks(&n150("1.34"));
    assert!(found.contains("unique ids") && !found.contains("limits"), "Wormhole always had them: {found}");
    let (_, found) = lacks(&n150("1.26"));
    assert!(found.contains("temperature and power") && found.contains("boards and clocks"), "{found}");
    assert_eq!(lacks(&p150a("2.8.0")), ("note".to_owned(), "the limits of sensors".to_owned()));
    assert_eq!(lacks(&n150("2.8.0")), ("ok".to_owned(), String::new()));
    assert_eq!(lacks(&p150a("2.10.1-pre")).0, "ok");
    // What the driver does not show is not the chip's fault.
    assert_eq!(of(&n150("1.26")).complaints(), ["driver"]);
    // Who is not root learns less.
    let machine = n150("2.4.0");
    assert_eq!(of(&machine).complaints(), ["driver"]);
    let report = as_nobody(&machine);
    assert!(report.one("permissions", "warning").1.contains("only processes of nobody are known"));
}

#[test]
fn cards_without_a_driver_are_found() {
    let mut machine = t3k("2.10.0");
    machine.unload();
    let report = of(&machine);
    assert_eq!(report.exit, 1);
    let (_, found, remedy) = report.one("driver", "broken");
    assert!(found.starts_with("cards found but the driver is not loaded: 0000:01:00.0, "), "{found}");
    assert!(remedy.contains("modprobe tenstorrent"));
    assert!(!report.page.contains("ttmem demo"));

    // A driver, but not for this card.
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
        let report = of(&machine);
        let (_, found, _) = report.one("cards", verdict);
        assert!(found.starts_with("0000:81:00.0 ") && found.contains(part), "{found}");
    }
}

/// Every sensor that says whether a chip lives.
const VITAL: [&str; 7] =
    ["temp1_input", "power1_input", "curr1_input", "in0_input", "tt_aiclk", "tt_axiclk", "tt_arcclk"];

#[test]
fn a_chip_that_does_not_answer_is_broken_and_the_others_are_not() {
    let ones = |card: Card| VITAL.iter().fold(card, |card, file| card.with(file, "4294967295"));
    let gone = |card: Card| VITAL.iter().fold(card, |card, file| card.without(file));
    let empty = |card: Card| VITAL.iter().fold(card, |card, file| card.with(file, ""));
    let ways: [(&dyn Fn(Card) -> Card, &str); 3] =
        [(&ones, "is not possible"), (&gone, "does not show it"), (&empty, "it is empty")];
    for (change, why) in ways {
        let mut machine = cards("2.10.0", "n150", 3);
        machine.unplug(1);
        machine.add_card(change(Card::new("n150", 1)).with("tt_asic_id", "FFFFFFFFFFFFFFFF"));
        let report = of(&machine);
        assert_eq!((report.exit, report.complaints()), (1, vec!["device 1"; 2]), "{}", report.page);
        let (_, found, remedy) = report.one("device 1", "broken");
        assert!(found.contains("at 0000:02:00.0, node 1") && found.contains(why), "{found}");
        assert!(remedy.contains("tt-smi -r"));
        assert!(report.one("device 1", "warning").1.contains("has no unique id"));
    }
}

#[test]
fn a_chip_may_be_unwell() {
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("p150a", 0).with("temp1_input", "91000").with("temp1_max", "90000"));
    machine.add_card(Card::new("p150a", 1).with("tt_therm_trip_count", "3"));
    machine.add_card(Card::new("p150a", 2).with("power1_input", "4294967295000000"));
    machine.add_card(Card::new("p150a", 3).without("tt_asic_id"));
    // No fan is no fault.
    machine.add_card(Card::new("p150a", 4).with("fan1_input", "4294967295").without("tt_arcclk"));
    let report = of(&machine);
    assert_eq!(report.complaints(), ["device 0", "device 1", "device 2", "device 3"], "{}", report.page);
    for (chip, part) in [
        ("device 0", "91 °C: it throttles at 90 °C"),
        ("device 1", "3 thermal shutdowns since power-on"),
        ("device 2", "power_watts: 4294967295000000 is not possible"),
        ("device 3", "has no unique id"),
    ] {
        let found = &report.one(chip, "warning").1;
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn nodes_must_be_for_everybody() {
    let machine = cards("2.10.0", "n150", 4);
    machine.set_mode("dev/tenstorrent/1", 0o600);
    machine.set_mode("dev/tenstorrent/2", 0o660);
    chown(machine.root().join("dev/tenstorrent/2"), None, Some(1000)).unwrap();
    fs::remove_file(machine.root().join("dev/tenstorrent/3")).unwrap();
    let report = of(&machine);
    assert_eq!((report.exit, report.of("nodes").len()), (1, 4), "{}", report.page);
    assert!(report.one("nodes", "ok").1.starts_with("/dev/tenstorrent/0: every user has access"));
    assert!(report.one("nodes", "note").1.contains("2: only root and group 1000 have access (0660)"));
    let bad: Vec<_> = report.of("nodes").into_iter().filter(|it| it.0 == "warning").collect();
    assert!(bad[0].1.starts_with("/dev/tenstorrent/3 missing"), "{bad:?}");
    assert!(bad[1].1.starts_with("/dev/tenstorrent/1: only root has access (0600)"), "{bad:?}");
    assert!(bad[1].2.contains("udev"));
}

/// A file of tt-metal's counters, with one process in it.
fn counters(machine: &Machine, chip: u64, pid: u32, name: &str, bytes: u64) -> PathBuf {
    let held = Levels { dram: bytes, ..Levels::default() };
    // Long after it started.
    let updated_ns = (BOOT + 1_000_000) * 1_000_000_000;
    let slot = ProcessSlot { slot: 0, pid, held, updated_ns, name: name.to_owned() };
    let region = Region { totals: held, processes: vec![slot], asic_id: chip, ..Region::new(Layout::V3) };
    let path = machine.root().join(format!("dev/shm/tt_device_{chip}_memory"));
    fs::write(&path, region::build(Layout::V3, &region)).unwrap();
    path
}

const CHIP: u64 = 0x89e9_91bd_b13e_022e;

#[test]
fn counters_are_of_the_living_or_of_the_dead() {
    let mut machine = n150("2.10.0");
    machine.add_process(FakeProcess::new(77, "python", &[0]));
    counters(&machine, CHIP, 77, "python", 4096);
    let report = of(&machine);
    assert_eq!(report.exit, 0, "{}", report.page);
    assert_eq!(report.one("counters", "ok").1, "1 file of tt-metal counters (v3), 1 in use");
    assert!(report.one("tracking", "note").1.contains("by tt-metal counters only"), "{}", report.page);

    machine.end_process(77);
    let report = of(&machine);
    assert_eq!((report.exit, report.complaints()), (1, vec!["counters"]), "{}", report.page);
    let (_, found, remedy) = report.one("counters", "warning");
    assert!(found.contains("pid 77 (python) exited") && found.contains("4.0 KiB"), "{found}");
    assert!(remedy.contains("remove the file"));
    let (_, found, remedy) = report.one("stale counters", "note");
    assert!(found.starts_with("1 file of unused tt-metal counters"), "{found}");
    assert!(remedy.contains(&format!("tt_device_{CHIP}_memory")));

    // Of many, and of chips that are not here, a word is enough.
    fs::remove_file(counters(&machine, CHIP, 77, "python", 4096)).unwrap();
    for n in 1..=50 {
        counters(&machine, (1 << 60) + u64::from(n), 1000 + n, "python", 1 << 20);
    }
    let report = of(&machine);
    assert_eq!((report.exit, report.of("counters").len()), (0, 2), "{}", report.page);
    assert!(
        report
            .one("counters", "note")
            .1
            .starts_with("tt-metal counters still list 50 exited processes with 50.0 MiB")
    );
    assert!(report.one("stale counters", "note").2.ends_with("dev/shm/tt_device_*_memory"));

    // Nothing held, nothing odd.
    let machine = n150("2.10.0");
    counters(&machine, CHIP, 77, "python", 0);
    let report = of(&machine);
    assert_eq!(
        (report.exit, report.one("counters", "ok").1.as_str()),
        (0, "1 file of tt-metal counters (v3), 0 in use")
    );
    // A layout of tomorrow.
    fs::write(machine.root().join("dev/shm/tt_device_5_memory"), [9; 8576]).unwrap();
    let report = of(&machine);
    let found = &report.one("counters", "warning").1;
    assert!(found.contains("a layout this ttmem does not know"), "{found}");
}

#[test]
fn what_another_user_may_not_read_is_said_with_a_remedy() {
    let mut machine = n150("2.10.0");
    machine.add_process(FakeProcess { uid: 0, ..FakeProcess::new(77, "python", &[0]) });
    let path = counters(&machine, CHIP, 77, "python", 4096);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(of(&machine).exit, 0, "root reads it");
    let report = as_nobody(&machine);
    assert_eq!((report.exit, report.complaints()), (1, vec!["permissions", "tracking"]), "{}", report.page);
    assert!(report.one("permissions", "note").1.starts_with("running as nobody"));
    let (_, found, remedy) = report.one("permissions", "warning");
    assert_eq!(*found, format!("1 file not readable: {} of root", path.display()));
    assert!(remedy.contains("as root") && remedy.contains("`ttmem serve`"));
    assert!(report.one("counters", "ok").1.ends_with("and 1 file of other users, not readable"));
    // With a segment, it may well be tracked.
    let segment = machine.root().join("dev/shm/ttmem.77.0000000000000001");
    fs::write(&segment, "").unwrap();
    fs::set_permissions(&segment, fs::Permissions::from_mode(0o600)).unwrap();
    let report = as_nobody(&machine);
    assert_eq!(report.complaints(), ["permissions"], "{}", report.page);
    assert!(report.one("permissions", "warning").1.starts_with("2 files not readable: "));
}

#[test]
fn what_the_dead_left_is_counted() {
    let machine = n150("2.10.0");
    let shm = machine.root().join("dev/shm");
    let mut producer = Producer::new(&shm);
    producer.alloc(4096, 64);
    let living = of(&machine);
    assert!(living.one("tracking", "ok").1.starts_with("1 process self-reporting"), "{}", living.page);
    producer.kill();
    fs::write(shm.join("ttmem.nonsense"), "").unwrap();
    let report = of(&machine);
    let (_, found, remedy) = report.one("crash segments", "note");
    assert!(found.starts_with("1 segment of exited processes: "), "{found}");
    assert!(remedy.contains("ttmem dump --segment"));
    assert!(report.one("segments", "warning").1.ends_with("ttmem.nonsense is named for another segment"));
}

#[test]
fn the_folder_for_shared_memory_must_be_one() {
    let home = memory_folder();
    let folder = home.path().join("shm");
    let shown = folder.to_str().unwrap();
    let report = here(&["--local", "--shm-dir", shown]);
    assert!(report.one("shared memory", "broken").1.contains("No such file"), "{}", report.page);
    fs::create_dir(&folder).unwrap();
    let report = here(&["--local", "--shm-dir", "/proc"]);
    assert!(report.one("shared memory", "broken").1.contains("is not on a tmpfs"));
    for chosen in ["/proc", "/nowhere"] {
        let report = here(&["--local", "--shm-dir", chosen]);
        assert!(!report.complaints().contains(&"segments"), "said once: {}", report.page);
        assert!(!report.page.contains("remove"), "a folder that was chosen: {}", report.page);
        assert!(report.one("shared memory", "broken").2.contains("TTMEM_SHM_DIR"), "{}", report.page);
    }
    // As containers have it.
    for (size, verdict) in [("64m", "warning"), ("256m", "ok")] {
        let script = format!("mount -t tmpfs -o size={size} none {shown} && exec \"$0\" \"$@\"");
        let through = ["unshare", "--mount", "sh", "-c", &script];
        let report = ask(|args| command(&through, exe(), &[&["--local", "--shm-dir", shown], args].concat()));
        let (_, found, remedy) = report.one("shared memory", verdict);
        assert!(found.contains(" is a tmpfs: "), "{found}");
        assert_eq!(remedy.contains("--shm-size"), size == "64m");
    }
    // Asked, and not tried.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let (_keep, program) = for_all();
    let report = ask(|args| command(&NOBODY, &program, &[&["--local", "--shm-dir", shown], args].concat()));
    let denied = report.of("shared memory").into_iter().find(|it| it.1.contains("is not writable"));
    assert!(denied.is_some_and(|it| it.0 == "warning"), "{}", report.page);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_seen_from_inside_is_said() {
    let folder = memory_folder();
    let shm = ["--local", "--shm-dir", folder.path().to_str().unwrap()];
    let inside = |through: &[&str]| ask(|args| command(through, exe(), &[&shm[..], args].concat()));
    let report = inside(&["unshare", "--pid", "--fork", "--mount-proc"]);
    let (_, found, remedy) = report.one("processes", "note");
    assert!(
        found.contains("processes outside it are not visible") && remedy.contains("--pid=host"),
        "{found}"
    );
    let report = inside(&["unshare", "--user", "--map-root-user"]);
    assert!(report.one("permissions", "note").1.contains("root of a user namespace"), "{}", report.page);
    // Another machine's processes are what its files say, wherever we are.
    let machine = n150("2.10.0");
    let through = ["unshare", "--pid", "--fork", "--mount-proc"];
    let report =
        ask(|args| command(&through, exe(), &[&["--root", machine.root().to_str().unwrap()], args].concat()));
    assert_eq!(report.one("processes", "ok").1, "as in the files below --root");
    // Somebody has the chip open who is not in the reader's namespace.
    machine.set(machine.pids(0), "0\n0\n");
    let report = of(&machine);
    let (_, found, remedy) = report.one("processes", "warning");
    assert!(
        found.contains("opened 2 times by processes not visible") && remedy.contains("--pid=host"),
        "{found}"
    );
}

#[test]
fn the_environment_is_looked_at() {
    let machine = n150("2.10.0");
    let root = ["--root", machine.root().to_str().unwrap()];
    let with = |name: &str, value: &str| {
        ask(|args| {
            let mut command = command(&[], exe(), &[&root[..], args].concat());
            command.env(name, value);
            command
        })
    };
    let report = with("TT_METAL_SHM_TRACKING_DISABLED", "1");
    assert_eq!(report.exit, 0);
    assert!(report.one("counters", "note").1.starts_with("TT_METAL_SHM_TRACKING_DISABLED is set"));
    assert_eq!(with("TT_METAL_SHM_TRACKING_DISABLED", "0").of("counters").len(), 1);
    let text = machine.root().join("text.so");
    fs::write(&text, "text").unwrap();
    for (agent, part) in [("/nowhere.so", "is not a file"), (text.to_str().unwrap(), "not a library")] {
        let report = with("TTMEM_AGENT", agent);
        assert_eq!(report.complaints(), ["agent"]);
        let (_, found, remedy) = report.one("agent", "warning");
        assert!(found.contains(part) && remedy.contains("TTMEM_AGENT"), "{found}: {remedy}");
    }
    assert!(
        with("TTMEM_AGENT", exe().to_str().unwrap())
            .one("agent", "ok")
            .1
            .starts_with("`ttmem run` preloads /")
    );
}

#[test]
fn a_topology_is_taken_or_refused() {
    let machine = cards("2.10.0", "n300", 1);
    let file = machine.root().join("cluster.yaml");
    let report = |text: &str| {
        fs::write(&file, text).unwrap();
        let args = ["--root", machine.root().to_str().unwrap(), "--topology", file.to_str().unwrap()];
        ask(|more| command(&[], exe(), &[&args[..], more].concat()))
    };
    let good = "arch: {0: wormhole_b0, 1: wormhole_b0}\nchips: {0: [0,0,0,0], 1: [1,0,0,0]}\n\
                ethernet_connections: []\nchips_with_mmio: [{0: 0}]\nharvesting: {0: {noc_translation: true, \
                harvest_mask: 129}, 1: {noc_translation: true, harvest_mask: 6}}\n\
                boards: [[{board_id: 1}, {board_type: n300}, {chips: [0,1]}]]\n";
    let found = report(good);
    assert_eq!(
        (found.exit, found.one("topology", "ok").1.as_str()),
        (0, "2 devices described"),
        "{}",
        found.page
    );
    assert!(found.one("device 1", "ok").1.contains(", remote"), "{}", found.page);
    assert_eq!(found.one("cards", "ok").1, "1 device on the bus: 1 n300");
    let found = report("nonsense");
    assert_eq!((found.exit, found.complaints()), (1, vec!["topology"]), "the rest is looked at all the same");
    assert!(found.of("device 0").len() == 1, "{}", found.page);
}

#[test]
fn the_daemon_is_asked() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let shm = server.segments.path().to_str().unwrap();
    let asked = |query: &Path, legacy: &Path| {
        let [query, legacy] = [query, legacy].map(|path| path.to_str().unwrap());
        here(&["--shm-dir", shm, "--query-socket", query, "--legacy-socket", legacy])
    };
    let report = asked(&server.query, &server.legacy);
    let (_, found, _) = report.one("daemon", "ok");
    assert!(found.starts_with(&format!("pid {} (ttmem, root) answers at ", server.pid())), "{found}");
    assert!(report.one("daemon", "note").1.contains("simulated"));
    assert!(report.one("old clients", "ok").1.starts_with("the daemon serves "), "{}", report.page);

    let (missing, dead, strange, file) = (
        folder.path().join("no"),
        folder.path().join("dead"),
        folder.path().join("strange"),
        folder.path().join("file"),
    );
    drop(UnixListener::bind(&dead).unwrap());
    fs::write(&file, "").unwrap();
    let report = asked(&missing, &missing);
    let (_, found, remedy) = report.one("daemon", "warning");
    assert!(found.contains("not running: no answer at ") && remedy.contains("`ttmem serve`"), "{found}");
    assert!(report.one("old clients", "ok").1.starts_with("no server at "));
    let report = asked(&dead, &dead);
    assert!(report.one("daemon", "note").1.ends_with("is left from a daemon that has exited"));
    assert!(report.one("old clients", "note").1.ends_with("is left from a server that has exited"));
    let listener = UnixListener::bind(&strange).unwrap();
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let report = asked(&strange, &strange);
    assert_eq!(report.exit, 1);
    assert!(
        report.one("daemon", "broken").1.contains("does not speak the query protocol"),
        "{}",
        report.page
    );
    let served = &report.one("old clients", "note").1;
    assert!(served.contains(&format!("is served by pid {} (", std::process::id())), "{served}");
    // A later one, which says things that we do not know.
    let later = folder.path().join("later");
    let listener = UnixListener::bind(&later).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = r#"{"simulated":false,"host":{"ttmem":"99.0"},"findings":[{"kind":"of tomorrow"}]}"#;
            let _ = stream.read(&mut [0; 100]).and_then(|_| writeln!(stream, "{answer}"));
        }
    });
    let found = &asked(&later, &missing).one("daemon", "warning").1.clone();
    assert!(found.contains("with version 99.0; this is ttmem 0."), "{found}");
    let report = asked(&missing, &file);
    assert!(report.one("old clients", "warning").1.contains("is not a socket"));

    // One that hangs is not waited for, beyond reason.
    server.signal(Signal::STOP);
    let report = asked(&server.query, &server.legacy);
    assert!(report.one("daemon", "broken").1.contains("does not answer within 5 s"), "{}", report.page);
    server.signal(Signal::CONT);

    // What others wrote, a daemon of root's reads for everybody.
    let secret = server.segments.path().join("tt_device_5_memory");
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let (_keep, program) = for_all();
    let (query, legacy) = (server.query.to_str().unwrap(), server.legacy.to_str().unwrap());
    let args = ["--shm-dir", shm, "--query-socket", query, "--legacy-socket", legacy];
    let report = ask(|more| command(&NOBODY, &program, &[&args[..], more].concat()));
    assert!(report.of("permissions").iter().all(|it| it.0 == "note"), "{}", report.page);
    assert!(
        report.of("permissions").iter().any(|it| it.1.ends_with("the daemon reads them")),
        "{}",
        report.page
    );
}

#[test]
fn no_chip_is_opened_and_nothing_is_written() {
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
    assert!(below("/sys/") > 100 && below("/dev/shm") > 0, "the trace shows what is opened");
    // Ends of calls whose beginnings are other lines, and threads that ended with the program.
    let noise = |call: &&str| !call.contains('(') || call.contains(" resumed>") || call.contains("???(");
    for call in calls.lines().filter(|call| !noise(call)) {
        assert!(!call.contains("dev/tenstorrent"), "{call}");
        let (_, name) = call.split_once(' ').unwrap();
        let name = name.trim_start().split('(').next().unwrap();
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag));
        assert!(["open", "openat", "openat2"].contains(&name) && !writes, "{call}");
    }
}
