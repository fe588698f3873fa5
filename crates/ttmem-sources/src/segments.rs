//! All segments of the machine: those of live processes are followed, those of exited ones kept as crash segments.

mod crash;
mod recent;

pub use self::crash::Retention;
pub use self::recent::RecentRecords;

use self::crash::{CrashSegment, CrashSegments};
use crate::event_sink::{EventSink, SegmentEvent};
use crate::files::{FileId, SkipReason, file_id, find_file};
use crate::follower::{Follower, ProcessSink};
use crate::listing::{ListedFile, Listings};
use crate::lock::LockHolder;
use crate::pace::Pace;
use crate::process::{ProcessIdentity, Processes};
use crate::segment::SegmentFile;
use crate::shm::ShmFolder;
use crate::writer::{PidIndex, Writer, find_writer, segment_lock_holder};
use rustix::fd::AsFd;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use ttmem_core::input::Input;
use ttmem_core::snapshot::Skipped;
use ttmem_core::words::{Basis, Mono, ProcessId};
use ttmem_wire::segment::SegmentError;

/// Skipped files that are reported.
const MAX_SKIPPED: usize = 64;
/// Polls after which a skipped file is tried again.
const POLLS_BETWEEN_TRIES: u64 = 8;
/// Segments of one user's processes that are followed. More of them hide only that user's own.
const MAX_LIVE_PER_USER: usize = 1024;
/// Segments of one process. Its definitions are numbered by segment, with this many numbers.
const MAX_SEGMENTS_PER_PROCESS: u32 = 128;

/// A segment whose process is alive.
struct LiveSegment {
    file: SegmentFile,
    follower: Follower,
    pace: Pace,
    process: ProcessId,
    /// Its number among the segments of its process.
    index: u32,
    /// The holder of its lock at the last poll.
    holder: LockHolder,
    path: PathBuf,
    /// Why it could not be read at the last poll.
    error: Option<String>,
}

/// A file that is not read.
struct SkippedFile {
    path: PathBuf,
    reason: String,
    /// The poll at which it is tried again: a folder full of such files must not take all the time.
    retry_at: u64,
}

/// What a poll needs besides the segments.
pub(crate) struct Context<'a> {
    pub(crate) now: Mono,
    pub(crate) folders: &'a [ShmFolder],
    pub(crate) listings: &'a Listings,
    pub(crate) processes: &'a Processes,
    pub(crate) pid_index: &'a PidIndex,
}

/// All segments.
#[derive(Default)]
pub(crate) struct Segments {
    /// The machine's folder for shared memory.
    folder: PathBuf,
    /// The only run that is read; `None`: everything is.
    run: Option<u64>,
    /// Files of other runs.
    others: BTreeSet<FileId>,
    live: BTreeMap<FileId, LiveSegment>,
    crashed: CrashSegments,
    skipped: BTreeMap<FileId, SkippedFile>,
    polls: u64,
    /// The last number of a segment of each process.
    last_index: BTreeMap<ProcessId, u32>,
}

impl Segments {
    /// The segments in this folder, on the machine and in containers; of one run, or all.
    pub(crate) fn new(folder: &Path, run: Option<u64>) -> Self {
        Self { folder: folder.to_owned(), run, ..Self::default() }
    }

    /// Emits what happened since the last poll in segments whose writers are busy.
    pub(crate) fn poll_busy(&mut self, context: &Context<'_>, sink: &mut impl EventSink) {
        let busy = self.live.iter().filter(|(_, it)| it.pace.due().is_some());
        let ids: Vec<FileId> = busy.map(|(&id, _)| id).collect();
        for id in ids {
            self.poll_segment(id, context, sink);
        }
    }

    /// When the next ring must be read, so that none is more than half full; `None`: all writers are idle.
    pub(crate) fn next_due(&self) -> Option<Mono> {
        self.live.values().filter_map(|it| it.pace.due()).min()
    }

