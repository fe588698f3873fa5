//! Failures: recorded, kept in the header, and saved with everything that was allocated at that moment.

use super::Writer;
use crate::agent::SegmentCopy;
use crate::failure_file::{self, Which};
use crate::publish::{self, Ordering};
use crate::types::Result;
use ttmem_types::{FailureKind, Fault};
use ttmem_wire::failure::Failure;
use ttmem_wire::record::{Record, SIZE};
use ttmem_wire::segment::{BLOCK, word};
use zerocopy::FromBytes;

/// A program may try sizes until one fits. Saving must not slow it down: it takes at most one part in this many of its time.
const SHARE_OF_TIME: u64 = 50;

/// Copies of the segment that were made.
#[derive(Clone, Copy, Default)]
pub(super) struct Saved {
    /// Failures so far, of all kinds.
    failures: u64,
    /// Whether the first failure was saved.
    first: bool,
    /// Before this time no copy is made.
    not_before_ns: u64,
}

impl Saved {
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }
}

impl Writer {
    /// Records a failure and saves what was allocated.
    #[cold]
    pub(crate) fn fail(&mut self, failure: &Failure) -> Result {
        let Failure { kind, space, allocator, requested, .. } = *failure;
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, space, allocator, 0));
        }
        let mut record = failure.record();
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        let number = self.saved.failures;
        self.saved.failures += 1;
        if let Some(segment) = &self.segment {
            publish::replace(segment.failure(number), &record.to_words());
            segment.word(word::FAILED).store(number + 1, Ordering::Release);
        }
        if kind == FailureKind::OutOfMemory {
            self.count_fault(Fault::OutOfMemory, requested);
        }
        let sequence = self.finish();
        self.save();
        Ok(sequence)
    }

    /// Slots of the table and bytes of definitions that are in use.
    pub(crate) fn used(&self) -> (usize, usize) {
        (self.slots.fresh as usize, self.blocks_used as usize * BLOCK)
    }

    /// Copies the table and the definitions, as far as there is room for them.
    pub(crate) fn copy_to(&self, copy: &mut SegmentCopy) {
        let Some(segment) = &self.segment else { return };
        let (slots, bytes) = self.used();
        let plan = segment.plan();
        let bytes = bytes.min(copy.definitions.capacity()) / BLOCK * BLOCK;
        copy.definitions.extend_from_slice(segment.bytes(plan.definitions_offset(), bytes));
        let slots = slots.min(copy.slots.capacity()).min(segment.slots() as usize);
        let table = segment.bytes(plan.table_offset(), slots * SIZE);
        copy.slots.extend_from_slice(<[Record]>::ref_from_bytes(table).unwrap_or_default());
    }

    /// Copies the segment to a file beside it.
    fn save(&mut self) {
        let began = self.clock.now();
        if self.saved.first && began < self.saved.not_before_ns {
            return;
        }
        let which = if self.saved.first { Which::Last } else { Which::First };
        let used = failure_file::Used {
            rows: self.rows_used,
            blocks: self.blocks_used,
            slots: self.slots.fresh,
            sequence: self.sequence,
        };
        let Some(segment) = &self.segment else { return };
        if failure_file::save(segment, self.settings.folder.as_str(), which, &used).is_ok() {
            self.saved.first = true;
        }
        let ended = self.clock.now();
        self.saved.not_before_ns = ended + (ended - began) * SHARE_OF_TIME;
    }
}
