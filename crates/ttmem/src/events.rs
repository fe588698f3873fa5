//! `ttmem events`: single allocations, frees, programs and failures, once or as they happen.

use crate::cli::{EventFormat, EventsArgs, Sockets};
use crate::show::{find_devices, stop_on_signals};
use crate::source::{answer_or_report, open_source};
use crate::text::{Style, ranges, sanitize, size};
use crate::{Exit, OutputClosed, print};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use ttmem_core::Detail;
use ttmem_core::snapshot::{MemoryEvent, MemoryEventKind, Severity};
use ttmem_core::words::Basis;
use ttmem_reader::{
    Error, EventLine, EventQuery, EventStream, StreamStatus, json, old_log, raise_descriptor_limit,
};

/// How often signals and the reader of standard output are checked while nothing happens.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &EventsArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    raise_descriptor_limit();
    let Some(devices) = resolve_devices(&args.device, sockets)? else { return Ok(Exit::NoDaemon) };
    let format = if args.json { EventFormat::Json } else { args.format };
    let query = EventQuery {
        follow: args.follow,
        since: args.since,
        pids: args.pid.into_iter().collect(),
        devices,
        kinds: args.kind.clone(),
        levels: format == EventFormat::Old,
    };
    let stop = stop_on_signals()?;
    let opened = answer_or_report(EventStream::open(&sockets.reader_options(), query))?;
    let Some(mut stream) = opened else { return Ok(Exit::NoDaemon) };
    let mut printer = Printer::new(format);
    if args.follow {
        printer.begin();
    }
    let mut listed = Vec::new();
    loop {
        let status = stream.read(PAUSE, &mut |line| {
            let event = Line::read(line, format)?;
            if args.follow {
                printer.add(&event);
            } else {
                listed.push(event);
            }
            Ok(())
        })?;
        printer.flush()?;
        if status == StreamStatus::Ended {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Done);
        }
        if is_output_closed() {
            return Err(OutputClosed.into());
        }
    }
    printer.begin();
    for event in in_order(listed) {
        printer.add(&event);
        printer.flush_if_large()?;
    }
    printer.flush()?;
    Ok(Exit::Done)
}

/// The indexes of the devices that were named. A number needs no question: the device may not be known yet. `None`: a daemon
/// was named and does not answer.
fn resolve_devices(names: &[String], sockets: &Sockets) -> anyhow::Result<Option<Vec<u32>>> {
    let numbers: Option<Vec<u32>> = names.iter().map(|name| name.parse().ok()).collect();
    if numbers.is_some() {
        return Ok(numbers);
    }
    let mut source = open_source(sockets, false, false)?;
    let snapshot = answer_or_report(source.snapshot(&Detail::NONE))?;
    snapshot.map(|snapshot| find_devices(&snapshot, names)).transpose()
}

