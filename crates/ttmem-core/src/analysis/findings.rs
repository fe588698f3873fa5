//! Findings: problems that hold at the time of a snapshot, and the texts of faults that occurred.

use super::usage::SpaceUsage;
use super::{Clock, Figures};
use crate::faults::{Subject, Tally};
use crate::label::Label;
use crate::snapshot::{Failure, FailureKind, Finding, FindingKind, Severity, Total, Usage};
use crate::state::{ChipState, GROWTH_ROUND_SECONDS, GROWTH_ROUNDS};
use crate::viewer::Viewer;
use crate::words::{ChipId, Fault, Scope, Space, ranges, size};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Exited processes with a finding of their own; the others share one.
const MAX_GHOSTS: usize = 256;

impl Figures<'_> {
    /// Findings about one device.
    pub(super) fn judge_device(
        &self,
        id: &ChipId,
        state: &ChipState,
        usage: &Usage,
        spaces: &[SpaceUsage],
        findings: &mut Vec<Finding>,
    ) {
        let totals = [("DRAM", &usage.dram_total), ("L1", &usage.l1_total)];
        for (name, total) in totals {
            let Some(Total { used_bytes, capacity_bytes: Some(capacity), .. }) = *total else { continue };
            if used_bytes > capacity {
                let text = format!(
                    "device {}: {} of {name} reported in use, more than its capacity of {}",
                    state.chip.index,
                    size(used_bytes),
                    size(capacity)
                );
                findings.push(Finding {
                    device: Some(id.to_string()),
                    bytes: Some(used_bytes - capacity),
                    ..finding(FindingKind::OverCapacity, Severity::Error, text, 1)
                });
            }
        }
        if state.opened_by_hidden > 0 {
            let text = format!(
                "device {}: opened {} by processes not visible to this user; their memory is not known",
                state.chip.index,
                if state.opened_by_hidden == 1 {
                    "once".to_owned()
                } else {
                    format!("{} times", state.opened_by_hidden)
                }
            );
            findings.push(Finding {
                device: Some(id.to_string()),
                ..finding(FindingKind::Untracked, Severity::Info, text, state.opened_by_hidden.into())
            });
        }
        for SpaceUsage { space, aliased, .. } in spaces {
            let space = *space;
            if !matches!(space, Space::Dram | Space::L1 | Space::L1Small | Space::Trace) {
                continue;
            }
            // Without sizes, only equal addresses can be compared.
            let bytes = aliased.unwrap_or_else(|| self.state.ledger.shared(Scope::Chip(*id), space));
            if bytes > 0 {
                let text = format!(
                    "device {}: {} of {} allocated twice: several allocators use the same addresses",
                    state.chip.index,
                    size(bytes),
                    space.title()
                );
                findings.push(Finding {
                    device: Some(id.to_string()),
                    space: Some(space),
                    bytes: Some(bytes),
                    ..finding(FindingKind::Aliased, Severity::Warning, text, 1)
                });
            }
        }
    }

    /// Problems of tt-metal's own counters.
    pub(super) fn judge_counters(&self, findings: &mut Vec<Finding>) {
        self.judge_ghosts(findings);
        for region in &self.state.counters {
            let known = self.state.chips.get(&region.chip);
            let device = known.map(|_| region.chip.to_string());
            // The folder may be that of another user's container.
            let file = region.path.rsplit('/').next().unwrap_or_default();
            let path = if self.viewer == Viewer::ALL { &region.path } else { file };
            let of = known.map_or_else(|| path.to_owned(), |it| format!("device {}", it.chip.index));
            // Old files of devices that were removed are no problem now.
            let severity = if known.is_some() { Severity::Warning } else { Severity::Info };
            for &(space, bytes) in &region.unattributed {
                let text = format!(
                    "{of}: tt-metal counters hold {} of {} that belong to no process",
                    size(bytes),
                    space.title()
                );
                findings.push(Finding {
                    device: device.clone(),
                    space: Some(space),
                    bytes: Some(bytes),
                    ..finding(FindingKind::Unattributed, severity, text, 1)
                });
            }
            for problem in &region.problems {
                let text = format!("{of}: tt-metal counters {problem}");
                findings.push(Finding {
                    device: device.clone(),
                    ..finding(FindingKind::Counters, severity, text, 1)
                });
            }
        }
    }

    /// Bytes that exited processes left in tt-metal's counters: one finding a process, however many devices it used.
    fn judge_ghosts(&self, findings: &mut Vec<Finding>) {
        let mut exited: BTreeMap<(u32, &str, bool), (u64, BTreeSet<ChipId>)> = BTreeMap::new();
        let regions = self.state.counters.iter();
        for (region, ghost) in
            regions.flat_map(|region| region.ghosts.iter().map(move |ghost| (region, ghost)))
        {
            let key = (ghost.pid, ghost.name.as_str(), ghost.may_be_hidden);
            let (bytes, chips) = exited.entry(key).or_default();
            *bytes = bytes.saturating_add(ghost.bytes);
            chips.insert(region.chip);
        }
        let here = |chips: &BTreeSet<ChipId>| -> Vec<(ChipId, u32)> {
            chips.iter().filter_map(|id| Some((*id, self.state.chips.get(id)?.chip.index))).collect()
        };
        let mut exited: Vec<_> =
            exited.into_iter().map(|(who, (bytes, chips))| (here(&chips), bytes, who, chips)).collect();
        // Any user can leave files: devices that are present come first, and the largest.
        exited.sort_by_key(|(here, bytes, ..)| (here.is_empty(), Reverse(*bytes)));
        let most = if self.viewer.hides_pids() { 0 } else { MAX_GHOSTS };
        let more = exited.split_off(exited.len().min(most));
        if !more.is_empty() {
            let bytes = more.iter().map(|(_, bytes, ..)| *bytes).fold(0, u64::saturating_add);
            let (count, held) = (more.len(), size(bytes));
            let text = format!(
                "tt-metal counters hold {held} of {count} more processes that exited or are not visible; not counted"
            );
            findings.push(Finding {
                bytes: Some(bytes),
                ..finding(FindingKind::GhostBytes, Severity::Info, text, count as u64)
            });
        }
        for (here, bytes, (pid, name, may_be_hidden), chips) in exited {
            let of = match &here[..] {
                [] => "of removed devices".to_owned(),
                [(_, index)] => format!("of device {index}"),
                all => format!("of {} devices", all.len()),
            };
            let fate = if may_be_hidden { "exited or is not visible" } else { "exited" };
            let text = format!(
                "pid {pid} ({name}) {fate}, but tt-metal counters {of} still hold {} of it; not counted",
                size(bytes)
            );
            let severity = if here.is_empty() { Severity::Info } else { Severity::Warning };
            findings.push(Finding {
                device: here.first().filter(|_| here.len() == 1).map(|(id, _)| id.to_string()),
                pid: Some(pid),
                process_name: Some(name.to_owned()),
                bytes: Some(bytes),
                ..finding(FindingKind::GhostBytes, severity, text, chips.len() as u64)
            });
        }
    }

    /// Findings about processes.
    pub(super) fn judge_processes(&mut self, findings: &mut Vec<Finding>, clock: Clock) {
        let state = self.state;
        for (id, process) in &state.processes {
            let first = findings.len();
            self.judge_traces(*id, process, findings);
            self.judge_programs(*id, process, findings);
            self.judge_growth(*id, process, findings, clock);
            for (&(allocator, space), audit) in &process.audits {
                if !audit.theirs.quiet || audit.drift.is_zero() {
                    continue;
                }
                let (drift, label) = (audit.drift, self.state.label_of(*id));
                let text = format!(
                    "{label}: drift on allocator {allocator}, {}: ttmem - runtime = {:+} bytes allocated, {:+} free, {:+} largest free block",
                    space.title(),
                    drift.allocated,
                    drift.free.unwrap_or(0),
                    drift.largest_free.unwrap_or(0),
                );
                findings.push(Finding {
                    space: Some(space),
                    bytes: Some(drift.allocated.unsigned_abs()),
                    ..label.finding(FindingKind::Drift, Severity::Error, text, 1)
                });
            }
            if let Some(left_out) = process.tracked.as_ref().map(|it| it.left_out).filter(|&count| count > 0)
            {
                let label = self.state.label_of(*id);
                let text = format!(
                    "{label}: {left_out} tensors or call sites not described: the segment has no space for more names"
                );
                findings.push(label.finding(FindingKind::Truncated, Severity::Info, text, left_out));
            }
            for (&(scope, space, _), &pool) in &process.pools {
                let growth = self.state.ledger.pool(pool).growth;
                // Marks, and lines that leak, say more than time does.
                let is_explained = process.growth.is_followed()
                    || process.growth.leaks().iter().any(|leak| leak.site.1 == space);
                if growth.rounds >= GROWTH_ROUNDS && !is_explained {
                    let label = self.state.label_of(*id);
                    let text = format!(
                        "{label}: {} grew by {} in {} s without shrinking; possible leak",
                        space.title(),
                        size(growth.bytes),
                        u64::from(growth.rounds) * GROWTH_ROUND_SECONDS
                    );
                    findings.push(Finding {
                        device: match scope {
                            Scope::Chip(chip) => Some(chip.to_string()),
                            Scope::Allocator(_) => None,
                        },
                        space: Some(space),
                        bytes: Some(growth.bytes),
                        ..label.finding(FindingKind::Leak, Severity::Info, text, 1)
                    });
                }
            }
            for finding in findings.split_off(first) {
                findings.push(self.viewer.show(process.info.uid, finding));
            }
        }
    }
}

