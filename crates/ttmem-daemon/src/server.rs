//! The loop: who wakes it, who speaks, who died, what time it is.

use crate::legacy::{Connection, Turn};
use crate::listen::Listener;
use crate::manager::Manager;
use crate::output::Output;
use crate::query::QueryConnection;
use crate::socket;
use crate::{Error, Options, SimulatedSensors, eventlog};
use rustix::event::{Timespec, epoll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ttmem_core::event::Event;
use ttmem_core::machine::Chip;
use ttmem_core::words::{ChipId, Mono, Space};
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::{ProcessKey, RESCAN_ON_REQUEST_NS, Session, raise_descriptor_limit};
use ttmem_sources::{ExitWatch, Retention, Sources};

/// How often the state is told the time.
const TICK: Duration = Duration::from_millis(500);
/// After a round of events the loop sleeps this long, so that a client that sends one message at a time is read many
/// messages at a time. Far too short for its socket to fill, or for a person to notice.
const GATHER: Duration = Duration::from_micros(100);
/// How soon to try again to write what found no room.
const RETRY: Duration = Duration::from_millis(50);
/// How often statistics are logged while something happens.
const STATISTICS: Duration = Duration::from_secs(10);
/// How long a connection that is closing may take to read what it asked for.
const CLOSING_NS: u64 = 30 * Mono::SECOND;
/// Time between two rescans of sources while no request comes in.
const RESCAN_WHILE_TICKING_NS: u64 = 5 * Mono::SECOND;
/// How often simulated sensors are asked.
const SENSE_NS: u64 = 900_000_000;
/// How often both sockets are looked after.
const TICKS_A_SOCKET_CHECK: u64 = 10;
/// Descriptors that old clients' connections leave free.
const RESERVED_DESCRIPTORS: usize = QUERY_CONNECTIONS + 32;
/// Connections accepted before others get their turn.
const ACCEPTED_A_TURN: usize = 64;
/// Programs that may ask at the same time.
const QUERY_CONNECTIONS: usize = 64;

/// What wakes the loop. The number of a connection or process is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    LegacyListener,
    QueryListener,
    Signal,
    Legacy(u64),
    Query(u64),
    Process(u64),
}

impl Token {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::LegacyListener => 0,
            Self::QueryListener => 1,
            Self::Signal => 2,
            Self::Legacy(number) => number << 3 | 3,
            Self::Query(number) => number << 3 | 4,
            Self::Process(number) => number << 3 | 5,
        })
    }

    fn from(data: u64) -> Self {
        match data & 7 {
            0 => Self::LegacyListener,
            1 => Self::QueryListener,
            3 => Self::Legacy(data >> 3),
            4 => Self::Query(data >> 3),
            5 => Self::Process(data >> 3),
            _ => Self::Signal,
        }
    }
}

pub(crate) struct Daemon {
    pub(crate) session: Session,
    pub(crate) output: Output,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) queries: BTreeMap<u64, QueryConnection>,
    /// Connections whose turn was over before they were done.
    pub(crate) unfinished: BTreeSet<u64>,
    /// When which connection is to be told of a pause.
    pub(crate) pauses: Vec<(Mono, u64)>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) line: String,
    /// Messages taken so far.
    pub(crate) messages: u64,
    /// Bytes of old clients read so far.
    pub(crate) bytes_read: u64,
    /// Chips by the numbers that old clients use.
    pub(crate) devices: BTreeMap<u32, ChipId>,
    pub(crate) chips_known: bool,
    /// What simulated chips' sensors say, and when they were last asked.
    simulated: Option<SimulatedSensors>,
    sensed: Option<Mono>,
    /// When sources are polled next, because their writers are busy.
    pub(crate) next_poll: Option<Mono>,
    epoll: OwnedFd,
    legacy: Listener,
    query: Listener,
    manager: Manager,
    /// The sockets of the dead are being read.
    pub(crate) draining: bool,
    /// A process had already exited when it was registered.
    pub(crate) saw_exited_peer: bool,
    /// Descriptors this process may have.
    descriptors: usize,
    /// Accepting waits until the next tick, because descriptors ran out.
    full: bool,
    next_number: u64,
    ticks: u64,
}

