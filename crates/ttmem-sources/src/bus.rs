//! The chips that this machine has on its bus, as the kernel driver shows them. Nothing is asked of the chips' own nodes:
//! opening one can block, wake the chip, or keep somebody from resetting it.

use crate::attribute::{Absent, Folder, read};
use crate::board;
use crate::crew::Crew;
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use ttmem_core::machine::{Chip, Firmware};
use ttmem_core::snapshot::Skipped;
use ttmem_core::words::{Arch, ChipId, PciAddress};
use ttmem_types::Board;

/// Where the driver lists its chips.
const CLASS: &str = "/sys/class/tenstorrent";
/// How long to wait for chips to say who they are.
const PATIENCE: Duration = Duration::from_millis(500);
/// Chips that are looked at; the driver has at most 32 by default.
const MOST_CHIPS: usize = 1024;
/// Names of chips that left that are remembered.
const MOST_LEFT: usize = 1 << 14;

/// A chip on the bus.
#[derive(Clone, Debug)]
pub(crate) struct BusChip {
    pub(crate) node: u32,
    /// Its folder below [`CLASS`].
    pub(crate) class: Folder,
    /// The PCI device's folder.
    pub(crate) device: PathBuf,
    pub(crate) chip: Chip,
    /// Tells this folder from one that takes its place.
    pub(crate) inode: u64,
    /// Whether it could say who it is; in the middle of a reset it cannot.
    known: bool,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Bus {
    root: Root,
    crew: Crew,
    thorough: bool,
    /// By node.
    pub(crate) chips: BTreeMap<u32, BusChip>,
    /// What chips that left were called.
    left: BTreeSet<u64>,
    /// Chips that were asked who they are and have not answered, by node and inode.
    asked: BTreeMap<(u32, u64), Arc<OnceLock<BusChip>>>,
    pub(crate) driver: Option<String>,
    /// Why no chips can be listed, if that is not because there are none.
    pub(crate) trouble: Option<Skipped>,
}

/// What a look found out.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Whether anything is different from before.
    pub(crate) any: bool,
    /// Chips that left.
    pub(crate) gone: Vec<ChipId>,
}

impl Bus {
    pub(crate) fn new(root: &Root, crew: &Crew, thorough: bool) -> Self {
        Self { root: root.clone(), crew: crew.clone(), thorough, ..Self::default() }
    }

    pub(crate) fn look(&mut self) -> Change {
        let class = self.root.path(CLASS);
        let mut change = Change::default();
        self.trouble = None;
        let nodes = match nodes(&class) {
            Ok(nodes) => nodes,
            Err(e) => {
                if e.kind() != std::io::ErrorKind::NotFound {
                    let path = class.display().to_string();
                    self.trouble = Some(Skipped { path, reason: format!("cannot be read: {e}") });
                }
                BTreeMap::new()
            }
        };
        let gone = |it: &BusChip| nodes.get(&it.node) != Some(&it.inode);
        let gone: Vec<u32> = self.chips.values().filter(|it| gone(it)).map(|it| it.node).collect();
        for it in gone.iter().filter_map(|node| self.chips.remove(node)) {
            change.any = true;
            change.gone.push(it.chip.id);
            if self.left.len() >= MOST_LEFT {
                self.left.clear();
            }
            self.left.extend(it.chip.guesses);
            if let ChipId::Unique(name) = it.chip.id {
                self.left.insert(name);
            }
        }
        if self.driver.is_none() || nodes.len() != self.chips.len() {
            self.driver = read(&self.root.path("/sys/module/tenstorrent/version")).ok();
        }
        for (node, found) in self.identify(&class, &nodes) {
            let old = self.chips.insert(node, found);
            let new = &self.chips[&node].chip;
            change.any |= old.as_ref().is_none_or(|old| !same(&old.chip, new));
            // It said who it is only now: what it was called by until then is not another chip.
            change.gone.extend(old.map(|old| old.chip.id).filter(|id| *id != new.id));
        }
        if change.any {
            self.name();
        }
        change
    }

