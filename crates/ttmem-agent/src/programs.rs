//! The runtime's programs, by its own numbers: what each keeps is told when it is built, and that it was dispatched when it
//! is. Addresses would not do, since they are used again; and numbers of programs that are used together lie close to each
//! other, so that what a dispatch looks at does, too.
//!
//! All of it lies in memory that a forked child finds at zero: its parent's programs are not its own.
#![allow(unsafe_code)]

use crate::agent::{cores_of, tracker};
use crate::allocators::{chip_number, settle};
use crate::flight::{self, Lock};
use crate::shim::{
    CLASS_DISPATCH, CLASS_FABRIC, Part, ProgramFacts, Where, ttmem_chips_of, ttmem_parts, ttmem_program,
};
use crate::traces;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use ttmem_client::{
    AllocatorNumber, ChipNumber, CoresNumber, Kernel, KernelClass, Placement, Program, SiteNumber, Space,
    agent,
};
use ttmem_types::program_key;

/// Programs that can be known at a time.
const ROOM: usize = 1 << 16;
/// Places of dataflow buffers that can be.
const NOTES: usize = 1 << 18;
/// Sets of chips that programs run on.
const SCOPES: usize = 4096;
/// Chips of the largest mesh we can describe.
const MOST_CHIPS: usize = 256;
/// What one program keeps, range by range; what is more is told in turns.
const PARTS: usize = 1024;

/// A program. Zeros: nobody's place.
#[derive(Clone, Copy)]
struct Entry {
    /// The runtime's number of it, and 1.
    tag: u64,
    /// What its views looked like when they were last told.
    views: u64,
    /// The first of its notes, and 1.
    notes: u32,
    /// Where it was told; 0: it was not.
    scope: u16,
    class: u8,
    flags: u8,
}

const NOBODY: Entry = Entry { tag: 0, views: 0, notes: 0, scope: 0, class: 0, flags: 0 };

/// It has views, whose addresses may be others at every dispatch.
const HAS_VIEWS: u8 = 1;
/// It must be read again when it is next dispatched.
const CHANGED: u8 = 2;
/// It was told, and its mesh was closed; who keeps it may dispatch it on another.
const CLOSED: u8 = 4;

/// Where a dataflow buffer is.
#[derive(Clone, Copy)]
struct Note {
    address: u64,
    bytes: u32,
    cores: u16,
    /// The next one, and 1.
    next: u32,
}

/// Chips that programs run on, for readers: an allocator that hands out nothing.
#[derive(Clone, Copy)]
struct Scope {
    /// The mesh or chip; 0: nobody's place.
    owner: u64,
    /// Which of its chips.
    print: u64,
    number: u16,
}

pub(crate) struct Table {
    /// Where the tracker had a program the last time, by its first place; as likely as not another's. They are by themselves,
    /// so that all that are in use lie near.
    hints: [u32; ROOM],
    entries: [Entry; ROOM],
    len: usize,
    notes: [Note; NOTES],
    notes_used: u32,
    /// The first of those given back, and 1.
    vacant_note: u32,
    scopes: [Scope; SCOPES],
    scopes_used: usize,
    /// Of the program that is being told.
    parts: [Part; PARTS],
    pub(crate) traces: traces::Traces,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// The table, for one thread at a time.
pub(crate) fn with<T>(work: impl FnOnce(&mut Table) -> T) -> Option<T> {
    let _turn = Lock::of_programs()?;
    let mut table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        flight::make(&TABLE);
        table = TABLE.load(Ordering::Acquire);
    }
    // SAFETY: null, or a mapping that is never given back, of which zeros are valid; and we have the lock.
    unsafe { table.as_mut() }.map(work)
}

/// A program's key in records.
fn key_of(id: u64) -> u32 {
    program_key(id as u32)
}

