//! Fields, and the columns that show them.

use crate::figure::{
    DASH, NOT_KNOWN, about, age, bytes, count, cut, percent, ranges, rate, short_size, size,
};
use crate::label;
use crate::value::{Reading, Tone, Unit, Value};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// A kind of row.
pub trait Kind: 'static {
    /// What a row's values are read from.
    type Row<'a>: Copy;
}

/// A figure of a kind of row.
pub struct Field<K: Kind> {
    /// For scripts and the reference.
    pub name: &'static str,
    /// What it is measured in.
    pub unit: Unit,
    /// What it is, in a few words.
    pub help: &'static str,
    /// Whether scripts can ask for it with `--query`.
    pub queried: bool,
    /// Reads it from a row.
    pub value: for<'r> fn(&'r K::Row<'_>) -> Value<'r>,
}

impl<K: Kind> Field<K> {
    /// A field that tables show.
    pub const fn new(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        value: for<'r> fn(&'r K::Row<'_>) -> Value<'r>,
    ) -> Self {
        Self { name, unit, help, queried: false, value }
    }

    /// Offers the field to scripts.
    #[must_use]
    pub const fn queried(self) -> Self {
        Self { queried: true, ..self }
    }
}

impl<K: Kind> fmt::Debug for Field<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The field of that name. Tables name their fields when they are compiled, so a wrong name does not compile.
pub const fn find<K: Kind>(fields: &'static [Field<K>], name: &str) -> &'static Field<K> {
    let mut at = 0;
    while at < fields.len() {
        if is_same(fields[at].name, name) {
            return &fields[at];
        }
        at += 1;
    }
    panic!("there is no field of that name");
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// How a value is written in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// With its unit: `1.5 KiB`, `12.3s`, `0x1f80`.
    Full,
    /// What a sensor says, without places: `45°C`; with a star if it is old.
    Whole,
    /// What a sensor says, without places and unit: `1000`; with a star if it is old.
    Bare,
    /// Bytes as [`Form::Full`]; none of them are [`Column::nothing`].
    Some,
    /// Bytes, all digits.
    Exact,
    /// With so many places; the header has the unit.
    Places(usize),
    /// Bytes in units of so many, with so many places; the header has the unit.
    In(u64, usize),
    /// In five columns or so: `12.3M`, `5h`.
    Short,
    /// As a bar.
    Meter,
}

/// Where the tone of a column comes from.
enum Tint<K: Kind> {
    /// From the value: what is not known is faint.
    Value,
    /// From the value, and zero is faint as well.
    Some,
    /// It is always faint.
    Faint,
    /// From the row.
    Row(fn(&K::Row<'_>) -> Tone),
}

/// What is in a row's column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// A bar: how full it is, if that is known.
    Meter(Option<f64>),
}

/// What a table needs to know of a column to place it.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// For settings and orders.
    pub key: &'static str,
    /// Above the column; with its unit, where values have none.
    pub title: &'static str,
    /// Its width; 0: as wide as what is in it.
    pub width: u16,
    /// So much wider it may be where there is room.
    pub grows: u16,
    /// Dropped in this order where there is no room, the highest first; 0: never.
    pub drop: u8,
    /// Whether it ends, not begins, in line.
    pub right: bool,
    /// Whether the table can be sorted by it.
    pub sorts: bool,
}

/// A field in a table.
pub struct Column<K: Kind> {
    /// What it shows.
    pub field: &'static Field<K>,
    /// Where it stands.
    pub head: Head,
    form: Form,
    tint: Tint<K>,
    unknown: &'static str,
    nothing: &'static str,
    mark: Option<fn(&K::Row<'_>) -> &'static str>,
    /// On a page: cut to so many columns.
    cut: Option<u16>,
    /// On a page: one more blank before it.
    apart: bool,
}

impl<K: Kind> fmt::Debug for Column<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Column").field(&self.head).finish()
    }
}

impl<K: Kind> Column<K> {
    /// A column of a page: lines of text that stay as they are.
    pub const fn page(field: &'static Field<K>, title: &'static str, width: u16) -> Self {
        Self {
            field,
            head: Head { key: field.name, title, width, grows: 0, drop: 0, right: false, sorts: false },
            form: Form::Full,
            tint: Tint::Value,
            unknown: NOT_KNOWN,
            nothing: "-",
            mark: None,
            cut: None,
            apart: false,
        }
    }

