//! Accepts connections on both sockets, as far as descriptors last.

use crate::legacy::Connection;
use crate::listen::describe_error;
use crate::poller::Token;
use crate::query::QueryConnection;
use crate::server::Daemon;
use crate::shares::choose_user;
use crate::socket;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use ttmem_sources::Sources;

/// Descriptors that connections of old clients leave free. A query may need another one, for the file with its answer.
const RESERVED_DESCRIPTORS: usize = 2 * MAX_QUERY_CONNECTIONS + 32;
/// Connections of the query socket that wait to be accepted; further ones wait in `connect`.
const QUERY_BACKLOG: i32 = 256;
/// Connections accepted before other events are handled.
const MAX_ACCEPTED: usize = 256;
/// Connections of old clients closed for new ones before other events are handled.
const MAX_CLOSED: usize = 8;
/// Connections among which one is searched whose processes have nothing allocated.
const MAX_SEARCHED: usize = 256;
/// Connections of the query socket at the same time.
const MAX_QUERY_CONNECTIONS: usize = 64;

impl Daemon {
    /// Waits for connections on both sockets, unless it does already.
    pub(crate) fn start_accepting(&mut self) -> io::Result<()> {
        self.accepting_paused = false;
        // A new connection waits for all earlier ones, so connections that hang up at once must not fill a long queue.
        if let Some(socket) = self.query_listener.socket() {
            rustix::net::listen(socket, QUERY_BACKLOG)?;
        }
        for (listener, token) in
            [(&self.legacy_listener, Token::LegacyListener), (&self.query_listener, Token::QueryListener)]
        {
            let added = listener.socket().map_or(Ok(()), |socket| self.poller.add(socket, token));
            match added {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates sockets that could not be created before, and those again that a cleaner of old files has removed.
    pub(crate) fn restore_sockets(&mut self) {
        for listener in [&mut self.legacy_listener, &mut self.query_listener] {
            let (path, was_open) = (listener.path().display().to_string(), listener.socket().is_some());
            match listener.restore() {
                Ok(false) => {}
                Ok(true) if was_open => {
                    self.output.warn("socket was gone", format_args!("{path} was gone and is there again"));
                }
                Ok(true) => {
                    self.output.warn("socket is open", format_args!("listening on {path} now"));
                }
                // That is a finding, and was logged at the start.
                Err(_) if !was_open => {}
                Err(e) => {
                    let why = describe_error(&e);
                    self.output.warn("socket is gone", format_args!("cannot create {path} again: {why}"));
                }
            }
        }
        if self.legacy_listener.socket().is_some() {
            self.legacy_error = None;
        }
        let _ = self.start_accepting();
    }

    pub(crate) fn accept_legacy(&mut self) {
        let mut closed = 0;
        for _ in 0..MAX_ACCEPTED {
            // Some descriptors are reserved for queries, however many old clients there are. Each connection may need another
            // one for its process.
            let used =
                2 * self.connections.len() + self.session.processes().count() + self.source_descriptors();
            let is_full = used + RESERVED_DESCRIPTORS.min(self.max_descriptors / 2) >= self.max_descriptors;
            if is_full && self.connections.is_empty() {
                return self.pause_accepting("every descriptor is in use");
            }
            if closed == MAX_CLOSED {
                return;
            }
            let Some(stream) = self.accept(Token::LegacyListener) else { return };
            let Ok(peer) = socket::peer(stream.as_fd()) else { continue };
            if is_full {
                closed += 1;
                self.make_room(peer.uid);
            }
            let number = self.next_number();
            if self.poller.add(&stream, Token::Legacy(number)).is_ok() {
                self.connections.insert(number, Connection::new(stream, peer));
            }
        }
    }

    /// Closes a connection of the old client's user with the most, for a new one of `newcomer`: the oldest of those whose
    /// processes have nothing allocated, if there is one. So a user's connections close only this user's own.
    fn make_room(&mut self, newcomer: u32) {
        let users = self.connections.values().map(|it| it.peer.uid);
        let Some(uid) = choose_user(users, newcomer) else { return };
        let of_user = || self.connections.iter().filter(|(_, it)| it.peer.uid == uid);
        let idle = of_user().take(MAX_SEARCHED).find(|(_, it)| self.is_idle(it));
        let Some((&number, _)) = idle.or_else(|| of_user().next()) else { return };
        if let Some(connection) = self.connections.remove(&number) {
            let pid = connection.peer.pid;
            self.output.warn(
                "connection closed to make room",
                format_args!(
                    "connection {number} of pid {pid} closed: every descriptor is in use, and user {uid} has the most \
                     connections"
                ),
            );
            self.end_connection(&connection);
        }
    }

    /// Whether no process of a connection has anything allocated.
    fn is_idle(&self, connection: &Connection) -> bool {
        let processes = connection.processes.iter().filter_map(|&(_, it)| self.session.processes().get(it));
        processes.into_iter().all(|it| self.session.state().live_records_of(it.id) == 0)
    }

    pub(crate) fn accept_queries(&mut self) {
        for _ in 0..MAX_ACCEPTED {
            let Some(stream) = self.accept(Token::QueryListener) else { return };
            let Ok(peer) = socket::peer(stream.as_fd()) else { continue };
            if self.queries.len() >= MAX_QUERY_CONNECTIONS {
                // The oldest connection of the user with the most is closed, so that stuck ones do not lock others out.
                let victim = choose_user(self.queries.values().map(|it| it.peer.uid), peer.uid);
                let oldest = self.queries.iter().find(|(_, it)| Some(it.peer.uid) == victim);
                if let Some((&number, _)) = oldest {
                    self.close_query(number);
                }
            }
            let viewer = self.viewers.of(stream.as_fd(), peer);
            let number = self.next_number();
            if self.poller.add(&stream, Token::Query(number)).is_ok() {
                self.queries.insert(number, QueryConnection::new(stream, peer, viewer));
            }
        }
    }

    fn accept(&mut self, listener: Token) -> Option<UnixStream> {
        let is_legacy = listener == Token::LegacyListener;
        let listener = if is_legacy { &self.legacy_listener } else { &self.query_listener };
        match listener.socket()?.accept() {
            Ok((stream, _)) => stream.set_nonblocking(true).ok().map(|()| stream),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                if let Some(socket) = self.query_listener.socket() {
                    self.poller.remove(socket);
                }
                self.pause_accepting(&e.to_string());
                None
            }
            // No connection waits; the loop is woken by the next one.
            Err(_) => None,
        }
    }

    /// Leaves connections in their queue until the next tick: they would wake the loop at once again.
    fn pause_accepting(&mut self, why: &str) {
        if !self.accepting_paused {
            self.accepting_paused = true;
            if let Some(socket) = self.legacy_listener.socket() {
                self.poller.remove(socket);
            }
            self.output.warn("cannot accept", format_args!("cannot accept a connection: {why}"));
        }
    }

    /// The number of descriptors that sources have open.
    fn source_descriptors(&self) -> usize {
        self.session.sources().map_or(0, Sources::descriptors)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
