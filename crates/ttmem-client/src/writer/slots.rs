//! Slots: which are free, which are linked to a program, and what they contain.

use super::{Key, Writer};
use crate::memory::Array;
use crate::publish::{self, Ordering};
use crate::segment::Line;
use ttmem_wire::record::{self, Head, Kind, NO_SLOT, Record};
use zerocopy::FromZeros;

/// Slots from this number on are private: the table has no space for them.
pub(super) const OVERFLOW: u32 = 1 << 30;
const MAX_OVERFLOW: u32 = 1 << 20;

#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub(super) struct Link {
    pub(super) next: u32,
    pub(super) previous: u32,
}

/// Free and linked slots of one kind. A link is a slot's number plus 1; 0 ends a list.
#[repr(C)]
pub(super) struct Slots {
    /// Slots that were released. The last one is reused first: its lines are still in the cache.
    free: Array<u32>,
    free_len: usize,
    /// The lowest number that was never used.
    pub(super) fresh: u32,
    pub(super) links: Array<Link>,
}

impl Slots {
    pub(super) fn new(capacity: u32) -> Option<Self> {
        let capacity = capacity as usize;
        Some(Self { links: Array::new(capacity)?, free: Array::new(capacity)?, free_len: 0, fresh: 0 })
    }

    /// Returns a free slot below `limit`.
    #[inline]
    pub(super) fn take(&mut self, limit: u32) -> Option<u32> {
        if self.free_len > 0 {
            self.free_len -= 1;
            return self.free.get(self.free_len).copied();
        }
        (self.fresh < limit).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// Forgets which slots are free.
    pub(super) fn forget_free(&mut self) {
        self.free_len = 0;
    }

    /// Makes a slot free.
    #[inline]
    pub(super) fn release(&mut self, slot: u32) {
        if let Some(place) = self.free.get_mut(self.free_len) {
            *place = slot;
            self.free_len += 1;
        }
    }
}

/// Live allocations for which the table has no space.
pub(super) struct Overflow {
    pub(super) slots: Slots,
    pub(super) records: Array<Record>,
}

impl Writer {
    /// Returns the slot with this hash whose words match, and the position of its entry in the index.
    #[inline]
    fn find_by(&self, hash: u64, matches: impl Fn(&dyn Fn(usize) -> u64) -> bool) -> Option<(u32, usize)> {
        let segment = self.segment.as_ref()?;
        self.index.find(hash, |slot| {
            if let Some(line) = segment.slot(slot) {
                return matches(&|n| line[n].load(Ordering::Relaxed));
            }
            self.overflow_record(slot).is_some_and(|held| {
                let words = held.to_words();
                matches(&|n| words[n])
            })
        })
    }

    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        self.locate(key).map(|(slot, _)| slot)
    }

    /// Returns the slot with a key, and the position of its entry in the index.
    pub(super) fn locate(&self, key: &Key) -> Option<(u32, usize)> {
        self.find_by(key.hash, |word| key.matches(word))
    }

    /// Returns the slot of a buffer, as [`Writer::locate`] does, without making a key.
    #[inline]
    pub(super) fn find_buffer(&self, hash: u64, head: Head, id: u64) -> Option<(u32, usize)> {
        self.find_by(hash, |word| {
            Head::from_word(word(Head::WORD)).identity() == head.identity() && word(record::word::ID) == id
        })
    }

    /// Returns the record in a private slot.
    fn overflow_record(&self, slot: u32) -> Option<&Record> {
        self.overflow.as_ref()?.records.get(slot.wrapping_sub(OVERFLOW) as usize)
    }

