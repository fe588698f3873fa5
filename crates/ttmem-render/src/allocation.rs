//! The fields and tables of allocations, and of groups of them.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::{core_count, core_range, plural, sanitize, short_program_id};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Allocation, BufferGroup};
use ttmem_core::words::{KernelClass, Layout, Space};

/// The most core ranges that notes list one by one.
const MAX_CORE_RANGES: usize = 3;

/// Rows of allocations.
#[derive(Debug)]
pub enum Allocations {}

impl RowKind for Allocations {
    type Row<'a> = &'a Allocation;
}

const fn field(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: for<'r> fn(&'r &Allocation) -> Value<'r>,
) -> Field<Allocations> {
    Field::<Allocations>::new(name, unit, help, value)
}

/// The fields of an allocation.
pub static FIELDS: &[Field<Allocations>] = &[
    field("devices", Unit::None, "devices", |it| Value::indexes(&it.indexes)).queried(),
    field("space", Unit::None, "space", |it| Value::Space(it.space)).queried(),
    field("address", Unit::None, "device address", |it| {
        if it.unplaced { Value::Unknown } else { Value::text(Some(&it.id)) }
    })
    .queried(),
    field("used_bytes", Unit::Bytes, "allocated bytes per device, or else requested bytes", |it| {
        size(it, it.allocated_bytes.unwrap_or(it.requested_bytes))
    }),
    field("allocator", Unit::None, "number of the allocator within the process", |it| {
        Value::count(it.allocator.map(u64::from))
    })
    .queried(),
    field("requested_bytes", Unit::Bytes, "requested bytes per device", |it| size(it, it.requested_bytes))
        .queried(),
    field(
        "allocated_bytes",
        Unit::Bytes,
        "allocated bytes per device: what the allocator charges for all banks",
        |it| Value::bytes(it.allocated_bytes),
    )
    .queried(),
    field("bytes_per_bank", Unit::Bytes, "bytes per bank", |it| Value::bytes(it.bytes_per_bank)).queried(),
    field("banks", Unit::None, "number of banks or cores that allocate it", |it| {
        Value::count(it.banks.map(u64::from))
    })
    .queried(),
    field("references", Unit::None, "number of references", |it| Value::Count(it.references.into()))
        .queried(),
    field("pid", Unit::None, "process", |it| Value::pid(it.pid, it.reported_pid)).queried(),
    field("age_seconds", Unit::Seconds, "age", |it| Value::Seconds(it.age_seconds)).queried(),
    field("layout", Unit::None, "memory layout, or number of cores", |it| {
        match (&it.cores, it.layout.and_then(Layout::title)) {
            (_, Some(layout)) => Value::Name(layout),
            (Some(cores), None) => Value::Text(Cow::Owned(plural(core_count(cores), "core"))),
            (None, None) => Value::Unknown,
        }
    })
    .queried(),
    field("program", Unit::None, "program id", |it| {
        it.program.map_or(Value::Nothing, |id| Value::Text(Cow::Owned(short_program_id(id))))
    }),
    field("site", Unit::None, "program and call site", |it| {
        origin(it.site_name.as_deref(), it.program_name.as_deref())
    }),
    field("program_id", Unit::None, "program id of the runtime", |it| {
        it.program.map_or(Value::Nothing, |id| Value::Count(id.into()))
    })
    .queried(),
    field("program_name", Unit::None, "name of the program", |it| name(it.program_name.as_deref())).queried(),
    field("call_site", Unit::None, "call site", |it| name(it.site_name.as_deref())).queried(),
    field("basis", Unit::None, "where the figures come from", |it| Value::Name(it.basis.name())).queried(),
    field("notes", Unit::None, "kernel class, layout and cores, program, call site, basis", |it| {
        Value::Text(Cow::Owned(format_notes(it)))
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Allocations> {
    Column::page(find_field(FIELDS, name), title, width)
}

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Allocations> {
    Column::screen(find_field(FIELDS, name), title, width)
}

/// The table of `ttmem dump`.
pub static DUMP: &[Column<Allocations>] = &[
    page("devices", "DEVICE", 8).unknown(""),
    page("space", "SPACE", 9),
    page("address", "ADDRESS", 18).right(),
    page("requested_bytes", "REQUESTED", 10).right(),
    page("allocated_bytes", "ALLOCATED", 10).right(),
    page("references", "REFS", 5).right(),
    page("pid", "PID", 9).right(),
    page("age_seconds", "AGE", 9).right(),
    page("notes", "NOTES", 0).apart(),
];

/// The buffers of the dashboard.
pub static SCREEN: &[Column<Allocations>] = &[
    screen("used_bytes", "Size", 11).right().sortable("size"),
    screen("requested_bytes", "Requested", 11).drop(5).right().faint().sortable("requested"),
    screen("space", "Space", 8).sortable("space"),
    screen("address", "Address", 12).right().sortable("address"),
    screen("devices", "Device", 7).grows(4).sortable("device"),
    screen("pid", "PID", 7).right().sortable("process"),
    screen("bytes_per_bank", "Per bank", 10).drop(7).right().faint(),
    screen("layout", "Layout", 14).drop(4).faint(),
    screen("age_seconds", "Age", 5).right().format(Format::Short).faint().sortable("age"),
    screen("program", "Prog", 5).drop(6).right().faint().sortable("program"),
    screen("site", "Program, call site", 20).grows(85).sortable("site"),
];

/// Rows of groups of allocations.
#[derive(Debug)]
pub enum Groups {}

impl RowKind for Groups {
    type Row<'a> = &'a BufferGroup;
}

const fn group(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: for<'r> fn(&'r &BufferGroup) -> Value<'r>,
) -> Field<Groups> {
    Field::<Groups>::new(name, unit, help, value)
}

/// The fields of a group of allocations.
pub static GROUP_FIELDS: &[Field<Groups>] = &[
    group("used_bytes", Unit::Bytes, "allocated bytes per device, or else requested bytes", |it| {
        Value::Bytes(it.used_bytes)
    }),
    group("requested_bytes", Unit::Bytes, "requested bytes per device", |it| {
        Value::Bytes(it.requested_bytes)
    }),
    group("count", Unit::None, "number of allocations", |it| Value::Count(it.count)),
    group("pid", Unit::None, "process", |it| Value::count(it.pid.map(u64::from))),
    group("process_name", Unit::None, "process name", |it| Value::text(it.process_name.as_deref())),
    group("space", Unit::None, "space, if it is one", |it| it.space.map_or(Value::Nothing, Value::Space)),
    group("site", Unit::None, "program or call site", |it| {
        let number =
            it.program.map(|id| format!("program {id}")).or_else(|| it.site.map(|id| format!("site {id}")));
        match (origin(it.site_name.as_deref(), it.program_name.as_deref()), number) {
            (Value::Nothing, Some(number)) => Value::Text(Cow::Owned(number)),
            (named, _) => named,
        }
    }),
];

const fn group_screen(name: &str, title: &'static str, width: u16) -> Column<Groups> {
    Column::screen(find_field(GROUP_FIELDS, name), title, width)
}

/// The groups of buffers of the dashboard. The order that sorts single buffers by age sorts groups by count.
pub static GROUP_SCREEN: &[Column<Groups>] = &[
    group_screen("used_bytes", "Size", 11).right().sortable("size"),
    group_screen("requested_bytes", "Requested", 11).drop(1).right().faint().sortable("requested"),
    group_screen("count", "Count", 8).right().sortable("age"),
    group_screen("pid", "PID", 8).right().sortable("process"),
    group_screen("process_name", "Process", 14).grows(10),
    group_screen("space", "Space", 8),
    group_screen("site", "Program, call site", 20).grows(80),
];

/// Rows of holders of memory.
#[derive(Debug)]
pub enum Holders {}

impl RowKind for Holders {
    type Row<'a> = &'a Holder;
}

/// Allocations that have something in common, on all devices: a row of `ttmem dump --group-by`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holder {
    /// Allocated bytes on all devices, or else requested bytes.
    pub total_bytes: u64,
    /// Number of allocations.
    pub count: u64,
    /// Bytes of each allocation on each of its devices, if all have the same size.
    pub each_bytes: Option<u64>,
    /// Device indexes.
    pub devices: Vec<u32>,
    /// Spaces.
    pub spaces: Vec<Space>,
    /// Processes: the pid, and the pid that the process reports for itself.
    pub processes: Vec<(Option<u32>, Option<i64>)>,
    /// Name of the process, if there is only one.
    pub process_name: Option<String>,
    /// Age of the oldest allocation.
    pub age_seconds: f64,
    /// Programs and call sites.
    pub origins: Vec<String>,
}

const fn holder(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: for<'r> fn(&'r &Holder) -> Value<'r>,
) -> Field<Holders> {
    Field::<Holders>::new(name, unit, help, value)
}

