//! How much of each space is used.

use super::is_zero;
use crate::words::{Basis, KernelClass};
use serde::{Deserialize, Serialize};

/// Memory in use on one device, by all processes or by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// DRAM buffers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dram: Option<BufferUsage>,
    /// L1 buffers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l1: Option<BufferUsage>,
    /// `L1_SMALL` buffers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l1_small: Option<BufferUsage>,
    /// L1 buffers allocated on some cores only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l1_core: Option<BufferUsage>,
    /// Trace buffers, in DRAM.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<BufferUsage>,
    /// Host memory mapped for the device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<BufferUsage>,
    /// Circular buffers, in L1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cb: Option<ProgramUsage>,
    /// Dataflow buffers, in L1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dfb: Option<ProgramUsage>,
    /// Scratchpads, in L1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scratch: Option<ProgramUsage>,
    /// Kernel code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<ProgramUsage>,
    /// Total DRAM: buffers and trace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dram_total: Option<Total>,
    /// Total L1: buffers, `L1_SMALL` and program memory, without kernels whose residency is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l1_total: Option<Total>,
}

/// Buffers of one space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BufferUsage {
    /// Bytes in use: allocated bytes where they are known, else requested bytes.
    #[serde(default)]
    pub used_bytes: u64,
    /// Bytes that programs requested.
    pub requested_bytes: u64,
    /// Bytes in the banks and cores that hold data.
    pub occupied_bytes: Option<u64>,
    /// Bytes that the runtime's allocator accounts for, over all banks it moves in lock-step.
    pub allocated_bytes: Option<u64>,
    /// Bytes that the allocator manages.
    pub allocatable_bytes: Option<u64>,
    /// Bytes that are free.
    pub free_bytes: Option<u64>,
    /// Largest free block per bank: no larger allocation can succeed.
    pub largest_free_bytes_per_bank: Option<u64>,
    /// Percent of the free bytes that are not in the largest free block; 0 if nothing is free.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fragmentation_percent: Option<f64>,
    /// Peak of the bytes in use.
    pub peak_bytes: u64,
    /// Live buffers; `null` where only their sum is known.
    pub count: Option<u64>,
    /// Where the figures come from.
    pub basis: Basis,
}

/// Program memory of one space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramUsage {
    /// Bytes of programs that are loaded or cached; overlapping address ranges count once.
    pub registered_bytes: u64,
    /// Bytes of the programs dispatched last on their cores; `null` where dispatches are not reported.
    pub resident_bytes: Option<u64>,
    /// Registered bytes of which it is not known whether they are resident; `resident_bytes` does not include them.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub residency_unknown_bytes: u64,
    /// Registered bytes that are estimated.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub estimated_bytes: u64,
    /// Registered bytes that are counted on one core, because their cores are unknown.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub per_core_bytes: u64,
    /// Kernels of each class, which sum to these figures; empty for other memory.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub by_class: Vec<KernelClassUsage>,
    /// Live records; `null` where only their sum is known.
    pub count: Option<u64>,
    /// Where the figures come from.
    pub basis: Basis,
}

/// Kernels of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelClassUsage {
    /// Class of the kernels.
    pub class: KernelClass,
    /// Bytes of kernels that are loaded or cached.
    pub registered_bytes: u64,
    /// Bytes of the programs dispatched last on their cores; `null` where dispatches are not reported.
    pub resident_bytes: Option<u64>,
}

impl ProgramUsage {
    /// Whether residency is known for all of it. Otherwise it may occupy what appears to be free.
    pub fn is_followed(&self) -> bool {
        match self.resident_bytes {
            Some(_) => self.residency_unknown_bytes == 0,
            None => self.registered_bytes == 0,
        }
    }

    /// The figure to show if there is room for one: resident or possibly resident bytes, else registered bytes.
    pub fn used_bytes(&self) -> u64 {
        self.resident_bytes
            .map_or(self.registered_bytes, |resident| resident.saturating_add(self.residency_unknown_bytes))
    }
}

/// A sum over spaces that share one memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Total {
    /// In use.
    pub used_bytes: u64,
    /// Capacity of the device; `null` if unknown.
    pub capacity_bytes: Option<u64>,
    /// The weakest basis of its parts.
    pub basis: Basis,
}
