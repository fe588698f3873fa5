//! The query protocol: each request is one line of JSON, and so is its answer.
//!
//! The requests are `{"get":"snapshot"}`, with the fields of [`Detail`] for further detail, and `{"get":"allocations"}`. A
//! list of allocations may be too large for a server's memory, so [`Listing`] writes it piece by piece. `{"get":"report"}` is answered
//! with the peaks of processes. `{"get":"events"}`, with the fields of [`EventQuery`], is answered with one line for each event, and
//! [`EVENTS_END`].

use crate::events::EventQuery;
use jiff::Timestamp;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use ttmem_core::snapshot::{MemoryEventKind, SCHEMA};
use ttmem_core::words::Mono;
use ttmem_core::{Detail, State};

pub use ttmem_core::snapshot::Dump;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "get", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one of them at a time")]
pub enum Request {
    /// A [`ttmem_core::Snapshot`].
    Snapshot(Detail),
    /// A [`Dump`].
    Allocations,
    /// A [`ttmem_core::snapshot::RunReport`]: what processes allocated at their peaks and now.
    Report,
    /// One [`ttmem_core::snapshot::MemoryEvent`] in each line.
    Events(EventQuery),
}

/// The line after the last event, unless new events follow.
pub const EVENTS_END: &[u8] = br#"{"end":true}"#;

impl Request {
    /// A snapshot without details.
    pub const SNAPSHOT: Self = Self::Snapshot(Detail::NONE);

    /// Parses a line.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let request = serde_json::from_slice(line).map_err(|e| format!("cannot read the request: {e}"))?;
        match &request {
            Self::Events(query) if query.kinds.contains(&MemoryEventKind::Other) => {
                let kinds =
                    MemoryEventKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
                Err(format!("cannot read the request: unknown kind of event, expected one of {kinds}"))
            }
            _ => Ok(request),
        }
    }
}

/// Slots of the ledger that one piece of a listing covers.
const PAGE: usize = 512;

/// Writes a [`Dump`] piece by piece.
#[derive(Debug, Default)]
pub struct Listing {
    cursor: usize,
    /// When the first piece was written. All ages are of this moment.
    began: Option<Mono>,
    /// Whether an allocation was written, so that the next one needs a comma.
    listed: bool,
}

impl Listing {
    /// Appends the next piece to `answer`. Returns whether it was the last.
    pub fn write_piece(&mut self, state: &State, answer: &mut Vec<u8>) -> bool {
        let is_first = self.began.is_none();
        let now = *self.began.get_or_insert(state.now());
        if is_first {
            let simulated = state.is_simulated();
            let at = Timestamp::now();
            let head =
                format!(r#"{{"schema":{SCHEMA},"at":"{at:.3}","simulated":{simulated},"allocations":["#);
            answer.extend_from_slice(head.as_bytes());
        }
        let (allocations, next) = state.allocations(self.cursor, PAGE, now);
        for allocation in allocations {
            if std::mem::replace(&mut self.listed, true) {
                answer.push(b',');
            }
            // A struct of numbers and strings cannot fail to serialise.
            let _ = serde_json::to_writer(&mut *answer, &allocation);
        }
        match next {
            Some(next) => self.cursor = next,
            None => answer.extend_from_slice(b"]}"),
        }
        next.is_none()
    }
}

/// The answer to a request that failed.
#[derive(Serialize, Deserialize)]
struct Failure {
    error: String,
}

/// Writes the answer to a request that failed, one line of JSON.
pub fn error_answer(why: &str) -> Vec<u8> {
    // A string cannot fail to serialise.
    serde_json::to_vec(&Failure { error: why.to_owned() }).unwrap_or_default()
}

/// How long a daemon may take for each read and write.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Asks a daemon and returns its answer, one line of JSON.
pub fn ask(path: &Path, request: &Request) -> io::Result<Vec<u8>> {
    ask_within(path, request, TIMEOUT)
}

/// Asks a daemon with a timeout for each read and write, and returns its answer, one line of JSON.
pub fn ask_within(path: &Path, request: &Request, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = connect(path)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::with_capacity(64 << 10);
    let mut reader = BufReader::with_capacity(256 << 10, stream);
    loop {
        let begin = answer.len();
        reader.read_until(b'\n', &mut answer)?;
        if answer.pop() != Some(b'\n') {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the daemon hung up before it had answered",
            ));
        }
        let line = &answer[begin..];
        if line.starts_with(b"{\"error\"") {
            return Err(parse_error(line));
        }
        // Only a list of events has more than one line.
        if !matches!(request, Request::Events(_)) || line == EVENTS_END {
            return Ok(answer);
        }
        answer.push(b'\n');
    }
}

