//! View 7: findings and recent events.

use super::Scene;
use crate::canvas::{Canvas, split_rows, wrap};
use crate::lists;
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_render::event;

impl Scene<'_> {
    pub(super) fn events(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui, now) = (self.shown.snapshot.clone(), self.ui, self.now);
        let findings = lists::findings(&snapshot, ui);
        let hidden = snapshot.findings.iter().filter(|it| ui.is_acknowledged(it)).count();
        let events = lists::events(&snapshot, ui.place(List::Events));
        let most = (area.height / 2).max(5);
        // About as wide as the texts are in the table.
        let width = usize::from(area.width.saturating_sub(42)).max(30);
        let lines: usize =
            findings.iter().take(usize::from(most)).map(|it| wrap(&it.text, width).len()).sum();
        let (above, below) = split_rows(area, (lines as u16).saturating_add(3).clamp(4, most));
        let table = Table {
            list: List::Findings,
            columns: event::FINDING_SCREEN,
            place: ui.place(List::Findings),
            count: findings.len(),
            focused: ui.list() == Some(List::Findings),
            hidden: &[],
            wrapped: Some("text"),
            branches: None,
        };
        let empty = match (table.place.filter.is_empty(), hidden) {
            (true, 0) => "No problems found.",
            (true, _) => "No new problems. A: show acknowledged findings.",
            (false, _) => "No finding matches the filter.",
        };
        let title = match (hidden, ui.shows_acknowledged) {
            (0, _) => "Findings".to_owned(),
            (n, false) => format!("Findings, {n} acknowledged (A: show)"),
            (n, true) => format!("Findings, {n} of them acknowledged (A: hide)"),
        };
        self.framed(canvas, above, &title, &table, empty, |at| {
            let finding = *findings.get(at)?;
            Some(event::FindingRow { finding, now: now.wall, is_acknowledged: ui.is_acknowledged(finding) })
        });
        let table = Table {
            list: List::Events,
            columns: event::EVENT_SCREEN,
            place: ui.place(List::Events),
            count: events.len(),
            focused: ui.list() == Some(List::Events),
            hidden: &[],
            wrapped: Some("text"),
            branches: None,
        };
        let empty = match (&snapshot.events, table.place.filter.is_empty()) {
            (None, _) => super::LOADING,
            (Some(_), true) => "No events yet.",
            (Some(_), false) => "No event matches the filter.",
        };
        let zone = &self.shown.zone;
        self.framed(canvas, below, "Events, newest first", &table, empty, |at| {
            Some(event::EventRow { event: events.get(at)?, zone })
        });
    }
}
