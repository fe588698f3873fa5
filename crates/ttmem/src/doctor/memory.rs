//! The folder for shared memory, and the files in it.

use super::{Check, FEW, Patient, Verdict, count, some};
use crate::text::size;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::path::Path;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Finding, FindingKind, Severity};
use ttmem_sources::{CounterFile, filesystem_of};
use ttmem_wire::region;

/// Containers have 64 MiB by default, of which segments may use an eighth.
const SMALL: u64 = 128 << 20;
/// So much should be left: a segment begins with less, and grows.
const TIGHT: u64 = 16 << 20;

const ELSEWHERE: &str = "use a folder on a tmpfs, as one in /dev/shm: --shm-dir or TTMEM_SHM_DIR";
const LARGER: &str = "start the container with --shm-size=1g or --ipc=host, or `mount -o remount,size=1g` it";
const NAME: &str = "shared memory";

/// Findings about tt-metal's counters, except those of exited processes.
const OF_COUNTERS: [FindingKind; 2] = [FindingKind::Unattributed, FindingKind::Counters];

pub(super) fn folder(patient: &Patient<'_>) -> Vec<Check> {
    let folder = patient.sockets.folder();
    let shown = folder.display();
    // Another machine's folder is only a copy, so its filesystem says nothing.
    let own = patient.root.is_this_machine() || patient.sockets.shm_dir.is_some();
    let room = match filesystem_of(&folder) {
        Ok(_) if !own => return vec![Check::ok(NAME, format!("{shown} is readable"))],
        Ok(room) => room,
        Err(e) if !own && e.kind() == io::ErrorKind::NotFound => {
            let found = format!("{shown} does not exist: no process can be tracked");
            return vec![Check::note(NAME, found)];
        }
        Err(e) => {
            let found = format!("{shown} cannot be used: {e}; no process can be tracked");
            return vec![Check::broken(NAME, found).remedy(ELSEWHERE)];
        }
    };
    if !room.in_memory {
        let found = format!("{shown} is not on a tmpfs: files in it are not read");
        return vec![Check::broken(NAME, found).remedy(ELSEWHERE)];
    }
    let found = format!("{shown} is a tmpfs: {}, {} free", size(room.bytes), size(room.free_bytes));
    let mut checks = vec![if room.bytes < SMALL {
        Check::warning(NAME, format!("{found}; too small for programs with many buffers")).remedy(LARGER)
    } else if room.free_bytes < TIGHT {
        Check::warning(NAME, format!("{found}; nearly full")).remedy("remove unused files, or make it larger")
    } else {
        Check::ok(NAME, found)
    }];
    // Asked, not tried, so that no file is created.
    if let Err(e) = accessat(CWD, &folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        let found =
            format!("{shown} is not writable for this user ({e}): this user's programs cannot be tracked");
        let remedy = format!("`chmod 1777 {shown}`, or use another folder: --shm-dir");
        checks.push(Check::warning(NAME, found).remedy(remedy));
    }
    checks
}

/// Files of processes that have exited.
pub(super) fn left_behind(patient: &Patient<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let (mut boxes, mut bytes) = (0, 0u64);
    for (_, file) in patient.sources.crash_segments() {
        boxes += 1;
        bytes = bytes.saturating_add(file.bytes());
    }
    if boxes > 0 {
        let found = format!("{} of exited processes: {}", count(boxes, "segment"), size(bytes));
        let remedy = "`ttmem dump --segment FILE` shows what one held; `ttmem serve` removes old ones";
        checks.push(Check::note("crash segments", found).remedy(remedy));
    }
    let regions: Vec<CounterFile> = patient.sources.counter_files().collect();
    let stale: Vec<&CounterFile> = regions.iter().filter(|it| it.is_stale()).collect();
    if !stale.is_empty() {
        let bytes = stale.iter().map(|it| it.bytes).sum();
        let found = format!("{} of unused tt-metal counters: {}", count(stale.len(), "file"), size(bytes));
        let paths: Vec<String> = stale.iter().map(|it| it.path.display().to_string()).collect();
        let folders: BTreeSet<&Path> = regions.iter().filter_map(|it| it.path.parent()).collect();
        // Those of other users may be in use.
        let all = stale.len() == regions.len() && stale.len() > FEW && patient.denied.is_empty();
        let which = match folders.first().filter(|_| all && folders.len() == 1) {
            Some(folder) => format!("{}/{}*{}", folder.display(), region::FILE_PREFIX, region::FILE_SUFFIX),
            None => some(&paths, FEW),
        };
        checks.push(Check::note("stale counters", found).remedy(format!("remove {which}")));
    }
    checks
}

