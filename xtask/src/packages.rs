//! System programs that other commands call, and the installation of missing ones.

use crate::{cargo, root, succeed};
use anyhow::Context;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Whether a program is installed.
pub(crate) fn has(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Installs Debian packages, through sudo if this is not root, and prints their names.
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    let root = rustix::process::geteuid().is_root();
    let through = if root { "" } else { " through sudo" };
    println!("installing with apt-get{through}: {}", packages.join(" "));
    let apt = |args: &[&str]| {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            command.arg("apt-get");
        }
        // Another package manager, such as a machine's first update, may hold the lock for a while.
        command.args(["-o", "DPkg::Lock::Timeout=120"]).args(args).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let missing = || format!("cannot install these packages, which are needed: {}", packages.join(" "));
    succeed(&mut apt(&["update", "-qq"])).with_context(missing)?;
    succeed(apt(&["install", "-y", "-qq", "--no-install-recommends"]).args(packages)).with_context(missing)
}

/// Path of a cargo subcommand of a version, which is built into `target/tools` if it is missing.
pub(crate) fn cargo_tool(name: &str, version: &str) -> anyhow::Result<PathBuf> {
    let tools = root().join("target/tools").join(format!("{name}-{version}"));
    let program = tools.join("bin").join(name);
    if !program.exists() {
        println!("building {name} {version} into target/tools");
        let mut install = cargo(&["install", name, "--version", version, "--locked", "--quiet", "--root"]);
        succeed(install.arg(&tools)).with_context(|| format!("cannot build {name} {version}"))?;
    }
    Ok(program)
}
