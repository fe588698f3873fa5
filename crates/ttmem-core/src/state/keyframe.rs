//! Keyframes: a state, serialised.
//!
//! What is restored behaves as the original: the rest of the input leads to the same snapshots. Indexes and sums are built
//! again, and a keyframe that contradicts itself is an error, so that a damaged file cannot make a state that panics later.

use super::State;
use crate::ledger::COUNTER_LIMIT;
use crate::words::ProcessId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut state = Self::deserialize(deserializer)?;
        state.check().map_err(D::Error::custom)?;
        Ok(state)
    }
}

impl State {
    /// Checks that processes and pools refer to each other, and counts what each user has.
    fn check(&mut self) -> Result<(), &'static str> {
        if self.program_changes.max(self.structure).max(self.core_sets) > COUNTER_LIMIT {
            return Err("a counter of the keyframe is about to overflow");
        }
        let mut pools = 0;
        for (&id, process) in &mut self.processes {
            process.records = 0;
            for (&(scope, space, basis), &pool) in &process.pools {
                let pool = self.ledger.find_pool(pool).ok_or("a process of the keyframe has no such pool")?;
                if (pool.key.process, pool.key.scope, pool.key.space, pool.key.basis)
                    != (id, scope, space, basis)
                {
                    return Err("a process of the keyframe has another's pool");
                }
                process.records += pool.totals.count - pool.unlisted.count;
                pools += 1;
            }
            process.count_text_bytes();
            process.sites.count_bytes();
        }
        self.restore_claims();
        let ids: Vec<ProcessId> = self.processes.keys().copied().collect();
        for id in ids {
            self.count_holdings(id);
        }
        if pools != self.ledger.pool_count() {
            return Err("a pool of the keyframe has no process");
        }
        Ok(())
    }
}
