//! `cargo xtask ci`: all that CI runs, fast failures first; `cargo xtask check`: its quick part.

use crate::lab::compiler;
use crate::packages::{has, install};
use crate::{build_release, cargo, lab, succeed, target};
use anyhow::{Context, anyhow, bail, ensure};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Programs that tests and checks call, and the Debian packages that contain them.
const NEEDED: [(&str, &str); 22] = [
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
    // For the lab's stand-in for the kernel compiler.
    (compiler::PROGRAMS[0], compiler::PACKAGE),
    (compiler::PROGRAMS[1], compiler::PACKAGE),
];

const DRIFT_STEPS: u64 = 5000;

/// A step of a run, and a line of its summary.
struct Step {
    name: &'static str,
    run: fn() -> anyhow::Result<()>,
    /// Whether the run ends if this step fails, since later ones would be meaningless.
    essential: bool,
}

const fn step(name: &'static str, run: fn() -> anyhow::Result<()>) -> Step {
    Step { name, run, essential: false }
}

const fn essential(name: &'static str, run: fn() -> anyhow::Result<()>) -> Step {
    Step { name, run, essential: true }
}

const CI: [Step; 16] = [
    essential("prerequisites", prerequisites),
    step("format", format),
    step("dependencies", crate::dependencies::run),
    step("generated files", || crate::generated::run(true)),
    step("lints", lints),
    step("docs", docs),
    essential("test build", || succeed(&mut tests(&["--no-run"]))),
    step("tests", || succeed(&mut tests(&["--no-fail-fast"]))),
    essential("release build", build_release),
    step("installed prefix", crate::prefix::run),
    step("python", crate::python::run),
    step("agent's requirements", crate::agent::check_needs),
    step("lab", lab),
    step("agent in stock ttnn", || lab::test(&LAB_VERSIONS, &["--skip", "oldest_wheel"])),
    step("demo", demo),
    step("drift", || crate::long::run_drift(DRIFT_STEPS, 1, &[])),
];

const CHECK: [Step; 3] = [step("format", format), essential("lints", lints), step("fast tests", fast_tests)];

/// Versions of ttnn that CI runs: the newest and an older one. The oldest, which takes a minute and 0.7 GB for a single test,
/// is left to `cargo xtask lab --test`.
const LAB_VERSIONS: [&str; 2] = [lab::TTNN, lab::OLDER];

pub(crate) fn run() -> anyhow::Result<()> {
    let result = run_steps(&CI);
    // If the run ended early, a running installation must still complete.
    let _ = wait_for_wheels();
    result
}

/// `cargo xtask check`
pub(crate) fn check() -> anyhow::Result<()> {
    run_steps(&CHECK)
}

fn run_steps(steps: &[Step]) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut results: Vec<(&str, Duration, Option<anyhow::Error>)> = Vec::new();
    for step in steps {
        println!("\n=== {} ===", step.name);
        let begin = Instant::now();
        let failure = (step.run)().err();
        if let Some(e) = &failure {
            println!("--- {} failed: {e:#}", step.name);
        }
        let ends = failure.is_some() && step.essential;
        results.push((step.name, begin.elapsed(), failure));
        if ends {
            break;
        }
    }
    println!("\n=== summary ===");
    for (name, time, failure) in &results {
        let verdict = failure.as_ref().map_or_else(|| "ok".to_owned(), |e| format!("FAILED: {e:#}"));
        println!("{name:<22} {:>6.1} s  {verdict}", time.as_secs_f64());
    }
    for step in &steps[results.len()..] {
        println!("{:<22}          not run", step.name);
    }
    println!("{:<22} {:>6.1} s", "total", begin.elapsed().as_secs_f64());
    let failed = results.iter().filter(|(_, _, failure)| failure.is_some()).count();
    println!("{} passed, {failed} failed", results.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} steps failed", steps.len());
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
        println!("all programs are installed");
    } else {
        install(&missing)?;
        if let Some((program, package)) = NEEDED.into_iter().find(|(program, _)| !has(program)) {
            bail!("{program} is still missing after installing {package}");
        }
        ensure!(clang_has_sanitizers(), "clang has no sanitizers, though libclang-rt-dev was installed");
    }
    *wheels() = Some(std::thread::spawn(|| {
        LAB_VERSIONS.into_iter().try_for_each(|version| lab::prepare(version).map(drop))
    }));
    Ok(())
}

/// Whether clang can link with sanitizers, whose package contains no program to search for.
fn clang_has_sanitizers() -> bool {
    let program = "echo 'int main(void) { return 0; }' | clang -fsanitize=address -x c - -o /dev/null";
    Command::new("sh").args(["-c", program]).output().is_ok_and(|output| output.status.success())
}

fn format() -> anyhow::Result<()> {
    succeed(&mut cargo(&["fmt", "--all", "--check"]))
}

/// Checks all targets. The lab's tests are included only if they are named.
fn lints() -> anyhow::Result<()> {
    for targets in [["--all-targets"].as_slice(), &["--test", "lab"]] {
        let mut clippy = cargo(&["clippy", "--workspace", "--locked"]);
        succeed(clippy.args(targets).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

fn docs() -> anyhow::Result<()> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    succeed(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Integration tests that `cargo xtask check` runs.
const FAST: [&str; 7] = ["it", "machine", "model", "public_api", "publish", "release", "replay"];

/// Threads that run tests: more than processors, since most tests wait for other processes.
const TEST_THREADS: &str = "4";

fn tests(options: &[&str]) -> Command {
    let mut command = cargo(&["test", "--workspace", "--locked"]);
    command.args(options).env("RUST_TEST_THREADS", TEST_THREADS);
    command
}

/// Runs tests without other processes: unit and property tests, screens, models, replayed fuzz inputs. All packages are
/// selected, so that nothing is built for this command alone.
fn fast_tests() -> anyhow::Result<()> {
    let mut command = tests(&["--no-fail-fast", "--lib", "--bins"]);
    for target in FAST {
        command.args(["--test", target]);
    }
    succeed(&mut command)
}

/// Runs the first command of the README for three seconds.
fn demo() -> anyhow::Result<()> {
    let mut command = Command::new(target().join("release/ttmem"));
    let output =
        command.args(["demo", "--seconds", "3", "--ascii"]).output().context("cannot run the demo")?;
    let page = String::from_utf8_lossy(&output.stdout);
    let frames = page.matches("SIMULATED DEVICES").count();
    if !output.status.success() || frames < 3 || !page.contains("demo-llm") {
        bail!("the demo showed {frames} tables: {}", String::from_utf8_lossy(&output.stderr));
    }
    println!("{frames} tables, the last one:\n{}", page.rsplit("\n\nttmem ").next().unwrap_or_default());
    Ok(())
}

/// The thread that downloads and unpacks wheels while the compiler works.
static WHEELS: Mutex<Option<JoinHandle<anyhow::Result<()>>>> = Mutex::new(None);

fn wheels() -> MutexGuard<'static, Option<JoinHandle<anyhow::Result<()>>>> {
    WHEELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the wheels are installed, if they are being installed.
fn wait_for_wheels() -> anyhow::Result<()> {
    let thread = wheels().take();
    thread.map_or(Ok(()), |thread| {
        thread.join().map_err(|_| anyhow!("the thread that installs wheels panicked"))?
    })
}

/// Prepares stock ttnn in the versions that CI uses, and opens every board once.
fn lab() -> anyhow::Result<()> {
    wait_for_wheels()?;
    lab::smoke(lab::TTNN)
}
