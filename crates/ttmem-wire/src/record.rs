//! The 64-byte record of one event in a tracked process.
//!
//! A record is one cache line, so that a writer publishes it with one line's traffic. It refers to everything of variable size
//! (chips, core sets, programs, call sites) by the number of an earlier definition.

use core::mem::offset_of;
use ttmem_types::{KernelClass, Layout, Uncertainty, charge};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use ttmem_types::Space;

/// Kind of event that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Memory was allocated: a buffer, a circular buffer or a kernel, depending on the space.
    Alloc = 1,
    /// Memory was freed.
    Free = 2,
    /// A program was built; its circular buffers and kernels follow. `cores` are those it runs on, `site` is its description, `id`
    /// and `bytes_per_bank` are the [`crate::ViewAddresses`] of its movable views.
    ProgramBegin = 3,
    /// A program was dispatched: what it registered is now resident. `requested` is the number of its dispatches; the other fields
    /// are as in [`Kind::ProgramBegin`].
    Dispatch = 4,
    /// A program was destroyed, and everything it registered with it.
    ProgramEnd = 5,
    /// All allocations of an allocator are freed. The allocator is closed, unless [`flags::CLEARED`] is set. `padding` is their
    /// number plus 1; 0: unknown.
    AllocatorEnd = 6,
    /// An allocation failed for lack of memory: a [`crate::failure::Failure`].
    OutOfMemory = 7,
    /// A report was refused: `flags` is the index of a [`ttmem_types::Fault`].
    Refused = 8,
    /// The allocator's own statistics of one space: `id` are the allocated bytes and `requested` the free bytes, over all banks;
    /// `bytes_per_bank` is the largest free block in a bank.
    Audit = 9,
    /// The peak of a space was reset to the bytes allocated now.
    PeakReset = 10,
    /// An allocator was opened: it has a row for each of its spaces.
    AllocatorBegin = 11,
    /// A trace was captured or replayed: `id` is its number, `requested` the number of its dispatches, `padding` the number of its
    /// replays, `bytes_per_bank` the end of its capture, by the writer's clock.
    Trace = 12,
    /// A trace was released.
    TraceEnd = 13,
    /// An allocation failed for another reason than [`Kind::OutOfMemory`]: a [`crate::failure::Failure`].
    Failure = 14,
    /// The program marked a moment: `site` is the name of the mark, `id` its number if [`flags::MEASURED`] is set.
    Mark = 15,
}

impl Kind {
    const ALL: [Self; 15] = [
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
        Self::Failure,
        Self::Mark,
    ];

    /// Returns the kind numbered `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// One record, as it is stored in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Record {
    /// Number of the record, counted per writer from 1; 0: a slot that was never written.
    pub sequence: U64,
    /// Time by the writer's monotonic clock, in nanoseconds.
    pub at_ns: U64,
    /// A [`Kind`] by number.
    pub kind: u8,
    /// A [`Space`] by number, or 0 where none applies.
    pub space: u8,
    /// Number of the allocator's definition.
    pub allocator: U16,
    /// See [`flags`].
    pub flags: U16,
    /// Number of the core set's definition; 0: unknown.
    pub cores: U16,
    /// Device address, or the id of what has no address.
    pub id: U64,
    /// Requested bytes.
    pub requested: U64,
    /// Bytes in each bank that the allocator charges.
    pub bytes_per_bank: U64,
    /// Bytes beyond `requested` in the banks that hold the allocation, or [`PADDING_UNKNOWN`].
    pub padding: U32,
    /// Key of the program ([`ttmem_types::program_key`]), or 0.
    pub program: U32,
    /// Number of the call site's definition, or 0.
    pub site: U32,
    /// Slot of the table that this record fills or clears, or [`NO_SLOT`].
    pub slot: U32,
}

/// Padding that is unknown or too large for its field.
pub const PADDING_UNKNOWN: u32 = u32::MAX;
/// Slot of a record that changes none.
pub const NO_SLOT: u32 = u32::MAX;

/// Meanings of [`Record::flags`].
pub mod flags {
    /// A buffer of another allocator: it reduces the free space of this one, and is counted there.
    pub const MIRROR: u16 = 1;
    /// Of an audit: nothing was allocated or freed while the statistics were read, so they may be compared.
    pub const QUIET: u16 = 2;
    /// Of a free: it was not reported; the address was allocated again.
    pub const IMPLIED: u16 = 4;
    /// Of program memory: it is a view of a buffer, and the buffer is counted.
    pub const VIEW: u16 = 8;
    /// Of program memory: its address is unknown. `id` only distinguishes it from others.
    pub const UNPLACED: u16 = 16;
    /// The size is an estimate.
    pub const ESTIMATED: u16 = 32;
    /// Of program memory: dispatches of its program are not reported, so whether it is resident is unknown.
    pub const UNFOLLOWED: u16 = 64;
    /// Of a failure: `id` is what was available. Of a mark: `id` is its number.
    pub const MEASURED: u16 = 128;
    /// Of a failure: bits with its [`ttmem_types::FailureKind`] by number.
    pub const FAILURE: u16 = 127;
    /// Of the end of an allocator's allocations: the allocator stays open.
    pub const CLEARED: u16 = 256;
    /// Of a view: its address may differ at every dispatch. `id` is the address at which it was registered, and `padding` the
    /// number of the one that it has now among the [`crate::ViewAddresses`] of its program's last record.
    pub const MOVABLE: u16 = 1 << 13;
    /// Position of the [`ttmem_types::Layout`] of a buffer, three bits; mirrors and views have flags instead.
    pub const LAYOUT_SHIFT: u16 = 10;
    /// Position of the [`ttmem_types::KernelClass`] of a kernel or program, two bits.
    pub const CLASS_SHIFT: u16 = 8;

