//! View 6: programs that are loaded or cached, what they keep in L1, and where they are resident; and traces.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::figure::{KIB, bytes, count, counted, since};
use crate::lists;
use crate::table::{Cell, Table};
use crate::theme::Theme;
use crate::ui::List;
use jiff::Timestamp;
use ratatui::layout::Rect;
use ttmem_core::snapshot::{Process, Program, Trace};
use ttmem_core::words::{KernelClass, size};

/// Traces shown below the programs.
const TRACES: usize = 6;

impl Scene<'_> {
    pub(super) fn programs(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui, now) = (self.shown.snapshot.clone(), self.ui, self.now);
        let place = ui.place(List::Programs);
        let rows = lists::programs(&snapshot, place);
        let traces: Vec<(&Process, &Trace)> =
            snapshot.processes.iter().flat_map(|it| it.traces.iter().map(move |trace| (it, trace))).collect();
        let below = if traces.is_empty() { 0 } else { traces.len().min(TRACES) as u16 + 2 };
        let (above, below) = split_rows(area, area.height - below);
        let resident = rows.iter().filter(|(_, it)| it.resident_cores > 0).count();
        // Most programs have none of these.
        let mut hidden = Vec::new();
        if rows.iter().all(|(_, it)| it.dfb_bytes == 0) {
            hidden.push("dfb");
        }
        if rows.iter().all(|(_, it)| it.scratch_bytes == 0) {
            hidden.push("scratch");
        }
        let title = format!("Programs: {} cached, {resident} resident", rows.len());
        let table = Table {
            list: List::Programs,
            columns: lists::PROGRAMS,
            place,
            count: rows.len(),
            focused: true,
            hidden: &hidden,
        };
        let empty = match (snapshot.processes.iter().any(|it| it.programs.is_some()), place.filter.is_empty())
        {
            (false, _) => "Looking …",
            (true, true) => "No program is loaded or cached by any process that is followed.",
            (true, false) => "No program fits the filter.",
        };
        self.framed(canvas, above, &title, &table, empty, |at, _| match rows.get(at) {
            Some((process, program)) => row(process, program, now.wall, &ui.theme),
            None => Vec::new(),
        });
        if traces.is_empty() {
            return;
        }
        let inside = canvas.frame(below, "Traces", false);
        let theme = &ui.theme;
        for (y, (process, trace)) in traces.iter().take(TRACES).enumerate() {
            let y = y as u16;
            let text = format!(
                "trace {} of {} ({}): {}, {} since {}",
                trace.id,
                process.name.as_deref().unwrap_or("a process"),
                lists::pid_text(process),
                counted(trace.dispatches, "dispatch").replace("dispatchs", "dispatches"),
                counted(trace.replays, "replay"),
                self.shown.clock(trace.captured),
            );
            let x = canvas.text(inside, 1, y, &text, theme.text);
            if trace.endangered_count > 0 {
                let text = format!(
                    "a replay may write over {} ({})",
                    counted(trace.endangered_count, "younger buffer"),
                    size(trace.endangered_bytes)
                );
                canvas.cut(inside, x + 2, y, inside.width.saturating_sub(x + 3), &text, theme.warn);
            }
        }
        if traces.len() > TRACES {
            canvas.foot(below, &format!("and {} more", traces.len() - TRACES), theme.faint);
        }
    }
}

fn row(process: &Process, it: &Program, now: Timestamp, theme: &Theme) -> Vec<Cell> {
    let kib = |value: u64| Cell::new(bytes(value, KIB, 1), if value > 0 { theme.text } else { theme.faint });
    let all = u64::from(it.core_count) * it.indexes.len().max(1) as u64;
    let resident = match it.resident_cores {
        0 => Cell::new("no", theme.faint),
        n if u64::from(n) >= all => Cell::new("all", theme.good),
        n => Cell::new(format!("{}/{}", count(u64::from(n)), count(all)), theme.good),
    };
    let name = match (&it.name, it.class) {
        (Some(name), _) => name.clone(),
        (None, KernelClass::Unknown | KernelClass::Application) => String::new(),
        (None, class) => class.title().to_owned(),
    };
    vec![
        Cell::new(lists::pid_text(process), theme.text),
        Cell::new(process.name.as_deref().unwrap_or(""), theme.faint),
        Cell::new(it.id.to_string(), theme.text),
        Cell::new(name, theme.text),
        Cell::new(ttmem_core::words::ranges(&it.indexes), theme.text),
        Cell::new(it.core_count.to_string(), theme.text),
        resident,
        Cell::new(count(it.dispatches), theme.text),
        Cell::new(it.dispatched.map_or_else(String::new, |at| since(at, now.max(at))), theme.faint),
        kib(it.cb_bytes),
        kib(it.dfb_bytes),
        kib(it.scratch_bytes),
        kib(it.kernel_bytes),
        Cell::new(it.end.map_or_else(String::new, |end| format!("{end:#x}")), theme.faint),
    ]
}
