//! Reads pools: whose they are, how they are laid out, and which version of them there is.

use super::State;
use crate::analysis::Tenant;
use crate::input::Banks;
use crate::ledger::PoolId;
use crate::words::{Basis, ProcessId, Space};

impl State {
    /// A tenant's pools of some spaces.
    pub(crate) fn pools_of(&self, tenant: Tenant, spaces: &[Space]) -> impl Iterator<Item = (Space, PoolId)> {
        let process = self.processes.get(&tenant.process);
        let pool = move |space| process?.pools.get(&(tenant.scope, space, Basis::Exact)).copied();
        spaces.iter().filter_map(move |&space| Some((space, pool(space)?)))
    }

    pub(crate) fn owner(&self, pool: PoolId) -> ProcessId {
        self.ledger.pool(pool).key.process
    }

    /// The bank layout that all pools share, if they do.
    pub(crate) fn layout(&self, space: Space, pools: &[PoolId]) -> Option<Banks> {
        let mut layouts = pools.iter().map(|&pool| {
            let key = self.ledger.pool(pool).key;
            self.processes.get(&key.process)?.banks(key.scope, space)
        });
        let first = layouts.next()??;
        layouts.all(|layout| layout == Some(first)).then_some(first)
    }

    /// A number that is larger after every change of these pools.
    pub(crate) fn version_of(&self, pools: &[PoolId]) -> u64 {
        pools.iter().map(|&pool| self.ledger.pool(pool).version).max().unwrap_or(0)
    }

    /// A number that is larger after every change in these spaces of a tenant.
    pub(crate) fn version_in(&self, tenant: Tenant, spaces: &[Space]) -> u64 {
        let pools = self.pools_of(tenant, spaces);
        pools.map(|(_, pool)| self.ledger.pool(pool).version).max().unwrap_or(0)
    }

    /// Whether there is a record of everything in these pools, rather than only a sum.
    pub(crate) fn are_listed(&self, pools: &[PoolId]) -> bool {
        pools.iter().all(|&pool| self.ledger.pool(pool).level.is_none())
    }
}
