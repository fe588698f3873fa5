//! What this user can read, and which processes are visible.

use super::{Check, FEW, Patient, count, some};
use std::fs;
use ttmem_core::snapshot::FindingKind;
use ttmem_sources::board;
use ttmem_sources::process::Processes;

const AS_ROOT: &str = "run ttmem as root, or run `ttmem serve` as root";
const IN_HOST: &str = "run ttmem on the host, or start the container with --pid=host --ipc=host";
/// Since this version, the driver lists the processes that have a device open for every user.
const LISTS_OPENERS: (u32, u32) = (2, 5);

/// A snapshot lists no more files that were not read.
const MOST_SKIPPED: usize = 64;

/// Whether we are root, and not only of a namespace of our own.
fn is_root() -> Option<bool> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = map.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"];
    rustix::process::geteuid().is_root().then_some(whole)
}

pub(super) fn rights(patient: &Patient<'_>) -> Vec<Check> {
    const NAME: &str = "permissions";
    let mut users = Processes::new(&patient.root);
    let me = users.user_name(rustix::process::geteuid().as_raw());
    let root = is_root();
    let mut checks = vec![match root {
        Some(true) => Check::ok(NAME, "running as root: all processes are readable"),
        Some(false) => {
            let found = "running as root of a user namespace: processes of users outside it are not readable";
            Check::note(NAME, found)
        }
        None => Check::note(
            NAME,
            format!("running as {me}: other users' processes and containers are not readable"),
        ),
    }];
    if !patient.denied.is_empty() {
        let files: Vec<String> =
            patient.denied.iter().map(|it| format!("{} of {}", it.path, users.user_name(it.uid))).collect();
        let more = if files.len() < MOST_SKIPPED { "" } else { " or more" };
        let found = format!("{}{more} not readable: {}", count(files.len(), "file"), some(&files, FEW));
        checks.push(if patient.daemon.is_roots() {
            Check::note(NAME, format!("{found}; the daemon reads them"))
        } else {
            Check::warning(NAME, found).remedy(AS_ROOT)
        });
    }
    let driver = patient.snapshot.host.driver.as_deref().and_then(board::parse_version);
    let has_cards = patient.snapshot.devices.iter().any(|it| it.node.is_some());
    if root.is_none()
        && has_cards
        && driver.is_some_and(|it| it < LISTS_OPENERS)
        && !patient.daemon.is_roots()
    {
        let found = format!(
            "this driver lists the processes that have a device open for root only: only processes of {me} are known"
        );
        checks.push(Check::warning(NAME, found).remedy(AS_ROOT));
    }
    checks
}

/// Which processes are visible.
pub(super) fn processes(patient: &Patient<'_>) -> Vec<Check> {
    const NAME: &str = "processes";
    let mut checks = Vec::new();
    // Every namespace has a first process, and every user may read this file of it.
    let hides = patient.root.is_this_machine() && fs::read("/proc/1/status").is_err();
    if !patient.root.is_this_machine() {
        checks.push(Check::ok(NAME, "as in the files below --root"));
    } else if patient.sources.are_all_processes_visible() {
        checks.push(Check::ok(NAME, "host PID namespace: processes of containers are visible, too"));
    } else if !hides {
        let found = "container PID namespace: processes outside it are not visible";
        checks.push(Check::note(NAME, found).remedy(IN_HOST));
    }
    if hides {
        let found = "/proc hides other users' processes (hidepid): their names and exits are unknown";
        checks.push(Check::warning(NAME, found).remedy(AS_ROOT));
    }
    let hidden = patient.snapshot.findings.iter().filter(|it| it.kind == FindingKind::Untracked);
    checks.extend(hidden.map(|it| Check::warning(NAME, &it.text).remedy(IN_HOST)));
    checks
}
