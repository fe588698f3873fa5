//! What a forked child must find at zero: which hooks are under way, who audits, which allocators are its own, and locks
//! that some other thread held.
#![allow(unsafe_code)]

use crate::shim::{FLIGHT_LINES, ttmem_state};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

/// Who cannot have an allocator for so long goes on without it: whoever has it will not come out, and the workload must
/// not wait for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// What every event reads, in one cache line.
#[repr(C, align(64))]
pub(crate) struct State {
    /// `NOT_STARTED`, `AT_WORK`, `CALLS_THROUGH` or `PAUSED`.
    pub(crate) mode: AtomicU32,
    /// Whether buffers may have an address on each core.
    pub(crate) hybrid: AtomicU32,
    /// Changes when this process turns out to be a child, whose threads are not enrolled.
    pub(crate) generation: AtomicU32,
    /// How many events the shim has counted, for its meter.
    pub(crate) events: AtomicU32,
    pub(crate) page: AtomicPtr<Page>,
}

/// In pages of its own, which the kernel wipes in a child, however it was made.
#[repr(C)]
pub(crate) struct Page {
    /// Threads that wanted a line.
    pub(crate) enrolled: AtomicU32,
    /// Of those that found none: how many are under way.
    pub(crate) others: AtomicU32,
    /// 1: this process has seen what it inherited.
    pub(crate) settled: AtomicU32,
    /// 1: the thread that audits was started.
    pub(crate) thread: AtomicU32,
    /// 1: somebody looks for the runtime.
    pub(crate) starting: AtomicU32,
    /// 1: somebody adds an allocator, or defines one.
    pub(crate) adding: AtomicU32,
    /// 1: somebody asks an allocator, or ends one.
    pub(crate) auditing: AtomicU32,
    /// 1: somebody is at the programs.
    pub(crate) programs: AtomicU32,
    /// Which threads are between a change of an allocator and its record.
    pub(crate) lines: [Line; FLIGHT_LINES as usize],
}

/// A thread's counter of the hooks it is in.
#[repr(C, align(64))]
pub(crate) struct Line {
    pub(crate) under_way: AtomicU32,
}

#[inline]
pub(crate) fn state() -> &'static State {
    let state = &raw const ttmem_state;
    // SAFETY: everything in it is atomic.
    unsafe { &*state }
}

/// The pages, made if there are none. `None`: there is no memory for them.
fn begin() -> Option<&'static Page> {
    if let Some(page) = page() {
        return Some(page);
    }
    make(&state().page);
    page()
}

/// Makes something of zeros, which a forked child finds at zero again, unless it is there already.
pub(crate) fn make<T>(place: &AtomicPtr<T>) {
    let bytes = size_of::<T>().next_multiple_of(4096);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let new = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if new == libc::MAP_FAILED {
        return;
    }
    // Where the kernel cannot (before 4.14), a child looks like its parent: its audits are then its own affair.
    // SAFETY: our own mapping; in this process it changes nothing.
    unsafe { libc::madvise(new, bytes, libc::MADV_WIPEONFORK) };
    let first = place.compare_exchange(ptr::null_mut(), new.cast(), Ordering::AcqRel, Ordering::Acquire);
    if first.is_err() {
        // SAFETY: another thread was faster, and nobody has seen this one.
        unsafe { libc::munmap(new, bytes) };
    }
}

#[inline]
pub(crate) fn page() -> Option<&'static Page> {
    // SAFETY: null, or the pages, which are never given back; zeros are valid.
    unsafe { state().page.load(Ordering::Acquire).as_ref() }
}

impl Page {
    /// Whether this process has not yet seen what it inherited. From now on it has.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        if self.settled.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.settled.store(1, Ordering::Relaxed);
        state().generation.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Hooks that are under way.
    pub(crate) fn under_way(&self) -> u64 {
        fence(Ordering::SeqCst);
        let enrolled = self.enrolled.load(Ordering::Relaxed) as usize;
        let lines = self.lines.iter().take(enrolled);
        let own: u64 = lines.map(|it| u64::from(it.under_way.load(Ordering::Acquire))).sum();
        own + u64::from(self.others.load(Ordering::Acquire))
    }
}

/// A lock of the page's, as long as this lives.
pub(crate) struct Lock(&'static AtomicU32);

impl Lock {
    /// Waits for the others: they hold it for microseconds.
    #[inline]
    fn take(lock: &'static AtomicU32, patience: Duration) -> Option<Self> {
        let mut since = None;
        while lock.swap(1, Ordering::Acquire) != 0 {
            if since.get_or_insert_with(Instant::now).elapsed() > patience {
                return None;
            }
            // SAFETY: has no effect but on who runs.
            unsafe { libc::sched_yield() };
        }
        Some(Self(lock))
    }

    /// Nobody else looks for the runtime. Without it nothing can go on.
    pub(crate) fn to_start() -> Option<Self> {
        Self::take(&begin()?.starting, Duration::MAX)
    }

    /// Nobody else adds an allocator, or defines one.
    pub(crate) fn to_add() -> Option<Self> {
        Self::take(&page()?.adding, PATIENCE)
    }

    /// Nobody else is at the programs.
    #[inline]
    pub(crate) fn of_programs() -> Option<Self> {
        Self::take(&page()?.programs, PATIENCE)
    }

    /// Nobody else asks an allocator, or ends one.
    pub(crate) fn to_ask() -> Option<Self> {
        Self::take(&page()?.auditing, PATIENCE)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
