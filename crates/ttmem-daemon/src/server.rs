//! The loop: waits for connections, signals, exits and time, and handles them in turn.

use crate::copy::StateCopy;
use crate::legacy::Connection;
use crate::listen::{Listener, describe_error};
use crate::manager::{self, ServiceManager};
use crate::output::Output;
use crate::poller::{Poller, Token};
use crate::query::QueryConnection;
use crate::shares::Shares;
use crate::sharing::Viewers;
use crate::signal::{SUMMARY, signal_stream};
use crate::subscriptions::Subscriptions;
use crate::{Error, Options, SimulatedSensors, eventlog};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ttmem_core::input::Input;
use ttmem_core::machine::Chip;
use ttmem_core::snapshot::{FindingKind, Severity};
use ttmem_core::words::{ChipId, Mono, Space};
use ttmem_core::{Detail, Snapshot, Viewer};
use ttmem_reader::{ProcessKey, Session, raise_descriptor_limit};
use ttmem_sources::{ExitWatch, Retention};

/// Time between two ticks of the state.
const TICK: Duration = Duration::from_millis(500);
/// The loop sleeps this long after messages, so that a client that sends one message at a time is read many messages at a
/// time. Far too short for its socket to fill, or for a person to notice.
const GATHER: Duration = Duration::from_micros(100);
/// Time after which output that was blocked is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// Time between two logs of statistics while messages arrive.
const STATISTICS: Duration = Duration::from_secs(10);
/// How long a closing connection may take to read its answers.
const CLOSING_NS: u64 = 30 * Mono::SECOND;
/// Time between two rescans of sources while no request arrives.
const RESCAN_WHILE_TICKING_NS: u64 = 5 * Mono::SECOND;
/// Time between two readings of simulated sensors.
const SIMULATED_SENSORS_NS: u64 = 900_000_000;
/// Ticks between two checks of the sockets, of crash segments and of processes without a pidfd.
const TICKS_PER_CLEANUP: u64 = 10;

/// The daemon's state.
pub(crate) struct Daemon {
    pub(crate) session: Session,
    pub(crate) output: Output,
    /// Connections of old clients, by number.
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// Connections of the query socket, by number.
    pub(crate) queries: BTreeMap<u64, QueryConnection>,
    /// Copies of the daemon that compute answers, by the number of the connection.
    pub(crate) copies: BTreeMap<u64, StateCopy>,
    /// What users used of the time for queries.
    pub(crate) shares: Shares,
    /// The last place in the queue of connections that wait for their turn.
    pub(crate) last_turn: u64,
    /// Connections of old clients that have something to read, in the order of their turns. A number may be repeated.
    pub(crate) unfinished: Vec<u64>,
    /// When the framer of which connection must be informed of a pause.
    pub(crate) pauses: Vec<(Mono, u64)>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) line: String,
    /// Messages of old clients read so far.
    pub(crate) messages: u64,
    /// Bytes of old clients read so far.
    pub(crate) bytes_read: u64,
    /// Chips by the numbers that old clients use.
    pub(crate) devices: BTreeMap<u32, ChipId>,
    /// Whether the machine's chips are known, so that old clients cannot add any.
    pub(crate) chips_known: bool,
    simulated_sensors: Option<SimulatedSensors>,
    /// When simulated sensors were last read.
    simulated_at: Option<Mono>,
    /// When rings are read next, because a writer is busy or single events are wanted.
    pub(crate) next_poll: Option<Mono>,
    /// When new segments are searched for, if single events are wanted.
    pub(crate) next_scan: Mono,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) poller: Poller,
    pub(crate) legacy_listener: Listener,
    /// Why the daemon does not listen for old clients.
    pub(crate) legacy_error: Option<String>,
    pub(crate) query_listener: Listener,
    pub(crate) viewers: Viewers,
    service_manager: ServiceManager,
    /// Whether the connections of an exited process are being read.
    pub(crate) draining: bool,
    /// A process had already exited when it was registered.
    pub(crate) saw_exited_peer: bool,
    /// This process's limit of open files.
    pub(crate) max_descriptors: usize,
    /// Whether accepting waits until the next tick, because descriptors ran out.
    pub(crate) accepting_paused: bool,
    /// Number of the last connection.
    pub(crate) last_number: u64,
    ticks: u64,
}

