//! Functions for tests and benchmarks. The installed agent does not have them.
#![allow(unsafe_code)]

use crate::agent::{SPENT, tracker};
use crate::allocators::{SPACES, allocators};
use crate::flight::{self, Lock};
use crate::shim::{ACTIVE, PAUSED};
use core::sync::atomic::Ordering;
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
