//! The table of commands and arguments. Help, manual pages and completions are generated from it: doc comments of
//! arguments are their help texts.

mod dump;
mod events;
mod fit;
mod parse;
mod serve;

use crate::limits::Limit;
use crate::query::{Column, Format};
use crate::sim;
use clap::{Args, Parser, Subcommand};
pub(crate) use dump::{CoreSelection, DumpArgs, GroupBy, SortBy};
pub(crate) use events::{EventFormat, EventsArgs};
pub(crate) use fit::{BufferSize, FitArgs, MapArgs, Sharding, TensorMemory};
pub(crate) use parse::parse;
pub(crate) use serve::ServeArgs;
use std::ffi::OsString;
use std::path::PathBuf;
use ttmem_core::snapshot::FlameMoment;
use ttmem_reader::ReaderOptions;
use ttmem_sources::SourceConfig;

/// The memory monitor for Tenstorrent accelerators.
///
/// Without a command, prints a table of devices, processes and findings. Figures come from the daemon (`ttmem serve`) if one
/// runs, else from what processes publish and the kernel shows. No device is opened.
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
Examples:
  ttmem                        devices, processes and findings
  ttmem top                    dashboard
  ttmem run -- python model.py exact figures for an unmodified program
  ttmem dump                   what holds the memory
  ttmem --sites                which lines of code hold the memory
  ttmem -w --format csv --query index,dram_used_bytes
  ttmem demo                   try it without hardware

Exit codes: 0 done, 1 failed, 2 usage, 3 no device and nothing tracked, 4 no daemon where one is needed.
`ttmem run` exits with its program's code.
Words and figures are explained in docs/glossary.md, fields in docs/fields.md.";

/// The allocation server of old clients.
///
/// The same as `ttmem serve`: serves the socket of the old clients and the query socket of ttmem, and writes an event log to
/// standard output.
#[derive(Debug, Parser)]
#[command(name = OLD_SERVER, version)]
struct OldServer {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    sockets: Sockets,
}

/// Name of the old server.
const OLD_SERVER: &str = "allocation_server_poc";

/// The monitor of devices, memory and processes under its old name.
///
/// Prints the page of the old tool. The same data, with more detail: `ttmem -v`, `ttmem top`.
#[derive(Debug, Parser)]
#[command(name = OLD_MONITOR, version, after_help = OLD_MONITOR_EXAMPLES)]
struct OldMonitor {
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    sockets: Sockets,
}

/// Name of the old monitor.
const OLD_MONITOR: &str = "tt_smi_umd";

const OLD_MONITOR_EXAMPLES: &str = "\
Examples:
  tt_smi_umd               one page
  tt_smi_umd -w            dashboard, refreshed every 500 ms
  tt_smi_umd -w -r 1000    dashboard, refreshed every second

