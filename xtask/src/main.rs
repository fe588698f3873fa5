//! Development tasks. `cargo xtask` lists the commands.

mod agent;
mod bench;
mod ci;
mod dataclasses;
mod dependencies;
mod exceptions;
mod fuzz;
mod generated;
mod header;
mod install;
mod lab;
mod long;
mod mutants;
mod packages;
mod prefix;
mod public_api;
mod python;
mod screens;

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask COMMAND

Every day:
  check              format, lints, fast tests
  ci                 everything CI runs; the long forms below are not part of it
  gen [--check]      generated files that are kept in git: the C header, the page of fields, the schema of snapshots,
                     Python's dataclasses and exceptions; --check fails if one is out of date
  install --prefix DIR [--destdir DIR] [--no-build]
                     program, agent, library, headers, manual, completions, service: in place below DIR
  dependencies       licences and sources of all dependencies, and which crates of ours depend on which
  prefix             test an installation from a prefix, with the source tree hidden; needs root
  python             build the wheel, install it into a new environment, check its types, run its tests and its page
  loom               check the order of a writer's stores against every order a processor may see
  public-api [--check]
                     list the public API of ttmem-client; --check fails if it differs; needs a nightly toolchain

With stock ttnn on simulated devices:
  lab [VERSION]      make a Python environment with stock ttnn (default 0.81.1) and a stand-in for its kernel compiler;
                     --clusters only writes the descriptors of the devices, --smoke opens every board and runs an
                     operation on it
  lab --test [NAME…] tests of the agent, with all versions of ttnn, the oldest too
  drift [STEPS] [--seed N] [CASE…]
                     compare ttmem with the runtime's own allocators after each of STEPS random steps (default 5000);
                     CASE is part of a case's name, as t3k
  fit [STATES] [--seed N] [CASE…]
                     compare answers of `ttmem fit` with the runtime's own allocators in STATES random states (default 2000)
                     of each CASE: n150, p150, t3k, n300_hybrid, p150_hybrid
  programs [OP…]     compare circular and dataflow buffers of 237 operations with the runtime's own data, core by core, on
                     Wormhole and Blackhole, ttnn 0.81.1 and 0.80.0; OP is part of an operation's name, as sdpa

Long forms:
  bench [GROUP] [--json]
                     figures against their budgets, in release; GROUP is one of agent, model, c, segment, threads,
                     run, ingest, core, machine, daemon, frame, python
  truth [NAME…]      compare readers with writers: threads, 1,000 kills, restarts; in release
  siege [SECONDS]    attack a daemon as an unprivileged user in several ways, for so long each (default 10), and measure what others
                     notice; with 30 or more, over 8 million buffers; needs root
  fuzz [SECONDS]     run every fuzz target for so long (default 60)
  mutants [ARG…]     run cargo-mutants with these arguments, as `-f crates/ttmem-core/src/state.rs`
  screens            draw the README's pictures of the demo into docs/screens";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["ci"] => ci::run(),
        ["check"] => ci::check(),
        ["dependencies"] => dependencies::run(),
        ["bench"] => bench::run(false, None),
        ["bench", "--json"] => bench::run(true, None),
        ["bench", group] if bench::GROUPS.contains(&group) => bench::run(false, Some(group)),
        ["bench", group, "--json"] if bench::GROUPS.contains(&group) => bench::run(true, Some(group)),
        // Processes that the benchmark starts.
        ["bench-client", ref args @ ..] => bench::load::client(args),
        ["bench-writer", folder] => bench::segment::write(folder),
        ["bench-pace", per_second] => bench::run::pace(per_second),
        ["bench-discard", path] => bench::load::discard(Path::new(path)),
        ["lab", "--clusters"] => lab::list_clusters(),
        ["lab", "--test", ref names @ ..] => lab::test(&[lab::TTNN, lab::OLDER, lab::OLDEST], names),
        ["lab", "--smoke"] => lab::smoke(lab::TTNN),
        ["lab", version, "--smoke"] => lab::smoke(version),
        ["lab"] => lab::run(lab::TTNN),
        ["lab", version] if !version.starts_with('-') => lab::run(version),
        ["drift", ref args @ ..] => long::drift(args),
        ["fit", ref args @ ..] => long::fit(args),
        ["programs", ref ops @ ..] => long::programs(ops),
        ["truth", ref names @ ..] => long::truth(names),
        ["siege"] => long::siege("10"),
        ["siege", seconds] => long::siege(seconds),
        ["gen"] => generated::run(false),
        ["gen", "--check"] => generated::run(true),
        ["public-api"] => public_api::run(false),
        ["public-api", "--check"] => public_api::run(true),
        ["install", ref args @ ..] => install::command(args),
        ["prefix"] => prefix::run(),
        // The part of `prefix` that runs with the source tree hidden.
        ["prefix-inside", prefix, work] => prefix::inside(Path::new(prefix), Path::new(work)),
        ["python"] => python::run(),
        ["screens"] => screens::run(),
        ["loom"] => long::loom(),
        ["fuzz"] => fuzz::run(60),
        ["fuzz", seconds] => seconds.parse().context("SECONDS is a number").and_then(fuzz::run),
        ["mutants", ref args @ ..] => mutants::run(args),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => {
            eprintln!("xtask: unknown command: {}\n\n{HELP}", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo's target folder.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Builds what is installed, in release: program, agent, C library. Always these three together, since another selection may
/// mean other features of dependencies, and so another build. `ttmem run` in the source tree uses this agent; the installed one is
/// optimised further.
fn build_release() -> anyhow::Result<()> {
    let packages = ["-p", "ttmem", "-p", "ttmem-agent", "-p", "ttmem-c"];
    succeed(cargo(&["build", "--release", "--locked", "--quiet"]).args(packages))?;
    succeed(&mut cargo(&["build", "--profile", AGENT_PROFILE, "--locked", "--quiet", "-p", "ttmem-agent"]))
}

/// The profile of the agent that is installed and measured, which is also the name of its folder.
const AGENT_PROFILE: &str = "agent";

/// The agent that is installed.
fn installed_agent() -> PathBuf {
    target().join(AGENT_PROFILE).join("libttmem_agent.so")
}

/// A cargo command in the workspace.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs a command to its end; a failure is an error that names it.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().to_string_lossy());
    }
    Ok(())
}
