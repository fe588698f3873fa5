//! How much of the segment folder ttmem may use. The folder is the workload's own, and in a container often small: all segments
//! of one user together use at most an eighth of its filesystem, and of crash segments only the newest are kept. The oldest
//! are removed first.

use crate::identity;
use core::mem::MaybeUninit;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use ttmem_types::limits::CRASH_SEGMENTS;
use ttmem_wire::segment::{FAILURE_SUFFIXES, Header, parse_failure_name, parse_name};
use zerocopy::{FromZeros, IntoBytes};

/// The divisor for the part of the filesystem that ttmem may use.
const SHARE: u64 = 8;
/// Most crash segments that are removed at once.
const MAX_REMOVED: usize = 64;

/// Removes this user's crash segments except the newest [`CRASH_SEGMENTS`], and copies of segments that do not exist any more.
pub(crate) fn remove_old_crash_segments(folder: BorrowedFd<'_>) {
    remove_failures_without_segment(folder);
    for _ in 0..MAX_REMOVED {
        let CrashSegments { count, oldest } = find_crash_segments(folder);
        if count <= CRASH_SEGMENTS || !remove(folder, oldest) {
            return;
        }
    }
}

/// Returns whether a file of this user may take `wanted` more bytes, after removing the crash segments in the way of that.
pub(crate) fn make_space(folder: BorrowedFd<'_>, wanted: u64) -> bool {
    let Ok(system) = rustix::fs::fstatfs(folder) else { return true };
    let total = system.f_blocks.saturating_mul(system.f_bsize as u64);
    // Some filesystems do not report their size.
    if total == 0 {
        return true;
    }
    for _ in 0..MAX_REMOVED {
        if used_bytes(folder).saturating_add(wanted) <= total / SHARE {
            return true;
        }
        if !remove(folder, find_crash_segments(folder).oldest) {
            return false;
        }
    }
    false
}

/// Removes a segment with the copies of it.
fn remove(folder: BorrowedFd<'_>, name: Option<Name>) -> bool {
    let unlink = |name: &str| rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok();
    name.is_some_and(|name| {
        for suffix in FAILURE_SUFFIXES {
            let mut copy = Name::new();
            copy.push(format_args!("{}{suffix}", name.as_str()));
            unlink(copy.as_str());
        }
        unlink(name.as_str())
    })
}

fn remove_failures_without_segment(folder: BorrowedFd<'_>) {
    each_file(folder, |folder, name, _| {
        let segment = parse_failure_name(name.as_bytes()).and_then(|it| core::str::from_utf8(it).ok());
        let Some(segment) = segment else { return };
        let found = rustix::fs::statat(folder, segment, AtFlags::SYMLINK_NOFOLLOW);
        if matches!(found, Err(rustix::io::Errno::NOENT)) {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    });
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
    each_file(folder, |_, _, stat| {
        used = used.saturating_add((stat.st_blocks as u64).saturating_mul(512));
    });
    used
}

fn find_crash_segments(folder: BorrowedFd<'_>) -> CrashSegments {
    let mut count = 0;
    let mut oldest: Option<((i64, i64), Name)> = None;
    each_segment(folder, |folder, name, pid, stat| {
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

/// Calls `visit` with each of this user's segments: folder, name, pid in the name, attributes.
fn each_segment(
    folder: BorrowedFd<'_>,
    mut visit: impl FnMut(&rustix::fd::OwnedFd, &str, u32, &rustix::fs::Stat),
) {
    each_file(folder, |folder, name, stat| {
        if let Some((pid, _)) = parse_name(name.as_bytes()) {
            visit(folder, name, pid, stat);
        }
    });
}

/// Calls `visit` with each of this user's segments and their copies: folder, name, attributes.
fn each_file(folder: BorrowedFd<'_>, mut visit: impl FnMut(&rustix::fd::OwnedFd, &str, &rustix::fs::Stat)) {
    let uid = rustix::process::geteuid().as_raw();
    // A descriptor of our own: reading moves its position.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::openat(folder, ".", flags, Mode::empty()) else { return };
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let bytes = entry.file_name().to_bytes();
        if parse_name(bytes).is_none() && parse_failure_name(bytes).is_none() {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        if stat.st_uid == uid && rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            visit(&folder, core::str::from_utf8(bytes).unwrap_or_default(), &stat);
        }
    }
}

/// Returns whether it is certain that no process writes a segment any more.
fn is_crash_segment(folder: &rustix::fd::OwnedFd, name: &str, pid: u32) -> bool {
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
