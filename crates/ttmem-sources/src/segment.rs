//! Reads one segment with `pread`: nothing is mapped, so a file that is truncated meanwhile cannot crash the reader.
//!
//! The writer never waits, so a copy is torn where it wrote meanwhile. `begun` and `applied` (see [`ttmem_wire::segment`])
//! bound the records that may have torn it, and replaying those makes the copy exact.

mod clock;

pub(crate) use clock::shifted;

use crate::files::{
    FileId, READ_ONLY, SkipReason, file_id, find_file, is_in_memory, open_found, read_at,
    require_regular_file,
};
use clock::{WriterClock, is_in_other_time_namespace};
use jiff::Timestamp;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, Stat};
use ttmem_wire::record::{Kind, NO_SLOT, Record, SIZE, flags};
use ttmem_wire::segment::{
    BLOCK, FAILURES, Header, Layout, MAX_SLOTS, RowCopy, SegmentError, Vitals, newest_copy,
    parse_failure_name, parse_name, replay, state, word,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Attempts at an exact copy before an approximate one is returned.
const TRIES: usize = 5;
/// Number of slots above which a copy takes long.
const LARGE: usize = 1 << 18;
/// Bytes of the table that are read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// An open segment.
#[derive(Debug)]
pub struct SegmentFile {
    file: OwnedFd,
    header: Header,
    layout: Layout,
    pub(crate) id: FileId,
    pub(crate) uid: u32,
    clock: WriterClock,
}

/// The content of a segment at one moment.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Sequence number of the last event that it includes.
    pub sequence: u64,
    /// Whether it is exactly the state after that event.
    pub exact: bool,
    /// Live allocations, programs, traces and audits by slot; free slots have the sequence number 0.
    pub slots: Vec<Record>,
    /// Totals by allocator and space.
    pub rows: Vec<RowCopy>,
}

/// What a segment held at an earlier time.
pub(crate) struct Rewound {
    /// `sequence` is the event up to which it was possible to go back.
    pub(crate) contents: Contents,
    /// Whether every buffer is known that was held then.
    pub(crate) is_complete: bool,
    /// Time of the event after that one, by the monotonic clock.
    pub(crate) since_ns: Option<u64>,
}

/// Undoes an event. Returns whether all buffers that it freed are known.
fn undo(contents: &mut Contents, record: &Record) -> bool {
    let slot = record.slot.get() as usize;
    let has_slot = record.slot.get() < MAX_SLOTS;
    match Kind::from_byte(record.kind) {
        Some(Kind::Alloc | Kind::ProgramBegin) => {
            if let Some(slot) = contents.slots.get_mut(slot) {
                slot.sequence = 0.into();
            }
            has_slot
        }
        Some(Kind::Free) => {
            if has_slot && contents.slots.len() <= slot {
                contents.slots.resize(slot + 1, Record::new_zeroed());
            }
            // The record repeats that of the allocation, except its number and time.
            let flags = record.flags.get() & !flags::IMPLIED;
            let held = Record { kind: Kind::Alloc as u8, flags: flags.into(), ..*record };
            contents.slots.get_mut(slot).map(|slot| *slot = held).is_some()
        }
        Some(Kind::AllocatorEnd) => {
            let rows = contents.rows.iter_mut().filter(|row| row.allocator == record.allocator);
            rows.for_each(|row| row.closed = 0.into());
            record.padding.get() == 1
        }
        // Memory of programs is not restored: no post-mortem needs it.
        _ => true,
    }
}

/// Records that a ring still holds, in order.
pub(crate) struct KeptRecords {
    pub(crate) records: Vec<Record>,
    /// Whether the record before them was overwritten.
    pub(crate) overwritten: bool,
}

impl SegmentFile {
    /// Opens a segment of a folder. Links are not followed, and only regular files in memory are opened.
    pub fn open(folder: BorrowedFd<'_>, name: &str) -> Result<Self, SkipReason> {
        let (handle, stat) = find_file(folder, name)?;
        Self::open_found(&handle, &stat, name)
    }

    /// Opens a segment that [`find_file`] found, or a copy of one.
    pub(crate) fn open_found(handle: &OwnedFd, stat: &Stat, name: &str) -> Result<Self, SkipReason> {
        let segment_name = parse_failure_name(name.as_bytes()).unwrap_or(name.as_bytes());
        let named = parse_name(segment_name).ok_or(SkipReason::Misnamed)?;
        require_regular_file(stat)?;
        if !is_in_memory(handle.as_fd()) {
            return Err(SkipReason::NotInMemory);
        }
        let segment = Self::check(open_found(handle)?, stat)?;
        let header = &segment.header;
        if (header.pid.get(), header.nonce.get()) != named {
            return Err(SkipReason::Misnamed);
        }
        Ok(segment)
    }

