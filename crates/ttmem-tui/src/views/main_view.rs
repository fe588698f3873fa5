//! View 1: devices, the memory of the selected one, and processes.

use super::Scene;
use crate::canvas::{Canvas, split_columns, split_rows, wrap};
use crate::lists;
use crate::plot::Span;
use crate::table::Table;
use crate::theme::{MemoryPart, Theme};
use crate::ui::List;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::snapshot::{Device, Total, Usage};
use ttmem_core::words::Space;
use ttmem_render::device::index_and_board as name;
use ttmem_render::format::{DASH, age, percent, share, short_percent, size, time_since};
use ttmem_render::usage::{
    BufferNotes, basis_note, is_gap_certain, kernel_classes, program_notes, share_of_capacity,
};
use ttmem_render::{device, label, process, usage};

/// The width from which the selected device has a side column.
const MIN_WITH_SIDE: u16 = 150;
/// The width of the side column.
const SIDE_WIDTH: u16 = 66;

/// Spaces of DRAM, in the order of a bar.
const DRAM: [Space; 2] = [Space::Dram, Space::Trace];
/// Spaces of L1, in the order of a bar.
const L1: [Space; 7] =
    [Space::L1, Space::L1Core, Space::L1Small, Space::Cb, Space::Dfb, Space::Scratch, Space::Kernel];

