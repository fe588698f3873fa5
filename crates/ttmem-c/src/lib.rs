//! The client library for C and for languages that call C. `cargo xtask gen` generates `include/ttmem.h` from this crate.
//!
//! There is one tracker per process and no handle: devices, allocators, core sets and call sites are numbers, so nothing can
//! be used after its end. Every function may be called at any time, from any thread, in any forked child. Errors are negative
//! numbers; nothing is printed, and no function blocks.
//!
//! * `types` has the structs and constants of the interface;
//! * `control` enables and ends tracking;
//! * `define`, `buffers`, `programs` and `audits` have the functions by area, `old_client` those of the old allocation client;
//! * `arguments` checks pointers and numbers.
#![allow(unsafe_code)]

mod arguments;
mod types;

// The header has the functions in the order of these modules; blank lines keep rustfmt from sorting them.
mod control;

mod define;

mod buffers;

mod programs;

mod audits;

mod old_client;

use arguments::Checked;
use core::ffi::c_int;
use core::panic::AssertUnwindSafe;
use ttmem_client::{Fault, Tracker};

pub use audits::*;
pub use buffers::*;
pub use control::*;
pub use define::*;
pub use old_client::*;
pub use programs::*;
pub use types::*;

/// Devices, ranges and banks that one call can pass.
const MAX_ELEMENTS: usize = 1024;

/// Runs `work` and returns its result or its error as a number; a panic becomes an error, too.
///
/// A thread that may be cancelled at any moment is not cancelled before this ends: Rust has no way out of the middle of a function. If
/// it is cancelled then, the C library unwinds the stack from here: that is why the interface is `C-unwind`, and why nothing here may need
/// to be dropped.
#[inline]
fn guarded<T: From<i32> + Copy>(work: impl FnOnce() -> Checked<T> + Copy) -> T {
    // In here, since the header has what is outside.
    unsafe extern "C" {
        #[link_name = "pthread_setcanceltype"]
        fn defer_cancellation(deferred: c_int, before: *mut c_int) -> c_int;
    }

    #[allow(clashing_extern_declarations, reason = "the first call never unwinds")]
    unsafe extern "C-unwind" {
        #[link_name = "pthread_setcanceltype"]
        fn restore_cancellation(before: c_int, deferred: *mut c_int) -> c_int;
    }
    const DEFERRED: c_int = 0;
    let mut before = DEFERRED;
    // SAFETY: the function stores the type that the thread had.
    unsafe { defer_cancellation(DEFERRED, &raw mut before) };
    let result = catch(work);
    if before != DEFERRED {
        // SAFETY: as above.
        unsafe { restore_cancellation(before, &raw mut before) };
    }
    result
}

#[inline(never)]
fn catch<T: From<i32>>(work: impl FnOnce() -> Checked<T>) -> T {
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => T::from(error as i32),
        Err(_) => T::from(Fault::Internal as i32),
    }
}

/// Runs a report and returns 0 or its error: its sequence number is of no use in C.
#[inline]
fn report(work: impl FnOnce(&'static Tracker) -> Checked<u64> + Copy) -> i32 {
    guarded(|| work(Tracker::global()).map(|_| 0))
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
