//! Which pools make up which figures. That changes only when pools come and go or definitions do, so it is worked out once;
//! and chips on which the same pools lie, as those of one mesh, are one kind: whatever is to be said of them is found once.

use crate::event::Banks;
use crate::ledger::PoolId;
use crate::machine::CoreLayout;
use crate::programs::{KindDerived, Tenant, Version};
use crate::state::{ProcessState, State, chips_in};
use crate::words::{Basis, ChipId, ProcessId, Scope, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pools that make up one figure: of one process, or of all, in one space of a chip.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) space: Space,
    pub(crate) pools: Vec<PoolId>,
}

/// Chips that are alike: the same pools lie on them.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) chips: Vec<ChipId>,
    pub(crate) core_layout: Option<CoreLayout>,
    /// By space.
    pub(crate) cells: Vec<Cell>,
    /// Who is there, as far as events tell.
    pub(crate) tenants: Vec<Tenant>,
    /// What these have there: pools of programs, of anything in L1, and of buffers on single cores.
    programs: Vec<PoolId>,
    in_l1: Vec<PoolId>,
    pub(crate) on_cores: Vec<PoolId>,
    /// Pools that take the same on every core, and the number of those.
    pub(crate) lockstep: Vec<(PoolId, u64)>,
}

impl Kind {
    pub(crate) fn pools(&self, space: Space) -> &[PoolId] {
        self.cells.iter().find(|cell| cell.space == space).map(|cell| &cell.pools[..]).unwrap_or_default()
    }
}

/// What one process has on the chips of one kind.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) kind: usize,
    pub(crate) cells: Vec<Cell>,
}

/// All kinds of chips on which anything lies.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) kinds: Vec<Kind>,
    of: BTreeMap<ChipId, usize>,
    shares: BTreeMap<ProcessId, Vec<Share>>,
}

impl Plan {
    /// The kind of a chip, by number; `None`: nothing is on it.
    pub(crate) fn kind_of(&self, chip: ChipId) -> Option<usize> {
        self.of.get(&chip).copied()
    }

    /// What a process has, by kind of chip.
    pub(crate) fn shares_of(&self, process: ProcessId) -> &[Share] {
        self.shares.get(&process).map(Vec::as_slice).unwrap_or_default()
    }
}

/// What a core's L1 is made of besides what the runtime keeps for itself.
pub(crate) const IN_L1: [Space; 7] =
    [Space::L1, Space::L1Small, Space::L1Core, Space::Cb, Space::Dfb, Space::Scratch, Space::Kernel];

impl State {
    pub(crate) fn plan(&self) -> Arc<Plan> {
        if let Some(known) = &self.derived.borrow().plan {
            return Arc::clone(known);
        }
        let plan = Arc::new(self.make_plan());
        let mut derived = self.derived.borrow_mut();
        derived.kinds = plan.kinds.iter().map(|_| KindDerived::default()).collect();
        derived.plan = Some(Arc::clone(&plan));
        plan
    }

    fn make_plan(&self) -> Plan {
        let tenants = self.find_tenants();
        let mut cells: BTreeMap<ChipId, BTreeMap<Space, Vec<PoolId>>> = BTreeMap::new();
        for process in self.processes.values() {
            for ((chip, space), pools) in shown(process) {
                cells.entry(chip).or_default().entry(space).or_default().extend(pools);
            }
        }
        let chips: BTreeSet<ChipId> = tenants.keys().chain(cells.keys()).copied().collect();
        let mut plan = Plan::default();
        let mut known = BTreeMap::new();
        for chip in chips {
            let cells: Vec<Cell> =
                cells.remove(&chip).unwrap_or_default().into_iter().map(Cell::from).collect();
            let tenants = tenants.get(&chip).cloned().unwrap_or_default();
            let core_layout = self.chips.get(&chip).and_then(|it| it.chip.core_layout);
            let number = *known.entry((core_layout, tenants, cells)).or_insert(plan.kinds.len());
            if number == plan.kinds.len() {
                plan.kinds.push(Kind {
                    chips: Vec::new(),
                    core_layout: None,
                    cells: Vec::new(),
                    tenants: Vec::new(),
                    programs: Vec::new(),
                    in_l1: Vec::new(),
                    on_cores: Vec::new(),
                    lockstep: Vec::new(),
                });
            }
            plan.kinds[number].chips.push(chip);
            plan.of.insert(chip, number);
        }
        for ((core_layout, tenants, cells), number) in known {
            let pools = |spaces: &[Space]| {
                tenants.iter().flat_map(|&it| self.pools_of(it, spaces)).map(|(_, pool)| pool).collect()
            };
            let kind = &mut plan.kinds[number];
            kind.programs = pools(&Space::PROGRAM);
            kind.in_l1 = pools(&IN_L1);
            kind.on_cores = pools(&[Space::L1Core]);
            kind.lockstep = tenants.iter().flat_map(|&tenant| self.lockstep(tenant)).collect();
            (kind.core_layout, kind.tenants, kind.cells) = (core_layout, tenants, cells);
        }
        for (number, kind) in plan.kinds.iter().enumerate() {
            let mut shares: BTreeMap<ProcessId, Vec<Cell>> = BTreeMap::new();
            for cell in &kind.cells {
                for one in cell.pools.chunk_by(|&a, &b| self.owner(a) == self.owner(b)) {
                    let mine = shares.entry(self.owner(one[0])).or_default();
                    mine.push(Cell { space: cell.space, pools: one.to_vec() });
                }
            }
            for (process, cells) in shares {
                plan.shares.entry(process).or_default().push(Share { kind: number, cells });
            }
        }
        plan
    }

