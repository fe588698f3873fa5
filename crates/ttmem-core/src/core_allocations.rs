//! The allocations on one core, by address, with their owners.

use crate::detail::CoreQuery;
use crate::event::Name;
use crate::footprint::CoreSet;
use crate::programs::Tenant;
use crate::snapshot::{CoreAllocation, CoreAllocations, CoreClass};
use crate::state::State;
use crate::view::visible;
use crate::words::{Layout, Space};

/// An allocation that lies on the core, before its owner is looked up: only those of the list are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    start: u64,
    class: CoreClass,
    bytes: u64,
    tenant: Tenant,
    program: u32,
    site: u32,
}

impl State {
    /// `None`: there is no such device, or nothing is known of its cores.
    pub(crate) fn core_allocations(&self, query: &CoreQuery) -> Option<CoreAllocations> {
        let CoreQuery { device, core, limit } = *query;
        let (&chip, _) = self.chips.iter().find(|(_, state)| state.chip.index == device)?;
        let plan = self.plan();
        let number = plan.kind_of(chip)?;
        let kind = &plan.kinds[number];
        let tightest = || self.tightest_core(number, kind).map(|it| [it.x, it.y]);
        let [x, y] = core.or_else(tightest)?;
        let core = usize::from(y) * usize::from(CoreSet::WIDTH) + usize::from(x);
        let mut found = Vec::new();
        for &tenant in &kind.tenants {
            self.buffers_on(core, tenant, &mut found);
        }
        for it in self.residents_of_kind(number, kind).iter().filter(|it| it.cores.has(core)) {
            let kept = self.kept(it.tenant);
            let here = kept.of(it.program).iter();
            found.extend(here.filter(|part| part.is_placed() && part.cores.has(core)).filter_map(|part| {
                let class = match part.space {
                    Space::Cb => CoreClass::Cb,
                    Space::Dfb => CoreClass::Dfb,
                    Space::Scratch => CoreClass::Scratch,
                    _ => return None,
                };
                let (start, bytes) = (part.range.start, part.range.len());
                Some(Found { start, class, bytes, tenant: it.tenant, program: it.program, site: 0 })
            }));
        }
        let count = found.len() as u64;
        let limit = limit.min(CoreQuery::MOST) as usize;
        if found.len() > limit {
            if limit > 0 {
                found.select_nth_unstable(limit - 1);
            }
            found.truncate(limit);
        }
        found.sort_unstable();
        let list = found.into_iter().map(|it| self.describe_found(it)).collect();
        Some(CoreAllocations { device, x, y, count, list })
    }

    /// The buffers of a tenant that lie on a core, or take its addresses in lock-step.
    fn buffers_on(&self, core: usize, tenant: Tenant, found: &mut Vec<Found>) {
        let Some(process) = self.processes.get(&tenant.process) else { return };
        for (space, pool) in self.pools_of(tenant, &[Space::L1, Space::L1Small, Space::L1Core]) {
            for (_, entry) in self.ledger.entries(pool) {
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

    fn describe_found(&self, it: Found) -> CoreAllocation {
        let process = self.processes.get(&it.tenant.process);
        let program = (it.program != 0).then_some(it.program);
        CoreAllocation {
            class: it.class,
            start: it.start,
            bytes: it.bytes,
            pid: visible(it.tenant.process),
            process_name: process.and_then(|known| known.info.name.clone()),
            program,
            program_name: process
                .zip(program)
                .and_then(|(known, id)| known.program_name(it.tenant.scope, id).cloned()),
            site_name: process.and_then(|known| known.names.get(&Name::Site(it.site)).cloned()),
        }
    }
}
