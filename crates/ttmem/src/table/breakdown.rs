//! What each device holds, by space, and how well processes are tracked.

use super::notes::note;
use crate::text::{Style, UNKNOWN, cut, ranges, size};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::machine::Capacity;
use ttmem_core::snapshot::{CoreRoom, Device, Total, Usage};
use ttmem_core::words::{Basis, Space};
use ttmem_render::figure::{counted, percent, share};
use ttmem_render::usage::{BufferNotes, by, is_gap_certain, program_notes};
use ttmem_render::{device, label, process, usage};

const BAR: usize = 25;
/// Devices that are each broken down; of more there is only a hint.
const BREAKDOWNS: usize = 8;
/// Processes whose tracking is described.
const TRACKED: usize = 8;

/// What a page says where a figure is tt-metal's own.
pub(super) const COUNTERS: &str =
    "counters: tt-metal's own statistics, which miss threads and rounding; `ttmem run` gives exact figures.";

/// Whether devices with the same breakdown share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Alike,
    Never,
}

/// What each device in use holds, by space.
pub(super) fn breakdown(page: &mut String, snapshot: &Snapshot, fold: Fold, style: Style) {
    let mut quiet = Vec::new();
    let mut blocks: Vec<(Vec<&Device>, String)> = Vec::new();
    for device in &snapshot.devices {
        if device.usage == Usage::default() {
            quiet.push(device.index);
            continue;
        }
        let block = breakdown_of(device, style);
        match blocks.iter_mut().find(|(_, of)| fold == Fold::Alike && *of == block) {
            Some((devices, _)) => devices.push(device),
            None => blocks.push((vec![device], block)),
        }
    }
    if blocks.len() > BREAKDOWNS {
        let _ = writeln!(page, "\nMemory breakdown of one device: ttmem -v -d N");
    } else if !blocks.is_empty() {
        page.push_str("\nMemory breakdown:\n");
        for (devices, block) in &blocks {
            let _ = writeln!(page, "{}:\n{block}", title(devices));
            page.truncate(page.trim_end().len() + 1);
        }
    }
    let is_counted = |usage: &Usage| {
        [&usage.dram_total, &usage.l1_total].into_iter().flatten().any(|it| it.basis == Basis::Counters)
    };
    if snapshot.devices.iter().any(|device| is_counted(&device.usage)) {
        note(page, COUNTERS, style);
    }
    if !quiet.is_empty() {
        let _ = writeln!(
            page,
            "\nNo process reports memory on device{} {}.",
            if quiet.len() == 1 { "" } else { "s" },
            ranges(&quiet)
        );
    }
}

fn title(devices: &[&Device]) -> String {
    match devices {
        [one] => format!("Device {} ({}, {})", one.index, device::name(one), one.id),
        all => {
            let indexes: Vec<u32> = all.iter().map(|it| it.index).collect();
            format!("Devices {} ({}), each", ranges(&indexes), device::name(all[0]))
        }
    }
}

fn breakdown_of(device: &Device, style: Style) -> String {
    let (usage, mut block) = (&device.usage, String::new());
    let page = &mut block;
    if let Some(total) = &usage.dram_total {
        total_line(page, "DRAM", total, style);
        part(page, usage, Space::Dram);
        part(page, usage, Space::Trace);
    }
    if let Some(total) = &usage.l1_total {
        total_line(page, "L1", total, style);
        let programs = [Space::Cb, Space::Dfb, Space::Scratch, Space::Kernel];
        for space in [Space::L1].into_iter().chain(programs).chain([Space::L1Small, Space::L1Core]) {
            part(page, usage, space);
        }
        if let Some(room) = &device.tightest_core {
            gap_line(page, room, usage);
        }
    }
    part(page, usage, Space::Host);
    if let Some(capacity) = device.capacity {
        capacity_line(page, &capacity);
    }
    block
}

/// The smallest free gap that a core has between program memory and the lowest buffer.
fn gap_line(page: &mut String, room: &CoreRoom, usage: &Usage) {
    let CoreRoom { x, y, program_end, lowest_buffer, .. } = room;
    let how = if is_gap_certain(room, usage) { "at least" } else { "at most" };
    let _ = writeln!(
        page,
        "    {:<11}{:>11}   {how}, core {x},{y}: {program_end:#x} to {lowest_buffer:#x}",
        "Free gap",
        size(room.free_gap_bytes)
    );
}

