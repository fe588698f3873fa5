//! A session: the sources that are read, the state they result in, and the process table.
//!
//! A program without a daemon calls [`Session::refresh`], then [`Session::snapshot`]. The daemon is a session plus sockets: it
//! calls [`Session::poll`] and [`Session::rescan_if_due`] by its own clock, adds what old clients send, and acts on what
//! [`Session::take_changes`] returns. A process that publishes a segment, is in tt-metal's counters, has a chip open and sends
//! on a socket is one process.

mod recorder;

use crate::events::{self, EventConsumer, EventQuery};
use crate::protocol::{EVENTS_END, Listing, Request};
use crate::wall_clock::WallClock;
use crate::{Error, ProcessKey, ProcessTable, Result, host, json};
use jiff::Timestamp;
use recorder::Recorder;
use rustix::process::Resource;
use std::path::Path;
use ttmem_core::input::{Input, Process};
use ttmem_core::machine::Chip;
use ttmem_core::snapshot::{MemoryEvent, RunReport, Skipped, Usage};
use ttmem_core::words::{Basis, ChipId, Mono, Origin, ProcessId};
use ttmem_core::{Analysis, Detail, Limits, Outcome, Snapshot, State, Viewer};
use ttmem_sources::{
    EventSink, ExitWatch, ProcessIdentity, RecentRecords, Retention, Root, SegmentFile, SourceConfig,
    Sources, emit_segment, monotonic,
};
use ttmem_wire::segment::text;

/// Shortest time between two rescans while requests arrive. A rescan reads `/proc` of every process.
pub const RESCAN_ON_REQUEST_NS: u64 = Mono::SECOND;

/// A change in a session that its owner may have to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// A process was added to the table. Its watch may have a descriptor to wait on.
    Registered(ProcessKey),
    /// A source found another process with the pid of this one, which has exited: the owner must end it.
    Superseded(ProcessKey),
    /// A process was removed from the table, and what it held from the state.
    Exited(ProcessId, Outcome),
    /// A chip was added, or its description changed.
    ChipDefined {
        /// Its id.
        id: ChipId,
        /// Its device number.
        index: u32,
        /// Whether it has a device node.
        has_node: bool,
    },
    /// A chip was removed.
    ChipRemoved,
}

/// A machine, or one segment, and everything that was read of it so far.
pub struct Session {
    /// `None` if the session has the content of one segment.
    sources: Option<Sources>,
    model: Model,
    /// When sources were last rescanned.
    rescanned: Option<Mono>,
    /// Whether the first reading of sensors was waited for.
    sensors_awaited: bool,
    /// The daemon that should have been asked instead, and does not answer.
    pub(crate) silent_daemon: Option<Skipped>,
}

/// The state and the process table, which change together, and the session's clock.
pub(crate) struct Model {
    pub(crate) state: State,
    pub(crate) analysis: Analysis,
    processes: ProcessTable,
    changes: Vec<SessionChange>,
    pub(crate) now: Mono,
    pub(crate) wall: WallClock,
}

impl Session {
    /// A session in which nothing is read yet. `seed` is that of the state's hash.
    pub fn new(config: SourceConfig, limits: Limits, seed: u64) -> Self {
        let model = Model::new(&config.root, limits, seed);
        Self {
            sources: Some(Sources::new(config)),
            model,
            rescanned: None,
            sensors_awaited: false,
            silent_daemon: None,
        }
    }

    /// A session with default limits, for a program that reads without a daemon.
    pub fn local(config: SourceConfig) -> Self {
        Self::new(config, Limits::default(), u64::from(std::process::id()))
    }

    /// A session with the content of one segment, whether its process is alive or not.
    pub fn of_segment(path: &Path) -> Result<Self> {
        let no_segment = |why| Error::NoSegment { path: path.to_owned(), why };
        let file = SegmentFile::open_path(path).map_err(no_segment)?;
        let (mut model, process) = Model::of_segment(&file);
        let unreadable = |why| Error::Segment { path: path.to_owned(), why };
        emit_segment(&file, process, &mut model).map_err(unreadable)?;
        model.state.record_peaks(&mut model.analysis);
        Ok(Self { sources: None, model, rescanned: None, sensors_awaited: true, silent_daemon: None })
    }

