//! Switching views, moving the cursor, and the mouse.

use super::{in_view, many_processes, selected_name};
use crate::dashboard::Dashboard;
use crate::states;
use ratatui::crossterm::event::{
    KeyCode::{self, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up},
    KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind,
};
use ttmem_core::snapshot::FlameMoment;
use ttmem_tui::{Msg, View};

#[test]
fn digits_and_tab_switch_views() {
    let mut dashboard = Dashboard::new(states::eight());
    for (n, view) in View::ALL.into_iter().enumerate() {
        dashboard.keys(&(n + 1).to_string());
        assert_eq!(dashboard.saved_settings().view, view.name());
    }
    dashboard.press(&[Tab]);
    assert_eq!(dashboard.saved_settings().view, "main", "after the last view comes the first");
    dashboard.press(&[KeyCode::BackTab, KeyCode::BackTab]);
    assert_eq!(dashboard.saved_settings().view, "flame");
    for view in View::ALL {
        let at = dashboard.find(&format!(" {} ", view.title()));
        dashboard.click((at.0 + 1, at.1));
        assert_eq!(dashboard.saved_settings().view, view.name(), "clicked");
    }
}

#[test]
fn views_require_only_what_they_show() {
    let mut dashboard = Dashboard::new(states::eight());
    let required = |dashboard: &mut Dashboard, key: &str| {
        dashboard.keys(key);
        dashboard.ui.required_detail(&dashboard.data)
    };
    let main = required(&mut dashboard, "1");
    assert!(
        main.brief
            && main.cores_of.is_none()
            && main.buffers.is_none()
            && main.program_list.is_none()
            && !main.events
    );
    assert_eq!(required(&mut dashboard, "4").cores_of, Some(0));
    assert_eq!(required(&mut dashboard, "]").cores_of, Some(1));
    assert!(required(&mut dashboard, "5").buffers.is_some());
    assert!(required(&mut dashboard, "6").program_list.is_some());
    assert!(required(&mut dashboard, "7").events);
    assert_eq!(required(&mut dashboard, "8").flame, Some(FlameMoment::Live));
    assert_eq!(required(&mut dashboard, "m").flame, Some(FlameMoment::Peak));
    dashboard.keys("1");
    dashboard.press(&[Enter]);
    assert_eq!(
        dashboard.ui.required_detail(&dashboard.data).pid,
        Some(48_213),
        "details need all of a process"
    );
}

#[test]
fn arrows_and_letters_move_the_cursor() {
    let mut dashboard = Dashboard::new(many_processes());
    assert_eq!(selected_name(&mut dashboard), "p0");
    for (key, name) in [
        (Down, "p1"),
        (Char('j'), "p2"),
        (Up, "p1"),
        (Char('k'), "p0"),
        (Up, "p0"),
        (End, "p99"),
        (Down, "p99"),
        (Home, "p0"),
        (Char('G'), "p99"),
        (Home, "p0"),
    ] {
        dashboard.press(&[key]);
        assert_eq!(selected_name(&mut dashboard), name, "{key:?}");
    }
    dashboard.press(&[PageDown]);
    let page = selected_name(&mut dashboard);
    assert_ne!(page, "p0");
    dashboard.press(&[PageDown, PageUp]);
    assert_eq!(selected_name(&mut dashboard), page);
    dashboard.press(&[PageUp]);
    assert_eq!(selected_name(&mut dashboard), "p0");
    dashboard.ctrl('f');
    assert_eq!(selected_name(&mut dashboard), page);
    dashboard.ctrl('b');
    assert_eq!(selected_name(&mut dashboard), "p0");
}

#[test]
fn left_and_right_switch_lists() {
    let mut dashboard = Dashboard::new(states::eight());
    for key in [Right, Left, Char('l'), Char('h')] {
        assert!(dashboard.selected_row().contains("48213"));
        dashboard.press(&[key]);
        assert!(dashboard.selected_row().contains("0 n300"), "{key:?}");
        dashboard.press(&[key]);
    }
    dashboard.press(&[Right, Down, Down]);
    assert!(dashboard.shows("Memory of 2 n300"));
    dashboard.press(&[Enter]);
    assert!(dashboard.shows("Device 2 n300"));
}

#[test]
fn arrows_move_on_the_map() {
    let mut dashboard = in_view(View::Map, states::one());
    assert!(dashboard.shows("─ Core 0,3 ─"), "the smallest free gap");
    for (key, core) in [
        (Right, "1,3"),
        (Down, "1,4"),
        (Char('l'), "2,4"),
        (Char('k'), "2,3"),
        (End, "7,3"),
        (Home, "0,3"),
        (PageDown, "0,8"),
        (PageUp, "0,0"),
        (Left, "0,0"),
        (Char('j'), "0,1"),
        (Char('t'), "0,3"),
    ] {
        dashboard.press(&[key]);
        assert!(dashboard.shows(&format!("─ Core {core} ─")), "{key:?}");
    }
    let at = dashboard.find(" 87 ");
    dashboard.click((at.0 + 1, at.1));
    assert!(dashboard.shows("─ Core 0,6 ─"), "clicked");
    dashboard.press(&[Enter]);
    assert!(dashboard.shows("Lowest buffer"));
}

#[test]
fn device_selection_is_shared_by_views() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.keys("]]");
    assert!(dashboard.shows("Memory of 2 n300"));
    dashboard.keys("[[[");
    assert!(dashboard.shows("Memory of 7 n300 R"), "before the first device comes the last");
    dashboard.keys("4");
    assert!(dashboard.shows("L1 of 7 n300 R"));
    dashboard.keys("]");
    assert!(dashboard.shows("L1 of 0 n300"));
    dashboard.keys("2");
    dashboard.press(&[Right, Enter]);
    assert!(dashboard.shows("DRAM of 1 n300"), "one device alone");
    dashboard.press(&[Esc]);
    assert!(!dashboard.shows("DRAM of 1 n300"));
    dashboard.keys("3");
    dashboard.press(&[Enter]);
    assert!(dashboard.shows("Device 1 n300"));
    dashboard.keys("]");
    assert!(dashboard.shows("Device 2 n300"), "details of the next device");
}

#[test]
fn wheel_scrolls_the_list_under_it() {
    let mut dashboard = Dashboard::new(many_processes());
    let at = dashboard.find("p3 ");
    dashboard.mouse(MouseEventKind::ScrollDown, at);
    assert_eq!(selected_name(&mut dashboard), "p3");
    dashboard.mouse(MouseEventKind::ScrollUp, at);
    assert_eq!(selected_name(&mut dashboard), "p0");
}

#[test]
fn first_click_selects_and_second_opens() {
    let mut dashboard = Dashboard::new(many_processes());
    let at = dashboard.find("p2 ");
    dashboard.click(at);
    assert_eq!(selected_name(&mut dashboard), "p2");
    assert!(!dashboard.shows("Process 1002"));
    dashboard.click(at);
    assert!(dashboard.shows("Process 1002"));
    dashboard.click((0, 39));
    assert!(!dashboard.shows("Process 1002"), "a click outside closes it");
    let at = dashboard.find("0 n150");
    dashboard.click(at);
    assert!(dashboard.selected_row().contains("0 n150"), "the other list has the focus");
}

#[test]
fn key_release_does_nothing() {
    let mut dashboard = Dashboard::new(many_processes());
    let released = KeyEvent::new_with_kind(Down, KeyModifiers::NONE, KeyEventKind::Release);
    dashboard.send(Msg::Key(released));
    assert_eq!(selected_name(&mut dashboard), "p0");
}
