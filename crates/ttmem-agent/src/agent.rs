//! What the runtime does, as events: the shim calls, the tracker is told.
#![allow(unsafe_code)]

use crate::allocators::{Known, SPACES, add, banks_of, define, find, is_hybrid, known, round_up, settle};
use crate::audit;
use crate::flight::{self, Lock};
use crate::others;
use crate::runtime;
use crate::shim::{
    AT_WORK, CALLS_THROUGH, CoreAddress, DRAM, Facts, L1, L1_SMALL, MEMORY_L1, NOT_STARTED, PAUSED, TRACE,
    ttmem_base, ttmem_blocks, ttmem_core_addresses, ttmem_device_of,
};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use ttmem_client::{AllocatorNumber, Buffer, CoresNumber, Layout, Options, Space, Tracker, agent};

/// Nanoseconds that hooks and audits took.
pub(crate) static SPENT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn tracker() -> &'static Tracker {
    Tracker::global()
}

#[inline]
fn space_of(kind: u32) -> Option<Space> {
    // Not looked up in the table: that would be one more line to fetch.
    Some(match kind {
        DRAM => Space::Dram,
        L1 => Space::L1,
        L1_SMALL => Space::L1Small,
        TRACE => Space::Trace,
        _ => return None,
    })
}

/// The number of a set of cores. The last few are remembered: models use the same grids again and again.
pub(crate) fn cores_of(cores: [u64; 4]) -> CoresNumber {
    const REMEMBERED: usize = 8;
    std::thread_local! {
        static RECENT: core::cell::Cell<[([u64; 4], CoresNumber); REMEMBERED]> =
            const { core::cell::Cell::new([([0; 4], CoresNumber::NONE); REMEMBERED]) };
    }
    if cores == [0; 4] {
        return CoresNumber::NONE;
    }
    let place =
        (cores[0] ^ cores[1] >> 7 ^ cores[2] >> 13 ^ cores[3] >> 19).count_ones() as usize % REMEMBERED;
    let mut recent = RECENT.get();
    if recent[place].0 == cores {
        return recent[place].1;
    }
    let Ok(number) = agent::define_core_bitmap(tracker(), cores) else { return CoresNumber::NONE };
    recent[place] = (cores, number);
    RECENT.set(recent);
    number
}

/// Tells of each part of a buffer that has an address of its own on each core: the cores with the same one are a part.
fn each_part(known: &Known, number: AllocatorNumber, buffer: usize, facts: &Facts, tell: fn(&Buffer)) {
    let mut places = [CoreAddress::default(); 256];
    // SAFETY: the buffer that the runtime is in the middle of allocating or freeing.
    let count = unsafe { ttmem_core_addresses(buffer, places.as_mut_ptr(), places.len()) };
    let places = &mut places[..count];
    places.sort_unstable_by_key(|it| (it.address, it.core));
    let share = facts.requested / count.max(1) as u64;
    for part in places.chunk_by(|a, b| a.address == b.address) {
        let mut cores = [0; 4];
        for CoreAddress { core, .. } in part {
            cores[(core >> 6) as usize & 3] |= 1 << (core & 63);
        }
        let requested = share.max(1).saturating_mul(part.len() as u64);
        let bytes = known.sizes(facts).0.saturating_mul(part.len() as u64);
        let cores = cores_of(cores);
        // Without the cores it counts as much as on all of them.
        let bytes_per_bank = if cores == CoresNumber::NONE { bytes } else { bytes / part.len() as u64 };
        let buffer = Buffer::new(number, Space::L1Core, part[0].address, requested);
        tell(&buffer.bytes_per_bank(bytes_per_bank).occupied(bytes).cores(cores).layout(facts.layout()));
    }
}

/// Finds the runtime, or decides to do nothing. The first hook calls this.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_start() {
    let starting = Lock::to_start();
    let mode = &flight::state().mode;
    if mode.load(Ordering::Acquire) != NOT_STARTED {
        return;
    }
    let found = runtime::find();
    let off = std::env::var("TTMEM").is_ok_and(|it| it == "0");
    if off || !found.usable || starting.is_none() {
        mode.store(CALLS_THROUGH, Ordering::Release);
        return;
    }
    let hybrid = std::env::var("TT_METAL_ALLOCATOR_MODE_HYBRID").is_ok_and(|it| it == "1");
    flight::state().hybrid.store(u32::from(hybrid), Ordering::Relaxed);
    let options = Options::from_env();
    let options = options.writer(concat!("ttmem-agent ", env!("CARGO_PKG_VERSION"))).runtime(found.runtime);
    agent::enable(tracker(), &options);
    agent::set_hooks(tracker(), found.taken, found.wanted);
    settle();
    mode.store(AT_WORK, Ordering::SeqCst);
    others::have_them_withdraw();
}

