//! Where figures come from: a daemon, or this program itself.

use crate::cli::Sockets;
use crate::local::Local;
use crate::paths;
use anyhow::Context;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ttmem_core::snapshot::Summary;
use ttmem_core::{Detail, Snapshot};
use ttmem_daemon::query::{Request, ask_within};
use ttmem_sources::Reading;

/// How long a daemon may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where somebody watches.
const WATCHED_PATIENCE: Duration = Duration::from_secs(2);
/// A daemon that answered and does not any more may be about to come back: so long nobody else is believed.
const LOYALTY: Duration = Duration::from_secs(5);

/// Answers requests as a daemon does.
pub(crate) struct Source {
    sockets: Option<Sockets>,
    reading: Option<Reading>,
    /// Kept from one look to the next, so that only what is new must be read.
    local: Option<Local>,
    patience: Duration,
    /// When a daemon last answered.
    answered: Option<Instant>,
}

impl Source {
    /// `again`: there will be more than one look; `thorough`: more is wanted than fits into a table.
    pub(crate) fn new(sockets: &Sockets, again: bool, thorough: bool) -> anyhow::Result<Self> {
        let reading = Reading { again, thorough, ..sockets.reading()? };
        Ok(Self {
            sockets: Some(sockets.clone()),
            reading: Some(reading),
            local: None,
            patience: PATIENCE,
            answered: None,
        })
    }

    /// One segment, and nothing else.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Self> {
        let local = Some(Local::of_file(path)?);
        Ok(Self { sockets: None, reading: None, local, patience: PATIENCE, answered: None })
    }

    /// The answer, one line of JSON; `None` (and a word on standard error) if a daemon was named and there is none.
    pub(crate) fn ask(&mut self, request: &Request) -> anyhow::Result<Option<Vec<u8>>> {
        match self.heard(request)? {
            Heard::Answer(answer) => Ok(Some(answer)),
            Heard::NoDaemon(path) => Ok(nobody_at(&path)),
            Heard::Nobody => {
                let local = self.look()?;
                Ok(Some(match request {
                    Request::Snapshot(detail) => serde_json::to_vec(&local.snapshot(detail))?,
                    Request::Allocations => serde_json::to_vec(&local.allocations())?,
                }))
            }
        }
    }

    /// A snapshot, however it comes about; `None` as above.
    pub(crate) fn snapshot(&mut self, detail: &Detail) -> anyhow::Result<Option<Snapshot>> {
        match self.heard(&Request::Snapshot(detail.clone()))? {
            Heard::Answer(answer) => Ok(Some(understand(&answer)?)),
            Heard::NoDaemon(path) => Ok(nobody_at(&path)),
            Heard::Nobody => Ok(Some(self.look()?.snapshot(detail))),
        }
    }

    /// The same for those who watch: nothing is printed, nothing takes long, and a daemon that answered before gets a moment to
    /// come back. Also says whose word it is.
    pub(crate) fn watched(&mut self, detail: &Detail) -> anyhow::Result<(Snapshot, &'static str)> {
        self.patience = WATCHED_PATIENCE;
        match self.heard(&Request::Snapshot(detail.clone()))? {
            Heard::Answer(answer) => {
                self.answered = Some(Instant::now());
                Ok((understand(&answer)?, "by the daemon"))
            }
            Heard::NoDaemon(path) => anyhow::bail!("no daemon answers at {}", path.display()),
            Heard::Nobody if self.answered.is_some_and(|at| at.elapsed() < LOYALTY) => {
                anyhow::bail!("the daemon does not answer any more")
            }
            Heard::Nobody => Ok((self.look()?.snapshot(detail), "read here")),
        }
    }

    fn heard(&mut self, request: &Request) -> anyhow::Result<Heard> {
        let Some(sockets) = self.sockets.as_ref().filter(|sockets| !sockets.is_local()) else {
            return Ok(Heard::Nobody);
        };
        let paths = sockets.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]);
        for path in &paths {
            match ask_within(path, request, self.patience) {
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
        Ok(sockets.query_socket.clone().map_or(Heard::Nobody, Heard::NoDaemon))
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

/// What came of asking daemons.
enum Heard {
    Answer(Vec<u8>),
    /// None was named, and none answers: we look ourselves.
    Nobody,
    /// The one that was named does not answer.
    NoDaemon(PathBuf),
}

fn understand(answer: &[u8]) -> anyhow::Result<Snapshot> {
    let mut snapshot: Snapshot = serde_json::from_slice(answer).context("cannot read the answer")?;
    // An older daemon's processes have no summaries.
    let devices = &snapshot.devices;
    let index_of = |id: &str| devices.iter().find(|it| it.id == id).map(|it| it.index);
    for process in snapshot.processes.iter_mut().filter(|it| it.summary == Summary::default()) {
        process.summarise(index_of);
    }
    Ok(snapshot)
}

fn nobody_at<T>(path: &Path) -> Option<T> {
    let _ = writeln!(
        io::stderr(),
        "ttmem: no daemon answers at {}\n       \
         start one with `ttmem serve`, look without one with `ttmem --local`, or try `ttmem demo`",
        path.display()
    );
    None
}
