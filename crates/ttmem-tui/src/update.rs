//! What messages change.

use crate::keys::{self, Action};
use crate::lists;
use crate::settings::{REFRESH, Settings};
use crate::shown::{Lost, Shown};
use crate::table::Sorting;
use crate::theme::{Theme, ThemeName};
use crate::ui::{List, Popup, Recipient, SIGNALS, Signal, Subject, Target, Ui, View, WINDOWS};
use jiff::Timestamp;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use std::sync::Arc;
use ttmem_core::detail::BufferGrouping;
use ttmem_core::{Detail, Snapshot};

/// Something happened.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them at a time")]
pub enum Msg {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// Text was pasted.
    Paste(String),
    /// A snapshot arrived.
    Fresh {
        /// What it is.
        snapshot: Box<Snapshot>,
        /// What was asked for, but for its history.
        detail: Detail,
        /// Its history replaces everything after that time.
        since: Option<Timestamp>,
        /// Where it comes from, for the title.
        by: String,
    },
    /// None arrived: why.
    Lost(String),
    /// The outcome of an effect.
    Done(Result<String, String>),
    /// Time passed.
    Tick,
}

/// Something to be done by those who may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End.
    Quit,
    /// To the shell.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Fetch at once.
    Fetch,
    /// Keep these settings.
    Save(Settings),
    /// Whether clicks are ours has changed.
    Mouse(bool),
    /// Send a signal.
    Signal(Recipient, &'static Signal),
}

/// No filter is longer.
const FILTER_ROOM: usize = 200;

/// Takes in a message. `now_ms` is any clock that does not run backwards.
pub fn update(ui: &mut Ui, shown: &mut Shown, now_ms: u64, msg: Msg) -> Vec<Effect> {
    if ui.status.as_ref().is_some_and(|it| now_ms >= it.until_ms) {
        ui.status = None;
    }
    let mut effects = Vec::new();
    match msg {
        Msg::Tick => {}
        Msg::Fresh { mut snapshot, detail, since, by } => {
            shown.history.take(&mut snapshot, since);
            (shown.received_ms, shown.lost, shown.by) = (Some(now_ms), None, by);
            // Another view needs other data, even while the display is paused.
            let other = shown.detail != detail;
            if ui.paused.is_none() || other {
                ui.paused = ui.paused.map(|_| snapshot.at);
                (shown.snapshot, shown.detail) = (Arc::new(*snapshot), detail);
                ui.forget_acknowledged(&shown.snapshot.findings);
                lists::follow(&shown.snapshot, ui);
            }
        }
        Msg::Lost(why) => {
            let since_ms = shown.lost.as_ref().map_or(now_ms, |it| it.since_ms);
            shown.lost = Some(Lost { since_ms, why });
        }
        Msg::Done(Ok(text)) => ui.say(now_ms, text),
        Msg::Done(Err(text)) => ui.warn(now_ms, text),
        Msg::Paste(text) => {
            if let Some(line) = &mut ui.editing {
                // What is pasted is text, and a newline in it is no Enter.
                let text = text.replace(char::is_control, " ");
                line.extend(text.chars().take(FILTER_ROOM.saturating_sub(line.chars().count())));
                filter_as_typed(ui, &shown.snapshot);
            }
        }
        Msg::Mouse(mouse) => click(ui, shown, now_ms, mouse, &mut effects),
        Msg::Key(key) if key.kind == KeyEventKind::Release => {}
        Msg::Key(key) => press(ui, shown, now_ms, key, &mut effects),
    }
    effects
}

fn press(ui: &mut Ui, shown: &Shown, now_ms: u64, key: KeyEvent, effects: &mut Vec<Effect>) {
    let action = keys::action(key, ui.view, ui.settings.vim_keys);
    // These work wherever one is.
    match action {
        Some(Action::Suspend) => return effects.push(Effect::Suspend),
        Some(Action::Redraw) => return effects.push(Effect::Redraw),
        Some(Action::Quit) if key.modifiers.contains(KeyModifiers::CONTROL) => {
            return effects.push(Effect::Quit);
        }
        _ => {}
    }
    if ui.editing.is_some() {
        edit(ui, &shown.snapshot, key);
    } else if ui.popup.is_some() {
        press_in_popup(ui, shown, now_ms, key, action, effects);
    } else if let Some(action) = action {
        act(ui, shown, now_ms, action, effects);
    }
}

