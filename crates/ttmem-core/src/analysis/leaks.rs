//! Call sites that leak, and findings about them.

use super::Figures;
use super::view::Clock;
use crate::snapshot::{Finding, FindingKind, Leak, Origin, Severity};
use crate::state::{ProcessState, visible};
use crate::words::{ProcessId, ranges, size};
use std::cmp::Reverse;

/// Leaks of one process that are findings.
const MAX_FINDINGS: usize = 5;

impl Figures<'_> {
    /// The leaks of all processes, largest first.
    pub(super) fn leaks(&self, clock: Clock) -> Vec<Leak> {
        let processes = self.state.processes.iter().filter(|(_, process)| process.is_shown());
        let processes = processes.filter(|(_, process)| !process.info.is_hidden_from(&self.viewer));
        let mut all: Vec<Leak> =
            processes.flat_map(|(&id, process)| self.leaks_of(id, process, clock)).collect();
        all.sort_by_key(|leak| Reverse(leak.grown_bytes));
        all
    }

    pub(super) fn leaks_of(&self, id: ProcessId, process: &ProcessState, clock: Clock) -> Vec<Leak> {
        let leaks = process.growth.leaks().into_iter();
        leaks
            .map(|leak| {
                let (chips, space, site) = leak.site;
                Leak {
                    pid: visible(id),
                    reported_pid: process.info.reported_pid,
                    indexes: self.state.indexes_of(chips),
                    space: *space,
                    site_name: process.sites.line(*site).or_else(|| process.sites.name(*site).cloned()),
                    origin: Origin { stack: Vec::new(), ..process.sites.origin(*site) },
                    mark: process.sites.name(leak.mark).cloned(),
                    intervals: leak.intervals,
                    grown_intervals: leak.grown,
                    grown_count: leak.more.count,
                    grown_bytes: leak.more.allocated,
                    count: leak.held.count,
                    used_bytes: leak.held.allocated,
                    since: clock.wall(leak.since),
                }
            })
            .collect()
    }

    /// A finding for each of the largest leaks of a process.
    pub(super) fn judge_growth(
        &self,
        id: ProcessId,
        process: &ProcessState,
        findings: &mut Vec<Finding>,
        clock: Clock,
    ) {
        for leak in self.leaks_of(id, process, clock).into_iter().take(MAX_FINDINGS) {
            let label = self.state.label_of(id);
            let text = format!("{label}: {}", describe(&leak));
            let device = match leak.indexes[..] {
                [index] => self
                    .state
                    .chips
                    .values()
                    .find(|it| it.chip.index == index)
                    .map(|it| it.chip.id.to_string()),
                _ => None,
            };
            findings.push(Finding {
                device,
                space: Some(leak.space),
                bytes: Some(leak.grown_bytes),
                ..label.finding(FindingKind::Leak, Severity::Warning, text, leak.grown_count)
            });
        }
    }
}

/// A leak in words: `leak of DRAM on device 0: ttnn.add, model.py:59 (step) kept 14 more buffers, 336.0 KiB, since 14 marks
/// "step" ago`.
fn describe(leak: &Leak) -> String {
    let on = match leak.indexes[..] {
        [] => String::new(),
        [device] => format!(" on device {device}"),
        _ => format!(" on each of devices {}", ranges(&leak.indexes)),
    };
    let op = leak.origin.op.as_ref().filter(|op| Some(*op) != leak.site_name.as_ref());
    let site: Vec<&str> = [op, leak.site_name.as_ref()].into_iter().flatten().map(String::as_str).collect();
    let site = if site.is_empty() { "an unknown call site".to_owned() } else { site.join(", ") };
    let mark = leak.mark.as_deref().unwrap_or("?");
    format!(
        "leak of {}{on}: {site} kept {} more buffers, {}, since {} marks \"{mark}\" ago",
        leak.space.title(),
        leak.grown_count,
        size(leak.grown_bytes),
        leak.intervals,
    )
}
