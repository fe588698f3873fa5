//! What a forked child must find at zero: how many hooks are under way, who audits, and which allocators are its own.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Lies in a page of its own, which the kernel wipes in a child, however it was made.
#[repr(C)]
pub(crate) struct Page {
    /// Hooks between a change of an allocator and its record.
    pub(crate) flights: AtomicU64,
    /// 1: this process has seen what it inherited.
    pub(crate) settled: AtomicU32,
    /// 1: somebody asks an allocator, or ends one.
    auditing: AtomicU32,
    /// 1: the thread that audits was started.
    pub(crate) thread: AtomicU32,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" {
    static mut ttmem_flights: *mut u64;
}

/// Makes the page. `false`: there is no memory for it.
pub(crate) fn begin() -> bool {
    const BYTES: usize = 4096;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let page = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // Where the kernel cannot (before 4.14), a child looks like its parent: its audits are then its own affair.
    // SAFETY: our own mapping; in this process it changes nothing.
    unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) };
    PAGE.store(page.cast(), Ordering::Release);
    // SAFETY: `ttmem_agent_start` calls this once, before the shim uses it.
    unsafe { ttmem_flights = page.cast() };
    true
}

pub(crate) fn page() -> Option<&'static Page> {
    // SAFETY: null, or the page, which is never given back; zeros are one.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// Nobody else asks an allocator, or ends one, while this lives.
pub(crate) struct Turn(&'static Page);

impl Turn {
    /// Waits for the others: they hold it for microseconds.
    pub(crate) fn take() -> Option<Self> {
        let page = page()?;
        while page.auditing.swap(1, Ordering::Acquire) != 0 {
            // SAFETY: has no effect but on who runs.
            unsafe { libc::sched_yield() };
        }
        Some(Self(page))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.auditing.store(0, Ordering::Release);
    }
}
