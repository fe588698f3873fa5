//! `ttmem --sites`: usage of buffers by call site and operation.

use crate::listing::{add_note, describe_unlisted};
use crate::text::{Style, size};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::SiteUsage;
use ttmem_render::format::plural;
use ttmem_render::format_table;
use ttmem_render::site::{Row, TABLE};

/// Lines of a page besides its rows: titles, totals, notes and the prompt.
const OTHER_LINES: usize = 5;

/// The rows of a snapshot, largest first.
pub(crate) fn rows(snapshot: &Snapshot) -> Vec<Row<'_>> {
    let name = |usage: &SiteUsage| {
        let mut all = snapshot.processes.iter();
        let process = all.find(|it| (it.pid, it.reported_pid) == (usage.pid, usage.reported_pid));
        process.and_then(|it| it.name.as_deref())
    };
    let all = snapshot.sites.iter().flatten();
    all.map(|usage| Row { usage, process_name: name(usage) }).collect()
}

pub(crate) fn render(snapshot: &Snapshot, verbose: bool, style: Style) -> String {
    let all = rows(snapshot);
    let room = style.height.filter(|_| !verbose).map(|it| it.saturating_sub(OTHER_LINES).max(1));
    let (shown, more) = all.split_at(room.unwrap_or(usize::MAX).min(all.len()));
    let sum = |rows: &[Row<'_>]| {
        let bytes = |it: &Row<'_>| it.usage.used_bytes.saturating_mul(it.usage.indexes.len().max(1) as u64);
        rows.iter().map(bytes).fold(0, u64::saturating_add)
    };
    let mut page = String::new();
    if !all.is_empty() {
        for line in format_table(None, TABLE, shown, style.list_width, |cell| style.paint_cell(cell)) {
            let _ = writeln!(page, "{}", line.trim_end());
        }
    }
    if !more.is_empty() {
        let rows = plural(more.len() as u64, "more row");
        let _ = writeln!(page, "{rows} with {} on all devices: ttmem --sites -v", size(sum(more)));
    }
    let count: u64 = all.iter().map(|it| it.usage.count).fold(0, u64::saturating_add);
    let unlisted = describe_unlisted(snapshot);
    if count > 0 || unlisted.is_none() {
        let _ = writeln!(
            page,
            "{}, {} on all devices; sizes are per device",
            plural(count, "buffer"),
            size(sum(&all))
        );
    }
    add_note(&mut page, unlisted.as_deref(), style);
    style.encode(page)
}
