//! The daemon: one thread that reads the machine and its clients, and answers queries.
//!
//! ```text
//! legacy socket ──► legacy: frames ──► Input ──► State ──► Snapshot ──► query socket
//!                     │  answers, event log on stdout
//! chips, segments, ───┤
//! counters            │
//! pidfds ─────────────┴► a process exits: everything it held is reclaimed
//! ```
//!
//! It is a [`ttmem_reader::Session`] plus sockets plus the old clients' protocol.
//!
//! * [`serve`] runs it; `ttmem_reader::protocol` is the protocol of queries.
//! * `server` is the loop, with `poller` and `accept`; `legacy` and `query` are the two kinds of connection; `turns` shares the
//!   loop among users, with `shares` and `copy`; `tracking` connects them to the session; `subscriptions` has the connections that
//!   follow single events; `sharing` decides who may see what.

mod accept;
mod copy;
mod eventlog;
mod legacy;
mod listen;
mod manager;
mod output;
mod poller;
mod query;
mod server;
mod shares;
mod sharing;
mod signal;
mod socket;
mod subscriptions;
mod tracking;
mod turns;

use std::io;
use std::path::PathBuf;
use ttmem_core::Limits;
use ttmem_core::input::SensorReading;
use ttmem_core::machine::Chip;
use ttmem_core::snapshot::Usage;
use ttmem_core::words::Mono;
use ttmem_sources::SourceConfig;

pub use legacy::levels as legacy_levels;
pub use server::serve;
pub use sharing::Sharing;
pub use signal::is_ignored;
pub use socket::{Peer, server_at};

/// Computes the sensors of a simulated chip from the usage of its memory; `None` if it has none.
pub type SimulatedSensors = fn(&Chip, &Usage, Mono) -> Option<SensorReading>;

/// How the daemon runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket for old clients.
    pub legacy_socket: PathBuf,
    /// The socket for queries.
    pub query_socket: PathBuf,
    /// Permissions of both sockets.
    pub mode: u32,
    /// Whether to write no event log.
    pub quiet: bool,
    /// Whether the event log has the events of segments, too.
    pub log_segments: bool,
    /// What is read, and where.
    pub sources: SourceConfig,
    /// Simulated chips.
    pub chips: Vec<Chip>,
    /// Their sensors.
    pub sensors: Option<SimulatedSensors>,
    /// Limits of what is kept.
    pub limits: Limits,
    /// What users may see of each other's processes.
    pub sharing: Sharing,
}

/// Why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another server listens there.
    #[error("another server is listening on {path}")]
    AlreadyServed {
        /// The socket.
        path: PathBuf,
    },
    /// Another file is in the socket's place.
    #[error("{path} exists and is not a socket")]
    NotASocket {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be created.
    #[error("cannot listen on {path}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}
