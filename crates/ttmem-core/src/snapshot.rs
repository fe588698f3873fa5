//! What views show: one value for the table, JSON, sockets and every later view.
//!
//! The shape is a promise: keys are only ever added, numbers are numbers with their unit in the key, what is not
//! known is `null`, what does not exist is absent, times are RFC 3339 in UTC, lists are sorted.
//!
//! `cargo xtask gen` generates `docs/snapshot.schema.json` and Python's dataclasses from these types and their comments, so a
//! comment must make sense to a reader of JSON. A flattened field is the `allOf` of its struct in the schema: Python's base class.

mod cores;
mod summary;

use crate::machine::{Capacity, CoreLayout, Firmware, Host, Sensors};
use crate::words::{Arch, Basis, KernelClass, Layout, Space};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use ttmem_types::{FindingKind, Severity};

pub use cores::{
    Core, CoreAllocation, CoreAllocations, CoreClass, CorePeak, CoreProgram, CoreRoom, Cores, Interval,
};

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
    /// Whether any chip in it is simulated.
    pub simulated: bool,
    /// The machine.
    pub host: Host,
    /// Chips, by index.
    pub devices: Vec<Device>,
    /// Tracked processes, by pid.
    pub processes: Vec<Process>,
    /// Oddities, worst first.
    pub findings: Vec<Finding>,
    /// What happened of late, oldest first, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub events: Option<Vec<Happening>>,
    /// A page of the list of live allocations, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub buffers: Option<Buffers>,
    /// A page of the list of programs, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub programs: Option<ProgramList>,
    /// The allocations on one core, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core_allocations: Option<CoreAllocations>,
    /// How the snapshot came about.
    pub health: Health,
}

/// A chip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Its key: `0x` and 16 digits of its unique id, else `pci-` and its place, else `ordinal-N`.
    pub id: String,
    /// The number clients call it by.
    pub index: u32,
    /// Architecture.
    pub arch: Option<Arch>,
    /// Board name.
    pub board: Option<String>,
    /// Reached through another chip.
    pub remote: bool,
    /// Where it is on the bus, as `0000:01:00.0`.
    #[serde(default)]
    pub pci: Option<String>,
    /// The N of `/dev/tenstorrent/N`.
    #[serde(default)]
    pub node: Option<u32>,
    /// Number of its board, 16 digits.
    #[serde(default)]
    pub serial: Option<String>,
    /// Other ids that it is known by, as to tt-metal.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub names: Vec<String>,
    /// Versions of what runs on it.
    #[serde(default)]
    pub firmware: Firmware,
    /// Memory it has.
    pub capacity: Option<Capacity>,
    /// Memory in use.
    pub usage: Usage,
    /// What its sensors say.
    #[serde(default)]
    pub sensors: Option<Sensors>,
    /// Why they say nothing, or nothing new.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sensors_absent: Option<String>,
    /// The highest use seen of each space, and whose that was.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peaks: Vec<Peak>,
    /// The core with the least room between what programs keep at the bottom of its L1 and the lowest buffer; `null` where
    /// it is not known how cores are laid out.
    #[serde(default)]
    pub tightest_core: Option<CoreRoom>,
    /// How its runtime divides a core's L1, where that was said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core_layout: Option<CoreLayout>,
    /// The L1 of each core that programs can use, by row and column, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<Cores>,
    /// Usage over time, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub history: Option<History>,
}

/// The highest use of one space of a chip. Of buffers it is exact where one process holds the space through one allocator;
/// where several do, what they hold together is looked at with every tick and whenever one of them shrinks after it had grown
/// by some percent. What programs hold is looked at with ticks only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peak {
    /// Which.
    pub space: Space,
    /// How much.
    pub bytes: u64,
    /// When it was seen.
    pub at: Timestamp,
    /// Who held how much of it then, most first.
    pub holders: Vec<Holder>,
}

/// Who held something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// As [`Process::pid`].
    pub pid: Option<u32>,
    /// Short name.
    pub name: Option<String>,
    /// How much.
    pub bytes: u64,
}

/// Memory in use on one chip, of all processes or of one.
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
    /// L1 buffers that lie on some cores only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l1_core: Option<BufferUsage>,
    /// Trace buffers, in DRAM.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<BufferUsage>,
    /// Host memory mapped for the device; not the device's.
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
    /// DRAM in all: buffers and trace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dram_total: Option<Total>,
    /// L1 in all: buffers, `L1_SMALL` and what programs hold there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l1_total: Option<Total>,
}

