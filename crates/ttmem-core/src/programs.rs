//! What programs keep on their cores, and which of them is there.
//!
//! On each core of a chip the resident program is the one that was dispatched last, of all programs of all processes that
//! run on that core. So it follows from what is live and when it was dispatched, and a reader that missed dispatches comes to
//! the same result. A program that keeps nothing takes the place of others all the same.

use crate::cores::{Alike, Layers};
use crate::event::Name;
use crate::footprint::{self, CoreSet};
use crate::ledger::{Entry, PoolId};
use crate::plan::{Kind, Plan};
use crate::ranges::Range;
use crate::snapshot::{CoreRoom, Placement, Program, ProgramUsage};
use crate::state::{ProcessState, ProgramState, State, chips_in};
use crate::usage::{Joint, KindUsage};
use crate::view::Clock;
use crate::words::{Basis, KernelClass, ProcessId, Scope, Space, Uncertainty};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use ttmem_types::program_number;

/// One process in one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenant {
    pub(crate) process: ProcessId,
    pub(crate) scope: Scope,
}

/// Something a program keeps on each of some cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) program: u32,
    pub(crate) space: Space,
    /// Of a kernel, which has no address, only the length means something.
    pub(crate) range: Range,
    pub(crate) cores: CoreSet,
    /// It is only a view of a buffer.
    pub(crate) view: bool,
    /// Where it lies is not known: only the length of its range means something.
    pub(crate) unplaced: bool,
    /// Whether it is resident is not known.
    pub(crate) unfollowed: bool,
    /// How large it is is not known.
    pub(crate) estimated: bool,
    /// Which cores it lies on is not known: one stands for each of them.
    pub(crate) scattered: bool,
}

impl Part {
    /// Whether it takes memory at an address that is known.
    pub(crate) fn is_placed(&self) -> bool {
        self.space != Space::Kernel && !self.view && !self.unplaced
    }
}

/// What parts of one space take, each with whose it is. Of those with an address, overlapping ranges count once. Of the others
/// each program's lie one behind the other, and those of several programs over each other: on each core the most counts.
fn taken<'a>(parts: impl Iterator<Item = (u32, &'a Part)>) -> u64 {
    let mut placed = Vec::new();
    let mut somewhere = Vec::new();
    for (whose, part) in parts {
        if part.is_placed() {
            placed.push((part.range, part.cores));
        } else {
            somewhere.push(((whose, part.program), part.range.len(), part.cores));
        }
    }
    somewhere.sort_unstable();
    let mut most = [0u64; CoreSet::ROOM];
    for program in somewhere.chunk_by(|a, b| a.0 == b.0) {
        let mut on = [0u64; CoreSet::ROOM];
        for (_, bytes, cores) in program {
            for core in cores.iter() {
                on[core] = on[core].saturating_add(*bytes);
                most[core] = most[core].max(on[core]);
            }
        }
    }
    let beside = most.into_iter().fold(0, u64::saturating_add);
    footprint::covered(&placed).saturating_add(beside)
}

fn borrowed(parts: &[(u32, Part)]) -> impl Iterator<Item = (u32, &Part)> {
    parts.iter().map(|(whose, part)| (*whose, part))
}

/// Everything that the programs of one tenant keep, by program.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    parts: Vec<Part>,
    /// Of each set of cores that something is kept on, where that ends; many programs keep theirs on the same cores.
    ends: Vec<(CoreSet, u64)>,
    /// What each program's parts come to, found when somebody asks.
    sums: OnceLock<BTreeMap<u32, Sums>>,
}

/// What a program keeps, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// On each core.
    pub(crate) kernel: u64,
    /// On each device, overlapping ranges counted once.
    pub(crate) cb: u64,
    pub(crate) dfb: u64,
    pub(crate) scratch: u64,
    views: u64,
    pub(crate) end: Option<u64>,
}

