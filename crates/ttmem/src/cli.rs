//! What can be typed. Help, man page and completions all come from here.

use crate::Exit;
use crate::query::{Column, Format};
use crate::sim;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use ttmem_core::Limits;
use ttmem_reader::{Places, paths};
use ttmem_sources::Reading;

/// The memory monitor for Tenstorrent accelerators.
///
/// Alone, prints one table of the chips there are and of who holds how much of their memory, and ends. Figures come from
/// a daemon (`ttmem serve`) or, if none answers, straight from the kernel's files and from what processes publish. No chip
/// is ever opened.
#[derive(Debug, Parser)]
#[command(name = "ttmem", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    #[command(flatten)]
    pub(crate) sockets: Sockets,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 no device and nothing tracked, 4 no daemon where one is needed;
`ttmem run` has its program's, or 126 and 127 if it cannot run it; `ttmem doctor` has 0, 1 with warnings, 2 when something
is broken.
Try it without hardware: ttmem demo. If something is missing: ttmem doctor";

/// The arguments of this program: under the old server's name it is that server. The flags of `tt_smi_umd` are ours.
fn arguments(mut typed: Vec<OsString>) -> Vec<OsString> {
    if is_called(&typed, "allocation_server_poc") {
        typed.insert(1, "serve".into());
    }
    typed
}

/// Whether the program was started under this name.
fn is_called(typed: &[OsString], name: &str) -> bool {
    typed.first().and_then(|it| Path::new(it).file_name()).is_some_and(|it| it == name)
}

/// Understands what was typed, or ends the program with a word on why not.
pub(crate) fn parse(typed: impl Iterator<Item = OsString>) -> Cli {
    let typed: Vec<OsString> = typed.collect();
    let old_page = is_called(&typed, "tt_smi_umd");
    let mut command = Cli::command();
    let parsed = command.try_get_matches_from_mut(arguments(typed)).and_then(|matches| {
        // What is shown is no business of other commands, but where to look is everybody's.
        let all = Cli::command();
        let of_show = |id: &clap::Id| {
            let arg = all.get_arguments().find(|arg| arg.get_id() == id);
            arg.filter(|arg| !arg.is_global_set())?.get_long()
        };
        let typed =
            |id: &clap::Id| matches.value_source(id.as_str()) == Some(clap::parser::ValueSource::CommandLine);
        let stray = matches.ids().filter(|id| typed(id)).find_map(of_show);
        if let (Some(name), Some(arg)) = (matches.subcommand_name(), stray) {
            let text = format!("--{arg} goes behind the command {name}, if it has it");
            return Err(command.error(clap::error::ErrorKind::ArgumentConflict, text));
        }
        let cli = Cli::from_arg_matches(&matches)?;
        let is_csv = matches!(cli.show.format, Format::Csv { .. });
        let needs = if !is_csv && cli.show.query.iter().any(|it| !it.is_help()) {
            "--query needs --format csv"
        } else if cli.show.count.is_some() && !cli.show.watch {
            "--count needs --watch"
        } else {
            return Ok(cli);
        };
        Err(command.error(clap::error::ErrorKind::MissingRequiredArgument, needs))
    });
    let mut cli = parsed.unwrap_or_else(|e| refuse(&e));
    cli.show.old_page = old_page;
    cli
}

/// Ends the program with help, or with one line on what is wrong. The parser's own lines on usage name every argument
/// that the environment sets as if it were required.
fn refuse(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.to_string();
    // What is wrong, and the parser's tip; then come usage and help.
    let what = text.split("\n\nUsage:").next().unwrap_or(&text).split("\n\nFor more").next().unwrap_or(&text);
    let what: Vec<&str> = what.split_whitespace().collect();
    let what = what.join(" ").replace(" tip: ", "; ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let _ = writeln!(std::io::stderr(), "ttmem: {what}; see `ttmem --help`");
    std::process::exit(Exit::Usage as i32)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the dashboard: live memory by device, process, buffer and core.
    ///
    /// Keys: 1 to 7 change the view, ? lists all keys, q quits. Settings are kept in `$XDG_CONFIG_HOME/ttmem/config.toml` by F12.
    Top(TopArgs),
    /// Run a program with the agent in it: every buffer of an untouched ttnn is tracked.
    ///
    /// The program's children are tracked, too, and a program that never uses ttnn is left alone. Its exit code is the
    /// program's.
    #[command(after_help = "Example: ttmem run -- python model.py")]
    Run(RunArgs),
    /// Print what `ttmem run` would put into the environment.
    ///
    /// For shells, notebooks and containers, where the program cannot be started by ttmem itself.
    #[command(
        after_help = "Examples:\n  eval \"$(ttmem env)\"\n  docker run $(ttmem env --style docker) --ipc host ..."
    )]
    Env(EnvArgs),
    /// Compare what we say with what each runtime's own allocators say.
    ///
    /// Exits with 0 when every drift that could be judged is 0, with 1 when one is not, with 3 when there is nothing to
    /// compare.
    Check(CheckArgs),
    /// List every live allocation, or every program, or what lies where in each core.
    #[command(
        after_help = "Examples:\n  ttmem dump --programs\n  ttmem dump --cores -d 0\n  ttmem dump --cores 3,0 -d 0"
    )]
    Dump(DumpArgs),
    /// Run the daemon: legacy socket, query socket, event log on standard output.
    Serve(ServeArgs),
    /// Say what is found, what is missing, and what to do about it.
    ///
    /// Exits with 0 when all is well, with 1 when something is worth a look, with 2 when something is broken.
    Doctor(DoctorArgs),
    /// Show it at work on simulated chips, with real client processes; needs no hardware.
    Demo(DemoArgs),
    /// One client process of the demo.
    #[command(hide = true)]
    DemoClient(DemoClientArgs),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff: the program's, or a command's.
    Man {
        /// Which command, as `dump`.
        command: Option<String>,
    },
}

