//! Programs: what they registered hangs in a list, so that its end is one event. And traces, which are made of them.

use super::{Key, Link, OVERFLOW, Writer, listed};
use crate::publish::Ordering;
use crate::types::{Program, Result};
use ttmem_types::Fault;
use ttmem_wire::record::{Kind, PADDING_UNKNOWN, Record, Space, flags, word};
use ttmem_wire::segment::definition::Definition;

impl Writer {
    /// A record of a whole program, which was dispatched so often.
    pub(super) fn program_record(kind: Kind, it: &Program, dispatches: u64) -> Record {
        Record {
            flags: flags::of_class(it.class).into(),
            cores: it.cores.0.into(),
            requested: dispatches.into(),
            padding: PADDING_UNKNOWN.into(),
            program: it.program.into(),
            site: it.site.0.into(),
            ..Record::new(kind, None, it.allocator.0)
        }
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
        let mut record = Self::program_record(Kind::ProgramBegin, it, dispatches);
        record.slot = listed(slot).into();
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.occupy(slot, &record);
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
            return Err(self.refuse(Fault::UnknownAllocator, None, allocator, u64::from(program)));
        }
        if program == 0 {
            return Err(self.refuse(Fault::UnknownProgram, None, allocator, 0));
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
        let mut record = self.held(slot);
        if site == 0 || record.site.get() == site {
            return Ok(self.sequence);
        }
        if record.kind == Kind::ProgramBegin as u8 {
            record.site = site.into();
            if !self.begin(&mut record) {
                return Err(Fault::Lost);
            }
            self.occupy(slot, &record);
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
            return Err(self.refuse(Fault::UnknownAllocator, None, allocator, u64::from(program)));
        }
        if program == 0 {
            return Err(self.refuse(Fault::UnknownProgram, None, allocator, 0));
        }
        let (mut it, mut dispatches) = (*it, 0);
        if let Some(slot) = self.find(&Key::program(allocator, program)) {
            let held = self.held(slot);
            dispatches = held.requested.get();
            if it.site.0 == 0 {
                it.site.0 = held.site.get();
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
            let at = |n: usize| line[n].load(Ordering::Relaxed);
            // A free slot keeps its words, but not its sequence.
            at(word::SEQUENCE) != 0 && key.fits(at)
        });
        if !hinted {
            let Some(slot) = self.find(&key) else {
                return Err(self.refuse(Fault::UnknownProgram, None, allocator, u64::from(program)));
            };
            *hint = slot;
        }
        let slot = *hint;
        let held = self.held(slot);
        let mut record = Record {
            kind: Kind::Dispatch as u8,
            requested: (held.requested.get() + 1).into(),
            slot: listed(slot).into(),
            ..held
        };
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.occupy(slot, &record);
        Ok(self.finish())
    }

    pub(crate) fn end_program(&mut self, allocator: u16, program: u32) -> Result {
        let key = Key::program(allocator, program);
        let Some(slot) = self.find(&key) else {
            return Err(self.refuse(Fault::UnknownProgram, None, allocator, u64::from(program)));
        };
        let it = Program::new(crate::AllocatorNumber(allocator), program);
        let mut record = Self::program_record(Kind::ProgramEnd, &it, 0);
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.changes += 1;
        let mut part = self.link(slot).map_or(0, |link| link.next);
        let mut touched = [usize::MAX; 4];
        while let Some(slot) = part.checked_sub(1) {
            part = self.link(slot).map_or(0, |link| link.next);
            let held = self.held(slot);
            self.live.remove(Key::of(&held).hash, slot);
            self.vacate(slot);
            if let Some(row) = self.subtract(&held, slot >= OVERFLOW) {
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
            let fault = Fault::UnknownAllocator;
            return Err(self.refuse(fault, Some(Space::Trace), allocator, u64::from(trace)));
        }
        let key = Key::trace(allocator, trace);
        let known = self.find(&key);
        let Some(slot) = known.or_else(|| self.take_slot()) else { return Err(self.lose(u64::from(trace))) };
        let mut record = if known.is_some() {
            let held = self.held(slot);
            // How often it was replayed.
            Record { padding: held.padding.get().saturating_add(1).into(), ..held }
        } else {
            if !self.live.insert(key.hash, slot) {
                self.untake(slot);
                return Err(self.lose(u64::from(trace)));
            }
            Record {
                id: u64::from(trace).into(),
                requested: dispatches.into(),
                bytes_per_bank: self.clock.now().into(),
                slot: listed(slot).into(),
                ..Record::new(Kind::Trace, Some(Space::Trace), allocator)
            }
        };
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.occupy(slot, &record);
        Ok(self.finish())
    }

    pub(crate) fn end_trace(&mut self, allocator: u16, trace: u32) -> Result {
        let key = Key::trace(allocator, trace);
        let Some(slot) = self.find(&key) else {
            let fault = Fault::UnknownProgram;
            return Err(self.refuse(fault, Some(Space::Trace), allocator, u64::from(trace)));
        };
        let mut record = Record { kind: Kind::TraceEnd as u8, ..self.held(slot) };
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.live.remove(key.hash, slot);
        self.vacate(slot);
        Ok(self.finish())
    }
}