impl Sums {
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
            cb: taken(own(Space::Cb).map(|part| (0, part))),
            dfb: taken(own(Space::Dfb).map(|part| (0, part))),
            scratch: taken(own(Space::Scratch).map(|part| (0, part))),
            views: parts.iter().filter(|part| part.view).count() as u64,
            end: parts.iter().filter(|part| part.is_placed()).map(|part| part.range.end).max(),
        }
    }
}

impl Kept {
    fn new(mut parts: Vec<Part>) -> Self {
        parts.sort_unstable();
        let mut ends: BTreeMap<CoreSet, u64> = BTreeMap::new();
        for part in parts.iter().filter(|part| part.is_placed() && !part.scattered) {
            let end = ends.entry(part.cores).or_default();
            *end = part.range.end.max(*end);
        }
        Self { parts, ends: ends.into_iter().collect(), sums: OnceLock::new() }
    }

    fn sums_of(&self, program: u32) -> Sums {
        let all = self.sums.get_or_init(|| {
            let each = self.parts.chunk_by(|a, b| a.program == b.program);
            each.map(|parts| (parts[0].program, Sums::of(parts))).collect()
        });
        all.get(&program).copied().unwrap_or_default()
    }

    pub(crate) fn of(&self, program: u32) -> &[Part] {
        let from = self.parts.partition_point(|part| part.program < program);
        let to = self.parts.partition_point(|part| part.program <= program);
        self.parts.get(from..to).unwrap_or_default()
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(crate) fn ends(&self) -> &[(CoreSet, u64)] {
        &self.ends
    }

    /// The cores where a program keeps something.
    fn cores_of(&self, program: u32) -> CoreSet {
        all_cores(self.of(program))
    }
}

fn all_cores(parts: &[Part]) -> CoreSet {
    parts.iter().filter(|part| !part.scattered).fold(CoreSet::default(), |all, part| all.with(part.cores))
}

/// A program that is resident somewhere on a chip, and on which cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) tenant: Tenant,
    pub(crate) program: u32,
    pub(crate) cores: CoreSet,
}

/// What views derived from the records, each with the version of them that it is of. Whenever something else changes that
/// it follows from (definitions, pools that come and go), all of it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    pub(crate) plan: Option<Arc<Plan>>,
    /// What was found of each kind of chip.
    pub(crate) kinds: Vec<KindDerived>,
    /// What programs' pools cover.
    registered: BTreeMap<Vec<PoolId>, (u64, u64)>,
    /// What buffers' pools hold together.
    pub(crate) together: BTreeMap<Vec<PoolId>, Joint>,
    kept: BTreeMap<Tenant, (u64, Arc<Kept>)>,
    /// What buffers of each tenant lie where on the cores of a grid.
    pub(crate) layers: BTreeMap<(Tenant, CoreSet), (u64, Layers)>,
    /// What traces endanger: number and bytes.
    pub(crate) traces: BTreeMap<(Tenant, u32), (Version, [u64; 2])>,
}

/// What was found of one kind of chip.
#[derive(Debug, Default)]
pub(crate) struct KindDerived {
    pub(crate) usage: Option<(Version, Arc<KindUsage>)>,
    residents: Option<(Version, Arc<[Resident]>)>,
    pub(crate) rooms: Option<(Version, Arc<[CoreRoom]>)>,
    pub(crate) maps: Option<(Version, Arc<[Alike]>)>,
}

impl Derived {
    /// There is one for each kind of the plan.
    pub(crate) fn kind(&self, number: usize) -> &KindDerived {
        &self.kinds[number]
    }

    pub(crate) fn kind_mut(&mut self, number: usize) -> &mut KindDerived {
        &mut self.kinds[number]
    }
}

/// Of what changes besides pools (how many changes there were), and of pools.
pub(crate) type Version = (u64, u64);

/// Sets of pools for which what they cover is remembered.
pub(crate) const DERIVED_ROOM: usize = 16_384;