/// Runs the daemon until a signal ends it.
pub fn serve(options: &Options) -> Result<(), Error> {
    let system = |what| move |source: io::Error| Error::System { what, source };
    let descriptors = raise_descriptor_limit();
    let legacy = Listener::bind(&options.legacy_socket, options.mode)?;
    let query = Listener::bind(&options.query_socket, options.mode)?;
    let mut signals = signal_stream().map_err(system("handle signals"))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| system("create epoll")(e.into()))?;
    let mut seed = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut seed))
        .map_err(system("read /dev/urandom"))?;

    let mut daemon = Daemon {
        session: Session::new(options.reading.clone(), options.limits, u64::from_ne_bytes(seed)),
        output: Output::new(options.quiet),
        connections: BTreeMap::new(),
        queries: BTreeMap::new(),
        unfinished: BTreeSet::new(),
        pauses: Vec::new(),
        buffer: Vec::new(),
        line: String::new(),
        messages: 0,
        devices: BTreeMap::new(),
        chips_known: !options.chips.is_empty() || options.reading.topology.is_some(),
        simulated: options.sensors,
        sensed: None,
        next_poll: None,
        epoll,
        legacy,
        query,
        manager: Manager::from_environment(),
        draining: false,
        saw_exited_peer: false,
        descriptors,
        bytes_read: 0,
        full: false,
        next_number: 1,
        ticks: 0,
    };
    for chip in &options.chips {
        daemon.session.apply_machine(Event::Chip(chip.clone()));
    }
    daemon.poll_sources(RESCAN_WHILE_TICKING_NS);
    daemon.sense();
    daemon.listen().map_err(system("wait for connections"))?;
    daemon.wait_for(signals.as_fd(), Token::Signal).map_err(system("wait for signals"))?;
    daemon.greet(options);
    daemon.tell_manager();
    daemon.run(&mut signals).map_err(system("wait for events"))
}

