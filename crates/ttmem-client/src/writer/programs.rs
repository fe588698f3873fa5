//! Programs and traces. What a program registered is a linked list of slots, so that the end of a program is one event.

use super::slots::{Link, OVERFLOW, table_number};
use super::{Key, Writer};
use crate::types::{Program, Result};
use ttmem_types::Fault;
use ttmem_wire::ViewAddresses;
use ttmem_wire::record::{Kind, PADDING_UNKNOWN, Record, Space, flags};
use ttmem_wire::segment::definition::Definition;

impl Writer {
    /// Returns the record of a program that was dispatched so often.
    fn program_record(kind: Kind, program: &Program, dispatches: u64) -> Record {
        Record {
            flags: flags::of_class(program.class).into(),
            cores: program.cores.0.into(),
            requested: dispatches.into(),
            padding: PADDING_UNKNOWN.into(),
            program: program.number.into(),
            site: program.site.0.into(),
            ..Record::new(kind, None, program.allocator.0)
        }
    }

    /// Returns the slot of a program, which begins here if it has not yet.
    pub(super) fn program_slot(&mut self, allocator: u16, program: u32) -> Result<u32> {
        match self.find(&Key::program(allocator, program)) {
            Some(slot) => Ok(slot),
            None => self.add_program(
                &Program::new(crate::AllocatorNumber(allocator), program),
                0,
                ViewAddresses::default(),
            ),
        }
    }

    fn add_program(&mut self, program: &Program, dispatches: u64, views: ViewAddresses) -> Result<u32> {
        let key = Key::program(program.allocator.0, program.number);
        let Some(slot) = self.take_slot() else { return Err(self.lose(u64::from(program.number))) };
        if !self.index.insert(key.hash, slot) {
            self.return_slot(slot);
            return Err(self.lose(u64::from(program.number)));
        }
        let record = Self::program_record(Kind::ProgramBegin, program, dispatches);
        let mut record = record.with_view_addresses(views);
        record.slot = table_number(slot).into();
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.fill_slot(slot, &record);
        if let Some(link) = self.link(slot) {
            link.next = 0;
        }
        self.finish();
        Ok(slot)
    }

    /// Adds a slot to its program's list.
    pub(super) fn link_to_program(&mut self, program: u32, slot: u32) {
        let Some(head) = self.link(program) else { return };
        let first = core::mem::replace(&mut head.next, slot + 1);
        if let Some(link) = self.link(slot) {
            (link.next, link.previous) = (first, program + 1);
        }
        if let Some(link) = first.checked_sub(1).and_then(|first| self.link(first)) {
            link.previous = slot + 1;
        }
    }

    /// Removes a slot from its program's list.
    pub(super) fn unlink_from_program(&mut self, slot: u32) {
        let Some(&mut Link { next, previous }) = self.link(slot) else { return };
        if let Some(link) = previous.checked_sub(1).and_then(|previous| self.link(previous)) {
            link.next = next;
        }
        if let Some(link) = next.checked_sub(1).and_then(|next| self.link(next)) {
            link.previous = previous;
        }
    }

