//! What the processes of a run allocated: what `ttmem run` prints when its program ends.

use super::{Leak, Origin, PostMortem, Tracker, is_false};
use crate::words::Space;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the processes of a run allocated, from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunReport {
    /// As [`super::Snapshot::schema`].
    pub schema: u32,
    /// When the report was made.
    pub at: Timestamp,
    /// The program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// How the program ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<RunEnd>,
    /// Processes that used devices, in the order of their start.
    pub processes: Vec<ProcessReport>,
    /// Processes that are not listed, because there were too many.
    #[serde(default)]
    pub unlisted_processes: u64,
    /// The core with the least free L1 at any time.
    pub fullest_core: Option<FullestCore>,
    /// Post-mortems of the last failed allocation of each process, newest first.
    #[serde(default)]
    pub post_mortems: Vec<PostMortem>,
}

/// How a program ended: by a code, or by a signal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunEnd {
    /// Its exit code.
    pub code: Option<i32>,
    /// Number of the signal that ended it.
    pub signal: Option<i32>,
    /// Name of that signal, as `SIGTERM`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal_name: Option<String>,
    /// How long it ran.
    pub seconds: f64,
}

/// What one process allocated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessReport {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// Whether its call sites are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// Whether it has exited.
    pub exited: bool,
    /// Its buffers by devices and space.
    pub spaces: Vec<SpaceReport>,
    /// Call sites that leaked, largest first.
    #[serde(default)]
    pub leaks: Vec<Leak>,
    /// Allocations that failed.
    pub failures: u64,
    /// Comparisons with the runtime's own statistics.
    pub audits: u64,
    /// Those of them that differed.
    pub audits_with_drift: u64,
    /// Whether every event was read, so that all figures are exact.
    pub exact: bool,
    /// How it is tracked.
    pub tracker: Option<Tracker>,
    /// Its crash segment, which `ttmem postmortem` and `ttmem dump` read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub crash_segment: Option<String>,
}

/// The buffers of one process in one space of the same devices. Sizes are per device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpaceReport {
    /// [`super::Device::index`]es of the devices.
    pub indexes: Vec<u32>,
    /// Memory space.
    pub space: Space,
    /// Bytes that the allocator manages.
    pub allocatable_bytes: Option<u64>,
    /// Peak of the bytes in use.
    pub peak_bytes: u64,
    /// When that was; if `at_peak` is `null`, when it was read.
    pub peak_at: Timestamp,
    /// The buffers at the peak by call site and operation, largest first; `null`: unknown, since no reader followed the process then.
    pub at_peak: Option<Vec<HeldBySite>>,
    /// Buffers that were still allocated when their allocator was closed or the process exited, or are allocated now.
    pub left: Vec<HeldBySite>,
}

/// Buffers of one call site and operation. Bytes are per device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldBySite {
    /// Call site; `null`: unknown.
    pub site_name: Option<String>,
    /// What is known about it.
    #[serde(flatten)]
    pub origin: Origin,
    /// Number of buffers.
    pub count: u64,
    /// Bytes that the program requested.
    pub requested_bytes: u64,
    /// Allocated bytes.
    pub used_bytes: u64,
}

/// The highest use of the L1 of one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FullestCore {
    /// [`super::Device::index`] of its device.
    pub index: u32,
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes that buffers and programs can use of a core's L1.
    pub allocatable_bytes: Option<u64>,
    /// The part of `bytes` that buffers take; the rest is the program's.
    pub buffer_bytes: u64,
    /// When that was.
    pub at: Timestamp,
    /// Process of the program that was on the core.
    pub pid: Option<u32>,
    /// Whether that program is withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// Name of that program.
    pub program_name: Option<String>,
}
