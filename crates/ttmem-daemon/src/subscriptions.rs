//! Events as they happen: for connections that follow them, for the log, and those of old clients for later.
//!
//! Nothing is described or formatted while there is no subscriber. A subscriber that does not read loses events, which are
//! counted exactly, and never costs the daemon's time.

use crate::eventlog::{self, Reported};
use crate::output::Output;
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use ttmem_core::snapshot::{MemoryEvent, MemoryEventKind, Missed};
use ttmem_core::words::{Basis, Mono};
use ttmem_core::{State, Viewer};
use ttmem_reader::{EventQuery, json, old_log};

/// Bytes that may be queued for one subscriber.
const MAX_QUEUED: usize = 8 << 20;
/// Subscribers at the same time.
const MAX_SUBSCRIBERS: usize = 16;
/// Events of old clients that are kept.
const MAX_REPORTED: usize = 4096;

/// A connection that follows events.
struct Subscriber {
    query: EventQuery,
    /// What its peer may see.
    viewer: Viewer,
    /// Lines of JSON that were not sent yet.
    queue: Vec<u8>,
    /// Events that the queue had no room for: a gap for each process.
    lost: BTreeMap<(Option<u32>, Basis), MemoryEvent>,
}

impl Subscriber {
    fn push(&mut self, event: &MemoryEvent, line: &[u8], most: usize) {
        // Once an event is lost, the gap comes before any other.
        if self.lost.is_empty() && self.queue.len() + line.len() < most {
            self.queue.extend_from_slice(line);
            self.queue.push(b'\n');
        } else {
            self.lose(event);
        }
    }

    fn lose(&mut self, event: &MemoryEvent) {
        let of_event = Missed { count: 1, first: event.sequence, last: event.sequence };
        let new = event.missed.unwrap_or(of_event);
        let gap = self.lost.entry((event.pid, event.basis)).or_insert_with(|| MemoryEvent {
            pid: event.pid,
            reported_pid: event.reported_pid,
            process_name: event.process_name.clone(),
            ..MemoryEvent::new(event.at, MemoryEventKind::Gap, event.basis)
        });
        gap.at = event.at;
        let before = gap.missed.unwrap_or(Missed { count: 0, first: None, last: None });
        gap.missed = Some(Missed {
            count: before.count + new.count,
            first: before.first.or(new.first),
            last: new.last.or(before.last),
        });
    }

    /// Takes what is to be sent next.
    fn take(&mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.queue);
        for gap in std::mem::take(&mut self.lost).into_values() {
            push_line(&gap, &mut lines);
        }
        lines
    }
}

/// Appends an event as one line of JSON.
pub(crate) fn push_line(event: &MemoryEvent, lines: &mut Vec<u8>) {
    // A struct of numbers and strings cannot fail to serialise.
    if json::write(event, lines).is_ok() {
        lines.push(b'\n');
    }
}

/// All subscribers, and the last events of old clients.
pub(crate) struct Subscriptions {
    /// Subscribers by the number of their connection.
    subscribers: BTreeMap<u64, Subscriber>,
    reported: VecDeque<Reported>,
    /// Whether the log has the events of segments.
    log_segments: bool,
    /// When the log began.
    started: Timestamp,
    /// The session's time and the time by the wall clock then.
    wall: (Mono, Timestamp),
    /// Bytes that may be queued for one subscriber.
    max_queued: usize,
    /// A line under construction.
    line: Vec<u8>,
    text: String,
}

impl Subscriptions {
    pub(crate) fn new(log_segments: bool) -> Self {
        Self {
            subscribers: BTreeMap::new(),
            reported: VecDeque::new(),
            log_segments,
            started: Timestamp::now(),
            wall: (Mono(0), Timestamp::now()),
            max_queued: MAX_QUEUED,
            line: Vec::new(),
            text: String::new(),
        }
    }

    /// Whether single events are wanted.
    pub(crate) fn are_wanted(&self) -> bool {
        self.log_segments || !self.subscribers.is_empty()
    }

    /// Whether events need the levels of program memory.
    pub(crate) fn need_levels(&self) -> bool {
        self.log_segments || self.subscribers.values().any(|it| it.query.levels)
    }

    /// Whether one more connection may follow events.
    pub(crate) fn have_room(&self) -> bool {
        self.subscribers.len() < MAX_SUBSCRIBERS
    }

    /// Adds a connection that follows events.
    pub(crate) fn subscribe(&mut self, number: u64, query: EventQuery, viewer: Viewer) -> Result<(), String> {
        if !self.have_room() {
            return Err(format!("{MAX_SUBSCRIBERS} connections follow events already"));
        }
        let (queue, lost) = Default::default();
        self.subscribers.insert(number, Subscriber { query, viewer, queue, lost });
        Ok(())
    }

    /// Removes subscribers whose connection is closed.
    pub(crate) fn retain(&mut self, is_open: impl Fn(u64) -> bool) {
        self.subscribers.retain(|&number, _| is_open(number));
    }

    pub(crate) fn unsubscribe(&mut self, number: u64) {
        self.subscribers.remove(&number);
    }