impl Scene<'_> {
    pub(super) fn draw_main(&mut self, canvas: &mut Canvas, area: Rect) {
        let snapshot = &self.data.snapshot;
        let count = snapshot.devices.len() as u16;
        if area.width >= MIN_WITH_SIDE {
            let (left, right) = split_columns(area, area.width - SIDE_WIDTH);
            let (above, below) = split_rows(left, (count + 3).clamp(4, left.height.saturating_sub(8)));
            self.draw_devices(canvas, above);
            let has_history = self.draw_processes_and_history(canvas, below);
            self.draw_side(canvas, right, !has_history);
            return;
        }
        let full = area.height >= 34;
        let breakdown = match self.ui.selected_device(snapshot).filter(|_| full) {
            Some(device) => count_space_lines(device) + 2,
            None => 6,
        };
        let most = area.height.saturating_sub(breakdown + if full { 9 } else { 6 });
        let (above, rest) = split_rows(area, (count + 3).clamp(4, most.max(4)));
        let (middle, below) = split_rows(rest, breakdown);
        self.draw_devices(canvas, above);
        self.draw_memory(canvas, middle, full);
        self.draw_processes_and_history(canvas, below);
    }

    /// Draws the processes, and below them the history of the selected device if enough rows are left. Returns whether they
    /// were.
    fn draw_processes_and_history(&mut self, canvas: &mut Canvas, area: Rect) -> bool {
        let wanted = (self.data.snapshot.processes.len() as u16).saturating_add(3);
        let left = area.height.saturating_sub(wanted.max(8));
        let left = if self.data.snapshot.devices.is_empty() { 0 } else { left };
        let (above, below) = split_rows(area, area.height - if left < 8 { 0 } else { left.min(24) });
        self.draw_processes(canvas, above);
        let snapshot = self.data.snapshot.clone();
        if let Some(device) = self.ui.selected_device(&snapshot).filter(|_| below.height > 0) {
            self.draw_history(canvas, below, device);
        }
        below.height > 0
    }

    fn draw_devices(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.data.snapshot.clone(), self.ui);
        let table = Table {
            list: List::Devices,
            columns: device::SCREEN,
            state: ui.list_state(List::Devices),
            count: snapshot.devices.len(),
            focused: ui.focused_list() == Some(List::Devices),
            hidden: &[],
            wrapped: None,
            branches: None,
        };
        self.draw_table(canvas, area, "Devices", &table, super::NO_DEVICE, |at| {
            Some(device::Row { snapshot: &snapshot, device: snapshot.devices.get(at)? })
        });
    }

    fn draw_processes(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.data.snapshot.clone(), self.ui);
        let state = ui.list_state(List::Processes);
        let (rows, branches) = lists::process_rows(&snapshot, ui);
        let has_containers = rows.iter().any(|it| it.container.is_some() || it.pod.is_some());
        let table = Table {
            list: List::Processes,
            columns: process::SCREEN,
            state,
            count: rows.len(),
            focused: ui.focused_list() == Some(List::Processes),
            hidden: if has_containers { &[] } else { &["container"] },
            wrapped: None,
            branches: Some(("name", &branches)),
        };
        let empty = if state.filter.is_empty() {
            "No process uses a device. Start one: `ttmem run -- python model.py`"
        } else {
            "No process matches the filter."
        };
        let title = if ui.tree { "Process tree" } else { "Processes" };
        self.draw_table(canvas, area, title, &table, empty, |at| rows.get(at).copied());
    }

    /// Draws the memory of the selected device.
    fn draw_memory(&self, canvas: &mut Canvas, area: Rect, full: bool) {
        let Some(device) = self.ui.selected_device(&self.data.snapshot) else {
            canvas.draw_frame(area, "Memory", false);
            return;
        };
        let inside = canvas.draw_frame(area, &format!("Memory of {}", name(device)), false);
        let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
        if full {
            draw_spaces(canvas, inside, device);
        } else {
            draw_stacks(canvas, inside, device);
        }
    }

    /// Draws the side column: memory, history and peaks of the selected device, and findings.
    fn draw_side(&self, canvas: &mut Canvas, area: Rect, with_history: bool) {
        let Some(device) = self.ui.selected_device(&self.data.snapshot) else {
            canvas.draw_frame(area, "Memory", false);
            return;
        };
        let (above, rest) = split_rows(area, count_space_lines(device) + 2);
        self.draw_memory(canvas, above, true);
        let (middle, below) = split_rows(rest, if with_history { 11.min(rest.height) } else { 0 });
        if with_history {
            self.draw_history(canvas, middle, device);
        }
        self.draw_peaks_and_findings(canvas, below, device);
    }

    /// Draws the charts of the selected device.
    fn draw_history(&self, canvas: &mut Canvas, area: Rect, device: &Device) {
        let title = format!("Last {} of {}", age(self.ui.window_seconds() as f64), name(device));
        let inside = canvas.draw_frame(area, &title, false);
        let span = Span { end: self.data.snapshot.at, seconds: self.ui.window_seconds() };
        self.draw_device_charts(canvas, inside, device, span);
    }

    fn draw_peaks_and_findings(&self, canvas: &mut Canvas, area: Rect, device: &Device) {
        let rows = device.peaks.len() as u16 + 2;
        let (above, below) = split_rows(area, rows.clamp(3, area.height.saturating_sub(4).max(3)));
        let theme = canvas.theme;
        let inside = canvas.draw_frame(above, "Peaks", false);
        for (y, peak) in device.peaks.iter().enumerate() {
            let y = y as u16;
            canvas.write(inside, 1, y, peak.space.name(), theme.faint);
            canvas.write_right(inside, 10, y, 11, &size(peak.bytes), theme.text);
            let ago = format!("{} ago", time_since(peak.at, self.now.wall.max(peak.at)));
            canvas.write_right(inside, 22, y, 8, &ago, theme.faint);
            let holders = peak
                .holders
                .iter()
                .map(|it| format!("{} {}", it.name.as_deref().unwrap_or(DASH), size(it.bytes)))
                .collect();
            let room = inside.width.saturating_sub(33);
            let text = match join_fitting(holders, usize::from(room).saturating_sub(4)) {
                (text, 0) => text,
                (text, more) => format!("{text} +{more}"),
            };
            canvas.write_cut(inside, 32, y, room, &text, theme.faint);
        }
        if device.peaks.is_empty() {
            canvas.write(inside, 1, 0, "No peaks yet.", theme.faint);
        }
        self.draw_findings(canvas, below);
    }

    /// Draws findings in full, worst first, as many as fit.
    fn draw_findings(&self, canvas: &mut Canvas, area: Rect) {
        let theme = canvas.theme;
        let inside = canvas.draw_frame(area, "Findings", false);
        let open = self.data.snapshot.findings.iter().filter(|it| !self.ui.is_acknowledged(it));
        let (count, mut y) = (open.clone().count(), 0);
        for (n, finding) in open.enumerate() {
            let lines = wrap(&finding.text, usize::from(inside.width.saturating_sub(4)).max(1));
            let is_last = n + 1 == count;
            // The last line has the number of findings that do not fit.
            if y + lines.len() as u16 > inside.height.saturating_sub(u16::from(!is_last)) {
                canvas.write(inside, 1, y, &format!("{} more: press 7", count - n), theme.faint);
                break;
            }
            canvas.put(inside, 1, y, '●', theme.severity(finding.severity));
            for line in lines {
                canvas.write(inside, 3, y, &line, theme.text);
                y += 1;
            }
        }
        if count == 0 {
            canvas.write(inside, 1, 0, "No problems found.", theme.faint);
        }
    }
}

