//! Allocations, one by one and in groups.

use super::{is_false, is_zero};
use crate::words::{Basis, KernelClass, Layout, Space};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ttmem_types::Purpose;

/// One live allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Allocation {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// [`super::Device::id`]s that hold it.
    pub devices: Vec<String>,
    /// [`super::Device::index`]es that hold it.
    pub indexes: Vec<u32>,
    /// Number of its allocator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocator: Option<u32>,
    /// Memory space.
    pub space: Space,
    /// Device address or kernel id, in hexadecimal.
    pub id: String,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Bytes in the banks and cores that hold data.
    pub occupied_bytes: Option<u64>,
    /// Bytes that the runtime's allocator accounts for, over all banks it moves in lock-step.
    pub allocated_bytes: Option<u64>,
    /// Bytes per bank or core.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_bank: Option<u64>,
    /// Number of banks or cores that allocate it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub banks: Option<u16>,
    /// Layout over banks or cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub layout: Option<Layout>,
    /// Cores that hold it, if not all do: rectangles, each from column, row to column, row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<Vec<[u8; 4]>>,
    /// Whether its size is an estimate.
    #[serde(skip_serializing_if = "is_false", default)]
    pub estimated: bool,
    /// Whether its address is unknown; then the id is only a unique number.
    #[serde(skip_serializing_if = "is_false", default)]
    pub unplaced: bool,
    /// Reference count.
    pub references: u32,
    /// Time since it was allocated.
    pub age_seconds: f64,
    /// Class of a kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<KernelClass>,
    /// Number of the program it belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<u32>,
    /// Number of the call site that allocated it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site: Option<u32>,
    /// Call site that allocated it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site_name: Option<String>,
    /// What is known about the call site.
    #[serde(flatten)]
    pub origin: Origin,
    /// Name of the program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program_name: Option<String>,
    /// Whether names and call sites are withheld from this user. Allocations of other users are not listed at all.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// Where the figures come from.
    pub basis: Basis,
}

/// Where memory comes from: the line that allocated it, the operation that the line called, and the tensor. Fields that are absent
/// are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Origin {
    /// Path of the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Line of the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u32>,
    /// Function that the line is in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub function: Option<String>,
    /// Operation that the line called, or the runtime's device operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub op: Option<String>,
    /// What the memory is for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub purpose: Option<Purpose>,
    /// The tensor: data type, shape and layout.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tensor: Option<String>,
    /// The part of the program, if it names its parts: `decode / attention`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub track: Option<String>,
    /// The calls that led to the line, innermost first, if whole stacks are recorded.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stack: Vec<String>,
}

/// Buffers of one process on some devices in one space that one line allocated by one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteUsage {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// Whether call sites are withheld from this user; then this is the sum of all call sites of the process.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// [`super::Device::index`]es that hold them.
    pub indexes: Vec<u32>,
    /// Memory space.
    pub space: Space,
    /// The call site; `null`: unknown.
    pub site_name: Option<String>,
    /// What is known about it. The tensor is that of one of the buffers.
    #[serde(flatten)]
    pub origin: Origin,
    /// Number of buffers.
    pub count: u64,
    /// Requested bytes per device.
    pub requested_bytes: u64,
    /// Allocated bytes per device, else requested bytes.
    pub used_bytes: u64,
    /// Number of buffers when the process's memory of this space was largest; `null`: unknown.
    #[serde(default)]
    pub peak_count: Option<u64>,
    /// Bytes per device at that time.
    #[serde(default)]
    pub peak_bytes: Option<u64>,
}

/// What shows that a call site leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeakBasis {
    /// Its buffers grow from mark to mark.
    Marks,
    /// They grow from one replay of a trace to the next.
    Replays,
    /// Without marks: more and more of them are older than 10 times the median life of those that were freed.
    LateSurvivors,
    /// One that a later version has.
    #[serde(other)]
    Other,
}

