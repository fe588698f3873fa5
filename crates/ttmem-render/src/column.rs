//! Columns: fields as tables show them.

use crate::field::{Field, RowKind};
use crate::format::{
    DASH, UNKNOWN, age, mark_estimate, percent, ranges, rate, scaled_bytes, short_count, short_size, size,
};
use crate::label;
use crate::value::{Reading, Tone, Unit, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The width that the last column of a page gets before other columns are shown.
const COMFORTABLE_WIDTH: u16 = 24;

/// The format of a column's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// With the unit: `1.5 KiB`, `12.3s`, `0x1f80`.
    Full,
    /// A sensor reading without decimals: `45°C`; with a star if it is stale.
    Whole,
    /// A sensor reading without decimals and unit: `1000`; with a star if it is stale.
    Bare,
    /// Bytes as [`Format::Full`]; zero is shown as [`Column::nothing`].
    NonZero,
    /// With this many decimals; the header has the unit.
    Decimals(usize),
    /// Bytes in multiples of a unit, with this many decimals; the header has the unit.
    Scaled(u64, usize),
    /// In about five characters: `12.3M`, `5h`.
    Short,
    /// As a bar.
    Meter,
}

/// The rule for the tone of a column.
enum ToneRule<K: RowKind> {
    /// The value: unknown values are faint.
    Value,
    /// The value, and zero is faint as well.
    NonZero,
    /// Nothing: the column is always faint.
    Faint,
    /// A function of the row.
    Row(fn(&K::Row<'_>) -> Tone),
}

/// The content of one column in one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// A bar: the share that is filled, if it is known.
    Meter(Option<f64>),
}

/// Title and layout of a column.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Name of the column in settings and sort orders.
    pub key: &'static str,
    /// Title; it includes the unit where values have none.
    pub title: &'static str,
    /// Width in characters; 0: as wide as the values.
    pub width: u16,
    /// Characters that the column can grow by if space is left.
    pub growth: u16,
    /// Rank for dropping the column if space is short, the highest first; 0: never dropped.
    pub drop: u8,
    /// Whether values are aligned to the right.
    pub align_right: bool,
    /// Whether the table can be sorted by the column.
    pub sortable: bool,
}

/// A field in a table.
pub struct Column<K: RowKind> {
    /// The field that the column shows.
    pub field: &'static Field<K>,
    /// Title and layout.
    pub header: Header,
    pub(crate) format: Format,
    tone: ToneRule<K>,
    unknown: &'static str,
    nothing: &'static str,
    suffix: Option<fn(&K::Row<'_>) -> &'static str>,
    /// The field that the table is sorted by, if not the one that is shown.
    sort_field: Option<&'static Field<K>>,
    /// On a page: the most characters of a value.
    pub(crate) cut: Option<u16>,
    /// On a page: other columns are dropped until this one, if it is the last, has this width.
    pub(crate) comfort: u16,
    /// On a page: whether an extra blank precedes the column.
    pub(crate) apart: bool,
}

impl<K: RowKind> fmt::Debug for Column<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Column").field(&self.header).finish()
    }
}

impl<K: RowKind> Column<K> {
    /// Creates a column of a page: lines of text that are printed once.
    pub const fn page(field: &'static Field<K>, title: &'static str, width: u16) -> Self {
        let key = field.name;
        Self {
            field,
            header: Header { key, title, width, growth: 0, drop: 0, align_right: false, sortable: false },
            format: Format::Full,
            tone: ToneRule::Value,
            unknown: UNKNOWN,
            nothing: "-",
            suffix: None,
            sort_field: None,
            cut: None,
            comfort: COMFORTABLE_WIDTH,
            apart: false,
        }
    }

    /// Creates a column of the dashboard.
    pub const fn screen(field: &'static Field<K>, title: &'static str, width: u16) -> Self {
        Self { unknown: DASH, nothing: "", ..Self::page(field, title, width) }
    }

    /// Aligns values to the right, as figures are.
    #[must_use]
    pub const fn right(self) -> Self {
        Self { header: Header { align_right: true, ..self.header }, ..self }
    }

    /// Sets the rank for dropping the column if space is short; the highest is dropped first.
    #[must_use]
    pub const fn drop(self, drop: u8) -> Self {
        Self { header: Header { drop, ..self.header }, ..self }
    }

    /// Lets the column grow by this many characters if space is left.
    #[must_use]
    pub const fn grows(self, growth: u16) -> Self {
        Self { header: Header { growth, ..self.header }, ..self }
    }

