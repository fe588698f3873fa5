//! The segment: the file in which a tracked process publishes its device memory.
//!
//! ```text
//! header | rows | definitions | ring | table (grows at the end)
//! ```
//!
//! * **header**: identity of the writer, offsets of the areas, and a few words that change (see [`word`]).
//! * **rows**: one for each allocator and space in use, with its totals and its peak.
//! * **definitions**: chips, allocators, core sets and names, which are only appended ([`definition`]).
//! * **ring**: the last records, each with its sequence number.
//! * **table**: one slot for each live allocation, program, trace and audit, with its record.
//!
//! The writer stores `begun`, then the record, then the changes of table and rows, then `applied`. A reader copies words in any
//! order, and derives from these two numbers and the ring which changes it missed: see [`replay`].

pub mod definition;

use crate::record::{Kind, NO_SLOT, Record, SIZE};
use ttmem_types::Fault;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes of a segment. They are written last: a file without them is incomplete.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TTMEMSEG");
/// Major version. A reader reads segments of its own major version only.
pub const MAJOR: u16 = 1;
/// Minor version. A larger one adds fields and never changes the meaning of existing ones.
pub const MINOR: u16 = 2;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of one row: two copies of 64 bytes.
pub const ROW_BYTES: usize = 2 * ROW_COPY_BYTES;
/// Bytes of one copy of a row.
pub const ROW_COPY_BYTES: usize = 64;
/// Unit of a definition's size, in bytes.
pub const BLOCK: usize = 64;

/// Failed allocations that a header keeps.
pub const FAILURES: usize = 8;

/// Most slots that a reader accepts.
pub const MAX_SLOTS: u32 = 1 << 21;
/// Most records of a ring that a reader accepts.
pub const MAX_RING: u32 = 1 << 20;
/// Most rows that a reader accepts.
pub const MAX_ROWS: u32 = 1 << 14;
/// Most blocks of definitions that a reader accepts.
pub const MAX_BLOCKS: u32 = 1 << 18;

/// Prefix of file names, which are `ttmem.<pid>.<nonce>`: the pid in the process's own namespace, and the nonce in 16 hexadecimal
/// digits.
pub const FILE_PREFIX: &str = "ttmem.";

/// Prefix of the names of files that mark runs; a run's number follows, in 16 hexadecimal digits. While one is locked for writing, a
/// reader follows all processes of the run: their segments are left to that reader to remove.
pub const RUN_PREFIX: &str = "ttmem-run.";

/// Prefix of the name of a user's index; the user's number follows. It is a folder with an empty file for each of the user's segments,
/// with the same name. Writers find their user's segments there, however many other files there are.
pub const INDEX_PREFIX: &str = "ttmem-index.";

/// The environment variable with the number of the run, in 16 hexadecimal digits.
pub const RUN_VARIABLE: &str = "TTMEM_RUN";

/// What the names of copies end with that are made when allocations fail: of the first and of the last failure of a segment.
pub const FAILURE_SUFFIXES: [&str; 2] = [".first", ".last"];

/// What the name of such a copy ends with while it is written.
pub const UNFINISHED_SUFFIX: &str = ".new";

/// Returns the name of the segment that a copy with this name was made of.
pub fn parse_failure_name(name: &[u8]) -> Option<&[u8]> {
    let mut suffixes = FAILURE_SUFFIXES.iter().chain([&UNFINISHED_SUFFIX]);
    let segment = suffixes.find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    parse_name(segment).map(|_| segment)
}

