//! The error type of this crate.

use std::io;
use std::path::PathBuf;
use ttmem_sources::SkipReason;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be read. The message is a fragment; the cause is its source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No daemon answers at the path that was given.
    #[error("no daemon answers at {}", .0.display())]
    NoDaemon(PathBuf),
    /// A daemon answered before and does not any more.
    #[error("the daemon stopped answering")]
    Silent,
    /// A daemon could not be asked.
    #[error("cannot query the daemon at {}", path.display())]
    Ask {
        /// Its socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The answer could not be parsed.
    #[error("cannot read the answer")]
    Answer(#[source] serde_json::Error),
    /// A cluster descriptor could not be read.
    #[error("cannot read the topology {}", path.display())]
    Topology {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file is not a segment.
    #[error("{} {why}", path.display())]
    NoSegment {
        /// The file.
        path: PathBuf,
        /// Why.
        why: SkipReason,
    },
    /// A segment could not be read to its end.
    #[error("cannot read the segment: {} {why}", path.display())]
    Segment {
        /// The file.
        path: PathBuf,
        /// Why.
        why: SkipReason,
    },
    /// A recorded failure could not be read.
    #[error("cannot read the failure in {}", path.display())]
    NoFailure {
        /// The file.
        path: PathBuf,
    },
    /// No thread could be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// There is nothing to read.
    #[error("no sources to read")]
    Nothing,
    /// A folder for a socket could not be created.
    #[error("cannot create {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder for a socket belongs to another user.
    #[error("{} belongs to another user", .0.display())]
    NotOurs(PathBuf),
}
