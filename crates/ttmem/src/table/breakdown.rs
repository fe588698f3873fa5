//! The memory of each device by space, and how well processes are tracked.

use super::notes::add_note;
use crate::text::{Style, UNKNOWN, ranges, size, truncate};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::machine::Capacity;
use ttmem_core::snapshot::{CoreRoom, Device, Total, Usage};
use ttmem_core::words::{Basis, Space};
use ttmem_render::format::{percent, plural, share};
use ttmem_render::usage::{BufferNotes, basis_note, is_gap_certain, program_notes};
use ttmem_render::{device, label, process, usage};

/// Width of a bar.
const BAR_WIDTH: usize = 25;
/// The most breakdowns; if there are more, a hint replaces them.
const MAX_BREAKDOWNS: usize = 8;
/// The most processes whose tracking is described.
const MAX_TRACKED: usize = 8;

/// The note on figures from tt-metal counters.
pub(super) const COUNTERS_NOTE: &str =
    "counters: tt-metal's own statistics, which miss threads and rounding; `ttmem run` gives exact figures.";

/// Whether devices with equal breakdowns share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folding {
    Equal,
    None,
}

/// Adds the memory of each device in use by space.
pub(super) fn add_breakdown(page: &mut String, snapshot: &Snapshot, folding: Folding, style: Style) {
    let mut unused = Vec::new();
    let mut blocks: Vec<(Vec<&Device>, String)> = Vec::new();
    for device in &snapshot.devices {
        if device.usage == Usage::default() {
            unused.push(device.index);
            continue;
        }
        let block = format_breakdown(device, style);
        match blocks.iter_mut().find(|(_, other)| folding == Folding::Equal && *other == block) {
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
        add_space(page, usage, Space::Dram);
        add_space(page, usage, Space::Trace);
    }
    if let Some(total) = &usage.l1_total {
        add_total(page, "L1", total, style);
        let programs = [Space::Cb, Space::Dfb, Space::Scratch, Space::Kernel];
        for space in [Space::L1].into_iter().chain(programs).chain([Space::L1Small, Space::L1Core]) {
            add_space(page, usage, space);
        }
        if let Some(room) = &device.tightest_core {
            add_gap(page, room, usage);
        }
    }
    add_space(page, usage, Space::Host);
    if let Some(capacity) = device.capacity {
        add_capacity(page, &capacity);
    }
    block
}

/// Adds the smallest free gap of a core between program memory and the lowest buffer.
fn add_gap(page: &mut String, room: &CoreRoom, usage: &Usage) {
    let CoreRoom { x, y, program_end, lowest_buffer, .. } = room;
    let how = if is_gap_certain(room, usage) { "at least" } else { "at most" };
    let _ = writeln!(
        page,
        "    {:<11}{:>11}   {how}, core {x},{y}: {program_end:#x} to {lowest_buffer:#x}",
        "Free gap",
        size(room.free_gap_bytes)
    );
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
            let bar = style.bar(total.used_bytes, capacity, BAR_WIDTH);
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

fn add_space(page: &mut String, usage: &Usage, space: Space) {
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
        notes.extend(program_notes(program));
        if space == Space::Cb && basis == Basis::Reported {
            notes.push("per core".to_owned());
        }
    }
    notes.push(basis_note(basis));
    let _ = writeln!(page, "    {:<11}{:>11}   {}", label::part(space), size(used), notes.join(", "));
    let more = (!more.is_empty()).then(|| more.join(", "));
    for line in more.into_iter().chain(free_note) {
        let _ = writeln!(page, "{:29}{line}", "");
    }
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
