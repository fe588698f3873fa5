//! A session: the sources that are read, the state that follows from them, and the process table.
//!
//! A program without a daemon calls [`Session::refresh`] and shows a snapshot. The daemon is a session plus sockets: it calls
//! [`Session::poll`] in its own rhythm, adds what old clients send, and follows up what [`Session::take_changes`] returns.
//! A process that publishes a segment, is in tt-metal's counters, has a chip open and sends on a socket is one process.

use crate::protocol::{Listing, Request};
use crate::{Error, ProcessKey, ProcessTable, Result, host};
use jiff::Timestamp;
use rustix::process::Resource;
use std::path::Path;
use ttmem_core::event::{Event, Process};
use ttmem_core::machine::Chip;
use ttmem_core::words::{Basis, ChipId, Mono, Origin, ProcessId};
use ttmem_core::{Detail, Limits, Outcome, Snapshot, State};
use ttmem_sources::{
    EventSink, ExitWatch, ProcessIdentity, Retention, Root, SegmentFile, SourceConfig, Sources, emit_segment,
    monotonic,
};
use ttmem_wire::segment::text;

/// Time between two rescans of sources while requests come in. A rescan reads `/proc` of every process.
pub const RESCAN_ON_REQUEST_NS: u64 = Mono::SECOND;

/// What changed in a session that its owner may have to follow up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A process was added to the table: its watch may have a descriptor to wait on.
    Registered(ProcessKey),
    /// A source found another process under the pid of this one, which has exited: the owner must end it.
    Superseded(ProcessKey),
    /// A process was removed from the table, and what it held from the state.
    Exited(ProcessId, Outcome),
    /// A chip was added or described anew.
    ChipDefined {
        /// Which.
        id: ChipId,
        /// Its device number.
        index: u32,
        /// Whether the driver shows it.
        has_node: bool,
    },
    /// A chip is gone.
    ChipRemoved,
}

/// A machine, or one segment, and everything that was read of it so far.
pub struct Session {
    /// `None`: one segment was read, and there is nothing to read again.
    sources: Option<Sources>,
    model: Model,
    rescanned: Option<Mono>,
    /// Whether sensors had the time to be read once.
    settled: bool,
}

/// The state and the process table, kept in agreement, at the time of the session's clock.
struct Model {
    state: State,
    processes: ProcessTable,
    changes: Vec<Change>,
    now: Mono,
}

impl Session {
    /// A session in which nothing is read yet. `seed` is that of the state's hash.
    pub fn new(reading: SourceConfig, limits: Limits, seed: u64) -> Self {
        let model = Model::new(&reading.root, limits, seed);
        Self { sources: Some(Sources::new(reading)), model, rescanned: None, settled: false }
    }

    /// A session with default limits, for a program that reads without a daemon.
    pub fn local(reading: SourceConfig) -> Self {
        Self::new(reading, Limits::default(), u64::from(std::process::id()))
    }

    /// The content of one segment, whether its process lives or not.
    pub fn of_file(path: &Path) -> Result<Self> {
        let mut model = Model::new(&Root::default(), Limits::default(), u64::from(std::process::id()));
        let not_one = |why| Error::NoSegment { path: path.to_owned(), why };
        let file = SegmentFile::open_path(path).map_err(not_one)?;
        let header = file.header();
        let process = ProcessId { pid: header.pid.get(), start: header.start_ticks.get() };
        let name = Some(text(&header.program).to_owned()).filter(|name| !name.is_empty());
        let wall = Timestamp::from_nanosecond(i128::from(header.wall_ns.get())).ok();
        let info = Process { name, start: wall, ..Process::default() };
        model.emit_machine(Event::Host(host()));
        model.emit(process, Basis::Exact, Event::Born(info));
        let unreadable = |why| Error::Segment { path: path.to_owned(), why };
        emit_segment(&file, process, &mut model).map_err(unreadable)?;
        model.state.note_peaks();
        Ok(Self { sources: None, model, rescanned: None, settled: true })
    }

    /// Reads what happened since the last time, removes processes that have exited, and lets time pass: everything that a
    /// program without a daemon does before it takes a snapshot.
    pub fn refresh(&mut self) {
        if self.sources.is_none() {
            return;
        }
        self.update_clock();
        self.attend();
        for process in self.model.processes.exited() {
            self.end_process(process);
        }
        self.poll(RESCAN_ON_REQUEST_NS);
        if let Some(sources) = self.sources.as_mut().filter(|_| !self.settled) {
            // A first snapshot must have sensors; later ones show what there is.
            self.settled = true;
            sources.wait_for_sensors(monotonic, &mut self.model);
            self.update_clock();
        }
        for change in self.take_changes() {
            if let Change::Superseded(process) = change {
                self.end_process(process);
            }
        }
        self.model.changes.clear();
        self.tick();
    }