    /// Opens a file by its path, on any filesystem: for files that a user named.
    pub fn open_path(path: &std::path::Path) -> Result<Self, SkipReason> {
        let file = rustix::fs::open(path, READ_ONLY, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(SkipReason::NotAFile("something else"));
        }
        Self::check(file, &stat)
    }

    fn check(file: OwnedFd, stat: &Stat) -> Result<Self, SkipReason> {
        let bytes = stat.st_size as u64;
        let mut header = Header::new_zeroed();
        if read_at(&file, header.as_mut_bytes(), 0)? < size_of::<Header>() {
            return Err(SegmentError::Short.into());
        }
        let layout = Layout::of(&header, bytes)?;
        if (stat.st_blocks as u64).saturating_mul(512) < bytes {
            return Err(SkipReason::Sparse);
        }
        let clock = WriterClock::new(&header, || is_in_other_time_namespace(&file, &header));
        Ok(Self { file, header, layout, id: file_id(stat), uid: stat.st_uid, clock })
    }

    /// The header: which process writes it, and where its areas are.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Sets its modification time, by which readers request an audit. Readers write nothing else.
    pub(crate) fn touch(&self) {
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        let _ = rustix::fs::futimens(&self.file, &times);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes that it takes of its filesystem.
    pub fn bytes(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |it| (it.st_blocks as u64).saturating_mul(512))
    }

