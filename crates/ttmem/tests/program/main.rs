//! The whole program, tested from outside: real servers, sockets and processes.
#![allow(clippy::unwrap_used, missing_docs)]

mod acceptance;
mod bad_input;
mod blocks;
mod call_sites;
mod command_line;
mod containers;
mod cores;
mod counters;
mod defects;
mod defects_machine;
mod doctor;
mod dump;
mod events;
mod fit;
mod flood;
mod leaks;
mod machine;
mod old_tools;
mod pages;
mod privacy;
mod processes;
mod resets;
mod run;
mod segment_files;
mod segments;
mod service;
mod simulated;
mod smi;
mod source_words;
mod streams;
mod table;
mod terminal;
mod transport;
mod unknown;
mod users;
mod words;

use std::path::Path;
use ttmem_core::snapshot::{Finding, FindingKind};
use ttmem_testkit::Server;

/// Not a test, but the process that tests control; see `ttmem_testkit::helper`.
#[test]
fn helper() {
    ttmem_testkit::helper::run_if_asked();
}

fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ttmem"))
}

/// A server with eight simulated Wormhole devices.
fn server() -> Server {
    Server::start(exe(), &["--sim", "t3k"])
}

fn finding(server: &Server, kind: FindingKind) -> Option<Finding> {
    server.snapshot().findings.into_iter().find(|finding| finding.kind == kind)
}

/// Copies the test binary or the program to the folder of a server, where any user can run it.
fn copy_program(original: &Path, to: &Server) -> std::path::PathBuf {
    let copy = to.folder.path().join(original.file_name().unwrap());
    // With `cp`: if this process wrote the file, a child that another test starts now would inherit the descriptor, and a
    // file that is open for writing cannot be run.
    assert!(std::process::Command::new("cp").arg(original).arg(&copy).status().unwrap().success());
    copy
}

const DRAM: u8 = ttmem_types::BufferType::Dram as u8;
const L1: u8 = ttmem_types::BufferType::L1 as u8;
const HOST: u8 = ttmem_types::BufferType::SystemMemory as u8;
const L1_SMALL: u8 = ttmem_types::BufferType::L1Small as u8;
const TRACE: u8 = ttmem_types::BufferType::Trace as u8;
const MIB: u64 = 1 << 20;
/// Runs a command as a user other than root.
const AS_OTHER_USER: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
