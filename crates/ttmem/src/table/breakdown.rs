//! The memory of each device by space, and how well processes are tracked.

use super::notes::add_note;
use crate::text::{Style, UNKNOWN, ranges, size, truncate, wrap};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::machine::{Capacity, OtherCores};
use ttmem_core::snapshot::{CoreRoom, Device, Total, Usage};
use ttmem_core::words::{Basis, Space};
use ttmem_render::format::{percent, plural, share};
use ttmem_render::usage::{
    BufferNotes, basis_note, is_gap_certain, kernel_classes, program_notes, share_of_capacity,
};
use ttmem_render::{device, label, other_cores, process, usage};

/// Width of the bar of a memory.
const BAR_WIDTH: usize = 25;
/// Columns of a memory's line without its bar.
const BESIDE_BAR: usize = 50;
/// Width of the bar of a space.
const SPACE_BAR_WIDTH: usize = 10;
/// The width from which spaces have bars.
const MIN_WITH_BARS: usize = 100;
/// The width from which spaces have percentages.
const MIN_WITH_PERCENT: usize = 72;
/// The most breakdowns; if there are more, a hint replaces them.
const MAX_BREAKDOWNS: usize = 8;
/// The most processes whose tracking is described.
const MAX_TRACKED: usize = 8;

/// The note on figures from tt-metal counters.
pub(super) const COUNTERS_NOTE: &str =
    "counters: tt-metal's own statistics, which miss threads and rounding; `ttmem run` gives exact figures.";

/// Adds the memory of each device in use by space. Devices with equal breakdowns share one.
pub(super) fn add_breakdown(page: &mut String, snapshot: &Snapshot, style: Style) {
    let mut unused = Vec::new();
    let mut blocks: Vec<(Vec<&Device>, String)> = Vec::new();
    for device in &snapshot.devices {
        if device.usage == Usage::default() {
            unused.push(device.index);
            continue;
        }
        let block = format_breakdown(device, style);
        match blocks.iter_mut().find(|(_, other)| *other == block) {
            Some((devices, _)) => devices.push(device),
            None => blocks.push((vec![device], block)),
        }
    }
    if blocks.len() > MAX_BREAKDOWNS {
        let _ = writeln!(page, "\nMemory breakdown of one device: ttmem -v -d N");
    } else if !blocks.is_empty() {
        page.push_str("\nMemory breakdown:\n");
        for (devices, block) in &blocks {
            let _ = writeln!(page, "{}:\n{block}", format_devices(devices));
            page.truncate(page.trim_end().len() + 1);
        }
    }
    let has_counters = |usage: &Usage| {
        [&usage.dram_total, &usage.l1_total].into_iter().flatten().any(|it| it.basis == Basis::Counters)
    };
    if snapshot.devices.iter().any(|device| has_counters(&device.usage)) {
        add_note(page, COUNTERS_NOTE, style);
    }
    if !unused.is_empty() {
        let _ = writeln!(
            page,
            "\nNo process reports memory on device{} {}.",
            if unused.len() == 1 { "" } else { "s" },
            ranges(&unused)
        );
    }
}

fn format_devices(devices: &[&Device]) -> String {
    match devices {
        [one] => format!("Device {} ({}, {})", one.index, device::arch_title(one), one.id),
        all => {
            let indexes: Vec<u32> = all.iter().map(|it| it.index).collect();
            format!("Devices {} ({}), each", ranges(&indexes), device::arch_title(all[0]))
        }
    }
}

fn format_breakdown(device: &Device, style: Style) -> String {
    let (usage, mut block) = (&device.usage, String::new());
    let page = &mut block;
    if let Some(total) = &usage.dram_total {
        add_total(page, "DRAM", total, style);
        add_space(page, usage, Space::Dram, style);
        add_space(page, usage, Space::Trace, style);
    }
    if let Some(total) = &usage.l1_total {
        add_total(page, "L1", total, style);
        let programs = [Space::Cb, Space::Dfb, Space::Scratch, Space::Kernel];
        for space in [Space::L1].into_iter().chain(programs).chain([Space::L1Small, Space::L1Core]) {
            add_space(page, usage, space, style);
        }
        if let Some(room) = &device.tightest_core {
            add_gap(page, room, usage, style);
        }
    }
    add_space(page, usage, Space::Host, style);
    if let Some(capacity) = device.capacity {
        add_capacity(page, &capacity);
    }
    add_other_cores(page, &device.other_cores, style);
    block
}

/// Adds the smallest free gap of a core between program memory and the lowest buffer.
fn add_gap(page: &mut String, room: &CoreRoom, usage: &Usage, style: Style) {
    let CoreRoom { x, y, program_end, lowest_buffer, .. } = room;
    let how = if is_gap_certain(room, usage) { "at least" } else { "at most" };
    let note = format!("{how}, core {x},{y}: {program_end:#x} to {lowest_buffer:#x}");
    add_figure(page, "Free gap", room.free_gap_bytes, None, &[note], style);
}

