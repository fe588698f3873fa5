//! A snapshot as a page of text: devices, processes, findings; with `-v`, what each device holds by space.

mod breakdown;
mod notes;
pub(crate) mod old;

use crate::text::{Style, ranges, sanitize, severity_colour, truncate, wrap};
use breakdown::{add_breakdown, add_tracking};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_render::{device, format_table, label, process};

/// The widest title: as wide as most tables.
const MAX_TITLE: usize = 100;
/// The most findings without `-v`; the rest is counted.
const MAX_FINDINGS: usize = 8;
/// Findings that are shown even if the terminal has too few lines.
const MIN_FINDINGS: usize = 2;
/// Indentation of the text of a finding.
const INDENT: usize = 10;

pub(crate) fn render(snapshot: &Snapshot, verbose: bool, style: Style) -> String {
    let mut page = String::new();
    add_title(&mut page, snapshot, style);
    add_devices(&mut page, snapshot, style);
    if verbose {
        add_breakdown(&mut page, snapshot, style);
    }
    page.push('\n');
    add_processes(&mut page, snapshot, verbose, style);
    if verbose {
        add_tracking(&mut page, snapshot);
    }
    let most = if verbose { usize::MAX } else { MAX_FINDINGS };
    add_findings(&mut page, snapshot, most, style);
    notes::add_skipped(&mut page, snapshot, style);
    style.encode(page)
}

fn add_title(page: &mut String, snapshot: &Snapshot, style: Style) {
    let mut title = format!("ttmem {}", snapshot.host.ttmem);
    if let Some(name) = &snapshot.host.name {
        let _ = write!(title, " on {}", truncate(name, 24));
    }
    if let Some(driver) = &snapshot.host.driver {
        let _ = write!(title, ", driver {}", truncate(driver, 16));
    }
    title.push_str(if snapshot.health.source == "daemon" { ", via daemon" } else { ", local" });
    if snapshot.simulated {
        title.push_str(", SIMULATED DEVICES");
    }
    let at = format_local_time(snapshot.at, "%a %Y-%m-%d %H:%M:%S %Z");
    let gap = style.width.min(MAX_TITLE).saturating_sub(title.chars().count() + at.chars().count()).max(2);
    let _ = writeln!(page, "{title}{:gap$}{at}\n", "");
}

/// A time in the system's time zone.
fn format_local_time(at: Timestamp, format: &str) -> String {
    at.to_zoned(time_zone()).strftime(format).to_string()
}

/// The system's time zone, without its name: finding that would mean to search the whole time zone database.
fn time_zone() -> TimeZone {
    if std::env::var_os("TZ").is_some() {
        return TimeZone::system();
    }
    let local = std::fs::read("/etc/localtime").ok();
    local.and_then(|bytes| TimeZone::tzif("Local", &bytes).ok()).unwrap_or(TimeZone::UTC)
}

fn add_devices(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.devices.is_empty() {
        page.push_str("No Tenstorrent device found; `ttmem doctor` says why.\n");
        return;
    }
    let (indexes, rows): (Vec<Vec<u32>>, Vec<_>) = device::fold_equal_rows(snapshot).into_iter().unzip();
    let names: Vec<String> = indexes.iter().map(|it| ranges(it)).collect();
    let names = Some(("Dev", &names[..]));
    for line in format_table(names, device::TABLE, &rows, style.width, |cell| style.paint_cell(cell)) {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    notes::add_stale_sensors(page, snapshot);
}

fn add_processes(page: &mut String, snapshot: &Snapshot, verbose: bool, style: Style) {
    if snapshot.processes.is_empty() {
        page.push_str("No process has a device open or reports device memory.\n");
        return;
    }
    let rows: Vec<_> = snapshot.processes.iter().collect();
    // Whole commands can be copied.
    let room = if verbose { usize::MAX } else { style.width };
    for line in format_table(None, process::TABLE, &rows, room, |cell| style.paint_cell(cell)) {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    notes::add_tracking_notes(page, snapshot, style);
}

fn add_findings(page: &mut String, snapshot: &Snapshot, most: usize, style: Style) {
    let lines: Vec<Vec<String>> = snapshot
        .findings
        .iter()
        .take(most)
        .map(|it| wrap(&sanitize(&it.text), style.width.saturating_sub(INDENT)))
        .collect();
    if lines.is_empty() {
        return;
    }
    page.push_str("\nFindings:\n");
    // One line is for the prompt, one for the number of findings that are left out.
    let room =
        style.height.filter(|_| most != usize::MAX).map(|it| it.saturating_sub(page.lines().count() + 2));
    let mut used = 0;
    let mut shown = 0;
    for (finding, lines) in snapshot.findings.iter().zip(&lines) {
        used += lines.len();
        if shown >= MIN_FINDINGS && room.is_some_and(|room| used > room) {
            break;
        }
        shown += 1;
        let name = format!("{:<8}", label::severity(finding.severity));
        let name = style.paint(&name, severity_colour(finding.severity));
        let _ = writeln!(page, "{name}  {}", lines[0]);
        for line in &lines[1..] {
            let _ = writeln!(page, "{:INDENT$}{line}", "");
        }
    }
    let more = snapshot.findings.len() - shown;
    if more > 0 {
        let _ = writeln!(page, "and {more} more: ttmem -v");
    }
}
