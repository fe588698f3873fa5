//! Identifies the process that writes a segment.
//!
//! A writer holds a lock on its file that children do not inherit and that goes with the process or its image, so the
//! kernel names the writer. Where the lock was lost (a program closes descriptors it does not know), the process is found
//! by pid and start time, and must still have the file mapped.

use crate::files::SkipReason;
use crate::lock::{LockHolder, lock_holder};
use crate::process::{ProcessIdentity, Processes};
use crate::segment::SegmentFile;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The writer of a segment.
pub(crate) enum Writer {
    Alive(ProcessIdentity),
    /// It has exited, or runs another program by now.
    Exited,
}

/// All processes by the pid that they have in their own namespace. Built at the first lookup.
#[derive(Default)]
pub(crate) struct PidIndex(OnceCell<BTreeMap<u32, Vec<u32>>>);

impl PidIndex {
    /// The pids, as visible here, of processes that have `namespace_pid` in their own namespace.
    pub(crate) fn find(&self, namespace_pid: u32, processes: &Processes) -> Vec<u32> {
        let index = self.0.get_or_init(|| {
            let mut index: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for pid in processes.pids() {
                if let Some(status) = processes.status(pid) {
                    index.entry(status.namespace_pid).or_default().push(pid);
                }
            }
            index
        });
        index.get(&namespace_pid).cloned().unwrap_or_default()
    }
}

/// The holder of a segment's lock.
pub(crate) fn segment_lock_holder(segment: &SegmentFile) -> LockHolder {
    lock_holder(segment.fd())
}

/// Finds the process that writes a segment.
pub(crate) fn find_writer(
    segment: &SegmentFile,
    index: &PidIndex,
    processes: &Processes,
) -> Result<Writer, SkipReason> {
    let header = segment.header();
    let namespace_pid = header.pid.get();
    let name = ttmem_wire::segment::text(&header.program).to_owned();
    let alive = |pid| {
        let (uid, name) = (segment.uid, name.clone());
        Writer::Alive(ProcessIdentity { pid, namespace_pid, uid, name, start: None })
    };
    match segment_lock_holder(segment) {
        LockHolder::Hidden => return Ok(alive(0)),
        LockHolder::Description => {
            return Err(SkipReason::Foreign("is locked, but not by a process".to_owned()));
        }
        LockHolder::Process(pid) => {
            // A file that is named for another process than its writer cannot be attributed.
            if processes.status(pid).is_some_and(|status| status.namespace_pid != namespace_pid) {
                let reason = format!("claims pid {namespace_pid}, but is written by pid {pid}");
                return Err(SkipReason::Foreign(reason));
            }
            return Ok(alive(pid));
        }
        LockHolder::None => {}
    }
    let own_namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino());
    let candidates = match header.pid_namespace.get() {
        namespace if namespace == own_namespace || namespace == 0 => vec![namespace_pid],
        _ => index.find(namespace_pid, processes),
    };
    for pid in candidates {
        let start = processes.start_ticks(pid);
        let is_same =
            start.is_some() && (header.start_ticks.get() == 0 || start == Some(header.start_ticks.get()));
        if !is_same {
            continue;
        }
        let user = processes.status(pid).map_or(u32::MAX, |it| it.uid);
        if user != segment.uid {
            return Err(SkipReason::Foreign(format!(
                "belongs to user {}, but pid {pid} to user {user}",
                segment.uid
            )));
        }
        // After an exec the process runs another program, which holds none of this.
        if processes.has_mapped(pid, segment.id).unwrap_or(true) {
            return Ok(alive(pid));
        }
    }
    Ok(Writer::Exited)
}
