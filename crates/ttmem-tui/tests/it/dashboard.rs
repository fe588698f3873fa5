//! A dashboard without a terminal: tests send it messages and read its screen.

use crate::states;
use jiff::tz::TimeZone;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use ratatui::style::Color;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::BlockState;
use ttmem_tui::{ColourDepth, Data, Effect, Environment, Msg, Now, Settings, ThemeName, Ui, update, view};

pub(crate) const OWN_PID: u32 = 4242;

/// The background of the selected row in the dark theme.
pub(crate) const SELECTED: Color = Color::Rgb(44, 56, 78);

pub(crate) struct Dashboard {
    pub(crate) ui: Ui,
    pub(crate) data: Data,
    pub(crate) ms: u64,
    pub(crate) size: (u16, u16),
    /// The answer when the screen requires another detail.
    snapshot: Option<Snapshot>,
}

pub(crate) fn environment() -> Environment {
    Environment {
        colour_depth: ColourDepth::Full,
        ascii: false,
        readonly: false,
        own_pid: OWN_PID,
        filtered_by_device: false,
    }
}

impl Dashboard {
    /// A dashboard before its first snapshot.
    pub(crate) fn without_data(settings: Settings, environment: Environment) -> Self {
        let data = Data::empty(TimeZone::UTC);
        Self { ui: Ui::new(settings, environment), data, ms: 10_000, size: (120, 40), snapshot: None }
    }

