//! The files that each version of the driver shows of a card.

use std::collections::BTreeMap;
use ttmem_core::words::Arch;

/// A version of the driver; patch releases never changed a file.
pub(super) type Version = (u32, u32);

/// A file: its name, the first versions that have it on Wormhole and on Blackhole, and its text unless a card has another.
pub(super) type Row = (&'static str, Version, Version, &'static str);

const NEVER: Version = (u32::MAX, 0);

/// Files of the driver's class. Empty texts are filled in with the card's identity.
pub(super) const ATTRIBUTES: [Row; 28] = [
    ("dev", (0, 0), (0, 0), ""),
    ("uevent", (0, 0), (0, 0), ""),
    ("tt_aiclk", (1, 28), (1, 32), "1000"),
    ("tt_axiclk", (1, 28), (1, 32), "900"),
    ("tt_arcclk", (1, 28), (1, 32), "540"),
    ("tt_serial", (1, 28), (1, 32), ""),
    ("tt_card_type", (1, 28), (1, 32), ""),
    ("tt_fw_bundle_ver", (1, 29), (1, 32), ""),
    ("tt_m3app_fw_ver", (1, 28), (1, 32), "5.9.0.2"),
    ("tt_m3bl_fw_ver", (1, 28), NEVER, "129.2.0.0"),
    ("tt_arc_fw_ver", (1, 28), NEVER, "2.34.0.0"),
    ("tt_eth_fw_ver", (1, 28), NEVER, "6.9.0"),
    ("tt_ttflash_ver", (1, 28), NEVER, "0.3.4.0"),
    ("tt_asic_id", (2, 3), (2, 1), ""),
    ("tt_heartbeat", (2, 7), (2, 7), "1"),
    ("tt_therm_trip_count", NEVER, (2, 7), "0"),
    ("pcie_perf_counters/mst_rd_data_word_received0", (2, 0), (2, 0), "1524"),
    ("pcie_perf_counters/mst_rd_data_word_received1", (2, 0), (2, 0), "1524"),
    ("pcie_perf_counters/mst_nonposted_wr_data_word_sent0", (2, 0), (2, 0), "1544"),
    ("pcie_perf_counters/mst_nonposted_wr_data_word_sent1", (2, 0), (2, 0), "1544"),
    ("pcie_perf_counters/mst_posted_wr_data_word_sent0", (2, 0), (2, 0), "1548"),
    ("pcie_perf_counters/mst_posted_wr_data_word_sent1", (2, 0), (2, 0), "1548"),
    ("pcie_perf_counters/slv_rd_data_word_sent0", (2, 0), (2, 0), "1716"),
    ("pcie_perf_counters/slv_rd_data_word_sent1", (2, 0), (2, 0), "1716"),
    ("pcie_perf_counters/slv_nonposted_wr_data_word_received0", (2, 0), (2, 0), "1736"),
    ("pcie_perf_counters/slv_nonposted_wr_data_word_received1", (2, 0), (2, 0), "1736"),
    ("pcie_perf_counters/slv_posted_wr_data_word_received0", (2, 0), (2, 0), "1740"),
    ("pcie_perf_counters/slv_posted_wr_data_word_received1", (2, 0), (2, 0), "1740"),
];

/// Files of the sensors: millidegrees, millivolts, milliamperes, microwatts, turns a minute.
pub(super) const SENSORS: [Row; 20] = [
    ("name", (1, 27), NEVER, "wormhole"),
    ("name", NEVER, (1, 32), "blackhole"),
    ("temp1_label", (1, 27), NEVER, "asic1_temp"),
    ("temp1_label", NEVER, (1, 32), "asic_temp"),
    ("temp1_input", (1, 27), (1, 32), "45406"),
    ("temp1_max", (1, 27), (2, 9), "90000"),
    ("in0_label", (1, 27), NEVER, "vcore1"),
    ("in0_label", NEVER, (1, 32), "vcore"),
    ("in0_input", (1, 27), (1, 32), "738"),
    ("in0_max", (1, 27), (2, 9), "900"),
    ("curr1_label", (1, 27), NEVER, "current1"),
    ("curr1_label", NEVER, (1, 32), "current"),
    ("curr1_input", (1, 27), (1, 32), "53000"),
    ("curr1_max", (1, 27), (2, 9), "500000"),
    ("power1_label", (1, 27), NEVER, "power1"),
    ("power1_label", NEVER, (1, 32), "power"),
    ("power1_input", (1, 27), (1, 32), "39000000"),
    ("power1_max", (1, 27), (2, 9), "130000000"),
    ("fan1_label", NEVER, (2, 0), "fan_rpm"),
    ("fan1_input", NEVER, (2, 0), "1882"),
];

/// Boards by the driver's names, with their number, which begins serial numbers and is the PCI subsystem id.
const BOARDS: [(&str, Arch, u16); 12] = [
    ("n300", Arch::WormholeB0, 0x14),
    ("n150", Arch::WormholeB0, 0x18),
    ("galaxy-wormhole", Arch::WormholeB0, 0x35),
    ("p100", Arch::Blackhole, 0x36),
    ("p150a", Arch::Blackhole, 0x40),
    ("p150b", Arch::Blackhole, 0x41),
    ("p150c", Arch::Blackhole, 0x42),
    ("p100a", Arch::Blackhole, 0x43),
    ("p300b", Arch::Blackhole, 0x44),
    ("p300a", Arch::Blackhole, 0x45),
    ("p300c", Arch::Blackhole, 0x46),
    ("galaxy-blackhole", Arch::Blackhole, 0x47),
];

