//! Filtering lists.

use super::{in_view, many_processes, selected_name};
use crate::dashboard::Dashboard;
use crate::states;
use ratatui::crossterm::event::KeyCode::{Backspace, Down, Enter, Esc, F};
use ttmem_tui::{Effect, Msg, Settings, View};

#[test]
fn filter_applies_while_typing() {
    let mut dashboard = Dashboard::new(many_processes());
    dashboard.keys("/p9");
    assert!(dashboard.shows("filter: p9") && dashboard.shows("1/11"));
    dashboard.keys("7");
    assert!(dashboard.shows("1/1 ") && selected_name(&mut dashboard) == "p97");
    dashboard.press(&[Enter, Down]);
    dashboard.keys("/");
    assert_eq!(dashboard.ui.settings, Settings::default(), "letters and digits were only typed");
    dashboard.press(&[Backspace]);
    assert!(
        dashboard.shows("/11 ") && selected_name(&mut dashboard) == "p97",
        "the selected row stays selected"
    );
    dashboard.press(&[Enter]);
    assert!(dashboard.shows("filter: p9"), "the frame shows the filter");
    assert!(dashboard.keys("q").contains(&Effect::Quit), "keys are keys again");
    dashboard.press(&[Esc]);
    assert!(!dashboard.shows("filter:") && dashboard.shows("/100 "));
    // Esc while typing clears it.
    dashboard.keys("/p5");
    dashboard.press(&[Esc]);
    assert!(!dashboard.shows("filter:") && dashboard.shows("/100 "));
    dashboard.press(&[F(4)]);
    dashboard.keys("zzz");
    assert!(dashboard.shows("No process matches the filter."));
    dashboard.ctrl('u');
    assert!(dashboard.shows("/100 "));
    dashboard.keys("q");
    assert!(dashboard.shows("filter: q"), "while typing, only Ctrl-C quits");
    assert_eq!(dashboard.ctrl('c'), [Effect::Quit]);
}

#[test]
fn every_word_of_a_filter_must_match() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.keys("/LLAMA vllm 10006");
    assert!(dashboard.shows("1/1 ") && dashboard.selected_row().contains("48977"));
    dashboard.keys(" x9");
    assert!(dashboard.shows("No process matches the filter."));
}

#[test]
fn filter_of_buffers_is_part_of_the_query() {
    let mut dashboard = in_view(View::Buffers, states::two());
    dashboard.keys("/wqkv");
    assert_eq!(dashboard.ui.required_detail(&dashboard.data).buffers.unwrap().text, "wqkv");
}

#[test]
fn pasted_newline_does_not_end_the_filter() {
    let mut dashboard = Dashboard::new(many_processes());
    dashboard.send(Msg::Paste("ignored, since nothing is typed\n".to_owned()));
    assert!(!dashboard.shows("ignored"));
    dashboard.keys("/");
    let effects = dashboard.send(Msg::Paste("p9\nq\t7\u{1b}".to_owned()));
    assert!(effects.is_empty());
    assert!(dashboard.shows("filter: p9 q 7 "));
    dashboard.keys("x");
    assert!(dashboard.shows("filter: p9 q 7 x"), "still typing");
    dashboard.send(Msg::Paste("y".repeat(100_000)));
    dashboard.press(&[Enter]);
    assert!(dashboard.shows("No process matches the filter."));
}
