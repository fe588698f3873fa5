//! The effects of messages on the state: [`update`] handles one message.

mod action;
mod cores;
mod filter;
mod mouse;
mod open;
mod popup;
mod settings_menu;

use crate::data::{Data, FailureKey, Outage};
use crate::keys::{self, Action};
use crate::lists;
use crate::settings::Settings;
use crate::ui::{Recipient, Signal, Ui};
pub(crate) use cores::selected_core;
use jiff::Timestamp;
use ratatui::crossterm::event::{KeyEvent, KeyEventKind, KeyModifiers, MouseEvent};
pub(crate) use settings_menu::MenuSetting;
use std::sync::Arc;
use ttmem_core::snapshot::PostMortem;
use ttmem_core::{Detail, Snapshot};

/// A message: an input or the arrival of data.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them at a time")]
pub enum Msg {
    /// A key was pressed.
    Key(KeyEvent),
    /// A mouse button or the wheel was used.
    Mouse(MouseEvent),
    /// Text was pasted.
    Paste(String),
    /// A snapshot arrived.
    Snapshot {
        /// The snapshot.
        snapshot: Box<Snapshot>,
        /// The detail that was requested, without its history.
        detail: Detail,
        /// The history in the snapshot replaces everything after this time.
        since: Option<Timestamp>,
        /// Source of the snapshot, for the title.
        source: String,
    },
    /// A post-mortem was read, or could not be.
    PostMortem(FailureKey, Result<Arc<PostMortem>, String>),
    /// Fetching a snapshot failed, for this reason.
    FetchFailed(String),
    /// An effect was carried out, with this outcome.
    EffectDone(Result<String, String>),
    /// Time passed.
    Tick,
}

/// Something for the event loop to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End the program.
    Quit,
    /// Suspend the program and return to the shell.
    Suspend,
    /// Draw the whole screen again.
    Redraw,
    /// Fetch a snapshot at once.
    Fetch,
    /// Save these settings.
    Save(Settings),
    /// Turn the handling of the mouse on or off.
    Mouse(bool),
    /// Send a signal.
    Signal(Recipient, &'static Signal),
}

/// Handles a message. `now_ms` is any clock that does not run backwards.
pub fn update(ui: &mut Ui, data: &mut Data, now_ms: u64, msg: Msg) -> Vec<Effect> {
    if ui.status.as_ref().is_some_and(|status| now_ms >= status.until_ms) {
        ui.status = None;
    }
    let mut effects = Vec::new();
    match msg {
        Msg::Tick => {}
        Msg::Snapshot { mut snapshot, detail, since, source } => {
            data.history.take_from(&mut snapshot, since);
            (data.received_ms, data.outage, data.source) = (Some(now_ms), None, source);
            // Another view needs other data, even while the display is paused.
            let is_other_detail = data.detail != detail;
            if ui.paused.is_none() || is_other_detail {
                ui.paused = ui.paused.map(|_| snapshot.at);
                (data.snapshot, data.detail) = (Arc::new(*snapshot), detail);
                ui.prune_acknowledged(&data.snapshot.findings);
                ui.growth.note(&data.snapshot, data.detail.buffers.as_ref());
                lists::follow_selected_rows(&data.snapshot, ui);
            }
        }
        Msg::FetchFailed(reason) => {
            let since_ms = data.outage.as_ref().map_or(now_ms, |outage| outage.since_ms);
            data.outage = Some(Outage { since_ms, reason });
        }
        Msg::PostMortem(failure, found) => data.post_mortem = Some((failure, found)),
        Msg::EffectDone(Ok(text)) => ui.show_status(now_ms, text),
        Msg::EffectDone(Err(text)) => ui.show_warning(now_ms, text),
        Msg::Paste(text) => filter::paste(ui, &data.snapshot, &text),
        Msg::Mouse(mouse) => mouse::handle_mouse(ui, data, now_ms, mouse, &mut effects),
        Msg::Key(key) if key.kind == KeyEventKind::Release => {}
        Msg::Key(key) => handle_key(ui, data, now_ms, key, &mut effects),
    }
    effects
}

fn handle_key(ui: &mut Ui, data: &Data, now_ms: u64, key: KeyEvent, effects: &mut Vec<Effect>) {
    let action = keys::find_action(key, ui.view, ui.settings.vim_keys);
    // These keys work in popups and filters, too.
    match action {
        Some(Action::Suspend) => return effects.push(Effect::Suspend),
        Some(Action::Redraw) => return effects.push(Effect::Redraw),
        Some(Action::Quit) if key.modifiers.contains(KeyModifiers::CONTROL) => {
            return effects.push(Effect::Quit);
        }
        _ => {}
    }
    if ui.editing.is_some() {
        filter::handle_key(ui, &data.snapshot, key);
    } else if ui.popup.is_some() {
        popup::handle_key(ui, data, now_ms, key, action, effects);
    } else if let Some(action) = action {
        action::run_action(ui, data, now_ms, action, effects);
    }
}
