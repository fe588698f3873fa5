//! The machine: chips with their memory and sensors, and problems of tt-metal's counters.

mod other_cores;

pub use other_cores::{DispatchCores, EthernetCores, OtherCores};

use crate::core_set::CoreSet;
use crate::words::{Arch, ChipId, PciAddress, Space};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The machine the reader runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// Host name.
    pub name: Option<String>,
    /// Version of the program that made the snapshot.
    pub ttmem: String,
    /// Version of the kernel driver.
    pub driver: Option<String>,
}

/// A chip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chip {
    /// Its key.
    pub id: ChipId,
    /// Device number.
    pub index: u32,
    /// Architecture.
    pub arch: Option<Arch>,
    /// Board name, as `n300`.
    pub board: Option<String>,
    /// Whether it is reached through another chip.
    pub remote: bool,
    /// Whether no source has seen it: it follows from the board of another chip.
    pub inferred: bool,
    /// Memory it has.
    pub capacity: Option<Capacity>,
    /// How its runtime divides a core's L1.
    pub core_layout: Option<CoreLayout>,
    /// Ethernet cores that are not harvested, if a descriptor has that.
    pub ethernet_cores: Option<u32>,
    /// Place on the bus.
    pub pci: Option<PciAddress>,
    /// The N of `/dev/tenstorrent/N`, which is not the device number.
    pub node: Option<u32>,
    /// Serial number of its board, which several chips may share.
    pub serial: Option<u64>,
    /// Other unique ids of the chip.
    pub names: Vec<u64>,
    /// Unique ids that a runtime may derive for it.
    pub guesses: Vec<u64>,
    /// Firmware versions, boxed to keep input small.
    pub firmware: Box<Firmware>,
}

impl Chip {
    /// A chip with only an id and a number.
    pub fn new(id: ChipId, index: u32) -> Self {
        Self {
            id,
            index,
            arch: None,
            board: None,
            remote: false,
            inferred: false,
            capacity: None,
            core_layout: None,
            ethernet_cores: None,
            pci: None,
            node: None,
            serial: None,
            names: Vec::new(),
            guesses: Vec::new(),
            firmware: Box::default(),
        }
    }

    /// A chip that a client uses by number.
    pub fn unknown(index: u32) -> Self {
        Self::new(ChipId::Ordinal(index), index)
    }

    /// Merges what another source of the machine reports about the same chip. A simulated chip stays simulated, and the first
    /// id and number stay.
    pub(crate) fn learn(&mut self, other: Self) {
        self.arch = self.arch.or(other.arch);
        self.remote |= other.remote;
        self.inferred &= other.inferred;
        let is_better = |other: &Capacity| self.capacity.is_none_or(|known| other.origin >= known.origin);
        self.capacity = other.capacity.filter(is_better).or(self.capacity);
        self.core_layout = other.core_layout.or(self.core_layout);
        self.ethernet_cores = other.ethernet_cores.or(self.ethernet_cores);
        self.board = other.board.or(self.board.take());
        self.pci = other.pci.or(self.pci);
        self.node = other.node.or(self.node);
        self.serial = other.serial.or(self.serial);
        if *other.firmware != Firmware::default() {
            self.firmware = other.firmware;
        }
    }

    /// Adds what a process says of the chip, where the machine says nothing. Only a process that has the chip open may refine
    /// the capacity that is assumed of its board, since the number of harvested cores differs.
    pub(crate) fn add_claim(&mut self, claim: &Self, is_listed: bool, is_open: bool) {
        self.arch = self.arch.or(claim.arch);
        if self.board.is_none() {
            self.board.clone_from(&claim.board);
        }
        if !is_listed {
            self.pci = self.pci.or(claim.pci);
            self.remote |= claim.remote;
        }
        self.inferred = false;
        let fits = |capacity: &Capacity| match self.capacity {
            None => true,
            Some(known) => is_open && known.origin == CapacityOrigin::Board && known.may_be(capacity),
        };
        self.capacity = claim.capacity.filter(fits).or(self.capacity);
        let has_room = |layout: &CoreLayout| {
            self.capacity.is_none_or(|known| is_part(layout.end, known.l1_bytes_per_core))
        };
        self.core_layout = self.core_layout.or(claim.core_layout.filter(has_room));
    }
}

/// Whether a figure is at least half of another one, and at most all of it.
fn is_part(part: u64, whole: u64) -> bool {
    part <= whole && part >= whole / 2
}

/// How a runtime divides the L1 of each core: from 0 its own memory, then the kernel config buffer, then the memory that
/// programs and buffers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreLayout {
    /// Columns of worker cores.
    pub columns: u8,
    /// Rows of worker cores.
    pub rows: u8,
    /// Start of the kernel config buffer.
    pub kernel_config: u64,
    /// End of the kernel config buffer, and start of the memory that programs and buffers share.
    pub unreserved: u64,
    /// End of a core's L1.
    pub end: u64,
}

impl CoreLayout {
    /// All cores that programs can use.
    pub(crate) fn grid(&self) -> CoreSet {
        if self.columns == 0 || self.rows == 0 {
            return CoreSet::default();
        }
        CoreSet::rectangle((0, 0), (self.columns - 1, self.rows - 1))
    }
}

