//! View 9: the banks of each allocator by address. One bar for each space, and the blocks of one of them.

use super::Scene;
use crate::addresses::{ShownMaps, columns_of, owners, rows};
use crate::canvas::{Canvas, split_rows, wrap};
use crate::table::Table;
use crate::theme::flame_colours;
use crate::ui::{List, Target};
use ratatui::layout::Rect;
use ratatui::style::Style;
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::snapshot::{Allocation, Block, BlockMap, FrameKind};
use ttmem_render::block::{SCREEN, describe_bank, is_partial, part_mark};
use ttmem_render::device::index_and_board;
use ttmem_render::flame::space_name;
use ttmem_render::format::{percent, plural, size};
use ttmem_render::process;

/// Least rows of the table of blocks, with its frame and header.
const MIN_TABLE: u16 = 8;
/// From this height on, the open bar has two rows and there is a blank row between two maps.
const TALL: u16 = 34;
/// Least columns from one address of the axis to the next.
const TICK_WIDTH: u16 = 24;

/// The colours of the owners of blocks.
struct Owners<'a> {
    /// Bytes per bank of each owner, the largest first.
    bytes: Vec<(&'a str, u64)>,
    colours: BTreeMap<&'a str, usize>,
}

impl<'a> Owners<'a> {
    fn new(map: &'a BlockMap) -> Self {
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, block) in map.blocks.iter().filter_map(|it| Some((owner_of(it)?, it))) {
            let bytes = all.entry(name).or_default();
            *bytes = bytes.saturating_add(block.bytes);
        }
        let names: BTreeSet<&str> = all.keys().copied().collect();
        let mut bytes: Vec<(&str, u64)> = all.into_iter().collect();
        bytes.sort_by_key(|it| std::cmp::Reverse(it.1));
        Self { bytes, colours: flame_colours(names) }
    }

    /// The style of a block of an owner; `None`: the owner is unknown.
    fn style(&self, canvas: &Canvas, owner: Option<&str>) -> Style {
        let theme = canvas.theme;
        let colour = owner.and_then(|owner| self.colours.get(owner));
        let kind = if colour.is_some() { FrameKind::Call } else { FrameKind::Op };
        as_ink(theme.flame.of(Some(kind), colour.copied().unwrap_or(0)))
    }
}

/// A background as the colour of a block.
fn as_ink(style: Style) -> Style {
    style.bg.map_or_else(Style::new, |colour| Style::new().fg(colour))
}

/// The file of the call site that allocated a block, or else its program or call site, by which it has its colour.
fn owner_of(block: &Block) -> Option<&str> {
    let Allocation { origin, site_name, program_name, .. } = block.allocation.as_ref()?;
    origin.file.as_deref().or(program_name.as_deref()).or(site_name.as_deref())
}

/// An allocator and its process, as `python (pid 42), allocator 1`.
fn describe_allocator(map: &BlockMap) -> String {
    let pid = process::pid(map.pid, map.reported_pid, "?");
    let name = map.process_name.as_deref().unwrap_or("unknown process");
    let allocator = map.allocator.map(|it| format!(", allocator {it}")).unwrap_or_default();
    format!("{name} (pid {pid}){allocator}")
}

