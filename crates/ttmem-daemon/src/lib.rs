//! The daemon: one thread that listens, understands and answers.
//!
//! ```text
//! legacy socket ──► legacy: frames ──► Event ──► State ──► Snapshot ──► query socket
//!                     │  answers, event log on stdout
//! chips, segments, ───┤
//! counters            │
//! pidfds ─────────────┴► a process ends: everything it held is gone
//! ```
//!
//! It is a [`ttmem_reader::Session`] plus sockets plus the old clients' protocol.
//!
//! * [`serve`] runs it; `ttmem_reader::protocol` is how programs ask it.
//! * `server` is the loop; `legacy` and `query` are the two kinds of connection; `tracking` connects them to the session.

mod eventlog;
mod legacy;
mod listen;
mod manager;
mod output;
mod query;
mod server;
mod signal;
mod socket;
mod tracking;

use std::io;
use std::path::PathBuf;
use ttmem_core::Limits;
use ttmem_core::event::SensorReading;
use ttmem_core::machine::Chip;
use ttmem_core::snapshot::Usage;
use ttmem_core::words::Mono;
use ttmem_sources::SourceConfig;

pub use server::serve;
pub use signal::is_ignored;
pub use socket::{Peer, server_at};

/// What a simulated chip's sensors say while so much of its memory is used; `None` if it has none.
pub type SimulatedSensors = fn(&Chip, &Usage, Mono) -> Option<SensorReading>;

/// What the daemon is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where old clients connect.
    pub legacy_socket: PathBuf,
    /// Where ttmem itself connects.
    pub query_socket: PathBuf,
    /// Permissions of both sockets.
    pub mode: u32,
    /// No event log.
    pub quiet: bool,
    /// What is read, and where.
    pub reading: SourceConfig,
    /// Simulated chips.
    pub chips: Vec<Chip>,
    /// What their sensors say.
    pub sensors: Option<SimulatedSensors>,
    /// What input may make the daemon keep.
    pub limits: Limits,
}

/// Why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody serves there already.
    #[error("another server is listening on {path}")]
    AlreadyServed {
        /// Where.
        path: PathBuf,
    },
    /// Something else lies where the socket should be.
    #[error("{path} exists and is not a socket")]
    NotASocket {
        /// Where.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot listen on {path}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel refuses what the loop needs.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}
