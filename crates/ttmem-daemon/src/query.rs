//! The query socket: one line of JSON asks, one line of JSON answers.
//!
//! `{"get":"snapshot"}`, with the words of [`Detail`] for what else is wanted, and `{"get":"allocations"}` are what can be
//! asked. A list of allocations may be larger than anybody's memory should grow, so it is made and sent piece by piece.

use crate::server::{Daemon, SURVEY_FOR_AN_ANSWER};
use crate::socket;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use ttmem_core::Detail;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "get", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one of them at a time")]
pub enum Request {
    /// A [`ttmem_core::Snapshot`].
    Snapshot(Detail),
    /// An object whose `allocations` are a list of [`ttmem_core::snapshot::Allocation`].
    Allocations,
}

impl Request {
    /// A snapshot with what everybody wants.
    pub const SNAPSHOT: Self = Self::Snapshot(Detail::NONE);
}

/// A longer request is no request.
const REQUEST_ROOM: usize = 4096;
/// Answers are made while less than this waits to be sent.
const ANSWER_STEP: usize = 64 << 10;
/// Places of the ledger looked at for one piece of a list.
const PAGE: usize = 512;

/// Reads before others get their turn; what is left wakes us again.
const READS_A_TURN: usize = 16;
/// Pieces made before others get their turn.
const PIECES_A_TURN: usize = 4;

pub(crate) struct QueryConnection {
    pub(crate) stream: UnixStream,
    pub(crate) writing: bool,
    request: Vec<u8>,
    answer: Answer,
    list: Option<List>,
    /// The line being read is too long, and what is left of it goes unread.
    overlong: bool,
    ended: bool,
}

/// What is to be sent, and how much of it was.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    sent: usize,
}