fn board(kind: &str) -> (&'static str, Arch, u16) {
    let found = BOARDS.into_iter().find(|(name, ..)| *name == kind);
    found.unwrap_or_else(|| panic!("there is no board {kind}"))
}

const VENDOR: u16 = 0x1e52;
/// Position of a board's number in a serial number.
const BOARD_SHIFT: u32 = 36;

/// A chip on the bus. Remote chips are not on it: no driver shows them.
#[derive(Clone, Debug)]
pub struct Card {
    /// The board, by the driver's name.
    pub kind: &'static str,
    /// The driver's number of the card.
    pub node: u32,
    /// PCI address.
    pub pci: String,
    /// Vendor and device of the PCI subsystem.
    pub subsystem: (u16, u16),
    /// Serial number of the board, which all its chips share.
    pub serial: u64,
    /// Unique id of the chip.
    pub asic_id: u64,
    /// Version of the firmware bundle.
    pub firmware: String,
    /// Changed texts of files, by name; `None` for a missing file.
    pub changed: BTreeMap<&'static str, Option<String>>,
}

impl Card {
    /// A card of a kind, the only chip of its board.
    pub fn new(kind: &str, node: u32) -> Self {
        let (kind, _, number) = board(kind);
        Self {
            kind,
            node,
            pci: format!("0000:{:02x}:00.0", node + 1),
            subsystem: (VENDOR, number),
            serial: u64::from(number) << BOARD_SHIFT,
            asic_id: 0x89E9_91BD_B13E_022E + u64::from(node),
            firmware: "18.5.0.0".to_owned(),
            changed: BTreeMap::new(),
        }
        .board(node + 1)
    }

    /// Sets the number of the board among those of its kind.
    #[must_use]
    pub fn board(mut self, number: u32) -> Self {
        self.serial = self.serial >> BOARD_SHIFT << BOARD_SHIFT | u64::from(number);
        self
    }

    /// Sets the text of a file: `temp1_input`, `tt_aiclk`, `pcie_perf_counters/...`.
    #[must_use]
    pub fn with(self, file: &str, text: &str) -> Self {
        self.change(file, Some(text.to_owned()))
    }

    /// Removes a file, as if the card's firmware did not provide the value.
    #[must_use]
    pub fn without(self, file: &str) -> Self {
        self.change(file, None)
    }

    fn change(mut self, file: &str, text: Option<String>) -> Self {
        let row = ATTRIBUTES.iter().chain(&SENSORS).find(|(name, ..)| *name == file);
        self.changed.insert(row.unwrap_or_else(|| panic!("no card has a file {file}")).0, text);
        self
    }

    /// The files that a version of the driver shows of the card.
    pub(super) fn files(&self, table: &[Row], driver: Version) -> Vec<(&'static str, String)> {
        let since = |row: &Row| if board(self.kind).1 == Arch::Blackhole { row.2 } else { row.1 };
        let rows = table.iter().filter(|row| driver >= since(row));
        rows.filter_map(|&(name, _, _, usual)| {
            let text = match self.changed.get(name) {
                Some(changed) => changed.clone()?,
                None => self.identity(name).unwrap_or_else(|| usual.to_owned()),
            };
            Some((name, text + "\n"))
        })
        .collect()
    }

    fn identity(&self, file: &str) -> Option<String> {
        Some(match file {
            "dev" => format!("246:{}", self.node),
            "uevent" => format!("MAJOR=246\nMINOR={0}\nDEVNAME=tenstorrent/{0}", self.node),
            "tt_serial" => format!("{:016X}", self.serial),
            "tt_card_type" => self.kind.to_owned(),
            "tt_fw_bundle_ver" => self.firmware.clone(),
            "tt_asic_id" => format!("{:016X}", self.asic_id),
            _ => return None,
        })
    }

    /// The files that the bus shows of the card.
    pub(super) fn bus_files(&self) -> Vec<(&'static str, String)> {
        let (device, revision) = match board(self.kind).1 {
            Arch::WormholeB0 => (0x401e, 1),
            Arch::Blackhole => (0xb140, 0),
        };
        let ((by, subsystem), pci) = (self.subsystem, &self.pci);
        let alias = format!("pci:v{VENDOR:08X}d{device:08X}sv{by:08X}sd{subsystem:08X}bc12sc00i00");
        let ids = format!("PCI_ID={VENDOR:04X}:{device:04X}\nPCI_SUBSYS_ID={by:04X}:{subsystem:04X}");
        vec![
            ("vendor", format!("{VENDOR:#06x}\n")),
            ("device", format!("{device:#06x}\n")),
            ("subsystem_vendor", format!("{by:#06x}\n")),
            ("subsystem_device", format!("{subsystem:#06x}\n")),
            ("class", "0x120000\n".to_owned()),
            ("revision", format!("{revision:#04x}\n")),
            (
                "uevent",
                format!(
                    "DRIVER=tenstorrent\nPCI_CLASS=120000\n{ids}\nPCI_SLOT_NAME={pci}\nMODALIAS={alias}\n"
                ),
            ),
        ]
    }
}
