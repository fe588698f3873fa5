//! A snapshot as a page of text.

use crate::text::{Style, UNKNOWN, cut, plain, ranges, size};
use jiff::tz::TimeZone;
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::machine::Capacity;
use ttmem_core::snapshot::{CoreRoom, Device, Severity, Total, Usage};
use ttmem_core::words::{Basis, Space};
use ttmem_render::figure::{counted, percent, share};
use ttmem_render::usage::{BufferNotes, by, is_gap_certain, program_notes};
use ttmem_render::{device, heading, label, line, process, usage};

/// Characters between the borders.
const WIDTH: usize = 98;
const BAR: usize = 25;
/// Devices in use that are each broken down; of more, nobody reads it.
const BREAKDOWNS: usize = 8;
/// Findings shown; the rest is counted.
const FINDINGS: usize = 8;
/// Files shown that were not read.
const SKIPPED: usize = 4;
/// Processes whose tracking is described.
const TRACKED: usize = 8;

pub(crate) fn render(snapshot: &Snapshot, style: Style) -> String {
    let mut page = String::new();
    devices(&mut page, snapshot);
    breakdown(&mut page, snapshot, style);
    processes(&mut page, snapshot);
    tracking(&mut page, snapshot);
    findings(&mut page, snapshot, style);
    skipped(&mut page, snapshot);
    style.finish(page)
}

/// Files that were not read: what is in them is not in the figures above.
fn skipped(page: &mut String, snapshot: &Snapshot) {
    let all = &snapshot.health.skipped;
    if all.is_empty() {
        return;
    }
    page.push_str("\nNot read:\n");
    for it in all.iter().take(SKIPPED) {
        let _ = writeln!(page, "  {}", cut(&format!("{} {}", it.path, it.reason), 96));
    }
    if all.len() > SKIPPED {
        let _ = writeln!(page, "  and {} more: ttmem --json", all.len() - SKIPPED);
    }
}

fn rule(page: &mut String, left: char, right: char) {
    let _ = writeln!(page, "{left}{}{right}", "─".repeat(WIDTH));
}

fn row(page: &mut String, text: &str) {
    let _ = writeln!(page, "│{text:<WIDTH$}│");
}

