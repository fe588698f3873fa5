//! Memory of buffers by the calls that allocated it.

use super::is_false;
use crate::words::Space;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Buffers by the stacks that allocated them, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flame {
    /// Which buffers.
    pub moment: FlameMoment,
    /// Frames of the stacks, each once. A stack has their positions in this list.
    pub frames: Vec<Frame>,
    /// Buffers of each process, by devices and space.
    pub pools: Vec<FlamePool>,
}

/// Which buffers a flame has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlameMoment {
    /// Live buffers.
    #[default]
    Live,
    /// Those when the process's memory of the space was largest.
    Peak,
    /// Live buffers that were allocated since the process's last mark.
    Mark,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// Kind of frame.
    pub kind: FrameKind,
    /// Name: `model.py:42 (forward)`, `ttnn.matmul`.
    pub name: String,
    /// Path of the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Line of the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u32>,
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// A call.
    Call,
    /// The operation that the line called.
    Op,
    /// The tensor, or what the memory is for.
    Contents,
    /// Buffers of which nothing is known.
    Unknown,
}

/// Buffers of one process on some devices in one space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlamePool {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// As [`super::Process::name`].
    pub process_name: Option<String>,
    /// Whether its stacks are withheld from this user; then there is one for all of it.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// [`super::Device::index`]es that hold them.
    pub indexes: Vec<u32>,
    /// Memory space.
    pub space: Space,
    /// Allocated bytes per device, else requested bytes: the sum of the stacks; `null`: unknown, see `gap`.
    pub bytes: Option<u64>,
    /// When the peak was, or the mark.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Timestamp>,
    /// Why the stacks are unknown or not complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gap: Option<FlameGap>,
    /// The stacks.
    pub stacks: Vec<FlameStack>,
}

/// Why stacks are unknown or not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlameGap {
    /// ttmem did not follow the process at its peak.
    NotFollowed,
    /// The process has set no mark.
    NoMark,
    /// Some buffers are not listed one by one, so it is unknown whether they were allocated since the mark.
    NotListed,
}

/// Buffers that one stack allocated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlameStack {
    /// Positions of its frames in [`Flame::frames`], outermost first.
    pub frames: Vec<u32>,
    /// Number of buffers; `null`: unknown.
    pub count: Option<u64>,
    /// Bytes per device.
    pub bytes: u64,
}
