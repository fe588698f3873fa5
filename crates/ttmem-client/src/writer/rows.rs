//! Rows: the totals of an allocator in one space.

use super::Writer;
use crate::publish::Ordering;
use ttmem_wire::record::{Record, Space};
use ttmem_wire::segment::word;
use zerocopy::FromZeros;

#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
pub(super) struct Row {
    pub(super) allocator: u16,
    pub(super) space: u8,
    /// The copy to write next.
    pub(super) copy: u8,
    pub(super) closed: u32,
    pub(super) next_vacant: u32,
    pub(super) reserved: u32,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) count: u64,
    pub(super) peak: u64,
    pub(super) unlisted: u64,
}

impl Writer {
    /// Writes the current state of a row. What seldom changes is stored only if it did: stores are what an event costs.
    #[inline]
    pub(super) fn write_row(&mut self, number: usize) {
        let Some(segment) = &self.segment else { return };
        let Some(row) = self.rows.get_mut(number) else { return };
        row.copy ^= 1;
        let Some(line) = segment.row(number as u32, usize::from(row.copy)) else { return };
        let key = u64::from(row.allocator) | u64::from(row.space) << 16;
        for (word, value) in [(1, key), (5, row.peak), (6, row.unlisted), (7, u64::from(row.closed))] {
            if line[word].load(Ordering::Relaxed) != value {
                line[word].store(value, Ordering::Relaxed);
            }
        }
        line[2].store(row.requested, Ordering::Relaxed);
        line[3].store(row.allocated, Ordering::Relaxed);
        line[4].store(row.count, Ordering::Relaxed);
        line[0].store(self.sequence, Ordering::Release);
    }

    /// Returns the row of an allocator's space, added if there is none.
    #[inline]
    pub(super) fn row_of(&mut self, allocator: u16, space: Space) -> Option<usize> {
        match self.allocators[usize::from(allocator)].rows[space as usize] {
            0 => self.add_row(allocator, space),
            row => Some(usize::from(row) - 1),
        }
    }

    #[cold]
    fn add_row(&mut self, allocator: u16, space: Space) -> Option<usize> {
        let row = match self.vacant_rows.checked_sub(1) {
            Some(vacant) => {
                self.vacant_rows = self.rows[vacant as usize].next_vacant;
                vacant as usize
            }
            None => {
                self.rows_used += 1;
                self.rows_used as usize - 1
            }
        };
        if row >= self.rows.len() {
            self.rows_used = self.rows.len() as u32;
            return None;
        }
        let copy = self.rows[row].copy;
        self.rows[row] = Row { allocator, space: space as u8, copy, ..Row::new_zeroed() };
        self.allocators[usize::from(allocator)].rows[space as usize] = row as u16 + 1;
        let used = u64::from(self.rows_used);
        if let Some(segment) = self.segment() {
            segment.word(word::ROWS_USED).store(used, Ordering::Release);
        }
        Some(row)
    }

    /// Subtracts what a slot held from its row, and returns the row.
    #[inline]
    pub(super) fn subtract(&mut self, held: &Record, unlisted: bool) -> Option<usize> {
        let space = held.space()?;
        let number = self.row_of(held.allocator.get(), space)?;
        let charge = self.charge(space, held);
        let row = &mut self.rows[number];
        row.requested = row.requested.saturating_sub(held.own_requested());
        row.allocated = row.allocated.saturating_sub(charge);
        row.count = row.count.saturating_sub(1);
        row.unlisted = row.unlisted.saturating_sub(u64::from(unlisted));
        Some(number)
    }
}
