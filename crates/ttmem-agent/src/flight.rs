//! What a forked child must find at zero: which hooks are under way, who audits, and which allocators are its own.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

/// Threads that have a line of their own.
const LINES: usize = 1000;

/// As in shim.cpp: which threads are between a change of an allocator and its record.
#[repr(C)]
struct Flights {
    /// Threads that wanted a line.
    enrolled: AtomicU32,
    /// Of those that found none: how many are under way.
    others: AtomicU32,
    lines: [Line; LINES],
}

#[repr(C, align(64))]
struct Line {
    under_way: AtomicU32,
}

/// Lies in pages of its own, which the kernel wipes in a child, however it was made.
#[repr(C)]
pub(crate) struct Page {
    flights: Flights,
    /// 1: this process has seen what it inherited.
    settled: AtomicU32,
    /// 1: somebody asks an allocator, or ends one.
    auditing: AtomicU32,
    /// 1: the thread that audits was started.
    pub(crate) thread: AtomicU32,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" {
    static mut ttmem_flights: *mut Page;
    static ttmem_generation: AtomicU32;
}

/// Makes the pages. `false`: there is no memory for them.
pub(crate) fn begin() -> bool {
    let bytes = size_of::<Page>().next_multiple_of(4096);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // Where the kernel cannot (before 4.14), a child looks like its parent: its audits are then its own affair.
    // SAFETY: our own mapping; in this process it changes nothing.
    unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) };
    PAGE.store(page.cast(), Ordering::Release);
    // SAFETY: `ttmem_agent_start` calls this once, before the shim uses it.
    unsafe { ttmem_flights = page.cast() };
    true
}

pub(crate) fn page() -> Option<&'static Page> {
    // SAFETY: null, or the pages, which are never given back; zeros are valid.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

impl Page {
    /// Whether this process has not yet seen what it inherited. From now on it has.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        if self.settled.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.settled.store(1, Ordering::Relaxed);
        // SAFETY: an aligned word of the shim's, which it reads as an atomic.
        unsafe { &ttmem_generation }.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Hooks that are under way.
    pub(crate) fn under_way(&self) -> u64 {
        fence(Ordering::SeqCst);
        let enrolled = self.flights.enrolled.load(Ordering::Relaxed) as usize;
        let lines = self.flights.lines.iter().take(enrolled);
        let own: u64 = lines.map(|it| u64::from(it.under_way.load(Ordering::Acquire))).sum();
        own + u64::from(self.flights.others.load(Ordering::Acquire))
    }
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
