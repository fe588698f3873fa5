//! Events of the runtime's allocators: the shim calls these functions, and they report to the tracker.
#![allow(unsafe_code)]

use crate::allocators::{
    AllocatorInfo, SPACES, add, banks_of, define, find, find_or_define, mark_inherited, round_up,
};
use crate::explain;
use crate::flight::{self, Lock};
use crate::manual;
use crate::runtime;
use crate::shim::{
    ACTIVE, BufferFacts, CoreAddress, DRAM, L1, L1_SMALL, MEMORY_L1, NOT_STARTED, PASS_THROUGH, PAUSED,
    SiteFacts, TRACE, ttmem_base, ttmem_blocks, ttmem_core_addresses, ttmem_device_of,
};
use crate::sites;
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use ttmem_client::{AllocatorNumber, Buffer, CoresNumber, Layout, Options, Space, Tracker, agent};
use ttmem_wire::hooks::Hook;

/// Nanoseconds that hooks and audits took.
pub(crate) static SPENT: AtomicU64 = AtomicU64::new(0);

/// Hooks that are complete, a bit each.
static HOOKS: AtomicU64 = AtomicU64::new(0);
/// Hooks that this runtime should have.
static WANTED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn tracker() -> &'static Tracker {
    Tracker::global()
}

#[inline]
pub(crate) fn space_of(kind: u32) -> Option<Space> {
    // A match, not a lookup in `SPACES`, which would be one more cache line to fetch.
    Some(match kind {
        DRAM => Space::Dram,
        L1 => Space::L1,
        L1_SMALL => Space::L1Small,
        TRACE => Space::Trace,
        _ => return None,
    })
}

/// The number of a set of cores. The last few are cached: models use the same grids again and again.
pub(crate) fn cores_of(cores: [u64; 4]) -> CoresNumber {
    const CACHED: usize = 8;
    std::thread_local! {
        static RECENT: [Cell<([u64; 4], CoresNumber)>; CACHED] =
            const { [const { Cell::new(([0; 4], CoresNumber::NONE)) }; CACHED] };
    }
    if cores == [0; 4] {
        return CoresNumber::NONE;
    }
    let slot = (cores[0] ^ cores[1] >> 7 ^ cores[2] >> 13 ^ cores[3] >> 19).count_ones() as usize % CACHED;
    RECENT.with(|recent| {
        let (known, number) = recent[slot].get();
        if known == cores {
            return number;
        }
        let Ok(number) = agent::define_core_bitmap(tracker(), cores) else { return CoresNumber::NONE };
        recent[slot].set((cores, number));
        number
    })
}

/// Passes each part of a buffer with per-core addresses to `report`. Cores with the same address are one part.
fn for_each_part(
    allocator: &AllocatorInfo,
    number: AllocatorNumber,
    buffer: usize,
    facts: &BufferFacts,
    report: impl Fn(&Buffer),
) {
    let mut addresses = [CoreAddress::default(); 256];
    // SAFETY: the runtime is allocating or freeing this buffer.
    let count = unsafe { ttmem_core_addresses(buffer, addresses.as_mut_ptr(), addresses.len()) };
    let addresses = &mut addresses[..count];
    addresses.sort_unstable_by_key(|it| (it.address, it.core));
    let share = facts.requested / count.max(1) as u64;
    for part in addresses.chunk_by(|a, b| a.address == b.address) {
        let mut cores = [0; 4];
        for CoreAddress { core, .. } in part {
            cores[(core >> 6) as usize & 3] |= 1 << (core & 63);
        }
        let requested = share.max(1).saturating_mul(part.len() as u64);
        let bytes = allocator.sizes(facts).0.saturating_mul(part.len() as u64);
        let cores = cores_of(cores);
        // Without a core set, the bytes of all cores count once.
        let bytes_per_bank = if cores == CoresNumber::NONE { bytes } else { bytes / part.len() as u64 };
        let buffer = Buffer::new(number, Space::L1Core, part[0].address, requested);
        report(&buffer.bytes_per_bank(bytes_per_bank).occupied(bytes).cores(cores).layout(facts.layout()));
    }
}

