//! Whose query is answered next.
//!
//! Users share the daemon's processor time ([`Shares`](crate::shares::Shares)): the one that used the least comes first, and one
//! that used up its share waits. Queries get a small part of each round of the loop, and what would take longer than that is
//! answered by a copy of the daemon ([`StateCopy`]). So a user's requests hold up only this user's own.

use crate::copy::StateCopy;
use crate::poller::Token;
use crate::query::{Interest, QueryConnection};
use crate::server::Daemon;
use crate::shares::choose_user;
use rustix::event::epoll::EventFlags;
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::Duration;
use ttmem_core::words::Mono;
use ttmem_core::{Detail, Viewer};
use ttmem_reader::{RESCAN_ON_REQUEST_NS, Request, json};
use ttmem_sources::monotonic;

/// Time for queries in one round of the loop; the last one may exceed it.
const ROUND_NS: u64 = 10_000_000;
/// Live allocations from which on lists are made by a copy: with fewer, a list takes at most about 50 ms.
const LARGE_STATE: usize = 10_000;
/// Processes from which on any snapshot is made by a copy.
const MANY_PROCESSES: usize = 500;
/// Copies at the same time; each user has at most one.
const MAX_COPIES: usize = 4;
/// Bytes of answers that a user may leave unread. Further requests are refused.
const MAX_UNREAD: u64 = 64 << 20;

