//! Programs in C and C++ that use the installed library as users do: built through pkg-config and CMake by both compilers, also
//! with sanitizers, and read by the installed `ttmem` while they hold memory.

use super::text;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"];
const SANITIZERS: [&str; 3] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];

/// A language and its compilers.
struct Language {
    compilers: [&'static str; 2],
    standards: &'static [&'static str],
    source: &'static str,
    /// Begin of its examples in the documentation.
    fence: &'static str,
    /// Extension of its files.
    extension: &'static str,
}

const LANGUAGES: [Language; 2] = [
    Language {
        compilers: ["gcc", "clang"],
        standards: &["c11"],
        source: "holds.c",
        fence: "```c",
        extension: "c",
    },
    Language {
        compilers: ["g++", "clang++"],
        standards: &["c++17", "c++20"],
        source: "holds.cpp",
        fence: "```cpp",
        extension: "cpp",
    },
];

/// How the library is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Dynamically.
    Shared,
    /// The whole program is static.
    Static,
    /// Dynamically, with sanitizers, which need a shared C library.
    Sanitized,
    /// Statically, with sanitizers.
    SanitizedArchive,
}

/// Memory that `holds.c` holds.
fn held_in_c() -> Value {
    json!([{ "device": "0x0000000000c0ffee",
        "dram": { "requested_bytes": 1_048_576, "allocated_bytes": 12 * 90_112, "count": 1, "basis": "exact" },
        "l1": { "requested_bytes": 65_536, "allocated_bytes": 64 * 2048, "count": 1, "basis": "exact" },
        "cb": { "registered_bytes": 8192, "resident_bytes": 8192, "basis": "exact" } }])
}

/// Memory that `holds.cpp` holds, reported by device number, so allocated bytes are unknown.
fn held_in_cpp() -> Value {
    let weights =
        json!({ "requested_bytes": 2 << 20, "allocated_bytes": null, "count": 1, "basis": "exact" });
    json!([{ "device": "ordinal-0", "dram": weights.clone() },
        { "device": "ordinal-1", "dram": weights,
          "l1": { "requested_bytes": 8192, "peak_bytes": 9216, "count": 1, "basis": "exact" },
          "cb": { "registered_bytes": 4096, "resident_bytes": null, "basis": "exact" } }])
}

/// Writes the documentation's examples that are whole programs to files. Each language must have one.
pub(super) fn extract_examples(root: &Path, work: &Path) -> anyhow::Result<()> {
    let mut pages: Vec<PathBuf> =
        fs::read_dir(root.join("docs"))?.map(|page| Ok(page?.path())).collect::<anyhow::Result<_>>()?;
    pages.retain(|page| page.extension().is_some_and(|it| it == "md"));
    pages.sort();
    for language in &LANGUAGES {
        let folder = work.join(format!("examples-{}", language.extension));
        fs::create_dir(&folder)?;
        let mut count = 0;
        for page in &pages {
            for example in examples(&fs::read_to_string(page)?, language.fence) {
                count += 1;
                let name = page.file_stem().unwrap_or_default().to_string_lossy();
                fs::write(folder.join(format!("{name}-{count}.{}", language.extension)), example)?;
            }
        }
        ensure!(
            count > 0,
            "no page in docs has an example that begins with {} and has a main",
            language.fence
        );
    }
    Ok(())
}

/// Fenced blocks that are whole programs.
fn examples(page: &str, fence: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim_end() == fence {
            let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim_end() != "```").collect();
            let block = block.join("\n") + "\n";
            if block.contains("int main") {
                found.push(block);
            }
        } else if line.starts_with("```") {
            // Another language's block, which may show fences of its own.
            lines.by_ref().find(|line| line.trim_end() == "```");
        }
    }
    found
}

/// Builds and runs all programs; returns their number.
pub(super) fn check(prefix: &Path, work: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for language in &LANGUAGES {
        let examples = fs::read_dir(work.join(format!("examples-{}", language.extension)))?;
        let examples: Vec<PathBuf> = examples.map(|file| Ok(file?.path())).collect::<anyhow::Result<_>>()?;
        for compiler in language.compilers {
            for standard in language.standards {
                for kind in [Kind::Shared, Kind::Static, Kind::Sanitized, Kind::SanitizedArchive] {
                    let build = |source: &Path| build(prefix, work, compiler, standard, kind, source);
                    check_usage_of(prefix, &build(&work.join(language.source))?, language)?;
                    count += 1;
                    // Examples run with sanitizers, too, in one linkage.
                    for example in examples.iter().filter(|_| matches!(kind, Kind::Shared | Kind::Sanitized))
                    {
                        run_example(prefix, example, &build(example)?)?;
                        count += 1;
                    }
                }
            }
        }
    }
    check_beside_rust(prefix, work)?;
    for compilers in [["gcc", "g++"], ["clang", "clang++"]] {
        count += check_cmake(prefix, work, compilers)?;
    }
    Ok(count)
}

