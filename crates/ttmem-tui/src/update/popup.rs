//! Keys and choices in popups: help, details and menus.

use super::Effect;
use super::action::{run_action, sort_by};
use super::settings_menu::MenuSetting;
use crate::data::Data;
use crate::keys::Action;
use crate::lists;
use crate::ui::{List, Popup, Recipient, SIGNALS, Ui};
use ratatui::crossterm::event::{KeyCode, KeyEvent};

/// Handles a key while a popup is open.
pub(super) fn handle_key(
    ui: &mut Ui,
    data: &Data,
    now_ms: u64,
    key: KeyEvent,
    action: Option<Action>,
    effects: &mut Vec<Effect>,
) {
    if let Some(Popup::Confirm { to, signal }) = &ui.popup {
        // Any other key cancels.
        if matches!(key.code, KeyCode::Char('y' | 'Y')) {
            effects.push(Effect::Signal(to.clone(), signal));
        } else {
            ui.show_status(now_ms, "no signal sent");
        }
        ui.popup = None;
        return;
    }
    let page = ui.layout.popup_rows.clamp(1, 10);
    let last = choice_count(ui).saturating_sub(1);
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
        (Some(Action::Open), Some(_))
        | (Some(Action::Left | Action::Right), Some(Popup::Settings { .. })) => {
            apply_choice(ui, data, now_ms, effects);
        }
        (Some(Action::Save), _) => effects.push(Effect::Save(ui.current_settings())),
        (_, Some(Popup::Sort { choice, .. } | Popup::Signal { choice, .. } | Popup::Settings { choice })) => {
            *choice = step(*choice);
        }
        (Some(Action::Up), _) => ui.popup_offset = ui.popup_offset.saturating_sub(1),
        (Some(Action::Down), _) => ui.popup_offset += 1,
        (Some(Action::PageUp), _) => ui.popup_offset = ui.popup_offset.saturating_sub(page),
        (Some(Action::PageDown | Action::Pause), _) => ui.popup_offset += page,
        (Some(Action::First), _) => ui.popup_offset = 0,
        (Some(Action::Last), _) => ui.popup_offset = ui.layout.popup_rows,
        // Details stay open for the next device; another view closes them.
        (
            Some(action @ (Action::NextDevice | Action::PreviousDevice | Action::Refresh | Action::Theme)),
            _,
        ) => {
            run_action(ui, data, now_ms, action, effects);
        }
        (Some(action @ Action::View(_)), Some(Popup::Help | Popup::Details(_))) => {
            ui.popup = None;
            run_action(ui, data, now_ms, action, effects);
        }
        _ => {}
    }
    ui.popup_offset = ui.popup_offset.min(ui.layout.popup_rows);
}

/// Number of choices in the open menu.
fn choice_count(ui: &Ui) -> usize {
    match &ui.popup {
        Some(Popup::Sort { list, .. }) => lists::sort_choices(ui, *list).len(),
        Some(Popup::Signal { .. }) => SIGNALS.len() + 1,
        Some(Popup::Settings { .. }) => MenuSetting::ALL.len(),
        _ => 0,
    }
}

/// Carries out the selected choice of the open menu.
pub(super) fn apply_choice(ui: &mut Ui, data: &Data, now_ms: u64, effects: &mut Vec<Effect>) {
    match ui.popup.clone() {
        Some(Popup::Sort { list, choice }) => {
            if let Some(&(column, _)) = lists::sort_choices(ui, list).get(choice) {
                sort_by(ui, &data.snapshot, list, column);
            }
            ui.popup = None;
        }
        Some(Popup::Signal { to, choice }) => {
            ui.popup = choice
                .checked_sub(1)
                .and_then(|at| SIGNALS.get(at))
                .map(|signal| Popup::Confirm { to, signal });
            if ui.popup.is_none() {
                ui.show_status(now_ms, "no signal sent");
            }
        }
        Some(Popup::Settings { choice }) => {
            if let Some(setting) = MenuSetting::ALL.get(choice) {
                setting.change(ui, effects);
            }
        }
        _ => {}
    }
}

/// Opens the menu of signals for the selected process, if it can be signalled.
pub(super) fn open_signal_menu(ui: &mut Ui, data: &Data, now_ms: u64) {
    if ui.readonly {
        return ui.show_warning(now_ms, "--readonly: signals are disabled");
    }
    let key = lists::selected_key(&data.snapshot, ui, List::Processes);
    let mut processes = data.snapshot.processes.iter();
    let Some(process) = processes.find(|it| Some(lists::process_key(it)) == key) else {
        return ui.show_warning(now_ms, "no process is selected");
    };
    let Some(pid) = process.pid else {
        return ui.show_warning(now_ms, "this process is in another PID namespace and cannot be signalled");
    };
    if pid <= 1 || pid == ui.own_pid {
        let whose = if pid == ui.own_pid { "this dashboard" } else { "the init process" };
        return ui.show_warning(now_ms, format!("pid {pid} is {whose}: not signalled"));
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let to = Recipient { pid, start: process.start, name: text(&process.name), user: text(&process.user) };
    ui.popup = Some(Popup::Signal { to, choice: 0 });
}
