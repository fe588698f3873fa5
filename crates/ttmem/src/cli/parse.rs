//! Parsing of the command line, and messages on wrong arguments.

use super::{Cli, Command, OLD_MONITOR, OLD_SERVER, OldMonitor, OldServer, ShowArgs};
use crate::Exit;
use crate::query::Format;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// Parses the arguments, or ends the program.
pub(crate) fn parse(typed: impl Iterator<Item = OsString>) -> Cli {
    let typed: Vec<OsString> = typed.collect();
    let name = program_name(&typed);
    try_parse(name, &typed).unwrap_or_else(|e| exit_with_error(name, &e))
}

/// The name under which the program was started: that of an old tool, or its own.
fn program_name(typed: &[OsString]) -> &'static str {
    let file = typed.first().and_then(|it| Path::new(it).file_name());
    [OLD_SERVER, OLD_MONITOR].into_iter().find(|&it| file.is_some_and(|file| file == it)).unwrap_or("ttmem")
}

fn try_parse(name: &str, typed: &[OsString]) -> Result<Cli, clap::Error> {
    match name {
        OLD_SERVER => {
            let OldServer { serve, sockets } = OldServer::try_parse_from(typed)?;
            let show = Cli::try_parse_from(["ttmem"])?.show;
            Ok(Cli { command: Some(Command::Serve(serve)), show, sockets })
        }
        OLD_MONITOR => {
            let mut command = OldMonitor::command().mut_arg("sysfs", |it| it.hide(false));
            let matches = command.try_get_matches_from_mut(typed)?;
            let OldMonitor { mut show, sockets } = OldMonitor::from_arg_matches(&matches)?;
            check_show_args(&show, &mut command)?;
            show.old_page = true;
            Ok(Cli { command: None, show, sockets })
        }
        _ => parse_command(typed),
    }
}

fn parse_command(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(typed)?;
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
        return Err(command.error(ErrorKind::ArgumentConflict, text));
    }
    let cli = Cli::from_arg_matches(&matches)?;
    check_show_args(&cli.show, &mut command)?;
    Ok(cli)
}

/// Checks that options of the table have the options that they need.
fn check_show_args(show: &ShowArgs, command: &mut clap::Command) -> Result<(), clap::Error> {
    let is_csv = matches!(show.format, Format::Csv { .. });
    let missing = if !is_csv && show.query.iter().any(|it| !it.is_help()) {
        "--query needs --format csv"
    } else if show.count.is_some() && !show.watch {
        "--count needs --watch"
    } else {
        return Ok(());
    };
    Err(command.error(ErrorKind::MissingRequiredArgument, missing))
}

/// Ends the program with help, or with one line on the error. The usage of clap is left out: it lists every argument that
/// the environment sets as if it were required.
fn exit_with_error(name: &str, error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.to_string();
    // The error and a tip come before usage and help.
    let text = text.split("\n\nUsage:").next().unwrap_or(&text).split("\n\nFor more").next().unwrap_or(&text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace(" tip: ", "; ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    let _ = writeln!(std::io::stderr(), "{name}: {line}; see `{name} --help`");
    std::process::exit(Exit::Usage.code().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ServeArgs;

    fn parse_words(words: &[&str]) -> Result<Cli, clap::Error> {
        let typed: Vec<OsString> = words.iter().map(OsString::from).collect();
        try_parse(program_name(&typed), &typed)
    }

    #[test]
    fn old_program_names_keep_their_meaning() {
        let server = parse_words(&["/opt/bin/allocation_server_poc", "-q"]).unwrap();
        assert!(matches!(server.command, Some(Command::Serve(ServeArgs { quiet: true, .. }))));
        let monitor = parse_words(&["tt_smi_umd", "-w", "-r", "1000", "--sysfs"]).unwrap();
        assert!(monitor.command.is_none() && monitor.show.watch && monitor.show.old_page);
        assert_eq!(monitor.show.refresh.refresh, Some(1000));
        assert!(!parse_words(&["ttmem"]).unwrap().show.old_page);
    }

    #[test]
    fn old_program_names_have_no_commands() {
        assert!(parse_words(&["allocation_server_poc", "serve"]).is_err());
        assert!(parse_words(&["tt_smi_umd", "top"]).is_err());
        assert!(parse_words(&["tt_smi_umd", "-n", "2"]).is_err(), "--count needs --watch");
    }

    #[test]
    fn help_has_the_name_and_usage_of_the_old_program() {
        let help = |name: &str| parse_words(&[name, "--help"]).unwrap_err().to_string();
        let server = help("allocation_server_poc");
        assert!(server.contains("Usage: allocation_server_poc [OPTIONS]\n"), "{server}");
        assert!(server.contains("--quiet") && server.contains("--legacy-socket"), "{server}");
        let monitor = help("tt_smi_umd");
        assert!(monitor.contains("Usage: tt_smi_umd [OPTIONS]\n"), "{monitor}");
        assert!(monitor.contains("--sysfs") && monitor.contains("--watch"), "{monitor}");
        assert!(!monitor.contains("Commands:"), "{monitor}");
        assert!(!help("ttmem").contains("--sysfs"));
    }
}
