//! What else a machine shows, to those who ask why something is missing: cards that no driver has taken, and the folder
//! for shared memory.

use crate::root::Root;
use crate::segment::is_in_memory;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use ttmem_core::words::PciAddress;
use ttmem_wire::region::Layout;

/// Where the kernel lists all devices of the bus.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Tenstorrent's number.
const VENDOR: &str = "0x1e52";
/// The longest number there.
const MOST_BYTES: u64 = 32;

/// A Tenstorrent card on the bus, whoever has taken it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its place.
    pub pci: PciAddress,
    /// What it is, as the bus says: `0x401e`.
    pub device: String,
    /// The driver that has it.
    pub driver: Option<String>,
}

impl Card {
    /// Whether it is one that today's drivers and this program do not know any more.
    pub fn is_grayskull(&self) -> bool {
        self.device == "0xfaca"
    }
}

/// All Tenstorrent cards on the bus, by place.
pub fn cards(root: &Root) -> Vec<Card> {
    let entries = fs::read_dir(root.path(DEVICES)).into_iter().flatten().flatten();
    let card = |entry: fs::DirEntry| {
        let pci = entry.file_name().to_str()?.parse().ok()?;
        let number = |name: &str| {
            let mut text = String::new();
            File::open(entry.path().join(name)).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
            Some(text.trim_end().to_owned())
        };
        if number("vendor")? != VENDOR {
            return None;
        }
        let driver = fs::read_link(entry.path().join("driver")).ok();
        let driver = driver.and_then(|it| Some(it.file_name()?.to_string_lossy().into_owned()));
        Some(Card { pci, device: number("device")?, driver })
    };
    let mut cards: Vec<Card> = entries.filter_map(card).collect();
    cards.sort_by_key(|card| card.pci);
    cards
}

/// The filesystem that a folder for shared memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Whether it lies in memory: nothing else is read.
    pub in_memory: bool,
    /// How large it is.
    pub bytes: u64,
    /// What of that anybody may take.
    pub free_bytes: u64,
}

/// What there is of a folder for shared memory.
pub fn room(folder: &Path) -> std::io::Result<Room> {
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let system = rustix::fs::fstatfs(&folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_bsize as u64);
    Ok(Room {
        in_memory: is_in_memory(folder.as_fd()),
        bytes: bytes(system.f_blocks),
        free_bytes: bytes(system.f_bavail),
    })
}

/// One of tt-metal's files of counters, as it was when it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its layout; `None` if it has none that is known.
    pub layout: Option<Layout>,
    /// Bytes it takes.
    pub bytes: u64,
    /// Processes in it that live.
    pub living: usize,
    /// Processes in it that are dead.
    pub dead: usize,
    /// Processes in it that may live where they cannot be seen.
    pub unseen: usize,
}

impl RegionFile {
    /// Whether nobody can be using it.
    pub fn is_stale(&self) -> bool {
        self.layout.is_some() && self.living == 0 && self.unseen == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn cards_are_found_whoever_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let devices = folder.path().join("sys/bus/pci/devices");
        for (place, vendor, driver) in [
            ("0000:02:00.0", "0x1e52\n", Some("vfio-pci")),
            ("0000:01:00.0", "0x1e52\n", None),
            ("0000:00:1f.0", "0x8086\n", Some("ahci")),
            ("garbage", "0x1e52\n", None),
        ] {
            let device = devices.join(place);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), vendor).unwrap();
            fs::write(device.join("device"), "0xfaca\n").unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../../../bus/pci/drivers/{driver}"), device.join("driver")).unwrap();
            }
        }
        let found = cards(&Root::new(folder.path()));
        let found: Vec<_> = found.iter().map(|it| (it.pci.to_string(), it.driver.as_deref())).collect();
        assert_eq!(found, [("0000:01:00.0".into(), None), ("0000:02:00.0".into(), Some("vfio-pci"))]);
        assert!(cards(&Root::new(&folder.path().join("none"))).is_empty());
    }

    #[test]
    fn a_folder_in_memory_is_told_from_others() {
        let room_of = |path: &str| room(Path::new(path)).unwrap();
        assert!(room_of("/dev/shm").in_memory && room_of("/dev/shm").bytes > 0);
        assert!(!room_of("/proc").in_memory);
        assert!(room(Path::new("/dev/null")).is_err(), "no folder");
    }
}
