//! `cargo xtask fuzz`: runs every fuzz target for a time. The flags are in `fuzz/.cargo/config.toml`.

use crate::{cargo, root, succeed};
use anyhow::{Context, bail};
use std::fs;
use std::process::{Command, Stdio};

/// Names of the fuzz targets.
fn targets() -> anyhow::Result<Vec<String>> {
    let folder = root().join("fuzz/src/bin");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

pub(crate) fn run(seconds: u64) -> anyhow::Result<()> {
    let folder = root().join("fuzz");
    // Flags from outside would silently replace those that fuzzing needs.
    let mut build =
        cargo(&["build", "--release", "--locked", "--quiet", "--features", "libfuzzer", "--bins"]);
    build.current_dir(&folder).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    build.env_remove("CARGO_TARGET_DIR");
    succeed(&mut build)?;
    for target in targets()? {
        // libFuzzer adds new inputs to the first folder; the corpus in git is changed by hand only.
        let [found, artifacts] = ["found", "artifacts"].map(|name| folder.join(name).join(&target));
        fs::create_dir_all(&found)?;
        fs::create_dir_all(&artifacts)?;
        let program = folder.join("target/x86_64-unknown-linux-gnu/release").join(&target);
        println!("{target}: {seconds} s");
        let output = Command::new(&program)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .arg(&found)
            .arg(folder.join("corpus").join(&target))
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let log = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            println!("{log}");
            bail!(
                "{target} failed on an input; it is in {}. When fixed, add it to fuzz/corpus/{target}",
                artifacts.display()
            );
        }
        if !log.contains("INFO: Loaded 1 modules") {
            bail!("{target} is not instrumented: it would find nothing");
        }
        let closing =
            log.lines().filter(|line| line.contains("DONE") || line.contains("number_of_executed_units"));
        closing.for_each(|line| println!("  {line}"));
    }
    Ok(())
}
