//! Whose a segment is. The kernel says: a writer holds a lock on its file that nobody else can have, that no child
//! inherits, and that goes with the process or its image. Where that lock was lost (a program that closes descriptors it
//! does not know), the process is found by pid and start time, and must still have the file mapped.

use crate::lock::{self, Holder};
use crate::process::{Owner, Processes};
use crate::segment::{SegmentFile, Skip};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What is known of a segment's writer.
pub(crate) enum Writer {
    Living(Owner),
    /// It ended, or runs another program by now.
    Gone,
}

/// All processes, by the pid they know themselves by; looked up once, if at all.
#[derive(Default)]
pub(crate) struct Census(OnceCell<BTreeMap<u32, Vec<u32>>>);

impl Census {
    pub(crate) fn known_as(&self, own_pid: u32, processes: &Processes) -> Vec<u32> {
        let all = self.0.get_or_init(|| {
            let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for pid in processes.all() {
                if let Some(it) = processes.status(pid) {
                    all.entry(it.own_pid).or_default().push(pid);
                }
            }
            all
        });
        all.get(&own_pid).cloned().unwrap_or_default()
    }
}

/// Who holds a segment's lock.
pub(crate) fn holder(segment: &SegmentFile) -> Holder {
    lock::holder(segment.fd())
}

/// Finds out who writes a segment.
pub(crate) fn writer(segment: &SegmentFile, census: &Census, processes: &Processes) -> Result<Writer, Skip> {
    let header = segment.header();
    let own_pid = header.pid.get();
    let name = ttmem_wire::segment::text(&header.program).to_owned();
    let living =
        |pid| Writer::Living(Owner { pid, own_pid, uid: segment.uid, name: name.clone(), start: None });
    match holder(segment) {
        Holder::Unseen => return Ok(living(0)),
        Holder::Other => return Err(Skip::Foreign("is locked, but not by a process".to_owned())),
        Holder::Process(pid) => {
            // A file named for somebody else is nobody's.
            if processes.status(pid).is_some_and(|it| it.own_pid != own_pid) {
                return Err(Skip::Foreign(format!("claims pid {own_pid}, but is written by pid {pid}")));
            }
            return Ok(living(pid));
        }
        Holder::Nobody => {}
    }
    let here = fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino());
    let candidates = match header.pid_namespace.get() {
        namespace if namespace == here || namespace == 0 => vec![own_pid],
        _ => census.known_as(own_pid, processes),
    };
    for pid in candidates {
        let start = processes.start_ticks(pid);
        let is_it =
            start.is_some() && (header.start_ticks.get() == 0 || start == Some(header.start_ticks.get()));
        if !is_it {
            continue;
        }
        let user = processes.status(pid).map_or(u32::MAX, |it| it.uid);
        if user != segment.uid {
            return Err(Skip::Foreign(format!(
                "belongs to user {}, but pid {pid} to user {user}",
                segment.uid
            )));
        }
        // It may have gone on as another program, which holds none of this.
        if processes.has_mapped(pid, segment.id).unwrap_or(true) {
            return Ok(living(pid));
        }
    }
    Ok(Writer::Gone)
}
