//! Popups over a view: help, details and menus.

use super::Scene;
use super::details::{Fact, FactTone};
use crate::canvas::{Canvas, inner, wrap};
use crate::keys::BINDINGS;
use crate::lists;
use crate::ui::{Popup, SIGNALS, Target, View};
use crate::update::MenuSetting;
use ratatui::layout::Rect;
use ratatui::style::Style;

impl Scene<'_> {
    pub(super) fn draw_popup(&mut self, canvas: &mut Canvas, area: Rect) {
        match &self.ui.popup {
            None => {}
            Some(Popup::Help) => self.draw_help(canvas, area),
            Some(Popup::Details(subject)) => {
                let inside = usize::from(details_width(area).saturating_sub(4));
                let (title, facts) = self.facts_of(subject, inside);
                self.draw_details(canvas, area, &title, &facts);
            }
            Some(Popup::Sort { list, choice }) => {
                let sorted = self.ui.list_state(*list).sort;
                let rows: Vec<(String, String)> = lists::sort_choices(self.ui, *list)
                    .into_iter()
                    .map(|(name, title)| {
                        let order = match (sorted.column == Some(name), sorted.reversed) {
                            (false, _) => "",
                            (true, false) => "current",
                            (true, true) => "current, reversed",
                        };
                        (format!("{title:<22}"), order.to_owned())
                    })
                    .collect();
                self.draw_menu(canvas, area, &format!("Sort {} by", list.name()), &rows, *choice);
            }
            Some(Popup::Signal { to, choice }) => {
                let mut rows = vec![("Cancel".to_owned(), String::new())];
                rows.extend(
                    SIGNALS.iter().map(|it| (format!("{:>2} {:<5}", it.number, it.name), it.help.to_owned())),
                );
                let title = format!("Signal to {} (pid {}, {})", to.name, to.pid, to.user);
                self.draw_menu(canvas, area, &title, &rows, *choice);
            }
            Some(Popup::Confirm { to, signal }) => {
                let text = format!("Send {} to {} (pid {}, {})?", signal.name, to.name, to.pid, to.user);
                let rows = [
                    text,
                    format!("{}: {}", signal.name, signal.help),
                    "y: send, any other key: cancel".to_owned(),
                ];
                let width = rows.iter().map(|it| it.chars().count()).max().unwrap_or(0) as u16 + 4;
                let inside = draw_popup_frame(canvas, area, width, 5, "Send signal?");
                for (y, row) in rows.iter().enumerate() {
                    let style = if y == 0 { self.ui.theme.bad } else { self.ui.theme.faint };
                    canvas.write_cut(inside, 1, y as u16, inside.width.saturating_sub(2), row, style);
                }
            }
            Some(Popup::Settings { choice }) => {
                let rows: Vec<(String, String)> = MenuSetting::ALL
                    .iter()
                    .map(|it| {
                        let (name, value) = it.describe(self.ui);
                        (format!("{name:<36}"), value)
                    })
                    .collect();
                self.draw_menu(canvas, area, "Settings (F12: save)", &rows, *choice);
            }
        }
    }

    fn draw_menu(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        title: &str,
        rows: &[(String, String)],
        choice: usize,
    ) {
        let theme = &self.ui.theme;
        let widest = rows.iter().map(|(a, b)| a.chars().count() + b.chars().count() + 2).max().unwrap_or(0);
        let width = widest.max(title.chars().count() + 4) as u16 + 4;
        let inside = draw_popup_frame(canvas, area, width, rows.len() as u16 + 2, title);
        // More choices than fit are scrolled to the selected one.
        let first = (choice + 1).saturating_sub(usize::from(inside.height));
        for (y, (n, (name, note))) in
            rows.iter().enumerate().skip(first).take(usize::from(inside.height)).enumerate()
        {
            let y = y as u16;
            let x = canvas.write(inside, 1, y, name, theme.text);
            canvas.write_cut(inside, x + 1, y, inside.width.saturating_sub(x + 2), note, theme.faint);
            let line = Rect { y: inside.y + y, height: 1, ..inside };
            if n == choice {
                canvas.set_style(line, theme.selected);
            }
            canvas.add_target(line, Target::Choice(n));
        }
    }

    fn draw_help(&mut self, canvas: &mut Canvas, area: Rect) {
        let vim = self.ui.settings.vim_keys;
        let rows: Vec<(&str, &str)> = BINDINGS
            .iter()
            .filter(|binding| !binding.names.is_empty())
            .filter(|binding| View::ALL.iter().any(|view| binding.is_active(*view, vim)))
            .map(|binding| (binding.names, binding.help))
            .collect();
        let theme = &self.ui.theme;
        let notes = [
            "",
            "Sizes: KiB, MiB and GiB are powers of 1024.  — unknown; Enter: reason.  ~ estimate.",
            "Bars: yellow from 75 %, red from 90 %.  Grey: out of date, or zero.",
            "CPU %: host CPU time, 100 is one CPU.  Host mem: resident host memory (RSS).",
            "Tracking of a process; of a device, the weakest of its processes:",
            "  audited    every event, checked against the runtime's own allocators",
            "  agent      every event, from the agent (`ttmem run`)",
            "  library    every event, reported by the process itself",
            "  counters   tt-metal counters: sums per device",
            "  reported   old socket protocol",
            "  partial    some events were missed",
            "  drift      the runtime's allocators report other figures",
            "  untracked  has a device open and publishes nothing: start it with `ttmem run`",
            "  idle       no process has the device open",
        ];
        let height = (rows.len() + notes.len() + 2).min(usize::from(area.height)) as u16;
        let inside = draw_popup_frame(canvas, area, 94, height, "Keys");
        let all = rows.len() + notes.len();
        self.popup_rows = all.saturating_sub(usize::from(inside.height));
        let offset = self.ui.popup_offset.min(self.popup_rows);
        for (y, n) in (offset..all).take(usize::from(inside.height)).enumerate() {
            let y = y as u16;
            match rows.get(n) {
                Some((keys, help)) => {
                    canvas.write(inside, 1, y, keys, theme.accent);
                    canvas.write_cut(inside, 13, y, inside.width.saturating_sub(14), help, theme.text);
                }
                None => canvas.write_cut(
                    inside,
                    1,
                    y,
                    inside.width.saturating_sub(2),
                    notes[n - rows.len()],
                    theme.faint,
                ),
            }
        }
        self.draw_scroll_mark(canvas, inside, offset);
    }

    fn draw_details(&mut self, canvas: &mut Canvas, area: Rect, title: &str, facts: &[Fact]) {
        let theme = &self.ui.theme;
        let width = details_width(area);
        // The width of most labels; a little more for the longest ones.
        let labels = facts.iter().filter(|it| !it.text.is_empty()).map(|it| it.label.chars().count());
        let label = labels.max().unwrap_or(0).clamp(18, 21) as u16 + 1;
        let text_width = usize::from(width.saturating_sub(label + 4)).max(8);
        let mut rows: Vec<(&str, &str, Style)> = Vec::new();
        let lines: Vec<Vec<String>> = facts.iter().map(|fact| wrap(&fact.text, text_width)).collect();
        for (fact, lines) in facts.iter().zip(&lines) {
            let style = match fact.tone {
                FactTone::Plain => theme.text,
                FactTone::Good => theme.good,
                FactTone::Bad => theme.bad,
                FactTone::Heading => theme.title,
            };
            let label = fact.label.as_str();
            for (n, line) in lines.iter().enumerate() {
                rows.push((if n == 0 { label } else { "" }, line, style));
            }
        }
        let height = (rows.len() + 2).min(usize::from(area.height)) as u16;
        let inside = draw_popup_frame(canvas, area, width, height.max(3), title);
        self.popup_rows = rows.len().saturating_sub(usize::from(inside.height));
        let offset = self.ui.popup_offset.min(self.popup_rows);
        for (y, (name, text, style)) in rows.iter().skip(offset).take(usize::from(inside.height)).enumerate()
        {
            let y = y as u16;
            let heading = text.is_empty() && !name.is_empty();
            let name_style = if heading { *style } else { theme.faint };
            canvas.write_cut(inside, 1, y, if heading { inside.width } else { label - 1 }, name, name_style);
            canvas.write_cut(inside, 1 + label, y, inside.width.saturating_sub(label + 2), text, *style);
        }
        self.draw_scroll_mark(canvas, inside, offset);
    }

    /// Marks a popup that can be scrolled.
    fn draw_scroll_mark(&self, canvas: &mut Canvas, inside: Rect, offset: usize) {
        if self.popup_rows > 0 {
            let frame =
                Rect { x: inside.x - 1, y: inside.y - 1, width: inside.width + 2, height: inside.height + 2 };
            let text = match (offset > 0, offset < self.popup_rows) {
                (true, true) => "▲ more ▼",
                (true, false) => "▲ more",
                _ => "more ▼",
            };
            canvas.write_bottom_right(frame, text, self.ui.theme.accent);
        }
    }
}

/// The width of a popup with details: the whole width, unless a readable part of the view remains at the sides.
fn details_width(area: Rect) -> u16 {
    if area.width < 130 { area.width } else { 120 }
}

/// Draws an empty frame in the middle of an area; returns the area inside.
fn draw_popup_frame(canvas: &mut Canvas, area: Rect, width: u16, height: u16, title: &str) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let frame =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    canvas.clear(frame);
    canvas.draw_frame(frame, title, true);
    canvas.add_target(frame, Target::Popup);
    inner(frame)
}
