//! `ttmem`: one snapshot, or one per refresh, as a table, JSON or CSV.

use crate::cli::{Filter, ShowArgs, Sockets, TextArgs};
use crate::query::{Column, Format, format_csv, format_help};
use crate::source::{answer_or_report, open_source};
use crate::text::Style;
use crate::{Exit, UsageError, print, sites, smi, table};
use anyhow::Context;
use serde::Deserialize;
use serde::de::IgnoredAny;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use ttmem_core::snapshot::Device;
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::{Request, json};
use ttmem_render::{CsvOptions, format_csv as format_csv_rows, site};

pub(crate) fn run(args: &ShowArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    if args.query.iter().any(Column::is_help) {
        return print(format_help().as_bytes());
    }
    let printer = Printer::new(args);
    let mut source = open_source(sockets, args.watch, !printer.is_table())?;
    let detail = Detail {
        history: args.history,
        events: args.events,
        cores: args.cores,
        programs: args.programs,
        sites: args.sites,
        ..Detail::NONE
    };
    let mut is_first = true;
    let print_one = || {
        let first = std::mem::take(&mut is_first);
        // The daemon's answer is JSON of the schema already.
        if matches!(printer.format, Output::Json) && args.filter.is_empty() {
            let answer = answer_or_report(source.ask(&Request::Snapshot(detail.clone())))?;
            return answer.map(print_answer).transpose();
        }
        let Some(snapshot) = answer_or_report(source.snapshot(&detail))? else { return Ok(None) };
        let snapshot = apply_filter(snapshot, &args.filter)?;
        let empty = snapshot.devices.is_empty() && snapshot.processes.is_empty();
        if printer.is_table() && !args.watch && empty && snapshot.health.skipped.is_empty() {
            let _ = writeln!(
                io::stderr(),
                "ttmem: no Tenstorrent device found, and no process publishes one; \
                 `ttmem doctor` says what is missing, `ttmem demo` simulates some"
            );
        } else {
            print(&printer.format(&snapshot, first)?)?;
        }
        Ok(Some(exit_for(empty)))
    };
    let count = if args.watch { args.count } else { Some(1) };
    let stop = if args.watch { stop_on_signals()? } else { Arc::default() };
    watch(print_one, args.refresh.refresh_ms(), count, None, &stop)
}

/// Format and style of printed snapshots.
pub(crate) struct Printer<'a> {
    format: Output<'a>,
    style: Style,
    /// Whether an empty line follows each table.
    apart: bool,
}

#[derive(Clone, Copy)]
enum Output<'a> {
    Table {
        verbose: bool,
    },
    OldTable,
    /// Usage by call site.
    Sites {
        verbose: bool,
    },
    SitesCsv(CsvOptions),
    Json,
    /// With the keys of `tt-smi -s`.
    Smi,
    Csv {
        columns: &'a [Column],
        options: CsvOptions,
    },
}

impl<'a> Printer<'a> {
    fn new(args: &'a ShowArgs) -> Self {
        let format = match args.format {
            _ if args.snapshot => Output::Smi,
            _ if args.json => Output::Json,
            Format::Json => Output::Json,
            Format::Csv(options) if args.sites => Output::SitesCsv(options),
            Format::Table if args.sites => Output::Sites { verbose: args.verbose },
            Format::Csv(options) => Output::Csv { columns: &args.query, options },
            Format::Table if args.old_page => Output::OldTable,
            Format::Table => Output::Table { verbose: args.verbose },
        };
        Self { format, style: Style::new(args.text.ascii), apart: args.watch }
    }

    /// Creates a printer of tables, one below the other.
    pub(crate) fn tables(text: &TextArgs) -> Self {
        Self { format: Output::Table { verbose: false }, style: Style::new(text.ascii), apart: true }
    }

    fn is_table(&self) -> bool {
        matches!(self.format, Output::Table { .. } | Output::OldTable | Output::Sites { .. })
    }

