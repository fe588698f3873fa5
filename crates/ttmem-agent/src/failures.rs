//! What the runtime refuses: allocations, programs and traces. The texts of its exceptions have the figures.
#![allow(unsafe_code)]

use crate::agent::{cores_of, space_of, tracker};
use crate::allocators::{find_or_define, is_hybrid, mark_inherited};
use crate::audit;
use crate::explain;
use crate::flight::Lock;
use crate::programs;
use crate::shim::{BufferFacts, CaughtText, L1_SMALL, ProgramTarget, SiteFacts, ttmem_device_of};
use crate::sites;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use ttmem_client::agent;
use ttmem_types::FailureKind;
use ttmem_wire::failure::Failure;
use ttmem_wire::refusal::Refusal;

impl CaughtText {
    fn text(&self) -> Option<&str> {
        // SAFETY: null, or the text of an exception that is being handled.
        let text = (!self.text.is_null()).then(|| unsafe { CStr::from_ptr(self.text) })?;
        // Its figures come first. A part of a text that is not UTF-8 is enough.
        let bytes = text.to_bytes();
        Some(match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        })
    }
}

fn report(failure: &Failure, caught: &CaughtText) {
    let _ = agent::report_failure(tracker(), failure);
    explain::append(failure, caught);
}

/// The runtime could not allocate a buffer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_failed(
    allocator: usize,
    buffer: usize,
    facts: &BufferFacts,
    site: &SiteFacts,
    caught: &CaughtText,
) {
    // SAFETY: the runtime has just failed to allocate this buffer.
    let device = || unsafe { ttmem_device_of(buffer) };
    let Some((allocator, number)) = find_or_define(allocator, device) else { return };
    let Some(space) = space_of(facts.kind) else { return };
    let _lock = Lock::acquire_query();
    // 1: this hook itself.
    let before = audit::mark(1);
    let statistics = allocator.statistics(facts.kind);
    let (block, _) = allocator.sizes(facts);
    if let Some(statistics) = statistics.filter(|_| !allocator.is_inherited()) {
        let _ = tracker().audit(before.filter(|_| audit::is_quiescent(1)), number, space, statistics);
    }
    let refusal = caught.text().map(Refusal::parse);
    let largest = statistics.map(|it| it.largest_free_per_bank);
    let kind = match refusal {
        Some(refusal) => refusal.map(|it| it.kind),
        // Without a text: allocation may fail for another reason, although there was a free block.
        None if facts.kind == L1_SMALL && facts.is_interleaved() => Some(FailureKind::Unsupported),
        None => {
            let does_not_fit = largest.is_none_or(|largest| block > largest);
            (does_not_fit || facts.is_per_core() || is_hybrid()).then_some(FailureKind::OutOfMemory)
        }
    };
    let Some(kind) = kind else { return };
    let refusal = refusal.flatten();
    let is_full = kind == FailureKind::OutOfMemory;
    let failure = Failure {
        requested: facts.requested,
        needed: block,
        available: refusal.and_then(|it| it.available).or(largest).filter(|_| is_full),
        free: refusal.and_then(|it| it.free),
        site: sites::of_allocation(site).get(),
        ..Failure::new(kind, Some(space), number.get())
    };
    report(&failure, caught);
}

/// The runtime refused to build or to dispatch a program.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_program_refused(
    program: usize,
    id: u64,
    target: &ProgramTarget,
    caught: &CaughtText,
) {
    mark_inherited();
    let Some(refusal) = caught.text().and_then(Refusal::parse) else { return };
    // A buffer that the runtime could not allocate meanwhile was reported by its own hook.
    let is_of_program =
        matches!(refusal.kind, FailureKind::Clash | FailureKind::BeyondL1 | FailureKind::KernelConfig);
    if !is_of_program {
        return;
    }
    let Some((scope, key)) = programs::refused(program, id, target) else { return };
    let is_worker = sites::is_worker();
    let site = if is_worker { 0 } else { sites::of_refused_program().get() };
    let is_size = refusal.kind == FailureKind::KernelConfig;
    let failure = Failure {
        requested: if is_size { refusal.needed } else { 0 },
        needed: if is_size { 0 } else { refusal.needed },
        available: refusal.available,
        cores: cores_of(refusal.cores).get(),
        program: key,
        site,
        ..Failure::new(refusal.kind, refusal.space, scope.get())
    };
    if !is_worker {
        report(&failure, caught);
    } else if let Some(mut pending) = pending()
        && pending.is_none()
    {
        *pending = Some(Pending { failure, program: id });
        return;
    }
    programs::end_refused(id);
}

/// A refusal in a thread that compiles for another one.
struct Pending {
    failure: Failure,
    /// The runtime's number of the program.
    program: u64,
}

/// Several programs of a dispatch may be refused, and the dispatch fails with the first.
static PENDING: Mutex<Option<Pending>> = Mutex::new(None);

/// `None`: another thread has it, in this process or in the one that this was forked from.
fn pending() -> Option<MutexGuard<'static, Option<Pending>>> {
    PENDING.try_lock().ok()
}

/// A dispatch failed: a program of it may have been refused in another thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_dispatch_refused(caught: &CaughtText) {
    let Some(refusal) = caught.text().and_then(Refusal::parse) else { return };
    let refused = pending().and_then(|mut it| it.take_if(|pending| pending.failure.kind == refusal.kind));
    if let Some(Pending { failure, program }) = refused {
        report(&Failure { site: sites::of_refused_program().get(), ..failure }, caught);
        programs::end_refused(program);
    }
}

/// Reports a refusal that no dispatch failed with. Called from time to time by the agent's own thread.
pub(crate) fn report_pending() {
    static SEEN: AtomicBool = AtomicBool::new(false);
    // One that was there the last time is not about to be reported.
    let waited = SEEN.load(Ordering::Relaxed);
    let Some(mut pending) = pending() else { return };
    let refused = pending.take_if(|_| waited);
    SEEN.store(pending.is_some(), Ordering::Relaxed);
    drop(pending);
    if let Some(Pending { failure, program }) = refused {
        let _ = agent::report_failure(tracker(), &failure);
        programs::end_refused(program);
    }
}

/// The runtime had no memory for a trace. `mesh_impl` is the mesh's implementation object.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_trace_refused(mesh: u32, mesh_impl: usize, caught: &CaughtText) {
    mark_inherited();
    let refusal = caught.text().and_then(Refusal::parse).filter(|it| it.kind == FailureKind::TraceRegion);
    let Some(refusal) = refusal else { return };
    let Some(scope) = programs::scope_of_mesh(mesh, mesh_impl) else { return };
    let failure = Failure {
        requested: refusal.needed,
        available: refusal.available,
        site: sites::of_refused_program().get(),
        ..Failure::new(refusal.kind, refusal.space, scope.get())
    };
    report(&failure, caught);
}

/// Frees a text that was made for an exception.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_drop_text(caught: &CaughtText) {
    explain::drop_text(caught);
}
