//! What tests and benchmarks need of the agent beyond what it publishes. The agent that is installed does not have it.
#![allow(unsafe_code)]

use crate::allocators::{SPACES, allocators};
use crate::flight::{self, Lock};
use crate::shim::{AT_WORK, PAUSED};
use core::sync::atomic::Ordering;

/// Lets hooks only call through, or work again. What happens meanwhile is not seen, so all of it must be undone meanwhile.
#[unsafe(no_mangle)]
extern "C" fn ttmem_agent_switch(on: bool) {
    let (from, to) = if on { (PAUSED, AT_WORK) } else { (AT_WORK, PAUSED) };
    let _ = flight::state().mode.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// One allocator's own figures of one space.
#[repr(C)]
struct Figure {
    allocator: u64,
    space: u64,
    banks: u64,
    allocated: u64,
    free: u64,
    largest_free_per_bank: u64,
}

/// The statistics that every allocator of this process reports now, as many as there is room for. Returns how many.
///
/// # Safety
///
/// `out` must have room for `room` figures.
#[unsafe(no_mangle)]
unsafe extern "C" fn ttmem_agent_figures(out: *mut Figure, room: usize) -> usize {
    let mut count = 0;
    for it in allocators().filter(|it| !it.is_inherited()) {
        let Some(_turn) = Lock::to_ask() else { break };
        let Some(number) = it.number() else { continue };
        for (kind, space) in SPACES {
            let Some(statistics) = it.statistics(kind).filter(|_| count < room) else { continue };
            let whole = statistics.allocated.saturating_add(statistics.free);
            let figure = Figure {
                allocator: u64::from(number.get()),
                space: space as u64,
                banks: whole / it.bank_bytes(kind).max(1),
                allocated: statistics.allocated,
                free: statistics.free,
                largest_free_per_bank: statistics.largest_free_per_bank,
            };
            // SAFETY: the caller's word.
            unsafe { out.add(count).write(figure) };
            count += 1;
        }
    }
    count
}
