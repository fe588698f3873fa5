//! How much of the segment folder ttmem may use. The folder is the workload's own, and in a container often small: all segments
//! of one user together use at most an eighth of its filesystem, and of crash segments only the newest are kept. The oldest
//! are removed first.
//!
//! The segment folder belongs to everybody, and may have any number of files of others. A writer therefore never lists it: each user
//! has an index, a folder in it with an empty file for each of the user's segments.

use crate::identity;
use core::mem::MaybeUninit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;
use ttmem_types::limits::CRASH_SEGMENTS;
use ttmem_wire::segment::{
    FAILURE_SUFFIXES, Header, INDEX_PREFIX, UNFINISHED_SUFFIX, parse_failure_name, parse_name,
};
use zerocopy::{FromZeros, IntoBytes};

/// The divisor for the part of the filesystem that ttmem may use.
const SHARE: u64 = 8;
/// Most crash segments that are removed at once.
const MAX_REMOVED: usize = 64;
/// Most entries of the segment folder that are read if the user's index belongs to another user.
const MAX_LISTED: usize = 4096;
/// Attempts to add a segment to the index while other processes remove the empty index.
const MAX_ATTEMPTS: usize = 16;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes this user's crash segments except the newest [`CRASH_SEGMENTS`].
pub(crate) fn remove_old_crash_segments(folder: BorrowedFd<'_>) {
    for _ in 0..MAX_REMOVED {
        let CrashSegments { count, oldest } = find_crash_segments(folder);
        if count <= CRASH_SEGMENTS || !remove(folder, oldest) {
            return;
        }
    }
}

/// Makes space for `wanted` more bytes in files of this user, by removing crash segments in the way of that. Returns how many bytes
/// may be added after these; `None`: there is no space.
pub(crate) fn make_space(folder: BorrowedFd<'_>, wanted: u64) -> Option<u64> {
    let Ok(system) = rustix::fs::fstatfs(folder) else { return Some(u64::MAX) };
    let total = system.f_blocks.saturating_mul(system.f_bsize as u64);
    // Some filesystems do not report their size.
    if total == 0 {
        return Some(u64::MAX);
    }
    for _ in 0..MAX_REMOVED {
        let used = used_bytes(folder).saturating_add(wanted);
        if let Some(left) = (total / SHARE).checked_sub(used) {
            return Some(left);
        }
        if !remove(folder, find_crash_segments(folder).oldest) {
            return None;
        }
    }
    None
}

/// Returns by how many bytes files of this user may grow, after removing crash segments in the way of the next `step`.
pub(crate) fn measure_growth(folder: &str, step: u64) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) else { return 0 };
    make_space(folder.as_fd(), step).map_or(0, |left| left.saturating_add(step))
}

/// Adds a segment to its user's index.
pub(crate) fn add_to_index(folder: BorrowedFd<'_>, name: &str) {
    for _ in 0..MAX_ATTEMPTS {
        let _ = rustix::fs::mkdirat(folder, index_name().as_str(), Mode::RWXU);
        let Ok(index) = open_index(folder) else { return };
        let added = rustix::fs::mknodat(&index, name, FileType::RegularFile, Mode::RUSR, 0);
        // The last process of the user that exits removes the index, perhaps since it was opened here.
        if added != Err(Errno::NOENT) {
            return;
        }
    }
}

/// Removes a segment from its user's index, and the index if it was the last one.
pub(crate) fn remove_from_index(folder: BorrowedFd<'_>, name: &str) {
    if let Ok(index) = open_index(folder) {
        let _ = rustix::fs::unlinkat(index, name, AtFlags::empty());
        let _ = rustix::fs::unlinkat(folder, index_name().as_str(), AtFlags::REMOVEDIR);
    }
}

fn index_name() -> Name {
    let mut name = Name::new();
    name.push(format_args!("{INDEX_PREFIX}{}", rustix::process::geteuid().as_raw()));
    name
}

/// Opens this user's index. The error is [`Errno::NOENT`] if there is none: then this user has no segments.
fn open_index(folder: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let index = rustix::fs::openat(folder, index_name().as_str(), FOLDER, Mode::empty())?;
    let stat = rustix::fs::fstat(&index)?;
    let is_private = !Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    let is_own = is_private && stat.st_uid == rustix::process::geteuid().as_raw();
    if is_own { Ok(index) } else { Err(Errno::PERM) }
}

/// Removes a segment with the copies of it.
fn remove(folder: BorrowedFd<'_>, name: Option<Name>) -> bool {
    let unlink = |name: &str| rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok();
    name.is_some_and(|name| {
        for copy in copies_of(name.as_str()) {
            unlink(copy.as_str());
        }
        let removed = unlink(name.as_str());
        remove_from_index(folder, name.as_str());
        removed
    })
}