/// Parses the number of a run.
pub fn parse_run(digits: &str) -> Option<u64> {
    let is_valid = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_valid.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Returns the pid and the nonce in a segment's file name.
pub fn parse_name(name: &[u8]) -> Option<(u32, u64)> {
    let name = core::str::from_utf8(name).ok()?.strip_prefix(FILE_PREFIX)?;
    let (pid, nonce) = name.split_once('.')?;
    let digits = |text: &str, all: fn(&u8) -> bool| text.as_bytes().iter().all(all);
    if !digits(pid, u8::is_ascii_digit) || nonce.len() != 16 || !digits(nonce, u8::is_ascii_hexdigit) {
        return None;
    }
    Some((pid.parse().ok()?, u64::from_str_radix(nonce, 16).ok()?))
}

/// The part of the header that does not change after the magic is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: U64,
    /// [`MAJOR`].
    pub major: U16,
    /// [`MINOR`].
    pub minor: U16,
    /// [`HEADER_BYTES`], or more in a later minor version.
    pub header_bytes: U32,
    /// Reserved, zero.
    pub flags: U64,
    /// Pid of the writer, in its own namespace.
    pub pid: U32,
    /// Effective user of the writer.
    pub uid: U32,
    /// Start time of the writer, in clock ticks since boot; 0: unknown.
    pub start_ticks: U64,
    /// Inode of the writer's pid namespace; 0: unknown.
    pub pid_namespace: U64,
    /// Nonce, as in the file's name.
    pub nonce: U64,
    /// Wall clock, in nanoseconds since 1970, at the moment `mono_ns`.
    pub wall_ns: U64,
    /// Monotonic clock, which is the clock of records.
    pub mono_ns: U64,
    /// Offset of the rows.
    pub rows_offset: U64,
    /// Offset of the definitions.
    pub definitions_offset: U64,
    /// Offset of the ring.
    pub ring_offset: U64,
    /// Offset of the table, which extends to the end of the file.
    pub table_offset: U64,
    /// Number of rows.
    pub rows: U32,
    /// Number of blocks of definitions.
    pub definition_blocks: U32,
    /// Number of records of the ring, a power of two. The record with sequence `s` is number `s mod ring_records`.
    pub ring_records: U32,
    /// [`ROW_BYTES`], or more in a later minor version.
    pub row_bytes: U32,
    /// Name of the program, zero-padded.
    pub program: [u8; 64],
    /// Name and version of the library that writes.
    pub writer: [u8; 32],
    /// Name and version of the tracked runtime, if there is one.
    pub runtime: [u8; 40],
    /// The run that the process belongs to, since version 1.1: all processes that one `ttmem run` started; 0: none.
    pub run: U64,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Header>() == 264);
    assert!(offset_of!(Header, pid) == 24 && offset_of!(Header, nonce) == 48);
    assert!(offset_of!(Header, rows_offset) == 72 && offset_of!(Header, rows) == 104);
    assert!(offset_of!(Header, program) == 120 && offset_of!(Header, writer) == 184);
    assert!(offset_of!(Header, runtime) == 216 && offset_of!(Header, run) == 256);
};

/// Offsets of the header's words that change. Each is an aligned 8-byte word.
pub mod word {
    /// Sequence of the newest record that the writer has begun.
    pub const BEGUN: usize = 512;
    /// Sequence of the newest record that is complete: ring, table and rows include it.
    pub const APPLIED: usize = 520;
    /// Number of slots of the table, which grows.
    pub const SLOTS: usize = 576;
    /// Blocks of definitions in use.
    pub const BLOCKS_USED: usize = 584;
    /// Rows in use.
    pub const ROWS_USED: usize = 592;
    /// Time of the writer's last refresh, by the monotonic clock.
    pub const HEARTBEAT_NS: usize = 600;
    /// State of the writer; see [`super::state`].
    pub const STATE: usize = 608;
    /// Hooks that are installed, one bit each; see [`crate::hooks`].
    pub const HOOKS_TAKEN: usize = 616;
    /// Hooks that were wanted.
    pub const HOOKS_WANTED: usize = 624;
    /// Processor time that tracking has cost the process, in nanoseconds, if known.
    pub const COST_NS: usize = 632;
    /// Sixteen pairs: the count of a [`ttmem_types::Fault`], and the id of its last occurrence.
    pub const FAULTS: usize = 640;
    /// 128 bytes of text: why there is no file, or why the segment is smaller than it should be.
    pub const REASON: usize = 896;
    /// The last [`super::FAILURES`] failures, each as its [`crate::record::Record`]. They stay when the ring has wrapped and their
    /// allocator is closed. The `n`-th failure, from 0, is at place `n mod FAILURES`. While it is overwritten, its sequence is 0.
    pub const FAILURES: usize = 1024;
    /// Definitions for which there was no space, since version 1.1: of frames and stacks, of call sites, of tensors.
    pub const LEFT_OUT: usize = 1536;
    /// Number of failures of all kinds, since version 1.1. The `n`-th, from 0, is at place `n mod FAILURES` of [`FAILURES`].
    pub const FAILED: usize = 1560;
    /// The last mark, as its [`crate::record::Record`], since version 1.1. While it is overwritten, its sequence is 0.
    pub const MARK: usize = 1600;
}

