//! The runtime's programs, by the runtime's own numbers. A program's memory is reported when its offsets are finalised, and
//! each dispatch when it happens. Addresses cannot be keys, since they are reused; and programs that are used together have
//! numbers close to each other, so their entries share cache lines.
//!
//! The table is zero in a forked child, since the parent's programs are not the child's.
#![allow(unsafe_code)]

use crate::agent::{cores_of, tracker};
use crate::allocators::{chip_number, mark_inherited};
use crate::flight::{self, Lock};
use crate::parts::{self, Views};
use crate::shim::{
    CLASS_DISPATCH, CLASS_FABRIC, Part, ProgramFacts, ProgramTarget, ttmem_chips_of, ttmem_impl_chips,
    ttmem_program,
};
use crate::sites;
use crate::traces;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use ttmem_client::{
    AllocatorNumber, ChipNumber, CoresNumber, Kernel, KernelClass, Placement, Program, Space, agent,
};
use ttmem_types::program_key;
use ttmem_wire::ViewAddresses;

/// Slots for programs.
const CAPACITY: usize = 1 << 16;
/// Slots for notes of dataflow buffers.
const MAX_NOTES: usize = 1 << 18;
/// Sets of chips that programs run on.
const MAX_SCOPES: usize = 4096;
/// Chips of the largest mesh that can be described.
const MAX_CHIPS: usize = 256;
/// A program. Zeros: a free slot.
#[derive(Clone, Copy)]
struct Entry {
    /// The runtime's number, plus 1.
    tag: u64,
    /// The views that were last reported.
    views: Views,
    /// Index of the first note, plus 1.
    notes: u32,
    /// Where the tracker found the program at its last dispatch.
    slot: u32,
    /// The scope that the program was reported for; 0: not reported.
    scope: u16,
    class: u8,
    flags: u8,
}

const EMPTY: Entry = Entry { tag: 0, views: Views::NONE, notes: 0, slot: 0, scope: 0, class: 0, flags: 0 };

/// The program has views, whose addresses may differ at every dispatch.
const HAS_VIEWS: u8 = 1;
/// The program must be read again at the next dispatch.
const CHANGED: u8 = 2;
/// The program was reported, and its mesh was closed; it may be dispatched on another mesh.
const CLOSED: u8 = 4;
/// The program was reported only because the runtime refused it, and is not built.
const REFUSED: u8 = 8;

/// The place of a dataflow buffer.
#[derive(Clone, Copy)]
struct Note {
    address: u64,
    bytes: u32,
    cores: u16,
    /// Index of the program's next note, plus 1.
    next: u32,
}

/// A set of chips that programs run on; readers see it as an allocator without spaces.
#[derive(Clone, Copy)]
struct Scope {
    /// The mesh or chip; 0: a free slot.
    owner: u64,
    /// Hash of the chips' indexes.
    fingerprint: u64,
    number: u16,
}

pub(crate) struct Table {
    entries: [Entry; CAPACITY],
    len: usize,
    notes: [Note; MAX_NOTES],
    notes_used: u32,
    /// Index of the first free note, plus 1.
    free_note: u32,
    scopes: [Scope; MAX_SCOPES],
    scopes_used: usize,
    /// Parts of the program that is being reported.
    parts: parts::Room,
    pub(crate) traces: traces::Traces,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Programs whose next dispatch needs nothing but its record, by their first slot: what `dispatch_again` needs to know, in one
/// word, so that neither a lock nor the table is needed. 0: none.
static UNCHANGED: AtomicPtr<[AtomicU64; CAPACITY]> = AtomicPtr::new(ptr::null_mut());

/// A word of [`UNCHANGED`]: the lower bits of the program's number plus 1, its scope, and where the tracker found it last.
mod unchanged {
    const SCOPE: u32 = 24;
    const TAG: u32 = 40;

    /// Packs a word; 0 if its parts do not fit.
    pub(super) fn pack(id: u64, scope: u16, slot: u32) -> u64 {
        let fits = id + 1 < 1 << (u64::BITS - TAG) && slot < 1 << SCOPE;
        if fits { (id + 1) << TAG | u64::from(scope) << SCOPE | u64::from(slot) } else { 0 }
    }

