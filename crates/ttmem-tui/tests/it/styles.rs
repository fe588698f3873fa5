//! Colours and their meaning, and screens without colours.

use crate::dashboard::{Dashboard, SELECTED, cells, environment, find, rows};
use crate::states;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};
use ttmem_tui::{Environment, Msg, Settings, ThemeName, View};

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

/// The colours of the bars in the row with a text.
fn bars(buffer: &Buffer, text: &str) -> Vec<Color> {
    let (_, y) = find(buffer, text).unwrap();
    let mut colours: Vec<Color> = (0..buffer.area.width)
        .map(|x| &buffer[(x, y)])
        .filter(|cell| cell.symbol() == "━")
        .map(|cell| cell.fg)
        .collect();
    colours.dedup();
    colours
}

fn in_view(view: View, state: fn() -> ttmem_core::Snapshot) -> Dashboard {
    let settings = Settings { view: view.name().to_owned(), ..Settings::default() };
    Dashboard::with(state(), settings, environment())
}

#[test]
fn selected_row_is_marked_over_its_whole_width() {
    let mut dashboard = Dashboard::new(states::eight());
    let buffer = dashboard.draw();
    let (_, y) = find(&buffer, "48213 mia").unwrap();
    // Inside the frame, with a space on either side.
    assert!((2..=117).all(|x| buffer[(x, y)].bg == SELECTED));
    let (_, other) = find(&buffer, "51440 mia").unwrap();
    assert!((0..120).all(|x| buffer[(x, other)].bg == Color::Reset));

    let mut dashboard = Dashboard::mono(states::eight());
    let buffer = dashboard.draw();
    let is_reversed = |x: u16, y: u16| buffer[(x, y)].modifier.contains(Modifier::REVERSED);
    assert!((2..=117).all(|x| is_reversed(x, y)));
    assert!(!(0..120).any(|x| is_reversed(x, other)));
}

/// Charts in a grid have a symbol each, which is in the plot and before the name; lines have letters with a legend.
#[test]
fn charts_differ_without_colours() {
    let names = ["DRAM", "L1", "Temp", "Power", "Clock"];
    let (mut grids, mut lines) = (0, 0);
    for (ascii, symbols) in [(true, ["#", "*", "t", "w", "c"]), (false, ["⣿", "⢕", "⡇", "⣒", "⡁"])]
    {
        for (width, height) in [(80, 24), (120, 40), (200, 60)] {
            for state in [states::one, states::two, states::eight, states::galaxy] {
                for press in ["2", "2m"] {
                    let settings = Settings { theme: ThemeName::Mono, ..Settings::default() };
                    let environment = Environment { ascii, ..environment() };
                    let mut dashboard = Dashboard::with(state(), settings, environment).sized(width, height);
                    dashboard.keys(press);
                    // Without title and tabs.
                    let page = rows(&dashboard.draw())[2..].join("\n");
                    let is_grid = page.contains('╭') || page.contains("+-");
                    let shown = names.into_iter().zip(symbols).filter(|(name, symbol)| {
                        let letter = &name[..1];
                        let (legend, mark) = if is_grid {
                            (format!("{symbol} {name} "), (*symbol).to_owned())
                        } else {
                            (format!("{letter}: {name} 0"), format!(" {letter}"))
                        };
                        if page.contains(&legend) {
                            assert!(
                                page.matches(&mark).count() > 1,
                                "{mark:?} is only in the legend:\n{page}"
                            );
                        } else {
                            assert!(!page.contains(&format!(" {name} ")), "{name} has no legend:\n{page}");
                        }
                        page.contains(&legend)
                    });
                    assert!(shown.count() > 0, "{page}");
                    *if is_grid { &mut grids } else { &mut lines } += 1;
                }
            }
        }
    }
    assert!(grids > 0 && lines > 0, "{grids} grids, {lines} screens with lines");
}

#[test]
fn selected_row_without_focus_is_bold_only() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.press(&[KeyCode::Left]);
    let buffer = dashboard.draw();
    let (x, y) = find(&buffer, "48213 mia").unwrap();
    assert_eq!(buffer[(x, y)].bg, Color::Reset);
    assert!(buffer[(x, y)].modifier.contains(Modifier::BOLD));
    let (x, y) = find(&buffer, "0 n300").unwrap();
    assert_eq!(buffer[(x, y)].bg, SELECTED);
}

#[test]
fn level_colours_follow_the_share_in_use() {
    let buffer = Dashboard::new(states::eight()).sized(146, 40).draw();
    // DRAM and L1 of the first, the seventh and the last device.
    for (dram, l1, colour) in [(" 9.6 ", " 9.5 ", GREEN), ("86.1", "81.5", YELLOW), ("98.8", "93.5", RED)] {
        assert_fore(&buffer, dram.trim(), colour);
        assert_fore(&buffer, l1.trim(), colour);
        assert_eq!(bars(&buffer, dram), [colour], "{dram}");
    }
    // More than the capacity.
    let buffer = Dashboard::new(states::findings()).draw();
    assert_fore(&buffer, ">100 %", RED);
    assert_eq!(bars(&buffer, "0 n150"), [RED, GREEN]);
}

