//! The machine and what processes publish, read by this process itself: no daemon needed.

use crate::{Error, Result, host};
use jiff::Timestamp;
use rustix::process::Resource;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::Path;
use ttmem_core::event::{Event, Process};
use ttmem_core::snapshot::{Dump, SCHEMA};
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_core::{Detail, Limits, Snapshot, State};
use ttmem_sources::process::{Processes, Watch};
use ttmem_sources::{Listener, Owner, Reading, Root, SegmentFile, Sources, tell_of};
use ttmem_wire::segment::text;

/// What seldom changes is not looked for more often, however often somebody looks.
const SURVEY_NS: u64 = Mono::SECOND;

/// Places of the ledger looked at at a time.
const PAGE: usize = 4096;

/// This machine, or one segment, and what was read of it so far.
pub struct Local {
    /// `None`: there is nothing to look at again.
    sources: Option<Sources>,
    reader: Reader,
    settled: bool,
    surveyed: Option<Mono>,
}

/// The state, and those who speak to it.
struct Reader {
    state: State,
    processes: Processes,
    by_pid: BTreeMap<u32, ProcessId>,
    watches: BTreeMap<ProcessId, Watch>,
    unseen: u64,
    now: Mono,
}

impl Local {
    /// Nothing is read before the first [`Local::look`].
    pub fn new(reading: Reading) -> Self {
        let reader = Reader::new(&reading.root);
        Self { sources: Some(Sources::new(reading)), reader, settled: false, surveyed: None }
    }

    /// What is in one segment, whoever wrote it.
    pub fn of_file(path: &Path) -> Result<Self> {
        let mut reader = Reader::new(&Root::default());
        let not_one = |why| Error::NoSegment { path: path.to_owned(), why };
        let file = SegmentFile::open_path(path).map_err(not_one)?;
        let header = file.header();
        let process = ProcessId { pid: header.pid.get(), start: header.start_ticks.get() };
        let name = Some(text(&header.program).to_owned()).filter(|name| !name.is_empty());
        let wall = Timestamp::from_nanosecond(i128::from(header.wall_ns.get())).ok();
        let info = Process { name, start: wall, ..Process::default() };
        reader.say(Event::Host(host()));
        reader.tell(process, Basis::Events, Event::Born(info));
        let unreadable = |why| Error::Segment { path: path.to_owned(), why };
        tell_of(&file, process, &mut reader).map_err(unreadable)?;
        reader.state.note_peaks();
        Ok(Self { sources: None, reader, settled: true, surveyed: None })
    }

    /// Takes in what happened since the last time.
    pub fn look(&mut self) {
        let Some(sources) = &mut self.sources else { return };
        self.reader.now = now();
        sources.attend();
        let ended: Vec<ProcessId> =
            self.reader.watches.iter().filter(|(_, watch)| watch.ended()).map(|(&id, _)| id).collect();
        for process in ended {
            sources.process_ended(process, &mut self.reader);
            self.reader.tell(process, Basis::Events, Event::Exited);
        }
        if self.surveyed.is_none_or(|at| self.reader.now.since(at) >= SURVEY_NS) {
            self.surveyed = Some(self.reader.now);
            sources.survey(&mut self.reader);
        }
        sources.look(self.reader.now, &mut self.reader);
        if !std::mem::replace(&mut self.settled, true) {
            // A first look must show them; later ones show what there is.
            sources.settle(now, &mut self.reader);
            self.reader.now = now();
        }
        self.reader.state.tick(self.reader.now);
    }

    /// What is read; `None` if that is one segment only.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.as_ref()
    }

    /// Asks every process that can be asked for its allocators' own figures.
    pub fn ring(&self) {
        if let Some(sources) = &self.sources {
            sources.ring();
        }
    }

    /// What is known now.
    pub fn snapshot(&self, detail: &Detail) -> Snapshot {
        let mut snapshot = self.reader.state.snapshot(Timestamp::now(), detail);
        if let Some(sources) = &self.sources {
            sources.report(&mut snapshot.health);
        }
        snapshot
    }

    /// Every live allocation.
    pub fn allocations(&self) -> Dump {
        let state = &self.reader.state;
        let mut all = Vec::new();
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let (page, next) = state.allocations(at, PAGE);
            all.extend(page);
            cursor = next;
        }
        Dump { schema: SCHEMA, at: Timestamp::now(), simulated: state.is_simulated(), allocations: all }
    }
}

impl Reader {
    fn new(root: &Root) -> Self {
        Self {
            state: State::new(Limits::default(), u64::from(std::process::id())),
            processes: Processes::new(root),
            by_pid: BTreeMap::new(),
            watches: BTreeMap::new(),
            unseen: 0,
            now: now(),
        }
    }
}

impl Listener for Reader {
    fn meet(&mut self, owner: &Owner, basis: Basis) -> ProcessId {
        let seen = Some(owner.pid).filter(|&pid| pid != 0);
        let known = seen.and_then(|pid| self.by_pid.get(&pid));
        if let Some(&id) = known.filter(|id| self.watches.get(id).is_some_and(|watch| !watch.ended())) {
            return id;
        }
        let start = owner.start.or_else(|| seen.and_then(|pid| self.processes.start_ticks(pid)));
        let id = ProcessId {
            pid: owner.pid,
            start: start.unwrap_or_else(|| {
                self.unseen += 1;
                u64::MAX - self.unseen
            }),
        };
        let info = self.processes.describe(owner, start);
        if let Some(watch) = seen.and_then(|pid| self.processes.watch(pid, start)) {
            self.watches.insert(id, watch);
            self.by_pid.insert(owner.pid, id);
        }
        self.tell(id, basis, Event::Born(info));
        id
    }

    fn tell(&mut self, process: ProcessId, basis: Basis, event: Event) {
        if matches!(event, Event::Exited) {
            self.watches.remove(&process);
            self.by_pid.retain(|_, id| *id != process);
        }
        self.state.apply(self.now, Origin::Process(process, basis), event);
    }

    fn say(&mut self, event: Event) {
        self.state.apply(self.now, Origin::Machine, event);
    }
}

/// Lets this process have as many files open as it may at all: a large machine has more than a process may have by default, and
/// so may somebody who leaves files of counters about. Only for programs of our own; a limit is its owner's choice.
pub fn allow_many_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(Resource::Nofile, wanted);
}

fn now() -> Mono {
    let now = clock_gettime(ClockId::Monotonic);
    Mono(now.tv_sec as u64 * Mono::SECOND + now.tv_nsec as u64)
}
