//! What is odd: conditions that hold at the time of a snapshot, and faults put into words.

use crate::findings::{Request, Subject, Tally};
use crate::snapshot::{Finding, FindingKind, Severity, Total, Usage};
use crate::state::{ChipState, GROWTH_ROUNDS, State};
use crate::usage::SpaceUsage;
use crate::view::{Clock, visible};
use crate::words::{ChipId, Fault, ProcessId, Scope, Space, ranges, size};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The dead that are told of one by one.
const MOST_GHOSTS: usize = 256;

impl State {
    pub(crate) fn judge_device(
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
                    "device {}: {} of {name} reported in use, but the chip has {}",
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
        if state.open_unseen > 0 {
            let text = format!(
                "device {}: open {} by processes that cannot be seen from here: what they hold is not known",
                state.chip.index,
                if state.open_unseen == 1 {
                    "once".to_owned()
                } else {
                    format!("{} times", state.open_unseen)
                }
            );
            findings.push(Finding {
                device: Some(id.to_string()),
                ..finding(FindingKind::Untracked, Severity::Info, text, state.open_unseen.into())
            });
        }
        for it in spaces {
            let space = it.space;
            if !matches!(space, Space::Dram | Space::L1 | Space::L1Small | Space::Trace) {
                continue;
            }
            // Where only addresses are known, the same address is all that can be seen.
            let bytes = it.aliased.unwrap_or_else(|| self.ledger.shared(Scope::Chip(*id), space));
            if bytes > 0 {
                let text = format!(
                    "device {}: {} of {space} lie at addresses that several allocators handed out",
                    state.chip.index,
                    size(bytes)
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

    /// What is odd about tt-metal's own counters.
    pub(crate) fn judge_regions(&self, findings: &mut Vec<Finding>) {
        self.judge_ghosts(findings);
        for region in &self.regions {
            let known = self.chips.get(&region.chip);
            let device = known.map(|_| region.chip.to_string());
            let of = known.map_or_else(|| region.path.clone(), |it| format!("device {}", it.chip.index));
            // Old files of chips that are not here any more concern nobody.
            let severity = if known.is_some() { Severity::Warning } else { Severity::Info };
            for &(space, bytes) in &region.unattributed {
                let text = format!(
                    "{of}: tt-metal's counters hold {} of {space} that none of their processes accounts for",
                    size(bytes)
                );
                findings.push(Finding {
                    device: device.clone(),
                    space: Some(space),
                    bytes: Some(bytes),
                    ..finding(FindingKind::Unattributed, severity, text, 1)
                });
            }
            for trouble in &region.troubles {
                let text = format!("{of}: tt-metal's counters {trouble}");
                findings.push(Finding {
                    device: device.clone(),
                    ..finding(FindingKind::Counters, severity, text, 1)
                });
            }
        }
    }

    /// What the dead left in tt-metal's counters: a finding for each of them, however many chips it used.
    fn judge_ghosts(&self, findings: &mut Vec<Finding>) {
        let mut dead: BTreeMap<(u32, &str, bool), (u64, BTreeSet<ChipId>)> = BTreeMap::new();
        for (region, ghost) in self.regions.iter().flat_map(|it| it.ghosts.iter().map(move |g| (it, g))) {
            let key = (ghost.pid, ghost.name.as_str(), ghost.perhaps_unseen);
            let (bytes, chips) = dead.entry(key).or_default();
            *bytes = bytes.saturating_add(ghost.bytes);
            chips.insert(region.chip);
        }
        let here = |chips: &BTreeSet<ChipId>| -> Vec<(ChipId, u32)> {
            chips.iter().filter_map(|id| Some((*id, self.chips.get(id)?.chip.index))).collect()
        };
        let mut dead: Vec<_> =
            dead.into_iter().map(|(who, (bytes, chips))| (here(&chips), bytes, who, chips)).collect();
        // Anybody can leave files about: what concerns a chip that is here comes first, and the most.
        dead.sort_by_key(|(here, bytes, ..)| (here.is_empty(), Reverse(*bytes)));
        let more = dead.split_off(dead.len().min(MOST_GHOSTS));
        if !more.is_empty() {
            let bytes = more.iter().map(|(_, bytes, ..)| *bytes).fold(0, u64::saturating_add);
            let (count, held) = (more.len(), size(bytes));
            let text = format!(
                "tt-metal's counters hold {held} of {count} more that are dead or not to be seen; not counted here"
            );
            findings.push(Finding {
                bytes: Some(bytes),
                ..finding(FindingKind::GhostBytes, Severity::Info, text, count as u64)
            });
        }
        for (here, bytes, (pid, name, perhaps_unseen), chips) in dead {
            let of = match &here[..] {
                [] => "of no device that is here".to_owned(),
                [(_, index)] => format!("of device {index}"),
                all => format!("of {} devices", all.len()),
            };
            let fate = if perhaps_unseen { "is not to be seen from here" } else { "is dead" };
            let text = format!(
                "pid {pid} ({name}) {fate}, but tt-metal's counters {of} still hold {} of it; not counted here",
                size(bytes)
            );
            let severity = if here.is_empty() { Severity::Info } else { Severity::Warning };
            findings.push(Finding {
                device: here.first().filter(|_| here.len() == 1).map(|(id, _)| id.to_string()),
                pid: Some(pid),
                bytes: Some(bytes),
                ..finding(FindingKind::GhostBytes, severity, text, chips.len() as u64)
            });
        }
    }

    pub(crate) fn judge_processes(&self, findings: &mut Vec<Finding>) {
        for (id, process) in &self.processes {
            self.judge_traces(*id, process, findings);
            for (&(allocator, space), audit) in &process.audits {
                if !audit.theirs.quiet || audit.drift.is_zero() {
                    continue;
                }
                let drift = audit.drift;
                let text = format!(
                    "pid {}: we differ from allocator {allocator} in {space}: allocated {:+}, free {:+}, largest free {:+} bytes",
                    id.pid,
                    drift.allocated,
                    drift.free.unwrap_or(0),
                    drift.largest_free.unwrap_or(0),
                );
                findings.push(Finding {
                    pid: visible(*id),
                    space: Some(space),
                    bytes: Some(drift.allocated.unsigned_abs()),
                    ..finding(FindingKind::Drift, Severity::Error, text, 1)
                });
            }
            for (&(scope, space, _), &pool) in &process.pools {
                let growth = self.ledger.pool(pool).growth;
                if growth.rounds >= GROWTH_ROUNDS {
                    let text = format!(
                        "pid {}: {space} grew by {} in {} s and never fell back; it may leak",
                        id.pid,
                        size(growth.bytes),
                        growth.rounds * 10
                    );
                    findings.push(Finding {
                        pid: visible(*id),
                        device: match scope {
                            Scope::Chip(chip) => Some(chip.to_string()),
                            Scope::Allocator(_) => None,
                        },
                        space: Some(space),
                        bytes: Some(growth.bytes),
                        ..finding(FindingKind::Leak, Severity::Info, text, 1)
                    });
                }
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
        space: None,
        bytes: None,
        count,
        first: None,
        last: None,
        text,
    }
}

/// `out of memory: pid 4242 (python model.py) requested 512 MiB of DRAM on device 0; largest free block 38 MiB per bank`.
/// What is not known is left out.
fn describe_out_of_memory(subject: &Subject, tally: &Tally) -> String {
    let (repeats, last) = match tally.count {
        0 | 1 => (String::new(), ""),
        count => (format!(" x{count}"), "last "),
    };
    let Some(Request { who, devices, bytes, largest_free_bytes_per_bank }) = &tally.request else {
        return "out of memory".to_owned();
    };
    let space = subject.space.map_or_else(String::new, |space| format!(" of {}", space.label()));
    let on = match devices[..] {
        [] => String::new(),
        [device] => format!(" on device {device}"),
        _ => format!(" on each of devices {}", ranges(devices)),
    };
    let largest = largest_free_bytes_per_bank
        .map_or_else(String::new, |bytes| format!("; largest free block {} per bank", size(bytes)));
    format!("out of memory{repeats}: {who} {last}requested {}{space}{on}{largest}", size(*bytes))
}

pub(crate) fn describe_fault(subject: &Subject, tally: &Tally, clock: Clock) -> Finding {
    let who = match subject.process {
        Some(ProcessId { pid: 0, .. }) => "a process outside this namespace".to_owned(),
        Some(ProcessId { pid, .. }) => format!("pid {pid}"),
        None => "somebody".to_owned(),
    };
    let (bytes, id) = (tally.bytes, tally.last_id);
    let times = if tally.count == 1 { "once".to_owned() } else { format!("{} times", tally.count) };
    let fault = subject.fault;
    let text = match fault {
        Fault::DoubleFree => format!("{who} freed what it had freed before, {times}, last 0x{id:x}"),
        Fault::UnknownFree => format!("{who} freed what was never seen allocated, {times}, last 0x{id:x}"),
        Fault::AmbiguousFree => {
            format!(
                "{who} freed an address held in several spaces, {times}, last 0x{id:x}; the newest was taken"
            )
        }
        Fault::SizeMismatch => {
            format!(
                "{who} freed with another size than recorded, {times}, last 0x{id:x}; the recorded one counts"
            )
        }
        Fault::StillHeld | Fault::Replaced => {
            format!("{who} took an address it still held with another size, {times}, last 0x{id:x}")
        }
        Fault::InheritedFree => {
            format!("{who} was forked and freed what its parent holds, {times}, last 0x{id:x}")
        }
        Fault::Unlisted => {
            format!("{who} holds more than its segment has room to list: {} were counted only", tally.count)
        }
        Fault::OutOfMemory => describe_out_of_memory(subject, tally),
        Fault::Lost => format!("{} records of {who} were lost", tally.count),
        Fault::Reclaimed => {
            format!(
                "{who} ended holding {} in {} allocations; they were taken back",
                size(bytes),
                tally.count
            )
        }
        refusal => format!("{who} was refused {times}: {refusal}"),
    };
    Finding {
        device: subject.chip.map(|chip| chip.to_string()),
        pid: subject.process.and_then(visible),
        space: subject.space,
        bytes: (bytes > 0).then_some(bytes),
        first: Some(clock.wall(tally.first)),
        last: Some(clock.wall(tally.last)),
        ..finding(fault.finding(), fault.severity(), text, tally.count)
    }
}
