//! Where figures come from: a daemon, or this program itself.

use crate::cli::Sockets;
use crate::local::Local;
use crate::paths;
use anyhow::Context;
use std::io::{self, Write};
use std::path::Path;
use ttmem_core::snapshot::Summary;
use ttmem_core::{Detail, Snapshot};
use ttmem_daemon::query::{Request, ask};
use ttmem_sources::Reading;

/// Answers requests as a daemon does.
pub(crate) struct Source<'a> {
    sockets: Option<&'a Sockets>,
    reading: Option<Reading>,
    /// Kept from one look to the next, so that only what is new must be read.
    local: Option<Local>,
}

impl<'a> Source<'a> {
    /// `again`: there will be more than one look; `thorough`: more is wanted than fits into a table.
    pub(crate) fn new(sockets: &'a Sockets, again: bool, thorough: bool) -> anyhow::Result<Self> {
        let reading = Reading { again, thorough, ..sockets.reading()? };
        Ok(Self { sockets: Some(sockets), reading: Some(reading), local: None })
    }

    /// One segment, and nothing else.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { sockets: None, reading: None, local: Some(Local::of_file(path)?) })
    }

    /// The answer, one line of JSON; `None` (and a word on standard error) if a daemon was named and there is none.
    pub(crate) fn ask(&mut self, request: &Request) -> anyhow::Result<Option<Vec<u8>>> {
        match self.heard(request)? {
            Heard::Answer(answer) => Ok(Some(answer)),
            Heard::NoDaemon => Ok(None),
            Heard::Nobody => {
                let local = self.look()?;
                Ok(Some(match request {
                    Request::Snapshot(detail) => serde_json::to_vec(&local.snapshot(detail))?,
                    Request::Allocations => serde_json::to_vec(&local.allocations())?,
                }))
            }
        }
    }

    /// A snapshot, however it comes about.
    pub(crate) fn snapshot(&mut self, detail: &Detail) -> anyhow::Result<Option<Snapshot>> {
        match self.heard(&Request::Snapshot(detail.clone()))? {
            Heard::Answer(answer) => {
                Ok(Some(completed(serde_json::from_slice(&answer).context("cannot read the answer")?)))
            }
            Heard::NoDaemon => Ok(None),
            Heard::Nobody => Ok(Some(self.look()?.snapshot(detail))),
        }
    }

    fn heard(&mut self, request: &Request) -> anyhow::Result<Heard> {
        let Some(sockets) = self.sockets.filter(|sockets| !sockets.is_local()) else {
            return Ok(Heard::Nobody);
        };
        let paths = sockets.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]);
        for path in &paths {
            match ask(path, request) {
                Ok(answer) => {
                    self.local = None;
                    return Ok(Heard::Answer(answer));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
                // One that nobody named and that is not for us is none.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && sockets.query_socket.is_none() => {}
                Err(e) => {
                    return Err(e).with_context(|| format!("cannot ask the daemon at {}", path.display()));
                }
            }
        }
        if let Some(path) = &sockets.query_socket {
            let _ = writeln!(
                io::stderr(),
                "ttmem: no daemon answers at {}\n       \
                 start one with `ttmem serve`, look without one with `ttmem --local`, or try `ttmem demo`",
                path.display()
            );
            return Ok(Heard::NoDaemon);
        }
        Ok(Heard::Nobody)
    }

    /// Looks at the machine.
    fn look(&mut self) -> anyhow::Result<&Local> {
        if let (None, Some(reading)) = (&self.local, &self.reading) {
            self.local = Some(Local::new(reading.clone()));
        }
        let Some(local) = &mut self.local else { anyhow::bail!("there is nothing to look at") };
        local.look();
        Ok(local)
    }
}

/// An older daemon's processes have no summaries.
fn completed(mut snapshot: Snapshot) -> Snapshot {
    let devices = &snapshot.devices;
    let index_of = |id: &str| devices.iter().find(|it| it.id == id).map(|it| it.index);
    for process in snapshot.processes.iter_mut().filter(|it| it.summary == Summary::default()) {
        process.summarise(index_of);
    }
    snapshot
}

/// What came of asking daemons.
enum Heard {
    Answer(Vec<u8>),
    /// None was named, and none answers: we look ourselves.
    Nobody,
    /// The one that was named does not answer.
    NoDaemon,
}
