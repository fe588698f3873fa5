//! Standard output and error, written without ever waiting for whoever reads them.
//!
//! Lines queue up to a bound and go out when there is room; a stalled terminal, a full pipe or a full disk costs
//! lines, which are counted, and never the server's time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that may wait.
const ROOM: usize = 1 << 20;
/// Bytes queued at a time.
const PIECE: usize = 64 << 10;
/// A pipe that polls as writable takes at least this much without blocking.
const PIPE_STEP: usize = 4096;
/// Warnings of one cause in one second before they are only counted.
const WARNINGS_A_SECOND: u32 = 10;

/// How a stream takes bytes without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It never waits.
    File,
    /// Asked not to.
    Socket,
    /// Written through a description of our own that does not wait; the one we were given is other programs', too.
    Own,
    /// By asking first whether there is room.
    Polled,
}

/// One stream.
pub(crate) struct Stream {
    fd: BorrowedFd<'static>,
    own: Option<OwnedFd>,
    kind: Kind,
    waiting: Vec<u8>,
    dropped_now: u64,
    /// Lines lost so far.
    pub(crate) dropped: u64,
}

impl Stream {
    pub(crate) fn new(fd: BorrowedFd<'static>) -> Self {
        let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let mut own = None;
        let kind = match kind {
            Ok(FileType::RegularFile) => Kind::File,
            Ok(FileType::Socket) => Kind::Socket,
            Ok(FileType::CharacterDevice | FileType::Fifo) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                own =
                    rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()).ok();
                if own.is_some() { Kind::Own } else { Kind::Polled }
            }
            _ => Kind::Polled,
        };
        Self { fd, own, kind, waiting: Vec::new(), dropped_now: 0, dropped: 0 }
    }

    /// Queues lines. `text` ends with a newline.
    pub(crate) fn write(&mut self, text: &str) {
        if self.dropped_now > 0 && self.waiting.is_empty() {
            let note = format!("ttmem: {} lines could not be written here and are lost\n", self.dropped_now);
            self.dropped_now = 0;
            self.waiting.extend_from_slice(note.as_bytes());
        }
        for piece in pieces(text) {
            if self.waiting.len() + piece.len() > ROOM {
                self.flush();
            }
            if self.waiting.len() + piece.len() > ROOM {
                self.lose(piece.lines().count() as u64);
            } else {
                self.waiting.extend_from_slice(piece.as_bytes());
            }
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
        while sent < self.waiting.len() {
            match self.send(&self.waiting[sent..]) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
                Ok(written) => sent += written,
                Err(rustix::io::Errno::INTR) => {}
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
    }

    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match (self.kind, &self.own) {
            (Kind::Socket, _) => {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                rustix::net::send(self.fd, bytes, flags)
            }
            (Kind::Own, Some(own)) => rustix::io::write(own, bytes),
            (Kind::Polled, _) if !self.has_room() => Ok(0),
            (Kind::Polled, _) => rustix::io::write(self.fd, &bytes[..bytes.len().min(PIPE_STEP)]),
            _ => rustix::io::write(self.fd, bytes),
        }
    }

    fn has_room(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A pipe without a reader is "ready", too: the write then says so.
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// A long text in pieces of whole lines, so that a report larger than the room is not lost whole.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let limit = rest.len().min(PIECE);
        let end = match rest.as_bytes()[..limit].iter().rposition(|&b| b == b'\n') {
            Some(at) => at + 1,
            None => rest.find('\n').map_or(rest.len(), |at| at + 1),
        };
        let (piece, left) = rest.split_at(end);
        rest = left;
        Some(piece)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_falls_into_pieces_of_whole_lines() {
        let long = "x".repeat(PIECE * 2);
        let text = format!("a\nb\n{long}\n{}", "line\n".repeat(PIECE));
        let all: Vec<&str> = pieces(&text).collect();
        assert_eq!(all.concat(), text);
        assert!(all.iter().all(|piece| piece.ends_with('\n')));
        assert!(all.len() > 3);
        assert_eq!(pieces("").count(), 0);
        assert_eq!(pieces("no end").collect::<Vec<_>>(), ["no end"]);
    }
}
