//! What libraries in this process say about the program: the track that a thread is in, and marks.
#![allow(unsafe_code)]

use crate::agent::{is_active, tracker};
use core::cell::RefCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use ttmem_client::agent::{self, generation};

/// Bytes of the longest name of a track that is kept.
const MAX_NAME: usize = 256;

/// Whether any thread has ever been in a track.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// The track that a thread is in. Its name is kept, since a forked child has to define it again.
struct Track {
    name: [u8; MAX_NAME],
    len: usize,
    /// Generation of the tracker, plus 1, and the track's number in it. 0: not defined yet.
    number: (u64, u32),
}

std::thread_local! {
    static TRACK: RefCell<Track> = const { RefCell::new(Track { name: [0; MAX_NAME], len: 0, number: (0, 0) }) };
}

impl Track {
    fn name(&self) -> &str {
        core::str::from_utf8(&self.name[..self.len]).unwrap_or_default()
    }
}

/// The number of the track that the calling thread is in; 0: none.
#[inline]
pub(crate) fn current() -> u32 {
    if IS_USED.load(Ordering::Relaxed) { find_or_define() } else { 0 }
}

fn find_or_define() -> u32 {
    // A signal handler may interrupt `set`.
    TRACK.with(|track| {
        track.try_borrow_mut().map_or(0, |mut track| {
            let generation = generation(tracker()).wrapping_add(1);
            if track.len > 0 && track.number.0 != generation {
                let number = agent::define_track(tracker(), track.name()).unwrap_or(0);
                track.number = (generation, number);
            }
            if track.len > 0 { track.number.1 } else { 0 }
        })
    })
}

/// The text at an address, as far as it is one.
///
/// # Safety
///
/// There are `len` bytes at the address, unless it is null.
unsafe fn text<'a>(at: *const u8, len: usize) -> &'a str {
    if at.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(at, len) };
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// Names the allocations of the calling thread from now on; an empty name ends that. Returns 1.
///
/// # Safety
///
/// There are `len` bytes at `name`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ttmem_agent_set_track(name: *const u8, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, len) };
    let end = (0..=name.len().min(MAX_NAME)).rev().find(|&end| name.is_char_boundary(end));
    let name = &name[..end.unwrap_or(0)];
    TRACK.with(|track| {
        if let Ok(mut track) = track.try_borrow_mut() {
            track.name[..name.len()].copy_from_slice(name.as_bytes());
            (track.len, track.number) = (name.len(), (0, 0));
        }
    });
    if !name.is_empty() {
        IS_USED.store(true, Ordering::Relaxed);
    }
    1
}

/// Marks a moment, with a number unless `number` is null. Returns whether the agent is active.
///
/// # Safety
///
/// There are `len` bytes at `name`, and `number` is null or valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn ttmem_agent_mark(name: *const u8, len: usize, number: *const u64) -> c_int {
    let is_active = is_active();
    if is_active {
        // SAFETY: the caller's promise.
        let (name, number) = unsafe { (text(name, len), number.as_ref()) };
        let _ = agent::mark(tracker(), name, number.copied());
    }
    c_int::from(is_active)
}
