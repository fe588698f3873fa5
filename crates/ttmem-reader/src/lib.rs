//! Reads how much memory is used and by which process: from a daemon, or from the machine's own files.
//!
//! ```text
//! Sources ──► Session: State, ProcessTable ──► Snapshot, Listing
//!                │ protocol: Request, answers
//! daemon ◄───────┴───────► Reader: asks a daemon, or refreshes a session of its own
//! ```
//!
//! [`Reader`] answers requests, whether a daemon runs or not. [`Session`] reads the machine in this process; the daemon is built
//! on it. [`protocol`] is the query protocol, [`ReaderOptions`] has the paths. Nothing here prints, and no chip is opened.

mod error;
mod events;
mod isolated;
pub mod json;
pub mod old_log;
mod options;
pub mod paths;
mod postmortem;
mod processes;
pub mod protocol;
mod reader;
mod session;
mod wall_clock;

pub use error::{Error, Result};
pub use events::{EventConsumer, EventLine, EventQuery, EventStream, StreamStatus, hex, process_event};
pub use isolated::{Follower, ask_isolated};
pub use options::{ReaderOptions, host};
pub use postmortem::{FailureQuery, find_post_mortem, post_mortem_of, post_mortems};
pub use processes::{ProcessKey, ProcessTable, TrackedProcess};
pub use protocol::{Dump, Request};
pub use reader::Reader;
pub use session::{RESCAN_ON_REQUEST_NS, Session, SessionChange, raise_descriptor_limit};
