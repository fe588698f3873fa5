//! The segment as this process maps it. No other module accesses shared memory.
//!
//! The whole file is allocated before it is used: on a full filesystem a hole in it would kill the workload. Address space for
//! the largest table is mapped at once, beyond the end of the file, so that growing it is one `fallocate`.
#![allow(unsafe_code)]

use crate::bus_error::Protection;
use crate::descriptor::Descriptor;
use crate::publish::AtomicU64;
use crate::quota;
use crate::text::Text;
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use ttmem_wire::record::{SIZE, WORDS};
use ttmem_wire::segment::{Header, MAGIC, MAX_SLOTS, Plan, word};
use zerocopy::IntoBytes;

const _: () =
    assert!(cfg!(target_endian = "little"), "segments are little-endian, and words are stored as they are");

/// Records of a ring, unless another number was chosen.
pub(crate) const DEFAULT_RING: u32 = 16_384;

/// Sizes of segments, largest first: the first one for which there is space is used.
const PLANS: [Plan; 3] = [
    Plan { rows: 512, definition_blocks: 16_384, ring_records: DEFAULT_RING, slots: 4096 },
    Plan { rows: 128, definition_blocks: 1024, ring_records: 2048, slots: 1024 },
    Plan { rows: 32, definition_blocks: 128, ring_records: 256, slots: 256 },
];

/// Most slots by which the table grows at once, else to twice its size: the workload waits while the kernel zeroes them.
const MAX_GROWTH: u32 = 16_384;
/// Most bytes by which the file grows at once.
pub(crate) const GROWTH_BYTES: u64 = MAX_GROWTH as u64 * SIZE as u64;
/// Numbers of slots for which address space is reserved, in order of preference.
const RESERVES: [u32; 3] = [MAX_SLOTS, MAX_SLOTS >> 3, MAX_SLOTS >> 6];

/// `f_type` of filesystems in memory.
const TMPFS: i64 = 0x0102_1994;

const FULL: Problem = Problem { text: "segment folder is full: ttmem may use 1/8 of it", errno: None };
/// What is wrong with a segment whose file another program changed.
const TRUNCATED: Problem =
    Problem { text: "another program truncated the segment; figures are kept in memory only", errno: None };
const PUNCHED: Problem =
    Problem { text: "another program erased parts of the segment; its figures are incomplete", errno: None };

/// Why there is no segment or a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) text: &'static str,
    pub(crate) errno: Option<Errno>,
}

struct File {
    fd: Descriptor,
    name: Text<64>,
    protection: Option<Protection>,
    /// Bytes by which the file may grow; see [`Segment::set_growth`].
    growth: u64,
    has_grown: bool,
}

/// A segment. What every event uses comes first, ready for use: the rest of the plan would have to be computed anew each time.
#[repr(C)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    ring: NonNull<Line>,
    /// Records of the ring, minus 1.
    ring_mask: usize,
    table: NonNull<Line>,
    rows: NonNull<Line>,
    slots: u32,
    max_slots: u32,
    plan: Plan,
    reserved: usize,
    file: WithoutNiche<Option<File>>,
}

/// Hides from the compiler which values a type lacks, so that `Option<Segment>` is recognised by its first word: every event reads
/// that one anyway.
struct WithoutNiche<T>(UnsafeCell<T>);

impl<T> WithoutNiche<T> {
    fn get(&self) -> &T {
        // SAFETY: nothing changes the value through a shared reference.
        unsafe { &*self.0.get() }
    }
}

// SAFETY: the mapping belongs to the process, not to a thread, and its words are atomic.
unsafe impl Send for Segment {}

/// A record, a slot or a copy of a row.
pub(crate) type Line = [AtomicU64; WORDS];