Keys of the dashboard: 1 main, 2 charts, 3 telemetry, q quit, ? all keys.
`ttmem --help` lists all commands.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the dashboard: live memory by device, process, buffer and core.
    ///
    /// Keys: 1 to 8 change the view, ? lists all keys, q quits. F12 saves settings to `$XDG_CONFIG_HOME/ttmem/config.toml`.
    Top(TopArgs),
    /// Run a program with the agent, which tracks every buffer of an unmodified ttnn.
    ///
    /// Child processes are tracked, too; a program that does not use ttnn is not changed. When the program ends, a summary on
    /// standard error says what was allocated at the peak and at the end, and why allocations failed. Exits with the program's
    /// code or signal, or with 126 or 127 if it cannot be run.
    #[command(
        after_help = "Examples:\n  ttmem run -- python model.py\n  ttmem run --stacks --report run.json -- python model.py\n  ttmem run --quiet -- pytest tests"
    )]
    Run(RunArgs),
    /// Print the environment variables that `ttmem run` sets.
    ///
    /// For shells, notebooks and containers, where ttmem does not start the program.
    #[command(
        after_help = "Examples:\n  eval \"$(ttmem env)\"\n  docker run $(ttmem env --style docker) --ipc host ..."
    )]
    Env(EnvArgs),
    /// Compare ttmem's figures with those of the runtime's allocators.
    ///
    /// Exits with 0 if every drift is 0, with 1 if one is not, with 3 if there is nothing to compare. With --limit, exits with 0 if all
    /// limits hold, with 1 if one does not or cannot be checked.
    #[command(
        after_help = "Examples:\n  ttmem check --fresh --wait 5\n  ttmem check --limit 'dram<10GiB' --limit 'l1_peak<90%' --pid 4242"
    )]
    Check(CheckArgs),
    /// Show what holds the memory: live allocations, blocks and holes, programs, or the L1 of each core.
    ///
    /// On a terminal, allocations that are alike are one line, largest first. Into a pipe, and with --all, --sort or --top,
    /// every allocation is a line.
    #[command(
        after_help = "Examples:\n  ttmem dump --group-by process\n  ttmem dump --group-by site\n  ttmem dump --sort age --top 20\n  ttmem dump --blocks --space dram\n  ttmem dump --programs\n  ttmem dump --cores -d 0\n  ttmem dump --cores 3,0 -d 0\n  ttmem dump --format csv\n  ttmem dump --report reports --pid 4242"
    )]
    Dump(DumpArgs),
    /// Show why an allocation failed: what held the memory, and what to free or move.
    ///
    /// The agent keeps what was allocated at the first and the last failure of a process, also after the process exited. Without an
    /// argument, shows the newest failure of all processes.
    #[command(
        after_help = "Examples:\n  ttmem postmortem\n  ttmem postmortem 4242\n  ttmem postmortem --first --json 4242\n  \
        ttmem postmortem /dev/shm/ttmem.4242.0123456789abcdef"
    )]
    Postmortem(PostMortemArgs),
    /// Say whether a buffer will fit, and at which address; or what to free.
    ///
    /// The answer follows the rule of the runtime's allocators: alignment, holes, and one range in all banks. Exits with 0 if the buffer fits,
    /// with 1 if it does not, with 3 if that is not known.
    #[command(
        after_help = "Examples:\n  ttmem fit --dram 2GiB\n  ttmem fit --l1 64KiB/core --pid 4242\n  ttmem fit --l1 1MiB --sharded 8x4 -d 0\n  \
        ttmem fit --tensor 1x32x4096x128:bfloat16:tile --count 64 --board n150\n  ttmem fit --dram 1GiB --segment /dev/shm/ttmem.4242.0123456789abcdef"
    )]
    Fit(FitArgs),
    /// Draw the memory of allocators by address, with its holes.
    ///
    /// `ttmem dump --blocks` lists every block.
    #[command(after_help = "Examples:\n  ttmem map\n  ttmem map --pid 4242 --space l1\n  ttmem map --top 20")]
    Map(MapArgs),
    /// Show the peaks of processes: how much, when, and which lines of code it consisted of.
    ///
    /// What a peak consisted of is known where ttmem followed the process then: with `ttmem run`, the daemon, or the dashboard.
    #[command(after_help = "Examples:\n  ttmem peak\n  ttmem peak 4242\n  ttmem peak --json")]
    Peak(PeakArgs),
    /// Write buffers by the calls that allocated them, for flame graphs: live, at the peak, or since the last mark.
    ///
    /// The output is collapsed stacks, one in each line with its bytes, which flamegraph.pl, speedscope and Perfetto read; or, with -o FILE.json,
    /// a file for speedscope with one profile for each space. `ttmem run --stacks` records whole stacks.
    #[command(
        after_help = "Examples:\n  ttmem flame -o flame.json\n  ttmem flame --at-peak --pid 4242 -o peak.json\n  ttmem flame --since-mark -d 0 > stacks.txt"
    )]
    Flame(FlameArgs),
    /// Show which lines of code leak: whose buffers only grow from step to step.
    ///
    /// A program marks the end of each step with `ttmem.mark("step", n)`. Without a daemon, which follows all marks, processes are followed
    /// for 10 seconds.
    #[command(after_help = "Examples:\n  ttmem leaks\n  ttmem leaks 4242\n  ttmem leaks --for 60 --json")]
    Leaks(LeaksArgs),
    /// Print allocations, frees, programs and failures: what happened lately, or as it happens.
    ///
    /// Events come from the segments of tracked processes, exactly, and from clients of the old protocol, through the daemon.
    /// What a reader missed is a line of its own, with the number of events.
    #[command(
        after_help = "Examples:\n  ttmem events -f\n  ttmem events --since 10s --kind out_of_memory,refused\n  ttmem events -f --json --pid 4242\n  ttmem events -f --format old | grep CB_ALLOC"
    )]
    Events(EventsArgs),
    /// Run the daemon: history, events, and figures that only root may read.
    ///
    /// Serves the query socket and the socket of the old clients; writes an event log to standard output.
    Serve(ServeArgs),
    /// Check driver, devices, permissions, shared memory and tracking.
    ///
    /// Exits with 0 if there are no problems, with 1 if there are warnings or something is broken.
    Doctor(DoctorArgs),
    /// Show the dashboard on simulated devices, with real client processes; needs no hardware.
    Demo(DemoArgs),
    /// One client process of the demo.
    #[command(hide = true)]
    DemoClient(DemoClientArgs),
    /// Print a shell completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page, in roff.
    Man {
        /// A command, such as `dump`; without it, the program.
        command: Option<String>,
    },
}