/// Values of [`word::STATE`].
pub mod state {
    /// The process is tracked, or was killed.
    pub const OPEN: u64 = 0;
    /// The process ended tracking. Readers count nothing of it.
    pub const CLOSED: u64 = 1;
    /// The process exits. The segment lists what it had allocated at that time.
    pub const EXITED: u64 = 2;
    /// This is a copy of a segment, made when an allocation failed. It never changes.
    pub const FAILED: u64 = 3;
}

/// The header's words that change, except `begun` and `applied`, as one struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Vitals {
    /// [`word::SLOTS`].
    pub slots: U64,
    /// [`word::BLOCKS_USED`].
    pub blocks_used: U64,
    /// [`word::ROWS_USED`].
    pub rows_used: U64,
    /// [`word::HEARTBEAT_NS`].
    pub heartbeat_ns: U64,
    /// [`word::STATE`].
    pub state: U64,
    /// [`word::HOOKS_TAKEN`].
    pub hooks_taken: U64,
    /// [`word::HOOKS_WANTED`].
    pub hooks_wanted: U64,
    /// [`word::COST_NS`].
    pub cost_ns: U64,
    /// [`word::FAULTS`]: count and last id.
    pub faults: [[U64; 2]; Fault::COUNTED],
    /// [`word::REASON`].
    pub reason: [u8; 128],
}

const _: () = {
    use core::mem::offset_of;
    assert!(word::SLOTS + size_of::<Vitals>() == 1024);
    assert!(word::SLOTS + offset_of!(Vitals, faults) == word::FAULTS);
    assert!(word::SLOTS + offset_of!(Vitals, reason) == word::REASON);
    assert!(word::FAILURES % SIZE == 0 && word::FAILURES + FAILURES * SIZE <= word::LEFT_OUT);
    assert!(word::MARK % SIZE == 0 && word::MARK >= word::FAILED + 8 && word::MARK + SIZE <= HEADER_BYTES);
};

/// One copy of a row. Of the two copies, the one with the larger sequence is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RowCopy {
    /// Sequence of the record that wrote the copy.
    pub sequence: U64,
    /// Number of the allocator.
    pub allocator: U16,
    /// A [`crate::record::Space`] by number.
    pub space: u8,
    reserved: [u8; 5],
    /// Requested bytes.
    pub requested: U64,
    /// Bytes that the allocator charges; for program memory, the sum over cores.
    pub allocated: U64,
    /// Live allocations.
    pub count: U64,
    /// Peak of `allocated` since the last reset.
    pub peak: U64,
    /// Live allocations that are not in the table.
    pub unlisted: U64,
    /// 1: the allocator is closed.
    pub closed: U64,
}

const _: () = assert!(size_of::<RowCopy>() == ROW_COPY_BYTES);

/// Returns the valid copy of a row; `None` if the row was never written.
pub fn newest_copy(row: &[u8]) -> Option<RowCopy> {
    let (first, rest) = RowCopy::read_from_prefix(row).ok()?;
    let (second, _) = RowCopy::read_from_prefix(rest).ok()?;
    let newest = if second.sequence.get() > first.sequence.get() { second } else { first };
    (newest.sequence.get() > 0).then_some(newest)
}

/// Sizes of the areas of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rows.
    pub rows: u32,
    /// Blocks of definitions.
    pub definition_blocks: u32,
    /// Records of the ring, a power of two.
    pub ring_records: u32,
    /// Slots of a new segment.
    pub slots: u32,
}

impl Plan {
    /// Returns the offset of the rows.
    pub const fn rows_offset(&self) -> usize {
        HEADER_BYTES
    }

    /// Returns the offset of the definitions.
    pub const fn definitions_offset(&self) -> usize {
        self.rows_offset() + self.rows as usize * ROW_BYTES
    }

    /// Returns the offset of the ring.
    pub const fn ring_offset(&self) -> usize {
        self.definitions_offset() + self.definition_blocks as usize * BLOCK
    }

