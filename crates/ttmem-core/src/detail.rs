//! Parts of a snapshot that are made only on request, because they cost.

use crate::snapshot::FlameMoment;
use crate::words::Space;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The parts of a snapshot that are requested. JSON leaves out the others, since older daemons do not know them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Detail {
    /// Each device's usage over time.
    #[serde(skip_serializing_if = "is_default")]
    pub history: bool,
    /// Usage over time after this time only.
    #[serde(skip_serializing_if = "is_default")]
    pub history_since: Option<Timestamp>,
    /// The L1 of each core.
    #[serde(skip_serializing_if = "is_default")]
    pub cores: bool,
    /// The L1 of each core of one device, by index.
    #[serde(skip_serializing_if = "is_default")]
    pub cores_of: Option<u32>,
    /// Each process's programs.
    #[serde(skip_serializing_if = "is_default")]
    pub programs: bool,
    /// Only the summary of each process: no usage by device and allocator, no audits, no addresses of its programs; and
    /// only the indexes of the devices of programs and allocations.
    #[serde(skip_serializing_if = "is_default")]
    pub brief: bool,
    /// Everything about this process, even if `brief`.
    #[serde(skip_serializing_if = "is_default")]
    pub pid: Option<u32>,
    /// Recent events.
    #[serde(skip_serializing_if = "is_default")]
    pub events: bool,
    /// A page of the list of live allocations.
    #[serde(skip_serializing_if = "is_default")]
    pub buffers: Option<BufferQuery>,
    /// A page of the list of programs.
    #[serde(skip_serializing_if = "is_default")]
    pub program_list: Option<ProgramQuery>,
    /// The allocations on one core.
    #[serde(skip_serializing_if = "is_default")]
    pub core: Option<CoreQuery>,
    /// The blocks of allocators' banks.
    #[serde(skip_serializing_if = "is_default")]
    pub blocks: Option<BlockQuery>,
    /// Usage by call site and operation.
    #[serde(skip_serializing_if = "is_default")]
    pub sites: bool,
    /// Call sites that leak.
    #[serde(skip_serializing_if = "is_default")]
    pub leaks: bool,
    /// Buffers by the stacks that allocated them, at this moment.
    #[serde(skip_serializing_if = "is_default")]
    pub flame: Option<FlameMoment>,
    /// Each process's use of the host's CPU and memory, and its parent.
    #[serde(skip_serializing_if = "is_default")]
    pub host: bool,
}

impl Detail {
    /// No optional parts.
    pub const NONE: Self = Self {
        history: false,
        history_since: None,
        cores: false,
        cores_of: None,
        programs: false,
        brief: false,
        pid: None,
        events: false,
        buffers: None,
        program_list: None,
        core: None,
        blocks: None,
        sites: false,
        leaks: false,
        flame: None,
        host: false,
    };
}

/// One core, and how many of its allocations are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreQuery {
    /// Index of the device.
    pub device: u32,
    /// Column and row; none: the core with the smallest free gap.
    #[serde(skip_serializing_if = "is_default", default)]
    pub core: Option<[u8; 2]>,
    /// Most allocations to list; see [`CoreQuery::MOST`].
    pub limit: u32,
}

impl CoreQuery {
    /// Longest list.
    pub const MOST: u32 = 1000;
}

/// Which allocators and spaces, and how many of their blocks are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlockQuery {
    /// Only of this process.
    #[serde(skip_serializing_if = "is_default")]
    pub pid: Option<u32>,
    /// Only of the allocator with this number.
    #[serde(skip_serializing_if = "is_default")]
    pub allocator: Option<u32>,
    /// Only of this space.
    #[serde(skip_serializing_if = "is_default")]
    pub space: Option<Space>,
    /// Only of allocators of this device, by index.
    #[serde(skip_serializing_if = "is_default")]
    pub device: Option<u32>,
    /// The only map whose blocks are listed; none: blocks of every map are.
    #[serde(skip_serializing_if = "is_default")]
    pub open: Option<BlockMapKey>,
    /// Most blocks to list, in all maps together; see [`BlockQuery::MOST`].
    #[serde(skip_serializing_if = "is_default")]
    pub limit: u32,
    /// Number of [`crate::snapshot::BlockMap::parts`] of each map, at most [`BlockQuery::MOST_PARTS`].
    #[serde(skip_serializing_if = "is_default")]
    pub parts: u16,
}

impl BlockQuery {
    /// Most blocks in one answer: more would keep a daemon from its other clients.
    pub const MOST: u32 = 100_000;
    /// Most parts of a map: more than a terminal has columns.
    pub const MOST_PARTS: u16 = 1000;
}

