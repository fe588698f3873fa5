//! The sink of a session's sources: applies input, and hands out single events.

use super::Model;
use crate::ProcessKey;
use crate::events::{self, EventConsumer, process_event};
use jiff::Timestamp;
use ttmem_core::Outcome;
use ttmem_core::input::Input;
use ttmem_core::snapshot::{MemoryEvent, MemoryEventKind};
use ttmem_core::words::{Basis, ProcessId};
use ttmem_sources::{EventSink, ProcessIdentity, SegmentEvent};

/// Applies input to the model, and hands single events to a consumer, if there is one.
pub(super) struct Recorder<'m, 'e> {
    model: &'m mut Model,
    events: Option<EventConsumer<'e>>,
    /// Outcome of the last input.
    outcome: Option<Outcome>,
}

impl<'m, 'e> Recorder<'m, 'e> {
    pub(super) fn new(model: &'m mut Model, events: Option<EventConsumer<'e>>) -> Self {
        Self { model, events, outcome: None }
    }

    /// Removes a process, and everything it held.
    pub(super) fn remove_process(&mut self, process: ProcessKey) {
        let event = self.exit_event(process);
        let outcome = self.model.remove_process(process);
        if let (Some(events), Some(mut event)) = (&mut self.events, event) {
            if let Some(Outcome::Reclaimed(reclaimed)) = outcome {
                event.released = Some(reclaimed.into());
            }
            (events.take)(event, true);
        }
    }

    /// The exit of a process that reported events.
    fn exit_event(&self, process: ProcessKey) -> Option<MemoryEvent> {
        let (state, id) = (&self.model.state, self.model.processes.get(process)?.id);
        let basis = state.basis_of(id).filter(|basis| matches!(basis, Basis::Exact | Basis::Reported))?;
        let kind = MemoryEventKind::ProcessExited;
        self.events.as_ref().map(|_| process_event(state, id, basis, kind, Timestamp::now()))
    }
}

impl EventSink for Recorder<'_, '_> {
    fn register(&mut self, identity: &ProcessIdentity, basis: Basis) -> ProcessId {
        self.model.register(identity, basis)
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, input: Input) {
        if let Input::Exited = input {
            if let Some(process) = self.model.processes.find_id(process) {
                self.remove_process(process);
            }
            return;
        }
        self.outcome = Some(self.model.apply(process, basis, input));
    }

    fn emit_machine(&mut self, input: Input) {
        self.model.emit_machine(input);
    }

    fn wants_records(&self) -> bool {
        self.events.is_some()
    }

    fn emit_record(&mut self, process: ProcessId, event: &SegmentEvent<'_>) {
        let Some(events) = &mut self.events else { return };
        let is_applied = matches!(event, SegmentEvent::Record(record) if record.is_applied);
        let outcome = self.outcome.take().filter(|_| is_applied);
        let described = events::describe(&self.model.state, process, event, outcome, events.levels);
        // The gap of a new segment begins with its first record.
        let is_new = match event {
            SegmentEvent::Record(record) => record.is_new,
            SegmentEvent::Gap(gap) => gap.first > 1,
        };
        (events.take)(described, is_new);
    }
}
