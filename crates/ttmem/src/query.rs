//! `ttmem --format csv --query …`: one row per device, or one per process and device.

use crate::text::UNKNOWN;
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_render::process::uses_device;
use ttmem_render::query::{QueryField, Row};
use ttmem_render::{Unit, device};

/// The output format of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
    Csv { header: bool, units: bool },
}

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split(',').map(str::trim);
        let mut format = match words.next() {
            Some("table") => Self::Table,
            Some("json") => Self::Json,
            Some("csv") => Self::Csv { header: true, units: true },
            _ => return Err("expected table, json or csv".to_owned()),
        };
        for word in words {
            match (&mut format, word) {
                (Self::Csv { header, .. }, "noheader") => *header = false,
                (Self::Csv { units, .. }, "nounits") => *units = false,
                (Self::Csv { .. }, _) => return Err(format!("expected noheader or nounits, not {word:?}")),
                _ => return Err("only csv has options".to_owned()),
            }
        }
        Ok(format)
    }
}

/// An item of `--query`: a field, or `help`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(Option<QueryField>);

impl Column {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let name = text.trim();
        if name == "help" {
            return Ok(Self(None));
        }
        let field = QueryField::all().find(|field| field.name() == name);
        let field = field.ok_or_else(|| "no such field; `ttmem --query help` lists them".to_owned())?;
        Ok(Self(Some(field)))
    }

    pub(crate) fn is_help(&self) -> bool {
        self.0.is_none()
    }
}

/// Lists the fields of `--query`, with unit and meaning.
pub(crate) fn format_help() -> String {
    let mut page = format!("{:<26} {:<5} MEANING\n", "FIELD", "UNIT");
    for field in QueryField::all() {
        let _ = writeln!(page, "{:<26} {:<5} {}", field.name(), field.unit().symbol(), field.help());
    }
    page
}

/// The unit in brackets, as ` [B]`, if there is one.
fn in_brackets(unit: Unit) -> String {
    if unit == Unit::None { String::new() } else { format!(" [{}]", unit.symbol()) }
}

/// The fields that are printed without `--query`.
const DEFAULT_FIELDS: [&str; 11] = [
    "index",
    "id",
    "board",
    "pci",
    "asic_celsius",
    "power_watts",
    "aiclk_mhz",
    "dram_used_bytes",
    "dram_total_bytes",
    "l1_used_bytes",
    "l1_total_bytes",
];

pub(crate) fn format_csv(snapshot: &Snapshot, columns: &[Column], header: bool, units: bool) -> String {
    let fields: Vec<QueryField> = match columns {
        [] => QueryField::all().filter(|field| DEFAULT_FIELDS.contains(&&*field.name())).collect(),
        columns => columns.iter().filter_map(|column| column.0).collect(),
    };
    let mut page = String::new();
    let mut line = |cells: Vec<String>| {
        let cells: Vec<String> = cells.into_iter().map(|cell| quote(&cell)).collect();
        let _ = writeln!(page, "{}", cells.join(","));
    };
    if header {
        let unit = |field: &QueryField| if units { in_brackets(field.unit()) } else { String::new() };
        line(fields.iter().map(|field| format!("{}{}", field.name(), unit(field))).collect());
    }
    let cells = |row: &Row<'_>| {
        let cell = |field: &QueryField| match field.value(row).into_script() {
            Some(value) if units && field.unit() != Unit::None => {
                format!("{value} {}", field.unit().symbol())
            }
            Some(value) => value.into_owned(),
            None => UNKNOWN.to_owned(),
        };
        fields.iter().map(cell).collect::<Vec<String>>()
    };
    let is_by_process = fields.iter().any(|field| field.is_of_process());
    for device in &snapshot.devices {
        let row = device::Row { snapshot, device };
        if !is_by_process {
            line(cells(&Row { device: row, process: None }));
            continue;
        }
        for process in snapshot.processes.iter().filter(|it| uses_device(it, device)) {
            let usage = process.usage.iter().find(|it| it.device == device.id).map(|it| &it.usage);
            line(cells(&Row { device: row, process: Some((process, usage)) }));
        }
    }
    page
}

/// Quotes a cell for CSV, if needed.
fn quote(cell: &str) -> String {
    let clean: String = cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.contains([',', '"']) { format!("\"{}\"", clean.replace('"', "\"\"")) } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_checked() {
        assert_eq!(Format::parse("csv"), Ok(Format::Csv { header: true, units: true }));
        assert_eq!(Format::parse("csv,noheader,nounits"), Ok(Format::Csv { header: false, units: false }));
        assert_eq!(Format::parse("json"), Ok(Format::Json));
        for bad in ["", "xml", "csv,bold", "json,noheader", "table,nounits"] {
            assert!(Format::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_are_found_by_name() {
        assert!(Column::parse("colour").unwrap_err().contains("--query help"));
        assert!(Column::parse("help").unwrap().is_help());
        assert_eq!(Column::parse(" index ").unwrap().0.unwrap().name(), "index");
    }

    #[test]
    fn help_has_a_line_for_each_field() {
        let page = format_help();
        assert_eq!(page.lines().count(), 1 + QueryField::all().count());
        assert!(page.contains("\ndram_used_bytes            B     DRAM in use\n"), "{page}");
    }

    #[test]
    fn default_fields_exist() {
        assert!(DEFAULT_FIELDS.iter().all(|name| Column::parse(name).is_ok()));
        let names: std::collections::BTreeSet<_> = QueryField::all().map(QueryField::name).collect();
        assert_eq!(names.len(), QueryField::all().count(), "no name twice");
    }

    #[test]
    fn cells_are_quoted_if_needed() {
        assert_eq!(quote("a b"), "a b");
        assert_eq!(quote("python -c \"print(1, 2)\"\n"), "\"python -c \"\"print(1, 2)\"\" \"");
    }
}
