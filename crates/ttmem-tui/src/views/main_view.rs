//! View 1: devices, the memory of the selected one, and processes.

use super::Scene;
use crate::canvas::{Canvas, split_columns, split_rows, wrap};
use crate::chart::Span;
use crate::lists;
use crate::table::Table;
use crate::theme::{Part, Theme};
use crate::ui::List;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::snapshot::{Device, Total, Usage};
use ttmem_core::words::Space;
use ttmem_render::device::number_and_board as name;
use ttmem_render::figure::{DASH, age, share, since, size};
use ttmem_render::usage::{BufferNotes, by, is_gap_certain, program_notes};
use ttmem_render::{device, label, process, usage};

/// From this width on the selected device has a column of its own.
const WIDE: u16 = 150;
const SIDE: u16 = 66;

/// Spaces of DRAM, and of L1, in the order of a bar.
const DRAM: [Space; 2] = [Space::Dram, Space::Trace];
const L1: [Space; 7] =
    [Space::L1, Space::L1Core, Space::L1Small, Space::Cb, Space::Dfb, Space::Scratch, Space::Kernel];

impl Scene<'_> {
    pub(super) fn main(&mut self, canvas: &mut Canvas, area: Rect) {
        let snapshot = &self.shown.snapshot;
        let chips = snapshot.devices.len() as u16;
        if area.width >= WIDE {
            let (left, right) = split_columns(area, area.width - SIDE);
            let (above, below) = split_rows(left, (chips + 3).clamp(4, left.height.saturating_sub(8)));
            self.devices(canvas, above);
            let alone = self.processes_and_past(canvas, below);
            self.side(canvas, right, !alone);
            return;
        }
        let full = area.height >= 34;
        let breakdown = match self.ui.chip(snapshot).filter(|_| full) {
            Some(device) => lines_of(device) + 2,
            None => 6,
        };
        let most = area.height.saturating_sub(breakdown + if full { 9 } else { 6 });
        let (above, rest) = split_rows(area, (chips + 3).clamp(4, most.max(4)));
        let (middle, below) = split_rows(rest, breakdown);
        self.devices(canvas, above);
        self.memory(canvas, middle, full);
        self.processes_and_past(canvas, below);
    }

    /// Rows that processes do not need show the selected device over time. Returns whether there were enough.
    fn processes_and_past(&mut self, canvas: &mut Canvas, area: Rect) -> bool {
        let wanted = (self.shown.snapshot.processes.len() as u16).saturating_add(3);
        let left = area.height.saturating_sub(wanted.max(8));
        let left = if self.shown.snapshot.devices.is_empty() { 0 } else { left };
        let (above, below) = split_rows(area, area.height - if left < 8 { 0 } else { left.min(24) });
        self.processes(canvas, above);
        let snapshot = self.shown.snapshot.clone();
        if let Some(device) = self.ui.chip(&snapshot).filter(|_| below.height > 0) {
            self.past(canvas, below, device);
        }
        below.height > 0
    }

    fn devices(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.shown.snapshot.clone(), self.ui);
        let table = Table {
            list: List::Devices,
            columns: device::SCREEN,
            place: ui.place(List::Devices),
            count: snapshot.devices.len(),
            focused: ui.list() == Some(List::Devices),
            hidden: &[],
            wrapped: None,
            branches: None,
        };
        self.framed(canvas, area, "Devices", &table, super::NO_DEVICE, |at| {
            Some(device::Row { snapshot: &snapshot, device: snapshot.devices.get(at)? })
        });
    }

    fn processes(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.shown.snapshot.clone(), self.ui);
        let place = ui.place(List::Processes);
        let (rows, branches) = lists::process_rows(&snapshot, ui);
        let contained = rows.iter().any(|it| it.container.is_some() || it.pod.is_some());
        let table = Table {
            list: List::Processes,
            columns: process::SCREEN,
            place,
            count: rows.len(),
            focused: ui.list() == Some(List::Processes),
            hidden: if contained { &[] } else { &["container"] },
            wrapped: None,
            branches: Some(("name", &branches)),
        };
        let empty = if place.filter.is_empty() {
            "No process uses a device. Start one: `ttmem run -- python model.py`"
        } else {
            "No process matches the filter."
        };
        let title = if ui.tree { "Process tree" } else { "Processes" };
        self.framed(canvas, area, title, &table, empty, |at| rows.get(at).copied());
    }

    /// The memory of the selected device.
    fn memory(&self, canvas: &mut Canvas, area: Rect, full: bool) {
        let Some(device) = self.ui.chip(&self.shown.snapshot) else {
            canvas.frame(area, "Memory", false);
            return;
        };
        let inside = canvas.frame(area, &format!("Memory of {}", name(device)), false);
        let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
        if full {
            spaces(canvas, inside, device);
        } else {
            stacks(canvas, inside, device);
        }
    }

    /// Beside the tables: the selected device's memory, its last minute, its peaks, and findings.
    fn side(&self, canvas: &mut Canvas, area: Rect, with_past: bool) {
        let Some(device) = self.ui.chip(&self.shown.snapshot) else {
            canvas.frame(area, "Memory", false);
            return;
        };
        let (above, rest) = split_rows(area, lines_of(device) + 2);
        self.memory(canvas, above, true);
        let (middle, below) = split_rows(rest, if with_past { 11.min(rest.height) } else { 0 });
        if with_past {
            self.past(canvas, middle, device);
        }
        self.peaks(canvas, below, device);
    }

    /// The selected device over time.
    fn past(&self, canvas: &mut Canvas, area: Rect, device: &Device) {
        let title = format!("Last {} of {}", age(self.ui.window_seconds() as f64), name(device));
        let inside = canvas.frame(area, &title, false);
        let span = Span { end: self.shown.snapshot.at, seconds: self.ui.window_seconds() };
        self.lanes(canvas, inside, device, span);
    }

    fn peaks(&self, canvas: &mut Canvas, area: Rect, device: &Device) {
        let rows = device.peaks.len() as u16 + 2;
        let (above, below) = split_rows(area, rows.clamp(3, area.height.saturating_sub(4).max(3)));
        let theme = canvas.theme;
        let inside = canvas.frame(above, "Peaks", false);
        for (y, peak) in device.peaks.iter().enumerate() {
            let y = y as u16;
            canvas.text(inside, 1, y, peak.space.name(), theme.faint);
            canvas.right(inside, 10, y, 11, &size(peak.bytes), theme.text);
            let ago = format!("{} ago", since(peak.at, self.now.wall.max(peak.at)));
            canvas.right(inside, 22, y, 8, &ago, theme.faint);
            let holders = peak
                .holders
                .iter()
                .map(|it| format!("{} {}", it.name.as_deref().unwrap_or(DASH), size(it.bytes)))
                .collect();
            let room = inside.width.saturating_sub(33);
            let text = match joined(holders, usize::from(room).saturating_sub(4)) {
                (text, 0) => text,
                (text, more) => format!("{text} +{more}"),
            };
            canvas.cut(inside, 32, y, room, &text, theme.faint);
        }
        if device.peaks.is_empty() {
            canvas.text(inside, 1, 0, "No peaks yet.", theme.faint);
        }
        self.findings(canvas, below);
    }

    /// Findings in full, worst first, as far as there is room.
    fn findings(&self, canvas: &mut Canvas, area: Rect) {
        let theme = canvas.theme;
        let inside = canvas.frame(area, "Findings", false);
        let open = self.shown.snapshot.findings.iter().filter(|it| !self.ui.is_acknowledged(it));
        let (count, mut y) = (open.clone().count(), 0);
        for (n, finding) in open.enumerate() {
            let lines = wrap(&finding.text, usize::from(inside.width.saturating_sub(4)).max(1));
            let is_last = n + 1 == count;
            // The last line is for the number of those that do not fit.
            if y + lines.len() as u16 > inside.height.saturating_sub(u16::from(!is_last)) {
                canvas.text(inside, 1, y, &format!("{} more: press 7", count - n), theme.faint);
                break;
            }
            canvas.put(inside, 1, y, '●', theme.severity(finding.severity));
            for line in lines {
                canvas.text(inside, 3, y, &line, theme.text);
                y += 1;
            }
        }
        if count == 0 {
            canvas.text(inside, 1, 0, "No problems found.", theme.faint);
        }
    }
}