/// Where figures come from.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sources")]
pub(crate) struct Sockets {
    /// Do not use the daemon.
    #[arg(long, global = true)]
    pub(crate) local: bool,
    /// Read the machine's files below DIR; implies --local.
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Cluster descriptor of tt-umd with capacities and remote devices; implies --local.
    #[arg(long, global = true, value_name = "FILE", env = "TTMEM_TOPOLOGY", hide_env_values = true)]
    pub(crate) topology: Option<PathBuf>,
    /// Folder of segments and tt-metal counters [default: /dev/shm].
    #[arg(long, global = true, value_name = "DIR", env = "TTMEM_SHM_DIR", hide_env_values = true)]
    pub(crate) shm_dir: Option<PathBuf>,
    /// Socket of the old clients.
    #[arg(long, global = true, value_name = "PATH", env = "TTMEM_LEGACY_SOCKET", hide_env_values = true,
          default_value = ttmem_wire::legacy::SOCKET_PATH)]
    pub(crate) legacy_socket: PathBuf,
    /// Socket of the daemon [default: /run/ttmem/query.sock for root, else in `$XDG_RUNTIME_DIR`].
    #[arg(long, global = true, value_name = "PATH", env = "TTMEM_QUERY_SOCKET", hide_env_values = true)]
    pub(crate) query_socket: Option<PathBuf>,
}

impl Sockets {
    /// Whether a daemon is not used.
    pub(crate) fn is_local(&self) -> bool {
        self.reader_options().is_local()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.reader_options().folder()
    }

    /// The sources to read without a daemon.
    pub(crate) fn source_config(&self) -> Result<SourceConfig, ttmem_reader::Error> {
        self.reader_options().source_config()
    }

    /// The places of all sources.
    pub(crate) fn reader_options(&self) -> ReaderOptions {
        ReaderOptions {
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
    /// Print one line of JSON (docs/snapshot.schema.json).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print JSON with the keys of `tt-smi -s`.
    #[arg(short, long, conflicts_with_all = ["json", "watch", "format"])]
    pub(crate) snapshot: bool,
    // Not a comment, in which rustdoc takes brackets for links.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parse, conflicts_with = "json",
        help = "Output format: table, json, or csv[,noheader][,nounits]")]
    pub(crate) format: Format,
    /// Comma-separated fields, with --format csv; `--query help` lists them.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = Column::parse)]
    pub(crate) query: Vec<Column>,
    /// With --json: add usage over time.
    #[arg(long, requires = "json")]
    pub(crate) history: bool,
    /// With --json: add recent events: process start and exit, thresholds, findings.
    #[arg(long, requires = "json")]
    pub(crate) events: bool,
    /// With --json: add the L1 of each core by address.
    #[arg(long, requires = "json")]
    pub(crate) cores: bool,
    /// With --json: add programs and their memory on each core.
    #[arg(long, requires = "json")]
    pub(crate) programs: bool,
    /// List usage by call site and operation, largest first; with --json: add it.
    #[arg(long, conflicts_with_all = ["snapshot", "query"])]
    pub(crate) sites: bool,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// Add the memory breakdown by space, tracking details, full commands and all findings.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Whether the program was started as `tt_smi_umd`, which has a page of its own.
    #[arg(skip)]
    pub(crate) old_page: bool,
    /// Refresh until interrupted: the dashboard; tables into a pipe; lines with --json or --format csv.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With -w: print COUNT times, then exit.
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) refresh: RefreshArgs,
    /// Read telemetry from sysfs: accepted, and always so.
    #[arg(long, hide = true)]
    sysfs: bool,
    /// Accepted for callers of `tt-smi -s`.
    #[arg(long = "snapshot_no_tty", hide = true)]
    no_tty: bool,
}

