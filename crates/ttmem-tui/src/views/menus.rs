//! What lies over a view: help, details, menus.

use super::Scene;
use super::details::{Fact, Tone};
use crate::canvas::{Canvas, inner, wrap};
use crate::keys::BINDINGS;
use crate::lists;
use crate::ui::{Popup, SIGNALS, Target};
use crate::update::Setting;
use ratatui::layout::Rect;
use ratatui::style::Style;

impl Scene<'_> {
    pub(super) fn popup(&mut self, canvas: &mut Canvas, area: Rect) {
        match &self.ui.popup {
            None => {}
            Some(Popup::Help) => self.help(canvas, area),
            Some(Popup::Details(subject)) => {
                let (title, facts) = self.facts(subject);
                self.details(canvas, area, &title, &facts);
            }
            Some(Popup::Sort { list, choice }) => {
                let sorted = self.ui.place(*list).sort;
                let rows: Vec<(String, String)> = lists::sortable_now(self.ui, *list)
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
                self.menu(canvas, area, &format!("Sort {} by", list.name()), &rows, *choice);
            }
            Some(Popup::Signal { to, choice }) => {
                let mut rows = vec![("Cancel".to_owned(), String::new())];
                rows.extend(
                    SIGNALS.iter().map(|it| (format!("{:>2} {:<5}", it.number, it.name), it.help.to_owned())),
                );
                let title = format!("Signal to {} (pid {}, {})", to.name, to.pid, to.user);
                self.menu(canvas, area, &title, &rows, *choice);
            }
            Some(Popup::Confirm { to, signal }) => {
                let text = format!("Send {} to {} (pid {}, {})?", signal.name, to.name, to.pid, to.user);
                let rows = [
                    text,
                    format!("{}: {}", signal.name, signal.help),
                    "y: send, any other key: cancel".to_owned(),
                ];
                let width = rows.iter().map(|it| it.chars().count()).max().unwrap_or(0) as u16 + 4;
                let inside = over(canvas, area, width, 5, "Send signal?");
                for (y, row) in rows.iter().enumerate() {
                    let style = if y == 0 { self.ui.theme.bad } else { self.ui.theme.faint };
                    canvas.cut(inside, 1, y as u16, inside.width.saturating_sub(2), row, style);
                }
            }
            Some(Popup::Setup { choice }) => {
                let rows: Vec<(String, String)> = Setting::ALL
                    .iter()
                    .map(|it| {
                        let (name, value) = it.describe(self.ui);
                        (format!("{name:<36}"), value)
                    })
                    .collect();
                self.menu(canvas, area, "Settings (F12: save)", &rows, *choice);
            }
        }
    }

    fn menu(&self, canvas: &mut Canvas, area: Rect, title: &str, rows: &[(String, String)], choice: usize) {
        let theme = &self.ui.theme;
        let widest = rows.iter().map(|(a, b)| a.chars().count() + b.chars().count() + 2).max().unwrap_or(0);
        let width = widest.max(title.chars().count() + 4) as u16 + 4;
        let inside = over(canvas, area, width, rows.len() as u16 + 2, title);
        // More choices than fit are moved so that the chosen one is seen.
        let first = (choice + 1).saturating_sub(usize::from(inside.height));
        for (y, (n, (name, note))) in
            rows.iter().enumerate().skip(first).take(usize::from(inside.height)).enumerate()
        {
            let y = y as u16;
            let x = canvas.text(inside, 1, y, name, theme.text);
            canvas.cut(inside, x + 1, y, inside.width.saturating_sub(x + 2), note, theme.faint);
            let line = Rect { y: inside.y + y, height: 1, ..inside };
            if n == choice {
                canvas.tint(line, theme.selected);
            }
            canvas.target(line, Target::Choice(n));
        }
    }

    fn help(&mut self, canvas: &mut Canvas, area: Rect) {
        let vim = self.ui.settings.vim_keys;
        let rows: Vec<(&str, &str)> = BINDINGS
            .iter()
            .filter(|it| !it.shown.is_empty())
            .filter(|it| crate::ui::View::ALL.iter().any(|view| it.holds(*view, vim)))
            .map(|it| (it.shown, it.help))
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
        let inside = over(canvas, area, 94, height, "Keys");
        let all = rows.len() + notes.len();
        self.popup_rows = all.saturating_sub(usize::from(inside.height));
        let offset = self.ui.popup_offset.min(self.popup_rows);
        for (y, n) in (offset..all).take(usize::from(inside.height)).enumerate() {
            let y = y as u16;
            match rows.get(n) {
                Some((keys, help)) => {
                    canvas.text(inside, 1, y, keys, theme.accent);
                    canvas.cut(inside, 13, y, inside.width.saturating_sub(14), help, theme.text);
                }
                None => canvas.cut(
                    inside,
                    1,
                    y,
                    inside.width.saturating_sub(2),
                    notes[n - rows.len()],
                    theme.faint,
                ),
            }
        }
        self.more(canvas, inside, offset);
    }

    fn details(&mut self, canvas: &mut Canvas, area: Rect, title: &str, facts: &[Fact]) {
        let theme = &self.ui.theme;
        // Remains of the view at both sides say nothing.
        let width = if area.width < 130 { area.width } else { 120 };
        // As wide as most labels need; the longest ones get a little more.
        let labels = facts.iter().filter(|it| !it.text.is_empty()).map(|it| it.label.chars().count());
        let label = labels.max().unwrap_or(0).clamp(18, 21) as u16 + 1;
        let text_width = usize::from(width.saturating_sub(label + 4)).max(8);
        let mut rows: Vec<(&str, &str, Style)> = Vec::new();
        let lines: Vec<Vec<String>> = facts.iter().map(|fact| wrap(&fact.text, text_width)).collect();
        for (fact, lines) in facts.iter().zip(&lines) {
            let style = match fact.tone {
                Tone::Plain => theme.text,
                Tone::Good => theme.good,
                Tone::Bad => theme.bad,
                Tone::Heading => theme.title,
            };
            let label = fact.label.as_str();
            for (n, line) in lines.iter().enumerate() {
                rows.push((if n == 0 { label } else { "" }, line, style));
            }
        }
        let height = (rows.len() + 2).min(usize::from(area.height)) as u16;
        let inside = over(canvas, area, width, height.max(3), title);
        self.popup_rows = rows.len().saturating_sub(usize::from(inside.height));
        let offset = self.ui.popup_offset.min(self.popup_rows);
        for (y, (name, text, style)) in rows.iter().skip(offset).take(usize::from(inside.height)).enumerate()
        {
            let y = y as u16;
            let heading = text.is_empty() && !name.is_empty();
            let name_style = if heading { *style } else { theme.faint };
            canvas.cut(inside, 1, y, if heading { inside.width } else { label - 1 }, name, name_style);
            canvas.cut(inside, 1 + label, y, inside.width.saturating_sub(label + 2), text, *style);
        }
        self.more(canvas, inside, offset);
    }

    /// Says that there is more than is seen.
    fn more(&self, canvas: &mut Canvas, inside: Rect, offset: usize) {
        if self.popup_rows > 0 {
            let frame =
                Rect { x: inside.x - 1, y: inside.y - 1, width: inside.width + 2, height: inside.height + 2 };
            let text = match (offset > 0, offset < self.popup_rows) {
                (true, true) => "▲ more ▼",
                (true, false) => "▲ more",
                _ => "more ▼",
            };
            canvas.foot(frame, text, self.ui.theme.accent);
        }
    }
}

/// An empty frame in the middle.
fn over(canvas: &mut Canvas, area: Rect, width: u16, height: u16, title: &str) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    canvas.clear(place);
    canvas.frame(place, title, true);
    canvas.target(place, Target::Popup);
    inner(place)
}
