//! Who holds what. Events go in one at a time; whatever their order, totals stay the sums of what is recorded.

mod definitions;
mod machine;

use crate::event::{
    Alloc, Allocator, Audit, Banks, Event, Extent, FaultReport, Free, Holding, Name, OutOfMemory, Process,
    SensorReading, Trace, Tracked,
};
use crate::event_log::{EventLog, Level};
use crate::findings::{Findings, Request, Subject, Tally};
use crate::footprint::CoreSet;
use crate::history::{SensorSeries, Series};
use crate::label::Label;
use crate::ledger::{self, Entry, Ledger, Nature, PoolId, PoolKey, Slot};
use crate::machine::{CapacityOrigin, Chip, Host, RegionReport};
use crate::peaks::{CorePeaks, High, has_grown};
use crate::programs::{Derived, Tenant};
use crate::snapshot::Holder;
use crate::view::visible;
use crate::words::{Basis, ChipId, Fault, KernelClass, Mono, Origin, ProcessId, Scope, Space};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use ttmem_types::charge;
use ttmem_types::limits::{MAX_ALLOCATION_BYTES, REMEMBERED_FREES};

/// What input may make the state keep. Beyond a limit input is refused, with a finding.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Live allocations of one process.
    pub records_per_process: u64,
    /// Live allocations of all processes.
    pub records: u64,
    /// Chips.
    pub chips: usize,
    /// Allocators, core sets and the like, each, of one process.
    pub definitions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { records_per_process: 1 << 21, records: 1 << 23, chips: 1024, definitions: 1 << 16 }
    }
}

/// Sizes that circular buffers of one program may have at one address; all are looked at for each.
const MAX_VARIANTS: usize = 1024;

/// Rounds of this length without a single fall are growth...
const GROWTH_ROUND_NS: u64 = 10 * Mono::SECOND;
/// ...after this many.
pub(crate) const GROWTH_ROUNDS: u32 = 6;

/// What the state made of an event, for logs that say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that concerns a single allocation.
    Noted,
    /// Memory is held; `references` > 1 where it already was.
    Held {
        /// How many times it is held now.
        references: u32,
    },
    /// The id was already held with another size, which is taken as freed.
    Replaced {
        /// That size.
        old_bytes: u64,
    },
    /// Memory was given back, or held one time less.
    Released {
        /// What it was.
        space: Space,
        /// Its recorded size.
        bytes: u64,
        /// How many times it is still held; 0: it is free.
        references: u32,
        /// For kernels.
        class: KernelClass,
    },
    /// Nothing with that id is held by that process; it may have been allocated before tracking began.
    NotHeld {
        /// It was held, and freed a moment ago.
        freed_before: bool,
    },
    /// The process is gone.
    Reclaimed(Reclaimed),
    /// Not taken in.
    Refused(Fault),
    /// The process was never born, or is gone.
    NobodysEvent,
}

/// What a dead process had held: number and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Buffers of all kinds.
    pub buffers: (u64, u64),
    /// Circular buffers and their like.
    pub cbs: (u64, u64),
    /// Kernels.
    pub kernels: (u64, u64),
}

pub(crate) struct ChipState {
    pub(crate) chip: Chip,
    pub(crate) peaks: BTreeMap<Space, High>,
    pub(crate) core_peaks: CorePeaks,
    pub(crate) dram: Series<u64>,
    pub(crate) l1: Series<u64>,
    pub(crate) sensors: SensorReading,
    pub(crate) sensed: SensorSeries,
    /// What it was really called besides its key.
    pub(crate) called: BTreeSet<ChipId>,
    /// How full its DRAM and its L1 were said to be.
    filled: [Level; 2],
    /// It left the bus.
    pub(crate) gone: bool,
    /// How often it is open by processes that cannot be seen.
    pub(crate) open_unseen: u32,
}

impl ChipState {
    fn new(chip: Chip) -> Self {
        let (peaks, core_peaks, dram, l1, sensors, sensed, called, filled, gone, open_unseen) =
            Default::default();
        Self { chip, peaks, core_peaks, dram, l1, sensors, sensed, called, filled, gone, open_unseen }
    }
}

