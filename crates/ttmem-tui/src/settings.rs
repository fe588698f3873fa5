//! The settings that can be saved. Reading and writing the file is up to the caller.

use crate::lists;
use crate::table::SortOrder;
use crate::theme::ThemeName;
use crate::ui::{List, Ui, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The settings file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Theme.
    pub theme: ThemeName,
    /// Refresh interval in milliseconds.
    pub refresh_ms: u64,
    /// ASCII characters only.
    pub ascii: bool,
    /// Whether the dashboard handles clicks and the wheel; if not, the terminal selects text with them.
    pub mouse: bool,
    /// Whether h, j, k and l move the cursor; if not, `k` opens the signal menu.
    pub vim_keys: bool,
    /// View at the start.
    pub view: String,
    /// Length of the time axis.
    pub window_seconds: u64,
    /// Sort column of each list; a minus before it reverses the order.
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
    /// Finds a wrong setting; returns its key and the reason.
    pub fn find_error(&self) -> Option<String> {
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
            let columns: Vec<&str> = lists::sortable_columns(list).map(|it| it.0).collect();
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

    pub(crate) fn sort_order(&self, list: List) -> SortOrder {
        let default = SortOrder { column: lists::default_sort_column(list), reversed: false };
        let Some(text) = self.sort.get(list.name()) else { return default };
        let name = text.trim_start_matches('-');
        let column = lists::sortable_columns(list).find(|it| it.0 == name).map(|it| it.0);
        SortOrder { column, reversed: text.starts_with('-') }
    }
}

impl Ui {
    /// The settings to save: those that were loaded, with the current view, time axis and sort orders.
    pub(crate) fn current_settings(&self) -> Settings {
        let sort = List::ALL.into_iter().filter_map(|list| {
            let SortOrder { column, reversed } = self.list_state(list).sort;
            if column == lists::default_sort_column(list) && !reversed {
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
    fn errors_name_the_setting() {
        assert_eq!(Settings::default().find_error(), None);
        let wrong = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.find_error().unwrap()
        };
        assert!(wrong(|it| it.refresh_ms = 0).starts_with("refresh_ms is 0"));
        assert!(wrong(|it| it.view = "x".into()).contains("view is \"x\"; known views: main, charts"));
        assert!(wrong(|it| _ = it.sort.insert("p".into(), "x".into())).contains("no list \"p\""));
        assert!(wrong(|it| _ = it.sort.insert("processes".into(), "-x".into())).contains("no column \"x\""));
    }
}
