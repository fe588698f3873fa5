//! Facts: who holds what, kept exact under any order of input.
//!
//! Input is applied one at a time; whatever the order, totals equal the sums of what is recorded. Figures that follow from
//! facts are the [`Analysis`]'s. It is an argument of [`State::apply`] and [`State::tick`] because some facts are measurements:
//! peaks, history, and comparisons with the runtime's own statistics.

mod allocations;
mod blocked;
mod claims;
mod definitions;
mod fault;
mod growth;
mod keyframe;
mod listing;
mod machine;
mod memory_event;
mod past;
mod peaks;
mod pools;
mod process;
mod sampling;
mod users;

pub use listing::REPORT_ROOM;
pub(crate) use machine::ChipState;
pub(crate) use past::{PastPool, add as add_past, is_reported};
pub(crate) use peaks::{CoreUse, SpacePeak, UsedBy};
pub(crate) use process::{ProcessState, ProgramState};
pub(crate) use sampling::{GROWTH_ROUND_SECONDS, GROWTH_ROUNDS};

use crate::analysis::{Analysis, Tenant};
use crate::event_log::EventLog;
use crate::faults::Faults;
use crate::input::{Allocator, Holding, Input, Process};
use crate::ledger::{Ledger, PoolId, Totals};
use crate::machine::{CapacityOrigin, Chip, CounterReport, Host};
use crate::pairs;
use crate::words::{Basis, ChipId, Fault, KernelClass, Mono, Origin, ProcessId, Scope, Space};
use fault::chip_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_types::limits::MAX_ALLOCATION_BYTES;
pub(crate) use users::{ENTRY_BYTES, Holdings};

/// Limits of what input may add. Beyond a limit input is rejected, with a finding.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Live allocations of one process.
    pub records_per_process: u64,
    /// Live allocations of all processes.
    pub records: u64,
    /// Live allocations of one user.
    pub records_per_user: u64,
    /// Live allocations of one user beyond which those of old clients are rejected. A segment takes more memory of its user for a
    /// record than a reader does; a message takes none.
    pub reported_per_user: u64,
    /// Chips.
    pub chips: usize,
    /// Chips that only processes of one user name.
    pub chips_per_user: usize,
    /// Allocators, core sets and the like, each, of one process.
    pub definitions: usize,
    /// Bytes that all definitions of one user take.
    pub definition_bytes_per_user: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            records_per_process: 1 << 21,
            records: 1 << 23,
            // One process with a million, and 64 with 8,192 each.
            records_per_user: 3 << 19,
            // 64 processes with 8,192 each.
            reported_per_user: 1 << 19,
            chips: 1024,
            // Four meshes of 32.
            chips_per_user: 128,
            definitions: 1 << 16,
            // 64 processes with some 1,500 call sites each.
            definition_bytes_per_user: 36 << 20,
        }
    }
}

/// What an input did, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Recorded; it concerns no single allocation.
    Noted,
    /// Memory is allocated; `references` > 1 if it already was.
    Held {
        /// References to it now.
        references: u32,
    },
    /// The id was already allocated with another size, which counts as freed.
    Replaced {
        /// That size.
        old_bytes: u64,
    },
    /// Memory was freed, or has one reference less.
    Released {
        /// Its space.
        space: Space,
        /// Its recorded size.
        bytes: u64,
        /// References left; 0: it is free.
        references: u32,
        /// For kernels.
        class: KernelClass,
    },
    /// The process has no allocation with that id; it may predate tracking.
    NotHeld {
        /// It was freed shortly before.
        freed_before: bool,
    },
    /// A process exited, an allocator was closed or cleared, or a program ended: what it held is free.
    Reclaimed(Reclaimed),
    /// Rejected.
    Refused(Fault),
    /// The process was never registered, or has exited.
    UnknownProcess,
}

/// What was freed together: number of allocations, and the bytes that they requested on each device and core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Buffers of all kinds.
    pub buffers: (u64, u64),
    /// Circular buffers, dataflow buffers and scratchpads.
    pub cbs: (u64, u64),
    /// Kernels.
    pub kernels: (u64, u64),
    /// Bytes of these kernels over all of their cores.
    pub kernel_core_bytes: u64,
}

