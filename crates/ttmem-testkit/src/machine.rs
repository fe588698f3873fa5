//! Simulated machines with Tenstorrent cards: the files that driver and kernel show, in a private folder.
//!
//! Two tables list the files of each version of the driver and each architecture; a test compares them with what real drivers
//! showed. Plain files cannot fail: where a driver returns `ENODATA` during a reset, or `ENODEV` for an open file of an
//! unplugged card, the file is missing here, or empty for processes that have it open.

mod card;
mod process;

pub use card::Card;
pub use process::FakeProcess;

use crate::memory_folder;
use card::{ATTRIBUTES, SENSORS, Version};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// First version that lists the processes that have a card open.
const PIDS: Version = (2, 5);
/// First version that numbers the chips of a Galaxy by their bus.
const NUMBERED_BY_BUS: Version = (2, 8);

/// Users in `/etc/passwd`.
pub const USERS: [(&str, u32); 4] = [("root", 0), ("ada", 1000), ("grace", 1001), ("nobody", 65534)];

/// Boot time of machines, in seconds since 1970.
pub const BOOT: u64 = 1_700_000_000;

/// A machine's files. They are removed when it is dropped.
#[derive(Debug)]
pub struct Machine {
    folder: Arc<TempDir>,
    driver: Version,
}

impl Machine {
    /// A machine with a version of the driver, and no card yet.
    pub fn new(driver: &str) -> Self {
        let mut numbers = driver.split('.').map(|number| number.parse().unwrap());
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        let machine = Self { folder: memory_folder(), driver: version };
        for folder in ["sys/class/tenstorrent", "sys/class/hwmon", "dev/tenstorrent", "dev/shm"] {
            fs::create_dir_all(machine.root().join(folder)).unwrap();
        }
        machine.set_mode("dev/shm", 0o1777);
        machine.write("sys/module/tenstorrent/version", &format!("{driver}\n"));
        machine.write("proc/stat", &format!("cpu  0 0 0 0 0 0 0 0 0 0\nctxt 0\nbtime {BOOT}\nprocesses 1\n"));
        let users = USERS.map(|(name, uid)| format!("{name}:x:{uid}:{uid}::/home/{name}:/bin/sh\n"));
        machine.write("etc/passwd", &users.concat());
        machine
    }

    /// The folder that stands for `/`.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Plugs in a card.
    #[allow(clippy::needless_pass_by_value, reason = "cards are created in the call")]
    pub fn add_card(&mut self, card: Card) -> &mut Self {
        let (node, pci) = (card.node, &card.pci);
        // Real cards are behind a port of the root bus; only emulated ones are on it.
        let port = if pci.starts_with("0000:00:") { "" } else { "0000:00:01.0/" };
        let device = format!("devices/pci0000:00/{port}{pci}");
        for (name, text) in card.bus_files() {
            self.write(&format!("sys/{device}/{name}"), &text);
        }
        let attributes = card.files(&ATTRIBUTES, self.driver);
        self.add_class_device(&device, "tenstorrent", &format!("tenstorrent!{node}"), attributes);
        let mut sensors = card.files(&SENSORS, self.driver);
        if !sensors.is_empty() {
            sensors.push(("uevent", String::new()));
            self.add_class_device(&device, "hwmon", &sensors_name(node), sensors);
        }
        // As on a real machine: one step up for each folder.
        let up = "../".repeat(device.matches('/').count() + 1);
        self.link(&format!("sys/{device}/driver"), &format!("{up}bus/pci/drivers/tenstorrent"));
        self.link(&format!("sys/bus/pci/devices/{pci}"), &format!("../../../{device}"));
        // A plain file instead of a device node, since nothing should open it. Its mode is that of the driver's udev rule.
        self.write(&format!("dev/tenstorrent/{node}"), "");
        self.set_mode(format!("dev/tenstorrent/{node}"), 0o666);
        if self.driver >= PIDS {
            self.write(&format!("proc/driver/tenstorrent/{node}/pids"), "");
        }
        self
    }

