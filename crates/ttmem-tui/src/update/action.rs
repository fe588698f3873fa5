//! The actions of keys outside popups and filters.

use super::Effect;
use super::cores::move_selection;
use super::filter::filtered_list;
use super::open::{go_back, open_selected};
use super::popup::open_signal_menu;
use crate::addresses;
use crate::data::Data;
use crate::flame;
use crate::growth::Growth;
use crate::keys::Action;
use crate::lists;
use crate::settings::REFRESH;
use crate::table::SortOrder;
use crate::theme::{Theme, ThemeName};
use crate::ui::{List, Popup, Subject, Ui, View, WINDOWS};
use ttmem_core::Snapshot;
use ttmem_core::detail::BufferGrouping;

/// Shorter refresh intervals are not readable.
const MIN_REFRESH_MS: u64 = 100;

/// Carries out an action.
pub(super) fn run_action(ui: &mut Ui, data: &Data, now_ms: u64, action: Action, effects: &mut Vec<Effect>) {
    let snapshot = &data.snapshot;
    match action {
        Action::Quit => effects.push(Effect::Quit),
        Action::Suspend => effects.push(Effect::Suspend),
        Action::Redraw => effects.push(Effect::Redraw),
        Action::Refresh => effects.push(Effect::Fetch),
        Action::View(view) => switch_view(ui, view),
        Action::NextView => switch_view(ui, ui.view.step(1)),
        Action::PreviousView => switch_view(ui, ui.view.step(View::ALL.len() - 1)),
        Action::Up | Action::Down | Action::PageUp | Action::PageDown | Action::First | Action::Last => {
            if ui.view == View::Map {
                move_selection(ui, data, action);
            } else if ui.view == View::Flame {
                flame::move_selection(ui, snapshot, action);
            } else if let Some(list) = ui.focused_list() {
                move_in_list(ui, snapshot, list, action);
            }
        }
        Action::Left | Action::Right => match ui.view {
            View::Map => move_selection(ui, data, action),
            View::Flame => flame::move_selection(ui, snapshot, action),
            View::Addresses => addresses::move_in_bar(ui, snapshot, action),
            View::Charts => {
                let step = if action == Action::Right { Action::NextDevice } else { Action::PreviousDevice };
                run_action(ui, data, now_ms, step, effects);
            }
            _ => {
                if ui.lists().len() > 1 {
                    ui.second_focused = !ui.second_focused;
                }
            }
        },
        // The first key selects one device instead of all.
        Action::NextDevice | Action::PreviousDevice if ui.view == View::Flame && !ui.single => {
            ui.single = true;
        }
        Action::NextDevice | Action::PreviousDevice => step_device(ui, snapshot, action),
        Action::Open => open_selected(ui, data),
        Action::Back => go_back(ui, data, now_ms),
        Action::Filter => {
            if ui.view == View::Flame {
                ui.editing = Some(ui.flame.search.clone());
            } else if let Some(list) = filtered_list(ui) {
                ui.editing = Some(ui.list_state(list).filter.clone());
            }
        }
        Action::Sort => {
            let list = filtered_list(ui).unwrap_or(List::Processes);
            let column = ui.list_state(list).sort.column;
            let choices = lists::sort_choices(ui, list);
            let choice = choices.iter().position(|it| Some(it.0) == column).unwrap_or(0);
            ui.popup = Some(Popup::Sort { list, choice });
        }
        Action::Reverse => {
            let list = filtered_list(ui).unwrap_or(List::Processes);
            if let Some(column) = ui.list_state(list).sort.column {
                sort_by(ui, snapshot, list, column);
            }
        }
        Action::Group => {
            ui.group = match ui.group {
                None => Some(BufferGrouping::Process),
                Some(BufferGrouping::Process) => Some(BufferGrouping::Program),
                Some(BufferGrouping::Program) => Some(BufferGrouping::Site),
                Some(BufferGrouping::Site) => Some(BufferGrouping::Op),
                Some(BufferGrouping::Op) => Some(BufferGrouping::File),
                Some(_) => None,
            };
            ui.opened_from = None;
            ui.list_state_mut(List::Buffers).reset_cursor();
        }
        Action::Tree => {
            ui.tree = !ui.tree;
            lists::follow_selected_rows(snapshot, ui);
        }
        Action::Acknowledge => acknowledge_selected(ui, snapshot, now_ms),
        Action::ShowAcknowledged => {
            ui.shows_acknowledged = !ui.shows_acknowledged;
            lists::follow_selected_rows(snapshot, ui);
        }
        Action::Signal => open_signal_menu(ui, data, now_ms),
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
            let shortest = (*REFRESH.start()).max(MIN_REFRESH_MS).min(ms);
            let ms = next.clamp(shortest, *REFRESH.end());
            ui.settings.refresh_ms = ms;
            ui.show_status(now_ms, format!("refresh interval: {ms} ms"));
        }
        Action::LongerWindow => ui.window = (ui.window + 1) % WINDOWS.len(),
        Action::ShorterWindow => ui.window = ui.window.saturating_sub(1),
        Action::Scale => ui.scaled = !ui.scaled,
        Action::Sensors => ui.sensors = !ui.sensors,
        Action::TightestCore => ui.core = None,
        Action::Moment => ui.flame.next_moment(),
        Action::Space if ui.view == View::Addresses => addresses::next_map(ui, snapshot),
        Action::Space => flame::next_space(ui, snapshot),
        Action::LargestFree => addresses::select_largest_free(ui, snapshot),
        Action::Theme => {
            select_next_theme(ui);
            let name = ui.settings.theme.name();
            ui.show_status(now_ms, format!("theme {name}; F12: save"));
        }
        Action::Help => (ui.popup, ui.popup_offset) = (Some(Popup::Help), 0),
        Action::Settings => ui.popup = Some(Popup::Settings { choice: 0 }),
        Action::Save => effects.push(Effect::Save(ui.current_settings())),
    }
}