fn mix(sum: u64, value: u64) -> u64 {
    (sum ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Who a mesh, or a chip, is to us.
pub(crate) fn owner(is_mesh: bool, id: u32) -> u64 {
    u64::from(id) | if is_mesh { 1 << 32 } else { 1 << 33 }
}

/// Where a program is looked for first: beside its neighbours, but not beside those of 65,536 programs ago, which would all
/// have to be passed over.
#[inline]
fn first_place(id: u64) -> usize {
    const TOGETHER: u64 = 32;
    let block = (id / TOGETHER).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53;
    (block * TOGETHER + id % TOGETHER) as usize % ROOM
}

impl Table {
    #[inline]
    fn place(&self, id: u64) -> Option<usize> {
        let mut place = first_place(id);
        loop {
            match self.entries[place % ROOM].tag {
                0 => return None,
                tag if tag == id.wrapping_add(1) => return Some(place % ROOM),
                _ => place += 1,
            }
        }
    }

    #[inline]
    fn find(&mut self, id: u64) -> Option<&mut Entry> {
        self.place(id).map(|place| &mut self.entries[place])
    }

    /// The program with a number, noted from now on.
    fn find_or_add(&mut self, id: u64) -> Option<&mut Entry> {
        if self.place(id).is_none() {
            // Looking for what is not there must stay short.
            if self.len >= ROOM / 4 * 3 || id == u64::MAX {
                return None;
            }
            let mut place = first_place(id);
            while self.entries[place % ROOM].tag != 0 {
                place += 1;
            }
            self.entries[place % ROOM] = Entry { tag: id + 1, ..NOBODY };
            self.len += 1;
        }
        self.find(id)
    }

    /// Takes a program out, and moves up those that made way for it.
    fn remove(&mut self, id: u64) -> Option<Entry> {
        let mut hole = self.place(id)?;
        let gone = self.entries[hole];
        self.forget_notes(gone.notes);
        let mut place = hole;
        loop {
            place = (place + 1) % ROOM;
            let entry = self.entries[place];
            if entry.tag == 0 {
                break;
            }
            // Whether it may lie at the hole: not before its first place.
            let first = first_place(entry.tag - 1);
            if place.wrapping_sub(first) % ROOM >= place.wrapping_sub(hole) % ROOM {
                self.entries[hole] = entry;
                hole = place;
            }
        }
        self.entries[hole] = NOBODY;
        self.len -= 1;
        Some(gone)
    }

    fn forget_notes(&mut self, mut first: u32) {
        while let Some(place) = first.checked_sub(1) {
            let note = &mut self.notes[place as usize];
            first = note.next;
            note.next = core::mem::replace(&mut self.vacant_note, place + 1);
        }
    }

    fn note(&mut self, id: u64, part: &Part) {
        let place = match self.vacant_note.checked_sub(1) {
            Some(vacant) => {
                self.vacant_note = self.notes[vacant as usize].next;
                vacant
            }
            None if (self.notes_used as usize) < NOTES => {
                self.notes_used += 1;
                self.notes_used - 1
            }
            None => return agent::count_lost(tracker()),
        };
        let cores = cores_of(part.cores).get();
        let Some(entry) = self.find(id) else { return };
        let next = core::mem::replace(&mut entry.notes, place + 1);
        self.notes[place as usize] = Note { address: part.address, bytes: part.bytes as u32, cores, next };
    }

    /// The number of some chips of a mesh, or of a chip by itself.
    pub(crate) fn scope(&mut self, owner: u64, indexes: &[u32]) -> Option<AllocatorNumber> {
        let print = indexes.iter().fold(1, |sum, &index| mix(sum, u64::from(index)));
        let used = self.scopes_used;
        let known = self.scopes[..used].iter().find(|it| it.owner == owner && it.print == print);
        if let Some(known) = known {
            return Some(AllocatorNumber::new(known.number));
        }
        let mut chips = [ChipNumber::default(); MOST_CHIPS];
        let mut len = 0;
        for (place, number) in chips.iter_mut().zip(indexes.iter().filter_map(|&index| chip_number(index))) {
            *place = number;
            len += 1;
        }
        if len == 0 || len < indexes.len() {
            return None;
        }
        let place = self.scopes[..used].iter().position(|it| it.owner == 0).unwrap_or(used);
        let Some(free) = self.scopes.get_mut(place) else {
            agent::count_lost(tracker());
            return None;
        };
        let number = tracker().define_allocator(&chips[..len], &[]).ok()?;
        *free = Scope { owner, print, number: number.get() };
        self.scopes_used = used.max(place + 1);
        Some(number)
    }

    /// A mesh is closed: nothing of its programs is on its chips any more, though they may live on.
    fn close(&mut self, owner: u64) {
        self.traces.forget(owner);
        for place in 0..self.scopes_used {
            let scope = self.scopes[place];
            if scope.owner != owner {
                continue;
            }
            self.scopes[place].owner = 0;
            for entry in self.entries.iter_mut().filter(|it| it.tag != 0 && it.scope == scope.number) {
                entry.scope = 0;
                entry.flags |= CHANGED | CLOSED;
            }
            let _ = tracker().close_allocator(AllocatorNumber::new(scope.number));
        }
    }

    /// Tells what a program is and keeps.
    #[cold]
    fn tell(&mut self, at: usize, id: u64, place: &Where) {
        let mut indexes = [0; MOST_CHIPS];
        let Some(&mut Entry { scope: old, class, notes, .. }) = self.find(id) else { return };
        // SAFETY: the runtime has just named this device.
        let chips = unsafe { ttmem_chips_of(place.device, place.range, indexes.as_mut_ptr(), MOST_CHIPS) };
        let first = indexes[0];
        let whose = if place.is_mesh { owner(true, place.mesh) } else { owner(false, first) };
        let Some(scope) = self.scope(whose, &indexes[..chips.min(MOST_CHIPS)]) else { return };
        let program = key_of(id);
        if old != 0 && old != scope.get() {
            let _ = tracker().end_program(AllocatorNumber::new(old), program);
        }
        let mut facts = ProgramFacts { kernel_bytes: 0, name_len: 0, cores: [0; 4], name: [0; 192] };
        // SAFETY: the runtime has just named this program, which is built.
        unsafe { ttmem_program(at, &raw mut facts) };
        let name = facts.name.get(..facts.name_len as usize).unwrap_or_default();
        let name = core::str::from_utf8(name).unwrap_or_default();
        let site = if name.is_empty() { None } else { tracker().define_site(name).ok() };
        let class = match u32::from(class) {
            CLASS_FABRIC => KernelClass::Fabric,
            CLASS_DISPATCH => KernelClass::Dispatch,
            _ => KernelClass::Application,
        };
        let cores = cores_of(facts.cores);
        let site = site.unwrap_or(SiteNumber::default());
        let _ = tracker().build_program(&Program::new(scope, program).cores(cores).class(class).site(site));
        if facts.kernel_bytes > 0 && cores != CoresNumber::NONE {
            let bytes = u64::from(facts.kernel_bytes);
            let kernel = Kernel::new(scope, program, id, bytes);
            let _ = tracker().load_kernel(&kernel.cores(cores).class(class));
        }
        let mut note = notes;
        while let Some(place) = note.checked_sub(1) {
            let Note { address, bytes, cores, next } = self.notes[place as usize];
            note = next;
            let (space, bytes, cores) = (Space::Dfb, u64::from(bytes), CoresNumber::new(cores));
            let placed = Placement::new(scope, program, space, address, bytes);
            let _ = tracker().place(&placed.cores(cores));
        }
        let mut telling = Telling { scope, program, parts: &mut self.parts, len: 0, views: 0 };
        if place.placed {
            // SAFETY: as above, and everything that it keeps has its place. `telling` outlives the call.
            unsafe { ttmem_parts(at, false, collect, (&raw mut telling).cast()) };
        }
        telling.tell();
        let views = telling.views;
        if let Some(entry) = self.find(id) {
            entry.scope = scope.get();
            entry.views = views;
            entry.flags = if views == 0 { 0 } else { HAS_VIEWS };
            if !place.placed {
                entry.flags |= CHANGED;
            }
        }
    }

    /// A program that was told is what is there now.
    #[inline]
    pub(crate) fn dispatch(&mut self, id: u64) {
        if let Some(&mut Entry { scope, .. }) = self.find(id).filter(|it| it.scope != 0) {
            let hint = &mut self.hints[first_place(id)];
            let _ = agent::dispatch_with_hint(tracker(), AllocatorNumber::new(scope), key_of(id), hint);
        }
    }
}

/// What a program keeps, collected: what lies at one place on several cores is one thing.
struct Telling<'a> {
    scope: AllocatorNumber,
    program: u32,
    parts: &'a mut [Part; PARTS],
    len: usize,
    views: u64,
}

impl Telling<'_> {
    fn tell(&mut self) {
        for part in &self.parts[..self.len] {
            let (cores, view) = (cores_of(part.cores), part.view != 0);
            let placed = Placement::new(self.scope, self.program, part.space(), part.address, part.bytes);
            let _ = tracker().place(&placed.cores(cores).view(view));
        }
        self.len = 0;
    }
}

