//! Reads events one after the other: from a daemon, or from segments that this process follows.

use super::{EventConsumer, EventQuery};
use crate::protocol::{EVENTS_END, Request, connect};
use crate::{Error, ReaderOptions, Result, Session, paths};
use jiff::Timestamp;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use ttmem_core::snapshot::MemoryEvent;
use ttmem_core::words::Mono;
use ttmem_sources::{RecentRecords, SourceConfig};

/// How long a daemon may take to accept the request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes read from a daemon at a time.
const BUFFER: usize = 256 << 10;
/// Longest time between two polls: new segments are found this soon.
const IDLE_POLL: Duration = Duration::from_millis(50);
/// Longest time between two polls while a writer is busy, since it may become faster.
const BUSY_POLL: Duration = Duration::from_millis(10);
/// Time between two rescans, which find the folders of new containers.
const RESCAN_NS: u64 = 5 * Mono::SECOND;
/// Records listed at a time.
const PIECE: usize = 4096;

/// An event: as a daemon sent it, or as this process read it.
#[expect(clippy::large_enum_variant, reason = "there is one of them at a time")]
pub enum EventLine<'a> {
    /// One line of JSON, without its newline.
    Json(&'a [u8]),
    /// The event.
    Event(MemoryEvent),
}

/// Whether more events may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStatus {
    /// More events may follow.
    Open,
    /// All events were read.
    Ended,
}

/// A stream of events.
pub struct EventStream(Origin);

#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum Origin {
    Daemon(DaemonEvents),
    Local(LocalEvents),
}

impl EventStream {
    /// Asks a daemon if one runs, and follows the machine's segments otherwise.
    pub fn open(options: &ReaderOptions, query: EventQuery) -> Result<Self> {
        if !options.is_local()
            && let Some(daemon) = DaemonEvents::connect(options, &query)?
        {
            return Ok(Self(Origin::Daemon(daemon)));
        }
        let config = SourceConfig { repeated: true, thorough: false, ..options.source_config()? };
        Ok(Self(Origin::Local(LocalEvents::new(config, query))))
    }

    /// Reads the next events, and waits for them at most this long. Events of one process are in order.
    pub fn read(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(EventLine<'_>) -> Result<()>,
    ) -> Result<StreamStatus> {
        match &mut self.0 {
            Origin::Daemon(daemon) => daemon.read(timeout, take),
            Origin::Local(local) => local.read(timeout, take),
        }
    }
}

/// The events that a daemon sends.
struct DaemonEvents {
    path: PathBuf,
    stream: UnixStream,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were received and not taken yet.
    filled: usize,
}

impl DaemonEvents {
    /// Sends the request. `None`: no socket was given and none of the usual ones answers.
    fn connect(options: &ReaderOptions, query: &EventQuery) -> Result<Option<Self>> {
        let paths = options.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]);
        for path in paths {
            match Self::send(&path, query) {
                Ok(stream) => {
                    return Ok(Some(Self { path, stream, buffer: vec![0; BUFFER], filled: 0 }));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
                // A usual socket that this user may not use counts as none.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && options.query_socket.is_none() => {}
                Err(source) => return Err(Error::Ask { path, source }),
            }
        }
        options.query_socket.clone().map_or(Ok(None), |path| Err(Error::NoDaemon(path)))
    }

    fn send(path: &std::path::Path, query: &EventQuery) -> io::Result<UnixStream> {
        let mut stream = connect(path)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut line = serde_json::to_vec(&Request::Events(query.clone()))?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(stream)
    }

    fn read(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(EventLine<'_>) -> Result<()>,
    ) -> Result<StreamStatus> {
        let failed = |source| Error::Ask { path: self.path.clone(), source };
        if self.filled == self.buffer.len() {
            // A line is longer than that.
            self.buffer.resize(self.filled * 2, 0);
        }
        self.stream.set_read_timeout(Some(timeout.max(Duration::from_millis(1)))).map_err(failed)?;
        let len = match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => return Err(failed(io::Error::from(io::ErrorKind::UnexpectedEof))),
            Ok(len) => len,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(StreamStatus::Open);
            }
            Err(e) => return Err(failed(e)),
        };
        self.filled += len;
        let (mut begin, mut status) = (0, StreamStatus::Open);
        while let Some(end) = self.buffer[begin..self.filled].iter().position(|&b| b == b'\n') {
            let line = &self.buffer[begin..begin + end];
            begin += end + 1;
            if line.starts_with(EVENTS_END) {
                status = StreamStatus::Ended;
            } else if line.starts_with(b"{\"error\"") {
                return Err(failed(crate::protocol::parse_error(line)));
            } else {
                take(EventLine::Json(line))?;
            }
        }
        self.buffer.copy_within(begin..self.filled, 0);
        self.filled -= begin;
        Ok(status)
    }
}

/// The events of segments that this process follows.
struct LocalEvents {
    session: Session,
    query: EventQuery,
    /// What is left of the records that the rings held at first.
    listing: Option<RecentRecords>,
    /// When segments are polled next.
    next_poll: Option<Mono>,
}

impl LocalEvents {
    fn new(config: SourceConfig, mut query: EventQuery) -> Self {
        let mut session = Session::local(config);
        session.update_clock();
        let due = session.poll(None);
        let lists = !query.follow || query.since.is_some();
        let listing = if lists { session.recent_records() } else { None };
        if query.follow {
            // Rings of segments that are found later may hold older events.
            query.since.get_or_insert_with(Timestamp::now);
        }
        let next_poll = Some(next_poll(session.now(), due));
        Self { session, query, listing, next_poll }
    }

    fn read(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(EventLine<'_>) -> Result<()>,
    ) -> Result<StreamStatus> {
        let mut result = Ok(());
        let query = &self.query;
        let mut take_event = |event: MemoryEvent, is_new: bool| {
            let matches = if is_new { query.matches_new(&event) } else { query.matches(&event) };
            if result.is_ok() && matches {
                result = take(EventLine::Event(event));
            }
        };
        if let Some(listing) = &mut self.listing {
            let mut take_listed = |event| take_event(event, false);
            if self.session.list_recent(listing, PIECE, query.since, &mut take_listed) {
                self.listing = None;
            }
            result?;
            let is_over = self.listing.is_none() && !self.query.follow;
            return Ok(if is_over { StreamStatus::Ended } else { StreamStatus::Open });
        }
        if !self.query.follow {
            return Ok(StreamStatus::Ended);
        }
        self.session.update_clock();
        let wait = self.next_poll.map_or(0, |at| at.since(self.session.now()));
        std::thread::sleep(Duration::from_nanos(wait).min(timeout));
        self.session.update_clock();
        for process in self.session.processes().exited() {
            let consumer = EventConsumer { take: &mut take_event, levels: query.levels };
            self.session.end_process(process, Some(consumer));
        }
        self.session.rescan_if_due(RESCAN_NS);
        let consumer = EventConsumer { take: &mut take_event, levels: query.levels };
        let due = self.session.poll(Some(consumer));
        let consumer = EventConsumer { take: &mut take_event, levels: query.levels };
        self.session.end_superseded(Some(consumer));
        self.next_poll = Some(next_poll(self.session.now(), due));
        result.map(|()| StreamStatus::Open)
    }
}

/// When segments are polled next, if a ring must be read again at `due`.
fn next_poll(now: Mono, due: Option<Mono>) -> Mono {
    let longest = if due.is_some() { BUSY_POLL } else { IDLE_POLL };
    let latest = Mono(now.0 + longest.as_nanos() as u64);
    due.map_or(latest, |due| due.min(latest))
}
