//! The agent, and how well processes are tracked.

use super::{Check, Inputs, MAX_ITEMS, Verdict, join_first};
use crate::cli::Sockets;
use crate::run;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Process, Tracking};
use ttmem_core::words::Basis;
use ttmem_wire::segment::parse_name;

/// Checks whether `ttmem run` works.
pub(super) fn check_agent(sockets: &Sockets) -> Vec<Check> {
    const NAME: &str = "agent";
    const SET: &str = "set TTMEM_AGENT to the path of libttmem_agent.so";
    let found = run::find_agent().and_then(|agent| run::variables(&agent, sockets).map(|_| agent));
    let agent = match found {
        Ok(agent) => agent,
        Err(e) => {
            let text = e.to_string();
            let (reason, remedy) = text.split_once(": ").unwrap_or((&text, SET));
            return vec![Check::warning(NAME, format!("`ttmem run` does not work: {reason}")).remedy(remedy)];
        }
    };
    vec![match find_load_error(&agent) {
        Some(reason) => {
            Check::warning(NAME, format!("{} cannot be preloaded: {reason}", agent.display())).remedy(SET)
        }
        None => Check::ok(NAME, format!("`ttmem run` preloads {}", agent.display())),
    }]
}

/// Finds the reason why the dynamic linker cannot load a library.
fn find_load_error(library: &Path) -> Option<String> {
    if let Err(e) = accessat(CWD, library, Access::READ_OK, AtFlags::EACCESS) {
        return Some(e.to_string());
    }
    if statvfs(library).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        return Some("its filesystem is mounted noexec".to_owned());
    }
    let mut magic = [0; 4];
    let read = File::open(library).and_then(|mut file| file.read_exact(&mut magic));
    (read.is_err() || magic != *b"\x7fELF").then(|| "not a library".to_owned())
}

pub(super) fn check_processes(inputs: &Inputs<'_>) -> Vec<Check> {
    // A process whose segment is not readable may be tracked.
    let hidden: Vec<u32> =
        inputs.denied.iter().filter_map(|it| Some(parse_name(it.file_name().as_bytes())?.0)).collect();
    check_tracking(&inputs.snapshot, &hidden)
}

const RUN: &str = "start them with `ttmem run -- CMD`";

/// Processes by tracking: verdict, description and remedy.
const KINDS: [(&[Tracking], Verdict, &str, Option<&str>); 6] = [
    (&[Tracking::Audited, Tracking::Agent], Verdict::Ok, "with the agent, all hooks, no drift", None),
    (&[Tracking::Library, Tracking::Reported], Verdict::Ok, "self-reporting", None),
    (
        &[Tracking::Counters],
        Verdict::Note,
        "known by tt-metal counters only, which are incomplete",
        Some(RUN),
    ),
    (
        &[Tracking::Partial],
        Verdict::Warning,
        "partly tracked",
        Some("`ttmem check` lists what is missing; docs/agent.md lists supported versions of ttnn"),
    ),
    (&[Tracking::Untracked], Verdict::Warning, "with a device open, untracked", Some(RUN)),
    (
        &[Tracking::Drift],
        Verdict::Broken,
        "with drift: figures differ from the runtime's allocators",
        Some("see `ttmem check`; please report it as a defect of ttmem"),
    ),
];

/// Checks how well processes are tracked. `hidden` are the pids of processes whose segments are not readable.
fn check_tracking(snapshot: &Snapshot, hidden: &[u32]) -> Vec<Check> {
    const NAME: &str = "tracking";
    let mut checks = Vec::new();
    for (kinds, verdict, description, remedy) in KINDS {
        let is_hidden =
            |it: &Process| it.basis == Basis::Unknown && it.pid.is_some_and(|pid| hidden.contains(&pid));
        let matches = |it: &&Process| kinds.contains(&it.tracking) && !is_hidden(it);
        let all: Vec<String> = snapshot.processes.iter().filter(matches).map(describe_process).collect();
        let noun = if all.len() == 1 { "process" } else { "processes" };
        if !all.is_empty() {
            let found = format!("{} {noun} {description}: {}", all.len(), join_first(&all, MAX_ITEMS));
            let check = Check::new(verdict, NAME, found);
            checks.push(Check { remedy: remedy.map(str::to_owned), ..check });
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok(NAME, "no visible process uses a device"));
    }
    checks
}

