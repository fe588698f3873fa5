//! Slots: which are free, and which hang together.

use crate::memory::Array;
use ttmem_wire::record::Record;
use zerocopy::FromZeros;

#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub(super) struct Link {
    pub(super) next: u32,
    pub(super) previous: u32,
}

/// Slots of one kind. Links are one more than the slot they mean; 0 ends a list.
pub(super) struct Slots {
    pub(super) links: Array<Link>,
    /// Those free again, the last one on top: it is still near.
    free: Array<u32>,
    free_len: usize,
    /// From here on none was ever used.
    pub(super) fresh: u32,
}

impl Slots {
    pub(super) fn new(most: u32) -> Option<Self> {
        let most = most as usize;
        Some(Self { links: Array::new(most)?, free: Array::new(most)?, free_len: 0, fresh: 0 })
    }

    #[inline]
    pub(super) fn take(&mut self, most: u32) -> Option<u32> {
        if self.free_len > 0 {
            self.free_len -= 1;
            return self.free.get(self.free_len).copied();
        }
        (self.fresh < most).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) {
        if let Some(place) = self.free.get_mut(self.free_len) {
            *place = slot;
            self.free_len += 1;
        }
    }
}

/// Live allocations that the table has no room for.
pub(super) struct Overflow {
    pub(super) slots: Slots,
    pub(super) records: Array<Record>,
}