    /// Lets the table be sorted by the column; `key` is the name of that order.
    #[must_use]
    pub const fn sortable(self, key: &'static str) -> Self {
        Self { header: Header { key, sortable: true, ..self.header }, ..self }
    }

    /// Sorts the table by another field than the one that is shown.
    #[must_use]
    pub const fn sort_field(self, field: &'static Field<K>) -> Self {
        Self { sort_field: Some(field), ..self }
    }

    /// Sets the format of values.
    #[must_use]
    pub const fn format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Sets the text for an unknown value.
    #[must_use]
    pub const fn unknown(self, unknown: &'static str) -> Self {
        Self { unknown, ..self }
    }

    /// Sets the text for a value that is known to be absent.
    #[must_use]
    pub const fn nothing(self, nothing: &'static str) -> Self {
        Self { nothing, ..self }
    }

    /// Makes every value faint.
    #[must_use]
    pub const fn faint(self) -> Self {
        Self { tone: ToneRule::Faint, ..self }
    }

    /// Makes zero faint.
    #[must_use]
    pub const fn faint_zero(self) -> Self {
        Self { tone: ToneRule::NonZero, ..self }
    }

    /// Sets the tone of values by row.
    #[must_use]
    pub const fn tone(self, tone: fn(&K::Row<'_>) -> Tone) -> Self {
        Self { tone: ToneRule::Row(tone), ..self }
    }

    /// Sets a text to append to values.
    #[must_use]
    pub const fn suffix(self, suffix: fn(&K::Row<'_>) -> &'static str) -> Self {
        Self { suffix: Some(suffix), ..self }
    }

    /// Cuts values to the width of the column on a page. Screens always do.
    #[must_use]
    pub const fn cut(self) -> Self {
        Self { cut: Some(self.header.width), ..self }
    }

    /// Drops other columns until this one, if it is the last of a page, has this width.
    #[must_use]
    pub const fn comfort(self, comfort: u16) -> Self {
        Self { comfort, ..self }
    }

    /// Puts an extra blank before the column on a page.
    #[must_use]
    pub const fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    /// Compares two rows by the column: figures largest first, text in alphabetical order, unknown values last.
    pub fn compare(&self, a: &K::Row<'_>, b: &K::Row<'_>) -> Ordering {
        let field = self.sort_field.unwrap_or(self.field);
        (field.value)(a).compare(&(field.value)(b))
    }

    /// Returns the cell of a row on a screen, and its tone.
    pub fn cell<'r>(&self, row: &'r K::Row<'_>) -> (Cell<'r>, Tone) {
        self.cell_as(row, self.format)
    }

    /// Returns the cell of a row in another format than the column's own, and its tone.
    pub(crate) fn cell_as<'r>(&self, row: &'r K::Row<'_>, format: Format) -> (Cell<'r>, Tone) {
        let value = (self.field.value)(row);
        let tone = match (&self.tone, &value) {
            (ToneRule::Row(tone), _) => tone(row),
            (ToneRule::Faint, _) | (ToneRule::NonZero, Value::Bytes(0)) => Tone::Faint,
            (ToneRule::Value | ToneRule::NonZero, value) => value.tone(),
        };
        let cell = match (format, &value) {
            (Format::Meter, &Value::Share(share)) => Cell::Meter(Some(share)),
            (Format::Meter, _) => Cell::Meter(None),
            _ => Cell::Text(self.format_with_suffix(value, format, row)),
        };
        (cell, tone)
    }

    /// Returns the value of a row as text.
    pub fn text<'r>(&self, row: &'r K::Row<'_>) -> Cow<'r, str> {
        self.format_with_suffix((self.field.value)(row), self.format, row)
    }

    fn format_with_suffix<'r>(&self, value: Value<'r>, format: Format, row: &K::Row<'_>) -> Cow<'r, str> {
        let text = self.format_value(value, format);
        match self.suffix.map_or("", |suffix| suffix(row)) {
            "" => text,
            suffix => Cow::Owned(text.into_owned() + suffix),
        }
    }

