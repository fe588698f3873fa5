//! How much of the segment folder ttmem may use. It is the workload's own, and in a container often small: all segments
//! of one user together stay below an eighth of it. If that is not enough, what the dead left goes first.

use crate::identity;
use core::mem::MaybeUninit;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use ttmem_wire::segment::{Header, parse_name};
use zerocopy::{FromZeros, IntoBytes};

/// The part of the filesystem that is ttmem's.
const SHARE: u64 = 8;
/// Files of the dead that are removed for one segment.
const MOST_REMOVED: usize = 64;

/// Whether a file of this user may take `wanted` more bytes, after removing what must go for that.
pub(crate) fn make(folder: BorrowedFd<'_>, wanted: u64) -> bool {
    let Ok(system) = rustix::fs::fstatfs(folder) else { return true };
    let total = system.f_blocks.saturating_mul(system.f_bsize as u64);
    // Some filesystems do not say how large they are.
    if total == 0 {
        return true;
    }
    for _ in 0..MOST_REMOVED {
        let (used, _) = survey(folder, false);
        if used.saturating_add(wanted) <= total / SHARE {
            return true;
        }
        let (_, Some(oldest)) = survey(folder, true) else { return false };
        if rustix::fs::unlinkat(folder, oldest.as_str(), AtFlags::empty()).is_err() {
            return false;
        }
    }
    false
}

type Name = crate::text::Text<64>;

/// Bytes that this user's segments take, and the oldest one whose writer is gone, if that is asked for.
fn survey(folder: BorrowedFd<'_>, for_the_dead: bool) -> (u64, Option<Name>) {
    let uid = rustix::process::geteuid().as_raw();
    let mut used = 0u64;
    let mut oldest: Option<((i64, i64), Name)> = None;
    // A descriptor of our own: reading moves its position.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::openat(folder, ".", flags, Mode::empty()) else { return (0, None) };
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { break };
        let bytes = entry.file_name().to_bytes();
        let Some((pid, _)) = parse_name(bytes) else { continue };
        let Ok(found) = rustix::fs::statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        if found.st_uid != uid || !rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() {
            continue;
        }
        used = used.saturating_add((found.st_blocks as u64).saturating_mul(512));
        let at = (found.st_mtime, found.st_mtime_nsec as i64);
        if for_the_dead && oldest.as_ref().is_none_or(|(than, _)| at < *than) {
            let mut name = Name::new();
            name.push(format_args!("{}", core::str::from_utf8(bytes).unwrap_or_default()));
            if is_left_behind(&folder, name.as_str(), pid) {
                oldest = Some((at, name));
            }
        }
    }
    (used, oldest.map(|(_, name)| name))
}

/// Whether nobody writes a segment any more, as far as can be told for certain.
fn is_left_behind(folder: &rustix::fd::OwnedFd, name: &str, pid: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Opening and closing one's own segment would drop one's lock on it.
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
        && identity::same_namespace(&header)
        && header.pid.get() == pid
        && identity::is_gone(pid, header.start_ticks.get())
}
