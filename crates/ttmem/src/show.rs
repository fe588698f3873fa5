//! `ttmem`: one snapshot, as a table or as JSON.

use crate::cli::{Look, Only, ShowArgs, Sockets};
use crate::query::{self, Format};
use crate::source::{source, unless_absent};
use crate::text::Style;
use crate::{Exit, print, smi, table};
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
    let thorough = args.json || args.snapshot || args.format != Format::Table;
    let mut source = source(sockets, args.watch, thorough)?;
    if args.watch {
        let stop = stop_on_signals()?;
        return watch(
            || unless_absent(source.snapshot(&Detail::NONE)),
            &args.only,
            &args.look,
            args.watching.refresh_ms(),
            None,
            &stop,
        );
    }
    let as_json = args.json || args.format == Format::Json;
    let detail = Detail {
        history: args.history,
        events: args.events,
        cores: args.cores,
        programs: args.programs,
        ..Detail::NONE
    };
    if as_json && args.only.is_everything() {
        let Some(mut answer) = unless_absent(source.ask(&Request::Snapshot(detail)))? else {
            return Ok(Exit::NoDaemon);
        };
        // What the daemon says is the schema already.
        let skeleton: Skeleton = serde_json::from_slice(&answer).context("cannot read the answer")?;
        answer.push(b'\n');
        print(&answer)?;
        return Ok(verdict(skeleton.devices.is_empty() && skeleton.processes.is_empty()));
    }
    let Some(snapshot) = unless_absent(source.snapshot(&detail))? else { return Ok(Exit::NoDaemon) };
    let snapshot = only(snapshot, &args.only)?;
    let empty = snapshot.devices.is_empty() && snapshot.processes.is_empty();
    if as_json || args.snapshot {
        let mut text = if args.snapshot {
            serde_json::to_vec_pretty(&smi::render(&snapshot))?
        } else {
            serde_json::to_vec(&snapshot)?
        };
        text.push(b'\n');
        print(&text)?;
    } else if let Format::Csv { header, units } = args.format {
        print(query::csv(&snapshot, &args.query, header, units).as_bytes())?;
    } else if empty && snapshot.health.skipped.is_empty() {
        let _ = writeln!(
            io::stderr(),
            "ttmem: no Tenstorrent device here, and no process that publishes one; \
             see what is missing with `ttmem doctor`, or try `ttmem demo`"
        );
    } else {
        print(table::render(&snapshot, Style::new(args.look.ascii)).as_bytes())?;
    }
    Ok(verdict(empty))
}

/// As much of a snapshot as tells whether there is anything in it.
#[derive(Deserialize)]
struct Skeleton {
    devices: Vec<IgnoredAny>,
    processes: Vec<IgnoredAny>,
}

fn verdict(empty: bool) -> Exit {
    if empty { Exit::NothingThere } else { Exit::Done }
}

/// Leaves only what was asked for.
pub(crate) fn only(mut snapshot: Snapshot, only: &Only) -> anyhow::Result<Snapshot> {
    let asked = snapshot.events.is_some();
    let mut events = snapshot.events.take().unwrap_or_default();
    if !only.device.is_empty() {
        let mut chosen = Vec::new();
        for wanted in &only.device {
            let Some(device) = snapshot.devices.iter().find(|device| is_called(device, wanted)) else {
                anyhow::bail!("no device is called {wanted}; there are {}", known_devices(&snapshot));
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
        let users = users_called(user);
        snapshot.processes.retain(|process| process.user.as_ref().is_some_and(|it| users.contains(it)));
        let pids: Vec<_> = snapshot.processes.iter().map(|process| process.pid).collect();
        snapshot.findings.retain(|f| f.pid.is_none() || pids.contains(&f.pid));
        events.retain(|it| it.pid.is_none() || pids.contains(&it.pid));
    }
    if let Some(pid) = only.pid {
        snapshot.processes.retain(|process| process.pid == Some(pid));
        anyhow::ensure!(!snapshot.processes.is_empty(), "pid {pid} is not tracked");
        snapshot.findings.retain(|f| f.pid.is_none_or(|of| of == pid));
        events.retain(|it| it.pid.is_none_or(|of| of == pid));
    }
    snapshot.events = asked.then_some(events);
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
fn users_called(user: &str) -> Vec<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid) = (fields.next()?, fields.next()?, fields.next()?);
        (uid == user).then(|| name.to_owned())
    });
    named.chain([user.to_owned()]).collect()
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

/// Prints table after table, one below the other, for those who have no terminal.
pub(crate) fn watch(
    mut fetch: impl FnMut() -> anyhow::Result<Option<Snapshot>>,
    filter: &Only,
    look: &Look,
    refresh_ms: u64,
    until: Option<Instant>,
    stop: &AtomicBool,
) -> anyhow::Result<Exit> {
    let style = Style::new(look.ascii);
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        let Some(snapshot) = fetch()? else { return Ok(Exit::NoDaemon) };
        let text = table::render(&only(snapshot, filter)?, style);
        print(format!("{text}\n").as_bytes())?;
        let pause = Duration::from_millis(refresh_ms);
        let left = until.map_or(pause, |until| until.saturating_duration_since(Instant::now()));
        nap(pause.min(left), stop);
    }
    Ok(Exit::Done)
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