    /// A column of a screen.
    pub const fn screen(field: &'static Field<K>, title: &'static str, width: u16) -> Self {
        Self { unknown: DASH, nothing: "", ..Self::page(field, title, width) }
    }

    /// Aligns to the right, as figures are.
    #[must_use]
    pub const fn right(self) -> Self {
        Self { head: Head { right: true, ..self.head }, ..self }
    }

    /// Drops the column in this order where there is no room.
    #[must_use]
    pub const fn drop(self, drop: u8) -> Self {
        Self { head: Head { drop, ..self.head }, ..self }
    }

    /// Lets the column be so much wider where there is room.
    #[must_use]
    pub const fn grows(self, grows: u16) -> Self {
        Self { head: Head { grows, ..self.head }, ..self }
    }

    /// Lets the table be sorted by the column, under this name.
    #[must_use]
    pub const fn sorted(self, key: &'static str) -> Self {
        Self { head: Head { key, sorts: true, ..self.head }, ..self }
    }

    /// Sets how values are written.
    #[must_use]
    pub const fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Sets what stands for a value that is not known.
    #[must_use]
    pub const fn unknown(self, unknown: &'static str) -> Self {
        Self { unknown, ..self }
    }

    /// Sets what stands for no value.
    #[must_use]
    pub const fn nothing(self, nothing: &'static str) -> Self {
        Self { nothing, ..self }
    }

    /// Makes every value faint.
    #[must_use]
    pub const fn faint(self) -> Self {
        Self { tint: Tint::Faint, ..self }
    }

    /// Makes zero faint.
    #[must_use]
    pub const fn faint_zero(self) -> Self {
        Self { tint: Tint::Some, ..self }
    }

    /// Sets how values are to be taken.
    #[must_use]
    pub const fn toned(self, tone: fn(&K::Row<'_>) -> Tone) -> Self {
        Self { tint: Tint::Row(tone), ..self }
    }

    /// Sets what is written behind a value.
    #[must_use]
    pub const fn marked(self, mark: fn(&K::Row<'_>) -> &'static str) -> Self {
        Self { mark: Some(mark), ..self }
    }

    /// Cuts values to the width of the column; on a page, where nothing else does.
    #[must_use]
    pub const fn cut(self) -> Self {
        Self { cut: Some(self.head.width), ..self }
    }

    /// Leaves one more blank before the column, on a page.
    #[must_use]
    pub const fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    /// The cell of a row on a screen, and how it is to be taken.
    pub fn cell<'r>(&self, row: &'r K::Row<'_>) -> (Cell<'r>, Tone) {
        self.cell_as(row, self.form)
    }

    fn cell_as<'r>(&self, row: &'r K::Row<'_>, form: Form) -> (Cell<'r>, Tone) {
        let value = (self.field.value)(row);
        let tone = match (&self.tint, &value) {
            (Tint::Row(tone), _) => tone(row),
            (Tint::Faint, _) | (Tint::Some, Value::Bytes(0)) => Tone::Faint,
            (Tint::Value | Tint::Some, value) => value.tone(),
        };
        let cell = match (form, &value) {
            (Form::Meter, &Value::Share(share)) => Cell::Meter(Some(share)),
            (Form::Meter, _) => Cell::Meter(None),
            _ => Cell::Text(self.marked_text(value, form, row)),
        };
        (cell, tone)
    }

    /// The value of a row, as the column writes it.
    pub fn text<'r>(&self, row: &'r K::Row<'_>) -> Cow<'r, str> {
        self.marked_text((self.field.value)(row), self.form, row)
    }

    fn marked_text<'r>(&self, value: Value<'r>, form: Form, row: &K::Row<'_>) -> Cow<'r, str> {
        let text = self.written(value, form);
        match self.mark.map_or("", |mark| mark(row)) {
            "" => text,
            mark => Cow::Owned(text.into_owned() + mark),
        }
    }