#[test]
fn readings_have_the_colour_of_their_limit() {
    for view in [View::Main, View::Telemetry] {
        let mut dashboard = in_view(view, states::findings);
        // Away from the first row, which is selected and has another background.
        dashboard.press(&[KeyCode::Down, KeyCode::Down]);
        let buffer = dashboard.draw();
        assert_fore(&buffer, "91.5", RED);
        assert_fore(&buffer, "94.0", YELLOW);
        assert_fore(&buffer, "54.0", FAINT);
        assert_fore(&buffer, "45.5", FAINT);
        assert_fore(&buffer, "56.5", Color::Reset);
    }
    let buffer = in_view(View::Telemetry, states::findings).draw();
    assert_fore(&buffer, "STOPPED", RED);
    assert_fore(&buffer, " ok ", GREEN);
    assert_fore(&buffer, "73s", YELLOW);
}

#[test]
fn tracking_has_a_colour() {
    let buffer = Dashboard::new(states::findings()).draw();
    let (_, y) = find(&buffer, "Processes").unwrap();
    for (pid, state, colour) in [
        ("48213 mia", "drift", RED),
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
fn severities_have_a_colour() {
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
fn stale_figures_are_faint() {
    let mut dashboard = Dashboard::new(states::two());
    let is_dim = |cell: &Cell| cell.fg == FAINT && cell.modifier.contains(Modifier::DIM);
    assert!(!dashboard.draw().content().iter().any(is_dim));
    dashboard.send(Msg::FetchFailed("gone".to_owned()));
    let body =
        |buffer: &Buffer, is: &dyn Fn(&Cell) -> bool| (2..39).all(|y| (0..120).all(|x| is(&buffer[(x, y)])));
    let buffer = dashboard.draw();
    assert!(body(&buffer, &is_dim));
    assert!(cells(&buffer, " no answer for ").iter().all(|cell| cell.bg == RED));
    assert_fore(&buffer, "gone", RED);
    assert!(!is_dim(&buffer[(1, 0)]) && !is_dim(&buffer[(1, 39)]));

    // No snapshot for a while, without an error.
    let mut dashboard = Dashboard::new(states::two());
    dashboard.ms += 2_900;
    assert!(!dashboard.draw().content().iter().any(is_dim));
    dashboard.ms += 200;
    let buffer = dashboard.draw();
    assert!(body(&buffer, &is_dim));
    assert!(find(&buffer, "no data for 3.1s").is_some());

    // After the next snapshot, figures are current again.
    dashboard.receive(states::two());
    assert!(!dashboard.draw().content().iter().any(is_dim));
}

#[test]
fn simulated_devices_are_marked() {
    let buffer = Dashboard::new(states::galaxy()).draw();
    assert!(cells(&buffer, " SIMULATED ").iter().all(|cell| cell.bg == YELLOW));
    let buffer = Dashboard::mono(states::galaxy()).draw();
    assert!(cells(&buffer, " SIMULATED ").iter().all(|cell| cell.modifier.contains(Modifier::REVERSED)));
    assert!(find(&Dashboard::new(states::eight()).draw(), "SIMULATED").is_none());
}

#[test]
fn heat_colours_follow_the_share_in_use() {
    let buffer = in_view(View::Map, states::two).draw();
    for (share, heat) in [
        ("  1", Color::Rgb(40, 98, 118)),
        (" 39", Color::Rgb(44, 130, 104)),
        (" 74", Color::Rgb(128, 142, 58)),
        (" 87", Color::Rgb(196, 140, 46)),
        (" 95", Color::Rgb(206, 74, 66)),
    ] {
        // The three characters of its cell in the grid.
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

/// Checks every state in every view, with popups and filters.
fn check_all(settings: &Settings, environment: Environment, mut check: impl FnMut(&str, &Buffer)) {
    for (name, state) in states::ALL {
        for view in View::ALL {
            let settings = Settings { view: view.name().to_owned(), ..settings.clone() };
            let mut dashboard = Dashboard::with(state(), settings, environment);
            for (width, height) in [(80, 24), (200, 60), (60, 10)] {
                dashboard.size = (width, height);
                check(&format!("{name} {} {width}x{height}", view.name()), &dashboard.draw());
            }
            dashboard.size = (120, 40);
            for open in [KeyCode::Enter, KeyCode::Char('?'), KeyCode::Char('s'), KeyCode::F(9), KeyCode::F(2)]
            {
                dashboard.press(&[open]);
                check(&format!("{name} {} {open:?}", view.name()), &dashboard.draw());
                dashboard.press(&[KeyCode::Esc]);
            }
            dashboard.keys("/p");
            check(&format!("{name} {} filter", view.name()), &dashboard.draw());
            dashboard.send(Msg::FetchFailed("gone".to_owned()));
            check(&format!("{name} {} lost", view.name()), &dashboard.draw());
        }
    }
}

#[test]
fn mono_theme_has_no_colours() {
    let mono = Settings { theme: ThemeName::Mono, ..Settings::default() };
    check_all(&mono, environment(), |name, buffer| {
        for cell in buffer.content() {
            assert!(cell.fg == Color::Reset && cell.bg == Color::Reset, "{name}: {cell:?}");
        }
    });
}

#[test]
fn ascii_screens_have_ascii_only() {
    let environment = Environment { ascii: true, ..environment() };
    check_all(&Settings::default(), environment, |name, buffer| {
        for cell in buffer.content() {
            assert!(cell.symbol().is_ascii(), "{name}: {:?}", cell.symbol());
        }
    });
}
