//! Which pools make up which figures.
//!
//! That changes only when pools or definitions come and go, so it is worked out once. Chips with the same pools, as those of
//! one mesh, form a group: its figures are derived once.

use super::{Figures, GroupCache, Version};
use crate::ledger::PoolId;
use crate::machine::CoreLayout;
use crate::state::{ProcessState, State, chips_in};
use crate::words::{Basis, ChipId, ProcessId, Scope, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One process in one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenant {
    pub(crate) process: ProcessId,
    pub(crate) scope: Scope,
}

/// The pools that make up one figure: of one process, or of all, in one space of a chip.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpacePools {
    pub(super) space: Space,
    pub(super) pools: Vec<PoolId>,
}

/// Chips that have the same pools.
#[derive(Debug)]
pub(crate) struct ChipGroup {
    pub(crate) chips: Vec<ChipId>,
    pub(crate) core_layout: Option<CoreLayout>,
    /// By space.
    pub(super) spaces: Vec<SpacePools>,
    /// Tenants with an exact basis.
    pub(crate) tenants: Vec<Tenant>,
    /// Pools of these tenants: of programs, of anything in L1, and of buffers on single cores.
    programs: Vec<PoolId>,
    in_l1: Vec<PoolId>,
    pub(crate) on_cores: Vec<PoolId>,
    /// Pools that take the same on every core, and the number of cores.
    pub(crate) lockstep: Vec<(PoolId, u64)>,
}

impl ChipGroup {
    pub(crate) fn pools(&self, space: Space) -> &[PoolId] {
        self.spaces.iter().find(|of| of.space == space).map(|of| &of.pools[..]).unwrap_or_default()
    }
}

/// What one process has on the chips of one group.
#[derive(Debug)]
pub(super) struct ProcessShare {
    pub(super) group: usize,
    pub(super) spaces: Vec<SpacePools>,
}

/// All groups of chips on which there is anything.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<ChipGroup>,
    group_of: BTreeMap<ChipId, usize>,
    shares: BTreeMap<ProcessId, Vec<ProcessShare>>,
}

impl Plan {
    /// The number of a chip's group; `None`: nothing is on the chip.
    pub(crate) fn group_of(&self, chip: ChipId) -> Option<usize> {
        self.group_of.get(&chip).copied()
    }

    /// The group of a tenant's first chip, which stands for all of its chips: a program's scope may have no pools of
    /// buffers, and its buffers are its mesh's.
    pub(crate) fn group_of_tenant(&self, state: &State, tenant: Tenant) -> Option<&ChipGroup> {
        let process = state.processes.get(&tenant.process)?;
        let first = chips_in(&process.allocators, &tenant.scope).first()?;
        Some(&self.groups[self.group_of(*first)?])
    }

    /// What a process has, by group of chips.
    pub(super) fn shares_of(&self, process: ProcessId) -> &[ProcessShare] {
        self.shares.get(&process).map(Vec::as_slice).unwrap_or_default()
    }
}

/// What shares a core's L1, besides what the runtime reserves.
pub(crate) const IN_L1: [Space; 7] =
    [Space::L1, Space::L1Small, Space::L1Core, Space::Cb, Space::Dfb, Space::Scratch, Space::Kernel];

impl Figures<'_> {
    pub(crate) fn plan(&mut self) -> Arc<Plan> {
        if let Some(plan) = &self.cache.plan {
            return Arc::clone(plan);
        }
        let plan = Arc::new(make_plan(self.state));
        self.cache.groups = plan.groups.iter().map(|_| GroupCache::default()).collect();
        self.cache.plan = Some(Arc::clone(&plan));
        plan
    }

    /// The version of all figures of a group.
    pub(super) fn version_of_group(&self, group: &ChipGroup) -> Version {
        let spaces = group.spaces.iter().map(|of| self.state.version_of(&of.pools)).max().unwrap_or(0);
        let (programs, pools) = self.version_of_programs(group);
        (programs, pools.max(spaces))
    }

    /// The version of what is on a group's cores.
    pub(super) fn version_of_l1(&self, group: &ChipGroup) -> Version {
        let (programs, pools) = self.version_of_programs(group);
        (programs, pools.max(self.state.version_of(&group.in_l1)))
    }

    /// The version of a group's programs.
    pub(super) fn version_of_programs(&self, group: &ChipGroup) -> Version {
        let processes = group.tenants.iter().filter_map(|it| self.state.processes.get(&it.process));
        let changes = processes.map(|it| it.program_changes).max().unwrap_or(0);
        (changes, self.state.version_of(&group.programs))
    }
}