    fn written<'a>(&self, value: Value<'a>, form: Form) -> Cow<'a, str> {
        Cow::Owned(match (value, form) {
            (Value::Unknown, _) => return Cow::Borrowed(self.unknown),
            (Value::Nothing, _) | (Value::Bytes(0) | Value::Estimate(0), Form::Some) => {
                return Cow::Borrowed(self.nothing);
            }
            (Value::Text(text), _) => return text,
            (Value::Name(name), _) => return Cow::Borrowed(name),
            (Value::Tracking(it), _) => return Cow::Borrowed(it.name()),
            (Value::Severity(it), _) => return Cow::Borrowed(label::severity(it)),
            (Value::Space(it), _) => return Cow::Borrowed(it.name()),
            (Value::Bytes(n), Form::In(unit, places)) => bytes(n, unit, places),
            (Value::Estimate(n), Form::In(unit, places)) => about(true, bytes(n, unit, places)),
            (Value::Bytes(n) | Value::Estimate(n), Form::Exact) => n.to_string(),
            (Value::Bytes(n), _) => size(n),
            (Value::Estimate(n), _) => about(true, size(n)),
            (Value::Amount { used, total, idle }, form) => {
                let size = if form == Form::Short { short_size } else { size };
                let total = total.map_or_else(|| NOT_KNOWN.to_owned(), size);
                match used {
                    Some(bytes) => format!("{}/{total}", size(bytes)),
                    None if idle => format!("{}{total}", self.nothing),
                    None => format!("{}{total}", self.unknown),
                }
            }
            (Value::Count(n), Form::Short) => count(n),
            (Value::Count(n), _) => n.to_string(),
            (Value::Address(n), _) => format!("{n:#x}"),
            (Value::Number(n), Form::Places(places)) => format!("{n:.places$}"),
            (Value::Number(n), Form::In(unit, places)) => format!("{:.places$}", n / unit as f64),
            (Value::Reading(Reading { value, stale, .. }), Form::Whole | Form::Bare) => {
                let unit = if form == Form::Whole { self.field.unit.sign() } else { "" };
                format!("{value:.0}{unit}{}", if stale { "*" } else { "" })
            }
            (Value::Reading(it), _) => format!("{:.*}", self.field.unit.places(), it.value),
            (Value::Number(n), Form::Full) if self.field.unit == Unit::BytesPerSecond => rate(Some(n)),
            (Value::Number(n), _) => n.to_string(),
            // More than all of it is no share of anything: such a figure is wrong, and a finding says so.
            (Value::Share(share), Form::Places(_)) if share > 1.0 => ">100".to_owned(),
            (Value::Share(share), Form::Places(places)) => format!("{:.places$}", share * 100.0),
            (Value::Share(share), _) => percent(Some(share)),
            (Value::Part(0, _), _) => return Cow::Borrowed("no"),
            (Value::Part(n, of), _) if n >= of => return Cow::Borrowed("all"),
            (Value::Part(n, of), _) => format!("{}/{}", count(n), count(of)),
            (Value::Seconds(seconds), Form::Short) => age(seconds),
            (Value::Seconds(seconds), _) => format!("{seconds:.1}s"),
            (Value::Time(at), _) => at.to_string(),
            (Value::Reported(pid), _) => format!("({pid})"),
            (Value::Indexes(all), _) => ranges(all),
        })
    }
}

/// The least width of a meter on a page whose amounts are written in full.
const FULL_METER: usize = 8;

/// The last column of a page should have this much, if columns can be dropped for it.
const WANTED: usize = 24;

