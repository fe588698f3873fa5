//! Enabling and ending tracking, and its status.

use crate::arguments::{fixed_text, pointee, text};
use crate::types::{ttmem_options, ttmem_status};
use crate::{guarded, report};
use core::ffi::c_char;
use ttmem_client::{Fault, Options, Tracker};

/// Returns the library's version, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the text of an error, or `no error` for 0 and positive numbers. Never null.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_error_text(error: i32) -> *const c_char {
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
pub unsafe extern "C-unwind" fn ttmem_enable(options: *const ttmem_options) -> i32 {
    guarded(|| {
        let mut all = Options::from_env();
        if !options.is_null() {
            // SAFETY: the caller's promise.
            let options = unsafe { pointee(options) }?;
            // SAFETY: the caller's promise.
            let [folder, runtime, log] =
                unsafe { [text(options.folder)?, text(options.runtime)?, text(options.log)?] };
            if !folder.is_empty() {
                folder.clone_into(&mut all.folder);
            }
            runtime.clone_into(&mut all.runtime);
            if !log.is_empty() {
                all.log = Some(log.to_owned());
            }
            if options.ring > 0 {
                all.ring = Some(u32::try_from(options.ring).unwrap_or(u32::MAX));
            }
        }
        Tracker::global().enable(&all);
        Ok(0)
    })
}

/// Returns whether reports are recorded.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_is_enabled() -> bool {
    guarded(|| Ok(i32::from(Tracker::global().is_enabled()))) > 0
}

/// Disables tracking and removes the segment, unless it holds a failed allocation. All numbers become invalid. A process does
/// this by itself when it exits. `ttmem_enable` starts again.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_close() -> i32 {
    guarded(|| {
        Tracker::global().close();
        Ok(0)
    })
}

/// Marks a moment of the program, such as the end of a step. If the agent tracks this process, the mark is among its events.
///
/// # Safety
///
/// `name` is null or zero-terminated; `number` is null or points to the number of the mark.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ttmem_mark(name: *const c_char, number: *const u64) -> i32 {
    report(|tracker| {
        if name.is_null() {
            return Err(Fault::Null);
        }
        // SAFETY: the caller's promise.
        let number = if number.is_null() { None } else { Some(*unsafe { pointee(number) }?) };
        // SAFETY: the caller's promise.
        tracker.mark(unsafe { text(name) }?, number)
    })
}

/// Retries what failed before: creates a segment that had no space or whose file was removed, and sends queued messages to
/// an old server. Updates the segment's heartbeat.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_refresh() -> i32 {
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
pub unsafe extern "C-unwind" fn ttmem_get_status(out: *mut ttmem_status) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise. The pointer is only checked.
        unsafe { pointee(out.cast_const()) }?;
        let status = Tracker::global().status();
        let copy = ttmem_status {
            live: status.live,
            unlisted: status.unlisted,
            lost: status.lost,
            queued: status.queued,
            on: u32::from(status.on),
            reserved: 0,
            segment: fixed_text(status.segment.as_deref()),
            reason: fixed_text(status.reason.as_deref()),
        };
        // SAFETY: not null and aligned, and the caller's promise for the rest.
        unsafe { out.write(copy) };
        Ok(0)
    })
}