impl ShowArgs {
    /// Whether to show the dashboard, if there is a terminal.
    pub(crate) fn is_dashboard(&self) -> bool {
        self.watch && !self.json && !self.sites && self.format == Format::Table && self.count.is_none()
    }
}

/// Which devices and processes to show.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    /// Only these devices, comma-separated: index, id, PCI address or /dev/tenstorrent/N.
    #[arg(short, long, value_name = "DEVICE", value_delimiter = ',')]
    pub(crate) device: Vec<String>,
    /// Only this process.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Only processes of this user (name or uid).
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        self.device.is_empty() && self.pid.is_none() && self.user.is_none()
    }
}

/// How to refresh.
#[derive(Clone, Debug, Args)]
pub(crate) struct RefreshArgs {
    /// Refresh interval in milliseconds [default: 500].
    #[arg(short, long, value_name = "MS", env = "TTMEM_TOP_REFRESH_MS", hide_env_values = true, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub(crate) refresh: Option<u64>,
    /// Colour theme of the dashboard [default: dark].
    #[arg(long, value_name = "THEME", env = "TTMEM_TOP_THEME", hide_env_values = true)]
    pub(crate) theme: Option<Theme>,
    /// Do not let the dashboard send signals.
    #[arg(long)]
    pub(crate) readonly: bool,
}

impl RefreshArgs {
    /// Refresh interval in milliseconds.
    pub(crate) fn refresh_ms(&self) -> u64 {
        self.refresh.unwrap_or(500)
    }
}

/// A theme on the command line.
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
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) refresh: RefreshArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// Accepted for callers of the old tool.
    #[arg(long, hide = true)]
    sysfs: bool,
}

/// The style of text.
#[derive(Clone, Debug, Args)]
pub(crate) struct TextArgs {
    /// Draw with ASCII characters only.
    #[arg(long)]
    pub(crate) ascii: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Records that each segment's ring holds, for followers of single events [default: 16384].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..=1_048_576))]
    pub(crate) ring: Option<u32>,
    /// Record the whole stack of each allocation, with at most N frames [default: 32]; with native, also the frames of C++ code.
    /// Otherwise only the line is recorded.
    #[arg(
        long,
        value_name = "[native,]N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "32",
        value_parser = parse_stacks,
        conflicts_with = "no_sites"
    )]
    pub(crate) stacks: Option<String>,
    /// Do not record which line and operation allocates.
    #[arg(long)]
    pub(crate) no_sites: bool,
    /// Append what to free to the exception that the program gets when an allocation fails.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Print no summary when the program ends.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Write the summary to FILE as well: as JSON if its name ends with .json, else as text.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Replace ttmem by the program, instead of waiting for it: without a summary.
    #[arg(long, conflicts_with_all = ["report", "quiet"])]
    pub(crate) exec: bool,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PostMortemArgs {
    /// A pid, or the file of a segment or crash segment.
    #[arg(value_name = "PID|SEGMENT")]
    pub(crate) target: Option<String>,
    /// Show the first failure of a process instead of its last one.
    #[arg(long)]
    pub(crate) first: bool,
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FlameArgs {
    /// Write to FILE instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Format [default: speedscope if FILE ends with .json, else collapsed].
    #[arg(long, value_enum)]
    format: Option<FlameFormat>,
    /// The buffers when the memory of each process in a space was largest.
    #[arg(long, conflicts_with = "since_mark")]
    at_peak: bool,
    /// Live buffers that each process allocated since its last mark, such as the end of a step.
    #[arg(long)]
    since_mark: bool,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Read one segment, also a crash segment.
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    pub(crate) segment: Option<PathBuf>,
}

impl FlameArgs {
    pub(crate) fn format(&self) -> FlameFormat {
        let is_json = |path: &PathBuf| path.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
        let of_file = if self.output.as_ref().is_some_and(is_json) {
            FlameFormat::Speedscope
        } else {
            FlameFormat::Collapsed
        };
        self.format.unwrap_or(of_file)
    }

    pub(crate) fn moment(&self) -> FlameMoment {
        match (self.at_peak, self.since_mark) {
            (true, _) => FlameMoment::Peak,
            (_, true) => FlameMoment::Mark,
            _ => FlameMoment::Live,
        }
    }
}

/// Formats of `ttmem flame`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum FlameFormat {
    /// One line for each stack.
    Collapsed,
    /// JSON for speedscope.
    Speedscope,
}

