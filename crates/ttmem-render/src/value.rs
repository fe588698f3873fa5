//! Values of fields, with their units and tones.

use crate::format::ranges;
use crate::label;
use jiff::Timestamp;
use std::borrow::Cow;
use std::cmp::Ordering;
use ttmem_core::snapshot::{Severity, Tracking};
use ttmem_core::words::Space;

/// The unit of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None: text and counts.
    None,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watts,
    /// Amperes.
    Amperes,
    /// Volts.
    Volts,
    /// Megahertz.
    Megahertz,
    /// Revolutions per minute.
    Rpm,
    /// Seconds.
    Seconds,
    /// A share of a whole.
    Percent,
}

impl Unit {
    /// The unit in ASCII, for scripts.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bytes => "B",
            Self::BytesPerSecond => "B/s",
            Self::Celsius => "C",
            Self::Watts => "W",
            Self::Amperes => "A",
            Self::Volts => "V",
            Self::Megahertz => "MHz",
            Self::Rpm => "rpm",
            Self::Seconds => "s",
            Self::Percent => "%",
        }
    }

    /// The unit as screens and pages show it.
    pub fn sign(self) -> &'static str {
        if self == Self::Celsius { "°C" } else { self.symbol() }
    }

    /// Significant decimals of a sensor reading.
    pub const fn decimals(self) -> usize {
        match self {
            Self::Celsius | Self::Watts | Self::Amperes => 1,
            Self::Volts => 3,
            _ => 0,
        }
    }
}

/// A sensor reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Value in the field's unit.
    pub value: f64,
    /// Upper limit.
    pub limit: Option<f64>,
    /// Whether the reading is out of date.
    pub stale: bool,
}

/// The value of a field in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unknown.
    Unknown,
    /// Known to be absent.
    Nothing,
    /// Untrusted text: names, commands.
    Text(Cow<'a, str>),
    /// One of ttmem's own words; lowercase for scripts.
    Name(&'static str),
    /// A count.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// Estimated bytes.
    Estimate(u64),
    /// Bytes in use and capacity.
    Amount {
        /// Bytes in use, if known.
        used: Option<u64>,
        /// Capacity, if known.
        total: Option<u64>,
        /// Whether no process has the device open.
        idle: bool,
    },
    /// An address.
    Address(u64),
    /// A number in the field's unit.
    Number(f64),
    /// A sensor reading.
    Reading(Reading),
    /// A share of a whole: 1 is all of it.
    Share(f64),
    /// A part and its whole, both counted: 3 of 64 cores.
    Fraction(u64, u64),
    /// A duration.
    Seconds(f64),
    /// A time.
    Time(Timestamp),
    /// The pid that a process reports for itself in a PID namespace that is not visible here. Scripts cannot use it.
    ReportedPid(i64),
    /// Device indexes.
    Indexes(&'a [u32]),
    /// How well the memory of a process is known.
    Tracking(Tracking),
    /// Severity of a finding or event.
    Severity(Severity),
    /// A space of device memory.
    Space(Space),
}

impl<'a> Value<'a> {
    /// Text, or unknown.
    pub fn text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Unknown, |text| Self::Text(Cow::Borrowed(text)))
    }

    /// Bytes, or unknown.
    pub fn bytes(bytes: Option<u64>) -> Self {
        bytes.map_or(Self::Unknown, Self::Bytes)
    }

    /// A count, or unknown.
    pub fn count(count: Option<u64>) -> Self {
        count.map_or(Self::Unknown, Self::Count)
    }

    /// A number, or unknown.
    pub fn number(number: Option<f64>) -> Self {
        number.map_or(Self::Unknown, Self::Number)
    }

    /// Device indexes; an empty list is unknown.
    pub fn indexes(indexes: &'a [u32]) -> Self {
        if indexes.is_empty() { Self::Unknown } else { Self::Indexes(indexes) }
    }

    /// The pid of a process, or else the one that it reports for itself.
    pub fn pid(pid: Option<u32>, reported: Option<i64>) -> Self {
        match (pid, reported) {
            (Some(pid), _) => Self::Count(u64::from(pid)),
            (None, Some(pid)) => Self::ReportedPid(pid),
            (None, None) => Self::Unknown,
        }
    }

    /// Compares two values of a field for sorting: figures largest first, text in alphabetical order, unknown values
    /// last. Rows without devices come first, since an empty list of devices is the smallest.
    pub(crate) fn compare(&self, other: &Value<'_>) -> Ordering {
        let is_known = |value: &Value<'_>| !matches!(value, Value::Unknown | Value::Nothing);
        match (self, other) {
            (Self::Bytes(a), Value::Bytes(b)) | (Self::Count(a), Value::Count(b)) => b.cmp(a),
            (Self::Number(a), Value::Number(b)) => b.total_cmp(a),
            (Self::Text(a), Value::Text(b)) => a.cmp(b),
            (Self::Tracking(a), Value::Tracking(b)) => a.cmp(b),
            (Self::Indexes(a), Value::Indexes(b)) => a.cmp(b),
            (Self::Indexes(_), _) => Ordering::Greater,
            (_, Value::Indexes(_)) => Ordering::Less,
            _ => is_known(other).cmp(&is_known(self)),
        }
    }

    /// The tone of the value, independent of the other values of its row.
    pub(crate) fn tone(&self) -> Tone {
        match self {
            Self::Unknown
            | Self::Nothing
            | Self::Fraction(0, _)
            | Self::Reading(Reading { stale: true, .. })
            | Self::Amount { used: None, .. } => Tone::Faint,
            Self::Fraction(..) => Tone::Good,
            Self::Reading(reading) => Tone::Reading(reading.value, reading.limit),
            Self::Share(share) => Tone::Level(*share),
            Self::Tracking(tracking) => Tone::Tracking(*tracking),
            Self::Severity(severity) => Tone::Severity(*severity),
            Self::Space(space) => Tone::Space(*space),
            _ => Tone::Plain,
        }
    }

    /// The value for scripts, numbers with all their digits; `None` if it is unknown.
    pub fn into_script(self) -> Option<Cow<'a, str>> {
        Some(match self {
            Self::Unknown | Self::Nothing | Self::ReportedPid(_) | Self::Amount { used: None, .. } => {
                return None;
            }
            Self::Amount { used: Some(used), .. } => Cow::Owned(used.to_string()),
            Self::Text(text) => text,
            Self::Name(name) => Cow::Owned(name.to_lowercase()),
            Self::Tracking(tracking) => Cow::Owned(tracking.name().to_lowercase()),
            Self::Severity(severity) => Cow::Borrowed(label::severity(severity)),
            Self::Space(space) => Cow::Borrowed(space.name()),
            Self::Count(n) | Self::Bytes(n) | Self::Estimate(n) => Cow::Owned(n.to_string()),
            Self::Address(n) => Cow::Owned(format!("{n:#x}")),
            Self::Number(n) | Self::Reading(Reading { value: n, .. }) | Self::Share(n) | Self::Seconds(n) => {
                Cow::Owned(n.to_string())
            }
            Self::Fraction(n, of) => Cow::Owned(format!("{n}/{of}")),
            Self::Time(at) => Cow::Owned(at.to_string()),
            Self::Indexes(indexes) => Cow::Owned(ranges(indexes)),
        })
    }
}

