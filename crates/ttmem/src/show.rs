//! `ttmem`: one snapshot, as a table or as JSON.

use crate::cli::{Look, Only, ShowArgs, Sockets};
use crate::source::Source;
use crate::text::{Style, cut_line};
use crate::{Exit, print, table};
use anyhow::Context;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use ttmem_core::Snapshot;
use ttmem_daemon::query::Request;

/// As much of a snapshot as tells whether there is anything in it.
#[derive(Deserialize)]
struct Skeleton {
    devices: Vec<IgnoredAny>,
    processes: Vec<IgnoredAny>,
}

pub(crate) fn snapshot(args: &ShowArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = Source::new(sockets);
    if args.watch {
        let stop = stop_on_signals()?;
        return watch(|| source.snapshot(), &args.only, &args.look, args.refresh, None, &stop);
    }
    let request = Request::Snapshot { history: args.history };
    let Some(mut answer) = source.ask(request)? else { return Ok(Exit::NoDaemon) };
    let everything = args.only.device.is_none() && args.only.pid.is_none();
    if args.json && everything {
        // What the daemon says is the schema already.
        let skeleton: Skeleton = serde_json::from_slice(&answer).context("cannot read the answer")?;
        answer.push(b'\n');
        print(&answer)?;
        return Ok(verdict(skeleton.devices.is_empty() && skeleton.processes.is_empty()));
    }
    let snapshot: Snapshot = serde_json::from_slice(&answer).context("cannot read the answer")?;
    let snapshot = only(snapshot, &args.only)?;
    if args.json {
        let mut line = serde_json::to_vec(&snapshot)?;
        line.push(b'\n');
        print(&line)?;
    } else {
        print(table::render(&snapshot, Style::new(args.look.ascii)).as_bytes())?;
    }
    Ok(verdict(snapshot.devices.is_empty() && snapshot.processes.is_empty()))
}

fn verdict(empty: bool) -> Exit {
    if empty { Exit::NothingThere } else { Exit::Done }
}

/// Leaves only what was asked for.
pub(crate) fn only(mut snapshot: Snapshot, only: &Only) -> anyhow::Result<Snapshot> {
    if let Some(wanted) = &only.device {
        let fits = |id: &str, index: u32| id == wanted || index.to_string() == *wanted;
        let Some(device) = snapshot.devices.iter().find(|d| fits(&d.id, d.index)).cloned() else {
            anyhow::bail!("no device is called {wanted}; there are {}", known_devices(&snapshot));
        };
        snapshot.processes.retain_mut(|process| {
            process.usage.retain(|usage| usage.device == device.id);
            !process.usage.is_empty()
        });
        snapshot.findings.retain(|f| f.device.as_ref().is_none_or(|id| *id == device.id));
        snapshot.devices = vec![device];
    }
    if let Some(pid) = only.pid {
        snapshot.processes.retain(|process| process.pid == Some(pid));
        anyhow::ensure!(!snapshot.processes.is_empty(), "pid {pid} is not tracked");
        snapshot.findings.retain(|f| f.pid.is_none_or(|of| of == pid));
    }
    Ok(snapshot)
}

fn known_devices(snapshot: &Snapshot) -> String {
    match &snapshot.devices[..] {
        [] => "none".to_owned(),
        all => crate::text::ranges(&all.iter().map(|d| d.index).collect::<Vec<_>>()),
    }
}

/// A flag that the signals which end programs set.
pub(crate) fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Shows snapshots again and again: over each other on a terminal, one below the other elsewhere.
pub(crate) fn watch(
    mut fetch: impl FnMut() -> anyhow::Result<Option<Snapshot>>,
    filter: &Only,
    look: &Look,
    refresh_ms: u64,
    until: Option<Instant>,
    stop: &AtomicBool,
) -> anyhow::Result<Exit> {
    let style = Style::new(look.ascii);
    let screen = io::stdout().is_terminal();
    if screen {
        // The other screen, without a cursor.
        print(b"\x1b[?1049h\x1b[?25l")?;
    }
    let shown = (|| {
        while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
            let Some(snapshot) = fetch()? else { return Ok(Exit::NoDaemon) };
            let text = table::render(&only(snapshot, filter)?, style);
            if screen {
                print(on_screen(&text).as_bytes())?;
            } else {
                print(format!("{text}\n").as_bytes())?;
            }
            let pause = Duration::from_millis(refresh_ms);
            let left = until.map_or(pause, |until| until.saturating_duration_since(Instant::now()));
            nap(pause.min(left), stop);
        }
        Ok(Exit::Done)
    })();
    if screen {
        print(b"\x1b[?25h\x1b[?1049l")?;
    }
    shown
}

/// One frame: from the top, each line cleared behind its end, no more lines than the terminal has, and no longer ones.
fn on_screen(text: &str) -> String {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
    let (rows, columns) = (usize::from(rows.max(4)), usize::from(columns.max(20)));
    let lines: Vec<&str> = text.lines().collect();
    let mut frame = String::from("\x1b[H");
    let room = if lines.len() > rows { rows - 1 } else { lines.len() };
    for (n, line) in lines.iter().take(room).enumerate() {
        if n > 0 {
            frame.push_str("\r\n");
        }
        frame.push_str(&cut_line(line, columns));
        frame.push_str("\x1b[K");
    }
    if room < lines.len() {
        let more = format!("\r\n({} more lines: enlarge the terminal)\x1b[K", lines.len() - room);
        frame.push_str(&more);
    }
    frame.push_str("\x1b[J");
    frame
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