/// Where figures come from.
#[derive(Clone, Debug, Args)]
pub(crate) struct Sockets {
    /// Ask no daemon: read the machine and what processes publish.
    #[arg(long, global = true)]
    pub(crate) local: bool,
    /// Show the machine whose files lie below this folder; asks no daemon.
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Take capacities and remote chips from this cluster descriptor, as tt-umd writes it; asks no daemon.
    #[arg(long, global = true, value_name = "FILE", env = "TTMEM_TOPOLOGY")]
    pub(crate) topology: Option<PathBuf>,
    /// Folder that processes publish their segments and counters in [default: /dev/shm below the root].
    #[arg(long, global = true, value_name = "DIR", env = "TTMEM_SHM_DIR")]
    pub(crate) shm_dir: Option<PathBuf>,
    /// Socket that old clients send their messages to.
    #[arg(long, global = true, value_name = "PATH", env = "TTMEM_LEGACY_SOCKET",
          default_value = ttmem_wire::legacy::SOCKET_PATH)]
    pub(crate) legacy_socket: PathBuf,
    /// Socket that ttmem asks the daemon on [default: /run/ttmem/query.sock for root, else below
    /// `$XDG_RUNTIME_DIR`].
    #[arg(long, global = true, value_name = "PATH", env = "TTMEM_QUERY_SOCKET")]
    pub(crate) query_socket: Option<PathBuf>,
}

impl Sockets {
    /// Whether this program must look itself.
    pub(crate) fn is_local(&self) -> bool {
        self.places().is_local()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.places().folder()
    }

    /// What to read, and where.
    pub(crate) fn reading(&self) -> Result<Reading, ttmem_reader::Error> {
        self.places().reading()
    }

    /// The same, for whoever reads.
    pub(crate) fn places(&self) -> Places {
        Places {
            local: self.local,
            root: self.root.clone(),
            topology: self.topology.clone(),
            folder: self.shm_dir.clone(),
            query_socket: self.query_socket.clone(),
        }
    }
}

/// What to show, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// Print JSON, one line, of the stable schema.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print JSON with the keys that readers of `tt-smi -s` expect.
    #[arg(short, long, conflicts_with_all = ["json", "watch", "format"])]
    pub(crate) snapshot: bool,
    /// How to print: `table`, `json`, or `csv`, that with `noheader` and `nounits`, after commas.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parse, conflicts_with = "json")]
    pub(crate) format: Format,
    /// With --format csv: the columns, by name, with commas; `help` lists them.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = Column::parse)]
    pub(crate) query: Vec<Column>,
    /// With --json: add each device's usage over time.
    #[arg(long, requires = "json")]
    pub(crate) history: bool,
    /// With --json: add what happened of late: who came and went, what filled up, what was odd.
    #[arg(long, requires = "json")]
    pub(crate) events: bool,
    /// With --json: add the L1 of each core, address by address.
    #[arg(long, requires = "json")]
    pub(crate) cores: bool,
    /// With --json: add each process's programs, and what they keep on which cores.
    #[arg(long, requires = "json")]
    pub(crate) programs: bool,
    #[command(flatten)]
    pub(crate) only: Only,
    #[command(flatten)]
    pub(crate) look: Look,
    /// Add what each device holds by space, how processes are tracked, full commands and all findings.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Whether the program was called `tt_smi_umd`, which has a page of its own.
    #[arg(skip)]
    pub(crate) old_page: bool,
    /// Show the dashboard, as `ttmem top`; into a pipe, table after table until interrupted.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With -w: print COUNT times, then exit.
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) watching: Watching,
    /// Accepted because the old tool had it; nothing but the kernel's files is ever read.
    #[arg(long, hide = true)]
    sysfs: bool,
    /// Accepted because callers of `tt-smi -s` give it.
    #[arg(long = "snapshot_no_tty", hide = true)]
    no_tty: bool,
}

