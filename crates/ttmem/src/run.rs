//! `ttmem run` and `ttmem env`: start a program with the agent.

use crate::cli::{EnvArgs, RunArgs, Sockets, Style};
use crate::{Exit, print};
use anyhow::{bail, ensure};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libttmem_agent.so";
const PRELOAD: &str = "LD_PRELOAD";

/// Becomes the program: its exit code, its signals and its terminal are its own.
pub(crate) fn run(args: &RunArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let (program, arguments) = args.command.split_first().expect("the command line asks for one at least");
    let mut command = Command::new(program);
    command.args(arguments).envs(variables(&agent()?, sockets)?);
    let why = command.exec();
    eprintln!("ttmem: cannot run {}: {why}", Path::new(program).display());
    // As shells say it.
    Ok(if why.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::CannotRun })
}

pub(crate) fn env(args: &EnvArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let agent = agent()?;
    let mut text = String::new();
    let all = variables(&agent, sockets)?;
    let shown = all.iter().map(|(name, value)| (*name, value.to_string_lossy()));
    match args.style {
        Style::Sh => shown.for_each(|(name, value)| {
            let _ = writeln!(text, "export {name}={}", quoted(&value));
        }),
        Style::Fish => shown.for_each(|(name, value)| {
            let _ = writeln!(text, "set -gx {name} {}", quoted(&value));
        }),
        Style::Json => {
            let object: serde_json::Map<_, _> =
                shown.map(|(name, value)| (name.to_owned(), value.into_owned().into())).collect();
            text = serde_json::to_string(&serde_json::json!({ "env": object }))? + "\n";
        }
        Style::Docker => {
            // The agent goes along, and the machine's own folder is the one that ttmem reads.
            let agent = quoted(&agent.to_string_lossy());
            let _ = write!(text, "-v {agent}:{agent}:ro");
            shown.for_each(|(name, value)| {
                let _ = write!(text, " -e {name}={}", quoted(&value));
            });
            text.push('\n');
        }
    }
    print(text.as_bytes())
}

/// What the agent needs in the environment.
pub(crate) fn variables(agent: &Path, sockets: &Sockets) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let separates = |byte: &u8| b" :\t\n".contains(byte);
    ensure!(
        !agent.as_os_str().as_bytes().iter().any(separates),
        "the dynamic linker cannot preload {}, whose path has a blank or colon: move it and set TTMEM_AGENT",
        agent.display()
    );
    let mut preload = agent.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        let known = others.as_bytes().split(separates).any(|one| one == agent.as_os_str().as_bytes());
        if known {
            preload = others;
        } else {
            preload.push(":");
            preload.push(others);
        }
    }
    let mut all = vec![(PRELOAD, preload), ("TTMEM", "1".into())];
    let folder = sockets.folder();
    if folder != Path::new("/dev/shm") {
        all.push(("TTMEM_SHM_DIR", folder.into()));
    }
    Ok(all)
}

/// The agent: beside this program, or where a package puts libraries.
pub(crate) fn agent() -> anyhow::Result<PathBuf> {
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
    let places = [folder.to_owned(), folder.join("../lib/ttmem"), folder.join("../lib")];
    for place in &places {
        if let Ok(found) = place.join(LIBRARY).canonicalize() {
            return Ok(found);
        }
    }
    let [beside, ..] = &places;
    bail!(
        "cannot find {LIBRARY} in {} or ../lib/ttmem: build it with `cargo build --release -p ttmem-agent`, or set \
         TTMEM_AGENT to its path",
        beside.display()
    )
}

/// For a shell: bare if it can be, else in single quotes.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=+,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn what_a_shell_reads_is_what_was_meant() {
        assert_eq!(quoted("/usr/lib/libttmem_agent.so:/x.so"), "/usr/lib/libttmem_agent.so:/x.so");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$HOME"), "'$HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_is_refused() {
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
