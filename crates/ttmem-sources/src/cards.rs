//! All Tenstorrent cards on the PCI bus, including those that no driver has claimed.

use crate::root::Root;
use std::fs::{self, File};
use std::io::Read;
use ttmem_core::words::PciAddress;

/// Where the kernel lists PCI devices.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Tenstorrent's vendor id.
const VENDOR: &str = "0x1e52";
/// Longest id that is read.
const MAX_BYTES: u64 = 32;

/// A Tenstorrent card on the PCI bus, whichever driver has claimed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its PCI address.
    pub pci: PciAddress,
    /// Its PCI device id: `0x401e`.
    pub device: String,
    /// The driver that has claimed it.
    pub driver: Option<String>,
}

impl Card {
    /// Whether it is a Grayskull, which current drivers and this program do not support.
    pub fn is_grayskull(&self) -> bool {
        self.device == "0xfaca"
    }
}

/// Lists all Tenstorrent cards on the bus, by PCI address.
pub fn cards(root: &Root) -> Vec<Card> {
    let entries = fs::read_dir(root.path(DEVICES)).into_iter().flatten().flatten();
    let card = |entry: fs::DirEntry| {
        let pci = entry.file_name().to_str()?.parse().ok()?;
        let id = |name: &str| {
            let mut text = String::new();
            File::open(entry.path().join(name)).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
            Some(text.trim_end().to_owned())
        };
        if id("vendor")? != VENDOR {
            return None;
        }
        let driver = fs::read_link(entry.path().join("driver")).ok();
        let driver = driver.and_then(|it| Some(it.file_name()?.to_string_lossy().into_owned()));
        Some(Card { pci, device: id("device")?, driver })
    };
    let mut cards: Vec<Card> = entries.filter_map(card).collect();
    cards.sort_by_key(|card| card.pci);
    cards
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn cards_are_found_under_any_driver() {
        let folder = tempfile::tempdir().unwrap();
        let devices = folder.path().join("sys/bus/pci/devices");
        for (address, vendor, driver) in [
            ("0000:02:00.0", "0x1e52\n", Some("vfio-pci")),
            ("0000:01:00.0", "0x1e52\n", None),
            ("0000:00:1f.0", "0x8086\n", Some("ahci")),
            ("garbage", "0x1e52\n", None),
        ] {
            let device = devices.join(address);
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
}
