//! Values: what a row has in a field, what that is measured in, and how it is to be taken.

use crate::figure::ranges;
use crate::label;
use jiff::Timestamp;
use std::borrow::Cow;
use ttmem_core::snapshot::{Quality, Severity};
use ttmem_core::words::Space;

/// What a value is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing: words, and numbers of things.
    None,
    /// Bytes.
    Bytes,
    /// Bytes a second.
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
    /// Turns a minute.
    Rpm,
    /// Seconds.
    Seconds,
    /// A share of a whole.
    Percent,
}

impl Unit {
    /// For scripts: ASCII only.
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

    /// For people.
    pub fn sign(self) -> &'static str {
        if self == Self::Celsius { "°C" } else { self.symbol() }
    }

    /// How many places of a reading mean something.
    pub const fn places(self) -> usize {
        match self {
            Self::Celsius | Self::Watts | Self::Amperes => 1,
            Self::Volts => 3,
            _ => 0,
        }
    }
}

/// What a sensor says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// In the field's unit.
    pub value: f64,
    /// What must not be exceeded.
    pub limit: Option<f64>,
    /// Whether it is older than it should be.
    pub stale: bool,
}

/// What a row has in a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// It is not known.
    Unknown,
    /// It is known that there is none.
    Nothing,
    /// Text of others: names, commands.
    Text(Cow<'a, str>),
    /// A word of ours; scripts get it in small letters.
    Name(&'static str),
    /// A number of things.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// Bytes, estimated.
    Estimate(u64),
    /// How much is used of how much there is.
    Amount {
        /// `None` if it is not known.
        used: Option<u64>,
        /// What there is.
        total: Option<u64>,
        /// Whether no process has it open.
        idle: bool,
    },
    /// A place in memory.
    Address(u64),
    /// A number, in the field's unit.
    Number(f64),
    /// What a sensor says.
    Reading(Reading),
    /// A part of a whole, which is 1.
    Share(f64),
    /// So many of so many.
    Part(u64, u64),
    /// A stretch of time.
    Seconds(f64),
    /// A moment.
    Time(Timestamp),
    /// The pid that a process calls itself by, in a namespace that is not visible here: nothing that scripts can use.
    Reported(i64),
    /// Numbers of devices.
    Indexes(&'a [u32]),
    /// How well something is known.
    Quality(Quality),
    /// How bad something is.
    Severity(Severity),
    /// A kind of memory.
    Space(Space),
}

impl<'a> Value<'a> {
    /// Text that may not be known.
    pub fn text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Unknown, |it| Self::Text(Cow::Borrowed(it)))
    }

    /// Bytes that may not be known.
    pub fn bytes(bytes: Option<u64>) -> Self {
        bytes.map_or(Self::Unknown, Self::Bytes)
    }

    /// A number of things that may not be known.
    pub fn count(count: Option<u64>) -> Self {
        count.map_or(Self::Unknown, Self::Count)
    }

    /// A number that may not be known.
    pub fn number(number: Option<f64>) -> Self {
        number.map_or(Self::Unknown, Self::Number)
    }

    /// Devices; none where it is not known which.
    pub fn indexes(indexes: &'a [u32]) -> Self {
        if indexes.is_empty() { Self::Unknown } else { Self::Indexes(indexes) }
    }

    /// A process by its pid, or else by the one it calls itself by.
    pub fn pid(pid: Option<u32>, reported: Option<i64>) -> Self {
        match (pid, reported) {
            (Some(pid), _) => Self::Count(u64::from(pid)),
            (None, Some(pid)) => Self::Reported(pid),
            (None, None) => Self::Unknown,
        }
    }

    /// How the value is to be taken, whatever the row.
    pub(crate) fn tone(&self) -> Tone {
        match self {
            Self::Unknown
            | Self::Nothing
            | Self::Part(0, _)
            | Self::Reading(Reading { stale: true, .. })
            | Self::Amount { used: None, .. } => Tone::Faint,
            Self::Part(..) => Tone::Good,
            Self::Reading(it) => Tone::Against(it.value, it.limit),
            Self::Share(share) => Tone::Level(*share),
            Self::Quality(quality) => Tone::Quality(*quality),
            Self::Severity(severity) => Tone::Severity(*severity),
            Self::Space(space) => Tone::Space(*space),
            _ => Tone::Plain,
        }
    }

    /// The value for scripts, numbers with all their digits; `None` if it is not known.
    pub fn script(self) -> Option<Cow<'a, str>> {
        Some(match self {
            Self::Unknown | Self::Nothing | Self::Reported(_) | Self::Amount { used: None, .. } => {
                return None;
            }
            Self::Amount { used: Some(used), .. } => Cow::Owned(used.to_string()),
            Self::Text(text) => text,
            Self::Name(name) => Cow::Owned(name.to_lowercase()),
            Self::Quality(it) => Cow::Owned(label::tracking(it).to_lowercase()),
            Self::Severity(it) => Cow::Borrowed(label::severity(it)),
            Self::Space(it) => Cow::Borrowed(it.name()),
            Self::Count(n) | Self::Bytes(n) | Self::Estimate(n) => Cow::Owned(n.to_string()),
            Self::Address(n) => Cow::Owned(format!("{n:#x}")),
            Self::Number(n) | Self::Reading(Reading { value: n, .. }) | Self::Share(n) | Self::Seconds(n) => {
                Cow::Owned(n.to_string())
            }
            Self::Part(n, of) => Cow::Owned(format!("{n}/{of}")),
            Self::Time(at) => Cow::Owned(at.to_string()),
            Self::Indexes(all) => Cow::Owned(ranges(all)),
        })
    }
}

/// How a value is to be taken; what colour that is, a screen decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// Not the point, not known, or old.
    Faint,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Wrong.
    Bad,
    /// So much of something is used.
    Level(f64),
    /// A reading and its limit.
    Against(f64, Option<f64>),
    /// How well something is known.
    Quality(Quality),
    /// How bad something is.
    Severity(Severity),
    /// Of a kind of memory.
    Space(Space),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_tone_of_their_own() {
        assert_eq!(Value::Share(0.5).tone(), Tone::Level(0.5));
        let stale = Reading { value: 45.2, limit: Some(75.0), stale: true };
        assert_eq!(Value::Reading(stale).tone(), Tone::Faint);
        assert_eq!(Value::Reading(Reading { stale: false, ..stale }).tone(), Tone::Against(45.2, Some(75.0)));
    }

    #[test]
    fn scripts_get_all_digits_and_small_letters() {
        let script = |value: Value<'static>| value.script().map(Cow::into_owned);
        assert_eq!(script(Value::Bytes(1_048_577)).as_deref(), Some("1048577"));
        assert_eq!(script(Value::Name("Wormhole")).as_deref(), Some("wormhole"));
        assert_eq!(script(Value::Quality(Quality::Drift)).as_deref(), Some("drift"));
        assert_eq!(script(Value::Number(45.25)).as_deref(), Some("45.25"));
        assert_eq!(script(Value::Unknown), None);
        assert_eq!(script(Value::pid(None, Some(7))), None, "a pid of another namespace");
    }
}
