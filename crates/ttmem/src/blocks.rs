//! `ttmem dump --blocks`: the memory of each allocator by address, used and free.

use crate::cli::{DumpArgs, Filter};
use crate::listing::{add_note, describe_unlisted, print_csv, print_json};
use crate::query::Format;
use crate::source::answer_or_report;
use crate::text::{Style, ranges, sanitize, size, wrap};
use crate::{Exit, print, show};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use ttmem_core::detail::BlockQuery;
use ttmem_core::snapshot::BlockMap;
use ttmem_core::words::Space;
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::Reader;
use ttmem_render::block::{DUMP, FIELDS, Row, is_partial};
use ttmem_render::format::plural;
use ttmem_render::{format_csv, format_table, process};

/// The most addresses of largest free blocks in one line.
const MAX_ADDRESSES: usize = 3;

#[derive(Serialize)]
struct Dump<'a> {
    schema: u32,
    at: jiff::Timestamp,
    simulated: bool,
    block_maps: &'a [BlockMap],
}

pub(crate) fn dump(args: &DumpArgs, source: &mut Reader) -> anyhow::Result<Exit> {
    let Some(snapshot) = fetch(args, source)? else { return Ok(Exit::NoDaemon) };
    let maps = snapshot.block_maps.as_deref().unwrap_or_default();
    let note = describe_gaps(&snapshot, maps);
    let note = note.as_deref();
    match args.format() {
        Format::Json => return print_maps(&snapshot),
        Format::Csv(options) => {
            print_csv(&format_csv(FIELDS, maps.iter().flat_map(Row::all), options), note)?
        }
        Format::Table => print(format_page(maps, note, Style::new(false)).as_bytes())?,
    };
    Ok(if maps.is_empty() { Exit::NothingFound } else { Exit::Done })
}

/// Prints the block maps of a snapshot as JSON.
pub(crate) fn print_maps(snapshot: &Snapshot) -> anyhow::Result<Exit> {
    let maps = snapshot.block_maps.as_deref().unwrap_or_default();
    let Snapshot { schema, at, simulated, .. } = *snapshot;
    let dump = Dump { schema, at, simulated, block_maps: maps };
    print_json(&dump, describe_gaps(snapshot, maps).as_deref())?;
    Ok(if maps.is_empty() { Exit::NothingFound } else { Exit::Done })
}

/// Takes a snapshot with the block maps that the arguments select; `None` if the daemon does not answer.
pub(crate) fn fetch(args: &DumpArgs, source: &mut Reader) -> anyhow::Result<Option<Snapshot>> {
    fetch_maps(&args.filter, args.allocator, args.space, source)
}

/// Takes a snapshot with the requested block maps; `None` if the daemon does not answer.
pub(crate) fn fetch_maps(
    filter: &Filter,
    allocator: Option<u32>,
    space: Option<Space>,
    source: &mut Reader,
) -> anyhow::Result<Option<Snapshot>> {
    let query = BlockQuery { pid: filter.pid, allocator, space, limit: u32::MAX, ..BlockQuery::default() };
    let detail = Detail { blocks: Some(query), ..Detail::NONE };
    let Some(snapshot) = answer_or_report(source.snapshot(&detail))? else { return Ok(None) };
    show::apply_filter(snapshot, filter).map(Some)
}

/// An allocator and its process, as `pid 42 (python), allocator 1, devices 0-7`.
pub(crate) fn describe_allocator(map: &BlockMap) -> String {
    let pid = process::pid(map.pid, map.reported_pid, "?");
    let name = map.process_name.as_ref().map(|it| format!(" ({})", sanitize(it))).unwrap_or_default();
    let allocator = map.allocator.map(|it| format!(", allocator {it}")).unwrap_or_default();
    let devices = if map.indexes.len() == 1 { "device" } else { "devices" };
    format!("pid {pid}{name}{allocator}, {devices} {}", ranges(&map.indexes))
}

