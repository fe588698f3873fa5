//! Finds the agent in the same process. It reports every allocation of the runtime, so reports through this library would be
//! counted twice: the library stops reporting when the agent starts.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};

type SetTrack = extern "C" fn(*const u8, usize) -> c_int;
type Mark = extern "C" fn(*const u8, usize, *const u64) -> c_int;

/// Function that the agent calls when it starts.
pub(crate) type Withdraw = extern "C" fn();

/// Name of the agent's function that keeps a [`Withdraw`] for its start, and returns whether it has started already.
const YIELD: &CStr = c"ttmem_agent_yield";
/// Name of the agent's function that resets all of its peaks.
const RESET_PEAKS: &CStr = c"ttmem_agent_reset_peaks";
/// Name of the agent's function that names the allocations of the calling thread.
const SET_TRACK: &CStr = c"ttmem_agent_set_track";
/// Name of the agent's function that marks a moment.
const MARK: &CStr = c"ttmem_agent_mark";

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn find_symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a null handle means every loaded library, and the name is zero-terminated.
    let found = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Returns whether the agent tracks this process. If it is loaded but has not started, it calls `withdraw` when it starts.
pub(crate) fn agent_tracks(withdraw: Withdraw) -> bool {
    let Some(found) = find_symbol(YIELD) else { return false };
    // SAFETY: only the agent has a function of that name, and declares it like this.
    let yield_to_agent =
        unsafe { core::mem::transmute::<*mut c_void, extern "C" fn(Withdraw) -> c_int>(found) };
    yield_to_agent(withdraw) != 0
}

/// Resets the peaks of the agent in this process to the bytes allocated now; `false` if no agent tracks it.
pub fn reset_agent_peaks() -> bool {
    let Some(found) = find_symbol(RESET_PEAKS) else { return false };
    // SAFETY: only the agent has a function of that name, and declares it like this.
    let reset = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(found) };
    reset() != 0
}

/// Sets the track of the calling thread's allocations, which the agent then reports; an empty name ends it. Returns whether there is an
/// agent in this process.
pub fn set_track_in_agent(name: &str) -> bool {
    let Some(found) = find_symbol(SET_TRACK) else { return false };
    // SAFETY: only the agent has a function of that name, and declares it like this.
    let set_track = unsafe { core::mem::transmute::<*mut c_void, SetTrack>(found) };
    set_track(name.as_ptr(), name.len()) != 0
}

/// Marks a moment among the agent's events. Returns whether an agent tracks this process.
pub fn mark_in_agent(name: &str, number: Option<u64>) -> bool {
    let Some(found) = find_symbol(MARK) else { return false };
    // SAFETY: only the agent has a function of that name, and declares it like this.
    let mark = unsafe { core::mem::transmute::<*mut c_void, Mark>(found) };
    mark(name.as_ptr(), name.len(), number.as_ref().map_or(core::ptr::null(), core::ptr::from_ref)) != 0
}
