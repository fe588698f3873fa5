//! Whole screens as text, compared with `snapshots/`.
//!
//! `INSTA_UPDATE=always cargo test -p ttmem-tui` rewrites these files; review the difference.

use crate::dashboard::{Dashboard, environment, rows};
use crate::states;
use ratatui::crossterm::event::KeyCode::{self, Char, Down, Enter, F, Left, Right};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::catch_unwind;
use std::path::Path;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::FlameGap;
use ttmem_tui::{Environment, Msg, Settings, View};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// A screen to compare.
struct Shot {
    view: View,
    size: (u16, u16),
    ascii: bool,
    state: states::State,
}

/// Every state in every view. Sizes and characters rotate, so that every pair of factors occurs.
fn shots() -> Vec<Shot> {
    let mut shots = Vec::new();
    for (n, state) in states::ALL.into_iter().enumerate() {
        for (m, view) in View::ALL.into_iter().enumerate() {
            shots.push(Shot { view, size: SIZES[(n + m) % 3], ascii: (n + m) % 2 == 1, state });
        }
    }
    shots
}

/// Files with several screens each.
const OTHERS: [File; 6] = [
    ("menus", menus),
    ("details", details),
    ("choices", choices),
    ("flames", flames),
    ("addresses", addresses),
    ("interruptions", interruptions),
];

