//! A snapshot as a page of text: devices, processes, findings; with `-v`, what each device holds by space.

mod breakdown;
mod notes;
pub(crate) mod old;

use crate::text::{self, Style, cut, plain, ranges, wrapped};
use breakdown::{Fold, breakdown, tracking};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_render::{device, label, page, process};

/// The title is no wider than a table usually is.
const WIDEST: usize = 100;
/// Findings shown without `-v`; the rest is counted.
const FINDINGS: usize = 8;
/// Findings that are shown however few lines the terminal has.
const FEWEST_FINDINGS: usize = 2;
/// Columns before the text of a finding.
const INDENT: usize = 10;

pub(crate) fn render(snapshot: &Snapshot, verbose: bool, style: Style) -> String {
    let mut page = String::new();
    title(&mut page, snapshot, style);
    devices(&mut page, snapshot, style);
    if verbose {
        breakdown(&mut page, snapshot, Fold::Alike, style);
    }
    page.push('\n');
    processes(&mut page, snapshot, verbose, style);
    if verbose {
        tracking(&mut page, snapshot);
    }
    let most = if verbose { usize::MAX } else { FINDINGS };
    findings(&mut page, snapshot, most, style);
    notes::skipped(&mut page, snapshot, style);
    style.finish(page)
}

fn title(page: &mut String, snapshot: &Snapshot, style: Style) {
    let mut title = format!("ttmem {}", snapshot.host.ttmem);
    if let Some(name) = &snapshot.host.name {
        let _ = write!(title, " on {}", cut(name, 24));
    }
    if let Some(driver) = &snapshot.host.driver {
        let _ = write!(title, ", driver {}", cut(driver, 16));
    }
    title.push_str(if snapshot.health.source == "daemon" { ", via daemon" } else { ", local" });
    if snapshot.simulated {
        title.push_str(", SIMULATED DEVICES");
    }
    let at = moment(snapshot.at);
    let gap = style.width.min(WIDEST).saturating_sub(title.chars().count() + at.chars().count()).max(2);
    let _ = writeln!(page, "{title}{:gap$}{at}\n", "");
}

/// A time in the system's time zone.
fn moment(at: Timestamp) -> String {
    at.to_zoned(time_zone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()
}

/// The system's time zone. Its name, which finding it by would mean walking the whole database for, is of no use here.
fn time_zone() -> TimeZone {
    if std::env::var_os("TZ").is_some() {
        return TimeZone::system();
    }
    let local = std::fs::read("/etc/localtime").ok();
    local.and_then(|bytes| TimeZone::tzif("Local", &bytes).ok()).unwrap_or(TimeZone::UTC)
}

fn devices(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.devices.is_empty() {
        page.push_str("No Tenstorrent device found; `ttmem doctor` says why.\n");
        return;
    }
    let (indexes, rows): (Vec<Vec<u32>>, Vec<_>) = device::folded(snapshot).into_iter().unzip();
    let names: Vec<String> = indexes.iter().map(|it| ranges(it)).collect();
    for line in self::page(Some(("Dev", &names)), device::TABLE, &rows, style.width, |it| style.part(it)) {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    notes::stale(page, snapshot);
}

fn processes(page: &mut String, snapshot: &Snapshot, verbose: bool, style: Style) {
    if snapshot.processes.is_empty() {
        page.push_str("No process has a device open or reports device memory.\n");
        return;
    }
    let rows: Vec<_> = snapshot.processes.iter().collect();
    // A command that is not cut can be copied.
    let room = if verbose { usize::MAX } else { style.width };
    for line in self::page(None, process::TABLE, &rows, room, |it| style.part(it)) {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    notes::tracking(page, snapshot, style);
}

fn findings(page: &mut String, snapshot: &Snapshot, most: usize, style: Style) {
    let lines: Vec<Vec<String>> = snapshot
        .findings
        .iter()
        .take(most)
        .map(|it| wrapped(&plain(&it.text), style.width.saturating_sub(INDENT)))
        .collect();
    if lines.is_empty() {
        return;
    }
    page.push_str("\nFindings:\n");
    // One line for the prompt, one for the count of those that are left out.
    let room =
        style.height.filter(|_| most != usize::MAX).map(|it| it.saturating_sub(page.lines().count() + 2));
    let mut used = 0;
    let mut shown = 0;
    for (finding, lines) in snapshot.findings.iter().zip(&lines) {
        used += lines.len();
        if shown >= FEWEST_FINDINGS && room.is_some_and(|room| used > room) {
            break;
        }
        shown += 1;
        let name = format!("{:<8}", label::severity(finding.severity));
        let _ = writeln!(page, "{}  {}", style.paint(&name, text::severity(finding.severity)), lines[0]);
        for line in &lines[1..] {
            let _ = writeln!(page, "{:INDENT$}{line}", "");
        }
    }
    let more = snapshot.findings.len() - shown;
    if more > 0 {
        let _ = writeln!(page, "and {more} more: ttmem -v");
    }
}