/// Two bars of parts, with legends.
fn stacks(canvas: &mut Canvas, area: Rect, device: &Device) {
    let usage = &device.usage;
    for (n, memory) in memories(device).into_iter().enumerate() {
        let Memory { title, total, capacity, spaces } = memory;
        let y = n as u16 * 2;
        let theme = canvas.theme;
        canvas.text(area, 0, y, title, theme.title);
        let (figures, style) = totals(total, capacity, theme);
        let bar = area.width.saturating_sub(5 + 32);
        let held: Vec<(u64, Part)> =
            spaces.iter().filter_map(|&space| Some((usage.used(space)?.0, Part::of(space)?))).collect();
        canvas.stack(area, 5, y, bar, &held, capacity);
        canvas.right(area, 5 + bar, y, 32, &figures, style);
        // The gap and the largest block are what decides whether the next allocation fits.
        let note = match title {
            "L1" => device
                .tightest_core
                .map(|room| (format!("free gap {}", size(room.free_gap_bytes)), theme.accent)),
            _ => usage.dram.as_ref().and_then(|it| {
                let largest = it.largest_free_bytes_per_bank?;
                Some((format!("largest free block {} per bank", size(largest)), theme.faint))
            }),
        };
        let mut end = area.width;
        if let Some((text, style)) = note {
            canvas.right(area, 0, y + 1, area.width, &text, style);
            end = area.width.saturating_sub(text.chars().count() as u16 + 2);
        }
        let mut named: Vec<(u64, Space)> =
            spaces.iter().filter_map(|&space| Some((worth_a_line(usage, space)?, space))).collect();
        named.sort_by_key(|it| std::cmp::Reverse(it.0));
        let mut x = 5;
        for (used, space) in named {
            let Some(part) = Part::of(space) else { continue };
            let text = format!(" {} {}", label::part_within(space), size(used));
            if usize::from(x) + 1 + text.chars().count() > usize::from(end) {
                break;
            }
            let (mark, style) = canvas.part(part);
            canvas.put(area, x, y + 1, mark, style);
            x = canvas.text(area, x + 1, y + 1, &text, theme.faint) + 2;
        }
    }
}

