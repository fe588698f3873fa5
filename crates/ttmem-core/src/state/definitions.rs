//! What a process defines: allocators, core sets, programs, traces and names; and audits of its allocators.

use super::process::{Compared, Drift, difference};
use super::users::allocator_bytes;
use super::{Author, Outcome, ProcessState, ProgramState, Reclaimed, State};
use crate::analysis::{Analysis, Tenant, part};
use crate::core_set::CoreSet;
use crate::input::{Allocator, Audit, Program, SiteDefinition, Trace};
use crate::ledger::Totals;
use crate::words::{Basis, Fault, Scope, Space};
use std::collections::BTreeSet;

impl State {
    pub(super) fn define_cores(&mut self, by: Author, number: u32, cores: CoreSet) -> Outcome {
        let limit = self.definition_limit(by.id);
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        if process.cores.len() >= limit && !process.cores.contains_key(&number) {
            return self.refuse(by, Fault::DefinitionsFull, None, None, 0);
        }
        process.cores.insert(number, cores);
        self.core_sets += 1;
        Outcome::Noted
    }

    pub(super) fn define_allocator(&mut self, by: Author, mut allocator: Allocator) -> Outcome {
        for chip in &mut allocator.chips {
            *chip = self.resolve(*chip);
        }
        if allocator.chips.iter().any(|chip| !self.chips.contains_key(chip)) {
            return self.refuse(by, Fault::UnknownChip, None, None, 0);
        }
        let limit = self.definition_limit(by.id);
        let chips = self.numbered(&allocator.chips);
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        if process.allocators.len() >= limit && !process.allocators.contains_key(&allocator.id) {
            return self.refuse(by, Fault::DefinitionsFull, None, None, 0);
        }
        let scope = Scope::Allocator(allocator.id);
        // One without banks is a set of chips that programs refer to; further ones of the same chips are no further open.
        if !process.allocators.contains_key(&allocator.id) && opens(process, &allocator) {
            self.event_log.allocator_opened(self.now, by.id, &process.info, chips);
        }
        process.text_bytes += allocator_bytes(&allocator);
        if let Some(replaced) = process.allocators.insert(allocator.id, allocator) {
            process.text_bytes -= allocator_bytes(&replaced);
        }
        for (_, &pool) in process.pools.iter().filter(|((of, ..), _)| *of == scope) {
            self.ledger.touch(pool);
        }
        self.structure += 1;
        Outcome::Noted
    }

    pub(super) fn name_program(&mut self, by: Author, number: u32, text: String) -> Outcome {
        let limit = self.definition_limit(by.id);
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        if process.program_names.len() >= limit && !process.program_names.contains_key(&number) {
            return self.refuse(by, Fault::DefinitionsFull, None, None, 0);
        }
        process.text_bytes += text.len() as u64;
        if let Some(replaced) = process.program_names.insert(number, text) {
            process.text_bytes -= replaced.len() as u64;
        }
        Outcome::Noted
    }

    pub(super) fn define_site(&mut self, by: Author, definition: SiteDefinition) -> Outcome {
        let limit = self.definition_limit(by.id);
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        if process.sites.define(definition, limit) {
            Outcome::Noted
        } else {
            self.refuse(by, Fault::DefinitionsFull, None, None, 0)
        }
    }

