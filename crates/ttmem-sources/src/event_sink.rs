//! Where sources deliver what they read.

use crate::process::ProcessIdentity;
use jiff::Timestamp;
use ttmem_core::input::Input;
use ttmem_core::words::{Basis, ChipId, ProcessId};
use ttmem_wire::record::Record;

/// Receives what sources read.
pub trait EventSink {
    /// Registers a process that a source found on this basis, and returns the id by which its input names it. A process
    /// that is registered already keeps its id.
    fn register(&mut self, process: &ProcessIdentity, basis: Basis) -> ProcessId;
    /// Takes input of one process.
    fn emit(&mut self, process: ProcessId, basis: Basis, input: Input);
    /// Takes input of the machine.
    fn emit_machine(&mut self, input: Input);
    /// Returns whether single records of segments are wanted, besides the input that follows from them.
    fn wants_records(&self) -> bool {
        false
    }
    /// Takes one record of a process's segment, or a gap, in the order of records. The input of an applied record was emitted
    /// just before.
    fn emit_record(&mut self, _process: ProcessId, _event: &SegmentEvent<'_>) {}
}

/// What is read from the ring of a segment.
#[derive(Clone, Copy, Debug)]
pub enum SegmentEvent<'a> {
    /// A record.
    Record(SegmentRecord<'a>),
    /// Records that were overwritten before they could be read.
    Gap(SegmentGap),
}

impl SegmentEvent<'_> {
    /// Its time by the wall clock.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Record(record) => record.at,
            Self::Gap(gap) => gap.at,
        }
    }
}

/// A record of a segment, with what its numbers refer to.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRecord<'a> {
    /// The record.
    pub record: &'a Record,
    /// Its time by the wall clock.
    pub at: Timestamp,
    /// Chips of its allocator.
    pub chips: &'a [ChipId],
    /// Number of its allocator, as in the process's input.
    pub allocator: u32,
    /// Number of its call site, as in the process's input; 0: none.
    pub site: u32,
    /// Bytes that an allocation is charged.
    pub allocated_bytes: u64,
    /// Whether its input was emitted just before. Otherwise it is part of a listing.
    pub is_applied: bool,
    /// Whether it was written since the last poll. Otherwise it was in the ring when the segment was found, or is listed again.
    pub is_new: bool,
}

/// Records that were overwritten before they could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentGap {
    /// Time of the first record after them, by the wall clock.
    pub at: Timestamp,
    /// Sequence number of the first.
    pub first: u64,
    /// Sequence number of the last.
    pub last: u64,
}