/// Types into the filter. It holds as it is typed.
fn edit(ui: &mut Ui, snapshot: &Snapshot, key: KeyEvent) {
    let Some(line) = &mut ui.editing else { return };
    match key.code {
        KeyCode::Enter => ui.editing = None,
        KeyCode::Esc => {
            line.clear();
            filter_as_typed(ui, snapshot);
            ui.editing = None;
        }
        KeyCode::Backspace => {
            line.pop();
            filter_as_typed(ui, snapshot);
        }
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            line.clear();
            filter_as_typed(ui, snapshot);
        }
        KeyCode::Char(c)
            if line.chars().count() < FILTER_ROOM
                && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            line.push(c);
            filter_as_typed(ui, snapshot);
        }
        _ => {}
    }
}

fn filter_as_typed(ui: &mut Ui, snapshot: &Snapshot) {
    let (Some(list), Some(line)) = (filtered(ui), ui.editing.clone()) else { return };
    // Both lists of the events are filtered alike.
    for list in if ui.view == View::Events { vec![List::Events, List::Findings] } else { vec![list] } {
        let place = ui.place_mut(list);
        place.filter.clone_from(&line);
        if matches!(list, List::Buffers | List::Programs) {
            // The rows that are left are not here yet.
            (place.cursor, place.offset, place.key) = (0, 0, None);
        }
    }
    lists::follow(snapshot, ui);
}

/// The list that a filter is for.
fn filtered(ui: &Ui) -> Option<List> {
    match ui.list()? {
        List::Devices => (ui.view == View::Main).then_some(List::Processes),
        list => Some(list),
    }
}

fn press_in_popup(
    ui: &mut Ui,
    shown: &Shown,
    now_ms: u64,
    key: KeyEvent,
    action: Option<Action>,
    effects: &mut Vec<Effect>,
) {
    if let Some(Popup::Confirm { to, signal }) = &ui.popup {
        // Nothing but a clear yes.
        if matches!(key.code, KeyCode::Char('y' | 'Y')) {
            effects.push(Effect::Signal(to.clone(), signal));
        } else {
            ui.say(now_ms, "no signal sent");
        }
        ui.popup = None;
        return;
    }
    let page = ui.laid.popup_rows.clamp(1, 10);
    let last = choices(ui).saturating_sub(1);
    let step = |choice: usize| match action {
        Some(Action::Up) => choice.saturating_sub(1),
        Some(Action::Down) => (choice + 1).min(last),
        Some(Action::First | Action::PageUp) => 0,
        Some(Action::Last | Action::PageDown) => last,
        _ => choice,
    };
    match (action, &mut ui.popup) {
        (Some(Action::Back | Action::Quit), _)
        | (Some(Action::Help), Some(Popup::Help))
        | (Some(Action::Open), Some(Popup::Help | Popup::Details(_))) => ui.popup = None,
        (Some(Action::Open), Some(_)) | (Some(Action::Left | Action::Right), Some(Popup::Setup { .. })) => {
            choose(ui, shown, now_ms, effects);
        }
        (Some(Action::Save), _) => effects.push(Effect::Save(ui.kept())),
        (_, Some(Popup::Sort { choice, .. } | Popup::Signal { choice, .. } | Popup::Setup { choice })) => {
            *choice = step(*choice);
        }
        (Some(Action::Up), _) => ui.popup_offset = ui.popup_offset.saturating_sub(1),
        (Some(Action::Down), _) => ui.popup_offset += 1,
        (Some(Action::PageUp), _) => ui.popup_offset = ui.popup_offset.saturating_sub(page),
        (Some(Action::PageDown | Action::Pause), _) => ui.popup_offset += page,
        (Some(Action::First), _) => ui.popup_offset = 0,
        (Some(Action::Last), _) => ui.popup_offset = ui.laid.popup_rows,
        // From details one may go on: to the same of the next chip, or to another view.
        (Some(action @ (Action::NextChip | Action::PreviousChip | Action::Refresh | Action::Theme)), _) => {
            act(ui, shown, now_ms, action, effects);
        }
        (Some(action @ Action::View(_)), Some(Popup::Help | Popup::Details(_))) => {
            ui.popup = None;
            act(ui, shown, now_ms, action, effects);
        }
        _ => {}
    }
    ui.popup_offset = ui.popup_offset.min(ui.laid.popup_rows);
}

