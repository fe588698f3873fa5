//! Crash segments: segments whose process has exited. They are kept for a while, and the oldest are removed.

use crate::files::{FileId, file_id, find_file};
use crate::segment::{SegmentFile, shifted};
use crate::shm::ShmFolder;
use rustix::fd::AsFd;
use rustix::fs::AtFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use ttmem_core::words::Mono;
use ttmem_types::limits::CRASH_SEGMENTS;
use ttmem_wire::segment::FAILURE_SUFFIXES;

/// How many crash segments are kept, how long, and how much of the filesystem they and all other segments may take.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Crash segments of one user. The copies of each that were made when allocations failed are kept with it.
    pub count: usize,
    /// Age since their last event.
    pub age_ns: u64,
    /// Each user may take one part in this many of the filesystem.
    pub share: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { count: CRASH_SEGMENTS, age_ns: 24 * 3600 * Mono::SECOND, share: 8 }
    }
}

/// Crash segments of one user that are kept open. Each takes a descriptor.
const MAX_OPEN_PER_USER: usize = 128;

/// A segment whose process has exited. Its descriptor is kept, since a container's file disappears with its namespace.
pub(super) struct CrashSegment {
    pub(super) file: SegmentFile,
    path: PathBuf,
    name: String,
    /// Whether it is in the machine's folder, not in a container's.
    of_machine: bool,
    last_event: Mono,
}

impl CrashSegment {
    pub(super) fn new(file: SegmentFile, path: PathBuf, name: String, of_machine: bool) -> Self {
        Self { last_event: last_event_time(&file), file, path, name, of_machine }
    }
}

/// All crash segments.
#[derive(Default)]
pub(super) struct CrashSegments(BTreeMap<FileId, CrashSegment>);

impl CrashSegments {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_full(&self, uid: u32) -> bool {
        self.0.values().filter(|it| it.file.uid == uid).count() >= MAX_OPEN_PER_USER
    }

    pub(super) fn contains(&self, id: FileId) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn insert(&mut self, segment: CrashSegment) {
        self.0.insert(segment.file.id, segment);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &SegmentFile)> {
        self.0.values().map(|it| (it.path.as_path(), &it.file))
    }

    /// Drops crash segments of the machine's folder whose file was removed. Those of containers stay.
    pub(super) fn retain_existing(&mut self, files: &BTreeSet<FileId>) {
        self.0.retain(|id, segment| !segment.of_machine || files.contains(id));
    }

    /// Removes crash segments that are too many, too old, or take too much of the filesystem together with `live` segments.
    pub(super) fn expire<'a>(
        &mut self,
        folder: &ShmFolder,
        live: impl Iterator<Item = &'a SegmentFile>,
        now: Mono,
        retention: Retention,
    ) {
        let mut used: BTreeMap<u32, u64> = BTreeMap::new();
        let mut add = |file: &SegmentFile| *used.entry(file.uid).or_default() += file.bytes();
        live.for_each(&mut add);
        self.0.values().for_each(|it| add(&it.file));
        let total = rustix::fs::fstatfs(&folder.fd)
            .map_or(u64::MAX, |it| it.f_blocks.saturating_mul(it.f_bsize as u64));
        // Newest first: those are kept.
        let mut by_age: Vec<(Mono, FileId)> = self.0.iter().map(|(&id, it)| (it.last_event, id)).collect();
        by_age.sort_by_key(|&(at, id)| (std::cmp::Reverse(at), id));
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        let mut expired = Vec::new();
        for &(at, id) in &by_age {
            let Some(segment) = self.0.get(&id) else { continue };
            let count = counts.entry(segment.file.uid).or_default();
            *count += 1;
            if *count > retention.count || now.since(at) > retention.age_ns {
                expired.push(id);
                let used = used.entry(segment.file.uid).or_default();
                *used = used.saturating_sub(segment.file.bytes());
            }
        }
        // Oldest first: those make room.
        for &(_, id) in by_age.iter().rev() {
            let Some(segment) = self.0.get(&id).filter(|_| !expired.contains(&id)) else { continue };
            let used = used.entry(segment.file.uid).or_default();
            if *used > total / retention.share.max(1) {
                *used = used.saturating_sub(segment.file.bytes());
                expired.push(id);
            }
        }
        for id in expired {
            let Some(segment) = self.0.get(&id) else { continue };
            // Another file may have its name by now. A container's file is only closed: its own writers remove it.
            let found = find_file(folder.fd.as_fd(), &segment.name);
            if segment.of_machine && found.is_ok_and(|(_, stat)| file_id(&stat) == id) {
                let copies = FAILURE_SUFFIXES.iter().map(|suffix| format!("{}{suffix}", segment.name));
                for name in copies.chain([segment.name.clone()]) {
                    let _ = rustix::fs::unlinkat(&folder.fd, name.as_str(), AtFlags::empty());
                }
            }
            self.0.remove(&id);
        }
    }
}

/// The time of a segment's last event.
fn last_event_time(file: &SegmentFile) -> Mono {
    let applied = file.applied().ok().filter(|&applied| applied > 0);
    let last = applied.and_then(|applied| file.records(applied - 1, applied).ok().flatten());
    let at = last.and_then(|records| records.first().map(|record| record.at_ns.get()));
    shifted(at.unwrap_or_else(|| file.header().mono_ns.get()), file.clock_shift())
}
