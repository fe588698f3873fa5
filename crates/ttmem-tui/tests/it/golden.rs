//! Whole screens, as text, compared with files.
//!
//! `TTMEM_BLESS=1 cargo test -p ttmem-tui` writes the files anew; then look at them.

use crate::desk::{Desk, rows, terms};
use crate::states;
use ratatui::crossterm::event::KeyCode::{self, Char, Down, Enter, F, Left};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use ttmem_core::Snapshot;
use ttmem_tui::{Msg, Settings, Terms, View};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// A screen to look at.
struct Shot {
    view: View,
    size: (u16, u16),
    ascii: bool,
    state: states::State,
}

/// Every state in every view. Sizes and characters go round with both, so that each meets each.
fn shots() -> Vec<Shot> {
    let mut shots = Vec::new();
    for (n, state) in states::ALL.into_iter().enumerate() {
        for (m, view) in View::ALL.into_iter().enumerate() {
            shots.push(Shot { view, size: SIZES[(n + m) % 3], ascii: (n + m) % 2 == 1, state });
        }
    }
    shots
}

/// Several screens in a file each.
const OTHERS: [File; 4] =
    [("menus", menus), ("details", details), ("choices", choices), ("interruptions", interruptions)];

type Scene = (&'static str, Desk);
type File = (&'static str, fn() -> Vec<Scene>);

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden")
}

impl Shot {
    fn name(&self) -> String {
        let (width, height) = self.size;
        let characters = if self.ascii { "ascii" } else { "unicode" };
        format!("{}-{}-{width}x{height}-{characters}", self.view.name(), self.state.0)
    }

    fn text(&self) -> String {
        let settings = Settings { view: self.view.name().to_owned(), ..Settings::default() };
        let mut desk = Desk::with((self.state.1)(), settings, Terms { ascii: self.ascii, ..terms() })
            .sized(self.size.0, self.size.1);
        screen(&mut desk)
    }
}

fn screen(desk: &mut Desk) -> String {
    rows(&desk.draw()).join("\n") + "\n"
}

fn menus() -> Vec<Scene> {
    let with = |press: &[KeyCode]| {
        let mut desk = Desk::new(states::eight()).sized(80, 24);
        desk.press(press);
        desk
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
        let mut desk = Desk::new(state()).sized(120, 50);
        desk.press(press);
        desk
    };
    vec![
        ("device", with(states::findings, &[Left, Down, Enter])),
        ("process", with(states::findings, &[Enter])),
        ("buffer", with(states::two, &[Char('5'), Down, Down, Enter])),
        ("program", with(states::two, &[Char('6'), Enter])),
        ("buffer that lies nowhere known", with(states::unknown, &[Char('5'), Enter])),
        ("program that nobody follows", with(states::unknown, &[Char('6'), Enter])),
        ("core", with(states::two, &[Char('4'), Enter])),
    ]
}

fn choices() -> Vec<Scene> {
    let with = |state: fn() -> Snapshot, press: &str| {
        let mut desk = Desk::new(state()).sized(120, 30);
        desk.keys(press);
        desk
    };
    let mut alone = with(states::two, "2");
    alone.press(&[Enter]);
    let mut kept = with(states::one, "/llama");
    kept.press(&[Enter]);
    vec![
        ("buffers by process", with(states::two, "5g")),
        ("nothing known of a group", with(states::unknown, "5g")),
        ("one chip's charts", alone),
        ("charts up to the highest", with(states::two, "2z")),
        ("a map that nothing is told of", with(states::unknown, "4]")),
        ("a filter being typed", with(states::one, "/llama")),
        ("a filter", kept),
        ("a filter that nothing fits", with(states::one, "/nobody")),
    ]
}

fn interruptions() -> Vec<Scene> {
    let mut lost = Desk::new(states::two()).sized(80, 24);
    lost.ms += 12_000;
    lost.send(Msg::Lost("the daemon does not answer: connection refused".to_owned()));
    let mut paused = Desk::new(states::two()).sized(80, 24);
    paused.keys("p");
    let waiting = Desk::before_anything(Settings::default(), terms()).sized(80, 24);
    vec![
        ("lost connection", lost),
        ("paused", paused),
        ("nothing came yet", waiting),
        ("too small", Desk::new(states::two()).sized(60, 12)),
    ]
}

fn all() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = shots().iter().map(|it| (it.name(), it.text())).collect();
    for (name, scenes) in OTHERS {
        let mut text = String::new();
        for (title, mut desk) in scenes() {
            let _ = writeln!(text, "== {title} ==\n{}", screen(&mut desk));
        }
        all.push((name.to_owned(), text));
    }
    all
}

/// What differs, row by row.
fn difference(wanted: &str, got: &str) -> String {
    let mut text = String::new();
    let (wanted, got): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), got.lines().collect());
    for n in 0..wanted.len().max(got.len()) {
        let (a, b) = (wanted.get(n), got.get(n));
        if a != b {
            for (mark, row) in [('-', a), ('+', b)] {
                let _ = row.map(|row| writeln!(text, "{:>4} {mark}{row}", n + 1));
            }
        }
    }
    text
}

#[test]
fn screens_are_as_they_were() {
    let bless = std::env::var_os("TTMEM_BLESS").is_some();
    let mut wrong = String::new();
    let mut files = BTreeSet::new();
    for (name, got) in all() {
        let file = format!("{name}.txt");
        let path = folder().join(&file);
        if bless {
            std::fs::write(&path, &got).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        if wanted != got {
            let _ = writeln!(wrong, "{file}:\n{}", difference(&wanted, &got));
        }
        assert!(files.insert(file), "two screens are called {name}");
    }
    for found in std::fs::read_dir(folder()).unwrap() {
        let found = found.unwrap().file_name().into_string().unwrap();
        if !files.contains(&found) {
            if bless {
                std::fs::remove_file(folder().join(&found)).unwrap();
            } else {
                let _ = writeln!(wrong, "{found}: no screen is called so");
            }
        }
    }
    assert!(files.len() <= 60, "{} files are more than anybody looks at", files.len());
    assert!(
        wrong.is_empty(),
        "screens changed (- as they were, + as they are now).\n\
         If that is meant: TTMEM_BLESS=1 cargo test -p ttmem-tui, and look at what it wrote.\n{wrong}"
    );
}

#[test]
fn each_pair_of_choices_is_looked_at() {
    let mut pairs = BTreeSet::new();
    for it in shots() {
        let factors = [
            it.view.name().to_owned(),
            format!("{:?}", it.size),
            format!("ascii {}", it.ascii),
            it.state.0.to_owned(),
        ];
        for (n, a) in factors.iter().enumerate() {
            for b in &factors[n + 1..] {
                pairs.insert((a.clone(), b.clone()));
            }
        }
    }
    let (views, sizes, characters, states) = (7, 3, 2, 8);
    let wanted = views * sizes
        + views * characters
        + views * states
        + sizes * characters
        + sizes * states
        + characters * states;
    assert_eq!(pairs.len(), wanted);
}

#[test]
fn what_differs_is_told_by_row() {
    assert_eq!(difference("a\nb\n", "a\nc\nd\n"), "   2 -b\n   2 +c\n   3 +d\n");
    assert_eq!(difference("a\n", "a\n"), "");
}
