//! What can be wrong with a report, and what findings come of it.

use core::ffi::CStr;
use core::fmt;

vocabulary! {
    /// What is wrong with something that a process reported, or why it could not be recorded.
    ///
    /// Numbers count down from -1, so that the C interface returns a fault as it is. They are 64 bits wide, as what is
    /// returned otherwise, so that a result travels in registers: through memory it costs 10 ns an event.
    #[non_exhaustive]
    pub enum Fault: i64 {
        UnknownChip = -1, "unknown_chip": "A chip or device that does not exist, or was never defined. Nothing changes.",
        UnknownAllocator = -2, "unknown_allocator": "An allocator that was never defined, or is closed. Nothing changes.",
        UnknownProgram = -3, "unknown_program": "A program that was never begun, or has ended. Nothing changes.",
        ZeroSize = -4, "zero_size": "A size of zero. Nothing changes.",
        TooLarge = -5, "too_large": "A size larger than any device. Nothing changes.",
        BeyondAddresses = -6, "beyond_addresses": "An address and a size that together exceed 64 bits. Nothing changes.",
        DoubleFree = -7, "double_free": "Freed twice. Nothing changes.",
        UnknownFree = -8, "unknown_free": "A free of an unknown buffer, which may predate tracking. Nothing changes.",
        StillHeld = -9, "still_held": "The address was still allocated, with the same size: its free was missed. It counts once.",
        Replaced = -10, "replaced": "The address was still allocated, with another size. That one counts as freed, this one as allocated.",
        InheritedFree = -11, "inherited_free": "A free in a forked child of what its parent allocated. Nothing changes.",
        Unlisted = -12, "unlisted": "Allocated and counted, but not in the segment's table, which is full.",
        Lost = -13, "lost": "Not recorded: a signal handler interrupted its own thread in another event, or there is no memory for it.",
        DefinitionsFull = -14, "definitions_full": "No room for a definition. What refers to it is not described.",
        WrongSpace = -15, "wrong_space": "A space or buffer type that does not exist, or does not fit the call. Nothing changes.",
        OutOfMemory = -16, "out_of_memory": "An allocation failed.",
        Null = -17, "null": "A null pointer where a value must be. Nothing changes.",
        NotUtf8 = -18, "not_utf8": "Text that is not UTF-8. Nothing changes.",
        BadValue = -19, "bad_value": "A number without a meaning here, or an invalid pointer. Nothing changes.",
        Internal = -20, "internal": "An error inside the library. Whether the report was recorded is not known.",
        AmbiguousFree = -21, "ambiguous_free": "A free of an address that is allocated in several spaces: the newest buffer is freed.",
        SizeMismatch = -22, "size_mismatch": "A free with another size than was recorded: the recorded size counts.",
        Reclaimed = -23, "reclaimed": "A process exited with memory still allocated, which was reclaimed.",
        WrongDirection = -24, "wrong_direction": "A message that only a server sends.",
        ProcessLimit = -25, "process_limit": "More live allocations than a process may have.",
        VariantLimit = -26, "variant_limit": "More sizes at one address than a program may have.",
        TotalLimit = -27, "total_limit": "More live allocations than all processes may have.",
        BrokenStream = -28, "broken_stream": "Bytes that are no message; the connection was closed.",
        UnreadAnswers = -29, "unread_answers": "Answers that the client did not read; they were dropped.",
    }
}

impl Fault {
    /// Faults that a segment's header counts: those with the first numbers.
    pub const COUNTED: usize = 16;

    /// Whether calls of the tracker return it; the others only readers find, or only a segment counts.
    pub const fn is_returned(self) -> bool {
        self.index() <= Self::Internal.index() && !matches!(self, Self::Unlisted | Self::OutOfMemory)
    }

    /// The position in [`Fault::ALL`], and of its counter in a segment's header.
    #[inline]
    pub const fn index(self) -> usize {
        (-1 - self as i64) as usize
    }

