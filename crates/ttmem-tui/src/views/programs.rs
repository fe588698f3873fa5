//! View 6: programs, active and cached, with their L1; and traces.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::lists;
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_core::snapshot::{Process, ProgramList, Trace};
use ttmem_render::format::{plural, size};
use ttmem_render::program;

/// The most traces below the programs.
const MAX_TRACES: usize = 6;

impl Scene<'_> {
    pub(super) fn draw_programs(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui, now) = (self.data.snapshot.clone(), self.ui, self.now);
        let state = ui.list_state(List::Programs);
        let none = ProgramList::default();
        let programs = snapshot.programs.as_ref().unwrap_or(&none);
        let processes = snapshot.processes.iter();
        let traces: Vec<(&Process, &Trace)> =
            processes.flat_map(|it| it.traces.iter().map(move |trace| (it, trace))).collect();
        let height = if traces.is_empty() { 0 } else { traces.len().min(MAX_TRACES) as u16 + 2 };
        let (above, below) = split_rows(area, area.height - height);
        // Columns that are empty in most cases.
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
            state,
            count: programs.count as usize,
            focused: true,
            hidden: &hidden,
            wrapped: None,
            branches: None,
        };
        let empty = match (snapshot.programs.is_some(), state.filter.is_empty()) {
            (false, _) => super::LOADING,
            (true, _) if programs.hidden_processes > 0 => {
                "Programs of other users are withheld from this user."
            }
            (true, true) => "No programs. Start a process: `ttmem run -- python model.py`",
            (true, false) => "No program matches the filter.",
        };
        let first = programs.offset as usize;
        self.draw_table(canvas, above, &title, &table, empty, |at| {
            let found = programs.list.get(at.checked_sub(first)?)?;
            Some(program::Row::new(found, now.wall))
        });
        if !traces.is_empty() {
            self.draw_traces(canvas, below, &traces);
        }
    }

    fn draw_traces(&self, canvas: &mut Canvas, area: Rect, traces: &[(&Process, &Trace)]) {
        let inside = canvas.draw_frame(area, "Traces", false);
        let theme = &self.ui.theme;
        for (y, (process, trace)) in traces.iter().take(MAX_TRACES).enumerate() {
            let y = y as u16;
            let mut x = 1;
            if trace.endangered_count > 0 {
                let text = format!(
                    "! a replay may overwrite {} ({})  ",
                    plural(trace.endangered_count, "newer buffer"),
                    size(trace.endangered_bytes)
                );
                x = canvas.write(inside, x, y, &text, theme.warn);
            }
            let text = format!(
                "trace {} of {} (pid {}): {}, {}, captured {}",
                trace.id,
                process.name.as_deref().unwrap_or("unknown process"),
                lists::pid_text(process.pid, process.reported_pid),
                plural(trace.replays, "replay"),
                plural(trace.dispatches, "dispatched program"),
                self.data.time_of_day(trace.captured),
            );
            canvas.write_cut(inside, x, y, inside.width.saturating_sub(x + 1), &text, theme.text);
        }
        if traces.len() > MAX_TRACES {
            canvas.write_bottom_right(area, &format!("and {} more", traces.len() - MAX_TRACES), theme.faint);
        }
    }
}
