//! `ttmem leaks`: call sites whose buffers only grow from mark to mark.

use crate::cli::{LeaksArgs, Sockets};
use crate::listing::print_json;
use crate::source::{answer_or_report, open_source};
use crate::text::Style;
use crate::{Exit, print};
use serde::Serialize;
use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration, Instant};
use ttmem_core::snapshot::{Leak, Mark, Process, SCHEMA};
use ttmem_core::{Detail, Snapshot};
use ttmem_render::leaks;

/// Time for which processes are followed if no daemon has followed them.
const FOLLOWED: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    leaks: &'a [Leak],
    /// The tracked processes, with their marks.
    processes: Vec<Marks<'a>>,
}

#[derive(Serialize)]
struct Marks<'a> {
    pid: Option<u32>,
    last_mark: Option<&'a Mark>,
}

pub(crate) fn run(args: &LeaksArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let Some(snapshot) = follow(args, sockets)? else { return Ok(Exit::NoDaemon) };
    let is_wanted = |pid: Option<u32>| args.pid.is_none() || args.pid == pid;
    let processes: Vec<&Process> =
        snapshot.processes.iter().filter(|it| it.tracker.is_some() && is_wanted(it.pid)).collect();
    let leaks: Vec<Leak> = snapshot.leaks.into_iter().flatten().filter(|leak| is_wanted(leak.pid)).collect();
    if processes.is_empty() {
        let which = args
            .pid
            .map_or_else(|| "no process is tracked".to_owned(), |pid| format!("pid {pid} is not tracked"));
        let _ = writeln!(io::stderr(), "ttmem: {which}; start programs with `ttmem run -- CMD`");
        return Ok(Exit::NothingFound);
    }
    if args.json {
        let marks = |it: &&Process| it.last_mark.is_some();
        let marked = processes.iter().copied().filter(marks);
        let processes = marked.map(|it| Marks { pid: it.pid, last_mark: it.last_mark.as_ref() }).collect();
        return print_json(&Report { schema: SCHEMA, leaks: &leaks, processes }, None);
    }
    let style = Style::new(args.text.ascii);
    print(style.format_page(leaks::page(&leaks, &processes, style.list_width)).as_bytes())
}

/// A snapshot with the leaks. Without a daemon, processes are followed for a time: only marks that are read as they happen count.
fn follow(args: &LeaksArgs, sockets: &Sockets) -> anyhow::Result<Option<Snapshot>> {
    let detail = Detail { leaks: true, ..Detail::NONE };
    let mut source = open_source(sockets, true, false)?;
    let begin = Instant::now();
    let mut is_announced = false;
    loop {
        let Some(snapshot) = answer_or_report(source.snapshot(&detail))? else { return Ok(None) };
        let is_local = snapshot.health.source == "local";
        let wanted =
            args.duration.map_or(if is_local { FOLLOWED } else { Duration::ZERO }, Duration::from_secs);
        if begin.elapsed() >= wanted || !snapshot.processes.iter().any(|it| it.tracker.is_some()) {
            return Ok(Some(snapshot));
        }
        if !std::mem::replace(&mut is_announced, true) && io::stderr().is_terminal() {
            let _ = writeln!(
                io::stderr(),
                "ttmem: following marks for {} s; the daemon (`ttmem serve`) knows all marks since it started",
                wanted.as_secs()
            );
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
