//! Reads from within a process that may be tracked itself.
//!
//! A process that opens its own segment and closes it again loses its lock on it: a POSIX lock is released with any
//! descriptor of the file in the descriptor table that owns it. So the segment is read by a thread with a descriptor table of
//! its own. To that thread another process seems to hold the lock, as to all other readers.
#![allow(unsafe_code)]

use crate::{Error, Reader, ReaderOptions, Request, Result};
use rustix::thread::UnshareFlags;
use std::thread;

/// Answers one request with one line of JSON, in a process that may be tracked itself.
pub fn ask_isolated(options: &ReaderOptions, request: &Request) -> Result<Vec<u8>> {
    let read = || {
        // Where a sandbox forbids it, the lock is lost. Readers then know a writer by its pid, start and mapping.
        // SAFETY: only bytes leave this thread, and nothing passed to it contains a descriptor.
        let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) };
        Reader::new(options, false, true)?.ask(request)
    };
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("ttmem-reader".to_owned()).spawn_scoped(scope, read);
        let reader = reader.map_err(Error::Thread)?;
        reader.join().unwrap_or(Err(Error::Nothing))
    })
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
        // Without the thread, the lock is lost.
        drop(File::open(&segment).unwrap());
        assert!(!is_locked(&segment));
    }
}
