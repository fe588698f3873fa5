//! State that must be zero in a forked child: hooks in flight, whether a thread audits, which allocators are inherited, and
//! locks that another thread may have held.
#![allow(unsafe_code)]

use crate::shim::{FLIGHT_LINES, ttmem_state};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;
use ttmem_client::agent;

/// A thread that cannot take a lock for so long continues without it: the holder hangs, and the workload must not wait.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Bit of a lock whose holder hangs: no other thread waits for it again.
const STUCK: u32 = 1 << 31;

/// Variables that every event reads, in one cache line.
#[repr(C, align(64))]
pub(crate) struct State {
    /// `NOT_STARTED`, `ACTIVE`, `PASS_THROUGH` or `PAUSED`.
    pub(crate) mode: AtomicU32,
    /// Whether buffers may have per-core addresses.
    pub(crate) hybrid: AtomicU32,
    /// Changes in a forked child, where no thread is enrolled yet.
    pub(crate) generation: AtomicU32,
    /// Number of events, for the shim's meter.
    pub(crate) events: AtomicU32,
    pub(crate) page: AtomicPtr<Page>,
}

/// State in a mapping of its own, which the kernel wipes in a child, however that was created.
#[repr(C)]
pub(crate) struct Page {
    /// Threads that requested a line.
    pub(crate) enrolled: AtomicU32,
    /// Active hooks of threads without a line.
    pub(crate) others: AtomicU32,
    /// 1: inherited allocators were marked in this process.
    pub(crate) initialized: AtomicU32,
    /// 1: the audit thread was started.
    pub(crate) thread: AtomicU32,
    /// The thread that looks up the runtime.
    pub(crate) starting: AtomicU32,
    /// The thread that adds or defines an allocator.
    pub(crate) adding: AtomicU32,
    /// The thread that queries or destroys an allocator.
    pub(crate) auditing: AtomicU32,
    /// The thread that uses the table of programs.
    pub(crate) programs: AtomicU32,
    /// The thread that mirrors a buffer or ends a mirror, and records it.
    pub(crate) mirroring: AtomicU32,
    /// The thread that uses the table of native addresses.
    pub(crate) naming: AtomicU32,
    /// Threads that are between a change of an allocator and its record.
    pub(crate) lines: [Line; FLIGHT_LINES as usize],
}

/// A thread's count of its active hooks.
#[repr(C, align(64))]
pub(crate) struct Line {
    pub(crate) under_way: AtomicU32,
}

#[inline]
pub(crate) fn state() -> &'static State {
    let state = &raw const ttmem_state;
    // SAFETY: all fields are atomic.
    unsafe { &*state }
}

/// The page, mapped if it was not. `None`: there is no memory for it.
fn page_or_map() -> Option<&'static Page> {
    if let Some(page) = page() {
        return Some(page);
    }
    map_zeroed(&state().page);
    page()
}

/// Maps a value of zeros, which is zero again in a forked child, unless there is one already.
pub(crate) fn map_zeroed<T>(pointer: &AtomicPtr<T>) {
    let bytes = size_of::<T>().next_multiple_of(4096);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let new = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if new == libc::MAP_FAILED {
        return;
    }
    // A kernel before 4.14 cannot do this: a child then has its parent's state, and its audits are not reliable.
    // SAFETY: our own mapping; the call has no effect in this process.
    unsafe { libc::madvise(new, bytes, libc::MADV_WIPEONFORK) };
    let first = pointer.compare_exchange(ptr::null_mut(), new.cast(), Ordering::AcqRel, Ordering::Acquire);
    if first.is_err() {
        // SAFETY: another thread was faster, and no other thread has this mapping's address.
        unsafe { libc::munmap(new, bytes) };
    }
}

#[inline]
pub(crate) fn page() -> Option<&'static Page> {
    // SAFETY: null, or the mapping, which is never unmapped; zeros are valid.
    unsafe { state().page.load(Ordering::Acquire).as_ref() }
}

impl Page {
    /// Marks the page as initialized. Returns whether this is the first call in this process.
    #[inline]
    pub(crate) fn initialize(&self) -> bool {
        if self.initialized.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.initialized.store(1, Ordering::Relaxed);
        state().generation.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Number of active hooks.
    pub(crate) fn under_way(&self) -> u64 {
        fence(Ordering::SeqCst);
        let enrolled = self.enrolled.load(Ordering::Relaxed) as usize;
        let lines = self.lines.iter().take(enrolled);
        let own: u64 = lines.map(|it| u64::from(it.under_way.load(Ordering::Acquire))).sum();
        own + u64::from(self.others.load(Ordering::Acquire))
    }
}

/// A lock of the page, held until this is dropped.
pub(crate) struct Lock(&'static AtomicU32);

impl Lock {
    /// Waits for a lock, which others hold for microseconds.
    #[inline]
    fn acquire(lock: &'static AtomicU32, timeout: Duration) -> Option<Self> {
        let mut since = None;
        // Threads are at least a cache line apart.
        let own = (agent::thread_id() >> 6) as u32 & !STUCK | 1;
        while let Err(holder) = lock.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            // A signal handler that interrupted this thread, or jumped out of a hook, would wait for itself.
            if holder & STUCK != 0 || holder == own {
                return None;
            }
            if since.get_or_insert_with(Instant::now).elapsed() > timeout {
                let _ = lock.compare_exchange(holder, holder | STUCK, Ordering::Relaxed, Ordering::Relaxed);
                return None;
            }
            // Not `sched_yield`: a thread of higher priority would keep the holder from running.
            let moment = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
            // SAFETY: the call reads the time, and writes nothing.
            unsafe { libc::nanosleep(&raw const moment, ptr::null_mut()) };
        }
        Some(Self(lock))
    }

    /// Excludes other threads from looking up the runtime. No thread can continue before that is done, so there is no timeout.
    pub(crate) fn acquire_start() -> Option<Self> {
        Self::acquire(&page_or_map()?.starting, Duration::MAX)
    }

    /// Excludes other threads from adding and defining allocators.
    pub(crate) fn acquire_add() -> Option<Self> {
        Self::acquire(&page()?.adding, LOCK_TIMEOUT)
    }

    /// Excludes other threads from the table of programs.
    #[inline]
    pub(crate) fn acquire_programs() -> Option<Self> {
        Self::acquire(&page()?.programs, LOCK_TIMEOUT)
    }

    /// Excludes other threads from the table of native addresses.
    pub(crate) fn acquire_names() -> Option<Self> {
        Self::acquire(&page()?.naming, LOCK_TIMEOUT)
    }

    /// Excludes other threads from changing mirrors, until [`release_mirrors`]. Returns whether it does.
    pub(crate) fn acquire_mirrors() -> bool {
        let lock = page().and_then(|page| Self::acquire(&page.mirroring, LOCK_TIMEOUT));
        lock.map(core::mem::forget).is_some()
    }

    /// Excludes other threads from querying and destroying allocators.
    pub(crate) fn acquire_query() -> Option<Self> {
        Self::acquire(&page()?.auditing, LOCK_TIMEOUT)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Releases the lock of [`Lock::acquire_mirrors`].
pub(crate) fn release_mirrors() {
    if let Some(page) = page() {
        page.mirroring.store(0, Ordering::Release);
    }
}
