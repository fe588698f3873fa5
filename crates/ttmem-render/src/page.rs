//! Pages: tables as lines of text, for a terminal or a pipe.

use crate::column::{Cell, Column, Format, Header};
use crate::field::RowKind;
use crate::format::truncate;
use crate::value::{Tone, Value};
use std::borrow::Cow;
use std::fmt::Write;

/// Amounts beside narrower meters are compact, which leaves the meters more space.
const COMPACT_METER: usize = 8;

/// A cell of a page, for the function that adds colours: text, already as wide as its column, or a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PageCell<'a> {
    /// The title of a column.
    Title(&'a str),
    /// The value of a row.
    Text(&'a str, Tone),
    /// A bar: the share that is filled, if it is known, and its width.
    Meter(Option<f64>, usize),
}

/// Formats a table as lines of up to `room` characters, titles first.
///
/// Each column is as wide as its values. Meters share the space that is left, or a last column that is cut gets all of
/// it; where that is too little, columns are dropped. `names`, with their title, come before the first column.
pub fn format_table<K: RowKind>(
    names: Option<(&str, &[String])>,
    columns: &[Column<K>],
    rows: &[K::Row<'_>],
    room: usize,
    paint: impl Fn(PageCell<'_>) -> String,
) -> Vec<String> {
    let mut columns: Vec<&Column<K>> = columns.iter().collect();
    let mut layout = Layout::new(names, &columns, rows, room, false);
    if layout.meter_width.is_some_and(|width| width < COMPACT_METER) {
        layout = Layout::new(names, &columns, rows, room, true);
    }
    while layout.is_tight {
        let highest = columns.iter().map(|it| it.header.drop).max().filter(|&drop| drop > 0);
        let Some(highest) = highest else { break };
        columns.retain(|it| it.header.drop != highest);
        layout = Layout::new(names, &columns, rows, room, false);
    }
    let columns = &columns[..];
    let title = names.map(|(title, _)| title);
    let titles = columns.iter().map(|it| (Cow::Borrowed(it.header.title), None));
    let mut lines = vec![layout.format_line(columns, title, titles, &paint)];
    for (at, row) in layout.cells.iter().enumerate() {
        let cells = row.iter().map(|(cell, tone)| match cell {
            Cell::Text(text) => (Cow::Borrowed(&**text), Some(PageCell::Text("", *tone))),
            Cell::Meter(share) => (Cow::Borrowed(""), Some(PageCell::Meter(*share, 0))),
        });
        let name = names.and_then(|(_, names)| names.get(at)).map(String::as_str);
        lines.push(layout.format_line(columns, name, cells, &paint));
    }
    lines
}

/// The cells of a page, and the widths of its columns.
struct Layout<'r> {
    cells: Vec<Vec<(Cell<'r>, Tone)>>,
    name_width: usize,
    widths: Vec<usize>,
    /// The width of meters, if there are any.
    meter_width: Option<usize>,
    /// Whether a large part of the last column is cut off.
    is_tight: bool,
}

impl<'r> Layout<'r> {
    fn new<K: RowKind>(
        names: Option<(&str, &[String])>,
        columns: &[&Column<K>],
        rows: &'r [K::Row<'_>],
        room: usize,
        compact: bool,
    ) -> Self {
        let format = |column: &Column<K>, value: &Value<'_>| match value {
            Value::Amount { .. } if compact => Format::Short,
            _ => column.format,
        };
        let cells: Vec<Vec<(Cell<'r>, Tone)>> = rows
            .iter()
            .map(|row| columns.iter().map(|it| it.cell_as(row, format(it, &(it.field.value)(row)))).collect())
            .collect();
        let name_width = names
            .map_or(0, |(title, names)| names.iter().map(String::len).max().unwrap_or(0).max(title.len()));
        let is_meter = |at: usize| columns[at].format == Format::Meter;
        let mut widths: Vec<usize> = (0..columns.len())
            .map(|at| {
                let header = &columns[at].header;
                let texts = cells.iter().map(|row| match &row[at].0 {
                    Cell::Text(text) => text.chars().count(),
                    Cell::Meter(_) => usize::from(header.width),
                });
                let width = texts.max().unwrap_or(0).max(header.title.chars().count());
                columns[at].cut.map_or(width, |most| width.min(usize::from(most).max(header.title.len())))
            })
            .collect();
        let gaps: usize = columns
            .iter()
            .enumerate()
            .map(|(at, it)| usize::from(at > 0 || name_width > 0) + usize::from(it.apart))
            .sum();
        let free = room.saturating_sub(name_width + gaps + widths.iter().sum::<usize>());
        let meters = (0..columns.len()).filter(|&at| is_meter(at)).count();
        let (mut meter_width, mut is_tight) = (None, false);
        for at in (0..columns.len()).filter(|&at| is_meter(at)) {
            let Header { width, growth, .. } = columns[at].header;
            widths[at] = usize::from(width) + (free / meters).min(usize::from(growth));
            meter_width = Some(widths[at]);
        }
        if let Some(last) = columns.last().filter(|it| it.cut.is_some() && it.header.growth > 0)
            && let Some(width) = widths.last_mut()
        {
            *width += free.min(usize::from(last.header.growth));
            let texts = cells.iter().filter_map(|row| match row.last() {
                Some((Cell::Text(text), _)) => Some(text.chars().count()),
                _ => None,
            });
            is_tight = *width < texts.max().unwrap_or(0).min(usize::from(last.comfort));
        }
        Self { cells, name_width, widths, meter_width, is_tight }
    }

    fn format_line<'t, K: RowKind>(
        &self,
        columns: &[&Column<K>],
        name: Option<&str>,
        cells: impl Iterator<Item = (Cow<'t, str>, Option<PageCell<'t>>)>,
        paint: &impl Fn(PageCell<'_>) -> String,
    ) -> String {
        let mut line = String::new();
        if let Some(name) = name {
            let _ = write!(line, "{name:<width$}", width = self.name_width);
        }
        let last = columns.len().saturating_sub(1);
        for (at, (text, cell)) in cells.enumerate() {
            let (column, width) = (columns[at], self.widths[at]);
            let before = usize::from(at > 0 || self.name_width > 0) + usize::from(column.apart);
            let text = if column.cut.is_some() { Cow::Owned(truncate(&text, width)) } else { text };
            let text = match (column.header.align_right, at == last) {
                (true, _) => format!("{text:>width$}"),
                (false, true) => text.into_owned(),
                (false, false) => format!("{text:<width$}"),
            };
            let cell = match cell {
                None => PageCell::Title(&text),
                Some(PageCell::Meter(share, _)) => PageCell::Meter(share, width),
                Some(PageCell::Text(_, tone)) => PageCell::Text(&text, tone),
                Some(cell @ PageCell::Title(_)) => cell,
            };
            let _ = write!(line, "{:before$}{}", "", paint(cell));
        }
        line
    }
}

/// Formats the titles of a table whose columns have fixed widths.
pub fn format_heading<K: RowKind>(columns: &[Column<K>]) -> String {
    join_columns(columns, |column| Cow::Borrowed(column.header.title))
}

/// Formats a row of a table whose columns have fixed widths.
pub fn format_row<K: RowKind>(columns: &[Column<K>], row: &K::Row<'_>) -> String {
    join_columns(columns, |column| {
        let text = column.text(row);
        match column.cut {
            Some(width) => Cow::Owned(truncate(&text, usize::from(width))),
            None => text,
        }
    })
}

fn join_columns<'a, K: RowKind>(columns: &[Column<K>], text: impl Fn(&Column<K>) -> Cow<'a, str>) -> String {
    let mut line = String::new();
    for (at, column) in columns.iter().enumerate() {
        let Header { width, align_right, .. } = column.header;
        let (text, width) = (text(column), usize::from(width));
        let before = usize::from(at > 0) + usize::from(column.apart);
        let _ = if align_right {
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
    use crate::field::{Field, find_field};
    use crate::value::Unit;

    #[derive(Debug)]
    enum Sizes {}

    impl RowKind for Sizes {
        type Row<'a> = (&'a str, Option<u64>);
    }

    static FIELDS: &[Field<Sizes>] = &[
        Field::<Sizes>::new("name", Unit::None, "name", |it| Value::text(Some(it.0))),
        Field::<Sizes>::new("bytes", Unit::Bytes, "bytes", |it| Value::bytes(it.1)),
    ];

    static PAGE: &[Column<Sizes>] = &[
        Column::page(find_field(FIELDS, "name"), "NAME", 4).cut(),
        Column::page(find_field(FIELDS, "bytes"), "SIZE", 8).right(),
        Column::page(find_field(FIELDS, "bytes"), "BYTES", 0).format(Format::NonZero).unknown("?").apart(),
    ];

    #[test]
    fn columns_keep_their_width() {
        assert_eq!(format_heading(PAGE), "NAME     SIZE  BYTES");
        assert_eq!(format_row(PAGE, &("python", Some(1536))), "pyt…  1.5 KiB  1.5 KiB");
        assert_eq!(format_row(PAGE, &("a", Some(0))), "a         0 B  -");
        assert_eq!(format_row(PAGE, &("a\x1b", None)), "a?        N/A  ?");
    }

    #[test]
    fn tables_fit_the_width_of_the_page() {
        static WIDE: &[Column<Sizes>] = &[
            Column::page(find_field(FIELDS, "bytes"), "SIZE", 0).right(),
            Column::page(find_field(FIELDS, "bytes"), "AGAIN", 0).right().drop(1),
            Column::page(find_field(FIELDS, "name"), "NAME", 4).grows(100).cut(),
        ];
        let rows = [("a/rather/long/name/of/30/columns", Some(1536))];
        let plain = |cell: PageCell<'_>| match cell {
            PageCell::Title(text) | PageCell::Text(text, _) => text.to_owned(),
            PageCell::Meter(_, width) => "#".repeat(width),
        };
        let lines = |room: usize| format_table(None, WIDE, &rows, room, plain);
        assert_eq!(lines(80)[1], "1.5 KiB 1.5 KiB a/rather/long/name/of/30/columns");
        assert_eq!(lines(40), ["   SIZE   AGAIN NAME", "1.5 KiB 1.5 KiB a/rather/long/name/of/3…"]);
        assert_eq!(lines(32), ["   SIZE NAME", "1.5 KiB a/rather/long/name/of/3…"]);
        let names = ["0-7".to_owned()];
        let named = format_table(Some(("Dev", &names)), WIDE, &rows, 80, plain);
        assert!(named[0].starts_with("Dev    SIZE ") && named[1].starts_with("0-7 1.5 KiB "), "{named:?}");
    }
}
