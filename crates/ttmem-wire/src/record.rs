//! The 64-byte record: one thing that happened in a tracked process.
//!
//! It is one cache line, so that a writer publishes it with one line's traffic, and it refers to everything of
//! variable size (chips, core sets, programs, call sites) by the number of a definition made before.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Memory was taken: a buffer, a circular buffer, a kernel, by its space.
    Alloc = 1,
    /// It was given back.
    Free = 2,
    /// A program was built; its circular buffers and kernels follow. `cores` are those it runs on, `site` what it is made of.
    ProgramBegin = 3,
    /// A program was dispatched: what it registered is now resident. `requested` is how often that has happened.
    Dispatch = 4,
    /// A program was destroyed, and everything it registered with it.
    ProgramEnd = 5,
    /// An allocator was closed, and everything it handed out with it.
    AllocatorEnd = 6,
    /// An allocation failed: `requested` is what was asked for.
    OutOfMemory = 7,
    /// Something was refused, or not found: `flags` is a [`crate::segment::Oddity`] by number.
    Refused = 8,
    /// The allocator's own statistics of one space: `id` is what is allocated, `requested` what is free, over all
    /// banks; `bytes_per_bank` the largest free block in a bank.
    Audit = 9,
    /// The peak of a space was set back to what it holds now.
    PeakReset = 10,
    /// An allocator was opened: it has a row for each of its spaces.
    AllocatorBegin = 11,
    /// A trace was captured, or replayed: `id` is its number, `requested` how many dispatches it holds, `padding` how often
    /// it was replayed, `bytes_per_bank` when its capture ended, by the writer's clock.
    Trace = 12,
    /// A trace was released.
    TraceEnd = 13,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::Alloc,
        Self::Free,
        Self::ProgramBegin,
        Self::Dispatch,
        Self::ProgramEnd,
        Self::AllocatorEnd,
        Self::OutOfMemory,
        Self::Refused,
        Self::Audit,
        Self::PeakReset,
        Self::AllocatorBegin,
        Self::Trace,
        Self::TraceEnd,
    ];

    /// The kind numbered `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// Kinds of memory, as numbered in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Device DRAM.
    Dram = 1,
    /// L1 buffers.
    L1 = 2,
    /// The reserved top of L1.
    L1Small = 3,
    /// The trace region, in DRAM.
    Trace = 4,
    /// Circular buffers.
    Cb = 5,
    /// Dataflow buffers.
    Dfb = 6,
    /// Scratchpads.
    Scratch = 7,
    /// Kernel code.
    Kernel = 8,
    /// Host memory mapped for the device.
    Host = 9,
    /// L1 buffers that lie on some cores only, on each wherever there was room.
    L1Core = 10,
}

impl Space {
    const ALL: [Self; 10] = [
        Self::Dram,
        Self::L1,
        Self::L1Small,
        Self::Trace,
        Self::Cb,
        Self::Dfb,
        Self::Scratch,
        Self::Kernel,
        Self::Host,
        Self::L1Core,
    ];

    /// The space numbered `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// One record, as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Record {
    /// Counts records of one writer from 1; 0 is a slot never written.
    pub sequence: U64,
    /// The writer's monotonic clock, in nanoseconds.
    pub at_ns: U64,
    /// A [`Kind`] by number.
    pub kind: u8,
    /// A [`Space`] by number, or 0 where none applies.
    pub space: u8,
    /// Number of the allocator's definition.
    pub allocator: U16,
    /// See [`flags`].
    pub flags: U16,
    /// Number of the core set's definition; 0: not said.
    pub cores: U16,
    /// Device address, or the id of a thing that has none.
    pub id: U64,
    /// Bytes the program asked for.
    pub requested: U64,
    /// Bytes taken in each bank the allocator charges.
    pub bytes_per_bank: U64,
    /// Bytes beyond `requested` in the banks that really hold it; [`PADDING_UNKNOWN`]: not said.
    pub padding: U32,
    /// Number of the program, or 0.
    pub program: U32,
    /// Number of the call site's definition, or 0.
    pub site: U32,
    /// The slot of the live table that this record fills or clears; [`NO_SLOT`]: none.
    pub slot: U32,
}

/// A padding that was not said, or is too large to say.
pub const PADDING_UNKNOWN: u32 = u32::MAX;
/// The slot of a record that touches none.
pub const NO_SLOT: u32 = u32::MAX;

