//! `libttmem.so` and `libttmem.a`, linked from rustc's static library of `crates/ttmem-c`.
//!
//! rustc's own shared libraries cannot have versioned symbols, and its static ones export all of Rust's standard library. So
//! rustc builds a static library, from which the linker makes a shared one that exports only `ttmem.symbols`, and a single
//! object in which all other symbols are local.

use crate::{header, root, succeed};
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that the static library needs, from rustc. A newer C library contains them all; the compiler adds its own
/// unwinder, another one for `-static`.
pub(super) const PRIVATE: &str = "-lutil -lrt -lpthread -lm -ldl";

/// Libraries that every process has, or that come with the compiler.
const NEEDED: [&str; 3] = ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];

/// Sections with bytecode of Rust's standard library, which no compiler needs here. Tools with a plugin for another version
/// of it fail on them.
const BYTECODE: [&str; 2] = [".llvmbc", ".llvmcmd"];

/// The name that programs load at start.
pub(super) fn soname() -> String {
    format!("libttmem.so.{}", env!("CARGO_PKG_VERSION_MAJOR"))
}

/// The file's full name.
pub(super) fn shared_name() -> String {
    concat!("libttmem.so.", env!("CARGO_PKG_VERSION")).to_owned()
}

/// The symbols that the shared library exports, and the version of the interface that introduced each.
fn symbols() -> anyhow::Result<BTreeMap<String, String>> {
    let path = root().join("packaging/ttmem.symbols");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let pairs = lines.map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, version] => Ok((name.to_owned(), version.to_owned())),
        _ => bail!("ttmem.symbols: expected a name and a version: {line}"),
    });
    pairs.collect()
}

/// Links both libraries in a folder: the shared one and the static one.
pub(super) fn make(release: &Path, folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let archive = release.join("libttmem_c.a");
    ensure!(archive.is_file(), "{} is not there: build it first", archive.display());
    let symbols = symbols()?;
    let declared: BTreeSet<String> = header::functions()?.into_iter().collect();
    let listed: BTreeSet<String> = symbols.keys().cloned().collect();
    ensure!(
        declared == listed,
        "packaging/ttmem.symbols and include/ttmem.h disagree: {:?}",
        declared.symmetric_difference(&listed).collect::<Vec<_>>()
    );
    let names: Vec<&String> = symbols.keys().collect();
    let shared = make_shared(&archive, folder, &symbols)?;
    let fixed = make_static(&archive, folder, &names)?;
    Ok((shared, fixed))
}

fn make_shared(archive: &Path, folder: &Path, symbols: &BTreeMap<String, String>) -> anyhow::Result<PathBuf> {
    let script = folder.join("ttmem.map");
    fs::write(&script, version_script(symbols))?;
    let library = folder.join(shared_name());
    let mut link = Command::new("cc");
    link.args(["-shared", "-o"]).arg(&library);
    link.arg(format!("-Wl,--version-script={}", script.display()));
    link.arg(format!("-Wl,-soname,{}", soname()));
    link.args(symbols.keys().map(|name| format!("-Wl,-u,{name}")));
    link.args([
        "-Wl,--gc-sections,--as-needed,--build-id=sha1,-O1",
        "-Wl,-z,relro,-z,now,-z,defs,-z,noexecstack",
    ]);
    // Otherwise a program that unloads the library while a thread ends would crash.
    link.args(["-Wl,-z,nodelete", "-Wl,--strip-all"]);
    succeed(link.arg(archive).args(PRIVATE.split(' ')))?;
    check_shared(&library, symbols)?;
    Ok(library)
}

/// The linker's version script: each version lists its new symbols, and inherits the one before.
fn version_script(symbols: &BTreeMap<String, String>) -> String {
    let versions: BTreeSet<&String> = symbols.values().collect();
    let mut text = String::new();
    let mut before = String::new();
    for version in versions {
        let _ = writeln!(text, "{version} {{\n  global:");
        for (name, _) in symbols.iter().filter(|(_, of)| *of == version) {
            let _ = writeln!(text, "    {name};");
        }
        if before.is_empty() {
            text.push_str("  local:\n    *;\n");
        }
        let _ = writeln!(text, "}}{before};");
        before = format!(" {version}");
    }
    text
}

