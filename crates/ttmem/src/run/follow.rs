//! Follows the processes of a run while its program runs, and reports what they allocated.
//!
//! Each process that the program starts inherits the number of the run, and writes it to the header of its segment. While the
//! file that marks the run is locked, these processes leave their segments behind when they exit, so that none ends unread.

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::pipe::PipeFlags;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use ttmem_core::snapshot::RunReport;
use ttmem_core::words::Mono;
use ttmem_reader::{Session, post_mortems, raise_descriptor_limit};
use ttmem_sources::{SourceConfig, Sources, monotonic};
use ttmem_wire::segment::RUN_PREFIX;

/// Time after which all segments are polled and new ones are searched, if the kernel reports none before.
const FULL_INTERVAL: u64 = Mono::SECOND;
/// Shortest time between two such polls: another user may create files all the time.
const SHORTEST_INTERVAL: u64 = 20 * (Mono::SECOND / 1000);
/// Post-mortems in a report.
const MAX_POST_MORTEMS: usize = 16;

/// A file that marks a run. It is locked while the run is followed.
pub(super) struct Marker {
    pub(super) number: u64,
    path: PathBuf,
    /// The lock ends with it.
    _file: OwnedFd,
}

impl Marker {
    /// Marks a new run in the folder of segments.
    pub(super) fn create(folder: &Path) -> anyhow::Result<Self> {
        // The standard library seeds each of these from the kernel.
        let number = RandomState::new().hash_one(std::process::id()).max(1);
        let path = folder.join(format!("{RUN_PREFIX}{number:016x}"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || {
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok::<_, rustix::io::Errno>(file)
        };
        let file = create().with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { number, path, _file: file })
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A thread that follows a run.
pub(super) struct Follower {
    thread: JoinHandle<RunReport>,
    /// Closed when the program has ended.
    stop: OwnedFd,
}

impl Follower {
    /// Starts to follow a run whose segments are in a folder.
    pub(super) fn start(marker: Marker, folder: &Path) -> anyhow::Result<Self> {
        let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let config = SourceConfig { run: Some(marker.number), ..SourceConfig::segments(folder) };
        let thread = std::thread::Builder::new()
            .name("follow".to_owned())
            .spawn(move || follow(marker, &config, &stopped))?;
        Ok(Self { thread, stop })
    }

    /// What the processes of the run allocated. The program has ended.
    pub(super) fn finish(self) -> Option<RunReport> {
        drop(self.stop);
        self.thread.join().ok()
    }
}

fn follow(marker: Marker, config: &SourceConfig, stopped: &OwnedFd) -> RunReport {
    raise_descriptor_limit();
    let created = watch(&config.folder);
    let mut session = Session::local(config.clone());
    session.keep_exited();
    let mut full_at = Mono(0);
    loop {
        let now = monotonic();
        let due = if now >= full_at {
            full_at = Mono(now.0 + FULL_INTERVAL);
            session.follow()
        } else {
            session.update_clock();
            session.poll_busy(None)
        };
        match wait(stopped, created.as_ref(), due.map_or(full_at, |due| due.min(full_at))) {
            Wake::Stopped => break,
            // A new segment may not be complete yet, so it is polled a little later.
            Wake::Created => full_at = full_at.min(Mono(monotonic().0 + SHORTEST_INTERVAL)),
            Wake::Due => {}
        }
    }
    // From now on, processes remove their segments themselves. What they left before is removed here.
    drop(marker);
    session.rescan();
    // The first call may find segments of processes that have exited, and the second ends these processes.
    session.follow();
    session.follow();
    if let Some(sources) = session.sources() {
        sources.remove_done_segments();
    }
    session.record_peaks();
    let mut report = session.report();
    let crashed: BTreeMap<u32, String> = session
        .sources()
        .into_iter()
        .flat_map(Sources::crash_segments)
        .filter(|(path, _)| path.exists())
        .map(|(path, file)| (file.header().pid.get(), path.display().to_string()))
        .collect();
    for process in &mut report.processes {
        process.crash_segment = process.pid.and_then(|pid| crashed.get(&pid).cloned());
    }
    if report.processes.iter().any(|process| process.failures > 0) {
        report.post_mortems = post_mortems(config, MAX_POST_MORTEMS);
    }
    report
}

/// Watches for new files in a folder. `None`: the kernel reports none, and new files are found a little later.
fn watch(folder: &Path) -> Option<OwnedFd> {
    let created = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&created, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO).ok()?;
    Some(created)
}

/// What ended a wait.
enum Wake {
    Stopped,
    Created,
    Due,
}

fn wait(stopped: &OwnedFd, created: Option<&OwnedFd>, until: Mono) -> Wake {
    let left = until.since(monotonic());
    let timeout = Timespec { tv_sec: (left / Mono::SECOND) as i64, tv_nsec: (left % Mono::SECOND) as i64 };
    let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
    fds.extend(created.map(|created| PollFd::new(created, PollFlags::IN)));
    let woken = rustix::event::poll(&mut fds, Some(&timeout)).unwrap_or(0);
    if woken == 0 {
        return Wake::Due;
    }
    if !fds[0].revents().is_empty() {
        return Wake::Stopped;
    }
    if let Some(created) = created {
        let mut events = [0; 4096];
        while rustix::io::read(created, &mut events).is_ok_and(|bytes| bytes > 0) {}
    }
    Wake::Created
}
