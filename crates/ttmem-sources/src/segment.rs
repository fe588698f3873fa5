//! One segment, read with `pread`: a file that is cut short while it is read cannot crash a reader that maps nothing.
//!
//! The writer never waits, so a copy is torn where it wrote meanwhile. `begun` and `applied` (see [`ttmem_wire::segment`])
//! tell which records may have torn it, and replaying those makes it whole.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use ttmem_wire::record::{Kind, NO_SLOT, Record, SIZE};
use ttmem_wire::segment::{
    BLOCK, FAILURES, Header, Layout, RowCopy, SegmentError, Vitals, newest_copy, parse_name, replay, state,
    word,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Why a file is not read.
#[derive(Debug)]
pub enum Skip {
    /// It is no regular file, but this.
    NotAFile(&'static str),
    /// It does not lie in memory: reading it could hang.
    NotInMemory,
    /// It has holes: a writer never makes such.
    Sparse,
    /// It is not what it should be.
    Malformed(SegmentError),
    /// Its name says something else than its header.
    Misnamed,
    /// It is another's than it claims to be.
    Foreign(String),
    /// It cannot be opened or read.
    Io(io::Error),
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFile(what) => write!(f, "is {what}, not a file"),
            Self::NotInMemory => f.write_str("is not in shared memory"),
            Self::Sparse => f.write_str("has holes"),
            Self::Malformed(e) => e.fmt(f),
            Self::Misnamed => f.write_str("is named for another segment"),
            Self::Foreign(why) => f.write_str(why),
            Self::Io(e) => write!(f, "cannot be read: {e}"),
        }
    }
}

impl From<io::Error> for Skip {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<rustix::io::Errno> for Skip {
    fn from(e: rustix::io::Errno) -> Self {
        Self::Io(e.into())
    }
}

impl From<SegmentError> for Skip {
    fn from(e: SegmentError) -> Self {
        Self::Malformed(e)
    }
}

/// `f_type` of filesystems in memory.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Whether a descriptor's filesystem lies in memory.
pub(crate) fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|it| [TMPFS, RAMFS].contains(&{ it.f_type }))
}

/// Refuses what is no regular file.
pub(crate) fn not_a_file(found: &rustix::fs::Stat) -> Result<(), Skip> {
    Err(Skip::NotAFile(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }))
}

/// Device and inode of a file: what tells it from others.
pub(crate) type FileId = (u64, u64);

/// How often a copy is tried before it is given out as approximate.
const TRIES: usize = 5;
/// Slots from which on a copy takes long.
const LARGE: usize = 1 << 18;
/// Slots read at a time.
const PIECE: usize = 256 << 10;

/// An open segment.
#[derive(Debug)]
pub struct SegmentFile {
    file: OwnedFd,
    header: Header,
    layout: Layout,
    pub(crate) id: FileId,
    pub(crate) uid: u32,
}

/// What a segment holds at one moment.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The last event it includes.
    pub sequence: u64,
    /// Whether it is exactly what was held after that event.
    pub exact: bool,
    /// What is held, by slot; free slots have the sequence 0.
    pub slots: Vec<Record>,
    /// What is held in all, by allocator and space.
    pub rows: Vec<RowCopy>,
}

impl SegmentFile {
    /// Opens a file of a folder. Nothing is followed, nothing but a regular file in memory is opened, and nothing waits.
    pub fn open(folder: BorrowedFd<'_>, name: &str) -> Result<Self, Skip> {
        let (handle, found) = look_at(folder, name)?;
        Self::open_found(&handle, &found, name)
    }

    /// Opens what [`look_at`] found.
    pub(crate) fn open_found(handle: &OwnedFd, found: &rustix::fs::Stat, name: &str) -> Result<Self, Skip> {
        let named = parse_name(name.as_bytes()).ok_or(Skip::Misnamed)?;
        not_a_file(found)?;
        if !is_in_memory(handle.as_fd()) {
            return Err(Skip::NotInMemory);
        }
        // A thread may have descriptors of its own.
        let again = format!("/proc/thread-self/fd/{}", handle.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(again, flags, Mode::empty())?;
        let segment = Self::check(file, found)?;
        let header = &segment.header;
        if (header.pid.get(), header.nonce.get()) != named {
            return Err(Skip::Misnamed);
        }
        Ok(segment)
    }

    /// Opens a file that a person named, wherever it lies.
    pub fn open_path(path: &std::path::Path) -> Result<Self, Skip> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        if !FileType::from_raw_mode(found.st_mode).is_file() {
            return Err(Skip::NotAFile("something else"));
        }
        Self::check(file, &found)
    }

