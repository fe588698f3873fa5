//! Test support. Servers and clients are real processes on real sockets; only cards are pretended.
//!
//! * [`Server`]: a `ttmem serve` of one's own.
//! * [`Client`]: a connection that speaks any vintage, as badly as asked.
//! * [`machine`]: the files of a host with cards in it, for any version of the driver.
//! * [`helper`]: processes that a test starts and controls, one request at a time; of these there are
//!   [`producer`], with a tracker in it, and [`puppet`], with a client of the old protocol.
//! * [`agent`], [`c_library`]: this workspace's libraries, as Cargo has just built them.
//! * [`Reader`]: what follows segments, in the test's own process.
//! * [`schema`]: reads and validates printed JSON.
//! * [`terminal`]: a program in a terminal of its own, and what can be seen there.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod client;
pub mod helper;
mod libraries;
pub mod machine;
pub mod producer;
pub mod puppet;
mod reader;
pub mod schema;
mod server;
pub mod terminal;

pub use client::{Client, message};
pub use libraries::{agent, c_library};
pub use reader::Reader;
pub use server::{Server, eventually, memory_folder};