    use ttmem_types::{KernelClass, Layout, Uncertainty};

    /// Returns the flags of a buffer with this layout.
    #[inline]
    pub const fn of_layout(layout: Layout) -> u16 {
        match layout {
            Layout::Mirror => MIRROR,
            Layout::View => VIEW,
            _ => (layout as u16) << LAYOUT_SHIFT,
        }
    }

    /// Returns the flags of a kernel or program of this class.
    #[inline]
    pub const fn of_class(class: KernelClass) -> u16 {
        (class as u16) << CLASS_SHIFT
    }

    /// Returns the flags of program memory with these unknown properties.
    #[inline]
    pub const fn of_uncertainty(uncertainty: Uncertainty) -> u16 {
        let Uncertainty { unplaced, estimated, unfollowed } = uncertainty;
        (unplaced as u16 * UNPLACED) | (estimated as u16 * ESTIMATED) | (unfollowed as u16 * UNFOLLOWED)
    }
}

/// Bytes of a record.
pub const SIZE: usize = 64;
/// 8-byte words of a record.
pub const WORDS: usize = SIZE / 8;

const _: () = {
    assert!(size_of::<Record>() == SIZE && align_of::<Record>() == 1);
    assert!(offset_of!(Record, kind) == 16 && offset_of!(Record, allocator) == 18);
    assert!(offset_of!(Record, cores) == 22 && offset_of!(Record, id) == 24);
    assert!(offset_of!(Record, bytes_per_bank) == 40 && offset_of!(Record, padding) == 48);
    assert!(offset_of!(Record, program) == 52 && offset_of!(Record, slot) == 60);
};

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The length, which is not 64.
    Length(usize),
    /// The record was never written.
    Empty,
    /// The kind, which this version does not know.
    Kind(u8),
    /// The space, which this version does not know.
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

/// The word of a record with kind, space, allocator, flags and cores. A writer that searches for a slot compares this word,
/// not the whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(u64);

impl Head {
    /// Position of this word in a record.
    pub const WORD: usize = offset_of!(Record, kind) / 8;

    /// Returns the position of a field in the word, in bits.
    const fn shift(offset: usize) -> usize {
        (offset - 8 * Self::WORD) * 8
    }

    const SPACE: usize = Self::shift(offset_of!(Record, space));
    const ALLOCATOR: usize = Self::shift(offset_of!(Record, allocator));
    const FLAGS: usize = Self::shift(offset_of!(Record, flags));
    const CORES: usize = Self::shift(offset_of!(Record, cores));

    /// Returns the head of a record without flags and cores.
    #[inline]
    pub const fn new(kind: Kind, space: Option<Space>, allocator: u16) -> Self {
        let space = match space {
            Some(space) => space as u64,
            None => 0,
        };
        Self(kind as u64 | space << Self::SPACE | (allocator as u64) << Self::ALLOCATOR)
    }

    /// Returns the head in this word of a record.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns the head with another kind.
    #[inline]
    #[must_use]
    pub const fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !0xff | kind as u64)
    }

    /// Returns the head with other flags.
    #[inline]
    #[must_use]
    pub const fn with_flags(self, flags: u16) -> Self {
        Self(self.0 & !(0xffff << Self::FLAGS) | (flags as u64) << Self::FLAGS)
    }

    /// Returns [`Record::flags`].
    #[inline]
    pub const fn flags(self) -> u16 {
        (self.0 >> Self::FLAGS) as u16
    }

    /// Returns the head with another set of cores.
    #[inline]
    #[must_use]
    pub const fn with_cores(self, cores: u16) -> Self {
        Self(self.0 & !(0xffff << Self::CORES) | (cores as u64) << Self::CORES)
    }

    /// Returns kind, space and allocator as one number, to compare with others.
    #[inline]
    pub const fn identity(self) -> u64 {
        self.0 & ((1 << Self::FLAGS) - 1)
    }

    /// Returns space and allocator as one number, to compare with others.
    #[inline]
    pub const fn owner(self) -> u64 {
        self.identity() >> Self::SPACE
    }

    /// Returns [`Record::allocator`].
    #[inline]
    pub const fn allocator(self) -> u16 {
        (self.0 >> Self::ALLOCATOR) as u16
    }

    /// Returns [`Record::cores`].
    #[inline]
    pub const fn cores(self) -> u16 {
        (self.0 >> Self::CORES) as u16
    }
}

