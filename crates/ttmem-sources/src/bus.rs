//! The chips on the machine's PCI bus, as the kernel driver lists them in sysfs. Their device nodes are never opened: that
//! can block, wake a chip, or prevent its reset.

use crate::attribute::{Absence, Folder, read};
use crate::board;
use crate::root::Root;
use crate::worker_pool::WorkerPool;
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
/// How long to wait for new chips to be identified.
const IDENTIFY_TIMEOUT: Duration = Duration::from_millis(500);
/// Chips that are read; the driver has at most 32 by default.
const MAX_CHIPS: usize = 1024;
/// Unique ids of removed chips that are remembered.
const MAX_REMOVED: usize = 1 << 14;

/// A chip on the bus.
#[derive(Clone, Debug)]
pub(crate) struct BusChip {
    pub(crate) node: u32,
    /// Its folder below [`CLASS`], with the driver's attributes.
    pub(crate) class: Folder,
    /// The folder of the PCI device.
    pub(crate) device: PathBuf,
    pub(crate) chip: Chip,
    /// Inode of its folder: another one under the same name is another chip.
    pub(crate) inode: u64,
    /// Whether its ids could be read; during a reset they cannot.
    identified: bool,
}

/// All chips on the bus.
#[derive(Default)]
pub(crate) struct Bus {
    root: Root,
    pool: WorkerPool,
    thorough: bool,
    /// By node.
    pub(crate) chips: BTreeMap<u32, BusChip>,
    /// Unique ids of chips that were removed.
    removed: BTreeSet<u64>,
    /// Chips that are being identified, by node and inode.
    pending: BTreeMap<(u32, u64), Arc<OnceLock<BusChip>>>,
    pub(crate) driver: Option<String>,
    /// Why chips cannot be listed; `None` if they can, or if there is no driver.
    pub(crate) failure: Option<Skipped>,
}

/// The result of a rescan.
#[derive(Debug, Default)]
pub(crate) struct BusChange {
    /// Whether anything differs from the last rescan.
    pub(crate) any: bool,
    /// Chips that were removed, or got another id.
    pub(crate) removed: Vec<ChipId>,
}

impl Bus {
    pub(crate) fn new(root: &Root, pool: &WorkerPool, thorough: bool) -> Self {
        Self { root: root.clone(), pool: pool.clone(), thorough, ..Self::default() }
    }

    /// Lists the chips again and identifies new ones.
    pub(crate) fn rescan(&mut self) -> BusChange {
        let class = self.root.path(CLASS);
        let mut change = BusChange::default();
        self.failure = None;
        let nodes = match list_nodes(&class) {
            Ok(nodes) => nodes,
            Err(e) => {
                if e.kind() != std::io::ErrorKind::NotFound {
                    let path = class.display().to_string();
                    self.failure = Some(Skipped { path, reason: format!("cannot be read: {e}") });
                }
                BTreeMap::new()
            }
        };
        let is_gone = |chip: &BusChip| nodes.get(&chip.node) != Some(&chip.inode);
        let gone: Vec<u32> = self.chips.values().filter(|chip| is_gone(chip)).map(|chip| chip.node).collect();
        for BusChip { chip, .. } in gone.iter().filter_map(|node| self.chips.remove(node)) {
            change.any = true;
            change.removed.push(chip.id);
            if self.removed.len() >= MAX_REMOVED {
                self.removed.clear();
            }
            self.removed.extend(chip.guesses);
            if let ChipId::Unique(unique_id) = chip.id {
                self.removed.insert(unique_id);
            }
        }
        if self.driver.is_none() || nodes.len() != self.chips.len() {
            self.driver = read(&self.root.path("/sys/module/tenstorrent/version")).ok();
        }
        for (node, found) in self.identify(&class, &nodes) {
            let old = self.chips.insert(node, found);
            let new = &self.chips[&node].chip;
            change.any |= old.as_ref().is_none_or(|old| !is_unchanged(&old.chip, new));
            // A chip that is identified only now replaces the one that was known by its address.
            change.removed.extend(old.map(|old| old.chip.id).filter(|id| *id != new.id));
        }
        if change.any {
            self.number_chips();
        }
        change
    }

