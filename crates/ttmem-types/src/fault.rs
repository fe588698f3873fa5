//! Errors in reports, and the findings that they become.

use core::ffi::CStr;
use core::fmt;

vocabulary! {
    /// An error in a report of a process, or the reason why the report was not recorded.
    ///
    /// Numbers count down from -1: the C interface returns them unchanged. They are 64 bits wide, as the values that are
    /// returned otherwise, so that a result is returned in registers; in memory it costs 10 ns per event.
    #[non_exhaustive]
    pub enum Fault: i64 {
        UnknownChip = -1, "unknown_chip": "The device does not exist or was never defined. Nothing changes.",
        UnknownAllocator = -2, "unknown_allocator": "The allocator was never defined or is closed. Nothing changes.",
        UnknownProgram = -3, "unknown_program": "The program was never begun or has ended. Nothing changes.",
        ZeroSize = -4, "zero_size": "The size is zero. Nothing changes.",
        TooLarge = -5, "too_large": "The size exceeds any device. Nothing changes.",
        BeyondAddresses = -6, "beyond_addresses": "Address plus size exceeds 64 bits. Nothing changes.",
        DoubleFree = -7, "double_free": "Double free: the buffer was freed before. Nothing changes.",
        UnknownFree = -8, "unknown_free": "The freed buffer is unknown; it may predate tracking. Nothing changes.",
        StillHeld = -9, "still_held": "The address was already allocated with the same size: its free was missed. The buffer counts once.",
        Replaced = -10, "replaced": "The address was already allocated with another size. The old buffer counts as freed, the new one as allocated.",
        InheritedFree = -11, "inherited_free": "A forked child freed a buffer that its parent allocated. Nothing changes.",
        Unlisted = -12, "unlisted": "The allocation is counted but not listed: the segment table is full.",
        Lost = -13, "lost": "Not recorded: a signal handler interrupted another report of its own thread, or the host is out of memory.",
        DefinitionsFull = -14, "definitions_full": "No room for another definition. Records that refer to it are not described.",
        WrongSpace = -15, "wrong_space": "The memory space or buffer type is unknown or not valid for this call. Nothing changes.",
        OutOfMemory = -16, "out_of_memory": "An allocation failed.",
        Null = -17, "null": "A required pointer is null. Nothing changes.",
        NotUtf8 = -18, "not_utf8": "The text is not UTF-8. Nothing changes.",
        BadValue = -19, "bad_value": "A value or pointer is invalid. Nothing changes.",
        Internal = -20, "internal": "Internal error. The report may or may not have been recorded.",
        AmbiguousFree = -21, "ambiguous_free": "The freed address is allocated in several spaces; the newest buffer is freed.",
        SizeMismatch = -22, "size_mismatch": "Freed with another size than recorded; the recorded size counts.",
        Reclaimed = -23, "reclaimed": "A process exited with memory still allocated; it was reclaimed.",
        WrongDirection = -24, "wrong_direction": "The message is one that only a server sends.",
        ProcessLimit = -25, "process_limit": "The process has too many live allocations.",
        VariantLimit = -26, "variant_limit": "A program has too many circular buffer sizes at one address.",
        TotalLimit = -27, "total_limit": "The host has too many live allocations.",
        BrokenStream = -28, "broken_stream": "The byte stream is not valid messages; the connection was closed.",
        UnreadAnswers = -29, "unread_answers": "The client did not read its answers; they were dropped.",
        UserLimit = -30, "user_limit": "The processes of one user have too many live allocations.",
        MixedSenders = -31, "mixed_senders": "Two processes sent parts of one message; the connection was closed.",
    }
}

impl Fault {
    /// Number of faults that a segment's header counts: the first ones.
    pub const COUNTED: usize = 16;

    /// Returns whether the tracker returns this fault. The others are found by readers or only counted in a segment.
    ///
    /// ```
    /// # use ttmem_types::Fault;
    /// assert!(Fault::DoubleFree.is_returned() && !Fault::BrokenStream.is_returned());
    /// ```
    pub const fn is_returned(self) -> bool {
        self.index() <= Self::Internal.index() && !matches!(self, Self::Unlisted | Self::OutOfMemory)
    }

    /// Returns the position in [`Fault::ALL`] and among the counters of a segment's header.
    ///
    /// ```
    /// # use ttmem_types::Fault;
    /// assert_eq!(Fault::ALL[Fault::Lost.index()], Fault::Lost);
    /// ```
    #[inline]
    pub const fn index(self) -> usize {
        (-1 - self as i64) as usize
    }

