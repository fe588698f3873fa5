//! Traces: while one is captured nothing runs, and a replay runs all of it. After a replay, each core has the program that was
//! captured last for it, so only those are kept.
#![allow(unsafe_code)]

use crate::agent::tracker;
use crate::allocators::mark_inherited;
use crate::programs::{self, owner_key, with_table};
use crate::shim::{
    ProgramFacts, ProgramTarget, TRACE_BEGUN, TRACE_CAPTURED, TRACE_RELEASED, TRACE_REPLAYED,
    ttmem_impl_chips, ttmem_program,
};
use ttmem_client::AllocatorNumber;

/// Slots for traces.
const CAPACITY: usize = 512;
/// Programs that are resident after a replay: each chip of a mesh may have its own.
const MAX_RESIDENT: usize = 512;

/// A trace of a mesh. Zeros: a free slot.
struct Trace {
    owner: u64,
    id: u32,
    queue: u32,
    /// The scope that the trace was reported for; 0: it is being captured.
    scope: u16,
    /// How many of `programs` are used.
    residents: u16,
    dispatches: u64,
    programs: [ResidentProgram; MAX_RESIDENT],
}

/// A program that is resident on some cores after a replay.
#[derive(Clone, Copy)]
struct ResidentProgram {
    id: u64,
    scope: u16,
    cores: [u64; 4],
}

/// All traces. Zeros: none.
pub(crate) struct Traces {
    /// Traces that are being captured.
    capturing: u32,
    used: usize,
    all: [Trace; CAPACITY],
}

impl Traces {
    /// Whether a trace is being captured.
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing > 0
    }

    fn slot(&self, owner: u64, id: u32) -> Option<usize> {
        self.all[..self.used].iter().position(|it| it.owner == owner && it.id == id)
    }

    fn find(&mut self, owner: u64, id: u32) -> Option<&mut Trace> {
        self.slot(owner, id).map(|slot| &mut self.all[slot])
    }

    fn begin(&mut self, owner: u64, id: u32, queue: u32) {
        // A queue captures one trace at a time: an earlier capture of this queue was abandoned.
        for trace in self.all[..self.used].iter_mut().filter(|it| it.owner == owner && it.scope == 0) {
            if trace.queue == queue {
                trace.owner = 0;
                self.capturing -= 1;
            }
        }
        // A full table loses its last trace, not the new one: dispatches into a capture must not count as run.
        let free = self.all[..self.used].iter().position(|it| it.owner == 0);
        let slot = free.unwrap_or(self.used).min(CAPACITY - 1);
        let trace = &mut self.all[slot];
        self.capturing -= u32::from(trace.owner != 0 && trace.scope == 0);
        (trace.owner, trace.id, trace.queue, trace.scope) = (owner, id, queue, 0);
        (trace.residents, trace.dispatches) = (0, 0);
        self.used = self.used.max(slot + 1);
        self.capturing += 1;
    }

    /// Removes the traces of a mesh that is closed.
    pub(crate) fn remove_owner(&mut self, owner: u64) {
        for trace in self.all[..self.used].iter_mut().filter(|it| it.owner == owner) {
            self.capturing -= u32::from(trace.scope == 0);
            trace.owner = 0;
        }
    }

    /// Adds a dispatch to the trace that its queue captures. Returns whether there is one.
    #[inline]
    pub(crate) fn capture(&mut self, target: &ProgramTarget, program: usize, id: u64, scope: u16) -> bool {
        if self.capturing == 0 || !target.is_mesh {
            return false;
        }
        let owner = owner_key(true, target.mesh);
        let is_capturing = |it: &&mut Trace| it.owner == owner && it.queue == target.queue && it.scope == 0;
        let Some(trace) = self.all[..self.used].iter_mut().find(is_capturing) else { return false };
        trace.dispatches += 1;
        let mut facts = ProgramFacts { kernel_bytes: 0, name_len: 0, cores: [0; 4], name: [0; 192] };
        // SAFETY: the runtime has just dispatched it.
        unsafe { ttmem_program(program, &raw mut facts) };
        trace.add_resident(ResidentProgram { id, scope, cores: facts.cores });
        true
    }
}

impl Trace {
    /// Adds the program that was captured last, which replaces the earlier ones on its cores.
    fn add_resident(&mut self, last: ResidentProgram) {
        let mut kept = 0;
        for n in 0..usize::from(self.residents) {
            let mut program = self.programs[n];
            // A program whose cores are unknown stays: whether it is replaced is unknown, too.
            let has_known_cores = program.cores != [0; 4];
            if program.scope == last.scope {
                for (cores, taken) in program.cores.iter_mut().zip(last.cores) {
                    *cores &= !taken;
                }
            }
            let same = program.id == last.id;
            if !same && (program.cores != [0; 4] || !has_known_cores) {
                self.programs[kept] = program;
                kept += 1;
            }
        }
        if kept == MAX_RESIDENT {
            self.programs.copy_within(1.., 0);
            kept -= 1;
        }
        self.programs[kept] = last;
        self.residents = kept as u16 + 1;
    }
}

/// A trace of a mesh was begun, captured, replayed or released. `mesh_impl` is the mesh's implementation object; 0 if that is
/// not needed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_trace(step: u32, mesh: u32, id: u32, queue: u32, mesh_impl: usize) {
    mark_inherited();
    let owner = owner_key(true, mesh);
    with_table(|table| match step {
        TRACE_BEGUN => {
            // From here on, each dispatch may be part of the capture.
            programs::forget_unchanged();
            table.traces.begin(owner, id, queue);
        }
        TRACE_CAPTURED => {
            let mut indexes = [0; 256];
            // SAFETY: the runtime is in a call of this mesh.
            let chips = unsafe { ttmem_impl_chips(mesh_impl, indexes.as_mut_ptr(), indexes.len()) };
            let scope = table.find_or_define_scope(owner, &indexes[..chips.min(indexes.len())]);
            let Some(trace) = table.traces.find(owner, id).filter(|it| it.scope == 0) else { return };
            let dispatches = trace.dispatches;
            match scope {
                Some(scope) => trace.scope = scope.get(),
                None => trace.owner = 0,
            }
            table.traces.capturing -= 1;
            if let Some(scope) = scope {
                let _ = tracker().capture_trace(scope, id, dispatches);
            }
        }
        TRACE_REPLAYED => {
            let Some(slot) = table.traces.slot(owner, id) else { return };
            let &Trace { scope, residents, .. } = &table.traces.all[slot];
            if scope == 0 {
                return;
            }
            let _ = tracker().replay_trace(AllocatorNumber::new(scope), id);
            for n in 0..usize::from(residents) {
                let program = table.traces.all[slot].programs[n].id;
                table.dispatch(program, None);
            }
        }
        TRACE_RELEASED.. => {
            let Some(trace) = table.traces.find(owner, id) else { return };
            let scope = core::mem::take(&mut trace.scope);
            trace.owner = 0;
            if scope != 0 {
                let _ = tracker().release_trace(AllocatorNumber::new(scope), id);
            } else {
                table.traces.capturing -= 1;
            }
        }
    });
}
