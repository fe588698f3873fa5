//! `ttmem doctor`: checks of driver, devices, permissions, shared memory and tracking, each with a remedy.
//!
//! It reads what `ttmem --local` reads and queries the daemon. No device is opened, and nothing is written.

mod daemon;
mod machine;
mod memory;
mod reach;
mod tracking;

use crate::cli::{DoctorArgs, Sockets};
use crate::source;
use crate::text::{Style, cut};
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
use ttmem_sources::{Root, Sources};

/// As much of a line as is shown.
const LINE: usize = 400;
/// Things of one kind that are each listed; the rest is counted.
const MOST: usize = 8;
/// The same of long ones.
const FEW: usize = 3;

/// The result of a check, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Worth knowing.
    Note,
    /// Something is missing from the figures, or will be.
    Warning,
    /// Something does not work.
    Broken,
}

impl Verdict {
    fn shown(self) -> (&'static str, &'static str) {
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

/// What checks are made of.
struct Patient<'a> {
    sockets: &'a Sockets,
    root: Root,
    sources: &'a Sources,
    snapshot: Snapshot,
    daemon: Daemon,
    /// Files that are not read because they are other users'.
    denied: Vec<Denied>,
}

/// A file that we may not read.
struct Denied {
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

pub(crate) fn doctor(args: &DoctorArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let (reading, topology) = match sockets.reading() {
        Ok(reading) => {
            let chips = reading.topology.as_ref().map(|it| it.chips.len());
            let found =
                chips.map(|chips| Check::ok("topology", format!("{} described", count(chips, "device"))));
            (reading, found)
        }
        // Everything else can still be checked.
        Err(e) => {
            let remedy = "give a cluster descriptor of tt-umd, or leave out --topology and TTMEM_TOPOLOGY";
            let plain = Sockets { topology: None, ..sockets.clone() };
            (
                plain.reading()?,
                Some(Check::broken("topology", format!("{:#}", anyhow::Error::from(e))).remedy(remedy)),
            )
        }
    };
    let root = reading.root.clone();
    let mut session = source::session(reading);
    session.refresh();
    let snapshot = session.snapshot(&Detail::NONE);
    let skipped = snapshot.health.skipped.iter();
    let denied = skipped.filter_map(|it| Denied::new(&it.path)).collect();
    let sources = session.sources().context("nothing can be read")?;
    let patient = Patient { sockets, root, sources, snapshot, daemon: Daemon::ask(sockets), denied };
    let mut checks = machine::driver(&patient);
    checks.extend(machine::cards(&patient));
    checks.extend(topology);
    checks.extend(machine::nodes(&patient));
    checks.extend(reach::rights(&patient));
    checks.extend(reach::processes(&patient));
    checks.extend(memory::folder(&patient));
    checks.extend(memory::left_behind(&patient));
    checks.extend(memory::counters(&patient));
    checks.extend(tracking::agent(sockets));
    checks.extend(tracking::processes(&patient));
    checks.extend(daemon::query(&patient));
    checks.extend(daemon::legacy(&patient));
    let worst = checks.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Ok);
    let (verdict, exit) = match worst {
        Verdict::Ok | Verdict::Note => ("ok", Exit::Done),
        Verdict::Warning => ("warnings", Exit::Failed),
        Verdict::Broken => ("broken", Exit::Failed),
    };
    let report = Report { schema: 1, verdict, checks };
    if args.json {
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        print(&line)?;
    } else {
        print(page(&report, &patient, Style::new(args.look.ascii)).as_bytes())?;
    }
    Ok(exit)
}

impl Denied {
    /// `None`: it may be read, or is not there any more.
    fn new(path: &str) -> Option<Self> {
        let denied = accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
        let uid = || fs::symlink_metadata(path).map_or(u32::MAX, |it| it.uid());
        denied.then(|| Self { path: path.to_owned(), uid: uid() })
    }

    fn file_name(&self) -> &str {
        Path::new(&self.path).file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

fn page(report: &Report, patient: &Patient<'_>, style: Style) -> String {
    let host = &patient.snapshot.host;
    let mut page = format!("ttmem {}", host.ttmem);
    if patient.root.is_this_machine() {
        let _ = write!(page, " on {}", cut(host.name.as_deref().unwrap_or("?"), 64));
    } else {
        let _ = write!(page, ", files below {}", cut(&patient.sockets.root.to_string_lossy(), LINE));
    }
    page.push('\n');
    for Check { name, verdict, found, remedy } in &report.checks {
        let (mark, colour) = verdict.shown();
        let mark = style.paint(&format!("{mark:<8}"), colour);
        // It may contain names of other users' processes and files.
        let _ = writeln!(page, "{mark} {name:<14} {}", cut(found, LINE));
        if let Some(remedy) = remedy {
            let _ = writeln!(page, "{:23} -> {}", "", cut(remedy, LINE));
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
    let (_, colour) = report.checks.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Ok).shown();
    let _ = writeln!(page, "{}", style.paint(&summary, colour));
    style.finish(page)
}

/// The first few of many.
fn some(all: &[String], most: usize) -> String {
    let shown = all.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `1 device`, `2 devices`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
