//! The page of `tt_smi_umd` in the format of that tool, which scripts parse.
//!
//! Lines of the old page keep their labels, units and order. What is new is in lines of its own, with other labels.

use super::breakdown::add_tracking;
use super::{format_local_time, notes};
use crate::text::{Style, UNKNOWN, ranges, sanitize, severity_colour, truncate};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Device, Process, Total, Tracking};
use ttmem_core::words::Arch;
use ttmem_daemon::legacy_levels;
use ttmem_render::format::{percent, share};
use ttmem_render::{device, label, process};

/// Characters between the borders.
const WIDTH: usize = 100;
/// Width of a bar.
const BAR_WIDTH: usize = 25;
/// Length of the line below the name of a device.
const RULE: usize = 70;
/// Longest name of a process; longer ones are cut to three characters less and an ellipsis.
const MAX_NAME: usize = 18;
/// The most findings; the rest is counted.
const MAX_FINDINGS: usize = 8;

pub(crate) fn render(snapshot: &Snapshot, style: Style) -> String {
    let mut page = String::new();
    add_devices(&mut page, snapshot);
    add_origin(&mut page, snapshot);
    notes::add_stale_sensors(&mut page, snapshot);
    add_breakdown(&mut page, snapshot, style);
    add_processes(&mut page, snapshot);
    add_tracking(&mut page, snapshot);
    add_findings(&mut page, snapshot, style);
    notes::add_skipped(&mut page, snapshot, style);
    style.encode(page)
}

fn add_rule(page: &mut String, left: char, right: char) {
    let _ = writeln!(page, "{left}{}{right}", "─".repeat(WIDTH));
}

fn add_row(page: &mut String, text: &str) {
    let _ = writeln!(page, "│ {text:<width$} │", width = WIDTH - 2);
}

/// A size as the old tool printed it: powers of 1024, one decimal, no space before the unit.
fn format_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    format!("{value:.1}{unit}")
}

fn arch_name(device: &Device) -> &'static str {
    match device.arch {
        Some(Arch::WormholeB0) => "Wormhole_B0",
        Some(Arch::Blackhole) => "Blackhole",
        None => "Unknown",
    }
}

fn add_devices(page: &mut String, snapshot: &Snapshot) {
    let at = format_local_time(snapshot.at, "%a %b %e %H:%M:%S %Y");
    let title = format!("tt-smi-umd (ttmem {}, telemetry from sysfs)", snapshot.host.ttmem);
    add_rule(page, '┌', '┐');
    let gap = (WIDTH - 2).saturating_sub(title.chars().count() + at.chars().count());
    add_row(page, &format!("{title}{}{at}", " ".repeat(gap)));
    add_rule(page, '├', '┤');
    let row = |cells: [&str; 6]| {
        let [index, name, temperature, power, clock, memory] = cells;
        format!("{index:<4}{name:<16}{temperature:<10}{power:<10}{clock:<12}{memory}")
    };
    add_row(page, &row(["GPU", "Name", "Temp", "Power", "AICLK", "Memory-Usage"]));
    add_rule(page, '├', '┤');
    for device in &snapshot.devices {
        let sensors = device.sensors.as_ref();
        let reading = |value: Option<f64>, unit: &str| {
            value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value:.0}{unit}"))
        };
        let memory = match (dram_used(snapshot, device), device::dram_capacity(device)) {
            (None, _) => UNKNOWN.to_owned(),
            (Some(used), capacity) => format!("{}/{}", format_bytes(used), format_capacity(capacity)),
        };
        let cells = [
            &device.index.to_string(),
            arch_name(device),
            &reading(sensors.and_then(|it| it.asic_celsius), "°C"),
            &reading(sensors.and_then(|it| it.power_watts), "W"),
            &reading(sensors.and_then(|it| it.aiclk_mhz), " MHz"),
            &memory,
        ];
        add_row(page, &row(cells));
    }
    if snapshot.devices.is_empty() {
        add_row(page, "No Tenstorrent device found.");
    }
    add_rule(page, '└', '┘');
}

/// Adds where the figures come from.
fn add_origin(page: &mut String, snapshot: &Snapshot) {
    let mut line = format!("Host: {}", truncate(snapshot.host.name.as_deref().unwrap_or(UNKNOWN), 24));
    if let Some(driver) = &snapshot.host.driver {
        let _ = write!(line, ", driver {}", truncate(driver, 16));
    }
    line.push_str(if snapshot.health.source == "daemon" { ", via daemon" } else { ", local" });
    if snapshot.simulated {
        line.push_str(", SIMULATED DEVICES");
    }
    let _ = writeln!(page, "{line}");
}

fn format_capacity(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), format_bytes)
}

/// DRAM in use. That of a device which no process has open is 0, and not unknown.
fn dram_used(snapshot: &Snapshot, device: &Device) -> Option<u64> {
    used(snapshot, device, device.usage.dram_total.as_ref())
}

fn used(snapshot: &Snapshot, device: &Device, total: Option<&Total>) -> Option<u64> {
    let idle = || device::is_idle(&device::Row { snapshot, device }).then_some(0);
    total.map(|it| it.used_bytes).or_else(idle)
}