    /// Returns the offset of the table.
    pub const fn table_offset(&self) -> usize {
        self.ring_offset() + self.ring_records as usize * SIZE
    }

    /// Returns the bytes of a file with so many slots.
    pub const fn bytes(&self, slots: u32) -> usize {
        self.table_offset() + slots as usize * SIZE
    }

    /// Returns a header with this plan and everything else zero.
    pub fn header(&self) -> Header {
        Header {
            major: MAJOR.into(),
            minor: MINOR.into(),
            header_bytes: (HEADER_BYTES as u32).into(),
            rows_offset: (self.rows_offset() as u64).into(),
            definitions_offset: (self.definitions_offset() as u64).into(),
            ring_offset: (self.ring_offset() as u64).into(),
            table_offset: (self.table_offset() as u64).into(),
            rows: self.rows.into(),
            definition_blocks: self.definition_blocks.into(),
            ring_records: self.ring_records.into(),
            row_bytes: (ROW_BYTES as u32).into(),
            ..Header::new_zeroed()
        }
    }
}

/// Why a file cannot be read as a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// The file has no header yet.
    BeingMade,
    /// The file does not begin with [`MAGIC`].
    Magic,
    /// Its major and minor version, which this reader does not read.
    Version(u16, u16),
    /// The file is too short for a header.
    Short,
    /// The field or area in which the header contradicts itself.
    Contradiction(&'static str),
    /// The area that has more elements than a reader accepts.
    TooMany(&'static str),
    /// The area that extends beyond the end of the file.
    Truncated(&'static str),
}

impl core::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::BeingMade => f.write_str("is still being made"),
            Self::Magic => f.write_str("is no segment"),
            Self::Version(major, minor) => {
                write!(f, "has version {major}.{minor}; this ttmem reads {MAJOR}.x")
            }
            Self::Short => f.write_str("is too short for a header"),
            Self::Contradiction(what) => write!(f, "contradicts itself: {what}"),
            Self::TooMany(what) => write!(f, "claims too many {what}"),
            Self::Truncated(what) => write!(f, "is shorter than its {what}"),
        }
    }
}

impl core::error::Error for SegmentError {}

/// Positions of the areas of a segment whose header was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows: offset, number, and bytes of each.
    pub rows: (u64, u32, u32),
    /// Definitions: offset, and number of blocks.
    pub definitions: (u64, u32),
    /// Ring: offset, and number of records.
    pub ring: (u64, u32),
    /// Offset of the table.
    pub table: u64,
}

impl Layout {
    /// Checks a header against itself and the file's length. Later reads stay within the areas that this returns.
    pub fn of(header: &Header, file_bytes: u64) -> Result<Self, SegmentError> {
        let (major, minor) = (header.major.get(), header.minor.get());
        match header.magic.get() {
            0 => return Err(SegmentError::BeingMade),
            MAGIC if major == MAJOR => {}
            MAGIC => return Err(SegmentError::Version(major, minor)),
            _ => return Err(SegmentError::Magic),
        }
        let (rows, blocks) = (header.rows.get(), header.definition_blocks.get());
        let (records, row_bytes) = (header.ring_records.get(), header.row_bytes.get());
        for (what, count, most) in [
            ("rows", rows, MAX_ROWS),
            ("definitions", blocks, MAX_BLOCKS),
            ("ring records", records, MAX_RING),
        ] {
            if count > most {
                return Err(SegmentError::TooMany(what));
            }
        }
        if !records.is_power_of_two() {
            return Err(SegmentError::Contradiction("ring length is no power of two"));
        }
        if (header.header_bytes.get() as usize) < HEADER_BYTES {
            return Err(SegmentError::Contradiction("header is too short"));
        }
        if !(ROW_BYTES as u32..=4096).contains(&row_bytes) || row_bytes % 8 != 0 {
            return Err(SegmentError::Contradiction("row length"));
        }
        // In this order and without overlap, so that no area can be read as another.
        let mut end = u64::from(header.header_bytes.get());
        let areas = [
            ("rows", header.rows_offset.get(), u64::from(rows) * u64::from(row_bytes)),
            ("definitions", header.definitions_offset.get(), u64::from(blocks) * BLOCK as u64),
            ("ring", header.ring_offset.get(), u64::from(records) * SIZE as u64),
            ("table", header.table_offset.get(), 0),
        ];
        for (what, offset, bytes) in areas {
            if offset < end || offset % 8 != 0 {
                return Err(SegmentError::Contradiction(what));
            }
            end = offset.checked_add(bytes).ok_or(SegmentError::Contradiction(what))?;
            if end > file_bytes {
                return Err(SegmentError::Truncated(what));
            }
        }
        Ok(Self {
            rows: (header.rows_offset.get(), rows, row_bytes),
            definitions: (header.definitions_offset.get(), blocks),
            ring: (header.ring_offset.get(), records),
            table: header.table_offset.get(),
        })
    }

