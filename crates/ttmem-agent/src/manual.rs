//! Libraries in this process that report by hand (`ttmem-client`, in any language). They stop while the agent is active, since
//! the agent sees the same memory.
#![allow(unsafe_code)]

use crate::agent::{is_active, tracker};
use crate::allocators::{AllocatorInfo, SPACES, allocators};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

type Withdraw = extern "C" fn();

/// More copies of the client library than any process has.
const CAPACITY: usize = 16;
static CLIENTS: [AtomicPtr<c_void>; CAPACITY] = [const { AtomicPtr::new(ptr::null_mut()) }; CAPACITY];

/// Called by a client before it publishes: returns whether it must not. If it may, `withdraw` is called when the agent starts.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_yield(withdraw: Withdraw) -> c_int {
    let withdraw = withdraw as *mut c_void;
    // The client registers before it reads the mode, the agent sets its mode before it reads clients: one sees the other.
    let registered = CLIENTS.iter().any(|slot| {
        match slot.compare_exchange(ptr::null_mut(), withdraw, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(other) => other == withdraw,
        }
    });
    c_int::from(!registered || is_active())
}

/// Makes all registered clients withdraw, when the agent starts.
pub(crate) fn withdraw_clients() {
    for slot in &CLIENTS {
        let withdraw = slot.load(Ordering::SeqCst);
        if !withdraw.is_null() {
            // SAFETY: only `ttmem_agent_yield` fills slots, with functions of this type. Client libraries keep
            // themselves loaded before they call it.
            let withdraw = unsafe { core::mem::transmute::<*mut c_void, Withdraw>(withdraw) };
            withdraw();
        }
    }
}

/// Resets every peak to what is allocated now. Returns whether the agent is active.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_reset_peaks() -> c_int {
    for number in allocators().filter_map(AllocatorInfo::number) {
        for (_, space) in SPACES {
            let _ = tracker().reset_peak(number, space);
        }
    }
    c_int::from(is_active())
}
