//! A state with its analysis, for tests that need both all the time.

use crate::detail::BufferQuery;
use crate::snapshot::{Buffers, Usage};
use crate::words::{ChipId, Mono, Origin};
use crate::{Analysis, Detail, Input, Limits, Outcome, Snapshot, State};
use jiff::Timestamp;
use std::cell::RefCell;
use std::ops::Deref;

pub(crate) struct Model {
    pub(crate) state: State,
    analysis: RefCell<Analysis>,
}

impl Model {
    pub(crate) fn new(limits: Limits, seed: u64) -> Self {
        Self { state: State::new(limits, seed), analysis: RefCell::default() }
    }

    pub(crate) fn apply(&mut self, now: Mono, from: Origin, input: Input) -> Outcome {
        self.state.apply(self.analysis.get_mut(), now, from, input)
    }

    pub(crate) fn tick(&mut self, now: Mono) {
        self.state.tick(self.analysis.get_mut(), now);
    }

    pub(crate) fn snapshot(&self, at: Timestamp, detail: &Detail) -> Snapshot {
        self.analysis.borrow_mut().snapshot(&self.state, at, detail)
    }

    pub(crate) fn usage_of(&self, chip: ChipId) -> Usage {
        self.analysis.borrow_mut().usage_of(&self.state, chip)
    }

    pub(crate) fn buffers(&self, query: &BufferQuery, full: bool) -> Buffers {
        self.analysis.borrow_mut().of(&self.state).buffers(query, full)
    }

    /// Begins with a new analysis, which has derived nothing yet.
    pub(crate) fn forget_analysis(&mut self) {
        self.analysis.take();
    }

    /// Replaces the state by one that is restored from its keyframe.
    pub(crate) fn restore(&mut self) {
        let keyframe = serde_json::to_vec(&self.state).unwrap();
        self.state = serde_json::from_slice(&keyframe).unwrap();
        self.forget_analysis();
    }
}

impl From<State> for Model {
    fn from(state: State) -> Self {
        Self { state, analysis: RefCell::default() }
    }
}

impl Deref for Model {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}
