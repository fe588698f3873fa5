//! Requirements of the agent in the processes that it is loaded into.

use crate::{build_release, installed_agent};
use anyhow::{Context, bail, ensure};
use std::process::Command;

/// Version of the C library that the wheels need (manylinux_2_34).
const NEWEST_GLIBC: (u32, u32) = (2, 34);

/// Libraries that every process has, or that come with the compiler and are compatible with older versions. A C++ library is
/// not among them: the agent uses the runtime's.
const LIBRARIES: [&str; 3] = ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];

/// Functions that it exports besides symbols of the runtime, for `ttmem-client` in the same process.
const FOR_CLIENTS: [&str; 4] =
    ["ttmem_agent_yield", "ttmem_agent_reset_peaks", "ttmem_agent_set_track", "ttmem_agent_mark"];

/// Checks that the agent runs on all systems that the wheels run on, and exports only what it must.
pub(crate) fn check_needs() -> anyhow::Result<()> {
    build_release()?;
    let library = installed_agent();
    let objdump = |what: &str| -> anyhow::Result<String> {
        let output =
            Command::new("objdump").arg(what).arg(&library).output().context("cannot run objdump")?;
        ensure!(output.status.success(), "objdump: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let dynamic = objdump("-p")?;
    let needed: Vec<&str> =
        dynamic.lines().filter_map(|line| line.trim().strip_prefix("NEEDED")).map(str::trim).collect();
    if let Some(other) = needed.iter().find(|it| !LIBRARIES.contains(it)) {
        bail!("the agent needs {other}");
    }
    let symbols = objdump("-T")?;
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut numbers = version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    let newest: (u32, u32) = versions.max().context("no version of the C library was found")?;
    ensure!(
        newest <= NEWEST_GLIBC,
        "the agent needs glibc {}.{}, newer than the wheels do",
        newest.0,
        newest.1
    );
    // An exported symbol replaces other libraries' of that name. Tests check that they are those of the agent's table
    // (`versions.rs` of the stand-in).
    let exported = symbols.lines().filter(|line| line.contains(" .text") && line.contains(" g "));
    let names: Vec<&str> = exported.filter_map(|line| line.split_whitespace().last()).collect();
    let ours = |name: &&&str| name.starts_with("_ZN2tt") || FOR_CLIENTS.contains(name);
    ensure!(names.len() > 10, "it exports {names:?} only");
    if let Some(other) = names.iter().find(|name| !ours(name)) {
        bail!("the agent exports {other}");
    }
    println!(
        "needs {} and glibc {}.{}; exports {} names",
        needed.join(", "),
        newest.0,
        newest.1,
        names.len()
    );
    Ok(())
}
