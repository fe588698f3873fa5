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
    /// How the snapshot was made.
    pub health: Health,
}

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
    /// As [`Process::pid`].
    pub pid: Option<u32>,
    /// Process name.
    pub name: Option<String>,
    /// Bytes held.
    pub bytes: u64,
}

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
    /// Total L1: buffers, `L1_SMALL` and program memory.
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
    /// Peak of the bytes in use.
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
    /// Live records; `null` where only their sum is known.
    pub count: Option<u64>,
    /// Where the figures come from.
    pub basis: Basis,
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
    /// Container id, where it runs in one.
    pub container: Option<String>,
    /// Pod of the container, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pod: Option<String>,
    /// Whether names, command and call sites are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// [`Device::id`]s that it has open, according to the kernel.
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

/// Totals of a process over all its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// [`Device::index`]es of the devices that it uses or has open.
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

/// A captured trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trace {
    /// Trace number in the runtime.
    pub id: u32,
    /// Number of its allocator.
    pub allocator: u32,
    /// [`Device::id`]s of its devices.
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
    /// [`Device::id`]s of its devices.
    pub devices: Vec<String>,
    /// [`Device::index`]es of its devices.
    pub indexes: Vec<u32>,
    /// Program name, or the names of its kernels.
    pub name: Option<String>,
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
}

/// Memory in use by one process on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("allOf" = [{"$ref": "#/$defs/Usage"}])))]
pub struct ProcessUsage {
    /// [`Device::id`].
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
}

/// Memory in use by one allocator, on each of its devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllocatorUsage {
    /// Allocator number within the process.
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
    /// Memory space.
    pub space: Space,
    /// Banks that allocate in lock-step.
    pub banks: u16,
    /// First address of a bank.
    pub base: u64,
    /// Bytes of a bank.
    pub bytes_per_bank: u64,
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
    /// [`Device::id`]s it covers.
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

/// A problem, with severity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Kind of problem.
    pub kind: FindingKind,
    /// Severity.
    pub severity: Severity,
    /// [`Device::id`], if it concerns one device.
    pub device: Option<String>,
    /// Process id, if it concerns a process that is or was visible.
    pub pid: Option<u32>,
    /// Name of that process.
    #[serde(default)]
    pub process_name: Option<String>,
    /// Command line of that process.
    #[serde(default)]
    pub command: Option<String>,
    /// Whether name and command are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// Memory space, if it concerns one.
    pub space: Option<Space>,
    /// Bytes concerned.
    pub bytes: Option<u64>,
    /// Number of occurrences.
    pub count: u64,
    /// First occurrence; `null` for a state that holds now.
    pub first: Option<Timestamp>,
    /// Last occurrence; `null` for a state that holds now.
    pub last: Option<Timestamp>,
    /// The finding in one sentence.
    pub text: String,
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
    /// Files named like segments or counters that cannot be read.
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
    /// Name of the program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program_name: Option<String>,
    /// Whether names and call sites are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
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
    /// When it was taken.
    pub at: Timestamp,
    /// Whether any device is simulated.
    pub simulated: bool,
    /// The allocations; a daemon lists them in no order.
    pub allocations: Vec<Allocation>,
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
    /// As [`Process::pid`].
    pub pid: Option<u32>,
    /// As [`Process::name`].
    pub process_name: Option<String>,
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
    /// Number of allocations.
    pub count: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Allocated bytes, else requested bytes.
    pub used_bytes: u64,
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
    /// As [`Process::pid`].
    pub pid: Option<u32>,
    /// As [`Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// As [`Process::start`].
    pub start: Option<Timestamp>,
    /// As [`Process::name`].
    pub process_name: Option<String>,
    /// Whether names are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// The program.
    pub program: Program,
}

/// Something that happened at a time. Single allocations are not events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Number of the event; numbers are consecutive unless older events were dropped.
    pub sequence: u64,
    /// When it happened.
    pub at: Timestamp,
    /// Kind of event.
    pub kind: EventKind,
    /// Severity.
    pub severity: Severity,
    /// Process id, if it concerns one.
    pub pid: Option<u32>,
    /// [`Device::id`], if it concerns one device.
    pub device: Option<String>,
    /// Bytes concerned.
    pub bytes: Option<u64>,
    /// The event in one sentence.
    pub text: String,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A process was first seen.
    ProcessStarted,
    /// A process exited.
    ProcessExited,
    /// A process opened an allocator: a mesh, or a device.
    AllocatorOpened,
    /// A process closed an allocator.
    AllocatorClosed,
    /// A device was added.
    DeviceAdded,
    /// A device was removed from the bus.
    DeviceRemoved,
    /// A trace was captured.
    TraceCaptured,
    /// A trace was released.
    TraceReleased,
    /// Memory use of a device rose above, or fell below, 75 or 90 percent.
    UsageThreshold,
    /// An allocation failed.
    OutOfMemory,
    /// A finding was first made.
    Finding,
    /// One that a later version has.
    #[serde(other)]
    Other,
}

/// Live allocations on one device in one space, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// [`Device::index`].
    pub index: u32,
    /// Which space.
    pub space: Space,
    /// Live allocations.
    pub count: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Single allocations, if they were few enough to list.
    pub listed: Vec<Allocation>,
}
