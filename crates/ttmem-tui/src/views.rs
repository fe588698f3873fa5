//! From what there is and what was chosen to a screen. Nothing here changes anything: what drawing found out, such as
//! where one can click, is what it returns.

mod buffers;
mod charts;
mod details;
mod events;
mod main_view;
mod map;
mod menus;
mod programs;
mod telemetry;

use crate::canvas::{Canvas, split_rows};
use crate::keys::{Action, BINDINGS, Binding};
use crate::shown::Shown;
use crate::ui::{Laid, List, Popup, Target, Ui, View};
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ttmem_core::snapshot::Severity;
use ttmem_render::Kind;
use ttmem_render::figure::{age, counted};

/// What to do without a device.
const NO_DEVICE: &str = "No device found. Try `ttmem demo` (no hardware needed) or `ttmem doctor`.";
/// Until the first data of a view is there.
const LOADING: &str = "Loading …";

/// The smallest terminal.
pub(crate) const LEAST: (u16, u16) = (80, 24);

/// The moment of drawing.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// On the clock of messages.
    pub ms: u64,
    /// On the wall.
    pub wall: Timestamp,
}

/// What views are drawn from and with.
struct Scene<'a> {
    shown: &'a Shown,
    ui: &'a Ui,
    now: Now,
    pages: Vec<(List, usize, usize)>,
    popup_rows: usize,
}

/// Draws the whole screen.
pub fn view(shown: &Shown, ui: &Ui, now: Now, buffer: &mut Buffer) -> Laid {
    let mut canvas = Canvas::new(buffer, &ui.theme, ui.ascii);
    let area = canvas.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(&mut canvas, area);
        return Laid { targets: canvas.targets, ..Laid::default() };
    }
    let mut scene = Scene { shown, ui, now, pages: Vec::new(), popup_rows: 0 };
    let (title, rest) = split_rows(area, 1);
    let (tabs, rest) = split_rows(rest, 1);
    let (body, hints) = split_rows(rest, rest.height - 1);
    scene.title(&mut canvas, title);
    scene.tabs(&mut canvas, tabs);
    if shown.received_ms.is_none() {
        scene.waiting(&mut canvas, body);
    } else {
        match ui.view {
            View::Main => scene.main(&mut canvas, body),
            View::Charts => scene.charts(&mut canvas, body),
            View::Telemetry => scene.telemetry(&mut canvas, body),
            View::Map => scene.map(&mut canvas, body),
            View::Buffers => scene.buffers(&mut canvas, body),
            View::Programs => scene.programs(&mut canvas, body),
            View::Events => scene.events(&mut canvas, body),
        }
        if scene.is_stale() {
            // The last figures stay, and are seen to be old.
            canvas.tint(body, ui.theme.faint.add_modifier(Modifier::DIM));
        }
    }
    if ui.popup.is_some() {
        // What lies over the view takes all clicks.
        canvas.targets.clear();
        scene.popup(&mut canvas, body);
    }
    scene.lowest_line(&mut canvas, hints);
    Laid { targets: canvas.targets, pages: scene.pages, popup_rows: scene.popup_rows }
}

fn too_small(canvas: &mut Canvas, area: Rect) {
    let (width, height) = LEAST;
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
        canvas.cut(area, x, top + n as u16, area.width, line, style);
    }
}

