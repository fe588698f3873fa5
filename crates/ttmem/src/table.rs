//! A snapshot as a page of text.

use crate::cores;
use crate::text::{Style, UNKNOWN, cut, plain, ranges, size};
use jiff::tz::TimeZone;
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::machine::{Capacity, CapacityOrigin, Sensors};
use ttmem_core::snapshot::{CoreRoom, Device, Process, ProgramUsage, Severity, Total, Usage};
use ttmem_core::words::{Basis, Space};

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
    let columns = |cells: [&str; 8]| {
        let [id, name, board, temp, power, clock, dram, l1] = cells;
        format!(" {id:<4} {name:<10} {board:<16} {temp:>5} {power:>5} {clock:>6}  {dram:>19}  {l1:>19}")
    };
    row(page, &columns(["Dev", "Name", "Board", "Temp", "Power", "AICLK", "DRAM-Usage", "L1-Usage"]));
    rule(page, '├', '┤');
    for device in &snapshot.devices {
        let name = device.arch.map_or("Unknown", ttmem_core::words::Arch::title);
        let board = device.board.as_deref().unwrap_or(UNKNOWN);
        let board = if device.remote { format!("{board} (remote)") } else { board.to_owned() };
        let capacity = device.capacity;
        let sensor = |value: fn(&Sensors) -> Option<f64>, unit: &str| {
            let value = device.sensors.as_ref().and_then(|it| Some((value(it)?, it.stale)));
            let mark = |stale| if stale { "*" } else { "" };
            value.map_or_else(|| UNKNOWN.to_owned(), |(it, stale)| format!("{it:.0}{unit}{}", mark(stale)))
        };
        row(
            page,
            &columns([
                &device.index.to_string(),
                name,
                &cut(&board, 16),
                &sensor(|it| it.asic_celsius, "°C"),
                &sensor(|it| it.power_watts, "W"),
                &sensor(|it| it.aiclk_mhz, ""),
                &level(device.usage.dram_total.as_ref(), capacity.map(|c| c.dram_bytes)),
                &level(device.usage.l1_total.as_ref(), capacity.map(|c| c.l1_bytes)),
            ]),
        );
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

/// `used/total`. Nobody publishing anything is not the same as nothing being used.
fn level(total: Option<&Total>, capacity: Option<u64>) -> String {
    let used = total.map_or_else(|| "untracked".to_owned(), |total| size(total.used_bytes));
    let capacity = capacity.map_or_else(|| UNKNOWN.to_owned(), size);
    format!("{used}/{capacity}")
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
    let name = device.arch.map_or("Unknown", ttmem_core::words::Arch::title);
    let _ = writeln!(page, "Device {} ({name}, {}):", device.index, device.id);
    if let Some(total) = &usage.dram_total {
        total_line(page, "DRAM", total, style);
        part(page, usage, "Buffers", Space::Dram);
        part(page, usage, "TRACE", Space::Trace);
    }
    if let Some(total) = &usage.l1_total {
        total_line(page, "L1", total, style);
        part(page, usage, "Buffers", Space::L1);
        part(page, usage, "CBs", Space::Cb);
        part(page, usage, "DFBs", Space::Dfb);
        part(page, usage, "Scratch", Space::Scratch);
        part(page, usage, "Kernels", Space::Kernel);
        part(page, usage, "L1_SMALL", Space::L1Small);
        part(page, usage, "L1 per core", Space::L1Core);
        if let Some(room) = &device.tightest_core {
            room_line(page, room, usage);
        }
    }
    part(page, usage, "Host memory", Space::Host);
    if let Some(capacity) = device.capacity {
        capacity_line(page, &capacity);
    }
}

/// The least room that a core has between what its program keeps and the lowest buffer.
fn room_line(page: &mut String, room: &CoreRoom, usage: &Usage) {
    let CoreRoom { x, y, program_end, lowest_buffer, .. } = room;
    // Who holds L1 without saying where, or when, may lie in between.
    let known = room.basis == Basis::Events && cores::is_told(usage);
    let how = if known { "at least" } else { "at most" };
    let _ = writeln!(
        page,
        "    {:<11}{:>11}   {how}, core {x},{y}: {program_end:#x} to {lowest_buffer:#x}",
        "Gap",
        size(room.gap_bytes)
    );
}

/// What the chip has, what of it the runtime can hand out, and how that is known.
fn capacity_line(page: &mut String, it: &Capacity) {
    let origin = match it.origin {
        CapacityOrigin::Simulated => "simulated",
        CapacityOrigin::Runtime => "as its runtime says",
        CapacityOrigin::Descriptor => "as the topology says",
        CapacityOrigin::Board => "assumed from the board",
    };
    let usable = match (it.dram_allocatable_bytes, it.l1_allocatable_bytes) {
        (Some(dram), Some(l1)) => format!("; tt-metal can hand out {} DRAM, {} L1", size(dram), size(l1)),
        _ => String::new(),
    };
    let (cores, l1) = (it.cores, size(it.l1_bytes_per_core));
    let _ = writeln!(page, "  {cores} cores x {l1}{usable} ({origin})");
}

fn total_line(page: &mut String, name: &str, total: &Total, style: Style) {
    let used = size(total.used_bytes);
    let _ = match total.capacity_bytes {
        Some(capacity) => {
            let percent = total.used_bytes as f64 * 100.0 / capacity.max(1) as f64;
            let bar = style.bar(total.used_bytes, capacity, BAR);
            // No share of anything is more than all of it: such a figure is wrong, and a finding says so.
            let share = match percent {
                ..=100.0 => format!("{percent:>5.1} %"),
                _ => "not possible".to_owned(),
            };
            writeln!(page, "  {name:<13}{used:>11} / {:<11}{bar} {share}", size(capacity))
        }
        None => writeln!(page, "  {name:<13}{used:>11} / {UNKNOWN:<11}(capacity unknown)"),
    };
}

fn part(page: &mut String, usage: &Usage, name: &str, space: Space) {
    let Some((used, basis)) = usage.used(space) else { return };
    let (mut notes, mut more) = (Vec::new(), Vec::new());
    let buffers = match space {
        Space::Dram => &usage.dram,
        Space::L1 => &usage.l1,
        Space::L1Small => &usage.l1_small,
        Space::L1Core => &usage.l1_core,
        Space::Trace => &usage.trace,
        Space::Host => &usage.host,
        _ => &None,
    };
    let program = match space {
        Space::Cb => &usage.cb,
        Space::Dfb => &usage.dfb,
        Space::Scratch => &usage.scratch,
        Space::Kernel => &usage.kernel,
        _ => &None,
    };
    if let Some(buffers) = buffers {
        // A part that was never used is nothing to read about.
        let part = !matches!(space, Space::Dram | Space::L1);
        if part && buffers.peak_bytes == 0 && buffers.count.unwrap_or(0) == 0 {
            return;
        }
        notes.extend(buffers.count.map(|n| count(n, "buffer")));
        notes.push(format!("peak {}", size(buffers.peak_bytes)));
        match buffers.allocated_bytes {
            Some(_) => more.push(format!("{} asked for", size(buffers.requested_bytes))),
            None => notes.push("as asked for".to_owned()),
        }
        if let Some(occupied) = buffers.occupied_bytes {
            more.push(format!("{} occupied", size(occupied)));
        }
        if let (Some(free), Some(largest)) = (buffers.free_bytes, buffers.largest_free_bytes_per_bank) {
            more.push(format!("{} free, largest block {} a bank", size(free), size(largest)));
        }
    }
    if let Some(program) = program {
        if basis == Basis::Counters && program.registered_bytes == 0 {
            return;
        }
        notes.push(residence(program));
        if program.estimated_bytes > 0 {
            notes.push(format!("{} estimated", size(program.estimated_bytes)));
        }
        if space == Space::Cb && basis == Basis::Legacy {
            notes.push("per core".to_owned());
        }
    }
    notes.push(format!("by {}", basis.name()));
    let _ = writeln!(page, "    {name:<11}{:>11}   {}", size(used), notes.join(", "));
    if !more.is_empty() {
        let _ = writeln!(page, "{:29}{}", "", more.join(", "));
    }
}

/// What of it is resident, in words. The figure before it is all that is or may be.
fn residence(it: &ProgramUsage) -> String {
    let registered = size(it.registered_bytes);
    match (it.resident_bytes, it.unfollowed_bytes) {
        (None, _) => "registered".to_owned(),
        (Some(_), 0) => format!("resident; {registered} registered"),
        (Some(resident), unknown) => {
            let (resident, unknown) = (size(resident), size(unknown));
            format!("{resident} resident, {unknown} of unknown residence, {registered} registered")
        }
    }
}

/// `1 buffer`, `2 buffers`.
fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn processes(page: &mut String, snapshot: &Snapshot) {
    page.push('\n');
    rule(page, '┌', '┐');
    let columns = |cells: [&str; 9]| {
        let [pid, user, name, devices, dram, l1, programs, kernels, tracking] = cells;
        format!(
            " {pid:>8} {user:<9} {name:<14} {devices:<7} {dram:>10} {l1:>10} {programs:>10} {kernels:>10}  {tracking}"
        )
    };
    row(
        page,
        &columns(["PID", "User", "Process", "Devices", "DRAM", "L1", "Programs", "Kernels", "Tracking"]),
    );
    rule(page, '├', '┤');
    for process in &snapshot.processes {
        let summary = &process.summary;
        let sum = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), size);
        row(
            page,
            &columns([
                &pid(process),
                &cut(process.user.as_deref().unwrap_or(UNKNOWN), 9),
                &cut(process.name.as_deref().unwrap_or(UNKNOWN), 14),
                &cut(&ranges(&summary.indexes), 7),
                &sum(summary.dram_bytes),
                &sum(summary.l1_bytes),
                &sum(summary.program_bytes),
                &sum(summary.kernel_bytes),
                summary.quality.name(),
            ]),
        );
    }
    if snapshot.processes.is_empty() {
        row(page, " No process uses a device or reports device memory.");
    }
    rule(page, '└', '┘');
    if snapshot.processes.iter().any(|it| it.tracking == Basis::Unknown) {
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
        let judged = process.audit.iter().filter(|audit| audit.judged).count();
        let drift: u64 =
            process.audit.iter().filter(|it| it.judged).map(|it| it.drift_bytes.unsigned_abs()).sum();
        match (judged, drift) {
            (0, _) => notes.push("no audit to judge by just now".to_owned()),
            (n, 0) => notes.push(format!("drift 0 in {}", count(n as u64, "space"))),
            (n, drift) => notes.push(format!("DRIFT {drift} B in {}", count(n as u64, "space"))),
        }
        if let Some(seconds) = tracker.cost_seconds {
            notes.push(format!("cost {:.1} ms", seconds * 1000.0));
        }
        let _ = writeln!(page, "  pid {:<8} {}", pid(process), notes.join(", "));
    }
    let more = tracked().count().saturating_sub(TRACKED);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem check");
    }
}

fn pid(process: &Process) -> String {
    match (process.pid, process.reported_pid) {
        (Some(pid), _) => pid.to_string(),
        // Its own word, from a namespace that cannot be seen from here.
        (None, Some(pid)) => format!("({pid})"),
        (None, None) => UNKNOWN.to_owned(),
    }
}

fn findings(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.findings.is_empty() {
        return;
    }
    page.push_str("\nFindings:\n");
    for finding in snapshot.findings.iter().take(FINDINGS) {
        let (name, colour) = match finding.severity {
            Severity::Error => ("error", "31"),
            Severity::Warning => ("warning", "33"),
            Severity::Info => ("info", "36"),
        };
        let _ = writeln!(page, "  {} {}", style.paint(&format!("{name:<8}"), colour), cut(&finding.text, 88));
    }
    let more = snapshot.findings.len().saturating_sub(FINDINGS);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem --json");
    }
}