    /// Returns the scope and the slot, if the word is of this program.
    pub(super) fn unpack(word: u64, id: u64) -> Option<(u16, u32)> {
        (word >> TAG == id.wrapping_add(1) && word != 0)
            .then_some(((word >> SCOPE) as u16, word as u32 & ((1 << SCOPE) - 1)))
    }
}

/// Sets the word of a program in [`UNCHANGED`].
fn set_unchanged(id: u64, word: u64) {
    // SAFETY: null, or a mapping that is never unmapped and valid as zeros.
    if let Some(words) = unsafe { UNCHANGED.load(Ordering::Acquire).as_ref() } {
        words[first_slot(id)].store(word, Ordering::Relaxed);
    }
}

/// Clears [`UNCHANGED`]: each program's next dispatch uses the table.
pub(crate) fn forget_unchanged() {
    // SAFETY: as in `set_unchanged`.
    if let Some(words) = unsafe { UNCHANGED.load(Ordering::Acquire).as_ref() } {
        for word in words.iter().filter(|word| word.load(Ordering::Relaxed) != 0) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Calls a function with the table, for one thread at a time.
pub(crate) fn with_table<T>(work: impl FnOnce(&mut Table) -> T) -> Option<T> {
    let _lock = Lock::acquire_programs()?;
    let mut table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        flight::map_zeroed(&TABLE);
        flight::map_zeroed(&UNCHANGED);
        table = TABLE.load(Ordering::Acquire);
    }
    // SAFETY: null, or a mapping that is never unmapped and valid as zeros; and we hold the lock.
    unsafe { table.as_mut() }.map(work)
}

/// A program's key in records.
fn key_of(id: u64) -> u32 {
    program_key(id as u32)
}

fn mix(sum: u64, value: u64) -> u64 {
    (sum ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// The key of a mesh or a chip as owner of scopes and traces.
pub(crate) fn owner_key(is_mesh: bool, id: u32) -> u64 {
    u64::from(id) | if is_mesh { 1 << 32 } else { 1 << 33 }
}

/// The first slot that is searched for a program: beside its neighbours, but not beside those of 65,536 programs ago, all of
/// which a search would have to pass.
#[inline]
fn first_slot(id: u64) -> usize {
    const TOGETHER: u64 = 32;
    let block = (id / TOGETHER).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53;
    (block * TOGETHER + id % TOGETHER) as usize % CAPACITY
}

impl Table {
    #[inline]
    fn slot(&self, id: u64) -> Option<usize> {
        let mut slot = first_slot(id);
        loop {
            match self.entries[slot % CAPACITY].tag {
                0 => return None,
                tag if tag == id.wrapping_add(1) => return Some(slot % CAPACITY),
                _ => slot += 1,
            }
        }
    }

    #[inline]
    fn find(&mut self, id: u64) -> Option<&mut Entry> {
        self.slot(id).map(|slot| &mut self.entries[slot])
    }

    /// Finds a program, and adds it if it is new.
    fn find_or_add(&mut self, id: u64) -> Option<&mut Entry> {
        if self.slot(id).is_none() {
            // A search for an unknown program must stay short.
            if self.len >= CAPACITY / 4 * 3 || id == u64::MAX {
                return None;
            }
            let mut slot = first_slot(id);
            while self.entries[slot % CAPACITY].tag != 0 {
                slot += 1;
            }
            self.entries[slot % CAPACITY] = Entry { tag: id + 1, ..EMPTY };
            self.len += 1;
        }
        self.find(id)
    }

    /// Removes a program, and moves up entries that were displaced by it.
    fn remove(&mut self, id: u64) -> Option<Entry> {
        set_unchanged(id, 0);
        let mut hole = self.slot(id)?;
        let removed = self.entries[hole];
        self.free_notes(removed.notes);
        let mut slot = hole;
        loop {
            slot = (slot + 1) % CAPACITY;
            let entry = self.entries[slot];
            if entry.tag == 0 {
                break;
            }
            // An entry may move to the hole unless that is before its first slot.
            let first = first_slot(entry.tag - 1);
            if slot.wrapping_sub(first) % CAPACITY >= slot.wrapping_sub(hole) % CAPACITY {
                self.entries[hole] = entry;
                hole = slot;
            }
        }
        self.entries[hole] = EMPTY;
        self.len -= 1;
        Some(removed)
    }

    fn free_notes(&mut self, mut first: u32) {
        while let Some(index) = first.checked_sub(1) {
            let note = &mut self.notes[index as usize];
            first = note.next;
            note.next = core::mem::replace(&mut self.free_note, index + 1);
        }
    }

    fn add_note(&mut self, id: u64, part: &Part) {
        let index = match self.free_note.checked_sub(1) {
            Some(free) => {
                self.free_note = self.notes[free as usize].next;
                free
            }
            None if (self.notes_used as usize) < MAX_NOTES => {
                self.notes_used += 1;
                self.notes_used - 1
            }
            None => return agent::count_lost(tracker()),
        };
        let cores = cores_of(part.cores).get();
        let Some(entry) = self.find(id) else { return };
        let next = core::mem::replace(&mut entry.notes, index + 1);
        self.notes[index as usize] = Note { address: part.address, bytes: part.bytes as u32, cores, next };
    }

    /// The number of a set of chips of a mesh, or of a single chip, defined if it was not.
    pub(crate) fn find_or_define_scope(&mut self, owner: u64, indexes: &[u32]) -> Option<AllocatorNumber> {
        let fingerprint = indexes.iter().fold(1, |sum, &index| mix(sum, u64::from(index)));
        let used = self.scopes_used;
        let known = self.scopes[..used].iter().find(|it| it.owner == owner && it.fingerprint == fingerprint);
        if let Some(known) = known {
            return Some(AllocatorNumber::new(known.number));
        }
        let mut chips = [ChipNumber::default(); MAX_CHIPS];
        let mut len = 0;
        for (chip, number) in chips.iter_mut().zip(indexes.iter().filter_map(|&index| chip_number(index))) {
            *chip = number;
            len += 1;
        }
        if len == 0 || len < indexes.len() {
            return None;
        }
        let slot = self.scopes[..used].iter().position(|it| it.owner == 0).unwrap_or(used);
        let Some(free) = self.scopes.get_mut(slot) else {
            agent::count_lost(tracker());
            return None;
        };
        let number = tracker().define_allocator(&chips[..len], &[]).ok()?;
        *free = Scope { owner, fingerprint, number: number.get() };
        self.scopes_used = used.max(slot + 1);
        Some(number)
    }

    /// Closes a mesh: its programs are no longer on its chips, though they may still exist.
    fn close_mesh(&mut self, owner: u64) {
        self.traces.remove_owner(owner);
        for slot in 0..self.scopes_used {
            let scope = self.scopes[slot];
            if scope.owner != owner {
                continue;
            }
            self.scopes[slot].owner = 0;
            for entry in self.entries.iter_mut().filter(|it| it.tag != 0 && it.scope == scope.number) {
                set_unchanged(entry.tag - 1, 0);
                entry.scope = 0;
                entry.flags |= CHANGED | CLOSED;
            }
            let _ = tracker().close_allocator(AllocatorNumber::new(scope.number));
        }
    }

    /// Reports a program and its memory.
    #[cold]
    fn report(&mut self, at: usize, id: u64, target: &ProgramTarget) {
        let mut indexes = [0; MAX_CHIPS];
        let Some(&mut Entry { scope: old, class, notes, .. }) = self.find(id) else { return };
        // SAFETY: the runtime has just passed this device.
        let chips = unsafe { ttmem_chips_of(target.device, target.range, indexes.as_mut_ptr(), MAX_CHIPS) };
        let first = indexes[0];
        let owner = if target.is_mesh { owner_key(true, target.mesh) } else { owner_key(false, first) };
        let Some(scope) = self.find_or_define_scope(owner, &indexes[..chips.min(MAX_CHIPS)]) else { return };
        let program = key_of(id);
        if old != 0 && old != scope.get() {
            let _ = tracker().end_program(AllocatorNumber::new(old), program);
        }
        let mut facts = ProgramFacts { kernel_bytes: 0, name_len: 0, cores: [0; 4], name: [0; 192] };
        // SAFETY: the runtime has just passed this program, which is built.
        unsafe { ttmem_program(at, &raw mut facts) };
        let name = facts.name.get(..facts.name_len as usize).unwrap_or_default();
        let name = core::str::from_utf8(name).unwrap_or_default();
        let class = match u32::from(class) {
            CLASS_FABRIC => KernelClass::Fabric,
            CLASS_DISPATCH => KernelClass::Dispatch,
            _ => KernelClass::Application,
        };
        let cores = cores_of(facts.cores);
        let site = sites::of_program(name);
        // SAFETY: as above, and all parts of the program have addresses.
        let views = if target.placed { unsafe { Views::read(at) } } else { Views::NONE };
        let built = Program::new(scope, program).cores(cores).class(class).site(site);
        let _ = agent::build_program(tracker(), &built, views.addresses());
        if facts.kernel_bytes > 0 && cores != CoresNumber::NONE {
            let bytes = u64::from(facts.kernel_bytes);
            let kernel = Kernel::new(scope, program, id, bytes);
            let _ = tracker().load_kernel(&kernel.cores(cores).class(class));
        }
        let mut note = notes;
        while let Some(index) = note.checked_sub(1) {
            let Note { address, bytes, cores, next } = self.notes[index as usize];
            note = next;
            let (space, bytes, cores) = (Space::Dfb, u64::from(bytes), CoresNumber::new(cores));
            let placed = Placement::new(scope, program, space, address, bytes);
            let _ = tracker().place(&placed.cores(cores));
        }
        if target.placed {
            // SAFETY: as above.
            unsafe { self.parts.report(at, scope, program, views) };
        }
        if let Some(entry) = self.find(id) {
            entry.scope = scope.get();
            entry.views = views;
            entry.flags = if views == Views::NONE { 0 } else { HAS_VIEWS };
            // A program that was built before its dispatch is named by the dispatch.
            if !target.placed || !sites::is_dispatching() {
                entry.flags |= CHANGED;
            }
        }
    }

    /// Reports the dispatch of a program, if the program itself was reported. `moved`: the new addresses of its views.
    pub(crate) fn dispatch(&mut self, id: u64, moved: Option<ViewAddresses>) {
        let is_capturing = self.traces.is_capturing();
        if let Some(entry) = self.find(id).filter(|it| it.scope != 0) {
            let scope = AllocatorNumber::new(entry.scope);
            let _ = agent::dispatch(tracker(), scope, key_of(id), &mut entry.slot, moved);
            if entry.flags == 0 {
                let word = if is_capturing { 0 } else { unchanged::pack(id, entry.scope, entry.slot) };
                set_unchanged(id, word);
            }
        }
    }
}

/// The program's offsets were finalised.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_built(program: usize, id: u64, target: &ProgramTarget) {
    mark_inherited();
    with_table(|table| match table.find_or_add(id) {
        Some(_) => {
            set_unchanged(id, 0);
            table.report(program, id, target);
        }
        None => agent::count_lost(tracker()),
    });
}

/// The scope and the key of a program that the runtime refuses; without a program, the scope of its device. A program that was not
/// built yet is reported now, since its parts are what does not fit; [`end_refused`] must follow.
pub(crate) fn refused(program: usize, id: u64, target: &ProgramTarget) -> Option<(AllocatorNumber, u32)> {
    with_table(|table| {
        if program == 0 || id == u64::MAX {
            let mut indexes = [0; MAX_CHIPS];
            // SAFETY: the runtime has just passed this device.
            let chips = unsafe { ttmem_chips_of(target.device, 0, indexes.as_mut_ptr(), MAX_CHIPS) };
            let owner =
                if target.is_mesh { owner_key(true, target.mesh) } else { owner_key(false, indexes[0]) };
            return table
                .find_or_define_scope(owner, &indexes[..chips.min(MAX_CHIPS)])
                .map(|scope| (scope, 0));
        }
        if table.find_or_add(id)?.scope == 0 {
            set_unchanged(id, 0);
            table.report(program, id, target);
            table.find(id)?.flags |= REFUSED;
        }
        let scope = table.find(id)?.scope;
        (scope != 0).then(|| (AllocatorNumber::new(scope), key_of(id)))
    })?
}

/// Ends a program that was reported only because the runtime refused it: it was not built, so it has no memory.
pub(crate) fn end_refused(id: u64) {
    with_table(|table| {
        let Some(entry) = table.find(id).filter(|it| it.flags & REFUSED != 0) else { return };
        entry.flags &= !REFUSED;
        let scope = core::mem::take(&mut entry.scope);
        if scope != 0 {
            let _ = tracker().end_program(AllocatorNumber::new(scope), key_of(id));
        }
    });
}

/// The scope of a mesh. `mesh_impl` is its implementation object.
pub(crate) fn scope_of_mesh(mesh: u32, mesh_impl: usize) -> Option<AllocatorNumber> {
    let mut indexes = [0; MAX_CHIPS];
    // SAFETY: the runtime is in a call of this mesh.
    let chips = unsafe { ttmem_impl_chips(mesh_impl, indexes.as_mut_ptr(), indexes.len()) };
    with_table(|table| table.find_or_define_scope(owner_key(true, mesh), &indexes[..chips.min(MAX_CHIPS)]))?
}

/// Reports the dispatch of a program that did not change since the last one. Returns whether it did: if not,
/// `ttmem_agent_dispatched` must.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_dispatched_again(id: u64) -> bool {
    // SAFETY: null, or a mapping that is never unmapped and valid as zeros.
    let Some(words) = (unsafe { UNCHANGED.load(Ordering::Acquire).as_ref() }) else { return false };
    let word = words[first_slot(id)].load(Ordering::Relaxed);
    let Some((scope, slot)) = unchanged::unpack(word, id) else { return false };
    agent::dispatch_again(tracker(), AllocatorNumber::new(scope), key_of(id), slot)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_dispatched(program: usize, id: u64, target: &ProgramTarget) {
    mark_inherited();
    with_table(|table| {
        // The parts of a program that was never built may have no addresses, and querying those is an error.
        let is_built = |it: &&mut Entry| it.scope != 0 || it.flags & CLOSED != 0;
        let Some(entry) = table.find(id).filter(is_built) else { return };
        let Entry { scope, flags, views: reported, .. } = *entry;
        // A captured program does not run yet; its changes are read at the first dispatch that does.
        if scope != 0 && table.traces.capture(target, program, id, scope) {
            return;
        }
        let (mut must_report, mut moved) = (flags & CHANGED != 0, None);
        if flags & HAS_VIEWS != 0 && !must_report {
            // SAFETY: the runtime has just dispatched it.
            let views = unsafe { Views::read(program) };
            match views.moved_from(reported) {
                None => {}
                Some(addresses) if !addresses.is_empty() => moved = Some((views, addresses)),
                Some(_) => must_report = true,
            }
        }
        if must_report && target.device != 0 {
            table.report(program, id, target);
        }
        if let (Some((views, _)), Some(entry)) = (moved, table.find(id)) {
            entry.views = views;
        }
        table.dispatch(id, moved.map(|(_, addresses)| addresses));
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_program_destroyed(id: u64) {
    mark_inherited();
    with_table(|table| {
        let Some(removed) = table.remove(id) else { return };
        if removed.scope != 0 {
            let _ = tracker().end_program(AllocatorNumber::new(removed.scope), key_of(id));
        }
    });
}

/// The program's parts will be placed anew.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_program_changed(id: u64) {
    mark_inherited();
    with_table(|table| {
        set_unchanged(id, 0);
        if let Some(entry) = table.find(id) {
            entry.flags |= CHANGED;
        }
    });
}

/// The program is one of the runtime's own, of the given class.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_program_class(id: u64, class: u32) {
    mark_inherited();
    with_table(|table| {
        if let Some(entry) = table.find_or_add(id) {
            entry.class = class as u8;
        }
    });
}

/// The program's dataflow buffers were placed. With `more`, these are added to those of the call before.
///
/// # Safety
///
/// `parts` must point to `len` parts.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ttmem_agent_dfbs(id: u64, parts: *const Part, len: usize, more: bool) {
    mark_inherited();
    // SAFETY: the caller promises `len` parts.
    let parts = unsafe { core::slice::from_raw_parts(parts, len) };
    with_table(|table| {
        set_unchanged(id, 0);
        let Some(entry) = table.find_or_add(id) else { return };
        entry.flags |= CHANGED;
        if !more {
            let old = core::mem::take(&mut entry.notes);
            table.free_notes(old);
        }
        for part in parts.iter().filter(|it| it.bytes > 0 && it.cores != [0; 4]) {
            table.add_note(id, part);
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_mesh_closed(mesh: u32) {
    mark_inherited();
    with_table(|table| table.close_mesh(owner_key(true, mesh)));
}
