//! The cost of an event in C and in Rust, in turns.

use super::segment::event_cost;
use super::{Figure, median};
use crate::{root, succeed, target};
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIVE: usize = 1000;
const EVENTS: usize = 2_000_000;
/// Turns of each, since other load on the machine changes within seconds.
const TURNS: usize = 9;

pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let shared = build(folder.path(), true)?;
    let fixed = build(folder.path(), false)?;
    let mut costs = [const { Vec::new() }; 3];
    for _ in 0..TURNS {
        costs[0].push(event_cost(LIVE, 1, EVENTS)?);
        costs[1].push(cost(&shared)?);
        costs[2].push(cost(&fixed)?);
    }
    let ratio = |of: &[f64]| median(of.iter().zip(&costs[0]).map(|(c, rust)| c / rust).collect());
    let ratios = [ratio(&costs[1]), ratio(&costs[2])];
    let [rust, shared, fixed] = costs.map(median);
    Ok(vec![
        Figure::plain("Rust: an event, 1,000 live", "-", rust, "ns"),
        Figure::plain("C, shared library: an event, 1,000 live", "-", shared, "ns"),
        Figure::plain("C, static library: an event, 1,000 live", "-", fixed, "ns"),
        Figure::at_most("C over Rust, shared library", "-", 1.1, ratios[0], "x"),
        Figure::at_most("C over Rust, static library", "-", 1.1, ratios[1], "x"),
    ])
}

fn build(folder: &Path, shared: bool) -> anyhow::Result<PathBuf> {
    let library = target().join("release/libttmem_c.a");
    let program = folder.join(if shared { "shared" } else { "static" });
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-O2", "-D_GNU_SOURCE", "-I"]).arg(root().join("include"));
    compile.arg(root().join("xtask/src/bench/c_bench.c")).arg("-o").arg(&program);
    if shared {
        let made = folder.join("libttmem.so");
        let mut link = Command::new("cc");
        link.args(["-shared", "-Wl,--whole-archive"]).arg(&library).arg("-Wl,--no-whole-archive");
        // As in the installed library, its own calls are bound to itself.
        succeed(link.args(["-Wl,--gc-sections", "-Wl,-Bsymbolic", "-Wl,-z,now", "-o"]).arg(&made))?;
        compile.arg(made).arg(format!("-Wl,-rpath,{}", folder.display()));
    } else {
        compile.arg(library).args(["-lpthread", "-ldl", "-lm"]);
    }
    succeed(&mut compile)?;
    Ok(program)
}

/// One turn of the program in C.
fn cost(program: &Path) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let mut command = Command::new(program);
    command.args([LIVE.to_string(), EVENTS.to_string()]);
    let output = command.env("TTMEM", "1").env("TTMEM_SHM_DIR", folder.path()).output()?;
    ensure!(output.status.success(), "the program in C ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().with_context(|| format!("the program in C printed {text:?}"))
}
