//! Processes behind connections, and what the daemon does when its session's processes and chips change.

use crate::eventlog;
use crate::legacy::Connection;
use crate::server::{Daemon, Token};
use crate::socket::{self, Peer};
use std::os::fd::AsFd;
use ttmem_core::Outcome;
use ttmem_core::words::{Basis, ChipId, Mono, ProcessId};
use ttmem_reader::{ProcessKey, SessionChange};
use ttmem_sources::{ExitWatch, ProcessIdentity};
use ttmem_wire::legacy::Message;

/// How soon sources are polled again whose writer fills its ring faster than we tick.
const SOON_NS: u64 = 50_000_000;

impl Daemon {
    /// Reads what sources have by now. They are rescanned if the last rescan is at least `rescan_after_ns` ago.
    pub(crate) fn poll_sources(&mut self, rescan_after_ns: u64) {
        self.session.rescan_if_due(rescan_after_ns);
        let busy = self.session.poll();
        self.next_poll = busy.then(|| Mono(self.session.now().0 + SOON_NS));
        self.follow_changes();
    }

    /// Follows up what changed in the session.
    pub(crate) fn follow_changes(&mut self) {
        let mut superseded = Vec::new();
        for change in self.session.take_changes() {
            match change {
                SessionChange::Registered(process) => self.watch_process(process),
                SessionChange::Superseded(process) => superseded.push(process),
                SessionChange::Exited(id, outcome) => self.log_exit(id, outcome),
                SessionChange::ChipDefined { id, index, has_node } => self.number_device(id, index, has_node),
                SessionChange::ChipRemoved => {
                    self.devices.retain(|_, id| self.session.state().chip(*id).is_some())
                }
            }
        }
        // Last: their sockets are read with everything else in place.
        for process in superseded {
            self.handle_exit(process);
        }
    }

    fn watch_process(&mut self, process: ProcessKey) {
        let Some(it) = self.session.processes().get(process) else { return };
        self.saw_exited_peer |= matches!(it.watch, ExitWatch::Exited);
        if let Some(fd) = it.watch.fd() {
            let _ = self.wait_for(fd, Token::Process(process.0));
        }
    }

    fn log_exit(&mut self, id: ProcessId, outcome: Outcome) {
        if let Outcome::Reclaimed(gone) = outcome {
            let pid = if id.pid == 0 { "unknown".to_owned() } else { id.pid.to_string() };
            self.output.log(&eventlog::cleanup(&pid, gone));
        }
    }

    /// Gives a chip the number by which old clients name it.
    fn number_device(&mut self, id: ChipId, index: u32, has_node: bool) {
        // What a client's word made is what clients mean, until it is gone.
        let made_up = self.devices.get(&index).is_some_and(|id| matches!(id, ChipId::Ordinal(_)));
        if has_node && !made_up {
            // Numbers change as chips come and go.
            self.devices.retain(|_, of| *of != id);
            self.devices.insert(index, id);
        } else {
            self.devices.entry(index).or_insert(id);
        }
    }

    /// The process behind an event: known on this connection, or registered now.
    pub(crate) fn author(
        &mut self,
        connection: &mut Connection,
        sender: Peer,
        message: &Message,
    ) -> ProcessKey {
        let processes = self.session.processes();
        let known = connection.authors.iter().find(|(peer, _)| *peer == sender);
        if let Some(&(_, author)) = known.filter(|(_, author)| processes.contains(*author)) {
            return author;
        }
        connection.authors.retain(|(_, author)| processes.contains(*author));
        let author = self.register_peer(connection, sender, message);
        connection.authors.push((sender, author));
        author
    }

    fn register_peer(&mut self, connection: &Connection, sender: Peer, message: &Message) -> ProcessKey {
        if let Some(known) = self.session.processes().find_pid(sender.pid) {
            if !self.session.processes().has_exited(known) {
                return known;
            }
            // The pid was given to another process before the first one's exit was noticed.
            self.handle_exit(known);
        }
        let watch = if sender.pid == 0 {
            Some(ExitWatch::Connection)
        } else if sender == connection.peer {
            match socket::peer_pidfd(connection.stream.as_fd()) {
                Ok(fd) => Some(ExitWatch::Pidfd(fd)),
                Err(_) => ExitWatch::by_pid(sender.pid),
            }
        } else {
            ExitWatch::by_pid(sender.pid)
        };
        let label = i64::from(message.process_id);
        let namespace_pid = u32::try_from(label).unwrap_or(0);
        let (name, start) = Default::default();
        let owner = ProcessIdentity { pid: sender.pid, namespace_pid, uid: sender.uid, name, start };
        let watch = watch.unwrap_or(ExitWatch::Exited);
        let author = self.session.register_process(&owner, label, watch, Basis::Reported);
        self.follow_changes();
        author
    }

    /// Ends a process that has exited: what it sent before is read, then everything it held is gone.
    pub(crate) fn handle_exit(&mut self, process: ProcessKey) {
        if self.draining {
            // Noticed in the middle of another one's end: reading on would go deeper with each of them.
            return self.end_process(process);
        }
        self.draining = true;
        let numbers: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.authors.iter().any(|&(_, author)| author == process))
            .map(|(&number, _)| number)
            .collect();
        for number in numbers {
            self.drain(number);
        }
        self.draining = false;
        self.end_process(process);
    }

    /// Removes a process, and everything it held.
    pub(crate) fn end_process(&mut self, process: ProcessKey) {
        self.session.end_process(process);
        self.follow_changes();
    }

    /// Ends every process (but the spared ones) whose exit the kernel already shows, so that an answer given now is true
    /// now, whatever order the loop's events come in.
    pub(crate) fn reap(&mut self, spared: &[(Peer, ProcessKey)]) {
        if self.draining {
            return;
        }
        for process in self.session.processes().exited() {
            if spared.iter().all(|(_, author)| *author != process) {
                self.handle_exit(process);
            }
        }
    }

    /// A connection is gone, and with it the processes that live only as long as it does.
    pub(crate) fn forget_connection(&mut self, connection: &Connection) {
        for &(_, author) in &connection.authors {
            let it = self.session.processes().get(author);
            if it.is_some_and(|it| matches!(it.watch, ExitWatch::Connection)) {
                self.end_process(author);
            }
        }
    }
}