/// The fields of a holder of memory.
pub static HOLDER_FIELDS: &[Field<Holders>] = &[
    holder("total_bytes", Unit::Bytes, "allocated bytes on all devices", |it| Value::Bytes(it.total_bytes))
        .queried(),
    holder("count", Unit::None, "number of allocations", |it| Value::Count(it.count)).queried(),
    holder("each_bytes", Unit::Bytes, "bytes of each on one device, if all have the same size", |it| {
        it.each_bytes.map_or(Value::Nothing, Value::Bytes)
    })
    .queried(),
    holder("devices", Unit::None, "devices", |it| Value::indexes(&it.devices)).queried(),
    holder("space", Unit::None, "space, or the number of spaces", |it| match it.spaces[..] {
        [space] => Value::Space(space),
        _ => Value::Text(Cow::Owned(plural(it.spaces.len() as u64, "space"))),
    }),
    holder("spaces", Unit::None, "all spaces", |it| {
        join(it.spaces.iter().map(|it| it.name().to_owned()), " ")
    })
    .queried(),
    holder("pids", Unit::None, "all processes", |it| {
        join(it.processes.iter().filter_map(|(pid, _)| pid.map(|it| it.to_string())), " ")
    })
    .queried(),
    holder("pid", Unit::None, "process, or the number of processes", |it| match it.processes[..] {
        [(pid, reported)] => Value::pid(pid, reported),
        _ => Value::Text(Cow::Owned(format!("{} processes", it.processes.len()))),
    }),
    holder("process_name", Unit::None, "name of the process", |it| {
        it.process_name.as_deref().map_or(Value::Nothing, |it| Value::Text(Cow::Borrowed(it)))
    })
    .queried(),
    holder("age_seconds", Unit::Seconds, "age of the oldest", |it| Value::Seconds(it.age_seconds)).queried(),
    holder(
        "origin",
        Unit::None,
        "call site or program, or the number of these",
        |it| match &it.origins[..] {
            [] => Value::Nothing,
            [one] => Value::Text(Cow::Borrowed(one)),
            many if it.spaces.iter().all(|it| Space::PROGRAM.contains(it)) => {
                Value::Text(Cow::Owned(format!("{} programs", many.len())))
            }
            many => Value::Text(Cow::Owned(format!("{} call sites", many.len()))),
        },
    ),
    holder("origins", Unit::None, "all call sites and programs", |it| join(it.origins.iter().cloned(), "; "))
        .queried(),
];

