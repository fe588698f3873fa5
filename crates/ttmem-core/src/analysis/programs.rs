//! What programs hold on their cores: parts, with what they come to.

use super::footprint;
use super::{Figures, Tenant};
use crate::core_set::CoreSet;
use crate::ledger::Entry;
use crate::ranges::Range;
use crate::snapshot::Placement;
use crate::state::ProcessState;
use crate::words::{KernelClass, Scope, Space, Uncertainty};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Memory of a program on each of some cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) program: u32,
    pub(crate) space: Space,
    /// Kernels have no address: only the length means something.
    pub(crate) range: Range,
    pub(crate) cores: CoreSet,
    /// A view of a buffer.
    pub(crate) view: bool,
    /// The address is unknown: only the length of the range means something.
    pub(crate) unplaced: bool,
    /// Dispatches are not reported: whether the part is resident is unknown.
    pub(crate) unfollowed: bool,
    /// The size is an estimate.
    pub(crate) estimated: bool,
    /// The number of cores, if they are unknown: `cores` has one that stands for each of them. 0: they are known.
    pub(crate) unknown_cores: u16,
    /// Class of a kernel.
    pub(crate) class: KernelClass,
    /// Number of equal parts.
    pub(crate) references: u32,
}

impl Part {
    /// Whether it takes memory at a known address.
    pub(crate) fn is_placed(&self) -> bool {
        self.space != Space::Kernel && !self.view && !self.unplaced
    }

    /// Whether its cores are known.
    pub(crate) fn has_cores(&self) -> bool {
        self.unknown_cores == 0
    }

    /// The cores that it counts on. If only their number is known, it is as if all such parts began at the same core.
    fn counted_cores(&self) -> CoreSet {
        match self.unknown_cores {
            0 | 1 => self.cores,
            _ if self.cores.is_empty() => self.cores,
            count => CoreSet::first(count),
        }
    }
}

/// The part of a record. Where a source does not report how much of it is on each core, that is what was requested.
pub(crate) fn part(process: &ProcessState, space: Space, entry: &Entry) -> Part {
    let bytes = match (entry.bytes_per_bank, space) {
        (0, Space::Kernel) => 0,
        (0, _) => entry.requested,
        (bytes, _) => bytes,
    };
    let placed = space != Space::Kernel && !entry.nature.uncertainty().unplaced;
    let range = Range::new(if placed { entry.id } else { 0 }, bytes);
    let cores = process.cores.get(&entry.cores).copied();
    let unknown_cores = if cores.is_none() { entry.banks.max(1) } else { 0 };
    let cores = cores.unwrap_or(CoreSet::UNKNOWN);
    let Uncertainty { unplaced, unfollowed, estimated } = entry.nature.uncertainty();
    let (view, class) = (entry.layout.is_alias(), entry.nature.class());
    let (program, references) = (entry.program, entry.refs);
    Part {
        program,
        space,
        range,
        cores,
        view,
        unplaced,
        unfollowed,
        estimated,
        unknown_cores,
        class,
        references,
    }
}

/// Bytes that parts of one space take, each with the number of its owner. Of parts with an address, overlapping ranges count
/// once. Parts without one follow each other within a program and overlap between programs: on each core the most counts.
pub(super) fn covered_bytes<'a>(parts: impl Iterator<Item = (u32, &'a Part)>) -> u64 {
    let mut placed = Vec::new();
    let mut unplaced = Vec::new();
    for (owner, part) in parts {
        if part.is_placed() {
            placed.push((part.range, part.counted_cores()));
        } else {
            unplaced.push(((owner, part.program), part.range.len(), part.counted_cores()));
        }
    }
    unplaced.sort_unstable();
    let mut most = [0u64; CoreSet::ROOM];
    for program in unplaced.chunk_by(|a, b| a.0 == b.0) {
        let mut on = [0u64; CoreSet::ROOM];
        for (_, bytes, cores) in program {
            for core in cores.iter() {
                on[core] = on[core].saturating_add(*bytes);
                most[core] = most[core].max(on[core]);
            }
        }
    }
    let unplaced = most.into_iter().fold(0, u64::saturating_add);
    footprint::covered(&placed).saturating_add(unplaced)
}

/// All memory of the programs of one tenant, by program.
#[derive(Debug, Default)]
pub(crate) struct ProgramMemory {
    parts: Vec<Part>,
    /// The highest end on each set of cores; many programs use the same sets.
    ends: Vec<(CoreSet, u64)>,
    /// Derived when first asked for.
    sums: OnceLock<BTreeMap<u32, ProgramSums>>,
}

/// Memory of a program, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProgramSums {
    /// On each core.
    pub(super) kernel: u64,
    /// On each device, overlapping ranges counted once.
    pub(super) cb: u64,
    pub(super) dfb: u64,
    pub(super) scratch: u64,
    pub(super) views: u64,
    pub(super) end: Option<u64>,
}

