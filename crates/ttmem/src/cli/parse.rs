//! Parsing of the command line, and messages on wrong arguments.

use super::Cli;
use crate::Exit;
use crate::query::Format;
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// Adds the command `serve` if the program was started as the old server. The flags of `tt_smi_umd` need no change.
fn with_implied_command(mut typed: Vec<OsString>) -> Vec<OsString> {
    if is_started_as(&typed, "allocation_server_poc") {
        typed.insert(1, "serve".into());
    }
    typed
}

/// Whether the program was started under this name.
fn is_started_as(typed: &[OsString], name: &str) -> bool {
    typed.first().and_then(|it| Path::new(it).file_name()).is_some_and(|it| it == name)
}

/// Parses the arguments, or ends the program.
pub(crate) fn parse(typed: impl Iterator<Item = OsString>) -> Cli {
    let typed: Vec<OsString> = typed.collect();
    let old_page = is_started_as(&typed, "tt_smi_umd");
    let mut command = Cli::command();
    let parsed = command.try_get_matches_from_mut(with_implied_command(typed)).and_then(|matches| {
        // Options of the table are not allowed before a command; those of sources are.
        let all = Cli::command();
        let table_option = |id: &clap::Id| {
            let arg = all.get_arguments().find(|arg| arg.get_id() == id);
            arg.filter(|arg| !arg.is_global_set())?.get_long()
        };
        let is_typed =
            |id: &clap::Id| matches.value_source(id.as_str()) == Some(clap::parser::ValueSource::CommandLine);
        let misplaced = matches.ids().filter(|id| is_typed(id)).find_map(table_option);
        if let (Some(name), Some(arg)) = (matches.subcommand_name(), misplaced) {
            let text = format!("--{arg} must come after {name}, if {name} has that option");
            return Err(command.error(clap::error::ErrorKind::ArgumentConflict, text));
        }
        let cli = Cli::from_arg_matches(&matches)?;
        let is_csv = matches!(cli.show.format, Format::Csv { .. });
        let missing = if !is_csv && cli.show.query.iter().any(|it| !it.is_help()) {
            "--query needs --format csv"
        } else if cli.show.count.is_some() && !cli.show.watch {
            "--count needs --watch"
        } else {
            return Ok(cli);
        };
        Err(command.error(clap::error::ErrorKind::MissingRequiredArgument, missing))
    });
    let mut cli = parsed.unwrap_or_else(|e| exit_with_error(&e));
    cli.show.old_page = old_page;
    cli
}

/// Ends the program with help, or with one line on the error. The usage of clap is left out: it lists every argument that
/// the environment sets as if it were required.
fn exit_with_error(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.to_string();
    // The error and a tip come before usage and help.
    let text = text.split("\n\nUsage:").next().unwrap_or(&text).split("\n\nFor more").next().unwrap_or(&text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace(" tip: ", "; ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    let _ = writeln!(std::io::stderr(), "ttmem: {line}; see `ttmem --help`");
    std::process::exit(Exit::Usage as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, ServeArgs};
    use clap::Parser;

    #[test]
    fn old_program_names_keep_their_meaning() {
        let typed = |words: &[&str]| with_implied_command(words.iter().map(OsString::from).collect());
        let server = Cli::parse_from(typed(&["/opt/bin/allocation_server_poc", "-q"]));
        assert!(matches!(server.command, Some(Command::Serve(ServeArgs { quiet: true, .. }))));
        let monitor = Cli::parse_from(typed(&["tt_smi_umd", "-w", "-r", "1000", "--sysfs"]));
        assert!(
            monitor.command.is_none() && monitor.show.watch && monitor.show.refresh.refresh == Some(1000)
        );
    }
}
