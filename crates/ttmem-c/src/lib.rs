//! The client library for C and for languages that call C. `cargo xtask gen` generates `include/ttmem.h` from this crate.
//!
//! There is one tracker per process and no handle: devices, allocators, core sets and call sites are numbers, so nothing can
//! be used after its end. Every function may be called at any time, from any thread, in any forked child. Errors are negative
//! numbers; nothing is printed, and no function blocks.
//!
//! * `types` has the structs and constants of the interface;
//! * `given` checks arguments;
//! * this module has the functions.
#![allow(unsafe_code)]

mod given;
mod types;

use core::ffi::c_char;
use core::panic::AssertUnwindSafe;
use given::{Answer, class_of, number, one, range_of, slice, space_of, text};
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, BufferType, Chip, ChipNumber, CoreRange, CoresNumber, Fault, Kernel,
    Mark, Options, Placement, Program, SiteNumber, Space, Statistics, Tracker, Uncertainty,
};
pub use types::*;

/// Devices, ranges and banks that one call can pass.
const MOST: usize = 1024;

/// Runs `work` and returns its result or its error as a number; a panic becomes an error, too.
#[inline]
fn guarded<T: From<i32>>(work: impl FnOnce() -> Answer<T>) -> T {
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => T::from(error as i32),
        Err(_) => T::from(Fault::Internal as i32),
    }
}

/// Runs a report and returns 0 or its error: its sequence number is of no use in C.
#[inline]
fn event(work: impl FnOnce(&'static Tracker) -> Answer<u64>) -> i32 {
    guarded(|| work(Tracker::global()).map(|_| 0))
}

/// Returns the library's version, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the text of an error, or `no error` for 0 and positive numbers. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_error_text(error: i32) -> *const c_char {
    let text = match Fault::from_number(error.into()) {
        Some(fault) => fault.c_text(),
        None if error >= 0 => c"no error",
        None => c"unknown error",
    };
    text.as_ptr()
}

/// Enables tracking, whatever the environment says. Without this call, tracking is on if `TTMEM` or
/// `TT_ALLOC_TRACKING_ENABLED` is set and not 0. If the agent already tracks the process, tracking stays off, because reports
/// would be counted twice; see `ttmem_is_enabled`.
///
/// # Safety
///
/// `options` is null or points to options whose strings are null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_enable(options: *const ttmem_options) -> i32 {
    guarded(|| {
        let mut all = Options::as_env_says();
        if !options.is_null() {
            // SAFETY: the caller's promise.
            let given = unsafe { one(options) }?;
            // SAFETY: the caller's promise.
            let texts = unsafe { [text(given.folder)?, text(given.runtime)?, text(given.log)?] };
            if !texts[0].is_empty() {
                texts[0].clone_into(&mut all.folder);
            }
            texts[1].clone_into(&mut all.runtime);
            if !texts[2].is_empty() {
                all.log = Some(texts[2].to_owned());
            }
        }
        Tracker::enable_beside_agent(&all);
        Ok(0)
    })
}

/// Returns whether reports are recorded.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_is_enabled() -> bool {
    guarded(|| Ok(i32::from(Tracker::global().is_on()))) > 0
}

/// Disables tracking and removes the segment, unless it holds a failed allocation. All numbers become invalid. A process does
/// this by itself when it exits. `ttmem_enable` starts again.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_close() -> i32 {
    guarded(|| {
        Tracker::global().close();
        Ok(0)
    })
}

/// Retries what failed before: creates a segment that had no space or whose file was removed, and sends queued messages to
/// an old server. Updates the segment's heartbeat.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_refresh() -> i32 {
    guarded(|| {
        Tracker::global().refresh();
        Ok(0)
    })
}

/// Reads the status of tracking.
///
/// # Safety
///
/// `out` is null or points to a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_get_status(out: *mut ttmem_status) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise; only checked.
        unsafe { one(out.cast_const()) }?;
        let status = Tracker::global().status();
        let it = ttmem_status {
            live: status.live,
            unlisted: status.unlisted,
            lost: status.lost,
            queued: status.queued,
            on: u32::from(status.on),
            reserved: 0,
            segment: given::room(status.segment.as_deref()),
            reason: given::room(status.reason.as_deref()),
        };
        // SAFETY: not null and aligned, and the caller's promise for the rest.
        unsafe { out.write(it) };
        Ok(0)
    })
}

// Definitions.