    pub(crate) fn begin_program(&mut self, allocator: u16, program: u32, name: &str) -> Result {
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, None, allocator, u64::from(program)));
        }
        if program == 0 {
            return Err(self.refuse(Fault::UnknownProgram, None, allocator, 0));
        }
        // Many programs have the same name, so it is stored once. If there is no space for it, that is counted, and the program is
        // recorded without a name.
        let site = if name.is_empty() { 0 } else { self.define_site(name).unwrap_or(0) };
        let Some(slot) = self.find(&Key::program(allocator, program)) else {
            let named =
                Program::new(crate::AllocatorNumber(allocator), program).site(crate::SiteNumber(site));
            self.add_program(&named, 0, ViewAddresses::default())?;
            return Ok(self.sequence);
        };
        let mut record = self.slot_record(slot);
        if site == 0 || record.site.get() == site {
            return Ok(self.sequence);
        }
        if record.kind == Kind::ProgramBegin as u8 {
            record.site = site.into();
            if !self.begin(&mut record) {
                return Err(Fault::Lost);
            }
            self.fill_slot(slot, &record);
            return Ok(self.finish());
        }
        // Its slot has the time of its last dispatch, which must not be recorded again.
        if self.is_new_definition(&Definition::Program(program, name), u64::from(program)) {
            let _ = self.define(&Definition::Program(program, name));
        }
        Ok(self.sequence)
    }

    /// Records a program that is built or rebuilt. What it had registered is removed; its number of dispatches stays.
    pub(crate) fn build_program(&mut self, built: &Program, views: ViewAddresses) -> Result {
        let (allocator, program) = (built.allocator.0, built.number);
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, None, allocator, u64::from(program)));
        }
        if program == 0 {
            return Err(self.refuse(Fault::UnknownProgram, None, allocator, 0));
        }
        let (mut built, mut dispatches) = (*built, 0);
        if let Some(slot) = self.find(&Key::program(allocator, program)) {
            let held = self.slot_record(slot);
            dispatches = held.requested.get();
            if built.site.0 == 0 {
                built.site.0 = held.site.get();
            }
            self.end_program(allocator, program)?;
        }
        self.add_program(&built, dispatches, views)?;
        Ok(self.sequence)
    }

    /// Records a dispatch. `slot` is the program's slot at the last dispatch, if there was one. `moved`: the new addresses of its
    /// movable views, if they have changed.
    pub(crate) fn dispatch(
        &mut self,
        allocator: u16,
        program: u32,
        slot: &mut u32,
        moved: Option<ViewAddresses>,
    ) -> Result {
        if let Some(sequence) = self.dispatch_again(allocator, program, *slot, moved) {
            return Ok(sequence);
        }
        let Some(found) = self.find(&Key::program(allocator, program)) else {
            return Err(self.refuse(Fault::UnknownProgram, None, allocator, u64::from(program)));
        };
        *slot = found;
        self.record_dispatch(found, moved)
    }

    fn record_dispatch(&mut self, slot: u32, moved: Option<ViewAddresses>) -> Result {
        let held = self.slot_record(slot);
        let mut record = Record {
            kind: Kind::Dispatch as u8,
            requested: (held.requested.get() + 1).into(),
            slot: table_number(slot).into(),
            ..held
        };
        if let Some(views) = moved {
            record = record.with_view_addresses(views);
        }
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.fill_slot(slot, &record);
        Ok(self.finish())
    }

    pub(crate) fn end_program(&mut self, allocator: u16, program: u32) -> Result {
        let key = Key::program(allocator, program);
        let Some(slot) = self.find(&key) else {
            return Err(self.refuse(Fault::UnknownProgram, None, allocator, u64::from(program)));
        };
        let ended = Program::new(crate::AllocatorNumber(allocator), program);
        let mut record = Self::program_record(Kind::ProgramEnd, &ended, 0);
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.changes += 1;
        let mut part = self.link(slot).map_or(0, |link| link.next);
        let mut changed_rows = [usize::MAX; 4];
        while let Some(slot) = part.checked_sub(1) {
            part = self.link(slot).map_or(0, |link| link.next);
            let held = self.slot_record(slot);
            self.index.remove(Key::of(&held).hash, slot);
            self.clear_slot(slot);
            if let Some(row) = self.subtract(&held, slot >= OVERFLOW) {
                let free = changed_rows.iter().position(|&changed| changed == row || changed == usize::MAX);
                if let Some(place) = free.and_then(|n| changed_rows.get_mut(n)) {
                    *place = row;
                }
            }
        }
        self.index.remove(key.hash, slot);
        self.clear_slot(slot);
        for row in changed_rows.into_iter().filter(|&row| row != usize::MAX) {
            self.write_row(row);
        }
        Ok(self.finish())
    }

    /// Records that a trace of so many dispatches was captured, or replayed if there is one with that number.
    pub(crate) fn capture_or_replay_trace(&mut self, allocator: u16, trace: u32, dispatches: u64) -> Result {
        if self.open_allocator(allocator).is_none() {
            let fault = Fault::UnknownAllocator;
            return Err(self.refuse(fault, Some(Space::Trace), allocator, u64::from(trace)));
        }
        let key = Key::trace(allocator, trace);
        let known = self.find(&key);
        let Some(slot) = known.or_else(|| self.take_slot()) else { return Err(self.lose(u64::from(trace))) };
        let mut record = if known.is_some() {
            let held = self.slot_record(slot);
            // The number of replays.
            Record { padding: held.padding.get().saturating_add(1).into(), ..held }
        } else {
            if !self.index.insert(key.hash, slot) {
                self.return_slot(slot);
                return Err(self.lose(u64::from(trace)));
            }
            Record {
                id: u64::from(trace).into(),
                requested: dispatches.into(),
                bytes_per_bank: self.clock.now().into(),
                slot: table_number(slot).into(),
                ..Record::new(Kind::Trace, Some(Space::Trace), allocator)
            }
        };
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.fill_slot(slot, &record);
        Ok(self.finish())
    }

    pub(crate) fn release_trace(&mut self, allocator: u16, trace: u32) -> Result {
        let key = Key::trace(allocator, trace);
        let Some(slot) = self.find(&key) else {
            let fault = Fault::UnknownProgram;
            return Err(self.refuse(fault, Some(Space::Trace), allocator, u64::from(trace)));
        };
        let mut record = Record { kind: Kind::TraceEnd as u8, ..self.slot_record(slot) };
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.index.remove(key.hash, slot);
        self.clear_slot(slot);
        Ok(self.finish())
    }
}