impl State {
    /// What is derived from more than records holds no more.
    pub(crate) fn forget_derived(&mut self) {
        *self.derived.get_mut() = Derived::default();
    }

    /// The same, and what is kept with each pool.
    #[cfg(test)]
    pub(crate) fn forget_everything_derived(&mut self) {
        self.forget_derived();
        let pools: Vec<PoolId> = self.processes.values().flat_map(|it| it.pools.values().copied()).collect();
        for pool in pools {
            self.ledger.pool_mut(pool).skylines = Default::default();
        }
    }

    /// Sets of cores have changed, and nothing else that is derived from.
    pub(crate) fn forget_cores(&mut self) {
        let derived = self.derived.get_mut();
        derived.kinds.iter_mut().for_each(|it| *it = KindDerived::default());
        derived.registered.clear();
        derived.kept.clear();
        derived.layers.clear();
    }

    /// A tenant's pools of some spaces.
    pub(crate) fn pools_of(&self, tenant: Tenant, spaces: &[Space]) -> impl Iterator<Item = (Space, PoolId)> {
        let process = self.processes.get(&tenant.process);
        let pool = move |space| process?.pools.get(&(tenant.scope, space, Basis::Exact)).copied();
        spaces.iter().filter_map(move |&space| Some((space, pool(space)?)))
    }

    /// What a tenant's programs keep.
    pub(crate) fn kept(&self, tenant: Tenant) -> Arc<Kept> {
        let version = self.version_in(tenant, &Space::PROGRAM);
        if let Some((_, kept)) = self.derived.borrow().kept.get(&tenant).filter(|(of, _)| *of == version) {
            return Arc::clone(kept);
        }
        let mut parts = Vec::new();
        for (space, pool) in self.pools_of(tenant, &Space::PROGRAM) {
            let Some(process) = self.processes.get(&tenant.process) else { continue };
            parts.extend(self.ledger.entries(pool).map(|(_, entry)| part(process, space, entry)));
        }
        let kept = Arc::new(Kept::new(parts));
        self.derived.borrow_mut().kept.insert(tenant, (version, Arc::clone(&kept)));
        kept
    }

    /// What changes when anything in these spaces of a tenant does.
    pub(crate) fn version_in(&self, tenant: Tenant, spaces: &[Space]) -> u64 {
        let pools = self.pools_of(tenant, spaces);
        pools.map(|(_, pool)| self.ledger.pool(pool).version).max().unwrap_or(0)
    }

    /// The programs that are resident on chips of a kind; no two of them on the same core.
    pub(crate) fn residents_of_kind(&self, number: usize, kind: &Kind) -> Arc<[Resident]> {
        let version = self.version_of_programs(kind);
        if let Some((_, known)) =
            self.derived.borrow().kind(number).residents.as_ref().filter(|it| it.0 == version)
        {
            return Arc::clone(known);
        }
        let found = self.find_residents(&kind.tenants);
        self.derived.borrow_mut().kind_mut(number).residents = Some((version, Arc::clone(&found)));
        found
    }

    fn find_residents(&self, tenants: &[Tenant]) -> Arc<[Resident]> {
        let mut dispatched = Vec::new();
        for &tenant in tenants {
            let Some(process) = self.processes.get(&tenant.process) else { continue };
            let kept = self.kept(tenant);
            for (&(_, program), it) in process.programs_in(tenant.scope) {
                let Some(last) = it.last else { continue };
                let cores = process.cores_called(it.cores).unwrap_or_else(|| kept.cores_of(program));
                dispatched.push((last, Resident { tenant, program, cores }));
            }
        }
        dispatched.sort_unstable_by_key(|&(last, _)| std::cmp::Reverse(last));
        let mut taken = CoreSet::default();
        let mut found = Vec::new();
        for (_, it) in dispatched {
            let cores = it.cores.without(taken);
            if !cores.is_empty() {
                found.push(Resident { cores, ..it });
                taken = taken.with(cores);
            }
        }
        found.into()
    }

