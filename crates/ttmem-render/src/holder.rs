//! The fields and tables of the groups of allocations that `ttmem dump --group-by` prints.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::plural;
use crate::site::{absent, line, purpose};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::Origin;
use ttmem_core::words::Space;

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
    /// Share of the bytes of all groups, in percent.
    pub share_percent: f64,
    /// Programs and call sites.
    pub origins: Vec<String>,
    /// Operations.
    pub ops: Vec<String>,
    /// What is known about the call sites of all its allocations, as far as that is equal.
    pub origin: Origin,
    /// The call site, operation, function, file, tensor or track that its allocations have in common, if they are grouped by it.
    pub label: Option<String>,
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
        "what its allocations have in common; else call site or program, or the number of these",
        |group| match &group.origins[..] {
            _ if group.label.is_some() => absent(group.label.as_deref()),
            [] => Value::Nothing,
            [one] => Value::Text(Cow::Borrowed(one)),
            many if group.spaces.iter().all(|it| Space::PROGRAM.contains(it)) => {
                Value::Text(Cow::Owned(format!("{} programs", many.len())))
            }
            many => Value::Text(Cow::Owned(format!("{} call sites", many.len()))),
        },
    ),
    holder("origins", Unit::None, "all call sites and programs", |it| join(it.origins.iter().cloned(), "; "))
        .queried(),
    holder("ops", Unit::None, "all operations", |it| join(it.ops.iter().cloned(), " ")).queried(),
    holder("file", Unit::None, "path of the file, if it is one", |it| absent(it.origin.file.as_deref()))
        .queried(),
    holder("line", Unit::None, "line of the file, if it is one", |it| line(&it.origin)).queried(),
    holder("function", Unit::None, "function, if it is one", |it| absent(it.origin.function.as_deref()))
        .queried(),
    holder("purpose", Unit::None, "what the memory is for, if that is one thing", |it| purpose(&it.origin))
        .queried(),
    holder("tensor", Unit::None, "tensor, if all are equal", |it| absent(it.origin.tensor.as_deref()))
        .queried(),
    holder("track", Unit::None, "track, if it is one", |it| absent(it.origin.track.as_deref())).queried(),
    holder("share_percent", Unit::Percent, "share of the bytes of all groups", |it| {
        Value::Number(it.share_percent)
    })
    .queried(),
];

const fn holder_page(name: &str, title: &'static str, width: u16) -> Column<Holders> {
    Column::page(find_field(HOLDER_FIELDS, name), title, width)
}

/// The tables of `ttmem dump --group-by`, by what groups have in common.
static BY_SITE: [Column<Holders>; 10] = columns("CALL SITE", false);
static BY_SIZE: [Column<Holders>; 10] = columns("CALL SITE", true);
static BY_OP: [Column<Holders>; 10] = columns("OPERATION", false);
static BY_FUNCTION: [Column<Holders>; 10] = columns("FUNCTION", false);
static BY_FILE: [Column<Holders>; 10] = columns("FILE", false);
static BY_TENSOR: [Column<Holders>; 10] = columns("TENSOR", false);
static BY_TRACK: [Column<Holders>; 10] = columns("TRACK", false);

/// What groups have in common, as far as their table depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderKey {
    /// The size of each allocation, or anything that has no column of its own.
    Size,
    /// The call site.
    Site,
    /// The operation.
    Op,
    /// The function.
    Function,
    /// The file.
    File,
    /// The tensor.
    Tensor,
    /// The track.
    Track,
}

/// Returns the table of `ttmem dump --group-by`.
pub fn dump_columns(key: HolderKey) -> &'static [Column<Holders>] {
    match key {
        HolderKey::Size => &BY_SIZE,
        HolderKey::Site => &BY_SITE,
        HolderKey::Op => &BY_OP,
        HolderKey::Function => &BY_FUNCTION,
        HolderKey::File => &BY_FILE,
        HolderKey::Tensor => &BY_TENSOR,
        HolderKey::Track => &BY_TRACK,
    }
}

/// The columns of a table. Where groups have no size in common, what they have in common needs space.
const fn columns(label: &'static str, by_size: bool) -> [Column<Holders>; 10] {
    let (share, each, comfort) = if by_size { (3, 0, 24) } else { (0, 3, 44) };
    [
        holder_page("total_bytes", "TOTAL", 9).right(),
        holder_page("share_percent", "SHARE", 0)
            .right()
            .format(Format::Decimals(1))
            .suffix(|_| "%")
            .drop(share),
        holder_page("count", "COUNT", 0).right(),
        holder_page("each_bytes", "EACH", 0).right().drop(each),
        holder_page("devices", "DEVICE", 11).apart().cut(),
        holder_page("space", "SPACE", 0),
        holder_page("pid", "PID", 0).right(),
        holder_page("process_name", "PROCESS", 15).drop(2).cut(),
        holder_page("age_seconds", "OLDEST", 0).right().format(Format::Short).drop(4),
        holder_page("origin", label, 9).grows(u16::MAX).apart().cut().comfort(comfort),
    ]
}

/// A list as one text; an empty one is absent.
fn join(parts: impl Iterator<Item = String>, separator: &str) -> Value<'static> {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { Value::Nothing } else { Value::Text(Cow::Owned(parts.join(separator))) }
}
