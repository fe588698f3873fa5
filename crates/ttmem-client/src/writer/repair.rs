//! Repair after an event that never ended: a signal handler jumped out of it, and its thread reports the next one. The private state
//! and the segment may each have a part of it.

use super::slots::OVERFLOW;
use super::{Key, Writer};
use crate::publish::Ordering;
use ttmem_types::Fault;
use ttmem_wire::record::{Kind, Record};
use ttmem_wire::segment::word;

impl Writer {
    /// Derives everything from the slots, which have either all of an allocation or nothing. Readers list the table again, as if the
    /// ring had overtaken them.
    #[cold]
    pub(crate) fn repair(&mut self) {
        self.event_ns = 0;
        let Some(segment) = &self.segment else { return self.count_lost(1) };
        let applied = segment.word(word::APPLIED).load(Ordering::Relaxed);
        self.sequence = self.sequence.max(applied) + u64::from(segment.plan().ring_records);
        // Slots of frees that were not sent to an old server yet must stay as they are.
        if !self.has_legacy && self.index.clear() {
            self.changes += 1;
            self.sort_slots();
            self.link_programs();
            self.add_up();
        }
        self.count_lost(1);
        let lost = (Fault::Lost.index() as u16).into();
        if self.begin(&mut Record { flags: lost, ..Record::new(Kind::Refused, None, 0) }) {
            for row in 0..self.rows_used as usize {
                self.write_row(row);
            }
            self.finish();
        }
    }

    /// The numbers of all slots that were ever used.
    fn used_slots(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let overflowed = self.overflow.as_ref().map_or(0, |overflow| overflow.slots.fresh);
        (0..self.slots.fresh).chain(OVERFLOW..OVERFLOW + overflowed)
    }

    fn live_record(&self, slot: u32) -> Option<Record> {
        Some(self.slot_record(slot)).filter(|held| held.sequence.get() != 0)
    }

    /// Puts live slots into the index, and others into the lists of free ones.
    fn sort_slots(&mut self) {
        self.slots.forget_free();
        if let Some(overflow) = &mut self.overflow {
            overflow.slots.forget_free();
        }
        // The lowest number is reused first.
        for slot in self.used_slots().rev() {
            match self.live_record(slot) {
                None => self.return_slot(slot),
                Some(held) => {
                    self.index.insert(Key::of(&held).hash, slot);
                    if let Some(link) = self.link(slot) {
                        (link.next, link.previous) = (0, 0);
                    }
                }
            }
        }
    }

    /// Lists what each program has.
    fn link_programs(&mut self) {
        for slot in self.used_slots() {
            let part = self.live_record(slot).filter(|held| held.kind == Kind::Alloc as u8);
            let Some(held) = part.filter(|held| held.program.get() != 0) else { continue };
            if let Some(program) = self.find(&Key::program(held.allocator.get(), held.program.get())) {
                self.link_to_program(program, slot);
            }
        }
    }

    /// Adds up the rows.
    fn add_up(&mut self) {
        for row in self.rows.iter_mut().take(self.rows_used as usize) {
            (row.requested, row.allocated, row.count, row.unlisted) = (0, 0, 0, 0);
        }
        for slot in self.used_slots() {
            let part = self.live_record(slot).filter(|held| held.kind == Kind::Alloc as u8);
            let Some((held, space)) = part.and_then(|held| Some((held, held.space()?))) else { continue };
            let row = self.allocators[usize::from(held.allocator.get())].rows[space as usize];
            let charge = self.charge(space, &held);
            let row = usize::from(row).checked_sub(1).and_then(|row| self.rows.get_mut(row));
            if let Some(row) = row {
                row.add(held.own_requested(), charge);
                row.unlisted += u64::from(slot >= OVERFLOW);
            }
        }
    }
}