    pub(crate) fn program_usage(
        &self,
        space: Space,
        residents: &[Resident],
        pools: &[PoolId],
    ) -> ProgramUsage {
        let all = || pools.iter().map(|&pool| self.ledger.pool(pool));
        let basis = all().map(|pool| pool.key.basis).max().unwrap_or(Basis::Reported);
        // How large a kernel of an old client is on each core, nobody knows.
        let sized = space != Space::Kernel || all().all(|pool| pool.totals.uncharged == 0);
        // Of some nobody knows whether they are resident, and perhaps of all.
        let unfollowed = all().map(|pool| pool.totals.unfollowed).sum::<u64>();
        let followed = unfollowed == 0 || all().any(|pool| pool.totals.own_count() > pool.totals.unfollowed);
        let known = basis == Basis::Exact && sized && followed;
        let resident = if known { self.resident_parts(space, residents, pools) } else { Vec::new() };
        let resident_bytes = taken(borrowed(&resident));
        // What kernels were loaded says nothing of what is there.
        let may_be_there = known && unfollowed > 0 && space != Space::Kernel;
        ProgramUsage {
            registered_bytes: self.registered(space, pools),
            resident_bytes: known.then_some(resident_bytes),
            residency_unknown_bytes: if may_be_there {
                let all = self.parts_in(space, pools);
                let besides =
                    all.iter().filter(|(_, part)| part.unfollowed).map(|(whose, part)| (*whose, part));
                taken(borrowed(&resident).chain(besides)).saturating_sub(resident_bytes)
            } else {
                0
            },
            estimated_bytes: all().map(|pool| pool.totals.estimated).fold(0, u64::saturating_add),
            count: self.are_listed(pools).then(|| all().map(|pool| pool.totals.own_count()).sum()),
            basis,
        }
    }

    fn resident_parts(&self, space: Space, residents: &[Resident], pools: &[PoolId]) -> Vec<(u32, Part)> {
        let mut parts = Vec::new();
        for it in residents {
            let has = |&pool: &PoolId| {
                let key = self.ledger.pool(pool).key;
                (key.process, key.scope) == (it.tenant.process, it.tenant.scope)
            };
            if pools.iter().any(has) {
                let kept = self.kept(it.tenant);
                let mine = kept.of(it.program).iter().filter(|part| part.space == space && !part.view);
                let mine = mine.filter(|part| !part.unfollowed);
                parts.extend(mine.map(|part| (0, Part { cores: part.cores.within(it.cores), ..*part })));
            }
        }
        parts
    }

    fn registered(&self, space: Space, pools: &[PoolId]) -> u64 {
        if space == Space::Kernel {
            let held = |&pool: &PoolId| {
                let pool = self.ledger.pool(pool);
                pool.level.unwrap_or(pool.totals.allocated)
            };
            return pools.iter().map(held).fold(0, u64::saturating_add);
        }
        let version = self.version_of(pools);
        if let Some(&(_, bytes)) =
            self.derived.borrow().registered.get(pools).filter(|(of, _)| *of == version)
        {
            return bytes;
        }
        let bytes = self.registered_now(space, pools);
        let room = &mut self.derived.borrow_mut().registered;
        if room.len() >= DERIVED_ROOM {
            room.clear();
        }
        room.insert(pools.to_vec(), (version, bytes));
        bytes
    }

    fn registered_now(&self, space: Space, pools: &[PoolId]) -> u64 {
        // Where only a sum is known it is the same on whatever cores, and beside all else.
        let levels = pools.iter().map(|&pool| self.ledger.pool(pool).level.unwrap_or(0));
        let levels = levels.fold(0, u64::saturating_add);
        taken(borrowed(&self.parts_in(space, pools))).saturating_add(levels)
    }

