//! Reads from within a process that may be tracked itself.
//!
//! A process that opens its own segment and closes it again loses its lock on it: a POSIX lock is released with any
//! descriptor of the file in the descriptor table that owns it. So the segment is read by a thread with a descriptor table of
//! its own. To that thread another process seems to hold the lock, as to all other readers.
#![allow(unsafe_code)]

use crate::{Error, Reader, ReaderOptions, Request, Result, Session};
use rustix::thread::UnshareFlags;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use ttmem_core::snapshot::RunReport;
use ttmem_sources::{SourceConfig, monotonic};

/// Longest time between two polls of a [`Follower`].
const INTERVAL: Duration = Duration::from_millis(500);

/// Answers one request with one line of JSON, in a process that may be tracked itself.
pub fn ask_isolated(options: &ReaderOptions, request: &Request) -> Result<Vec<u8>> {
    let read = || {
        unshare_descriptors();
        Reader::new(options, false, true)?.ask(request)
    };
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("ttmem-reader".to_owned()).spawn_scoped(scope, read);
        let reader = reader.map_err(Error::Thread)?;
        reader.join().unwrap_or(Err(Error::Nothing))
    })
}

/// Gives this thread a descriptor table of its own.
fn unshare_descriptors() {
    // Where a sandbox forbids it, the lock is lost. Readers then know a writer by its pid, start and mapping.
    // SAFETY: only bytes leave the threads that call this, and nothing passed to them contains a descriptor.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) };
}

/// Follows segments in a thread of its own, in a process that may be tracked itself. The thread ends with it.
pub struct Follower {
    requests: mpsc::Sender<mpsc::Sender<RunReport>>,
    /// A forked child has no such thread.
    pid: u32,
}

impl Follower {
    /// Starts to follow all segments in the reader's folder.
    pub fn start(options: &ReaderOptions) -> Result<Self> {
        let config = SourceConfig::segments(&options.folder());
        let (requests, received) = mpsc::channel();
        let follow = move || follow(config, &received);
        thread::Builder::new().name("ttmem-follower".to_owned()).spawn(follow).map_err(Error::Thread)?;
        Ok(Self { requests, pid: std::process::id() })
    }

    /// What processes allocated until now; `None` in a forked child.
    pub fn report(&self) -> Option<RunReport> {
        let (answer, answered) = mpsc::channel();
        if self.pid != std::process::id() {
            return None;
        }
        self.requests.send(answer).ok()?;
        answered.recv().ok()
    }
}

fn follow(config: SourceConfig, requests: &mpsc::Receiver<mpsc::Sender<RunReport>>) {
    unshare_descriptors();
    let mut session = Session::local(config);
    loop {
        let due = session.follow();
        let wait = due.map_or(INTERVAL, |due| INTERVAL.min(Duration::from_nanos(due.since(monotonic()))));
        match requests.recv_timeout(wait) {
            Ok(answer) => {
                session.follow();
                // Without a receiver, the report is not wanted any more.
                let _ = answer.send(session.report());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dump;
    use std::fs::File;
    use std::process::Command;
    use ttmem_core::Detail;

    /// Whether a file is locked, as another process sees it.
    fn is_locked(path: &std::path::Path) -> bool {
        let ask = "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\ntry:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError:\n    sys.exit(0)\nsys.exit(1)";
        Command::new("python3").args(["-c", ask]).arg(path).status().unwrap().success()
    }

    #[test]
    fn process_that_reads_itself_keeps_its_lock() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let client_options = ttmem_client::Options::default().folder(folder.path().to_str().unwrap());
        let tracker = ttmem_client::Tracker::new(&client_options);
        let device = tracker.define_devices(&[0]).unwrap();
        tracker.alloc(&ttmem_client::Buffer::new(device, ttmem_client::Space::Dram, 64, 4096)).unwrap();
        let segment = folder.path().join(tracker.status().segment.unwrap());
        assert!(is_locked(&segment));
        let options =
            ReaderOptions { local: true, folder: Some(folder.path().to_owned()), ..ReaderOptions::default() };
        let answer = ask_isolated(&options, &Request::Snapshot(Detail::NONE)).unwrap();
        let snapshot: ttmem_core::Snapshot = serde_json::from_slice(&answer).unwrap();
        assert_eq!(snapshot.processes.len(), 1, "{:?}", snapshot.health);
        assert_eq!(snapshot.processes[0].pid, Some(std::process::id()));
        assert_eq!(snapshot.processes[0].summary.dram_bytes, Some(4096));
        let dump: Dump =
            serde_json::from_slice(&ask_isolated(&options, &Request::Allocations).unwrap()).unwrap();
        assert_eq!((dump.schema, dump.simulated), (1, false));
        let listed: Vec<_> = dump.allocations.iter().map(|it| (it.pid, it.requested_bytes)).collect();
        assert_eq!(listed, [(Some(std::process::id()), 4096)]);
        assert!(is_locked(&segment));
        let follower = Follower::start(&options).unwrap();
        assert_eq!(follower.report().unwrap().processes[0].spaces[0].peak_bytes, 4096);
        for (address, size) in [(8192, 100), (16_384, 200)] {
            let buffer = ttmem_client::Buffer::new(device, ttmem_client::Space::Dram, address, size);
            tracker.alloc(&buffer).unwrap();
        }
        tracker.free(device, ttmem_client::Space::Dram, 8192).unwrap();
        let report = follower.report().unwrap();
        let space = &report.processes[0].spaces[0];
        let at_peak: Vec<_> = space.at_peak.iter().flatten().map(|it| (it.count, it.used_bytes)).collect();
        assert_eq!((space.peak_bytes, at_peak, space.left[0].count), (4396, vec![(3, 4396)], 2));
        assert!(is_locked(&segment));
        // Without the thread, the lock is lost.
        drop(File::open(&segment).unwrap());
        assert!(!is_locked(&segment));
    }
}