/// Positions of the words of a record that a writer compares.
pub mod word {
    use super::{Record, offset_of};

    /// [`Record::sequence`].
    pub const SEQUENCE: usize = offset_of!(Record, sequence) / 8;
    /// [`Record::at_ns`].
    pub const TIME: usize = offset_of!(Record, at_ns) / 8;
    /// [`Record::id`].
    pub const ID: usize = offset_of!(Record, id) / 8;
    /// [`Record::requested`].
    pub const REQUESTED: usize = offset_of!(Record, requested) / 8;
    /// [`Record::bytes_per_bank`].
    pub const BYTES_PER_BANK: usize = offset_of!(Record, bytes_per_bank) / 8;
    /// The word with [`Record::program`]; see [`program`].
    pub const PROGRAM: usize = offset_of!(Record, program) / 8;

    /// Returns the program in its word.
    #[inline]
    pub const fn program(word: u64) -> u32 {
        (word >> (8 * (offset_of!(Record, program) % 8))) as u32
    }
}

impl Record {
    /// Returns a record of this kind with everything else unknown and without a slot.
    #[inline]
    pub fn new(kind: Kind, space: Option<Space>, allocator: u16) -> Self {
        Self {
            kind: kind as u8,
            space: space.map_or(0, |space| space as u8),
            allocator: allocator.into(),
            slot: NO_SLOT.into(),
            ..Self::new_zeroed()
        }
    }

    /// Returns the record in these words.
    #[inline]
    pub fn from_words(words: [u64; WORDS]) -> Self {
        zerocopy::transmute!(words.map(U64::new))
    }

    /// Returns the record as words.
    #[inline]
    pub fn to_words(&self) -> [u64; WORDS] {
        let words: [U64; WORDS] = zerocopy::transmute!(*self);
        words.map(U64::get)
    }

    /// Returns the space, if this version knows its number.
    #[inline]
    pub fn space(&self) -> Option<Space> {
        Space::from_number(self.space)
    }

    /// Returns whether the memory is counted elsewhere: a mirror or a view.
    #[inline]
    pub fn is_alias(&self) -> bool {
        self.flags.get() & (flags::MIRROR | flags::VIEW) != 0
    }

    /// Returns the memory layout of a buffer.
    #[inline]
    pub fn layout(&self) -> Layout {
        let flags = self.flags.get();
        if flags & flags::MIRROR != 0 {
            return Layout::Mirror;
        }
        if flags & flags::VIEW != 0 {
            return Layout::View;
        }
        let layout = Layout::from_number((flags >> flags::LAYOUT_SHIFT) as u8 & 7);
        layout.filter(|layout| !layout.is_alias()).unwrap_or_default()
    }

    /// Returns the class of a kernel or program.
    #[inline]
    pub fn class(&self) -> KernelClass {
        KernelClass::from_number((self.flags.get() >> flags::CLASS_SHIFT) as u8 & 3).unwrap_or_default()
    }

    /// Returns the unknown properties of program memory.
    #[inline]
    pub fn uncertainty(&self) -> Uncertainty {
        let has = |flag: u16| self.flags.get() & flag != 0;
        Uncertainty {
            unplaced: has(flags::UNPLACED),
            estimated: has(flags::ESTIMATED),
            unfollowed: has(flags::UNFOLLOWED),
        }
    }

    /// Returns the number of a movable view among those of its program; `None` for any other record.
    #[inline]
    pub fn view_number(&self) -> Option<usize> {
        let movable = flags::VIEW | flags::MOVABLE;
        (self.flags.get() & movable == movable).then_some(self.padding.get() as usize)
    }

    /// Returns the requested bytes, 0 for an alias.
    #[inline]
    pub fn own_requested(&self) -> u64 {
        if self.is_alias() { 0 } else { self.requested.get() }
    }

    /// Returns the bytes that the allocation is charged on so many banks or cores; if that is unknown, the requested bytes.
    #[inline]
    pub fn charge(&self, banks: u16) -> u64 {
        if self.is_alias() {
            return 0;
        }
        charge(self.bytes_per_bank.get(), banks).unwrap_or(self.requested.get())
    }

    /// Reads and checks a record. Returns its kind and space as types, too.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Kind, Option<Space>), RecordError> {
        let record = Self::read_from_bytes(bytes).map_err(|_| RecordError::Length(bytes.len()))?;
        if record.sequence.get() == 0 {
            return Err(RecordError::Empty);
        }
        let kind = Kind::from_byte(record.kind).ok_or(RecordError::Kind(record.kind))?;
        let space = match record.space {
            0 => None,
            byte => Some(Space::from_number(byte).ok_or(RecordError::Space(byte))?),
        };
        Ok((record, kind, space))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_documented_offsets() {
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
    fn invalid_records_have_a_reason() {
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