/// The names of the copies that may have been made of a segment.
fn copies_of(name: &str) -> impl Iterator<Item = Name> {
    FAILURE_SUFFIXES.into_iter().chain([UNFINISHED_SUFFIX]).map(move |suffix| {
        let mut copy = Name::new();
        copy.push(format_args!("{name}{suffix}"));
        copy
    })
}

type Name = crate::text::Text<64>;

/// This user's crash segments.
struct CrashSegments {
    count: usize,
    oldest: Option<Name>,
}

/// Returns the bytes that this user's segments and their copies take.
fn used_bytes(folder: BorrowedFd<'_>) -> u64 {
    let mut used = 0u64;
    each_file(folder, |_, stat| {
        used = used.saturating_add((stat.st_blocks as u64).saturating_mul(512));
    });
    used
}

fn find_crash_segments(folder: BorrowedFd<'_>) -> CrashSegments {
    let mut count = 0;
    let mut oldest: Option<((i64, i64), Name)> = None;
    each_file(folder, |name, stat| {
        let Some((pid, _)) = parse_name(name.as_bytes()) else { return };
        if !is_crash_segment(folder, name, pid) {
            return;
        }
        count += 1;
        let modified = (stat.st_mtime, stat.st_mtime_nsec as i64);
        if oldest.as_ref().is_none_or(|(earliest, _)| modified < *earliest) {
            let mut copy = Name::new();
            copy.push(format_args!("{name}"));
            oldest = Some((modified, copy));
        }
    });
    CrashSegments { count, oldest: oldest.map(|(_, name)| name) }
}

/// Calls `visit` with each of this user's segments and their copies: name, attributes.
fn each_file(folder: BorrowedFd<'_>, mut visit: impl FnMut(&str, &Stat)) {
    let uid = rustix::process::geteuid().as_raw();
    let mut visit_own = |name: &str| {
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_uid == uid && FileType::from_raw_mode(stat.st_mode).is_file() {
            visit(name, &stat);
        }
        Ok::<(), Errno>(())
    };
    let index = match open_index(folder) {
        Ok(index) => index,
        Err(Errno::NOENT) => return,
        Err(_) => {
            // A descriptor of our own: reading moves its position.
            let Ok(folder) = rustix::fs::openat(folder, ".", FOLDER, Mode::empty()) else { return };
            return each_name(folder.as_fd(), MAX_LISTED, |name| {
                if parse_name(name.as_bytes()).is_some() || parse_failure_name(name.as_bytes()).is_some() {
                    let _ = visit_own(name);
                }
            });
        }
    };
    each_name(index.as_fd(), usize::MAX, |name| {
        if parse_name(name.as_bytes()).is_none() {
            return;
        }
        if visit_own(name) == Err(Errno::NOENT) {
            // Another program removed the segment. Copies of it are of no use without it.
            for copy in copies_of(name) {
                let _ = rustix::fs::unlinkat(folder, copy.as_str(), AtFlags::empty());
            }
            let _ = rustix::fs::unlinkat(&index, name, AtFlags::empty());
            return;
        }
        for copy in copies_of(name) {
            let _ = visit_own(copy.as_str());
        }
    });
}

/// Calls `visit` with the names of up to `most` entries of a folder.
fn each_name(folder: BorrowedFd<'_>, most: usize, mut visit: impl FnMut(&str)) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder, &mut buffer);
    for _ in 0..most {
        let Some(Ok(entry)) = entries.next() else { return };
        if let Ok(name) = entry.file_name().to_str() {
            visit(name);
        }
    }
}

/// Returns whether it is certain that no process writes a segment any more.
fn is_crash_segment(folder: BorrowedFd<'_>, name: &str, pid: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Opening and closing a segment of this process would drop the lock on it.
    if pid == identity::pid() {
        return false;
    }
    let Ok(file) = rustix::fs::openat(folder, name, flags, Mode::empty()) else { return false };
    let mut header = Header::new_zeroed();
    if rustix::io::pread(&file, header.as_mut_bytes(), 0) != Ok(size_of::<Header>()) {
        return false;
    }
    let lock = rustix::process::Flock::from(rustix::process::FlockType::WriteLock);
    let held = rustix::process::fcntl_getlk(&file, &lock);
    matches!(held, Ok(None))
        && identity::is_own_namespace(&header)
        && header.pid.get() == pid
        && identity::is_gone(pid, header.start_ticks.get())
}
