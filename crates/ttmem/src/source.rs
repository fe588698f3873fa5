//! Where this program's figures come from: a daemon, or a session of its own.

use crate::cli::Sockets;
use std::io::{self, Write};
use ttmem_reader::{Error, Reader, Session, raise_descriptor_limit};
use ttmem_sources::SourceConfig;

/// `again`: more than one snapshot will be taken; `thorough`: more is wanted than fits into a table.
pub(crate) fn source(sockets: &Sockets, again: bool, thorough: bool) -> anyhow::Result<Reader> {
    raise_descriptor_limit();
    Ok(Reader::new(&sockets.places(), again, thorough)?)
}

/// A session of this program's own, whether there is a daemon or not.
pub(crate) fn session(reading: SourceConfig) -> Session {
    raise_descriptor_limit();
    Session::local(reading)
}

/// `None`, and a message on standard error, if a daemon was named and none answers.
pub(crate) fn unless_absent<T>(answer: Result<T, Error>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(absent @ Error::NoDaemon(_)) => {
            let _ = writeln!(
                io::stderr(),
                "ttmem: {absent}; start one with `ttmem serve`, or use --local instead of --query-socket"
            );
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}
