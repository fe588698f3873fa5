//! View 6: programs, active and cached, with their L1; and traces.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::lists;
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_core::snapshot::{Process, ProgramList, Trace};
use ttmem_render::figure::{counted, size};
use ttmem_render::program;

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
        // Programs whose dispatches are not reported may be active as well.
        let known =
            if programs.list.iter().any(|it| it.program.residency_unknown) { "known to be " } else { "" };
        let title = format!("Programs: {} cached, {} {known}active", programs.count, programs.resident_count);
        let table = Table {
            list: List::Programs,
            columns: program::SCREEN,
            place,
            count: programs.count as usize,
            focused: true,
            hidden: &hidden,
            wrapped: None,
            branches: None,
        };
        let empty = match (snapshot.programs.is_some(), place.filter.is_empty()) {
            (false, _) => super::LOADING,
            (true, true) => "No programs. Start a process: `ttmem run -- python model.py`",
            (true, false) => "No program matches the filter.",
        };
        let first = programs.offset as usize;
        self.framed(canvas, above, &title, &table, empty, |at| {
            let found = programs.list.get(at.checked_sub(first)?)?;
            Some(program::Row::new(found, now.wall))
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
                    "! a replay may overwrite {} ({})  ",
                    counted(trace.endangered_count, "newer buffer"),
                    size(trace.endangered_bytes)
                );
                x = canvas.text(inside, x, y, &text, theme.warn);
            }
            let text = format!(
                "trace {} of {} (pid {}): {}, {}, captured {}",
                trace.id,
                process.name.as_deref().unwrap_or("unknown process"),
                lists::pid_text(process.pid, process.reported_pid),
                counted(trace.replays, "replay"),
                counted(trace.dispatches, "dispatched program"),
                self.shown.clock(trace.captured),
            );
            canvas.cut(inside, x, y, inside.width.saturating_sub(x + 1), &text, theme.text);
        }
        if traces.len() > TRACES {
            canvas.foot(below, &format!("and {} more", traces.len() - TRACES), theme.faint);
        }
    }
}
