//! Processes: usage, tracking and audits.

use super::{BufferUsage, Program, Trace, Usage, is_false};
use crate::words::{Basis, Space};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A tracked process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Process id in the reader's PID namespace; `null` if it is not visible there.
    pub pid: Option<u32>,
    /// Process id that the process itself reported, where it differs.
    pub reported_pid: Option<i64>,
    /// When it started.
    pub start: Option<Timestamp>,
    /// Process name.
    pub name: Option<String>,
    /// Command line.
    pub command: Option<String>,
    /// Owner.
    pub user: Option<String>,
    /// Number of the owner; `null`: unknown.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Container id, where it runs in one.
    pub container: Option<String>,
    /// Pod of the container, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pod: Option<String>,
    /// Whether names, command and call sites are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// [`super::Device::id`]s that it has open, according to the kernel.
    #[serde(default)]
    pub open_devices: Vec<String>,
    /// How well its memory is known, in one word.
    #[serde(default)]
    pub tracking: Tracking,
    /// The best basis of its figures.
    pub basis: Basis,
    /// Whether every allocation and free of the process is included.
    pub complete: bool,
    /// Sequence number of the last allocation event that these figures include; `null` where the process does not number them.
    #[serde(default)]
    pub sequence: Option<u64>,
    /// What tracks the process, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracker: Option<Tracker>,
    /// Totals over all its devices.
    #[serde(default)]
    pub summary: Summary,
    /// Memory in use, by device.
    pub usage: Vec<ProcessUsage>,
    /// Memory in use, by open allocator.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub allocators: Vec<AllocatorUsage>,
    /// Comparisons with the runtime's own allocator statistics.
    pub audit: Vec<AuditResult>,
    /// Traces that can be replayed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub traces: Vec<Trace>,
    /// The last moment that the process marked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_mark: Option<Mark>,
    /// Programs that are loaded or cached, by number, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub programs: Option<Vec<Program>>,
    /// What it uses of the host, on request; absent where the reader cannot see it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostUsage>,
}

/// A moment that a process marked, such as the end of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// Name; `null` if there was no space for it.
    pub name: Option<String>,
    /// Number, such as that of the step.
    pub number: Option<u64>,
    /// When it was marked.
    pub at: Timestamp,
    /// Marks so far that were compared with each other, of the name with the most of them: call sites that leak are found from 10 on.
    #[serde(default)]
    pub compared: u32,
}

/// What a process uses of the host, and its place in the process tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostUsage {
    /// CPU time since the reading before, in percent of one CPU; `null` in the first reading.
    pub cpu_percent: Option<f64>,
    /// Host memory that is resident (RSS).
    pub rss_bytes: u64,
    /// Pid of its parent process; `null` if it has none.
    pub parent_pid: Option<u32>,
    /// Pid of its nearest ancestor among the processes of the snapshot; `null` if there is none.
    pub ancestor_pid: Option<u32>,
}

/// Totals of a process over all its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// [`super::Device::index`]es of the devices that it uses or has open.
    pub indexes: Vec<u32>,
    /// DRAM and trace buffers; `null` if unknown.
    pub dram_bytes: Option<u64>,
    /// L1 buffers of all kinds.
    pub l1_bytes: Option<u64>,
    /// Circular and dataflow buffers and scratchpads.
    pub program_bytes: Option<u64>,
    /// Kernel code.
    pub kernel_bytes: Option<u64>,
}

/// How well the memory of a process is known, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tracking {
    /// Tracked by the agent; drift against the runtime's own allocators is 0.
    Audited,
    /// Tracked by the agent; not audited yet, or its allocators are busy.
    Agent,
    /// Self-reporting through the ttmem library.
    Library,
    /// Known from tt-metal's own counters only.
    Counters,
    /// Reported through the old socket protocol: requested bytes only.
    Reported,
    /// Tracked by the agent, but something was missed.
    Partial,
    /// Tracked by the agent; the runtime's own allocators disagree.
    Drift,
    /// It has a device open and publishes nothing. Or what a later version has.
    #[default]
    #[serde(other)]
    Untracked,
}

impl Tracking {
    /// Name as shown on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Audited => "audited",
            Self::Agent => "agent",
            Self::Library => "library",
            Self::Counters => "counters",
            Self::Reported => "reported",
            Self::Partial => "partial",
            Self::Drift => "drift",
            Self::Untracked => "untracked",
        }
    }
}

/// Memory in use by one process on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("allOf" = [{"$ref": "#/$defs/Usage"}])))]
pub struct ProcessUsage {
    /// [`super::Device::id`].
    pub device: String,
    /// Memory in use.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(!flatten, skip))]
    pub usage: Usage,
}

/// What tracks a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tracker {
    /// Name and version, as `ttmem-agent 0.1.0`.
    pub writer: String,
    /// The tracked runtime, as `ttnn 0.81.1`.
    pub runtime: Option<String>,
    /// Number of functions of the runtime to hook.
    pub hooks: u32,
    /// Hooks that could not be installed.
    pub missing_hooks: Vec<String>,
    /// CPU time that tracking has cost the process.
    pub cost_seconds: Option<f64>,
    /// Frames, call sites and tensors that are not described, because the segment has no space for more.
    #[serde(skip_serializing_if = "super::is_zero", default)]
    pub left_out: u64,
}

/// Memory in use by one allocator, on each of its devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllocatorUsage {
    /// Allocator number within the process.
    pub id: u32,
    /// [`super::Device::id`]s it covers.
    pub devices: Vec<String>,
    /// By space.
    pub spaces: Vec<AllocatorSpace>,
}

/// One space of an allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("allOf" = [{"$ref": "#/$defs/BufferUsage"}])))]
pub struct AllocatorSpace {
    /// Memory space.
    pub space: Space,
    /// Banks that allocate in lock-step.
    pub banks: u16,
    /// First address of a bank.
    pub base: u64,
    /// Bytes of a bank.
    pub bytes_per_bank: u64,
    /// Addresses within a bank of the free blocks that have the size of the largest one, lowest first; at most 256.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub largest_free_block_addrs: Vec<u64>,
    /// Memory in use.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(!flatten, skip))]
    pub usage: BufferUsage,
}

/// A comparison with the runtime's own allocator statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditResult {
    /// Number of the allocator.
    pub allocator: u32,
    /// [`super::Device::id`]s it covers.
    pub devices: Vec<String>,
    /// Memory space.
    pub space: Space,
    /// Allocated bytes: ttmem's figure minus the runtime's.
    pub drift_bytes: i64,
    /// Free bytes: ttmem's figure minus the runtime's; `null` where the bank layout is not known.
    pub free_drift_bytes: Option<i64>,
    /// Largest free block per bank: ttmem's figure minus the runtime's; `null` where the bank layout is not known.
    pub largest_free_drift_bytes: Option<i64>,
    /// Whether the comparison is valid: no allocation or free happened during the audit.
    pub compared: bool,
    /// Allocated bytes according to the runtime, over all banks.
    pub allocated_bytes: u64,
    /// Free bytes according to the runtime.
    pub free_bytes: u64,
    /// Largest free block per bank according to the runtime.
    pub largest_free_bytes_per_bank: u64,
    /// Sequence number of the process's last allocation event before the audit.
    pub sequence: u64,
}

impl AuditResult {
    /// Whether every drift that is known is 0.
    pub fn is_zero(&self) -> bool {
        let none = |drift: Option<i64>| drift.unwrap_or(0) == 0;
        self.drift_bytes == 0 && none(self.free_drift_bytes) && none(self.largest_free_drift_bytes)
    }
}
