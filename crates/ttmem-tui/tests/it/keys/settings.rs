//! Settings, help, details, and keys that end the dashboard.

use super::in_view;
use crate::dashboard::Dashboard;
use crate::states;
use ratatui::crossterm::event::KeyCode::{Char, Down, End, Enter, Esc, F, Home, Left, Right};
use ttmem_tui::{Effect, Msg, Settings, ThemeName, View};

#[test]
fn f12_saves_changed_settings() {
    let mut dashboard = Dashboard::new(states::eight());
    assert_eq!(dashboard.saved_settings(), Settings::default());
    dashboard.keys("+T");
    dashboard.click((3, 3));
    dashboard.click_process_header("L1");
    dashboard.keys("2t");
    let saved = dashboard.saved_settings();
    let wanted = Settings {
        theme: ThemeName::Light,
        refresh_ms: 250,
        view: "charts".to_owned(),
        window_seconds: 300,
        sort: [("processes".to_owned(), "l1".to_owned())].into(),
        ..Settings::default()
    };
    assert_eq!(saved, wanted);
    dashboard.send(Msg::EffectDone(Err("no room on the disk".to_owned())));
    assert!(dashboard.shows("no room on the disk"));
}

#[test]
fn settings_change_at_once() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.press(&[F(2)]);
    assert!(dashboard.shows("Settings") && dashboard.is_selected("Theme   "));
    dashboard.press(&[Down, Enter]);
    assert_eq!(dashboard.ui.settings.refresh_ms, 1000);
    dashboard.press(&[Down, Right]);
    assert_eq!(dashboard.saved_settings().window_seconds, 300);
    dashboard.press(&[Down, Enter]);
    assert!(dashboard.ui.settings.ascii && dashboard.rows().iter().all(|row| row.is_ascii()));
    assert_eq!(dashboard.press(&[Down, Enter]), [Effect::Mouse(false)]);
    dashboard.press(&[Down, Enter]);
    assert!(!dashboard.ui.settings.vim_keys);
    dashboard.press(&[Home, Enter]);
    assert_eq!(dashboard.ui.settings.theme, ThemeName::Light);
    let effects = dashboard.press(&[F(12)]);
    assert!(matches!(&effects[..], [Effect::Save(saved)] if saved.ascii && !saved.mouse && !saved.vim_keys));
    dashboard.press(&[Esc]);
    assert!(!dashboard.shows("Settings"));
}

#[test]
fn help_opens_moves_and_closes() {
    let mut dashboard = Dashboard::new(states::eight()).sized(80, 24);
    for open in [Char('?'), F(1)] {
        dashboard.press(&[open]);
        assert!(dashboard.shows("─ Keys ─") && dashboard.shows("more ▼"));
        dashboard.press(&[End]);
        assert!(dashboard.shows("▲ more") && dashboard.shows("publishes nothing"));
        dashboard.press(&[Home]);
        assert!(dashboard.shows("devices, memory, processes"));
        dashboard.press(&[Esc]);
        assert!(!dashboard.shows("─ Keys ─"));
    }
    dashboard.keys("?5");
    assert!(!dashboard.shows("─ Keys ─"));
    assert_eq!(dashboard.saved_settings().view, "buffers", "digits switch views from there");
}

#[test]
fn details_open_and_close_in_every_view() {
    for (view, keys, title) in [
        (View::Main, vec![Enter], "Process 48213"),
        (View::Main, vec![Left, Enter], "Device 0 n150"),
        (View::Telemetry, vec![Down, Enter], "Device 1 n150"),
        (View::Map, vec![Enter], "Lowest buffer"),
        (View::Buffers, vec![Enter], "Allocation 0x20000"),
        (View::Programs, vec![Enter], "Program 11"),
        (View::Events, vec![Enter], "an event of a later version"),
        (View::Events, vec![Left, Enter], "Severity           error"),
    ] {
        let mut dashboard = in_view(view, states::findings());
        dashboard.press(&keys);
        assert!(dashboard.shows(title), "{view:?} {keys:?}\n{}", dashboard.rows().join("\n"));
        assert!(dashboard.shows("Esc back"));
        dashboard.press(&[Esc]);
        assert!(!dashboard.shows("Esc back"));
    }
}

#[test]
fn details_of_a_removed_process_say_so() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.press(&[Enter]);
    dashboard.receive(states::empty());
    assert!(dashboard.shows("It no longer exists."));
}

#[test]
fn quit_suspend_and_redraw_keys() {
    let mut dashboard = Dashboard::new(states::one());
    for key in [Char('q'), Char('Q'), F(10)] {
        assert_eq!(dashboard.press(&[key]), [Effect::Quit]);
    }
    assert_eq!(dashboard.ctrl('c'), [Effect::Quit]);
    assert_eq!(dashboard.ctrl('z'), [Effect::Suspend]);
    assert_eq!(dashboard.ctrl('l'), [Effect::Redraw]);
    assert_eq!(dashboard.press(&[Char('r'), F(5)]), [Effect::Fetch, Effect::Fetch]);
    // In a menu, q only closes it.
    assert!(dashboard.keys("?q").is_empty() && !dashboard.shows("─ Keys ─"));
    assert!(dashboard.press(&[F(9)]).is_empty());
    assert_eq!(dashboard.ctrl('c'), [Effect::Quit]);
    assert!(dashboard.press(&[Esc, Esc]).is_empty());
    assert!(dashboard.shows("q: quit"), "Esc does not quit, and shows the key that does");
}
