//! What processes say of chips. A process may say anything: so it adds to what the machine says and never overrides it, and all of
//! it is forgotten when the process exits.

use super::machine::{ChipState, NAMES_A_CHIP};
use super::users::Holdings;
use super::{Author, Outcome, State};
use crate::machine::Chip;
use crate::pairs;
use crate::words::{ChipId, Fault, ProcessId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Claims per chip that the processes of a user may make, on average.
const CLAIMS_A_CHIP: usize = 32;

/// What processes say of one chip.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// By process, and the id by which it names the chip.
    #[serde(with = "pairs")]
    all: BTreeMap<(ProcessId, ChipId), Claim>,
    /// Number of the last one.
    last: u64,
}

#[derive(Serialize, Deserialize)]
struct Claim {
    /// Of several claims the first one counts.
    number: u64,
    chip: Chip,
}

impl Claim {
    fn names(&self) -> impl Iterator<Item = ChipId> {
        let names = self.chip.names.iter().take(NAMES_A_CHIP);
        std::iter::once(self.chip.id).chain(names.map(|&name| ChipId::Unique(name)))
    }
}

impl ChipState {
    /// Ids by which the machine and processes call the chip, besides its key.
    pub(crate) fn names(&self, key: ChipId) -> BTreeSet<ChipId> {
        let claimed = self.claims.all.values().flat_map(Claim::names).filter(|name| *name != key);
        self.called.iter().copied().chain(claimed.take(NAMES_A_CHIP)).collect()
    }
}

impl State {
    /// Takes what a process says of a chip. A chip that the machine does not list is added.
    pub(super) fn name_chip(&mut self, by: Author, mut chip: Chip) -> Outcome {
        let id = chip.id;
        let user = self.processes.get(&by.id).and_then(|it| it.info.uid);
        let has = self.users.get(&user).copied().unwrap_or_default();
        let found = self.find_chip(&chip);
        let known = found.and_then(|key| self.chips.get(&key)?.claims.all.get(&(by.id, id)));
        if let Some(known) = known {
            // The counters of a process that has a segment, too, say less of the chip.
            chip.add_claim(&known.chip, false, false);
            if known.chip == chip {
                return Outcome::Noted;
            }
        }
        let most = self.limits.chips_per_user;
        let is_full = found.is_none() && (has.chips >= most || self.chips.len() >= self.limits.chips);
        if known.is_none() && (is_full || has.claims >= most * CLAIMS_A_CHIP) {
            return self.refuse(by, Fault::DefinitionsFull, None, None, 0);
        }
        let is_new = known.is_none();
        let key = found.unwrap_or_else(|| {
            let index = self.free_index(chip.index);
            self.chips.insert(id, ChipState::new(Chip::new(id, index), false, user));
            self.users.entry(user).or_default().chips += 1;
            self.event_log.device_added(self.now, index, id);
            id
        });
        let Some(state) = self.chips.get_mut(&key) else { return Outcome::Noted };
        state.gone &= state.is_listed;
        state.claims.last += 1;
        let claim = Claim { number: state.claims.last, chip };
        for name in claim.names().filter(|name| *name != key && !self.names.contains_key(name)) {
            self.claimed.entry(name).or_insert(key);
        }
        if let Some(process) = self.processes.get_mut(&by.id).filter(|_| is_new) {
            process.claims += 1;
        }
        state.claims.all.insert((by.id, id), claim);
        self.derive_chip(key);
        Outcome::Noted
    }

    /// Derives what is known of a chip. Processes that have it open are believed first.
    pub(super) fn derive_chip(&mut self, key: ChipId) {
        let Some(state) = self.chips.get_mut(&key) else { return };
        let is_open = |id: &ProcessId| self.processes.get(id).is_some_and(|it| it.opened.contains(&key));
        let claims = state.claims.all.iter().map(|((process, _), claim)| (!is_open(process), claim));
        let mut claims: Vec<(bool, &Claim)> = claims.collect();
        claims.sort_by_key(|(is_closed, claim)| (*is_closed, claim.number));
        let mut chip = state.base.clone();
        for (is_closed, claim) in claims {
            chip.add_claim(&claim.chip, state.is_listed, !is_closed);
        }
        if state.chip.core_layout != chip.core_layout {
            self.structure += 1;
        }
        state.chip = chip;
    }

    /// Forgets what a process said of chips, and the chips that no other process names. They are shown while a process has memory
    /// on them.
    pub(super) fn forget_claims(&mut self, id: ProcessId) {
        let mut changed = Vec::new();
        for (&key, state) in &mut self.chips {
            let before = state.claims.all.len();
            state.claims.all.retain(|(process, _), _| *process != id);
            if state.claims.all.len() < before {
                state.gone |= state.claims.all.is_empty() && !state.is_listed;
                changed.push(key);
            }
        }
        if changed.is_empty() {
            return;
        }
        for key in changed {
            self.derive_chip(key);
        }
        self.derive_claimed_names();
        self.forget_removed_chips();
    }

    fn derive_claimed_names(&mut self) {
        self.claimed.clear();
        for (&key, state) in &self.chips {
            let names = state.claims.all.values().flat_map(Claim::names);
            for name in names.filter(|name| *name != key && !self.names.contains_key(name)) {
                self.claimed.entry(name).or_insert(key);
            }
        }
    }

    /// Derives what follows from the claims of a restored state.
    pub(super) fn restore_claims(&mut self) {
        let (keys, structure): (Vec<ChipId>, u64) = (self.chips.keys().copied().collect(), self.structure);
        for key in keys {
            self.derive_chip(key);
        }
        // Nothing was derived from the restored state yet.
        self.structure = structure;
        for state in self.chips.values() {
            if !state.is_listed {
                self.users.entry(state.added_by).or_default().chips += 1;
            }
            for (process, _) in state.claims.all.keys() {
                if let Some(process) = self.processes.get_mut(process) {
                    process.claims += 1;
                }
            }
        }
        self.derive_claimed_names();
    }

    /// Counts one chip less that a user added.
    pub(super) fn forget_added_chip(users: &mut BTreeMap<Option<u32>, Holdings>, user: Option<u32>) {
        if let Some(all) = users.get_mut(&user) {
            all.chips -= 1;
            if *all == Holdings::default() {
                users.remove(&user);
            }
        }
    }
}