/// One space of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockMapKey {
    /// Process.
    pub pid: Option<u32>,
    /// Number of the allocator within the process.
    pub allocator: Option<u32>,
    /// Memory space.
    pub space: Space,
}

/// Which live allocations, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BufferQuery {
    /// Sort key; ties are sorted by process, space and address.
    #[serde(skip_serializing_if = "is_default")]
    pub sort: BufferSort,
    /// Reverses the order. Allocations without the key come last either way.
    #[serde(skip_serializing_if = "is_default")]
    pub reversed: bool,
    /// Only on these devices, by index; none: on any.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<u32>,
    /// Only of these processes; none: of any.
    #[serde(skip_serializing_if = "is_default")]
    pub pids: Vec<u32>,
    /// Only of this space.
    #[serde(skip_serializing_if = "is_default")]
    pub space: Option<Space>,
    /// Only with each of these words in the address, space, layout, pid, the name of the process or program, or the call site,
    /// with its file, operation, tensor and purpose; upper or lower case.
    #[serde(skip_serializing_if = "is_default")]
    pub text: String,
    /// Groups instead of single allocations.
    #[serde(skip_serializing_if = "is_default")]
    pub group: Option<BufferGrouping>,
    /// How many to skip.
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
    /// Most allocations to list; see [`BufferQuery::MOST`].
    #[serde(skip_serializing_if = "is_default")]
    pub limit: u32,
}

impl BufferQuery {
    /// Longest page.
    pub const MOST: u32 = 1000;
}

/// The sort key of a list of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferSort {
    /// Allocated bytes, else requested bytes, largest first.
    #[default]
    Size,
    /// Requested bytes, largest first.
    Requested,
    /// Oldest first; groups by their number of allocations.
    Age,
    /// Lowest first.
    Address,
    /// By pid.
    Process,
    /// By the first device.
    Device,
    /// By space.
    Space,
    /// By the number of the program.
    Program,
    /// By the name of the call site.
    Site,
}

/// Which programs, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgramQuery {
    /// Sort key; ties are sorted by process and number.
    #[serde(skip_serializing_if = "is_default")]
    pub sort: ProgramSort,
    /// Reverses the order.
    #[serde(skip_serializing_if = "is_default")]
    pub reversed: bool,
    /// Only on these devices, by index; none: on any.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<u32>,
    /// Only of these processes; none: of any.
    #[serde(skip_serializing_if = "is_default")]
    pub pids: Vec<u32>,
    /// Only with each of these words in the number, name, kind, pid or process name; upper or lower case.
    #[serde(skip_serializing_if = "is_default")]
    pub text: String,
    /// How many to skip.
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
    /// Most programs to list; see [`ProgramQuery::MOST`].
    #[serde(skip_serializing_if = "is_default")]
    pub limit: u32,
    /// A program to describe in full, besides the list.
    #[serde(skip_serializing_if = "is_default")]
    pub open: Option<ProgramKey>,
}

impl ProgramQuery {
    /// Longest page.
    pub const MOST: u32 = 1000;
}

/// One program of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramKey {
    /// Process.
    pub pid: Option<u32>,
    /// Allocator or set of chips.
    pub allocator: Option<u32>,
    /// Program id.
    pub id: u32,
}

/// The sort key of a list of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramSort {
    /// Last dispatch, newest first.
    #[default]
    Last,
    /// By pid.
    Process,
    /// By the process's name.
    ProcessName,
    /// By number.
    Id,
    /// By name.
    Name,
    /// By the first device.
    Device,
    /// Cores, most first.
    Cores,
    /// Cores on which it is resident, most first.
    Resident,
    /// Dispatches, most first.
    Dispatches,
    /// Circular buffers, largest first.
    Cb,
    /// Dataflow buffers, largest first.
    Dfb,
    /// Scratchpads, largest first.
    Scratch,
    /// Kernels, largest first.
    Kernel,
    /// End of its memory, highest first.
    End,
}

/// What the allocations of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferGrouping {
    /// Process and space.
    Process,
    /// Program; those without one, by process.
    Program,
    /// Call site: the line; those without one, by process.
    Site,
    /// Operation that the line calls; those without one, by process.
    Op,
    /// Function that the line is in; those without one, by process.
    Function,
    /// File that the line is in; those without one, by process.
    File,
    /// Tensor: data type, shape and layout; those without one, by process.
    Tensor,
    /// Track: the part of the program; those without one, by process.
    Track,
}

impl BufferGrouping {
    /// Whether a group has its call site, or a part of it, in common.
    pub fn is_of_sites(self) -> bool {
        !matches!(self, Self::Process | Self::Program)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
