//! Figures that follow from a [`State`]: what is used, free and resident, where, and which findings hold.
//!
//! A state keeps facts only. An [`Analysis`] owns everything that is worth keeping from one question to the next, each with
//! the version of the records that it follows from, so that a snapshot costs what changed since the one before.

mod blocked;
mod blocks;
mod buffers;
mod core_allocations;
mod core_map;
mod cores;
mod findings;
mod fit;
mod flame;
mod footprint;
mod free_space;
mod leaks;
mod peaks;
mod plan;
mod postmortem;
mod program_list;
mod program_usage;
mod programs;
mod report;
mod room;
mod sites;
mod skyline;
mod traces;
mod usage;
mod view;

use crate::core_set::CoreSet;
use crate::detail::Detail;
use crate::input::Process;
use crate::ledger::PoolId;
use crate::snapshot::{CoreRoom, PostMortem, RunReport, Snapshot, Usage};
use crate::state::{State, visible};
use crate::viewer::{Access, Viewer};
use crate::words::{ChipId, ProcessId};
use core_map::{CoreMap, Layers};
use free_space::{CachedSkyline, Joint};
use jiff::Timestamp;
use plan::Plan;
use program_usage::{RegisteredBytes, Resident};
use programs::ProgramMemory;
use std::collections::BTreeMap;
use std::sync::Arc;
use usage::GroupUsage;

pub(crate) use findings::{describe_failure, describe_fault};
pub use fit::{End, Fit, FitAnswer, FitContext, FitRequest, FitSize, fit};
pub(crate) use footprint::split_by_sets;
pub(crate) use plan::Tenant;
pub(crate) use programs::{Part, part};
pub(crate) use view::Clock;

/// What was derived from one state. It belongs to that state: another one needs another analysis.
#[derive(Debug, Default)]
pub struct Analysis {
    /// [`State::structure`] and [`State::core_sets`] as they were when the rest was derived.
    structure: u64,
    core_sets: u64,
    plan: Option<Arc<Plan>>,
    /// One for each group of the plan.
    groups: Vec<GroupCache>,
    /// What pools of programs cover together: the version of the pools, and bytes.
    registered: BTreeMap<Vec<PoolId>, (u64, RegisteredBytes)>,
    /// What pools of buffers hold together.
    joint: BTreeMap<Vec<PoolId>, Joint>,
    programs: BTreeMap<Tenant, (u64, Arc<ProgramMemory>)>,
    /// Where the buffers of each tenant lie on the cores of a grid.
    layers: BTreeMap<(Tenant, CoreSet), (u64, Layers)>,
    /// Buffers that a replay of a trace may overwrite: number and bytes.
    traces: BTreeMap<(Tenant, u32), (Version, [u64; 2])>,
    /// By number of the pool: of all its records, and of its own. A pool's skyline outlives changes of the structure.
    skylines: Vec<[Option<CachedSkyline>; 2]>,
}

/// What was derived of one group of chips.
#[derive(Debug, Default)]
struct GroupCache {
    usage: Option<(Version, Arc<GroupUsage>)>,
    residents: Option<(Version, Arc<[Resident]>)>,
    rooms: Option<(Version, Arc<[CoreRoom]>)>,
    maps: Option<(Version, Arc<[CoreMap]>)>,
}

/// Of programs (how many changes there were), and of pools.
type Version = (u64, u64);

/// Sets of pools for which something is cached.
const CACHED_SETS: usize = 16_384;

/// A state together with what was derived from it: everything that can be asked is asked here.
pub(crate) struct Figures<'a> {
    pub(crate) state: &'a State,
    cache: &'a mut Analysis,
    /// Who receives the answer.
    viewer: Viewer,
}

impl Figures<'_> {
    /// Whether the viewer may not see single allocations and programs of a process.
    fn hides(&self, process: ProcessId) -> bool {
        let owner = self.state.processes.get(&process).and_then(|it| it.info.uid);
        self.viewer.hides(owner)
    }

    /// The pid of a process, if the viewer may know it: a request by pid finds no other process.
    fn shown_pid(&self, id: ProcessId, info: &Process) -> Option<u32> {
        visible(id).filter(|_| self.viewer.access(info.uid) < Access::Anonymous)
    }
}

impl Analysis {
    /// Everything known, sorted. `at` is the wall-clock time of the last `now`.
    pub fn snapshot(&mut self, state: &State, at: Timestamp, detail: &Detail) -> Snapshot {
        self.snapshot_for(state, at, detail, Viewer::ALL)
    }

    /// Everything that a viewer may know, as [`Analysis::snapshot`].
    pub fn snapshot_for(
        &mut self,
        state: &State,
        at: Timestamp,
        detail: &Detail,
        viewer: Viewer,
    ) -> Snapshot {
        Figures { viewer, ..self.of(state) }.snapshot(at, detail)
    }

    /// What one chip's spaces hold, as in a snapshot.
    pub fn usage_of(&mut self, state: &State, chip: ChipId) -> Usage {
        self.of(state).usage_of(chip)
    }

    /// The post-mortem of a process's last failed allocation, or of that with a sequence number, if it had one. The state is to be
    /// that of the failure, and `at` its time.
    pub fn post_mortem(
        &mut self,
        state: &State,
        process: ProcessId,
        sequence: Option<u64>,
        at: Timestamp,
    ) -> Option<PostMortem> {
        self.of(state).post_mortem(process, sequence, at)
    }

    /// What all processes allocated, as far as a viewer may know it, also those that have exited if [`State::keep_exited`] was called
    /// before. `at` is as for [`Analysis::snapshot`].
    pub fn report(&mut self, state: &State, at: Timestamp, viewer: Viewer) -> RunReport {
        Figures { viewer, ..self.of(state) }.report(at)
    }

    /// Drops what no longer holds, and opens the rest for questions.
    #[inline]
    pub(crate) fn of<'a>(&'a mut self, state: &'a State) -> Figures<'a> {
        if (self.structure, self.core_sets) != (state.structure, state.core_sets) {
            self.invalidate(state);
        }
        Figures { state, cache: self, viewer: Viewer::ALL }
    }

    #[cold]
    fn invalidate(&mut self, state: &State) {
        if self.structure == state.structure {
            self.groups.iter_mut().for_each(|group| *group = GroupCache::default());
            self.registered.clear();
            self.programs.clear();
            self.layers.clear();
        } else {
            *self = Self { skylines: std::mem::take(&mut self.skylines), ..Self::default() };
        }
        (self.structure, self.core_sets) = (state.structure, state.core_sets);
    }
}
