//! Machines with Tenstorrent cards, as files: what driver and kernel show of them, below a folder of their own.
//!
//! Which file there is in which version of the driver, and on which architecture, is said by two tables; a test compares
//! with what real drivers showed. What files cannot do is fail: where a driver answers `ENODATA` during a reset, or
//! `ENODEV` to those who kept a file of an unplugged card open, such a file is gone here, and empty to them.

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

/// The first versions that say who has a card open, and that number the chips of a Galaxy by their bus.
const PIDS: Version = (2, 5);
const NUMBERED_BY_BUS: Version = (2, 8);

/// Who is in `/etc/passwd`.
pub const USERS: [(&str, u32); 4] = [("root", 0), ("ada", 1000), ("grace", 1001), ("nobody", 65534)];

/// When machines were booted, in seconds since 1970.
pub const BOOT: u64 = 1_700_000_000;

/// A machine's files. They are gone when it is dropped.
#[derive(Debug)]
pub struct Machine {
    folder: Arc<TempDir>,
    driver: Version,
}

impl Machine {
    /// With a version of the driver, and no card yet.
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

    /// What would be `/`.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Plugs a card in.
    #[allow(clippy::needless_pass_by_value, reason = "it is made where it is plugged in")]
    pub fn card(&mut self, card: Card) -> &mut Self {
        let (node, pci) = (card.node, &card.pci);
        // Real cards sit behind a port of the root bus; only emulated ones are on it.
        let port = if pci.starts_with("0000:00:") { "" } else { "0000:00:01.0/" };
        let device = format!("devices/pci0000:00/{port}{pci}");
        for (name, text) in card.bus_files() {
            self.write(&format!("sys/{device}/{name}"), &text);
        }
        let attributes = card.files(&ATTRIBUTES, self.driver);
        self.class(&device, "tenstorrent", &format!("tenstorrent!{node}"), attributes);
        let mut sensors = card.files(&SENSORS, self.driver);
        if !sensors.is_empty() {
            sensors.push(("uevent", String::new()));
            self.class(&device, "hwmon", &sensors_name(node), sensors);
        }
        // Depth as on a real machine: as many steps up as there are folders.
        let up = "../".repeat(device.matches('/').count() + 1);
        self.link(&format!("sys/{device}/driver"), &format!("{up}bus/pci/drivers/tenstorrent"));
        self.link(&format!("sys/bus/pci/devices/{pci}"), &format!("../../../{device}"));
        // A plain file in place of the device: nobody should care, since nobody should open it. Its mode is what the
        // driver's udev rule makes of it.
        self.write(&format!("dev/tenstorrent/{node}"), "");
        self.set_mode(format!("dev/tenstorrent/{node}"), 0o666);
        if self.driver >= PIDS {
            self.write(&format!("proc/driver/tenstorrent/{node}/pids"), "");
        }
        self
    }