    /// Reads what happened since the last poll. Chips, the processes that have them open and containers are looked for again
    /// if the last rescan is at least `rescan_after_ns` ago. Returns whether a writer is so busy that the next poll should
    /// come soon.
    pub fn poll(&mut self, rescan_after_ns: u64) -> bool {
        let Some(sources) = &mut self.sources else { return false };
        let now = self.model.now;
        if self.rescanned.is_none_or(|at| now.since(at) >= rescan_after_ns) {
            self.rescanned = Some(now);
            sources.rescan(&mut self.model);
        }
        sources.poll(now, &mut self.model)
    }

    /// The session's time: that of the last [`Session::update_clock`].
    #[inline]
    pub fn now(&self) -> Mono {
        self.model.now
    }

    /// Sets the session's time. Everything that follows happens then.
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

    /// The sources; `None` if the session is of one segment only.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.as_ref()
    }

    /// Has sensors read more often for a while, since somebody asks for figures.
    pub fn attend(&mut self) {
        if let Some(sources) = &mut self.sources {
            sources.note_request();
        }
    }

    /// Asks every process that can be asked for its allocators' own figures.
    pub fn ring(&self) {
        if let Some(sources) = &self.sources {
            sources.request_audits();
        }
    }

    /// Removes crash segments that are too many, too old, or take too much of the filesystem.
    pub fn expire(&mut self, keep: Retention) {
        if let Some(sources) = &mut self.sources {
            sources.expire_crash_segments(self.model.now, keep);
        }
    }

    /// What changed since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.model.changes)
    }

    /// Adds a process to the table and to the state. `label` is the pid that it knows itself by.
    pub fn register_process(
        &mut self,
        owner: &ProcessIdentity,
        label: i64,
        watch: ExitWatch,
        basis: Basis,
    ) -> ProcessKey {
        self.model.add_process(owner, label, watch, basis).0
    }

    /// Reads the segments of a process to their end, and removes it with all that it held.
    pub fn end_process(&mut self, process: ProcessKey) {
        let Some(id) = self.model.processes.get(process).map(|it| it.id) else { return };
        if let Some(sources) = &mut self.sources {
            sources.finish_process(id, &mut self.model);
        }
        self.model.remove_process(process);
    }

    /// Applies an event of a process in the table.
    #[inline]
    pub fn apply(&mut self, process: ProcessKey, basis: Basis, event: Event) -> Outcome {
        let Model { state, processes, now, .. } = &mut self.model;
        match processes.get(process) {
            Some(it) => state.apply(*now, Origin::Process(it.id, basis), event),
            None => Outcome::NobodysEvent,
        }
    }

    /// Applies an event of the machine itself.
    pub fn apply_machine(&mut self, event: Event) {
        self.model.emit_machine(event);
    }

    /// Lets time pass in the state: findings expire, history takes a sample.
    pub fn tick(&mut self) {
        self.model.state.tick(self.model.now);
    }

    /// Notes peaks as they are now, instead of with the next tick.
    pub fn note_peaks(&mut self) {
        self.model.state.pass(self.model.now);
        self.model.state.note_peaks();
    }

    /// Everything known now.
    pub fn snapshot(&mut self, detail: &Detail) -> Snapshot {
        self.model.state.pass(self.model.now);
        let mut snapshot = self.model.state.snapshot(Timestamp::now(), detail);
        if let Some(sources) = &self.sources {
            sources.fill_health(&mut snapshot.health);
        }
        if detail.host {
            let mut usage = self.model.processes.host_usage(self.model.now);
            for process in &mut snapshot.processes {
                process.host = process.pid.and_then(|pid| usage.remove(&pid));
            }
        }
        snapshot
    }

    /// The answer to a request, one line of JSON, made at once.
    pub fn answer(&mut self, request: &Request) -> Result<Vec<u8>> {
        match request {
            Request::Snapshot(detail) => serde_json::to_vec(&self.snapshot(detail)).map_err(Error::Answer),
            Request::Allocations => {
                let (mut listing, mut answer) = (Listing::default(), Vec::new());
                while !listing.write_piece(self.state(), &mut answer) {}
                Ok(answer)
            }
        }
    }
}

impl Model {
    fn new(root: &Root, limits: Limits, seed: u64) -> Self {
        Self {
            state: State::new(limits, seed),
            processes: ProcessTable::new(root),
            changes: Vec::new(),
            now: monotonic(),
        }
    }

