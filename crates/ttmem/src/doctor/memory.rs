//! The folder for shared memory, and the files in it.

use super::{Check, Inputs, MAX_LONG_ITEMS, Verdict, join_first, plural};
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

/// The smallest recommended size. Containers have 64 MiB by default, of which segments may use an eighth.
const MIN_BYTES: u64 = 128 << 20;
/// The smallest recommended free space. A segment starts with less, and grows.
const MIN_FREE_BYTES: u64 = 16 << 20;

const ELSEWHERE: &str = "use a folder on a tmpfs, as one in /dev/shm: --shm-dir or TTMEM_SHM_DIR";
const LARGER: &str = "start the container with --shm-size=1g or --ipc=host, or `mount -o remount,size=1g` it";
const NAME: &str = "shared memory";

/// Findings about tt-metal's counters, except those of exited processes.
const COUNTER_FINDINGS: [FindingKind; 2] = [FindingKind::Unattributed, FindingKind::Counters];

pub(super) fn check_folder(inputs: &Inputs<'_>) -> Vec<Check> {
    let folder = inputs.sockets.folder();
    let shown = folder.display();
    // The folder below another root is only a copy: its filesystem is not checked.
    let is_own = inputs.root.is_this_machine() || inputs.sockets.shm_dir.is_some();
    let room = match filesystem_of(&folder) {
        Ok(_) if !is_own => return vec![Check::ok(NAME, format!("{shown} is readable"))],
        Ok(room) => room,
        Err(e) if !is_own && e.kind() == io::ErrorKind::NotFound => {
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
    let mut checks = vec![if room.bytes < MIN_BYTES {
        Check::warning(NAME, format!("{found}; too small for programs with many buffers")).remedy(LARGER)
    } else if room.free_bytes < MIN_FREE_BYTES {
        Check::warning(NAME, format!("{found}; nearly full")).remedy("remove unused files, or make it larger")
    } else {
        Check::ok(NAME, found)
    }];
    // Only the permission is checked, so that no file is created.
    if let Err(e) = accessat(CWD, &folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        let found =
            format!("{shown} is not writable for this user ({e}): this user's programs cannot be tracked");
        let remedy = format!("`chmod 1777 {shown}`, or use another folder: --shm-dir");
        checks.push(Check::warning(NAME, found).remedy(remedy));
    }
    checks
}

/// Checks for files of processes that have exited.
pub(super) fn check_leftover_files(inputs: &Inputs<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let (mut count, mut bytes) = (0, 0u64);
    for (_, file) in inputs.sources.crash_segments() {
        count += 1;
        bytes = bytes.saturating_add(file.bytes());
    }
    if count > 0 {
        let found = format!("{} of exited processes: {}", plural(count, "segment"), size(bytes));
        let remedy = "`ttmem dump --segment FILE` shows what one held; `ttmem serve` removes old ones";
        checks.push(Check::note("crash segments", found).remedy(remedy));
    }
    let regions: Vec<CounterFile> = inputs.sources.counter_files().collect();
    let stale: Vec<&CounterFile> = regions.iter().filter(|it| it.is_stale()).collect();
    if !stale.is_empty() {
        let bytes = stale.iter().map(|it| it.bytes).sum();
        let found = format!("{} of unused tt-metal counters: {}", plural(stale.len(), "file"), size(bytes));
        let paths: Vec<String> = stale.iter().map(|it| it.path.display().to_string()).collect();
        let folders: BTreeSet<&Path> = regions.iter().filter_map(|it| it.path.parent()).collect();
        // Files of other users, which are not readable, may be in use.
        let is_all = stale.len() == regions.len() && stale.len() > MAX_LONG_ITEMS && inputs.denied.is_empty();
        let files = match folders.first().filter(|_| is_all && folders.len() == 1) {
            Some(folder) => format!("{}/{}*{}", folder.display(), region::FILE_PREFIX, region::FILE_SUFFIX),
            None => join_first(&paths, MAX_LONG_ITEMS),
        };
        checks.push(Check::note("stale counters", found).remedy(format!("remove {files}")));
    }
    checks
}

/// Checks tt-metal's counters.
pub(super) fn check_counters(inputs: &Inputs<'_>) -> Vec<Check> {
    const NAME: &str = "counters";
    let regions: Vec<CounterFile> = inputs.sources.counter_files().collect();
    let known = regions.iter().filter(|it| it.layout.is_some());
    let layouts: BTreeSet<&str> =
        known.clone().filter_map(|it| it.layout).map(region::Layout::name).collect();
    let in_use = known.clone().filter(|it| it.alive > 0).count();
    let denied = inputs.denied.iter().filter(|it| is_region(&it.path)).count();
    let mut found = match known.count() {
        0 => "no tt-metal counters".to_owned(),
        n => {
            let layouts = layouts.into_iter().collect::<Vec<_>>().join(", ");
            format!("{} of tt-metal counters ({layouts}), {in_use} in use", plural(n, "file"))
        }
    };
    if denied > 0 {
        let _ = write!(found, ", and {} of other users, not readable", plural(denied, "file"));
    }
    let mut checks = vec![Check::ok(NAME, found)];
    checks.extend(check_exited_processes(&inputs.snapshot));
    checks.extend(keep_worst(check_counter_findings(inputs, &regions), "problems in these files"));
    checks.extend(keep_worst(check_skipped_files(inputs), "files that cannot be read"));
    let disabled =
        std::env::var_os("TT_METAL_SHM_TRACKING_DISABLED").filter(|value| !value.is_empty() && value != "0");
    if disabled.is_some() {
        let found =
            "TT_METAL_SHM_TRACKING_DISABLED is set: programs started from this shell write no counters";
        checks.push(Check::note(NAME, found).remedy("unset it, or use `ttmem run`, which needs no counters"));
    }
    checks
}

/// Checks for exited processes in tt-metal's counters.
fn check_exited_processes(snapshot: &Snapshot) -> Option<Check> {
    let all: Vec<&Finding> =
        snapshot.findings.iter().filter(|it| it.kind == FindingKind::GhostBytes).collect();
    let found = match &all[..] {
        [] => return None,
        [one] => one.text.clone(),
        more => {
            let bytes = more.iter().filter_map(|it| it.bytes).fold(0, u64::saturating_add);
            let (n, bytes) = (more.len(), size(bytes));
            format!("tt-metal counters still list {n} exited processes with {bytes}; not counted by ttmem")
        }
    };
    let is_warning = all.iter().any(|it| it.severity != Severity::Info);
    let verdict = if is_warning { Verdict::Warning } else { Verdict::Note };
    let remedy = "other tools count it: remove the file when no process uses the device";
    Some(Check::new(verdict, "counters", found).remedy(remedy))
}

/// Checks other findings about tt-metal's counters.
fn check_counter_findings(inputs: &Inputs<'_>, regions: &[CounterFile]) -> Vec<Check> {
    let check = |finding: &Finding| {
        // An unused file of a device that is not present is only a note.
        let is_about = |it: &CounterFile| finding.text.starts_with(&*it.path.to_string_lossy());
        let is_unused = finding.device.is_none() && regions.iter().any(|it| it.is_stale() && is_about(it));
        let verdict = if is_unused { Verdict::Note } else { Verdict::Warning };
        let is_skipped = inputs.snapshot.health.skipped.iter().any(|it| finding.text.ends_with(&it.reason));
        let update = if is_skipped { "use a newer ttmem, or " } else { "" };
        let remedy = format!("{update}remove the file when no process uses the device");
        Check::new(verdict, "counters", &finding.text).remedy(remedy)
    };
    inputs.snapshot.findings.iter().filter(|it| COUNTER_FINDINGS.contains(&it.kind)).map(check).collect()
}

/// Checks for segments and counters that cannot be read, except those of other checks: files of other users, and files
/// with a finding.
fn check_skipped_files(inputs: &Inputs<'_>) -> Vec<Check> {
    let Snapshot { findings, health, .. } = &inputs.snapshot;
    let has_finding = |reason: &str| {
        findings.iter().any(|it| COUNTER_FINDINGS.contains(&it.kind) && it.text.ends_with(reason))
    };
    let is_denied = |path: &str| inputs.denied.iter().any(|it| it.path == path);
    // The folder itself has a check of its own.
    let folder = inputs.sockets.folder();
    let files = health.skipped.iter().filter(|file| {
        !is_denied(&file.path) && !has_finding(&file.reason) && Path::new(&file.path) != folder
    });
    files
        .map(|file| {
            let name = if is_region(&file.path) { "counters" } else { "segments" };
            Check::warning(name, format!("{} {}", file.path, file.reason))
                .remedy("remove the file if no process uses it")
        })
        .collect()
}

/// Keeps the worst checks and counts the others.
fn keep_worst(mut all: Vec<Check>, noun: &str) -> Vec<Check> {
    all.sort_by_key(|it| std::cmp::Reverse(it.verdict));
    let more = all.split_off(all.len().min(MAX_LONG_ITEMS));
    if let Some(worst) = more.first() {
        let found = format!("and {} more {noun}", more.len());
        all.push(Check::new(worst.verdict, &worst.name, found).remedy("`ttmem --local --json` lists them"));
    }
    all
}

fn is_region(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(region::FILE_PREFIX))
}
