//! Findings and events.

use super::{Failure, is_false};
use crate::words::Space;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ttmem_types::{FindingKind, Severity};

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
    /// Whether call sites and names in its text are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// [`super::Device::id`], if it concerns one device.
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
    /// An allocation failed for lack of memory.
    OutOfMemory,
    /// A program, a trace or a request failed for another reason.
    Failed,
    /// A finding was first made.
    Finding,
    /// One that a later version has.
    #[serde(other)]
    Other,
}

/// A problem, with severity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Kind of problem.
    pub kind: FindingKind,
    /// Severity.
    pub severity: Severity,
    /// [`super::Device::id`], if it concerns one device.
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
    /// The failed allocation, if it is one: the last of its kind.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Box<Failure>>,
    /// The finding in one sentence.
    pub text: String,
}
