//! Traces: dispatches that were captured, to be replayed with the addresses of then. Buffers that were allocated since may
//! lie where a replay writes.

use crate::event;
use crate::programs::Tenant;
use crate::snapshot::{Finding, FindingKind, Severity, Trace};
use crate::state::{ProcessState, State, chips_in};
use crate::view::Clock;
use crate::words::{ProcessId, Scope, Space, size};
use std::collections::BTreeSet;

/// Where there are buffers that a replay may write over. What the traces themselves are kept in is none of these.
const SPACES: [Space; 4] = [Space::Dram, Space::L1, Space::L1Small, Space::L1Core];

impl State {
    /// A process's traces, by allocator and number.
    pub(crate) fn traces_of(&self, id: ProcessId, process: &ProcessState, clock: Clock) -> Vec<Trace> {
        let describe = |(&(scope, number), trace): (&(Scope, u32), &event::Trace)| {
            let Scope::Allocator(allocator) = scope else { return None };
            let [endangered_count, endangered_bytes] = self.endangered(id, trace);
            Some(Trace {
                id: number,
                allocator,
                devices: self.names_of(chips_in(&process.allocators, &scope)).0,
                dispatches: trace.dispatches,
                replays: trace.replays,
                captured: clock.wall(trace.captured),
                endangered_count,
                endangered_bytes,
            })
        };
        process.traces.iter().filter_map(describe).collect()
    }

    pub(crate) fn judge_traces(&self, id: ProcessId, process: &ProcessState, findings: &mut Vec<Finding>) {
        for (&(_, number), trace) in &process.traces {
            let [count, bytes] = self.endangered(id, trace);
            if count == 0 {
                continue;
            }
            let label = self.label_of(id);
            let text = format!(
                "{label}: replaying trace {number} may overwrite {count} buffer{} ({}) allocated after its capture",
                if count == 1 { "" } else { "s" },
                size(bytes)
            );
            let finding = label.finding(FindingKind::TraceOverwrite, Severity::Warning, text, count);
            findings.push(Finding { bytes: Some(bytes), ..finding });
        }
    }

    /// How many buffers a replay may write over, and what they asked for: those of the process, on any of the trace's chips.
    fn endangered(&self, process: ProcessId, trace: &event::Trace) -> [u64; 2] {
        let key = (Tenant { process, scope: trace.scope }, trace.id);
        let Some(known) = self.processes.get(&process) else { return [0; 2] };
        let plan = self.plan();
        let chips = chips_in(&known.allocators, &trace.scope);
        let kinds: BTreeSet<usize> = chips.iter().filter_map(|&chip| plan.kind_of(chip)).collect();
        let here = kinds.iter().flat_map(|&number| &plan.kinds[number].tenants);
        let here: BTreeSet<Tenant> = here.filter(|it| it.process == process).copied().collect();
        let version = here.iter().map(|&it| self.version_in(it, &SPACES)).max().unwrap_or(0);
        let version = (trace.captured.0, version);
        if let Some((_, known)) = self.derived.borrow().traces.get(&key).filter(|(of, _)| *of == version) {
            return *known;
        }
        let pools = here.iter().flat_map(|&it| self.pools_of(it, &SPACES));
        let entries = pools.flat_map(|(_, pool)| self.ledger.entries(pool)).map(|(_, entry)| entry);
        let since = entries.filter(|it| it.born > trace.captured.0 && !it.layout.is_alias());
        let sum = since.fold([0u64; 2], |[count, bytes], it| [count + 1, bytes.saturating_add(it.requested)]);
        self.derived.borrow_mut().traces.insert(key, (version, sum));
        sum
    }
}