/// Buffers of one space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BufferUsage {
    /// The figure to show if there is room for one: of each holder what the allocator charges, else what it asked for.
    #[serde(default)]
    pub used_bytes: u64,
    /// What programs asked for.
    pub requested_bytes: u64,
    /// What lies in the banks that really hold it.
    pub occupied_bytes: Option<u64>,
    /// What the runtime's allocator charges.
    pub allocated_bytes: Option<u64>,
    /// What that allocator has in all.
    pub allocatable_bytes: Option<u64>,
    /// What it has left.
    pub free_bytes: Option<u64>,
    /// The largest block left in a bank: no larger buffer fits.
    pub largest_free_bytes_per_bank: Option<u64>,
    /// The highest use seen.
    pub peak_bytes: u64,
    /// Live buffers; `null` where only their sum is known.
    pub count: Option<u64>,
    /// Where the figures come from.
    pub basis: Basis,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(it: &bool) -> bool {
    !*it
}

/// What programs hold in one space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramUsage {
    /// Held by programs that are loaded or cached; overlapping ranges counted once.
    pub registered_bytes: u64,
    /// Held by programs dispatched last on their cores; unknown where the source does not say what was dispatched.
    pub resident_bytes: Option<u64>,
    /// Registered besides, where `resident_bytes` is known of others only: whether it is resident, nobody says.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub unfollowed_bytes: u64,
    /// How much of what is registered is an estimate.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub estimated_bytes: u64,
    /// Live records; `null` where only their sum is known.
    pub count: Option<u64>,
    /// Where the figures come from.
    pub basis: Basis,
}

impl ProgramUsage {
    /// Whether it is known of all of it when it is resident. Otherwise it may lie in what looks free.
    pub fn is_followed(&self) -> bool {
        match self.resident_bytes {
            Some(_) => self.unfollowed_bytes == 0,
            None => self.registered_bytes == 0,
        }
    }

    /// The figure to show if there is room for one: what is resident or may be, else what is registered.
    pub fn used_bytes(&self) -> u64 {
        self.resident_bytes
            .map_or(self.registered_bytes, |resident| resident.saturating_add(self.unfollowed_bytes))
    }
}

/// A sum over spaces that share one memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Total {
    /// In use.
    pub used_bytes: u64,
    /// What the chip has; unknown where the chip is.
    pub capacity_bytes: Option<u64>,
    /// The weakest basis of its parts.
    pub basis: Basis,
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
    /// When it begins.
    pub at: Timestamp,
    /// Lowest.
    pub min_bytes: u64,
    /// Mean.
    pub mean_bytes: u64,
    /// Highest.
    pub max_bytes: u64,
}

/// A tracked process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// As the reader sees it; `null` if it cannot.
    pub pid: Option<u32>,
    /// What the process calls itself, where that differs.
    pub reported_pid: Option<i64>,
    /// When it started.
    pub start: Option<Timestamp>,
    /// Short name.
    pub name: Option<String>,
    /// Command line.
    pub command: Option<String>,
    /// Owner.
    pub user: Option<String>,
    /// Container, where it runs in one.
    pub container: Option<String>,
    /// The pod that is part of, where that can be told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pod: Option<String>,
    /// [`Device::id`]s that it has open, as far as the kernel says.
    #[serde(default)]
    pub opened: Vec<String>,
    /// How it is tracked: the best basis it has.
    pub tracking: Basis,
    /// Whether every allocation and free is known and accounted for.
    pub exact: bool,
    /// The last event, by the process's own count, that these figures include; `null` where it does not count them.
    #[serde(default)]
    pub sequence: Option<u64>,
    /// Who tracks it and how well, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracker: Option<Tracker>,
    /// What it holds on all its devices, and how well that is known.
    #[serde(default)]
    pub summary: Summary,
    /// What it holds, by device.
    pub usage: Vec<ProcessUsage>,
    /// What each of its open allocators holds, where there are such.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub allocators: Vec<AllocatorUsage>,
    /// The runtime's own figures, compared.
    pub audit: Vec<AuditResult>,
    /// Traces that can be replayed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub traces: Vec<Trace>,
    /// Programs that are loaded or cached, by number, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub programs: Option<Vec<Program>>,
    /// What it uses of the host, on request; absent where the reader cannot see it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostUsage>,
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

/// A process in a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// [`Device::index`]es of those that it holds something on, or has open.
    pub indexes: Vec<u32>,
    /// DRAM and trace buffers; `null` where nothing is known of them, as in the others.
    pub dram_bytes: Option<u64>,
    /// L1 buffers of all kinds.
    pub l1_bytes: Option<u64>,
    /// Circular and dataflow buffers and scratchpads.
    pub program_bytes: Option<u64>,
    /// Kernel code.
    pub kernel_bytes: Option<u64>,
    /// How well all this is known.
    pub quality: Quality,
}