extern "C" fn collect(to: *mut c_void, part: &Part) {
    // SAFETY: what was given to `ttmem_parts` along with this.
    let telling = unsafe { &mut *to.cast::<Telling<'_>>() };
    if part.view != 0 {
        see(&mut telling.views, part);
    }
    // What lies nowhere is nothing.
    if part.bytes == 0 || part.cores == [0; 4] {
        return;
    }
    let same = |it: &&mut Part| {
        (it.address, it.bytes, it.space, it.view) == (part.address, part.bytes, part.space, part.view)
    };
    if let Some(known) = telling.parts[..telling.len].iter_mut().find(same) {
        for (mine, more) in known.cores.iter_mut().zip(part.cores) {
            *mine |= more;
        }
        return;
    }
    if telling.len == PARTS {
        telling.tell();
    }
    telling.parts[telling.len] = *part;
    telling.len += 1;
}

/// What tells one state of a program's views from another; never 0 if there are any.
fn see(print: &mut u64, part: &Part) {
    *print = mix(mix(*print, part.address), part.bytes) | 1;
}

extern "C" fn look(to: *mut c_void, part: &Part) {
    // SAFETY: what was given to `ttmem_parts` along with this.
    see(unsafe { &mut *to.cast::<u64>() }, part);
}

/// The program's offsets were finalised.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_built(program: usize, id: u64, place: &Where) {
    settle();
    with(|table| match table.find_or_add(id) {
        Some(_) => table.tell(program, id, place),
        None => agent::count_lost(tracker()),
    });
}