    fn add_process(
        &mut self,
        owner: &ProcessIdentity,
        label: i64,
        watch: ExitWatch,
        basis: Basis,
    ) -> (ProcessKey, ProcessId) {
        let (process, id, info) = self.processes.add(owner, label, watch);
        self.changes.push(Change::Registered(process));
        self.state.apply(self.now, Origin::Process(id, basis), Event::Born(info));
        (process, id)
    }

    fn remove_process(&mut self, process: ProcessKey) {
        let Some(removed) = self.processes.remove(process) else { return };
        // A process ends as a whole, on whatever basis it is known.
        let origin = Origin::Process(removed.id, Basis::Unknown);
        let outcome = self.state.apply(self.now, origin, Event::Exited);
        self.changes.push(Change::Exited(removed.id, outcome));
    }

    fn define_chip(&mut self, origin: Origin, chip: Chip) {
        let id = chip.id;
        if self.state.apply(self.now, origin, Event::Chip(chip)) == Outcome::Noted {
            // It may be one that is known by another name, and its number may have been taken.
            let id = self.state.resolve(id);
            let Some(chip) = self.state.chip(id) else { return };
            let (index, has_node) = (chip.index, chip.node.is_some());
            self.changes.push(Change::ChipDefined { id, index, has_node });
        }
    }
}

impl EventSink for Model {
    fn register(&mut self, owner: &ProcessIdentity, basis: Basis) -> ProcessId {
        let known = self.processes.find_pid(owner.pid).and_then(|key| Some((key, self.processes.get(key)?)));
        match known {
            Some((_, it)) if !it.watch.has_exited() => return it.id,
            // The pid was given to another process before the first one's exit was noticed.
            Some((process, _)) => self.changes.push(Change::Superseded(process)),
            None => {}
        }
        let watch = self.processes.watch(owner);
        self.add_process(owner, i64::from(owner.namespace_pid), watch, basis).1
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, event: Event) {
        let origin = Origin::Process(process, basis);
        match event {
            Event::Chip(chip) => self.define_chip(origin, chip),
            Event::Exited => {
                if let Some(process) = self.processes.find_id(process) {
                    self.remove_process(process);
                }
            }
            event => {
                self.state.apply(self.now, origin, event);
            }
        }
    }

    fn emit_machine(&mut self, event: Event) {
        match event {
            Event::Chip(chip) => self.define_chip(Origin::Machine, chip),
            event => {
                let removed = matches!(event, Event::ChipGone(_));
                self.state.apply(self.now, Origin::Machine, event);
                if removed {
                    self.changes.push(Change::ChipRemoved);
                }
            }
        }
    }
}

/// Lets this process have as many files open as it may at all, and returns how many those are: connections, pidfds, a large
/// machine's sensors and files of counters soon use up the default. Only for programs of our own; a limit is its owner's
/// choice.
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
    fn sources_agree_on_a_process_until_its_pid_is_reused() {
        let mut model = Model::new(&Root::default(), Limits::default(), 7);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let owner =
            ProcessIdentity { pid, namespace_pid: pid, uid: 0, name: "sleep".to_owned(), start: None };
        let old = model.register(&owner, Basis::Exact);
        assert_eq!(model.register(&owner, Basis::Counters), old);
        child.kill().unwrap();
        child.wait().unwrap();
        let new = model.register(&owner, Basis::Exact);
        assert_ne!(old, new);
        let (first, second) = (ProcessKey(1), ProcessKey(2));
        let changes = std::mem::take(&mut model.changes);
        let expected = [Change::Registered(first), Change::Superseded(first), Change::Registered(second)];
        assert_eq!(changes, expected);
        model.emit(old, Basis::Exact, Event::Exited);
        assert!(matches!(model.changes[..], [Change::Exited(id, Outcome::Reclaimed(_))] if id == old));
        assert_eq!((model.processes.find_pid(pid), model.processes.count()), (Some(second), 1));
        assert_eq!(model.state.snapshot(Timestamp::UNIX_EPOCH, &Detail::NONE).processes.len(), 1);
    }

    #[test]
    fn chips_are_announced_as_they_come_and_go() {
        let mut model = Model::new(&Root::default(), Limits::default(), 7);
        let chip = Chip::unknown(3);
        let id = chip.id;
        model.emit_machine(Event::Chip(chip));
        model.emit_machine(Event::ChipGone(id));
        let expected = [Change::ChipDefined { id, index: 3, has_node: false }, Change::ChipRemoved];
        assert_eq!(model.changes, expected);
    }
}
