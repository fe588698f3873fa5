//! Rows: the totals of an allocator in one space.

use super::Writer;
use crate::publish::Ordering;
use crate::segment::Line;
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
    /// Copies that do not have what seldom changes yet: everything but sums and count.
    outdated_copies: u8,
    pub(super) closed: u8,
    reserved: u16,
    pub(super) next_vacant: u32,
    reserved_too: u32,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) count: u64,
    pub(super) peak: u64,
    pub(super) unlisted: u64,
}

impl Row {
    /// Adds an allocation.
    #[inline]
    pub(super) fn add(&mut self, requested: u64, charge: u64) {
        self.requested += requested;
        self.allocated += charge;
        self.count += 1;
        if self.allocated > self.peak {
            self.peak = self.allocated;
            self.outdated_copies = 2;
        }
    }

    /// Subtracts an allocation.
    #[inline]
    pub(super) fn subtract(&mut self, requested: u64, charge: u64) {
        self.requested = self.requested.saturating_sub(requested);
        self.allocated = self.allocated.saturating_sub(charge);
        self.count = self.count.saturating_sub(1);
    }

    /// Writes what seldom changes to a copy.
    #[cold]
    fn write_rest(&mut self, line: &Line) {
        let key = u64::from(self.allocator) | u64::from(self.space) << 16;
        for (word, value) in [(1, key), (5, self.peak), (6, self.unlisted), (7, u64::from(self.closed))] {
            line[word].store(value, Ordering::Relaxed);
        }
        self.outdated_copies -= 1;
    }
}

impl Writer {
    /// Writes the current state of a row, of which anything may have changed.
    pub(super) fn write_row(&mut self, number: usize) {
        if let Some(row) = self.rows.get_mut(number) {
            row.outdated_copies = 2;
        }
        self.write_totals(number);
    }

    /// Writes the current state of a row, of which only sums, count and peak may have changed: stores are what an event costs.
    #[inline]
    pub(super) fn write_totals(&mut self, number: usize) {
        let Some(segment) = &self.segment else { return };
        let Some(row) = self.rows.get_mut(number) else { return };
        row.copy ^= 1;
        let Some(line) = segment.row(number as u32, usize::from(row.copy)) else { return };
        if row.outdated_copies > 0 {
            row.write_rest(line);
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
        row.subtract(held.own_requested(), charge);
        row.unlisted = row.unlisted.saturating_sub(u64::from(unlisted));
        Some(number)
    }
}