/// Shows another view.
pub(super) fn switch_view(ui: &mut Ui, view: View) {
    if ui.view != view {
        ui.growth = Growth::default();
    }
    ui.view = view;
    (ui.second_focused, ui.single) = (false, false);
    (ui.popup, ui.editing, ui.popup_offset) = (None, None, 0);
}

/// Sorts a list by a column, or reverses the order if it is sorted by that column.
pub(super) fn sort_by(ui: &mut Ui, snapshot: &Snapshot, list: List, column: &'static str) {
    let state = ui.list_state_mut(list);
    state.sort = if state.sort.column == Some(column) {
        SortOrder { reversed: !state.sort.reversed, ..state.sort }
    } else {
        SortOrder { column: Some(column), reversed: false }
    };
    if matches!(list, List::Buffers | List::Programs) {
        // The rows on the screen move elsewhere, so the list starts at its top.
        state.reset_cursor();
    }
    lists::follow_selected_rows(snapshot, ui);
}

pub(super) fn select_next_theme(ui: &mut Ui) {
    let all = ThemeName::ALL;
    let at = all.iter().position(|it| *it == ui.settings.theme).unwrap_or(0);
    ui.settings.theme = all[(at + 1) % all.len()];
    ui.theme = Theme::new(ui.settings.theme, ui.colour_depth);
}

fn move_in_list(ui: &mut Ui, snapshot: &Snapshot, list: List, action: Action) {
    let state = ui.list_state(list);
    let (at, page) = (state.cursor, state.page.max(2) - 1);
    let row = match action {
        Action::Up => at.saturating_sub(1),
        Action::Down => at.saturating_add(1),
        Action::PageUp => at.saturating_sub(page),
        Action::PageDown => at.saturating_add(page),
        Action::First => 0,
        _ => usize::MAX,
    };
    lists::move_cursor(snapshot, ui, list, row);
    if action == Action::First {
        // At the top, the cursor follows no row: it stays at the top.
        ui.list_state_mut(list).key = None;
    }
}

fn step_device(ui: &mut Ui, snapshot: &Snapshot, action: Action) {
    let (at, count) = (ui.list_state(List::Devices).cursor, snapshot.devices.len().max(1));
    let row = if action == Action::NextDevice { (at + 1) % count } else { (at + count - 1) % count };
    lists::move_cursor(snapshot, ui, List::Devices, row);
    if let (Some(Popup::Details(Subject::Device(id))), Some(device)) =
        (&mut ui.popup, snapshot.devices.get(row))
    {
        id.clone_from(&device.id);
    }
}

fn acknowledge_selected(ui: &mut Ui, snapshot: &Snapshot, now_ms: u64) {
    let key = lists::selected_key(snapshot, ui, List::Findings);
    match snapshot.findings.iter().find(|it| Some(lists::finding_key(it)) == key) {
        Some(finding) => {
            ui.toggle_acknowledged(finding);
            let done = if ui.is_acknowledged(finding) { "acknowledged; A: show" } else { "shown again" };
            ui.show_status(now_ms, format!("finding {done}"));
            ui.list_state_mut(List::Findings).key = None;
            lists::follow_selected_rows(snapshot, ui);
        }
        None => ui.show_status(now_ms, "no finding is selected"),
    }
}
