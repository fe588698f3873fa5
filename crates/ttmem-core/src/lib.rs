//! Meaning: what happened on the machine becomes what a person sees.
//!
//! ```text
//! Event ──► State::apply ──► ledger, findings, history ──► State::snapshot ──► Snapshot
//! ```
//!
//! The core is a pure function of its input. It has no clock (`now` is an argument), reads no file, starts no
//! thread and iterates over nothing in random order, so that a test is a loop and a bug report a recording.
//!
//! * [`words`]: the names of things: chips, spaces, processes, bases.
//! * [`event`]: what sources say; [`machine`]: what they say of the machine.
//! * [`State`]: who holds what, kept exact under any order of events.
//! * [`snapshot`]: what views show, and the JSON schema; [`detail`]: what of it may be asked for.

mod buffers;
mod core_allocations;
mod cores;
pub mod detail;
pub mod event;
mod event_log;
mod findings;
mod footprint;
mod history;
mod judgement;
mod label;
mod ledger;
pub mod machine;
mod peaks;
mod plan;
mod program_list;
mod programs;
mod ranges;
mod skyline;
pub mod snapshot;
mod state;
mod traces;
mod usage;
mod view;
pub mod words;

pub use detail::Detail;
pub use event::Event;
pub use footprint::CoreSet;
pub use snapshot::Snapshot;
pub use state::{Limits, Outcome, Reclaimed, State};
pub use view::REPORT_ROOM;