/// The meaning that the style of a cell expresses. The theme of a screen decides the colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tone {
    /// Ordinary.
    Plain,
    /// Secondary, unknown, or out of date.
    Faint,
    /// Good.
    Good,
    /// A warning.
    Warn,
    /// An error.
    Bad,
    /// The share that is used of a memory.
    Level(f64),
    /// A sensor reading and its limit.
    Reading(f64, Option<f64>),
    /// How well the memory of a process is known.
    Tracking(Tracking),
    /// Severity of a finding or event.
    Severity(Severity),
    /// The space that the row is about.
    Space(Space),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tone_follows_the_value() {
        assert_eq!(Value::Share(0.5).tone(), Tone::Level(0.5));
        let stale = Reading { value: 45.2, limit: Some(75.0), stale: true };
        assert_eq!(Value::Reading(stale).tone(), Tone::Faint);
        assert_eq!(Value::Reading(Reading { stale: false, ..stale }).tone(), Tone::Reading(45.2, Some(75.0)));
    }

    #[test]
    fn scripts_get_all_digits_in_lowercase() {
        let script = |value: Value<'static>| value.into_script().map(Cow::into_owned);
        assert_eq!(script(Value::Bytes(1_048_577)).as_deref(), Some("1048577"));
        assert_eq!(script(Value::Name("Wormhole")).as_deref(), Some("wormhole"));
        assert_eq!(script(Value::Tracking(Tracking::Drift)).as_deref(), Some("drift"));
        assert_eq!(script(Value::Number(45.25)).as_deref(), Some("45.25"));
        assert_eq!(script(Value::Unknown), None);
        assert_eq!(script(Value::pid(None, Some(7))), None, "a pid of another namespace");
    }
}
