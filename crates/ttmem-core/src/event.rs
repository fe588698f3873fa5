//! What sources say. Events are deltas and definitions; the one kind of level is
//! [`Event::Levels`], and never mixes with them.

use crate::core_set::CoreSet;
use crate::machine::{Chip, Host, RegionReport, Sensors};
use crate::words::{ChipId, Fault, KernelClass, Layout, Mono, Scope, Space, Uncertainty};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One thing a source says. Who says it is the [`crate::words::Origin`] beside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The machine the reader runs on.
    Host(Host),
    /// A chip exists, or more is known of it now.
    Chip(Chip),
    /// A chip left the bus.
    ChipGone(ChipId),
    /// What a chip's sensors said.
    Sensors(ChipId, Box<SensorReading>),
    /// A chip is open so many times by processes that cannot be seen from here.
    OpenUnseen(ChipId, u32),
    /// What is odd about tt-metal's own counters, all of them: whatever was told before holds no more.
    Regions(Vec<RegionReport>),
    /// A process begins to be tracked. Everything else a process says needs this first.
    Born(Process),
    /// The process is gone, and with it everything it held.
    Exited,
    /// The process opened an allocator.
    Allocator(Allocator),
    /// The process closed it; everything it had handed out is free.
    AllocatorClosed(u32),
    /// Everything that an allocator of the process handed out is free; it is still open.
    AllocatorCleared(u32),
    /// The process gave a number to a set of cores.
    Cores(u32, CoreSet),
    /// The process holds more memory.
    Alloc(Alloc),
    /// The process holds less.
    Free(Free),
    /// A program is there, or was dispatched: then what it registered is resident on its cores, and what was there before
    /// is not.
    Program(Program),
    /// A program was destroyed, and everything it registered with it.
    ProgramEnded(Scope, u32),
    /// A trace was captured, or replayed.
    Trace(Trace),
    /// A trace was released.
    TraceEnded(Scope, u32),
    /// Of this chip the process holds exactly this much; what it said before of any space holds no more.
    Levels(ChipId, Vec<(Space, u64)>),
    /// The chips that the process has open.
    Opened(Vec<ChipId>),
    /// How the process is tracked.
    Tracked(Tracked),
    /// The runtime's own statistics, to compare with.
    Audit(Audit),
    /// A fault in what the process reported, which its source noticed.
    Fault(FaultReport),
    /// Allocations failed for want of memory.
    OutOfMemory(OutOfMemory),
    /// Records were lost before the source could read them.
    Lost(u64),
    /// Everything the process holds of one allocator is listed anew from here on: what it held is forgotten, what it
    /// defined is not.
    Relisted(u32),
    /// Besides what it lists, the process holds so much that it has no room to list.
    Unlisted {
        /// Where.
        scope: Scope,
        /// What.
        space: Space,
        /// How much.
        holding: Holding,
    },
    /// The highest use so far was this.
    Peak {
        /// Where.
        scope: Scope,
        /// What.
        space: Space,
        /// How much; `None`: what it is now.
        bytes: Option<u64>,
    },
    /// What a call site or a program is called.
    Named(Name, String),
    /// How far the source has followed the process.
    Seen {
        /// The last event of the process that was taken in, by its own count.
        sequence: u64,
        /// Whether what is held is exactly what was held after that event.
        exactly: bool,
    },
}

/// A program, and what has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Where.
    pub scope: Scope,
    /// The process's number of it.
    pub id: u32,
    /// Number of the set of cores it runs on; 0: those where it has something.
    pub cores: u32,
    /// What it is made of, as a call site; 0: not said.
    pub site: u32,
    /// What kind of program.
    pub class: KernelClass,
    /// How often it was dispatched so far.
    pub dispatches: u64,
    /// When it was dispatched, if that is what happened; if it was built, or built anew, it was not.
    pub dispatched: Option<Mono>,
}

/// A trace: dispatches that were captured, to be replayed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Where.
    pub scope: Scope,
    /// The runtime's number of it.
    pub id: u32,
    /// Dispatches it holds.
    pub dispatches: u64,
    /// How often it was replayed.
    pub replays: u64,
    /// When its capture ended: what is allocated later may be written over by a replay.
    pub captured: Mono,
}

/// What a chip's sensors said, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SensorReading {
    /// When the oldest of them was read; `None`: none was, and `why` says why.
    pub at: Option<Mono>,
    /// What they said.
    pub sensors: Sensors,
    /// Why there is nothing, or nothing new.
    pub why: Option<String>,
}

