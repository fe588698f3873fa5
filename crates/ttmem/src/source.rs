//! The source of snapshots: a daemon, or a session of this program.

use crate::cli::Sockets;
use std::io::{self, Write};
use ttmem_reader::{Error, Reader, Session, raise_descriptor_limit};
use ttmem_sources::SourceConfig;

/// Opens a source. `again`: more than one snapshot will be taken; `thorough`: with details that no table shows.
pub(crate) fn open_source(sockets: &Sockets, again: bool, thorough: bool) -> anyhow::Result<Reader> {
    raise_descriptor_limit();
    let mut reader = Reader::new(&sockets.reader_options(), again, thorough)?;
    reader.report_silence(|path| {
        let _ = writeln!(
            io::stderr(),
            "ttmem: the daemon at {} does not answer; reading this machine without it",
            path.display()
        );
    });
    Ok(reader)
}

/// Opens a session of this program, even if a daemon runs.
pub(crate) fn open_session(reading: SourceConfig) -> Session {
    raise_descriptor_limit();
    Session::local(reading)
}

/// Returns the answer; or `None`, with a message on standard error, if a daemon was named and does not answer.
pub(crate) fn answer_or_report<T>(answer: Result<T, Error>) -> anyhow::Result<Option<T>> {
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
