//! Standard output and error, written without ever waiting for whoever reads them.
//!
//! Lines queue up to a bound and go out when there is room; a stalled terminal, a full pipe or a full disk costs
//! lines, which are counted, and never the server's time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// Bytes that may wait.
const ROOM: usize = 1 << 20;
/// A pipe that polls as writable takes at least this much without blocking.
const PIPE_STEP: usize = 4096;
/// Warnings of one cause in one second before they are only counted.
const WARNINGS_A_SECOND: u32 = 10;

/// One stream.
pub(crate) struct Stream {
    fd: BorrowedFd<'static>,
    file: bool,
    waiting: Vec<u8>,
    dropped_now: u64,
    /// Lines lost so far.
    pub(crate) dropped: u64,
}

impl Stream {
    pub(crate) fn new(fd: BorrowedFd<'static>) -> Self {
        let file = rustix::fs::fstat(fd)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Self { fd, file, waiting: Vec::new(), dropped_now: 0, dropped: 0 }
    }

    /// Queues lines. `text` ends with a newline.
    pub(crate) fn write(&mut self, text: &str) {
        if self.waiting.len() + text.len() > ROOM {
            self.lose(text.lines().count() as u64);
        } else {
            self.waiting.extend_from_slice(text.as_bytes());
        }
    }

    fn lose(&mut self, lines: u64) {
        self.dropped_now += lines;
        self.dropped += lines;
    }

    /// Whether anything waits to go out.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes as much as goes without waiting.
    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.waiting.len() && (self.file || self.has_room()) {
            let step = if self.file { self.waiting.len() } else { PIPE_STEP };
            let end = self.waiting.len().min(sent + step);
            match rustix::io::write(self.fd, &self.waiting[sent..end]) {
                Ok(written) => sent += written,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => {
                    // A full disk or a closed pipe: what waits is lost, what comes may not be.
                    let lines = self.waiting[sent..].split_inclusive(|&b| b == b'\n').count();
                    self.lose(lines as u64);
                    self.waiting.clear();
                    return;
                }
            }
        }
        self.waiting.drain(..sent);
        if self.dropped_now > 0 && self.waiting.is_empty() {
            let note = format!("ttmem: {} lines could not be written here and are lost\n", self.dropped_now);
            self.dropped_now = 0;
            self.waiting.extend_from_slice(note.as_bytes());
        }
    }

    fn has_room(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A pipe without a reader is "ready", too: the write then says so.
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// What the daemon prints: the event log and warnings.
pub(crate) struct Output {
    log: Option<Stream>,
    errors: Stream,
    causes: BTreeMap<&'static str, u32>,
}

impl Output {
    pub(crate) fn new(quiet: bool) -> Self {
        let log = (!quiet).then(|| Stream::new(rustix::stdio::stdout()));
        Self { log, errors: Stream::new(rustix::stdio::stderr()), causes: BTreeMap::new() }
    }

    /// Whether anybody wants the event log: ask before making lines.
    pub(crate) fn logs(&self) -> bool {
        self.log.is_some()
    }

    /// Adds to the event log.
    pub(crate) fn log(&mut self, text: &str) {
        if let Some(log) = &mut self.log {
            log.write(text);
        }
    }

    /// Warns, but not more than a few times a second for one cause.
    pub(crate) fn warn(&mut self, cause: &'static str, text: std::fmt::Arguments<'_>) {
        let seen = self.causes.entry(cause).or_default();
        *seen += 1;
        if *seen <= WARNINGS_A_SECOND {
            self.errors.write(&format!("ttmem: {text}\n"));
        }
    }

    /// A second has passed.
    pub(crate) fn second(&mut self) {
        for (cause, seen) in std::mem::take(&mut self.causes) {
            if seen > WARNINGS_A_SECOND {
                let more = seen - WARNINGS_A_SECOND;
                self.errors.write(&format!("ttmem: {more} more warnings of this kind: {cause}\n"));
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.errors.flush();
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.errors.is_waiting() || self.log.as_ref().is_some_and(Stream::is_waiting)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.errors.dropped + self.log.as_ref().map_or(0, |log| log.dropped)
    }
}
