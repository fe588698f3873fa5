//! Typing a filter. The list is filtered while the user types.

use crate::lists;
use crate::ui::{List, Ui, View};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ttmem_core::Snapshot;

/// The most characters of a filter.
pub(super) const MAX_CHARS: usize = 200;

/// Edits the filter, or ends editing.
pub(super) fn handle_key(ui: &mut Ui, snapshot: &Snapshot, key: KeyEvent) {
    let Some(line) = &mut ui.editing else { return };
    match key.code {
        KeyCode::Enter => ui.editing = None,
        KeyCode::Esc => {
            line.clear();
            apply(ui, snapshot);
            ui.editing = None;
        }
        KeyCode::Backspace => {
            line.pop();
            apply(ui, snapshot);
        }
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            line.clear();
            apply(ui, snapshot);
        }
        KeyCode::Char(c)
            if line.chars().count() < MAX_CHARS
                && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            line.push(c);
            apply(ui, snapshot);
        }
        _ => {}
    }
}

/// Appends pasted text to the filter. A newline in it does not end editing.
pub(super) fn paste(ui: &mut Ui, snapshot: &Snapshot, text: &str) {
    let Some(line) = &mut ui.editing else { return };
    let text = text.replace(char::is_control, " ");
    line.extend(text.chars().take(MAX_CHARS.saturating_sub(line.chars().count())));
    apply(ui, snapshot);
}

/// Removes the filter of the list.
pub(super) fn clear(ui: &mut Ui, snapshot: &Snapshot) {
    ui.editing = Some(String::new());
    apply(ui, snapshot);
    ui.editing = None;
}

/// Filters by the text as it is now, or searches for it.
fn apply(ui: &mut Ui, snapshot: &Snapshot) {
    let Some(line) = ui.editing.clone() else { return };
    if ui.view == View::Flame {
        ui.flame.search = line;
        return;
    }
    let Some(list) = filtered_list(ui) else { return };
    // Both lists of the event view have the same filter.
    for list in if ui.view == View::Events { vec![List::Events, List::Findings] } else { vec![list] } {
        let state = ui.list_state_mut(list);
        state.filter.clone_from(&line);
        if matches!(list, List::Buffers | List::Programs) {
            // The rows that match have not been fetched yet.
            state.reset_cursor();
        }
    }
    lists::follow_selected_rows(snapshot, ui);
}

/// The list that filters and sort orders apply to.
pub(super) fn filtered_list(ui: &Ui) -> Option<List> {
    match ui.focused_list()? {
        List::Devices => (ui.view == View::Main).then_some(List::Processes),
        list => Some(list),
    }
}