    pub(super) fn close_allocator(&mut self, analysis: &mut Analysis, by: Author, number: u32) -> Outcome {
        let scope = Scope::Allocator(number);
        self.recent = None;
        self.record_dispatches(analysis, Tenant { process: by.id, scope });
        self.structure += 1;
        let Some(mut process) = self.processes.remove(&by.id) else { return Outcome::UnknownProcess };
        let (mut held, mut gone) = (0, Reclaimed::default());
        let mut pools = std::mem::take(&mut process.pools);
        pools.retain(|&(of, space, _), &mut pool| {
            if of == scope {
                self.keep_peak(&process, scope, pool);
                self.note_past(&mut process, scope, pool);
                let unlisted = self.ledger.pool(pool).unlisted.count;
                let totals = self.ledger.close(pool);
                process.records -= totals.count - unlisted;
                held += totals.requested;
                gone.add(space, totals);
            }
            of != scope
        });
        process.pools = pools;
        let closed = process.allocators.remove(&number);
        process.text_bytes -= closed.as_ref().map_or(0, allocator_bytes);
        let known = closed.is_some();
        if let Some(closed) = closed.filter(|it| opens(&process, it)) {
            let chips = self.numbered(&closed.chips);
            self.event_log.allocator_closed(self.now, by.id, &process.info, chips, held);
        }
        process.programs.retain(|(of, _), _| *of != scope);
        process.traces.retain(|(of, _), _| *of != scope);
        process.audits.retain(|&(of, _), _| of != number);
        self.processes.insert(by.id, process);
        if known { Outcome::Reclaimed(gone) } else { self.refuse(by, Fault::UnknownAllocator, None, None, 0) }
    }

    /// Frees everything that an open allocator handed out. Its peaks stay.
    pub(super) fn clear_allocator(&mut self, analysis: &mut Analysis, by: Author, number: u32) -> Outcome {
        let scope = Scope::Allocator(number);
        self.record_dispatches(analysis, Tenant { process: by.id, scope });
        self.structure += 1;
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        if !process.allocators.contains_key(&number) {
            return self.refuse(by, Fault::UnknownAllocator, None, None, 0);
        }
        let mut gone = Reclaimed::default();
        for (&(_, space, _), &pool) in process.pools.iter().filter(|((of, ..), _)| *of == scope) {
            let unlisted = self.ledger.pool(pool).unlisted.count;
            let totals = self.ledger.clear(pool);
            process.records -= totals.count - unlisted;
            gone.add(space, totals);
        }
        process.programs.retain(|(of, _), _| *of != scope);
        process.traces.retain(|(of, _), _| *of != scope);
        process.audits.retain(|&(of, _), _| of != number);
        Outcome::Reclaimed(gone)
    }

    /// Records a program that was defined or dispatched.
    pub(super) fn define_program(
        &mut self,
        analysis: &mut Analysis,
        by: Author,
        program: &Program,
    ) -> Outcome {
        let &Program { scope, id, cores, site, class, dispatches, dispatched } = program;
        let limit = self.definition_limit(by.id);
        // What is on its cores together is compared later; the buffers that are there now are noted.
        let tenant = Tenant { process: by.id, scope };
        let buffers = dispatched.map(|at| (analysis.of(self).lockstep_bytes_of(tenant), at));
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        let key = (scope, id);
        if process.programs.len() >= limit && !process.programs.contains_key(&key) {
            return self.refuse(by, Fault::DefinitionsFull, None, None, 0);
        }
        self.program_changes += 1;
        process.program_changes = self.program_changes;
        let last = dispatched.map(|at| (at, self.program_changes));
        let (pending_peak, recorded_peak, blocked) = (None, None, None);
        let new = ProgramState { cores, site, class, dispatches, last, pending_peak, recorded_peak, blocked };
        let before = process.programs.get(&key).map_or(0, |known| known.dispatches);
        process.dispatches = process.dispatches.saturating_add(dispatches.saturating_sub(before));
        let known = process.programs.entry(key).or_insert(new);
        let (mut pending_peak, recorded_peak) = (known.pending_peak, known.recorded_peak);
        let most = recorded_peak.max(pending_peak.map(|(buffers, _)| buffers));
        if let Some((buffers, at)) = buffers.filter(|&(buffers, _)| most.is_none_or(|most| buffers > most)) {
            pending_peak = Some((buffers, at));
        }
        *known = ProgramState { pending_peak, recorded_peak, ..new };
        Outcome::Noted
    }

    pub(super) fn define_trace(&mut self, by: Author, trace: Trace) -> Outcome {
        let limit = self.definition_limit(by.id);
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        let key = (trace.scope, trace.id);
        if process.traces.len() >= limit && !process.traces.contains_key(&key) {
            return self.refuse(by, Fault::DefinitionsFull, None, None, 0);
        }
        match process.traces.insert(key, trace) {
            Some(before) if trace.replays > before.replays => self.mark_replay(by.id, trace.scope, trace.id),
            None if process.logged_trace < Some(trace.captured) => {
                process.logged_trace = Some(trace.captured);
                self.event_log.trace_captured(self.now, by.id, &process.info, trace.dispatches);
            }
            Some(_) | None => {}
        }
        Outcome::Noted
    }

