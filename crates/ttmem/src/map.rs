//! `ttmem map`: the memory of each allocator as a bar by address, with its largest blocks and holes.

use crate::blocks::{self, add_summary, describe_allocator, describe_gaps, fetch_maps};
use crate::cli::{MapArgs, Sockets};
use crate::listing::add_note;
use crate::source::open_source;
use crate::text::{Style, size, wrap};
use crate::{Exit, print};
use std::cmp::Reverse;
use std::fmt::Write as _;
use ttmem_core::snapshot::{BlockMap, BlockState};
use ttmem_reader::Reader;
use ttmem_render::block::{DUMP, Row, address_bar};
use ttmem_render::format::plural;
use ttmem_render::format_table;

const LEGEND: &str = "█ used, ▒ used in part, ░ free";

pub(crate) fn run(args: &MapArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = match &args.segment {
        Some(file) => Reader::of_segment(file)?,
        None => open_source(sockets, false, false)?,
    };
    let Some(snapshot) = fetch_maps(&args.filter, args.allocator, args.space, &mut source)? else {
        return Ok(Exit::NoDaemon);
    };
    if args.json {
        return blocks::print_maps(&snapshot);
    }
    let maps = snapshot.block_maps.as_deref().unwrap_or_default();
    let style = Style::new(args.text.ascii);
    let pages: Vec<String> = maps.iter().map(|map| format_map(map, args.top, style)).collect();
    let mut page = pages.join("\n");
    if maps.is_empty() {
        page.push_str("no allocator is known; start programs with `ttmem run -- CMD`\n");
    } else {
        let _ = writeln!(page, "\n{LEGEND}");
    }
    add_note(&mut page, describe_gaps(&snapshot, maps).as_deref(), style);
    print(style.encode(page).as_bytes())?;
    Ok(if maps.is_empty() { Exit::NothingFound } else { Exit::Done })
}

fn format_map(map: &BlockMap, top: usize, style: Style) -> String {
    let mut page = String::new();
    let allocator = describe_allocator(map);
    let (Some(base), Some(bytes)) = (map.base.filter(|_| map.unknown.is_none()), map.bytes_per_bank) else {
        let reason = map.unknown.as_deref().unwrap_or("the process does not publish the bank layout");
        let used = size(map.used_bytes);
        let text = format!("{allocator}, {}: {used} used, block map unknown: {reason}", map.space);
        return wrap(&text, style.width).join("\n") + "\n";
    };
    let banks = plural(u64::from(map.banks.unwrap_or(0)), "bank");
    let title = format!("{allocator}, {}: {banks}, each {}:", map.space, size(bytes));
    page += &(wrap(&title, style.width).join("\n") + "\n");
    let _ = writeln!(page, "{}", address_bar(map, style.width));
    let (first, end) = (format!("{base:#x}"), format!("{:#x}", base.saturating_add(bytes)));
    let _ = writeln!(page, "{first}{end:>width$}", width = style.width.saturating_sub(first.len()));
    let rows = largest_rows(map, top);
    for line in format_table(None, DUMP, &rows, style.width, |cell| style.paint_cell(cell)) {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    add_summary(&mut page, map, style.width);
    page
}

/// The largest blocks and the largest holes, by address.
fn largest_rows(map: &BlockMap, top: usize) -> Vec<Row<'_>> {
    let (mut free, mut used): (Vec<_>, Vec<_>) =
        Row::all(map).partition(|row| row.block.state == BlockState::Free);
    for rows in [&mut free, &mut used] {
        rows.sort_by_key(|row| Reverse(row.block.bytes));
        rows.truncate(top);
    }
    free.append(&mut used);
    free.sort_by_key(|row| row.block.address);
    free
}
