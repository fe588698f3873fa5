//! `cargo xtask public-api`: the public API of `ttmem-client`, listed by cargo-public-api. It reads rustdoc's JSON, which only a
//! nightly toolchain writes, so CI does not run it; a test of `ttmem-client` compares the names in the listing.

use crate::packages::cargo_tool;
use crate::root;
use anyhow::{Context, bail, ensure};
use std::fs;
use std::process::{Command, Stdio};

const VERSION: &str = "0.52.0";

/// The listing, which is kept in git.
const LISTING: &str = "crates/ttmem-client/public-api.txt";

/// Writes the listing; `check`: fails if it differs instead.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let mut list = Command::new(cargo_tool("cargo-public-api", VERSION)?);
    list.current_dir(root()).args(["public-api", "--package", "ttmem-client", "-ss", "--color", "never"]);
    let output = list.stderr(Stdio::inherit()).output().context("cannot run cargo-public-api")?;
    ensure!(output.status.success(), "cargo-public-api ended with {}", output.status);
    let now = without_attributes(&String::from_utf8(output.stdout)?);
    let path = root().join(LISTING);
    let kept = fs::read_to_string(&path).unwrap_or_default();
    if kept == now {
        println!("{LISTING} is up to date");
        return Ok(());
    }
    if check {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (old, new) = (lines(&kept), lines(&now));
        for line in old.iter().filter(|line| !new.contains(line)) {
            println!("- {line}");
        }
        for line in new.iter().filter(|line| !old.contains(line)) {
            println!("+ {line}");
        }
        bail!("{LISTING} is out of date: run `cargo xtask public-api`");
    }
    fs::write(&path, now).with_context(|| format!("cannot write {LISTING}"))?;
    println!("wrote {LISTING}");
    Ok(())
}

/// Removes attributes, such as layouts, which newer toolchains list and older ones do not.
fn without_attributes(listing: &str) -> String {
    let line = |line: &str| {
        let mut rest = line;
        while let Some((_, after)) = rest.strip_prefix("#[").and_then(|rest| rest.split_once("] ")) {
            rest = after;
        }
        rest.to_owned() + "\n"
    };
    listing.lines().map(line).collect()
}