    /// Identifies every chip that is not yet. During a reset that may take long; until then a chip is known by its address
    /// alone.
    fn identify(&mut self, class: &Path, nodes: &BTreeMap<u32, u64>) -> Vec<(u32, BusChip)> {
        let unknown = |node: &u32| self.chips.get(node).is_none_or(|it| !it.identified);
        let unknown: Vec<(u32, u64)> =
            nodes.iter().filter(|(node, _)| unknown(node)).map(|(&node, &inode)| (node, inode)).collect();
        self.pending.retain(|key, _| unknown.contains(key));
        let mut new = Vec::new();
        for &(node, inode) in &unknown {
            self.pending.entry((node, inode)).or_insert_with(|| {
                let answer = Arc::new(OnceLock::new());
                new.push(Arc::clone(&answer));
                let (class, answer_to, thorough) = (class.to_owned(), Arc::clone(&answer), self.thorough);
                self.pool.submit(move || {
                    let _ = answer_to.set(identify(&class, node, inode, thorough));
                });
                answer
            });
        }
        if !new.is_empty() {
            self.pool.wait(IDENTIFY_TIMEOUT, || new.iter().all(|answer| answer.get().is_some()));
        }
        let mut found = Vec::new();
        for key @ (node, inode) in unknown {
            let answer = self.pending.get(&key).and_then(|answer| answer.get().cloned());
            if answer.is_some() {
                self.pending.remove(&key);
            }
            if let Some(answer) = answer.or_else(|| {
                let is_new = !self.chips.contains_key(&node);
                is_new.then(|| unidentified_chip(class, node, inode))
            }) {
                found.push((node, answer));
            }
        }
        found
    }

    /// Numbers the chips as runtimes do, by PCI address, and adds the unique ids that runtimes derive from serial numbers.
    fn number_chips(&mut self) {
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
            // A serial number does not say which of several chips of a board is meant.
            let alone = chip.serial.filter(|serial| boards.get(serial) == Some(&1));
            chip.guesses = alone.map_or_else(Vec::new, |serial| runtime_ids(serial, chip.arch, 0));
        }
    }

    /// The chips that are on no bus: the second one of each board with two chips, of which one is on the bus. Runtimes number
    /// them after all others, in the order of the first ones.
    pub(crate) fn remote_chips(&self) -> Vec<Chip> {
        let mut direct: Vec<&Chip> = self.chips.values().map(|it| &it.chip).collect();
        direct.sort_unstable_by_key(|chip| chip.index);
        let is_alone = |serial: u64| direct.iter().filter(|it| it.serial == Some(serial)).count() == 1;
        let mut remote = Vec::new();
        for chip in &direct {
            let has_two = chip.board.as_deref().and_then(Board::by_name).is_some_and(Board::has_two_chips);
            let Some(serial) = chip.serial.filter(|&serial| has_two && is_alone(serial)) else { continue };
            let index = (direct.len() + remote.len()) as u32;
            // Of a Wormhole the first chip is on the bus, so the second one's ids are known.
            let ids = match chip.arch {
                Some(Arch::WormholeB0) => runtime_ids(serial, chip.arch, 1),
                _ => Vec::new(),
            };
            let id = ids.first().map_or(ChipId::Ordinal(index), |&id| ChipId::Unique(id));
            remote.push(Chip {
                arch: chip.arch,
                board: chip.board.clone(),
                remote: true,
                inferred: true,
                capacity: chip.capacity,
                serial: chip.serial,
                guesses: ids,
                ..Chip::new(id, index)
            });
        }
        remote
    }

    /// The chip on no bus that runtimes know by this unique id.
    pub(crate) fn find_remote(&self, unique_id: u64) -> Option<Chip> {
        let chip = self.remote_chips().into_iter().find(|chip| chip.guesses.contains(&unique_id))?;
        Some(Chip { id: ChipId::Unique(unique_id), inferred: false, guesses: Vec::new(), ..chip })
    }

    /// Whether a chip with this unique id was removed.
    pub(crate) fn was_removed(&self, unique_id: u64) -> bool {
        self.removed.contains(&unique_id)
    }

    /// The chip on the bus that runtimes know by this unique id.
    pub(crate) fn find(&self, unique_id: u64) -> Option<&Chip> {
        let mut chips = self.chips.values().map(|it| &it.chip);
        chips.find(|chip| chip.id == ChipId::Unique(unique_id) || chip.guesses.contains(&unique_id))
    }
}

