//! The files of a folder that may be segments or tt-metal's counters.
//!
//! Any user can create any number of files in a shared folder. So a folder is listed only after it changed, seldom if that takes
//! long, and once for all sources; names are checked before anything else, the owner of each file is read once, and of each user
//! only so many files are listed.

use crate::files::{FileId, SkipReason, file_id, find_file};
use crate::shm::ShmFolder;
use jiff::Timestamp;
use rustix::fd::AsFd;
use std::collections::{BTreeMap, HashMap};
use ttmem_core::snapshot::Skipped;
use ttmem_core::words::Mono;
use ttmem_wire::{region, segment};

/// Files of one user that are listed: segments, and counters. More of them hide only that user's own.
const MAX_SEGMENTS: usize = 1024;
const MAX_COUNTERS: usize = 128;
/// Files whose owner is remembered.
const MAX_OWNERS: usize = 1 << 18;
/// Pause after a listing, for each entry that was read. Reading one takes some hundred nanoseconds, so a folder that changes all the
/// time costs a few percent of a processor.
const PAUSE_NS: u64 = 20_000;
/// As many entries as reading the owner of a file costs.
const OWNER_COST: u64 = 8;
/// Age of a folder's last change from which on the next one has another time: the kernel's clock for files has steps.
const CLOCK_STEP_NS: i128 = 20_000_000;
/// Owner of a file that cannot be read.
const UNKNOWN_OWNER: u32 = u32::MAX;

/// A file that may be a segment or one of counters, by its name.
#[derive(Clone, Debug)]
pub(crate) struct ListedFile {
    pub(crate) name: String,
    pub(crate) inode: u64,
}

/// Kinds of files, by their names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FileKind {
    Segment,
    Counters,
}

impl FileKind {
    fn of(name: &str) -> Option<Self> {
        let is_segment = segment::parse_name(name.as_bytes()).is_some();
        let is_counters = || region::parse_name(name).is_some();
        if is_segment { Some(Self::Segment) } else { is_counters().then_some(Self::Counters) }
    }

    fn limit(self) -> usize {
        match self {
            Self::Segment => MAX_SEGMENTS,
            Self::Counters => MAX_COUNTERS,
        }
    }
}

/// The files of a folder, as they were when it was last listed.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) segments: Vec<ListedFile>,
    pub(crate) counters: Vec<ListedFile>,
    /// Files that exceed the limit of their user.
    left_out: u64,
    /// The folder's last change, if all files until then are listed.
    changed: Option<(i64, i64)>,
    /// When it may be listed again.
    next: Mono,
    /// Owners of files, by inode.
    owners: HashMap<u64, u32>,
}

/// The listings of all folders.
#[derive(Default)]
pub(crate) struct Listings(BTreeMap<FileId, Listing>);

impl Listings {
    /// Lists the folders that changed, unless they were listed just now.
    pub(crate) fn refresh(&mut self, folders: &[ShmFolder], now: Mono) {
        self.0.retain(|id, _| folders.iter().any(|folder| folder.id == *id));
        for folder in folders {
            self.0.entry(folder.id).or_default().refresh(folder, now);
        }
    }

    /// Folders with their files.
    pub(crate) fn of<'a>(
        &'a self,
        folders: &'a [ShmFolder],
    ) -> impl Iterator<Item = (&'a ShmFolder, &'a Listing)> {
        folders.iter().filter_map(|folder| Some((folder, self.0.get(&folder.id)?)))
    }

    /// Folders with more files than are listed.
    pub(crate) fn skipped<'a>(&'a self, folders: &'a [ShmFolder]) -> impl Iterator<Item = Skipped> + 'a {
        let too_many = |listing: &Listing| {
            format!(
                "has {} more files than are read: {MAX_SEGMENTS} segments and {MAX_COUNTERS} counters of one user",
                listing.left_out
            )
        };
        let of_folder = move |(folder, listing): (&ShmFolder, &Listing)| Skipped {
            path: folder.path.display().to_string(),
            reason: too_many(listing),
        };
        self.of(folders).filter(|(_, listing)| listing.left_out > 0).map(of_folder)
    }
}

impl Listing {
    fn refresh(&mut self, folder: &ShmFolder, now: Mono) {
        let Ok(stat) = rustix::fs::fstat(&folder.fd) else { return };
        let changed = (stat.st_mtime, stat.st_mtime_nsec as i64);
        if self.changed == Some(changed) || now < self.next {
            return;
        }
        let changed_ns = i128::from(changed.0) * 1_000_000_000 + i128::from(changed.1);
        let is_past = Timestamp::now().as_nanosecond() - changed_ns >= CLOCK_STEP_NS;
        let cost = self.list(folder);
        self.changed = is_past.then_some(changed);
        self.next = Mono(now.0.saturating_add(cost * PAUSE_NS));
    }

