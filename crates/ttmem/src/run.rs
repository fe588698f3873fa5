//! `ttmem run` and `ttmem env`: start a program with the agent.

mod follow;
mod parent;
mod summary;

use crate::cli::{EnvArgs, EnvStyle, RunArgs, Sockets};
use crate::text::Style;
use crate::{Exit, print};
use anyhow::{Context as _, bail, ensure};
use follow::{Follower, Marker};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use summary::ReportFile;
use ttmem_core::snapshot::RunEnd;
use ttmem_wire::segment::RUN_VARIABLE;

const LIBRARY: &str = "libttmem_agent.so";
const PRELOAD: &str = "LD_PRELOAD";
const SANITIZER_OPTIONS: &str = "ASAN_OPTIONS";
/// The address sanitizer ends a program in which another library was preloaded before it, since that one may replace functions of the C
/// library. The agent replaces functions of the runtime only, which the sanitizer does not.
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// Runs a program with the agent and ends as the program ends.
pub(crate) fn run(args: &RunArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let (program, arguments) = args.command.split_first().expect("the command line requires one");
    let mut command = Command::new(program);
    command.args(arguments).envs(variables(&find_agent()?, sockets)?);
    if let Some(records) = args.ring {
        command.env("TTMEM_RING", records.to_string());
    }
    if let Some(stacks) = &args.stacks {
        command.env("TTMEM_STACKS", stacks);
    }
    if args.no_sites {
        command.env("TTMEM_SITES", "0");
    }
    if args.explain {
        command.env("TTMEM_EXPLAIN", "1");
    }
    let error = if args.exec { command.exec() } else { return run_and_report(args, sockets, command) };
    Ok(cannot_run(&command, &error))
}

/// Runs a program, follows it and all processes that it starts, and prints what they allocated.
fn run_and_report(args: &RunArgs, sockets: &Sockets, mut command: Command) -> anyhow::Result<Exit> {
    let file = args.report.as_deref().map(ReportFile::create).transpose()?;
    let is_printed = !args.quiet && summary::is_read();
    let folder = sockets.folder();
    // Without a report nothing has to be followed.
    let marker = (is_printed || file.is_some()).then(|| Marker::create(&folder));
    if let Some(Ok(marker)) = &marker {
        command.env(RUN_VARIABLE, format!("{:016x}", marker.number));
    }
    let started = Instant::now();
    let program = match parent::start(&mut command)? {
        Ok(program) => program,
        Err(error) => return Ok(cannot_run(&command, &error)),
    };
    let follower = marker.map(|marker| Follower::start(marker?, &folder));
    let status = program.wait().context("cannot wait for the program")?;
    let seconds = started.elapsed().as_secs_f64();
    // Whatever goes wrong from here on, this process ends as the program did.
    let report = match follower {
        Some(Ok(follower)) => follower.finish(),
        Some(Err(why)) if is_printed => {
            eprintln!("ttmem: no summary: {why:#}");
            None
        }
        _ => None,
    };
    if let Some(mut report) = report {
        report.command = args.command.iter().map(|it| it.to_string_lossy().into_owned()).collect();
        let (code, signal) = (status.code(), status.signal());
        let signal_name = signal.and_then(signal_hook::low_level::signal_name).map(str::to_owned);
        report.end = Some(RunEnd { code, signal, signal_name, seconds });
        if is_printed {
            summary::print(&report, Style::of_errors(args.text.ascii));
        }
        if let Some(Err(error)) = file.map(|file| file.write(&report)) {
            eprintln!("ttmem: {error:#}");
        }
    }
    Ok(Exit::Program(parent::end_as(status)))
}

fn cannot_run(command: &Command, error: &io::Error) -> Exit {
    eprintln!("ttmem: cannot run {}: {error}", Path::new(command.get_program()).display());
    // The exit codes of shells.
    if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::CannotRun }
}

