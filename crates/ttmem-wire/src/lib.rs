//! Byte layouts of everything that crosses a border between processes.
//!
//! * [`legacy`]: the `AllocMessage` family of the old allocation server, in its four sizes.
//! * [`framer`]: divides the byte stream of a connection into those messages.
//! * [`failure`]: a failed allocation as a record.
//! * [`mangled`]: names in mangled symbols of C++.
//! * [`refusal`]: the figures in the runtime's exceptions.
//! * [`record`]: the 64-byte [`record::Record`], the unit of ttmem's own formats.
//! * [`hooks`]: the kinds of information that the agent can get from a runtime.
//! * [`segment`]: the shared-memory file in which a process publishes its device memory.
//! * [`region`]: the shared-memory file with tt-metal's own counters, in all its layouts.
//!
//! Everything here is a pure function over byte slices: no I/O, no clock, and no heap memory except in [`region`], which only
//! readers use. Sizes and offsets are asserted at compile time, because three diverging copies of one struct were the old
//! protocol's first defect.

pub mod failure;
pub mod framer;
pub mod hooks;
pub mod legacy;
pub mod mangled;
pub mod record;
pub mod refusal;
pub mod region;
pub mod segment;
mod view_addresses;

pub use view_addresses::ViewAddresses;