/// Finds the runtime and starts tracking, or decides to only call through. Called by the first hook.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_start() {
    let starting = Lock::acquire_start();
    let mode = &flight::state().mode;
    if mode.load(Ordering::Acquire) != NOT_STARTED {
        return;
    }
    let found = runtime::find();
    let off = agent::variable("TTMEM").is_some_and(|it| it == "0");
    if off || !found.usable || starting.is_none() {
        mode.store(PASS_THROUGH, Ordering::Release);
        return;
    }
    let hybrid = std::env::var("TT_METAL_ALLOCATOR_MODE_HYBRID").is_ok_and(|it| it == "1");
    flight::state().hybrid.store(u32::from(hybrid), Ordering::Relaxed);
    sites::configure();
    explain::configure();
    let options = Options::from_env();
    let options = options.writer(concat!("ttmem-agent ", env!("CARGO_PKG_VERSION"))).runtime(found.runtime);
    agent::enable(tracker(), &options);
    agent::set_hooks(tracker(), found.taken, found.wanted);
    HOOKS.store(found.taken, Ordering::Relaxed);
    WANTED.store(found.wanted, Ordering::Relaxed);
    mark_inherited();
    mode.store(ACTIVE, Ordering::SeqCst);
    manual::withdraw_clients();
}

/// A function of the runtime gave an implausible answer and is not called again: its hook is incomplete.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_disabled(call: u32) {
    let lost = runtime::hook_of(call).map_or(0, Hook::bit);
    let installed = HOOKS.fetch_and(!lost, Ordering::Relaxed);
    if installed & lost != 0 {
        agent::set_hooks(tracker(), installed & !lost, WANTED.load(Ordering::Relaxed));
    }
}

