//! The fields and tables of cores.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::truncate;
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Core, CoreClass, CoreProgram};

/// Rows of cores.
#[derive(Debug)]
pub enum Cores {}

impl RowKind for Cores {
    type Row<'a> = &'a Core;
}

const fn bytes(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Core) -> Value<'r>,
) -> Field<Cores> {
    Field::<Cores>::new(name, Unit::Bytes, help, value).queried()
}

const fn text(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Core) -> Value<'r>,
) -> Field<Cores> {
    Field::<Cores>::new(name, Unit::None, help, value).queried()
}

/// The fields of a core.
pub static FIELDS: &[Field<Cores>] = &[
    bytes("cb", "circular buffers of the active program", |it| sum(it, CoreClass::Cb)),
    bytes("dfb", "dataflow buffers of the active program", |it| sum(it, CoreClass::Dfb)),
    bytes("scratch", "scratchpads of the active program", |it| sum(it, CoreClass::Scratch)),
    bytes("buffer", "buffers", |it| sum(it, CoreClass::Buffer)),
    bytes("lockstep", "reserved by lock-step: other banks hold a buffer at these addresses", |it| {
        sum(it, CoreClass::Lockstep)
    }),
    bytes("l1_small", "buffers in L1_SMALL", |it| sum(it, CoreClass::L1Small)),
    bytes("l1_small_free", "free in L1_SMALL", |it| sum(it, CoreClass::L1SmallFree)),
    bytes("free", "free", |it| sum(it, CoreClass::Free)),
    text("program_end", "end of program memory", |it| Value::Address(it.room.program_end)),
    text("lowest_buffer", "address of the lowest buffer", |it| Value::Address(it.room.lowest_buffer)),
    bytes("free_gap_bytes", "free gap between program memory and the lowest buffer", |it| {
        Value::Bytes(it.room.free_gap_bytes)
    }),
    bytes("peak_bytes", "peak", |it| it.peak.as_ref().map_or(Value::Nothing, |it| Value::Bytes(it.bytes))),
    text("program", "active program: dispatched last", |it| {
        it.program.as_ref().map_or(Value::Nothing, |it| Value::Text(Cow::Owned(program_title(it))))
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Cores> {
    Column::page(find_field(FIELDS, name), title, width)
}

/// The table of `ttmem dump --cores`. A column with the names of the cores, as wide as these, comes before it.
pub static DUMP: &[Column<Cores>] = &[
    page("cb", "CB", 10).right().format(Format::NonZero),
    page("dfb", "DFB", 10).right().format(Format::NonZero),
    page("scratch", "SCRATCH", 10).right().format(Format::NonZero),
    page("buffer", "BUFFERS", 10).right().format(Format::NonZero),
    page("lockstep", "LOCKSTEP", 10).right().format(Format::NonZero),
    page("l1_small", "L1_SMALL", 10).right().format(Format::NonZero),
    page("l1_small_free", "FREE SMALL", 10).right().format(Format::NonZero),
    page("free", "FREE", 10).right().format(Format::NonZero),
    page("program_end", "END", 9).right(),
    page("lowest_buffer", "LOWEST", 9).right(),
    page("free_gap_bytes", "FREE GAP", 10).right(),
    page("peak_bytes", "PEAK", 10).right(),
    page("program", "PROGRAM", 0).apart(),
];

fn sum(core: &Core, class: CoreClass) -> Value<'static> {
    Value::Bytes(core.intervals.iter().filter(|it| it.class == class).map(|it| it.bytes).sum())
}

/// The name of a program on a core, as `pid 12 program 7 matmul`.
pub fn program_title(program: &CoreProgram) -> String {
    let pid = program.pid.map_or_else(String::new, |pid| format!("pid {pid} "));
    let name = program.name.as_ref().map(|name| format!(" {}", truncate(name, 40))).unwrap_or_default();
    format!("{pid}program {}{name}", program.id)
}