impl Segment {
    /// Creates a segment in a file, as large as there is space for, with a ring of `ring` records if there is space for that.
    /// Readers ignore it until [`Segment::make_visible`]. `header` lacks its plan and its magic. The problem is why the segment is
    /// smaller than it should be, or why there is none.
    pub(crate) fn create(
        folder: &str,
        group: Option<u32>,
        ring: u32,
        header: &Header,
    ) -> (Option<Self>, Option<Problem>) {
        let folder = match rustix::fs::open(
            folder,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(folder) => folder,
            Err(e) => {
                return (
                    None,
                    Some(Problem { text: "cannot open segment folder (TTMEM_SHM_DIR)", errno: Some(e) }),
                );
            }
        };
        // Elsewhere, pages are written to a disk or a server, and the workload waits for that.
        if rustix::fs::fstatfs(&folder).is_ok_and(|it| { it.f_type } != TMPFS) {
            let text = "segment folder is not on a tmpfs: use /dev/shm, or a folder in it (TTMEM_SHM_DIR)";
            return (None, Some(Problem { text, errno: None }));
        }
        quota::remove_old_crash_segments(folder.as_fd());
        let mut problem = None;
        let chosen = Plan { ring_records: ring, ..PLANS[0] };
        let is_smaller = |plan: &Plan| plan.bytes(plan.slots) < chosen.bytes(chosen.slots);
        for plan in [chosen].into_iter().chain(PLANS.into_iter().filter(is_smaller)) {
            match Self::create_with_plan(folder.as_fd(), group, header, plan) {
                Ok(segment) => return (Some(segment), problem),
                Err(why) => problem = Some(why),
            }
        }
        (None, problem)
    }

