//! The rule for the bytes that an allocation is charged. Writer, follower and ledger use it.
//!
//! Banks allocate in lock-step: an allocator reserves the same address range in every bank, whether the bank holds a part of the
//! buffer or not. Memory on cores is charged on its own cores only.

use crate::Space;

/// Returns the number of banks or cores on which an allocation is charged: its `cores`, or the `banks` of its allocator, depending on
/// the space. If its cores are unknown, it is at least one.
#[inline]
pub fn charged_banks(space: Space, cores: impl FnOnce() -> u16, banks: impl FnOnce() -> u16) -> u16 {
    if space.is_on_cores() { cores().max(1) } else { banks() }
}

/// Returns the bytes that an allocation is charged; `None` if they are unknown.
#[inline]
pub const fn charge(bytes_per_bank: u64, banks: u16) -> Option<u64> {
    if bytes_per_bank == 0 || banks == 0 { None } else { Some(bytes_per_bank.saturating_mul(banks as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_charged_in_all_banks_programs_on_cores() {
        assert_eq!(charged_banks(Space::Dram, || 4, || 12), 12);
        assert_eq!(charged_banks(Space::L1Core, || 4, || 64), 4);
        assert_eq!(charged_banks(Space::Cb, || 0, || 64), 1, "unreported cores are at least one");
        assert_eq!(charge(2048, 12), Some(24_576));
        assert_eq!((charge(0, 12), charge(2048, 0)), (None, None));
        assert_eq!(charge(u64::MAX, 2), Some(u64::MAX));
    }
}
