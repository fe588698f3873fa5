//! The fields and tables of programs.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::{short_program_id, truncate};
use crate::site::absent;
use crate::value::{Unit, Value};
use jiff::Timestamp;
use std::borrow::Cow;
use ttmem_core::snapshot::{Program, ProgramRow};
use ttmem_core::words::KernelClass;

/// Rows of programs.
#[derive(Debug)]
pub enum Programs {}

impl RowKind for Programs {
    type Row<'a> = Row<'a>;
}

/// A row of a list of programs.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Pid of its process.
    pub pid: Option<u32>,
    /// Pid that the process reports for itself.
    pub reported_pid: Option<i64>,
    /// Name of its process.
    pub process_name: Option<&'a str>,
    /// The program.
    pub program: &'a Program,
    /// The current time, for the age of the last dispatch.
    pub now: Timestamp,
}

impl<'a> Row<'a> {
    /// Creates a row from a program of a snapshot.
    pub fn new(row: &'a ProgramRow, now: Timestamp) -> Self {
        let ProgramRow { pid, reported_pid, process_name, program, .. } = row;
        Self { pid: *pid, reported_pid: *reported_pid, process_name: process_name.as_deref(), program, now }
    }
}

const fn text(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Programs> {
    Field::<Programs>::new(name, Unit::None, help, value)
}

const fn bytes(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Programs> {
    Field::<Programs>::new(name, Unit::Bytes, help, value)
}

/// The fields of a program.
pub static FIELDS: &[Field<Programs>] = &[
    text("devices", "devices", |r| Value::indexes(&r.program.indexes)).queried(),
    text("pid", "process", |r| Value::pid(r.pid, r.reported_pid)).queried(),
    text("process_name", "process name", |r| {
        r.process_name.map_or(Value::Nothing, |it| Value::Text(Cow::Borrowed(it)))
    })
    .queried(),
    text("id", "program id of the runtime", |r| Value::Count(r.program.id.into())).queried(),
    text("short_id", "last digits of the program id", |r| {
        Value::Text(Cow::Owned(short_program_id(r.program.id)))
    }),
    text("name", "name, or else class", |r| match (&r.program.name, r.program.class) {
        (Some(name), _) => Value::text(Some(name)),
        (None, KernelClass::Unknown | KernelClass::Application) => Value::Unknown,
        (None, class) => Value::Name(class.title()),
    })
    .queried(),
    text("class_and_name", "name, with the class of dispatch and fabric programs", |r| {
        class_and_name(r.program)
    }),
    text("core_count", "cores per device", |r| {
        if r.program.cores.is_empty() { Value::Unknown } else { Value::Count(r.program.core_count.into()) }
    })
    .queried(),
    bytes("kernel_bytes", "kernel code, arguments and semaphores per core", |r| {
        match r.program.kernel_bytes {
            // If its cores are unknown, so is the size on each of them.
            0 if r.program.cores.is_empty() => Value::Unknown,
            bytes => estimated_bytes(r.program.estimated, bytes),
        }
    })
    .queried(),
    bytes("cb_bytes", "circular buffers per device", |r| {
        estimated_bytes(has_estimated_buffers(r.program), r.program.cb_bytes)
    })
    .queried(),
    bytes("dfb_bytes", "dataflow buffers per device", |r| {
        estimated_bytes(has_estimated_buffers(r.program), r.program.dfb_bytes)
    })
    .queried(),
    bytes("scratch_bytes", "scratchpads per device", |r| {
        estimated_bytes(has_estimated_buffers(r.program), r.program.scratch_bytes)
    })
    .queried(),
    text("view_count", "views of buffers, counted as buffers", |r| Value::Count(r.program.view_count))
        .queried(),
    text("end", "end of its memory in L1, on the core where it is highest", |r| {
        r.program.end.map_or(Value::Nothing, Value::Address)
    })
    .queried(),
    text("dispatches", "number of dispatches", |r| {
        if r.program.residency_unknown { Value::Unknown } else { Value::Count(r.program.dispatches) }
    })
    .queried(),
    Field::<Programs>::new("dispatched", Unit::Seconds, "time since the last dispatch", |r| {
        match r.program.dispatched {
            Some(at) => Value::Seconds(r.now.duration_since(at).as_secs_f64().max(0.0)),
            None if r.program.residency_unknown => Value::Unknown,
            None => Value::Nothing,
        }
    })
    .queried(),
    text("resident_cores", "cores on all devices where it is active: dispatched last", |r| match r.program {
        program if program.residency_unknown => Value::Unknown,
        program => Value::Fraction(program.resident_cores.into(), total_cores(program)),
    })
    .queried(),
    text("state", "active on how many of its cores, cached, or blocked by buffers", |r| {
        match r.program.resident_cores {
            _ if r.program.residency_unknown => Value::Name("unknown"),
            0 if r.program.would_clash => Value::Name("blocked"),
            0 => Value::Name("cached"),
            n => Value::Text(Cow::Owned(format!("active {n}/{}", total_cores(r.program)))),
        }
    }),
    text("kernels", "names of its kernels, if its name is its operation", |r| {
        absent(r.program.kernels.as_deref())
    })
    .queried(),
    text("call_site", "call site that dispatched it first", |r| absent(r.program.site_name.as_deref()))
        .queried(),
    text(
        "blocked",
        "whether L1 buffers are below its end, so that a dispatch would fail: `yes` or `no`",
        |r| Value::Name(if r.program.would_clash { "yes" } else { "no" }),
    )
    .queried(),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Programs> {
    Column::page(find_field(FIELDS, name), title, width)
}

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Programs> {
    Column::screen(find_field(FIELDS, name), title, width)
}

/// A column of sizes, faint if zero: most programs use few kinds of memory.
const fn size(name: &str, title: &'static str) -> Column<Programs> {
    screen(name, title, 10).right().faint_zero()
}

/// The table of `ttmem dump --programs`.
pub static DUMP: &[Column<Programs>] = &[
    page("devices", "DEVICE", 8).unknown(""),
    page("pid", "PID", 9).right(),
    page("id", "PROGRAM", 10).right(),
    page("core_count", "CORES", 5).right().unknown("?"),
    page("kernel_bytes", "KERNEL", 10).right().format(Format::NonZero).unknown("?"),
    page("cb_bytes", "CB", 10).right().format(Format::NonZero),
    page("dfb_bytes", "DFB", 10).right().format(Format::NonZero),
    page("scratch_bytes", "SCRATCH", 10).right().format(Format::NonZero),
    page("view_count", "VIEWS", 5).right(),
    page("end", "END", 9).right(),
    page("dispatches", "DISPATCHES", 10).right().unknown("-"),
    page("dispatched", "LAST", 9).right().unknown("-"),
    page("state", "STATE", 18).apart(),
    page("class_and_name", "NAME", 0),
];

/// The programs of the dashboard.
pub static SCREEN: &[Column<Programs>] = &[
    screen("pid", "PID", 7).right().sortable("pid"),
    screen("process_name", "Process", 10).grows(6).drop(5).faint().sortable("process"),
    screen("short_id", "Prog", 5).right().sortable("id"),
    screen("name", "Name", 15).grows(61).sortable("name"),
    screen("devices", "Device", 7).grows(3).sortable("devices"),
    screen("core_count", "Cores", 6).right().unknown("?").sortable("cores"),
    screen("resident_cores", "Active", 9).sortable("active"),
    screen("dispatches", "Runs", 6).right().format(Format::Short).sortable("dispatches"),
    screen("dispatched", "Last", 5)
        .drop(2)
        .right()
        .format(Format::Short)
        .nothing("never")
        .faint()
        .sortable("last"),
    size("cb_bytes", "CBs").sortable("cb"),
    size("dfb_bytes", "DFBs").drop(4).sortable("dfb"),
    size("scratch_bytes", "Scratch").drop(6).sortable("scratch"),
    size("kernel_bytes", "Kernels").drop(1).sortable("kernel"),
    screen("end", "Ends at", 8).drop(3).right().nothing("·").faint().sortable("end"),
];

/// Whether the sizes of buffers and scratchpads are estimates. A program with kernels has estimates only of these.
pub fn has_estimated_buffers(program: &Program) -> bool {
    program.estimated && program.kernel_bytes == 0 && !program.cores.is_empty()
}

/// Number of cores of a program on all its devices.
pub fn total_cores(program: &Program) -> u64 {
    u64::from(program.core_count) * program.indexes.len().max(1) as u64
}

/// Bytes, estimated or exact. Zero is always exact.
fn estimated_bytes(is_estimate: bool, bytes: u64) -> Value<'static> {
    if is_estimate && bytes > 0 { Value::Estimate(bytes) } else { Value::Bytes(bytes) }
}

fn class_and_name(program: &Program) -> Value<'_> {
    let name = program.name.as_deref().map_or(Cow::Borrowed("-"), |name| Cow::Owned(truncate(name, 60)));
    Value::Text(match program.class {
        KernelClass::Fabric | KernelClass::Dispatch => {
            Cow::Owned(format!("[{}] {name}", program.class.title().to_lowercase()))
        }
        KernelClass::Application | KernelClass::Unknown => name,
    })
}