    /// Returns the error text, a lowercase fragment, as a C string.
    ///
    /// ```
    /// # use ttmem_types::Fault;
    /// assert_eq!(Fault::DoubleFree.c_text(), c"double free");
    /// ```
    pub const fn c_text(self) -> &'static CStr {
        match self {
            Self::UnknownChip => c"no such device",
            Self::UnknownAllocator => c"unknown allocator: never defined, or closed",
            Self::UnknownProgram => c"unknown program: never begun, or ended",
            Self::ZeroSize => c"size is zero",
            Self::TooLarge => c"size exceeds any device",
            Self::BeyondAddresses => c"address plus size exceeds 64 bits",
            Self::DoubleFree => c"double free",
            Self::UnknownFree => c"freed unknown buffer; it may predate tracking",
            Self::StillHeld => c"address was already allocated with the same size; counted once",
            Self::Replaced => c"address was already allocated with another size; that buffer counts as freed",
            Self::InheritedFree => c"freed in a forked child, but allocated by its parent",
            Self::Unlisted => c"not listed: segment table is full",
            Self::Lost => c"not recorded",
            Self::DefinitionsFull => c"too many definitions in one process",
            Self::WrongSpace => c"unknown memory space or buffer type, or not valid for this call",
            Self::OutOfMemory => c"out of memory",
            Self::AmbiguousFree => c"address is allocated in several spaces; the newest buffer was freed",
            Self::SizeMismatch => c"freed with another size than recorded; the recorded size counts",
            Self::Reclaimed => c"exited with memory still allocated; reclaimed",
            Self::WrongDirection => c"only a server sends this message",
            Self::ProcessLimit => c"too many live allocations in one process",
            Self::VariantLimit => c"too many sizes of circular buffers at one address",
            Self::TotalLimit => c"too many live allocations on this host",
            Self::BrokenStream => c"invalid message stream; connection closed",
            Self::UnreadAnswers => c"answers were not read; dropped",
            Self::UserLimit => c"too many live allocations of one user",
            Self::MixedSenders => c"two processes sent parts of one message; connection closed",
            Self::Null => c"null pointer",
            Self::NotUtf8 => c"text is not UTF-8",
            Self::BadValue => c"invalid value",
            Self::Internal => c"internal error in ttmem",
        }
    }

    /// Returns the error text, a lowercase fragment.
    ///
    /// ```
    /// # use ttmem_types::Fault;
    /// assert_eq!(Fault::DoubleFree.text(), "double free");
    /// ```
    pub const fn text(self) -> &'static str {
        match self.c_text().to_str() {
            Ok(text) => text,
            Err(_) => "",
        }
    }

    /// Returns the kind of the finding that this fault becomes.
    ///
    /// ```
    /// # use ttmem_types::{Fault, FindingKind};
    /// assert_eq!(Fault::StillHeld.finding(), FindingKind::Replaced);
    /// ```
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

    /// Returns the severity of the finding that this fault becomes.
    ///
    /// ```
    /// # use ttmem_types::{Fault, Severity};
    /// assert_eq!(Fault::Lost.severity(), Severity::Error);
    /// ```
    pub const fn severity(self) -> Severity {
        match self {
            Self::Lost => Severity::Error,
            Self::UnknownFree | Self::AmbiguousFree | Self::InheritedFree | Self::Reclaimed => Severity::Info,
            _ => Severity::Warning,
        }
    }

    /// Returns whether the whole report was refused.
    ///
    /// ```
    /// # use ttmem_types::Fault;
    /// assert!(Fault::ZeroSize.is_refusal() && !Fault::StillHeld.is_refusal());
    /// ```
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

/// Kind of a finding: a fault, or a condition that a reader derives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum FindingKind {
    /// More memory is reported in use than the device has.
    OverCapacity,
    /// Figures differ from the runtime's allocator.
    Drift,
    /// Several allocators hold the same addresses of a device.
    Aliased,
    /// Buffers were allocated while a trace is live, which may overwrite them when it is replayed.
    TraceOverwrite,
    /// A buffer was freed twice.
    DoubleFree,
    /// Records were lost.
    LostRecords,
    /// A report was refused.
    Refused,
    /// An address was allocated again before it was freed.
    Replaced,
    /// A free named another size than was recorded.
    SizeMismatch,
    /// A freed address matches several buffers.
    AmbiguousFree,
    /// An allocation failed.
    OutOfMemory,
    /// The memory of a program would have overlapped an L1 buffer, so the program was not run.
    Clash,
    /// A program needs more L1, or a larger kernel config buffer, than a core has.
    ProgramTooLarge,
    /// A trace did not fit into the trace region.
    TraceTooLarge,
    /// The runtime does not support a request.
    Unsupported,
    /// The memory of a cached program overlaps L1 buffers that stay: its next dispatch will fail.
    WouldClash,
    /// Hardly any memory is free.
    NearlyFull,
    /// Much memory is free, but only in small blocks.
    Fragmented,
    /// A segment has no room to list all allocations.
    Unlisted,
    /// Memory use only grew.
    Leak,
    /// A process exited and its memory was reclaimed.
    Reclaimed,
    /// An unknown buffer was freed.
    UnknownFree,
    /// A forked child freed a buffer of its parent.
    InheritedFree,
    /// Exited processes left bytes in tt-metal's own counters.
    GhostBytes,
    /// tt-metal's own counters hold bytes that none of their processes accounts for.
    Unattributed,
    /// tt-metal's own counters are inconsistent, or cannot be read.
    Counters,
    /// A process that is not visible uses a device.
    Untracked,
    /// The daemon cannot listen for old clients.
    LegacySocket,
    /// There were more findings than can be shown.
    Truncated,
    /// A kind of a later version.
    #[cfg_attr(feature = "serde", serde(other))]
    Other,
}

/// Severity of a finding, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Severity {
    /// A figure is wrong, or memory is lost.
    Error,
    /// A program has a problem.
    Warning,
    /// For information; also any severity of a later version.
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
    fn results_are_returned_in_registers() {
        assert_eq!(size_of::<Result<u64, Fault>>(), 16);
        assert_eq!(align_of::<Fault>(), 8);
    }
}
