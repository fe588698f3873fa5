//! `ttmem check`: compares ttmem's figures with those of the runtime's allocators.

use crate::cli::{CheckArgs, Sockets};
use crate::text::plain;
use crate::{Exit, print, source};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};
use ttmem_core::snapshot::{AuditResult, Process};
use ttmem_core::words::Space;
use ttmem_core::{Detail, Snapshot};
use ttmem_sources::SourceConfig;

/// Between two polls.
const PAUSE: Duration = Duration::from_millis(20);

/// One space of an allocator, compared.
#[derive(Clone, Serialize)]
struct Verdict {
    pid: u32,
    allocator: u32,
    space: Space,
    devices: Vec<String>,
    /// `null`: not audited.
    #[serde(flatten)]
    audit: Option<AuditResult>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    compared: usize,
    not_compared: usize,
    drifting: usize,
    spaces: Vec<Verdict>,
}

type Key = (u32, u32, Space);

pub(crate) fn check(args: &CheckArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    // Nothing but segments is audited.
    let reading = SourceConfig { machine: false, repeated: true, ..sockets.reading()? };
    let mut session = source::session(reading);
    session.refresh();
    let first = only(session.snapshot(&Detail::NONE), args.pid);
    // New statistics have a later sequence number.
    let since: BTreeMap<u32, u64> = if args.fresh {
        session.request_audits();
        first.processes.iter().filter_map(|it| Some((it.pid?, it.sequence?))).collect()
    } else {
        BTreeMap::new()
    };
    let begun = Instant::now();
    let patience = Duration::from_secs_f64(args.wait.clamp(0.0, 3600.0));
    let mut verdicts = BTreeMap::new();
    let mut last = first;
    loop {
        take_verdicts(&last, &since, &mut verdicts);
        if wanted(&last).all(|key| verdicts.contains_key(&key)) || begun.elapsed() >= patience {
            break;
        }
        std::thread::sleep(PAUSE);
        session.refresh();
        last = only(session.snapshot(&Detail::NONE), args.pid);
    }
    report(args, &last, &verdicts)
}

fn only(mut snapshot: Snapshot, pid: Option<u32>) -> Snapshot {
    snapshot.processes.retain(|it| pid.is_none() || it.pid == pid);
    snapshot
}

/// Every space that could be compared.
fn wanted(snapshot: &Snapshot) -> impl Iterator<Item = Key> {
    let of = |it: &Process| {
        let pid = it.pid.unwrap_or(0);
        let spaces =
            it.allocators.iter().flat_map(move |a| a.spaces.iter().map(move |s| (pid, a.id, s.space)));
        spaces.collect::<Vec<_>>()
    };
    snapshot.processes.iter().flat_map(of)
}

fn take_verdicts(snapshot: &Snapshot, since: &BTreeMap<u32, u64>, verdicts: &mut BTreeMap<Key, AuditResult>) {
    for process in &snapshot.processes {
        let pid = process.pid.unwrap_or(0);
        let fresh = |audit: &&AuditResult| since.get(&pid).is_none_or(|&before| audit.sequence > before);
        for audit in process.audit.iter().filter(fresh).filter(|audit| audit.compared) {
            verdicts.insert((pid, audit.allocator, audit.space), audit.clone());
        }
    }
}

fn report(
    args: &CheckArgs,
    snapshot: &Snapshot,
    verdicts: &BTreeMap<Key, AuditResult>,
) -> anyhow::Result<Exit> {
    let mut spaces = Vec::new();
    for process in &snapshot.processes {
        let pid = process.pid.unwrap_or(0);
        for allocator in &process.allocators {
            for space in &allocator.spaces {
                let audit = verdicts.get(&(pid, allocator.id, space.space)).cloned();
                let devices = allocator.devices.clone();
                spaces.push(Verdict { pid, allocator: allocator.id, space: space.space, devices, audit });
            }
        }
    }
    let compared = spaces.iter().filter(|it| it.audit.is_some()).count();
    let drifting = spaces.iter().filter(|it| it.audit.as_ref().is_some_and(|it| !it.is_zero())).count();
    let report = Report { schema: 1, compared, not_compared: spaces.len() - compared, drifting, spaces };
    if args.json {
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        print(&line)?;
    } else {
        print(page(snapshot, &report).as_bytes())?;
    }
    if report.spaces.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "ttmem: nothing to check: no process with the agent is running; start one with `ttmem run -- CMD`"
        );
        return Ok(Exit::NothingThere);
    }
    Ok(if drifting > 0 { Exit::Failed } else { Exit::Done })
}

fn page(snapshot: &Snapshot, report: &Report) -> String {
    let mut page = String::new();
    for process in &snapshot.processes {
        let pid = process.pid.unwrap_or(0);
        let of: Vec<&Verdict> = report.spaces.iter().filter(|it| it.pid == pid).collect();
        if of.is_empty() {
            continue;
        }
        let _ = write!(page, "pid {pid} {}", plain(process.name.as_deref().unwrap_or("?")));
        if let Some(tracker) = &process.tracker {
            let taken = tracker.hooks as usize - tracker.missing_hooks.len();
            let _ = write!(page, ": {}", plain(tracker.runtime.as_deref().unwrap_or(&tracker.writer)));
            if tracker.hooks > 0 {
                let _ = write!(page, ", {taken} of {} hooks", tracker.hooks);
            }
            if !tracker.missing_hooks.is_empty() {
                let _ = write!(page, " (without {})", plain(&tracker.missing_hooks.join(", ")));
            }
        }
        page.push('\n');
        let _ = writeln!(
            page,
            "  {:<10} {:<9} {:>16} {:>18} {:>18}  drift",
            "allocator", "space", "allocated", "free", "largest free"
        );
        for it in of {
            let _ = write!(page, "  {:<10} {:<9} ", it.allocator, it.space.name());
            let Some(audit) = &it.audit else {
                let _ = writeln!(page, "not audited: allocator busy, or no statistics");
                continue;
            };
            let _ = write!(
                page,
                "{:>16} {:>18} {:>18}  ",
                audit.allocated_bytes, audit.free_bytes, audit.largest_free_bytes_per_bank
            );
            let _ = match (audit.is_zero(), audit.free_drift_bytes, audit.largest_free_drift_bytes) {
                (true, Some(_), Some(_)) => writeln!(page, "0"),
                (true, ..) => writeln!(page, "0 (allocated bytes only: not every buffer is listed)"),
                (false, free, largest) => writeln!(
                    page,
                    "{:+} allocated, {:+} free, {:+} largest",
                    audit.drift_bytes,
                    free.unwrap_or(0),
                    largest.unwrap_or(0)
                ),
            };
        }
    }
    let mut parts = Vec::new();
    match (report.compared, report.drifting) {
        (0, _) => {}
        (n, 0) => parts.push(format!("{n} audited: drift 0")),
        (n, drifting) => parts.push(format!("{n} audited: {drifting} with drift")),
    }
    if report.not_compared > 0 {
        parts.push(format!("{} not audited", report.not_compared));
    }
    if !parts.is_empty() {
        let _ = writeln!(page, "{}", parts.join("; "));
    }
    page
}
