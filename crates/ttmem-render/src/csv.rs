//! CSV for scripts: one line per row, numbers with all their digits.

use crate::field::{Field, RowKind};
use crate::format::UNKNOWN;
use crate::value::{Unit, Value};
use std::borrow::Cow;
use std::fmt::Write;
use ttmem_core::is_unprintable;

/// What CSV contains besides values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// A first line with the names of the fields.
    pub header: bool,
    /// Units, after names and values.
    pub units: bool,
}

/// Lines of CSV.
#[derive(Clone, Debug)]
pub struct CsvPage {
    options: CsvOptions,
    text: String,
}

impl CsvPage {
    /// Creates a page without lines.
    pub fn new(options: CsvOptions) -> Self {
        Self { options, text: String::new() }
    }

    /// Adds the names of the fields, if a header is wanted.
    pub fn add_header<'a>(&mut self, fields: impl IntoIterator<Item = (Cow<'a, str>, Unit)>) {
        if !self.options.header {
            return;
        }
        let units = self.options.units;
        self.add_line(fields.into_iter().map(|(name, unit)| match unit {
            unit if units && unit != Unit::None => Cow::Owned(format!("{name} [{}]", unit.symbol())),
            _ => name,
        }));
    }

    /// Adds the values of a row.
    pub fn add_row<'a>(&mut self, values: impl IntoIterator<Item = (Value<'a>, Unit)>) {
        let units = self.options.units;
        self.add_line(values.into_iter().map(|(value, unit)| match value.into_script() {
            Some(value) if units && unit != Unit::None => Cow::Owned(format!("{value} {}", unit.symbol())),
            Some(value) => value,
            None => Cow::Borrowed(UNKNOWN),
        }));
    }

    fn add_line<'a>(&mut self, cells: impl Iterator<Item = Cow<'a, str>>) {
        for (at, cell) in cells.enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(self.text, "{comma}{}", quote(&cell));
        }
        self.text.push('\n');
    }

    /// Returns the lines.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Formats rows as CSV, with the fields that are for scripts.
pub fn format_csv<'a, K: RowKind>(
    fields: &'static [Field<K>],
    rows: impl IntoIterator<Item = K::Row<'a>>,
    options: CsvOptions,
) -> String {
    let mut page = CsvPage::new(options);
    page.add_header(csv_header(fields));
    for row in rows {
        page.add_row(csv_values(fields, &row));
    }
    page.into_text()
}

/// Names and units of the fields that are for scripts.
pub fn csv_header<K: RowKind>(
    fields: &'static [Field<K>],
) -> impl Iterator<Item = (Cow<'static, str>, Unit)> {
    fields.iter().filter(|it| it.queried).map(|it| (Cow::Borrowed(it.name), it.unit))
}

/// Values and units of the fields that are for scripts.
pub fn csv_values<'r, K: RowKind>(
    fields: &'static [Field<K>],
    row: &'r K::Row<'_>,
) -> impl Iterator<Item = (Value<'r>, Unit)> {
    fields.iter().filter(|it| it.queried).map(|it| ((it.value)(row), it.unit))
}

/// Quotes a cell, if needed.
fn quote(cell: &str) -> String {
    let clean: String = cell.chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect();
    if clean.contains([',', '"']) { format!("\"{}\"", clean.replace('"', "\"\"")) } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_if_needed() {
        assert_eq!(quote("a b"), "a b");
        assert_eq!(quote("python -c \"print(1, 2)\"\n"), "\"python -c \"\"print(1, 2)\"\" \"");
    }

    #[derive(Debug)]
    enum Sizes {}

    impl RowKind for Sizes {
        type Row<'a> = (&'a str, Option<u64>);
    }

    static FIELDS: &[Field<Sizes>] = &[
        Field::<Sizes>::new("name", Unit::None, "name", |it| Value::text(Some(it.0))).queried(),
        Field::<Sizes>::new("title", Unit::None, "for tables", |it| Value::text(Some(it.0))),
        Field::<Sizes>::new("bytes", Unit::Bytes, "bytes", |it| Value::bytes(it.1)).queried(),
    ];

    #[test]
    fn header_and_units_are_optional() {
        let rows = [("a,b", Some(1 << 20)), ("c", None)];
        let csv = |header, units| format_csv(FIELDS, rows, CsvOptions { header, units });
        assert_eq!(csv(true, true), "name,bytes [B]\n\"a,b\",1048576 B\nc,N/A\n");
        assert_eq!(csv(false, false), "\"a,b\",1048576\nc,N/A\n");
    }
}