/// Builds and runs a few programs after the prefix was moved.
pub(super) fn check_moved(prefix: &Path, work: &Path) -> anyhow::Result<usize> {
    let [c, cpp] = &LANGUAGES;
    check_usage_of(prefix, &build(prefix, work, "gcc", "c11", Kind::Shared, &work.join(c.source))?, c)?;
    check_usage_of(prefix, &build(prefix, work, "g++", "c++17", Kind::Static, &work.join(cpp.source))?, cpp)?;
    Ok(2 + check_cmake(prefix, work, ["gcc", "g++"])?)
}

fn held(language: &Language) -> Value {
    if language.extension == "c" { held_in_c() } else { held_in_cpp() }
}

/// Builds a program as a makefile does, with pkg-config's flags.
fn build(
    prefix: &Path,
    work: &Path,
    compiler: &str,
    standard: &str,
    kind: Kind,
    source: &Path,
) -> anyhow::Result<PathBuf> {
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    let to = work.join(format!("{name}-{compiler}-{standard}-{kind:?}"));
    let mut options: Vec<String> = vec![format!("-std={standard}"), "-O1".to_owned()];
    options.extend(WARNINGS.map(str::to_owned));
    let sanitized = matches!(kind, Kind::Sanitized | Kind::SanitizedArchive);
    options.extend(SANITIZERS.iter().filter(|_| sanitized).map(|&it| it.to_owned()));
    let pkg_config = |args: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new("pkg-config");
        // No library of the system can be found instead.
        command.args(args).arg("ttmem").env("PKG_CONFIG_LIBDIR", prefix.join("lib/pkgconfig"));
        Ok(text(&command.output()?)?.trim().to_owned())
    };
    let flags = pkg_config(&["--cflags"])?;
    let libraries = match kind {
        Kind::Shared | Kind::Sanitized => pkg_config(&["--libs"])?,
        Kind::Static => format!("-static {}", pkg_config(&["--libs", "--static"])?),
        Kind::SanitizedArchive => {
            let archive = prefix.join("lib/libttmem.a");
            format!(
                "'{}' {}",
                archive.display(),
                pkg_config(&["--libs-only-l", "--static"])?.replace("-lttmem", "")
            )
        }
    };
    // pkg-config quotes blanks in paths for the shell.
    let mut command = Command::new("sh");
    command.args(["-euc", r#"more=$1; shift; eval "\"\$@\" $more""#, "sh", &format!("{flags} {libraries}")]);
    command.arg(compiler).args(&options).arg(source).arg("-o").arg(&to);
    let output = command.output()?;
    text(&output).with_context(|| {
        format!("cannot build {} by {compiler} as {standard}, {kind:?}", source.display())
    })?;
    Ok(to)
}

/// A folder for a program's segment.
fn segments() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("ttmem-prefix.").tempdir_in("/dev/shm")?)
}

/// A command that runs a program with the library and with tracking.
fn command(prefix: &Path, program: &Path, segments: &TempDir) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env("TTMEM", "1")
        .env("TTMEM_SHM_DIR", segments.path());
    command
}

/// Runs a program until it holds all its memory, compares its usage in the installed `ttmem`, and ends it.
fn check_usage_of(prefix: &Path, program: &Path, language: &Language) -> anyhow::Result<()> {
    let folder = segments()?;
    let mut child = command(prefix, program, &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let mut printed = String::new();
    let mut output = BufReader::new(child.stdout.take().context("it has an output")?);
    output.read_line(&mut printed)?;
    let compared = if printed == "holding\n" {
        compare_usage(prefix, &folder, child.id(), &held(language))
    } else {
        Ok(())
    };
    // The program exits when its input ends.
    drop(child.stdin.take());
    let ended = child.wait()?;
    let mut errors = String::new();
    child.stderr.take().context("it has an error output")?.read_to_string(&mut errors)?;
    output.read_to_string(&mut printed)?;
    let name = program.display();
    ensure!(ended.success() && errors.is_empty(), "{name} ended with {ended}: {errors}");
    ensure!(printed == "holding\n", "{name} printed {printed:?}");
    compared.with_context(|| format!("while {name} held it"))?;
    ensure!(fs::read_dir(folder.path())?.next().is_none(), "{name} left its segment behind");
    Ok(())
}

/// Compares a process's usage in the installed program with the expected values.
fn compare_usage(prefix: &Path, folder: &TempDir, pid: u32, expected: &Value) -> anyhow::Result<()> {
    let found = usage(prefix, folder, pid)?;
    match difference(expected, &found, "usage") {
        Some(difference) => bail!("{difference} in {found}"),
        None => Ok(()),
    }
}

/// A process's usage in the installed program.
fn usage(prefix: &Path, folder: &TempDir, pid: u32) -> anyhow::Result<Value> {
    let mut ttmem = Command::new(prefix.join("bin/ttmem"));
    ttmem.args(["--json", "--local", "--pid", &pid.to_string(), "--shm-dir"]).arg(folder.path());
    let mut all: Value = serde_json::from_str(&text(&ttmem.output()?)?)?;
    let process = &all["processes"][0];
    ensure!(process["pid"] == pid && process["complete"] == true, "it is not seen, or not exactly: {all}");
    ensure!(all["findings"] == json!([]), "there are findings: {}", all["findings"]);
    Ok(all["processes"][0]["usage"].take())
}

/// The first difference from the expected values. Further keys of objects are ignored, further items of lists are not.
fn difference(expected: &Value, found: &Value, path: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => expected.iter().find_map(|(key, value)| {
            difference(value, found.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))
        }),
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(n, (a, b))| difference(a, b, &format!("{path}[{n}]")))
        }
        _ => (expected != found).then(|| format!("{path} is {found} and not {expected}")),
    }
}

