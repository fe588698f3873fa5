//! What a forked child must find at zero: which hooks are under way, who audits, and which allocators are its own.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

/// Threads that have a line of their own.
const LINES: usize = 1000;

#[repr(C, align(64))]
struct Line {
    under_way: AtomicU32,
}

/// Lies in pages of its own, which the kernel wipes in a child, however it was made. As in shim.cpp, as far as that knows it.
#[repr(C)]
pub(crate) struct Page {
    /// Threads that wanted a line.
    enrolled: AtomicU32,
    /// Of those that found none: how many are under way.
    others: AtomicU32,
    /// 1: this process has seen what it inherited.
    settled: AtomicU32,
    /// 1: somebody asks an allocator, or ends one.
    auditing: AtomicU32,
    /// 1: the thread that audits was started.
    pub(crate) thread: AtomicU32,
    /// Which threads are between a change of an allocator and its record.
    lines: [Line; LINES],
}

/// As in shim.cpp: what every event looks at, in one line.
#[repr(C, align(64))]
pub(crate) struct State {
    /// 0: not asked yet; 1: at work; 2: only calls through.
    pub(crate) mode: AtomicU32,
    /// Whether buffers may have an address on each core.
    pub(crate) hybrid: AtomicU32,
    generation: AtomicU32,
    events: AtomicU32,
    page: AtomicPtr<Page>,
}

unsafe extern "C" {
    static ttmem_state: State;
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
    state().page.store(page.cast(), Ordering::Release);
    true
}

#[inline]
pub(crate) fn state() -> &'static State {
    // SAFETY: everything in it is atomic.
    unsafe { &ttmem_state }
}

#[inline]
pub(crate) fn page() -> Option<&'static Page> {
    // SAFETY: null, or the pages, which are never given back; zeros are valid.
    unsafe { state().page.load(Ordering::Relaxed).as_ref() }
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
