//! `ttmem check`: compares ttmem's figures with those of the runtime's allocators.

use crate::cli::{CheckArgs, Sockets};
use crate::source::open_session;
use crate::text::sanitize;
use crate::{Exit, limits, print};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};
use ttmem_core::snapshot::{AuditResult, Process};
use ttmem_core::words::Space;
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::json;
use ttmem_sources::SourceConfig;

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The audit of one space of an allocator.
#[derive(Clone, Serialize)]
struct SpaceAudit {
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
    spaces: Vec<SpaceAudit>,
}

type Key = (u32, u32, Space);

pub(crate) fn run(args: &CheckArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    if !args.limit.is_empty() {
        return limits::run(args, sockets);
    }
    // Only segments have audits.
    let reading = SourceConfig { machine: false, repeated: true, ..sockets.source_config()? };
    let mut session = open_session(reading);
    session.refresh();
    let first = filter_by_pid(session.snapshot(&Detail::NONE), args.pid);
    // New statistics have a later sequence number.
    let since: BTreeMap<u32, u64> = if args.fresh {
        session.request_audits();
        first.processes.iter().filter_map(|it| Some((it.pid?, it.sequence?))).collect()
    } else {
        BTreeMap::new()
    };
    let start = Instant::now();
    let timeout = Duration::from_secs_f64(args.wait.clamp(0.0, 3600.0));
    let mut audits = BTreeMap::new();
    let mut last = first;
    loop {
        collect_audits(&last, &since, &mut audits);
        if audited_spaces(&last).all(|key| audits.contains_key(&key)) || start.elapsed() >= timeout {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
        session.refresh();
        last = filter_by_pid(session.snapshot(&Detail::NONE), args.pid);
    }
    report(args, &last, &audits)
}

fn filter_by_pid(mut snapshot: Snapshot, pid: Option<u32>) -> Snapshot {
    snapshot.processes.retain(|it| pid.is_none() || it.pid == pid);
    snapshot
}

/// Every space that can be compared.
fn audited_spaces(snapshot: &Snapshot) -> impl Iterator<Item = Key> {
    let spaces = |process: &Process| {
        let pid = process.pid.unwrap_or(0);
        let allocators = process.allocators.iter();
        let spaces = allocators.flat_map(move |a| a.spaces.iter().map(move |s| (pid, a.id, s.space)));
        spaces.collect::<Vec<_>>()
    };
    snapshot.processes.iter().flat_map(spaces)
}

/// Collects the valid audits of a snapshot, of each process those after `since`.
fn collect_audits(snapshot: &Snapshot, since: &BTreeMap<u32, u64>, audits: &mut BTreeMap<Key, AuditResult>) {
    for process in &snapshot.processes {
        let pid = process.pid.unwrap_or(0);
        let is_new = |audit: &&AuditResult| since.get(&pid).is_none_or(|&before| audit.sequence > before);
        for audit in process.audit.iter().filter(is_new).filter(|audit| audit.compared) {
            audits.insert((pid, audit.allocator, audit.space), audit.clone());
        }
    }
}

fn report(
    args: &CheckArgs,
    snapshot: &Snapshot,
    audits: &BTreeMap<Key, AuditResult>,
) -> anyhow::Result<Exit> {
    let mut spaces = Vec::new();
    for process in &snapshot.processes {
        let pid = process.pid.unwrap_or(0);
        for allocator in &process.allocators {
            for space in &allocator.spaces {
                let audit = audits.get(&(pid, allocator.id, space.space)).cloned();
                let devices = allocator.devices.clone();
                spaces.push(SpaceAudit { pid, allocator: allocator.id, space: space.space, devices, audit });
            }
        }
    }
    let compared = spaces.iter().filter(|it| it.audit.is_some()).count();
    let drifting = spaces.iter().filter(|it| it.audit.as_ref().is_some_and(|it| !it.is_zero())).count();
    let report = Report { schema: 1, compared, not_compared: spaces.len() - compared, drifting, spaces };
    if args.json {
        let mut line = json::to_vec(&report)?;
        line.push(b'\n');
        print(&line)?;
    } else {
        print(format_page(snapshot, &report).as_bytes())?;
    }
    if report.spaces.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "ttmem: nothing to check: no process with the agent is running; start one with `ttmem run -- CMD`"
        );
        return Ok(Exit::NothingFound);
    }
    Ok(if drifting > 0 { Exit::Failed } else { Exit::Done })
}

fn format_page(snapshot: &Snapshot, report: &Report) -> String {
    let mut page = String::new();
    for process in &snapshot.processes {
        let pid = process.pid.unwrap_or(0);
        let spaces: Vec<&SpaceAudit> = report.spaces.iter().filter(|it| it.pid == pid).collect();
        if spaces.is_empty() {
            continue;
        }
        let _ = write!(page, "pid {pid} {}", sanitize(process.name.as_deref().unwrap_or("?")));
        if let Some(tracker) = &process.tracker {
            let present = tracker.hooks as usize - tracker.missing_hooks.len();
            let _ = write!(page, ": {}", sanitize(tracker.runtime.as_deref().unwrap_or(&tracker.writer)));
            if tracker.hooks > 0 {
                let _ = write!(page, ", {present} of {} hooks", tracker.hooks);
            }
            if !tracker.missing_hooks.is_empty() {
                let _ = write!(page, " (without {})", sanitize(&tracker.missing_hooks.join(", ")));
            }
        }
        page.push('\n');
        let _ = writeln!(
            page,
            "  {:<10} {:<9} {:>16} {:>18} {:>18}  drift",
            "allocator", "space", "allocated", "free", "largest free"
        );
        for SpaceAudit { allocator, space, audit, .. } in spaces {
            let _ = write!(page, "  {allocator:<10} {:<9} ", space.name());
            let Some(audit) = audit else {
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
