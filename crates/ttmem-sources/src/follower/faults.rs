//! Emits what the header of a segment counts: faults, failed allocations, and the tracker's own state.

use super::{Emit, Follower};
use crate::files::SkipReason;
use crate::segment::SegmentFile;
use ttmem_core::input::{FaultReport, Input, OutOfMemory, Tracked};
use ttmem_core::words::Mono;
use ttmem_types::Fault;
use ttmem_wire::hooks;
use ttmem_wire::record::flags;
use ttmem_wire::segment::{Vitals, text};

impl Follower {
    /// Emits faults that were counted since the last call.
    pub(super) fn emit_faults(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<(), SkipReason> {
        let vitals = segment.vitals()?;
        self.emit_tracker(segment, &vitals, emit);
        for (counter, fault) in vitals.faults.iter().zip(Fault::ALL) {
            let [count, id] = counter.map(zerocopy::little_endian::U64::get);
            let new = count.saturating_sub(self.fault_counts[fault.index()]);
            if new == 0 {
                continue;
            }
            self.fault_counts[fault.index()] = count;
            match fault {
                Fault::Lost => emit(Input::Lost(new)),
                Fault::OutOfMemory => self.emit_failures(segment, new, id, emit)?,
                fault => emit(Input::Fault(FaultReport { fault, count: new, id })),
            }
        }
        Ok(())
    }

    /// Emits `count` failed allocations. Those that the segment no longer keeps are counted with the oldest that it keeps.
    fn emit_failures(
        &mut self,
        segment: &SegmentFile,
        count: u64,
        id: u64,
        emit: Emit<'_>,
    ) -> Result<(), SkipReason> {
        let mut failures = segment.failures()?;
        failures.retain(|failure| failure.sequence.get() > self.last_failure);
        failures.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        let mut not_kept = count - failures.len() as u64;
        if failures.is_empty() {
            emit(Input::Fault(FaultReport { fault: Fault::OutOfMemory, count, id }));
        }
        for failure in &failures {
            self.last_failure = failure.sequence.get();
            let allocator = self.allocator(failure.allocator.get());
            emit(Input::OutOfMemory(OutOfMemory {
                chips: allocator.map_or_else(Vec::new, |info| info.definition.chips.clone()),
                space: failure.space(),
                requested: failure.requested.get(),
                largest_free_bytes_per_bank: (failure.flags.get() & flags::MEASURED != 0)
                    .then(|| failure.id.get()),
                at: Mono(failure.at_ns.get()),
                count: 1 + std::mem::take(&mut not_kept),
            }));
        }
        Ok(())
    }

    /// Emits which tracker writes the segment, with its hooks and cost, when that has changed.
    fn emit_tracker(&mut self, segment: &SegmentFile, vitals: &Vitals, emit: Emit<'_>) {
        let words =
            [vitals.hooks_taken, vitals.hooks_wanted, vitals.cost_ns].map(zerocopy::little_endian::U64::get);
        if self.tracker_words == Some(words) {
            return;
        }
        self.tracker_words = Some(words);
        let [taken, wanted, cost_ns] = words;
        let header = segment.header();
        emit(Input::Tracked(Tracked {
            writer: text(&header.writer).to_owned(),
            runtime: Some(text(&header.runtime).to_owned()).filter(|runtime| !runtime.is_empty()),
            hooks: wanted.count_ones(),
            missing: hooks::names(wanted & !taken).map(ToOwned::to_owned).collect(),
            cost_ns: Some(cost_ns).filter(|&ns| ns > 0),
            left_out: segment.left_out().unwrap_or(0),
        }));
    }
}
