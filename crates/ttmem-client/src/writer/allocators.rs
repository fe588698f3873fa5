//! Allocators: their end, their failures, and how they compare.

use super::{Key, OVERFLOW, SPACES, Thing, Writer};
use crate::types::{Error, Result, Statistics};
use ttmem_wire::record::{Kind, NO_SLOT, PADDING_UNKNOWN, Space, WORDS, flags};
use ttmem_wire::segment::Oddity;

impl Writer {
    pub(crate) fn close_allocator(&mut self, allocator: u16) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, 0, allocator, 0));
        }
        let mut words = [0; WORDS];
        words[2] = Key::head(Kind::AllocatorEnd, 0, allocator);
        words[7] = u64::from(NO_SLOT) << 32;
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.changes += 1;
        // Rare enough to look at every slot, if it is only at one word of most.
        let overflowed = self.overflow.as_ref().map_or(0, |it| it.slots.fresh);
        for slot in (0..self.shared.fresh).chain(OVERFLOW..OVERFLOW + overflowed) {
            if (self.head_of(slot) >> 16) as u16 != allocator {
                continue;
            }
            let key = Key::of(&self.words_of(slot));
            // A free slot keeps its words, so only the map knows.
            if self.live.find(key.hash, |it| it == slot).is_some() {
                self.live.remove(key.hash, slot);
                self.vacate(slot);
            }
        }
        for space in 0..SPACES {
            if let Some(row) = self.allocators[usize::from(allocator)].rows[space].checked_sub(1) {
                let row = usize::from(row);
                let it = &mut self.rows[row];
                (it.requested, it.allocated, it.count, it.unlisted) = (0, 0, 0, 0);
                it.closed = 1;
                it.next_vacant = core::mem::replace(&mut self.vacant_rows, row as u32 + 1);
                self.write_row(row);
            }
        }
        self.allocators[usize::from(allocator)].open = 0;
        self.allocators[usize::from(allocator)].rows = [0; SPACES];
        Ok(self.finish())
    }

    pub(crate) fn out_of_memory(&mut self, thing: &Thing) -> Result {
        let Thing { allocator, space, requested, .. } = *thing;
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let mut words = [0; WORDS];
        words[2] = Key::head(Kind::OutOfMemory, space as u8, allocator);
        (words[4], words[5]) = (requested, thing.bytes_per_bank);
        words[6] = u64::from(PADDING_UNKNOWN) | u64::from(thing.program) << 32;
        words[7] = u64::from(thing.site) | u64::from(NO_SLOT) << 32;
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.count(Oddity::OutOfMemory, requested);
        Ok(self.finish())
    }

    pub(crate) fn is_held(&self, allocator: u16, space: Space, id: u64) -> bool {
        self.allocator(allocator).is_some()
            && self.find(&Key::memory(space, allocator, id, 0, 0, 0)).is_some()
    }

    /// Events that changed what is held, so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn audit(
        &mut self,
        before: Option<u64>,
        allocator: u16,
        space: Space,
        it: Statistics,
    ) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let key = Key::audit(allocator, space);
        let slot = match self.find(&key) {
            Some(slot) => slot,
            None => match self.take_slot() {
                Some(slot) if self.live.insert(key.hash, slot) => slot,
                Some(slot) => {
                    self.untake(slot);
                    return Err(self.lose(0));
                }
                None => return Err(self.lose(0)),
            },
        };
        let quiet = if before == Some(self.changes) { flags::QUIET } else { 0 };
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = [
            0,
            0,
            Key::head(Kind::Audit, space as u8, allocator) | u64::from(quiet) << 32,
            it.allocated,
            it.free,
            it.largest_free_per_bank,
            u64::from(PADDING_UNKNOWN),
            u64::from(listed) << 32,
        ];
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.occupy(slot, &words);
        Ok(self.finish())
    }

    pub(crate) fn peak(&mut self, allocator: u16, space: Space) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let row = self.allocators[usize::from(allocator)].rows[space as usize % SPACES].checked_sub(1);
        Ok(row.map_or(0, |row| self.rows[usize::from(row)].peak))
    }

    pub(crate) fn reset_peak(&mut self, allocator: u16, space: Space) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, space as u8, allocator, 0));
        }
        let mut words = [0; WORDS];
        words[2] = Key::head(Kind::PeakReset, space as u8, allocator);
        words[7] = u64::from(NO_SLOT) << 32;
        let Some(row) = self.row_of(allocator, space as u8) else { return Err(self.lose(0)) };
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.rows[row].peak = self.rows[row].allocated;
        self.write_row(row);
        Ok(self.finish())
    }
}
