//! The fields and table of blocks: an allocator's memory by address.

use crate::allocation::describe_origin;
use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::format::size;
use crate::value::{Tone, Unit, Value};
use std::borrow::Cow;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Allocation, Block, BlockMap, BlockState, Tracking};
use ttmem_core::words::Layout;

/// Rows of blocks.
#[derive(Debug)]
pub enum Blocks {}

impl RowKind for Blocks {
    type Row<'a> = Row<'a>;
}

/// A block and the map it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The allocator's space.
    pub map: &'a BlockMap,
    /// The block.
    pub block: &'a Block,
}

impl<'a> Row<'a> {
    /// The rows of a map, by address.
    pub fn all(map: &'a BlockMap) -> impl Iterator<Item = Self> {
        map.blocks.iter().map(move |block| Self { map, block })
    }
}

const fn text(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Blocks> {
    Field::<Blocks>::new(name, Unit::None, help, value).queried()
}

const fn bytes(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Blocks> {
    Field::<Blocks>::new(name, Unit::Bytes, help, value).queried()
}

/// The fields of a block.
pub static FIELDS: &[Field<Blocks>] = &[
    text("pid", "process", |r| Value::pid(r.map.pid, r.map.reported_pid)),
    text("allocator", "number of the allocator within the process", |r| {
        Value::count(r.map.allocator.map(u64::from))
    }),
    text("devices", "devices of the allocator", |r| Value::indexes(&r.map.indexes)),
    text("space", "space", |r| Value::Space(r.map.space)),
    text("banks", "banks that allocate in lock-step, so that each has this block", |r| {
        Value::count(r.map.banks.map(u64::from))
    }),
    text("address", "first address within a bank", |r| Value::Address(r.block.address)),
    bytes("bytes", "bytes in each bank", |r| Value::Bytes(r.block.bytes)),
    text("state", "`used`, `free`, or `reserved` for a buffer of another allocator", |r| {
        Value::Name(r.block.state.name())
    }),
    text("largest", "whether no free block is larger: `yes` or `no`", |r| {
        Value::Name(if r.block.largest { "yes" } else { "no" })
    }),
    bytes("requested_bytes", "requested bytes, in all banks together", |r| {
        of_allocation(r, |it| Value::Bytes(it.requested_bytes))
    }),
    text("layout", "memory layout", |r| {
        of_allocation(r, |it| it.layout.and_then(Layout::title).map_or(Value::Unknown, Value::Name))
    }),
    Field::<Blocks>::new("age_seconds", Unit::Seconds, "age", |r| {
        of_allocation(r, |it| Value::Seconds(it.age_seconds))
    })
    .queried(),
    text("owner", "call site or program that allocated it, and another allocator's number", |r| {
        owner(r).map_or(Value::Nothing, |it| Value::Text(Cow::Owned(it)))
    }),
    Field::<Blocks>::new("note", Unit::None, "owner, or a note on a free block", |r| match r.block {
        Block { largest: true, .. } => Value::Name("largest free block"),
        _ => owner(r).map_or(Value::Nothing, |it| Value::Text(Cow::Owned(it))),
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Blocks> {
    Column::page(find_field(FIELDS, name), title, width)
}

/// The table of `ttmem dump --blocks`.
pub static DUMP: &[Column<Blocks>] = &[
    page("address", "ADDRESS", 0).right(),
    page("bytes", "SIZE", 0).right(),
    page("state", "STATE", 0).tone(state_tone),
    page("requested_bytes", "REQUESTED", 0).right().nothing(""),
    page("layout", "LAYOUT", 0).nothing("").drop(2),
    page("age_seconds", "AGE", 0).right().format(Format::Short).nothing("").drop(3),
    page("note", "OWNER", 9).grows(u16::MAX).nothing("").apart().cut(),
];

static TENSOR: Field<Blocks> = text("tensor", "data type, shape and layout of the tensor", |r| {
    of_allocation(r, |it| it.origin.tensor.as_deref().map_or(Value::Nothing, |it| Value::Text(it.into())))
});

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Blocks> {
    Column::screen(find_field(FIELDS, name), title, width).nothing("")
}

/// The blocks of the dashboard.
pub static SCREEN: &[Column<Blocks>] = &[
    screen("address", "Address", 12).right(),
    screen("bytes", "Per bank", 11).right(),
    screen("state", "State", 8).tone(state_tone),
    screen("age_seconds", "Age", 5).right().drop(3).format(Format::Short).faint(),
    screen("layout", "Layout", 14).drop(4).faint(),
    screen("note", "Owner", 26).grows(60),
    Column::screen(&TENSOR, "Tensor", 20).drop(5).grows(40).nothing("").faint(),
];

/// The columns that a filter of the dashboard searches.
pub static SEARCHED: [&Column<Blocks>; 5] = [&SCREEN[0], &SCREEN[2], &SCREEN[4], &SCREEN[5], &SCREEN[6]];

/// Whether not all buffers of a process are known, so that free blocks may be in use.
pub fn is_partial(snapshot: &Snapshot, pid: Option<u32>) -> bool {
    let process = snapshot.processes.iter().find(|it| it.pid == pid);
    process.is_some_and(|it| !it.complete || matches!(it.tracking, Tracking::Partial | Tracking::Drift))
}

/// The figures of a bank, as `Per bank: 61.2 MiB used; largest free block 38.0 MiB of 1.2 GiB free.`
pub fn describe_bank(map: &BlockMap) -> Option<String> {
    let (used, free) = (map.used_bytes_per_bank?, map.free_bytes_per_bank?);
    let rest = match map.largest_free_bytes_per_bank? {
        0 => "nothing is free".to_owned(),
        largest => format!("largest free block {} of {} free", size(largest), size(free)),
    };
    Some(format!("Per bank: {} used; {rest}.", size(used)))
}

/// The banks of a map from the first address to the last, in `width` characters: used, used in part, or free.
pub fn address_bar(map: &BlockMap, width: usize) -> String {
    let used = map.blocks.iter().filter(|block| block.state != BlockState::Free);
    let ranges = used.map(|it| (it.address, it.address.saturating_add(it.bytes)));
    map.used_parts(ranges, width).into_iter().map(part_mark).collect()
}

/// The character of a part of a bank by its used share.
pub fn part_mark(share: u8) -> char {
    match share {
        0 => '░',
        255 => '█',
        _ => '▒',
    }
}

fn state_tone(row: &Row<'_>) -> Tone {
    match row.block.state {
        BlockState::Free => Tone::Good,
        BlockState::Used => Tone::Plain,
        BlockState::Reserved => Tone::Faint,
    }
}

/// A value of the allocation that uses a block; a free block has none.
fn of_allocation<'r>(row: &'r Row<'_>, value: fn(&'r Allocation) -> Value<'r>) -> Value<'r> {
    match (row.block.state, &row.block.allocation) {
        (BlockState::Free, _) => Value::Nothing,
        (_, Some(allocation)) => value(allocation),
        (_, None) => Value::Unknown,
    }
}

/// The owner of a block: its call site or program, after the number of another allocator that reserved it.
fn owner(row: &Row<'_>) -> Option<String> {
    let origin = row.block.allocation.as_ref().and_then(describe_origin);
    if row.block.state != BlockState::Reserved {
        return origin;
    }
    let number = row.block.allocation.as_ref().and_then(|it| it.allocator);
    let other = number.map_or_else(|| "another allocator".to_owned(), |it| format!("allocator {it}"));
    Some(origin.map_or_else(|| other.clone(), |origin| format!("{other}: {origin}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ttmem_core::snapshot::Origin;
    use ttmem_core::words::{Basis, Space};

    fn allocation(allocator: u32, site: Option<&str>) -> Allocation {
        Allocation {
            pid: Some(42),
            reported_pid: None,
            devices: Vec::new(),
            indexes: vec![0],
            allocator: Some(allocator),
            space: Space::L1,
            id: "0x100".to_owned(),
            requested_bytes: 1024,
            occupied_bytes: None,
            allocated_bytes: None,
            bytes_per_bank: None,
            banks: None,
            layout: Some(Layout::Interleaved),
            cores: None,
            estimated: false,
            unplaced: false,
            references: 1,
            age_seconds: 2.0,
            kernel: None,
            program: None,
            site: None,
            site_name: site.map(str::to_owned),
            origin: Origin::default(),
            program_name: None,
            hidden: false,
            basis: Basis::Exact,
        }
    }

    fn map(block: Block) -> BlockMap {
        BlockMap {
            hidden: false,
            pid: Some(42),
            reported_pid: None,
            process_name: None,
            allocator: Some(2),
            devices: Vec::new(),
            indexes: vec![0],
            space: Space::L1,
            basis: Basis::Exact,
            used_bytes: 0,
            unknown: None,
            banks: Some(64),
            base: Some(0),
            bytes_per_bank: Some(4096),
            used_bytes_per_bank: None,
            free_bytes_per_bank: None,
            largest_free_bytes_per_bank: None,
            largest_free_block_addrs: Vec::new(),
            single_core_bytes: 0,
            used_count: None,
            free_count: None,
            blocks: vec![block],
            omitted_blocks: 0,
            parts: Vec::new(),
        }
    }

    #[test]
    fn bar_shows_holes_in_proportion() {
        let block = |address, bytes, state| Block { address, bytes, state, largest: false, allocation: None };
        let bar = |blocks: &[(u64, u64)], width| {
            let mut map = map(block(0, 0, BlockState::Free));
            map.blocks = blocks.iter().map(|&(at, len)| block(at, len, BlockState::Used)).collect();
            address_bar(&map, width)
        };
        // The bank has 4096 bytes.
        assert_eq!(bar(&[], 8), "░░░░░░░░");
        assert_eq!(bar(&[(0, 4096)], 8), "████████");
        assert_eq!(bar(&[(512, 512), (1024, 32), (3072, 1024)], 8), "░█▒░░░██");
        assert_eq!(bar(&[(0, 512), (256, 512)], 8), "█▒░░░░░░", "blocks of a bad report overlap");
        assert_eq!(bar(&[(4095, 1)], 3), "░░▒");
        assert_eq!(bar(&[(0, 4)], 0), "");
    }

    #[test]
    fn block_has_its_owner() {
        use BlockState::{Free, Reserved, Used};
        let site = Some("model.py:12 (load)");
        for (state, largest, allocation, expected) in [
            (Used, false, Some(allocation(2, site)), "used|1.0 KiB|interleaved|model.py:12 (load)"),
            (Used, false, Some(allocation(2, None)), "used|1.0 KiB|interleaved|"),
            (
                Reserved,
                false,
                Some(allocation(1, site)),
                "reserved|1.0 KiB|interleaved|allocator 1: model.py:12 (load)",
            ),
            (Reserved, false, None, "reserved|N/A|N/A|another allocator"),
            (Free, false, None, "free|||"),
            (Free, true, None, "free|||largest free block"),
        ] {
            let map = map(Block { address: 256, bytes: 1024, state, largest, allocation });
            let row = Row::all(&map).next().unwrap();
            let shown = [2, 3, 4, 6].map(|column: usize| DUMP[column].text(&row));
            assert_eq!(shown.join("|"), expected);
        }
    }
}
