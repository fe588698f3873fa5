//! A reader of segments in the test's own process.

use std::path::Path;
use ttmem_core::event::{Event, Process};
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_core::{Limits, Snapshot, State};
use ttmem_sources::{Listener, Owner, Segments};

/// Follows segments as `ttmem --local` does, but without a clock: what it knows depends on the segments alone.
pub struct Reader {
    /// What it knows.
    pub state: State,
    /// Where it has got to.
    pub segments: Segments,
}

struct Ear<'a>(&'a mut State);

impl Listener for Ear<'_> {
    fn meet(&mut self, owner: &Owner) -> ProcessId {
        let id = ProcessId { pid: owner.pid, start: 1 };
        self.tell(id, Event::Born(Process::default()));
        id
    }

    fn tell(&mut self, process: ProcessId, event: Event) {
        self.0.apply(Mono(1), Origin::Process(process, Basis::Events), event);
    }
}

impl Reader {
    /// Of the segments in a folder.
    pub fn new(folder: &Path) -> Self {
        let mut segments = Segments::new(folder);
        segments.find_places();
        Self { state: State::new(Limits::default(), 7), segments }
    }

    /// Takes in what happened since the last look.
    pub fn look(&mut self) -> Snapshot {
        self.segments.look(&mut Ear(&mut self.state));
        self.state.snapshot(jiff::Timestamp::UNIX_EPOCH, false)
    }
}
