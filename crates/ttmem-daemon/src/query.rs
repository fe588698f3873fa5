//! Connections of the query socket: reads requests, and sends answers as far as the peer takes them.
//!
//! The protocol is `ttmem_reader::protocol`.

use crate::poller::Token;
use crate::server::Daemon;
use crate::subscriptions::push_line;
use jiff::Timestamp;
use rustix::event::epoll::EventFlags;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use ttmem_core::Viewer;
use ttmem_core::detail::BlockQuery;
use ttmem_reader::protocol::{EVENTS_END, Listing, error_answer};
use ttmem_reader::{EventQuery, RESCAN_ON_REQUEST_NS, Request, json};
use ttmem_sources::RecentRecords;

/// Longest request.
const MAX_REQUEST: usize = 4096;
/// An answer is continued while fewer bytes wait to be sent.
const MAX_UNSENT: usize = 64 << 10;
/// Reads of one connection in one turn; what is left wakes the loop again.
const MAX_READS: usize = 16;
/// Pieces of a listing written in one turn.
const MAX_PIECES: usize = 4;
/// Events in one piece of their listing.
const EVENTS_PER_PIECE: usize = 512;

/// A connection of the query socket.
pub(crate) struct QueryConnection {
    stream: UnixStream,
    /// What the peer may see.
    viewer: Viewer,
    /// What the loop waits for.
    interest: Interest,
    request: Vec<u8>,
    answer: Answer,
    listing: Option<Listing>,
    /// Events that are listed.
    events: Option<(EventQuery, RecentRecords)>,
    /// Whether new events are sent until the peer hangs up. Nothing else is answered then.
    follows: bool,
    /// Whether the rest of a line is skipped, because it is too long.
    skips_line: bool,
    /// Whether the peer has closed its side.
    ended: bool,
}

/// What the loop waits for on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interest {
    Reading,
    Writing,
    /// Only that the peer hangs up: it sends nothing more.
    HangUp,
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
    pub(crate) fn handle_query(&mut self, number: u64, flags: EventFlags) {
        let Some(mut connection) = self.queries.remove(&number) else { return };
        let is_gone = connection.follows && flags.intersects(EventFlags::HUP | EventFlags::ERR);
        match connection.take_turn(self, number).filter(|_| !is_gone) {
            Some(interest) => {
                // While an answer waits, no request is read, so that requests do not wake the loop.
                if interest != connection.interest {
                    connection.interest = interest;
                    let (fd, token) = (connection.stream.as_fd(), Token::Query(number));
                    let (reading, writing) = (interest == Interest::Reading, interest == Interest::Writing);
                    self.poller.modify(fd, token, reading, writing);
                }
                self.queries.insert(number, connection);
            }
            None => self.subscriptions.unsubscribe(number),
        }
    }

    /// Sends queued events on the connections that have room for them.
    pub(crate) fn send_events(&mut self) {
        let queries = &self.queries;
        self.subscriptions.retain(|number| queries.contains_key(&number));
        for number in self.subscriptions.waiting() {
            if self.queries.get(&number).is_some_and(|it| it.interest != Interest::Writing) {
                self.handle_query(number, EventFlags::empty());
            }
        }
    }
}

impl QueryConnection {
    pub(crate) fn new(stream: UnixStream, viewer: Viewer) -> Self {
        let (request, answer) = Default::default();
        Self {
            stream,
            viewer,
            interest: Interest::Reading,
            request,
            answer,
            listing: None,
            events: None,
            follows: false,
            skips_line: false,
            ended: false,
        }
    }

