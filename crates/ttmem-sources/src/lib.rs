//! Reads the machine: what processes publish, and what the kernel says of them.
//!
//! ```text
//! folders with segments ──► place: finds and opens them ──► segment: exact copies ──► follow: events
//!                             process: whose they are, and whether they live
//! ```
//!
//! Everything read is untrusted: files are opened without following anything, read with `pread`, and checked before they
//! are believed.

mod follow;
mod lock;
mod owner;
mod place;
pub mod process;
mod segment;
mod segments;

pub use owner::Owner;
pub use segment::{Contents, SegmentFile, Skip};
pub use segments::{Keep, Listener, Segments};