impl Answer {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// So much more was sent. The rest moves up only when it is the smaller part: a large answer goes in many small steps.
    fn advance(&mut self, len: usize) {
        self.sent += len;
        if self.sent == self.bytes.len() {
            *self = Self::default();
        } else if self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.sent));
        }
    }

    /// Sends as much as is taken.
    fn send(&mut self, stream: &UnixStream) -> io::Result<()> {
        while !self.rest().is_empty() {
            match rustix::net::send(stream, self.rest(), rustix::net::SendFlags::NOSIGNAL) {
                Ok(len) => self.advance(len),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// A list of allocations on its way.
struct List {
    cursor: usize,
    begun: bool,
    /// Whether anything is listed yet, so that the next needs a comma.
    listed: bool,
}

impl QueryConnection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (request, answer) = Default::default();
        Self { stream, writing: false, request, answer, list: None, overlong: false, ended: false }
    }

    /// Reads, answers and sends as far as it goes. Returns whether room to write must be waited for, or `None` when
    /// the connection is done.
    pub(crate) fn turn(&mut self, daemon: &mut Daemon) -> Option<bool> {
        let (mut pieces, mut begun, mut reads) = (0, false, 0);
        loop {
            self.answer.send(&self.stream).ok()?;
            if self.answer.rest().len() >= ANSWER_STEP {
                return Some(true);
            }
            if let Some(list) = &mut self.list {
                if pieces == PIECES_A_TURN {
                    return Some(true);
                }
                pieces += 1;
                if list.piece(daemon, &mut self.answer.bytes) {
                    self.list = None;
                }
                continue;
            }
            if !self.answer.rest().is_empty() {
                return Some(true);
            }
            if let Some(end) = self.request.iter().position(|&b| b == b'\n') {
                if begun {
                    // The next one is for the next turn; there is room to write, so that comes at once.
                    return Some(true);
                }
                begun = true;
                let line: Vec<u8> = self.request.drain(..=end).collect();
                self.begin(daemon, &line);
                continue;
            }
            if self.ended {
                return None;
            }
            reads += 1;
            if reads > READS_A_TURN {
                return Some(false);
            }
            let mut bytes = [0; REQUEST_ROOM];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    // A last line needs no newline.
                    self.ended = true;
                    if !self.request.is_empty() {
                        self.request.push(b'\n');
                    }
                }
                Ok(len) => self.collect(&bytes[..len]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Some(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    fn collect(&mut self, mut bytes: &[u8]) {
        if self.overlong {
            let Some(end) = bytes.iter().position(|&b| b == b'\n') else { return };
            self.overlong = false;
            bytes = &bytes[end + 1..];
        }
        self.request.extend_from_slice(bytes);
        if self.request.len() > REQUEST_ROOM && !self.request.contains(&b'\n') {
            self.request.clear();
            self.overlong = true;
            self.fail("request is too long");
        }
    }

    fn begin(&mut self, daemon: &mut Daemon, line: &[u8]) {
        match serde_json::from_slice(line) {
            Ok(Request::Snapshot(detail)) => {
                let snapshot = daemon.snapshot(&detail);
                if let Err(e) = serde_json::to_writer(&mut self.answer.bytes, &snapshot) {
                    self.answer = Answer::default();
                    self.fail(&e.to_string());
                }
                self.answer.bytes.push(b'\n');
            }
            Ok(Request::Allocations) => {
                daemon.reap(&[]);
                daemon.look_at_sources(SURVEY_FOR_AN_ANSWER);
                self.list = Some(List { cursor: 0, begun: false, listed: false });
            }
            Err(e) => self.fail(&format!("cannot read the request: {e}")),
        }
    }

    fn fail(&mut self, why: &str) {
        let error = serde_json::json!({ "error": why });
        self.answer.bytes.extend_from_slice(format!("{error}\n").as_bytes());
    }
}

impl List {
    /// Adds the next piece; returns whether it was the last.
    fn piece(&mut self, daemon: &Daemon, answer: &mut Vec<u8>) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            let simulated = daemon.state.is_simulated();
            let at = Timestamp::now();
            let head = format!(r#"{{"schema":1,"at":"{at:.3}","simulated":{simulated},"allocations":["#);
            answer.extend_from_slice(head.as_bytes());
        }
        let (allocations, next) = daemon.state.allocations(self.cursor, PAGE);
        for allocation in allocations {
            if std::mem::replace(&mut self.listed, true) {
                answer.push(b',');
            }
            // A struct of numbers and strings cannot fail to serialise.
            let _ = serde_json::to_writer(&mut *answer, &allocation);
        }
        match next {
            Some(next) => self.cursor = next,
            None => answer.extend_from_slice(b"]}\n"),
        }
        next.is_none()
    }
}

#[derive(Deserialize)]
struct Failure {
    error: String,
}

/// How long a daemon may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks a daemon, and returns its answer: one line of JSON.
pub fn ask(path: &Path, request: &Request) -> io::Result<Vec<u8>> {
    ask_within(path, request, PATIENCE)
}

/// The same, with so much patience for each step of it.
pub fn ask_within(path: &Path, request: &Request, patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = socket::connect(path)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::with_capacity(64 << 10);
    BufReader::with_capacity(256 << 10, stream).read_until(b'\n', &mut answer)?;
    if answer.pop() != Some(b'\n') {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the daemon hung up before it had answered",
        ));
    }
    if answer.starts_with(b"{\"error\"") {
        let failure: Failure = serde_json::from_slice(&answer)?;
        return Err(io::Error::other(failure.error));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ttmem_core::detail::{BufferQuery, BufferSort};

    #[test]
    fn words_are_understood_or_refused() {
        let read = |text: &str| serde_json::from_str::<Request>(text).map_err(|e| e.to_string());
        let text =
            r#"{"get":"snapshot","brief":true,"cores_of":3,"buffers":{"sort":"age","text":"x","limit":5}}"#;
        let buffers = BufferQuery { sort: BufferSort::Age, text: "x".into(), limit: 5, ..Default::default() };
        let detail = Detail { brief: true, cores_of: Some(3), buffers: Some(buffers), ..Detail::NONE };
        assert_eq!(read(text), Ok(Request::Snapshot(detail)));
        assert_eq!(serde_json::to_string(&Request::SNAPSHOT).unwrap(), r#"{"get":"snapshot"}"#);
        for (bad, word) in [
            (r#"{"get":"snapshot","everything":true}"#, "unknown field `everything`"),
            (r#"{"get":"snapshot","buffers":{"colour":1}}"#, "unknown field `colour`"),
            (r#"{"get":"snapshot","buffers":{"sort":"luck"}}"#, "unknown variant `luck`"),
        ] {
            let why = read(bad).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_large_answer_goes_in_small_steps_without_being_moved_each_time() {
        const STEP: usize = 512;
        let mut answer =
            Answer { bytes: (0..32u32 << 20 >> 2).flat_map(u32::to_le_bytes).collect(), sent: 0 };
        let (mut next, mut moves) = (0u32, 0);
        while !answer.rest().is_empty() {
            assert_eq!(answer.rest()[..4], next.to_le_bytes());
            answer.advance(STEP);
            moves += u32::from(answer.sent == 0);
            next += STEP as u32 / 4;
        }
        assert_eq!(next, 32 << 20 >> 2);
        assert!(moves < 20, "{moves}: each time only half of it is left");
    }
}
