//! Allocations, and groups of them.

use crate::column::{Column, Field, Form, Kind, find};
use crate::figure::{core_count, counted, plain, program_number, rectangle};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Allocation, BufferGroup};
use ttmem_core::words::{KernelClass, Layout};

/// Rectangles of cores that notes show one by one.
const RECTANGLES: usize = 3;

/// Rows of allocations.
#[derive(Debug)]
pub enum Allocations {}

impl Kind for Allocations {
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

/// All that tables show of an allocation.
pub static FIELDS: &[Field<Allocations>] = &[
    field("devices", Unit::None, "devices it lies on", |it| Value::indexes(&it.indexes)),
    field("space", Unit::None, "kind of memory", |it| Value::Space(it.space)),
    field("address", Unit::None, "its first address", |it| {
        if it.unplaced { Value::Unknown } else { Value::text(Some(&it.id)) }
    }),
    field("used_bytes", Unit::Bytes, "bytes it takes: allocated, or else requested", |it| {
        size(it, it.allocated_bytes.unwrap_or(it.requested_bytes))
    }),
    field("requested_bytes", Unit::Bytes, "bytes that were requested", |it| size(it, it.requested_bytes)),
    field("allocated_bytes", Unit::Bytes, "bytes that the allocator charges for it", |it| {
        Value::bytes(it.allocated_bytes)
    }),
    field("bytes_per_bank", Unit::Bytes, "bytes it takes of each bank", |it| Value::bytes(it.bytes_per_bank)),
    field("references", Unit::None, "how many times it is held", |it| Value::Count(it.references.into())),
    field("pid", Unit::None, "process that holds it", |it| Value::pid(it.pid, it.reported_pid)),
    field("age_seconds", Unit::Seconds, "how long it has been held", |it| Value::Seconds(it.age_seconds)),
    field("layout", Unit::None, "how it lies in its banks or on its cores", |it| {
        match (&it.cores, it.layout.and_then(Layout::title)) {
            (_, Some(layout)) => Value::Name(layout),
            (Some(cores), None) => Value::Text(Cow::Owned(counted(core_count(cores), "core"))),
            (None, None) => Value::Unknown,
        }
    }),
    field("program", Unit::None, "number of the program that keeps it", |it| {
        it.program.map_or(Value::Nothing, |id| Value::Text(Cow::Owned(program_number(id))))
    }),
    field("site", Unit::None, "its program, and the call site that allocated it", |it| {
        origin(it.site_name.as_deref(), it.program_name.as_deref())
    }),
    field("notes", Unit::None, "kernel class, layout and cores, program, call site, basis", |it| {
        Value::Text(Cow::Owned(notes(it)))
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Allocations> {
    Column::page(find(FIELDS, name), title, width)
}

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Allocations> {
    Column::screen(find(FIELDS, name), title, width)
}

/// `ttmem dump`.
pub static DUMP: &[Column<Allocations>] = &[
    page("devices", "DEVICE", 8).unknown(""),
    page("space", "SPACE", 9),
    page("address", "ADDRESS", 18).right(),
    page("requested_bytes", "BYTES", 12).right().form(Form::Exact),
    page("allocated_bytes", "ALLOCATED", 12).right().form(Form::Exact),
    page("references", "REFS", 5).right(),
    page("pid", "PID", 9).right(),
    page("age_seconds", "AGE", 9).right(),
    page("notes", "NOTES", 0).apart(),
];

/// The buffers of the dashboard.
pub static SCREEN: &[Column<Allocations>] = &[
    screen("used_bytes", "Size", 11).right().sorted("size"),
    screen("requested_bytes", "Requested", 11).drop(5).right().faint().sorted("requested"),
    screen("space", "Space", 8).sorted("space"),
    screen("address", "Address", 12).right().sorted("address"),
    screen("devices", "Device", 7).grows(4).sorted("device"),
    screen("pid", "PID", 7).right().sorted("process"),
    screen("bytes_per_bank", "Per bank", 10).drop(7).right().faint(),
    screen("layout", "Layout", 14).drop(4).faint(),
    screen("age_seconds", "Age", 5).right().form(Form::Short).faint().sorted("age"),
    screen("program", "Prog", 5).drop(6).right().faint().sorted("program"),
    screen("site", "Program, call site", 20).grows(85).sorted("site"),
];

/// Rows of groups of allocations.
#[derive(Debug)]
pub enum Groups {}

impl Kind for Groups {
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

/// All that tables show of a group of allocations.
pub static GROUP_FIELDS: &[Field<Groups>] = &[
    group("used_bytes", Unit::Bytes, "bytes they take on one device each", |it| Value::Bytes(it.used_bytes)),
    group("requested_bytes", Unit::Bytes, "bytes that were requested", |it| Value::Bytes(it.requested_bytes)),
    group("count", Unit::None, "how many allocations they are", |it| Value::Count(it.count)),
    group("pid", Unit::None, "process that holds them", |it| Value::count(it.pid.map(u64::from))),
    group("process_name", Unit::None, "its name", |it| Value::text(it.process_name.as_deref())),
    group("space", Unit::None, "kind of memory, if it is one", |it| {
        it.space.map_or(Value::Nothing, Value::Space)
    }),
    group("site", Unit::None, "the program or call site that they have in common", |it| {
        let number =
            it.program.map(|it| format!("program {it}")).or_else(|| it.site.map(|it| format!("site {it}")));
        match (origin(it.site_name.as_deref(), it.program_name.as_deref()), number) {
            (Value::Nothing, Some(number)) => Value::Text(Cow::Owned(number)),
            (named, _) => named,
        }
    }),
];

const fn group_screen(name: &str, title: &'static str, width: u16) -> Column<Groups> {
    Column::screen(find(GROUP_FIELDS, name), title, width)
}

/// The groups of buffers of the dashboard. Where single buffers are sorted by age, groups are by their count.
pub static GROUP_SCREEN: &[Column<Groups>] = &[
    group_screen("used_bytes", "Size", 11).right().sorted("size"),
    group_screen("requested_bytes", "Requested", 11).drop(1).right().faint().sorted("requested"),
    group_screen("count", "Count", 8).right().sorted("age"),
    group_screen("pid", "PID", 8).right().sorted("process"),
    group_screen("process_name", "Process", 14).grows(10),
    group_screen("space", "Space", 8),
    group_screen("site", "Program, call site", 20).grows(80),
];

fn size(it: &Allocation, bytes: u64) -> Value<'static> {
    if it.estimated { Value::Estimate(bytes) } else { Value::Bytes(bytes) }
}

/// What something belongs to: its program, its call site, or both.
fn origin<'a>(site: Option<&'a str>, program: Option<&'a str>) -> Value<'a> {
    match (site, program) {
        (Some(site), Some(program)) => Value::Text(Cow::Owned(format!("{program} · {site}"))),
        (Some(it), None) | (None, Some(it)) => Value::Text(Cow::Borrowed(it)),
        (None, None) => Value::Nothing,
    }
}

fn notes(it: &Allocation) -> String {
    let mut notes = Vec::new();
    if let Some(class) = it.kernel.filter(|class| *class != KernelClass::Unknown) {
        notes.push(class.title().to_lowercase());
    }
    if let Some(layout) = it.layout.and_then(Layout::title) {
        notes.push(format!("{layout}{}", on_cores(it.cores.as_deref().unwrap_or_default())));
    }
    if it.estimated {
        notes.push("estimated".to_owned());
    }
    if let Some(program) = it.program {
        let name = it.program_name.as_ref().map(|name| format!(" {}", plain(name))).unwrap_or_default();
        notes.push(format!("program {program}{name}"));
    }
    if let Some(site) = &it.site_name {
        notes.push(format!("at {}", plain(site)));
    }
    notes.push(it.basis.name().to_owned());
    notes.join(", ")
}

/// ` on 4 cores 0,0-3,0`, as far as there is room.
fn on_cores(rectangles: &[[u8; 4]]) -> String {
    let count = core_count(rectangles);
    let shown = |it: &[u8; 4]| format!(" {}", rectangle(*it));
    match rectangles {
        [] => String::new(),
        [..] if rectangles.len() <= RECTANGLES => {
            format!(" on {count} cores{}", rectangles.iter().map(shown).collect::<String>())
        }
        [..] => format!(" on {count} cores"),
    }
}
