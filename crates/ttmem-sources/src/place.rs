//! Where segments and counters may lie: in the machine's own folder, and in that of every container, seen through its
//! processes.
//!
//! A container's files are its own business, and may be meant to harm: its folder is opened beneath its root, through no
//! link, and only if its mount table says that all on the way there is plain. A filesystem that a program serves (FUSE)
//! could hang whoever asks it anything.

use crate::process::Processes;
use crate::root::Root;
use crate::segment::{Skip, is_in_memory, open_beneath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder with segments or counters in it, perhaps.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: OwnedFd,
    /// For people, and to tell it from others.
    pub(crate) path: PathBuf,
    pub(crate) id: (u64, u64),
    /// Whether it is the machine's own.
    pub(crate) own: bool,
    /// What the processes that see it call it.
    name: PathBuf,
    /// Whether what lies in it must lie in memory: anything else could hang.
    pub(crate) in_memory: bool,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl Place {
    fn new(folder: OwnedFd, path: PathBuf, name: &Path, own: bool, in_memory: bool) -> Option<Self> {
        let found = rustix::fs::fstat(&folder).ok()?;
        let id = (found.st_dev, found.st_ino);
        let fits = !in_memory || is_in_memory(folder.as_fd());
        fits.then(|| Self { folder, path, id, own, name: name.to_owned(), in_memory })
    }

    /// The machine's own folder. Of another machine, whoever showed it to us must know that it can be read.
    pub(crate) fn own(root: &Root, folder: &Path, name: &Path) -> Result<Self, Skip> {
        let opened = rustix::fs::open(folder, FOLDER, Mode::empty())?;
        let place = Self::new(opened, folder.to_owned(), name, true, root.is_own());
        place.ok_or(Skip::NotInMemory)
    }

    /// The names in it that begin so.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        self.entries(prefix).into_iter().map(|(name, _)| name).collect()
    }

    /// The same, with the number of each file.
    pub(crate) fn entries(&self, prefix: &str) -> Vec<(String, u64)> {
        // A descriptor of our own: reading moves its position.
        let Ok(folder) = open_beneath(self.folder.as_fd(), ".", FOLDER) else { return Vec::new() };
        let Ok(entries) = rustix::fs::Dir::new(folder) else { return Vec::new() };
        let found = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().to_str().ok().filter(|name| name.starts_with(prefix))?;
            Some((name.to_owned(), entry.ino()))
        });
        let mut found: Vec<(String, u64)> = found.take(MOST_NAMES).collect();
        found.sort();
        found
    }

    /// Whether it is this folder that a process sees under its name.
    pub(crate) fn is_of(&self, pid: u32, processes: &Processes) -> bool {
        let Some(path) = processes.inside(pid, &self.name) else { return false };
        fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == self.id)
    }
}

/// Names that are looked at in one folder. How many files of one user are opened is bounded elsewhere.
const MOST_NAMES: usize = 1 << 16;

/// The folders of all containers whose processes we may look into, each once.
pub(crate) fn containers(
    root: &Root,
    processes: &Processes,
    folder: &Path,
    own: Option<&Place>,
) -> Vec<Place> {
    if !root.has_processes() {
        return Vec::new();
    }
    let here = namespace(root, "self");
    let mut seen: BTreeSet<Vec<u8>> = here.into_iter().collect();
    let mut ids: BTreeSet<(u64, u64)> = own.iter().map(|own| own.id).collect();
    let mut places = Vec::new();
    for pid in processes.all() {
        let Some(namespace) = namespace(root, &pid.to_string()) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        // Several namespaces may share one folder.
        if let Some(place) = inside(root, pid, folder).filter(|place| ids.insert(place.id)) {
            places.push(place);
        }
    }
    places
}

fn namespace(root: &Root, pid: &str) -> Option<Vec<u8>> {
    let link = fs::read_link(root.path(&format!("/proc/{pid}/ns/mnt"))).ok()?;
    Some(link.as_os_str().as_bytes().to_vec())
}