/// Buffers that one line allocates by one operation, and that only grow: a leak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Leak {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// [`super::Device::index`]es that hold them.
    pub indexes: Vec<u32>,
    /// Memory space.
    pub space: Space,
    /// The call site; `null`: unknown.
    pub site_name: Option<String>,
    /// What is known about it. The tensor is that of one of the buffers.
    #[serde(flatten)]
    pub origin: Origin,
    /// What shows it.
    pub basis: LeakBasis,
    /// Name of the marks; `null` if there are none, or no space for it.
    pub mark: Option<String>,
    /// Number of the trace that is replayed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<u32>,
    /// Age beyond which a buffer is a late survivor: 10 times the median life of the call site's freed buffers; absent if there are marks or replays.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub late_after_ns: Option<u64>,
    /// Intervals between marks, between replays, or of 10 seconds, since the number of buffers last fell.
    pub intervals: u32,
    /// Those in which it grew.
    pub grown_intervals: u32,
    /// Buffers more than at the beginning of these intervals.
    pub grown_count: u64,
    /// Allocated bytes per device more than then.
    pub grown_bytes: u64,
    /// Buffers at the last mark; without marks, late survivors.
    pub count: u64,
    /// Their allocated bytes per device.
    pub used_bytes: u64,
    /// When these intervals began.
    pub since: Timestamp,
}

/// Every live allocation: what `ttmem dump --json` prints, and a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dump {
    /// As [`super::Snapshot::schema`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = super::SCHEMA)))]
    pub schema: u32,
    /// When it was taken.
    pub at: Timestamp,
    /// Whether any device is simulated.
    pub simulated: bool,
    /// The allocations; a daemon lists them in no order.
    pub allocations: Vec<Allocation>,
    /// Sums of other users' processes, whose allocations are withheld from this user.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hidden: Vec<HiddenMemory>,
}

/// The memory of a process in one space, whose single allocations are withheld from this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HiddenMemory {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// As [`super::Process::name`].
    pub process_name: Option<String>,
    /// As [`super::Process::user`].
    pub user: Option<String>,
    /// [`super::Device::index`]es that hold it.
    pub indexes: Vec<u32>,
    /// Memory space.
    pub space: Space,
    /// Number of allocations.
    pub count: u64,
    /// Requested bytes per device.
    pub requested_bytes: u64,
    /// Allocated bytes per device, else requested bytes.
    pub used_bytes: u64,
}

/// A page of the list of live allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Buffers {
    /// Number of allocations that match; the list is a part of them.
    pub count: u64,
    /// Requested bytes of all that match.
    pub requested_bytes: u64,
    /// Allocated bytes of all that match, else requested bytes.
    pub used_bytes: u64,
    /// Number of allocations before this part.
    pub offset: u64,
    /// The allocations, unless they were grouped.
    pub list: Vec<Allocation>,
    /// Number of further allocations, of other users' processes, which are withheld from this user. They match by device,
    /// process and space; words are compared with the pid and name of the process only.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub hidden_count: u64,
    /// Allocated bytes of these, else requested bytes.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub hidden_bytes: u64,
    /// Number of groups, if they were grouped; `groups` is a part of them.
    #[serde(default)]
    pub group_count: u64,
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub groups: Vec<BufferGroup>,
}

/// A group of allocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BufferGroup {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::name`].
    pub process_name: Option<String>,
    /// Whether single allocations are withheld from this user; then this is the sum of the process.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// Memory space, if all of them are in one.
    pub space: Option<Space>,
    /// Number of their program, if they were grouped by program.
    pub program: Option<u32>,
    /// Name of that program.
    pub program_name: Option<String>,
    /// Number of their call site, if they were grouped by call site.
    pub site: Option<u32>,
    /// That call site.
    pub site_name: Option<String>,
    /// The operation, function, file or tensor that they have in common, if they were grouped by it. If that is unknown: what the
    /// memory is for, or `programs`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
    /// Number of allocations.
    pub count: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Allocated bytes, else requested bytes.
    pub used_bytes: u64,
}

/// Live allocations on one device in one space, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// [`super::Device::index`].
    pub index: u32,
    /// Which space.
    pub space: Space,
    /// Live allocations.
    pub count: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Single allocations; fewer than `count` if there are too many to list.
    pub listed: Vec<Allocation>,
    /// Sums of other users' processes, whose allocations are withheld from this user.
    pub hidden: Vec<HiddenMemory>,
}
