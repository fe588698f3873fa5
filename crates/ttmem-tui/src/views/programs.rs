//! View 6: programs that are loaded or cached, what they keep in L1, and where they are resident; and traces.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::figure::{KIB, UNKNOWN, about, bytes, count, counted, program_number, since};
use crate::lists;
use crate::table::{Cell, Table};
use crate::theme::Theme;
use crate::ui::List;
use jiff::Timestamp;
use ratatui::layout::Rect;
use ttmem_core::snapshot::{Process, Program, ProgramList, ProgramRow, Trace};
use ttmem_core::words::{KernelClass, size};

/// Traces shown below the programs.
const TRACES: usize = 6;

impl Scene<'_> {
    pub(super) fn programs(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui, now) = (self.shown.snapshot.clone(), self.ui, self.now);
        let place = ui.place(List::Programs);
        let nothing = ProgramList::default();
        let programs = snapshot.programs.as_ref().unwrap_or(&nothing);
        let traces: Vec<(&Process, &Trace)> =
            snapshot.processes.iter().flat_map(|it| it.traces.iter().map(move |trace| (it, trace))).collect();
        let below = if traces.is_empty() { 0 } else { traces.len().min(TRACES) as u16 + 2 };
        let (above, below) = split_rows(area, area.height - below);
        // Most programs have none of these.
        let mut hidden = Vec::new();
        if !programs.has_dfbs {
            hidden.push("dfb");
        }
        if !programs.has_scratch {
            hidden.push("scratch");
        }
        // Of those that nobody tells the dispatches of, others may be.
        let known = if programs.list.iter().any(|it| it.program.unfollowed) { "known to be " } else { "" };
        let title =
            format!("Programs: {} cached, {} {known}resident", programs.count, programs.resident_count);
        let table = Table {
            list: List::Programs,
            columns: lists::PROGRAMS,
            place,
            count: programs.count as usize,
            focused: true,
            hidden: &hidden,
        };
        let empty = match (snapshot.programs.is_some(), place.filter.is_empty()) {
            (false, _) => "Looking …",
            (true, true) => "No program is loaded or cached by any process that is followed.",
            (true, false) => "No program fits the filter.",
        };
        let first = programs.offset as usize;
        self.framed(canvas, above, &title, &table, empty, |at, _| {
            let found = at.checked_sub(first).and_then(|at| programs.list.get(at));
            found.map_or_else(Vec::new, |it| row(it, now.wall, &ui.theme))
        });
        if traces.is_empty() {
            return;
        }
        let inside = canvas.frame(below, "Traces", false);
        let theme = &ui.theme;
        for (y, (process, trace)) in traces.iter().take(TRACES).enumerate() {
            let y = y as u16;
            let mut x = 1;
            if trace.endangered_count > 0 {
                let text = format!(
                    "! a replay may write over {} ({})  ",
                    counted(trace.endangered_count, "younger buffer"),
                    size(trace.endangered_bytes)
                );
                x = canvas.text(inside, x, y, &text, theme.warn);
            }
            let text = format!(
                "trace {} of {} ({}): {}, {} dispatched in it, captured {}",
                trace.id,
                process.name.as_deref().unwrap_or("a process"),
                lists::pid_text(process.pid, process.reported_pid),
                counted(trace.replays, "replay"),
                trace.dispatches,
                self.shown.clock(trace.captured),
            );
            canvas.cut(inside, x, y, inside.width.saturating_sub(x + 1), &text, theme.text);
        }
        if traces.len() > TRACES {
            canvas.foot(below, &format!("and {} more", traces.len() - TRACES), theme.faint);
        }
    }
}

/// Whether the size of something else than kernels is estimated: those are what is, if there are any. Kernels on cores that
/// nobody names have no size on each.
pub(super) fn others_are_estimated(it: &Program) -> bool {
    it.estimated && it.kernel_bytes == 0 && !it.cores.is_empty()
}

fn row(row: &ProgramRow, now: Timestamp, theme: &Theme) -> Vec<Cell> {
    let it = &row.program;
    let others = others_are_estimated(it);
    let kib = |value: u64, is_estimate: bool| match value {
        0 => Cell::new(bytes(value, KIB, 1), theme.faint),
        _ => Cell::new(about(is_estimate, bytes(value, KIB, 1)), theme.text),
    };
    let all = u64::from(it.core_count) * it.indexes.len().max(1) as u64;
    let resident = match it.resident_cores {
        _ if it.unfollowed => Cell::new(UNKNOWN, theme.faint),
        0 => Cell::new("no", theme.faint),
        n if u64::from(n) >= all => Cell::new("all", theme.good),
        n => Cell::new(format!("{}/{}", count(u64::from(n)), count(all)), theme.good),
    };
    let never = if it.unfollowed { UNKNOWN } else { "never" };
    let name = match (&it.name, it.class) {
        (Some(name), _) => name.clone(),
        (None, KernelClass::Unknown | KernelClass::Application) => UNKNOWN.to_owned(),
        (None, class) => class.title().to_owned(),
    };
    vec![
        Cell::new(lists::pid_text(row.pid, row.reported_pid), theme.text),
        Cell::new(row.process_name.as_deref().unwrap_or(""), theme.faint),
        Cell::new(program_number(it.id), theme.text),
        Cell::new(name, theme.text),
        match &it.indexes[..] {
            [] => Cell::new(UNKNOWN, theme.faint),
            all => Cell::new(ttmem_core::words::ranges(all), theme.text),
        },
        match &it.cores[..] {
            [] => Cell::new("?", theme.faint),
            _ => Cell::new(it.core_count.to_string(), theme.text),
        },
        resident,
        if it.unfollowed {
            Cell::new(UNKNOWN, theme.faint)
        } else {
            Cell::new(count(it.dispatches), theme.text)
        },
        Cell::new(it.dispatched.map_or_else(|| never.to_owned(), |at| since(at, now.max(at))), theme.faint),
        kib(it.cb_bytes, others),
        kib(it.dfb_bytes, others),
        kib(it.scratch_bytes, others),
        match it.kernel_bytes {
            0 if it.cores.is_empty() => Cell::new(UNKNOWN, theme.faint),
            bytes => kib(bytes, it.estimated),
        },
        Cell::new(it.end.map_or_else(|| "·".to_owned(), |end| format!("{end:#x}")), theme.faint),
    ]
}