    /// Emits what happened in all segments since the last poll, and opens new ones.
    pub(crate) fn poll(&mut self, context: &Context<'_>, sink: &mut impl EventSink) {
        self.skipped.retain(|id, _| id.0 != u64::MAX);
        // Open segments come first, so that no event of theirs is missed because there are many new files.
        let ids: Vec<FileId> = self.live.keys().copied().collect();
        for id in ids {
            self.poll_segment(id, context, sink);
        }
        let mut seen = BTreeSet::new();
        self.polls += 1;
        for (folder, listing) in context.listings.of(context.folders) {
            for ListedFile { name, inode } in &listing.segments {
                // A known file is recognised by its inode, without a system call.
                let id = (folder.id.0, *inode);
                if self.is_open(id) || self.waits(id, name) {
                    seen.insert(id);
                    continue;
                }
                if let Some(id) = self.try_open(folder, name, context, sink) {
                    seen.insert(id);
                }
            }
        }
        self.skipped.retain(|id, _| seen.contains(id));
        self.others.retain(|id| seen.contains(id));
        self.crashed.retain_existing(&seen);
    }

    fn is_open(&self, id: FileId) -> bool {
        self.live.contains_key(&id) || self.crashed.contains(id) || self.others.contains(&id)
    }

    /// Whether a skipped file is not tried again yet. In a run, a file that is being made must not be missed.
    fn waits(&self, id: FileId, name: &str) -> bool {
        let skipped = self.skipped.get(&id).filter(|_| self.run.is_none());
        skipped.is_some_and(|it| it.path.ends_with(name) && self.polls < it.retry_at)
    }

    /// Opens a file and starts to follow it, or notes why not. Returns its id, unless it is gone.
    fn try_open(
        &mut self,
        folder: &ShmFolder,
        name: &str,
        context: &Context<'_>,
        sink: &mut impl EventSink,
    ) -> Option<FileId> {
        let path = folder.path.join(name);
        let (handle, stat) = match find_file(folder.fd.as_fd(), name) {
            Ok(found) => found,
            Err(SkipReason::Io(_)) => return None,
            Err(why) => {
                // Its id is unknown; a number that no file has takes its place.
                let id = (u64::MAX, self.skipped.len() as u64);
                self.skipped.insert(id, SkippedFile { path, reason: why.to_string(), retry_at: 0 });
                return Some(id);
            }
        };
        let id = file_id(&stat);
        if self.is_open(id) || self.waits(id, name) {
            return Some(id);
        }
        let opened = SegmentFile::open_found(&handle, &stat, name)
            .and_then(|file| self.add(folder, file, (name, &path), context, sink));
        match opened {
            Ok(()) | Err(SkipReason::Malformed(SegmentError::BeingMade)) => {
                self.skipped.remove(&id);
            }
            Err(why) => {
                let retry_at = self.polls + POLLS_BETWEEN_TRIES;
                self.skipped.insert(id, SkippedFile { path, reason: why.to_string(), retry_at });
            }
        }
        Some(id)
    }

