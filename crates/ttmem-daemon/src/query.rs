//! Connections of the query socket: reads requests, and sends answers as far as the peer takes them.
//!
//! The protocol is `ttmem_reader::protocol`.

use crate::poller::Token;
use crate::server::Daemon;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use ttmem_reader::protocol::{Listing, error_answer};
use ttmem_reader::{RESCAN_ON_REQUEST_NS, Request};

/// Longest request.
const MAX_REQUEST: usize = 4096;
/// An answer is continued while fewer bytes wait to be sent.
const MAX_UNSENT: usize = 64 << 10;
/// Reads of one connection in one turn; what is left wakes the loop again.
const MAX_READS: usize = 16;
/// Pieces of a listing written in one turn.
const MAX_PIECES: usize = 4;

/// A connection of the query socket.
pub(crate) struct QueryConnection {
    stream: UnixStream,
    /// Whether the loop waits for room to write, rather than for bytes to read.
    writing: bool,
    request: Vec<u8>,
    answer: Answer,
    listing: Option<Listing>,
    /// Whether the rest of a line is skipped, because it is too long.
    skips_line: bool,
    /// Whether the peer has closed its side.
    ended: bool,
}

/// An answer, and how much of it was sent.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    sent: usize,
}

impl Answer {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Notes that `len` more bytes were sent. The rest is moved only when it is the smaller part, since a large answer is sent
    /// in many small steps.
    fn advance(&mut self, len: usize) {
        self.sent += len;
        if self.sent == self.bytes.len() {
            *self = Self::default();
        } else if self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.sent));
        }
    }

    /// Sends as much as the peer takes.
    fn send(&mut self, stream: &UnixStream) -> io::Result<()> {
        while !self.rest().is_empty() {
            match rustix::net::send(stream, self.rest(), rustix::net::SendFlags::NOSIGNAL) {
                Ok(len) => self.advance(len),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

impl Daemon {
    /// Handles an event of a connection's socket.
    pub(crate) fn handle_query(&mut self, number: u64) {
        let Some(mut connection) = self.queries.remove(&number) else { return };
        if let Some(writing) = connection.take_turn(self) {
            // While an answer waits, no request is read, so that requests do not wake the loop.
            if writing != connection.writing {
                connection.writing = writing;
                let (fd, token) = (connection.stream.as_fd(), Token::Query(number));
                self.poller.modify(fd, token, !writing, writing);
            }
            self.queries.insert(number, connection);
        }
    }
}

impl QueryConnection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (request, answer) = Default::default();
        Self { stream, writing: false, request, answer, listing: None, skips_line: false, ended: false }
    }

    /// Reads, answers and sends for one turn. Returns whether the loop must wait for room to write, or `None` when the
    /// connection is finished.
    fn take_turn(&mut self, daemon: &mut Daemon) -> Option<bool> {
        let (mut pieces, mut answered, mut reads) = (0, false, 0);
        loop {
            self.answer.send(&self.stream).ok()?;
            if self.answer.rest().len() >= MAX_UNSENT {
                return Some(true);
            }
            if let Some(listing) = &mut self.listing {
                if pieces == MAX_PIECES {
                    return Some(true);
                }
                pieces += 1;
                if listing.write_piece(daemon.session.state(), &mut self.answer.bytes) {
                    self.answer.bytes.push(b'\n');
                    self.listing = None;
                }
                continue;
            }
            if !self.answer.rest().is_empty() {
                return Some(true);
            }
            if let Some(end) = self.request.iter().position(|&b| b == b'\n') {
                if answered {
                    // The next request waits for the next turn, which comes at once, since there is room to write.
                    return Some(true);
                }
                answered = true;
                let line: Vec<u8> = self.request.drain(..=end).collect();
                self.begin_answer(daemon, &line);
                continue;
            }
            if self.ended {
                return None;
            }
            reads += 1;
            if reads > MAX_READS {
                return Some(false);
            }
            let mut bytes = [0; MAX_REQUEST];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    // The last line may lack a newline.
                    self.ended = true;
                    if !self.request.is_empty() {
                        self.request.push(b'\n');
                    }
                }
                Ok(len) => self.append_request(&bytes[..len]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Some(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    fn append_request(&mut self, mut bytes: &[u8]) {
        if self.skips_line {
            let Some(end) = bytes.iter().position(|&b| b == b'\n') else { return };
            self.skips_line = false;
            bytes = &bytes[end + 1..];
        }
        self.request.extend_from_slice(bytes);
        if self.request.len() > MAX_REQUEST && !self.request.contains(&b'\n') {
            self.request.clear();
            self.skips_line = true;
            self.answer_error("request is too long");
        }
    }

    fn begin_answer(&mut self, daemon: &mut Daemon, line: &[u8]) {
        match Request::parse(line) {
            Ok(Request::Snapshot(detail)) => {
                let snapshot = daemon.snapshot(&detail);
                match serde_json::to_writer(&mut self.answer.bytes, &snapshot) {
                    Ok(()) => self.answer.bytes.push(b'\n'),
                    Err(e) => {
                        self.answer = Answer::default();
                        self.answer_error(&e.to_string());
                    }
                }
            }
            Ok(Request::Allocations) => {
                daemon.reap(&[]);
                daemon.poll_sources(RESCAN_ON_REQUEST_NS);
                self.listing = Some(Listing::default());
            }
            Err(why) => self.answer_error(&why),
        }
    }

    fn answer_error(&mut self, why: &str) {
        self.answer.bytes.extend_from_slice(&error_answer(why));
        self.answer.bytes.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answer_is_not_moved_at_each_step() {
        const STEP: usize = 512;
        let mut answer =
            Answer { bytes: (0..32u32 << 20 >> 2).flat_map(u32::to_le_bytes).collect(), sent: 0 };
        let (mut next, mut moves) = (0u32, 0);
        while !answer.rest().is_empty() {
            assert_eq!(answer.rest()[..4], next.to_le_bytes());
            answer.advance(STEP);
            moves += u32::from(answer.sent == 0);
            next += STEP as u32 / 4;
        }
        assert_eq!(next, 32 << 20 >> 2);
        assert!(moves < 20, "{moves}: each time only half of it is left");
    }
}