/// Adds the cores that programs cannot use.
fn add_other_cores(page: &mut String, cores: &OtherCores, style: Style) {
    let dispatch = other_cores::dispatch(cores).map(|text| format!("Dispatch: {text}"));
    let ethernet = other_cores::ethernet(cores).map(|text| format!("Ethernet: {text}"));
    let note = (!cores.is_unknown()).then(|| format!("({})", other_cores::UNTRACKED_NOTE));
    for text in dispatch.into_iter().chain(ethernet).chain(note) {
        for (n, line) in wrap(&text, style.width.saturating_sub(4)).iter().enumerate() {
            let _ = writeln!(page, "{:1$}{line}", "", if n == 0 { 2 } else { 4 });
        }
    }
}

/// Adds a figure with the bar and the percentage of its share, and notes below each other. A narrow page has no bars, a
/// narrower one no percentages.
fn add_figure(page: &mut String, name: &str, bytes: u64, share: Option<f64>, notes: &[String], style: Style) {
    let mut line = format!("    {name:<11}{:>11}", size(bytes));
    let mut width = 26;
    if style.width >= MIN_WITH_BARS {
        let bar = match share {
            Some(share) => format!("[{}]", style.meter(Some(share), SPACE_BAR_WIDTH)),
            None => " ".repeat(SPACE_BAR_WIDTH + 2),
        };
        let _ = write!(line, "  {bar}");
        width += 2 + SPACE_BAR_WIDTH + 2;
    }
    if style.width >= MIN_WITH_PERCENT {
        let percent = share.map_or_else(String::new, |share| percent(Some(share)));
        let _ = write!(line, " {percent:>7}");
        width += 8;
    }
    width += 3;
    let mut lines = notes.iter().flat_map(|note| wrap_list(note, style.width.saturating_sub(width)));
    let _ = writeln!(page, "{line}   {}", lines.next().unwrap_or_default());
    for line in lines {
        let _ = writeln!(page, "{:width$}{line}", "");
    }
}

/// Adds the capacity of a device, the part that the runtime can allocate, and the origin of these figures.
fn add_capacity(page: &mut String, capacity: &Capacity) {
    let allocatable = match (capacity.dram_allocatable_bytes, capacity.l1_allocatable_bytes) {
        (Some(dram), Some(l1)) => format!("; allocatable: {} DRAM, {} L1", size(dram), size(l1)),
        _ => String::new(),
    };
    let (cores, l1) = (capacity.cores, size(capacity.l1_bytes_per_core));
    let origin = label::capacity_origin(capacity.origin);
    let _ = writeln!(page, "  {cores} cores x {l1}{allocatable} ({origin})");
}

fn add_total(page: &mut String, name: &str, total: &Total, style: Style) {
    let used = size(total.used_bytes);
    let _ = match total.capacity_bytes {
        Some(capacity) => {
            let width = style.width.saturating_sub(BESIDE_BAR).min(BAR_WIDTH);
            let bar = style.bar(total.used_bytes, capacity, width);
            // A share above 1 is an impossible figure, which a finding reports.
            let share = match share(total.used_bytes, Some(capacity.max(1))) {
                Some(share) if share > 1.0 => "not possible".to_owned(),
                share => percent(share),
            };
            writeln!(page, "  {name:<13}{used:>11} / {:<11}{bar} {share:>7}", size(capacity))
        }
        None => writeln!(page, "  {name:<13}{used:>11} / {UNKNOWN:<11}(capacity unknown)"),
    };
}

fn add_space(page: &mut String, usage: &Usage, space: Space, style: Style) {
    let Some((used, basis)) = usage.used(space) else { return };
    let (mut notes, mut more, mut free_note) = (Vec::new(), Vec::new(), None);
    if let Some(buffers) = usage::buffers(usage, space) {
        // Spaces that were never used are left out, except the main ones.
        let is_main = matches!(space, Space::Dram | Space::L1);
        if !is_main && buffers.peak_bytes == 0 && buffers.count.unwrap_or(0) == 0 {
            return;
        }
        let BufferNotes { count, peak, requested, occupied, free, .. } = BufferNotes::new(buffers);
        notes.extend(count);
        notes.push(peak);
        // If the figure is the requested bytes, the note is in its line.
        let line = if buffers.allocated_bytes.is_some() { &mut more } else { &mut notes };
        line.push(requested);
        more.extend(occupied);
        free_note = free;
    }
    if let Some(program) = usage::programs(usage, space) {
        if basis == Basis::Counters && program.registered_bytes == 0 {
            return;
        }
        notes.extend(program_notes(space, program));
    }
    notes.push(basis_note(basis));
    let more = (!more.is_empty()).then(|| more.join(", "));
    let classes = usage::programs(usage, space).map(kernel_classes).unwrap_or_default();
    let classes = classes.into_iter().map(|(class, text)| format!("{class} {text}"));
    let notes: Vec<String> =
        [notes.join(", ")].into_iter().chain(more).chain(free_note).chain(classes).collect();
    // A share above 1 is not possible, which the line of the memory says.
    let share = share_of_capacity(usage, space).filter(|&share| share <= 1.0);
    add_figure(page, label::part(space), used, share, &notes, style);
}