impl Scene<'_> {
    /// Whether the data is out of date.
    fn is_stale(&self) -> bool {
        self.shown.lost.is_some() || self.silent_ms() > (3 * self.ui.settings.refresh_ms).max(3000)
    }

    fn silent_ms(&self) -> u64 {
        self.shown.received_ms.map_or(0, |at| self.now.ms.saturating_sub(at))
    }

    fn title(&self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, theme) = (&self.shown.snapshot, &self.ui.theme);
        let mut x = canvas.text(area, 1, 0, "ttmem", theme.title);
        let host = snapshot.host.name.as_deref().unwrap_or("");
        if !host.is_empty() {
            x = canvas.text(area, x + 1, 0, &host.chars().take(24).collect::<String>(), theme.accent);
        }
        if snapshot.simulated {
            x = canvas.text(area, x + 1, 0, " SIMULATED ", theme.badge);
        }
        if let Some(at) = self.ui.paused {
            let text = format!(" PAUSED {} ", self.shown.clock(at));
            x = canvas.text(area, x + 1, 0, &text, theme.badge);
        }
        let lost = self.shown.lost.as_ref();
        if let Some(lost) = lost {
            let silent =
                age(self.now.ms.saturating_sub(self.shown.received_ms.unwrap_or(lost.since_ms)) as f64 / 1e3);
            x = canvas.text(area, x + 1, 0, &format!(" no answer for {silent} "), theme.alarm);
            canvas.cut(area, x + 1, 0, area.width.saturating_sub(x + 12), &lost.why, theme.bad);
        } else if self.is_stale() && self.shown.received_ms.is_some() {
            let silent = age(self.silent_ms() as f64 / 1e3);
            canvas.text(area, x + 1, 0, &format!(" no data for {silent} "), theme.badge);
        }
        let mut right: Vec<(String, Style)> = Vec::new();
        if lost.is_none() {
            let open = || snapshot.findings.iter().filter(|it| !self.ui.is_acknowledged(it));
            let count = |severity| open().filter(|it| it.severity == severity).count() as u64;
            let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
            if errors > 0 {
                right.push((format!(" {} ", counted(errors, "error")), theme.alarm));
            }
            if warnings > 0 {
                right.push((counted(warnings, "warning"), theme.warn));
            }
            right.push((self.shown.by.clone(), theme.faint));
            right.push((format!("{} ms", self.ui.settings.refresh_ms), theme.faint));
        }
        let has_data = self.shown.received_ms.is_some();
        right.push((if has_data { self.shown.clock(snapshot.at) } else { String::new() }, theme.text));
        // What does not fit goes, the least important first.
        let wide = |right: &[(String, Style)]| right.iter().map(|it| it.0.chars().count() + 2).sum::<usize>();
        while right.len() > 1 && wide(&right) > usize::from(area.width.saturating_sub(x + 2)) {
            right.remove(right.len() - 2);
        }
        let mut at = area.width.saturating_sub(wide(&right) as u16);
        for (text, style) in &right {
            at = canvas.text(area, at + 1, 0, text, *style) + 1;
        }
    }

    fn tabs(&self, canvas: &mut Canvas, area: Rect) {
        let theme = &self.ui.theme;
        let mut x = 1;
        for (n, view) in View::ALL.into_iter().enumerate() {
            let begin = x;
            let chosen = view == self.ui.view;
            let name = if chosen { theme.selected } else { theme.faint };
            let digit = if chosen { theme.selected } else { theme.accent };
            x = canvas.text(area, x, 0, &format!(" {}", n + 1), digit);
            x = canvas.text(area, x, 0, &format!(" {} ", view.title()), name);
            let tab = Rect { x: area.x + begin, width: x - begin, ..area };
            canvas.target(tab, Target::View(view));
        }
        // The device that the map shows.
        if let Some(device) = self.ui.chip(&self.shown.snapshot).filter(|_| self.ui.view == View::Map) {
            let text = format!("device {}  [ ]", device.index);
            if usize::from(area.width.saturating_sub(x + 1)) < text.len() {
                return;
            }
            canvas.right(area, x, 0, area.width.saturating_sub(x + 1), &text, theme.faint);
        }
    }

    /// Before the first snapshot: what is being done, or why there is none and what to do.
    fn waiting(&self, canvas: &mut Canvas, area: Rect) {
        let theme = &self.ui.theme;
        let Some(lost) = &self.shown.lost else {
            return canvas.cut(area, 2, 1, area.width.saturating_sub(3), LOADING, theme.faint);
        };
        let inside = canvas.frame(area, "No data", true);
        let mut y = 1;
        let lines = [
            (lost.why.as_str(), theme.bad),
            ("", theme.text),
            ("Start a daemon: `ttmem serve`, or as a service: `systemctl start ttmem`", theme.text),
            ("Read the devices without a daemon: `ttmem top --local`", theme.text),
            ("Try it without hardware: `ttmem demo`", theme.text),
            ("Check the setup: `ttmem doctor`", theme.text),
            ("", theme.text),
            ("Retrying. q: quit", theme.faint),
        ];
        for (text, style) in lines {
            y += canvas.paragraph(inside, 2, y, text, style);
        }
    }

    /// The filter being typed, a message, or hints about keys.
    fn lowest_line(&self, canvas: &mut Canvas, area: Rect) {
        let theme = &self.ui.theme;
        if let Some(line) = &self.ui.editing {
            let x = canvas.text(area, 1, 0, "filter: ", theme.accent);
            // The end of a long one is where one types.
            let room = usize::from(area.width.saturating_sub(x + 30));
            let hidden = line.chars().count().saturating_sub(room);
            let x = canvas.text(area, x, 0, &line.chars().skip(hidden).collect::<String>(), theme.text);
            canvas.put(area, x, 0, '█', theme.accent);
            let hint = "Enter: apply, Esc: clear";
            canvas.right(area, 0, 0, area.width.saturating_sub(1), hint, theme.faint);
            return;
        }
        if let Some(status) = &self.ui.status {
            let style = if status.alarming { theme.bad } else { theme.accent };
            canvas.cut(area, 1, 0, area.width.saturating_sub(2), &status.text, style);
            return;
        }
        let popup: &[(&str, &str)] = match &self.ui.popup {
            Some(Popup::Confirm { .. }) => &[("y", "send"), ("any other key", "cancel")],
            Some(Popup::Help | Popup::Details(_)) => &[("arrows PgUp PgDn", "move"), ("Esc", "back")],
            Some(Popup::Setup { .. }) => {
                &[("arrows", "move"), ("Enter", "change"), ("F12", "save"), ("Esc", "back")]
            }
            Some(_) => &[("arrows", "move"), ("Enter", "select"), ("Esc", "back")],
            None => &[],
        };
        let own = BINDINGS.iter().filter(|it| {
            let readonly = self.ui.readonly && it.action == Action::Signal;
            popup.is_empty()
                && !it.hint.is_empty()
                && !readonly
                && it.holds(self.ui.view, self.ui.settings.vim_keys)
        });
        // With these two, the others are found.
        let first = |it: &&Binding| matches!(it.action, Action::Help | Action::Quit);
        let own = own.clone().filter(first).chain(own.filter(|it| !first(it)));
        let paused = (self.ui.paused.is_some() && popup.is_empty()).then_some(("p", "resume"));
        let own = own.filter(|it| paused.is_none() || it.action != Action::Pause);
        let name = |it: &Binding| if it.shown.is_empty() { "Enter" } else { it.shown };
        let hints = paused.into_iter().chain(popup.iter().copied()).chain(own.map(|it| (name(it), it.hint)));
        let mut x = 1;
        for (keys, what) in hints {
            // A hint is there or not, never a half of it.
            let wide = keys.chars().count() + what.chars().count() + 3;
            if usize::from(x) + wide > usize::from(area.width) {
                continue;
            }
            x = canvas.text(area, x, 0, keys, theme.accent);
            x = canvas.text(area, x + 1, 0, what, theme.faint) + 2;
        }
    }

    /// A table in a frame, with its filter and where one is in it.
    fn framed<'r, K: Kind>(
        &mut self,
        canvas: &mut Canvas,
        area: Rect,
        title: &str,
        table: &crate::table::Table<K>,
        empty: &str,
        row: impl Fn(usize) -> Option<K::Row<'r>>,
    ) {
        let theme = &self.ui.theme;
        canvas.target(area, Target::List(table.list));
        let inside = canvas.frame(area, title, table.focused);
        if !table.place.filter.is_empty() {
            canvas.corner(area, &format!("filter: {}", table.place.filter), theme.accent);
        }
        let inside = Rect { x: inside.x.saturating_add(1), width: inside.width.saturating_sub(2), ..inside };
        let (offset, page) = table.draw(canvas, inside, row);
        if table.count == 0 {
            let below = Rect { width: inside.width + 1, ..inside };
            canvas.paragraph(below, 0, 1, empty, theme.faint);
        } else {
            canvas.foot(
                area,
                &format!("{}/{}", table.place.cursor.min(table.count - 1) + 1, table.count),
                theme.faint,
            );
        }
        self.pages.push((table.list, offset, page));
    }
}
