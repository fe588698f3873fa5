//! A process: what it defined, opened and reported.

use super::{Holdings, PastPool};
use crate::core_set::CoreSet;
use crate::growth::Growth;
use crate::input::{Allocator, Audit, Banks, Failure, Mark, Process, Trace, Tracked};
use crate::ledger::PoolId;
use crate::pairs;
use crate::sites::Sites;
use crate::words::{Basis, ChipId, KernelClass, Mono, Scope, Space};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Everything known about one process.
#[derive(Serialize, Deserialize)]
pub(crate) struct ProcessState {
    pub(crate) info: Process,
    #[serde(with = "pairs")]
    pub(crate) pools: BTreeMap<(Scope, Space, Basis), PoolId>,
    pub(crate) allocators: BTreeMap<u32, Allocator>,
    pub(crate) cores: BTreeMap<u32, CoreSet>,
    #[serde(with = "pairs")]
    pub(crate) programs: BTreeMap<(Scope, u32), ProgramState>,
    #[serde(with = "pairs")]
    pub(crate) traces: BTreeMap<(Scope, u32), Trace>,
    #[serde(with = "pairs")]
    pub(crate) audits: BTreeMap<(u32, Space), Compared>,
    /// Comparisons with the runtime's own statistics so far: without and with drift.
    pub(crate) compared: [u64; 2],
    /// What was allocated through allocators that are closed.
    pub(crate) past: Vec<PastPool>,
    pub(crate) tracked: Option<Tracked>,
    pub(crate) last_mark: Option<Mark>,
    /// Growth of its call sites between marks.
    pub(crate) growth: Growth,
    /// The best basis of its reports.
    pub(crate) basis: Basis,
    /// Chips that it has open, according to the kernel.
    pub(crate) opened: BTreeSet<ChipId>,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    /// Number of its events that its source has read, if it counts them.
    pub(crate) sequence: Option<u64>,
    /// Whether its source has read everything up to that event.
    pub(crate) is_complete: bool,
    pub(crate) program_names: BTreeMap<u32, String>,
    pub(crate) sites: Sites,
    /// Dispatches of all its programs.
    pub(crate) dispatches: u64,
    /// [`super::State::program_changes`] after its own last one.
    pub(crate) program_changes: u64,
    /// Capture of the newest trace in the event log: a listing reports traces again.
    pub(super) logged_trace: Option<Mono>,
    #[serde(skip)]
    pub(super) records: u64,
    /// Bytes of the names of its programs and the lists of its allocators.
    #[serde(skip)]
    pub(super) text_bytes: u64,
    /// What it says of chips: one for each chip and id.
    #[serde(skip)]
    pub(super) claims: usize,
    /// What is counted of it for its user.
    #[serde(skip)]
    pub(super) counted: Holdings,
    /// The last failed allocations, oldest first.
    pub(crate) failures: VecDeque<Failure>,
    /// Failed allocations so far.
    pub(crate) failure_count: u64,
    /// The last frees, to recognise a double free.
    pub(super) freed: VecDeque<(Scope, Space, u64)>,
}

/// A program and its dispatches.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ProgramState {
    /// Number of the set of cores it runs on; 0: those on which it has memory.
    pub(crate) cores: u32,
    pub(crate) site: u32,
    pub(crate) class: KernelClass,
    pub(crate) dispatches: u64,
    /// The last dispatch; of two at the same time, the one with the larger number was later.
    pub(crate) last: Option<(Mono, u64)>,
    /// Most bytes of buffers on each core at a dispatch, and when; not yet compared with the recorded peaks.
    pub(crate) pending_peak: Option<(u64, Mono)>,
    /// Most bytes of buffers at a dispatch that was compared.
    pub(crate) recorded_peak: Option<u64>,
    /// Since when buffers are in the way of its memory.
    pub(crate) blocked: Option<Blocked>,
}

/// Since when an L1 buffer is in the way of a program's memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Blocked {
    /// Lowest address of a buffer.
    pub(crate) address: u64,
    /// Dispatches of all programs of its process until then.
    pub(crate) dispatches: u64,
}

/// The last audit of one allocator's space.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Compared {
    pub(crate) theirs: Audit,
    pub(crate) drift: Drift,
}

/// ttmem's figures minus the runtime's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drift {
    pub(crate) allocated: i64,
    /// Unknown without the bank layout, as for `largest_free`.
    pub(crate) free: Option<i64>,
    pub(crate) largest_free: Option<i64>,
}

impl Drift {
    pub(crate) fn is_zero(self) -> bool {
        self.allocated == 0 && self.free.unwrap_or(0) == 0 && self.largest_free.unwrap_or(0) == 0
    }
}

pub(super) fn difference(ours: u64, theirs: u64) -> i64 {
    let drift = i128::from(ours) - i128::from(theirs);
    drift.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl ProcessState {
    pub(super) fn new(info: Process, basis: Basis) -> Self {
        Self {
            info,
            pools: BTreeMap::new(),
            allocators: BTreeMap::new(),
            cores: BTreeMap::new(),
            programs: BTreeMap::new(),
            traces: BTreeMap::new(),
            audits: BTreeMap::new(),
            compared: [0; 2],
            past: Vec::new(),
            tracked: None,
            last_mark: None,
            growth: Growth::default(),
            basis,
            opened: BTreeSet::new(),
            lost: 0,
            refused: 0,
            sequence: None,
            is_complete: true,
            program_names: BTreeMap::new(),
            sites: Sites::default(),
            dispatches: 0,
            program_changes: 0,
            logged_trace: None,
            records: 0,
            text_bytes: 0,
            claims: 0,
            counted: Holdings::default(),
            failures: VecDeque::new(),
            failure_count: 0,
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

    /// The bank layout of a space, if it is known.
    pub(crate) fn banks(&self, scope: Scope, space: Space) -> Option<Banks> {
        let Scope::Allocator(number) = scope else { return None };
        self.allocators.get(&number)?.spaces.iter().find(|banks| banks.space == space).copied()
    }
}
