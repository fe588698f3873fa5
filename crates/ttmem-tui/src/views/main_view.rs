//! View 1: devices, what is in the chosen one's memory, and who holds it.

use super::Scene;
use crate::canvas::{Canvas, split_columns, split_rows};
use crate::chart::Span;
use crate::figure::{GIB, MIB, UNKNOWN, age, bytes_or, percent, reading, share, since};
use crate::lists;
use crate::table::{Cell, Table};
use crate::theme::{Part, Theme};
use crate::ui::List;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{BufferUsage, CoreRoom, Device, Process, ProgramUsage, Quality, Total, Usage};
use ttmem_core::words::{Basis, Space, ranges, size};

/// From this width on the chosen chip has a column of its own.
const WIDE: u16 = 150;
const SIDE: u16 = 66;

/// Spaces of DRAM, and of L1, in the order of a bar.
const DRAM: [(Space, Part, &str); 2] =
    [(Space::Dram, Part::Dram, "buffers"), (Space::Trace, Part::Trace, "trace")];
const L1: [(Space, Part, &str); 7] = [
    (Space::L1, Part::L1, "buffers"),
    (Space::L1Core, Part::L1, "on cores"),
    (Space::L1Small, Part::L1Small, "L1_SMALL"),
    (Space::Cb, Part::Cb, "CBs"),
    (Space::Dfb, Part::Dfb, "DFBs"),
    (Space::Scratch, Part::Scratch, "scratch"),
    (Space::Kernel, Part::Kernel, "kernels"),
];

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

    /// What processes do not need is for the chosen chip's past. Returns whether that was enough for it.
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
            columns: lists::DEVICES,
            place: ui.place(List::Devices),
            count: snapshot.devices.len(),
            focused: ui.list() == Some(List::Devices),
            hidden: &[],
        };
        let empty = "No Tenstorrent device here: try `ttmem demo`, or see `ttmem doctor`.";
        self.framed(canvas, area, "Devices", &table, empty, |at, _| match snapshot.devices.get(at) {
            Some(device) => device_row(device, &snapshot, &ui.theme),
            None => Vec::new(),
        });
    }

    fn processes(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.shown.snapshot.clone(), self.ui);
        let place = ui.place(List::Processes);
        let rows = lists::processes(&snapshot, place);
        let contained = rows.iter().any(|it| it.container.is_some() || it.pod.is_some());
        let table = Table {
            list: List::Processes,
            columns: lists::PROCESSES,
            place,
            count: rows.len(),
            focused: ui.list() == Some(List::Processes),
            hidden: if contained { &[] } else { &["container"] },
        };
        let empty = if place.filter.is_empty() {
            "No process uses a device or reports device memory."
        } else {
            "No process fits the filter."
        };
        self.framed(canvas, area, "Processes", &table, empty, |at, _| match rows.get(at) {
            Some(process) => process_row(process, &ui.theme),
            None => Vec::new(),
        });
    }

    /// What is in the chosen chip's memory.
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

    /// Beside the tables: the chosen chip's memory, its last minute, its peaks, and what is odd.
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

    /// The chosen chip's usage over time.
    fn past(&self, canvas: &mut Canvas, area: Rect, device: &Device) {
        let title = format!("Last {} of {}", age(self.ui.window_seconds() as f64), name(device));
        let inside = canvas.frame(area, &title, false);
        let span = Span { end: self.shown.snapshot.at, seconds: self.ui.window_seconds() };
        let series = self.series(canvas, device);
        self.plot(canvas, inside, span, &series);
        let mut x = area.width.saturating_sub(28);
        for it in &series {
            x = canvas.text(area, x, 0, &format!(" {} {} ", it.title, percent(it.share())), it.style);
        }
    }

    fn peaks(&self, canvas: &mut Canvas, area: Rect, device: &Device) {
        let rows = device.peaks.len() as u16 + 2;
        let (above, below) = split_rows(area, rows.clamp(3, area.height.saturating_sub(4).max(3)));
        let theme = canvas.theme;
        let inside = canvas.frame(above, "Peaks, and who held them", false);
        for (y, peak) in device.peaks.iter().enumerate() {
            let y = y as u16;
            canvas.text(inside, 1, y, peak.space.name(), theme.faint);
            canvas.right(inside, 10, y, 11, &size(peak.bytes), theme.text);
            let ago = format!("{} ago", since(peak.at, self.now.wall.max(peak.at)));
            canvas.right(inside, 22, y, 8, &ago, theme.faint);
            let holders: Vec<String> = peak
                .holders
                .iter()
                .take(3)
                .map(|it| format!("{} {}", it.name.as_deref().unwrap_or(UNKNOWN), size(it.bytes)))
                .collect();
            canvas.cut(inside, 32, y, inside.width.saturating_sub(33), &holders.join(", "), theme.faint);
        }
        if device.peaks.is_empty() {
            canvas.text(inside, 1, 0, "none yet", theme.faint);
        }
        let inside = canvas.frame(below, "Findings", false);
        let findings = &self.shown.snapshot.findings;
        for (y, finding) in findings.iter().enumerate() {
            let y = y as u16;
            if y + 1 == inside.height && findings.len() > usize::from(inside.height) {
                let more = findings.len() - usize::from(y);
                canvas.text(inside, 1, y, &format!("and {more} more: 7"), theme.faint);
                break;
            }
            canvas.put(inside, 1, y, '●', theme.severity(finding.severity));
            canvas.cut(inside, 3, y, inside.width.saturating_sub(4), &finding.text, theme.text);
        }
        if findings.is_empty() {
            canvas.text(inside, 1, 0, "nothing odd", theme.faint);
        }
    }
}

