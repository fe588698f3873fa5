//! Standard output and error, written without ever waiting for whoever reads them.
//!
//! Lines queue up to a bound and go out when there is room; a stalled terminal, a full pipe or a full disk costs
//! lines, which are counted, and never the server's time.

use rustix::fs::{FileType, Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Bytes that may wait.
const ROOM: usize = 1 << 20;
/// Bytes queued at a time.
const PIECE: usize = 64 << 10;
/// Warnings of one cause in one second before they are only counted.
const WARNINGS_A_SECOND: u32 = 10;

/// How a stream takes bytes without waiting.
enum Kind {
    /// It never waits.
    File,
    /// Asked not to.
    Socket,
    /// Written through a description of our own that does not wait; the one we were given is other programs', too.
    Own(OwnedFd),
    /// Where that is not allowed (another user's terminal), by a thread that does the waiting.
    Thread(SyncSender<Vec<u8>>),
}

/// One stream.
pub(crate) struct Stream {
    fd: BorrowedFd<'static>,
    kind: Kind,
    waiting: Vec<u8>,
    dropped_now: u64,
    /// What waits begins with a note of ours that lines were lost; it is none of those lines itself.
    noted: bool,
    /// Lines lost so far.
    pub(crate) dropped: u64,
}

impl Stream {
    pub(crate) fn new(fd: BorrowedFd<'static>) -> Self {
        let kind = match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Socket) => Kind::Socket,
            Ok(FileType::CharacterDevice | FileType::Fifo) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                rustix::fs::open(path, flags, Mode::empty()).map_or_else(|_| writer(fd), Kind::Own)
            }
            _ => Kind::File,
        };
        Self { fd, kind, waiting: Vec::new(), dropped_now: 0, noted: false, dropped: 0 }
    }

    /// Queues lines. `text` ends with a newline.
    pub(crate) fn write(&mut self, text: &str) {
        if self.dropped_now > 0 && self.waiting.is_empty() {
            let note = format!("ttmem: {} lines dropped: output blocked\n", self.dropped_now);
            self.dropped_now = 0;
            self.noted = true;
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
                    let note = usize::from(std::mem::take(&mut self.noted) && sent == 0);
                    self.lose((lines - note) as u64);
                    self.waiting.clear();
                    return;
                }
            }
        }
        self.noted &= sent == 0;
        self.waiting.drain(..sent);
    }

    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match &self.kind {
            Kind::File => rustix::io::write(self.fd, bytes),
            Kind::Own(own) => rustix::io::write(own, bytes),
            Kind::Socket => {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                rustix::net::send(self.fd, bytes, flags)
            }
            Kind::Thread(thread) => {
                let piece = &bytes[..bytes.len().min(PIECE)];
                Ok(thread.try_send(piece.to_vec()).map_or(0, |()| piece.len()))
            }
        }
    }
}

/// A thread that writes, and waits as long as it takes.
fn writer(fd: BorrowedFd<'static>) -> Kind {
    let (sender, pieces) = sync_channel::<Vec<u8>>(1);
    std::thread::spawn(move || {
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                match rustix::io::write(fd, rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
    });
    Kind::Thread(sender)
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