/// Breaks a list into lines of up to `width` characters, after commas. A longer item has a line of its own.
fn wrap_list(list: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in list.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if line.chars().count() + item.trim_end().chars().count() <= width => {
                line.push_str(item);
            }
            _ => lines.push(item.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Adds a line for each process with the agent on how well it is tracked.
pub(super) fn add_tracking(page: &mut String, snapshot: &Snapshot) {
    let tracked = || {
        snapshot.processes.iter().filter_map(|it| Some((it, it.tracker.as_ref().filter(|t| t.hooks > 0)?)))
    };
    if tracked().next().is_none() {
        return;
    }
    page.push_str("\nTracking:\n");
    for (process, tracker) in tracked().take(MAX_TRACKED) {
        let mut notes = vec![truncate(tracker.runtime.as_deref().unwrap_or(&tracker.writer), 40)];
        match tracker.missing_hooks.len() as u32 {
            0 => notes.push(format!("all {} hooks", tracker.hooks)),
            n => notes.push(format!("{} of {} hooks", tracker.hooks - n.min(tracker.hooks), tracker.hooks)),
        }
        let compared = process.audit.iter().filter(|audit| audit.compared).count();
        let drift: u64 =
            process.audit.iter().filter(|it| it.compared).map(|it| it.drift_bytes.unsigned_abs()).sum();
        match (compared, drift) {
            (0, _) => notes.push("not audited: allocator busy, or no statistics".to_owned()),
            (n, 0) => notes.push(format!("drift 0 in {}", plural(n as u64, "space"))),
            (n, drift) => notes.push(format!("DRIFT {drift} B in {}", plural(n as u64, "space"))),
        }
        if let Some(seconds) = tracker.cost_seconds {
            notes.push(format!("cost {:.1} ms", seconds * 1000.0));
        }
        let pid = process::pid(process.pid, process.reported_pid, UNKNOWN);
        let _ = writeln!(page, "  pid {pid:<8} {}", notes.join(", "));
    }
    let more = tracked().count().saturating_sub(MAX_TRACKED);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem check");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(width: usize, share: Option<f64>) -> String {
        let style = Style { ascii: true, colour: false, width, list_width: width, height: None };
        let mut page = String::new();
        let notes = ["3 buffers, peak 15.0 MiB, exact".to_owned(), "64.4 MiB free".to_owned()];
        add_figure(&mut page, "Buffers", 12 << 20, share, &notes, style);
        page
    }

    #[test]
    fn narrow_pages_drop_bars_then_percentages() {
        assert_eq!(
            figure(100, Some(0.133)),
            "    Buffers       12.0 MiB  [#---------]  13.3 %   3 buffers, peak 15.0 MiB, exact\n\
             \x20                                                  64.4 MiB free\n"
        );
        assert_eq!(
            figure(80, Some(0.133)),
            "    Buffers       12.0 MiB  13.3 %   3 buffers, peak 15.0 MiB, exact\n\
             \x20                                    64.4 MiB free\n"
        );
        assert_eq!(
            figure(60, Some(0.133)),
            "    Buffers       12.0 MiB   3 buffers, peak 15.0 MiB, exact\n\
             \x20                            64.4 MiB free\n"
        );
    }

    #[test]
    fn figure_without_a_share_has_no_bar() {
        for width in [60, 80, 100] {
            let page = figure(width, None);
            assert!(page.contains("12.0 MiB") && !page.contains('[') && !page.contains('%'), "{page}");
            let notes = |page: &str| page.lines().map(|line| line.find("64.4")).collect::<Vec<_>>();
            assert_eq!(notes(&page), notes(&figure(width, Some(0.5))), "notes stay in their column");
        }
    }

    #[test]
    fn lists_break_after_commas() {
        assert_eq!(wrap_list("5.6 GiB free, largest block 2 MiB", 40), ["5.6 GiB free, largest block 2 MiB"]);
        assert_eq!(
            wrap_list("5.6 GiB free, largest block 2 MiB", 20),
            ["5.6 GiB free,", "largest block 2 MiB"]
        );
        assert_eq!(wrap_list("5.6 GiB free", 3), ["5.6 GiB free"], "no figure is cut");
    }
}
