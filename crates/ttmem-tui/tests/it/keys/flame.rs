//! Keys and clicks in the flame view.

use super::in_view;
use crate::dashboard::Dashboard;
use crate::states;
use ratatui::crossterm::event::KeyCode::{Backspace, Down, End, Enter, Esc, Home, Left, Right, Up};
use ttmem_tui::View;

fn flame() -> Dashboard {
    in_view(View::Flame, states::one()).sized(120, 40)
}

/// The name of the selected frame, below the flame: before its figures.
fn selected(dashboard: &mut Dashboard) -> String {
    let rows = dashboard.rows();
    let row = rows.iter().find(|row| row.contains("% of ") && row.contains(" buffer")).unwrap();
    row.trim_start_matches('│').trim().split("  ").next().unwrap().to_owned()
}

/// The row of the screen below the spaces: the frame that takes the whole width.
fn root(dashboard: &mut Dashboard) -> String {
    dashboard.rows()[5].clone()
}

#[test]
fn arrows_select_frames() {
    let mut dashboard = flame();
    for (key, name) in [
        (Up, "DRAM"),
        (Down, "python3 (pid 48213)"),
        (Right, "llama-serve (pid 48977)"),
        (Right, "llama-serve (pid 48977)"),
        (Left, "python3 (pid 48213)"),
        (Down, "generate.py:301 (main)"),
        (End, "bfloat8_b [1, 1, 4096, 14336] tile"),
        (Up, "ttnn.as_tensor"),
        (Home, "DRAM"),
    ] {
        dashboard.press(&[key]);
        assert_eq!(selected(&mut dashboard), name, "after {key:?}");
    }
}

#[test]
fn frames_that_are_too_narrow_can_be_selected() {
    let mut dashboard = flame();
    assert!(dashboard.shows("12 more") || dashboard.shows("…"), "{:?}", dashboard.rows());
    let mut steps = vec![Down, Down, Down, Down];
    steps.extend([Right; 7]);
    dashboard.press(&steps);
    assert!(selected(&mut dashboard).starts_with("load.py:6"), "{}", selected(&mut dashboard));
    dashboard.press(&[Enter]);
    assert!(root(&mut dashboard).contains("(load_norms)"), "{}", root(&mut dashboard));
}

#[test]
fn enter_zooms_in_and_escape_zooms_out() {
    let mut dashboard = flame();
    dashboard.press(&[Down, Enter]);
    assert!(root(&mut dashboard).contains("python3 (pid 48213)"));
    dashboard.press(&[Down, Down, Enter]);
    assert!(root(&mut dashboard).contains("generate.py:188 (Generator.run)"));
    dashboard.press(&[Up]);
    assert_eq!(selected(&mut dashboard), "generate.py:188 (Generator.run)", "the selection stays within");
    dashboard.press(&[Esc]);
    assert!(root(&mut dashboard).contains("python3 (pid 48213)"));
    dashboard.press(&[Backspace]);
    assert!(root(&mut dashboard).contains("DRAM"));
    // The selection is kept by name: where it is gone, it ends at the last frame that is there.
    dashboard.press(&[End, Enter]);
    let mut other = states::one();
    other
        .flame
        .as_mut()
        .unwrap()
        .pools
        .iter_mut()
        .for_each(|pool| pool.stacks.retain(|it| it.frames.len() < 3));
    dashboard.receive(other);
    assert_eq!(selected(&mut dashboard), "generate.py:301 (main)");
}

#[test]
fn search_marks_frames_and_sums_them() {
    let mut dashboard = flame();
    dashboard.keys("/attention.py");
    assert!(dashboard.shows("search: attention.py"));
    dashboard.press(&[Enter]);
    let title = dashboard.row("/attention.py: ");
    assert!(title.contains(" %"), "{title}");
    dashboard.press(&[Esc]);
    assert!(!dashboard.shows("/attention.py: "));
    dashboard.keys("/no such word");
    assert!(dashboard.shows("0 B, 0.0 %"), "{:?}", dashboard.rows());
}

#[test]
fn moment_space_and_device_are_selected() {
    let mut dashboard = in_view(View::Flame, states::two()).sized(120, 40);
    for name in ["at the peak", "since the mark", "live"] {
        dashboard.keys("m");
        assert!(dashboard.shows(name));
    }
    dashboard.keys("s");
    assert_eq!(selected(&mut dashboard), "L1");
    dashboard.keys("s");
    assert_eq!(selected(&mut dashboard), "DRAM");
    let both = dashboard.row("DRAM ");
    assert!(dashboard.shows("Flame of all devices"));
    dashboard.keys("]");
    assert!(dashboard.shows("Flame of device 0"), "{:?}", dashboard.rows());
    assert_ne!(dashboard.row("DRAM "), both);
    dashboard.keys("]");
    assert!(dashboard.shows("Flame of device 1"));
    dashboard.press(&[Esc]);
    assert_eq!(dashboard.row("DRAM "), both);
}

#[test]
fn clicks_select_and_zoom() {
    let mut dashboard = flame();
    let at = dashboard.find("load.py:52 (load_matrix)");
    dashboard.click(at);
    assert_eq!(selected(&mut dashboard), "load.py:52 (load_matrix)");
    let at = dashboard.find("load.py:52 (load_matrix)");
    dashboard.click(at);
    assert!(root(&mut dashboard).contains("load.py:52 (load_matrix)"));
    for (text, expected) in [(" L1 ", "L1"), (" DRAM ", "DRAM")] {
        // Below title, tabs and the edge of the frame.
        let spaces = &dashboard.rows()[3];
        let x = spaces[..spaces.find(text).unwrap()].chars().count() as u16;
        dashboard.click((x + 1, 3));
        assert_eq!(selected(&mut dashboard), expected);
    }
    let at = dashboard.find("since the mark");
    dashboard.click(at);
    dashboard.refresh();
    assert_eq!(dashboard.data.detail.flame, Some(ttmem_core::snapshot::FlameMoment::Mark));
}
