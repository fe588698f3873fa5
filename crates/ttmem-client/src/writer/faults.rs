//! Faults: counted in the segment's header, and recorded if a report was refused.

use super::Writer;
use crate::publish::Ordering;
use ttmem_types::Fault;
use ttmem_wire::record::{Kind, Record, Space};
use ttmem_wire::segment::word;

impl Writer {
    /// Counts a fault and writes a record of it.
    #[cold]
    pub(super) fn refuse(&mut self, fault: Fault, space: Option<Space>, allocator: u16, id: u64) -> Fault {
        self.count_fault(fault, id);
        let mut record = Record {
            flags: (fault.index() as u16).into(),
            id: id.into(),
            ..Record::new(Kind::Refused, space, allocator)
        };
        if self.begin(&mut record) {
            self.finish();
        }
        fault
    }

    pub(super) fn count_fault(&mut self, fault: Fault, id: u64) {
        self.count_faults(fault, 1, id);
    }

    fn count_faults(&mut self, fault: Fault, times: u64, id: u64) {
        let n = fault.index();
        let Some(count) = self.faults.get_mut(n) else { return };
        *count = count.saturating_add(times);
        let count = *count;
        if let Some(segment) = self.segment() {
            segment.word(word::FAULTS + n * 16 + 8).store(id, Ordering::Relaxed);
            // A reader that sees the count sees the failure that was counted.
            segment.word(word::FAULTS + n * 16).store(count, Ordering::Release);
        }
    }

    /// Counts a report that could not be recorded.
    #[cold]
    pub(super) fn lose(&mut self, id: u64) -> Fault {
        self.count_fault(Fault::Lost, id);
        Fault::Lost
    }

    /// Counts events that did not reach the writer.
    pub(crate) fn count_lost(&mut self, events: u64) {
        self.count_faults(Fault::Lost, events, 0);
    }
}