impl Reclaimed {
    /// Adds what a pool of a space held.
    fn add(&mut self, space: Space, totals: Totals) {
        let sum = match space {
            Space::Kernel => &mut self.kernels,
            Space::Cb | Space::Dfb | Space::Scratch => &mut self.cbs,
            _ => &mut self.buffers,
        };
        sum.0 += totals.own_count();
        sum.1 += totals.requested;
        if space == Space::Kernel {
            self.kernel_core_bytes += totals.allocated;
        }
    }
}

/// Everything known. Serialised, it is a keyframe: what is restored from it behaves as the original.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct State {
    pub(crate) limits: Limits,
    pub(crate) now: Mono,
    pub(crate) host: Host,
    #[serde(with = "pairs")]
    pub(crate) chips: BTreeMap<ChipId, ChipState>,
    /// Other ids of chips, and their keys.
    #[serde(with = "pairs")]
    pub(crate) names: BTreeMap<ChipId, ChipId>,
    /// Ids by which only processes call chips, and the chips' keys.
    #[serde(skip)]
    claimed: BTreeMap<ChipId, ChipId>,
    pub(crate) counters: Vec<CounterReport>,
    #[serde(with = "pairs")]
    pub(crate) processes: BTreeMap<ProcessId, ProcessState>,
    /// What the processes of each user have together.
    #[serde(skip)]
    users: BTreeMap<Option<u32>, Holdings>,
    pub(crate) ledger: Ledger,
    pub(crate) faults: Faults,
    pub(crate) event_log: EventLog,
    pub(crate) lost: u64,
    /// Changes of programs so far: dispatches, ends, and definitions.
    pub(crate) program_changes: u64,
    /// Changes so far of what the plan of an analysis follows from: pools, allocators and layouts.
    pub(crate) structure: u64,
    /// Changes of sets of cores so far.
    pub(crate) core_sets: u64,
    /// Begin of the current round of growth.
    growth_round: Mono,
    /// The pool that was used last, and by which author: most events go where the one before went.
    #[serde(skip)]
    recent: Option<(Author, Scope, Space, PoolId)>,
    /// Whether usage may differ from the last sample of history.
    unsampled: bool,
    /// `None`: they are not kept.
    #[serde(skip)]
    pub(crate) exited: Option<past::ExitedProcesses>,
}