/// How well a process is tracked, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// Every event is known, and the runtime's own allocators say the same.
    Audited,
    /// The agent is in it; its allocators were not judged just now.
    Agent,
    /// It reports its events itself.
    Events,
    /// tt-metal's own counters.
    Counters,
    /// Messages of the old socket protocol.
    Legacy,
    /// The agent is in it, but something was missed.
    Partial,
    /// The runtime's own allocators say something else.
    Drift,
    /// It has a device open, and nothing more is known. Or what a later version has.
    #[default]
    #[serde(other)]
    Untracked,
}

impl Quality {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Audited => "audited",
            Self::Agent => "agent",
            Self::Events => "events",
            Self::Counters => "counters",
            Self::Legacy => "legacy",
            Self::Partial => "partial",
            Self::Drift => "DRIFT",
            Self::Untracked => "untracked",
        }
    }
}

/// Dispatches that were captured, to be replayed at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trace {
    /// The runtime's number of it.
    pub id: u32,
    /// The allocator it belongs to.
    pub allocator: u32,
    /// [`Device::id`]s it is for.
    pub devices: Vec<String>,
    /// Dispatches it holds.
    pub dispatches: u64,
    /// How often it was replayed.
    pub replays: u64,
    /// When its capture ended.
    pub captured: Timestamp,
    /// Buffers that were allocated since and are still held: a replay may write over them.
    pub endangered_count: u64,
    /// What they asked for.
    pub endangered_bytes: u64,
}

/// A program that is loaded or cached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Its number within the process.
    pub id: u32,
    /// The allocator, or set of chips, it belongs to.
    pub allocator: Option<u32>,
    /// [`Device::id`]s it is for.
    pub devices: Vec<String>,
    /// [`Device::index`]es it is for.
    pub indexes: Vec<u32>,
    /// What it is called, or made of.
    pub name: Option<String>,
    /// What kind of program.
    pub class: KernelClass,
    /// The cores it runs on: rectangles, each from column, row to column, row.
    pub cores: Vec<[u8; 4]>,
    /// How many those are.
    pub core_count: u32,
    /// On how many cores of how many it is for, over all its devices, it is what was dispatched last.
    pub resident_cores: u32,
    /// How often it was dispatched.
    pub dispatches: u64,
    /// Nobody tells of dispatches: neither those nor whether it is resident are known.
    #[serde(skip_serializing_if = "is_false", default)]
    pub unfollowed: bool,
    /// Some of what it keeps is as large as somebody estimates.
    #[serde(skip_serializing_if = "is_false", default)]
    pub estimated: bool,
    /// When that last happened.
    pub dispatched: Option<Timestamp>,
    /// Code, arguments and semaphores, on each core.
    pub kernel_bytes: u64,
    /// Circular buffers on each device, overlapping ranges counted once.
    pub cb_bytes: u64,
    /// Dataflow buffers likewise.
    pub dfb_bytes: u64,
    /// Scratchpads likewise.
    pub scratch_bytes: u64,
    /// Of its circular and dataflow buffers, those that are only views of buffers, which are counted as such.
    pub view_count: u64,
    /// Where what it keeps ends, on the core where that is highest; `null` if it keeps nothing.
    pub end: Option<u64>,
    /// Everything it keeps, by address.
    pub placements: Vec<Placement>,
}

/// Something a program keeps on its cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Placement {
    /// Which space.
    pub space: Space,
    /// Address on each core; unknown where its source does not say it.
    pub address: Option<u64>,
    /// Bytes on each core.
    pub bytes: u64,
    /// The cores: rectangles, each from column, row to column, row.
    pub cores: Vec<[u8; 4]>,
    /// It is only a view of a buffer, which is counted as such.
    pub view: bool,
}

/// What one process holds on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("allOf" = [{"$ref": "#/$defs/Usage"}])))]
pub struct ProcessUsage {
    /// [`Device::id`].
    pub device: String,
    /// How much.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(!flatten, skip))]
    pub usage: Usage,
}

/// Who tracks a process, and how well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tracker {
    /// As `ttmem-agent 0.1.0`.
    pub writer: String,
    /// The runtime that is tracked, as `ttnn 0.81.1`.
    pub runtime: Option<String>,
    /// How many hooks into it were wanted.
    pub hooks: u32,
    /// Those that did not take.
    pub missing_hooks: Vec<String>,
    /// Processor time that tracking cost the process so far.
    pub cost_seconds: Option<f64>,
}

