//! How much memory is used and by which process: asked of a daemon, or read from the machine's own files.
//!
//! ```text
//! Sources ──► Session: State, ProcessTable ──► Snapshot, Listing
//!                │ protocol: Request, answers
//! daemon ◄───────┴───────► Source: asks a daemon, or refreshes a session of its own
//! ```
//!
//! [`Source`] answers requests, whether a daemon runs or not. [`Session`] is the machine and what processes publish, read by
//! this process; the daemon is built on it. [`protocol`] is the query protocol. [`Places`] says where all of that is.
//! Nothing here prints, and no chip is ever opened.

mod apart;
mod error;
pub mod paths;
mod places;
mod processes;
pub mod protocol;
mod session;
mod source;

pub use apart::ask_apart;
pub use error::{Error, Result};
pub use places::{Places, host};
pub use processes::{ProcessKey, ProcessTable, TrackedProcess};
pub use protocol::{Dump, Request};
pub use session::{Change, RESCAN_ON_REQUEST_NS, Session, raise_descriptor_limit};
pub use source::Source;