/// How many choices what lies over the view has.
fn choices(ui: &Ui) -> usize {
    match &ui.popup {
        Some(Popup::Sort { list, .. }) => lists::sortable_now(ui, *list).len(),
        Some(Popup::Signal { .. }) => SIGNALS.len() + 1,
        Some(Popup::Setup { .. }) => Setting::ALL.len(),
        _ => 0,
    }
}

/// What can be set in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Theme,
    Refresh,
    Window,
    Ascii,
    Mouse,
    VimKeys,
}

impl Setting {
    pub(crate) const ALL: [Self; 6] =
        [Self::Theme, Self::Refresh, Self::Window, Self::Ascii, Self::Mouse, Self::VimKeys];

    /// What it is, and what it is set to.
    pub(crate) fn describe(self, ui: &Ui) -> (&'static str, String) {
        let yes = |yes: bool| (if yes { "yes" } else { "no" }).to_owned();
        match self {
            Self::Theme => ("Theme", ui.settings.theme.name().to_owned()),
            Self::Refresh => ("Refresh interval (ms)", ui.settings.refresh_ms.to_string()),
            Self::Window => ("Time axis (s)", ui.window_seconds().to_string()),
            Self::Ascii => ("ASCII characters only", yes(ui.ascii)),
            Self::Mouse => ("Mouse", yes(ui.settings.mouse)),
            Self::VimKeys => ("Move with h j k l (no: k sends signals)", yes(ui.settings.vim_keys)),
        }
    }
}

/// Does what is chosen in a menu.
fn choose(ui: &mut Ui, shown: &Shown, now_ms: u64, effects: &mut Vec<Effect>) {
    match ui.popup.clone() {
        Some(Popup::Sort { list, choice }) => {
            if let Some(&(column, _)) = lists::sortable_now(ui, list).get(choice) {
                sort_by(ui, &shown.snapshot, list, column);
            }
            ui.popup = None;
        }
        Some(Popup::Signal { to, choice }) => {
            ui.popup = choice
                .checked_sub(1)
                .and_then(|at| SIGNALS.get(at))
                .map(|signal| Popup::Confirm { to, signal });
            if ui.popup.is_none() {
                ui.say(now_ms, "no signal sent");
            }
        }
        Some(Popup::Setup { choice }) => match Setting::ALL.get(choice) {
            Some(Setting::Theme) => next_theme(ui),
            Some(Setting::Refresh) => {
                const STEPS: [u64; 6] = [100, 250, 500, 1000, 2000, 5000];
                let next = STEPS.into_iter().find(|&it| it > ui.settings.refresh_ms).unwrap_or(STEPS[0]);
                ui.settings.refresh_ms = next;
            }
            Some(Setting::Window) => ui.window = (ui.window + 1) % WINDOWS.len(),
            Some(Setting::Ascii) => {
                ui.ascii = !ui.ascii;
                ui.settings.ascii = ui.ascii;
            }
            Some(Setting::Mouse) => {
                ui.settings.mouse = !ui.settings.mouse;
                effects.push(Effect::Mouse(ui.settings.mouse));
            }
            Some(Setting::VimKeys) => ui.settings.vim_keys = !ui.settings.vim_keys,
            None => {}
        },
        _ => {}
    }
}

