//! Property tests: any snapshot can be drawn at any size after any input.
//!
//! Snapshots and inputs are generated from bytes, so that proptest shrinks a failure by removing bytes.

mod generator;
mod lists;
mod snapshots;

use crate::dashboard::{Dashboard, environment, rows};
use generator::Generator;
use jiff::Timestamp;
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ttmem_tui::{ColourDepth, Environment, Msg, Now, Settings, ThemeName, View, view};

/// Draws the screen twice and checks every cell.
fn check(dashboard: &Dashboard) -> Result<ttmem_tui::ScreenLayout, TestCaseError> {
    let area = Rect::new(0, 0, dashboard.size.0, dashboard.size.1);
    let mut first = Buffer::empty(area);
    let layout = view(&dashboard.data, &dashboard.ui, dashboard.now(), &mut first);
    prop_assert_eq!(first.area, area);
    for cell in first.content() {
        let symbol = cell.symbol();
        if !matches!(symbol.as_bytes(), [b' '..=b'~']) {
            let one = symbol.chars().count() == 1 && unicode_width::UnicodeWidthStr::width(symbol) == 1;
            prop_assert!(one, "{symbol:?}");
        }
    }
    let mut second = Buffer::empty(area);
    let again = view(&dashboard.data, &dashboard.ui, dashboard.now(), &mut second);
    prop_assert!(first == second, "{}", rows(&first).join("\n"));
    prop_assert_eq!(&layout, &again);
    Ok(layout)
}

/// Receives snapshots from `data` and inputs from `steps`; checks the screen after each.
fn play(data: &[u8], steps: &[u8]) -> Result<(), TestCaseError> {
    let (mut data, mut steps) = (Generator::new(data), Generator::new(steps));
    let theme = steps.one(&ThemeName::ALL);
    let settings = Settings {
        theme,
        view: steps.one(&View::ALL).name().to_owned(),
        vim_keys: steps.yes(),
        ..Settings::default()
    };
    let colour_depth =
        steps.one(&[ColourDepth::Full, ColourDepth::Indexed, ColourDepth::Sixteen, ColourDepth::None]);
    let environment = Environment {
        colour_depth,
        ascii: steps.yes(),
        readonly: steps.yes(),
        filtered_by_device: steps.yes(),
        ..environment()
    };
    let mut dashboard = Dashboard::without_data(settings, environment);
    dashboard.size = steps.size();
    dashboard.receive(data.snapshot());
    let layout = check(&dashboard)?;
    dashboard.ui.set_layout(layout);
    while !steps.is_empty() {
        dashboard.ms += u64::from(steps.byte()) * 20;
        let size = dashboard.size;
        let msg = match steps.byte() {
            0..150 => Msg::Key(steps.key()),
            150..195 => Msg::Mouse(steps.mouse(size)),
            195..203 => Msg::Paste(steps.text()),
            203..223 => {
                let snapshot = Box::new(if data.is_empty() { steps.snapshot() } else { data.snapshot() });
                let detail = dashboard.ui.required_detail(&dashboard.data);
                Msg::Snapshot { snapshot, detail, since: steps.maybe(Generator::time), source: steps.text() }
            }
            223..229 => Msg::FetchFailed(steps.text()),
            229..236 => Msg::EffectDone(if steps.yes() { Ok(steps.text()) } else { Err(steps.text()) }),
            236..244 => {
                dashboard.size = steps.size();
                Msg::Tick
            }
            _ => Msg::Tick,
        };
        dashboard.send(msg);
        let _ = dashboard.ui.required_detail(&dashboard.data);
        // Several messages may arrive before the screen is drawn again.
        if steps.byte() < 200 {
            let layout = check(&dashboard)?;
            dashboard.ui.set_layout(layout);
        }
    }
    check(&dashboard).map(|_| ())
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(700) })]

    #[test]
    fn any_snapshot_is_drawn_after_any_input(data in bytes(3000), steps in bytes(150)) {
        play(&data, &steps)?;
    }

    #[test]
    fn any_size_is_drawn(width in 1..=300u16, height in 1..=100u16, data in bytes(2000), steps in bytes(8)) {
        let mut data = Generator::new(&data);
        let mut dashboard = Dashboard::without_data(Settings::default(), environment());
        dashboard.size = (width, height);
        dashboard.receive(data.snapshot());
        let mut steps = Generator::new(&steps);
        for view in '1'..='9' {
            dashboard.send(Msg::Key(KeyEvent::new(KeyCode::Char(view), KeyModifiers::NONE)));
            dashboard.send(Msg::Key(steps.key()));
            check(&dashboard)?;
        }
    }
}

#[test]
fn any_time_is_drawn() {
    for wall in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        for (_, state) in crate::states::ALL {
            for view_name in View::ALL {
                let settings = Settings { view: view_name.name().to_owned(), ..Settings::default() };
                let dashboard = Dashboard::with(state(), settings, environment());
                let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 60));
                view(&dashboard.data, &dashboard.ui, Now { ms: u64::MAX, wall }, &mut buffer);
            }
        }
    }
}
