//! Answers requests from a daemon, or from a session in this process.

use crate::protocol::{AskError, Request, try_ask};
use crate::{Error, ReaderOptions, Result, Session, paths};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ttmem_core::snapshot::{Skipped, Summary};
use ttmem_core::{Detail, Snapshot};
use ttmem_sources::SourceConfig;

/// How long a daemon that was named may take to begin an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a daemon may take to begin an answer before the machine is read here instead.
const USUAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a daemon may take to answer for a live display.
const LIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a daemon that did not answer is not asked again.
const SILENCE: Duration = Duration::from_secs(10);
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
    /// The socket of a daemon that runs and does not answer, so that the machine is read here, and when it was asked.
    silent: Option<(PathBuf, Instant)>,
    /// Called with it when that begins.
    report_silence: Option<fn(&Path)>,
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
            silent: None,
            report_silence: None,
        })
    }

    /// Sets what is called with the socket of a daemon that does not answer, when the machine is read here instead.
    pub fn report_silence(&mut self, report: fn(&Path)) {
        self.report_silence = Some(report);
    }

    /// A reader of one segment.
    pub fn of_segment(path: &Path) -> Result<Self> {
        let session = Some(Session::of_segment(path)?);
        let (options, config, answered, silent, report_silence) = Default::default();
        Ok(Self { options, config, session, timeout: TIMEOUT, answered, silent, report_silence })
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
        // The display shows where the snapshot is from.
        (self.timeout, self.report_silence) = (LIVE_TIMEOUT, None);
        match self.ask_daemon(&Request::Snapshot(detail.clone()))? {
            Some(answer) => {
                self.answered = Some(Instant::now());
                Ok((parse_snapshot(&answer)?, "via daemon"))
            }
            None if self.answered.is_some_and(|at| at.elapsed() < FALLBACK_GRACE) => Err(Error::Silent),
            None => {
                let source = if self.silent.is_some() { "local, daemon does not answer" } else { "local" };
                Ok((self.refresh()?.snapshot(detail), source))
            }
        }
    }

    /// Asks a daemon. `None`: no socket was given and none of the usual ones answers, so the machine is read here.
    fn ask_daemon(&mut self, request: &Request) -> Result<Option<Vec<u8>>> {
        let Some(options) = self.options.as_ref().filter(|options| !options.is_local()) else {
            return Ok(None);
        };
        if let Some(path) = &options.query_socket {
            return match try_ask(path, request, self.timeout) {
                Ok(answer) => Ok(Some(answer)),
                Err(AskError::Silent(e)) if is_absent(&e) => Err(Error::NoDaemon(path.clone())),
                Err(AskError::Silent(source) | AskError::Failed(source)) => {
                    Err(Error::Ask { path: path.clone(), source })
                }
            };
        }
        if self.silent.as_ref().is_some_and(|(_, asked)| asked.elapsed() < SILENCE) {
            return Ok(None);
        }
        let before = self.silent.take();
        for path in paths::query_sockets_to_ask() {
            match try_ask(&path, request, self.timeout.min(USUAL_TIMEOUT)) {
                Ok(answer) => {
                    (self.session, self.silent) = (None, None);
                    return Ok(Some(answer));
                }
                // A usual socket that this user may not use counts as none.
                Err(AskError::Silent(e)) if is_absent(&e) || e.kind() == io::ErrorKind::PermissionDenied => {}
                Err(AskError::Silent(_)) => self.silent = Some((path, Instant::now())),
                Err(AskError::Failed(source)) => return Err(Error::Ask { path, source }),
            }
        }
        if let (Some((path, _)), None, Some(report)) = (&self.silent, before, self.report_silence) {
            report(path);
        }
        Ok(None)
    }

    /// Refreshes the session, which the first call creates.
    fn refresh(&mut self) -> Result<&mut Session> {
        if let (None, Some(config)) = (&self.session, &self.config) {
            self.session = Some(Session::local(config.clone()));
        }
        let session = self.session.as_mut().ok_or(Error::Nothing)?;
        session.refresh();
        session.silent_daemon = self.silent.as_ref().map(|(path, _)| Skipped {
            path: path.display().to_string(),
            reason: "did not begin to answer within 1 s; the machine is read without this daemon".to_owned(),
        });
        Ok(session)
    }
}

/// Whether no daemon runs there.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
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
