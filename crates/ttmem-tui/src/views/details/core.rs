//! The details of a core.

use super::{Fact, fact, heading};
use crate::views::Scene;
use crate::views::map::{owned_ranges, used_share};
use ttmem_core::snapshot::{Core, Device};
use ttmem_render::format::{percent, plural, size};
use ttmem_render::usage::is_gap_certain;

impl Scene<'_> {
    pub(super) fn core_facts(&self, core: &Core, device: Option<&Device>) -> Vec<Fact> {
        let room = &core.room;
        let is_certain = device.is_some_and(|it| is_gap_certain(room, &it.usage));
        let or_less = if is_certain { "" } else { " or less" };
        let mut facts = vec![
            fact("In use", percent(used_share(core))),
            fact("Free gap", format!("{}{or_less} ({})", size(room.free_gap_bytes), room.basis.name())),
            fact(
                "Program ends",
                format!("{:#x}; of all cached programs {:#x}", room.program_end, room.registered_end),
            ),
            fact("Lowest buffer", format!("{:#x}", room.lowest_buffer)),
        ];
        facts.extend(
            core.program
                .as_ref()
                .map(|it| fact("Program", format!("{} {}", it.id, it.name.as_deref().unwrap_or("")))),
        );
        if let Some(peak) = &core.peak {
            let program = match (&peak.program_name, peak.program) {
                (Some(name), _) => format!(", with {name}"),
                (None, Some(id)) => format!(", with program {id}"),
                (None, None) => String::new(),
            };
            let text = format!(
                "{} at {}, of that buffers {}{program}",
                size(peak.bytes),
                self.data.time_of_day(peak.at),
                size(peak.buffer_bytes)
            );
            facts.push(fact("Peak", text));
        }
        facts.push(heading("Address ranges"));
        let fetched = self.data.snapshot.core_allocations.as_ref();
        let allocations = device.map(|it| self.data.allocations_on(it, core)).unwrap_or_default();
        for range in owned_ranges(core, allocations) {
            facts.push(fact(range.addresses(), format!("{:>10}  {}", size(range.bytes), range.describe())));
        }
        let more = fetched.map_or(0, |it| it.count.saturating_sub(it.list.len() as u64));
        if more > 0 && !allocations.is_empty() {
            let (x, y) = (room.x, room.y);
            let text = format!("{} more: `ttmem dump --cores {x},{y}`", plural(more, "allocation"));
            facts.push(fact("", text));
        }
        facts
    }
}
