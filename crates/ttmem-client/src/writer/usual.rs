//! The usual events: a buffer is allocated or freed, a program is dispatched again.
//!
//! Between two of them the workload has evicted this code from the processor's caches, so fetching it costs more than running it.
//! That is why these functions are short: each returns `None` if anything is unusual, before anything has changed, and the
//! general function for that event decides what it is.

use super::Writer;
use crate::memory::prefetch_write;
use crate::publish::{self, Ordering};
use crate::segment::{Line, Segment};
use crate::slot_index::hash;
use crate::types::Buffer;
use ttmem_types::limits::{MAX_ALLOCATION_BYTES, REMEMBERED_FREES};
use ttmem_types::{Layout, Space};
use ttmem_wire::ViewAddresses;
use ttmem_wire::record::{Head, Kind, WORDS, flags, word as field};
use ttmem_wire::segment::word;

/// Addresses and sizes up to this many bits are usual.
const USUAL_BITS: u32 = 40;

impl Writer {
    /// Records the allocation of a buffer.
    #[inline]
    pub(crate) fn allocate_usual(&mut self, buffer: &Buffer) -> Option<u64> {
        let Buffer { allocator, space, address, requested, bytes_per_bank, .. } = *buffer;
        let state = self.allocators.get(usize::from(allocator.0))?;
        let (banks, row) = (state.banks[space as usize], state.rows[space as usize]);
        // A size of 0 is unusual, and wraps around.
        let sizes = address | requested.wrapping_sub(1) | bytes_per_bank.wrapping_sub(1);
        let charge = bytes_per_bank.wrapping_mul(banks.into());
        let is_usual = sizes >> USUAL_BITS == 0
            && state.open != 0
            && charge.wrapping_sub(1) < MAX_ALLOCATION_BYTES
            && !space.is_on_cores()
            && !matches!(buffer.layout, Layout::Mirror | Layout::View)
            && !self.has_legacy;
        let row = usize::from(row).checked_sub(1).filter(|_| is_usual)?;
        let head = Head::new(Kind::Alloc, Some(space), allocator.0);
        let hash = hash(address, head.identity(), 0);
        self.index.prefetch(hash);
        // The clock is read while the index's line is fetched.
        let now = self.clock.now();
        let entry = self.index.vacant(hash)?;
        let segment = self.segment.as_ref()?;
        let slot = self.slots.take(segment.slots())?;
        let line = segment.slot(slot)?;
        self.index.fill(entry, hash, slot);
        self.sequence += 1;
        self.changes += 1;
        let head = head.with_flags(flags::of_layout(buffer.layout)).with_cores(buffer.cores.0);
        let last = u64::from(buffer.site.0) | u64::from(slot) << 32;
        let padding = u64::from(buffer.padding());
        let words = [self.sequence, now, head.word(), address, requested, bytes_per_bank, padding, last];
        begin(segment, &words);
        publish::put(line, &words);
        self.rows.get_mut(row)?.add(requested, charge);
        self.finish_usual(row)
    }

    /// Records the free of a buffer.
    #[inline]
    pub(crate) fn free_usual(&mut self, allocator: u16, space: Space, address: u64) -> Option<u64> {
        let head = Head::new(Kind::Alloc, Some(space), allocator);
        let hash = hash(address, head.identity(), 0);
        self.index.prefetch(hash);
        let now = self.clock.now();
        let state = self.allocators.get(usize::from(allocator)).filter(|state| state.open != 0)?;
        let segment = self.segment.as_ref()?;
        let is_held = |line: &Line| {
            let at = |n: usize| line[n].load(Ordering::Relaxed);
            Head::from_word(at(Head::WORD)).identity() == head.identity() && at(field::ID) == address
        };
        let (slot, entry) = self.index.find(hash, |slot| segment.slot(slot).is_some_and(is_held))?;
        let line = segment.slot(slot)?;
        let mut words = load(line);
        let held = Head::from_word(words[Head::WORD]);
        let (requested, bytes_per_bank) = (words[field::REQUESTED], words[field::BYTES_PER_BANK]);
        let charge = bytes_per_bank.wrapping_mul(state.banks[space as usize].into());
        let is_usual = held.flags() & (flags::MIRROR | flags::VIEW) == 0
            && field::program(words[field::PROGRAM]) == 0
            && charge != 0
            && !space.is_on_cores()
            && !self.has_legacy;
        let row = usize::from(state.rows[space as usize]).checked_sub(1).filter(|_| is_usual)?;
        self.sequence += 1;
        self.changes += 1;
        words[field::SEQUENCE] = self.sequence;
        words[field::TIME] = now;
        words[Head::WORD] = held.with_kind(Kind::Free).with_flags(0).word();
        begin(segment, &words);
        publish::clear(line);
        self.slots.release(slot);
        self.index.remove_at(entry);
        self.recent_frees[self.frees % REMEMBERED_FREES] = hash;
        self.frees = self.frees.wrapping_add(1);
        self.rows.get_mut(row)?.subtract(requested, charge);
        self.finish_usual(row)
    }

    /// Records a dispatch of the program in a slot, if it is still there. `moved`: the new addresses of its movable views, if they
    /// have changed.
    #[inline]
    pub(crate) fn dispatch_again(
        &mut self,
        allocator: u16,
        program: u32,
        slot: u32,
        moved: Option<ViewAddresses>,
    ) -> Option<u64> {
        let segment = self.segment.as_ref()?;
        let line = segment.slot(slot)?;
        let mut words = load(line);
        let held = Head::from_word(words[Head::WORD]);
        let owner = Head::new(Kind::Dispatch, None, allocator).owner();
        // A free slot keeps its words, but not its sequence.
        let is_there = words[field::SEQUENCE] != 0
            && held.owner() == owner
            && field::program(words[field::PROGRAM]) == program;
        if !is_there || self.has_legacy {
            return None;
        }
        self.sequence += 1;
        words[field::SEQUENCE] = self.sequence;
        words[field::TIME] = self.clock.now();
        words[Head::WORD] = held.with_kind(Kind::Dispatch).word();
        words[field::REQUESTED] += 1;
        if let Some(views) = moved {
            [words[field::ID], words[field::BYTES_PER_BANK]] = views.to_words();
        }
        begin(segment, &words);
        publish::put(line, &words);
        finish(segment, self.sequence);
        Some(self.sequence)
    }

    #[inline]
    fn finish_usual(&mut self, row: usize) -> Option<u64> {
        self.write_totals(row);
        finish(self.segment.as_ref()?, self.sequence);
        Some(self.sequence)
    }
}

/// Writes the record of an event that begins.
#[inline]
fn begin(segment: &Segment, words: &[u64; WORDS]) {
    let sequence = words[field::SEQUENCE];
    publish::begin(segment.word(word::BEGUN), sequence);
    publish::put(segment.record(sequence), words);
    publish::fence_record();
}

#[inline]
fn finish(segment: &Segment, sequence: u64) {
    publish::finish(segment.word(word::APPLIED), sequence);
    // No cache has the next line since the ring last wrapped, and the workload's next lock would wait for it.
    prefetch_write(segment.record(sequence + 1));
}

#[inline]
fn load(line: &Line) -> [u64; WORDS] {
    core::array::from_fn(|n| line[n].load(Ordering::Relaxed))
}
