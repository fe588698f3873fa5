//! What may be asked for beyond what everybody wants, so that nobody pays for what only some look at.

use crate::words::Space;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a snapshot has beyond what everybody wants. Written as JSON, what is not wanted is not mentioned: older daemons do
/// not know the word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Detail {
    /// Each device's usage over time.
    #[serde(skip_serializing_if = "is_default")]
    pub history: bool,
    /// That, but only what is younger than this.
    #[serde(skip_serializing_if = "is_default")]
    pub history_since: Option<Timestamp>,
    /// The L1 of each core.
    #[serde(skip_serializing_if = "is_default")]
    pub cores: bool,
    /// That of one device only, by its index.
    #[serde(skip_serializing_if = "is_default")]
    pub cores_of: Option<u32>,
    /// Each process's programs.
    #[serde(skip_serializing_if = "is_default")]
    pub programs: bool,
    /// Of each process only its summary: neither what it holds by device and by allocator nor its audits, nor what its programs
    /// keep where; and of the devices of programs and of listed allocations only the indexes.
    #[serde(skip_serializing_if = "is_default")]
    pub brief: bool,
    /// All of this process all the same.
    #[serde(skip_serializing_if = "is_default")]
    pub pid: Option<u32>,
    /// What happened of late.
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
    /// Each process's use of the host's CPU and memory, and its parent.
    #[serde(skip_serializing_if = "is_default")]
    pub host: bool,
}

impl Detail {
    /// Nothing beyond.
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
        host: false,
    };
}

/// One core, and how much of it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreQuery {
    /// The device, by its index.
    pub device: u32,
    /// Column and row; none: of the core with the smallest free gap.
    #[serde(skip_serializing_if = "is_default", default)]
    pub core: Option<[u8; 2]>,
    /// How many allocations to list at most; see [`CoreQuery::MOST`].
    pub limit: u32,
}

impl CoreQuery {
    /// No list is longer.
    pub const MOST: u32 = 1000;
}

/// Which live allocations, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BufferQuery {
    /// What comes first is decided by this; where that is equal, by process, space, and address.
    #[serde(skip_serializing_if = "is_default")]
    pub sort: BufferSort,
    /// Turned round: of sizes, numbers and ages the smallest first, of names the last. What has nothing to sort it by comes last
    /// either way.
    #[serde(skip_serializing_if = "is_default")]
    pub reversed: bool,
    /// Only on one of these devices, by index; none: on any.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<u32>,
    /// Only of these processes; none: of any.
    #[serde(skip_serializing_if = "is_default")]
    pub pids: Vec<u32>,
    /// Only of this space.
    #[serde(skip_serializing_if = "is_default")]
    pub space: Option<Space>,
    /// Only where each of these words is part of its address, space, layout, pid, or the name of its process, program or call site;
    /// capital or small.
    #[serde(skip_serializing_if = "is_default")]
    pub text: String,
    /// Not one by one, but all of a kind together.
    #[serde(skip_serializing_if = "is_default")]
    pub group: Option<BufferGrouping>,
    /// How many to leave out from the beginning.
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
    /// How many to list at most; see [`BufferQuery::MOST`].
    #[serde(skip_serializing_if = "is_default")]
    pub limit: u32,
}

impl BufferQuery {
    /// No page is longer.
    pub const MOST: u32 = 1000;
}

/// What a list of allocations is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferSort {
    /// What the allocator charges, else what was asked for: the most first.
    #[default]
    Size,
    /// What was asked for: the most first.
    Requested,
    /// The oldest first. Groups go by their number of allocations.
    Age,
    /// The lowest first.
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
    /// What comes first is decided by this; where that is equal, by process and number.
    #[serde(skip_serializing_if = "is_default")]
    pub sort: ProgramSort,
    /// Turned round.
    #[serde(skip_serializing_if = "is_default")]
    pub reversed: bool,
    /// Only for one of these devices, by index; none: for any.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<u32>,
    /// Only of these processes; none: of any.
    #[serde(skip_serializing_if = "is_default")]
    pub pids: Vec<u32>,
    /// Only where each of these words is part of its number, name, kind, pid, or process's name; capital or small.
    #[serde(skip_serializing_if = "is_default")]
    pub text: String,
    /// How many to leave out from the beginning.
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
    /// How many to list at most; see [`ProgramQuery::MOST`].
    #[serde(skip_serializing_if = "is_default")]
    pub limit: u32,
    /// This one besides, with all that it keeps.
    #[serde(skip_serializing_if = "is_default")]
    pub open: Option<ProgramKey>,
}

impl ProgramQuery {
    /// No page is longer.
    pub const MOST: u32 = 1000;
}

/// One program of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramKey {
    /// Whose it is.
    pub pid: Option<u32>,
    /// The allocator, or set of chips, it belongs to.
    pub allocator: Option<u32>,
    /// Its number there.
    pub id: u32,
}

/// What a list of programs is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramSort {
    /// The one dispatched last first.
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
    /// Those on the most cores first.
    Cores,
    /// Those resident on the most cores first.
    Resident,
    /// Those dispatched most often first.
    Dispatches,
    /// The most circular buffers first.
    Cb,
    /// The most dataflow buffers first.
    Dfb,
    /// The largest scratchpads first.
    Scratch,
    /// The largest kernels first.
    Kernel,
    /// Those that reach up highest first.
    End,
}

/// What allocations are put together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferGrouping {
    /// By process, and space.
    Process,
    /// By program; those that belong to none, by process.
    Program,
    /// By call site; those that have none, by process.
    Site,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
