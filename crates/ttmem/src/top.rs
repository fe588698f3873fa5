//! `ttmem top`: the dashboard, with its access to the machine: snapshots, signals, settings.

use crate::Exit;
use crate::cli::{Filter, RefreshArgs, Sockets, TextArgs};
use crate::settings;
use crate::show::{apply_filter, resolve_user};
use crate::source::open_source;
use anyhow::Context;
use rustix::process::{PidfdFlags, Signal as KernelSignal};
use std::io::{self, IsTerminal};
use std::time::Instant;
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::{FailureQuery, find_post_mortem};
use ttmem_sources::process::Processes;
use ttmem_sources::{Root, SourceConfig, WhichFailure};
use ttmem_tui::{
    Callbacks, ColourDepth, Environment, FailureKey, FetchResult, PostMortemReader, Recipient, Settings,
    Signal, StartOptions,
};

/// Whether there is a terminal for the dashboard.
pub(crate) fn has_terminal() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn run(
    filter: &Filter,
    text: &TextArgs,
    refresh: &RefreshArgs,
    sockets: &Sockets,
) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        has_terminal(),
        "the dashboard needs a terminal; `ttmem -w` prints tables, `ttmem -w --json` lines of JSON"
    );
    let mut source = open_source(sockets, true, true)?;
    // An unknown user is reported before the dashboard starts; a source that fails is reported on the dashboard.
    let brief = Detail { brief: true, ..Detail::NONE };
    if let Some(user) = &filter.user
        && let Ok((snapshot, _)) = source.live_snapshot(&brief)
    {
        resolve_user(user, &snapshot)?;
    }
    let filter = filter.clone();
    let is_by_device = !filter.device.is_empty();
    let (mut indexes, mut pids): (Option<Vec<u32>>, Vec<u32>) = (None, Vec::new());
    let fetch = move |detail: &Detail| {
        let mut detail = detail.clone();
        let mut fetched = || -> anyhow::Result<(Snapshot, String)> {
            if !filter.is_empty() && (detail.buffers.is_some() || detail.program_list.is_some()) {
                // Long lists are filtered by the query, since a snapshot has only a page of them.
                if indexes.is_none() || filter.user.is_some() {
                    let detail = Detail { brief: !is_by_device, ..Detail::NONE };
                    let filtered = apply_filter(source.live_snapshot(&detail)?.0, &filter)?;
                    indexes = Some(device_indexes(&filtered));
                    pids = filtered.processes.iter().filter_map(|it| it.pid).collect();
                    // An empty list would mean all processes.
                    if pids.is_empty() {
                        pids.push(0);
                    }
                }
                let devices = if is_by_device { indexes.clone().unwrap_or_default() } else { Vec::new() };
                let pids =
                    if filter.pid.is_some() || filter.user.is_some() { pids.clone() } else { Vec::new() };
                if let Some(query) = &mut detail.buffers {
                    (query.devices, query.pids) = (devices.clone(), pids.clone());
                }
                if let Some(query) = &mut detail.program_list {
                    (query.devices, query.pids) = (devices, pids);
                }
            }
            let (snapshot, source_name) = source.live_snapshot(&detail)?;
            let snapshot = if filter.is_empty() { snapshot } else { apply_filter(snapshot, &filter)? };
            if is_by_device {
                indexes = Some(device_indexes(&snapshot));
            }
            Ok((snapshot, source_name.to_owned()))
        };
        fetched().map_err(|e| format!("{e:#}"))
    };
    show_dashboard(
        Box::new(fetch),
        text,
        refresh,
        is_by_device,
        None,
        read_post_mortem(sockets.source_config()?),
    )
}

fn device_indexes(snapshot: &Snapshot) -> Vec<u32> {
    snapshot.devices.iter().map(|it| it.index).collect()
}