/// A process's folder, beneath its root.
fn inside(at: &Root, pid: u32, folder: &Path) -> Option<Place> {
    let mounts = fs::read_to_string(at.of_process(pid, "mountinfo")).ok()?;
    let root = rustix::fs::open(
        at.of_process(pid, "root"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let path = folder.to_str()?.to_owned();
    let opened = match open_plain(&root, &path, &mounts) {
        Some(opened) => opened,
        None => {
            // Some systems have it elsewhere, and a link to there: as seen from the root, and only once.
            let (parent, name) = path.rsplit_once('/')?;
            let parent = open_plain_path(&root, parent, &mounts, OFlags::PATH | OFlags::DIRECTORY)?;
            let link = rustix::fs::readlinkat(&parent, name, Vec::new()).ok()?.into_string().ok()?;
            let target =
                if link.starts_with('/') { link } else { format!("{}/{link}", path.rsplit_once('/')?.0) };
            open_plain(&root, &plain_path(&target)?, &mounts)?
        }
    };
    let shown = PathBuf::from(format!("/proc/{pid}/root{}", folder.display()));
    Place::new(opened, shown, folder, false, true)
}

/// An absolute path without `.` and `..`.
fn plain_path(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

fn open_plain(root: &OwnedFd, path: &str, mounts: &str) -> Option<OwnedFd> {
    let kinds = filesystems(path, mounts);
    // The last one is what the folder itself lies on.
    if kinds.last().is_none_or(|kind| *kind != "tmpfs" && *kind != "ramfs") {
        return None;
    }
    open_plain_path(root, path, mounts, FOLDER)
}

fn open_plain_path(root: &OwnedFd, path: &str, mounts: &str, flags: OFlags) -> Option<OwnedFd> {
    if filesystems(path, mounts).iter().any(|kind| kind.starts_with("fuse")) {
        return None;
    }
    let below = path.trim_start_matches('/');
    open_beneath(root.as_fd(), if below.is_empty() { "." } else { below }, flags | OFlags::CLOEXEC).ok()
}

/// The kinds of filesystems on the way to a path, outermost first, from a mount table. Of several mounts on one point the
/// last one is seen.
fn filesystems<'a>(path: &str, mounts: &'a str) -> Vec<&'a str> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for line in mounts.lines() {
        let Some((fields, kind)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (fields.split(' ').nth(4), kind.split(' ').next()) else { continue };
        let below = path.strip_prefix(point.trim_end_matches('/'));
        if point == "/" || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            found.retain(|(known, _)| *known != point);
            found.push((point, kind));
        }
    }
    found.sort_by_key(|(point, _)| point.len());
    found.into_iter().map(|(_, kind)| kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:20 / / rw - overlay overlay rw
23 22 0:21 / /dev rw - tmpfs tmpfs rw
24 23 0:22 / /dev/shm rw - tmpfs shm rw
25 22 0:23 / /mnt rw - fuse.sshfs host: rw
26 22 0:24 / /run/shm rw - tmpfs tmpfs rw
27 22 0:25 / /data/shm rw - ext4 /dev/sda rw
28 22 0:26 / /data/shm rw - tmpfs tmpfs rw";

    #[test]
    fn the_mount_table_tells_what_lies_on_the_way() {
        assert_eq!(filesystems("/dev/shm", MOUNTS), ["overlay", "tmpfs", "tmpfs"]);
        assert_eq!(filesystems("/mnt/shm", MOUNTS), ["overlay", "fuse.sshfs"]);
        assert_eq!(filesystems("/mntx", MOUNTS), ["overlay"]);
        assert_eq!(filesystems("/data/shm", MOUNTS), ["overlay", "tmpfs"], "the last mount hides the first");
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(plain_path("/dev/../run/./shm").as_deref(), Some("/run/shm"));
        assert_eq!(plain_path("/../etc"), None, "nothing is above the root");
    }
}