fn add_breakdown(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.devices.is_empty() {
        return;
    }
    page.push_str("\nMemory Breakdown:\n");
    for device in &snapshot.devices {
        let _ = writeln!(page, "\nDevice {} ({}):\n{}", device.index, arch_name(device), "-".repeat(RULE));
        let levels = legacy_levels(&device.usage);
        let part = |page: &mut String, label: &str, bytes: u64| {
            if bytes > 0 {
                let _ = writeln!(page, "    {label:<10}{}", format_bytes(bytes));
            }
        };
        add_total(page, "DRAM:", dram_used(snapshot, device), device::dram_capacity(device), style);
        // The old page had this line among those of L1; traces are in DRAM.
        part(page, "TRACE:", levels.trace);
        let (l1_total, l1_capacity) = (device.usage.l1_total.as_ref(), device::l1_capacity(device));
        add_total(page, "L1 Memory:", used(snapshot, device, l1_total), l1_capacity, style);
        let parts = [
            ("Buffers:", levels.l1),
            ("CBs:", levels.cb),
            ("Kernels:", levels.kernel),
            ("L1_SMALL:", levels.l1_small),
        ];
        for (label, bytes) in parts {
            part(page, label, bytes);
        }
        let shares: Vec<String> = parts
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .filter_map(|&(label, bytes)| {
                let share = share(bytes, l1_capacity)?;
                Some(format!("{} {}", label.trim_end_matches(':'), percent(Some(share))))
            })
            .collect();
        if !shares.is_empty() {
            let _ = writeln!(page, "    {:<10}{}", "Of L1:", shares.join(", "));
        }
        let without_kernels = levels.l1.saturating_add(levels.cb).saturating_add(levels.l1_small);
        let counted = l1_total.map_or(0, |it| it.used_bytes.saturating_sub(without_kernels));
        if levels.kernel != counted {
            let counted = format_bytes(counted);
            let _ = writeln!(
                page,
                "    {:<10}L1 Memory includes {counted} of the kernels; the rest was loaded, and is not in the total",
                "Note:"
            );
        }
        let totals = [("DRAM", &device.usage.dram_total), ("L1", &device.usage.l1_total)];
        let bases: Vec<String> = totals
            .iter()
            .filter_map(|(name, total)| Some(format!("{name} {}", total.as_ref()?.basis.name())))
            .collect();
        if !bases.is_empty() {
            let _ = writeln!(page, "    {:<10}{}", "Basis:", bases.join(", "));
        }
    }
}

/// Adds the line of a memory. A share above 100 % is not possible, and a finding explains it.
fn add_total(page: &mut String, label: &str, used: Option<u64>, capacity: Option<u64>, style: Style) {
    let (amount, of) = (format_capacity(used), format_capacity(capacity));
    let line = format!("  {label:<12}{amount:<10} / {of:<10}");
    let _ = match used.zip(capacity.filter(|&it| it > 0)) {
        Some((used, capacity)) => {
            let percent = used as f64 / capacity as f64 * 100.0;
            writeln!(page, "{line}  {} {percent:.1}%", style.bar(used, capacity, BAR_WIDTH))
        }
        None => writeln!(page, "{}", line.trim_end()),
    };
}

fn add_processes(page: &mut String, snapshot: &Snapshot) {
    if snapshot.processes.is_empty() {
        page.push_str("\nNo processes using Tenstorrent devices\n");
        return;
    }
    page.push_str("\nProcesses:\n");
    let row = |cells: [&str; 6]| {
        let [pid, name, devices, dram, l1, status] = cells;
        format!("{pid:<8}{name:<20}{devices:<8}{dram:<12}{l1:<12}{status}")
    };
    add_rule(page, '┌', '┐');
    add_row(page, &row(["PID", "Name", "Device", "DRAM", "L1", "Status"]));
    add_rule(page, '├', '┤');
    for process in &snapshot.processes {
        let summary = &process.summary;
        let pid = process::pid(process.pid, process.reported_pid, UNKNOWN);
        let l1 = [summary.l1_bytes, summary.program_bytes].into_iter().flatten();
        let cells = [
            &pid,
            &*format_name(process),
            &ranges(&summary.indexes),
            &format_capacity(summary.dram_bytes),
            &format_capacity(l1.reduce(u64::saturating_add)),
            format_status(process.tracking),
        ];
        add_row(page, &row(cells));
    }
    add_rule(page, '└', '┘');
}

fn format_name(process: &Process) -> String {
    let name = sanitize(process.name.as_deref().unwrap_or(UNKNOWN));
    if name.chars().count() <= MAX_NAME {
        return name;
    }
    name.chars().take(MAX_NAME - 3).chain("...".chars()).collect()
}

fn format_status(tracking: Tracking) -> &'static str {
    match tracking {
        Tracking::Untracked => "Device open (no tracking)",
        Tracking::Reported => "Connected to server",
        Tracking::Counters => "tt-metal counters",
        Tracking::Audited | Tracking::Agent => "Tracked by the agent",
        Tracking::Library => "Tracked by the library",
        Tracking::Partial => "Tracked in part",
        Tracking::Drift => "Tracked with drift",
    }
}

fn add_findings(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.findings.is_empty() {
        return;
    }
    page.push_str("\nFindings:\n");
    for finding in snapshot.findings.iter().take(MAX_FINDINGS) {
        let name = format!("{:<8}", label::severity(finding.severity));
        let name = style.paint(&name, severity_colour(finding.severity));
        let _ = writeln!(page, "  {name} {}", truncate(&finding.text, 88));
    }
    let more = snapshot.findings.len().saturating_sub(MAX_FINDINGS);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem -v");
    }
}

#[cfg(test)]
mod tests {
    use super::format_bytes;

    #[test]
    fn sizes_are_those_of_the_old_tool() {
        for (bytes, text) in [
            (0, "0.0B"),
            (1023, "1023.0B"),
            (1024, "1.0KB"),
            (1536 << 10, "1.5MB"),
            (34_225_520_640, "31.9GB"),
            (12 << 30, "12.0GB"),
            (5 << 50, "5120.0TB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }
}