    /// Asks every chip that is not known who it is. In the middle of a reset one may not answer for long: until then it is
    /// known by its place alone.
    fn identify(&mut self, class: &Path, nodes: &BTreeMap<u32, u64>) -> Vec<(u32, BusChip)> {
        let unknown = |node: &u32| self.chips.get(node).is_none_or(|it| !it.known);
        let unknown: Vec<(u32, u64)> =
            nodes.iter().filter(|(node, _)| unknown(node)).map(|(&node, &inode)| (node, inode)).collect();
        self.asked.retain(|key, _| unknown.contains(key));
        let mut new = Vec::new();
        for &(node, inode) in &unknown {
            self.asked.entry((node, inode)).or_insert_with(|| {
                let answer = Arc::new(OnceLock::new());
                new.push(Arc::clone(&answer));
                let (class, answer_to, thorough) = (class.to_owned(), Arc::clone(&answer), self.thorough);
                self.crew.submit(move || {
                    let _ = answer_to.set(identify(&class, node, inode, thorough));
                });
                answer
            });
        }
        if !new.is_empty() {
            self.crew.wait(PATIENCE, || new.iter().all(|answer| answer.get().is_some()));
        }
        let mut found = Vec::new();
        for key @ (node, inode) in unknown {
            let answer = self.asked.get(&key).and_then(|answer| answer.get().cloned());
            if answer.is_some() {
                self.asked.remove(&key);
            }
            if let Some(answer) = answer.or_else(|| {
                let waits = !self.chips.contains_key(&node);
                waits.then(|| place_of(class, node, inode))
            }) {
                found.push((node, answer));
            }
        }
        found
    }

    /// Numbers the chips as runtimes do, by their places, and gives them the names that runtimes make from serial numbers.
    fn name(&mut self) {
        let mut order: Vec<(Option<PciAddress>, u32)> =
            self.chips.values().map(|it| (it.chip.pci, it.node)).collect();
        order.sort_unstable();
        let mut boards: BTreeMap<u64, usize> = BTreeMap::new();
        for serial in self.chips.values().filter_map(|it| it.chip.serial) {
            *boards.entry(serial).or_default() += 1;
        }
        for (index, (_, node)) in order.into_iter().enumerate() {
            let Some(BusChip { chip, .. }) = self.chips.get_mut(&node) else { continue };
            chip.index = index as u32;
            // Which of several chips of a board is meant cannot be told from its number.
            let alone = chip.serial.filter(|serial| boards.get(serial) == Some(&1));
            chip.guesses = alone.map_or_else(Vec::new, |serial| runtime_names(serial, chip.arch, 0));
        }
    }

    /// The chip that runtimes call so and that is on no bus: the second one of an n300, behind the first.
    pub(crate) fn behind(&self, name: u64) -> Option<Chip> {
        let it = self.chips.values().map(|it| &it.chip).find(|it| {
            let serial = it.serial.filter(|_| it.board.as_deref() == Some("n300"));
            serial.is_some_and(|serial| runtime_names(serial, it.arch, 1).contains(&name))
        })?;
        Some(Chip {
            arch: it.arch,
            board: it.board.clone(),
            remote: true,
            capacity: it.capacity,
            serial: it.serial,
            ..Chip::new(ChipId::Unique(name), 0)
        })
    }

    /// Whether a chip that was here and left was called so.
    pub(crate) fn has_left(&self, name: u64) -> bool {
        self.left.contains(&name)
    }

    pub(crate) fn by_name(&self, name: u64) -> Option<&Chip> {
        let mut chips = self.chips.values().map(|it| &it.chip);
        chips.find(|it| it.id == ChipId::Unique(name) || it.guesses.contains(&name))
    }
}

/// The ids that runtimes have made, in one version or another, of a board's number and a chip's location on it.
fn runtime_names(serial: u64, arch: Option<Arch>, location: u64) -> Vec<u64> {
    let mut names = Vec::new();
    if arch == Some(Arch::WormholeB0) {
        // The Ethernet firmware has room for 32 bits of it.
        let short = serial >> 4 & 0xf000_0000 | serial & 0x0fff_ffff;
        names.push((2 + location) << 32 | short);
        if location == 0 {
            names.push(short);
        }
    } else {
        names.extend([serial << 5 | location, serial << 1 | location]);
    }
    names.push(serial << 8 | location);
    if location == 0 {
        names.push(serial);
    }
    names
}

/// The numbers of all chips, and the inodes of their folders.
fn nodes(class: &Path) -> std::io::Result<BTreeMap<u32, u64>> {
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("tenstorrent!")?.parse::<u32>().ok();
    let entries = fs::read_dir(class)?.flatten();
    let found = entries.filter_map(|entry| {
        let node = number(entry.file_name())?;
        Some((node, fs::metadata(entry.path()).ok()?.ino()))
    });
    Ok(found.take(MOST_CHIPS).collect())
}