/// Two bars of parts, with legends.
fn stacks(canvas: &mut Canvas, area: Rect, device: &Device) {
    let usage = &device.usage;
    let memories = [
        ("DRAM", &usage.dram_total, device.capacity.map(|it| it.dram_bytes), &DRAM[..]),
        ("L1", &usage.l1_total, device.capacity.map(|it| it.l1_bytes), &L1[..]),
    ];
    for (n, (title, total, capacity, parts)) in memories.into_iter().enumerate() {
        let y = n as u16 * 2;
        let theme = canvas.theme;
        canvas.text(area, 0, y, title, theme.title);
        let (figures, style) = totals(total.as_ref(), capacity, theme);
        let bar = area.width.saturating_sub(5 + 32);
        let capacity = total.as_ref().and_then(|it| it.capacity_bytes).or(capacity);
        let held: Vec<(u64, Part)> =
            parts.iter().filter_map(|(space, part, _)| Some((usage.used(*space)?.0, *part))).collect();
        canvas.stack(area, 5, y, bar, &held, capacity);
        canvas.right(area, 5 + bar, y, 32, &figures, style);
        // The gap and the largest block are what decides whether the next allocation fits.
        let note = match title {
            "L1" => device.tightest_core.map(|room| (format!("gap {}", size(room.gap_bytes)), theme.accent)),
            _ => usage.dram.as_ref().and_then(|it| {
                let largest = it.largest_free_bytes_per_bank?;
                Some((format!("largest free block {} a bank", size(largest)), theme.faint))
            }),
        };
        let mut end = area.width;
        if let Some((text, style)) = note {
            canvas.right(area, 0, y + 1, area.width, &text, style);
            end = area.width.saturating_sub(text.chars().count() as u16 + 2);
        }
        let mut named: Vec<(u64, Part, &str)> = parts
            .iter()
            .filter_map(|(space, part, label)| Some((worth_a_line(usage, *space)?, *part, *label)))
            .collect();
        named.sort_by_key(|it| std::cmp::Reverse(it.0));
        let mut x = 5;
        for (used, part, label) in named {
            let text = format!(" {label} {}", size(used));
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
    let memories = [
        ("DRAM", &usage.dram_total, device.capacity.map(|it| it.dram_bytes), &DRAM[..]),
        ("L1", &usage.l1_total, device.capacity.map(|it| it.l1_bytes), &L1[..]),
    ];
    // The notes behind the figures get what is left, but a bar must be worth looking at.
    let bar = (area.width.saturating_sub(90)).clamp(12, 40);
    for (title, total, capacity, parts) in memories {
        let capacity = total.as_ref().and_then(|it| it.capacity_bytes).or(capacity);
        let (figures, style) = totals(total.as_ref(), capacity, theme);
        canvas.text(area, 0, y, title, theme.title);
        let held = total.as_ref().and_then(|it| share(it.used_bytes, capacity));
        canvas.meter(area, 10, y, bar, held, held.map_or(theme.faint, |it| theme.level(it)));
        canvas.text(area, 12 + bar, y, &figures, style);
        y += 1;
        for (space, part, label) in parts {
            let Some(used) = worth_a_line(usage, *space) else { continue };
            canvas.cut(area, 1, y, 9, label, theme.faint);
            canvas.meter(area, 10, y, bar, share(used, capacity), theme.part(*part));
            canvas.right(area, 11 + bar, y, 10, &size(used), theme.text);
            let notes = notes(usage, *space);
            let x = 23 + bar;
            canvas.cut(area, x, y, area.width.saturating_sub(x), &notes, theme.faint);
            y += 1;
        }
    }
    if let Some(room) = device.tightest_core {
        let text = format!(
            "least gap {}{} between programs and buffers, core {},{}",
            size(room.gap_bytes),
            if is_told(&room, &device.usage) { "" } else { " or less" },
            room.x,
            room.y
        );
        canvas.cut(area, 1, y, area.width, &text, theme.accent);
    }
}

/// Whether of all that is kept on a chip's cores it is known where and when it lies there. Otherwise it may lie in the gap.
pub(super) fn is_told(room: &CoreRoom, usage: &Usage) -> bool {
    let kept = [&usage.cb, &usage.dfb, &usage.scratch];
    room.basis == Basis::Events && kept.into_iter().flatten().all(ProgramUsage::is_followed)
}

/// What a space holds, if that is worth a line.
fn worth_a_line(usage: &Usage, space: Space) -> Option<u64> {
    let (used, _) = usage.used(space)?;
    let always = matches!(space, Space::Dram | Space::L1 | Space::Cb);
    (always || used > 0 || peak_of(usage, space) > 0).then_some(used)
}

/// How many lines [`spaces`] draws.
fn lines_of(device: &Device) -> u16 {
    let spaces = DRAM.iter().chain(&L1).filter(|it| worth_a_line(&device.usage, it.0).is_some()).count();
    2 + spaces as u16 + u16::from(device.tightest_core.is_some())
}

/// As `0 n300 R`.
pub(super) fn name(device: &Device) -> String {
    let board = device.board.as_deref().unwrap_or("unknown board");
    format!("{} {board}{}", device.index, if device.remote { " R" } else { "" })
}

/// `1.2 GiB of 12.0 GiB  10.3 %`, in the colour of how full that is.
fn totals(total: Option<&Total>, capacity: Option<u64>, theme: &Theme) -> (String, Style) {
    let capacity = total.and_then(|it| it.capacity_bytes).or(capacity);
    let of = capacity.map_or_else(|| UNKNOWN.to_owned(), size);
    match total {
        None => (format!("{UNKNOWN} of {of}"), theme.faint),
        Some(total) => {
            let share = share(total.used_bytes, capacity);
            let style = share.map_or(theme.text, |share| theme.level(share));
            (format!("{} of {of} {:>7}", size(total.used_bytes), percent(share)), style)
        }
    }
}

fn buffers_of(usage: &Usage, space: Space) -> Option<&BufferUsage> {
    match space {
        Space::Dram => usage.dram.as_ref(),
        Space::L1 => usage.l1.as_ref(),
        Space::L1Small => usage.l1_small.as_ref(),
        Space::L1Core => usage.l1_core.as_ref(),
        Space::Trace => usage.trace.as_ref(),
        Space::Host => usage.host.as_ref(),
        Space::Cb | Space::Dfb | Space::Scratch | Space::Kernel => None,
    }
}

fn program_of(usage: &Usage, space: Space) -> Option<&ProgramUsage> {
    match space {
        Space::Cb => usage.cb.as_ref(),
        Space::Dfb => usage.dfb.as_ref(),
        Space::Scratch => usage.scratch.as_ref(),
        Space::Kernel => usage.kernel.as_ref(),
        _ => None,
    }
}

fn peak_of(usage: &Usage, space: Space) -> u64 {
    let program = program_of(usage, space).map_or(0, |it| it.registered_bytes);
    buffers_of(usage, space).map_or(program, |it| it.peak_bytes)
}

/// What else is known of a space, the most useful first.
pub(super) fn notes(usage: &Usage, space: Space) -> String {
    let mut notes = Vec::new();
    if let Some(it) = buffers_of(usage, space) {
        notes.extend(it.count.map(|n| crate::figure::counted(n, "buffer")));
        notes.push(format!("peak {}", size(it.peak_bytes)));
        if let (Some(free), Some(largest)) = (it.free_bytes, it.largest_free_bytes_per_bank) {
            notes.push(format!("{} free, largest block {} a bank", size(free), size(largest)));
        }
        if it.allocated_bytes.is_some() {
            notes.push(format!("{} asked for", size(it.requested_bytes)));
        } else {
            notes.push("as asked for".to_owned());
        }
        notes.extend(it.occupied_bytes.map(|bytes| format!("{} occupied", size(bytes))));
        notes.push(format!("by {}", it.basis.name()));
    }
    if let Some(it) = program_of(usage, space) {
        let registered = size(it.registered_bytes);
        notes.push(match (it.resident_bytes, it.unfollowed_bytes) {
            (None, _) => "registered".to_owned(),
            (Some(_), 0) => format!("resident of {registered} registered"),
            // The figure before this is all that is or may be.
            (Some(resident), unknown) => {
                let (resident, unknown) = (size(resident), size(unknown));
                format!("{resident} resident, {unknown} of unknown residence, of {registered} registered")
            }
        });
        if it.estimated_bytes > 0 {
            notes.push(format!("{} estimated", size(it.estimated_bytes)));
        }
        notes.push(format!("by {}", it.basis.name()));
    }
    notes.join(", ")
}

/// How well what is on a chip is known: as well as of the process there that is known worst.
fn tracking(device: &Device, snapshot: &Snapshot) -> Option<Quality> {
    let here = snapshot.processes.iter().filter(|it| it.summary.indexes.contains(&device.index));
    here.map(|process| process.summary.quality).max()
}

fn device_row(device: &Device, snapshot: &Snapshot, theme: &Theme) -> Vec<Cell> {
    let sensors = device.sensors.as_ref();
    let stale = sensors.is_some_and(|it| it.stale);
    let sensor = |value: Option<f64>, limit: Option<f64>, places| {
        let style = if stale { theme.faint } else { theme.against(value, limit) };
        Cell::new(reading(value, places), style)
    };
    let get = |of: fn(&ttmem_core::machine::Sensors) -> Option<f64>| sensors.and_then(of);
    let memory = |total: &Option<Total>, capacity: Option<u64>, unit: u64, places: usize| {
        let used = total.as_ref().map(|it| it.used_bytes);
        let capacity = total.as_ref().and_then(|it| it.capacity_bytes).or(capacity);
        let held = used.and_then(|used| share(used, capacity));
        let level = held.map_or(theme.faint, |it| theme.level(it));
        let known = |it: Option<u64>| if it.is_some() { theme.text } else { theme.faint };
        let percent = held.map_or_else(
            || UNKNOWN.to_owned(),
            |it| {
                // No share of anything is more than all of it: such a figure is wrong, and a finding says so.
                if it > 1.0 { ">100".to_owned() } else { format!("{:.1}", it * 100.0) }
            },
        );
        [
            Cell::Meter(held, level),
            Cell::new(bytes_or(used, unit, places), known(used)),
            Cell::new(bytes_or(capacity, unit, places), theme.faint),
            Cell::new(percent, level),
        ]
    };
    let capacity = device.capacity;
    let [dram_bar, dram, dram_of, dram_share] =
        memory(&device.usage.dram_total, capacity.map(|it| it.dram_bytes), GIB, 2);
    let [l1_bar, l1, l1_of, l1_share] =
        memory(&device.usage.l1_total, capacity.map(|it| it.l1_bytes), MIB, 1);
    let (word, style) = match tracking(device, snapshot) {
        None => ("nobody", theme.faint),
        Some(quality) => (quality.name(), theme.quality(quality)),
    };
    let board = device.board.as_deref().unwrap_or(UNKNOWN);
    vec![
        Cell::new(device.index.to_string(), theme.text),
        Cell::new(format!("{board}{}", if device.remote { " R" } else { "" }), theme.text),
        Cell::new(device.arch.map_or(UNKNOWN, ttmem_core::words::Arch::title), theme.faint),
        sensor(get(|it| it.asic_celsius), get(|it| it.limits.asic_celsius), 1),
        sensor(get(|it| it.power_watts), get(|it| it.limits.power_watts), 1),
        sensor(get(|it| it.aiclk_mhz), None, 0),
        dram_bar,
        dram,
        dram_of,
        dram_share,
        l1_bar,
        l1,
        l1_of,
        l1_share,
        Cell::new(word, style),
    ]
}

fn process_row(process: &Process, theme: &Theme) -> Vec<Cell> {
    let summary = &process.summary;
    let text = |it: &Option<String>, style| match it {
        Some(it) => Cell::new(it.as_str(), style),
        None => Cell::new(UNKNOWN, theme.faint),
    };
    let figure = |bytes: Option<u64>| {
        let style = if bytes.is_some_and(|it| it > 0) { theme.text } else { theme.faint };
        // Of one that is followed, what was never seen is nothing; of another it is not known.
        let none = if summary.quality == Quality::Untracked { UNKNOWN } else { "·" };
        Cell::new(bytes.map_or_else(|| none.to_owned(), |it| crate::figure::bytes(it, MIB, 1)), style)
    };
    let container = match (&process.container, &process.pod) {
        (Some(it), _) | (None, Some(it)) => Cell::new(it.as_str(), theme.faint),
        (None, None) => Cell::new("", theme.faint),
    };
    vec![
        Cell::new(lists::pid_text(process.pid, process.reported_pid), theme.text),
        text(&process.user, theme.faint),
        text(&process.name, theme.text),
        container,
        match &summary.indexes[..] {
            [] => Cell::new(UNKNOWN, theme.faint),
            all => Cell::new(ranges(all), theme.text),
        },
        figure(summary.dram_bytes),
        figure(summary.l1_bytes),
        figure(summary.program_bytes),
        figure(summary.kernel_bytes),
        Cell::new(summary.quality.name(), theme.quality(summary.quality)),
        match &process.command {
            Some(command) => Cell::new(without_folder(command), theme.faint),
            None => Cell::new(UNKNOWN, theme.faint),
        },
    ]
}

/// A command line without the folder of its program: there is never enough room for what matters.
fn without_folder(command: &str) -> String {
    let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
    let name = program.rsplit('/').next().filter(|it| !it.is_empty()).unwrap_or(program);
    format!("{name} {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cb(resident_bytes: Option<u64>, unfollowed_bytes: u64, registered_bytes: u64) -> Usage {
        let (estimated_bytes, count, basis) = (0, None, Basis::Events);
        let cb = ProgramUsage {
            registered_bytes,
            resident_bytes,
            unfollowed_bytes,
            estimated_bytes,
            count,
            basis,
        };
        Usage { cb: Some(cb), ..Usage::default() }
    }

    #[test]
    fn what_may_be_resident_is_not_said_to_be() {
        let notes = |usage: &Usage| notes(usage, Space::Cb);
        assert_eq!(notes(&cb(Some(1024), 0, 4096)), "resident of 4.0 KiB registered, by events");
        assert_eq!(
            notes(&cb(Some(1024), 2048, 4096)),
            "1.0 KiB resident, 2.0 KiB of unknown residence, of 4.0 KiB registered, by events"
        );
        assert_eq!(notes(&cb(None, 0, 4096)), "registered, by events");
    }

    #[test]
    fn a_gap_is_told_only_where_nothing_of_unknown_place_is_held() {
        let room = |basis| CoreRoom {
            x: 0,
            y: 0,
            program_end: 0,
            registered_end: 0,
            lowest_buffer: 0,
            gap_bytes: 0,
            basis,
        };
        let told = |usage: &Usage| is_told(&room(Basis::Events), usage);
        assert!(told(&Usage::default()) && told(&cb(Some(1), 0, 2)) && told(&cb(None, 0, 0)));
        assert!(!told(&cb(Some(1), 1, 2)), "some of unknown residence");
        assert!(!told(&cb(None, 0, 2)), "all of it");
        assert!(!is_told(&room(Basis::Legacy), &Usage::default()), "who does not say where");
        let kernels = Usage { kernel: cb(None, 0, 2).cb, ..Usage::default() };
        assert!(told(&kernels), "they have a place of their own");
    }
}
