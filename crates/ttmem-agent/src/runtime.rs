//! Looks up the runtime's functions, which `runtime.def` lists. A function that a runtime lacks is not called. The offsets of
//! fields for which a runtime exports no function are known by version.
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
    /// The hook is incomplete without it; but a runtime that lacks it also lacks the feature that the hook is for.
    Newer(Hook),
    /// Nothing: there is another way, or runtimes that lack it do not need it.
    Optional,
}

/// Offsets in `Buffer` of fields that a runtime exports no function for; -1: it exports one, or the offset is unknown.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BufferLayout {
    pub(crate) device: i32,
    pub(crate) size: i32,
    pub(crate) kind: i32,
    pub(crate) layout: i32,
    pub(crate) has_shard_spec: i32,
}

/// For runtimes that export functions for all of them.
const EXPORTED: BufferLayout =
    BufferLayout { device: -1, size: -1, kind: -1, layout: -1, has_shard_spec: -1 };
/// For runtimes up to 0.79, where these functions are inline. Checked against the exported functions before use.
const INLINE: BufferLayout = BufferLayout { device: 16, size: 24, kind: 32, layout: 36, has_shard_spec: 152 };

/// Offsets of fields of a program's parts that no runtime exports a function for; -1: unknown.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ProgramLayout {
    /// The list of scratchpads in `Kernel`.
    pub(crate) scratchpads: i32,
    /// Size of an entry of that list.
    pub(crate) scratchpad: i32,
    /// The cores in `DataflowBufferImpl`.
    pub(crate) dfb_cores: i32,
    /// Size and number of entries, as two 32-bit values.
    pub(crate) dfb_entries: i32,
    /// Whether the dataflow buffer borrows a buffer.
    pub(crate) dfb_borrows: i32,
    /// The borrowed buffer's address.
    pub(crate) dfb_borrowed: i32,
    /// The map from cores to addresses.
    pub(crate) dfb_addresses: i32,
}

/// For runtimes without such parts.
const NO_PARTS: ProgramLayout = ProgramLayout {
    scratchpads: -1,
    scratchpad: -1,
    dfb_cores: -1,
    dfb_entries: -1,
    dfb_borrows: -1,
    dfb_borrowed: -1,
    dfb_addresses: -1,
};

