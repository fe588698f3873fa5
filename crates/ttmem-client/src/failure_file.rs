//! A copy of the segment as it was when an allocation failed. A program that dies of the failure frees everything on its way out, so
//! that its crash segment lists nothing.
//!
//! The copy is a segment, too: readers need nothing else. It has no more rows, definitions and slots than are used, and the end of
//! the ring.
#![allow(unsafe_code)]

use crate::quota;
use crate::segment::{Segment, check_limit};
use crate::text::Text;
use core::mem::size_of;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use ttmem_wire::record::SIZE;
use ttmem_wire::segment::{
    BLOCK, FAILURE_SUFFIXES, HEADER_BYTES, Header, Plan, ROW_BYTES, UNFINISHED_SUFFIX, state, word,
};
use zerocopy::IntoBytes;

/// Records of the ring that are copied.
const RING: u32 = 1024;
/// Slots of a table that is copied; copying a longer one would take too long.
const MAX_SLOTS: u32 = 1 << 18;

/// Which failure of a segment is saved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    First,
    Last,
}

/// How much of a segment is used.
pub(crate) struct Used {
    pub(crate) rows: u32,
    pub(crate) blocks: u32,
    pub(crate) slots: u32,
    pub(crate) sequence: u64,
}

/// Copies a segment to a file beside it. No event may be under way.
pub(crate) fn save(segment: &Segment, folder: &str, which: Which, used: &Used) -> Result<(), Errno> {
    let Some(name) = segment.name() else { return Err(Errno::NOENT) };
    let plan = segment.plan();
    let copied = Plan {
        rows: used.rows.min(plan.rows),
        definition_blocks: used.blocks.min(plan.definition_blocks),
        ring_records: plan.ring_records.min(RING),
        slots: used.slots.min(segment.slots()),
    };
    let bytes = copied.bytes(copied.slots);
    if copied.slots > MAX_SLOTS || check_limit(bytes).is_err() {
        return Err(Errno::FBIG);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    if quota::make_space(folder.as_fd(), bytes as u64).is_none() {
        return Err(Errno::NOSPC);
    }
    let named = |suffix: &str| {
        let mut text: Text<80> = Text::new();
        text.push(format_args!("{name}{suffix}"));
        text
    };
    let unfinished = named(UNFINISHED_SUFFIX);
    // What a forked or killed writer may have left.
    let _ = rustix::fs::unlinkat(&folder, unfinished.as_str(), AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, unfinished.as_str(), flags, segment.mode())?;
    let header = header_of(segment, &copied);
    let [older, newer] = ring_of(segment, used.sequence, copied.ring_records as usize);
    let of = |offset: usize, bytes: usize| segment.bytes(offset, bytes);
    let parts = [
        header.as_bytes(),
        of(plan.rows_offset(), copied.rows as usize * ROW_BYTES),
        of(plan.definitions_offset(), copied.definition_blocks as usize * BLOCK),
        older,
        newer,
        of(plan.table_offset(), copied.slots as usize * SIZE),
    ];
    let written = write(&file, parts).and_then(|()| {
        let last = named(FAILURE_SUFFIXES[usize::from(which == Which::Last)]);
        rustix::fs::renameat(&folder, unfinished.as_str(), &folder, last.as_str())
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&folder, unfinished.as_str(), AtFlags::empty());
    }
    written
}

/// The header with the copy's plan and state.
fn header_of(segment: &Segment, plan: &Plan) -> [u64; HEADER_BYTES / 8] {
    let mut words = [0; HEADER_BYTES / 8];
    words.as_mut_bytes().copy_from_slice(segment.bytes(0, HEADER_BYTES));
    let planned = plan.header();
    let bytes = words.as_mut_bytes();
    // The offsets of areas and their sizes, which are next to each other.
    let of_plan = core::mem::offset_of!(Header, rows_offset)..core::mem::offset_of!(Header, program);
    const { assert!(size_of::<Header>() <= HEADER_BYTES) };
    bytes[of_plan.clone()].copy_from_slice(&planned.as_bytes()[of_plan]);
    words[word::SLOTS / 8] = u64::from(plan.slots).to_le();
    words[word::STATE / 8] = state::FAILED.to_le();
    words
}

/// The last `count` records of the ring, in the order of their places in a ring of that length.
fn ring_of(segment: &Segment, sequence: u64, count: usize) -> [&[u8]; 2] {
    let (ring, plan) = (segment.plan().ring_offset(), segment.plan());
    let place = |sequence: u64| ring + (sequence as usize & (plan.ring_records as usize - 1)) * SIZE;
    if sequence < count as u64 {
        return [segment.bytes(ring, count * SIZE), &[]];
    }
    let first = sequence + 1 - count as u64;
    // From here on records have the first places of the copy.
    let turn = (first as usize).next_multiple_of(count) as u64;
    let before = (turn - first) as usize;
    [segment.bytes(place(turn), (count - before) * SIZE), segment.bytes(place(first), before * SIZE)]
}

fn write(file: impl AsFd, parts: [&[u8]; 6]) -> Result<(), Errno> {
    let mut slices = parts.map(IoSlice::new);
    let mut left = &mut slices[..];
    while left.iter().any(|part| !part.is_empty()) {
        match rustix::io::writev(&file, left) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
