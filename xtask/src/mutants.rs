//! `cargo xtask mutants`: cargo-mutants changes one function at a time and expects a test to fail. `.cargo/mutants.toml`
//! selects files and tests.

use crate::packages::cargo_tool;
use crate::{root, succeed};
use std::process::Command;

const VERSION: &str = "27.1.0";

pub(crate) fn run(args: &[&str]) -> anyhow::Result<()> {
    let program = cargo_tool("cargo-mutants", VERSION)?;
    let output = root().join("target");
    succeed(Command::new(program).current_dir(root()).args(["mutants", "--output"]).arg(output).args(args))
}
