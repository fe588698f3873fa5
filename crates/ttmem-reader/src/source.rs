//! Where figures come from: a daemon, or this process itself.

use crate::{Error, Local, Places, Result, paths};
use std::io;
use std::path::Path;
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
pub struct Source {
    places: Option<Places>,
    reading: Option<Reading>,
    /// Kept from one look to the next, so that only what is new must be read.
    local: Option<Local>,
    patience: Duration,
    /// When a daemon last answered.
    answered: Option<Instant>,
}

impl Source {
    /// `again`: there will be more than one look; `thorough`: more is wanted than fits into a table.
    pub fn new(places: &Places, again: bool, thorough: bool) -> Result<Self> {
        let reading = Reading { again, thorough, ..places.reading()? };
        Ok(Self {
            places: Some(places.clone()),
            reading: Some(reading),
            local: None,
            patience: PATIENCE,
            answered: None,
        })
    }

    /// One segment, and nothing else.
    pub fn of_file(path: &Path) -> Result<Self> {
        let local = Some(Local::of_file(path)?);
        Ok(Self { places: None, reading: None, local, patience: PATIENCE, answered: None })
    }

    /// The answer, one line of JSON.
    pub fn ask(&mut self, request: &Request) -> Result<Vec<u8>> {
        if let Some(answer) = self.heard(request)? {
            return Ok(answer);
        }
        let local = self.look()?;
        let answer = match request {
            Request::Snapshot(detail) => serde_json::to_vec(&local.snapshot(detail)),
            Request::Allocations => serde_json::to_vec(&local.allocations()),
        };
        answer.map_err(Error::Answer)
    }

    /// A snapshot, however it comes about.
    pub fn snapshot(&mut self, detail: &Detail) -> Result<Snapshot> {
        match self.heard(&Request::Snapshot(detail.clone()))? {
            Some(answer) => understand(&answer),
            None => Ok(self.look()?.snapshot(detail)),
        }
    }

    /// The same for those who watch: nothing takes long, and a daemon that answered before gets a moment to come back. Also
    /// says whose word it is.
    pub fn watched(&mut self, detail: &Detail) -> Result<(Snapshot, &'static str)> {
        self.patience = WATCHED_PATIENCE;
        match self.heard(&Request::Snapshot(detail.clone()))? {
            Some(answer) => {
                self.answered = Some(Instant::now());
                Ok((understand(&answer)?, "by the daemon"))
            }
            None if self.answered.is_some_and(|at| at.elapsed() < LOYALTY) => Err(Error::Silent),
            None => Ok((self.look()?.snapshot(detail), "read here")),
        }
    }

    /// A daemon's answer; `None`: none was named, and none answers, so we look ourselves.
    fn heard(&mut self, request: &Request) -> Result<Option<Vec<u8>>> {
        let Some(places) = self.places.as_ref().filter(|places| !places.is_local()) else {
            return Ok(None);
        };
        let paths = places.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]);
        for path in &paths {
            match ask_within(path, request, self.patience) {
                Ok(answer) => {
                    self.local = None;
                    return Ok(Some(answer));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
                // One that nobody named and that is not for us is none.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && places.query_socket.is_none() => {}
                Err(source) => return Err(Error::Ask { path: path.clone(), source }),
            }
        }
        places.query_socket.clone().map_or(Ok(None), |path| Err(Error::NoDaemon(path)))
    }

    /// Looks at the machine.
    fn look(&mut self) -> Result<&Local> {
        if let (None, Some(reading)) = (&self.local, &self.reading) {
            self.local = Some(Local::new(reading.clone()));
        }
        let Some(local) = &mut self.local else { return Err(Error::Nothing) };
        local.look();
        Ok(local)
    }
}

fn understand(answer: &[u8]) -> Result<Snapshot> {
    let mut snapshot: Snapshot = serde_json::from_slice(answer).map_err(Error::Answer)?;
    // An older daemon's processes have no summaries.
    let devices = &snapshot.devices;
    let index_of = |id: &str| devices.iter().find(|it| it.id == id).map(|it| it.index);
    for process in snapshot.processes.iter_mut().filter(|it| it.summary == Summary::default()) {
        process.summarise(index_of);
    }
    Ok(snapshot)
}
