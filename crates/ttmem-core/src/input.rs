//! Input from sources: deltas and definitions. The one kind of level is [`Input::Levels`], and never mixes with them.

use crate::core_set::CoreSet;
use crate::machine::{Chip, CounterReport, Host, Sensors};
use crate::words::{ChipId, Fault, KernelClass, Layout, Mono, Scope, Space, Uncertainty};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ttmem_types::{FailureKind, Purpose, Tensor};

/// One input. Its source is the [`crate::words::Origin`] that comes with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The machine the reader runs on.
    Host(Host),
    /// A chip was found, or more is known about it.
    Chip(Box<Chip>),
    /// A chip was removed from the bus.
    ChipRemoved(ChipId),
    /// Readings of a chip's sensors.
    Sensors(ChipId, Box<SensorReading>),
    /// How often a chip is open in processes that are not visible.
    OpenedByHidden(ChipId, u32),
    /// Problems of all of tt-metal's counters; replaces earlier reports.
    Counters(Vec<CounterReport>),
    /// A process is registered. All other input of a process needs this first.
    Registered(Box<Process>),
    /// The process exited, which frees everything it allocated.
    Exited,
    /// The process opened an allocator.
    Allocator(Allocator),
    /// The process closed an allocator, which frees everything it handed out.
    AllocatorClosed(u32),
    /// The process freed everything that an open allocator handed out.
    AllocatorCleared(u32),
    /// The process defined a set of cores.
    Cores(u32, CoreSet),
    /// The process allocated memory.
    Alloc(Alloc),
    /// The process freed memory.
    Free(Free),
    /// A program was defined or dispatched. After a dispatch its memory is resident on its cores, and replaces what was
    /// resident there.
    Program(Program),
    /// A program was destroyed, with everything it registered.
    ProgramEnded(Scope, u32),
    /// A trace was captured or replayed.
    Trace(Trace),
    /// A trace was released.
    TraceEnded(Scope, u32),
    /// All that the process holds on a chip, by space; replaces earlier levels of the chip.
    Levels(ChipId, Vec<(Space, u64)>),
    /// The chips that the process has open.
    Opened(Vec<ChipId>),
    /// How the process is tracked.
    Tracked(Tracked),
    /// The runtime's own statistics, to compare with.
    Audit(Audit),
    /// A fault in what the process reported, which its source noticed.
    Fault(FaultReport),
    /// An allocation failed.
    Failure(Box<Failure>),
    /// The process marked a moment.
    Mark(Mark),
    /// Records were lost before the source could read them.
    Lost(u64),
    /// All records of an allocator are listed again from here on: its records are dropped, its definition is not.
    ListingBegun(u32),
    /// Allocations of the process that have no record, for lack of room.
    Unlisted {
        /// Scope.
        scope: Scope,
        /// Space.
        space: Space,
        /// Number and bytes.
        holding: Holding,
    },
    /// The peak so far.
    Peak {
        /// Scope.
        scope: Scope,
        /// Space.
        space: Space,
        /// Bytes; `None`: what is in use now.
        bytes: Option<u64>,
    },
    /// The name of a program.
    ProgramNamed(u32, String),
    /// A call site, or a part of one.
    Site(Box<SiteDefinition>),
    /// How far the source has read the process's events.
    Progress {
        /// Number of the last event that was read.
        sequence: u64,
        /// Whether the records are exactly those after that event.
        exact: bool,
    },
}

/// A program and its dispatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Scope.
    pub scope: Scope,
    /// Key of the program.
    pub id: u32,
    /// Number of the set of cores it runs on; 0: those on which it has memory.
    pub cores: u32,
    /// Call site; 0: unknown.
    pub site: u32,
    /// Class of its kernels.
    pub class: KernelClass,
    /// Dispatches so far.
    pub dispatches: u64,
    /// Time of the dispatch; `None`: it was defined, not dispatched.
    pub dispatched: Option<Mono>,
}