fn make_plan(state: &State) -> Plan {
    let tenants = find_tenants(state);
    let mut spaces: BTreeMap<ChipId, BTreeMap<Space, Vec<PoolId>>> = BTreeMap::new();
    for process in state.processes.values() {
        for ((chip, space), pools) in shown_pools(process) {
            spaces.entry(chip).or_default().entry(space).or_default().extend(pools);
        }
    }
    let chips: BTreeSet<ChipId> = tenants.keys().chain(spaces.keys()).copied().collect();
    let mut plan = Plan::default();
    let mut numbers = BTreeMap::new();
    for chip in chips {
        let spaces = spaces.remove(&chip).unwrap_or_default();
        let spaces: Vec<SpacePools> =
            spaces.into_iter().map(|(space, pools)| SpacePools { space, pools }).collect();
        let tenants = tenants.get(&chip).cloned().unwrap_or_default();
        let core_layout = state.chips.get(&chip).and_then(|it| it.chip.core_layout);
        let number = *numbers.entry((core_layout, tenants, spaces)).or_insert(plan.groups.len());
        if number == plan.groups.len() {
            plan.groups.push(ChipGroup {
                chips: Vec::new(),
                core_layout: None,
                spaces: Vec::new(),
                tenants: Vec::new(),
                programs: Vec::new(),
                in_l1: Vec::new(),
                on_cores: Vec::new(),
                lockstep: Vec::new(),
            });
        }
        plan.groups[number].chips.push(chip);
        plan.group_of.insert(chip, number);
    }
    for ((core_layout, tenants, spaces), number) in numbers {
        let pools = |spaces: &[Space]| {
            tenants.iter().flat_map(|&it| state.pools_of(it, spaces)).map(|(_, pool)| pool).collect()
        };
        let group = &mut plan.groups[number];
        group.programs = pools(&Space::PROGRAM);
        group.in_l1 = pools(&IN_L1);
        group.on_cores = pools(&[Space::L1Core]);
        group.lockstep = tenants.iter().flat_map(|&tenant| lockstep_pools(state, tenant)).collect();
        (group.core_layout, group.tenants, group.spaces) = (core_layout, tenants, spaces);
    }
    for (number, group) in plan.groups.iter().enumerate() {
        let mut shares: BTreeMap<ProcessId, Vec<SpacePools>> = BTreeMap::new();
        for SpacePools { space, pools } in &group.spaces {
            for one in pools.chunk_by(|&a, &b| state.owner(a) == state.owner(b)) {
                let mine = shares.entry(state.owner(one[0])).or_default();
                mine.push(SpacePools { space: *space, pools: one.to_vec() });
            }
        }
        for (process, spaces) in shares {
            plan.shares.entry(process).or_default().push(ProcessShare { group: number, spaces });
        }
    }
    plan
}

/// A tenant's buffers that lie on every core, and the number of cores.
fn lockstep_pools(state: &State, tenant: Tenant) -> impl Iterator<Item = (PoolId, u64)> {
    let banks = move |space| state.processes.get(&tenant.process)?.banks(tenant.scope, space);
    let pools = state.pools_of(tenant, &[Space::L1, Space::L1Small]);
    pools.filter_map(move |(space, pool)| Some((pool, u64::from(banks(space)?.banks))))
}

/// The tenants of each chip with an exact basis.
fn find_tenants(state: &State) -> BTreeMap<ChipId, Vec<Tenant>> {
    let mut all: BTreeMap<ChipId, BTreeSet<Tenant>> = BTreeMap::new();
    for (&id, process) in &state.processes {
        let defined = process.allocators.keys().map(|&number| Scope::Allocator(number));
        let exact = process.pools.keys().filter(|(.., basis)| *basis == Basis::Exact);
        let scopes: BTreeSet<Scope> = defined.chain(exact.map(|&(scope, ..)| scope)).collect();
        for scope in scopes {
            for &chip in chips_in(&process.allocators, &scope) {
                all.entry(chip).or_default().insert(Tenant { process: id, scope });
            }
        }
    }
    all.into_iter().map(|(chip, tenants)| (chip, Vec::from_iter(tenants))).collect()
}

/// A process's pools that are shown: on each chip in each space those with the best basis.
fn shown_pools(process: &ProcessState) -> BTreeMap<(ChipId, Space), Vec<PoolId>> {
    let mut shown: BTreeMap<(ChipId, Space), (Basis, Vec<PoolId>)> = BTreeMap::new();
    for (&(ref scope, space, basis), &pool) in &process.pools {
        for &chip in chips_in(&process.allocators, scope) {
            let (best, pools) = shown.entry((chip, space)).or_insert((basis, Vec::new()));
            if basis < *best {
                (*best, *pools) = (basis, vec![pool]);
            } else if basis == *best {
                pools.push(pool);
            }
        }
    }
    shown.into_iter().map(|(place, (_, pools))| (place, pools)).collect()
}
