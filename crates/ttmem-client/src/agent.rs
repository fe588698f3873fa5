//! Functions for the agent, and for bindings of other languages. They are no part of the public interface and may change in any
//! version.

pub(crate) mod lookup;

use crate::options::Options;
use crate::tracker::Tracker;
use crate::types::{AllocatorNumber, Banks, CoresNumber, Placement, Program, Result, SiteNumber};
use core::sync::atomic::Ordering;
use ttmem_types::{Fault, Purpose, Space, Tensor};
use ttmem_wire::ViewAddresses;
use ttmem_wire::failure::Failure;
use ttmem_wire::record::{Record, flags};
use ttmem_wire::segment::definition;
use zerocopy::little_endian::U32;

pub use crate::slot_index::hash;
pub use lookup::{mark_in_agent, reset_agent_peaks, set_track_in_agent};

/// Enables the process's tracker for the agent itself, which [`Tracker::enable`] would yield to.
pub fn enable(tracker: &Tracker, options: &Options) {
    tracker.enable_unchecked(options);
}

/// Returns the value of an environment variable that is set and not empty; none in a process with more rights than its user.
pub fn variable(name: &str) -> Option<String> {
    crate::identity::variable(name)
}

/// Returns a number that no other thread of this process has now, without a system call.
#[inline]
pub fn thread_id() -> u64 {
    crate::tracker::thread_id()
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

/// Numbers of the parts of a call site; 0: unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiteParts<'a> {
    /// The frame that is displayed.
    pub frame: u32,
    /// The whole stack.
    pub stack: u32,
    /// The operation.
    pub op: u32,
    /// The track.
    pub track: u32,
    /// What the memory is for.
    pub purpose: Purpose,
    /// The tensor that is allocated.
    pub tensor: Option<Tensor>,
    /// A description besides: the kernels of a program.
    pub text: &'a str,
}

/// Defines a line of a function, or, with an `offset`, an address in a library.
pub fn define_frame(tracker: &Tracker, file: &str, line: u32, offset: u64, function: &str) -> Result<u32> {
    tracker.event(0, |writer| {
        let file = writer.define_file(file)?;
        let frame = definition::Frame { file: file.into(), line: line.into(), offset: offset.into() };
        writer.define_frame(&frame, function)
    })
}

/// Defines an address in a library, which has a path and a build id. Readers find its function and line.
pub fn define_native_frame(tracker: &Tracker, path: &str, build_id: &[u8], offset: u64) -> Result<u32> {
    tracker.event(0, |writer| {
        let library = writer.define_library(build_id, path)?;
        let frame = definition::Frame { file: library.into(), line: 0.into(), offset: offset.into() };
        writer.define_frame(&frame, "")
    })
}

/// Defines a stack by its frames, innermost first.
pub fn define_stack(tracker: &Tracker, frames: &[u32]) -> Result<u32> {
    tracker.event(0, |writer| writer.define_stack(frames))
}

/// Defines an operation.
pub fn define_op(tracker: &Tracker, name: &str) -> Result<u32> {
    tracker.event(0, |writer| writer.define_op(name))
}

/// Defines a track: a part of the program that names its allocations.
pub fn define_track(tracker: &Tracker, name: &str) -> Result<u32> {
    tracker.event(0, |writer| writer.define_track(name))
}

/// Returns the number of an operation that [`name_op`] names later.
pub fn reserve_op(tracker: &Tracker) -> Result<u32> {
    tracker.event(0, |writer| Ok(writer.reserve_op()))
}

/// Names an operation whose number was reserved.
pub fn name_op(tracker: &Tracker, number: u32, name: &str) -> Result<()> {
    tracker.event((), |writer| writer.name_op(number, name))
}

/// Returns the number of a frame that [`name_frame`] names later.
pub fn reserve_frame(tracker: &Tracker) -> Result<u32> {
    tracker.event(0, |writer| Ok(writer.reserve_frame()))
}

/// Names a frame whose number was reserved: an address in a library, and its function.
pub fn name_frame(tracker: &Tracker, number: u32, library: &str, offset: u64, function: &str) -> Result<()> {
    tracker.event((), |writer| {
        let file = writer.define_file(library)?;
        let frame = definition::Frame { file: file.into(), line: 0.into(), offset: offset.into() };
        writer.name_frame(number, &frame, function)
    })
}

/// Defines a call site by the numbers of its parts. If there is no space for its tensor, it is defined without one.
pub fn define_site(tracker: &Tracker, parts: &SiteParts<'_>) -> Result<SiteNumber> {
    let &SiteParts { frame, stack, op, track, purpose, tensor, text } = parts;
    let number = |number: Option<u8>| number.map_or(0, |number| number + 1);
    let site = definition::CallSite {
        frame: frame.into(),
        stack: stack.into(),
        op: op.into(),
        track: track.into(),
        purpose: purpose as u8,
        data_type: number(tensor.and_then(|it| it.data_type).map(|it| it as u8)),
        layout: number(tensor.and_then(|it| it.layout).map(|it| it as u8)),
        rank: number(tensor.map(|it| it.shape().len() as u8)),
    };
    let mut dimensions = [U32::new(0); Tensor::MAX_RANK];
    let shape = tensor.as_ref().map_or(&[][..], Tensor::shape);
    for (to, &from) in dimensions.iter_mut().zip(shape) {
        *to = from.into();
    }
    let dimensions = &dimensions[..shape.len()];
    tracker.event(SiteNumber(0), |writer| writer.define_call_site(&site, dimensions, text).map(SiteNumber))
}

/// Returns a number that changes when those of definitions become invalid.
#[inline]
pub fn generation(tracker: &Tracker) -> u64 {
    tracker.generation.load(Ordering::Relaxed)
}

/// Marks a moment; `None` while tracking is off.
pub fn mark(tracker: &Tracker, name: &str, number: Option<u64>) -> Result<Option<u64>> {
    tracker.event(None, |writer| writer.mark(name, number).map(Some))
}

/// Reports a failure, with the numbers of this tracker's definitions.
pub fn report_failure(tracker: &Tracker, failure: &Failure) -> Result {
    tracker.event(0, |writer| writer.fail(failure))
}

/// What a segment holds.
#[derive(Debug)]
pub struct SegmentCopy {
    /// The table. A slot with sequence 0 is free.
    pub slots: Vec<Record>,
    /// The area of definitions.
    pub definitions: Vec<u8>,
}

/// Copies the table and the definitions of a tracker's segment; `None` if there is no memory for that.
pub fn copy_segment(tracker: &Tracker) -> Option<SegmentCopy> {
    let (slots, definitions) = tracker.event((0, 0), |writer| Ok(writer.used())).ok()?;
    let mut copy = SegmentCopy { slots: Vec::new(), definitions: Vec::new() };
    // Memory is not allocated under the lock. Other threads may need a little more meanwhile.
    copy.slots.try_reserve_exact(slots + slots / 8 + 64).ok()?;
    copy.definitions.try_reserve_exact(definitions + 4096).ok()?;
    tracker
        .event((), |writer| {
            writer.copy_to(&mut copy);
            Ok(())
        })
        .ok()?;
    Some(copy)
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