/// How much is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes the allocator charges.
    pub allocated: u64,
    /// Allocations.
    pub count: u64,
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Name {
    /// A call site.
    Site(u32),
    /// A program.
    Program(u32),
}

/// A fault that a source was told of, or met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultReport {
    /// What is wrong.
    pub fault: Fault,
    /// How often.
    pub count: u64,
    /// The address or id it last concerned, or the bytes requested if memory ran out; 0: none.
    pub id: u64,
}

impl From<Fault> for FaultReport {
    fn from(fault: Fault) -> Self {
        Self { fault, count: 1, id: 0 }
    }
}

/// An allocation that failed for want of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The chips of the allocator that had no room.
    pub chips: Vec<ChipId>,
    /// Where memory was requested, if that is known.
    pub space: Option<Space>,
    /// Bytes requested on each chip.
    pub requested: u64,
    /// Largest free block in a bank, if it was measured.
    pub largest_free_bytes_per_bank: Option<u64>,
    /// When it failed.
    pub at: Mono,
    /// How many failures this stands for: those before it of which nothing else is known.
    pub count: u64,
}

/// A process, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Short name.
    pub name: Option<String>,
    /// Command line.
    pub command: Option<String>,
    /// Owner.
    pub user: Option<String>,
    /// When it started.
    pub start: Option<Timestamp>,
    /// The pid it gave itself, where that is another one than the reader sees.
    pub reported_pid: Option<i64>,
    /// The container it runs in.
    pub container: Option<String>,
    /// The pod that is part of.
    pub pod: Option<String>,
}

/// One runtime allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocator {
    /// The number the process refers to it by.
    pub id: u32,
    /// The chips it covers; all of them hold what it hands out.
    pub chips: Vec<ChipId>,
    /// What it hands out from.
    pub spaces: Vec<Banks>,
}

/// How one space of an allocator is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Banks {
    /// Which space.
    pub space: Space,
    /// Number of banks moved in lock-step.
    pub banks: u16,
    /// First allocatable address in a bank.
    pub base: u64,
    /// Allocatable bytes in a bank.
    pub bytes_per_bank: u64,
}

/// Memory taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alloc {
    /// Where.
    pub scope: Scope,
    /// What kind.
    pub space: Space,
    /// Device address, or the id of a kernel.
    pub id: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// When, where the source knows that better.
    pub at: Option<Mono>,
    /// What it takes, where the source knows.
    pub extent: Option<Extent>,
    /// Number of the core set it lies on; 0: not said.
    pub cores: u32,
    /// The program it belongs to; 0: none, or not said.
    pub program: u32,
    /// The call site; 0: not said.
    pub site: u32,
    /// How it lies there.
    pub layout: Layout,
    /// For kernels.
    pub class: KernelClass,
    /// What is not known of it.
    pub uncertainty: Uncertainty,
}

/// What an allocation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes in the banks or cores that really hold it; 0: not known.
    pub occupied: u64,
    /// Bytes in each bank the allocator charges for it.
    pub bytes_per_bank: u64,
    /// Number of those banks.
    pub banks: u16,
}

/// Memory given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Where.
    pub scope: Scope,
    /// What kind; `None` where the source names a buffer by its address alone.
    pub space: Option<Space>,
    /// Device address, or the id of a kernel.
    pub id: u64,
    /// The program it belongs to; 0: none, or not said.
    pub program: u32,
    /// The size the process gave, if it gave one. The recorded size counts; a difference becomes a finding.
    pub size: Option<u64>,
    /// Number of the core set it lies on; 0: not said.
    pub cores: u32,
}

/// How a process is tracked, and how well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracked {
    /// Who tracks it: `ttmem-agent 0.1.0`.
    pub writer: String,
    /// What is tracked: `ttnn 0.81.1`.
    pub runtime: Option<String>,
    /// How many hooks were wanted.
    pub hooks: u32,
    /// Those of them that did not take, by name.
    pub missing: Vec<String>,
    /// Processor time that it cost the process, in nanoseconds, where that is known.
    pub cost_ns: Option<u64>,
}

/// The runtime's own statistics of one allocator's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Which allocator.
    pub allocator: u32,
    /// Which space.
    pub space: Space,
    /// Allocated bytes, over all banks.
    pub allocated_bytes: u64,
    /// Free bytes, over all banks.
    pub free_bytes: u64,
    /// Largest free block in a bank.
    pub largest_free_bytes_per_bank: u64,
    /// Whether nothing happened while they were taken, so that a difference means something.
    pub quiet: bool,
    /// The event that they were taken at, by the process's own count.
    pub sequence: u64,
}
