//! The allocators' own figures, asked for from a thread of its own: at most ten times a second, after something changed,
//! and when a reader rings. So the last word after the last event is always an audit.
#![allow(unsafe_code)]

use crate::agent::{SPENT, tracker};
use crate::allocators::{SPACES, allocators};
use crate::flight::{self, Lock};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs::File;
use std::io::Read;
use ttmem_client::{AuditMark, agent};

/// Between audits while something happens.
const BUSY: Duration = Duration::from_millis(100);
/// Between looks while nothing does.
const IDLE: Duration = Duration::from_millis(500);
/// Looks in vain before it counts as nothing.
const PATIENCE: u32 = 10;

/// The process is ending, and its allocators with it.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Whether no hook is under way but `own` ones.
pub(crate) fn is_calm(own: u64) -> bool {
    flight::page().is_some_and(|page| page.under_way() == own)
}

/// A mark for an audit, unless something else than the caller's `own` hooks is on its way.
pub(crate) fn mark(own: u64) -> Option<AuditMark> {
    is_calm(own).then(|| tracker().begin_audit().ok()).flatten()
}

/// Called when the process ends by itself.
extern "C" fn end() {
    let _turn = Lock::to_ask();
    ENDING.store(true, Ordering::Release);
}

/// Starts the thread, if this process has none.
pub(crate) fn begin() {
    let Some(page) = flight::page() else { return };
    if page.thread.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    // Registered after the runtime's own, it is called before them.
    // SAFETY: `end` may be called at any time.
    unsafe { libc::atexit(end) };
    // The workload's signals are not for us.
    // SAFETY: both sets are filled before they are read.
    unsafe {
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        // Without a thread there is an audit at each failure, and none else.
        let _ = std::thread::Builder::new().name("ttmem".to_owned()).stack_size(256 << 10).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    }
}

fn run() {
    let mut quiet = 0;
    while !ENDING.load(Ordering::Acquire) && (quiet == 0 || !is_alone()) {
        std::thread::sleep(if quiet < PATIENCE { BUSY } else { IDLE });
        let all = agent::take_audit_request(tracker());
        quiet = if audit(all) { 0 } else { quiet.saturating_add(1) };
        let spent = SPENT.load(Ordering::Relaxed) + own_time();
        agent::set_cost(tracker(), spent);
        tracker().refresh();
    }
}

/// Whether the workload's threads have all ended. A process lives as long as one of its threads does: this one would keep
/// it for ever.
fn is_alone() -> bool {
    // No memory is taken for it: a child may be made of the process at any time.
    let mut text = [0; 512];
    let read = File::open("/proc/self/stat").and_then(|mut it| it.read(&mut text));
    let text = &text[..read.unwrap_or(0)];
    // The main thread is listed until all others have ended. Behind its name, which may hold anything, come its state and,
    // as 18th, the number of threads.
    let name_ends = text.iter().rposition(|&byte| byte == b')').unwrap_or(0);
    let mut fields = text[name_ends..].split(|&byte| byte == b' ').skip(1);
    fields.next() == Some(b"Z") && fields.nth(16) == Some(b"2")
}

/// Audits what changed, or everything. Whether there was anything.
pub(crate) fn audit(all: bool) -> bool {
    let mut any = false;
    for it in allocators() {
        // Each is a turn of its own: nobody who ends an allocator waits for the others.
        let Some(_turn) = Lock::to_ask() else { return any };
        let changed = it.take_changed();
        if ENDING.load(Ordering::Acquire) || it.is_inherited() || !(all || changed) {
            continue;
        }
        let Some(number) = it.number() else { continue };
        for (kind, space) in SPACES {
            let before = mark(0);
            let Some(statistics) = it.statistics(kind) else { continue };
            any = true;
            let judged = before.filter(|_| mark(0) == before);
            let _ = tracker().audit(judged, number, space, statistics);
            if judged.is_none() {
                // Something was on its way, and it need not be this allocator that changes then: so it is asked again.
                it.changed();
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
