//! Functions for the agent, and for bindings of other languages. They are no part of the public interface and may change in any
//! version.

pub(crate) mod lookup;

use crate::options::Options;
use crate::tracker::Tracker;
use crate::types::{AllocatorNumber, Banks, CoresNumber, Placement, Program, Result};
use ttmem_types::{Fault, Space};
use ttmem_wire::ViewAddresses;
use ttmem_wire::record::{Record, flags};

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

/// Returns the number of events so far.
pub fn count_events(tracker: &Tracker) -> u64 {
    tracker.event(0, |writer| Ok(writer.sequence())).unwrap_or(0)
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

/// Reports a program that is built or rebuilt, whose movable views have these addresses.
pub fn build_program(tracker: &Tracker, program: &Program, views: ViewAddresses) -> Result {
    tracker.event(0, |writer| writer.build_program(program, views))
}

/// Registers a view whose address may differ at every dispatch: the one with this number among the addresses of its program.
pub fn place_movable_view(tracker: &Tracker, view: &Placement, number: usize) -> Result {
    tracker.event(0, |writer| match view.record() {
        Some(record) => writer.allocate(view.space, &movable(&record, number)),
        None => Err(Fault::WrongSpace),
    })
}

fn movable(record: &Record, number: usize) -> Record {
    let flags = record.flags.get() | flags::VIEW | flags::MOVABLE;
    Record { flags: flags.into(), padding: (number as u32).into(), ..*record }
}

/// Reports a dispatch, with the new addresses of movable views if these have changed. `slot` is where the program was found at
/// the last dispatch, so that it need not be searched again; the caller keeps it for the next one.
#[inline]
pub fn dispatch(
    tracker: &Tracker,
    allocator: AllocatorNumber,
    program: u32,
    slot: &mut u32,
    moved: Option<ViewAddresses>,
) -> Result {
    tracker.event(0, |writer| writer.dispatch(allocator.0, program, slot, moved))
}

/// Reports a dispatch of a program whose views have not moved, if `slot` is still its slot. Returns whether it is.
#[inline]
pub fn dispatch_again(tracker: &Tracker, allocator: AllocatorNumber, program: u32, slot: u32) -> bool {
    let again = tracker.event(None, |writer| Ok(writer.dispatch_again(allocator.0, program, slot, None)));
    again.is_ok_and(|sequence| sequence.is_some())
}