type Scene = (&'static str, Dashboard);
type File = (&'static str, fn() -> Vec<Scene>);

impl Shot {
    fn name(&self) -> String {
        let (width, height) = self.size;
        let characters = if self.ascii { "ascii" } else { "unicode" };
        format!("{}-{}-{width}x{height}-{characters}", self.view.name(), self.state.0)
    }

    fn text(&self) -> String {
        let settings = Settings { view: self.view.name().to_owned(), ..Settings::default() };
        let mut dashboard =
            Dashboard::with((self.state.1)(), settings, Environment { ascii: self.ascii, ..environment() })
                .sized(self.size.0, self.size.1);
        dashboard.refresh();
        screen(&mut dashboard)
    }
}

fn screen(dashboard: &mut Dashboard) -> String {
    rows(&dashboard.draw()).join("\n") + "\n"
}

fn menus() -> Vec<Scene> {
    let with = |press: &[KeyCode]| {
        let mut dashboard = Dashboard::new(states::eight()).sized(80, 24);
        dashboard.press(press);
        dashboard
    };
    vec![
        ("help", with(&[Char('?')]).sized(120, 50)),
        ("sort menu", with(&[Char('s'), Down])),
        ("signal menu", with(&[F(9)])),
        ("confirm", with(&[F(9), Down, Enter])),
        ("settings", with(&[F(2), Down])),
    ]
}

fn details() -> Vec<Scene> {
    let with = |state: fn() -> Snapshot, press: &[KeyCode]| {
        let mut dashboard = Dashboard::new(state()).sized(120, 50);
        dashboard.press(press);
        dashboard
    };
    vec![
        ("device", with(states::findings, &[Left, Down, Enter])),
        ("process", with(states::findings, &[Enter])),
        ("buffer", with(states::two, &[Char('5'), Down, Down, Enter])),
        ("program", with(states::two, &[Char('6'), Enter])),
        ("buffer that lies nowhere known", with(states::unknown, &[Char('5'), Enter])),
        ("program of unknown residency", with(states::unknown, &[Char('6'), Enter])),
        ("core", with(states::two, &[Char('4'), Enter])),
    ]
}

fn choices() -> Vec<Scene> {
    let with = |state: fn() -> Snapshot, press: &str| {
        let mut dashboard = Dashboard::new(state()).sized(120, 30);
        dashboard.keys(press);
        dashboard
    };
    let mut alone = with(states::two, "2");
    alone.press(&[Enter]);
    let mut kept = with(states::one, "/llama");
    kept.press(&[Enter]);
    let mut mono = Dashboard::mono(states::two()).sized(80, 24);
    mono.keys("2");
    let mut mono_alone = Dashboard::mono(states::two()).sized(120, 30);
    mono_alone.keys("2");
    mono_alone.press(&[Enter]);
    vec![
        ("buffers by process", with(states::two, "5g")),
        ("nothing known of a group", with(states::unknown, "5g")),
        ("one chip's charts", alone),
        ("charts up to the highest", with(states::two, "2z")),
        ("charts without colours", mono),
        ("one chip's charts without colours", mono_alone),
        ("a map of an unknown device", with(states::unknown, "4]")),
        ("a filter being typed", with(states::one, "/llama")),
        ("a filter", kept),
        ("a filter that nothing fits", with(states::one, "/nosuch")),
    ]
}

fn flames() -> Vec<Scene> {
    let flame = |state: fn() -> Snapshot, press: &[KeyCode]| {
        let mut dashboard = Dashboard::new(state()).sized(80, 24);
        dashboard.press(&[&[Char('8')], press].concat());
        dashboard
    };
    let mut searched = flame(states::one, &[Char('/')]);
    searched.keys("attention");
    searched.press(&[Enter]);
    let mut mono = Dashboard::mono(states::one()).sized(80, 24);
    mono.keys("8/attention");
    mono.press(&[Enter, Down, Down]);
    let mut unknown = states::two();
    let pool = &mut unknown.flame.as_mut().unwrap().pools[0];
    pool.gap = Some(FlameGap::NotFollowed);
    let mut unknown = Dashboard::new(unknown).sized(80, 24);
    unknown.keys("8m");
    vec![
        ("a frame that was zoomed into", flame(states::one, &[Down, Down, Down, Enter, Down])),
        (
            "frames that are too narrow",
            flame(states::one, &[Down, Down, Down, Down, Right, Right, Right, Right]),
        ),
        ("a search", searched),
        ("a search without colours", mono),
        ("L1 of one device", flame(states::two, &[Char('s'), Char(']')])),
        ("stacks at the peak that are unknown", unknown),
    ]
}

fn addresses() -> Vec<Scene> {
    let with = |mut dashboard: Dashboard, press: &[KeyCode]| {
        dashboard.keys("9");
        dashboard.press(press);
        dashboard
    };
    let one = || Dashboard::new(states::one()).sized(80, 24);
    let mut searched = with(one(), &[Char('/')]);
    searched.keys("model.py:43");
    searched.press(&[Enter]);
    let mono = Dashboard::mono(states::one()).sized(80, 24);
    let ascii = Environment { ascii: true, ..environment() };
    let ascii = Dashboard::with(states::one(), Settings::default(), ascii).sized(80, 24);
    let mut unsure = states::one();
    unsure.processes[0].complete = false;
    unsure.block_maps.as_mut().unwrap()[1].single_core_bytes = 4096;
    vec![
        ("a used block", with(one(), &[Down, Down])),
        ("the largest free block", with(one(), &[Char('f')])),
        ("L1", with(one(), &[Char('s'), Right])),
        ("blocks that are not known", with(one(), &[Char('s'), Char('s')])),
        ("a filter", searched),
        ("without colours", with(mono, &[Right, Right])),
        ("in ASCII", with(ascii, &[Right, Right])),
        ("free blocks that may be in use", with(Dashboard::new(unsure).sized(80, 24), &[Char('s')])),
        ("in a wide terminal", with(Dashboard::new(states::one()).sized(200, 60), &[Down])),
        ("the buffer of a block", with(one(), &[Down, Enter])),
    ]
}

fn interruptions() -> Vec<Scene> {
    let mut lost = Dashboard::new(states::two()).sized(80, 24);
    lost.ms += 12_000;
    lost.send(Msg::FetchFailed("the daemon does not answer: connection refused".to_owned()));
    let mut paused = Dashboard::new(states::two()).sized(80, 24);
    paused.keys("p");
    let waiting = Dashboard::without_data(Settings::default(), environment()).sized(80, 24);
    vec![
        ("lost connection", lost),
        ("paused", paused),
        ("no snapshot yet", waiting),
        ("too small", Dashboard::new(states::two()).sized(60, 12)),
    ]
}

fn all() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = shots().iter().map(|it| (it.name(), it.text())).collect();
    for (name, scenes) in OTHERS {
        let mut text = String::new();
        for (title, mut dashboard) in scenes() {
            let _ = writeln!(text, "== {title} ==\n{}", screen(&mut dashboard));
        }
        all.push((name.to_owned(), text));
    }
    all
}

#[test]
fn screens_match_their_snapshots() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let _bound = settings.bind_to_scope();
    let mut names = BTreeSet::new();
    let mut changed = Vec::new();
    for (name, text) in all() {
        // insta ignores blank lines at the start, so a screen must not begin with one.
        assert!(!text.starts_with('\n'), "the first row of {name} is blank");
        // All screens are compared, so that one run shows every change.
        let compared = catch_unwind(|| insta::assert_snapshot!(name.as_str(), text));
        if compared.is_err() {
            changed.push(name.clone());
        }
        assert!(names.insert(name.clone()), "two screens have the name {name}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let snapshots = files.filter(|path| path.extension().is_some_and(|extension| extension == "snap"));
    let snapshots: BTreeSet<String> =
        snapshots.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(names.len() <= 80, "{} files are too many to review", names.len());
    assert!(
        changed.is_empty(),
        "screens changed: {changed:?}.\n\
         If that is intended: INSTA_UPDATE=always cargo test -p ttmem-tui, and review what it wrote."
    );
    assert_eq!(snapshots, names, "remove snapshots without a screen");
}

#[test]
fn every_pair_of_factors_has_a_screen() {
    let mut pairs = BTreeSet::new();
    for Shot { view, size, ascii, state } in shots() {
        let factors =
            [view.name().to_owned(), format!("{size:?}"), format!("ascii {ascii}"), state.0.to_owned()];
        for (n, a) in factors.iter().enumerate() {
            for b in &factors[n + 1..] {
                pairs.insert((a.clone(), b.clone()));
            }
        }
    }
    let (views, sizes, characters, states) = (9, 3, 2, 8);
    let wanted = views * sizes
        + views * characters
        + views * states
        + sizes * characters
        + sizes * states
        + characters * states;
    assert_eq!(pairs.len(), wanted);
}
