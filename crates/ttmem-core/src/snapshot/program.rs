//! Programs and traces.

use super::{is_false, is_zero};
use crate::words::{KernelClass, Space};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A captured trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trace {
    /// Trace number in the runtime.
    pub id: u32,
    /// Number of its allocator.
    pub allocator: u32,
    /// [`super::Device::id`]s of its devices.
    pub devices: Vec<String>,
    /// Dispatches it holds.
    pub dispatches: u64,
    /// Number of replays.
    pub replays: u64,
    /// End of the capture.
    pub captured: Timestamp,
    /// Buffers allocated since the capture and still live: a replay may overwrite them.
    pub endangered_count: u64,
    /// Requested bytes of those buffers.
    pub endangered_bytes: u64,
}

/// A program that is loaded or cached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Program number, as in the runtime.
    pub id: u32,
    /// Number of its allocator.
    pub allocator: Option<u32>,
    /// [`super::Device::id`]s of its devices.
    pub devices: Vec<String>,
    /// [`super::Device::index`]es of its devices.
    pub indexes: Vec<u32>,
    /// Its operation, or the names of its kernels.
    pub name: Option<String>,
    /// The names of its kernels, if its operation is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernels: Option<String>,
    /// The call site that dispatched it first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site_name: Option<String>,
    /// Class of the program.
    pub class: KernelClass,
    /// Cores it runs on: rectangles, each from column, row to column, row.
    pub cores: Vec<[u8; 4]>,
    /// Number of those cores.
    pub core_count: u32,
    /// Number of cores, over all its devices, on which it was dispatched last.
    pub resident_cores: u32,
    /// Number of dispatches.
    pub dispatches: u64,
    /// Whether dispatches are not reported, so that neither their number nor residency is known.
    #[serde(skip_serializing_if = "is_false", default)]
    pub residency_unknown: bool,
    /// Whether some of its sizes are estimates.
    #[serde(skip_serializing_if = "is_false", default)]
    pub estimated: bool,
    /// Time of the last dispatch.
    pub dispatched: Option<Timestamp>,
    /// Kernel code, arguments and semaphores, per core.
    pub kernel_bytes: u64,
    /// Circular buffers per device; overlapping address ranges count once.
    pub cb_bytes: u64,
    /// Dataflow buffers per device.
    pub dfb_bytes: u64,
    /// Scratchpads per device.
    pub scratch_bytes: u64,
    /// Circular and dataflow buffers that are views of L1 buffers, which are counted as L1.
    pub view_count: u64,
    /// Highest end address of its memory on any core; `null` if it has none.
    pub end: Option<u64>,
    /// Whether L1 buffers are below that end: as long as they are there, a dispatch fails.
    #[serde(skip_serializing_if = "is_false", default)]
    pub would_clash: bool,
    /// Its memory, by address.
    pub placements: Vec<Placement>,
}

/// Memory of a program on its cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Placement {
    /// Memory space.
    pub space: Space,
    /// Address on each core; `null` if unknown.
    pub address: Option<u64>,
    /// Bytes per core.
    pub bytes: u64,
    /// Its cores: rectangles, each from column, row to column, row.
    pub cores: Vec<[u8; 4]>,
    /// Whether it is a view of an L1 buffer, which is counted as L1.
    pub view: bool,
    /// Number of equal placements of the program; absent if it is 1.
    #[serde(skip_serializing_if = "is_one", default = "one")]
    pub count: u32,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

/// A page of the list of programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramList {
    /// Number of programs that match; the list is a part of them.
    pub count: u64,
    /// Number of those that are resident on any core.
    pub resident_count: u64,
    /// Whether any of them has dataflow buffers.
    pub has_dfbs: bool,
    /// Whether any of them has scratchpads.
    pub has_scratch: bool,
    /// Number of processes of other users, whose programs are withheld from this user.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub hidden_processes: u64,
    /// Number of programs before this part.
    pub offset: u64,
    /// The programs, without their placements.
    pub list: Vec<ProgramRow>,
    /// The program that was requested with its placements.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open: Option<ProgramRow>,
}

/// A program and its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramRow {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// As [`super::Process::start`].
    pub start: Option<Timestamp>,
    /// As [`super::Process::name`].
    pub process_name: Option<String>,
    /// Whether names are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// The program.
    pub program: Program,
}
