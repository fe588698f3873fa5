//! Buffers.

use crate::arguments::{Checked, allocator_of, definition_number, layout_of, pointee, space_of};
use crate::report;
use crate::types::ttmem_buffer;
use ttmem_client::{Buffer, CoresNumber, SiteNumber};

/// Reads a buffer.
///
/// # Safety
///
/// As for [`pointee`].
#[inline]
unsafe fn read_buffer(buffer: *const ttmem_buffer) -> Checked<Buffer> {
    // SAFETY: the caller's promise.
    let given = unsafe { pointee(buffer) }?;
    let layout = layout_of(given.layout, given.flags)?;
    let (allocator, space) = (allocator_of(given.allocator), space_of(given.space)?);
    let mut buffer = Buffer::new(allocator, space, given.address, given.requested)
        .bytes_per_bank(given.bytes_per_bank)
        .cores(CoresNumber::new(definition_number(given.cores)))
        .layout(layout)
        .site(SiteNumber::new(u32::try_from(given.site).unwrap_or(0)));
    buffer.occupied = (given.occupied != 0).then_some(given.occupied);
    Ok(buffer)
}

/// Reports an allocated buffer.
///
/// # Safety
///
/// `buffer` is null or points to a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_alloc(buffer: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's promise.
    report(|tracker| tracker.alloc(&unsafe { read_buffer(buffer) }?))
}

/// Reports a freed buffer.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_free(allocator: i32, space: u32, address: u64) -> i32 {
    report(|tracker| tracker.free(allocator_of(allocator), space_of(space)?, address))
}

/// Reports a freed buffer of which only the address is known: every space is searched.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_free_anywhere(allocator: i32, address: u64) -> i32 {
    report(|tracker| tracker.free_anywhere(allocator_of(allocator), address))
}

/// Reports a freed buffer in `TTMEM_SPACE_L1_CORE`. Other cores may have other buffers at its address, so all fields count.
///
/// # Safety
///
/// `buffer` is null or points to a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_free_on_cores(buffer: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's promise.
    report(|tracker| tracker.free_on_cores(&unsafe { read_buffer(buffer) }?))
}

/// Reports an allocation that failed for lack of memory.
///
/// # Safety
///
/// `buffer` is null or points to the requested buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_out_of_memory(buffer: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's promise.
    report(|tracker| tracker.report_out_of_memory(&unsafe { read_buffer(buffer) }?, None))
}
