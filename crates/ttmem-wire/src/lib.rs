//! Bytes: what crosses a border between processes, and nothing else.
//!
//! * [`legacy`]: the `AllocMessage` family of the old allocation server, in its four sizes.
//! * [`framer`]: cuts one connection's byte stream into those messages.
//! * [`record`]: the 64-byte [`record::Record`], the unit of ttmem's own formats.
//! * [`segment`]: the shared-memory file in which a process publishes itself.
//! * [`region`]: the shared-memory file in which tt-metal counts by itself, in all its layouts.
//!
//! Everything here is a pure function over byte slices: no I/O, no clock, and no allocation but in [`region`], which
//! only readers use. Sizes and offsets are asserted at compile time, because three drifting copies of one struct were
//! the old protocol's first defect.

pub mod framer;
pub mod hooks;
pub mod legacy;
pub mod record;
pub mod region;
pub mod segment;