impl Scene<'_> {
    pub(super) fn draw_address_space(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.data.snapshot.clone(), self.ui);
        let theme = &ui.theme;
        // The columns are known even while there is nothing to draw.
        self.bar_columns = area.width.saturating_sub(4);
        let shown = ShownMaps::new(ui, &snapshot);
        let Some(device) = ui.selected_device(&snapshot) else {
            let inside = canvas.draw_frame(area, "Addresses", true);
            canvas.write_paragraph(inside, 1, 0, super::NO_DEVICE, theme.faint);
            return;
        };
        let title = format!("Addresses of device {}", index_and_board(device));
        let Some(open) = shown.open_map() else {
            let inside = canvas.draw_frame(area, &title, true);
            let is_loading = self.data.detail.blocks != ui.required_detail(self.data).blocks;
            let none = "No allocator of this device is known. Start programs with `ttmem run -- CMD`.";
            let text = if is_loading { super::LOADING } else { none };
            canvas.write_paragraph(inside, 1, 0, text, theme.faint);
            return;
        };
        let width = usize::from(area.width.saturating_sub(4));
        let notes: Vec<(String, Style)> = self
            .map_notes(open)
            .into_iter()
            .flat_map(|(text, style)| wrap(&text, width).into_iter().map(move |line| (line, style)))
            .collect();
        let is_tall = area.height >= TALL;
        let heights: Vec<u16> = (0..shown.maps.len())
            .map(|at| match at == shown.open {
                true if open.unknown.is_some() => 2 + u16::from(is_tall),
                true => 4 + notes.len() as u16 + if is_tall { 3 } else { 0 },
                false => 2 + u16::from(is_tall),
            })
            .collect();
        let table = MIN_TABLE.max(area.height * 2 / 5);
        let room = area.height.saturating_sub(table + 2);
        let (first, end) = visible(&heights, shown.open, room);
        let used: u16 = heights[first..end].iter().sum();
        let (above, below) = split_rows(area, used.saturating_sub(u16::from(is_tall)) + 2);
        let inside = canvas.draw_frame(above, &title, false);
        let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
        if end - first < shown.maps.len() {
            let text = format!("{}-{end} of {}", first + 1, shown.maps.len());
            canvas.write_bottom_right(above, &text, theme.faint);
        }
        let owners = Owners::new(open);
        let (mut rest, mut at) = (inside, first);
        while at < end {
            let (part, after) = split_rows(rest, heights[at]);
            let map = shown.maps[at];
            let is_open = at == shown.open;
            self.draw_map_title(canvas, part, map, is_open);
            let (_, bar) = split_rows(part, 1);
            if map.unknown.is_some() || map.parts.is_empty() {
                let reason = map.unknown.as_deref().unwrap_or(super::LOADING);
                canvas.write_cut(bar, 0, 0, bar.width, reason, theme.faint);
            } else if is_open {
                self.draw_open_bar(canvas, bar, map, &owners, is_tall);
            } else {
                draw_bar(canvas, bar, map);
            }
            if is_open {
                let begin = 4 + u16::from(is_tall);
                for (y, (line, style)) in (begin..).zip(&notes) {
                    canvas.write(part, 0, y, line, *style);
                }
                if is_tall && map.unknown.is_none() {
                    self.draw_block_owners(canvas, part, begin + notes.len() as u16, &owners);
                }
            }
            for x in 0..part.width {
                let column = Rect { x: part.x + x, width: 1, height: part.height.min(2), ..part };
                canvas.add_target(column, Target::Bar(at, x));
            }
            (rest, at) = (after, at + 1);
        }
        self.draw_blocks(canvas, below, open);
    }

    /// What to know about the open map: figures per bank, and what the bar cannot show.
    fn map_notes(&self, map: &BlockMap) -> Vec<(String, Style)> {
        let theme = &self.ui.theme;
        let mut notes: Vec<(String, Style)> = Vec::new();
        if map.unknown.is_some() {
            return notes;
        }
        notes.extend(describe_bank(map).map(|text| (text, theme.title)));
        if is_partial(&self.data.snapshot, map.pid) {
            let text = "Not all buffers of the process are known: free blocks may be in use.";
            notes.push((text.to_owned(), theme.warn));
        }
        if map.single_core_bytes > 0 {
            let bytes = size(map.single_core_bytes);
            let text = format!("Free blocks may contain {bytes} of buffers on single cores: see view 4.");
            notes.push((text, theme.warn));
        }
        notes
    }

    fn draw_map_title(&self, canvas: &mut Canvas, area: Rect, map: &BlockMap, is_open: bool) {
        let theme = &self.ui.theme;
        let (mark, style) = if is_open { ("▸ ", theme.title) } else { ("  ", theme.text) };
        let x = canvas.write(area, 0, 0, mark, theme.accent);
        let x = canvas.write(area, x, 0, space_name(map.space), style);
        let text = format!("  {}", describe_allocator(map));
        let figures = match (map.used_bytes_per_bank, map.bytes_per_bank) {
            (Some(used), Some(bytes)) => {
                let share = percent((bytes > 0).then(|| used as f64 / bytes as f64));
                format!("{share} of {} × {}", map.banks.unwrap_or(1), size(bytes))
            }
            _ => format!("{} used", size(map.used_bytes)),
        };
        let begin = area.width.saturating_sub(figures.chars().count() as u16);
        canvas.write_cut(area, x, 0, begin.saturating_sub(x + 1), &text, theme.faint);
        canvas.write(area, begin.max(x + 1), 0, &figures, theme.text);
    }

    /// Draws the bar of the open map: blocks in the colours of their owners, the selected block, and addresses.
    fn draw_open_bar(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        map: &BlockMap,
        colours: &Owners<'_>,
        is_tall: bool,
    ) {
        let (theme, columns) = (&self.ui.theme, area.width);
        let rows = rows(&self.data.snapshot, self.ui);
        let state = self.ui.list_state(List::Blocks);
        let selected = rows.get(state.cursor).map(|row| row.block);
        let found: Option<BTreeSet<u64>> =
            (!state.filter.is_empty()).then(|| rows.iter().map(|row| row.block.address).collect());
        let span = selected.map(|block| columns_of(map, block, columns));
        let owners = owners(map, columns);
        let height = 1 + u16::from(is_tall);
        for (x, &owner) in (0..columns).zip(&owners) {
            let share = part_of(map, x, columns);
            let is_found =
                || found.as_ref().is_none_or(|found| owner.is_some_and(|it| found.contains(&it.address)));
            let is_selected = span.is_some_and(|(first, last)| (first..=last).contains(&x));
            let mut mark = part_mark(share);
            let mut style = match share {
                _ if is_selected && theme.coloured => theme.text,
                0 => theme.empty,
                _ if !is_found() => theme.empty,
                _ => colours.style(canvas, owner.and_then(owner_of)),
            };
            // An edge where another block begins, unless it would hide the block.
            let before = x.checked_sub(1).and_then(|x| owners[usize::from(x)]);
            let is_wide = |block: &Block| {
                let (first, last) = columns_of(map, block, columns);
                last > first + 1
            };
            let begins = owner.zip(before).is_some_and(|(a, b)| a.address != b.address && is_wide(a));
            if share == 255 && begins {
                mark = if theme.coloured && !canvas.ascii { '▏' } else { '|' };
                style = style.fg.map_or(style, |colour| theme.flame.edge.bg(colour));
            }
            for y in 0..height {
                canvas.put(area, x, y, mark, style);
            }
        }
        self.draw_largest(canvas, area, map);
        if let (Some((first, last)), Some(block)) = (span, selected) {
            for x in first..=last {
                canvas.put(area, x, height, '▲', theme.accent);
            }
            let largest = if block.largest { ", largest free block" } else { "" };
            let text = format!("{:#x}: {} {}{largest}", block.address, size(block.bytes), block.state.name());
            let len = text.chars().count() as u16 + 1;
            if last + len < columns {
                canvas.write(area, last + 2, height, &text, theme.accent);
            } else if len < first {
                canvas.write(area, first - len, height, &text, theme.accent);
            } else {
                // The block takes most of the bar, so there is room below it.
                let begin = first + (last - first).saturating_sub(len) / 2;
                canvas.write(area, begin, height, &format!(" {text} "), theme.accent);
            }
        }
        self.draw_axis(canvas, area, height + 1, map);
    }

    /// Writes the size of the largest free blocks on them, where there is room.
    fn draw_largest(&self, canvas: &mut Canvas, area: Rect, map: &BlockMap) {
        for block in map.blocks.iter().filter(|it| it.largest) {
            let (first, last) = columns_of(map, block, area.width);
            let text = format!(" {} free ", size(block.bytes));
            let room = usize::from(last - first).saturating_sub(1);
            if let Some(spare) = room.checked_sub(text.chars().count()) {
                canvas.write(area, first + 1 + spare as u16 / 2, 0, &text, self.ui.theme.good);
            }
        }
    }

    /// Draws addresses at equal distances.
    fn draw_axis(&self, canvas: &mut Canvas, area: Rect, y: u16, map: &BlockMap) {
        let (theme, count) = (&self.ui.theme, (area.width / TICK_WIDTH).clamp(1, 8));
        for n in 0..count {
            let x = (u32::from(area.width) * u32::from(n) / u32::from(count)) as u16;
            let address = map.part_address(x.into(), area.width.into());
            canvas.put(area, x, y, '│', theme.empty);
            canvas.write(area, x + 1, y, &format!("{address:#x}"), theme.faint);
        }
        let end = map.part_address(1, 1);
        canvas.write_right(area, 0, y, area.width, &format!("{end:#x}│"), theme.faint);
    }

    /// Draws the owners with their colours, the largest first, as far as there is room.
    fn draw_block_owners(&self, canvas: &mut Canvas, area: Rect, y: u16, owners: &Owners<'_>) {
        let theme = &self.ui.theme;
        let mut x = 0;
        for &(owner, bytes) in &owners.bytes {
            let name = owner.rsplit('/').next().unwrap_or(owner);
            let text = format!(" {name} {}", size(bytes));
            if usize::from(x) + text.chars().count() + 3 > area.width.into() {
                break;
            }
            if theme.coloured {
                x = canvas.write(area, x, y, "█", owners.style(canvas, Some(owner)));
            }
            x = canvas.write(area, x, y, &text, theme.faint) + 2;
        }
    }

    /// Draws the table of the blocks of the open map.
    fn draw_blocks(&mut self, canvas: &mut Canvas, area: Rect, map: &BlockMap) {
        let (snapshot, ui) = (self.data.snapshot.clone(), self.ui);
        let rows = rows(&snapshot, ui);
        let count = |count: Option<u64>, what| format!("{} {what}", count.unwrap_or(0));
        let mut title = format!(
            "Blocks of {}: {}, {}",
            space_name(map.space),
            count(map.used_count, "used"),
            count(map.free_count, "free")
        );
        if map.omitted_blocks > 0 && !map.blocks.is_empty() {
            title = format!("{title}; {} not listed", plural(map.omitted_blocks, "higher block"));
        }
        let is_loading = map.blocks.is_empty() && map.omitted_blocks > 0;
        let state = ui.list_state(List::Blocks);
        let empty = match (&map.unknown, is_loading, state.filter.is_empty()) {
            (Some(_), ..) => {
                title = format!("Blocks of {}", space_name(map.space));
                "The blocks are unknown. s: next space"
            }
            (None, true, _) => super::LOADING,
            (None, false, true) => "The bank is empty.",
            (None, false, false) => "No block matches the filter.",
        };
        let table = Table {
            list: List::Blocks,
            columns: SCREEN,
            state,
            count: rows.len(),
            focused: true,
            hidden: &[],
            wrapped: None,
            branches: None,
        };
        self.draw_table(canvas, area, &title, &table, empty, |at| rows.get(at).copied());
    }
}

