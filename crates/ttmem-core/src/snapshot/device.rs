//! Devices: memory, sensors, peaks and history.

use super::{CoreRoom, Cores, Usage};
use crate::machine::{Capacity, CoreLayout, Firmware, OtherCores, Sensors};
use crate::words::{Arch, Space};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A device: one Tenstorrent chip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Unique key: `0x` and 16 digits of its unique id, else `pci-` and its bus address, else `ordinal-N`.
    pub id: String,
    /// Device number, as used by runtimes.
    pub index: u32,
    /// Architecture.
    pub arch: Option<Arch>,
    /// Board name.
    pub board: Option<String>,
    /// Whether it is reached through another device.
    pub remote: bool,
    /// Whether no source has seen it: it follows from the board of another device. The first process that uses it confirms it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub inferred: bool,
    /// PCI bus address, as `0000:01:00.0`.
    #[serde(default)]
    pub pci: Option<String>,
    /// The N of `/dev/tenstorrent/N`.
    #[serde(default)]
    pub node: Option<u32>,
    /// Serial number of the board, 16 digits.
    #[serde(default)]
    pub serial: Option<String>,
    /// Other ids of the device, such as tt-metal's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub names: Vec<String>,
    /// Firmware versions.
    #[serde(default)]
    pub firmware: Firmware,
    /// Memory capacity.
    pub capacity: Option<Capacity>,
    /// Memory in use.
    pub usage: Usage,
    /// Sensor readings.
    #[serde(default)]
    pub sensors: Option<Sensors>,
    /// Why there are no readings, or no new ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sensors_absent: Option<String>,
    /// Peak use of each space, and the processes that held it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peaks: Vec<Peak>,
    /// The core with the smallest free gap between program memory and the lowest L1 buffer; `null` where the layout of
    /// cores is not known.
    #[serde(default)]
    pub tightest_core: Option<CoreRoom>,
    /// How the runtime divides the L1 of a core, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core_layout: Option<CoreLayout>,
    /// Cores that programs cannot use.
    #[serde(default)]
    pub other_cores: OtherCores,
    /// The L1 of each worker core, by row and column, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<Cores>,
    /// Usage over time, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub history: Option<History>,
}

/// Peak use of one space of a device. The peak of buffers is exact where one process uses the space through one allocator.
/// Where several do, their sum is sampled at every tick, and whenever one of them shrinks after it grew by some percent. The
/// peak of program memory is sampled at ticks only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peak {
    /// Memory space.
    pub space: Space,
    /// Bytes in use at the peak.
    pub bytes: u64,
    /// When it was reached.
    pub at: Timestamp,
    /// The processes that held it, largest first.
    pub holders: Vec<Holder>,
}

/// A process that held memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// Process name.
    pub name: Option<String>,
    /// Bytes held.
    pub bytes: u64,
}

/// Usage and sensors of a device over time, oldest first; older stretches are longer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct History {
    /// DRAM in use: buffers and trace.
    pub dram_total: Vec<Sample>,
    /// L1 in use: buffers, `L1_SMALL` and what programs hold there.
    pub l1_total: Vec<Sample>,
    /// Temperature in degrees Celsius.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub asic_celsius: Vec<SensorSample>,
    /// Power of the core in watts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub power_watts: Vec<SensorSample>,
    /// Clock of the Tensix cores in megahertz.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub aiclk_mhz: Vec<SensorSample>,
}

/// The readings of one sensor in one stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SensorSample {
    /// When it begins.
    pub at: Timestamp,
    /// Lowest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Highest.
    pub max: f64,
}

/// The usage of one memory in one stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sample {
    /// Start of the interval.
    pub at: Timestamp,
    /// Lowest.
    pub min_bytes: u64,
    /// Mean.
    pub mean_bytes: u64,
    /// Highest.
    pub max_bytes: u64,
}