    fn create_with_plan(
        folder: BorrowedFd<'_>,
        group: Option<u32>,
        header: &Header,
        plan: Plan,
    ) -> Result<Self, Problem> {
        let bytes = plan.bytes(plan.slots);
        let growth = quota::make_space(folder, bytes as u64).ok_or(FULL)?;
        let mut name = Text::new();
        name.push(format_args!(
            "{}{}.{:016x}",
            ttmem_wire::segment::FILE_PREFIX,
            header.pid.get(),
            header.nonce.get()
        ));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Problem { text: "cannot create segment", errno: Some(e) })?;
        let created = Self::set_up(fd, group, header, plan, name, growth);
        if created.is_ok() {
            quota::add_to_index(folder, name.as_str());
        } else {
            let _ = rustix::fs::unlinkat(folder, name.as_str(), rustix::fs::AtFlags::empty());
        }
        created
    }

    fn set_up(
        fd: OwnedFd,
        group: Option<u32>,
        header: &Header,
        plan: Plan,
        name: Text<64>,
        growth: u64,
    ) -> Result<Self, Problem> {
        let failed = |text| move |e| Problem { text, errno: Some(e) };
        let descriptor = Descriptor::new(fd).map_err(failed("cannot stat segment"))?;
        let Some(fd) = descriptor.verified() else {
            return Err(Problem { text: "segment descriptor was closed by the program", errno: None });
        };
        let bytes = plan.bytes(plan.slots);
        check_limit(bytes)?;
        rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, bytes as u64)
            .map_err(failed("no space for segment"))?;
        if let Some(group) = group {
            let group = rustix::fs::Gid::from_raw(group);
            rustix::fs::fchown(fd, None, Some(group))
                .and_then(|()| rustix::fs::fchmod(fd, Mode::RUSR | Mode::WUSR | Mode::RGRP))
                .map_err(failed("cannot set group of segment (TTMEM_GROUP)"))?;
        }
        // The lock is of this process alone: forked children do not have it, and it ends with the process or its image. From the kernel,
        // readers get the writer's identity. It is taken last: closing another descriptor of the file would drop it.
        rustix::fs::fcntl_lock(fd, FlockOperation::NonBlockingLockExclusive)
            .map_err(failed("cannot lock segment"))?;
        let file = File { fd: descriptor, name, protection: None, growth, has_grown: false };
        let mut segment =
            Self::map(plan, Some(file)).ok_or(Problem { text: "cannot map segment", errno: None })?;
        segment.protect();
        segment.write_header(header);
        Ok(segment)
    }

    fn protect(&mut self) {
        let (base, bytes) = (self.base.as_ptr(), self.plan.bytes(self.slots));
        if let Some(file) = self.file.0.get_mut()
            && let Some(fd) = file.fd.verified()
        {
            file.protection = Protection::new(base, self.reserved, bytes, fd, file.fd.file_id());
        }
    }

    /// Creates a segment in private memory, which keeps the figures without a file.
    pub(crate) fn create_private(header: &Header) -> Option<Self> {
        let mut segment = Self::map(PLANS[0], None)?;
        segment.write_header(header);
        Some(segment)
    }

    fn map(plan: Plan, file: Option<File>) -> Option<Self> {
        for max_slots in RESERVES {
            let reserved = plan.bytes(max_slots);
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let shared = |fd: BorrowedFd<'_>| {
                // SAFETY: a new mapping at an address that the kernel chooses affects no other memory. What is beyond the end of
                // the file is not accessed before `grow` has allocated it.
                unsafe { mmap(ptr::null_mut(), reserved, access, MapFlags::SHARED, fd, 0) }
            };
            let private = || {
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
                // SAFETY: a new private mapping at an address that the kernel chooses affects no other memory.
                unsafe { mmap_anonymous(ptr::null_mut(), reserved, access, flags) }
            };
            let base = match &file {
                Some(file) => shared(file.fd.verified()?),
                None => private(),
            };
            if let Some(base) = base.ok().and_then(|base| NonNull::new(base.cast::<u8>())) {
                // SAFETY: these offsets are within the mapping.
                let [ring, table, rows] = unsafe {
                    [plan.ring_offset(), plan.table_offset(), plan.rows_offset()]
                        .map(|offset| base.add(offset).cast())
                };
                let ring_mask = plan.ring_records as usize - 1;
                let slots = plan.slots;
                return Some(Self {
                    base,
                    ring,
                    ring_mask,
                    table,
                    rows,
                    slots,
                    max_slots,
                    plan,
                    reserved,
                    file: WithoutNiche(UnsafeCell::new(file)),
                });
            }
        }
        None
    }

    fn write_header(&mut self, header: &Header) {
        let planned = self.plan.header();
        let mut words = [0u64; size_of::<Header>() / 8];
        let full = Header {
            pid: header.pid,
            uid: header.uid,
            start_ticks: header.start_ticks,
            pid_namespace: header.pid_namespace,
            nonce: header.nonce,
            wall_ns: header.wall_ns,
            mono_ns: header.mono_ns,
            program: header.program,
            writer: header.writer,
            runtime: header.runtime,
            run: header.run,
            ..planned
        };
        words.as_mut_bytes().copy_from_slice(full.as_bytes());
        self.word(word::SLOTS).store(u64::from(self.slots), RELAXED);
        for (n, &value) in words.iter().enumerate().skip(1) {
            self.word(n * 8).store(value, RELAXED);
        }
    }

    /// Makes the segment valid for readers: a reader that sees the magic sees everything stored before it.
    pub(crate) fn make_visible(&self) {
        self.word(0).store(MAGIC, core::sync::atomic::Ordering::Release);
    }

    /// Returns the file's name; `None` if the segment is private.
    pub(crate) fn name(&self) -> Option<&str> {
        Some(self.file.get().as_ref()?.name.as_str())
    }

    /// Returns the file's time of modification, in nanoseconds and never 0; `None` if there is no file.
    pub(crate) fn modified(&self) -> Option<i128> {
        let stat = rustix::fs::fstat(self.file.get().as_ref()?.fd.verified()?).ok()?;
        Some(i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec) + 1)
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns a word of the header.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset % 8 == 0 && offset < ttmem_wire::segment::HEADER_BYTES);
        // SAFETY: the word is in the header, which is mapped and allocated, and is aligned.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    #[inline]
    fn line(&self, offset: usize) -> &Line {
        // SAFETY: callers stay below the end of the file, where lines are 64-byte aligned.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    /// Returns bytes of the areas that are in use. Nothing may change them meanwhile.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.plan.bytes(self.slots), "within the file");
        // SAFETY: mapped and allocated; only the writer changes it, which the caller is.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Returns the permissions of its file.
    pub(crate) fn mode(&self) -> Mode {
        let stat = self.file.get().as_ref().and_then(|file| rustix::fs::fstat(file.fd.verified()?).ok());
        stat.map_or(Mode::RUSR | Mode::WUSR, |stat| Mode::from_raw_mode(stat.st_mode & 0o660))
    }

    /// Returns the line of the `n`-th failed allocation, from 0.
    pub(crate) fn failure(&self, n: u64) -> &Line {
        let place = n as usize % ttmem_wire::segment::FAILURES;
        self.line(word::FAILURES + place * SIZE)
    }

    /// Returns the line of the last mark.
    pub(crate) fn mark(&self) -> &Line {
        self.line(word::MARK)
    }

    /// Returns the line of the ring for the record with this sequence.
    #[inline]
    pub(crate) fn record(&self, sequence: u64) -> &Line {
        // SAFETY: the ring is mapped, and the mask keeps the number below its length.
        unsafe { self.ring.add(sequence as usize & self.ring_mask).as_ref() }
    }

    /// Returns a slot of the table.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> Option<&Line> {
        // SAFETY: so many slots are mapped and allocated.
        (slot < self.slots).then(|| unsafe { self.table.add(slot as usize).as_ref() })
    }

    /// Returns one of a row's two copies.
    #[inline]
    pub(crate) fn row(&self, row: u32, copy: usize) -> Option<&Line> {
        // SAFETY: so many rows are mapped, each with two copies.
        (row < self.plan.rows).then(|| unsafe { self.rows.add(row as usize * 2 + (copy & 1)).as_ref() })
    }

    /// Returns a block of definitions.
    pub(crate) fn block(&self, block: usize) -> Option<&Line> {
        let offset = self.plan.definitions_offset() + block * SIZE;
        (block < self.plan.definition_blocks as usize).then(|| self.line(offset))
    }

    /// Returns what another program did to the file.
    pub(crate) fn find_damage(&self) -> Option<Problem> {
        let file = self.file.get().as_ref()?;
        if file.protection.as_ref().is_some_and(Protection::is_truncated) {
            return Some(TRUNCATED);
        }
        let stat = rustix::fs::fstat(file.fd.verified()?).ok()?;
        // All of it was allocated. A hole is filled with zeros at the next access, but the magic stays away.
        let is_whole = stat.st_blocks as u64 * 512 >= self.plan.bytes(self.slots) as u64;
        (!is_whole || self.word(0).load(RELAXED) != MAGIC).then_some(PUNCHED)
    }

    /// Returns whether the table has grown, or could not, since [`Segment::set_growth`].
    pub(crate) fn has_grown(&self) -> bool {
        self.file.get().as_ref().is_some_and(|file| file.has_grown)
    }

    /// Sets by how many bytes the file may grow. Nothing is measured when it grows: the workload waits then.
    pub(crate) fn set_growth(&mut self, bytes: u64) {
        if let Some(file) = self.file.0.get_mut() {
            (file.growth, file.has_grown) = (bytes, false);
        }
    }

    /// Grows the table.
    pub(crate) fn grow(&mut self) -> Result<(), Problem> {
        let slots = (self.slots + self.slots.min(MAX_GROWTH)).min(self.max_slots);
        if slots == self.slots {
            return Err(Problem { text: "segment table has its maximum size", errno: None });
        }
        if let Some(file) = self.file.0.get_mut() {
            // To allocate what follows would fill a truncated file with zeros.
            if file.protection.as_ref().is_some_and(Protection::is_truncated) {
                return Err(TRUNCATED);
            }
            let Some(fd) = file.fd.verified() else {
                return Err(Problem { text: "segment descriptor was closed by the program", errno: None });
            };
            check_limit(self.plan.bytes(slots))?;
            let (from, to) = (self.plan.bytes(self.slots) as u64, self.plan.bytes(slots) as u64);
            file.has_grown = true;
            file.growth = file.growth.checked_sub(to - from).ok_or(FULL)?;
            rustix::fs::fallocate(fd, FallocateFlags::empty(), from, to - from)
                .map_err(|e| Problem { text: "no space to grow segment", errno: Some(e) })?;
            if let Some(protection) = &file.protection {
                protection.set_bytes(to as usize);
            }
        }
        self.slots = slots;
        self.word(word::SLOTS).store(u64::from(slots), core::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Returns whether the file still exists under its name.
    pub(crate) fn is_linked(&self, folder: &str) -> bool {
        let Some(file) = self.file.get() else { return false };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = rustix::fs::open(folder, flags, Mode::empty()).and_then(|folder| {
            rustix::fs::statat(&folder, file.name.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        });
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == file.fd.file_id())
    }

    /// Removes the file; the mapping stays usable.
    pub(crate) fn unlink(&self, folder: &str) {
        if let (Some(file), true) = (self.file.get(), self.is_linked(folder)) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) {
                let _ = rustix::fs::unlinkat(&folder, file.name.as_str(), rustix::fs::AtFlags::empty());
            }
        }
        self.remove_from_index(folder);
    }

    /// Removes the file from its user's index.
    pub(crate) fn remove_from_index(&self, folder: &str) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let (Some(name), Ok(folder)) = (self.name(), rustix::fs::open(folder, flags, Mode::empty())) {
            quota::remove_from_index(folder.as_fd(), name);
        }
    }
}

/// Checks the limit of file sizes. Beyond it the kernel does not only refuse: it sends a signal that ends the process.
pub(crate) fn check_limit(bytes: usize) -> Result<(), Problem> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if limit < bytes as u64 => {
            Err(Problem { text: "file size limit (ulimit -f) is too small for a segment", errno: None })
        }
        _ => Ok(()),
    }
}

const RELAXED: core::sync::atomic::Ordering = core::sync::atomic::Ordering::Relaxed;

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(file) = self.file.0.get_mut() {
            file.protection = None;
        }
        // SAFETY: the mapping is ours, and no reference to it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.reserved) };
    }
}
