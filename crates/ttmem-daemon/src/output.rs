//! Standard output and error, written without ever waiting for their reader.
//!
//! Lines are queued up to a bound. A stalled terminal, a full pipe or a full disk costs lines, which are counted, but never
//! the daemon's time.

use rustix::fs::{FileType, Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Bytes that may be queued.
const MAX_QUEUED: usize = 1 << 20;
/// Bytes queued at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Warnings of one cause in one second; further ones are only counted.
const MAX_WARNINGS: u32 = 10;

/// How a stream is written without waiting.
enum Kind {
    /// A file, which never blocks.
    File,
    /// A socket, written with a flag for each call.
    Socket,
    /// A terminal or pipe, opened again without blocking: the inherited open file description is shared with other programs.
    Reopened(OwnedFd),
    /// A terminal or pipe that may not be opened again, such as another user's terminal: a thread writes it and waits.
    Thread(SyncSender<Vec<u8>>),
}

/// Standard output or error.
pub(crate) struct Stream {
    fd: BorrowedFd<'static>,
    kind: Kind,
    queue: Vec<u8>,
    /// Lines dropped since the last note about it.
    dropped_now: u64,
    /// Whether the queue begins with such a note, which is not a line of its own.
    has_note: bool,
    /// Lines dropped so far.
    pub(crate) dropped: u64,
}

impl Stream {
    pub(crate) fn new(fd: BorrowedFd<'static>) -> Self {
        let kind = match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Socket) => Kind::Socket,
            Ok(FileType::CharacterDevice | FileType::Fifo) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                rustix::fs::open(path, flags, Mode::empty()).map_or_else(|_| start_writer(fd), Kind::Reopened)
            }
            _ => Kind::File,
        };
        Self { fd, kind, queue: Vec::new(), dropped_now: 0, has_note: false, dropped: 0 }
    }

    /// Queues lines. `text` must end with a newline.
    pub(crate) fn write(&mut self, text: &str) {
        if self.dropped_now > 0 && self.queue.is_empty() {
            let note = format!("ttmem: {} lines dropped: output blocked\n", self.dropped_now);
            self.dropped_now = 0;
            self.has_note = true;
            self.queue.extend_from_slice(note.as_bytes());
        }
        for piece in pieces(text) {
            if self.queue.len() + piece.len() > MAX_QUEUED {
                self.flush();
            }
            if self.queue.len() + piece.len() > MAX_QUEUED {
                self.drop_lines(piece.lines().count() as u64);
            } else {
                self.queue.extend_from_slice(piece.as_bytes());
            }
        }
    }

    fn drop_lines(&mut self, lines: u64) {
        self.dropped_now += lines;
        self.dropped += lines;
    }

    /// Whether anything is left in the queue.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Writes as much as possible without waiting.
    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.queue.len() {
            match self.send(&self.queue[sent..]) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
                Ok(written) => sent += written,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    // The disk is full or the pipe closed: the queue is dropped, later lines may succeed.
                    let lines = self.queue[sent..].split_inclusive(|&b| b == b'\n').count();
                    let note = usize::from(std::mem::take(&mut self.has_note) && sent == 0);
                    self.drop_lines((lines - note) as u64);
                    self.queue.clear();
                    return;
                }
            }
        }
        self.has_note &= sent == 0;
        self.queue.drain(..sent);
    }

    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match &self.kind {
            Kind::File => rustix::io::write(self.fd, bytes),
            Kind::Reopened(fd) => rustix::io::write(fd, bytes),
            Kind::Socket => {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                rustix::net::send(self.fd, bytes, flags)
            }
            Kind::Thread(thread) => {
                let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
                Ok(thread.try_send(piece.to_vec()).map_or(0, |()| piece.len()))
            }
        }
    }
}

/// Starts a thread that writes and waits.
fn start_writer(fd: BorrowedFd<'static>) -> Kind {
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

/// Divides a text into pieces of whole lines, so that a report larger than the queue is not dropped as a whole.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let limit = rest.len().min(PIECE_BYTES);
        let end = match rest.as_bytes()[..limit].iter().rposition(|&b| b == b'\n') {
            Some(at) => at + 1,
            None => rest.find('\n').map_or(rest.len(), |at| at + 1),
        };
        let (piece, left) = rest.split_at(end);
        rest = left;
        Some(piece)
    })
}

/// What the daemon prints: the event log on standard output, warnings on standard error.
pub(crate) struct Output {
    log: Option<Stream>,
    errors: Stream,
    /// Warnings in this second, by cause.
    warnings: BTreeMap<&'static str, u32>,
}

impl Output {
    pub(crate) fn new(quiet: bool) -> Self {
        let log = (!quiet).then(|| Stream::new(rustix::stdio::stdout()));
        Self { log, errors: Stream::new(rustix::stdio::stderr()), warnings: BTreeMap::new() }
    }

    /// Whether the event log is written, so that lines are needed.
    pub(crate) fn is_logging(&self) -> bool {
        self.log.is_some()
    }

    /// Writes lines to the event log.
    pub(crate) fn log(&mut self, text: &str) {
        if let Some(log) = &mut self.log {
            log.write(text);
        }
    }

    /// Writes a warning, unless there were too many of this cause in this second.
    pub(crate) fn warn(&mut self, cause: &'static str, text: std::fmt::Arguments<'_>) {
        let count = self.warnings.entry(cause).or_default();
        *count += 1;
        if *count <= MAX_WARNINGS {
            self.errors.write(&format!("ttmem: {text}\n"));
        }
    }

    /// Writes how many warnings of the last second were left out. Called every second.
    pub(crate) fn summarise_warnings(&mut self) {
        for (cause, count) in std::mem::take(&mut self.warnings) {
            if count > MAX_WARNINGS {
                let more = count - MAX_WARNINGS;
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

    /// Whether anything is left to be written.
    pub(crate) fn is_blocked(&self) -> bool {
        self.errors.is_blocked() || self.log.as_ref().is_some_and(Stream::is_blocked)
    }

    /// Lines dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.errors.dropped + self.log.as_ref().map_or(0, |log| log.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_divided_into_whole_lines() {
        let long = "x".repeat(PIECE_BYTES * 2);
        let text = format!("a\nb\n{long}\n{}", "line\n".repeat(PIECE_BYTES));
        let all: Vec<&str> = pieces(&text).collect();
        assert_eq!(all.concat(), text);
        assert!(all.iter().all(|piece| piece.ends_with('\n')));
        assert!(all.len() > 3);
        assert_eq!(pieces("").count(), 0);
        assert_eq!(pieces("no end").collect::<Vec<_>>(), ["no end"]);
    }
}
