//! How much memory is used, and by whom, as the daemon says it or as the machine's own files do.
//!
//! [`Source`] answers as a daemon does, whether there is one or not. [`Local`] is the machine and what processes publish,
//! read by this very process. [`Places`] says where all of that is. Nothing here prints, and no chip is ever opened.

mod apart;
mod error;
mod local;
pub mod paths;
mod places;
mod source;

pub use apart::ask_apart;
pub use error::{Error, Result};
pub use local::{Local, allow_many_files};
pub use places::{Places, host};
pub use source::Source;
pub use ttmem_core::snapshot::Dump;
pub use ttmem_daemon::query::Request;
