//! Acknowledging findings.

use super::in_view;
use crate::dashboard::Dashboard;
use crate::states;
use ratatui::crossterm::event::KeyCode::{Down, Left};
use ttmem_tui::View;

#[test]
fn acknowledged_findings_are_hidden_until_repeated() {
    let mut dashboard = in_view(View::Events, states::findings()).sized(200, 60);
    let text = "double free x2";
    let counts = |dashboard: &mut Dashboard| dashboard.row("ttmem lab1").contains("5 warnings");
    assert!(dashboard.shows(text) && counts(&mut dashboard));
    dashboard.press(&[Left, Down, Down, Down, Down, Down]);
    assert!(dashboard.selected_row().contains(text));
    dashboard.keys("a");
    assert!(!dashboard.shows(text) && dashboard.shows("Findings, 1 acknowledged (A: show)"));
    assert!(dashboard.row("ttmem lab1").contains("4 warnings"), "it is not counted either");
    dashboard.keys("A");
    assert!(dashboard.shows("(acknowledged) double free x2") && dashboard.shows("1 of them acknowledged"));
    dashboard.keys("A");
    dashboard.receive(states::findings());
    assert!(!dashboard.shows(text), "it did not happen again");
    let mut again = states::findings();
    again.findings.iter_mut().find(|it| it.text.contains(text)).unwrap().count += 1;
    dashboard.receive(again);
    assert!(dashboard.shows(text) && counts(&mut dashboard));
    // An acknowledged finding that disappears and returns is new.
    dashboard.keys("a");
    dashboard.receive(states::one());
    dashboard.receive(states::findings());
    assert!(dashboard.shows("15/15 ") || dashboard.shows("/15 "), "{}", dashboard.rows().join("\n"));
}

#[test]
fn findings_are_shown_in_full() {
    let whole = "requested 2.0 GiB of DRAM on device 1; largest free block 38.0 MiB per bank";
    for (view, size) in [(View::Main, (200, 60)), (View::Events, (200, 60)), (View::Events, (120, 40))] {
        let mut dashboard = in_view(view, states::findings()).sized(size.0, size.1);
        let words = dashboard
            .rows()
            .iter()
            .map(|row| row.replace(['│', '╭', '╮'], " "))
            .collect::<Vec<_>>()
            .join(" ");
        let words: Vec<&str> = words.split_whitespace().collect();
        for word in whole.split(' ') {
            assert!(words.contains(&word), "{word} in {view:?} at {size:?}");
        }
        assert!(!dashboard.row("out of memory").contains('…'));
    }
}
