//! A connection of the query socket: lines come in, and answers go out as far as the peer takes them.
//!
//! What is asked and answered is `ttmem_reader::protocol`.

use crate::server::Daemon;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use ttmem_reader::protocol::{Listing, error_answer};
use ttmem_reader::{RESCAN_ON_REQUEST_NS, Request};

/// A longer request is no request.
const REQUEST_ROOM: usize = 4096;
/// Answers are made while less than this waits to be sent.
const ANSWER_STEP: usize = 64 << 10;
/// Reads before others get their turn; what is left wakes us again.
const READS_A_TURN: usize = 16;
/// Pieces made before others get their turn.
const PIECES_A_TURN: usize = 4;

pub(crate) struct QueryConnection {
    pub(crate) stream: UnixStream,
    pub(crate) writing: bool,
    request: Vec<u8>,
    answer: Answer,
    listing: Option<Listing>,
    /// The line being read is too long, and what is left of it goes unread.
    overlong: bool,
    ended: bool,
}

/// What is to be sent, and how much of it was.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    sent: usize,
}

impl Answer {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// So much more was sent. The rest moves up only when it is the smaller part: a large answer goes in many small steps.
    fn advance(&mut self, len: usize) {
        self.sent += len;
        if self.sent == self.bytes.len() {
            *self = Self::default();
        } else if self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.sent));
        }
    }

    /// Sends as much as is taken.
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

impl QueryConnection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (request, answer) = Default::default();
        Self { stream, writing: false, request, answer, listing: None, overlong: false, ended: false }
    }

    /// Reads, answers and sends as far as it goes. Returns whether room to write must be waited for, or `None` when
    /// the connection is done.
    pub(crate) fn turn(&mut self, daemon: &mut Daemon) -> Option<bool> {
        let (mut pieces, mut begun, mut reads) = (0, false, 0);
        loop {
            self.answer.send(&self.stream).ok()?;
            if self.answer.rest().len() >= ANSWER_STEP {
                return Some(true);
            }
            if let Some(listing) = &mut self.listing {
                if pieces == PIECES_A_TURN {
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
                if begun {
                    // The next one is for the next turn; there is room to write, so that comes at once.
                    return Some(true);
                }
                begun = true;
                let line: Vec<u8> = self.request.drain(..=end).collect();
                self.begin(daemon, &line);
                continue;
            }
            if self.ended {
                return None;
            }
            reads += 1;
            if reads > READS_A_TURN {
                return Some(false);
            }
            let mut bytes = [0; REQUEST_ROOM];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    // A last line needs no newline.
                    self.ended = true;
                    if !self.request.is_empty() {
                        self.request.push(b'\n');
                    }
                }
                Ok(len) => self.collect(&bytes[..len]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Some(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    fn collect(&mut self, mut bytes: &[u8]) {
        if self.overlong {
            let Some(end) = bytes.iter().position(|&b| b == b'\n') else { return };
            self.overlong = false;
            bytes = &bytes[end + 1..];
        }
        self.request.extend_from_slice(bytes);
        if self.request.len() > REQUEST_ROOM && !self.request.contains(&b'\n') {
            self.request.clear();
            self.overlong = true;
            self.fail("request is too long");
        }
    }

    fn begin(&mut self, daemon: &mut Daemon, line: &[u8]) {
        match Request::parse(line) {
            Ok(Request::Snapshot(detail)) => {
                let snapshot = daemon.snapshot(&detail);
                match serde_json::to_writer(&mut self.answer.bytes, &snapshot) {
                    Ok(()) => self.answer.bytes.push(b'\n'),
                    Err(e) => {
                        self.answer = Answer::default();
                        self.fail(&e.to_string());
                    }
                }
            }
            Ok(Request::Allocations) => {
                daemon.reap(&[]);
                daemon.poll_sources(RESCAN_ON_REQUEST_NS);
                self.listing = Some(Listing::default());
            }
            Err(why) => self.fail(&why),
        }
    }

    fn fail(&mut self, why: &str) {
        self.answer.bytes.extend_from_slice(&error_answer(why));
        self.answer.bytes.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_answer_goes_in_small_steps_without_being_moved_each_time() {
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
