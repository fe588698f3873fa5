//! Tracks an unmodified tt-metal. Loaded with `LD_PRELOAD`, it replaces the functions in which the runtime's allocators and
//! programs change, calls the originals, and publishes what happened in the process's segment.
//!
//! * `runtime.def` lists the runtime's functions: those that are replaced, called and looked up;
//! * `shared.def` lists what Rust and C++ share: constants, layouts, variables and functions;
//! * the shim (`shim.cpp`, and `shim_programs.cpp` for programs) has the hooks, and every call into the runtime;
//! * `lib` exports the runtime's symbols and passes calls to the hooks;
//! * `runtime` looks up the runtime's functions; a version may lack some of them;
//! * `shim` declares the shim's functions and types for Rust;
//! * `agent` turns calls into events; `allocators` keeps the runtime's allocators and their devices;
//! * `programs` keeps the runtime's programs and what they allocate, `traces` which of them a replay leaves behind;
//! * `sites` finds out which line, operation and tensor an allocation is for, `python` reads the interpreter's frames, `native`
//!   names addresses;
//! * `unwind` reads native frames, on request, and `modules` finds the libraries that they are in;
//! * `failures` reports what the runtime refuses, with the figures of its exceptions, which `explain` extends on request;
//! * `audit` polls the allocators' own statistics, from a thread of its own;
//! * `manual` silences libraries in this process that report by hand; `tracks` takes what they say about the program;
//! * `probe` exports what only tests and benchmarks need, in debug builds and with the feature `probe`.
//!
//! In a process that never loads the runtime nothing of the agent runs: no constructor, no thread, no file.
//!
//! | variable | means |
//! |---|---|
//! | `TTMEM=0` | call through, and do nothing else |
//!
//! `ttmem-client` documents the other variables.
#![allow(unsafe_code)]

mod agent;
mod allocators;
mod audit;
mod explain;
mod failures;
mod flight;
mod manual;
mod modules;
mod native;
mod parts;
#[cfg(any(feature = "probe", debug_assertions))]
mod probe;
mod programs;
mod python;
mod runtime;
mod shim;
mod sites;
mod traces;
mod tracks;
mod unwind;

use core::ffi::c_void;
use shim::Span;

type Pointer = *mut c_void;

/// Exports symbols of the runtime, each a jump to the shim's hook. They are in Rust because rustc hides every symbol of a C++
/// object. A jump leaves no frame of its own: exceptions of the runtime pass, and the hook sees who called it.
macro_rules! export_hooks {
    ($($name:ident: $symbol:literal => $hook:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {$(
        /// Replaces a function of the runtime.
        ///
        /// # Safety
        ///
        /// Only the runtime may call it, as it calls its own.
        #[unsafe(export_name = $symbol)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) $(-> $result)? {
            unsafe extern "C-unwind" {
                fn $hook($($argument: $kind),*) $(-> $result)?;
            }
            core::arch::naked_asm!("jmp {hook}", hook = sym $hook)
        }
    )*};
}

// Every HOOK and ALIAS of `runtime.def`.
include!(concat!(env!("OUT_DIR"), "/exports.rs"));
