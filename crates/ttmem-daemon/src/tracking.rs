//! Tracks the processes behind connections, and acts on changes of the session's processes and chips.

use crate::eventlog;
use crate::legacy::Connection;
use crate::poller::Token;
use crate::server::Daemon;
use crate::socket::{self, Peer};
use std::os::fd::AsFd;
use ttmem_core::Outcome;
use ttmem_core::words::{Basis, ChipId, Mono, ProcessId};
use ttmem_reader::{EventConsumer, ProcessKey, Session, SessionChange};
use ttmem_sources::{ExitWatch, ProcessIdentity};
use ttmem_wire::legacy::Message;

/// Longest time between two scans for new segments while single events are wanted.
const SCAN_NS: u64 = 50_000_000;
/// Longest time between two polls of a busy writer while single events are wanted: it may become faster.
const BUSY_NS: u64 = 10_000_000;

impl Daemon {
    /// Polls sources, and rescans them if the last rescan is at least `rescan_interval_ns` ago.
    pub(crate) fn poll_sources(&mut self, rescan_interval_ns: u64) {
        self.session.rescan_if_due(rescan_interval_ns);
        let due = self.with_events(Session::poll);
        self.next_scan = Mono(self.session.now().0 + SCAN_NS);
        self.plan_poll(due);
        self.handle_changes();
    }

    /// Reads the rings of busy writers, or everything if single events are wanted and the last scan is too old.
    pub(crate) fn poll_rings(&mut self, rescan_interval_ns: u64) {
        if self.subscriptions.are_wanted() && self.session.now() >= self.next_scan {
            return self.poll_sources(rescan_interval_ns);
        }
        let due = self.with_events(Session::poll_busy);
        self.plan_poll(due);
        self.handle_changes();
    }

    /// Has new segments searched for soon, since single events are wanted now.
    pub(crate) fn plan_next_scan(&mut self) {
        self.next_scan = Mono(self.session.now().0 + SCAN_NS);
        self.plan_poll(self.next_poll);
    }

    /// Sets when rings are read next. Without a ring that must be read, and without interest in single events, the next tick
    /// is soon enough.
    fn plan_poll(&mut self, due: Option<Mono>) {
        self.next_poll = due;
        if self.subscriptions.are_wanted() {
            let busy = due.map(|due| due.min(Mono(self.session.now().0 + BUSY_NS)));
            self.next_poll = Some(busy.map_or(self.next_scan, |busy| busy.min(self.next_scan)));
        }
    }

    /// Calls `act` with a consumer of events, if single events are wanted.
    fn with_events<T>(&mut self, act: impl FnOnce(&mut Session, Option<EventConsumer<'_>>) -> T) -> T {
        let Self { session, subscriptions, output, .. } = self;
        if !subscriptions.are_wanted() {
            return act(session, None);
        }
        let levels = subscriptions.need_levels();
        let mut take = |event, is_new| subscriptions.publish(&event, is_new, output);
        act(session, Some(EventConsumer { take: &mut take, levels }))
    }

    /// Acts on what changed in the session.
    pub(crate) fn handle_changes(&mut self) {
        let mut superseded = Vec::new();
        for change in self.session.take_changes() {
            match change {
                SessionChange::Registered(process) => self.watch_process(process),
                SessionChange::Superseded(process) => superseded.push(process),
                SessionChange::Exited(id, outcome) => self.log_exit(id, outcome),
                SessionChange::ChipDefined { id, index, has_node } => self.number_device(id, index, has_node),
                SessionChange::ChipRemoved => {
                    self.devices.retain(|_, id| self.session.state().chip(*id).is_some());
                }
            }
        }
        // Last, since their connections are read with everything else up to date.
        for process in superseded {
            self.handle_exit(process);
        }
    }

    fn watch_process(&mut self, process: ProcessKey) {
        let Some(entry) = self.session.processes().get(process) else { return };
        self.saw_exited_peer |= matches!(entry.watch, ExitWatch::Exited);
        if let Some(fd) = entry.watch.fd() {
            let _ = self.poller.add(fd, Token::Process(process.0));
        }
    }

    fn log_exit(&mut self, id: ProcessId, outcome: Outcome) {
        if let Outcome::Reclaimed(reclaimed) = outcome {
            let pid = if id.pid == 0 { "unknown".to_owned() } else { id.pid.to_string() };
            self.output.log(&eventlog::format_cleanup(&pid, reclaimed));
        }
    }

    /// Gives a chip the number by which old clients name it.
    fn number_device(&mut self, id: ChipId, index: u32, has_node: bool) {
        // A chip that was added because a client named its number keeps it until it is removed.
        let added_by_client = self.devices.get(&index).is_some_and(|id| matches!(id, ChipId::Ordinal(_)));
        if has_node && !added_by_client {
            // Numbers change as chips are added and removed.
            self.devices.retain(|_, of| *of != id);
            self.devices.insert(index, id);
        } else {
            self.devices.entry(index).or_insert(id);
        }
    }

    /// The process that sent a message: known on this connection, or registered now.
    pub(crate) fn find_or_register_sender(
        &mut self,
        connection: &mut Connection,
        sender: Peer,
        message: &Message,
    ) -> ProcessKey {
        let processes = self.session.processes();
        let known = connection.processes.iter().find(|(peer, _)| *peer == sender);
        if let Some(&(_, process)) = known.filter(|(_, process)| processes.contains(*process)) {
            return process;
        }
        connection.processes.retain(|(_, process)| processes.contains(*process));
        let process = self.register_sender(connection, sender, message);
        connection.processes.push((sender, process));
        process
    }

    fn register_sender(&mut self, connection: &Connection, sender: Peer, message: &Message) -> ProcessKey {
        if let Some(known) = self.session.processes().find_pid(sender.pid) {
            if !self.session.processes().has_exited(known) {
                return known;
            }
            // The pid was reused before the exit of its first process was noticed.
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
        let reported_pid = i64::from(message.process_id);
        let namespace_pid = u32::try_from(reported_pid).unwrap_or(0);
        let (name, start) = Default::default();
        let identity = ProcessIdentity { pid: sender.pid, namespace_pid, uid: sender.uid, name, start };
        let watch = watch.unwrap_or(ExitWatch::Exited);
        let process = self.session.register_process(&identity, reported_pid, watch, Basis::Reported);
        self.handle_changes();
        process
    }

    /// Ends a process that has exited: reads what it sent before, then removes everything it held.
    pub(crate) fn handle_exit(&mut self, process: ProcessKey) {
        if self.draining {
            // Noticed while another one is drained: draining this one too would recurse.
            return self.end_process(process);
        }
        self.draining = true;
        let numbers: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.processes.iter().any(|&(_, sender)| sender == process))
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
        self.with_events(|session, events| session.end_process(process, events));
        self.handle_changes();
    }

    /// Ends every process that has exited, except the spared ones, so that an answer is true when it is given, in whatever order
    /// the loop's events arrive.
    pub(crate) fn reap(&mut self, spared: &[(Peer, ProcessKey)]) {
        if self.draining {
            return;
        }
        for process in self.session.processes().exited() {
            if spared.iter().all(|(_, sender)| *sender != process) {
                self.handle_exit(process);
            }
        }
    }

    /// Ends the processes of a closed connection that are known only through it.
    pub(crate) fn end_connection(&mut self, connection: &Connection) {
        for &(_, process) in &connection.processes {
            let entry = self.session.processes().get(process);
            if entry.is_some_and(|it| matches!(it.watch, ExitWatch::Connection)) {
                self.end_process(process);
            }
        }
    }
}
