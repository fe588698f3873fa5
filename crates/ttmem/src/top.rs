//! `ttmem top`: the dashboard, with its access to the machine: snapshots, signals, settings.

use crate::Exit;
use crate::cli::{Look, Only, Sockets, Watching};
use crate::settings;
use crate::show::{only, users_called};
use crate::source::source;
use anyhow::Context;
use rustix::process::{PidfdFlags, Signal as KernelSignal};
use std::io::{self, IsTerminal};
use std::time::Instant;
use ttmem_core::{Detail, Snapshot};
use ttmem_sources::Root;
use ttmem_sources::process::Processes;
use ttmem_tui::{Depth, Fetched, Hands, Recipient, Settings, Signal, Start, Terms};

/// Whether a dashboard can be shown at all.
pub(crate) fn has_screen() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn top(filter: &Only, look: &Look, how: &Watching, sockets: &Sockets) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        has_screen(),
        "the dashboard needs a terminal; `ttmem -w` prints tables, `ttmem -w --json` lines of JSON"
    );
    let mut source = source(sockets, true, true)?;
    // A wrong name is refused before the terminal is taken; a source that fails is shown by the dashboard.
    let brief = Detail { brief: true, ..Detail::NONE };
    if let Some(user) = &filter.user
        && let Ok((snapshot, _)) = source.live_snapshot(&brief)
    {
        users_called(user, &snapshot)?;
    }
    let filter = filter.clone();
    let narrowed = !filter.device.is_empty();
    let (mut chips, mut pids): (Option<Vec<u32>>, Vec<u32>) = (None, Vec::new());
    let fetch = move |detail: &Detail| {
        let mut detail = detail.clone();
        let mut fetched = || -> anyhow::Result<(Snapshot, String)> {
            if !filter.is_everything() && (detail.buffers.is_some() || detail.program_list.is_some()) {
                // Long lists are made where things are, so they are narrowed down there.
                if chips.is_none() || filter.user.is_some() {
                    let detail = Detail { brief: !narrowed, ..Detail::NONE };
                    let seen = only(source.live_snapshot(&detail)?.0, &filter)?;
                    chips = Some(indexes(&seen));
                    pids = seen.processes.iter().filter_map(|it| it.pid).collect();
                    // An empty list would mean all processes.
                    if pids.is_empty() {
                        pids.push(0);
                    }
                }
                let devices = if narrowed { chips.clone().unwrap_or_default() } else { Vec::new() };
                let pids =
                    if filter.pid.is_some() || filter.user.is_some() { pids.clone() } else { Vec::new() };
                if let Some(query) = &mut detail.buffers {
                    (query.devices, query.pids) = (devices.clone(), pids.clone());
                }
                if let Some(query) = &mut detail.program_list {
                    (query.devices, query.pids) = (devices, pids);
                }
            }
            let (snapshot, by) = source.live_snapshot(&detail)?;
            let snapshot = if filter.is_everything() { snapshot } else { only(snapshot, &filter)? };
            if narrowed {
                chips = Some(indexes(&snapshot));
            }
            Ok((snapshot, by.to_owned()))
        };
        fetched().map_err(|e| format!("{e:#}"))
    };
    show(Box::new(fetch), look, how, narrowed, None)
}

fn indexes(snapshot: &Snapshot) -> Vec<u32> {
    snapshot.devices.iter().map(|it| it.index).collect()
}

/// Shows what is fetched.
pub(crate) fn show(
    fetch: Box<dyn FnMut(&Detail) -> Fetched + Send>,
    look: &Look,
    how: &Watching,
    narrowed: bool,
    until: Option<Instant>,
) -> anyhow::Result<Exit> {
    let term = std::env::var("TERM").unwrap_or_default();
    anyhow::ensure!(
        !matches!(term.as_str(), "" | "dumb"),
        "TERM is {term:?}: this terminal cannot show the dashboard; `ttmem -w | cat` prints tables"
    );
    let kept = settings::read()?;
    let chosen = Settings {
        theme: how.theme.map_or(kept.theme, Into::into),
        refresh_ms: how.refresh.unwrap_or(kept.refresh_ms),
        ..kept
    };
    let terms = Terms {
        depth: depth(&term),
        ascii: look.ascii || !is_utf8() || term == "linux",
        readonly: how.readonly,
        own_pid: std::process::id(),
        narrowed,
    };
    let mut processes = Processes::new(&Root::default());
    let hands = Hands {
        fetch,
        signal: Box::new(move |to, signal| send(&mut processes, to, signal)),
        save: Box::new(|settings| {
            let path = settings::write(settings).map_err(|e| format!("{e:#}"))?;
            Ok(format!("saved to {}", path.display()))
        }),
    };
    ttmem_tui::run(Start { settings: chosen, terms, until }, hands).context("cannot use the terminal")?;
    Ok(Exit::Done)
}

fn depth(term: &str) -> Depth {
    let set = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    if set("NO_COLOR").is_some() {
        Depth::None
    } else if set("COLORTERM").is_some_and(|it| it == "truecolor" || it == "24bit") {
        Depth::Full
    } else if term.contains("256color") || term.contains("kitty") || term.contains("direct") {
        Depth::Indexed
    } else {
        Depth::Sixteen
    }
}

/// What the person's language settings say of the terminal.
fn is_utf8() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
    set.is_some_and(|it| {
        let it = it.to_ascii_lowercase();
        it.contains("utf-8") || it.contains("utf8")
    })
}

/// Sends a signal to that very process, never to a later one with its pid.
fn send(processes: &mut Processes, to: &Recipient, signal: &Signal) -> Result<String, String> {
    let Recipient { pid, start, name, .. } = to;
    let whom = format!("{name} (pid {pid})");
    let gone = || format!("{whom} has exited; no signal was sent");
    let raw = rustix::process::Pid::from_raw(*pid as i32).ok_or_else(gone)?;
    // Held from here on, the number means this process and no other.
    let held =
        rustix::process::pidfd_open(raw, PidfdFlags::empty()).map_err(|e| refusal(&whom, signal, e))?;
    let now = processes.start_ticks(*pid).and_then(|ticks| processes.wall_time(ticks));
    let same = start.zip(now).is_some_and(|(then, now)| {
        // The moment of booting is known to the second, and a clock may be set.
        now.duration_since(then).abs() < jiff::SignedDuration::from_secs(2)
    });
    if !same {
        return Err(format!("pid {pid} is another process now; no signal was sent"));
    }
    let number = KernelSignal::from_named_raw(signal.number)
        .ok_or_else(|| format!("unknown signal {}", signal.name))?;
    rustix::process::pidfd_send_signal(&held, number).map_err(|e| refusal(&whom, signal, e))?;
    Ok(format!("sent {} to {whom}", signal.name))
}

/// Not permitted is not gone.
fn refusal(whom: &str, signal: &Signal, why: rustix::io::Errno) -> String {
    match why {
        rustix::io::Errno::SRCH => format!("{whom} has exited; no signal was sent"),
        rustix::io::Errno::PERM => format!("not permitted to send {} to {whom}", signal.name),
        why => format!("cannot send {} to {whom}: {why}", signal.name),
    }
}
