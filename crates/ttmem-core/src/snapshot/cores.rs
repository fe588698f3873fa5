//! The L1 of a device's cores, as it is shown.

use super::{is_false, is_zero};
use crate::words::Basis;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::sync::Arc;

/// The cores of a device. Many of them are alike, so each map is written once: each core of `list` has the index of its map in
/// `maps`.
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
    /// Column, row and free gap.
    pub room: CoreRoom,
    /// The program that was dispatched last there.
    pub program: Option<CoreProgram>,
    /// Use of the addresses from 0 to the end of L1, in order and without holes. Empty if there are too many intervals.
    pub intervals: Arc<[Interval]>,
    /// Peak use of the core.
    pub peak: Option<CorePeak>,
}

/// The JSON form of [`Cores`], which is its name in the schema.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Written {
    /// Use of the addresses from 0 to the end of L1, in order and without holes.
    maps: Vec<Vec<Interval>>,
    /// The cores, by row and column.
    list: Vec<WrittenCore>,
}

/// The L1 of one core.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Core", extend("allOf" = [{"$ref": "#/$defs/CoreRoom"}])))]
struct WrittenCore {
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(!flatten, skip))]
    room: CoreRoom,
    /// The program that was dispatched last there.
    program: Option<CoreProgram>,
    /// Peak use of the core.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    peak: Option<CorePeak>,
    /// Index of its map in `Cores.maps`; `null` if there are too many intervals.
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

/// The free gap of a core, between program memory and the lowest L1 buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreRoom {
    /// Column.
    pub x: u8,
    /// Row.
    pub y: u8,
    /// End of the memory of the program dispatched last.
    pub program_end: u64,
    /// End of the memory of all programs that are loaded or cached.
    pub registered_end: u64,
    /// Start of the lowest buffer; without one, the end of the memory for buffers.
    pub lowest_buffer: u64,
    /// Bytes from `program_end` to `lowest_buffer`.
    pub free_gap_bytes: u64,
    /// The weakest basis of all that use L1 of the device.
    pub basis: Basis,
}

/// A program on a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreProgram {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// Whether its name is withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
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
    /// Number of allocations of other users' processes, which are not listed.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub hidden_count: u64,
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
    /// The operation that the call site called.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub op: Option<String>,
}

/// An address range of a core's L1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// What it is used for.
    pub class: CoreClass,
    /// First address.
    pub start: u64,
    /// Length.
    pub bytes: u64,
}

/// Use of an address range of a core's L1. Where several uses overlap, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CoreClass {
    /// Firmware, mailboxes and other memory of the runtime.
    Reserved,
    /// Kernel config buffer: code, arguments and semaphores of dispatched programs.
    KernelConfig,
    /// Buffers on this core, or buffers whose cores are not known.
    Buffer,
    /// `L1_SMALL` buffers.
    L1Small,
    /// Circular buffers of the program dispatched last.
    Cb,
    /// Dataflow buffers of the program dispatched last.
    Dfb,
    /// Scratchpads of the program dispatched last.
    Scratch,
    /// Reserved by lock-step: other cores hold a buffer at these addresses.
    Lockstep,
    /// Free, in `L1_SMALL`.
    L1SmallFree,
    /// Free.
    Free,
    /// What a later version has.
    #[serde(other)]
    Other,
}

/// Peak use of a core, in the memory that programs and buffers share. Ranges reserved by lock-step are included. Sampled at
/// every dispatch and every tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CorePeak {
    /// Bytes in use.
    pub bytes: u64,
    /// The part of them that is buffers.
    pub buffer_bytes: u64,
    /// When it was sampled.
    pub at: Timestamp,
    /// Process of the program dispatched last at that time.
    pub pid: Option<u32>,
    /// Whether that program is withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// That program; as [`super::Program::id`].
    pub program: Option<u32>,
    /// Name of that program.
    pub program_name: Option<String>,
}