/// Shows the dashboard with snapshots from `fetch`.
pub(crate) fn show_dashboard(
    fetch: Box<dyn FnMut(&Detail) -> FetchResult + Send>,
    text: &TextArgs,
    refresh: &RefreshArgs,
    filtered_by_device: bool,
    until: Option<Instant>,
    post_mortem: Box<PostMortemReader>,
) -> anyhow::Result<Exit> {
    let term = std::env::var("TERM").unwrap_or_default();
    anyhow::ensure!(
        !matches!(term.as_str(), "" | "dumb"),
        "TERM is {term:?}: this terminal cannot show the dashboard; `ttmem -w | cat` prints tables"
    );
    let saved = settings::read()?;
    let settings = Settings {
        theme: refresh.theme.map_or(saved.theme, Into::into),
        refresh_ms: refresh.refresh.unwrap_or(saved.refresh_ms),
        ..saved
    };
    let environment = Environment {
        colour_depth: colour_depth(&term),
        ascii: text.ascii || !is_utf8() || term == "linux",
        readonly: refresh.readonly,
        own_pid: std::process::id(),
        filtered_by_device,
    };
    let mut processes = Processes::new(&Root::default());
    let callbacks = Callbacks {
        fetch,
        post_mortem,
        signal: Box::new(move |recipient, signal| send_signal(&mut processes, recipient, signal)),
        save: Box::new(|settings| {
            let path = settings::write(settings).map_err(|e| format!("{e:#}"))?;
            Ok(format!("saved to {}", path.display()))
        }),
    };
    let options = StartOptions { settings, environment, until };
    ttmem_tui::run(options, callbacks).context("cannot use the terminal")?;
    Ok(Exit::Done)
}

/// A function that reads post-mortems from the segments of a machine. Those of other users are read as far as permissions allow.
pub(crate) fn read_post_mortem(config: SourceConfig) -> Box<PostMortemReader> {
    Box::new(move |FailureKey { pid, sequence }| {
        let query = FailureQuery { pid: Some(pid), which: WhichFailure::Number(sequence) };
        match find_post_mortem(&config, query) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err("Not readable by this user, or overwritten by later failures.".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
}

fn colour_depth(term: &str) -> ColourDepth {
    let set = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    if set("NO_COLOR").is_some() {
        ColourDepth::None
    } else if set("COLORTERM").is_some_and(|it| it == "truecolor" || it == "24bit") {
        ColourDepth::Full
    } else if term.contains("256color") || term.contains("kitty") || term.contains("direct") {
        ColourDepth::Indexed
    } else {
        ColourDepth::Sixteen
    }
}

/// Whether the locale uses UTF-8.
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
    locale.map(|it| it.to_ascii_lowercase()).is_some_and(|it| it.contains("utf-8") || it.contains("utf8"))
}

/// Sends a signal to a process, never to a later one with the same pid.
fn send_signal(processes: &mut Processes, to: &Recipient, signal: &Signal) -> Result<String, String> {
    let Recipient { pid, start, name, .. } = to;
    let recipient = format!("{name} (pid {pid})");
    let gone = || format!("{recipient} has exited; no signal was sent");
    let raw = rustix::process::Pid::from_raw(*pid as i32).ok_or_else(gone)?;
    // The descriptor refers to this process, even if its pid is reused.
    let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty())
        .map_err(|e| describe_failure(&recipient, signal, e))?;
    let now = processes.start_ticks(*pid).and_then(|ticks| processes.wall_time(ticks));
    let is_same = start.zip(now).is_some_and(|(then, now)| {
        // The boot time is known to the second, and the clock may have been set.
        now.duration_since(then).abs() < jiff::SignedDuration::from_secs(2)
    });
    if !is_same {
        return Err(format!("pid {pid} is another process now; no signal was sent"));
    }
    let number = KernelSignal::from_named_raw(signal.number)
        .ok_or_else(|| format!("unknown signal {}", signal.name))?;
    rustix::process::pidfd_send_signal(&pidfd, number)
        .map_err(|e| describe_failure(&recipient, signal, e))?;
    Ok(format!("sent {} to {recipient}", signal.name))
}

fn describe_failure(recipient: &str, signal: &Signal, error: rustix::io::Errno) -> String {
    match error {
        rustix::io::Errno::SRCH => format!("{recipient} has exited; no signal was sent"),
        rustix::io::Errno::PERM => format!("not permitted to send {} to {recipient}", signal.name),
        error => format!("cannot send {} to {recipient}: {error}", signal.name),
    }
}
