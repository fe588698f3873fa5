//! The defects of the old system by their number in its list: a test for each shows that ttmem does not have it.

mod accounting;
mod processes;
mod protocol;
mod server;

use crate::*;
use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use ttmem_core::snapshot::Severity;
use ttmem_core::words::Basis;
use ttmem_reader::protocol::{Request, ask};
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::{Client, eventually, message};
use ttmem_wire::legacy::{Levels, MAX_SIZE, Type, Vintage};

fn client(server: &Server) -> Client {
    Client::connect(server, Vintage::V144)
}