/// Runs an example with tracking on and off; the installed `ttmem` must show one that waits for input.
fn run_example(prefix: &Path, source: &Path, program: &Path) -> anyhow::Result<()> {
    let name = program.display();
    let folder = segments()?;
    let mut child = command(prefix, program, &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let mut seen = false;
    while !seen && child.try_wait()?.is_none() {
        // The process may not have started.
        seen = usage(prefix, &folder, child.id()).is_ok_and(|usage| usage[0].is_object());
    }
    drop(child.stdin.take());
    let ended = child.wait()?;
    ensure!(ended.success(), "{name} ended with {ended}");
    let waits = fs::read_to_string(source)?.contains("getchar");
    ensure!(seen || !waits, "{name} ended before its input did");

    let mut command = command(prefix, program, &folder);
    let untracked = command.env("TTMEM", "0").stdin(Stdio::null()).output()?;
    text(&untracked).with_context(|| format!("{name} with TTMEM=0"))?;
    Ok(())
}

/// Checks that the static library can be linked with another library written in Rust.
fn check_beside_rust(prefix: &Path, work: &Path) -> anyhow::Result<()> {
    let (source, library, to) = (work.join("other.rs"), work.join("libother.a"), work.join("beside-rust"));
    let mut rustc = Command::new("rustc");
    rustc.args(["--crate-type", "staticlib", "--edition", "2024", "-o"]).arg(&library).arg(&source);
    text(&rustc.output()?)?;
    let main = work.join("beside_rust.c");
    let mut link = Command::new("gcc");
    link.arg("-I").arg(prefix.join("include")).arg(main).arg("-Wl,--whole-archive");
    link.arg(prefix.join("lib/libttmem.a"))
        .arg(library)
        .args(["-Wl,--no-whole-archive", "-lm", "-o"])
        .arg(&to);
    text(&link.output()?).context("libttmem.a cannot be linked beside another Rust library")?;
    let folder = segments()?;
    let printed = text(&command(prefix, &to, &folder).output()?)?;
    ensure!(printed == "42 1\n", "with another Rust library it prints {printed:?}");
    Ok(())
}

/// Builds and runs all programs through CMake; returns their number.
fn check_cmake(prefix: &Path, work: &Path, [c, cpp]: [&str; 2]) -> anyhow::Result<usize> {
    let build = tempfile::Builder::new().prefix("cmake-").tempdir_in(work)?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(work).arg("-B").arg(build.path());
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    configure.args([&format!("-DCMAKE_C_COMPILER={c}"), &format!("-DCMAKE_CXX_COMPILER={cpp}")]);
    text(&configure.output()?).context("cmake does not find ttmem")?;
    text(&Command::new("cmake").arg("--build").arg(build.path()).args(["--parallel", "2"]).output()?)?;
    let mut count = 0;
    for kind in ["ttmem", "static"] {
        for (program, language) in [("c11", 0), ("cxx17", 1), ("cxx20", 1)] {
            check_usage_of(prefix, &build.path().join(format!("{program}-{kind}")), &LANGUAGES[language])?;
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_programs_are_found_in_a_page() {
        let page = "# C\n```c\nint x;\n```\n```sh\ncc x.c\n```\n```cpp\nint main() {}\n```\n```c\nint main(void) {\n}\n```\n";
        assert_eq!(examples(page, "```c"), ["int main(void) {\n}\n"]);
        assert_eq!(examples(page, "```cpp"), ["int main() {}\n"]);
        assert!(examples("```c\nint main", "```cpp").is_empty());
    }

    #[test]
    fn only_expected_keys_are_compared() {
        let found = json!({ "a": 1, "b": [{ "c": null, "d": 5 }] });
        assert_eq!(difference(&json!({ "a": 1, "b": [{ "c": null }] }), &found, "it"), None);
        assert_eq!(
            difference(&json!({ "b": [{ "d": 6 }] }), &found, "it").unwrap(),
            "it.b[0].d is 5 and not 6"
        );
        assert!(difference(&json!({ "e": 0 }), &found, "it").is_some());
        assert!(difference(&json!({ "b": [] }), &found, "it").is_some());
    }
}