fn next_theme(ui: &mut Ui) {
    let all = ThemeName::ALL;
    let at = all.iter().position(|it| *it == ui.settings.theme).unwrap_or(0);
    ui.settings.theme = all[(at + 1) % all.len()];
    ui.theme = Theme::new(ui.settings.theme, ui.depth);
}

/// Sorts by a column; by the same again, the other way round.
fn sort_by(ui: &mut Ui, snapshot: &Snapshot, list: List, column: &'static str) {
    let place = ui.place_mut(list);
    place.sort = if place.sort.column == Some(column) {
        Sorting { reversed: !place.sort.reversed, ..place.sort }
    } else {
        Sorting { column: Some(column), reversed: false }
    };
    if matches!(list, List::Buffers | List::Programs) {
        // The rows of the screen are elsewhere then: the first ones are shown.
        (place.cursor, place.offset, place.key) = (0, 0, None);
    }
    lists::follow(snapshot, ui);
}

fn go(ui: &mut Ui, view: View) {
    ui.view = view;
    (ui.second, ui.single) = (false, false);
    (ui.popup, ui.editing, ui.popup_offset) = (None, None, 0);
}

fn act(ui: &mut Ui, shown: &Shown, now_ms: u64, action: Action, effects: &mut Vec<Effect>) {
    let snapshot = &shown.snapshot;
    match action {
        Action::Quit => effects.push(Effect::Quit),
        Action::Suspend => effects.push(Effect::Suspend),
        Action::Redraw => effects.push(Effect::Redraw),
        Action::Refresh => effects.push(Effect::Fetch),
        Action::View(view) => go(ui, view),
        Action::NextView => go(ui, ui.view.step(1)),
        Action::PreviousView => go(ui, ui.view.step(View::ALL.len() - 1)),
        Action::Up | Action::Down | Action::PageUp | Action::PageDown | Action::First | Action::Last => {
            if ui.view == View::Map {
                move_core(ui, shown, action);
            } else if let Some(list) = ui.list() {
                let place = ui.place(list);
                let (at, page) = (place.cursor, place.page.max(2) - 1);
                let row = match action {
                    Action::Up => at.saturating_sub(1),
                    Action::Down => at.saturating_add(1),
                    Action::PageUp => at.saturating_sub(page),
                    Action::PageDown => at.saturating_add(page),
                    Action::First => 0,
                    _ => usize::MAX,
                };
                lists::go_to(snapshot, ui, list, row);
                if action == Action::First {
                    // The top is a place, not a thing.
                    ui.place_mut(list).key = None;
                }
            }
        }
        Action::Left | Action::Right => match ui.view {
            View::Map => move_core(ui, shown, action),
            View::Charts => {
                let step = if action == Action::Right { Action::NextChip } else { Action::PreviousChip };
                act(ui, shown, now_ms, step, effects);
            }
            _ => {
                if ui.lists().len() > 1 {
                    ui.second = !ui.second;
                }
            }
        },
        Action::NextChip | Action::PreviousChip => {
            let (at, count) = (ui.place(List::Devices).cursor, snapshot.devices.len().max(1));
            let row = if action == Action::NextChip { (at + 1) % count } else { (at + count - 1) % count };
            lists::go_to(snapshot, ui, List::Devices, row);
            if let (Some(Popup::Details(Subject::Device(id))), Some(key)) =
                (&mut ui.popup, snapshot.devices.get(row))
            {
                id.clone_from(&key.id);
            }
        }
        Action::Open => open(ui, shown),
        Action::Back => back(ui, shown, now_ms),
        Action::Filter => {
            if let Some(list) = filtered(ui) {
                ui.editing = Some(ui.place(list).filter.clone());
            }
        }
        Action::Sort => {
            let list = filtered(ui).unwrap_or(List::Processes);
            let column = ui.place(list).sort.column;
            let all = lists::sortable_now(ui, list);
            let choice = all.iter().position(|it| Some(it.0) == column).unwrap_or(0);
            ui.popup = Some(Popup::Sort { list, choice });
        }
        Action::Reverse => {
            let list = filtered(ui).unwrap_or(List::Processes);
            if let Some(column) = ui.place(list).sort.column {
                sort_by(ui, snapshot, list, column);
            }
        }
        Action::Group => {
            ui.group = match ui.group {
                None => Some(BufferGrouping::Process),
                Some(BufferGrouping::Process) => Some(BufferGrouping::Program),
                Some(BufferGrouping::Program) => Some(BufferGrouping::Site),
                Some(BufferGrouping::Site) => None,
            };
            ui.opened_from = None;
            let place = ui.place_mut(List::Buffers);
            (place.cursor, place.offset, place.key) = (0, 0, None);
        }
        Action::Tree => {
            ui.tree = !ui.tree;
            lists::follow(snapshot, ui);
        }
        Action::Acknowledge => {
            let key = lists::chosen(snapshot, ui, List::Findings);
            match snapshot.findings.iter().find(|it| Some(lists::finding_key(it)) == key) {
                Some(finding) => {
                    ui.acknowledge(finding);
                    let done =
                        if ui.is_acknowledged(finding) { "acknowledged; A: show" } else { "shown again" };
                    ui.say(now_ms, format!("finding {done}"));
                    ui.place_mut(List::Findings).key = None;
                    lists::follow(snapshot, ui);
                }
                None => ui.say(now_ms, "no finding is selected"),
            }
        }
        Action::ShowAcknowledged => {
            ui.shows_acknowledged = !ui.shows_acknowledged;
            lists::follow(snapshot, ui);
        }
        Action::Signal => choose_signal(ui, shown, now_ms),
        Action::Pause => {
            ui.paused = match ui.paused {
                None => Some(snapshot.at),
                Some(_) => None,
            };
            if ui.paused.is_none() {
                effects.push(Effect::Fetch);
            }
        }
        Action::Faster | Action::Slower => {
            let ms = ui.settings.refresh_ms;
            let next = if action == Action::Faster { ms / 2 } else { ms.saturating_mul(2) };
            // More often than ten times a second is not readable.
            ui.settings.refresh_ms = next.clamp((*REFRESH.start()).max(100).min(ms), *REFRESH.end());
            let ms = ui.settings.refresh_ms;
            ui.say(now_ms, format!("refresh interval: {ms} ms"));
        }
        Action::Longer => ui.window = (ui.window + 1) % WINDOWS.len(),
        Action::Shorter => ui.window = ui.window.saturating_sub(1),
        Action::Scale => ui.scaled = !ui.scaled,
        Action::Sensors => ui.sensors = !ui.sensors,
        Action::Tightest => ui.core = None,
        Action::Theme => {
            next_theme(ui);
            let name = ui.settings.theme.name();
            ui.say(now_ms, format!("theme {name}; F12: save"));
        }
        Action::Help => (ui.popup, ui.popup_offset) = (Some(Popup::Help), 0),
        Action::Setup => ui.popup = Some(Popup::Setup { choice: 0 }),
        Action::Save => effects.push(Effect::Save(ui.kept())),
    }
}

