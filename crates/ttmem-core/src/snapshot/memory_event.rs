//! Single allocations, frees, programs and failures, as they happen.

use super::is_false;
use crate::words::{Basis, KernelClass, Layout, Space};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ttmem_types::FailureKind;

/// One event of memory: what `ttmem events --json` prints one line for. Keys that do not apply are absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryEvent {
    /// When it happened.
    pub at: Timestamp,
    /// Kind of event.
    pub kind: MemoryEventKind,
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// Short name of the process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process_name: Option<String>,
    /// Whether names and sizes are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// Number of the user of the process, which decides who may see the event; not a part of answers.
    #[serde(skip)]
    pub owner: Option<u32>,
    /// Source of the event: `exact` from a segment, `reported` from the old socket protocol.
    pub basis: Basis,
    /// Number of the event among those of its segment, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sequence: Option<u64>,
    /// [`super::Device::index`]es of its devices.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub indexes: Vec<u32>,
    /// Number of its allocator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocator: Option<u32>,
    /// Memory space.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub space: Option<Space>,
    /// Device address, kernel id or trace number, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// Requested bytes, per device; of program memory, per core.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requested_bytes: Option<u64>,
    /// Bytes that the allocator accounts for, over all banks or cores of a device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocated_bytes: Option<u64>,
    /// Free bytes over all banks, of an audit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub free_bytes: Option<u64>,
    /// Largest free block in a bank, of an audit or a failed allocation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub largest_free_bytes_per_bank: Option<u64>,
    /// Layout over banks or cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub layout: Option<Layout>,
    /// Class of a kernel or program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<KernelClass>,
    /// Number of the program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<u32>,
    /// Name of the program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program_name: Option<String>,
    /// Number of a mark.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub number: Option<u64>,
    /// Call site, or the name of a mark.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site_name: Option<String>,
    /// Dispatches of a program so far, or dispatches that a trace captured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dispatches: Option<u64>,
    /// Replays of a trace so far.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replays: Option<u64>,
    /// References after the event, of memory that old clients report repeatedly.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub references: Option<u32>,
    /// Size of the buffer that was at this address and counts as freed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replaced_bytes: Option<u64>,
    /// Whether a free was not reported, but follows from another event.
    #[serde(skip_serializing_if = "is_false", default)]
    pub implied: bool,
    /// Why a report was refused: the name of a fault, such as `double_free`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
    /// Why an allocation failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<FailureKind>,
    /// What one event freed together: the end of a program, allocator or process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub released: Option<Released>,
    /// Program memory recorded on each device after the event. Absent for events that were read from a ring later.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub levels: Vec<ProgramLevel>,
    /// Events that are missing here, of a gap.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub missed: Option<Missed>,
}

impl MemoryEvent {
    /// An event of this kind, of which nothing else is known.
    pub fn new(at: Timestamp, kind: MemoryEventKind, basis: Basis) -> Self {
        Self {
            at,
            kind,
            pid: None,
            reported_pid: None,
            process_name: None,
            hidden: false,
            owner: None,
            basis,
            sequence: None,
            indexes: Vec::new(),
            allocator: None,
            space: None,
            id: None,
            requested_bytes: None,
            allocated_bytes: None,
            free_bytes: None,
            largest_free_bytes_per_bank: None,
            layout: None,
            kernel: None,
            program: None,
            program_name: None,
            number: None,
            site_name: None,
            dispatches: None,
            replays: None,
            references: None,
            replaced_bytes: None,
            implied: false,
            fault: None,
            failure: None,
            released: None,
            levels: Vec::new(),
            missed: None,
        }
    }
}

/// Declares the kinds of events with their names, so that options and docs list the same ones.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident = $name:literal,)*) => {
        /// Kinds of events of memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum MemoryEventKind {
            $($(#[doc = $doc])* $kind,)*
            /// One that a later version has.
            #[serde(other)]
            Other,
        }

        impl MemoryEventKind {
            /// All kinds of this version.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The name in JSON and options.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                    Self::Other => "other",
                }
            }
        }
    };
}