    /// What programs keep in pools of one space, but for views, with the number of the pool.
    fn parts_in(&self, space: Space, pools: &[PoolId]) -> Vec<(u32, Part)> {
        let mut parts = Vec::new();
        for &pool in pools {
            let Some(process) = self.processes.get(&self.ledger.pool(pool).key.process) else { continue };
            let held = self.ledger.entries(pool).map(|(_, entry)| part(process, space, entry));
            parts.extend(held.filter(|part| !part.view).map(|part| (pool.number() as u32, part)));
        }
        parts
    }

    /// Every program of a process, by number. `full`: with what it keeps where.
    pub(crate) fn programs_of(
        &self,
        id: ProcessId,
        process: &ProcessState,
        clock: Clock,
        full: bool,
    ) -> Vec<Program> {
        let mut named = ScopeNames::default();
        let mut all = self.summed_programs(id, process);
        all.sort_by_key(|it| (it.number(), it.scope));
        all.iter().map(|it| self.describe_program(id, process, it, &mut named, clock, full)).collect()
    }

    /// The same in numbers, in no order.
    pub(crate) fn summed_programs<'a>(&self, id: ProcessId, process: &'a ProcessState) -> Vec<Summed<'a>> {
        let plan = self.plan();
        let mut found = Vec::new();
        let told = process.pools.keys().filter(|(.., basis)| *basis == Basis::Exact);
        let scopes: BTreeSet<Scope> =
            process.programs.keys().map(|&(scope, _)| scope).chain(told.map(|&(scope, ..)| scope)).collect();
        for scope in scopes {
            let tenant = Tenant { process: id, scope };
            let kept = self.kept(tenant);
            let begun = process.programs_in(scope).map(|(&(_, program), _)| program);
            let keeping = kept.parts().iter().map(|part| part.program).filter(|&program| program != 0);
            let keys: BTreeSet<u32> = begun.chain(keeping).collect();
            let chips = chips_in(&process.allocators, &scope);
            let mut resident: BTreeMap<u32, u32> = BTreeMap::new();
            let mut times = vec![0; plan.kinds.len()];
            for number in chips.iter().filter_map(|&chip| plan.kind_of(chip)) {
                times[number] += 1;
            }
            for (number, &times) in times.iter().enumerate().filter(|(_, times)| **times > 0) {
                let residents = self.residents_of_kind(number, &plan.kinds[number]);
                for it in residents.iter().filter(|it| it.tenant == tenant) {
                    *resident.entry(it.program).or_default() += it.cores.count() * times;
                }
            }
            found.extend(keys.into_iter().map(|key| Summed {
                scope,
                key,
                state: process.programs.get(&(scope, key)),
                name: process.program_name(scope, key),
                sums: kept.sums_of(key),
                resident_cores: resident.get(&key).copied().unwrap_or(0),
            }));
        }
        found
    }

    /// A program in full, but for what it keeps where unless that is wanted.
    pub(crate) fn describe_program(
        &self,
        id: ProcessId,
        process: &ProcessState,
        it: &Summed,
        named: &mut ScopeNames,
        clock: Clock,
        full: bool,
    ) -> Program {
        let kept = self.kept(Tenant { process: id, scope: it.scope });
        let parts = kept.of(it.key);
        let cores = process.cores_of_program(it.scope, it.key, parts);
        let names = || self.names_of(chips_in(&process.allocators, &it.scope));
        let (devices, indexes) = named.0.entry((id, it.scope)).or_insert_with(names);
        Program {
            id: it.number(),
            allocator: it.allocator(),
            devices: if full { devices.clone() } else { Vec::new() },
            indexes: indexes.clone(),
            name: it.name.cloned(),
            class: it.state.map_or(KernelClass::Unknown, |it| it.class),
            cores: cores.rectangles(),
            core_count: cores.count(),
            resident_cores: it.resident_cores,
            dispatches: it.state.map_or(0, |it| it.dispatches),
            residency_unknown: it.state.is_none_or(|it| it.dispatches == 0)
                && parts.iter().any(|part| part.unfollowed),
            estimated: parts.iter().any(|part| part.estimated),
            dispatched: it.state.and_then(|it| it.last).map(|(at, _)| clock.wall(at)),
            kernel_bytes: it.sums.kernel,
            cb_bytes: it.sums.cb,
            dfb_bytes: it.sums.dfb,
            scratch_bytes: it.sums.scratch,
            view_count: it.sums.views,
            end: it.sums.end,
            placements: if full { placements(parts) } else { Vec::new() },
        }
    }
}

