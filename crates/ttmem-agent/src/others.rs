//! Libraries in this process that are told of memory by hand (`ttmem-client`, in whatever language): they keep quiet while the
//! agent is at work, since it sees all that they could be told of.
#![allow(unsafe_code)]

use crate::agent::{is_at_work, tracker};
use crate::allocators::{Known, SPACES, allocators};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

type Withdraw = extern "C" fn();

/// More copies of the client than any process has.
const ROOM: usize = 16;
static OTHERS: [AtomicPtr<c_void>; ROOM] = [const { AtomicPtr::new(ptr::null_mut()) }; ROOM];

/// A client would publish what it is told: returns whether it must not. Else `withdraw` is called when it must not any more.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_yield(withdraw: Withdraw) -> c_int {
    let it = withdraw as *mut c_void;
    // Before the mode is looked at, as the agent sets its mode before it looks here: one of the two sees the other.
    let kept = OTHERS.iter().any(|place| {
        match place.compare_exchange(ptr::null_mut(), it, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(other) => other == it,
        }
    });
    c_int::from(!kept || is_at_work())
}

/// The agent is at work from now on.
pub(crate) fn have_them_withdraw() {
    for place in &OTHERS {
        let it = place.load(Ordering::SeqCst);
        if !it.is_null() {
            // SAFETY: only `ttmem_agent_yield` fills places, with functions of this type. Libraries of ours stay loaded.
            let withdraw = unsafe { core::mem::transmute::<*mut c_void, Withdraw>(it) };
            withdraw();
        }
    }
}

/// Lets every peak begin anew, at what is held now. Returns whether there was anybody to ask.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_reset_peaks() -> c_int {
    for number in allocators().filter_map(Known::number) {
        for (_, space) in SPACES {
            let _ = tracker().reset_peak(number, space);
        }
    }
    c_int::from(is_at_work())
}