/// Whether the runtime's events are tracked.
pub(crate) fn is_active() -> bool {
    matches!(flight::state().mode.load(Ordering::SeqCst), ACTIVE | PAUSED)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_created(allocator: usize, device: usize, mesh: bool) {
    mark_inherited();
    let Some(allocator) = add(allocator, device) else { return };
    allocator.set_device(device);
    // Each chip of a mesh has an allocator too, which is hardly ever used.
    if mesh && allocator.number().is_none() {
        define(allocator);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_allocated(
    allocator: usize,
    buffer: usize,
    facts: &BufferFacts,
    site: &SiteFacts,
) {
    // SAFETY: the runtime has just allocated this buffer.
    let device = || unsafe { ttmem_device_of(buffer) };
    let Some((allocator, number)) = find_or_define(allocator, device) else { return };
    let site = sites::of_allocation(site);
    if facts.is_per_core() {
        for_each_part(allocator, number, buffer, facts, |part| {
            let _ = tracker().alloc(&part.site(site));
        });
    } else if let Some(space) = space_of(facts.kind) {
        let cores = if facts.has_cores() { cores_of(facts.cores) } else { CoresNumber::NONE };
        let (bytes_per_bank, occupied) = allocator.sizes(facts);
        let buffer = Buffer::new(number, space, facts.address, facts.requested);
        let buffer = buffer.bytes_per_bank(bytes_per_bank).occupied(occupied);
        let _ = tracker().alloc(&buffer.cores(cores).layout(facts.layout()).site(site));
    }
    allocator.mark_changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_freeing(allocator: usize, buffer: usize, facts: &BufferFacts) {
    // SAFETY: the runtime is about to free this buffer.
    let device = || unsafe { ttmem_device_of(buffer) };
    let Some((allocator, number)) = find_or_define(allocator, device) else { return };
    if facts.is_per_core() {
        for_each_part(allocator, number, buffer, facts, |part| {
            let _ = tracker().free_on_cores(part);
        });
    } else if let Some(space) = space_of(facts.kind) {
        let _ = tracker().free(number, space, facts.address);
    }
    allocator.mark_changed();
}

/// The runtime allocated or freed a buffer that it did not describe.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_unknown(allocator: usize) {
    if let Some(allocator) = find(allocator) {
        allocator.mark_changed();
    }
}

/// Everything was freed at once, but the allocator stays open.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_cleared(allocator: usize) {
    mark_inherited();
    let Some(allocator) = find(allocator) else { return };
    let Some(number) = allocator.number() else { return };
    // No audit may read the allocator while it is cleared.
    let _lock = Lock::acquire_query();
    let _ = agent::clear_allocator(tracker(), number);
    allocator.mark_changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_destroyed(allocator: usize) {
    mark_inherited();
    let Some(allocator) = find(allocator) else { return };
    let _lock = Lock::acquire_query();
    if let Some(number) = allocator.vacate() {
        let _ = tracker().close_allocator(number);
    }
}

/// A mirror is about to be made or ended. Two meshes may do that at one address of one chip, each with its own lock: without one that
/// spans call and record, the records could come in another order than the calls.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_lock_mirrors() -> bool {
    Lock::acquire_mirrors()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_unlock_mirrors() {
    flight::release_mirrors();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_mirrored(allocator: usize, address: u64, bytes: u64) {
    let Some((allocator, number)) = find_or_define(allocator, || 0) else { return };
    // One mirror stands for all mesh buffers at that address.
    if !agent::is_allocated(tracker(), number, Space::L1, address) {
        let bytes_per_bank = round_up(bytes.max(1), allocator.unit());
        let buffer = Buffer::new(number, Space::L1, address, bytes.max(1));
        let _ = tracker().alloc(&buffer.bytes_per_bank(bytes_per_bank).layout(Layout::Mirror));
    }
    allocator.mark_changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_unmirroring(allocator: usize, address: u64) {
    let Some((allocator, number)) = find_or_define(allocator, || 0) else { return };
    if agent::is_allocated(tracker(), number, Space::L1, address) {
        let _ = tracker().free(number, Space::L1, address);
    }
    allocator.mark_changed();
}

/// The allocator's state was overridden: its blocks are now other allocators' buffers, recorded as mirrors.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_overridden(allocator: usize) {
    struct Destination {
        number: AllocatorNumber,
        space: Space,
        base: u64,
    }
    extern "C" fn record_block(to: *mut c_void, address: u64, bytes: u64) {
        // SAFETY: the pointer passed to `ttmem_blocks` below.
        let to = unsafe { &*to.cast::<Destination>() };
        let buffer = Buffer::new(to.number, to.space, to.base.wrapping_add(address), bytes);
        let _ = tracker().alloc(&buffer.bytes_per_bank(bytes).layout(Layout::Mirror));
    }
    ttmem_agent_cleared(allocator);
    let Some((info, number)) = find_or_define(allocator, || 0) else { return };
    let (banks, len) = banks_of(allocator);
    for (kind, space) in SPACES {
        let Some(bank) = banks[..len].iter().find(|it| it.space == space) else { continue };
        let mut to = Destination { number, space, base: bank.base };
        // SAFETY: the runtime has just changed this allocator, and `to` outlives the calls.
        unsafe {
            if kind == L1 {
                // Block addresses are relative to the base that L1 had before it shrank.
                ttmem_base(allocator, u64::from(MEMORY_L1), &raw mut to.base);
            }
            ttmem_blocks(allocator, u64::from(kind), record_block, (&raw mut to).cast());
        }
    }
    info.mark_changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_resized(allocator: usize) {
    let Some((info, number)) = find_or_define(allocator, || 0) else { return };
    let (banks, len) = banks_of(allocator);
    let _ = agent::resize_allocator(tracker(), number, &banks[..len]);
    info.mark_changed();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_spent(ns: u64) {
    SPENT.fetch_add(ns, Ordering::Relaxed);
}
