//! What colours say, and what is left without them.

use crate::desk::{Desk, SELECTED, cells, find, rows, terms};
use crate::states;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};
use ttmem_tui::{Msg, Settings, Terms, ThemeName, View};

// The dark theme on a terminal with all colours.
const RED: Color = Color::Rgb(240, 100, 95);
const YELLOW: Color = Color::Rgb(230, 190, 80);
const GREEN: Color = Color::Rgb(110, 200, 120);
const FAINT: Color = Color::Rgb(128, 134, 145);
const ACCENT: Color = Color::Rgb(110, 190, 230);

#[track_caller]
fn assert_fore(buffer: &Buffer, text: &str, colour: Color) {
    for cell in cells(buffer, text).into_iter().filter(|cell| cell.symbol() != " ") {
        assert_eq!(cell.fg, colour, "{text:?} in\n{}", rows(buffer).join("\n"));
    }
}

/// The colours of a row's bars.
fn bars(buffer: &Buffer, of: &str) -> Vec<Color> {
    let (_, y) = find(buffer, of).unwrap();
    let mut colours: Vec<Color> = (0..buffer.area.width)
        .map(|x| &buffer[(x, y)])
        .filter(|cell| cell.symbol() == "━")
        .map(|cell| cell.fg)
        .collect();
    colours.dedup();
    colours
}

fn in_view(view: View, state: fn() -> ttmem_core::Snapshot) -> Desk {
    let settings = Settings { view: view.name().to_owned(), ..Settings::default() };
    Desk::with(state(), settings, terms())
}

#[test]
fn the_chosen_row_is_seen_over_its_whole_width() {
    let mut desk = Desk::new(states::eight());
    let buffer = desk.draw();
    let (_, y) = find(&buffer, "48213 mia").unwrap();
    // Between the frame and a space on either side.
    assert!((2..=117).all(|x| buffer[(x, y)].bg == SELECTED));
    let (_, other) = find(&buffer, "51440 mia").unwrap();
    assert!((0..120).all(|x| buffer[(x, other)].bg == Color::Reset));

    let mut desk = Desk::mono(states::eight());
    let buffer = desk.draw();
    let is_reversed = |x: u16, y: u16| buffer[(x, y)].modifier.contains(Modifier::REVERSED);
    assert!((2..=117).all(|x| is_reversed(x, y)));
    assert!(!(0..120).any(|x| is_reversed(x, other)));
}

#[test]
fn a_list_without_the_focus_keeps_its_row_but_not_its_colour() {
    let mut desk = Desk::new(states::eight());
    desk.press(&[KeyCode::Left]);
    let buffer = desk.draw();
    let (x, y) = find(&buffer, "48213 mia").unwrap();
    assert_eq!(buffer[(x, y)].bg, Color::Reset);
    assert!(buffer[(x, y)].modifier.contains(Modifier::BOLD));
    let (x, y) = find(&buffer, "0 n300").unwrap();
    assert_eq!(buffer[(x, y)].bg, SELECTED);
}

#[test]
fn fuller_is_redder() {
    let buffer = Desk::new(states::eight()).draw();
    // DRAM and L1 of the first chip, the seventh and the last.
    for (dram, l1, colour) in [(" 9.6 ", " 9.5 ", GREEN), ("86.1", "81.5", YELLOW), ("98.8", "93.5", RED)] {
        assert_fore(&buffer, dram.trim(), colour);
        assert_fore(&buffer, l1.trim(), colour);
        assert_eq!(bars(&buffer, dram), [colour], "{dram}");
    }
    // More than there is.
    let buffer = Desk::new(states::findings()).draw();
    assert_fore(&buffer, ">100 %", RED);
    assert_eq!(bars(&buffer, "0 n150"), [RED, GREEN]);
}

#[test]
fn readings_are_judged_by_their_limits_and_old_ones_are_not() {
    for view in [View::Main, View::Telemetry] {
        let mut desk = in_view(view, states::findings);
        // Away from the first row, whose background is another.
        desk.press(&[KeyCode::Down, KeyCode::Down]);
        let buffer = desk.draw();
        assert_fore(&buffer, "91.5", RED);
        assert_fore(&buffer, "94.0", YELLOW);
        assert_fore(&buffer, "54.0", FAINT);
        assert_fore(&buffer, "45.5", FAINT);
        assert_fore(&buffer, "56.5", Color::Reset);
    }
    let buffer = in_view(View::Telemetry, states::findings).draw();
    assert_fore(&buffer, "STOPS", RED);
    assert_fore(&buffer, "beats", GREEN);
    assert_fore(&buffer, "73s", YELLOW);
}

#[test]
fn how_well_something_is_known_has_a_colour() {
    let buffer = Desk::new(states::findings()).draw();
    let (_, y) = find(&buffer, "Processes").unwrap();
    for (pid, state, colour) in [
        ("48213 mia", "DRIFT", RED),
        ("48977 mia", "partial", YELLOW),
        ("47001 mia", "reported", YELLOW),
        ("51440 mia", "untracked", FAINT),
    ] {
        let (_, row) = find(&buffer, pid).unwrap();
        assert!(row > y);
        let line = &rows(&buffer)[usize::from(row)];
        let x = line[..line.find(state).unwrap()].chars().count() as u16;
        assert_eq!(buffer[(x, row)].fg, colour, "{pid}");
    }
}