impl State {
    /// A state without any facts. `seed` should be unpredictable if input is; no output depends on it.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            now: Mono(0),
            host: Host::default(),
            chips: BTreeMap::new(),
            names: BTreeMap::new(),
            claimed: BTreeMap::new(),
            counters: Vec::new(),
            processes: BTreeMap::new(),
            users: BTreeMap::new(),
            ledger: Ledger::new(seed),
            faults: Faults::default(),
            event_log: EventLog::default(),
            lost: 0,
            program_changes: 0,
            structure: 0,
            core_sets: 0,
            growth_round: Mono(0),
            recent: None,
            unsampled: true,
            exited: None,
        }
    }

    /// Applies one input. Never fails: invalid input becomes a finding, and the outcome says so.
    pub fn apply(&mut self, analysis: &mut Analysis, now: Mono, from: Origin, input: Input) -> Outcome {
        self.now = self.now.max(now);
        self.ledger.now = self.now;
        let unsampled = std::mem::replace(&mut self.unsampled, true);
        let by = match from {
            Origin::Process(id, basis) => Some(Author { id, basis }),
            Origin::Machine => None,
        };
        match (input, by) {
            // By far the most frequent, and of the process before: found without a search.
            (Input::Alloc(alloc), Some(by)) if self.is_recent(by) => self.alloc(by, &alloc),
            (Input::Free(free), Some(by)) if self.is_recent(by) => self.free(analysis, by, free),
            (Input::Host(host), _) => {
                self.host = host;
                Outcome::Noted
            }
            (Input::Chip(chip), None) => self.define_chip(*chip),
            (Input::ChipRemoved(chip), None) => self.remove_chip(chip),
            (Input::Sensors(chip, reading), None) => {
                // Readings come every second and change no usage.
                self.unsampled = unsampled;
                self.set_sensors(chip, *reading)
            }
            (Input::OpenedByHidden(chip, times), None) => {
                let chip = self.resolve(chip);
                if let Some(state) = self.chips.get_mut(&chip) {
                    state.opened_by_hidden = times;
                }
                Outcome::Noted
            }
            (Input::Counters(reports), None) => self.set_counters(reports),
            (Input::Registered(info), Some(by)) => self.register_process(by, *info),
            (input, Some(by)) if self.is_recent(by) || self.processes.contains_key(&by.id) => {
                let outcome = self.apply_to(analysis, by, input);
                self.count_holdings(by.id);
                outcome
            }
            _ => Outcome::UnknownProcess,
        }
    }

    fn is_recent(&self, by: Author) -> bool {
        self.recent.is_some_and(|(recent, ..)| recent == by)
    }

    /// The time of the last input.
    pub fn now(&self) -> Mono {
        self.now
    }

    /// A chip, by any of its ids.
    pub fn chip(&self, id: ChipId) -> Option<&Chip> {
        self.chips.get(&self.resolve(id)).map(|state| &state.chip)
    }

    /// Whether any chip is simulated.
    pub fn is_simulated(&self) -> bool {
        self.chips().any(|chip| chip.capacity.is_some_and(|c| c.origin == CapacityOrigin::Simulated))
    }

    /// All chips.
    pub fn chips(&self) -> impl Iterator<Item = &Chip> {
        self.chips.values().map(|state| &state.chip)
    }

    /// Live allocations of all processes.
    pub fn live_records(&self) -> usize {
        self.ledger.live()
    }

    /// Live allocations of a process.
    pub fn live_records_of(&self, process: ProcessId) -> u64 {
        let pools = self.processes.get(&process).into_iter().flat_map(|it| it.pools.values());
        pools.map(|&pool| self.ledger.pool(pool).totals.count).sum()
    }

    fn register_process(&mut self, by: Author, info: Process) -> Outcome {
        match self.processes.get_mut(&by.id) {
            Some(known) => {
                let user = known.info.uid;
                let counted = std::mem::take(&mut known.counted);
                known.info = info;
                known.basis = known.basis.min(by.basis);
                self.replace_holdings(user, counted, Holdings::default());
                self.count_holdings(by.id);
            }
            None => {
                self.event_log.process_started(self.now, by.id, &info);
                self.processes.insert(by.id, ProcessState::new(info, by.basis));
            }
        }
        Outcome::Noted
    }

    /// Applies input of a registered process.
    #[inline(never)]
    fn apply_to(&mut self, analysis: &mut Analysis, by: Author, input: Input) -> Outcome {
        match input {
            Input::Alloc(alloc) => self.alloc(by, &alloc),
            Input::Free(free) => self.free(analysis, by, free),
            Input::Exited => self.exit(analysis, by.id),
            Input::Chip(chip) => self.name_chip(by, *chip),
            Input::Allocator(allocator) => self.define_allocator(by, allocator),
            Input::AllocatorClosed(allocator) => self.close_allocator(analysis, by, allocator),
            Input::AllocatorCleared(allocator) => self.clear_allocator(analysis, by, allocator),
            Input::Cores(number, cores) => self.define_cores(by, number, cores),
            Input::Program(program) => self.define_program(analysis, by, &program),
            Input::ProgramEnded(scope, program) => self.end_program(analysis, by, scope, program),
            Input::Trace(trace) => self.define_trace(by, trace),
            Input::TraceEnded(scope, trace) => self.end_trace(by, scope, trace),
            Input::Levels(chip, held) => self.set_levels(by, chip, &held),
            Input::Opened(chips) => self.set_open_chips(by, &chips),
            Input::Audit(audit) => self.compare(analysis, by, &audit),
            Input::Tracked(how) => {
                if let Some(process) = self.processes.get_mut(&by.id) {
                    process.tracked = Some(how);
                }
                Outcome::Noted
            }
            Input::Mark(mark) => {
                self.mark(by.id, mark);
                Outcome::Noted
            }
            Input::Fault(report) => self.fault(by, report),
            Input::Failure(failure) => self.fail(by, *failure),
            Input::ListingBegun(allocator) => self.begin_listing(analysis, by, allocator),
            Input::Unlisted { scope, space, holding } => match self.pool(by, scope, space) {
                Ok(pool) => {
                    let most = |n: u64| n.min(MAX_ALLOCATION_BYTES);
                    let (requested, allocated) = (most(holding.requested), most(holding.allocated));
                    let count = holding.count.min(self.limits.records);
                    self.ledger.set_unlisted(pool, Holding { requested, allocated, count });
                    Outcome::Noted
                }
                Err(fault) => self.refuse(by, fault, None, Some(space), holding.requested),
            },
            Input::Peak { scope, space, bytes } => {
                if let Ok(pool) = self.pool(by, scope, space) {
                    self.ledger.set_peak(pool, bytes.map(|bytes| bytes.min(MAX_ALLOCATION_BYTES)));
                }
                Outcome::Noted
            }
            Input::ProgramNamed(number, text) => self.name_program(by, number, text),
            Input::Site(definition) => self.define_site(by, *definition),
            Input::Progress { sequence, exact } => {
                if let Some(process) = self.processes.get_mut(&by.id) {
                    (process.sequence, process.is_complete) = (Some(sequence), exact);
                    // It may have been registered because it has a chip open.
                    process.basis = process.basis.min(by.basis);
                }
                Outcome::Noted
            }
            Input::Lost(records) => {
                if let Some(process) = self.processes.get_mut(&by.id) {
                    process.lost = process.lost.saturating_add(records);
                }
                self.lost = self.lost.saturating_add(records);
                self.note(Fault::Lost, by, None, None, 0, records, 0);
                Outcome::Noted
            }
            // Those of the machine, and new processes, are handled by `apply`.
            Input::Host(_)
            | Input::ChipRemoved(_)
            | Input::Sensors(..)
            | Input::OpenedByHidden(..)
            | Input::Counters(_)
            | Input::Registered(_) => Outcome::Noted,
        }
    }

    /// Removes a process and everything that it allocated.
    fn exit(&mut self, analysis: &mut Analysis, id: ProcessId) -> Outcome {
        self.recent = None;
        let scopes: BTreeSet<Scope> = match self.processes.get(&id) {
            Some(process) => process.programs.keys().map(|&(scope, _)| scope).collect(),
            None => BTreeSet::new(),
        };
        for scope in scopes {
            self.record_dispatches(analysis, Tenant { process: id, scope });
        }
        let pools: Vec<PoolId> =
            self.processes.get(&id).iter().flat_map(|it| it.pools.values().copied()).collect();
        let held: Vec<u64> = pools.iter().map(|&pool| analysis.of(self).bytes_in_pool(pool)).collect();
        self.structure += 1;
        let Some(mut process) = self.processes.remove(&id) else { return Outcome::UnknownProcess };
        self.replace_holdings(process.info.uid, process.counted, Holdings::default());
        let claims = process.claims;
        let mut gone = Reclaimed::default();
        // On all devices and cores together.
        let mut bytes = 0u64;
        let pools = std::mem::take(&mut process.pools);
        for ((&(scope, space, _), &pool), per_device) in pools.iter().zip(held) {
            self.keep_peak(&process, scope, pool);
            self.note_past(&mut process, scope, pool);
            gone.add(space, self.ledger.close(pool));
            let chips = chips_in(&process.allocators, &scope).len() as u64;
            bytes = bytes.saturating_add(per_device.saturating_mul(chips));
        }
        let count = gone.buffers.0 + gone.cbs.0 + gone.kernels.0;
        self.event_log.process_exited(self.now, id, &process.info, count, bytes);
        if count > 0 {
            self.faults.name(id, &process.info);
            self.note(Fault::Reclaimed, Author { id, basis: process.basis }, None, None, bytes, count, 0);
        }
        self.keep_process(id, process);
        if self.exited.is_none() && claims > 0 {
            self.forget_claims(id);
        }
        Outcome::Reclaimed(gone)
    }
}

/// The process that input comes from, and its basis.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Author {
    id: ProcessId,
    basis: Basis,
}

/// The chips of a scope.
pub(crate) fn chips_in<'a>(allocators: &'a BTreeMap<u32, Allocator>, scope: &'a Scope) -> &'a [ChipId] {
    match scope {
        Scope::Chip(chip) => std::slice::from_ref(chip),
        Scope::Allocator(number) => allocators.get(number).map_or(&[], |allocator| &allocator.chips),
    }
}

/// The pid of a process; `None` if it is not visible from this PID namespace.
pub(crate) fn visible(id: ProcessId) -> Option<u32> {
    (id.pid != 0).then_some(id.pid)
}

#[cfg(test)]
mod tests;
