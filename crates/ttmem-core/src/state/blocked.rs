//! Cached programs whose memory overlaps L1 buffers. That is usual for a moment: the buffers of one operation are gone before the next
//! one begins. If the same buffer stays while other programs are dispatched again and again, the program's next dispatch will fail.

use super::State;
use super::process::{Blocked, ProcessState, ProgramState};
use crate::analysis::Analysis;

/// Dispatches of a program from which on it is expected to be dispatched again.
const EXPECTED_AGAIN: u64 = 3;
/// How many times as long as usual a program must not have been dispatched.
const OVERDUE: u64 = 3;

impl State {
    /// Notes which programs are blocked, and by which buffer.
    pub(super) fn note_blocked_programs(&mut self, analysis: &mut Analysis) {
        let found = analysis.of(self).blocked_programs();
        for (id, process) in &mut self.processes {
            let dispatches = process.dispatches;
            for (&(scope, number), program) in &mut process.programs {
                let before = program.blocked;
                program.blocked = found.get(&(*id, scope, number)).map(|&address| {
                    let same = before.filter(|before| before.address == address);
                    same.unwrap_or(Blocked { address, dispatches })
                });
            }
        }
    }
}

impl ProcessState {
    /// Dispatches of its other programs while one was blocked that should have been dispatched meanwhile; `None` if that is not so.
    pub(crate) fn overdue(&self, program: &ProgramState) -> Option<u64> {
        let blocked = program.blocked.filter(|_| program.dispatches >= EXPECTED_AGAIN)?;
        let since = self.dispatches.saturating_sub(blocked.dispatches);
        let usual = (blocked.dispatches / program.dispatches).max(1);
        (since >= usual.saturating_mul(OVERDUE)).then_some(since)
    }
}