#[derive(Debug, Args)]
pub(crate) struct PeakArgs {
    /// Only this process.
    pub(crate) pid: Option<u32>,
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LeaksArgs {
    /// Only this process.
    pub(crate) pid: Option<u32>,
    /// Follow processes for SECONDS; without a daemon 10.
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3600))]
    pub(crate) duration: Option<u64>,
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// Output style.
    #[arg(long, value_enum, default_value_t = EnvStyle::Sh)]
    pub(crate) style: EnvStyle,
}

/// Output styles of `ttmem env`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum EnvStyle {
    /// sh, bash, zsh.
    Sh,
    /// fish.
    Fish,
    /// JSON, as in a Jupyter kernel.json.
    Json,
    /// Options of `docker run` and `podman run`.
    Docker,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Request new statistics from every allocator first.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Only this process.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Instead, check that memory is below a limit on every device, as dram<10GiB or l1_peak<90%; may be repeated.
    #[arg(long, value_name = "LIMIT", conflicts_with = "fresh")]
    pub(crate) limit: Vec<Limit>,
    /// How long to wait for busy allocators.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub(crate) wait: f64,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

/// Checks what `--stacks` says: `N`, `native` or `native,N`.
fn parse_stacks(text: &str) -> Result<String, String> {
    let frames = match text.strip_prefix("native") {
        Some("") => return Ok(text.to_owned()),
        Some(rest) => rest.strip_prefix(','),
        None => Some(text),
    };
    let is_valid =
        frames.and_then(|frames| frames.parse().ok()).is_some_and(|frames| (1..=64).contains(&frames));
    let expected = || "expected a number of frames from 1 to 64, native, or both, as in native,16".to_owned();
    is_valid.then(|| text.to_owned()).ok_or_else(expected)
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Simulated devices: n150, n300, t3k, p100a, p150a, p300, galaxy-wh or galaxy-bh.
    #[arg(long, visible_alias = "chips", value_name = "BOARD[xN]", default_value = "n300")]
    pub(crate) sim: sim::Machine,
    /// Exit after N seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) refresh: RefreshArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DemoClientArgs {
    /// The workload.
    #[arg(value_enum)]
    pub(crate) role: crate::demo::client::Role,
    /// The demo's pid.
    pub(crate) parent: u32,
    /// Folder of its segment, or socket of the old server.
    pub(crate) place: PathBuf,
    /// The simulated devices.
    pub(crate) sim: sim::Machine,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn stacks_are_checked() {
        for good in ["1", "64", "native", "native,1", "native,64"] {
            assert_eq!(parse_stacks(good).as_deref(), Ok(good));
        }
        for bad in ["", "0", "65", "native,", "native,0", "native,65", "native8", "python", "8,native", "-1"]
        {
            assert!(parse_stacks(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
        OldServer::command().debug_assert();
        OldMonitor::command().debug_assert();
    }
}