    /// Brings the session up to date: polls sources, rescans them if that is due, removes processes that have exited, and
    /// advances the state's clock. A program without a daemon calls this before each snapshot.
    pub fn refresh(&mut self) {
        if self.sources.is_none() {
            return;
        }
        self.update_clock();
        self.note_request();
        for process in self.model.processes.exited() {
            self.end_process(process, None);
        }
        self.rescan_if_due(RESCAN_ON_REQUEST_NS);
        self.poll(None);
        if let Some(sources) = self.sources.as_mut().filter(|_| !self.sensors_awaited) {
            // The first snapshot waits for sensors; later ones have the last readings.
            self.sensors_awaited = true;
            sources.wait_for_sensors(monotonic, &mut self.model);
            self.update_clock();
        }
        self.end_superseded(None);
        self.tick();
    }

    /// Reads what changed in segments since the last call, and removes processes that have exited, without a rescan of other sources.
    /// Returns when a ring must be read again, as [`Session::poll`].
    pub fn follow(&mut self) -> Option<Mono> {
        self.update_clock();
        for process in self.model.processes.exited() {
            self.end_process(process, None);
        }
        let due = self.poll(None);
        self.end_superseded(None);
        self.tick();
        due
    }

    /// Keeps what processes allocated beyond their exit, for [`Session::report`].
    pub fn keep_exited(&mut self) {
        self.model.state.keep_exited();
    }

    /// What all processes allocated so far.
    pub fn report(&mut self) -> RunReport {
        self.report_for(Viewer::ALL)
    }

    /// What all processes allocated so far, as far as a viewer may know it.
    pub fn report_for(&mut self, viewer: Viewer) -> RunReport {
        let Model { state, analysis, now, wall, .. } = &mut self.model;
        state.advance(*now);
        analysis.report(state, wall.at(*now), viewer)
    }

    /// Ends processes whose pid another process has by now. For owners that do not act on changes themselves.
    pub fn end_superseded(&mut self, mut events: Option<EventConsumer<'_>>) {
        for change in self.take_changes() {
            if let SessionChange::Superseded(process) = change {
                self.end_process(process, events.as_mut().map(EventConsumer::reborrow));
            }
        }
        self.model.changes.clear();
    }

    /// Reads what changed since the last poll, and hands single events of segments to `events`. Returns when a ring must be read
    /// again, so that it is never more than half full; `None`: all writers are idle. The first poll rescans, if that was not
    /// done before.
    pub fn poll(&mut self, events: Option<EventConsumer<'_>>) -> Option<Mono> {
        if self.rescanned.is_none() {
            self.rescan();
        }
        let sources = self.sources.as_mut()?;
        sources.poll(self.model.now, &mut Recorder::new(&mut self.model, events))
    }

    /// Reads only the rings of busy writers. Otherwise as [`Session::poll`].
    pub fn poll_busy(&mut self, events: Option<EventConsumer<'_>>) -> Option<Mono> {
        let sources = self.sources.as_mut()?;
        sources.poll_busy(self.model.now, &mut Recorder::new(&mut self.model, events))
    }

    /// Starts a listing of the events that the rings of segments still hold. `None`: no segments are followed.
    pub fn recent_records(&self) -> Option<RecentRecords> {
        self.sources.as_ref().map(Sources::recent_records)
    }

    /// Continues a listing with the next `most` records, and takes those since a time. Returns whether these were the last.
    pub fn list_recent(
        &self,
        listing: &mut RecentRecords,
        most: usize,
        since: Option<Timestamp>,
        take: &mut dyn FnMut(MemoryEvent),
    ) -> bool {
        let Some(sources) = &self.sources else { return true };
        let state = &self.model.state;
        sources.list_recent(listing, most, &mut |process, event| {
            if since.is_none_or(|since| event.at() >= since) {
                take(events::describe(state, process, event, None, false));
            }
        })
    }

    /// Finds new sources: chips, the processes that have them open, and the folders of containers.
    pub fn rescan(&mut self) {
        if let Some(sources) = &mut self.sources {
            self.rescanned = Some(self.model.now);
            sources.rescan(&mut self.model);
        }
    }

    /// Rescans if the last rescan is at least `interval_ns` ago.
    pub fn rescan_if_due(&mut self, interval_ns: u64) {
        if self.rescanned.is_none_or(|at| self.model.now.since(at) >= interval_ns) {
            self.rescan();
        }
    }