/// Meanings of [`Record::flags`].
pub mod flags {
    /// Another allocator's buffer, which this one only keeps clear of: taken from its free space, but nobody's use.
    pub const MIRROR: u16 = 1;
    /// Of an audit: nothing happened while the statistics were taken, so a difference means something.
    pub const QUIET: u16 = 2;
    /// Of a free: nobody asked for it; the address was taken again before it was freed.
    pub const IMPLIED: u16 = 4;
    /// Of what a program keeps: a buffer, which is counted as such; this is only another way to look at it.
    pub const VIEW: u16 = 8;
    /// Of what a program keeps: nobody knows where. `id` only tells it from others.
    pub const UNPLACED: u16 = 16;
    /// Its size is somebody's estimate.
    pub const ESTIMATED: u16 = 32;
    /// Of what a program keeps: nobody tells when that program is dispatched, so whether it is resident is not known.
    pub const UNFOLLOWED: u16 = 64;
    /// Where a buffer's layout begins, three bits: 0 not said, 1 interleaved, 2 height sharded, 3 width sharded, 4 block
    /// sharded, 5 sharded in more dimensions.
    pub const LAYOUT_SHIFT: u16 = 10;
    /// Where the class of a kernel, or of a program, begins: 0 application, 1 fabric, 2 dispatch, 3 not said.
    pub const CLASS_SHIFT: u16 = 8;
}

/// Bytes of one record.
pub const SIZE: usize = 64;
/// 8-byte words of one record.
pub const WORDS: usize = SIZE / 8;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Record>() == SIZE && align_of::<Record>() == 1);
    assert!(offset_of!(Record, kind) == 16 && offset_of!(Record, allocator) == 18);
    assert!(offset_of!(Record, cores) == 22 && offset_of!(Record, id) == 24);
    assert!(offset_of!(Record, bytes_per_bank) == 40 && offset_of!(Record, padding) == 48);
    assert!(offset_of!(Record, program) == 52 && offset_of!(Record, slot) == 60);
};

/// Why 64 bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Not 64 bytes.
    Length(usize),
    /// Never written.
    Empty,
    /// A kind this version does not know.
    Kind(u8),
    /// A space this version does not know.
    Space(u8),
}

impl core::fmt::Display for RecordError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length(n) => write!(f, "record of {n} bytes instead of {SIZE}"),
            Self::Empty => f.write_str("record was never written"),
            Self::Kind(n) => write!(f, "unknown record kind {n}"),
            Self::Space(n) => write!(f, "unknown memory space {n}"),
        }
    }
}

impl core::error::Error for RecordError {}

impl Record {
    /// Reads and checks one record; its kind and space come along as types.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Kind, Option<Space>), RecordError> {
        let record = Self::read_from_bytes(bytes).map_err(|_| RecordError::Length(bytes.len()))?;
        if record.sequence.get() == 0 {
            return Err(RecordError::Empty);
        }
        let kind = Kind::from_byte(record.kind).ok_or(RecordError::Kind(record.kind))?;
        let space = match record.space {
            0 => None,
            byte => Some(Space::from_byte(byte).ok_or(RecordError::Space(byte))?),
        };
        Ok((record, kind, space))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_trip_and_stands_where_it_should() {
        let record = Record {
            sequence: 1.into(),
            at_ns: 2.into(),
            kind: Kind::Alloc as u8,
            space: Space::L1 as u8,
            allocator: 3.into(),
            flags: 4.into(),
            cores: 5.into(),
            id: 6.into(),
            requested: 7.into(),
            bytes_per_bank: 8.into(),
            padding: 9.into(),
            program: 10.into(),
            site: 11.into(),
            slot: 12.into(),
        };
        let bytes = record.as_bytes();
        assert_eq!(Record::parse(bytes), Ok((record, Kind::Alloc, Some(Space::L1))));
        let firsts: Vec<u8> =
            [0, 8, 16, 17, 18, 20, 22, 24, 32, 40, 48, 52, 56, 60].iter().map(|&i| bytes[i]).collect();
        assert_eq!(firsts, [1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn bytes_that_are_no_record_say_why() {
        let mut bytes = [0; SIZE];
        assert_eq!(Record::parse(&bytes[1..]), Err(RecordError::Length(63)));
        assert_eq!(Record::parse(&bytes), Err(RecordError::Empty));
        bytes[0] = 1;
        assert_eq!(Record::parse(&bytes), Err(RecordError::Kind(0)));
        bytes[16] = 1;
        assert!(Record::parse(&bytes).is_ok());
        bytes[17] = 11;
        assert_eq!(Record::parse(&bytes), Err(RecordError::Space(11)));
    }
}