/// Defines a device. An identical definition returns the same number.
///
/// # Safety
///
/// `chip` is null or points to a chip whose strings are null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_chip(chip: *const ttmem_chip) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let it = unsafe { one(chip) }?;
        // SAFETY: the caller's promise.
        let (board, pci) = unsafe { (text(it.board)?, text(it.pci)?) };
        let byte = |value: u32| u8::try_from(value).map_err(|_| Fault::BadValue);
        let chip = Chip {
            unique_id: it.unique_id,
            index: it.index,
            arch: given::arch_of(it.arch)?,
            remote: it.remote != 0,
            board,
            pci,
            dram_bytes: it.dram_bytes,
            dram_channels: it.dram_channels,
            dram_bytes_per_channel: it.dram_bytes_per_channel,
            cores: it.cores,
            l1_bytes_per_core: it.l1_bytes_per_core,
            dram_allocatable: it.dram_allocatable,
            l1_allocatable: it.l1_allocatable,
            kernel_config: it.kernel_config,
            unreserved: it.unreserved,
            grid: (byte(it.columns)?, byte(it.rows)?),
        };
        Ok(i32::from(Tracker::global().chip(&chip)?.get()))
    })
}

/// Defines the allocator of a device, mesh or submesh. Each of its allocations is on all of `chips`, in one record.
///
/// # Safety
///
/// `chips` and `banks` point to arrays of the given lengths, or are null if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_allocator(
    chips: *const i32,
    chip_count: usize,
    banks: *const ttmem_banks,
    bank_count: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (chips, banks) = unsafe { (slice(chips, chip_count)?, slice(banks, bank_count)?) };
        let mut numbers = [ChipNumber::default(); MOST];
        let mut layouts = [Banks::new(Space::Dram, 0, 0, 0); 16];
        let numbers = numbers.get_mut(..chips.len()).ok_or(Fault::DefinitionsFull)?;
        let layouts = layouts.get_mut(..banks.len()).ok_or(Fault::DefinitionsFull)?;
        for (to, &from) in numbers.iter_mut().zip(chips) {
            *to = ChipNumber::new(number(from));
        }
        for (to, from) in layouts.iter_mut().zip(banks) {
            let count = u16::try_from(from.banks).map_err(|_| Fault::BadValue)?;
            *to = Banks::new(space_of(from.space)?, count, from.base, from.bytes_per_bank);
        }
        Ok(i32::from(Tracker::global().allocator(numbers, layouts)?.get()))
    })
}

/// Defines an allocator for one or more devices that are known by number only. The same devices return the same allocator.
/// Its allocated bytes are unknown: requested bytes are counted instead.
///
/// # Safety
///
/// `devices` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_devices(devices: *const i32, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let devices = given::devices(unsafe { slice(devices, count) }?)?;
        Ok(i32::from(Tracker::global().devices(devices)?.get()))
    })
}

/// Closes an allocator and frees all of its allocations.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_close_allocator(allocator: i32) -> i32 {
    event(|tracker| tracker.close_allocator(of(allocator)))
}

/// Defines a set of cores. An identical set returns the same number. An empty set or an inverted range is
/// `TTMEM_ERROR_BAD_VALUE`.
///
/// # Safety
///
/// `ranges` points to `count` ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_cores(ranges: *const ttmem_core_range, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let ranges = unsafe { slice(ranges, count) }?;
        if ranges.is_empty() {
            return Err(Fault::BadValue);
        }
        let mut all = [CoreRange { from: (1, 1), to: (0, 0) }; MOST];
        let all = all.get_mut(..ranges.len()).ok_or(Fault::DefinitionsFull)?;
        for (to, &from) in all.iter_mut().zip(ranges) {
            *to = range_of(from)?;
        }
        Ok(i32::from(Tracker::global().cores(all)?.get()))
    })
}

/// Defines a call site, such as `model.py:42 forward`. An identical one returns the same number.
///
/// # Safety
///
/// `site` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_site(site: *const c_char) -> i32 {
    guarded(|| {
        if site.is_null() {
            return Err(Fault::Null);
        }
        // SAFETY: the caller's promise.
        let site = Tracker::global().site(unsafe { text(site) }?)?;
        i32::try_from(site.get()).map_err(|_| Fault::DefinitionsFull)
    })
}

// Events.

#[inline]
fn of(allocator: i32) -> AllocatorNumber {
    AllocatorNumber::new(number(allocator))
}