    /// Adds a device of a class: its files, and the links in both directions.
    fn add_class_device(&self, device: &str, class: &str, name: &str, files: Vec<(&'static str, String)>) {
        let folder = format!("sys/{device}/{class}/{name}");
        for (file, text) in files {
            self.write(&format!("{folder}/{file}"), &text);
        }
        let (_, pci) = device.rsplit_once('/').unwrap();
        let up = "../".repeat(folder.matches('/').count());
        self.link(&format!("{folder}/device"), &format!("../../../{pci}"));
        self.link(&format!("{folder}/subsystem"), &format!("{up}class/{class}"));
        self.link(&format!("sys/class/{class}/{name}"), &format!("../../{device}/{class}/{name}"));
    }

    /// Adds a process. The cards that it opens must be plugged in.
    pub fn add_process(&mut self, process: FakeProcess) -> &mut Self {
        let folder = format!("proc/{}", process.pid);
        for (name, text) in process.files() {
            self.write(&format!("{folder}/{name}"), &text);
        }
        for (name, target) in process.links() {
            self.link(&format!("{folder}/{name}"), &target);
        }
        for node in process.opens.into_iter().filter(|_| self.driver >= PIDS) {
            let known = fs::read_to_string(self.pids(node)).unwrap();
            self.set(self.pids(node), &format!("{known}{}\n", process.pid));
        }
        self
    }

    /// Adds processes with four descriptors each, spread over all cards: 64 on 32 chips are eight for each chip.
    pub fn add_processes(&mut self, processes: u32) -> &mut Self {
        let nodes = self.nodes();
        for n in 0..processes {
            let opens: Vec<_> = (4 * n..4 * n + 4).map(|at| nodes[at as usize % nodes.len()]).collect();
            let process = FakeProcess::new(10_000 + n, &format!("llm ({n}) serve"), &opens);
            let command = ["python3", "-m", "serve", "--worker", &n.to_string()].map(str::to_owned).to_vec();
            self.add_process(FakeProcess { command, uid: USERS[1 + n as usize % 2].1, ..process });
        }
        self
    }

    /// The driver's numbers of all cards.
    pub fn nodes(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.root().join("sys/class/tenstorrent")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut nodes: Vec<_> = names.map(|name| name["tenstorrent!".len()..].parse().unwrap()).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Path of a file of a card's class, which need not exist.
    pub fn attribute(&self, node: u32, name: &str) -> PathBuf {
        self.root().join(format!("sys/class/tenstorrent/tenstorrent!{node}/{name}"))
    }

    /// Path of a file of a card's sensors, which need not exist.
    pub fn hwmon(&self, node: u32, name: &str) -> PathBuf {
        self.root().join(format!("sys/class/hwmon/{}/{name}", sensors_name(node)))
    }

    /// Folder of a card's PCI device.
    pub fn pci(&self, node: u32) -> PathBuf {
        self.attribute(node, "device").canonicalize().unwrap()
    }

    /// Path of the file that lists processes that have a card open.
    pub fn pids(&self, node: u32) -> PathBuf {
        self.root().join(format!("proc/driver/tenstorrent/{node}/pids"))
    }

    /// Path of a file of a process.
    pub fn proc(&self, pid: u32, name: &str) -> PathBuf {
        self.root().join(format!("proc/{pid}/{name}"))
    }

    /// Replaces a file's text, or creates the file. Processes that have it open see the new text; a text that is not shorter
    /// replaces the old one in one step.
    pub fn set(&self, path: impl AsRef<Path>, text: &str) {
        let path = self.root().join(path);
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_len(text.len() as u64).unwrap();
    }

    /// Sets a file's permissions.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(self.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Unloads the driver: of the cards, only the files remain that the bus shows of any device.
    pub fn unload(&mut self) {
        for node in self.nodes() {
            let pci = self.pci(node);
            fs::remove_file(self.attribute(node, "uevent").parent().unwrap()).unwrap();
            let _ = fs::remove_file(self.hwmon(node, "uevent").parent().unwrap());
            for part in ["tenstorrent", "hwmon"].map(|part| pci.join(part)).iter().filter(|it| it.exists()) {
                remove_and_empty(part);
            }
            fs::remove_file(pci.join("driver")).unwrap();
        }
        let of_driver = ["sys/module/tenstorrent", "sys/class/tenstorrent", "proc/driver", "dev/tenstorrent"];
        for folder in of_driver.map(|folder| self.root().join(folder)).iter().filter(|it| it.exists()) {
            remove_and_empty(folder);
        }
    }

    /// Unplugs a card. Processes that had it open still have, but no file lists them.
    pub fn unplug(&mut self, node: u32) {
        let pci = self.pci(node);
        fs::remove_file(self.attribute(node, "uevent").parent().unwrap()).unwrap();
        let _ = fs::remove_file(self.hwmon(node, "uevent").parent().unwrap());
        fs::remove_file(self.root().join(format!("dev/tenstorrent/{node}"))).unwrap();
        fs::remove_file(self.root().join("sys/bus/pci/devices").join(pci.file_name().unwrap())).unwrap();
        if self.driver >= PIDS {
            remove_and_empty(self.pids(node).parent().unwrap());
        }
        remove_and_empty(&pci);
    }

    /// Removes a process.
    pub fn end_process(&mut self, pid: u32) {
        let line = pid.to_string();
        for node in self.nodes().into_iter().filter(|_| self.driver >= PIDS) {
            let known = fs::read_to_string(self.pids(node)).unwrap();
            let others: String = known.split_inclusive('\n').filter(|known| known.trim() != line).collect();
            self.set(self.pids(node), &others);
        }
        remove_and_empty(&self.proc(pid, ""));
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
}

/// Name of a card's sensors: they have their own order of numbers, and the first ones of a machine are its processor's.
fn sensors_name(node: u32) -> String {
    format!("hwmon{}", 1 + (node ^ 1))
}

/// Removes a folder, and makes its files empty for processes that have them open.
fn remove_and_empty(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            remove_and_empty(&entry.path());
        } else if kind.is_file() {
            fs::write(entry.path(), "").unwrap();
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

/// A machine with cards of one kind.
pub fn cards(driver: &str, kind: &str, count: u32) -> Machine {
    let mut machine = Machine::new(driver);
    for node in 0..count {
        machine.add_card(Card::new(kind, node));
    }
    machine
}

/// One n150.
pub fn n150(driver: &str) -> Machine {
    cards(driver, "n150", 1)
}

/// Four n300: the four remote chips are not on the bus.
pub fn t3k(driver: &str) -> Machine {
    cards(driver, "n300", 4)
}

/// One p150a.
pub fn p150a(driver: &str) -> Machine {
    cards(driver, "p150a", 1)
}

/// One p300b: two chips on one board.
pub fn p300b(driver: &str) -> Machine {
    let mut machine = Machine::new(driver);
    for node in 0..2 {
        machine.add_card(Card::new("p300b", node).board(1));
    }
    machine
}

/// A Wormhole Galaxy: 32 chips on four trays.
pub fn galaxy(driver: &str) -> Machine {
    trays(driver, "galaxy-wormhole", "18.6.0.0", [0xc, 0x8, 0x0, 0x4])
}

/// A Blackhole Galaxy: 32 chips on four trays.
pub fn galaxy_blackhole(driver: &str) -> Machine {
    trays(driver, "galaxy-blackhole", "19.5.0.0", [0x0, 0x4, 0xc, 0x8])
}

/// A machine of trays, by the first digit of their buses, in the driver's order. Earlier drivers number chips in bus order.
fn trays(driver: &str, kind: &str, firmware: &str, mut order: [u32; 4]) -> Machine {
    let mut machine = Machine::new(driver);
    if machine.driver < NUMBERED_BY_BUS {
        order.sort_unstable();
    }
    let chips = order.into_iter().flat_map(|tray| (1..=8).map(move |chip| (tray, chip)));
    for (node, (tray, chip)) in chips.enumerate() {
        // All trays have the same serial number.
        let card = Card::new(kind, node as u32).board(1);
        let (pci, firmware) = (format!("0000:{tray:x}{chip}:00.0"), firmware.to_owned());
        machine.add_card(Card { pci, firmware, ..card });
    }
    machine
}
