//! The fields and tables of findings and events.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::label;
use crate::value::{Tone, Unit, Value};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::borrow::Cow;
use ttmem_core::snapshot::{Event, Finding, Severity};

/// Rows of findings.
#[derive(Debug)]
pub enum Findings {}

impl RowKind for Findings {
    type Row<'a> = FindingRow<'a>;
}

/// A row of a list of findings.
#[derive(Clone, Copy, Debug)]
pub struct FindingRow<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// The current time, for its age.
    pub now: Timestamp,
    /// Whether the user acknowledged it.
    pub is_acknowledged: bool,
}

/// The fields of a finding.
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

const fn finding(name: &str, title: &'static str, width: u16) -> Column<Findings> {
    Column::screen(find_field(FINDING_FIELDS, name), title, width)
}

/// The findings of the dashboard.
pub static FINDING_SCREEN: &[Column<Findings>] = &[
    finding("severity", "Severity", 8),
    finding("count", "Count", 6).drop(1).right().format(Format::Short).faint(),
    finding("kind", "Kind", 15).drop(2).faint(),
    finding("text", "Finding", 30)
        .grows(300)
        .tone(|r| if r.is_acknowledged { Tone::Faint } else { Tone::Plain }),
    finding("last", "Last", 5).right().format(Format::Short).nothing("now").faint(),
];

/// Rows of events.
#[derive(Debug)]
pub enum Events {}

impl RowKind for Events {
    type Row<'a> = EventRow<'a>;
}

/// A row of a list of events.
#[derive(Clone, Copy, Debug)]
pub struct EventRow<'a> {
    /// The event.
    pub event: &'a Event,
    /// The time zone of its time.
    pub zone: &'a TimeZone,
}

/// The fields of an event.
pub static EVENT_FIELDS: &[Field<Events>] = &[
    Field::new("at", Unit::None, "time", |r| Value::Text(Cow::Owned(time_of_day(r.event.at, r.zone)))),
    Field::new("kind", Unit::None, "kind of event; marked if it is a warning or error", |r| {
        let mark = if r.event.severity == Severity::Info { "" } else { "! " };
        Value::Text(Cow::Owned(format!("{mark}{}", label::kind(r.event.kind))))
    }),
    Field::new("text", Unit::None, "description", |r| Value::text(Some(&r.event.text))),
];

const fn event(name: &str, title: &'static str, width: u16) -> Column<Events> {
    Column::screen(find_field(EVENT_FIELDS, name), title, width)
}

/// The events of the dashboard.
pub static EVENT_SCREEN: &[Column<Events>] = &[
    event("at", "Time", 8).faint(),
    event("kind", "Kind", 18).drop(1).faint(),
    event("text", "Event", 40).grows(300).tone(|r| match r.event.severity {
        Severity::Info => Tone::Plain,
        severity => Tone::Severity(severity),
    }),
];

/// The time of day, as `14:02:11`.
pub fn time_of_day(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}
