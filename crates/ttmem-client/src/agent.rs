//! Functions for the agent, and for bindings of other languages. They are no part of the public interface and may change in any
//! version.

pub(crate) mod lookup;

use crate::options::Options;
use crate::tracker::Tracker;
use crate::types::{AllocatorNumber, Banks, CoresNumber, Result};
use core::sync::atomic::Ordering;
use ttmem_types::Space;

pub use lookup::reset_agent_peaks;

/// Enables the process's tracker for the agent itself, which [`Tracker::enable`] would yield to.
pub fn enable(tracker: &Tracker, options: &Options) {
    tracker.enable_unchecked(options);
}

/// Publishes which of the wanted hooks were installed, one bit each; see `ttmem_wire::hooks`.
pub fn set_hooks(tracker: &Tracker, installed: u64, wanted: u64) {
    let _ = tracker.event((), |writer| {
        writer.set_hooks([installed, wanted]);
        Ok(())
    });
}

/// Publishes the processor time that tracking has cost this process, in nanoseconds.
pub fn set_cost(tracker: &Tracker, ns: u64) {
    let _ = tracker.event((), |writer| {
        writer.set_cost(ns);
        Ok(())
    });
}

/// Counts an event that the caller could not follow: figures are not exact any more.
pub fn count_lost(tracker: &Tracker) {
    let _ = tracker.event((), |writer| {
        writer.count_lost(1);
        Ok(())
    });
}

/// Returns whether a reader has requested an audit since the last call. Readers do so by setting the segment's time of
/// modification.
pub fn take_audit_request(tracker: &Tracker) -> bool {
    tracker.event(false, |writer| Ok(writer.take_audit_request())).unwrap_or(false)
}

/// Defines a set of cores by a bitmap: core `x` of row `y` is bit `16 * y + x`, counted from the lowest of the first word.
pub fn define_core_bitmap(tracker: &Tracker, cores: [u64; 4]) -> Result<CoresNumber> {
    tracker.define_core_bitmap(cores)
}

/// Changes the sizes of an open allocator's spaces. Its allocations stay.
pub fn resize_allocator(tracker: &Tracker, allocator: AllocatorNumber, banks: &[Banks]) -> Result<()> {
    tracker.event((), |writer| writer.resize_allocator(allocator.0, banks))
}

/// Frees all allocations of an allocator, which stays open.
pub fn clear_allocator(tracker: &Tracker, allocator: AllocatorNumber) -> Result {
    tracker.event(0, |writer| writer.clear_allocator(allocator.0))
}

/// Returns whether a buffer is allocated at an address.
pub fn is_allocated(tracker: &Tracker, allocator: AllocatorNumber, space: Space, address: u64) -> bool {
    tracker.event(false, |writer| Ok(writer.is_allocated(allocator.0, space, address))).unwrap_or(false)
}

/// Reports a dispatch, with a hint that the caller keeps for the next one: then the program need not be searched.
pub fn dispatch_with_hint(
    tracker: &Tracker,
    allocator: AllocatorNumber,
    program: u32,
    hint: &mut u32,
) -> Result {
    tracker.event(0, |writer| {
        tracker.table.store(writer.table().cast_mut(), Ordering::Relaxed);
        writer.dispatch(allocator.0, program, hint)
    })
}

/// Prefetches what a dispatch with this hint needs, and memory of the caller.
#[inline]
pub fn prefetch_dispatch(tracker: &Tracker, hint: u32, callers: *const u8) {
    crate::memory::prefetch(callers);
    let table = tracker.table.load(Ordering::Relaxed);
    if !table.is_null() {
        crate::memory::prefetch(table.wrapping_add(hint as usize));
    }
}