/// Parses a time: how long ago, or a moment.
pub(crate) fn parse_since(text: &str) -> Result<Timestamp, String> {
    let error =
        || "expected how long ago, such as 10s, 5m or 2h, or a time, such as 2026-11-15T04:00:00Z".to_owned();
    if let Ok(ago) = text.parse::<SignedDuration>() {
        return Timestamp::now().checked_sub(ago.abs()).map_err(|_| error());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let civil: jiff::civil::DateTime = text.parse().map_err(|_| error())?;
    civil.to_zoned(TimeZone::system()).map(|zoned| zoned.timestamp()).map_err(|_| error())
}

/// Parses the name of a kind.
pub(crate) fn parse_kind(text: &str) -> Result<MemoryEventKind, String> {
    MemoryEventKind::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = MemoryEventKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// An event, and the line of a daemon's JSON if that is printed.
struct Line {
    event: Option<MemoryEvent>,
    json: Option<Vec<u8>>,
}

impl Line {
    fn read(line: EventLine<'_>, format: EventFormat) -> Result<Self, Error> {
        Ok(match line {
            EventLine::Event(event) => Self { event: Some(event), json: None },
            EventLine::Json(json) if format == EventFormat::Json => {
                Self { event: None, json: Some(json.to_vec()) }
            }
            EventLine::Json(json) => {
                Self { event: Some(serde_json::from_slice(json).map_err(Error::Answer)?), json: None }
            }
        })
    }
}

/// Sorts listed events by time, each process's in its own order.
fn in_order(mut lines: Vec<Line>) -> Vec<Line> {
    let mut latest: BTreeMap<(Option<u32>, Basis), Timestamp> = BTreeMap::new();
    for line in &mut lines {
        if let (None, Some(json)) = (&line.event, &line.json) {
            line.event = serde_json::from_slice(json).ok();
        }
    }
    let mut keyed: Vec<(Timestamp, Line)> = lines
        .into_iter()
        .map(|line| {
            let Some(event) = &line.event else { return (Timestamp::MAX, line) };
            // Threads of one process may read the clock in another order than they report.
            let at = latest.entry((event.pid, event.basis)).or_insert(event.at);
            *at = event.at.max(*at);
            (*at, line)
        })
        .collect();
    keyed.sort_by_key(|(at, _)| *at);
    keyed.into_iter().map(|(_, line)| line).collect()
}

/// Whether the reader of standard output, a pipe, has closed it.
fn is_output_closed() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// Formats events, and prints them in batches.
struct Printer {
    format: EventFormat,
    style: Style,
    zone: TimeZone,
    text: String,
    bytes: Vec<u8>,
}

/// Bytes that are printed at once.
const BATCH: usize = 256 << 10;

impl Printer {
    fn new(format: EventFormat) -> Self {
        Self {
            format,
            style: Style::new(false),
            zone: TimeZone::system(),
            text: String::new(),
            bytes: Vec::new(),
        }
    }

    /// Writes the header.
    fn begin(&mut self) {
        if self.format == EventFormat::Text {
            let header = format!(
                "{:<12} {:>7} {:>7} {:<18} {:<6} {:<8} {:<11} {:>9}  {}",
                "Time", "PID", "Number", "Event", "Device", "Space", "Address", "Size", "Details"
            );
            self.bytes.extend_from_slice(self.style.paint(&header, "1").as_bytes());
            self.bytes.push(b'\n');
        }
    }

    fn add(&mut self, line: &Line) {
        match (self.format, &line.json, &line.event) {
            (EventFormat::Json, Some(line), _) => {
                let begin = self.bytes.len();
                self.bytes.extend_from_slice(line);
                json::escape(&mut self.bytes, begin);
                self.bytes.push(b'\n');
            }
            (EventFormat::Json, None, Some(event)) => {
                // A struct of numbers and strings cannot fail to serialise.
                let _ = json::write(event, &mut self.bytes);
                self.bytes.push(b'\n');
            }
            (EventFormat::Old, _, Some(event)) => {
                self.text.clear();
                old_log::write_event(event, &mut self.text);
                self.bytes.extend_from_slice(self.text.as_bytes());
            }
            (EventFormat::Text, _, Some(event)) => {
                self.text.clear();
                self.write_text(event);
                self.bytes.extend_from_slice(self.text.as_bytes());
            }
            (_, _, None) => {}
        }
    }

    fn write_text(&mut self, event: &MemoryEvent) {
        let time = event.at.to_zoned(self.zone.clone());
        let pid = event.pid.map(i64::from).or(event.reported_pid);
        let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
        let number = event.sequence.map(|it| it.to_string()).unwrap_or_default();
        let bytes = event.requested_bytes.or(event.allocated_bytes).map(size).unwrap_or_default();
        let device = ranges(&event.indexes);
        let space = event.space.map_or("", |space| space.name());
        let id = event.id.as_deref().unwrap_or_default();
        let kind = format!("{:<18}", event.kind.name());
        let kind = match colour(event.kind) {
            Some(colour) => self.style.paint(&kind, colour),
            None => kind,
        };
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "{} {pid:>7} {number:>7} {kind} {device:<6} {space:<8} {id:<11} {bytes:>9}",
            time.strftime("%H:%M:%S%.3f")
        );
        let details = details(event);
        if !details.is_empty() {
            let _ = write!(self.text, "  {}", sanitize(&details));
        }
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
    }

    fn flush_if_large(&mut self) -> anyhow::Result<()> {
        if self.bytes.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if !self.bytes.is_empty() {
            print(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

fn colour(kind: MemoryEventKind) -> Option<&'static str> {
    use crate::text::severity_colour;
    match kind {
        MemoryEventKind::OutOfMemory | MemoryEventKind::Failed => Some(severity_colour(Severity::Error)),
        MemoryEventKind::Gap | MemoryEventKind::Refused => Some(severity_colour(Severity::Warning)),
        _ => None,
    }
}

/// What the columns do not have.
fn details(event: &MemoryEvent) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(missed) = &event.missed {
        let numbers =
            missed.first.zip(missed.last).map(|(first, last)| format!(", numbers {first} to {last}"));
        let noun = if missed.count == 1 { "event" } else { "events" };
        parts.push(format!("{} {noun} missed{}", missed.count, numbers.unwrap_or_default()));
    }
    if event.kind == MemoryEventKind::ProcessExited {
        parts.extend(event.process_name.clone());
    }
    if let Some(program) = event.program {
        let name = event.program_name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        parts.push(format!("program {program}{name}"));
    }
    let count = |n: u64, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    parts.extend(event.dispatches.map(|n| count(n, "dispatch", "dispatches")));
    parts.extend(event.replays.filter(|&n| n > 0).map(|n| count(n, "replay", "replays")));
    if let (Some(allocated @ 1..), Some(requested)) = (event.allocated_bytes, event.requested_bytes)
        && allocated != requested
    {
        parts.push(format!("{} allocated", size(allocated)));
    }
    parts.extend(event.free_bytes.map(|bytes| format!("{} free", size(bytes))));
    let largest = event.largest_free_bytes_per_bank;
    parts.extend(largest.map(|bytes| format!("largest free block {} per bank", size(bytes))));
    parts.extend(event.references.filter(|&n| n > 1).map(|n| format!("{n} references")));
    parts.extend(event.replaced_bytes.map(|bytes| format!("replaces {}", size(bytes))));
    parts.extend(event.fault.as_ref().map(|fault| fault.replace('_', " ")));
    let failure = event.failure.filter(|_| event.kind == MemoryEventKind::Failed);
    parts.extend(failure.map(|failure| failure.title().to_owned()));
    parts.extend(event.implied.then(|| "not reported, implied".to_owned()));
    parts.extend(event.layout.filter(|layout| layout.is_alias()).map(|layout| layout.name().to_owned()));
    if let Some(released) = &event.released {
        let all = [
            (released.buffers, released.buffer_bytes, "buffer", "buffers"),
            (released.cbs, released.cb_bytes, "circular buffer", "circular buffers"),
            (released.kernels, released.kernel_bytes, "kernel", "kernels"),
        ];
        for (n, bytes, one, many) in all.into_iter().filter(|(n, ..)| *n > 0) {
            parts.push(format!("{} freed ({})", count(n, one, many), size(bytes)));
        }
    }
    parts.extend(match (event.number, &event.site_name) {
        (Some(number), Some(name)) => Some(format!("{name} {number}")),
        (Some(number), None) => Some(number.to_string()),
        (None, name) => name.clone(),
    });
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_an_age_or_a_time() {
        let now = Timestamp::now();
        for (text, seconds) in [("10s", 10), ("5m", 300), ("2h", 7200), ("1h30m", 5400)] {
            let since = parse_since(text).unwrap();
            let age = now.duration_since(since).as_secs();
            assert!((seconds - 2..=seconds).contains(&age), "{text}: {age}");
        }
        assert_eq!(parse_since("1970-01-01T00:00:07Z").unwrap(), Timestamp::from_second(7).unwrap());
        assert!(parse_since("2026-11-15 04:00").is_ok(), "local time");
        for bad in ["", "yesterday", "10", "5 parsecs", "25:00", "s"] {
            assert!(parse_since(bad).unwrap_err().contains("such as 10s"), "{bad}");
        }
    }

    #[test]
    fn listed_events_of_one_process_keep_their_order() {
        let event = |pid, sequence, second| {
            let at = Timestamp::from_second(second).unwrap();
            let event = MemoryEvent::new(at, MemoryEventKind::Freed, Basis::Exact);
            let event = MemoryEvent { pid: Some(pid), sequence: Some(sequence), ..event };
            Line { event: Some(event), json: None }
        };
        let lines = vec![event(1, 1, 10), event(1, 2, 9), event(1, 3, 20), event(2, 1, 5), event(2, 2, 15)];
        let order: Vec<_> = in_order(lines)
            .into_iter()
            .map(|line| line.event.unwrap())
            .map(|event| (event.pid.unwrap(), event.sequence.unwrap()))
            .collect();
        assert_eq!(order, [(2, 1), (1, 1), (1, 2), (2, 2), (1, 3)]);
    }
}
