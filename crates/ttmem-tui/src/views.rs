//! Drawing the screen from the data and the state of the user interface. Drawing changes neither; it returns the layout of
//! the screen, such as the targets of clicks.

mod addresses;
mod buffers;
mod charts;
mod details;
mod events;
mod flame;
mod main_view;
mod map;
mod menus;
mod programs;
mod telemetry;

use crate::canvas::{Canvas, split_rows};
use crate::data::Data;
use crate::keys::{Action, BINDINGS, Binding};
use crate::table::Table;
use crate::ui::{List, Popup, ScreenLayout, Target, Ui, View};
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ttmem_core::snapshot::Severity;
use ttmem_render::RowKind;
use ttmem_render::format::{age, plural};

/// Shown if there is no device.
const NO_DEVICE: &str = "No device found. Try `ttmem demo` (no hardware needed) or `ttmem doctor`.";
/// Shown until the first data of a view arrives.
const LOADING: &str = "Loading …";

/// Width and height of the smallest terminal.
pub(crate) const MIN_SIZE: (u16, u16) = (80, 24);

/// The time of drawing.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// On the clock of [`crate::update()`].
    pub ms: u64,
    /// On the wall clock.
    pub wall: Timestamp,
}

/// The inputs of drawing, and the parts of the layout that it returns.
struct Scene<'a> {
    data: &'a Data,
    ui: &'a Ui,
    now: Now,
    pages: Vec<(List, usize, usize)>,
    popup_rows: usize,
    bar_columns: u16,
}

/// Draws the whole screen.
pub fn view(data: &Data, ui: &Ui, now: Now, buffer: &mut Buffer) -> ScreenLayout {
    let mut canvas = Canvas::new(buffer, &ui.theme, ui.ascii);
    let area = canvas.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        draw_too_small(&mut canvas, area);
        return ScreenLayout { targets: canvas.targets, ..ScreenLayout::default() };
    }
    let mut scene = Scene { data, ui, now, pages: Vec::new(), popup_rows: 0, bar_columns: 0 };
    let (title, rest) = split_rows(area, 1);
    let (tabs, rest) = split_rows(rest, 1);
    let (body, bottom) = split_rows(rest, rest.height - 1);
    scene.draw_title(&mut canvas, title);
    scene.draw_tabs(&mut canvas, tabs);
    if data.received_ms.is_none() {
        scene.draw_waiting(&mut canvas, body);
    } else {
        match ui.view {
            View::Main => scene.draw_main(&mut canvas, body),
            View::Charts => scene.draw_charts(&mut canvas, body),
            View::Telemetry => scene.draw_telemetry(&mut canvas, body),
            View::Map => scene.draw_map(&mut canvas, body),
            View::Buffers => scene.draw_buffers(&mut canvas, body),
            View::Programs => scene.draw_programs(&mut canvas, body),
            View::Events => scene.draw_events(&mut canvas, body),
            View::Flame => scene.draw_flame(&mut canvas, body),
            View::Addresses => scene.draw_address_space(&mut canvas, body),
        }
        if scene.is_stale() {
            // The last figures stay, but faint.
            canvas.set_style(body, ui.theme.faint.add_modifier(Modifier::DIM));
        }
    }
    if ui.popup.is_some() {
        // A popup gets all clicks.
        canvas.targets.clear();
        scene.draw_popup(&mut canvas, body);
    }
    scene.draw_bottom_line(&mut canvas, bottom);
    ScreenLayout {
        targets: canvas.targets,
        pages: scene.pages,
        popup_rows: scene.popup_rows,
        bar_columns: scene.bar_columns,
    }
}

fn draw_too_small(canvas: &mut Canvas, area: Rect) {
    let (width, height) = MIN_SIZE;
    let lines = [
        "ttmem".to_owned(),
        format!("This terminal has {} x {} characters.", area.width, area.height),
        format!("The dashboard needs {width} x {height}."),
        "q: quit".to_owned(),
    ];
    let top = area.height.saturating_sub(lines.len() as u16) / 2;
    for (n, line) in lines.iter().enumerate() {
        let x = area.width.saturating_sub(line.chars().count() as u16) / 2;
        let style = if n == 0 { canvas.theme.title } else { canvas.theme.text };
        canvas.write_cut(area, x, top + n as u16, area.width, line, style);
    }
}

