//! Traces: captured dispatches, which a replay runs with the addresses they had. A replay may overwrite buffers that were
//! allocated since.

use super::{Clock, Figures, Tenant};
use crate::input;
use crate::snapshot::{Finding, FindingKind, Severity, Trace};
use crate::state::{ProcessState, chips_in};
use crate::words::{ProcessId, Scope, Space, size};
use std::collections::BTreeSet;

/// Spaces of buffers that a replay may overwrite. The trace region is none of these.
const SPACES: [Space; 4] = [Space::Dram, Space::L1, Space::L1Small, Space::L1Core];

impl Figures<'_> {
    /// A process's traces, by allocator and number.
    pub(super) fn traces_of(&mut self, id: ProcessId, process: &ProcessState, clock: Clock) -> Vec<Trace> {
        let mut traces = Vec::new();
        for (&(scope, number), trace) in &process.traces {
            let Scope::Allocator(allocator) = scope else { continue };
            let [endangered_count, endangered_bytes] = self.endangered(id, trace);
            traces.push(Trace {
                id: number,
                allocator,
                devices: self.state.names_of(chips_in(&process.allocators, &scope)).0,
                dispatches: trace.dispatches,
                replays: trace.replays,
                captured: clock.wall(trace.captured),
                endangered_count,
                endangered_bytes,
            });
        }
        traces
    }

    /// Findings about buffers that a replay may overwrite.
    pub(super) fn judge_traces(
        &mut self,
        id: ProcessId,
        process: &ProcessState,
        findings: &mut Vec<Finding>,
    ) {
        for (&(_, number), trace) in &process.traces {
            let [count, bytes] = self.endangered(id, trace);
            if count == 0 {
                continue;
            }
            let label = self.state.label_of(id);
            let text = format!(
                "{label}: replaying trace {number} may overwrite {count} buffer{} ({}) allocated after its capture",
                if count == 1 { "" } else { "s" },
                size(bytes)
            );
            let finding = label.finding(FindingKind::TraceOverwrite, Severity::Warning, text, count);
            findings.push(Finding { bytes: Some(bytes), ..finding });
        }
    }

    /// Number and requested bytes of buffers that a replay may overwrite: those of the process, on any of the trace's chips.
    fn endangered(&mut self, process: ProcessId, trace: &input::Trace) -> [u64; 2] {
        let key = (Tenant { process, scope: trace.scope }, trace.id);
        let Some(known) = self.state.processes.get(&process) else { return [0; 2] };
        let plan = self.plan();
        let chips = chips_in(&known.allocators, &trace.scope);
        let groups: BTreeSet<usize> = chips.iter().filter_map(|&chip| plan.group_of(chip)).collect();
        let here = groups.iter().flat_map(|&number| &plan.groups[number].tenants);
        let here: BTreeSet<Tenant> = here.filter(|it| it.process == process).copied().collect();
        let version = here.iter().map(|&it| self.state.version_in(it, &SPACES)).max().unwrap_or(0);
        let version = (trace.captured.0, version);
        if let Some((_, known)) = self.cache.traces.get(&key).filter(|(of, _)| *of == version) {
            return *known;
        }
        let pools = here.iter().flat_map(|&it| self.state.pools_of(it, &SPACES));
        let entries = pools.flat_map(|(_, pool)| self.state.ledger.entries(pool)).map(|(_, entry)| entry);
        let since = entries.filter(|it| it.allocated_at > trace.captured.0 && !it.layout.is_alias());
        let sum = since.fold([0u64; 2], |[count, bytes], it| [count + 1, bytes.saturating_add(it.requested)]);
        self.cache.traces.insert(key, (version, sum));
        sum
    }
}