pub(crate) fn finding(kind: FindingKind, severity: Severity, text: String, count: u64) -> Finding {
    Finding {
        kind,
        severity,
        device: None,
        pid: None,
        process_name: None,
        command: None,
        hidden: false,
        space: None,
        bytes: None,
        count,
        first: None,
        last: None,
        failure: None,
        text,
    }
}

/// `out of memory: pid 4242 (python model.py) requested 512 MiB of DRAM on device 0; largest free block 38 MiB per bank; in
/// ttnn.zeros, model.py:42 (forward)`. What is not known is left out.
fn describe_failed(kind: FailureKind, tally: &Tally, who: &str) -> String {
    let (repeats, last) = match tally.count {
        0 | 1 => (String::new(), ""),
        count => (format!(" x{count}"), "last "),
    };
    let Some(failure) = &tally.failure else {
        return format!("{}{repeats}: {who} {last}requested {}", kind.title(), size(tally.last_id));
    };
    format!("{}{repeats}: {who} {last}{}", kind.title(), describe_failure(failure))
}

/// What a failed request was, and why there was no memory for it: `requested 512 MiB of DRAM on device 0; largest free block 38 MiB per
/// bank`.
pub(crate) fn describe_failure(failure: &Failure) -> String {
    let Failure { kind, indexes, requested_bytes, .. } = failure;
    let on = match indexes[..] {
        [] => String::new(),
        [device] => format!(" on device {device}"),
        _ => format!(" on each of devices {}", ranges(indexes)),
    };
    let space = failure.space.map_or("memory", Space::title);
    let requested = size(requested_bytes.unwrap_or(0));
    let limit =
        |of: &str| failure.limit_bytes.map_or_else(String::new, |bytes| format!("; {of} {}", size(bytes)));
    let program = failure
        .program_name
        .as_ref()
        .map_or_else(|| "a program".to_owned(), |name| format!("program {name}"));
    let cores = failure
        .cores
        .as_ref()
        .map_or_else(String::new, |cores| format!(" on cores {}", describe_cores(cores)));
    let end = failure.program_end.map_or_else(String::new, |end| format!(" up to {end:#x}"));
    let what = match kind {
        FailureKind::OutOfMemory => {
            let of = failure.space.map_or_else(String::new, |_| format!(" of {space}"));
            let largest = match (failure.largest_free_bytes_per_bank, failure.free_bytes_per_bank) {
                (Some(largest), Some(free))
                    if failure.needed_bytes_per_bank.is_some_and(|needed| free >= needed) =>
                {
                    format!(
                        "; fragmented: {} free, largest free block {} per bank",
                        size(free),
                        size(largest)
                    )
                }
                (Some(largest), _) => format!("; largest free block {} per bank", size(largest)),
                (None, _) => String::new(),
            };
            format!("requested {requested}{of}{on}{largest}")
        }
        FailureKind::Clash => {
            let lowest = failure
                .lowest_buffer
                .map_or_else(String::new, |at| format!("; the lowest L1 buffer is at {at:#x}"));
            format!("needs L1{end} for {program}{cores}{on}{lowest}")
        }
        FailureKind::BeyondL1 => format!("needs L1{end} for {program}{cores}{on}{}", limit("L1 ends at")),
        FailureKind::KernelConfig => {
            format!("needs {requested} for kernels and arguments of {program}{on}{}", limit("the buffer has"))
        }
        FailureKind::TraceRegion => format!("needs {requested} for traces{on}{}", limit("the region has")),
        _ => format!("requested {requested} of {space}{on}, which the runtime does not support"),
    };
    let line = failure.site_name.as_deref().filter(|name| Some(*name) != failure.origin.op.as_deref());
    let by: Vec<&str> = [failure.origin.op.as_deref(), line].into_iter().flatten().collect();
    if by.is_empty() { what } else { format!("{what}; in {}", by.join(", ")) }
}

