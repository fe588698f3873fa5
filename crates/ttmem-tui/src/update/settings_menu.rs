//! The menu of settings.

use super::Effect;
use super::action::select_next_theme;
use crate::ui::{Ui, WINDOWS};

/// The refresh intervals of the menu, in milliseconds.
const REFRESH_STEPS: [u64; 6] = [100, 250, 500, 1000, 2000, 5000];

/// A line of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MenuSetting {
    Theme,
    Refresh,
    Window,
    Ascii,
    Mouse,
    VimKeys,
}

impl MenuSetting {
    pub(crate) const ALL: [Self; 6] =
        [Self::Theme, Self::Refresh, Self::Window, Self::Ascii, Self::Mouse, Self::VimKeys];

    /// Name and current value.
    pub(crate) fn describe(self, ui: &Ui) -> (&'static str, String) {
        let yes_or_no = |yes: bool| (if yes { "yes" } else { "no" }).to_owned();
        match self {
            Self::Theme => ("Theme", ui.settings.theme.name().to_owned()),
            Self::Refresh => ("Refresh interval (ms)", ui.settings.refresh_ms.to_string()),
            Self::Window => ("Time axis (s)", ui.window_seconds().to_string()),
            Self::Ascii => ("ASCII characters only", yes_or_no(ui.ascii)),
            Self::Mouse => ("Mouse", yes_or_no(ui.settings.mouse)),
            Self::VimKeys => ("Move with h j k l (no: k sends signals)", yes_or_no(ui.settings.vim_keys)),
        }
    }

    /// Changes the setting to its next value.
    pub(super) fn change(self, ui: &mut Ui, effects: &mut Vec<Effect>) {
        match self {
            Self::Theme => select_next_theme(ui),
            Self::Refresh => {
                let longer = REFRESH_STEPS.into_iter().find(|&ms| ms > ui.settings.refresh_ms);
                ui.settings.refresh_ms = longer.unwrap_or(REFRESH_STEPS[0]);
            }
            Self::Window => ui.window = (ui.window + 1) % WINDOWS.len(),
            Self::Ascii => {
                ui.ascii = !ui.ascii;
                ui.settings.ascii = ui.ascii;
            }
            Self::Mouse => {
                ui.settings.mouse = !ui.settings.mouse;
                effects.push(Effect::Mouse(ui.settings.mouse));
            }
            Self::VimKeys => ui.settings.vim_keys = !ui.settings.vim_keys,
        }
    }
}