fn describe_process(process: &Process) -> String {
    let pid = process.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    let words = [process.name.as_deref().unwrap_or("?"), process.user.as_deref().unwrap_or("?")];
    let missing = process.tracker.as_ref().map_or(&[][..], |it| &it.missing_hooks);
    let without = if missing.is_empty() { String::new() } else { format!(" without {}", missing.join(", ")) };
    format!("pid {pid} ({}){without}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ttmem_core::snapshot::{AuditResult, Tracker};
    use ttmem_core::words::Space;

    fn process(pid: u32, basis: Basis) -> Process {
        Process {
            pid: Some(pid),
            reported_pid: None,
            start: None,
            name: Some("python".to_owned()),
            command: None,
            user: Some("ada".to_owned()),
            uid: None,
            container: None,
            pod: None,
            hidden: false,
            open_devices: Vec::new(),
            tracking: Tracking::Untracked,
            basis,
            complete: true,
            sequence: None,
            tracker: None,
            summary: ttmem_core::snapshot::Summary::default(),
            usage: Vec::new(),
            allocators: Vec::new(),
            audit: Vec::new(),
            traces: Vec::new(),
            last_mark: None,
            programs: None,
            host: None,
        }
    }

    fn with_agent(pid: u32, missing: &[&str], drift_bytes: i64) -> Process {
        let tracker = Tracker {
            writer: "ttmem-agent 0.1.0".to_owned(),
            runtime: None,
            hooks: 18,
            missing_hooks: missing.iter().map(|&it| it.to_owned()).collect(),
            cost_seconds: None,
            left_out: 0,
        };
        let audit = AuditResult {
            allocator: 1,
            devices: Vec::new(),
            space: Space::Dram,
            drift_bytes,
            free_drift_bytes: None,
            largest_free_drift_bytes: None,
            compared: true,
            allocated_bytes: 0,
            free_bytes: 0,
            largest_free_bytes_per_bank: 0,
            sequence: 1,
        };
        Process { tracker: Some(tracker), audit: vec![audit], ..process(pid, Basis::Exact) }
    }

    #[test]
    fn each_process_is_listed_once_by_tracking() {
        let mut processes = vec![
            with_agent(1, &[], 0),
            with_agent(2, &["shards", "chips"], 0),
            with_agent(3, &[], 64),
            process(4, Basis::Counters),
            process(5, Basis::Unknown),
            process(6, Basis::Unknown),
            process(7, Basis::Reported),
        ];
        for process in &mut processes {
            process.summarise(|_| None);
        }
        let checks = check_tracking(&Snapshot { processes, ..Snapshot::default() }, &[6]);
        let found: Vec<_> = checks.iter().map(|it| (it.verdict, it.found.as_str())).collect();
        let expected = [
            (Verdict::Ok, "with the agent, all hooks, no drift: pid 1 (python, ada)"),
            (Verdict::Ok, "self-reporting: pid 7 (python, ada)"),
            (Verdict::Note, "known by tt-metal counters only, which are incomplete: pid 4 (python, ada)"),
            (Verdict::Warning, "partly tracked: pid 2 (python, ada) without shards, chips"),
            (Verdict::Warning, "with a device open, untracked: pid 5 (python, ada)"),
            (
                Verdict::Broken,
                "with drift: figures differ from the runtime's allocators: pid 3 (python, ada)",
            ),
        ];
        let expected = expected.map(|(verdict, text)| (verdict, format!("1 process {text}")));
        assert_eq!(found, expected.iter().map(|(verdict, it)| (*verdict, it.as_str())).collect::<Vec<_>>());
        assert!(checks.iter().all(|it| (it.verdict == Verdict::Ok) == it.remedy.is_none()));
        let idle = check_tracking(&Snapshot::default(), &[]);
        assert!(idle.len() == 1 && idle[0].verdict == Verdict::Ok);
    }

    #[test]
    fn library_that_cannot_be_loaded_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text.so");
        std::fs::write(&text, "GROUP ( libc.so.6 )").unwrap();
        assert_eq!(find_load_error(&text).as_deref(), Some("not a library"));
        assert!(find_load_error(&folder.path().join("missing.so")).is_some());
        assert_eq!(find_load_error(&std::env::current_exe().unwrap()), None);
    }
}
