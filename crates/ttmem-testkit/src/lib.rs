//! Test support. Servers and clients are real processes on real sockets; only cards are pretended.
//!
//! * [`Server`]: a `ttmem serve` of one's own.
//! * [`Client`]: a connection that speaks any vintage, as badly as asked.
//! * [`machine`]: the files of a host with cards in it, for any version of the driver.
//! * [`producer`]: another process with a tracker in it.
//! * [`Reader`]: what follows segments, in the test's own process.
//! * [`puppet`]: another process with a client in it, moved by strings of text.
//! * [`schema`]: reads and validates printed JSON.
//! * [`terminal`]: a program in a terminal of its own, and what can be seen there.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod client;
pub mod machine;
pub mod producer;
pub mod puppet;
mod reader;
pub mod schema;
mod server;
pub mod terminal;

pub use client::{Client, message};
pub use reader::Reader;
pub use server::{Server, eventually, memory_folder};