/// Rectangles of cores: `(0,0)-(7,3), (0,4)`.
pub(crate) fn describe_cores(cores: &[[u8; 4]]) -> String {
    let describe = |&[x0, y0, x1, y1]: &[u8; 4]| {
        if (x0, y0) == (x1, y1) { format!("({x0},{y0})") } else { format!("({x0},{y0})-({x1},{y1})") }
    };
    cores.iter().map(describe).collect::<Vec<_>>().join(", ")
}

impl Label {
    /// A finding about the process.
    pub(crate) fn finding(&self, kind: FindingKind, severity: Severity, text: String, count: u64) -> Finding {
        let (process_name, command) = (self.name.clone(), self.command.clone());
        Finding { pid: self.pid, process_name, command, ..finding(kind, severity, text, count) }
    }
}

pub(crate) fn describe_fault(
    subject: &Subject,
    tally: &Tally,
    label: Option<&Label>,
    device: Option<u32>,
    clock: Clock,
) -> Finding {
    let who = label.map_or_else(|| "unknown process".to_owned(), Label::to_string);
    let on = device.map_or_else(String::new, |index| format!(" on device {index}"));
    let (bytes, id, count) = (tally.bytes, tally.last_id, tally.count);
    let times = if count == 1 { String::new() } else { format!(" x{count}") };
    let times = format!("{on}{times} (last {id:#x})");
    let fault = subject.fault;
    let failure = subject.failure.unwrap_or(FailureKind::OutOfMemory);
    let text = match fault {
        Fault::DoubleFree => format!("{who}: double free{times}"),
        Fault::UnknownFree => format!("{who}: freed unknown buffers{times}; they may predate tracking"),
        Fault::AmbiguousFree => {
            format!("{who}: freed an address allocated in several spaces{times}; the newest buffer was freed")
        }
        Fault::SizeMismatch => {
            format!("{who}: freed with another size than allocated{times}; the allocated size counts")
        }
        Fault::StillHeld | Fault::Replaced => {
            format!("{who}: allocated an address again with another size before freeing it{times}")
        }
        Fault::InheritedFree => format!("{who}: forked process freed buffers of its parent{times}"),
        Fault::Unlisted if count == 1 => {
            format!("{who}: segment full, 1 allocation is counted but not listed")
        }
        Fault::Unlisted => format!("{who}: segment full, {count} allocations are counted but not listed"),
        Fault::OutOfMemory => describe_failed(failure, tally, &who),
        Fault::Lost => {
            let plural = if count == 1 { "" } else { "s" };
            format!("{who}: {count} record{plural} lost; its figures are incomplete")
        }
        Fault::Reclaimed => {
            let plural = if count == 1 { "" } else { "s" };
            format!(
                "{who} exited with {} in {count} allocation{plural} still allocated; reclaimed",
                size(bytes)
            )
        }
        rejection if count == 1 => format!("{who}: report{on} rejected: {rejection}"),
        rejection => format!("{who}: {count} reports{on} rejected: {rejection}"),
    };
    let kind = if fault == Fault::OutOfMemory { failure.finding() } else { fault.finding() };
    let finding = match label {
        Some(label) => label.finding(kind, fault.severity(), text, count),
        None => finding(kind, fault.severity(), text, count),
    };
    Finding {
        device: subject.chip.map(|chip| chip.to_string()),
        space: subject.space,
        bytes: (bytes > 0).then_some(bytes),
        failure: tally.failure.clone(),
        first: Some(clock.wall(tally.first)),
        last: Some(clock.wall(tally.last)),
        ..finding
    }
}
