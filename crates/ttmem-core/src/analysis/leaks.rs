//! Call sites that leak, and findings about them.

use super::Figures;
use super::view::Clock;
use crate::growth::{Phase, SiteInSpace};
use crate::sites::SiteKey;
use crate::snapshot::{Finding, FindingKind, Leak, LeakBasis, Origin, Severity};
use crate::state::{ProcessState, chips_in, visible};
use crate::words::{ProcessId, ranges, size};
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

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
                let (basis, mark, trace) = match leak.phase {
                    Phase::Mark(name) => (LeakBasis::Marks, process.sites.name(name).cloned(), None),
                    Phase::Replay(_, trace) => (LeakBasis::Replays, None, Some(trace)),
                    Phase::Round => (LeakBasis::LateSurvivors, None, None),
                };
                let is_late = basis == LeakBasis::LateSurvivors;
                Leak {
                    pid: visible(id),
                    reported_pid: process.info.reported_pid,
                    indexes: self.state.indexes_of(chips),
                    space: *space,
                    site_name: process.sites.line(*site).or_else(|| process.sites.name(*site).cloned()),
                    origin: Origin { stack: Vec::new(), ..process.sites.origin(*site) },
                    basis,
                    mark,
                    trace,
                    late_after_ns: is_late.then(|| self.late_age(process, leak.site)).flatten(),
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

    /// The age beyond which buffers of a line and operation are late survivors, the largest of its tensors.
    fn late_age(&self, process: &ProcessState, (chips, space, site): &SiteInSpace) -> Option<u64> {
        let groups: BTreeMap<u32, u32> = process.sites.groups(SiteKey::LineAndOp).into_iter().collect();
        let is_here = |number: &u32| groups.get(number).copied().unwrap_or(0) == *site;
        let pools = process.pools.iter().filter(|((scope, of, _), _)| {
            let own = chips_in(&process.allocators, scope);
            of == space && own.len() == chips.len() && own.iter().all(|chip| chips.contains(chip))
        });
        let late = pools.flat_map(|(_, &pool)| self.state.ledger.pool(pool).late_sites());
        late.filter(|(number, _)| is_here(number)).map(|(_, age)| age).max()
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
            let text = format!("{label}: {}", describe(&leak, clock.at));
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
/// "step" ago`. Without marks, it ends in `in 120 s, by age, without marks`.
fn describe(leak: &Leak, at: Timestamp) -> String {
    let on = match leak.indexes[..] {
        [] => String::new(),
        [device] => format!(" on device {device}"),
        _ => format!(" on each of devices {}", ranges(&leak.indexes)),
    };
    let op = leak.origin.op.as_ref().filter(|op| Some(*op) != leak.site_name.as_ref());
    let site: Vec<&str> = [op, leak.site_name.as_ref()].into_iter().flatten().map(String::as_str).collect();
    let site = if site.is_empty() { "an unknown call site".to_owned() } else { site.join(", ") };
    let intervals = leak.intervals;
    let since = match (leak.basis, leak.trace) {
        (LeakBasis::Replays, trace) => {
            format!("since {intervals} replays of trace {} ago", trace.unwrap_or(0))
        }
        (LeakBasis::LateSurvivors, _) => {
            format!("in {} s, by age, without marks", at.duration_since(leak.since).as_secs())
        }
        _ => format!("since {intervals} marks \"{}\" ago", leak.mark.as_deref().unwrap_or("?")),
    };
    format!(
        "leak of {}{on}: {site} kept {} more buffers, {}, {since}",
        leak.space.title(),
        leak.grown_count,
        size(leak.grown_bytes),
    )
}
