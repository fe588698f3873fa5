//! The table of keys, for handling them, for the help, and for the hints in the bottom line.

use crate::ui::View;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    View(View),
    NextView,
    PreviousView,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Filter,
    Sort,
    Reverse,
    Group,
    Tree,
    Acknowledge,
    ShowAcknowledged,
    Signal,
    Pause,
    Faster,
    Slower,
    Refresh,
    LongerWindow,
    ShorterWindow,
    Scale,
    Sensors,
    NextDevice,
    PreviousDevice,
    TightestCore,
    Moment,
    Space,
    LargestFree,
    Theme,
    Help,
    Settings,
    Save,
    Redraw,
    Suspend,
}

/// A set of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Views(u16);

impl Views {
    const ALL: Self = Self(u16::MAX);

    const fn of(views: &[View]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < views.len() {
            bits |= 1 << views[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    fn has(self, view: View) -> bool {
        self.0 & 1 << view as u8 != 0
    }
}

/// Keys with one action.
pub(crate) struct Binding {
    keys: &'static [(KeyCode, bool)],
    views: Views,
    pub(crate) action: Action,
    /// Names of the keys in the help; empty: not in the help.
    pub(crate) names: &'static str,
    pub(crate) help: &'static str,
    /// Hint in the bottom line; empty: none.
    pub(crate) hint: &'static str,
    /// Whether the binding needs the vim keys on or off; `None`: either.
    vim: Option<bool>,
}

const fn key(c: char) -> (KeyCode, bool) {
    (KeyCode::Char(c), false)
}

const fn ctrl(c: char) -> (KeyCode, bool) {
    (KeyCode::Char(c), true)
}

const fn code(code: KeyCode) -> (KeyCode, bool) {
    (code, false)
}

const fn function(n: u8) -> (KeyCode, bool) {
    (KeyCode::F(n), false)
}

const fn bind(
    keys: &'static [(KeyCode, bool)],
    action: Action,
    names: &'static str,
    help: &'static str,
    hint: &'static str,
) -> Binding {
    Binding { keys, views: Views::ALL, action, names, help, hint, vim: None }
}

impl Binding {
    const fn only_in(self, views: &[View]) -> Self {
        Self { views: Views::of(views), ..self }
    }

    const fn with_vim(self, vim: bool) -> Self {
        Self { vim: Some(vim), ..self }
    }

    /// Whether the binding is active in a view.
    pub(crate) fn is_active(&self, view: View, vim: bool) -> bool {
        self.views.has(view) && self.vim.is_none_or(|wanted| wanted == vim)
    }
}

const DEVICE_VIEWS: &[View] =
    &[View::Main, View::Charts, View::Telemetry, View::Map, View::Flame, View::Addresses];
const FILTER_VIEWS: &[View] = &[View::Main, View::Buffers, View::Programs, View::Events, View::Addresses];
const SORT_VIEWS: &[View] = &[View::Main, View::Buffers, View::Programs];

/// All keys, in the order of the help.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(&[key('1')], Action::View(View::Main), "1", "devices, memory, processes", ""),
    bind(&[key('2')], Action::View(View::Charts), "2", "charts: memory and sensors over time", ""),
    bind(&[key('3')], Action::View(View::Telemetry), "3", "sensors, clocks, PCIe, firmware", ""),
    bind(&[key('4')], Action::View(View::Map), "4", "L1 of a device, core by core", ""),
    bind(&[key('5')], Action::View(View::Buffers), "5", "live allocations", ""),
    bind(&[key('6')], Action::View(View::Programs), "6", "programs and traces", ""),
    bind(&[key('7')], Action::View(View::Events), "7", "findings and events", ""),
    bind(&[key('8')], Action::View(View::Flame), "8", "flame: memory by the calls that allocated it", ""),
    bind(
        &[key('9')],
        Action::View(View::Addresses),
        "9",
        "addresses: used and free blocks of each allocator",
        "",
    ),
    bind(&[code(KeyCode::Tab)], Action::NextView, "Tab", "next view (Shift-Tab: previous view)", ""),
    bind(&[code(KeyCode::BackTab)], Action::PreviousView, "", "", ""),
    bind(
        &[code(KeyCode::Up)],
        Action::Up,
        "arrows",
        "move; left and right: other list, device, core, frame, or column of the bar",
        "",
    ),
    bind(&[code(KeyCode::Down)], Action::Down, "", "", ""),
    bind(&[code(KeyCode::Left)], Action::Left, "", "", ""),
    bind(&[code(KeyCode::Right)], Action::Right, "", "", ""),
    bind(&[key('k')], Action::Up, "h j k l", "same as the arrows", "").with_vim(true),
    bind(&[key('j')], Action::Down, "", "", "").with_vim(true),
    bind(&[key('h')], Action::Left, "", "", "").with_vim(true),
    bind(&[key('l')], Action::Right, "", "", "").with_vim(true),
    bind(&[code(KeyCode::PageUp), ctrl('b')], Action::PageUp, "PgUp PgDn", "one page up, one page down", ""),
    bind(&[code(KeyCode::PageDown), ctrl('f')], Action::PageDown, "", "", ""),
    bind(&[code(KeyCode::Home)], Action::First, "Home End", "first row, last row", ""),
    bind(&[code(KeyCode::End), key('G')], Action::Last, "", "", ""),
    bind(
        &[code(KeyCode::Enter)],
        Action::Open,
        "Enter",
        "details; charts: one device only; grouped buffers: open the group; flame: zoom",
        "details",
    )
    .only_in(&[
        View::Main,
        View::Telemetry,
        View::Map,
        View::Buffers,
        View::Programs,
        View::Events,
        View::Addresses,
    ]),
    bind(&[code(KeyCode::Enter)], Action::Open, "", "", "one device").only_in(&[View::Charts]),
    bind(&[code(KeyCode::Enter)], Action::Open, "", "", "zoom").only_in(&[View::Flame]),
    bind(
        &[code(KeyCode::Esc), code(KeyCode::Backspace)],
        Action::Back,
        "Esc",
        "back, zoom out, or clear the filter",
        "",
    ),
    bind(
        &[key('/'), function(4)],
        Action::Filter,
        "/ F4",
        "filter: show rows that contain every word",
        "filter",
    )
    .only_in(FILTER_VIEWS),
    bind(
        &[key('/'), function(4)],
        Action::Filter,
        "/ F4",
        "flame: mark frames that contain every word, with their share",
        "search",
    )
    .only_in(&[View::Flame]),
    bind(&[key('s'), function(6)], Action::Sort, "s F6", "sort (or click a column header)", "sort")
        .only_in(SORT_VIEWS),
    bind(&[key('I')], Action::Reverse, "I", "reverse the sort order", "").only_in(SORT_VIEWS),
    bind(&[key('t')], Action::Tree, "t", "main: process tree on or off", "tree").only_in(&[View::Main]),
    bind(
        &[key('g')],
        Action::Group,
        "g",
        "buffers: group by process, program, call site, operation, file",
        "group",
    )
    .only_in(&[View::Buffers]),
    bind(&[key('t'), key('>')], Action::LongerWindow, "t >", "charts: longer time axis, up to a day", "time")
        .only_in(&[View::Charts]),
    bind(&[key('<')], Action::ShorterWindow, "<", "charts: shorter time axis, down to a minute", "")
        .only_in(&[View::Charts]),
    bind(&[key('z')], Action::Scale, "z", "charts: scale to the capacity or limit, or to the peak", "scale")
        .only_in(&[View::Charts]),
    bind(
        &[key('m')],
        Action::Sensors,
        "m",
        "charts: memory or sensors, where there is no room for both",
        "memory/sensors",
    )
    .only_in(&[View::Charts]),
    bind(
        &[key('t')],
        Action::TightestCore,
        "t",
        "map: select the core with the smallest free gap",
        "smallest gap",
    )
    .only_in(&[View::Map]),
    bind(&[key('m')], Action::Moment, "m", "flame: live, at the peak, or since the last mark", "moment")
        .only_in(&[View::Flame]),
    bind(&[key('s')], Action::Space, "s", "flame, addresses: next space", "space")
        .only_in(&[View::Flame, View::Addresses]),
    bind(&[key('f')], Action::LargestFree, "f", "addresses: select the largest free block", "largest free")
        .only_in(&[View::Addresses]),
    bind(&[key(']')], Action::NextDevice, "[ ]", "previous device, next device", "device")
        .only_in(DEVICE_VIEWS),
    bind(&[key('[')], Action::PreviousDevice, "", "", "").only_in(DEVICE_VIEWS),
    bind(
        &[key('a')],
        Action::Acknowledge,
        "a",
        "events: acknowledge the finding: hide it until it happens again",
        "acknowledge",
    )
    .only_in(&[View::Events]),
    bind(&[key('A')], Action::ShowAcknowledged, "A", "events: show or hide acknowledged findings", "all")
        .only_in(&[View::Events]),
    bind(&[function(9), key('K')], Action::Signal, "F9 K", "main: send a signal to the process", "signal")
        .only_in(&[View::Main]),
    bind(&[key('k')], Action::Signal, "k", "same as F9", "").only_in(&[View::Main]).with_vim(false),
    bind(&[key('p'), key(' ')], Action::Pause, "p Space", "pause display", "pause"),
    bind(&[key('+'), key('=')], Action::Faster, "+ -", "refresh more often, less often", ""),
    bind(&[key('-')], Action::Slower, "", "", ""),
    bind(&[key('r'), function(5)], Action::Refresh, "r F5", "refresh now", ""),
    bind(&[key('T')], Action::Theme, "T", "next theme", ""),
    bind(&[function(2)], Action::Settings, "F2", "settings", ""),
    bind(&[function(12)], Action::Save, "F12", "save the settings", ""),
    bind(&[ctrl('l')], Action::Redraw, "Ctrl-L", "redraw the screen", ""),
    bind(&[ctrl('z')], Action::Suspend, "Ctrl-Z", "suspend; `fg` resumes", ""),
    bind(&[key('?'), function(1)], Action::Help, "? F1", "this help", "help"),
    bind(&[key('q'), key('Q'), ctrl('c'), function(10)], Action::Quit, "q F10", "quit", "quit"),
];

/// Finds the action of a key in a view.
pub(crate) fn find_action(pressed: KeyEvent, view: View, vim: bool) -> Option<Action> {
    let with_ctrl = pressed.modifiers.contains(KeyModifiers::CONTROL);
    let pressed = (pressed.code, with_ctrl);
    let binding = BINDINGS.iter().find(|it| it.is_active(view, vim) && it.keys.contains(&pressed));
    binding.map(|it| it.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_actions_in_a_view() {
        for view in View::ALL {
            for vim in [true, false] {
                let here: Vec<&Binding> = BINDINGS.iter().filter(|it| it.is_active(view, vim)).collect();
                let mut seen = Vec::new();
                for key in here.iter().flat_map(|it| it.keys) {
                    assert!(!seen.contains(key), "{key:?} in {view:?}");
                    seen.push(*key);
                }
            }
        }
    }

    #[test]
    fn keys_depend_on_view_and_vim_keys() {
        let press = |code, view, vim| find_action(KeyEvent::new(code, KeyModifiers::NONE), view, vim);
        assert_eq!(press(KeyCode::Char('k'), View::Main, true), Some(Action::Up));
        assert_eq!(press(KeyCode::Char('k'), View::Main, false), Some(Action::Signal));
        assert_eq!(press(KeyCode::F(9), View::Main, true), Some(Action::Signal));
        assert_eq!(press(KeyCode::Char('t'), View::Map, true), Some(Action::TightestCore));
        assert_eq!(press(KeyCode::Char('t'), View::Charts, true), Some(Action::LongerWindow));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(find_action(interrupt, View::Map, true), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('c'), View::Map, true), None);
    }
}