    /// The session's time, as of the last [`Session::update_clock`].
    #[inline]
    pub fn now(&self) -> Mono {
        self.model.now
    }

    /// Sets the session's time to the current time. All that follows happens at that time.
    pub fn update_clock(&mut self) {
        self.model.now = monotonic();
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> &State {
        &self.model.state
    }

    /// The process table.
    #[inline]
    pub fn processes(&self) -> &ProcessTable {
        &self.model.processes
    }

    /// The sources; `None` if the session has the content of one segment.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.as_ref()
    }

    /// Notes that a snapshot was requested: sensors are read more often for a while.
    pub fn note_request(&mut self) {
        if let Some(sources) = &mut self.sources {
            sources.note_request();
        }
    }

    /// Requests an audit of its allocators from every process that writes a segment.
    pub fn request_audits(&self) {
        if let Some(sources) = &self.sources {
            sources.request_audits();
        }
    }

    /// Removes crash segments that are too many, too old, or take too much of the filesystem.
    pub fn expire_crash_segments(&mut self, retention: Retention) {
        if let Some(sources) = &mut self.sources {
            sources.expire_crash_segments(self.model.now, retention);
        }
    }

    /// Returns what changed since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<SessionChange> {
        std::mem::take(&mut self.model.changes)
    }

    /// Adds a process to the table and to the state. `reported_pid` is the pid that it reports itself.
    pub fn register_process(
        &mut self,
        identity: &ProcessIdentity,
        reported_pid: i64,
        watch: ExitWatch,
        basis: Basis,
    ) -> ProcessKey {
        self.model.add_process(identity, reported_pid, watch, basis).0
    }

    /// Reads the segments of a process to their end, and removes it with everything it holds.
    pub fn end_process(&mut self, process: ProcessKey, events: Option<EventConsumer<'_>>) {
        let Some(id) = self.model.processes.get(process).map(|it| it.id) else { return };
        let mut recorder = Recorder::new(&mut self.model, events);
        if let Some(sources) = &mut self.sources {
            sources.finish_process(id, &mut recorder);
        }
        recorder.remove_process(process);
    }

    /// Applies an event of a process that is in the table.
    #[inline]
    pub fn apply(&mut self, process: ProcessKey, basis: Basis, input: Input) -> Outcome {
        let Model { state, analysis, processes, now, .. } = &mut self.model;
        match processes.get(process) {
            Some(it) => state.apply(analysis, *now, Origin::Process(it.id, basis), input),
            None => Outcome::UnknownProcess,
        }
    }

    /// Applies what a process that is in the table says of a chip.
    pub fn name_chip(&mut self, process: ProcessKey, basis: Basis, chip: Chip) -> Outcome {
        match self.model.processes.get(process).map(|it| it.id) {
            Some(id) => self.model.define_chip(Origin::Process(id, basis), chip),
            None => Outcome::UnknownProcess,
        }
    }

    /// Applies an event of the machine itself.
    pub fn apply_machine(&mut self, input: Input) {
        self.model.emit_machine(input);
    }

    /// Advances the state's clock: findings expire, history takes a sample.
    pub fn tick(&mut self) {
        let chips = self.state().chips().count();
        let Model { state, analysis, now, changes, .. } = &mut self.model;
        state.tick(analysis, *now);
        if state.chips().count() < chips {
            changes.push(SessionChange::ChipRemoved);
        }
    }

    /// Records peaks as of now, instead of with the next tick.
    pub fn record_peaks(&mut self) {
        let Model { state, analysis, now, .. } = &mut self.model;
        state.advance(*now);
        state.record_peaks(analysis);
    }

    /// What one chip's spaces hold.
    pub fn usage_of(&mut self, chip: ChipId) -> Usage {
        let Model { state, analysis, .. } = &mut self.model;
        analysis.usage_of(state, chip)
    }

    /// Reads the use of the host by each process, unless that was done shortly before. A snapshot does so if it has that part.
    pub fn read_host_usage(&mut self) {
        self.model.processes.read_host_usage(self.model.now);
    }

    /// Takes a snapshot of everything known.
    pub fn snapshot(&mut self, detail: &Detail) -> Snapshot {
        self.snapshot_for(detail, Viewer::ALL)
    }

    /// Takes a snapshot of what a viewer may know.
    pub fn snapshot_for(&mut self, detail: &Detail, viewer: Viewer) -> Snapshot {
        let Model { state, analysis, now, wall, .. } = &mut self.model;
        state.advance(*now);
        let mut snapshot = analysis.snapshot_for(state, wall.at(*now), detail, viewer);
        if let Some(sources) = &self.sources {
            sources.fill_health(&mut snapshot.health);
        }
        snapshot.health.skipped.extend(self.silent_daemon.clone());
        if viewer != Viewer::ALL {
            // Folders of other users' containers, and the pids of processes in them. Reasons have pids, too.
            let hides_pids = viewer.hides_pids();
            snapshot.health.skipped.retain(|it| !hides_pids && !it.path.starts_with("/proc/"));
        }
        if detail.host {
            let mut usage = self.model.processes.read_host_usage(self.model.now);
            for process in &mut snapshot.processes {
                process.host = process.pid.and_then(|pid| usage.remove(&pid));
            }
        }
        snapshot
    }

    /// Answers a request with one line of JSON.
    pub fn answer(&mut self, request: &Request) -> Result<Vec<u8>> {
        match request {
            Request::Snapshot(detail) => json::to_vec(&self.snapshot(detail)).map_err(Error::Answer),
            Request::Allocations => {
                let (mut listing, mut answer) = (Listing::new(Viewer::ALL), Vec::new());
                while !listing.write_piece(self.state(), &mut answer) {}
                Ok(answer)
            }
            Request::Report => {
                self.record_peaks();
                json::to_vec(&self.report()).map_err(Error::Answer)
            }
            Request::Events(query) => Ok(self.recent_events(query)),
        }
    }

    /// The events that rings still hold, one line of JSON each, and the line that ends them without its newline.
    fn recent_events(&self, query: &EventQuery) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut take = |event: MemoryEvent| {
            if query.matches(&event) && json::write(&event, &mut lines).is_ok() {
                lines.push(b'\n');
            }
        };
        if let Some(mut listing) = self.recent_records() {
            while !self.list_recent(&mut listing, usize::MAX, query.since, &mut take) {}
        }
        lines.extend_from_slice(EVENTS_END);
        lines
    }
}

