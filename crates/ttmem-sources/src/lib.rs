//! Reads the machine: its chips, the segments that processes publish, tt-metal's counters, and procfs.
//!
//! ```text
//! /sys/class/tenstorrent ──► bus: chips ──┬► sensors: read by a worker pool
//!        topology, board ─────────────────┘└► device_users: processes that have chips open
//! shm, listing ──┬► segments: exact copies ──► follower: events
//!                └► counters: tt-metal's own
//!                   writer, process, exit_watch, container: which process, and whether it is alive
//! ```
//!
//! [`Sources`] is all of it. Everything read is untrusted: files are opened without following links (`files`), read with
//! `pread`, and checked before use. Device nodes are never opened.

mod attribute;
pub mod board;
mod bus;
mod cards;
mod clock;
mod container;
mod counters;
mod device_users;
mod event_sink;
mod exit_watch;
mod failures;
mod files;
mod follower;
mod listing;
mod lock;
mod pace;
pub mod process;
mod root;
mod segment;
mod segments;
mod sensors;
mod shm;
mod sources;
mod symbols;
pub mod topology;
mod worker_pool;
mod writer;

pub use attribute::{NOT_SHOWN, RESETTING};
pub use cards::{Card, cards};
pub use clock::monotonic;
pub use counters::CounterFile;
pub use event_sink::{EventSink, SegmentEvent, SegmentGap, SegmentRecord};
pub use exit_watch::ExitWatch;
pub use failures::{FailureFile, Reached, WhichFailure, emit_failure};
pub use files::{Filesystem, SkipReason, filesystem_of};
pub use process::ProcessIdentity;
pub use root::Root;
pub use segment::{Contents, SegmentFile};
pub use segments::{RecentRecords, Retention, emit_segment};
pub use sources::{SourceConfig, Sources};
