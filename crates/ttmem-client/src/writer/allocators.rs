//! Allocators: closing and clearing them, statistics and peaks.

use super::slots::{OVERFLOW, table_number};
use super::{Key, Writer};
use crate::types::{Result, Statistics};
use ttmem_types::Fault;
use ttmem_wire::record::{Kind, PADDING_UNKNOWN, Record, Space, flags};

impl Writer {
    pub(crate) fn close_allocator(&mut self, allocator: u16) -> Result {
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, None, allocator, 0));
        }
        if !self.begin(&mut self.end_record(allocator)) {
            return Err(Fault::Lost);
        }
        self.free_all(allocator, true);
        self.allocators[usize::from(allocator)].open = 0;
        self.allocators[usize::from(allocator)].rows = [0; Space::NUMBERS];
        Ok(self.finish())
    }

    /// Frees all allocations of an allocator, which stays open and keeps its peaks.
    pub(crate) fn clear_allocator(&mut self, allocator: u16) -> Result {
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, None, allocator, 0));
        }
        if !self.begin(&mut Record { flags: flags::CLEARED.into(), ..self.end_record(allocator) }) {
            return Err(Fault::Lost);
        }
        self.free_all(allocator, false);
        Ok(self.finish())
    }

    /// The record of the end of an allocator's allocations: a reader that goes back to before it must know whether there were any.
    fn end_record(&self, allocator: u16) -> Record {
        let rows = self.allocators[usize::from(allocator)].rows;
        let live = rows.iter().filter_map(|row| self.rows.get(usize::from(row.checked_sub(1)?)));
        let count = live.fold(0u64, |sum, row| sum.saturating_add(row.count));
        let padding = u32::try_from(count + 1).unwrap_or(u32::MAX);
        Record { padding: padding.into(), ..Record::new(Kind::AllocatorEnd, None, allocator) }
    }

    /// Clears the slots and rows of an allocator. If it closes, its rows become vacant.
    fn free_all(&mut self, allocator: u16, closes: bool) {
        self.changes += 1;
        // This is rare, so every slot is checked; of most, only one word is read.
        let overflowed = self.overflow.as_ref().map_or(0, |overflow| overflow.slots.fresh);
        for slot in (0..self.slots.fresh).chain(OVERFLOW..OVERFLOW + overflowed) {
            if self.slot_allocator(slot) != allocator {
                continue;
            }
            let key = Key::of(&self.slot_record(slot));
            // A free slot keeps its words, so only the index has whether it is live.
            if self.index.find(key.hash, |found| found == slot).is_some() {
                self.index.remove(key.hash, slot);
                self.clear_slot(slot);
            }
        }
        for space in 0..Space::NUMBERS {
            if let Some(number) = self.allocators[usize::from(allocator)].rows[space].checked_sub(1) {
                let row = &mut self.rows[usize::from(number)];
                (row.requested, row.allocated, row.count, row.unlisted) = (0, 0, 0, 0);
                if closes {
                    row.closed = 1;
                    row.next_vacant = core::mem::replace(&mut self.vacant_rows, u32::from(number) + 1);
                }
                self.write_row(usize::from(number));
            }
        }
    }

    pub(crate) fn is_allocated(&self, allocator: u16, space: Space, id: u64) -> bool {
        self.open_allocator(allocator).is_some()
            && self.find(&Key::memory(space, allocator, id, 0, 0, 0)).is_some()
    }

    /// Returns the number of events that changed what is allocated.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn audit(
        &mut self,
        before: Option<u64>,
        allocator: u16,
        space: Space,
        statistics: Statistics,
    ) -> Result {
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, Some(space), allocator, 0));
        }
        let key = Key::audit(allocator, space);
        let slot = match self.find(&key) {
            Some(slot) => slot,
            None => match self.take_slot() {
                Some(slot) if self.index.insert(key.hash, slot) => slot,
                Some(slot) => {
                    self.return_slot(slot);
                    return Err(self.lose(0));
                }
                None => return Err(self.lose(0)),
            },
        };
        let quiet = if before == Some(self.changes) { flags::QUIET } else { 0 };
        let mut record = Record {
            flags: quiet.into(),
            id: statistics.allocated.into(),
            requested: statistics.free.into(),
            bytes_per_bank: statistics.largest_free_per_bank.into(),
            padding: PADDING_UNKNOWN.into(),
            slot: table_number(slot).into(),
            ..Record::new(Kind::Audit, Some(space), allocator)
        };
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.fill_slot(slot, &record);
        Ok(self.finish())
    }

    pub(crate) fn peak(&mut self, allocator: u16, space: Space) -> Result {
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, Some(space), allocator, 0));
        }
        let row = self.allocators[usize::from(allocator)].rows[space as usize].checked_sub(1);
        Ok(row.map_or(0, |row| self.rows[usize::from(row)].peak))
    }

    pub(crate) fn reset_peak(&mut self, allocator: u16, space: Space) -> Result {
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, Some(space), allocator, 0));
        }
        let Some(row) = self.row_of(allocator, space) else { return Err(self.lose(0)) };
        if !self.begin(&mut Record::new(Kind::PeakReset, Some(space), allocator)) {
            return Err(Fault::Lost);
        }
        self.rows[row].peak = self.rows[row].allocated;
        self.write_row(row);
        Ok(self.finish())
    }
}