    /// Whether the file still has a name.
    pub(crate) fn is_linked(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|it| it.st_nlink > 0)
    }

    /// Whether it is a copy that was made when an allocation failed.
    pub fn is_failure_copy(&self) -> bool {
        self.vitals().is_ok_and(|it| it.state.get() == state::FAILED)
    }

    /// Whether its process marked it as exited.
    pub(crate) fn is_exited(&self) -> bool {
        self.vitals().is_ok_and(|it| it.state.get() == state::EXITED)
    }

    /// Whether its writer will write nothing more.
    pub(crate) fn is_finished(&self) -> bool {
        self.vitals().is_ok_and(|it| [state::CLOSED, state::EXITED].contains(&it.state.get()))
    }

    pub(crate) fn ring_records(&self) -> u64 {
        u64::from(self.layout.ring.1)
    }

    fn read_word(&self, offset: u64) -> Result<u64, SkipReason> {
        let mut word = [0; 8];
        self.read(&mut word, offset, "header")?;
        Ok(u64::from_le_bytes(word))
    }

    fn read_sequence(&self, offset: usize) -> Result<u64, SkipReason> {
        match self.read_word(offset as u64)? {
            // No writer counts this far, and sums with smaller numbers must not overflow.
            sequence if sequence >> 62 != 0 => Err(SegmentError::Contradiction("sequence numbers").into()),
            sequence => Ok(sequence),
        }
    }

    fn read(&self, bytes: &mut [u8], offset: u64, what: &'static str) -> Result<(), SkipReason> {
        if read_at(&self.file, bytes, offset)? < bytes.len() {
            return Err(SegmentError::Truncated(what).into());
        }
        Ok(())
    }

    /// Sequence number of the last event that has begun.
    pub(crate) fn begun(&self) -> Result<u64, SkipReason> {
        self.read_sequence(word::BEGUN)
    }

    /// Sequence number of the last event that is complete.
    pub fn applied(&self) -> Result<u64, SkipReason> {
        self.read_sequence(word::APPLIED)
    }

    /// The part of the header that changes.
    pub fn vitals(&self) -> Result<Vitals, SkipReason> {
        let mut vitals = Vitals::new_zeroed();
        self.read(vitals.as_mut_bytes(), word::SLOTS as u64, "header")?;
        Ok(vitals)
    }

    /// Number of definitions for which there was no space.
    pub(crate) fn left_out(&self) -> Result<u64, SkipReason> {
        let mut sum = 0u64;
        for n in 0..3 {
            sum = sum.saturating_add(self.read_word((word::LEFT_OUT + n * 8) as u64)?);
        }
        Ok(sum)
    }

    /// Number of failures, also of those that were not out of memory; 0 in a segment of version 1.0.
    pub(crate) fn failed(&self) -> Result<u64, SkipReason> {
        self.read_word(word::FAILED as u64)
    }

    /// The last failures, oldest first, without any that is being overwritten.
    pub fn failures(&self) -> Result<Vec<Record>, SkipReason> {
        let read = || -> Result<_, SkipReason> {
            let mut records = [Record::new_zeroed(); FAILURES];
            self.read(records.as_mut_bytes(), word::FAILURES as u64, "header")?;
            Ok(records)
        };
        let (first, second) = (read()?, read()?);
        let kinds = [Kind::OutOfMemory as u8, Kind::Failure as u8];
        let whole = |it: &Record| it.sequence.get() != 0 && kinds.contains(&it.kind);
        let stable = first.into_iter().zip(second).filter(|(first, second)| first == second && whole(first));
        let mut failures: Vec<Record> = stable.map(|(failure, _)| failure).collect();
        failures.sort_by_key(|failure| failure.sequence.get());
        Ok(failures)
    }

    /// The last mark, unless it is being overwritten.
    pub(crate) fn mark(&self) -> Result<Option<Record>, SkipReason> {
        let read = || -> Result<_, SkipReason> {
            let mut record = Record::new_zeroed();
            self.read(record.as_mut_bytes(), word::MARK as u64, "header")?;
            Ok(record)
        };
        let (first, second) = (read()?, read()?);
        let is_whole = first == second && first.sequence.get() != 0 && first.kind == Kind::Mark as u8;
        Ok(is_whole.then_some(first))
    }

    /// The definitions from block `from` on, as bytes, and the number of the block after them.
    pub(crate) fn definitions(&self, from: u32) -> Result<(Vec<u8>, u32), SkipReason> {
        let (offset, blocks) = self.layout.definitions;
        let used = self.vitals()?.blocks_used.get().min(u64::from(blocks)) as u32;
        if used < from {
            return Err(SegmentError::Contradiction("definitions were removed").into());
        }
        let mut bytes = vec![0; (used - from) as usize * BLOCK];
        self.read(&mut bytes, offset + u64::from(from) * BLOCK as u64, "definitions")?;
        Ok((bytes, used))
    }

    /// The records after `from` up to `to`, all of which must be completely written; `None` if any has been overwritten.
    pub(crate) fn records(&self, from: u64, to: u64) -> Result<Option<Vec<Record>>, SkipReason> {
        let ring = self.ring_records();
        // The writer may be writing the record after `to`, which overwrites one place of the ring.
        if to < from || to - from >= ring {
            return Ok(None);
        }
        let records = self.read_ring(from, to)?;
        // An event that has begun meanwhile overwrites the record one ring length before it.
        if self.begun()? > from + ring {
            return Ok(None);
        }
        let in_order = records.iter().zip(from + 1..).all(|(record, n)| record.sequence.get() == n);
        Ok(in_order.then_some(records))
    }

    /// Copies the places of the records after `from` up to `to`, at most as many as the ring has.
    fn read_ring(&self, from: u64, to: u64) -> Result<Vec<Record>, SkipReason> {
        let ring = self.ring_records();
        let mut records = vec![Record::new_zeroed(); (to - from) as usize];
        let first = (from + 1) & (ring - 1);
        let before_wrap = ((ring - first) as usize).min(records.len());
        let (head, tail) = records.split_at_mut(before_wrap);
        for (part, sequence) in [(head, from + 1), (tail, from + 1 + before_wrap as u64)] {
            self.read(part.as_mut_bytes(), self.layout.record_offset(sequence), "ring")?;
        }
        Ok(records)
    }

    /// The records after `after` up to `to` that the ring still holds: the oldest `most` of them.
    pub(crate) fn kept_records(&self, after: u64, to: u64, most: u64) -> Result<KeptRecords, SkipReason> {
        let ring = self.ring_records();
        let (mut from, mut overwritten) = (after, false);
        loop {
            let oldest = self.begun()?.saturating_sub(ring);
            overwritten |= oldest > from;
            from = from.max(oldest);
            let end = to.min(from.saturating_add(most.clamp(1, ring)));
            if end <= from {
                return Ok(KeptRecords { records: Vec::new(), overwritten });
            }
            let mut records = self.read_ring(from, end)?;
            // An event that has begun meanwhile overwrites the record one ring length before it.
            let begun = self.begun()?;
            let is_kept = |&(record, n): &(&Record, u64)| record.sequence.get() == n && begun < n + ring;
            let kept = records.iter().rev().zip((from + 1..=end).rev()).take_while(is_kept).count();
            let dropped = records.len() - kept;
            if let Some(last) = dropped.checked_sub(1) {
                // A segment that continues another has places that were never written.
                overwritten = records[last].sequence.get() != 0;
            }
            if kept > 0 {
                records.drain(..dropped);
                return Ok(KeptRecords { records, overwritten });
            }
            from = end;
        }
    }

    /// A time of this segment's clock as a time of the wall clock.
    pub fn wall_time(&self, at_ns: u64) -> Timestamp {
        let at = self.clock.wall_offset + i128::from(at_ns);
        Timestamp::from_nanosecond(at).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Our monotonic clock minus that of this segment, in nanoseconds.
    pub(crate) fn clock_shift(&self) -> i128 {
        self.clock.shift
    }

    /// The last event that can be read: `applied`, or one more if its record is complete and only its effects are not.
    fn last_readable_event(&self, begun: u64) -> Result<u64, SkipReason> {
        if self.applied()? >= begun {
            return Ok(begun);
        }
        // The sequence number is written last. Without it, table and rows are untouched.
        let sequence = self.read_word(self.layout.record_offset(begun))?;
        Ok(if sequence == begun { begun } else { begun.saturating_sub(1) })
    }

    /// Copies everything that is held, exactly as of one event; if the writer is too fast for that, marked as not exact.
    pub fn contents(&self) -> Result<Contents, SkipReason> {
        let mut contents = self.copy_once()?;
        // A large segment is read only twice, since others wait.
        let tries = if contents.slots.len() > LARGE { 2 } else { TRIES };
        for _ in 1..tries {
            if contents.exact {
                break;
            }
            contents = self.copy_once()?;
        }
        Ok(contents)
    }

    /// Returns what was held right after event `sequence`, by undoing later events from what is held now, as far back as the ring
    /// reaches.
    pub(crate) fn contents_at(&self, sequence: u64) -> Result<Rewound, SkipReason> {
        let mut contents = self.contents()?;
        let KeptRecords { records, .. } = self.kept_records(sequence, contents.sequence, u64::MAX)?;
        let oldest = records.first().map(|record| record.sequence.get());
        // Only what is held now, if not even the last record is left.
        let reached = oldest.map_or(contents.sequence, |oldest| oldest - 1).max(sequence);
        let mut is_complete = contents.exact;
        for record in records.iter().rev() {
            is_complete &= undo(&mut contents, record);
        }
        contents.sequence = reached;
        Ok(Rewound { contents, is_complete, since_ns: records.first().map(|record| record.at_ns.get()) })
    }

    fn copy_once(&self) -> Result<Contents, SkipReason> {
        let before = self.applied()?;
        let mut slots = self.read_table()?;
        let rows = self.read_rows()?;
        let begun = self.begun()?;
        let last = self.last_readable_event(begun)?.max(before);
        // Rows cannot be replayed, and count where not every allocation has a slot.
        let unlisted = rows.iter().any(|row| row.unlisted.get() > 0);
        let exact = match self.records(before, last)? {
            Some(records) => {
                let has_no_slot = |it: &Record| it.kind == Kind::Alloc as u8 && it.slot.get() == NO_SLOT;
                let torn = last != before && (unlisted || records.iter().any(has_no_slot));
                for record in &records {
                    if let Some(kind) = Kind::from_byte(record.kind) {
                        replay(&mut slots, record, kind);
                    }
                }
                !torn
            }
            None => false,
        };
        Ok(Contents { sequence: last, exact, slots, rows })
    }

    fn read_table(&self) -> Result<Vec<Record>, SkipReason> {
        let stat = rustix::fs::fstat(&self.file)?;
        let bytes = stat.st_size as u64;
        // It may have been extended with holes since it was opened.
        if (stat.st_blocks as u64).saturating_mul(512) < bytes {
            return Err(SkipReason::Sparse);
        }
        let slots = self.layout.slots(&self.vitals()?, bytes)? as usize;
        let mut table = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES.min(slots * SIZE)];
        let mut done = 0;
        while done < slots {
            let len = chunk.len().min((slots - done) * SIZE);
            self.read(&mut chunk[..len], self.layout.table + (done * SIZE) as u64, "table")?;
            let part = <[Record]>::ref_from_bytes(&chunk[..len]).unwrap_or_default();
            // Free slots after the last live one are not kept.
            let live = part.iter().rposition(|slot| slot.sequence.get() != 0);
            if let Some(last) = live {
                table.resize(done, Record::new_zeroed());
                table.extend_from_slice(&part[..=last]);
            }
            done += len / SIZE;
        }
        Ok(table)
    }

    fn read_rows(&self) -> Result<Vec<RowCopy>, SkipReason> {
        let (offset, rows, row_bytes) = self.layout.rows;
        let used = self.vitals()?.rows_used.get().min(u64::from(rows)) as usize;
        let mut bytes = vec![0; used * row_bytes as usize];
        self.read(&mut bytes, offset, "rows")?;
        Ok(bytes.chunks_exact(row_bytes as usize).filter_map(newest_copy).collect())
    }
}
