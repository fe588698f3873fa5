//! View 7: findings and recent events.

use super::Scene;
use crate::canvas::{Canvas, split_rows, wrap};
use crate::lists;
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_render::event;

impl Scene<'_> {
    pub(super) fn draw_events(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui, now) = (self.data.snapshot.clone(), self.ui, self.now);
        let findings = lists::findings(&snapshot, ui);
        let acknowledged = snapshot.findings.iter().filter(|it| ui.is_acknowledged(it)).count();
        let events = lists::events(&snapshot, ui.list_state(List::Events));
        let most = (area.height / 2).max(5);
        // About as wide as the texts are in the table.
        let width = usize::from(area.width.saturating_sub(42)).max(30);
        let lines: usize =
            findings.iter().take(usize::from(most)).map(|it| wrap(&it.text, width).len()).sum();
        let (above, below) = split_rows(area, (lines as u16).saturating_add(3).clamp(4, most));
        let table = Table {
            list: List::Findings,
            columns: event::FINDING_SCREEN,
            state: ui.list_state(List::Findings),
            count: findings.len(),
            focused: ui.focused_list() == Some(List::Findings),
            hidden: &[],
            wrapped: Some("text"),
            branches: None,
        };
        let empty = match (table.state.filter.is_empty(), acknowledged) {
            (true, 0) => "No problems found.",
            (true, _) => "No new problems. A: show acknowledged findings.",
            (false, _) => "No finding matches the filter.",
        };
        let title = match (acknowledged, ui.shows_acknowledged) {
            (0, _) => "Findings".to_owned(),
            (n, false) => format!("Findings, {n} acknowledged (A: show)"),
            (n, true) => format!("Findings, {n} of them acknowledged (A: hide)"),
        };
        self.draw_table(canvas, above, &title, &table, empty, |at| {
            let finding = *findings.get(at)?;
            Some(event::FindingRow { finding, now: now.wall, is_acknowledged: ui.is_acknowledged(finding) })
        });
        let table = Table {
            list: List::Events,
            columns: event::EVENT_SCREEN,
            state: ui.list_state(List::Events),
            count: events.len(),
            focused: ui.focused_list() == Some(List::Events),
            hidden: &[],
            wrapped: Some("text"),
            branches: None,
        };
        let empty = match (&snapshot.events, table.state.filter.is_empty()) {
            (None, _) => super::LOADING,
            (Some(_), true) => "No events yet.",
            (Some(_), false) => "No event matches the filter.",
        };
        let zone = &self.data.zone;
        self.draw_table(canvas, below, "Events, newest first", &table, empty, |at| {
            Some(event::EventRow { event: events.get(at)?, zone })
        });
    }
}
