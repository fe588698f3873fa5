//! Simulated machines, compared with what real drivers showed and with what is known of the driver's versions.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use ttmem_testkit::machine::{
    BOOT, Card, FakeProcess, Machine, cards, galaxy, galaxy_blackhole, n150, p150a, p300b, t3k,
};

/// Files that the bus shows of any device, and that simulated machines lack.
const LEFT_OUT: [&str; 23] = [
    "ari_enabled",
    "broken_parity_status",
    "config",
    "consistent_dma_mask_bits",
    "d3cold_allowed",
    "dma_mask_bits",
    "driver_override",
    "enable",
    "firmware_node",
    "irq",
    "local_cpulist",
    "local_cpus",
    "modalias",
    "msi_bus",
    "numa_node",
    "power_state",
    "remove",
    "rescan",
    "resource",
    "resource0",
    "resource2",
    "resource4",
    "subsystem",
];

#[derive(Debug, PartialEq)]
enum Entry {
    File(String),
    Link(String),
    /// A file whose text was not captured.
    Unread,
}

/// Entries by path on the machine. Folders are not listed.
type Tree = BTreeMap<String, Entry>;

fn walk(root: &Path, below: &str, tree: &mut Tree) {
    for entry in fs::read_dir(root.join(below)).into_iter().flatten().map(Result::unwrap) {
        let path = format!("{below}/{}", entry.file_name().to_str().unwrap());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            walk(root, &path, tree);
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            tree.insert(format!("/{path}"), Entry::Link(target.to_str().unwrap().to_owned()));
        } else {
            tree.insert(format!("/{path}"), Entry::File(fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

/// Replaces the arbitrary numbers of sensors by the names of their devices.
fn normalized(tree: Tree) -> Tree {
    let targets = tree.iter().filter_map(|(path, entry)| match entry {
        Entry::Link(target) if path.starts_with("/sys/class/hwmon/") => Some((path, target)),
        _ => None,
    });
    let names: BTreeMap<String, String> = targets
        .map(|(path, target)| {
            let number = path.rsplit('/').next().unwrap();
            let device = target.rsplit('/').nth(2).unwrap();
            (number.to_owned(), format!("hwmon-of-{device}"))
        })
        .collect();
    let rename = |path: &str| {
        let parts = path.split('/').map(|part| names.get(part).map_or(part, String::as_str));
        parts.collect::<Vec<_>>().join("/")
    };
    let entries = tree.into_iter().map(|(path, entry)| match entry {
        Entry::Link(target) => (rename(&path), Entry::Link(rename(&target))),
        entry => (rename(&path), entry),
    });
    entries.collect()
}

/// A simulated machine with the same cards, by their identity; readings are the default ones.
fn simulate(driver: &str, shown: &Tree) -> Machine {
    let mut machine = Machine::new(driver);
    for (path, entry) in shown {
        let (Some(node), Entry::Link(target)) =
            (path.strip_prefix("/sys/class/tenstorrent/tenstorrent!"), entry)
        else {
            continue;
        };
        let folder = target.replacen("../..", "/sys", 1);
        let (device, _) = folder.split_once("/tenstorrent/").unwrap();
        let text = |path: String| match shown.get(&path) {
            Some(Entry::File(text)) => text.trim().to_owned(),
            _ => String::new(),
        };
        let attribute = |name: &str| text(format!("{folder}/{name}"));
        let hex = |text: String| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0);
        let subsystem = |name: &str| hex(text(format!("{device}/subsystem_{name}"))) as u16;
        machine.add_card(Card {
            pci: device.rsplit('/').next().unwrap().to_owned(),
            subsystem: (subsystem("vendor"), subsystem("device")),
            serial: hex(attribute("tt_serial")),
            asic_id: hex(attribute("tt_asic_id")),
            firmware: attribute("tt_fw_bundle_ver"),
            ..Card::new(&attribute("tt_card_type"), node.parse().unwrap())
        });
    }
    machine
}

#[test]
fn simulated_machines_match_captures_of_real_drivers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/sysfs");
    let Ok(captures) = fs::read_dir(&folder) else {
        println!("nothing to compare with: there is no {}", folder.display());
        return;
    };
    for capture in captures.map(|capture| capture.unwrap().path()) {
        let name = capture.file_name().unwrap().display();
        let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&capture).unwrap()).unwrap();
        let shown: Tree = json["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                let text = |key: &str| entry[key].as_str().map(str::to_owned);
                let what = text("target").map(Entry::Link).or(text("content").map(Entry::File));
                (text("path").unwrap(), what.unwrap_or(Entry::Unread))
            })
            .collect();
        let machine = simulate(json["kmd"].as_str().unwrap(), &shown);
        assert!(!machine.nodes().is_empty(), "{name}: no card was recognised");

        let mut ours = Tree::new();
        walk(machine.root(), "sys", &mut ours);
        // Captures lack these links; the devices that they point to are compared.
        ours.retain(|path, _| !path.starts_with("/sys/bus/"));
        walk(machine.root(), "proc/driver", &mut ours);
        let (ours, shown) = (normalized(ours), normalized(shown));
        for (path, entry) in &ours {
            assert_eq!(shown.get(path), Some(entry), "{name}: {path}");
        }
        for path in shown.keys().filter(|path| !ours.contains_key(*path)) {
            let (folder, file) = path.rsplit_once('/').unwrap();
            let of_bus = folder.rsplit('/').nth(1) == Some("pci0000:00") && LEFT_OUT.contains(&file);
            assert!(of_bus || path.starts_with("/sys/module/tenstorrent/"), "{name}: {path} is missing");
        }
        println!("{name}: {} of {} entries, all the same", ours.len(), shown.len());
    }
}