fn format_page(maps: &[BlockMap], note: Option<&str>, style: Style) -> String {
    let mut page = String::new();
    for (at, map) in maps.iter().enumerate() {
        if at > 0 {
            page.push('\n');
        }
        add_map(&mut page, map, style);
    }
    if maps.is_empty() {
        page.push_str("no allocator is known; start programs with `ttmem run -- CMD`\n");
    }
    add_note(&mut page, note, style);
    page
}

fn add_map(page: &mut String, map: &BlockMap, style: Style) {
    // A page for a pipe is for searching, so its lines are neither cut nor wrapped.
    let room = if io::stdout().is_terminal() { style.width } else { usize::from(u16::MAX) };
    let lines = |text: String| wrap(&text, room).join("\n") + "\n";
    let allocator = describe_allocator(map);
    if let Some(reason) = &map.unknown {
        let used = size(map.used_bytes);
        *page += &lines(format!("{allocator}, {}: {used} used, block map unknown: {reason}", map.space));
        return;
    }
    let banks = plural(u64::from(map.banks.unwrap_or(0)), "bank");
    let per_device = if map.indexes.len() > 1 { " per device" } else { "" };
    *page += &lines(format!("{allocator}, {}: {banks}{per_device}, each:", map.space));
    let rows: Vec<Row<'_>> = Row::all(map).collect();
    for line in format_table(None, DUMP, &rows, room, |cell| style.paint_cell(cell)) {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    if map.omitted_blocks > 0 {
        let more = plural(map.omitted_blocks, "more block");
        *page +=
            &lines(format!("{more} not listed: a daemon lists at most {}; use --local", BlockQuery::MOST));
    }
    add_summary(page, map, room);
}

/// Adds the figures of all blocks of a map, in lines of `room` columns.
pub(crate) fn add_summary(page: &mut String, map: &BlockMap, room: usize) {
    let lines = |text: String| wrap(&text, room).join("\n") + "\n";
    let bytes = |bytes: Option<u64>| size(bytes.unwrap_or(0));
    let count = |count: Option<u64>| plural(count.unwrap_or(0), "block");
    *page += &lines(format!(
        "per bank of {}: {} used in {}, {} free in {}",
        bytes(map.bytes_per_bank),
        bytes(map.used_bytes_per_bank),
        count(map.used_count),
        bytes(map.free_bytes_per_bank),
        count(map.free_count)
    ));
    if let Some(largest) = describe_largest(map) {
        *page += &lines(largest);
    }
    if map.single_core_bytes > 0 {
        let on_cores = size(map.single_core_bytes);
        *page += &lines(format!(
            "free blocks may contain {on_cores} of buffers on single cores (l1_core): see `ttmem dump --cores`"
        ));
    }
}

/// The largest free blocks and their addresses; `None` if nothing is free.
fn describe_largest(map: &BlockMap) -> Option<String> {
    let largest = map.largest_free_bytes_per_bank.filter(|&it| it > 0)?;
    let addresses = &map.largest_free_block_addrs;
    let listed: Vec<String> = addresses.iter().take(MAX_ADDRESSES).map(|it| format!("{it:#x}")).collect();
    let more = match addresses.len().saturating_sub(MAX_ADDRESSES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("largest free block: {} at {}{more}", size(largest), listed.join(", ")))
}

/// What is missing in the maps: processes whose buffers are not known, or not all of them.
pub(crate) fn describe_gaps(snapshot: &Snapshot, maps: &[BlockMap]) -> Option<String> {
    let with_blocks = maps.iter().filter(|it| it.unknown.is_none());
    let mut partial: Vec<String> =
        with_blocks.filter(|it| is_partial(snapshot, it.pid)).map(name_process).collect();
    partial.dedup();
    let partial = (!partial.is_empty()).then(|| {
        format!("not all buffers are known of {}: holes may be in use; see `ttmem check`", partial.join(", "))
    });
    let notes: Vec<String> = partial.into_iter().chain(describe_unlisted(snapshot)).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn name_process(map: &BlockMap) -> String {
    format!("pid {}", process::pid(map.pid, map.reported_pid, "?"))
}
