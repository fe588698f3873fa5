//! Emits what the header of a segment counts: faults, failed allocations, and the tracker's own state.

use super::{Emit, Follower};
use crate::files::SkipReason;
use crate::segment::SegmentFile;
use ttmem_core::input::{Failure, FaultReport, Input, Tracked};
use ttmem_types::Fault;
use ttmem_wire::hooks;
use ttmem_wire::record::Record;
use ttmem_wire::segment::{Vitals, text};
use zerocopy::little_endian::U64;

impl Follower {
    /// Emits faults that were counted since the last call.
    pub(super) fn emit_faults(&mut self, segment: &SegmentFile, emit: Emit<'_>) -> Result<(), SkipReason> {
        let vitals = segment.vitals()?;
        self.emit_tracker(segment, &vitals, emit);
        let [out_of_memory, last_request] = vitals.faults[Fault::OutOfMemory.index()].map(U64::get);
        // Segments of version 1.0 only count those that were out of memory.
        let failed = segment.failed()?.max(out_of_memory);
        let new = failed.saturating_sub(self.failed);
        if new > 0 {
            self.failed = failed;
            self.emit_failures(segment, new, last_request, emit)?;
        }
        for (counter, fault) in vitals.faults.iter().zip(Fault::ALL) {
            let [count, id] = counter.map(U64::get);
            let new = count.saturating_sub(self.fault_counts[fault.index()]);
            if new == 0 {
                continue;
            }
            self.fault_counts[fault.index()] = count;
            match fault {
                Fault::Lost => emit(Input::Lost(new)),
                Fault::OutOfMemory => {}
                fault => emit(Input::Fault(FaultReport { fault, count: new, id })),
            }
        }
        Ok(())
    }

    /// Emits `count` failures. Those that the segment no longer keeps are counted with the oldest that it keeps.
    fn emit_failures(
        &mut self,
        segment: &SegmentFile,
        count: u64,
        last_request: u64,
        emit: Emit<'_>,
    ) -> Result<(), SkipReason> {
        let mut failures = segment.failures()?;
        failures.retain(|failure| failure.sequence.get() > self.last_failure);
        failures.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        let mut not_kept = count - failures.len() as u64;
        if failures.is_empty() {
            emit(Input::Fault(FaultReport { fault: Fault::OutOfMemory, count, id: last_request }));
        }
        for record in &failures {
            self.last_failure = record.sequence.get();
            let earlier = std::mem::take(&mut not_kept);
            // Kinds of later versions are not counted.
            let Some(failure) = self.to_failure(record) else { continue };
            emit(Input::Failure(Box::new(Failure { count: 1 + earlier, ..failure })));
        }
        Ok(())
    }

    /// The failure that a record describes, if it is one.
    pub(super) fn to_failure(&self, record: &Record) -> Option<Failure> {
        let failure = ttmem_wire::failure::Failure::of(record)?;
        let allocator = self.allocator(failure.allocator);
        Some(Failure {
            scope: Some(self.scope(failure.allocator)),
            chips: allocator.map_or_else(Vec::new, |info| info.definition.chips.clone()),
            space: failure.space,
            requested: failure.requested,
            needed: failure.needed,
            available: failure.available,
            free: failure.free,
            cores: if failure.cores == 0 { 0 } else { self.definition_id(failure.cores) },
            program: failure.program,
            site: self.site_id(failure.site),
            sequence: record.sequence.get(),
            ..Failure::new(failure.kind, self.time(record.at_ns.get()))
        })
    }

    /// Emits which tracker writes the segment, with its hooks and cost, when that has changed.
    fn emit_tracker(&mut self, segment: &SegmentFile, vitals: &Vitals, emit: Emit<'_>) {
        let words = [vitals.hooks_taken, vitals.hooks_wanted, vitals.cost_ns].map(U64::get);
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
