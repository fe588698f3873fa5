//! Looks up the runtime's functions. They are listed in `runtime.def`; a function that a runtime does not have is a call that
//! is not made. Where a runtime keeps something without exporting a function for it is known by version.
#![allow(unsafe_code)]

use crate::shim::{ttmem_layout, ttmem_program_layout};
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use ttmem_wire::hooks::Hook;

// `Call`, `CALLS` and `cxx`.
include!(concat!(env!("OUT_DIR"), "/runtime.rs"));

/// A function of the runtime.
struct Entry {
    call: Call,
    symbol: &'static CStr,
    need: Need,
}

/// What is lost without a function.
#[derive(Clone, Copy)]
enum Need {
    /// The hook is incomplete without it.
    Required(Hook),
    /// The same; but runtimes that lack it lack what the hook is for, too.
    Newer(Hook),
    /// Nothing: there is another way, or runtimes that lack it do not need it.
    Optional,
}

/// Where `Buffer` keeps what a runtime exports no function for; -1: it exports one, or that is not known.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BufferLayout {
    pub(crate) device: i32,
    pub(crate) size: i32,
    pub(crate) kind: i32,
    pub(crate) layout: i32,
    pub(crate) has_shard_spec: i32,
}

/// Runtimes that have functions for everything.
const EXPORTED: BufferLayout =
    BufferLayout { device: -1, size: -1, kind: -1, layout: -1, has_shard_spec: -1 };
/// Runtimes until 0.79, which kept these in line; checked against the functions there are before it is believed.
const IN_LINE: BufferLayout =
    BufferLayout { device: 16, size: 24, kind: 32, layout: 36, has_shard_spec: 152 };

/// Where a program's parts keep what no runtime has a function for; -1: not known.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ProgramLayout {
    /// The list of scratchpads in `Kernel`, and what one takes there.
    pub(crate) scratchpads: i32,
    pub(crate) scratchpad: i32,
    /// In `DataflowBufferImpl`: its cores, the size and number of its entries, whether it borrows a buffer, and where that is.
    pub(crate) dfb_cores: i32,
    pub(crate) dfb_entries: i32,
    pub(crate) dfb_borrows: i32,
    pub(crate) dfb_borrowed: i32,
}

/// By release, as far as it was looked at: of others nothing is known.
fn program_layout(runtime: &str) -> Option<ProgramLayout> {
    let mut numbers = runtime.strip_prefix("ttnn ")?.split('.').map(str::parse::<u32>);
    let (Some(Ok(0)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
    let (dfb_cores, dfb_entries, dfb_borrows, dfb_borrowed) = (-1, -1, -1, -1);
    let older = ProgramLayout {
        scratchpads: 0x220,
        scratchpad: 0x30,
        dfb_cores,
        dfb_entries,
        dfb_borrows,
        dfb_borrowed,
    };
    match minor {
        76..=79 => Some(older),
        80 => Some(ProgramLayout { scratchpad: 0x60, ..older }),
        81 => Some(ProgramLayout {
            scratchpads: 0x220,
            scratchpad: 0x60,
            dfb_cores: 16,
            dfb_entries: 40,
            dfb_borrows: 114,
            dfb_borrowed: 232,
        }),
        _ => None,
    }
}

unsafe extern "C" {
    static mut ttmem_calls: [*mut c_void; CALLS.len()];
}

/// What was found.
pub(crate) struct Found {
    /// Hooks that took, a bit each.
    pub(crate) taken: u64,
    /// Hooks that were wanted of this runtime.
    pub(crate) wanted: u64,
    /// The runtime, for people.
    pub(crate) runtime: String,
    /// Whether exceptions can be caught and passed on; if not, nothing but calling through is safe.
    pub(crate) usable: bool,
}

/// Libraries that are loaded, by path.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
        // SAFETY: the C library passes what it documents, and `list` is what `loaded` gave it.
        let (name, list) = unsafe { ((*info).dlpi_name, &mut *list.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: a C string, for the length of this call.
            list.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut list = Vec::new();
    // SAFETY: `note` is called for each library, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(note), ptr::from_mut(&mut list).cast()) };
    list
}

/// Finds the runtime and everything in it that we know. Python loads it with a scope of its own, so neither the global
/// scope nor the next library has its names: its own handle does. The handle is kept: an address must not outlive its code.
pub(crate) fn find() -> Found {
    let mut handles = Vec::new();
    let mut path = PathBuf::new();
    let is_runtime = |name: &CStr| {
        let file = name.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        file.starts_with(b"libtt_metal.so")
    };
    for name in loaded().iter().filter(|name| is_runtime(name)) {
        // SAFETY: it is loaded already, so nothing of it runs now.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            handles.push(handle);
            path = PathBuf::from(String::from_utf8_lossy(name.to_bytes()).into_owned());
        }
    }
    // A program that contains the runtime, or one by another name.
    handles.push(libc::RTLD_NEXT);
    let look_up = |name: &CStr| {
        // SAFETY: looking up a name has no effect.
        let mut found = handles.iter().map(|&handle| unsafe { libc::dlsym(handle, name.as_ptr()) });
        found.find(|it| !it.is_null()).unwrap_or(ptr::null_mut())
    };
    // What is the language's is found as the runtime finds it: where the program has its own, that is the one.
    let look_up_bound = |name: &CStr| {
        // SAFETY: as above.
        let everybodys = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if everybodys.is_null() { look_up(name) } else { everybodys }
    };
    let (mut taken, mut wanted) = (u64::MAX, 0);
    for Entry { call, symbol, need } in CALLS {
        let address = if call == Call::FreeMemory { look_up_bound(symbol) } else { look_up(symbol) };
        // SAFETY: only `ttmem_agent_start` calls this, once, before the shim reads the table.
        unsafe { ttmem_calls[call as usize] = address };
        match need {
            Need::Required(hook) => {
                wanted |= hook.bit();
                if address.is_null() {
                    taken &= !hook.bit();
                }
            }
            Need::Newer(hook) if !address.is_null() => wanted |= hook.bit(),
            // Half of what it takes is as good as nothing, but not the same as a runtime without.
            Need::Newer(hook) => taken &= !hook.bit(),
            Need::Optional => {}
        }
    }
    // SAFETY: as above.
    unsafe {
        let exported = !ttmem_calls[Call::BufferType as usize].is_null();
        ttmem_layout = if exported { EXPORTED } else { IN_LINE };
    }
    let mut can_catch = true;
    for (symbol, variable) in cxx() {
        let address = look_up_bound(symbol);
        can_catch &= !address.is_null();
        // SAFETY: as above; nothing is thrown through the shim before this is done.
        unsafe { *variable = address };
    }
    let runtime = describe(&path);
    match program_layout(&runtime) {
        // SAFETY: as above.
        Some(layout) => unsafe { ttmem_program_layout = layout },
        None => taken &= !Hook::Scratchpads.bit(),
    }
    core::sync::atomic::fence(Ordering::Release);
    let taken = taken & wanted;
    let essential = Hook::Buffers.bit() | Hook::Banks.bit();
    Found { taken, wanted, runtime, usable: can_catch && taken & essential == essential }
}

/// Which package a library belongs to: pip leaves a folder named after it beside it.
fn describe(library: &Path) -> String {
    for folder in library.ancestors().skip(1).take(5) {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".dist-info")) else { continue };
            if let Some(version) = name.strip_prefix("ttnn-") {
                return format!("ttnn {version}");
            }
        }
    }
    "tt-metal, version not known".to_owned()
}