pub(crate) struct ProcessState {
    pub(crate) info: Process,
    pub(crate) pools: BTreeMap<(Scope, Space, Basis), PoolId>,
    pub(crate) allocators: BTreeMap<u32, Allocator>,
    pub(crate) cores: BTreeMap<u32, CoreSet>,
    pub(crate) programs: BTreeMap<(Scope, u32), ProgramState>,
    pub(crate) traces: BTreeMap<(Scope, u32), Trace>,
    pub(crate) audits: BTreeMap<(u32, Space), Compared>,
    pub(crate) tracked: Option<Tracked>,
    /// The best way it was heard of by.
    pub(crate) basis: Basis,
    /// The chips it has open, as far as the kernel says.
    pub(crate) opened: BTreeSet<ChipId>,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    /// How far its source has followed it, where it counts its events.
    pub(crate) sequence: Option<u64>,
    /// Whether its source last saw all of it.
    pub(crate) seen_exactly: bool,
    pub(crate) names: BTreeMap<Name, String>,
    /// [`State::program_changes`] after its own last one.
    pub(crate) program_changes: u64,
    /// When the last of its traces was captured that was told of: a listing names them again.
    trace_told: Option<Mono>,
    records: u64,
    freed: VecDeque<(Scope, Space, u64)>,
}

/// A program, and what has become of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramState {
    /// Number of the set of cores it runs on; 0: those where it has something.
    pub(crate) cores: u32,
    pub(crate) site: u32,
    pub(crate) class: KernelClass,
    pub(crate) dispatches: u64,
    /// When it was last dispatched; of two at the same moment, the larger number was later.
    pub(crate) last: Option<(Mono, u64)>,
    /// The most buffers there were at a dispatch, on each core, and when; not compared yet with what there was before.
    pub(crate) unsettled: Option<(u64, Mono)>,
    /// The most that were compared.
    pub(crate) settled: Option<u64>,
}

/// The last audit of one allocator's space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) theirs: Audit,
    pub(crate) drift: Drift,
}

/// Ours minus the allocator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    pub(crate) allocated: i64,
    /// Not known without the bank layout, as the next.
    pub(crate) free: Option<i64>,
    pub(crate) largest_free: Option<i64>,
}

impl Drift {
    pub(crate) fn is_zero(self) -> bool {
        self.allocated == 0 && self.free.unwrap_or(0) == 0 && self.largest_free.unwrap_or(0) == 0
    }
}

