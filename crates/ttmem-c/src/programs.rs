//! Programs and what they register.

use crate::arguments::{Checked, allocator_of, class_of, definition_number, pointee, space_of, text};
use crate::report;
use crate::types::{ttmem_flag, ttmem_kernel, ttmem_placement};
use core::ffi::c_char;
use ttmem_client::{CoresNumber, Kernel, Placement, Program};

/// Begins a program under a number of the caller's choice, not 0; what it registers follows. The name may be null. Without this
/// call, a program begins when it first registers memory.
///
/// # Safety
///
/// `name` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_begin_program(
    allocator: i32,
    program: u32,
    name: *const c_char,
) -> i32 {
    // SAFETY: the caller's promise.
    report(|tracker| tracker.begin_program(allocator_of(allocator), program, unsafe { text(name) }?))
}

/// Reports a program that is built or rebuilt for some cores. What it had registered is removed; what it registers follows.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_build_program(allocator: i32, program: u32, cores: i32, kind: u32) -> i32 {
    report(|tracker| {
        let (cores, class) = (CoresNumber::new(definition_number(cores)), class_of(kind)?);
        tracker.build_program(&Program::new(allocator_of(allocator), program).cores(cores).class(class))
    })
}

/// Reports a dispatch: the program's memory becomes resident and replaces what was resident on its cores.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_dispatch(allocator: i32, program: u32) -> i32 {
    report(|tracker| tracker.dispatch(allocator_of(allocator), program))
}

/// Ends a program and removes everything it registered.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_end_program(allocator: i32, program: u32) -> i32 {
    report(|tracker| tracker.end_program(allocator_of(allocator), program))
}

/// Returns whether a `flags` field has a flag.
fn has(flags: u32, flag: ttmem_flag) -> bool {
    flags & flag as u32 != 0
}

/// Reads memory of a program.
///
/// # Safety
///
/// As for [`pointee`].
unsafe fn read_placement(placement: *const ttmem_placement) -> Checked<Placement> {
    // SAFETY: the caller's promise.
    let given = unsafe { pointee(placement) }?;
    let (allocator, space) = (allocator_of(given.allocator), space_of(given.space)?);
    Ok(Placement::new(allocator, given.program, space, given.address, given.bytes)
        .cores(CoresNumber::new(definition_number(given.cores)))
        .view(has(given.flags, ttmem_flag::View))
        .unplaced(has(given.flags, ttmem_flag::Unplaced))
        .estimated(has(given.flags, ttmem_flag::Estimated))
        .unfollowed(has(given.flags, ttmem_flag::Unfollowed)))
}

/// Registers memory of a program on its cores: a circular buffer, a dataflow buffer or a scratchpad.
///
/// # Safety
///
/// `placement` is null or points to a placement.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_place(placement: *const ttmem_placement) -> i32 {
    // SAFETY: the caller's promise.
    report(|tracker| tracker.place(&unsafe { read_placement(placement) }?))
}

/// Removes memory that a program registered.
///
/// # Safety
///
/// `placement` is null or points to a placement.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_displace(placement: *const ttmem_placement) -> i32 {
    // SAFETY: the caller's promise.
    report(|tracker| tracker.displace(&unsafe { read_placement(placement) }?))
}

/// Registers a kernel of a program.
///
/// # Safety
///
/// `kernel` is null or points to a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_load_kernel(kernel: *const ttmem_kernel) -> i32 {
    report(|tracker| {
        // SAFETY: the caller's promise.
        let given = unsafe { pointee(kernel) }?;
        // A kernel has no address; without one, residency is unknown.
        let unfollowed = has(given.flags, ttmem_flag::Unfollowed) || has(given.flags, ttmem_flag::Unplaced);
        let kernel = Kernel::new(allocator_of(given.allocator), given.program, given.id, given.bytes)
            .cores(CoresNumber::new(definition_number(given.cores)))
            .class(class_of(given.kind)?)
            .estimated(has(given.flags, ttmem_flag::Estimated))
            .unfollowed(unfollowed);
        tracker.load_kernel(&kernel)
    })
}

/// Removes a kernel of a program.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_unload_kernel(allocator: i32, id: u64) -> i32 {
    report(|tracker| tracker.unload_kernel(allocator_of(allocator), id))
}
