//! The lock of a tracker, in a page of its own that the kernel zeroes in a forked child.
#![allow(unsafe_code)]

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{futex, nanosleep};
use rustix::time::Timespec;

/// State that must be zero in a forked child, however it was made: the kernel wipes this page on `fork` and `clone`.
#[repr(C)]
pub(crate) struct LockPage {
    /// Thread that holds the lock, by its [`crate::tracker::thread_id`], or 0.
    pub(crate) owner: AtomicU64,
    /// Where the owner's stack ended when it took the lock.
    pub(crate) frame: AtomicUsize,
    /// Not 0 if a thread with the lock may use the writer at once. Otherwise everything below is checked first.
    pub(crate) usual: AtomicU64,
    /// 1: a thread has waited for long, and is to be woken up when the lock is free.
    urgent: AtomicU32,
    /// Process that this memory belongs to; 0 in a child that has not made a report yet.
    pub(crate) pid: AtomicU64,
    /// 1: the owner's event was left in the middle.
    pub(crate) torn: AtomicU32,
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

    /// Releases the lock. Only a thread that has waited for long is woken up: the others try again after a moment, so that a release
    /// is a plain store.
    #[inline]
    pub(crate) fn release(&self) {
        self.owner.store(0, Ordering::Release);
        if self.urgent.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.urgent.store(0, Ordering::Relaxed);
        let _ = futex::wake(&self.urgent, futex::Flags::PRIVATE, 1);
    }

    /// Sleeps for a while, or, if it is urgent, until the lock was released. A release that does not see that yet is missed; the next one
    /// is not, and the sleep ends anyway.
    pub(crate) fn sleep(&self, ns: u64, is_urgent: bool) {
        let ns = Timespec { tv_sec: 0, tv_nsec: ns as _ };
        if is_urgent {
            self.urgent.store(1, Ordering::Relaxed);
            let _ = futex::wait(&self.urgent, futex::Flags::PRIVATE, 1, Some(&ns));
        } else {
            let _ = nanosleep(&ns);
        }
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