const fn holder_page(name: &str, title: &'static str, width: u16) -> Column<Holders> {
    Column::page(find_field(HOLDER_FIELDS, name), title, width)
}

/// The table of `ttmem dump --group-by`.
pub static HOLDER_DUMP: &[Column<Holders>] = &[
    holder_page("total_bytes", "TOTAL", 9).right(),
    holder_page("count", "COUNT", 0).right(),
    holder_page("each_bytes", "EACH", 0).right(),
    holder_page("devices", "DEVICE", 11).apart().cut(),
    holder_page("space", "SPACE", 0),
    holder_page("pid", "PID", 0).right(),
    holder_page("process_name", "PROCESS", 15).drop(1).cut(),
    holder_page("age_seconds", "OLDEST", 0).right().format(Format::Short).drop(2),
    holder_page("origin", "CALL SITE", 9).grows(u16::MAX).apart().cut(),
];

/// The program or call site of an allocation. The program has its id, since several may have one name.
pub fn describe_origin(allocation: &Allocation) -> Option<String> {
    let Allocation { program, program_name, site, site_name, .. } = allocation;
    let program = program.map(|id| {
        program_name.as_ref().map_or_else(|| format!("program {id}"), |name| format!("program {id} {name}"))
    });
    program.or_else(|| site_name.clone().or_else(|| site.map(|id| format!("site {id}"))))
}

/// A name; buffers need not have one.
fn name(name: Option<&str>) -> Value<'_> {
    name.map_or(Value::Nothing, |name| Value::Text(Cow::Borrowed(name)))
}

/// A list as one text; an empty one is absent.
fn join(parts: impl Iterator<Item = String>, separator: &str) -> Value<'static> {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { Value::Nothing } else { Value::Text(Cow::Owned(parts.join(separator))) }
}

fn size(allocation: &Allocation, bytes: u64) -> Value<'static> {
    if allocation.estimated { Value::Estimate(bytes) } else { Value::Bytes(bytes) }
}

/// Program, call site, or both.
fn origin<'a>(site: Option<&'a str>, program: Option<&'a str>) -> Value<'a> {
    match (site, program) {
        (Some(site), Some(program)) => Value::Text(Cow::Owned(format!("{program} · {site}"))),
        (Some(name), None) | (None, Some(name)) => Value::Text(Cow::Borrowed(name)),
        (None, None) => Value::Nothing,
    }
}

fn format_notes(allocation: &Allocation) -> String {
    let mut notes = Vec::new();
    if let Some(class) = allocation.kernel.filter(|class| *class != KernelClass::Unknown) {
        notes.push(class.title().to_lowercase());
    }
    if let Some(layout) = allocation.layout.and_then(Layout::title) {
        notes.push(format!("{layout}{}", format_cores(allocation.cores.as_deref().unwrap_or_default())));
    }
    if allocation.estimated {
        notes.push("estimated".to_owned());
    }
    if let Some(program) = allocation.program {
        let name = allocation.program_name.as_ref().map(|name| format!(" {}", sanitize(name)));
        notes.push(format!("program {program}{}", name.unwrap_or_default()));
    }
    if let Some(site) = &allocation.site_name {
        notes.push(format!("at {}", sanitize(site)));
    }
    notes.push(allocation.basis.name().to_owned());
    notes.join(", ")
}

/// Cores as ` on 4 cores 0,0-3,0`; without the ranges if there are many.
fn format_cores(rectangles: &[[u8; 4]]) -> String {
    let count = core_count(rectangles);
    match rectangles {
        [] => String::new(),
        [..] if rectangles.len() <= MAX_CORE_RANGES => {
            let ranges: Vec<String> = rectangles.iter().map(|it| core_range(*it)).collect();
            format!(" on {count} cores {}", ranges.join(" "))
        }
        [..] => format!(" on {count} cores"),
    }
}