    /// Takes what is to be sent next on a connection.
    pub(crate) fn take(&mut self, number: u64) -> Vec<u8> {
        self.subscribers.get_mut(&number).map(Subscriber::take).unwrap_or_default()
    }

    /// Connections that have something to send.
    pub(crate) fn waiting(&self) -> Vec<u64> {
        let waiting = self.subscribers.iter().filter(|(_, it)| !it.queue.is_empty() || !it.lost.is_empty());
        waiting.map(|(&number, _)| number).collect()
    }

    /// Queues an event for everyone who wants it, and logs it if it is of a segment.
    pub(crate) fn publish(&mut self, event: &MemoryEvent, is_new: bool, output: &mut Output) {
        // Exits are logged for all processes.
        let is_logged = event.basis == Basis::Exact && event.kind != MemoryEventKind::ProcessExited;
        if self.log_segments && is_logged && (is_new || event.at >= self.started) {
            self.text.clear();
            old_log::write_event(event, &mut self.text);
            output.log(&self.text);
        }
        self.line.clear();
        let matches =
            |query: &EventQuery| if is_new { query.matches_new(event) } else { query.matches(event) };
        for subscriber in self.subscribers.values_mut().filter(|it| matches(&it.query)) {
            match subscriber.viewer.event(event) {
                Some(Cow::Borrowed(_)) => {
                    // The same line for all who may see everything of it.
                    if self.line.is_empty() && json::write(event, &mut self.line).is_err() {
                        return;
                    }
                    subscriber.push(event, &self.line, self.max_queued);
                }
                Some(Cow::Owned(event)) => {
                    let line = json::to_vec(&event).unwrap_or_default();
                    subscriber.push(&event, &line, self.max_queued);
                }
                None => {}
            }
        }
    }

    /// The wall clock at the session's time.
    pub(crate) fn wall_time(&mut self, now: Mono) -> Timestamp {
        if self.wall.0 != now {
            self.wall = (now, Timestamp::now());
        }
        self.wall.1
    }

    /// Keeps an event of an old client, and queues it for everyone who wants it.
    pub(crate) fn report(&mut self, reported: &Reported, state: &State, output: &mut Output) {
        if !self.subscribers.is_empty()
            && let Some(event) = eventlog::describe(reported, state)
        {
            self.publish(&event, true, output);
        }
        if self.reported.len() == MAX_REPORTED {
            self.reported.pop_front();
        }
        self.reported.push_back(*reported);
    }

    /// The kept events of old clients that are requested, as lines of JSON.
    pub(crate) fn reported_lines(
        &self,
        query: &EventQuery,
        state: &State,
        viewer: Viewer,
        lines: &mut Vec<u8>,
    ) {
        let since = |reported: &&Reported| query.since.is_none_or(|since| reported.at >= since);
        let events = self.reported.iter().filter(since).filter_map(|it| eventlog::describe(it, state));
        for event in events {
            if let Some(event) = viewer.event(&event).filter(|event| query.matches(event)) {
                push_line(&event, lines);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64) -> MemoryEvent {
        MemoryEvent {
            pid: Some(7),
            sequence: Some(sequence),
            ..MemoryEvent::new(Timestamp::UNIX_EPOCH, MemoryEventKind::Freed, Basis::Exact)
        }
    }

    fn read(lines: &[u8]) -> Vec<MemoryEvent> {
        let lines = lines.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[test]
    fn full_queue_becomes_an_exact_gap() {
        const ROOM: usize = 100_000;
        let mut all = Subscriptions { max_queued: ROOM, ..Subscriptions::new(false) };
        let mut output = Output::new(true);
        all.subscribe(1, EventQuery::default(), Viewer::ALL).unwrap();
        let line = serde_json::to_vec(&event(1)).unwrap().len() as u64;
        let many = 2 * ROOM as u64 / line;
        for sequence in 1..=many {
            all.publish(&event(sequence), true, &mut output);
        }
        assert_eq!(all.waiting(), [1]);
        let sent = read(&all.take(1));
        let (gap, kept) = sent.split_last().unwrap();
        let first_lost = kept.len() as u64 + 1;
        assert!(first_lost > many / 3 && first_lost < many, "{first_lost} of {many}");
        let missed = Missed { count: many - kept.len() as u64, first: Some(first_lost), last: Some(many) };
        assert_eq!((gap.kind, gap.pid, gap.missed), (MemoryEventKind::Gap, Some(7), Some(missed)));
        all.publish(&event(many + 1), true, &mut output);
        assert_eq!(read(&all.take(1)), [event(many + 1)], "nothing else is lost");
        all.retain(|_| false);
        assert!(!all.are_wanted());
    }

    #[test]
    fn number_of_subscribers_is_limited() {
        let mut all = Subscriptions::new(false);
        for number in 0..MAX_SUBSCRIBERS as u64 {
            all.subscribe(number, EventQuery::default(), Viewer::ALL).unwrap();
        }
        assert!(
            all.subscribe(99, EventQuery::default(), Viewer::ALL).unwrap_err().contains("16 connections")
        );
        all.unsubscribe(3);
        assert!(all.subscribe(99, EventQuery::default(), Viewer::ALL).is_ok());
    }
}
