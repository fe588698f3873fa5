//! Cores.

use crate::column::{Column, Field, Form, Kind, find};
use crate::figure::cut;
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Core, CoreClass, CoreProgram};

/// Rows of cores.
#[derive(Debug)]
pub enum Cores {}

impl Kind for Cores {
    type Row<'a> = &'a Core;
}

const fn bytes(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Core) -> Value<'r>,
) -> Field<Cores> {
    Field::<Cores>::new(name, Unit::Bytes, help, value)
}

const fn text(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Core) -> Value<'r>,
) -> Field<Cores> {
    Field::<Cores>::new(name, Unit::None, help, value)
}

/// All that tables show of a core.
pub static FIELDS: &[Field<Cores>] = &[
    bytes("cb", "circular buffers of the program that was dispatched last", |it| of(it, CoreClass::Cb)),
    bytes("dfb", "dataflow buffers of that program", |it| of(it, CoreClass::Dfb)),
    bytes("scratch", "scratchpads of that program", |it| of(it, CoreClass::Scratch)),
    bytes("buffer", "buffers", |it| of(it, CoreClass::Buffer)),
    bytes("lockstep", "reserved by lock-step: other cores hold a buffer there", |it| {
        of(it, CoreClass::Lockstep)
    }),
    bytes("l1_small", "buffers in L1_SMALL", |it| of(it, CoreClass::L1Small)),
    bytes("l1_small_free", "free in L1_SMALL", |it| of(it, CoreClass::L1SmallFree)),
    bytes("free", "free", |it| of(it, CoreClass::Free)),
    text("program_end", "where what that program keeps ends", |it| Value::Address(it.room.program_end)),
    text("lowest_buffer", "where the lowest buffer begins", |it| Value::Address(it.room.lowest_buffer)),
    bytes("free_gap_bytes", "free between program memory and the lowest buffer", |it| {
        Value::Bytes(it.room.free_gap_bytes)
    }),
    bytes("peak_bytes", "the most that lay there at once", |it| {
        it.peak.as_ref().map_or(Value::Nothing, |it| Value::Bytes(it.bytes))
    }),
    text("program", "the program that was dispatched last", |it| {
        it.program.as_ref().map_or(Value::Nothing, |it| Value::Text(Cow::Owned(titled(it))))
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Cores> {
    Column::page(find(FIELDS, name), title, width)
}

/// `ttmem dump --cores`, behind the column that names the cores: that is as wide as it must be.
pub static DUMP: &[Column<Cores>] = &[
    page("cb", "CB", 10).right().form(Form::Some),
    page("dfb", "DFB", 10).right().form(Form::Some),
    page("scratch", "SCRATCH", 10).right().form(Form::Some),
    page("buffer", "BUFFERS", 10).right().form(Form::Some),
    page("lockstep", "LOCKSTEP", 10).right().form(Form::Some),
    page("l1_small", "L1_SMALL", 10).right().form(Form::Some),
    page("l1_small_free", "FREE SMALL", 10).right().form(Form::Some),
    page("free", "FREE", 10).right().form(Form::Some),
    page("program_end", "END", 9).right(),
    page("lowest_buffer", "LOWEST", 9).right(),
    page("free_gap_bytes", "GAP", 10).right(),
    page("peak_bytes", "PEAK", 10).right(),
    page("program", "PROGRAM", 0).apart(),
];

fn of(core: &Core, class: CoreClass) -> Value<'static> {
    Value::Bytes(core.intervals.iter().filter(|it| it.class == class).map(|it| it.bytes).sum())
}

/// A program on a core, as `pid 12 program 7 matmul`.
pub fn titled(program: &CoreProgram) -> String {
    let pid = program.pid.map_or_else(String::new, |pid| format!("pid {pid} "));
    let name = program.name.as_ref().map(|name| format!(" {}", cut(name, 40))).unwrap_or_default();
    format!("{pid}program {}{name}", program.id)
}