impl Daemon {
    /// Handles an event of a query connection's socket: its turn comes in this round or later.
    pub(crate) fn queue_query(&mut self, number: u64, flags: EventFlags) {
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.close_query(number);
        }
        self.last_turn += 1;
        let Some(connection) = self.queries.get_mut(&number) else { return };
        connection.queued.get_or_insert(self.last_turn);
        if self.shares.next_turn(connection.peer.uid) > self.session.now() {
            // It must not wake the loop until the user's share allows an answer.
            connection.unread_since = None;
            connection.wait_for(&self.poller, Interest::HangUp, number);
        }
    }

    /// Closes a connection. Its copy is reaped when it has exited.
    pub(crate) fn close_query(&mut self, number: u64) {
        self.queries.remove(&number);
        self.subscriptions.unsubscribe(number);
        if let Some(copy) = self.copies.get(&number) {
            copy.kill();
        }
    }

    /// Answers queries for one round.
    pub(crate) fn answer_queries(&mut self) {
        let until = monotonic().0 + ROUND_NS;
        while let Some(number) = self.next_query() {
            let Some(mut connection) = self.queries.remove(&number) else { return };
            let place = connection.queued.take();
            let (begin, uid) = (thread_cpu_ns(), connection.peer.uid);
            match connection.take_turn(self, number) {
                Some(interest) => {
                    connection.wait_for(&self.poller, interest, number);
                    connection.queued = place.filter(|_| connection.awaits_copy);
                    self.queries.insert(number, connection);
                }
                None => self.subscriptions.unsubscribe(number),
            }
            self.shares.charge(uid, self.session.now(), thread_cpu_ns().saturating_sub(begin));
            if monotonic().0 >= until {
                return;
            }
        }
    }

    /// The connection whose turn is next, if one may have its turn now.
    fn next_query(&self) -> Option<u64> {
        let now = self.session.now();
        let ready = self.queries.iter().filter(|(_, it)| self.is_ready(it));
        let turns = ready.map(|(&number, it)| (self.shares.next_turn(it.peer.uid), it.queued, number));
        turns.filter(|(at, ..)| *at <= now).min().map(|(.., number)| number)
    }

    /// Whether a connection waits for its turn, and for no copy.
    fn is_ready(&self, connection: &QueryConnection) -> bool {
        connection.queued.is_some()
            && (!connection.awaits_copy || self.has_room_for_copy(connection.peer.uid))
    }

    /// When the next query can be answered.
    pub(crate) fn next_query_at(&self) -> Option<Mono> {
        let ready = self.queries.values().filter(|it| self.is_ready(it));
        ready.map(|it| self.shares.next_turn(it.peer.uid)).min()
    }

    /// Whether a copy may be started for a user.
    pub(crate) fn has_room_for_copy(&self, uid: u32) -> bool {
        self.copies.len() < MAX_COPIES && self.copies.values().all(|copy| copy.uid != uid)
    }

    /// Whether an answer may take so long that a copy must give it.
    pub(crate) fn needs_copy(&self, request: &Request) -> bool {
        let has_lists = match request {
            Request::Snapshot(detail) => has_lists(detail),
            Request::Report => true,
            Request::Allocations | Request::Events(_) => return false,
        };
        has_lists && self.session.state().live_records() > LARGE_STATE
            || self.session.processes().count() > MANY_PROCESSES
    }

    /// Prepares an answer: everything up to now is read, and exited processes are removed.
    pub(crate) fn prepare_answer(&mut self, request: &Request) {
        self.reap(&[]);
        if matches!(request, Request::Snapshot(_)) {
            self.session.note_request();
        }
        self.poll_sources(RESCAN_ON_REQUEST_NS);
        if let Request::Snapshot(detail) = request {
            if detail.cores || detail.cores_of.is_some() {
                self.session.record_peaks();
            }
            if detail.host {
                self.session.read_host_usage();
            }
        }
    }

    /// Writes the answer to a request, prepared before.
    pub(crate) fn write_answer(
        &mut self,
        request: &Request,
        viewer: Viewer,
        answer: &mut dyn Write,
    ) -> Result<(), serde_json::Error> {
        match request {
            Request::Snapshot(detail) => json::write_to(&self.snapshot(detail, viewer), answer),
            _ => {
                self.session.record_peaks();
                json::write_to(&self.session.report_for(viewer), answer)
            }
        }
    }

    /// Starts a copy that answers a request.
    pub(crate) fn start_copy(
        &mut self,
        number: u64,
        uid: u32,
        request: &Request,
        viewer: Viewer,
    ) -> Result<(), String> {
        let now = self.session.now();
        let copy = StateCopy::start(uid, now, |answer| self.write_answer(request, viewer, answer));
        let watched = copy.and_then(|copy| {
            self.poller.add(copy.fd(), Token::Copy(number))?;
            self.copies.insert(number, copy);
            Ok(())
        });
        watched.map_err(|e| format!("no process can be started for the answer: {e}"))
    }

    /// Takes the answer of a connection's copy, which has exited.
    pub(crate) fn finish_copy(&mut self, number: u64) {
        let Some(copy) = self.copies.remove(&number) else { return };
        self.poller.remove(copy.fd());
        let (uid, finished) = (copy.uid, copy.finish());
        self.shares.charge(uid, self.session.now(), finished.cpu.as_nanos() as u64);
        if let Some(connection) = self.queries.get_mut(&number) {
            connection.take_copied(finished.answer);
            self.queue_query(number, EventFlags::empty());
        }
    }

    /// Whether a user has read its other answers, so that it gets another one; else why not.
    pub(crate) fn check_unread(&self, uid: u32) -> Result<(), String> {
        let of_user = self.queries.values().filter(|it| it.peer.uid == uid);
        let unread: u64 = of_user.map(QueryConnection::unread_bytes).sum();
        if unread < MAX_UNREAD {
            return Ok(());
        }
        let mib = unread >> 20;
        Err(format!(
            "{mib} MiB of answers to user {uid} are unread, of at most 64 MiB: read them or close their connections"
        ))
    }

    /// Closes the oldest connection that follows events of another user who has more of them, if no more may follow.
    pub(crate) fn make_room_for_follower(&mut self, newcomer: u32) {
        if self.subscriptions.have_room() {
            return;
        }
        let followers = || self.queries.iter().filter(|(_, it)| it.follows);
        let user =
            choose_user(followers().map(|(_, it)| it.peer.uid), newcomer).filter(|&uid| uid != newcomer);
        if let Some((&number, _)) = followers().find(|(_, it)| Some(it.peer.uid) == user) {
            self.close_query(number);
        }
    }

    /// Closes connections that do not read their answers, and ends copies that take too long.
    pub(crate) fn close_unread(&mut self) {
        let now = self.session.now();
        self.shares.forget_idle(now);
        for copy in self.copies.values().filter(|it| it.is_slow(now)) {
            copy.kill();
        }
        for (number, connection) in self.queries.extract_if(.., |_, it| it.is_abandoned(now)) {
            let (peer, bytes) = (connection.peer, connection.unread_bytes());
            self.output.warn(
                "unread answer",
                format_args!(
                    "query connection {number} of pid {}, user {}: {bytes} bytes of an answer were not read for 30 s; \
                     connection closed",
                    peer.pid, peer.uid
                ),
            );
        }
    }
}

/// Whether a snapshot has parts that grow with the number of allocations or programs.
fn has_lists(detail: &Detail) -> bool {
    let Detail { buffers, program_list, core, blocks, flame, .. } = detail;
    let lists =
        [buffers.is_some(), program_list.is_some(), core.is_some(), blocks.is_some(), flame.is_some()];
    let parts = [detail.cores, detail.cores_of.is_some(), detail.programs, detail.sites, detail.leaks];
    lists.contains(&true) || parts.contains(&true)
}

/// Processor time of this thread.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32).as_nanos() as u64
}
