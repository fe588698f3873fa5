//! The cost of a call from Python.

use super::Figure;
use super::calibration::Calibration;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::process::Command;

/// Measures in the interpreter's thread, and prints nanoseconds by name.
const SCRIPT: &str = include_str!("python.py");

pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let (_, python) = crate::python::install()?;
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let mut script = Command::new(python);
    script.args(["-c", SCRIPT]).env("TTMEM_SHM_DIR", folder.path()).env_remove("TTMEM_TRANSPORT");
    let output = script.output().context("cannot run Python")?;
    ensure!(output.status.success(), "the calls failed: {}", String::from_utf8_lossy(&output.stderr));
    let measured: Value = serde_json::from_slice(&output.stdout).context("no figures")?;
    let ns = |name: &str| measured[name].as_f64().with_context(|| format!("{name} was not measured"));
    let nothing = Calibration::measured("call of an empty function", ns("nothing")?);
    let budget = |what: &str, name: &str| Ok(nothing.allows(6.0, what, ns(name)?, "ns"));
    let plain = |what: &str, name: &str| Ok(Figure::plain(what, "same run", ns(name)?, "ns"));
    let all: anyhow::Result<Vec<Figure>> = [
        budget("Python: Tracker.alloc, 1,000 live, CPU a call", "alloc"),
        budget("Python: Tracker.free, the same", "free"),
        budget("Python: Tracker.alloc within ttmem.track", "labelled_alloc"),
        budget("Python: ttmem.alloc, by device number", "alloc_by_number"),
        budget("Python: ttmem.free, by device number", "free_by_number"),
        plain("Python: Tracker.alloc while tracking is off", "alloc_off"),
        plain("Python: the loop around them, taken off", "loop"),
    ]
    .into_iter()
    .collect();
    all
}
