//! `cargo xtask ci`: what CI runs, in the order in which it fails fastest.

use crate::packages::{has, install};
use crate::{cargo, fuzz, root, succeed};
use anyhow::{Context, bail, ensure};
use std::process::Command;
use std::time::{Duration, Instant};

/// Programs that tests and checks call, and the Debian packages that have them.
const NEEDED: [(&str, &str); 20] = [
    ("nc", "netcat-openbsd"),
    ("strace", "strace"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("mkfifo", "coreutils"),
    ("chroot", "coreutils"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("prlimit", "util-linux"),
    ("python3", "python3"),
    ("g++", "g++"),
    ("clang++", "clang"),
    ("nm", "binutils"),
    ("setarch", "util-linux"),
    ("bash", "bash"),
    ("cmake", "cmake"),
    ("make", "make"),
    ("pkg-config", "pkg-config"),
    ("groff", "groff-base"),
];

const FUZZ_SECONDS: u64 = 20;
const DRIFT_STEPS: u64 = 5000;
const DENY_VERSION: &str = "0.20.2";

type Step = (&'static str, fn() -> anyhow::Result<()>);

const STEPS: [Step; 18] = [
    ("prerequisites", prerequisites),
    ("format", format),
    ("generated files", || crate::generated::run(true)),
    ("lints", || {
        let features = ["--features", "ttmem/lab,ttmem-agent/probe"];
        let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--locked"]);
        succeed(clippy.args(features).args(["--", "-D", "warnings"]))
    }),
    ("docs", docs),
    ("tests", || succeed(&mut cargo(&["test", "--workspace", "--locked"]))),
    ("release build", || succeed(&mut cargo(&["build", "--release", "--locked"]))),
    ("installed prefix", crate::prefix::run),
    ("python", crate::python::run),
    ("what the agent needs", crate::agent::check_needs),
    ("lab", lab),
    ("agent in stock ttnn", agent_in_ttnn),
    ("drift", || crate::drift::run(DRIFT_STEPS, 1, &[])),
    ("order of stores", crate::loom::run),
    ("truth", || crate::truth::run(&[], true)),
    ("demo", demo),
    ("licences and sources", deny),
    ("fuzzing", || fuzz::run(FUZZ_SECONDS)),
];

pub(crate) fn run() -> anyhow::Result<()> {
    let mut results: Vec<(&str, Duration, Option<anyhow::Error>)> = Vec::new();
    for (name, step) in STEPS {
        println!("\n=== {name} ===");
        let begin = Instant::now();
        let failure = step().err();
        if let Some(e) = &failure {
            println!("--- {name} failed: {e:#}");
        }
        results.push((name, begin.elapsed(), failure));
    }
    println!("\n=== summary ===");
    for (name, time, failure) in &results {
        let verdict = failure.as_ref().map_or_else(|| "ok".to_owned(), |e| format!("FAILED: {e:#}"));
        println!("{name:<22} {:>6.1} s  {verdict}", time.as_secs_f64());
    }
    let failed = results.iter().filter(|(_, _, failure)| failure.is_some()).count();
    println!("{} passed, {failed} failed", results.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} steps failed", results.len());
    }
    Ok(())
}

fn prerequisites() -> anyhow::Result<()> {
    let mut missing: Vec<&str> =
        NEEDED.into_iter().filter(|(program, _)| !has(program)).map(|(_, package)| package).collect();
    missing.dedup();
    if !clang_has_sanitizers() {
        missing.push("libclang-rt-dev");
    }
    if missing.is_empty() {
        println!("everything is there");
        return Ok(());
    }
    install(&missing)?;
    match NEEDED.into_iter().find(|(program, _)| !has(program)) {
        Some((program, package)) => bail!("{program} is still missing after installing {package}"),
        None => {
            ensure!(clang_has_sanitizers(), "clang has no sanitizers, though libclang-rt-dev was installed");
            Ok(())
        }
    }
}

/// They come in a package of their own, and no program tells.
fn clang_has_sanitizers() -> bool {
    let program = "echo 'int main(void) { return 0; }' | clang -fsanitize=address -x c - -o /dev/null";
    Command::new("sh").args(["-c", program]).output().is_ok_and(|output| output.status.success())
}

fn format() -> anyhow::Result<()> {
    succeed(&mut cargo(&["fmt", "--all", "--check"]))?;
    succeed(cargo(&["fmt", "--check"]).current_dir(root().join("fuzz")))
}

fn docs() -> anyhow::Result<()> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    succeed(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The first command of the README, for a moment.
fn demo() -> anyhow::Result<()> {
    let args = ["run", "--release", "--locked", "--quiet", "--", "demo", "--seconds", "3", "--ascii"];
    let output = cargo(&args).output().context("cannot run the demo")?;
    let page = String::from_utf8_lossy(&output.stdout);
    let frames = page.matches("| ttmem ").count();
    if !output.status.success() || frames < 3 || !page.contains("demo-llm") {
        bail!("the demo showed {frames} tables: {}", String::from_utf8_lossy(&output.stderr));
    }
    println!("{frames} tables, the last one:\n{}", page.rsplit("\n\n+--").next().unwrap_or_default());
    Ok(())
}

/// Stock ttnn: the newest that we know, an older one, and the oldest that opens a device here.
fn lab() -> anyhow::Result<()> {
    for version in [crate::drift::OLDER, crate::drift::OLDEST] {
        crate::lab::prepare(version)?;
    }
    crate::lab::smoke(crate::lab::TTNN)
}

fn agent_in_ttnn() -> anyhow::Result<()> {
    succeed(&mut cargo(&["build", "--locked", "-p", "ttmem", "-p", "ttmem-agent"]))?;
    succeed(&mut cargo(&["test", "--locked", "-p", "ttmem", "--features", "lab", "--test", "lab"]))
}

/// cargo-deny has no package that works with this cargo, so it is built once, with little optimisation.
fn deny() -> anyhow::Result<()> {
    let tools = root().join("target/tools");
    let program = tools.join("bin/cargo-deny");
    if !program.exists() {
        println!("building cargo-deny {DENY_VERSION} into target/tools");
        let mut install =
            cargo(&["install", "cargo-deny", "--version", DENY_VERSION, "--locked", "--quiet", "--root"]);
        install.arg(&tools);
        for option in ["lto=false", "codegen-units=16", "opt-level=1"] {
            install.args(["--config", &format!("profile.release.{option}")]);
        }
        succeed(&mut install)?;
    }
    let mut check = Command::new(program);
    check.current_dir(root()).args([
        "--workspace",
        "--offline",
        "--locked",
        "check",
        "bans",
        "licenses",
        "sources",
    ]);
    succeed(&mut check)
}
