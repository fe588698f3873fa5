//! Delivers the records of a segment one by one, to sinks that want them.

use super::{Follower, ProcessSink};
use crate::event_sink::{SegmentEvent, SegmentGap, SegmentRecord};
use crate::files::SkipReason;
use crate::monotonic;
use crate::segment::{KeptRecords, SegmentFile, shifted};
use ttmem_wire::record::Record;

impl Follower {
    /// Sequence number of the last record that was read.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A record with what its numbers refer to, and whether it was applied and is new.
    pub(crate) fn segment_event<'a>(
        &'a self,
        segment: &SegmentFile,
        record: &'a Record,
        (is_applied, is_new): (bool, bool),
    ) -> SegmentEvent<'a> {
        let allocator = record.allocator.get();
        SegmentEvent::Record(SegmentRecord {
            record,
            at: segment.wall_time(record.at_ns.get()),
            chips: self.allocator(allocator).map_or(&[], |info| &info.definition.chips),
            allocator: self.definition_id(allocator),
            site: self.site_id(record.site.get()),
            allocated_bytes: self.charge_of(record),
            is_applied,
            is_new,
        })
    }

    /// Emits the records after `before` that a listing includes, as far as the ring still holds them, and a gap for the others.
    /// Without `before`, the segment is new: what its ring holds is history, and only what was overwritten is a gap.
    pub(super) fn emit_kept(
        &self,
        segment: &SegmentFile,
        before: Option<u64>,
        sink: &mut dyn ProcessSink,
    ) -> Result<(), SkipReason> {
        if !sink.wants_records() {
            return Ok(());
        }
        let after = before.unwrap_or(0);
        let KeptRecords { records, overwritten } = segment.kept_records(after, self.sequence, u64::MAX)?;
        if (overwritten || before.is_some())
            && let Some(gap) = find_gap(segment, after, &records, self.sequence)
        {
            sink.emit_record(&SegmentEvent::Gap(gap));
        }
        for record in &records {
            sink.emit_record(&self.segment_event(segment, record, (false, before.is_some())));
        }
        Ok(())
    }
}

/// The gap between `after` and the first of the records that are left, or up to `to` if none is.
pub(crate) fn find_gap(segment: &SegmentFile, after: u64, records: &[Record], to: u64) -> Option<SegmentGap> {
    let next = records.first();
    let last = next.map_or(to, |record| record.sequence.get() - 1);
    let at =
        next.map_or_else(|| shifted(monotonic().0, -segment.clock_shift()).0, |record| record.at_ns.get());
    (last > after).then(|| SegmentGap { at: segment.wall_time(at), first: after + 1, last })
}
