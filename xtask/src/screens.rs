//! `cargo xtask screens`: the README's pictures, of the real program. Not part of CI: a picture of other figures each time
//! would be of no use there; that what is written is well-formed is tested.

mod svg;

use crate::{build_release, root, target};
use anyhow::Context;
use std::process::Command;
use ttmem_testkit::terminal::Terminal;

const SIZE: (u16, u16) = (120, 34);
/// Looks before the first picture: charts show a minute, and the demo takes a while to do all it does.
const BEFORE: usize = 130;
/// Of each picture: its name, and the keys that lead to it.
const PICTURES: [(&str, &str); 6] = [
    ("charts", "2"),
    ("telemetry", "3"),
    ("map", "4"),
    ("buffers", "5"),
    ("programs", "6"),
    // Last, so that its own window has been filled.
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
    terminal.wait_for_frames(BEFORE);
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
