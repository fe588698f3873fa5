//! View 7: what is odd now, and what happened of late.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::lists;
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_render::event;

impl Scene<'_> {
    pub(super) fn events(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui, now) = (self.shown.snapshot.clone(), self.ui, self.now);
        let findings = lists::findings(&snapshot, ui.place(List::Findings));
        let events = lists::events(&snapshot, ui.place(List::Events));
        let most = (area.height / 2).max(5);
        let (above, below) = split_rows(area, (findings.len() as u16).saturating_add(3).clamp(4, most));
        let table = Table {
            list: List::Findings,
            columns: event::FINDING_SCREEN,
            place: ui.place(List::Findings),
            count: findings.len(),
            focused: ui.list() == Some(List::Findings),
            hidden: &[],
        };
        let empty =
            if table.place.filter.is_empty() { "Nothing is odd." } else { "No finding fits the filter." };
        self.framed(canvas, above, "Findings, worst first", &table, empty, |at| {
            Some(event::FindingRow { finding: findings.get(at)?, now: now.wall })
        });
        let table = Table {
            list: List::Events,
            columns: event::EVENT_SCREEN,
            place: ui.place(List::Events),
            count: events.len(),
            focused: ui.list() == Some(List::Events),
            hidden: &[],
        };
        let empty = match (&snapshot.events, table.place.filter.is_empty()) {
            (None, _) => "Looking …",
            (Some(_), true) => "Nothing happened yet.",
            (Some(_), false) => "No event fits the filter.",
        };
        let zone = &self.shown.zone;
        self.framed(canvas, below, "Events, newest first", &table, empty, |at| {
            Some(event::EventRow { event: events.get(at)?, zone })
        });
    }
}
