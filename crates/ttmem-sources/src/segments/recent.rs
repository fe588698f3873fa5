//! Lists the records that rings still hold, piece by piece.

use super::Segments;
use crate::event_sink::SegmentEvent;
use crate::files::FileId;
use crate::follower::find_gap;
use crate::segment::KeptRecords;
use std::collections::VecDeque;
use ttmem_core::words::ProcessId;

/// A listing of the records that rings still hold, up to those that were read when it was started. Records that are
/// overwritten while it is read piece by piece are a gap; older ones are not.
#[derive(Debug, Default)]
pub struct RecentRecords {
    pending: VecDeque<Pending>,
}

/// The part of a ring that is not listed yet.
#[derive(Debug)]
struct Pending {
    id: FileId,
    /// Last record that was listed; 0: none yet.
    after: u64,
    /// Last record of the listing.
    to: u64,
}

impl Segments {
    /// Starts a listing of the records that rings still hold.
    pub(crate) fn recent_records(&self) -> RecentRecords {
        let pending = self.live.iter().map(|(&id, it)| Pending { id, after: 0, to: it.follower.sequence() });
        RecentRecords { pending: pending.collect() }
    }

    /// Lists at most `most` further records. Returns whether these were the last.
    pub(crate) fn list_recent(
        &self,
        listing: &mut RecentRecords,
        most: usize,
        emit: &mut dyn FnMut(ProcessId, &SegmentEvent<'_>),
    ) -> bool {
        let mut left = most as u64;
        while let Some(pending) = listing.pending.front_mut() {
            let Pending { id, after, to } = *pending;
            // A process that has exited meanwhile, or a segment that cannot be read, is left out.
            let Some(segment) = self.live.get(&id) else {
                listing.pending.pop_front();
                continue;
            };
            let Ok(KeptRecords { records, .. }) = segment.file.kept_records(after, to, left) else {
                listing.pending.pop_front();
                continue;
            };
            if after > 0
                && let Some(gap) = find_gap(&segment.file, after, &records, to)
            {
                emit(segment.process, &SegmentEvent::Gap(gap));
            }
            for record in &records {
                emit(segment.process, &segment.follower.segment_event(&segment.file, record, (false, false)));
            }
            match records.last() {
                Some(last) if last.sequence.get() < to => pending.after = last.sequence.get(),
                _ => {
                    listing.pending.pop_front();
                }
            }
            left = left.saturating_sub(records.len() as u64);
            if left == 0 {
                return listing.pending.is_empty();
            }
        }
        true
    }
}
