//! All segments of the machine: found, followed, and let go when their writers end.

use crate::follow::Follower;
use crate::lock::Holder;
use crate::owner::{self, Census, Writer};
use crate::place::Place;
use crate::process::{Owner, Processes};
use crate::segment::{FileId, SegmentFile, Skip, look_at};
use rustix::fd::AsFd;
use rustix::fs::AtFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use ttmem_core::event::Event;
use ttmem_core::snapshot::Skipped;
use ttmem_core::words::{Basis, Mono, ProcessId};
use ttmem_wire::segment::SegmentError;

/// Receives what sources read.
pub trait EventSink {
    /// Registers a process that a source found on this basis, and returns the id by which its events name it. A process
    /// that is registered already keeps its id.
    fn register(&mut self, owner: &Owner, basis: Basis) -> ProcessId;
    /// Takes an event of one process.
    fn emit(&mut self, process: ProcessId, basis: Basis, event: Event);
    /// Takes an event of the machine itself.
    fn emit_machine(&mut self, event: Event);
}

/// How many black boxes are kept, how long, and how much of the filesystem they and all other segments may take.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Of one user.
    pub count: usize,
    /// Since their last event.
    pub age_ns: u64,
    /// One part in so many, for each user.
    pub share: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { count: 32, age_ns: 24 * 3600 * Mono::SECOND, share: 8 }
    }
}

/// Reasons that are told.
const MOST_SKIPPED: usize = 64;
/// Looks for which a file that could not be read is left alone.
const LOOKS_BETWEEN_TRIES: u64 = 8;
/// Files of one user that are opened in one look: whoever makes more hides only his own.
const MOST_FILES_OF_A_USER: usize = 1024;
/// Segments that one process may have; their numbers are told apart by this.
const MOST_SEGMENTS_OF_A_PROCESS: u32 = 128;
/// Black boxes that are held open; each costs a descriptor.
const MOST_BLACK_BOXES: usize = 512;

struct Known {
    file: SegmentFile,
    follower: Follower,
    process: ProcessId,
    /// Tells its numbers from those of other segments of its process.
    index: u32,
    /// Who held its lock when we looked last.
    holder: Holder,
    path: PathBuf,
    /// Why it could not be read when we looked last.
    broken: Option<String>,
}

/// What a dead process left behind. Its descriptor is kept, since a container's file goes with its namespace.
struct BlackBox {
    file: SegmentFile,
    path: PathBuf,
    name: String,
    /// The folder it lies in, if it is the machine's own.
    own: bool,
    last_event: Mono,
}

/// A file that was not read.
struct NotRead {
    path: PathBuf,
    reason: String,
    /// The look from which on it is tried again: a folder full of such files must not cost us all the time.
    again: u64,
}

/// Where a look goes, and whom it may ask.
pub(crate) struct Around<'a> {
    pub(crate) places: &'a [Place],
    pub(crate) processes: &'a Processes,
    pub(crate) census: &'a Census,
}

/// All segments.
#[derive(Default)]
pub(crate) struct Segments {
    folder: PathBuf,
    known: BTreeMap<FileId, Known>,
    black_boxes: BTreeMap<FileId, BlackBox>,
    skipped: BTreeMap<FileId, NotRead>,
    looks: u64,
    /// Of this look: files by user.
    files: BTreeMap<u32, usize>,
}