    /// Reads, answers and sends for one turn. Returns what the loop must wait for, or `None` when the connection is finished.
    fn take_turn(&mut self, daemon: &mut Daemon, number: u64) -> Option<Interest> {
        let (mut pieces, mut answered, mut reads) = (0, false, 0);
        loop {
            self.answer.send(&self.stream).ok()?;
            if self.answer.rest().len() >= MAX_UNSENT {
                return Some(Interest::Writing);
            }
            if self.events.is_some() {
                if pieces == MAX_PIECES {
                    return Some(Interest::Writing);
                }
                pieces += 1;
                self.list_events(daemon);
                continue;
            }
            if let Some(listing) = &mut self.listing {
                if pieces == MAX_PIECES {
                    return Some(Interest::Writing);
                }
                pieces += 1;
                if listing.write_piece(daemon.session.state(), &mut self.answer.bytes) {
                    self.answer.bytes.push(b'\n');
                    self.listing = None;
                }
                continue;
            }
            if !self.answer.rest().is_empty() {
                return Some(Interest::Writing);
            }
            if self.follows {
                self.answer.bytes = daemon.subscriptions.take(number);
                if !self.answer.bytes.is_empty() {
                    continue;
                }
                // What the peer sends now is not read as a request.
                self.request.clear();
                if self.ended {
                    return Some(Interest::HangUp);
                }
            }
            if let Some(end) = self.request.iter().position(|&b| b == b'\n') {
                if answered {
                    // The next request waits for the next turn, which comes at once, since there is room to write.
                    return Some(Interest::Writing);
                }
                answered = true;
                let line: Vec<u8> = self.request.drain(..=end).collect();
                self.begin_answer(daemon, number, &line);
                continue;
            }
            if self.ended {
                return None;
            }
            reads += 1;
            if reads > MAX_READS {
                return Some(Interest::Reading);
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
                Ok(_) if self.follows => {}
                Ok(len) => self.append_request(&bytes[..len]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Some(Interest::Reading),
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

    fn begin_answer(&mut self, daemon: &mut Daemon, number: u64, line: &[u8]) {
        match Request::parse(line) {
            Ok(Request::Snapshot(mut detail)) => {
                if let Some(query) = &mut detail.blocks {
                    query.limit = query.limit.min(BlockQuery::MOST);
                }
                let snapshot = daemon.snapshot(&detail, self.viewer);
                match json::write(&snapshot, &mut self.answer.bytes) {
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
                self.listing = Some(Listing::new(self.viewer));
            }
            Ok(Request::Report) => {
                daemon.reap(&[]);
                daemon.poll_sources(RESCAN_ON_REQUEST_NS);
                daemon.session.record_peaks();
                let report = daemon.session.report_for(self.viewer);
                match json::write(&report, &mut self.answer.bytes) {
                    Ok(()) => self.answer.bytes.push(b'\n'),
                    Err(e) => self.answer_error(&e.to_string()),
                }
            }
            Ok(Request::Events(query)) => {
                if let Err(why) = self.begin_events(daemon, number, query) {
                    self.answer_error(&why);
                }
            }
            Err(why) => self.answer_error(&why),
        }
    }

    /// Begins to list events, and subscribes to those that follow.
    fn begin_events(
        &mut self,
        daemon: &mut Daemon,
        number: u64,
        mut query: EventQuery,
    ) -> Result<(), String> {
        daemon.reap(&[]);
        daemon.poll_sources(RESCAN_ON_REQUEST_NS);
        // Everything that was read so far is listed, and everything that is read from here on is queued.
        let lists = !query.follow || query.since.is_some();
        let kept = if lists { daemon.session.recent_records() } else { None };
        if query.follow {
            query.since.get_or_insert_with(Timestamp::now);
            daemon.subscriptions.subscribe(number, query.clone(), self.viewer)?;
            daemon.plan_next_scan();
            self.follows = true;
        }
        let state = daemon.session.state();
        daemon.subscriptions.reported_lines(&query, state, self.viewer, &mut self.answer.bytes);
        self.events = Some((query, kept.unwrap_or_default()));
        Ok(())
    }

    /// Lists the next events.
    fn list_events(&mut self, daemon: &Daemon) {
        let Some((query, kept)) = &mut self.events else { return };
        let (lines, viewer) = (&mut self.answer.bytes, self.viewer);
        let is_over = daemon.session.list_recent(kept, EVENTS_PER_PIECE, query.since, &mut |event| {
            if let Some(event) = viewer.event(&event).filter(|event| query.matches(event)) {
                push_line(&event, lines);
            }
        });
        if is_over {
            if !query.follow {
                lines.extend_from_slice(EVENTS_END);
                lines.push(b'\n');
            }
            self.events = None;
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