impl ProgramSums {
    fn of(parts: &[Part]) -> Self {
        let own = |space| parts.iter().filter(move |part| part.space == space && !part.view);
        let mut kernels = [0u64; CoreSet::ROOM];
        for part in own(Space::Kernel) {
            for core in part.cores.iter() {
                kernels[core] = kernels[core].saturating_add(part.range.len());
            }
        }
        Self {
            kernel: kernels.into_iter().max().unwrap_or(0),
            cb: covered_bytes(own(Space::Cb).map(|part| (0, part))),
            dfb: covered_bytes(own(Space::Dfb).map(|part| (0, part))),
            scratch: covered_bytes(own(Space::Scratch).map(|part| (0, part))),
            views: parts.iter().filter(|part| part.view).map(|part| u64::from(part.references)).sum(),
            end: parts.iter().filter(|part| part.is_placed()).map(|part| part.range.end).max(),
        }
    }
}

impl ProgramMemory {
    fn new(mut parts: Vec<Part>) -> Self {
        parts.sort_unstable();
        let mut ends: BTreeMap<CoreSet, u64> = BTreeMap::new();
        for part in parts.iter().filter(|part| part.is_placed() && part.has_cores()) {
            let end = ends.entry(part.cores).or_default();
            *end = part.range.end.max(*end);
        }
        Self { parts, ends: ends.into_iter().collect(), sums: OnceLock::new() }
    }

    pub(super) fn sums_of(&self, program: u32) -> ProgramSums {
        let all = self.sums.get_or_init(|| {
            let each = self.parts.chunk_by(|a, b| a.program == b.program);
            each.map(|parts| (parts[0].program, ProgramSums::of(parts))).collect()
        });
        all.get(&program).copied().unwrap_or_default()
    }

    pub(crate) fn of(&self, program: u32) -> &[Part] {
        let from = self.parts.partition_point(|part| part.program < program);
        let to = self.parts.partition_point(|part| part.program <= program);
        self.parts.get(from..to).unwrap_or_default()
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn ends(&self) -> &[(CoreSet, u64)] {
        &self.ends
    }

    /// The cores on which a program has memory.
    pub(super) fn cores_of(&self, program: u32) -> CoreSet {
        all_cores(self.of(program))
    }
}

fn all_cores(parts: &[Part]) -> CoreSet {
    parts.iter().filter(|part| part.has_cores()).fold(CoreSet::default(), |all, part| all.with(part.cores))
}

impl Figures<'_> {
    /// The memory of a tenant's programs.
    pub(crate) fn program_memory(&mut self, tenant: Tenant) -> Arc<ProgramMemory> {
        let state = self.state;
        let version = state.version_in(tenant, &Space::PROGRAM);
        if let Some((_, memory)) = self.cache.programs.get(&tenant).filter(|(of, _)| *of == version) {
            return Arc::clone(memory);
        }
        let mut parts = Vec::new();
        if let Some(process) = state.processes.get(&tenant.process) {
            for (space, pool) in state.pools_of(tenant, &Space::PROGRAM) {
                parts.extend(state.ledger.entries(pool).map(|(_, entry)| part(process, space, entry)));
            }
        }
        let memory = Arc::new(ProgramMemory::new(parts));
        self.cache.programs.insert(tenant, (version, Arc::clone(&memory)));
        memory
    }
}

impl ProcessState {
    /// The cores that a program runs on: those it names, else those on which it has memory.
    pub(crate) fn cores_of_program(&self, scope: Scope, program: u32, parts: &[Part]) -> CoreSet {
        let named = self.programs.get(&(scope, program)).map_or(0, |it| it.cores);
        self.core_set(named).unwrap_or_else(|| all_cores(parts))
    }

    /// A set of cores by its number; 0 is none.
    pub(super) fn core_set(&self, number: u32) -> Option<CoreSet> {
        self.cores.get(&number).filter(|_| number != 0).copied()
    }

    /// The name of a program, else of its call site.
    pub(crate) fn program_name(&self, scope: Scope, program: u32) -> Option<&String> {
        let site = || self.programs.get(&(scope, program)).map_or(0, |it| it.site);
        self.program_names.get(&program).or_else(|| self.sites.program_name(site()))
    }
}

/// Memory of a program by address, for snapshots.
pub(super) fn placements(parts: &[Part]) -> Vec<Placement> {
    let placed = parts.iter().filter(|part| part.space != Space::Kernel);
    let mut placements: Vec<Placement> = placed
        .map(|part| Placement {
            space: part.space,
            address: (!part.unplaced).then_some(part.range.start),
            bytes: part.range.len(),
            cores: if part.has_cores() { part.cores.rectangles() } else { Vec::new() },
            view: part.view,
            count: part.references,
        })
        .collect();
    placements.sort_by_key(|it| it.address);
    placements
}
