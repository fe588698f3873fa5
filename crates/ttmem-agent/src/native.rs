//! Native addresses: they get a number at once, and a name later, from the agent's own thread.
#![allow(unsafe_code)]

use crate::agent::tracker;
use crate::flight::{self, Lock};
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use ttmem_client::agent;
use ttmem_wire::mangled::{device_operation, qualified_name};

/// Addresses that can have a number.
const CAPACITY: usize = 8192;
/// An address, and what is wanted of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// The caller of a dispatch, which says what the operation is.
    Operation(u64),
    /// The caller of an allocation.
    Line(u64),
}

/// An address with a number. Zeros: a vacant place.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    number: u32,
    is_line: bool,
}

struct Table {
    entries: [Entry; CAPACITY],
    len: usize,
    /// Entries that are named.
    named: usize,
}

/// Zero in a forked child, whose numbers are its own.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

fn with_table<T>(work: impl FnOnce(&mut Table) -> T) -> Option<T> {
    let _lock = Lock::acquire_names()?;
    let mut table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        flight::map_zeroed(&TABLE);
        table = TABLE.load(Ordering::Acquire);
    }
    // SAFETY: null, or a mapping that is never unmapped and valid as zeros; and we hold the lock.
    unsafe { table.as_mut() }.map(work)
}

/// The number of an address, which is named later; 0 if there are too many.
pub(crate) fn number_of(wanted: Address) -> u32 {
    let (address, is_line) = match wanted {
        Address::Operation(address) => (address, false),
        Address::Line(address) => (address, true),
    };
    let number = with_table(|table| {
        let known = &table.entries[..table.len];
        if let Some(known) = known.iter().find(|it| it.address == address && it.is_line == is_line) {
            return known.number;
        }
        let Some(vacant) = table.entries.get_mut(table.len) else { return 0 };
        let reserved = if is_line { agent::reserve_frame(tracker()) } else { agent::reserve_op(tracker()) };
        let number = reserved.unwrap_or(0);
        *vacant = Entry { address, number, is_line };
        table.len += usize::from(number != 0);
        number
    });
    number.unwrap_or(0)
}

/// Names the addresses that have no name yet. Called from the agent's own thread, and when the process exits.
pub(crate) fn name_addresses() {
    loop {
        let next = with_table(|table| {
            let entry = table.entries[..table.len].get(table.named).copied();
            table.named += usize::from(entry.is_some());
            entry
        });
        let Some(Some(entry)) = next else { return };
        name(&entry);
    }
}

fn name(entry: &Entry) {
    // A return address is behind its call, which may be the last instruction of its function.
    let address = entry.address - 1;
    // SAFETY: zeros are valid, and the function fills them in.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be looked up.
    let is_known =
        unsafe { libc::dladdr(ptr::with_exposed_provenance(address as usize), &raw mut found) } != 0;
    let text = |at: *const core::ffi::c_char| {
        // SAFETY: null, or a text of a loaded library.
        let text = (is_known && !at.is_null()).then(|| unsafe { CStr::from_ptr(at) });
        text.and_then(|text| text.to_str().ok()).unwrap_or_default()
    };
    let (library, symbol) = (text(found.dli_fname), text(found.dli_sname));
    if entry.is_line {
        let offset = address.wrapping_sub(found.dli_fbase.addr() as u64);
        let mut room = [0; 1024];
        let function = qualified_name(symbol, &mut room);
        let _ = agent::name_frame(tracker(), entry.number, library, offset, function);
    } else {
        // Without such a symbol the operation stays unnamed.
        if let Some(operation) = device_operation(symbol) {
            let _ = agent::name_op(tracker(), entry.number, operation);
        }
    }
}
