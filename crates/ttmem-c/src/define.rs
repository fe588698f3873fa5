//! Definitions: devices, allocators, core sets and call sites.

use crate::arguments::{
    Checked, allocator_of, arch_of, definition_number, device_numbers, name_of, pointee, purpose_of,
    range_of, slice, space_of, text,
};
use crate::types::{ttmem_banks, ttmem_call_site, ttmem_chip, ttmem_core_range};
use crate::{MAX_ELEMENTS, guarded, report};
use core::ffi::c_char;
use ttmem_client::{
    Banks, CallSite, Chip, ChipNumber, CoreRange, DataType, Fault, SiteNumber, Space, Tensor, TensorLayout,
    Tracker,
};

/// Defines a device. An identical definition returns the same number.
///
/// # Safety
///
/// `chip` is null or points to a chip whose strings are null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_define_chip(chip: *const ttmem_chip) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let given = unsafe { pointee(chip) }?;
        // SAFETY: the caller's promise.
        let (board, pci) = unsafe { (text(given.board)?, text(given.pci)?) };
        let byte = |value: u32| u8::try_from(value).map_err(|_| Fault::BadValue);
        let mut chip = Chip::default()
            .unique_id(given.unique_id)
            .index(given.index)
            .remote(given.remote != 0)
            .board(board)
            .pci(pci)
            .dram_bytes(given.dram_bytes)
            .dram_channels(given.dram_channels)
            .dram_bytes_per_channel(given.dram_bytes_per_channel)
            .cores(given.cores)
            .l1_bytes_per_core(given.l1_bytes_per_core)
            .dram_allocatable(given.dram_allocatable)
            .l1_allocatable(given.l1_allocatable)
            .kernel_config(given.kernel_config)
            .unreserved(given.unreserved)
            .grid((byte(given.columns)?, byte(given.rows)?));
        chip.arch = arch_of(given.arch)?;
        Ok(i32::from(Tracker::global().define_chip(&chip)?.get()))
    })
}

/// Defines the allocator of a device, mesh or submesh. Each of its allocations is on all of `chips`, in one record.
///
/// # Safety
///
/// `chips` and `banks` point to arrays of the given lengths, or are null if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_define_allocator(
    chips: *const i32,
    chip_count: usize,
    banks: *const ttmem_banks,
    bank_count: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (chips, banks) = unsafe { (slice(chips, chip_count)?, slice(banks, bank_count)?) };
        let mut numbers = [ChipNumber::default(); MAX_ELEMENTS];
        let mut layouts = [Banks::new(Space::Dram, 0, 0, 0); 16];
        let numbers = numbers.get_mut(..chips.len()).ok_or(Fault::DefinitionsFull)?;
        let layouts = layouts.get_mut(..banks.len()).ok_or(Fault::DefinitionsFull)?;
        for (to, &from) in numbers.iter_mut().zip(chips) {
            *to = ChipNumber::new(definition_number(from));
        }
        for (to, from) in layouts.iter_mut().zip(banks) {
            let count = u16::try_from(from.banks).map_err(|_| Fault::BadValue)?;
            *to = Banks::new(space_of(from.space)?, count, from.base, from.bytes_per_bank);
        }
        Ok(i32::from(Tracker::global().define_allocator(numbers, layouts)?.get()))
    })
}

/// Defines an allocator for one or more devices that are known by number only. The same devices return the same allocator.
/// Its allocated bytes are unknown: requested bytes are counted instead.
///
/// # Safety
///
/// `devices` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_define_devices(devices: *const i32, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let devices = device_numbers(unsafe { slice(devices, count) }?)?;
        Ok(i32::from(Tracker::global().define_devices(devices)?.get()))
    })
}

/// Closes an allocator and frees all of its allocations.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_close_allocator(allocator: i32) -> i32 {
    report(|tracker| tracker.close_allocator(allocator_of(allocator)))
}

/// Defines a set of cores. An identical set returns the same number. An empty set or an inverted range is
/// `TTMEM_ERROR_BAD_VALUE`.
///
/// # Safety
///
/// `ranges` points to `count` ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_define_cores(ranges: *const ttmem_core_range, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let ranges = unsafe { slice(ranges, count) }?;
        if ranges.is_empty() {
            return Err(Fault::BadValue);
        }
        let mut all = [CoreRange::single(0, 0); MAX_ELEMENTS];
        let all = all.get_mut(..ranges.len()).ok_or(Fault::DefinitionsFull)?;
        for (to, &from) in all.iter_mut().zip(ranges) {
            *to = range_of(from)?;
        }
        Ok(i32::from(Tracker::global().define_cores(all)?.get()))
    })
}

/// Defines a call site, such as `model.py:42 forward`. An identical one returns the same number.
///
/// # Safety
///
/// `site` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_define_site(site: *const c_char) -> i32 {
    guarded(|| {
        if site.is_null() {
            return Err(Fault::Null);
        }
        // SAFETY: the caller's promise.
        site_number(Tracker::global().define_site(unsafe { text(site) }?)?)
    })
}

/// Defines a call site by file, line, function, operation and tensor. An identical one returns the same number. A name that is no
/// data type or layout is `TTMEM_ERROR_BAD_VALUE`.
///
/// # Safety
///
/// `site` is null or points to a call site whose strings are null or zero-terminated, and whose `shape` points to `rank` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_define_call_site(site: *const ttmem_call_site) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let given = unsafe { pointee(site) }?;
        // SAFETY: the caller's promise.
        let [file, function, op, track] =
            unsafe { [text(given.file)?, text(given.function)?, text(given.op)?, text(given.track)?] };
        let site = CallSite::new(file, given.line).function(function).op(op).track(track);
        let site = site.purpose(purpose_of(given.purpose)?);
        // SAFETY: the caller's promise.
        let tensor = unsafe { tensor_of(given) }?;
        let site = tensor.map_or(site, |tensor| site.tensor(tensor));
        site_number(Tracker::global().define_call_site(&site)?)
    })
}

fn site_number(site: SiteNumber) -> Checked<i32> {
    i32::try_from(site.get()).map_err(|_| Fault::DefinitionsFull)
}

/// Returns the tensor of a call site, if anything is known of it.
///
/// # Safety
///
/// As for [`ttmem_define_call_site`].
unsafe fn tensor_of(given: &ttmem_call_site) -> Checked<Option<Tensor>> {
    // SAFETY: the caller's promise.
    let (shape, data_type, layout) = unsafe {
        (
            slice(given.shape, given.rank as usize)?,
            name_of(given.data_type, DataType::from_name)?,
            name_of(given.tensor_layout, TensorLayout::from_name)?,
        )
    };
    let mut tensor = Tensor::new(shape);
    (tensor.data_type, tensor.layout) = (data_type, layout);
    Ok((tensor != Tensor::new(&[])).then_some(tensor))
}
