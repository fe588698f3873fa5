//! Accepts connections on both sockets, as far as descriptors last.

use crate::legacy::Connection;
use crate::poller::Token;
use crate::query::QueryConnection;
use crate::server::Daemon;
use crate::socket;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use ttmem_sources::Sources;

/// Descriptors that connections of old clients leave free.
const RESERVED_DESCRIPTORS: usize = MAX_QUERY_CONNECTIONS + 32;
/// Connections accepted before other events are handled.
const MAX_ACCEPTED: usize = 64;
/// Connections of the query socket at the same time.
const MAX_QUERY_CONNECTIONS: usize = 64;

impl Daemon {
    /// Waits for connections on both sockets, unless it does already.
    pub(crate) fn start_accepting(&mut self) -> io::Result<()> {
        self.accepting_paused = false;
        for (listener, token) in
            [(&self.legacy_listener, Token::LegacyListener), (&self.query_listener, Token::QueryListener)]
        {
            match self.poller.add(listener, token) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates sockets again that a cleaner of old files has removed.
    pub(crate) fn restore_sockets(&mut self) {
        for listener in [&mut self.legacy_listener, &mut self.query_listener] {
            match listener.restore() {
                Ok(false) => {}
                Ok(true) => {
                    let path = listener.path().display().to_string();
                    self.output.warn("socket was gone", format_args!("{path} was gone and is there again"));
                }
                Err(e) => {
                    let path = listener.path().display().to_string();
                    self.output.warn("socket is gone", format_args!("cannot make {path} again: {e}"));
                }
            }
        }
        let _ = self.start_accepting();
    }

    pub(crate) fn accept_legacy(&mut self) {
        for _ in 0..MAX_ACCEPTED {
            // Some descriptors are reserved for queries, however many old clients there are. Each connection may need another
            // one for its process.
            let used =
                2 * self.connections.len() + self.session.processes().count() + self.source_descriptors();
            if used + RESERVED_DESCRIPTORS.min(self.max_descriptors / 2) >= self.max_descriptors {
                return self.pause_accepting("every descriptor is in use");
            }
            let Some(stream) = self.accept(Token::LegacyListener) else { return };
            let Ok(peer) = socket::peer(stream.as_fd()) else { continue };
            let number = self.next_number();
            if self.poller.add(&stream, Token::Legacy(number)).is_ok() {
                self.connections.insert(number, Connection::new(stream, peer));
            }
        }
    }

    pub(crate) fn accept_queries(&mut self) {
        for _ in 0..MAX_ACCEPTED {
            let Some(stream) = self.accept(Token::QueryListener) else { return };
            if self.queries.len() >= MAX_QUERY_CONNECTIONS {
                // The oldest connection is closed, so that stuck ones do not lock others out.
                self.queries.pop_first();
            }
            let Ok(peer) = socket::peer(stream.as_fd()) else { continue };
            let viewer = self.viewers.of(stream.as_fd(), peer);
            let number = self.next_number();
            if self.poller.add(&stream, Token::Query(number)).is_ok() {
                self.queries.insert(number, QueryConnection::new(stream, viewer));
            }
        }
    }

    fn accept(&mut self, listener: Token) -> Option<UnixStream> {
        let is_legacy = listener == Token::LegacyListener;
        let listener = if is_legacy { &self.legacy_listener } else { &self.query_listener };
        match listener.socket.accept() {
            Ok((stream, _)) => stream.set_nonblocking(true).ok().map(|()| stream),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                self.poller.remove(&self.query_listener);
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
            self.poller.remove(&self.legacy_listener);
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