impl Segments {
    /// Those in this folder, here and in containers.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ..Self::default() }
    }

    /// Takes in everything that happened since the last look, in all segments, new ones included. Returns whether any
    /// writer is so busy that the next look should come soon.
    pub(crate) fn look(&mut self, around: &Around<'_>, sink: &mut impl EventSink) -> bool {
        self.files.clear();
        self.skipped.retain(|id, _| id.0 != u64::MAX);
        // What is known comes first, so that nothing is missed because there is much that is new.
        let mut busy = false;
        let ids: Vec<FileId> = self.known.keys().copied().collect();
        for id in ids {
            busy |= self.follow(id, around, sink);
        }
        let mut seen = BTreeSet::new();
        self.looks += 1;
        for place in around.places {
            for (name, number) in place.entries(ttmem_wire::segment::FILE_PREFIX) {
                // What is followed already need not be opened to be known again.
                let id = (place.id.0, number);
                if self.known.contains_key(&id) || self.black_boxes.contains_key(&id) {
                    seen.insert(id);
                    continue;
                }
                if let Some(id) = self.look_at(place, &name, around, sink) {
                    seen.insert(id);
                }
            }
        }
        self.skipped.retain(|id, _| seen.contains(id));
        // A black box whose file somebody removed is no more, unless it lay in a container.
        self.black_boxes.retain(|id, it| !it.own || seen.contains(id));
        busy
    }

    fn look_at(
        &mut self,
        place: &Place,
        name: &str,
        around: &Around<'_>,
        sink: &mut impl EventSink,
    ) -> Option<FileId> {
        let path = place.path.join(name);
        let (handle, found) = match look_at(place.folder.as_fd(), name) {
            Ok(found) => found,
            Err(Skip::Io(_)) => return None,
            Err(why) => {
                // What it is cannot be told, so it has no number of its own.
                let id = (u64::MAX, self.skipped.len() as u64);
                self.skipped.insert(id, NotRead { path, reason: why.to_string(), again: 0 });
                return Some(id);
            }
        };
        let id = (found.st_dev, found.st_ino);
        let waits = self.skipped.get(&id).is_some_and(|it| it.path == path && self.looks < it.again);
        if self.known.contains_key(&id) || self.black_boxes.contains_key(&id) || waits {
            return Some(id);
        }
        let of_user = self.files.entry(found.st_uid).or_default();
        *of_user += 1;
        let opened = if *of_user > MOST_FILES_OF_A_USER {
            Err(Skip::Foreign("is one file too many of its user".to_owned()))
        } else {
            SegmentFile::open_found(&handle, &found, name)
                .and_then(|file| self.take(place, file, (name, &path), around, sink))
        };
        match opened {
            Ok(()) | Err(Skip::Malformed(SegmentError::BeingMade)) => {
                self.skipped.remove(&id);
            }
            Err(why) => {
                let again = self.looks + LOOKS_BETWEEN_TRIES;
                self.skipped.insert(id, NotRead { path, reason: why.to_string(), again });
            }
        }
        Some(id)
    }

    fn take(
        &mut self,
        place: &Place,
        file: SegmentFile,
        (name, path): (&str, &Path),
        around: &Around<'_>,
        sink: &mut impl EventSink,
    ) -> Result<(), Skip> {
        let owner = match owner::writer(&file, around.census, around.processes)? {
            Writer::Living(owner) => owner,
            Writer::Gone => {
                if self.black_boxes.len() >= MOST_BLACK_BOXES {
                    return Err(Skip::Foreign(
                        "exceeds the number of crash segments that are kept".to_owned(),
                    ));
                }
                let it = BlackBox {
                    last_event: last_event(&file),
                    own: place.own,
                    path: path.to_owned(),
                    name: name.to_owned(),
                    file,
                };
                self.black_boxes.insert(it.file.id, it);
                return Ok(());
            }
        };
        let process = sink.register(&owner, Basis::Exact);
        let Some(index) = self.index_for(process) else {
            return Err(Skip::Foreign("is one segment too many of its process".to_owned()));
        };
        let id = file.id;
        let holder = owner::holder(&file);
        let follower = Follower::new(index);
        let path = path.to_owned();
        self.known.insert(id, Known { file, follower, process, index, holder, path, broken: None });
        self.follow(id, around, sink);
        Ok(())
    }

    /// The smallest number that no other segment of the process has.
    fn index_for(&self, process: ProcessId) -> Option<u32> {
        let used: BTreeSet<u32> =
            self.known.values().filter(|known| known.process == process).map(|known| known.index).collect();
        (0..MOST_SEGMENTS_OF_A_PROCESS).find(|index| !used.contains(index))
    }

    fn follow(&mut self, id: FileId, around: &Around<'_>, sink: &mut impl EventSink) -> bool {
        let Some(mut known) = self.known.remove(&id) else { return false };
        // A process that goes on as another program lets go of the lock.
        let holder = owner::holder(&known.file);
        if holder != known.holder || holder == Holder::Nobody {
            known.holder = holder;
            let here = matches!(
                owner::writer(&known.file, around.census, around.processes),
                Ok(Writer::Living(owner)) if owner.pid == known.process.pid
            );
            if !here {
                self.retire(known, true, sink);
                return false;
            }
        }
        let process = known.process;
        let followed =
            known.follower.follow(&known.file, &mut |event| sink.emit(process, Basis::Exact, event));
        known.broken = followed.as_ref().err().map(ToString::to_string);
        let busy = match followed {
            Ok(ahead) => ahead > known.file.ring_records() / 4,
            Err(_) => {
                // What it said before stays, marked as not exact; perhaps it can be read again later.
                known.follower.see(false, &mut |event| sink.emit(process, Basis::Exact, event));
                false
            }
        };
        self.known.insert(id, known);
        busy
    }

    /// Lets go of a segment: it is kept as a black box. What it listed is gone, if its process has not taken that along.
    fn retire(&mut self, mut known: Known, lives: bool, sink: &mut impl EventSink) {
        let process = known.process;
        // Its last events may be odd, too.
        let _ = known.follower.follow(&known.file, &mut |event| sink.emit(process, Basis::Exact, event));
        if lives {
            known.follower.retire(&mut |event| sink.emit(process, Basis::Exact, event));
        }
        if process.pid == 0 {
            // Nobody else can tell its end.
            sink.emit(process, Basis::Exact, Event::Exited);
        }
        let name = known.path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let it = BlackBox {
            last_event: last_event(&known.file),
            own: known.path.parent() == Some(&self.folder),
            path: known.path,
            name,
            file: known.file,
        };
        if self.black_boxes.len() < MOST_BLACK_BOXES {
            self.black_boxes.insert(it.file.id, it);
        }
    }

    /// Rings at every segment: whoever writes it may audit its allocators now. Only the file's owner and root can.
    pub(crate) fn ring(&self) {
        for known in self.known.values() {
            known.file.touch();
        }
    }

    /// A process ended: its segments are read to the end, and are black boxes from now on.
    pub(crate) fn process_ended(&mut self, process: ProcessId, sink: &mut impl EventSink) {
        let ids: Vec<FileId> =
            self.known.iter().filter(|(_, known)| known.process == process).map(|(&id, _)| id).collect();
        for id in ids {
            if let Some(known) = self.known.remove(&id) {
                self.retire(known, false, sink);
            }
        }
    }

    /// Removes black boxes that are too many, too old, or take too much of the filesystem.
    pub(crate) fn expire(&mut self, places: &[Place], now: Mono, keep: Keep) {
        let Some(place) = places.iter().find(|place| place.own) else { return };
        let mut used: BTreeMap<u32, u64> = BTreeMap::new();
        let living = self.known.values().map(|it| &it.file);
        for file in living.chain(self.black_boxes.values().map(|it| &it.file)) {
            *used.entry(file.uid).or_default() += file.bytes();
        }
        let total = rustix::fs::fstatfs(&place.folder)
            .map_or(u64::MAX, |it| it.f_blocks.saturating_mul(it.f_bsize as u64));
        // Newest first: those are kept.
        let mut boxes: Vec<(Mono, FileId)> =
            self.black_boxes.iter().map(|(&id, it)| (it.last_event, id)).collect();
        boxes.sort_by_key(|&(at, id)| (std::cmp::Reverse(at), id));
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        let mut doomed = Vec::new();
        for &(at, id) in &boxes {
            let Some(it) = self.black_boxes.get(&id) else { continue };
            let count = counts.entry(it.file.uid).or_default();
            *count += 1;
            if *count > keep.count || now.since(at) > keep.age_ns {
                doomed.push(id);
                let used = used.entry(it.file.uid).or_default();
                *used = used.saturating_sub(it.file.bytes());
            }
        }
        // Oldest first: those make room.
        for &(_, id) in boxes.iter().rev() {
            let Some(it) = self.black_boxes.get(&id).filter(|_| !doomed.contains(&id)) else { continue };
            let used = used.entry(it.file.uid).or_default();
            if *used > total / keep.share.max(1) {
                *used = used.saturating_sub(it.file.bytes());
                doomed.push(id);
            }
        }
        for id in doomed {
            let Some(it) = self.black_boxes.get(&id) else { continue };
            // Under that name there may be another file by now. A container's is only let go of: its own writers remove it.
            let found = look_at(place.folder.as_fd(), &it.name);
            if it.own && found.is_ok_and(|(_, found)| (found.st_dev, found.st_ino) == id) {
                let _ = rustix::fs::unlinkat(&place.folder, it.name.as_str(), AtFlags::empty());
            }
            self.black_boxes.remove(&id);
        }
    }

    /// Descriptors that are held open.
    pub(crate) fn descriptors(&self) -> usize {
        self.known.len() + self.black_boxes.len()
    }

    /// Segments of living processes.
    pub(crate) fn living(&self) -> usize {
        self.known.len()
    }

    /// Segments of dead processes.
    pub(crate) fn black_boxes(&self) -> impl Iterator<Item = (&Path, &SegmentFile)> {
        self.black_boxes.values().map(|it| (it.path.as_path(), &it.file))
    }

    /// Files that were not read, and why.
    pub(crate) fn skipped(&self) -> Vec<Skipped> {
        let broken = self.known.values().filter_map(|it| Some((&it.path, it.broken.as_ref()?)));
        let all = self.skipped.values().map(|it| (&it.path, &it.reason)).chain(broken);
        let mut all: Vec<Skipped> = all
            .map(|(path, reason)| Skipped { path: path.display().to_string(), reason: reason.clone() })
            .collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.truncate(MOST_SKIPPED);
        all
    }
}

/// Tells what is in one segment, whoever wrote it and whether that lives or not.
pub fn tell_of(file: &SegmentFile, process: ProcessId, sink: &mut impl EventSink) -> Result<(), Skip> {
    Follower::new(0).follow(file, &mut |event| sink.emit(process, Basis::Exact, event))?;
    Ok(())
}

/// When a segment's last event was.
fn last_event(file: &SegmentFile) -> Mono {
    let begun = file.applied().ok().filter(|&applied| applied > 0);
    let last = begun.and_then(|applied| file.records(applied - 1, applied).ok().flatten());
    let at = last.and_then(|records| records.first().map(|record| record.at_ns.get()));
    Mono(at.unwrap_or_else(|| file.header().mono_ns.get()))
}
