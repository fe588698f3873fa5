//! Why there is nothing to show.

use std::io;
use std::path::PathBuf;
use ttmem_sources::SkipReason;

/// What a reader gives.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be read. Each is a fragment; what was behind it is its source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A daemon was named, and none answers there.
    #[error("no daemon answers at {}", .0.display())]
    NoDaemon(PathBuf),
    /// A daemon answered before, and does not now.
    #[error("the daemon stopped answering")]
    Silent,
    /// A daemon is there and could not be asked.
    #[error("cannot query the daemon at {}", path.display())]
    Ask {
        /// Its socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It answered something else.
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
    /// A file is no segment.
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
    /// No thread could be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// There is nothing that could be looked at again.
    #[error("no sources to read")]
    Nothing,
    /// A folder for a socket could not be made.
    #[error("cannot create {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder for a socket is not ours.
    #[error("{} belongs to another user", .0.display())]
    NotOurs(PathBuf),
}
