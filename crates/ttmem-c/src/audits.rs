//! An allocator's own statistics, and peaks.

use crate::arguments::{allocator_of, pointee, space_of};
use crate::types::ttmem_statistics;
use crate::{guarded, report};
use ttmem_client::{AuditMark, Statistics, Tracker};

/// Marks the moment before an allocator's own statistics are read, for `ttmem_audit`. Returns the mark or an error.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_before_audit() -> i64 {
    guarded(|| Ok(i64::try_from(Tracker::global().begin_audit()?.get()).unwrap_or(i64::MAX)))
}

/// Reports an allocator's own statistics. They are compared with what was reported if nothing was allocated or freed since
/// `moment`; a negative `moment` means that they must not be compared.
///
/// # Safety
///
/// `statistics` is null or points to statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_audit(
    moment: i64,
    allocator: i32,
    space: u32,
    statistics: *const ttmem_statistics,
) -> i32 {
    report(|tracker| {
        // SAFETY: the caller's promise.
        let given = unsafe { pointee(statistics) }?;
        let mark = u64::try_from(moment).ok().map(AuditMark::new);
        let statistics = Statistics::default()
            .allocated(given.allocated)
            .free(given.free)
            .largest_free_per_bank(given.largest_free_per_bank);
        tracker.audit(mark, allocator_of(allocator), space_of(space)?, statistics)
    })
}

/// Returns the peak of allocated bytes since the beginning or the last `ttmem_reset_peak`, or an error.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_peak(allocator: i32, space: u32) -> i64 {
    guarded(|| {
        let peak = Tracker::global().peak(allocator_of(allocator), space_of(space)?)?;
        Ok(i64::try_from(peak).unwrap_or(i64::MAX))
    })
}

/// Resets the peak to the bytes allocated now.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_reset_peak(allocator: i32, space: u32) -> i32 {
    report(|tracker| tracker.reset_peak(allocator_of(allocator), space_of(space)?))
}
