//! The record of one live allocation.

use super::{NONE, PoolId};
use crate::words::{KernelClass, Layout, Uncertainty};
use serde::{Deserialize, Serialize};
use ttmem_types::charge;

/// One live allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) requested: u64,
    /// 0: unknown, as for `bytes_per_bank` and `banks`.
    pub(crate) occupied: u64,
    pub(crate) bytes_per_bank: u64,
    /// Time of the allocation, made unique: later allocations have larger values.
    pub(crate) allocated_at: u64,
    pub(super) pool: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
    pub(crate) refs: u32,
    pub(crate) cores: u32,
    pub(crate) program: u32,
    pub(crate) site: u32,
    pub(crate) banks: u16,
    pub(crate) nature: Nature,
    pub(crate) layout: Layout,
}

/// The class of a kernel and what is unknown about a record, in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nature(u8);

impl Nature {
    const UNPLACED: u8 = 4;
    const ESTIMATED: u8 = 8;
    const UNFOLLOWED: u8 = 16;

    pub(crate) fn new(class: KernelClass, uncertainty: Uncertainty) -> Self {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Self(
            class as u8
                | flag(uncertainty.unplaced, Self::UNPLACED)
                | flag(uncertainty.estimated, Self::ESTIMATED)
                | flag(uncertainty.unfollowed, Self::UNFOLLOWED),
        )
    }

    pub(crate) fn class(self) -> KernelClass {
        KernelClass::from_number(self.0 & 3).unwrap_or_default()
    }

    pub(crate) fn uncertainty(self) -> Uncertainty {
        Uncertainty {
            unplaced: self.0 & Self::UNPLACED != 0,
            estimated: self.0 & Self::ESTIMATED != 0,
            unfollowed: self.0 & Self::UNFOLLOWED != 0,
        }
    }
}

const _: () = assert!(size_of::<Entry>() == 72, "the budget is 96 bytes a buffer with the index");

impl Entry {
    /// A record that is not in the ledger yet.
    pub(crate) fn new(id: u64, requested: u64, allocated_at: u64) -> Self {
        Self {
            id,
            requested,
            occupied: 0,
            bytes_per_bank: 0,
            allocated_at,
            pool: NONE,
            previous: NONE,
            next: NONE,
            refs: 1,
            cores: 0,
            program: 0,
            site: 0,
            banks: 0,
            nature: Nature::new(KernelClass::Unknown, Uncertainty::default()),
            layout: Layout::Unknown,
        }
    }

    /// What the allocator charges, else what was requested.
    pub(crate) fn charged(&self) -> u64 {
        self.allocated().unwrap_or(self.requested)
    }

    /// What the allocator charges, if that is known.
    pub(crate) fn allocated(&self) -> Option<u64> {
        charge(self.bytes_per_bank, self.banks)
    }

    pub(crate) fn pool(&self) -> PoolId {
        PoolId(self.pool)
    }
}
