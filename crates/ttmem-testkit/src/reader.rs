//! A reader of segments in the test's own process.

use std::path::Path;
use ttmem_core::input::Input;
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_core::{Analysis, Detail, Limits, Snapshot, State};
use ttmem_sources::{EventSink, ProcessIdentity, SourceConfig, Sources, monotonic};

/// Follows segments as `ttmem --local` does, but without a clock: its state depends on the segments alone.
pub struct Reader {
    /// The state so far.
    pub state: State,
    analysis: Analysis,
    /// The segments, and how far each was read.
    pub sources: Sources,
}

struct StateSink<'a>(&'a mut State, &'a mut Analysis);

impl EventSink for StateSink<'_> {
    fn register(&mut self, owner: &ProcessIdentity, basis: Basis) -> ProcessId {
        let id = ProcessId { pid: owner.pid, start: 1 };
        self.emit(id, basis, Input::Registered(Box::default()));
        id
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, input: Input) {
        self.0.apply(self.1, Mono(1), Origin::Process(process, basis), input);
    }

    fn emit_machine(&mut self, input: Input) {
        self.0.apply(self.1, Mono(1), Origin::Machine, input);
    }
}

impl Reader {
    /// A reader of the segments in a folder.
    pub fn new(folder: &Path) -> Self {
        let (mut state, mut analysis) = (State::new(Limits::default(), 7), Analysis::default());
        let mut sources = Sources::new(SourceConfig::segments(folder));
        sources.rescan(&mut StateSink(&mut state, &mut analysis));
        Self { state, analysis, sources }
    }

    /// Reads what changed since the last poll, and returns a snapshot.
    pub fn poll(&mut self) -> Snapshot {
        // Folders are listed again only after a while.
        self.sources.poll(monotonic(), &mut StateSink(&mut self.state, &mut self.analysis));
        let mut snapshot = self.snapshot(&Detail::NONE);
        self.sources.fill_health(&mut snapshot.health);
        snapshot
    }

    /// A snapshot of the state.
    pub fn snapshot(&mut self, detail: &Detail) -> Snapshot {
        self.analysis.snapshot(&self.state, jiff::Timestamp::UNIX_EPOCH, detail)
    }
}
