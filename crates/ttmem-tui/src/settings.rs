//! What is kept from one time to the next. Reading and writing the file is the program's.

use crate::lists;
use crate::table::Sorting;
use crate::theme::ThemeName;
use crate::ui::{List, Ui, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The settings file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Colours.
    pub theme: ThemeName,
    /// Refresh interval in milliseconds.
    pub refresh_ms: u64,
    /// ASCII characters only.
    pub ascii: bool,
    /// Whether clicks and the wheel are ours; without, the terminal selects text with them.
    pub mouse: bool,
    /// h, j, k and l move. Without, `k` opens the signal menu.
    pub vim_keys: bool,
    /// The view at the start.
    pub view: String,
    /// The length of the time axis.
    pub window_seconds: u64,
    /// The columns that lists are sorted by; a minus turns the order round.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sort: BTreeMap<String, String>,
}

/// The shortest and the longest refresh interval.
pub(crate) const REFRESH: std::ops::RangeInclusive<u64> = 50..=60_000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            theme: ThemeName::default(),
            refresh_ms: 500,
            ascii: false,
            mouse: true,
            vim_keys: true,
            view: View::Main.name().to_owned(),
            window_seconds: 60,
            sort: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// What is wrong with them, if something is: the key, and why.
    pub fn fault(&self) -> Option<String> {
        let views = || View::ALL.map(View::name).join(", ");
        if !REFRESH.contains(&self.refresh_ms) {
            let (least, most) = (REFRESH.start(), REFRESH.end());
            return Some(format!("refresh_ms is {}; the range is {least} to {most}", self.refresh_ms));
        }
        if !View::ALL.iter().any(|view| view.name() == self.view) {
            return Some(format!("view is {:?}; known views: {}", self.view, views()));
        }
        for (list, column) in &self.sort {
            let Some(list) = List::ALL.into_iter().find(|it| it.name() == list) else {
                let known = List::ALL.map(List::name).join(", ");
                return Some(format!("sort has no list {list:?}; known lists: {known}"));
            };
            let name = column.trim_start_matches('-');
            let columns: Vec<&str> = lists::sortable(list).map(|it| it.0).collect();
            if !columns.contains(&name) {
                let (list, known) = (list.name(), columns.join(", "));
                return Some(format!("sort.{list} has no column {name:?}; known columns: {known}"));
            }
        }
        None
    }

    pub(crate) fn first_view(&self) -> View {
        View::ALL.into_iter().find(|view| view.name() == self.view).unwrap_or_default()
    }

    pub(crate) fn sorting(&self, list: List) -> Sorting {
        let own = Sorting { column: lists::own_order(list), reversed: false };
        let Some(text) = self.sort.get(list.name()) else { return own };
        let name = text.trim_start_matches('-');
        let column = lists::sortable(list).find(|it| it.0 == name).map(|it| it.0);
        Sorting { column, reversed: text.starts_with('-') }
    }
}

impl Ui {
    /// The settings as they are now.
    pub(crate) fn kept(&self) -> Settings {
        let sort = List::ALL.into_iter().filter_map(|list| {
            let Sorting { column, reversed } = self.place(list).sort;
            if column == lists::own_order(list) && !reversed {
                return None;
            }
            let name = column?;
            Some((list.name().to_owned(), format!("{}{name}", if reversed { "-" } else { "" })))
        });
        Settings {
            view: self.view.name().to_owned(),
            window_seconds: self.window_seconds(),
            sort: sort.collect(),
            ..self.settings.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(Settings::default().fault(), None);
        let wrong = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.fault().unwrap()
        };
        assert!(wrong(|it| it.refresh_ms = 0).starts_with("refresh_ms is 0"));
        assert!(wrong(|it| it.view = "x".into()).contains("view is \"x\"; known views: main, charts"));
        assert!(wrong(|it| _ = it.sort.insert("p".into(), "x".into())).contains("no list \"p\""));
        assert!(wrong(|it| _ = it.sort.insert("processes".into(), "-x".into())).contains("no column \"x\""));
    }
}
