//! Facts and figures: input from sources becomes snapshots.
//!
//! ```text
//! Input ──► State::apply (facts) ──► Analysis (figures) ──► Snapshot
//! ```
//!
//! The core is a pure function of its input. It has no clock (`now` is an argument), reads no file, starts no thread and
//! iterates over nothing in random order, so that a test is a loop and a bug report a recording.
//!
//! * [`words`]: chips, spaces, processes, bases.
//! * [`input`]: input from sources; [`machine`]: input about the machine.
//! * [`State`]: facts, kept exact under any order of input. Serialised, it is a keyframe.
//! * [`Analysis`]: figures that follow from a state.
//! * [`snapshot`]: what views show, and the JSON schema; [`detail`]: what of it can be requested; [`Viewer`]: who may see what of it.

mod analysis;
mod core_set;
pub mod detail;
mod event_log;
mod faults;
mod growth;
mod history;
pub mod input;
mod label;
mod ledger;
pub mod machine;
mod pairs;
mod printable;
mod ranges;
mod sites;
pub mod snapshot;
mod state;
#[cfg(test)]
mod testing;
mod viewer;
pub mod words;

pub use analysis::{Analysis, End, Fit, FitAnswer, FitContext, FitRequest, FitSize, fit};
pub use core_set::CoreSet;
pub use detail::Detail;
pub use input::Input;
pub use printable::is_unprintable;
pub use snapshot::Snapshot;
pub use state::{Limits, Outcome, REPORT_ROOM, Reclaimed, State};
pub use viewer::{Access, Viewer};
