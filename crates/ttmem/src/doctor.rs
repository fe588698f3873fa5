//! `ttmem doctor`: checks of driver, devices, permissions, shared memory and tracking, each with a remedy.
//!
//! The command reads what `ttmem --local` reads and queries the daemon. No device is opened, and nothing is written.

mod daemon;
mod machine;
mod memory;
mod tracking;
mod visibility;

use crate::cli::{DoctorArgs, Sockets};
use crate::source::open_session;
use crate::text::{Style, truncate};
use crate::{Exit, print};
use anyhow::Context;
use daemon::Daemon;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::json;
use ttmem_render::format;
use ttmem_sources::{Root, Sources};

/// The longest line.
const MAX_LINE: usize = 400;
/// The most items of a list; the rest is counted.
const MAX_ITEMS: usize = 8;
/// The most items of a list of paths or checks; the rest is counted.
const MAX_LONG_ITEMS: usize = 3;

/// The result of a check, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Worth knowing.
    Note,
    /// Figures are incomplete, or will be.
    Warning,
    /// Something does not work.
    Broken,
}

impl Verdict {
    fn name_and_colour(self) -> (&'static str, &'static str) {
        match self {
            Self::Ok => ("ok", "32"),
            Self::Note => ("note", "36"),
            Self::Warning => ("warning", "33"),
            Self::Broken => ("broken", "31"),
        }
    }
}

/// A check and its result. Several may have one name.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    verdict: Verdict,
    found: String,
    remedy: Option<String>,
}

impl Check {
    fn new(verdict: Verdict, name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), verdict, found: found.into(), remedy: None }
    }

    fn ok(name: &str, found: impl Into<String>) -> Self {
        Self::new(Verdict::Ok, name, found)
    }

    fn note(name: &str, found: impl Into<String>) -> Self {
        Self::new(Verdict::Note, name, found)
    }

    fn warning(name: &str, found: impl Into<String>) -> Self {
        Self::new(Verdict::Warning, name, found)
    }

    fn broken(name: &str, found: impl Into<String>) -> Self {
        Self::new(Verdict::Broken, name, found)
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// The inputs of the checks.
struct Inputs<'a> {
    sockets: &'a Sockets,
    root: Root,
    sources: &'a Sources,
    snapshot: Snapshot,
    daemon: Daemon,
    /// Files of other users that are not readable.
    denied: Vec<DeniedFile>,
}

/// A file that this user may not read.
struct DeniedFile {
    path: String,
    uid: u32,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    /// `ok`, `warnings` or `broken`.
    verdict: &'static str,
    checks: Vec<Check>,
}

pub(crate) fn run(args: &DoctorArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let (reading, topology) = match sockets.source_config() {
        Ok(reading) => {
            let devices = reading.topology.as_ref().map(|it| it.chips.len());
            let found = devices.map(|n| Check::ok("topology", format!("{} described", plural(n, "device"))));
            (reading, found)
        }
        // The other checks work without a topology.
        Err(e) => {
            let remedy = "give a cluster descriptor of tt-umd, or leave out --topology and TTMEM_TOPOLOGY";
            let plain = Sockets { topology: None, ..sockets.clone() };
            (
                plain.source_config()?,
                Some(Check::broken("topology", format!("{:#}", anyhow::Error::from(e))).remedy(remedy)),
            )
        }
    };
    let root = reading.root.clone();
    let mut session = open_session(reading);
    session.refresh();
    let snapshot = session.snapshot(&Detail::NONE);
    let skipped = snapshot.health.skipped.iter();
    let denied = skipped.filter_map(|it| DeniedFile::new(&it.path)).collect();
    let sources = session.sources().context("nothing can be read")?;
    let inputs = Inputs { sockets, root, sources, snapshot, daemon: Daemon::query(sockets), denied };
    let mut checks = machine::check_driver(&inputs);
    checks.extend(machine::check_cards(&inputs));
    checks.extend(topology);
    checks.extend(machine::check_nodes(&inputs));
    checks.extend(visibility::check_permissions(&inputs));
    checks.extend(visibility::check_processes(&inputs));
    checks.extend(memory::check_folder(&inputs));
    checks.extend(memory::check_leftover_files(&inputs));
    checks.extend(memory::check_counters(&inputs));
    checks.extend(tracking::check_agent(sockets));
    checks.extend(tracking::check_processes(&inputs));
    checks.extend(daemon::check_query_socket(&inputs));
    checks.extend(daemon::check_legacy_socket(&inputs));
    let worst = checks.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Ok);
    let (verdict, exit) = match worst {
        Verdict::Ok | Verdict::Note => ("ok", Exit::Done),
        Verdict::Warning => ("warnings", Exit::Failed),
        Verdict::Broken => ("broken", Exit::Failed),
    };
    let report = Report { schema: 1, verdict, checks };
    if args.json {
        let mut line = json::to_vec(&report)?;
        line.push(b'\n');
        print(&line)?;
    } else {
        print(format_page(&report, &inputs, Style::new(args.text.ascii)).as_bytes())?;
    }
    Ok(exit)
}

impl DeniedFile {
    /// Returns `None` if the file is readable, or gone.
    fn new(path: &str) -> Option<Self> {
        let denied = accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
        let uid = || fs::symlink_metadata(path).map_or(u32::MAX, |it| it.uid());
        denied.then(|| Self { path: path.to_owned(), uid: uid() })
    }

    fn file_name(&self) -> &str {
        Path::new(&self.path).file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

fn format_page(report: &Report, inputs: &Inputs<'_>, style: Style) -> String {
    let host = &inputs.snapshot.host;
    let mut page = format!("ttmem {}", host.ttmem);
    if inputs.root.is_this_machine() {
        let _ = write!(page, " on {}", truncate(host.name.as_deref().unwrap_or("?"), 64));
    } else {
        let _ = write!(page, ", files below {}", truncate(&inputs.sockets.root.to_string_lossy(), MAX_LINE));
    }
    page.push('\n');
    for Check { name, verdict, found, remedy } in &report.checks {
        let (mark, colour) = verdict.name_and_colour();
        let mark = style.paint(&format!("{mark:<8}"), colour);
        // These texts may contain names of other users' processes and files, so they are sanitized.
        let _ = writeln!(page, "{mark} {name:<14} {}", truncate(found, MAX_LINE));
        if let Some(remedy) = remedy {
            let _ = writeln!(page, "{:23} -> {}", "", truncate(remedy, MAX_LINE));
        }
    }
    let count = |of: Verdict| report.checks.iter().filter(|it| it.verdict == of).count();
    let counts = [
        (Verdict::Broken, "broken", "broken"),
        (Verdict::Warning, "warning", "warnings"),
        (Verdict::Note, "note", "notes"),
    ];
    let problems: Vec<String> = counts
        .into_iter()
        .filter_map(|(of, one, more)| match count(of) {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {more}")),
        })
        .collect();
    let problems = problems.join(", ");
    let summary = match report.verdict {
        "ok" if problems.is_empty() => "No problems found.".to_owned(),
        "ok" => format!("No problems found; {problems}."),
        _ => format!("{problems}; {} ok.", count(Verdict::Ok)),
    };
    let (_, colour) =
        report.checks.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Ok).name_and_colour();
    let _ = writeln!(page, "{}", style.paint(&summary, colour));
    style.encode(page)
}

/// Joins the first items of a list; the rest is counted.
fn join_first(items: &[String], max: usize) -> String {
    let first = items.iter().take(max).cloned().collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(max) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A number with a noun: `1 device`, `2 devices`.
fn plural(n: usize, noun: &str) -> String {
    format::plural(n as u64, noun)
}
