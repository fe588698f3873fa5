//! The fields and tables of the groups of allocations on the dashboard.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::size;
use crate::site::absent;
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::detail::BufferGrouping;
use ttmem_core::snapshot::BufferGroup;

/// Rows of groups of allocations.
#[derive(Debug)]
pub enum Groups {}

impl RowKind for Groups {
    type Row<'a> = Row<'a>;
}

/// A row of a list of groups.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The group.
    pub group: &'a BufferGroup,
    /// Bytes of all matching allocations.
    pub total_bytes: u64,
    /// Bytes of the group when the view was opened, if they are known.
    pub first_bytes: Option<u64>,
}

const fn field(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Groups> {
    Field::<Groups>::new(name, unit, help, value)
}

/// The fields of a group of allocations.
pub static FIELDS: &[Field<Groups>] = &[
    field("used_bytes", Unit::Bytes, "allocated bytes per device, or else requested bytes", |r| {
        Value::Bytes(r.group.used_bytes)
    }),
    field("requested_bytes", Unit::Bytes, "requested bytes per device", |r| {
        Value::Bytes(r.group.requested_bytes)
    }),
    field("count", Unit::None, "number of allocations", |r| Value::Count(r.group.count)),
    field("share", Unit::Percent, "share of the bytes of all matching allocations", |r| {
        Value::Share(r.group.used_bytes as f64 / r.total_bytes.max(1) as f64)
    }),
    field("growth", Unit::Bytes, "growth since the view was opened; blank if none", growth),
    field("pid", Unit::None, "process", |r| Value::count(r.group.pid.map(u64::from))),
    field("process_name", Unit::None, "process name", |r| Value::text(r.group.process_name.as_deref())),
    field("space", Unit::None, "space, if it is one", |r| r.group.space.map_or(Value::Nothing, Value::Space)),
    field("label", Unit::None, "program, call site, operation or file", label),
];

fn growth(row: &Row<'_>) -> Value<'static> {
    let now = row.group.used_bytes;
    match row.first_bytes {
        Some(first) if now > first => Value::Text(Cow::Owned(format!("+{}", size(now - first)))),
        Some(first) if now < first => Value::Text(Cow::Owned(format!("-{}", size(first - now)))),
        _ => Value::Nothing,
    }
}

fn label<'r>(row: &'r Row<'_>) -> Value<'r> {
    let BufferGroup { program, program_name, site, site_name, label, .. } = row.group;
    let number = || {
        let program = program.map(|id| format!("program {id}"));
        program.or_else(|| site.map(|id| format!("site {id}")))
    };
    match (program_name.as_deref(), site_name.as_deref()) {
        (Some(program), Some(site)) => Value::Text(Cow::Owned(format!("{program} · {site}"))),
        (Some(name), None) | (None, Some(name)) => absent(Some(name)),
        (None, None) if row.group.hidden => Value::Text(Cow::Borrowed("withheld")),
        (None, None) if label.is_some() => absent(label.as_deref()),
        (None, None) => number().map_or(Value::Unknown, |number| Value::Text(Cow::Owned(number))),
    }
}

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Groups> {
    Column::screen(find_field(FIELDS, name), title, width)
}

static BY_PROCESS: [Column<Groups>; 8] = [
    USED,
    REQUESTED,
    COUNT,
    SHARE,
    GROWTH,
    PID,
    screen("process_name", "Process", 14).grows(40),
    screen("space", "Space", 8),
];
static BY_PROGRAM: [Column<Groups>; 9] = columns("Program");
static BY_SITE: [Column<Groups>; 9] = columns("Call site");
static BY_OP: [Column<Groups>; 9] = columns("Operation");
static BY_FUNCTION: [Column<Groups>; 9] = columns("Function");
static BY_FILE: [Column<Groups>; 9] = columns("File");
static BY_TENSOR: [Column<Groups>; 9] = columns("Tensor");
static BY_TRACK: [Column<Groups>; 9] = columns("Track");

const USED: Column<Groups> = screen("used_bytes", "Size", 10).right().sortable("size");
const REQUESTED: Column<Groups> =
    screen("requested_bytes", "Requested", 10).drop(4).right().faint().sortable("requested");
// The order that sorts single buffers by age sorts groups by count.
const COUNT: Column<Groups> = screen("count", "Count", 6).right().sortable("age");
const SHARE: Column<Groups> = screen("share", "Share", 6).right().format(Format::Decimals(1)).suffix(|_| "%");
const GROWTH: Column<Groups> = screen("growth", "Growth", 10).right();
const PID: Column<Groups> = screen("pid", "PID", 7).right().sortable("process");

/// The columns of groups that have something other than their process in common.
const fn columns(label: &'static str) -> [Column<Groups>; 9] {
    [
        USED,
        REQUESTED,
        COUNT,
        SHARE,
        GROWTH,
        PID,
        screen("process_name", "Process", 14).drop(3).grows(6),
        screen("space", "Space", 8).drop(2),
        screen("label", label, 24).grows(80),
    ]
}

/// Returns the table of groups on the dashboard.
pub fn screen_columns(grouping: BufferGrouping) -> &'static [Column<Groups>] {
    match grouping {
        BufferGrouping::Process => &BY_PROCESS,
        BufferGrouping::Program => &BY_PROGRAM,
        BufferGrouping::Site => &BY_SITE,
        BufferGrouping::Op => &BY_OP,
        BufferGrouping::Function => &BY_FUNCTION,
        BufferGrouping::File => &BY_FILE,
        BufferGrouping::Tensor => &BY_TENSOR,
        BufferGrouping::Track => &BY_TRACK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_show_share_and_growth() {
        let group = BufferGroup {
            hidden: false,
            pid: Some(7),
            process_name: None,
            space: None,
            program: None,
            program_name: None,
            site: None,
            site_name: None,
            label: Some("ttnn.matmul".to_owned()),
            count: 3,
            requested_bytes: 3072,
            used_bytes: 3072,
        };
        let texts = |first_bytes, names: [&str; 3]| {
            let row = Row { group: &group, total_bytes: 6144, first_bytes };
            let cell = |name| screen_columns(BufferGrouping::Op).iter().find(|it| it.field.name == name);
            names.map(|name| cell(name).map(|it| it.text(&row).into_owned()).unwrap_or_default()).join("|")
        };
        let names = ["share", "growth", "label"];
        assert_eq!(texts(Some(1024), names), "50.0%|+2.0 KiB|ttnn.matmul");
        assert_eq!(texts(Some(4096), names), "50.0%|-1.0 KiB|ttnn.matmul");
        assert_eq!(texts(Some(3072), names), "50.0%||ttnn.matmul");
        assert_eq!(texts(None, names), "50.0%||ttnn.matmul");
    }
}
