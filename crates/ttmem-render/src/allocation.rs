//! The fields and tables of allocations.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::{core_count, core_range, plural, sanitize, short_program_id};
use crate::site::{absent, describe_site, line, purpose};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Allocation, Origin};
use ttmem_core::words::{KernelClass, Layout};

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
    field("site", Unit::None, "program, or operation, and call site", |it| match &it.program_name {
        Some(name) => origin(it.site_name.as_deref(), Some(name)),
        None => call_site(it).map_or(Value::Nothing, |site| Value::Text(Cow::Owned(site))),
    }),
    field("program_id", Unit::None, "program id of the runtime", |it| {
        it.program.map_or(Value::Nothing, |id| Value::Count(id.into()))
    })
    .queried(),
    field("program_name", Unit::None, "name of the program", |it| absent(it.program_name.as_deref()))
        .queried(),
    field("call_site", Unit::None, "call site", |it| absent(it.site_name.as_deref())).queried(),
    field("basis", Unit::None, "where the figures come from", |it| Value::Name(it.basis.name())).queried(),
    field("op", Unit::None, "operation that the call site called", |it| absent(it.origin.op.as_deref()))
        .queried(),
    field("file", Unit::None, "path of the call site's file", |it| absent(it.origin.file.as_deref()))
        .queried(),
    field("line", Unit::None, "line of the call site", |it| line(&it.origin)).queried(),
    field("function", Unit::None, "function that the call site is in", |it| {
        absent(it.origin.function.as_deref())
    })
    .queried(),
    field("purpose", Unit::None, "what the memory is for", |it| purpose(&it.origin)).queried(),
    field("tensor", Unit::None, "data type, shape and layout of the tensor", |it| {
        absent(it.origin.tensor.as_deref())
    })
    .queried(),
    field("track", Unit::None, "track of the program that it is in", |it| absent(it.origin.track.as_deref()))
        .queried(),
    field(
        "notes",
        Unit::None,
        "kernel class, layout and cores, program, operation and call site, tensor, basis",
        |it| Value::Text(Cow::Owned(format_notes(it))),
    ),
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
    screen("bytes_per_bank", "Per bank", 10).drop(6).right().faint(),
    screen("layout", "Layout", 14).drop(4).faint(),
    screen("age_seconds", "Age", 5).right().drop(1).format(Format::Short).faint().sortable("age"),
    screen("program", "Prog", 5).drop(7).right().faint().sortable("program"),
    screen("site", "Program, call site", 26).grows(85).sortable("site"),
];

/// The program, or the operation and call site, of an allocation. The program has its id, since several may have one
/// name.
pub fn describe_origin(allocation: &Allocation) -> Option<String> {
    let Allocation { program, program_name, site, .. } = allocation;
    let program = program.map(|id| {
        program_name.as_ref().map_or_else(|| format!("program {id}"), |name| format!("program {id} {name}"))
    });
    program.or_else(|| call_site(allocation).or_else(|| site.map(|id| format!("site {id}"))))
}

/// The operation and call site of an allocation.
pub fn call_site(allocation: &Allocation) -> Option<String> {
    let Allocation { site_name, origin: Origin { op, purpose, .. }, .. } = allocation;
    describe_site(site_name.as_deref(), op.as_deref(), *purpose)
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
    notes.extend(call_site(allocation).map(|site| sanitize(&site)));
    notes.extend(allocation.origin.tensor.as_ref().map(|tensor| sanitize(tensor)));
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