impl Daemon {
    fn run(&mut self, signals: &mut UnixStream) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        let mut now = self.session.now();
        let mut next_tick = now.0;
        let mut next_second = now.0;
        let mut next_statistics = now.0 + STATISTICS.as_nanos() as u64;
        let mut logged_messages = 0;
        loop {
            let mut until = Duration::from_nanos(next_tick.saturating_sub(now.0));
            if !self.unfinished.is_empty() {
                until = Duration::ZERO;
            }
            if let Some(&(at, _)) = self.pauses.iter().min() {
                until = until.min(Duration::from_nanos(at.since(now)));
            }
            if let Some(at) = self.next_poll {
                until = until.min(Duration::from_nanos(at.since(now)));
            }
            if self.output.is_waiting() {
                until = until.min(RETRY);
            }
            let timeout = Timespec { tv_sec: until.as_secs() as i64, tv_nsec: until.subsec_nanos().into() };
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            self.session.update_clock();
            now = self.session.now();
            let before = self.messages;
            let mut ended = Vec::new();
            for event in &events {
                match Token::from(event.data.u64()) {
                    Token::LegacyListener => self.accept_legacy(),
                    Token::QueryListener => self.accept_queries(),
                    Token::Legacy(number) => self.legacy_ready(number, event.flags),
                    Token::Query(number) => self.query_ready(number),
                    Token::Process(number) => ended.push(ProcessKey(number)),
                    Token::Signal => {
                        if self.signalled(signals) {
                            self.manager.stopping();
                            return Ok(());
                        }
                    }
                }
            }
            for number in std::mem::take(&mut self.unfinished) {
                self.read_legacy(number);
            }
            // Last: what they said before they died may lie in the same round.
            for process in ended {
                self.handle_exit(process);
            }
            self.tell_pauses();
            if std::mem::take(&mut self.saw_exited_peer) {
                self.reap(&[]);
            }
            if self.next_poll.is_some_and(|at| now >= at) {
                self.poll_sources(RESCAN_WHILE_TICKING_NS);
            }
            if now.0 >= next_tick {
                next_tick = now.0 + TICK.as_nanos() as u64;
                self.tick();
            }
            if now.0 >= next_second {
                next_second = now.0 + Mono::SECOND;
                self.output.second();
            }
            if now.0 >= next_statistics {
                next_statistics = now.0 + STATISTICS.as_nanos() as u64;
                if self.messages != logged_messages {
                    logged_messages = self.messages;
                    self.log_statistics();
                }
            }
            self.output.flush();
            if self.messages != before && self.unfinished.is_empty() {
                std::thread::sleep(GATHER);
            }
        }
    }

    /// Waits for connections on both sockets, where it does not yet.
    fn listen(&mut self) -> io::Result<()> {
        self.full = false;
        for (listener, token) in [(&self.legacy, Token::LegacyListener), (&self.query, Token::QueryListener)]
        {
            match epoll::add(&self.epoll, listener, token.data(), epoll::EventFlags::IN) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// A cleaner of old files may have taken a socket away under us.
    fn restore_sockets(&mut self) {
        for listener in [&mut self.legacy, &mut self.query] {
            match listener.restore() {
                Ok(false) => {}
                Ok(true) => {
                    let path = listener.path().display().to_string();
                    self.output.warn("socket was gone", format_args!("{path} was gone and is there again"));
                }
                Err(e) => {
                    let path = listener.path().display().to_string();
                    self.output.warn("socket is gone", format_args!("cannot make {path} again: {e}"));
                }
            }
        }
        let _ = self.listen();
    }

    pub(crate) fn wait_for(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, token.data(), epoll::EventFlags::IN)?)
    }

    fn greet(&mut self, options: &Options) {
        let path = options.legacy_socket.display().to_string();
        let state = self.session.state();
        let mut chips: Vec<&Chip> = state.chips().collect();
        chips.sort_by_key(|chip| chip.index);
        let text = eventlog::greeting(chips.into_iter(), state.is_simulated(), &path);
        self.output.log(&text);
        self.output.flush();
    }

    /// Descriptors that sources hold open.
    fn file_descriptors(&self) -> usize {
        self.session.sources().map_or(0, Sources::descriptors)
    }

    fn accept_legacy(&mut self) {
        for _ in 0..ACCEPTED_A_TURN {
            // However many clients there are, those who want to look must find a place. Each connection may need a
            // descriptor for its process, too.
            let used =
                2 * self.connections.len() + self.session.processes().count() + self.file_descriptors();
            if used + RESERVED_DESCRIPTORS.min(self.descriptors / 2) >= self.descriptors {
                return self.stop_accepting("every descriptor is in use");
            }
            let Some(stream) = self.accept(true) else { return };
            let Ok(peer) = socket::peer(stream.as_fd()) else { continue };
            let number = self.number();
            if self.wait_for(stream.as_fd(), Token::Legacy(number)).is_ok() {
                self.connections.insert(number, Connection::new(stream, peer));
            }
        }
    }

    fn accept_queries(&mut self) {
        for _ in 0..ACCEPTED_A_TURN {
            let Some(stream) = self.accept(false) else { return };
            if self.queries.len() >= QUERY_CONNECTIONS {
                // The longest-lived one gives way: it had its time, and a stuck one must not lock the rest out.
                self.queries.pop_first();
            }
            let number = self.number();
            if self.wait_for(stream.as_fd(), Token::Query(number)).is_ok() {
                self.queries.insert(number, QueryConnection::new(stream));
            }
        }
    }

    fn accept(&mut self, legacy: bool) -> Option<UnixStream> {
        let listener = if legacy { &self.legacy } else { &self.query };
        match listener.socket.accept() {
            Ok((stream, _)) => stream.set_nonblocking(true).ok().map(|()| stream),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                let _ = epoll::delete(&self.epoll, &self.query);
                self.stop_accepting(&e.to_string());
                None
            }
            // Nobody there, or no more: the loop asks again when there is.
            Err(_) => None,
        }
    }

    /// Leaves connections in their queue until the next tick; asking again at once would only burn time.
    fn stop_accepting(&mut self, why: &str) {
        if !self.full {
            self.full = true;
            let _ = epoll::delete(&self.epoll, &self.legacy);
            self.output.warn("cannot accept", format_args!("cannot accept a connection: {why}"));
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn legacy_ready(&mut self, number: u64, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            self.wake(number);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.read_legacy(number);
        }
    }

    /// Sends what a connection is owed, as far as it takes it.
    pub(crate) fn send_answers(&mut self, number: u64, connection: &mut Connection) -> Turn {
        match send(&connection.stream, &mut connection.answers) {
            Ok(()) if connection.answers.is_empty() && connection.closing.is_some() => Turn::Closed,
            Ok(()) => {
                // One that is closing has nothing more to say.
                let wanted = (connection.closing.is_none(), !connection.answers.is_empty());
                if wanted != connection.waits_for {
                    connection.waits_for = wanted;
                    self.watch_for(connection.stream.as_fd(), Token::Legacy(number), wanted.0, wanted.1);
                }
                Turn::Open
            }
            // It reads no more, but what it still sends counts.
            Err(_) => {
                connection.answers.clear();
                if connection.closing.is_some() { Turn::Closed } else { Turn::Open }
            }
        }
    }

    fn watch_for(&self, fd: BorrowedFd<'_>, token: Token, reading: bool, writing: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, reading);
        flags.set(epoll::EventFlags::OUT, writing);
        let _ = epoll::modify(&self.epoll, fd, token.data(), flags);
    }

    fn query_ready(&mut self, number: u64) {
        let Some(mut connection) = self.queries.remove(&number) else { return };
        if let Some(writing) = connection.turn(self) {
            // While an answer waits, no question is read: it would only wake us in vain.
            if writing != connection.writing {
                connection.writing = writing;
                self.watch_for(connection.stream.as_fd(), Token::Query(number), !writing, writing);
            }
            self.queries.insert(number, connection);
        }
    }

    fn tell_pauses(&mut self) {
        let now = self.session.now();
        let due: Vec<u64> =
            self.pauses.iter().filter(|(at, _)| *at <= now).map(|&(_, number)| number).collect();
        self.pauses.retain(|(at, _)| *at > now);
        for number in due {
            self.wake(number);
        }
    }

    /// Asks simulated chips' sensors, as often as real ones are read.
    fn sense(&mut self) {
        let (now, state) = (self.session.now(), self.session.state());
        let due = self.sensed.is_none_or(|at| now.since(at) >= SENSE_NS);
        let Some(sensors) = self.simulated.filter(|_| due) else { return };
        self.sensed = Some(now);
        let readings = state.chips().filter_map(|chip| {
            let reading = sensors(chip, &state.usage_of(chip.id), now)?;
            Some((chip.id, Box::new(reading)))
        });
        for (chip, reading) in readings.collect::<Vec<_>>() {
            self.session.apply_machine(Event::Sensors(chip, reading));
        }
    }

    fn tick(&mut self) {
        self.poll_sources(RESCAN_WHILE_TICKING_NS);
        self.sense();
        self.session.tick();
        let processes = self.session.processes().iter();
        let exited =
            processes.filter(|(_, it)| matches!(it.watch, ExitWatch::Procfs { .. }) && it.watch.has_exited());
        for process in exited.map(|(process, _)| process).collect::<Vec<_>>() {
            self.handle_exit(process);
        }
        // Who asked for a report and does not read it has had its time.
        let now = self.session.now();
        let slow = |it: &Connection| it.closing.is_some_and(|since| now.since(since) > CLOSING_NS);
        let slow: Vec<u64> = self.connections.iter().filter(|(_, it)| slow(it)).map(|(&n, _)| n).collect();
        for connection in slow.iter().filter_map(|n| self.connections.remove(n)).collect::<Vec<_>>() {
            self.forget_connection(&connection);
        }
        if self.full {
            // What epoll still refuses, the next tick asks for again.
            self.full = self.listen().is_err();
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS_A_SOCKET_CHECK) {
            self.restore_sockets();
            self.session.expire_crash_segments(Retention::default());
        }
        self.tell_manager();
    }

    /// One line for `systemctl status`, and that we live.
    fn tell_manager(&mut self) {
        if self.manager.listens() {
            let (state, tracked) = (self.session.state(), self.session.processes().count());
            let (chips, simulated) = (state.chips().count(), state.is_simulated());
            let simulated = if simulated { " (simulated)" } else { "" };
            let status = format!("devices: {chips}{simulated}, tracked processes: {tracked}");
            self.manager.tell(self.session.now(), &status);
        }
    }

    /// Everything known, as of now: processes whose exit is already visible are gone from it.
    pub(crate) fn snapshot(&mut self, detail: &Detail) -> Snapshot {
        self.reap(&[]);
        self.session.note_request();
        self.poll_sources(RESCAN_ON_REQUEST_NS);
        if detail.cores || detail.cores_of.is_some() {
            self.session.note_peaks();
        }
        let mut snapshot = self.session.snapshot(detail);
        snapshot.health.source = "daemon".into();
        snapshot.health.connections = self.connections.len() as u64;
        snapshot.health.dropped_log_lines = self.output.dropped();
        snapshot
    }

    fn log_statistics(&mut self) {
        if self.output.logs() {
            let spaces: Vec<Space> = Space::BUFFERS.into_iter().chain(Space::PROGRAM).collect();
            let text = eventlog::statistics(&self.session.state().report(&spaces, 0, false));
            self.output.log(&text);
        }
    }

    /// Whether a signal asks for the end.
    fn signalled(&mut self, signals: &mut UnixStream) -> bool {
        let mut bytes = [0; 64];
        let mut end = false;
        while let Ok(len @ 1..) = signals.read(&mut bytes) {
            for &byte in &bytes[..len] {
                end |= byte != SUMMARY;
                self.log_statistics();
            }
        }
        self.output.flush();
        end
    }
}

/// Writes as much of `bytes` as the peer takes, and keeps the rest.
pub(crate) fn send(stream: &UnixStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(stream, &bytes[sent..], rustix::net::SendFlags::NOSIGNAL) {
            Ok(len) => sent += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(e) => return Err(e.into()),
        }
    }
    bytes.drain(..sent);
    Ok(())
}

const SUMMARY: u8 = b's';
const END: u8 = b'e';

/// A stream on which a byte arrives for each signal: [`END`] or [`SUMMARY`].
fn signal_stream() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    writer.set_nonblocking(true)?;
    for (signal, byte) in [(SIGINT, END), (SIGTERM, END), (SIGHUP, END), (SIGUSR1, SUMMARY)] {
        // Started to outlive its terminal, it does.
        if signal != SIGHUP || !crate::signal::is_ignored(SIGHUP) {
            crate::signal::send_on(signal, writer.try_clone()?, byte)?;
        }
    }
    Ok(reader)
}