impl ShowArgs {
    /// Whether the dashboard is meant, if there is a terminal.
    pub(crate) fn is_dashboard(&self) -> bool {
        self.watch && !self.json && self.format == Format::Table && self.count.is_none()
    }
}

/// Of what.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Only {
    /// Only these devices, with commas: by index, id, place on the bus, or node (`/dev/tenstorrent/N`).
    #[arg(short, long, value_name = "DEVICE", value_delimiter = ',')]
    pub(crate) device: Vec<String>,
    /// Only this process.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Only processes of this user: a name or a number.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

impl Only {
    pub(crate) fn is_everything(&self) -> bool {
        self.device.is_empty() && self.pid.is_none() && self.user.is_none()
    }
}

/// How to show it again and again.
#[derive(Clone, Debug, Args)]
pub(crate) struct Watching {
    /// Milliseconds between two looks of the dashboard [default: 500].
    #[arg(short, long, value_name = "MS", env = "TTMEM_TOP_REFRESH_MS", hide_env_values = true, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub(crate) refresh: Option<u64>,
    /// Colours of the dashboard [default: dark].
    #[arg(long, value_name = "THEME", env = "TTMEM_TOP_THEME", hide_env_values = true)]
    pub(crate) theme: Option<Theme>,
    /// Let the dashboard send no signals.
    #[arg(long)]
    pub(crate) readonly: bool,
}

impl Watching {
    /// Milliseconds between two tables.
    pub(crate) fn refresh_ms(&self) -> u64 {
        self.refresh.unwrap_or(500)
    }
}

/// Themes, as they are typed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Theme {
    /// For dark backgrounds.
    Dark,
    /// For light ones.
    Light,
    /// No red beside green.
    #[value(alias = "color-blind")]
    ColourBlind,
    /// No colours.
    Mono,
}

impl From<Theme> for ttmem_tui::ThemeName {
    fn from(theme: Theme) -> Self {
        match theme {
            Theme::Dark => Self::Dark,
            Theme::Light => Self::Light,
            Theme::ColourBlind => Self::ColourBlind,
            Theme::Mono => Self::Mono,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) only: Only,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) look: Look,
    /// Accepted because the old tool had it.
    #[arg(long, hide = true)]
    sysfs: bool,
}

/// How text looks.
#[derive(Clone, Debug, Args)]
pub(crate) struct Look {
    /// Draw with ASCII characters only.
    #[arg(long)]
    pub(crate) ascii: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// For whom.
    #[arg(long, value_enum, default_value_t = Style::Sh)]
    pub(crate) style: Style,
}

/// Who reads the environment.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Style {
    /// sh, bash, zsh.
    Sh,
    /// fish.
    Fish,
    /// One line of JSON, as for a Jupyter kernel.
    Json,
    /// Options of `docker run` and `podman run`.
    Docker,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print JSON, one line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Have every allocator asked now, instead of taking what it said when something last changed.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Only this process.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Wait so long for allocators that are busy.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub(crate) wait: f64,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON, one line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) look: Look,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Print JSON, one line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) only: Only,
    /// Add allocations up by what they have in common.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["all", "programs", "cores"])]
    pub(crate) group_by: Option<GroupBy>,
    /// Order by size, age (oldest first) or count (of allocations in a group, or of references).
    #[arg(long, value_name = "ORDER", conflicts_with_all = ["programs", "cores"])]
    pub(crate) sort: Option<SortBy>,
    /// Show the first N only.
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "programs", "cores"])]
    pub(crate) top: Option<usize>,
    /// List every allocation, also on a terminal.
    #[arg(long, conflicts_with_all = ["programs", "cores"])]
    pub(crate) all: bool,
    /// List programs instead: what each keeps in L1, on how many cores, and where it is resident.
    #[arg(long, conflicts_with = "cores")]
    pub(crate) programs: bool,
    /// Show the L1 of cores instead: of all, those that are alike in one line; or of one, by column and row, address by
    /// address.
    #[arg(long, value_name = "X,Y", num_args = 0..=1, default_missing_value = "all", conflicts_with_all = ["pid", "user"])]
    pub(crate) cores: Option<Cores>,
    /// List what is in this segment, living or left behind by a dead process, and nothing else.
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    pub(crate) segment: Option<PathBuf>,
}

