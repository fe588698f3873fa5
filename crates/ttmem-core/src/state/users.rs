//! What the processes of one user have together, so that one user's flood leaves room for others.

use super::{ProcessState, State};
use crate::input::Allocator;
use crate::words::ProcessId;

/// What a process has, or all processes of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Live allocations.
    pub(crate) records: u64,
    /// Bytes that its definitions take here.
    pub(crate) definition_bytes: u64,
    /// What its processes say of chips: one for each process and chip.
    pub(crate) claims: usize,
    /// Chips that the machine does not list.
    pub(crate) chips: usize,
}

/// Bytes of the entry of a definition in its map, besides its text.
pub(crate) const ENTRY_BYTES: u64 = 96;
/// Bytes of a program, with what is derived of it.
const PROGRAM_BYTES: u64 = 256;
/// Bytes of a pool, with its sums by call site.
const POOL_BYTES: u64 = 1024;

/// Bytes that an allocator takes.
pub(super) fn allocator_bytes(allocator: &Allocator) -> u64 {
    ENTRY_BYTES + (size_of_val(allocator.chips.as_slice()) + size_of_val(allocator.spaces.as_slice())) as u64
}

impl ProcessState {
    fn holdings(&self) -> Holdings {
        let entries = self.cores.len() + self.traces.len() + self.audits.len() + self.program_names.len();
        let definition_bytes = ENTRY_BYTES * entries as u64
            + PROGRAM_BYTES * self.programs.len() as u64
            + POOL_BYTES * self.pools.len() as u64
            + self.text_bytes
            + self.sites.bytes();
        Holdings { records: self.records, definition_bytes, claims: self.claims, chips: 0 }
    }

    /// Counts the bytes of texts and lists in its definitions.
    pub(super) fn count_text_bytes(&mut self) {
        let names = self.program_names.values().map(|name| name.len() as u64);
        self.text_bytes = names.chain(self.allocators.values().map(allocator_bytes)).sum();
    }
}

impl State {
    /// What all processes of a process's user have.
    pub(super) fn holdings_of_user(&self, id: ProcessId) -> Holdings {
        let process = self.processes.get(&id);
        process.and_then(|it| self.users.get(&it.info.uid)).copied().unwrap_or_default()
    }

    /// The most definitions of one kind that a process may have: none that is new if those of its user take too much.
    pub(super) fn definition_limit(&self, id: ProcessId) -> usize {
        let is_full = self.holdings_of_user(id).definition_bytes >= self.limits.definition_bytes_per_user;
        if is_full { 0 } else { self.limits.definitions }
    }

    /// Counts for its user what a process has now.
    pub(super) fn count_holdings(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let now = process.holdings();
        let before = std::mem::replace(&mut process.counted, now);
        let user = process.info.uid;
        if now != before {
            self.replace_holdings(user, before, now);
        }
    }

    pub(super) fn replace_holdings(&mut self, user: Option<u32>, before: Holdings, now: Holdings) {
        let all = self.users.entry(user).or_default();
        all.records = all.records + now.records - before.records;
        all.definition_bytes = all.definition_bytes + now.definition_bytes - before.definition_bytes;
        all.claims = all.claims + now.claims - before.claims;
        if *all == Holdings::default() {
            self.users.remove(&user);
        }
    }
}
