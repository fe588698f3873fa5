//! Whose words they are: processes met, watched and ended.

use crate::eventlog;
use crate::legacy::Connection;
use crate::server::{Daemon, Token};
use crate::socket::{self, Peer};
use std::os::fd::AsFd;
use ttmem_core::Outcome;
use ttmem_core::event::Event;
use ttmem_core::words::{Basis, Origin, ProcessId};
use ttmem_sources::Owner;
use ttmem_sources::process::Watch;
use ttmem_wire::legacy::Message;

/// A tracked process.
pub(crate) struct Tracked {
    pub(crate) id: ProcessId,
    pub(crate) watch: Watch,
}

impl Daemon {
    /// The process behind an event: found, or met for the first time.
    pub(crate) fn author(&mut self, connection: &mut Connection, sender: Peer, message: &Message) -> u64 {
        let known = connection.authors.iter().find(|(peer, _)| *peer == sender);
        if let Some(&(_, author)) = known.filter(|(_, author)| self.tracked.contains_key(author)) {
            return author;
        }
        connection.authors.retain(|(_, author)| self.tracked.contains_key(author));
        let author = self.meet(connection, sender, message);
        connection.authors.push((sender, author));
        author
    }

    fn meet(&mut self, connection: &Connection, sender: Peer, message: &Message) -> u64 {
        if let Some(&known) = self.by_pid.get(&sender.pid).filter(|_| sender.pid != 0) {
            if !self.tracked.get(&known).is_some_and(|it| it.watch.ended()) {
                return known;
            }
            // The pid was given to another process before we heard of the first one's end.
            self.process_ended(known);
        }
        let watch = if sender.pid == 0 {
            Some(Watch::Connection)
        } else if sender == connection.peer {
            match socket::peer_pidfd(connection.stream.as_fd()) {
                Ok(fd) => Some(Watch::Pidfd(fd)),
                Err(_) => Watch::by_pid(sender.pid),
            }
        } else {
            Watch::by_pid(sender.pid)
        };
        let label = i64::from(message.process_id);
        let own_pid = u32::try_from(label).unwrap_or(0);
        let (name, start) = Default::default();
        let owner = Owner { pid: sender.pid, own_pid, uid: sender.uid, name, start };
        let watch = watch.unwrap_or(Watch::Gone);
        self.track(&owner, label, watch, Basis::Legacy)
    }

    /// Tracks a process from now on. `label` is the pid it calls itself by.
    pub(crate) fn track(&mut self, owner: &Owner, label: i64, watch: Watch, basis: Basis) -> u64 {
        self.met_the_dead |= matches!(watch, Watch::Gone);
        let pid = owner.pid;
        let start = owner.start.or_else(|| self.processes.start_ticks(pid)).filter(|_| !watch.ended());
        let process = self.number();
        // Without a start time any number that no other process has will do.
        let id = ProcessId { pid, start: start.unwrap_or(u64::MAX - process) };
        let mut info = self.processes.describe(owner, start);
        info.reported_pid = Some(label).filter(|&label| label != i64::from(pid) && label != 0);
        if let Some(fd) = watch.fd() {
            let _ = self.wait_for(fd, Token::Process(process));
        }
        if pid != 0 {
            self.by_pid.insert(pid, process);
        }
        self.tracked.insert(process, Tracked { id, watch });
        self.state.apply(self.now, Origin::Process(id, basis), Event::Born(info));
        process
    }

    /// Tells the state what a tracked process says.
    pub(crate) fn apply(&mut self, process: u64, event: Event) -> Outcome {
        match self.tracked.get(&process) {
            Some(it) => self.state.apply(self.now, Origin::Process(it.id, Basis::Legacy), event),
            None => Outcome::NobodysEvent,
        }
    }

    /// A process ended: what it sent before is read, then everything it held is gone.
    pub(crate) fn process_ended(&mut self, process: u64) {
        if self.draining {
            // Noticed in the middle of another one's end: reading on would go deeper with each of them.
            return self.end_process(process);
        }
        self.draining = true;
        let heard_on: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.authors.iter().any(|&(_, author)| author == process))
            .map(|(&number, _)| number)
            .collect();
        for number in heard_on {
            self.drain(number);
        }
        self.draining = false;
        self.sources_ended(process);
        self.end_process(process);
    }

    /// Whether a pid that was heard on a connection has gone to another process since: the one is dead, and one with its
    /// pid lives. (Start times would not tell: they count hundredths of a second.) What comes from a dead process whose
    /// pid nobody has is its own: it was sent before it died.
    pub(crate) fn is_reused(&self, author: u64) -> bool {
        let Some(it) = self.tracked.get(&author) else { return false };
        it.watch.ended() && Watch::by_pid(it.id.pid).is_some_and(|living| !living.ended())
    }

    pub(crate) fn end_process(&mut self, process: u64) {
        let outcome = self.apply(process, Event::Exited);
        let Some(it) = self.tracked.remove(&process) else { return };
        if self.by_pid.get(&it.id.pid) == Some(&process) {
            self.by_pid.remove(&it.id.pid);
        }
        if let Outcome::Reclaimed(gone) = outcome {
            let pid = if it.id.pid == 0 { "unknown".to_owned() } else { it.id.pid.to_string() };
            self.output.log(&eventlog::cleanup(&pid, gone));
        }
    }

    /// Ends every process (but the spared ones) whose end the kernel has already told of, so that an answer given now is
    /// true now, whatever order the loop's events come in.
    pub(crate) fn reap(&mut self, spared: &[(Peer, u64)]) {
        if self.draining {
            return;
        }
        let ended: Vec<u64> =
            self.tracked.iter().filter(|(_, it)| it.watch.ended()).map(|(&process, _)| process).collect();
        let ended = ended.into_iter().filter(|process| spared.iter().all(|(_, author)| author != process));
        for process in ended {
            self.process_ended(process);
        }
    }

    /// A connection is gone, and with it the processes that live only as long as it does.
    pub(crate) fn forget_connection(&mut self, connection: &Connection) {
        for &(_, author) in &connection.authors {
            if self.tracked.get(&author).is_some_and(|it| matches!(it.watch, Watch::Connection)) {
                self.end_process(author);
            }
        }
    }
}
