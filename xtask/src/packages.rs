//! Programs of the system that other commands call, and getting those that are missing.

use crate::succeed;
use anyhow::Context;
use std::process::{Command, Stdio};

/// Whether there is such a program.
pub(crate) fn has(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Installs Debian packages, through sudo if this is not root, and says so.
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    let root = rustix::process::geteuid().is_root();
    let through = if root { "" } else { " through sudo" };
    println!("installing with apt-get{through}: {}", packages.join(" "));
    let apt = |args: &[&str]| {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            command.arg("apt-get");
        }
        command.args(args);
        command
    };
    succeed(&mut apt(&["update", "-qq"]))?;
    succeed(apt(&["install", "-y", "-qq", "--no-install-recommends"]).args(packages)).with_context(|| {
        format!("these packages are needed, and only root can install them: {}", packages.join(" "))
    })
}