    fn check(file: OwnedFd, found: &rustix::fs::Stat) -> Result<Self, Skip> {
        let bytes = found.st_size as u64;
        let mut header = Header::new_zeroed();
        if read_at(&file, header.as_mut_bytes(), 0)? < size_of::<Header>() {
            return Err(SegmentError::Short.into());
        }
        let layout = Layout::of(&header, bytes)?;
        if (found.st_blocks as u64).saturating_mul(512) < bytes {
            return Err(Skip::Sparse);
        }
        Ok(Self { file, header, layout, id: (found.st_dev, found.st_ino), uid: found.st_uid })
    }

    /// Who writes it, and where things are.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Sets its time of modification, which is all that a reader ever writes.
    pub(crate) fn touch(&self) {
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        let _ = rustix::fs::futimens(&self.file, &times);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |it| (it.st_blocks as u64).saturating_mul(512))
    }

    /// Whether the file still has a name.
    pub(crate) fn is_linked(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|it| it.st_nlink > 0)
    }

    /// Whether its process said that it exits.
    pub(crate) fn is_exited(&self) -> bool {
        self.vitals().is_ok_and(|it| it.state.get() == state::EXITED)
    }

    pub(crate) fn ring_records(&self) -> u64 {
        u64::from(self.layout.ring.1)
    }

    fn word_at(&self, offset: u64) -> Result<u64, Skip> {
        let mut word = [0; 8];
        self.read(&mut word, offset, "header")?;
        Ok(u64::from_le_bytes(word))
    }

    fn sequence_at(&self, offset: usize) -> Result<u64, Skip> {
        match self.word_at(offset as u64)? {
            // Nobody has come that far; and nothing that is added to it leaves 64 bits.
            sequence if sequence >> 62 != 0 => Err(SegmentError::Contradiction("sequence numbers").into()),
            sequence => Ok(sequence),
        }
    }

    fn read(&self, bytes: &mut [u8], offset: u64, what: &'static str) -> Result<(), Skip> {
        if read_at(&self.file, bytes, offset)? < bytes.len() {
            return Err(SegmentError::Truncated(what).into());
        }
        Ok(())
    }

    /// Sequence of the last event that has begun.
    pub(crate) fn begun(&self) -> Result<u64, Skip> {
        self.sequence_at(word::BEGUN)
    }

    /// Sequence of the last event that is done.
    pub fn applied(&self) -> Result<u64, Skip> {
        self.sequence_at(word::APPLIED)
    }

    /// The header's words that change.
    pub fn vitals(&self) -> Result<Vitals, Skip> {
        let mut vitals = Vitals::new_zeroed();
        self.read(vitals.as_mut_bytes(), word::SLOTS as u64, "header")?;
        Ok(vitals)
    }

    /// The last failed allocations, oldest first, without those that are overwritten just now.
    pub(crate) fn failures(&self) -> Result<Vec<Record>, Skip> {
        let read = || -> Result<_, Skip> {
            let mut records = [Record::new_zeroed(); FAILURES];
            self.read(records.as_mut_bytes(), word::FAILURES as u64, "header")?;
            Ok(records)
        };
        let (first, second) = (read()?, read()?);
        let whole = |it: &Record| it.sequence.get() != 0 && it.kind == Kind::OutOfMemory as u8;
        let same = first.into_iter().zip(second).filter(|(first, second)| first == second && whole(first));
        let mut failures: Vec<Record> = same.map(|(failure, _)| failure).collect();
        failures.sort_by_key(|failure| failure.sequence.get());
        Ok(failures)
    }

    /// The definitions from one block on, as bytes, and the block after them.
    pub(crate) fn definitions(&self, from: u32) -> Result<(Vec<u8>, u32), Skip> {
        let (offset, blocks) = self.layout.definitions;
        let used = self.vitals()?.blocks_used.get().min(u64::from(blocks)) as u32;
        if used < from {
            return Err(SegmentError::Contradiction("definitions were removed").into());
        }
        let mut bytes = vec![0; (used - from) as usize * BLOCK];
        self.read(&mut bytes, offset + u64::from(from) * BLOCK as u64, "definitions")?;
        Ok((bytes, used))
    }

    /// The records after `from` up to `to`, which are done or known to be whole; `None` if they are overwritten already.
    pub(crate) fn records(&self, from: u64, to: u64) -> Result<Option<Vec<Record>>, Skip> {
        let ring = self.ring_records();
        // `to` is before what the writer may be writing, so one place less than the ring has is safe at most.
        if to < from || to - from >= ring {
            return Ok(None);
        }
        let mut records = vec![Record::new_zeroed(); (to - from) as usize];
        let first = (from + 1) & (ring - 1);
        let before_wrap = ((ring - first) as usize).min(records.len());
        let (head, tail) = records.split_at_mut(before_wrap);
        for (part, sequence) in [(head, from + 1), (tail, from + 1 + before_wrap as u64)] {
            self.read(part.as_mut_bytes(), self.layout.record_offset(sequence), "ring")?;
        }
        // What was begun meanwhile overwrites the record one ring before it.
        if self.begun()? > from + ring {
            return Ok(None);
        }
        let in_order = records.iter().zip(from + 1..).all(|(record, n)| record.sequence.get() == n);
        Ok(in_order.then_some(records))
    }

    /// The last event that can be told: `applied`, or one more if its record is whole and only what it does is not.
    fn last_event(&self, begun: u64) -> Result<u64, Skip> {
        if self.applied()? >= begun {
            return Ok(begun);
        }
        // Its first word is written last. If it is not there, table and rows are untouched.
        let sequence = self.word_at(self.layout.record_offset(begun))?;
        Ok(if sequence == begun { begun } else { begun.saturating_sub(1) })
    }

    /// Everything that is held, exactly as of one event; or, if the writer is too fast for that, marked as not exact.
    pub fn contents(&self) -> Result<Contents, Skip> {
        let mut contents = self.copy()?;
        // A large one is not read again and again: others wait.
        let tries = if contents.slots.len() > LARGE { 2 } else { TRIES };
        for _ in 1..tries {
            if contents.exact {
                break;
            }
            contents = self.copy()?;
        }
        Ok(contents)
    }

    fn copy(&self) -> Result<Contents, Skip> {
        let before = self.applied()?;
        let mut slots = self.table()?;
        let rows = self.rows()?;
        let begun = self.begun()?;
        let last = self.last_event(begun)?.max(before);
        // Rows cannot be replayed, and are needed where not everything is listed.
        let unlisted = rows.iter().any(|row| row.unlisted.get() > 0);
        let exact = match self.records(before, last)? {
            Some(records) => {
                let came = |it: &Record| it.kind == Kind::Alloc as u8 && it.slot.get() == NO_SLOT;
                let torn = last != before && (unlisted || records.iter().any(came));
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

    fn table(&self) -> Result<Vec<Record>, Skip> {
        let found = rustix::fs::fstat(&self.file)?;
        let bytes = found.st_size as u64;
        // It may have been made larger since it was opened, without there being anything.
        if (found.st_blocks as u64).saturating_mul(512) < bytes {
            return Err(Skip::Sparse);
        }
        let slots = self.layout.slots(&self.vitals()?, bytes)? as usize;
        let mut table = Vec::new();
        let mut piece = vec![0; PIECE.min(slots * SIZE)];
        let mut done = 0;
        while done < slots {
            let len = piece.len().min((slots - done) * SIZE);
            self.read(&mut piece[..len], self.layout.table + (done * SIZE) as u64, "table")?;
            let part = <[Record]>::ref_from_bytes(&piece[..len]).unwrap_or_default();
            // What follows the last live slot is not kept.
            let live = part.iter().rposition(|slot| slot.sequence.get() != 0);
            if let Some(last) = live {
                table.resize(done, Record::new_zeroed());
                table.extend_from_slice(&part[..=last]);
            }
            done += len / SIZE;
        }
        Ok(table)
    }

    fn rows(&self) -> Result<Vec<RowCopy>, Skip> {
        let (offset, rows, row_bytes) = self.layout.rows;
        let used = self.vitals()?.rows_used.get().min(u64::from(rows)) as usize;
        let mut bytes = vec![0; used * row_bytes as usize];
        self.read(&mut bytes, offset, "rows")?;
        Ok(bytes.chunks_exact(row_bytes as usize).filter_map(newest_copy).collect())
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// Looks at a file of a folder without opening it (opening a device or a pipe may do something) and without leaving the
/// folder's filesystem: another one may be mounted on the file, served by a program that never answers.
pub(crate) fn look_at(folder: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, rustix::fs::Stat), Skip> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let handle = match rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve) {
        Err(rustix::io::Errno::XDEV) => return Err(Skip::NotInMemory),
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            rustix::fs::openat(folder, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    let found = rustix::fs::fstat(&handle)?;
    Ok((handle, found))
}

/// Opens a folder below another, through no link of any kind.
pub(crate) fn open_beneath(folder: BorrowedFd<'_>, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, and sandboxes that do not know the call: a single name cannot lead anywhere.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) if !path.contains('/') => {
            rustix::fs::openat(folder, path, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        opened => opened,
    }
}
