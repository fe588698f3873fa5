//! Finds the folders for shared memory, where segments and tt-metal's counters are: the machine's, and one for each
//! container, reached through its processes.
//!
//! The files of a container may be hostile: its folder is opened beneath its root, through no link, and only if its mount
//! table shows no filesystem on the path that a program serves (FUSE), since that could block the reader for ever.

use crate::files::{FileId, SkipReason, file_id, is_in_memory, open_beneath};
use crate::process::Processes;
use crate::root::Root;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, DirEntry, Mode, OFlags};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder for shared memory.
#[derive(Debug)]
pub(crate) struct ShmFolder {
    pub(crate) fd: OwnedFd,
    /// Its path from here, for messages.
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    /// Whether it is the machine's, not a container's.
    pub(crate) of_machine: bool,
    /// Its path as the processes that use it know it.
    inner_path: PathBuf,
    /// Whether its files must be in memory, since reading any others could hang.
    pub(crate) require_memory: bool,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl ShmFolder {
    fn new(
        fd: OwnedFd,
        path: PathBuf,
        inner_path: &Path,
        of_machine: bool,
        require_memory: bool,
    ) -> Option<Self> {
        let id = file_id(&rustix::fs::fstat(&fd).ok()?);
        let fits = !require_memory || is_in_memory(fd.as_fd());
        fits.then(|| Self { fd, path, id, of_machine, inner_path: inner_path.to_owned(), require_memory })
    }

    /// Opens the machine's folder. Of another machine, any filesystem is read: it is the caller's choice.
    pub(crate) fn open_of_machine(root: &Root, path: &Path, inner_path: &Path) -> Result<Self, SkipReason> {
        let fd = rustix::fs::open(path, FOLDER, Mode::empty())?;
        let folder = Self::new(fd, path.to_owned(), inner_path, true, root.is_this_machine());
        folder.ok_or(SkipReason::NotInMemory)
    }

    /// Its entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = DirEntry> {
        // Opened again, since listing moves a descriptor's position.
        let folder = open_beneath(self.fd.as_fd(), ".", FOLDER).and_then(Dir::new);
        folder.into_iter().flatten().map_while(Result::ok)
    }

    /// Whether a process finds this folder under the path that it knows.
    pub(crate) fn is_used_by(&self, pid: u32, processes: &Processes) -> bool {
        let Some(path) = processes.path_inside(pid, &self.inner_path) else { return false };
        fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == self.id)
    }
}

/// Opens the folders of all containers whose processes this user may inspect, each once.
pub(crate) fn open_container_folders(
    root: &Root,
    processes: &Processes,
    path: &Path,
    of_machine: Option<&ShmFolder>,
) -> Vec<ShmFolder> {
    if !root.has_live_procfs() {
        return Vec::new();
    }
    let own_namespace = mount_namespace(root, "self");
    let mut namespaces: BTreeSet<Vec<u8>> = own_namespace.into_iter().collect();
    let mut ids: BTreeSet<FileId> = of_machine.iter().map(|folder| folder.id).collect();
    let mut folders = Vec::new();
    for pid in processes.pids() {
        let Some(namespace) = mount_namespace(root, &pid.to_string()) else { continue };
        if !namespaces.insert(namespace) {
            continue;
        }
        // Several namespaces may share one folder.
        if let Some(folder) = open_folder_of(root, pid, path).filter(|folder| ids.insert(folder.id)) {
            folders.push(folder);
        }
    }
    folders
}

fn mount_namespace(root: &Root, pid: &str) -> Option<Vec<u8>> {
    let link = fs::read_link(root.path(&format!("/proc/{pid}/ns/mnt"))).ok()?;
    Some(link.as_os_str().as_bytes().to_vec())
}

/// Opens the folder of a process, beneath its root.
fn open_folder_of(machine: &Root, pid: u32, folder: &Path) -> Option<ShmFolder> {
    let mounts = fs::read_to_string(machine.process_file(pid, "mountinfo")).ok()?;
    let root = rustix::fs::open(
        machine.process_file(pid, "root"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let path = folder.to_str()?.to_owned();
    let opened = match open_memory_folder(&root, &path, &mounts) {
        Some(opened) => opened,
        None => {
            // On some systems it is a link. One link is followed, as seen from the root.
            let (parent, name) = path.rsplit_once('/')?;
            let parent = open_without_fuse(&root, parent, &mounts, OFlags::PATH | OFlags::DIRECTORY)?;
            let link = rustix::fs::readlinkat(&parent, name, Vec::new()).ok()?.into_string().ok()?;
            let target =
                if link.starts_with('/') { link } else { format!("{}/{link}", path.rsplit_once('/')?.0) };
            open_memory_folder(&root, &normalize(&target)?, &mounts)?
        }
    };
    let path = PathBuf::from(format!("/proc/{pid}/root{}", folder.display()));
    ShmFolder::new(opened, path, folder, false, true)
}

/// Removes `.` and `..` from an absolute path.
fn normalize(path: &str) -> Option<String> {
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

fn open_memory_folder(root: &OwnedFd, path: &str, mounts: &str) -> Option<OwnedFd> {
    let kinds = filesystems(path, mounts);
    // The last one is the folder's own.
    if kinds.last().is_none_or(|kind| *kind != "tmpfs" && *kind != "ramfs") {
        return None;
    }
    open_without_fuse(root, path, mounts, FOLDER)
}

fn open_without_fuse(root: &OwnedFd, path: &str, mounts: &str, flags: OFlags) -> Option<OwnedFd> {
    if filesystems(path, mounts).iter().any(|kind| kind.starts_with("fuse")) {
        return None;
    }
    let below = path.trim_start_matches('/');
    open_beneath(root.as_fd(), if below.is_empty() { "." } else { below }, flags | OFlags::CLOEXEC).ok()
}

/// The kinds of the filesystems along a path, outermost first, from a mount table. Of several mounts on one point, the last
/// hides the others.
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
    fn mount_table_gives_the_filesystems_of_a_path() {
        assert_eq!(filesystems("/dev/shm", MOUNTS), ["overlay", "tmpfs", "tmpfs"]);
        assert_eq!(filesystems("/mnt/shm", MOUNTS), ["overlay", "fuse.sshfs"]);
        assert_eq!(filesystems("/mntx", MOUNTS), ["overlay"]);
        assert_eq!(filesystems("/data/shm", MOUNTS), ["overlay", "tmpfs"], "the last mount hides the first");
    }

    #[test]
    fn paths_are_normalized() {
        assert_eq!(normalize("/dev/../run/./shm").as_deref(), Some("/run/shm"));
        assert_eq!(normalize("/../etc"), None, "nothing is above the root");
    }
}