    /// A device of a class: its files, and the links to and fro.
    fn class(&self, device: &str, class: &str, name: &str, files: Vec<(&'static str, String)>) {
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

    /// Starts a process; what it opens must be there.
    pub fn process(&mut self, process: FakeProcess) -> &mut Self {
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

    /// Many processes with four descriptors each, spread over all cards: 64 on 32 chips are eight for each chip.
    pub fn busy(&mut self, processes: u32) -> &mut Self {
        let nodes = self.nodes();
        for n in 0..processes {
            let opens: Vec<_> = (4 * n..4 * n + 4).map(|at| nodes[at as usize % nodes.len()]).collect();
            let process = FakeProcess::new(10_000 + n, &format!("llm ({n}) serve"), &opens);
            let command = ["python3", "-m", "serve", "--worker", &n.to_string()].map(str::to_owned).to_vec();
            self.process(FakeProcess { command, uid: USERS[1 + n as usize % 2].1, ..process });
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

    /// A file of a card's class, also if it is not there.
    pub fn attribute(&self, node: u32, name: &str) -> PathBuf {
        self.root().join(format!("sys/class/tenstorrent/tenstorrent!{node}/{name}"))
    }

    /// A file of a card's sensors, likewise.
    pub fn hwmon(&self, node: u32, name: &str) -> PathBuf {
        self.root().join(format!("sys/class/hwmon/{}/{name}", sensors_name(node)))
    }

    /// The folder of a card's PCI device.
    pub fn pci(&self, node: u32) -> PathBuf {
        self.attribute(node, "device").canonicalize().unwrap()
    }

    /// The file that says who has a card open.
    pub fn pids(&self, node: u32) -> PathBuf {
        self.root().join(format!("proc/driver/tenstorrent/{node}/pids"))
    }

    /// A file of a process.
    pub fn proc(&self, pid: u32, name: &str) -> PathBuf {
        self.root().join(format!("proc/{pid}/{name}"))
    }

    /// Puts other text into a file, or makes it. Those who have it open see the new text; a text that is not shorter
    /// takes the place of the old one in one step.
    pub fn set(&self, path: impl AsRef<Path>, text: &str) {
        let path = self.root().join(path);
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_len(text.len() as u64).unwrap();
    }

    /// Lets others than before use a file.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(self.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Takes the driver away: what is left of the cards is what the bus shows of any device.
    pub fn unload(&mut self) {
        for node in self.nodes() {
            let pci = self.pci(node);
            fs::remove_file(self.attribute(node, "uevent").parent().unwrap()).unwrap();
            let _ = fs::remove_file(self.hwmon(node, "uevent").parent().unwrap());
            for part in ["tenstorrent", "hwmon"].map(|part| pci.join(part)).iter().filter(|it| it.exists()) {
                vanish(part);
            }
            fs::remove_file(pci.join("driver")).unwrap();
        }
        let of_driver = ["sys/module/tenstorrent", "sys/class/tenstorrent", "proc/driver", "dev/tenstorrent"];
        for folder in of_driver.map(|folder| self.root().join(folder)).iter().filter(|it| it.exists()) {
            vanish(folder);
        }
    }

    /// Pulls a card out. Who had it open still has, but nobody says so any more.
    pub fn unplug(&mut self, node: u32) {
        let pci = self.pci(node);
        fs::remove_file(self.attribute(node, "uevent").parent().unwrap()).unwrap();
        let _ = fs::remove_file(self.hwmon(node, "uevent").parent().unwrap());
        fs::remove_file(self.root().join(format!("dev/tenstorrent/{node}"))).unwrap();
        fs::remove_file(self.root().join("sys/bus/pci/devices").join(pci.file_name().unwrap())).unwrap();
        if self.driver >= PIDS {
            vanish(self.pids(node).parent().unwrap());
        }
        vanish(&pci);
    }

    /// Ends a process.
    pub fn end(&mut self, pid: u32) {
        let line = pid.to_string();
        for node in self.nodes().into_iter().filter(|_| self.driver >= PIDS) {
            let known = fs::read_to_string(self.pids(node)).unwrap();
            let others: String = known.split_inclusive('\n').filter(|known| known.trim() != line).collect();
            self.set(self.pids(node), &others);
        }
        vanish(&self.proc(pid, ""));
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

/// Sensors are numbered in an order of their own, and the first ones of a machine are its processor's.
fn sensors_name(node: u32) -> String {
    format!("hwmon{}", 1 + (node ^ 1))
}

/// Removes a folder, and makes its files empty for those who keep them open.
fn vanish(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            vanish(&entry.path());
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
        machine.card(Card::new(kind, node));
    }
    machine
}

/// One n150.
pub fn n150(driver: &str) -> Machine {
    cards(driver, "n150", 1)
}

/// Four n300: the four chips behind those on the bus are not to be seen.
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
        machine.card(Card::new("p300b", node).board(1));
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

/// Trays, by the first digit of their buses, in the driver's order. Earlier drivers number chips as they find them.
fn trays(driver: &str, kind: &str, firmware: &str, mut order: [u32; 4]) -> Machine {
    let mut machine = Machine::new(driver);
    if machine.driver < NUMBERED_BY_BUS {
        order.sort_unstable();
    }
    let chips = order.into_iter().flat_map(|tray| (1..=8).map(move |chip| (tray, chip)));
    for (node, (tray, chip)) in chips.enumerate() {
        // All trays say the same serial number.
        let card = Card::new(kind, node as u32).board(1);
        let (pci, firmware) = (format!("0000:{tray:x}{chip}:00.0"), firmware.to_owned());
        machine.card(Card { pci, firmware, ..card });
    }
    machine
}
