//! Connections of the query socket: reads requests, and sends answers as far as the peer takes them. `turns` chooses whose turn
//! it is.
//!
//! The protocol is `ttmem_reader::protocol`.

use crate::poller::{Poller, Token};
use crate::server::Daemon;
use crate::socket::Peer;
use crate::subscriptions::push_line;
use jiff::Timestamp;
use rustix::event::epoll::EventFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use ttmem_core::detail::BlockQuery;
use ttmem_core::words::Mono;
use ttmem_core::{Detail, Viewer};
use ttmem_reader::protocol::{EVENTS_END, Listing, error_answer};
use ttmem_reader::{EventQuery, RESCAN_ON_REQUEST_NS, Request};
use ttmem_sources::RecentRecords;

/// Longest request.
const MAX_REQUEST: usize = 4096;
/// An answer is continued while fewer bytes wait to be sent.
const MAX_UNSENT: usize = 64 << 10;
/// How long a peer may leave its answer unread.
const UNREAD_NS: u64 = 30 * Mono::SECOND;
/// Reads of one connection in one turn; what is left wakes the loop again.
const MAX_READS: usize = 16;
/// Pieces of a listing written in one turn.
const MAX_PIECES: usize = 4;
/// Events in one piece of their listing.
const EVENTS_PER_PIECE: usize = 512;

/// A connection of the query socket.
pub(crate) struct QueryConnection {
    stream: UnixStream,
    pub(crate) peer: Peer,
    /// What the peer may see.
    pub(crate) viewer: Viewer,
    /// Its place among those that wait for their turn.
    pub(crate) queued: Option<u64>,
    /// Whether its request waits until a copy of the daemon may be started.
    pub(crate) awaits_copy: bool,
    /// Whether a copy of the daemon computes its answer.
    is_copying: bool,
    /// An answer that a copy computed, and how much of it was taken.
    copied: Option<(File, u64)>,
    /// Since when the peer has read nothing of its answer.
    pub(crate) unread_since: Option<Mono>,
    /// Bytes sent so far.
    sent: u64,
    /// What the loop waits for.
    interest: Interest,
    request: Vec<u8>,
    answer: Answer,
    listing: Option<Listing>,
    /// Events that are listed.
    events: Option<(EventQuery, RecentRecords)>,
    /// Whether new events are sent until the peer hangs up. Nothing else is answered then.
    pub(crate) follows: bool,
    /// Whether the rest of a line is skipped, because it is too long.
    skips_line: bool,
    /// Whether the peer has closed its side.
    ended: bool,
}

