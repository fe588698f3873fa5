//! The L1 of a chip's cores, as it is shown.

use crate::words::Basis;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::sync::Arc;

/// A chip's cores. Many of them are alike, so each map is written once: `maps` has them, and each core of the `list` names its
/// own by its place there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "Written", from = "Written")]
pub struct Cores(pub Vec<Core>);

impl Deref for Cores {
    type Target = [Core];

    fn deref(&self) -> &[Core] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Cores {
    type Item = &'a Core;
    type IntoIter = std::slice::Iter<'a, Core>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// A core's L1, from address 0 to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    /// Column and row, and the room there is.
    pub room: CoreRoom,
    /// The program that was dispatched last there.
    pub program: Option<CoreProgram>,
    /// What lies where, in order; without a gap from 0 to the end of L1. Empty where there is too much to tell.
    pub intervals: Arc<[Interval]>,
    /// The most that lay there at once, of what was seen.
    pub peak: Option<CorePeak>,
}

/// The JSON form of [`Cores`], which is its name in the schema.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Written {
    /// What lies where, from address 0 to the end of L1 without a gap.
    maps: Vec<Vec<Interval>>,
    /// The cores, by row and column.
    list: Vec<WrittenCore>,
}

/// One core's L1.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Core", extend("allOf" = [{"$ref": "#/$defs/CoreRoom"}])))]
struct WrittenCore {
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(!flatten, skip))]
    room: CoreRoom,
    /// The program that was dispatched last there.
    program: Option<CoreProgram>,
    /// The most that lay there at once, of what was seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    peak: Option<CorePeak>,
    /// Its place in `Cores.maps`; `null` where there is too much to tell.
    map: Option<usize>,
}

impl From<Cores> for Written {
    fn from(cores: Cores) -> Self {
        let mut maps: Vec<Arc<[Interval]>> = Vec::new();
        let list = cores.0.into_iter().map(|Core { room, program, intervals, peak }| {
            let mut map = maps.iter().position(|it| Arc::ptr_eq(it, &intervals));
            if map.is_none() && !intervals.is_empty() {
                map = Some(maps.len());
                maps.push(intervals);
            }
            WrittenCore { room, program, peak, map }
        });
        let list = list.collect();
        Self { maps: maps.iter().map(|it| it.to_vec()).collect(), list }
    }
}

impl From<Written> for Cores {
    fn from(written: Written) -> Self {
        let maps: Vec<Arc<[Interval]>> = written.maps.into_iter().map(Arc::from).collect();
        let core = |WrittenCore { room, program, peak, map }: WrittenCore| Core {
            room,
            program,
            intervals: map.and_then(|map| maps.get(map).cloned()).unwrap_or_default(),
            peak,
        };
        Self(written.list.into_iter().map(core).collect())
    }
}

/// Where programs and buffers meet on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreRoom {
    /// Column.
    pub x: u8,
    /// Row.
    pub y: u8,
    /// Where what the program that was dispatched last keeps there ends.
    pub program_end: u64,
    /// Where what all programs that are loaded or cached keep there ends.
    pub registered_end: u64,
    /// Where the lowest buffer begins; without one, where buffers end.
    pub lowest_buffer: u64,
    /// From `program_end` to `lowest_buffer`: what a program could keep more, or a buffer take.
    pub gap_bytes: u64,
    /// Where the figures come from: the weakest of those who hold L1 of the chip.
    pub basis: Basis,
}

/// A program on a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreProgram {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Program::allocator`].
    pub allocator: Option<u32>,
    /// As [`super::Program::id`].
    pub id: u32,
    /// As [`super::Program::name`].
    pub name: Option<String>,
}

/// The allocations on one core of a device, by address: those of buffers, and of the program that was dispatched last there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreAllocations {
    /// [`super::Device::index`].
    pub device: u32,
    /// Column.
    pub x: u8,
    /// Row.
    pub y: u8,
    /// How many there are; the list has the first of them.
    pub count: u64,
    /// The allocations, by address.
    pub list: Vec<CoreAllocation>,
}

/// One allocation on a core, and its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreAllocation {
    /// What it is on this core.
    pub class: CoreClass,
    /// First address.
    pub start: u64,
    /// Bytes on this core.
    pub bytes: u64,
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::name`].
    pub process_name: Option<String>,
    /// As [`super::Program::id`], if it belongs to a program.
    pub program: Option<u32>,
    /// As [`super::Program::name`].
    pub program_name: Option<String>,
    /// The call site that allocated it.
    pub site_name: Option<String>,
}

/// A stretch of a core's L1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// What it is.
    pub class: CoreClass,
    /// First address.
    pub start: u64,
    /// How long it is.
    pub bytes: u64,
}

/// What a stretch of a core's L1 is used for. Where several things lie over each other, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CoreClass {
    /// Firmware, mailboxes, and whatever else the runtime keeps for itself.
    Reserved,
    /// The ring that kernels, their arguments and semaphores pass through.
    KernelRing,
    /// Buffers that lie on this core, or of which it is not known where they lie.
    Buffer,
    /// Buffers of the reserved top.
    L1Small,
    /// Circular buffers of the program that was dispatched last.
    Cb,
    /// Dataflow buffers of it.
    Dfb,
    /// Scratchpads of it.
    Scratch,
    /// Nothing, but taken all the same: on other cores a buffer lies there, and the allocator moves them in lock-step.
    Lockstep,
    /// Nothing, in the reserved top.
    L1SmallFree,
    /// Nothing.
    Free,
    /// What a later version has.
    #[serde(other)]
    Other,
}

/// The most that lay on a core at once, in what programs and buffers share: what the program there keeps, and buffers, those
/// included that are there in lock-step only. Looked at with every dispatch and with every tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CorePeak {
    /// All of it.
    pub bytes: u64,
    /// Of these, buffers.
    pub buffer_bytes: u64,
    /// When it was seen.
    pub at: Timestamp,
    /// Whose program was there then.
    pub pid: Option<u32>,
    /// That program; as [`super::Program::id`].
    pub program: Option<u32>,
    /// Its name.
    pub program_name: Option<String>,
}
