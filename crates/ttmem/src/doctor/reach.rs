//! What can be seen from here, and by this user.

use super::{Check, FEW, Patient, count, some};
use std::fs;
use ttmem_core::snapshot::FindingKind;
use ttmem_sources::board;
use ttmem_sources::process::Processes;

const AS_ROOT: &str = "run ttmem as root; or `ttmem serve` as root, which shows everything to everybody";
const IN_HOST: &str = "run ttmem outside; or start the container with --pid=host --ipc=host";
/// Since this version, the driver tells everybody who has a chip open.
const TELLS_OPENERS: (u32, u32) = (2, 5);

/// No more files are told that were not read.
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
    let me = users.user(rustix::process::geteuid().as_raw());
    let root = is_root();
    let mut checks = vec![match root {
        Some(true) => Check::ok(NAME, "running as root: what every process publishes may be read"),
        Some(false) => {
            let found = "running as root of a user namespace: what users outside it publish may not be read";
            Check::note(NAME, found)
        }
        None => Check::note(
            NAME,
            format!("running as {me}: what other users and their containers publish may not be read"),
        ),
    }];
    if !patient.denied.is_empty() {
        let files: Vec<String> =
            patient.denied.iter().map(|it| format!("{} of {}", it.path, users.user(it.uid))).collect();
        let more = if files.len() < MOST_SKIPPED { "" } else { " or more" };
        let found = format!("{}{more} cannot be read: {}", count(files.len(), "file"), some(&files, FEW));
        checks.push(if patient.daemon.is_roots() {
            Check::note(NAME, format!("{found}; the daemon reads them"))
        } else {
            Check::warning(NAME, found).remedy(AS_ROOT)
        });
    }
    let driver = patient.snapshot.host.driver.as_deref().and_then(board::version);
    let has_cards = patient.snapshot.devices.iter().any(|it| it.node.is_some());
    if root.is_none()
        && has_cards
        && driver.is_some_and(|it| it < TELLS_OPENERS)
        && !patient.daemon.is_roots()
    {
        let found = format!(
            "this driver tells nobody but root who has a chip open: only processes of {me} are known"
        );
        checks.push(Check::warning(NAME, found).remedy(AS_ROOT));
    }
    checks
}

/// Which processes can be seen.
pub(super) fn processes(patient: &Patient<'_>) -> Vec<Check> {
    const NAME: &str = "processes";
    let mut checks = Vec::new();
    // Every namespace has a first process, and everybody may read this of it.
    let hides = patient.root.is_own() && fs::read("/proc/1/status").is_err();
    if !patient.root.is_own() {
        checks.push(Check::ok(NAME, "as the files say"));
    } else if patient.sources.sees_all() {
        checks.push(Check::ok(NAME, "this is the first pid namespace: those of containers can be seen, too"));
    } else if !hides {
        let found = "this is a pid namespace of its own, as in a container: processes outside cannot be seen, and \
                     whether they live is not known";
        checks.push(Check::note(NAME, found).remedy(IN_HOST));
    }
    if hides {
        let found = "/proc hides other users' processes (hidepid): who they are, and whether they live, cannot be told";
        checks.push(Check::warning(NAME, found).remedy(AS_ROOT));
    }
    let hidden = patient.snapshot.findings.iter().filter(|it| it.kind == FindingKind::Untracked);
    checks.extend(hidden.map(|it| Check::warning(NAME, &it.text).remedy(IN_HOST)));
    checks
}