fn back(ui: &mut Ui, shown: &Shown, now_ms: u64) {
    let filtered = filtered(ui).filter(|&list| !ui.place(list).filter.is_empty());
    if ui.view == View::Buffers && ui.opened_from.is_some() {
        if let Some((group, place)) = ui.opened_from.take() {
            ui.group = Some(group);
            *ui.place_mut(List::Buffers) = place;
        }
    } else if filtered.is_some() {
        ui.editing = Some(String::new());
        filter_as_typed(ui, &shown.snapshot);
        ui.editing = None;
    } else if ui.single {
        ui.single = false;
    } else if ui.group.is_some() && ui.view == View::Buffers {
        ui.group = None;
    } else {
        ui.say(now_ms, "q: quit");
    }
}

/// Goes from a group to what is in it: the filter says what that is.
fn open_group(ui: &mut Ui, snapshot: &Snapshot) {
    let place = ui.place(List::Buffers);
    let page = snapshot.buffers.as_ref();
    let group = page.and_then(|it| it.groups.get(place.cursor.checked_sub(it.offset as usize)?));
    let Some(group) = group else { return };
    let name = group.program_name.as_ref().or(group.site_name.as_ref());
    let words = [
        group.pid.map(|pid| pid.to_string()),
        group.space.map(|space| space.name().to_owned()),
        // A name may hold anything; words of it are enough.
        name.cloned(),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let filter: String = words.join(" ").chars().take(FILTER_ROOM).collect();
    let groups = place.clone();
    ui.opened_from = ui.group.take().map(|group| (group, groups));
    let place = ui.place_mut(List::Buffers);
    (place.filter, place.cursor, place.offset, place.key) = (filter, 0, 0, None);
}

/// Opens the details of the row under the cursor.
fn open(ui: &mut Ui, shown: &Shown) {
    let snapshot = &shown.snapshot;
    if ui.view == View::Buffers && ui.group.is_some() {
        return open_group(ui, snapshot);
    }
    let chip = || ui.chip(snapshot).map(|device| device.id.clone());
    let subject = match ui.view {
        View::Charts => {
            ui.single = !ui.single;
            return;
        }
        View::Map => chip().and_then(|id| {
            let (x, y) = core_at(ui, shown)?;
            Some(Subject::Core(id, x, y))
        }),
        _ => ui.list().and_then(|list| {
            let key = lists::chosen(snapshot, ui, list)?;
            Some(match list {
                List::Devices => Subject::Device(key),
                List::Processes => Subject::Process(key),
                List::Programs => Subject::Program(key),
                List::Findings => Subject::Finding(key),
                List::Events => Subject::Event(key.parse().ok()?),
                List::Buffers => Subject::Buffer(key),
            })
        }),
    };
    if let Some(subject) = subject {
        (ui.popup, ui.popup_offset) = (Some(Popup::Details(subject)), 0);
    }
}

/// The selected core, else the one with the smallest free gap.
pub(crate) fn core_at(ui: &Ui, shown: &Shown) -> Option<(u8, u8)> {
    let device = ui.chip(&shown.snapshot)?;
    let cores = device.cores.as_ref();
    let chosen = ui.core.filter(|&(x, y)| {
        cores.is_none_or(|cores| cores.is_empty() || cores.iter().any(|it| (it.room.x, it.room.y) == (x, y)))
    });
    let first = || cores.and_then(|cores| cores.first()).map(|it| (it.room.x, it.room.y));
    chosen.or_else(|| device.tightest_core.map(|room| (room.x, room.y))).or_else(first)
}

fn move_core(ui: &mut Ui, shown: &Shown, action: Action) {
    let Some(device) = ui.chip(&shown.snapshot) else { return };
    let Some(cores) = &device.cores else { return };
    let Some((x, y)) = core_at(ui, shown) else { return };
    let (mut columns, mut rows): (Vec<u8>, Vec<u8>) = cores.iter().map(|it| (it.room.x, it.room.y)).unzip();
    for numbers in [&mut columns, &mut rows] {
        numbers.sort_unstable();
        numbers.dedup();
    }
    let step = |all: &[u8], at: u8, forth: bool| {
        let at = all.partition_point(|&it| it < at);
        let to = if forth { (at + 1).min(all.len().saturating_sub(1)) } else { at.saturating_sub(1) };
        all.get(to).copied().unwrap_or(0)
    };
    ui.core = Some(match action {
        Action::Left => (step(&columns, x, false), y),
        Action::Right => (step(&columns, x, true), y),
        Action::Up => (x, step(&rows, y, false)),
        Action::Down => (x, step(&rows, y, true)),
        Action::First => (columns.first().copied().unwrap_or(x), y),
        Action::Last => (columns.last().copied().unwrap_or(x), y),
        Action::PageUp => (x, rows.first().copied().unwrap_or(y)),
        _ => (x, rows.last().copied().unwrap_or(y)),
    });
}

/// Asks which signal to send, if one may be sent.
fn choose_signal(ui: &mut Ui, shown: &Shown, now_ms: u64) {
    if ui.readonly {
        return ui.warn(now_ms, "--readonly: signals are disabled");
    }
    let key = lists::chosen(&shown.snapshot, ui, List::Processes);
    let all = shown.snapshot.processes.iter();
    let Some(process) = all.into_iter().find(|it| Some(lists::process_key(it)) == key) else {
        return ui.warn(now_ms, "no process is selected");
    };
    let Some(pid) = process.pid else {
        return ui.warn(now_ms, "this process is in another PID namespace and cannot be signalled");
    };
    if pid <= 1 || pid == ui.own_pid {
        let whose = if pid == ui.own_pid { "this dashboard" } else { "the init process" };
        return ui.warn(now_ms, format!("pid {pid} is {whose}: not signalled"));
    }
    let text = |it: &Option<String>| it.clone().unwrap_or_else(|| "unknown".to_owned());
    let to = Recipient { pid, start: process.start, name: text(&process.name), user: text(&process.user) };
    ui.popup = Some(Popup::Signal { to, choice: 0 });
}

fn click(ui: &mut Ui, shown: &Shown, now_ms: u64, mouse: MouseEvent, effects: &mut Vec<Effect>) {
    let at = ratatui::layout::Position::new(mouse.column, mouse.row);
    let under = ui.laid.targets.iter().rev().filter(|(area, _)| area.contains(at));
    let hit = under.clone().next().map(|(_, target)| target.clone());
    match mouse.kind {
        MouseEventKind::ScrollUp | MouseEventKind::ScrollDown => {
            let action = if mouse.kind == MouseEventKind::ScrollUp { Action::Up } else { Action::Down };
            if ui.popup.is_some() {
                let key = if action == Action::Up { KeyCode::Up } else { KeyCode::Down };
                let key = KeyEvent::new(key, KeyModifiers::NONE);
                press_in_popup(ui, shown, now_ms, key, Some(action), effects);
                return;
            }
            let list = under.clone().find_map(|(_, target)| match target {
                Target::Row(list, _) | Target::Header(list, _) | Target::List(list) => Some(*list),
                _ => None,
            });
            if let Some(list) = list.or_else(|| ui.list()) {
                let at = ui.place(list).cursor;
                let row = if action == Action::Up { at.saturating_sub(3) } else { at.saturating_add(3) };
                lists::go_to(&shown.snapshot, ui, list, row);
            }
        }
        MouseEventKind::Down(MouseButton::Left) => match hit {
            Some(Target::View(view)) => go(ui, view),
            Some(Target::Header(list, column)) => sort_by(ui, &shown.snapshot, list, column),
            Some(Target::Row(list, row)) => {
                // A second click on a row opens it, but not on one that merely was at the top.
                let place = ui.place(list);
                let again = ui.list() == Some(list) && place.cursor == row && place.key.is_some();
                ui.second = ui.lists().get(1) == Some(&list);
                lists::go_to(&shown.snapshot, ui, list, row);
                if again {
                    open(ui, shown);
                }
            }
            Some(Target::List(list)) => ui.second = ui.lists().get(1) == Some(&list),
            Some(Target::Core(x, y)) => ui.core = Some((x, y)),
            Some(Target::Choice(at)) => {
                if let Some(
                    Popup::Sort { choice, .. } | Popup::Signal { choice, .. } | Popup::Setup { choice },
                ) = &mut ui.popup
                {
                    *choice = at;
                }
                choose(ui, shown, now_ms, effects);
            }
            Some(Target::Popup) => {}
            None => {
                if !matches!(ui.popup, Some(Popup::Confirm { .. })) {
                    ui.popup = None;
                }
            }
        },
        _ => {}
    }
}
