//! Programs: what they registered hangs in a list, so that its end is one event.

use super::{Key, Link, NO_SLOT, OVERFLOW, Words, Writer};
use crate::types::{Error, Result};
use ttmem_wire::record::{Kind, PADDING_UNKNOWN};
use ttmem_wire::segment::Oddity;
use ttmem_wire::segment::definition::Definition;

impl Writer {
    /// A record that stands for a whole program.
    pub(super) fn program_words(kind: Kind, allocator: u16, program: u32, slot: u32) -> Words {
        let head = Key::head(kind, 0, allocator);
        [0, 0, head, 0, 0, 0, u64::from(PADDING_UNKNOWN) | u64::from(program) << 32, u64::from(slot) << 32]
    }

    /// The slot of a program, which begins here if it has not yet.
    pub(super) fn program_slot(&mut self, allocator: u16, program: u32) -> Result<u32> {
        let key = Key::program(allocator, program);
        if let Some(slot) = self.find(&key) {
            return Ok(slot);
        }
        let Some(slot) = self.take_slot() else { return Err(self.lose(u64::from(program))) };
        if !self.live.insert(key.hash, slot) {
            self.untake(slot);
            return Err(self.lose(u64::from(program)));
        }
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = Self::program_words(Kind::ProgramBegin, allocator, program, listed);
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.occupy(slot, &words);
        if let Some(link) = self.link(slot) {
            link.next = 0;
        }
        self.finish();
        Ok(slot)
    }

    /// Hangs a slot into its program's list.
    pub(super) fn join(&mut self, program: u32, slot: u32) {
        let Some(head) = self.link(program) else { return };
        let first = core::mem::replace(&mut head.next, slot + 1);
        if let Some(link) = self.link(slot) {
            (link.next, link.previous) = (first, program + 1);
        }
        if let Some(link) = first.checked_sub(1).and_then(|first| self.link(first)) {
            link.previous = slot + 1;
        }
    }

    pub(super) fn leave(&mut self, slot: u32) {
        let Some(&mut Link { next, previous }) = self.link(slot) else { return };
        if let Some(link) = previous.checked_sub(1).and_then(|previous| self.link(previous)) {
            link.next = next;
        }
        if let Some(link) = next.checked_sub(1).and_then(|next| self.link(next)) {
            link.previous = previous;
        }
    }

    pub(crate) fn begin_program(&mut self, allocator: u16, program: u32, name: &str) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, 0, allocator, u64::from(program)));
        }
        if program == 0 {
            return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, 0));
        }
        self.program_slot(allocator, program)?;
        if !name.is_empty() && self.remember(&Definition::Program(program, name), u64::from(program)) {
            self.define(&Definition::Program(program, name))?;
        }
        Ok(self.sequence)
    }

    pub(crate) fn dispatch(&mut self, allocator: u16, program: u32) -> Result {
        let key = Key::program(allocator, program);
        let Some(slot) = self.find(&key) else {
            return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, u64::from(program)));
        };
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = Self::program_words(Kind::Dispatch, allocator, program, listed);
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.occupy(slot, &words);
        Ok(self.finish())
    }

    pub(crate) fn end_program(&mut self, allocator: u16, program: u32) -> Result {
        let key = Key::program(allocator, program);
        let Some(slot) = self.find(&key) else {
            return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, u64::from(program)));
        };
        let mut words = Self::program_words(Kind::ProgramEnd, allocator, program, NO_SLOT);
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.changes += 1;
        let mut part = self.link(slot).map_or(0, |link| link.next);
        let mut touched = [usize::MAX; 4];
        while let Some(slot) = part.checked_sub(1) {
            part = self.link(slot).map_or(0, |link| link.next);
            let held = self.words_of(slot);
            self.live.remove(Key::of(&held).hash, slot);
            self.vacate(slot);
            if let Some(row) = self.subtract(&held, slot < OVERFLOW) {
                let free = touched.iter().position(|&it| it == row || it == usize::MAX);
                if let Some(place) = free.and_then(|n| touched.get_mut(n)) {
                    *place = row;
                }
            }
        }
        self.live.remove(key.hash, slot);
        self.vacate(slot);
        for row in touched.into_iter().filter(|&row| row != usize::MAX) {
            self.write_row(row);
        }
        Ok(self.finish())
    }
}
