//! View 7: what is odd now, and what happened of late.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::figure::{count, since};
use crate::lists;
use crate::table::{Cell, Table};
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_core::snapshot::Severity;

/// A kind's name as in JSON, with spaces.
pub(super) fn kind(kind: impl std::fmt::Debug) -> String {
    let mut name = String::new();
    for c in format!("{kind:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push(' ');
        }
        name.extend(c.to_lowercase());
    }
    name
}

pub(super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

impl Scene<'_> {
    pub(super) fn events(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui, now) = (self.shown.snapshot.clone(), self.ui, self.now);
        let theme = &ui.theme;
        let findings = lists::findings(&snapshot, ui.place(List::Findings));
        let events = lists::events(&snapshot, ui.place(List::Events));
        let most = (area.height / 2).max(5);
        let (above, below) = split_rows(area, (findings.len() as u16).saturating_add(3).clamp(4, most));
        let table = Table {
            list: List::Findings,
            columns: lists::FINDINGS,
            place: ui.place(List::Findings),
            count: findings.len(),
            focused: ui.list() == Some(List::Findings),
            hidden: &[],
        };
        let empty =
            if table.place.filter.is_empty() { "Nothing is odd." } else { "No finding fits the filter." };
        self.framed(canvas, above, "Findings, worst first", &table, empty, |at, _| match findings.get(at) {
            None => Vec::new(),
            Some(it) => vec![
                Cell::new(severity(it.severity), theme.severity(it.severity)),
                Cell::new(count(it.count), theme.faint),
                Cell::new(kind(it.kind), theme.faint),
                Cell::new(it.text.as_str(), theme.text),
                Cell::new(
                    it.last.map_or_else(|| "now".to_owned(), |at| since(at, now.wall.max(at))),
                    theme.faint,
                ),
            ],
        });
        let table = Table {
            list: List::Events,
            columns: lists::EVENTS,
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
        let shown = self.shown;
        self.framed(canvas, below, "Events, newest first", &table, empty, |at, _| match events.get(at) {
            None => Vec::new(),
            Some(it) => {
                let style =
                    if it.severity == Severity::Info { theme.text } else { theme.severity(it.severity) };
                vec![
                    Cell::new(shown.clock(it.at), theme.faint),
                    Cell::new(kind(it.kind), theme.faint),
                    Cell::new(it.text.as_str(), style),
                ]
            }
        });
    }
}