/// A line for each space.
fn spaces(canvas: &mut Canvas, area: Rect, device: &Device) {
    let (usage, theme) = (&device.usage, canvas.theme);
    let mut y = 0;
    // Notes behind the figures get what is left, but a bar has a minimum width.
    let bar = (area.width.saturating_sub(90)).clamp(12, 40);
    for Memory { title, total, capacity, spaces } in memories(device) {
        let (figures, style) = totals(total, capacity, theme);
        canvas.text(area, 0, y, title, theme.title);
        let held = total.and_then(|it| share(it.used_bytes, capacity));
        canvas.meter(area, 10, y, bar, held, held.map_or(theme.faint, |it| theme.level(it)));
        canvas.text(area, 12 + bar, y, &figures, style);
        y += 1;
        for &space in spaces {
            let Some((used, part)) = worth_a_line(usage, space).zip(Part::of(space)) else { continue };
            canvas.cut(area, 1, y, 9, label::part_within(space), theme.faint);
            canvas.meter(area, 10, y, bar, share(used, capacity), theme.part(part));
            canvas.right(area, 11 + bar, y, 10, &size(used), theme.text);
            let x = 23 + bar;
            let room = area.width.saturating_sub(x);
            let (notes, _) = joined(notes(usage, space), usize::from(room));
            canvas.cut(area, x, y, room, &notes, theme.faint);
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
        canvas.cut(area, 1, y, area.width, &text, theme.accent);
    }
}

/// One of a device's memories.
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

/// What a space holds, if that is worth a line.
fn worth_a_line(usage: &Usage, space: Space) -> Option<u64> {
    let (used, _) = usage.used(space)?;
    let always = matches!(space, Space::Dram | Space::L1 | Space::Cb);
    (always || used > 0 || peak_of(usage, space) > 0).then_some(used)
}

/// How many lines [`spaces`] draws.
fn lines_of(device: &Device) -> u16 {
    let spaces = DRAM.iter().chain(&L1).filter(|it| worth_a_line(&device.usage, **it).is_some()).count();
    2 + spaces as u16 + u16::from(device.tightest_core.is_some())
}

/// `1.2 GiB of 12.0 GiB  10.3 %`, in the colour of how full that is.
fn totals(total: Option<&Total>, capacity: Option<u64>, theme: &Theme) -> (String, Style) {
    let style = match total {
        None => theme.faint,
        Some(it) => share(it.used_bytes, capacity).map_or(theme.text, |share| theme.level(share)),
    };
    (device::totals(total, capacity), style)
}

fn peak_of(usage: &Usage, space: Space) -> u64 {
    let program = usage::programs(usage, space).map_or(0, |it| it.registered_bytes);
    usage::buffers(usage, space).map_or(program, |it| it.peak_bytes)
}

/// The first of some notes that fit, at least one; and how many are left out.
fn joined(notes: Vec<String>, room: usize) -> (String, usize) {
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

/// What else is known of a space, the most useful first.
pub(super) fn notes(usage: &Usage, space: Space) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(it) = usage::buffers(usage, space) {
        let BufferNotes { count, peak, requested, occupied, free, basis } = BufferNotes::new(it);
        notes.extend(count);
        notes.push(peak);
        notes.extend(free);
        notes.push(requested);
        notes.extend(occupied);
        notes.push(basis);
    }
    if let Some(it) = usage::programs(usage, space) {
        notes.extend(program_notes(it));
        notes.push(by(it.basis));
    }
    notes
}