/// tt-metal's own counters.
pub(super) fn counters(patient: &Patient<'_>) -> Vec<Check> {
    const NAME: &str = "counters";
    let regions: Vec<CounterFile> = patient.sources.counter_files().collect();
    let known = regions.iter().filter(|it| it.layout.is_some());
    let layouts: BTreeSet<&str> =
        known.clone().filter_map(|it| it.layout).map(region::Layout::name).collect();
    let living = known.clone().filter(|it| it.alive > 0).count();
    let denied = patient.denied.iter().filter(|it| is_region(&it.path)).count();
    let mut found = match known.count() {
        0 => "no tt-metal counters".to_owned(),
        n => {
            let layouts = layouts.into_iter().collect::<Vec<_>>().join(", ");
            format!("{} of tt-metal counters ({layouts}), {living} in use", count(n, "file"))
        }
    };
    if denied > 0 {
        let _ = write!(found, ", and {} of other users, not readable", count(denied, "file"));
    }
    let mut checks = vec![Check::ok(NAME, found)];
    checks.extend(ghosts(&patient.snapshot));
    checks.extend(few(problems(patient, &regions), "problems in these files"));
    checks.extend(few(unread(patient), "files that cannot be read"));
    let off = std::env::var_os("TT_METAL_SHM_TRACKING_DISABLED").filter(|it| !it.is_empty() && it != "0");
    if off.is_some() {
        let found =
            "TT_METAL_SHM_TRACKING_DISABLED is set: programs started from this shell write no counters";
        checks.push(Check::note(NAME, found).remedy("unset it, or use `ttmem run`, which needs no counters"));
    }
    checks
}

/// Exited processes in tt-metal's counters.
fn ghosts(snapshot: &Snapshot) -> Option<Check> {
    let all: Vec<&Finding> =
        snapshot.findings.iter().filter(|it| it.kind == FindingKind::GhostBytes).collect();
    let found = match &all[..] {
        [] => return None,
        [one] => one.text.clone(),
        more => {
            let bytes = more.iter().filter_map(|it| it.bytes).fold(0, u64::saturating_add);
            let (dead, bytes) = (more.len(), size(bytes));
            format!("tt-metal counters still list {dead} exited processes with {bytes}; not counted by ttmem")
        }
    };
    let here = all.iter().any(|it| it.severity != Severity::Info);
    let verdict = if here { Verdict::Warning } else { Verdict::Note };
    let remedy = "other tools count it: remove the file when no process uses the device";
    Some(Check::new(verdict, "counters", found).remedy(remedy))
}

/// Other problems of tt-metal's counters.
fn problems(patient: &Patient<'_>, regions: &[CounterFile]) -> Vec<Check> {
    let judge = |finding: &Finding| {
        // An old file of a device that is not here is only worth a note.
        let of = |it: &CounterFile| finding.text.starts_with(&*it.path.to_string_lossy());
        let forgotten = finding.device.is_none() && regions.iter().any(|it| it.is_stale() && of(it));
        let verdict = if forgotten { Verdict::Note } else { Verdict::Warning };
        let unreadable = patient.snapshot.health.skipped.iter().any(|it| finding.text.ends_with(&it.reason));
        let update = if unreadable { "use a newer ttmem, or " } else { "" };
        let remedy = format!("{update}remove the file when no process uses the device");
        Check::new(verdict, "counters", &finding.text).remedy(remedy)
    };
    patient.snapshot.findings.iter().filter(|it| OF_COUNTERS.contains(&it.kind)).map(judge).collect()
}

/// Segments and counters that cannot be read. Those of other users have a check of their own, and some are a finding already.
fn unread(patient: &Patient<'_>) -> Vec<Check> {
    let Snapshot { findings, health, .. } = &patient.snapshot;
    let is_found =
        |reason: &str| findings.iter().any(|it| OF_COUNTERS.contains(&it.kind) && it.text.ends_with(reason));
    let is_denied = |path: &str| patient.denied.iter().any(|it| it.path == path);
    // The folder itself has a check of its own.
    let folder = patient.sockets.folder();
    let all = health
        .skipped
        .iter()
        .filter(|it| !is_denied(&it.path) && !is_found(&it.reason) && Path::new(&it.path) != folder);
    all.map(|it| {
        let name = if is_region(&it.path) { "counters" } else { "segments" };
        Check::warning(name, format!("{} {}", it.path, it.reason))
            .remedy("remove the file if no process uses it")
    })
    .collect()
}

/// The worst of many, and how many more there are.
fn few(mut all: Vec<Check>, what: &str) -> Vec<Check> {
    all.sort_by_key(|it| std::cmp::Reverse(it.verdict));
    let more = all.split_off(all.len().min(FEW));
    if let Some(worst) = more.first() {
        let found = format!("and {} more {what}", more.len());
        all.push(Check::new(worst.verdict, &worst.name, found).remedy("`ttmem --local --json` lists them"));
    }
    all
}

fn is_region(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(region::FILE_PREFIX))
}