/// Runs the daemon until a signal ends it.
pub fn serve(options: &Options) -> Result<(), Error> {
    let system = |what| move |source: io::Error| Error::System { what, source };
    let max_descriptors = raise_descriptor_limit();
    let mut passed = manager::take_sockets();
    let query_listener = Listener::bind(&options.query_socket, options.mode, &mut passed)?;
    // Any user may put a file in the place of old clients' socket: that must not keep the daemon from starting.
    let (path, mode) = (&options.legacy_socket, options.mode);
    let (legacy_listener, legacy_error) = match Listener::bind(path, mode, &mut passed) {
        Ok(listener) => (listener, None),
        Err(error) => (Listener::closed(path, mode), Some(describe_error(&error))),
    };
    drop(passed);
    let mut signals = signal_stream().map_err(system("handle signals"))?;
    let poller = Poller::new().map_err(system("create epoll"))?;
    let mut seed = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut seed))
        .map_err(system("read /dev/urandom"))?;

    let mut daemon = Daemon {
        session: Session::new(options.sources.clone(), options.limits, u64::from_ne_bytes(seed)),
        output: Output::new(options.quiet),
        connections: BTreeMap::new(),
        queries: BTreeMap::new(),
        copies: BTreeMap::new(),
        shares: Shares::new(rustix::process::geteuid().as_raw()),
        last_turn: 0,
        unfinished: Vec::new(),
        pauses: Vec::new(),
        buffer: Vec::new(),
        line: String::new(),
        messages: 0,
        bytes_read: 0,
        devices: BTreeMap::new(),
        chips_known: !options.chips.is_empty() || options.sources.topology.is_some(),
        simulated_sensors: options.sensors,
        simulated_at: None,
        next_poll: None,
        next_scan: Mono(0),
        subscriptions: Subscriptions::new(options.log_segments && !options.quiet),
        poller,
        legacy_listener,
        legacy_error,
        query_listener,
        viewers: Viewers::new(options.sharing),
        service_manager: ServiceManager::from_environment(),
        draining: false,
        saw_exited_peer: false,
        max_descriptors,
        accepting_paused: false,
        last_number: 0,
        ticks: 0,
    };
    for chip in &options.chips {
        daemon.session.apply_machine(Input::Chip(Box::new(chip.clone())));
    }
    daemon.poll_sources(RESCAN_WHILE_TICKING_NS);
    daemon.read_simulated_sensors();
    daemon.start_accepting().map_err(system("wait for connections"))?;
    daemon.poller.add(&signals, Token::Signal).map_err(system("wait for signals"))?;
    daemon.log_greeting(options);
    if let Some(why) = &daemon.legacy_error {
        daemon.output.warn("no legacy socket", format_args!("old clients are not tracked: {why}"));
    }
    daemon.notify_manager();
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
            self.poller.wait(&mut events, self.timeout(now, next_tick))?;
            self.session.update_clock();
            now = self.session.now();
            let before = self.messages;
            let mut exited = Vec::new();
            for event in &events {
                match Token::of(event) {
                    Token::LegacyListener => self.accept_legacy(),
                    Token::QueryListener => self.accept_queries(),
                    Token::Legacy(number) => self.handle_legacy(number, event.flags),
                    Token::Query(number) => self.queue_query(number, event.flags),
                    Token::Copy(number) => self.finish_copy(number),
                    Token::Process(number) => exited.push(ProcessKey(number)),
                    Token::Signal => {
                        if self.handle_signals(signals) {
                            self.service_manager.notify_stopping();
                            return Ok(());
                        }
                    }
                }
            }
            self.read_clients();
            // Exits come last: the same round may have what a process sent before.
            for process in exited {
                self.handle_exit(process);
            }
            self.handle_pauses();
            if std::mem::take(&mut self.saw_exited_peer) {
                self.reap(&[]);
            }
            self.answer_queries();
            if self.next_poll.is_some_and(|at| now >= at) {
                self.poll_rings(RESCAN_WHILE_TICKING_NS);
            }
            if now.0 >= next_tick {
                next_tick = now.0 + TICK.as_nanos() as u64;
                self.tick();
            }
            if now.0 >= next_second {
                next_second = now.0 + Mono::SECOND;
                self.output.summarise_warnings();
            }
            if now.0 >= next_statistics {
                next_statistics = now.0 + STATISTICS.as_nanos() as u64;
                if self.messages != logged_messages {
                    logged_messages = self.messages;
                    self.log_statistics();
                }
            }
            self.send_events();
            self.output.flush();
            if self.messages != before && self.unfinished.is_empty() {
                std::thread::sleep(GATHER);
            }
        }
    }

    /// How long the loop may wait for events.
    fn timeout(&self, now: Mono, next_tick: u64) -> Duration {
        let mut timeout = Duration::from_nanos(next_tick.saturating_sub(now.0));
        if !self.unfinished.is_empty() {
            timeout = Duration::ZERO;
        }
        if let Some(&(at, _)) = self.pauses.iter().min() {
            timeout = timeout.min(Duration::from_nanos(at.since(now)));
        }
        for at in self.next_poll.into_iter().chain(self.next_query_at()) {
            timeout = timeout.min(Duration::from_nanos(at.since(now)));
        }
        if self.output.is_blocked() {
            timeout = timeout.min(RETRY);
        }
        timeout
    }

    fn log_greeting(&mut self, options: &Options) {
        let path = options.legacy_socket.display().to_string();
        let state = self.session.state();
        let mut chips: Vec<&Chip> = state.chips().collect();
        chips.sort_by_key(|chip| chip.index);
        let text = eventlog::format_greeting(chips.into_iter(), state.is_simulated(), &path);
        self.output.log(&text);
        self.output.flush();
    }

    /// Reads the sensors of simulated chips, as often as real ones are read.
    fn read_simulated_sensors(&mut self) {
        let now = self.session.now();
        let due = self.simulated_at.is_none_or(|at| now.since(at) >= SIMULATED_SENSORS_NS);
        let Some(sensors) = self.simulated_sensors.filter(|_| due) else { return };
        self.simulated_at = Some(now);
        let chips: Vec<Chip> = self.session.state().chips().cloned().collect();
        for chip in chips {
            let usage = self.session.usage_of(chip.id);
            if let Some(reading) = sensors(&chip, &usage, now) {
                self.session.apply_machine(Input::Sensors(chip.id, Box::new(reading)));
            }
        }
    }

    fn tick(&mut self) {
        self.poll_sources(RESCAN_WHILE_TICKING_NS);
        self.read_simulated_sensors();
        self.session.tick();
        self.close_slow_connections();
        self.close_unread();
        if self.accepting_paused {
            // If that fails again, the next tick tries again.
            self.accepting_paused = self.start_accepting().is_err();
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS_PER_CLEANUP) {
            self.end_exited_without_pidfd();
            self.restore_sockets();
            self.session.expire_crash_segments(Retention::default());
        }
        self.notify_manager();
    }

    /// Ends processes that have exited and whose exit no pidfd reports. That reads a file per process, so it is not done in every
    /// tick; snapshots check by themselves.
    fn end_exited_without_pidfd(&mut self) {
        let processes = self.session.processes().iter();
        let exited =
            processes.filter(|(_, it)| matches!(it.watch, ExitWatch::Procfs { .. }) && it.watch.has_exited());
        for process in exited.map(|(process, _)| process).collect::<Vec<_>>() {
            self.handle_exit(process);
        }
    }

    /// Closes connections that requested a report and do not read it.
    fn close_slow_connections(&mut self) {
        let now = self.session.now();
        let is_slow = |it: &Connection| it.closing.is_some_and(|since| now.since(since) > CLOSING_NS);
        let slow: Vec<u64> = self.connections.iter().filter(|(_, it)| is_slow(it)).map(|(&n, _)| n).collect();
        for connection in slow.iter().filter_map(|n| self.connections.remove(n)).collect::<Vec<_>>() {
            self.end_connection(&connection);
        }
    }

    /// Sends the service manager a line for `systemctl status`, and a sign of life.
    fn notify_manager(&mut self) {
        if self.service_manager.is_present() {
            let (state, tracked) = (self.session.state(), self.session.processes().count());
            let (chips, simulated) = (state.chips().count(), state.is_simulated());
            let simulated = if simulated { " (simulated)" } else { "" };
            let status = format!("devices: {chips}{simulated}, tracked processes: {tracked}");
            self.service_manager.notify(self.session.now(), &status);
        }
    }

    /// Takes a snapshot of what was read so far, as far as a viewer may know it.
    pub(crate) fn snapshot(&mut self, detail: &Detail, viewer: Viewer) -> Snapshot {
        let mut snapshot = self.session.snapshot_for(detail, viewer);
        snapshot.health.source = "daemon".into();
        snapshot.health.connections = self.connections.len() as u64;
        snapshot.health.dropped_log_lines = self.output.dropped();
        if let Some(why) = &self.legacy_error {
            let text = format!("old clients are not tracked: {why}; tried again every 5 s");
            snapshot.add_finding(FindingKind::LegacySocket, Severity::Warning, text);
        }
        snapshot
    }

    fn log_statistics(&mut self) {
        if self.output.is_logging() {
            let spaces: Vec<Space> = Space::BUFFERS.into_iter().chain(Space::PROGRAM).collect();
            let text = eventlog::format_statistics(self.session.state().report(&spaces, 0, Viewer::ALL));
            self.output.log(&text);
        }
    }

    /// Logs statistics for each signal. Returns whether one of them ends the daemon.
    fn handle_signals(&mut self, signals: &mut UnixStream) -> bool {
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
