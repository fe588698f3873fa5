//! The lock of a tracker: one word. A thread that cannot take it spins for a moment, and then sleeps.

use super::Tracker;
use crate::identity;
use crate::lock_page::LockPage;
use crate::types::Result;
use crate::writer::Writer;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use rustix::time::ClockId;
use ttmem_types::Fault;

/// Attempts to take the lock before a thread sleeps: they take longer than several events. After so many, the owner does not run, or
/// other threads report without a pause.
const SPINS: u32 = 20;
/// How long a thread sleeps between two attempts: first so long, then twice as long each time up to a limit.
const SLEEP_NS: [u64; 2] = [100_000, 400_000];
/// A thread that cannot take the lock for so long gives up: its owner is stuck.
const LOCK_TIMEOUT_NS: u64 = 2_000_000_000;
/// A thread that owns the lock for so long without ending its event has left it: signal handlers do not take so long.
const LONGEST_HANDLER_NS: u64 = 100_000_000;
/// Less than what the kernel leaves free and stores on a stack before it calls a signal handler there.
const SIGNAL_FRAME: usize = 1024;

/// What [`Tracker::prepare`] found.
enum Prepared {
    /// The writer can be used.
    Ready,
    /// Tracking is off by now.
    Off,
    /// There was no memory for a writer.
    NoMemory,
}

/// Returns a number that is unique to this thread, without a system call.
#[inline]
pub(crate) fn thread_id() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let id: u64;
        // A thread-local variable would do, too, but in a shared library it costs a call.
        // SAFETY: by the processor's ABI the first word of a thread's own block is its address. It is only read.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) id, options(nostack, pure, readonly, preserves_flags));
        }
        id
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::thread_local! {
            static ID: u8 = const { 0 };
        }
        ID.with(|id| ptr::from_ref(id).addr() as u64)
    }
}