    /// Formats a snapshot; the header of CSV is only before the first one.
    pub(crate) fn format(&self, snapshot: &Snapshot, first: bool) -> anyhow::Result<Vec<u8>> {
        let line = |mut json: Vec<u8>| {
            json.push(b'\n');
            json
        };
        let apart = if self.apart { "\n" } else { "" };
        Ok(match self.format {
            Output::Table { verbose } => (table::render(snapshot, verbose, self.style) + apart).into_bytes(),
            Output::OldTable => (table::old::render(snapshot, self.style) + apart).into_bytes(),
            Output::Sites { verbose } => (sites::render(snapshot, verbose, self.style) + apart).into_bytes(),
            Output::SitesCsv(options) => {
                let options = CsvOptions { header: options.header && first, ..options };
                format_csv_rows(site::FIELDS, sites::rows(snapshot), options).into_bytes()
            }
            Output::Json => line(json::to_vec(snapshot)?),
            Output::Smi => {
                let mut bytes = serde_json::to_vec_pretty(&smi::render(snapshot))?;
                json::escape(&mut bytes, 0);
                line(bytes)
            }
            Output::Csv { columns, options } => {
                let options = CsvOptions { header: options.header && first, ..options };
                format_csv(snapshot, columns, options).into_bytes()
            }
        })
    }
}

/// Prints the answer of a daemon with all of its values.
fn print_answer(mut answer: Vec<u8>) -> anyhow::Result<Exit> {
    let skeleton: Skeleton = serde_json::from_slice(&answer).context("cannot read the answer")?;
    json::escape(&mut answer, 0);
    answer.push(b'\n');
    print(&answer)?;
    Ok(exit_for(skeleton.devices.is_empty() && skeleton.processes.is_empty()))
}

/// The part of a snapshot that shows whether it is empty.
#[derive(Deserialize)]
struct Skeleton {
    devices: Vec<IgnoredAny>,
    processes: Vec<IgnoredAny>,
}

fn exit_for(empty: bool) -> Exit {
    if empty { Exit::NothingFound } else { Exit::Done }
}

/// Removes devices and processes that do not match the filter.
pub(crate) fn apply_filter(mut snapshot: Snapshot, filter: &Filter) -> anyhow::Result<Snapshot> {
    let has_events = snapshot.events.is_some();
    let mut events = snapshot.events.take().unwrap_or_default();
    if !filter.device.is_empty() {
        let mut ids = Vec::new();
        for wanted in &filter.device {
            let Some(device) = snapshot.devices.iter().find(|device| matches_device(device, wanted)) else {
                return Err(no_such_device(wanted, &snapshot).into());
            };
            ids.push(device.id.clone());
        }
        snapshot.devices.retain(|device| ids.contains(&device.id));
        let devices = &snapshot.devices;
        let index_of = |id: &str| devices.iter().find(|it| it.id == id).map(|it| it.index);
        snapshot.processes.retain_mut(|process| {
            process.usage.retain(|usage| ids.contains(&usage.device));
            process.open_devices.retain(|device| ids.contains(device));
            process.traces.retain(|it| it.devices.iter().any(|id| ids.contains(id)));
            if let Some(programs) = &mut process.programs {
                programs.retain(|it| it.devices.iter().any(|id| ids.contains(id)));
            }
            process.summarise(index_of);
            !process.usage.is_empty() || !process.open_devices.is_empty()
        });
        let maps = snapshot.block_maps.iter_mut();
        maps.for_each(|maps| maps.retain(|it| it.devices.iter().any(|id| ids.contains(id))));
        let indexes: Vec<u32> = snapshot.devices.iter().map(|device| device.index).collect();
        let sites = snapshot.sites.iter_mut();
        sites.for_each(|sites| sites.retain(|it| it.indexes.iter().any(|index| indexes.contains(index))));
        let flame = snapshot.flame.iter_mut();
        flame.for_each(|it| it.pools.retain(|of| of.indexes.iter().any(|index| indexes.contains(index))));
        snapshot.findings.retain(|f| f.device.as_ref().is_none_or(|id| ids.contains(id)));
        events.retain(|it| it.device.as_ref().is_none_or(|id| ids.contains(id)));
    }
    if let Some(user) = &filter.user {
        let users = resolve_user(user, &snapshot)?;
        snapshot.processes.retain(|process| process.user.as_ref().is_some_and(|it| users.contains(it)));
        let pids: Vec<_> = snapshot.processes.iter().map(|process| process.pid).collect();
        snapshot.block_maps.iter_mut().for_each(|maps| maps.retain(|it| pids.contains(&it.pid)));
        snapshot.sites.iter_mut().for_each(|sites| sites.retain(|it| pids.contains(&it.pid)));
        snapshot.flame.iter_mut().for_each(|it| it.pools.retain(|of| pids.contains(&of.pid)));
        snapshot.findings.retain(|f| f.pid.is_none() || pids.contains(&f.pid));
        events.retain(|it| it.pid.is_none() || pids.contains(&it.pid));
    }
    if let Some(pid) = filter.pid {
        snapshot.processes.retain(|process| process.pid == Some(pid));
        anyhow::ensure!(
            !snapshot.processes.is_empty(),
            "--pid {pid}: the process has no device open and reports no memory"
        );
        snapshot.block_maps.iter_mut().for_each(|maps| maps.retain(|it| it.pid == Some(pid)));
        snapshot.sites.iter_mut().for_each(|sites| sites.retain(|it| it.pid == Some(pid)));
        snapshot.flame.iter_mut().for_each(|it| it.pools.retain(|of| of.pid == Some(pid)));
        snapshot.findings.retain(|f| f.pid.is_none_or(|of| of == pid));
        events.retain(|it| it.pid.is_none_or(|of| of == pid));
    }
    snapshot.events = has_events.then_some(events);
    Ok(snapshot)
}

