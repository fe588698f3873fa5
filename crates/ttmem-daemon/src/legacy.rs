//! Connections of old clients: reads their bytes, in turns, so that no client holds up others.
//!
//! `events` applies what they report, `questions` answers what they ask.

mod events;
mod questions;

use crate::server::Daemon;
use crate::socket::{self, Peer};
use rustix::event::epoll;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ttmem_core::input::Input;
use ttmem_core::words::{Basis, Fault, Mono};
use ttmem_reader::ProcessKey;
use ttmem_sources::monotonic;
use ttmem_wire::framer::{Frame, Framer};
use ttmem_wire::legacy::Message;

pub use questions::levels;

/// How long the first question of a connection may lack the bytes that determine its size; then it is taken as complete.
const QUESTION_PAUSE: Duration = Duration::from_millis(50);
/// How long a newline alone may be the start of a message: the rest of a kernel load arrives sooner. Then a person typed it,
/// and gets a dump.
const NEWLINE_PAUSE: Duration = Duration::from_millis(200);
/// Bytes read at a time.
const BUFFER: usize = 256 << 10;
/// Reads of one connection in one turn.
const MAX_READS: usize = 4;
/// How long one connection's turn may take.
const TURN_NS: u64 = 5_000_000;
/// Time for all connections of a user in one round of the loop; the last one may exceed it.
const ROUND_NS: u64 = 10_000_000;
/// Bytes handled between two readings of the clock.
const SLICE: usize = 16 << 10;
/// Allocations of one device and space that a report lists; the rest is counted.
const ALLOCATIONS_LISTED: usize = 1000;

/// A connection of an old client.
pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    pub(crate) peer: Peer,
    framer: Framer,
    /// Answers that were not sent yet.
    answers: Vec<u8>,
    /// Whether the loop waits for bytes to read, and for room to write.
    waits_for: (bool, bool),
    /// Since when it is to be closed as soon as all answers are sent.
    pub(crate) closing: Option<Mono>,
    /// When the framer must be informed of a pause.
    pause_at: Option<Mono>,
    /// Processes that sent on it, with their credentials: mostly one, more after a fork.
    pub(crate) processes: Vec<(Peer, ProcessKey)>,
    /// Whether a warning was logged that it does not read its answers.
    warned_unread: bool,
    /// Bytes that were read and not handled when the turn ended.
    backlog: Vec<u8>,
    /// Who sent the last bytes.
    sender: Peer,
    /// Questions read while connections of exited processes were drained. They are answered after that.
    deferred: VecDeque<Frame>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, peer: Peer) -> Self {
        Self {
            stream,
            peer,
            framer: Framer::default(),
            answers: Vec::new(),
            waits_for: (true, false),
            closing: None,
            pause_at: None,
            processes: Vec::new(),
            warned_unread: false,
            backlog: Vec::new(),
            sender: peer,
            deferred: VecDeque::new(),
        }
    }

    /// The process that sent with these credentials.
    fn process_of(&self, sender: Peer) -> Option<ProcessKey> {
        self.processes.iter().find(|(peer, _)| *peer == sender).map(|&(_, process)| process)
    }
}

/// Whether a connection is still open after its turn.
#[derive(PartialEq, Eq)]
pub(crate) enum ConnectionStatus {
    Open,
    Closed,
}

/// How far bytes were handled.
#[derive(PartialEq, Eq)]
enum Progress {
    Finished,
    /// The turn ended first; the rest is in the backlog.
    TimedOut,
    /// A byte of this sender cannot belong to a message.
    Broken(Peer),
    /// Another process continued the message that this one began.
    Mixed(Peer),
}

