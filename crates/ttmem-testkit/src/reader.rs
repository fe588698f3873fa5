//! A reader of segments in the test's own process.

use std::path::Path;
use ttmem_core::event::{Event, Process};
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_core::{Limits, Snapshot, State};
use ttmem_sources::{EventSink, Owner, Reading, Sources};

/// Follows segments as `ttmem --local` does, but without a clock: its state depends on the segments alone.
pub struct Reader {
    /// The state so far.
    pub state: State,
    /// The segments, and how far each was read.
    pub sources: Sources,
}

struct StateSink<'a>(&'a mut State);

impl EventSink for StateSink<'_> {
    fn register(&mut self, owner: &Owner, basis: Basis) -> ProcessId {
        let id = ProcessId { pid: owner.pid, start: 1 };
        self.emit(id, basis, Event::Born(Process::default()));
        id
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, event: Event) {
        self.0.apply(Mono(1), Origin::Process(process, basis), event);
    }

    fn emit_machine(&mut self, event: Event) {
        self.0.apply(Mono(1), Origin::Machine, event);
    }
}

impl Reader {
    /// A reader of the segments in a folder.
    pub fn new(folder: &Path) -> Self {
        let mut state = State::new(Limits::default(), 7);
        let mut sources = Sources::new(Reading::segments(folder));
        sources.survey(&mut StateSink(&mut state));
        Self { state, sources }
    }

    /// Reads what changed since the last poll, and returns a snapshot.
    pub fn poll(&mut self) -> Snapshot {
        self.sources.look(Mono(1), &mut StateSink(&mut self.state));
        let mut snapshot = self.state.snapshot(jiff::Timestamp::UNIX_EPOCH, &ttmem_core::Detail::NONE);
        self.sources.report(&mut snapshot.health);
        snapshot
    }
}
