//! Reads the machine: its chips, what processes publish, what tt-metal counts, and what the kernel says of all of them.
//!
//! ```text
//! /sys/class/tenstorrent ──► bus: chips ──► sensors: on threads of their own
//!        topology, board ──────┘   └─────► openers: who has them open
//! folders in memory ──► place ──┬► segment: exact copies ──► follow: events
//!                               └► regions: tt-metal's own counters
//!                         process, owner, container: whose they are, and whether they live
//! ```
//!
//! [`Sources`] is all of it. Everything read is untrusted: files are opened without following anything, read with
//! `pread`, and checked before they are believed. The chips' own nodes are never opened.

mod attribute;
pub mod board;
mod bus;
mod clock;
mod container;
mod crew;
mod follow;
mod inventory;
mod lock;
mod openers;
mod owner;
mod place;
pub mod process;
mod regions;
mod root;
mod segment;
mod segments;
mod sensors;
mod sources;
pub mod topology;

pub use attribute::{NOT_SHOWN, RESETTING};
pub use clock::monotonic;
pub use inventory::{Card, RegionFile, Room, cards, room};
pub use process::Owner;
pub use root::Root;
pub use segment::{Contents, SegmentFile, Skip};
pub use segments::{EventSink, Keep, tell_of};
pub use sources::{Reading, Sources};