    fn format_value<'a>(&self, value: Value<'a>, format: Format) -> Cow<'a, str> {
        Cow::Owned(match (value, format) {
            (Value::Unknown, _) => return Cow::Borrowed(self.unknown),
            (Value::Nothing, _) | (Value::Bytes(0) | Value::Estimate(0), Format::NonZero) => {
                return Cow::Borrowed(self.nothing);
            }
            (Value::Text(text), _) => return text,
            (Value::Name(name), _) => return Cow::Borrowed(name),
            (Value::Tracking(tracking), _) => return Cow::Borrowed(tracking.name()),
            (Value::Severity(severity), _) => return Cow::Borrowed(label::severity(severity)),
            (Value::Space(space), _) => return Cow::Borrowed(space.name()),
            (Value::Bytes(n), Format::Scaled(unit, places)) => scaled_bytes(n, unit, places),
            (Value::Estimate(n), Format::Scaled(unit, places)) => {
                mark_estimate(true, scaled_bytes(n, unit, places))
            }
            (Value::Bytes(n), _) => size(n),
            (Value::Estimate(n), _) => mark_estimate(true, size(n)),
            (Value::Amount { used, total, idle }, format) => {
                let size = if format == Format::Short { short_size } else { size };
                let total = total.map_or_else(|| UNKNOWN.to_owned(), size);
                match used {
                    Some(bytes) => format!("{}/{total}", size(bytes)),
                    None if idle => format!("{}{total}", self.nothing),
                    None => format!("{}{total}", self.unknown),
                }
            }
            (Value::Count(n), Format::Short) => short_count(n),
            (Value::Count(n), _) => n.to_string(),
            (Value::Address(n), _) => format!("{n:#x}"),
            (Value::Number(n), Format::Decimals(places)) => format!("{n:.places$}"),
            (Value::Number(n), Format::Scaled(unit, places)) => format!("{:.places$}", n / unit as f64),
            (Value::Reading(Reading { value, stale, .. }), Format::Whole | Format::Bare) => {
                let unit = if format == Format::Whole { self.field.unit.sign() } else { "" };
                format!("{value:.0}{unit}{}", if stale { "*" } else { "" })
            }
            (Value::Reading(reading), _) => format!("{:.*}", self.field.unit.decimals(), reading.value),
            (Value::Number(n), Format::Full) if self.field.unit == Unit::BytesPerSecond => rate(Some(n)),
            (Value::Number(n), _) => n.to_string(),
            // A share above 1 is an impossible figure, which a finding reports.
            (Value::Share(share), Format::Decimals(_)) if share > 1.0 => ">100".to_owned(),
            (Value::Share(share), Format::Decimals(places)) => format!("{:.places$}", share * 100.0),
            (Value::Share(share), _) => percent(Some(share)),
            (Value::Fraction(0, _), _) => return Cow::Borrowed("no"),
            (Value::Fraction(n, of), _) if n >= of => return Cow::Borrowed("all"),
            (Value::Fraction(n, of), _) => format!("{}/{}", short_count(n), short_count(of)),
            (Value::Seconds(seconds), Format::Short) => age(seconds),
            (Value::Seconds(seconds), _) => format!("{seconds:.1}s"),
            (Value::Time(at), _) => at.to_string(),
            (Value::ReportedPid(pid), _) => format!("({pid})"),
            (Value::Indexes(indexes), _) => ranges(indexes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::find_field;
    use crate::format::MIB;

    #[derive(Debug)]
    enum Sizes {}

    impl RowKind for Sizes {
        type Row<'a> = (&'a str, Option<u64>);
    }

    static FIELDS: &[Field<Sizes>] = &[
        Field::<Sizes>::new("name", Unit::None, "name", |it| Value::text(Some(it.0))),
        Field::<Sizes>::new("bytes", Unit::Bytes, "bytes", |it| Value::bytes(it.1)),
    ];

    #[test]
    fn cells_have_their_tone() {
        let mib =
            Column::screen(find_field(FIELDS, "bytes"), "MiB", 5).format(Format::Scaled(MIB, 1)).faint_zero();
        for (bytes, text, tone) in
            [(Some(MIB), "1.0", Tone::Plain), (Some(0), "0.0", Tone::Faint), (None, "—", Tone::Faint)]
        {
            assert_eq!(mib.cell(&("", bytes)), (Cell::Text(Cow::Borrowed(text)), tone));
        }
    }

    #[test]
    fn rows_sort_by_the_shown_field_or_another() {
        let size = Column::screen(find_field(FIELDS, "bytes"), "Size", 5);
        assert_eq!(size.compare(&("", Some(2)), &("", Some(1))), Ordering::Less, "largest first");
        assert_eq!(size.compare(&("", None), &("", Some(0))), Ordering::Greater, "unknown last");
        assert_eq!(size.compare(&("", None), &("", None)), Ordering::Equal);
        let by_name = size.sort_field(find_field(FIELDS, "name"));
        assert_eq!(by_name.compare(&("a", Some(1)), &("b", Some(2))), Ordering::Less);
    }
}
