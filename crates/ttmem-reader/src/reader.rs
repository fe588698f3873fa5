//! Answers requests from a daemon, or from a session in this process.

use crate::protocol::{Request, ask_within};
use crate::{Error, ReaderOptions, Result, Session, paths};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use ttmem_core::snapshot::Summary;
use ttmem_core::{Detail, Snapshot};
use ttmem_sources::SourceConfig;

/// How long a daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a daemon may take to answer for a live display.
const LIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after a daemon's last answer the machine is not read here instead: the daemon may be restarting.
const FALLBACK_GRACE: Duration = Duration::from_secs(5);

/// Answers requests as a daemon does. Asks a daemon if one runs, and reads the machine otherwise.
pub struct Reader {
    options: Option<ReaderOptions>,
    config: Option<SourceConfig>,
    /// Kept between requests, so that only changes are read.
    session: Option<Session>,
    timeout: Duration,
    /// When a daemon last answered.
    answered: Option<Instant>,
}

impl Reader {
    /// A reader of a machine. `repeated`: more than one request will follow; `thorough`: all sensors are read, not only those
    /// that a table shows.
    pub fn new(options: &ReaderOptions, repeated: bool, thorough: bool) -> Result<Self> {
        let config = SourceConfig { repeated, thorough, ..options.source_config()? };
        Ok(Self {
            options: Some(options.clone()),
            config: Some(config),
            session: None,
            timeout: TIMEOUT,
            answered: None,
        })
    }

    /// A reader of one segment.
    pub fn of_segment(path: &Path) -> Result<Self> {
        let session = Some(Session::of_segment(path)?);
        Ok(Self { options: None, config: None, session, timeout: TIMEOUT, answered: None })
    }

    /// Answers a request with one line of JSON.
    pub fn ask(&mut self, request: &Request) -> Result<Vec<u8>> {
        match self.ask_daemon(request)? {
            Some(answer) => Ok(answer),
            None => self.refresh()?.answer(request),
        }
    }

    /// Takes a snapshot.
    pub fn snapshot(&mut self, detail: &Detail) -> Result<Snapshot> {
        match self.ask_daemon(&Request::Snapshot(detail.clone()))? {
            Some(answer) => parse_snapshot(&answer),
            None => Ok(self.refresh()?.snapshot(detail)),
        }
    }

    /// Takes a snapshot for a live display: a daemon must answer soon, and one that answered before gets a few seconds to
    /// restart. Also returns where the snapshot is from.
    pub fn live_snapshot(&mut self, detail: &Detail) -> Result<(Snapshot, &'static str)> {
        self.timeout = LIVE_TIMEOUT;
        match self.ask_daemon(&Request::Snapshot(detail.clone()))? {
            Some(answer) => {
                self.answered = Some(Instant::now());
                Ok((parse_snapshot(&answer)?, "via daemon"))
            }
            None if self.answered.is_some_and(|at| at.elapsed() < FALLBACK_GRACE) => Err(Error::Silent),
            None => Ok((self.refresh()?.snapshot(detail), "local")),
        }
    }

    /// Asks a daemon. `None`: no socket was given and none of the usual ones answers, so the machine is read here.
    fn ask_daemon(&mut self, request: &Request) -> Result<Option<Vec<u8>>> {
        let Some(options) = self.options.as_ref().filter(|options| !options.is_local()) else {
            return Ok(None);
        };
        let paths = options.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]);
        for path in &paths {
            match ask_within(path, request, self.timeout) {
                Ok(answer) => {
                    self.session = None;
                    return Ok(Some(answer));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
                // A usual socket that this user may not use counts as none.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && options.query_socket.is_none() => {}
                Err(source) => return Err(Error::Ask { path: path.clone(), source }),
            }
        }
        options.query_socket.clone().map_or(Ok(None), |path| Err(Error::NoDaemon(path)))
    }

    /// Refreshes the session, which the first call creates.
    fn refresh(&mut self) -> Result<&mut Session> {
        if let (None, Some(config)) = (&self.session, &self.config) {
            self.session = Some(Session::local(config.clone()));
        }
        let session = self.session.as_mut().ok_or(Error::Nothing)?;
        session.refresh();
        Ok(session)
    }
}

fn parse_snapshot(answer: &[u8]) -> Result<Snapshot> {
    let mut snapshot: Snapshot = serde_json::from_slice(answer).map_err(Error::Answer)?;
    // Snapshots of older daemons lack the summaries of processes.
    let devices = &snapshot.devices;
    let index_of = |id: &str| devices.iter().find(|it| it.id == id).map(|it| it.index);
    for process in snapshot.processes.iter_mut().filter(|it| it.summary == Summary::default()) {
        process.summarise(index_of);
    }
    Ok(snapshot)
}
