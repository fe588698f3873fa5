//! Allocations, and groups of them.

use crate::column::{Column, Field, Form, Kind, find};
use crate::figure::{core_count, counted, plain, program_number, rectangle};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Allocation, BufferGroup};
use ttmem_core::words::{KernelClass, Layout, Space};

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
    field("devices", Unit::None, "devices", |it| Value::indexes(&it.indexes)),
    field("space", Unit::None, "space", |it| Value::Space(it.space)),
    field("address", Unit::None, "device address", |it| {
        if it.unplaced { Value::Unknown } else { Value::text(Some(&it.id)) }
    }),
    field("used_bytes", Unit::Bytes, "allocated bytes per device, or else requested bytes", |it| {
        size(it, it.allocated_bytes.unwrap_or(it.requested_bytes))
    }),
    field("requested_bytes", Unit::Bytes, "requested bytes per device", |it| size(it, it.requested_bytes)),
    field(
        "allocated_bytes",
        Unit::Bytes,
        "allocated bytes per device: what the allocator charges for all banks",
        |it| Value::bytes(it.allocated_bytes),
    ),
    field("bytes_per_bank", Unit::Bytes, "bytes per bank", |it| Value::bytes(it.bytes_per_bank)),
    field("references", Unit::None, "number of references", |it| Value::Count(it.references.into())),
    field("pid", Unit::None, "process", |it| Value::pid(it.pid, it.reported_pid)),
    field("age_seconds", Unit::Seconds, "age", |it| Value::Seconds(it.age_seconds)),
    field("layout", Unit::None, "memory layout, or number of cores", |it| {
        match (&it.cores, it.layout.and_then(Layout::title)) {
            (_, Some(layout)) => Value::Name(layout),
            (Some(cores), None) => Value::Text(Cow::Owned(counted(core_count(cores), "core"))),
            (None, None) => Value::Unknown,
        }
    }),
    field("program", Unit::None, "program id", |it| {
        it.program.map_or(Value::Nothing, |id| Value::Text(Cow::Owned(program_number(id))))
    }),
    field("site", Unit::None, "program and call site", |it| {
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
    page("requested_bytes", "REQUESTED", 10).right(),
    page("allocated_bytes", "ALLOCATED", 10).right(),
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

/// Rows of what holds the memory.
#[derive(Debug)]
pub enum Holders {}

impl Kind for Holders {
    type Row<'a> = &'a Holder;
}

/// Allocations that have something in common, on all devices: a row of `ttmem dump --group-by`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holder {
    /// Allocated bytes on all devices, or else requested.
    pub total_bytes: u64,
    /// Allocations.
    pub count: u64,
    /// Bytes of each on each of its devices, if all have the same.
    pub each_bytes: Option<u64>,
    /// Device indexes.
    pub devices: Vec<u32>,
    /// Spaces.
    pub spaces: Vec<Space>,
    /// Processes: pid, and the one a process reports itself.
    pub processes: Vec<(Option<u32>, Option<i64>)>,
    /// Name of the process, if it is one.
    pub process_name: Option<String>,
    /// Age of the oldest.
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

/// All that tables show of what holds the memory.
pub static HOLDER_FIELDS: &[Field<Holders>] = &[
    holder("total_bytes", Unit::Bytes, "allocated bytes on all devices", |it| Value::Bytes(it.total_bytes)),
    holder("count", Unit::None, "number of allocations", |it| Value::Count(it.count)),
    holder("each_bytes", Unit::Bytes, "bytes of each on one device, if all have the same size", |it| {
        it.each_bytes.map_or(Value::Nothing, Value::Bytes)
    }),
    holder("devices", Unit::None, "devices", |it| Value::indexes(&it.devices)),
    holder("space", Unit::None, "space, or the number of spaces", |it| match it.spaces[..] {
        [space] => Value::Space(space),
        _ => Value::Text(Cow::Owned(counted(it.spaces.len() as u64, "space"))),
    }),
    holder("pid", Unit::None, "process, or the number of processes", |it| match it.processes[..] {
        [(pid, reported)] => Value::pid(pid, reported),
        _ => Value::Text(Cow::Owned(format!("{} processes", it.processes.len()))),
    }),
    holder("process_name", Unit::None, "name of the process", |it| {
        it.process_name.as_deref().map_or(Value::Nothing, |it| Value::Text(Cow::Borrowed(it)))
    }),
    holder("age_seconds", Unit::Seconds, "age of the oldest", |it| Value::Seconds(it.age_seconds)),
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
];

const fn holder_page(name: &str, title: &'static str, width: u16) -> Column<Holders> {
    Column::page(find(HOLDER_FIELDS, name), title, width)
}

/// `ttmem dump --group-by`.
pub static HOLDER_DUMP: &[Column<Holders>] = &[
    holder_page("total_bytes", "TOTAL", 9).right(),
    holder_page("count", "COUNT", 0).right(),
    holder_page("each_bytes", "EACH", 0).right(),
    holder_page("devices", "DEVICE", 11).apart().cut(),
    holder_page("space", "SPACE", 0),
    holder_page("pid", "PID", 0).right(),
    holder_page("process_name", "PROCESS", 15).drop(1).cut(),
    holder_page("age_seconds", "OLDEST", 0).right().form(Form::Short).drop(2),
    holder_page("origin", "CALL SITE", 9).grows(u16::MAX).apart().cut(),
];

/// The program or call site of an allocation: several programs may have one name.
pub fn origin_of(it: &Allocation) -> Option<String> {
    let program = it.program.map(|id| {
        it.program_name
            .as_ref()
            .map_or_else(|| format!("program {id}"), |name| format!("program {id} {name}"))
    });
    let site = || it.site_name.clone().or_else(|| it.site.map(|id| format!("site {id}")));
    program.or_else(site)
}

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