fn devices(page: &mut String, snapshot: &Snapshot) {
    let at = snapshot.at.to_zoned(time_zone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string();
    let mut title = format!(" ttmem {}", snapshot.host.ttmem);
    if let Some(name) = &snapshot.host.name {
        let _ = write!(title, " on {}", cut(name, 24));
    }
    if let Some(driver) = &snapshot.host.driver {
        let _ = write!(title, ", driver {}", cut(driver, 16));
    }
    if snapshot.health.source == "daemon" {
        title.push_str(", by the daemon");
    }
    if snapshot.simulated {
        title.push_str("  [SIMULATED CHIPS]");
    }
    rule(page, '┌', '┐');
    let gap = WIDTH.saturating_sub(title.chars().count() + at.chars().count() + 1);
    row(page, &format!("{title}{}{at}", " ".repeat(gap)));
    rule(page, '├', '┤');
    row(page, &format!(" {}", heading(device::TABLE)));
    rule(page, '├', '┤');
    for device in &snapshot.devices {
        row(page, &format!(" {}", line(device::TABLE, &device::Row { snapshot, device })));
    }
    if snapshot.devices.is_empty() {
        row(
            page,
            " No Tenstorrent device is known: the driver shows none, and no process has named one yet.",
        );
    }
    rule(page, '└', '┘');
    let stale = snapshot.devices.iter().filter(|it| it.sensors.as_ref().is_some_and(|it| it.stale));
    for device in stale {
        let sensors = device.sensors.as_ref();
        let age = sensors.map_or(0, |it| it.age_ms) as f64 / 1000.0;
        let why = plain(device.sensors_absent.as_deref().unwrap_or("they are old"));
        let _ = writeln!(page, "* sensors of device {}: {why}; values are {age:.1} s old", device.index);
    }
}

/// The system's time zone. Its name, which finding it by would mean walking the whole database for, is of no use here.
fn time_zone() -> TimeZone {
    if std::env::var_os("TZ").is_some() {
        return TimeZone::system();
    }
    let local = std::fs::read("/etc/localtime").ok();
    local.and_then(|bytes| TimeZone::tzif("Local", &bytes).ok()).unwrap_or(TimeZone::UTC)
}

fn breakdown(page: &mut String, snapshot: &Snapshot, style: Style) {
    let mut quiet = Vec::new();
    let mut title = "\nMemory breakdown:\n";
    let used = snapshot.devices.iter().filter(|device| device.usage != Usage::default()).count();
    if used > BREAKDOWNS {
        let _ = writeln!(page, "\nMemory breakdown of a device: ttmem -d N");
    }
    for device in &snapshot.devices {
        if device.usage == Usage::default() {
            quiet.push(device.index);
            continue;
        }
        if used > BREAKDOWNS {
            continue;
        }
        page.push_str(std::mem::take(&mut title));
        breakdown_of(page, device, style);
    }
    let by_counters = |usage: &Usage| {
        [&usage.dram_total, &usage.l1_total].into_iter().flatten().any(|it| it.basis == Basis::Counters)
    };
    if snapshot.devices.iter().any(|device| by_counters(&device.usage)) {
        page.push_str(
            "\"by counters\": as tt-metal itself counts, which misses threads, rounding and more; \
             `ttmem run` tracks exactly.\n",
        );
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

fn breakdown_of(page: &mut String, device: &Device, style: Style) {
    let usage = &device.usage;
    let _ = writeln!(page, "Device {} ({}, {}):", device.index, device::name(device), device.id);
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
            room_line(page, room, usage);
        }
    }
    part(page, usage, Space::Host);
    if let Some(capacity) = device.capacity {
        capacity_line(page, &capacity);
    }
}

/// The least room that a core has between what its program keeps and the lowest buffer.
fn room_line(page: &mut String, room: &CoreRoom, usage: &Usage) {
    let CoreRoom { x, y, program_end, lowest_buffer, .. } = room;
    let how = if is_gap_certain(room, usage) { "at least" } else { "at most" };
    let _ = writeln!(
        page,
        "    {:<11}{:>11}   {how}, core {x},{y}: {program_end:#x} to {lowest_buffer:#x}",
        "Gap",
        size(room.free_gap_bytes)
    );
}

/// What the chip has, what of it the runtime can hand out, and how that is known.
fn capacity_line(page: &mut String, it: &Capacity) {
    let usable = match (it.dram_allocatable_bytes, it.l1_allocatable_bytes) {
        (Some(dram), Some(l1)) => format!("; tt-metal can hand out {} DRAM, {} L1", size(dram), size(l1)),
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
            // No share of anything is more than all of it: such a figure is wrong, and a finding says so.
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
    let (mut notes, mut more) = (Vec::new(), Vec::new());
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
        more.extend(free);
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
    if !more.is_empty() {
        let _ = writeln!(page, "{:29}{}", "", more.join(", "));
    }
}

fn processes(page: &mut String, snapshot: &Snapshot) {
    page.push('\n');
    rule(page, '┌', '┐');
    row(page, &format!(" {}", heading(process::TABLE)));
    rule(page, '├', '┤');
    for process in &snapshot.processes {
        row(page, &format!(" {}", line(process::TABLE, &process)));
    }
    if snapshot.processes.is_empty() {
        row(page, " No process uses a device or reports device memory.");
    }
    rule(page, '└', '┘');
    if snapshot.processes.iter().any(|it| it.basis == Basis::Unknown) {
        page.push_str(
            "\"untracked\": has a device open and publishes nothing; `ttmem run` shows what it holds.\n",
        );
    }
}

/// How well processes with the agent are tracked, in a line each.
fn tracking(page: &mut String, snapshot: &Snapshot) {
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
        let judged = process.audit.iter().filter(|audit| audit.compared).count();
        let drift: u64 =
            process.audit.iter().filter(|it| it.compared).map(|it| it.drift_bytes.unsigned_abs()).sum();
        match (judged, drift) {
            (0, _) => notes.push("no audit to judge by just now".to_owned()),
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

fn findings(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.findings.is_empty() {
        return;
    }
    page.push_str("\nFindings:\n");
    for finding in snapshot.findings.iter().take(FINDINGS) {
        let colour = match finding.severity {
            Severity::Error => "31",
            Severity::Warning => "33",
            Severity::Info => "36",
        };
        let name = label::severity(finding.severity);
        let _ = writeln!(page, "  {} {}", style.paint(&format!("{name:<8}"), colour), cut(&finding.text, 88));
    }
    let more = snapshot.findings.len().saturating_sub(FINDINGS);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem --json");
    }
}