    /// Follows a new segment if its writer is alive, or else keeps it as a crash segment.
    fn add(
        &mut self,
        folder: &ShmFolder,
        file: SegmentFile,
        (name, path): (&str, &Path),
        context: &Context<'_>,
        sink: &mut impl EventSink,
    ) -> Result<(), SkipReason> {
        if self.run.is_some_and(|run| file.header().run.get() != run) {
            self.others.insert(file.id);
            return Ok(());
        }
        let writer = match find_writer(&file, context.pid_index, context.processes)? {
            Writer::Alive(writer) => writer,
            // It is read, too: the next poll finds that its process has exited.
            Writer::Exited if self.run.is_some() => written_by(&file),
            Writer::Exited => {
                if self.crashed.is_full(file.uid) {
                    return Err(SkipReason::Foreign(
                        "exceeds the number of crash segments that are kept".to_owned(),
                    ));
                }
                let (path, name) = (path.to_owned(), name.to_owned());
                self.crashed.insert(CrashSegment::new(file, path, name, folder.of_machine));
                return Ok(());
            }
        };
        if self.live.values().filter(|it| it.file.uid == file.uid).count() >= MAX_LIVE_PER_USER {
            return Err(SkipReason::Foreign("is one segment too many of its user".to_owned()));
        }
        let process = sink.register(&writer, Basis::Exact);
        let Some(index) = self.free_index(process) else {
            return Err(SkipReason::Foreign("is one segment too many of its process".to_owned()));
        };
        let id = file.id;
        let holder = segment_lock_holder(&file);
        let follower = if self.run.is_some() { Follower::from_start(index) } else { Follower::new(index) };
        let (pace, path) = (Pace::default(), path.to_owned());
        self.live.insert(id, LiveSegment { file, follower, pace, process, index, holder, path, error: None });
        self.poll_segment(id, context, sink);
        Ok(())
    }

    /// A number that no other segment of the process has, and none of its last ones had: their definitions stay valid.
    fn free_index(&mut self, process: ProcessId) -> Option<u32> {
        let used: BTreeSet<u32> =
            self.live.values().filter(|it| it.process == process).map(|it| it.index).collect();
        let first = self.last_index.get(&process).map_or(0, |last| last + 1);
        let index = (first..MAX_SEGMENTS_PER_PROCESS).chain(0..first).find(|index| !used.contains(index))?;
        self.last_index.insert(process, index);
        Some(index)
    }

    /// Emits what happened in a segment since the last poll.
    fn poll_segment(&mut self, id: FileId, context: &Context<'_>, sink: &mut impl EventSink) {
        let Some(mut segment) = self.live.remove(&id) else { return };
        // A process that runs another program by now has lost the lock.
        let holder = segment_lock_holder(&segment.file);
        if holder != segment.holder || holder == LockHolder::None {
            segment.holder = holder;
            let is_same = matches!(
                find_writer(&segment.file, context.pid_index, context.processes),
                Ok(Writer::Alive(writer)) if writer.pid == segment.process.pid
            );
            if !is_same {
                // What a process held when it exited counts as held until its exit is noticed.
                let is_alive = !segment.file.is_exited();
                return self.retire(segment, is_alive, sink);
            }
        }
        let process = segment.process;
        let followed = segment.follower.follow(&segment.file, &mut Sink { sink, process });
        segment.error = followed.as_ref().err().map(ToString::to_string);
        match followed {
            Ok(ahead) => segment.pace.note(context.now, ahead, segment.file.ring_records()),
            Err(_) => {
                // What was read before stays, marked as not exact; the segment may become readable again.
                segment.follower.emit_progress(false, &mut |event| sink.emit(process, Basis::Exact, event));
                segment.pace = Pace::default();
            }
        }
        self.live.insert(id, segment);
    }

    /// Reads a segment to its end and keeps it as a crash segment. If its process is alive, it holds nothing through this
    /// segment any more.
    fn retire(&mut self, mut segment: LiveSegment, is_alive: bool, sink: &mut impl EventSink) {
        let process = segment.process;
        // As far as it can be read: errors are ignored.
        let _ = segment.follower.follow(&segment.file, &mut Sink { sink, process });
        if is_alive {
            segment.follower.close_allocators(&mut |event| sink.emit(process, Basis::Exact, event));
        }
        if process.pid == 0 {
            // It is not visible, so its exit is noticed only here.
            sink.emit(process, Basis::Exact, Input::Exited);
        }
        if self.run.is_some() && is_done(&segment.file) {
            remove_file(&segment);
        }
        let name = segment.path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let of_machine = segment.path.parent() == Some(&self.folder);
        let crashed = CrashSegment::new(segment.file, segment.path, name, of_machine);
        // A process that exits by itself removes its segment.
        if !self.crashed.is_full(crashed.file.uid) && crashed.file.is_linked() {
            self.crashed.insert(crashed);
        }
    }

