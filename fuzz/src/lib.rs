//! Fuzz targets: each takes any bytes and panics if what it checks does not hold.
//!
//! `src/bin` hands them to libFuzzer (`cargo xtask fuzz`); `tests/replay.rs` gives them the inputs in `corpus` and a
//! fixed sequence of pseudo-random ones, which is what CI runs. An input that once failed belongs in `corpus`.
#![allow(clippy::unwrap_used, reason = "a panic is how a target reports a failure")]

mod framer;
mod ledger;
mod query;
mod region;
mod segment;

pub use framer::framer;
pub use ledger::ledger;
pub use query::query;
pub use region::region;
pub use segment::segment;
