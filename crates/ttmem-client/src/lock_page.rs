//! The lock of a tracker, in a page of its own that the kernel zeroes in a forked child.
#![allow(unsafe_code)]

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// State that must be zero in a forked child, however it was made: the kernel wipes this page on `fork` and `clone`.
#[repr(C)]
pub(crate) struct LockPage {
    /// Thread that holds the lock, by its [`crate::tracker::thread_id`], or 0.
    pub(crate) owner: AtomicU64,
    /// Process that this memory belongs to; 0 in a child that has not made a report yet.
    pub(crate) pid: AtomicU64,
    /// 1 if the kernel does not wipe the page, so that `pid` must be compared with the real one.
    pub(crate) compare_pid: AtomicU64,
}

impl LockPage {
    /// Maps a page. It stays mapped until [`LockPage::release`], since other threads may be about to read it.
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

    /// Unmaps a page.
    ///
    /// # Safety
    ///
    /// The page is from [`LockPage::new`], and there is no reference to it any more.
    pub(crate) unsafe fn release(page: *mut Self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { munmap(page.cast(), rustix::param::page_size()) };
    }
}