/// What the device has, what of it the runtime can allocate, and where that is known from.
fn capacity_line(page: &mut String, it: &Capacity) {
    let usable = match (it.dram_allocatable_bytes, it.l1_allocatable_bytes) {
        (Some(dram), Some(l1)) => format!("; allocatable: {} DRAM, {} L1", size(dram), size(l1)),
        _ => String::new(),
    };
    let (cores, l1) = (it.cores, size(it.l1_bytes_per_core));
    let origin = label::capacity_origin(it.origin);
    let _ = writeln!(page, "  {cores} cores x {l1}{usable} ({origin})");
}

fn total_line(page: &mut String, name: &str, total: &Total, style: Style) {
    let used = size(total.used_bytes);
    let _ = match total.capacity_bytes {
        Some(capacity) => {
            let bar = style.bar(total.used_bytes, capacity, BAR);
            // A share above 1 is an impossible figure, and a finding says so.
            let share = match share(total.used_bytes, Some(capacity.max(1))) {
                Some(share) if share > 1.0 => "not possible".to_owned(),
                share => percent(share),
            };
            writeln!(page, "  {name:<13}{used:>11} / {:<11}{bar} {share:>7}", size(capacity))
        }
        None => writeln!(page, "  {name:<13}{used:>11} / {UNKNOWN:<11}(capacity unknown)"),
    };
}

fn part(page: &mut String, usage: &Usage, space: Space) {
    let Some((used, basis)) = usage.used(space) else { return };
    let (mut notes, mut more, mut free_note) = (Vec::new(), Vec::new(), None);
    if let Some(buffers) = usage::buffers(usage, space) {
        // A part that was never used is nothing to read about.
        let part = !matches!(space, Space::Dram | Space::L1);
        if part && buffers.peak_bytes == 0 && buffers.count.unwrap_or(0) == 0 {
            return;
        }
        let BufferNotes { count, peak, requested, occupied, free, .. } = BufferNotes::new(buffers);
        notes.extend(count);
        notes.push(peak);
        // That the figure is what was requested is said beside it.
        let place = if buffers.allocated_bytes.is_some() { &mut more } else { &mut notes };
        place.push(requested);
        more.extend(occupied);
        free_note = free;
    }
    if let Some(program) = usage::programs(usage, space) {
        if basis == Basis::Counters && program.registered_bytes == 0 {
            return;
        }
        notes.extend(program_notes(program));
        if space == Space::Cb && basis == Basis::Reported {
            notes.push("per core".to_owned());
        }
    }
    notes.push(by(basis));
    let _ = writeln!(page, "    {:<11}{:>11}   {}", label::part(space), size(used), notes.join(", "));
    let more = (!more.is_empty()).then(|| more.join(", "));
    for line in more.into_iter().chain(free_note) {
        let _ = writeln!(page, "{:29}{line}", "");
    }
}

/// How well processes with the agent are tracked, in a line each.
pub(super) fn tracking(page: &mut String, snapshot: &Snapshot) {
    let tracked = || {
        snapshot.processes.iter().filter_map(|it| Some((it, it.tracker.as_ref().filter(|t| t.hooks > 0)?)))
    };
    if tracked().next().is_none() {
        return;
    }
    page.push_str("\nTracking:\n");
    for (process, tracker) in tracked().take(TRACKED) {
        let mut notes = vec![cut(tracker.runtime.as_deref().unwrap_or(&tracker.writer), 40)];
        match tracker.missing_hooks.len() as u32 {
            0 => notes.push(format!("all {} hooks", tracker.hooks)),
            n => notes.push(format!("{} of {} hooks", tracker.hooks - n.min(tracker.hooks), tracker.hooks)),
        }
        let compared = process.audit.iter().filter(|audit| audit.compared).count();
        let drift: u64 =
            process.audit.iter().filter(|it| it.compared).map(|it| it.drift_bytes.unsigned_abs()).sum();
        match (compared, drift) {
            (0, _) => notes.push("not audited: allocator busy, or no statistics".to_owned()),
            (n, 0) => notes.push(format!("drift 0 in {}", counted(n as u64, "space"))),
            (n, drift) => notes.push(format!("DRIFT {drift} B in {}", counted(n as u64, "space"))),
        }
        if let Some(seconds) = tracker.cost_seconds {
            notes.push(format!("cost {:.1} ms", seconds * 1000.0));
        }
        let pid = process::pid(process.pid, process.reported_pid, UNKNOWN);
        let _ = writeln!(page, "  pid {pid:<8} {}", notes.join(", "));
    }
    let more = tracked().count().saturating_sub(TRACKED);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem check");
    }
}
