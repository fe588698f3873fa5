//! The client library for C, and for whatever calls C: `include/ttmem.h` is made from this crate by `cargo xtask gen`.
//!
//! There is one tracker, the process's own, and nothing to hold a pointer to: chips, allocators, sets of cores and call sites
//! are numbers. So there is nothing to use after its end, and every function may be called at any time, from any thread, in
//! any forked child. What cannot be right gives a negative number; nothing is printed, and nothing waits.
//!
//! * `types` is what crosses the border;
//! * `given` reads what was given, and trusts none of it;
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

/// Chips, ranges and banks that can be told of at once.
const MOST: usize = 1024;

/// Runs something of which nothing but a number may come out. `T` is what it counts in.
#[inline]
fn guarded<T: From<i32>>(work: impl FnOnce() -> Answer<T>) -> T {
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => T::from(error as i32),
        Err(_) => T::from(Fault::Internal as i32),
    }
}

/// The same for an event, whose sequence number is of no use in C.
#[inline]
fn event(work: impl FnOnce(&'static Tracker) -> Answer<u64>) -> i32 {
    guarded(|| work(Tracker::global()).map(|_| 0))
}

/// The library's version, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What a negative result means, in words; of anything else, that it is no error. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_error_text(error: i32) -> *const c_char {
    let text = match Fault::from_number(error.into()) {
        Some(fault) => fault.c_text(),
        None if error >= 0 => c"no error",
        None => c"unknown error",
    };
    text.as_ptr()
}

/// Switches tracking on, whatever the environment says, if it is not. Without this it is on if `TTMEM` or
/// `TT_ALLOC_TRACKING_ENABLED` is set and not 0. Where the agent tracks the process already it stays off, since what is told by
/// hand would count twice; `ttmem_is_enabled` tells.
///
/// # Safety
///
/// `options` is null or points to options whose texts are null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_enable(options: *const ttmem_options) -> i32 {
    guarded(|| {
        let mut all = Options::as_env_says();
        if !options.is_null() {
            // SAFETY: the caller's word.
            let given = unsafe { one(options) }?;
            // SAFETY: the same.
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

/// Whether events are recorded.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_is_enabled() -> bool {
    guarded(|| Ok(i32::from(Tracker::global().is_on()))) > 0
}

/// Ends tracking: what was published is taken away, and every number given out is void. `ttmem_enable` begins anew.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_close() -> i32 {
    guarded(|| {
        Tracker::global().close();
        Ok(0)
    })
}

/// Makes good what could not be done before: a segment that found no room, or whose file was removed, is tried again; an old
/// server is told what waits. Shows readers that the process is well.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_refresh() -> i32 {
    guarded(|| {
        Tracker::global().refresh();
        Ok(0)
    })
}

/// How tracking is going.
///
/// # Safety
///
/// `out` is null or points to a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_get_status(out: *mut ttmem_status) -> i32 {
    guarded(|| {
        // SAFETY: the caller's word; only checked.
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
        // SAFETY: not null and aligned, and the caller's word for the rest.
        unsafe { out.write(it) };
        Ok(0)
    })
}

// What there is.

/// Defines a chip. The same one again gets the same number.
///
/// # Safety
///
/// `chip` is null or points to a chip whose texts are null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_chip(chip: *const ttmem_chip) -> i32 {
    guarded(|| {
        // SAFETY: the caller's word.
        let it = unsafe { one(chip) }?;
        // SAFETY: the same.
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

/// Defines an allocator: of a device, a mesh, a submesh. What it hands out is held by all of `chips`, in one record.
///
/// # Safety
///
/// `chips` and `banks` point to so many of them, or are null where that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_allocator(
    chips: *const i32,
    chip_count: usize,
    banks: *const ttmem_banks,
    bank_count: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's word.
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

/// The allocator that stands for a device, or the devices of a mesh, of which only the numbers are known: the same ones again
/// are the same allocator. What it charges for what it hands out is not known.
///
/// # Safety
///
/// `devices` points to so many of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_devices(devices: *const i32, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's word.
        let devices = given::devices(unsafe { slice(devices, count) }?)?;
        Ok(i32::from(Tracker::global().devices(devices)?.get()))
    })
}