/// Firmware versions of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Firmware {
    /// Firmware bundle.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bundle: Option<String>,
    /// ARC firmware.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arc: Option<String>,
    /// Ethernet firmware.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ethernet: Option<String>,
    /// Board manager firmware.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub manager: Option<String>,
    /// Boot loader of the board manager.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub manager_boot: Option<String>,
    /// Tool that flashed it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flasher: Option<String>,
}

/// Memory capacity of one device. Harvested cores are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// Total DRAM.
    pub dram_bytes: u64,
    /// DRAM channels.
    pub dram_channels: u32,
    /// DRAM per channel that the runtime uses.
    pub dram_bytes_per_channel: u64,
    /// L1 of all cores.
    pub l1_bytes: u64,
    /// Tensix cores.
    pub cores: u32,
    /// L1 of one core.
    pub l1_bytes_per_core: u64,
    /// DRAM that tt-metal can allocate with default settings; assumed, since it differs by release.
    pub dram_allocatable_bytes: Option<u64>,
    /// L1 that tt-metal can allocate with default settings; assumed, since it differs by release.
    pub l1_allocatable_bytes: Option<u64>,
    /// Where these figures come from.
    pub origin: CapacityOrigin,
}

impl Capacity {
    /// Whether a chip of which this is assumed may have another capacity.
    fn may_be(&self, other: &Self) -> bool {
        is_part(other.dram_bytes, self.dram_bytes)
            && is_part(other.cores.into(), u64::from(self.cores) * 5 / 4)
            && is_part(other.l1_bytes_per_core, self.l1_bytes_per_core)
    }

    /// Whether so many bytes of a space can be in use.
    pub(crate) fn has_room(&self, space: Space, bytes: u64) -> bool {
        match space {
            Space::Dram | Space::Trace => bytes <= self.dram_bytes,
            Space::L1 | Space::L1Small => bytes <= self.l1_bytes,
            // Programs in the cache may need more together than there is.
            _ => true,
        }
    }
}

/// Where capacities come from, best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CapacityOrigin {
    /// A table by board type: assumed.
    Board,
    /// A cluster descriptor, which has the harvested cores of each device.
    Descriptor,
    /// The runtime of a client.
    Runtime,
    /// The device is simulated.
    Simulated,
}

/// Sensor readings of a device. `absent` has the reason for each that is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sensors {
    /// Temperature.
    pub asic_celsius: Option<f64>,
    /// Core power, without the rest of the board.
    pub power_watts: Option<f64>,
    /// Current of the core.
    pub current_amperes: Option<f64>,
    /// Voltage of the core.
    pub vcore_volts: Option<f64>,
    /// Clock of the Tensix cores.
    pub aiclk_mhz: Option<f64>,
    /// Clock of the AXI bus.
    pub axiclk_mhz: Option<f64>,
    /// Clock of the ARC.
    pub arcclk_mhz: Option<f64>,
    /// Fan.
    pub fan_rpm: Option<f64>,
    /// Firmware heartbeat counter.
    pub heartbeat: Option<u64>,
    /// Whether the heartbeat changed since the previous reading.
    pub heartbeat_beats: Option<bool>,
    /// Thermal shutdowns since the last power cycle.
    pub thermal_trips: Option<u64>,
    /// Limits.
    pub limits: SensorLimits,
    /// PCIe traffic.
    pub pcie: Option<PcieRates>,
    /// Age of the oldest reading.
    #[serde(default)]
    pub age_ms: u64,
    /// Whether readings are outdated because the driver does not answer.
    #[serde(default)]
    pub stale: bool,
    /// Missing readings, by name, and the reason for each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub absent: BTreeMap<String, String>,
}

/// Limits of sensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SensorLimits {
    /// Temperature at which the device throttles.
    pub asic_celsius: Option<f64>,
    /// Maximum power.
    pub power_watts: Option<f64>,
    /// Maximum current.
    pub current_amperes: Option<f64>,
    /// Maximum voltage.
    pub vcore_volts: Option<f64>,
}

/// PCIe traffic between a device and its host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieRates {
    /// Host reads from the device.
    pub host_reads_bytes_per_second: Option<f64>,
    /// Host writes to the device.
    pub host_writes_bytes_per_second: Option<f64>,
    /// Device reads from host memory.
    pub device_reads_bytes_per_second: Option<f64>,
    /// Device writes to host memory.
    pub device_writes_bytes_per_second: Option<f64>,
}

/// Problems of one file of tt-metal's counters. Its valid content is the input of its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterReport {
    /// Path of the file.
    pub path: String,
    /// Its chip.
    pub chip: ChipId,
    /// Entries of exited processes.
    pub ghosts: Vec<Ghost>,
    /// Bytes of its totals that belong to no process.
    pub unattributed: Vec<(Space, u64)>,
    /// Other problems, as text.
    pub problems: Vec<String>,
}

/// An entry of an exited process in a file of counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ghost {
    /// Its pid in its own namespace.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Bytes of the entry.
    pub bytes: u64,
    /// Whether the process may be running where it is not visible.
    pub may_be_hidden: bool,
}