/// The used share of a column, even if the screen has another width than was requested.
fn part_of(map: &BlockMap, column: u16, columns: u16) -> u8 {
    let part = usize::from(column) * map.parts.len() / usize::from(columns.max(1));
    map.parts.get(part).copied().unwrap_or(0)
}

/// Draws the bar of a map that is not open.
fn draw_bar(canvas: &mut Canvas, area: Rect, map: &BlockMap) {
    let theme = canvas.theme;
    for x in 0..area.width {
        let share = part_of(map, x, area.width);
        let style = if share == 0 { theme.empty } else { theme.frame };
        canvas.put(area, x, 0, part_mark(share), style);
    }
}

/// The first and the last map on the screen: those around the open one that fit.
fn visible(heights: &[u16], open: usize, room: u16) -> (usize, usize) {
    let (mut first, mut end) = (open, open + 1);
    let mut used = heights[open];
    loop {
        // Maps below the open one come first, so that the next one can be seen.
        let below = heights.get(end).copied().filter(|height| used + height <= room);
        let above = first.checked_sub(1).map(|at| heights[at]).filter(|height| used + height <= room);
        match (below, above) {
            (Some(height), _) if above.is_none() || end - open <= open - first => {
                (used, end) = (used + height, end + 1);
            }
            (_, Some(height)) => (used, first) = (used + height, first - 1),
            _ => return (first, end),
        }
    }
}