/// A trace: captured dispatches that can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Scope.
    pub scope: Scope,
    /// The runtime's number of the trace.
    pub id: u32,
    /// Captured dispatches.
    pub dispatches: u64,
    /// Replays so far.
    pub replays: u64,
    /// End of the capture: a replay may overwrite what is allocated later.
    pub captured: Mono,
}

/// A moment that a process marked, such as the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Call site whose text is the mark's name; 0: unknown.
    pub name: u32,
    /// Number, such as that of the step.
    pub number: Option<u64>,
    /// When it was marked.
    pub at: Mono,
}

/// Readings of a chip's sensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SensorReading {
    /// Time of the oldest reading; `None`: there is none, see `why`.
    pub at: Option<Mono>,
    /// The readings.
    pub sensors: Sensors,
    /// Why there are no readings, or no new ones.
    pub why: Option<String>,
}

/// Number and bytes of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Requested bytes.
    pub requested: u64,
    /// Bytes that the allocator charges.
    pub allocated: u64,
    /// Allocations.
    pub count: u64,
}

/// A part of the description of call sites. Numbers are the process's own; 0 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteDefinition {
    /// A file or library, by its path.
    File(u32, String),
    /// A line of a function, or an address in a library.
    Frame(u32, Frame),
    /// Frames, innermost first.
    Stack {
        /// Its number.
        number: u32,
        /// The stack that the outermost of these frames was called from.
        parent: u32,
        /// Numbers of its frames.
        frames: Vec<u32>,
    },
    /// The name of an operation.
    Op(u32, String),
    /// The name of a track: a part of the program that names its allocations.
    Track(u32, String),
    /// A call site.
    Site(u32, Site),
}

/// A line of a function, or an address in a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Number of the file or library.
    pub file: u32,
    /// Line; 0: unknown.
    pub line: u32,
    /// Address in the library; 0: this is a line of a file.
    pub offset: u64,
    /// Function; empty: unknown.
    pub function: String,
}

/// A call site. Numbers that are 0 are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The frame that is displayed.
    pub frame: u32,
    /// The whole stack.
    pub stack: u32,
    /// The operation.
    pub op: u32,
    /// The track.
    pub track: u32,
    /// What the memory is for.
    pub purpose: Purpose,
    /// The tensor that is allocated.
    pub tensor: Option<Tensor>,
    /// A description: all there is, if there are no numbers; the kernels of a program.
    pub text: String,
}

/// A fault that a process or its source noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultReport {
    /// The fault.
    pub fault: Fault,
    /// How often it occurred.
    pub count: u64,
    /// The last address or id, or the requested bytes if memory ran out; 0: none.
    pub id: u64,
}

impl From<Fault> for FaultReport {
    fn from(fault: Fault) -> Self {
        Self { fault, count: 1, id: 0 }
    }
}

/// An allocation that failed. Of what is unknown, numbers are 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Why it failed.
    pub kind: FailureKind,
    /// Its allocator, or that of its program.
    pub scope: Option<Scope>,
    /// Chips of the allocator.
    pub chips: Vec<ChipId>,
    /// Space of the request; of program memory, that of the parts that did not fit.
    pub space: Option<Space>,
    /// Requested bytes on each chip: of a buffer, of all traces, or of a program's kernels and arguments.
    pub requested: u64,
    /// Bytes that a buffer needs in each bank, or the end of a program's memory on its cores.
    pub needed: u64,
    /// Largest free block in a bank, lowest address of an L1 buffer, or bytes of what the request exceeds.
    pub available: Option<u64>,
    /// Free bytes in a bank.
    pub free: Option<u64>,
    /// Number of the set of cores that it concerns; 0: all.
    pub cores: u32,
    /// Key of the program; 0: none.
    pub program: u32,
    /// Call site; 0: unknown.
    pub site: u32,
    /// Number of the event, as its process counts; 0: unknown.
    pub sequence: u64,
    /// Time of the failure.
    pub at: Mono,
    /// Number of failures, including earlier ones without details.
    pub count: u64,
}

