//! `ttmem`: one snapshot, or one per refresh, as a table, JSON or CSV.

use crate::cli::{Look, Only, ShowArgs, Sockets};
use crate::query::{self, Column, Format};
use crate::source::{source, unless_absent};
use crate::text::Style;
use crate::{Exit, UsageError, print, smi, table};
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
use ttmem_reader::Request;

pub(crate) fn snapshot(args: &ShowArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    if args.query.iter().any(Column::is_help) {
        return print(query::help().as_bytes());
    }
    let printer = Printer::new(args);
    let mut source = source(sockets, args.watch, !printer.is_table())?;
    let detail = Detail {
        history: args.history,
        events: args.events,
        cores: args.cores,
        programs: args.programs,
        ..Detail::NONE
    };
    let mut is_first = true;
    let print_one = || {
        let first = std::mem::take(&mut is_first);
        // What a daemon answers has the schema already.
        if matches!(printer.format, Output::Json) && args.only.is_everything() {
            let answer = unless_absent(source.ask(&Request::Snapshot(detail.clone())))?;
            return answer.map(print_answer).transpose();
        }
        let Some(snapshot) = unless_absent(source.snapshot(&detail))? else { return Ok(None) };
        let snapshot = only(snapshot, &args.only)?;
        let empty = snapshot.devices.is_empty() && snapshot.processes.is_empty();
        if printer.is_table() && !args.watch && empty && snapshot.health.skipped.is_empty() {
            let _ = writeln!(
                io::stderr(),
                "ttmem: no Tenstorrent device found, and no process publishes one; \
                 `ttmem doctor` says what is missing, `ttmem demo` simulates some"
            );
        } else {
            print(&printer.text(&snapshot, first)?)?;
        }
        Ok(Some(verdict(empty)))
    };
    let count = if args.watch { args.count } else { Some(1) };
    let stop = if args.watch { stop_on_signals()? } else { Arc::default() };
    watch(print_one, args.watching.refresh_ms(), count, None, &stop)
}

/// How snapshots are printed.
pub(crate) struct Printer<'a> {
    format: Output<'a>,
    style: Style,
    /// Whether there is an empty line behind each.
    apart: bool,
}

#[derive(Clone, Copy)]
enum Output<'a> {
    Table {
        verbose: bool,
    },
    OldTable,
    Json,
    /// With the keys of `tt-smi -s`.
    Smi,
    Csv {
        columns: &'a [Column],
        header: bool,
        units: bool,
    },
}

impl<'a> Printer<'a> {
    fn new(args: &'a ShowArgs) -> Self {
        let format = match args.format {
            _ if args.snapshot => Output::Smi,
            _ if args.json => Output::Json,
            Format::Json => Output::Json,
            Format::Csv { header, units } => Output::Csv { columns: &args.query, header, units },
            Format::Table if args.old_page => Output::OldTable,
            Format::Table => Output::Table { verbose: args.verbose },
        };
        Self { format, style: Style::new(args.look.ascii), apart: args.watch }
    }

    /// Tables, one below the other.
    pub(crate) fn tables(look: &Look) -> Self {
        Self { format: Output::Table { verbose: false }, style: Style::new(look.ascii), apart: true }
    }

    fn is_table(&self) -> bool {
        matches!(self.format, Output::Table { .. } | Output::OldTable)
    }

    /// A snapshot, the first or a later one.
    pub(crate) fn text(&self, snapshot: &Snapshot, first: bool) -> anyhow::Result<Vec<u8>> {
        let line = |mut json: Vec<u8>| {
            json.push(b'\n');
            json
        };
        let apart = if self.apart { "\n" } else { "" };
        Ok(match self.format {
            Output::Table { verbose } => (table::render(snapshot, verbose, self.style) + apart).into_bytes(),
            Output::OldTable => (table::old::render(snapshot, self.style) + apart).into_bytes(),
            Output::Json => line(serde_json::to_vec(snapshot)?),
            Output::Smi => line(serde_json::to_vec_pretty(&smi::render(snapshot))?),
            Output::Csv { columns, header, units } => {
                query::csv(snapshot, columns, header && first, units).into_bytes()
            }
        })
    }
}

/// Prints a snapshot as it was answered.
fn print_answer(mut answer: Vec<u8>) -> anyhow::Result<Exit> {
    let skeleton: Skeleton = serde_json::from_slice(&answer).context("cannot read the answer")?;
    answer.push(b'\n');
    print(&answer)?;
    Ok(verdict(skeleton.devices.is_empty() && skeleton.processes.is_empty()))
}