/// What the loop waits for on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Reading,
    Writing,
    /// Only that the peer hangs up: it sends nothing more, or its turn comes later.
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

    /// Sends as much as the peer takes, and returns its length.
    fn send(&mut self, stream: &UnixStream) -> io::Result<u64> {
        let mut sent = 0;
        while !self.rest().is_empty() {
            match rustix::net::send(stream, self.rest(), rustix::net::SendFlags::NOSIGNAL) {
                Ok(len) => {
                    sent += len as u64;
                    self.advance(len);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(sent)
    }
}

impl Daemon {
    /// Queues the connections that have room for queued events.
    pub(crate) fn send_events(&mut self) {
        let queries = &self.queries;
        self.subscriptions.retain(|number| queries.contains_key(&number));
        for number in self.subscriptions.waiting() {
            if self.queries.get(&number).is_some_and(|it| it.interest != Interest::Writing) {
                self.queue_query(number, EventFlags::empty());
            }
        }
    }
}

impl QueryConnection {
    pub(crate) fn new(stream: UnixStream, peer: Peer, viewer: Viewer) -> Self {
        let (request, answer) = Default::default();
        Self {
            stream,
            peer,
            viewer,
            queued: None,
            awaits_copy: false,
            is_copying: false,
            copied: None,
            unread_since: None,
            sent: 0,
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

    /// Bytes of answers that the peer has not read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let copied = self.copied.as_ref().and_then(|(file, at)| Some(file.metadata().ok()?.len() - at));
        self.answer.rest().len() as u64 + copied.unwrap_or(0)
    }

    /// Takes an answer that a copy of the daemon computed, or why there is none.
    pub(crate) fn take_copied(&mut self, answer: Result<File, &str>) {
        self.is_copying = false;
        match answer {
            Ok(file) => self.copied = Some((file, 0)),
            Err(why) => self.answer_error(why),
        }
    }

    /// Sets what the loop waits for.
    pub(crate) fn wait_for(&mut self, poller: &Poller, interest: Interest, number: u64) {
        if interest != self.interest {
            self.interest = interest;
            let (reading, writing) = (interest == Interest::Reading, interest == Interest::Writing);
            poller.modify(self.stream.as_fd(), Token::Query(number), reading, writing);
        }
    }

    /// Reads, answers and sends for one turn. Returns what the loop must wait for, or `None` when the connection is finished.
    ///
    /// While an answer waits, no request is read, so that requests do not wake the loop.
    pub(crate) fn take_turn(&mut self, daemon: &mut Daemon, number: u64) -> Option<Interest> {
        let before = self.sent;
        let interest = self.continue_turn(daemon, number)?;
        self.note_progress(interest, self.sent != before, daemon.session.now());
        Some(interest)
    }

    /// Notes whether the loop waits for the peer to read, after a turn in which it did or did not.
    fn note_progress(&mut self, interest: Interest, has_read: bool, now: Mono) {
        // One that follows events loses events instead.
        if interest != Interest::Writing || self.follows {
            self.unread_since = None;
        } else if has_read || self.unread_since.is_none() {
            self.unread_since = Some(now);
        }
    }

    /// Whether the peer has left its answer unread for too long.
    pub(crate) fn is_abandoned(&self, now: Mono) -> bool {
        self.unread_since.is_some_and(|since| now.since(since) > UNREAD_NS)
    }

    fn continue_turn(&mut self, daemon: &mut Daemon, number: u64) -> Option<Interest> {
        let (mut pieces, mut answered, mut reads) = (0, false, 0);
        loop {
            self.sent += self.answer.send(&self.stream).ok()?;
            if self.answer.rest().len() >= MAX_UNSENT {
                return Some(Interest::Writing);
            }
            if self.copied.is_some() {
                if pieces == MAX_PIECES {
                    return Some(Interest::Writing);
                }
                pieces += 1;
                self.read_copied().ok()?;
                continue;
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
            if self.is_copying {
                return Some(Interest::HangUp);
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
                let line = self.request[..=end].to_vec();
                self.begin_answer(daemon, number, &line);
                if self.awaits_copy {
                    self.sent += self.answer.send(&self.stream).ok()?;
                    return Some(Interest::HangUp);
                }
                self.request.drain(..=end);
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

    /// Reads the next piece of an answer that a copy computed.
    fn read_copied(&mut self) -> io::Result<()> {
        let Some((file, at)) = &mut self.copied else { return Ok(()) };
        let bytes = &mut self.answer.bytes;
        let before = bytes.len();
        bytes.resize(before + MAX_UNSENT, 0);
        let len = file.read_at(&mut bytes[before..], *at)?;
        bytes.truncate(before + len);
        *at += len as u64;
        if len == 0 {
            self.copied = None;
        }
        Ok(())
    }

    /// Begins the answer to a request; or notes that the request waits for a copy of the daemon.
    fn begin_answer(&mut self, daemon: &mut Daemon, number: u64, line: &[u8]) {
        self.awaits_copy = false;
        if let Err(why) = self.try_answer(daemon, number, line) {
            self.answer = Answer::default();
            self.answer_error(&why);
        }
    }

    fn try_answer(&mut self, daemon: &mut Daemon, number: u64, line: &[u8]) -> Result<(), String> {
        let mut request = Request::parse(line)?;
        let uid = self.peer.uid;
        daemon.check_unread(uid)?;
        if let Request::Snapshot(Detail { blocks: Some(query), .. }) = &mut request {
            query.limit = query.limit.min(BlockQuery::MOST);
        }
        match request {
            Request::Allocations => {
                daemon.prepare_answer(&request);
                self.listing = Some(Listing::new(self.viewer));
                Ok(())
            }
            Request::Events(query) => self.begin_events(daemon, number, query),
            _ if !daemon.needs_copy(&request) => {
                daemon.prepare_answer(&request);
                let answer = &mut self.answer.bytes;
                daemon.write_answer(&request, self.viewer, answer).map_err(|e| e.to_string())?;
                answer.push(b'\n');
                Ok(())
            }
            _ => {
                if daemon.has_room_for_copy(uid) {
                    daemon.prepare_answer(&request);
                    daemon.start_copy(number, uid, &request, self.viewer)?;
                    self.is_copying = true;
                } else {
                    self.awaits_copy = true;
                }
                // A sign of life, since the answer may take long.
                self.answer.bytes.push(b' ');
                Ok(())
            }
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
            daemon.make_room_for_follower(self.peer.uid);
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

    #[test]
    fn answer_that_is_not_read_is_abandoned() {
        let at = |seconds: u64| Mono(seconds * Mono::SECOND);
        let (stream, mut peer) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut connection = QueryConnection::new(stream, Peer { pid: 1, uid: 1 }, Viewer::ALL);
        connection.answer.bytes = vec![0; 8 << 20];
        let turn = |connection: &mut QueryConnection, now| {
            let sent = connection.answer.send(&connection.stream).unwrap();
            connection.note_progress(Interest::Writing, sent > 0, now);
        };
        turn(&mut connection, at(0));
        assert!(!connection.is_abandoned(at(30)) && connection.is_abandoned(at(31)));
        turn(&mut connection, at(10));
        assert!(connection.is_abandoned(at(31)), "nothing was read in this turn");
        peer.read_exact(&mut vec![0; 100_000]).unwrap();
        turn(&mut connection, at(20));
        assert!(!connection.is_abandoned(at(50)) && connection.is_abandoned(at(51)));
        connection.follows = true;
        turn(&mut connection, at(60));
        assert!(!connection.is_abandoned(at(1000)), "events are lost instead");
    }
}
