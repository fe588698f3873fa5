//! `cargo xtask screens`: draws the README's pictures of the real program. Not part of CI, since the figures differ each time;
//! tests check that pictures are well-formed.

mod svg;

use crate::{build_release, root, target};
use anyhow::Context;
use std::process::Command;
use ttmem_testkit::terminal::Terminal;

const SIZE: (u16, u16) = (120, 34);
/// Frames before the first picture: charts show a minute, and the demo needs a while to show everything.
const WARM_UP_FRAMES: usize = 130;
/// Pictures: their names, and the keys that lead to them.
const PICTURES: [(&str, &str); 6] = [
    ("charts", "2"),
    ("telemetry", "3"),
    ("map", "4"),
    ("buffers", "5"),
    ("programs", "6"),
    // Last, so that its history is filled.
    ("main", "1"),
];

pub(crate) fn run() -> anyhow::Result<()> {
    build_release()?;
    let folder = root().join("docs/screens");
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new(target().join("release/ttmem"));
    command.args(["demo", "--sim", "t3k", "--theme", "dark"]).env("COLORTERM", "truecolor");
    let mut terminal = Terminal::start(&command, SIZE);
    terminal.wait_for_text("demo-llm");
    terminal.wait_for_frames(WARM_UP_FRAMES);
    for (name, keys) in PICTURES {
        terminal.send(keys);
        terminal.wait_for_frames(4);
        let picture = terminal.wait_for("a whole frame", |screen| Some(svg::write(screen)));
        let path = folder.join(name).with_extension("svg");
        std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    terminal.send("q");
    anyhow::ensure!(terminal.wait().success(), "the demo failed");
    Ok(())
}