/// What allocations have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GroupBy {
    /// Space.
    Space,
    /// Process, space, size and call site.
    Size,
    /// Process.
    Process,
    /// Program: its circular buffers, kernels and other program memory.
    Program,
    /// Call site.
    Site,
    /// Device.
    Device,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortBy {
    /// Largest first.
    Size,
    /// Oldest first.
    Age,
    /// Most first.
    Count,
}

/// Which cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    All,
    /// One, by column and row.
    One(u8, u8),
}

impl Cores {
    pub(crate) fn has(self, x: u8, y: u8) -> bool {
        self == Self::All || self == Self::One(x, y)
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let number = |text: &str| text.trim().parse().ok();
        let parsed = text.split_once(',').and_then(|(x, y)| Some(Self::One(number(x)?, number(y)?)));
        parsed.ok_or_else(|| "expected a column and a row, as 3,0".to_owned())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// No event log.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Pretend this machine has these chips: BOARD or BOARDxN, with BOARD one of n150, n300, t3k, p100a, p150a, p300,
    /// galaxy-wh, galaxy-bh.
    #[arg(long, value_name = "BOARD[xN]")]
    pub(crate) sim: Option<sim::Machine>,
    /// Permissions of the sockets, in octal. Everybody may report and look by default: a client is known by what the
    /// kernel says of it, not by its own word.
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = octal)]
    pub(crate) socket_mode: u32,
    /// Live allocations one process may have; more are refused, with a finding.
    #[arg(long, value_name = "N", default_value_t = Limits::default().records_per_process)]
    pub(crate) process_limit: u64,
    /// End with this parent, and take the sockets' folder along: for the demo.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected an octal number up to 777".to_owned()),
    }
}

impl ServeArgs {
    pub(crate) fn options(&self, sockets: &Sockets) -> anyhow::Result<ttmem_daemon::Options> {
        Ok(ttmem_daemon::Options {
            legacy_socket: sockets.legacy_socket.clone(),
            query_socket: match &sockets.query_socket {
                Some(path) => path.clone(),
                None => paths::query_socket_to_serve()?,
            },
            mode: self.socket_mode,
            quiet: self.quiet,
            // Simulated chips beside real ones would be a lie of a new kind.
            reading: Reading { machine: self.sim.is_none(), again: true, ..sockets.reading()? },
            chips: self.sim.as_ref().map(sim::Machine::chips).unwrap_or_default(),
            sensors: self.sim.as_ref().map(|_| sim::sensors::reading as _),
            limits: Limits { records_per_process: self.process_limit, ..Limits::default() },
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Simulated chips, as for `ttmem serve --sim`.
    #[arg(long, visible_alias = "chips", value_name = "BOARD[xN]", default_value = "n300")]
    pub(crate) sim: sim::Machine,
    /// End after this many seconds; without it, on q or Ctrl-C.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) look: Look,
}

#[derive(Debug, Args)]
pub(crate) struct DemoClientArgs {
    /// Which life to live.
    #[arg(value_enum)]
    pub(crate) role: crate::demo::client::Role,
    /// The demo's pid.
    pub(crate) parent: u32,
    /// Where it publishes itself, or the old server's socket.
    pub(crate) place: PathBuf,
    /// The chips there are.
    pub(crate) sim: sim::Machine,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_old_names_mean_what_they_did() {
        let typed = |words: &[&str]| arguments(words.iter().map(OsString::from).collect());
        let server = Cli::parse_from(typed(&["/opt/bin/allocation_server_poc", "-q"]));
        assert!(matches!(server.command, Some(Command::Serve(ServeArgs { quiet: true, .. }))));
        let monitor = Cli::parse_from(typed(&["tt_smi_umd", "-w", "-r", "1000", "--sysfs"]));
        assert!(
            monitor.command.is_none() && monitor.show.watch && monitor.show.watching.refresh == Some(1000)
        );
    }

    #[test]
    fn a_core_is_a_column_and_a_row() {
        assert_eq!("3,0".parse(), Ok(Cores::One(3, 0)));
        assert_eq!("all".parse(), Ok(Cores::All));
        for bad in ["", "3", "3,", "-1,0", "3,0,1", "300,0", "x,y"] {
            assert!(bad.parse::<Cores>().is_err(), "{bad}");
        }
    }

    #[test]
    fn socket_modes_are_octal() {
        assert_eq!(octal("660"), Ok(0o660));
        assert!(octal("888").is_err() && octal("7777").is_err() && octal("").is_err());
    }
}
