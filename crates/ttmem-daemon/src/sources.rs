//! What is read, as the daemon follows it: chips, segments and counters go to the state, and the ends of their processes
//! come from the same watch as those of old clients. A process that is known in several ways is one process.

use crate::server::Daemon;
use ttmem_core::event::Event;
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_sources::process::Watch;
use ttmem_sources::{EventSink, Owner};

/// How soon to look again at a writer that fills its ring faster than we tick.
const SOON_NS: u64 = 50_000_000;

impl Daemon {
    /// Takes in what sources say by now. What seldom changes is looked for again if
    /// that was longer ago than `survey`.
    pub(crate) fn look_at_sources(&mut self, survey: u64) {
        // They are not there while they speak to us.
        let Some(mut sources) = self.sources.take() else { return };
        if self.surveyed.is_none_or(|at| self.now.since(at) >= survey) {
            self.surveyed = Some(self.now);
            sources.survey(self);
        }
        let busy = sources.look(self.now, self);
        self.next_look = busy.then(|| Mono(self.now.0 + SOON_NS));
        self.sources = Some(sources);
    }

    /// A process ended: its segments are read to the end.
    pub(crate) fn sources_ended(&mut self, process: u64) {
        let Some(id) = self.tracked.get(&process).map(|it| it.id) else { return };
        // If its end was noticed while sources are looked at, they notice it themselves at the next look.
        if let Some(mut sources) = self.sources.take() {
            sources.process_ended(id, self);
            self.sources = Some(sources);
        }
    }
}

impl EventSink for Daemon {
    fn register(&mut self, owner: &Owner, basis: Basis) -> ProcessId {
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
            pid => {
                let start = owner.start.or_else(|| self.processes.start_ticks(pid));
                self.processes.watch(pid, start).unwrap_or(Watch::Gone)
            }
        };
        let process = self.track(owner, i64::from(owner.own_pid), watch, basis);
        self.tracked.get(&process).map_or(ProcessId { pid: owner.pid, start: 0 }, |it| it.id)
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, event: Event) {
        match event {
            Event::Chip(chip) => self.define_chip(Origin::Process(process, basis), chip),
            Event::Exited => {
                let gone = self.tracked.iter().find(|(_, it)| it.id == process).map(|(&number, _)| number);
                if let Some(number) = gone {
                    self.end_process(number);
                }
            }
            event => {
                self.state.apply(self.now, Origin::Process(process, basis), event);
            }
        }
    }
    fn emit_machine(&mut self, event: Event) {
        match event {
            Event::Chip(chip) => self.define_chip(Origin::Machine, chip),
            event => {
                let gone = matches!(event, Event::ChipGone(_));
                self.state.apply(self.now, Origin::Machine, event);
                if gone {
                    self.devices.retain(|_, id| self.state.chip(*id).is_some());
                }
            }
        }
    }
}