/// A part of a page: text, already as wide as its column, or a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// The title of a column.
    Title(&'a str),
    /// The value of a row.
    Text(&'a str, Tone),
    /// A bar of so many columns: how full it is, if that is known.
    Meter(Option<f64>, usize),
}

/// The lines of a table, titles first. Each column is as wide as its contents; meters share what is left of `room`, and a
/// last column that is cut gets all of it; where that is little, columns are dropped. `names`, with their title, come before the first column.
pub fn page<K: Kind>(
    names: Option<(&str, &[String])>,
    columns: &[Column<K>],
    rows: &[K::Row<'_>],
    room: usize,
    paint: impl Fn(Part<'_>) -> String,
) -> Vec<String> {
    let mut columns: Vec<&Column<K>> = columns.iter().collect();
    let mut layout = Layout::new(names, &columns, rows, room, false);
    if layout.meter.is_some_and(|width| width < FULL_METER) {
        layout = Layout::new(names, &columns, rows, room, true);
    }
    while layout.is_tight {
        let most = columns.iter().map(|it| it.head.drop).max().filter(|&drop| drop > 0);
        let Some(most) = most else { break };
        columns.retain(|it| it.head.drop != most);
        layout = Layout::new(names, &columns, rows, room, false);
    }
    let columns = &columns[..];
    let title = names.map(|(title, _)| title);
    let titles = columns.iter().map(|it| (Cow::Borrowed(it.head.title), None));
    let mut lines = vec![layout.line(columns, title, titles, &paint)];
    for (at, row) in layout.cells.iter().enumerate() {
        let cells = row.iter().map(|(cell, tone)| match cell {
            Cell::Text(text) => (Cow::Borrowed(&**text), Some(Part::Text("", *tone))),
            Cell::Meter(share) => (Cow::Borrowed(""), Some(Part::Meter(*share, 0))),
        });
        let name = names.and_then(|(_, names)| names.get(at)).map(String::as_str);
        lines.push(layout.line(columns, name, cells, &paint));
    }
    lines
}

/// How a page is laid out.
struct Layout<'r> {
    cells: Vec<Vec<(Cell<'r>, Tone)>>,
    names: usize,
    widths: Vec<usize>,
    /// The width that meters have, if there are any.
    meter: Option<usize>,
    /// Whether much of the last column is cut off.
    is_tight: bool,
}

impl<'r> Layout<'r> {
    fn new<K: Kind>(
        names: Option<(&str, &[String])>,
        columns: &[&Column<K>],
        rows: &'r [K::Row<'_>],
        room: usize,
        compact: bool,
    ) -> Self {
        let form = |column: &Column<K>, value: &Value<'_>| match value {
            Value::Amount { .. } if compact => Form::Short,
            _ => column.form,
        };
        let cells: Vec<Vec<(Cell<'r>, Tone)>> = rows
            .iter()
            .map(|row| columns.iter().map(|it| it.cell_as(row, form(it, &(it.field.value)(row)))).collect())
            .collect();
        let name_width = names
            .map_or(0, |(title, names)| names.iter().map(String::len).max().unwrap_or(0).max(title.len()));
        let is_meter = |at: usize| columns[at].form == Form::Meter;
        let mut widths: Vec<usize> = (0..columns.len())
            .map(|at| {
                let head = &columns[at].head;
                let texts = cells.iter().map(|row| match &row[at].0 {
                    Cell::Text(text) => text.chars().count(),
                    Cell::Meter(_) => usize::from(head.width),
                });
                let width = texts.max().unwrap_or(0).max(head.title.chars().count());
                columns[at].cut.map_or(width, |most| width.min(usize::from(most).max(head.title.len())))
            })
            .collect();
        let gaps: usize = columns
            .iter()
            .enumerate()
            .map(|(at, it)| usize::from(at > 0 || name_width > 0) + usize::from(it.apart))
            .sum();
        let free = room.saturating_sub(name_width + gaps + widths.iter().sum::<usize>());
        let meters = (0..columns.len()).filter(|&at| is_meter(at)).count();
        let (mut meter, mut is_tight) = (None, false);
        for at in (0..columns.len()).filter(|&at| is_meter(at)) {
            let Head { width, grows, .. } = columns[at].head;
            widths[at] = usize::from(width) + (free / meters).min(usize::from(grows));
            meter = Some(widths[at]);
        }
        if let Some(last) = columns.last().filter(|it| it.cut.is_some() && it.head.grows > 0)
            && let Some(width) = widths.last_mut()
        {
            *width += free.min(usize::from(last.head.grows));
            let texts = cells.iter().filter_map(|row| match row.last() {
                Some((Cell::Text(text), _)) => Some(text.chars().count()),
                _ => None,
            });
            is_tight = *width < texts.max().unwrap_or(0).min(WANTED);
        }
        Self { cells, names: name_width, widths, meter, is_tight }
    }

    fn line<'t, K: Kind>(
        &self,
        columns: &[&Column<K>],
        name: Option<&str>,
        cells: impl Iterator<Item = (Cow<'t, str>, Option<Part<'t>>)>,
        paint: &impl Fn(Part<'_>) -> String,
    ) -> String {
        let mut line = String::new();
        if let Some(name) = name {
            let _ = write!(line, "{name:<width$}", width = self.names);
        }
        let last = columns.len().saturating_sub(1);
        for (at, (text, kind)) in cells.enumerate() {
            let (column, width) = (columns[at], self.widths[at]);
            let before = usize::from(at > 0 || self.names > 0) + usize::from(column.apart);
            let text = if column.cut.is_some() { Cow::Owned(cut(&text, width)) } else { text };
            let text = match (column.head.right, at == last) {
                (true, _) => format!("{text:>width$}"),
                (false, true) => text.into_owned(),
                (false, false) => format!("{text:<width$}"),
            };
            let part = match kind {
                None => Part::Title(&text),
                Some(Part::Meter(share, _)) => Part::Meter(share, width),
                Some(Part::Text(_, tone)) => Part::Text(&text, tone),
                Some(part @ Part::Title(_)) => part,
            };
            let _ = write!(line, "{:before$}{}", "", paint(part));
        }
        line
    }
}

/// The line above a page of columns.
pub fn heading<K: Kind>(columns: &[Column<K>]) -> String {
    laid_out(columns, |column| Cow::Borrowed(column.head.title))
}

/// A row of a page of columns.
pub fn line<K: Kind>(columns: &[Column<K>], row: &K::Row<'_>) -> String {
    laid_out(columns, |column| {
        let text = column.text(row);
        match column.cut {
            Some(width) => Cow::Owned(cut(&text, usize::from(width))),
            None => text,
        }
    })
}

fn laid_out<'a, K: Kind>(columns: &[Column<K>], text: impl Fn(&Column<K>) -> Cow<'a, str>) -> String {
    let mut line = String::new();
    for (at, column) in columns.iter().enumerate() {
        let Head { width, right, .. } = column.head;
        let (text, width) = (text(column), usize::from(width));
        let before = usize::from(at > 0) + usize::from(column.apart);
        let _ = if right {
            write!(line, "{:before$}{text:>width$}", "")
        } else {
            write!(line, "{:before$}{text:<width$}", "")
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::MIB;

    #[derive(Debug)]
    enum Sizes {}

    impl Kind for Sizes {
        type Row<'a> = (&'a str, Option<u64>);
    }

    static FIELDS: &[Field<Sizes>] = &[
        Field::<Sizes>::new("name", Unit::None, "name", |it| Value::text(Some(it.0))),
        Field::<Sizes>::new("bytes", Unit::Bytes, "bytes", |it| Value::bytes(it.1)),
    ];

    static PAGE: &[Column<Sizes>] = &[
        Column::page(find(FIELDS, "name"), "NAME", 4).cut(),
        Column::page(find(FIELDS, "bytes"), "SIZE", 8).right(),
        Column::page(find(FIELDS, "bytes"), "BYTES", 0).form(Form::Some).unknown("?").apart(),
    ];

    #[test]
    fn pages_keep_their_columns() {
        assert_eq!(heading(PAGE), "NAME     SIZE  BYTES");
        assert_eq!(line(PAGE, &("python", Some(1536))), "pyt…  1.5 KiB  1.5 KiB");
        assert_eq!(line(PAGE, &("a", Some(0))), "a         0 B  -");
        assert_eq!(line(PAGE, &("a\x1b", None)), "a?        N/A  ?");
    }

    #[test]
    fn pages_fit_their_room() {
        static WIDE: &[Column<Sizes>] = &[
            Column::page(find(FIELDS, "bytes"), "SIZE", 0).right(),
            Column::page(find(FIELDS, "bytes"), "AGAIN", 0).right().drop(1),
            Column::page(find(FIELDS, "name"), "NAME", 4).grows(100).cut(),
        ];
        let rows = [("a/rather/long/name/of/30/columns", Some(1536))];
        let plain = |part: Part<'_>| match part {
            Part::Title(text) | Part::Text(text, _) => text.to_owned(),
            Part::Meter(_, width) => "#".repeat(width),
        };
        let lines = |room: usize| page(None, WIDE, &rows, room, plain);
        assert_eq!(lines(80)[1], "1.5 KiB 1.5 KiB a/rather/long/name/of/30/columns");
        assert_eq!(lines(40), ["   SIZE   AGAIN NAME", "1.5 KiB 1.5 KiB a/rather/long/name/of/3…"]);
        assert_eq!(lines(32), ["   SIZE NAME", "1.5 KiB a/rather/long/name/of/3…"]);
        let names = ["0-7".to_owned()];
        let named = page(Some(("Dev", &names)), WIDE, &rows, 80, plain);
        assert!(named[0].starts_with("Dev    SIZE ") && named[1].starts_with("0-7 1.5 KiB "), "{named:?}");
    }

    #[test]
    fn cells_have_their_tone() {
        let mib = Column::screen(find(FIELDS, "bytes"), "MiB", 5).form(Form::In(MIB, 1)).faint_zero();
        for (bytes, text, tone) in
            [(Some(MIB), "1.0", Tone::Plain), (Some(0), "0.0", Tone::Faint), (None, "—", Tone::Faint)]
        {
            assert_eq!(mib.cell(&("", bytes)), (Cell::Text(Cow::Borrowed(text)), tone));
        }
    }
}
