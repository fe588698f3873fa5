//! A failed allocation, and what its post-mortem says.

use super::{Allocation, Origin};
use crate::words::Space;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ttmem_types::FailureKind;

/// A request that the runtime refused, with the figures of that moment. What is absent is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// Why it failed.
    pub kind: FailureKind,
    /// [`super::Device::index`]es of its devices.
    pub indexes: Vec<u32>,
    /// Memory space; of program memory, that of the parts that did not fit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub space: Option<Space>,
    /// Requested bytes on each device: of a buffer, of all traces, or of a program's kernels and arguments.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requested_bytes: Option<u64>,
    /// Bytes that the buffer needs in each bank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub needed_bytes_per_bank: Option<u64>,
    /// Free bytes in each bank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub free_bytes_per_bank: Option<u64>,
    /// Largest free block in a bank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub largest_free_bytes_per_bank: Option<u64>,
    /// End of the program's memory on its cores, an address in L1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program_end: Option<u64>,
    /// Lowest address of a buffer in L1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lowest_buffer: Option<u64>,
    /// Bytes that there are: of L1, of the kernel config buffer, or of the trace region.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_bytes: Option<u64>,
    /// Cores that it concerns, if not all: rectangles, each from column, row to column, row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<Vec<[u8; 4]>>,
    /// Number of the program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<u32>,
    /// Name of the program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program_name: Option<String>,
    /// Call site.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site_name: Option<String>,
    /// What is known about the call site.
    #[serde(flatten)]
    pub origin: Origin,
    /// Number of the event in its segment.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sequence: Option<u64>,
}

/// A failed allocation with everything that was allocated at that moment: what `ttmem postmortem --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PostMortem {
    /// As [`super::Snapshot::schema`].
    pub schema: u32,
    /// When it failed.
    pub at: Timestamp,
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// Name of the process.
    pub process_name: Option<String>,
    /// The tracked runtime and its version.
    pub runtime: Option<String>,
    /// The file that this was read from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Whether everything is exactly as it was when the allocation failed.
    pub exact: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub inexact_reason: Option<String>,
    /// Later failures of the process that are recorded.
    #[serde(default)]
    pub later_failures: u64,
    /// The failure.
    pub failure: Failure,
    /// The failure in one sentence.
    pub text: String,
    /// The banks that were asked for memory, or, for a program, those of L1.
    pub bank: Option<FailedBank>,
    /// What held these banks, by call site, operation and tensor, largest first.
    pub holders: Vec<FailureHolder>,
    /// The set of buffers with the fewest bytes whose freeing makes room for the request.
    pub make_room: Option<MakeRoom>,
    /// Call sites of which freeing all buffers makes room, with the fewest bytes first.
    pub sites_that_make_room: Vec<FailureHolder>,
    /// L1 buffers below the end of the program's memory, in the order in which they have to be allocated again after all of them
    /// were freed.
    pub in_the_way: Vec<InTheWay>,
    /// The free gap on the cores of the program.
    pub gaps: Vec<FailureGap>,
    /// The parameter with which the device has to be opened.
    pub open_with: Option<OpenWith>,
}

/// Banks of an allocator as they were when an allocation failed. They allocate in lock-step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedBank {
    /// Memory space.
    pub space: Space,
    /// Number of banks.
    pub banks: u16,
    /// First address in a bank.
    pub base: u64,
    /// Bytes of a bank.
    pub bytes_per_bank: u64,
    /// Allocated bytes in a bank.
    pub used_bytes_per_bank: u64,
    /// Free bytes in a bank.
    pub free_bytes_per_bank: u64,
    /// Largest free block in a bank.
    pub largest_free_bytes_per_bank: u64,
    /// Number of buffers.
    pub used_count: u64,
    /// Number of free blocks.
    pub free_count: u64,
    /// Why there was no block for the request.
    pub shortage: Option<Shortage>,
}

/// Why there was no block for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Shortage {
    /// Fewer bytes are free than requested.
    Full,
    /// Enough bytes are free, but not in one block.
    Fragmented,
    /// The request is larger than a bank.
    TooLarge,
    /// One that a later version has.
    #[serde(other)]
    Other,
}

/// Buffers of one call site, operation and tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureHolder {
    /// Call site; `null`: unknown.
    pub site_name: Option<String>,
    /// What is known about it.
    #[serde(flatten)]
    pub origin: Origin,
    /// Number of buffers.
    pub count: u64,
    /// Bytes in a bank.
    pub bytes_per_bank: u64,
    /// Percent of the allocated bytes.
    pub share_percent: f64,
}

/// Buffers whose freeing makes room for a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MakeRoom {
    /// Bytes in a bank that are freed.
    pub bytes_per_bank: u64,
    /// First address of the free block that results.
    pub address: u64,
    /// Bytes of that block.
    pub block_bytes_per_bank: u64,
    /// Number of buffers.
    pub count: u64,
    /// The buffers, by address, at most 64.
    pub buffers: Vec<Allocation>,
}

/// An L1 buffer below the end of a program's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InTheWay {
    /// The buffer.
    pub buffer: Allocation,
    /// Whether it is on none of the program's cores: these banks only reserve its addresses by lock-step.
    pub only_by_lockstep: bool,
    /// The address that it gets if all of these buffers are freed and then allocated again in this order; `null`: there is no room
    /// above the program's memory.
    pub new_address: Option<u64>,
}

/// The free gap between a program's memory and the lowest L1 buffer of some cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureGap {
    /// The cores: rectangles, each from column, row to column, row.
    pub cores: Vec<[u8; 4]>,
    /// Lowest address of a buffer that is on these cores; `null`: there is none.
    pub lowest_buffer: Option<u64>,
    /// Lowest address that these banks reserve, also for buffers on other cores.
    pub lowest_reserved: Option<u64>,
    /// Bytes that the program needs from the base of L1 on.
    pub needed_bytes: u64,
    /// Bytes between the base of L1 and the lowest reserved address.
    pub free_bytes: u64,
}

/// A parameter with which a device has to be opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenWith {
    /// Name of the parameter of `ttnn.open_device`.
    pub parameter: String,
    /// Its value, in bytes.
    pub bytes: u64,
}