/// Features that differ between versions, each recognised by one file.
fn features(machine: &Machine) -> String {
    let files = [
        ("clocks", machine.attribute(0, "tt_aiclk")),
        ("serial", machine.attribute(0, "tt_serial")),
        ("kind", machine.attribute(0, "tt_card_type")),
        ("bundle", machine.attribute(0, "tt_fw_bundle_ver")),
        ("eth", machine.attribute(0, "tt_eth_fw_ver")),
        ("asic", machine.attribute(0, "tt_asic_id")),
        ("heartbeat", machine.attribute(0, "tt_heartbeat")),
        ("trips", machine.attribute(0, "tt_therm_trip_count")),
        ("counters", machine.attribute(0, "pcie_perf_counters/slv_rd_data_word_sent1")),
        ("pids", machine.pids(0)),
        ("sensors", machine.hwmon(0, "power1_input")),
        ("limits", machine.hwmon(0, "power1_max")),
        ("fan", machine.hwmon(0, "fan1_input")),
    ];
    let there = files.into_iter().filter(|(_, path)| path.exists()).map(|(name, _)| name);
    there.collect::<Vec<_>>().join(" ")
}

#[test]
fn each_driver_generation_has_its_features() {
    let all = "clocks serial kind bundle eth asic heartbeat counters pids sensors limits";
    let all_blackhole = "clocks serial kind bundle asic heartbeat trips counters pids sensors limits fan";
    let generations = [
        ("2.10.1-pre", all, all_blackhole),
        ("2.9.0", all, all_blackhole),
        ("2.8.0", all, "clocks serial kind bundle asic heartbeat trips counters pids sensors fan"),
        ("2.7.0", all, "clocks serial kind bundle asic heartbeat trips counters pids sensors fan"),
        (
            "2.5.0",
            "clocks serial kind bundle eth asic counters pids sensors limits",
            "clocks serial kind bundle asic counters pids sensors fan",
        ),
        (
            "2.4.0",
            "clocks serial kind bundle eth asic counters sensors limits",
            "clocks serial kind bundle asic counters sensors fan",
        ),
        (
            "2.2.0",
            "clocks serial kind bundle eth counters sensors limits",
            "clocks serial kind bundle asic counters sensors fan",
        ),
        (
            "2.0.0",
            "clocks serial kind bundle eth counters sensors limits",
            "clocks serial kind bundle counters sensors fan",
        ),
        ("1.34", "clocks serial kind bundle eth sensors limits", "clocks serial kind bundle sensors"),
        ("1.32", "clocks serial kind bundle eth sensors limits", "clocks serial kind bundle sensors"),
        ("1.31", "clocks serial kind bundle eth sensors limits", ""),
        ("1.28", "clocks serial kind eth sensors limits", ""),
        ("1.27", "sensors limits", ""),
        ("1.26", "", ""),
    ];
    for (driver, wormhole, blackhole) in generations {
        assert_eq!(features(&n150(driver)), wormhole, "{driver} with Wormhole");
        assert_eq!(features(&p150a(driver)), blackhole, "{driver} with Blackhole");
    }
}