/// The part of a snapshot that shows whether it is empty.
#[derive(Deserialize)]
struct Skeleton {
    devices: Vec<IgnoredAny>,
    processes: Vec<IgnoredAny>,
}

fn verdict(empty: bool) -> Exit {
    if empty { Exit::NothingThere } else { Exit::Done }
}

/// Leaves the chosen devices and processes.
pub(crate) fn only(mut snapshot: Snapshot, only: &Only) -> anyhow::Result<Snapshot> {
    let has_events = snapshot.events.is_some();
    let mut events = snapshot.events.take().unwrap_or_default();
    if !only.device.is_empty() {
        let mut chosen = Vec::new();
        for wanted in &only.device {
            let Some(device) = snapshot.devices.iter().find(|device| is_called(device, wanted)) else {
                return Err(UsageError(format!(
                    "--device {wanted}: no such device; devices are {}",
                    known_devices(&snapshot)
                ))
                .into());
            };
            chosen.push(device.id.clone());
        }
        snapshot.devices.retain(|device| chosen.contains(&device.id));
        let devices = &snapshot.devices;
        let index_of = |id: &str| devices.iter().find(|it| it.id == id).map(|it| it.index);
        snapshot.processes.retain_mut(|process| {
            process.usage.retain(|usage| chosen.contains(&usage.device));
            process.open_devices.retain(|device| chosen.contains(device));
            process.traces.retain(|it| it.devices.iter().any(|id| chosen.contains(id)));
            if let Some(programs) = &mut process.programs {
                programs.retain(|it| it.devices.iter().any(|id| chosen.contains(id)));
            }
            process.summarise(index_of);
            !process.usage.is_empty() || !process.open_devices.is_empty()
        });
        snapshot.findings.retain(|f| f.device.as_ref().is_none_or(|id| chosen.contains(id)));
        events.retain(|it| it.device.as_ref().is_none_or(|id| chosen.contains(id)));
    }
    if let Some(user) = &only.user {
        let users = users_called(user, &snapshot)?;
        snapshot.processes.retain(|process| process.user.as_ref().is_some_and(|it| users.contains(it)));
        let pids: Vec<_> = snapshot.processes.iter().map(|process| process.pid).collect();
        snapshot.findings.retain(|f| f.pid.is_none() || pids.contains(&f.pid));
        events.retain(|it| it.pid.is_none() || pids.contains(&it.pid));
    }
    if let Some(pid) = only.pid {
        snapshot.processes.retain(|process| process.pid == Some(pid));
        anyhow::ensure!(
            !snapshot.processes.is_empty(),
            "--pid {pid}: the process has no device open and reports no memory"
        );
        snapshot.findings.retain(|f| f.pid.is_none_or(|of| of == pid));
        events.retain(|it| it.pid.is_none_or(|of| of == pid));
    }
    snapshot.events = has_events.then_some(events);
    Ok(snapshot)
}

/// By index, id or other name, place on the bus, or node.
fn is_called(device: &Device, wanted: &str) -> bool {
    let is_index = device.index.to_string() == wanted;
    let is_id = device.id.eq_ignore_ascii_case(wanted)
        || device.names.iter().any(|name| name.eq_ignore_ascii_case(wanted));
    let is_place = device.pci.as_ref().is_some_and(|pci| {
        pci.eq_ignore_ascii_case(wanted)
            || pci.strip_prefix("0000:").is_some_and(|it| it.eq_ignore_ascii_case(wanted))
    });
    let node = wanted.strip_prefix("/dev/tenstorrent/");
    let is_node = device.node.zip(node).is_some_and(|(is, wanted)| is.to_string() == wanted);
    is_index || is_id || is_place || is_node
}

/// The names under which a user may be listed: a number is one, too.
pub(crate) fn users_called(user: &str, snapshot: &Snapshot) -> anyhow::Result<Vec<String>> {
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

/// A flag that the signals which end programs set. A hang-up is none of them under `nohup`.
pub(crate) fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal != SIGHUP || !ttmem_daemon::is_ignored(SIGHUP) {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
    }
    Ok(stop)
}

/// Prints again and again: `count` times, until a moment, or until a signal. The exit code is that of the last time.
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
        nap(pause.min(left), stop);
    }
    // A loop without a count ends by a signal, which is not a failure.
    Ok(if count.is_some() { exit } else { Exit::Done })
}

/// Sleeps, but not through a signal.
pub(crate) fn nap(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