/// Whether what the runtime does is followed.
pub(crate) fn is_at_work() -> bool {
    matches!(flight::state().mode.load(Ordering::SeqCst), AT_WORK | PAUSED)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_met(allocator: usize, device: usize, mesh: bool) {
    settle();
    let Some(it) = add(allocator, device) else { return };
    it.belongs_to(device);
    // Each chip of a mesh has an allocator, too, which is hardly ever used.
    if mesh && it.number().is_none() {
        define(it);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_allocated(allocator: usize, buffer: usize, facts: &Facts) {
    // SAFETY: the runtime has just allocated this buffer.
    let Some((it, number)) = known(allocator, || unsafe { ttmem_device_of(buffer) }) else { return };
    if facts.is_per_core() {
        each_part(it, number, buffer, facts, |part| {
            let _ = tracker().alloc(part);
        });
    } else if let Some(space) = space_of(facts.kind) {
        let cores = if facts.has_cores() { cores_of(facts.cores) } else { CoresNumber::NONE };
        let (bytes_per_bank, occupied) = it.sizes(facts);
        let buffer = Buffer::new(number, space, facts.address, facts.requested);
        let buffer = buffer.bytes_per_bank(bytes_per_bank).occupied(occupied);
        let _ = tracker().alloc(&buffer.cores(cores).layout(facts.layout()));
    }
    it.changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_freeing(allocator: usize, buffer: usize, facts: &Facts) {
    // SAFETY: the runtime is about to free this buffer.
    let Some((it, number)) = known(allocator, || unsafe { ttmem_device_of(buffer) }) else { return };
    if facts.is_per_core() {
        each_part(it, number, buffer, facts, |part| {
            let _ = tracker().free_on_cores(part);
        });
    } else if let Some(space) = space_of(facts.kind) {
        let _ = tracker().free(number, space, facts.address);
    }
    it.changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_failed(allocator: usize, buffer: usize, facts: &Facts) {
    // SAFETY: the runtime has just failed to allocate this buffer.
    let Some((it, number)) = known(allocator, || unsafe { ttmem_device_of(buffer) }) else { return };
    let Some(space) = space_of(facts.kind) else { return };
    let _turn = Lock::to_ask();
    // Other hooks under way are besides this one.
    let before = audit::mark(1);
    let statistics = it.statistics(facts.kind);
    let (block, _) = it.sizes(facts);
    if let Some(statistics) = statistics.filter(|_| !it.is_inherited()) {
        let _ = tracker().audit(before.filter(|_| audit::is_calm(1)), number, space, statistics);
    }
    // It may have failed for another reason: there was room, or the runtime has no interleaved buffers in L1_SMALL.
    let largest = statistics.map(|it| it.largest_free_per_bank);
    let unsupported = facts.kind == L1_SMALL && facts.is_interleaved();
    let no_room = largest.map_or(!unsupported, |largest| block > largest);
    if no_room || facts.is_per_core() || is_hybrid() {
        let failed = Buffer::new(number, space, 0, facts.requested);
        let _ = tracker().report_out_of_memory(&failed.bytes_per_bank(block), largest);
    }
}

/// The runtime would not say what it allocated or freed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_unknown(allocator: usize) {
    if let Some(it) = find(allocator) {
        it.changed();
    }
}

/// Everything was freed at once, but the allocator goes on.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_cleared(allocator: usize) {
    settle();
    let Some(it) = find(allocator) else { return };
    let Some(number) = it.number() else { return };
    // An audit must not be of what is freed meanwhile.
    let _turn = Lock::to_ask();
    let _ = agent::clear_allocator(tracker(), number);
    it.changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_gone(allocator: usize) {
    settle();
    let Some(it) = find(allocator) else { return };
    let _turn = Lock::to_ask();
    if let Some(number) = it.give_up_place() {
        let _ = tracker().close_allocator(number);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_mirrored(allocator: usize, address: u64, bytes: u64) {
    let Some((it, number)) = known(allocator, || 0) else { return };
    // One mark stands for all who want it.
    if !agent::is_allocated(tracker(), number, Space::L1, address) {
        let bytes_per_bank = round_up(bytes.max(1), it.unit());
        let buffer = Buffer::new(number, Space::L1, address, bytes.max(1));
        let _ = tracker().alloc(&buffer.bytes_per_bank(bytes_per_bank).layout(Layout::Mirror));
    }
    it.changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_unmirroring(allocator: usize, address: u64) {
    let Some((it, number)) = known(allocator, || 0) else { return };
    if agent::is_allocated(tracker(), number, Space::L1, address) {
        let _ = tracker().free(number, Space::L1, address);
    }
    it.changed();
}

/// The allocator was set to a state: what it has now are other allocators' buffers, which it keeps clear of.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_overridden(allocator: usize) {
    struct To {
        number: AllocatorNumber,
        space: Space,
        base: u64,
    }
    extern "C" fn tell(to: *mut c_void, address: u64, bytes: u64) {
        // SAFETY: what was given to `ttmem_blocks` below.
        let to = unsafe { &*to.cast::<To>() };
        let buffer = Buffer::new(to.number, to.space, to.base.wrapping_add(address), bytes);
        let _ = tracker().alloc(&buffer.bytes_per_bank(bytes).layout(Layout::Mirror));
    }
    ttmem_agent_cleared(allocator);
    let Some((it, number)) = known(allocator, || 0) else { return };
    let (banks, len) = banks_of(allocator);
    for (kind, space) in SPACES {
        let Some(bank) = banks[..len].iter().find(|it| it.space == space) else { continue };
        let mut to = To { number, space, base: bank.base };
        // SAFETY: the runtime has just changed this allocator, and `to` outlives the calls.
        unsafe {
            if kind == L1 {
                // They are counted from where it began before it shrank.
                ttmem_base(allocator, u64::from(MEMORY_L1), &raw mut to.base);
            }
            ttmem_blocks(allocator, u64::from(kind), tell, (&raw mut to).cast());
        }
    }
    it.changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_resized(allocator: usize) {
    let Some((it, number)) = known(allocator, || 0) else { return };
    let (banks, len) = banks_of(allocator);
    let _ = agent::resize_allocator(tracker(), number, &banks[..len]);
    it.changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_spent(ns: u64) {
    SPENT.fetch_add(ns, Ordering::Relaxed);
}
