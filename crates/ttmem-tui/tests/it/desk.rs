//! Somebody in front of the dashboard: sends messages, looks at the screen.

use crate::states;
use jiff::tz::TimeZone;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use ratatui::style::Color;
use ttmem_core::Snapshot;
use ttmem_tui::{Depth, Effect, Msg, Now, Settings, Shown, Terms, ThemeName, Ui, update, view};

pub(crate) const OWN_PID: u32 = 4242;

/// The background of the chosen row in the dark theme.
pub(crate) const SELECTED: Color = Color::Rgb(44, 56, 78);

pub(crate) struct Desk {
    pub(crate) ui: Ui,
    pub(crate) shown: Shown,
    pub(crate) ms: u64,
    pub(crate) size: (u16, u16),
    /// What comes when something else is asked for.
    machine: Option<Snapshot>,
}

pub(crate) fn terms() -> Terms {
    Terms { depth: Depth::Full, ascii: false, readonly: false, own_pid: OWN_PID, narrowed: false }
}

impl Desk {
    /// Nothing came yet.
    pub(crate) fn before_anything(settings: Settings, terms: Terms) -> Self {
        let shown = Shown::nothing(TimeZone::UTC);
        Self { ui: Ui::new(settings, terms), shown, ms: 10_000, size: (120, 40), machine: None }
    }

    pub(crate) fn with(snapshot: Snapshot, settings: Settings, terms: Terms) -> Self {
        let mut desk = Self::before_anything(settings, terms);
        desk.fresh(snapshot);
        desk.draw();
        desk
    }

    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self::with(snapshot, Settings::default(), terms())
    }

    pub(crate) fn mono(snapshot: Snapshot) -> Self {
        let settings = Settings { theme: ThemeName::Mono, ..Settings::default() };
        Self::with(snapshot, settings, terms())
    }

    pub(crate) fn sized(mut self, width: u16, height: u16) -> Self {
        self.size = (width, height);
        self.draw();
        self
    }

    pub(crate) fn send(&mut self, msg: Msg) -> Vec<Effect> {
        update(&mut self.ui, &mut self.shown, self.ms, msg)
    }

    pub(crate) fn fresh(&mut self, snapshot: Snapshot) {
        let detail = self.ui.wanted(&self.shown);
        self.machine = Some(snapshot.clone());
        let mut snapshot = snapshot;
        // As whoever makes the list does.
        if let (Some(query), Some(programs)) = (&detail.program_list, &mut snapshot.programs) {
            programs.open =
                query.open.and_then(|key| programs.list.iter().find(|it| it.key() == key).cloned());
        }
        self.send(Msg::Fresh { snapshot: Box::new(snapshot), detail, since: None, by: "daemon".to_owned() });
    }

    /// Draws, and fetches if that takes something else, as the loop does.
    pub(crate) fn look(&mut self) {
        self.draw();
        let comes = self.shown.lost.is_none() && self.ui.wanted(&self.shown) != self.shown.detail;
        if let Some(snapshot) = self.machine.clone().filter(|_| comes) {
            self.fresh(snapshot);
            self.draw();
        }
    }

    /// One key after the other, with a look at the screen after each.
    pub(crate) fn press(&mut self, codes: &[KeyCode]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for code in codes {
            effects.extend(self.send(Msg::Key(KeyEvent::new(*code, KeyModifiers::NONE))));
            self.look();
        }
        effects
    }

    /// The same, of characters.
    pub(crate) fn keys(&mut self, text: &str) -> Vec<Effect> {
        self.press(&text.chars().map(KeyCode::Char).collect::<Vec<_>>())
    }

    pub(crate) fn ctrl(&mut self, c: char) -> Vec<Effect> {
        self.send(Msg::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
    }

    pub(crate) fn mouse(&mut self, kind: MouseEventKind, (column, row): (u16, u16)) -> Vec<Effect> {
        let effects = self.send(Msg::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        self.look();
        effects
    }

    /// What F12 would keep: the settings, the view, the orders.
    #[track_caller]
    pub(crate) fn kept(&mut self) -> Settings {
        let effects = self.send(Msg::Key(KeyEvent::new(KeyCode::F(12), KeyModifiers::NONE)));
        match effects.as_slice() {
            [Effect::Save(settings)] => settings.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The rows in the colour of the chosen one: those of lists and menus, without the tabs.
    pub(crate) fn chosen(&mut self) -> Vec<String> {
        let buffer = self.draw();
        let area = buffer.area;
        let is_chosen = |y: &u16| (0..area.width).any(|x| buffer[(x, *y)].bg == SELECTED);
        let text = rows(&buffer);
        (2..area.height).filter(is_chosen).map(|y| text[usize::from(y)].clone()).collect()
    }

    /// The one chosen row.
    #[track_caller]
    pub(crate) fn chosen_row(&mut self) -> String {
        let chosen = self.chosen();
        assert_eq!(chosen.len(), 1, "{chosen:?}");
        chosen[0].clone()
    }

    /// Whether this text is in the colour of what is chosen.
    #[track_caller]
    pub(crate) fn is_chosen(&mut self, text: &str) -> bool {
        let buffer = self.draw();
        cells(&buffer, text).iter().all(|cell| cell.bg == SELECTED)
    }

    pub(crate) fn click(&mut self, at: (u16, u16)) -> Vec<Effect> {
        self.mouse(MouseEventKind::Down(MouseButton::Left), at)
    }

    pub(crate) fn now(&self) -> Now {
        Now { ms: self.ms, wall: states::now() }
    }

    pub(crate) fn draw(&mut self) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        let laid = view(&self.shown, &self.ui, self.now(), &mut buffer);
        self.ui.settle(laid);
        buffer
    }

    /// The screen's rows.
    pub(crate) fn rows(&mut self) -> Vec<String> {
        rows(&self.draw())
    }

    /// The row that has this text.
    #[track_caller]
    pub(crate) fn row(&mut self, text: &str) -> String {
        let rows = self.rows();
        let found = rows.iter().find(|row| row.contains(text)).cloned();
        found.unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{}", rows.join("\n")))
    }

    pub(crate) fn says(&mut self, text: &str) -> bool {
        self.rows().iter().any(|row| row.contains(text))
    }

    /// Where this text first is.
    #[track_caller]
    pub(crate) fn find(&mut self, text: &str) -> (u16, u16) {
        let buffer = self.draw();
        find(&buffer, text)
            .unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{}", rows(&buffer).join("\n")))
    }
}

/// Rows of a screen, without the spaces at their ends.
pub(crate) fn rows(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let row = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..area.height).map(row).collect()
}

/// Where a text first is: cells, not bytes.
pub(crate) fn find(buffer: &Buffer, text: &str) -> Option<(u16, u16)> {
    let wanted: Vec<String> = text.chars().map(String::from).collect();
    let wide = wanted.len() as u16;
    let at = |x: u16, y: u16| (0..wide).all(|n| buffer[(x + n, y)].symbol() == wanted[usize::from(n)]);
    let area = buffer.area;
    (0..area.height)
        .flat_map(|y| (0..(area.width + 1).saturating_sub(wide)).map(move |x| (x, y)))
        .find(|&(x, y)| at(x, y))
}

/// The cells of a text, wherever it first is.
#[track_caller]
pub(crate) fn cells<'a>(buffer: &'a Buffer, text: &str) -> Vec<&'a Cell> {
    let (x, y) = find(buffer, text)
        .unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{}", rows(buffer).join("\n")));
    (0..text.chars().count() as u16).map(|n| &buffer[(x + n, y)]).collect()
}
