//! Findings, and events.

use crate::column::{Column, Field, Form, Kind, find};
use crate::label;
use crate::value::{Tone, Unit, Value};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::borrow::Cow;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Event, Finding, Severity};

/// Rows of findings.
#[derive(Debug)]
pub enum Findings {}

impl Kind for Findings {
    type Row<'a> = FindingRow<'a>;
}

/// A finding.
#[derive(Clone, Copy, Debug)]
pub struct FindingRow<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// The time that its age is shown at.
    pub now: Timestamp,
    /// Whether the user acknowledged it.
    pub is_acknowledged: bool,
}

/// All that tables show of a finding.
pub static FINDING_FIELDS: &[Field<Findings>] = &[
    Field::new("severity", Unit::None, "severity", |r| Value::Severity(r.finding.severity)),
    Field::new("count", Unit::None, "number of times", |r| Value::Count(r.finding.count)),
    Field::new("kind", Unit::None, "kind of finding", |r| {
        Value::Text(Cow::Owned(label::kind(r.finding.kind)))
    }),
    Field::new("text", Unit::None, "description", |r| {
        if r.is_acknowledged {
            Value::Text(Cow::Owned(format!("(acknowledged) {}", r.finding.text)))
        } else {
            Value::text(Some(&r.finding.text))
        }
    }),
    Field::new("last", Unit::Seconds, "time since it last happened; none if it holds now", |r| {
        let ago = |at| r.now.duration_since(at).as_secs_f64().max(0.0);
        r.finding.last.map_or(Value::Nothing, |at| Value::Seconds(ago(at)))
    }),
];

/// The problem in words, naming process and device wherever the finding itself does not.
pub fn finding_text(finding: &Finding, snapshot: &Snapshot) -> String {
    let mut text = finding.text.clone();
    let mut missing = Vec::new();
    if let Some(pid) = finding.pid {
        let process = snapshot.processes.iter().find(|it| it.pid == Some(pid));
        let name = process.and_then(|it| it.name.as_deref());
        let shown = format!("pid {pid}");
        let named = name.map_or_else(|| shown.clone(), |name| format!("{shown} ({name})"));
        match mentioned(&text, &shown) {
            None => missing.push(named),
            Some(end) if text[end..].starts_with(" (") => {}
            Some(end) => text.replace_range(end - shown.len()..end, &named),
        }
    }
    let device = finding.device.as_ref().and_then(|id| snapshot.devices.iter().find(|it| it.id == *id));
    if let Some(shown) = device.map(|it| format!("device {}", it.index))
        && mentioned(&text, &shown).is_none()
    {
        missing.push(shown);
    }
    if missing.is_empty() { text } else { format!("{}: {text}", missing.join(", ")) }
}

/// Where a number is mentioned, as `pid 12`: not as the beginning of a longer one. The end of it.
fn mentioned(text: &str, words: &str) -> Option<usize> {
    let ends = text.match_indices(words).map(|(at, _)| at + words.len());
    ends.into_iter().find(|&end| !text[end..].starts_with(|c: char| c.is_ascii_digit()))
}

const fn finding(name: &str, title: &'static str, width: u16) -> Column<Findings> {
    Column::screen(find(FINDING_FIELDS, name), title, width)
}

/// The findings of the dashboard.
pub static FINDING_SCREEN: &[Column<Findings>] = &[
    finding("severity", "Severity", 8),
    finding("count", "Count", 6).drop(1).right().form(Form::Short).faint(),
    finding("kind", "Kind", 15).drop(2).faint(),
    finding("text", "Finding", 30)
        .grows(300)
        .toned(|r| if r.is_acknowledged { Tone::Faint } else { Tone::Plain }),
    finding("last", "Last", 5).right().form(Form::Short).nothing("now").faint(),
];

/// Rows of events.
#[derive(Debug)]
pub enum Events {}

impl Kind for Events {
    type Row<'a> = EventRow<'a>;
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct EventRow<'a> {
    /// The event.
    pub event: &'a Event,
    /// Where its time is shown.
    pub zone: &'a TimeZone,
}

/// All that tables show of an event.
pub static EVENT_FIELDS: &[Field<Events>] = &[
    Field::new("at", Unit::None, "time", |r| Value::Text(Cow::Owned(clock(r.event.at, r.zone)))),
    Field::new("kind", Unit::None, "kind of event; marked if it is a warning or error", |r| {
        let mark = if r.event.severity == Severity::Info { "" } else { "! " };
        Value::Text(Cow::Owned(format!("{mark}{}", label::kind(r.event.kind))))
    }),
    Field::new("text", Unit::None, "description", |r| Value::text(Some(&r.event.text))),
];

const fn event(name: &str, title: &'static str, width: u16) -> Column<Events> {
    Column::screen(find(EVENT_FIELDS, name), title, width)
}

/// The events of the dashboard.
pub static EVENT_SCREEN: &[Column<Events>] = &[
    event("at", "Time", 8).faint(),
    event("kind", "Kind", 18).drop(1).faint(),
    event("text", "Event", 40).grows(300).toned(|r| match r.event.severity {
        Severity::Info => Tone::Plain,
        severity => Tone::Severity(severity),
    }),
];

/// A time of day, as `14:02:11`.
pub fn clock(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ttmem_core::snapshot::{FindingKind, Severity};

    fn finding(text: &str, pid: Option<u32>) -> Finding {
        Finding {
            kind: FindingKind::DoubleFree,
            severity: Severity::Warning,
            device: None,
            pid,
            space: None,
            bytes: None,
            count: 1,
            first: None,
            last: None,
            text: text.to_owned(),
        }
    }

    #[test]
    fn numbers_are_found_whole() {
        assert_eq!(mentioned("pid 123 and pid 12", "pid 12"), Some(18));
        assert_eq!(mentioned("pid 123", "pid 12"), None);
    }

    #[test]
    fn findings_name_their_process() {
        let text = |text: &str, pid| finding_text(&finding(text, pid), &Snapshot::default());
        assert_eq!(text("double free x8", Some(7)), "pid 7: double free x8");
        assert_eq!(text("pid 7 (python): double free", Some(7)), "pid 7 (python): double free");
        assert_eq!(text("driver missing", None), "driver missing");
    }
}
