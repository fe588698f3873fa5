//! Programs: what they registered hangs in a list, so that its end is one event. And traces, which are made of them.

use super::{Key, Link, NO_SLOT, OVERFLOW, Words, Writer};
use crate::publish::Ordering;
use crate::types::{Error, Program, Result};
use ttmem_wire::record::{Kind, PADDING_UNKNOWN, Space, flags};
use ttmem_wire::segment::Oddity;
use ttmem_wire::segment::definition::Definition;

impl Writer {
    /// A record that stands for a whole program, which was dispatched so often.
    pub(super) fn program_words(kind: Kind, it: &Program, dispatches: u64, slot: u32) -> Words {
        let flags = u64::from((it.class as u16) << flags::CLASS_SHIFT);
        let head = Key::head(kind, 0, it.allocator.0) | flags << 32 | u64::from(it.cores.0) << 48;
        let program = u64::from(PADDING_UNKNOWN) | u64::from(it.program) << 32;
        [0, 0, head, 0, dispatches, 0, program, u64::from(it.site.0) | u64::from(slot) << 32]
    }

    /// The slot of a program, which begins here if it has not yet.
    pub(super) fn program_slot(&mut self, allocator: u16, program: u32) -> Result<u32> {
        match self.find(&Key::program(allocator, program)) {
            Some(slot) => Ok(slot),
            None => self.add_program(&Program::new(crate::AllocatorNumber(allocator), program), 0),
        }
    }

    fn add_program(&mut self, it: &Program, dispatches: u64) -> Result<u32> {
        let (key, program) = (Key::program(it.allocator.0, it.program), it.program);
        let Some(slot) = self.take_slot() else { return Err(self.lose(u64::from(program))) };
        if !self.live.insert(key.hash, slot) {
            self.untake(slot);
            return Err(self.lose(u64::from(program)));
        }
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = Self::program_words(Kind::ProgramBegin, it, dispatches, listed);
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
        // Many programs have the same name, so it is kept once. If there is no room for it, that is counted, and the program is
        // there all the same.
        let site = if name.is_empty() { 0 } else { self.define_site(name).unwrap_or(0) };
        let it = Program {
            site: crate::SiteNumber(site),
            ..Program::new(crate::AllocatorNumber(allocator), program)
        };
        let Some(slot) = self.find(&Key::program(allocator, program)) else {
            self.add_program(&it, 0)?;
            return Ok(self.sequence);
        };
        let mut words = self.words_of(slot);
        if site == 0 || words[7] as u32 == site {
            return Ok(self.sequence);
        }
        if words[2] as u8 == Kind::ProgramBegin as u8 {
            words[7] = words[7] & !Key::HEAD | u64::from(site);
            if !self.begin(&mut words) {
                return Err(Error::Lost);
            }
            self.occupy(slot, &words);
            return Ok(self.finish());
        }
        // Its slot says when it was dispatched last, which is not to be said again.
        if self.remember(&Definition::Program(program, name), u64::from(program)) {
            let _ = self.define(&Definition::Program(program, name));
        }
        Ok(self.sequence)
    }

    /// A program as it is now. What it had registered before is gone; how often it was dispatched is not.
    pub(crate) fn build_program(&mut self, it: &Program) -> Result {
        let (allocator, program) = (it.allocator.0, it.program);
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(Oddity::UnknownAllocator, 0, allocator, u64::from(program)));
        }
        if program == 0 {
            return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, 0));
        }
        let (mut it, mut dispatches) = (*it, 0);
        if let Some(slot) = self.find(&Key::program(allocator, program)) {
            let words = self.words_of(slot);
            dispatches = words[4];
            if it.site.0 == 0 {
                it.site.0 = words[7] as u32;
            }
            self.end_program(allocator, program)?;
        }
        self.add_program(&it, dispatches)?;
        Ok(self.sequence)
    }

    /// `hint` is where the program's slot was the last time, if there was one.
    pub(crate) fn dispatch(&mut self, allocator: u16, program: u32, hint: &mut u32) -> Result {
        let key = Key::program(allocator, program);
        let line = self.segment.as_ref().and_then(|segment| segment.slot(*hint));
        let hinted = line.is_some_and(|line| {
            let word = |n: usize| line[n].load(Ordering::Relaxed);
            // A free slot keeps its words, but not its sequence.
            word(0) != 0 && key.fits(word(2), word(3), word(4), word(6))
        });
        if !hinted {
            let Some(slot) = self.find(&key) else {
                return Err(self.refuse(Oddity::UnknownProgram, 0, allocator, u64::from(program)));
            };
            *hint = slot;
        }
        let slot = *hint;
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = self.words_of(slot);
        words[2] = words[2] & !0xff | Kind::Dispatch as u64;
        words[4] += 1;
        words[7] = words[7] & Key::HEAD | u64::from(listed) << 32;
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
        let it = Program::new(crate::AllocatorNumber(allocator), program);
        let mut words = Self::program_words(Kind::ProgramEnd, &it, 0, NO_SLOT);
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

    /// A trace of so many dispatches was captured, or, if there is one of that number, replayed.
    pub(crate) fn trace(&mut self, allocator: u16, trace: u32, dispatches: u64) -> Result {
        if self.allocator(allocator).is_none() {
            return Err(self.refuse(
                Oddity::UnknownAllocator,
                Space::Trace as u8,
                allocator,
                u64::from(trace),
            ));
        }
        let key = Key::trace(allocator, u64::from(trace));
        let known = self.find(&key);
        let Some(slot) = known.or_else(|| self.take_slot()) else { return Err(self.lose(u64::from(trace))) };
        let listed = if slot < OVERFLOW { slot } else { NO_SLOT };
        let mut words = if known.is_some() {
            let mut words = self.words_of(slot);
            // How often it was replayed.
            words[6] += u64::from(words[6] as u32 != u32::MAX);
            words
        } else {
            if !self.live.insert(key.hash, slot) {
                self.untake(slot);
                return Err(self.lose(u64::from(trace)));
            }
            let head = Key::head(Kind::Trace, Space::Trace as u8, allocator);
            let now = self.clock.now();
            [0, 0, head, u64::from(trace), dispatches, now, 0, u64::from(listed) << 32]
        };
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.occupy(slot, &words);
        Ok(self.finish())
    }

    pub(crate) fn end_trace(&mut self, allocator: u16, trace: u32) -> Result {
        let key = Key::trace(allocator, u64::from(trace));
        let Some(slot) = self.find(&key) else {
            return Err(self.refuse(Oddity::UnknownProgram, Space::Trace as u8, allocator, u64::from(trace)));
        };
        let mut words = self.words_of(slot);
        words[2] = words[2] & !0xff | Kind::TraceEnd as u64;
        if !self.begin(&mut words) {
            return Err(Error::Lost);
        }
        self.live.remove(key.hash, slot);
        self.vacate(slot);
        Ok(self.finish())
    }
}
