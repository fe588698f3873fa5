//! What the description of a single event needs to know: names, devices, and levels of program memory.

use super::{Reclaimed, State, chips_in};
use crate::input::Process;
use crate::snapshot::{ProgramLevel, Released};
use crate::words::{Basis, ChipId, ProcessId, Scope, Space};

impl From<Reclaimed> for Released {
    fn from(reclaimed: Reclaimed) -> Self {
        let Reclaimed { buffers, cbs, kernels, kernel_core_bytes } = reclaimed;
        Self {
            buffers: buffers.0,
            buffer_bytes: buffers.1,
            cbs: cbs.0,
            cb_bytes: cbs.1,
            kernels: kernels.0,
            kernel_bytes: kernels.1,
            kernel_core_bytes,
        }
    }
}

impl State {
    /// The description of a process that is tracked.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id).map(|process| &process.info)
    }

    /// The best basis of a process's reports.
    pub fn basis_of(&self, id: ProcessId) -> Option<Basis> {
        self.processes.get(&id).map(|process| process.basis)
    }

    /// The name of a process's call site.
    pub fn site_name(&self, process: ProcessId, site: u32) -> Option<&str> {
        self.processes.get(&process)?.sites.name(site).map(String::as_str)
    }

    /// The name of a process's program. `site` is the call site that describes it, if the event has one: the program may have
    /// ended.
    pub fn program_name(&self, process: ProcessId, scope: Scope, program: u32, site: u32) -> Option<&str> {
        let process = self.processes.get(&process)?;
        let by_site = || process.sites.program_name(site);
        process.program_name(scope, program).or_else(by_site).map(String::as_str)
    }

    /// The indexes of chips, by any of their ids, lowest first.
    pub fn device_indexes(&self, chips: &[ChipId]) -> Vec<u32> {
        let known = chips.iter().filter_map(|&id| self.chip(id));
        let mut indexes: Vec<u32> = known.map(|chip| chip.index).collect();
        indexes.sort_unstable();
        indexes
    }

    /// Program memory of all processes that is recorded on a chip, as sums of sizes.
    pub fn program_level(&self, chip: ChipId) -> Option<ProgramLevel> {
        let chip = self.resolve(chip);
        let index = self.chips.get(&chip)?.chip.index;
        let mut level = ProgramLevel { index, cb_bytes: 0, kernel_bytes: 0 };
        for process in self.processes.values() {
            for ((scope, space, _), &pool) in
                process.pools.iter().filter(|((_, space, _), _)| space.is_program())
            {
                if !chips_in(&process.allocators, scope).contains(&chip) {
                    continue;
                }
                let pool = self.ledger.pool(pool);
                let (sum, bytes) = match space {
                    Space::Kernel => {
                        (&mut level.kernel_bytes, pool.totals.allocated - pool.unlisted.allocated)
                    }
                    _ => (&mut level.cb_bytes, pool.totals.requested - pool.unlisted.requested),
                };
                *sum = sum.saturating_add(bytes);
            }
        }
        Some(level)
    }
}
