//! The agent in the same process: it sees everything that the runtime hands out, so what is told by hand besides would count
//! twice. Whoever tells by hand keeps quiet from the moment when the agent is at work.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};

/// What the agent calls when it begins.
pub(crate) type Withdraw = extern "C" fn();

/// The agent's function: keeps `withdraw` for when it begins, and returns whether it is at work already.
const YIELD: &CStr = c"ttmem_agent_yield";
/// The agent's function: lets all its peaks begin anew.
const RESET_PEAKS: &CStr = c"ttmem_agent_reset_peaks";

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a null handle means all that is loaded, and the name ends with a zero.
    let found = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Whether the agent is at work here. If it is loaded but is not yet, `withdraw` is called when it begins.
pub(crate) fn agent_is_at_work(withdraw: Withdraw) -> bool {
    let Some(found) = find(YIELD) else { return false };
    // SAFETY: the only library with a function of that name is the agent, and this is how it is declared there.
    let ask = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn(Withdraw) -> c_int>(found) };
    ask(withdraw) != 0
}

/// Lets the peaks of the agent in this process begin anew, at what is held now; `false`: there is none, or it is not at work.
pub fn reset_agents_peaks() -> bool {
    let Some(found) = find(RESET_PEAKS) else { return false };
    // SAFETY: as above.
    let reset = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(found) };
    reset() != 0
}