impl Daemon {
    /// Handles an event of a connection's socket.
    pub(crate) fn handle_legacy(&mut self, number: u64, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            self.wake(number);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.unfinished.push(number);
        }
    }

    /// Reads from the connections that have something to read. Each user has a part of the round, so that one with many
    /// connections does not hold up others.
    pub(crate) fn read_clients(&mut self) {
        let (mut seen, mut spent) = (BTreeSet::new(), BTreeMap::new());
        for number in std::mem::take(&mut self.unfinished) {
            let Some(connection) = self.connections.get(&number).filter(|_| seen.insert(number)) else {
                continue;
            };
            let spent: &mut u64 = spent.entry(connection.peer.uid).or_default();
            if *spent > ROUND_NS {
                self.unfinished.push(number);
                continue;
            }
            let begin = monotonic();
            self.read_legacy(number);
            *spent += monotonic().since(begin);
        }
    }

    /// Reads from a connection for one turn.
    pub(crate) fn read_legacy(&mut self, number: u64) -> ConnectionStatus {
        let Some(mut connection) = self.connections.remove(&number) else { return ConnectionStatus::Closed };
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.is_empty() {
            // It is in use if an exit noticed in another connection's turn drains this one.
            buffer = vec![0; BUFFER];
        }
        let status = self.read_turn(number, &mut connection, &mut buffer);
        self.buffer = buffer;
        if status == ConnectionStatus::Closed {
            self.end_connection(&connection);
        } else {
            self.connections.insert(number, connection);
        }
        status
    }

    fn read_turn(&mut self, number: u64, connection: &mut Connection, buffer: &mut [u8]) -> ConnectionStatus {
        // What an exited process sent is read to the end: it is little, and its questions are deferred.
        let until = if self.draining { Mono(u64::MAX) } else { Mono(monotonic().0 + TURN_NS) };
        while let Some(frame) = connection.deferred.front().copied().filter(|_| !self.draining) {
            connection.deferred.pop_front();
            let peer = connection.peer;
            self.handle_question(number, connection, peer, frame, true);
            if monotonic() > until {
                self.unfinished.push(number);
                return self.send_answers(number, connection);
            }
        }
        let backlog = std::mem::take(&mut connection.backlog);
        let mut progress = self.handle_bytes(number, connection, connection.sender, &backlog, until);
        for _ in 0..MAX_READS {
            if progress != Progress::Finished {
                return self.end_turn_early(number, connection, &progress);
            }
            let (len, sender) = match socket::receive(connection.stream.as_fd(), buffer) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => (0, None),
            };
            let sender = sender.unwrap_or(connection.peer);
            if len == 0 {
                return self.handle_end_of_stream(number, connection);
            }
            self.bytes_read += len as u64;
            if connection.closing.is_some() {
                continue;
            }
            // The peer itself is connected; a child of it may have exited, and its pid may have been reused.
            if sender != connection.peer
                && let Some(process) = connection.process_of(sender)
                && self.session.processes().is_pid_reused(process)
            {
                self.end_process(process);
            }
            progress = self.handle_bytes(number, connection, sender, &buffer[..len], until);
            if len < buffer.len() {
                break;
            }
        }
        if progress != Progress::Finished {
            return self.end_turn_early(number, connection, &progress);
        }
        let pause = if connection.framer.is_newline() { NEWLINE_PAUSE } else { QUESTION_PAUSE };
        let pause = connection.framer.waits_for_pause().then_some(pause);
        connection.pause_at = pause.map(|pause| Mono(self.session.now().0 + pause.as_nanos() as u64));
        if let Some(at) = connection.pause_at {
            self.pauses.push((at, number));
        }
        self.send_answers(number, connection)
    }

    /// Ends a turn with bytes left, or with a broken stream, which is closed.
    fn end_turn_early(
        &mut self,
        number: u64,
        connection: &mut Connection,
        progress: &Progress,
    ) -> ConnectionStatus {
        // Questions that were read before are answered in any case.
        let status = self.send_answers(number, connection);
        match *progress {
            Progress::Finished | Progress::TimedOut => return status,
            Progress::Broken(sender) => self.report_fault(connection, sender, Fault::BrokenStream),
            Progress::Mixed(sender) => {
                // Who began a message is responsible for it, even if it is the first one.
                let process = self.find_or_register_sender(connection, sender, &Message::default());
                self.session.apply(process, Basis::Reported, Input::Fault(Fault::MixedSenders.into()));
            }
        }
        ConnectionStatus::Closed
    }

    /// Handles bytes message by message, until the time is over.
    fn handle_bytes(
        &mut self,
        number: u64,
        connection: &mut Connection,
        sender: Peer,
        bytes: &[u8],
        until: Mono,
    ) -> Progress {
        let began = std::mem::replace(&mut connection.sender, sender);
        if began != sender && connection.framer.continues_with(bytes) {
            self.output.warn(
                "mixed senders",
                format_args!(
                    "connection {number}: pid {} continued a message of pid {}; connection closed",
                    sender.pid, began.pid
                ),
            );
            return Progress::Mixed(began);
        }
        let mut rest = bytes;
        loop {
            // In slices, to read the clock between them.
            let slice = &rest[..rest.len().min(SLICE)];
            let mut question = None;
            let mut framer = std::mem::take(&mut connection.framer);
            let fed = framer.feed(slice, |frame| {
                self.messages += 1;
                if let Frame::Event(message) = frame {
                    self.handle_event(number, connection, sender, &message);
                    return ControlFlow::Continue(());
                }
                question = Some(frame);
                ControlFlow::Break(())
            });
            connection.framer = framer;
            match fed {
                Ok(taken) => rest = &rest[taken..],
                Err(e) => {
                    self.warn_of_stream(number, sender, &e);
                    return Progress::Broken(sender);
                }
            }
            match question {
                Some(frame) if self.draining => {
                    connection.deferred.push_back(frame);
                    self.unfinished.push(number);
                }
                Some(frame) => self.handle_question(number, connection, sender, frame, !rest.is_empty()),
                None if rest.is_empty() => return Progress::Finished,
                None => {}
            }
            if monotonic() > until {
                connection.backlog = rest.to_vec();
                self.unfinished.push(number);
                return Progress::TimedOut;
            }
        }
    }

    /// Reads the bytes that a connection's socket holds now, after its process has exited. A child that keeps sending on the
    /// same socket does not hold this up.
    pub(crate) fn drain(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let held = rustix::io::ioctl_fionread(&connection.stream).unwrap_or(0);
        let until = self.bytes_read + held;
        // At least once: bytes that were read before may be in the backlog.
        loop {
            let before = self.bytes_read;
            let status = self.read_legacy(number);
            if status == ConnectionStatus::Closed || self.bytes_read >= until || self.bytes_read == before {
                break;
            }
        }
    }

    /// Wakes connections whose pause is over.
    pub(crate) fn handle_pauses(&mut self) {
        let now = self.session.now();
        let due: Vec<u64> =
            self.pauses.iter().filter(|(at, _)| *at <= now).map(|&(_, number)| number).collect();
        self.pauses.retain(|(at, _)| *at > now);
        for number in due {
            self.wake(number);
        }
    }

    /// Informs the framer of a pause if that is due, and sends answers.
    fn wake(&mut self, number: u64) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        let due = connection.pause_at.is_some_and(|at| at <= self.session.now());
        if due {
            connection.pause_at = None;
            if let Some(frame) = connection.framer.pause() {
                let peer = connection.peer;
                self.messages += 1;
                self.handle_question(number, &mut connection, peer, frame, false);
            }
        }
        if self.send_answers(number, &mut connection) == ConnectionStatus::Closed {
            self.end_connection(&connection);
        } else {
            self.connections.insert(number, connection);
        }
    }

    fn handle_end_of_stream(&mut self, number: u64, connection: &mut Connection) -> ConnectionStatus {
        if !connection.deferred.is_empty() {
            // The end is read again when these are answered.
            return ConnectionStatus::Open;
        }
        let peer = connection.peer;
        if connection.closing.is_none() {
            match connection.framer.end() {
                Ok(Some(frame)) => self.handle_question(number, connection, peer, frame, false),
                Ok(None) => {}
                Err(e) => {
                    self.warn_of_stream(number, peer, &e);
                    self.report_fault(connection, peer, Fault::BrokenStream);
                }
            }
        }
        // The peer may have closed only its sending half, and wait for answers.
        connection.closing.get_or_insert(self.session.now());
        self.send_answers(number, connection)
    }

    fn warn_of_stream(&mut self, number: u64, sender: Peer, why: &dyn std::error::Error) {
        self.output.warn(
            "broken stream",
            format_args!("connection {number}, pid {}: {why}; connection closed", sender.pid),
        );
    }

    /// Reports a fault of a sender that is tracked. A connection without valid messages does not add a process.
    fn report_fault(&mut self, connection: &Connection, sender: Peer, why: Fault) {
        if let Some(process) = connection.process_of(sender) {
            self.session.apply(process, Basis::Reported, Input::Fault(why.into()));
        }
    }
}