    /// Returns the record in a slot.
    pub(super) fn slot_record(&self, slot: u32) -> Record {
        match self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            Some(line) => load(line),
            None => self.overflow_record(slot).copied().unwrap_or_else(Record::new_zeroed),
        }
    }

    /// Returns the allocator of the record in a slot.
    pub(super) fn slot_allocator(&self, slot: u32) -> u16 {
        match self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            Some(line) => Head::from_word(line[Head::WORD].load(Ordering::Relaxed)).allocator(),
            None => self.overflow_record(slot).map_or(0, |held| held.allocator.get()),
        }
    }

    /// Returns a free slot: of the table if it has one, else a private one.
    #[inline]
    pub(super) fn take_slot(&mut self) -> Option<u32> {
        let slots = self.segment()?.slots();
        match self.slots.take(slots) {
            Some(slot) => Some(slot),
            None => self.grow_or_overflow(),
        }
    }

    #[cold]
    fn grow_or_overflow(&mut self) -> Option<u32> {
        if let Some(segment) = self.segment.as_mut().filter(|_| self.may_grow) {
            match segment.grow() {
                Ok(()) => {
                    let slots = segment.slots();
                    return self.slots.take(slots);
                }
                Err(problem) => {
                    // An attempt at every event would cost the workload; `refresh` tries again.
                    self.may_grow = false;
                    self.problem = Some(problem);
                    self.publish_problem();
                }
            }
        }
        if self.overflow.is_none() {
            let (slots, records) = (Slots::new(MAX_OVERFLOW)?, Array::new(MAX_OVERFLOW as usize)?);
            self.overflow = Some(Overflow { slots, records });
        }
        self.overflow.as_mut()?.slots.take(MAX_OVERFLOW).map(|slot| slot + OVERFLOW)
    }

    pub(super) fn link(&mut self, slot: u32) -> Option<&mut Link> {
        if slot >= OVERFLOW {
            return self.overflow.as_mut()?.slots.links.get_mut((slot - OVERFLOW) as usize);
        }
        self.slots.links.get_mut(slot as usize)
    }

    /// Writes a record into its slot. The event has begun.
    #[inline]
    pub(super) fn fill_slot(&mut self, slot: u32, record: &Record) {
        if let Some(line) = self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            publish::put(line, &record.to_words());
            // The old protocol has neither programs nor audits.
            if self.has_legacy && record.kind == Kind::Alloc as u8 {
                if let Some(legacy) = &mut self.legacy {
                    legacy.slot_filled(slot);
                }
            }
        } else if let Some(place) = self
            .overflow
            .as_mut()
            .and_then(|overflow| overflow.records.get_mut(slot.wrapping_sub(OVERFLOW) as usize))
        {
            *place = *record;
        }
    }

    /// Clears a slot of the table. The event has begun, the entry in the index is removed already, and the caller subtracts what the
    /// slot held.
    #[inline]
    pub(super) fn clear_slot(&mut self, slot: u32) {
        if slot >= OVERFLOW {
            if let Some(overflow) = &mut self.overflow {
                if let Some(held) = overflow.records.get_mut((slot - OVERFLOW) as usize) {
                    held.sequence = 0.into();
                }
                overflow.slots.release(slot - OVERFLOW);
            }
            return;
        }
        if self.has_legacy {
            // Its words are needed until the free was sent to the old server.
            if self.legacy.as_mut().is_some_and(|legacy| !legacy.slot_freed(slot)) {
                return;
            }
        }
        if let Some(line) = self.segment.as_ref().and_then(|segment| segment.slot(slot)) {
            publish::clear(line);
        }
        self.slots.release(slot);
    }

    /// Returns a slot that was taken but not filled.
    pub(super) fn return_slot(&mut self, slot: u32) {
        if slot >= OVERFLOW {
            if let Some(overflow) = &mut self.overflow {
                overflow.slots.release(slot - OVERFLOW);
            }
        } else {
            self.slots.release(slot);
        }
    }
}

/// Returns a slot's number as records have it: private slots have none.
#[inline]
pub(super) fn table_number(slot: u32) -> u32 {
    if slot < OVERFLOW { slot } else { NO_SLOT }
}

/// Returns the record in a slot of the table.
#[inline]
pub(super) fn load(line: &Line) -> Record {
    Record::from_words(core::array::from_fn(|n| line[n].load(Ordering::Relaxed)))
}
