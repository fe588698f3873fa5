//! Test support. Servers and clients are real processes on real sockets; only cards are simulated.
//!
//! * [`Server`]: a private `ttmem serve`.
//! * [`Client`]: a connection that speaks any vintage of the old protocol, correctly or not.
//! * [`machine`]: the files of a host with cards, for any version of the driver.
//! * [`helper`]: processes that a test starts and controls, one request at a time: those of [`producer`] have a tracker,
//!   those of [`puppet`] a client of the old protocol.
//! * [`agent`], [`c_library`]: this workspace's libraries, as Cargo has just built them.
//! * [`Reader`]: follows segments in the test's own process.
//! * [`schema`]: reads and validates printed JSON.
//! * [`terminal`]: runs a program in a pseudo-terminal, and reads its screen.
#![allow(clippy::unwrap_used, reason = "a test whose setup fails should stop")]

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
