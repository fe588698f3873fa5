//! Failed allocations with what was allocated at that time: from the copies that the tracker makes of its segment, else from the
//! segment itself, whose ring says what happened since.

use crate::event_sink::EventSink;
use crate::files::SkipReason;
use crate::follower::Follower;
use crate::segment::{Rewound, SegmentFile};
use crate::shm::ShmFolder;
use jiff::Timestamp;
use rustix::fd::AsFd;
use std::path::{Path, PathBuf};
use ttmem_core::words::{Basis, ProcessId};
use ttmem_wire::record::Record;
use ttmem_wire::segment::FAILURE_SUFFIXES;

/// Which failed allocation of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhichFailure {
    /// The last one.
    #[default]
    Last,
    /// The first one that is kept.
    First,
    /// That with this number among the events of its process.
    Number(u64),
}

/// A failed allocation, and the file from which the state at that time is read.
#[derive(Debug)]
pub struct FailureFile {
    /// The file.
    pub path: PathBuf,
    /// The file, opened.
    pub file: SegmentFile,
    /// Number of the failure among the events of its process.
    pub sequence: u64,
    /// When it failed.
    pub at: Timestamp,
    /// How many later failures the segment has.
    pub later: usize,
}

/// What a listing of an earlier time reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Everything is as it was at that time.
    Exact,
    /// The ring does not reach back so far. What is listed is exact from this time on.
    Later(Timestamp),
    /// Buffers were freed all at once, and are not listed.
    Incomplete,
}

impl FailureFile {
    /// A failure of a segment or of a copy of it. `open` opens a copy beside it, by suffix.
    fn of(
        path: &Path,
        file: SegmentFile,
        which: WhichFailure,
        open: impl Fn(&str) -> Option<(PathBuf, SegmentFile)>,
    ) -> Result<Option<Self>, SkipReason> {
        let failures = file.failures()?;
        let suffixes =
            if file.is_failure_copy() || failures.is_empty() { &[][..] } else { &FAILURE_SUFFIXES };
        let with_record = |(path, copy): (PathBuf, SegmentFile)| {
            let record = copy.failures().ok()?.pop()?;
            Some((path, copy, record))
        };
        let copies: Vec<(PathBuf, SegmentFile, Record)> =
            suffixes.iter().filter_map(|suffix| open(suffix)).filter_map(with_record).collect();
        // The header keeps only the last failures; the copy of the first one stays.
        let mut known = copies.iter().map(|(.., record)| record).chain(&failures);
        let wanted = match which {
            WhichFailure::Last => failures.last(),
            WhichFailure::First => known.min_by_key(|record| record.sequence.get()),
            WhichFailure::Number(number) => known.find(|record| record.sequence.get() == number),
        };
        let Some(&record) = wanted else { return Ok(None) };
        let later = failures.iter().filter(|it| it.sequence.get() > record.sequence.get()).count();
        let copy = copies.into_iter().find(|(.., it)| it.sequence == record.sequence);
        let (path, file) = copy.map_or((path.to_owned(), file), |(path, copy, _)| (path, copy));
        Ok(Some(Self::new(path, file, &record, later)))
    }

    fn new(path: PathBuf, file: SegmentFile, record: &Record, later: usize) -> Self {
        let at = file.wall_time(record.at_ns.get());
        Self { path, file, sequence: record.sequence.get(), at, later }
    }

    /// The failure of a file that a user named: a segment, or a copy of one.
    pub fn open(path: &Path, which: WhichFailure) -> Result<Option<Self>, SkipReason> {
        let open = |suffix: &str| {
            let mut copy = path.to_owned().into_os_string();
            copy.push(suffix);
            let copy = PathBuf::from(copy);
            Some((copy.clone(), SegmentFile::open_path(&copy).ok()?))
        };
        Self::of(path, SegmentFile::open_path(path)?, which, open)
    }

    /// The failure of a segment in a folder.
    pub(crate) fn find(folder: &ShmFolder, name: &str, which: WhichFailure) -> Option<Self> {
        let file = SegmentFile::open(folder.fd.as_fd(), name).ok()?;
        let open = |suffix: &str| {
            let copy = format!("{name}{suffix}");
            let file = SegmentFile::open(folder.fd.as_fd(), &copy).ok()?;
            Some((folder.path.join(copy), file))
        };
        Self::of(&folder.path.join(name), file, which, open).ok().flatten()
    }
}

/// Emits everything that was allocated when an allocation failed. The receiver must be empty.
pub fn emit_failure(
    failure: &FailureFile,
    process: ProcessId,
    sink: &mut impl EventSink,
) -> Result<Reached, SkipReason> {
    let emit = &mut |input| sink.emit(process, Basis::Exact, input);
    let Rewound { contents, is_complete, since_ns } =
        Follower::new(0).list_at(&failure.file, failure.sequence, emit)?;
    Ok(match since_ns {
        _ if contents.sequence > failure.sequence => {
            Reached::Later(since_ns.map_or(failure.at, |at| failure.file.wall_time(at)))
        }
        _ if is_complete => Reached::Exact,
        _ => Reached::Incomplete,
    })
}