/// What one allocator holds, on each of its devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllocatorUsage {
    /// Its number within the process.
    pub id: u32,
    /// [`Device::id`]s it covers.
    pub devices: Vec<String>,
    /// By space.
    pub spaces: Vec<AllocatorSpace>,
}

/// One space of an allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("allOf" = [{"$ref": "#/$defs/BufferUsage"}])))]
pub struct AllocatorSpace {
    /// Which.
    pub space: Space,
    /// Banks it moves in lock-step.
    pub banks: u16,
    /// First address in a bank.
    pub base: u64,
    /// Bytes of a bank.
    pub bytes_per_bank: u64,
    /// What it holds.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(!flatten, skip))]
    pub usage: BufferUsage,
}

/// One comparison with the runtime's allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditResult {
    /// Number of the allocator.
    pub allocator: u32,
    /// [`Device::id`]s it covers.
    pub chips: Vec<String>,
    /// Which space.
    pub space: Space,
    /// Allocated bytes: ours minus the allocator's.
    pub drift_bytes: i64,
    /// The same of free bytes, where the bank layout is known.
    pub free_drift_bytes: Option<i64>,
    /// The same of the largest free block in a bank.
    pub largest_free_drift_bytes: Option<i64>,
    /// Whether nothing happened meanwhile, so that the difference means something.
    pub judged: bool,
    /// What the allocator itself said is allocated, over all banks.
    pub allocated_bytes: u64,
    /// What it said is free.
    pub free_bytes: u64,
    /// The largest free block of a bank, as it said.
    pub largest_free_bytes_per_bank: u64,
    /// The event it was asked at, by the process's own count.
    pub sequence: u64,
}

impl AuditResult {
    /// Whether we and the allocator say the same in everything that could be compared.
    pub fn is_zero(&self) -> bool {
        let none = |drift: Option<i64>| drift.unwrap_or(0) == 0;
        self.drift_bytes == 0 && none(self.free_drift_bytes) && none(self.largest_free_drift_bytes)
    }
}

/// Something odd, stated as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// How bad.
    pub severity: Severity,
    /// [`Device::id`], if it concerns one.
    pub device: Option<String>,
    /// Process, if it concerns one.
    pub pid: Option<u32>,
    /// Space, if it concerns one.
    pub space: Option<Space>,
    /// How many bytes.
    pub bytes: Option<u64>,
    /// How often.
    pub count: u64,
    /// First seen, if it is something that happened.
    pub first: Option<Timestamp>,
    /// Last seen, likewise.
    pub last: Option<Timestamp>,
    /// For people.
    pub text: String,
}

/// How the snapshot came about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// `daemon` or `local`.
    pub source: String,
    /// Open connections of old clients.
    pub connections: u64,
    /// Segments of living processes that are read.
    #[serde(default)]
    pub segments: u64,
    /// Segments that dead processes left behind.
    #[serde(default)]
    pub black_boxes: u64,
    /// Files of tt-metal's own counters that are read.
    #[serde(default)]
    pub regions: u64,
    /// Files that look like segments or counters and cannot be read as such.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Live records behind the figures.
    pub live_records: u64,
    /// Records lost before they could be read.
    pub lost_records: u64,
    /// Lines the event log had to drop because nobody took them.
    pub dropped_log_lines: u64,
}

/// A file that was not read, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// Where it is.
    pub path: String,
    /// Why it was not read.
    pub reason: String,
}

/// One live allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Allocation {
    /// As [`Process::pid`].
    pub pid: Option<u32>,
    /// As [`Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// [`Device::id`]s that hold it.
    pub devices: Vec<String>,
    /// [`Device::index`]es that hold it.
    pub indexes: Vec<u32>,
    /// The allocator it came from, where the source knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocator: Option<u32>,
    /// Which space.
    pub space: Space,
    /// Device address or kernel id, in hexadecimal.
    pub id: String,
    /// What was asked for.
    pub requested_bytes: u64,
    /// What lies in the banks that really hold it.
    pub occupied_bytes: Option<u64>,
    /// What the runtime's allocator charges.
    pub allocated_bytes: Option<u64>,
    /// What it takes in each of its banks, or on each of its cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_bank: Option<u64>,
    /// On how many banks or cores it is charged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub banks: Option<u16>,
    /// How it lies there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub layout: Option<Layout>,
    /// The cores it lies on, if it lies on some only: rectangles, each from column, row to column, row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<Vec<[u8; 4]>>,
    /// Its size is an estimate.
    #[serde(skip_serializing_if = "is_false", default)]
    pub estimated: bool,
    /// Where it lies is not known: its id only tells it from others.
    #[serde(skip_serializing_if = "is_false", default)]
    pub unplaced: bool,
    /// How many times it is held.
    pub references: u32,
    /// How long it has lived.
    pub age_seconds: f64,
    /// For kernels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<KernelClass>,
    /// The program it belongs to, where the source knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<u32>,
    /// The call site it came from, where the source knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site: Option<u32>,
    /// What that site is called.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site_name: Option<String>,
    /// What the program is called.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program_name: Option<String>,
    /// Where the figures come from.
    pub basis: Basis,
}

