//! The details of a program.

use super::{Fact, fact, format_core_ranges, heading, text_or_dash};
use crate::lists;
use crate::views::Scene;
use ttmem_core::snapshot::{Placement, ProgramRow};
use ttmem_core::words::Space;
use ttmem_render::format::{DASH, mark_estimate, plural, ranges, size, time_since};
use ttmem_render::label;
use ttmem_render::program::{has_estimated_buffers, total_cores};

impl Scene<'_> {
    pub(super) fn program_facts(&self, row: &ProgramRow) -> Vec<Fact> {
        let program = &row.program;
        let pid = lists::pid_text(row.pid, row.reported_pid);
        let mut facts = vec![fact("Name", text_or_dash(program.name.as_ref()))];
        facts.extend(program.kernels.as_ref().map(|kernels| fact("Kernel names", kernels.as_str())));
        facts.extend(program.site_name.as_ref().map(|site| fact("First call site", site.as_str())));
        facts.extend([
            fact("Process", format!("{} (pid {pid})", text_or_dash(row.process_name.as_ref()))),
            fact("Kind", program.class.title()),
            fact("Devices", ranges(&program.indexes)),
        ]);
        facts.push(match &program.cores[..] {
            [] => fact("Cores", format!("{DASH} not reported")),
            cores => fact("Cores", format!("{}: {}", program.core_count, format_core_ranges(cores))),
        });
        let (active, dispatched) = if program.residency_unknown {
            let unreported = format!("{DASH} dispatches are not reported");
            (unreported.clone(), unreported)
        } else {
            let active = format!("{} of {} cores", program.resident_cores, total_cores(program));
            (active, plural(program.dispatches, "time"))
        };
        facts.extend([fact("Active on", active), fact("Dispatched", dispatched)]);
        facts.extend(program.dispatched.map(|at| {
            let ago = time_since(at, self.now.wall.max(at));
            fact("Last", format!("{}, {ago} ago", self.data.time_of_day(at)))
        }));
        let is_estimated = has_estimated_buffers(program);
        for (space, bytes) in [
            (Space::Cb, program.cb_bytes),
            (Space::Dfb, program.dfb_bytes),
            (Space::Scratch, program.scratch_bytes),
        ] {
            let bytes = mark_estimate(is_estimated && bytes > 0, size(bytes));
            facts.push(fact(label::space(space), format!("{bytes} on each device")));
        }
        let kernels = match program.kernel_bytes {
            0 if program.cores.is_empty() => format!("{DASH} cores unknown"),
            bytes => format!("{} on each core", mark_estimate(program.estimated, size(bytes))),
        };
        facts.push(fact(label::space(Space::Kernel), kernels));
        if program.estimated {
            facts.push(fact("Estimated", "some of its sizes"));
        }
        facts.extend(
            program.end.map(|end| fact("Ends at", format!("{end:#x} on the core where it is highest"))),
        );
        if program.view_count > 0 {
            facts.push(fact("Views", format!("{} of buffers (counted as buffers)", program.view_count)));
        }
        if !program.placements.is_empty() {
            facts.push(heading("L1 of the program"));
        }
        facts.extend(program.placements.iter().map(placement_fact));
        facts
    }
}

fn placement_fact(placement: &Placement) -> Fact {
    let Placement { space, address, bytes, cores, view, count } = placement;
    let address = address.map_or_else(|| "unknown address".to_owned(), |address| format!("{address:#09x}"));
    let view = match (*view, *count) {
        (true, 1) => ", a view".to_owned(),
        (true, count) => format!(", {count} views"),
        (false, 1) => String::new(),
        (false, count) => format!(", {count} times"),
    };
    let text = format!("{address}, {} on {}{view}", size(*bytes), format_core_ranges(cores));
    fact(space.name(), text)
}
