//! What views show: one value for the table, JSON, sockets and every later view.
//!
//! The shape is a promise: keys are only ever added, numbers are numbers with their unit in the key, what is not
//! known is `null`, what does not exist is absent, times are RFC 3339 in UTC, lists are sorted.
//!
//! `cargo xtask gen` generates `docs/snapshot.schema.json` and Python's dataclasses from these types and their comments, so a
//! comment must make sense to a reader of JSON. A flattened field is the `allOf` of its struct in the schema: Python's base class.

mod allocation;
mod block;
mod cores;
mod device;
mod event;
mod failure;
mod flame;
mod memory_event;
mod process;
mod program;
mod report;
mod summary;
mod usage;

use crate::machine::Host;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use ttmem_types::{FailureKind, FindingKind, Severity};

pub use allocation::{
    Allocation, BufferGroup, Buffers, Dump, Group, HiddenMemory, Leak, LeakBasis, Origin, SiteUsage,
};
pub use block::{Block, BlockMap, BlockState};
pub use cores::{
    Core, CoreAllocation, CoreAllocations, CoreClass, CorePeak, CoreProgram, CoreRoom, Cores, Interval,
};
pub use device::{Device, History, Holder, Peak, Sample, SensorSample};
pub use event::{Event, EventKind, Finding};
pub use failure::{
    FailedBank, Failure, FailureGap, FailureHolder, InTheWay, MakeRoom, OpenWith, PostMortem, Shortage,
};
pub use flame::{Flame, FlameGap, FlameMoment, FlamePool, FlameStack, Frame, FrameKind};
pub use memory_event::{MemoryEvent, MemoryEventKind, Missed, ProgramLevel, Released};
pub use process::{
    AllocatorSpace, AllocatorUsage, AuditResult, HostUsage, Mark, Process, ProcessUsage, Summary, Tracker,
    Tracking,
};
pub use program::{Placement, Program, ProgramList, ProgramRow, Trace};
pub use report::{FullestCore, HeldBySite, ProcessReport, RunEnd, RunReport, SpaceReport};
pub use usage::{BufferUsage, KernelClassUsage, ProgramUsage, Total, Usage};

/// The number of the schema. It changes only if a key is taken away or changes its meaning.
pub const SCHEMA: u32 = 1;

/// Everything known at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// Number of the schema; it changes only if a key is taken away or changes its meaning.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: u32,
    /// When it was taken.
    pub at: Timestamp,
    /// Whether any device is simulated.
    pub simulated: bool,
    /// The machine.
    pub host: Host,
    /// Devices, by index.
    pub devices: Vec<Device>,
    /// Tracked processes, by pid.
    pub processes: Vec<Process>,
    /// Problems that hold now or occurred in the last 10 minutes, worst first.
    pub findings: Vec<Finding>,
    /// Recent events, oldest first, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub events: Option<Vec<Event>>,
    /// A page of the list of live allocations, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub buffers: Option<Buffers>,
    /// A page of the list of programs, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub programs: Option<ProgramList>,
    /// The allocations on one core, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core_allocations: Option<CoreAllocations>,
    /// The blocks of allocators' banks, by process, allocator and space, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub block_maps: Option<Vec<BlockMap>>,
    /// Usage of buffers by process, devices, space, call site and operation, largest first, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sites: Option<Vec<SiteUsage>>,
    /// Call sites that leak, largest first, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leaks: Option<Vec<Leak>>,
    /// Buffers by the stacks that allocated them, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flame: Option<Flame>,
    /// How the snapshot was made.
    pub health: Health,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(it: &bool) -> bool {
    !*it
}

/// How the snapshot was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// `daemon` or `local`.
    pub source: String,
    /// Open connections of legacy clients.
    pub connections: u64,
    /// Segments of running processes that are read.
    #[serde(default)]
    pub segments: u64,
    /// Crash segments: segments whose process is gone.
    #[serde(default)]
    pub crash_segments: u64,
    /// Files of tt-metal counters that are read.
    #[serde(default)]
    pub counter_files: u64,
    /// Files named like segments or counters that cannot be read, and the socket of a daemon that does not answer.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Live records behind the figures.
    pub live_records: u64,
    /// Records lost before they could be read.
    pub lost_records: u64,
    /// Event log lines dropped because their reader was too slow.
    pub dropped_log_lines: u64,
}

/// A file that was not read, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// Path of the file.
    pub path: String,
    /// Why it was not read.
    pub reason: String,
}
