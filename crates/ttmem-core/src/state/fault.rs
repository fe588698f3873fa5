//! Faults in what processes report, and allocations that failed.

use super::{Author, Outcome, State};
use crate::faults::{Request, Subject, Tally};
use crate::input::{FaultReport, OutOfMemory};
use crate::label::Label;
use crate::words::{ChipId, Fault, ProcessId, Scope, Space};
use std::collections::BTreeMap;

impl State {
    pub(super) fn fault(&mut self, by: Author, report: FaultReport) -> Outcome {
        let FaultReport { fault, count, id } = report;
        // Whether an address was allocated again with the same size or another is one finding.
        let fault = if fault == Fault::StillHeld { Fault::Replaced } else { fault };
        if fault == Fault::OutOfMemory {
            let (chips, space, largest_free_bytes_per_bank) = (Vec::new(), None, None);
            let (requested, at) = (id, self.now);
            let failure = OutOfMemory { chips, space, requested, largest_free_bytes_per_bank, at, count };
            return self.out_of_memory(by, &failure);
        }
        self.note(fault, by, None, None, 0, count, id);
        if !fault.is_refusal() {
            return Outcome::Noted;
        }
        // A missing definition only leaves records without a description.
        let process = self.processes.get_mut(&by.id).filter(|_| fault != Fault::DefinitionsFull);
        if let Some(process) = process {
            process.refused = process.refused.saturating_add(count);
        }
        Outcome::Refused(fault)
    }

    pub(super) fn out_of_memory(&mut self, by: Author, failure: &OutOfMemory) -> Outcome {
        let Some(process) = self.processes.get(&by.id) else { return Outcome::UnknownProcess };
        self.faults.name(by.id, &process.info);
        let label = Label::new(by.id, &process.info);
        let resolved: Vec<ChipId> = failure.chips.iter().map(|&chip| self.resolve(chip)).collect();
        let chips = self.numbered(&resolved);
        let chip = chips.values().next().copied().filter(|_| chips.len() == 1);
        let subject = Subject { fault: Fault::OutOfMemory, process: Some(by.id), chip, space: failure.space };
        let request = Request {
            devices: chips.keys().copied().collect(),
            bytes: failure.requested,
            largest_free_bytes_per_bank: failure.largest_free_bytes_per_bank,
        };
        // The writer's clock may be ahead.
        let at = failure.at.min(self.now);
        self.faults.add_failure(self.now, subject, at, failure.count, request.clone());
        let tally =
            Tally { count: failure.count, bytes: request.bytes, request: Some(request), ..Tally::new(at) };
        self.event_log.out_of_memory(subject, label, chips, tally);
        Outcome::Noted
    }

    /// Chips by index.
    pub(super) fn numbered(&self, chips: &[ChipId]) -> BTreeMap<u32, ChipId> {
        chips.iter().filter_map(|id| self.chips.get(id).map(|it| (it.chip.index, *id))).collect()
    }

    pub(super) fn refuse_in(
        &mut self,
        by: Author,
        fault: Fault,
        scope: Scope,
        space: Space,
        bytes: u64,
    ) -> Outcome {
        self.refuse(by, fault, chip_of(scope), Some(space), bytes)
    }

    pub(super) fn refuse(
        &mut self,
        by: Author,
        fault: Fault,
        chip: Option<ChipId>,
        space: Option<Space>,
        bytes: u64,
    ) -> Outcome {
        if let Some(process) = self.processes.get_mut(&by.id) {
            process.refused = process.refused.saturating_add(1);
        }
        self.note(fault, by, chip, space, bytes, 1, 0);
        Outcome::Refused(fault)
    }

    /// The label of a process in findings and events, also after it exited.
    pub(crate) fn label_of(&self, id: ProcessId) -> Label {
        match (self.processes.get(&id), self.faults.label(id)) {
            (Some(process), _) => Label::new(id, &process.info),
            (None, Some(label)) => label.clone(),
            (None, None) => Label::unknown(id),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call a field of the finding, and private")]
    pub(super) fn note(
        &mut self,
        fault: Fault,
        by: Author,
        chip: Option<ChipId>,
        space: Option<Space>,
        bytes: u64,
        count: u64,
        id: u64,
    ) {
        // A finding names no chip that is not listed.
        let chip = chip.filter(|chip| self.chips.contains_key(chip));
        let subject = Subject { fault, process: Some(by.id), chip, space };
        if let Some(process) = self.processes.get(&by.id) {
            self.faults.name(by.id, &process.info);
        }
        let first = self.faults.add(self.now, subject, bytes, count, id);
        // The event of the exit has the same figures.
        if first && fault != Fault::Reclaimed {
            let now = self.now;
            let index = chip.and_then(|chip| self.chips.get(&chip)).map(|it| it.chip.index);
            let label = self.label_of(by.id);
            let tally = Tally { count, bytes, last_id: id, ..Tally::new(now) };
            self.event_log.fault(now, subject, label, index, tally);
        }
    }
}

/// The chip of a scope, if it is one.
pub(super) fn chip_of(scope: Scope) -> Option<ChipId> {
    match scope {
        Scope::Chip(chip) => Some(chip),
        Scope::Allocator(_) => None,
    }
}