impl Scene<'_> {
    /// Whether the data is out of date.
    fn is_stale(&self) -> bool {
        self.data.outage.is_some() || self.data_age_ms() > (3 * self.ui.settings.refresh_ms).max(3000)
    }

    fn data_age_ms(&self) -> u64 {
        self.data.received_ms.map_or(0, |at| self.now.ms.saturating_sub(at))
    }

    fn draw_title(&self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, theme) = (&self.data.snapshot, &self.ui.theme);
        let mut x = canvas.write(area, 1, 0, "ttmem", theme.title);
        let host = snapshot.host.name.as_deref().unwrap_or("");
        if !host.is_empty() {
            x = canvas.write(area, x + 1, 0, &host.chars().take(24).collect::<String>(), theme.accent);
        }
        if snapshot.simulated {
            x = canvas.write(area, x + 1, 0, " SIMULATED ", theme.badge);
        }
        if let Some(at) = self.ui.paused {
            let text = format!(" PAUSED {} ", self.data.time_of_day(at));
            x = canvas.write(area, x + 1, 0, &text, theme.badge);
        }
        let outage = self.data.outage.as_ref();
        if let Some(outage) = outage {
            let since_ms = self.data.received_ms.unwrap_or(outage.since_ms);
            let silent = age(self.now.ms.saturating_sub(since_ms) as f64 / 1e3);
            x = canvas.write(area, x + 1, 0, &format!(" no answer for {silent} "), theme.alarm);
            canvas.write_cut(area, x + 1, 0, area.width.saturating_sub(x + 12), &outage.reason, theme.bad);
        } else if self.is_stale() && self.data.received_ms.is_some() {
            let silent = age(self.data_age_ms() as f64 / 1e3);
            canvas.write(area, x + 1, 0, &format!(" no data for {silent} "), theme.badge);
        }
        let mut right: Vec<(String, Style)> = Vec::new();
        if outage.is_none() {
            let open = || snapshot.findings.iter().filter(|it| !self.ui.is_acknowledged(it));
            let count = |severity| open().filter(|it| it.severity == severity).count() as u64;
            let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
            if errors > 0 {
                right.push((format!(" {} ", plural(errors, "error")), theme.alarm));
            }
            if warnings > 0 {
                right.push((plural(warnings, "warning"), theme.warn));
            }
            right.push((self.data.source.clone(), theme.faint));
            right.push((format!("{} ms", self.ui.settings.refresh_ms), theme.faint));
        }
        let has_data = self.data.received_ms.is_some();
        right.push((if has_data { self.data.time_of_day(snapshot.at) } else { String::new() }, theme.text));
        // If space is short, the least important parts are dropped first; the time stays.
        let width =
            |right: &[(String, Style)]| right.iter().map(|it| it.0.chars().count() + 2).sum::<usize>();
        while right.len() > 1 && width(&right) > usize::from(area.width.saturating_sub(x + 2)) {
            right.remove(right.len() - 2);
        }
        let mut at = area.width.saturating_sub(width(&right) as u16);
        for (text, style) in &right {
            at = canvas.write(area, at + 1, 0, text, *style) + 1;
        }
    }

    fn draw_tabs(&self, canvas: &mut Canvas, area: Rect) {
        let theme = &self.ui.theme;
        let mut x = 1;
        // On narrow screens there is one space between two tabs, and none after the digit.
        let needed =
            |spaces| View::ALL.into_iter().map(|view| view.title().len() + 1 + spaces).sum::<usize>();
        let fits = |spaces| needed(spaces) < usize::from(area.width);
        let (gap, end) = match (fits(3), fits(2)) {
            (true, _) => (" ", " "),
            (false, true) => (" ", ""),
            (false, false) => ("", ""),
        };
        for (n, view) in View::ALL.into_iter().enumerate() {
            let begin = x;
            let is_selected = view == self.ui.view;
            let name = if is_selected { theme.selected } else { theme.faint };
            let digit = if is_selected { theme.selected } else { theme.accent };
            x = canvas.write(area, x, 0, &format!(" {}", n + 1), digit);
            x = canvas.write(area, x, 0, &format!("{gap}{}{end}", view.title()), name);
            let tab = Rect { x: area.x + begin, width: x - begin, ..area };
            canvas.add_target(tab, Target::View(view));
        }
        // The device that the map shows.
        let device = self.ui.selected_device(&self.data.snapshot);
        if let Some(device) = device.filter(|_| self.ui.view == View::Map) {
            let text = format!("device {}  [ ]", device.index);
            if usize::from(area.width.saturating_sub(x + 1)) < text.len() {
                return;
            }
            canvas.write_right(area, x, 0, area.width.saturating_sub(x + 1), &text, theme.faint);
        }
    }

    /// Draws the screen before the first snapshot: that it is loading, or why it failed and what to do.
    fn draw_waiting(&self, canvas: &mut Canvas, area: Rect) {
        let theme = &self.ui.theme;
        let Some(outage) = &self.data.outage else {
            return canvas.write_cut(area, 2, 1, area.width.saturating_sub(3), LOADING, theme.faint);
        };
        let inside = canvas.draw_frame(area, "No data", true);
        let mut y = 1;
        let lines = [
            (outage.reason.as_str(), theme.bad),
            ("", theme.text),
            ("Start a daemon: `ttmem serve`, or as a service: `systemctl start ttmem`", theme.text),
            ("Read the devices without a daemon: `ttmem top --local`", theme.text),
            ("Try it without hardware: `ttmem demo`", theme.text),
            ("Check the setup: `ttmem doctor`", theme.text),
            ("", theme.text),
            ("Retrying. q: quit", theme.faint),
        ];
        for (text, style) in lines {
            y += canvas.write_paragraph(inside, 2, y, text, style);
        }
    }

    /// Draws the filter that is being typed, a message, or hints about keys.
    fn draw_bottom_line(&self, canvas: &mut Canvas, area: Rect) {
        let theme = &self.ui.theme;
        if let Some(line) = &self.ui.editing {
            let label = if self.ui.view == View::Flame { "search: " } else { "filter: " };
            let x = canvas.write(area, 1, 0, label, theme.accent);
            // Of a long filter the end is shown, where the cursor is.
            let room = usize::from(area.width.saturating_sub(x + 30));
            let hidden = line.chars().count().saturating_sub(room);
            let x = canvas.write(area, x, 0, &line.chars().skip(hidden).collect::<String>(), theme.text);
            canvas.put(area, x, 0, '█', theme.accent);
            let hint = "Enter: apply, Esc: clear";
            canvas.write_right(area, 0, 0, area.width.saturating_sub(1), hint, theme.faint);
            return;
        }
        if let Some(status) = &self.ui.status {
            let style = if status.is_warning { theme.bad } else { theme.accent };
            canvas.write_cut(area, 1, 0, area.width.saturating_sub(2), &status.text, style);
            return;
        }
        self.draw_hints(canvas, area);
    }

    fn draw_hints(&self, canvas: &mut Canvas, area: Rect) {
        let theme = &self.ui.theme;
        let popup: &[(&str, &str)] = match &self.ui.popup {
            Some(Popup::Confirm { .. }) => &[("y", "send"), ("any other key", "cancel")],
            Some(Popup::Help | Popup::Details(_)) => &[("arrows PgUp PgDn", "move"), ("Esc", "back")],
            Some(Popup::Settings { .. }) => {
                &[("arrows", "move"), ("Enter", "change"), ("F12", "save"), ("Esc", "back")]
            }
            Some(_) => &[("arrows", "move"), ("Enter", "select"), ("Esc", "back")],
            None => &[],
        };
        let own = BINDINGS.iter().filter(|binding| {
            let is_disabled = self.ui.readonly && binding.action == Action::Signal;
            popup.is_empty()
                && !binding.hint.is_empty()
                && !is_disabled
                && binding.is_active(self.ui.view, self.ui.settings.vim_keys)
        });
        // The most important hints come first, since not all may fit.
        let first = |it: &&Binding| matches!(it.action, Action::Help | Action::Quit);
        let own = own.clone().filter(first).chain(own.filter(|it| !first(it)));
        let paused = (self.ui.paused.is_some() && popup.is_empty()).then_some(("p", "resume"));
        let own = own.filter(|it| paused.is_none() || it.action != Action::Pause);
        let name = |it: &Binding| if it.names.is_empty() { "Enter" } else { it.names };
        let hints = paused.into_iter().chain(popup.iter().copied()).chain(own.map(|it| (name(it), it.hint)));
        let mut x = 1;
        for (keys, hint) in hints {
            // A hint that does not fit is skipped as a whole.
            let width = keys.chars().count() + hint.chars().count() + 3;
            if usize::from(x) + width > usize::from(area.width) {
                continue;
            }
            x = canvas.write(area, x, 0, keys, theme.accent);
            x = canvas.write(area, x + 1, 0, hint, theme.faint) + 2;
        }
    }

    /// Draws a table in a frame, with its filter and the position of the cursor.
    fn draw_table<'r, K: RowKind>(
        &mut self,
        canvas: &mut Canvas,
        area: Rect,
        title: &str,
        table: &Table<K>,
        empty: &str,
        row: impl Fn(usize) -> Option<K::Row<'r>>,
    ) {
        let theme = &self.ui.theme;
        canvas.add_target(area, Target::List(table.list));
        let inside = canvas.draw_frame(area, title, table.focused);
        if !table.state.filter.is_empty() {
            canvas.write_top_right(area, &format!("filter: {}", table.state.filter), theme.accent);
        }
        let inside = Rect { x: inside.x.saturating_add(1), width: inside.width.saturating_sub(2), ..inside };
        let (offset, page) = table.draw(canvas, inside, row);
        if table.count == 0 {
            let below = Rect { width: inside.width + 1, ..inside };
            canvas.write_paragraph(below, 0, 1, empty, theme.faint);
        } else {
            canvas.write_bottom_right(
                area,
                &format!("{}/{}", table.state.cursor.min(table.count - 1) + 1, table.count),
                theme.faint,
            );
        }
        self.pages.push((table.list, offset, page));
    }
}