/// Draws a bar for DRAM and one for L1, each with a legend.
fn draw_stacks(canvas: &mut Canvas, area: Rect, device: &Device) {
    let usage = &device.usage;
    for (n, memory) in memories(device).into_iter().enumerate() {
        let Memory { title, total, capacity, spaces } = memory;
        let y = n as u16 * 2;
        let theme = canvas.theme;
        canvas.write(area, 0, y, title, theme.title);
        let (figures, style) = format_total(total, capacity, theme);
        let bar = area.width.saturating_sub(5 + 32);
        let counted = spaces.iter().filter(|&&space| usage.is_in_total(space));
        let parts: Vec<(u64, MemoryPart)> =
            counted.filter_map(|&space| Some((usage.used(space)?.0, MemoryPart::of(space)?))).collect();
        canvas.draw_stack(area, 5, y, bar, &parts, capacity);
        canvas.write_right(area, 5 + bar, y, 32, &figures, style);
        // The free gap and the largest block decide whether the next allocation fits.
        let note = match title {
            "L1" => device
                .tightest_core
                .map(|room| (format!("free gap {}", size(room.free_gap_bytes)), theme.accent)),
            _ => usage.dram.as_ref().and_then(|dram| {
                let largest = dram.largest_free_bytes_per_bank?;
                Some((format!("largest free block {} per bank", size(largest)), theme.faint))
            }),
        };
        let mut end = area.width;
        if let Some((text, style)) = note {
            canvas.write_right(area, 0, y + 1, area.width, &text, style);
            end = area.width.saturating_sub(text.chars().count() as u16 + 2);
        }
        let mut legend: Vec<(u64, Space)> =
            spaces.iter().filter_map(|&space| Some((used_if_shown(usage, space)?, space))).collect();
        legend.sort_by_key(|it| std::cmp::Reverse(it.0));
        let texts = |percentage: fn(f64) -> String| -> Vec<(MemoryPart, String)> {
            let text = |&(used, space): &(u64, Space)| {
                let share = share_of_capacity(usage, space).map_or_else(String::new, percentage);
                let text = format!(" {} {} {share}", label::part_within(space), size(used));
                Some((MemoryPart::of(space)?, text.trim_end().to_owned()))
            };
            legend.iter().filter_map(text).collect()
        };
        let fits = |texts: &Vec<(MemoryPart, String)>| {
            let width: usize = texts.iter().map(|(_, text)| text.chars().count() + 3).sum();
            width <= usize::from(end.saturating_sub(3))
        };
        // Percentages are shortened or left out rather than a space.
        let variants = [texts(|share| percent(Some(share))), texts(short_percent)];
        let chosen = variants.into_iter().find(fits).unwrap_or_else(|| texts(|_| String::new()));
        let mut x = 5;
        for (part, text) in chosen {
            if usize::from(x) + 1 + text.chars().count() > usize::from(end) {
                break;
            }
            let (mark, style) = canvas.part_mark(part);
            canvas.put(area, x, y + 1, mark, style);
            x = canvas.write(area, x + 1, y + 1, &text, theme.faint) + 2;
        }
    }
}

/// The width from which the lines of spaces have bars.
const MIN_WITH_BARS: u16 = 56;
/// The width from which the lines of spaces have percentages.
const MIN_WITH_PERCENT: u16 = 30;

