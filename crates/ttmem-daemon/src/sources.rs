//! Segments, as the daemon follows them: what their processes say goes to the state, and their ends come from the same
//! watch as those of old clients. A process that speaks both ways is one process.

use crate::server::Daemon;
use ttmem_core::event::Event;
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_sources::process::Watch;
use ttmem_sources::{Listener, Owner};

/// How soon to look again at a writer that fills its ring faster than we tick.
const SOON_NS: u64 = 50_000_000;

impl Daemon {
    /// Takes in what segments say by now. Folders are looked for again if that was longer ago than `places`.
    pub(crate) fn look_at_segments(&mut self, places: u64) {
        let mut segments = std::mem::take(&mut self.segments);
        if self.places_found.is_none_or(|at| self.now.since(at) >= places) {
            self.places_found = Some(self.now);
            segments.find_places();
        }
        let busy = segments.look(self);
        self.next_look = busy.then(|| Mono(self.now.0 + SOON_NS));
        self.segments = segments;
    }

    /// A process ended: its segments are read to the end.
    pub(crate) fn segments_ended(&mut self, process: u64) {
        let Some(id) = self.tracked.get(&process).map(|it| it.id) else { return };
        let mut segments = std::mem::take(&mut self.segments);
        segments.process_ended(id, self);
        self.segments = segments;
    }
}

impl Listener for Daemon {
    fn meet(&mut self, owner: &Owner) -> ProcessId {
        let known = self.by_pid.get(&owner.pid).copied().filter(|_| owner.pid != 0);
        if let Some(it) = known.and_then(|known| self.tracked.get(&known)).filter(|it| !it.watch.ended()) {
            return it.id;
        }
        if let Some(known) = known {
            // The pid was given to another process before we heard of the first one's end.
            self.process_ended(known);
        }
        let watch = match owner.pid {
            0 => Watch::Connection,
            pid => Watch::by_pid(pid).unwrap_or(Watch::Gone),
        };
        let name = Some(owner.name.clone()).filter(|name| !name.is_empty());
        let label = i64::from(owner.own_pid);
        let process = self.track(owner.pid, owner.uid, label, name, watch, Basis::Events);
        self.tracked.get(&process).map_or(ProcessId { pid: owner.pid, start: 0 }, |it| it.id)
    }

    fn tell(&mut self, process: ProcessId, event: Event) {
        match event {
            Event::Chip(chip) => self.define_chip(chip),
            Event::Exited => {
                let gone = self.tracked.iter().find(|(_, it)| it.id == process).map(|(&number, _)| number);
                if let Some(number) = gone {
                    self.end_process(number);
                }
            }
            event => {
                self.state.apply(self.now, Origin::Process(process, Basis::Events), event);
            }
        }
    }
}