/// The allocator is closed; everything it handed out is free.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_close_allocator(allocator: i32) -> i32 {
    event(|tracker| tracker.close_allocator(of(allocator)))
}

/// Defines a set of cores. The same one again gets the same number. A set without any core, or a range whose corners are the wrong way
/// round, is `TTMEM_ERROR_BAD_VALUE`.
///
/// # Safety
///
/// `ranges` points to so many of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_cores(ranges: *const ttmem_core_range, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's word.
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

/// Defines a call site, as `model.py:42 forward`. The same one again gets the same number.
///
/// # Safety
///
/// `site` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_define_site(site: *const c_char) -> i32 {
    guarded(|| {
        if site.is_null() {
            return Err(Fault::Null);
        }
        // SAFETY: the caller's word.
        let site = Tracker::global().site(unsafe { text(site) }?)?;
        i32::try_from(site.get()).map_err(|_| Fault::DefinitionsFull)
    })
}

// What happens.

#[inline]
fn of(allocator: i32) -> AllocatorNumber {
    AllocatorNumber::new(number(allocator))
}

/// # Safety
///
/// As for [`one`].
#[inline]
unsafe fn buffer<'a>(buffer: *const ttmem_buffer) -> Answer<(&'a ttmem_buffer, Buffer)> {
    // SAFETY: the caller's word.
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

/// A buffer is held from now on.
///
/// # Safety
///
/// `it` is null or points to a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_alloc(it: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's word.
    event(|tracker| tracker.alloc(&unsafe { buffer(it) }?.1))
}

/// A buffer is free.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_free(allocator: i32, space: u32, address: u64) -> i32 {
    event(|tracker| tracker.free(of(allocator), space_of(space)?, address))
}

/// A buffer is free, and the caller knows its address only: it is looked for in every space.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_free_anywhere(allocator: i32, address: u64) -> i32 {
    event(|tracker| tracker.free_anywhere(of(allocator), address))
}

/// A buffer in `TTMEM_SPACE_L1_CORE` is free. Others may lie at its address on other cores: all of it must be said.
///
/// # Safety
///
/// `it` is null or points to a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_free_on_cores(it: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's word.
    event(|tracker| tracker.free_on_cores(&unsafe { buffer(it) }?.1))
}

/// An allocation failed.
///
/// # Safety
///
/// `it` is null or points to what was asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_out_of_memory(it: *const ttmem_buffer) -> i32 {
    // SAFETY: the caller's word.
    event(|tracker| tracker.out_of_memory(&unsafe { buffer(it) }?.1))
}

/// A program begins, by a number of the caller's that is not 0: what it registers follows. The name may be null. A program
/// begins by itself with the first thing it registers.
///
/// # Safety
///
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_begin_program(allocator: i32, program: u32, name: *const c_char) -> i32 {
    // SAFETY: the caller's word.
    event(|tracker| tracker.begin_program(of(allocator), program, unsafe { text(name) }?))
}

/// A program is built anew on some cores: what it registers follows, and what it had registered before is gone.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_build_program(allocator: i32, program: u32, cores: i32, kind: u32) -> i32 {
    event(|tracker| {
        let (cores, class) = (CoresNumber::new(number(cores)), class_of(kind)?);
        tracker.program(&Program { cores, class, ..Program::new(of(allocator), program) })
    })
}

/// A program was dispatched: what it registered is resident from now on, and what was there before is not.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_dispatch(allocator: i32, program: u32) -> i32 {
    event(|tracker| tracker.dispatch(of(allocator), program))
}

/// A program ended, and everything it registered with it.
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
    // SAFETY: the caller's word.
    let it = unsafe { one(placement) }?;
    Ok(Placement {
        cores: CoresNumber::new(number(it.cores)),
        view: it.flags & ttmem_flag::View as u32 != 0,
        uncertainty: uncertainty(it.flags),
        ..Placement::new(of(it.allocator), it.program, space_of(it.space)?, it.address, it.bytes)
    })
}

/// A program keeps something on its cores: a circular buffer, a dataflow buffer, a scratchpad.
///
/// # Safety
///
/// `it` is null or points to a placement.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_place(it: *const ttmem_placement) -> i32 {
    // SAFETY: the caller's word.
    event(|tracker| tracker.place(&unsafe { placement(it) }?))
}

