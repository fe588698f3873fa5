//! Programs whose memory overlaps L1 buffers, and free space that is nearly used up or in small blocks: what may soon fail.

use super::findings::finding;
use super::{Figures, Tenant};
use crate::snapshot::{BufferUsage, Finding, FindingKind, Severity, Usage};
use crate::state::{ChipState, ProcessState, chips_in};
use crate::words::{Basis, ChipId, ProcessId, Scope, Space, size};
use std::collections::{BTreeMap, BTreeSet};

/// Percent of a space from which on it is nearly full.
const NEARLY_FULL: f64 = 95.0;
/// Percent of the free bytes outside of the largest block from which on a space is fragmented...
const FRAGMENTED: f64 = 75.0;
/// ...if at least this share of the space is free.
const MUCH: f64 = 10.0;

impl Figures<'_> {
    /// The lowest address of the L1 buffers of a process on the chips of a scope.
    pub(super) fn lowest_buffer(&mut self, process: &ProcessState, scope: Scope) -> Option<u64> {
        let chips = chips_in(&process.allocators, &scope);
        let is_here = |other: &Scope| {
            *other == scope || chips_in(&process.allocators, other).iter().any(|it| chips.contains(it))
        };
        let in_l1 = |space: Space| matches!(space, Space::L1 | Space::L1Core);
        let pools = process
            .pools
            .iter()
            .filter(|((other, space, basis), _)| in_l1(*space) && *basis == Basis::Exact && is_here(other));
        let pools: Vec<_> = pools.map(|(&(_, space, _), &pool)| (space, pool)).collect();
        pools.into_iter().filter_map(|(space, pool)| self.lowest_address(space, pool)).min()
    }

    /// Every program below whose end there are L1 buffers, and the lowest address of these.
    pub(crate) fn blocked_programs(&mut self) -> BTreeMap<(ProcessId, Scope, u32), u64> {
        let mut found = BTreeMap::new();
        for (&id, process) in self.state.processes.iter().filter(|(_, process)| !process.programs.is_empty())
        {
            let scopes: BTreeSet<Scope> = process.programs.keys().map(|&(scope, _)| scope).collect();
            for scope in scopes {
                let Some(lowest) = self.lowest_buffer(process, scope) else { continue };
                let memory = self.program_memory(Tenant { process: id, scope });
                let programs = process.programs_in(scope).map(|(&(_, number), _)| number);
                let blocked =
                    programs.filter(|&number| memory.sums_of(number).end.is_some_and(|end| end > lowest));
                found.extend(blocked.map(|number| ((id, scope, number), lowest)));
            }
        }
        found
    }

    /// Programs that should have been dispatched meanwhile, and cannot be.
    pub(super) fn judge_programs(
        &mut self,
        id: ProcessId,
        process: &ProcessState,
        findings: &mut Vec<Finding>,
    ) {
        for (&(scope, number), program) in &process.programs {
            let (Some(blocked), Some(since)) = (program.blocked, process.overdue(program)) else { continue };
            let end = self.program_memory(Tenant { process: id, scope }).sums_of(number).end.unwrap_or(0);
            let label = self.state.label_of(id);
            let name =
                process.program_name(scope, number).map_or_else(String::new, |name| format!(" {name}"));
            let text = format!(
                "{label}: the next dispatch of program{name} will fail: it needs L1 up to {end:#x}, and a buffer has been at \
                 {:#x} for {since} dispatches of other programs; free it first",
                blocked.address
            );
            findings.push(Finding {
                space: Some(Space::L1),
                bytes: Some(end.saturating_sub(blocked.address)),
                ..label.finding(FindingKind::WouldClash, Severity::Warning, text, 1)
            });
        }
    }
}

/// Spaces of a device that are nearly full, or fragmented.
pub(super) fn judge_free_space(id: &ChipId, state: &ChipState, usage: &Usage, findings: &mut Vec<Finding>) {
    for (space, usage) in [(Space::Dram, &usage.dram), (Space::L1, &usage.l1)] {
        let Some(usage) = usage else { continue };
        let BufferUsage { allocatable_bytes, free_bytes, fragmentation_percent, .. } = *usage;
        let (Some(all), Some(free)) = (allocatable_bytes.filter(|&all| all > 0), free_bytes) else {
            continue;
        };
        let free_percent = free as f64 / all as f64 * 100.0;
        let largest = usage.largest_free_bytes_per_bank.unwrap_or(0);
        let (index, title) = (state.chip.index, space.title());
        let found = if free_percent <= 100.0 - NEARLY_FULL {
            let text = format!(
                "device {index}: {title} is {:.1}% full: {} of {} are free, largest free block {} per bank",
                100.0 - free_percent,
                size(free),
                size(all),
                size(largest)
            );
            (FindingKind::NearlyFull, text, free)
        } else if free_percent >= MUCH && fragmentation_percent.is_some_and(|percent| percent >= FRAGMENTED) {
            let text = format!(
                "device {index}: {title} is fragmented: {} are free, but the largest free block has {} per bank",
                size(free),
                size(largest)
            );
            (FindingKind::Fragmented, text, free)
        } else {
            continue;
        };
        let (kind, text, bytes) = found;
        findings.push(Finding {
            device: Some(id.to_string()),
            space: Some(space),
            bytes: Some(bytes),
            ..finding(kind, Severity::Warning, text, 1)
        });
    }
}