kinds! {
    /// A buffer was allocated.
    Allocated = "allocated",
    /// A buffer was freed.
    Freed = "freed",
    /// A program placed a circular buffer, dataflow buffer or scratchpad.
    Placed = "placed",
    /// A program's circular buffer, dataflow buffer or scratchpad was removed.
    Displaced = "displaced",
    /// A kernel was loaded.
    KernelLoaded = "kernel_loaded",
    /// A kernel was unloaded.
    KernelUnloaded = "kernel_unloaded",
    /// A program was built.
    ProgramBuilt = "program_built",
    /// A program was dispatched.
    ProgramDispatched = "program_dispatched",
    /// A program ended, with everything it registered.
    ProgramEnded = "program_ended",
    /// A trace was captured.
    TraceCaptured = "trace_captured",
    /// A trace was replayed.
    TraceReplayed = "trace_replayed",
    /// A trace was released.
    TraceReleased = "trace_released",
    /// An allocator was opened.
    AllocatorOpened = "allocator_opened",
    /// An allocator was closed, which frees everything it handed out.
    AllocatorClosed = "allocator_closed",
    /// Everything that an allocator handed out was freed; the allocator stays open.
    AllocatorCleared = "allocator_cleared",
    /// An allocation failed for lack of memory.
    OutOfMemory = "out_of_memory",
    /// A program, a trace or a request failed for another reason.
    Failed = "failed",
    /// A report was refused.
    Refused = "refused",
    /// An allocator's own statistics were recorded.
    Audited = "audited",
    /// The peak of a space was reset.
    PeakReset = "peak_reset",
    /// The program marked a moment, such as the end of a step.
    Marked = "marked",
    /// A process exited, which frees everything it held.
    ProcessExited = "process_exited",
    /// Events are missing here: they were overwritten before they were read.
    Gap = "gap",
}

impl MemoryEventKind {
    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// Memory that one event freed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Released {
    /// Number of buffers.
    pub buffers: u64,
    /// Requested bytes of buffers.
    pub buffer_bytes: u64,
    /// Number of circular buffers, dataflow buffers and scratchpads.
    pub cbs: u64,
    /// Requested bytes of these, per core.
    pub cb_bytes: u64,
    /// Number of kernels.
    pub kernels: u64,
    /// Requested bytes of kernels, per core if the basis is exact.
    pub kernel_bytes: u64,
    /// Bytes of kernels over all of their cores.
    pub kernel_core_bytes: u64,
}

/// Program memory of all processes that is recorded on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramLevel {
    /// [`super::Device::index`] of the device.
    pub index: u32,
    /// Sum of the sizes of circular buffers, dataflow buffers and scratchpads, per core.
    pub cb_bytes: u64,
    /// Sum of the sizes of kernels, over all of their cores.
    pub kernel_bytes: u64,
}

/// Events that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missed {
    /// Number of events.
    pub count: u64,
    /// Sequence number of the first one, if its source numbers events.
    pub first: Option<u64>,
    /// Sequence number of the last one.
    pub last: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_names_of_json() {
        for &kind in MemoryEventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(MemoryEventKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(MemoryEventKind::from_name("other"), None, "not an option");
        let later: MemoryEventKind = serde_json::from_str("\"teleported\"").unwrap();
        assert_eq!(later, MemoryEventKind::Other);
    }

    #[test]
    fn keys_that_do_not_apply_are_absent() {
        let event = MemoryEvent::new(Timestamp::UNIX_EPOCH, MemoryEventKind::Freed, Basis::Exact);
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"at":"1970-01-01T00:00:00Z","kind":"freed","pid":null,"basis":"exact"}"#);
        assert_eq!(serde_json::from_str::<MemoryEvent>(&text).unwrap(), event);
    }
}