/// Checks that exactly these symbols are exported, and that only libraries are needed that every system has.
fn check_shared(library: &Path, symbols: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let exported =
        output(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library))?;
    let exported: BTreeMap<String, String> = exported
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter_map(|name| name.split_once("@@"))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect();
    if exported != *symbols {
        let missing: Vec<_> = symbols.iter().filter(|(name, of)| exported.get(*name) != Some(*of)).collect();
        let more: Vec<_> = exported.iter().filter(|(name, of)| symbols.get(*name) != Some(*of)).collect();
        bail!("libttmem.so and packaging/ttmem.symbols disagree: missing {missing:?}, not listed {more:?}");
    }
    let dynamic = output(Command::new("objdump").arg("-p").arg(library))?;
    let needed = dynamic.lines().filter_map(|line| line.trim().strip_prefix("NEEDED")).map(str::trim);
    for library in needed {
        ensure!(NEEDED.contains(&library), "libttmem.so needs {library}");
    }
    Ok(())
}

fn make_static(archive: &Path, folder: &Path, names: &[&String]) -> anyhow::Result<PathBuf> {
    let (whole, object) = (folder.join("whole.o"), folder.join("ttmem.o"));
    let mut link = Command::new("ld");
    // Without this option, sections that several Rust libraries have would be dropped in favour of another library's,
    // although their symbols are local here.
    link.args(["-r", "--gc-sections", "--force-group-allocation", "-o"]).arg(&whole);
    succeed(link.args(names.iter().map(|name| format!("--undefined={name}"))).arg(archive))?;

    let (public, weak) = (folder.join("public"), folder.join("weak"));
    fs::write(&public, lines(names))?;
    // Functions that only newer C libraries have: the linker makes them strong when it drops sections.
    fs::write(&weak, lines(&weak_names(archive)?))?;
    let mut strip = Command::new("objcopy");
    strip.arg(format!("--keep-global-symbols={}", public.display()));
    strip.arg(format!("--weaken-symbols={}", weak.display())).arg("--strip-unneeded");
    strip.args(BYTECODE.iter().flat_map(|section| ["--remove-section", section]));
    succeed(strip.arg(&whole).arg(&object))?;

    let library = folder.join("libttmem.a");
    succeed(Command::new("ar").arg("rcsD").arg(&library).arg(&object))?;
    let defined = output(Command::new("nm").args(["--defined-only", "--extern-only"]).arg(&library))?;
    let defined: BTreeSet<&str> =
        defined.lines().filter_map(|line| line.split_once(" T ")).map(|it| it.1).collect();
    let wanted: BTreeSet<&str> = names.iter().map(|name| name.as_str()).collect();
    ensure!(
        defined == wanted,
        "libttmem.a shows {:?}",
        defined.symmetric_difference(&wanted).collect::<Vec<_>>()
    );
    Ok(library)
}

/// Symbols that the archive uses only if they exist.
fn weak_names(archive: &Path) -> anyhow::Result<Vec<String>> {
    let all = output(Command::new("readelf").args(["--symbols", "--wide"]).arg(archive))?;
    let weak = all.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, _, _, _, "WEAK", _, "UND", name] => Some(name.to_owned()),
        _ => None,
    });
    Ok(weak.collect::<BTreeSet<_>>().into_iter().collect())
}

fn lines(names: &[impl AsRef<str>]) -> String {
    names.iter().fold(String::new(), |text, name| text + name.as_ref() + "\n")
}

/// The output of a command.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_lists_its_symbols_and_inherits_the_last() {
        let names = [("a", "TTMEM_0"), ("b", "TTMEM_1"), ("c", "TTMEM_0")];
        let symbols = names.iter().map(|&(name, of)| (name.to_owned(), of.to_owned())).collect();
        assert_eq!(
            version_script(&symbols),
            "TTMEM_0 {\n  global:\n    a;\n    c;\n  local:\n    *;\n};\nTTMEM_1 {\n  global:\n    b;\n} TTMEM_0;\n"
        );
    }
}
