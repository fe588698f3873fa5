//! `cargo xtask gen`: files that are generated from code and kept in the repository.

use crate::{cargo, dataclasses, exceptions, header, root};
use anyhow::{Context, bail, ensure};
use std::fs;

/// Writes the files that are out of date; with `check`, fails if there are any.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let schema = schema()?;
    let files = [
        ("include/ttmem.h", header::header()?),
        ("python/package/ttmem/_errors.py", exceptions::module()),
        ("python/package/ttmem/_schema.py", dataclasses::module(&schema)?),
        ("docs/snapshot.schema.json", schema),
        ("docs/fields.md", ttmem_render::docs::fields_page()),
        ("docs/columns.md", ttmem_render::docs::columns_page()),
    ];
    let mut differences = Vec::new();
    for (name, now) in files {
        let path = root().join(name);
        let kept = fs::read_to_string(&path).unwrap_or_default();
        if kept == now {
            println!("{name} is up to date");
        } else if check {
            differences.push(difference(name, &kept, &now));
        } else {
            fs::create_dir_all(path.parent().unwrap_or(&root()))?;
            fs::write(&path, now).with_context(|| format!("cannot write {name}"))?;
            println!("wrote {name}");
        }
    }
    if !differences.is_empty() {
        bail!("{}\nrun `cargo xtask gen`", differences.join("\n"));
    }
    Ok(())
}

/// Describes the first line in which a file is out of date.
fn difference(name: &str, kept: &str, now: &str) -> String {
    let differs = kept.lines().zip(now.lines()).position(|(a, b)| a != b);
    let at = differs.unwrap_or_else(|| kept.lines().count().min(now.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(nothing)").to_owned();
    format!("{name} is out of date: line {} is\n  {}\nand would be\n  {}", at + 1, line(kept), line(now))
}

/// Returns the JSON Schema of snapshots. A separate program prints it: as a dependency of xtask, the feature `schema` would be
/// unified into every build of the workspace.
fn schema() -> anyhow::Result<String> {
    let mut print = cargo(&["run", "--quiet", "--locked", "--package", "ttmem-core"]);
    print.args(["--features", "schema", "--example", "schema"]).stderr(std::process::Stdio::inherit());
    let output = print.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cannot make the schema: cargo ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