impl Model {
    /// A model for the content of one segment, with its process.
    pub(crate) fn of_segment(file: &SegmentFile) -> (Self, ProcessId) {
        let mut model = Self::new(&Root::default(), Limits::default(), u64::from(std::process::id()));
        let header = file.header();
        let process = ProcessId { pid: header.pid.get(), start: header.start_ticks.get() };
        let name = Some(text(&header.program).to_owned()).filter(|name| !name.is_empty());
        let wall = Timestamp::from_nanosecond(i128::from(header.wall_ns.get())).ok();
        let info = Process { name, start: wall, ..Process::default() };
        model.emit_machine(Input::Host(host()));
        model.emit(process, Basis::Exact, Input::Registered(Box::new(info)));
        (model, process)
    }

    fn new(root: &Root, limits: Limits, seed: u64) -> Self {
        Self {
            state: State::new(limits, seed),
            analysis: Analysis::default(),
            processes: ProcessTable::new(root),
            changes: Vec::new(),
            now: monotonic(),
            wall: WallClock::new(),
        }
    }

    fn add_process(
        &mut self,
        identity: &ProcessIdentity,
        reported_pid: i64,
        watch: ExitWatch,
        basis: Basis,
    ) -> (ProcessKey, ProcessId) {
        let (process, id, info) = self.processes.add(identity, reported_pid, watch);
        self.changes.push(SessionChange::Registered(process));
        self.state.apply(
            &mut self.analysis,
            self.now,
            Origin::Process(id, basis),
            Input::Registered(Box::new(info)),
        );
        (process, id)
    }

    fn remove_process(&mut self, process: ProcessKey) -> Option<Outcome> {
        let removed = self.processes.remove(process)?;
        // An exit ends a process on every basis.
        let origin = Origin::Process(removed.id, Basis::Unknown);
        let chips = self.state.chips().count();
        let outcome = self.state.apply(&mut self.analysis, self.now, origin, Input::Exited);
        if self.state.chips().count() < chips {
            // Chips that only this process named are forgotten with it.
            self.changes.push(SessionChange::ChipRemoved);
        }
        self.changes.push(SessionChange::Exited(removed.id, outcome));
        Some(outcome)
    }