/// The unique ids that runtimes of any version derive from a board's serial number and a chip's location on it.
fn runtime_ids(serial: u64, arch: Option<Arch>, location: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    if arch == Some(Arch::WormholeB0) {
        // The Ethernet firmware keeps 32 bits of it.
        let short = serial >> 4 & 0xf000_0000 | serial & 0x0fff_ffff;
        ids.push((2 + location) << 32 | short);
        if location == 0 {
            ids.push(short);
        }
    } else {
        ids.extend([serial << 5 | location, serial << 1 | location]);
    }
    ids.push(serial << 8 | location);
    if location == 0 {
        ids.push(serial);
    }
    ids
}

/// Lists the node numbers of all chips, with the inodes of their folders.
fn list_nodes(class: &Path) -> std::io::Result<BTreeMap<u32, u64>> {
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("tenstorrent!")?.parse::<u32>().ok();
    let entries = fs::read_dir(class)?.flatten();
    let found = entries.filter_map(|entry| {
        let node = number(entry.file_name())?;
        Some((node, fs::metadata(entry.path()).ok()?.ino()))
    });
    Ok(found.take(MAX_CHIPS).collect())
}

/// Whether a chip's own properties are unchanged. Its index and guessed ids depend on the other chips.
fn is_unchanged(old: &Chip, new: &Chip) -> bool {
    let own = |chip: &Chip| Chip { index: 0, guesses: Vec::new(), ..chip.clone() };
    own(old) == own(new)
}

/// A chip of which only the PCI address is known.
fn unidentified_chip(class: &Path, node: u32, inode: u64) -> BusChip {
    let class = class.join(format!("tenstorrent!{node}"));
    let device = class.join("device");
    let pci = fs::read_link(&device).ok();
    let pci = pci.and_then(|link| link.file_name()?.to_str()?.parse::<PciAddress>().ok());
    let id = pci.map_or(ChipId::Ordinal(node), ChipId::Pci);
    let chip = Chip { pci, node: Some(node), ..Chip::new(id, node) };
    BusChip { node, class: Folder::new(class), device, chip, inode, identified: false }
}

/// Reads a chip's ids, board and firmware versions.
fn identify(class: &Path, node: u32, inode: u64, thorough: bool) -> BusChip {
    let BusChip { class: folder, device, chip, .. } = unidentified_chip(class, node, inode);
    let pci = chip.pci;
    let attribute = |name: &str| folder.read(name);
    let number = |name: &str| attribute(name).map(|text| parse_id(&text));
    let (asic, serial) = (number("tt_asic_id"), number("tt_serial"));
    // Any other failure may be temporary.
    let is_final = |id: &Result<Option<u64>, Absence>| matches!(id, Ok(_) | Err(Absence::NotShown));
    let identified = is_final(&asic) && is_final(&serial);
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
    let inferred =
        || serial.and_then(Board::by_serial).map(|board| board.name).or_else(by_subsystem).map(str::to_owned);
    chip.board = by_driver.or_else(inferred);
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
    chip.capacity = board.and_then(|board| board::assumed_capacity(board, chip.firmware.bundle.as_deref()));
    BusChip { node, device, class: folder, chip, inode, identified }
}

/// Parses an id of 16 hexadecimal digits. A hung chip reads as all ones, and one without an id as 0.
fn parse_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|&id| id != 0 && id != u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_ids_are_derived_from_serial_numbers() {
        let n300 = 0x0100_0145_1170_c0c4;
        assert!(runtime_ids(n300, Some(Arch::WormholeB0), 0).contains(&0x2_5170_c0c4));
        assert!(runtime_ids(n300, Some(Arch::WormholeB0), 1).contains(&0x3_5170_c0c4));
        let n150 = 0x0100_0186_1180_b479;
        assert!(runtime_ids(n150, Some(Arch::WormholeB0), 0).contains(&n150));
        assert!(runtime_ids(0x412_3191_1167, Some(Arch::Blackhole), 0).contains(&0x8246_3222_2ce0));
    }

    #[test]
    fn hung_chip_has_no_id() {
        assert_eq!(parse_id("FFFFFFFFFFFFFFFF"), None);
        assert_eq!(parse_id("0000000000000000"), None);
        assert_eq!(parse_id("89E991BDB13E022E"), Some(0x89e9_91bd_b13e_022e));
        assert_eq!(parse_id("x"), None);
    }
}
