//! Clicks and the mouse wheel.

use super::Effect;
use super::action::{sort_by, switch_view};
use super::open::open_selected;
use super::popup;
use crate::addresses;
use crate::data::Data;
use crate::flame;
use crate::keys::Action;
use crate::lists;
use crate::ui::{Popup, Target, Ui};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// Rows that one step of the wheel scrolls.
const WHEEL_ROWS: usize = 3;

pub(super) fn handle_mouse(
    ui: &mut Ui,
    data: &Data,
    now_ms: u64,
    mouse: MouseEvent,
    effects: &mut Vec<Effect>,
) {
    let at = Position::new(mouse.column, mouse.row);
    let mut targets = ui.layout.targets.iter().rev().filter(|(area, _)| area.contains(at));
    match mouse.kind {
        MouseEventKind::ScrollUp | MouseEventKind::ScrollDown => {
            let up = mouse.kind == MouseEventKind::ScrollUp;
            if ui.popup.is_some() {
                let (code, action) =
                    if up { (KeyCode::Up, Action::Up) } else { (KeyCode::Down, Action::Down) };
                let key = KeyEvent::new(code, KeyModifiers::NONE);
                popup::handle_key(ui, data, now_ms, key, Some(action), effects);
                return;
            }
            let list = targets.find_map(|(_, target)| match target {
                Target::Row(list, _) | Target::Header(list, _) | Target::List(list) => Some(*list),
                _ => None,
            });
            if let Some(list) = list.or_else(|| ui.focused_list()) {
                let at = ui.list_state(list).cursor;
                let row = if up { at.saturating_sub(WHEEL_ROWS) } else { at.saturating_add(WHEEL_ROWS) };
                lists::move_cursor(&data.snapshot, ui, list, row);
            }
        }
        MouseEventKind::Down(MouseButton::Left) => {
            let target = targets.next().map(|(_, target)| *target);
            click(ui, data, now_ms, target, effects);
        }
        _ => {}
    }
}

fn click(ui: &mut Ui, data: &Data, now_ms: u64, target: Option<Target>, effects: &mut Vec<Effect>) {
    match target {
        Some(Target::View(view)) => switch_view(ui, view),
        Some(Target::Header(list, column)) => sort_by(ui, &data.snapshot, list, column),
        Some(Target::Row(list, row)) => {
            // A second click on a row opens it. The first row has no key until it is clicked.
            let state = ui.list_state(list);
            let is_second = ui.focused_list() == Some(list) && state.cursor == row && state.key.is_some();
            ui.second_focused = ui.lists().get(1) == Some(&list);
            lists::move_cursor(&data.snapshot, ui, list, row);
            if is_second {
                open_selected(ui, data);
            }
        }
        Some(Target::List(list)) => ui.second_focused = ui.lists().get(1) == Some(&list),
        Some(Target::Core(x, y)) => ui.core = Some((x, y)),
        // A second click on a frame zooms in.
        Some(Target::Frame(node)) => {
            if flame::click(ui, &data.snapshot, node) {
                flame::zoom_in(ui, &data.snapshot);
            }
        }
        Some(Target::Bar(map, column)) => addresses::click(ui, &data.snapshot, map, column),
        Some(Target::FlameSpace(space)) => ui.flame.set_space(space),
        Some(Target::FlameMoment(moment)) => ui.flame.moment = moment,
        Some(Target::Choice(at)) => {
            if let Some(
                Popup::Sort { choice, .. } | Popup::Signal { choice, .. } | Popup::Settings { choice },
            ) = &mut ui.popup
            {
                *choice = at;
            }
            popup::apply_choice(ui, data, now_ms, effects);
        }
        Some(Target::Popup) => {}
        None => {
            if !matches!(ui.popup, Some(Popup::Confirm { .. })) {
                ui.popup = None;
            }
        }
    }
}