/// The layout of a release that was examined; `None` for others.
fn program_layout(runtime: &str) -> Option<ProgramLayout> {
    let mut numbers = runtime.strip_prefix("ttnn ")?.split('.').map(str::parse::<u32>);
    let (Some(Ok(0)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
    let newest = ProgramLayout {
        scratchpads: 0x220,
        scratchpad: 0x60,
        dfb_cores: 16,
        dfb_entries: 40,
        dfb_borrows: 114,
        dfb_borrowed: 232,
        dfb_addresses: 152,
    };
    match minor {
        // Their kernels have neither scratchpads nor, on these chips, dataflow buffers.
        ..=68 => Some(NO_PARTS),
        76 => Some(ProgramLayout {
            scratchpad: 0x30,
            dfb_cores: 8,
            dfb_entries: 32,
            dfb_borrows: 110,
            dfb_borrowed: 224,
            dfb_addresses: 144,
            ..newest
        }),
        77..=79 => Some(ProgramLayout { scratchpad: 0x30, dfb_borrows: 118, ..newest }),
        80 => Some(ProgramLayout { dfb_borrows: 106, dfb_borrowed: 224, dfb_addresses: 144, ..newest }),
        81 => Some(newest),
        _ => None,
    }
}

/// The hook that is incomplete without a function, by the function's index.
pub(crate) fn hook_of(call: u32) -> Option<Hook> {
    match CALLS.get(call as usize)?.need {
        Need::Required(hook) | Need::Newer(hook) => Some(hook),
        Need::Optional => None,
    }
}

unsafe extern "C" {
    static mut ttmem_calls: [*mut c_void; CALLS.len()];
}

/// The runtime as `find` found it.
pub(crate) struct Found {
    /// Hooks that are complete, a bit each.
    pub(crate) taken: u64,
    /// Hooks that this runtime should have.
    pub(crate) wanted: u64,
    /// Name and version of the runtime, to be displayed.
    pub(crate) runtime: String,
    /// Whether exceptions can be caught and passed on; if not, only calling through is safe.
    pub(crate) usable: bool,
}

/// The paths of loaded libraries.
fn loaded_libraries() -> Vec<CString> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
        // SAFETY: the C library passes what it documents, and `list` is the pointer passed below.
        let (name, list) = unsafe { ((*info).dlpi_name, &mut *list.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: a C string, valid during this call.
            list.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut list = Vec::new();
    // SAFETY: `note` is called for each library, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(note), ptr::from_mut(&mut list).cast()) };
    list
}

/// Looks up the runtime and all of its functions that the agent uses. Python loads the runtime in a scope of its own, so its
/// symbols are found through its own handle only. The handle is never closed: the addresses must stay valid.
pub(crate) fn find() -> Found {
    let mut handles = Vec::new();
    let mut path = PathBuf::new();
    let is_runtime = |name: &CStr| {
        let file = name.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        file.starts_with(b"libtt_metal.so")
    };
    for name in loaded_libraries().iter().filter(|name| is_runtime(name)) {
        // SAFETY: the library is loaded already, so no code of it runs now.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            handles.push(handle);
            path = PathBuf::from(String::from_utf8_lossy(name.to_bytes()).into_owned());
        }
    }
    // For a program that contains the runtime, or a library with another name.
    handles.push(libc::RTLD_NEXT);
    let resolve = |name: &CStr| {
        // SAFETY: a lookup has no effect.
        let mut found = handles.iter().map(|&handle| unsafe { libc::dlsym(handle, name.as_ptr()) });
        found.find(|it| !it.is_null()).unwrap_or(ptr::null_mut())
    };
    // Functions of the language are looked up as the loader binds them for the runtime: the program's own win.
    let resolve_global = |name: &CStr| {
        // SAFETY: as above.
        let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if global.is_null() { resolve(name) } else { global }
    };
    let (mut taken, mut wanted) = (u64::MAX, 0);
    for Entry { call, symbol, need } in CALLS {
        let is_of_language = call as usize >= Call::FreeMemory as usize;
        let address = if is_of_language { resolve_global(symbol) } else { resolve(symbol) };
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
            // A hook with some of its functions is incomplete, which differs from a runtime without the feature.
            Need::Newer(hook) => taken &= !hook.bit(),
            Need::Optional => {}
        }
    }
    // SAFETY: as above.
    unsafe {
        let exported = !ttmem_calls[Call::BufferType as usize].is_null();
        ttmem_layout = if exported { EXPORTED } else { INLINE };
    }
    let mut can_catch = true;
    for (symbol, variable) in cxx() {
        let address = resolve_global(symbol);
        can_catch &= !address.is_null();
        // SAFETY: as above; nothing is thrown through the shim before this is done.
        unsafe { *variable = address };
    }
    let runtime = describe_runtime(&path);
    match program_layout(&runtime) {
        // SAFETY: as above.
        Some(layout) => unsafe { ttmem_program_layout = layout },
        // Without it, no scratchpad and no borrowing dataflow buffer is seen, and other dataflow buffers only roughly.
        None => taken &= !(Hook::Scratchpads.bit() | Hook::DataflowBuffers.bit()),
    }
    core::sync::atomic::fence(Ordering::Release);
    let taken = taken & wanted;
    let essential = Hook::Buffers.bit() | Hook::Banks.bit();
    Found { taken, wanted, runtime, usable: can_catch && taken & essential == essential }
}

/// The package that a library belongs to: pip leaves a folder with the package's name beside it.
fn describe_runtime(library: &Path) -> String {
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
