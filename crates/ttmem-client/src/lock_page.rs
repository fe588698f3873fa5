//! The lock of a tracker, in a page of its own that the kernel zeroes in a forked child.
#![allow(unsafe_code)]

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use rustix::fs::Timespec;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{MembarrierCommand, futex, membarrier};

/// State that must be zero in a forked child, however it was made: the kernel wipes this page on `fork` and `clone`.
#[repr(C)]
pub(crate) struct LockPage {
    /// Thread that holds the lock, by its [`crate::tracker::thread_id`], or 0.
    pub(crate) owner: AtomicU64,
    /// Not 0 if a thread with the lock may use the writer at once. Else it must look at everything below first.
    pub(crate) usual: AtomicU64,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
    /// 1: a thread was woken up, and no other needs to be until it has tried to take the lock.
    woken: AtomicU32,
    /// Changes when a thread is woken up: what sleepers wait for.
    wakes: AtomicU32,
    /// Process that this memory belongs to; 0 in a child that has not made a report yet.
    pub(crate) pid: AtomicU64,
    /// 1 if the kernel does not wipe the page, so that `pid` must be compared with the real one.
    pub(crate) compare_pid: AtomicU64,
}

impl LockPage {
    /// Maps a page. It stays mapped until [`LockPage::unmap`], since other threads may be about to read it.
    pub(crate) fn new() -> Option<&'static Self> {
        let bytes = rustix::param::page_size();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address that the kernel chooses affects no other memory.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) }.ok()?;
        let base = NonNull::new(base)?;
        // SAFETY: the page is ours, large enough and aligned for a `LockPage`, and zeros are a valid one.
        let page = unsafe { &*base.as_ptr().cast::<Self>() };
        // SAFETY: the range is our own mapping. In this process the advice changes nothing.
        let wiped = unsafe { madvise(base.as_ptr(), bytes, Advice::LinuxWipeOnFork) };
        if wiped.is_err() {
            // Kernels before 4.14, and a few sandboxes.
            page.compare_pid.store(1, Ordering::Relaxed);
        }
        Some(page)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_acquire(&self, thread: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == 0
            && self.owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock, and wakes up a thread that waits for it.
    #[inline]
    pub(crate) fn release(&self) {
        self.owner.store(0, Ordering::Release);
        // No barrier: a sleeper makes one for both sides (`announce_sleeper`).
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Wakes up one thread. While it has not run yet, further releases wake up no other: a busy owner would do nothing else.
    #[cold]
    fn wake(&self) {
        if self.woken.swap(1, Ordering::SeqCst) == 0 {
            self.wakes.fetch_add(1, Ordering::SeqCst);
            let _ = futex::wake(&self.wakes, futex::Flags::PRIVATE, 1);
        }
    }

    /// Announces a thread that will sleep. After that, each release either sees it, or is seen by it.
    pub(crate) fn announce_sleeper(&self) -> Sleeper<'_> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // The barrier that a release lacks is made in all threads that run. Where the kernel refuses that, sleepers do not sleep long.
        let expedited = MembarrierCommand::PrivateExpedited;
        let has_barrier = membarrier(expedited).is_ok()
            || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(expedited).is_ok();
        fence(Ordering::SeqCst);
        Sleeper { page: self, has_barrier }
    }

    /// Unmaps a page.
    ///
    /// # Safety
    ///
    /// The page is from [`LockPage::new`], and there is no reference to it any more.
    pub(crate) unsafe fn unmap(page: *mut Self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { munmap(page.cast(), rustix::param::page_size()) };
    }
}

/// A thread that waits for the lock.
pub(crate) struct Sleeper<'a> {
    page: &'a LockPage,
    /// Whether a release after the announcement is sure to be noticed.
    has_barrier: bool,
}

impl Sleeper<'_> {
    /// Sleeps until the lock was released, or for a while. Returns at once if it is free.
    pub(crate) fn sleep(&self) {
        let seen = self.page.wakes.load(Ordering::SeqCst);
        // From here on, the next release wakes up a thread.
        self.page.woken.store(0, Ordering::SeqCst);
        if self.page.owner.load(Ordering::SeqCst) == 0 {
            return;
        }
        let longest = if self.has_barrier { 100_000_000 } else { 1_000_000 };
        let longest = Timespec { tv_sec: 0, tv_nsec: longest };
        let _ = futex::wait(&self.page.wakes, futex::Flags::PRIVATE, seen, Some(&longest));
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.page.woken.store(0, Ordering::SeqCst);
        self.page.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
