//! A state with its analysis, as a session has them.

use ttmem_core::input::Input;
use ttmem_core::words::{Mono, Origin};
use ttmem_core::{Analysis, Detail, Limits, Outcome, Snapshot, State};

pub(crate) struct Model {
    pub(crate) state: State,
    pub(crate) analysis: Analysis,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: State::new(Limits::default(), seed), analysis: Analysis::default() }
    }

    pub(crate) fn apply(&mut self, now: Mono, from: Origin, input: Input) -> Outcome {
        self.state.apply(&mut self.analysis, now, from, input)
    }

    pub(crate) fn tick(&mut self, now: Mono) {
        self.state.tick(&mut self.analysis, now);
    }

    pub(crate) fn snapshot(&mut self, detail: &Detail) -> Snapshot {
        self.analysis.snapshot(&self.state, jiff::Timestamp::UNIX_EPOCH, detail)
    }
}