    pub(crate) fn owner(&self, pool: PoolId) -> ProcessId {
        self.ledger.pool(pool).key.process
    }

    /// A tenant's buffers that lie on every core, and how many cores that are.
    fn lockstep(&self, tenant: Tenant) -> impl Iterator<Item = (PoolId, u64)> {
        let banks = move |space| self.processes.get(&tenant.process)?.banks(tenant.scope, space);
        let pools = self.pools_of(tenant, &[Space::L1, Space::L1Small]);
        pools.filter_map(move |(space, pool)| Some((pool, u64::from(banks(space)?.banks))))
    }

    /// Who is on which chip, as far as events tell.
    fn find_tenants(&self) -> BTreeMap<ChipId, Vec<Tenant>> {
        let mut all: BTreeMap<ChipId, BTreeSet<Tenant>> = BTreeMap::new();
        for (&id, process) in &self.processes {
            let defined = process.allocators.keys().map(|&number| Scope::Allocator(number));
            let told = process.pools.keys().filter(|(.., basis)| *basis == Basis::Exact);
            let scopes: BTreeSet<Scope> = defined.chain(told.map(|&(scope, ..)| scope)).collect();
            for scope in scopes {
                for &chip in chips_in(&process.allocators, &scope) {
                    all.entry(chip).or_default().insert(Tenant { process: id, scope });
                }
            }
        }
        all.into_iter().map(|(chip, tenants)| (chip, Vec::from_iter(tenants))).collect()
    }

    /// The bank layout all pools share, if they do.
    pub(crate) fn layout(&self, space: Space, pools: &[PoolId]) -> Option<Banks> {
        let mut layouts = pools.iter().map(|&pool| {
            let key = self.ledger.pool(pool).key;
            self.processes.get(&key.process)?.banks(key.scope, space)
        });
        let first = layouts.next()??;
        layouts.all(|layout| layout == Some(first)).then_some(first)
    }

    /// What is larger after every change of these pools.
    pub(crate) fn version_of(&self, pools: &[PoolId]) -> u64 {
        pools.iter().map(|&pool| self.ledger.pool(pool).version).max().unwrap_or(0)
    }

    /// As of which change of programs and of pools the figures of a kind are.
    pub(crate) fn version_of_all(&self, kind: &Kind) -> Version {
        let cells = kind.cells.iter().map(|cell| self.version_of(&cell.pools)).max().unwrap_or(0);
        let (programs, pools) = self.version_of_programs(kind);
        (programs, pools.max(cells))
    }

    /// The same of what lies on cores.
    pub(crate) fn version_of_l1(&self, kind: &Kind) -> Version {
        let (programs, pools) = self.version_of_programs(kind);
        (programs, pools.max(self.version_of(&kind.in_l1)))
    }

    /// The same of programs.
    pub(crate) fn version_of_programs(&self, kind: &Kind) -> Version {
        let processes = kind.tenants.iter().filter_map(|it| self.processes.get(&it.process));
        let changes = processes.map(|it| it.program_changes).max().unwrap_or(0);
        (changes, self.version_of(&kind.programs))
    }
}

impl From<(Space, Vec<PoolId>)> for Cell {
    fn from((space, pools): (Space, Vec<PoolId>)) -> Self {
        Self { space, pools }
    }
}

/// A process's pools that are shown: on each chip in each space those with the best basis.
fn shown(process: &ProcessState) -> BTreeMap<(ChipId, Space), Vec<PoolId>> {
    let mut cells: BTreeMap<(ChipId, Space), (Basis, Vec<PoolId>)> = BTreeMap::new();
    for (&(ref scope, space, basis), &pool) in &process.pools {
        for &chip in chips_in(&process.allocators, scope) {
            let (best, pools) = cells.entry((chip, space)).or_insert((basis, Vec::new()));
            if basis < *best {
                (*best, *pools) = (basis, vec![pool]);
            } else if basis == *best {
                pools.push(pool);
            }
        }
    }
    cells.into_iter().map(|(cell, (_, pools))| (cell, pools)).collect()
}
