//! What processes publish, read by this program itself: no daemon needed.

use crate::cli;
use crate::listing::Dump;
use anyhow::{Context, anyhow};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::Path;
use ttmem_core::event::{Event, Process};
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_core::{Limits, Snapshot, State};
use ttmem_sources::process::{Names, Watch, start_ticks};
use ttmem_sources::{Listener, Owner, SegmentFile, Segments};
use ttmem_wire::segment::text;

/// Places of the ledger looked at at a time.
const PAGE: usize = 4096;

pub(crate) struct Local {
    segments: Segments,
    reader: Reader,
    /// Whether there is nothing to look at again.
    still: bool,
}

/// The state, and those who speak to it.
struct Reader {
    state: State,
    names: Names,
    watches: BTreeMap<ProcessId, Watch>,
    unseen: u64,
    now: Mono,
}

impl Local {
    pub(crate) fn new(folder: &Path) -> Self {
        let mut state = State::new(Limits::default(), u64::from(std::process::id()));
        state.apply(now(), Origin::Machine, Event::Host(cli::host()));
        let reader =
            Reader { state, names: Names::default(), watches: BTreeMap::new(), unseen: 0, now: now() };
        Self { segments: Segments::new(folder), reader, still: false }
    }

    /// What is in one segment, whoever wrote it.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Self> {
        let mut local = Self::new(Path::new(""));
        let why = |e: ttmem_sources::Skip| anyhow!("{} {e}", path.display());
        let file = SegmentFile::open_path(path).map_err(why)?;
        let header = file.header();
        let process = ProcessId { pid: header.pid.get(), start: header.start_ticks.get() };
        let name = Some(text(&header.program).to_owned()).filter(|name| !name.is_empty());
        let wall = Timestamp::from_nanosecond(i128::from(header.wall_ns.get())).ok();
        let info = Process { name, start: wall, ..Process::default() };
        local.reader.state.apply(now(), Origin::Process(process, Basis::Events), Event::Born(info));
        Segments::tell_of(&file, process, &mut local.reader)
            .map_err(why)
            .context("cannot read the segment")?;
        local.still = true;
        Ok(local)
    }

    /// Takes in what happened since the last time.
    pub(crate) fn look(&mut self) {
        if self.still {
            return;
        }
        self.reader.now = now();
        self.segments.find_places();
        let ended: Vec<ProcessId> =
            self.reader.watches.iter().filter(|(_, watch)| watch.ended()).map(|(&id, _)| id).collect();
        for process in ended {
            self.segments.process_ended(process, &mut self.reader);
            self.reader.tell(process, Event::Exited);
        }
        self.segments.look(&mut self.reader);
        self.reader.state.tick(self.reader.now);
    }

    /// Asks every process that can be asked for its allocators' own figures.
    pub(crate) fn ring(&self) {
        self.segments.ring();
    }

    pub(crate) fn snapshot(&self, history: bool) -> Snapshot {
        let mut snapshot = self.reader.state.snapshot(Timestamp::now(), history);
        snapshot.health.segments = self.segments.living() as u64;
        snapshot.health.black_boxes = self.segments.black_boxes().count() as u64;
        snapshot.health.skipped = self.segments.skipped();
        snapshot
    }

    pub(crate) fn allocations(&self) -> Dump {
        let state = &self.reader.state;
        let mut all = Vec::new();
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let (page, next) = state.allocations(at, PAGE);
            all.extend(page);
            cursor = next;
        }
        Dump { schema: 1, at: Timestamp::now(), simulated: state.is_simulated(), allocations: all }
    }
}

impl Listener for Reader {
    fn meet(&mut self, owner: &Owner) -> ProcessId {
        let start = start_ticks(owner.pid).filter(|_| owner.pid != 0).unwrap_or_else(|| {
            self.unseen += 1;
            u64::MAX - self.unseen
        });
        let id = ProcessId { pid: owner.pid, start };
        let mut info = self.names.describe(owner.pid, owner.uid, Some(start).filter(|_| owner.pid != 0));
        info.name = info.name.or_else(|| Some(owner.name.clone()).filter(|name| !name.is_empty()));
        info.reported_pid = Some(i64::from(owner.own_pid)).filter(|&pid| pid != i64::from(owner.pid));
        if let Some(watch) = Some(owner.pid).filter(|&pid| pid != 0).and_then(Watch::by_pid) {
            self.watches.insert(id, watch);
        }
        self.tell(id, Event::Born(info));
        id
    }

    fn tell(&mut self, process: ProcessId, event: Event) {
        if matches!(event, Event::Exited) {
            self.watches.remove(&process);
        }
        self.state.apply(self.now, Origin::Process(process, Basis::Events), event);
    }
}

fn now() -> Mono {
    let now = clock_gettime(ClockId::Monotonic);
    Mono(now.tv_sec as u64 * Mono::SECOND + now.tv_nsec as u64)
}
