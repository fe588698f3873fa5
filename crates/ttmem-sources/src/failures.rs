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
    /// The last failure, or the first one that is kept, of a segment or of a copy of it. `open` opens a copy beside it, by suffix.
    fn of(
        path: &Path,
        file: SegmentFile,
        first: bool,
        open: impl Fn(&str) -> Option<(PathBuf, SegmentFile)>,
    ) -> Result<Option<Self>, SkipReason> {
        let failures = file.failures()?;
        let newest = failures.last().map(|record| record.sequence.get());
        let mut wanted: Option<(usize, Record)> = failures.iter().copied().enumerate().next_back();
        if first && !file.is_failure_copy() {
            // The header keeps only the last ones; the copy of the first one stays.
            let copied = open(FAILURE_SUFFIXES[0]).and_then(|(path, copy)| {
                let record = copy.failures().ok()?.pop()?;
                Some((path, copy, record))
            });
            if let Some((path, copy, record)) = copied {
                let later = failures.iter().filter(|it| it.sequence > record.sequence).count();
                return Ok(Some(Self::new(path, copy, &record, later)));
            }
            wanted = failures.iter().copied().enumerate().next();
        }
        let Some((place, record)) = wanted else { return Ok(None) };
        let later = failures.len() - 1 - place;
        if !file.is_failure_copy() && Some(record.sequence.get()) == newest {
            let of_failure = |copy: &SegmentFile| {
                copy.failures().is_ok_and(|all| all.last().is_some_and(|it| it.sequence == record.sequence))
            };
            let copies = FAILURE_SUFFIXES.iter().rev().filter_map(|suffix| open(suffix));
            for (path, copy) in copies {
                if of_failure(&copy) {
                    return Ok(Some(Self::new(path, copy, &record, later)));
                }
            }
        }
        Ok(Some(Self::new(path.to_owned(), file, &record, later)))
    }

    fn new(path: PathBuf, file: SegmentFile, record: &Record, later: usize) -> Self {
        let at = file.wall_time(record.at_ns.get());
        Self { path, file, sequence: record.sequence.get(), at, later }
    }

    /// The failure of a file that a user named: a segment, or a copy of one.
    pub fn open(path: &Path, first: bool) -> Result<Option<Self>, SkipReason> {
        let open = |suffix: &str| {
            let mut copy = path.to_owned().into_os_string();
            copy.push(suffix);
            let copy = PathBuf::from(copy);
            Some((copy.clone(), SegmentFile::open_path(&copy).ok()?))
        };
        Self::of(path, SegmentFile::open_path(path)?, first, open)
    }

    /// The failure of a segment in a folder.
    pub(crate) fn find(folder: &ShmFolder, name: &str, first: bool) -> Option<Self> {
        let file = SegmentFile::open(folder.fd.as_fd(), name).ok()?;
        let open = |suffix: &str| {
            let copy = format!("{name}{suffix}");
            let file = SegmentFile::open(folder.fd.as_fd(), &copy).ok()?;
            Some((folder.path.join(copy), file))
        };
        Self::of(&folder.path.join(name), file, first, open).ok().flatten()
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