#[test]
fn oldest_driver_shows_only_the_node() {
    let machine = n150("1.26");
    let names = |path: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(path).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let node = machine.attribute(0, "dev");
    let left = ["dev", "device", "subsystem", "uevent"].map(str::to_owned);
    assert_eq!(names(node.parent().unwrap()), BTreeSet::from(left));
    assert!(names(&machine.root().join("sys/class/hwmon")).is_empty());
    assert!(!machine.pci(0).join("hwmon").exists());
    assert!(machine.pci(0).join("vendor").exists());
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn links_lead_from_class_to_device_and_back() {
    for machine in [t3k("2.10.0"), galaxy("2.10.0")] {
        for node in machine.nodes() {
            let device = machine.pci(node);
            assert_eq!(machine.hwmon(node, "device").canonicalize().unwrap(), device);
            let class = machine.root().join("sys/class").canonicalize().unwrap();
            assert_eq!(
                machine.attribute(node, "subsystem").canonicalize().unwrap(),
                class.join("tenstorrent")
            );
            assert_eq!(machine.hwmon(node, "subsystem").canonicalize().unwrap(), class.join("hwmon"));
        }
    }
}

#[test]
fn chips_of_one_board_share_a_serial_number() {
    let serials = |machine: &Machine| -> BTreeSet<String> {
        machine.nodes().into_iter().map(|node| text(machine.attribute(node, "tt_serial"))).collect()
    };
    let ids = |machine: &Machine| -> BTreeSet<String> {
        machine.nodes().into_iter().map(|node| text(machine.attribute(node, "tt_asic_id"))).collect()
    };
    let counts = |machine: &Machine| (serials(machine).len(), ids(machine).len());
    assert_eq!(counts(&t3k("2.10.0")), (4, 4));
    assert_eq!(counts(&p300b("2.10.0")), (1, 2));
    assert_eq!(counts(&galaxy("2.10.0")), (1, 32));
    assert_eq!(counts(&galaxy_blackhole("2.10.0")), (1, 32));
    assert_eq!(text(cards("2.10.0", "p100a", 2).attribute(1, "tt_serial")), "0000043000000002\n");
}

#[test]
fn galaxies_are_numbered_by_tray_since_2_8() {
    let firsts = |machine: &Machine| {
        [0, 8, 16, 24].map(|node| {
            machine.pci(node).file_name().unwrap().to_str().unwrap()["0000:".len()..][..2].to_owned()
        })
    };
    assert_eq!(firsts(&galaxy("2.8.0")), ["c1", "81", "01", "41"]);
    assert_eq!(firsts(&galaxy_blackhole("2.8.0")), ["01", "41", "c1", "81"]);
    assert_eq!(firsts(&galaxy("2.7.0")), ["01", "41", "81", "c1"]);
    assert_eq!(text(galaxy("2.8.0").pci(31).join("subsystem_device")), "0x0035\n");
    assert_eq!(text(galaxy_blackhole("2.8.0").pci(31).join("subsystem_device")), "0x0047\n");
}

#[test]
fn card_files_can_be_changed_and_removed() {
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("p150a", 3).with("temp1_input", "65535999").without("fan1_input"));
    assert_eq!(text(machine.hwmon(3, "temp1_input")), "65535999\n");
    assert!(!machine.hwmon(3, "fan1_input").exists());
    assert_eq!(machine.nodes(), [3]);
}