    /// Applies input of a process that is registered.
    fn apply(&mut self, process: ProcessId, basis: Basis, input: Input) -> Outcome {
        let origin = Origin::Process(process, basis);
        if let Input::Chip(chip) = input {
            return self.define_chip(origin, *chip);
        }
        self.state.apply(&mut self.analysis, self.now, origin, input)
    }

    fn define_chip(&mut self, origin: Origin, chip: Chip) -> Outcome {
        let id = chip.id;
        let outcome = self.state.apply(&mut self.analysis, self.now, origin, Input::Chip(Box::new(chip)));
        // The state may have it under another id, and with another number if its own was taken.
        let id = self.state.resolve(id);
        if let Some(chip) = self.state.chip(id).filter(|_| outcome == Outcome::Noted) {
            let (index, has_node) = (chip.index, chip.node.is_some());
            self.changes.push(SessionChange::ChipDefined { id, index, has_node });
        }
        outcome
    }
}

impl EventSink for Model {
    fn register(&mut self, identity: &ProcessIdentity, basis: Basis) -> ProcessId {
        let known =
            self.processes.find_pid(identity.pid).and_then(|key| Some((key, self.processes.get(key)?)));
        match known {
            Some((_, it)) if !it.watch.has_exited() => return it.id,
            // The pid was reused before the exit of its first process was noticed.
            Some((process, _)) => self.changes.push(SessionChange::Superseded(process)),
            None => {}
        }
        let watch = self.processes.watch(identity);
        self.add_process(identity, i64::from(identity.namespace_pid), watch, basis).1
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, input: Input) {
        match input {
            Input::Exited => {
                if let Some(process) = self.processes.find_id(process) {
                    self.remove_process(process);
                }
            }
            input => {
                self.apply(process, basis, input);
            }
        }
    }

    fn emit_machine(&mut self, input: Input) {
        match input {
            Input::Chip(chip) => {
                self.define_chip(Origin::Machine, *chip);
            }
            input => {
                let removed = matches!(input, Input::ChipRemoved(_));
                self.state.apply(&mut self.analysis, self.now, Origin::Machine, input);
                if removed {
                    self.changes.push(SessionChange::ChipRemoved);
                }
            }
        }
    }
}

/// Raises this process's limit of open files to its maximum, and returns it: connections, pidfds, sensors and counters of a
/// large machine need more than the default. Only for programs, not for libraries in other processes.
pub fn raise_descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(Resource::Nofile, wanted);
    let limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn process_is_one_until_its_pid_is_reused() {
        let mut model = Model::new(&Root::default(), Limits::default(), 7);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let identity =
            ProcessIdentity { pid, namespace_pid: pid, uid: 0, name: "sleep".to_owned(), start: None };
        let old = model.register(&identity, Basis::Exact);
        assert_eq!(model.register(&identity, Basis::Counters), old);
        child.kill().unwrap();
        child.wait().unwrap();
        let new = model.register(&identity, Basis::Exact);
        assert_ne!(old, new);
        let (first, second) = (ProcessKey(1), ProcessKey(2));
        let changes = std::mem::take(&mut model.changes);
        let expected = [
            SessionChange::Registered(first),
            SessionChange::Superseded(first),
            SessionChange::Registered(second),
        ];
        assert_eq!(changes, expected);
        model.emit(old, Basis::Exact, Input::Exited);
        assert!(matches!(model.changes[..], [SessionChange::Exited(id, Outcome::Reclaimed(_))] if id == old));
        assert_eq!((model.processes.find_pid(pid), model.processes.count()), (Some(second), 1));
        assert_eq!(
            model.analysis.snapshot(&model.state, Timestamp::UNIX_EPOCH, &Detail::NONE).processes.len(),
            1
        );
    }

    #[test]
    fn added_and_removed_chips_are_reported() {
        let mut model = Model::new(&Root::default(), Limits::default(), 7);
        let chip = Chip::unknown(3);
        let id = chip.id;
        model.emit_machine(Input::Chip(Box::new(chip)));
        model.emit_machine(Input::ChipRemoved(id));
        let expected =
            [SessionChange::ChipDefined { id, index: 3, has_node: false }, SessionChange::ChipRemoved];
        assert_eq!(model.changes, expected);
    }
}
