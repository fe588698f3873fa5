//! `ttmem --format csv --query …`: one row per device, or one per process and device.

use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_render::process::uses_device;
use ttmem_render::query::{QueryField, Row};
use ttmem_render::{CsvOptions, CsvPage, device};

/// The output format of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
    Csv(CsvOptions),
}

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split(',').map(str::trim);
        let mut format = match words.next() {
            Some("table") => Self::Table,
            Some("json") => Self::Json,
            Some("csv") => Self::Csv(CsvOptions { header: true, units: true }),
            _ => return Err("expected table, json or csv".to_owned()),
        };
        for word in words {
            match (&mut format, word) {
                (Self::Csv(options), "noheader") => options.header = false,
                (Self::Csv(options), "nounits") => options.units = false,
                (Self::Csv(_), _) => return Err(format!("expected noheader or nounits, not {word:?}")),
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

pub(crate) fn format_csv(snapshot: &Snapshot, columns: &[Column], options: CsvOptions) -> String {
    let fields: Vec<QueryField> = match columns {
        [] => QueryField::all().filter(|field| DEFAULT_FIELDS.contains(&&*field.name())).collect(),
        columns => columns.iter().filter_map(|column| column.0).collect(),
    };
    let mut page = CsvPage::new(options);
    page.add_header(fields.iter().map(|field| (field.name(), field.unit())));
    let mut add_row =
        |row: &Row<'_>| page.add_row(fields.iter().map(|field| (field.value(row), field.unit())));
    let is_by_process = fields.iter().any(|field| field.is_of_process());
    for device in &snapshot.devices {
        let row = device::Row { snapshot, device };
        if !is_by_process {
            add_row(&Row { device: row, process: None });
            continue;
        }
        for process in snapshot.processes.iter().filter(|it| uses_device(it, device)) {
            let usage = process.usage.iter().find(|it| it.device == device.id).map(|it| &it.usage);
            add_row(&Row { device: row, process: Some((process, usage)) });
        }
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_checked() {
        let csv = |header, units| Ok(Format::Csv(CsvOptions { header, units }));
        assert_eq!(Format::parse("csv"), csv(true, true));
        assert_eq!(Format::parse("csv,noheader,nounits"), csv(false, false));
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
}