    pub(super) fn end_trace(&mut self, by: Author, scope: Scope, trace: u32) -> Outcome {
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        if process.traces.remove(&(scope, trace)).is_some() {
            process.growth.forget_trace(scope, trace);
            self.event_log.trace_released(self.now, by.id, &process.info);
        }
        Outcome::Noted
    }

    pub(super) fn end_program(
        &mut self,
        analysis: &mut Analysis,
        by: Author,
        scope: Scope,
        program: u32,
    ) -> Outcome {
        let Some(process) = self.processes.get(&by.id) else { return Outcome::UnknownProcess };
        let (mut ended, mut parts) = (Vec::new(), Vec::new());
        let mut gone = Reclaimed::default();
        for space in Space::PROGRAM {
            let Some(&pool) = process.pools.get(&(scope, space, by.basis)) else { continue };
            let mut totals = Totals::default();
            for (slot, held) in self.ledger.records_of_program(pool, program) {
                ended.push(slot);
                totals.add(held);
                parts.push(part(process, space, held));
            }
            gone.add(space, totals);
        }
        self.record_last_dispatch(analysis, Tenant { process: by.id, scope }, program, &parts);
        for &slot in &ended {
            self.ledger.remove(slot);
        }
        self.program_changes += 1;
        if let Some(process) = self.processes.get_mut(&by.id) {
            process.records -= ended.len() as u64;
            process.program_changes = self.program_changes;
            process.programs.remove(&(scope, program));
        }
        Outcome::Reclaimed(gone)
    }

    /// Compares the runtime's own statistics with the records.
    pub(super) fn compare(&mut self, analysis: &mut Analysis, by: Author, audit: &Audit) -> Outcome {
        let scope = Scope::Allocator(audit.allocator);
        let Some(process) = self.processes.get(&by.id) else { return Outcome::UnknownProcess };
        if !process.allocators.contains_key(&audit.allocator) {
            return self.refuse_in(by, Fault::UnknownAllocator, scope, audit.space, 0);
        }
        let ours = process
            .pools
            .get(&(scope, audit.space, Basis::Exact))
            .map_or(0, |&pool| self.ledger.pool(pool).totals.held());
        let layout = process.banks(scope, audit.space);
        let pool = process.pools.get(&(scope, audit.space, Basis::Exact)).copied();
        // Allocations that are not listed have addresses, too.
        let listed = pool.is_none_or(|pool| self.ledger.pool(pool).unlisted.count == 0);
        let free =
            layout.filter(|_| listed).map(|layout| analysis.of(self).free_space(layout, pool.as_slice()));
        let drift = Drift {
            allocated: difference(ours, audit.allocated_bytes),
            free: free.zip(layout).map(|(free, layout)| {
                difference(free.bytes_per_bank.saturating_mul(u64::from(layout.banks)), audit.free_bytes)
            }),
            largest_free: free.map(|free| difference(free.largest, audit.largest_free_bytes_per_bank)),
        };
        if let Some(process) = self.processes.get_mut(&by.id) {
            if audit.quiet {
                process.compared[usize::from(!drift.is_zero())] += 1;
            }
            process.audits.insert((audit.allocator, audit.space), Compared { theirs: *audit, drift });
        }
        Outcome::Noted
    }
}

/// Whether an allocator is the only one that a process has over its chips: then its chips are opened and closed with it.
/// A mesh and its devices have one each, and a runtime makes others for parts of their cores.
fn opens(process: &ProcessState, allocator: &Allocator) -> bool {
    let chips = |it: &Allocator| it.chips.iter().copied().collect::<BTreeSet<_>>();
    let others = process.allocators.values().filter(|it| it.id != allocator.id && !it.spaces.is_empty());
    !allocator.spaces.is_empty() && others.map(chips).all(|it| it != chips(allocator))
}