/// The indexes of the devices that are named by index, id, PCI address or node.
pub(crate) fn find_devices(snapshot: &Snapshot, wanted: &[String]) -> anyhow::Result<Vec<u32>> {
    let find = |name: &String| {
        let found = snapshot.devices.iter().find(|device| matches_device(device, name));
        found.map(|device| device.index).ok_or_else(|| no_such_device(name, snapshot).into())
    };
    wanted.iter().map(find).collect()
}

fn no_such_device(wanted: &str, snapshot: &Snapshot) -> UsageError {
    UsageError(format!("--device {wanted}: no such device; devices are {}", known_devices(snapshot)))
}

/// Whether a device has this index, id or other name, PCI address, or node.
fn matches_device(device: &Device, wanted: &str) -> bool {
    let is_index = device.index.to_string() == wanted;
    let is_id = device.id.eq_ignore_ascii_case(wanted)
        || device.names.iter().any(|name| name.eq_ignore_ascii_case(wanted));
    let is_pci_address = device.pci.as_ref().is_some_and(|pci| {
        pci.eq_ignore_ascii_case(wanted)
            || pci.strip_prefix("0000:").is_some_and(|it| it.eq_ignore_ascii_case(wanted))
    });
    let node = wanted.strip_prefix("/dev/tenstorrent/");
    let is_node = device.node.zip(node).is_some_and(|(is, wanted)| is.to_string() == wanted);
    is_index || is_id || is_pci_address || is_node
}

/// The names under which processes of a user may be listed. A uid is resolved to its names.
pub(crate) fn resolve_user(user: &str, snapshot: &Snapshot) -> anyhow::Result<Vec<String>> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let users: Vec<(&str, &str)> = passwd
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _, uid) = (fields.next()?, fields.next()?, fields.next()?);
            Some((name, uid))
        })
        .collect();
    let is_known = user.parse::<u32>().is_ok()
        || users.iter().any(|(name, _)| *name == user)
        || snapshot.processes.iter().any(|it| it.user.as_deref() == Some(user));
    if !is_known {
        return Err(UsageError(format!(
            "--user {user}: no such user; give a name from /etc/passwd or a numeric uid"
        ))
        .into());
    }
    let named = users.iter().filter(|(_, uid)| *uid == user).map(|(name, _)| (*name).to_owned());
    Ok(named.chain([user.to_owned()]).collect())
}

fn known_devices(snapshot: &Snapshot) -> String {
    match &snapshot.devices[..] {
        [] => "none".to_owned(),
        all => ttmem_core::words::ranges(&all.iter().map(|d| d.index).collect::<Vec<_>>()),
    }
}

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set; SIGHUP is ignored under `nohup`.
pub(crate) fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal != SIGHUP || !ttmem_daemon::is_ignored(SIGHUP) {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
    }
    Ok(stop)
}

/// Prints repeatedly: `count` times, until a time, or until a signal. The exit code is that of the last time.
pub(crate) fn watch(
    mut print_one: impl FnMut() -> anyhow::Result<Option<Exit>>,
    refresh_ms: u64,
    count: Option<u64>,
    until: Option<Instant>,
    stop: &AtomicBool,
) -> anyhow::Result<Exit> {
    let (mut exit, mut printed) = (Exit::Done, 0);
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        exit = match print_one()? {
            Some(exit) => exit,
            None => return Ok(Exit::NoDaemon),
        };
        printed += 1;
        if count == Some(printed) {
            return Ok(exit);
        }
        let pause = Duration::from_millis(refresh_ms);
        let left = until.map_or(pause, |until| until.saturating_duration_since(Instant::now()));
        sleep_unless_stopped(pause.min(left), stop);
    }
    // A loop without a count ends by a signal, which is not a failure.
    Ok(if count.is_some() { exit } else { Exit::Done })
}

/// Sleeps until the time is over or a signal sets the flag.
fn sleep_unless_stopped(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