#[test]
fn open_files_show_changes_and_unplugging() {
    let mut machine = n150("2.10.0");
    let kept = File::open(machine.attribute(0, "tt_aiclk")).unwrap();
    let read = || {
        let mut buffer = [0; 64];
        let len = kept.read_at(&mut buffer, 0).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    assert_eq!(read(), "1000\n");
    machine.set(machine.attribute(0, "tt_aiclk"), "500\n");
    assert_eq!(read(), "500\n");
    machine.set(machine.attribute(0, "tt_aiclk"), "1350\n");
    assert_eq!(read(), "1350\n");

    machine.unplug(0);
    assert_eq!(read(), "");
    assert!(machine.nodes().is_empty());
    let (mut sys, mut proc) = (Tree::new(), Tree::new());
    walk(machine.root(), "sys", &mut sys);
    walk(machine.root(), "proc/driver", &mut proc);
    assert_eq!(sys.into_keys().collect::<Vec<_>>(), ["/sys/module/tenstorrent/version"]);
    assert!(proc.is_empty());

    machine.add_card(Card::new("n150", 0));
    assert_eq!(text(machine.attribute(0, "tt_aiclk")), "1000\n");
    for driver in ["1.26", "1.34"] {
        let mut old = cards(driver, "n150", 2);
        old.unplug(0);
        assert_eq!(old.nodes(), [1]);
    }
}

#[test]
fn processes_are_shown_as_the_kernel_does() {
    let mut machine = cards("2.10.0", "n300", 2);
    let plain = FakeProcess::new(77, "a) (b c) 1 2", &[0, 1, 1]);
    let command = vec!["python3".to_owned(), "run it.py".to_owned()];
    machine.add_process(FakeProcess { start: 12_345, command, ..plain });
    let inside = FakeProcess::new(78, "python3", &[1]);
    machine.add_process(FakeProcess { uid: 0, container: Some((5, 9)), ..inside });

    let stat = text(machine.proc(77, "stat"));
    let (head, rest) = stat.rsplit_once(") ").unwrap();
    assert_eq!(head, "77 (a) (b c) 1 2");
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    assert_eq!((fields.len(), fields[0], fields[19]), (50, "S", "12345"));
    assert_eq!(text(machine.proc(77, "cmdline")), "python3\0run it.py\0");
    assert_eq!(text(machine.proc(77, "comm")), "a) (b c) 1 2\n");
    assert!(text(machine.proc(77, "status")).contains("\nUid:\t1000\t1000\t1000\t1000\n"));
    assert!(text(machine.proc(77, "status")).contains("\nNSpid:\t77\n"));
    assert!(text(machine.proc(78, "status")).contains("\nNSpid:\t78\t9\n"));
    assert_ne!(
        fs::read_link(machine.proc(77, "ns/mnt")).unwrap(),
        fs::read_link(machine.proc(78, "ns/mnt")).unwrap()
    );
    assert!(text(machine.root().join("proc/stat")).contains(&format!("\nbtime {BOOT}\n")));
    assert_eq!(fs::read_link(machine.proc(77, "fd/5")).unwrap(), Path::new("/dev/tenstorrent/1"));

    assert_eq!(text(machine.pids(0)), "77\n");
    assert_eq!(text(machine.pids(1)), "77\n77\n78\n");
    machine.end_process(77);
    assert_eq!((text(machine.pids(0)).as_str(), text(machine.pids(1)).as_str()), ("", "78\n"));
    assert!(!machine.proc(77, "").exists());

    // An old driver lists no processes; their descriptors still show the card.
    let mut old = n150("2.4.0");
    old.add_process(FakeProcess::new(7, "x", &[0]));
    assert!(!old.pids(0).exists());
    assert_eq!(fs::read_link(old.proc(7, "fd/3")).unwrap(), Path::new("/dev/tenstorrent/0"));
    old.end_process(7);
}

#[test]
fn busy_galaxy_has_eight_processes_on_every_chip() {
    let mut machine = galaxy("2.10.0");
    machine.add_processes(64);
    for node in machine.nodes() {
        assert_eq!(text(machine.pids(node)).lines().collect::<BTreeSet<_>>().len(), 8);
    }
}

#[test]
fn card_without_driver_is_only_on_the_bus() {
    for driver in ["1.26", "2.10.0"] {
        let mut machine = t3k(driver);
        machine.unload();
        let mut sys = Tree::new();
        walk(machine.root(), "sys", &mut sys);
        let listed = sys.keys().filter(|path| path.starts_with("/sys/bus/pci/devices/")).count();
        assert_eq!(listed, 4, "{driver}");
        assert_eq!(text(machine.root().join("sys/bus/pci/devices/0000:04:00.0/vendor")), "0x1e52\n");
        assert!(sys.keys().all(|path| !path.contains("tenstorrent") && !path.contains("hwmon")), "{sys:?}");
        assert!(!machine.root().join("dev/tenstorrent").exists());
    }
}