    /// What is wrong, as a lowercase fragment with a final zero, for C.
    pub const fn c_text(self) -> &'static CStr {
        match self {
            Self::UnknownChip => c"no such device",
            Self::UnknownAllocator => c"allocator was never defined, or is closed",
            Self::UnknownProgram => c"program was never begun, or has ended",
            Self::ZeroSize => c"size is zero",
            Self::TooLarge => c"size is larger than any device",
            Self::BeyondAddresses => c"address and size leave 64 bits",
            Self::DoubleFree => c"freed twice",
            Self::UnknownFree => c"freed, but never seen allocated",
            Self::StillHeld => c"address was still held; it counts once",
            Self::Replaced => c"address was still held with another size, which counts as freed",
            Self::InheritedFree => c"the parent process holds it",
            Self::Unlisted => c"segment has no room to list it",
            Self::Lost => c"could not be recorded",
            Self::DefinitionsFull => c"too many definitions for one process",
            Self::WrongSpace => c"no such buffer type, or not one for this call",
            Self::OutOfMemory => c"out of memory",
            Self::AmbiguousFree => c"address is allocated in several spaces; the newest buffer was freed",
            Self::SizeMismatch => c"freed with another size than recorded; the recorded size counts",
            Self::Reclaimed => c"exited with memory still allocated; reclaimed",
            Self::WrongDirection => c"only a server sends this message",
            Self::ProcessLimit => c"too many live allocations for one process",
            Self::VariantLimit => c"too many sizes of circular buffers at one address",
            Self::TotalLimit => c"too many live allocations on this host",
            Self::BrokenStream => c"stream cannot be read as messages, connection closed",
            Self::UnreadAnswers => c"answers were not read and are dropped",
            Self::Null => c"null pointer",
            Self::NotUtf8 => c"text is not UTF-8",
            Self::BadValue => c"value has no meaning here",
            Self::Internal => c"internal error in ttmem",
        }
    }

    /// What is wrong, as a lowercase fragment.
    pub const fn text(self) -> &'static str {
        match self.c_text().to_str() {
            Ok(text) => text,
            Err(_) => "",
        }
    }

    /// The finding that it becomes.
    pub const fn finding(self) -> FindingKind {
        match self {
            Self::DoubleFree => FindingKind::DoubleFree,
            Self::UnknownFree => FindingKind::UnknownFree,
            Self::StillHeld | Self::Replaced => FindingKind::Replaced,
            Self::InheritedFree => FindingKind::InheritedFree,
            Self::Unlisted => FindingKind::Unlisted,
            Self::Lost => FindingKind::LostRecords,
            Self::OutOfMemory => FindingKind::OutOfMemory,
            Self::AmbiguousFree => FindingKind::AmbiguousFree,
            Self::SizeMismatch => FindingKind::SizeMismatch,
            Self::Reclaimed => FindingKind::Reclaimed,
            _ => FindingKind::Refused,
        }
    }

    /// How bad it is.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Lost => Severity::Error,
            Self::UnknownFree | Self::AmbiguousFree | Self::InheritedFree | Self::Reclaimed => Severity::Info,
            _ => Severity::Warning,
        }
    }

    /// Whether the report was refused as a whole.
    pub const fn is_refusal(self) -> bool {
        matches!(self.finding(), FindingKind::Refused)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Fault {}

/// Kinds of findings: what faults become, and conditions that a reader derives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum FindingKind {
    /// More in use than the device has.
    OverCapacity,
    /// The runtime's allocator disagrees.
    Drift,
    /// Several allocators hold the same addresses of a device.
    Aliased,
    /// Buffers were allocated while a trace is live, which may overwrite them when it is replayed.
    TraceOverwrite,
    /// Something was freed twice.
    DoubleFree,
    /// Records were lost.
    LostRecords,
    /// Input was refused.
    Refused,
    /// An address was allocated again with another size before it was freed.
    Replaced,
    /// A free named another size than was recorded.
    SizeMismatch,
    /// A free fits several buffers.
    AmbiguousFree,
    /// An allocation failed.
    OutOfMemory,
    /// More is allocated than could be listed.
    Unlisted,
    /// Memory only grew.
    Leak,
    /// A process exited and its memory was reclaimed.
    Reclaimed,
    /// An unknown buffer was freed.
    UnknownFree,
    /// A forked child freed what its parent holds.
    InheritedFree,
    /// Exited processes left bytes in tt-metal's own counters.
    GhostBytes,
    /// tt-metal's own counters hold bytes that none of their processes accounts for.
    Unattributed,
    /// tt-metal's own counters are inconsistent, or cannot be read.
    Counters,
    /// A process that is not visible uses a device.
    Untracked,
    /// There were more findings than fit.
    Truncated,
    /// One that a later version has.
    #[cfg_attr(feature = "serde", serde(other))]
    Other,
}

/// How bad a finding is, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Severity {
    /// A figure cannot be right, or memory is being lost.
    Error,
    /// Something is wrong with a program.
    Warning,
    /// Worth knowing; and any severity that a later version has.
    #[cfg_attr(feature = "serde", serde(other))]
    Info,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_positions() {
        for (n, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault.index(), n);
        }
        assert_eq!(Fault::OutOfMemory.index() + 1, Fault::COUNTED, "the last one that a header counts");
    }

    #[test]
    fn results_travel_in_registers() {
        assert_eq!(size_of::<Result<u64, Fault>>(), 16);
        assert_eq!(align_of::<Fault>(), 8);
    }
}