/// A program is about to be dispatched, which takes a while: what we will need then is brought near meanwhile. Nothing is
/// locked, so it may be another's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_dispatching(id: u64) {
    let table = TABLE.load(Ordering::Acquire);
    if !table.is_null() {
        // SAFETY: a mapping that is never given back; a number that is read while it changes is only fetched in vain.
        let hint = unsafe { ptr::read_volatile(&raw const (*table).hints[first_place(id)]) };
        // SAFETY: as above.
        let entry = unsafe { &raw const (*table).entries[first_place(id)] };
        agent::prefetch_dispatch(tracker(), hint, entry.cast());
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_dispatched(program: usize, id: u64, place: &Where) {
    settle();
    with(|table| {
        // One that was never built may have nothing in its place, and asking for that is an error.
        let built = |it: &&mut Entry| it.scope != 0 || it.flags & CLOSED != 0;
        let Some(&mut Entry { scope, flags, views: told, .. }) = table.find(id).filter(built) else { return };
        // What is captured is not there yet: what has changed of it is read when it is.
        if scope != 0 && table.traces.capture(place, program, id, scope) {
            return;
        }
        if flags != 0 {
            let mut changed = flags & CHANGED != 0;
            if flags & HAS_VIEWS != 0 {
                let mut views = 0u64;
                // SAFETY: the runtime has just dispatched it; `views` outlives the call.
                unsafe { ttmem_parts(program, true, look, (&raw mut views).cast()) };
                changed |= views != told;
            }
            if changed && place.device != 0 {
                table.tell(program, id, place);
            }
        }
        table.dispatch(id);
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_program_gone(id: u64) {
    settle();
    with(|table| {
        let Some(gone) = table.remove(id) else { return };
        if gone.scope != 0 {
            let _ = tracker().end_program(AllocatorNumber::new(gone.scope), key_of(id));
        }
    });
}

/// What the program keeps will have another place.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_program_changed(id: u64) {
    settle();
    with(|table| {
        if let Some(entry) = table.find(id) {
            entry.flags |= CHANGED;
        }
    });
}

/// The program is one of the runtime's own.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_program_class(id: u64, class: u32) {
    settle();
    with(|table| {
        if let Some(entry) = table.find_or_add(id) {
            entry.class = class as u8;
        }
    });
}

/// Where the program's dataflow buffers are, all of them; or, with `more`, more of them.
///
/// # Safety
///
/// `parts` must point to `len` parts.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ttmem_agent_dfbs(id: u64, parts: *const Part, len: usize, more: bool) {
    settle();
    // SAFETY: the caller's word.
    let parts = unsafe { core::slice::from_raw_parts(parts, len) };
    with(|table| {
        let Some(entry) = table.find_or_add(id) else { return };
        entry.flags |= CHANGED;
        if !more {
            let old = core::mem::take(&mut entry.notes);
            table.forget_notes(old);
        }
        for part in parts.iter().filter(|it| it.bytes > 0 && it.cores != [0; 4]) {
            table.note(id, part);
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_mesh_closed(mesh: u32) {
    settle();
    with(|table| table.close(owner(true, mesh)));
}