    pub(crate) fn with(snapshot: Snapshot, settings: Settings, environment: Environment) -> Self {
        let mut dashboard = Self::without_data(settings, environment);
        dashboard.receive(snapshot);
        dashboard.draw();
        dashboard
    }

    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self::with(snapshot, Settings::default(), environment())
    }

    pub(crate) fn mono(snapshot: Snapshot) -> Self {
        let settings = Settings { theme: ThemeName::Mono, ..Settings::default() };
        Self::with(snapshot, settings, environment())
    }

    pub(crate) fn sized(mut self, width: u16, height: u16) -> Self {
        self.size = (width, height);
        self.draw();
        self
    }

    pub(crate) fn send(&mut self, msg: Msg) -> Vec<Effect> {
        update(&mut self.ui, &mut self.data, self.ms, msg)
    }

    pub(crate) fn receive(&mut self, snapshot: Snapshot) {
        let detail = self.ui.required_detail(&self.data);
        self.snapshot = Some(snapshot.clone());
        let mut snapshot = snapshot;
        // The reader adds the open program in the same way.
        if let (Some(query), Some(programs)) = (&detail.program_list, &mut snapshot.programs) {
            programs.open =
                query.open.and_then(|key| programs.list.iter().find(|it| it.key() == key).cloned());
        }
        if let (Some(moment), Some(flame)) = (detail.flame, &mut snapshot.flame) {
            flame.moment = moment;
        }
        // The reader answers a request for blocks in the same way.
        snapshot.block_maps = snapshot.block_maps.filter(|_| detail.blocks.is_some());
        if let Some(query) = &detail.blocks {
            for map in snapshot.block_maps.iter_mut().flatten() {
                let used = map.blocks.iter().filter(|it| it.state != BlockState::Free);
                let ranges: Vec<(u64, u64)> = used.map(|it| (it.address, it.address + it.bytes)).collect();
                map.parts = map.used_parts(ranges.into_iter(), query.parts.into());
                let is_open = query.open.is_none_or(|key| key == map.key());
                let listed = if is_open { query.limit as usize } else { 0 };
                map.omitted_blocks = map.blocks.len().saturating_sub(listed) as u64;
                map.blocks.truncate(listed);
            }
        }
        self.send(Msg::Snapshot {
            snapshot: Box::new(snapshot),
            detail,
            since: None,
            source: "daemon".to_owned(),
        });
    }

    /// Draws, and receives snapshots while the screen requires another detail, as the event loop does.
    pub(crate) fn refresh(&mut self) {
        self.draw();
        // The first answer may show that more is required.
        for _ in 0..2 {
            let is_due =
                self.data.outage.is_none() && self.ui.required_detail(&self.data) != self.data.detail;
            if let Some(snapshot) = self.snapshot.clone().filter(|_| is_due) {
                self.receive(snapshot);
                self.draw();
            }
        }
    }

    /// Presses keys; the screen is drawn after each.
    pub(crate) fn press(&mut self, codes: &[KeyCode]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for code in codes {
            effects.extend(self.send(Msg::Key(KeyEvent::new(*code, KeyModifiers::NONE))));
            self.refresh();
        }
        effects
    }

    /// Types characters; the screen is drawn after each.
    pub(crate) fn keys(&mut self, text: &str) -> Vec<Effect> {
        self.press(&text.chars().map(KeyCode::Char).collect::<Vec<_>>())
    }

    pub(crate) fn ctrl(&mut self, c: char) -> Vec<Effect> {
        self.send(Msg::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
    }

    pub(crate) fn mouse(&mut self, kind: MouseEventKind, (column, row): (u16, u16)) -> Vec<Effect> {
        let effects = self.send(Msg::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        self.refresh();
        effects
    }

    /// The settings that F12 saves.
    #[track_caller]
    pub(crate) fn saved_settings(&mut self) -> Settings {
        let effects = self.send(Msg::Key(KeyEvent::new(KeyCode::F(12), KeyModifiers::NONE)));
        match effects.as_slice() {
            [Effect::Save(settings)] => settings.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The selected rows of lists and menus, without the tabs.
    pub(crate) fn selected_rows(&mut self) -> Vec<String> {
        let buffer = self.draw();
        let area = buffer.area;
        let is_selected = |y: &u16| (0..area.width).any(|x| buffer[(x, *y)].bg == SELECTED);
        let text = rows(&buffer);
        (2..area.height).filter(is_selected).map(|y| text[usize::from(y)].clone()).collect()
    }

    /// The only selected row.
    #[track_caller]
    pub(crate) fn selected_row(&mut self) -> String {
        let selected = self.selected_rows();
        assert_eq!(selected.len(), 1, "{selected:?}");
        selected[0].clone()
    }

    /// Whether a text has the colour of the selected row.
    #[track_caller]
    pub(crate) fn is_selected(&mut self, text: &str) -> bool {
        let buffer = self.draw();
        cells(&buffer, text).iter().all(|cell| cell.bg == SELECTED)
    }

    pub(crate) fn click(&mut self, at: (u16, u16)) -> Vec<Effect> {
        self.mouse(MouseEventKind::Down(MouseButton::Left), at)
    }

    /// Clicks the header of a column of the process list.
    #[track_caller]
    pub(crate) fn click_process_header(&mut self, title: &str) -> Vec<Effect> {
        let (_, y) = self.find("PID User");
        let row = &self.rows()[usize::from(y)];
        let x = row.find(&format!(" {title}")).unwrap_or_else(|| panic!("{title:?} is not in {row}"));
        self.click((row[..=x].chars().count() as u16, y))
    }

    pub(crate) fn now(&self) -> Now {
        Now { ms: self.ms, wall: states::now() }
    }

    pub(crate) fn draw(&mut self) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        let layout = view(&self.data, &self.ui, self.now(), &mut buffer);
        self.ui.set_layout(layout);
        buffer
    }

    /// The rows of the screen.
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

    pub(crate) fn shows(&mut self, text: &str) -> bool {
        self.rows().iter().any(|row| row.contains(text))
    }

    /// The first position of a text.
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

/// The first position of a text, in cells.
pub(crate) fn find(buffer: &Buffer, text: &str) -> Option<(u16, u16)> {
    let wanted: Vec<String> = text.chars().map(String::from).collect();
    let len = wanted.len() as u16;
    let at = |x: u16, y: u16| (0..len).all(|n| buffer[(x + n, y)].symbol() == wanted[usize::from(n)]);
    let area = buffer.area;
    (0..area.height)
        .flat_map(|y| (0..(area.width + 1).saturating_sub(len)).map(move |x| (x, y)))
        .find(|&(x, y)| at(x, y))
}

/// The cells of a text at its first position.
#[track_caller]
pub(crate) fn cells<'a>(buffer: &'a Buffer, text: &str) -> Vec<&'a Cell> {
    let (x, y) = find(buffer, text)
        .unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{}", rows(buffer).join("\n")));
    (0..text.chars().count() as u16).map(|n| &buffer[(x + n, y)]).collect()
}
