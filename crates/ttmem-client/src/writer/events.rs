//! Allocations and frees.

use super::slots::{OVERFLOW, table_number};
use super::{Key, Writer};
use crate::publish;
use crate::slot_index::hash;
use crate::types::Result;
use ttmem_types::Fault;
use ttmem_types::limits::{MAX_ALLOCATION_BYTES, REMEMBERED_FREES};
use ttmem_wire::record::{Head, Kind, Record, Space, flags};

impl Writer {
    /// Marks a moment.
    #[cold]
    pub(crate) fn mark(&mut self, name: &str, number: Option<u64>) -> Result {
        let mut record = Record::new(Kind::Mark, None, 0);
        // Without space for its name, the mark still has its number.
        record.site = self.define_site(name).unwrap_or(0).into();
        if let Some(number) = number {
            (record.flags, record.id) = (flags::MEASURED.into(), number.into());
        }
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        if let Some(segment) = &self.segment {
            publish::replace(segment.mark(), &record.to_words());
        }
        let sequence = self.finish();
        // What is allocated from now on is later than the mark, however slowly the clock runs.
        self.clock.advance();
        Ok(sequence)
    }

    /// Records an allocation: a buffer, or program memory. `record` lacks its sequence, time and slot.
    pub(crate) fn allocate(&mut self, space: Space, record: &Record) -> Result {
        let (allocator, id) = (record.allocator.get(), record.id.get());
        let requested = record.requested.get();
        let refusal = if self.open_allocator(allocator).is_none() {
            Some(Fault::UnknownAllocator)
        } else if requested == 0 {
            Some(Fault::ZeroSize)
        } else if requested > MAX_ALLOCATION_BYTES {
            Some(Fault::TooLarge)
        } else if space != Space::Kernel && id.checked_add(requested).is_none() {
            Some(Fault::BeyondAddresses)
        } else {
            None
        };
        if let Some(fault) = refusal {
            return Err(self.refuse(fault, Some(space), allocator, id));
        }
        let mut record = *record;
        let charge = self.charge(space, &record);
        if charge > MAX_ALLOCATION_BYTES {
            return Err(self.refuse(Fault::TooLarge, Some(space), allocator, id));
        }
        let program = record.program.get();
        let stacked = space.is_stacked();
        let head = Head::new(Kind::Alloc, Some(space), allocator);
        let key = || Key::memory(space, allocator, id, program, requested, record.cores.get());
        let hash = if stacked { key().hash } else { hash(id, head.identity(), 0) };
        self.index.prefetch(hash);
        // The clock is read while the index's line is fetched.
        self.event_ns = self.clock.now();
        let found = match stacked {
            // Movable views of one program differ in their number.
            true if record.view_number().is_some() => None,
            true => self.locate(&key()),
            false => self.find_buffer(hash, head, id),
        };
        let mut fault = None;
        if let Some(held) = found {
            fault = Some(self.replace(held, requested, id));
        }
        let mut program_slot = None;
        if program != 0 {
            program_slot = Some(self.program_slot(allocator, program)?);
        }
        let (Some(row), Some(slot)) = (self.row_of(allocator, space), self.take_slot()) else {
            return Err(self.lose(id));
        };
        if !self.index.insert(hash, slot) {
            self.return_slot(slot);
            return Err(self.lose(id));
        }
        record.slot = table_number(slot).into();
        if !self.begin(&mut record) {
            return Err(Fault::Lost);
        }
        self.changes += 1;
        self.fill_slot(slot, &record);
        if let Some(program_slot) = program_slot {
            self.link_to_program(program_slot, slot);
        }
        let unlisted = slot >= OVERFLOW;
        let totals = &mut self.rows[row];
        totals.add(record.own_requested(), charge);
        totals.unlisted += u64::from(unlisted);
        self.write_row(row);
        if unlisted {
            self.count_fault(Fault::Unlisted, id);
        }
        let sequence = self.finish();
        fault.map_or(Ok(sequence), Err)
    }

    /// Frees the allocation that an address had before: its free was missed.
    #[cold]
    fn replace(&mut self, held: (u32, usize), requested: u64, id: u64) -> Fault {
        let same = self.slot_record(held.0).requested.get() == requested;
        let fault = if same { Fault::StillHeld } else { Fault::Replaced };
        self.free_slot(held, flags::IMPLIED);
        self.count_fault(fault, id);
        fault
    }

    /// Frees the allocation in a slot: one event. Its record repeats the allocation's.
    #[inline]
    fn free_slot(&mut self, (slot, entry): (u32, usize), how: u16) -> u64 {
        let held = self.slot_record(slot);
        let mut record = Record {
            kind: Kind::Free as u8,
            flags: (held.flags.get() & (flags::MIRROR | flags::VIEW) | how).into(),
            slot: table_number(slot).into(),
            ..held
        };
        if !self.begin(&mut record) {
            return 0;
        }
        self.changes += 1;
        if held.program.get() != 0 {
            self.unlink_from_program(slot);
        }
        self.index.remove_at(entry);
        self.clear_slot(slot);
        if let Some(row) = self.subtract(&held, slot >= OVERFLOW) {
            self.write_row(row);
        }
        self.finish()
    }

    /// Records the free of what `allocate` recorded. `spaces` are tried in turn.
    pub(crate) fn free(&mut self, spaces: &[Space], record: &Record) -> Result {
        let (allocator, id) = (record.allocator.get(), record.id.get());
        let named = if let [space] = spaces { Some(*space) } else { None };
        if self.open_allocator(allocator).is_none() {
            return Err(self.refuse(Fault::UnknownAllocator, named, allocator, id));
        }
        for &space in spaces.iter().filter(|space| !space.is_stacked()) {
            let head = Head::new(Kind::Alloc, Some(space), allocator);
            let hash = hash(id, head.identity(), 0);
            self.index.prefetch(hash);
            self.event_ns = self.clock.now();
            if let Some(found) = self.find_buffer(hash, head, id) {
                return Ok(self.free_found(found, hash));
            }
        }
        let (program, requested, cores) = (record.program.get(), record.requested.get(), record.cores.get());
        let key = |space: Space| Key::memory(space, allocator, id, program, requested, cores);
        for &space in spaces.iter().filter(|space| space.is_stacked()) {
            let key = key(space);
            if let Some(found) = self.locate(&key) {
                return Ok(self.free_found(found, key.hash));
            }
        }
        let freed_before = spaces.iter().any(|&space| self.recent_frees.contains(&key(space).hash));
        let fault = match (freed_before, self.forked) {
            (true, _) => Fault::DoubleFree,
            (false, true) => Fault::InheritedFree,
            (false, false) => Fault::UnknownFree,
        };
        Err(self.refuse(fault, named, allocator, id))
    }

    /// Frees a slot and remembers its hash, to recognise a double free.
    #[inline]
    fn free_found(&mut self, found: (u32, usize), hash: u64) -> u64 {
        self.recent_frees[self.frees % REMEMBERED_FREES] = hash;
        self.frees = self.frees.wrapping_add(1);
        self.free_slot(found, 0)
    }
}