/// A program in numbers.
pub(crate) struct Summed<'a> {
    pub(crate) scope: Scope,
    pub(crate) key: u32,
    pub(crate) state: Option<&'a ProgramState>,
    pub(crate) name: Option<&'a String>,
    pub(crate) sums: Sums,
    pub(crate) resident_cores: u32,
}

impl Summed<'_> {
    /// The runtime's number of it.
    pub(crate) fn number(&self) -> u32 {
        program_number(self.key)
    }

    pub(crate) fn allocator(&self) -> Option<u32> {
        match self.scope {
            Scope::Allocator(number) => Some(number),
            Scope::Chip(_) => None,
        }
    }
}

/// What the chips of scopes are called, and their indexes, found once.
#[derive(Default)]
pub(crate) struct ScopeNames(BTreeMap<(ProcessId, Scope), (Vec<String>, Vec<u32>)>);

impl ProcessState {
    /// The cores a program runs on: those it names, else those where it keeps something.
    pub(crate) fn cores_of_program(&self, scope: Scope, program: u32, parts: &[Part]) -> CoreSet {
        let named = self.programs.get(&(scope, program)).map_or(0, |it| it.cores);
        self.cores_called(named).unwrap_or_else(|| all_cores(parts))
    }

    /// A set of cores by its number; 0 is none.
    fn cores_called(&self, number: u32) -> Option<CoreSet> {
        self.cores.get(&number).filter(|_| number != 0).copied()
    }

    /// What a program is called, or made of.
    pub(crate) fn program_name(&self, scope: Scope, program: u32) -> Option<&String> {
        let site = || self.programs.get(&(scope, program)).map_or(0, |it| it.site);
        self.names.get(&Name::Program(program)).or_else(|| self.names.get(&Name::Site(site())))
    }
}

/// What a program keeps where, by address.
fn placements(parts: &[Part]) -> Vec<Placement> {
    let placed = parts.iter().filter(|part| part.space != Space::Kernel);
    let mut placements: Vec<Placement> = placed
        .map(|part| Placement {
            space: part.space,
            address: (!part.unplaced).then_some(part.range.start),
            bytes: part.range.len(),
            cores: if part.scattered { Vec::new() } else { part.cores.rectangles() },
            view: part.view,
        })
        .collect();
    placements.sort_by_key(|it| it.address);
    placements
}

/// What a record says. Where a source does not say how much of it lies on each core, it is what was asked for.
pub(crate) fn part(process: &ProcessState, space: Space, entry: &Entry) -> Part {
    let bytes = match (entry.bytes_per_bank, space) {
        (0, Space::Kernel) => 0,
        (0, _) => entry.requested,
        (bytes, _) => bytes,
    };
    let placed = space != Space::Kernel && !entry.nature.uncertainty().unplaced;
    let range = Range::new(if placed { entry.id } else { 0 }, bytes);
    let cores = process.cores.get(&entry.cores).copied();
    let scattered = cores.is_none();
    let cores = cores.unwrap_or(CoreSet::UNKNOWN);
    let Uncertainty { unplaced, unfollowed, estimated } = entry.nature.uncertainty();
    let view = entry.layout.is_alias();
    Part { program: entry.program, space, range, cores, view, unplaced, unfollowed, estimated, scattered }
}