/// The error in the answer to a request that failed.
pub(crate) fn parse_error(line: &[u8]) -> io::Error {
    match serde_json::from_slice::<Failure>(line) {
        Ok(failure) => io::Error::other(failure.error),
        Err(e) => e.into(),
    }
}

/// Connects to a server without waiting: one that is too busy to accept is an error.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ttmem_core::detail::{BufferQuery, BufferSort};
    use ttmem_core::{Analysis, Limits};

    #[test]
    fn requests_are_parsed_or_refused() {
        let read = |text: &str| Request::parse(text.as_bytes());
        let text =
            r#"{"get":"snapshot","brief":true,"cores_of":3,"buffers":{"sort":"age","text":"x","limit":5}}"#;
        let buffers = BufferQuery { sort: BufferSort::Age, text: "x".into(), limit: 5, ..Default::default() };
        let detail = Detail { brief: true, cores_of: Some(3), buffers: Some(buffers), ..Detail::NONE };
        assert_eq!(read(text), Ok(Request::Snapshot(detail)));
        assert_eq!(serde_json::to_string(&Request::SNAPSHOT).unwrap(), r#"{"get":"snapshot"}"#);
        assert_eq!(read(r#"{"get":"report"}"#), Ok(Request::Report));
        for (bad, word) in [
            (r#"{"get":"snapshot","everything":true}"#, "unknown field `everything`"),
            (r#"{"get":"snapshot","buffers":{"colour":1}}"#, "unknown field `colour`"),
            (r#"{"get":"snapshot","buffers":{"sort":"luck"}}"#, "unknown variant `luck`"),
        ] {
            let why = read(bad).unwrap_err();
            assert!(why.starts_with("cannot read the request: "), "{why}");
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn errors_are_quoted() {
        assert_eq!(error_answer("a \"b\"\n"), br#"{"error":"a \"b\"\n"}"#);
    }

    #[test]
    fn ages_in_a_listing_are_of_one_moment() {
        use ttmem_core::input::{Alloc, Input};
        use ttmem_core::machine::Chip;
        use ttmem_core::words::{
            Basis, ChipId, KernelClass, Layout, Origin, ProcessId, Scope, Space, Uncertainty,
        };

        let (mut state, mut analysis) = (State::new(Limits::default(), 7), Analysis::default());
        let by = Origin::Process(ProcessId { pid: 7, start: 1 }, Basis::Reported);
        state.apply(&mut analysis, Mono(1), Origin::Machine, Input::Chip(Box::new(Chip::unknown(0))));
        state.apply(&mut analysis, Mono(1), by, Input::Registered(Box::default()));
        for n in 0..2 * PAGE as u64 {
            let alloc = Alloc {
                scope: Scope::Chip(ChipId::Ordinal(0)),
                space: Space::Dram,
                id: n * 64,
                requested: 64,
                at: None,
                extent: None,
                cores: 0,
                program: 0,
                site: 0,
                layout: Layout::Unknown,
                class: KernelClass::Unknown,
                uncertainty: Uncertainty::default(),
            };
            state.apply(&mut analysis, Mono(1), by, Input::Alloc(alloc));
        }
        let (mut listing, mut answer) = (Listing::default(), Vec::new());
        state.tick(&mut analysis, Mono(5 * Mono::SECOND));
        while !listing.write_piece(&state, &mut answer) {
            let now = state.now();
            state.tick(&mut analysis, Mono(now.0 + Mono::SECOND));
        }
        let dump: Dump = serde_json::from_slice(&answer).unwrap();
        assert_eq!(dump.allocations.len(), 2 * PAGE);
        assert!(dump.allocations.iter().all(|it| it.age_seconds < 5.001), "not older than the listing");
    }

    #[test]
    fn empty_listing_is_a_dump() {
        let mut answer = Vec::new();
        assert!(Listing::default().write_piece(&State::new(Limits::default(), 7), &mut answer));
        let dump: Dump = serde_json::from_slice(&answer).unwrap();
        assert_eq!((dump.schema, dump.simulated, dump.allocations.len()), (1, false, 0));
    }
}
