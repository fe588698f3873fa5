//! Faults in what processes report, and allocations that failed.

use super::{Author, Outcome, State};
use crate::faults::{Subject, Tally};
use crate::input::{Failure, FaultReport};
use crate::label::Label;
use crate::snapshot::{self, FailureKind};
use crate::words::{ChipId, Fault, ProcessId, Scope, Space};
use std::collections::BTreeMap;
use ttmem_types::program_number;

/// Failures of a process that are kept: as many as a segment keeps.
const KEPT_FAILURES: usize = 8;

impl State {
    pub(super) fn fault(&mut self, by: Author, report: FaultReport) -> Outcome {
        let FaultReport { fault, count, id } = report;
        // Whether an address was allocated again with the same size or another is one finding.
        let fault = if fault == Fault::StillHeld { Fault::Replaced } else { fault };
        if fault == Fault::OutOfMemory {
            let failure = Failure::new(FailureKind::OutOfMemory, self.now);
            return self.fail(by, Failure { requested: id, count, ..failure });
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

    /// Counts a failed allocation, and keeps it for its post-mortem.
    pub(super) fn fail(&mut self, by: Author, mut failure: Failure) -> Outcome {
        // The writer's clock may be ahead.
        failure.at = failure.at.min(self.now);
        let described = Box::new(self.describe_failure(by.id, &failure));
        let resolved: Vec<ChipId> = failure.chips.iter().map(|&chip| self.resolve(chip)).collect();
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        self.faults.name(by.id, &process.info);
        let label = Label::new(by.id, &process.info);
        let (kind, space, at, count) = (failure.kind, failure.space, failure.at, failure.count);
        if process.failures.len() >= KEPT_FAILURES {
            process.failures.pop_front();
        }
        process.failures.push_back(failure);
        process.failure_count += count;
        let chips = self.numbered(&resolved);
        let chip = chips.values().next().copied().filter(|_| chips.len() == 1);
        let subject =
            Subject { fault: Fault::OutOfMemory, failure: Some(kind), process: Some(by.id), chip, space };
        self.faults.add_failure(self.now, subject, at, count, described.clone());
        let bytes = described.requested_bytes.unwrap_or(0);
        let tally = Tally { count, bytes, failure: Some(described), ..Tally::new(at) };
        self.event_log.failed(subject, label, chips, tally);
        Outcome::Noted
    }

    /// A failure with the names that are known of it.
    pub(crate) fn describe_failure(&self, id: ProcessId, failure: &Failure) -> snapshot::Failure {
        let Failure { kind, space, requested, needed, available, free, program, .. } = *failure;
        let process = self.processes.get(&id);
        let known = |bytes: u64| Some(bytes).filter(|&bytes| bytes > 0);
        let of = |kinds: &[FailureKind], bytes: Option<u64>| bytes.filter(|_| kinds.contains(&kind));
        let chips: Vec<ChipId> = failure.chips.iter().map(|&chip| self.resolve(chip)).collect();
        let named = |scope: Scope| process.and_then(|it| it.program_name(scope, program)).cloned();
        let by_site = || process.and_then(|it| it.sites.program_name(failure.site)).cloned();
        let program_name = failure.scope.and_then(named).or_else(by_site).filter(|_| program != 0);
        snapshot::Failure {
            kind,
            indexes: self.numbered(&chips).into_keys().collect(),
            space,
            requested_bytes: known(requested),
            needed_bytes_per_bank: of(&[FailureKind::OutOfMemory, FailureKind::Unsupported], known(needed)),
            free_bytes_per_bank: free,
            largest_free_bytes_per_bank: of(&[FailureKind::OutOfMemory], available),
            program_end: of(&[FailureKind::Clash, FailureKind::BeyondL1], known(needed)),
            lowest_buffer: of(&[FailureKind::Clash], available),
            limit_bytes: of(
                &[FailureKind::BeyondL1, FailureKind::KernelConfig, FailureKind::TraceRegion],
                available,
            ),
            cores: process.and_then(|it| it.cores.get(&failure.cores)).map(|cores| cores.rectangles()),
            program: (program != 0).then(|| program_number(program)),
            program_name,
            site_name: process
                .and_then(|it| it.sites.line(failure.site).or_else(|| it.sites.name(failure.site).cloned())),
            origin: process.map(|it| it.sites.origin(failure.site)).unwrap_or_default(),
            sequence: known(failure.sequence),
        }
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
        let subject = Subject { fault, failure: None, process: Some(by.id), chip, space };
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