impl Failure {
    /// A failure of which nothing else is known.
    pub fn new(kind: FailureKind, at: Mono) -> Self {
        Self {
            kind,
            scope: None,
            chips: Vec::new(),
            space: None,
            requested: 0,
            needed: 0,
            available: None,
            free: None,
            cores: 0,
            program: 0,
            site: 0,
            sequence: 0,
            at,
            count: 1,
        }
    }
}

/// Description of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Short name.
    pub name: Option<String>,
    /// Command line.
    pub command: Option<String>,
    /// Owner.
    pub user: Option<String>,
    /// Number of the owner; `None`: unknown.
    pub uid: Option<u32>,
    /// Start time.
    pub start: Option<Timestamp>,
    /// The pid that it reported, if that differs from the reader's.
    pub reported_pid: Option<i64>,
    /// The container it runs in.
    pub container: Option<String>,
    /// The pod of the container.
    pub pod: Option<String>,
}

/// One runtime allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocator {
    /// The process's number of the allocator.
    pub id: u32,
    /// Its chips; each holds what it hands out.
    pub chips: Vec<ChipId>,
    /// Layout of its spaces.
    pub spaces: Vec<Banks>,
}

/// Layout of one space of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Banks {
    /// Space.
    pub space: Space,
    /// Number of banks, which allocate in lock-step.
    pub banks: u16,
    /// First allocatable address in a bank.
    pub base: u64,
    /// Allocatable bytes in a bank.
    pub bytes_per_bank: u64,
}

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alloc {
    /// Scope.
    pub scope: Scope,
    /// Space.
    pub space: Space,
    /// Device address, or the id of a kernel.
    pub id: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Time of the allocation, if the source knows it.
    pub at: Option<Mono>,
    /// What it takes in banks, if the source knows it.
    pub extent: Option<Extent>,
    /// Number of its core set; 0: unknown.
    pub cores: u32,
    /// Key of its program; 0: none.
    pub program: u32,
    /// Call site; 0: unknown.
    pub site: u32,
    /// Memory layout.
    pub layout: Layout,
    /// Class of a kernel.
    pub class: KernelClass,
    /// What is unknown about it.
    pub uncertainty: Uncertainty,
}

/// What an allocation takes in banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes in the banks or cores that hold it; 0: unknown.
    pub occupied: u64,
    /// Bytes that the allocator charges in each bank.
    pub bytes_per_bank: u64,
    /// Number of banks.
    pub banks: u16,
}

/// A free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Scope.
    pub scope: Scope,
    /// Space; `None` if the source identifies a buffer by its address alone.
    pub space: Option<Space>,
    /// Device address, or the id of a kernel.
    pub id: u64,
    /// Key of its program; 0: none.
    pub program: u32,
    /// The size that the process reported, if any. The recorded size counts; a difference becomes a finding.
    pub size: Option<u64>,
    /// Number of its core set; 0: unknown.
    pub cores: u32,
}

/// How a process is tracked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracked {
    /// What tracks it: `ttmem-agent 0.1.0`.
    pub writer: String,
    /// What is tracked: `ttnn 0.81.1`.
    pub runtime: Option<String>,
    /// Number of hooks.
    pub hooks: u32,
    /// Names of missing hooks.
    pub missing: Vec<String>,
    /// CPU time of tracking in nanoseconds, if known.
    pub cost_ns: Option<u64>,
    /// Frames, call sites and tensors that are not described, for lack of space.
    pub left_out: u64,
}

/// The runtime's own statistics of one allocator's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Allocator.
    pub allocator: u32,
    /// Space.
    pub space: Space,
    /// Allocated bytes, over all banks.
    pub allocated_bytes: u64,
    /// Free bytes, over all banks.
    pub free_bytes: u64,
    /// Largest free block in a bank.
    pub largest_free_bytes_per_bank: u64,
    /// Whether nothing happened meanwhile, so that the figures can be compared.
    pub quiet: bool,
    /// Number of the process's last event before.
    pub sequence: u64,
}