/// Whether two say the same of a chip, but for its number and what follows from those of others.
fn same(a: &Chip, b: &Chip) -> bool {
    let alone = |it: &Chip| Chip { index: 0, guesses: Vec::new(), ..it.clone() };
    alone(a) == alone(b)
}

/// What is known of a chip without asking it.
fn place_of(class: &Path, node: u32, inode: u64) -> BusChip {
    let class = class.join(format!("tenstorrent!{node}"));
    let device = class.join("device");
    let pci = fs::read_link(&device).ok();
    let pci = pci.and_then(|link| link.file_name()?.to_str()?.parse::<PciAddress>().ok());
    let id = pci.map_or(ChipId::Ordinal(node), ChipId::Pci);
    let chip = Chip { pci, node: Some(node), ..Chip::new(id, node) };
    BusChip { node, class: Folder::new(class), device, chip, inode, known: false }
}

fn identify(class: &Path, node: u32, inode: u64, thorough: bool) -> BusChip {
    let BusChip { class: folder, device, chip, .. } = place_of(class, node, inode);
    let pci = chip.pci;
    let attribute = |name: &str| folder.read(name);
    let number = |name: &str| attribute(name).map(|text| identity(&text));
    let (asic, serial) = (number("tt_asic_id"), number("tt_serial"));
    // Whatever else keeps it from saying that may pass.
    let settled = |it: &Result<Option<u64>, Absent>| matches!(it, Ok(_) | Err(Absent::NotShown));
    let known = settled(&asic) && settled(&serial);
    let (asic, serial) = (asic.ok().flatten(), serial.ok().flatten());
    let mut chip = Chip { id: asic.map_or(chip.id, ChipId::Unique), ..chip };
    chip.arch = match folder.read("device/device").as_deref() {
        Ok("0x401e") => Some(Arch::WormholeB0),
        Ok("0xb140") => Some(Arch::Blackhole),
        _ => None,
    };
    let by_driver = attribute("tt_card_type").ok().filter(|kind| kind != "unknown");
    let by_subsystem = || match folder.read("device/subsystem_device").as_deref() {
        Ok("0x0035") => Some("galaxy-wormhole"),
        Ok("0x0047") => Some("galaxy-blackhole"),
        _ => None,
    };
    let told =
        || serial.and_then(Board::by_serial).map(|board| board.name).or_else(by_subsystem).map(str::to_owned);
    chip.board = by_driver.or_else(told);
    (chip.pci, chip.serial) = (pci, serial);
    let version = |name: &str| if thorough { attribute(name).ok() } else { None };
    chip.firmware = Box::new(Firmware {
        bundle: attribute("tt_fw_bundle_ver").ok(),
        arc: version("tt_arc_fw_ver"),
        ethernet: version("tt_eth_fw_ver"),
        manager: version("tt_m3app_fw_ver"),
        manager_boot: version("tt_m3bl_fw_ver"),
        flasher: version("tt_ttflash_ver"),
    });
    let board = chip.board.as_deref();
    chip.capacity = board.and_then(|board| board::assumed(board, chip.firmware.bundle.as_deref()));
    BusChip { node, device, class: folder, chip, inode, known }
}

/// A number in 16 hexadecimal digits. A chip that hangs reads as all ones, and one that was never told its number as 0.
fn identity(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|&id| id != 0 && id != u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_runtimes_make_of_serial_numbers_are_known() {
        let n300 = 0x0100_0145_1170_c0c4;
        assert!(runtime_names(n300, Some(Arch::WormholeB0), 0).contains(&0x2_5170_c0c4));
        assert!(runtime_names(n300, Some(Arch::WormholeB0), 1).contains(&0x3_5170_c0c4));
        let n150 = 0x0100_0186_1180_b479;
        assert!(runtime_names(n150, Some(Arch::WormholeB0), 0).contains(&n150));
        assert!(runtime_names(0x412_3191_1167, Some(Arch::Blackhole), 0).contains(&0x8246_3222_2ce0));
    }

    #[test]
    fn a_chip_that_hangs_has_no_number() {
        assert_eq!(identity("FFFFFFFFFFFFFFFF"), None);
        assert_eq!(identity("0000000000000000"), None);
        assert_eq!(identity("89E991BDB13E022E"), Some(0x89e9_91bd_b13e_022e));
        assert_eq!(identity("x"), None);
    }
}
