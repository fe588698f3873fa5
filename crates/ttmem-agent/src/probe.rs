//! Functions for tests and benchmarks. The installed agent does not have them.
#![allow(unsafe_code)]

use crate::agent::{SPENT, tracker};
use crate::allocators::{SPACES, allocators};
use crate::flight::{self, Lock};
use crate::modules::Module;
use crate::python::{Frame, MAX_TEXT, Python, Walk};
use crate::shim::{ACTIVE, PAUSED, SiteFacts};
use crate::sites::{self, mixed::AnyFrame};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use ttmem_client::agent;

/// Pauses and resumes tracking. Events are not seen while it is paused, so what is allocated meanwhile must be freed meanwhile.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_switch(on: bool) {
    let (from, to) = if on { (PAUSED, ACTIVE) } else { (ACTIVE, PAUSED) };
    let _ = flight::state().mode.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// The nanoseconds that the agent counted for itself.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_cost() -> u64 {
    SPENT.load(Ordering::Relaxed)
}

/// The number of events so far.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_events() -> u64 {
    agent::count_events(tracker())
}

/// Texts of call sites by their keys, if a test wants them.
static TEXTS: Mutex<Texts> = Mutex::new(Texts::new());
type Texts = BTreeMap<u64, String>;
static ARE_TEXTS_KEPT: AtomicBool = AtomicBool::new(false);

std::thread_local! {
    /// The key of this thread's last call site.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The lock of the texts, while this thread forks.
    static HELD: Cell<Option<MutexGuard<'static, Texts>>> = const { Cell::new(None) };
}

fn texts() -> MutexGuard<'static, Texts> {
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the text of a call site that is being defined.
pub(crate) fn note_definition<const MOST: usize>(key: u64, python: &Python, walk: &Walk<MOST>) {
    if !ARE_TEXTS_KEPT.load(Ordering::Relaxed) {
        return;
    }
    let mut op = [0; MAX_TEXT];
    let mut text = python.op(walk, &mut op).to_owned();
    for frame in walk.frames() {
        write_frame(&mut text, python, frame);
    }
    texts().insert(key, text);
}

/// Keeps the text of a call site with native frames: a line for each frame, those of native ones with the name of the library only.
pub(crate) fn note_mixed_definition(key: u64, visit_all: impl FnOnce(&mut dyn FnMut(AnyFrame<'_>))) {
    if !ARE_TEXTS_KEPT.load(Ordering::Relaxed) {
        return;
    }
    let mut text = String::new();
    visit_all(&mut |frame| match frame {
        AnyFrame::Native(address) => {
            let module = Module::find(address - 1);
            let _ = write!(text, "\n{}", module.as_ref().map_or("?", Module::file_name));
        }
        AnyFrame::Python(python, frame) => write_frame(&mut text, python, frame),
    });
    texts().insert(key, text);
}

fn write_frame(text: &mut String, python: &Python, frame: &Frame) {
    let (mut file, mut function) = ([0; MAX_TEXT], [0; MAX_TEXT]);
    let (file, function) = (python.file(frame, &mut file), python.function(frame, &mut function));
    let _ = write!(text, "\n{file}\t{}\t{function}", python.line(frame));
}

/// Notes which call site a thread was at.
pub(crate) fn note_use(key: u64) {
    LAST.set(key);
}

/// Sets how many frames of each call site are recorded, 0 for none, and whether texts are kept for [`ttmem_agent_site`].
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_keep_sites(frames: usize, texts: bool) {
    sites::keep_frames(frames);
    ARE_TEXTS_KEPT.store(texts, Ordering::Relaxed);
}

/// As [`ttmem_agent_keep_sites`], with so many native frames besides.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_keep_native_frames(frames: usize, texts: bool) {
    sites::keep_native_frames(frames);
    ARE_TEXTS_KEPT.store(texts, Ordering::Relaxed);
}

/// Takes the lock of the texts before a fork, and releases it afterwards, also in the child.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_hold_texts(hold: bool) {
    HELD.set(hold.then(texts));
}

/// Writes the text of the calling thread's last call site, or of where it is now: its operation, and a line for each frame. Returns its
/// length.
///
/// # Safety
///
/// `out` must have room for `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ttmem_agent_site(now: bool, out: *mut u8, room: usize) -> usize {
    if now {
        LAST.set(0);
        let facts = SiteFacts { caller: 0, purpose: 0, data_type: 0, layout: 0, rank: 0, dimensions: [0; 8] };
        sites::of_allocation(&facts);
    }
    let texts = texts();
    let text = texts.get(&LAST.get()).map_or("", String::as_str);
    let len = text.len().min(room);
    // SAFETY: the caller promises room for `room` bytes.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), out, len) };
    len
}

/// One allocator's own statistics of one space.
#[repr(C)]
struct Figure {
    allocator: u64,
    space: u64,
    banks: u64,
    allocated: u64,
    free: u64,
    largest_free_per_bank: u64,
}

/// Reads the current statistics of every allocator of this process, at most `room` of them. Returns how many.
///
/// # Safety
///
/// `out` must have room for `room` figures.
#[unsafe(no_mangle)]
unsafe extern "C" fn ttmem_agent_figures(out: *mut Figure, room: usize) -> usize {
    let mut count = 0;
    for allocator in allocators().filter(|it| !it.is_inherited()) {
        let Some(_lock) = Lock::acquire_query() else { break };
        let Some(number) = allocator.number() else { continue };
        for (kind, space) in SPACES {
            let Some(statistics) = allocator.statistics(kind).filter(|_| count < room) else { continue };
            let whole = statistics.allocated.saturating_add(statistics.free);
            let figure = Figure {
                allocator: u64::from(number.get()),
                space: space as u64,
                banks: whole / allocator.bank_bytes(kind).max(1),
                allocated: statistics.allocated,
                free: statistics.free,
                largest_free_per_bank: statistics.largest_free_per_bank,
            };
            // SAFETY: the caller promises room for `room` figures.
            unsafe { out.add(count).write(figure) };
            count += 1;
        }
    }
    count
}