/// # Safety
///
/// As for [`one`].
#[inline]
unsafe fn buffer<'a>(buffer: *const ttmem_buffer) -> Answer<(&'a ttmem_buffer, Buffer)> {
    // SAFETY: the caller's promise.
    let it = unsafe { one(buffer) }?;
    Ok((
        it,
        Buffer {
            bytes_per_bank: it.bytes_per_bank,
            occupied: (it.occupied != 0).then_some(it.occupied),
            cores: CoresNumber::new(number(it.cores)),
            layout: given::layout_of(it.layout, it.flags)?,
            site: SiteNumber::new(u32::try_from(it.site).unwrap_or(0)),
            ..Buffer::new(of(it.allocator), space_of(it.space)?, it.address, it.requested)
        },
    ))
}

/// Reports an allocated buffer.
///
/// # Safety
///
/// `it` is null or points to a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_alloc(it: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's promise.
    event(|tracker| tracker.alloc(&unsafe { buffer(it) }?.1))
}

/// Reports a freed buffer.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_free(allocator: i32, space: u32, address: u64) -> i32 {
    event(|tracker| tracker.free(of(allocator), space_of(space)?, address))
}

/// Reports a freed buffer of which only the address is known: every space is searched.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_free_anywhere(allocator: i32, address: u64) -> i32 {
    event(|tracker| tracker.free_anywhere(of(allocator), address))
}

/// Reports a freed buffer in `TTMEM_SPACE_L1_CORE`. Other cores may have other buffers at its address, so all fields count.
///
/// # Safety
///
/// `it` is null or points to a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_free_on_cores(it: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's promise.
    event(|tracker| tracker.free_on_cores(&unsafe { buffer(it) }?.1))
}

/// Reports an allocation that failed for lack of memory.
///
/// # Safety
///
/// `it` is null or points to the requested buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_out_of_memory(it: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's promise.
    event(|tracker| tracker.out_of_memory(&unsafe { buffer(it) }?.1, None))
}

/// Begins a program under a number of the caller's choice, not 0; what it registers follows. The name may be null. Without this
/// call, a program begins with the first thing it registers.
///
/// # Safety
///
/// `name` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_begin_program(allocator: i32, program: u32, name: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    event(|tracker| tracker.begin_program(of(allocator), program, unsafe { text(name) }?))
}

/// Reports a program that is built or rebuilt for some cores. What it had registered is removed; what it registers follows.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_build_program(allocator: i32, program: u32, cores: i32, kind: u32) -> i32 {
    event(|tracker| {
        let (cores, class) = (CoresNumber::new(number(cores)), class_of(kind)?);
        tracker.program(&Program { cores, class, ..Program::new(of(allocator), program) })
    })
}

/// Reports a dispatch: the program's memory becomes resident and replaces what was resident on its cores.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_dispatch(allocator: i32, program: u32) -> i32 {
    event(|tracker| tracker.dispatch(of(allocator), program))
}

/// Ends a program and removes everything it registered.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_end_program(allocator: i32, program: u32) -> i32 {
    event(|tracker| tracker.end_program(of(allocator), program))
}

fn uncertainty(flags: u32) -> Uncertainty {
    Uncertainty {
        unplaced: flags & ttmem_flag::Unplaced as u32 != 0,
        estimated: flags & ttmem_flag::Estimated as u32 != 0,
        unfollowed: flags & ttmem_flag::Unfollowed as u32 != 0,
    }
}

/// # Safety
///
/// As for [`one`].
unsafe fn placement(placement: *const ttmem_placement) -> Answer<Placement> {
    // SAFETY: the caller's promise.
    let it = unsafe { one(placement) }?;
    Ok(Placement {
        cores: CoresNumber::new(number(it.cores)),
        view: it.flags & ttmem_flag::View as u32 != 0,
        uncertainty: uncertainty(it.flags),
        ..Placement::new(of(it.allocator), it.program, space_of(it.space)?, it.address, it.bytes)
    })
}

/// Registers memory of a program on its cores: a circular buffer, a dataflow buffer or a scratchpad.
///
/// # Safety
///
/// `it` is null or points to a placement.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_place(it: *const ttmem_placement) -> i32 {
    // SAFETY: the caller's promise.
    event(|tracker| tracker.place(&unsafe { placement(it) }?))
}

/// Removes memory that a program registered.
///
/// # Safety
///
/// `it` is null or points to a placement.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_displace(it: *const ttmem_placement) -> i32 {
    // SAFETY: the caller's promise.
    event(|tracker| tracker.displace(&unsafe { placement(it) }?))
}

