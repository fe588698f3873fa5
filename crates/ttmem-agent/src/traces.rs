//! Traces: while one is captured nothing runs, and when it is replayed all of it does. What is left on each core then is
//! what was captured last for it, so that is all that is kept.
#![allow(unsafe_code)]

use crate::agent::tracker;
use crate::allocators::settle;
use crate::programs::{owner, with};
use crate::shim::{
    ProgramFacts, TRACE_BEGUN, TRACE_CAPTURED, TRACE_RELEASED, TRACE_REPLAYED, Where, ttmem_impl_chips,
    ttmem_program,
};
use ttmem_client::AllocatorNumber;

/// Traces that can be known at a time.
const ROOM: usize = 512;
/// Programs that the replay of one leaves behind: of a mesh, each chip may have some of its own.
const LEFT: usize = 512;

/// Zeros: nobody's place.
struct Trace {
    owner: u64,
    id: u32,
    queue: u32,
    /// Where it was told; 0: it is being captured.
    scope: u16,
    left: u16,
    dispatches: u64,
    programs: [Left; LEFT],
}

/// A program that is left on some cores.
#[derive(Clone, Copy)]
struct Left {
    id: u64,
    scope: u16,
    cores: [u64; 4],
}

/// All of them. Zeros: none.
pub(crate) struct Traces {
    /// How many are being captured.
    capturing: u32,
    used: usize,
    all: [Trace; ROOM],
}

impl Traces {
    fn place(&self, owner: u64, id: u32) -> Option<usize> {
        self.all[..self.used].iter().position(|it| it.owner == owner && it.id == id)
    }

    fn find(&mut self, owner: u64, id: u32) -> Option<&mut Trace> {
        self.place(owner, id).map(|place| &mut self.all[place])
    }

    fn begin(&mut self, owner: u64, id: u32, queue: u32) {
        // A queue captures one at a time: what it had begun before came to nothing.
        for trace in self.all[..self.used].iter_mut().filter(|it| it.owner == owner && it.scope == 0) {
            if trace.queue == queue {
                trace.owner = 0;
                self.capturing -= 1;
            }
        }
        // Without room the newest makes way: what is captured must be known not to run.
        let vacant = self.all[..self.used].iter().position(|it| it.owner == 0);
        let place = vacant.unwrap_or(self.used).min(ROOM - 1);
        let trace = &mut self.all[place];
        self.capturing -= u32::from(trace.owner != 0 && trace.scope == 0);
        (trace.owner, trace.id, trace.queue, trace.scope) = (owner, id, queue, 0);
        (trace.left, trace.dispatches) = (0, 0);
        self.used = self.used.max(place + 1);
        self.capturing += 1;
    }

    /// A mesh is closed, and its traces with it.
    pub(crate) fn forget(&mut self, owner: u64) {
        for trace in self.all[..self.used].iter_mut().filter(|it| it.owner == owner) {
            self.capturing -= u32::from(trace.scope == 0);
            trace.owner = 0;
        }
    }

    /// Whether what is dispatched on a mesh's queue goes into a trace instead; then it is noted there.
    #[inline]
    pub(crate) fn capture(&mut self, place: &Where, program: usize, id: u64, scope: u16) -> bool {
        if self.capturing == 0 || !place.is_mesh {
            return false;
        }
        let owner = owner(true, place.mesh);
        let captures = |it: &&mut Trace| it.owner == owner && it.queue == place.queue && it.scope == 0;
        let Some(trace) = self.all[..self.used].iter_mut().find(captures) else { return false };
        trace.dispatches += 1;
        let mut facts = ProgramFacts { kernel_bytes: 0, name_len: 0, cores: [0; 4], name: [0; 192] };
        // SAFETY: the runtime has just dispatched it.
        unsafe { ttmem_program(program, &raw mut facts) };
        trace.leave(Left { id, scope, cores: facts.cores });
        true
    }
}

impl Trace {
    /// The last program on its cores, of all so far.
    fn leave(&mut self, last: Left) {
        let mut kept = 0;
        for n in 0..usize::from(self.left) {
            let mut it = self.programs[n];
            // Of one whose cores are not known, it is not known either when nothing of it is left.
            let known = it.cores != [0; 4];
            if it.scope == last.scope {
                for (cores, taken) in it.cores.iter_mut().zip(last.cores) {
                    *cores &= !taken;
                }
            }
            let same = it.id == last.id;
            if !same && (it.cores != [0; 4] || !known) {
                self.programs[kept] = it;
                kept += 1;
            }
        }
        if kept == LEFT {
            self.programs.copy_within(1.., 0);
            kept -= 1;
        }
        self.programs[kept] = last;
        self.left = kept as u16 + 1;
    }
}

/// Something happened to a trace of a mesh. `behind` is what knows the mesh's chips; 0 if that is not needed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ttmem_agent_trace(step: u32, mesh: u32, id: u32, queue: u32, behind: usize) {
    settle();
    let owner = owner(true, mesh);
    with(|table| match step {
        TRACE_BEGUN => table.traces.begin(owner, id, queue),
        TRACE_CAPTURED => {
            let mut indexes = [0; 256];
            // SAFETY: the runtime is in a call of this mesh.
            let chips = unsafe { ttmem_impl_chips(behind, indexes.as_mut_ptr(), indexes.len()) };
            let scope = table.scope(owner, &indexes[..chips.min(indexes.len())]);
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
            let Some(place) = table.traces.place(owner, id) else { return };
            let &Trace { scope, left, .. } = &table.traces.all[place];
            if scope == 0 {
                return;
            }
            let _ = tracker().replay_trace(AllocatorNumber::new(scope), id);
            for n in 0..usize::from(left) {
                let program = table.traces.all[place].programs[n].id;
                table.dispatch(program);
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