fn difference(ours: u64, theirs: u64) -> i64 {
    let drift = i128::from(ours) - i128::from(theirs);
    drift.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Everything known.
pub struct State {
    pub(crate) limits: Limits,
    pub(crate) now: Mono,
    pub(crate) host: Host,
    pub(crate) chips: BTreeMap<ChipId, ChipState>,
    /// Other names of chips, and their keys.
    pub(crate) names: BTreeMap<ChipId, ChipId>,
    pub(crate) regions: Vec<RegionReport>,
    pub(crate) processes: BTreeMap<ProcessId, ProcessState>,
    pub(crate) ledger: Ledger,
    pub(crate) findings: Findings,
    pub(crate) event_log: EventLog,
    pub(crate) lost: u64,
    pub(crate) derived: RefCell<Derived>,
    /// Changes of programs so far: dispatches, ends, and what they are.
    pub(crate) program_changes: u64,
    growth_judged: Mono,
    /// The pool that was used last, and by whom: most events go where the one before went.
    recent: Option<(Author, Scope, Space, PoolId)>,
    /// Whether usage may differ from what history last took.
    unsampled: bool,
}

impl State {
    /// Nothing known yet. `seed` should be unpredictable where input is; no output depends on it.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            now: Mono(0),
            host: Host::default(),
            chips: BTreeMap::new(),
            names: BTreeMap::new(),
            regions: Vec::new(),
            processes: BTreeMap::new(),
            ledger: Ledger::new(seed),
            findings: Findings::default(),
            event_log: EventLog::default(),
            lost: 0,
            derived: RefCell::default(),
            program_changes: 0,
            growth_judged: Mono(0),
            recent: None,
            unsampled: true,
        }
    }

    /// Takes in one event. Never fails: odd input becomes a finding, and the outcome says so.
    pub fn apply(&mut self, now: Mono, from: Origin, event: Event) -> Outcome {
        self.now = self.now.max(now);
        self.ledger.now = self.now;
        let unsampled = std::mem::replace(&mut self.unsampled, true);
        let by = match from {
            Origin::Process(id, basis) => Some(Author { id, basis }),
            Origin::Machine => None,
        };
        match (event, by) {
            (Event::Host(host), _) => {
                self.host = host;
                Outcome::Noted
            }
            (Event::Chip(chip), by) => self.define_chip(chip, by.is_none()),
            (Event::ChipGone(chip), None) => self.lose_chip(chip),
            (Event::Sensors(chip, reading), None) => {
                // They come every second, and change no usage.
                self.unsampled = unsampled;
                self.sense(chip, *reading)
            }
            (Event::OpenUnseen(chip, times), None) => {
                let chip = self.resolve(chip);
                if let Some(state) = self.chips.get_mut(&chip) {
                    state.open_unseen = times;
                }
                Outcome::Noted
            }
            (Event::Regions(regions), None) => self.report_regions(regions),
            (Event::Born(info), Some(by)) => self.bear(by, info),
            (event, Some(by)) if self.is_recent(by) || self.processes.contains_key(&by.id) => {
                self.apply_to(by, event)
            }
            _ => Outcome::NobodysEvent,
        }
    }

    fn is_recent(&self, by: Author) -> bool {
        self.recent.is_some_and(|(recent, ..)| recent == by)
    }

    /// The time of the last input.
    pub fn now(&self) -> Mono {
        self.now
    }

    /// Time passes: old findings go, history takes a sample, growth is judged.
    pub fn tick(&mut self, now: Mono) {
        self.now = self.now.max(now);
        self.findings.expire(self.now);
        self.forget_gone_chips();
        self.judge_growth();
        self.sample();
    }

    /// What is known of a chip, by any of its names.
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

    fn bear(&mut self, by: Author, info: Process) -> Outcome {
        match self.processes.get_mut(&by.id) {
            Some(known) => {
                known.info = info;
                known.basis = known.basis.min(by.basis);
            }
            None => {
                self.event_log.came(self.now, by.id, &info);
                self.processes.insert(by.id, ProcessState::new(info, by.basis));
            }
        }
        Outcome::Noted
    }

    /// An event of a process that is known.
    #[inline]
    fn apply_to(&mut self, by: Author, event: Event) -> Outcome {
        match event {
            Event::Alloc(alloc) => self.alloc(by, &alloc),
            Event::Free(free) => self.free(by, free),
            Event::Exited => self.exit(by.id),
            Event::Allocator(allocator) => self.define_allocator(by, allocator),
            Event::AllocatorClosed(allocator) => self.close_allocator(by, allocator),
            Event::AllocatorCleared(allocator) => self.clear_allocator(by, allocator),
            Event::Cores(number, cores) => self.define_cores(by, number, cores),
            Event::Program(program) => self.note_program(by, &program),
            Event::ProgramEnded(scope, program) => self.end_program(by, scope, program),
            Event::Trace(trace) => self.note_trace(by, trace),
            Event::TraceEnded(scope, trace) => self.end_trace(by, scope, trace),
            Event::Levels(chip, held) => self.set_levels(by, chip, &held),
            Event::Opened(chips) => self.open_chips(by, &chips),
            Event::Audit(audit) => self.audit(by, &audit),
            Event::Tracked(how) => {
                if let Some(process) = self.processes.get_mut(&by.id) {
                    process.tracked = Some(how);
                }
                Outcome::Noted
            }
            Event::Fault(report) => self.fault(by, report),
            Event::OutOfMemory(failure) => self.out_of_memory(by, &failure),
            Event::Relisted(allocator) => self.relist(by, allocator),
            Event::Unlisted { scope, space, holding } => match self.pool(by, scope, space) {
                Ok(pool) => {
                    let most = |n: u64| n.min(MAX_ALLOCATION_BYTES);
                    let (requested, allocated) = (most(holding.requested), most(holding.allocated));
                    let count = holding.count.min(self.limits.records);
                    self.ledger.set_unlisted(pool, Holding { requested, allocated, count });
                    Outcome::Noted
                }
                Err(fault) => self.refuse(by, fault, None, Some(space), holding.requested),
            },
            Event::Peak { scope, space, bytes } => {
                if let Ok(pool) = self.pool(by, scope, space) {
                    self.ledger.set_peak(pool, bytes.map(|bytes| bytes.min(MAX_ALLOCATION_BYTES)));
                }
                Outcome::Noted
            }
            Event::Named(name, text) => self.define_name(by, name, text),
            Event::Seen { sequence, exactly } => {
                if let Some(process) = self.processes.get_mut(&by.id) {
                    (process.sequence, process.seen_exactly) = (Some(sequence), exactly);
                    // It may have been met as one that merely has a chip open.
                    process.basis = process.basis.min(by.basis);
                }
                Outcome::Noted
            }
            Event::Lost(records) => {
                if let Some(process) = self.processes.get_mut(&by.id) {
                    process.lost = process.lost.saturating_add(records);
                }
                self.lost = self.lost.saturating_add(records);
                self.note(Fault::Lost, by, None, None, 0, records, 0);
                Outcome::Noted
            }
            // The machine's, and births, went elsewhere.
            Event::Host(_)
            | Event::Chip(_)
            | Event::ChipGone(_)
            | Event::Sensors(..)
            | Event::OpenUnseen(..)
            | Event::Regions(_)
            | Event::Born(_) => Outcome::Noted,
        }
    }

    fn alloc(&mut self, by: Author, alloc: &Alloc) -> Outcome {
        let Alloc { scope, space, id, requested, extent, .. } = *alloc;
        let charged = extent.map_or(0, |e| charge(e.bytes_per_bank, e.banks).unwrap_or(0).max(e.occupied));
        let refusal = if requested == 0 {
            Some(Fault::ZeroSize)
        } else if requested.max(charged) > MAX_ALLOCATION_BYTES {
            Some(Fault::TooLarge)
        } else if space != Space::Kernel && id.checked_add(requested).is_none() {
            Some(Fault::BeyondAddresses)
        } else {
            None
        };
        // What is refused opens no pool.
        let pool = match refusal.map_or_else(|| self.pool(by, scope, space), Err) {
            Ok(pool) => pool,
            Err(fault) => return self.refuse_in(by, fault, scope, space, requested),
        };
        let extent = extent.unwrap_or(Extent { occupied: 0, bytes_per_bank: 0, banks: 0 });
        let mut wanted = ledger::entry(id, requested, alloc.at.unwrap_or(self.now).0);
        wanted.occupied = extent.occupied;
        wanted.bytes_per_bank = extent.bytes_per_bank;
        wanted.banks = extent.banks;
        wanted.cores = alloc.cores;
        wanted.program = alloc.program;
        wanted.site = alloc.site;
        wanted.layout = alloc.layout;
        wanted.nature = Nature::new(alloc.class, alloc.uncertainty);
        let same = |held: &Entry| {
            held.requested == wanted.requested
                && held.bytes_per_bank == wanted.bytes_per_bank
                && held.program == wanted.program
                && held.cores == wanted.cores
        };
        let mut variants = 0;
        let held: Option<(Slot, bool)> = if space.is_stacked() {
            let found = self.ledger.find(pool, id, alloc.program).map(|(slot, held)| (slot, same(held)));
            found.inspect(|_| variants += 1).find(|&(_, same)| same)
        } else {
            self.ledger.find_one(pool, id).map(|slot| (slot, same(self.ledger.get(slot))))
        };
        let mut old_bytes = None;
        match held {
            Some((slot, true)) => return Outcome::Held { references: self.ledger.retain(slot) },
            Some((slot, false)) => {
                let old = *self.ledger.get(slot);
                self.ledger.remove(slot);
                self.note(Fault::Replaced, by, chip_of(scope), Some(space), old.requested, 1, id);
                old_bytes = Some(old.requested);
            }
            None => {
                let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::NobodysEvent };
                let limit = if process.records >= self.limits.records_per_process {
                    Some(Fault::ProcessLimit)
                } else if variants >= MAX_VARIANTS {
                    Some(Fault::VariantLimit)
                } else if self.ledger.live() as u64 >= self.limits.records {
                    Some(Fault::TotalLimit)
                } else {
                    None
                };
                if let Some(why) = limit {
                    return self.refuse_in(by, why, scope, space, requested);
                }
                process.records += 1;
            }
        }
        self.ledger.insert(pool, wanted, alloc.at.is_none());
        if space.is_program() && alloc.program != 0 {
            self.unsettle(by, scope, alloc.program);
        }
        match old_bytes {
            Some(old_bytes) => Outcome::Replaced { old_bytes },
            None => Outcome::Held { references: 1 },
        }
    }

    fn free(&mut self, by: Author, free: Free) -> Outcome {
        let Free { scope, space, id, program, size, cores } = free;
        let spaces = space.as_ref().map_or(&Space::BUFFERS[..], std::slice::from_ref);
        let mut best: Option<((bool, bool, u64), Slot)> = None;
        let mut kinds = 0;
        for &space in spaces {
            let recent = self.recent.filter(|&(who, of, what, _)| (who, of, what) == (by, scope, space));
            let pool = match recent {
                Some((.., pool)) => pool,
                None => {
                    let process = self.processes.get(&by.id);
                    match process.and_then(|it| it.pools.get(&(scope, space, by.basis))) {
                        Some(&pool) => pool,
                        None => continue,
                    }
                }
            };
            let mut found = false;
            let mut consider = |slot: Slot, held: &Entry| {
                if held.program != program {
                    return;
                }
                found = true;
                // The one of the size named, on the cores named, else the newest.
                let size_fits = size.is_none_or(|size| size == held.requested);
                let rank = (size_fits, cores == 0 || cores == held.cores, held.born);
                if best.is_none_or(|(best, _)| rank > best) {
                    best = Some((rank, slot));
                }
            };
            if space.is_stacked() {
                self.ledger.find(pool, id, program).for_each(|(slot, held)| consider(slot, held));
            } else if let Some(slot) = self.ledger.find_one(pool, id) {
                consider(slot, self.ledger.get(slot));
            }
            kinds += usize::from(found);
        }
        let chip = chip_of(scope);
        let Some(((size_fits, _, _), slot)) = best else {
            let freed = self.processes.get(&by.id).into_iter().flat_map(|process| &process.freed);
            let mut freed = freed.filter(|(of, kind, _)| *of == scope && spaces.contains(kind));
            let freed_before = freed.any(|&(.., freed)| freed == id);
            let fault = if freed_before { Fault::DoubleFree } else { Fault::UnknownFree };
            self.note(fault, by, chip, space, size.unwrap_or(0), 1, id);
            return Outcome::NotHeld { freed_before };
        };
        let held = *self.ledger.get(slot);
        let pool = self.ledger.pool(held.pool());
        let space = pool.key.space;
        if has_grown(pool.used(), pool.looked_at) {
            self.note_high_of(held.pool());
        }
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::NobodysEvent };
        let references = self.ledger.release(slot);
        if references == 0 {
            process.records -= 1;
            if process.freed.len() == REMEMBERED_FREES {
                process.freed.pop_front();
            }
            process.freed.push_back((scope, space, id));
        }
        if kinds > 1 {
            self.note(Fault::AmbiguousFree, by, chip, None, held.requested, 1, id);
        }
        if !size_fits {
            self.note(Fault::SizeMismatch, by, chip, Some(space), held.requested, 1, id);
        }
        Outcome::Released { space, bytes: held.requested, references, class: held.nature.class() }
    }

    fn fault(&mut self, by: Author, report: FaultReport) -> Outcome {
        let FaultReport { fault, count, id } = report;
        // Whether an address was allocated again with the same size or another is one finding.
        let fault = if fault == Fault::StillHeld { Fault::Replaced } else { fault };
        if fault == Fault::OutOfMemory {
            let (chips, space, largest_free_bytes_per_bank) = (Vec::new(), None, None);
            let (requested, at) = (id, self.now);
            let failure = OutOfMemory { chips, space, requested, largest_free_bytes_per_bank, at, count };
            return self.out_of_memory(by, &failure);
        }
        self.note(fault, by, None, None, 0, count, id);
        if !fault.is_refusal() {
            return Outcome::Noted;
        }
        // What is only not described is accounted for all the same; what cannot be without it is refused itself.
        let process = self.processes.get_mut(&by.id).filter(|_| fault != Fault::DefinitionsFull);
        if let Some(process) = process {
            process.refused = process.refused.saturating_add(count);
        }
        Outcome::Refused(fault)
    }

    fn out_of_memory(&mut self, by: Author, failure: &OutOfMemory) -> Outcome {
        let Some(process) = self.processes.get(&by.id) else { return Outcome::NobodysEvent };
        self.findings.name(by.id, &process.info);
        let label = Label::new(by.id, &process.info);
        let resolved: Vec<ChipId> = failure.chips.iter().map(|&chip| self.resolve(chip)).collect();
        let chips = self.numbered(&resolved);
        let chip = chips.values().next().copied().filter(|_| chips.len() == 1);
        let subject = Subject { fault: Fault::OutOfMemory, process: Some(by.id), chip, space: failure.space };
        let request = Request {
            devices: chips.keys().copied().collect(),
            bytes: failure.requested,
            largest_free_bytes_per_bank: failure.largest_free_bytes_per_bank,
        };
        // A clock that is ahead of ours is the writer's.
        let at = failure.at.min(self.now);
        self.findings.add_failure(self.now, subject, at, failure.count, request.clone());
        let tally =
            Tally { count: failure.count, bytes: request.bytes, request: Some(request), ..Tally::new(at) };
        self.event_log.out_of_memory(subject, label, chips, tally);
        Outcome::Noted
    }

    /// Forgets what a process holds of an allocator, but not that it had it.
    fn relist(&mut self, by: Author, allocator: u32) -> Outcome {
        let scope = Scope::Allocator(allocator);
        self.recent = None;
        self.settle_programs(Tenant { process: by.id, scope });
        self.forget_derived();
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::NobodysEvent };
        // The listing that follows names every space there is something to say of: the others are not known any more.
        process.pools.retain(|&(of, ..), &mut pool| {
            if of == scope {
                let unlisted = self.ledger.pool(pool).unlisted.count;
                process.records -= self.ledger.close(pool).count - unlisted;
            }
            of != scope
        });
        process.programs.retain(|(of, _), _| *of != scope);
        process.traces.retain(|(of, _), _| *of != scope);
        Outcome::Noted
    }

    fn exit(&mut self, id: ProcessId) -> Outcome {
        self.recent = None;
        let scopes: BTreeSet<Scope> = match self.processes.get(&id) {
            Some(process) => process.programs.keys().map(|&(scope, _)| scope).collect(),
            None => BTreeSet::new(),
        };
        for scope in scopes {
            self.settle_programs(Tenant { process: id, scope });
        }
        self.forget_derived();
        let Some(process) = self.processes.remove(&id) else { return Outcome::NobodysEvent };
        let mut gone = Reclaimed::default();
        for (&(scope, space, _), &pool) in &process.pools {
            self.remember_peak(&process, id, scope, pool);
            let totals = self.ledger.close(pool);
            let sum = match space {
                Space::Kernel => &mut gone.kernels,
                Space::Cb | Space::Dfb | Space::Scratch => &mut gone.cbs,
                _ => &mut gone.buffers,
            };
            sum.0 += totals.own_count();
            sum.1 += totals.requested;
        }
        self.event_log.ended(self.now, id, &process.info, &gone);
        let count = gone.buffers.0 + gone.cbs.0 + gone.kernels.0;
        if count > 0 {
            let bytes = gone.buffers.1 + gone.cbs.1 + gone.kernels.1;
            self.findings.name(id, &process.info);
            self.note(Fault::Reclaimed, Author { id, basis: process.basis }, None, None, bytes, count, 0);
        }
        Outcome::Reclaimed(gone)
    }

    /// Chips by their numbers, for what is told of them.
    fn numbered(&self, chips: &[ChipId]) -> BTreeMap<u32, ChipId> {
        chips.iter().filter_map(|id| self.chips.get(id).map(|it| (it.chip.index, *id))).collect()
    }

    /// The pool an event of this author goes to.
    fn pool(&mut self, by: Author, scope: Scope, space: Space) -> Result<PoolId, Fault> {
        if let Some((.., pool)) =
            self.recent.filter(|&(who, of, what, _)| (who, of, what) == (by, scope, space))
        {
            return Ok(pool);
        }
        let pool = self.find_or_open_pool(by, scope, space)?;
        self.recent = Some((by, scope, space, pool));
        Ok(pool)
    }

    fn find_or_open_pool(&mut self, by: Author, scope: Scope, space: Space) -> Result<PoolId, Fault> {
        let process = self.processes.get_mut(&by.id).expect("`apply` asks for the process first");
        if let Some(&pool) = process.pools.get(&(scope, space, by.basis)) {
            return Ok(pool);
        }
        match scope {
            Scope::Chip(chip) if !self.chips.contains_key(&chip) => return Err(Fault::UnknownChip),
            Scope::Allocator(number) if !process.allocators.contains_key(&number) => {
                return Err(Fault::UnknownAllocator);
            }
            _ => {}
        }
        let pool = self.ledger.open(PoolKey { process: by.id, scope, space, basis: by.basis });
        *self.derived.get_mut() = Derived::default();
        process.pools.insert((scope, space, by.basis), pool);
        Ok(pool)
    }

    /// Keeps a pool's peak for its chips when the pool goes.
    fn remember_peak(&mut self, process: &ProcessState, id: ProcessId, scope: Scope, pool: PoolId) {
        let name = process.info.name.clone();
        let holder = Holder { pid: visible(id), name, bytes: 0 };
        self.keep_high(chips_in(&process.allocators, &scope), pool, &holder);
    }

    /// A program keeps something else now: what was compared of it holds no more.
    #[cold]
    #[inline(never)]
    fn unsettle(&mut self, by: Author, scope: Scope, program: u32) {
        let process = self.processes.get_mut(&by.id);
        if let Some(program) = process.and_then(|it| it.programs.get_mut(&(scope, program))) {
            program.settled = None;
        }
    }

    fn refuse_in(&mut self, by: Author, fault: Fault, scope: Scope, space: Space, bytes: u64) -> Outcome {
        self.refuse(by, fault, chip_of(scope), Some(space), bytes)
    }

    fn refuse(
        &mut self,
        by: Author,
        fault: Fault,
        chip: Option<ChipId>,
        space: Option<Space>,
        bytes: u64,
    ) -> Outcome {
        if let Some(process) = self.processes.get_mut(&by.id) {
            process.refused = process.refused.saturating_add(1);
        }
        self.note(fault, by, chip, space, bytes, 1, 0);
        Outcome::Refused(fault)
    }

    /// How findings and events name a process, also after it exited.
    pub(crate) fn label_of(&self, id: ProcessId) -> Label {
        match (self.processes.get(&id), self.findings.label(id)) {
            (Some(process), _) => Label::new(id, &process.info),
            (None, Some(label)) => label.clone(),
            (None, None) => Label::unknown(id),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call a field of the finding, and private")]
    fn note(
        &mut self,
        fault: Fault,
        by: Author,
        chip: Option<ChipId>,
        space: Option<Space>,
        bytes: u64,
        count: u64,
        id: u64,
    ) {
        // A finding names no chip that is not listed.
        let chip = chip.filter(|chip| self.chips.contains_key(chip));
        let subject = Subject { fault, process: Some(by.id), chip, space };
        if let Some(process) = self.processes.get(&by.id) {
            self.findings.name(by.id, &process.info);
        }
        let first = self.findings.add(self.now, subject, bytes, count, id);
        // The event of a process's exit has what it held.
        if first && fault != Fault::Reclaimed {
            let now = self.now;
            let index = chip.and_then(|chip| self.chips.get(&chip)).map(|it| it.chip.index);
            let label = self.label_of(by.id);
            let tally = Tally { count, bytes, last_id: id, ..Tally::new(now) };
            self.event_log.fault(now, subject, label, index, tally);
        }
    }

    fn judge_growth(&mut self) {
        if self.now.since(self.growth_judged) < GROWTH_ROUND_NS {
            return;
        }
        self.growth_judged = self.now;
        let pools = self.processes.values().flat_map(|process| process.pools.values());
        for &pool in pools {
            let pool = self.ledger.pool_mut(pool);
            let growth = &mut pool.growth;
            if growth.last_low > 0 && pool.low > growth.last_low {
                growth.rounds += 1;
                growth.bytes += pool.low - growth.last_low;
            } else {
                (growth.rounds, growth.bytes) = (0, 0);
            }
            growth.last_low = pool.low;
            pool.low = pool.used();
        }
    }

    /// Time passes, and nothing else: what a snapshot says of when things happened is as of then.
    pub fn pass(&mut self, now: Mono) {
        self.now = self.now.max(now);
    }

    /// Notes what is higher than ever just now, as every tick does.
    pub fn note_peaks(&mut self) {
        self.note_highs();
        self.note_cores();
    }

    fn sample(&mut self) {
        let now = self.now;
        for state in self.chips.values_mut() {
            state.sensed.push(now, state.sensors.at, &state.sensors.sensors);
        }
        if !std::mem::take(&mut self.unsampled) {
            for state in self.chips.values_mut() {
                state.dram.repeat(now);
                state.l1.repeat(now);
            }
            return;
        }
        self.note_peaks();
        let plan = self.plan();
        let kinds = plan.kinds.iter().enumerate();
        let totals: Vec<[u64; 2]> =
            kinds.map(|(number, kind)| Self::totals_of(&self.usage_of_kind(number, kind))).collect();
        for (&id, state) in &mut self.chips {
            let [dram, l1] = plan.kind_of(id).map_or([0; 2], |number| totals[number]);
            state.dram.push(now, dram);
            state.l1.push(now, l1);
            let Some(has) = state.chip.capacity else { continue };
            let spaces = [("DRAM", dram, has.dram_bytes), ("L1", l1, has.l1_bytes)];
            for ((name, used, capacity), level) in spaces.into_iter().zip(&mut state.filled) {
                let chip = (state.chip.index, id);
                *level = self.event_log.filled(now, chip, name, *level, (used, capacity));
            }
        }
    }
}

/// Who an event comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Author {
    id: ProcessId,
    basis: Basis,
}