    /// Reads the folder. Returns the number of entries, and what else costs as much.
    fn list(&mut self, folder: &ShmFolder) -> u64 {
        let mut cost = 0;
        let known = std::mem::take(&mut self.owners);
        self.segments.clear();
        self.counters.clear();
        self.left_out = 0;
        let mut counts: BTreeMap<(u32, FileKind), usize> = BTreeMap::new();
        for entry in folder.entries() {
            cost += 1;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Some(kind) = FileKind::of(name) else { continue };
            let mut inode = entry.ino();
            let owner = match known.get(&inode) {
                Some(&owner) => owner,
                None => {
                    cost += OWNER_COST;
                    match find_file(folder.fd.as_fd(), name) {
                        Ok((_, stat)) => {
                            (_, inode) = file_id(&stat);
                            stat.st_uid
                        }
                        Err(SkipReason::Io(_)) => continue,
                        Err(_) => UNKNOWN_OWNER,
                    }
                }
            };
            if self.owners.len() < MAX_OWNERS {
                self.owners.insert(inode, owner);
            }
            let count = counts.entry((owner, kind)).or_default();
            *count += 1;
            if *count > kind.limit() {
                self.left_out += 1;
                continue;
            }
            let file = ListedFile { name: name.to_owned(), inode };
            match kind {
                FileKind::Segment => self.segments.push(file),
                FileKind::Counters => self.counters.push(file),
            }
        }
        self.segments.sort_by(|a, b| a.name.cmp(&b.name));
        self.counters.sort_by(|a, b| a.name.cmp(&b.name));
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;
    use std::fs;
    use std::os::unix::fs::chown;
    use std::path::Path;

    fn open(path: &Path) -> Vec<ShmFolder> {
        vec![ShmFolder::open_of_machine(&Root::default(), path, path).unwrap()]
    }

    fn names(listings: &Listings, folders: &[ShmFolder]) -> Vec<String> {
        listings.of(folders).flat_map(|(_, it)| &it.segments).map(|file| file.name.clone()).collect()
    }

    fn segment_name(pid: u32, number: u64) -> String {
        format!("ttmem.{pid}.{number:016x}")
    }

    #[test]
    fn files_of_one_user_do_not_hide_those_of_others() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        for number in 0..3000 {
            fs::write(folder.path().join(format!("ttmem.x{number}")), b"").unwrap();
            let path = folder.path().join(segment_name(1, number));
            fs::write(&path, b"").unwrap();
            chown(&path, Some(65534), None).unwrap();
        }
        fs::write(folder.path().join(segment_name(7, 7)), b"").unwrap();
        let folders = open(folder.path());
        let mut listings = Listings::default();
        listings.refresh(&folders, Mono(0));
        let found = names(&listings, &folders);
        assert_eq!(found.len(), MAX_SEGMENTS + 1);
        assert!(found.contains(&segment_name(7, 7)));
        let skipped: Vec<Skipped> = listings.skipped(&folders).collect();
        assert!(skipped.len() == 1 && skipped[0].reason.starts_with("has 1976 more"), "{skipped:?}");
        // The next listing waits, the longer the more files there are.
        let late = segment_name(7, 8);
        fs::write(folder.path().join(&late), b"").unwrap();
        listings.refresh(&folders, Mono(6000 * PAUSE_NS));
        assert!(!names(&listings, &folders).contains(&late));
        listings.refresh(&folders, Mono(6000 * PAUSE_NS * OWNER_COST));
        assert!(names(&listings, &folders).contains(&late));
    }

    #[test]
    fn unchanged_folder_is_not_listed_again() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::write(folder.path().join(segment_name(1, 1)), b"").unwrap();
        let long_ago = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        fs::File::open(folder.path()).unwrap().set_times(long_ago).unwrap();
        let folders = open(folder.path());
        let mut listing = Listing::default();
        listing.refresh(&folders[0], Mono(0));
        assert_eq!(listing.segments.len(), 1);
        listing.segments.clear();
        listing.refresh(&folders[0], Mono(u64::MAX));
        assert!(listing.segments.is_empty(), "it was listed again");
        fs::write(folder.path().join(segment_name(1, 2)), b"").unwrap();
        listing.refresh(&folders[0], Mono(u64::MAX));
        assert_eq!(listing.segments.len(), 2);
    }
}