/// Draws a line for each space: its bar, its figure, its percentage and notes.
fn draw_spaces(canvas: &mut Canvas, area: Rect, device: &Device) {
    let (usage, theme) = (&device.usage, canvas.theme);
    let mut y = 0;
    // Bars have a minimum width; the notes after the figures get the rest.
    let bar = if area.width < MIN_WITH_BARS { 0 } else { area.width.saturating_sub(90).clamp(8, 40) };
    let percent_width = if area.width < MIN_WITH_PERCENT { 0 } else { 7 };
    for Memory { title, total, capacity, spaces } in memories(device) {
        let (figures, style) = format_total(total, capacity, theme);
        canvas.write(area, 0, y, title, theme.title);
        let used = total.and_then(|it| share(it.used_bytes, capacity));
        canvas.draw_meter(area, 10, y, bar, used, used.map_or(theme.faint, |it| theme.level(it)));
        canvas.write(area, 12 + bar, y, &figures, style);
        y += 1;
        for &space in spaces {
            let Some((used, part)) = used_if_shown(usage, space).zip(MemoryPart::of(space)) else { continue };
            canvas.write_cut(area, 1, y, 9, label::part_within(space), theme.faint);
            // Without a capacity there is no share to draw.
            if let Some(share) = share_of_capacity(usage, space) {
                canvas.draw_meter(area, 10, y, bar, Some(share), theme.part(part));
                canvas.write_right(area, 21 + bar, y, percent_width, &percent(Some(share)), theme.faint);
            }
            canvas.write_right(area, 11 + bar, y, 10, &size(used), theme.text);
            let x = 23 + bar + percent_width;
            let room = area.width.saturating_sub(x);
            let mut notes = space_notes(usage, space);
            let classes = usage::programs(usage, space).map(kernel_classes).unwrap_or_default();
            notes.extend(classes.into_iter().map(|(class, text)| format!("{class} {text}")));
            let (notes, _) = join_fitting(notes, usize::from(room));
            canvas.write_cut(area, x, y, room, &notes, theme.faint);
            y += 1;
        }
    }
    if let Some(room) = device.tightest_core {
        let text = format!(
            "smallest free gap {}{}, core {},{}",
            size(room.free_gap_bytes),
            if is_gap_certain(&room, &device.usage) { "" } else { " or less" },
            room.x,
            room.y
        );
        canvas.write_cut(area, 1, y, area.width, &text, theme.accent);
    }
}

/// One of the two memories of a device.
struct Memory<'a> {
    title: &'static str,
    total: Option<&'a Total>,
    capacity: Option<u64>,
    spaces: &'static [Space],
}

fn memories(device: &Device) -> [Memory<'_>; 2] {
    let (dram, l1) = (device.usage.dram_total.as_ref(), device.usage.l1_total.as_ref());
    [
        Memory { title: "DRAM", total: dram, capacity: device::dram_capacity(device), spaces: &DRAM },
        Memory { title: "L1", total: l1, capacity: device::l1_capacity(device), spaces: &L1 },
    ]
}

/// The bytes in use of a space, if it has a line: unused spaces have none, except the most common ones.
fn used_if_shown(usage: &Usage, space: Space) -> Option<u64> {
    let (used, _) = usage.used(space)?;
    let always = matches!(space, Space::Dram | Space::L1 | Space::Cb);
    (always || used > 0 || peak_of(usage, space) > 0).then_some(used)
}

/// Number of lines that [`draw_spaces`] draws.
fn count_space_lines(device: &Device) -> u16 {
    let spaces = DRAM.iter().chain(&L1).filter(|it| used_if_shown(&device.usage, **it).is_some()).count();
    2 + spaces as u16 + u16::from(device.tightest_core.is_some())
}

/// Use and capacity, as `1.2 GiB of 12.0 GiB  10.3 %`, in the colour of the share in use.
fn format_total(total: Option<&Total>, capacity: Option<u64>, theme: &Theme) -> (String, Style) {
    let style = match total {
        None => theme.faint,
        Some(total) => share(total.used_bytes, capacity).map_or(theme.text, |share| theme.level(share)),
    };
    (device::format_total(total, capacity), style)
}

fn peak_of(usage: &Usage, space: Space) -> u64 {
    let program = usage::programs(usage, space).map_or(0, |it| it.registered_bytes);
    usage::buffers(usage, space).map_or(program, |it| it.peak_bytes)
}

/// Joins the first notes that fit, at least one; returns the number of those left out as well.
fn join_fitting(notes: Vec<String>, room: usize) -> (String, usize) {
    let (mut text, mut left) = (String::new(), notes.len());
    for note in notes {
        if text.is_empty() {
            text = note;
        } else if text.chars().count() + 2 + note.chars().count() <= room {
            text = format!("{text}, {note}");
        } else {
            break;
        }
        left -= 1;
    }
    (text, left)
}

/// The notes on a space, the most useful first.
pub(super) fn space_notes(usage: &Usage, space: Space) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(buffers) = usage::buffers(usage, space) {
        let BufferNotes { count, peak, requested, occupied, free, basis } = BufferNotes::new(buffers);
        notes.extend(count);
        notes.push(peak);
        notes.extend(free);
        notes.push(requested);
        notes.extend(occupied);
        notes.push(basis);
    }
    if let Some(programs) = usage::programs(usage, space) {
        notes.extend(program_notes(space, programs));
        notes.push(basis_note(programs.basis));
    }
    notes
}