/// It does not any more.
///
/// # Safety
///
/// `it` is null or points to a placement.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_displace(it: *const ttmem_placement) -> i32 {
    // SAFETY: the caller's word.
    event(|tracker| tracker.displace(&unsafe { placement(it) }?))
}

/// A program has a kernel.
///
/// # Safety
///
/// `it` is null or points to a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttmem_load_kernel(it: *const ttmem_kernel) -> i32 {
    event(|tracker| {
        // SAFETY: the caller's word.
        let it = unsafe { one(it) }?;
        tracker.load_kernel(&Kernel {
            cores: CoresNumber::new(number(it.cores)),
            class: class_of(it.kind)?,
            uncertainty: uncertainty(it.flags),
            ..Kernel::new(of(it.allocator), it.program, it.id, it.bytes)
        })
    })
}

/// It does not any more.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_unload_kernel(allocator: i32, id: u64) -> i32 {
    event(|tracker| tracker.unload_kernel(of(allocator), id))
}

// How it compares.

/// To be called before an allocator's own statistics are taken: the moment, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_before_audit() -> i64 {
    guarded(|| Ok(i64::try_from(Tracker::global().before_audit()?.get()).unwrap_or(i64::MAX)))
}

/// The allocator's own statistics. If nothing was held or freed since `moment`, a difference means something; if that is
/// negative, it does not: the caller knows that something was on its way.
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
        // SAFETY: the caller's word.
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

/// The most bytes that were charged at once, since the beginning or `ttmem_reset_peak`; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_peak(allocator: i32, space: u32) -> i64 {
    guarded(|| {
        let peak = Tracker::global().peak(of(allocator), space_of(space)?)?;
        Ok(i64::try_from(peak).unwrap_or(i64::MAX))
    })
}

/// Lets the peak begin anew, at what is charged now.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_reset_peak(allocator: i32, space: u32) -> i32 {
    event(|tracker| tracker.reset_peak(of(allocator), space_of(space)?))
}

// The calls of the old allocation client, which knows devices by their numbers and nothing of banks or programs.

/// A buffer of so many bytes is held on a device from now on; `buffer_type` is a `ttmem_buffer_type`.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_allocation(device: i32, size: u64, buffer_type: u32, address: u64) -> i32 {
    event(|tracker| {
        let kind = given::small(buffer_type).and_then(BufferType::from_number).ok_or(Fault::WrongSpace)?;
        tracker.report_allocation(&[given::device(device)?], size, kind, address)
    })
}

/// It is free.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_deallocation(device: i32, address: u64) -> i32 {
    event(|tracker| tracker.report_deallocation(&[given::device(device)?], address))
}

/// A circular buffer is registered: so large on each core, whichever those are.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_cb_allocation(device: i32, size: u64, address: u64) -> i32 {
    event(|tracker| tracker.report_cb_allocation(&[given::device(device)?], size, address))
}

/// It is not any more. Several may lie at one address: the size must be said.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_cb_deallocation(device: i32, size: u64, address: u64) -> i32 {
    event(|tracker| tracker.report_cb_deallocation(&[given::device(device)?], size, address))
}

/// A kernel is loaded: so large on all of its cores together; `kind` is a `ttmem_kernel_class`.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_kernel_load(device: i32, size: u64, id: u64, kind: u32) -> i32 {
    event(|tracker| tracker.report_kernel_load(&[given::device(device)?], size, id, class_of(kind)?))
}

/// It is not any more.
#[unsafe(no_mangle)]
pub extern "C" fn ttmem_report_kernel_unload(device: i32, id: u64) -> i32 {
    event(|tracker| tracker.report_kernel_unload(&[given::device(device)?], id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    #[test]
    fn a_panic_comes_out_as_a_number() {
        assert_eq!(guarded::<i32>(|| panic!("on purpose")), Fault::Internal as i32);
        assert_eq!(guarded::<i64>(|| panic!("on purpose")), Fault::Internal as i64);
    }

    #[test]
    fn every_error_has_words_and_the_same_ones_as_in_rust() {
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
