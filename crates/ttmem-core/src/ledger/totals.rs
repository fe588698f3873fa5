//! Sums over the records of a pool.

use super::Entry;
use crate::words::KernelClass;

/// Sums over a pool's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) requested: u64,
    pub(crate) occupied: u64,
    /// What is charged; for records without that, what was requested.
    pub(crate) allocated: u64,
    pub(crate) count: u64,
    /// Records without the bytes that are charged.
    pub(crate) uncharged: u64,
    /// Records without the bytes they occupy.
    pub(crate) vague: u64,
    /// Records of other allocators' buffers and of views of buffers, and their bytes. They are no use of their own: only
    /// `count` has them.
    pub(crate) mirrors: u64,
    pub(crate) mirrored: u64,
    /// Records whose dispatches are not reported. None of them is in `uncharged`.
    pub(crate) unfollowed: u64,
    /// Bytes charged by estimate.
    pub(crate) estimated: u64,
    /// Charged bytes by the number of a [`KernelClass`], which only kernels have.
    pub(crate) by_class: [u64; KernelClass::ALL.len()],
}

impl Totals {
    /// What the allocator itself counts: what it handed out, and what it avoids.
    pub(crate) fn held(self) -> u64 {
        self.allocated.saturating_add(self.mirrored)
    }

    /// Records that are a use of their own.
    pub(crate) fn own_count(self) -> u64 {
        self.count - self.mirrors
    }

    pub(crate) fn add(&mut self, entry: &Entry) {
        if entry.layout.is_alias() {
            self.count += 1;
            self.mirrors += 1;
            self.mirrored += entry.charged();
            return;
        }
        self.requested += entry.requested;
        self.occupied += entry.occupied;
        self.allocated += entry.charged();
        self.by_class[entry.nature.class() as usize] += entry.charged();
        self.count += 1;
        let uncertainty = entry.nature.uncertainty();
        self.unfollowed += u64::from(uncertainty.unfollowed);
        self.estimated += if uncertainty.estimated { entry.charged() } else { 0 };
        self.uncharged += u64::from(entry.banks == 0 && !uncertainty.unfollowed);
        self.vague += u64::from(entry.occupied == 0);
    }

    pub(super) fn subtract(&mut self, entry: &Entry) {
        if entry.layout.is_alias() {
            self.count -= 1;
            self.mirrors -= 1;
            self.mirrored -= entry.charged();
            return;
        }
        self.requested -= entry.requested;
        self.occupied -= entry.occupied;
        self.allocated -= entry.charged();
        self.by_class[entry.nature.class() as usize] -= entry.charged();
        self.count -= 1;
        let uncertainty = entry.nature.uncertainty();
        self.unfollowed -= u64::from(uncertainty.unfollowed);
        self.estimated -= if uncertainty.estimated { entry.charged() } else { 0 };
        self.uncharged -= u64::from(entry.banks == 0 && !uncertainty.unfollowed);
        self.vague -= u64::from(entry.occupied == 0);
    }
}