/// The chips a scope means.
pub(crate) fn chips_in<'a>(allocators: &'a BTreeMap<u32, Allocator>, scope: &'a Scope) -> &'a [ChipId] {
    match scope {
        Scope::Chip(chip) => std::slice::from_ref(chip),
        Scope::Allocator(number) => allocators.get(number).map_or(&[], |allocator| &allocator.chips),
    }
}

impl ProcessState {
    fn new(info: Process, basis: Basis) -> Self {
        Self {
            info,
            pools: BTreeMap::new(),
            allocators: BTreeMap::new(),
            cores: BTreeMap::new(),
            programs: BTreeMap::new(),
            traces: BTreeMap::new(),
            audits: BTreeMap::new(),
            tracked: None,
            basis,
            opened: BTreeSet::new(),
            lost: 0,
            refused: 0,
            sequence: None,
            seen_exactly: true,
            names: BTreeMap::new(),
            program_changes: 0,
            trace_told: None,
            records: 0,
            freed: VecDeque::new(),
        }
    }

    /// The programs of one scope, by number.
    pub(crate) fn programs_in(&self, scope: Scope) -> impl Iterator<Item = (&(Scope, u32), &ProgramState)> {
        self.programs.range((scope, 0)..=(scope, u32::MAX))
    }

    pub(crate) fn programs_in_mut(
        &mut self,
        scope: Scope,
    ) -> impl Iterator<Item = (&(Scope, u32), &mut ProgramState)> {
        self.programs.range_mut((scope, 0)..=(scope, u32::MAX))
    }

    /// The call sites that have a name, by number.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (u32, &str)> {
        let names = self.names.range(Name::Site(0)..=Name::Site(u32::MAX));
        names.filter_map(|(name, text)| match name {
            Name::Site(number) => Some((*number, text.as_str())),
            Name::Program(_) => None,
        })
    }

    /// How a scope's space is laid out, where the source knows.
    pub(crate) fn banks(&self, scope: Scope, space: Space) -> Option<Banks> {
        let Scope::Allocator(number) = scope else { return None };
        self.allocators.get(&number)?.spaces.iter().find(|banks| banks.space == space).copied()
    }
}

fn chip_of(scope: Scope) -> Option<ChipId> {
    match scope {
        Scope::Chip(chip) => Some(chip),
        Scope::Allocator(_) => None,
    }
}

#[cfg(test)]
mod tests;
