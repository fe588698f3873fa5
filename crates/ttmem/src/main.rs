//! `ttmem`: the memory monitor for Tenstorrent accelerators.
//!
//! `cli` is the command line, and each command is one module. Commands read a snapshot through `source`; `table`,
//! `listing`, `programs`, `sites` and `cores` turn it into text.

mod blocks;
mod check;
mod cli;
mod cores;
mod demo;
mod doctor;
mod events;
mod fit;
mod flame;
mod leaks;
mod limits;
mod listing;
mod map;
mod peak;
mod postmortem;
mod programs;
mod query;
mod report;
mod run;
mod settings;
mod show;
mod sim;
mod sites;
mod smi;
mod source;
mod table;
mod text;
mod top;

use anyhow::Context;
use clap::CommandFactory;
use cli::{Cli, Command};
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done,
    Failed,
    Usage,
    NothingFound,
    NoDaemon,
    CannotRun,
    NotFound,
    /// The code of the program that was run.
    Program(u8),
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NothingFound => 3,
            Self::NoDaemon => 4,
            Self::CannotRun => 126,
            Self::NotFound => 127,
            Self::Program(code) => code,
        }
    }
}

fn main() -> ExitCode {
    let cli = cli::parse(std::env::args_os());
    match run_command(&cli) {
        Ok(exit) => exit.code().into(),
        Err(e) if e.is::<OutputClosed>() => Exit::Done.code().into(),
        Err(e) => {
            let _ = writeln!(io::stderr(), "ttmem: {e:#}");
            let exit = if e.is::<UsageError>() { Exit::Usage } else { Exit::Failed };
            exit.code().into()
        }
    }
}

fn run_command(cli: &Cli) -> anyhow::Result<Exit> {
    match &cli.command {
        None if cli.show.is_dashboard() && top::has_terminal() => {
            top::run(&cli.show.filter, &cli.show.text, &cli.show.refresh, &cli.sockets)
        }
        None => show::run(&cli.show, &cli.sockets),
        Some(Command::Top(args)) => top::run(&args.filter, &args.text, &args.refresh, &cli.sockets),
        Some(Command::Run(args)) => run::run(args, &cli.sockets),
        Some(Command::Env(args)) => run::print_environment(args, &cli.sockets),
        Some(Command::Check(args)) => check::run(args, &cli.sockets),
        Some(Command::Doctor(args)) => doctor::run(args, &cli.sockets),
        Some(Command::Dump(args)) => listing::dump(args, &cli.sockets),
        Some(Command::Postmortem(args)) => postmortem::run(args, &cli.sockets),
        Some(Command::Flame(args)) => flame::run(args, &cli.sockets),
        Some(Command::Fit(args)) => fit::run(args, &cli.sockets),
        Some(Command::Map(args)) => map::run(args, &cli.sockets),
        Some(Command::Peak(args)) => peak::run(args, &cli.sockets),
        Some(Command::Leaks(args)) => leaks::run(args, &cli.sockets),
        Some(Command::Events(args)) => events::run(args, &cli.sockets),
        Some(Command::Serve(args)) => {
            let options = args.options(&cli.sockets)?;
            if let Some(parent) = args.parent {
                demo::exit_with_parent(parent)?;
            }
            ttmem_daemon::serve(&options)?;
            if let (Some(parent), Some(folder)) = (args.parent, options.query_socket.parent()) {
                // The demo removes these as well, unless it was killed.
                let _ = std::fs::remove_dir(folder);
                demo::remove_segments(parent, &options.sources.folder);
            }
            Ok(Exit::Done)
        }
        Some(Command::Demo(args)) => demo::run(args),
        Some(Command::DemoClient(args)) => {
            demo::client::run(args)?;
            Ok(Exit::Done)
        }
        Some(Command::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "ttmem", &mut text);
            print(&text)
        }
        Some(Command::Man { command }) => {
            let mut all = Cli::command();
            // Commands get their full name and the global options only here.
            all.build();
            let page = match command {
                None => all,
                Some(name) => {
                    let found = all.find_subcommand(name).filter(|it| !it.is_hide_set());
                    found
                        .cloned()
                        .with_context(|| format!("unknown command {name}; `ttmem help` lists them"))?
                }
            };
            let mut text = Vec::new();
            let title = page.get_display_name().unwrap_or("ttmem").to_owned();
            clap_mangen::Man::new(page).title(title).render(&mut text)?;
            print(&text)
        }
    }
}

/// A wrong argument that is found only after parsing.
#[derive(Debug)]
struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Standard output was closed by its reader, as `head` does after some lines: not an error.
#[derive(Debug)]
struct OutputClosed;

impl std::fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for OutputClosed {}

/// Writes to standard output.
fn print(bytes: &[u8]) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Exit::Done),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        Err(e) => Err(e.into()),
    }
}
