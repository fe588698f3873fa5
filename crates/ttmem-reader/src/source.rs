//! Where figures come from: a daemon, or this process itself.

use crate::protocol::{Request, ask_within};
use crate::{Error, Places, Result, Session, paths};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use ttmem_core::snapshot::Summary;
use ttmem_core::{Detail, Snapshot};
use ttmem_sources::SourceConfig;

/// How long a daemon may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a daemon may take where somebody watches.
const WATCHED_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after a daemon's last answer nothing is read here instead: it may be about to come back.
const FALLBACK_GRACE: Duration = Duration::from_secs(5);

/// Answers requests as a daemon does.
pub struct Source {
    places: Option<Places>,
    reading: Option<SourceConfig>,
    /// Kept from one request to the next, so that only what is new must be read.
    session: Option<Session>,
    timeout: Duration,
    /// When a daemon last answered.
    answered: Option<Instant>,
}

impl Source {
    /// `again`: there will be more than one look; `thorough`: more is wanted than fits into a table.
    pub fn new(places: &Places, again: bool, thorough: bool) -> Result<Self> {
        let reading = SourceConfig { repeated: again, thorough, ..places.reading()? };
        Ok(Self {
            places: Some(places.clone()),
            reading: Some(reading),
            session: None,
            timeout: TIMEOUT,
            answered: None,
        })
    }

    /// One segment, and nothing else.
    pub fn of_file(path: &Path) -> Result<Self> {
        let session = Some(Session::of_file(path)?);
        Ok(Self { places: None, reading: None, session, timeout: TIMEOUT, answered: None })
    }

    /// The answer, one line of JSON.
    pub fn ask(&mut self, request: &Request) -> Result<Vec<u8>> {
        match self.ask_daemon(request)? {
            Some(answer) => Ok(answer),
            None => self.refresh()?.answer(request),
        }
    }

    /// A snapshot, however it comes about.
    pub fn snapshot(&mut self, detail: &Detail) -> Result<Snapshot> {
        match self.ask_daemon(&Request::Snapshot(detail.clone()))? {
            Some(answer) => parse_snapshot(&answer),
            None => Ok(self.refresh()?.snapshot(detail)),
        }
    }

    /// The same for those who watch: nothing takes long, and a daemon that answered before gets a moment to come back. Also
    /// says whose word it is.
    pub fn watched(&mut self, detail: &Detail) -> Result<(Snapshot, &'static str)> {
        self.timeout = WATCHED_TIMEOUT;
        match self.ask_daemon(&Request::Snapshot(detail.clone()))? {
            Some(answer) => {
                self.answered = Some(Instant::now());
                Ok((parse_snapshot(&answer)?, "via daemon"))
            }
            None if self.answered.is_some_and(|at| at.elapsed() < FALLBACK_GRACE) => Err(Error::Silent),
            None => Ok((self.refresh()?.snapshot(detail), "local")),
        }
    }

    /// A daemon's answer. `None`: none was named and none answers, so the machine is read here.
    fn ask_daemon(&mut self, request: &Request) -> Result<Option<Vec<u8>>> {
        let Some(places) = self.places.as_ref().filter(|places| !places.is_local()) else {
            return Ok(None);
        };
        let paths = places.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]);
        for path in &paths {
            match ask_within(path, request, self.timeout) {
                Ok(answer) => {
                    self.session = None;
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

    /// Reads what is new on the machine.
    fn refresh(&mut self) -> Result<&mut Session> {
        if let (None, Some(reading)) = (&self.session, &self.reading) {
            self.session = Some(Session::local(reading.clone()));
        }
        let session = self.session.as_mut().ok_or(Error::Nothing)?;
        session.refresh();
        Ok(session)
    }
}

fn parse_snapshot(answer: &[u8]) -> Result<Snapshot> {
    let mut snapshot: Snapshot = serde_json::from_slice(answer).map_err(Error::Answer)?;
    // An older daemon's processes have no summaries.
    let devices = &snapshot.devices;
    let index_of = |id: &str| devices.iter().find(|it| it.id == id).map(|it| it.index);
    for process in snapshot.processes.iter_mut().filter(|it| it.summary == Summary::default()) {
        process.summarise(index_of);
    }
    Ok(snapshot)
}