/// Stores where the calling function's stack ends, roughly.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the caller's stack, not that of this function")]
fn store_stack_end(to: &AtomicUsize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: one store of a word; threads read it as an atomic.
    unsafe {
        core::arch::asm!("mov [{}], rsp", in(reg) to.as_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let here = 0u8;
        to.store(core::hint::black_box(&raw const here).addr(), Ordering::Relaxed);
    }
}

/// Returns whether this thread is on an alternate stack, which only signal handlers use.
fn is_on_signal_stack() -> bool {
    #[repr(C)]
    struct Stack {
        base: *mut c_void,
        flags: c_int,
        size: usize,
    }
    unsafe extern "C" {
        fn sigaltstack(new: *const Stack, old: *mut Stack) -> c_int;
    }
    const SS_ONSTACK: c_int = 1;
    let mut stack = Stack { base: ptr::null_mut(), flags: 0, size: 0 };
    // SAFETY: the struct is that of the C library, which fills it.
    let known = unsafe { sigaltstack(ptr::null(), &raw mut stack) } == 0;
    !known || stack.flags & SS_ONSTACK != 0
}

impl Tracker {
    /// Runs `work` with the writer, under the lock. Returns `off` while tracking is off.
    #[inline]
    pub(super) fn with_writer<T>(&self, off: T, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let Some(page) = self.find_page() else { return Ok(off) };
        let thread = thread_id();
        if page.owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
            let frame = AtomicUsize::new(0);
            store_stack_end(&frame);
            self.wait(page, thread, frame.into_inner())?;
        }
        store_stack_end(&page.frame);
        if page.usual.load(Ordering::Relaxed) == 0 {
            match self.prepare(page) {
                Prepared::Ready => {}
                Prepared::Off => {
                    page.release();
                    return Ok(off);
                }
                Prepared::NoMemory => {
                    page.release();
                    return Err(Fault::Lost);
                }
            }
        }
        // SAFETY: this thread has the lock, so no other uses the writer until it is released. It exists, since `prepare` has found it
        // with this page. To check that again would be one more cache line.
        let writer = unsafe { (*self.writer.get()).as_mut().unwrap_unchecked() };
        let done = work(writer);
        page.release();
        done
    }

    /// Waits for the lock.
    #[cold]
    fn wait(&self, page: &LockPage, thread: u64, frame: usize) -> Result<()> {
        for _ in 0..SPINS {
            if page.try_acquire(thread) {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        let since = identity::now(ClockId::Monotonic);
        // If other threads report without a pause, one that sleeps meanwhile costs them nothing, while one that spins takes every
        // cache line from them with every event. And an owner that does not run cannot be waited for by spinning: on its
        // processor, a thread of higher priority would keep it from ever running.
        let [mut sleep_ns, longest_ns] = SLEEP_NS;
        loop {
            let owner = page.owner.load(Ordering::Relaxed);
            if page.try_acquire(thread) {
                return Ok(());
            }
            let stuck = owner != 0 && owner == self.stuck_owner.load(Ordering::Relaxed);
            let waited = identity::now(ClockId::Monotonic).saturating_sub(since);
            if owner == thread && self.has_left_event(page, frame) {
                page.torn.store(1, Ordering::Relaxed);
                page.usual.store(0, Ordering::Relaxed);
                return Ok(());
            }
            // If this thread is the owner, a signal handler interrupted its report: it would wait for itself.
            if owner == thread || stuck || waited > LOCK_TIMEOUT_NS {
                if owner != thread {
                    self.stuck_owner.store(owner, Ordering::Relaxed);
                }
                self.locked_out.fetch_add(1, Ordering::Relaxed);
                page.usual.store(0, Ordering::Relaxed);
                return Err(Fault::Lost);
            }
            // Other threads may report without a pause, and this one try at the wrong moments: then the owner has to wake it up.
            page.sleep(sleep_ns, sleep_ns == longest_ns);
            sleep_ns = (sleep_ns * 2).min(longest_ns);
        }
    }

    /// Returns whether the event for which this thread took the lock will never end: a signal handler jumped out of it. Otherwise this is
    /// a signal handler that interrupts the event.
    fn has_left_event(&self, page: &LockPage, frame: usize) -> bool {
        if is_on_signal_stack() {
            return false;
        }
        // Stacks grow downwards. A handler is below the event that it interrupts, so that is over if this report is not.
        if frame.saturating_add(SIGNAL_FRAME) > page.frame.load(Ordering::Relaxed) {
            return true;
        }
        let now = identity::now(ClockId::Monotonic);
        let since = self.interrupted_ns.load(Ordering::Relaxed);
        if since == 0 {
            self.interrupted_ns.store(now, Ordering::Relaxed);
        }
        since != 0 && now.saturating_sub(since) > LONGEST_HANDLER_NS
    }

    /// Prepares the writer: at the first report, in a forked child, and after reports that could not take the lock. The caller has the
    /// lock.
    #[cold]
    fn prepare(&self, page: &LockPage) -> Prepared {
        // While this thread waited, the tracker may have been closed, and enabled again with another page.
        if !ptr::eq(self.page.load(Ordering::Relaxed), page) {
            return Prepared::Off;
        }
        // SAFETY: the caller has the lock, so no other thread uses the writer until it is released.
        let Some(writer) = (unsafe { &mut *self.writer.get() }) else { return Prepared::NoMemory };
        let pid = u64::from(identity::pid());
        if page.pid.load(Ordering::Relaxed) != pid {
            writer.start_in_child();
            self.locked_out.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::Relaxed);
            page.pid.store(pid, Ordering::Relaxed);
        }
        self.interrupted_ns.store(0, Ordering::Relaxed);
        self.stuck_owner.store(0, Ordering::Relaxed);
        if page.torn.swap(0, Ordering::Relaxed) != 0 {
            writer.repair();
        }
        // Before the count is read: a report that cannot take the lock from here on is counted next time.
        page.usual.store(u64::from(page.compare_pid.load(Ordering::Relaxed) == 0), Ordering::SeqCst);
        let locked_out = self.locked_out.swap(0, Ordering::SeqCst);
        if locked_out > 0 {
            writer.count_lost(locked_out);
        }
        Prepared::Ready
    }

    /// Returns whether tracking is off: the only cost of a report then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call would cost more than the load")]
    pub(super) fn is_off(&self) -> bool {
        self.page.load(Ordering::Relaxed).is_null()
    }

    /// Runs `work` as a report.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "so that the way out is short while tracking is off")]
    pub(crate) fn event<T>(&self, off: T, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        if self.is_off() {
            return Ok(off);
        }
        self.record(off, work)
    }

    #[inline(never)]
    fn record<T>(&self, off: T, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        self.with_writer(off, work)
    }
}
