//! Usage of buffers by call site and operation.

use super::Figures;
use crate::sites::SiteKey;
use crate::snapshot::{Origin, SiteUsage};
use crate::state::{chips_in, visible};
use crate::words::{Basis, Space};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number and bytes of the buffers of a site.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    requested: u64,
    used: u64,
}

impl Figures<'_> {
    /// Buffers of all processes by devices, space, line and operation, largest first. Their bytes add up to those of the devices.
    pub(super) fn site_usages(&self) -> Vec<SiteUsage> {
        let mut all = Vec::new();
        for (&id, process) in self.state.processes.iter().filter(|(_, process)| process.is_shown()) {
            let groups: BTreeMap<u32, u32> = process.sites.groups(SiteKey::LineAndOp).into_iter().collect();
            let mut sums: BTreeMap<(Vec<u32>, Space, u32), Sum> = BTreeMap::new();
            let pools = process.pools.iter().filter(|((_, space, _), _)| !space.is_program());
            for (&(scope, space, basis), &pool) in pools {
                let indexes = self.state.indexes_of(chips_in(&process.allocators, &scope));
                let mut of_pool: BTreeMap<u32, Sum> = BTreeMap::new();
                for (_, entry) in self.state.ledger.entries(pool).filter(|(_, it)| !it.layout.is_alias()) {
                    let site = groups.get(&entry.site).copied().unwrap_or(0);
                    let sum = of_pool.entry(site).or_default();
                    sum.count += 1;
                    sum.requested += entry.requested;
                    sum.used += if basis == Basis::Exact { entry.charged() } else { entry.requested };
                }
                for (site, part) in of_pool {
                    let sum = sums.entry((indexes.clone(), space, site)).or_default();
                    sum.count += part.count;
                    sum.requested += part.requested;
                    sum.used += part.used;
                }
            }
            all.extend(sums.into_iter().map(|((indexes, space, site), sum)| SiteUsage {
                pid: visible(id),
                reported_pid: process.info.reported_pid,
                indexes,
                space,
                site_name: process.sites.name(site).cloned(),
                origin: Origin { stack: Vec::new(), ..process.sites.origin(site) },
                count: sum.count,
                requested_bytes: sum.requested,
                used_bytes: sum.used,
            }));
        }
        all.sort_by_key(|usage| Reverse(usage.used_bytes));
        all
    }
}
