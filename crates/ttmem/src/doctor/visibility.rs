//! The permissions of this user, and the visibility of processes.

use super::{Check, Inputs, MAX_LONG_ITEMS, join_first, plural};
use std::fs;
use ttmem_core::snapshot::FindingKind;
use ttmem_sources::board;
use ttmem_sources::process::Processes;

const AS_ROOT: &str = "run ttmem as root, or run `ttmem serve` as root";
const IN_HOST: &str = "run ttmem on the host, or start the container with --pid=host --ipc=host";
/// Since this version, the driver lists the processes that have a device open for every user.
const LISTS_OPENERS: (u32, u32) = (2, 5);

/// The most skipped files that a snapshot lists.
const MAX_SKIPPED: usize = 64;

/// Whether this user is root: of the host (`Some(true)`), or of a user namespace only (`Some(false)`).
fn is_root() -> Option<bool> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_host = map.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"];
    rustix::process::geteuid().is_root().then_some(is_host)
}

pub(super) fn check_permissions(inputs: &Inputs<'_>) -> Vec<Check> {
    const NAME: &str = "permissions";
    let mut users = Processes::new(&inputs.root);
    let user = users.user_name(rustix::process::geteuid().as_raw());
    let root = is_root();
    let mut checks = vec![match root {
        Some(true) => Check::ok(NAME, "running as root: all processes are readable"),
        Some(false) => {
            let found = "running as root of a user namespace: processes of users outside it are not readable";
            Check::note(NAME, found)
        }
        None => Check::note(
            NAME,
            format!("running as {user}: other users' processes and containers are not readable"),
        ),
    }];
    if !inputs.denied.is_empty() {
        let files: Vec<String> =
            inputs.denied.iter().map(|it| format!("{} of {}", it.path, users.user_name(it.uid))).collect();
        let more = if files.len() < MAX_SKIPPED { "" } else { " or more" };
        let (count, files) = (plural(files.len(), "file"), join_first(&files, MAX_LONG_ITEMS));
        let found = format!("{count}{more} not readable: {files}");
        checks.push(if inputs.daemon.runs_as_root() {
            Check::note(NAME, format!("{found}; the daemon reads them"))
        } else {
            Check::warning(NAME, found).remedy(AS_ROOT)
        });
    }
    let driver = inputs.snapshot.host.driver.as_deref().and_then(board::parse_version);
    let has_cards = inputs.snapshot.devices.iter().any(|it| it.node.is_some());
    if root.is_none()
        && has_cards
        && driver.is_some_and(|version| version < LISTS_OPENERS)
        && !inputs.daemon.runs_as_root()
    {
        let found = format!(
            "this driver lists the processes that have a device open for root only: only processes of {user} are known"
        );
        checks.push(Check::warning(NAME, found).remedy(AS_ROOT));
    }
    checks
}

/// Checks which processes are visible.
pub(super) fn check_processes(inputs: &Inputs<'_>) -> Vec<Check> {
    const NAME: &str = "processes";
    let mut checks = Vec::new();
    // Every namespace has a process 1, and this file is readable for every user unless processes are hidden.
    let hides = inputs.root.is_this_machine() && fs::read("/proc/1/status").is_err();
    if !inputs.root.is_this_machine() {
        checks.push(Check::ok(NAME, "as in the files below --root"));
    } else if inputs.sources.are_all_processes_visible() {
        checks.push(Check::ok(NAME, "host PID namespace: processes of containers are visible, too"));
    } else if !hides {
        let found = "container PID namespace: processes outside it are not visible";
        checks.push(Check::note(NAME, found).remedy(IN_HOST));
    }
    if hides {
        let found = "/proc hides other users' processes (hidepid): their names and exits are unknown";
        checks.push(Check::warning(NAME, found).remedy(AS_ROOT));
    }
    let hidden = inputs.snapshot.findings.iter().filter(|it| it.kind == FindingKind::Untracked);
    checks.extend(hidden.map(|it| Check::warning(NAME, &it.text).remedy(IN_HOST)));
    checks
}
