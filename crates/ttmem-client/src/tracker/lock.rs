//! The lock of a tracker: one word, for which threads spin and then yield.

use super::Tracker;
use crate::identity;
use crate::lock_page::LockPage;
use crate::types::Result;
use crate::writer::Writer;
use core::ptr;
use core::sync::atomic::Ordering;
use rustix::time::ClockId;
use ttmem_types::Fault;

/// Attempts to take the lock before the processor is yielded.
const SPINS: u32 = 200;
/// A thread that cannot take the lock for so long gives up: its owner is stuck.
const LOCK_TIMEOUT_NS: u64 = 10_000_000_000;

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

impl Tracker {
    /// Runs `work` with the writer, under the lock. Returns `off` while tracking is off.
    #[inline]
    pub(super) fn with_writer<T>(&self, off: T, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let Some(page) = self.find_page() else { return Ok(off) };
        let thread = thread_id();
        if page.owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait(page, thread)?;
        }
        // While this thread waited, the tracker may have been closed, and enabled again with another page.
        if !ptr::eq(self.page.load(Ordering::Relaxed), page) {
            page.owner.store(0, Ordering::Release);
            return Ok(off);
        }
        // SAFETY: this thread has the lock, so no other uses the writer until it is released.
        let writer = unsafe { &mut *self.writer.get() };
        if page.pid.load(Ordering::Relaxed) == 0 || page.compare_pid.load(Ordering::Relaxed) != 0 {
            self.detect_fork(page, writer);
        }
        let done = match writer {
            Some(writer) => work(writer),
            None => Err(Fault::Lost),
        };
        page.owner.store(0, Ordering::Release);
        done
    }

    #[cold]
    fn wait(&self, page: &LockPage, thread: u64) -> Result<()> {
        let mut since = 0;
        let mut tries = 0u32;
        loop {
            let owner = page.owner.load(Ordering::Relaxed);
            if owner == 0
                && page.owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Ok(());
            }
            tries = tries.wrapping_add(1);
            if tries % SPINS != 0 {
                core::hint::spin_loop();
                continue;
            }
            let now = identity::now(ClockId::Monotonic);
            if since == 0 {
                since = now;
            }
            let stuck = owner != 0 && owner == self.stuck_owner.load(Ordering::Relaxed);
            // If this thread is the owner, a signal handler interrupted its report: it would wait for itself.
            if owner == thread || stuck || now.saturating_sub(since) > LOCK_TIMEOUT_NS {
                if owner != thread {
                    self.stuck_owner.store(owner, Ordering::Relaxed);
                }
                self.locked_out.fetch_add(1, Ordering::Relaxed);
                return Err(Fault::Lost);
            }
            rustix::thread::sched_yield();
        }
    }

    #[cold]
    fn detect_fork(&self, page: &LockPage, writer: &mut Option<Writer>) {
        let pid = u64::from(identity::pid());
        if page.pid.load(Ordering::Relaxed) == pid {
            return;
        }
        if let Some(writer) = writer {
            writer.start_in_child();
        }
        self.locked_out.store(0, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
        page.pid.store(pid, Ordering::Relaxed);
    }

    /// Returns whether tracking is off: the only cost of a report then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call would cost more than the load")]
    pub(super) fn is_off(&self) -> bool {
        self.page.load(Ordering::Relaxed).is_null()
    }

    /// Runs `work` as a report, and counts reports that could not take the lock before.
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
        self.with_writer(off, |writer| {
            if self.locked_out.load(Ordering::Relaxed) != 0 {
                writer.count_lost(self.locked_out.swap(0, Ordering::Relaxed));
            }
            work(writer)
        })
    }
}
