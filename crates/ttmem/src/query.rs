//! `ttmem --format csv --query …`: figures for scripts, one line a device, or one a process and device.

use crate::text::UNKNOWN;
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::machine::Sensors;
use ttmem_core::snapshot::{Device, Process, Total, Usage};
use ttmem_core::words::{Basis, Space};

/// How to print.
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

/// What a line is about.
struct Row<'a> {
    snapshot: &'a Snapshot,
    device: &'a Device,
    process: Option<(&'a Process, Option<&'a Usage>)>,
}

/// A column.
pub(crate) struct Field {
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    value: fn(&Row<'_>) -> Option<String>,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Field {
    pub(crate) fn parse(text: &str) -> Result<&'static Self, String> {
        let name = text.trim();
        FIELDS.iter().find(|field| field.name == name).ok_or_else(|| {
            let mut list = "the fields are\n".to_owned();
            for field in FIELDS {
                let unit = if field.unit.is_empty() { String::new() } else { format!(" [{}]", field.unit) };
                let _ = writeln!(list, "  {:<26} {}{unit}", field.name, field.help);
            }
            list
        })
    }

    /// Whether it is about a process.
    fn is_of_process(&self) -> bool {
        self.name.starts_with("process.")
    }
}

/// What is printed if nobody says what.
const USUAL: [&str; 11] = [
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

const fn field(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    value: fn(&Row<'_>) -> Option<String>,
) -> Field {
    Field { name, unit, help, value }
}

const FIELDS: &[Field] = &[
    field("timestamp", "", "when it was read", |r| Some(r.snapshot.at.to_string())),
    field("host", "", "host name", |r| r.snapshot.host.name.clone()),
    field("driver", "", "version of the kernel driver", |r| r.snapshot.host.driver.clone()),
    field("index", "", "the number runtimes call it by", |r| Some(r.device.index.to_string())),
    field("id", "", "unique id", |r| Some(r.device.id.clone())),
    field("arch", "", "architecture", |r| r.device.arch.map(|it| it.title().to_lowercase())),
    field("board", "", "board", |r| r.device.board.clone()),
    field("remote", "", "whether it is reached through another chip", |r| Some(r.device.remote.to_string())),
    field("pci", "", "place on the bus", |r| r.device.pci.clone()),
    field("node", "", "the N of /dev/tenstorrent/N", |r| r.device.node.map(|it| it.to_string())),
    field("serial", "", "number of the board", |r| r.device.serial.clone()),
    field("firmware", "", "version of the firmware bundle", |r| r.device.firmware.bundle.clone()),
    field("asic_celsius", "C", "temperature", |r| sensor(r, |it| it.asic_celsius)),
    field("power_watts", "W", "power of the core", |r| sensor(r, |it| it.power_watts)),
    field("current_amperes", "A", "current of the core", |r| sensor(r, |it| it.current_amperes)),
    field("vcore_volts", "V", "voltage of the core", |r| sensor(r, |it| it.vcore_volts)),
    field("aiclk_mhz", "MHz", "clock of the Tensix cores", |r| sensor(r, |it| it.aiclk_mhz)),
    field("axiclk_mhz", "MHz", "clock of the AXI bus", |r| sensor(r, |it| it.axiclk_mhz)),
    field("arcclk_mhz", "MHz", "clock of the ARC", |r| sensor(r, |it| it.arcclk_mhz)),
    field("fan_rpm", "rpm", "fan", |r| sensor(r, |it| it.fan_rpm)),
    field("heartbeat", "", "counter of the firmware", |r| sensor(r, |it| it.heartbeat.map(|n| n as f64))),
    field("cores", "", "Tensix cores, harvested ones left out", |r| {
        r.device.capacity.map(|it| it.cores.to_string())
    }),
    field("capacity_origin", "", "how capacities are known", |r| origin(r.device)),
    field("dram_used_bytes", "B", "DRAM in use", |r| used(r.device.usage.dram_total.as_ref())),
    field("dram_total_bytes", "B", "DRAM there is", |r| bytes(r.device.capacity.map(|it| it.dram_bytes))),
    field("dram_allocatable_bytes", "B", "DRAM that tt-metal can hand out", |r| {
        bytes(r.device.capacity.and_then(|it| it.dram_allocatable_bytes))
    }),
    field("l1_used_bytes", "B", "L1 in use", |r| used(r.device.usage.l1_total.as_ref())),
    field("l1_total_bytes", "B", "L1 there is", |r| bytes(r.device.capacity.map(|it| it.l1_bytes))),
    field("l1_allocatable_bytes", "B", "L1 that tt-metal can hand out", |r| {
        bytes(r.device.capacity.and_then(|it| it.l1_allocatable_bytes))
    }),
    field("l1_small_used_bytes", "B", "L1_SMALL in use", |r| space(Some(&r.device.usage), Space::L1Small)),
    field("trace_used_bytes", "B", "trace region in use", |r| space(Some(&r.device.usage), Space::Trace)),
    field("cb_used_bytes", "B", "circular buffers", |r| space(Some(&r.device.usage), Space::Cb)),
    field("dfb_used_bytes", "B", "dataflow buffers", |r| space(Some(&r.device.usage), Space::Dfb)),
    field("scratch_used_bytes", "B", "scratchpads", |r| space(Some(&r.device.usage), Space::Scratch)),
    field("l1_gap_bytes", "B", "between programs and buffers, on the core with the least", |r| {
        Some(r.device.tightest_core?.gap_bytes.to_string())
    }),
    field("kernel_used_bytes", "B", "kernels", |r| space(Some(&r.device.usage), Space::Kernel)),
    field("dram_basis", "", "how DRAM in use is known", |r| basis(r.device.usage.dram_total.as_ref())),
    field("l1_basis", "", "how L1 in use is known", |r| basis(r.device.usage.l1_total.as_ref())),
    field("processes", "", "processes that use it", |r| {
        Some(r.snapshot.processes.iter().filter(|it| uses(it, r.device)).count().to_string())
    }),
    field("process.pid", "", "pid", |r| Some(r.process?.0.pid?.to_string())),
    field("process.name", "", "name", |r| r.process?.0.name.clone()),
    field("process.command", "", "command line", |r| r.process?.0.command.clone()),
    field("process.user", "", "user", |r| r.process?.0.user.clone()),
    field("process.container", "", "container", |r| r.process?.0.container.clone()),
    field("process.pod", "", "pod", |r| r.process?.0.pod.clone()),
    field("process.start", "", "when it started", |r| Some(r.process?.0.start?.to_string())),
    field("process.tracking", "", "how it is tracked", |r| Some(tracking(r.process?.0.tracking).to_owned())),
    field("process.dram_bytes", "B", "DRAM it holds on the device", |r| {
        used(r.process?.1?.dram_total.as_ref())
    }),
    field("process.l1_bytes", "B", "L1 it holds on the device", |r| used(r.process?.1?.l1_total.as_ref())),
    field("process.l1_small_bytes", "B", "L1_SMALL it holds", |r| space(r.process?.1, Space::L1Small)),
    field("process.trace_bytes", "B", "trace region it holds", |r| space(r.process?.1, Space::Trace)),
    field("process.cb_bytes", "B", "circular buffers it holds", |r| space(r.process?.1, Space::Cb)),
];

fn sensor(row: &Row<'_>, value: fn(&Sensors) -> Option<f64>) -> Option<String> {
    Some(value(row.device.sensors.as_ref()?)?.to_string())
}

fn bytes(bytes: Option<u64>) -> Option<String> {
    Some(bytes?.to_string())
}

fn used(total: Option<&Total>) -> Option<String> {
    Some(total?.used_bytes.to_string())
}

fn basis(total: Option<&Total>) -> Option<String> {
    Some(total?.basis.name().to_owned())
}

fn space(usage: Option<&Usage>, space: Space) -> Option<String> {
    Some(usage?.used(space)?.0.to_string())
}

fn origin(device: &Device) -> Option<String> {
    let origin = serde_json::to_value(device.capacity?.origin).ok()?;
    origin.as_str().map(str::to_owned)
}

fn tracking(basis: Basis) -> &'static str {
    if basis == Basis::Unknown { "untracked" } else { basis.name() }
}

pub(crate) fn uses(process: &Process, device: &Device) -> bool {
    process.usage.iter().any(|it| it.device == device.id) || process.opened.contains(&device.id)
}

pub(crate) fn csv(snapshot: &Snapshot, fields: &[&'static Field], header: bool, units: bool) -> String {
    let usual: Vec<&Field> = FIELDS.iter().filter(|field| USUAL.contains(&field.name)).collect();
    let fields: &[&Field] = if fields.is_empty() { &usual } else { fields };
    let mut page = String::new();
    let mut line = |cells: Vec<String>| {
        let cells: Vec<String> = cells.into_iter().map(|cell| quoted(&cell)).collect();
        let _ = writeln!(page, "{}", cells.join(","));
    };
    if header {
        let name = |field: &&Field| match field.unit {
            unit if unit.is_empty() || !units => field.name.to_owned(),
            unit => format!("{} [{unit}]", field.name),
        };
        line(fields.iter().map(name).collect());
    }
    let cells = |row: &Row<'_>| {
        let cell = |field: &&Field| match (field.value)(row) {
            Some(value) if units && !field.unit.is_empty() => format!("{value} {}", field.unit),
            Some(value) => value,
            None => UNKNOWN.to_owned(),
        };
        fields.iter().map(cell).collect::<Vec<String>>()
    };
    let of_processes = fields.iter().any(|field| field.is_of_process());
    for device in &snapshot.devices {
        if !of_processes {
            line(cells(&Row { snapshot, device, process: None }));
            continue;
        }
        for process in snapshot.processes.iter().filter(|it| uses(it, device)) {
            let usage = process.usage.iter().find(|it| it.device == device.id).map(|it| &it.usage);
            line(cells(&Row { snapshot, device, process: Some((process, usage)) }));
        }
    }
    page
}

/// As spreadsheets and every language's reader take it.
fn quoted(cell: &str) -> String {
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
    fn an_unknown_field_gets_the_list() {
        let list = Field::parse("help").unwrap_err();
        assert!(list.contains("dram_used_bytes") && list.contains("process.pid"), "{list}");
        assert_eq!(Field::parse(" index ").unwrap().name, "index");
    }

    #[test]
    fn the_usual_fields_exist() {
        assert!(USUAL.iter().all(|name| Field::parse(name).is_ok()));
        let names: std::collections::BTreeSet<_> = FIELDS.iter().map(|field| field.name).collect();
        assert_eq!(names.len(), FIELDS.len(), "no name twice");
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("python -c \"print(1, 2)\"\n"), "\"python -c \"\"print(1, 2)\"\" \"");
    }
}
