//! What the project does to itself. `cargo xtask` lists the commands.

mod agent;
mod bench;
mod ci;
mod dataclasses;
mod drift;
mod exceptions;
mod fuzz;
mod generated;
mod header;
mod install;
mod lab;
mod loom;
mod mutants;
mod packages;
mod prefix;
mod python;
mod screens;
mod truth;

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask COMMAND

  ci                 everything CI runs: format, lints, docs, tests, licences, fuzzing, the demo
  bench [GROUP] [--json]
                     figures against their budgets; builds the release program first. GROUP is one of agent, c,
                     segment, core, machine, daemon, frame, python
  lab [VERSION]      a Python environment with stock ttnn (default 0.81.1) and a stand-in for its kernel compiler, to
                     run it on chips that do not exist; --clusters only writes the descriptors of such chips,
                     --smoke opens every board and runs an op on it
  drift [STEPS] [--seed N] [CASE…]
                     whether we say what the runtime's own allocators say: stock ttnn does STEPS random things
                     (default 5000) in the lab, compared after each; CASE is part of a case's name, as t3k
  truth [WHICH…]     whether readers see what writers did: threads, kills, restarts; --little for less of it
  loom               the order of a writer's stores, in every order a processor may see them
  gen [--check]      files that are made from code and kept here: the C header, the page of fields, the schema of
                     snapshots, and Python's dataclasses and exceptions; --check fails if one is out of date
  install --prefix DIR [--destdir DIR] [--no-build]
                     program, agent, library, headers, manual, completions, service: in place below DIR
  prefix             whether all that works from a prefix with the source tree gone; needs root
  python             the wheel: built, installed into a new environment, its types checked and its tests and page run
  screens            the README's pictures, of the demo as it is, to docs/screens; not part of ci
  fuzz [SECONDS]     every fuzz target for so long (default 60)
  mutants [WHICH…]   puts faults in, one at a time, and expects their tests to fail; WHICH is a
                     defect's number or how a test's name begins";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["ci"] => ci::run(),
        ["bench"] => bench::run(false, None),
        ["bench", "--json"] => bench::run(true, None),
        [
            "bench",
            group @ ("agent" | "c" | "segment" | "core" | "machine" | "daemon" | "frame" | "python"),
        ] => bench::run(false, Some(group)),
        [
            "bench",
            group @ ("agent" | "c" | "segment" | "core" | "machine" | "daemon" | "frame" | "python"),
            "--json",
        ] => bench::run(true, Some(group)),
        // Processes that the benchmark starts.
        ["bench-client", ref args @ ..] => bench::load::client(args),
        ["bench-writer", folder] => bench::segment::write(folder),
        ["bench-discard", path] => bench::load::discard(Path::new(path)),
        ["lab", "--clusters"] => lab::list_clusters(),
        ["lab", "--smoke"] => lab::smoke(lab::TTNN),
        ["lab", version, "--smoke"] => lab::smoke(version),
        ["lab"] => lab::run(lab::TTNN),
        ["lab", version] if !version.starts_with('-') => lab::run(version),
        ["drift", ref args @ ..] => drift::command(args),
        ["truth", ref which @ .., "--little"] => truth::run(which, true),
        ["truth", ref which @ ..] => truth::run(which, false),
        // Processes that it starts.
        ["truth-script", folder, seed, rate] => truth::write_script(folder, seed, rate),
        ["truth-threads", folder, events, rate, log] => truth::write_from_threads(folder, events, rate, log),
        ["gen"] => generated::run(false),
        ["gen", "--check"] => generated::run(true),
        ["install", ref args @ ..] => install::command(args),
        ["prefix"] => prefix::run(),
        // What it runs where the source tree is gone.
        ["prefix-inside", prefix, work] => prefix::inside(Path::new(prefix), Path::new(work)),
        ["python"] => python::run(),
        ["screens"] => screens::run(),
        ["loom"] => loom::run(),
        ["fuzz"] => fuzz::run(60),
        ["fuzz", seconds] => seconds.parse().context("SECONDS is a number").and_then(fuzz::run),
        ["mutants", ref numbers @ ..] => mutants::run(numbers),
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

/// A cargo command in the workspace.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs a command to its end; failing is an error that names it.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().to_string_lossy());
    }
    Ok(())
}