    /// Returns the number of slots in the header, if the file has them.
    pub fn slots(&self, vitals: &Vitals, file_bytes: u64) -> Result<u32, SegmentError> {
        let slots = vitals.slots.get();
        if slots > u64::from(MAX_SLOTS) {
            return Err(SegmentError::TooMany("slots"));
        }
        if self.table + slots * SIZE as u64 > file_bytes {
            return Err(SegmentError::Truncated("table"));
        }
        Ok(slots as u32)
    }

    /// Returns the offset of the record with this sequence.
    pub fn record_offset(&self, sequence: u64) -> u64 {
        let (offset, records) = self.ring;
        offset + (sequence & u64::from(records - 1)) * SIZE as u64
    }
}

/// Returns the text in a fixed field, up to its first zero.
pub fn text(field: &[u8]) -> &str {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    match core::str::from_utf8(&field[..end]) {
        Ok(text) => text,
        // Cut where it is no longer valid text.
        Err(e) => core::str::from_utf8(&field[..e.valid_up_to()]).unwrap_or_default(),
    }
}

/// Writes text into a fixed field, as much as fits.
pub fn set_text(field: &mut [u8], text: &str) {
    field.fill(0);
    let mut end = text.len().min(field.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    field[..end].copy_from_slice(&text.as_bytes()[..end]);
}

/// Effect of a record on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// The record is stored in its slot.
    Put,
    /// The record's slot becomes free.
    Clear,
    /// The slots of the record's program become free.
    ClearProgram,
    /// The slots of the record's allocator become free.
    ClearAllocator,
    /// The table does not change.
    None,
}

/// Returns the effect of records of this kind on the table.
pub fn table_change(kind: Kind) -> TableChange {
    match kind {
        Kind::Alloc | Kind::ProgramBegin | Kind::Dispatch | Kind::Audit | Kind::Trace => TableChange::Put,
        Kind::Free | Kind::TraceEnd => TableChange::Clear,
        Kind::ProgramEnd => TableChange::ClearProgram,
        Kind::AllocatorEnd => TableChange::ClearAllocator,
        Kind::OutOfMemory
        | Kind::Failure
        | Kind::Refused
        | Kind::PeakReset
        | Kind::AllocatorBegin
        | Kind::Mark => TableChange::None,
    }
}

/// Applies a record to a copy of the table. Replayed in order, the records from `applied` before the copy to `begun` after it make
/// the copy exact, even if slots were copied while they changed: each of those is written or cleared by the last record that
/// changed it. A slot with sequence 0 is free.
pub fn replay(table: &mut Vec<Record>, record: &Record, kind: Kind) {
    let clear = |slots: &mut [Record], matches: &dyn Fn(&Record) -> bool| {
        for slot in slots.iter_mut().filter(|slot| slot.allocator == record.allocator && matches(slot)) {
            slot.sequence = 0.into();
        }
    };
    let slot = record.slot.get();
    match table_change(kind) {
        TableChange::Put if slot < MAX_SLOTS => {
            if table.len() <= slot as usize {
                table.resize(slot as usize + 1, Record::new_zeroed());
            }
            table[slot as usize] = *record;
        }
        TableChange::Clear if slot != NO_SLOT => {
            if let Some(slot) = table.get_mut(slot as usize) {
                slot.sequence = 0.into();
            }
        }
        TableChange::ClearProgram => clear(table, &|slot| slot.program == record.program),
        TableChange::ClearAllocator => clear(table, &|_| true),
        TableChange::Put | TableChange::Clear | TableChange::None => {}
    }
}

#[cfg(test)]
mod tests;