pub(crate) fn print_environment(args: &EnvArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let agent = find_agent()?;
    let mut text = String::new();
    let variables = variables(&agent, sockets)?;
    let pairs = variables.iter().map(|(name, value)| (*name, value.to_string_lossy()));
    match args.style {
        EnvStyle::Sh => pairs.for_each(|(name, value)| {
            let _ = writeln!(text, "export {name}={}", quote(&value));
        }),
        EnvStyle::Fish => pairs.for_each(|(name, value)| {
            let _ = writeln!(text, "set -gx {name} {}", quote(&value));
        }),
        EnvStyle::Json => {
            let object: serde_json::Map<_, _> =
                pairs.map(|(name, value)| (name.to_owned(), value.into_owned().into())).collect();
            text = serde_json::to_string(&serde_json::json!({ "env": object }))? + "\n";
        }
        EnvStyle::Docker => {
            // The agent is mounted at the same path. Segments are in the host's folder with --ipc host.
            let agent = quote(&agent.to_string_lossy());
            let _ = write!(text, "-v {agent}:{agent}:ro");
            pairs.for_each(|(name, value)| {
                let _ = write!(text, " -e {name}={}", quote(&value));
            });
            text.push('\n');
        }
    }
    print(text.as_bytes())
}

/// The environment variables that the agent needs.
pub(crate) fn variables(agent: &Path, sockets: &Sockets) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let is_separator = |byte: &u8| b" :\t\n".contains(byte);
    ensure!(
        !agent.as_os_str().as_bytes().iter().any(is_separator),
        "the dynamic linker cannot preload {}, whose path has a blank or colon: move it and set TTMEM_AGENT",
        agent.display()
    );
    let mut preload = agent.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        let mut libraries = others.as_bytes().split(is_separator);
        if libraries.any(|library| library == agent.as_os_str().as_bytes()) {
            preload = others;
        } else {
            preload.push(":");
            preload.push(others);
        }
    }
    let mut sanitizer = std::env::var_os(SANITIZER_OPTIONS).unwrap_or_default();
    if !sanitizer.as_bytes().windows(ANY_ORDER.len()).any(|part| part == ANY_ORDER.as_bytes()) {
        if !sanitizer.is_empty() {
            sanitizer.push(":");
        }
        sanitizer.push(ANY_ORDER);
    }
    let mut all = vec![(PRELOAD, preload), ("TTMEM", "1".into()), (SANITIZER_OPTIONS, sanitizer)];
    let folder = sockets.folder();
    if folder != Path::new("/dev/shm") {
        all.push(("TTMEM_SHM_DIR", folder.into()));
    }
    Ok(all)
}

/// Finds the agent: beside this program, or where a package installs libraries.
pub(crate) fn find_agent() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("TTMEM_AGENT").map(PathBuf::from) {
        ensure!(
            named.is_file(),
            "TTMEM_AGENT={} is not a file: set TTMEM_AGENT to the path of {LIBRARY}",
            named.display()
        );
        return Ok(std::path::absolute(named)?);
    }
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let folders = [folder.to_owned(), folder.join("../lib/ttmem"), folder.join("../lib")];
    for folder in &folders {
        if let Ok(found) = folder.join(LIBRARY).canonicalize() {
            return Ok(found);
        }
    }
    let [beside, ..] = &folders;
    bail!(
        "cannot find {LIBRARY} in {} or ../lib/ttmem: build it with `cargo build --release -p ttmem-agent`, or set \
         TTMEM_AGENT to its path",
        beside.display()
    )
}

/// Quotes text for a shell, if needed.
fn quote(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=+,@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn shell_text_is_quoted_if_needed() {
        assert_eq!(quote("/usr/lib/libttmem_agent.so:/x.so"), "/usr/lib/libttmem_agent.so:/x.so");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote("$HOME"), "'$HOME'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn path_that_cannot_be_preloaded_is_refused() {
        let sockets = Sockets {
            local: false,
            root: "/".into(),
            topology: None,
            shm_dir: None,
            legacy_socket: "/x".into(),
            query_socket: None,
        };
        assert!(variables(Path::new("/a b/libttmem_agent.so"), &sockets).is_err());
        let all = variables(Path::new("/a/libttmem_agent.so"), &sockets).unwrap();
        assert!(all.iter().any(|(name, value)| *name == "TTMEM" && value == OsStr::new("1")));
    }
}
