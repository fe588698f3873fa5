//! The allocations on one core, by address, with their owners.

use super::program_usage::Resident;
use super::{Figures, Tenant};
use crate::core_set::CoreSet;
use crate::detail::CoreQuery;
use crate::snapshot::{CoreAllocation, CoreAllocations, CoreClass};
use crate::state::visible;
use crate::words::{Layout, Space};
use ttmem_types::program_number;

/// An allocation on the core. Its owner is looked up only if it is listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    start: u64,
    class: CoreClass,
    bytes: u64,
    tenant: Tenant,
    program: u32,
    site: u32,
}

impl Figures<'_> {
    /// The allocations on a core; `None`: there is no such device, or its cores are unknown.
    pub(super) fn core_allocations(&mut self, query: &CoreQuery) -> Option<CoreAllocations> {
        let CoreQuery { device, core, limit } = *query;
        let (&chip, _) = self.state.chips.iter().find(|(_, state)| state.chip.index == device)?;
        let plan = self.plan();
        let number = plan.group_of(chip)?;
        let group = &plan.groups[number];
        let [x, y] = match core {
            Some(core) => core,
            None => self.tightest_core(number, group).map(|room| [room.x, room.y])?,
        };
        let core = usize::from(y) * usize::from(CoreSet::WIDTH) + usize::from(x);
        let mut found = Vec::new();
        for &tenant in &group.tenants {
            self.buffers_on(core, tenant, &mut found);
        }
        for &Resident { tenant, program, cores } in self.residents_of(number, group).iter() {
            if !cores.has(core) {
                continue;
            }
            let memory = self.program_memory(tenant);
            let here = memory.of(program).iter();
            found.extend(here.filter(|part| part.is_placed() && part.cores.has(core)).filter_map(|part| {
                let class = match part.space {
                    Space::Cb => CoreClass::Cb,
                    Space::Dfb => CoreClass::Dfb,
                    Space::Scratch => CoreClass::Scratch,
                    _ => return None,
                };
                let (start, bytes) = (part.range.start, part.range.len());
                Some(Found { start, class, bytes, tenant, program, site: 0 })
            }));
        }
        let all = found.len() as u64;
        found.retain(|it| !self.hides(it.tenant.process));
        let count = found.len() as u64;
        let limit = limit.min(CoreQuery::MOST) as usize;
        if found.len() > limit {
            if limit > 0 {
                found.select_nth_unstable(limit - 1);
            }
            found.truncate(limit);
        }
        found.sort_unstable();
        let list = found.into_iter().map(|found| self.describe_found(found)).collect();
        Some(CoreAllocations { device, x, y, count, list, hidden_count: all - count })
    }

    /// The buffers of a tenant on a core, and those that reserve its addresses by lock-step.
    fn buffers_on(&self, core: usize, tenant: Tenant, found: &mut Vec<Found>) {
        let Some(process) = self.state.processes.get(&tenant.process) else { return };
        for (space, pool) in self.state.pools_of(tenant, &[Space::L1, Space::L1Small, Space::L1Core]) {
            for (_, entry) in self.state.ledger.entries(pool) {
                let is_here = process.cores.get(&entry.cores).map(|cores| cores.has(core));
                let class = match (space, entry.layout == Layout::Mirror, is_here) {
                    (Space::L1Core, _, None | Some(false)) => continue,
                    (_, true, _) | (Space::L1 | Space::L1Small, _, Some(false)) => CoreClass::Lockstep,
                    (Space::L1Small, ..) => CoreClass::L1Small,
                    _ => CoreClass::Buffer,
                };
                if !entry.nature.uncertainty().unplaced {
                    let (start, bytes) = (entry.id, entry.bytes_per_bank);
                    found.push(Found { start, class, bytes, tenant, program: 0, site: entry.site });
                }
            }
        }
    }

    fn describe_found(&self, found: Found) -> CoreAllocation {
        let Found { start, class, bytes, tenant, program, site } = found;
        let process = self.state.processes.get(&tenant.process);
        let program = (program != 0).then_some(program);
        CoreAllocation {
            class,
            start,
            bytes,
            pid: visible(tenant.process),
            process_name: process.and_then(|known| known.info.name.clone()),
            program: program.map(program_number),
            program_name: process
                .zip(program)
                .and_then(|(known, key)| known.program_name(tenant.scope, key).cloned()),
            site_name: process.and_then(|known| known.sites.name(site).cloned()),
            op: process.and_then(|known| known.sites.op(site).cloned()),
        }
    }
}