/// Registers a kernel of a program.
///
/// # Safety
///
/// `it` is null or points to a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_load_kernel(it: *const ttmem_kernel) -> i32 {
    event(|tracker| {
        // SAFETY: the caller's promise.
        let it = unsafe { one(it) }?;
        tracker.load_kernel(&Kernel {
            cores: CoresNumber::new(number(it.cores)),
            class: class_of(it.kind)?,
            uncertainty: uncertainty(it.flags),
            ..Kernel::new(of(it.allocator), it.program, it.id, it.bytes)
        })
    })
}

/// Removes a kernel of a program.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_unload_kernel(allocator: i32, id: u64) -> i32 {
    event(|tracker| tracker.unload_kernel(of(allocator), id))
}

// Audits and peaks.

/// Marks the moment before an allocator's own statistics are read, for `ttmem_audit`. Returns the mark or an error.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_before_audit() -> i64 {
    guarded(|| Ok(i64::try_from(Tracker::global().before_audit()?.get()).unwrap_or(i64::MAX)))
}

/// Reports an allocator's own statistics. They are compared with what was reported if nothing was allocated or freed since
/// `moment`; a negative `moment` means that they must not be compared.
///
/// # Safety
///
/// `it` is null or points to statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_audit(
    moment: i64,
    allocator: i32,
    space: u32,
    it: *const ttmem_statistics,
) -> i32 {
    event(|tracker| {
        // SAFETY: the caller's promise.
        let it = unsafe { one(it) }?;
        let mark = u64::try_from(moment).ok().map(Mark::new);
        let statistics = Statistics {
            allocated: it.allocated,
            free: it.free,
            largest_free_per_bank: it.largest_free_per_bank,
        };
        tracker.audit(mark, of(allocator), space_of(space)?, statistics)
    })
}

/// Returns the peak of allocated bytes since the beginning or the last `ttmem_reset_peak`, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_peak(allocator: i32, space: u32) -> i64 {
    guarded(|| {
        let peak = Tracker::global().peak(of(allocator), space_of(space)?)?;
        Ok(i64::try_from(peak).unwrap_or(i64::MAX))
    })
}

/// Resets the peak to the bytes allocated now.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_reset_peak(allocator: i32, space: u32) -> i32 {
    event(|tracker| tracker.reset_peak(of(allocator), space_of(space)?))
}

// The calls of the old allocation client, which knows devices by number and has no banks or programs.

/// Reports a buffer allocated on a device; `buffer_type` is a `ttmem_buffer_type`.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_allocation(device: i32, size: u64, buffer_type: u32, address: u64) -> i32 {
    event(|tracker| {
        let kind = given::small(buffer_type).and_then(BufferType::from_number).ok_or(Fault::WrongSpace)?;
        tracker.report_allocation(&[given::device(device)?], size, kind, address)
    })
}

/// Reports a buffer freed on a device.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_deallocation(device: i32, address: u64) -> i32 {
    event(|tracker| tracker.report_deallocation(&[given::device(device)?], address))
}

/// Registers a circular buffer; `size` is per core, and the cores are unknown.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_cb_allocation(device: i32, size: u64, address: u64) -> i32 {
    event(|tracker| tracker.report_cb_allocation(&[given::device(device)?], size, address))
}

/// Removes a circular buffer. Several may share an address, so the size counts.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_cb_deallocation(device: i32, size: u64, address: u64) -> i32 {
    event(|tracker| tracker.report_cb_deallocation(&[given::device(device)?], size, address))
}

/// Registers a kernel; `size` is the total over its cores, `kind` a `ttmem_kernel_class`.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_kernel_load(device: i32, size: u64, id: u64, kind: u32) -> i32 {
    event(|tracker| tracker.report_kernel_load(&[given::device(device)?], size, id, class_of(kind)?))
}

/// Removes a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_kernel_unload(device: i32, id: u64) -> i32 {
    event(|tracker| tracker.report_kernel_unload(&[given::device(device)?], id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    #[test]
    fn panic_becomes_an_error() {
        assert_eq!(guarded::<i32>(|| panic!("on purpose")), Fault::Internal as i32);
        assert_eq!(guarded::<i64>(|| panic!("on purpose")), Fault::Internal as i64);
    }

    #[test]
    fn every_error_has_its_text() {
        let text = |code: i32| {
            // SAFETY: what is returned is a constant that ends with a zero.
            unsafe { CStr::from_ptr(ttmem_error_text(code)) }.to_str().unwrap()
        };
        for fault in Fault::ALL {
            assert_eq!(text(fault as i32), fault.to_string());
        }
        assert_eq!(text(0), "no error");
        assert_eq!(text(i32::MIN), "unknown error");
    }
}