#[test]
fn findings_are_as_bad_as_they_look() {
    let buffer = in_view(View::Events, states::findings).draw();
    assert_fore(&buffer, "error ", RED);
    assert_fore(&buffer, "warning ", YELLOW);
    assert_fore(&buffer, "info ", ACCENT);
    let title = cells(&buffer, " 4 errors ");
    assert!(title.iter().all(|cell| cell.bg == RED));
    assert_fore(&buffer, "5 warnings", YELLOW);
    assert_fore(&buffer, "DRAM rose above 90 %", RED);
    assert_fore(&buffer, "DRAM rose above 75 %", YELLOW);
}

#[test]
fn figures_that_are_old_look_old() {
    let mut desk = Desk::new(states::two());
    let is_dim = |cell: &Cell| cell.fg == FAINT && cell.modifier.contains(Modifier::DIM);
    assert!(!desk.draw().content().iter().any(is_dim));
    desk.send(Msg::Lost("gone".to_owned()));
    let body =
        |buffer: &Buffer, is: &dyn Fn(&Cell) -> bool| (2..39).all(|y| (0..120).all(|x| is(&buffer[(x, y)])));
    let buffer = desk.draw();
    assert!(body(&buffer, &is_dim));
    assert!(cells(&buffer, " no answer for ").iter().all(|cell| cell.bg == RED));
    assert_fore(&buffer, "gone", RED);
    assert!(!is_dim(&buffer[(1, 0)]) && !is_dim(&buffer[(1, 39)]));

    // The same when nothing comes, and nobody says why.
    let mut desk = Desk::new(states::two());
    desk.ms += 2_900;
    assert!(!desk.draw().content().iter().any(is_dim));
    desk.ms += 200;
    let buffer = desk.draw();
    assert!(body(&buffer, &is_dim));
    assert!(find(&buffer, "waiting for 3.1s").is_some());

    // And as new again.
    desk.fresh(states::two());
    assert!(!desk.draw().content().iter().any(is_dim));
}

#[test]
fn what_is_simulated_says_so() {
    let buffer = Desk::new(states::galaxy()).draw();
    assert!(cells(&buffer, " SIMULATED ").iter().all(|cell| cell.bg == YELLOW));
    let buffer = Desk::mono(states::galaxy()).draw();
    assert!(cells(&buffer, " SIMULATED ").iter().all(|cell| cell.modifier.contains(Modifier::REVERSED)));
    assert!(find(&Desk::new(states::eight()).draw(), "SIMULATED").is_none());
}

#[test]
fn a_full_core_is_hot() {
    let buffer = in_view(View::Map, states::two).draw();
    for (share, heat) in [
        ("  1", Color::Rgb(40, 98, 118)),
        (" 39", Color::Rgb(44, 130, 104)),
        (" 74", Color::Rgb(128, 142, 58)),
        (" 87", Color::Rgb(196, 140, 46)),
        (" 95", Color::Rgb(206, 74, 66)),
    ] {
        // Its own three columns, wherever it is in the grid.
        let (x, y) = (4..39)
            .flat_map(|y| (4..38).map(move |x| (x, y)))
            .find(|&(x, y)| {
                let text: String = (0..3).map(|n| buffer[(x + n, y)].symbol()).collect();
                text == share && buffer[(x, y)].bg != Color::Reset
            })
            .unwrap_or_else(|| panic!("{share}"));
        assert!((0..3).all(|n| buffer[(x + n, y)].bg == heat), "{share}");
    }
}

/// Every screen there is a file of, and what lies over it.
fn everywhere(settings: &Settings, terms: Terms, mut look: impl FnMut(&str, &Buffer)) {
    for (name, state) in states::ALL {
        for view in View::ALL {
            let settings = Settings { view: view.name().to_owned(), ..settings.clone() };
            let mut desk = Desk::with(state(), settings, terms);
            for (width, height) in [(80, 24), (200, 60), (60, 10)] {
                desk.size = (width, height);
                look(&format!("{name} {} {width}x{height}", view.name()), &desk.draw());
            }
            desk.size = (120, 40);
            for open in [KeyCode::Enter, KeyCode::Char('?'), KeyCode::Char('s'), KeyCode::F(9), KeyCode::F(2)]
            {
                desk.press(&[open]);
                look(&format!("{name} {} {open:?}", view.name()), &desk.draw());
                desk.press(&[KeyCode::Esc]);
            }
            desk.keys("/p");
            look(&format!("{name} {} filter", view.name()), &desk.draw());
            desk.send(Msg::Lost("gone".to_owned()));
            look(&format!("{name} {} lost", view.name()), &desk.draw());
        }
    }
}

#[test]
fn without_colours_there_are_none() {
    let mono = Settings { theme: ThemeName::Mono, ..Settings::default() };
    everywhere(&mono, terms(), |name, buffer| {
        for cell in buffer.content() {
            assert!(cell.fg == Color::Reset && cell.bg == Color::Reset, "{name}: {cell:?}");
        }
    });
}

#[test]
fn in_ascii_there_is_nothing_else() {
    let terms = Terms { ascii: true, ..terms() };
    everywhere(&Settings::default(), terms, |name, buffer| {
        for cell in buffer.content() {
            assert!(cell.symbol().is_ascii(), "{name}: {:?}", cell.symbol());
        }
    });
}