    /// Requests an audit from every writer, by the modification time of its segment. Only the file's user and root can.
    pub(crate) fn request_audits(&self) {
        for segment in self.live.values() {
            segment.file.touch();
        }
    }

    /// Reads the segments of a process that has exited to their end, and keeps them as crash segments.
    pub(crate) fn finish_process(&mut self, process: ProcessId, sink: &mut impl EventSink) {
        let ids: Vec<FileId> =
            self.live.iter().filter(|(_, it)| it.process == process).map(|(&id, _)| id).collect();
        for id in ids {
            if let Some(segment) = self.live.remove(&id) {
                self.retire(segment, false, sink);
            }
        }
        self.last_index.remove(&process);
    }

    /// Removes the segments whose writers have finished, and left them to be removed by the reader of their run.
    pub(crate) fn remove_done(&self) {
        self.live.values().filter(|it| self.run.is_some() && is_done(&it.file)).for_each(remove_file);
    }

    /// Removes crash segments that are too many, too old, or take too much of the filesystem.
    pub(crate) fn expire_crash_segments(&mut self, folders: &[ShmFolder], now: Mono, retention: Retention) {
        let Some(folder) = folders.iter().find(|folder| folder.of_machine) else { return };
        self.crashed.expire(folder, self.live.values().map(|it| &it.file), now, retention);
    }

    /// The number of open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        self.live.len() + self.crashed.len()
    }

    /// The number of segments whose process is alive.
    pub(crate) fn live_count(&self) -> usize {
        self.live.len()
    }

    /// Segments whose process has exited.
    pub(crate) fn crash_segments(&self) -> impl Iterator<Item = (&Path, &SegmentFile)> {
        self.crashed.iter()
    }

    /// Files that are not read, with the reason.
    pub(crate) fn skipped(&self) -> Vec<Skipped> {
        let failed = self.live.values().filter_map(|it| Some((&it.path, it.error.as_ref()?)));
        let all = self.skipped.values().map(|it| (&it.path, &it.reason)).chain(failed);
        let mut all: Vec<Skipped> = all
            .map(|(path, reason)| Skipped { path: path.display().to_string(), reason: reason.clone() })
            .collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.truncate(MAX_SKIPPED);
        all
    }
}

/// The process that wrote a segment, by what the segment says.
fn written_by(file: &SegmentFile) -> ProcessIdentity {
    let header = file.header();
    let (pid, uid) = (header.pid.get(), file.uid);
    let name = ttmem_wire::segment::text(&header.program).to_owned();
    ProcessIdentity { pid, namespace_pid: pid, uid, name, start: Some(header.start_ticks.get()) }
}

/// Whether the writer has finished, and the segment is not to stay.
fn is_done(file: &SegmentFile) -> bool {
    file.is_finished() && file.failures().is_ok_and(|failures| failures.is_empty())
}

fn remove_file(segment: &LiveSegment) {
    if segment.file.is_linked() {
        // Its name has a nonce, so no other file has it.
        let _ = std::fs::remove_file(&segment.path);
    }
}

/// Emits the whole content of one segment, whether its process is alive or not.
pub fn emit_segment(
    file: &SegmentFile,
    process: ProcessId,
    sink: &mut impl EventSink,
) -> Result<(), SkipReason> {
    Follower::new(0).follow(file, &mut Sink { sink, process })?;
    Ok(())
}

/// The sink of one process's segment.
struct Sink<'a, S> {
    sink: &'a mut S,
    process: ProcessId,
}

impl<S: EventSink> ProcessSink for Sink<'_, S> {
    fn emit(&mut self, input: Input) {
        self.sink.emit(self.process, Basis::Exact, input);
    }

    fn wants_records(&self) -> bool {
        self.sink.wants_records()
    }

    fn emit_record(&mut self, event: &SegmentEvent<'_>) {
        self.sink.emit_record(self.process, event);
    }
}
