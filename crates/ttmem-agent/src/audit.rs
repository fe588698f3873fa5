//! Audits: the allocators' own statistics, read by a thread of the agent's, at most ten times a second, after a change and when
//! a reader requests it. So an audit always follows the last event.
#![allow(unsafe_code)]

use crate::agent::{SPENT, tracker};
use crate::allocators::{SPACES, allocators};
use crate::failures;
use crate::flight::{self, Lock};
use crate::modules;
use crate::native;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs::File;
use std::io::Read;
use ttmem_client::{AuditMark, agent};

/// Interval of polls while allocators change.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of polls while none changes.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);
/// Polls without a change after which the process counts as idle.
const IDLE_AFTER: u32 = 10;

/// Whether the process is exiting, and its allocators may be destroyed.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Whether no hook is active except `own` ones.
pub(crate) fn is_quiescent(own: u64) -> bool {
    flight::page().is_some_and(|page| page.under_way() == own)
}

/// A mark for an audit, unless hooks other than the caller's `own` are active.
pub(crate) fn mark(own: u64) -> Option<AuditMark> {
    is_quiescent(own).then(|| tracker().begin_audit().ok()).flatten()
}

/// Stops audits. Called when the process exits by itself.
extern "C" fn stop() {
    native::name_addresses();
    let _lock = Lock::acquire_query();
    EXITING.store(true, Ordering::Release);
}

/// Starts the thread, if this process has none.
pub(crate) fn start_thread() {
    let Some(page) = flight::page() else { return };
    if page.thread.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    // Registered after the runtime's exit handlers, so called before them.
    // SAFETY: `stop` may be called at any time.
    unsafe { libc::atexit(stop) };
    // The thread must not receive the workload's signals.
    // SAFETY: both sets are filled before they are read.
    unsafe {
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&raw mut all);
        // A bus error that is blocked ends the process, also if the client's handler would have repaired its cause.
        libc::sigdelset(&raw mut all, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        // Without a thread there are audits only at failed allocations.
        let _ = std::thread::Builder::new().name("ttmem".to_owned()).stack_size(256 << 10).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    }
}

fn run() {
    let mut quiet = 0;
    while !EXITING.load(Ordering::Acquire) && (quiet == 0 || !is_alone()) {
        std::thread::sleep(if quiet < IDLE_AFTER { BUSY_INTERVAL } else { IDLE_INTERVAL });
        let all = agent::take_audit_request(tracker());
        quiet = if audit(all) { 0 } else { quiet.saturating_add(1) };
        native::name_addresses();
        modules::notice_unloaded();
        failures::report_pending();
        let spent = SPENT.load(Ordering::Relaxed) + own_time();
        agent::set_cost(tracker(), spent);
        tracker().refresh();
    }
}

/// Whether all threads of the workload have ended. A process lives as long as one of its threads: this one would keep it
/// for ever.
fn is_alone() -> bool {
    // Nothing is allocated here: another thread may fork at any time.
    let mut text = [0; 512];
    let read = File::open("/proc/self/stat").and_then(|mut it| it.read(&mut text));
    let text = &text[..read.unwrap_or(0)];
    // The main thread is listed until all others have ended. After its name, which may contain anything, come its state and,
    // as 18th field, the number of threads.
    let name_ends = text.iter().rposition(|&byte| byte == b')').unwrap_or(0);
    let mut fields = text[name_ends..].split(|&byte| byte == b' ').skip(1);
    fields.next() == Some(b"Z") && fields.nth(16) == Some(b"2")
}

/// Audits the allocators that changed, or all of them. Returns whether there was any.
pub(crate) fn audit(all: bool) -> bool {
    let mut any = false;
    for allocator in allocators() {
        // The lock is taken for each allocator, so a thread that destroys one waits for one audit at most.
        let Some(_lock) = Lock::acquire_query() else { return any };
        let changed = allocator.take_changed();
        if EXITING.load(Ordering::Acquire) || allocator.is_inherited() || !(all || changed) {
            continue;
        }
        let Some(number) = allocator.number() else { continue };
        for (kind, space) in SPACES {
            let before = mark(0);
            let Some(statistics) = allocator.statistics(kind) else { continue };
            any = true;
            let mark = before.filter(|_| mark(0) == before);
            let _ = tracker().audit(mark, number, space, statistics);
            if mark.is_none() {
                // An event occurred meanwhile, perhaps of another allocator only, so this one is audited again.
                allocator.mark_changed();
            }
        }
    }
    any
}

/// Processor time of this thread.
fn own_time() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is filled by the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}