/// Every live allocation: what `ttmem dump --json` prints, and a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dump {
    /// As [`Snapshot::schema`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: u32,
    /// When it was made.
    pub at: Timestamp,
    /// Whether any chip in it is simulated.
    pub simulated: bool,
    /// The allocations; a daemon lists them in no order.
    pub allocations: Vec<Allocation>,
}

/// Some of the live allocations: those that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Buffers {
    /// How many fit the question; the list has a part of them.
    pub count: u64,
    /// What those asked for.
    pub requested_bytes: u64,
    /// What the allocator charges for them, else what they asked for.
    pub used_bytes: u64,
    /// How many of the list come before this part.
    pub offset: u64,
    /// The allocations, unless they were to be put together.
    pub list: Vec<Allocation>,
    /// How many groups there are, if they were; `groups` has a part of them.
    #[serde(default)]
    pub group_count: u64,
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub groups: Vec<BufferGroup>,
}

/// Allocations that have something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BufferGroup {
    /// As [`Process::pid`].
    pub pid: Option<u32>,
    /// As [`Process::name`].
    pub process_name: Option<String>,
    /// Which space, if they were put together by process; else the one they are all of.
    pub space: Option<Space>,
    /// The program they belong to, if they were put together by that.
    pub program: Option<u32>,
    /// What it is called.
    pub program_name: Option<String>,
    /// The call site they came from, if they were put together by that.
    pub site: Option<u32>,
    /// What it is called.
    pub site_name: Option<String>,
    /// How many.
    pub count: u64,
    /// What they asked for.
    pub requested_bytes: u64,
    /// What the allocator charges for them, else what they asked for.
    pub used_bytes: u64,
}

/// Some of the programs: those that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramList {
    /// How many fit the question; the list has a part of them.
    pub count: u64,
    /// How many of those are resident anywhere.
    pub resident_count: u64,
    /// Whether any of them keeps dataflow buffers.
    pub has_dfbs: bool,
    /// Whether any of them keeps scratchpads.
    pub has_scratch: bool,
    /// How many of the list come before this part.
    pub offset: u64,
    /// The programs, without what they keep where.
    pub list: Vec<ProgramRow>,
    /// The one that was asked for with everything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open: Option<ProgramRow>,
}

/// A program, and whose it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramRow {
    /// As [`Process::pid`].
    pub pid: Option<u32>,
    /// As [`Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// As [`Process::start`].
    pub start: Option<Timestamp>,
    /// As [`Process::name`].
    pub process_name: Option<String>,
    /// The program.
    pub program: Program,
}

/// Something that happened, worth telling. Single allocations are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Happening {
    /// Counts them; without a gap, unless some were dropped for newer ones.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: HappeningKind,
    /// How bad.
    pub severity: Severity,
    /// Process, if it concerns one.
    pub pid: Option<u32>,
    /// [`Device::id`], if it concerns one.
    pub device: Option<String>,
    /// How many bytes.
    pub bytes: Option<u64>,
    /// For people.
    pub text: String,
}

/// Kinds of what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HappeningKind {
    /// A process was heard of.
    ProcessCame,
    /// It ended.
    ProcessEnded,
    /// A process opened an allocator: a mesh, or a device.
    AllocatorOpened,
    /// It closed it.
    AllocatorClosed,
    /// A chip appeared.
    ChipCame,
    /// It left the bus.
    ChipGone,
    /// A trace was captured.
    TraceCaptured,
    /// A trace was released.
    TraceReleased,
    /// A chip's memory rose above, or fell below, three quarters or nine tenths.
    Filled,
    /// Something odd was first seen; its finding has more.
    Odd,
    /// One that a later version has.
    #[serde(other)]
    Other,
}

/// What is held on one chip in one space, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// [`Device::index`].
    pub index: u32,
    /// Which space.
    pub space: Space,
    /// Live allocations.
    pub count: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Single allocations, if they were few enough to list.
    pub listed: Vec<Allocation>,
}
